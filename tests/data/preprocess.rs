//! Preprocessing against the definition: ids, counts, days and order as facebookresearch/dlrm's `data_utils.py` gives
//! them, whatever the threads, the memory, the compression and the pieces.
//!
//! The definition stands here once more, slow and in memory: a walk over the rows that gives each new value the next
//! id.

use std::collections::HashMap;
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};

use octorec::base::config::{DataConfig, OnBadRow};
use octorec::data::blocks::Manifest;
use octorec::data::formats::{self, Table, csv::TextSchema};
use octorec::data::preprocess::{
    Options, Recipe, ShuffleBy, SplitBy, Stage, Summary, avazu, fingerprint, preprocess, taobao, taobao_sequences,
};
use octorec::data::samples::{MISSING, Values};
use octorec::data::{Criteo, Growth, Samples, Split, Vocabulary};
use tempfile::TempDir;

use crate::sample::criteo_sample;

/// Rows of Criteo's layout, as the log has them.
#[derive(Debug, Clone, PartialEq)]
struct Rows {
    labels: Vec<f32>,
    integers: Vec<Vec<i32>>,
    ids: Vec<Vec<u32>>,
    counts: Vec<u64>,
}

/// The definition. `min_count` 0: every value has its own id.
fn defined(text: &str, min_count: u32) -> Rows {
    defined_behind(("", min_count), (text, min_count))
}

/// The same of text behind whose values are those of an older one, each with its own `min_count`; whether infrequent
/// values have a row is the older one's.
fn defined_behind((old, old_min_count): (&str, u32), (text, min_count): (&str, u32)) -> Rows {
    let rows_of = |line: &str| line.split('\t').map(str::to_owned).collect::<Vec<_>>();
    let [old, rows] = [old, text].map(|text| text.lines().map(rows_of).collect::<Vec<_>>());
    let integer = |field: &str| if field.is_empty() { MISSING } else { field.parse().unwrap() };
    let value = |field: &str| if field.is_empty() { 0 } else { u32::from_str_radix(field, 16).unwrap() };
    let mut ids = Vec::new();
    let mut counts = Vec::new();
    for column in 14..40 {
        let [old, values] = [&old, &rows].map(|rows| rows.iter().map(|row| value(&row[column])).collect::<Vec<u32>>());
        let mut known: HashMap<u32, u32> = HashMap::new();
        for (values, min_count) in [(&old, old_min_count), (&values, min_count)] {
            let mut seen: HashMap<u32, u32> = HashMap::new();
            values.iter().for_each(|value| *seen.entry(*value).or_default() += 1);
            for value in values {
                if seen[value] >= min_count && !known.contains_key(value) {
                    known.insert(*value, known.len() as u32);
                }
            }
        }
        ids.push(values.iter().map(|value| known.get(value).copied().unwrap_or(known.len() as u32)).collect());
        counts.push(known.len() as u64 + u64::from(old_min_count > 0));
    }
    Rows {
        labels: rows.iter().map(|row| row[0].parse().unwrap()).collect(),
        integers: (1..14).map(|column| rows.iter().map(|row| integer(&row[column])).collect()).collect(),
        ids,
        counts,
    }
}

impl Rows {
    fn range(&self, rows: std::ops::Range<usize>) -> Self {
        Self {
            labels: self.labels[rows.clone()].to_vec(),
            integers: self.integers.iter().map(|column| column[rows.clone()].to_vec()).collect(),
            ids: self.ids.iter().map(|column| column[rows.clone()].to_vec()).collect(),
            counts: self.counts.clone(),
        }
    }

    /// Rows as things that can be sorted.
    fn sorted(&self) -> Vec<Vec<u32>> {
        let mut rows: Vec<Vec<u32>> = (0..self.labels.len())
            .map(|row| {
                let integers = self.integers.iter().map(|column| column[row] as u32);
                let ids = self.ids.iter().map(|column| column[row]);
                [self.labels[row].to_bits()].into_iter().chain(integers).chain(ids).collect()
            })
            .collect();
        rows.sort();
        rows
    }
}

/// What a data set holds for a purpose.
fn read(folder: &Path, role: Option<Split>) -> Rows {
    let manifest = Manifest::read(folder).unwrap();
    let mut all = Samples::new(&manifest.schema);
    for part in manifest.parts.iter().filter(|part| role.is_none_or(|role| part.role == role)) {
        let file = manifest.open(folder, part).unwrap();
        let mut cursor = file.open(0).unwrap();
        while cursor.read(&mut all, 1000).unwrap() > 0 {}
    }
    let integers = all.dense.iter().map(|column| match column {
        Values::Integers(values) => values.clone(),
        Values::Floats(_) => panic!("Criteo's columns are integers"),
    });
    Rows {
        integers: integers.collect(),
        ids: all.lookups.into_iter().map(|column| column.rows).collect(),
        labels: all.labels,
        counts: manifest.schema.categorical.iter().map(|column| column.rows).collect(),
    }
}

/// The values behind row numbers, as files have them: a head of 32 bytes that says whether there is one more row, then
/// the values.
fn stored_vocabulary(folder: &Path, files: &[String]) -> Vocabulary {
    let stored = files.iter().map(|file| fs::read(folder.join(file)).unwrap());
    let column = |bytes: Vec<u8>| -> (Vec<u32>, bool) {
        let values = bytes[32..].as_chunks::<4>().0.iter();
        (values.map(|value| u32::from_le_bytes(*value)).collect(), bytes[20] == 1)
    };
    let (columns, unseen): (Vec<_>, Vec<_>) = stored.map(column).unzip();
    Vocabulary::from_columns(columns, unseen.contains(&true)).unwrap()
}

fn generated(rows: u64) -> String {
    let config = DataConfig { train_samples: rows, test_samples: 0, ..DataConfig::default() };
    let mut text = Vec::new();
    Criteo::new(&config, &[], 13).unwrap().write_tsv(Split::Train, 0..rows, &mut text).unwrap();
    String::from_utf8(text).unwrap()
}

fn gzip(content: &[u8]) -> Vec<u8> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    encoder.write_all(content).unwrap();
    encoder.finish().unwrap()
}

struct Folder(TempDir);

impl Folder {
    fn new() -> Self {
        // In memory where there is such a folder: dozens of small data sets are flushed to it.
        let memory = Path::new("/dev/shm");
        Self(if memory.is_dir() { tempfile::tempdir_in(memory) } else { tempfile::tempdir() }.unwrap())
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn file(&self, name: &str, content: impl AsRef<[u8]>) -> PathBuf {
        fs::write(self.path(name), content).unwrap();
        self.path(name)
    }

    /// Small pieces and files, so that a small log has many of them.
    fn options(&self, recipe: Recipe, inputs: &[PathBuf], out: &str) -> Options {
        let threads = 3;
        let small = Options::new(recipe, inputs.to_vec(), self.path(out));
        Options { threads, piece_bytes: 60_000, file_rows: 1500, ..small }
    }
}

fn done(options: &Options) -> Summary {
    preprocess(options, &|_, done, total| assert!(done <= total)).unwrap()
}

fn message(options: &Options) -> String {
    preprocess(options, &|_, _, _| ()).unwrap_err().to_string()
}

/// All files of a data set, by name.
fn bytes(folder: &Path) -> Vec<(String, Vec<u8>)> {
    let mut files: Vec<_> = fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap())
        .map(|entry| (entry.file_name().to_string_lossy().into_owned(), fs::read(entry.path()).unwrap()))
        .collect();
    files.sort();
    files
}

