//! Foreign formats: fixtures made from the documented layouts are read as they should be, what is written comes back,
//! every readable data set trains, and faults are named.

use std::collections::BTreeMap;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::{Arc, LazyLock};

use octorec::base::Result;
use octorec::base::config::{Config, DataConfig, OnBadRow, SourceKind};
use octorec::data::blocks::{Codec, Options};
use octorec::data::formats::{self, Dataset, Format, Target, npy};
use octorec::data::samples::{MISSING, Samples, Values};
use octorec::data::schema::{Categorical, Dense};
use octorec::data::{self, Batch, Criteo, Description, Opening, Source, Split};
use proptest::prelude::*;

const ROWS: [u64; 26] = [
    3, 126, 127, 128, 32_766, 32_767, 40_000, 70_000, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22,
];

fn log() -> (Criteo, DataConfig) {
    let config = DataConfig { train_samples: 1000, test_samples: 301, ..DataConfig::default() };
    (Criteo::new(&config, &ROWS, 13).unwrap(), config)
}

/// Writes the built-in click log in a format.
fn generate(folder: &Path, format: Format, description: &Description, change: &dyn Fn(&mut Samples)) {
    write(folder, format, description, 100, change);
}

fn write(folder: &Path, format: Format, description: &Description, block_rows: u32, change: &dyn Fn(&mut Samples)) {
    let (log, _) = log();
    let options = Options { codec: Codec::Zstd, block_rows };
    let mut target = Target::create(folder, format, description, options).unwrap();
    for (split, count) in [(Split::Train, 1000), (Split::Test, 301)] {
        target
            .write(split, |sink| {
                for from in (0..count).step_by(128) {
                    let mut samples = Samples::new(&log.description());
                    log.fill(split, from..count.min(from + 128), &mut samples);
                    change(&mut samples);
                    sink.push(&samples)?;
                }
                Ok(count)
            })
            .unwrap();
    }
    assert!(target.seal().unwrap() > 0);
}

/// The built-in click log in every format that is written, made once.
static SETS: LazyLock<Vec<(Format, tempfile::TempDir)>> = LazyLock::new(|| {
    let made = |format| {
        let folder = tempfile::tempdir().unwrap();
        generate(folder.path(), format, &log().0.description(), &|_| ());
        (format, folder)
    };
    Format::WRITTEN.iter().copied().map(made).collect()
});

fn files(folder: &Path) -> Vec<PathBuf> {
    let mut files = Vec::new();
    for folder in [folder.to_owned(), folder.join("train"), folder.join("test")] {
        files.extend(std::fs::read_dir(folder).into_iter().flatten().map(|entry| entry.unwrap().path()));
    }
    files.retain(|file| file.is_file());
    files.sort();
    files
}

/// All rows of a role.
pub fn rows(dataset: &Dataset, role: Split) -> Samples {
    let mut all = Samples::new(&dataset.description);
    for member in dataset.members.iter().filter(|member| member.role == role) {
        formats::scan(&*member.table, 0, member.table.rows(), |samples| {
            all.extend_from(samples, 0..samples.len(), &dataset.description);
            Ok(())
        })
        .unwrap();
    }
    all.check(&dataset.description);
    all
}

fn source(path: &Path, rows_cap: u64) -> Result<Arc<dyn Source>> {
    let mut config = Config::default();
    config.data = DataConfig { source: SourceKind::Files, path: path.display().to_string(), rows_cap, ..config.data };
    data::open(&config, Opening::default())
}

fn read(source: &dyn Source, split: Split, start: u64, limit: usize) -> Batch {
    let mut batch = Batch::new(source.schema());
    let mut reader = source.open(split, start).unwrap();
    while reader.read(&mut batch, limit).unwrap() == limit {}
    batch.check(source.schema()).unwrap();
    batch
}

/// Whoever maps such a file dies of SIGBUS instead.
#[test]
fn a_file_that_is_cut_short_while_it_is_read_is_named() {
    // octorec's own files are replaced, never written into; they are mapped.
    for &format in Format::WRITTEN.iter().filter(|&&format| format != Format::Octorec) {
        let folder = tempfile::tempdir().unwrap();
        // Few rows a block, so that a row group of Parquet ends before the samples do.
        write(folder.path(), format, &log().0.description(), 4, &|_| ());
        let source = source(folder.path(), 0).unwrap();
        let mut reader = source.open(Split::Train, 0).unwrap();
        let mut batch = Batch::new(source.schema());
        assert_eq!(reader.read(&mut batch, 100).unwrap(), 100);
        for file in files(folder.path()) {
            std::fs::File::options().write(true).open(file).unwrap().set_len(64).unwrap();
        }
        let message = loop {
            match reader.read(&mut batch, 100) {
                Ok(read) => assert!(read == 100 && batch.samples() < 1000, "{} is read to its end", format.name()),
                Err(error) => break error.to_string(),
            }
        };
        let named = files(folder.path()).iter().any(|file| message.starts_with(&file.display().to_string()));
        let told = message.contains("was cut short while it was read") && message.contains("has 64 now");
        assert!(named && told, "{}: {message}", format.name());
    }
}

