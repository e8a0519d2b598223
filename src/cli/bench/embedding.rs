//! `octorec bench embedding`: look-up and update of embedding rows against what memory allows for rows of that size.
//!
//! Minibatches are drawn before the clock starts and used in turn, and tables lie in one arena on huge pages, as in
//! training. The limits are measured on a field as large as all tables together, so that caches help them as much as
//! they help the tables. All ways to update take turns, so that a machine that drifts does not decide between them.

mod tables;

use std::fmt;
use std::time::Instant;

use clap::Args;
use serde::de::IntoDeserializer;
use serde::{Deserialize, Serialize};

use self::tables::{Bench, Way};
use crate::base::config::{DataConfig, IsaChoice, OptimizerName, Precision, TrainConfig, Update};
use crate::base::console::note;
use crate::base::units::Bytes;
use crate::base::{Error, NodeId, Result, median};
use crate::cli::place::place_team;
use crate::cli::table::Table as Text;
use crate::cli::timing::draw;
use crate::data::{Batch, Random};
use crate::machine::limits::{Bracket, Field, Pages, Processor, around};
use crate::machine::team::Team;
use crate::memory::available_bytes;
use crate::optim::{Optimizer, ParamState};
use crate::sync::Rtm;

/// Flags of `octorec bench embedding`.
#[derive(Debug, Clone, Args)]
pub struct EmbeddingArgs {
    /// Tables
    #[arg(long, value_name = "N", default_value_t = 8, value_parser = clap::value_parser!(u32).range(1..=4096))]
    tables: u32,
    /// Rows of a table
    #[arg(long, value_name = "ROWS", default_value_t = 1_000_000, value_parser = clap::value_parser!(u32).range(1..))]
    rows: u32,
    /// Columns of a row
    #[arg(long, value_name = "N", default_value_t = 64, value_parser = clap::value_parser!(u32).range(1..=4096))]
    dim: u32,
    /// Look-ups a table and sample
    #[arg(long, value_name = "N", default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..=4096))]
    lookups: u32,
    /// Samples of a minibatch
    #[arg(long, value_name = "N", default_value_t = 2048, value_parser = clap::value_parser!(u32).range(1..=1 << 20))]
    batch: u32,
    /// Exponents of the Zipf distributions of rows, one load each; 0: uniform
    #[arg(long, value_name = "EXPONENT,…", value_delimiter = ',', default_values_t = [0.0, 1.05], value_parser = exponent)]
    zipf: Vec<f64>,
    /// Optimizer of the rows: sgd, momentum, adagrad, rowwise-adagrad or adam; all but sgd sort look-ups
    #[arg(long, value_name = "NAME", default_value = "sgd", value_parser = read_optimizer)]
    optimizer: OptimizerName,
    /// Ways to update: serial, atomic, rtm, race-free, sorted or auto; default: all that the optimizer can use
    #[arg(long, value_name = "NAME,…", value_delimiter = ',', value_parser = read::<Update>)]
    update: Vec<Update>,
    /// How tables keep their numbers: f32, bf16 (in halves, of which look-ups read the upper) or bf16-lsb8
    #[arg(long, value_name = "NAME", default_value = "f32", value_parser = read::<Precision>)]
    precision: Precision,
    /// Runs that are timed
    #[arg(long, value_name = "N", default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..))]
    repeat: u32,
    /// Different minibatches, drawn before the clock starts and used in turn
    #[arg(long, value_name = "N", default_value_t = 8, value_parser = clap::value_parser!(u32).range(1..=1024))]
    minibatches: u32,
    /// Threads; default: one for each core of the first NUMA node
    #[arg(long, value_name = "N", default_value_t = 0, hide_default_value = true)]
    threads: usize,
    /// Print one JSON object, for scripts
    #[arg(long)]
    pub json: bool,
}

fn exponent(text: &str) -> std::result::Result<f64, String> {
    let number = text.parse().ok().filter(|number| (0.0..=10.0).contains(number));
    number.ok_or_else(|| "a number from 0 to 10 is expected".to_owned())
}

/// One for rows.
fn read_optimizer(text: &str) -> std::result::Result<OptimizerName, String> {
    read::<OptimizerName>(text).and_then(|name| match name {
        OptimizerName::Lamb => Err("lamb is for layers: use one of the others".to_owned()),
        name => Ok(name),
    })
}

