//! The tab-separated source: formats, vocabularies, splits and every message about a broken file.

use std::fs;
use std::io::Write;

use flate2::Compression;
use flate2::write::GzEncoder;
use octorec::base::config::{DataConfig, OnBadRow, Vocab};
use octorec::data::formats::Files;
use octorec::data::samples::Values;
use octorec::data::{Batch, Criteo, Growth, Labels, OnUnseen, Opening, Source, Split, Vocabulary};
use tempfile::TempDir;

use crate::sample::criteo_sample;

/// A folder whose files are gone after the test.
struct Folder(TempDir);

impl Folder {
    fn new() -> Self {
        Self(TempDir::new().unwrap())
    }

    fn file(&self, name: &str, content: impl AsRef<[u8]>) -> String {
        let path = self.0.path().join(name);
        fs::write(&path, content).unwrap();
        path.to_str().unwrap().to_owned()
    }
}

fn gzip(content: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(content).unwrap();
    encoder.finish().unwrap()
}

/// A row whose first category is `value` and whose other 25 are 1.
fn row(label: u8, value: &str) -> String {
    format!("{label}\t{}{value}{}", "3\t".repeat(13), "\t1".repeat(25))
}

fn rows(values: &[&str]) -> String {
    values.iter().map(|value| row(1, value) + "\n").collect()
}

fn config(path: &str) -> DataConfig {
    DataConfig { path: path.to_owned(), test_fraction: 0.0, ..DataConfig::default() }
}

fn read(source: &dyn Source, split: Split) -> Batch {
    let mut batch = Batch::new(source.schema());
    let mut reader = source.open(split, 0).unwrap();
    while reader.read(&mut batch, 100).unwrap() == 100 {}
    batch.check(source.schema()).unwrap();
    assert_eq!(Some(batch.samples() as u64), source.samples(split));
    batch
}

/// The first column's row numbers.
fn ids(source: &Files, split: Split) -> Vec<u32> {
    read(source, split).bags[0].rows.clone()
}

fn open(config: &DataConfig) -> Files {
    Files::open_criteo(config, &[], Opening::default()).unwrap()
}

fn message(config: &DataConfig) -> String {
    Files::open_criteo(config, &[], Opening::default()).err().expect("the file should be refused").to_string()
}

fn generated(samples: u64) -> (Criteo, Vec<u8>) {
    let config = DataConfig { train_samples: samples, test_samples: 0, ..DataConfig::default() };
    let log = Criteo::new(&config, &[], 13).unwrap();
    let mut text = Vec::new();
    log.write_tsv(Split::Train, 0..samples, &mut text).unwrap();
    (log, text)
}

#[test]
fn generated_text_reads_back_as_it_was_generated() {
    let folder = Folder::new();
    let (log, text) = generated(20_000);
    let tsv = open(&config(&folder.file("log.tsv", &text)));
    let (expected, found) = (read(&log, Split::Train), read(&tsv, Split::Train));
    assert_eq!(found.samples(), 20_000);
    assert_eq!(expected.dense, found.dense);
    assert_eq!(expected.labels, found.labels);
    // Categories are the same up to their names: first appearance numbers both in the same way.
    for (column, (a, b)) in expected.bags.iter().zip(&found.bags).enumerate() {
        let mut names = std::collections::HashMap::new();
        let renamed: Vec<u32> = a
            .rows
            .iter()
            .map(|row| {
                let next = names.len() as u32;
                *names.entry(*row).or_insert(next)
            })
            .collect();
        assert_eq!(renamed, b.rows, "column {column}");
        assert_eq!(tsv.schema().tables[column].rows, names.len() as u64);
    }
}

