//! Loaders for ranks: in every mode, format and order, the slices of all ranks are the minibatches that one loader
//! gives, and each rank reads what it should.

use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, LazyLock, Mutex, OnceLock};

use octorec::base::config::{DataConfig, Vocab};
use octorec::base::{Error, PuId, Result};
use octorec::data::blocks::{Codec, Options};
use octorec::data::formats::{Files, Format, Sink, Target};
use octorec::data::schema::Categorical;
use octorec::data::{
    Batch, Criteo, Description, Loader, LoaderMode, Opening, Plan, Position, Random, RankLoader, Reader, Samples,
    Schema, Shuffle, Source, Split, Tsv,
};
use octorec::ffi::linux::current_affinity;
use proptest::prelude::*;

use crate::requirement::required;

/// Samples of a data set; no multiple of any size below.
const SAMPLES: u64 = 1003;

fn log() -> Criteo {
    let config = DataConfig { train_samples: SAMPLES, test_samples: 0, test_fraction: 0.0, ..DataConfig::default() };
    Criteo::new(&config, &[50; 26], 13).unwrap()
}

/// A log of one-hot and multi-hot columns, with and without weights of their look-ups.
fn weighted_log() -> (Description, Samples) {
    let column = |name: &str, hots, weighted| Categorical { hots, weighted, ..Categorical::new(name, 40) };
    let categorical =
        [column("one", 1, false), column("some", 0, true), column("two", 2, true), column("any", 0, false)];
    let description = Description { categorical: categorical.to_vec(), ..Description::default() };
    let mut samples = Samples::new(&description);
    for n in 0..SAMPLES as u32 {
        samples.labels.push((n % 3 == 0) as u8 as f32);
        for (at, (lookups, column)) in (0u32..).zip(samples.lookups.iter_mut().zip(&description.categorical)) {
            let count = if column.hots == 0 { n * 7 % 5 } else { column.hots };
            for k in 0..count {
                lookups.rows.push((n * 13 + k * 5 + at) % 40);
                lookups.weights.extend(column.weighted.then_some((n * 4 + k) as f32 * 0.001 - 1.0));
            }
            if column.hots == 0 {
                lookups.ends.push(lookups.rows.len() as u32);
            }
        }
    }
    (description, samples)
}

fn weighted_files(folder: &Path, format: Format, options: Options) -> Arc<dyn Source> {
    let (description, samples) = weighted_log();
    let mut target = Target::create(folder, format, &description, options).unwrap();
    target.write(Split::Train, |sink: &mut dyn Sink| sink.push(&samples).map(|()| SAMPLES)).unwrap();
    target.seal().unwrap();
    let source = Files::open(&config(folder), Opening::default()).unwrap();
    // What was written is what is read, or all comparisons below are of nothing.
    let (mut found, mut expected) = (Batch::new(source.schema()), Batch::new(source.schema()));
    source.open(Split::Train, 0).unwrap().read(&mut found, SAMPLES as usize).unwrap();
    expected.append(&samples, &description);
    assert!(found == expected && found.weights[1].len() == found.bags[1].rows.len());
    Arc::new(source)
}

fn config(path: &Path) -> DataConfig {
    DataConfig { path: path.display().to_string(), test_fraction: 0.0, rows_cap: 40, ..DataConfig::default() }
}

fn files(folder: &Path, format: Format, options: Options, config: &DataConfig) -> Arc<dyn Source> {
    let log = log();
    let mut samples = Samples::new(&log.description());
    log.fill(Split::Train, 0..SAMPLES, &mut samples);
    let mut target = Target::create(folder, format, &log.description(), options).unwrap();
    let fill = |sink: &mut dyn Sink| sink.push(&samples).map(|()| SAMPLES);
    target.write(Split::Train, fill).unwrap();
    target.seal().unwrap();
    Arc::new(Files::open(config, Opening::default()).unwrap())
}

/// Sources with their names.
type Named = Vec<(String, Arc<dyn Source>)>;

