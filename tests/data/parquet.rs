//! Parquet: files that Apache Arrow wrote (`tests/fixtures/parquet/generate.py`) are read as the field's tools mean
//! them, what octorec writes comes back, slices leave their neighbours alone, and faults are named by file, column and
//! row group.
#![cfg(feature = "parquet")]

use std::path::{Path, PathBuf};

use octorec::base::Result;
use octorec::base::config::DataConfig;
use octorec::data::blocks::{Codec, Options};
use octorec::data::formats::{self, Dataset, Files, Format, Target};
use octorec::data::samples::{MISSING, Samples, Values};
use octorec::data::schema::{Categorical, Dense, Transform};
use octorec::data::{Description, Opening, Source, Split};

fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/parquet").join(name)
}

fn open(path: &Path) -> Result<Dataset> {
    formats::open(path, None, None)
}

/// All rows of a role.
fn rows(dataset: &Dataset, role: Split) -> Samples {
    let mut all = Samples::new(&dataset.description);
    for member in dataset.members.iter().filter(|member| member.role == role) {
        member.table.open(0).unwrap().read(&mut all, usize::MAX).unwrap();
    }
    all.check(&dataset.description);
    all
}

#[test]
fn nvtabulars_folders_are_read_by_their_metadata() {
    let folder = fixture("merlin");
    assert_eq!(Format::detect(&folder), Some(Format::Parquet));
    let dataset = open(&folder).unwrap();
    let described = &dataset.description;
    assert_eq!(described.label.name, "clicked");
    assert_eq!(described.dense, [Dense { name: "I1".to_owned(), float: true, ..Dense::default() }]);
    let c2 = Categorical { hots: 0, weighted: true, ..Categorical::new("C2", 3) };
    assert_eq!(described.categorical, [Categorical::new("C1", 11), c2]);
    assert_eq!((dataset.rows(Split::Train), dataset.rows(Split::Validation)), (10, 4));
    assert_eq!(dataset.members[0].table.longest(), [1, 3]);
    for (role, count) in [(Split::Train, 10usize), (Split::Validation, 4)] {
        let found = rows(&dataset, role);
        assert_eq!(found.labels, (0..count).map(|n| (n % 2) as f32).collect::<Vec<_>>());
        assert_eq!(found.dense, [Values::Floats((0..count).map(|n| n as f32 / 4.0).collect())]);
        assert_eq!(found.lookups[0].rows, (0..count).map(|n| (7 * n % 11) as u32).collect::<Vec<_>>());
        let lists = |n: usize| 0..n as u32 % 4;
        assert_eq!(found.lookups[1].rows, (0..count).flat_map(lists).collect::<Vec<_>>());
        let weights = (0..count).flat_map(lists).map(|k| 0.5 * k as f32).collect::<Vec<_>>();
        assert_eq!(found.lookups[1].weights, weights);
    }
}

#[test]
fn endings_in_capitals_are_the_same_alone_and_in_folders() {
    let from = fixture("torchrec/train_9.parquet");
    let expected = rows(&open(&from).unwrap(), Split::Train);
    assert_eq!(expected.labels.len(), 9);
    let folder = tempfile::tempdir().unwrap();
    let [beside, inside] = ["beside", "inside"].map(|name| folder.path().join(name));
    std::fs::create_dir_all(inside.join("train")).unwrap();
    std::fs::create_dir(&beside).unwrap();
    let (file, within) = (beside.join("A.PARQUET"), inside.join("train/B.Parquet"));
    for (path, copy) in [(&file, &file), (&beside, &file), (&inside, &within)] {
        std::fs::copy(&from, copy).unwrap();
        assert_eq!(Format::detect(path), Some(Format::Parquet), "{path:?}");
        let found = rows(&open(path).unwrap(), Split::Train);
        // One of the floats is missing, and no NaN is equal to another.
        let counts = |samples: &Samples| samples.dense[..2].to_vec();
        assert_eq!((&found.labels, &found.lookups), (&expected.labels, &expected.lookups), "{path:?}");
        assert_eq!(counts(&found), counts(&expected), "{path:?}");
    }
    // The arrays beside these are called by the same name, so that they have one form alone.
    let arrays = tempfile::tempdir().unwrap();
    std::fs::write(arrays.path().join("DAY_0_DENSE.NPY"), "").unwrap();
    for path in [arrays.path(), &arrays.path().join("DAY_0_DENSE.NPY")] {
        assert_eq!(Format::detect(path), Some(Format::Torchrec), "{path:?}");
        assert!(open(path).err().unwrap().to_string().contains("has no file *_dense.npy"), "{path:?}");
    }
}