#[test]
fn plain_gzip_crlf_and_a_mark_are_the_same_data() {
    let folder = Folder::new();
    let (_, text) = generated(3000);
    let crlf = String::from_utf8(text.clone()).unwrap().replace('\n', "\r\n");
    let marked = ["\u{feff}".as_bytes(), &text].concat();
    let whole = read(&open(&config(&folder.file("a.tsv", &text))), Split::Train);
    assert_eq!(whole.samples(), 3000);
    let first = open(&config(&folder.file("a.tsv", &text)));
    assert!(first.is_seekable(Split::Train));
    for (name, content) in [
        ("b.tsv.gz", gzip(&text)),
        ("c.tsv", crlf.clone().into_bytes()),
        ("d.tsv.gz", gzip(crlf.as_bytes())),
        ("e.tsv", text[..text.len() - 1].to_vec()),
        ("f.tsv", marked.clone()),
        ("g.tsv.gz", gzip(&marked)),
    ] {
        let other = open(&config(&folder.file(name, content)));
        assert_eq!(read(&other, Split::Train), whole, "{name}");
        assert_eq!(other.is_seekable(Split::Train), !name.ends_with("gz"), "{name}");
        assert_eq!(
            other.fingerprint(Split::Train) == first.fingerprint(Split::Train),
            !["c.tsv", "d.tsv.gz", "f.tsv", "g.tsv.gz"].contains(&name),
            "{name}"
        );
    }
}

/// Runs of every version are to know their data again.
#[test]
fn fingerprints_stay_what_they_were() {
    let folder = Folder::new();
    let config = config(&folder.file("a.tsv", rows(&["a", "b", "c", "d", "e", "f", "a", "b"])));
    let source = open(&DataConfig { test_fraction: 0.25, validation_fraction: 0.25, ..config });
    for split in Split::ALL {
        assert_eq!(source.fingerprint(split).as_deref(), Some("3f61609a1555cfd0"), "{split:?}");
    }
}

#[test]
fn ids_follow_first_appearance_and_the_cap_comes_first() {
    let folder = Folder::new();
    let mut config = config(&folder.file("a.tsv", rows(&["ff", "a", "", "FF", "0", "b", "1a"])));
    let tsv = open(&config);
    assert_eq!(ids(&tsv, Split::Train), [0, 1, 2, 0, 2, 3, 4], "blank is 0, as in the reference");
    assert_eq!(tsv.about().vocabulary.as_deref().unwrap().columns()[0], [0xff, 0xa, 0, 0xb, 0x1a]);
    config.rows_cap = 16;
    let tsv = open(&config);
    assert_eq!(ids(&tsv, Split::Train), [0, 1, 2, 0, 2, 3, 1], "0xff and 0x1a modulo 16 are 15 and 10");
    assert_eq!(tsv.schema().tables[0].rows, 4);
}

#[test]
fn the_train_vocabulary_sends_unseen_values_to_its_last_row() {
    let folder = Folder::new();
    let mut config = config(&folder.file("a.tsv", rows(&["a", "b", "a", "c", "b", "d"])));
    config.vocab = Vocab::Train;
    config.test_fraction = 0.5;
    let tsv = open(&config);
    assert_eq!(tsv.schema().rows()[..2], [3, 2]);
    assert_eq!((ids(&tsv, Split::Train), ids(&tsv, Split::Test)), (vec![0, 1, 0], vec![2, 1, 2]));
    let known = tsv.about().vocabulary.as_deref().unwrap().clone();
    assert_eq!(known.columns()[0], [0xa, 0xb]);
    // The same through a second file, and through a stored vocabulary.
    config.test_path = folder.file("b.tsv", rows(&["e", "b"]));
    let tsv = open(&config);
    assert_eq!(ids(&tsv, Split::Train), [0, 1, 0, 2, 1, 3]);
    assert_eq!(ids(&tsv, Split::Test), [4, 1]);
    let stored = Vocabulary::from_columns(known.columns().to_vec(), known.unseen_row()).unwrap();
    let tsv = Files::open_criteo(&config, &[], Opening { known: Some(stored), ..Opening::default() }).unwrap();
    assert_eq!((ids(&tsv, Split::Train), ids(&tsv, Split::Test)), (vec![0, 1, 0, 2, 1, 2], vec![2, 1]));
    assert_eq!(tsv.about().vocabulary.as_deref(), Some(&known));
}

