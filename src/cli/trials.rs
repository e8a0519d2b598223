//! Steps on small tables, by which what nobody can predict is judged before a run: they are about what is dense.

use std::sync::Arc;

use super::collective::Dense;
use super::ranks::{Overlap, Purpose, RankArgs, StartSpec, Started};
use super::session::open_generated;
use super::timing::{Steps, minibatches};
use crate::base::Result;
use crate::base::config::{Config, Hot, LookUps, SourceKind};
use crate::collective::World;
use crate::data::{Batch, Schema, Source};
use crate::machine::{Machine, Placement};
use crate::train::Rates;

/// Rows of a table, at most.
pub const TRIAL_ROWS: u64 = 1000;
/// Steps that are timed, after as many that warm up.
const TRIAL_STEPS: usize = 6;

/// A model with small tables, and minibatches for it.
pub struct Trials {
    config: Config,
    source: Arc<dyn Source>,
    batches: Vec<Arc<Batch>>,
}

impl Trials {
    /// For a model and its data.
    ///
    /// # Errors
    /// When minibatches cannot be drawn.
    pub fn new(config: &Config, schema: &Schema) -> Result<Self> {
        let mut config = config.clone();
        config.data.source = SourceKind::Random;
        config.data.rows_cap = TRIAL_ROWS;
        // Copies are of rows, which are not what is judged here.
        config.train.hot = Hot::Off;
        config.model.rows.iter_mut().for_each(|rows| *rows = (*rows).min(TRIAL_ROWS));
        // Crosses and sequences go by the names of the data's columns.
        if config.model.columns.is_empty() {
            config.model.columns = schema.names();
            config.model.columns.truncate(config.model.rows.len());
        }
        // A preset's list is of its own columns.
        if let LookUps::Each(each) = &config.data.lookups
            && each.len() != config.model.rows.len()
        {
            let own = schema.tables.iter().map(|column| column.lookups.max(1));
            config.data.lookups = LookUps::Each(own.take(config.model.rows.len()).collect());
        }
        config.model.wide_buckets = config.model.wide_buckets.min(TRIAL_ROWS);
        let source = open_generated(&config)?;
        let batches = minibatches(&*source, 2, config.train.minibatch())?;
        Ok(Self { config, source, batches })
    }

    /// Milliseconds of the median step of ranks that are placed and reduce so; all machines try at the same time.
    ///
    /// # Errors
    /// As [`RankArgs::start_on`], and when a rank fails.
    pub fn step_ms(
        &self,
        (args, world, overlap): (&RankArgs, &World, Overlap),
        machine: &Machine,
        placement: Placement,
        dense: Dense,
    ) -> Result<f64> {
        let task = StartSpec { dense, ..StartSpec::new(world, &self.config, &*self.source, Purpose::Train(overlap)) };
        let Started { ranks, .. } = args.start_on(machine, placement, task, &mut |_: &str| ())?;
        Ok(Steps::run(&ranks, &self.batches, TRIAL_STEPS, Rates::base(&self.config.train))?.median_ms())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::config::{Command, Layers};
    use crate::data::schema::Column;

    #[test]
    fn trials_are_of_the_datas_columns_whatever_the_preset_has() {
        let mut layers = Layers::default();
        layers.preset("dcnv2").unwrap();
        for (key, value) in [("data.source", "files"), ("data.path", "somewhere")] {
            layers.set(key, value, "a test").unwrap();
        }
        let mut config = layers.finish(Command::Train).unwrap();
        config.train.batch = 8;
        (config.model.dim, config.model.bottom) = (4, vec![13, 4]);
        let tables: Vec<Column> = ["a", "b", "c"].map(|name| Column::new(name, 50)).into();
        config.model.rows = vec![50; 3];
        let trials = Trials::new(&config, &Schema { dense: 13, weighted: false, tables }).unwrap();
        assert!(trials.batches.iter().all(|batch| batch.bags.iter().all(|bag| bag.rows.len() == 8)));
    }
}