#[test]
fn ids_counts_and_order_are_those_of_the_definition() {
    let folder = Folder::new();
    let text = generated(7000);
    let expected = defined(&text, 0);
    let log = folder.file("train.txt", &text);
    let summary = done(&folder.options(Recipe::CriteoKaggle, &[log], "out"));
    assert_eq!(summary.days, [1000; 7]);
    assert_eq!(read(&folder.path("out"), None), expected);
    let counts: Vec<u64> = summary.counts.iter().map(|(_, rows)| *rows).collect();
    assert_eq!(counts, expected.counts);
    // The values behind the ids, as `day_fea_dict_j.npz` has them.
    let files: Vec<String> = (1..=26).map(|n| format!("C{n}.vocabulary")).collect();
    let vocabulary = stored_vocabulary(&folder.path("out"), &files);
    assert_eq!(vocabulary.rows(), expected.counts);
    let first = text.lines().next().unwrap().split('\t').nth(14).unwrap();
    assert_eq!(vocabulary.row(0, u32::from_str_radix(first, 16).unwrap()), Some(0));
    assert!(!folder.path("out/unfinished").exists(), "what was worked on is gone");
}

#[test]
fn nothing_but_text_and_options_changes_the_bytes() {
    let folder = Folder::new();
    let text = generated(6000);
    let days: Vec<&str> = {
        let cut = text.match_indices('\n').nth(3500).unwrap().0 + 1;
        vec![&text[..cut], &text[cut..]]
    };
    let plain = [folder.file("day_0", days[0]), folder.file("day_1", days[1])];
    let packed = [
        folder.file("day_0.gz", gzip(days[0].as_bytes())),
        folder.file("day_1.zst", zstd::encode_all(days[1].as_bytes(), 1).unwrap()),
    ];
    let marked = [("marked_0", days[0]), ("marked_1.gz", days[1])].map(|(name, day)| {
        let text = format!("\u{feff}{day}").into_bytes();
        folder.file(name, if name.ends_with("gz") { gzip(&text) } else { text })
    });
    let base = folder.options(Recipe::CriteoTerabyte, &plain, "base");
    for shuffle in [ShuffleBy::None, ShuffleBy::Day, ShuffleBy::Total] {
        let base = Options { shuffle, split: SplitBy::LastDayDlrm, min_count: 2, force: true, ..base.clone() };
        let summary = done(&base);
        assert_eq!(summary.days, [3501, 2499]);
        let expected = bytes(&base.out);
        for (name, other) in [
            ("threads", Options { threads: 1, ..base.clone() }),
            ("pieces", Options { piece_bytes: 1_000_000, ..base.clone() }),
            ("compressed", Options { inputs: packed.to_vec(), ..base.clone() }),
            ("marked", Options { inputs: marked.to_vec(), ..base.clone() }),
            // 16 MiB among three threads: the large columns are numbered in shards, and runs are short.
            ("memory", Options { memory: 200_000, piece_bytes: 9000, ..base.clone() }),
        ] {
            let other = Options { out: folder.path("other"), force: true, ..other };
            done(&other);
            for (a, b) in expected.iter().zip(&bytes(&other.out)) {
                // The summary counts the bytes of the input.
                let other_bytes = ["compressed", "marked"].contains(&name);
                assert!(a == b || other_bytes && a.0 == "preprocess.json", "{shuffle:?}, {name}: {}", a.0);
            }
        }
    }
}

#[test]
fn infrequent_values_share_the_last_row_and_new_data_maps_identically() {
    let folder = Folder::new();
    let text = generated(5000);
    let (old, new) = text.split_at(text.match_indices('\n').nth(3999).unwrap().0 + 1);
    let inputs = [folder.file("old.tsv", old)];
    let options = folder.options(Recipe::CriteoKaggle, &inputs, "old-out");
    for memory in [4 << 30, 300_000] {
        done(&Options { min_count: 3, memory, force: true, ..options.clone() });
        assert_eq!(read(&options.out, None), defined(old, 3));
    }
    // New data through the same vocabulary, in one shard and in several.
    let files: Vec<String> = (1..=26).map(|n| format!("C{n}.vocabulary")).collect();
    let vocabulary = stored_vocabulary(&options.out, &files);
    for memory in [4 << 30, 300_000] {
        let inputs = [folder.file("new.tsv", new)];
        let mapped = folder.options(Recipe::CriteoKaggle, &inputs, "new-out");
        done(&Options { vocabulary: Some(options.out.clone()), memory, force: true, ..mapped });
        let found = read(&folder.path("new-out"), None);
        assert_eq!(found.counts, vocabulary.rows());
        for (row, line) in new.lines().enumerate() {
            for (column, field) in line.split('\t').skip(14).enumerate() {
                let value = if field.is_empty() { 0 } else { u32::from_str_radix(field, 16).unwrap() };
                assert_eq!(Some(found.ids[column][row]), vocabulary.row(column, value));
            }
        }
    }
}

#[test]
fn a_vocabulary_grows_behind_its_own_values_whatever_the_threads_and_the_memory() {
    let folder = Folder::new();
    let text = generated(5000);
    let (old, new) = text.split_at(text.match_indices('\n').nth(3999).unwrap().0 + 1);
    let (olds, news) = ([folder.file("old.tsv", old)], [folder.file("new.tsv", new)]);
    let known = Options { force: true, ..folder.options(Recipe::CriteoKaggle, &olds, "known") };
    let grown = folder.options(Recipe::CriteoKaggle, &news, "grown");
    let grown = Options { vocabulary: Some(known.out.clone()), grow: true, force: true, ..grown };
    // As if both were one text; then with a row for infrequent values, of the old ones and of the new ones, or of the
    // old ones alone.
    for [old_min_count, min_count] in [[0, 0], [3, 2], [3, 0]] {
        done(&Options { min_count: old_min_count, ..known.clone() });
        let before = bytes(&known.out);
        let had = defined(old, old_min_count).counts;
        let expected = defined_behind((old, old_min_count), (new, min_count));
        let mut written = None;
        for (threads, memory) in [(3, 4 << 30), (1, 4 << 30), (3, 300_000), (2, 150_000)] {
            let summary = done(&Options { threads, memory, min_count, ..grown.clone() });
            assert!(read(&grown.out, None) == expected, "{min_count}, {threads} threads in {memory} bytes");
            let unseen_row = old_min_count > 0;
            let growth = |column: usize| Growth {
                column: format!("C{}", column + 1),
                kept: had[column] - u64::from(unseen_row),
                absent: None,
                new: expected.counts[column] - had[column],
                unseen_row,
            };
            assert_eq!(summary.growth, (0..26).map(growth).collect::<Vec<_>>());
            assert!(summary.growth.iter().any(|column| column.new > 0));
            let found = bytes(&grown.out);
            assert!(*written.get_or_insert_with(|| found.clone()) == found, "{threads} threads in {memory} bytes");
        }
        assert!(bytes(&known.out) == before, "what grows is a copy");
        // The same vocabulary as one of blocks that were numbered by it, which is nobody's to grow.
        let again =
            Options { vocabulary: Some(grown.out.clone()), grow: false, out: folder.path("again"), ..grown.clone() };
        assert!(done(&again).growth.is_empty());
        assert_eq!(read(&again.out, None), expected);
    }
    assert_eq!(defined_behind((old, 0), (new, 0)), defined(&text, 0).range(4000..5000));
}

