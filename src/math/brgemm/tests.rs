//! The passes against their definitions, to the bit, over odd sizes, instruction sets and thread counts.

use super::*;
use crate::machine::team::Team;
use crate::math::{Gemm, Start, Strided, random};
use crate::simd::Isa;
use crate::simd::amx::Amx;
use crate::simd::bf16::{dot_pair, dot_tile, narrow, pair, widen};

/// Samples, inputs, outputs: one of each, odd tails, whole blocks, more than one chunk of depth, a diverging width.
const SIZES: [[usize; 3]; 9] = [
    [1, 1, 1],
    [5, 13, 64],
    [29, 64, 1],
    [14, 128, 65],
    [67, 129, 47],
    [130, 31, 191],
    [3, 1100, 18],
    [1037, 15, 33],
    [7, 20, 1050],
];

fn teams(isas: Vec<Isa>) -> Vec<Team> {
    let pairs = isas.into_iter().flat_map(|isa| [(isa, 1), (isa, 3)]);
    pairs.map(|(isa, threads)| Team::with_isa(threads, isa).unwrap()).collect()
}

/// Numbers of which a third are 0 or less than it, as activations are.
fn activations(len: usize, which: u32) -> Vec<f32> {
    random(len, which).iter().map(|&x| if x < -0.3 { 0.0 } else { x }).collect()
}

fn transpose(from: &[f32], rows: usize, columns: usize) -> Vec<f32> {
    (0..rows * columns).map(|i| from[i % rows * columns + i / rows]).collect()
}

/// rows x depth times depth x columns, by the plain product.
fn product(a: &[f32], b: &[f32], [rows, depth, columns]: [usize; 3], start: Start<'_>, relu: bool) -> Vec<f32> {
    let mut out = vec![0.0; rows * columns];
    let a = Strided { data: a, row: depth, depth: 1 };
    let gemm = Gemm { out: &mut out, out_row: columns, rows, columns, a, b, b_row: columns, depth, start, relu };
    Isa::best().run(gemm);
    out
}

fn bits(values: &[f32]) -> Vec<u32> {
    values.iter().map(|x| x.to_bits()).collect()
}

/// Whether all that is no element is 0.
fn padding_is_zero<T: bytemuck::Pod + PartialEq>(panels: &Panels<T>) -> bool {
    let outside = |(index, row): (usize, &Row<T>)| {
        let (panel, i) = (index / panels.stride(), index % panels.stride());
        let used = if i < panels.rows() { panels.width(panel) } else { 0 };
        row[used..].iter().all(|&x| x == T::zeroed())
    };
    panels.cells().iter().enumerate().all(outside)
}

#[test]
fn passes_give_the_bits_of_the_plain_product() {
    for [n, c, k] in SIZES {
        let (x, w, dy, bias) = (activations(n * c, 1), random(c * k, 2), random(n * k, 3), random(k, 4));
        let (px, pw, pdy) = (Panels::from_rows(&x, n, c), Panels::from_rows(&w, c, k), Panels::from_rows(&dy, n, k));
        let y = product(&x, &w, [n, c, k], Start::Bias(&bias), true);
        let linear = product(&x, &w, [n, c, k], Start::Bias(&bias), false);
        let mut dx = product(&dy, &transpose(&w, c, k), [n, k, c], Start::Zero, false);
        dx.iter_mut().zip(&x).for_each(|(dx, &x)| *dx = if x <= 0.0 { 0.0 } else { *dx });
        let dw = product(&transpose(&x, n, c), &dy, [c, n, k], Start::Zero, false);
        for team in teams(Isa::all()) {
            let facts = format!("{:?} x {}, {n} x {c} x {k}", team.isa(), team.threads());
            let mut out = Panels::zeroed(n, k);
            forward(&team, n, &px, &pw, &bias, &mut out, After::Relu);
            assert!(bits(&out.to_rows()) == bits(&y) && padding_is_zero(&out), "forward, {facts}");
            forward(&team, n, &px, &pw, &bias, &mut out, After::Keep);
            assert!(bits(&out.to_rows()) == bits(&linear) && padding_is_zero(&out), "linear, {facts}");
            let mut out = Panels::zeroed(n, c);
            let mut scratch = Scratch::default();
            backward_data(&team, n, &pdy, &pw, &mut out, After::Gate(&px), &mut scratch);
            assert!(bits(&out.to_rows()) == bits(&dx) && padding_is_zero(&out), "backward data, {facts}");
            let mut out = Panels::zeroed(c, k);
            backward_weights(&team, n, &px, &pdy, &mut out);
            assert!(bits(&out.to_rows()) == bits(&dw) && padding_is_zero(&out), "backward weights, {facts}");
            let mut db = vec![7.0; k];
            bias_gradient(&team, n, &pdy, &mut db);
            for (j, &sum) in db.iter().enumerate() {
                assert_eq!(sum, (0..n).fold(0.0, |sum, i| sum + dy[i * k + j]), "bias, {facts}");
            }
        }
    }
}

