//! Passes whose right operands are copied in strips, whichever plans this machine would choose: no bit changes.

use super::super::passes::Pass;
use super::super::right::Right;
use super::super::tile::{ByColumn, ByRow, Left};
use super::super::transposed::Transposed;
use super::*;

/// A pass from zeros by a plan that copies its right operand in strips, so many panels at a time, and 64 steps where
/// sums can be left.
fn in_strips<'a, L: Left, C: Cell>(
    team: &Team,
    shape: Shape,
    panels: usize,
    (left, right): (L, Right<'a>),
) -> Pass<'a, L, C> {
    let (across, group) = (if panels > 1 { team.threads() } else { 1 }, panels.min(shape.columns.div_ceil(WIDTH)));
    let depth = if shape.whole { shape.steps.next_multiple_of(WIDTH) } else { WIDTH };
    let plan = Plan::chosen(shape, across, depth, group, true).unwrap();
    Pass { shape, plan, left, right, bias: None, onto: Onto::Zero, after: After::Keep }
}

/// The result of a pass onto zeros.
fn result<L: Left, C: Cell>(team: &Team, pass: Pass<'_, L, C>) -> Panels<C> {
    let mut out = Panels::zeroed(pass.shape.rows, pass.shape.columns);
    pass.run(team, &mut out);
    out
}

fn by_row<T: bytemuck::Pod, const D: usize>(of: &Panels<T>) -> ByRow<'_, D> {
    ByRow { cells: bytemuck::cast_slice(of.cells()), stride: of.stride() }
}

fn by_column<T: bytemuck::Pod, const PAIRS: bool>(of: &Panels<T>) -> ByColumn<'_, PAIRS> {
    ByColumn { cells: bytemuck::cast_slice(of.cells()), stride: of.stride() }
}

fn ready<T: bytemuck::Pod>(of: &Panels<T>) -> Right<'_> {
    Right::Ready { cells: bytemuck::cast_slice(of.cells()), stride: of.stride() }
}

fn turned<T: bytemuck::Pod>(of: &Panels<T>) -> Right<'_> {
    Right::Transposed(Transposed { cells: bytemuck::cast_slice(of.cells()), stride: of.stride(), rows: of.rows() })
}

/// Biases count in the first chunk of depth alone, what becomes of sums after the last.
#[test]
fn copies_in_strips_change_no_bit() {
    for [n, c, k] in SIZES.into_iter().chain([[200, 97, 130], [64, 300, 72]]) {
        let (x, w, dy, bias) = (activations(n * c, 1), random(c * k, 2), random(n * k, 3), random(k, 4));
        let (px, pw, pdy) = (Panels::from_rows(&x, n, c), Panels::from_rows(&w, c, k), Panels::from_rows(&dy, n, k));
        let y = product(&x, &w, [n, c, k], &bias, true);
        let whole = product(&dy, &transpose(&w, c, k), [n, k, c], &[], false);
        let gated: Vec<_> = whole.iter().zip(&x).map(|(&dx, &x)| if x <= 0.0 { 0.0 } else { dx }).collect();
        let round = random(n * c, 5);
        let added: Vec<_> = whole.iter().zip(&round).map(|(dx, round)| dx + round).collect();
        let round = Panels::from_rows(&round, n, c);
        let dw = product(&transpose(&x, n, c), &dy, [c, n, k], &[], false);
        let twice = product(&transpose(&x.repeat(2), 2 * n, c), &dy.repeat(2), [c, 2 * n, k], &[], false);
        for (team, panels) in teams(Isa::all()).iter().flat_map(|team| [(team, 1), (team, 3)]) {
            let threads = team.threads();
            let same = |out: &Panels<f32>, defined: &[f32], pass: &str| {
                let facts = format!("{pass}, {:?} x {threads}, {n} x {c} x {k}, {panels} panels", team.isa());
                assert!(bits(&out.to_rows()) == bits(defined) && padding_is_zero(out), "{facts}");
            };
            let operands = (by_row::<_, WIDTH>(&px), ready(&pw));
            let pass = in_strips(team, forward_shape(n, c, k, threads), panels, operands);
            let out = result(team, Pass { bias: Some(&bias), after: After::Relu, ..pass });
            same(&out, &y, "forward");

            let endings = [("gated", After::Gate(&px), &gated), ("with what goes round", After::Add(&round), &added)];
            for (name, after, defined) in endings {
                let operands = (by_row::<_, WIDTH>(&pdy), turned(&pw));
                let pass = in_strips(team, forward_shape(n, k, c, threads), panels, operands);
                same(&result(team, Pass { after, ..pass }), defined, &format!("backward data, {name}"));
            }

            let weights = || {
                let operands = (by_column::<_, false>(&px), ready(&pdy));
                in_strips(team, weights_shape(n, c, k, threads), panels, operands)
            };
            let mut out = result(team, weights());
            same(&out, &dw, "backward weights");
            Pass { onto: Onto::Result, ..weights() }.run(team, &mut out);
            same(&out, &twice, "the same samples again, onto that");
        }
    }
}

