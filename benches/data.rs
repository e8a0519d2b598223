//! How fast samples come: the built-in generator, tab-separated text, random look-ups, files in every format; one
//! thread each.
//!
//! Every answer is checked before it is timed: the text must hold as many samples as were written.

use std::hint::black_box;
use std::io::Write;
use std::sync::Arc;

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use octorec::base::config::{DataConfig, Vocab};
use octorec::data::blocks::{Codec, Options};
use octorec::data::formats::{Files, Format, Sink, Target};
use octorec::data::{
    self, Batch, Loader, LoaderMode, Opening, Plan, Position, RankLoader, Samples, Shuffle, Source, Split, Tsv, hot,
};

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
    let random = DataConfig { lookups: 50.into(), ..config.clone() };
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
        let open = || Tsv::open(&config, &[1000; 26], Opening::default()).expect("well-formed data");
        let source = open();
        assert_eq!(source.samples(Split::Train), Some(SAMPLES), "every row is a sample");
        let mut batch = Batch::new(source.schema());
        group.bench_function(format!("open, {name}"), |bencher| bencher.iter(|| black_box(open()).skipped_rows()));
        group.bench_function(format!("read, {name}"), |bencher| bencher.iter(|| black_box(drain(&source, &mut batch))));
    }
    group.finish();
}

/// Files in the page cache: the reader alone, also with the mapping made anew each time, and the loader with its checks
/// and its hand-over. The 160-byte rows should reach 10 million samples a second and core.
fn files(criterion: &mut Criterion) {
    const SAMPLES: u64 = 1 << 20;
    let config = DataConfig { train_samples: SAMPLES, test_samples: 0, test_fraction: 0.0, ..DataConfig::default() };
    let log = data::Criteo::new(&config, &[], 13).expect("a valid configuration");
    let mut samples = Samples::new(&log.description());
    log.fill(Split::Train, 0..SAMPLES, &mut samples);
    let mut group = criterion.benchmark_group("files");
    group.throughput(Throughput::Elements(SAMPLES)).sample_size(10);
    let blocks = |codec| Options { codec, ..Options::default() };
    for (name, format, options) in [
        ("mlperf, 160 bytes a row", Format::Mlperf, blocks(Codec::Raw)),
        ("octorec, raw", Format::Octorec, blocks(Codec::Raw)),
        ("octorec, lz4", Format::Octorec, blocks(Codec::Lz4)),
        ("octorec, zstd", Format::Octorec, blocks(Codec::Zstd)),
        ("nvidia", Format::Nvidia, blocks(Codec::Raw)),
        ("torchrec", Format::Torchrec, blocks(Codec::Raw)),
    ] {
        let folder = tempfile::tempdir().expect("a temporary directory");
        let mut target =
            Target::create(folder.path(), format, &log.description(), options).expect("an empty directory");
        let fill = |sink: &mut dyn Sink| sink.push(&samples).map(|()| SAMPLES);
        target.write(Split::Train, fill).and_then(|_| target.seal()).expect("room in the temporary directory");
        let config = DataConfig { path: folder.path().display().to_string(), ..config.clone() };
        let source: Arc<dyn Source> = Arc::new(Files::open(&config, Opening::default()).expect("a whole data set"));
        let mut batch = Batch::new(source.schema());
        let plan =
            Plan { split: Split::Train, batch: 2048, epochs: 1, start: Position::default(), shuffle: None, depth: 4 };
        let load = || {
            let mut loader = Loader::start(Arc::clone(&source), plan).expect("a thread");
            let mut total = 0;
            while let Some((batch, _)) = loader.next_batch().expect("a whole data set") {
                total += batch.samples() as u64;
                loader.recycle(batch);
            }
            total
        };
        assert_eq!(load(), SAMPLES, "{name} has its samples");
        let read = |batch: &mut Batch| {
            let mut reader = source.open(Split::Train, 0).expect("the source opens");
            let mut total = 0;
            while total < SAMPLES {
                batch.clear();
                total += reader.read(batch, 2048).expect("a whole data set") as u64;
            }
            total
        };
        group.bench_function(format!("read, {name}"), |bencher| bencher.iter(|| black_box(read(&mut batch))));
        if format == Format::Mlperf {
            // Every page is entered into the page table again, as in the one pass over a large file.
            let fresh = |batch: &mut Batch| {
                let source = Files::open(&config, Opening::default()).expect("a whole data set");
                let mut reader = source.open(Split::Train, 0).expect("the source opens");
                let mut total = 0;
                while total < SAMPLES {
                    batch.clear();
                    total += reader.read(batch, 2048).expect("a whole data set") as u64;
                }
                total
            };
            group.bench_function(format!("map and read, {name}"), |bencher| {
                bencher.iter(|| black_box(fresh(&mut batch)));
            });
        }
        group.bench_function(format!("load, {name}"), |bencher| bencher.iter(|| black_box(load())));
    }
    group.finish();
}

