//! `octorec plan`: which rank holds which part of which table, what that costs, and why.

use std::path::PathBuf;

use clap::{Args, ValueEnum};
use serde::Serialize;

use super::by_number::ByNumber;
use super::collective::impossible;
use super::division::{about, follow, planned, undivided};
use super::figures;
use super::output::{refuse_edited, refuse_overwriting, write_editable};
use super::overrides::{BaseArgs, KeyArgs};
use super::place::{PlaceArgs, machine_file, on_described, warn_of_places};
use super::table::Table;
use crate::base::config::{Command, Config};
use crate::base::console::{note, pretty};
use crate::base::units::{Bytes, Count, Seconds, spelled};
use crate::base::{Error, Result, TableId, console, input};
use crate::collective::candidates;
use crate::collective::plan::Reduction;
use crate::machine::describe::{FIGURES, LINK_GB_S};
use crate::machine::site::Known;
use crate::machine::{Site, place};
use crate::memory::check_host;
use crate::model::check_columns;
use crate::optim::Optimizer;
use crate::shard::planner::{Alternative, alternatives, plan_by_free};
use crate::shard::scheme::{Kind, REPLICATE_BELOW};
use crate::shard::{HotPrice, HotPrices, Model, Options, Plan, Workload, file, report};

/// Arguments of `octorec plan`.
#[derive(Debug, Args)]
pub struct PlanArgs {
    #[command(flatten)]
    base: BaseArgs,
    #[command(flatten)]
    keys: KeyArgs,
    #[command(flatten)]
    place: PlaceArgs,
    /// Divide every table in this way.
    #[arg(long, value_enum, default_value_t, conflicts_with = "plan")]
    scheme: Wish,
    /// Tables with fewer rows are copied to each rank, unless something else is clearly faster; default: 2048.
    #[arg(long, value_name = "ROWS", conflicts_with = "plan")]
    replicate_below: Option<u64>,
    /// Follow a plan from a file instead of looking for one.
    #[arg(long, value_name = "FILE")]
    plan: Option<PathBuf>,
    /// Write the plan to a file that can be edited and given to --plan. An edited file is not replaced; of more than
    /// 1,024 ranks, which take long to plan, none is.
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
    /// Show what other ways to divide a table would give: its number or name.
    #[arg(long, value_name = "TABLE", conflicts_with = "json")]
    explain: Option<String>,
    /// Show what copies of hot rows on every rank would save (`octorec train --hot exact`): what budgets give, each
    /// twice the one before, and which of them is enough.
    #[arg(long, conflicts_with = "explain")]
    hot: bool,
    /// With --hot: what it costs at most that hot rows are told anew after so many steps (`octorec train --hot-revise
    /// STEPS`).
    #[arg(long, value_name = "STEPS", requires = "hot", value_parser = clap::value_parser!(u64).range(1..))]
    hot_revise: Option<u64>,
    /// Print everything as JSON, for scripts.
    #[arg(long)]
    json: bool,
    /// Look-ups a table and sample, on average; default: what the data's first samples
    /// show.
    #[arg(long, value_name = "N")]
    lookups: Option<f64>,
    /// Zipf exponent of the rows' frequencies, 0: all alike; default: data.zipf for random data, else what the data's
    /// first samples show.
    #[arg(long, value_name = "S")]
    skew: Option<f64>,
    /// Bytes of a weight as look-ups read it: 4 is f32, 2 is bf16; default: what train.precision says.
    #[arg(long, value_name = "N")]
    weight_bytes: Option<usize>,
    /// Bytes besides that an update reads of each table: lower halves, the optimizer's moments; default: what
    /// train.precision, train.optimizer_rows and train.optimizer_wide say.
    #[arg(long, value_name = "N")]
    state_bytes: Option<usize>,
    /// Bytes of optimizer state a row of each table; default: what train.optimizer_rows says.
    #[arg(long, value_name = "N")]
    row_state_bytes: Option<usize>,
    /// Memory bandwidth of every node in GB/s, for streams, copies and random rows, instead of what was measured or
    /// described.
    #[arg(long, value_name = "GB/S")]
    memory_gb_s: Option<f64>,
    /// Bandwidth of every link in GB/s each way, instead of what was measured or described.
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
struct PlanReport<'a> {
    /// Whose these are.
    figures: String,
    workload: &'a Workload,
    site: &'a Site,
    options: &'a Options,
    plan: &'a Plan,
    /// Of budgets for copies of hot rows, and which of them is chosen.
    #[serde(skip_serializing_if = "Option::is_none")]
    hot: Option<(&'a [HotPrice], Option<usize>)>,
    /// What memory lets them take on each rank.
    #[serde(skip_serializing_if = "Option::is_none")]
    hot_room: Option<u64>,
}

impl PlanArgs {
    /// Prints the plan, and writes it if a file was named.
    ///
    /// # Errors
    /// When the model, the machine, the plan's file or its division cannot be used, and when nothing fits.
    pub fn run(&self) -> Result<()> {
        console::result(format_args!("{}", self.report()?))
    }