/// Every kind of source, with its name.
fn sources(folder: &Path) -> Named {
    let mut sources: Named = vec![("generated".to_owned(), Arc::new(log()))];
    for &format in Format::WRITTEN {
        for codec in [Codec::Raw, Codec::Lz4] {
            if format != Format::Octorec && codec != Codec::Raw {
                continue;
            }
            let folder = folder.join(format!("{}-{codec:?}", format.name()));
            let source = files(&folder, format, Options { codec, block_rows: 64 }, &config(&folder));
            sources.push((format!("{} {codec:?}", format.name()), source));
        }
    }
    // Formats that keep weights.
    let [raw, packed] = [Codec::Raw, Codec::Lz4].map(|codec| Options { codec, block_rows: 64 });
    let blocks = [(Format::Octorec, raw), (Format::Octorec, packed)].into_iter();
    let parquet = Format::WRITTEN.iter().filter(|format| format.name() == "parquet").map(|&format| (format, packed));
    for (number, (format, options)) in blocks.chain(parquet).enumerate() {
        let source = weighted_files(&folder.join(format!("weighted-{number}")), format, options);
        sources.push((format!("weighted {} {:?}", format.name(), options.codec), source));
    }
    let text = folder.join("log.tsv");
    let mut file = std::fs::File::create(&text).unwrap();
    log().write_tsv(Split::Train, 0..SAMPLES, &mut file).unwrap();
    for vocab in [Vocab::All, Vocab::Hash] {
        let config = DataConfig { vocab, ..config(&text) };
        sources.push((format!("tsv {vocab:?}"), Arc::new(Tsv::open(&config, &[40; 26], Opening::default()).unwrap())));
    }
    let csv = folder.join("log.csv");
    let rows = (0..SAMPLES).map(|n| format!("{},{},{}\n", n % 2, n * 7 % 91, n % 13));
    std::fs::write(&csv, ["label,price,kind\n".to_owned()].into_iter().chain(rows).collect::<String>()).unwrap();
    let schema = folder.join("log.toml");
    let columns = "label = \"label\"\n[[dense]]\ncolumn = \"price\"\n[[categorical]]\ncolumn = \"kind\"\n";
    std::fs::write(&schema, columns).unwrap();
    let config = DataConfig { schema: schema.display().to_string(), ..config(&csv) };
    sources.push(("csv".to_owned(), Arc::new(Files::open(&config, Opening::default()).unwrap())));
    sources
}

/// [`sources`], whose files stay until the process ends.
fn every_source() -> &'static [(String, Arc<dyn Source>)] {
    static SOURCES: LazyLock<(tempfile::TempDir, Named)> = LazyLock::new(|| {
        let folder = tempfile::tempdir().unwrap();
        let sources = sources(folder.path());
        (folder, sources)
    });
    &SOURCES.1
}

fn plan(batch: usize, shuffle: Option<Shuffle>) -> Plan {
    Plan { split: Split::Train, batch, epochs: 2, start: Position::default(), shuffle, depth: 2 }
}

/// What one loader gives.
fn whole(source: &Arc<dyn Source>, plan: Plan) -> Vec<(Batch, Position)> {
    let mut loader = Loader::start(Arc::clone(source), plan).unwrap();
    std::iter::from_fn(|| loader.next_batch().unwrap()).collect()
}

/// What the ranks' loaders give, put together in the order of ranks, and the bytes that each read.
fn together(
    source: &Arc<dyn Source>,
    plan: Plan,
    mode: LoaderMode,
    ranks: usize,
) -> (Vec<(Batch, Position)>, Vec<u64>) {
    let mut loaders = RankLoader::start(source, plan, mode, (0..ranks, ranks), None, &[]).unwrap();
    let mut found = Vec::new();
    loop {
        let mut joined = Batch::new(source.schema());
        let mut place = None;
        let mut ended = 0;
        for loader in &mut loaders {
            let Some(portion) = loader.next_portion().unwrap() else {
                ended += 1;
                continue;
            };
            assert_eq!(*place.get_or_insert((portion.samples, portion.position)), (portion.samples, portion.position));
            joined.append_range(portion.batch(), portion.range());
            loader.recycle(portion);
        }
        let Some((samples, position)) = place else {
            assert_eq!(ended, ranks, "all ranks end together");
            return (found, loaders.iter().map(RankLoader::bytes_read).collect());
        };
        assert_eq!((joined.samples(), ended), (samples, 0));
        found.push((joined, position));
    }
}