#[test]
fn torchrecs_names_and_all_widths_and_codecs_are_read() {
    let dataset = open(&fixture("torchrec")).unwrap();
    let described = &dataset.description;
    let count = |name: &str| Dense { name: name.to_owned(), transform: Transform::Log, ..Dense::default() };
    let score = Dense { name: "score".to_owned(), float: true, ..Dense::default() };
    assert_eq!(described.dense, [count("int_0"), count("int_1"), score]);
    let sizes = [("cat_0", (1u64 << 31) + 10), ("cat_1", 210), ("cat_2", 2)];
    assert_eq!(described.categorical[..3], sizes.map(|(name, rows)| Categorical::new(name, rows)));
    assert_eq!(described.categorical[3], Categorical { hots: 0, ..Categorical::new("cat_3", 11) });
    // Part 9 before part 10, of nine and ten rows.
    let numbers: Vec<u32> = (0..9).chain(0..10).collect();
    let found = rows(&dataset, Split::Train);
    let of = |value: &dyn Fn(u32) -> u32| numbers.iter().map(|&n| value(n)).collect::<Vec<_>>();
    let gaps = numbers.iter().map(|&n| if n % 3 == 0 { MISSING } else { n as i32 });
    assert_eq!(found.dense[0], Values::Integers(gaps.collect()));
    assert_eq!(found.dense[1], Values::Integers(numbers.iter().map(|&n| (1 << 24) + 1 + n as i32).collect()));
    let Values::Floats(score) = &found.dense[2] else { panic!("floats") };
    for (&n, &score) in numbers.iter().zip(score) {
        assert!(if n == 1 { score.is_nan() } else { score == n as f32 / 2.0 }, "{n}: {score}");
    }
    assert_eq!(found.lookups[0].rows, of(&|n| (1 << 31) + n));
    assert_eq!(found.lookups[1].rows, of(&|n| 200 + n));
    assert_eq!(found.lookups[2].rows, of(&|n| u32::from(n % 5 == 0)));
    assert_eq!(found.lookups[3].rows, numbers.iter().flat_map(|&n| [n, n + 1]).collect::<Vec<_>>());
    assert_eq!(rows(&dataset, Split::Test).len(), 5);
    // One file alone.
    assert_eq!(open(&fixture("torchrec/train_9.parquet")).unwrap().rows(Split::Train), 9);
}

/// Columns of every kind, weights included.
fn mixed() -> Description {
    let dense = |name: &str, float, transform| Dense { name: name.to_owned(), float, transform, ..Dense::default() };
    let column = |name: &str, hots, weighted| Categorical { hots, weighted, ..Categorical::new(name, (1 << 32) - 1) };
    Description {
        dense: vec![dense("count", false, Transform::Log), dense("price", true, Transform::None)],
        categorical: vec![
            column("one", 1, false),
            column("pair", 2, true),
            column("any", 0, true),
            column("w", 1, true),
        ],
        ..Description::default()
    }
}

fn mixed_samples(rows: std::ops::Range<u32>) -> Samples {
    let mut samples = Samples::new(&mixed());
    for n in rows {
        let word = |lane: u32| n.wrapping_mul(2_654_435_761).rotate_left(lane);
        samples.labels.push((word(3) % 2) as f32);
        let [Values::Integers(counts), Values::Floats(prices)] = &mut samples.dense[..] else { panic!("two columns") };
        counts.push(if n % 5 == 0 { MISSING } else { word(7) as i32 });
        prices.push(if n % 7 == 0 { f32::NAN } else { f32::from_bits(word(9) & 0x7f7f_ffff) });
        for (lookups, hots) in samples.lookups.iter_mut().zip([1, 2, n % 6, 1]) {
            lookups.rows.extend((0..hots).map(|lane| word(lane) % (u32::MAX - 1)));
        }
        for table in [1, 2, 3] {
            let lookups = &mut samples.lookups[table];
            lookups.weights.resize(lookups.rows.len(), n as f32 - 0.5);
        }
        let end = samples.lookups[2].rows.len() as u32;
        samples.lookups[2].ends.push(end);
    }
    samples
}