/// As the configuration reads it.
fn read<T: for<'de> Deserialize<'de>>(text: &str) -> std::result::Result<T, String> {
    T::deserialize(text.into_deserializer()).map_err(|error: serde::de::value::Error| error.to_string())
}

/// What was measured.
#[derive(Debug, Serialize)]
pub struct Report {
    machine: Processor,
    threads: usize,
    tables: usize,
    rows: u64,
    dim: usize,
    lookups: usize,
    batch: usize,
    precision: &'static str,
    optimizer: &'static str,
    table_bytes: u64,
    /// `table_bytes` over the last-level caches.
    times_l3: Option<f64>,
    loads: Vec<Load>,
    remarks: Vec<String>,
}

/// One distribution of rows.
#[derive(Debug, Serialize)]
struct Load {
    /// 0: uniform.
    zipf: f64,
    forward: Row,
    gather_limit: Bracket,
    updates: Vec<UpdateRow>,
    update_limit: Bracket,
    speed_ups: Vec<SpeedUp>,
}

#[derive(Debug, Clone, Copy, Serialize)]
struct Row {
    ms_median: f64,
    ms_min: f64,
    ms_max: f64,
    gb_s: f64,
    limit_gb_s: f64,
    /// `gb_s / limit_gb_s`.
    ratio: f64,
}

#[derive(Debug, Serialize)]
struct UpdateRow {
    update: Update,
    fused: bool,
    #[serde(flatten)]
    row: Row,
    /// What `auto` chose, and why.
    #[serde(skip_serializing_if = "Option::is_none")]
    choice: Option<String>,
}

#[derive(Debug, Serialize)]
struct SpeedUp {
    update: Update,
    /// Separate backward and update over fused.
    fused: f64,
    /// Atomic over this, both fused; absent when atomic was not measured.
    against_atomic: Option<f64>,
}

impl Row {
    fn new(mut ms: Vec<f64>, bytes: f64, limit: Bracket) -> Self {
        let ms_median = median(&mut ms);
        let (gb_s, limit_gb_s) = (bytes / ms_median / 1e6, limit.mean());
        Self { ms_median, ms_min: ms[0], ms_max: ms[ms.len() - 1], gb_s, limit_gb_s, ratio: gb_s / limit_gb_s }
    }
}

fn ms(work: impl FnOnce()) -> f64 {
    let began = Instant::now();
    work();
    // A clock may be too coarse for a tiny load in a test.
    began.elapsed().as_secs_f64().max(1e-9) * 1e3
}

impl EmbeddingArgs {
    fn batches(&self, zipf: f64) -> Result<Vec<Batch>> {
        let config = DataConfig { lookups: (self.lookups as usize).into(), zipf, ..DataConfig::default() };
        let rows = vec![u64::from(self.rows); self.tables as usize];
        draw(&Random::new(&config, &rows, 0)?, self.minibatches as usize, self.batch as usize)
    }

    /// What is kept of rows.
    fn kept(&self) -> ParamState {
        let train = TrainConfig { optimizer_rows: self.optimizer, ..TrainConfig::default() };
        ParamState { precision: self.precision, optimizer: Optimizer::rows(&train), row_weights: false }
    }

    /// Bytes of a row that a look-up reads, and that an update reads and writes: with what the optimizer keeps.
    fn row_bytes(&self) -> [usize; 2] {
        let (dim, kept) = (self.dim as usize, self.kept());
        [dim * self.precision.read_bytes(), dim * kept.bytes() + kept.row_bytes()]
    }

    /// Ways that this processor has, and a remark on one that it has not.
    fn ways(&self) -> Result<(Vec<Update>, Option<String>)> {
        let sorts = |update: &Update| matches!(update, Update::Sorted | Update::Auto);
        if self.optimizer != OptimizerName::Sgd {
            if !self.update.iter().all(sorts) {
                let reason = format!(
                    "--optimizer {} sums a row's gradients, for which look-ups are sorted: use --update sorted, or leave it away",
                    self.optimizer.name()
                );
                return Err(Error::config("--update", reason));
            }
            return Ok((vec![Update::Sorted], None));
        }
        let all =
            [Update::Serial, Update::Atomic, Update::Rtm, Update::RaceFree, Update::Sorted, Update::Auto].to_vec();
        let mut ways = if self.update.is_empty() { all } else { self.update.clone() };
        let rtm = if self.precision.is_split() { Err("it moves no halves") } else { Rtm::detect().map(|_| ()) };
        match rtm {
            Err(reason) if ways.contains(&Update::Rtm) => {
                ways.retain(|update| *update != Update::Rtm);
                Ok((ways, Some(format!("rtm is not measured: {reason}"))))
            }
            _ => Ok((ways, None)),
        }
    }