#[test]
fn a_smaller_minibatch_leaves_the_other_rows_alone() {
    let (capacity, n, c, k) = (40, 21, 70, 66);
    let (x, w) = (random(capacity * c, 1), Panels::from_rows(&random(c * k, 2), c, k));
    let x = Panels::from_rows(&x, capacity, c);
    for team in teams(Isa::all()) {
        let mut all = Panels::zeroed(capacity, k);
        forward(&team, capacity, &x, &w, &vec![0.5; k], &mut all, After::Keep);
        let mut some = Panels::zeroed(capacity, k);
        forward(&team, n, &x, &w, &vec![0.5; k], &mut some, After::Keep);
        assert_eq!(some.to_rows()[..n * k], all.to_rows()[..n * k]);
        assert!(some.to_rows()[n * k..].iter().all(|&x| x == 0.0));
        let mut none = Panels::zeroed(capacity, k);
        forward(&team, 0, &x, &w, &vec![0.5; k], &mut none, After::Keep);
        assert!(none.to_rows().iter().all(|&x| x == 0.0));
    }
}

#[test]
fn a_diverged_run_shows_and_stays_in_its_row() {
    let (n, c, k) = (4, 3, 5);
    let mut x = random(n * c, 1);
    x[c] = f32::INFINITY;
    x[2 * c] = f32::NAN;
    let (x, w) = (Panels::from_rows(&x, n, c), Panels::from_rows(&random(c * k, 2), c, k));
    for team in teams(Isa::all()) {
        let mut y = Panels::zeroed(n, k);
        forward(&team, n, &x, &w, &[0.0; 5], &mut y, After::Keep);
        for (i, row) in y.to_rows().chunks(k).enumerate() {
            assert!(row.iter().all(|y| y.is_finite() == (i == 0 || i == 3)), "row {i}");
        }
        assert!(padding_is_zero(&y));
    }
}

type Halves<'a> = dyn Fn(usize, usize) -> u16 + 'a;
type Start32<'a> = dyn Fn(usize) -> f32 + 'a;

/// The definition of a product of bfloat16: `a(i, d)` times `b(d, j)`, pair by pair.
fn define([rows, depth, columns]: [usize; 3], a: &Halves<'_>, b: &Halves<'_>, start: &Start32<'_>) -> Vec<f32> {
    let mut out = Vec::new();
    for i in 0..rows {
        for j in 0..columns {
            out.push((0..depth).step_by(2).fold(start(j), |sum, d| {
                let (a1, b1) = if d + 1 < depth { (a(i, d + 1), b(d + 1, j)) } else { (0, 0) };
                dot_pair(f32::from_bits(pair(a(i, d), a1)), f32::from_bits(pair(b(d, j), b1)), sum)
            }));
        }
    }
    out
}

fn halves(from: &[f32]) -> Vec<u16> {
    from.iter().map(|&x| narrow(x)).collect()
}

/// The same by tiles: see `tiled`.
fn define_tiled([rows, depth, columns]: [usize; 3], a: &Halves<'_>, b: &Halves<'_>, start: &Start32<'_>) -> Vec<f32> {
    let a = |i, d| if d < depth { a(i, d) } else { 0 };
    let b = |d, j| if d < depth { b(d, j) } else { 0 };
    let mut out = Vec::new();
    for i in 0..rows {
        for j in 0..columns {
            out.push((0..depth.next_multiple_of(WIDTH)).step_by(32).fold(start(j), |sum, d| {
                let left = std::array::from_fn(|k| pair(a(i, d + 2 * k), a(i, d + 2 * k + 1)));
                let right = std::array::from_fn(|k| pair(b(d + 2 * k, j), b(d + 2 * k + 1, j)));
                dot_tile(&left, &right, sum)
            }));
        }
    }
    out
}

#[test]
fn bf16_passes_give_the_bits_of_the_definition() {
    bf16_passes_give_the_bits_of(define, &teams(Isa::all()), &SIZES);
}

#[test]
fn bf16_passes_on_tiles_give_the_bits_of_their_definition() {
    let Some(amx) = Amx::detect() else { return println!("skipped: no AMX-BF16") };
    let teams = teams(vec![Isa::AmxBf16(amx)]);
    bf16_passes_give_the_bits_of(define_tiled, &teams, &SIZES);
    // Whole blocks, tails of each kind of tile, and more rows and columns than wait together.
    let more = [[32, 64, 32], [48, 80, 49], [33, 600, 17], [16, 257, 300], [1100, 40, 20], [20, 1300, 40]];
    bf16_passes_give_the_bits_of(define_tiled, &teams, &more);
}

