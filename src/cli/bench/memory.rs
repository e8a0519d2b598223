//! `octorec bench memory`: the bandwidths that other benches divide by.

use std::fmt;

use clap::Args;
use serde::Serialize;

use super::{thread_counts, within_processors};
use crate::base::Result;
use crate::base::units::Bytes;
use crate::cli::table::Table;
use crate::machine::limits::{
    COPY_FORMULA, Field, GATHER_FORMULA, Pages, Processor, READ_FORMULA, Rate, STREAM_COPY_FORMULA, UPDATE_FORMULA,
};
use crate::machine::team::Team;

/// What is measured, in this order, with its formula.
const WHAT: [(&str, &str); 5] = [
    ("read", READ_FORMULA),
    ("copy", COPY_FORMULA),
    ("non-temporal copy", STREAM_COPY_FORMULA),
    ("row gather", GATHER_FORMULA),
    ("row update", UPDATE_FORMULA),
];

/// Flags of `octorec bench memory`.
#[derive(Debug, Clone, Copy, Args)]
pub struct MemoryArgs {
    /// The largest number of threads; default: one for each core
    #[arg(long, value_name = "N", default_value_t = 0, hide_default_value = true)]
    threads: usize,
    /// Memory to measure on; default: the larger of 1 GiB and four last-level caches, but an eighth of what is free
    #[arg(long, value_name = "MIB", value_parser = clap::value_parser!(u64).range(4..1 << 24))]
    mib: Option<u64>,
    /// Bytes of a row: a multiple of 64 up to 16384
    #[arg(long, value_name = "BYTES", default_value_t = 256, value_parser = row_bytes)]
    row_bytes: usize,
    /// Print one JSON object, for scripts
    #[arg(long)]
    pub(super) json: bool,
}

fn row_bytes(text: &str) -> std::result::Result<usize, String> {
    let bytes = text.parse().ok().filter(|bytes: &usize| bytes.is_multiple_of(64) && (64..=16384).contains(bytes));
    bytes.ok_or_else(|| "a multiple of 64 from 64 to 16384 is expected".to_owned())
}

/// What was measured.
#[derive(Debug, Serialize)]
pub struct Report {
    machine: Processor,
    bytes: usize,
    /// `bytes` over the last-level caches.
    times_l3: Option<f64>,
    row_bytes: usize,
    rows: Vec<Row>,
}

#[derive(Debug, Serialize)]
struct Row {
    what: &'static str,
    pages: Pages,
    threads: usize,
    gb_s: Rate,
    formula: &'static str,
    /// Rows between a prefetch and its use.
    #[serde(skip_serializing_if = "Option::is_none")]
    prefetch_ahead: Option<usize>,
}

/// Measures all of [`WHAT`] on both page sizes with 1, 2, 4 … threads.
///
/// # Errors
/// When threads or memory are refused, or the hardware cannot be explored.
pub fn measure(args: MemoryArgs) -> Result<Report> {
    let machine = Processor::of_this_machine()?;
    let wanted = args.mib.map_or_else(|| Field::sensible_bytes(machine.l3_bytes), |mib| (mib as usize) << 20);
    let whole = Team::new(within_processors(args.threads)?)?;
    let teams: Vec<Team> = thread_counts(whole.threads()).into_iter().map(Team::new).collect::<Result<_>>()?;
    let (mut rows, mut bytes) = (Vec::new(), wanted);
    for pages in Pages::ALL {
        let mut field = Field::new(&whole, wanted, pages)?;
        bytes = field.bytes();
        for team in &teams {
            let mut row = |index: usize, gb_s: Rate, prefetch_ahead: Option<usize>| {
                let (what, formula) = WHAT[index];
                rows.push(Row { what, pages, threads: team.threads(), gb_s, formula, prefetch_ahead });
            };
            row(0, field.read(team), None);
            row(1, field.copy(team), None);
            row(2, field.stream_copy(team), None);
            let gathered = field.gather(team, args.row_bytes);
            row(3, gathered.rate, Some(gathered.ahead));
            let updated = field.update(team, args.row_bytes);
            row(4, updated.rate, Some(updated.ahead));
        }
    }
    let times_l3 = machine.l3_bytes.map(|l3| bytes as f64 / l3 as f64);
    Ok(Report { machine, bytes, times_l3, row_bytes: args.row_bytes, rows })
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}", self.machine)?;
        write!(f, "on {}", Bytes(self.bytes as u64))?;
        match self.times_l3 {
            Some(times) if times < 3.95 => write!(f, ": only {times:.1} x L3, so caches serve a part")?,
            Some(times) => write!(f, " ({times:.1} x L3)")?,
            None => write!(f, ", size of L3 unknown")?,
        }
        writeln!(f, ", rows of {} bytes; GB/s, 10^9 bytes a second\n", self.row_bytes)?;
        let mut table = Table::new(["", "pages", "threads", "median", "min", "max", "prefetch ahead"]);
        for (what, _) in WHAT {
            for row in self.rows.iter().filter(|row| row.what == what) {
                let ahead = row.prefetch_ahead.map_or(String::new(), |rows| format!("{rows} rows"));
                let names = [what.to_owned(), row.pages.name().to_owned(), row.threads.to_string()];
                table.row(names.into_iter().chain(row.gb_s.cells()).chain([ahead]));
            }
        }
        writeln!(f, "{table}")?;
        for (what, formula) in WHAT {
            writeln!(f, "  {what:<17}   {formula}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_of_whole_cache_lines() {
        assert!(row_bytes("100").is_err() && row_bytes("0").is_err() && row_bytes("256") == Ok(256));
    }
}
