//! How the layers of a network are run: as blocks, each an operation whose result goes straight into a chain of fully
//! connected layers.
//!
//! Neighbours that read nobody else's numbers work in each other's matrices. What remains is gathered
//! ([`InputRows::Gathered`]), so that any layers make a network, and those of the built-in ones are run as if they had
//! been written for each other:
//!
//! * `linear`, `relu` and `linear` behind each other are one chain;
//! * `concat` of x and `dot` of x and others is one operation, and so are `cross` and the `concat` before it;
//! * the vectors of all columns in their order are read where they have been pooled.

use std::collections::HashMap;

use super::planned::{Block, ChainLayer, InputRows, Op, Origin, Piece};
use crate::base::config::{DENSE, EMBEDDINGS, LayerKind, ModelConfig, NamedLayer};
use crate::layer::Activation;
use crate::model::stage::Stage;

/// What a layer reads.
#[derive(Debug, Clone, Copy)]
enum Operand {
    Layer(usize),
    Dense,
    /// A vector by its number.
    Vector(usize),
}

struct Planner<'a> {
    layers: &'a [NamedLayer],
    readers: Vec<Vec<usize>>,
    /// By number, the operands of each.
    operands: Vec<Vec<Operand>>,
    /// Numbers of each vector, and where it begins.
    vectors: Vec<[usize; 2]>,
    dense: usize,
    series: bool,
    blocks: Vec<Block>,
    /// The block that a layer's result is the end of.
    ends: Vec<Option<usize>>,
    linear: usize,
}

/// The blocks of a model's network, in an order in which they can be run, and the last of which gives the logit;
/// `columns` have for each categorical column its vectors' widths.
///
/// # Panics
/// When the layers make no network ([`ModelConfig::widths`]).
#[must_use]
pub fn plan(model: &ModelConfig, columns: &[Vec<usize>]) -> Vec<Block> {
    let names = model.column_names(columns.len());
    let layers = model.network();
    let widths = match model.widths(Some(&names)) {
        Ok(widths) => widths,
        Err(reason) => panic!("a model is checked before its network is planned: {reason}"),
    };
    let (mut vectors, mut of_columns, mut start) = (Vec::new(), Vec::new(), 0);
    for widths in columns {
        let first = vectors.len();
        for &width in widths {
            vectors.push([width, start]);
            start += width;
        }
        of_columns.push(first..vectors.len());
    }
    let numbers: HashMap<&str, usize> = layers.iter().enumerate().map(|(at, layer)| (&*layer.name, at)).collect();
    let operands: Vec<Vec<Operand>> = layers
        .iter()
        .map(|layer| {
            let of = layer.of.iter().flat_map(|name| match (numbers.get(&**name), &**name) {
                (Some(&at), _) => vec![Operand::Layer(at)],
                (None, DENSE) => vec![Operand::Dense],
                (None, EMBEDDINGS) => (0..vectors.len()).map(Operand::Vector).collect(),
                (None, name) => {
                    let column = names.iter().position(|own| own == name).expect("columns are checked");
                    of_columns[column].clone().map(Operand::Vector).collect()
                }
            });
            of.collect()
        })
        .collect();
    let mut readers = vec![Vec::new(); layers.len()];
    for (at, operands) in operands.iter().enumerate() {
        for operand in operands {
            if let Operand::Layer(from) = operand {
                readers[*from].push(at);
            }
        }
    }
    let mut planner = Planner {
        readers,
        operands,
        vectors,
        dense: model.bottom.first().copied().unwrap_or(0),
        series: model.ts_length > 0,
        blocks: Vec::new(),
        ends: vec![None; layers.len()],
        layers: &layers,
        linear: 0,
    };
    for at in widths.order {
        planner.add(at, widths.of[at].each_step);
    }
    planner.finish()
}