fn write(folder: &Path, codec: Codec, count: u32) -> Result<()> {
    // Row groups of 320 rows.
    let mut target = Target::create(folder, Format::Parquet, &mixed(), Options { codec, block_rows: 10 })?;
    target.write(Split::Train, |sink| {
        for from in (0..count).step_by(77) {
            sink.push(&mixed_samples(from..count.min(from + 77)))?;
        }
        Ok(count.into())
    })?;
    target.seal()?;
    Ok(())
}

/// NaN is not itself.
fn same(a: &Samples, b: &Samples) -> bool {
    let bits = |samples: &Samples| match &samples.dense[1] {
        Values::Floats(values) => values.iter().map(|value| value.to_bits()).collect::<Vec<_>>(),
        Values::Integers(_) => panic!("prices are floats"),
    };
    (&a.labels, &a.dense[0], &a.lookups, bits(a)) == (&b.labels, &b.dense[0], &b.lookups, bits(b))
}

#[test]
fn what_is_written_comes_back_from_any_row_on() {
    for codec in [Codec::Raw, Codec::Lz4, Codec::Zstd] {
        let folder = tempfile::tempdir().unwrap();
        write(folder.path(), codec, 1000).unwrap();
        let dataset = open(folder.path()).unwrap();
        assert_eq!(dataset.description, mixed());
        assert!(same(&rows(&dataset, Split::Train), &mixed_samples(0..1000)), "{codec:?}");
        let table = &dataset.members[0].table;
        assert_eq!((table.rows(), table.longest()), (1000, vec![1, 2, 5, 1]));
        for (start, skipped, count) in [(0, 0, 1), (319, 0, 2), (320, 5, 400), (5, 310, 20), (1, 900, 200), (999, 1, 1)]
        {
            let mut reader = table.open(start).unwrap();
            let mut found = Samples::new(&dataset.description);
            reader.read(&mut found, 1).unwrap();
            assert_eq!(reader.skip(skipped).unwrap(), skipped.min(999 - start));
            reader.read(&mut found, count).unwrap();
            let first = start as u32;
            let mut expected = mixed_samples(first..first + 1);
            let from = (first + 1 + skipped as u32).min(1000);
            let rest = mixed_samples(from..(from + count as u32).min(1000));
            expected.extend_from(&rest, 0..rest.len(), &dataset.description);
            assert!(same(&found, &expected), "{codec:?} {start} {skipped} {count}");
        }
    }
}

#[test]
fn numbers_that_are_not_finite_are_named() {
    let found = |spoil: fn(&mut Samples)| {
        let (folder, mut samples) = (tempfile::tempdir().unwrap(), mixed_samples(0..20));
        spoil(&mut samples);
        let options = Options { codec: Codec::Raw, block_rows: 10 };
        let mut target = Target::create(folder.path(), Format::Parquet, &mixed(), options).unwrap();
        target.write(Split::Train, |sink| sink.push(&samples).map(|()| 20)).unwrap();
        target.seal().unwrap();
        formats::verify(&open(folder.path()).unwrap(), |_| ()).unwrap_err().to_string()
    };
    let price = found(|samples| {
        let Values::Floats(prices) = &mut samples.dense[1] else { panic!("prices are floats") };
        prices[3] = f32::NEG_INFINITY;
    });
    assert!(price.contains("row group 0, column price, row 3: a finite number is expected, found -inf"), "{price}");
    let weight = found(|samples| samples.lookups[1].weights[6] = f32::NAN);
    assert!(weight.contains("row 3: a finite number is expected, found NaN"), "{weight}");
}

#[test]
fn a_slice_is_read_without_its_neighbours() {
    let folder = tempfile::tempdir().unwrap();
    write(folder.path(), Codec::Raw, 32_000).unwrap();
    let dataset = open(folder.path()).unwrap();
    let table = &dataset.members[0].table;
    let read = |start: u64, count: usize| {
        let mut reader = table.open(start).unwrap();
        reader.read(&mut Samples::new(&dataset.description), count).unwrap();
        reader.bytes_read()
    };
    let (all, slice) = (read(0, 32_000), read(16_000, 320));
    assert!(slice > 0 && slice * 50 < all, "{slice} of {all} bytes for a hundredth of the rows");
}