#[test]
fn validation_samples_lie_before_the_test_samples_and_are_none_of_training() {
    let folder = Folder::new();
    let mut config = config(&folder.file("a.tsv", rows(&["a", "b", "a", "c", "b", "d", "a", "e"])));
    (config.vocab, config.test_fraction, config.validation_fraction) = (Vocab::Train, 0.25, 0.25);
    let of = |config: &DataConfig| {
        let tsv = open(config);
        Split::ALL.map(|split| ids(&tsv, split))
    };
    assert_eq!(of(&config), [vec![0, 1, 0, 2], vec![1, 3], vec![0, 3]]);
    // Test samples of a second file leave the end of the first one for validation.
    config.test_path = folder.file("b.tsv", rows(&["e", "b"]));
    assert_eq!(of(&config), [vec![0, 1, 0, 2, 1, 3], vec![0, 4], vec![4, 1]]);
}

#[test]
fn the_whole_vocabulary_includes_the_test_samples() {
    let folder = Folder::new();
    let mut config = config(&folder.file("a.tsv", rows(&["a", "b", "c", "d"])));
    config.test_fraction = 0.25;
    let tsv = open(&config);
    assert_eq!((ids(&tsv, Split::Train), ids(&tsv, Split::Test)), (vec![0, 1, 2], vec![3]));
    config.test_path = folder.file("b.tsv", rows(&["e", "b"]));
    let tsv = open(&config);
    assert_eq!((ids(&tsv, Split::Train), ids(&tsv, Split::Test)), (vec![0, 1, 2, 3], vec![4, 1]));
    assert_eq!(tsv.schema().tables[0].rows, 5);
}

#[test]
fn hashing_takes_the_smaller_of_cap_and_model() {
    let folder = Folder::new();
    let mut config = config(&folder.file("a.tsv", rows(&["64", "7", "ffffffff"])));
    config.vocab = Vocab::Hash;
    assert_eq!(
        message(&config),
        "data.vocab = \"hash\": the number of rows must be given: set data.rows_cap (--rows-cap)"
    );
    let error = Files::open_criteo(&config, &[5, 5], Opening::default()).err().unwrap().to_string();
    assert_eq!(error, "data.vocab = \"hash\": model.rows lists 2 tables, the data has 26 categorical columns");
    let tsv = Files::open_criteo(&config, &[10; 26], Opening::default()).unwrap();
    assert_eq!(ids(&tsv, Split::Train), [0, 7, 5]);
    assert!(tsv.about().vocabulary.is_none());
    config.rows_cap = 7;
    let mut model = [10; 26];
    model[1] = 4;
    let tsv = Files::open_criteo(&config, &model, Opening::default()).unwrap();
    assert_eq!(tsv.schema().rows()[..3], [7, 4, 7]);
    assert_eq!(ids(&tsv, Split::Train), [100 % 7, 0, u32::MAX % 7]);
    assert_eq!(open(&config).schema().rows(), [7; 26]);
}

