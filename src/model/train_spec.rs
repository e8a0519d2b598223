//! How a model is trained: what follows from the configuration beside the network.

use crate::base::config::{ModelConfig, Precision, Update};
use crate::base::units::Bytes;
use crate::base::{Error, Result};
use crate::data::Schema;
use crate::memory::available_bytes;
use crate::optim::{ByGroup, Optimizer, ParamGroup, ParamState};
use crate::shard::scheme::Scheme;

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

/// Refuses tables of a model that the machine cannot hold, before the first page is touched: of each its own columns,
/// and what is kept of them.
///
/// # Errors
/// [`Error::TableTooBig`], which names the largest.
pub fn check_tables(schema: &Schema, model: &ModelConfig, spec: &TrainSpec) -> Result<()> {
    let tables = schema.tables.len();
    let (groups, kept, dims) =
        (table_param_groups(model, tables), spec.param_states(model), model.dims(&schema.rows()));
    let bytes = |table: usize| {
        let kept = kept[groups[table]];
        schema.tables[table].rows.saturating_mul((dims[table] * kept.bytes() + kept.row_bytes()) as u64)
    };
    let need = (0..tables).fold(0u64, |sum, table| sum.saturating_add(bytes(table)));
    let Some(free) = available_bytes() else { return Ok(()) };
    let largest = (0..tables).max_by_key(|table| bytes(*table));
    match largest {
        Some(table) if need > free => Err(Error::TableTooBig {
            table: table as u32,
            name: schema.tables[table].name.clone(),
            rows: schema.tables[table].rows,
            dim: dims[table],
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
