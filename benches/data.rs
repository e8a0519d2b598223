//! How fast samples come: the built-in generator, tab-separated text, random look-ups; one thread each.
//!
//! Every answer is checked before it is timed: the text must hold as many samples as were written.

use std::hint::black_box;
use std::io::Write;

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use octorec::base::config::{DataConfig, Vocab};
use octorec::data::{self, Batch, Source, Split, Tsv};

const SAMPLES: u64 = 50_000;

/// Reads all samples in minibatches of 2048 and counts them.
fn drain(source: &dyn Source, batch: &mut Batch) -> u64 {
    let mut reader = source.open(Split::Train, 0).expect("the source opens");
    let mut total = 0;
    while total < SAMPLES {
        batch.clear();
        total += reader.read(batch, 2048).expect("well-formed data").max(1) as u64;
    }
    total
}

fn sources(criterion: &mut Criterion) {
    let config = DataConfig { train_samples: SAMPLES, test_fraction: 0.0, ..DataConfig::default() };
    let log = data::Criteo::new(&config, &[], 13).expect("a valid configuration");
    let large = data::Criteo::new(&config, &[40_000_000; 26], 13).expect("a valid configuration");
    let random = DataConfig { lookups: 50, ..config.clone() };
    let random = data::Random::new(&random, &[1_000_000; 8], 512).expect("a valid configuration");
    let mut group = criterion.benchmark_group("generate");
    group.throughput(Throughput::Elements(SAMPLES)).sample_size(10);
    let sources: [(&str, &dyn Source); 3] = [
        ("click log", &log),
        ("click log, 26 tables of 40 million rows", &large),
        ("random, 8 x 50 look-ups", &random),
    ];
    for (name, source) in sources {
        let mut batch = Batch::new(source.schema());
        assert!(drain(source, &mut batch) >= SAMPLES, "{name} has its samples");
        group.bench_function(name, |bencher| bencher.iter(|| black_box(drain(source, &mut batch))));
    }
    group.finish();

    let mut text = Vec::new();
    log.write_tsv(Split::Train, 0..SAMPLES, &mut text).expect("memory takes all");
    let mut file = tempfile::NamedTempFile::new().expect("a temporary file");
    file.write_all(&text).expect("a temporary file");
    let config = DataConfig { path: file.path().display().to_string(), ..config };
    let mut group = criterion.benchmark_group("tab-separated text");
    group.throughput(Throughput::Bytes(text.len() as u64)).sample_size(10);
    for (name, vocab) in [("all", Vocab::All), ("hash", Vocab::Hash)] {
        let config = DataConfig { vocab, ..config.clone() };
        let open = || Tsv::open(&config, &[1000; 26], None).expect("well-formed data");
        let source = open();
        assert_eq!(source.samples(Split::Train), Some(SAMPLES), "every row is a sample");
        let mut batch = Batch::new(source.schema());
        group.bench_function(format!("open, {name}"), |bencher| bencher.iter(|| black_box(open()).skipped_rows()));
        group.bench_function(format!("read, {name}"), |bencher| bencher.iter(|| black_box(drain(&source, &mut batch))));
    }
    group.finish();
}

criterion_group!(benches, sources);
criterion_main!(benches);
