//! Block files: any slice comes back as it was written, damage is named, and nothing half-written is ever seen.

use std::path::Path;

use octorec::base::rng::{Random, Stream};
use octorec::data::blocks::{BlockFile, Codec, Manifest, Options, Part, Writer};
use octorec::data::formats::{Sink, Table};
use octorec::data::samples::{MISSING, Samples, Values};
use octorec::data::schema::{Categorical, Dense, Description};
use octorec::data::{Batch, Split};
use proptest::prelude::*;

/// One of each kind of column.
fn description() -> Description {
    let mut description = Description::criteo(2, &[1, 200, 70_000, 1 << 31]);
    description.dense.push(Dense { name: "price".to_owned(), float: true, ..Dense::default() });
    description.categorical[1].hots = 3;
    description.categorical[2] = Categorical { hots: 0, weighted: true, ..Categorical::new("words", 70_000) };
    description.categorical.push(Categorical { hots: 2, weighted: true, ..Categorical::new("pair", 9) });
    description
}

fn samples(count: usize, seed: u64) -> Samples {
    let (description, random) = (description(), Random::new(seed, Stream::Column(0)));
    let mut at = 0;
    let mut below = |n: u64| {
        at += 1;
        random.below(at, n)
    };
    let mut samples = Samples::new(&description);
    for _ in 0..count {
        samples.labels.push(below(2) as f32);
        for values in &mut samples.dense {
            let value = [MISSING, -2, i32::MAX, below(300) as i32, below(1 << 20) as i32][below(5) as usize];
            match values {
                Values::Integers(values) => values.push(value),
                Values::Floats(values) => values.push(value as f32 / 7.0),
            }
        }
        for (lookups, column) in samples.lookups.iter_mut().zip(&description.categorical) {
            let hots = if column.hots == 0 { below(6) as u32 } else { column.hots };
            for _ in 0..hots {
                lookups.rows.push(below(column.rows) as u32);
                if column.weighted {
                    lookups.weights.push(below(100) as f32 / 3.0);
                }
            }
            if column.hots == 0 {
                lookups.ends.push(lookups.rows.len() as u32);
            }
        }
    }
    samples
}

fn write(path: &Path, samples: &Samples, portion: usize, options: Options) {
    let description = description();
    let mut writer = Box::new(Writer::create(path, &description, options).unwrap());
    let mut from = 0;
    while from < samples.len() {
        let take = portion.min(samples.len() - from);
        let mut some = Samples::new(&description);
        some.extend_from(samples, from..from + take, &description);
        writer.push(&some).unwrap();
        from += take;
    }
    assert_eq!(writer.finish().unwrap(), path.metadata().unwrap().len());
    let longest = BlockFile::open(path).unwrap().longest();
    assert!(longest[2] < 6 && longest[1] == if samples.is_empty() { 0 } else { 3 });
}

fn read(file: &BlockFile, start: usize, count: usize, portion: usize) -> octorec::base::Result<Samples> {
    let mut found = Samples::new(file.description());
    let mut cursor = file.open(start as u64)?;
    while found.len() < count {
        let wanted = portion.min(count - found.len());
        if cursor.read(&mut found, wanted)? < wanted {
            break;
        }
    }
    found.check(file.description());
    Ok(found)
}

fn slice(samples: &Samples, range: std::ops::Range<usize>) -> Samples {
    let mut some = Samples::new(&description());
    some.extend_from(samples, range, &description());
    some
}

fn codec() -> impl Strategy<Value = Codec> {
    prop::sample::select(vec![Codec::Raw, Codec::Lz4, Codec::Zstd])
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]

    #[test]
    fn any_slice_comes_back_as_it_was_written(
        count in 0usize..300, block in 1u32..120, codec in codec(), put in 1usize..130, get in 1usize..130,
        a in 0usize..301, b in 0usize..301, seed: u64,
    ) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.octo");
        let samples = samples(count, seed);
        write(&path, &samples, put, Options { codec, block_rows: block });
        let file = BlockFile::open(&path).unwrap();
        prop_assert_eq!((file.rows(), file.description()), (count as u64, &description()));
        let (start, end) = (a.min(b).min(count), a.max(b).min(count));
        let expected = slice(&samples, start..end);
        prop_assert!(read(&file, start, end - start, get).unwrap() == expected);
        // The same slice as a minibatch.
        let schema = description().schema(0);
        let (mut found, mut made) = (Batch::new(&schema), Batch::new(&schema));
        let mut cursor = file.open(start as u64).unwrap();
        while found.samples() < end - start {
            let wanted = get.min(end - start - found.samples());
            let unused = &mut Samples::default();
            prop_assert_eq!(cursor.read_batch(&mut found, wanted, (unused, &description())).unwrap(), wanted);
        }
        made.append(&expected, &description());
        found.check(&schema).unwrap();
        prop_assert!(found == made);
    }

    #[test]
    fn a_changed_byte_is_found_or_means_nothing(at: prop::sample::Index, to: u8, codec in codec()) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.octo");
        let samples = samples(50, 1);
        write(&path, &samples, 50, Options { codec, block_rows: 20 });
        let mut bytes = std::fs::read(&path).unwrap();
        let at = at.index(bytes.len());
        bytes[at] = to;
        std::fs::write(&path, &bytes).unwrap();
        if let Ok(found) = BlockFile::open(&path).and_then(|file| read(&file, 0, 50, 50)) {
            prop_assert!(found == samples, "byte {}", at);
        }
    }

    #[test]
    fn a_shortened_file_says_what_is_whole(length: prop::sample::Index) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.octo");
        write(&path, &samples(50, 1), 50, Options { codec: Codec::Raw, block_rows: 20 });
        let bytes = std::fs::read(&path).unwrap();
        let length = length.index(bytes.len());
        std::fs::write(&path, &bytes[..length]).unwrap();
        let message = BlockFile::open(&path).unwrap_err().to_string();
        let told = ["truncated", "does not begin", "schema is damaged"].iter().any(|part| message.contains(part));
        prop_assert!(told, "{}", message);
    }

    #[test]
    fn other_bytes_are_refused(bytes in prop::collection::vec(any::<u8>(), 0..400), head: bool) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.octo");
        let bytes = if head { [&b"OCTOREC\n\x01\0\0\0"[..], &bytes].concat() } else { bytes };
        std::fs::write(&path, bytes).unwrap();
        prop_assert!(BlockFile::open(&path).is_err());
    }
}

