//! The files of FAE's published code (`tests/vectors/fae.py`): samples, hot rows and tags as they were, and a word for
//! whatever is wrong with them.

use std::fs;
use std::io::{Cursor, Read, Write};
use std::path::{Path, PathBuf};

use octorec::base::Result;
use octorec::base::config::{Config, DataConfig, SourceKind};
use octorec::data::formats::npy::header;
use octorec::data::formats::{self, Dataset, Format};
use octorec::data::hot::{HotSet, Inputs};
use octorec::data::samples::Values;
use octorec::data::{self, Batch, Description, Opening, Samples, Split};
use serde_json::Value;
use tempfile::TempDir;
use zip::write::SimpleFileOptions;
use zip::{ZipArchive, ZipWriter};

use super::chance::Chance;
use super::formats::rows;
use super::spoil::damage;

const VECTORS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/vectors/fae");
const NAMES: [&str; 3] = ["train_normal.npz", "train_hot.npz", "hot_emb_dict.npz"];

fn expected() -> Value {
    serde_json::from_slice(&fs::read(Path::new(VECTORS).join("expected.json")).unwrap()).unwrap()
}

/// Samples as label, dense features and rows.
fn listed(samples: &Samples) -> Value {
    let dense = |at: usize| {
        let values = samples.dense.iter().map(|column| match column {
            Values::Integers(values) => values[at],
            Values::Floats(values) => panic!("fractions {values:?}"),
        });
        values.collect::<Vec<_>>()
    };
    let rows = |at: usize| samples.lookups.iter().map(|column| column.rows[at]).collect::<Vec<_>>();
    let labels = samples.labels.iter().enumerate();
    labels.map(|(at, label)| serde_json::json!([*label as i32, dense(at), rows(at)])).collect()
}

fn open(path: &Path) -> Result<Dataset> {
    formats::open(path, None, None)
}

fn hot_rows(set: &HotSet) -> Value {
    (0..set.tables()).map(|table| set.iter(table).collect::<Vec<_>>()).collect()
}

#[test]
fn samples_hot_rows_and_tags_of_every_profiler_are_those_that_were_written() {
    let expected = expected();
    let train = expected["train"].as_array().unwrap();
    for folder in ["kaggle/kaggle_hot_cold", "processes", "tutorial"] {
        let path = Path::new(VECTORS).join(folder);
        assert_eq!(Format::detect(&path), Some(Format::Fae));
        let dataset = open(&path).unwrap();
        assert_eq!(listed(&rows(&dataset, Split::Train)), expected["train"], "{folder}");
        let hot = dataset.hot.as_ref().unwrap();
        assert_eq!(hot_rows(&hot.set), expected["hot_rows"], "{folder}");
        assert!(hot.set.is_whole(0) && hot.set.is_whole(4) && !hot.set.is_whole(1));
        let tags = &hot.tags;
        assert_eq!(
            [tags.samples(), tags.count(Inputs::Cold)],
            [train.len() as u64, expected["cold"].as_u64().unwrap()]
        );
        assert_eq!(tags.place(Inputs::Hot, 0), tags.count(Inputs::Cold), "cold samples come first");
        // What FAE calls hot is what octorec does.
        for (at, sample) in train.iter().enumerate() {
            let rows = sample[2].as_array().unwrap().iter().map(|row| row.as_u64().unwrap() as u32);
            let is_hot = rows.enumerate().all(|(table, row)| hot.set.contains(table, row));
            assert_eq!(is_hot, at as u64 >= tags.count(Inputs::Cold), "sample {at}");
        }
        assert_eq!(formats::verify(&dataset, |_| ()).unwrap(), dataset.rows(Split::Train) + dataset.rows(Split::Test));
        assert_eq!(
            open(&path.join("train_hot.npz")).unwrap().description,
            dataset.description,
            "any of the three files"
        );
        // As many rows as samples need, where nothing says more: the last row of table 3 has none.
        let sizes = dataset.description.categorical.iter().map(|column| column.rows).collect::<Vec<_>>();
        let table_3 = if folder.starts_with("kaggle") { 120 } else { 119 };
        assert_eq!(sizes, [3, 40, 7, table_3, 12], "{folder}");
    }
    // What lies in the folder above: FAE's own test samples.
    let dataset = open(&Path::new(VECTORS).join("kaggle/kaggle_hot_cold")).unwrap();
    assert_eq!(listed(&rows(&dataset, Split::Test)), expected["test"]);
    assert_eq!(open(&Path::new(VECTORS).join("tutorial")).unwrap().roles(), [Split::Train]);
}