#[test]
fn a_vocabulary_that_grows_goes_on_with_the_one_that_it_began_with() {
    let folder = Folder::new();
    let text = generated(3000);
    let (old, new) = text.split_at(text.match_indices('\n').nth(1999).unwrap().0 + 1);
    let (olds, news) = ([folder.file("old.tsv", old)], [folder.file("new.tsv", new)]);
    let known = Options { force: true, ..folder.options(Recipe::CriteoKaggle, &olds, "known") };
    let make = |min_count: u32| done(&Options { min_count, ..known.clone() });
    make(3);
    let options = |out: &str| Options {
        vocabulary: Some(known.out.clone()),
        grow: true,
        ..folder.options(Recipe::CriteoKaggle, &news, out)
    };
    let (whole, stopped) = (options("whole"), options("stopped"));
    done(&whole);
    // Blocks cannot be written: all values are numbered by then.
    let taken = stopped.out.join("unfinished/part-00000.octo");
    let watch = |stage: Stage, _: u64, _: u64| {
        if stage == Stage::Blocks {
            let _ = fs::create_dir(&taken);
        }
    };
    let found = preprocess(&stopped, &watch).unwrap_err().to_string();
    assert!(found.contains("part-00000.octo"), "{found}");
    let numbered = fs::read(stopped.out.join("unfinished/C3.vocabulary")).unwrap();
    assert_eq!(numbered, fs::read(whole.out.join("C3.vocabulary")).unwrap());
    fs::remove_dir(&taken).unwrap();
    // With another one in its place nothing fits any more.
    make(2);
    let found = message(&stopped);
    assert!(found.contains("begun with another vocabulary than the one that ") && found.contains("put that back"));
    assert!(
        message(&Options { grow: false, ..stopped.clone() })
            .contains("an unfinished run has grow = true instead of false")
    );
    make(3);
    done(&stopped);
    assert!(bytes(&stopped.out) == bytes(&whole.out));
}

#[test]
fn the_first_values_of_a_vocabulary_are_another_one() {
    let folder = Folder::new();
    let text = generated(2000);
    let part = |name: &str, rows: std::ops::Range<usize>| {
        let lines: String = text.split_inclusive('\n').skip(rows.start).take(rows.len()).collect();
        [folder.file(name, &lines)]
    };
    let (few, olds, news) = (part("few.tsv", 0..500), part("old.tsv", 0..1000), part("new.tsv", 1000..2000));
    let make = |inputs: &[PathBuf]| {
        let known = folder.options(Recipe::CriteoKaggle, inputs, "known");
        done(&Options { force: true, min_count: 1, ..known });
    };
    for grow in [true, false] {
        make(&olds);
        let options = |out: &str| Options {
            vocabulary: Some(folder.path("known")),
            grow,
            ..folder.options(Recipe::CriteoKaggle, &news, &format!("{out}-{grow}"))
        };
        let (whole, stopped) = (options("whole"), options("stopped"));
        done(&whole);
        // Blocks cannot be written, but values are numbered.
        let taken = stopped.out.join("unfinished/part-00000.octo");
        let watch = |stage: Stage, _: u64, _: u64| {
            if stage == Stage::Blocks {
                let _ = fs::create_dir(&taken);
            }
        };
        assert!(preprocess(&stopped, &watch).is_err());
        fs::remove_dir(&taken).unwrap();
        make(&few);
        let found = message(&stopped);
        assert!(found.contains("begun with another vocabulary than the one that "), "{found}");
        make(&olds);
        done(&stopped);
        assert!(bytes(&stopped.out) == bytes(&whole.out));
    }
}

#[test]
fn data_on_their_way_into_their_place_need_no_older_vocabulary() {
    let folder = Folder::new();
    let text = generated(1000);
    let (old, new) = text.split_at(text.match_indices('\n').nth(599).unwrap().0 + 1);
    let (olds, news) = ([folder.file("old.tsv", old)], [folder.file("new.tsv", new)]);
    let known = folder.options(Recipe::CriteoKaggle, &olds, "known");
    done(&known);
    let options = |out: &str| Options {
        vocabulary: Some(known.out.clone()),
        grow: true,
        force: true,
        ..folder.options(Recipe::CriteoKaggle, &news, out)
    };
    let (whole, moved) = (options("whole"), options("moved"));
    let summary = done(&whole);
    // A file finds its name taken.
    let taken = moved.out.join("part-00000.octo");
    fs::create_dir_all(taken.join("mine")).unwrap();
    let found = message(&moved);
    assert!(found.contains("part-00000.octo") && moved.out.join("unfinished/moving").exists(), "{found}");
    fs::remove_dir_all(&taken).unwrap();
    fs::remove_dir_all(&known.out).unwrap();
    assert_eq!(done(&moved), summary);
    assert!(bytes(&moved.out) == bytes(&whole.out) && !moved.out.join("unfinished").exists());
    // Where something is still to be numbered, it is missed.
    assert!(message(&Options { seed: 1, ..moved }).contains("known"));
}

#[test]
fn splits_name_the_halves_of_the_last_day_as_either_program_does() {
    let folder = Folder::new();
    let text = generated(1401);
    let all = defined(&text, 0);
    let inputs = [folder.file("train.txt", &text)];
    let mut options = Options { force: true, ..folder.options(Recipe::CriteoKaggle, &inputs, "out") };
    let check = |options: &Options, expected: [(Split, std::ops::Range<usize>); 3]| {
        done(options);
        for (role, rows) in expected {
            assert_eq!(read(&options.out, Some(role)), all.range(rows), "{:?} {role:?}", options.split);
        }
    };
    // 1401 = 201 + 6 x 200: the last day has 200 rows.
    options.split = SplitBy::LastDayDlrm;
    check(&options, [(Split::Train, 0..1201), (Split::Test, 1201..1301), (Split::Validation, 1301..1401)]);
    options.split = SplitBy::LastDayTorchrec;
    check(&options, [(Split::Train, 0..1201), (Split::Validation, 1201..1301), (Split::Test, 1301..1401)]);
    options.split = SplitBy::Fraction { validation: 0.1, test: 0.2 };
    check(&options, [(Split::Train, 0..980), (Split::Validation, 980..1120), (Split::Test, 1120..1401)]);
    // One day has none before it to train on.
    let split = SplitBy::LastDayTorchrec;
    let mut options = Options { split, ..folder.options(Recipe::CriteoTerabyte, &inputs, "one") };
    let found = message(&options);
    assert!(found.contains("--split: the only day is the last one") && !options.out.exists(), "{found}");
    options.days = 2;
    assert_eq!(done(&options).days, [701, 700]);
    options = Options { days: 1, force: true, ..options };
    assert!(message(&options).contains("the only day"));
}

