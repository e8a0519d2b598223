//! The loader and the shuffle: every sample once, exact resumption, errors and panics that arrive.

use std::collections::HashSet;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use octorec::base::{Error, Result};
use octorec::data::{
    Bag, Batch, Column, Epoch, Loader, Plan, Position, Reader, Schema, Shuffle, Source, Split, Waited,
};
use proptest::prelude::*;

/// What happens at one sample.
#[derive(Clone, Copy, PartialEq)]
enum Trouble {
    None,
    Error(u64),
    Panic(u64),
    /// A row number that the schema does not have.
    Beyond(u64),
    /// Every read takes this long.
    Slow(Duration),
}

/// Samples that carry their number.
struct Numbered {
    schema: Schema,
    samples: Option<u64>,
    trouble: Trouble,
    reads: AtomicUsize,
}

fn numbered(samples: impl Into<Option<u64>>, trouble: Trouble) -> Arc<Numbered> {
    let schema = Schema { dense: 1, weighted: false, tables: vec![Column::new("n", 1 << 20)] };
    Arc::new(Numbered { schema, samples: samples.into(), trouble, reads: AtomicUsize::new(0) })
}

struct Counter<'a>(&'a Numbered, u64);

impl Source for Numbered {
    fn schema(&self) -> &Schema {
        &self.schema
    }

    fn samples(&self, _: Split) -> Option<u64> {
        self.samples
    }

    fn open(&self, _: Split, start: u64) -> Result<Box<dyn Reader + '_>> {
        Ok(Box::new(Counter(self, start)))
    }
}

impl Reader for Counter<'_> {
    fn read(&mut self, batch: &mut Batch, limit: usize) -> Result<usize> {
        self.0.reads.fetch_add(1, Ordering::Relaxed);
        let left = self.0.samples.map_or(u64::MAX, |samples| samples - self.1);
        let wanted = limit.min(usize::try_from(left).unwrap_or(usize::MAX));
        for n in self.1..self.1 + wanted as u64 {
            let mut row = n as u32 % (1 << 20);
            match self.0.trouble {
                Trouble::Error(at) if at == n => {
                    return Err(Error::BadRow {
                        path: "numbers".into(),
                        line: n,
                        reason: "made to fail".to_owned().into(),
                    });
                }
                Trouble::Panic(at) if at == n => panic!("made to panic at {n}"),
                Trouble::Beyond(at) if at == n => row = 1 << 20,
                Trouble::Slow(time) if n == self.1 => std::thread::sleep(time),
                _ => {}
            }
            batch.dense.push(n as f32);
            batch.labels.push(0.0);
            batch.bags[0].rows.push(row);
            batch.bags.iter_mut().for_each(Bag::close);
        }
        self.1 += wanted as u64;
        Ok(wanted)
    }

    fn skip(&mut self, count: u64) -> Result<u64> {
        let count = count.min(self.0.samples.map_or(u64::MAX, |samples| samples - self.1));
        self.1 += count;
        Ok(count)
    }
}

fn plan(batch: usize, epochs: u64, shuffle: Option<Shuffle>) -> Plan {
    Plan { split: Split::Train, batch, epochs, start: Position::default(), shuffle, depth: 3 }
}

fn start(source: &Arc<Numbered>, plan: Plan) -> Loader {
    Loader::start(Arc::clone(source) as Arc<dyn Source>, plan).unwrap()
}

/// Each minibatch's numbers, and the place after it.
fn deliver(source: &Arc<Numbered>, plan: Plan) -> Vec<(Vec<u32>, Position)> {
    let mut loader = start(source, plan);
    let mut found = Vec::new();
    while let Some((batch, position)) = loader.next_batch().unwrap() {
        found.push((batch.bags[0].rows.clone(), position));
        loader.recycle(batch);
    }
    assert!(loader.next_batch().unwrap().is_none());
    found
}

