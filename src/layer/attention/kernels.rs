//! The kernels of attention: what is not a product with a layer's weights.

use super::{SHORTEST, Sizes};
use crate::math::brgemm::{Panels, Row, WIDTH};
use crate::math::{STEPS as LANES, logistic};
use crate::simd::{Kernel, Simd};
use crate::sync::GridPart;

/// A row of panels.
#[derive(Clone, Copy)]
struct InRow<'a> {
    /// From the row in the first panel on.
    cells: &'a [Row<f32>],
    /// Rows from panel to panel.
    stride: usize,
}

impl<'a> InRow<'a> {
    #[inline(always)]
    fn of(panels: &'a Panels<f32>, row: usize) -> Self {
        Self { cells: &panels.cells()[row..], stride: panels.stride() }
    }

    /// Element `k`.
    #[inline(always)]
    fn at(self, k: usize) -> f32 {
        self.cells[k / WIDTH * self.stride][k % WIDTH]
    }

    /// Those of a panel.
    #[inline(always)]
    fn panel(self, panel: usize) -> &'a Row<f32> {
        &self.cells[panel * self.stride]
    }
}

/// Sums over the numbers of v, by lanes of steps from `lane` on: of `factors` times v.
#[inline(always)]
fn over_numbers<S: Simd>(simd: S, sizes: Sizes, v: &[f32], lane: usize, factors: InRow<'_>) -> S::V {
    let mut sum = simd.splat(0.0);
    for (k, row) in v.chunks_exact(sizes.lanes()).take(sizes.numbers).enumerate() {
        sum = simd.mul_add(simd.splat(factors.at(k)), simd.load(&row[lane..]), sum);
    }
    sum
}

/// Adds, by numbers from `first` on, the sum over some steps of their two factors times z, whose rows these are.
#[inline(always)]
fn over_steps<S: Simd>(simd: S, z: &[Row<f32>], first: usize, factors: [&[f32]; 2], sums: &mut [f32; LANES]) {
    for at in (0..LANES).step_by(S::LANES) {
        let mut sum = simd.load(&sums[at..]);
        for ((row, a), b) in z.iter().zip(factors[0]).zip(factors[1]) {
            sum = simd.mul_add(simd.splat(a * b), simd.load(&row[first % WIDTH + at..]), sum);
        }
        simd.store(sum, &mut sums[at..]);
    }
}

/// Writes some lanes of a row of panels from column `first` on, those before column `end`.
#[inline(always)]
fn put(to: &mut GridPart<'_, Row<f32>>, row: usize, first: usize, end: usize, lanes: &[f32]) {
    let count = lanes.len().min(end.saturating_sub(first));
    if count > 0 && first / WIDTH == (first + count - 1) / WIDTH {
        to.panel(first / WIDTH)[row][first % WIDTH..][..count].copy_from_slice(&lanes[..count]);
        return;
    }
    for (&lane, column) in lanes.iter().zip(first..end) {
        to.panel(column / WIDTH)[row][column % WIDTH] = lane;
    }
}

/// v, the scales, and v_T.
pub(super) struct Normalise<'a> {
    pub(super) sizes: Sizes,
    pub(super) z: &'a Panels<f32>,
    pub(super) there: &'a [f32],
    pub(super) kept: GridPart<'a, f32>,
    pub(super) w: GridPart<'a, Row<f32>>,
}

impl Kernel for Normalise<'_> {
    type Out = ();

    #[inline(always)]
    fn run<S: Simd>(mut self, simd: S) {
        let sizes = self.sizes;
        let (steps, lanes) = (sizes.steps, sizes.lanes());
        for (index, sample) in self.w.rows().enumerate() {
            let kept = &mut self.kept.panel(0)[index * sizes.kept()..][..sizes.kept()];
            let (v, rest) = kept.split_at_mut(sizes.rows() * lanes);
            for first in (0..sizes.numbers).step_by(LANES) {
                let rows = &self.z.panel(first / WIDTH)[sample * steps..][..steps];
                for (at, rows) in rows.chunks(LANES).enumerate() {
                    let to = &mut v[first * lanes + at * LANES..];
                    match rows.len() {
                        LANES => simd.transpose(&rows.as_flattened()[first % WIDTH..], WIDTH, to, lanes),
                        _ => {
                            let mut block = [[0.0; LANES]; LANES];
                            let from = rows.iter().map(|row| &row[first % WIDTH..][..LANES]);
                            block.iter_mut().zip(from).for_each(|(to, from)| to.copy_from_slice(from));
                            simd.transpose(block.as_flattened(), LANES, to, lanes);
                        }
                    }
                }
            }
            let scale = &mut rest[..lanes];
            for lane in (0..lanes).step_by(S::LANES) {
                let mut squares = simd.splat(0.0);
                for row in v.chunks_exact(lanes).take(sizes.numbers) {
                    let z = simd.load(&row[lane..]);
                    squares = simd.mul_add(z, z, squares);
                }
                simd.store(simd.sqrt(squares), &mut scale[lane..]);
            }
            let there = &self.there[sample * steps..][..steps];
            scale[steps..].fill(0.0);
            scale.iter_mut().zip(there).for_each(|(norm, there)| *norm = there / norm.max(SHORTEST));
            for row in v.chunks_exact_mut(lanes).take(sizes.numbers) {
                for lane in (0..lanes).step_by(S::LANES) {
                    let scaled = simd.mul(simd.load(&row[lane..]), simd.load(&scale[lane..]));
                    simd.store(scaled, &mut row[lane..]);
                }
            }
            for k in 0..sizes.numbers {
                self.w.panel(k / WIDTH)[index][k % WIDTH] = v[k * lanes + steps - 1];
            }
        }
    }
}

