//! Dense columns that are standardised or ages, and times as hours and weekdays: the same features in training,
//! evaluation, prediction and every format, learned from the training samples alone.

use std::collections::HashMap;
use std::fmt::Write;
use std::fs;

use safetensors::tensor::TensorView;
use safetensors::{SafeTensors, serialize};
use serde_json::Value;
use tempfile::TempDir;

use super::{ONE_EPOCH, fail, json, run, succeed};

const ROWS: usize = 2000;
/// The last tenth is for test.
const TRAIN: usize = 1800;

const SCHEMA: &str = r#"
label = "y"
dense = [
    { column = "price", transform = "standardise", float = true },
    { column = "visits", transform = "standardise" },
    { column = "at", name = "age", time = "age", transform = "log" },
    { column = "at", name = "age_scaled", time = "age", transform = "standardise" },
]
categorical = [
    { column = "user" },
    { column = "at", name = "hour", time = "hour" },
    { column = "at", name = "weekday", time = "weekday" },
]
"#;

/// The same columns, turned into features before: by this test, in 64-bit numbers.
const TURNED: &str = r#"
label = "y"
dense = [
    { column = "price", float = true }, { column = "visits", float = true }, { column = "age", float = true },
    { column = "age_scaled", float = true },
]
categorical = [{ column = "user" }, { column = "hour" }, { column = "weekday" }]
"#;

const MODEL: &str = "--set model.dim=8 --set model.bottom=[4,16,8] --set model.top=[16,1] --batch 50 --lr 0.1 \
                     --eval-every 0 --json";

struct Row {
    price: Option<f64>,
    visits: i64,
    at: i64,
    user: u64,
    label: u8,
}

/// Large prices of which some are missing; the test rows' are others, and newer than all training rows.
fn rows() -> Vec<Row> {
    let mut state = 7u64;
    let mut dice = move || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) as f64 / (1u64 << 31) as f64
    };
    let row = |n: usize| {
        let (test, signal) = (f64::from(u8::from(n >= TRAIN)), dice() - 0.5);
        let at = 1_600_000_000 + n as i64 * 600 + (dice() * 500.0) as i64;
        Row {
            price: (dice() > 0.1).then_some(5000.0 + 300.0 * signal + 2000.0 * test),
            visits: 1000 + (dice() * 40.0) as i64 + 500 * test as i64,
            at,
            user: (dice() * 30.0) as u64,
            label: u8::from(signal + 0.3 * (dice() - 0.5) + 0.2 * f64::from(u8::from(at / 3600 % 24 < 8)) > 0.0),
        }
    };
    (0..ROWS).map(row).collect()
}

fn log(rows: &[Row]) -> String {
    rows.iter().fold("y,price,visits,at,user\n".to_owned(), |mut text, row| {
        let price = row.price.map_or(String::new(), |price| format!("{price:.3}"));
        let _ = writeln!(text, "{},{price},{},{},u{}", row.label, row.visits, row.at, row.user);
        text
    })
}

/// Mean and standard deviation.
fn scale(values: &[f64]) -> (f64, f64) {
    let mean = values.iter().sum::<f64>() / values.len() as f64;
    (mean, (values.iter().map(|value| (value - mean).powi(2)).sum::<f64>() / values.len() as f64).sqrt())
}

