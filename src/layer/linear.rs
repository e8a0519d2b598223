//! A fully connected layer: Y = act(X W + b), with its two backward passes and its optimizer's step.
//!
//! Weights lie input-major in panels of 64 outputs, activations in panels of 64 features, so all three passes are
//! batch-reduce GEMMs that read whole cache lines (`math/brgemm`). Passes are named as in SC20, Section III-B.
//!
//! A layer of whole weights computes in 32-bit floats. One of split weights multiplies their upper halves with bfloat16
//! activations and sums in 32 bits (SC20, Section VII); bias and gradients of weights are 32-bit floats in either case.

mod tensors;

pub use tensors::LayerTensor;

use std::ops::Range;

use super::flow::{Backward, Flow, MIXED};
use super::pieces::{Piece, TensorSquares};
use super::weight::Weight;
use crate::base::Result;
use crate::machine::team::Team;
use crate::math::brgemm::{self, After, Cell, Onto, Panels, WIDTH, bf16, bias_gradient};
use crate::math::{Chain, Part, add};
use crate::memory::{Buffer, Supply, recycled};
use crate::optim::{Optimizer, ParamGroup, ParamState, Squares, StepSize};
use crate::sync::{Each, Line};

/// Weights, bias and their gradients.
#[derive(Debug)]
pub struct Linear {
    /// Inputs x outputs.
    weight: Weight,
    /// One an output, or none.
    bias: Buffer<f32>,
    gradient: Tensors,
    /// Where minibatches are summed by grains, or in several chains: sums that are not added up yet.
    partial: Vec<Tensors>,
    optimizer: Optimizer,
    group: ParamGroup,
    /// What the optimizer keeps of each weight and bias.
    moments: Vec<Tensors>,
    /// Squares of weights and directions, and of biases and theirs, row by row of their memory; those of gradients
    /// where these are clipped. None where no norm is needed.
    squares: [Buffer<Squares>; 2],
    /// Memory that steps use again.
    pieces: Vec<[Piece<'static>; 2]>,
}

/// What an update works on.
pub(super) struct UpdateOperands<'a> {
    pub weight: &'a mut Weight,
    pub bias: &'a mut [f32],
    pub gradient: &'a mut Tensors,
    pub optimizer: Optimizer,
    pub moments: &'a mut [Tensors],
    pub squares: [&'a mut [Squares]; 2],
}

/// A number for each weight and bias.
#[derive(Debug)]
pub(super) struct Tensors {
    pub weight: Panels<f32>,
    pub bias: Buffer<f32>,
    biases: usize,
}

impl Tensors {
    fn new(name: &str, [inputs, outputs, biases]: [usize; 3], supply: &mut Supply<'_>) -> Result<Self> {
        Ok(Self {
            weight: Panels::supplied(&format!("weight {name}"), inputs, outputs, supply)?,
            bias: supply.buffer(&format!("bias {name}"), biases)?,
            biases,
        })
    }

    /// The sizes alone, where there are no gradients.
    fn bare([inputs, outputs, biases]: [usize; 3]) -> Self {
        Self { weight: Panels::bare(inputs, outputs), bias: Buffer::default(), biases }
    }

    /// The lengths of [`Tensors::parts_mut`], which are known before there is memory.
    const fn sizes(&self) -> [usize; 2] {
        [self.weight.panels() * self.weight.stride() * WIDTH, self.biases]
    }

    fn parts_mut(&mut self) -> [&mut [f32]; 2] {
        [self.weight.cells_mut().as_flattened_mut(), &mut self.bias]
    }

    /// The sums over some samples; `pairs` is room for both operands in pairs of samples.
    fn sum(
        &mut self,
        team: &Team,
        samples: Range<usize>,
        [x, dy]: [&Flow; 2],
        pairs: Option<&mut [Panels<u32>; 2]>,
        onto: Onto,
    ) {
        if samples.is_empty() {
            if onto == Onto::Zero {
                self.parts_mut().into_iter().for_each(|part| part.fill(0.0));
            }
            return;
        }
        match (x, dy, pairs) {
            (Flow::Whole(x), Flow::Whole(dy), _) => {
                brgemm::backward_weights(team, samples.clone(), x, dy, onto, &mut self.weight);
                self.sum_biases(team, samples, dy, onto);
            }
            (Flow::Half(x), Flow::Half(dy), Some(pairs)) => {
                bf16::backward_weights(team, samples.clone(), x, dy, pairs, onto, &mut self.weight);
                self.sum_biases(team, samples, dy, onto);
            }
            _ => unreachable!("{MIXED}"),
        }
    }

