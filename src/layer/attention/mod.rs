//! Attention over the steps of a time series, as TBSM has it (Ishkhanov et al., arXiv:2008.11922;
//! facebookresearch/tbsm, `TSL_Net` with `tsl_inner = "def"`).
//!
//! A sample's steps are vectors z_0 .. z_T of m numbers, outputs of a ReLU; the last is that of the item in question.
//! With a matrix A, a multilayer perceptron of T inputs and T outputs, and σ the logistic function:
//!
//! | what                                | is                                          | its gradient                        |
//! |-------------------------------------|---------------------------------------------|-------------------------------------|
//! | steps on the sphere                 | v_t = z_t / max(‖z_t‖, 10⁻¹²); 0 where the step is not there | dz_t = (dv_t - v_t (v_t · dv_t)) / ‖z_t‖ |
//! | the last one, in the inner product  | u = A v_T, x = Aᵀ u                         | du = A dx, dA = du v_Tᵀ + u dxᵀ, dv_T = Aᵀ du + dw |
//! | how like each step is to it         | a_t = v_t · x for t < T                     | dx = Σ da_t v_t                     |
//! | how much each step counts           | y = σ(MLP(a))                               | dMLP_t = (dc · v_t) y_t (1 - y_t)   |
//! | the series                          | c = Σ y_t v_t                               | dv_t = y_t dc + da_t x              |
//! | what leaves                         | [c, v_T]                                    | [dc, dw]                            |
//!
//! Of a sample, vectors are kept with a lane for each step, so that sums over their numbers go from number to number,
//! each lane on its own, and sums over steps go from step to step in lanes of numbers: in both the order is that of the
//! scalar definition, however wide vectors are.

mod kernels;

use self::kernels::{BackContext, BackLike, BackNormalise, Context, Like, Normalise};
use super::flow::{Backward, Flow};
use super::{InputGradient, Linear, Mlp};
use crate::base::Result;
use crate::machine::team::Team;
use crate::math::brgemm::{Panels, Row};
use crate::math::{Part, STEPS as LANES};
use crate::memory::{Buffer, Supply};
use crate::optim::ParamState;
use crate::sync::Grid;

/// Shorter vectors than this are divided by it, as PyTorch's `normalize` does.
const SHORTEST: f32 = 1e-12;

/// Attention with what a part of a minibatch leaves in it.
#[derive(Debug)]
pub struct Attention {
    sizes: Sizes,
    /// A.
    matrix: [Linear; 1],
    mlp: Mlp,
    /// v_T, u, x, and the gradients of the three.
    flows: [Flow; 6],
    /// Of both uses of A, what it was multiplied with and the gradient of the result: two rows a sample.
    uses: [Flow; 2],
    /// Of each sample, as [`Sizes`] says.
    kept: Buffer<f32>,
}

/// What is kept of a sample: v, a row for each number with a lane for each step; 1 / ‖z_t‖, or 0 where a step is not
/// there; y_t.
#[derive(Debug, Clone, Copy)]
struct Sizes {
    /// T + 1.
    steps: usize,
    /// m.
    numbers: usize,
}

impl Sizes {
    /// Lanes for steps.
    const fn lanes(self) -> usize {
        self.steps.next_multiple_of(LANES)
    }

    /// Rows of v.
    const fn rows(self) -> usize {
        self.numbers.next_multiple_of(LANES)
    }

    const fn kept(self) -> usize {
        (self.rows() + 2) * self.lanes()
    }

    /// v, the scales and the weights of a sample.
    fn split(self, kept: &[f32]) -> [&[f32]; 3] {
        let (v, rest) = kept.split_at(self.rows() * self.lanes());
        let (scale, y) = rest.split_at(self.lanes());
        [v, scale, y]
    }
}

impl Attention {
    /// Of series of so many steps, the one in question among them, each a vector of so many `numbers`; the layers over
    /// the steps have these `hidden` outputs before those of the last. All weights 0, with room for parts of `samples`.
    ///
    /// # Errors
    /// When the supply is exhausted.
    ///
    /// # Panics
    /// When layers are kept in halves.
    pub fn new(
        [steps, numbers]: [usize; 2],
        hidden: &[usize],
        samples: usize,
        kept: ParamState,
        supply: &mut Supply<'_>,
    ) -> Result<Self> {
        assert!(!kept.precision.is_split(), "attention is in 32-bit floats");
        let (sizes, history) = (Sizes { steps, numbers }, steps - 1);
        let mlp = [&[history], hidden, &[history]].concat();
        let matrix = [Linear::without_biases(numbers, numbers, kept, supply)?];
        let mut flow = |name: &str, rows: usize| Flow::supplied(name, rows, numbers, false, supply);
        let learning = if kept.optimizer.moves() { samples } else { 0 };
        let flows = [
            flow("last steps", samples)?,
            flow("last steps through the matrix", samples)?,
            flow("last steps in the inner product", samples)?,
            flow("gradient of last steps", learning)?,
            flow("gradient of last steps through the matrix", learning)?,
            flow("gradient of last steps in the inner product", learning)?,
        ];
        let uses = [flow("inputs of the matrix", 2 * learning)?, flow("gradients of its outputs", 2 * learning)?];
        Ok(Self {
            sizes,
            matrix,
            mlp: Mlp::new(&mlp, samples, InputGradient::Needed, kept, supply)?,
            flows,
            uses,
            kept: supply.buffer("steps on the sphere", samples * sizes.kept())?,
        })
    }

