//! Separated text with named columns honours what Criteo's text honours: vocabularies, limits, malformed rows, a second
//! file of test samples, compression; and it has delimiters of any kind and weights.

use std::io::Write;
use std::path::Path;
use std::process::{Command, Output};

use octorec::base::config::{DataConfig, OnBadRow, Vocab};
use octorec::data::formats::csv::sniff;
use octorec::data::formats::{self, Files, Format};
use octorec::data::{Batch, Growth, OnUnseen, Opening, Source, Split, UnseenValues, Vocabulary};
use proptest::prelude::*;
use serde_json::Value;
use tempfile::TempDir;

/// A model for text, whatever its columns.
const MODEL: &str = "--set model.bottom=[0,8] --set model.top=[8,1] --set model.dim=8 --batch 32 --lr 0.1 --eval-every 0 \
                     --epochs 1 --threads 1";

fn octorec(line: &str) -> Output {
    Command::new(env!("CARGO_BIN_EXE_octorec")).args(line.split_whitespace()).output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// What a command that must succeed printed, and what it said beside.
fn run(line: &str) -> (String, String) {
    let output = octorec(line);
    assert!(output.status.success(), "octorec {line}\n{}", text(&output.stderr));
    (text(&output.stdout), text(&output.stderr))
}

fn fail(line: &str) -> String {
    let output = octorec(line);
    assert_eq!(output.status.code(), Some(1), "octorec {line}\n{}", text(&output.stderr));
    text(&output.stderr)
}

fn json(line: &str) -> Value {
    serde_json::from_str(&run(line).0).unwrap()
}

struct Folder(TempDir);

impl Folder {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    fn at(&self, name: &str) -> String {
        self.0.path().join(name).display().to_string()
    }

    fn file(&self, name: &str, content: impl AsRef<[u8]>) -> String {
        std::fs::write(self.0.path().join(name), content).unwrap();
        self.at(name)
    }
}

fn config(path: &str, schema: &str) -> DataConfig {
    DataConfig { path: path.to_owned(), schema: schema.to_owned(), test_fraction: 0.0, ..DataConfig::default() }
}

fn read(source: &dyn Source, split: Split, start: u64) -> Batch {
    let mut batch = Batch::new(source.schema());
    let mut reader = source.open(split, start).unwrap();
    while reader.read(&mut batch, 100).unwrap() == 100 {}
    batch.check(source.schema()).unwrap();
    assert_eq!(Some(start + batch.samples() as u64), source.samples(split));
    batch
}

fn open(config: &DataConfig) -> Files {
    Files::open(config, Opening::default()).unwrap()
}

fn message(config: &DataConfig) -> String {
    Files::open(config, Opening::default()).err().expect("the file should be refused").to_string()
}

fn ids(source: &dyn Source, split: Split) -> Vec<u32> {
    read(source, split, 0).bags[0].rows.clone()
}

const USERS: &str = "label = 'label'\n[[categorical]]\ncolumn = 'user'\n";

fn users(values: &[&str]) -> String {
    let rows = values.iter().map(|user| format!("1,{user}\n"));
    ["label,user\n".to_owned()].into_iter().chain(rows).collect()
}

/// The same log of one category as Criteo's text and as a table; `None`: a malformed row.
fn twins(folder: &Folder, name: &str, values: &[Option<u8>]) -> (String, String) {
    let (mut tsv, mut csv) = (String::new(), "label,C1\n".to_owned());
    for value in values {
        match value {
            // Values that differ in the same way in both.
            Some(value) => {
                tsv += &format!("1\t{}{value:x}{}\n", "3\t".repeat(13), "\t1".repeat(25));
                csv += &format!("1,{value:x}\n");
            }
            None => {
                tsv += "broken\n";
                csv += "broken\n";
            }
        }
    }
    (folder.file(&format!("{name}.tsv"), tsv), folder.file(&format!("{name}.csv"), csv))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]

    #[test]
    fn b2_text_is_numbered_as_criteos_text_is(
        values in proptest::collection::vec(proptest::option::weighted(0.9, 0..40u8), 1..60),
        tests in proptest::option::of(proptest::collection::vec(proptest::option::weighted(0.9, 0..60u8), 1..30)),
        fraction in 0..4u8,
    ) {
        let folder = Folder::new();
        let (tsv, csv) = twins(&folder, "all", &values);
        let schema = folder.file("schema.toml", USERS.replace("user", "C1"));
        for vocab in [Vocab::All, Vocab::Train] {
            let mut config = DataConfig {
                vocab, on_bad_row: OnBadRow::Skip, test_fraction: f64::from(fraction) / 4.0, ..config(&tsv, "")
            };
            let mut other = DataConfig { path: csv.clone(), schema: schema.clone(), ..config.clone() };
            if let Some(tests) = &tests {
                (config.test_path, other.test_path) = twins(&folder, "test", tests);
            }
            let (expected, found) = (Files::open_criteo(&config, &[], Opening::default()), Files::open(&other, Opening::default()));
            prop_assert_eq!(expected.is_ok(), found.is_ok());
            let (Ok(expected), Ok(found)) = (expected, found) else { continue };
            prop_assert_eq!(expected.schema().rows()[0], found.schema().rows()[0]);
            prop_assert_eq!(expected.skipped_rows(), found.skipped_rows());
            for split in [Split::Train, Split::Test] {
                prop_assert_eq!(ids(&expected, split), ids(&found, split), "{:?} {:?}", vocab, split);
            }
        }
    }
}

fn unseen_users(values: u64, left_out: u64, shared: u64) -> UnseenValues {
    UnseenValues { column: "user".to_owned(), values, left_out, shared }
}

