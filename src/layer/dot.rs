//! The dot interaction: every pair of a sample's vectors, multiplied.
//!
//! A sample's features T are F vectors of E elements (the bottom MLP's output x first, then one pooled row a table).
//! Where samples have no dense features there is no x: T are the pooled rows, and the result is z alone. Forward: Z = T
//! Tᵀ, and the result is [x, z] with z the entries of Z's lower triangle, row by row (i ascending, j < i, or j <= i
//! with `itself`), as facebookresearch/dlrm orders them. (TorchRec takes the upper triangle: its top weights come in
//! another order, [`Dot::upper_triangle`].) Backward: with the symmetric S that has dz at (i, j) and (j, i), dT = S T,
//! plus dx in row 0.
//!
//! Every number is read from where its producer left it and written to where its consumer wants it, once: x and its
//! gradient are the bottom MLP's panels, [x, z] and its gradient the top MLP's. What lies between stays in L1 or L2.
//! The gradient of pooled rows takes the place of these.

use std::convert::identity;

use bytemuck::Zeroable;

use super::{Features, FeaturesMut};
use crate::base::Result;
use crate::machine::team::Team;
use crate::math::brgemm::{Cell, Panels, Row, WIDTH};
use crate::math::{Block, GROUP, Lanes, Mirrored, Pairs, SLACK, STEPS, Take, pairs_before};
use crate::memory::{Buffer, Supply};
use crate::simd::{Kernel, Simd};
use crate::sync::{Each, GridPart};

/// The interaction of `vectors` vectors of `dim` elements.
#[derive(Debug)]
pub struct Dot {
    shape: Shape,
    /// Working space, one a thread.
    scratch: Vec<Scratch>,
}

#[derive(Debug, Clone, Copy)]
struct Shape {
    /// All vectors that meet, x among them.
    vectors: usize,
    dim: usize,
    /// Whether the first of them is x.
    with_x: bool,
    itself: bool,
}

#[derive(Debug)]
struct Scratch {
    /// Forward: sixteen elements of each vector of a group of samples.
    blocks: Buffer<Block>,
    /// Forward: a row for each column of the result from `Shape::aligned` on, with zeros behind the last.
    products: Buffer<Lanes>,
    /// Backward: one sample's vectors, each padded with zeros to `Shape::padded` elements.
    vectors: Buffer<f32>,
    /// Backward: the gradient of one sample's result.
    gradient: Buffer<f32>,
}

impl Shape {
    /// Elements of a sample's pooled rows.
    const fn pooled(self) -> usize {
        (self.vectors - self.with_x as usize) * self.dim
    }

    /// Elements of x.
    const fn x(self) -> usize {
        if self.with_x { self.dim } else { 0 }
    }

    const fn pairs(self) -> usize {
        pairs_before(self.vectors, self.itself)
    }

    /// Elements of x that fill whole pieces of 16 columns of the result; the others share one with products.
    const fn aligned(self) -> usize {
        self.x() / STEPS * STEPS
    }

    const fn padded(self) -> usize {
        self.dim.next_multiple_of(STEPS)
    }

    /// Elements before the products in the gradient of a sample: those of x, which row 0 of the features' gradient
    /// starts at, or as many zeros as a padded vector has.
    const fn before(self) -> usize {
        if self.with_x { self.dim } else { self.padded() }
    }
}

impl Dot {
    /// The interaction of x, if there is one, and `rows` pooled rows, all of `dim` elements, for a team of `threads`.
    ///
    /// # Errors
    /// When the supply is exhausted.
    pub fn new(
        with_x: bool,
        [rows, dim]: [usize; 2],
        itself: bool,
        threads: usize,
        supply: &mut Supply<'_>,
    ) -> Result<Self> {
        let vectors = rows + usize::from(with_x);
        let shape = Shape { vectors, dim, with_x, itself };
        let products = (shape.x() - shape.aligned() + shape.pairs()).next_multiple_of(GROUP);
        let scratch = (0..threads).map(|_| {
            Ok(Scratch {
                blocks: supply.buffer("transposed features", vectors)?,
                products: supply.buffer("transposed products", products)?,
                vectors: supply.buffer("a sample's features", vectors * shape.padded())?,
                gradient: supply.buffer("a sample's gradient", shape.before() + shape.pairs() + WIDTH + SLACK)?,
            })
        });
        Ok(Self { scratch: scratch.collect::<Result<_>>()?, shape })
    }