    /// A, and the layers over the steps.
    #[must_use]
    pub fn chains(&self) -> [&[Linear]; 2] {
        [&self.matrix, self.mlp.layers()]
    }

    /// As [`Attention::chains`], to be changed.
    pub fn chains_mut(&mut self) -> [&mut [Linear]; 2] {
        [&mut self.matrix, self.mlp.layers_mut()]
    }

    /// Writes the context and the last step of samples to the rows of `out`, samples x 2m; their steps are `z`, those
    /// of each one behind the other; `there` says which are, 1 or 0.
    ///
    /// # Panics
    /// When `z` has other columns or `there` too few elements.
    pub fn forward(&mut self, team: &Team, samples: usize, z: &Panels<f32>, there: &[f32], out: &mut Panels<f32>) {
        let Self { sizes, matrix: [matrix], mlp, flows: [w, u, x, ..], kept, .. } = self;
        let (sizes, isa) = (*sizes, team.isa());
        assert!(z.columns() == sizes.numbers && z.rows() >= samples * sizes.steps, "{z:?} are steps");
        let parts = (state(team, samples, sizes, kept), rows_of(team, samples, w.whole_mut()));
        team.share(parts, |(kept, w)| isa.run(Normalise { sizes, z, there, kept, w }));
        matrix.forward(team, samples, w, u, false);
        matrix.backward_data(team, samples, u, x, Backward::Keep);
        let (x, state_of) = (x.whole(), &kept[..]);
        team.share(rows_of(team, samples, mlp.input_mut()), |a| isa.run(Like { sizes, kept: state_of, x, a }));
        mlp.forward(team, samples, false);
        let (weights, w) = (mlp.output(), w.whole());
        let parts = (state(team, samples, sizes, kept), rows_of(team, samples, out));
        team.share(parts, |(kept, out)| isa.run(Context { sizes, z, weights, w, kept, out }));
    }

    /// Back from the gradient of what left, of a part, that of the last forward pass, to that of its steps before their
    /// ReLU; `z` are the same. `done` gets each layer, as [`Mlp::backward`] has it, with its number of those in
    /// [`Attention::chains`].
    pub fn backward(
        &mut self,
        team: &Team,
        part: &Part<'_>,
        z: &Panels<f32>,
        ends: &Panels<f32>,
        to: &mut Panels<f32>,
        mut done: impl FnMut(usize, &mut Linear),
    ) {
        let Self { sizes, matrix: [matrix], mlp, flows: [w, u, x, dw, du, dx], uses, kept } = self;
        let (sizes, samples, isa, kept) = (*sizes, part.len(), team.isa(), &kept[..]);
        let dweights = rows_of(team, samples, mlp.output_and_gradient().1);
        team.share(dweights, |to| isa.run(BackContext { sizes, kept, ends, to }));
        mlp.backward(team, part, |index, layer| done(1 + index, layer));
        let da = mlp.input_gradient();
        team.share(rows_of(team, samples, dx.whole_mut()), |to| isa.run(BackLike { sizes, kept, z, da, to }));
        matrix.forward(team, samples, dx, du, false);
        matrix.backward_data(team, samples, du, dw, Backward::Keep);
        let [inputs, outputs] = uses;
        pair(team, samples, [w.whole(), dx.whole()], inputs.whole_mut());
        pair(team, samples, [du.whole(), u.whole()], outputs.whole_mut());
        matrix.backward_weights(team, &part.with_rows(2), [inputs, outputs], None);
        if part.is_last {
            done(0, matrix);
        }
        let (x, dw) = (x.whole(), dw.whole());
        let grid = to.grid(samples * sizes.steps, team.pieces(), sizes.steps);
        team.share(grid, |to| isa.run(BackNormalise { sizes, kept, ends, dw, x, da, to }));
    }
}

/// Rows of a matrix, one a sample, in pieces.
fn rows_of<'a>(team: &Team, samples: usize, panels: &'a mut Panels<f32>) -> Grid<'a, Row<f32>> {
    panels.grid(samples, team.pieces(), 1)
}

/// What is kept of samples, in the same pieces.
fn state<'a>(team: &Team, samples: usize, sizes: Sizes, kept: &'a mut [f32]) -> Grid<'a, f32> {
    let whole = samples * sizes.kept();
    Grid::new(kept, [1, whole, whole], [1, team.pieces()], sizes.kept())
}

/// Puts rows of two matrices in turn.
fn pair(team: &Team, samples: usize, from: [&Panels<f32>; 2], to: &mut Panels<f32>) {
    team.share(to.grid(2 * samples, team.pieces(), 2), |mut to| {
        let rows = to.rows();
        for panel in to.panels() {
            for (row, to) in rows.clone().zip(to.panel(panel)) {
                *to = from[row % 2].panel(panel)[row / 2];
            }
        }
    });
}