    fn report(&self) -> Result<String> {
        self.check()?;
        let mut config = self.keys.finish(self.base.layers()?, Command::Plan)?;
        let mut inputs = self.base.input_files(&config, Command::Plan);
        inputs.extend(machine_file(&self.place.topology));
        refuse_overwriting(&[("--out", self.out.as_deref())], &inputs)?;
        let machine = figures::load(&self.place.topology)?;
        let wishes = self.place.wishes(config.train.threads);
        let placement = place(&machine, &wishes)?;
        warn_of_places(&placement);
        self.place.advise(&machine, &wishes, &placement);
        let site = Site::new(&machine, &placement, Known { memory_gb_s: self.memory_gb_s, link_gb_s: self.link_gb_s });
        let figures = figures::tell(&machine, &site.assumptions);
        let patience = patience(site.ranks.len() as u64);
        // Nobody waits for a plan that cannot be written then.
        if let (Some(path), Some(_)) = (&self.out, &patience) {
            refuse_edited("--out", path, None)?;
        }
        let (mut workload, by_number) = self.workload(&mut config)?;
        let named = self.schedule(&mut workload, &site)?;
        undivided(&config.model).iter().for_each(|reason| note!("{reason}"));
        patience.iter().for_each(|line| note!("{line}"));
        let model = Model::new(&workload, &site);
        let replicate_below = self.replicate_below.unwrap_or(REPLICATE_BELOW);
        let options = Options { replicate_below, scheme: self.scheme.kind() };
        if model.dense.is_none() && placement.ranks.len() > 1 {
            return Err(impossible(config.train.collective));
        }
        let explained = self.explain.as_ref().map(|wanted| find(&workload, wanted)).transpose()?;
        let plan = match &self.plan {
            Some(path) => follow(&model, path)?,
            None => {
                let mut told = Vec::new();
                let plan = by_number
                    .explain(plan_by_free(&model, &options, &mut told))
                    .map_err(|error| on_described(&self.place.topology, error))?;
                told.iter().for_each(|line| note!("{line}"));
                plan
            }
        };
        if machine.is_this_system
            && let Err(full) = check_host("all ranks of this host together", plan.cost.pool_bytes.iter().sum(), 0)
        {
            note!("warning: {full}");
        }
        check_columns(plan.sharding.schemes(), &config.model, Optimizer::rows(&config.train))?;
        if let Some(path) = &self.out {
            let text = file::to_toml(&plan.sharding, &workload, &about(&model, &plan));
            let text = named.iter().fold(text, |text, name| file::with_collective(&text, name));
            write_editable("--out", path, &text)?;
            note!("plan written to {}", path.display());
        }
        let room = model.room_for_copies(&plan.cost, self.hot_revise.is_some());
        let hot = self.hot.then(|| {
            let prices = HotPrices::new(&workload, &plan.sharding);
            (prices.ladder(self.hot_revise, room), prices.most())
        });
        if self.json {
            let hot_room = hot.as_ref().map(|_| room);
            let hot = hot.as_ref().map(|((prices, chosen), _)| (&prices[..], *chosen));
            let (workload, site, options, plan) = (&workload, &site, &options, &plan);
            let everything = PlanReport { figures, workload, site, options, plan, hot, hot_room };
            return Ok(pretty(&everything));
        }
        if let Some(table) = explained {
            // The plan's own wish does not limit what it is compared with.
            let ways: Vec<Alternative> =
                alternatives(&model, &Options { scheme: None, ..options.clone() }, &plan.sharding, table);
            return Ok(report::explanation(&model, &plan, table, &ways));
        }
        let copies = hot.map_or_else(String::new, |((prices, chosen), most)| {
            told(&prices, chosen, self.hot_revise) + &limited(&prices, room, most)
        });
        Ok(report::text(&model, &plan) + &copies)
    }