/// Training that begins with a model adds the new values of its own samples: known ones keep their rows, and others
/// are as they would be of any data.
#[test]
fn a_vocabulary_grows_by_the_values_of_training_samples() {
    let folder = Folder::new();
    let (path, schema) = (folder.file("a.csv", users(&["a", "b", "c"])), folder.file("s.toml", USERS));
    let next = folder.file("b.csv", users(&["c", "d", "a", "e", "f", "a"]));
    // The same rows in two files, of which the second one has the first test sample.
    std::fs::create_dir(folder.at("parts")).unwrap();
    folder.file("parts/1.csv", users(&["c", "d", "a"]));
    folder.file("parts/2.csv", users(&["e", "f", "a"]));
    for (vocab, rows_cap, rows, train, test) in [
        (Vocab::All, 0, 5, [2, 3, 0, 4], vec![0]),
        (Vocab::Train, 0, 6, [2, 3, 0, 4], vec![5, 0]),
        // Numbers modulo the rows, of which the last is that of unseen values.
        (Vocab::All, 4, 4, [2, 3, 0, 0], vec![0]),
        (Vocab::Train, 5, 5, [2, 3, 0, 0], vec![4, 0]),
    ] {
        let unseen_row = vocab == Vocab::Train;
        let grown = [Growth { column: "user".to_owned(), kept: 3, absent: Some(1), new: 2, unseen_row }];
        let config = DataConfig { vocab, rows_cap, ..config(&path, &schema) };
        let known = open(&config).about().vocabulary.as_deref().cloned();
        let mut config = DataConfig { path: next.clone(), test_fraction: 1.0 / 3.0, ..config };
        for skips in [OnBadRow::Fail, OnBadRow::Skip] {
            config.on_bad_row = skips;
            let opening = Opening { known: known.clone(), begins: true, ..Opening::default() };
            let files = Files::open(&config, opening).unwrap();
            assert_eq!((&files.about().growth[..], files.schema().rows()), (&grown[..], vec![rows]));
            assert_eq!((ids(&files, Split::Train), ids(&files, Split::Test)), (train.to_vec(), test.clone()));
            let met = if vocab == Vocab::All { unseen_users(6, 1, 0) } else { unseen_users(6, 0, 1) };
            assert_eq!((files.unseen_values(), files.skipped_rows()), (vec![met], 0));
            let grown = files.about().vocabulary.as_deref().unwrap();
            let texts: Vec<&[u8]> = grown.texts()[0].iter().map(|text| &**text).collect();
            assert_eq!((texts, grown.unseen_row()), (vec![b"a", b"b", b"c", b"d", &b"e"[..]], unseen_row));
            // Whoever goes on with that run reads the same, as does one whose tests lie in a file of their own.
            let again = Files::open(&config, Opening { known: Some(grown.clone()), ..Opening::default() }).unwrap();
            assert!(again.about().growth.is_empty());
            assert_eq!((ids(&again, Split::Train), ids(&again, Split::Test)), (train.to_vec(), test.clone()));
            assert_eq!((again.samples(Split::Test), again.skipped_rows()), (Some(2), 0));
            let apart = DataConfig {
                path: folder.file("train.csv", users(&["c", "d", "a", "e"])),
                test_path: folder.file("test.csv", users(&["f", "a"])),
                ..config.clone()
            };
            let opening = Opening { known: known.clone(), begins: true, ..Opening::default() };
            let apart = Files::open(&apart, opening).unwrap();
            assert_eq!((ids(&apart, Split::Train), ids(&apart, Split::Test)), (train.to_vec(), test.clone()));
            assert_eq!((&apart.about().growth, apart.samples(Split::Test)), (&files.about().growth, Some(2)));
            let parts = DataConfig { path: folder.at("parts"), ..config.clone() };
            let opening = Opening { known: known.clone(), begins: true, ..Opening::default() };
            let begun = Files::open(&parts, opening).unwrap();
            let again = Files::open(&parts, Opening { known: Some(grown.clone()), ..Opening::default() }).unwrap();
            for files in [&begun, &again] {
                assert_eq!((ids(files, Split::Train), ids(files, Split::Test)), (train.to_vec(), test.clone()));
                assert_eq!((files.samples(Split::Test), files.skipped_rows()), (Some(2), 0));
            }
            assert_eq!((&begun.about().growth, again.about().growth.len()), (&files.about().growth, 0));
        }
    }
}

/// Rows with new values are left out where training goes on with other data, and those of a file of test samples are
/// not.
#[test]
fn test_samples_of_a_file_of_their_own_stay_whatever_training_samples_have() {
    let folder = Folder::new();
    let schema = folder.file("s.toml", USERS);
    let known =
        open(&config(&folder.file("a.csv", users(&["a", "b", "c"])), &schema)).about().vocabulary.as_deref().cloned();
    let config = DataConfig {
        test_path: folder.file("test.csv", users(&["f", "a"])),
        validation_fraction: 0.25,
        on_bad_row: OnBadRow::Skip,
        ..config(&folder.file("b.csv", users(&["a", "d", "b", "c", "a", "e"])), &schema)
    };
    let files = Files::open(&config, Opening { known, ..Opening::default() }).unwrap();
    assert_eq!(Split::ALL.map(|split| files.samples(split)), [3, 1, 2].map(Some));
    assert_eq!(Split::ALL.map(|split| ids(&files, split)), [vec![0, 1, 2], vec![0], vec![0]]);
    assert_eq!(files.skipped_rows(), 2);
}

#[test]
fn a_vocabulary_with_a_value_twice_is_refused() {
    let folder = Folder::new();
    let config = config(&folder.file("a.csv", users(&["a", "b", "c"])), &folder.file("s.toml", USERS));
    let values = ["a", "b", "a"].map(|value| value.as_bytes().into());
    let known = Vocabulary::of_texts(vec![values.to_vec()]);
    for begins in [false, true] {
        let opening = Opening { known: Some(known.clone()), begins, ..Opening::default() };
        let error = Files::open(&config, opening).err().expect("it should be refused").to_string();
        assert!(error.starts_with("vocabulary: column user: the value \"a\" stands in it twice"), "{error}");
    }
}

#[test]
fn b2_the_train_vocabulary_of_text_has_a_row_for_unseen_values() {
    let folder = Folder::new();
    let (path, schema) = (folder.file("a.csv", users(&["a", "b", "c", "a", "d", "b"])), folder.file("s.toml", USERS));
    let mut config = DataConfig { vocab: Vocab::Train, test_fraction: 0.5, ..config(&path, &schema) };
    let files = open(&config);
    assert_eq!(files.schema().rows(), [4]);
    assert_eq!((ids(&files, Split::Train), ids(&files, Split::Test)), (vec![0, 1, 2], vec![0, 3, 1]));
    let known = files.about().vocabulary.as_deref().unwrap().clone();
    assert!(known.unseen_row() && known.texts()[0].len() == 3);
    // Values of validation samples alone are unknown as well.
    let validated = open(&DataConfig { test_fraction: 0.25, validation_fraction: 0.25, ..config.clone() });
    let found = Split::ALL.map(|split| ids(&validated, split));
    assert_eq!(found, [vec![0, 1, 2], vec![0], vec![3, 1]]);
    // A model's vocabulary goes on giving the row, whether unseen values would be faults or left out.
    for unseen in [OnUnseen::Reject, OnUnseen::EmptyBag] {
        let new = DataConfig { path: folder.file("new.csv", users(&["d", "c"])), test_fraction: 0.0, ..config.clone() };
        let opening = Opening { known: Some(known.clone()), unseen, ..Opening::default() };
        let files = Files::open(&new, opening).unwrap();
        assert_eq!(ids(&files, Split::Train), [3, 2]);
        assert_eq!(files.unseen_values(), [unseen_users(2, 0, 1)]);
    }
    // Few rows: the last one is that of unseen values all the same.
    config.rows_cap = 3;
    let files = open(&config);
    assert_eq!(files.schema().rows(), [3]);
    assert_eq!((ids(&files, Split::Train), ids(&files, Split::Test)), (vec![0, 1, 0], vec![0, 2, 1]));
    config.vocab = Vocab::All;
    assert_eq!(open(&config).schema().rows(), [3]);
    assert_eq!(ids(&open(&config), Split::Train), [0, 1, 2]);
    assert_eq!(ids(&open(&config), Split::Test), [0, 0, 1], "number 3 modulo 3");
}

#[test]
fn b2_hashed_text_needs_a_number_of_rows() {
    let folder = Folder::new();
    let path = folder.file("a.csv", users(&["a", "b", "c", "a"]));
    let schema = folder.file("s.toml", USERS);
    let mut config = DataConfig { vocab: Vocab::Hash, ..config(&path, &schema) };
    let told = message(&config);
    assert_eq!(
        told,
        "data.vocab = \"hash\": column user needs a number of rows: set data.rows_cap (--rows-cap), or give the column rows \
         in the schema"
    );
    config.rows_cap = 7;
    let files = open(&config);
    assert!(files.schema().rows() == [7] && files.about().vocabulary.is_none() && !files.about().numbers_own_values);
    // The other remedy gives the same rows.
    config = DataConfig { rows_cap: 0, schema: folder.file("rows.toml", format!("{USERS}rows = 7\n")), ..config };
    assert_eq!(ids(&open(&config), Split::Train), ids(&files, Split::Train));
}

