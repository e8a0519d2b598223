//! The wide part of Wide & Deep (Cheng et al. 2016): a linear model of the dense features and of the rows of tables of
//! one column, whose sum goes round all other layers to the logit.
//!
//! The weights of categories are rows like any other: pooled where they lie, at the end of a sample's features.

use std::ops::Range;

use super::{InputGradient, Linear, Mlp};
use crate::base::Result;
use crate::machine::team::Team;
use crate::math::brgemm::import_rows;
use crate::math::{Part, StridedRows};
use crate::memory::Supply;
use crate::optim::ParamState;
use crate::sync::Rows;

/// Samples that are shared out together: their logits fill a cache line.
const SAMPLES: usize = 16;

/// The wide part's layer over the dense features, and where in a sample's features its pooled rows are.
#[derive(Debug)]
pub struct Wide {
    /// From all dense features to one number; none where there are none.
    linear: Mlp,
    columns: Range<usize>,
    /// Elements of a sample's features.
    row: usize,
}

impl Wide {
    /// Of `dense` features and these columns of features of `row` elements, with room for parts of `samples`.
    ///
    /// # Errors
    /// When the supply is exhausted.
    pub fn new(
        dense: usize,
        (columns, row): (Range<usize>, usize),
        samples: usize,
        kept: ParamState,
        supply: &mut Supply<'_>,
    ) -> Result<Self> {
        let (widths, ends) = match dense {
            0 => (&[0][..], InputGradient::Needed),
            _ => (&[dense, 1][..], InputGradient::Unneeded),
        };
        Ok(Self { linear: Mlp::new(widths, samples, ends, kept, supply)?, columns, row })
    }

    /// The layer, if there are dense features.
    #[must_use]
    pub fn layers(&self) -> &[Linear] {
        self.linear.layers()
    }

    /// As [`Wide::layers`], to be changed.
    pub fn layers_mut(&mut self) -> &mut [Linear] {
        self.linear.layers_mut()
    }

    /// Adds the wide part to the logits of so many samples, whose `features` these are; `dense` are their dense
    /// features.
    pub fn forward(&mut self, team: &Team, dense: StridedRows<'_>, features: &[f32], logits: &mut [f32]) {
        let (samples, has_dense) = (logits.len(), dense.stride > 0);
        if has_dense {
            import_rows(team, samples, dense.data, dense.stride, self.linear.input_mut());
            self.linear.forward(team, samples, false);
        }
        let (Self { columns, row, .. }, linear) = (&*self, self.linear.output());
        team.each(Rows::new(logits, 1, team.threads(), SAMPLES), |part| {
            for (sample, logit) in (part.first..).zip(part.data) {
                let own = &features[sample * row..][columns.clone()];
                let of_dense = if has_dense { linear.panel(0)[sample][0] } else { 0.0 };
                *logit += own.iter().fold(of_dense, |sum, weight| sum + weight);
            }
        });
    }

    /// Given the gradient of the logits of a part, puts that of its pooled rows in their place among the features, and
    /// that of the layer's weights; `done` gets the layer, as [`Mlp::backward`] has it.
    pub fn backward(
        &mut self,
        team: &Team,
        part: &Part<'_>,
        gradient: &[f32],
        features: &mut [f32],
        done: impl FnMut(usize, &mut Linear),
    ) {
        let (samples, columns, row) = (part.len(), self.columns.clone(), self.row);
        if row > 0 {
            team.each(Rows::new(&mut features[..samples * row], row, team.threads(), 1), |part| {
                for (own, gradient) in part.data.chunks_exact_mut(row).zip(&gradient[part.first..]) {
                    own[columns.clone()].fill(*gradient);
                }
            });
        }
        if !self.layers().is_empty() {
            import_rows(team, samples, gradient, 1, self.linear.output_and_gradient().1);
            self.linear.backward(team, part, done);
        }
    }
}