#[test]
fn every_format_trains_on_the_same_samples() {
    let (log, _) = log();
    for &format in Format::WRITTEN {
        let folder = tempfile::tempdir().unwrap();
        generate(folder.path(), format, &log.description(), &|_| ());
        assert_eq!(Format::detect(folder.path()), Some(format));
        let source = source(folder.path(), 0).unwrap();
        assert_eq!(source.schema().rows(), ROWS, "{}", format.name());
        for (split, count) in [(Split::Train, 1000), (Split::Test, 301)] {
            assert_eq!(source.samples(split), Some(count));
            let (found, expected) = (read(&*source, split, 0, 77), read(&log, split, 0, 77));
            assert_eq!((&found.labels, &found.bags), (&expected.labels, &expected.bags), "{}", format.name());
            // Split binary has dense features of 11 bits.
            let error = if format == Format::Nvidia { 5e-4 } else { 0.0 };
            let close = |(a, b): (&f32, &f32)| (a - b).abs() <= error * b.abs();
            assert!(found.dense.iter().zip(&expected.dense).all(close), "{}", format.name());
            let past = source.open(split, count + 1).err().unwrap().to_string();
            assert!(past.contains(&format!("sample {} is asked for", count + 1)), "{past}");
        }
        let dataset = formats::open(folder.path(), None, None).unwrap();
        let counted = std::sync::atomic::AtomicU64::new(0);
        let add = |rows| {
            counted.fetch_add(rows, std::sync::atomic::Ordering::Relaxed);
        };
        assert_eq!((formats::verify(&dataset, add).unwrap(), counted.into_inner()), (1301, 1301));
        let again = Target::create(folder.path(), format, &log.description(), Options::default()).err().unwrap();
        assert!(again.to_string().contains("holds a data set already"), "{again}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(12))]

    #[test]
    fn a_reader_opened_anywhere_continues_exactly(start in 0u64..1001, limit in 1usize..300, test: bool, cap: bool) {
        for (format, folder) in &*SETS {
            let source = source(folder.path(), if cap { 100 } else { 0 }).unwrap();
            let split = if test { Split::Test } else { Split::Train };
            let start = start.min(source.samples(split).unwrap());
            let whole = read(&*source, split, 0, 4096);
            let found = read(&*source, split, start, limit);
            let mut expected = Batch::new(source.schema());
            (start..source.samples(split).unwrap()).for_each(|n| expected.push_from(&whole, n as usize));
            prop_assert!(found == expected, "{}", format.name());
        }
    }
}

#[test]
fn conversion_keeps_every_integer() {
    let (log, _) = log();
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    // Ids and counts that no f32 holds.
    let mut description = log.description();
    description.categorical[7].rows = 1 << 30;
    let change = |samples: &mut Samples| {
        samples.lookups[7].rows.iter_mut().for_each(|row| *row += (1 << 29) + 1);
        if let Values::Integers(values) = &mut samples.dense[0] {
            values.iter_mut().filter(|value| **value != MISSING).for_each(|value| *value += (1 << 24) + 1);
        }
    };
    generate(&at("octorec"), Format::Octorec, &description, &change);
    let convert = |from: &str, to: &str, format| {
        let dataset = formats::open(&at(from), None, None).unwrap();
        let mut target = Target::create(&at(to), format, &dataset.description, Options::default()).unwrap();
        let mut told = 0;
        assert_eq!(formats::convert(&dataset, &mut target, |done| told = done).unwrap(), 1301);
        assert_eq!(told, 1301);
        target.seal().unwrap();
    };
    convert("octorec", "mlperf", Format::Mlperf);
    convert("mlperf", "again", Format::Octorec);
    convert("again", "torchrec", Format::Torchrec);
    let all = |name: &str| formats::open(&at(name), None, None).unwrap();
    let (first, binary, last) = (all("octorec"), all("mlperf"), all("again"));
    assert_eq!((&first.description, &binary.description), (&last.description, &last.description));
    for role in [Split::Train, Split::Test] {
        let (mut first, binary, last) = (rows(&first, role), rows(&binary, role), rows(&last, role));
        for values in &mut first.dense {
            let Values::Integers(values) = values else { panic!("integers stay integers") };
            // The 160-byte layout knows neither missing nor negative integers.
            values.iter_mut().for_each(|value| *value = (*value).max(0));
        }
        assert!(first == binary && binary == last);
        assert!(all("torchrec").rows(role) == last.len() as u64);
        assert!(rows(&all("torchrec"), role).lookups == last.lookups);
    }
    // The same bytes every time.
    convert("mlperf", "twice", Format::Octorec);
    for part in ["part-00000.octo", "part-00001.octo", "dataset.toml"] {
        let bytes = |name: &str| std::fs::read(at(name).join(part)).unwrap();
        assert!(bytes("again") == bytes("twice"), "{part}");
    }
}

#[test]
fn many_look_ups_and_weights_are_kept_or_refused() {
    let folder = tempfile::tempdir().unwrap();
    let column = |name: &str, hots, weighted| Categorical { hots, weighted, ..Categorical::new(name, 50) };
    let description = |columns: Vec<Categorical>| Description {
        dense: vec![Dense { name: "d".to_owned(), float: true, ..Dense::default() }],
        categorical: columns,
        ..Description::default()
    };
    let write = |name: &str, format, description: &Description, samples: &Samples| -> Result<PathBuf> {
        let path = folder.path().join(name);
        let mut target = Target::create(&path, format, description, Options::default())?;
        target.write(Split::Train, |sink| {
            sink.push(samples)?;
            Ok(samples.len() as u64)
        })?;
        target.seal()?;
        Ok(path)
    };
    let fixed = description(vec![column("a", 3, false), column("b", 1, false)]);
    let mut samples = Samples::new(&fixed);
    samples.labels = vec![1.0, 0.0];
    samples.dense[0] = Values::Floats(vec![0.5, -0.25]);
    samples.lookups[0].rows = vec![1, 2, 3, 4, 5, 49];
    samples.lookups[1].rows = vec![9, 8];
    for format in [Format::Octorec, Format::Torchrec, Format::Hugectr] {
        let path = write(format.name(), format, &fixed, &samples).unwrap();
        let dataset = formats::open(&path, None, None).unwrap();
        assert_eq!(dataset.description, fixed);
        assert_eq!(rows(&dataset, Split::Train), samples);
        let source = source(&path, 10).unwrap();
        assert_eq!((source.schema().longest(), source.schema().rows()), (3, vec![10, 10]));
        let batch = read(&*source, Split::Train, 0, 5);
        assert_eq!((batch.samples(), batch.bags[0].of(0)), (1, &[1, 2, 3][..]));
        assert_eq!(read(&*source, Split::Test, 0, 5).bags[0].of(0), [4, 5, 9], "the last tenth, at least one sample");
    }
    // Of one long list among short ones not every sample has the room.
    let lists = description(vec![column("a", 0, false)]);
    let mut long = Samples { lookups: Samples::new(&lists).lookups, ..samples.clone() };
    (long.lookups[0].rows, long.lookups[0].ends) = (vec![7; 5001], vec![5000, 5001]);
    let long = source(&write("lists", Format::Octorec, &lists, &long).unwrap(), 0).unwrap();
    assert_eq!(long.schema().longest(), 1024);
    assert_eq!(read(&*long, Split::Train, 0, 5).bags[0].of(0).len(), 5000);
    for (format, told) in [(Format::Mlperf, "13 dense and 26"), (Format::Nvidia, "one look-up a column without weight")]
    {
        let message = write("refused", format, &fixed, &samples).unwrap_err().to_string();
        assert!(message.contains(told), "{message}");
    }
    let weighted = description(vec![column("a", 0, true)]);
    let mut samples = Samples::new(&weighted);
    samples.labels = vec![1.0, 0.0];
    samples.dense[0] = Values::Floats(vec![0.5, f32::NAN]);
    samples.lookups[0].rows = vec![1, 2, 3];
    samples.lookups[0].ends = vec![0, 3];
    samples.lookups[0].weights = vec![0.5, 0.25, 2.0];
    let path = write("weighted", Format::Octorec, &weighted, &samples).unwrap();
    let dataset = formats::open(&path, None, None).unwrap();
    assert_eq!(rows(&dataset, Split::Train).lookups, samples.lookups);
    let source = source(&path, 0).unwrap();
    assert!(source.schema().tables[0].weighted);
    // The second sample is the test split's.
    let batch = read(&*source, Split::Test, 0, 5);
    assert_eq!((&batch.bags[0].rows[..], &batch.weights[0][..]), (&[1, 2, 3][..], &[0.5, 0.25, 2.0][..]));
    let message = write("refused", Format::Torchrec, &weighted, &samples).unwrap_err().to_string();
    assert!(message.contains("unlike column a"), "{message}");
}

#[test]
fn raw_rows_of_hugectr_have_the_documented_layout_and_their_faults_are_named() {
    // MLPerf's DCNv2 data: 1 + 13 + 214 words.
    const HOTS: [u32; 26] = [3, 2, 1, 2, 6, 1, 1, 1, 1, 7, 3, 8, 1, 6, 9, 5, 1, 1, 1, 12, 100, 27, 10, 3, 1, 1];
    let folder = tempfile::tempdir().unwrap();
    let mut description = Description::criteo(13, &[300; 26]);
    description.categorical.iter_mut().zip(HOTS).for_each(|(column, hots)| column.hots = hots);
    std::fs::write(folder.path().join("schema.toml"), description.to_toml()).unwrap();
    let mut bytes = Vec::new();
    for n in 0..5i32 {
        bytes.extend((n % 2).to_le_bytes());
        (0..13).for_each(|column| bytes.extend((n as f32 + column as f32 / 16.0).to_le_bytes()));
        (0..214).for_each(|lookup| bytes.extend((n + lookup).to_le_bytes()));
    }
    assert_eq!(bytes.len(), 5 * 912);
    std::fs::write(folder.path().join("train_data.bin"), &bytes).unwrap();
    let dataset = formats::open(folder.path(), None, None).unwrap();
    let samples = rows(&dataset, Split::Train);
    assert_eq!(samples.labels, [0.0, 1.0, 0.0, 1.0, 0.0]);
    assert_eq!(samples.dense[3], Values::Floats((0..5).map(|n| n as f32 + 3.0 / 16.0).collect()));
    assert_eq!(samples.lookups[1].rows, [3, 4, 4, 5, 5, 6, 6, 7, 7, 8]);
    assert_eq!(samples.lookups[25].rows, [213, 214, 215, 216, 217]);
    let message = |bytes: &[u8]| {
        std::fs::write(folder.path().join("train_data.bin"), bytes).unwrap();
        let opened = formats::open(folder.path(), None, None);
        opened.and_then(|dataset| formats::verify(&dataset, |_| ())).unwrap_err().to_string()
    };
    assert!(message(&bytes[..4000]).contains("its 4000 bytes are no whole number of rows of 912 bytes"));
    let mut bad = bytes.clone();
    bad[912] = 7;
    assert!(message(&bad).contains("row 1: the label is 7; 0 or 1 expected"), "{}", message(&bad));
    let mut bad = bytes.clone();
    bad[2 * 912 + 4 * 14 + 1] = 2;
    assert!(message(&bad).contains("table 0 (C1): row 514 is beyond its 300 rows (sample 2"), "{}", message(&bad));
    // A limit on rows does not make a row of it that others have.
    let capped = source(folder.path(), 100).unwrap();
    let mut batch = Batch::new(capped.schema());
    let found = capped.open(Split::Train, 0).unwrap().read(&mut batch, 4).unwrap_err().to_string();
    assert!(found.contains("table 0 (C1): row 514 is beyond its 300 rows (sample 2"), "{found}");
    std::fs::remove_file(folder.path().join("schema.toml")).unwrap();
    assert!(message(&bytes).contains("there must be a schema.toml beside them"));
}

/// A row of the 160-byte layout, as the reference's documentation has it.
fn row(label: i32, dense: i32, category: i32) -> Vec<u8> {
    let words = [label].into_iter().chain([dense; 13]).chain([category; 26]);
    words.flat_map(i32::to_le_bytes).collect()
}

fn counts(folder: &Path, dtype: &str, numbers: &[u8], count: usize, deflated: bool) {
    let file = std::fs::File::create(folder.join("day_fea_count.npz")).unwrap();
    let mut archive = zip::ZipWriter::new(file);
    let method = if deflated { zip::CompressionMethod::Deflated } else { zip::CompressionMethod::Stored };
    archive.start_file("counts.npy", zip::write::SimpleFileOptions::default().compression_method(method)).unwrap();
    archive.write_all(&npy::header(dtype, &[count])).unwrap();
    archive.write_all(numbers).unwrap();
    archive.finish().unwrap();
}

#[test]
fn the_160_byte_layout_is_read_and_its_faults_are_named() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("terabyte_processed_train.bin");
    let bytes = [row(1, 9, 5), row(0, 0, 99), row(1, -1, 41)].concat();
    std::fs::write(&path, &bytes).unwrap();
    let message = |path: &Path| source(path, 0).err().unwrap().to_string();
    assert!(message(folder.path()).contains("there is no day_fea_count.npz"), "{}", message(folder.path()));
    let sizes: Vec<u8> = [100i32; 26].into_iter().flat_map(i32::to_le_bytes).collect();
    for deflated in [false, true] {
        counts(folder.path(), "<i4", &sizes, 26, deflated);
        for path in [folder.path(), &path] {
            let source = source(path, 40).unwrap();
            let mut batch = Batch::new(source.schema());
            assert_eq!(source.open(Split::Train, 0).unwrap().read(&mut batch, 2).unwrap(), 2);
            assert_eq!(source.schema().rows(), [40; 26]);
            assert_eq!(batch.labels, [1.0, 0.0]);
            assert_eq!(batch.dense[..14], [&[std::f32::consts::LN_10; 13][..], &[0.0]].concat()[..]);
            assert_eq!(batch.bags[25].rows, [5, 99 % 40], "the limit is applied at load");
            assert_eq!(read(&*source, Split::Test, 0, 10).dense, [0.0; 13], "negative counts are 0");
        }
    }
    std::fs::write(&path, &bytes[..330]).unwrap();
    assert!(message(&path).contains("is truncated: row 2 has 10 of 160 bytes"), "{}", message(&path));
    std::fs::write(&path, [row(1, 9, 5), row(7, 0, 9)].concat()).unwrap();
    let dataset = formats::open(&path, None, None).unwrap();
    let text = formats::verify(&dataset, |_| ()).unwrap_err().to_string();
    assert!(text.contains("row 1: the label is 7; 0 or 1 expected"), "{text}");
    std::fs::write(&path, [row(1, 9, 5), row(0, 0, -9)].concat()).unwrap();
    let dataset = formats::open(&path, None, None).unwrap();
    let text = formats::verify(&dataset, |_| ()).unwrap_err().to_string();
    assert!(text.contains("table 0 (C1): row 4294967287 is beyond its 100 rows (sample 1"), "{text}");
    let wide: Vec<u8> = [100f64; 26].into_iter().flat_map(f64::to_le_bytes).collect();
    counts(folder.path(), "<f8", &wide, 26, false);
    assert!(message(&path).contains("array counts: has dtype <f8; <i4 or <i8"), "{}", message(&path));
    counts(folder.path(), "<i4", &sizes[..100], 25, false);
    assert!(message(&path).contains("has 25 counts, but a row has 26"), "{}", message(&path));
    counts(folder.path(), "<i4", &sizes[..50], 26, false);
    assert!(message(&path).contains("array counts: is truncated"), "{}", message(&path));
    std::fs::write(folder.path().join("day_fea_count.npz"), b"PK, but no archive").unwrap();
    assert!(message(&path).contains("is no whole NumPy archive"), "{}", message(&path));
}

const SPEC: &str = "\
feature_spec:
  cat_0.bin: {cardinality: 3, dtype: int8}
  cat_1.bin: {cardinality: 40000, dtype: int32}
  label: {dtype: bool}
  num_0: {dtype: float16}
  num_1: {dtype: float16}
source_spec:
  train:
  - type: split_binary
    features: [num_0, num_1]
    files: [train/numerical.bin]
  - type: split_binary
    features: [label]
    files: [train/label.bin]
  - type: split_binary
    features: [cat_0.bin]
    files: [train/cat_0.bin]
  - type: split_binary
    features: [cat_1.bin]
    files: [train/cat_1.bin]
channel_spec:
  categorical: [cat_0.bin, cat_1.bin]
  label: [label]
  numerical: [num_0, num_1]
metadata: {}
";

#[test]
fn what_tells_columns_from_others_is_taken_of_every_file() {
    let folder = tempfile::tempdir().unwrap();
    generate(folder.path(), Format::Nvidia, &log().0.description(), &|_| ());
    let fingerprint = || source(folder.path(), 0).unwrap().fingerprint(Split::Train).unwrap();
    let before = fingerprint();
    for name in ["numerical.bin", "cat_0.bin", "cat_25.bin"] {
        let path = folder.path().join("train").join(name);
        let whole = std::fs::read(&path).unwrap();
        let mut other = whole.clone();
        other[0] ^= 1;
        std::fs::write(&path, other).unwrap();
        assert_ne!(fingerprint(), before, "{name}");
        std::fs::write(&path, whole).unwrap();
    }
}

#[test]
fn split_binary_is_read_and_a_contradicting_spec_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let train = folder.path().join("train");
    std::fs::create_dir(&train).unwrap();
    let whole = || {
        std::fs::write(folder.path().join("feature_spec.yaml"), SPEC).unwrap();
        std::fs::write(train.join("label.bin"), [1, 0]).unwrap();
        // 1, -2, 0.5, 65504 as halves.
        std::fs::write(train.join("numerical.bin"), [0, 0x3C, 0, 0xC0, 0, 0x38, 0xFF, 0x7B]).unwrap();
        std::fs::write(train.join("cat_0.bin"), [2, 1]).unwrap();
        std::fs::write(train.join("cat_1.bin"), [0x3F, 0x9C, 0, 0, 7, 0, 0, 0]).unwrap();
    };
    whole();
    let dataset = formats::open(folder.path(), None, None).unwrap();
    let samples = rows(&dataset, Split::Train);
    assert_eq!(samples.labels, [1.0, 0.0]);
    assert_eq!(samples.dense, [Values::Floats(vec![1.0, 0.5]), Values::Floats(vec![-2.0, 65504.0])]);
    assert_eq!([&samples.lookups[0].rows, &samples.lookups[1].rows], [&[2, 1], &[39_999, 7]]);
    let fault = |file: &str, bytes: &[u8]| {
        whole();
        std::fs::write(folder.path().join(file), bytes).unwrap();
        formats::open(folder.path(), None, None)
            .and_then(|dataset| formats::verify(&dataset, |_| ()))
            .unwrap_err()
            .to_string()
    };
    let spec = |from: &str, to: &str| fault("feature_spec.yaml", SPEC.replacen(from, to, 1).as_bytes());
    for (found, told) in [
        (fault("train/cat_0.bin", &[2]), "cat_0.bin: has 1 rows, but "),
        (fault("train/cat_1.bin", &[2; 7]), "its 7 bytes are no whole number of rows"),
        (fault("train/cat_0.bin", &[2, 3]), "table 0 (cat_0.bin): row 3 is beyond its 3 rows (sample 1"),
        (fault("train/label.bin", &[0, 2]), "row 1: the label is 2"),
        (spec("dtype: int8", "dtype: int64"), "cat_0.bin has the unknown dtype int64"),
        (spec("dtype: int8", "dtype: int16"), "cat_0.bin: has 1 rows, but "),
        (spec("cardinality: 3, ", ""), "cat_0.bin has no cardinality"),
        (spec("categorical: [cat_0.bin, ", "categorical: [cat_9.bin, "), "cat_9.bin has no cardinality"),
        (spec("features: [cat_1.bin]", "features: [cat_0.bin]"), "train has no file with the feature cat_1.bin"),
        (spec("split_binary", "csv"), "type csv cannot be read"),
        (spec("  train:", "  weekdays:"), "weekdays is neither train, val nor test"),
        (spec("label: [label]", "label: []"), "label names 0 features"),
        (fault("feature_spec.yaml", b"feature_spec: [\n"), "is no feature spec"),
    ] {
        assert!(found.contains(told), "{told}: {found}");
    }
    std::fs::remove_file(train.join("cat_1.bin")).unwrap();
    let message = formats::open(folder.path(), None, None).err().unwrap().to_string();
    assert!(message.contains("cat_1.bin: cannot open") || message.contains("feature spec"), "{message}");
}

