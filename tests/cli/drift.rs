//! `octorec inspect DAY --against RUN`: how a day's samples differ from those that a run's model was trained on.

use std::collections::HashMap;
use std::fmt::Write;
use std::fs;
use std::path::Path;

use safetensors::tensor::TensorView;
use safetensors::{SafeTensors, serialize};
use serde_json::{Value, json};

use super::{TINY, fail, json, run, succeed, tsv};

const SCHEMA: &str = r#"
label = "click"
dense = [
    { column = "price", float = true, transform = "standardise" },
    { column = "visits", transform = "log" },
]
categorical = [
    { column = "user" }, { column = "genres", separator = "|" }, { column = "page", rows = 50 },
]
"#;

const HEADER: &str = "click,price,visits,user,genres,page\n";

const MODEL: &str = "--set model.bottom=[2,8,4] --set model.top=[8,1] --set model.dim=4 --batch 50 --steps 4 \
                     --lr 0.1 --eval-every 0 --test-fraction 0 --threads 1";

/// Prices of 10 and 20, 0 to 4 visits, 8 users, no genre for every second row.
fn first_day() -> String {
    let row = |n: u32| {
        let genres = if n.is_multiple_of(2) { "a|b" } else { "" };
        format!("{},{}.0,{},u{},{genres},p{}\n", n % 2, 10 + 10 * (n / 2 % 2), n % 5, n % 8, n % 3)
    };
    HEADER.to_owned() + &(0..400).map(row).collect::<String>()
}

/// Prices of 20 and 30, visits below 0 or missing, seven new users in ten rows, one genre everywhere.
fn next_day() -> String {
    let mut text = HEADER.to_owned();
    for n in 0..100 {
        let visits = if n % 2 == 0 { "-1" } else { "" };
        let user = if n % 10 < 7 { format!("new{n}") } else { "u1".to_owned() };
        let click = u8::from(n % 4 == 0);
        let _ = writeln!(text, "{click},{}.0,{visits},{user},a,p{}", 20 + 10 * (n / 2 % 2), n % 3);
    }
    text
}

/// Paths of the two days and of a run on the first.
fn trained(folder: &Path, flags: &str) -> [String; 3] {
    let at = |name: &str| folder.join(name).display().to_string();
    for (name, text) in [("day0.csv", first_day()), ("day1.csv", next_day()), ("clicks.toml", SCHEMA.to_owned())] {
        fs::write(at(name), text).unwrap();
    }
    let out = format!("run{}", flags.replace(' ', ""));
    let data = format!("--data {} --schema {}", at("day0.csv"), at("clicks.toml"));
    succeed(&format!("train {data} {MODEL} {flags} --out {}", at(&out)));
    [at("day0.csv"), at("day1.csv"), at(&out)]
}

/// What was found of a column.
fn column<'a>(found: &'a Value, name: &str) -> &'a Value {
    let columns = found["columns"].as_array().unwrap();
    columns.iter().find(|column| column["column"] == name).unwrap_or_else(|| panic!("{name}: {found}"))
}

fn near(found: &Value, expected: f64, bound: f64) {
    let number = found.as_f64().unwrap_or_else(|| panic!("{found} is no number"));
    assert!((number - expected).abs() < bound, "{number} is not {expected}");
}

/// The columns, in their order.
fn order(found: &Value) -> Vec<&str> {
    found["columns"].as_array().unwrap().iter().map(|column| column["column"].as_str().unwrap()).collect()
}

#[test]
fn blank_fields_have_labels_where_the_rule_asks_for_them() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name).display().to_string();
    let bought = |n: u32| if n.is_multiple_of(3) { "2024-03-01" } else { "" };
    let rows: String = (0..300).map(|n| format!("{},{}.5,u{}\n", bought(n), n % 5, n % 8)).collect();
    fs::write(at("log.csv"), format!("bought_at,price,user\n{rows}")).unwrap();
    let model = MODEL.replace("[2,8,4]", "[1,8,4]");
    for (operator, rate) in [("!=", 1.0 / 3.0), ("==", 2.0 / 3.0)] {
        let schema = "dense = [{ column = \"price\", float = true }]\ncategorical = [{ column = \"user\" }]\n";
        fs::write(at("log.toml"), format!("label = \"bought_at {operator}\"\n{schema}")).unwrap();
        let data = format!("--data {} --schema {}", at("log.csv"), at("log.toml"));
        succeed(&format!("train {data} {model} --out {} --force", at("run")));
        let found = json(&format!("inspect {} --against {} --json", at("log.csv"), at("run")));
        assert_eq!((&found["samples"], &found["labelled"]), (&json!(300), &json!(300)));
        near(&found["label_rate"], rate, 1e-6);
        near(&found["trained_label_rate"], rate, 1e-6);
    }
}

