//! The passes against their definitions, to the bit, over odd sizes, instruction sets and thread counts.

mod strips;

use super::*;
use crate::base::requirement::required;
use crate::machine::team::Team;
use crate::math::random;
use crate::simd::Isa;
use crate::simd::amx::Amx;
use crate::simd::bf16::{dot_pair, narrow, pair, sum_in_thirds, sum_on_tiles, widen};

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

/// Teams of one thread, of some, and of so many that they copy operands of tiles together.
fn teams(isas: Vec<Isa>) -> Vec<Team> {
    let pairs = isas.into_iter().flat_map(|isa| [(isa, 1), (isa, 3), (isa, 5)]);
    pairs.map(|(isa, threads)| Team::with_isa(threads, isa).unwrap()).collect()
}

/// Tiles, for tests that have nothing to do without them.
fn tiles() -> Option<Amx> {
    required("amx-bf16", Amx::detect().ok_or("not detected"))
}

/// Numbers of which a third are 0 or less than it, as activations are.
fn activations(len: usize, which: u32) -> Vec<f32> {
    random(len, which).iter().map(|&x| if x < -0.3 { 0.0 } else { x }).collect()
}

fn transpose(from: &[f32], rows: usize, columns: usize) -> Vec<f32> {
    (0..rows * columns).map(|i| from[i % rows * columns + i / rows]).collect()
}

/// The definition of an f32 product, rows x depth times depth x columns: a chain of fused multiply-adds in ascending
/// depth, which begins at the column's bias, if there is one.
fn product(a: &[f32], b: &[f32], [rows, depth, columns]: [usize; 3], bias: &[f32], relu: bool) -> Vec<f32> {
    let places = (0..rows).flat_map(|i| (0..columns).map(move |j| (i, j)));
    let sum = |(i, j): (usize, usize)| {
        let start = bias.get(j).copied().unwrap_or(0.0);
        let sum = (0..depth).fold(start, |sum, d| a[i * depth + d].mul_add(b[d * columns + j], sum));
        if relu && sum <= 0.0 { 0.0 } else { sum }
    };
    places.map(sum).collect()
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
        let y = product(&x, &w, [n, c, k], &bias, true);
        let linear = product(&x, &w, [n, c, k], &bias, false);
        let bare = product(&x, &w, [n, c, k], &[], false);
        let whole = product(&dy, &transpose(&w, c, k), [n, k, c], &[], false);
        let dx: Vec<_> = whole.iter().zip(&x).map(|(&dx, &x)| if x <= 0.0 { 0.0 } else { dx }).collect();
        let round = random(n * c, 5);
        let added: Vec<_> = whole.iter().zip(&round).map(|(dx, round)| dx + round).collect();
        let round = Panels::from_rows(&round, n, c);
        let dw = product(&transpose(&x, n, c), &dy, [c, n, k], &[], false);
        for team in teams(Isa::all()) {
            let facts = format!("{:?} x {}, {n} x {c} x {k}", team.isa(), team.threads());
            let mut out = Panels::zeroed(n, k);
            forward(&team, n, &px, &pw, &bias, &mut out, After::Relu);
            assert!(bits(&out.to_rows()) == bits(&y) && padding_is_zero(&out), "forward, {facts}");
            forward(&team, n, &px, &pw, &bias, &mut out, After::Keep);
            assert!(bits(&out.to_rows()) == bits(&linear) && padding_is_zero(&out), "linear, {facts}");
            forward(&team, n, &px, &pw, &[], &mut out, After::Keep);
            assert!(bits(&out.to_rows()) == bits(&bare) && padding_is_zero(&out), "without biases, {facts}");
            let mut out = Panels::zeroed(n, c);
            backward_data(&team, n, &pdy, &pw, &mut out, After::Gate(&px));
            assert!(bits(&out.to_rows()) == bits(&dx) && padding_is_zero(&out), "backward data, {facts}");
            backward_data(&team, n, &pdy, &pw, &mut out, After::Add(&round));
            assert!(bits(&out.to_rows()) == bits(&added) && padding_is_zero(&out), "with what goes round, {facts}");
            let mut out = Panels::zeroed(c, k);
            backward_weights(&team, 0..n, &px, &pdy, Onto::Zero, &mut out);
            assert!(bits(&out.to_rows()) == bits(&dw) && padding_is_zero(&out), "backward weights, {facts}");
            let mut db = vec![7.0; k];
            bias_gradient(&team, 0..n, &pdy, Onto::Zero, &mut db);
            for (j, &sum) in db.iter().enumerate() {
                assert_eq!(sum, (0..n).fold(0.0, |sum, i| sum + dy[i * k + j]), "bias, {facts}");
            }
        }
    }
}