fn array(path: &Path, dtype: &str, shape: &[usize], numbers: &[u8]) {
    std::fs::write(path, [&npy::header(dtype, shape)[..], numbers].concat()).unwrap();
}

#[test]
fn torchrecs_days_are_read_its_last_one_split_as_it_does() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    let words = |words: &[i32]| words.iter().flat_map(|word| word.to_le_bytes()).collect::<Vec<u8>>();
    // Days 2 and 10: in the order of their numbers, so day 10 is the last.
    for (day, rows) in [(2, 2usize), (10, 3)] {
        let first = day * 10;
        let numbers: Vec<i32> = (first..first + rows as i32).collect();
        let pairs: Vec<i32> = numbers.iter().flat_map(|&n| [n, n + 1]).collect();
        array(&at(&format!("day_{day}_dense.npy")), "<f4", &[rows, 1], &words(&vec![1f32.to_bits() as i32; rows]));
        array(&at(&format!("day_{day}_labels.npy")), "<i4", &[rows, 1], &words(&vec![day % 3 % 2; rows]));
        array(&at(&format!("day_{day}_sparse.npy")), "<i4", &[rows, 2], &words(&pairs));
    }
    let dataset = formats::open(folder.path(), None, None).unwrap();
    let ids = |role| rows(&dataset, role).lookups[0].rows.clone();
    assert_eq!(dataset.description.schema(0).rows(), [103, 104], "sizes are found where no schema.toml has them");
    assert_eq!(ids(Split::Train), [20, 21]);
    assert_eq!(
        (ids(Split::Validation), ids(Split::Test)),
        (vec![100, 101], vec![102]),
        "TorchRec's meaning of the two"
    );
    let fault = |name: &str, dtype: &str, shape: &[usize], numbers: &[u8]| {
        let old = std::fs::read(at(name)).unwrap();
        array(&at(name), dtype, shape, numbers);
        let message = formats::open(folder.path(), None, None).err().unwrap().to_string();
        std::fs::write(at(name), old).unwrap();
        message
    };
    for (found, told) in [
        (fault("day_2_sparse.npy", "<i8", &[2, 2], &[0; 32]), "has dtype <i8; <i4 expected"),
        (fault("day_2_sparse.npy", "<i4", &[2, 2], &[0; 15]), "is truncated: shape [2, 2] of <i4"),
        (fault("day_2_sparse.npy", "<i4", &[1, 2], &[0; 8]), "has 1 rows, but "),
        (fault("day_2_sparse.npy", "<i4", &[2, 1], &[0; 8]), "has other columns than"),
        (fault("day_2_labels.npy", "<i4", &[2, 2], &[0; 16]), "has shape [2, 2]; 1 columns expected"),
        (fault("day_2_sparse.npy", "<i4", &[2, 2], &[255; 16]), "4294967296 rows"),
    ] {
        assert!(found.contains(told), "{told}: {found}");
    }
    let dense = |last: f32| {
        array(&at("day_2_dense.npy"), "<f4", &[2, 1], &words(&[1.0, last].map(|x: f32| x.to_bits() as i32)));
        formats::verify(&formats::open(folder.path(), None, None).unwrap(), |_| ())
    };
    let message = dense(f32::INFINITY).unwrap_err().to_string();
    assert!(message.contains("day_2_dense.npy: row 1: column "), "{message}");
    assert!(message.contains("a finite number is expected, found inf"), "{message}");
    assert!(dense(f32::NAN).is_ok(), "what is missing is no fault");
    std::fs::remove_file(at("day_2_labels.npy")).unwrap();
    assert!(
        formats::open(folder.path(), None, None).err().unwrap().to_string().contains("day_2_labels.npy: cannot open")
    );
}

