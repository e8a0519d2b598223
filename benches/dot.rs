//! The dot interaction, from panels to panels, against the processor's peak and the memory's stream.
//!
//! A limit is the larger of multiply-adds over measured peak and bytes over measured stream, every operand read once
//! and every result written once; peak and stream are measured right before and right after. Rounds take turns over
//! minibatches that together exceed the caches' share of a step, as a step's own data does. Printed are the median
//! round and the fastest, which others that use the cores disturb least; and, in the same run, the plain way: one
//! product after another by [`Gemm`], row-major, which also checks the answers to the bit.
//!
//! `cargo bench --bench dot [-- [--threads T] [--rounds R]]`

mod plain;

use std::time::Instant;

use octorec::base::rng::{Random, Stream};
use octorec::layer::{Dot, Features, FeaturesMut};
use octorec::machine::limits::{Field, Pages, around, f32_peak};
use octorec::machine::team::Team;
use octorec::math::brgemm::Panels;
use octorec::memory::Supply;
use plain::Gemm;

const SAMPLES: usize = 2048;

/// The field that is streamed: more than a core's caches.
const FIELD_BYTES: usize = 512 << 20;

/// A minibatch between the bottom and the top MLP.
struct Minibatch {
    x: Panels<f32>,
    pooled: Vec<f32>,
    out: Panels<f32>,
    gradient: Panels<f32>,
    x_gradient: Panels<f32>,
    /// The pooled rows again, of which backward passes make gradients, and of these again.
    in_place: Vec<f32>,
}

#[derive(Clone, Copy)]
struct Shape {
    name: &'static str,
    vectors: usize,
    dim: usize,
}

impl Shape {
    const fn pooled(self) -> usize {
        (self.vectors - 1) * self.dim
    }

    const fn pairs(self) -> usize {
        self.vectors * (self.vectors - 1) / 2
    }

    const fn outputs(self) -> usize {
        self.dim + self.pairs()
    }
}

fn random(len: usize, stream: usize) -> Vec<f32> {
    let random = Random::new(3, Stream::Column(stream as u32));
    (0..len as u64).map(|i| (random.uniform(i) - 0.5) as f32).collect()
}

fn minibatch(shape: Shape, number: usize) -> Minibatch {
    // Half of x is 0, as behind a ReLU.
    let x: Vec<f32> = random(SAMPLES * shape.dim, 3 * number).iter().map(|x| x.max(0.0)).collect();
    let pooled = random(SAMPLES * shape.pooled(), 3 * number + 1);
    Minibatch {
        x: Panels::from_rows(&x, SAMPLES, shape.dim),
        in_place: pooled.clone(),
        pooled,
        out: Panels::zeroed(SAMPLES, shape.outputs()),
        gradient: Panels::from_rows(&random(SAMPLES * shape.outputs(), 3 * number + 2), SAMPLES, shape.outputs()),
        x_gradient: Panels::zeroed(SAMPLES, shape.dim),
    }
}

/// The plain way, one thread: each sample's products whole, row-major, from and to row-major matrices.
struct Plain {
    shape: Shape,
    features: Vec<f32>,
    transposed: Vec<f32>,
    products: Vec<f32>,
}

impl Plain {
    fn new(shape: Shape, batch: &Minibatch) -> Self {
        let rows = batch.x.to_rows();
        let samples = rows.chunks(shape.dim).zip(batch.pooled.chunks(shape.pooled()));
        let features = samples.flat_map(|(x, pooled)| [x, pooled].concat()).collect();
        let [transposed, products] =
            [shape.vectors * shape.dim, shape.vectors * shape.vectors].map(|len| vec![0.0; len]);
        Self { shape, features, transposed, products }
    }

    fn forward(&mut self, team: &Team, out: &mut [f32]) {
        let Shape { vectors, dim, .. } = self.shape;
        for (t, out) in self.features.chunks(vectors * dim).zip(out.chunks_mut(self.shape.outputs())) {
            for (d, row) in self.transposed.chunks_mut(vectors).enumerate() {
                row.iter_mut().zip(t[d..].iter().step_by(dim)).for_each(|(to, &x)| *to = x);
            }
            let (products, b) = (&mut self.products, &self.transposed);
            products.fill(0.0);
            team.isa().run(Gemm { out: products, a: t, b, rows: vectors, depth: dim, columns: vectors });
            out[..dim].copy_from_slice(&t[..dim]);
            let lower = (0..vectors).flat_map(|i| &self.products[i * vectors..][..i]);
            out[dim..].iter_mut().zip(lower).for_each(|(to, &from)| *to = from);
        }
    }

    fn backward(&mut self, team: &Team, gradient: &[f32], out: &mut [f32]) {
        let Shape { vectors, dim, .. } = self.shape;
        let samples = self.features.chunks(vectors * dim).zip(gradient.chunks(self.shape.outputs()));
        for ((t, gradient), out) in samples.zip(out.chunks_mut(vectors * dim)) {
            let mut lower = gradient[dim..].iter();
            for i in 0..vectors {
                for j in 0..i {
                    let &dz = lower.next().expect("one a pair");
                    self.products[i * vectors + j] = dz;
                    self.products[j * vectors + i] = dz;
                }
                self.products[i * vectors + i] = 0.0;
            }
            out.fill(0.0);
            out[..dim].copy_from_slice(&gradient[..dim]);
            team.isa().run(Gemm { out, a: &self.products, b: t, rows: vectors, depth: vectors, columns: dim });
            let gated = out[..dim].iter_mut().zip(&t[..dim]);
            gated.for_each(|(dx, &x)| *dx = if x <= 0.0 { 0.0 } else { *dx });
        }
    }
}