#[test]
fn passes_in_thirds_give_the_bits_of_their_definition() {
    let Some(amx) = tiles() else { return };
    let more = [[32, 64, 32], [48, 80, 49], [33, 600, 17], [600, 257, 300], [1037, 40, 33]];
    for [n, c, k] in SIZES.into_iter().chain(more) {
        let (x, w, dy, bias) = (activations(n * c, 1), random(c * k, 2), random(n * k, 3), random(k, 4));
        let (px, pw, pdy) = (Panels::from_rows(&x, n, c), Panels::from_rows(&w, c, k), Panels::from_rows(&dy, n, k));
        // Every 7th element: the definition is slow.
        let same = |out: &Panels<f32>, define: &dyn Fn(usize, usize) -> f32| {
            let rows = out.to_rows();
            let mut places = (0..rows.len()).step_by(if rows.len() > 1000 { 7 } else { 1 });
            padding_is_zero(out)
                && places.all(|at| rows[at].to_bits() == define(at / out.columns(), at % out.columns()).to_bits())
        };
        let y = |i, j| sum_in_thirds(bias[j], c, |d| (x[i * c + d], w[d * k + j]));
        let dx = |i, j| sum_in_thirds(0.0, k, |d| (dy[i * k + d], w[j * k + d]));
        let dw = |i, j| sum_in_thirds(0.0, n, |d| (x[d * c + i], dy[d * k + j]));
        let open = |i, j, value: f32| if x[i * c + j] <= 0.0 { 0.0 } else { value };
        let bare = |i, j| sum_in_thirds(0.0, c, |d| (x[i * c + d], w[d * k + j]));
        for team in teams(vec![Isa::AmxThirds(amx)]) {
            let facts = format!("{n} x {c} x {k} on {} threads", team.threads());
            let mut out = Panels::zeroed(n, k);
            thirds::forward(&team, amx, n, [&px, &pw], Some(&bias), &mut out, After::Relu);
            assert!(same(&out, &|i, j| if y(i, j) <= 0.0 { 0.0 } else { y(i, j) }), "forward, {facts}");
            thirds::forward(&team, amx, n, [&px, &pw], None, &mut out, After::Keep);
            assert!(same(&out, &bare), "without biases, {facts}");
            let mut out = Panels::zeroed(n, c);
            thirds::backward_data(&team, amx, n, [&pdy, &pw], &mut out, After::Gate(&px));
            assert!(same(&out, &|i, j| open(i, j, dx(i, j))), "backward data, {facts}");
            thirds::backward_data(&team, amx, n, [&pdy, &pw], &mut out, After::Add(&px));
            assert!(same(&out, &|i, j| dx(i, j) + x[i * c + j]), "with what goes round, {facts}");
            let mut out = Panels::zeroed(c, k);
            thirds::backward_weights(&team, amx, 0..n, [&px, &pdy], Onto::Zero, &mut out);
            assert!(same(&out, &dw), "backward weights, {facts}");
        }
    }
}