#[test]
fn samples_are_read_from_any_on_and_trained_on_as_they_are() {
    let path = Path::new(VECTORS).join("kaggle/kaggle_hot_cold");
    let dataset = open(&path).unwrap();
    let all = rows(&dataset, Split::Train);
    let mut config = Config::default();
    config.data = DataConfig { source: SourceKind::Files, path: path.display().to_string(), ..config.data };
    let source = data::open(&config, Opening::default()).unwrap();
    assert_eq!((source.samples(Split::Train), source.samples(Split::Test)), (Some(all.len() as u64), Some(21)));
    let cold = dataset.members[0].table.rows();
    for start in [0, 1, cold - 1, cold, cold + 3, all.len() as u64] {
        let mut batch = Batch::new(source.schema());
        let mut reader = source.open(Split::Train, start).unwrap();
        while reader.read(&mut batch, 7).unwrap() == 7 {}
        batch.check(source.schema()).unwrap();
        let mut expected = Batch::new(source.schema());
        let mut rest = Samples::new(&dataset.description);
        rest.extend_from(&all, start as usize..all.len(), &dataset.description);
        expected.append(&rest, &dataset.description);
        assert!(batch == expected, "from sample {start}");
        let mut reader = source.open(Split::Train, 0).unwrap();
        assert_eq!(reader.skip(start).unwrap(), start);
        let mut batch = Batch::new(source.schema());
        let left = reader.read(&mut batch, 2).unwrap();
        assert_eq!(left, 2.min(all.len() - start as usize));
        let labels = &all.labels[start as usize..][..left];
        assert_eq!(batch.labels, labels);
    }
}

/// An archive of arrays, stored.
fn write_npz(path: &Path, arrays: &[(&str, &[u8])]) {
    let mut writer = ZipWriter::new(Cursor::new(Vec::new()));
    for (name, bytes) in arrays {
        let options = SimpleFileOptions::default().compression_method(zip::CompressionMethod::Stored);
        writer.start_file(format!("{name}.npy"), options).unwrap();
        writer.write_all(bytes).unwrap();
    }
    fs::write(path, writer.finish().unwrap().into_inner()).unwrap();
}

fn read_npz(path: &Path, name: &str) -> Vec<u8> {
    let mut archive = ZipArchive::new(fs::File::open(path).unwrap()).unwrap();
    let mut bytes = Vec::new();
    archive.by_name(&format!("{name}.npy")).unwrap().read_to_end(&mut bytes).unwrap();
    bytes
}

/// Pickles of values.
fn int(value: i32) -> Vec<u8> {
    [&b"J"[..], &value.to_le_bytes()].concat()
}

fn text(text: &str) -> Vec<u8> {
    [&[0x8c, text.len() as u8], text.as_bytes()].concat()
}

fn name(module: &str, name: &str) -> Vec<u8> {
    [text(module), text(name), vec![0x93]].concat()
}

fn tuple(items: &[Vec<u8>]) -> Vec<u8> {
    [b"(".to_vec(), items.concat(), b"t".to_vec()].concat()
}

fn list(items: &[Vec<u8>]) -> Vec<u8> {
    [b"](".to_vec(), items.concat(), b"e".to_vec()].concat()
}

fn dict(pairs: &[(Vec<u8>, Vec<u8>)]) -> Vec<u8> {
    let pairs: Vec<u8> = pairs.iter().flat_map(|(key, value)| [key.clone(), value.clone()].concat()).collect();
    [b"}(".to_vec(), pairs, b"u".to_vec()].concat()
}

