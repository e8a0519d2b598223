//! Several ranks on this host: how they are asked for, started and reported on.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;

use clap::builder::{PossibleValuesParser, TypedValueParser};
use clap::{Args, ValueEnum};
use serde::Serialize;

use super::bench::step::draw;
use super::bench::table::Table;
use super::plan::divide;
use super::session::room;
use super::topo::comm_cores;
use crate::base::config::{Config, Determinism, SourceKind};
use crate::base::{Error, Result};
use crate::data::{self, Batch, LoaderMode, Opening, Source};
use crate::machine::placement::{CommCores, Placement, Wishes};
use crate::machine::{Machine, place};
use crate::math::Grains;
use crate::simd::Isa;
use crate::train::ranks::{Breakdown, Ranks, Setup, Stage};

/// Rows of a table, at most, in the steps that choose the number of communication threads: they are about what is dense.
const TRIAL_ROWS: u64 = 1000;
/// Steps by which a number of communication threads is judged, after as many as warm up.
const TRIAL_STEPS: usize = 6;
/// Communication threads that are tried, at most a quarter of a rank's cores.
const TRIALS: [usize; 5] = [0, 1, 2, 4, 8];

/// How a model is trained by several ranks.
#[derive(Debug, Clone, Args)]
pub struct RankArgs {
    /// Train on this many ranks, each a team of --threads threads with its own part of the tables; 1: all on one.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=4096))]
    pub ranks: u32,

    /// Divide the tables among ranks as this file of `octorec plan --out` says; default: as is predicted to be best.
    #[arg(long, value_name = "FILE")]
    pub plan: Option<PathBuf>,

    /// Cores of each rank that exchange the gradients of layers while the others compute: a number, or `auto`, which
    /// tries some before training and prints what they gave.
    #[arg(long, value_name = "N|auto", default_value = "auto", value_parser = comm_cores)]
    pub comm_cores: CommCores,

    /// Whether communication cores work behind the backward pass or after it.
    #[arg(long, value_enum, default_value_t)]
    pub overlap: Overlap,

    /// How several ranks read the data: each its own slices of minibatches (default), one for all, or each everything.
    #[arg(long, value_name = "MODE", value_parser = loader_mode())]
    pub loader: Option<LoaderMode>,
}

fn loader_mode() -> impl TypedValueParser<Value = LoaderMode> {
    PossibleValuesParser::new(LoaderMode::ALL.map(LoaderMode::name))
        .map(|name| LoaderMode::ALL.into_iter().find(|mode| mode.name() == name).expect("no other value is possible"))
}

/// When communication cores exchange the gradients of a layer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum)]
pub enum Overlap {
    /// As soon as they are there.
    #[default]
    On,
    /// When all are there: the compute cores wait.
    Off,
}

impl RankArgs {
    /// Whether ranks are at work, be it a single one.
    ///
    /// # Errors
    /// When flags contradict each other: what would have no effect is refused.
    pub fn several(&self, config: &Config) -> Result<bool> {
        let by_grains = config.train.determinism == Determinism::Ranks;
        let several = self.ranks > 1 || self.plan.is_some() || by_grains;
        let refuse =
            |origin: &str, reason: &str| Err(Error::Config { origin: origin.to_owned(), reason: reason.to_owned() });
        match self.comm_cores {
            CommCores::Count(1..) if by_grains => refuse(
                "--comm-cores",
                "--determinism ranks sums gradients with the compute cores: leave it away or use 0",
            ),
            CommCores::Count(1..) if self.ranks == 1 => {
                refuse("--comm-cores", "one rank has nobody to communicate with: use --ranks, or leave it away")
            }
            _ if !several && self.loader.is_some() => {
                refuse("--loader", "one rank reads whole minibatches: use --ranks, or leave it away")
            }
            _ if several && !config.train.tuned.is_empty() => {
                refuse("--tuned", "it is for one rank: leave --ranks, --plan and --determinism ranks away")
            }
            _ => Ok(several),
        }
    }

    fn wishes(&self, config: &Config, comm_cores: CommCores) -> Wishes {
        let threads = (config.train.threads > 0).then_some(config.train.threads);
        Wishes { ranks: Some(self.ranks as usize), threads, comm_cores, ..Wishes::default() }
    }

    /// Places the ranks, divides the tables and starts, all weights 0; prints where each stands.
    ///
    /// # Errors
    /// When the wishes cannot be met, or threads or memory are refused.
    pub fn start(&self, config: &Config, source: &dyn Source) -> Result<Ranks> {
        let machine = Machine::load("host")?;
        let placement = self.place(config, &machine)?;
        let ranks = Ranks::start(self.setup(config, source, &machine, &placement)?)?;
        // Where the kernel does not say, the ranks' warnings do.
        if let Ok(pages) = ranks.verify() {
            eprintln!("pages: {pages}");
        }
        if let Some(cost) = ranks.ordered_cost()? {
            eprintln!("determinism: ranks: {cost}");
        }
        ranks.warnings().iter().for_each(|warning| eprintln!("warning: {warning}"));
        Ok(ranks)
    }