#[test]
fn a_shuffle_keeps_every_row_and_no_order() {
    let folder = Folder::new();
    let text = generated(5000);
    let all = defined(&text, 0);
    let inputs = [folder.file("train.txt", &text)];
    let base = Options { force: true, ..folder.options(Recipe::CriteoKaggle, &inputs, "out") };
    let split = SplitBy::Fraction { validation: 0.0, test: 0.2 };
    let total = Options { shuffle: ShuffleBy::Total, split, memory: 400_000, ..base.clone() };
    done(&total);
    let (train, test) = (read(&base.out, Some(Split::Train)), read(&base.out, Some(Split::Test)));
    assert_eq!(test, all.range(4000..5000), "test rows stay in order");
    assert_eq!(train.sorted(), all.range(0..4000).sorted());
    // Where the rows of the first half are now: spread evenly.
    let key = |rows: &Rows, row: usize| (rows.integers[4][row], rows.ids[2][row], rows.ids[11][row], rows.ids[20][row]);
    let first: std::collections::HashSet<_> = (0..2000).map(|row| key(&all, row)).collect();
    for quarter in 0..4 {
        let from_first = (0..1000).filter(|row| first.contains(&key(&train, quarter * 1000 + row))).count();
        assert!((400..700).contains(&from_first), "quarter {quarter}: {from_first}");
    }
    done(&Options { seed: 124, ..total });
    assert_ne!(read(&base.out, Some(Split::Train)), train, "another seed, another order");
    done(&Options { shuffle: ShuffleBy::Day, ..base.clone() });
    let found = read(&base.out, None);
    let mut from = 0;
    for rows in [715, 715, 714, 714, 714, 714, 714] {
        let day = from..from + rows;
        assert_eq!(found.range(day.clone()).sorted(), all.range(day.clone()).sorted());
        assert_ne!(found.range(day.clone()), all.range(day));
        from += rows;
    }
}

fn schema(text: &str) -> TextSchema {
    let file = tempfile::NamedTempFile::new().unwrap();
    fs::write(file.path(), text).unwrap();
    TextSchema::read(file.path()).unwrap()
}

#[test]
fn one_schema_gives_the_same_samples_in_training_and_in_preprocessing() {
    let folder = Folder::new();
    // More blank lines than a piece holds, behind a byte order mark.
    let mut text = format!("\u{feff}{}user,genres,age,price,rating\n", "\r\n".repeat(500));
    for n in 0..900 {
        let genres = match n % 4 {
            0 => String::new(),
            1 => format!("g{}", n % 9),
            2 => format!("g{}|g{}", n % 5, n % 11),
            _ => format!("\"a, b|g{}|c\"", n % 6),
        };
        let age = if n % 5 == 0 { String::new() } else { (n % 60).to_string() };
        // As a 64-bit number it lies in the middle of two of 32 bits; as text it does not.
        let price = if n == 7 { "1.00000005960464477540".to_owned() } else { format!("{n}.5") };
        text += &format!("u{},{genres},{age},{price},{}\n", n * n % 101, n % 6);
    }
    let layout = schema(
        "label = 'rating == 4'
        dense = [{ column = 'age', transform = 'log' }, { column = 'price', float = true }]
        categorical = [
            { column = 'user' },
            { column = 'genres', separator = '|' },
            { column = 'age', name = 'age_bucket', buckets = [18.0, 50.0] },
            { column = 'user', name = 'user_hash', rows = 10 },
            { column = 'genres', name = 'genres_hash', separator = '|', rows = 7 },
        ]",
    );
    let path = folder.file("ratings.csv", &text);
    let direct =
        formats::csv::open_as(&path, layout.clone(), &formats::csv::Choices::default(), &mut |_, _| {}).unwrap();
    let mut expected = Samples::new(&direct.description);
    let table = &direct.members[0].table;
    table.open(0).unwrap().read(&mut expected, 900).unwrap();
    for (name, memory, piece_bytes) in [("one", 4 << 30, 0), ("pieces", 200_000, 700)] {
        let recipe = Recipe::Table(layout.clone());
        let options = Options { memory, piece_bytes, ..folder.options(recipe, std::slice::from_ref(&path), name) };
        done(&options);
        let manifest = Manifest::read(&options.out).unwrap();
        for (found, expected) in manifest.schema.categorical.iter().zip(&direct.description.categorical) {
            assert_eq!((&found.name, found.rows, found.hots), (&expected.name, expected.rows, expected.hots));
            assert_eq!(found.vocabulary.is_empty(), found.name.ends_with("hash") || found.name.ends_with("bucket"));
        }
        assert_eq!(manifest.schema.dense, direct.description.dense);
        let mut found = Samples::new(&manifest.schema);
        let file = manifest.open(&options.out, &manifest.parts[0]).unwrap();
        file.open(0).unwrap().read(&mut found, 900).unwrap();
        assert!(found == expected, "{name}: the ids, lists and values are those of training on the text");
        // New data is mapped as the old was.
        let again =
            folder.options(Recipe::Table(layout.clone()), std::slice::from_ref(&path), &format!("{name}-again"));
        done(&Options { vocabulary: Some(options.out.clone()), ..again.clone() });
        let manifest = Manifest::read(&again.out).unwrap();
        let mut mapped = Samples::new(&manifest.schema);
        let file = manifest.open(&again.out, &manifest.parts[0]).unwrap();
        file.open(0).unwrap().read(&mut mapped, 900).unwrap();
        assert!(mapped == expected, "{name}");
        let new = folder.file("new.csv", "user,genres,age,price,rating\nu1,g1,3,1.5,4\nu4,g1|zzz,3,1.5,4\n");
        let new = folder.options(Recipe::Table(layout.clone()), &[new], &format!("{name}-new"));
        let found = message(&Options { vocabulary: Some(options.out.clone()), ..new });
        assert!(found.contains("row 2 of input file 1: column genres has the value with fingerprint"), "{found}");
    }
}

#[test]
fn rows_with_lists_are_shuffled_whole() {
    const ROWS: usize = 9000;
    let folder = Folder::new();
    let mut text = "user,genres,number,rating\n".to_owned();
    for n in 0..ROWS {
        let genres: Vec<String> = (0..n * n % 5).map(|k| format!("g{}", (n + k) % 97)).collect();
        text += &format!("u{},{},{n},{}\n", n * n % 101, genres.join("|"), n % 6);
    }
    let path = folder.file("log.csv", text);
    let layout = schema(
        "label = 'rating == 4'
        dense = [{ column = 'number' }]
        categorical = [{ column = 'user' }, { column = 'genres', separator = '|' }]",
    );
    let plain = folder.options(Recipe::Table(layout), &[path], "plain");
    done(&plain);
    let all = |out: &Path| {
        let manifest = Manifest::read(out).unwrap();
        let mut samples = Samples::new(&manifest.schema);
        for part in &manifest.parts {
            manifest.open(out, part).unwrap().open(0).unwrap().read(&mut samples, ROWS).unwrap();
        }
        samples.check(&manifest.schema);
        (samples, manifest.schema)
    };
    let (ordered, description) = all(&plain.out);
    assert_eq!(description.categorical[1].hots, 0);
    let mut orders = Vec::new();
    // Little memory makes several runs and buckets.
    for (seed, memory) in [(123, 1 << 30), (123, 1 << 14), (124, 1 << 14)] {
        let out = folder.path(&format!("shuffled-{seed}-{memory}"));
        let options = Options { shuffle: ShuffleBy::Total, seed, memory, out, ..plain.clone() };
        done(&options);
        let (shuffled, _) = all(&options.out);
        let Values::Integers(numbers) = &shuffled.dense[0] else { panic!("numbers are integers") };
        let order: Vec<usize> = numbers.iter().map(|&n| n as usize).collect();
        let mut expected = Samples::new(&description);
        order.iter().for_each(|&n| expected.extend_from(&ordered, n..n + 1, &description));
        assert!(shuffled == expected, "{seed} {memory}");
        orders.push(order);
    }
    assert!(orders[0] == orders[1] && orders[1] != orders[2], "an order depends on its seed alone");
    let mut sorted = orders.swap_remove(2);
    sorted.sort_unstable();
    assert!(sorted.into_iter().eq(0..ROWS), "every row once");
}

