//! A tower: a bottom MLP over dense features, the interaction of its output with other vectors, and a top MLP.
//!
//! The MLPs keep their own ends, and each stage reads and writes its neighbours', so that none copies what another has
//! written. Where there are no dense features there is no bottom MLP, and the vectors interact among themselves.

use super::{Concat, Cross, Dot, Features, FeaturesMut, InputGradient, Linear, Mlp};
use crate::base::Result;
use crate::base::config::{Interaction, ModelConfig, Triangle};
use crate::machine::team::Team;
use crate::math::brgemm::Panels;
use crate::math::{Part, Share};
use crate::memory::{Arena, Supply};
use crate::optim::Kept;

/// The layers with what a part of a minibatch leaves between them.
#[derive(Debug)]
pub struct Tower {
    bottom: Mlp,
    interaction: Interacts,
    top: Mlp,
}

#[derive(Debug)]
enum Interacts {
    Dot(Dot),
    Concat(Concat),
    Cross(Box<Cross>),
}

impl Tower {
    /// The layers of a model, all weights 0, over so many vectors beside the bottom MLP's output, which together have so many
    /// elements, with room for parts of `samples`, for a team of `threads`.
    ///
    /// # Errors
    /// When the supply is exhausted.
    ///
    /// # Panics
    /// When vectors that are multiplied with each other are not all as wide as the model says.
    pub fn new(
        config: &ModelConfig,
        [vectors, row]: [usize; 2],
        samples: usize,
        threads: usize,
        kept: Kept,
        supply: &mut Supply<'_>,
    ) -> Result<Self> {
        let bottom = config.bottom_widths();
        // Both ends of a bottom MLP without layers are one matrix: the dense features, or an empty one.
        let ends = if bottom.len() == 1 { InputGradient::Needed } else { InputGradient::Unneeded };
        let x = bottom[bottom.len() - 1];
        let interaction = match config.interaction {
            Interaction::Dot => {
                assert_eq!(row, vectors * config.dim, "vectors of one width are multiplied");
                let rows = [vectors, config.dim];
                Interacts::Dot(Dot::new(!config.bottom.is_empty(), rows, config.interaction_itself, threads, supply)?)
            }
            Interaction::Cat => Interacts::Concat(Concat::new(x, row)),
            Interaction::Dcn => {
                let sizes = [config.cross_layers, config.cross_rank];
                Interacts::Cross(Box::new(Cross::new(Concat::new(x, row), sizes, samples, kept, supply)?))
            }
        };
        let top: Vec<_> = std::iter::once(interaction.outputs()).chain(config.top.iter().copied()).collect();
        Ok(Self {
            bottom: Mlp::new(bottom, samples, ends, kept, supply)?,
            top: Mlp::new(&top, samples, InputGradient::Needed, kept, supply)?,
            interaction,
        })
    }

    /// Takes all planned buffers from the arena.
    pub fn settle(&mut self, arena: &mut Arena) {
        self.bottom.settle(arena);
        self.top.settle(arena);
        match &mut self.interaction {
            Interacts::Dot(dot) => dot.settle(arena),
            Interacts::Concat(_) => {}
            Interacts::Cross(cross) => cross.settle(arena),
        }
    }

    /// As [`Mlp::plan_sums`].
    ///
    /// # Errors
    /// When the supply is exhausted.
    pub fn plan_sums(&mut self, share: &Share, supply: &mut Supply<'_>) -> Result<()> {
        self.bottom.plan_sums(share, supply)?;
        if let Interacts::Cross(cross) = &mut self.interaction {
            cross.plan_sums(share, supply)?;
        }
        self.top.plan_sums(share, supply)
    }

    /// The layers of the bottom MLP, of the interaction and of the top MLP.
    #[must_use]
    pub fn chains(&self) -> [&[Linear]; 3] {
        [self.bottom.layers(), self.interaction.layers(), self.top.layers()]
    }

    /// As [`Tower::chains`], to be changed.
    pub fn chains_mut(&mut self) -> [&mut [Linear]; 3] {
        [self.bottom.layers_mut(), self.interaction.layers_mut(), self.top.layers_mut()]
    }

