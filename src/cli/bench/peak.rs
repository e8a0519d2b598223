//! `octorec bench peak`: the multiply-adds that the cores can do, by instruction set and threads.

use std::fmt;

use clap::Args;
use serde::Serialize;

use super::{thread_counts, within_processors};
use crate::base::Result;
use crate::cli::table::Table;
use crate::machine::limits::{
    AMX_PEAK_FORMULA, BF16_PEAK_FORMULA, F32_PEAK_FORMULA, Processor, Rate, amx_peak, bf16_peak, f32_peak,
};
use crate::machine::team::Team;
use crate::simd::Isa;

/// Flags of `octorec bench peak`.
#[derive(Debug, Clone, Copy, Args)]
pub struct PeakArgs {
    /// The largest number of threads; default: one for each core
    #[arg(long, value_name = "N", default_value_t = 0, hide_default_value = true)]
    threads: usize,
    /// Print one JSON object, for scripts
    #[arg(long)]
    pub(super) json: bool,
}

/// What was measured.
#[derive(Debug, Serialize)]
pub struct Report {
    machine: Processor,
    rows: Vec<Row>,
}

#[derive(Debug, Serialize)]
struct Row {
    what: &'static str,
    isa: &'static str,
    threads: usize,
    gflop_s: Rate,
    formula: &'static str,
}

/// Measures every instruction set that this processor has.
///
/// # Errors
/// When threads are refused or the hardware cannot be explored.
pub fn measure(args: PeakArgs) -> Result<Report> {
    let machine = Processor::of_this_machine()?;
    let most = Team::new(within_processors(args.threads)?)?.threads();
    let mut rows = Vec::new();
    for isa in Isa::all() {
        for threads in thread_counts(most) {
            let gflop_s = f32_peak(&Team::with_isa(threads, isa)?);
            rows.push(Row { what: "f32", isa: isa.name(), threads, gflop_s, formula: F32_PEAK_FORMULA });
        }
    }
    for threads in thread_counts(most) {
        if let Some(gflop_s) = bf16_peak(&Team::new(threads)?) {
            rows.push(Row { what: "bf16", isa: "avx512bf16", threads, gflop_s, formula: BF16_PEAK_FORMULA });
        }
    }
    for threads in thread_counts(most) {
        if let Some(gflop_s) = amx_peak(&Team::new(threads)?) {
            rows.push(Row { what: "bf16", isa: "amx-bf16", threads, gflop_s, formula: AMX_PEAK_FORMULA });
        }
    }
    Ok(Report { machine, rows })
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}", self.machine)?;
        writeln!(f, "GFLOP/s, 10^9 operations a second\n")?;
        let mut table = Table::new(["numbers, vectors", "threads", "median", "min", "max"]);
        for Row { what, isa, threads, gflop_s, .. } in &self.rows {
            table.row([format!("{what} {isa}"), threads.to_string()].into_iter().chain(gflop_s.cells()));
        }
        writeln!(f, "{table}")?;
        writeln!(f, "  f32    {F32_PEAK_FORMULA}")?;
        writeln!(f, "  bf16   {BF16_PEAK_FORMULA}")?;
        writeln!(f, "  bf16   {AMX_PEAK_FORMULA}")
    }
}