const WIDE: &str = "label = 'label'\n[[dense]]\ncolumn = 'price'\n[[categorical]]\ncolumn = 'user'\n[[categorical]]\n\
                    column = 'age'\nbuckets = [18.0]\n[[categorical]]\ncolumn = 'tags'\nseparator = '|'\nweights = 'shares'\n";
const HEADER: &str = "label,price,user,age,tags,shares\n";

#[test]
fn b2_malformed_rows_of_text_are_named_or_left_out() {
    let folder = Folder::new();
    let schema = folder.file("s.toml", WIDE);
    let good = |user: &str| format!("1,2.5,{user},20,x|y,1|0.5\n");
    let long = format!("1,2.5,{},20,x,1", "u".repeat(2 << 20));
    let broken = [
        ("1,2.5,u,20,x", "expected 6 columns as in the header, found 5"),
        ("1,2.5,u,20,x,1,", "expected 6 columns as in the header, found 7"),
        (
            "2,2.5,u,20,x,1",
            "column label: the label 0 or 1 is expected, found \"2\": say in the schema which rows are positive (label = \
             \"label >= N\", N the least number of a positive row), or mend the line if it alone is wrong",
        ),
        (
            "1,two,u,20,x,1",
            "column price: a finite number is expected, found \"two\": does it stand for a missing value (then say missing = \
             [\"two\"] in the schema)?",
        ),
        ("1,1e300,u,20,x,1", "column price: a finite number is expected, found \"1e300\""),
        (
            "1,2.5,u,old,x,1",
            "column age: a number is expected, found \"old\": does it stand for a missing value (then say missing = \
             [\"old\"] in the schema)?",
        ),
        (
            "1,2.5,u,99999999999999999999999999999999x,x,1",
            "column age: a number is expected, found \"99999999999999999999999999999999...\"",
        ),
        ("1,2.5,u,\u{a0},x,1", "column age: a number is expected, found \"\\xc2\\xa0\""),
        (
            "1,2.5,u,20,x|z,1",
            "column tags has 2 values, its column of weights shares has 1: one weight a value is expected",
        ),
        ("1,2.5,u,20,x,inf", "column shares: a finite number is expected as a weight, found \"inf\""),
        ("1,2.5,\"u,20,x,1", "a quotation mark opens a field that nothing closes"),
        (
            &long,
            "the line is longer than 1.0 MiB: allow longer lines with --max-line, or make line feeds of CRs where these \
             alone end lines (`tr '\\r' '\\n' < FILE > NEW`, FILE unpacked), or is this no text file?",
        ),
    ];
    for (line, reason) in broken {
        let path = folder.file("a.csv", format!("{HEADER}{}{line}\n{}", good("a"), good("b")));
        let mut config = DataConfig { max_line: 1 << 20, ..config(&path, &schema) };
        assert_eq!(message(&config), format!("{path}: line 3: {reason}"));
        config.on_bad_row = OnBadRow::Skip;
        let files = open(&config);
        assert_eq!((files.skipped_rows(), ids(&files, Split::Train)), (1, vec![0, 1]), "{reason}");
        read(&files, Split::Train, 0);
        assert_eq!(files.skipped_rows(), 1, "a row counts once, however often it is read");
    }
    let lines: Vec<&str> = broken.iter().map(|(line, _)| *line).collect();
    let path = folder.file("a.csv", format!("{HEADER}{}\n", lines.join("\n")));
    let told = message(&DataConfig { on_bad_row: OnBadRow::Skip, max_line: 1 << 20, ..config(&path, &schema) });
    assert!(told.contains("the file has no usable row: all 12 are malformed"), "{told}");
    // A value that the model's vocabulary lacks is a fault of its row, too.
    let known = open(&config(&folder.file("a.csv", HEADER.to_owned() + &good("a")), &schema))
        .about()
        .vocabulary
        .as_deref()
        .cloned();
    let path = folder.file("b.csv", HEADER.to_owned() + &good("b") + &good("a"));
    let mut config = config(&path, &schema);
    let opened = |config: &DataConfig| Files::open(config, Opening { known: known.clone(), ..Opening::default() });
    let told = opened(&config).err().unwrap().to_string();
    assert!(
        told.starts_with(&format!("{path}: line 2: column user: the value \"b\" is not in the vocabulary")),
        "{told}"
    );
    config.on_bad_row = OnBadRow::Skip;
    let files = opened(&config).unwrap();
    assert_eq!((ids(&files, Split::Train), files.skipped_rows()), (vec![0], 1));
}

#[test]
fn b2_samples_of_text_are_numbered_over_good_rows() {
    let folder = Folder::new();
    let mut content = "label,user\n".to_owned();
    for n in 0..20_000 {
        content += &format!("{},u{n}\n", n % 2);
        if n % 1000 == 0 {
            content += "1,\"open\n";
        }
        if n % 1500 == 0 {
            content += "\n1\n";
        }
    }
    content += "1,\"open\n";
    let schema = folder.file("s.toml", USERS);
    let mut packed = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    packed.write_all(content.as_bytes()).unwrap();
    let crlf = content.replace('\n', "\r\n");
    let frames = zstd::encode_all(content.as_bytes(), 1).unwrap();
    let mut expected = None;
    for (name, bytes) in [
        ("a.csv", content.clone().into_bytes()),
        ("a.csv.gz", packed.finish().unwrap()),
        ("a.csv.zst", frames),
        ("crlf.csv", crlf.clone().into_bytes()),
        // As a program writes it that turns the LF of CRLF into CRLF.
        ("crcrlf.csv", crlf.replace('\n', "\r\n").into_bytes()),
    ] {
        let path = folder.file(name, bytes);
        let config = DataConfig { on_bad_row: OnBadRow::Skip, test_fraction: 0.25, ..config(&path, &schema) };
        let files = open(&config);
        // 21 open quotation marks, which close each other across rows, and 14 short rows.
        assert_eq!(files.skipped_rows(), 35, "{name}");
        let counts = (files.samples(Split::Train), files.samples(Split::Test), files.skipped_rows());
        let all = read(&files, Split::Train, 0);
        for start in [1, 4095, 4096, 5000, 8193] {
            let later = read(&files, Split::Train, start);
            assert_eq!(later.bags[0].rows, all.bags[0].rows[start as usize..], "{name} {start}");
        }
        assert_eq!(read(&files, Split::Test, 7).bags[0].rows, ids(&files, Split::Test)[7..]);
        assert_eq!(&(counts, all), expected.get_or_insert((counts, read(&files, Split::Train, 0))), "{name}");
    }
}

/// Rows of a log that can be learned; `user` and `genre` decide.
fn log(rows: std::ops::Range<u32>) -> String {
    let row = |n: u32| {
        let (user, genre) = (n * 13 % 37, n * 7 % 11);
        format!("{},u{user},g{genre}|g{},{}\n", u32::from((user + genre) % 3 == 0), n % 5, n % 9)
    };
    rows.map(row).collect()
}