/// One pass over a minibatch.
type Pass = fn(&mut Dot, &Team, &mut Minibatch);

fn forward(dot: &mut Dot, team: &Team, batch: &mut Minibatch) {
    dot.forward(
        team,
        SAMPLES,
        Features { x: &batch.x, pooled: &batch.pooled, row: batch.pooled.len() / SAMPLES },
        &mut batch.out,
    );
}

fn backward(dot: &mut Dot, team: &Team, batch: &mut Minibatch) {
    let Minibatch { x, gradient, x_gradient, in_place, .. } = batch;
    let row = in_place.len() / SAMPLES;
    dot.backward(team, SAMPLES, gradient, FeaturesMut { x, x_gradient, pooled: in_place, row });
}

/// Milliseconds of the median round and of the fastest.
fn time(rounds: usize, mut round: impl FnMut(usize)) -> [f64; 2] {
    round(0);
    let mut times: Vec<f64> = (0..rounds)
        .map(|number| {
            let start = Instant::now();
            round(number);
            start.elapsed().as_secs_f64() * 1e3
        })
        .collect();
    times.sort_by(f64::total_cmp);
    [times[rounds / 2], times[0]]
}

fn measure(team: &Team, field: &Field, shape: Shape, rounds: usize) {
    let mut dot = Dot::new(true, [shape.vectors - 1, shape.dim], false, team.threads(), &mut Supply::System)
        .expect("memory for scratch");
    let mut batches: Vec<_> = (0..4).map(|number| minibatch(shape, number)).collect();
    let mut plain = Plain::new(shape, &batches[0]);
    let mut expected = vec![0.0; SAMPLES * shape.outputs()];
    let mut expected_gradient = vec![0.0; SAMPLES * shape.vectors * shape.dim];
    let gradient = batches[0].gradient.to_rows();
    // The plain way has one thread, so each of the team's would take its share of this time.
    let share = 1.0 / team.threads() as f64;
    let plain_ms = [
        time(rounds / 4, |_| plain.forward(team, &mut expected))[1] * share,
        time(rounds / 4, |_| plain.backward(team, &gradient, &mut expected_gradient))[1] * share,
    ];
    forward(&mut dot, team, &mut batches[0]);
    assert!(batches[0].out.to_rows() == expected, "forward gives the bits of the plain product");
    backward(&mut dot, team, &mut batches[0]);
    let found = batches[0].x_gradient.to_rows();
    let found = found.chunks(shape.dim).zip(batches[0].in_place.chunks(shape.pooled()));
    let found: Vec<f32> = found.flat_map(|(x, pooled)| [x, pooled].concat()).collect();
    assert!(found == expected_gradient, "backward gives the bits of the plain product");

    let products = 2.0 * (SAMPLES * shape.pairs() * shape.dim) as f64;
    let features = (SAMPLES * shape.vectors * shape.dim * size_of::<f32>()) as f64;
    let result = (SAMPLES * shape.outputs() * size_of::<f32>()) as f64;
    let passes: [(&str, f64, f64, Pass); 2] = [
        ("forward", products, features + result, forward),
        ("backward", 2.0 * products, 2.0 * features + result, backward),
    ];
    for ((pass, operations, bytes, run), plain_ms) in passes.into_iter().zip(plain_ms) {
        let count = batches.len();
        let ([peak, stream], [median, fastest]) = around(
            || [f32_peak(team), field.read(team)],
            || time(rounds, |number| run(&mut dot, team, &mut batches[number % count])),
        );
        let by_peak = operations / peak.mean() / 1e6;
        let by_stream = bytes / stream.mean() / 1e6;
        println!(
            "{:7} {pass:8} {:2} x {:3}  {median:7.3} {fastest:7.3} {plain_ms:7.3}  {by_peak:6.3} {by_stream:6.3}  {:4.0} % of \
             peak, {:4.0} % of stream, {:4.0} % of the limit",
            shape.name,
            shape.vectors,
            shape.dim,
            100.0 * by_peak / median,
            100.0 * by_stream / median,
            100.0 * by_peak.max(by_stream) / median,
        );
        for (bracket, name) in [(peak, "peak"), (stream, "stream")] {
            bracket.remark(name).into_iter().for_each(|remark| println!("# {remark}"));
        }
    }
}

fn main() {
    let (mut threads, mut rounds) = (vec![1, 2], 60);
    let mut arguments = std::env::args().skip(1).filter(|argument| argument != "--bench");
    while let Some(argument) = arguments.next() {
        let mut number = || arguments.next().and_then(|text| text.parse().ok()).expect("a number");
        match argument.as_str() {
            "--threads" => threads = vec![number()],
            "--rounds" => rounds = number().max(4),
            other => panic!("{other}: expected --threads or --rounds"),
        }
    }
    for threads in threads {
        let team = Team::new(threads).expect("threads");
        let field = Field::new(&team, FIELD_BYTES, Pages::Huge).expect("memory");
        println!("# {} threads, {:?}, {SAMPLES} samples; milliseconds", team.threads(), team.isa());
        println!("                           median fastest   plain    peak stream");
        for (name, vectors, dim) in [("kaggle", 27, 16), ("mlperf", 27, 128), ("small", 9, 64)] {
            measure(&team, &field, Shape { name, vectors, dim }, rounds);
        }
    }
}
