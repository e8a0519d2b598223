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
    // How dense gradients are reduced is priced as the file says, and written again.
    let (again, ring) = (folder.path().join("again.toml"), written.replacen("\n\n", "\ncollective = \"ring\"\n\n", 1));
    std::fs::write(&file, &ring).unwrap();
    let line = format!("{MLPERF} --plan {} --out {} --json", file.display(), again.display());
    let followed: Value = serde_json::from_str(&succeed(&line)).unwrap();
    let asked: Value = serde_json::from_str(&succeed(&format!("{MLPERF} --collective ring --json"))).unwrap();
    let reduced = |plan: &Value| plan["plan"]["cost"]["ranks"][0]["allreduce_s"].as_f64().unwrap();
    assert_eq!(followed["workload"]["collective"], "ring");
    assert!(reduced(&followed) > reduced(&planned), "{} {}", reduced(&followed), reduced(&planned));
    assert_eq!(asked["workload"], followed["workload"]);
    let line_of = |text: &str| text.lines().find(|line| line.starts_with("collective")).map(str::to_owned);
    assert_eq!(line_of(&std::fs::read_to_string(&again).unwrap()), line_of(&ring));
    std::fs::write(&file, ring.replace("\"ring\"", "\"rings\"")).unwrap();
    let message = fail(&format!("{MLPERF} --plan {}", file.display()));
    assert!(message.contains("there is no schedule rings (is ring meant?)"), "{message}");
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
    let text = succeed("plan --optimizer-rows sgd --ranks 3 --topology two-socket --scheme column");
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

#[test]
fn budgets_for_hot_rows_end_where_memory_does() {
    let folder = tempfile::tempdir().unwrap();
    let machine = folder.path().join("pair.toml");
    // Too many rows for copies of all of them; some 25,000 of each table are looked up by a minibatch as often as
    // copies pay.
    let line = "plan --source random --optimizer-rows sgd --set model.rows=[600000,600000] --set model.bottom=[13,64] --set model.dim=64 --set \
                data.zipf=0.9 --set data.lookups=8 --batch 65536 --set train.eval_batch=1 --ranks 2";
    let of = |gib: f64, more: &str| {
        let text = format!(
            "name = \"pair\"\n[[node]]\nids = \"0-1\"\ncores = 4\nmemory_gib = {gib:?}\n[[link]]\npairs = [[0, 1]]\n"
        );
        std::fs::write(&machine, text).unwrap();
        succeed(&format!("{line} --topology {} --hot {more}", machine.display()))
    };
    let json = |gib: f64, more: &str| -> Value { serde_json::from_str(&of(gib, &format!("{more} --json"))).unwrap() };
    let budgets = |plan: &Value| -> Vec<u64> {
        plan["hot"][0].as_array().unwrap().iter().map(|price| price["budget"].as_u64().unwrap()).collect()
    };
    let free = json(64.0, "");
    let all = budgets(&free);
    assert!(all.len() > 4 && !of(64.0, "").contains("memory is what limits"), "{all:?}");
    // A node of which the plan leaves room for less than the last budget but one.
    let wanted =
        free["plan"]["cost"]["pool_bytes"].as_array().unwrap().iter().map(|bytes| bytes.as_u64().unwrap()).max();
    let usable = wanted.unwrap() + all[all.len() - 2] + (1 << 20);
    // A 32nd stays with the system, and at least 16 MiB.
    let total = (usable + (16 << 20)).max(usable.div_ceil(31) * 32);
    let gib = total as f64 / f64::from(1 << 30);
    let tight = json(gib, "");
    let (room, some) = (tight["hot_room"].as_u64().unwrap(), budgets(&tight));
    assert!(some.len() < all.len() && some.iter().all(|budget| *budget <= room), "{some:?} {room}");
    assert!(of(gib, "").contains("memory is what limits: it has room for copies of "), "{}", of(gib, ""));
    let revised = json(gib, "--hot-revise 100");
    assert!(revised["hot_room"].as_u64().unwrap().abs_diff(room / 2) <= 1, "{}", revised["hot_room"]);
}