const LOG_HEADER: &str = "label,user,genres,age\n";
const LOG_SCHEMA: &str = "label = 'label'\n[[dense]]\ncolumn = 'age'\n[[categorical]]\ncolumn = 'user'\n[[categorical]]\n\
                          column = 'genres'\nseparator = '|'\n";

#[test]
fn b2_the_remedies_for_malformed_rows_work_in_every_command() {
    let folder = Folder::new();
    let schema = folder.file("s.toml", LOG_SCHEMA);
    let bad = folder.file("bad.csv", LOG_HEADER.to_owned() + &log(0..300) + "1,u1\n" + &log(300..600));
    let train = format!("train {MODEL} --data {bad} --schema {schema}");
    let told = fail(&train);
    assert!(
        told.contains(
            "bad.csv: line 302: expected 4 columns as in the header, found 2: mend the line, or leave such rows out \
                       with --on-bad-row skip"
        ),
        "{told}"
    );
    let run_at = folder.at("run");
    // What stands in a row is no remedy.
    let odd = folder.file("odd.csv", LOG_HEADER.to_owned() + &log(0..300) + "1,u1,a,its header --max-line\n");
    let told = fail(&train.replace(&bad, &odd));
    assert!(told.contains("found \"its header --max-line\""), "{told}");
    assert!(told.contains("missing value (then say missing = [\"its header --max-line\"]"), "{told}");
    assert!(told.contains("in the schema)? Mend the line, or leave such rows out with --on-bad-row skip"), "{told}");
    let (_, said) = run(&format!("{train} --on-bad-row skip --vocab train --out {run_at}"));
    assert!(said.contains("540 training and 60 test samples") && said.contains("left out 1 malformed row\n"), "{said}");
    // Evaluation does as training did, unless it is told otherwise.
    let eval = format!("eval --checkpoint {run_at} --data {bad}");
    let (found, said) = run(&format!("{eval} --json"));
    let found: Value = serde_json::from_str(&found).unwrap();
    assert_eq!((&found["samples"], &found["skipped_rows"]), (&600.into(), &1.into()));
    assert!(said.contains("left out 1 malformed row\n"), "{said}");
    let told = fail(&format!("{eval} --on-bad-row fail"));
    assert!(told.contains("line 302") && told.contains("with --on-bad-row skip"), "{told}");
    // A prediction stands on the line of its row, or there is none.
    let told = fail(&format!("predict --checkpoint {run_at} --data {bad}"));
    assert!(told.contains("line 302") && told.contains("a probability is written for every row"), "{told}");
    let good = folder.file("good.csv", LOG_HEADER.to_owned() + &log(0..600));
    assert_eq!(run(&format!("predict --checkpoint {run_at} --data {good}")).0.lines().count(), 600);
    // convert names preprocess, which leaves them out.
    let told = fail(&format!("convert {bad} {} --schema {schema}", folder.at("blocks")));
    assert!(told.contains("line 302") && told.contains("`octorec preprocess` and its --on-bad-row skip"), "{told}");
    let preprocess = format!("preprocess csv --in {bad} --schema {schema} --out {}", folder.at("data"));
    let told = fail(&preprocess);
    assert!(
        told.contains(
            "line 302: expected 4 columns as in the header, found 2: mend the line, or leave such rows out with"
        ),
        "{told}"
    );
    let (_, said) = run(&format!("{preprocess} --on-bad-row skip"));
    assert!(said.contains("rows: 600 (600 train)") && said.contains("left out 1 malformed row\n"), "{said}");
    // What has nothing to do with text refuses the keys.
    for flag in ["--on-bad-row skip", "--vocab train"] {
        let told = fail(&format!("train {MODEL} --data {} {flag}", folder.at("data")));
        assert!(told.contains("has an effect only with text"), "{told}");
    }
}

#[test]
fn b13_test_data_of_text_has_the_training_files_numbers() {
    let folder = Folder::new();
    let schema = folder.file("s.toml", USERS);
    let path = folder.file("train.csv", users(&["a", "b", "c"]));
    // Its columns may stand in another order.
    let test_path = folder.file("test.csv", "user,label\nc,1\nz,0\na,1\n");
    let mut config = DataConfig { test_path, ..config(&path, &schema) };
    for (vocab, rows, expected) in [(Vocab::All, 4, [2, 3, 0]), (Vocab::Train, 4, [2, 3, 0])] {
        config.vocab = vocab;
        let files = open(&config);
        assert_eq!((files.schema().rows(), ids(&files, Split::Train)), (vec![rows], vec![0, 1, 2]));
        assert_eq!(ids(&files, Split::Test), expected);
        assert_eq!(
            files.about().vocabulary.as_deref().unwrap().texts()[0].len() as u64,
            rows - u64::from(vocab == Vocab::Train)
        );
        // The run's vocabulary maps both files again as they were.
        let opening = Opening { known: files.about().vocabulary.as_deref().cloned(), ..Opening::default() };
        let again = Files::open(&config, opening).unwrap();
        assert_eq!((ids(&again, Split::Train), ids(&again, Split::Test)), (vec![0, 1, 2], expected.to_vec()));
    }
    // Integers in one file and fractions in the other are one column of floats.
    let prices = folder.file("p.toml", format!("{USERS}[[dense]]\ncolumn = 'price'\n"));
    let config = DataConfig {
        path: folder.file("p.csv", "label,user,price\n1,a,3\n0,b,\n"),
        test_path: folder.file("q.csv", "label,user,price\n1,a,0.5\n"),
        schema: prices,
        ..config
    };
    let files = open(&config);
    assert_eq!((read(&files, Split::Train, 0).dense, read(&files, Split::Test, 0).dense), (vec![3.0, 0.0], vec![0.5]));

    // Through the command: the same model, whether the test samples are in a file of their own or the last part of one.
    let schema = folder.file("log.toml", LOG_SCHEMA);
    let whole = folder.file("whole.csv", LOG_HEADER.to_owned() + &log(0..600));
    let (train, test) = (
        folder.file("train.csv", LOG_HEADER.to_owned() + &log(0..450)),
        folder.file("test.csv", LOG_HEADER.to_owned() + &log(450..600)),
    );
    let train_at = |out: &str, data: &str| {
        run(&format!("train {MODEL} --schema {schema} {data} --out {}", folder.at(out)));
        json(&format!("eval --checkpoint {} --json", folder.at(out)))
    };
    for vocab in ["all", "train"] {
        let one = train_at(&format!("one-{vocab}"), &format!("--vocab {vocab} --data {whole} --test-fraction 0.25"));
        let two = train_at(&format!("two-{vocab}"), &format!("--vocab {vocab} --data {train} --test-data {test}"));
        assert_eq!(one["samples"], 150);
        assert_eq!(one, two, "{vocab}");
    }
}

/// The log with shares of its genres, in three forms.
fn weighted(form: usize, rows: std::ops::Range<u32>, weight: impl Fn(u32, u32) -> f32) -> String {
    let row = |n: u32| {
        let (user, genre, count) = (n * 13 % 37, n * 7 % 11, n % 4);
        let values: Vec<String> = (0..count).map(|k| format!("g{}", (genre + k) % 11)).collect();
        let weights: Vec<f32> = (0..count).map(|k| weight(n, k)).collect();
        let label = u32::from((user + genre) % 3 == 0);
        let genres = match form {
            0 => format!("{}\t{}", values.join("|"), weights.iter().map(f32::to_string).collect::<Vec<_>>().join("|")),
            1 => values.iter().zip(&weights).map(|(v, w)| format!("{v}:{w}")).collect::<Vec<_>>().join(" ") + "\t",
            _ => values.join("|") + "\t",
        };
        format!("{label}\tu{user}\t{genres}\n")
    };
    "label\tuser\tgenres\tshares\n".to_owned() + &rows.map(row).collect::<String>()
}