#[test]
fn the_slices_of_all_ranks_are_the_minibatch_in_every_format_mode_and_order() {
    let folder = tempfile::tempdir().unwrap();
    let orders = [None, Some(Shuffle { seed: 5, window: 170 }), Some(Shuffle { seed: 5, window: 4000 })];
    for (name, source) in sources(folder.path()) {
        for shuffle in orders {
            let plan = plan(96, shuffle);
            let expected = whole(&source, plan);
            assert_eq!(expected.len(), 22, "{name}: 2 epochs of 10 whole minibatches and a smaller one");
            // In the middle of the second epoch, at the end of the first, and in the middle of a window.
            for start in [None, Some(expected[15].1), Some(expected[10].1), Some(expected[0].1)] {
                let from = start.map_or(0, |start| expected.iter().position(|(_, at)| *at == start).unwrap() + 1);
                let plan = Plan { start: start.unwrap_or_default(), ..plan };
                for mode in LoaderMode::ALL {
                    let (found, _) = together(&source, plan, mode, 3);
                    assert_eq!(found, expected[from..], "{name}, {mode:?}, {shuffle:?}, from {start:?}");
                }
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn any_sizes_give_the_minibatch(
        samples in 1u64..400, batch in 1usize..70, ranks in 1usize..9, window in 1usize..120, shuffled: bool,
        after in 0usize..50, seed: u64,
    ) {
        let config = DataConfig { train_samples: samples, test_samples: 0, ..DataConfig::default() };
        let source: Arc<dyn Source> = Arc::new(Criteo::new(&config, &[9; 2], 1).unwrap());
        let plan = plan(batch, shuffled.then_some(Shuffle { seed, window }));
        let expected = whole(&source, plan);
        let after = after % expected.len();
        let plan = Plan { start: expected[after].1, ..plan };
        prop_assert_eq!(&together(&source, plan, LoaderMode::Local, ranks).0[..], &expected[after + 1..]);
        // More samples than one rank's slice may be in its hands; none is lost or doubled.
        let last = Plan { epochs: 1, start: Position::default(), ..plan };
        prop_assert_eq!(together(&source, last, LoaderMode::Broadcast, ranks).0, whole(&source, last));
    }

    #[test]
    fn picks_are_the_samples_that_they_name(picks in proptest::collection::btree_set(0u64..1100, 1..60), first in 0u64..50) {
        for (name, source) in every_source() {
            let mut all = Batch::new(source.schema());
            source.open(Split::Train, first).unwrap().read(&mut all, SAMPLES as usize).unwrap();
            let mut expected = Batch::new(source.schema());
            let there: Vec<_> = picks.iter().filter(|&&pick| pick < all.samples() as u64).collect();
            there.iter().for_each(|&&pick| expected.push_from(&all, pick as usize));
            let mut found = Batch::new(source.schema());
            let mut reader = source.open(Split::Train, first).unwrap();
            let count = reader.pick(&mut found, &picks.iter().copied().collect::<Vec<_>>()).unwrap();
            prop_assert_eq!((count, &found), (there.len(), &expected), "{}", name);
            // And the next sample is the one behind the last pick.
            if there.len() == picks.len() {
                let next = picks.last().unwrap() + 1;
                let (mut one, mut wanted) = (Batch::new(source.schema()), Batch::new(source.schema()));
                let read = reader.read(&mut one, 1).unwrap();
                if read == 1 {
                    wanted.push_from(&all, next as usize);
                }
                prop_assert_eq!((one, read == 1), (wanted, next < all.samples() as u64), "{}", name);
            }
        }
    }
}

#[test]
fn local_reads_every_row_once_and_naive_once_a_rank() {
    let folder = tempfile::tempdir().unwrap();
    for shuffle in [None, Some(Shuffle { seed: 5, window: 170 })] {
        let plan = Plan { epochs: 1, ..plan(96, shuffle) };
        let read = |mode| {
            // Opened anew: blocks that were found sound are not read again.
            let format = |format: Format, codec, row_bytes: u64| {
                let folder = folder.path().join(format!("{}-{mode:?}-{shuffle:?}-{codec:?}", format.name()));
                let source = files(&folder, format, Options { codec, block_rows: 64 }, &config(&folder));
                (together(&source, plan, mode, 4).1, row_bytes * SAMPLES)
            };
            [
                format(Format::Mlperf, Codec::Raw, 160),
                format(Format::Octorec, Codec::Raw, 0),
                format(Format::Octorec, Codec::Lz4, 0),
            ]
        };
        let [local, broadcast, naive] = [LoaderMode::Local, LoaderMode::Broadcast, LoaderMode::Naive].map(read);
        let total = |bytes: &[u64]| bytes.iter().sum::<u64>();
        assert_eq!(total(&local[0].0), local[0].1, "every row of 160 bytes once");
        assert!(local[0].0.iter().all(|&bytes| bytes.abs_diff(local[0].1 / 4) < 160 * 24), "{:?}", local[0]);
        assert_eq!(broadcast[0].0, [broadcast[0].1, 0, 0, 0]);
        assert_eq!(naive[0].0, [naive[0].1; 4]);
        // A block is verified by whoever comes first; afterwards only wanted rows are touched.
        let once = total(&broadcast[1].0);
        assert!((once..2 * once + once / 10).contains(&total(&local[1].0)), "{:?}, {once}", local[1].0);
        assert!(total(&naive[1].0) > 3 * once, "{:?}, {once}", naive[1].0);
        // Compressed blocks are unpacked by each rank that has samples of them.
        assert!(total(&local[2].0) <= 4 * total(&broadcast[2].0) && total(&naive[2].0) >= total(&local[2].0));
    }
}

/// A source of numbers that fails, or panics, at one of them.
struct Failing {
    schema: Schema,
    at: u64,
    panics: bool,
}

struct FailingReader<'a>(&'a Failing, u64);

impl Source for Failing {
    fn schema(&self) -> &Schema {
        &self.schema
    }

    fn samples(&self, _: Split) -> Option<u64> {
        None
    }

    fn open(&self, _: Split, start: u64) -> Result<Box<dyn Reader + '_>> {
        Ok(Box::new(FailingReader(self, start)))
    }
}

impl Reader for FailingReader<'_> {
    fn read(&mut self, batch: &mut Batch, limit: usize) -> Result<usize> {
        for _ in 0..limit {
            if self.1 == self.0.at {
                assert!(!self.0.panics, "made to panic");
                return Err(Error::BadRow {
                    path: "numbers".into(),
                    line: self.1,
                    reason: "made to fail".to_owned().into(),
                });
            }
            batch.labels.push(0.0);
            self.1 += 1;
        }
        Ok(limit)
    }

    fn skip(&mut self, count: u64) -> Result<u64> {
        self.1 += count;
        Ok(count)
    }
}

