//! A network's blocks as they are planned: what each does, reads and gives, without numbers.

use crate::layer::{Activation, Reading};
use crate::model::stage::Stage;

/// What a chain's input comes from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Op {
    /// The dense features.
    Dense,
    /// Products of each two of so many vectors, of so many numbers; with x before them, if it is one of the vectors.
    Dot {
        /// x included.
        vectors: usize,
        /// Of a vector.
        dim: usize,
        /// Each vector's product with itself, too.
        itself: bool,
    },
    /// Everything side by side.
    Concat,
    /// So many cross layers over everything side by side, of this rank.
    Cross {
        /// Layers.
        layers: usize,
        /// Numbers between V and W.
        rank: usize,
    },
    /// The sum of so many vectors.
    Sum(usize),
    /// A function of each number.
    Each(Activation),
    /// Attention over the steps; the outputs of its hidden layers.
    Attention(Vec<usize>),
}

/// What an operation reads beside x, row-major.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum InputRows {
    /// Nothing.
    Nothing,
    /// The vectors of all columns, where they are.
    Vectors,
    /// Copies side by side.
    Gathered(Vec<Piece>),
}

/// Numbers that are gathered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Piece {
    /// Where they come from.
    pub from: Origin,
    /// How many there are.
    pub width: usize,
}

/// Where numbers come from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Origin {
    /// A sample's vectors, from this one of its numbers on.
    Vectors(usize),
    /// The output of a block.
    Block(usize),
}

/// A fully connected layer of a chain.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChainLayer {
    /// The layer of the description that it is of.
    pub of: String,
    /// Which of that one's, of how many.
    pub index: [usize; 2],
    /// Which of the description's layers of type linear that one is.
    pub number: usize,
    /// Its outputs.
    pub outputs: usize,
}

/// An operation and the chain of layers behind it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Block {
    /// The layer of the description whose operation it is.
    pub name: String,
    /// The operation.
    pub op: Op,
    /// The block whose output it reads in place, as the first of what it reads.
    pub x: Option<usize>,
    /// Numbers of that.
    pub x_width: usize,
    /// What else it reads.
    pub rows: InputRows,
    /// Numbers that the operation gives.
    pub inputs: usize,
    /// The chain.
    pub layers: Vec<ChainLayer>,
    /// Whether a ReLU follows the chain's last layer.
    pub relu: bool,
    /// Whether it is of each step of a time series.
    pub each_step: bool,
    /// In which stage of the forward pass the operation is, and in which the chain.
    pub stages: [Stage; 2],
    /// Whether another block reads its output in place.
    pub in_place: bool,
}

impl Block {
    /// Numbers of its output.
    #[must_use]
    pub fn outputs(&self) -> usize {
        self.layers.last().map_or(self.inputs, |layer| layer.outputs)
    }

    /// Its chain's widths, from the input on.
    #[must_use]
    pub fn widths(&self) -> Vec<usize> {
        std::iter::once(self.inputs).chain(self.layers.iter().map(|layer| layer.outputs)).collect()
    }

    /// Copies that it reads.
    #[must_use]
    pub fn pieces(&self) -> &[Piece] {
        if let InputRows::Gathered(pieces) = &self.rows { pieces } else { &[] }
    }
}

/// Which parts of which blocks' copies are of what is asked for: of the output of a block, or of the vectors of all
/// columns.
#[must_use]
pub fn readings(blocks: &[Block], of: Option<usize>) -> Vec<Reading> {
    let mut found: Vec<Reading> = Vec::new();
    for (reader, block) in blocks.iter().enumerate() {
        let mut start = 0;
        for piece in block.pieces() {
            let to = match (piece.from, of) {
                (Origin::Block(block), Some(asked)) if block == asked => Some(0),
                (Origin::Vectors(at), None) => Some(at),
                _ => None,
            };
            if let Some(to) = to {
                // Each vector is copied whole.
                let is_first = found.iter().all(|other| other.to != to);
                found.push(Reading { reader, from: start, to, width: piece.width, is_first });
            }
            start += piece.width;
        }
    }
    found
}