#[test]
fn malformed_rows_are_named_or_left_out() {
    let folder = Folder::new();
    let good = row(1, "a");
    let broken = [
        (good[..good.len() - 2].to_owned(), "line 2: expected 40 tab-separated columns, found 39"),
        (format!("{good}\t1"), "line 2: expected 40 tab-separated columns, found 41"),
        (String::new(), "line 2: expected 40 tab-separated columns, found 1: is the file separated by tabs?"),
        (good.replacen('1', "2", 1), "line 2: expected the label 0 or 1 in the first column, found \"2\""),
        (good.replacen('1', "", 1), "line 2: expected the label 0 or 1 in the first column, found \"\""),
        (row(1, "xyz"), "line 2: column C1: expected up to 8 hexadecimal digits, found \"xyz\""),
        (row(1, "a\0b"), "line 2: column C1: expected up to 8 hexadecimal digits, found \"a\\x00b\""),
        (good.replacen('3', "3.0", 1), "line 2: column I1: expected an integer, found \"3.0\""),
        (
            good.replacen('3', "99999999999999999999", 1),
            "line 2: column I1: expected an integer of at most 64 bits, found \"99999999999999999999\"",
        ),
        (
            "x".repeat(18 << 20),
            "line 2: the line is longer than 16.0 MiB: allow longer lines with --max-line, or make line feeds of CRs where these \
             alone end lines (`tr '\\r' '\\n' < FILE > NEW`, FILE unpacked), or is this no text file?",
        ),
    ];
    for (line, expected) in &broken {
        let path = folder.file("a.tsv", format!("{good}\n{line}\n{}\n", row(0, "b")));
        for vocab in [Vocab::All, Vocab::Train, Vocab::Hash] {
            let mut config = DataConfig { vocab, rows_cap: 100, ..config(&path) };
            // Of a line that may have no end, nobody looks for the next one.
            let counted = vocab == Vocab::Hash && line.len() <= config.max_line;
            let error = if counted {
                // Nothing needs to be parsed before reading here, so the reader finds it, after the good row.
                let tsv = open(&config);
                let mut batch = Batch::new(tsv.schema());
                let error = Source::open(&tsv, Split::Train, 0).unwrap().read(&mut batch, 10).unwrap_err();
                assert_eq!(batch.samples(), 1);
                error.to_string()
            } else {
                message(&config)
            };
            assert_eq!(error, format!("{path}: {expected}"), "{vocab:?}");
            config.on_bad_row = OnBadRow::Skip;
            let tsv = open(&config);
            assert_eq!(tsv.skipped_rows(), 1);
            assert_eq!(read(&tsv, Split::Train).labels, [1.0, 0.0]);
            read(&tsv, Split::Train);
            assert_eq!(tsv.skipped_rows(), 1, "a row counts once, however often it is read");
        }
    }
    let lines: Vec<&str> = broken.iter().map(|(line, _)| &line[..]).collect();
    let skip = DataConfig { on_bad_row: OnBadRow::Skip, ..config(&folder.file("a.tsv", lines.join("\n"))) };
    assert!(message(&skip).contains("the file has no usable row: all 10 are malformed"), "{}", message(&skip));
}

#[test]
fn samples_are_numbered_over_good_rows() {
    let folder = Folder::new();
    let mut text = String::new();
    for n in 0..50_000u32 {
        text += &(row((n % 2) as u8, &format!("{n:x}")) + "\n");
        if n % 1000 == 0 {
            text += "broken\n";
        }
    }
    for (name, content) in [("a.tsv", text.clone().into_bytes()), ("a.tsv.gz", gzip(text.as_bytes()))] {
        let mut config = config(&folder.file(name, content));
        config.on_bad_row = OnBadRow::Skip;
        config.test_fraction = 0.2;
        let tsv = open(&config);
        assert_eq!((tsv.samples(Split::Train), tsv.samples(Split::Test)), (Some(40_000), Some(10_000)));
        assert_eq!(tsv.skipped_rows(), 50);
        let places = [(Split::Train, 0, 0), (Split::Train, 16_384, 16_384), (Split::Train, 39_999, 39_999)];
        for (split, start, first) in places.into_iter().chain([(Split::Test, 7, 40_007)]) {
            let mut batch = Batch::new(tsv.schema());
            Source::open(&tsv, split, start).unwrap().read(&mut batch, 1).unwrap();
            assert_eq!(batch.bags[0].rows, [first], "{name} {split:?} {start}");
        }
        let error = Source::open(&tsv, Split::Test, 10_001).err().unwrap().to_string();
        assert!(error.ends_with("sample 10001 is asked for, but this part has 10000 samples"), "{error}");
    }
}