#[test]
fn what_has_changed_since_training_is_told_column_by_column() {
    let folder = tempfile::tempdir().unwrap();
    for vocab in ["all", "train"] {
        let [day0, day1, run] = trained(folder.path(), &format!("--vocab {vocab}"));
        let found = json(&format!("inspect {day1} --against {run} --json"));
        assert_eq!(
            (&found["samples"], &found["labelled"], &found["trained_samples"]),
            (&json!(100), &json!(100), &json!(400))
        );
        near(&found["label_rate"], 0.25, 1e-12);
        near(&found["trained_label_rate"], 0.5, 1e-12);
        assert_eq!(order(&found), ["user", "visits", "price", "genres", "page"], "{vocab}");
        let user = column(&found, "user");
        assert_eq!(user["kind"], "categorical");
        near(&user["unseen"], 0.7, 1e-12);
        near(&user["missing"], 0.0, 1e-12);
        let genres = column(&found, "genres");
        near(&genres["unseen"], 0.0, 1e-12);
        near(&genres["missing"], 0.0, 1e-12);
        near(&genres["trained_missing"], 0.5, 1e-12);
        // A hash knows every value.
        let page = column(&found, "page");
        assert!(page["unseen"].is_null() && page["psi"].as_f64().unwrap() < 0.01, "{page}");
        let price = column(&found, "price");
        assert_eq!((&price["kind"], &price["clipped"]), (&json!("dense"), &Value::Null));
        near(&price["shift"], 2.0, 1e-4);
        near(&price["mean"], 2.0, 1e-4);
        near(&price["trained_mean"], 0.0, 1e-4);
        let visits = column(&found, "visits");
        for (key, expected) in [("missing", 0.5), ("trained_missing", 0.0), ("clipped", 0.5), ("trained_clipped", 0.0)]
        {
            near(&visits[key], expected, 1e-12);
        }
        near(&visits["shift"], -1.684, 0.01);
        let warnings = found["warnings"].to_string();
        assert!(warnings.contains("warning: column user: 70.0 % of its values"), "{warnings}");
        assert!(!warnings.contains("column genres") && !warnings.contains("all labels"), "{warnings}");

        // The very samples that it was trained on have not changed.
        let same = json(&format!("inspect {day0} --against {run}/checkpoint.safetensors --json"));
        let columns = same["columns"].as_array().unwrap();
        assert!(columns.iter().all(|column| column["psi"].as_f64().unwrap() < 0.001), "{same}");
        near(&column(&same, "user")["unseen"], 0.0, 1e-12);
        near(&column(&same, "visits")["shift"], 0.0, 1e-9);
        assert_eq!(same["warnings"], Value::Array(Vec::new()), "{same}");
    }
}

#[test]
fn a_blank_field_is_missing_and_an_unknown_value_unseen_in_lists_too() {
    let folder = tempfile::tempdir().unwrap();
    let day = folder.path().join("blank.csv");
    for vocab in ["all", "train"] {
        let [.., run] = trained(folder.path(), &format!("--vocab {vocab}"));
        let found = |blank: u32, genres: &str| {
            let row = |n: u32| {
                let user = if n % 4 < blank { "" } else { "u1" };
                format!("{},10.0,{},{user},{genres},p{}\n", n % 2, n % 5, n % 3)
            };
            fs::write(&day, HEADER.to_owned() + &(0..60).map(row).collect::<String>()).unwrap();
            json(&format!("inspect {} --against {run} --json", day.display()))
        };
        // Three users of four, and only genres that are new.
        let some = found(3, "x|y");
        for (name, unseen, missing, before) in [("user", 0.0, 0.75, 0.0), ("genres", 1.0, 0.0, 0.5)] {
            let column = column(&some, name);
            near(&column["unseen"], unseen, 1e-12);
            near(&column["missing"], missing, 1e-12);
            near(&column["trained_missing"], before, 1e-12);
        }
        // The hash of a blank is that of some value.
        let page = column(&some, "page");
        assert!(page["missing"].is_null() && page["trained_missing"].is_null(), "{page}");
        let warnings = some["warnings"].to_string();
        assert!(warnings.contains("column genres: 100.0 % of its values are none"), "{vocab}: {warnings}");
        assert!(!warnings.contains("has no value") && !warnings.contains("column user"), "{vocab}: {warnings}");
        let all = found(4, "a|x");
        near(&column(&all, "user")["unseen"], 0.0, 1e-12);
        near(&column(&all, "user")["missing"], 1.0, 1e-12);
        near(&column(&all, "genres")["unseen"], 0.5, 1e-12);
        let warnings = all["warnings"].to_string();
        assert!(warnings.contains("column user has no value in any sample"), "{vocab}: {warnings}");
        assert!(!warnings.contains("column user:") && !warnings.contains("column genres"), "{vocab}: {warnings}");
    }
}