#[test]
fn b14_look_ups_of_text_have_weights_in_every_command() {
    let folder = Folder::new();
    let schema_of = |name: &str, keys: &str| {
        let text = "label = 'label'\ndelimiter = \"\\t\"\n[[categorical]]\ncolumn = 'user'\n[[categorical]]\ncolumn = 'genres'\n";
        folder.file(name, format!("{text}{keys}"))
    };
    let beside = schema_of("beside.toml", "separator = '|'\nweights = 'shares'\n");
    let behind = schema_of("behind.toml", "separator = ' '\nweight_separator = ':'\n");
    let plain = schema_of("plain.toml", "separator = '|'\n");
    let model = MODEL.replace("--epochs 1", "--epochs 2");
    let trained = |name: &str, data: &str| -> (Vec<String>, Value) {
        let (out, trace) = (folder.at(&format!("{name}-run")), folder.at(&format!("{name}-losses")));
        run(&format!("train {model} {data} --trace-loss {trace} --out {out}"));
        let losses = std::fs::read_to_string(trace).unwrap();
        let last = |line: &str| line.split_whitespace().last().unwrap().to_owned();
        let mut scores = json(&format!("eval --checkpoint {out} --json"));
        // Row numbers of blocks have no values that a vocabulary could lack.
        scores.as_object_mut().unwrap().remove("unknown_values_by_column");
        (losses.lines().map(last).collect(), scores)
    };
    let varied = |n: u32, k: u32| 1.5 - ((n * 7919 + k * 104_729) % 1009) as f32 / 613.0;
    let one = |_: u32, _: u32| 1.0;
    let data =
        |name: &str, form: usize, weight: &dyn Fn(u32, u32) -> f32| folder.file(name, weighted(form, 0..600, weight));
    let (a, b) = (data("beside.tsv", 0, &varied), data("behind.tsv", 1, &varied));
    let expected = trained("beside", &format!("--data {a} --schema {beside}"));
    assert_eq!(expected.0.len(), 34);
    assert_eq!(trained("behind", &format!("--data {b} --schema {behind}")), expected, "one meaning, two forms");
    // A weight of 1 is none, and others matter.
    let ones = trained("ones", &format!("--data {} --schema {beside}", data("ones.tsv", 0, &one)));
    let none = trained("none", &format!("--data {} --schema {plain}", data("none.tsv", 2, &one)));
    assert!(ones == none && ones.0 != expected.0);
    // Through blocks, converted or preprocessed; preprocessed in the order of the log, and shuffled as a whole.
    run(&format!("convert {a} {} --schema {beside}", folder.at("converted")));
    for (schema, path, name) in [(&beside, &a, "p-beside"), (&behind, &b, "p-behind")] {
        run(&format!("preprocess csv --in {path} --schema {schema} --out {}", folder.at(name)));
    }
    for name in ["converted", "p-beside", "p-behind"] {
        assert_eq!(trained(name, &format!("--data {}", folder.at(name))), expected, "{name}");
    }
    run(&format!("preprocess csv --in {a} --schema {beside} --shuffle total --out {}", folder.at("shuffled")));
    let sums = |name: &str| {
        let dataset = formats::open(Path::new(&folder.at(name)), None, None).unwrap();
        let mut sums: Vec<String> = Vec::new();
        formats::scan(&*dataset.members[0].table, 0, 600, |samples| {
            let bag = &samples.lookups[1];
            for n in 0..samples.len() {
                let span = bag.span(&(n..n + 1), 0);
                sums.push(format!("{:?} {:?}", &bag.rows[span.clone()], &bag.weights[span]));
            }
            Ok(())
        })
        .unwrap();
        sums
    };
    let (mut ordered, mut shuffled) = (sums("p-beside"), sums("shuffled"));
    assert!(ordered != shuffled);
    ordered.sort();
    shuffled.sort();
    assert_eq!(ordered, shuffled, "each look-up keeps its weight");
    // Prediction reads them, too.
    let run_at = folder.at("beside-run");
    let predicted = run(&format!("predict --checkpoint {run_at} --data {a}")).0;
    let halved = data("half.tsv", 0, &|n, k| varied(n, k) / 2.0);
    assert_ne!(run(&format!("predict --checkpoint {run_at} --data {halved}")).0, predicted);
    // What is wrong with weights names the line in both readers.
    let broken = folder.file("broken.tsv", weighted(0, 0..5, varied) + "1\tu1\tg1|g2\t0.5\n");
    for line in [
        format!("train {model} --data {broken} --schema {beside}"),
        format!("preprocess csv --in {broken} --schema {beside} --out {}", folder.at("no")),
    ] {
        let told = fail(&line);
        assert!(
            told.contains("broken.tsv: line 7: column genres has 2 values, its column of weights shares has 1"),
            "{told}"
        );
    }
    for (keys, reason) in [
        ("weights = 'shares'\nweight_separator = ':'\n", "weights and weight_separator exclude each other"),
        ("weights = 'genres'\n", "its weights stand in a column of their own"),
        ("separator = ':'\nweight_separator = ':'\n", "must tell a weight from the next value"),
        ("separator = '|'\nweights = 'share'\n", "has no column share (did you mean shares?)"),
    ] {
        let told = fail(&format!("train {model} --data {a} --schema {}", schema_of("wrong.toml", keys)));
        assert!(told.contains(reason), "{told}");
    }
}

#[test]
fn b11_text_with_a_header_is_told_from_criteos_whatever_separates_it() {
    let folder = Folder::new();
    let csv = LOG_HEADER.to_owned() + &log(0..200);
    for (name, delimiter) in
        [("a.tsv", "\t"), ("a.txt", ";"), ("a.psv", "|"), ("a", ","), ("a.csv", ";"), ("a.ssv", " ")]
    {
        // Lists need a separator of their own.
        let content = csv.replace('|', "+").replace(',', delimiter);
        let path = folder.file(name, &content);
        assert_eq!(Format::detect(Path::new(&path)), Some(Format::Csv), "{name}");
        let header = sniff::header(Path::new(&path)).unwrap();
        assert_eq!((header.delimiter.to_string().as_str(), header.names.len()), (delimiter, 4));
        // What train says is followed.
        let told = fail(&format!("train {MODEL} --data {path}"));
        let remedy = format!("octorec inspect {path} --write-schema FILE");
        assert!(told.contains(&remedy) && told.contains("--schema FILE"), "{told}");
        let schema = folder.at(&format!("{name}.toml"));
        let (found, _) = run(&format!("inspect {path} --write-schema {schema}"));
        assert!(found.contains("csv: 200 rows"), "{found}");
        run(&format!("train {MODEL} --data {path} --schema {schema}"));
    }
    // Criteo's own text is no table with a header, with labels or without.
    let criteo = format!("1\t{}{}\n", "3\t".repeat(13), vec!["0000000a"; 26].join("\t"));
    for text in [criteo.clone(), criteo[2..].to_owned()] {
        assert_eq!(Format::detect(Path::new(&folder.file("day_0", text.repeat(3)))), None);
    }
    // A run on Criteo's layout cannot be judged by such a file, and says so without naming flags that eval lacks.
    let day = folder.file("day_0", criteo.repeat(20) + &criteo.replacen('1', "0", 1).repeat(20));
    run(&format!("train {MODEL} --data {day} --out {}", folder.at("run")));
    let told = fail(&format!("eval --checkpoint {} --data {}", folder.at("run"), folder.at("a.tsv")));
    assert!(told.contains("is text with named columns, but this run was trained without a schema"), "{told}");
    // A schema for what needs none.
    run(&format!("convert {} {} --schema {}", folder.at("a.tsv"), folder.at("blocks"), folder.at("a.tsv.toml")));
    let told = fail(&format!("train {MODEL} --data {} --schema {}", folder.at("blocks"), folder.at("a.tsv.toml")));
    assert!(told.contains("is of format octorec, which needs no schema"), "{told}");
}

