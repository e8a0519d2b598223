//! Gradients of rows in a list of words, as hot rows and replicated tables send them: part by part, one a table or
//! shard, the number of vectors, the vectors, and what was looked up for each, as a stream of ids has it.

use std::ops::Range;

use super::words::find_bags;
use crate::embedding::{Lookups, PackedBag, Slots, Source};

/// Adds a part to a list: rows, each once, with the gradient of each.
pub(super) fn push<'a>(list: &mut Vec<u32>, rows: impl Iterator<Item = (u32, &'a [f32])> + Clone) {
    let start = list.len();
    list.push(0);
    rows.clone().for_each(|(_, gradient)| list.extend_from_slice(bytemuck::cast_slice(gradient)));
    let offsets = list.len();
    list.push(0);
    list.extend((1..).zip(rows.clone()).map(|(end, _)| end));
    list[start] = (list.len() - offsets - 1) as u32;
    list.extend(rows.map(|(row, _)| row));
}

/// Words of a part with so many vectors of so many columns, and so many look-ups of so many words each.
pub(super) const fn words(vectors: usize, width: usize, look_ups: usize, each: usize) -> usize {
    1 + vectors * width + vectors + 1 + look_ups * each
}

/// Where the parts of a list are.
#[derive(Debug, Clone, Default)]
pub(super) struct Parts {
    /// Where the vectors of each begin.
    gradients: Vec<usize>,
    bags: Vec<PackedBag>,
}

impl Parts {
    /// Forgets those of the list before.
    pub(super) fn clear(&mut self) {
        self.gradients.clear();
        self.bags.clear();
    }

    /// Finds the next part, from word `start` on, of vectors of `width` columns, with weights of look-ups if it has
    /// such. Returns where it ends.
    ///
    /// # Panics
    /// When the list is shorter than it says.
    pub(super) fn find(&mut self, list: &[u32], start: usize, width: usize, weighted: bool) -> usize {
        let vectors = list[start] as usize;
        let mut bag = [PackedBag::default()];
        let end = find_bags(list, start + 1 + vectors * width, std::iter::once((vectors, weighted)), &mut bag);
        self.gradients.push(start + 1);
        self.bags.extend(bag);
        end
    }

    /// What the list has in some parts of one width; nothing where these were not sent.
    pub(super) fn source<'a>(&'a self, list: &'a [u32], parts: Range<usize>, width: usize) -> Option<Source<'a>> {
        let bags = self.bags.get(parts.clone())?;
        let slots = Slots::new(width, &self.gradients[parts]);
        Some(Source { lookups: Lookups::packed(list, bags), gradient: bytemuck::cast_slice(list), slots })
    }
}
