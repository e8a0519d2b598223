//! `octorec bench`: what this machine can do, and how close octorec comes to it.
//!
//! Every bench names the processor, checks its answers, and prints a table for people or, with `--json`, one object.

mod allreduce;
mod alltoall;
pub(super) mod chain;
mod embedding;
mod gemm;
mod memory;
mod overlap;
mod peak;
mod ranks;
pub(super) mod step;
mod team;

use clap::{Args, Subcommand};

use crate::base::console::shown;
use crate::base::{Error, Result, console};
use crate::collective::World;
use crate::machine::team::processors;

/// Flags of `octorec bench`.
#[derive(Debug, Clone, Args)]
pub struct BenchArgs {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, Clone, Subcommand)]
enum What {
    /// What it costs to start a region on all threads and to wait for its end.
    Team(team::TeamArgs),
    /// Memory bandwidth: streams, copies, random rows; small and huge pages.
    Memory(memory::MemoryArgs),
    /// The passes of multilayer perceptrons against the limit of the cores.
    Mlp(gemm::MlpArgs),
    /// The passes of single layers of any shape against the limit of the cores.
    Gemm(gemm::GemmArgs),
    /// Look-up and update of embedding rows against what memory allows.
    Embedding(embedding::EmbeddingArgs),
    /// A training step on random data, stage by stage, against the least that this machine allows.
    Step(Box<step::StepArgs>),
    /// The most multiply-adds that the cores can do.
    Peak(peak::PeakArgs),
    /// An exchange of rows among ranks, against the limit of copying.
    Alltoall(alltoall::AllToAllArgs),
    /// A sum over ranks, against the limit of copying.
    Allreduce(allreduce::AllReduceArgs),
    /// What exchanging dense gradients costs a step of several ranks, and how much of it hides behind other work.
    Overlap(Box<overlap::OverlapArgs>),
}

/// Flags of benches that hold their figures against limits of memory.
#[derive(Debug, Clone, Copy, Args)]
struct LimitArgs {
    /// Memory on which limits are measured; default: 4 x last-level cache, at least 1024. What fits a cache measures
    /// that
    #[arg(long, value_name = "MIB", value_parser = clap::value_parser!(u32).range(2..=1 << 20))]
    limit_mib: Option<u32>,
}

impl LimitArgs {
    /// The flag in bytes.
    fn bytes(self) -> Option<usize> {
        self.limit_mib.map(|mib| (mib as usize) << 20)
    }
}

impl BenchArgs {
    /// Runs the bench and prints its result.
    ///
    /// # Errors
    /// When threads or memory are refused, the hardware cannot be explored, or the output cannot be written.
    pub fn run(&self, world: &World) -> Result<()> {
        let together = matches!(self.what, What::Alltoall(_) | What::Allreduce(_) | What::Overlap(_));
        if !together && !world.is_first() {
            return Ok(());
        }
        let text = match &self.what {
            What::Team(args) => shown(&team::measure(*args)?, args.json),
            What::Memory(args) => shown(&memory::measure(*args)?, args.json),
            What::Mlp(args) => shown(&args.measure()?, args.passes.json),
            What::Gemm(args) => shown(&args.measure()?, args.passes.json),
            What::Embedding(args) => shown(&args.measure()?, args.json),
            What::Step(args) => shown(&args.measure()?, args.json),
            What::Peak(args) => shown(&peak::measure(*args)?, args.json),
            What::Alltoall(args) => shown(&args.measure(world)?, args.json),
            What::Allreduce(args) => shown(&args.measure(world)?, args.json),
            What::Overlap(args) => shown(&args.measure(world)?, args.json),
        };
        console::result(format_args!("{text}"))
    }
}

/// A number of threads of which each has a processor to itself: what takes turns measures no limit.
///
/// # Errors
/// [`Error::Config`] with the number of processors.
fn within_processors(threads: usize) -> Result<usize> {
    let most = processors();
    if threads <= most {
        return Ok(threads);
    }
    let reason =
        format!("{threads} threads would take turns on the {most} processors that octorec may use: at most {most}");
    Err(Error::config("--threads", reason))
}

/// 1, 2, 4 … and `most`.
fn thread_counts(most: usize) -> Vec<usize> {
    let mut counts: Vec<usize> = std::iter::successors(Some(1), |n| Some(n * 2)).take_while(|n| *n < most).collect();
    counts.push(most);
    counts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_double_up_to_all() {
        assert_eq!(thread_counts(1), [1]);
        assert_eq!(thread_counts(2), [1, 2]);
        assert_eq!(thread_counts(28), [1, 2, 4, 8, 16, 28]);
    }
}
