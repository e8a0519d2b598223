//! A block as it runs: its operation and its chain with what a part of a minibatch leaves in them.

use super::planned::{Block, InputRows, Op, Origin, readings};
use crate::base::Result;
use crate::base::config::Triangle;
use crate::layer::{
    Activation, Attention, Concat, Cross, Dot, Features, FeaturesMut, Gather, InputGradient, Linear, Mlp, Numbers,
    Reading, spread_rows, sum_rows,
};
use crate::machine::team::Team;
use crate::math::brgemm::Panels;
use crate::math::{Part, StridedRows, StridedRowsMut};
use crate::memory::Supply;
use crate::model::init;
use crate::model::names::Project;
use crate::model::network::Announce;
use crate::model::stage::Stage;
use crate::optim::ParamState;

/// What every block of a network is built with.
#[derive(Debug, Clone, Copy)]
pub(super) struct Inner {
    /// Samples of the largest part of a minibatch.
    pub(super) samples: usize,
    pub(super) steps: usize,
    pub(super) threads: usize,
    pub(super) kept: ParamState,
}

/// A block.
#[derive(Debug)]
pub(super) struct Runner {
    op: Running,
    /// The block whose output is read in place.
    x: Option<usize>,
    /// Stand where x and its gradient would, if there is none.
    nothing: [Panels<f32>; 2],
    gather: Option<Gather>,
    /// Where each gathered vector comes from.
    from: Vec<Origin>,
    chain: Mlp,
    relu: bool,
    /// Rows of a sample.
    times: usize,
    stages: [Stage; 2],
    /// The number of its first layer.
    first: usize,
    /// What others' copies of its output give back, and its numbers; nothing where one reads it in place, or nobody
    /// wants a gradient.
    readings: Vec<Reading>,
}

#[derive(Debug)]
enum Running {
    Dense,
    Dot(Dot),
    Concat(Concat),
    Cross(Box<Cross>),
    Sum { terms: usize, width: usize },
    Each(Activation),
    Attention(Box<Attention>),
}

impl Runner {
    /// Block number `at` of these, whose first layer has the number `first`.
    pub(super) fn new(
        blocks: &[Block],
        at: usize,
        first: usize,
        inner: Inner,
        supply: &mut Supply<'_>,
    ) -> Result<Self> {
        let (block, Inner { samples, steps, threads, kept }) = (&blocks[at], inner);
        let times = if block.each_step { steps } else { 1 };
        let rows = samples * times;
        let beside: usize = match &block.rows {
            InputRows::Nothing => 0,
            InputRows::Gathered(pieces) => pieces.iter().map(|piece| piece.width).sum(),
            InputRows::Vectors => block.inputs - block.x_width,
        };
        let op = match &block.op {
            Op::Dense => Running::Dense,
            Op::Dot { vectors, dim, itself } => {
                let with_x = block.x.is_some();
                let sizes = [vectors - usize::from(with_x), *dim];
                Running::Dot(Dot::new(with_x, sizes, *itself, threads, supply)?)
            }
            Op::Concat => Running::Concat(Concat::new(block.x_width, beside)),
            Op::Cross { layers, rank } => {
                let concat = Concat::new(block.x_width, beside);
                Running::Cross(Box::new(Cross::new(concat, [*layers, *rank], rows, kept, supply)?))
            }
            Op::Sum(terms) => Running::Sum { terms: *terms, width: block.inputs },
            Op::Each(function) => Running::Each(*function),
            Op::Attention(hidden) => {
                let attention = Attention::new([steps, block.x_width], hidden, samples, kept, supply)?;
                Running::Attention(Box::new(attention))
            }
        };
        let gather = match &block.rows {
            InputRows::Gathered(pieces) => {
                let widths = pieces.iter().map(|piece| piece.width).collect();
                Some(Gather::new(widths, rows, supply)?)
            }
            InputRows::Nothing | InputRows::Vectors => None,
        };
        // Of the dense features themselves nobody needs a gradient, but who reads them in place writes one.
        let is_data = block.op == Op::Dense;
        let ends = if is_data && !block.layers.is_empty() { InputGradient::Unneeded } else { InputGradient::Needed };
        let is_read = !(block.in_place || is_data && block.layers.is_empty());
        Ok(Self {
            op,
            x: block.x,
            nothing: [(); 2].map(|()| Panels::zeroed(rows, 0)),
            gather,
            from: block.pieces().iter().map(|piece| piece.from).collect(),
            chain: Mlp::new(&block.widths(), rows, ends, kept, supply)?,
            relu: block.relu,
            times,
            stages: block.stages,
            first,
            readings: if is_read { readings(blocks, Some(at)) } else { Vec::new() },
        })
    }