#[test]
fn only_wide_layers_go_to_tiles() {
    let Some(amx) = tiles() else { return };
    let (n, random) = (20, |len| random(len, 1));
    for (c, k, tiled) in [(65, 70, true), (64, 70, false), (70, 64, false)] {
        let (x, w, dy) = (random(n * c), random(c * k), random(n * k));
        let (px, pw, pdy) = (Panels::from_rows(&x, n, c), Panels::from_rows(&w, c, k), Panels::from_rows(&dy, n, k));
        let run = |isa| {
            let team = Team::with_isa(2, isa).unwrap();
            let [mut y, mut dx, mut dw] = [[n, k], [n, c], [c, k]].map(|[rows, columns]| Panels::zeroed(rows, columns));
            forward(&team, n, &px, &pw, &vec![0.5; k], &mut y, After::Keep);
            backward_data(&team, n, &pdy, &pw, &mut dx, After::Keep);
            backward_weights(&team, 0..n, &px, &pdy, Onto::Zero, &mut dw);
            [y, dx, dw].map(|out| bits(&out.to_rows()))
        };
        let (fused, thirds) = (run(Isa::AmxBf16(amx)), run(Isa::AmxThirds(amx)));
        for (pass, (fused, thirds)) in fused.iter().zip(&thirds).enumerate() {
            assert_eq!(fused != thirds, tiled, "pass {pass} of {c} x {k}");
        }
    }
}

/// Errors of all elements of X W against exact sums: the mean of their squares, and the largest.
fn errors(isa: Isa, [n, c, k]: [usize; 3], x: &[f32], w: &[f32]) -> (f64, f64) {
    let mut y = Panels::zeroed(n, k);
    let (px, pw) = (Panels::from_rows(x, n, c), Panels::from_rows(w, c, k));
    forward(&Team::with_isa(2, isa).unwrap(), n, &px, &pw, &vec![0.0; k], &mut y, After::Keep);
    let (y, mut squares, mut largest) = (y.to_rows(), 0.0, 0.0f64);
    for (i, j) in (0..n).flat_map(|i| (0..k).map(move |j| (i, j))) {
        let terms = (0..c).map(|d| f64::from(x[i * c + d]) * f64::from(w[d * k + j]));
        let error = (f64::from(y[i * k + j]) - terms.clone().sum::<f64>()) / terms.map(f64::abs).sum::<f64>();
        squares += error * error / (n * k) as f64;
        largest = largest.max(error.abs());
    }
    (squares.sqrt(), largest)
}

#[test]
fn thirds_are_as_accurate_as_fused_multiply_adds() {
    let Some(amx) = tiles() else { return };
    for [n, c, k] in [[30, 66, 80], [30, 256, 80], [30, 1024, 66], [30, 4096, 66]] {
        // Signs that cancel, numbers of one sign, whose sums grow, and magnitudes from 2^-20 to 2^20.
        let mixed = |len, which| random(len, which);
        let grown = |len, which| random(len, which).iter().map(|x| x.abs()).collect::<Vec<_>>();
        let spread = |len, which| {
            let exponents = random(len, which + 10).into_iter().map(|x| (x * 20.0) as i32);
            random(len, which).iter().zip(exponents).map(|(x, e)| x * 2.0f32.powi(e)).collect::<Vec<_>>()
        };
        for (name, x, w) in [
            ("mixed", mixed(n * c, 1), mixed(c * k, 2)),
            ("grown", grown(n * c, 1), grown(c * k, 2)),
            ("spread", spread(n * c, 1), spread(c * k, 2)),
        ] {
            let fused = errors(Isa::AmxBf16(amx), [n, c, k], &x, &w);
            let thirds = errors(Isa::AmxThirds(amx), [n, c, k], &x, &w);
            println!(
                "{c} terms, {name}: fused {:.1e} at most {:.1e}, thirds {:.1e} at most {:.1e}",
                fused.0, fused.1, thirds.0, thirds.1
            );
            assert!(thirds.0 <= fused.0 && thirds.1 <= 1.2 * fused.1, "{c} terms, {name}: {thirds:?}, {fused:?}");
        }
    }
}