    fn add(&mut self, team: &Team, other: &mut Self) {
        self.parts_mut().into_iter().zip(other.parts_mut()).for_each(|(to, from)| add(team, to, from));
    }

    fn sum_biases<C: Cell>(&mut self, team: &Team, samples: Range<usize>, dy: &Panels<C>, onto: Onto) {
        if self.biases > 0 {
            bias_gradient(team, samples, dy, onto, &mut self.bias);
        }
    }
}

/// What follows the sums of a forward pass.
const fn after<'a, C>(relu: bool) -> After<'a, C> {
    if relu { After::Relu } else { After::Keep }
}

impl Linear {
    /// A layer whose weights are 0, complete once [`Linear::reset_optimizer_state`] has run.
    ///
    /// # Errors
    /// When the supply is exhausted.
    pub fn new(inputs: usize, outputs: usize, kept: ParamState, supply: &mut Supply<'_>) -> Result<Self> {
        Self::build([inputs, outputs, outputs], kept, supply)
    }

    /// The same without biases: Y = act(X W).
    ///
    /// # Errors
    /// As [`Linear::new`].
    pub fn without_biases(inputs: usize, outputs: usize, kept: ParamState, supply: &mut Supply<'_>) -> Result<Self> {
        Self::build([inputs, outputs, 0], kept, supply)
    }

    fn build(sizes: [usize; 3], kept: ParamState, supply: &mut Supply<'_>) -> Result<Self> {
        let [inputs, outputs, biases] = sizes;
        let moments = kept.optimizer.moments().iter().map(|name| Tensors::new(name, sizes, supply));
        let moments = moments.collect::<Result<Vec<_>>>()?;
        let mut layer = Self {
            moments,
            squares: Default::default(),
            weight: Weight::new(inputs, outputs, kept.precision, supply)?,
            bias: supply.buffer("bias", biases)?,
            gradient: match kept.optimizer.moves() {
                true => Tensors::new("gradient", sizes, supply)?,
                false => Tensors::bare(sizes),
            },
            partial: Vec::new(),
            optimizer: kept.optimizer,
            group: ParamGroup::default(),
            pieces: Vec::new(),
        };
        if kept.optimizer.needs_norms() {
            layer.room_for_squares(supply)?;
        }
        Ok(layer)
    }

    /// Takes room for the squares of which the norm of gradients is made, unless the optimizer has some for its norms.
    ///
    /// # Errors
    /// When the supply is exhausted.
    pub fn supply_squares(&mut self, supply: &mut Supply<'_>) -> Result<()> {
        if self.optimizer.needs_norms() { Ok(()) } else { self.room_for_squares(supply) }
    }

    fn room_for_squares(&mut self, supply: &mut Supply<'_>) -> Result<()> {
        let [weights, biases] = self.gradient_sizes();
        self.squares = [
            supply.buffer("squares of weights", weights.div_ceil(WIDTH))?,
            supply.buffer("squares of biases", biases.div_ceil(Line::FLOATS))?,
        ];
        Ok(())
    }

    /// Takes room for `count` sums over samples ([`Linear::sums_mut`]), instead of one.
    ///
    /// # Errors
    /// When the supply is exhausted.
    pub fn supply_sums(&mut self, count: usize, supply: &mut Supply<'_>) -> Result<()> {
        let sizes = [self.inputs(), self.outputs(), self.biases()];
        let more = (1..count).map(|_| Tensors::new("gradient", sizes, supply));
        self.partial = more.collect::<Result<_>>()?;
        Ok(())
    }

    /// Puts its parameters into another group than the default one.
    pub const fn join(&mut self, group: ParamGroup) {
        self.group = group;
    }

    /// The group of its parameters.
    #[must_use]
    pub const fn group(&self) -> ParamGroup {
        self.group
    }