#[test]
fn b11_recboles_files_say_what_their_columns_are() {
    let folder = Folder::new();
    let mut content = "user_id:token\titem_id:token\tgenres:token_seq\tvector:float_seq\trating:float\n".to_owned();
    for n in 0..300u32 {
        content +=
            &format!("{}\t{}\ta{} b{}\t0.5 1.5\t{}\n", n % 37, n * 7 % 90, n % 3, n % 5, 1 + (n % 37 + n * 7 % 90) % 5);
    }
    let path = folder.file("ml-100k.inter", content);
    let schema = folder.at("schema.toml");
    run(&format!("inspect {path} --write-schema {schema}"));
    let found = formats::csv::TextSchema::read(Path::new(&schema)).unwrap();
    assert_eq!(found.delimiter, '\t');
    assert!(found.label.starts_with("rating:float >="), "{}", found.label);
    let columns: Vec<_> = found.categorical.iter().map(|column| (column.name(), column.separator.as_deref())).collect();
    assert_eq!(
        columns,
        [("user_id", None), ("item_id", None), ("genres", Some(" "))],
        "tokens, though they are numbers"
    );
    let trained = json(&format!("train {MODEL} --data {path} --schema {schema} --json"));
    assert_eq!(trained["samples"], 270);
}

#[test]
fn a_look_at_the_first_rows_of_text_ends_with_them() {
    let folder = Folder::new();
    let (most, broken) = (log(0..400), "1,u1,g1\n");
    let path = folder.file("log.csv", LOG_HEADER.to_owned() + &most + broken);
    let told = fail(&format!("inspect {path}"));
    assert!(told.contains("log.csv: line 402: expected 4 columns as in the header, found 3"), "{told}");
    let found = json(&format!("inspect {path} --rows 400 --json"));
    assert_eq!((&found["rows"], &found["rows_total"]), (&400.into(), &Value::Null));
    let whole = folder.file("whole.csv", LOG_HEADER.to_owned() + &most);
    assert_eq!(json(&format!("inspect {whole} --rows 400 --json"))["rows_total"], 400);
    let long = folder.file("long.csv", format!("{LOG_HEADER}{most}1,{},g1,1\n", "u".repeat(2 << 20)));
    let told = fail(&format!("inspect {long} --max-line 1MiB"));
    assert!(told.contains("long.csv: line 402: ") && told.contains("longer"), "{told}");
}

#[test]
fn text_that_gets_other_rows_behind_the_pass_is_not_read() {
    let folder = Folder::new();
    let (content, schema) = (LOG_HEADER.to_owned() + &log(0..100), folder.file("s.toml", LOG_SCHEMA));
    let path = folder.file("log.csv", &content);
    let files = open(&config(&path, &schema));
    assert_eq!(read(&files, Split::Train, 0).samples(), 100);
    // As many bytes, in another order.
    let (header, rows) = (LOG_HEADER, content.strip_prefix(LOG_HEADER).unwrap());
    let (first, rest) = rows.split_once('\n').unwrap();
    folder.file("log.csv", format!("{header}{rest}{first}\n"));
    let changed = std::fs::File::options().write(true).open(&path).unwrap();
    changed.set_modified(std::time::UNIX_EPOCH).unwrap();
    let read = files.open(Split::Train, 0).and_then(|mut reader| reader.read(&mut Batch::new(files.schema()), 9));
    let told = read.unwrap_err().to_string();
    assert!(told.contains("log.csv: the file has changed since it was opened"), "{told}");
}

#[test]
fn d_messages_about_text_say_what_to_do() {
    let folder = Folder::new();
    let schema = folder.file("s.toml", LOG_SCHEMA);
    let good = folder.file("good.csv", LOG_HEADER.to_owned() + &log(0..100));
    run(&format!("train {MODEL} --data {good} --schema {schema} --out {}", folder.at("run")));
    // `eval --data` of nothing.
    for (content, reason) in [
        (LOG_HEADER, "has no rows behind its header: name a file with data"),
        ("", "the file is empty: a header line with the names of its columns is expected"),
    ] {
        let empty = folder.file("empty.csv", content);
        let told = fail(&format!("eval --checkpoint {} --data {empty}", folder.at("run")));
        assert!(told.contains(&format!("empty.csv: {reason}")), "{told}");
    }
    // A folder without a data set: no flag of another command's.
    std::fs::create_dir(folder.at("nothing")).unwrap();
    let told = fail(&format!("train {MODEL} --data {}", folder.at("nothing")));
    assert!(told.contains("its files tell no format") && !told.contains("--format"), "{told}");
    let told = fail(&format!("convert {} {}", folder.at("nothing"), folder.at("out")));
    assert!(told.contains("--from-format of convert"), "{told}");
    // A table without a header, taken for Criteo's: its columns can be listed.
    let listed = folder.file("listed.csv.txt", log(0..100));
    let told = fail(&format!("train {MODEL} --data {listed}"));
    assert!(told.contains("line 1") && told.contains("--schema FILE, which lists its columns"), "{told}");
    let schema = folder.file("listed.toml", format!("columns = ['label', 'user', 'genres', 'age']\n{LOG_SCHEMA}"));
    let train = format!("train {MODEL} --data {listed} --schema {schema} --out {}", folder.at("listed-run"));
    assert!(run(&train).1.contains("90 training and 10 test samples"));
    // For prediction the label may be blank, or its column missing, with a header and without.
    let predict = |of: &str, name: &str, content: String| {
        let data = folder.file(name, content);
        run(&format!("predict --checkpoint {} --data {data}", folder.at(of))).0
    };
    let expected = predict("listed-run", "listed-again.txt", log(0..100));
    assert_eq!(expected.lines().count(), 100);
    let edit = |edit: fn(&str) -> String| log(0..100).lines().map(|line| edit(line) + "\n").collect::<String>();
    assert_eq!(predict("listed-run", "blank.txt", edit(|line| line[1..].to_owned())), expected);
    assert_eq!(predict("listed-run", "bare.txt", edit(|line| line[2..].to_owned())), expected);
    let labelled = predict("run", "labelled.csv", LOG_HEADER.to_owned() + &log(0..100));
    assert_eq!(predict("run", "blank.csv", LOG_HEADER.to_owned() + &edit(|line| line[1..].to_owned())), labelled);
    // Words for yes and no stand for values, not for missing ones.
    let truths: String =
        (0..100).map(|n| format!("{},{},u{}\n", n % 2, if n % 3 == 0 { "TRUE" } else { "FALSE" }, n % 5)).collect();
    let schema =
        folder.file("truths.toml", "label = 'label'\n[[dense]]\ncolumn = 'seen'\n[[categorical]]\ncolumn = 'user'\n");
    let told = message(&config(&folder.file("truths.csv", format!("label,seen,user\n{truths}")), &schema));
    let expected =
        "column seen: a finite number is expected, found \"TRUE\": is it a category (then [[categorical]] reads it)?";
    assert!(told.contains(expected), "{told}");
    // What is copied from a message is one word to a shell, whatever the name has.
    let told = fail(&format!(
        "train {MODEL} --source files --data {}",
        folder.file("it's.csv", LOG_HEADER.to_owned() + &log(0..9))
    ));
    assert!(told.contains("`octorec inspect '") && told.contains(r"it'\''s.csv' --write-schema FILE`"), "{told}");
    // A question is not followed by a colon.
    let prose = folder.file("prose.txt", "no tab\n");
    let told = fail(&format!("preprocess criteo-kaggle --in {prose} --out {}", folder.at("p")));
    assert!(told.contains("is the file separated by tabs? Mend the line, or leave such rows out"), "{told}");
}

