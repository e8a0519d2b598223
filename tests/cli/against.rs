//! Two models on the same samples, as `eval --against` compares them, and how far scores may lie by chance.

use std::fs;
use std::path::Path;

use safetensors::SafeTensors;
use serde_json::{Value, json as value};

use super::{fail, json, succeed};

const MODEL: &str = "--set model.bottom=[0,8,4] --set model.top=[8,1] --set model.dim=4 --batch 50 --epochs 2 --lr 0.1 \
                     --eval-every 0 --threads 1";

/// A model of users and items, by a vocabulary.
const USERS: &str = "label = 'click'\ndense = [{ column = 'price', float = true }]\n\
                     categorical = [{ column = 'user' }, { column = 'item' }]\n";

/// One of items alone, that are hashed.
const ITEMS: &str = "label = 'click'\ndense = [{ column = 'size', float = true }]\n\
                     categorical = [{ column = 'item', rows = 50 }, { column = 'item', name = 'few', rows = 5 }]\n";

/// Whether row `n` was clicked: mostly by users of an even number.
fn click(n: u32) -> bool {
    (n * 7919 % 13).is_multiple_of(2) != (n * 31 % 17 == 3)
}

/// Clicks, whose column `bought` is the same in the first five rows alone.
fn log(path: &Path, rows: u32) -> String {
    let row = |n: u32| {
        let (click, user, item) = (click(n), n * 7919 % 13, n * 37 % 19);
        let bought = if n < 5 { click } else { !click };
        let of = |is: bool| u32::from(is);
        format!("{},{},{}.5,{},u{user},i{item},{}\n", of(click), of(bought), n % 11, n % 7, n % 3)
    };
    let text: String = (0..rows).map(row).collect();
    fs::write(path, format!("click,bought,price,size,user,item,w\n{text}")).unwrap();
    path.display().to_string()
}

/// A folder with a log of 800 rows, of the last quarter of which runs are made tests.
struct Case(tempfile::TempDir, String);

impl Case {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let data = log(&folder.path().join("log.csv"), 800);
        Self(folder, data)
    }

    fn at(&self, name: &str) -> String {
        self.0.path().join(name).display().to_string()
    }

    /// A run of this schema; its folder.
    fn run(&self, name: &str, schema: &str, more: &str) -> String {
        let (out, path) = (self.at(name), self.at(&format!("{name}.toml")));
        fs::write(&path, schema).unwrap();
        let tests = if more.contains("--test-") { "" } else { "--test-fraction 0.25" };
        let data = if more.contains("--data") { String::new() } else { format!("--data {}", self.1) };
        succeed(&format!("train {data} --schema {path} {MODEL} {tests} {more} --out {out}"));
        out
    }
}

fn number(of: &Value) -> f64 {
    of.as_f64().unwrap_or_else(|| panic!("{of} is no number"))
}

fn near(a: f64, b: f64) {
    assert!((a - b).abs() < 1e-9, "{a} {b}");
}