fn array(shape: &[i32], code: &str, cells: &[u8]) -> Vec<u8> {
    let made =
        [name("numpy.core.multiarray", "_reconstruct"), name("numpy", "ndarray"), b"K\x00\x85C\x01b\x87R".to_vec()];
    let shape = tuple(&shape.iter().map(|size| int(*size)).collect::<Vec<_>>());
    let dtype = [
        name("numpy", "dtype"),
        text(code),
        b"\x89\x88\x87R(K\x03".to_vec(),
        text("<"),
        b"NNNK\x00K\x00K\x00tb".to_vec(),
    ];
    [made.concat(), b"(K\x01".to_vec(), shape, dtype.concat(), b"\x89".to_vec(), cells.to_vec(), b"tb".to_vec()]
        .concat()
}

fn ints(values: &[i32]) -> Vec<u8> {
    let bytes: Vec<u8> = values.iter().flat_map(|value| value.to_le_bytes()).collect();
    array(&[values.len() as i32], "i4", &[&[b'C', bytes.len() as u8], &bytes[..]].concat())
}

fn singles(values: &[f32]) -> Vec<u8> {
    let bytes: Vec<u8> = values.iter().flat_map(|value| value.to_le_bytes()).collect();
    array(&[values.len() as i32], "f4", &[&[b'C', bytes.len() as u8], &bytes[..]].concat())
}

/// An array file of objects, whose header says this shape.
fn objects(shape: &[usize], items: &[Vec<u8>]) -> Vec<u8> {
    let sizes: Vec<i32> = shape.iter().map(|size| *size as i32).collect();
    let cells = if items.is_empty() { b"]".to_vec() } else { list(items) };
    [&header("|O", shape)[..], &array(&sizes, "O8", &cells), b"."].concat()
}

/// Samples of three parts.
fn samples(parts: &[[Vec<u8>; 3]]) -> Vec<u8> {
    objects(&[parts.len(), 3], &parts.concat())
}

/// Two tables: rows 4 and 6 of the first and row 1 of the second are hot.
fn small() -> [Vec<u8>; 3] {
    let cold = [[ints(&[1, 2]), ints(&[7, 1]), int(1)], [ints(&[0, 5]), ints(&[4, 0]), int(0)]];
    let hot = [[ints(&[3, 4]), singles(&[2.0, 0.0]), int(0)], [ints(&[5, 6]), singles(&[1.0, 0.0]), int(1)]];
    let key = |table, row| tuple(&[int(table), int(row)]);
    let first = dict(&[(key(0, 4), int(2)), (key(0, 6), int(1))]);
    [samples(&cold), samples(&hot), objects(&[2], &[first, dict(&[(key(1, 1), int(0))])])]
}

/// A folder within a folder, so that nobody else's files are in the one above.
fn folder() -> (TempDir, PathBuf) {
    let above = tempfile::tempdir().unwrap();
    let folder = above.path().join("hot_cold");
    fs::create_dir(&folder).unwrap();
    (above, folder)
}

fn write_small(folder: &Path, change: impl Fn(&mut [Vec<u8>; 3])) {
    let mut files = small();
    change(&mut files);
    NAMES.iter().zip(&files).for_each(|(name, bytes)| write_npz(&folder.join(name), &[("arr_0", bytes)]));
}

/// What opening and reading all of it says.
fn fault(folder: &Path) -> Option<String> {
    open(folder).and_then(|set| formats::verify(&set, |_| ())).err().map(|error| error.to_string())
}