    /// How the plan that is followed says that dense gradients are reduced, if it does; they are priced so, unless the
    /// configuration says otherwise or these ranks have no such schedule, as where the plan is trained with.
    fn schedule(&self, workload: &mut Workload, site: &Site) -> Result<Option<String>> {
        let Some(path) = &self.plan else { return Ok(None) };
        let origin = path.display().to_string();
        let named = file::collective(&input::read_text(path)?, &origin)?;
        let known = named.as_ref().and_then(|named| Reduction::NAMES.into_iter().find(|name| name == named));
        if let Some(name) = known.filter(|_| workload.collective.is_none() && site.ranks.len() > 1) {
            if candidates(Some(name), site).is_empty() {
                note!(
                    "plan: {origin}: {name} finds no way on this machine, or nothing to gain: the cheapest is priced"
                );
            } else {
                workload.collective = Some(name);
            }
        }
        Ok(named)
    }

    /// Numbers that clap cannot check.
    fn check(&self) -> Result<()> {
        let fail = |origin: &str, reason: &str| Err(Error::config(origin, reason));
        if self.replicate_below.is_some() && self.scheme != Wish::Auto {
            return fail("--replicate-below", "--scheme divides every table in one way: leave one of the two away");
        }
        if self.lookups.is_some_and(|lookups| !(lookups > 0.0 && lookups <= 1e6)) {
            return fail("--lookups", "must be more than 0 and at most 1000000");
        }
        for (flag, value, range) in
            [("--memory-gb-s", self.memory_gb_s, FIGURES), ("--link-gb-s", self.link_gb_s, LINK_GB_S)]
        {
            if value.is_some_and(|value| !range.contains(&value)) {
                return fail(flag, &format!("must lie in [{:e}, {:e}]", range.start(), range.end()));
            }
        }
        if self.skew.is_some_and(|skew| !(0.0..=10.0).contains(&skew)) {
            return fail("--skew", "must lie in [0, 10]");
        }
        if self.weight_bytes.is_some_and(|bytes| ![2, 4].contains(&bytes)) {
            return fail("--weight-bytes", "must be 2 (bf16) or 4 (f32)");
        }
        if self.state_bytes.is_some_and(|bytes| bytes > 64) || self.row_state_bytes.is_some_and(|bytes| bytes > 4096) {
            return fail("--state-bytes and --row-state-bytes", "must be at most 64 and 4096");
        }
        Ok(())
    }