#[test]
fn a_smaller_minibatch_leaves_the_other_rows_alone() {
    let (capacity, n, c, k) = (40, 21, 70, 66);
    let (x, w) = (random(capacity * c, 1), Panels::from_rows(&random(c * k, 2), c, k));
    let x = Panels::from_rows(&x, capacity, c);
    for team in teams(Isa::every()) {
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
    let (n, c, k) = (4, 70, 75);
    let mut x = random(n * c, 1);
    x[c] = f32::INFINITY;
    x[2 * c] = f32::NAN;
    let (x, w) = (Panels::from_rows(&x, n, c), Panels::from_rows(&random(c * k, 2), c, k));
    for team in teams(Isa::every()) {
        let mut y = Panels::zeroed(n, k);
        forward(&team, n, &x, &w, &vec![0.0; k], &mut y, After::Keep);
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
    let places = (0..rows).flat_map(|i| (0..columns).map(move |j| (i, j)));
    places.map(|(i, j)| sum_on_tiles(start(j), depth, |d| (a(i, d), b(d, j)))).collect()
}

#[test]
fn bf16_passes_give_the_bits_of_the_definition() {
    bf16_passes_give_the_bits_of(define, &teams(Isa::all()), &SIZES, 1.0);
    // Products that are tiny, which 32-bit floats would keep.
    bf16_passes_give_the_bits_of(define, &teams(Isa::all()), &SIZES, 2.0f32.powi(-62));
}

#[test]
fn bf16_passes_on_tiles_give_the_bits_of_their_definition() {
    let Some(amx) = tiles() else { return };
    let teams = teams(vec![Isa::AmxBf16(amx)]);
    bf16_passes_give_the_bits_of(define_tiled, &teams, &SIZES, 1.0);
    // Whole blocks, tails of each kind of tile, and more rows and columns than wait together.
    let more = [[32, 64, 32], [48, 80, 49], [33, 600, 17], [16, 257, 300], [1100, 40, 20], [20, 1300, 40]];
    bf16_passes_give_the_bits_of(define_tiled, &teams, &more, 1.0);
}

fn bf16_passes_give_the_bits_of(
    define: impl Fn([usize; 3], &Halves<'_>, &Halves<'_>, &Start32<'_>) -> Vec<f32>,
    teams: &[Team],
    sizes: &[[usize; 3]],
    scale: f32,
) {
    let scaled = |numbers: Vec<f32>| numbers.iter().map(|x| scale * x).collect::<Vec<_>>();
    for &[n, c, k] in sizes {
        let (x, dy) = (halves(&scaled(activations(n * c, 1))), halves(&scaled(random(n * k, 3))));
        let (w, bias) = (scaled(random(c * k, 2)), scaled(scaled(random(k, 4))));
        let wide = Panels::from_rows(&w, c, k);
        let w = halves(&w);
        let (px, pdy) = (Panels::from_rows(&x, n, c), Panels::from_rows(&dy, n, k));
        let y = define([n, c, k], &|i, d| x[i * c + d], &|d, j| w[d * k + j], &|j| bias[j]);
        let y: Vec<_> = y.iter().map(|&y| narrow(if y <= 0.0 { 0.0 } else { y })).collect();
        let bare = define([n, c, k], &|i, d| x[i * c + d], &|d, j| w[d * k + j], &|_| 0.0);
        let whole = define([n, k, c], &|i, d| dy[i * k + d], &|d, j| w[j * k + d], &|_| 0.0);
        let dx: Vec<_> = whole.iter().zip(&x).map(|(&dx, &x)| if widen(x) <= 0.0 { 0 } else { narrow(dx) }).collect();
        let round = random(n * c, 5);
        let added: Vec<_> = whole.iter().zip(&round).map(|(dx, round)| dx + round).collect();
        let round = Panels::from_rows(&round, n, c);
        let dw = define([c, n, k], &|i, d| x[d * c + i], &|d, j| dy[d * k + j], &|_| 0.0);
        for team in teams {
            let facts = format!("{:?} x {}, {n} x {c} x {k}", team.isa(), team.threads());
            let pw = bf16::pairs_of(team, &wide);
            let mut out = Panels::<u16>::zeroed(n, k);
            bf16::forward(team, n, &px, &pw, &bias, &mut out, After::Relu);
            assert!(out.to_rows() == y && padding_is_zero(&out), "forward, {facts}");
            let mut out = Panels::<f32>::zeroed(n, k);
            bf16::forward(team, n, &px, &pw, &[], &mut out, After::Keep);
            assert!(bits(&out.to_rows()) == bits(&bare) && padding_is_zero(&out), "without biases, {facts}");
            let mut out = Panels::<u16>::zeroed(n, c);
            bf16::backward_data(team, n, &pdy, &pw, &mut out, After::Gate(&px));
            assert!(out.to_rows() == dx && padding_is_zero(&out), "backward data, {facts}");
            let mut out = Panels::<f32>::zeroed(n, c);
            bf16::backward_data(team, n, &pdy, &pw, &mut out, After::Add(&round));
            assert!(bits(&out.to_rows()) == bits(&added) && padding_is_zero(&out), "with what goes round, {facts}");
            let mut pairs = [c, k].map(|columns| Panels::zeroed(n.div_ceil(2), columns));
            let mut out = Panels::zeroed(c, k);
            bf16::backward_weights(team, 0..n, &px, &pdy, &mut pairs, Onto::Zero, &mut out);
            assert!(bits(&out.to_rows()) == bits(&dw) && padding_is_zero(&out), "backward weights, {facts}");
            let mut db = vec![7.0; k];
            bias_gradient(team, 0..n, &pdy, Onto::Zero, &mut db);
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
                bf16::backward_weights(&team, 0..rows, x, dy, &mut pairs, Onto::Zero, &mut dw);
            }
            dw.to_rows()
        };
        assert_eq!(bits(&weights(&x_all, &dy_all)), bits(&weights(&x, &dy)), "{:?}", team.isa());
    }
}

/// Parts end at multiples of 64 samples; the last one may be of any length.
#[test]
fn gradients_of_weights_in_parts_have_the_bits_of_the_whole() {
    let sizes = [[200, 70, 66], [300, 3, 130], [1100, 40, 20], [129, 65, 1], [64, 20, 20]];
    for ([n, c, k], team) in sizes.into_iter().flat_map(|size| teams(Isa::every()).into_iter().map(move |t| (size, t)))
    {
        let (x, dy) = (activations(n * c, 1), random(n * k, 3));
        let (px, pdy) = (Panels::from_rows(&x, n, c), Panels::from_rows(&dy, n, k));
        let (hx, hdy) = (Panels::from_rows(&halves(&x), n, c), Panels::from_rows(&halves(&dy), n, k));
        let with = |part: usize| {
            let (mut dw, mut dw_halves) = (Panels::zeroed(c, k), Panels::zeroed(c, k));
            let [mut db, mut db_halves] = [vec![7.0; k], vec![7.0; k]];
            let mut pairs = [c, k].map(|columns| Panels::zeroed(n.div_ceil(2), columns));
            for first in (0..n).step_by(part) {
                let (samples, onto) = (first..n.min(first + part), if first == 0 { Onto::Zero } else { Onto::Result });
                backward_weights(&team, samples.clone(), &px, &pdy, onto, &mut dw);
                bias_gradient(&team, samples.clone(), &pdy, onto, &mut db);
                bf16::backward_weights(&team, samples.clone(), &hx, &hdy, &mut pairs, onto, &mut dw_halves);
                bias_gradient(&team, samples, &hdy, onto, &mut db_halves);
            }
            assert!(padding_is_zero(&dw) && padding_is_zero(&dw_halves));
            [dw.to_rows(), dw_halves.to_rows(), db, db_halves].map(|values| bits(&values))
        };
        let whole = with(n);
        for part in [TOGETHER, 2 * TOGETHER, 5 * TOGETHER] {
            assert!(with(part) == whole, "parts of {part}, {n} x {c} x {k}, {:?} x {}", team.isa(), team.threads());
        }
    }
}