/// The log with features in place of values.
fn turned(rows: &[Row]) -> String {
    let train = &rows[..TRAIN];
    let newest = train.iter().map(|row| row.at).max().unwrap();
    let days = |row: &Row| (newest - row.at) as f64 / 86_400.0;
    // As the log writes it, and as it is read.
    let price = |row: &Row| row.price.map(|price| f64::from(format!("{price:.3}").parse::<f32>().unwrap()));
    let prices = scale(&train.iter().filter_map(price).collect::<Vec<_>>());
    let visits = scale(&train.iter().map(|row| row.visits as f64).collect::<Vec<_>>());
    let ages = scale(&train.iter().map(days).collect::<Vec<_>>());
    let part = |value: f64, (mean, deviation): (f64, f64)| ((value - mean) / deviation) as f32;
    rows.iter().fold("y,price,visits,age,age_scaled,user,hour,weekday\n".to_owned(), |mut text, row| {
        let age = days(row);
        // 1600000000 is a Sunday, 12:26:40; the first row's place is 0 in both data sets.
        let (hour, weekday) = (row.at / 3600 % 24, (row.at / 86_400 + 3) % 7);
        let _ = writeln!(
            text,
            "{},{:?},{:?},{:?},{:?},u{},{hour},{weekday}",
            row.label,
            price(row).map_or(0.0, |price| part(price, prices)),
            part(row.visits as f64, visits),
            age.max(0.0).ln_1p() as f32,
            part(age, ages),
            row.user,
        );
        text
    })
}

struct Folder(TempDir);

impl Folder {
    /// `log.csv` with `schema.toml`.
    fn new() -> Self {
        let folder = Self(tempfile::tempdir().unwrap());
        fs::write(folder.at("log.csv"), log(&rows())).unwrap();
        fs::write(folder.at("schema.toml"), SCHEMA).unwrap();
        folder
    }

    fn at(&self, name: &str) -> String {
        self.0.path().join(name).display().to_string()
    }

    /// Trains on `data` and returns the losses as text, and what was said.
    fn losses(&self, data: &str, further: &str) -> (String, String) {
        let schema = if data.ends_with(".csv") {
            let schema = if data == "turned.csv" { "turned.toml" } else { "schema.toml" };
            format!("--schema {}", self.at(schema))
        } else {
            String::new()
        };
        let (data, trace) = (self.at(data), self.at("trace"));
        let said = succeed(&format!("train {ONE_EPOCH} {MODEL} --data {data} {schema} --trace-loss {trace} {further}"));
        (fs::read_to_string(trace).unwrap(), String::from_utf8_lossy(&said.stderr).into_owned())
    }
}

impl Folder {
    /// What a run's model has learned of dense columns.
    fn scales(&self, run: &str) -> Value {
        let bytes = fs::read(self.at(&format!("{run}/checkpoint.safetensors"))).unwrap();
        let (_, metadata) = SafeTensors::read_metadata(&bytes).unwrap();
        let header: Value = serde_json::from_str(&metadata.metadata().as_ref().unwrap()["octorec"]).unwrap();
        header["scales"].clone()
    }
}

fn follow(found: &str, expected: &str, bound: f64, what: &str) {
    let numbers = |text: &str| text.lines().map(|line| line.parse().unwrap()).collect::<Vec<f64>>();
    let (found, expected) = (numbers(found), numbers(expected));
    assert_eq!((found.len(), expected.len()), (TRAIN / 50, TRAIN / 50), "{what}");
    for (step, (found, expected)) in found.iter().zip(&expected).enumerate() {
        assert!((found - expected).abs() <= bound * expected.abs(), "{what}: step {step}: {found}, not {expected}");
    }
}

#[test]
fn features_are_those_that_somebody_computes_from_the_training_rows() {
    let folder = Folder::new();
    fs::write(folder.at("turned.csv"), turned(&rows())).unwrap();
    fs::write(folder.at("turned.toml"), TURNED).unwrap();
    let (_, said) = folder.losses("log.csv", "");
    // Tables of times have rows for hours that never occur, so the first weights would differ.
    for schema in ["schema.toml", "turned.toml"] {
        let text = fs::read_to_string(folder.at(schema)).unwrap();
        let (dense, _) = text.split_once("categorical").unwrap();
        fs::write(folder.at(schema), format!("{dense}categorical = [{{ column = \"user\" }}]\n")).unwrap();
    }
    let (expected, _) = folder.losses("turned.csv", "");
    let (found, _) = folder.losses("log.csv", "");
    follow(&found, &expected, 1e-5, "standardised here and there");
    for column in ["price: mean", "visits: mean 10", "age: mean 6.", "age_scaled: mean 6."] {
        assert!(said.contains(&format!("column {column}")), "{column}: {said}");
    }
}

