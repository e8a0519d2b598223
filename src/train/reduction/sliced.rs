//! Gradients in slices, one a rank: reduce-scattered, applied by the rank that owns the slice, and gathered as weights.
//!
//! Several threads of a rank take part, each in a lane of its own (SC20, Section IV-A): of every layer each takes a part
//! of every rank's slice.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use super::Sent;
use crate::base::config::Wire;
use crate::base::{RankId, Result};
use crate::collective::plan::Reduction;
use crate::collective::{Carrier, Links};
use crate::exchange::{LayerExchange, Replicas, Share, SquaresExchange, share_out};
use crate::layer::{Linear, TensorSquares};
use crate::machine::team::Team;
use crate::memory::recycled;
use crate::model::Network;
use crate::optim::Pace;
use crate::sync::Each;
use crate::train::clock::{Span, TRACED_SPANS};

/// A rank's part in the reduction of all layers and replicated tables.
pub(in crate::train) struct Sliced {
    threads: Vec<Thread>,
    /// Where there are replicated tables.
    replicas_lane: Option<Box<dyn Carrier>>,
    rank: RankId,
    ranks: usize,
    /// In how many parts a slice is cut, whatever the number of threads.
    ways: usize,
    planned: Links,
    /// Where the optimizer needs norms of layers, in the first thread's lane.
    squares: Option<SquaresExchange>,
    /// Memory that steps use again: they allocate nothing.
    tasks: Vec<Task<'static>>,
}

/// What one thread needs.
struct Thread {
    lane: Box<dyn Carrier>,
    layers: Vec<LayerExchange>,
    /// Memory for its share of a layer.
    share: Share<'static>,
    spans: Spans,
}

/// What a thread did, where that is traced: as much as there is room for.
pub(super) type Spans = Arc<Mutex<Vec<Span>>>;

/// What one thread does for a layer.
struct Task<'a> {
    thread: &'a mut Thread,
    share: Share<'a>,
    outcome: Result<()>,
}

impl Sliced {
    /// For the layers of a model, one lane a thread, and its replicated tables.
    pub(in crate::train) fn new(
        lanes: Vec<Box<dyn Carrier>>,
        replicas_lane: Option<Box<dyn Carrier>>,
        network: &mut dyn Network,
        (reduction, wire): (&Reduction, Wire),
        traced: bool,
    ) -> Self {
        let (count, rank, ranks) = (lanes.len(), lanes[0].rank(), lanes[0].ranks());
        let ways = reduction.ways;
        let spans = || Arc::new(Mutex::new(if traced { Vec::with_capacity(TRACED_SPANS) } else { Vec::new() }));
        let mut threads: Vec<Thread> = lanes
            .into_iter()
            .map(|lane| Thread { lane, layers: Vec::new(), share: Vec::new(), spans: spans() })
            .collect();
        for index in 0..network.layers() {
            let mut shares: Vec<Share<'_>> = (0..count).map(|_| Vec::with_capacity(ranks * ways)).collect();
            share_out(network.layer_mut(index), [ranks, ways, count], |thread, pieces| shares[thread].push(pieces));
            for (thread, share) in threads.iter_mut().zip(shares) {
                thread.layers.push(LayerExchange::new(share, &*thread.lane, reduction, wire));
            }
        }
        let layers = threads.iter().flat_map(|thread| &thread.layers);
        let mut planned = layers.fold(Links::uniform(ranks, 0), |sum, layer| sum.plus(layer.traffic()));
        let norms = (0..network.layers()).filter(|index| network.layer(*index).optimizer().needs_norms()).count();
        let squares = (norms > 0).then(|| SquaresExchange::new(&*threads[0].lane, reduction));
        if let Some(squares) = &squares {
            planned = (0..norms).fold(planned, |sum, _| sum.plus(squares.traffic()));
        }
        Self { threads, replicas_lane, rank, ranks, ways, planned, squares, tasks: Vec::new() }
    }

    pub(super) fn layers(&self) -> usize {
        self.threads[0].layers.len()
    }

