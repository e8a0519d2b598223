//! Weights for look-ups that were drawn without any.

use std::sync::Arc;

use octorec::base::rng::{Random, Stream};
use octorec::data::{Batch, Schema};

/// Gives every look-up in the columns that `which` names a weight from -0.5 to 1.5, with digits down to the last.
pub fn weigh(schema: &mut Schema, batches: &mut [Arc<Batch>], which: impl Fn(usize) -> bool) {
    let mut drawn = 0;
    let random = Random::new(11, Stream::Label);
    for (table, column) in schema.tables.iter_mut().enumerate().filter(|(table, _)| which(*table)) {
        column.weighted = true;
        for batch in &mut *batches {
            let batch = Arc::make_mut(batch);
            let weight = |_| {
                drawn += 1;
                random.uniform(drawn) as f32 * 2.0 - 0.5
            };
            batch.weights[table] = (0..batch.bags[table].rows.len()).map(weight).collect();
        }
    }
    batches.iter().for_each(|batch| batch.check(schema).unwrap());
}