#[test]
fn unknown_and_unfit_columns_are_named() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("refused.parquet");
    std::fs::copy(fixture("refused.parquet"), &file).unwrap();
    let guessed = open(&file).err().unwrap().to_string();
    assert!(
        guessed.contains("refused.parquet: column text has BYTE_ARRAY (String), which is neither dense"),
        "{guessed}"
    );
    let told = |toml: &str| {
        std::fs::write(folder.path().join("schema.toml"), toml).unwrap();
        let opened = open(&file);
        let result = opened.and_then(|dataset| formats::verify(&dataset, |_| ()));
        result.expect_err(toml).to_string()
    };
    let categorical =
        |name: &str, more: &str| told(&format!("categorical = [{{ name = '{name}', rows = 10, {more} }}]"));
    let dense = |name: &str, more: &str| told(&format!("dense = [{{ name = '{name}', {more} }}]"));
    for (found, expected) in [
        (categorical("C1", ""), "has no column C1; it has label, good, text"),
        (
            categorical("text", ""),
            "column text has BYTE_ARRAY (String), but row numbers are expected: number its values",
        ),
        (categorical("day", ""), "column day has INT32 (Date)"),
        (categorical("grade", ""), "column grade has floats, but row numbers are expected"),
        (categorical("nested", "hots = 0"), "column nested has a nested structure"),
        (categorical("pair", ""), "column pair is a structure of several"),
        (categorical("gap", ""), "row group 1, column gap, row 4: there is no value"),
        (categorical("negative", ""), "row group 1, column negative, row 5: -1 is no row number"),
        (categorical("huge", ""), "row group 0, column huge, row 3: 1099511627776 is no row number"),
        (categorical("list_gap", "hots = 0"), "row group 0, column list_gap, row 1: there is no value"),
        (categorical("hole", "hots = 0"), "row group 0, column hole, row 2: there is no value"),
        (categorical("uneven", "hots = 2"), "row group 1, column uneven, row 4: has 3 values, but hots = 2"),
        (categorical("good", "hots = 2"), "column good has one value a row, but hots = 2 needs lists"),
        (categorical("good", "weighted = true"), "has no column good_weights"),
        (
            categorical("bag", "hots = 0, weighted = true"),
            "row group 0, column bag_weights, row 3: 1 weights for the 2 values of bag",
        ),
        (
            categorical("bag", "hots = 2, weighted = true"),
            "row group 0, column bag_weights, row 3: has 1 values, but hots = 2",
        ),
        (dense("grade", ""), "column grade has floats, but whole numbers are expected (float = true in the schema)"),
        (dense("bag", ""), "column bag has lists of whole numbers, but whole numbers are expected"),
        (dense("huge", ""), "row group 0, column huge, row 3: 1099511627776 does not fit into 32 bits"),
        (told("label = { name = 'grade' }"), "row group 0, column grade, row 1: the label is 0.5; 0 or 1 expected"),
        (told("label = { name = 'gap' }"), "the label is 2; 0 or 1 expected"),
        (told("label = { name = 'text' }"), "the label text has BYTE_ARRAY (String), but numbers are expected"),
    ] {
        assert!(found.contains(expected) && found.contains("refused.parquet"), "{found}\nexpected: {expected}");
    }
    // A gap in a dense column is none in training.
    std::fs::write(folder.path().join("schema.toml"), "dense = [{ name = 'gap' }]").unwrap();
    let gap = rows(&open(&file).unwrap(), Split::Train);
    assert_eq!(gap.dense, [Values::Integers(vec![0, 1, 2, 3, MISSING, 5])]);
}

#[test]
fn damage_and_truncation_are_named() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("train_9.parquet");
    let bytes = std::fs::read(fixture("torchrec/train_9.parquet")).unwrap();
    let message = |bytes: &[u8]| {
        std::fs::write(&file, bytes).unwrap();
        open(&file).and_then(|dataset| formats::verify(&dataset, |_| ())).unwrap_err().to_string()
    };
    for length in [0, 3, 8, 100, bytes.len() - 1] {
        let found = message(&bytes[..length]);
        assert!(found.contains("train_9.parquet: is no whole Parquet file"), "{length}: {found}");
    }
    // A bit of the first page of values (a frame of Zstandard), which has a checksum.
    let frame = bytes.windows(4).position(|word| word == [0x28, 0xb5, 0x2f, 0xfd]).unwrap();
    let mut flipped = bytes.clone();
    flipped[frame + 8] ^= 0x10;
    let found = message(&flipped);
    assert!(found.contains("row group 0, column label: ") && found.contains("checksum mismatch"), "{found}");
    // Another file has other columns.
    std::fs::write(&file, &bytes).unwrap();
    std::fs::copy(fixture("merlin/train/part_0.parquet"), folder.path().join("train_99.parquet")).unwrap();
    let found = open(folder.path()).err().unwrap().to_string();
    assert!(found.contains("train_99.parquet: has no column label"), "{found}");
}