#[test]
fn a_few_samples_written_by_hand_are_read_and_sizes_are_those_that_they_need() {
    let (_above, folder) = folder();
    write_small(&folder, |_| ());
    let dataset = open(&folder).unwrap();
    let found = listed(&rows(&dataset, Split::Train));
    let expected =
        serde_json::json!([[1, [1, 2], [7, 1]], [0, [0, 5], [4, 0]], [0, [3, 4], [4, 1]], [1, [5, 6], [6, 1]]]);
    assert_eq!(found, expected);
    assert_eq!(dataset.description, Description::criteo(2, &[8, 2]));
    assert_eq!(hot_rows(&dataset.hot.unwrap().set), serde_json::json!([[4, 6], [1]]));
    // A document beside them has names, and sizes.
    let mut description = Description::criteo(2, &[100, 3]);
    description.categorical[0].name = "user".to_owned();
    fs::write(folder.join("schema.toml"), description.to_toml()).unwrap();
    assert_eq!(open(&folder).unwrap().description, description);
    // Nobody takes memory for samples that no file holds.
    let one = [ints(&[1, 2]), ints(&[7, 1]), int(1)];
    write_small(&folder, |files| files[0] = objects(&[1 << 62, 3], &one));
    assert!(fault(&folder).unwrap().contains("train_normal.npz: says that it has 4611686018427387904 samples, but"));
    // Nothing hot: no sample, and no row.
    fs::remove_file(folder.join("schema.toml")).unwrap();
    write_small(&folder, |files| {
        files[1] = objects(&[0], &[]);
        files[2] = objects(&[2], &[b"}".to_vec(), b"}".to_vec()]);
    });
    let dataset = open(&folder).unwrap();
    assert_eq!(dataset.hot.as_ref().unwrap().tags.count(Inputs::Hot), 0);
    assert_eq!(rows(&dataset, Split::Train).len(), 2);
    // Fractions are read as such.
    write_small(&folder, |files| {
        files[0] = samples(&[[singles(&[1.5, 2.0]), ints(&[7, 1]), int(1)]]);
        files[1] = samples(&[[singles(&[0.5, 0.0]), singles(&[2.0, 0.0]), int(1)]]);
    });
    let dataset = open(&folder).unwrap();
    assert_eq!(rows(&dataset, Split::Train).dense[0], Values::Floats(vec![1.5, 0.5]));
}

