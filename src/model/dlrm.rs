//! The Deep Learning Recommendation Model (Naumov et al., arXiv:1906.00091), exactly as facebookresearch/dlrm trains it.
//!
//! One method a stage; `train/step.rs` walks through them. Pooled vectors lie in one row a sample, one a table; the MLPs
//! keep their own ends, and each stage reads and writes its neighbours', so that none copies what another has written.
//! Here all tables are on one rank; [`super::Sharded`] divides them.

use super::{Dense, init};
use crate::base::config::{ModelConfig, Precision, Update};
use crate::base::units::Bytes;
use crate::base::{Error, NodeId, Result};
use crate::data::{Batch, Schema};
use crate::embedding::{Choice, LookUp, Lookups, Spec, Table, Updater};
use crate::layer::Mlp;
use crate::machine::team::Team;
use crate::memory::{Arena, Pages, Plan, Supply, available_bytes};

/// Tables and everything between them and the loss.
#[derive(Debug)]
pub struct Dlrm {
    pub(super) tables: Vec<Table>,
    look_up: LookUp,
    updater: Updater,
    pub(super) dense: Dense,
    pub(super) precision: Precision,
}

/// What a model has room for, and how it moves embedding rows.
#[derive(Debug, Clone, Copy)]
pub struct Room {
    /// Samples of the largest minibatch.
    pub samples: usize,
    /// Look-ups a table and sample that are expected at most; more are possible, but allocate memory when they come.
    pub lookups: usize,
    /// How embedding rows are moved.
    pub update: Update,
    /// Whether they are moved without gradient rows in between.
    pub update_fused: bool,
    /// What weights are read in and how much of them is kept.
    pub precision: Precision,
}

impl Room {
    /// For minibatches of `samples` with one look-up a table, rows moved as the look-ups suggest.
    #[must_use]
    pub const fn samples(samples: usize) -> Self {
        Self { samples, lookups: 1, update: Update::Auto, update_fused: true, precision: Precision::F32 }
    }
}

impl Dlrm {
    /// A model for samples of this schema with room for minibatches of `samples`, all weights 0, each buffer where the
    /// system puts it.
    ///
    /// # Errors
    /// When the schema's dense features do not match, or the tables do not fit into memory.
    pub fn new(config: &ModelConfig, schema: &Schema, team: &Team, samples: usize) -> Result<Self> {
        Self::with_room(config, schema, team, Room::samples(samples))
    }

    /// As [`Dlrm::new`], with a way to move embedding rows.
    ///
    /// # Errors
    /// As [`Dlrm::new`].
    pub fn with_room(config: &ModelConfig, schema: &Schema, team: &Team, room: Room) -> Result<Self> {
        Self::from_supply(config, schema, team, room, &mut Supply::System)
    }

    /// As [`Dlrm::new`], in one arena on the nodes of `home`, touched by the team; the arena says where its pages are
    /// and what the user should know.
    ///
    /// # Errors
    /// As [`Dlrm::new`], and when the nodes have no room or are not allowed.
    pub fn on_nodes(
        config: &ModelConfig,
        schema: &Schema,
        team: &Team,
        room: Room,
        home: &[NodeId],
    ) -> Result<(Self, Arena)> {
        let mut plan = Plan::new();
        let mut model = Self::from_supply(config, schema, team, room, &mut Supply::Arena(&mut plan))?;
        let mut arena = Arena::build(&plan, home, Pages::Transparent, |memory| team.touch(memory))?;
        model.settle(&mut arena);
        Ok((model, arena))
    }

    fn from_supply(
        config: &ModelConfig,
        schema: &Schema,
        team: &Team,
        room: Room,
        supply: &mut Supply<'_>,
    ) -> Result<Self> {
        schema.check_dense(config.bottom[0], "model.bottom")?;
        check_memory(config, schema, room.precision)?;
        let Room { samples, precision, .. } = room;
        let tables = schema.tables.iter();
        let spec = Spec {
            update: room.update,
            fused: room.update_fused,
            pooling: config.pooling,
            tables: tables.len(),
            dim: config.dim,
            precision,
            lookups: samples * room.lookups * tables.len(),
            threads: team.threads(),
        };
        Ok(Self {
            look_up: LookUp::new(config.pooling, tables.len(), team.threads()),
            updater: Updater::new(spec, supply)?,
            dense: Dense::new(config, tables.len(), team, samples, precision, supply)?,
            tables: tables
                .map(|column| Table::with_precision(column.name.clone(), column.rows, config.dim, precision, supply))
                .collect::<Result<_>>()?,
            precision,
        })
    }

