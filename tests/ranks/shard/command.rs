//! `octorec plan` as a user meets it.

use std::process::{Command, Output};

use serde_json::Value;

fn run(line: &str) -> Output {
    Command::new(env!("CARGO_BIN_EXE_octorec")).args(line.split_whitespace()).output().expect("the binary runs")
}

fn succeed(line: &str) -> String {
    let output = run(line);
    assert!(output.status.success(), "octorec {line}\n{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

fn fail(line: &str) -> String {
    let output = run(line);
    let message = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(1), "octorec {line}\n{message}");
    message
}

const MLPERF: &str = "plan --preset mlperf --ranks 8 --topology twisted-hypercube-8 --batch 16384";

#[test]
fn a_plan_is_printed_written_edited_and_followed() {
    let text = succeed(MLPERF);
    for words in
        ["26 tables", "8 ranks of twisted-hypercube-8", "minibatch 16384", "C26", "below 2,048 rows", "look-up"]
    {
        assert!(text.contains(words), "{words}\n{text}");
    }
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("plan.toml");
    succeed(&format!("{MLPERF} --out {}", file.display()));
    let followed: Value =
        serde_json::from_str(&succeed(&format!("{MLPERF} --plan {} --json", file.display()))).unwrap();
    let planned: Value = serde_json::from_str(&succeed(&format!("{MLPERF} --json"))).unwrap();
    assert_eq!(followed["plan"]["cost"], planned["plan"]["cost"]);
    assert_eq!(followed["plan"]["sharding"], planned["plan"]["sharding"]);

    let written = std::fs::read_to_string(&file).unwrap();
    std::fs::write(&file, written.replacen("ranks = 8\n", "ranks = 8\nranke = 3\n", 1)).unwrap();
    let message = fail(&format!("{MLPERF} --plan {}", file.display()));
    assert!(message.contains("plan.toml:4: unknown field `ranke`"), "{message}");
    let message = fail(&format!("{MLPERF} --plan {}", folder.path().join("no.toml").display()));
    assert!(message.contains("no.toml: cannot read"), "{message}");
}

#[test]
fn one_table_is_explained() {
    for table in ["0", "C1"] {
        let text = succeed(&format!("{MLPERF} --explain {table}"));
        assert!(text.starts_with("table 0 (C1): 40,000,000 rows"), "{text}");
        assert_eq!(text.matches("<- as planned").count(), 1, "{text}");
        assert!(text.contains("row in 8, cyclic"), "{text}");
    }
    assert!(fail(&format!("{MLPERF} --explain C77")).contains("unknown table `C77`"));
}

#[test]
fn what_does_not_fit_is_refused() {
    let message = fail("plan --preset mlperf --ranks 4 --topology this-small-box");
    assert!(message.contains("table 0 (C1): 19.1 GiB are needed") && message.contains("node 0"), "{message}");
    let message = fail(&format!("{MLPERF} --ranks 4 --scheme replicated"));
    assert!(message.contains("--scheme auto"), "{message}");
    assert!(fail(&format!("{MLPERF} --skew 77")).contains("--skew: must lie in [0, 10]"));
}

#[test]
fn the_built_in_model_is_planned_on_any_machine() {
    let text = succeed("plan --ranks 3 --topology two-socket --scheme column");
    assert!(text.contains("26 tables") && text.contains("--scheme column"), "{text}");
}

#[test]
fn tables_of_a_wide_part_are_planned_with_their_own_columns_and_state() {
    let planned = |more: &str| -> Value {
        let model = "--preset kaggle --rows-cap 50000 --set model.wide=true --set model.wide_crosses=[[\"C1\",\"C2\"]]";
        let line = format!("plan {model} --source random --ranks 8 --topology twisted-hypercube-8 --json {more}");
        serde_json::from_str(&succeed(&line)).unwrap()
    };
    let plan = planned(
        "--optimizer-rows rowwise-adagrad --set data.lookups=[2,3,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1]",
    );
    let tables = plan["workload"]["tables"].as_array().unwrap();
    let of = |keys: &[&str], table: usize| keys.iter().map(|key| tables[table][key].clone()).collect::<Vec<_>>();
    assert_eq!(tables.len(), 53);
    let kept = ["dim", "state_bytes", "row_state_bytes"];
    // Adagrad's number a row, and FTRL's two moments a weight.
    assert_eq!(
        (of(&kept, 2), of(&kept, 28), of(&kept, 52)),
        (vec![16.into(), 0.into(), 4.into()], vec![1.into(), 8.into(), 0.into()], vec![1.into(), 8.into(), 0.into()],)
    );
    let asked = ["rows", "lookups"];
    assert_eq!(
        (of(&asked, 1), of(&asked, 27), of(&asked, 52)),
        (vec![583.into(), 3.0.into()], vec![583.into(), 3.0.into()], vec![100_000.into(), 6.0.into()],)
    );
    assert!(tables[52]["name"] == "wide C1 x C2" && plan["plan"]["sharding"]["dims"][52] == 1);
    // What is said of state is said of all tables.
    let plan = planned("--state-bytes 12 --row-state-bytes 7");
    let tables = plan["workload"]["tables"].as_array().unwrap();
    assert!(tables.iter().all(|table| table["state_bytes"] == 12 && table["row_state_bytes"] == 7));
}
