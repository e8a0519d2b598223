//! What a schema says of one's own log holds in the model: columns have names, values become the rows that they became
//! before, and what is told of them is true.

use std::fs;

use super::{fail, succeed};

/// A model of such logs that trains in a fraction of a second.
const SMALL: &str = "--set model.bottom=[0,8,8] --set model.top=[8,1] --set model.dim=8 --batch 50 --threads 1 \
                     --optimizer-rows adagrad --eval-every 0 --test-fraction 0 --steps 2";

/// A log of 120 rows, a schema of some columns and the paths of its folder.
struct Log {
    folder: tempfile::TempDir,
}

impl Log {
    fn new(header: &str, row: impl Fn(u32) -> String) -> Self {
        let log = Self { folder: tempfile::tempdir().unwrap() };
        log.write("log.csv", header, row);
        log
    }

    fn at(&self, name: &str) -> String {
        self.folder.path().join(name).display().to_string()
    }

    fn write(&self, name: &str, header: &str, row: impl Fn(u32) -> String) {
        let rows: String = (0..120).map(|n| format!("{},{}\n", n % 3 % 2, row(n))).collect();
        fs::write(self.at(name), format!("click,{header}\n{rows}")).unwrap();
    }

    /// Describes columns, and gives the flags of training on the log by that.
    fn described(&self, columns: &str) -> String {
        fs::write(self.at("log.toml"), format!("label = 'click'\n{columns}")).unwrap();
        format!("train --data {} --schema {} {SMALL}", self.at("log.csv"), self.at("log.toml"))
    }
}

/// What a command that succeeds says beside its result.
fn notes(line: &str) -> String {
    String::from_utf8(succeed(line).stderr).unwrap()
}

#[test]
fn a_column_without_a_name_is_refused_before_a_model_is_made_of_it() {
    // As other programs write an index that is not unique.
    let log = Log::new(",user", |n| format!("{},u{}", n % 12, n % 7));
    let columns = |name: &str| format!("[[categorical]]\ncolumn = ''\n{name}[[categorical]]\ncolumn = 'user'\n");
    let train = log.described(&columns(""));
    let preprocess =
        format!("preprocess csv --in {} --schema {} --out {}", log.at("log.csv"), log.at("log.toml"), log.at("blocks"));
    for line in [&train, &preprocess] {
        let message = fail(line);
        assert!(message.contains("log.toml: [[categorical]] column = \"\" has no name"), "{message}");
        assert!(message.contains("such as name = \"index\""), "{message}");
    }
    // By the remedy the run is one that other commands read.
    let train = log.described(&columns("name = 'index'\n"));
    succeed(&format!("{train} --out {}", log.at("run")));
    succeed(&format!("eval --checkpoint {} --data {}", log.at("run"), log.at("log.csv")));
    succeed(&format!("train --resume {} --steps 4", log.at("run")));
    succeed(&preprocess);
}

#[test]
fn values_that_would_become_other_rows_or_features_are_refused_by_init_and_resume() {
    let log = Log::new("price,age,tags", |n| format!("{}.5,{},t{}|t{}", n % 11, 18 + n % 50, n % 3, n % 5));
    let schema = "[[dense]]\ncolumn = 'price'\n[[dense]]\ncolumn = 'tags'\nname = 'many'\ncount = '|'\n\
                  [[categorical]]\ncolumn = 'age'\nbuckets = [20, 40.5, 60]\n\
                  [[categorical]]\ncolumn = 'tags'\nseparator = '|'\n";
    let [run, file] = ["run", "log.toml"].map(|name| log.at(name));
    let train = log.described(schema);
    succeed(&format!("{train} --out {run}"));
    let (init, resume) = (format!("{train} --init {run}"), format!("train --resume {run} --schema {file} --steps 4"));
    let counts = "name = 'many'\ncount = '|'\n";
    for (text, told) in [
        (
            schema.replace("[20, 40.5, 60]", "[40.5, 60, 80]"),
            "values of column age got their rows by buckets from 20, 40.5, 60 where this model was trained, and get them by \
             buckets from 40.5, 60, 80 by the schema of these data: describe it as it was",
        ),
        (
            schema.replace(&format!("column = 'tags'\n{counts}"), "column = 'age'\nname = 'many'\n"),
            "the feature of column many was how many values a field has where this model was trained, and is the number in \
             a field by the schema of these data: describe it as it was",
        ),
    ] {
        log.described(&text);
        let before = fs::read(log.at("run/checkpoint.safetensors")).unwrap();
        for (line, flag) in [(&init, "--init"), (&resume, "--resume")] {
            let message = fail(line);
            assert!(message.contains(told), "{message}");
            assert!(message.contains(&format!("without {flag}")), "{message}");
        }
        assert!(fs::read(log.at("run/checkpoint.safetensors")).unwrap() == before);
    }
    // The same buckets, written otherwise.
    log.described(&schema.replace("[20, 40.5, 60]", "[20.0, 40.5, 6e1]"));
    let told = notes(&init);
    assert!(!told.contains("right only if"), "{told}");
    succeed(&resume);
}

