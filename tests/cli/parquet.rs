//! Parquet as other programs write it: a trained model reads other files of its columns, and a table is the same to a
//! schema whether it is text or Parquet.
#![cfg(feature = "parquet")]

mod folders;

use std::fs::{self, File};
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use ::parquet::data_type::{BoolType, ByteArray, ByteArrayType, DataType, DoubleType, Int32Type, Int64Type};
use ::parquet::file::properties::WriterProperties;
use ::parquet::file::writer::{SerializedColumnWriter, SerializedFileWriter};
use ::parquet::schema::parser::parse_message_type;
use octorec::data::Samples;
use octorec::data::formats::{self, Described};

use super::{fail, json, succeed};

mod cells;

/// The values of a column, all optional.
enum Column {
    Small(Vec<Option<i32>>),
    Whole(Vec<Option<i64>>),
    Float(Vec<Option<f64>>),
    Bit(Vec<Option<bool>>),
    Text(Vec<Option<String>>),
    List(Vec<Option<Vec<String>>>),
    /// Lists of small numbers, all empty.
    Empty,
}

fn flat<T: DataType>(to: &mut SerializedColumnWriter<'_>, values: &[Option<T::T>]) {
    let present: Vec<i16> = values.iter().map(|value| i16::from(value.is_some())).collect();
    let there: Vec<T::T> = values.iter().flatten().cloned().collect();
    to.typed::<T>().write_batch(&there, Some(&present), None).unwrap();
}

impl Column {
    fn write(&self, rows: Range<usize>, to: &mut SerializedColumnWriter<'_>) {
        match self {
            Self::Small(values) => flat::<Int32Type>(to, &values[rows]),
            Self::Whole(values) => flat::<Int64Type>(to, &values[rows]),
            Self::Float(values) => flat::<DoubleType>(to, &values[rows]),
            Self::Bit(values) => flat::<BoolType>(to, &values[rows]),
            Self::Text(values) => {
                let bytes = |text: &Option<String>| text.as_deref().map(ByteArray::from);
                flat::<ByteArrayType>(to, &values[rows].iter().map(bytes).collect::<Vec<_>>());
            }
            Self::Empty => {
                to.typed::<Int32Type>()
                    .write_batch(&[], Some(&vec![1; rows.len()]), Some(&vec![0; rows.len()]))
                    .unwrap();
            }
            Self::List(lists) => {
                let (mut present, mut again, mut there) = (Vec::new(), Vec::new(), Vec::new());
                for list in &lists[rows] {
                    let values = list.as_deref().unwrap_or_default();
                    if values.is_empty() {
                        present.push(i16::from(list.is_some()));
                        again.push(0);
                    }
                    for (place, value) in values.iter().enumerate() {
                        present.push(3);
                        again.push(i16::from(place > 0));
                        there.push(ByteArray::from(&value[..]));
                    }
                }
                to.typed::<ByteArrayType>().write_batch(&there, Some(&present), Some(&again)).unwrap();
            }
        }
    }
}

/// Writes columns of this schema, in row groups of 170 rows.
fn write(path: &Path, message: &str, columns: &[Column], rows: usize) {
    let schema = Arc::new(parse_message_type(&format!("message log {{ {message} }}")).unwrap());
    let properties = Arc::new(WriterProperties::builder().build());
    let mut writer = SerializedFileWriter::new(File::create(path).unwrap(), schema, properties).unwrap();
    for from in (0..rows).step_by(170) {
        let mut group = writer.next_row_group().unwrap();
        for column in columns {
            let mut to = group.next_column().unwrap().unwrap();
            column.write(from..rows.min(from + 170), &mut to);
            to.close().unwrap();
        }
        group.close().unwrap();
    }
    writer.close().unwrap();
}

const LAYERS: &str = "--set model.bottom=[0,8] --set model.top=[8,1] --set model.dim=8 --threads 1 --batch 50 --epochs 1 \
                      --test-fraction 0";

fn predict(run: &Path, data: &Path) -> Vec<String> {
    let output = succeed(&format!("predict --checkpoint {} --data {} --threads 1", run.display(), data.display()));
    String::from_utf8(output.stdout).unwrap().lines().map(str::to_owned).collect()
}

