//! `octorec plan`: which rank holds which part of which table, what that costs, and why.

use std::fs;
use std::path::{Path, PathBuf};

use clap::{Args, ValueEnum};
use serde::Serialize;

use super::overrides::{BaseArgs, KeyArgs};
use super::place::PlaceArgs;
use super::session::open_data;
use crate::base::config::{Config, Interaction, SourceKind};
use crate::base::console::note;
use crate::base::error::nearest;
use crate::base::{Error, Result, TableId, console};
use crate::data::{Labels, Schema, Unseen};
use crate::machine::placement::Placement;
use crate::machine::{Machine, place};
use crate::memory::write_file;
use crate::optim::{Kept, Optimizer};
use crate::shard::planner::{Alternative, alternatives, price};
use crate::shard::scheme::{Kind, REPLICATE_BELOW, Sharding};
use crate::shard::site::Known;
use crate::shard::{Model, Options, Plan, Site, TableLoad, Workload, file, plan, report};

/// The skew of a click log's rows where nobody says it: what the embedding benches of the papers' authors use is 1.05
/// to 1.2.
const CLICK_LOG_SKEW: f64 = 1.05;

/// Arguments of `octorec plan`.
#[derive(Debug, Args)]
#[command(args_override_self = true)]
pub struct PlanArgs {
    #[command(flatten)]
    base: BaseArgs,
    #[command(flatten)]
    keys: KeyArgs,
    #[command(flatten)]
    place: PlaceArgs,
    /// Divide every table in this way.
    #[arg(long, value_enum, default_value_t)]
    scheme: Wish,
    /// Tables with fewer rows are copied to each rank, unless something else is clearly faster.
    #[arg(long, value_name = "ROWS", default_value_t = REPLICATE_BELOW)]
    replicate_below: u64,
    /// Follow a plan from a file instead of looking for one.
    #[arg(long, value_name = "FILE")]
    plan: Option<PathBuf>,
    /// Write the plan to a file that can be edited and given to --plan.
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
    /// Show what other ways to divide a table would give: its number or name.
    #[arg(long, value_name = "TABLE", conflicts_with = "json")]
    explain: Option<String>,
    /// Print everything as JSON, for scripts.
    #[arg(long)]
    json: bool,
    /// Look-ups a table and sample, on average; default: what the data says.
    #[arg(long, value_name = "N")]
    lookups: Option<f64>,
    /// Zipf exponent of the rows' frequencies; default: data.zipf for random data, 1.05 for click logs.
    #[arg(long, value_name = "S")]
    skew: Option<f64>,
    /// Bytes of a weight as look-ups read it: 4 is f32, 2 is bf16; default: what train.precision says.
    #[arg(long, value_name = "N")]
    weight_bytes: Option<usize>,
    /// Bytes besides that an update reads: lower halves, the optimizer's moments; default: what train.precision and
    /// train.optimizer_rows say.
    #[arg(long, value_name = "N")]
    state_bytes: Option<usize>,
    /// Bytes of optimizer state a row: row-wise Adagrad 4.
    #[arg(long, value_name = "N", default_value_t = 0)]
    row_state_bytes: usize,
    /// Bytes of an exchanged number: 4 is f32, 2 is bf16.
    #[arg(long, value_name = "N", default_value_t = 4)]
    exchange_bytes: usize,
    /// Memory bandwidth of nodes for which the machine's description has none, in GB/s.
    #[arg(long, value_name = "GB/S")]
    memory_gb_s: Option<f64>,
    /// Bandwidth of links for which the machine's description has none, in GB/s each way.
    #[arg(long, value_name = "GB/S")]
    link_gb_s: Option<f64>,
}

/// How tables shall be divided.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum)]
enum Wish {
    /// Each as is best.
    #[default]
    Auto,
    /// Whole tables.
    Table,
    /// Columns.
    Column,
    /// Rows.
    Row,
    /// A copy on each rank.
    Replicated,
}

impl Wish {
    const fn kind(self) -> Option<Kind> {
        match self {
            Self::Auto => None,
            Self::Table => Some(Kind::Table),
            Self::Column => Some(Kind::Column),
            Self::Row => Some(Kind::Row),
            Self::Replicated => Some(Kind::Replicated),
        }
    }
}

#[derive(Serialize)]
struct Everything<'a> {
    workload: &'a Workload,
    site: &'a Site,
    options: &'a Options,
    plan: &'a Plan,
}

impl PlanArgs {
    /// Prints the plan, and writes it if a file was named.
    ///
    /// # Errors
    /// When the model, the machine, the plan's file or its division cannot be used, and when nothing fits.
    pub fn run(&self) -> Result<()> {
        console::result(format_args!("{}", self.report()?)).map(|_| ())
    }