#[test]
fn columns_of_one_name_are_refused_with_their_numbers() {
    let folder = Folder::new();
    let path = folder.file("a.csv", "label,user,age,user\n1,a,3,b\n");
    let told = message(&config(&path, &folder.file("s.toml", USERS)));
    assert_eq!(
        told,
        format!("{path}: its header has two columns user, numbers 2 and 4: give one of them another name")
    );
    let told = message(&config(
        &path,
        &folder.file("l.toml", USERS.replace("'label'", "'user'").replace("column = 'user'", "column = 'age'")),
    ));
    assert!(told.contains("two columns user, numbers 2 and 4"), "{told}");
    let listed = format!("columns = ['user', 'user', 'label']\n{USERS}");
    let told = message(&config(&path, &folder.file("c.toml", listed)));
    assert!(told.contains("the schema lists two columns user, numbers 1 and 2"), "{told}");
    // Those that nobody reads may be called as they like.
    let path = folder.file("b.csv", "label,user,x,x\n1,a,3,b\n0,b,4,c\n");
    assert_eq!(open(&config(&path, &folder.at("s.toml"))).samples(Split::Train), Some(2));
    let told = fail(&format!("inspect {path}"));
    assert!(told.contains("two columns x, numbers 3 and 4"), "{told}");
}

#[test]
fn blanks_around_the_names_of_columns_need_not_be_said() {
    let folder = Folder::new();
    let schema = |column: &str| {
        let text = format!("label = 'label'\n[[dense]]\ncolumn = '{column}'\n[[categorical]]\ncolumn = 'user'\n");
        folder.file("s.toml", text)
    };
    let found = |header: &str, column: &str| {
        let rows = "1,b,3,7\n0,a,4,8\n1,b,5,9\n";
        let config = config(&folder.file("a.csv", format!("{header}\n{rows}")), &schema(column));
        let batch = read(&open(&config), Split::Train, 0);
        (batch.labels, batch.dense, batch.bags[0].rows.clone())
    };
    let expected = found("label,user,age,x", "age");
    assert_eq!(expected.2, [0, 1, 0]);
    for (header, column) in [
        (" label, user , age,x", "age"),
        ("label,user,\u{a0}age\t,x", "age"),
        ("label,user,age,x", " age"),
        ("label, user, age ,x", " age"),
        // One that is called so exactly comes before others.
        ("label,user,age, age", "age"),
        ("label,user, age,age", " age"),
    ] {
        assert_eq!(found(header, column), expected, "{header:?} {column:?}");
    }
    assert_ne!(found("label,user, age,age", "age"), expected);
    let told = message(&config(&folder.file("a.csv", "label,user, age,age \n1,b,3,7\n"), &schema("age")));
    assert!(told.contains("its header has two columns age, numbers 3 and 4: give one of them another name"), "{told}");
    // Two columns that blanks alone tell apart are two: one of them is not read for both.
    let two = "label = 'label'\ndense = [{ column = 'age' }]\ncategorical = [{ column = 'a' }, { column = 'a ' }]\n";
    let two = folder.file("two.toml", two);
    let rows = |both: bool| -> String {
        let other = |n: u32| if both { format!(",v{}", n % 3) } else { String::new() };
        (0..64u32).map(|n| format!("{},{},u{}{}\n", n % 2, n % 9, n % 5, other(n))).collect()
    };
    let both = folder.file("both.csv", format!("label,age,a,a \n{}", rows(true)));
    run(&format!("train {MODEL} --data {both} --schema {two} --out {}", folder.at("run")));
    let one = folder.file("one.csv", format!("label,age,a\n{}", rows(false)));
    let expected = "has one column, number 3, for \"a\" and \"a \", which the schema reads as two";
    let told = message(&config(&one, &two));
    assert!(told.contains(expected), "{told}");
    let told = fail(&format!("predict --checkpoint {} --data {one}", folder.at("run")));
    assert!(told.contains(expected), "{told}");
    // Data that are read but once, too.
    let path = folder.file("a.csv", "label, user , age\n1,b,3\n0,a,4\n");
    run(&format!("preprocess csv --in {path} --schema {} --out {}", schema("age"), folder.at("blocks")));
}

#[test]
fn lines_without_a_header_are_told_as_what_they_are() {
    let folder = Folder::new();
    let listed = folder.file("listed.toml", format!("columns = ['user', 'label']\n{USERS}"));
    for (lines, told) in [
        ("{\"user\": \"a\", \"label\": 1}\n{\"user\": \"b\", \"label\": 0}\n", "holds objects of JSON, a line each"),
        ("{\"user\":\"a\",\"label\":1}\n{\"user\":\"b\",\"label\":0}\n", "holds objects of JSON, a line each"),
        ("{\"user\": \"a\", \"age\": 3, \"label\": 1}\n", "holds objects of JSON, a line each"),
        ("a,1\rb,0\r", "has lines that end with CR alone"),
    ] {
        let message = message(&config(&folder.file("rows.txt", lines), &listed));
        assert!(message.contains(told), "{lines:?}: {message}");
    }
    // Fields in quotes may be like that.
    for lines in ["\"{\"\"a\"\": 1}\",1\nb,0\n", "\"a\rb\",1\nb,0\n"] {
        assert_eq!(ids(&open(&config(&folder.file("rows.txt", lines), &listed)), Split::Train), [0, 1], "{lines:?}");
    }
    // One before good rows is a malformed row like others.
    for first in ["\"a\rb\",1,3", "{\"user\": \"a\", \"age\": 3, \"label\": 1}", "{\"user\": \"a\", \"label\": 1}"] {
        let path = folder.file("rows.txt", format!("{first}\nb,0\nc,1\n"));
        let config = config(&path, &listed);
        assert!(message(&config).contains("rows.txt: line 1: "), "{first}");
        let config = DataConfig { on_bad_row: OnBadRow::Skip, ..config };
        assert_eq!(ids(&open(&config), Split::Train), [0, 1], "{first}");
    }
    // Packed text is unpacked first.
    let mut packed = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    packed.write_all(b"a,1\rb,0\r").unwrap();
    let told = message(&config(&folder.file("rows.gz", packed.finish().unwrap()), &listed));
    assert!(told.contains("(`zcat FILE | tr '\\r' '\\n' > NEW`)"), "{told}");
}