/// Hot rows: a sample of the inputs against all of them, and telling hot inputs from cold ones against reading alone;
/// raw blocks in the page cache. Rows with at least ten look-ups in all are hot enough for the budget.
fn hot(criterion: &mut Criterion) {
    const SAMPLES: u64 = 1 << 20;
    let config = DataConfig { train_samples: SAMPLES, test_samples: 0, test_fraction: 0.0, ..DataConfig::default() };
    let rows =
        [1000, 5_000_000, 2_000_000, 300, 24, 12_000, 600, 3, 90_000, 5000, 8_000_000, 3000, 27, 15_000, 5_000_000];
    let log = data::Criteo::new(&config, &rows, 13).expect("a valid configuration");
    let mut samples = Samples::new(&log.description());
    log.fill(Split::Train, 0..SAMPLES, &mut samples);
    let folder = tempfile::tempdir().expect("a temporary directory");
    let options = Options { codec: Codec::Raw, ..Options::default() };
    let mut target =
        Target::create(folder.path(), Format::Octorec, &log.description(), options).expect("an empty directory");
    let fill = |sink: &mut dyn Sink| sink.push(&samples).map(|()| SAMPLES);
    target.write(Split::Train, fill).and_then(|_| target.seal()).expect("room in the temporary directory");
    let config = DataConfig { path: folder.path().display().to_string(), ..config };
    let source = Files::open(&config, Opening::default()).expect("a whole data set");
    let mut group = criterion.benchmark_group("hot rows");
    group.throughput(Throughput::Elements(SAMPLES)).sample_size(10);
    let wanted = |share| hot::Options {
        share,
        budget: 8 << 20,
        row_bytes: 64,
        memory: 1 << 30,
        seed: 1,
        whole_below: 1 << 20,
        least: 0.0,
        infer: true,
    };
    let profile = |share| hot::profile(&source, &wanted(share), &|_| Ok(())).expect("a whole data set");
    assert_eq!(profile(1.0).sampled, SAMPLES, "everything is counted");
    for (name, share) in [("profile, 5 %", 0.05), ("profile, all", 1.0)] {
        group.bench_function(name, |bencher| bencher.iter(|| black_box(profile(share).chosen)));
    }
    let set = profile(0.05).set;
    let tell = |workers| {
        let tally = hot::classify(&source, Split::Train, &set, workers, |_| Ok(())).expect("a whole data set");
        assert_eq!(tally.inputs, SAMPLES, "every input is told");
        tally.hot
    };
    let all = tell(1);
    for workers in [1, 2] {
        assert_eq!(tell(workers), all, "as many are hot, whoever tells");
        group.bench_function(format!("classify, {workers} workers"), |bencher| {
            bencher.iter(|| black_box(tell(workers)))
        });
    }
    let mut batch = Batch::new(source.schema());
    let mut flags = Vec::new();
    source.open(Split::Train, 0).and_then(|mut reader| reader.read(&mut batch, 4096)).expect("a whole data set");
    group.throughput(Throughput::Elements(batch.samples() as u64));
    group.bench_function("classify, one minibatch in memory", |bencher| {
        bencher.iter(|| black_box(set.classify(&batch, &mut flags)));
    });
    group.finish();
}

/// Slices for 1, 2, 4 and 8 ranks, read one after the other by one thread each: what all of them cost together, and how
/// many bytes they read. (The modes differ by what is read and parsed, so they are compared where both are one core's.)
fn ranks(criterion: &mut Criterion) {
    const SAMPLES: u64 = 1 << 19;
    let config = DataConfig { train_samples: SAMPLES, test_samples: 0, test_fraction: 0.0, ..DataConfig::default() };
    let log = data::Criteo::new(&config, &[], 13).expect("a valid configuration");
    let mut samples = Samples::new(&log.description());
    log.fill(Split::Train, 0..SAMPLES, &mut samples);
    let mut group = criterion.benchmark_group("ranks");
    group.throughput(Throughput::Elements(SAMPLES)).sample_size(10);
    for format in [Format::Mlperf, Format::Octorec] {
        let folder = tempfile::tempdir().expect("a temporary directory");
        let options = Options::default();
        let mut target =
            Target::create(folder.path(), format, &log.description(), options).expect("an empty directory");
        let fill = |sink: &mut dyn Sink| sink.push(&samples).map(|()| SAMPLES);
        target.write(Split::Train, fill).and_then(|_| target.seal()).expect("room in the temporary directory");
        let config = DataConfig { path: folder.path().display().to_string(), ..config.clone() };
        let source: Arc<dyn Source> = Arc::new(Files::open(&config, Opening::default()).expect("a whole data set"));
        for (order, shuffle) in [("in order", None), ("shuffled", Some(Shuffle { seed: 1, window: 1 << 17 }))] {
            let plan =
                Plan { split: Split::Train, batch: 2048, epochs: 1, start: Position::default(), shuffle, depth: 4 };
            for ranks in [1, 2, 4, 8] {
                for mode in LoaderMode::ALL {
                    let load = || {
                        let loaders =
                            RankLoader::start(&source, plan, mode, (0..ranks, ranks), None, &[]).expect("threads");
                        let each = |mut loader: RankLoader| {
                            move || {
                                let mut own = 0;
                                while let Some(portion) = loader.next_portion().expect("a whole data set") {
                                    own += portion.range().len() as u64;
                                    loader.recycle(portion);
                                }
                                (own, loader.bytes_read())
                            }
                        };
                        std::thread::scope(|scope| {
                            let threads: Vec<_> = loaders.into_iter().map(|loader| scope.spawn(each(loader))).collect();
                            let totals = threads.into_iter().map(|thread| thread.join().expect("no panic"));
                            totals.fold((0, 0), |(own, bytes), more| (own + more.0, bytes + more.1))
                        })
                    };
                    let (own, bytes) = load();
                    assert_eq!(own, SAMPLES, "every sample is some rank's");
                    let name = format!("{}, {order}, {ranks} ranks, {}", format.name(), mode.name());
                    println!("{name}: {:.1} bytes read a sample", bytes as f64 / SAMPLES as f64);
                    group.bench_function(name, |bencher| bencher.iter(|| black_box(load())));
                }
            }
        }
    }
    group.finish();
}

criterion_group!(benches, sources, files, hot, ranks);
criterion_main!(benches);