#[test]
fn every_format_gives_the_same_features() {
    let folder = Folder::new();
    let (expected, _) = folder.losses("log.csv", "");
    let (log, schema) = (folder.at("log.csv"), folder.at("schema.toml"));
    let formats: &[&str] = if cfg!(feature = "parquet") { &["octorec", "parquet"] } else { &["octorec"] };
    for format in formats {
        succeed(&format!("convert {log} {} --schema {schema} --format {format}", folder.at(format)));
        assert_eq!(folder.losses(format, "").0, expected, "{format}");
    }
    succeed(&format!("preprocess csv --in {log} --out {} --schema {schema}", folder.at("whole")));
    assert_eq!(folder.losses("whole", "").0, expected, "preprocessed");
    let split = "--split fraction --test-fraction 0.1";
    succeed(&format!("preprocess csv --in {log} --out {} --schema {schema} {split}", folder.at("split")));
    assert_eq!(folder.losses("split", "").0, expected, "preprocessed and split");
    // Formats of features have them as a model reads them: of all rows that are for training.
    succeed(&format!("convert {} {} --format hugectr", folder.at("split"), folder.at("hugectr")));
    follow(&folder.losses("hugectr", "").0, &expected, 1e-6, "hugectr");
    let dense = json(&format!("inspect {} --json", folder.at("hugectr")))["dense"].clone();
    let mean = dense[1]["mean"].as_f64().unwrap();
    // 200 of 2,000 rows lie 500 visits, some 43 deviations, above the others.
    assert!((4.0..4.6).contains(&mean), "{dense}");
}

#[test]
fn several_ranks_and_a_resumed_run_read_the_same_features() {
    let folder = Folder::new();
    let whole = "--determinism ranks";
    let (expected, _) = folder.losses("log.csv", whole);
    for further in ["--ranks 2 --threads 1", "--ranks 3 --threads 1"] {
        assert_eq!(folder.losses("log.csv", &format!("{whole} {further}")).0, expected, "{further}");
    }
    folder.losses("log.csv", &format!("--out {}", folder.at("straight")));
    folder.losses("log.csv", &format!("--steps 10 --out {}", folder.at("resumed")));
    // The rows from which the scale was learned are others now; the scale is not.
    let text = fs::read_to_string(folder.at("log.csv")).unwrap();
    let resumed = |name: &str, steps: u32| {
        succeed(&format!("train --resume {} --steps {steps}", folder.at(name)));
        fs::read(folder.at(&format!("{name}/checkpoint.safetensors"))).unwrap()
    };
    let header = |bytes: &[u8]| 8 + u64::from_le_bytes(bytes[..8].try_into().unwrap()) as usize;
    let steps = (TRAIN / 50) as u32;
    let straight = fs::read(folder.at("straight/checkpoint.safetensors")).unwrap();
    let found = resumed("resumed", steps);
    assert!(found[header(&found)..] == straight[header(&straight)..], "the same weights");
    let before = folder.scales("resumed");
    assert!(before["price"]["mean"].is_string() && before["age"]["newest"].is_number(), "{before}");
    fs::write(folder.at("log.csv"), text.replace(",u1\n", ",u2\n").replace(",49", ",59")).unwrap();
    let output = succeed(&format!("train --resume {} --steps {}", folder.at("resumed"), steps + 5));
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(said.contains("column price: mean") && said.contains(", kept from the run"), "{said}");
    assert!(!said.contains("learned from training samples"), "{said}");
    assert_eq!(folder.scales("resumed"), before);
    // And so is the vocabulary: another one is refused.
    let message = fail(&format!("train --resume {} --vocab train --steps {}", folder.at("resumed"), steps + 6));
    assert!(message.contains("a run keeps the vocabulary that it began with"), "{message}");
}

