//! A network's sizes without its weights: what its layers are, and what each stage of a step has to do for them. What is
//! planned or predicted, perhaps for a machine that nobody has, knows networks by this alone.

use super::stage::{Stage, Work};
use crate::base::config::{Interaction, ModelConfig};
use crate::math::brgemm::WIDTH;
use crate::optim::Kept;

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

/// The sizes of a network: of a DLRM (`model::Dlrm`), or of a time series of them (`model::Tbsm`).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Shape {
    /// The bottom MLP's layers.
    pub bottom: Vec<LayerShape>,
    /// The interaction's, where it has any: V and W of each cross layer in turn.
    pub cross: Vec<LayerShape>,
    /// The top MLP's.
    pub top: Vec<LayerShape>,
    /// How often a sample goes through all of these: once, or at each step of a time series.
    pub steps: usize,
    /// Those of attention over the steps: the matrix of the inner product, through which the last step goes twice, and the MLP's.
    pub attention: Vec<LayerShape>,
    /// Those from the series' context and its last step to the logit.
    pub head: Vec<LayerShape>,
    /// The wide part's, over the dense features.
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
    /// Multiply-adds of the interaction's dot products, once through.
    pub products: usize,
}

impl Shape {
    /// Of a model with these tables, those of a wide part among them, of each of which so many vectors of a sample reach it, and
    /// which have so many columns.
    #[must_use]
    pub fn of(model: &ModelConfig, positions: &[usize], dims: &[usize]) -> Self {
        let deep = model.deep_tables(positions.len());
        let row = positions[..deep].iter().zip(dims).map(|(positions, dim)| positions * dim).sum();
        // At each step of a time series there is a vector of each table.
        let composed = model.qr_collisions > 0;
        let vectors = match model.ts_length {
            0 if composed => model.vectors(positions.len()),
            0 => positions[..deep].iter().sum(),
            _ => deep,
        };
        let mixed = model.md_temperature > 0.0;
        let narrow = dims[..deep].iter().enumerate().filter(|(_, dim)| mixed && **dim != model.dim);
        let bare = |inputs| LayerShape { biases: 0, ..LayerShape::new(inputs, model.dim) };
        let (projected, projections): (Vec<_>, Vec<_>) = narrow.map(|(table, dim)| (table, bare(*dim))).unzip();
        let width = if mixed || composed || model.ts_length > 0 { vectors * model.dim } else { row };
        let made = if composed || !projections.is_empty() { width } else { 0 };
        Self { row, projected, projections, made, ..Self::dlrm(model, [vectors, width]) }
    }

    /// Of a model in whose interaction so many `vectors` beside the bottom MLP's output meet, which have `row` elements.
    #[must_use]
    pub fn dlrm(model: &ModelConfig, [tables, row]: [usize; 2]) -> Self {
        let pairs_of =
            |widths: &[usize]| widths.windows(2).map(|pair| LayerShape::new(pair[0], pair[1])).collect::<Vec<_>>();
        let between = |first: usize, widths: &[usize], last: &[usize]| pairs_of(&[&[first], widths, last].concat());
        let bottom = pairs_of(model.bottom_widths());
        let x = *model.bottom_widths().last().expect("a bottom MLP has an end");
        let vectors = tables + usize::from(x > 0);
        let pairs = vectors * vectors.saturating_sub(1) / 2 + usize::from(model.interaction_itself) * vectors;
        let (interacted, products) = match model.interaction {
            Interaction::Dot => (x + pairs, pairs * model.dim),
            Interaction::Cat | Interaction::Dcn => (x + row, 0),
        };
        let bare = |inputs, outputs| LayerShape { biases: 0, ..LayerShape::new(inputs, outputs) };
        let cross = match model.interaction {
            Interaction::Dcn => [bare(interacted, model.cross_rank), LayerShape::new(model.cross_rank, interacted)]
                .repeat(model.cross_layers),
            Interaction::Dot | Interaction::Cat => Vec::new(),
        };
        let (wide, wide_tables) = match model.wide {
            true => ((model.dense() > 0).then(|| LayerShape::new(model.dense(), 1)), tables + model.wide_crosses.len()),
            false => (None, 0),
        };
        let (steps, m) = (model.ts_length, model.top.last().copied().unwrap_or(interacted));
        let (attention, head) = match steps {
            0 => (Vec::new(), Vec::new()),
            _ => {
                let mut attention = between(steps, &model.tsl_mlp, &[steps]);
                attention.insert(0, bare(m, m));
                (attention, between(2 * m, &model.arch_mlp, &[]))
            }
        };
        let top = between(interacted, &model.top, &[]);
        let (projections, projected) = (Vec::new(), Vec::new());
        let steps = model.steps();
        let made = 0;
        Self {
            bottom,
            cross,
            top,
            steps,
            attention,
            head,
            wide,
            wide_tables,
            row,
            projections,
            projected,
            made,
            products,
        }
    }