    fn workload(&self, config: &mut Config) -> Result<(Workload, ByNumber)> {
        let (mut workload, by_number) = planned(config, self.lookups, self.skew)?;
        workload.weight_bytes = self.weight_bytes.unwrap_or(workload.weight_bytes);
        for table in &mut workload.tables {
            table.state_bytes = self.state_bytes.unwrap_or(table.state_bytes);
            table.row_state_bytes = self.row_state_bytes.unwrap_or(table.row_state_bytes);
        }
        Ok((workload, by_number))
    }
}

/// What whoever plans for so many ranks should know: a plan for more than 1,024 takes more than some seconds.
fn patience(ranks: u64) -> Option<String> {
    /// Seconds and bytes for each pair of ranks, as measured on one core.
    const A_PAIR: (f64, u64) = (4.2e-6, 480);
    let pairs = ranks.pow(2);
    (ranks > 1024).then(|| {
        format!(
            "{} ranks: what each sends each other is priced, which takes about {} and {} of memory",
            Count(ranks),
            Seconds(pairs as f64 * A_PAIR.0),
            Bytes(pairs * A_PAIR.1)
        )
    })
}

/// What budgets for copies of hot rows give, where they are revised after so many steps, if they are.
fn told(prices: &[HotPrice], chosen: Option<usize>, revised: Option<u64>) -> String {
    let heads = [
        "budget",
        "takes",
        "hot rows",
        "look-ups",
        "sent",
        "others'",
        "sums",
        "rows back",
        "less",
        "",
        "hot inputs",
        "fae",
    ];
    let mut table = Table::new(heads);
    let bytes = |bytes: f64| Bytes(bytes.round() as u64).to_string();
    // One rank sends nothing with or without.
    let less = |price: &HotPrice| if price.without > 0.0 { 1.0 - price.with() / price.without } else { 0.0 };
    for (at, price) in prices.iter().enumerate() {
        table.row([
            Bytes(price.budget).to_string(),
            Bytes(price.bytes).to_string(),
            Count(price.rows).to_string(),
            format!("{:.1} %", 100.0 * price.lookups),
            bytes(price.with()),
            bytes(price.cold),
            bytes(price.gradients),
            bytes(price.moved),
            format!("{:.1} %", 100.0 * less(price)),
            if Some(at) == chosen { "enough" } else { "" }.to_owned(),
            format!("{:.1} %", 100.0 * price.fae.inputs),
            bytes(price.fae.mean),
        ]);
    }
    let without = prices.first().map_or(0.0, |price| price.without);
    let advice = match chosen {
        Some(at) => {
            let HotPrice { budget, filling, .. } = prices[at];
            let revision = revised.map_or_else(String::new, |steps| {
                format!(
                    " --hot-revise {steps}: a revision sends {} at most, {} a step",
                    bytes(filling),
                    bytes(filling / steps as f64)
                )
            });
            let enough = format!("octorec train --hot exact --hot-budget {}", spelled(budget));
            if revision.is_empty() { format!("{enough} is enough") } else { enough + &revision }
        }
        None if prices.is_empty() => "there is no budget that fits: leave --hot off".to_owned(),
        None => "no budget lets less travel: leave --hot off".to_owned(),
    };
    format!(
        "\ncopies of hot rows on each rank, of rows that a step looks up as often as there are ranks; sent among ranks in a step \
         without: {}\nhot inputs: samples that would look up hot rows alone, if all rows that fit had copies and columns knew \
         nothing of each other; fae: sent in the mean step where these are minibatches of their own (--hot fae)\n{table}{advice}\n",
        bytes(without)
    )
}

/// What memory keeps from the ladder: budgets above the room that ranks have, up to that of all rows that pay.
fn limited(prices: &[HotPrice], room: u64, most: u64) -> String {
    if prices.last().is_some_and(|price| price.budget >= most) {
        return String::new();
    }
    let [room, most] = [room, most].map(Bytes);
    format!(
        "memory is what limits: it has room for copies of {room} on each rank, and those of all rows that pay take {most}: use \
         more nodes, or a smaller --batch\n"
    )
}

/// The table that a user means by number or name.
fn find(workload: &Workload, wanted: &str) -> Result<TableId> {
    let number = wanted.parse::<usize>().ok().filter(|number| *number < workload.tables.len());
    let name = || workload.tables.iter().position(|table| table.name == wanted);
    number.or_else(name).map(|table| TableId(table as u32)).ok_or_else(|| {
        let numbers = format!("0 to {}", workload.tables.len() - 1);
        let names = workload.tables.iter().map(|table| table.name.as_str());
        Error::unknown("--explain", "table", wanted, [numbers.as_str()].into_iter().chain(names))
    })
}

#[cfg(test)]
mod tests {
    use super::patience;

    #[test]
    fn plans_for_many_ranks_say_what_they_take() {
        assert_eq!(patience(1024), None);
        let told = patience(4096).unwrap();
        assert!(told.starts_with("4,096 ranks: ") && told.contains("70.5 s") && told.contains("7.5 GiB"), "{told}");
    }
}