#[test]
fn two_models_are_compared_on_the_same_samples_by_any_number_of_ranks() {
    let case = Case::new();
    let (a, b) = (case.run("a", USERS, ""), case.run("b", ITEMS, "--precision bf16 --set train.eval_batch=70"));
    let eval = |words: &str| json(&format!("eval {words} --threads 1 --json"));
    let against = format!("--checkpoint {a} --against {b}");
    let found = eval(&format!("{against} --ranks 1"));
    for ranks in [2, 3] {
        assert_eq!(eval(&format!("{against} --ranks {ranks}")), found, "{ranks} ranks");
    }
    // Beside the comparison there is what is told of each alone.
    let alone = [&a, &b].map(|run| eval(&format!("--checkpoint {run} --ranks 1")));
    assert!(alone[0].as_object().unwrap().iter().all(|(key, value)| found[key] == *value), "{found}, {}", alone[0]);
    assert_eq!(found["against"], alone[1]);
    let difference = &found["difference"];
    for key in ["auc", "pr_auc", "logloss", "normalised_entropy", "accuracy", "calibration"] {
        near(number(&difference[key]), number(&alone[0][key]) - number(&alone[1][key]));
    }
    let mut excluded = 0;
    for key in ["auc", "logloss"] {
        let [error, own, other] = [difference, &alone[0], &alone[1]].map(|of| number(&of[format!("{key}_se")]));
        // The standard deviation of a difference is at most the sum of both.
        assert!(error > 0.0 && own > 0.0 && other > 0.0 && error <= own + other + 1e-12, "{key}: {found}");
        let interval = &difference[format!("{key}_interval")];
        let [low, high] = [0, 1].map(|end| number(&interval[end]));
        near(low, number(&difference[key]) - 1.959963984540054 * error);
        near(high, number(&difference[key]) + 1.959963984540054 * error);
        excluded += u32::from(low > 0.0 || high < 0.0);
    }
    let verdict = found["verdict"].as_str().unwrap();
    assert_eq!(verdict.starts_with("no difference can be told from 200 samples"), excluded == 0, "{found}");
    // The other way round.
    let swapped = eval(&format!("--checkpoint {b} --against {a} --ranks 1"));
    assert_eq!((&swapped["against"], &swapped["auc"]), (&alone[0], &alone[1]["auc"]));
    let turned = &swapped["difference"];
    for key in ["auc", "logloss"] {
        assert_eq!(number(&turned[key]), -number(&difference[key]), "{key}");
        assert_eq!(turned[format!("{key}_se")], difference[format!("{key}_se")], "{key}");
        let ends = |of: &Value, end: usize| number(&of[format!("{key}_interval")][end]);
        assert_eq!([ends(turned, 0), ends(turned, 1)], [-ends(difference, 1), -ends(difference, 0)], "{key}");
    }
    // Against itself.
    let same = eval(&format!("--checkpoint {a} --against {a} --ranks 2"));
    for key in ["auc", "logloss"] {
        let of = &same["difference"];
        let interval = &of[format!("{key}_interval")];
        let numbers = [&of[key], &of[format!("{key}_se")], &interval[0], &interval[1]].map(number);
        assert_eq!(numbers, [0.0; 4], "{key}: {same}");
    }
    assert!(same["verdict"].as_str().unwrap().starts_with("no difference can be told from 200 samples"), "{same}");
    // For people.
    let told = |words: &str| String::from_utf8(succeed(&format!("eval {words} --threads 1")).stdout).unwrap();
    let table = told(&format!("{against} --calibration-buckets 4"));
    for words in ["A - B", "95 % interval", " .. ", &format!("B  {b}\n"), "samples      200\n", verdict] {
        assert!(table.contains(words), "{words}: {table}");
    }
    assert_eq!(table.matches("probabilities  ").count(), 2, "{table}");
    assert!(["A", "B"].iter().all(|name| table.lines().any(|line| line == *name)), "{table}");
    let table = told(&format!("{against} --calibration-buckets 0"));
    assert!(table.contains(verdict) && table.lines().all(|line| line != "A" && line != "B"), "{table}");
    let table = told(&format!("--checkpoint {a}"));
    assert_eq!(table.matches("  (standard error 0.").count(), 2, "{table}");
}

#[test]
fn samples_that_are_not_the_same_are_told_with_what_differs() {
    let case = Case::new();
    let (a, b) = (case.run("a", USERS, ""), case.run("b", ITEMS, "--test-fraction 0.5"));
    let eval = |run: &str, more: &str| format!("eval --checkpoint {a} --against {run} --threads 1 {more}");
    let refused = |run: &str, more: &str, told: &[&str]| {
        let message = fail(&eval(run, more));
        let told = ["--against: "].iter().chain(told);
        told.for_each(|words| assert!(message.contains(words), "{words}: {message}"));
    };
    let both = "name labelled data that both models can read with --data FILE, ";
    let nothing = format!("{both}which neither was trained on");
    refused(&b, "", &["A would be scored on 200 samples, and B on 400 samples", &nothing]);
    // The remedy, with all of a file.
    let day = log(&case.0.path().join("day.csv"), 300);
    let found = json(&eval(&b, &format!("--data {day} --json")));
    assert_eq!((&found["samples"], &found["against"]["samples"]), (&300.into(), &300.into()), "{found}");
    // As many samples of another file.
    fs::write(case.at("other.csv"), fs::read_to_string(&case.1).unwrap().replace("i1", "i2")).unwrap();
    let other = case.run("other", ITEMS, &format!("--data {}", case.at("other.csv")));
    refused(&other, "", &["200 samples of its own run, which are not the same", &nothing]);
    // Tests in a file of their own.
    let apart = case.run("apart", ITEMS, &format!("--test-data {day}"));
    refused(&apart, "", &["and B on 300 samples", &format!("{both}such as {day}")]);
    // Another label.
    let bought = case.run("bought", &ITEMS.replace("label = 'click'", "label = 'bought'"), "");
    let [by_a, by_b] = [click(5), !click(5)].map(u32::from);
    let told = format!("sample 5 has label {by_a} by A and {by_b} by B");
    refused(&bought, &format!("--data {day}"), &[&told, "schemas have the same label"]);
    // A row that is malformed for A alone.
    let bad = fs::read_to_string(&day).unwrap().replacen(",1.5,", ",x,", 1);
    fs::write(case.at("bad.csv"), bad).unwrap();
    let line = format!("--data {} --on-bad-row skip", case.at("bad.csv"));
    refused(&b, &line, &["A leaves out 1 malformed row of these data and B 0", "take them out"]);
    // What is asked of one model.
    for flag in ["--gauc item", "--by item", "--importance"] {
        let message = fail(&eval(&b, &format!("--data {day} {flag}")));
        let name = flag.split(' ').next().unwrap();
        assert!(message.contains(&format!("{name}: ")) && message.contains("without --against"), "{message}");
    }
}

