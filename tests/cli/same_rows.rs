//! Rows of data are those of a model only if they stand for the same values, whatever command reads them, and whatever
//! for; what a run knows of its rows it keeps, be its later data of another kind.

use std::fs;
use std::path::{Path, PathBuf};

use super::lifecycle::kill_when;
use super::{TINY, fail, json, succeed, tsv};

/// What is said of rows of which nothing tells, for a model of text.
const UNTOLD: &str = "has numbers of rows, which may be those of other values: name the text that these were made of";

/// What is said of blocks of another vocabulary, for a model of text and for one of blocks.
const OTHERS: [&str; 2] =
    ["these data have other values in the rows of column ", "is not the vocabulary that this model was trained with"];

/// A log in Criteo's layout as text and as blocks; the same from its last row to its first, whose tables have as many
/// rows, so that nothing but values tells them apart; and blocks of the first without their values, twice. Models of 5
/// steps, a whole pass, of its text and of its blocks.
struct Log(tempfile::TempDir);

impl Log {
    fn new() -> Self {
        let log = Self(tempfile::tempdir().unwrap());
        tsv(&log.path("clicks.tsv"), 300);
        let text = fs::read_to_string(log.path("clicks.tsv")).unwrap();
        let turned: String = text.lines().rev().map(|row| format!("{row}\n")).collect();
        fs::write(log.path("turned.tsv"), turned).unwrap();
        for (text, blocks) in [("clicks.tsv", "blocks"), ("turned.tsv", "turned")] {
            succeed(&format!("preprocess criteo-kaggle --in {} --out {} --threads 1", log.at(text), log.at(blocks)));
        }
        for bare in ["bare", "copy"] {
            fs::create_dir(log.path(bare)).unwrap();
            for entry in fs::read_dir(log.path("blocks")).unwrap() {
                let file = entry.unwrap().path();
                if file.extension().is_none_or(|extension| extension != "vocabulary") {
                    fs::copy(&file, log.path(bare).join(file.file_name().unwrap())).unwrap();
                }
            }
        }
        for (data, run) in [("clicks.tsv", "of-text"), ("blocks", "of-blocks")] {
            succeed(&log.train(data, run, 5, ""));
            succeed(&log.eval(run, data));
        }
        log
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn at(&self, name: &str) -> String {
        self.path(name).display().to_string()
    }

    fn train(&self, data: &str, out: &str, steps: u64, more: &str) -> String {
        let (data, out) = (self.at(data), self.at(out));
        format!("train {TINY} --test-fraction 0 --threads 1 --steps {steps} --data {data} --out {out} {more}")
    }

    fn resume(&self, run: &str, steps: u64, more: &str) -> String {
        format!("train --resume {} --steps {steps} {more}", self.at(run))
    }

    fn eval(&self, run: &str, data: &str) -> String {
        format!("eval --checkpoint {} --data {}", self.at(run), self.at(data))
    }

    /// What reads data for a model, or begins with it, and leaves it as it is.
    fn uses(&self, run: &str, data: &str) -> [String; 4] {
        let (folder, named) = (self.at(run), self.at(data));
        [
            self.eval(run, data),
            format!("predict --checkpoint {folder} --data {named}"),
            format!("inspect {named} --against {folder}"),
            self.train(data, "next", 2, &format!("--force --init {folder}")),
        ]
    }
}

#[test]
fn blocks_of_the_text_of_a_model_are_its_own_and_those_of_other_text_are_not() {
    let log = Log::new();
    log.uses("of-text", "blocks").iter().for_each(|line| drop(succeed(line)));
    let auc = |data: &str| json(&format!("{} --json", log.eval("of-text", data)))["auc"].clone();
    assert!(auc("blocks").is_number());
    assert_eq!(auc("blocks"), auc("clicks.tsv"));
    let resume = |data: &str| log.resume("of-text", 6, &format!("--data {}", log.at(data)));
    for (data, told) in [("turned", OTHERS[0]), ("bare", UNTOLD)] {
        for line in log.uses("of-text", data).iter().chain([&resume(data)]) {
            let message = fail(line);
            assert!(message.contains(&log.at("of-text")) && message.contains(told), "{line}: {message}");
            let skips = data == "bare" && !line.starts_with("inspect");
            assert_eq!(message.contains("--no-verify takes them"), skips, "{line}: {message}");
        }
    }
    succeed(&format!("{} --no-verify", log.eval("of-text", "bare")));
    // A file of blocks with its values beside it is as good as their folder.
    succeed(&log.eval("of-text", "blocks/part-00000.octo"));
    succeed(&resume("blocks"));
    // By a vocabulary of text, which is no model's of blocks.
    fs::copy(log.path("of-text/vocabulary.safetensors"), log.path("of-blocks/vocabulary.safetensors")).unwrap();
    let text = format!("--data {}", log.at("clicks.tsv"));
    let [eval, predict, inspect, _] = log.uses("of-blocks", "clicks.tsv");
    for line in [eval, predict, inspect, log.resume("of-blocks", 6, &text)] {
        let message = fail(&line);
        let told = format!("of values of the vocabulary of {}, and values of text would get others", log.at("blocks"));
        assert!(message.contains(&log.at("of-blocks")) && message.contains(&told), "{line}: {message}");
        assert!(!message.contains("--grow"), "{line}: {message}");
    }
}

#[test]
fn parquet_has_the_rows_that_somebody_says_it_has() {
    if cfg!(not(feature = "parquet")) {
        return;
    }
    let log = Log::new();
    let parquet = log.at("parquet");
    succeed(&format!("convert {} {parquet} --format parquet", log.at("blocks")));
    log.uses("of-text", "parquet").iter().for_each(|line| drop(succeed(line)));
    succeed(&log.resume("of-text", 6, &format!("--data {parquet}")));
    keeps_its_vocabulary(&log, "of-text");
    keeps_its_vocabulary(&log, "next");
    succeed(&log.train("clicks.tsv", "again", 5, ""));
    fs::remove_file(log.path("parquet/schema.toml")).unwrap();
    let init = log.train("parquet", "next", 2, &format!("--force --init {}", log.at("again")));
    for line in [log.resume("again", 6, &format!("--data {parquet}")), init] {
        let message = fail(&line);
        assert!(message.contains("is Parquet, whose whole numbers are numbers of rows"), "{message}");
        assert!(message.contains("say so in a schema.toml beside the files"), "{message}");
    }
}

/// Checks that a run whose last data were numbers of rows still knows its vocabulary, by which text is read.
fn keeps_its_vocabulary(log: &Log, name: &str) {
    let (file, out) = (log.path(name).join("vocabulary.safetensors"), log.at(&format!("of-{name}/model.safetensors")));
    succeed(&log.eval(name, "clicks.tsv"));
    assert!(fail(&log.eval(name, "turned")).contains(OTHERS[0]));
    succeed(&format!("export --checkpoint {} --format torch --out {out}", log.at(name)));
    let whole = fs::read(&file).unwrap();
    assert!(fs::read(Path::new(&out).with_file_name("vocabulary.safetensors")).unwrap() == whole);
    // Another one is not taken for it.
    succeed(&log.train("turned.tsv", "others", 2, "--force"));
    fs::copy(log.path("others/vocabulary.safetensors"), &file).unwrap();
    let message = fail(&log.eval(name, "clicks.tsv"));
    assert!(message.contains(OTHERS[1]) && message.contains(&file.display().to_string()), "{message}");
    fs::remove_file(&file).unwrap();
    assert!(fail(&log.eval(name, "clicks.tsv")).contains("is missing"));
    fs::write(&file, whole).unwrap();
}

#[test]
fn a_run_of_text_keeps_its_vocabulary_where_its_data_become_blocks() {
    let log = Log::new();
    succeed(&log.train("blocks", "next", 2, &format!("--init {}", log.at("of-text"))));
    keeps_its_vocabulary(&log, "next");
    succeed(&log.resume("of-text", 6, &format!("--data {}", log.at("blocks"))));
    keeps_its_vocabulary(&log, "of-text");
    // And goes on with either.
    succeed(&log.resume("of-text", 7, ""));
    succeed(&log.train("clicks.tsv", "again", 2, &format!("--init {}", log.at("of-text"))));
}

#[test]
fn rows_that_a_run_was_told_to_take_are_its_own_from_then_on() {
    let log = Log::new();
    let noted = |name: &str| fs::read_to_string(log.path(name).join("resume.toml")).unwrap_or_default();
    let told = |line: &str| String::from_utf8(succeed(line).stderr).unwrap();
    let note = "note: rows of these data are taken for those of the model";
    for (name, data) in [("of-text", "bare"), ("of-blocks", "turned")] {
        let why = if name == "of-text" { UNTOLD } else { OTHERS[1] };
        let line = log.resume(name, 100_000_000, &format!("--data {}", log.at(data)));
        assert!(fail(&line).contains(why) && noted(name).is_empty());
        kill_when(&format!("{line} --no-verify"), || !noted(name).is_empty());
        assert!(noted(name).starts_with("rows_taken = true\n"), "{}", noted(name));
        // Of these data alone somebody has said so.
        if data == "bare" {
            let message = fail(&log.resume(name, 6, &format!("--data {}", log.at("copy"))));
            assert!(message.contains(UNTOLD), "{message}");
        }
        let message = told(&log.resume(name, 6, ""));
        assert!(message.contains(note), "{message}");
        // Now its checkpoint says so.
        assert!(noted(name).is_empty());
        let message = told(&log.resume(name, 7, ""));
        assert!(!message.contains(note), "{message}");
        log.uses(name, data).iter().for_each(|line| drop(succeed(line)));
        succeed(&log.resume("next", 3, ""));
    }
    // Text is still read by its vocabulary, and rows that stand for other values are told.
    succeed(&log.eval("of-text", "clicks.tsv"));
    assert!(fail(&log.eval("of-text", "turned")).contains(OTHERS[0]));
    assert!(fail(&log.eval("of-blocks", "blocks")).contains(OTHERS[1]));
    // A state dict of it says it as well.
    let model = log.at("model.safetensors");
    succeed(&format!("export --checkpoint {} --format torch --out {model}", log.at("of-text")));
    succeed(&log.train("bare", "next", 2, &format!("--force --init {model}")));
}

#[test]
fn rows_of_samples_for_tests_are_checked_before_training() {
    let log = Log::new();
    for (run, data, tests, told) in [
        ("of-text", "blocks", "bare", UNTOLD),
        ("of-text", "blocks", "turned", OTHERS[0]),
        ("of-blocks", "bare", "turned", OTHERS[1]),
    ] {
        let both = format!("--data {} --test-data {}", log.at(data), log.at(tests));
        let message = fail(&log.resume(run, 6, &both));
        assert!(message.contains(told), "{run}, {tests}: {message}");
        // Where training begins, samples of the two are compared first.
        let init = log.train(data, "next", 2, &format!("--test-data {} --init {}", log.at(tests), log.at(run)));
        let told = if data == "blocks" && tests == "turned" { "has other values in the rows of column " } else { told };
        let message = fail(&init);
        assert!(message.contains(told), "{run}, {tests}: {message}");
        assert!(!log.path("next").exists());
    }
    let tests = format!("--test-data {}", log.at("blocks"));
    succeed(&log.train("bare", "next", 2, &format!("{tests} --init {}", log.at("of-blocks"))));
}