#[test]
fn test_samples_in_other_files_may_ask_for_more_rows_and_have_the_same_columns() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    let write = |name: &str, most: u8| {
        std::fs::create_dir(at(name)).unwrap();
        array(&at(name).join("day_0_dense.npy"), "<f4", &[2, 1], &[0; 8]);
        array(&at(name).join("day_0_labels.npy"), "<i4", &[2, 1], &[0, 0, 0, 0, 1, 0, 0, 0]);
        array(&at(name).join("day_0_sparse.npy"), "<i4", &[2, 1], &[0, 0, 0, 0, most, 0, 0, 0]);
        at(name).display().to_string()
    };
    let (path, test_path) = (write("train", 4), write("test", 9));
    let config = DataConfig { path, test_path, ..DataConfig::default() };
    let files = formats::Files::open(&config, Opening::default()).unwrap();
    assert_eq!((files.schema().rows(), files.samples(Split::Test)), (vec![10], Some(2)));
    array(&at("test/day_0_dense.npy"), "<f4", &[2, 2], &[0; 16]);
    let told = formats::Files::open(&config, Opening::default()).err().unwrap().to_string();
    assert!(
        told.contains("has other columns than") && told.contains("2 dense and 1 categorical ones, not 1 and 1"),
        "{told}"
    );
    // Where somebody has said how many rows there are, it is they that differ.
    array(&at("test/day_0_dense.npy"), "<f4", &[2, 1], &[0; 8]);
    for (name, rows) in [("train", 5), ("test", 11)] {
        std::fs::write(at(name).join("schema.toml"), Description::criteo(1, &[rows]).to_toml()).unwrap();
    }
    let told = formats::Files::open(&config, Opening::default()).err().unwrap().to_string();
    assert!(told.contains("C1 has 11 rows, not 5"), "{told}");
    // Those of another set are all for tests, but none that is for training, whatever names it.
    for (format, set) in SETS.iter() {
        let part = match format {
            Format::Octorec => "part-00000.octo",
            Format::Mlperf => "octorec_train.bin",
            Format::Nvidia => "feature_spec.yaml",
            Format::Torchrec => "day_0_dense.npy",
            Format::Parquet => "train/part_0.parquet",
            _ => "train_data.bin",
        };
        let other = tempfile::tempdir().unwrap();
        generate(other.path(), *format, &log().0.description(), &|_| ());
        let open = |test: &Path| {
            let mut config = Config::default();
            let [path, test_path] = [set.path(), test].map(|path| path.display().to_string());
            config.data = DataConfig { source: SourceKind::Files, path, test_path, ..config.data };
            data::open(&config, Opening::default()).map(|source| source.samples(Split::Test))
        };
        assert_eq!(open(other.path()).unwrap(), Some(1301), "{}", format.name());
        for test in [set.path().join(part), set.path().to_owned()] {
            let told = open(&test).unwrap_err().to_string();
            assert!(told.contains("is among what data.path"), "{told}");
        }
    }
}