    /// Where the ranks stand, which is printed.
    ///
    /// # Errors
    /// When the wishes cannot be met.
    pub fn place(&self, config: &Config, machine: &Machine) -> Result<Placement> {
        let comm_cores = match self.comm_cores {
            // Sums by grains are the compute threads'.
            CommCores::Auto if config.train.determinism == Determinism::Ranks => CommCores::Count(0),
            CommCores::Auto => CommCores::Count(self.choose(config, machine)?),
            count => count,
        };
        let placement = place(machine, &self.wishes(config, comm_cores))?;
        placement.warnings.iter().for_each(|warning| eprintln!("warning: {warning}"));
        placement.ranks.iter().for_each(|rank| eprintln!("placement: {}", placement.line(rank)));
        Ok(placement)
    }

    /// What the ranks are built from.
    ///
    /// # Errors
    /// When the plan does not fit.
    pub fn setup(
        &self,
        config: &Config,
        source: &dyn Source,
        machine: &Machine,
        placement: &Placement,
    ) -> Result<Setup> {
        let sharding = divide(config, source.schema(), machine, placement, self.plan.as_deref())?;
        let setup = Setup::new(&config.model, source.schema(), sharding, room(config, source), placement);
        let grains = (config.train.determinism == Determinism::Ranks).then(|| Grains::of(config.train.batch));
        Ok(Setup { isa: Isa::chosen(config.train.isa)?, overlap: self.overlap == Overlap::On, grains, ..setup })
    }

    /// The number of communication cores with which a step on small tables is quickest; prints the trade.
    fn choose(&self, config: &Config, machine: &Machine) -> Result<usize> {
        let placement = |count: usize| place(machine, &self.wishes(config, CommCores::Count(count)));
        let plain = placement(0)?;
        let cores = plain.ranks.iter().map(|rank| rank.compute.len()).min().unwrap_or(1);
        let fits = |count: &usize| *count == 0 || *count <= (cores / 4).max(1) && *count < cores;
        let able = |count: &usize| placement(*count).is_ok_and(|placement| placement.spin);
        let counts: Vec<usize> = TRIALS.into_iter().filter(fits).filter(able).collect();
        if self.ranks == 1 || counts.len() < 2 {
            return Ok(0);
        }
        let mut small = config.clone();
        small.data.source = SourceKind::Random;
        small.data.rows_cap = TRIAL_ROWS;
        small.model.rows.iter_mut().for_each(|rows| *rows = (*rows).min(TRIAL_ROWS));
        let source = data::open(&small, Opening::default())?;
        let batches = minibatches(&*source, 2, small.train.batch)?;
        let trial = |count: usize| {
            let args = Self { plan: None, ..self.clone() };
            let ranks = Ranks::start(args.setup(&small, &*source, machine, &placement(count)?)?)?;
            Ok((count, Steps::run(&ranks, &batches, TRIAL_STEPS, small.train.lr as f32)?.median_ms()))
        };
        let trials: Vec<(usize, f64)> = counts.into_iter().map(trial).collect::<Result<_>>()?;
        let &(best, _) = trials.iter().min_by(|a, b| a.1.total_cmp(&b.1)).expect("two trials at least");
        let told: Vec<String> = trials.iter().map(|(count, ms)| format!("{count}: {ms:.2} ms")).collect();
        eprintln!(
            "communication cores of a rank: {best} (a step with tables of at most {TRIAL_ROWS} rows takes with {})",
            told.join(", ")
        );
        Ok(best)
    }
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
    /// When a rank fails.
    ///
    /// # Panics
    /// When the loss is no number.
    pub fn run(ranks: &Ranks, batches: &[Arc<Batch>], count: usize, rate: f32) -> Result<Self> {
        ranks.initialise(1)?;
        let step = |batch: &Arc<Batch>| {
            let began = Instant::now();
            let loss = ranks.step(batch, rate)?;
            assert!(loss.is_finite(), "the step trains");
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
        (self.ms[(self.ms.len() - 1) / 2] + self.ms[self.ms.len() / 2]) / 2.0
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

    /// The mean over ranks of one stage.
    #[must_use]
    pub fn stage(&self, stage: Stage) -> f64 {
        self.mean(|rank| rank.stages_ms[stage as usize])
    }
}

impl fmt::Display for Breakdowns {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut table = Table::new(["a rank's step", "mean ms", "least", "most"]);
        let mut row = |name: &str, ms: &dyn Fn(&Breakdown) -> f64| {
            let least = self.ranks.iter().map(ms).fold(f64::INFINITY, f64::min);
            let most = self.ranks.iter().map(ms).fold(0.0, f64::max);
            let figures = [self.mean(ms), least, most].map(|ms| format!("{ms:.3}"));
            table.row(std::iter::once(name.to_owned()).chain(figures));
        };
        for (index, stage) in self.stages.iter().enumerate() {
            row(stage.name(), &|rank| rank.stages_ms[index]);
        }
        row("all of it", &|rank| rank.stages_ms.iter().sum());
        row("hidden: dense gradients", &|rank| rank.hidden_dense_ms);
        write!(f, "{table}")
    }
}
