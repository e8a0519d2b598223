//! Embedding bags at the size of the papers' `small` model: 8 tables x 1M rows x 64 columns, 50 look-ups a bag, 2048
//! samples (`cargo bench --bench embedding -- --quick` for a hundredth of it).
//!
//! The limit of the forward pass is measured in the same process, right before and right after: all threads read whole
//! random rows that are asked for in time, and do nothing else. Answers are checked before anything is timed. Medians.

use std::hint::black_box;
use std::time::Instant;

use octorec::base::config::{Pooling, Precision, Update};
use octorec::base::rng::{Random, Stream};
use octorec::data::zipf::{Scatter, Zipf};
use octorec::data::{Batch, Column, Schema};
use octorec::embedding::{LookUp, Lookups, Slots, Source, Spec, Table, Updater};
use octorec::machine::team::Team;
use octorec::memory::Supply;
use octorec::simd::{Kernel, Simd};

const TABLES: usize = 8;
/// Where each table\'s pooled rows begin in a sample\'s features, behind the bottom MLP\'s output.
const STARTS: [usize; TABLES] = {
    let (mut starts, mut table) = ([0; TABLES], 0);
    while table < TABLES {
        starts[table] = DIM + table * DIM;
        table += 1;
    }
    starts
};
const DIM: usize = 64;
const LOOKUPS: usize = 50;
const RATE: f32 = 1e-3;

struct Sizes {
    rows: u64,
    samples: usize,
    repeats: usize,
}

fn main() {
    let quick = std::env::args().any(|argument| argument == "--quick" || argument == "--test");
    let sizes = match quick {
        true => Sizes { rows: 10_000, samples: 128, repeats: 3 },
        false => Sizes { rows: 1_000_000, samples: 2048, repeats: 15 },
    };
    let team = Team::new(0).expect("threads");
    let mut tables = tables(&team, &sizes);
    let slots = Slots::new(DIM + TABLES * DIM, &STARTS);
    println!(
        "{TABLES} tables x {} rows x {DIM}, {LOOKUPS} look-ups, {} samples, {} threads with {}",
        sizes.rows,
        sizes.samples,
        team.threads(),
        team.isa().name()
    );
    for zipf in [0.0, 1.05] {
        println!("\n{}", if zipf == 0.0 { "uniform rows".to_owned() } else { format!("Zipf {zipf}") });
        let batch = batch(&sizes, zipf);
        forward(&team, &tables, &batch, slots, &sizes);
        updates(&team, &mut tables, &batch, slots, &sizes);
    }
}

fn tables(team: &Team, sizes: &Sizes) -> Vec<Table> {
    let table = |number: usize| {
        let mut table =
            Table::new(format!("C{number}"), sizes.rows, DIM, Precision::F32, &mut Supply::System).expect("memory");
        table.fill(team, |first, row| {
            row.iter_mut().zip(first..).for_each(|(weight, i)| *weight = (i * 7 % 1013) as f32 * 1e-3 - 0.5);
        });
        table
    };
    (1..=TABLES).map(table).collect()
}

fn batch(sizes: &Sizes, exponent: f64) -> Batch {
    let tables = (0..TABLES).map(|_| Column::new("C", sizes.rows)).collect();
    let schema = Schema { dense: 0, weighted: false, tables };
    let mut batch = Batch::new(&schema);
    let zipf = Zipf::new(sizes.rows, exponent);
    for (index, bag) in batch.bags.iter_mut().enumerate() {
        let scatter = Scatter::new(sizes.rows, index as u64);
        let random = Random::new(index as u64 + 1, Stream::Label);
        for n in 0..sizes.samples as u64 {
            let draw = |s: u64| f64::from(random.block(n * LOOKUPS as u64 + s)[0]) / 4_294_967_296.0;
            bag.rows.extend((0..LOOKUPS as u64).map(|s| scatter.row(zipf.rank(draw(s)))));
            bag.close();
        }
    }
    batch.labels.resize(sizes.samples, 0.0);
    batch.check(&schema).expect("rows lie in their tables");
    batch
}

/// Median seconds, or the fewest with `--fastest`: on a machine that others use too, these are nearer to the truth.
fn time(repeats: usize, mut work: impl FnMut()) -> f64 {
    work();
    let mut seconds: Vec<f64> = (0..repeats)
        .map(|_| {
            let began = Instant::now();
            work();
            began.elapsed().as_secs_f64()
        })
        .collect();
    seconds.sort_by(f64::total_cmp);
    if std::env::args().any(|argument| argument == "--fastest") { seconds[0] } else { seconds[repeats / 2] }
}

/// Reads whole rows, asked for `distance` rows ahead.
struct Gather<'a> {
    table: &'a [f32],
    rows: &'a [u32],
    distance: usize,
}

impl Kernel for Gather<'_> {
    type Out = f32;

    #[inline(always)]
    fn run<S: Simd>(self, simd: S) -> f32 {
        let Self { table, rows, distance } = self;
        let mut sums = [simd.splat(0.0); 4];
        for (index, &row) in rows.iter().enumerate() {
            if let Some(&ahead) = rows.get(index + distance) {
                table[ahead as usize * DIM..][..DIM].chunks(16).for_each(|line| simd.prefetch(line));
            }
            for (part, columns) in table[row as usize * DIM..][..DIM].chunks_exact(S::LANES).enumerate() {
                sums[part % 4] = simd.add(sums[part % 4], simd.load(columns));
            }
        }
        let mut out = [0.0; 16];
        sums.into_iter().for_each(|sum| {
            let before = simd.load(&out);
            simd.store(simd.add(before, sum), &mut out);
        });
        out.iter().sum()
    }
}