    /// Sets what the optimizer keeps to what it begins with.
    pub fn reset_optimizer_state(&mut self) {
        let initial = self.optimizer.initial();
        if initial != 0.0 {
            self.moments.iter_mut().take(1).flat_map(Tensors::parts_mut).for_each(|part| part.fill(initial));
        }
    }

    /// Columns of X.
    #[must_use]
    pub const fn inputs(&self) -> usize {
        self.gradient.weight.rows()
    }

    /// Columns of Y.
    #[must_use]
    pub const fn outputs(&self) -> usize {
        self.gradient.weight.columns()
    }

    /// Biases: as many as outputs, or none.
    #[must_use]
    pub const fn biases(&self) -> usize {
        self.gradient.biases
    }

    /// The bias, one element an output, or none, to be overwritten.
    pub fn bias_mut(&mut self) -> &mut [f32] {
        &mut self.bias
    }

    /// A layer without inputs, outputs and memory: what stands in a layer's place while it is away.
    #[must_use]
    pub fn hollow() -> Self {
        Self {
            weight: Weight::Whole(Panels::zeroed(0, 0)),
            bias: Buffer::default(),
            gradient: Tensors { weight: Panels::zeroed(0, 0), bias: Buffer::default(), biases: 0 },
            partial: Vec::new(),
            optimizer: Optimizer::Sgd,
            group: ParamGroup::default(),
            moments: Vec::new(),
            squares: [Buffer::default(), Buffer::default()],
            pieces: Vec::new(),
        }
    }

    /// Weights, biases, the gradients of both, the optimizer and its moments.
    pub(super) fn update_operands(&mut self) -> UpdateOperands<'_> {
        let Self { weight, bias, gradient, optimizer, moments, squares, .. } = self;
        let squares = squares.each_mut().map(|squares| &mut squares[..]);
        UpdateOperands { weight, bias, gradient, optimizer: *optimizer, moments, squares }
    }

    /// The lengths of each of [`Linear::sums_mut`], which are known before there is memory.
    #[must_use]
    pub const fn gradient_sizes(&self) -> [usize; 2] {
        self.gradient.sizes()
    }

    /// The gradients of weights, with the padding of their layout, and bias; then as much of each other sum over
    /// samples that there is room for.
    pub fn sums_mut(&mut self) -> impl Iterator<Item = [&mut [f32]; 2]> {
        std::iter::once(&mut self.gradient).chain(&mut self.partial).map(Tensors::parts_mut)
    }

    /// Y = act(X W + b) for the first `samples` rows.
    ///
    /// # Panics
    /// When a matrix is too small.
    pub(super) fn forward(&self, team: &Team, samples: usize, x: &Flow, y: &mut Flow, relu: bool) {
        match (&self.weight, x, y) {
            (Weight::Whole(w), Flow::Whole(x), Flow::Whole(y)) => {
                brgemm::forward(team, samples, x, w, &self.bias, y, after(relu));
            }
            (weight, Flow::Half(x), Flow::Half(y)) => {
                bf16::forward(team, samples, x, weight.high(), &self.bias, y, after(relu));
            }
            (weight, Flow::Half(x), Flow::Whole(y)) => {
                bf16::forward(team, samples, x, weight.high(), &self.bias, y, after(relu));
            }
            (_, Flow::Whole(_), _) => unreachable!("{MIXED}"),
        }
    }

    /// dX = dY Wᵀ for the first `samples` rows, and what `then` makes of it.
    ///
    /// # Panics
    /// When a matrix is too small.
    pub(super) fn backward_data(&self, team: &Team, samples: usize, dy: &Flow, dx: &mut Flow, then: Backward<'_>) {
        match (&self.weight, dy, dx) {
            (Weight::Whole(w), Flow::Whole(dy), Flow::Whole(dx)) => {
                brgemm::backward_data(team, samples, dy, w, dx, then.whole());
            }
            (weight, Flow::Half(dy), Flow::Whole(dx)) => {
                bf16::backward_data(team, samples, dy, weight.high(), dx, then.whole());
            }
            (weight, Flow::Half(dy), Flow::Half(dx)) => {
                bf16::backward_data(team, samples, dy, weight.high(), dx, then.half());
            }
            (_, Flow::Whole(_), _) => unreachable!("{MIXED}"),
        }
    }