    /// Columns of the result: those of x + F (F - 1) / 2, and F more with `itself`.
    #[must_use]
    pub const fn outputs(&self) -> usize {
        self.shape.x() + self.shape.pairs()
    }

    /// The columns of the result in the order of the upper triangle of Z, row by row, as TorchRec gives them: [x, z]
    /// with z_ij at i ascending, j > i, or j >= i with `itself`. The products are the same.
    #[must_use]
    pub fn upper_triangle(&self) -> Vec<usize> {
        let Shape { vectors, itself, .. } = self.shape;
        let row = |i: usize| (i + usize::from(!itself)..vectors).map(move |j| pairs_before(j, itself) + i);
        let x = self.shape.x();
        (0..x).chain((0..vectors).flat_map(row).map(|pair| x + pair)).collect()
    }

    /// Writes [x, z] of the first `samples` samples to the rows of `out`, samples x [`Dot::outputs`].
    ///
    /// # Panics
    /// When a matrix has another shape than the interaction or too few rows.
    pub fn forward<C: Cell>(&mut self, team: &Team, samples: usize, from: Features<'_, C>, out: &mut Panels<C>) {
        let (isa, shape) = (team.isa(), self.shape);
        from.check(samples, shape.x(), shape.pooled());
        assert!(out.columns() == self.outputs() && out.rows() >= samples, "{out:?} takes the interaction");
        let grid = out.grid(samples, team.pieces(), GROUP);
        team.share_with(Each::new(&mut self.scratch), grid, identity, |scratch, out| {
            isa.run(Forward { shape, from, out, scratch });
        });
    }

    /// Replaces the features of the first `samples` samples by their gradient, given `gradient` with respect to [x, z];
    /// x is a ReLU's output, and what goes to x goes on through it: it becomes 0 where x is.
    ///
    /// # Panics
    /// As [`Dot::forward`].
    pub fn backward<C: Cell>(
        &mut self,
        team: &Team,
        samples: usize,
        gradient: &Panels<C>,
        features: FeaturesMut<'_, C>,
    ) {
        let (isa, shape) = (team.isa(), self.shape);
        features.check(samples, shape.x(), shape.pooled());
        assert!(
            gradient.columns() == self.outputs() && gradient.rows() >= samples,
            "{gradient:?} is the interaction's"
        );
        let (x, row) = (features.x, features.row);
        let parts = features.deal(samples, team.pieces());
        team.share_with(Each::new(&mut self.scratch), parts, identity, |scratch, (x_gradient, pooled)| {
            isa.run(Backward { shape, x, gradient, x_gradient, pooled, row, scratch });
        });
    }
}

struct Forward<'a, C> {
    shape: Shape,
    from: Features<'a, C>,
    out: GridPart<'a, Row<C>>,
    scratch: &'a mut Scratch,
}

impl<C: Cell> Kernel for Forward<'_, C> {
    type Out = ();

    #[inline(always)]
    fn run<S: Simd>(mut self, simd: S) {
        for first in self.out.rows().step_by(GROUP) {
            let samples = GROUP.min(self.out.rows().end - first);
            // Its last piece of 16 columns may be one with products, which complete it.
            self.from.copy_x(first, samples, &mut self.out);
            self.multiply(simd, first, samples);
            self.write_products(simd, first, samples);
        }
    }
}

