//! `octorec tune gemm`: measures how the passes of a model's layers are best cut and blocked on this machine.
//!
//! The library's choice comes from a cost model that knows no machine (`math/brgemm/plan.rs`). Here all plans that the
//! library can follow are tried on the shapes of a configuration. First each runs a few times, then the quickest in
//! turns. The one that is then best runs against the model's choice, pair by pair, so that a machine that drifts does
//! not decide: it is called better only if it won more pairs than chance would let it win in one of 20 comparisons.

use std::collections::HashMap;
use std::fmt;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use clap::{Args, Subcommand};
use serde::Serialize;

use super::bench::chain::{Chain, Pass, Precision};
use super::output::{refuse_overwriting, refuse_unwritable};
use super::overrides::{BaseArgs, KeyArgs};
use super::place::place_team;
use super::table::Table;
use super::tuned::{Entry, PlanFile};
use crate::base::config::{Command, Config, SourceKind};
use crate::base::console::{note, shown};
use crate::base::{Result, console, median};
use crate::data::derived::derived_columns;
use crate::data::{self, Opening, Schema};
use crate::machine::limits::Processor;
use crate::machine::team::Team;
use crate::math::brgemm::{Plan, install};
use crate::math::{CHAIN, Parts, part_for};
use crate::memory::write_file;
use crate::memory::{self, Supply};
use crate::model::{Graph, NetworkSpec, Shape};
use crate::optim::ByGroup;
use crate::simd::Isa;

/// Plans that reach the second round, the model's included.
const FINALISTS: usize = 5;

/// The least time and runs of one measurement of the first round.
const TRIAL: (Duration, usize) = (Duration::from_millis(3), 3);

/// A plan that is not quicker than the model's by more than this is not worth a line in a file.
const WORTH_WRITING: f64 = 1.01;

/// How likely it may be that a plan that is no better is called better.
const CHANCE: f64 = 0.05;

/// Flags of `octorec tune`.
#[derive(Debug, Clone, Args)]
pub struct TuneArgs {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, Clone, Subcommand)]
enum What {
    /// How the passes of fully connected layers are cut over threads and blocked for the caches.
    Gemm(Box<GemmArgs>),
}

/// Flags of `octorec tune gemm`.
#[derive(Debug, Clone, Args)]
pub struct GemmArgs {
    #[command(flatten)]
    base: BaseArgs,
    #[command(flatten)]
    keys: KeyArgs,
    /// Write the plans that are quicker than the model's to this file, for `--tuned` of `train` and `bench`
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
    /// Tune for one kind of numbers; default: f32, and bf16 where the processor multiplies it
    #[arg(long, value_name = "NAME")]
    only: Option<Precision>,
    /// Runs of each of the quickest plans, in turn, and then pairs of the best and the model's: 5 at least can tell
    /// them apart
    #[arg(long, value_name = "N", default_value_t = 15, value_parser = clap::value_parser!(u32).range(1..=1000))]
    repeat: u32,
    /// Print one JSON object, for scripts
    #[arg(long)]
    json: bool,
}

/// What was measured.
#[derive(Debug, Serialize)]
pub struct Report {
    machine: Processor,
    isa: &'static str,
    threads: usize,
    rows: Vec<Row>,
}

#[derive(Debug, Serialize)]
struct Row {
    n: usize,
    c: usize,
    k: usize,
    precision: Precision,
    pass: Pass,
    /// Plans that were measured.
    candidates: usize,
    model: Choice,
    /// The quickest, if it is surely quicker than the model's; else the model's.
    best: Choice,
    /// The median of the pairs' `model / best`.
    gain: f64,
    /// Pairs that `best` won, of how many.
    won: [usize; 2],
    #[serde(skip)]
    entry: Entry,
}

/// A plan and its median time.
#[derive(Debug, Clone, Copy, Serialize)]
struct Choice {
    across: usize,
    down: usize,
    depth: usize,
    group: usize,
    strips: bool,
    ms: f64,
    #[serde(skip)]
    plan: Plan,
}