#[test]
fn unknown_values_of_new_data_are_refused_or_left_out() {
    let folder = Folder::new();
    let known = open(&config(&folder.file("a.tsv", rows(&["a", "b"])))).about().vocabulary.as_deref().unwrap().clone();
    let path = folder.file("b.tsv", rows(&["b", "c", "a"]));
    let mut config = config(&path);
    let tsv = Files::open_criteo(&config, &[], Opening { known: Some(known.clone()), ..Opening::default() }).unwrap();
    let error = Source::open(&tsv, Split::Train, 0).unwrap().read(&mut Batch::new(tsv.schema()), 9).unwrap_err();
    let expected = "line 2: column C1: the value 0000000c is not in the model's vocabulary";
    assert!(error.to_string().starts_with(&format!("{path}: {expected}")), "{error}");
    config.on_bad_row = OnBadRow::Skip;
    let tsv = Files::open_criteo(&config, &[], Opening { known: Some(known), ..Opening::default() }).unwrap();
    assert_eq!((ids(&tsv, Split::Train), tsv.skipped_rows()), (vec![1, 0], 1));
    let other = Vocabulary::from_columns(vec![vec![1]; 3], true).unwrap();
    let error = Files::open_criteo(&config, &[], Opening { known: Some(other), ..Opening::default() })
        .err()
        .unwrap()
        .to_string();
    assert_eq!(error, "vocabulary: it has 3 columns, the data has 26: it belongs to a model of other data");
}

/// As of described text: training that begins with a model adds the new values of its own samples.
#[test]
fn a_vocabulary_grows_by_the_values_of_training_samples() {
    let folder = Folder::new();
    let path = folder.file("a.tsv", rows(&["a", "b", "c"]));
    let next = folder.file("b.tsv", rows(&["c", "d", "a", "e", "f", "a"]));
    for (vocab, rows, test) in [(Vocab::All, 5, vec![0]), (Vocab::Train, 6, vec![5, 0])] {
        let config = DataConfig { vocab, ..config(&path) };
        let known = open(&config).about().vocabulary.as_deref().cloned();
        let mut config = DataConfig { path: next.clone(), test_fraction: 1.0 / 3.0, ..config };
        for skips in [OnBadRow::Fail, OnBadRow::Skip] {
            config.on_bad_row = skips;
            let opening = Opening { known: known.clone(), begins: true, ..Opening::default() };
            let tsv = Files::open_criteo(&config, &[], opening).unwrap();
            let growth =
                Growth { column: "C1".to_owned(), kept: 3, absent: Some(1), new: 2, unseen_row: vocab == Vocab::Train };
            assert_eq!((&tsv.about().growth[0], tsv.about().growth.len(), tsv.schema().rows()[0]), (&growth, 26, rows));
            assert_eq!((ids(&tsv, Split::Train), ids(&tsv, Split::Test)), (vec![2, 3, 0, 4], test.clone()));
            let met = &tsv.unseen_values()[0];
            assert_eq!((met.values, met.left_out + met.shared), (6, 1));
            let grown = tsv.about().vocabulary.as_deref().unwrap();
            assert_eq!(grown.columns()[0], [0xa, 0xb, 0xc, 0xd, 0xe]);
            // Whoever goes on with that run reads the same.
            let again =
                Files::open_criteo(&config, &[], Opening { known: Some(grown.clone()), ..Opening::default() }).unwrap();
            assert_eq!((ids(&again, Split::Train), ids(&again, Split::Test)), (vec![2, 3, 0, 4], test.clone()));
            assert_eq!((again.samples(Split::Test), again.skipped_rows()), (Some(2), 0));
        }
    }
}