impl<C: Cell> Forward<'_, C> {
    /// All products of the samples from `first` on, a lane a sample.
    #[inline(always)]
    fn multiply<S: Simd>(&mut self, simd: S, first: usize, samples: usize) {
        let Shape { vectors, dim, with_x, itself } = self.shape;
        let Scratch { blocks, products, .. } = &mut *self.scratch;
        let shared = self.shape.x() - self.shape.aligned();
        let row = self.from.row;
        for element in (0..dim).step_by(STEPS) {
            let steps = STEPS.min(dim - element);
            let mut rows = Block::zeroed();
            if with_x {
                for (to, from) in rows.iter_mut().zip(&self.from.x.panel(element / WIDTH)[first..][..samples]) {
                    for lane in (0..STEPS).step_by(S::LANES) {
                        simd.store(C::load(simd, &from[element % WIDTH + lane..]), &mut to[lane..]);
                    }
                }
                simd.transpose(rows.as_flattened(), STEPS, blocks[0].as_flattened_mut(), GROUP);
            }
            // The same columns of the samples lie far apart, where no hardware prefetcher looks: those after them are
            // asked for a piece ahead.
            let ahead = if element + STEPS < dim { STEPS } else { GROUP * row - element };
            for (table, block) in blocks[usize::from(with_x)..vectors].iter_mut().enumerate() {
                let from = &self.from.pooled[first * row + table * dim + element..];
                let to = block.as_flattened_mut();
                if samples == GROUP && steps == STEPS {
                    (0..GROUP).for_each(|sample| simd.prefetch_ahead(from, sample * row + ahead));
                    simd.transpose(from, row, to, GROUP);
                } else {
                    for (to, from) in rows.iter_mut().zip(from.chunks(row)).take(samples) {
                        to[..steps].copy_from_slice(&from[..steps]);
                    }
                    simd.transpose(rows.as_flattened(), STEPS, to, GROUP);
                }
            }
            if with_x && steps < STEPS {
                products[..shared].copy_from_slice(&blocks[0][..shared]);
            }
            let sums = &mut products[shared..];
            Pairs { vectors: blocks, steps, itself, fresh: element == 0, sums }.add(simd);
        }
    }

    /// Brings the products back to a row a sample, 16 columns at a time.
    #[inline(always)]
    fn write_products<S: Simd>(&mut self, simd: S, first: usize, samples: usize) {
        let mut rows = Block::zeroed();
        let start = first - self.out.rows().start;
        for (index, columns) in self.scratch.products.as_chunks::<STEPS>().0.iter().enumerate() {
            let column = self.shape.aligned() + index * STEPS;
            simd.transpose(columns.as_flattened(), GROUP, rows.as_flattened_mut(), STEPS);
            let to = &mut self.out.panel(column / WIDTH)[start..][..samples];
            for (to, from) in to.iter_mut().zip(&rows) {
                for lane in (0..STEPS).step_by(S::LANES) {
                    C::store(simd, simd.load(&from[lane..]), &mut to[column % WIDTH + lane..]);
                }
            }
        }
    }
}

struct Backward<'a, C> {
    shape: Shape,
    x: &'a Panels<C>,
    gradient: &'a Panels<C>,
    x_gradient: GridPart<'a, Row<C>>,
    pooled: GridPart<'a, f32>,
    /// Distance of one sample's pooled rows from the next one's.
    row: usize,
    scratch: &'a mut Scratch,
}

impl<C: Cell> Kernel for Backward<'_, C> {
    type Out = ();

    #[inline(always)]
    fn run<S: Simd>(mut self, simd: S) {
        let Shape { vectors: count, dim, with_x, itself } = self.shape;
        let (row, padded, before) = (self.shape.pooled(), self.shape.padded(), self.shape.before());
        for (index, sample) in self.x_gradient.rows().enumerate() {
            self.gather(simd, index, sample);
            let Scratch { vectors, gradient, .. } = &mut *self.scratch;
            let product =
                Mirrored { triangle: &gradient[before..], itself, vectors, count, row: padded, first: gradient };
            let pooled = &mut self.pooled.panel(0)[index * self.row..][..row];
            let x = &mut self.x_gradient;
            let mut to = Gradients { dim, with_x, x, index, features: vectors, pooled, apart: self.row };
            product.each(simd, &mut to);
        }
    }
}

/// The gradients of one sample's features.
struct Gradients<'a, 'b, C> {
    dim: usize,
    with_x: bool,
    /// That of x, in row `index`.
    x: &'a mut GridPart<'b, Row<C>>,
    index: usize,
    /// The features, x first if there is one.
    features: &'a [f32],
    pooled: &'a mut [f32],
    /// How far the next sample's are from these.
    apart: usize,
}