impl TuneArgs {
    /// Tunes, prints and writes.
    ///
    /// # Errors
    /// When the configuration is wrong, threads or memory are refused, or the file cannot be written.
    pub fn run(&self) -> Result<()> {
        let What::Gemm(args) = &self.what;
        let config = args.keys.finish(args.base.layers()?, Command::Tune)?;
        refuse_overwriting(&[("--out", args.out.as_deref())], &args.base.input_files(&config, Command::Tune))?;
        refuse_unwritable(&[args.out.as_deref()])?;
        let (report, file) = args.measure()?;
        console::result(format_args!("{}", shown(&report, args.json)))?;
        if let Some(path) = &args.out {
            let text = toml::to_string(&file).expect("a table of numbers and names is TOML");
            let text = format!("# Plans of `octorec tune gemm`; use with --tuned on the machine named here.\n{text}");
            write_file(path, text.as_bytes())?;
            note!("written: {} plans to {}", file.plans.len(), path.display());
        }
        Ok(())
    }
}

impl GemmArgs {
    fn measure(&self) -> Result<(Report, PlanFile)> {
        let config = self.keys.finish(self.base.layers()?, Command::Tune)?;
        let (team, _) = place_team(config.train.threads, config.train.isa)?;
        let (layers, samples) = layers(&config, team.threads())?;
        let precisions = match self.only {
            Some(one) => vec![one],
            None if matches!(team.isa(), Isa::Scalar(_)) => vec![Precision::F32],
            None => vec![Precision::F32, Precision::Bf16],
        };
        let mut file = PlanFile::empty(team.threads(), team.isa())?;
        let mut rows = Vec::new();
        for precision in precisions {
            for &(c, k) in &layers {
                let sizes = [samples, c, k];
                let mut chain = Chain::new(&team, sizes[0], &[c, k], precision);
                for pass in Pass::ALL {
                    rows.push(tune(&team, &mut chain, sizes, precision, pass, self.repeat as usize));
                }
            }
        }
        install(HashMap::new());
        let worth = rows.iter().filter(|row| row.gain > WORTH_WRITING).map(|row| row.entry.clone());
        for entry in worth {
            // Two layers, or two kinds of numbers, may have passes of one shape.
            if file.plans.iter().all(|known| known.shape(file.threads) != entry.shape(file.threads)) {
                file.plans.push(entry);
            }
        }
        let report =
            Report { machine: Processor::of_this_machine()?, isa: team.isa().name(), threads: team.threads(), rows };
        Ok((report, file))
    }
}

/// Inputs and outputs of the model's layers, each pair once, and the samples that they get at a time.
fn layers(config: &Config, threads: usize) -> Result<(Vec<(usize, usize)>, usize)> {
    // Tables count, their rows do not; only the built-in sources know them without reading a file.
    let mut small = config.clone();
    small.model.rows.iter_mut().for_each(|rows| *rows = 1);
    let schema = match config.data.source {
        _ if !config.model.rows.is_empty() => {
            Schema::criteo(config.model.dense(), &small.model.rows).named(&config.model.columns)
        }
        SourceKind::Tsv => Schema::criteo(13, &[1; 26]),
        SourceKind::Criteo | SourceKind::Taobao | SourceKind::Random | SourceKind::Files => {
            let mut schema = data::open(&small, Opening::default())?.schema().clone();
            schema.tables.iter_mut().for_each(|table| table.rows = 1);
            schema
        }
    };
    small.model.follow(schema.dense, schema.names(), schema.rows());
    let schema = derived_columns(&small.model, &schema)?.map_or(schema.clone(), |columns| columns.schema(&schema));
    let (config, dims) = (&small.model, &small.model.dims(&schema.rows())[..]);
    let (positions, kept) = (&schema.positions(config)[..], ByGroup::all(small.train.precision.into()));
    let spec = NetworkSpec { config, dims, positions, samples: 1, part: 1, threads: 1, kept };
    // It has no memory, and is never run.
    let network = Graph::build(&spec, &mut Supply::Plan(&mut memory::Plan::new()))?;
    let mut layers = Vec::new();
    for parameter in network.parameters() {
        // Weights are outputs x inputs.
        if let [k, c] = parameter.shape[..]
            && !layers.contains(&(c, k))
        {
            layers.push((c, k));
        }
    }
    let shape = Shape::of(config, positions, dims);
    let mut parts = Parts::new(small.train.part.given().unwrap_or_else(|| part_for(shape.part_sizes(), threads)), None);
    let minibatch = small.train.minibatch();
    parts.cut(minibatch, minibatch);
    Ok((layers, parts.part(0).with_rows(config.steps()).len()))
}

