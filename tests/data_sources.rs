//! What every source promises: a reader opened anywhere continues exactly, and `data::open` finds each of them.

use std::io::Write;
use std::path::Path;
use std::sync::{Arc, LazyLock};

use flate2::Compression;
use flate2::write::GzEncoder;
use octorec::base::config::{Config, DataConfig, SourceKind, Vocab};
use octorec::data::{self, Batch, Criteo, Labels, Opening, Source, Split, Tsv, tsv};
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
        let data = DataConfig { source: SourceKind::Random, lookups: 5, lookups_fixed, zipf, ..config.data.clone() };
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
fn sources_are_what_their_configuration_says() {
    let samples: Vec<_> =
        SOURCES.list.iter().map(|(_, source)| (source.samples(Split::Train), source.samples(Split::Test))).collect();
    let (generated, file, random) = ((Some(4000), Some(500)), (Some(3600), Some(400)), (None, Some(500)));
    assert_eq!(samples, [generated, file, file, file, random, random]);
    let vocabularies: Vec<_> = SOURCES.list.iter().map(|(_, source)| source.vocabulary().is_some()).collect();
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

/// Runs `work` twice and prints what the second run did in a second.
fn time(what: &str, unit: &str, mut work: impl FnMut() -> f64) {
    work();
    let start = std::time::Instant::now();
    let amount = work();
    println!("{what}: {:.1} {unit}/s", amount / start.elapsed().as_secs_f64());
}

#[test]
#[ignore = "prints speeds, proves nothing; run it in the release profile with --nocapture"]
fn speeds() {
    let mut config = DataConfig { train_samples: 200_000, test_fraction: 0.0, ..DataConfig::default() };
    let log = Criteo::new(&config, &[], 13).unwrap();
    let large = Criteo::new(&config, &[40_000_000; 26], 13).unwrap();
    time("criteo, construction", "times", || f64::from(Criteo::new(&config, &[], 13).is_ok()));
    let mut batch = Batch::new(log.schema());
    let mut drain = |source: &dyn Source, samples: u64| {
        let mut reader = source.open(Split::Train, 0).unwrap();
        let mut read = 0;
        while read < samples {
            batch.clear();
            read += reader.read(&mut batch, 2048).unwrap().max(1) as u64;
        }
        read as f64
    };
    time("criteo", "thousand samples", || drain(&log, 200_000) / 1e3);
    time("criteo, 26 tables of 40 million rows", "thousand samples", || drain(&large, 200_000) / 1e3);

    let mut text = Vec::new();
    log.write_tsv(Split::Train, 0..200_000, &mut text).unwrap();
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), &text).unwrap();
    config.path = file.path().to_str().unwrap().to_owned();
    let megabytes = text.len() as f64 / 1e6;
    let layout = tsv::Layout::criteo(Labels::Required);
    let mut row = tsv::Row::new(&layout);
    time("tsv, lines and rows only", "MB", || {
        let mut lines = tsv::Lines::open(file.path()).unwrap();
        while let Some(tsv::Line::Text(line)) = lines.next_line().unwrap() {
            row.parse(line, &layout).unwrap();
        }
        megabytes
    });
    let open = |config: &DataConfig| Tsv::open(config, &[1000; 26], None).unwrap();
    time("tsv, opening with a vocabulary", "MB", || megabytes * open(&config).schema().dense as f64 / 13.0);
    let source = open(&config);
    time("tsv, reading through the vocabulary", "MB", || megabytes * drain(&source, 200_000) / 200_000.0);
    config.vocab = Vocab::Hash;
    time("tsv, opening without a vocabulary", "MB", || megabytes * open(&config).schema().dense as f64 / 13.0);

    let random = data::Random::new(&DataConfig { lookups: 50, ..config }, &[1_000_000; 8], 512).unwrap();
    let mut batch = Batch::new(random.schema());
    time("random, 512 dense, 8 tables, 50 look-ups", "million look-ups", || {
        let mut reader = Source::open(&random, Split::Train, 0).unwrap();
        for _ in 0..10 {
            batch.clear();
            reader.read(&mut batch, 2048).unwrap();
        }
        20_480.0 * 400.0 / 1e6
    });
}