/// Prices, users below 400 and items of `rows`.
fn numbered(rows: Range<i64>) -> [Column; 3] {
    let price = rows.clone().map(|n| (n % 7 > 0).then_some(n as f64 / 16.0));
    [
        Column::Float(price.collect()),
        Column::Whole(rows.clone().map(|n| Some(n * 7 % 400)).collect()),
        Column::Small(rows.map(|n| Some((n * n % 30) as i32)).collect()),
    ]
}

fn labels(rows: Range<i32>) -> Column {
    Column::Small(rows.map(|n| Some(i32::from(n % 3 == 0))).collect())
}

#[test]
fn a_trained_model_reads_other_files_of_its_columns() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    let (whole, run) = (at("whole.parquet"), at("run"));
    let [price, user, item] = numbered(0..400);
    let columns = "optional int32 label; optional double price; optional int64 user; optional int32 item;";
    write(&whole, columns, &[labels(0..400), price, user, item], 400);
    succeed(&format!("train --data {} {LAYERS} --out {}", whole.display(), run.display()));
    let expected = predict(&run, &whole);
    assert_eq!(expected.len(), 400);
    // Rows of smaller numbers, columns in another order, one that the model has not, and no label.
    let part = at("part.parquet");
    let [price, user, item] = numbered(0..50);
    let note = || Column::Text((0..50).map(|n| Some(format!("row {n}"))).collect());
    let turned = "optional int32 item; optional binary note (UTF8); optional int64 user; optional double price;";
    write(&part, turned, &[item, note(), user, price], 50);
    assert_eq!(predict(&run, &part), expected[..50]);
    let message = fail(&format!("eval --checkpoint {} --data {}", run.display(), part.display()));
    let named = "has no column label; it has item, note, user, price: a schema.toml beside the files names the label";
    assert!(message.contains(named), "{message}");
    let [price, user, item] = numbered(0..50);
    let labelled = format!("{turned} optional int32 label;");
    write(&part, &labelled, &[item, note(), user, price, labels(0..50)], 50);
    assert_eq!(json(&format!("eval --checkpoint {} --data {} --json", run.display(), part.display()))["samples"], 50);
    assert_eq!(predict(&run, &part), expected[..50]);
    // What stands in the place of a label is nothing to a prediction.
    let [price, user, item] = numbered(0..50);
    write(
        &at("said.parquet"),
        &format!("{turned} optional binary label (UTF8);"),
        &[item, note(), user, price, note()],
        50,
    );
    assert_eq!(predict(&run, &at("said.parquet")), expected[..50]);
    let message = fail(&format!("eval --checkpoint {} --data {}", run.display(), at("said.parquet").display()));
    assert!(message.contains("the label label has "), "{message}");
    succeed(&format!("train --resume {} --data {} --epochs 2", run.display(), part.display()));
    // What the tables do not have is named.
    let [price, _, item] = numbered(0..50);
    let user = Column::Whole((0..50).map(|n| Some(if n == 20 { 400 } else { n })).collect());
    write(&part, turned, &[item, note(), user, price], 50);
    let message = fail(&format!("predict --checkpoint {} --data {}", run.display(), part.display()));
    let named = "part.parquet: row group 0, column user, row 20: row 400 is beyond the ";
    assert!(message.contains(named) && message.contains("schema.toml"), "{message}");
    let [price, user, _] = numbered(0..50);
    write(&part, "optional double price; optional int64 user;", &[price, user], 50);
    let message = fail(&format!("predict --checkpoint {} --data {}", run.display(), part.display()));
    assert!(message.contains("has no column item; it has price, user"), "{message}");
    // Nor are columns of other names taken for the model's, until somebody says so.
    let columns = "optional double cost; optional int64 city; optional int32 device;";
    write(&part, columns, &numbered(0..50), 50);
    let message = fail(&format!("predict --checkpoint {} --data {}", run.display(), part.display()));
    assert!(message.contains("user, item; it has cost, city, device") && message.contains("schema.toml"), "{message}");
    fs::create_dir(at("other")).unwrap();
    let schema = "label = { name = \"label\" }\ndense = [{ name = \"cost\", float = true }]\n\
                  categorical = [{ name = \"city\", rows = 400 }, { name = \"device\", rows = 26 }]\n";
    fs::write(at("other/schema.toml"), schema).unwrap();
    write(&at("other/part.parquet"), columns, &numbered(0..50), 50);
    assert_eq!(predict(&run, &at("other/part.parquet")), predict(&run, &whole)[..50]);
    // The label that a model was trained by is known by its name.
    fs::create_dir(at("named")).unwrap();
    let schema = "label = { name = \"clicked\" }\ndense = [{ name = \"price\", float = true }]\n\
                  categorical = [{ name = \"user\", rows = 400 }, { name = \"item\", rows = 30 }]\n";
    fs::write(at("named/schema.toml"), schema).unwrap();
    let columns = "optional double price; optional int64 user; optional int32 item;";
    let rows = |name: &str, label: &str| {
        let [price, user, item] = numbered(0..50);
        let columns = format!("{columns} optional int32 {label};");
        write(&at(name), &columns, &[price, user, item, labels(0..50)], 50);
        at(name).display().to_string()
    };
    rows("named/a.parquet", "clicked");
    let run = at("named_run").display().to_string();
    succeed(&format!("train --data {} {LAYERS} --out {run}", at("named").display()));
    let score = |data: &str| format!("eval --checkpoint {run} --data {data} --json");
    // Or as it is where nobody says how.
    for label in ["clicked", "label"] {
        assert_eq!(json(&score(&rows("b.parquet", label)))["samples"], 50, "{label}");
    }
    let message = fail(&score(&rows("b.parquet", "bought")));
    assert!(message.contains("has no column clicked; it has price, user, item, bought"), "{message}");
}