    fn report(&self) -> Result<String> {
        self.check()?;
        let config = self.keys.finish(self.base.layers()?)?;
        let machine = Machine::load(&self.place.topology)?;
        let placement = place(&machine, &self.place.wishes(config.train.threads))?;
        placement.warnings.iter().for_each(|warning| note!("warning: {warning}"));
        let mut site =
            Site::new(&machine, &placement, Known { memory_gb_s: self.memory_gb_s, link_gb_s: self.link_gb_s });
        let workload = self.workload(&config, &mut site)?;
        let model = Model::new(&workload, &site);
        let options = Options { replicate_below: self.replicate_below, scheme: self.scheme.kind() };
        let explained = self.explain.as_ref().map(|wanted| find(&workload, wanted)).transpose()?;
        let plan = match &self.plan {
            Some(path) => {
                let text = fs::read_to_string(path).map_err(Error::io(path, "read"))?;
                price(&model, file::parse(&text, &path.display().to_string(), &workload, model.ranks())?)?
            }
            None => plan(&model, &options)?,
        };
        if let Some(path) = &self.out {
            write_file(path, file::to_toml(&plan.sharding, &workload, &about(&model, &plan)).as_bytes())?;
            note!("plan written to {}", path.display());
        }
        if self.json {
            let everything = Everything { workload: &workload, site: &site, options: &options, plan: &plan };
            return Ok(serde_json::to_string_pretty(&everything).expect("plain data with string keys is JSON") + "\n");
        }
        if let Some(table) = explained {
            // The plan's own wish does not limit what it is compared with.
            let ways: Vec<Alternative> =
                alternatives(&model, &Options { scheme: None, ..options.clone() }, &plan.sharding, table);
            return Ok(report::explanation(&model, &plan, table, &ways));
        }
        Ok(report::text(&model, &plan))
    }

    /// Numbers that clap cannot check.
    fn check(&self) -> Result<()> {
        let fail =
            |origin: &str, reason: &str| Err(Error::Config { origin: origin.to_owned(), reason: reason.to_owned() });
        let positive = |value: Option<f64>| value.is_none_or(|value| value.is_finite() && value > 0.0);
        if !positive(self.lookups) || self.lookups.is_some_and(|lookups| lookups > 1e6) {
            return fail("--lookups", "must be more than 0 and at most 1000000");
        }
        if !positive(self.memory_gb_s) || !positive(self.link_gb_s) {
            return fail("--memory-gb-s and --link-gb-s", "must be more than 0");
        }
        if self.skew.is_some_and(|skew| !(0.0..=10.0).contains(&skew)) {
            return fail("--skew", "must lie in [0, 10]");
        }
        if self.weight_bytes.is_some_and(|bytes| ![2, 4].contains(&bytes)) || ![2, 4].contains(&self.exchange_bytes) {
            return fail("--weight-bytes and --exchange-bytes", "must be 2 (bf16) or 4 (f32)");
        }
        if self.state_bytes.is_some_and(|bytes| bytes > 64) || self.row_state_bytes > 4096 {
            return fail("--state-bytes and --row-state-bytes", "must be at most 64 and 4096");
        }
        Ok(())
    }

    fn workload(&self, config: &Config, site: &mut Site) -> Result<Workload> {
        let (data, model) = (&config.data, &config.model);
        // Of files, the data says how many rows there are.
        let from_files = matches!(data.source, SourceKind::Tsv | SourceKind::Files);
        let schema = if model.rows.is_empty() || from_files {
            open_data(config, None, Labels::Optional, Unseen::default())?.schema().clone()
        } else {
            Schema::criteo(model.bottom[0], &model.rows)
        };
        let random = data.source == SourceKind::Random;
        let lookups = self.lookups.unwrap_or(match (random, data.lookups_fixed) {
            (true, true) => data.lookups as f64,
            (true, false) => (data.lookups as f64 + 1.0) / 2.0,
            (false, _) => 1.0,
        });
        let skew = self.skew.unwrap_or(if random { data.zipf } else { CLICK_LOG_SKEW });
        if self.skew.is_none() && !random {
            site.assumptions.push(format!(
                "rows come as often as a Zipf distribution with exponent {skew} says, the first row most (--skew changes it)"
            ));
        }
        let cap = if data.rows_cap == 0 { u64::MAX } else { data.rows_cap };
        let tables = schema.tables.iter().map(|column| TableLoad {
            name: column.name.clone(),
            rows: column.rows.min(cap),
            lookups,
            skew,
            weighted: column.weighted,
        });
        let tables: Vec<TableLoad> = tables.collect();
        if tables.is_empty() {
            let reason = "the model has no embedding tables: there is nothing to divide".to_owned();
            return Err(Error::Config { origin: "plan".to_owned(), reason });
        }
        let workload = workload(config, tables);
        Ok(Workload {
            weight_bytes: self.weight_bytes.unwrap_or(workload.weight_bytes),
            state_bytes: self.state_bytes.unwrap_or(workload.state_bytes),
            row_state_bytes: self.row_state_bytes,
            exchange_bytes: self.exchange_bytes,
            ..workload
        })
    }
}

