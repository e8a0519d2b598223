//! The squares of which a layer's norms are made, summed over the ranks that have its slices.
//!
//! Each rank gives its own to all, as weights are given, and all of them add these up in the order of ranks: the sums
//! are the same everywhere.

use crate::base::Result;
use crate::collective::plan::Reduction;
use crate::collective::{Carrier, Executor, Links, Pieces, PiecesMemory};
use crate::layer::TensorSquares;
use crate::simd::Isa;
use crate::sync::Line;

/// The exchange, with its memory.
#[derive(Debug)]
pub(super) struct SquaresExchange {
    gather: Executor,
    traffic: Links,
    /// A line a rank: words of 64-bit floats.
    words: Vec<f32>,
    rank: usize,
    memory: PiecesMemory,
}

impl SquaresExchange {
    /// Along the ways of this reduction.
    #[must_use]
    pub fn new(carrier: &dyn Carrier, reduction: &Reduction) -> Self {
        let gather = reduction.gather_lines();
        Self {
            traffic: gather.traffic(),
            gather: Executor::new(&gather, carrier, "all-gather of the squares of a layer's norms"),
            words: vec![0.0; carrier.ranks() * Line::FLOATS],
            rank: carrier.rank().index(),
            memory: PiecesMemory::default(),
        }
    }

    /// Bytes from each rank to each other in one run.
    #[must_use]
    pub const fn traffic(&self) -> &Links {
        &self.traffic
    }

    /// The sums of all ranks' squares, of which these are this rank's.
    ///
    /// # Errors
    /// [`crate::base::Error::Rank`] when the job is in trouble.
    pub fn run(&mut self, carrier: &mut dyn Carrier, own: TensorSquares, isa: Isa) -> Result<TensorSquares> {
        let flat = own.0.as_flattened();
        let words: &[f32] = bytemuck::cast_slice(flat);
        self.words[self.rank * Line::FLOATS..][..words.len()].copy_from_slice(words);
        let mut pieces = Pieces::within(&mut self.memory, isa);
        pieces.push(&mut self.words);
        let result = self.gather.run(carrier, &mut pieces);
        self.memory = pieces.into_memory();
        result?;
        let mut sums = TensorSquares::default();
        for line in self.words.chunks_exact(Line::FLOATS) {
            let values =
                line.chunks_exact(2).map(|words| bytemuck::pod_read_unaligned::<f64>(bytemuck::cast_slice(words)));
            sums.0.as_flattened_mut().iter_mut().zip(values).for_each(|(sum, value)| *sum += value);
        }
        Ok(sums)
    }
}
