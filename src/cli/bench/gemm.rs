//! `octorec bench mlp` and `octorec bench gemm`: the passes of fully connected layers against the limit of the cores.
//!
//! Every round measures the limit, the pass and the limit again; a row is the round with the median ratio. Results are
//! held against their definition before they are timed.

use std::fmt;

use clap::Args;
use serde::Serialize;

use super::chain::{Chain, Pass, Precision, peak, tiles_peak};
use super::within_processors;
use crate::base::console::note;
use crate::base::units::Many;
use crate::base::{Error, Result};
use crate::cli::table::Table;
use crate::cli::tuned::install_plans;
use crate::machine::limits::{Bracket, Processor, Rate, around, clock_ghz};
use crate::machine::team::Team;
use crate::simd::Isa;
use crate::train::unused_plans;

/// What the benches of passes have in common.
#[derive(Debug, Clone, Args)]
pub struct PassArgs {
    /// Threads; default: one for each core
    #[arg(long, value_name = "N", default_value_t = 0, hide_default_value = true)]
    threads: usize,
    /// Instruction set: scalar, avx2, avx512, avx512-bf16, amx-bf16 or amx-bf16x3; default: the last that there is
    #[arg(long, value_name = "NAME")]
    isa: Option<String>,
    /// Times that limit, pass and limit are measured; the one with the median ratio counts
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=1000))]
    rounds: u32,
    /// Use the blocking that `octorec tune gemm` wrote to this file
    #[arg(long, value_name = "FILE")]
    tuned: Option<std::path::PathBuf>,
    /// Print one JSON object, for scripts
    #[arg(long)]
    pub json: bool,
}

/// Flags of `octorec bench mlp`.
#[derive(Debug, Clone, Args)]
pub struct MlpArgs {
    #[command(flatten)]
    pub passes: PassArgs,
    /// Samples, N
    #[arg(long, value_name = "N", default_value_t = 1024, value_parser = size)]
    batch: usize,
    /// Widths of the layers, C = K; one MLP each
    #[arg(long, value_name = "N,…", value_delimiter = ',', default_values_t = [1024, 2048, 4096], value_parser = size)]
    widths: Vec<usize>,
    /// Layers of an MLP
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u16).range(1..=100))]
    layers: u16,
    /// Numbers that are multiplied
    #[arg(long, value_name = "NAME", default_value_t = Precision::F32)]
    precision: Precision,
}

/// A square layer, and layers of the `small` and `kaggle` models.
const SHAPES: [&str; 6] =
    ["1024x1024x1024", "2048x512x512", "2048x100x1024", "2048x1024x1024", "2048x13x512", "2048x256x1"];

/// Flags of `octorec bench gemm`.
#[derive(Debug, Clone, Args)]
pub struct GemmArgs {
    #[command(flatten)]
    pub passes: PassArgs,
    /// Samples x inputs x outputs of a layer; may be repeated
    #[arg(long = "shape", value_name = "NxCxK,…", value_delimiter = ',', value_parser = shape, default_values = SHAPES)]
    shapes: Vec<[usize; 3]>,
    /// Passes; default: all
    #[arg(long = "pass", value_name = "NAME,…", value_delimiter = ',')]
    only: Vec<Pass>,
    /// Numbers that are multiplied
    #[arg(long, value_name = "NAME,…", value_delimiter = ',', default_values_t = [Precision::F32])]
    precision: Vec<Precision>,
}

/// What was measured.
#[derive(Debug, Serialize)]
pub struct Report {
    machine: Processor,
    threads: usize,
    isa: &'static str,
    /// Layers of each row.
    layers: usize,
    rows: Vec<Row>,
    /// The mean over `rows`.
    mean_ratio: f64,
    /// The mean over `rows`.
    mean_cycle_ratio: f64,
    remarks: Vec<String>,
}

#[derive(Debug, Serialize)]
struct Row {
    n: usize,
    c: usize,
    k: usize,
    precision: Precision,
    pass: Pass,
    gflops: f64,
    peak_gflops: f64,
    /// `gflops / peak_gflops`.
    ratio: f64,
    /// The cores' clock right after the pass, and after the measurements of its limit.
    clock_ghz: f64,
    peak_clock_ghz: f64,
    /// The same ratio, of operations a cycle.
    cycle_ratio: f64,
    limit: &'static str,
    bracket: Bracket,
    /// A sixth of the peak of tiles, on which this pass multiplies f32, after it; and the part of it.
    #[serde(skip_serializing_if = "Option::is_none")]
    tiles_gflops: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    tiles_ratio: Option<f64>,
}