#[test]
fn malformed_rows_count_where_they_may_move_the_samples_that_are_compared() {
    let case = Case::new();
    let day = log(&case.0.path().join("day.csv"), 300);
    // The second row is malformed for models that read prices.
    let bad = case.at("bad.csv");
    fs::write(&bad, fs::read_to_string(&case.1).unwrap().replacen(",1.5,", ",x,", 1)).unwrap();
    let skip = format!("--data {bad} --on-bad-row skip");
    let eval = |a: &str, b: &str| format!("eval --checkpoint {a} --against {b} --threads 1");
    // Among training rows of another file than that of the tests, it does not matter.
    let (a, b) = (
        case.run("a", USERS, &format!("{skip} --test-data {day}")),
        case.run("b", ITEMS, &format!("--test-data {day}")),
    );
    let found = json(&format!("{} --json", eval(&a, &b)));
    let counts = [&found, &found["against"]].map(|of| (of["samples"].as_u64(), of["skipped_rows"].as_u64()));
    assert_eq!(counts, [(Some(300), Some(1)), (Some(300), Some(0))], "{found}");
    // In the file whose last rows are the tests, it may.
    let (a, b) = (case.run("c", USERS, &skip), case.run("d", ITEMS, &skip));
    let message = fail(&eval(&a, &b));
    for words in
        ["A leaves out 1 malformed row of its own files and B 0", "data without such rows for both with --data FILE"]
    {
        assert!(message.contains(words), "{words}: {message}");
    }
    assert!(!message.contains("--on-bad-row fail"), "{message}");
    let found = json(&format!("{} --data {day} --json", eval(&a, &b)));
    assert_eq!(found["samples"], 300, "{found}");
}

#[test]
fn scores_that_are_no_numbers_have_no_interval_and_are_told_with_whose_they_are() {
    let case = Case::new();
    let (a, b) = (case.run("a", USERS, ""), case.run("b", ITEMS, ""));
    let unknown = value!([null, null]);
    // A model whose last bias is no number.
    let mut bytes = fs::read(format!("{b}/checkpoint.safetensors")).unwrap();
    let (head, metadata) = SafeTensors::read_metadata(&bytes).unwrap();
    let at = 8 + head + metadata.info("top_l.2.bias").unwrap().data_offsets.0;
    bytes[at..at + 4].copy_from_slice(&f32::NAN.to_le_bytes());
    let broken = format!("{b}/broken.safetensors");
    fs::write(&broken, bytes).unwrap();
    let line = format!("eval --checkpoint {a} --against {broken} --no-verify --threads 1");
    let found = json(&format!("{line} --json"));
    for key in ["auc", "logloss"] {
        let (difference, error) = (&found["difference"], format!("{key}_se"));
        assert!(number(&found[&error]) > 0.0 && found["against"][&error].is_null(), "{found}");
        assert!(difference[key].is_null() && difference[&error].is_null(), "{found}");
        assert_eq!(difference[format!("{key}_interval")], unknown, "{found}");
    }
    let cannot = "whether there is a difference cannot be told from 200 samples";
    assert!(found["verdict"].as_str().unwrap().starts_with(cannot), "{found}");
    let told = |line: &str| {
        let output = succeed(line);
        [output.stdout, output.stderr].map(|text| String::from_utf8(text).unwrap())
    };
    let [table, notes] = told(&format!("{line} --calibration-buckets 4"));
    assert!(notes.contains("note: B: the model gives probabilities that are no numbers"), "{notes}");
    assert_eq!(["A", "B"].map(|name| table.lines().filter(|line| *line == name).count()), [1, 0], "{table}");
    // Samples of one class.
    let (text, none) = (fs::read_to_string(&case.1).unwrap(), case.at("none.csv"));
    let kept: Vec<&str> = text.lines().filter(|line| !line.starts_with("1,")).collect();
    fs::write(&none, kept.join("\n") + "\n").unwrap();
    let line = format!("eval --checkpoint {a} --against {b} --data {none} --threads 1");
    let found = json(&format!("{line} --json"));
    assert!(found["auc_se"].is_null() && number(&found["logloss_se"]) > 0.0, "{found}");
    assert_eq!(found["difference"]["auc_interval"], unknown, "{found}");
    assert!(number(&found["difference"]["logloss_se"]) > 0.0, "{found}");
    assert!(found["verdict"].as_str().unwrap().contains("AUC has no interval"), "{found}");
    let [_, notes] = told(&line);
    assert!(
        notes.contains("note: A and B: all labels are 0; AUC and calibration need samples of both kinds"),
        "{notes}"
    );
}