#[test]
fn tables_of_text_by_name() {
    let folder = Folder::new();
    let mut text = "user,genre,price,rating,age\n".to_owned();
    for n in 0..500 {
        let genre = if n % 3 == 0 { "\"drama, old\"".to_owned() } else { format!("g{}", n % 7) };
        let age = if n % 5 == 0 { String::new() } else { (n % 60).to_string() };
        text += &format!("u{},{genre},{}.5,{},{age}\n", n * n % 101, n, n % 6);
    }
    let layout = schema(
        "label = 'rating >= 4'
        dense = [{ column = 'age' }, { column = 'price', float = true }]
        categorical = [{ column = 'genre' }, { column = 'user' }]",
    );
    let inputs = [folder.file("a.csv", &text), folder.file("b.csv", text.replace("u1,", "v1,"))];
    let options = Options { piece_bytes: 700, ..folder.options(Recipe::Table(layout.clone()), &inputs, "out") };
    let summary = done(&options);
    assert_eq!((summary.rows, summary.days), (1000, vec![500, 500]));
    let manifest = Manifest::read(&options.out).unwrap();
    let mut all = Samples::new(&manifest.schema);
    let file = manifest.open(&options.out, &manifest.parts[0]).unwrap();
    file.open(0).unwrap().read(&mut all, 500).unwrap();
    for n in 0..500usize {
        assert_eq!(all.labels[n], f32::from(u8::from(n % 6 >= 4)));
        let (Values::Integers(age), Values::Floats(price)) = (&all.dense[0], &all.dense[1]) else { panic!("kinds") };
        assert_eq!(age[n], if n.is_multiple_of(5) { MISSING } else { (n % 60) as i32 });
        assert_eq!(price[n], n as f32 + 0.5);
    }
    let mut names = HashMap::new();
    for (n, &id) in all.lookups[0].rows.iter().enumerate() {
        let next = names.len() as u32;
        let name = if n % 3 == 0 { "drama, old".to_owned() } else { format!("g{}", n % 7) };
        assert_eq!(id, *names.entry(name).or_insert(next));
    }
    assert_eq!(manifest.schema.categorical[0].rows, names.len() as u64);
    assert_ne!(fingerprint(b"drama, old"), fingerprint(b"g1"));

    // What is wrong with a table.
    let refused = |text: &str| {
        let inputs = [folder.file("bad.csv", text)];
        message(&Options { force: true, ..folder.options(Recipe::Table(layout.clone()), &inputs, "bad") })
    };
    let header = "user,genre,price,rating,age\n";
    assert!(refused("user,kind,price,rating,age\n").contains("has no column genre; its header has user, kind"));
    let found = refused("user,größe_in_zentimetern_ohne_schuhe,price,rating,age\n");
    assert!(found.contains("; its header has user, größe_in_zentimetern_ohne_schuhe, price"), "{found}");
    let listed = TextSchema { columns: vec!["user".to_owned(), "rating".to_owned()], ..layout.clone() };
    let found = message(&folder.options(Recipe::Table(listed), &inputs, "listed"));
    assert!(found.contains("has no column age; the schema lists user, rating"), "{found}");
    for (row, reason) in [
        ("u1,g,1,5\n", "bad.csv: line 3: expected 5 columns as in the header, found 4"),
        ("u1,g,NaN,5,3\n", "bad.csv: line 3: column price: a finite number is expected, found \"NaN\""),
        (
            "u1,g,1,5,99999999999\n",
            "line 3: column age: an integer of at most 32 bits (fractions need float = true) is expected, found \"99999999999\"",
        ),
        (
            "u1,g,1,5,abc\n",
            "line 3: column age: an integer of at most 32 bits (fractions need float = true) is expected, found \"abc\"",
        ),
        ("u1,g,1,many,3\n", "line 3: column rating: a number is expected, found \"many\""),
    ] {
        let found = refused(&format!("{header}u1,g,1,5,3\n{row}"));
        assert!(found.contains(reason), "{found}");
    }
    // Blanks that are none of ASCII's stand for nothing here and in training, where they keep a column's kind.
    let blanks = folder.file("blanks.csv", format!("{header}u1,g,1,5,\u{a0}5\nu1,g,\u{a0}2.5,5,\u{a0}\n"));
    let direct =
        formats::csv::open_as(&blanks, layout.clone(), &formats::csv::Choices::default(), &mut |_, _| {}).unwrap();
    let mut trained = Samples::new(&direct.description);
    direct.members[0].table.open(0).unwrap().read(&mut trained, 2).unwrap();
    assert!(matches!(&trained.dense[0], Values::Floats(ages) if ages[0] == 5.0 && ages[1].is_nan()));
    let options = folder.options(Recipe::Table(layout.clone()), &[blanks], "blanks");
    done(&options);
    let manifest = Manifest::read(&options.out).unwrap();
    let mut stored = Samples::new(&manifest.schema);
    manifest.open(&options.out, &manifest.parts[0]).unwrap().open(0).unwrap().read(&mut stored, 2).unwrap();
    assert_eq!(stored.dense, [Values::Integers(vec![5, MISSING]), Values::Floats(vec![1.0, 2.5])]);
    let inputs = [folder.file("a.csv", &text), folder.file("b.csv", text.replace("genre", "kind"))];
    let found = message(&folder.options(Recipe::Table(layout), &inputs, "header"));
    assert!(found.contains("b.csv: has no column genre; its header has user, kind, price"), "{found}");
    assert!(!found.contains("--on-bad-row"), "a header is no row: {found}");
}

#[test]
fn each_file_has_its_columns_in_an_order_of_its_own() {
    let folder = Folder::new();
    let layout = schema(
        "label = 'rating >= 4'
        dense = [{ column = 'price', float = true }]
        categorical = [{ column = 'genre' }, { column = 'user' }]",
    );
    let rows = || (0..500).map(|n| (format!("u{}", n * n % 101), format!("\"g, {}\"", n % 7), n, n % 6));
    let plain: String = rows().map(|(user, genre, n, rating)| format!("{user},{genre},{n}.5,{rating}\n")).collect();
    let turned: String =
        rows().map(|(user, genre, n, rating)| format!("{rating},x{n},{n}.5,{user},{genre}\n")).collect();
    let first = folder.file("a.csv", format!("user,genre,price,rating\n{plain}"));
    let alike = folder.file("b.csv", format!("user,genre,price,rating\n{}", plain.replace('u', "v")));
    let other = folder.file("c.csv", format!("rating,note,price,user,genre\n{}", turned.replace('u', "v")));
    let table = |inputs: &[&PathBuf], out: &str| {
        let inputs: Vec<PathBuf> = inputs.iter().copied().cloned().collect();
        Options { piece_bytes: 700, ..folder.options(Recipe::Table(layout.clone()), &inputs, out) }
    };
    let [expected, found] = [(&alike, "alike"), (&other, "turned")].map(|(second, out)| {
        let options = table(&[&first, second], out);
        assert_eq!(done(&options).days, [500, 500]);
        let mut files = bytes(&options.out);
        files.retain(|(name, _)| [".octo", ".vocabulary"].iter().any(|end| name.ends_with(end)));
        assert_eq!(files.len(), 3);
        files
    });
    assert!(found == expected);
    // Of data to predict, all files have the label or none has.
    let bare = folder.file("bare.csv", "user,price,genre\nu1,1.5,\"g, 1\"\n");
    let mixed = |inputs: &[&PathBuf], out: &str| {
        let vocabulary = Some(folder.path("alike"));
        message(&Options { vocabulary, ..table(inputs, out) })
    };
    let told = mixed(&[&bare, &first], "mixed");
    assert!(told.contains(&format!("a.csv: has a column rating, and {} has none: ", bare.display())), "{told}");
    let told = mixed(&[&first, &bare], "mixed");
    assert!(told.contains(&format!("bare.csv: has no column rating, and {} has one: ", first.display())), "{told}");
    done(&Options { vocabulary: Some(folder.path("alike")), ..table(&[&bare], "bare") });
}