    /// All layers, in the order in which they are numbered.
    pub fn layers(&self) -> impl Iterator<Item = LayerShape> {
        self.chains().into_iter().flatten().copied()
    }

    /// The layers of the bottom MLP, the interaction, the top MLP, attention, what follows it, the wide part, and those that make
    /// vectors wider.
    #[must_use]
    pub fn chains(&self) -> [&[LayerShape]; 7] {
        let Self { bottom, cross, top, attention, head, wide, projections, .. } = self;
        [bottom, cross, top, attention, head, wide.as_slice(), projections]
    }

    /// Multiply-adds of layer number `index` for a sample, forward: its weights, as often as the sample goes through it.
    ///
    /// # Panics
    /// When there is no such layer.
    #[must_use]
    pub fn multiplied(&self, index: usize) -> usize {
        let tower: usize = self.chains()[..3].iter().map(|chain| chain.len()).sum();
        let times = match index {
            _ if index < tower => self.steps,
            _ if index == tower && !self.attention.is_empty() => 2,
            _ => 1,
        };
        times * self.layers().nth(index).expect("there is such a layer").weights()
    }

    /// Elements of a sample's features: all its pooled rows.
    #[must_use]
    pub const fn features(&self) -> usize {
        self.row + self.wide_tables
    }

    /// Weights and biases.
    #[must_use]
    pub fn parameters(&self) -> usize {
        self.layers().map(LayerShape::parameters).sum()
    }

    /// Bytes that a sample leaves between the layers, of activations and their gradients, while its part of a minibatch is
    /// worked on, and the rows in which it does.
    #[must_use]
    pub fn part_sizes(&self) -> [usize; 2] {
        // A row of a matrix takes whole panels, however narrow it is.
        let kept = |width: usize| width.next_multiple_of(WIDTH);
        let ends = |layers: &[LayerShape]| {
            layers.first().map_or(0, |layer| kept(layer.inputs))
                + layers.iter().map(|layer| kept(layer.outputs)).sum::<usize>()
        };
        // Of a cross layer there are the outputs of V and of W, and its input, which is as wide as its biases; of all of them
        // together three gradients as wide as that, that of W's output, and that of V's.
        let crossed: usize = self.cross.iter().map(|layer| layer.outputs + layer.biases).sum();
        let gradients = self.cross.first().map_or(0, |v| 4 * v.inputs + v.outputs);
        let mut once = ends(self.wide.as_slice());
        // Each matrix's ends, and the vectors of all.
        once += self.projections.iter().map(|layer| kept(layer.inputs) + kept(layer.outputs)).sum::<usize>();
        once += self.made;
        let mut series = 0;
        if let Some((matrix, mlp)) = self.attention.split_first() {
            once += ends(mlp) + ends(&self.head) + 5 * kept(matrix.outputs);
            // Vectors of each step as the interaction takes them and their gradient, what they become, and its scale and its weight.
            series = self.steps * (2 * self.row.div_ceil(self.steps) + matrix.inputs + 2);
        }
        let tower = (ends(&self.bottom) + ends(&self.top)) * 2 + crossed + gradients;
        [(self.steps * tower + 2 * once + series) * size_of::<f32>(), self.steps]
    }

    /// Bytes that a sample of a whole slice of a minibatch keeps: pooled rows with their gradient, its probability and loss.
    #[must_use]
    pub const fn sample_bytes(&self) -> usize {
        self.features() * 2 * size_of::<f32>() + size_of::<f32>() + size_of::<f64>()
    }

    /// Numbers of a sample that cross layers multiply one by one: those of x_0, once a layer.
    fn factors(&self) -> usize {
        self.cross.iter().map(|layer| layer.biases).sum()
    }

    /// Operations of a sample, forward and backward to inputs and weights, of layers and products; a multiply-add counts as
    /// two.
    #[must_use]
    pub fn operations(&self) -> usize {
        let tower = weights(&self.bottom) + weights(&self.cross) + weights(&self.top) + self.products;
        6 * (self.steps * tower + self.attended() + weights(self.wide.as_slice()) + weights(&self.projections))
    }