#[test]
fn unknown_files_and_formats_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let message = formats::open(folder.path(), None, None).err().unwrap().to_string();
    assert!(
        message.contains("tell no format: name one of octorec, mlperf, nvidia, torchrec, hugectr, parquet, csv"),
        "{message}"
    );
    let train = format!("octorec train --data {} --schema FILE", folder.path().display());
    assert!(message.contains(&train), "{message}");
    assert!(
        formats::open(&folder.path().join("nothing"), None, None).err().unwrap().to_string().contains("cannot open")
    );
}

#[test]
#[cfg(not(feature = "parquet"))]
fn parquet_is_refused_with_the_feature_that_it_needs() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("part_0.parquet");
    std::fs::write(&file, "PAR1").unwrap();
    let (log, _) = log();
    let refused = [
        formats::open(&file, None, None).err(),
        formats::open(folder.path(), None, None).err(),
        Target::create(&folder.path().join("new"), Format::Parquet, &log.description(), Options::default()).err(),
    ];
    for error in refused {
        let message = error.expect("it is refused").to_string();
        assert!(message.contains("which this octorec was built without") && message.contains("--features parquet"));
    }
}

#[test]
fn a_full_disk_or_a_failing_source_leaves_no_data_set() {
    let (log, _) = log();
    for (format, file) in [
        #[cfg(feature = "parquet")]
        (Format::Parquet, "train/part_0.parquet"),
        (Format::Octorec, "part-00000.octo"),
        (Format::Mlperf, "octorec_train.bin"),
        (Format::Nvidia, "train/numerical.bin"),
        (Format::Torchrec, "day_0_dense.npy"),
        (Format::Hugectr, "train_data.bin"),
    ] {
        let folder = tempfile::tempdir().unwrap();
        let mut target = Target::create(folder.path(), format, &log.description(), Options::default()).unwrap();
        let full = target.work().join(file);
        std::fs::create_dir_all(full.parent().unwrap()).unwrap();
        std::os::unix::fs::symlink("/dev/full", &full).unwrap();
        let mut samples = Samples::new(&log.description());
        log.fill(Split::Train, 0..1000, &mut samples);
        let result = target.write(Split::Train, |sink| {
            // More than any buffer holds.
            for _ in 0..20 {
                sink.push(&samples)?;
            }
            Ok(20_000)
        });
        let message = result.unwrap_err().to_string();
        assert!(message.contains(file) && message.contains("No space left on device"), "{message}");
        drop(target);
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0, "{file}");
    }
}