/// a.
pub(super) struct Like<'a> {
    pub(super) sizes: Sizes,
    pub(super) kept: &'a [f32],
    pub(super) x: &'a Panels<f32>,
    pub(super) a: GridPart<'a, Row<f32>>,
}

impl Kernel for Like<'_> {
    type Out = ();

    #[inline(always)]
    fn run<S: Simd>(mut self, simd: S) {
        let sizes = self.sizes;
        for (index, sample) in self.a.rows().enumerate() {
            let [v, ..] = sizes.split(&self.kept[sample * sizes.kept()..][..sizes.kept()]);
            for lane in (0..sizes.steps - 1).step_by(S::LANES) {
                let mut sums = [0.0; LANES];
                simd.store(over_numbers(simd, sizes, v, lane, InRow::of(self.x, sample)), &mut sums);
                put(&mut self.a, index, lane, sizes.steps - 1, &sums[..S::LANES]);
            }
        }
    }
}

/// y and [c, v_T].
pub(super) struct Context<'a> {
    pub(super) sizes: Sizes,
    pub(super) z: &'a Panels<f32>,
    /// What the weights are the logistic function of.
    pub(super) weights: &'a Panels<f32>,
    pub(super) w: &'a Panels<f32>,
    pub(super) kept: GridPart<'a, f32>,
    pub(super) out: GridPart<'a, Row<f32>>,
}

impl Kernel for Context<'_> {
    type Out = ();

    #[inline(always)]
    fn run<S: Simd>(mut self, simd: S) {
        let sizes = self.sizes;
        let (history, lanes, m) = (sizes.steps - 1, sizes.lanes(), sizes.numbers);
        for (index, sample) in self.out.rows().enumerate() {
            let kept = &mut self.kept.panel(0)[index * sizes.kept()..][..sizes.kept()];
            let (scale, y) = kept[sizes.rows() * lanes..].split_at_mut(lanes);
            for (panel, y) in y.chunks_mut(WIDTH).enumerate() {
                let here = WIDTH.min(history.saturating_sub(panel * WIDTH));
                y[here..].fill(0.0);
                if here > 0 {
                    let of = &self.weights.panel(panel)[sample];
                    y[..here].iter_mut().zip(of).for_each(|(y, &x)| *y = logistic(f64::from(x)) as f32);
                }
            }
            let w = InRow::of(self.w, sample);
            for first in (0..m).step_by(LANES) {
                let (mut sums, mut own) = ([0.0; LANES], [0.0; LANES]);
                let rows = &self.z.panel(first / WIDTH)[sample * sizes.steps..][..history];
                over_steps(simd, rows, first, [y, scale], &mut sums);
                put(&mut self.out, index, first, m, &sums);
                own.copy_from_slice(&w.panel(first / WIDTH)[first % WIDTH..][..LANES]);
                put(&mut self.out, index, m + first, 2 * m, &own);
            }
        }
    }
}

/// The gradient of what y is the logistic function of.
pub(super) struct BackContext<'a> {
    pub(super) sizes: Sizes,
    pub(super) kept: &'a [f32],
    /// [dc, dw].
    pub(super) ends: &'a Panels<f32>,
    pub(super) to: GridPart<'a, Row<f32>>,
}

impl Kernel for BackContext<'_> {
    type Out = ();

    #[inline(always)]
    fn run<S: Simd>(mut self, simd: S) {
        let sizes = self.sizes;
        for (index, sample) in self.to.rows().enumerate() {
            let [v, _, y] = sizes.split(&self.kept[sample * sizes.kept()..][..sizes.kept()]);
            for lane in (0..sizes.steps - 1).step_by(S::LANES) {
                let mut sums = [0.0; LANES];
                simd.store(over_numbers(simd, sizes, v, lane, InRow::of(self.ends, sample)), &mut sums);
                sums[..S::LANES].iter_mut().zip(&y[lane..]).for_each(|(sum, y)| *sum *= y * (1.0 - y));
                put(&mut self.to, index, lane, sizes.steps - 1, &sums[..S::LANES]);
            }
        }
    }
}

/// dx.
pub(super) struct BackLike<'a> {
    pub(super) sizes: Sizes,
    pub(super) kept: &'a [f32],
    pub(super) z: &'a Panels<f32>,
    pub(super) da: &'a Panels<f32>,
    pub(super) to: GridPart<'a, Row<f32>>,
}

