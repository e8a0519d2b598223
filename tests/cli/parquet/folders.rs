//! Folders of Parquet, as Spark writes them, are one table to a schema, with the bits of the same rows as text; which
//! files of a folder are read, what is said of those that are not, and of columns that files have in different types.

use std::fs;
use std::ops::Range;
use std::path::Path;

use super::{Column, LAYERS, fail, json, labels, numbered, predict, succeed, write};

const SCHEMA: &str = "label = \"label\"\ndense = [{ column = \"price\", float = true }]\n\
                      categorical = [{ column = \"user\" }, { column = \"item\" }]\n";

const COLUMNS: [&str; 4] =
    ["optional int32 label;", "optional binary user (UTF8);", "optional double price;", "optional int64 item;"];

fn user(n: i32) -> Option<String> {
    (n % 17 > 0).then(|| format!("u{}", n * 7 % 40))
}

fn price(n: i32) -> Option<f64> {
    (n % 5 > 0).then_some(f64::from(n) / 8.0)
}

/// Writes rows of a log as Parquet; `turned`: with its columns from the last to the first.
fn part(path: &Path, rows: Range<i32>, turned: bool) {
    let mut columns = vec![
        labels(rows.clone()),
        Column::Text(rows.clone().map(user).collect()),
        Column::Float(rows.clone().map(price).collect()),
        Column::Whole(rows.clone().map(|n| Some(i64::from(n * n % 30))).collect()),
    ];
    let mut names = COLUMNS;
    if turned {
        columns.reverse();
        names.reverse();
    }
    write(path, &names.join(" "), &columns, rows.len());
}

/// The same as text.
fn text(path: &Path, rows: Range<i32>) {
    let line = |n: i32| {
        let (label, item) = (i32::from(n % 3 == 0), n * n % 30);
        let price = price(n).map_or_else(String::new, |price| format!("{price:?}"));
        format!("{label},{},{price},{item}\n", user(n).unwrap_or_default())
    };
    fs::write(path, "label,user,price,item\n".to_owned() + &rows.map(line).collect::<String>()).unwrap();
}

/// What a command says beside its results.
fn told(line: &str) -> String {
    String::from_utf8(succeed(line).stderr).unwrap()
}

