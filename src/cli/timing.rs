//! Steps of ranks against the clock: the minibatches that they take, their milliseconds, and where these went.

use std::sync::Arc;
use std::time::Instant;

use serde::Serialize;

use crate::base::{Error, PuId, Result, median};
use crate::data::{Batch, Source, Split};
use crate::machine::placement::Placement;
use crate::machine::team::Team;
use crate::model::Stage;
use crate::simd::Isa;
use crate::train::{Breakdown, Ranks, Rates};

/// A team on all cores of a placement that compute, to measure what its ranks could reach together.
///
/// # Errors
/// As [`Team::pinned`].
pub fn machine_team(placement: &Placement, isa: Isa) -> Result<Team> {
    let mut pus: Vec<PuId> = placement.ranks.iter().flat_map(|rank| rank.compute.iter().copied()).collect();
    pus.sort_unstable();
    pus.dedup();
    Team::pinned(&pus, placement.spin, isa)
}

/// So many checked minibatches of a source.
pub fn draw(source: &dyn Source, count: usize, samples: usize) -> Result<Vec<Batch>> {
    let mut reader = source.open(Split::Train, 0)?;
    let draw = |_| {
        let mut batch = Batch::new(source.schema());
        reader.read(&mut batch, samples)?;
        batch.check(source.schema())?;
        Ok(batch)
    };
    (0..count).map(draw).collect()
}

/// So many minibatches that ranks can share.
pub fn minibatches(source: &dyn Source, count: usize, samples: usize) -> Result<Vec<Arc<Batch>>> {
    Ok(draw(source, count, samples)?.into_iter().map(Arc::new).collect())
}

/// Timed steps of ranks.
pub struct Steps {
    /// Milliseconds, ascending.
    pub ms: Vec<f64>,
    /// Where the timed steps and those before went.
    pub breakdowns: Vec<Breakdown>,
}

impl Steps {
    /// Runs as many steps as warm up and then as many with the clock.
    ///
    /// # Errors
    /// When a rank fails, or the loss is no number.
    pub fn run(ranks: &Ranks, batches: &[Arc<Batch>], count: usize, rates: Rates) -> Result<Self> {
        ranks.initialise(1)?;
        let mut number = 0;
        let mut step = |batch: &Arc<Batch>| {
            number += 1;
            let began = Instant::now();
            let loss = ranks.step(batch, rates)?;
            if !loss.is_finite() {
                let rate = f64::from(rates.layers.max(rates.rows));
                return Err(Error::Diverged { step: number, loss, by_weight: false, rate, cause: None, saved: None });
            }
            Ok(began.elapsed().as_secs_f64() * 1e3)
        };
        batches.iter().cycle().take(count.max(batches.len())).try_for_each(|batch| step(batch).map(|_| ()))?;
        let mut ms = batches.iter().cycle().take(count).map(step).collect::<Result<Vec<_>>>()?;
        ms.sort_by(f64::total_cmp);
        Ok(Self { ms, breakdowns: ranks.breakdowns()? })
    }

    /// The median step.
    #[must_use]
    pub fn median_ms(&self) -> f64 {
        median(&mut self.ms.clone())
    }
}

/// Where the steps of all ranks went.
#[derive(Debug, Serialize)]
pub struct Breakdowns {
    /// The names of the columns of `stages_ms`.
    pub stages: [Stage; Stage::ALL.len()],
    /// By rank.
    pub ranks: Vec<Breakdown>,
}

impl Breakdowns {
    /// Those of some ranks.
    #[must_use]
    pub const fn new(ranks: Vec<Breakdown>) -> Self {
        Self { stages: Stage::ALL, ranks }
    }

    /// The mean over ranks.
    #[must_use]
    pub fn mean(&self, ms: impl Fn(&Breakdown) -> f64) -> f64 {
        self.ranks.iter().map(ms).sum::<f64>() / self.ranks.len().max(1) as f64
    }

    /// The mean over ranks of some stages together.
    #[must_use]
    pub fn stages(&self, stages: &[Stage]) -> f64 {
        self.mean(|rank| stages.iter().map(|stage| rank.stages_ms[*stage as usize]).sum())
    }
}