impl Kernel for BackLike<'_> {
    type Out = ();

    #[inline(always)]
    fn run<S: Simd>(mut self, simd: S) {
        let sizes = self.sizes;
        for (index, sample) in self.to.rows().enumerate() {
            let [_, scale, _] = sizes.split(&self.kept[sample * sizes.kept()..][..sizes.kept()]);
            let da = InRow::of(self.da, sample);
            for first in (0..sizes.numbers).step_by(LANES) {
                let mut sums = [0.0; LANES];
                let rows = &self.z.panel(first / WIDTH)[sample * sizes.steps..][..sizes.steps - 1];
                for (panel, (rows, scale)) in rows.chunks(WIDTH).zip(scale.chunks(WIDTH)).enumerate() {
                    over_steps(simd, rows, first, [da.panel(panel), scale], &mut sums);
                }
                put(&mut self.to, index, first, sizes.numbers, &sums);
            }
        }
    }
}

/// dz.
pub(super) struct BackNormalise<'a> {
    pub(super) sizes: Sizes,
    pub(super) kept: &'a [f32],
    /// [dc, dw].
    pub(super) ends: &'a Panels<f32>,
    /// The rest of dw.
    pub(super) dw: &'a Panels<f32>,
    pub(super) x: &'a Panels<f32>,
    pub(super) da: &'a Panels<f32>,
    pub(super) to: GridPart<'a, Row<f32>>,
}

impl Kernel for BackNormalise<'_> {
    type Out = ();

    #[inline(always)]
    fn run<S: Simd>(mut self, simd: S) {
        let sizes = self.sizes;
        let (lanes, last) = (sizes.lanes(), sizes.steps - 1);
        let rows = self.to.rows();
        for (index, sample) in (rows.start / sizes.steps..rows.end / sizes.steps).enumerate() {
            let [v, scale, y] = sizes.split(&self.kept[sample * sizes.kept()..][..sizes.kept()]);
            let (ends, da) = (InRow::of(self.ends, sample), InRow::of(self.da, sample));
            for at in (0..sizes.steps).step_by(LANES) {
                let steps = LANES.min(sizes.steps - at);
                let mut dv = Gradient {
                    of_c: ends,
                    of_w: [InRow::of(self.dw, sample), ends],
                    x: InRow::of(self.x, sample),
                    numbers: sizes.numbers,
                    y: &y[at..],
                    da: [0.0; LANES],
                    last: [0.0; LANES],
                };
                for (lane, t) in (at..at + steps).enumerate() {
                    if t < last {
                        dv.da[lane] = da.at(t);
                    } else {
                        dv.last[lane] = 1.0;
                    }
                }
                let mut along = [0.0; LANES];
                for lane in (0..LANES).step_by(S::LANES) {
                    let mut sum = simd.splat(0.0);
                    for k in 0..sizes.numbers {
                        sum = simd.mul_add(dv.at(simd, k, lane), simd.load(&v[k * lanes + at + lane..]), sum);
                    }
                    simd.store(sum, &mut along[lane..]);
                }
                for first in (0..sizes.numbers).step_by(LANES) {
                    let (mut block, mut turned) = ([[0.0; LANES]; LANES], [[0.0; LANES]; LANES]);
                    for (k, row) in (first..sizes.numbers).zip(&mut block) {
                        for lane in (0..LANES).step_by(S::LANES) {
                            let v = simd.load(&v[k * lanes + at + lane..]);
                            let minus = simd.mul(simd.splat(-1.0), simd.load(&along[lane..]));
                            let across = simd.mul_add(v, minus, dv.at(simd, k, lane));
                            let dz = simd.gate(simd.mul(across, simd.load(&scale[at + lane..])), v);
                            simd.store(dz, &mut row[lane..]);
                        }
                    }
                    simd.transpose(block.as_flattened(), LANES, turned.as_flattened_mut(), LANES);
                    let to = &mut self.to.panel(first / WIDTH)[index * sizes.steps + at..][..steps];
                    for (to, from) in to.iter_mut().zip(&turned) {
                        to[first % WIDTH..][..LANES].copy_from_slice(from);
                    }
                }
            }
        }
    }
}

/// The gradient of v, of some steps.
struct Gradient<'a> {
    /// dc.
    of_c: InRow<'a>,
    /// The two terms of dw, the second of which has its numbers behind dc's.
    of_w: [InRow<'a>; 2],
    x: InRow<'a>,
    numbers: usize,
    /// Of each lane's step y, da (0 of the last one), and 1 where it is the last.
    y: &'a [f32],
    da: [f32; LANES],
    last: [f32; LANES],
}

impl Gradient<'_> {
    /// Of number `k`, by lanes from `lane` on.
    #[inline(always)]
    fn at<S: Simd>(&self, simd: S, k: usize, lane: usize) -> S::V {
        let of_last = simd.splat(self.of_w[0].at(k) + self.of_w[1].at(self.numbers + k));
        let of_last = simd.mul(of_last, simd.load(&self.last[lane..]));
        let of_x = simd.mul_add(simd.splat(self.x.at(k)), simd.load(&self.da[lane..]), of_last);
        simd.mul_add(simd.splat(self.of_c.at(k)), simd.load(&self.y[lane..]), of_x)
    }
}
