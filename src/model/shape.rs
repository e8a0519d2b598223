//! A network's sizes without its weights: what its layers are, and what each stage of a step has to do for them. What
//! is planned or predicted, perhaps for a machine that nobody has, knows networks by this alone.

use super::graph::{Block, ChainLayer, InputRows, Op, plan};
use super::stage::{Bound, Stage, Work};
use crate::base::config::ModelConfig;
use crate::math::brgemm::WIDTH;
use crate::optim::ParamState;

/// The sizes of a layer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LayerShape {
    /// Columns of its input.
    pub inputs: usize,
    /// Columns of its output.
    pub outputs: usize,
    /// As many as outputs, or none.
    pub biases: usize,
}

impl LayerShape {
    /// With biases.
    #[must_use]
    pub const fn new(inputs: usize, outputs: usize) -> Self {
        Self { inputs, outputs, biases: outputs }
    }

    /// Weights, biases left out.
    #[must_use]
    pub const fn weights(self) -> usize {
        self.inputs * self.outputs
    }

    /// Weights and biases.
    #[must_use]
    pub const fn parameters(self) -> usize {
        self.weights() + self.biases
    }
}

/// The sizes of a network.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Shape {
    /// Its operations with the layers behind them, in the order in which they are run.
    pub blocks: Vec<Block>,
    /// Steps of a sample: 1 where it is no time series.
    pub steps: usize,
    /// The wide part's layer, over the dense features.
    pub wide: Option<LayerShape>,
    /// Tables of the wide part.
    pub wide_tables: usize,
    /// Elements of a sample's pooled rows, without those of the wide part.
    pub row: usize,
    /// Those that make narrow tables' vectors as wide as all.
    pub projections: Vec<LayerShape>,
    /// The tables of these.
    pub projected: Vec<usize>,
    /// Elements of a sample's vectors, where they are made of its pooled rows before they meet; else 0.
    pub made: usize,
}