#[test]
fn copies_of_pairs_in_strips_change_no_bit() {
    const HALF: usize = WIDTH / 2;
    for [n, c, k] in [[67, 129, 47], [130, 31, 191], [7, 300, 18]] {
        let (wide_x, wide_w, wide_dy) = (activations(n * c, 1), random(c * k, 2), random(n * k, 3));
        let (x, w, dy) = (halves(&wide_x), halves(&wide_w), halves(&wide_dy));
        let (px, pdy) = (Panels::from_rows(&x, n, c), Panels::from_rows(&dy, n, k));
        let (bias, round) = (random(k, 4), random(n * c, 5));
        let y = define([n, c, k], &|i, d| x[i * c + d], &|d, j| w[d * k + j], &|j| bias[j]);
        let relu: Vec<_> = y.iter().map(|&y| narrow(if y <= 0.0 { 0.0 } else { y })).collect();
        let whole = define([n, k, c], &|i, d| dy[i * k + d], &|d, j| w[j * k + d], &|_| 0.0);
        let gated: Vec<_> =
            whole.iter().zip(&x).map(|(&dx, &x)| if widen(x) <= 0.0 { 0 } else { narrow(dx) }).collect();
        let added: Vec<_> = whole.iter().zip(&round).map(|(dx, round)| dx + round).collect();
        let round = Panels::from_rows(&round, n, c);
        let dw = define([c, n, k], &|i, d| x[d * c + i], &|d, j| dy[d * k + j], &|_| 0.0);
        for (team, panels) in teams(Isa::all()).iter().flat_map(|team| [(team, 1), (team, 3)]) {
            let threads = team.threads();
            let facts = format!("{:?} x {threads}, {n} x {c} x {k}, {panels} panels", team.isa());
            let pairs = |from: &[f32], [rows, columns]: [usize; 2]| {
                bf16::pairs_of(team, &Panels::from_rows(from, rows, columns))
            };
            let (pw, x_pairs, dy_pairs) = (pairs(&wide_w, [c, k]), pairs(&wide_x, [n, c]), pairs(&wide_dy, [n, k]));

            // Sums in 32-bit floats can be left, those in bfloat16 cannot.
            let shape = bf16::forward_shape_in_pairs(n, c, k, threads);
            let pass = in_strips(team, Shape { whole: false, ..shape }, panels, (by_row::<_, HALF>(&px), ready(&pw)));
            let out = result::<_, f32>(team, Pass { bias: Some(&bias), ..pass });
            assert!(bits(&out.to_rows()) == bits(&y) && padding_is_zero(&out), "forward, {facts}");
            let pass = in_strips(team, shape, panels, (by_row::<_, HALF>(&px), ready(&pw)));
            let out = result::<_, u16>(team, Pass { bias: Some(&bias), after: After::Relu, ..pass });
            assert!(out.to_rows() == relu && padding_is_zero(&out), "forward to bfloat16, {facts}");

            let shape = bf16::forward_shape_in_pairs(n, k, c, threads);
            let operands = (by_row::<_, HALF>(&pdy), turned(&pw));
            let pass = in_strips(team, Shape { whole: false, ..shape }, panels, operands);
            let out = result(team, Pass { after: After::Add(&round), ..pass });
            assert!(bits(&out.to_rows()) == bits(&added) && padding_is_zero(&out), "backward data, {facts}");
            let pass = in_strips(team, shape, panels, operands);
            let out = result(team, Pass { after: After::Gate(&px), ..pass });
            assert!(out.to_rows() == gated && padding_is_zero(&out), "backward data to bfloat16, {facts}");

            let shape = bf16::weights_shape_in_pairs(n, c, k, threads);
            let operands = (by_column::<_, true>(&x_pairs), ready(&dy_pairs));
            let out = result::<_, f32>(team, in_strips(team, shape, panels, operands));
            assert!(bits(&out.to_rows()) == bits(&dw) && padding_is_zero(&out), "backward weights, {facts}");
        }
    }
}