/// The files of a folder, and of the folders in it, but for its lock, by their places.
fn held(folder: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut all = BTreeMap::new();
    for path in std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()) {
        let name = path.file_name().unwrap();
        if path.is_dir() {
            all.extend(held(&path).into_iter().map(|(within, bytes)| (Path::new(name).join(within), bytes)));
        } else if name != ".lock" {
            all.insert(name.into(), std::fs::read(&path).unwrap());
        }
    }
    all
}

#[test]
fn half_a_data_set_of_any_format_is_none() {
    let (log, _) = log();
    let description = log.description();
    let create = |to: &Path, format| Target::create(to, format, &description, Options::default());
    let fill = |target: &mut Target, split, count| {
        let mut samples = Samples::new(&description);
        log.fill(split, 0..count, &mut samples);
        target.write(split, |sink| sink.push(&samples).map(|()| count)).unwrap();
    };
    for &format in Format::WRITTEN {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        let mut whole = create(&at("whole"), format).unwrap();
        fill(&mut whole, Split::Train, 1000);
        // As a kill behind the training samples leaves it.
        for (place, bytes) in held(&at("whole")) {
            let place = at("killed").join(place);
            std::fs::create_dir_all(place.parent().unwrap()).unwrap();
            std::fs::write(place, bytes).unwrap();
        }
        fill(&mut whole, Split::Test, 301);
        whole.seal().unwrap();
        assert_eq!(Format::detect(&at("killed")), None, "{}", format.name());
        assert!(formats::open(&at("killed"), Some(format), None).is_err(), "{}", format.name());
        // A name is taken meanwhile: all but the last file move, which are no data set either.
        let mut again = create(&at("killed"), format).unwrap();
        fill(&mut again, Split::Train, 1000);
        fill(&mut again, Split::Test, 301);
        let last = match format {
            Format::Octorec => "dataset.toml",
            Format::Mlperf => "day_fea_count.npz",
            Format::Nvidia => "feature_spec.yaml",
            _ => "schema.toml",
        };
        std::fs::create_dir_all(at("killed").join(last).join("mine")).unwrap();
        let message = again.seal().unwrap_err().to_string();
        assert!(message.contains(&format!("{last}: cannot create")), "{message}");
        std::fs::remove_dir_all(at("killed").join(last)).unwrap();
        let message = formats::open(&at("killed"), None, None).err().unwrap().to_string();
        assert!(message.contains("killed: holds the beginning of what moves"), "{}: {message}", format.name());
        // Nor is a file of it, or a folder of files, read as if it were alone.
        let moved: Vec<PathBuf> = held(&at("killed")).into_keys().filter(|of| !of.starts_with("unfinished")).collect();
        let within = moved.iter().filter_map(|file| Some(file.parent()?.to_owned()).filter(|of| of != Path::new("")));
        for part in moved.iter().cloned().chain(within) {
            let message = formats::open(&at("killed").join(&part), Some(format), None).err().unwrap().to_string();
            let told = "is a part of what moves into its place in";
            assert!(message.contains(told), "{}: {}: {message}", format.name(), part.display());
        }
        assert!(!moved.is_empty(), "{}", format.name());
        // The remedy that it names.
        let message = create(&at("killed"), format).err().unwrap().to_string();
        assert!(message.contains("holds a data set already"), "{}: {message}", format.name());
        assert!(held(&at("killed")) == held(&at("whole")), "{}", format.name());
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]

    #[test]
    fn no_bytes_make_a_reader_panic(at: prop::sample::Index, to: u8, cut: prop::sample::Index, shorten: bool) {
        for (_, made) in &*SETS {
            let folder = tempfile::tempdir().unwrap();
            let originals = files(made.path());
            for from in &originals {
                let to = folder.path().join(from.strip_prefix(made.path()).unwrap());
                std::fs::create_dir_all(to.parent().unwrap()).unwrap();
                std::fs::copy(from, to).unwrap();
            }
            let files = files(folder.path());
            assert_eq!(files.len(), originals.len());
            let file = &files[at.index(files.len())];
            let mut bytes = std::fs::read(file).unwrap();
            if shorten {
                bytes.truncate(cut.index(bytes.len() + 1));
            } else if !bytes.is_empty() {
                let cut = cut.index(bytes.len());
                bytes[cut] = to;
            }
            std::fs::write(file, bytes).unwrap();
            // Whatever it says, it says it as an error or as samples.
            if let Ok(dataset) = formats::open(folder.path(), None, None) {
                let _ = formats::verify(&dataset, |_| ());
            }
        }
    }
}