/// What a layer is, and so what it is called.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role<'a> {
    /// V and W of cross layers in turn, by their number, of the description's layer of this name.
    Cross(&'a str, usize),
    /// Of attention by that name, the matrix and then the layers over the steps, by their number.
    Attention(&'a str, usize),
    /// One of a chain.
    Chain(&'a ChainLayer),
    /// The wide part's.
    Wide,
    /// The matrix of a table.
    Projection(usize),
}

/// A layer of a network.
#[derive(Debug, Clone, Copy)]
pub struct Layer<'a> {
    /// What it is.
    pub role: Role<'a>,
    /// Its sizes.
    pub shape: LayerShape,
    /// How often a sample goes through it.
    pub times: usize,
    /// The stage of the forward pass in which it does.
    pub stage: Stage,
}

impl Shape {
    /// Of a model with these tables, those of a wide part among them, of each of which so many vectors of a sample
    /// reach it, and which have so many columns.
    ///
    /// # Panics
    /// When the model's layers make no network.
    #[must_use]
    pub fn of(model: &ModelConfig, positions: &[usize], dims: &[usize]) -> Self {
        let deep = model.deep_tables(positions.len());
        let row = positions[..deep].iter().zip(dims).map(|(positions, dim)| positions * dim).sum();
        let (composed, mixed) = (model.qr_collisions > 0, model.md_temperature > 0.0);
        // At each step of a time series there is a vector of each table.
        let columns: Vec<Vec<usize>> = match model.ts_length {
            0 if composed || mixed => vec![vec![model.dim]; model.vectors(positions.len())],
            0 => positions[..deep].iter().zip(dims).map(|(positions, dim)| vec![*dim; *positions]).collect(),
            _ => vec![vec![model.dim]; deep],
        };
        let narrow = dims[..deep].iter().enumerate().filter(|(_, dim)| mixed && **dim != model.dim);
        let bare = |inputs| LayerShape { biases: 0, ..LayerShape::new(inputs, model.dim) };
        let (projected, projections): (Vec<_>, Vec<_>) = narrow.map(|(table, dim)| (table, bare(*dim))).unzip();
        let width: usize = columns.iter().flatten().sum();
        let made = if composed || !projections.is_empty() { width } else { 0 };
        Self {
            blocks: plan(model, &columns),
            steps: model.steps(),
            wide: (model.wide && model.dense() > 0).then(|| LayerShape::new(model.dense(), 1)),
            wide_tables: positions.len() - deep,
            row,
            projections,
            projected,
            made,
        }
    }

    /// All layers, in the order in which they are numbered.
    pub fn layers(&self) -> impl Iterator<Item = Layer<'_>> {
        let of_blocks = self.blocks.iter().flat_map(|block| self.of_op(block).into_iter().chain(self.of_chain(block)));
        let wide = self.wide.iter().map(|shape| Layer { role: Role::Wide, shape: *shape, times: 1, stage: Stage::Top });
        let projections = self.projected.iter().zip(&self.projections);
        let projections = projections.map(|(table, shape)| Layer {
            role: Role::Projection(*table),
            shape: *shape,
            times: 1,
            stage: Stage::Interact,
        });
        of_blocks.chain(wide).chain(projections)
    }

    /// How often a sample goes through a block.
    const fn times(&self, block: &Block) -> usize {
        if block.each_step { self.steps } else { 1 }
    }

    /// The layers of a block's operation.
    fn of_op<'a>(&self, block: &'a Block) -> Vec<Layer<'a>> {
        let bare = |inputs, outputs| LayerShape { biases: 0, ..LayerShape::new(inputs, outputs) };
        let (times, name, stage) = (self.times(block), &*block.name, block.stages[0]);
        match &block.op {
            Op::Cross { layers, rank } => {
                let pair = [bare(block.inputs, *rank), LayerShape::new(*rank, block.inputs)];
                let of =
                    (0..2 * layers).map(|at| Layer { role: Role::Cross(name, at), shape: pair[at % 2], times, stage });
                of.collect()
            }
            Op::Attention(hidden) => {
                let widths = [&[self.steps - 1], &hidden[..], &[self.steps - 1]].concat();
                let mlp = widths.windows(2).map(|pair| (LayerShape::new(pair[0], pair[1]), 1));
                // The last step goes through the matrix twice.
                let all = std::iter::once((bare(block.x_width, block.x_width), 2)).chain(mlp);
                let of = |(at, (shape, times))| Layer { role: Role::Attention(name, at), shape, times, stage };
                all.enumerate().map(of).collect()
            }
            _ => Vec::new(),
        }
    }

    /// The layers of a block's chain.
    fn of_chain<'a>(&self, block: &'a Block) -> impl Iterator<Item = Layer<'a>> + use<'a> {
        let (times, widths, stage) = (self.times(block), block.widths(), block.stages[1]);
        let sizes = block.layers.iter().zip(widths);
        sizes.map(move |(layer, inputs)| Layer {
            role: Role::Chain(layer),
            shape: LayerShape::new(inputs, layer.outputs),
            times,
            stage,
        })
    }

    /// Multiply-adds of layer number `index` for a sample, forward: its weights, as often as the sample goes through
    /// it.
    ///
    /// # Panics
    /// When there is no such layer.
    #[must_use]
    pub fn multiplied(&self, index: usize) -> usize {
        multiplied(self.layers().skip(index).take(1))
    }

    /// Elements of a sample's features: all its pooled rows.
    #[must_use]
    pub const fn features(&self) -> usize {
        self.row + self.wide_tables
    }

    /// Weights and biases.
    #[must_use]
    pub fn parameters(&self) -> usize {
        self.layers().map(|layer| layer.shape.parameters()).sum()
    }

    /// Bytes that a sample leaves between the layers, of activations and their gradients, while its part of a minibatch
    /// is worked on, and the rows in which it does.
    #[must_use]
    pub fn part_sizes(&self) -> [usize; 2] {
        // A row of a matrix takes whole panels, however narrow it is.
        let kept = |width: usize| width.next_multiple_of(WIDTH);
        let ends = |widths: &[usize]| widths.iter().map(|width| kept(*width)).sum::<usize>();
        let of_block = |block: &Block| {
            let of_op = match &block.op {
                // Of a cross layer there are the outputs of V and of W, and its input, which is as wide as its biases;
                // of all of them together three gradients as wide as that, that of W's output, and that of V's.
                Op::Cross { layers, rank } => layers * (rank + 2 * block.inputs) + 4 * block.inputs + rank,
                Op::Attention(hidden) => {
                    let mlp = [&[self.steps - 1], &hidden[..], &[self.steps - 1]].concat();
                    // What each step becomes, and its scale and its weight.
                    2 * (ends(&mlp) + 5 * kept(block.x_width)) + self.steps * (block.x_width + 2)
                }
                _ => 0,
            };
            let copies: usize = block.pieces().iter().map(|piece| piece.width).sum();
            self.times(block) * (2 * ends(&block.widths()) + copies + of_op)
        };
        let mut all: usize = self.blocks.iter().map(of_block).sum();
        all += 2 * self.wide.map_or(0, |layer| ends(&[layer.inputs, layer.outputs]));
        // Each matrix's ends, and the vectors of all, whose gradient takes their place.
        let narrow = self.projections.iter().map(|layer| ends(&[layer.inputs, layer.outputs]));
        all += 2 * narrow.sum::<usize>() + self.made;
        if self.steps > 1 {
            // Vectors of each step as the interaction takes them.
            all += self.steps * self.row.div_ceil(self.steps);
        }
        [all * size_of::<f32>(), self.steps]
    }

    /// Bytes that a sample of a whole slice of a minibatch keeps: pooled rows, its probability and loss.
    #[must_use]
    pub const fn sample_bytes(&self) -> usize {
        self.features() * size_of::<f32>() + size_of::<f32>() + size_of::<f64>()
    }

    /// Operations of a sample, forward and backward to inputs and weights, of layers and products; a multiply-add
    /// counts as two.
    #[must_use]
    pub fn operations(&self) -> usize {
        let products: usize = self.blocks.iter().map(|block| self.products(block)).sum();
        6 * (multiplied(self.layers()) + products)
    }

    /// Multiply-adds of a sample in a block's operation that have no weights: products of vectors, and with steps.
    fn products(&self, block: &Block) -> usize {
        match &block.op {
            Op::Dot { dim, .. } => self.times(block) * (block.inputs - block.x_width) * dim,
            // Each step meets the last one, and is added up with others.
            Op::Attention(_) => 2 * self.steps * block.x_width,
            _ => 0,
        }
    }

    /// The work of a block's operation, forward, of a sample, which backward is twice as much.
    fn work_of(&self, block: &Block) -> Work {
        let (times, elements) = (self.times(block), size_of::<f32>() as f64);
        let weights = multiplied(self.of_op(block).into_iter()) as f64;
        let read = match block.rows {
            // Once, also where they are the same at each step.
            InputRows::Vectors if self.made == 0 => self.row,
            InputRows::Vectors => times * self.made,
            InputRows::Nothing => 0,
            InputRows::Gathered(ref pieces) => 3 * times * pieces.iter().map(|piece| piece.width).sum::<usize>(),
        };
        let moved = (times * (block.x_width + block.inputs) + read) as f64 * elements;
        match &block.op {
            // What goes straight into the first layer's passes.
            Op::Dense => Work::NONE,
            // Dot products are too few to hide what is moved; cross layers are not: a factor is multiplied and added to
            // something forward, and backward twice multiplied and twice added.
            Op::Cross { layers, .. } => {
                let factors = (times * layers * block.inputs) as f64;
                Work::arithmetic(2.0 * (weights + factors)).plus(Work::stream(0.0, moved))
            }
            Op::Attention(_) => Work::arithmetic(2.0 * (weights + self.products(block) as f64)),
            Op::Dot { .. } | Op::Concat | Op::Sum(_) | Op::Each(_) => {
                Work::stream(2.0 * self.products(block) as f64, moved)
            }
        }
    }

    /// The work of one of its stages for a minibatch of `samples` samples; none for any other stage.
    #[must_use]
    pub fn work(&self, stage: Stage, samples: usize, kept: ParamState) -> Work {
        let elements = size_of::<f32>() as f64;
        let (forward, backward) = match stage {
            Stage::Bottom | Stage::Interact | Stage::Top => (stage, false),
            Stage::BackBottom => (Stage::Bottom, true),
            Stage::BackInteract => (Stage::Interact, true),
            Stage::BackTop => (Stage::Top, true),
            Stage::Loss => return Work::stream(0.0, samples as f64 * 4.0 * elements),
            Stage::UpdateDense => return self.update(kept),
            _ => return Work::NONE,
        };
        let mut work = match forward {
            Stage::Interact => Work::NONE,
            _ => Work::arithmetic(0.0),
        };
        for block in &self.blocks {
            let ([of_op, of_chain], op) = (block.stages, self.work_of(block));
            if of_chain == forward {
                let weights = multiplied(self.of_chain(block)) as f64;
                // Backward by data and by weights, each as much as forward; nobody needs the dense features' gradient.
                let first = if block.op == Op::Dense { multiplied(self.of_chain(block).take(1)) as f64 } else { 0.0 };
                let operations = if backward { 4.0 * weights - 2.0 * first } else { 2.0 * weights };
                work = work.plus(Work::arithmetic(operations));
            }
            if of_op == forward {
                if op.bound == Bound::Arithmetic {
                    work.bound = Bound::Arithmetic;
                }
                work = work.plus(op);
                if backward {
                    // Both read again, and the gradient of what was read written: all but the result twice.
                    let result = (self.times(block) * block.inputs) as f64 * elements;
                    work = work.plus(op);
                    work.bytes -= if op.bytes > 0.0 { result } else { 0.0 };
                }
            }
        }
        let wide = self.wide_tables as f64;
        match stage {
            Stage::Interact | Stage::BackInteract if !self.projections.is_empty() => {
                let passes = if backward { 4.0 } else { 2.0 };
                let weights: usize = self.projections.iter().map(|layer| layer.weights()).sum();
                work = work.plus(Work::stream(passes * weights as f64, 0.0));
            }
            // The wide part's layer is too small to tell; its pooled rows are read forward, and written backward.
            Stage::Top => work = work.plus(Work::stream(wide, wide * elements)),
            Stage::BackTop => work = work.plus(Work::stream(0.0, wide * elements)),
            _ => {}
        }
        work.times(samples as f64)
    }

    fn update(&self, kept: ParamState) -> Work {
        let layers = self.layers().filter(|layer| layer.role != Role::Wide);
        let parameters = layers.map(|layer| layer.shape.weights()).sum::<usize>() as f64;
        // Where norms are needed, directions are written, and read in a second pass with the weights.
        let again = if kept.optimizer.needs_norms() { 2 * size_of::<f32>() + kept.precision.bytes() } else { 0 };
        let bytes = parameters * (2 * kept.bytes() + size_of::<f32>() + again) as f64;
        Work::stream(2.0 * parameters, bytes)
    }
}