    /// All ways on small tables, held against `serial`.
    fn check(&self, team: &Team, ways: &[Update], home: &[NodeId]) -> Result<()> {
        let small = Self { rows: self.rows.min(997), batch: self.batch.min(64), minibatches: 1, ..self.clone() };
        let definition = if self.optimizer == OptimizerName::Sgd { Update::Serial } else { Update::Sorted };
        let mut bench = Bench::new(team, &small, &[&[definition], ways].concat(), home)?;
        for &zipf in &self.zipf {
            let batch = &small.batches(zipf)?[0];
            bench.check_updates(team, batch);
        }
        Ok(())
    }

    /// Times look-up and updates under each load.
    ///
    /// # Errors
    /// When threads or memory are refused, or the hardware cannot be explored.
    pub fn measure(&self) -> Result<Report> {
        let (team, home) = place_team(self.threads, IsaChoice::Auto)?;
        let (ways, note) = self.ways()?;
        self.check(&team, &ways, &home)?;
        let mut bench = Bench::new(&team, self, &ways, &home)?;
        bench.warnings.iter().for_each(|warning| note!("warning: {warning}"));
        let machine = Processor::of_this_machine()?;
        let [read_row, row_bytes] = self.row_bytes();
        let table_bytes = u64::from(self.tables) * u64::from(self.rows) * row_bytes as u64;
        let times_l3 = machine.l3_bytes.map(|l3| table_bytes as f64 / l3 as f64);
        let mut remarks: Vec<String> = note.into_iter().collect();
        if let Some(times) = times_l3.filter(|times| *times < 4.0) {
            remarks
                .push(format!("the tables are only {times:.1} x L3: caches serve a part of the rows, limits included"));
        }
        if self.zipf.iter().any(|&zipf| zipf > 0.0) {
            let reason = "hot rows stay in the caches, so that skewed loads may pass it";
            remarks.push(format!("the limits are those of uniform rows: {reason}"));
        }
        let limit_rows = [read_row, row_bytes].map(|bytes| bytes.next_multiple_of(64));
        if limit_rows != [read_row, row_bytes] {
            let [read, moved] = limit_rows;
            remarks
                .push(format!("a row counts with its whole cache lines: {read} bytes (look up) and {moved} (update)"));
        }
        // As large as the tables where memory allows.
        let most = available_bytes().map_or(u64::MAX, |bytes| bytes / 2);
        let field_bytes = table_bytes.clamp(4 << 20, most.max(4 << 20));
        if field_bytes < table_bytes {
            remarks.push(format!("the limits were measured on {}, for want of memory", Bytes(field_bytes)));
        }
        let mut field = Field::new(&team, field_bytes as usize, Pages::Huge)?;
        let mut loads = Vec::new();
        for &zipf in &self.zipf {
            let batches = self.batches(zipf)?;
            let load = self.load(&team, &mut bench, &mut field, limit_rows, &batches, zipf);
            let name = if zipf > 0.0 { format!("Zipf {zipf}") } else { "uniform".to_owned() };
            remarks.extend(load.gather_limit.remark(&format!("{name}: the row gather limit (GB/s)")));
            remarks.extend(load.update_limit.remark(&format!("{name}: the row update limit (GB/s)")));
            loads.push(load);
        }
        Ok(Report {
            machine,
            threads: team.threads(),
            tables: self.tables as usize,
            rows: u64::from(self.rows),
            dim: self.dim as usize,
            lookups: self.lookups as usize,
            batch: self.batch as usize,
            precision: self.precision.name(),
            optimizer: self.optimizer.name(),
            table_bytes,
            times_l3,
            loads,
            remarks,
        })
    }