    /// Reduces a layer's gradients and updates it.
    pub(super) fn layer(&mut self, team: &Team, index: usize, layer: &mut Linear, pace: Pace) -> Result<()> {
        let (isa, count) = (team.isa(), self.threads.len());
        let mut tasks: Vec<Task<'_>> = recycled(std::mem::take(&mut self.tasks));
        tasks.extend(self.threads.iter_mut().map(|thread| {
            let share = recycled(std::mem::take(&mut thread.share));
            Task { thread, share, outcome: Ok(()) }
        }));
        share_out(layer, [self.ranks, self.ways, count], |thread, pieces| tasks[thread].share.push(pieces));
        let needs_norms = self.squares.is_some();
        let mut result = each(team, &mut tasks, index, |exchange, lane, share| {
            exchange.reduce(lane, share, isa, pace)?;
            if needs_norms { Ok(()) } else { exchange.spread(lane, share, isa, None) }
        });
        if let (Some(squares), Ok(())) = (&mut self.squares, &result) {
            let mut own = TensorSquares::default();
            for way in 0..self.ways {
                let pieces = tasks.iter().map(|task| &task.thread.layers[index].own(&task.share)[way]);
                pieces.for_each(|pieces| own.add(pieces));
            }
            result = squares.run(&mut *tasks[0].thread.lane, own, isa).and_then(|sums| {
                let paces = Some(sums.paces(pace));
                each(team, &mut tasks, index, |exchange, lane, share| exchange.spread(lane, share, isa, paces))
            });
        }
        for task in &mut tasks {
            task.thread.share = recycled(std::mem::take(&mut task.share));
        }
        self.tasks = recycled(tasks);
        result
    }

    /// Brings what all ranks have for the replicated tables to all.
    pub(super) fn replicas(&mut self, replicas: &mut Replicas) -> Result<()> {
        self.replicas_lane.as_mut().map_or(Ok(()), |lane| replicas.exchange(&mut **lane))
    }

    pub(super) fn clear_foreign_moments(&self, layer: &mut Linear) {
        clear_foreign_moments(layer, self.rank, self.ranks);
    }

    pub(super) fn sent(&self) -> Sent {
        let mut so_far = vec![0; self.ranks];
        self.sent_so_far(&mut so_far);
        Sent { planned: self.planned.clone(), so_far }
    }

    /// Writes bytes sent so far to each rank to `to`.
    pub(super) fn sent_so_far(&self, to: &mut [usize]) {
        to.fill(0);
        for lane in self.threads.iter().map(|thread| &thread.lane).chain(&self.replicas_lane) {
            to.iter_mut().zip(lane.sent()).for_each(|(sum, bytes)| *sum += bytes);
        }
    }

    /// What its threads did, by thread.
    pub(super) fn spans(&self) -> Vec<Spans> {
        self.threads.iter().map(|thread| thread.spans.clone()).collect()
    }
}

/// Lets every thread work on its part of a layer.
fn each(
    team: &Team,
    tasks: &mut [Task<'_>],
    index: usize,
    work: impl Fn(&mut LayerExchange, &mut dyn Carrier, &mut Share<'_>) -> Result<()> + Sync,
) -> Result<()> {
    let run = |task: &mut Task<'_>| {
        let Thread { lane, layers, spans, .. } = &mut *task.thread;
        let began = Instant::now();
        task.outcome = work(&mut layers[index], &mut **lane, &mut task.share);
        let mut spans = spans.lock().unwrap_or_else(PoisonError::into_inner);
        if spans.len() < spans.capacity() {
            spans.push(Span { name: "reduce layer", number: index as u64, began, took: began.elapsed() });
        }
    };
    match &mut *tasks {
        [only] => run(only),
        many => team.each(Each::new(many), run),
    }
    let mut result = Ok(());
    for task in tasks {
        result = result.and(std::mem::replace(&mut task.outcome, Ok(())));
    }
    result
}

/// Clears the moments of a layer's slices of other ranks: they are not moved here.
pub(super) fn clear_foreign_moments(layer: &mut Linear, rank: RankId, ranks: usize) {
    for (owner, pieces) in layer.pieces(ranks).enumerate() {
        if owner != rank.index() {
            pieces.into_iter().for_each(|mut piece| piece.clear_moments());
        }
    }
}