/// Bytes a second of reading this batch's rows in any order, at the best distance.
fn gather_limit(team: &Team, tables: &[Table], batch: &Batch, sizes: &Sizes) -> (f64, usize) {
    let (isa, threads) = (team.isa(), team.threads());
    let rate = |distance: usize| {
        let seconds = time(sizes.repeats.div_ceil(3), || {
            team.run(|thread| {
                for (table, bag) in tables.iter().zip(&batch.bags) {
                    let part = |t: usize| bag.rows.len() * t / threads;
                    let rows = &bag.rows[part(thread)..part(thread + 1)];
                    black_box(isa.run(Gather { table: &table.weights(), rows, distance }));
                }
            });
        });
        (gathered(batch) / seconds, distance)
    };
    [4, 8, 12, 16, 24, 32, 48].map(rate).into_iter().max_by(|a, b| a.0.total_cmp(&b.0)).expect("some distance")
}

fn gathered(batch: &Batch) -> f64 {
    batch.bags.iter().map(|bag| bag.rows.len() * DIM * 4).sum::<usize>() as f64
}

fn forward(team: &Team, tables: &[Table], batch: &Batch, slots: Slots, sizes: &Sizes) {
    let mut features = vec![0.0; sizes.samples * slots.row];
    let mut look_up = LookUp::new(Pooling::Sum, TABLES, team.threads());
    let lookups = Lookups::plain(&batch.bags);
    look_up.run(team, tables, lookups, &mut features, slots);
    for n in [0, sizes.samples / 2, sizes.samples - 1] {
        for (t, table) in tables.iter().enumerate() {
            let weights = table.weights();
            let row = |row: u32| &weights[row as usize * DIM..][..DIM];
            for e in 0..DIM {
                let sum = batch.bags[t].of(n).iter().fold(0.0, |sum, &r| sum + row(r)[e]);
                assert_eq!(features[n * slots.row + slots.starts[t] + e], sum, "sample {n}, table {t}");
            }
        }
    }
    let (before, distance) = gather_limit(team, tables, batch, sizes);
    let seconds = time(sizes.repeats, || look_up.run(team, tables, lookups, black_box(&mut features), slots));
    let (after, _) = gather_limit(team, tables, batch, sizes);
    let (limit, reached) = (f64::midpoint(before, after), gathered(batch) / seconds);
    let drift = (before / after - 1.0).abs();
    println!(
        "forward: {:.2} ms, {:.1} GB/s, {:.0} % of the gather limit {:.1} GB/s ({distance} rows ahead{})",
        seconds * 1e3,
        reached * 1e-9,
        reached / limit * 100.0,
        limit * 1e-9,
        if drift > 0.1 { format!("; the machine drifted by {:.0} %", drift * 100.0) } else { String::new() }
    );
}

fn updates(team: &Team, tables: &mut [Table], batch: &Batch, slots: Slots, sizes: &Sizes) {
    let gradient: Vec<f32> = (0..sizes.samples * slots.row).map(|i| (i % 101) as f32 * 1e-4 - 5e-3).collect();
    let lookups = Lookups::plain(&batch.bags);
    let original: Vec<f32> = tables[0].weights().to_vec();
    let mut expected = Vec::new();
    let mut times = Vec::new();
    for update in [Update::Serial, Update::Atomic, Update::Rtm, Update::RaceFree, Update::Sorted, Update::Auto] {
        let mut took = [0.0; 2];
        for (fused, seconds) in [true, false].into_iter().zip(&mut took) {
            let spec = Spec {
                update,
                fused,
                pooling: Pooling::Sum,
                tables: TABLES,
                dim: DIM,
                kept: Precision::F32.into(),
                lookups: batch.bags.iter().map(|bag| bag.rows.len()).sum(),
                threads: team.threads(),
            };
            let mut updater = Updater::new(spec, &mut Supply::System).expect("memory");
            tables[0].set_weights(0, &original);
            updater.run(team, tables, &[Source { lookups, gradient: &gradient, slots }], RATE);
            if update == Update::Serial && fused {
                expected = tables[0].weights().to_vec();
            }
            let shared = matches!(update, Update::Atomic | Update::Rtm);
            let bound = if shared { 1e-4 } else { 0.0 };
            let wrong = tables[0].weights().iter().zip(&expected).position(|(x, y)| (x - y).abs() > bound);
            assert_eq!(wrong, None, "{update:?} gives the rows of serial");
            *seconds = time(sizes.repeats, || {
                updater.run(team, tables, &[Source { lookups, gradient: &gradient, slots }], RATE)
            });
            if let (true, Some(note)) = (fused, updater.note()) {
                println!("{note}");
            }
            if let (true, Update::Auto, Some(choice)) = (fused, update, updater.choice()) {
                println!("auto: {choice}");
            }
        }
        times.push((update, took));
    }
    let atomic = times[1].1;
    println!(
        "{:<12} {:>9} {:>12} {:>16} {:>18}",
        "update", "fused ms", "separate ms", "separate/fused", "atomic/this, fused"
    );
    for (update, [fused, separate]) in times {
        println!(
            "{:<12} {:>9.2} {:>12.2} {:>15.2}x {:>17.2}x",
            format!("{update:?}"),
            fused * 1e3,
            separate * 1e3,
            separate / fused,
            atomic[0] / fused
        );
    }
}