/// Measures the plans of one pass.
fn tune(
    team: &Team,
    chain: &mut Chain,
    [samples, c, k]: [usize; 3],
    precision: Precision,
    pass: Pass,
    repeat: usize,
) -> Row {
    // Gradients of weights are summed in chains.
    let sizes = [if pass == Pass::BackwardWeights { samples.min(CHAIN) } else { samples }, c, k];
    chain.shorten(sizes[0]);
    let shape = pass.shape(precision, sizes, team);
    let run = |plan: Plan, chain: &mut Chain| {
        install(HashMap::from([(shape, plan)]));
        let began = Instant::now();
        chain.run(team, pass);
        began.elapsed().as_secs_f64() * 1e3
    };
    let candidates = Plan::candidates(shape);
    let mut first: Vec<(f64, Plan)> = candidates
        .iter()
        .map(|&plan| {
            run(plan, chain);
            // Every plan gives the defined sums.
            chain.check(team.isa(), pass);
            let (mut times, began) = (Vec::new(), Instant::now());
            while times.len() < TRIAL.1 || began.elapsed() < TRIAL.0 {
                times.push(run(plan, chain));
            }
            (median(&mut times), plan)
        })
        .collect();
    let model = first[0].1;
    first[1..].sort_by(|a, b| a.0.total_cmp(&b.0));
    let finalists: Vec<Plan> = first.iter().take(FINALISTS).map(|(_, plan)| *plan).collect();
    let mut times = vec![Vec::with_capacity(repeat); finalists.len()];
    for _ in 0..repeat {
        for (&plan, times) in finalists.iter().zip(&mut times) {
            times.push(run(plan, chain));
        }
    }
    let choice = |(plan, times): (&Plan, &mut Vec<f64>)| {
        let Plan { across, down, depth, group, strips, .. } = *plan;
        Choice { across, down, depth, group, strips, ms: median(times), plan: *plan }
    };
    let choices: Vec<Choice> = finalists.iter().zip(&mut times).map(choice).collect();
    let best = choices.iter().copied().min_by(|a, b| a.ms.total_cmp(&b.ms)).expect("the model's plan is one");
    debug_assert_eq!(choices[0].plan, model);

    // What was quickest of several was lucky, too: the two meet once more.
    let [mut of_model, mut of_best] = in_turns([model, best.plan], repeat, |plan| run(plan, chain));
    let mut ratios: Vec<f64> = of_model.iter().zip(&of_best).map(|(model, best)| model / best).collect();
    let won = ratios.iter().filter(|ratio| **ratio > 1.0).count();
    let sure = best.plan != model && is_no_chance(won, repeat) && median(&mut ratios) > 1.0;
    let model = Choice { ms: median(&mut of_model), ..choices[0] };
    let (best, gain) =
        if sure { (Choice { ms: median(&mut of_best), ..best }, median(&mut ratios)) } else { (model, 1.0) };
    let [n, c, k] = sizes;
    let entry = Entry::new(shape, best.plan, gain);
    Row { n, c, k, precision, pass, candidates: candidates.len(), model, best, gain, won: [won, repeat], entry }
}

