//! The three passes of a fully connected layer against the processor's own limit.
//!
//! The limit is that of `machine::limits`: independent multiply-adds in registers, on all threads: in f32, on pairs of
//! bfloat16, and on tiles of bfloat16 where the processor has AMX; each pass is held against the limit of what it runs
//! on. Each round runs the limit, a pass, and the limit again, and compares the pass with the mean of both, so that a
//! machine whose clock drifts does not decide the ratio. Printed are the median over the rounds in which both limits
//! agree within 10 % (and how many those are), by the wall's clock, and by the processor time of all threads: where
//! others use the cores too, only the latter says what the kernels do. Answers are checked before they are timed:
//! forward against the plain product, to the bit.
//!
//! `cargo bench --bench gemm [-- [--threads T] [--rounds R] [N C K]...]`

mod plain;

use std::fmt::Write as _;
use std::time::Instant;

use octorec::base::rng::{Random, Stream};
use octorec::machine::limits::{amx_peak, bf16_peak, f32_peak};
use octorec::machine::team::Team;
use octorec::math::brgemm::{self, After, Onto, Panels, Plan, bf16};
use octorec::simd::Isa;
use octorec::simd::amx::Amx;
use plain::Gemm;
use rustix::time::{ClockId, clock_gettime};

/// What multiplies.
#[derive(Clone, Copy)]
enum Unit {
    F32,
    Pairs,
    Tiles,
}

/// Gigaflops by the wall's clock and by processor time.
#[derive(Clone, Copy)]
struct Rate {
    wall: f64,
    busy: f64,
}

fn busy_ns() -> f64 {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    time.tv_sec as f64 * 1e9 + time.tv_nsec as f64
}

fn rate(threads: usize, flops: usize, work: impl FnOnce()) -> Rate {
    let (busy, start) = (busy_ns(), Instant::now());
    work();
    let (wall, busy) = (start.elapsed().as_nanos() as f64, busy_ns() - busy);
    Rate { wall: flops as f64 / wall, busy: flops as f64 * threads as f64 / busy }
}

/// All threads in registers.
fn peak(team: &Team, unit: Unit) -> Rate {
    let (busy, start) = (busy_ns(), Instant::now());
    let rate = match unit {
        Unit::F32 => Some(f32_peak(team)),
        Unit::Pairs => bf16_peak(team).or_else(|| Some(f32_peak(team))),
        Unit::Tiles => amx_peak(team),
    };
    let wall = rate.expect("tiles run where the processor has them").median;
    // The part of the wall's time in which all threads ran.
    let ran = (busy_ns() - busy) / (start.elapsed().as_nanos() as f64 * team.threads() as f64);
    Rate { wall, busy: wall / ran }
}

/// What the rounds of a pass showed: medians.
struct Row {
    gflops: f64,
    peak: f64,
    wall: f64,
    /// Rounds behind `wall`.
    steady: usize,
    busy: f64,
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}

fn measure(team: &Team, unit: Unit, flops: usize, rounds: usize, mut pass: impl FnMut()) -> Row {
    pass();
    let mut before = peak(team, unit);
    let [mut gflops, mut peaks, mut wall, mut busy] = [const { Vec::new() }; 4];
    for _ in 0..rounds {
        let seen = rate(team.threads(), flops, &mut pass);
        let after = peak(team, unit);
        let mean = Rate { wall: f64::midpoint(before.wall, after.wall), busy: f64::midpoint(before.busy, after.busy) };
        gflops.push(seen.wall);
        peaks.push(mean.wall);
        if (before.wall - after.wall).abs() < 0.1 * mean.wall {
            wall.push(seen.wall / mean.wall);
        }
        busy.push(seen.busy / mean.busy);
        before = after;
    }
    let steady = wall.len();
    Row { gflops: median(gflops), peak: median(peaks), wall: median(wall), steady, busy: median(busy) }
}

fn random(rows: usize, columns: usize, stream: u32) -> Vec<f32> {
    let random = Random::new(3, Stream::Column(stream));
    (0..(rows * columns) as u64).map(|i| (random.uniform(i) - 0.5) as f32).collect()
}

fn narrowed(from: &Panels<f32>) -> Panels<u16> {
    let mut to = Panels::zeroed(from.rows(), from.columns());
    let cells = to.cells_mut().as_flattened_mut().iter_mut().zip(from.cells().as_flattened());
    cells.for_each(|(to, &x)| *to = octorec::simd::bf16::narrow(x));
    to
}

/// Prints a row, and gives its ratio by processor time.
fn print(name: &str, [n, c, k]: [usize; 3], row: &Row) -> f64 {
    let Row { gflops, peak, wall, steady, busy } = row;
    let (wall, share) = (100.0 * wall, 100.0 * busy);
    println!("{n:5} {c:5} {k:5}  {name:22} {gflops:7.1} {peak:7.1}  {wall:5.1} % ({steady:2})  {share:5.1} %");
    *busy
}