#[test]
fn a_model_reads_other_data_by_its_own_scale() {
    let folder = Folder::new();
    folder.losses("log.csv", &format!("--out {}", folder.at("run")));
    let predict = |data: &str| {
        let line = format!("predict --checkpoint {} --data {}", folder.at("run"), folder.at(data));
        let found = String::from_utf8_lossy(&succeed(&line).stdout).into_owned();
        found.lines().map(str::to_owned).collect::<Vec<_>>()
    };
    let all = predict("log.csv");
    assert_eq!(all.len(), ROWS);
    // A few rows have another mean and newest moment, and mean the same.
    let text = fs::read_to_string(folder.at("log.csv")).unwrap();
    let lines: Vec<_> = text.lines().collect();
    let picked = [1999, 7, 1000];
    let few = picked.iter().fold(format!("{}\n", lines[0]), |text, row| text + lines[row + 1] + "\n");
    fs::write(folder.at("few.csv"), few).unwrap();
    assert_eq!(predict("few.csv"), picked.map(|row| all[row].clone()));
    // Its own test rows are scored as when they follow the training rows in one file, and alone.
    let test = lines[TRAIN + 1..].iter().fold(format!("{}\n", lines[0]), |text, line| text + line + "\n");
    fs::write(folder.at("test.csv"), test).unwrap();
    let eval = |further: &str| json(&format!("eval --checkpoint {} {further} --json", folder.at("run")))["auc"].clone();
    assert_eq!(eval(""), eval(&format!("--data {}", folder.at("test.csv"))));
    // A model that has learned nothing of a column cannot read it standardised.
    fs::write(folder.at("schema.toml"), SCHEMA.replace("\"visits\"", "\"visits\", name = \"calls\"")).unwrap();
    let schema = folder.at("schema.toml");
    let message = fail(&format!("train --resume {} --steps 60 --schema {schema}", folder.at("run")));
    assert!(message.contains("column calls") && message.contains("has learned nothing of it"), "{message}");
}

#[test]
fn weights_are_taken_with_what_was_learned_of_their_columns() {
    let folder = Folder::new();
    folder.losses("log.csv", &format!("--out {}", folder.at("run")));
    let known = folder.scales("run");
    // Other prices, and a column that the weights do not know.
    let text = fs::read_to_string(folder.at("log.csv")).unwrap();
    fs::write(folder.at("log.csv"), text.replace(",49", ",59")).unwrap();
    fs::write(folder.at("schema.toml"), SCHEMA.replace("\"visits\"", "\"visits\", name = \"calls\"")).unwrap();
    folder.losses("log.csv", &format!("--out {}", folder.at("fresh")));
    let init = format!("--init {}", folder.at("run/checkpoint.safetensors"));
    folder.losses("log.csv", &format!("{init} --out {}", folder.at("tuned")));
    let [fresh, tuned] = ["fresh", "tuned"].map(|run| folder.scales(run));
    assert_ne!(fresh["price"], known["price"]);
    for column in ["price", "age", "age_scaled"] {
        assert_eq!(tuned[column], known[column], "{column}");
    }
    assert_eq!((&tuned["calls"], &tuned["visits"]), (&fresh["calls"], &Value::Null));
}