fn bf16_passes_give_the_bits_of(
    define: impl Fn([usize; 3], &Halves<'_>, &Halves<'_>, &Start32<'_>) -> Vec<f32>,
    teams: &[Team],
    sizes: &[[usize; 3]],
) {
    for &[n, c, k] in sizes {
        let (x, dy) = (halves(&activations(n * c, 1)), halves(&random(n * k, 3)));
        let (w, bias) = (random(c * k, 2), random(k, 4));
        let wide = Panels::from_rows(&w, c, k);
        let w = halves(&w);
        let (px, pdy) = (Panels::from_rows(&x, n, c), Panels::from_rows(&dy, n, k));
        let y = define([n, c, k], &|i, d| x[i * c + d], &|d, j| w[d * k + j], &|j| bias[j]);
        let y: Vec<_> = y.iter().map(|&y| narrow(if y <= 0.0 { 0.0 } else { y })).collect();
        let dx = define([n, k, c], &|i, d| dy[i * k + d], &|d, j| w[j * k + d], &|_| 0.0);
        let dx: Vec<_> = dx.iter().zip(&x).map(|(&dx, &x)| if widen(x) <= 0.0 { 0 } else { narrow(dx) }).collect();
        let dw = define([c, n, k], &|i, d| x[d * c + i], &|d, j| dy[d * k + j], &|_| 0.0);
        for team in teams {
            let facts = format!("{:?} x {}, {n} x {c} x {k}", team.isa(), team.threads());
            let pw = bf16::pairs_of(team, &wide);
            let mut out = Panels::<u16>::zeroed(n, k);
            bf16::forward(team, n, &px, &pw, &bias, &mut out, After::Relu);
            assert!(out.to_rows() == y && padding_is_zero(&out), "forward, {facts}");
            let mut out = Panels::<u16>::zeroed(n, c);
            bf16::backward_data(team, n, &pdy, &pw, &mut out, After::Gate(&px), &mut Scratch::default());
            assert!(out.to_rows() == dx && padding_is_zero(&out), "backward data, {facts}");
            let mut pairs = [c, k].map(|columns| Panels::zeroed(n.div_ceil(2), columns));
            let mut out = Panels::zeroed(c, k);
            bf16::backward_weights(team, n, &px, &pdy, &mut pairs, &mut out);
            assert!(bits(&out.to_rows()) == bits(&dw) && padding_is_zero(&out), "backward weights, {facts}");
            let mut db = vec![7.0; k];
            bias_gradient(team, n, &pdy, &mut db);
            for (j, &sum) in db.iter().enumerate() {
                assert_eq!(sum, (0..n).fold(0.0, |sum, i| sum + widen(dy[i * k + j])), "bias, {facts}");
            }
        }
    }
}

#[test]
fn bf16_passes_read_nothing_of_the_rows_beyond_the_minibatch() {
    let (capacity, n, c, k) = (75, 41, 70, 66);
    for team in teams(Isa::every()) {
        let all = |columns, which| {
            let mut rows = halves(&random(capacity * columns, which));
            rows[n * columns..].fill(0x7fc0);
            (Panels::from_rows(&rows[..n * columns], n, columns), Panels::from_rows(&rows, capacity, columns))
        };
        let ((x, x_all), (dy, dy_all)) = (all(c, 1), all(k, 3));
        let w = bf16::pairs_of(&team, &Panels::from_rows(&random(c * k, 2), c, k));
        let forward = |x, rows| {
            let mut y = Panels::<u16>::zeroed(rows, k);
            bf16::forward(&team, n, x, &w, &vec![0.5; k], &mut y, After::Keep);
            y.to_rows()
        };
        let (y, y_all) = (forward(&x, n), forward(&x_all, capacity));
        assert!(y_all[..n * k] == y && y_all[n * k..].iter().all(|&y| y == 0), "{:?}", team.isa());
        let weights = |x: &Panels<u16>, dy: &Panels<u16>| {
            let mut pairs = [c, k].map(|columns| Panels::zeroed(x.rows().div_ceil(2), columns));
            let mut dw = Panels::zeroed(c, k);
            for rows in [x.rows(), n] {
                bf16::backward_weights(&team, rows, x, dy, &mut pairs, &mut dw);
            }
            dw.to_rows()
        };
        assert_eq!(bits(&weights(&x_all, &dy_all)), bits(&weights(&x, &dy)), "{:?}", team.isa());
    }
}