/// A side of a matrix that a bench can make.
fn size(text: &str) -> std::result::Result<usize, String> {
    let size = text.parse().ok().filter(|size| (1..=1 << 20).contains(size));
    size.ok_or_else(|| "a whole number from 1 to 1048576 is expected".to_owned())
}

fn shape(text: &str) -> std::result::Result<[usize; 3], String> {
    let sizes: Vec<usize> = text.split('x').map(size).collect::<std::result::Result<_, _>>()?;
    <[usize; 3]>::try_from(sizes).map_err(|_| "samples x inputs x outputs are expected, e.g. 2048x512x64".to_owned())
}

/// The instruction set of this name; without one, the widest.
fn isa(name: Option<&str>) -> Result<Isa> {
    let Some(name) = name else { return Ok(Isa::best()) };
    let all = Isa::every();
    let found = all.iter().copied().find(|isa| isa.name() == name);
    let names = all.iter().map(|isa| isa.name());
    found.ok_or_else(|| Error::unknown("--isa", "instruction set of this processor", name, names))
}

impl MlpArgs {
    /// Times MLPs of all widths.
    ///
    /// # Errors
    /// When threads are refused, a name is unknown or the hardware cannot be explored.
    pub fn measure(&self) -> Result<Report> {
        let layers = usize::from(self.layers);
        let mut bench = self.passes.bench(layers)?;
        for &width in &self.widths {
            bench.measure(self.batch, &vec![width; layers + 1], self.precision, &Pass::ALL);
        }
        bench.report()
    }
}

impl GemmArgs {
    /// Times single layers of all shapes.
    ///
    /// # Errors
    /// As [`MlpArgs::measure`].
    pub fn measure(&self) -> Result<Report> {
        let mut bench = self.passes.bench(1)?;
        let passes = if self.only.is_empty() { &Pass::ALL[..] } else { &self.only };
        for &[n, c, k] in &self.shapes {
            for &precision in &self.precision {
                bench.measure(n, &[c, k], precision, passes);
            }
        }
        bench.report()
    }
}

/// A pass between two measurements of its limit, with the clocks right after them.
struct Round {
    bracket: Bracket,
    rate: Rate,
    ghz: f64,
    peak_ghz: f64,
}

impl Round {
    fn ratio(&self) -> f64 {
        self.rate.median / self.bracket.mean()
    }
}

/// A team and what it has measured.
struct Bench {
    team: Team,
    rounds: u32,
    layers: usize,
    /// The file of measured plans.
    tuned: Option<std::path::PathBuf>,
    rows: Vec<Row>,
    remarks: Vec<String>,
}

impl PassArgs {
    fn bench(&self, layers: usize) -> Result<Bench> {
        let team = Team::with_isa(within_processors(self.threads)?, isa(self.isa.as_deref())?)?;
        if let Some(path) = &self.tuned {
            install_plans(path, team.threads(), team.isa())?;
        }
        let tuned = self.tuned.clone();
        Ok(Bench { team, rounds: self.rounds, layers, tuned, rows: Vec::new(), remarks: Vec::new() })
    }
}

impl Bench {
    fn measure(&mut self, n: usize, widths: &[usize], precision: Precision, passes: &[Pass]) {
        let team = &self.team;
        let mut chain = Chain::new(team, n, widths, precision);
        let (c, k) = (widths[0], widths[1]);
        for &pass in passes {
            chain.run(team, pass);
            chain.check(team.isa(), pass);
            let mut limit = "";
            let operations = chain.operations();
            let mut rounds: Vec<Round> = (0..self.rounds)
                .map(|_| {
                    let mut clocks = Vec::with_capacity(2);
                    let measure = || {
                        let (rate, name) = peak(team, precision);
                        clocks.push(clock_ghz(team));
                        limit = name;
                        [rate]
                    };
                    let work = || (Rate::measure(operations, || chain.run(team, pass)), clock_ghz(team));
                    let ([bracket], (rate, ghz)) = around(measure, work);
                    Round { bracket, rate, ghz, peak_ghz: f64::midpoint(clocks[0], clocks[1]) }
                })
                .collect();
            rounds.sort_by(|a, b| a.ratio().total_cmp(&b.ratio()));
            let round = &rounds[rounds.len() / 2];
            let &Round { bracket, rate, ghz: clock_ghz, peak_ghz: peak_clock_ghz } = round;
            let name = format!("{n}x{c}x{k} {precision} {}: the {limit}", pass.name());
            self.remarks.extend(bracket.remark(&name));
            let (gflops, peak_gflops, ratio) = (rate.median, bracket.mean(), round.ratio());
            let cycle_ratio = ratio * peak_clock_ghz / clock_ghz;
            let tiles_gflops = tiles_peak(team, precision, [c, k]).map(|rate| rate.median);
            self.rows.push(Row {
                n,
                c,
                k,
                precision,
                pass,
                gflops,
                peak_gflops,
                ratio,
                clock_ghz,
                peak_clock_ghz,
                cycle_ratio,
                limit,
                bracket,
                tiles_gflops,
                tiles_ratio: tiles_gflops.map(|peak| gflops / peak),
            });
        }
    }