#[test]
fn whatever_is_wrong_with_the_three_files_is_told_with_its_place_and_a_remedy() {
    let (_above, folder) = folder();
    let check = |change: &dyn Fn(&mut [Vec<u8>; 3]), words: &[&str]| {
        write_small(&folder, change);
        let message = fault(&folder).unwrap_or_else(|| panic!("{words:?} is not told"));
        let whole = message.starts_with(&folder.display().to_string());
        assert!(whole && words.iter().all(|word| message.contains(word)), "{words:?}: {message}");
    };
    let rerun = "copy the three files of one run of FAE's profiler";
    let cold = |sample: [Vec<u8>; 3]| {
        move |files: &mut [Vec<u8>; 3]| files[0] = samples(&[[ints(&[1, 2]), ints(&[7, 1]), int(1)], sample.clone()])
    };
    let hot = |lookups: Vec<u8>| {
        move |files: &mut [Vec<u8>; 3]| files[1] = samples(&[[ints(&[1, 2]), lookups.clone(), int(1)]])
    };
    let key = |table, row| tuple(&[int(table), int(row)]);
    let tables = |first: Vec<u8>| {
        move |files: &mut [Vec<u8>; 3]| {
            let key = tuple(&[int(1), int(1)]);
            files[2] = objects(&[2], &[first.clone(), dict(&[(key, int(0))])]);
        }
    };

    // A sample and its parts.
    let first =
        |sample: [Vec<u8>; 3]| move |files: &mut [Vec<u8>; 3]| files[0] = samples(std::slice::from_ref(&sample));
    check(&cold([ints(&[1, 2]), ints(&[7, 1]), int(2)]), &["train_normal.npz: sample 1: the label is 2", rerun]);
    check(&cold([ints(&[1, 2]), ints(&[7, 1]), b"N".to_vec()]), &["sample 1: the label is None"]);
    check(&cold([ints(&[1]), ints(&[7, 1]), int(1)]), &["sample 1: has an array of shape [1] for 2 dense", rerun]);
    check(
        &cold([singles(&[1.0, 0.5]), ints(&[7, 1]), int(1)]),
        &["sample 1: dense feature 1 is 0.5", "whole number of 32"],
    );
    check(
        &cold([ints(&[1, 2]), ints(&[7]), int(1)]),
        &["sample 1: has an array of shape [1] for look-ups in 2 tables"],
    );
    check(&cold([ints(&[1, 2]), ints(&[7, -1]), int(1)]), &["sample 1: table 1: look-up -1 is no row's number", rerun]);
    check(&cold([ints(&[1, 2]), singles(&[0.5, 1.0]), int(1)]), &["table 0: look-up 0.5 is no row's number"]);
    let beyond = singles(&[16_777_218.0, 1.0]);
    check(&cold([ints(&[1, 2]), beyond, int(1)]), &["look-up 16777218 is a 32-bit fraction", "dlrm_input_profiler.py"]);
    check(
        &first([int(1), ints(&[7, 1]), int(1)]),
        &["sample 0: has a whole number instead of a row of dense features"],
    );
    let series = list(&[list(&[int(1), int(2)]), list(&[int(1), int(2)])]);
    check(&first([series, ints(&[7, 1]), int(1)]), &["sample 0: holds time series", "octorec preprocess tbsm"]);
    check(&first([dict(&[(int(1), int(2))]), ints(&[7]), int(1)]), &["sample 0: has a dictionary in it", rerun]);
    let lists = |files: &mut [Vec<u8>; 3]| files[0] = objects(&[1], &[list(&[int(1), int(2)])]);
    check(&lists, &["sample 0: has 2 parts instead of 3", rerun]);
    check(&|files| files[0] = objects(&[1], &[int(1)]), &["sample 0: is a whole number instead of 3 parts", rerun]);

    // What hot samples look up.
    check(&hot(singles(&[0.0, 0.0])), &["train_hot.npz: sample 0: table 0: position 0", "is row 1 of table 1", rerun]);
    check(
        &hot(singles(&[2.0, 9.0])),
        &["sample 0: table 1: position 9", "beyond the 3 hot rows of", "hot_emb_dict.npz"],
    );

    // Whole files.
    let three = samples(&[[ints(&[1, 2, 3]), ints(&[1, 0]), int(1)]]);
    check(
        &|files| files[1] = three.clone(),
        &["train_hot.npz: has samples of 3 dense", "train_normal.npz of 2", rerun],
    );
    check(
        &|files| files[..2].fill(objects(&[0], &[])),
        &["train_normal.npz: has no sample, nor has train_hot.npz", rerun],
    );
    let part = [ints(&[1, 2]), ints(&[7, 1]), int(1)];
    check(&|files| files[0] = objects(&[2, 3], &part), &["byte ", "shape [2, 3] is filled with 3 cells"]);
    let shorter = |header_says: &[usize], items: &[Vec<u8>]| {
        let whole = objects(&[items.len() / 3, 3], items);
        [&header("|O", header_says)[..], &whole[128..]].concat()
    };
    check(
        &|files| files[0] = shorter(&[2, 3], &part),
        &["sample 1: is missing, and the file says that it has 2", rerun],
    );
    let twice = [part.clone(), part.clone()].concat();
    check(&|files| files[0] = shorter(&[1, 3], &twice), &["has more than the 1 samples that it says", rerun]);
    check(&|files| files[0] = header("<i4", &[0]).to_vec(), &["has shape [0] and dtype <i4; samples", rerun]);
    check(&|files| files[0] = objects(&[1, 4], &twice[..4]), &["train_normal.npz: has shape [1, 4]", rerun]);
    check(&|files| files[0] = b"text".to_vec(), &["array arr_0: is no NumPy array"]);
    let shell = [&header("|O", &[1, 3])[..], b"cos\nsystem\nX\x02\x00\x00\x00ls\x85R."].concat();
    check(&|files| files[0] = shell.clone(), &["array arr_0: byte 11 of its pickle: names os.system", "is run"]);
    check(
        &|files| files[0].truncate(200),
        &["array arr_0: byte 72 of its pickle: it ends in the middle", "copy or write"],
    );

    // The dictionary.
    check(&|files| files[2] = objects(&[1, 1], &[b"}".to_vec()]), &["hot_emb_dict.npz: has shape [1, 1]", rerun]);
    check(&|files| files[2] = header("<i4", &[2]).to_vec(), &["has dtype <i4; dictionaries", rerun]);
    check(
        &|files| files[2] = objects(&[2], &[int(1), b"}".to_vec()]),
        &["table 0 has a whole number instead of a", rerun],
    );
    check(
        &|files| files[2] = objects(&[1], &[b"}".to_vec()]),
        &["has 1 dictionaries, but samples have 2 dense", rerun],
    );
    check(&tables(dict(&[(int(4), int(1))])), &["table 0: a key is a whole number instead of a table's number", rerun]);
    check(&tables(dict(&[(tuple(&[int(0)]), int(1))])), &["table 0: a key is no table's number with a row's", rerun]);
    check(&tables(dict(&[(key(1, 4), int(1))])), &["table 0: a row of table 1 stands in its dictionary", rerun]);
    check(&tables(dict(&[(key(0, -4), int(1))])), &["table 0: row -4 is none", rerun]);
    check(&tables(dict(&[(key(0, 4), b"N".to_vec())])), &["table 0: row 4 has None instead of a position", rerun]);
    check(&tables(dict(&[(key(0, 4), int(2))])), &["row 4 of table 0 has position 2, but there are 2 hot rows", rerun]);
    check(
        &tables(dict(&[(key(0, 4), int(0))])),
        &["has position 0, as row 4 of table 0 has", "--hot-emb-gpu-mem", rerun],
    );
    let again = dict(&[(key(0, 4), int(1)), (key(0, 4), int(2))]);
    check(&tables(again), &["row 4 of table 0 has two positions", rerun]);

    // Files that are not there, or no archives.
    write_small(&folder, |_| ());
    for name in NAMES {
        let path = folder.join(name);
        let bytes = fs::read(&path).unwrap();
        fs::write(&path, b"no archive").unwrap();
        assert!(fault(&folder).unwrap().contains(&format!("{name}: is no whole NumPy archive")), "{name}");
        write_npz(&path, &[("samples", b"")]);
        assert!(fault(&folder).unwrap().contains(&format!("{name}: has no array arr_0; it has samples.npy")), "{name}");
        let mut flipped = bytes.clone();
        // The last byte of the array, in front of the archive's list of files: the pickle's end.
        let at = flipped.windows(4).rposition(|window| window == b"PK\x01\x02").unwrap();
        flipped[at - 30] ^= 1;
        fs::write(&path, &flipped).unwrap();
        let message = fault(&folder).unwrap();
        assert!(message.contains(name), "{message}");
        fs::remove_file(&path).unwrap();
        let message = fault(&folder).unwrap();
        // Two files are enough to tell what is meant.
        assert!(
            message.contains(&format!("{name}: is missing, and FAE's data are")) && message.contains(rerun),
            "{message}"
        );
        fs::write(&path, &bytes).unwrap();
    }
    assert_eq!(fault(&folder), None);
}