#[test]
fn a_folder_that_a_schema_describes_is_one_table() {
    let home = tempfile::tempdir().unwrap();
    let at = |name: &str| home.path().join(name);
    let shown = |name: &str| at(name).display().to_string();
    fs::write(at("log.toml"), SCHEMA).unwrap();
    text(&at("log.csv"), 0..400);
    fs::create_dir(at("spark")).unwrap();
    part(&at("spark/part-10.snappy.parquet"), 300..400, false);
    part(&at("spark/part-2.snappy.parquet"), 150..300, true);
    part(&at("spark/part-0.snappy.parquet"), 0..150, false);
    part(&at("spark/part-3.snappy.parquet"), 0..0, false);
    // None of these is read.
    part(&at("spark/_tmp.parquet"), 0..50, false);
    for name in ["_SUCCESS", "_metadata", ".part-0.snappy.parquet.crc", "._part-0.snappy.parquet"] {
        fs::write(at("spark").join(name), "nothing").unwrap();
    }
    let by = format!("--schema {}", shown("log.toml"));
    for name in ["log.csv", "spark"] {
        let output =
            told(&format!("train --data {} {by} {LAYERS} --out {}", shown(name), shown(&format!("run_{name}"))));
        let is_told = output.contains("no rows are in part-3.snappy.parquet");
        assert!(is_told == (name == "spark"), "{output}");
        succeed(&format!("convert {} {} {by}", shown(name), shown(&format!("blocks_{name}"))));
        let run = shown("run_log.csv");
        succeed(&format!("inspect {} --against {run}", shown(name)));
    }
    let expected = predict(&at("run_log.csv"), &at("log.csv"));
    assert_eq!(expected.len(), 400);
    for (run, data) in [("run_log.csv", "spark"), ("run_spark", "log.csv"), ("run_spark", "spark")] {
        assert!(predict(&at(run), &at(data)) == expected, "{run} on {data}");
    }
    let [text_scores, scores] = ["log.csv", "spark"]
        .map(|data| json(&format!("eval --checkpoint {} --data {} --json", shown("run_spark"), shown(data))));
    assert_eq!((&scores["samples"], &scores["auc"]), (&text_scores["samples"], &text_scores["auc"]));
    assert_eq!(scores["samples"], 400);
    let [text_seen, seen] = ["log.csv", "spark"].map(|data| json(&format!("inspect {} {by} --json", shown(data))));
    assert_eq!((&seen["schema"], &seen["rows_total"]), (&text_seen["schema"], &text_seen["rows_total"]));
    let blocks = |name: &str| json(&format!("inspect {} --json", shown(name)));
    assert_eq!(blocks("blocks_log.csv"), blocks("blocks_spark"));
    // A run does not go into the folder that it reads: its files would be named whenever that is, and are no data.
    let into = |out: &str| format!("train --data {} {by} {LAYERS} --out {}", shown("spark"), shown(out));
    let message = fail(&into("spark"));
    let reason = format!("a run would lie in {}, the folder of its data, of which a schema describes", shown("spark"));
    assert!(message.contains(&reason) && !message.contains("are read as data"), "{message}");
    assert!(message.contains("name a folder within it"), "{message}");
    assert!(!told(&into("spark/run")).contains("alone are read, not"));
    fs::remove_dir_all(at("spark/run")).unwrap();
    // Each file's columns are found by name, whoever reads them; a day without rows is told.
    let make = |name: &str, out: &str| format!("preprocess csv --in {} {by} --out {}", shown(name), shown(out));
    fs::remove_file(at("spark/part-3.snappy.parquet")).unwrap();
    succeed(&make("spark", "made"));
    fs::create_dir(at("alike")).unwrap();
    part(&at("alike/part-0.parquet"), 0..150, false);
    part(&at("alike/part-1.parquet"), 150..400, false);
    succeed(&make("alike", "made_alike"));
    succeed(&make("log.csv", "made_text"));
    for made in ["made", "made_alike"] {
        assert_eq!(blocks(made), blocks("made_text"));
        for file in ["part-00000.octo", "user.vocabulary", "item.vocabulary"] {
            assert!(fs::read(at(made).join(file)).unwrap() == fs::read(at("made_text").join(file)).unwrap(), "{file}");
        }
    }
    // A column that is needed must be there.
    let short = [labels(150..400), Column::Text((150..400).map(user).collect())];
    write(&at("alike/part-1.parquet"), "optional int32 label; optional binary user (UTF8);", &short, 250);
    let message = fail(&make("alike", "made_short"));
    assert!(message.contains("part-1.parquet: has no column price; its header has label, user"), "{message}");
    part(&at("alike/part-1.parquet"), 150..400, true);
    // What names say of tests counts where nothing is described.
    fs::rename(at("alike/part-1.parquet"), at("alike/test-1.parquet")).unwrap();
    let seen = succeed(&format!("inspect {} {by} --json", shown("alike")));
    let note = String::from_utf8(seen.stderr).unwrap();
    assert!(note.contains("read as one table, and so are test-1.parquet: samples for tests lie"), "{note}");
}