/// An endless source that notes where its readers run.
struct Placed {
    numbers: Failing,
    seen: Mutex<Vec<Vec<PuId>>>,
}

impl Source for Placed {
    fn schema(&self) -> &Schema {
        self.numbers.schema()
    }

    fn samples(&self, split: Split) -> Option<u64> {
        self.numbers.samples(split)
    }

    fn open(&self, split: Split, start: u64) -> Result<Box<dyn Reader + '_>> {
        self.seen.lock().unwrap().push(current_affinity()?);
        self.numbers.open(split, start)
    }
}

#[test]
fn ranks_own_loaders_run_where_they_are_told() {
    let home = current_affinity().unwrap();
    let several = if home.len() > 1 { Ok(()) } else { Err("this process may use one cpu") };
    if required("two-cpus", several).is_none() {
        return;
    }
    let last = home[home.len() - 1..].to_vec();
    for mode in [LoaderMode::Local, LoaderMode::Naive] {
        let numbers =
            Failing { schema: Schema { dense: 0, weighted: false, tables: Vec::new() }, at: u64::MAX, panics: false };
        let placed = Arc::new(Placed { numbers, seen: Mutex::default() });
        let (source, asides): (Arc<dyn Source>, _) = (placed.clone(), [last.clone(), Vec::new()]);
        let mut loaders = RankLoader::start(&source, plan(10, None), mode, (0..3, 3), None, &asides).unwrap();
        assert!(loaders.iter_mut().all(|loader| loader.next_portion().unwrap().is_some()));
        let mut seen = placed.seen.lock().unwrap().clone();
        seen.sort_by_key(Vec::len);
        assert_eq!(seen, [last.clone(), home.clone(), home.clone()], "{mode:?}: one is told, the others roam");
    }
}

