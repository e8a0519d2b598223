//! Tables that are looked up in one call, and moved in one: shards that a rank holds alone ([`TableGroup`]), and those
//! of which several ranks have copies, whole tables or hot rows ([`ReplicatedGroup`]).

use std::collections::HashSet;
use std::ops::Range;

use super::TrainSpec;
use super::sparse::SparseGradients;
use crate::base::config::Pooling;
use crate::base::{Result, TableId};
use crate::embedding::{LookUp, Lookups, Slots, Source, Spec, Table, Updater};
use crate::exchange::Layout;
use crate::machine::team::Team;
use crate::memory::Supply;
use crate::optim::{ParamGroup, ParamState, StepSizes};

/// What a group of tables is built for.
#[derive(Debug, Clone, Copy)]
pub(super) struct GroupSpec<'a> {
    pub train: &'a TrainSpec,
    pub pooling: Pooling,
    /// Columns of a row.
    pub dim: usize,
    /// Look-ups that move rows in the largest minibatch.
    pub lookups: usize,
    /// Threads of the team.
    pub threads: usize,
    /// Ranks for which rows are looked up at a time, at most.
    pub targets: usize,
}

impl GroupSpec<'_> {
    /// What moves rows of so many tables, of which this is kept.
    pub(super) fn updater(&self, tables: usize, kept: ParamState, supply: &mut Supply<'_>) -> Result<Updater> {
        let TrainSpec { update, update_fused: fused, .. } = *self.train;
        let Self { pooling, dim, lookups, threads, .. } = *self;
        Updater::new(Spec { update, fused, pooling, tables, dim, kept, lookups, threads }, supply)
    }
}

/// Tables of one width, pooled in one way, whose rows are of one parameter group.
#[derive(Debug)]
pub(super) struct TableGroup {
    pub tables: Vec<Table>,
    pub param_group: ParamGroup,
    pub look_up: LookUp,
    /// None of copies that their owners write.
    pub updater: Option<Updater>,
}

impl TableGroup {
    /// Tables whose rows this rank moves, and of which `kept` is kept.
    ///
    /// # Errors
    /// When the supply is exhausted.
    pub(super) fn new(
        tables: Vec<Table>,
        (param_group, kept): (ParamGroup, ParamState),
        spec: &GroupSpec<'_>,
        supply: &mut Supply<'_>,
    ) -> Result<Self> {
        let updater = spec.updater(tables.len(), kept, supply)?;
        Ok(Self { updater: Some(updater), ..Self::copies(tables, param_group, spec) })
    }

    /// Copies of rows that others move.
    pub(super) fn copies(tables: Vec<Table>, param_group: ParamGroup, spec: &GroupSpec<'_>) -> Self {
        let look_up = LookUp::for_targets(spec.pooling, tables.len(), spec.threads, spec.targets);
        Self { look_up, param_group, tables, updater: None }
    }

    /// Moves the rows that these sources looked up.
    ///
    /// # Panics
    /// When they are copies.
    pub(super) fn update(&mut self, team: &Team, sources: &[Source<'_>], step_sizes: StepSizes) {
        let updater = self.updater.as_mut().expect("tables whose rows this rank moves");
        updater.run(team, &mut self.tables, sources, step_sizes[self.param_group]);
    }
}

/// Tables of which other ranks have copies, too: whole ones, or hot rows of them. A rank looks them up for its own
/// samples alone, and tells the others the sums of its gradients.
#[derive(Debug)]
pub(super) struct ReplicatedGroup {
    pub ids: Vec<TableId>,
    pub group: TableGroup,
    /// The place of each one's bag among those that are looked up.
    bags: Vec<usize>,
    /// Where each one's columns begin in a sample's features.
    starts: Vec<usize>,
    positions: usize,
    /// Unless look-ups and gradients go to other ranks as they are.
    pub sums: Option<SparseGradients>,
}

impl ReplicatedGroup {
    /// These tables, with the places of their bags; those whose rows are sequences one by one.
    ///
    /// # Panics
    /// When there are none.
    pub(super) fn new(
        (ids, bags): (Vec<TableId>, Vec<usize>),
        group: TableGroup,
        sums: Option<SparseGradients>,
        layout: &Layout,
    ) -> Self {
        let starts = ids.iter().map(|table| layout.columns(*table).start).collect();
        Self { positions: layout.positions(ids[0]), ids, group, bags, starts, sums }
    }

    /// Pools the rows that these samples look up to their places among the samples' features, of `row` elements each.
    pub(super) fn look_up(
        &mut self,
        team: &Team,
        (lookups, samples): (Lookups<'_>, &Range<usize>),
        (features, row): (&mut [f32], usize),
    ) {
        let Self { group: TableGroup { tables, look_up, .. }, bags, starts, positions, .. } = self;
        let slots = Slots::new(row, starts).sequences(*positions, tables[0].dim());
        look_up.run(team, tables, lookups.in_tables(bags).in_bags(&slots.bags(samples)), features, slots);
    }

    /// Adds up the gradients of the rows that some samples looked up, `gradient` being that of their features; nothing
    /// where none are summed.
    pub(super) fn sum(
        &mut self,
        team: &Team,
        lookups: Lookups<'_>,
        (gradient, row): (&[f32], usize),
    ) -> Option<&mut SparseGradients> {
        let sums = self.sums.as_mut()?;
        let slots = Slots::new(row, &self.starts).sequences(self.positions, self.group.tables[0].dim());
        sums.sum(team, Source { lookups: lookups.in_tables(&self.bags), gradient, slots });
        Some(sums)
    }

    /// One of them.
    pub(super) fn table(&self, table: TableId) -> Option<&Table> {
        let mut tables = self.ids.iter().zip(&self.group.tables);
        tables.find_map(|(id, own)| (*id == table).then_some(own))
    }

    /// The same, to be overwritten.
    pub(super) fn table_mut(&mut self, table: TableId) -> Option<&mut Table> {
        let mut tables = self.ids.iter().zip(&mut self.group.tables);
        tables.find_map(|(id, own)| (*id == table).then_some(own))
    }

    /// What is looked up in them: elements of look-ups, of different rows, and of pooled rows; and those rows.
    pub(super) fn work(&self, lookups: Lookups<'_>) -> [usize; 4] {
        let (dim, mut work) = (self.group.tables[0].dim(), [0; 4]);
        for bag in lookups.in_tables(&self.bags).bags() {
            let different = bag.rows.iter().collect::<HashSet<_>>().len();
            let own = [bag.rows.len() * dim, different * dim, bag.samples() * dim, different];
            work.iter_mut().zip(own).for_each(|(sum, own)| *sum += own);
        }
        work
    }
}