#[test]
fn of_many_samples_stretches_all_over_them_are_looked_at() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name).display().to_string();
    // More than are looked at, clicks only in the second half, and one list that is very long.
    let mut text = HEADER.to_owned();
    for n in 0..40_000 {
        let genres = if n == 3 { "a|".repeat(3_000) } else { "a".to_owned() };
        let click = u8::from(n >= 20_000);
        let _ = writeln!(text, "{click},{}.0,{},u{},{genres},p{}", n % 2, n % 5, n % 10, n % 3);
    }
    fs::write(at("day.csv"), text).unwrap();
    fs::write(at("clicks.toml"), SCHEMA).unwrap();
    succeed(&format!("train --data {} --schema {} {MODEL} --out {}", at("day.csv"), at("clicks.toml"), at("run")));
    let found = json(&format!("inspect {} --against {} --json", at("day.csv"), at("run")));
    assert_eq!((&found["samples"], &found["trained_samples"]), (&json!(40_000), &json!(32_768)));
    near(&found["trained_label_rate"], 0.5, 1e-12);
    let columns = found["columns"].as_array().unwrap();
    assert!(columns.iter().all(|column| column["psi"].as_f64().unwrap() < 0.01), "{found}");
}

#[test]
fn a_resumed_run_has_seen_the_samples_that_an_uninterrupted_one_has() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name).display().to_string();
    // The lists of its last quarter, which is for tests, are longer, and of values that are forgotten.
    let row = |n: u32| {
        let genres = if n < 300 { "a|b" } else { "c|d|e|f|g|h" };
        format!("{},{}.0,{},u{},{genres},p{}\n", n % 2, n % 7, n % 5, n % 8, n % 3)
    };
    fs::write(at("day.csv"), HEADER.to_owned() + &(0..400).map(row).collect::<String>()).unwrap();
    fs::write(at("clicks.toml"), SCHEMA).unwrap();
    let data = format!("--data {} --schema {}", at("day.csv"), at("clicks.toml"));
    let model = MODEL.replace("--test-fraction 0", "--test-fraction 0.25");
    for vocab in ["all", "train"] {
        let first = at(&format!("{vocab}-whole"));
        for (begins, init) in [("whole", String::new()), ("init", format!("--init {first}"))] {
            let [whole, parts] =
                [begins.to_owned(), format!("{begins}-parts")].map(|name| at(&format!("{vocab}-{name}")));
            let train = format!("train {data} {model} --vocab {vocab} {init}");
            succeed(&format!("{train} --out {whole}"));
            succeed(&format!("{} --out {parts}", train.replace("--steps 4", "--steps 2")));
            succeed(&format!("train --resume {parts} --steps 4"));
            let [whole, parts] = [&whole, &parts].map(|run| header(run).1["statistics"].clone());
            assert_eq!(whole["samples"], 300, "{vocab}, {begins}: {whole}");
            assert_eq!(whole, parts, "{vocab}, {begins}");
        }
    }
}

#[test]
fn people_see_the_same_in_a_table() {
    let folder = tempfile::tempdir().unwrap();
    let [_, day1, run] = trained(folder.path(), "--vocab train");
    let output = succeed(&format!("inspect {day1} --against {run}"));
    let text = String::from_utf8(output.stdout).unwrap();
    let first = text.lines().next().unwrap();
    assert!(first.contains("100 samples, label rate 25.00 %, before 50.00 %, as 400 training samples of"), "{text}");
    let words = |name: &str| -> Vec<String> {
        let line = text.lines().find(|line| line.trim_start().starts_with(&format!("{name} ")));
        line.unwrap_or_else(|| panic!("{text}")).split_whitespace().skip(2).map(str::to_owned).collect()
    };
    assert_eq!(words("user"), ["70.0", "%", "0.0", "%", "0.0", "%", "-", "-", "-"]);
    assert_eq!(words("price"), ["-", "0.0", "%", "0.0", "%", "-", "-", "+2.00"]);
    assert_eq!(words("visits"), ["-", "50.0", "%", "0.0", "%", "50.0", "%", "0.0", "%", "-1.68"]);
    assert!(String::from_utf8(output.stderr).unwrap().contains("warning: column user"));
}

