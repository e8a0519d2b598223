//! A loader allocates nothing a minibatch once its batches go round: whole or sliced, shuffled or in order.
//!
//! All threads of the process are counted, so the test has a process of its own, which runs nothing beside the loaders.
use std::sync::Arc;

use octorec::base::config::DataConfig;
use octorec::data::blocks::{Codec, Options};
use octorec::data::formats::{Files, Format, Sink, Target};
use octorec::data::{Criteo, Loader, LoaderMode, Opening, Plan, Position, RankLoader, Samples, Shuffle, Source, Split};
use stats_alloc::Region;

use crate::{COUNTED, alone};

/// Samples of an epoch: whole minibatches, so that all are alike.
const SAMPLES: u64 = 64 * 256;
const BATCH: usize = 64;

fn files(format: Format, codec: Codec) -> (tempfile::TempDir, Arc<dyn Source>) {
    let config = DataConfig { train_samples: SAMPLES, test_samples: 0, test_fraction: 0.0, ..DataConfig::default() };
    let log = Criteo::new(&config, &[1000; 26], 13).unwrap();
    let mut samples = Samples::new(&log.description());
    log.fill(Split::Train, 0..SAMPLES, &mut samples);
    let folder = tempfile::tempdir().unwrap();
    let options = Options { codec, block_rows: 512 };
    let mut target = Target::create(folder.path(), format, &log.description(), options).unwrap();
    target.write(Split::Train, |sink: &mut dyn Sink| sink.push(&samples).map(|()| SAMPLES)).unwrap();
    target.seal().unwrap();
    let config = DataConfig { path: folder.path().display().to_string(), ..config };
    let source = Arc::new(Files::open(&config, Opening::default()).unwrap());
    (folder, source)
}

/// Minibatches of one count, and how often is counted. A thread that waits for the first time enters a list that grows,
/// and the test harness says something now and then; memory for each minibatch is seen in every count.
const COUNTED_BATCHES: usize = 12;
const COUNTS: usize = 8;

/// What the heap gave while `count` minibatches were taken.
fn allocations(count: usize, mut next: impl FnMut()) -> usize {
    let region = Region::new(COUNTED);
    (0..count).for_each(|_| next());
    region.change().allocations
}

#[test]
fn a_loader_allocates_nothing_a_minibatch_once_its_memory_goes_round() {
    if !alone("loader_allocation::a_loader_allocates_nothing_a_minibatch_once_its_memory_goes_round") {
        return;
    }
    let seen = allocations(1, || drop(std::hint::black_box(vec![1u8; 100])));
    assert_eq!(seen, 1, "the heap is counted");
    let kinds = [
        (Format::Mlperf, Codec::Raw),
        (Format::Octorec, Codec::Raw),
        (Format::Octorec, Codec::Lz4),
        (Format::Nvidia, Codec::Raw),
        (Format::Torchrec, Codec::Raw),
    ];
    for (format, codec) in kinds {
        let (_folder, source) = files(format, codec);
        for shuffle in [None, Some(Shuffle { seed: 1, window: 1000 })] {
            let start = Position::default();
            // Epochs follow each other without end; beginning one allocates its reader, so most minibatches are counted
            // within one.
            let plan = Plan { split: Split::Train, batch: BATCH, epochs: u64::MAX, start, shuffle, depth: 2 };
            let name = format!("{} {codec:?}, {shuffle:?}", format.name());
            let mut whole = Loader::start(Arc::clone(&source), plan).unwrap();
            let mut next = || {
                let (batch, _) = whole.next_batch().unwrap().unwrap();
                assert_eq!(batch.samples(), BATCH);
                whole.recycle(batch);
            };
            // All memory has been round, and every buffer has grown to its size: one epoch and a half.
            (0..384).for_each(|_| next());
            let found = (0..COUNTS).map(|_| allocations(COUNTED_BATCHES, &mut next)).min();
            assert_eq!(found, Some(0), "loader, {name}");
            drop(whole);
            for mode in LoaderMode::ALL {
                let mut loaders = RankLoader::start(&source, plan, mode, (0..3, 3), None, &[]).unwrap();
                let mut next = || {
                    let portions: Vec<_> =
                        loaders.iter_mut().map(|loader| loader.next_portion().unwrap().unwrap()).collect();
                    assert_eq!(portions.iter().map(|portion| portion.range().len()).sum::<usize>(), BATCH);
                    loaders.iter().zip(portions).for_each(|(loader, portion)| loader.recycle(portion));
                };
                (0..384).for_each(|_| next());
                let found = (0..COUNTS).map(|_| allocations(COUNTED_BATCHES, &mut next)).min();
                // The vector of portions is this test's.
                assert_eq!(found, Some(COUNTED_BATCHES), "{}, {name}", mode.name());
            }
            println!("nothing allocated: {name}");
        }
    }
}