#[test]
fn whole_numbers_of_one_file_are_no_floats_of_another() {
    let home = tempfile::tempdir().unwrap();
    let shown = |name: &str| home.path().join(name).display().to_string();
    fs::write(home.path().join("log.toml"), SCHEMA).unwrap();
    let by = format!("--schema {}", shown("log.toml"));
    fs::create_dir(home.path().join("gap")).unwrap();
    let floats = |name: &str, item: &dyn Fn(i32) -> Option<f64>| {
        let columns = [
            labels(0..60),
            Column::Text((0..60).map(user).collect()),
            Column::Float((0..60).map(price).collect()),
            Column::Float((0..60).map(item).collect()),
        ];
        write(&home.path().join(name), &COLUMNS.join(" ").replace("int64", "double"), &columns, 60);
    };
    part(&home.path().join("gap/day_0.parquet"), 0..60, false);
    floats("gap/day_1.parquet", &|n| (n != 4).then_some(f64::from(n)));
    let make = format!("preprocess csv --in {} {by} --out {}", shown("gap"), shown("made"));
    let inspect = format!("inspect {} {by}", shown("gap"));
    for line in [&make, &inspect, &format!("train --data {} {by} {LAYERS}", shown("gap"))] {
        let message = fail(line);
        let expected =
            format!("gap/day_1.parquet: column item has floats, and whole numbers in {}", shown("gap/day_0.parquet"));
        assert!(message.contains(&expected) && message.contains("Int64"), "{message}");
    }
    // Test samples are of the same table.
    let days = ["gap/day_0.parquet", "gap/day_1.parquet"].map(shown);
    let message = fail(&format!("train --data {} --test-data {} {by} --threads 1", days[0], days[1]));
    assert!(message.contains("column item has floats, and whole numbers in"), "{message}");
    // Of one file alone nobody knows what others have.
    let note = "column item has floats, which are whole numbers as far as its first values tell";
    assert!(told(&format!("inspect {} {by}", days[1])).contains(note));
    assert!(!told(&format!("inspect {} {by}", days[0])).contains(note));
    // Floats that are none tell that they were meant, and nothing but gaps tells nothing.
    floats("half.parquet", &|n| Some(f64::from(n) / 2.0));
    assert!(!told(&format!("inspect {} {by}", shown("half.parquet"))).contains(note));
    floats("gap/day_1.parquet", &|_| None);
    assert!(!told(&inspect).contains(note));
    // Nor do gaps that are NaN.
    floats("gap/day_1.parquet", &|_| Some(f64::NAN));
    assert!(!told(&inspect).contains(note));
    // Columns are found but for blanks around their names.
    floats("gap/day_1.parquet", &|n| (n != 4).then_some(f64::from(n)));
    fs::write(home.path().join("blank.toml"), SCHEMA.replace("\"item\"", "\"item \"")).unwrap();
    let message = fail(&format!("inspect {} --schema {}", shown("gap"), shown("blank.toml")));
    assert!(message.contains("has floats, and whole numbers in"), "{message}");
}

#[test]
fn files_beside_parquet_are_none_of_its_rows() {
    let home = tempfile::tempdir().unwrap();
    let at = |name: &str| home.path().join(name);
    let shown = |name: &str| at(name).display().to_string();
    fs::write(at("log.toml"), SCHEMA).unwrap();
    let by = format!("--schema {}", shown("log.toml"));
    fs::create_dir(at("spark")).unwrap();
    part(&at("spark/part-0.parquet"), 0..100, false);
    succeed(&format!("train --data {} {by} {LAYERS} --out {}", shown("spark"), shown("run")));
    let expected = predict(&at("run"), &at("spark"));
    assert_eq!(expected.len(), 100);
    // The same rows once more, and what is no table.
    text(&at("spark/log.csv"), 0..100);
    fs::write(at("spark/README.md"), "rows of a week").unwrap();
    fs::write(at("spark/spark.toml"), SCHEMA).unwrap();
    let note = "its *.parquet alone are read, not README.md, log.csv";
    let inspect = format!("inspect {} {by} --json", shown("spark"));
    assert_eq!(json(&inspect)["rows_total"], 100);
    let make = format!("preprocess csv --in {} {by} --out {}", shown("spark"), shown("made"));
    for line in [&inspect, &make] {
        let said = told(line);
        assert!(said.contains(note) && !said.contains("spark.toml"), "octorec {line}\n{said}");
    }
    // An output of another ending is read by nobody.
    let predicts = format!("predict --checkpoint {} --data {} --out", shown("run"), shown("spark"));
    (0..2).for_each(|_| drop(succeed(&format!("{predicts} {}", shown("spark/p.csv")))));
    assert!(predict(&at("run"), &at("spark")) == expected);
    let message = fail(&format!("{predicts} {}", shown("spark/p.parquet")));
    assert!(message.contains("p.parquet lies in ") && message.contains("*.parquet are read as data"), "{message}");
    assert!(!at("spark/p.parquet").exists());
    // Nor is a part lost to which a link leads, whatever the link's name.
    std::os::unix::fs::symlink(at("spark/part-0.parquet"), at("link.csv")).unwrap();
    let message = fail(&format!("{predicts} {}", shown("link.csv")));
    assert!(message.contains("link.csv is ") && message.contains("which would be lost"), "{message}");
}