#[test]
fn what_is_plainly_wrong_is_warned_of_and_what_is_absent_refused() {
    let folder = tempfile::tempdir().unwrap();
    let [day0, _, run] = trained(folder.path(), "--vocab all");
    let day = folder.path().join("other.csv");
    let against = format!("inspect {} --against {run}", day.display());
    // No price anywhere, no click.
    let rows = (0..60).map(|n| format!("0,,{},u{},,p0\n", n % 5, n % 8));
    fs::write(&day, HEADER.to_owned() + &rows.collect::<String>()).unwrap();
    let found = json(&format!("{against} --json"));
    let warnings = found["warnings"].to_string();
    for told in
        ["all labels are 0", "column price has no value in any sample", "column genres has no value in any sample"]
    {
        assert!(warnings.contains(told), "{told}: {warnings}");
    }
    let price = column(&found, "price");
    near(&price["missing"], 1.0, 1e-12);
    assert!(price["mean"].is_null() && price["shift"].is_null(), "{price}");
    // Samples that are to be served have no label.
    let unlabelled: String =
        first_day().lines().map(|line| line.split_once(',').unwrap().1.to_owned() + "\n").collect();
    fs::write(&day, unlabelled).unwrap();
    let found = json(&format!("{against} --json"));
    assert_eq!((&found["samples"], &found["labelled"], &found["label_rate"]), (&json!(400), &json!(0), &Value::Null));
    near(&found["trained_label_rate"], 0.5, 1e-12);
    // A feature must be there.
    fs::write(&day, first_day().replacen("user", "visitor", 1)).unwrap();
    let message = fail(&against);
    assert!(message.contains("other.csv") && message.contains("has no column user"), "{message}");
    // A malformed row is one as it is for eval.
    fs::write(&day, first_day() + "2,1.0,1,u1,a,p1\n").unwrap();
    let message = fail(&against);
    assert!(message.contains("other.csv:402") || message.contains("line 402"), "{message}");
    let found = json(&format!("{against} --on-bad-row skip --json"));
    assert_eq!((&found["samples"], &found["skipped_rows"]), (&json!(400), &json!(1)));
    // A run that is not there.
    let message = fail(&format!("inspect {day0} --against {}", folder.path().join("nowhere").display()));
    assert!(message.contains("there is no checkpoint"), "{message}");
}

#[test]
fn flags_that_contradict_it_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let [day0, _, trained] = trained(folder.path(), "--vocab all");
    let against = format!("inspect {day0} --against {trained}");
    for flag in ["--write-schema x.toml", "--schema x.toml", "--rows 5", "--label click", "--format csv", "--hot"] {
        let output = run(&format!("{against} {flag}"));
        let message = String::from_utf8_lossy(&output.stderr).into_owned();
        let name = flag.split(' ').next().unwrap();
        assert_eq!(output.status.code(), Some(2), "{flag}: {message}");
        assert!(message.contains("cannot be used with") && message.contains(name), "{flag}: {message}");
    }
    let message = fail(&format!("{against} --preset demo"));
    assert!(message.contains("--preset"), "{message}");
    assert!(!Path::new("x.toml").exists());
}

/// A checkpoint's bytes, and what it says of its run.
fn header(run: &str) -> (Vec<u8>, Value) {
    let whole = fs::read(format!("{run}/checkpoint.safetensors")).unwrap();
    let (_, metadata) = SafeTensors::read_metadata(&whole).unwrap();
    let header = serde_json::from_str(&metadata.metadata().as_ref().unwrap()["octorec"]).unwrap();
    (whole, header)
}