#[test]
fn a_model_of_text_does_not_take_numbers_for_its_rows() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    let line = |n: u32| {
        let dense = (0..13).map(|place| (n + place).to_string());
        let categorical = (0..26).map(|place| format!("{:08x}", n % (place + 2)));
        let fields: Vec<_> = std::iter::once((n % 2).to_string()).chain(dense).chain(categorical).collect();
        fields.join("\t") + "\n"
    };
    fs::write(at("log.tsv"), (0..100).map(line).collect::<String>()).unwrap();
    succeed(&format!("train --data {} {LAYERS} --out {}", at("log.tsv").display(), at("run").display()));
    let names: Vec<_> = (1..=26).map(|n| format!("optional int64 C{n};")).collect();
    let values: Vec<_> = names.iter().map(|_| Column::Whole(vec![Some(1); 9])).collect();
    write(&at("log.parquet"), &names.join(" "), &values, 9);
    for command in ["eval", "predict"] {
        let (run, data) = (at("run"), at("log.parquet"));
        let message = fail(&format!("{command} --checkpoint {} --data {}", run.display(), data.display()));
        assert!(message.contains("trained on values of text") && message.contains("schema.toml"), "{message}");
    }
    let (run, data) = (at("run"), at("log.parquet"));
    let message = fail(&format!("train --data {} {LAYERS} --init {}", data.display(), run.display()));
    assert!(message.contains("trained on values of text") && message.contains("name text"), "{message}");
}