    fn load(
        &self,
        team: &Team,
        bench: &mut Bench,
        field: &mut Field,
        [read_row, row_bytes]: [usize; 2],
        batches: &[Batch],
        zipf: f64,
    ) -> Load {
        let repeat = self.repeat as usize;
        let rows = u64::from(self.tables) * u64::from(self.batch) * u64::from(self.lookups);
        let [read, moved] = [read_row, row_bytes].map(|bytes| (rows * bytes as u64) as f64);
        bench.forward(team, &batches[0]);
        bench.check_forward(&batches[0]);
        let ([gather_limit], times) = around(
            || [field.gather(team, read_row).rate],
            || batches.iter().cycle().take(repeat).map(|batch| ms(|| bench.forward(team, batch))).collect(),
        );
        let forward = Row::new(times, read, gather_limit);
        let ways = bench.ways.len();
        let ([update_limit], times) = around(
            || [field.update(team, row_bytes).rate],
            || {
                let mut times = vec![Vec::with_capacity(repeat); ways];
                // The first round warms up. Neighbours in time have different minibatches: none finds rows in a cache
                // because another has just moved them.
                let turns = (0..=repeat).flat_map(|round| (0..ways).map(move |way| (round, way)));
                for ((round, way), batch) in turns.zip(batches.iter().cycle()) {
                    let took = ms(|| bench.update(team, way, batch));
                    if round > 0 {
                        times[way].push(took);
                    }
                }
                times
            },
        );
        // Read once and written once.
        let rows = times.into_iter().map(|times| Row::new(times, 2.0 * moved, update_limit));
        let updates: Vec<UpdateRow> = bench
            .ways
            .iter()
            .zip(rows)
            .map(|(&Way { update, fused, ref updater }, row)| {
                let choice = updater.choice().filter(|_| update == Update::Auto).map(ToString::to_string);
                UpdateRow { update, fused, row, choice }
            })
            .collect();
        let fused = updates.iter().filter(|row| row.fused);
        let atomic = fused.clone().find(|row| row.update == Update::Atomic).map(|row| row.row.ms_median);
        let speed_ups = fused
            .zip(updates.iter().filter(|row| !row.fused))
            .map(|(fused, separate)| SpeedUp {
                update: fused.update,
                fused: separate.row.ms_median / fused.row.ms_median,
                against_atomic: atomic.map(|atomic| atomic / fused.row.ms_median),
            })
            .collect();
        Load { zipf, forward, gather_limit, updates, update_limit, speed_ups }
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { machine, threads, tables, rows, dim, lookups, batch, precision, optimizer, .. } = self;
        writeln!(f, "{machine}")?;
        write!(f, "{tables} tables of {rows} rows x {dim} {precision}, {}", Bytes(self.table_bytes))?;
        self.times_l3.map_or(Ok(()), |times| write!(f, " ({times:.1} x L3)"))?;
        writeln!(f, "; {lookups} look-ups, {batch} samples, {threads} threads, {optimizer}")?;
        for load in &self.loads {
            let title = if load.zipf > 0.0 { format!("Zipf {}", load.zipf) } else { "uniform rows".to_owned() };
            let mut table = Text::new([&title[..], "ms", "min", "max", "GB/s", "limit", "reached"]);
            let mut line = |name: String, row: &Row| {
                let ms = [row.ms_median, row.ms_min, row.ms_max].map(|ms| format!("{ms:.2}"));
                let rates = [row.gb_s, row.limit_gb_s].map(|rate| format!("{rate:.1}"));
                let reached = [format!("{:.0} %", 100.0 * row.ratio)];
                table.row([name].into_iter().chain(ms).chain(rates).chain(reached));
            };
            line("look up".to_owned(), &load.forward);
            for row in &load.updates {
                let form = if row.fused { "fused" } else { "separate" };
                line(format!("update {}, {form}", row.update.name()), &row.row);
            }
            writeln!(f, "\n{table}")?;
            let mut table = Text::new(["times as fast", "fused / separate", "this / atomic"]);
            for SpeedUp { update, fused, against_atomic } in &load.speed_ups {
                let against = against_atomic.map_or_else(|| "-".to_owned(), |times| format!("{times:.2}"));
                table.row([update.name().to_owned(), format!("{fused:.2}"), against]);
            }
            write!(f, "{table}")?;
            let choice = load.updates.iter().find_map(|row| row.choice.as_ref().filter(|_| row.fused));
            choice.map_or(Ok(()), |choice| writeln!(f, "  auto: {choice}"))?;
        }
        writeln!(f, "\n  GB/s count each look-up's row once (look up) or twice (update); limits: before and after")?;
        self.remarks.iter().try_for_each(|remark| writeln!(f, "  {remark}"))
    }
}
