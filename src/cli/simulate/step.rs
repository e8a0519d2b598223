//! `octorec simulate`: a training step on a machine that is described or measured, for several numbers of ranks.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::path::PathBuf;

use clap::{Args, ValueEnum};
use serde::Serialize;

use super::calibrate;
use super::chart::{Line, lines};
use super::question::{Answer, Question};
use crate::base::config::{Command, Config, Determinism};
use crate::base::console::{note, shown};
use crate::base::units::Count;
use crate::base::{Error, Result, input};
use crate::cli::copies::HotArgs;
use crate::cli::division::planned;
use crate::cli::figures;
use crate::cli::help::{MACHINE, OUTPUT};
use crate::cli::output::{refuse_overwriting, refuse_unwritable};
use crate::cli::overrides::{BaseArgs, KeyArgs};
use crate::cli::place::{comm_cores, machine_file, on_described};
use crate::cli::ranks::Overlap;
use crate::cli::table::Table;
use crate::machine::placement::{CommCores, RankPer};
use crate::memory::write_file;
use crate::model::Shape;
use crate::shard::Options;
use crate::simulate::{MessageKind, Rates};

/// Links that `--json` lists, the busiest ones.
const BUSIEST: usize = 8;

/// More ranks send each other so many messages that they take minutes.
const MOST_RANKS: usize = 64;

/// Flags of `octorec simulate`.
#[derive(Debug, Clone, Args)]
pub struct StepArgs {
    #[command(flatten)]
    base: BaseArgs,
    #[command(flatten)]
    keys: KeyArgs,
    /// Numbers of ranks; default: one for each NUMA node with cores
    #[arg(long, value_name = "R,...", value_delimiter = ',', value_parser = clap::value_parser!(u32).range(1..=1024), display_order = 9)]
    ranks: Vec<u32>,
    /// Samples of each rank; the minibatch grows with the ranks (instead of --batch)
    #[arg(long, value_name = "N", conflicts_with = "batch", value_parser = clap::value_parser!(u32).range(1..), display_order = 6)]
    batch_per_rank: Option<u32>,
    /// strong: every number of ranks has the minibatch of --batch; weak: that is the smallest number's, and others'
    /// grow
    #[arg(long, value_enum, default_value_t, conflicts_with = "batch_per_rank", display_order = 7)]
    scaling: Scaling,
    /// The machine: `host`, a shipped name, FILE.toml, an hwloc FILE.xml or synthetic:DESCRIPTION
    #[arg(long, value_name = "MACHINE", default_value = "host", help_heading = MACHINE)]
    topology: String,
    /// What a rank is given
    #[arg(long, value_enum, default_value_t, help_heading = MACHINE)]
    rank_per: RankPer,
    /// Cores of each rank that reduce the gradients of layers while the others compute; threads on its core where it
    /// has but one; `auto`: as many as are predicted best
    #[arg(long, value_name = "N|auto", default_value = "auto", value_parser = comm_cores, help_heading = MACHINE)]
    comm_cores: CommCores,
    #[command(flatten)]
    hot: HotArgs,
    /// Whether communication cores reduce layers behind the backward pass or after it
    #[arg(long, value_enum, default_value_t, help_heading = MACHINE)]
    overlap: Overlap,
    /// Rates that were measured on real cores: what `octorec bench step --ranks 1 --json` printed for the same model;
    /// or FILE.toml with shares of the limits, as `topology/rates/sc20.toml`
    #[arg(long, value_name = "FILE", help_heading = MACHINE)]
    calibrate: Option<PathBuf>,
    /// Write a timeline of the last number of ranks for Perfetto
    #[arg(long, value_name = "FILE", help_heading = OUTPUT)]
    trace: Option<PathBuf>,
    /// Draw step time and speed-up over the number of ranks
    #[arg(long, value_name = "FILE", help_heading = OUTPUT)]
    svg: Option<PathBuf>,
    /// Print one JSON object, for scripts
    #[arg(long, display_order = 10)]
    json: bool,
}