/// Rows with numbers of rows, which need no schema.
fn rows(path: &Path, count: i64) {
    let [price, user, item] = numbered(0..count);
    let names = "optional int32 label; optional double price; optional int64 user; optional int32 item;";
    write(path, names, &[labels(0..count as i32), price, user, item], count as usize);
}

#[test]
fn what_is_not_read_is_nothing_that_was_meant() {
    let home = tempfile::tempdir().unwrap();
    let at = |name: &str| home.path().join(name);
    let inspect = |name: &str, more: &str| format!("inspect {} {more}", at(name).display());
    fs::create_dir_all(at("days/date=2026-01-31")).unwrap();
    rows(&at("days/a.parquet"), 40);
    // What nobody means: a job's, a Mac's, and what is yet to become a file.
    rows(&at("days/_tmp.parquet"), 20);
    rows(&at("days/.hidden.parquet"), 20);
    fs::write(at("days/._a.parquet"), "nothing").unwrap();
    rows(&at("days/values.parquet"), 30);
    let seen = json(&inspect("days", "--json"));
    assert_eq!((&seen["rows_total"], &seen["format"]), (&70.into(), &"parquet".into()));
    let out = at("run").display().to_string();
    succeed(&format!("train --data {} {LAYERS} --out {out}", at("days").display()));
    assert_eq!(predict(&at("run"), &at("days")).len(), 70);
    // Files of folders within are told, whatever reads: of a partitioned table there are no others.
    let below = at("days/date=2026-01-31");
    rows(&below.join("b.parquet"), 10);
    fs::write(at("log.toml"), SCHEMA).unwrap();
    let by = format!("--schema {}", at("log.toml").display());
    let named = format!("has Parquet files in {}, a folder within it", below.display());
    for alone in [false, true] {
        if alone {
            for name in ["a.parquet", "values.parquet"] {
                fs::remove_file(at("days").join(name)).unwrap();
            }
        }
        let days = at("days").display().to_string();
        for line in [
            inspect("days", ""),
            inspect("days", &by),
            format!("train --data {days} {LAYERS}"),
            format!("train --data {days} {by} {LAYERS}"),
            format!("preprocess csv --in {days} {by} --out {}", at("made").display()),
        ] {
            let message = fail(&line);
            assert!(message.contains(&named), "octorec {line}\n{message}");
        }
    }
}