/// What two plans take, `repeat` times each: first one begins, then the other.
fn in_turns(plans: [Plan; 2], repeat: usize, mut run: impl FnMut(Plan) -> f64) -> [Vec<f64>; 2] {
    let mut taken = [const { Vec::new() }; 2];
    for round in 0..repeat {
        for of in [round % 2, 1 - round % 2] {
            taken[of].push(run(plans[of]));
        }
    }
    taken
}

/// Whether somebody who wins every second round would win so many of `rounds` with a probability of at most [`CHANCE`]:
/// the sign test.
fn is_no_chance(won: usize, rounds: usize) -> bool {
    let (mut ways, mut as_many) = (1.0, 0.0);
    let all = 2.0f64.powi(rounds as i32);
    for wins in (won..=rounds).rev() {
        as_many += ways / all;
        ways *= wins as f64 / (rounds - wins + 1) as f64;
    }
    as_many <= CHANCE
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { machine, isa, threads, rows } = self;
        writeln!(f, "{machine}")?;
        writeln!(
            f,
            "{threads} threads with {isa}; plans: panels / rows cut, steps x panels at a time, in strips or not\n"
        )?;
        let mut table =
            Table::new(["N x C x K", "numbers", "pass", "tried", "model's", "ms", "best", "ms", "gain", "pairs won"]);
        for row in rows {
            let plan = |choice: &Choice| {
                let Choice { across, down, depth, group, strips, .. } = choice;
                let strips = if *strips { " strips" } else { "" };
                [format!("/{across} /{down}, {depth} x {group}{strips}"), format!("{:.3}", choice.ms)]
            };
            let names = [
                format!("{} x {} x {}", row.n, row.c, row.k),
                row.precision.to_string(),
                row.pass.name().to_owned(),
                row.candidates.to_string(),
            ];
            let [won, pairs] = row.won;
            let gain = if row.best.plan == row.model.plan {
                "-".to_owned()
            } else {
                format!("{:+.1} %", 100.0 * (row.gain - 1.0))
            };
            let gain = [gain, format!("{won} of {pairs}")];
            table.row(names.into_iter().chain(plan(&row.model)).chain(plan(&row.best)).chain(gain));
        }
        writeln!(f, "{table}")?;
        let total = |choice: fn(&Row) -> f64| rows.iter().map(choice).sum::<f64>();
        let (model, best) = (total(|row| row.model.ms), total(|row| row.best.ms));
        writeln!(f, "  all passes once: {model:.3} ms by the model, {best:.3} ms by the best plans")
    }
}

#[cfg(test)]
mod tests {
    use super::{is_no_chance, layers};
    use crate::base::config::Config;

    #[test]
    fn passes_have_as_many_rows_as_a_step_that_is_made_of_several_minibatches() {
        let of = |batch: usize, accumulate: usize| {
            let mut config = Config::default();
            config.model.rows = vec![50, 7];
            (config.model.bottom, config.model.top, config.model.dim) = (vec![13, 80, 16], vec![70, 1], 16);
            (config.train.batch, config.train.accumulate) = (batch, accumulate);
            layers(&config, 2).expect("a model with layers")
        };
        assert_eq!(of(32, 3), of(96, 1));
        assert_eq!((of(32, 3).1, of(32, 1).1), (96, 32));
    }

    #[test]
    fn chance_is_ruled_out_by_the_sign_test() {
        // P(at least 12 of 15) = 0.0176, P(at least 11) = 0.0592; P(5 of 5) = 0.03125, P(4 of 4) = 0.0625.
        for (won, rounds, no_chance) in
            [(12, 15, true), (11, 15, false), (5, 5, true), (4, 4, false), (0, 0, false), (1000, 1000, true)]
        {
            assert_eq!(is_no_chance(won, rounds), no_chance, "{won} of {rounds}");
        }
    }
}