#[test]
fn an_export_gives_back_what_was_learned_of_dense_columns() {
    let folder = Folder::new();
    folder.losses("log.csv", &format!("--out {}", folder.at("run")));
    let (known, export) = (folder.scales("run"), folder.at("exported/model.safetensors"));
    succeed(&format!("export --checkpoint {} --format torch --out {export}", folder.at("run")));
    let text = fs::read_to_string(folder.at("log.csv")).unwrap();
    fs::write(folder.at("log.csv"), text.replace(",49", ",59")).unwrap();
    let (_, said) = folder.losses("log.csv", &format!("--init {export} --out {}", folder.at("tuned")));
    assert!(said.contains("kept from --init") && !said.contains("learned from training samples"), "{said}");
    assert_eq!(folder.scales("tuned"), known);
    // What cannot be read is not left out.
    let whole = fs::read(&export).unwrap();
    let file = SafeTensors::deserialize(&whole).unwrap();
    let price = r#"{"dense_columns": [{"name": "price", "read": "standardised", "mean": "much", "deviation": "1"}]}"#;
    let told = HashMap::from([("octorec.model".to_owned(), price.to_owned())]);
    fs::write(&export, serialize::<_, TensorView<'_>, _>(file.tensors(), Some(told)).unwrap()).unwrap();
    let (log, schema) = (folder.at("log.csv"), folder.at("schema.toml"));
    let message = fail(&format!("train {ONE_EPOCH} {MODEL} --data {log} --schema {schema} --init {export}"));
    assert!(message.contains(&export) && message.contains("octorec.model") && message.contains("much"), "{message}");
}

#[test]
fn what_cannot_be_transformed_is_refused_with_its_place() {
    let folder = Folder::new();
    let train = |schema: &str| {
        fs::write(folder.at("schema.toml"), schema).unwrap();
        let (data, schema) = (folder.at("log.csv"), folder.at("schema.toml"));
        let output = run(&format!("train {ONE_EPOCH} {MODEL} --data {data} --schema {schema}"));
        (output.status.success(), String::from_utf8_lossy(&output.stderr).into_owned())
    };
    let hour = "time = \"hour\"";
    for (from, to, told) in [
        (
            hour,
            "time = \"hour\", unit = \"YYMMDDHH\"",
            "line 2: column at: a time as YYMMDDHH, such as 14102103, from 2000 to 2068 is expected",
        ),
        (hour, "time = \"hour\", rows = 24", "column hour: rows follow from time"),
        (hour, "time = \"hour\", separator = \"|\"", "column hour: separator and time exclude each other"),
        (hour, "unit = \"milliseconds\"", "column hour: unit goes with time"),
        (hour, "time = \"minute\"", "expected `hour` or `weekday`"),
        ("\"log\"", "\"log\", float = true", "column age: a time is read by its unit: leave float out"),
        ("\"log\"", "\"lag\"", "expected one of `none`, `log`, `standardise`"),
        ("time = \"age\", transform = \"log\"", "unit = \"seconds\"", "column age: unit goes with time"),
    ] {
        let (worked, message) = train(&SCHEMA.replacen(from, to, 1));
        assert!(!worked && message.contains(told), "{told}: {message}");
    }
    assert!(train(SCHEMA).0);
    // The same fault where text is read once.
    let preprocess = |schema: &str| {
        fs::write(folder.at("schema.toml"), schema).unwrap();
        let (log, out, schema) = (folder.at("log.csv"), folder.at("blocks"), folder.at("schema.toml"));
        run(&format!("preprocess csv --in {log} --out {out} --schema {schema} --force"))
    };
    for unit in [", unit = \"YYYYMMDD\"", ", unit = \"YYYY-MM-DD\""] {
        for time in [hour, "time = \"age\""] {
            let output = preprocess(&SCHEMA.replacen(time, &format!("{time}{unit}"), 1));
            let message = String::from_utf8_lossy(&output.stderr).into_owned();
            assert!(message.contains("log.csv: line 2: column at: a date as YYYY"), "{message}");
        }
    }
    let output = preprocess(&SCHEMA.replacen("\"visits\"", "\"visits\", name = \"user\"", 1));
    let message = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(message.contains("schema.toml: two columns are called user: give one of them another `name`"), "{message}");
}

#[test]
fn inspect_shows_ages_in_days() {
    let folder = Folder::new();
    let found = json(&format!("inspect {} --schema {} --json", folder.at("log.csv"), folder.at("schema.toml")));
    let age = &found["dense"][2];
    assert_eq!((age["name"].as_str(), age["least"].as_f64()), (Some("age"), Some(0.0)));
    // 2,000 rows, ten minutes apart.
    let days = age["most"].as_f64().unwrap();
    assert!((13.8..14.0).contains(&days), "{age}");
    assert_eq!(found["categorical"][1]["rows"], 25);
}
