//! A training step of a model on some ranks of a machine, and what it is predicted to take.

use std::collections::BTreeSet;

use crate::base::Result;
use crate::base::config::{Config, Hot};
use crate::cli::collective::impossible;
use crate::cli::copies::usual_budget;
use crate::cli::place::idle_flags;
use crate::collective::plan::Reduction;
use crate::data::hot::Inputs;
use crate::machine::placement::{CommCores, Placement, RankPer, Wishes, comm_cores_to_try};
use crate::machine::site::Known;
use crate::machine::{Machine, Site, place};
use crate::model::Shape;
use crate::optim::{Optimizer, ParamState};
use crate::shard::{HotPrices, Model, Options, RankLoad, Workload, plan};
use crate::simulate::{Outcome, Rates, Scene, simulate};

/// With more ranks than this fewer numbers of communication cores are tried.
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
    /// Whether they are compute cores, too.
    pub cores_shared: bool,
    /// How dense gradients are reduced; nothing with one rank.
    pub collective: Option<&'static str>,
    /// What copies of hot rows are and bring, where ranks have some.
    pub copies: Option<CopyGain>,
    /// What the user should know of where ranks stand.
    pub warnings: Vec<String>,
    pub outcome: Outcome,
}

/// Copies of hot rows, and what a step would take without them.
#[derive(Debug, Clone, Copy)]
pub(super) struct CopyGain {
    pub rows: u64,
    /// Share of look-ups that are of rows with copies, where every minibatch has them.
    pub lookups: f64,
    /// Share of inputs that look up no others, where these are trained in minibatches of their own.
    pub inputs: Option<f64>,
    pub without_s: f64,
}

impl Answer {
    pub fn samples_per_s(&self) -> f64 {
        self.batch as f64 / self.outcome.step_s
    }
}

impl Question<'_> {
    /// Where so many ranks would stand.
    pub fn site(&self, ranks: Option<usize>, comm_cores: CommCores) -> Result<(Placement, Site)> {
        let wishes = self.wishes(ranks, comm_cores);
        let placement = place(self.machine, &wishes).or_else(|refused| {
            let alone = place(self.machine, &Wishes { comm_cores: CommCores::Count(0), ..wishes })?;
            match comm_cores {
                // As `octorec bench overlap` does.
                CommCores::Count(count) if alone.ranks.iter().all(|place| place.compute.len() == 1) => {
                    Ok(alone.sharing(count))
                }
                _ => Err(refused),
            }
        })?;
        let site = Site::new(self.machine, &placement, Known::default());
        Ok((placement, site))
    }

    /// What is told of flags without which so many ranks would stand where they do.
    pub fn idle_flags(&self, ranks: Option<usize>) -> Result<Vec<&'static str>> {
        let wishes = self.wishes(ranks, CommCores::Count(0));
        Ok(idle_flags(self.machine, &wishes, &place(self.machine, &wishes)?))
    }

    fn wishes(&self, ranks: Option<usize>, comm_cores: CommCores) -> Wishes {
        let threads = Some(self.config.train.threads).filter(|threads| *threads > 0);
        Wishes { rank_per: self.rank_per, ranks, threads, comm_cores, smt: false }
    }

    /// With the best of the numbers of communication cores that may be taken, for minibatches of `batch` samples.
    pub fn ask(&self, ranks: Option<usize>, batch: usize) -> Result<Answer> {
        let ranks_there = place(self.machine, &self.wishes(ranks, CommCores::Count(0)))?.ranks.len();
        let tried: Vec<usize> = match self.comm_cores {
            _ if ranks_there == 1 => vec![0],
            CommCores::Count(count) => vec![count],
            CommCores::Auto => {
                let few = ranks_there > MANY_RANKS;
                let counts = comm_cores_to_try(self.machine, &self.wishes(ranks, CommCores::Auto))?;
                counts.into_iter().filter(|count| !few || [0, 2, 4].contains(count)).collect()
            }
        };
        let workload = Workload { batch, ..self.workload.clone() };
        let (mut best, mut without_s): (Option<Answer>, _) = (None, f64::INFINITY);
        for count in tried {
            let answer = self.with_cores(ranks, count, &workload)?;
            without_s = answer.copies.map_or(without_s, |copies| copies.without_s.min(without_s));
            if best.as_ref().is_none_or(|best| answer.outcome.step_s < best.outcome.step_s) {
                best = Some(answer);
            }
        }
        let mut best = best.expect("some number is tried");
        // Without copies another number of cores may be best.
        best.copies.iter_mut().for_each(|copies| copies.without_s = without_s);
        Ok(best)
    }

    fn with_cores(&self, ranks: Option<usize>, comm_cores: usize, workload: &Workload) -> Result<Answer> {
        let (placement, site) = self.site(ranks, CommCores::Count(comm_cores))?;
        let model = Model::new(workload, &site);
        let plan = plan(&model, self.options)?;
        let shape = Shape::of(&self.config.model, &workload.positions(), &workload.dims());
        let reduction = self.reduction(&model)?;
        let precision = self.config.model.layer_precision(self.config.train.precision);
        let kept = ParamState { precision, optimizer: Optimizer::dense(&self.config.train), row_weights: false };
        let scene = |rows: &[RankLoad]| {
            simulate(&Scene {
                shape: &shape,
                kept,
                clips: self.config.train.clip_norm > 0.0,
                model: &model,
                rows,
                placement: &placement,
                reduction,
                payload: workload.payload,
                overlap: self.overlap,
                rates: self.rates,
            })
        };
        let outcome = scene(&RankLoad::without_copies(&model, &plan.sharding));
        let (outcome, copies) = match self.config.train.hot {
            hot if hot == Hot::Off || model.ranks() == 1 => (outcome, None),
            hot => {
                let prices = HotPrices::new(workload, &plan.sharding);
                let weights =
                    workload.tables.iter().map(|table| table.rows * (table.dim * size_of::<f32>()) as u64).sum();
                let price = prices.of(self.config.train.hot_budget.or(usual_budget(weights)));
                let step = |rows: &[u64], inputs| scene(&RankLoad::with_copies(&model, &prices, rows, inputs));
                let mut copies =
                    CopyGain { rows: price.rows, lookups: price.lookups, inputs: None, without_s: outcome.step_s };
                let outcome = if hot == Hot::Exact {
                    step(&prices.rows(price.budget), Inputs::Mixed)
                } else {
                    (copies.rows, copies.inputs) = (price.fae.rows, Some(price.fae.inputs));
                    match price.fae.inputs {
                        none if none <= 0.0 => outcome,
                        inputs => outcome.mixed(&step(&prices.fae_rows(price.budget), Inputs::Hot), inputs),
                    }
                };
                (outcome, Some(copies))
            }
        };
        let hosts: BTreeSet<u32> = placement.ranks.iter().map(|place| place.host).collect();
        Ok(Answer {
            ranks: site.ranks.len(),
            machines: hosts.len(),
            batch: workload.batch,
            comm_cores,
            cores_shared: placement.shares_cores(),
            collective: reduction.map(|reduction| reduction.name),
            copies,
            warnings: placement.warnings,
            outcome,
        })
    }

    /// The schedule that was asked for, or the quickest of all for this network's layers; none for one rank.
    fn reduction<'m>(&self, model: &'m Model<'_>) -> Result<Option<&'m Reduction>> {
        let wanted = self.config.train.collective;
        let dense = model.dense.as_ref().map(|dense| &dense.reduction);
        if dense.is_none() && model.ranks() > 1 {
            return Err(impossible(wanted));
        }
        Ok(dense)
    }
}
