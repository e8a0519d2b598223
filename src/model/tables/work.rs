//! The work that a rank's part of the tables has in a step.

use std::collections::HashSet;

use super::Tables;
use crate::base::RankId;
use crate::data::Batch;
use crate::embedding::Lookups;
use crate::exchange::{Ids, Layout};
use crate::model::stage::{Bound, Work};
use crate::optim::{ParamGroup, ParamState};

/// What was looked up so far.
#[derive(Default)]
struct Met {
    /// Elements of look-ups, of different rows, and of pooled rows.
    looked_up: usize,
    different: usize,
    pooled: usize,
    /// Bytes that are kept of the different rows.
    kept: usize,
    /// Bytes of their learned weights.
    row_weights: usize,
}

impl Met {
    /// Adds elements of look-ups, of different rows, and of pooled rows, and these rows, of which `kept` is kept.
    fn add(&mut self, [looked_up, different, pooled, rows]: [usize; 4], kept: ParamState) {
        let width = different.checked_div(rows).unwrap_or(0);
        self.looked_up += looked_up;
        self.different += different;
        self.pooled += pooled;
        self.kept += rows * (width * kept.bytes() + kept.row_bytes());
        self.row_weights += if kept.row_weights { rows * size_of::<f32>() } else { 0 };
    }
}

impl Tables {
    /// The work of looking up rows, and of moving them, in a step: of all samples that ask this rank, its own of
    /// `batch`. Every different row is read from memory at least once, however often it is looked up.
    #[must_use]
    pub fn work(&self, layout: &Layout, ids: &Ids, batch: &Batch) -> [Work; 2] {
        let mut all = Met::default();
        if let Some(copies) = &self.copies {
            all.add(copies.work(ids), self.kept[ParamGroup::Sparse]);
        }
        for replicas in &self.replicas {
            all.add(replicas.work(Lookups::of(batch)), self.kept[replicas.group.param_group]);
        }
        for (group, place) in self.groups.iter().zip(&layout.of(self.rank).groups) {
            let mut rows = vec![HashSet::<u32>::new(); place.shards.len()];
            let (mut looked_up, mut bags) = (0, 0);
            for from in RankId::all(layout.ranks()) {
                let lookups = ids.lookups(from, place, batch);
                looked_up += lookups.total();
                bags += lookups.bags().map(|bag| bag.samples()).sum::<usize>();
                rows.iter_mut().zip(lookups.bags()).for_each(|(rows, bag)| rows.extend(bag.rows));
            }
            let rows = rows.iter().map(HashSet::len).sum::<usize>();
            let [looked_up, different, pooled] = [looked_up, rows, bags].map(|count| count * place.width);
            all.add([looked_up, different, pooled, rows], self.kept[group.param_group]);
        }
        let Met { looked_up, different, pooled, kept, row_weights } = all;
        let [looked_up, different, pooled, kept, row_weights] =
            [looked_up, different, pooled, kept, row_weights].map(|count| count as f64);
        // A look-up reads what the precision lets it and writes a pooled row a bag; an update reads and writes all that
        // is kept, and reads the pooled row's gradient.
        let read = different * self.kept[ParamGroup::Sparse].precision.read_bytes() as f64 + row_weights;
        let streamed = pooled * size_of::<f32>() as f64;
        [
            Work { bound: Bound::Gather, operations: looked_up, bytes: read, streamed, sent: 0.0 },
            Work { bound: Bound::Scatter, operations: 2.0 * looked_up, bytes: 2.0 * kept, streamed, sent: 0.0 },
        ]
    }
}