#[test]
fn the_logs_of_avazu_and_taobao() {
    let folder = Folder::new();
    let columns = "C1,banner_pos,site_id,site_domain,site_category,app_id,app_domain,app_category,device_id,device_ip,\
                   device_model,device_type,device_conn_type,C14,C15,C16,C17,C18,C19,C20,C21";
    let mut text = format!("id,click,hour,{columns}\n");
    for n in 0..60 {
        let fields: Vec<String> = (0..21).map(|column| format!("{:x}", n % (column + 2))).collect();
        text += &format!("{}{n},{},141021{:02},{}\n", u64::MAX / 10, n % 4 / 3, n % 24, fields.join(","));
    }
    let inputs = [folder.file("train.csv", text)];
    done(&folder.options(Recipe::Table(avazu()), &inputs, "avazu"));
    let found = read(&folder.path("avazu"), None);
    // 24 hours and 7 days of the week, and a blank field's row each.
    assert_eq!(found.counts, [25, 8].into_iter().chain(2..23).collect::<Vec<u64>>());
    // The 21st of October 2014 was a Tuesday.
    assert_eq!((found.ids[0][..4].to_vec(), found.ids[1][59]), (vec![0, 1, 2, 3], 1));
    assert_eq!((found.integers.len(), found.labels[..4].to_vec()), (0, vec![0.0, 0.0, 0.0, 1.0]));

    let rows: String = (0..50)
        .map(|n| format!("{},{},{},{},{}\n", n % 9, n % 11, n % 4, ["pv", "cart", "buy"][n % 3], 1_511_544_070 + n))
        .collect();
    let inputs = [folder.file("UserBehavior.csv", rows)];
    done(&folder.options(Recipe::Table(taobao()), &inputs, "taobao"));
    let found = read(&folder.path("taobao"), None);
    assert_eq!(found.counts, [9, 11, 4, 25, 8]);
    // 1511544070 is Friday the 24th of November 2017, 17:21:10.
    assert_eq!((found.ids[3][0], found.ids[4][49], &found.labels[..3]), (17, 4, &[0.0, 0.0, 1.0][..]));
}

#[test]
fn the_sequences_of_taobao() {
    let folder = Folder::new();
    // Items are numbered first, then users, then categories, as taobao_prepare.py does; 4 places instead of 200.
    let list = |values: &[u32]| values.iter().map(u32::to_string).collect::<Vec<_>>().join(",");
    let mut text = String::new();
    for n in 0..40u32 {
        let length = 1 + n as usize % 4;
        let items: Vec<u32> = (0..4).map(|k| if k < 4 - length { 0 } else { 1 + (n + k as u32) % 17 }).collect();
        let categories: Vec<u32> = items.iter().map(|&item| if item == 0 { 0 } else { 100 + item % 5 }).collect();
        let fields = [
            (50 + n).to_string(),
            items[3].to_string(),
            categories[3].to_string(),
            (n % 2).to_string(),
            list(&items),
            list(&categories),
            list(&[9, 8, 7, 6]),
            list(&[104, 103, 102, 101]),
        ];
        text += &(fields.join("\t") + "\n");
    }
    let options =
        folder.options(Recipe::Table(taobao_sequences()), &[folder.file("taobao_train.txt", text)], "sequences");
    done(&options);
    let manifest = Manifest::read(&options.out).unwrap();
    let rows = |column: usize| manifest.schema.categorical[column].rows;
    assert_eq!([0, 1, 2, 3, 4].map(rows), [40, 17, 5, 17, 5], "zeros are no values");
    let mut samples = Samples::new(&manifest.schema);
    manifest.open(&options.out, &manifest.parts[0]).unwrap().open(0).unwrap().read(&mut samples, 40).unwrap();
    samples.check(&manifest.schema);
    assert_eq!(samples.dense[0], Values::Integers((0..40).map(|n| 1 + n % 4).collect()));
    let ends: Vec<u32> = (0..40)
        .scan(0, |end, n| {
            *end += 1 + n % 4;
            Some(*end)
        })
        .collect();
    assert!(samples.lookups[3].ends == ends && samples.lookups[4].ends == ends);
    // Row numbers follow first appearance: the first row's item is 4, the second's are 4 and 5.
    assert_eq!((&samples.lookups[3].rows[..3], &samples.labels[..3]), (&[0, 0, 1][..], &[0.0, 1.0, 0.0][..]));
    // The same file as text that is trained on.
    let schema = folder.file("schema.toml", taobao_sequences().to_toml());
    let text =
        octorec::data::formats::open(&options.inputs[0], None, Some(octorec::data::formats::Described::by(&schema)))
            .unwrap();
    let mut read = Samples::new(&text.description);
    text.members[0].table.open(0).unwrap().read(&mut read, 40).unwrap();
    assert!((read.dense, read.lookups) == (samples.dense, samples.lookups));
}

/// The counts that the Criteo sample's description publishes; its rows are never copied here.
const SAMPLE_COUNTS: [u64; 26] = [
    484, 491, 35104, 20746, 136, 12, 7220, 235, 3, 9833, 3674, 33153, 2732, 26, 4804, 27922, 9, 2375, 1221, 4, 31058,
    11, 14, 10541, 49, 8167,
];

#[test]
fn the_criteo_sample_has_the_counts_of_the_definition() {
    let Some(sample) = criteo_sample() else { return };
    let folder = Folder::new();
    let mut text = String::new();
    let decoder = flate2::read::MultiGzDecoder::new(fs::File::open(&sample).unwrap());
    std::io::Read::read_to_string(&mut std::io::BufReader::new(decoder), &mut text).unwrap();
    let options = Options { piece_bytes: 1 << 20, ..folder.options(Recipe::CriteoKaggle, &[sample], "out") };
    let summary = done(&options);
    assert_eq!(summary.counts.iter().map(|(_, rows)| *rows).collect::<Vec<_>>(), SAMPLE_COUNTS);
    assert_eq!(summary.days, [11429, 11429, 11429, 11429, 11428, 11428, 11428]);
    assert_eq!(read(&folder.path("out"), None), defined(&text, 0));
}

