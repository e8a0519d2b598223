//! The `cat` interaction: what comes next reads a sample's vectors side by side.
//!
//! The bottom MLP's output x, then the pooled rows as they lie in memory: forward writes them to the next input, in its
//! precision, backward takes the input's gradient apart again and puts that of pooled rows in their place.

use super::{Features, FeaturesMut};
use crate::machine::team::Team;
use crate::math::brgemm::{Cell, Panels, Row, WIDTH};
use crate::simd::{Kernel, Simd};
use crate::sync::GridPart;

/// The concatenation of x and pooled rows.
#[derive(Debug, Clone, Copy)]
pub struct Concat {
    /// Elements of x.
    x: usize,
    /// Elements of a sample's pooled rows.
    pooled: usize,
}

impl Concat {
    /// Of `x` elements and `pooled` elements.
    #[must_use]
    pub const fn new(x: usize, pooled: usize) -> Self {
        Self { x, pooled }
    }

    /// Columns of the result.
    #[must_use]
    pub const fn outputs(&self) -> usize {
        self.x + self.pooled
    }

    /// Writes [x, pooled] of the first `samples` samples to the rows of `out`, samples x [`Concat::outputs`].
    ///
    /// # Panics
    /// When a matrix has another shape than the interaction or too few rows.
    pub fn forward<C: Cell, D: Cell>(&self, team: &Team, samples: usize, from: Features<'_, C>, out: &mut Panels<D>) {
        let (isa, shape) = (team.isa(), *self);
        from.check(samples, self.x, self.pooled);
        assert!(out.columns() == self.outputs() && out.rows() >= samples, "{out:?} takes the interaction");
        team.share(out.grid(samples, team.pieces(), 1), |out| isa.run(Forward { shape, from, out }));
    }

    /// Replaces the features of the first `samples` samples by their gradient, given `gradient` with respect to [x,
    /// pooled]; what goes to x becomes 0 where x, a ReLU's output, is.
    ///
    /// # Panics
    /// As [`Concat::forward`].
    pub fn backward<C: Cell>(&self, team: &Team, samples: usize, gradient: &Panels<C>, features: FeaturesMut<'_, C>) {
        let (isa, shape) = (team.isa(), *self);
        features.check(samples, self.x, self.pooled);
        assert!(
            gradient.columns() == self.outputs() && gradient.rows() >= samples,
            "{gradient:?} is the interaction's"
        );
        let (x, row) = (features.x, features.row);
        team.share(features.deal(samples, team.pieces()), |(x_gradient, pooled)| {
            isa.run(Backward { shape, x, gradient, x_gradient, pooled, row });
        });
    }
}

struct Forward<'a, C, D> {
    shape: Concat,
    from: Features<'a, C>,
    out: GridPart<'a, Row<D>>,
}

impl<C: Cell, D: Cell> Kernel for Forward<'_, C, D> {
    type Out = ();
    const BF16: bool = size_of::<C>() < 4 || size_of::<D>() < 4;

    #[inline(always)]
    fn run<S: Simd>(mut self, simd: S) {
        let Concat { x, pooled } = self.shape;
        for (index, sample) in self.out.rows().enumerate() {
            for panel in 0..x.div_ceil(WIDTH) {
                let width = WIDTH.min(x - panel * WIDTH);
                convert(simd, &self.from.x.panel(panel)[sample][..width], &mut self.out.panel(panel)[index][..width]);
            }
            let mut from = &self.from.pooled[sample * self.from.row..][..pooled];
            for panel in x / WIDTH..self.out.panels().end {
                let to = &mut self.out.panel(panel)[index][x.saturating_sub(panel * WIDTH)..];
                let (here, rest) = from.split_at(from.len().min(to.len()));
                convert(simd, here, &mut to[..here.len()]);
                from = rest;
            }
        }
    }
}

struct Backward<'a, C> {
    shape: Concat,
    x: &'a Panels<C>,
    gradient: &'a Panels<C>,
    x_gradient: GridPart<'a, Row<C>>,
    pooled: GridPart<'a, f32>,
    /// Distance of one sample's pooled rows from the next one's.
    row: usize,
}

impl<C: Cell> Kernel for Backward<'_, C> {
    type Out = ();

    #[inline(always)]
    fn run<S: Simd>(mut self, simd: S) {
        let Concat { x, pooled } = self.shape;
        for (index, sample) in self.x_gradient.rows().enumerate() {
            for panel in self.x_gradient.panels() {
                let (y, from) = (&self.x.panel(panel)[sample], &self.gradient.panel(panel)[sample]);
                let to = &mut self.x_gradient.panel(panel)[index];
                for lane in (0..WIDTH).step_by(S::LANES) {
                    // Padding of x is 0, so it closes the gate for the pooled columns behind it.
                    let gated = simd.gate(C::load(simd, &from[lane..]), C::load(simd, &y[lane..]));
                    C::store(simd, gated, &mut to[lane..]);
                }
            }
            let mut to = &mut self.pooled.panel(0)[index * self.row..][..pooled];
            for panel in x / WIDTH..self.gradient.panels() {
                let from = &self.gradient.panel(panel)[sample][x.saturating_sub(panel * WIDTH)..];
                let (here, rest) = to.split_at_mut(to.len().min(from.len()));
                convert(simd, &from[..here.len()], here);
                to = rest;
            }
        }
    }
}

/// Copies all of `from` to `to`, which is as long, rounding where that is less precise.
#[inline(always)]
fn convert<S: Simd, A: Cell, B: Cell>(simd: S, from: &[A], to: &mut [B]) {
    for (to, from) in to.chunks_mut(S::LANES).zip(from.chunks(S::LANES)) {
        if from.len() == S::LANES {
            B::store(simd, A::load(simd, from), to);
        } else {
            let (mut padded, mut whole) = ([A::zeroed(); 16], [B::zeroed(); 16]);
            padded[..from.len()].copy_from_slice(from);
            B::store(simd, A::load(simd, &padded), &mut whole);
            to.copy_from_slice(&whole[..to.len()]);
        }
    }
}
