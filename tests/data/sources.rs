//! What every source promises: a reader opened anywhere continues exactly, and `data::open` finds each of them.

use std::io::Write;
use std::path::Path;
use std::sync::{Arc, LazyLock};

use flate2::Compression;
use flate2::write::GzEncoder;
use octorec::base::config::{Config, DataConfig, SourceKind, Vocab};
use octorec::data::{self, Batch, Criteo, Feature, Opening, Permuted, Source, Split};
use proptest::prelude::*;

/// All kinds of source over a few thousand samples each.
struct Sources {
    list: Vec<(&'static str, Arc<dyn Source>)>,
    /// Holds the files that the sources read.
    _folder: tempfile::TempDir,
}

static SOURCES: LazyLock<Sources> = LazyLock::new(|| {
    let folder = tempfile::tempdir().unwrap();
    let mut config = Config::default();
    config.data.train_samples = 4000;
    config.data.test_samples = 500;
    config.data.rows_cap = 1000;
    let mut text = Vec::new();
    Criteo::new(&config.data, &[], 13).unwrap().write_tsv(Split::Train, 0..4000, &mut text).unwrap();
    let (plain, packed) = (folder.path().join("log.tsv"), folder.path().join("log.tsv.gz"));
    std::fs::write(&plain, &text).unwrap();
    let mut encoder = GzEncoder::new(std::fs::File::create(&packed).unwrap(), Compression::fast());
    encoder.write_all(&text).unwrap();
    encoder.finish().unwrap();
    let open = |data: DataConfig, rows: &[u64]| {
        let mut config = Config { data, ..config.clone() };
        config.model.rows = rows.to_vec();
        data::open(&config, Opening::default()).unwrap()
    };
    let file = |path: &Path, vocab| {
        let path = path.to_str().unwrap().to_owned();
        open(DataConfig { source: SourceKind::Tsv, path, vocab, ..config.data.clone() }, &[])
    };
    let random = |lookups_fixed, zipf| {
        let data =
            DataConfig { source: SourceKind::Random, lookups: 5.into(), lookups_fixed, zipf, ..config.data.clone() };
        open(data, &[10, 100_000, 3])
    };
    let list = vec![
        ("criteo", open(config.data.clone(), &[])),
        ("tsv, plain, all", file(&plain, Vocab::All)),
        ("tsv, gzip, train", file(&packed, Vocab::Train)),
        ("tsv, plain, hash", file(&plain, Vocab::Hash)),
        ("random, fixed", random(true, 0.0)),
        ("random, zipf", random(false, 1.05)),
    ];
    Sources { list, _folder: folder }
});

fn read(source: &dyn Source, split: Split, start: u64, samples: usize, limit: usize) -> Batch {
    let mut batch = Batch::new(source.schema());
    let mut reader = source.open(split, start).unwrap();
    while batch.samples() < samples {
        let wanted = limit.min(samples - batch.samples());
        if reader.read(&mut batch, wanted).unwrap() < wanted {
            break;
        }
    }
    batch.check(source.schema()).unwrap();
    batch
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]

    #[test]
    fn a_reader_opened_anywhere_continues_exactly(start in 0u64..5000, limit in 1usize..700, test: bool) {
        let split = if test { Split::Test } else { Split::Train };
        for (name, source) in &SOURCES.list {
            let end = source.samples(split).unwrap_or(2000);
            let start = start % (end + 1);
            let found = read(&**source, split, start, (end - start) as usize, limit);
            prop_assert_eq!(found.samples() as u64, end - start, "{}", name);
            let whole = read(&**source, split, 0, end as usize, 4096);
            let mut expected = Batch::new(source.schema());
            (start..end).for_each(|n| expected.push_from(&whole, n as usize));
            prop_assert!(found == expected, "{}: {} at {}", name, limit, start);
        }
    }
}

#[test]
fn what_is_made_of_a_source_is_known_to_be_the_same() {
    for (name, source) in &SOURCES.list {
        let about = source.about();
        assert_eq!(about.numbers_own_values, about.vocabulary.is_some(), "{name}");
        let made: Arc<dyn Source> = Arc::new(Permuted::new(Arc::clone(source), Feature::Categorical(0)));
        let again = Permuted::new(made, Feature::Categorical(1));
        assert!(std::ptr::eq(again.about(), about), "{name}");
    }
}

#[test]
fn sources_are_what_their_configuration_says() {
    let samples: Vec<_> =
        SOURCES.list.iter().map(|(_, source)| (source.samples(Split::Train), source.samples(Split::Test))).collect();
    let (generated, file, random) = ((Some(4000), Some(500)), (Some(3600), Some(400)), (None, Some(500)));
    assert_eq!(samples, [generated, file, file, file, random, random]);
    let vocabularies: Vec<_> = SOURCES.list.iter().map(|(_, source)| source.about().vocabulary.is_some()).collect();
    assert_eq!(vocabularies, [false, true, true, false, false, false]);
    for (name, source) in &SOURCES.list {
        assert_eq!(source.skipped_rows(), 0);
        let past = source.samples(Split::Test).unwrap() + 1;
        let message = source.open(Split::Test, past).err().unwrap().to_string();
        assert!(message.contains(&format!("sample {past} is asked for")), "{name}: {message}");
        let (train, test) = (read(&**source, Split::Train, 0, 300, 300), read(&**source, Split::Test, 0, 300, 300));
        assert!(train != test, "{name}: train and test differ");
        assert_eq!(source.truth(Split::Train, 0, 10).is_some(), *name == "criteo");
    }
}
