//! A function of each number: max(x, 0) or the logistic function, where no layer's own passes do it.

use crate::machine::team::Team;
use crate::math::brgemm::{Panels, Row, WIDTH};
use crate::math::{StridedRows, StridedRowsMut, exp_of_negative};
use crate::simd::{Kernel, Simd};
use crate::sync::{GridPart, Rows};

/// The function.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Activation {
    /// max(x, 0).
    Relu,
    /// 1 / (1 + e^-x).
    Sigmoid,
}

/// 1 / (1 + e^-x). Below 0 it rounds once more in 64 bits than [`crate::math::logistic`], with which networks of such
/// layers would get other bits.
#[inline(always)]
fn logistic(x: f32) -> f64 {
    let e = exp_of_negative(-f64::from(x).abs());
    let of_positive = 1.0 / (1.0 + e);
    if x < 0.0 { e * of_positive } else { of_positive }
}

impl Activation {
    #[inline(always)]
    fn of(self, x: f32) -> f32 {
        match self {
            Self::Relu => {
                if x <= 0.0 {
                    0.0
                } else {
                    x
                }
            }
            Self::Sigmoid => logistic(x) as f32,
        }
    }

    /// The gradient of x, by that of the result.
    #[inline(always)]
    fn back(self, x: f32, gradient: f32) -> f32 {
        match self {
            Self::Relu => {
                if x <= 0.0 {
                    0.0
                } else {
                    gradient
                }
            }
            Self::Sigmoid => {
                let y = logistic(x);
                (f64::from(gradient) * (y * (1.0 - y))) as f32
            }
        }
    }

    /// Writes the function of the rows of `samples` samples to `out`.
    pub fn forward(self, team: &Team, samples: usize, rows: StridedRows<'_>, out: &mut Panels<f32>) {
        let (isa, columns) = (team.isa(), out.columns());
        team.share(out.grid(samples, team.pieces(), 1), |out| {
            isa.run(Forward { function: self, rows, columns, out });
        });
    }

    /// Replaces the rows of `samples` samples by their gradient, given that of the result.
    pub fn backward(self, team: &Team, samples: usize, gradient: &Panels<f32>, rows: StridedRowsMut<'_>) {
        let (isa, StridedRowsMut { data: rows, stride: row }) = (team.isa(), rows);
        if samples * row == 0 {
            return;
        }
        team.share(Rows::new(&mut rows[..samples * row], row, team.pieces(), 1), |band| {
            isa.run(Backward { function: self, gradient, first: band.first, row, rows: band.data });
        });
    }
}

struct Forward<'a> {
    function: Activation,
    rows: StridedRows<'a>,
    columns: usize,
    out: GridPart<'a, Row<f32>>,
}

impl Kernel for Forward<'_> {
    type Out = ();

    #[inline(always)]
    fn run<S: Simd>(mut self, _: S) {
        let first = self.out.rows().start;
        for panel in self.out.panels() {
            let (start, width) = (panel * WIDTH, WIDTH.min(self.columns - panel * WIDTH));
            for (row, to) in self.out.panel(panel).iter_mut().enumerate() {
                let from = &self.rows.data[(first + row) * self.rows.stride + start..][..width];
                to.iter_mut().zip(from).for_each(|(to, x)| *to = self.function.of(*x));
            }
        }
    }
}

struct Backward<'a> {
    function: Activation,
    gradient: &'a Panels<f32>,
    /// The first sample of the rows.
    first: usize,
    row: usize,
    rows: &'a mut [f32],
}

impl Kernel for Backward<'_> {
    type Out = ();

    #[inline(always)]
    fn run<S: Simd>(self, _: S) {
        for panel in 0..self.gradient.panels() {
            let (start, width) = (panel * WIDTH, self.gradient.width(panel));
            let gradients = &self.gradient.panel(panel)[self.first..];
            for (row, gradient) in self.rows.chunks_mut(self.row).zip(gradients) {
                let pairs = row[start..][..width].iter_mut().zip(gradient);
                pairs.for_each(|(x, gradient)| *x = self.function.back(*x, *gradient));
            }
        }
    }
}