/// Takes from a checkpoint what it tells of its training samples, as earlier versions wrote it.
fn forget(run: &str) {
    let path = format!("{run}/checkpoint.safetensors");
    let (whole, mut header) = header(run);
    assert!(header.as_object_mut().unwrap().remove("statistics").is_some());
    let said = HashMap::from([("octorec".to_owned(), header.to_string())]);
    let file = SafeTensors::deserialize(&whole).unwrap();
    fs::write(&path, serialize::<_, TensorView<'_>, _>(file.tensors(), Some(said)).unwrap()).unwrap();
}

#[test]
fn of_runs_that_keep_no_statistics_the_rest_is_told() {
    let folder = tempfile::tempdir().unwrap();
    let [_, day1, run] = trained(folder.path(), "--vocab train");
    forget(&run);
    succeed(&format!("eval --checkpoint {run} --data {day1}"));
    let found = json(&format!("inspect {day1} --against {run} --json"));
    assert!(found["trained_samples"].is_null() && found["trained_label_rate"].is_null(), "{found}");
    let columns = found["columns"].as_array().unwrap();
    assert!(columns.iter().all(|column| column["psi"].is_null() && column["trained_missing"].is_null()), "{found}");
    // What is standardised has a mean all the same.
    assert_eq!(order(&found)[..2], ["price", "user"]);
    near(&column(&found, "price")["shift"], 2.0, 1e-4);
    near(&column(&found, "user")["unseen"], 0.7, 1e-12);
    assert!(column(&found, "visits")["shift"].is_null());
    near(&column(&found, "visits")["clipped"], 0.5, 1e-12);
    assert!(found["warnings"].to_string().contains("does not tell what its training samples were"), "{found}");
}

#[test]
fn ranks_and_steps_change_nothing_of_it() {
    let folder = tempfile::tempdir().unwrap();
    let found = ["--seed 1", "--seed 2 --ranks 2", "--seed 1 --no-shuffle"].map(|flags| {
        let flags = format!("{flags} --vocab train");
        let [_, day1, run] = trained(folder.path(), &flags);
        let mut found = json(&format!("inspect {day1} --against {run} --json"));
        found.as_object_mut().unwrap().remove("against");
        found["warnings"] = Value::Null;
        found
    });
    assert_eq!(found[0], found[1]);
    assert_eq!(found[0], found[2]);
}

#[test]
fn criteo_s_text_and_blocks_are_compared_as_well() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name).display().to_string();
    let data = tsv(&folder.path().join("clicks.tsv"), 300).display().to_string();
    succeed(&format!("preprocess criteo-kaggle --in {data} --out {} --threads 1", at("blocks")));
    let train = format!("train --preset demo {TINY} --steps 2 --test-fraction 0 --threads 1");
    for (from, run) in [(&data, "of-text"), (&at("blocks"), "of-blocks")] {
        succeed(&format!("{train} --data {from} --out {}", at(run)));
        let same = json(&format!("inspect {from} --against {} --json", at(run)));
        assert_eq!((&same["samples"], &same["trained_samples"]), (&json!(300), &json!(300)), "{run}");
        assert_eq!(same["label_rate"], same["trained_label_rate"], "{run}");
        let columns = same["columns"].as_array().unwrap();
        assert_eq!(columns.len(), 39, "{run}");
        for column in columns {
            // Of a column of rare values half a value more in each bin shows a little.
            assert!(column["psi"].as_f64().unwrap() < 0.05, "{run}: {column}");
            assert_eq!(column["missing"], column["trained_missing"], "{run}: {column}");
        }
        for key in ["unseen", "missing"] {
            assert_eq!(column(&same, "C1")[key].is_null(), run == "of-blocks", "rows that are stored tell no values");
        }
    }
    // Both have the same numbers of missing integers.
    let missing = |from: &str, run: &str| {
        let found = json(&format!("inspect {from} --against {} --json", at(run)));
        (1..=13).map(|n| column(&found, &format!("I{n}"))["missing"].clone()).collect::<Vec<_>>()
    };
    assert_eq!(missing(&data, "of-text"), missing(&at("blocks"), "of-blocks"));
    // The last column's values are none that the model has ever seen.
    let clicks = fs::read_to_string(&data).unwrap();
    let found = |last: &str| {
        let begins = clicks.lines().map(|line| line.rsplit_once('\t').unwrap().0);
        let other: String = begins.map(|begin| format!("{begin}\t{last}\n")).collect();
        fs::write(at("other.tsv"), other).unwrap();
        json(&format!("inspect {} --against {} --json", at("other.tsv"), at("of-text")))
    };
    let blank = found("");
    near(&column(&blank, "C26")["unseen"], 0.0, 1e-12);
    near(&column(&blank, "C26")["missing"], 1.0, 1e-12);
    assert!(blank["warnings"].to_string().contains("warning: column C26 has no value in any sample"), "{blank}");
    let found = found("fedcba98");
    assert_eq!(order(&found)[0], "C26", "{found}");
    near(&column(&found, "C26")["unseen"], 1.0, 1e-12);
    near(&column(&found, "C26")["missing"], 0.0, 1e-12);
    assert!(found["warnings"].to_string().contains("warning: column C26: 100.0 % of its values"), "{found}");
    // Text has no rows in a model of blocks.
    let message = fail(&format!("inspect {data} --against {}", at("of-blocks")));
    assert!(message.contains("is text, whose values this model has no rows for"), "{message}");
}
