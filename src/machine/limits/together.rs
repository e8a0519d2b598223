//! All pairs at once: every node writes to the memory of every other at the same time, as an all-to-all does.
//!
//! What a pair gets then is its share of the links that its messages pass, which tells what they share with others.

use std::slice::ChunksMut;
use std::time::{Duration, Instant};

use super::memory::Field;
use super::stream::{Copy, SOURCE, source};
use crate::machine::team::Team;
use crate::simd::Isa;
use crate::sync::{Each, Line};

/// Threads are all at work after this time, from which on their bytes count.
const WARM_UP: Duration = Duration::from_millis(20);

/// What a thread writes to: a part of a node's memory.
struct Target<'a> {
    node: usize,
    cells: &'a mut [f32],
    /// Where it goes on.
    at: usize,
    /// Pieces that were written, and bytes that count.
    pieces: usize,
    bytes: u64,
}

/// A thread of a node, with all that it writes to in turn.
struct Writer<'a> {
    node: usize,
    targets: Vec<Target<'a>>,
    seconds: f64,
}

impl Writer<'_> {
    /// Writes from now on, with bytes that count from `begin` to `end`, and of each target at least one piece.
    fn write(&mut self, from: &[f32], isa: Isa, begin: Instant, end: Instant) {
        let mut counted = begin;
        while counted < end || self.targets.iter().any(|target| target.bytes == 0) {
            for target in &mut self.targets {
                let until = (target.at + SOURCE).min(target.cells.len());
                let to = &mut target.cells[target.at..until];
                let bytes = size_of_val(to) as u64;
                isa.run(Copy { from: &from[..to.len()], to, past_caches: true });
                target.at = if until == target.cells.len() { 0 } else { until };
                target.pieces += 1;
                let now = Instant::now();
                if now > begin {
                    target.bytes += bytes;
                    counted = now;
                }
            }
        }
        self.seconds = counted.duration_since(begin).as_secs_f64().max(1e-9);
    }
}

/// Bytes that every node writes past its caches to each other in `within` while all do, in GB/s: `[from][to]`, 0 on the
/// diagonal. `nodes` says at which node each thread of the team stands, ascending; `fields` is the memory of each.
/// Where a node has fewer threads than there are other nodes, they write to several in turn.
///
/// # Panics
/// When the team has other threads, or what was written did not arrive.
#[must_use]
pub fn write_together(team: &Team, nodes: &[usize], fields: &mut [Field], within: Duration) -> Vec<Vec<f64>> {
    assert_eq!(nodes.len(), team.threads(), "every thread stands at a node");
    let (count, source) = (fields.len(), source());
    if count < 2 {
        return vec![vec![0.0; count]; count];
    }
    // Which nodes each thread writes to: its share of the others, at least one.
    let mut theirs: Vec<Vec<usize>> = Vec::new();
    for node in 0..count {
        let threads = nodes.iter().filter(|at| **at == node).count();
        let others: Vec<usize> = (0..count).filter(|other| *other != node).collect();
        for thread in 0..threads {
            let first = thread * others.len() / threads;
            let last = ((thread + 1) * others.len() / threads).max(first + 1).min(others.len());
            theirs.push(others[first..last].to_vec());
        }
    }
    let writers = |node: usize| theirs.iter().flatten().filter(|other| **other == node).count();
    let shares: Vec<usize> = (0..count).map(writers).collect();
    let parts = fields.iter_mut().zip(&shares).map(|(field, writers)| {
        let cells = field.cells_mut();
        let part = (cells.len() / (*writers).max(1) / Line::FLOATS).max(1) * Line::FLOATS;
        cells.chunks_mut(part)
    });
    let mut parts: Vec<ChunksMut<'_, f32>> = parts.collect();
    let mut target = |node: usize| {
        let cells = parts[node].next().expect("a line for every thread");
        Target { node, cells, at: 0, pieces: 0, bytes: 0 }
    };
    let mut writers: Vec<Writer<'_>> = Vec::new();
    for (node, others) in nodes.iter().zip(&theirs) {
        let targets = others.iter().map(|other| target(*other)).collect();
        writers.push(Writer { node: *node, targets, seconds: 1.0 });
    }
    let (isa, begin) = (team.isa(), Instant::now() + WARM_UP);
    team.each(Each::new(&mut writers), |writer| writer.write(&source, isa, begin, begin + within));

    let mut gb_s = vec![vec![0.0; count]; count];
    for writer in &writers {
        for target in &writer.targets {
            let mut written = target.cells.chunks(SOURCE).take(target.pieces);
            assert!(written.all(|cells| cells == &source[..cells.len()]), "what was written arrived");
            gb_s[writer.node][target.node] += target.bytes as f64 / writer.seconds / 1e9;
        }
    }
    gb_s
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machine::limits::Pages;

    #[test]
    fn every_node_writes_to_every_other() {
        // More threads than cores, so that nothing is fast; of five nodes two have one thread for four others.
        let nodes = [0, 0, 0, 0, 0, 1, 2, 2, 3, 4, 4];
        let team = Team::new(nodes.len()).unwrap();
        let field = |_| Field::new(&team, 1 << 20, Pages::Small).unwrap();
        let mut fields: Vec<Field> = (0..5).map(field).collect();
        let gb_s = write_together(&team, &nodes, &mut fields, Duration::from_millis(30));
        for (from, row) in gb_s.iter().enumerate() {
            for (to, rate) in row.iter().enumerate() {
                assert_eq!(*rate > 0.0 && rate.is_finite(), from != to, "{from} to {to}: {rate}");
            }
        }
    }
}
