//! A training step of a model on some ranks of a machine, and what it is predicted to take.

use std::collections::BTreeSet;

use super::collectives::ranks_of_a_host;
use crate::base::config::{Collective, Config, Wire};
use crate::base::{Error, Result};
use crate::cli::collective::tensors;
use crate::collective::plan::{Reduction, Topology, reductions};
use crate::collective::{Payload, priced};
use crate::machine::placement::{CommCores, Placement, RankPer, Wishes};
use crate::machine::site::Known;
use crate::machine::{Machine, Site, place};
use crate::model::Shape;
use crate::optim::{Kept, Optimizer};
use crate::shard::{Model, Options, Workload, plan};
use crate::simulate::{Outcome, Rates, Scene, simulate};

/// Numbers of communication cores that are tried.
const COMM_CORES: [usize; 6] = [0, 1, 2, 4, 6, 8];

/// With more ranks than this fewer of them are tried.
const MANY_RANKS: usize = 16;

/// What is asked.
#[derive(Clone, Copy)]
pub(super) struct Question<'a> {
    pub config: &'a Config,
    pub machine: &'a Machine,
    pub workload: &'a Workload,
    pub rank_per: RankPer,
    pub comm_cores: CommCores,
    /// Whether layers are reduced behind the backward pass.
    pub overlap: bool,
    /// How tables may be divided.
    pub options: &'a Options,
    pub rates: &'a Rates,
}

/// What is predicted.
pub(super) struct Answer {
    pub ranks: usize,
    pub machines: usize,
    pub batch: usize,
    pub comm_cores: usize,
    /// How dense gradients are reduced; nothing with one rank.
    pub collective: Option<&'static str>,
    pub outcome: Outcome,
}

impl Answer {
    pub fn samples_per_s(&self) -> f64 {
        self.batch as f64 / self.outcome.step_s
    }
}

impl Question<'_> {
    /// Where so many ranks would stand.
    pub fn site(&self, ranks: Option<usize>, comm_cores: CommCores) -> Result<(Placement, Site)> {
        let threads = Some(self.config.train.threads).filter(|threads| *threads > 0);
        let wishes = Wishes { rank_per: self.rank_per, ranks, threads, comm_cores, smt: false };
        let placement = place(self.machine, &wishes)?;
        let site = Site::new(self.machine, &placement, Known::default());
        Ok((placement, site))
    }

    /// With the best of the numbers of communication cores that may be taken, for minibatches of `batch` samples.
    pub fn ask(&self, ranks: Option<usize>, batch: usize) -> Result<Answer> {
        let (placement, _) = self.site(ranks, CommCores::Count(0))?;
        let cores = placement.ranks.iter().map(|place| place.compute.len()).min().unwrap_or(1);
        let ranks_there = placement.ranks.len();
        let tried: Vec<usize> = match self.comm_cores {
            _ if ranks_there == 1 => vec![0],
            CommCores::Count(count) => vec![count],
            CommCores::Auto => {
                let few = ranks_there > MANY_RANKS;
                let fits = |count: &usize| 2 * count < cores.max(1) && (!few || [0, 2, 4].contains(count));
                COMM_CORES.into_iter().filter(fits).collect()
            }
        };
        let workload = Workload { batch, ..self.workload.clone() };
        let mut best: Option<Answer> = None;
        for count in tried {
            let answer = self.with_cores(ranks, count, &workload)?;
            if best.as_ref().is_none_or(|best| answer.outcome.step_s < best.outcome.step_s) {
                best = Some(answer);
            }
        }
        Ok(best.expect("some number is tried"))
    }

    fn with_cores(&self, ranks: Option<usize>, comm_cores: usize, workload: &Workload) -> Result<Answer> {
        let (placement, site) = self.site(ranks, CommCores::Count(comm_cores))?;
        let model = Model::new(workload, &site);
        let plan = plan(&model, self.options)?;
        let tables = workload.tables.len();
        let shape = Shape::dlrm(&self.config.model, tables, tables * workload.dim);
        let payload = if self.config.train.wire == Wire::Bf16 { Payload::Bf16 } else { Payload::F32 };
        let reduction = self.reduction(&placement, &site, payload)?;
        let kept = Kept { precision: self.config.train.precision, optimizer: Optimizer::dense(&self.config.train) };
        let outcome = simulate(&Scene {
            shape: &shape,
            kept,
            model: &model,
            sharding: &plan.sharding,
            placement: &placement,
            reduction: reduction.as_ref(),
            payload,
            overlap: self.overlap,
            rates: self.rates,
        });
        let hosts: BTreeSet<u32> = placement.ranks.iter().map(|place| place.host).collect();
        Ok(Answer {
            ranks: site.ranks.len(),
            machines: hosts.len(),
            batch: workload.batch,
            comm_cores,
            collective: reduction.map(|reduction| reduction.name),
            outcome,
        })
    }

    /// The schedule that was asked for, or the quickest of all for this network's layers.
    fn reduction(&self, placement: &Placement, site: &Site, payload: Payload) -> Result<Option<Reduction>> {
        if site.ranks.len() == 1 {
            return Ok(None);
        }
        let topology = Topology::along(site, ranks_of_a_host(placement));
        if self.config.train.collective != Collective::Auto {
            let name = self.config.train.collective.name();
            let named = Reduction::named(name, &topology);
            return named.map(Some).ok_or_else(|| {
                let reason = format!("{name} is for several machines with equally many ranks: choose another");
                Error::Config { origin: "train.collective".to_owned(), reason }
            });
        }
        let tensors = tensors(self.config, self.workload.tables.len());
        let best = priced(reductions(&topology), &tensors, payload, site).into_iter().next();
        Ok(best.map(|best| best.reduction))
    }
}