#[test]
fn columns_that_files_without_a_schema_leave_out_are_told() {
    let home = tempfile::tempdir().unwrap();
    let at = |name: &str| home.path().join(name);
    let inspect = |name: &str| format!("inspect {}", at(name).display());
    let write_with = |name: &str, column: &str, values: Column| {
        let [price, user, item] = numbered(0..40);
        let names = "optional int32 label; optional double price; optional int64 user; optional int32 item;";
        write(&at(name), &format!("{names} {column}"), &[labels(0..40), price, user, item, values], 40);
    };
    fs::create_dir(at("days")).unwrap();
    rows(&at("days/day_0.parquet"), 40);
    write_with("days/day_1.parquet", "optional int64 brand;", Column::Whole((0..40).map(Some).collect()));
    let note = told(&inspect("days"));
    assert!(note.contains("day_1.parquet: left out what ") && note.contains("has not: brand; a schema.toml"), "{note}");
    // Once, of however many files.
    write_with("days/day_2.parquet", "optional int64 brand;", Column::Whole((0..40).map(Some).collect()));
    let note = told(&inspect("days"));
    assert!(note.contains("day_1.parquet and 1 more file: left out what "), "{note}");
    assert_eq!(note.matches("left out what ").count(), 1, "{note}");
    // Words alone tell what rows are for.
    fs::create_dir(at("held")).unwrap();
    for name in ["a.parquet", "testfold0.parquet", "testimonials.parquet", "values.parquet"] {
        rows(&at("held").join(name), 40);
    }
    let note = told(&inspect("held"));
    assert!(note.contains("for training, too, are those of testimonials.parquet, values.parquet: by"), "{note}");
    let index = "optional int64 __index_level_1__;";
    write_with("index.parquet", index, Column::Whole((0..40).map(|n| Some(n * 3)).collect()));
    let note = told(&inspect("index.parquet"));
    assert!(note.contains("index.parquet: column __index_level_1__ is left out"), "{note}");
    let index = "optional int64 __index_level_0__;";
    write_with("index.parquet", index, Column::Whole((0..40).map(|n| Some(n * 3)).collect()));
    let note = told(&inspect("index.parquet"));
    assert!(note.contains("index.parquet: column __index_level_0__ is left out"), "{note}");
    let seen = json(&format!("{} --json", inspect("index.parquet")));
    assert_eq!(seen["schema"]["categorical"].as_array().unwrap().len(), 2);
    // Identifiers are no numbers of rows.
    write_with("ids.parquet", "optional int64 uid;", Column::Whole((0..40).map(|n| Some(i64::MAX - n)).collect()));
    let message = fail(&inspect("ids.parquet"));
    assert!(
        message.contains("column uid has 9223372036854775808 rows; 1 to 2^32 - 1 are possible: values that"),
        "{message}"
    );
    assert!(message.contains("--label COLUMN --write-schema SCHEMA"), "{message}");
    let unsigned = Column::Whole((0..40).map(|n| Some(if n == 7 { -1 } else { n })).collect());
    write_with("ids.parquet", "optional int64 uid (UINT_64);", unsigned);
    let message = fail(&inspect("ids.parquet"));
    assert!(message.contains("column uid, row 7: 18446744073709551615 is no row number"), "{message}");
    // Without rows there is nothing that fewer tests would help.
    rows(&at("none.parquet"), 0);
    let message = fail(&format!("train --data {} {LAYERS}", at("none.parquet").display()));
    assert!(message.contains("name data with samples"), "{message}");
}