/// The passes in f32.
fn f32_passes(team: &Team, [n, c, k]: [usize; 3], rounds: usize) -> Vec<f64> {
    let (x, w, dy) = (random(n, c, 1), random(c, k, 2), random(n, k, 3));
    let bias = random(1, k, 4);
    let (px, pw, pdy) = (Panels::from_rows(&x, n, c), Panels::from_rows(&w, c, k), Panels::from_rows(&dy, n, k));
    let (mut y, mut dx, mut dw) = (Panels::zeroed(n, k), Panels::zeroed(n, c), Panels::zeroed(c, k));
    let flops = 2 * n * c * k;
    let sizes = [n, c, k];

    brgemm::forward(team, n, &px, &pw, &bias, &mut y, After::Relu);
    let mut expected = bias.repeat(n);
    team.isa().run(Gemm { out: &mut expected, a: &x, b: &w, rows: n, depth: c, columns: k });
    expected.iter_mut().filter(|y| **y <= 0.0).for_each(|y| *y = 0.0);
    assert!(y.to_rows() == expected, "forward gives the bits of the plain product");

    let row = measure(team, Unit::F32, flops, rounds, || {
        brgemm::forward(team, n, &px, &pw, &bias, &mut y, After::Relu);
    });
    let forward = print("f32 forward", sizes, &row);
    let row = measure(team, Unit::F32, flops, rounds, || {
        brgemm::backward_data(team, n, &pdy, &pw, &mut dx, After::Gate(&px));
    });
    let data = print("f32 backward data", sizes, &row);
    let row = measure(team, Unit::F32, flops, rounds, || {
        brgemm::backward_weights(team, 0..n, &px, &pdy, Onto::Zero, &mut dw);
    });
    vec![forward, data, print("f32 backward weights", sizes, &row)]
}

/// The passes in bfloat16, on pairs or on tiles.
fn bf16_passes(team: &Team, unit: Unit, [n, c, k]: [usize; 3], rounds: usize) -> Vec<f64> {
    let name = if matches!(unit, Unit::Tiles) { "amx" } else { "bf16" };
    let [px, pw, pdy] =
        [(n, c, 1), (c, k, 2), (n, k, 3)].map(|(n, c, which)| Panels::from_rows(&random(n, c, which), n, c));
    let (bias, mut dw) = (random(1, k, 4), Panels::zeroed(c, k));
    let (flops, sizes) = (2 * n * c * k, [n, c, k]);

    let (hx, hdy, hw) = (narrowed(&px), narrowed(&pdy), bf16::pairs_of(team, &pw));
    let (mut hy, mut hdx) = (Panels::<u16>::zeroed(n, k), Panels::<u16>::zeroed(n, c));
    let row = measure(team, unit, flops, rounds, || {
        bf16::forward(team, n, &hx, &hw, &bias, &mut hy, After::Relu);
    });
    let forward = print(&format!("{name} forward"), sizes, &row);
    let row = measure(team, unit, flops, rounds, || {
        bf16::backward_data(team, n, &hdy, &hw, &mut hdx, After::Gate(&hx));
    });
    let data = print(&format!("{name} backward data"), sizes, &row);
    let mut pairs = [c, k].map(|columns| Panels::zeroed(n.div_ceil(2), columns));
    let row = measure(team, unit, flops, rounds, || {
        bf16::backward_weights(team, 0..n, &hx, &hdy, &mut pairs, Onto::Zero, &mut dw);
    });
    vec![forward, data, print(&format!("{name} backward weights"), sizes, &row)]
}

/// The plans of a shape's passes, as the library makes them.
fn plans([n, c, k]: [usize; 3], threads: usize) -> String {
    let mut text = String::new();
    for (name, shape) in [
        ("forward", brgemm::forward_shape(n, c, k, threads)),
        ("backward data", brgemm::forward_shape(n, k, c, threads)),
        ("backward weights", brgemm::weights_shape(n, c, k, threads)),
    ] {
        let _ = writeln!(text, "# {n} {c} {k} {name}: {}", Plan::new(shape));
    }
    text
}

fn main() {
    let (mut threads, mut rounds, mut sizes) = (0, 7, Vec::new());
    let mut arguments = std::env::args().skip(1).filter(|argument| argument != "--bench");
    while let Some(argument) = arguments.next() {
        let mut number = || arguments.next().and_then(|text| text.parse().ok()).expect("a number");
        match argument.as_str() {
            "--threads" => threads = number(),
            "--rounds" => rounds = number(),
            size => sizes.push(size.parse::<usize>().expect("a number, --threads or --rounds")),
        }
    }
    let mut shapes: Vec<_> = sizes.as_chunks().0.to_vec();
    if shapes.is_empty() {
        shapes = vec![
            [1024, 1024, 1024],
            [1024, 2048, 2048],
            [1024, 4096, 4096],
            [2048, 512, 512],
            [2048, 479, 1024],
            [2048, 1024, 1024],
        ];
    }
    let vectors = *Isa::all().last().expect("portable code runs everywhere");
    let team = Team::with_isa(threads, vectors).expect("threads");
    println!("# {} threads, {:?}, {rounds} rounds", team.threads(), Isa::best());
    for &shape in &shapes {
        print!("{}", plans(shape, team.threads()));
    }
    println!("    N     C     K  pass                   GFLOP/s   limit    wall (of)     busy");
    let mean = |name: &str, ratios: Vec<f64>| {
        println!("# {name}: mean ratio, busy {:.1} %", 100.0 * ratios.iter().sum::<f64>() / ratios.len() as f64);
    };
    mean("f32", shapes.iter().flat_map(|&sizes| f32_passes(&team, sizes, rounds)).collect());
    mean("bf16", shapes.iter().flat_map(|&sizes| bf16_passes(&team, Unit::Pairs, sizes, rounds)).collect());
    drop(team);
    if let Some(amx) = Amx::detect() {
        let team = Team::with_isa(threads, Isa::AmxBf16(amx)).expect("threads");
        mean("amx", shapes.iter().flat_map(|&sizes| bf16_passes(&team, Unit::Tiles, sizes, rounds)).collect());
    }
}