    /// Draws its weights; `crosses` counts cross networks.
    pub(super) fn initialise(&mut self, project: Project, planned: &Block, crosses: &mut u32, seed: u64) {
        match &mut self.op {
            Running::Cross(cross) => {
                init::cross(cross.layers_mut(), *crosses, seed);
                *crosses += 1;
            }
            Running::Attention(attention) => init::attention(project, attention.chains_mut(), seed),
            _ => {}
        }
        for (layer, planned) in self.chain.layers_mut().iter_mut().zip(&planned.layers) {
            init::linear(project, layer, [planned.number, planned.index[0]], seed);
        }
    }

    fn of_op(&self) -> [&[Linear]; 2] {
        match &self.op {
            Running::Cross(cross) => [cross.layers(), &[]],
            Running::Attention(attention) => attention.chains(),
            _ => [&[], &[]],
        }
    }

    /// How many layers it has.
    pub(super) fn layers(&self) -> usize {
        self.of_op().iter().map(|layers| layers.len()).sum::<usize>() + self.chain.layers().len()
    }

    /// Gives its layers to `each`, in their order.
    pub(super) fn each_layer<'a>(&'a self, each: &mut dyn FnMut(&'a Linear)) {
        let [a, b] = self.of_op();
        a.iter().chain(b).chain(self.chain.layers()).for_each(each);
    }

    /// As [`Runner::each_layer`], to be changed.
    pub(super) fn each_layer_mut<'a>(&'a mut self, each: &mut dyn FnMut(&'a mut Linear)) {
        let [a, b] = match &mut self.op {
            Running::Cross(cross) => [cross.layers_mut(), &mut []],
            Running::Attention(attention) => attention.chains_mut(),
            _ => [&mut [][..], &mut []],
        };
        a.iter_mut().chain(b).chain(self.chain.layers_mut()).for_each(each);
    }

    /// The number of the layer that reads products, and where in its input the inputs are that a state dict has in
    /// their order, if not in theirs.
    pub(super) fn named_inputs(&self, triangle: Triangle) -> Option<(usize, Vec<usize>)> {
        match &self.op {
            Running::Dot(dot) if triangle == Triangle::Upper => Some((self.first, dot.upper_triangle())),
            _ => None,
        }
    }

    /// Where the dense features come in, if they do.
    pub(super) fn input_mut(&mut self) -> Option<&mut Panels<f32>> {
        matches!(self.op, Running::Dense).then(|| self.chain.input_mut())
    }

    /// What the chain gives.
    pub(super) fn output(&self) -> &Panels<f32> {
        self.chain.output()
    }

    /// The gradient of [`Runner::output`], before its ReLU, to be written.
    pub(super) fn gradient_mut(&mut self) -> &mut Panels<f32> {
        self.chain.output_and_gradient().1
    }