    /// Multiply-adds of attention and what follows: the last step goes through the matrix twice, and all others meet it twice.
    fn attended(&self) -> usize {
        let Some((matrix, mlp)) = self.attention.split_first() else { return 0 };
        2 * matrix.weights() + 2 * self.steps * matrix.outputs + weights(mlp) + weights(&self.head)
    }

    /// The work of one of its stages for a minibatch of `samples` samples; none for any other stage.
    #[must_use]
    pub fn work(&self, stage: Stage, samples: usize, kept: Kept) -> Work {
        let steps = self.steps as f64;
        let [bottom, cross, top] = [&self.bottom, &self.cross, &self.top].map(|layers| steps * weights(layers) as f64);
        let top = top + self.attended() as f64;
        // The wide part's layer is too small to tell; its pooled rows are read forward, and written backward.
        let wide = self.wide_tables as f64;
        let first = self.bottom.first().map_or(0.0, |layer| steps * layer.weights() as f64);
        // An interaction reads the bottom MLP's output and the pooled rows, and writes the top MLP's input; backward it
        // reads both, and writes the gradient of what it read. Dot products are too few to hide that; cross layers are not:
        // a factor is multiplied and added to something forward, and backward twice multiplied and twice added.
        let result = steps * self.top.first().map_or(0, |layer| layer.inputs) as f64;
        let features = steps * self.bottom.last().map_or(0, |layer| layer.outputs) as f64 + self.row as f64;
        let factors = steps * self.factors() as f64;
        let products = steps * self.products as f64 + weights(&self.projections) as f64;
        let samples = samples as f64;
        let stream = |operations: f64, elements: f64| {
            Work::stream(samples * operations, samples * elements * size_of::<f32>() as f64)
        };
        match stage {
            Stage::Bottom => Work::arithmetic(2.0 * samples * bottom),
            Stage::Top => Work::arithmetic(2.0 * samples * top).plus(stream(wide, wide)),
            Stage::Interact if cross > 0.0 => {
                Work::arithmetic(2.0 * samples * (cross + factors)).plus(stream(0.0, features + result))
            }
            Stage::Interact => stream(2.0 * products, features + result),
            Stage::Loss => stream(0.0, 4.0),
            // By data and by weights, each as much as forward; nobody needs the dense features' gradient.
            Stage::BackTop => Work::arithmetic(4.0 * samples * top).plus(stream(0.0, wide)),
            Stage::BackBottom => Work::arithmetic(samples * (4.0 * bottom - 2.0 * first)),
            Stage::BackInteract if cross > 0.0 => {
                Work::arithmetic(4.0 * samples * (cross + factors)).plus(stream(0.0, 2.0 * features + result))
            }
            Stage::BackInteract => stream(4.0 * products, 2.0 * features + result),
            Stage::UpdateDense => {
                let parameters: usize = self.chains().iter().map(|layers| weights(layers)).sum();
                let parameters = parameters - weights(self.wide.as_slice());
                let parameters = parameters as f64;
                // Where norms are needed, directions are written, and read in a second pass with the weights.
                let again =
                    if kept.optimizer.needs_norms() { 2 * size_of::<f32>() + kept.precision.bytes() } else { 0 };
                let bytes = parameters * (2 * kept.bytes() + size_of::<f32>() + again) as f64;
                Work::stream(2.0 * parameters, bytes)
            }
            _ => Work::NONE,
        }
    }
}

fn weights(layers: &[LayerShape]) -> usize {
    layers.iter().copied().map(LayerShape::weights).sum()
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
        // MLPs of 13-512-256-128 and 3456-1024-1024-512-256-1, and three layers of V (512 x 3456), W (3456 x 512) and b.
        let mlps = 171_392 + 5_245_953;
        assert_eq!(shape.parameters(), mlps + 3 * (2 * 512 * 3456 + 3456));
        assert_eq!(shape.operations(), 6 * (shape.layers().map(LayerShape::weights).sum::<usize>()));
        // Forward, what the layers multiply and the element-wise rest, a multiply-add for each number of x_0 and layer.
        let work = shape.work(Stage::Interact, 10, Kept::default());
        assert_eq!(work.operations, 20.0 * f64::from(3 * (2 * 512 * 3456 + 3456)));
        assert_eq!(work.bytes, f64::from(10 * 4 * (3456 + 3456)));
        assert_eq!(shape.work(Stage::BackInteract, 10, Kept::default()).operations, 2.0 * work.operations);
    }
}