#[test]
fn headers_of_whatever_bytes_are_told_in_a_line() {
    let folder = Folder::new();
    let schema = folder.file("s.toml", USERS);
    let names: Vec<_> = (0..40).map(|n| format!("c{n}")).collect();
    let path = folder.file("many.csv", format!("a\u{1b}[31m,{}\n", names.join(",")));
    let told = message(&config(&path, &schema));
    let all = "its header has a\\u{1b}[31m, c0, c1, c2, c3, c4, c5, c6, c7, c8 and 31 more";
    assert_eq!(told, format!("{path}: has no column label; {all}"));
    let path = folder.file("bytes.csv", b"\x07\0\0{,}\n\xff\0\n");
    assert_eq!(
        message(&config(&path, &schema)),
        format!("{path}: has no column label, and its header is no text: name a file of text")
    );
}

#[test]
fn another_delimiter_is_told_where_it_is_seen() {
    let folder = Folder::new();
    let schema = folder.file("s.toml", USERS);
    for (delimiter, name, written) in [('\t', "tabs", "\"\\t\""), (';', "semicolons", "\";\""), ('|', "bars", "\"|\"")]
    {
        let rows = users(&["a", "b"]).replace(',', &delimiter.to_string());
        let path = folder.file("a.csv", &rows);
        let advice = format!("the line looks separated by {name}: say delimiter = {written} in the schema");
        assert_eq!(message(&config(&path, &schema)), format!("{path}: has no column label: {advice}"));
        // The remedy.
        let right = folder.file("right.toml", format!("delimiter = {written}\n{USERS}"));
        assert_eq!(open(&config(&path, &right)).schema().rows(), [2]);
        // Without a header, and where a command would have another remedy.
        let path = folder.file("a.txt", rows.split_once('\n').unwrap().1);
        let listed = folder.file("listed.toml", format!("columns = ['label', 'user']\n{USERS}"));
        let told = fail(&format!("train {MODEL} --data {path} --schema {listed}"));
        assert!(
            told.contains(&format!("line 1: expected 2 columns as the schema lists, found 1: {advice}\n")),
            "{told}"
        );
    }
}

#[test]
fn rows_are_left_out_and_no_headers() {
    let folder = Folder::new();
    let schema = folder.file("s.toml", USERS);
    let open = folder.file("open.csv", "\"label,user\n1,a\n");
    let train = |path: &str| fail(&format!("train {MODEL} --data {path} --schema {schema} --max-line 1KiB"));
    let told = train(&open);
    assert!(
        told.contains("line 1: its header: a quotation mark opens a field that nothing closes: mend the line\n"),
        "{told}"
    );
    let long = folder.file("long.csv", format!("label,user{}\n1,a\n", "r".repeat(2 << 10)));
    let told = train(&long);
    assert!(told.contains("its header: the line is longer than 1.0 KiB: allow longer lines with --max-line"), "{told}");
    assert!(!told.contains("--on-bad-row"), "{told}");
}

#[test]
fn test_samples_of_another_kind_have_a_remedy_that_is_one() {
    let folder = Folder::new();
    let schema = folder.file("s.toml", LOG_SCHEMA);
    let csv = folder.file("log.csv", LOG_HEADER.to_owned() + &log(0..60));
    let tsv = folder.file("log.tsv", format!("1\t{}{}\n", "3\t".repeat(13), vec!["a1"; 26].join("\t")).repeat(40));
    let blocks = folder.at("blocks");
    run(&format!("convert {csv} {blocks} --schema {schema}"));
    for (data, test, flags) in [
        (&blocks, &csv, String::new()),
        (&blocks, &tsv, String::new()),
        (&tsv, &blocks, String::new()),
        (&tsv, &csv, String::new()),
        (&csv, &blocks, format!("--schema {schema}")),
    ] {
        let told = fail(&format!("train {MODEL} --data {data} --test-data {test} {flags}"));
        assert!(
            told.contains("data.test_path (--test-data): ") && told.contains(test) && told.contains(data),
            "{told}"
        );
        assert!(told.contains("octorec preprocess") && !told.contains("--schema"), "{told}");
    }
    // Nor are they those for training.
    for (data, flags) in [(&csv, format!("--schema {schema}")), (&tsv, String::new())] {
        let told = fail(&format!("train {MODEL} --data {data} --test-data {data} {flags}"));
        let named = ["data.test_path (--test-data): ", "data.path (--data ", "--test-fraction"];
        assert!(named.iter().all(|name| told.contains(name)), "{told}");
    }
    let others = folder.file("others.csv", std::fs::read_to_string(&csv).unwrap());
    run(&format!("train {MODEL} --data {csv} --test-data {others} --schema {schema}"));
}

#[test]
fn names_that_a_configuration_cannot_hold_are_told() {
    use std::ffi::OsStr;
    use std::os::unix::ffi::OsStrExt;
    let folder = Folder::new();
    let schema = folder.file("s.toml", LOG_SCHEMA);
    let path = folder.0.path().join(OsStr::from_bytes(b"log-\xff.csv"));
    std::fs::write(&path, LOG_HEADER.to_owned() + &log(0..60)).unwrap();
    let command = |words: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_octorec"));
        command.args(words);
        command
    };
    let output = command(&["train", "--schema", &schema, "--data"]).arg(&path).output().unwrap();
    let told = text(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{told}");
    assert!(told.contains("--data: ") && told.contains("this name is no UTF-8"), "{told}");
    // Where no configuration names it, it is a name as any other; and a link is a remedy.
    assert!(command(&["inspect"]).arg(&path).output().unwrap().status.success());
    let blocks = folder.0.path().join(OsStr::from_bytes(b"blocks-\xff"));
    for known in [None, Some(&blocks)] {
        let mut command = command(&["preprocess", "csv", "--schema", &schema, "--threads", "1", "--in"]);
        command.arg(&path).arg("--out").arg(if known.is_some() {
            folder.0.path().join("more")
        } else {
            blocks.clone()
        });
        if let Some(known) = known {
            command.arg("--vocabulary").arg(known);
        }
        let output = command.output().unwrap();
        assert!(output.status.success(), "{}", text(&output.stderr));
    }
    let link = folder.at("link.csv");
    std::os::unix::fs::symlink(&path, &link).unwrap();
    run(&format!("train {MODEL} --schema {schema} --data {link} --out {}", folder.at("run")));
    // A file that another one names, or whose name is made of that of a flag, gets no other name than was asked for.
    let checkpoint = folder.at("run");
    for (flag, line) in [
        ("--out", &["export", "--checkpoint", &checkpoint, "--format", "onnx", "--external-above", "16", "--out"][..]),
        ("--trace", &["data", "profile", &link, "--schema", &schema, "--trace"]),
    ] {
        let output = command(line).arg(folder.0.path().join(OsStr::from_bytes(b"j-\xff-j"))).output().unwrap();
        let told = text(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{told}");
        assert!(told.contains(&format!("{flag}: ")) && told.contains("this name is no UTF-8"), "{told}");
    }
    let left = std::fs::read_dir(folder.0.path()).unwrap().map(|entry| entry.unwrap().file_name());
    assert_eq!(left.filter(|name| name.as_bytes().starts_with(b"j-")).count(), 0);
}