/// A table of `rows` rows with values of all kinds, as Parquet and as the text that pandas writes.
fn table(folder: &Path, rows: usize) {
    let all = || 0..rows as i64;
    let user = |n: i64| match n {
        _ if n % 17 == 0 => None,
        _ if n % 11 == 0 => Some("u,\"x\"".to_owned()),
        _ => Some(format!("u{}", n * 7 % 40)),
    };
    let price = |n: i64| (n % 5 > 0).then_some(n as f64 / 8.0);
    let tags = |n: i64| {
        let list = (0..n % 4).map(|place| format!("t{}", (n + place) % 9)).collect::<Vec<_>>();
        (n % 13 > 0).then_some(list)
    };
    // The first of January 2026.
    let day = 20_454;
    let columns = [
        labels(0..rows as i32),
        Column::Text(all().map(user).collect()),
        Column::Float(all().map(price).collect()),
        Column::Whole(all().map(|n| Some(n * n % 1_000)).collect()),
        Column::Small(all().map(|n| Some(day + (n / 20) as i32)).collect()),
        Column::Whole(all().map(|n| Some((i64::from(day) * 86_400 + n * 1_800) * 1_000)).collect()),
        Column::Whole(all().map(|n| (n % 6 > 0).then_some(n * 25)).collect()),
        Column::Bit(all().map(|n| Some(n % 2 == 0)).collect()),
        Column::List(all().map(tags).collect()),
    ];
    let message = "optional int32 label; optional binary user (UTF8); optional double price; optional int64 visits; \
                   optional int32 day (DATE); optional int64 at (TIMESTAMP_MILLIS); optional int64 cost (DECIMAL(10,2)); \
                   optional boolean paid; \
                   optional group tags (LIST) { repeated group list { optional binary element (UTF8); } }";
    write(&folder.join("log.parquet"), message, &columns, rows);
    let mut text = "label,user,price,visits,day,at,cost,paid,tags\n".to_owned();
    for n in all() {
        let user = user(n).unwrap_or_default();
        let user = if user.contains('"') { format!("\"{}\"", user.replace('"', "\"\"")) } else { user };
        let price = price(n).map_or_else(String::new, |price| format!("{price:?}"));
        let cost = if n % 6 > 0 { format!("{}.{:02}", n * 25 / 100, n * 25 % 100) } else { String::new() };
        let (minutes, tags) = (n * 30, tags(n).unwrap_or_default().join("|"));
        let moment = format!("2026-01-{:02} {:02}:{:02}:00", 1 + minutes / 1_440, minutes / 60 % 24, minutes % 60);
        text += &format!(
            "{},{user},{price},{},2026-01-{:02},{moment},{cost},{},{tags}\n",
            i32::from(n % 3 == 0),
            n * n % 1_000,
            1 + n / 20,
            if n % 2 == 0 { "True" } else { "False" }
        );
    }
    fs::write(folder.join("log.csv"), text).unwrap();
}

const SCHEMA: &str = r#"
label = "label"
dense = [
    { column = "price" },
    { column = "visits", transform = "log" },
    { column = "cost", transform = "standardise", float = true },
    { column = "at", name = "age", time = "age", unit = "YYYY-MM-DD" },
]
categorical = [
    { column = "user" },
    { column = "price", name = "price_level" },
    { column = "day", time = "weekday", unit = "YYYY-MM-DD" },
    { column = "day", name = "date" },
    { column = "paid" },
    { column = "tags", separator = "|" },
]
"#;

#[test]
fn a_table_is_the_same_as_text_and_as_parquet() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    table(folder.path(), 400);
    fs::write(at("schema_of_log.toml"), SCHEMA).unwrap();
    let schema = at("schema_of_log.toml");
    let samples = |name: &str, from: u64| {
        let dataset = formats::open(&at(name), None, Some(Described::by(&schema))).unwrap();
        let mut found = Samples::new(&dataset.description);
        dataset.members[0].table.open(from).unwrap().read(&mut found, usize::MAX).unwrap();
        assert_eq!(found.len() as u64, 400 - from, "{name}");
        format!("{:?} {found:?}", dataset.description)
    };
    for from in [0, 171] {
        assert!(samples("log.csv", from) == samples("log.parquet", from), "from row {from} on");
    }
    // What is said of text has no effect on Parquet.
    let tabs = "delimiter = \"\\t\"\n\
                columns = [\"tags\", \"paid\", \"cost\", \"at\", \"day\", \"visits\", \"price\", \"user\", \"label\"]\n";
    let told = samples("log.parquet", 0);
    fs::write(&schema, format!("{tabs}{SCHEMA}")).unwrap();
    assert!(samples("log.parquet", 0) == told);
    fs::write(&schema, SCHEMA).unwrap();
    let inspect = |name: &str, more: &str| {
        let mut found = json(&format!("inspect {} --json {more}", at(name).display()));
        assert_eq!(found["format"], name.trim_start_matches("log."));
        found["format"] = "".into();
        found
    };
    let propose = |name: &str| inspect(name, &format!("--write-schema {}.toml", at(name).display()));
    assert_eq!(propose("log.csv"), propose("log.parquet"));
    let [text, proposed] =
        ["log.csv", "log.parquet"].map(|name| fs::read_to_string(at(&format!("{name}.toml"))).unwrap());
    assert!(text == proposed && text.contains("separator = \"|\""), "{text}\n{proposed}");
    let by = format!("--schema {}", schema.display());
    assert_eq!(inspect("log.csv", &by), inspect("log.parquet", &by));
    for (name, blocks) in [("log.csv", "a"), ("log.parquet", "b")] {
        let [data, out] = [name, blocks].map(|name| at(name).display().to_string());
        // Whoever reads once must be told what is a fraction.
        let told = SCHEMA.replace("{ column = \"price\" }", "{ column = \"price\", float = true }");
        fs::write(at("told.toml"), told).unwrap();
        succeed(&format!("preprocess csv --in {data} --out {out} --schema {}", at("told.toml").display()));
        succeed(&format!("train --data {data} {by} {LAYERS} --out {}", at(&format!("run_{blocks}")).display()));
    }
    let blocks = |name: &str| json(&format!("inspect {} --json", at(name).display()));
    assert_eq!(blocks("a"), blocks("b"));
    let expected = predict(&at("run_a"), &at("log.csv"));
    for (run, data) in [("run_a", "log.parquet"), ("run_b", "log.csv"), ("run_b", "log.parquet")] {
        assert!(predict(&at(run), &at(data)) == expected, "{run} on {data}");
    }
    // Moments with their distance from UTC, as pandas writes those of a time zone, are the same.
    let (ahead, text) = (at("ahead.csv"), fs::read_to_string(at("log.csv")).unwrap());
    fs::write(&ahead, text.replace(":00,", ":00+00:00,")).unwrap();
    assert!(predict(&at("run_b"), &ahead) == expected);
}

