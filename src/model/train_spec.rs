//! How a model is trained: what follows from the configuration beside the network.

use std::ops::Range;

use crate::base::config::{ModelConfig, Precision, Update};
use crate::base::units::Bytes;
use crate::base::{Error, Result, TableId};
use crate::data::Schema;
use crate::memory::available_bytes;
use crate::optim::{ByGroup, Optimizer, ParamGroup, ParamState};
use crate::shard::scheme::{Scheme, Shard, Sharding};

/// How a model is trained, and the largest minibatch.
#[derive(Debug, Clone, Copy)]
pub struct TrainSpec {
    /// Samples of the largest minibatch.
    pub samples: usize,
    /// Samples that walk through the network at a time, at most: see [`crate::math::Parts`].
    pub part: usize,
    /// How embedding rows are moved.
    pub update: Update,
    /// Whether they are moved without gradient rows in between.
    pub update_fused: bool,
    /// What weights are read in and how much of them is kept.
    pub precision: Precision,
    /// The optimizer of each group of parameters.
    pub optimizers: ByGroup<Optimizer>,
    /// The bound of the norm of all layers' gradients together, if they are clipped.
    pub clip_norm: Option<f64>,
}

impl TrainSpec {
    /// What is kept of a model's weights.
    #[must_use]
    pub fn param_states(&self, model: &ModelConfig) -> ByGroup<ParamState> {
        param_states(model, self.precision, self.optimizers)
    }

    /// The same to predict: nothing is kept for moving weights.
    #[must_use]
    pub const fn to_predict(self) -> Self {
        Self { optimizers: ByGroup::all(Optimizer::None), clip_norm: None, ..self }
    }

    /// Whether weights move.
    #[must_use]
    pub fn learns(&self) -> bool {
        self.optimizers[ParamGroup::Dense].moves()
    }

    /// For minibatches of `samples`, rows moved as the look-ups suggest, by SGD.
    #[must_use]
    pub const fn sgd(samples: usize) -> Self {
        let (precision, optimizers) = (Precision::F32, ByGroup::all(Optimizer::Sgd));
        let (update, update_fused) = (Update::Auto, true);
        Self { samples, part: samples, update, update_fused, precision, optimizers, clip_norm: None }
    }
}

/// What is kept of a model's weights that are read in this precision and moved by these optimizers.
#[must_use]
pub fn param_states(model: &ModelConfig, precision: Precision, optimizers: ByGroup<Optimizer>) -> ByGroup<ParamState> {
    ByGroup::new(|group| {
        let precision = if group == ParamGroup::Dense { model.layer_precision(precision) } else { precision };
        let row_weights = group == ParamGroup::Sparse && model.weighs_rows();
        ParamState { precision, optimizer: optimizers[group], row_weights }
    })
}

/// The parameter group of each of a model's tables, of which there are so many.
#[must_use]
pub fn table_param_groups(model: &ModelConfig, tables: usize) -> Vec<ParamGroup> {
    let deep = model.deep_tables(tables);
    (0..tables).map(|table| if table < deep { ParamGroup::Sparse } else { ParamGroup::WideSparse }).collect()
}

/// Refuses tables whose parts on these ranks, those of this machine, it cannot hold, before the first page is touched:
/// of each part its own rows and columns, what is kept of them, and a copy a rank where all have the table.
///
/// # Errors
/// [`Error::TableTooBig`], which names the table that takes most.
pub fn check_tables(
    schema: &Schema,
    model: &ModelConfig,
    spec: &TrainSpec,
    (sharding, local): (&Sharding, &Range<usize>),
) -> Result<()> {
    let (groups, kept) = (table_param_groups(model, schema.tables.len()), spec.param_states(model));
    let bytes = |table: TableId| {
        let kept = kept[groups[table.index()]];
        let of_shard = |shard: &Shard| {
            shard.rows.count.saturating_mul((shard.columns.len() * kept.bytes() + kept.row_bytes()) as u64)
        };
        let here = sharding.of_table(table).iter().filter(|shard| local.contains(&shard.rank.index()));
        here.map(of_shard).fold(0, u64::saturating_add)
    };
    let tables = || TableId::all(sharding.tables());
    let need = tables().map(bytes).fold(0, u64::saturating_add);
    let Some(free) = available_bytes() else { return Ok(()) };
    match tables().max_by_key(|table| bytes(*table)) {
        Some(table) if need > free => Err(Error::TableTooBig {
            table: table.0,
            name: schema.tables[table.index()].name.clone(),
            rows: sharding.rows(table),
            dim: sharding.dim(table),
            table_need: Bytes(bytes(table)),
            need: Bytes(need),
            free: Bytes(free),
        }),
        _ => Ok(()),
    }
}

/// Refuses to divide the columns of a table where something is kept of whole rows: what an optimizer keeps, or learned
/// weights.
///
/// # Errors
/// [`Error::Config`], which names the table.
pub fn check_columns(schemes: &[Scheme], model: &ModelConfig, optimizer: Optimizer) -> Result<()> {
    let weighing = model.weighing_tables(schemes.len());
    let (origin, keeps, or) = match (weighing, optimizer.row_moment()) {
        (0, None) => return Ok(()),
        (0, Some(_)) => (
            "train.optimizer_rows",
            "train.optimizer_rows = \"rowwise-adagrad\" keeps one number a row",
            "train.optimizer_rows = \"adagrad\"",
        ),
        _ => (
            "model.weighted_pooling",
            "model.weighted_pooling = \"learned\" gives each row one weight",
            "model.weighted_pooling = \"fixed\"",
        ),
    };
    let divided = |(table, scheme): &(usize, &Scheme)| {
        let kept = *table < weighing || optimizer.row_moment().is_some();
        kept && matches!(scheme, Scheme::Column(parts) if parts.len() > 1)
    };
    match schemes.iter().enumerate().find(divided) {
        None => Ok(()),
        Some((table, _)) => {
            let reason = format!(
                "{keeps}, for which a rank needs all of its columns, and the plan divides those of table {table}: divide it by \
                 rows, as a plan without --scheme column does, or use {or}"
            );
            Err(Error::config(origin, reason))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::RankId;
    use crate::data::Column;
    use crate::shard::scheme::Part;

    #[test]
    fn tables_are_refused_by_the_machine_that_has_them_alone() {
        // Of the huge one, 2^31 x 2^20 numbers, most rows are on the second of three machines, with a rank each.
        let (rows, dim) = ([1 << 31, 9], 1 << 20);
        let tables = vec![Column::new("huge", rows[0]), Column::new("small", rows[1])];
        let schema = Schema { dense: 1, weighted: false, tables };
        let model = ModelConfig { dim, ..ModelConfig::default() };
        let parts = [(0, 5), (1, rows[0] - 5)].map(|(rank, size)| Part { rank: RankId(rank), size });
        let schemes = vec![Scheme::RowContiguous(parts.to_vec()), Scheme::Replicated];
        let sharding = Sharding::new(&rows, vec![dim; 2], 3, schemes).unwrap();
        let check = |local: Range<usize>| check_tables(&schema, &model, &TrainSpec::sgd(64), (&sharding, &local));
        for local in [0..1, 2..3] {
            check(local.clone()).unwrap_or_else(|error| panic!("ranks {local:?}: {error}"));
        }
        for local in [1..2, 0..3] {
            let message = check(local.clone()).expect_err("8 PiB").to_string();
            for told in ["table 0 (huge; 2147483648 rows of 1048576)", "more machines"] {
                assert!(message.contains(told), "ranks {local:?}: {message}");
            }
        }
    }
}