#[test]
fn bad_input_names_file_and_line_and_what_is_finished_stays() {
    let folder = Folder::new();
    let text = generated(3000);
    let broken = |line: usize, with: &str| {
        let mut lines: Vec<&str> = text.lines().collect();
        lines[line - 1] = with;
        lines.join("\n") + "\n"
    };
    let whole: Vec<&str> = text.lines().next().unwrap().split('\t').collect();
    let with = |column: usize, field: &str| {
        let mut fields = whole.clone();
        fields[column] = field;
        fields.join("\t")
    };
    for (line, row, reason) in [
        (2500, whole[..39].join("\t"), "expected 40 tab-separated columns, found 39"),
        (1, with(0, "2"), "expected the label 0 or 1"),
        (1234, with(3, "NaN"), "column I3: expected an integer, found \"NaN\""),
        (3000, with(3, "2147483648"), "column I3: expected an integer of at most 32 bits, found \"2147483648\""),
        (77, with(5, "99999999999999999999"), "column I5: expected an integer of at most 64 bits"),
        (2999, with(20, "0123456g"), "column C7: expected up to 8 hexadecimal digits, found \"0123456g\""),
    ] {
        let content = broken(line, &row);
        for (name, bytes) in [("log.tsv", content.clone().into_bytes()), ("log.tsv.gz", gzip(content.as_bytes()))] {
            let inputs = [folder.file("good.tsv", &text), folder.file(name, bytes)];
            let options = Options { force: true, ..folder.options(Recipe::CriteoTerabyte, &inputs, "out") };
            let found = message(&options);
            let expected = format!("{name}: line {line}: {reason}");
            assert!(found.contains(&expected), "{found}\n{expected}");
            assert!(found.contains("mend the line, or leave such rows out with --on-bad-row skip"), "{found}");
            assert!(options.out.join("unfinished/00000-00000000.part").exists(), "parts of the good file stay");
            // The same run goes on without the row.
            let summary = done(&Options { on_bad_row: OnBadRow::Skip, ..options.clone() });
            assert_eq!((summary.rows, summary.skipped, summary.days), (5999, 1, vec![3000, 2999]));
        }
    }
    // A mended file is read again, and the result is that of a run that met no fault.
    let inputs = [folder.file("log.tsv", broken(1500, "x"))];
    let options = Options { force: true, ..folder.options(Recipe::CriteoTerabyte, &inputs, "out") };
    assert!(message(&options).contains("log.tsv: line 1500: expected 40 tab-separated columns, found 1"));
    folder.file("log.tsv", &text);
    done(&options);
    assert_eq!(read(&options.out, None), defined(&text, 0));
}

#[test]
fn broken_files_and_foreign_data_say_so() {
    let folder = Folder::new();
    let text = generated(3000);
    let packed = gzip(text.as_bytes());
    let refused = |name: &str, bytes: &[u8]| {
        let inputs = [folder.file(name, bytes)];
        message(&Options { force: true, ..folder.options(Recipe::CriteoKaggle, &inputs, "out") })
    };
    let found = refused("cut.gz", &packed[..packed.len() / 2]);
    assert!(found.contains("cut.gz: the gzip file is truncated") && found.contains("complete lines"), "{found}");
    let mut corrupt = packed.clone();
    let at = corrupt.len() - 6;
    corrupt[at] ^= 1;
    let found = refused("corrupt.gz", &corrupt);
    assert!(found.contains("corrupt.gz: the gzip file is corrupt"), "{found}");
    let frames = zstd::encode_all(text.as_bytes(), 1).unwrap();
    let found = refused("cut.zst", &frames[..frames.len() / 2]);
    assert!(found.contains("cut.zst: the zstd file is truncated"), "{found}");
    assert!(refused("empty", b"").contains("there are no rows in it"));

    // A vocabulary of other data.
    let inputs = [folder.file("old.tsv", &text)];
    let old = folder.options(Recipe::CriteoKaggle, &inputs, "old");
    done(&old);
    let mut other: Vec<String> = text.lines().take(100).map(str::to_owned).collect();
    let mut fields: Vec<&str> = other[41].split('\t').collect();
    fields[16] = "0badcafe";
    other[41] = fields.join("\t");
    let inputs = [folder.file("new.tsv", other.join("\n"))];
    let new = Options { vocabulary: Some(old.out.clone()), ..folder.options(Recipe::CriteoKaggle, &inputs, "new") };
    // As a whole and in shards.
    for memory in [4 << 30, 200_000] {
        let found = message(&Options { memory, ..new.clone() });
        assert!(found.contains("C3.vocabulary: row 42 of input file 1: column C3 has the value 0badcafe"), "{found}");
    }
    let table = Recipe::Table(taobao());
    let inputs = [folder.file("t.csv", "1,2,3,pv,4\n")];
    let found = message(&Options { vocabulary: Some(old.out.clone()), ..folder.options(table, &inputs, "taobao") });
    assert!(found.contains("has no vocabulary of column"), "{found}");

    // What is there already is not lost by accident.
    assert!(message(&old).contains("holds a data set already: replace it with --force"));
    fs::remove_file(old.out.join("dataset.toml")).unwrap();
    assert!(message(&old).contains("is of another data set: remove it with --force"));
    let inputs = [folder.file("bad", "x\n")];
    let unfinished = folder.options(Recipe::CriteoKaggle, &inputs, "unfinished");
    message(&unfinished);
    let found = message(&Options { min_count: 9, ..unfinished.clone() });
    assert!(found.contains("an unfinished run has min_count = 0 instead of 9"), "{found}");
    // Parts of version 4 may have other values of the same text, and those of 5 other borders of the same shares.
    let journal = unfinished.out.join("unfinished/journal.json");
    let now = fs::read_to_string(&journal).unwrap();
    let old = now.replace("\"version\": 9", "\"version\": 5");
    assert_ne!(now, old);
    fs::write(&journal, old).unwrap();
    let found = message(&unfinished);
    assert!(found.contains("journal.json: is of a run that another version of octorec began"), "{found}");
}