impl Planner<'_> {
    /// Takes a layer into the blocks.
    fn add(&mut self, at: usize, each_step: bool) {
        let layer = &self.layers[at];
        let operands = self.operands[at].clone();
        match layer.kind {
            LayerKind::Wide => {}
            LayerKind::Linear => self.linear(at, each_step),
            LayerKind::Relu => self.relu(at, &operands, each_step),
            LayerKind::Sigmoid => self.block(at, Op::Each(Activation::Sigmoid), &operands, each_step),
            LayerKind::Concat => self.concat(at, &operands, each_step),
            LayerKind::Cross => self.cross(at, operands, each_step),
            LayerKind::Dot => self.dot(at, &operands, each_step),
            LayerKind::Sum => self.sum(at, &operands, each_step),
            LayerKind::Attention => self.block(at, Op::Attention(layer.outputs.clone()), &operands, each_step),
        }
    }

    fn relu(&mut self, at: usize, operands: &[Operand], each_step: bool) {
        // The logit's gradient does not come through a chain's ReLU.
        if let [Operand::Layer(from)] = operands[..]
            && !self.readers[at].is_empty()
            && let Some(block) = self.only_reader(from, at)
            && !self.blocks[block].layers.is_empty()
            && !self.blocks[block].relu
        {
            self.blocks[block].relu = true;
            self.ends[at] = Some(block);
            return;
        }
        self.block(at, Op::Each(Activation::Relu), operands, each_step);
    }

    fn concat(&mut self, at: usize, operands: &[Operand], each_step: bool) {
        let [reader] = self.readers[at][..] else { return self.block(at, Op::Concat, operands, each_step) };
        if self.layers[reader].kind == LayerKind::Cross {
            return;
        }
        match self.dot_with_x(operands, at) {
            Some(dot) => {
                let (op, operands) = (self.products(dot), self.operands[dot].clone());
                self.block(at, op, &operands, each_step);
            }
            None => self.block(at, Op::Concat, operands, each_step),
        }
    }

    fn cross(&mut self, at: usize, operands: Vec<Operand>, each_step: bool) {
        let layer = &self.layers[at];
        let [layers, rank] = [layer.layers, layer.rank].map(|size| size.expect("sizes of cross layers are checked"));
        let concat = match operands[..] {
            [Operand::Layer(from)] if self.layers[from].kind == LayerKind::Concat && self.readers[from] == [at] => {
                Some(from)
            }
            _ => None,
        };
        // What it reads is read by the cross layers.
        let (reader, operands) = concat.map_or((at, operands), |from| (from, self.operands[from].clone()));
        self.block_of([at, reader], Op::Cross { layers, rank }, &operands, each_step);
    }

    fn dot(&mut self, at: usize, operands: &[Operand], each_step: bool) {
        if let [concat] = self.readers[at][..]
            && self.layers[concat].kind == LayerKind::Concat
            && self.dot_with_x(&self.operands[concat], concat) == Some(at)
        {
            return;
        }
        let op = self.products(at);
        self.block(at, op, operands, each_step);
    }

    fn sum(&mut self, at: usize, operands: &[Operand], each_step: bool) {
        let is_wide =
            |operand: &Operand| matches!(operand, Operand::Layer(from) if self.layers[*from].kind == LayerKind::Wide);
        let others: Vec<Operand> = operands.iter().filter(|operand| !is_wide(operand)).copied().collect();
        match others[..] {
            // The wide part goes round everything to the logit.
            [Operand::Layer(from)] if others.len() < operands.len() && !self.is_gated(from) => {
                self.ends[at] = self.ends[from];
            }
            _ => self.block(at, Op::Sum(others.len()), &others, each_step),
        }
    }

    /// The block that ends in a layer's result, if this is all that reads it.
    fn only_reader(&self, from: usize, reader: usize) -> Option<usize> {
        self.ends[from].filter(|_| self.readers[from] == [reader])
    }

    /// The dot products of x and other vectors, if these operands of a concatenation are x and them, x is a ReLU's
    /// output, and nobody else reads either.
    fn dot_with_x(&self, operands: &[Operand], concat: usize) -> Option<usize> {
        let [Operand::Layer(x), Operand::Layer(dot)] = *operands else { return None };
        let reads_x = matches!(self.operands[dot].first(), Some(Operand::Layer(first)) if *first == x);
        let mut readers = self.readers[x].clone();
        readers.sort_unstable();
        let mut both = [concat, dot];
        both.sort_unstable();
        let alone = readers == both && self.readers[dot] == [concat] && self.layers[concat].kind == LayerKind::Concat;
        (self.layers[dot].kind == LayerKind::Dot && reads_x && alone && self.is_gated(x)).then_some(dot)
    }

    /// Whether a layer is a ReLU at the end of a chain: who reads that in place gates its gradient.
    fn is_gated(&self, layer: usize) -> bool {
        self.ends[layer].is_some_and(|block| self.blocks[block].relu)
    }

    fn products(&self, at: usize) -> Op {
        let dim = match self.operands[at][0] {
            Operand::Layer(from) => self.ends[from].map_or(0, |block| self.blocks[block].outputs()),
            Operand::Dense => self.dense,
            Operand::Vector(vector) => self.vectors[vector][0],
        };
        Op::Dot { vectors: self.operands[at].len(), dim, itself: self.layers[at].itself == Some(true) }
    }

    fn linear(&mut self, at: usize, each_step: bool) {
        let block = match self.operands[at][..] {
            [Operand::Layer(from)] => self
                .only_reader(from, at)
                .filter(|block| self.blocks[*block].layers.is_empty() || self.blocks[*block].relu),
            [Operand::Dense] => Some(self.dense_block(&self.layers[at].name.clone())),
            _ => None,
        };
        let block = block.unwrap_or_else(|| {
            let operands = self.operands[at].clone();
            self.block(at, Op::Concat, &operands, each_step);
            self.blocks.len() - 1
        });
        let layer = &self.layers[at];
        let count = layer.outputs.len();
        let chain = layer.outputs.iter().enumerate().map(|(index, &outputs)| ChainLayer {
            of: layer.name.clone(),
            index: [index, count],
            number: self.linear,
            outputs,
        });
        self.blocks[block].layers.extend(chain);
        self.blocks[block].relu = false;
        self.ends[at] = Some(block);
        self.linear += 1;
    }

    fn dense_block(&mut self, name: &str) -> usize {
        self.blocks.push(Block {
            name: name.to_owned(),
            op: Op::Dense,
            x: None,
            x_width: 0,
            rows: InputRows::Nothing,
            inputs: self.dense,
            layers: Vec::new(),
            relu: false,
            each_step: self.series,
            stages: [Stage::Bottom; 2],
            in_place: false,
        });
        self.blocks.len() - 1
    }

    fn block(&mut self, at: usize, op: Op, operands: &[Operand], each_step: bool) {
        self.block_of([at, at], op, operands, each_step);
    }

    /// A block for a layer's operation, whose operands another may be said to read.
    fn block_of(&mut self, [at, reader]: [usize; 2], op: Op, operands: &[Operand], each_step: bool) {
        let name = self.layers[at].name.clone();
        let x = operands.first().and_then(|first| self.in_place([at, reader], &op, *first));
        let rest = &operands[usize::from(x.is_some())..];
        let pieces: Vec<Piece> = rest
            .iter()
            .map(|operand| match *operand {
                Operand::Vector(vector) => {
                    let [width, start] = self.vectors[vector];
                    Piece { from: Origin::Vectors(start), width }
                }
                Operand::Dense => Piece { from: Origin::Block(self.dense_block(&name)), width: self.dense },
                Operand::Layer(from) => {
                    let block = self.ends[from].expect("layers come after those that they read");
                    Piece { from: Origin::Block(block), width: self.blocks[block].outputs() }
                }
            })
            .collect();
        let x_width = x.map_or(0, |block| self.blocks[block].outputs());
        let width = x_width + pieces.iter().map(|piece| piece.width).sum::<usize>();
        let inputs = match &op {
            Op::Dense => unreachable!("dense features have a block of their own"),
            Op::Dot { vectors, dim, itself } => {
                assert_eq!(width, vectors * dim, "vectors of one width are multiplied");
                x_width + vectors * (vectors - 1) / 2 + if *itself { *vectors } else { 0 }
            }
            Op::Concat | Op::Cross { .. } | Op::Each(_) => width,
            Op::Sum(terms) => width / terms,
            Op::Attention(_) => 2 * x_width,
        };
        let rows = match pieces.is_empty() {
            true => InputRows::Nothing,
            false if pieces == self.vectors_as_pieces() => InputRows::Vectors,
            false => InputRows::Gathered(pieces),
        };
        if let Some(block) = x {
            self.blocks[block].in_place = true;
        }
        self.ends[at] = Some(self.blocks.len());
        self.blocks.push(Block {
            name,
            op,
            x,
            x_width,
            rows,
            inputs,
            layers: Vec::new(),
            relu: false,
            each_step,
            // Until all are there.
            stages: [Stage::Bottom; 2],
            in_place: false,
        });
    }

    /// The block whose result an operation reads as its first operand where it lies, if it can.
    fn in_place(&mut self, [at, reader]: [usize; 2], op: &Op, first: Operand) -> Option<usize> {
        if !matches!(op, Op::Dot { .. } | Op::Concat | Op::Cross { .. } | Op::Attention(_)) {
            return None;
        }
        let is_dot = matches!(op, Op::Dot { .. });
        let folded = is_dot && self.layers[at].kind == LayerKind::Concat;
        if is_dot && !folded {
            // Products without x before them are of vectors that lie side by side.
            return None;
        }
        match first {
            Operand::Layer(from) if self.is_gated(from) && (folded || self.readers[from] == [reader]) => {
                self.ends[from]
            }
            // Their gradient is nobody's.
            Operand::Dense if !is_dot => Some(self.dense_block(&self.layers[at].name.clone())),
            _ => None,
        }
    }

    /// All vectors in their order.
    fn vectors_as_pieces(&self) -> Vec<Piece> {
        let piece = |[width, start]: &[usize; 2]| Piece { from: Origin::Vectors(*start), width: *width };
        self.vectors.iter().map(piece).collect()
    }

    /// Finds the stages, and who has copies.
    fn finish(mut self) -> Vec<Block> {
        for at in 0..self.blocks.len() {
            // A chain behind rows is as far as its operation, or further.
            let read = |piece: &Piece| match piece.from {
                Origin::Vectors(_) => Stage::Interact,
                Origin::Block(block) => self.blocks[block].stages[1],
            };
            let block = &self.blocks[at];
            let vectors = (block.rows == InputRows::Vectors).then_some(Stage::Interact);
            let x = block.x.map(|x| self.blocks[x].stages[1]);
            let stage = block.pieces().iter().map(read).chain(x).chain(vectors).max().unwrap_or(Stage::Bottom);
            let chain = if block.layers.is_empty() || stage == Stage::Bottom { stage } else { Stage::Top };
            self.blocks[at].stages = [stage, chain];
        }
        // Several readers of the vectors have a copy each.
        let reads = |block: &Block| {
            block.rows == InputRows::Vectors
                || block.pieces().iter().any(|piece| matches!(piece.from, Origin::Vectors(_)))
        };
        if self.blocks.iter().filter(|block| reads(block)).count() > 1 {
            let all = self.vectors_as_pieces();
            for block in self.blocks.iter_mut().filter(|block| block.rows == InputRows::Vectors) {
                block.rows = InputRows::Gathered(all.clone());
            }
        }
        self.blocks
    }
}