    fn settle(&mut self, arena: &mut Arena) {
        self.tables.iter_mut().for_each(|table| table.settle(arena));
        self.updater.settle(arena);
        self.dense.settle(arena);
    }

    /// Draws initial weights; see `model/init.rs` for their distributions.
    pub fn initialise(&mut self, team: &Team, seed: u64) {
        self.dense.initialise(seed);
        for (index, table) in (0..).zip(&mut self.tables) {
            init::table(team, table, index, seed);
        }
    }

    /// Forward: pools every table's rows into the features.
    ///
    /// # Panics
    /// When the minibatch was not checked against the model's schema.
    pub fn look_up(&mut self, team: &Team, batch: &Batch) {
        let slots = self.dense.slots();
        let features = self.dense.features_mut(batch.samples());
        self.look_up.run(team, &self.tables, Lookups::of(batch), features, slots);
    }

    /// Forward: the bottom MLP.
    pub fn bottom(&mut self, team: &Team, batch: &Batch) {
        self.dense.bottom(team, batch);
    }

    /// Forward: the interaction of all features.
    pub fn interact(&mut self, team: &Team, batch: &Batch) {
        self.dense.interact(team, batch);
    }

    /// Forward: the top MLP, to one logit a sample.
    pub fn top(&mut self, team: &Team, batch: &Batch) {
        self.dense.top(team, batch);
    }

    /// The mean loss; also leaves its gradient with respect to the logits.
    pub fn loss(&mut self, team: &Team, batch: &Batch) -> f64 {
        self.dense.loss(team, batch, batch.samples())
    }

    /// The click probabilities of the last `loss`, one a sample.
    #[must_use]
    pub fn probabilities(&self, batch: &Batch) -> &[f32] {
        self.dense.probabilities(batch.samples())
    }

    /// Backward: the top MLP.
    pub fn back_top(&mut self, team: &Team, batch: &Batch) {
        self.dense.back_top(team, batch, |_, _| ());
    }

    /// Backward: the interaction, and the ReLU that the bottom MLP ends with.
    pub fn back_interact(&mut self, team: &Team, batch: &Batch) {
        self.dense.back_interact(team, batch);
    }

    /// Backward: the bottom MLP.
    pub fn back_bottom(&mut self, team: &Team, batch: &Batch) {
        self.dense.back_bottom(team, batch, |_, _| ());
    }

    /// Moves the rows that the minibatch looked up.
    pub fn update_rows(&mut self, team: &Team, batch: &Batch, rate: f32) {
        let gradient = self.dense.features_gradient(batch.samples());
        let slots = self.dense.slots();
        self.updater.run(team, &mut self.tables, Lookups::of(batch), gradient, slots, rate);
    }

    /// How rows were last moved, and why so.
    #[must_use]
    pub const fn update_choice(&self) -> Option<&Choice> {
        self.updater.choice()
    }

    /// What the user should know about the configured way to move rows.
    #[must_use]
    pub fn update_note(&self) -> Option<String> {
        self.updater.note()
    }

    /// Moves the weights of both MLPs.
    pub fn update_dense(&mut self, team: &Team, rate: f32) {
        self.dense.update(team, rate);
    }

    /// What weights are read in and how much of them is kept.
    #[must_use]
    pub const fn precision(&self) -> Precision {
        self.precision
    }

    /// Both MLPs, the bottom one first.
    pub fn mlps(&self) -> impl Iterator<Item = &Mlp> {
        [&self.dense.bottom, &self.dense.top].into_iter()
    }

    /// The embedding tables.
    #[must_use]
    pub fn tables(&self) -> &[Table] {
        &self.tables
    }
}

/// Refuses tables that the machine cannot hold, before the first page is touched.
fn check_memory(config: &ModelConfig, schema: &Schema, precision: Precision) -> Result<()> {
    let bytes = |rows: u64| rows.saturating_mul((config.dim * precision.bytes()) as u64);
    let need = schema.tables.iter().fold(0u64, |sum, column| sum.saturating_add(bytes(column.rows)));
    let Some(free) = available_bytes() else { return Ok(()) };
    let largest = schema.tables.iter().enumerate().max_by_key(|(_, column)| column.rows);
    match largest {
        Some((table, column)) if need > free => Err(Error::TableTooBig {
            table: table as u32,
            name: column.name.clone(),
            rows: column.rows,
            dim: config.dim,
            table_need: Bytes(bytes(column.rows)),
            need: Bytes(need),
            free: Bytes(free),
        }),
        _ => Ok(()),
    }
}