#[test]
fn identifiers_of_which_no_memory_has_all_rows_are_told_with_their_column() {
    let home = tempfile::tempdir().unwrap();
    let at = |name: &str| home.path().join(name);
    let store = |name: &str| {
        let [price, ..] = numbered(0..40);
        let uid = Column::Whole((0..40).map(|n| Some(n % 20 * 200_000_000)).collect());
        let columns = "optional int32 label; optional double price; optional int64 uid;";
        write(&at(name), columns, &[labels(0..40), price, uid], 40);
    };
    store("ids.parquet");
    let data = at("ids.parquet").display().to_string();
    let wide = "--set model.bottom=[0,1024] --set model.top=[8,1] --set model.dim=1024 --threads 1";
    for command in ["train", "plan"] {
        let message = fail(&format!("{command} --data {data} {wide}"));
        let cause =
            "ids.parquet: column uid has numbers up to 3800000000, each of which is a row of its table, for which ";
        assert!(message.contains(cause), "{message}");
        for remedy in ["--label COLUMN --write-schema SCHEMA", "preprocess csv --schema SCHEMA", "--rows-cap N"] {
            assert!(message.contains(remedy), "{message}");
        }
    }
    // Each remedy works.
    succeed(&format!("train --data {data} {LAYERS} --rows-cap 100"));
    let schema = at("ids.toml").display().to_string();
    succeed(&format!("inspect {data} --label label --write-schema {schema}"));
    assert!(fs::read_to_string(&schema).unwrap().contains("column = \"uid\""));
    succeed(&format!("train --data {data} {LAYERS} --schema {schema}"));
    let blocks = at("ids").display().to_string();
    succeed(&format!("preprocess csv --in {data} --schema {schema} --out {blocks}"));
    succeed(&format!("train --data {blocks} {LAYERS}"));
    // A schema beside the files that takes them for rows is what says how many there are.
    fs::create_dir(at("numbers")).unwrap();
    store("numbers/ids.parquet");
    let folder = at("numbers").display().to_string();
    succeed(&format!("inspect {folder} --write-schema {folder}/schema.toml"));
    let message = fail(&format!("train --data {folder} {wide}"));
    let cause =
        "numbers/schema.toml: says that the numbers of column uid are rows of a table that has 3800000001, for which";
    assert!(message.contains(cause), "{message}");
    succeed(&format!("train --data {folder} {LAYERS} --schema {schema}"));
}

#[test]
fn test_samples_are_read_by_the_columns_of_those_for_training() {
    let home = tempfile::tempdir().unwrap();
    let at = |name: &str| home.path().join(name);
    let layers = LAYERS.replace("--test-fraction 0", "");
    let scores = |tests: &str| {
        let [data, tests] = ["train.parquet", tests].map(|name| at(name).display().to_string());
        let line = format!("train --data {data} --test-data {tests} {layers} --json");
        let output = succeed(&line);
        let results: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        let found = ["auc", "logloss"].map(|score| results[score].as_f64().unwrap());
        (found, String::from_utf8(output.stderr).unwrap())
    };
    rows(&at("train.parquet"), 400);
    rows(&at("alike.parquet"), 60);
    // In another order, with whole prices in the place of floats, and with a column that nobody reads.
    let [price, ..] = numbered(0..60);
    let other = |name: &str, price: Column, kind: &str| {
        let [_, user, item] = numbered(0..60);
        let names = format!(
            "optional int32 item; optional int64 brand; optional {kind} price; optional int64 user; optional int32 label;"
        );
        let brand = Column::Whole((0..60).map(Some).collect());
        write(&at(name), &names, &[item, brand, price, user, labels(0..60)], 60);
    };
    other("turned.parquet", price, "double");
    let (expected, _) = scores("alike.parquet");
    let (found, said) = scores("turned.parquet");
    assert_eq!(found, expected);
    let note = format!("turned.parquet: left out what is not read of {}: brand; a", at("train.parquet").display());
    assert!(said.contains(&note), "{said}");
    other("whole.parquet", Column::Whole((0..60).map(Some).collect()), "int64");
    scores("whole.parquet");
    // A column that is needed must be there, and of its type.
    other("text.parquet", Column::Text(vec![Some("many".to_owned()); 60]), "binary");
    let line = |tests: &str| {
        format!("train --data {} --test-data {} {layers}", at("train.parquet").display(), at(tests).display())
    };
    let message = fail(&line("text.parquet"));
    assert!(message.contains("text.parquet: column price has BYTE_ARRAY, but floats are expected"), "{message}");
    let [price, user, _] = numbered(0..60);
    let names = "optional double price; optional int64 user; optional int32 label;";
    write(&at("short.parquet"), names, &[price, user, labels(0..60)], 60);
    let message = fail(&line("short.parquet"));
    assert!(message.contains("short.parquet: has no column item; it has price, user, label"), "{message}");
}