#[test]
fn inputs_are_days_in_order_each_once_and_none_without_rows() {
    let folder = Folder::new();
    let text = generated(300);
    let with = |names: &[&str]| {
        let inputs: Vec<PathBuf> = names.iter().map(|name| folder.path(name)).collect();
        folder.options(Recipe::CriteoTerabyte, &inputs, "out")
    };
    ["day_1", "day_2", "day_3", "day_10"].iter().for_each(|name| drop(folder.file(name, &text)));
    let found = message(&with(&["day_1", "day_10", "day_2", "day_3"]));
    assert!(found.contains("day_10: stands before day_2, as a shell sorts names"), "{found}");
    assert!(found.contains("with braces (day_{0..N})"), "{found}");
    let found = message(&with(&["day_1", "day_2", "day_1"]));
    assert!(found.contains("day_1: is the same file as"), "{found}");
    folder.file("day_1.gz", gzip(text.as_bytes()));
    let found = message(&with(&["day_1", "day_1.gz"]));
    assert!(found.contains("day_1.gz: would be read beside") && found.contains("name one of the two"), "{found}");
    folder.file("day_3", "");
    folder.file("day_4", "no click\n");
    let empty = Options { on_bad_row: OnBadRow::Skip, ..with(&["day_2", "day_3", "day_4"]) };
    // What has no bytes is told before anything is read.
    let found = preprocess(&empty, &|_, _, _| panic!("nothing is read")).unwrap_err().to_string();
    assert!(found.contains("day_3: there are no rows in it"), "{found}");
    folder.file("day_3", "no click, either\n");
    let found = message(&empty);
    assert!(found.contains("day_3: there is no usable row in it: all 1 are malformed; "), "{found}");
    assert!(found.contains("day_4: there is no usable row in it: all 1 are malformed"), "{found}");
    // Both remedies work; another order than that of their numbers may be meant.
    ["day_3", "day_4"].iter().for_each(|name| drop(folder.file(name, &text)));
    assert_eq!(done(&empty).days, [300; 3]);
    assert_eq!(done(&Options { force: true, ..with(&["day_2", "day_1"]) }).days, [300; 2]);
    // An earlier day is held out.
    assert_eq!(done(&Options { force: true, ..with(&["day_10", "day_2"]) }).days, [300; 2]);
    // Of a folder, marks of those who have written it are no days.
    let inputs = [folder.path("days")];
    fs::create_dir(&inputs[0]).unwrap();
    ["days/day_0", "days/_SUCCESS"].iter().zip([&*text, ""]).for_each(|(name, text)| drop(folder.file(name, text)));
    assert_eq!(done(&folder.options(Recipe::CriteoTerabyte, &inputs, "of-days")).days, [300]);
    // Days of equal numbers come by name, in whichever order the system lists them.
    let inputs = [folder.path("equal")];
    fs::create_dir(&inputs[0]).unwrap();
    let file = |zeros: usize| folder.file(&format!("equal/day_{}1", "0".repeat(zeros)), generated(10 + zeros as u64));
    [2, 0, 4, 1, 5, 3].iter().for_each(|&zeros| drop(file(zeros)));
    assert_eq!(done(&folder.options(Recipe::CriteoTerabyte, &inputs, "of-equal")).days, [15, 14, 13, 12, 11, 10]);
}

#[test]
fn a_full_disk_loses_nothing_that_was_finished() {
    let folder = Folder::new();
    let text = generated(4000);
    let inputs = [folder.file("log", &text)];
    let options = folder.options(Recipe::CriteoTerabyte, &inputs, "out");
    // A device that is always full stands where the second block file is to be written.
    let full = options.out.join("unfinished/part-00001.octo");
    let link = || std::os::unix::fs::symlink("/dev/full", &full);
    let found = preprocess(&options, &|_, _, _| drop(link())).unwrap_err().to_string();
    assert!(found.contains("part-00001.octo: the disk is full"), "{found}");
    assert!(found.contains("what is finished is kept; free some space"), "{found}");
    assert!(found.contains("and run the same command again"), "{found}");
    let part = options.out.join("unfinished/00000-00000000.part");
    let before = fs::metadata(&part).unwrap().modified().unwrap();
    let _ = fs::remove_file(&full);
    // What a killed run did not finish takes no room while another one goes on.
    let leftovers = ["00003-keys.shards", ".group-00000-9-000000.run.octorec-partial"];
    let leftovers = leftovers.map(|name| options.out.join("unfinished").join(name));
    leftovers.iter().for_each(|path| fs::write(path, "x").unwrap());
    let mut seen = false;
    let watched = std::sync::Mutex::new(&mut seen);
    preprocess(&options, &|_, _, _| {
        let same = fs::metadata(&part).is_ok_and(|data| data.modified().unwrap() == before);
        **watched.lock().unwrap() |= same;
        assert!(leftovers.iter().all(|path| !path.exists()), "they were removed");
    })
    .unwrap();
    assert!(seen, "finished parts are not made again");
    assert_eq!(read(&options.out, None), defined(&text, 0));
}

/// A user of a behaviour log: so many items of a history and the last one, zeros before them, and items of others.
fn user_line(user: u32, history: u32, label: u32) -> String {
    let list = |of: &dyn Fn(u32) -> u32| {
        let items = (0..200u32).map(|k| if k + history + 1 < 200 { 0 } else { of(k + history + 1 - 200) });
        items.map(|item| item.to_string()).collect::<Vec<_>>().join(",")
    };
    // Item k of a user is 1000 user + k + 1, and its category that of k in tens.
    let (items, categories) = (list(&|k| 1000 * user + k + 1), list(&|k| 10 * user + k / 10 + 1));
    let (others, of_others) = (list(&|k| 900_000 + k), list(&|k| 90_000 + k / 10));
    let asked = 1000 * user + history + 1;
    format!("{user}\t{asked}\t1\t{label}\t{items}\t{categories}\t{others}\t{of_others}\n")
}

#[test]
fn points_of_a_behaviour_log_are_stretches_of_histories_and_items_of_others() {
    let folder = Folder::new();
    // Histories in which there is nothing, a point, three, six, and as many as are wanted.
    let histories = [4, 15, 25, 39, 120, 199];
    let text: String = (1..).zip(histories).map(|(user, history)| user_line(user, history, user % 2)).collect();
    let log = folder.file("taobao_train.txt", text);
    let points = |most| Recipe::Points { most, history: 5 };
    // The last items are no points of training: they share a row.
    let options = Options { min_count: 1, ..folder.options(points(10), std::slice::from_ref(&log), "train") };
    let summary = done(&options);
    assert_eq!(summary.rows, 2 * (1 + 3 + 6 + 10 + 10));
    let manifest = Manifest::read(&options.out).unwrap();
    let names: Vec<_> = manifest.schema.categorical.iter().map(|column| (&*column.name, column.hots)).collect();
    assert_eq!((names, manifest.schema.dense.len()), (vec![("user", 1), ("items", 0), ("categories", 0)], 0));
    let read = |out: &Path, rows: usize| {
        let manifest = Manifest::read(out).unwrap();
        let mut samples = Samples::new(&manifest.schema);
        manifest.open(out, &manifest.parts[0]).unwrap().open(0).unwrap().read(&mut samples, rows).unwrap();
        samples.check(&manifest.schema);
        samples
    };
    let samples = read(&options.out, 60);
    let list = |column: usize, n: usize| {
        let of = &samples.lookups[column];
        let first = if n == 0 { 0 } else { of.ends[n - 1] as usize };
        of.rows[first..of.ends[n] as usize].to_vec()
    };
    // Numbers by appearance hide the items; that a stretch is one shows in another data set with the same vocabulary.
    let (mut positive, mut ends) = (0, std::collections::HashSet::new());
    for n in 0..60 {
        let (items, categories) = (list(1, n), list(2, n));
        assert_eq!((items.len(), categories.len()), (6, 6), "all histories are long enough");
        assert_eq!(samples.labels[n], f32::from(u8::from(n % 2 == 0)), "in turn");
        positive += u32::from(samples.labels[n] == 1.0);
        ends.insert((samples.lookups[0].rows[n], items));
    }
    assert_eq!(positive, 30);
    assert!(ends.len() > 50, "points of a user differ: {}", ends.len());
    // For test, a line is a point; its values are those of the training points.
    let known = Options { vocabulary: Some(options.out.clone()), ..folder.options(points(0), &[log], "test") };
    assert_eq!(done(&known).rows, 6);
    let test = read(&known.out, 6);
    assert_eq!(test.labels, [1.0, 0.0, 1.0, 0.0, 1.0, 0.0]);
    let bad = folder.file("bad.txt", user_line(1, 30, 1).replace(",1001,", ",0,").replace(",1012,", ",0,"));
    let message = message(&folder.options(points(10), &[bad], "bad"));
    assert!(message.contains("29 items have 31 categories: each has one"), "{message}");
}