    /// dW = Xᵀ dY and db = the column sums of dY, over the samples of a part, which are the first rows of both; chains
    /// go on from the part before ([`Part::chains`]). `pairs` is room for both operands in pairs of samples, which
    /// passes on bfloat16 need. With leaves, over each leaf alone: they are added up as they say, and what is left
    /// after the last part are [`Linear::sums_mut`].
    ///
    /// # Panics
    /// When a matrix is too small, or there is no room for the sums.
    pub(super) fn backward_weights(
        &mut self,
        team: &Team,
        part: &Part<'_>,
        flows: [&Flow; 2],
        mut pairs: Option<&mut [Panels<u32>; 2]>,
    ) {
        let first = part.samples.start;
        if part.leaves.is_empty() {
            for Chain { rows, number, onto, ends } in part.chains() {
                let sum = if number == 0 { &mut self.gradient } else { &mut self.partial[0] };
                sum.sum(team, rows, flows, pairs.as_deref_mut(), onto);
                if ends && number > 0 {
                    self.gradient.add(team, &mut self.partial[0]);
                }
            }
            return;
        }
        let (before, own) = (&part.leaves[..part.own_leaves.start], &part.leaves[part.own_leaves.clone()]);
        let mut height = before.len() - before.iter().map(|leaf| leaf.merges).sum::<usize>();
        for leaf in own {
            let top = if height == 0 { &mut self.gradient } else { &mut self.partial[height - 1] };
            let rows = (leaf.samples.start - first) * part.rows..(leaf.samples.end - first) * part.rows;
            top.sum(team, rows, flows, pairs.as_deref_mut(), Onto::Zero);
            height += 1;
            for _ in 0..leaf.merges {
                height -= 1;
                let (below, top) = self.partial.split_at_mut(height - 1);
                below.last_mut().unwrap_or(&mut self.gradient).add(team, &mut top[0]);
            }
        }
    }

    /// Moves weights and bias against their gradients.
    pub fn update(&mut self, team: &Team, step_size: StepSize) {
        let (count, isa) = (self.shares(team), team.isa());
        let mut step_sizes = [step_size; 2];
        if let Some(rule) = self.optimizer.direction(step_size) {
            self.share(team, count, |[weights, biases]| {
                weights.direct(isa, rule);
                biases.direct(isa, rule);
            });
            let mut sums = TensorSquares::default();
            self.pieces(1).for_each(|pieces| sums.add(&pieces));
            step_sizes = sums.step_sizes(step_size);
        }
        self.share(team, count, |pieces| {
            pieces.iter_mut().zip(step_sizes).for_each(|(piece, step_size)| piece.update(isa, step_size));
        });
    }

    /// The squares of its gradients.
    ///
    /// # Panics
    /// Without [`Linear::supply_squares`].
    pub fn gradient_squares(&mut self, team: &Team) -> TensorSquares {
        let (count, isa) = (self.shares(team), team.isa());
        self.share(team, count, |pieces| pieces.iter_mut().for_each(|piece| piece.square(isa)));
        let mut sums = TensorSquares::default();
        self.pieces(1).for_each(|pieces| sums.add(&pieces));
        sums
    }

    /// Multiplies its gradients by a factor.
    pub fn scale_gradient(&mut self, team: &Team, factor: f32) {
        let (count, isa) = (self.shares(team), team.isa());
        self.share(team, count, |pieces| pieces.iter_mut().for_each(|piece| piece.scale(isa, factor)));
    }

    /// In how many pieces a team works on it.
    fn shares(&self, team: &Team) -> usize {
        // Fewer elements are done before another thread has begun.
        const FEW: usize = 2048;
        (self.inputs() * self.outputs() / FEW).clamp(1, team.pieces())
    }

    /// Deals `count` pieces to the threads of a team.
    fn share(&mut self, team: &Team, count: usize, work: impl Fn(&mut [Piece<'_>; 2]) + Sync) {
        let mut pieces = recycled(std::mem::take(&mut self.pieces));
        pieces.extend(self.pieces(count));
        team.share(Each::new(&mut pieces), work);
        self.pieces = recycled(pieces);
    }

    /// The optimizer that moves it.
    #[must_use]
    pub const fn optimizer(&self) -> Optimizer {
        self.optimizer
    }
}
