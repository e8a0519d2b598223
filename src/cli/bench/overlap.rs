//! `octorec bench overlap`: what exchanging dense gradients costs, and how much of it hides behind the backward pass.
//!
//! The comparison of SC20's Figure 6 on this machine: GEMMs alone, communication alone, and what of it is exposed,
//! blocking and overlapped. Tables are small, so that the step is about what is dense.

use std::fmt;

use clap::Args;
use serde::Serialize;

use super::ranks::enough;
use crate::base::Result;
use crate::base::config::{Command, Config};
use crate::base::console::note;
use crate::base::units::Bytes;
use crate::cli::collective::{Choice, Dense};
use crate::cli::figures;
use crate::cli::overrides::{BaseArgs, KeyArgs, sized};
use crate::cli::ranks::{Overlap, Purpose, RankArgs, StartSpec, Started};
use crate::cli::session::open_generated;
use crate::cli::table::Table;
use crate::cli::timing::{Breakdowns, Steps, minibatches};
use crate::collective::World;
use crate::machine::limits::Processor;
use crate::machine::placement::{CommCores, Placement, Wishes};
use crate::machine::{Machine, place};
use crate::model::Stage;
use crate::train::Rates;

/// Rows of a table, unless the user caps them otherwise.
const ROWS: i64 = 1000;

/// Flags of `octorec bench overlap`.
#[derive(Debug, Clone, Args)]
#[command(mut_arg("preset", sized))]
pub struct OverlapArgs {
    #[command(flatten)]
    base: BaseArgs,
    #[command(flatten)]
    keys: KeyArgs,
    /// Ranks on each machine
    #[arg(long, value_name = "R", default_value_t = 2, value_parser = clap::value_parser!(u32).range(1..=64))]
    ranks: u32,
    /// Communication threads of each rank; they share the compute cores where there are no others
    #[arg(long, value_name = "S", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=64))]
    comm_cores: u32,
    /// Steps that are timed
    #[arg(long, value_name = "N", default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..))]
    repeat: u32,
    /// Print one JSON object, for scripts
    #[arg(long)]
    pub(super) json: bool,
}

/// What was measured.
#[derive(Debug, Serialize)]
pub struct Report {
    machine: Processor,
    /// Of all machines.
    ranks: usize,
    machines: usize,
    comm_cores: u32,
    /// Whether communication threads share the compute threads' cores.
    cores_shared: bool,
    batch: usize,
    precision: &'static str,
    /// Bytes between ranks in a step, for dense gradients and weights.
    bytes: usize,
    /// How they are reduced, and why.
    #[serde(skip_serializing_if = "Option::is_none")]
    collective: Option<Choice>,
    rows: Vec<Row>,
}

#[derive(Debug, Serialize)]
struct Row {
    mode: &'static str,
    step_ms: f64,
    /// Layers, interaction and loss; the mean over ranks, as all below.
    gemm_ms: f64,
    /// The exchange of dense gradients, whoever does it.
    communication_ms: f64,
    /// Of it, what the compute threads wait for or do themselves.
    exposed_ms: f64,
    /// Bytes between ranks / time of the exchange.
    gb_s: f64,
    breakdowns: Breakdowns,
}

/// The stages of the network.
const DENSE: [Stage; 7] =
    [Stage::Bottom, Stage::Interact, Stage::Top, Stage::Loss, Stage::BackTop, Stage::BackInteract, Stage::BackBottom];

impl OverlapArgs {
    fn config(&self) -> Result<Config> {
        let mut layers = self.base.layers_with_sizes(&self.keys)?;
        layers.fix("data.source", "random", "bench overlap")?;
        // Whatever a preset of large tables says.
        if !layers.in_file("data.rows_cap") {
            layers.fix("data.rows_cap", ROWS, "bench overlap")?;
        }
        let mut config = self.keys.finish(layers, Command::Overlap)?;
        let data = &config.data;
        config.model.rows.iter_mut().for_each(|rows| *rows = data.capped(*rows));
        config.train.eval_batch = 1;
        Ok(config)
    }