#[test]
fn what_is_read_otherwise_than_where_a_model_was_trained_is_told() {
    let row = |n: u32| format!("{}.5,{},u{},t{}", n % 11, 1_700_000_000 + n * 60, n % 12, n % 5);
    let log = Log::new("price,at,user,tags", row);
    let schema = "[[dense]]\ncolumn = 'price'\n[[dense]]\ncolumn = 'at'\ntime = 'age'\n\
                  [[categorical]]\ncolumn = 'user'\n[[categorical]]\ncolumn = 'tags'\nseparator = '|'\n\
                  [[categorical]]\ncolumn = 'at'\nname = 'hour'\ntime = 'hour'\n";
    let run = log.at("run");
    let train = log.described(schema);
    succeed(&format!("{train} --out {run}"));
    let init = format!("{train} --init {run}");
    let told = notes(&init);
    assert!(!told.contains("right only if"), "{told}");
    // The same samples, of another program.
    let row = |n: u32| format!("{}.5,{}000,u{},t{}", n % 11, 1_700_000_000 + n * 60, n % 12, n % 5);
    log.write("log.csv", "cost,at,user,tags", row);
    let other = schema
        .replace("column = 'price'", "column = 'cost'\nname = 'price'")
        .replace("separator = '|'", "separator = ';'\npadding = '-'")
        .replace("'age'\n", "'age'\nunit = 'milliseconds'\n")
        .replace("'hour'\ntime = 'hour'\n", "'hour'\ntime = 'hour'\nunit = 'milliseconds'\n");
    log.described(&format!("missing = ['NULL']\n{other}"));
    let told = notes(&init);
    for what in [
        "column price is read with column = \"cost\" (was \"price\")",
        "column at is read with unit = \"milliseconds\" (was \"seconds\")",
        "column tags is read with separator = \";\" (was \"|\"), padding = \"-\" (was none)",
        "column hour is read with unit = \"milliseconds\" (was \"seconds\")",
        "blank fields are read with missing = [\"NULL\"] (was [])",
    ] {
        let note =
            format!("note: --init: {what}, other than where this model was trained: right only if these data are");
        assert!(told.contains(&note), "{note}\n{told}");
    }
    assert_eq!(told.matches("right only if").count(), 5, "{told}");
}

#[test]
fn values_that_the_model_does_not_know_are_not_called_none() {
    let log = Log::new("price,user", |n| format!("{}.5,u{}", n % 11, n % 12));
    let columns = "[[dense]]\ncolumn = 'price'\n[[categorical]]\ncolumn = 'user'\n";
    succeed(&format!("{} --out {}", log.described(columns), log.at("run")));
    // Users 12 to 21 are new.
    log.write("next.csv", "price,user", |n| format!("{}.5,u{}", n % 11, 10 + n % 12));
    let eval = format!("eval --checkpoint {} --data {} --gauc user --by user", log.at("run"), log.at("next.csv"));
    let told = String::from_utf8(succeed(&eval).stdout).unwrap();
    assert!(told.contains("100 samples without a value that the model knows)"), "{told}");
    assert!(told.contains("\n  (unknown or no value)       100 "), "{told}");
}

#[test]
fn a_model_of_text_says_what_it_reads_in_the_place_of_blocks() {
    let log = Log::new("price,user", |n| format!("{}.5,u{}", n % 11, n % 12));
    let columns = "[[dense]]\ncolumn = 'price'\n[[categorical]]\ncolumn = 'user'\n";
    succeed(&format!("{} --out {}", log.described(columns), log.at("run")));
    let (blocks, run) = (log.at("blocks"), log.at("run"));
    succeed(&format!("convert {} {blocks} --schema {}", log.at("log.csv"), log.at("log.toml")));
    for line in [
        format!("eval --checkpoint {run} --data {blocks}"),
        format!("predict --checkpoint {run} --data {blocks}"),
        format!("inspect {blocks} --against {run}"),
    ] {
        let message = fail(&line);
        assert!(message.contains("is of format octorec, and this model reads text, or a Parquet file"), "{message}");
        assert!(!message.contains("--schema"), "{message}");
    }
}

#[test]
fn a_header_moves_no_cursor() {
    let log = Log::new("pr\u{1b}[31mice,us\u{7}er", |n| format!("{}.5,u{}", n % 11, n % 12));
    let inspect = format!("inspect {} --write-schema {}", log.at("log.csv"), log.at("log.toml"));
    let train =
        format!("train --data {} --schema {} {SMALL} --out {}", log.at("log.csv"), log.at("log.toml"), log.at("run"));
    let importance = format!("eval --checkpoint {} --data {} --importance", log.at("run"), log.at("log.csv"));
    for line in [&inspect, &train, &importance] {
        let output = succeed(line);
        let told = [output.stdout, output.stderr].map(|text| String::from_utf8(text).unwrap()).concat();
        assert!(!told.contains(['\u{1b}', '\u{7}']), "{told:?}");
        assert!(line == &train || told.contains("pr\\u{1b}[31mice") && told.contains("us\\u{7}er"), "{told}");
    }
}

#[test]
fn blocks_that_a_changed_schema_ends_begin_anew_by_what_the_message_says() {
    let log = Log::new("price,user", |n| format!("{}{},u{}", n % 11, if n == 100 { ".5" } else { "" }, n % 12));
    let columns = "[[dense]]\ncolumn = 'price'\n[[categorical]]\ncolumn = 'user'\n";
    log.described(columns);
    let line =
        format!("preprocess csv --in {} --schema {} --out {}", log.at("log.csv"), log.at("log.toml"), log.at("blocks"));
    let message = fail(&line);
    assert!(message.contains("fractions need float = true"), "{message}");
    assert!(message.contains("(with --force, which begins anew, if a schema has changed)"), "{message}");
    log.described(&columns.replace("'price'\n", "'price'\nfloat = true\n"));
    fail(&line);
    succeed(&format!("{line} --force"));
}
