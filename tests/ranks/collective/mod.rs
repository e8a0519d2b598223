//! Collectives: every schedule computes what it claims, the executor does what the schedule says to the last bit and
//! the last byte, delays change nothing, and a rank in trouble takes the others with it.

mod bench;
mod links;
mod one_sided;
mod proof;
mod reductions;
mod relays;
mod stress;
mod trouble;

use std::time::Duration;

use octorec::base::rng::{Random, Stream};
use octorec::base::{RankId, Result};
use octorec::collective::{Carrier, Fabric, Fold, Links, Member, Payload, Schedule, SharedMemory, launch};
use octorec::memory::Supply;
use octorec::simd::bf16;
use octorec::sync::{Job, Patience};

/// Ranks outnumber cores here, so nobody spins.
fn job(ranks: usize) -> Job {
    Job::new(ranks, Patience::SHARED_CORE, Duration::from_secs(60))
}

/// Runs `body` on every rank with its lanes.
fn with_lanes<T: Send + 'static>(
    job: &Job,
    lanes: Vec<Links>,
    body: impl Fn(Member, Vec<Box<dyn Carrier>>) -> Result<T> + Send + Sync + 'static,
) -> Result<Vec<T>> {
    let fabric = SharedMemory::new(job, lanes);
    launch(job, 0..job.ranks(), move |mut member| {
        let memory = fabric.memory(member.rank, &mut Supply::System)?;
        let lanes = fabric.connect(&mut member.barrier, memory)?;
        body(member, lanes)
    })
}

/// Numbers between -1 and 1 of many magnitudes.
fn numbers(seed: u64, len: usize) -> Vec<f32> {
    let random = Random::new(seed, Stream::Label);
    let number = |at: u64| {
        let [a, b, ..] = random.block(at);
        a as i32 as f32 / 2f32.powi(31 + (b % 12) as i32)
    };
    (0..len as u64).map(number).collect()
}

/// What a schedule on tensors does, hop by hop: the definition that the executor is held to.
fn interpret(schedule: &Schedule, memory: &mut [Vec<f32>]) {
    let rounded = |x: f32| if schedule.payload == Payload::Bf16 { bf16::widen(bf16::narrow(x)) } else { x };
    for round in &schedule.rounds {
        let before = memory.to_vec();
        for hop in round {
            for (source, target) in hop.source.clone().zip(hop.target.clone()) {
                let term = rounded(before[hop.from.index()][source]);
                match hop.fold {
                    Fold::Add => memory[hop.to.index()][target] += term,
                    Fold::Copy => {
                        memory[hop.from.index()][source] = term;
                        memory[hop.to.index()][target] = term;
                    }
                }
            }
        }
    }
}

/// Sizes from 0 to `most`, some of them 0.
fn sizes(seed: u64, count: usize, most: usize) -> Vec<usize> {
    let random = Random::new(seed, Stream::Label);
    let size = |at: u64| {
        let [a, b, ..] = random.block(at);
        if a.is_multiple_of(4) { 0 } else { b as usize % (most + 1) }
    };
    (0..count as u64).map(size).collect()
}

fn rank(index: usize) -> RankId {
    RankId(index as u32)
}