    /// How many layers there are.
    #[must_use]
    pub fn layers(&self) -> usize {
        self.chains().map(<[_]>::len).into_iter().sum()
    }

    /// Where in the top MLP's input those inputs are that a state dict has in their order, if not in theirs.
    #[must_use]
    pub fn named_inputs(&self, triangle: Triangle) -> Option<Vec<usize>> {
        match &self.interaction {
            Interacts::Dot(dot) if triangle == Triangle::Upper => Some(dot.upper_triangle()),
            _ => None,
        }
    }

    /// The dense features, to be written before [`Tower::bottom`]; padding must stay 0.
    pub fn input_mut(&mut self) -> &mut Panels<f32> {
        self.bottom.input_mut()
    }

    /// Forward: the bottom MLP.
    pub fn bottom(&mut self, team: &Team, samples: usize) {
        self.bottom.forward(team, samples, true);
    }

    /// Forward: the interaction with these vectors, those of a sample `row` elements from the next one's.
    pub fn interact(&mut self, team: &Team, samples: usize, (pooled, row): (&[f32], usize)) {
        let from = Features { x: self.bottom.output(), pooled, row };
        let out = self.top.input_mut();
        match &mut self.interaction {
            Interacts::Dot(dot) => dot.forward(team, samples, from, out),
            Interacts::Concat(concat) => concat.forward(team, samples, from, out),
            Interacts::Cross(cross) => cross.forward(team, samples, from, out),
        }
    }

    /// Forward: the top MLP; `relu` says whether its last layer has one.
    pub fn top(&mut self, team: &Team, samples: usize, relu: bool) {
        self.top.forward(team, samples, relu);
    }

    /// The output of [`Tower::top`].
    #[must_use]
    pub fn output(&self) -> &Panels<f32> {
        self.top.output()
    }

    /// As [`Mlp::output_and_gradient`], of the top MLP.
    pub fn output_and_gradient(&mut self) -> (&Panels<f32>, &mut Panels<f32>) {
        self.top.output_and_gradient()
    }

    /// Backward of [`Tower::top`]; `done` gets each layer with its number in the tower, as [`Mlp::backward`] has it.
    pub fn back_top(&mut self, team: &Team, part: &Part<'_>, mut done: impl FnMut(usize, &mut Linear)) {
        let before = self.bottom.layers().len() + self.interaction.layers().len();
        self.top.backward(team, part, |index, layer| done(before + index, layer));
    }

    /// Backward of [`Tower::interact`], given the same vectors: writes their gradient.
    pub fn back_interact(
        &mut self,
        team: &Team,
        part: &Part<'_>,
        (pooled, gradient, row): (&[f32], &mut [f32], usize),
        mut done: impl FnMut(usize, &mut Linear),
    ) {
        let before = self.bottom.layers().len();
        let (x, x_gradient) = self.bottom.output_and_gradient();
        let from = Features { x, pooled, row };
        let to = FeaturesMut { x: x_gradient, pooled: gradient, row };
        let gradient = self.top.input_gradient();
        match &mut self.interaction {
            Interacts::Dot(dot) => dot.backward(team, part.len(), from, gradient, to),
            Interacts::Concat(concat) => concat.backward(team, part.len(), from, gradient, to),
            Interacts::Cross(cross) => {
                let done = |index, layer: &mut Linear| done(before + index, layer);
                cross.backward(team, part, from, gradient, to, done);
            }
        }
    }

    /// Backward of [`Tower::bottom`].
    pub fn back_bottom(&mut self, team: &Team, part: &Part<'_>, done: impl FnMut(usize, &mut Linear)) {
        self.bottom.backward(team, part, done);
    }
}

impl Interacts {
    fn outputs(&self) -> usize {
        match self {
            Self::Dot(dot) => dot.outputs(),
            Self::Concat(concat) => concat.outputs(),
            Self::Cross(cross) => cross.outputs(),
        }
    }

    fn layers(&self) -> &[Linear] {
        if let Self::Cross(cross) = self { cross.layers() } else { &[] }
    }

    fn layers_mut(&mut self) -> &mut [Linear] {
        if let Self::Cross(cross) = self { cross.layers_mut() } else { &mut [] }
    }
}