    /// The block's copies, whose gradient takes their place on the way back.
    pub(super) fn copies(&self) -> StridedRows<'_> {
        self.gather.as_ref().expect("who is read of has copies").rows()
    }

    /// What of the block is in a stage, forward: the blocks before it have been run. `vectors` are those of samples;
    /// `there` says which steps are.
    pub(super) fn forward(
        &mut self,
        team: &Team,
        (stage, samples): (Stage, usize),
        before: &[Self],
        vectors: StridedRows<'_>,
        there: &[f32],
    ) {
        let Self { op, x, nothing, gather, from, chain, relu, times, stages, .. } = self;
        let (rows, [of_op, of_chain]) = (samples * *times, *stages);
        if of_op == stage {
            if let Some(gather) = gather {
                gather.take(team, rows, |vector| match from[vector] {
                    Origin::Vectors(start) => Numbers::Rows(vectors.columns_from(start)),
                    Origin::Block(block) => Numbers::Panels(before[block].output()),
                });
            }
            let pooled = gather.as_ref().map_or(vectors, Gather::rows);
            let x = x.map_or(&nothing[0], |x| before[x].output());
            let (from, out) = (Features { x, pooled: pooled.data, row: pooled.stride }, chain.input_mut());
            match op {
                Running::Dense => {}
                Running::Dot(dot) => dot.forward(team, rows, from, out),
                Running::Concat(concat) => concat.forward(team, rows, from, out),
                Running::Cross(cross) => cross.forward(team, rows, from, out),
                Running::Sum { terms, width } => {
                    let (terms, width) = (*terms, *width);
                    let term = |term: usize| pooled.columns_from(term * width);
                    sum_rows(team, rows, (terms, &term), None, out);
                }
                Running::Each(function) => function.forward(team, rows, pooled, out),
                Running::Attention(attention) => attention.forward(team, samples, x, there, out),
            }
        }
        if of_chain == stage {
            chain.forward(team, rows, *relu);
        }
    }

    /// As [`Runner::forward`], backward: the blocks after it have been. Who reads the vectors where they are replaces
    /// them by their gradient.
    pub(super) fn backward(
        &mut self,
        team: &Team,
        (stage, part): (Stage, &Part<'_>),
        [before, after]: [&mut [Self]; 2],
        vectors: StridedRowsMut<'_>,
        announce: Announce<'_>,
    ) {
        let (number, before_chain) = (before.len(), self.layers() - self.chain.layers().len());
        let Self { op, x, nothing, gather, chain, relu, times, stages, first, readings, .. } = self;
        let (first, [of_op, of_chain]) = (*first, *stages);
        let part = &part.with_rows(*times);
        let rows = part.len();
        if of_chain == stage {
            if !readings.is_empty() {
                let from = |at: usize| {
                    let reading = readings[at];
                    after[reading.reader - number - 1].copies().columns_from(reading.from)
                };
                let (output, gradient) = chain.output_and_gradient();
                sum_rows(team, rows, (readings.len(), &from), relu.then_some(output), gradient);
            }
            chain.backward(team, part, |index, layer| announce(first + before_chain + index, layer));
        }
        if of_op != stage {
            return;
        }
        let mut pooled = gather.as_mut().map_or(vectors, Gather::rows_mut);
        let [no_x, no_gradient] = nothing;
        let (x, x_gradient) = x.map_or((&*no_x, no_gradient), |x| before[x].chain.output_and_gradient());
        let features = FeaturesMut { x, x_gradient, row: pooled.stride, pooled: pooled.reborrow().data };
        let done = |index, layer: &mut Linear| announce(first + index, layer);
        match op {
            Running::Dense => {}
            Running::Dot(dot) => dot.backward(team, rows, chain.input_gradient(), features),
            Running::Concat(concat) => concat.backward(team, rows, chain.input_gradient(), features),
            Running::Cross(cross) => cross.backward(team, part, chain.input_gradient(), features, done),
            Running::Sum { terms, .. } => spread_rows(team, rows, *terms, chain.input_gradient(), pooled),
            Running::Each(function) => function.backward(team, rows, chain.input_gradient(), pooled),
            Running::Attention(attention) => {
                // A part of steps again: the sums over grains are of samples.
                attention.backward(team, part, x, chain.input_gradient(), features.x_gradient, done);
            }
        }
    }
}