#[test]
fn every_epoch_has_every_sample_once_and_ends_with_what_is_left() {
    let source = numbered(1003, Trouble::None);
    for shuffle in [None, Some(Shuffle { seed: 1, window: 100 }), Some(Shuffle { seed: 1, window: 5000 })] {
        let found = deliver(&source, plan(64, 3, shuffle));
        assert_eq!(found.len(), 3 * 16);
        let mut orders = Vec::new();
        for (epoch, batches) in (0u64..).zip(found.chunks(16)) {
            let order: Vec<u32> = batches.iter().flat_map(|(rows, _)| rows.clone()).collect();
            assert_eq!(batches[15].0.len(), 1003 - 15 * 64);
            assert_eq!(batches[0].1, Position { epoch, sample: 64 });
            assert_eq!(batches[15].1, Position { epoch, sample: 1003 });
            let mut sorted = order.clone();
            sorted.sort_unstable();
            assert!(sorted.into_iter().eq(0..1003));
            orders.push(order);
        }
        let differ = orders[0] != orders[1] && orders[1] != orders[2] && !orders[0].is_sorted();
        assert_eq!(differ, shuffle.is_some());
        if let Some(Shuffle { window: 100, .. }) = shuffle {
            assert!((0..1003).all(|at| orders[0][at] as usize / 100 == at / 100), "samples stay in their window");
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn a_resumed_loader_continues_exactly(
        samples in 1u64..300, batch in 1usize..40, window in 1usize..90, shuffled: bool, after in 0usize..60, seed: u64,
    ) {
        let source = numbered(samples, Trouble::None);
        let shuffle = shuffled.then_some(Shuffle { seed, window });
        let whole = deliver(&source, plan(batch, 3, shuffle));
        let after = after % whole.len();
        let resumed = deliver(&source, Plan { start: whole[after].1, ..plan(batch, 3, shuffle) });
        prop_assert_eq!(&resumed[..], &whole[after + 1..]);
    }

    #[test]
    fn an_epoch_opened_anywhere_continues_exactly(
        samples in 1u64..300, window in 1usize..90, start in 0u64..300, limit in 1usize..50,
    ) {
        let source = numbered(samples, Trouble::None);
        let start = start % (samples + 1);
        let read = |start| {
            let shuffle = Some(Shuffle { seed: 9, window });
            let mut epoch =
                Epoch::open(&*source, Split::Train, shuffle, (4, start), (limit, None), None).unwrap();
            let mut batch = Batch::new(source.schema());
            while epoch.next_slice(&mut batch).unwrap() == limit {}
            batch.bags[0].rows.clone()
        };
        prop_assert_eq!(&read(start)[..], &read(0)[start as usize..]);
    }
}

#[test]
fn trouble_arrives_after_the_batches_before_it() {
    for shuffle in [None, Some(Shuffle { seed: 1, window: 10 })] {
        let troubled = |trouble| {
            let mut loader = start(&numbered(1000, trouble), plan(10, 1, shuffle));
            for _ in 0..5 {
                assert_eq!(loader.next_batch().unwrap().unwrap().0.samples(), 10);
            }
            loader
        };
        let mut loader = troubled(Trouble::Error(55));
        assert_eq!(loader.next_batch().unwrap_err().to_string(), "numbers: line 55: made to fail");
        assert!(loader.next_batch().unwrap().is_none(), "after an error there is nothing more");

        let message = troubled(Trouble::Beyond(55)).next_batch().unwrap_err().to_string();
        assert!(message.contains("table 0 (n): row 1048576 is beyond its 1048576 rows"), "{message}");

        let mut loader = troubled(Trouble::Panic(55));
        let panic = catch_unwind(AssertUnwindSafe(|| loader.next_batch().map(|_| ()))).unwrap_err();
        assert_eq!(panic.downcast_ref::<String>().unwrap(), "made to panic at 55");
    }
}

#[test]
fn memory_goes_round() {
    let mut loader = start(&numbered(100_000, Trouble::None), plan(100, 1, None));
    let mut memory = HashSet::new();
    while let Some((batch, _)) = loader.next_batch().unwrap() {
        memory.insert(batch.dense.as_ptr() as usize);
        loader.recycle(batch);
    }
    // 3 ready, one being filled, one with the consumer, and some more while none had come back yet.
    assert!(memory.len() <= 10, "{} buffers for 1000 minibatches", memory.len());
}

#[test]
fn a_dropped_loader_stops_and_frees_the_source() {
    let source = numbered(None, Trouble::None);
    let mut loader = start(&source, plan(10, 1, Some(Shuffle { seed: 1, window: 100 })));
    assert_eq!(loader.next_batch().unwrap().unwrap().0.dense[..3], [0.0, 1.0, 2.0], "what never ends has no order");
    let begin = Instant::now();
    drop(loader);
    assert!(begin.elapsed() < Duration::from_secs(2));
    assert_eq!(Arc::strong_count(&source), 1, "the thread has ended");
    // It never ran further ahead than it may: the batch taken, three ready, one in its hands.
    assert!(source.reads.load(Ordering::Relaxed) <= 6);
    // In the middle of filling a window of which each part takes a tenth of a second, too.
    let source = numbered(1 << 40, Trouble::Slow(Duration::from_millis(100)));
    let loader = start(&source, plan(10, 1, Some(Shuffle { seed: 1, window: 1 << 20 })));
    let begin = Instant::now();
    drop(loader);
    assert!(begin.elapsed() < Duration::from_secs(2));
    assert_eq!(Arc::strong_count(&source), 1);
}

#[test]
fn the_time_waited_is_measured() {
    let mut loader = start(&numbered(20, Trouble::Slow(Duration::from_millis(200))), plan(10, 1, None));
    assert_eq!(loader.waited(), Waited::default());
    let plausible = Duration::from_millis(100)..Duration::from_secs(10);
    assert!(loader.next_batch().unwrap().is_some());
    let Waited { all, first, .. } = loader.waited();
    assert!(plausible.contains(&all) && all == first, "{:?}", loader.waited());
    assert!(loader.next_batch().unwrap().is_some());
    assert!(
        plausible.contains(&(loader.waited().all - first)) && loader.waited().first == first,
        "{:?}",
        loader.waited()
    );
}

#[test]
fn an_empty_split_ends_at_once_whatever_the_number_of_epochs() {
    assert!(deliver(&numbered(0, Trouble::None), plan(2, u64::MAX, None)).is_empty());
}