#[test]
fn an_error_reaches_every_rank_after_the_minibatches_before_it() {
    for panics in [false, true] {
        let schema = Schema { dense: 0, weighted: false, tables: Vec::new() };
        let source: Arc<dyn Source> = Arc::new(Failing { schema, at: 25, panics });
        let message = if panics { "made to panic" } else { "line 25: made to fail" };
        let mut loaders =
            RankLoader::start(&source, plan(10, None), LoaderMode::Broadcast, (0..3, 3), None, &[]).unwrap();
        for loader in &mut loaders {
            for _ in 0..2 {
                let portion = loader.next_portion().unwrap().unwrap();
                assert_eq!((portion.samples, portion.batch().samples()), (10, 10));
                loader.recycle(portion);
            }
        }
        for loader in &mut loaders {
            let error = loader.next_portion().err().expect("the minibatch is not whole").to_string();
            assert!(error.contains(message), "{error}");
            assert!(loader.next_portion().unwrap().is_none(), "after an error there is nothing more");
        }
    }
    // In `local`, the rank whose sample it is.
    let source: Arc<dyn Source> =
        Arc::new(Failing { schema: Schema { dense: 0, weighted: false, tables: Vec::new() }, at: 25, panics: false });
    let mut loaders = RankLoader::start(&source, plan(10, None), LoaderMode::Local, (0..2, 2), None, &[]).unwrap();
    for (rank, loader) in loaders.iter_mut().enumerate() {
        (0..2).for_each(|_| assert!(loader.next_portion().unwrap().is_some()));
        assert_eq!(loader.next_portion().is_err(), rank == 1, "sample 25 is the second rank's");
    }
}

#[test]
fn minibatches_of_an_endless_source_are_sliced_and_dropped_loaders_end() {
    let config = DataConfig { lookups: 2.into(), ..DataConfig::default() };
    let source: Arc<dyn Source> = Arc::new(Random::new(&config, &[10; 3], 2).unwrap());
    for mode in LoaderMode::ALL {
        let mut loaders =
            RankLoader::start(&source, plan(7, Some(Shuffle { seed: 1, window: 10 })), mode, (0..9, 9), None, &[])
                .unwrap();
        let sizes: Vec<_> =
            loaders.iter_mut().map(|loader| loader.next_portion().unwrap().unwrap().range().len()).collect();
        assert_eq!(sizes, [1, 1, 1, 1, 1, 1, 1, 0, 0]);
        drop(loaders);
    }
    assert_eq!(Arc::strong_count(&source), 1, "all threads have ended");
    let unknown = Random::new(&config, &[10], 1).unwrap();
    assert_eq!(unknown.open(Split::Train, 0).unwrap().bytes_read(), 0);
}

/// A source whose reads wait until nobody wants more.
struct Awaited {
    schema: Schema,
    closed: OnceLock<()>,
    reads: AtomicUsize,
}

struct AwaitedReader<'a>(&'a Awaited);

impl Source for Awaited {
    fn schema(&self) -> &Schema {
        &self.schema
    }

    fn samples(&self, _: Split) -> Option<u64> {
        Some(1 << 20)
    }

    fn close(&self) {
        self.closed.set(()).unwrap();
    }

    fn open(&self, _: Split, _: u64) -> Result<Box<dyn Reader + '_>> {
        Ok(Box::new(AwaitedReader(self)))
    }
}

impl Reader for AwaitedReader<'_> {
    fn read(&mut self, batch: &mut Batch, limit: usize) -> Result<usize> {
        self.0.closed.wait();
        self.0.reads.fetch_add(1, Ordering::Relaxed);
        batch.labels.extend(std::iter::repeat_n(0.0, limit));
        Ok(limit)
    }

    fn skip(&mut self, count: u64) -> Result<u64> {
        Ok(count)
    }
}

#[test]
fn dropped_loaders_leave_their_first_window_unread() {
    for mode in LoaderMode::ALL {
        let (schema, reads) = (Schema { dense: 0, weighted: false, tables: Vec::new() }, AtomicUsize::new(0));
        let awaited = Arc::new(Awaited { schema, closed: OnceLock::new(), reads });
        let source = Arc::clone(&awaited) as Arc<dyn Source>;
        let plan = plan(10, Some(Shuffle { seed: 1, window: 1 << 20 }));
        drop(RankLoader::start(&source, plan, mode, (0..1, 1), None, &[]).unwrap());
        // What is read at a time, of which a window has hundreds.
        assert!(awaited.reads.load(Ordering::Relaxed) <= 1, "{mode:?}: {:?}", awaited.reads);
    }
}