impl Point {
    /// Compared with the samples a second of other ranks.
    fn of(answer: &Answer, before: Option<(f64, usize)>) -> Self {
        let (outcome, samples_per_s) = (&answer.outcome, answer.samples_per_s());
        let (others, ranks) = before.unwrap_or((samples_per_s, answer.ranks));
        let ms = |seconds: [f64; MessageKind::ALL.len()]| {
            MessageKind::ALL.into_iter().zip(seconds).map(|(kind, seconds)| (kind.name(), seconds * 1e3)).collect()
        };
        let links = outcome.busy.iter().filter(|(name, share)| name.starts_with("link ") && *share > 0.0);
        Self {
            ranks: answer.ranks,
            machines: answer.machines,
            batch: answer.batch,
            comm_cores: answer.comm_cores,
            cores_shared: answer.cores_shared,
            collective: answer.collective,
            step_ms: outcome.step_s * 1e3,
            samples_per_s,
            compute_ms: outcome.compute_s * 1e3,
            exposed_ms: ms(outcome.exposed_s),
            hidden_ms: ms(outcome.hidden_s),
            speedup: samples_per_s / others,
            efficiency: samples_per_s / others * ranks as f64 / answer.ranks as f64,
            hot_rows: answer.copies.map(|copies| copies.rows),
            hot_lookups: answer.copies.filter(|copies| copies.inputs.is_none()).map(|copies| copies.lookups),
            hot_inputs: answer.copies.and_then(|copies| copies.inputs),
            step_ms_without: answer.copies.map(|copies| copies.without_s * 1e3),
            links_busy: links.take(BUSIEST).cloned().collect(),
            bottleneck: outcome.bottleneck(),
        }
    }

    /// Whether ranks send each other gradients of replicated tables.
    fn lists_travel(&self) -> bool {
        let name = MessageKind::ReplicaGradients.name();
        self.exposed_ms[name] + self.hidden_ms[name] > 0.0
    }
}

/// Tells which flags change nothing about where ranks stand: with all of these numbers of them, or with some.
fn tell_idle(question: &Question<'_>, counts: &[Option<usize>]) -> Result<()> {
    let each = counts.iter().map(|count| Ok((*count, question.idle_flags(*count)?))).collect::<Result<Vec<_>>>()?;
    let mut all: Vec<&str> = each.iter().flat_map(|(_, idle)| idle.iter().copied()).collect();
    all.sort_unstable();
    all.dedup();
    for told in all {
        let of: Vec<_> = each.iter().filter(|(_, idle)| idle.contains(&told)).map(|(count, _)| count).collect();
        let ranks: Vec<String> = of.iter().filter_map(|count| Some(count.as_ref()?.to_string())).collect();
        match of.len() == each.len() {
            true => note!("note: {told}"),
            false => note!("note: with {} ranks {told}", ranks.join(", ")),
        }
    }
    Ok(())
}

/// How the minibatch follows the number of ranks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum)]
enum Scaling {
    #[default]
    Strong,
    Weak,
}

/// What is predicted.
#[derive(Debug, Serialize)]
struct Report {
    machine: String,
    figures: String,
    rates: String,
    points: Vec<Point>,
}

/// One number of ranks.
#[derive(Debug, Serialize)]
struct Point {
    ranks: usize,
    machines: usize,
    batch: usize,
    comm_cores: usize,
    /// Whether these compute, too, since there are no others.
    cores_shared: bool,
    collective: Option<&'static str>,
    step_ms: f64,
    samples_per_s: f64,
    compute_ms: f64,
    exposed_ms: BTreeMap<&'static str, f64>,
    hidden_ms: BTreeMap<&'static str, f64>,
    /// Samples a second over those of the first point.
    speedup: f64,
    /// That over the growth of ranks.
    efficiency: f64,
    /// Rows of which each rank has a copy.
    #[serde(skip_serializing_if = "Option::is_none")]
    hot_rows: Option<u64>,
    /// Share of look-ups that are of them.
    #[serde(skip_serializing_if = "Option::is_none")]
    hot_lookups: Option<f64>,
    /// Share of inputs that look up no others, where these are trained in minibatches of their own.
    #[serde(skip_serializing_if = "Option::is_none")]
    hot_inputs: Option<f64>,
    /// What a step takes without copies.
    #[serde(skip_serializing_if = "Option::is_none")]
    step_ms_without: Option<f64>,
    /// Shares of the time in which the busiest links are busy.
    links_busy: BTreeMap<String, f64>,
    bottleneck: String,
}