/// As of described text: rows with new values are left out where training goes on with other data, and those of a file
/// of test samples are not.
#[test]
fn test_samples_of_a_file_of_their_own_stay_whatever_training_samples_have() {
    let folder = Folder::new();
    let known = open(&config(&folder.file("a.tsv", rows(&["a", "b", "c"])))).about().vocabulary.as_deref().cloned();
    let config = DataConfig {
        test_path: folder.file("test.tsv", rows(&["f", "a"])),
        validation_fraction: 0.25,
        on_bad_row: OnBadRow::Skip,
        ..config(&folder.file("b.tsv", rows(&["a", "d", "b", "c", "a", "e"])))
    };
    let tsv = Files::open_criteo(&config, &[], Opening { known, ..Opening::default() }).unwrap();
    assert_eq!(Split::ALL.map(|split| tsv.samples(split)), [3, 1, 2].map(Some));
    assert_eq!(Split::ALL.map(|split| ids(&tsv, split)), [vec![0, 1, 2], vec![0], vec![0]]);
    assert_eq!(tsv.skipped_rows(), 2);
}

/// What is compared with other days and kept with a model, and what training reads: both are the rows of the file.
#[test]
fn stored_samples_are_those_that_minibatches_are_made_of() {
    let folder = Folder::new();
    let wide = row(0, "").replacen('3', "99999999999", 1);
    let path = folder.file("a.tsv", format!("{}\n{wide}\n{}\n", row(1, "a"), row(1, "d")));
    let columns = std::iter::once(vec![0xa, 0]).chain((1..26).map(|_| vec![1])).collect();
    let known = Some(Vocabulary::from_columns(columns, false).unwrap());
    let opening = Opening { known, unseen: OnUnseen::EmptyBag, ..Opening::default() };
    let tsv = Files::open_criteo(&config(&path), &[], opening).unwrap();
    let mut found = Vec::new();
    let is_stored = tsv.each_stored(Split::Train, 1..3, &mut |stored| {
        assert_eq!(stored.blanks, [&[Some(1)][..], &[None; 25]].concat());
        found.push(stored.samples.clone());
        Ok(())
    });
    assert!(is_stored.unwrap() && found.len() == 1);
    let Values::Integers(first) = &found[0].dense[0] else { panic!("integers stay what they are") };
    assert_eq!((&found[0].labels[..], &first[..]), (&[0.0, 1.0][..], &[i32::MAX, 3][..]));
    let (one, other) = (&found[0].lookups[0], &found[0].lookups[1]);
    assert_eq!((&one.rows[..], &one.ends[..]), (&[1][..], &[1, 1][..]), "d has no row");
    assert_eq!((&other.rows[..], &other.ends[..]), (&[0, 0][..], &[1, 2][..]));
    let lost = tsv.lost();
    assert_eq!((lost[0].values, lost[0].emptied, lost[0].tells_blanks), (1, 1, false));
    assert!(lost[1].values == 0 && lost[1].tells_blanks);
    // A count keeps all of its bits on the way to a feature.
    let batch = read(&tsv, Split::Train);
    assert_eq!((&batch.bags[0].rows[..], &batch.bags[0].offsets[..]), (&[0, 1][..], &[0, 1, 2, 2][..]));
    assert!((batch.dense[13] - 25.328_436).abs() < 1e-4 && batch.dense[26] == 4f32.ln(), "{}", batch.dense[13]);
    assert_eq!((tsv.unseen_values()[0].left_out, tsv.skipped_rows()), (2, 0));
}

#[test]
fn rows_to_predict_need_no_label() {
    let folder = Folder::new();
    let labelled = row(1, "a");
    let (bare, blank) = (&labelled[2..], &labelled[1..]);
    let config = config(&folder.file("a.tsv", format!("{labelled}\n{bare}\n{blank}\n")));
    assert!(message(&config).contains("line 2: expected 40 tab-separated columns, found 39"));
    let opening = Opening { labels: Labels::Optional, ..Opening::default() };
    let batch = read(&Files::open_criteo(&config, &[], opening).unwrap(), Split::Train);
    assert!(batch.labels[0] == 1.0 && batch.labels[1].is_nan() && batch.labels[2].is_nan());
    assert_eq!(batch.bags[0].rows, [0, 0, 0]);
    assert_eq!(batch.dense[..13], batch.dense[13..26]);
}