/// Arrays of an archive, by their names.
type Arrays = Vec<(&'static str, Vec<u8>)>;

/// The arrays of `*_processed.npz`.
fn processed(rows: &[[f64; 2]], by_columns: bool) -> Arrays {
    let count = rows.len();
    let ints = |values: Vec<i32>| values.iter().flat_map(|value| value.to_le_bytes()).collect::<Vec<u8>>();
    let mut head = header("<f8", &[count, 2]).to_vec();
    let mut cells: Vec<f64> = rows.concat();
    if by_columns {
        head = String::from_utf8_lossy(&head[6..]).replace("False", "True ").into_bytes();
        head.splice(0..0, *b"\x93NUMPY");
        cells = (0..2).flat_map(|column| rows.iter().map(move |row| row[column])).collect();
    }
    let cells: Vec<u8> = cells.iter().flat_map(|value| value.to_le_bytes()).collect();
    let labels = (0..count as i32).map(|at| at % 2).collect();
    vec![
        ("X_cat", [head, cells].concat()),
        ("X_int", [&header("<i4", &[count, 2])[..], &ints((0..2 * count as i32).collect())].concat()),
        ("y", [&header("<i4", &[count])[..], &ints(labels)].concat()),
        ("counts", [&header("<i4", &[2])[..], &ints(vec![9, 3])].concat()),
    ]
}

fn write_arrays(path: &Path, arrays: &[(&'static str, Vec<u8>)]) {
    let arrays: Vec<_> = arrays.iter().map(|(name, bytes)| (*name, &bytes[..])).collect();
    write_npz(path, &arrays);
}

fn counts(name: &str, values: &[i64]) -> Arrays {
    let bytes: Vec<u8> = values.iter().flat_map(|value| value.to_le_bytes()).collect();
    let name = if name == "counts" { "counts" } else { "total_per_file" };
    vec![(name, [&header("<i8", &[values.len()])[..], &bytes].concat())]
}

#[test]
fn test_samples_and_sizes_come_from_what_the_reference_leaves_beside() {
    let rows_of = [[8.0, 1.0], [0.0, 0.0], [1.0, 1.0], [2.0, 2.0], [3.0, 0.0]];
    for (by_columns, above) in [(false, false), (true, true)] {
        let (outer, folder) = folder();
        write_small(&folder, |_| ());
        let place = if above { outer.path() } else { &folder };
        write_arrays(&place.join("kaggle_processed.npz"), &processed(&rows_of, by_columns));
        // A day's own file is another one.
        fs::write(place.join("train_day_0_processed.npz"), "").unwrap();
        let dataset = open(&folder).unwrap();
        assert_eq!(dataset.description, Description::criteo(2, &[9, 3]), "counts stand there, too");
        assert_eq!(dataset.roles(), [Split::Train], "nothing tells the last day");
        write_arrays(&place.join("train_day_count.npz"), &counts("days", &[2, 3]));
        let dataset = open(&folder).unwrap();
        // Three samples, and the first half of them, rounded up.
        let expected = serde_json::json!([[0, [4, 5], [1, 1]], [1, [6, 7], [2, 2]]]);
        assert_eq!(listed(&rows(&dataset, Split::Test)), expected);
        // All of them tell these samples from others.
        let found = dataset.found().unwrap();
        let mut names: Vec<_> = found.keys().map(|path| path.file_name().unwrap().to_string_lossy()).collect();
        names.sort_unstable();
        let beside = ["kaggle_processed.npz", "train_day_count.npz"];
        assert!(names.len() == 5 && NAMES.iter().chain(&beside).all(|name| names.iter().any(|found| found == name)));
        write_arrays(&place.join("train_fea_count.npz"), &counts("counts", &[100, 4]));
        assert_eq!(open(&folder).unwrap().description, Description::criteo(2, &[100, 4]));
    }
}

#[test]
fn what_lies_beside_is_held_to_the_three_files() {
    let rows_of = [[8.0, 1.0], [0.0, 0.0], [1.0, 1.0], [2.0, 2.0], [3.0, 0.0]];
    let (above, folder) = folder();
    write_small(&folder, |_| ());
    let says = |words: &[&str]| {
        let message = fault(&folder).unwrap_or_else(|| panic!("{words:?} is not told"));
        assert!(words.iter().all(|word| message.contains(word)), "{words:?}: {message}");
    };
    let at = |name: &str| folder.join(name);
    write_arrays(&at("train_fea_count.npz"), &counts("counts", &[100, 4, 5]));
    says(&["train_fea_count.npz: has 3 counts, but", "hot_emb_dict.npz has 2 tables: remove it"]);
    write_arrays(&at("train_fea_count.npz"), &counts("counts", &[6, 4]));
    says(&[
        "train_fea_count.npz: table 0 (C1) has 6 rows, but its row 6 is hot by",
        "copy what belongs to the same data",
    ]);
    write_arrays(&at("train_fea_count.npz"), &counts("counts", &[7, 4]));
    says(&["train_normal.npz: table 0 (C1): row 7 is beyond its 7 rows (sample 0)", "belongs to other data"]);
    write_arrays(&at("train_fea_count.npz"), &counts("counts", &[0, 4]));
    says(&["train_fea_count.npz: column C1 has 0 rows"]);
    fs::write(at("train_fea_count.npz"), "no archive").unwrap();
    says(&["train_fea_count.npz: is no whole NumPy archive"]);
    write_arrays(&at("train_fea_count.npz"), &counts("counts", &[9, 4]));
    write_arrays(&at("other_fea_count.npz"), &counts("counts", &[9, 4]));
    says(&["_fea_count.npz: could be meant, or", "copy that of these data beside", "train_hot.npz"]);
    fs::rename(at("other_fea_count.npz"), above.path().join("other_fea_count.npz")).unwrap();
    assert_eq!(fault(&folder), None, "that in the folder itself is meant");

    let mut description = Description::criteo(2, &[100, 3, 5]);
    let write = |description: &Description| fs::write(at("schema.toml"), description.to_toml()).unwrap();
    write(&description);
    says(&[
        "schema.toml: has 2 dense and 3 categorical columns, but samples have 2 dense features (whole numbers) and 2",
    ]);
    description.categorical.pop();
    description.dense[1].float = true;
    write(&description);
    says(&["schema.toml: column I2: the files have whole numbers there: write float = false"]);
    description.dense[1].float = false;
    description.categorical[1].hots = 2;
    write(&description);
    says(&["schema.toml: column C2: FAE's samples look up one row a column", "leave hots and weighted away"]);
    fs::remove_file(at("schema.toml")).unwrap();

    write_arrays(&at("train_day_count.npz"), &counts("days", &[2, 3]));
    let changed = |change: &dyn Fn(&mut Arrays), words: &[&str]| {
        let mut arrays = processed(&rows_of, false);
        change(&mut arrays);
        write_arrays(&at("x_processed.npz"), &arrays);
        says(&[&["x_processed.npz: "], words].concat());
    };
    changed(&|arrays| arrays[0].1.truncate(150), &["array X_cat: cannot be read", "copy or write the file again"]);
    changed(
        &|arrays| arrays[0].1[128 + 32..][..8].copy_from_slice(&0.5f64.to_le_bytes()),
        &["sample 2: array X_cat has 0.5: a row's number is expected"],
    );
    changed(&|arrays| arrays[2].1[128 + 8] = 7, &["sample 2: array y has 7: a label is 0 or 1"]);
    changed(&|arrays| arrays[2].1 = header("|b1", &[5]).to_vec(), &["array y: has dtype |b1", "astype"]);
    changed(
        &|arrays| arrays[1].1 = header("<i4", &[5, 3]).to_vec(),
        &["array X_int: has 3 columns, but", "remove the file"],
    );
    changed(&|arrays| arrays[1].1 = header("<i4", &[5, 2, 1]).to_vec(), &["array X_int: has shape [5, 2, 1]"]);
    changed(
        &|arrays| arrays[1].1 = header("<i4", &[6, 2]).to_vec(),
        &["has 6 samples, but", "train_day_count.npz counts others"],
    );
    changed(&|arrays| drop(arrays.remove(1)), &["has no array X_int; it has X_cat.npy, y.npy, counts.npy"]);
    let single = [&header("<f4", &[5, 2])[..], &[0; 40]].concat();
    write_arrays(&at("x_processed.npz"), &{
        let mut arrays = processed(&rows_of, false);
        arrays[1].1 = single;
        arrays
    });
    assert_eq!(fault(&folder), None, "fractions without a fraction are whole numbers");
    changed(
        &|arrays| arrays[0].1[128 + 32..][..8].copy_from_slice(&9f64.to_le_bytes()),
        &["table 0 (C1): row 9 is beyond its 9 rows"],
    );
}

/// Damage to a compressed archive rarely reaches what is inside.
#[test]
fn no_damage_makes_it_panic_and_none_of_a_compressed_file_passes() {
    let mut chance = Chance::new(2022, 0);
    for folder_of in ["kaggle/kaggle_hot_cold", "processes", "tutorial"] {
        let (_above, folder) = folder();
        let from = Path::new(VECTORS).join(folder_of);
        for name in NAMES {
            fs::copy(from.join(name), folder.join(name)).unwrap();
        }
        let sound = listed(&rows(&open(&folder).unwrap(), Split::Train));
        for name in NAMES {
            let path = folder.join(name);
            let whole = fs::read(&path).unwrap();
            let inside = read_npz(&path, "arr_0");
            for turn in 0..60 {
                let mut bytes = whole.clone();
                let what = damage(&mut chance, &mut bytes);
                fs::write(&path, &bytes).unwrap();
                if fault(&folder).is_none() && what.plain {
                    assert_eq!(listed(&rows(&open(&folder).unwrap(), Split::Train)), sound, "{name}: {}", what.what);
                }
                let mut bytes = inside.clone();
                damage(&mut chance, &mut bytes);
                write_npz(&path, &[("arr_0", &bytes)]);
                let message = fault(&folder).unwrap_or_else(|| name.to_owned());
                assert!(message.contains(".npz"), "turn {turn}: {message}");
            }
            fs::write(&path, &whole).unwrap();
        }
    }
}