impl StepArgs {
    /// All points as text or JSON; writes the trace.
    pub(super) fn report(&self) -> Result<String> {
        let mut config = self.keys.finish_with(self.base.layers()?, Command::Simulate, self.hot.values())?;
        self.check(&config)?;
        if config.train.determinism == Determinism::Ranks {
            note!("a step is simulated with sums in any order: those of train.determinism = \"ranks\" are not");
            config.train.determinism = Determinism::Run;
        }
        let machine = figures::load(&self.topology)?;
        let (workload, by_number) = planned(&mut config, None, None)?;
        let mut counts: Vec<Option<usize>> = self.ranks.iter().map(|ranks| Some(*ranks as usize)).collect();
        if counts.is_empty() {
            counts.push(None);
        }

        let (usual, options) = (Rates::default(), Options::default());
        let question = Question {
            config: &config,
            machine: &machine,
            workload: &workload,
            rank_per: self.rank_per,
            comm_cores: self.comm_cores,
            overlap: self.overlap == Overlap::On,
            options: &options,
            rates: &usual,
        };
        let rates = self.rates(&question)?;
        let question = Question { rates: &rates, ..question };
        let (_, site) = question.site(counts[0], CommCores::Count(0))?;
        let first = site.ranks.len();
        let smallest = self.smallest(counts.iter().map(|count| count.unwrap_or(first)))?;
        tell_idle(&question, &counts)?;

        let mut points: Vec<Point> = Vec::new();
        let (mut last, mut warned) = (None, BTreeSet::new());
        for count in counts {
            let ranks = question.site(count, CommCores::Count(0))?.1.ranks.len();
            let batch = match (self.batch_per_rank, self.scaling) {
                (Some(each), _) => each as usize * ranks,
                (None, Scaling::Weak) => config.train.minibatch() * ranks / smallest,
                (None, Scaling::Strong) => config.train.minibatch(),
            };
            let answer = by_number.explain(question.ask(count, batch));
            let answer = answer.map_err(|error| on_described(&self.topology, error))?;
            let news = answer.warnings.iter().filter(|warning| warned.insert((*warning).clone()));
            news.for_each(|warning| note!("warning: {warning}"));
            let before = points.first().map(|point| (point.samples_per_s, point.ranks));
            points.push(Point::of(&answer, before));
            last = Some(answer.outcome);
        }
        if let (Some(path), Some(outcome)) = (&self.trace, &last) {
            write_file(path, outcome.trace().as_bytes())?;
        }
        let told = figures::tell(&machine, &site.assumptions);
        if let Some(path) = &self.svg {
            write_file(path, chart(&machine.name, &points).as_bytes())?;
        }
        let report = Report { machine: machine.name, figures: told, rates: rates.told, points };
        Ok(shown(&report, self.json))
    }

    /// Refuses flags that contradict each other, and outputs that are inputs.
    fn check(&self, config: &Config) -> Result<()> {
        let minibatch = ["train.batch", "train.accumulate"].into_iter().find_map(|key| self.keys.origin(key));
        if let Some(origin) = minibatch.filter(|_| self.batch_per_rank.is_some()) {
            let reason = "--batch-per-rank says how large minibatches are: leave one of the two away".to_owned();
            return Err(Error::config(origin, reason));
        }
        let mut inputs = self.base.input_files(config, Command::Simulate);
        inputs.extend(machine_file(&self.topology).into_iter().chain(self.calibrate.as_deref()));
        let outputs = [("--trace", self.trace.as_deref()), ("--svg", self.svg.as_deref())];
        refuse_overwriting(&outputs, &inputs)?;
        refuse_unwritable(&outputs.map(|(_, path)| path))
    }

    /// The smallest of these numbers of ranks, if a step of each can be simulated.
    fn smallest(&self, counts: impl Iterator<Item = usize> + Clone) -> Result<usize> {
        if matches!(self.comm_cores, CommCores::Count(1..)) && counts.clone().all(|count| count == 1) {
            let reason = "one rank has nobody to communicate with: use more --ranks, or leave it away";
            return Err(Error::config("--comm-cores", reason));
        }
        if let Some(ranks) = counts.clone().find(|ranks| *ranks > MOST_RANKS) {
            let reason = format!("{ranks} ranks are too many to simulate a step of: at most {MOST_RANKS}");
            return Err(Error::config("--ranks", reason));
        }
        Ok(counts.min().unwrap_or(1))
    }