#[test]
fn another_day_is_read_by_the_rows_of_the_model_that_training_begins_with() {
    let home = tempfile::tempdir().unwrap();
    let at = |name: &str| home.path().join(name);
    rows(&at("day_0.parquet"), 400);
    let [run, next] = ["run", "next"].map(|name| at(name).display().to_string());
    succeed(&format!("train --data {} {LAYERS} --out {run}", at("day_0.parquet").display()));
    // Users and items of smaller numbers, and prices that all are whole.
    let day = |users: &dyn Fn(i64) -> i64| {
        let [_, _, item] = numbered(0..60);
        let price = Column::Whole((0..60).map(|n| (n % 7 > 0).then_some(n)).collect());
        let user = Column::Whole((0..60).map(|n| Some(users(n))).collect());
        let names = "optional int64 price; optional int32 label; optional int64 user; optional int32 item;";
        write(&at("day_1.parquet"), names, &[price, labels(0..60), user, item], 60);
        format!("train --data {} {LAYERS} --init {run} --out {next} --force", at("day_1.parquet").display())
    };
    succeed(&day(&|n| n));
    assert_eq!(predict(&at("next"), &at("day_0.parquet")).len(), 400);
    let message = fail(&day(&|n| if n == 3 { 400 } else { n }));
    assert!(message.contains("column user, row 3: row 400 is beyond the 400 rows of its table"), "{message}");
}

#[test]
fn identifiers_are_no_rows_of_a_model_of_text_with_which_training_begins() {
    let home = tempfile::tempdir().unwrap();
    let shown = |name: &str| home.path().join(name).display().to_string();
    fs::write(home.path().join("log.toml"), SCHEMA).unwrap();
    text(&home.path().join("log.csv"), 0..100);
    // Numbers below the sizes of the model's tables, in columns of its names.
    let [price, _, item] = numbered(0..60);
    let user = Column::Whole((0..60).map(|n| Some(n % 9)).collect());
    let names = "optional int32 label; optional double price; optional int64 user; optional int32 item;";
    write(&home.path().join("day.parquet"), names, &[labels(0..60), price, user, item], 60);
    let by = format!("--schema {}", shown("log.toml"));
    for (run, vocab) in [("hashed", "--vocab hash --rows-cap 50"), ("numbered", "")] {
        succeed(&format!("train --data {} {by} {vocab} {LAYERS} --out {}", shown("log.csv"), shown(run)));
        let init = format!("train --data {} {LAYERS} --init {}", shown("day.parquet"), shown(run));
        let message = fail(&init);
        assert!(message.contains("day.parquet is Parquet, whose whole numbers are numbers of rows"), "{message}");
        assert!(message.contains(&format!("trained with ({by})")), "{message}");
        succeed(&format!("{init} {vocab} {by}"));
    }
}

#[test]
fn a_file_with_its_columns_in_another_order_is_the_one_that_it_was() {
    let home = tempfile::tempdir().unwrap();
    let data = home.path().join("log.parquet");
    let run = home.path().join("run").display().to_string();
    rows(&data, 100);
    succeed(&format!("train --data {} {LAYERS} --out {run}", data.display()));
    let score = format!("eval --checkpoint {run} --split train --json");
    let before = json(&score);
    let turned = |user: Column| {
        let [price, _, item] = numbered(0..100);
        let names = "optional int32 item; optional int64 user; optional double price; optional int32 label;";
        write(&data, names, &[item, user, price, labels(0..100)], 100);
    };
    let [_, user, _] = numbered(0..100);
    turned(user);
    let after = json(&score);
    assert_eq!((&after["samples"], &after["auc"]), (&before["samples"], &before["auc"]));
    assert_eq!(after["samples"], 100);
    turned(Column::Whole((0..100).map(|n| Some(n * 3 % 100)).collect()));
    let message = fail(&score);
    assert!(message.contains("are others, or have changed or grown since"), "{message}");
}