impl<C: Cell> Take for Gradients<'_, '_, C> {
    #[inline(always)]
    fn take<S: Simd>(&mut self, simd: S, i: usize, k: usize, v: S::V) {
        if self.with_x && i == 0 {
            let x = &mut self.x.panel(k / WIDTH)[self.index][k % WIDTH..];
            C::store(simd, simd.gate(v, simd.load(&self.features[k..])), x);
        } else if k < self.dim {
            let at = (i - usize::from(self.with_x)) * self.dim;
            // What the next sample reads and replaces comes while this one is computed.
            simd.prefetch_write(self.pooled, self.apart + at + k);
            let to = &mut self.pooled[at..][k..self.dim];
            match to.len() {
                left if left < S::LANES => simd.store_partial(v, to),
                _ => simd.store(v, to),
            }
        }
    }
}

impl<C: Cell> Backward<'_, C> {
    /// Brings a sample's vectors and its gradient side by side; `index` is its number in this part.
    #[inline(always)]
    fn gather<S: Simd>(&mut self, simd: S, index: usize, sample: usize) {
        let Scratch { vectors, gradient, .. } = &mut *self.scratch;
        let (dim, row, padded) = (self.shape.dim, self.shape.pooled(), self.shape.padded());
        let (x, pooled) = vectors.split_at_mut(if self.shape.with_x { padded } else { 0 });
        widen(simd, self.x, sample, x);
        let from = &self.pooled.panel(0)[index * self.row..][..row];
        if dim == padded {
            let (to, from) = (pooled.as_chunks_mut::<STEPS>().0, from.as_chunks::<STEPS>().0);
            to.iter_mut().zip(from).for_each(|(to, from)| *to = *from);
        } else {
            let pairs = pooled.chunks_exact_mut(padded).zip(from.chunks_exact(dim));
            pairs.for_each(|(to, from)| to[..dim].copy_from_slice(from));
        }
        widen(simd, self.gradient, sample, &mut gradient[self.shape.before() - self.shape.x()..]);
    }
}