#[test]
fn schemas_of_the_wrong_kind_and_values_that_are_no_rows_are_told() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    table(folder.path(), 40);
    let log = at("log.parquet");
    let message = fail(&format!("train --data {} {LAYERS}", log.display()));
    assert!(
        message.contains("column user has") && message.contains("octorec inspect FILE --write-schema"),
        "{message}"
    );
    fs::write(at("schema.toml"), SCHEMA).unwrap();
    let message = fail(&format!("train --data {} {LAYERS}", log.display()));
    assert!(message.contains("schema.toml: has the keys of `octorec schema`"), "{message}");
    fs::remove_file(at("schema.toml")).unwrap();
    let list = "optional int32 label; \
                optional group tags (LIST) { repeated group list { optional binary element (UTF8); } }";
    let tags =
        Column::List((0..9).map(|n| Some(vec![if n == 4 { "a|b".to_owned() } else { "c".to_owned() }])).collect());
    write(&log, list, &[labels(0..9), tags], 9);
    let by = at("tags.toml");
    fs::write(&by, "label = \"label\"\ncategorical = [{ column = \"tags\", separator = \"|\" }]\n").unwrap();
    let message = fail(&format!("inspect {} --schema {}", log.display(), by.display()));
    assert!(message.contains("log.parquet: row group 0, column tags, row 4: a value of its list holds |"), "{message}");
    // Its text has commas, whatever its names and values look like.
    let note = Column::Text((0..9).map(|n| Some(format!("a|b|{}", n % 2))).collect());
    write(&log, "optional int32 label; optional binary a|b|note (UTF8);", &[labels(0..9), note], 9);
    succeed(&format!("inspect {} --label label", log.display()));
    // Of a folder no label is named, and none is advised.
    fs::create_dir(at("numbers")).unwrap();
    let [price, user, item] = numbered(0..40);
    let columns = "optional int32 label; optional double price; optional int64 user; optional int32 item;";
    write(&at("numbers/a.parquet"), columns, &[labels(0..40), price, user, item], 40);
    for (name, advised) in [("numbers/a.parquet", true), ("numbers", false)] {
        let found = String::from_utf8(succeed(&format!("inspect {}", at(name).display())).stderr).unwrap();
        assert!(found.contains("taken for row numbers") && found.contains("--label COLUMN") == advised, "{found}");
    }
    let message = fail(&format!("inspect {} --label label", at("numbers").display()));
    assert!(message.contains("and single Parquet files"), "{message}");
}
