//! `octorec bench allreduce`: what an all-reduce moves, against the non-temporal copy limit of the same minute.
//!
//! The limit counts every byte read and written, and so do the figures that are divided by it: a term is read, written
//! into a window, read there and added to a sum that is read and written; a finished slice is read, written, read,
//! written.

use std::fmt;

use clap::Args;
use serde::Serialize;

use super::LimitArgs;
use super::ranks::{BenchRanks, Figures, Frame, Sizes};
use crate::base::config::Collective;
use crate::base::units::Bytes;
use crate::base::{Error, Result};
use crate::cli::table::Table;
use crate::collective::plan::{Reduction, reductions};
use crate::collective::{Executor, LaneSpec, Links, Payload, Raw, Slices, Tensor, World};
use crate::memory::Buffer;

/// The longest message: what is longer goes in pieces, the next of which is written while the last one is read.
const WINDOW_BYTES: usize = 256 << 10;

/// Flags of `octorec bench allreduce`.
#[derive(Debug, Clone, Args)]
pub struct AllReduceArgs {
    /// Ranks on each machine, each a thread on a core of its own while there are enough
    #[arg(long, value_name = "R", default_value_t = 2, value_parser = clap::value_parser!(u32).range(1..=64))]
    ranks: u32,
    /// Bytes of the tensor in f32; default: 64 KiB, 1 MiB and 16 MiB
    #[arg(long, value_name = "BYTES", value_parser = super::ranks::message_bytes)]
    bytes: Option<usize>,
    /// One schedule (`hierarchical` under mpirun, `breadth-first` without); default: all
    #[arg(long, value_name = "NAME", value_parser = Reduction::NAMES)]
    algorithm: Option<String>,
    /// Send bfloat16 instead of f32; sums stay in f32
    #[arg(long)]
    bf16: bool,
    #[command(flatten)]
    limit: LimitArgs,
    /// Print one JSON object, for scripts
    #[arg(long)]
    pub(super) json: bool,
}

/// What was measured.
#[derive(Debug, Serialize)]
pub struct Report {
    #[serde(flatten)]
    frame: Frame,
    payload: String,
    rows: Vec<Row>,
}

#[derive(Debug, Serialize)]
struct Row {
    algorithm: &'static str,
    tensor_bytes: usize,
    rounds: usize,
    #[serde(flatten)]
    figures: Figures,
}

impl AllReduceArgs {
    /// Measures all sizes and algorithms.
    ///
    /// # Errors
    /// When threads or memory are refused, the hardware cannot be explored, or a rank gets stuck.
    ///
    /// # Panics
    /// When a sum is wrong.
    pub fn measure(&self, world: &World) -> Result<Report> {
        let yard = BenchRanks::new(world, self.ranks as usize)?;
        let mut kinds = reductions(&yard.topology());
        if let Some(wanted) = &self.algorithm {
            kinds.retain(|kind| kind.name == wanted);
            if kinds.is_empty() {
                let reason = match (wanted == Collective::Hierarchical.name(), world.machines()) {
                    (true, 1) => format!("{wanted} is for several machines: start it with mpirun, or leave it away"),
                    _ => format!(
                        "{wanted} finds no way along the links of these ranks, or nothing to gain there: leave it away to \
                         see what does"
                    ),
                };
                return Err(Error::config("--algorithm", reason));
            }
        }
        let sizes = self.bytes.map_or_else(|| vec![64 << 10, 1 << 20, 16 << 20], |bytes| vec![bytes]);
        let payload = if self.bf16 { Payload::Bf16 } else { Payload::F32 };
        let (frame, rows) = yard.measure(self.limit.bytes(), || {
            let mut rows = Vec::new();
            for &tensor_bytes in &sizes {
                for kind in &kinds {
                    let (rounds, figures) = time(&yard, kind, payload, tensor_bytes)?;
                    rows.push(Row { algorithm: kind.name, tensor_bytes, rounds, figures });
                }
                // Around a ring of machines, each sends and receives nearly twice the tensor.
                let moved = 2 * tensor_bytes * (world.machines() - 1);
                let raw = yard.time_raw(Raw::AllReduce, Sizes { moved, memory: moved }, tensor_bytes)?;
                let row = |(algorithm, figures)| Row { algorithm, tensor_bytes, rounds: 1, figures };
                rows.extend(raw.into_iter().map(row));
            }
            Ok(rows)
        })?;
        let rows = rows.into_iter().map(|row| Row { figures: row.figures.against(&frame), ..row }).collect();
        Ok(Report { frame, payload: payload.to_string(), rows })
    }
}

fn time(yard: &BenchRanks, kind: &Reduction, payload: Payload, tensor_bytes: usize) -> Result<(usize, Figures)> {
    let (ranks, elements) = (yard.ranks(), tensor_bytes / size_of::<f32>());
    let schedule = kind.plan(&Slices::even(elements, ranks), payload).all_reduce();
    let rounds = schedule.rounds.len();
    let sizes = Sizes { moved: schedule.traffic().total(), memory: schedule.memory_bytes() };
    let figures =
        yard.time(sizes, LaneSpec::at_once(Links::uniform(ranks, WINDOW_BYTES)), move |member, lane, isa, clock| {
            let mut data = Buffer::<f32>::zeroed(elements);
            let mut executor = Executor::new(&schedule, lane, "bench all-reduce");
            // Zeros stay zeros, so that any number of runs can be timed; then one run with numbers is checked.
            clock.run(&mut member.barrier, || executor.run(lane, &mut Tensor::new(&mut data, payload, isa)))?;
            // Small whole numbers, exact in bfloat16 too.
            let term = |rank: usize, at: usize| ((rank * 7 + at) % 4) as f32;
            data.iter_mut().enumerate().for_each(|(at, x)| *x = term(member.rank.index(), at));
            executor.run(lane, &mut Tensor::new(&mut data, payload, isa))?;
            let sum = |at: usize| (0..ranks).map(|rank| term(rank, at)).sum::<f32>();
            assert!(data.iter().enumerate().all(|(at, &x)| x == sum(at)), "the sums are right");
            Ok(())
        })?;
    Ok((rounds, figures))
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}", self.frame)?;
        let name = format!("all-reduce, {}", self.payload);
        let mut table = Table::new([&name, "tensor", "rounds", "us", "GB/s", "GB/s of memory", "of the limit"]);
        for Row { algorithm, tensor_bytes, rounds, figures } in &self.rows {
            let names = [(*algorithm).to_owned(), Bytes(*tensor_bytes as u64).to_string(), rounds.to_string()];
            table.row(names.into_iter().chain(figures.cells()));
        }
        write!(f, "{table}\n{}", Frame::LEGEND)
    }
}