    /// Those of the file that was named, or the usual ones.
    fn rates(&self, question: &Question<'_>) -> Result<Rates> {
        let Some(path) = &self.calibrate else { return Ok(Rates::default()) };
        if path.extension().is_some_and(|extension| extension == "toml") {
            let refuse = |reason| Error::config(path.display().to_string(), reason);
            return Rates::parse(&input::read_text(path)?).map_err(refuse);
        }
        let (config, workload) = (question.config, question.workload);
        let shape = Shape::of(&config.model, &workload.positions(), &workload.dims());
        let measured = calibrate::read(path, shape.parameters())?;
        let limits = Rates::at_the_limits();
        let (placement, site) = question.site(Some(1), CommCores::Count(0))?;
        let least = Question { rates: &limits, ..*question }.ask(Some(1), measured.batch);
        let least = least.map_err(|error| on_described(&self.topology, error))?;
        let peak = site.ranks[0].peak_gflop_s(question.workload.bf16);
        measured.rates(&least.outcome, placement.ranks[0].compute.len(), peak, path)
    }
}

/// Samples a second, beside those that as many times the ranks would ideally give.
fn chart(machine: &str, points: &[Point]) -> String {
    let ranks = |point: &Point| point.ranks as f64;
    let first = &points[0];
    let line = |name: &str, of: &dyn Fn(&Point) -> f64| Line {
        name: name.to_owned(),
        points: points.iter().map(|point| (ranks(point), of(point))).collect(),
        joined: true,
    };
    let all = [
        line("predicted", &|point| point.samples_per_s),
        line("in proportion to ranks", &|point| first.samples_per_s * ranks(point) / ranks(first)),
    ];
    lines(&format!("training on {machine}"), ["ranks", "samples a second"], &all)
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "A training step on {}; {}\n", self.machine, self.rates)?;
        let mut table = Table::new([
            "ranks",
            "minibatch",
            "step ms",
            "samples/s",
            "compute ms",
            "exposed ms",
            "hidden ms",
            "speedup",
            "efficiency",
            "dense gradients",
            "limited by",
        ]);
        for point in &self.points {
            let sum = |ms: &BTreeMap<&str, f64>| ms.values().sum::<f64>();
            let by = match (&point.collective, point.comm_cores) {
                (None, _) => String::new(),
                (Some(name), 0) => format!("{name}, compute cores"),
                (Some(name), threads) if point.cores_shared => format!("{name}, {threads} threads on compute cores"),
                (Some(name), cores) => format!("{name}, {cores} cores"),
            };
            table.row([
                point.ranks.to_string(),
                point.batch.to_string(),
                format!("{:.2}", point.step_ms),
                format!("{:.0}", point.samples_per_s),
                format!("{:.2}", point.compute_ms),
                format!("{:.2}", sum(&point.exposed_ms)),
                format!("{:.2}", sum(&point.hidden_ms)),
                format!("{:.2}", point.speedup),
                format!("{:.0} %", point.efficiency * 1e2),
                by,
                point.bottleneck.clone(),
            ]);
        }
        writeln!(f, "{table}")?;
        let several = || self.points.iter().filter(|point| point.ranks > 1);
        let copies = several().any(|point| point.step_ms_without.is_some());
        let lists = several().any(|point| point.lists_travel());
        let shown = |kind: &MessageKind| match kind {
            MessageKind::HotGradients | MessageKind::HotRows => copies,
            MessageKind::ReplicaGradients => lists,
            _ => true,
        };
        let kinds = || MessageKind::ALL.into_iter().filter(shown);
        let mut exposed = Table::new(["ranks, exposed ms"].into_iter().chain(kinds().map(MessageKind::name)));
        for point in several() {
            let cells = kinds().map(|kind| format!("{:.3}", point.exposed_ms[kind.name()]));
            exposed.row([point.ranks.to_string()].into_iter().chain(cells));
        }
        if several().next().is_some() {
            write!(f, "{exposed}")?;
        }
        if !copies {
            return Ok(());
        }
        let mut gains = Table::new(["ranks", "hot rows", "hot", "step ms without copies", "gain"]);
        for point in several() {
            let without = point.step_ms_without.unwrap_or(point.step_ms);
            let hot = match (point.hot_inputs, point.hot_lookups) {
                (Some(inputs), _) => format!("{:.1} % of inputs", inputs * 1e2),
                (None, lookups) => format!("{:.1} % of look-ups", lookups.unwrap_or(0.0) * 1e2),
            };
            gains.row([
                point.ranks.to_string(),
                Count(point.hot_rows.unwrap_or(0)).to_string(),
                hot,
                format!("{without:.2}"),
                format!("{:.2}", without / point.step_ms),
            ]);
        }
        write!(f, "\n{gains}")
    }
}