/// What a configuration makes of tables.
fn workload(config: &Config, tables: Vec<TableLoad>) -> Workload {
    let kept = |optimizer| Kept { precision: config.train.precision, optimizer };
    let (layers, rows) = (kept(Optimizer::dense(&config.train)), kept(Optimizer::rows(&config.train)));
    let (parameters, activations) = dense(config, tables.len());
    let weight_bytes = config.train.precision.read_bytes();
    Workload {
        tables,
        dim: config.model.dim,
        batch: config.train.batch,
        weight_bytes,
        state_bytes: rows.bytes() - weight_bytes,
        row_state_bytes: 0,
        exchange_bytes: size_of::<f32>(),
        // Weights with what is kept beside them, and gradients; activations and theirs.
        dense_bytes: parameters * (layers.bytes() + size_of::<f32>()) as u64,
        sample_bytes: activations * 2 * size_of::<f32>() as u64,
    }
}

/// Divides the tables of a model that is to be trained: as a plan's file says, or as is predicted to be best.
///
/// # Errors
/// When the file does not fit the model or a rank cannot hold its part.
pub fn divide(
    config: &Config,
    schema: &Schema,
    machine: &Machine,
    placement: &Placement,
    path: Option<&Path>,
) -> Result<Sharding> {
    let data = &config.data;
    let random = data.source == SourceKind::Random;
    let lookups = if random { data.lookups as f64 } else { 1.0 };
    let skew = if random { data.zipf } else { CLICK_LOG_SKEW };
    let tables = schema.tables.iter();
    let tables = tables.map(|column| TableLoad {
        name: column.name.clone(),
        rows: column.rows,
        lookups,
        skew,
        weighted: column.weighted,
    });
    let workload = workload(config, tables.collect());
    let site = Site::new(machine, placement, Known { memory_gb_s: None, link_gb_s: None });
    let model = Model::new(&workload, &site);
    match path {
        Some(path) => {
            let text = fs::read_to_string(path).map_err(Error::io(path, "read"))?;
            let sharding = file::parse(&text, &path.display().to_string(), &workload, model.ranks())?;
            Ok(price(&model, sharding)?.sharding)
        }
        None => Ok(plan(&model, &Options::default())?.sharding),
    }
}

/// Parameters of the MLPs (SC20, equation 1) and activations a sample.
fn dense(config: &Config, tables: usize) -> (u64, u64) {
    let model = &config.model;
    let vectors = tables + 1;
    let itself = usize::from(model.interaction_itself);
    let interacted = match model.interaction {
        Interaction::Dot => model.dim + vectors * (vectors - 1) / 2 + vectors * itself,
        Interaction::Cat => model.bottom[model.bottom.len() - 1] + tables * model.dim,
    };
    let top: Vec<usize> = std::iter::once(interacted).chain(model.top.iter().copied()).collect();
    let parameters = |widths: &[usize]| widths.windows(2).map(|pair| pair[0] * pair[1] + pair[1]).sum::<usize>();
    let widths = model.bottom.iter().chain(&top).sum::<usize>() + vectors * model.dim;
    ((parameters(&model.bottom) + parameters(&top)) as u64, widths as u64)
}

/// The table that a user means by number or name.
fn find(workload: &Workload, wanted: &str) -> Result<TableId> {
    let number = wanted.parse::<usize>().ok().filter(|number| *number < workload.tables.len());
    let name = || workload.tables.iter().position(|table| table.name == wanted);
    let names = || workload.tables.iter().map(|table| table.name.as_str());
    number.or_else(name).map(|table| TableId(table as u32)).ok_or_else(|| Error::UnknownName {
        origin: "--explain".to_owned(),
        what: "table",
        found: wanted.to_owned(),
        nearest: nearest(wanted, names()),
        known: format!("0 to {}, {}", workload.tables.len() - 1, names().collect::<Vec<_>>().join(", ")),
    })
}

/// The first lines of a plan's file.
fn about(model: &Model<'_>, plan: &Plan) -> String {
    format!(
        "Who holds which part of which table: {} tables on {} ranks of {}, minibatch {}.\n\
         Predicted {:.3} ms a minibatch for the slowest rank, MLPs aside. Edit and pass back with --plan FILE.",
        model.workload.tables.len(),
        model.ranks(),
        model.site.machine,
        model.workload.batch,
        plan.cost.score.slowest_s * 1e3
    )
}