#[test]
fn damage_is_named_by_block_and_column() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.octo");
    let samples = samples(50, 1);
    write(&path, &samples, 50, Options { codec: Codec::Raw, block_rows: 20 });
    let mut bytes = std::fs::read(&path).unwrap();
    // The weights of the last column end the last block, whatever the layout before them is.
    let wanted: Vec<u8> = samples.lookups[4].weights[80..].iter().flat_map(|weight| weight.to_le_bytes()).collect();
    let at = bytes.windows(wanted.len()).position(|window| window == wanted).unwrap();
    bytes[at] ^= 1;
    std::fs::write(&path, &bytes).unwrap();
    let file = BlockFile::open(&path).unwrap();
    assert!(read(&file, 0, 40, 40).unwrap() == slice(&samples, 0..40), "the other blocks are as they were");
    let message = read(&file, 41, 1, 1).unwrap_err().to_string();
    assert!(message.contains("a.octo: block 2 (samples 40 to 49), column pair: the checksum"), "{message}");
    // A reader that met damage says so again, and does not go on as if nothing had been.
    let mut cursor = file.open(30).unwrap();
    let mut some = Samples::new(file.description());
    assert_eq!(cursor.read(&mut some, 40).unwrap_err().to_string(), message);
    assert_eq!(cursor.read(&mut some, 40).unwrap_err().to_string(), message);
}

#[test]
fn other_versions_and_bad_values_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.octo");
    write(&path, &samples(5, 1), 50, Options::default());
    let mut bytes = std::fs::read(&path).unwrap();
    bytes[8] = 9;
    std::fs::write(&path, &bytes).unwrap();
    let message = BlockFile::open(&path).unwrap_err().to_string();
    assert!(message.contains("version 9 of the block format; this octorec reads version 1"), "{message}");

    let push = |change: &dyn Fn(&mut Samples)| {
        let mut some = samples(5, 1);
        change(&mut some);
        let mut writer = Box::new(Writer::create(&path, &description(), Options::default()).unwrap());
        writer.push(&some).and_then(|()| writer.finish()).unwrap_err().to_string()
    };
    let message = push(&|some| some.labels[3] = 0.5);
    assert!(message.contains("sample 3: the label is 0.5"), "{message}");
    let message = push(&|some| some.lookups[1].rows[7] = 200);
    assert!(message.contains("table 1 (C2): row 200 is beyond its 200 rows (sample 2"), "{message}");
    assert_eq!(std::fs::read(&path).unwrap(), bytes, "what was there before is there still");
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1, "and nothing beside it");
}

#[test]
fn a_full_disk_is_told() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.octo");
    std::os::unix::fs::symlink("/dev/full", &path).unwrap();
    let mut writer = Box::new(Writer::create(&path, &description(), Options::default()).unwrap());
    let message = writer.push(&samples(50, 1)).and_then(|()| writer.finish()).unwrap_err().to_string();
    assert!(message.contains("a.octo: cannot write: No space left on device"), "{message}");
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1);
}

#[test]
fn a_manifest_holds_its_parts_to_what_it_says() {
    let folder = tempfile::tempdir().unwrap();
    write(&folder.path().join("a.octo"), &samples(5, 1), 50, Options::default());
    let part = |file: &str, rows| Part { file: file.to_owned(), rows, role: Split::Train };
    let manifest = Manifest::new(description(), vec![part("a.octo", 5)]);
    manifest.write(folder.path()).unwrap();
    assert_eq!(Manifest::read(folder.path()).unwrap(), manifest);
    assert_eq!(manifest.open(folder.path(), &manifest.parts[0]).unwrap().rows(), 5);
    let message = manifest.open(folder.path(), &part("a.octo", 6)).unwrap_err().to_string();
    assert!(message.contains("a.octo: has 5 samples, but dataset.toml says 6"), "{message}");
    let mut other = description();
    other.categorical[0].rows = 2;
    let other = Manifest::new(other, vec![part("../a.octo", 5)]);
    let message = other.open(folder.path(), &manifest.parts[0]).unwrap_err().to_string();
    assert!(message.contains("has other columns than dataset.toml"), "{message}");
    other.write(folder.path()).unwrap();
    let message = Manifest::read(folder.path()).unwrap_err().to_string();
    assert!(message.contains("part ../a.octo must be the name of a file beside it"), "{message}");
    Manifest::new(description(), vec![part("a.octo", 5), part("a.octo", 5)]).write(folder.path()).unwrap();
    let message = Manifest::read(folder.path()).unwrap_err().to_string();
    assert!(message.contains("part a.octo is listed twice"), "{message}");
    Manifest::new(description(), Vec::new()).write(folder.path()).unwrap();
    let message = Manifest::read(folder.path()).unwrap_err().to_string();
    assert!(message.contains("dataset.toml: lists no part"), "{message}");
}
