//! What an interaction lies between: the features of a sample on one side, the top MLP's input on the other.
//!
//! A sample's features are the bottom MLP's output x, in that MLP's own panels, and the pooled rows of all tables, side
//! by side in a row-major matrix. An interaction begins with x in the same columns of its result as x has itself.

use crate::math::brgemm::{Cell, Panels, Row};
use crate::sync::{Grid, GridPart};

/// Elements that are copied at once: a vector of the widest instruction set. Panels hold whole pieces.
const PIECE: usize = 16;

/// A minibatch's features.
#[derive(Debug, Clone, Copy)]
pub struct Features<'a, C> {
    /// The output of the bottom MLP.
    pub x: &'a Panels<C>,
    /// The pooled rows of each sample.
    pub pooled: &'a [f32],
    /// Distance of one sample's pooled rows from the next one's, at least as many elements as these have.
    pub row: usize,
}

/// A minibatch's features on the way back. The gradient of pooled rows takes their place, where their lines are in a
/// cache.
#[derive(Debug)]
pub struct FeaturesMut<'a, C> {
    /// The output of the bottom MLP.
    pub x: &'a Panels<C>,
    /// The gradient of the bottom MLP's last sums, to be written.
    pub x_gradient: &'a mut Panels<C>,
    /// The pooled rows of each sample, and then their gradient.
    pub pooled: &'a mut [f32],
    /// As [`Features::row`].
    pub row: usize,
}

/// Panics unless there are `samples` rows of `[x, pooled]` elements, the latter so far apart.
fn check<C: Cell>(x: &Panels<C>, pooled: &[f32], row: usize, samples: usize, sizes: [usize; 2]) {
    assert!(x.rows() >= samples && x.columns() == sizes[0], "{x:?} is not {samples} (or more) x {}", sizes[0]);
    assert!(row >= sizes[1], "rows of {row} elements lack some of {}", sizes[1]);
    assert!(pooled.len() >= samples * row, "{} elements are not {samples} x {row}", pooled.len());
}

impl<C: Cell> Features<'_, C> {
    /// Panics unless there are `samples` samples with so many elements of x and of pooled rows.
    pub(super) fn check(&self, samples: usize, x: usize, pooled: usize) {
        check(self.x, self.pooled, self.row, samples, [x, pooled]);
    }

    /// Copies the x of `samples` samples from `first` on, and zeros up to a multiple of 16 columns, to a result's rows.
    #[inline(always)]
    pub(super) fn copy_x(&self, first: usize, samples: usize, out: &mut GridPart<'_, Row<C>>) {
        let start = first - out.rows().start;
        for panel in 0..self.x.panels() {
            let pieces = self.x.width(panel).div_ceil(PIECE);
            let to = &mut out.panel(panel)[start..][..samples];
            for (to, from) in to.iter_mut().zip(&self.x.panel(panel)[first..]) {
                let (to, from) = (to.as_chunks_mut::<PIECE>().0, from.as_chunks::<PIECE>().0);
                to[..pieces].iter_mut().zip(from).for_each(|(to, from)| *to = *from);
            }
        }
    }
}

impl<'a, C: Cell> FeaturesMut<'a, C> {
    /// As [`Features::check`].
    pub(super) fn check(&self, samples: usize, x: usize, pooled: usize) {
        for x_or_gradient in [self.x, self.x_gradient] {
            check(x_or_gradient, self.pooled, self.row, samples, [x, pooled]);
        }
    }

    /// Cuts the samples into `pieces`: each has the same samples of the gradient of x and of pooled rows,
    /// [`FeaturesMut::row`] apart.
    pub(super) fn deal(self, samples: usize, pieces: usize) -> (Grid<'a, Row<C>>, Grid<'a, f32>) {
        let whole = samples * self.row;
        let pooled = Grid::new(self.pooled, [1, whole, whole], [1, pieces], self.row.max(1));
        (self.x_gradient.grid(samples, pieces, 1), pooled)
    }
}