#[test]
fn files_that_cannot_be_used_say_why() {
    let folder = Folder::new();
    let missing = folder.0.path().join("no.tsv").to_str().unwrap().to_owned();
    assert!(message(&config(&missing)).starts_with(&format!("{missing}: cannot open: ")));
    let path = folder.file("empty.tsv", "");
    let expected = format!("{path}: the file is empty: expected rows of 40 tab-separated columns");
    assert_eq!(message(&config(&path)), expected);
    assert!(message(&config(&folder.file("empty.tsv.gz", gzip(b"")))).contains("the file is empty"));
    let (_, text) = generated(3000);
    let mut packed = gzip(&text);
    let error = message(&config(&folder.file("cut.tsv.gz", &packed[..packed.len() / 2])));
    assert!(error.contains("the gzip file is truncated"), "{error}");
    // A flipped bit of the checksum: every row is good, the file is not.
    let checksum = packed.len() - 8;
    packed[checksum] ^= 1;
    let error = message(&config(&folder.file("corrupt.tsv.gz", &packed)));
    assert!(error.contains("the gzip file is corrupt after"), "{error}");
    // A file that grows between the pass and the reading, and one that shrinks or gets other rows.
    let path = folder.file("changes.tsv", rows(&["a", "b", "c"]));
    let tsv = open(&config(&path));
    let mut file = fs::File::options().append(true).open(&path).unwrap();
    file.write_all(rows(&["d"]).as_bytes()).unwrap();
    assert_eq!(ids(&tsv, Split::Train), [0, 1, 2]);
    for others in [&["a"][..], &["c", "b", "a"]] {
        fs::write(&path, rows(others)).unwrap();
        file.set_modified(std::time::UNIX_EPOCH).unwrap();
        let mut batch = Batch::new(tsv.schema());
        let error = Source::open(&tsv, Split::Train, 0).unwrap().read(&mut batch, 1).unwrap_err().to_string();
        assert!(error.contains("changes.tsv: the file has changed since it was opened"), "{error}");
    }
}

#[test]
fn progress_ends_at_the_whole() {
    let folder = Folder::new();
    let (_, text) = generated(20_000);
    let path = folder.file("a.tsv.gz", gzip(&text));
    let mut config = config(&path);
    config.test_path = folder.file("b.tsv", &text);
    let mut seen = Vec::new();
    let progress = Box::new(|done, total| seen.push((done, total)));
    Files::open_criteo(&config, &[], Opening { progress, ..Opening::default() }).unwrap();
    let total = fs::metadata(&path).unwrap().len() + text.len() as u64;
    assert!(seen.len() >= 4 && seen.is_sorted() && seen.iter().all(|&(_, of)| of == total), "{seen:?}");
    assert_eq!(seen.last(), Some(&(total, total)));
}

#[test]
fn the_real_sample_has_the_counts_of_the_reference() {
    let Some(path) = criteo_sample() else { return };
    let mut config = config(path.to_str().unwrap());
    config.test_fraction = 0.2;
    let tsv = open(&config);
    let expected = [
        484, 491, 35_104, 20_746, 136, 12, 7220, 235, 3, 9833, 3674, 33_153, 2732, 26, 4804, 27_922, 9, 2375, 1221, 4,
        31_058, 11, 14, 10_541, 49, 8167,
    ];
    assert_eq!(tsv.schema().rows(), expected);
    assert_eq!((tsv.samples(Split::Train), tsv.samples(Split::Test)), (Some(64_000), Some(16_000)));
    let (train, test) = (read(&tsv, Split::Train), read(&tsv, Split::Test));
    let clicks = train.labels.iter().chain(&test.labels).sum::<f32>() / 80_000.0;
    assert!((clicks - 0.224).abs() < 0.001, "{clicks}");
    config.vocab = Vocab::Train;
    let tsv = open(&config);
    assert!(tsv.schema().rows().iter().zip(expected).all(|(&rows, all)| rows <= all + 1));
    assert!(read(&tsv, Split::Train) == train, "ids of training values do not depend on the test samples");
}