    fn report(self) -> Result<Report> {
        let Self { team, layers, tuned, rows, remarks, .. } = self;
        let unused = tuned.and_then(|path| unused_plans(&path.display().to_string(), None));
        unused.iter().for_each(|told| note!("{told}"));
        let mean = |of: fn(&Row) -> f64| rows.iter().map(of).sum::<f64>() / rows.len() as f64;
        let (mean_ratio, mean_cycle_ratio) = (mean(|row| row.ratio), mean(|row| row.cycle_ratio));
        let machine = Processor::of_this_machine()?;
        let (threads, isa) = (team.threads(), team.isa().name());
        Ok(Report { machine, threads, isa, layers, rows, mean_ratio, mean_cycle_ratio, remarks })
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { machine, threads, isa, layers, rows, mean_ratio, mean_cycle_ratio, remarks } = self;
        writeln!(f, "{machine}")?;
        let layers = Many(*layers as u64, "fully connected layer");
        writeln!(f, "{layers} of N x C x K, {threads} threads with {isa}\n")?;
        let mut table =
            Table::new(["N x C x K", "numbers", "pass", "GFLOP/s", "limit", "reached", "GHz", "limit's", "of cycles"]);
        for row in rows {
            let names =
                [format!("{} x {} x {}", row.n, row.c, row.k), row.precision.to_string(), row.pass.name().to_owned()];
            let figures = [
                format!("{:.1}", row.gflops),
                format!("{:.1}", row.peak_gflops),
                format!("{:.1} %", 100.0 * row.ratio),
                format!("{:.2}", row.clock_ghz),
                format!("{:.2}", row.peak_clock_ghz),
                format!("{:.1} %", 100.0 * row.cycle_ratio),
            ];
            table.row(names.into_iter().chain(figures));
        }
        writeln!(f, "{table}")?;
        let [mean, cycles] = [mean_ratio, mean_cycle_ratio].map(|ratio| 100.0 * ratio);
        writeln!(
            f,
            "  mean {mean:.1} %, {cycles:.1} % of cycles; the limit is measured right before and after each pass,"
        )?;
        writeln!(f, "  clocks right after each: cores may run slower for work that moves data than for their limit")?;
        let tiles: Vec<_> = rows.iter().filter_map(|row| row.tiles_gflops.zip(row.tiles_ratio)).collect();
        if !tiles.is_empty() {
            let count = tiles.len() as f64;
            let (peak, part) = tiles.iter().fold((0.0, 0.0), |sum, row| (sum.0 + row.0 / count, sum.1 + row.1 / count));
            writeln!(
                f,
                "  f32 go over tiles, six products of bf16 each, whose own limit is {peak:.0} GFLOP/s (the mean of"
            )?;
            writeln!(
                f,
                "  one measurement after each pass): reached {:.1} %; --isa amx-bf16 multiplies f32 as such",
                100.0 * part
            )?;
        }
        remarks.iter().try_for_each(|remark| writeln!(f, "  {remark}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shapes_and_names_are_read_or_refused() {
        assert_eq!(shape("2048x13x1"), Ok([2048, 13, 1]));
        for bad in ["1x2", "1x2x3x4", "0x1x1", "axbxc", ""] {
            assert!(shape(bad).is_err(), "{bad}");
        }
        assert_eq!(isa(Some("scalar")).unwrap().name(), "scalar");
        let message = isa(Some("avx2000")).unwrap_err().to_string();
        assert!(message.contains("scalar"), "{message}");
    }
}