#[test]
fn a_source_trains_on_a_slice_and_resumes() {
    let config = DataConfig { path: fixture("torchrec").display().to_string(), rows_cap: 7, ..DataConfig::default() };
    let source = Files::open(&config, Opening::default()).unwrap();
    assert_eq!(
        (source.samples(Split::Train), source.samples(Split::Test), source.schema().longest()),
        (Some(19), Some(5), 2)
    );
    let mut batch = octorec::data::Batch::new(source.schema());
    let mut reader = source.open(Split::Train, 7).unwrap();
    assert_eq!(reader.read(&mut batch, 4).unwrap(), 4);
    batch.check(source.schema()).unwrap();
    assert_eq!(batch.bags[3].rows, [7 % 7, 8 % 7, 8 % 7, 9 % 7, 0, 1, 1, 2]);
    assert_eq!(batch.dense[..3], [libm(7), libm((1 << 24) + 1 + 7), 3.5]);
}

#[test]
fn a_file_that_was_written_again_is_the_one_that_it_was() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("part.parquet");
    let mut bytes = std::fs::read(fixture("torchrec/train_9.parquet")).unwrap();
    let fingerprint = |bytes: &[u8]| {
        std::fs::write(&path, bytes).unwrap();
        let config = DataConfig { path: path.display().to_string(), ..DataConfig::default() };
        Files::open(&config, Opening::default()).unwrap().fingerprint(Split::Train)
    };
    let before = fingerprint(&bytes);
    let name = b"parquet-cpp";
    let at = bytes.windows(name.len()).rposition(|part| part == name).unwrap();
    bytes[at] = b'P';
    assert!(before.is_some() && fingerprint(&bytes) == before);
    // Runs of every version are to know their data again: earlier ones kept no more than this, of the rows.
    assert_eq!(before.as_deref().and_then(|told| told.split_once('-')).map(|(rows, _)| rows), Some("623f6565182ced80"));
    // Whatever groups and codec it has; as many other rows are another file, and so are those that lack other values.
    let made = |samples: &Samples, codec, block_rows| {
        let folder = tempfile::tempdir().unwrap();
        let options = Options { codec, block_rows };
        let mut target = Target::create(folder.path(), Format::Parquet, &mixed(), options).unwrap();
        target.write(Split::Train, |sink| sink.push(samples).map(|()| 200)).unwrap();
        target.seal().unwrap();
        open(folder.path()).unwrap().members[0].table.first_values()
    };
    let mut samples = mixed_samples(0..200);
    let own = made(&samples, Codec::Raw, 10);
    assert!(own.is_some() && made(&samples, Codec::Zstd, 1) == own);
    assert_ne!(made(&mixed_samples(1..201), Codec::Raw, 10), own);
    let Values::Integers(counts) = &mut samples.dense[0] else { panic!("counts") };
    assert_eq!(counts[0], MISSING);
    counts.swap(0, 1);
    assert_ne!(made(&samples, Codec::Raw, 10), own);
}

fn libm(count: i32) -> f32 {
    octorec::data::dense::log_count(Some(count.into()))
}

#[test]
fn no_damaged_byte_makes_the_reader_panic() {
    let folder = tempfile::tempdir().unwrap();
    for name in ["torchrec/train_9.parquet", "merlin/valid/part_0.parquet"] {
        let bytes = std::fs::read(fixture(name)).unwrap();
        let file = folder.path().join("part.parquet");
        let mut refused = 0;
        for at in (0..bytes.len()).step_by(2) {
            let mut damaged = bytes.clone();
            damaged[at] ^= 1 << (at / 2 % 8);
            std::fs::write(&file, &damaged).unwrap();
            // Whatever it says, it says it as an error or as samples.
            let result = open(&file).and_then(|dataset| formats::verify(&dataset, |_| ()));
            refused += usize::from(result.is_err());
        }
        // Much of a footer is statistics and names of other columns, which nobody asks for.
        assert!(refused > bytes.len() / 8, "{name}: {refused} of {} changes are noticed", bytes.len() / 2);
    }
}