#[test]
fn samples_for_validation_are_compared_where_those_for_tests_are_as_many() {
    let case = Case::new();
    let shares = "--validation-fraction 0.1 --test-fraction";
    let (a, b) = (case.run("a", USERS, &format!("{shares} 0.2")), case.run("b", ITEMS, &format!("{shares} 0.2")));
    let eval = |b: &str| format!("eval --checkpoint {a} --against {b} --split validation --threads 1");
    let found = json(&format!("{} --json", eval(&b)));
    assert_eq!((&found["samples"], &found["against"]["samples"]), (&80.into(), &80.into()), "{found}");
    let alone = [&a, &b].map(|run| json(&format!("eval --checkpoint {run} --split validation --threads 1 --json")));
    near(number(&found["difference"]["logloss"]), number(&alone[0]["logloss"]) - number(&alone[1]["logloss"]));
    // As many, before more for tests.
    let earlier = case.run("earlier", ITEMS, &format!("{shares} 0.3"));
    let message = fail(&eval(&earlier));
    assert!(message.contains("80 samples of its own run, which are not the same"), "{message}");
}

#[test]
fn one_plan_is_for_models_with_the_same_tables() {
    let case = Case::new();
    let (a, b) = (case.run("a", USERS, "--ranks 2"), case.run("b", ITEMS, "--ranks 2"));
    let eval = |b: &str| format!("eval --checkpoint {a} --against {b} --ranks 2 --threads 1 --plan {a}/plan.toml");
    let message = fail(&eval(&b));
    assert!(message.contains("--plan: ") && message.contains("leave it away"), "{message}");
    assert!(!message.contains("scoring"), "{message}");
    succeed(&eval(&a));
}

#[test]
fn a_model_that_does_not_fit_is_told_before_the_other_one_is_scored() {
    let case = Case::new();
    let b = case.run("b", ITEMS, "");
    // A matrix that lies on its side, and a table of fewer rows, which are wider.
    for (tensor, shape, other) in [("top_l.0.weight", "[8,7]", "[7,8]"), ("emb_l.0.weight", "[50,4]", "[40,5]")] {
        let mut bytes = fs::read(format!("{b}/checkpoint.safetensors")).unwrap();
        let head = SafeTensors::read_metadata(&bytes).unwrap().0;
        let text = String::from_utf8(bytes[8..8 + head].to_vec()).unwrap();
        let at = text.find(&format!("\"{tensor}\":")).unwrap();
        let at = at + text[at..].find(shape).unwrap();
        bytes[8 + at..8 + at + shape.len()].copy_from_slice(other.as_bytes());
        let broken = format!("{b}/broken.safetensors");
        fs::write(&broken, bytes).unwrap();
        let message = fail(&format!("eval --checkpoint {b} --against {broken} --no-verify --threads 1"));
        let words = format!("broken.safetensors: tensor {tensor} has shape {}", other.replace(',', ", "));
        assert!(message.contains(&words), "{message}");
        assert!(!message.contains("scoring A"), "{message}");
    }
}

#[test]
fn samples_with_weights_have_differences_and_no_intervals() {
    let case = Case::new();
    let weighted = [USERS, ITEMS].map(|schema| format!("weight = 'w'\n{schema}"));
    let (a, b) = (case.run("a", &weighted[0], ""), case.run("b", &weighted[1], ""));
    let found = json(&format!("eval --checkpoint {a} --against {b} --threads 1 --ranks 2 --json"));
    assert!(found.get("auc_se").is_none() && found.get("logloss_se").is_none(), "{found}");
    let difference = found["difference"].as_object().unwrap();
    assert!(difference.keys().all(|key| !key.ends_with("_se") && !key.ends_with("_interval")), "{found}");
    near(number(&difference["logloss"]), number(&found["logloss"]) - number(&found["against"]["logloss"]));
    assert!(found["verdict"].as_str().unwrap().contains("samples that have weights"), "{found}");
    let told = succeed(&format!("eval --checkpoint {a} --against {b} --threads 1")).stdout;
    assert!(String::from_utf8(told).unwrap().contains("\nweight       "));
    let plain = case.run("plain", ITEMS, "");
    let message = fail(&format!("eval --checkpoint {a} --against {plain} --threads 1"));
    assert!(message.contains("--against: samples have weights by the data of A alone"), "{message}");
}