    /// Measures all modes.
    ///
    /// # Errors
    /// When the configuration is wrong, threads or memory are refused, or a rank fails.
    pub fn measure(&self, world: &World) -> Result<Report> {
        let (ranks, machines) = (self.ranks as usize * world.machines(), world.machines());
        enough(ranks)?;
        let config = self.config()?;
        let host = figures::load("host")?;
        let args = RankArgs::count(self.ranks as usize);
        let (own, mut with_threads) = self.placements(&config, &host)?;
        let cores_shared = with_threads.is_none();
        let posted = with_threads.take().unwrap_or_else(|| own.sharing(self.comm_cores as usize));
        let source = open_generated(&config)?;
        let batches = minibatches(&*source, 4, config.train.minibatch())?;
        let modes = [
            ("blocking, compute threads", &own, Overlap::Off),
            ("blocking, communication threads", &posted, Overlap::Off),
            ("overlapped", &posted, Overlap::On),
        ];
        let (mut rows, mut bytes, mut chosen) = (Vec::new(), 0, None::<Choice>);
        for (mode, placement, overlap) in modes {
            let first = rows.is_empty();
            let tell = &mut |line: &str| {
                if first {
                    note!("{line}");
                }
            };
            // All modes send the same.
            let dense = chosen.as_ref().map_or(Dense::Chosen, |choice| Dense::Given(choice.reduction().clone()));
            let task = StartSpec { dense, ..StartSpec::new(world, &config, &*source, Purpose::Train(overlap)) };
            let Started { ranks, dense, .. } = args.start_on(&host, placement.clone(), task, tell)?;
            chosen = dense.or(chosen);
            let steps = Steps::run(&ranks, &batches, self.repeat as usize, Rates::base(&config.train))?;
            bytes = ranks.dense_traffic()?.total();
            let step_ms = steps.median_ms();
            let breakdowns = Breakdowns::new(steps.breakdowns);
            let exposed_ms = breakdowns.stages(&[Stage::ReduceDense]);
            let communication_ms = exposed_ms + breakdowns.mean(|rank| rank.hidden_dense_ms);
            rows.push(Row {
                mode,
                step_ms,
                gemm_ms: breakdowns.stages(&DENSE),
                communication_ms,
                exposed_ms,
                gb_s: bytes as f64 / communication_ms / 1e6,
                breakdowns,
            });
        }
        let machine = Processor::of_this_machine()?;
        let (comm_cores, batch) = (self.comm_cores, config.train.minibatch());
        let precision = config.train.precision.name();
        Ok(Report {
            machine,
            ranks,
            machines,
            comm_cores,
            cores_shared,
            batch,
            precision,
            bytes,
            collective: chosen,
            rows,
        })
    }

    /// Without communication cores, and with them if there are enough.
    fn placements(&self, config: &Config, host: &Machine) -> Result<(Placement, Option<Placement>)> {
        let threads = (config.train.threads > 0).then_some(config.train.threads);
        let wishes = |count| Wishes {
            ranks: Some(self.ranks as usize),
            threads,
            comm_cores: CommCores::Count(count),
            ..Wishes::default()
        };
        Ok((place(host, &wishes(0))?, place(host, &wishes(self.comm_cores as usize)).ok()))
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}", self.machine)?;
        let shared = if self.cores_shared { ", which share the compute cores" } else { "" };
        let on = if self.machines > 1 { format!(" on {} machines", self.machines) } else { String::new() };
        writeln!(
            f,
            "{} ranks{on} with {} communication threads each{shared}; {} samples in {}; {} between ranks a step\n",
            self.ranks,
            self.comm_cores,
            self.batch,
            self.precision,
            Bytes(self.bytes as u64)
        )?;
        let mut table =
            Table::new(["gradients of layers", "step ms", "GEMM ms", "communication ms", "exposed ms", "GB/s"]);
        for row in &self.rows {
            let figures = [row.step_ms, row.gemm_ms, row.communication_ms, row.exposed_ms, row.gb_s];
            table.row(std::iter::once(row.mode.to_owned()).chain(figures.map(|figure| format!("{figure:.2}"))));
        }
        writeln!(f, "{table}\noverlapped:\n")?;
        self.rows.last().map_or(Ok(()), |row| {
            let mut stages = Table::new(["stage", "mean ms"]);
            for stage in row.breakdowns.stages {
                stages.row([stage.name().to_owned(), format!("{:.3}", row.breakdowns.stages(&[stage]))]);
            }
            write!(f, "{stages}")
        })
    }
}