const RATINGS: &str = "\
user,genres,age,price,rating
u1,Animation|Children's,17,0.5,5
u2,,18,,3.5
u1,\"Comedy, dark|Animation\",,-3,4
u3,Drama,70,7,1
";

const RATINGS_SCHEMA: &str = "\
label = 'rating >= 4'
dense = [{ column = 'price' }, { column = 'age', transform = 'log' }]
categorical = [
    { column = 'user' },
    { column = 'genres', separator = '|' },
    { column = 'age', name = 'age_bucket', buckets = [18.0, 50.0] },
    { column = 'user', name = 'user_hash', rows = 10 },
]
";

fn text(folder: &Path, rows: &str, schema: &str) -> Result<Dataset> {
    let (path, described) = (folder.join("ratings.csv"), folder.join("ratings.toml"));
    std::fs::write(&path, rows).unwrap();
    std::fs::write(&described, schema).unwrap();
    formats::open(&path, None, Some(formats::Described::by(&described)))
}

#[test]
fn described_text_is_read_and_its_faults_are_named() {
    let folder = tempfile::tempdir().unwrap();
    let dataset = text(folder.path(), RATINGS, RATINGS_SCHEMA).unwrap();
    let samples = rows(&dataset, Split::Train);
    assert_eq!(samples.labels, [1.0, 0.0, 1.0, 0.0]);
    let Values::Floats(prices) = &samples.dense[0] else { panic!("0.5 is no integer") };
    assert!(prices[1].is_nan() && [prices[0], prices[2], prices[3]] == [0.5, -3.0, 7.0]);
    assert_eq!(samples.dense[1], Values::Integers(vec![17, 18, MISSING, 70]), "integers stay integers");
    assert_eq!(samples.lookups[0].rows, [0, 1, 0, 2]);
    // Animation, Children's, Comedy (quoted, with a comma in it), Drama.
    assert_eq!((&samples.lookups[1].rows[..], &samples.lookups[1].ends[..]), (&[0, 1, 2, 0, 3][..], &[2, 2, 4, 5][..]));
    assert_eq!(samples.lookups[2].rows, [0, 1, 3, 2], "a bucket begins at its edge, and blank has its own");
    assert_eq!(samples.lookups[3].rows[0], samples.lookups[3].rows[2]);
    assert_eq!(dataset.description.schema(0).rows(), [3, 4, 4, 10]);
    assert!(dataset.learned);
    let message = |rows: &str, schema: &str| text(folder.path(), rows, schema).err().unwrap().to_string();
    for (found, told) in [
        (
            message(&RATINGS.replace("u3,Drama", "u3"), RATINGS_SCHEMA),
            "line 5: expected 5 columns as in the header, found 4",
        ),
        (
            message(&RATINGS.replace("3.5", "good"), RATINGS_SCHEMA),
            "line 3: column rating: a number is expected, found \"good\"",
        ),
        (message(&RATINGS.replace("0.5", "nan"), RATINGS_SCHEMA), "line 2: column price: a finite number is expected"),
        (
            message(RATINGS, &RATINGS_SCHEMA.replace("'price'", "'cost'")),
            "has no column cost; its header has user, genres",
        ),
        (
            message(RATINGS, &RATINGS_SCHEMA.replace(">= 4", ">= much")),
            "label = \"rating >= much\": >= compares with a number",
        ),
        (message(RATINGS, &RATINGS_SCHEMA.replace("rating >= 4", "rating")), "line 2: column rating: the label 0 or 1"),
        (
            message(RATINGS, &RATINGS_SCHEMA.replace("'price'", "'rating'")),
            "label = \"rating >= 4\" follows from column rating, which [[dense]] column = \"rating\" reads as a feature",
        ),
        (
            message(RATINGS, &RATINGS_SCHEMA.replace("separator = '|'", "separator = '|', weights = 'rating'")),
            "which [[categorical]] weights = \"rating\" reads as a feature",
        ),
        (message(RATINGS, &RATINGS_SCHEMA.replace("18.0, 50.0", "50.0, 18.0")), "age_bucket: buckets must rise"),
        (
            message(RATINGS, &RATINGS_SCHEMA.replace("age_bucket", "genres")),
            "two columns are called genres: give one of them another `name`",
        ),
    ] {
        assert!(found.contains(told), "{told}: {found}");
    }
    let message = formats::open(&folder.path().join("ratings.csv"), None, None).err().unwrap().to_string();
    assert!(message.contains("name one with --schema FILE"), "{message}");
    // A vocabulary of other data.
    let other = data::Vocabulary::of_texts(vec![Vec::new(); 3]);
    let choices = formats::csv::Choices { known: Some(&other), ..formats::csv::Choices::default() };
    text(folder.path(), RATINGS, RATINGS_SCHEMA).unwrap();
    let schema = formats::csv::TextSchema::read(&folder.path().join("ratings.toml")).unwrap();
    let message = formats::csv::open_as(&folder.path().join("ratings.csv"), schema, &choices, &mut |_, _| {})
        .err()
        .unwrap()
        .to_string();
    assert!(
        message.contains("has 3 columns of text, the schema has 4: it belongs to a model of other data"),
        "{message}"
    );
}

