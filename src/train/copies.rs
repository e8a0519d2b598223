//! Where copies of hot rows lie, and how others take their place between two steps.
//!
//! Copies have memory of their own, as much as the rows that are hot need. A revision builds it anew: a copy of a row
//! that stays is moved within the rank, and owners send the rows of which ranks had no copy, as they send moved ones.
//! No result of a step depends on which rows are hot, but the order of sums may, unless it is fixed
//! ([`crate::exchange::LayoutSpec::grains`]).

use std::sync::Arc;

use super::{Rank, Ranks, Setup, hot_step};
use crate::base::{RankId, Result};
use crate::collective::Carrier;
use crate::data::hot::HotSlots;
use crate::exchange::{HotLanes, HotRows, Layout, RankContext};
use crate::machine::team::Team;
use crate::memory::{Arena, Plan, Supply};
use crate::model::Copies;

/// Whether copies of hot rows are equal to the rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) enum CopyState {
    /// They are.
    #[default]
    Fresh,
    /// Rows that are marked have moved since.
    Stale,
    /// Weights were set, of any rows.
    Overwritten,
}

/// What a rank has for its copies of hot rows.
pub(super) struct HotState {
    pub rows: HotRows,
    pub state: CopyState,
    pub memory: Arena,
    /// Bytes to each rank that brought copies up to date, outside of any step's own.
    pub filled: Vec<usize>,
    pub lanes: HotLanes<Box<dyn Carrier>>,
}

impl HotState {
    /// That of copies which lie in this memory.
    pub fn new(setup: &Setup, layout: &Layout, rank: RankId, memory: Arena, lanes: HotLanes<Box<dyn Carrier>>) -> Self {
        Self {
            rows: hot_rows(setup, layout, rank),
            state: CopyState::Overwritten,
            memory,
            filled: vec![0; layout.ranks()],
            lanes,
        }
    }
}

fn hot_rows(setup: &Setup, layout: &Layout, rank: RankId) -> HotRows {
    HotRows::new(layout, rank, setup.spec.samples, setup.isa).expect(HOT)
}

const HOT: &str = "a layout with hot rows";

/// Copies whose memory is planned, and which are not built yet.
pub(super) struct PlannedCopies<'a> {
    setup: &'a Setup,
    layout: &'a Layout,
    rank: RankId,
    team: &'a Team,
    plan: Plan,
}

impl<'a> PlannedCopies<'a> {
    /// Those of a rank, if the layout has hot rows.
    pub fn new(setup: &'a Setup, layout: &'a Layout, rank: RankId, team: &'a Team) -> Result<Option<Self>> {
        if layout.hot().is_none() {
            return Ok(None);
        }
        let plan = Plan::of(|supply| build(setup, layout, rank, team, supply))?;
        Ok(Some(Self { setup, layout, rank, team, plan }))
    }

    /// Bytes of their memory.
    pub fn bytes(&self) -> usize {
        self.plan.bytes()
    }

    /// Builds them on the rank's nodes.
    pub fn build(self) -> Result<(Copies, Arena)> {
        let Self { setup, layout, rank, team, plan } = self;
        let home = &setup.places[rank.index()].memory_nodes;
        let mut arena = Arena::build(plan, home, |memory| team.touch(memory))?;
        let copies = arena.fill(|supply| build(setup, layout, rank, team, supply))?;
        Ok((copies.expect(HOT), arena))
    }
}

fn build(setup: &Setup, layout: &Layout, rank: RankId, team: &Team, supply: &mut Supply<'_>) -> Result<Option<Copies>> {
    Copies::new((&setup.config, &setup.schema), layout, rank, team, setup.spec, supply)
}

impl Rank {
    /// Has copies of a layout's hot rows from now on, which differs from this rank's in nothing else, equal to the
    /// rows.
    fn revise_copies(&mut self, setup: &Setup, layout: Arc<Layout>) -> Result<()> {
        self.clock.enter("revision of hot rows");
        let RankContext { rank, team, layout: old } = &self.context;
        let planned = PlannedCopies::new(setup, &layout, *rank, team)?.expect(HOT);
        let (mut copies, memory) = planned.build()?;
        if let Some(before) = self.tables.replace_copies(None) {
            copies.take_over(&before, [old, &layout], team, *rank);
        }
        self.tables.replace_copies(Some(copies));
        let hot = self.hot.as_mut().expect(HOT);
        (hot.memory, hot.rows) = (memory, hot_rows(setup, &layout, *rank));
        // Copies that were equal to their rows lack those alone that are marked now.
        hot.state = if hot.state == CopyState::Fresh { CopyState::Stale } else { CopyState::Overwritten };
        self.context.layout = layout;
        hot_step::refresh_copies(self)
    }
}

impl Ranks {
    /// Has copies of these hot rows from now on, in place of those that there were; returns the bytes that ranks have
    /// sent each other for that.
    ///
    /// # Errors
    /// As [`Ranks::all`], when machines have other hot rows, and when a rank's node cannot hold old and new copies.
    ///
    /// # Panics
    /// When ranks have no copies, or the rows are of other tables.
    pub fn revise_hot(&mut self, hot: Arc<HotSlots>) -> Result<u64> {
        self.world().agree("have copies of the same hot rows", &hot.digest(), self.job.deadline())?;
        let layout = Arc::new(self.layout.with_hot_revised(hot));
        self.layout = layout.clone();
        let setup = self.setup.clone();
        let filled = |rank: &Rank| rank.hot.iter().flat_map(|hot| &hot.filled).sum::<usize>();
        let sent = self.all(move |rank| {
            let before = filled(rank);
            rank.revise_copies(&setup, layout.clone())?;
            Ok((filled(rank) - before) as u64)
        })?;
        Ok(self.everywhere("gather bytes of a revision", sent)?.iter().flatten().sum())
    }
}