fn multiplied<'a>(layers: impl Iterator<Item = Layer<'a>>) -> usize {
    layers.map(|layer| layer.times * layer.shape.weights()).sum()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::config::{Command, Layers};

    fn shape_of(preset: &str) -> Shape {
        let mut layers = Layers::default();
        layers.preset(preset).unwrap();
        let model = layers.finish(Command::Plan).unwrap().model;
        let columns = model.rows.len();
        let tables = if model.wide { 2 * columns + model.wide_crosses.len() } else { columns };
        Shape::of(&model, &vec![1; tables], &vec![model.dim; tables])
    }

    #[test]
    fn parameters_are_those_of_the_papers_table_2() {
        // SC20, Table II: bytes of the all-reduce in MB.
        for (name, mib) in [("small", 9.53), ("large", 1046.8), ("mlperf", 9.04)] {
            let found = shape_of(name).parameters() as f64 * 4.0 / f64::from(1 << 20);
            assert!((found / mib - 1.0).abs() < 1e-3, "{name}: {found}");
        }
    }

    #[test]
    fn parameters_of_dcnv2_are_those_of_mlperf() {
        let shape = shape_of("dcnv2");
        // MLPs of 13-512-256-128 and 3456-1024-1024-512-256-1, and three layers of V (512 x 3456), W (3456 x 512) and
        // b.
        let mlps = 171_392 + 5_245_953;
        assert_eq!(shape.parameters(), mlps + 3 * (2 * 512 * 3456 + 3456));
        assert_eq!(shape.operations(), 6 * shape.layers().map(|layer| layer.shape.weights()).sum::<usize>());
        // Forward, what the layers multiply and the element-wise rest, a multiply-add for each number of x_0 and layer.
        let work = shape.work(Stage::Interact, 10, ParamState::default());
        assert_eq!(work.operations, 20.0 * f64::from(3 * (2 * 512 * 3456 + 3456)));
        assert_eq!(work.bytes, f64::from(10 * 4 * (3456 + 3456)));
        assert_eq!(shape.work(Stage::BackInteract, 10, ParamState::default()).operations, 2.0 * work.operations);
    }
}