#[test]
fn text_is_entered_anywhere_and_a_schema_is_proposed() {
    let folder = tempfile::tempdir().unwrap();
    let mut many = RATINGS.lines().next().unwrap().to_owned() + "\n";
    for n in 0..9000 {
        many += &format!("u{},g{}|g{},{},{},{}\n", n % 77, n % 5, n % 7, n % 90, n, n % 6);
    }
    let dataset = text(folder.path(), &many, RATINGS_SCHEMA).unwrap();
    let all = rows(&dataset, Split::Train);
    assert_eq!(all.len(), 9000);
    for start in [0, 1, 4095, 4096, 4097, 8192, 8999, 9000] {
        let mut found = Samples::new(&dataset.description);
        formats::scan(&*dataset.members[0].table, start, 9000, |samples| {
            found.extend_from(samples, 0..samples.len(), &dataset.description);
            Ok(())
        })
        .unwrap();
        let mut expected = Samples::new(&dataset.description);
        expected.extend_from(&all, start as usize..9000, &dataset.description);
        assert!(found == expected, "{start}");
    }
    let proposal =
        formats::csv::propose(&folder.path().join("ratings.csv"), u64::MAX, None, 1 << 20, OnBadRow::Fail).unwrap();
    let proposed = &proposal.schema;
    assert_eq!(proposed.label, "rating >= 4", "three quarters of 0 to 5");
    let names =
        |columns: &[formats::csv::TextCategorical]| columns.iter().map(|c| c.column.clone()).collect::<Vec<_>>();
    assert_eq!(names(&proposed.categorical), ["user", "genres", "age"]);
    assert_eq!(proposed.categorical[1].separator.as_deref(), Some("|"));
    assert_eq!((proposed.dense.len(), &proposal.left_out[0].column[..]), (0, "price"), "it counts rows");
    let again = text(folder.path(), &many, &proposal.to_toml(9000)).unwrap();
    assert_eq!(again.rows(Split::Train), 9000);
}

proptest! {
    #[test]
    fn no_text_makes_its_reader_panic(rows in "[u0-9,|\"\\n.e-]{0,80}", header: bool) {
        let folder = tempfile::tempdir().unwrap();
        let rows = if header { format!("{}\n{rows}", RATINGS.lines().next().unwrap()) } else { rows };
        if let Ok(dataset) = text(folder.path(), &rows, RATINGS_SCHEMA) {
            let _ = formats::verify(&dataset, |_| ());
        }
        let _ = formats::csv::propose(&folder.path().join("ratings.csv"), 100, None, 1 << 20, OnBadRow::Fail);
    }
}