/// One row of panels, in 32-bit floats, with padding up to whole pieces of 16.
#[inline(always)]
fn widen<S: Simd, C: Cell>(simd: S, from: &Panels<C>, row: usize, to: &mut [f32]) {
    for panel in 0..from.panels() {
        let from_row = &from.panel(panel)[row];
        let width = from.width(panel).next_multiple_of(STEPS);
        for lane in (0..width).step_by(S::LANES) {
            simd.store(C::load(simd, &from_row[lane..]), &mut to[panel * WIDTH + lane..]);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::Supply;

    #[test]
    fn the_upper_triangle_has_each_product_in_its_row() {
        for (vectors, itself) in [(2, false), (3, false), (6, false), (1, true), (5, true)] {
            for with_x in [false, true] {
                let rows = [vectors - usize::from(with_x), 2];
                let dot = Dot::new(with_x, rows, itself, 1, &mut Supply::System).unwrap();
                let lower = (0..vectors).flat_map(|i| (0..i + usize::from(itself)).map(move |j| [j, i]));
                let lower: Vec<_> = lower.collect();
                let mut upper = lower.clone();
                upper.sort_unstable();
                let x = if with_x { 2 } else { 0 };
                let columns = dot.upper_triangle();
                assert!(columns[..x].iter().copied().eq(0..x));
                assert!(columns[x..].iter().map(|column| lower[column - x]).eq(upper), "{vectors}, {itself}");
            }
        }
    }
    use crate::math::random;
    use crate::simd::Isa;

    /// [x, z] and the gradients of x and of the pooled rows, sample by sample, from the formulas at this file's head.
    fn define(shape: Shape, x: &[f32], pooled: &[f32], gradient: &[f32]) -> [Vec<f32>; 3] {
        let Shape { vectors, dim, with_x, itself } = shape;
        let [mut out, mut dx, mut dpooled] = [const { Vec::new() }; 3];
        let samples = gradient.len() / (shape.x() + shape.pairs()).max(1);
        for n in 0..samples {
            let x = &x[n * shape.x()..][..shape.x()];
            let gradient = &gradient[n * (shape.x() + shape.pairs())..][..shape.x() + shape.pairs()];
            let t = [x, &pooled[n * shape.pooled()..][..shape.pooled()]].concat();
            let t: Vec<_> = t.chunks(dim).collect();
            out.extend(x);
            let mut s = vec![vec![0.0; vectors]; vectors];
            let mut dz = gradient[shape.x()..].iter();
            for i in 0..vectors {
                for j in 0..i + usize::from(itself) {
                    out.push((0..dim).fold(0.0, |sum, k| t[i][k].mul_add(t[j][k], sum)));
                    let &dz = dz.next().unwrap();
                    (s[i][j], s[j][i]) = if i == j { (2.0 * dz, 2.0 * dz) } else { (dz, dz) };
                }
            }
            for (i, s) in s.iter().enumerate() {
                for k in 0..dim {
                    let start = if with_x && i == 0 { gradient[k] } else { 0.0 };
                    let sum = (0..vectors).fold(start, |sum, j| s[j].mul_add(t[j][k], sum));
                    if i > 0 || !with_x {
                        dpooled.push(sum);
                    } else {
                        dx.push(if x[k] <= 0.0 { 0.0 } else { sum });
                    }
                }
            }
        }
        [out, dx, dpooled]
    }

    #[test]
    fn every_twin_and_team_gives_the_bits_of_the_definition() {
        let sizes = [(1, 4), (2, 1), (4, 4), (9, 64), (27, 16), (5, 20), (3, 70), (6, 128)];
        let ways = [(true, false), (true, true), (false, false), (false, true)];
        for ((vectors, dim), (with_x, itself)) in sizes.into_iter().flat_map(|size| ways.map(|way| (size, way))) {
            let shape = Shape { vectors, dim, with_x, itself };
            let outputs = shape.x() + shape.pairs();
            if outputs == 0 {
                // No network has an interaction of which nothing comes.
                continue;
            }
            for samples in [1, 16, 37] {
                // Half of x is 0, as behind a ReLU; matrices have room for more samples.
                let x: Vec<f32> = random(samples * shape.x(), 1).iter().map(|x| x.max(0.0)).collect();
                let pooled = random(samples * shape.pooled(), 2);
                let gradient = random(samples * outputs, 3);
                let expected = define(shape, &x, &pooled, &gradient);
                for (isa, threads) in Isa::all().into_iter().flat_map(|isa| [(isa, 1), (isa, 3)]) {
                    let team = Team::with_isa(threads, isa).unwrap();
                    let rows = vectors - usize::from(with_x);
                    let mut dot = Dot::new(with_x, [rows, dim], itself, threads, &mut Supply::System).unwrap();
                    let x = Panels::from_rows(&x, samples, shape.x());
                    let from = Features { x: &x, pooled: &pooled, row: shape.pooled() };
                    let mut out = Panels::zeroed(samples + 3, outputs);
                    dot.forward(&team, samples, from, &mut out);
                    let mut dx = Panels::zeroed(samples, shape.x());
                    let mut dpooled = pooled.clone();
                    let row = shape.pooled();
                    let features = FeaturesMut { x: &x, x_gradient: &mut dx, pooled: &mut dpooled, row };
                    dot.backward(&team, samples, &Panels::from_rows(&gradient, samples, outputs), features);
                    let name = format!("{isa:?}, {threads} threads, {samples} samples, {shape:?}");
                    assert!(out.to_rows()[..samples * outputs] == expected[0], "forward, {name}");
                    assert!(out.to_rows()[samples * outputs..].iter().all(|&x| x == 0.0), "other rows, {name}");
                    assert!(dx.to_rows() == expected[1], "gradient of x, {name}");
                    assert!(dpooled == expected[2], "gradient of pooled rows, {name}");
                    for panels in [&out, &dx] {
                        let cells = panels.cells().as_flattened().iter().filter(|&&x| x != 0.0).count();
                        let rows = panels.to_rows().iter().filter(|&&x| x != 0.0).count();
                        assert_eq!(cells, rows, "padding stays 0, {name}");
                    }
                }
            }
        }
    }
}
