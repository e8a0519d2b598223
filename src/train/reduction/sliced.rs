//! Gradients in slices, one a rank: reduce-scattered, applied by the rank that owns the slice, and gathered as weights.
//!
//! Several threads of a rank take part, each in a lane of its own (SC20, Section IV-A): of every layer each takes a
//! part of every rank's slice.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use super::layers::{LayerExchange, ThreadShare, share_out};
use super::norms::SquaresExchange;
use super::{Clip, Sent};
use crate::base::config::Wire;
use crate::base::{RankId, Result, Unpoisoned};
use crate::collective::plan::Reduction;
use crate::collective::{Carrier, Links};
use crate::exchange::Replicas;
use crate::layer::{Linear, TensorSquares};
use crate::machine::team::Team;
use crate::memory::recycled;
use crate::model::Network;
use crate::optim::{StepSize, StepSizes};
use crate::sync::Each;
use crate::train::clock::{Span, TRACED_SPANS};

/// A rank's part in the reduction of all layers and replicated tables.
pub(in crate::train) struct Sliced {
    threads: Vec<Thread>,
    /// Where there are replicated tables.
    replicas_lane: Option<Lane>,
    ranks: usize,
    /// In how many parts a slice is cut, whatever the number of threads.
    ways: usize,
    planned: Links,
    /// Where an optimizer needs norms of layers, or gradients are clipped: in the first thread's lane.
    squares: Option<SquaresExchange>,
    clip: Option<Clip>,
    /// Where gradients are clipped: layers whose gradients are summed, and wait for those of all.
    held: Vec<LayerBlock>,
    /// The squares of this rank's slices of their gradients.
    held_squares: TensorSquares,
    /// Memory that steps use again: they allocate nothing.
    tasks: Vec<Task<'static>>,
}

/// A lane of one thread.
type Lane = Box<dyn Carrier>;

/// What one thread needs.
struct Thread {
    lane: Lane,
    layers: Vec<LayerExchange>,
    /// Memory for its share of a layer.
    share: ThreadShare<'static>,
    spans: Spans,
}

/// What a thread did, where that is traced: as much as there is room for.
pub(super) type Spans = Arc<Mutex<Vec<Span>>>;

/// A layer on its way through a reduction.
pub(super) struct LayerBlock {
    index: usize,
    layer: Linear,
    step_size: StepSize,
    /// How long threads have worked on it.
    pub busy: Duration,
}

/// What one thread does for a layer.
struct Task<'a> {
    thread: &'a mut Thread,
    share: ThreadShare<'a>,
    outcome: Result<()>,
}

/// What threads do for one layer.
struct LayerWork<'a> {
    tasks: Vec<Task<'a>>,
    /// The layer's number.
    index: usize,
    ways: usize,
    squares: &'a mut Option<SquaresExchange>,
    memory: &'a mut Vec<Task<'static>>,
}

impl LayerBlock {
    /// Takes a layer, whose gradient is complete, out of its network; a hollow one stands in its place.
    pub fn take(index: usize, layer: &mut Linear, step_sizes: StepSizes) -> Self {
        let step_size = step_sizes[layer.group()];
        Self { index, layer: std::mem::replace(layer, Linear::hollow()), step_size, busy: Duration::ZERO }
    }

    /// Puts it back in its place.
    pub fn put_back(self, network: &mut dyn Network) {
        *network.layer_mut(self.index) = self.layer;
    }
}

impl Sliced {
    /// For the layers of a model, one lane a thread, and its replicated tables.
    pub(in crate::train) fn new(
        (lanes, replicas_lane): (Vec<Lane>, Option<Lane>),
        network: &mut dyn Network,
        (reduction, wire): (&Reduction, Wire),
        clip: Option<Clip>,
        traced: bool,
    ) -> Self {
        let (count, ranks) = (lanes.len(), lanes[0].ranks());
        let ways = reduction.ways;
        let spans = || Arc::new(Mutex::new(if traced { Vec::with_capacity(TRACED_SPANS) } else { Vec::new() }));
        let mut threads: Vec<Thread> = lanes
            .into_iter()
            .map(|lane| Thread { lane, layers: Vec::new(), share: Vec::new(), spans: spans() })
            .collect();
        for index in 0..network.layers() {
            let mut shares: Vec<ThreadShare<'_>> = (0..count).map(|_| Vec::with_capacity(ranks * ways)).collect();
            share_out(network.layer_mut(index), [ranks, ways, count], |thread, pieces| shares[thread].push(pieces));
            for (thread, share) in threads.iter_mut().zip(shares) {
                thread.layers.push(LayerExchange::new(share, &*thread.lane, reduction, wire));
            }
        }
        let layers = threads.iter().flat_map(|thread| &thread.layers);
        let mut planned = layers.fold(Links::uniform(ranks, 0), |sum, layer| sum.plus(layer.traffic()));
        let norms = (0..network.layers()).filter(|index| network.layer(*index).optimizer().needs_norms()).count();
        let exchanges = norms + usize::from(clip.is_some());
        let squares = (exchanges > 0).then(|| SquaresExchange::new(&*threads[0].lane, reduction));
        if let Some(squares) = &squares {
            planned = (0..exchanges).fold(planned, |sum, _| sum.plus(squares.traffic()));
        }
        let held = Vec::with_capacity(clip.map_or(0, |_| network.layers()));
        let (held_squares, tasks) = (TensorSquares::default(), Vec::new());
        Self { threads, replicas_lane, ranks, ways, planned, squares, clip, held, held_squares, tasks }
    }

    pub(super) fn layers(&self) -> usize {
        self.threads[0].layers.len()
    }

    /// Whether gradients are clipped.
    pub(super) const fn clips(&self) -> bool {
        self.clip.is_some()
    }

    /// Reduces a layer's gradients, updates it and gives it to `done`. Where gradients are clipped, a layer whose
    /// gradients are summed is held; with the last one the norm is known, and all are updated and given to `done`, in
    /// the order in which they came.
    pub(super) fn reduce(
        &mut self,
        team: &Team,
        mut block: LayerBlock,
        mut done: impl FnMut(&Self, LayerBlock),
    ) -> Result<()> {
        let mut began = Instant::now();
        let (isa, step_size) = (team.isa(), block.step_size);
        let Some(clip) = self.clip else {
            self.update(team, &mut block, |exchange, lane, share| {
                exchange.reduce_scatter(lane, share, isa, Some(step_size))
            })?;
            block.busy = began.elapsed();
            done(self, block);
            return Ok(());
        };
        self.sum(team, &mut block)?;
        block.busy = began.elapsed();
        self.held.push(block);
        if self.held.len() < self.layers() {
            return Ok(());
        }
        began = Instant::now();
        let factor = self.factor(team, clip)?;
        let mut held = std::mem::take(&mut self.held);
        for mut block in held.drain(..) {
            let step_size = block.step_size;
            self.update(team, &mut block, |exchange, _, share| {
                exchange.clip(share, isa, factor, step_size);
                Ok(())
            })?;
            block.busy += began.elapsed();
            done(self, block);
            began = Instant::now();
        }
        self.held = held;
        Ok(())
    }

    /// Panics where a layer is still held: a network has announced some layers only.
    pub(super) fn check_all_done(&self) {
        assert!(self.held.is_empty(), "{} of {} layers were announced", self.held.len(), self.layers());
    }

    /// Only sums a layer's gradients, and notes their squares.
    fn sum(&mut self, team: &Team, block: &mut LayerBlock) -> Result<()> {
        let isa = team.isa();
        let mut work = self.work(block.index, &mut block.layer);
        let result = work.each(team, |exchange, lane, share| exchange.reduce_scatter(lane, share, isa, None));
        let squares = result.is_ok().then(|| work.own_squares());
        work.end();
        squares.iter().for_each(|squares| self.held_squares.plus(squares));
        result
    }

    /// What the gradients of all layers are multiplied by, once all of them are summed.
    fn factor(&mut self, team: &Team, clip: Clip) -> Result<f32> {
        let own = std::mem::take(&mut self.held_squares);
        let squares = self.squares.as_mut().expect("what clips exchanges squares");
        Ok(clip.factor(squares.run(&mut *self.threads[0].lane, own, team.isa())?))
    }

    /// Updates a layer and gives it to all ranks: `step` moves this rank's weights, or makes directions of their
    /// gradients where that needs norms of the whole layer.
    fn update(
        &mut self,
        team: &Team,
        block: &mut LayerBlock,
        step: impl Fn(&mut LayerExchange, &mut dyn Carrier, &mut ThreadShare<'_>) -> Result<()> + Sync,
    ) -> Result<()> {
        let (isa, needs_norms, step_size) = (team.isa(), block.layer.optimizer().needs_norms(), block.step_size);
        let mut work = self.work(block.index, &mut block.layer);
        let mut result = work.each(team, |exchange, lane, share| {
            step(exchange, lane, share)?;
            if needs_norms { Ok(()) } else { exchange.all_gather(lane, share, isa, None) }
        });
        if needs_norms && result.is_ok() {
            result = work.all_gather_by_norms(team, step_size);
        }
        work.end();
        result
    }

    /// A layer, shared out to the threads.
    fn work<'a>(&'a mut self, index: usize, layer: &'a mut Linear) -> LayerWork<'a> {
        let Self { threads, tasks: memory, squares, ways, ranks, .. } = self;
        let (ways, count) = (*ways, threads.len());
        let mut tasks: Vec<Task<'_>> = recycled(std::mem::take(memory));
        tasks.extend(threads.iter_mut().map(|thread| {
            let share = recycled(std::mem::take(&mut thread.share));
            Task { thread, share, outcome: Ok(()) }
        }));
        share_out(layer, [*ranks, ways, count], |thread, pieces| tasks[thread].share.push(pieces));
        LayerWork { tasks, index, ways, squares, memory }
    }

    /// Brings what all ranks have for the replicated tables to all.
    pub(super) fn replicas(&mut self, replicas: &mut Replicas) -> Result<()> {
        self.replicas_lane.as_mut().map_or(Ok(()), |lane| replicas.exchange(&mut **lane))
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

impl LayerWork<'_> {
    /// Lets every thread work on its part.
    fn each(
        &mut self,
        team: &Team,
        work: impl Fn(&mut LayerExchange, &mut dyn Carrier, &mut ThreadShare<'_>) -> Result<()> + Sync,
    ) -> Result<()> {
        let index = self.index;
        let run = |task: &mut Task<'_>| {
            let Thread { lane, layers, spans, .. } = &mut *task.thread;
            let began = Instant::now();
            task.outcome = work(&mut layers[index], &mut **lane, &mut task.share);
            let mut spans = spans.lock().unpoisoned();
            if spans.len() < spans.capacity() {
                spans.push(Span { name: "reduce layer", number: index as u64, began, took: began.elapsed() });
            }
        };
        match &mut self.tasks[..] {
            [only] => run(only),
            many => team.each(Each::new(many), run),
        }
        let mut result = Ok(());
        for task in &mut self.tasks {
            result = result.and(std::mem::replace(&mut task.outcome, Ok(())));
        }
        result
    }

    /// What this rank's pieces have noted, in the order of memory: the same for any number of threads.
    fn own_squares(&self) -> TensorSquares {
        let mut own = TensorSquares::default();
        for way in 0..self.ways {
            let pieces = self.tasks.iter().map(|task| &task.thread.layers[self.index].own(&task.share)[way]);
            pieces.for_each(|pieces| own.add(pieces));
        }
        own
    }

    /// Moves this rank's weights along their directions, as far as norms of the whole layer say, and gives them to all.
    fn all_gather_by_norms(&mut self, team: &Team, step_size: StepSize) -> Result<()> {
        let own = self.own_squares();
        let Some(squares) = &mut *self.squares else { return Ok(()) };
        let sums = squares.run(&mut *self.tasks[0].thread.lane, own, team.isa())?;
        let (isa, step_sizes) = (team.isa(), Some(sums.step_sizes(step_size)));
        self.each(team, |exchange, lane, share| exchange.all_gather(lane, share, isa, step_sizes))
    }

    /// Gives the memory back.
    fn end(self) {
        let Self { mut tasks, memory, .. } = self;
        for task in &mut tasks {
            task.thread.share = recycled(std::mem::take(&mut task.share));
        }
        *memory = recycled(tasks);
    }
}

/// Clears the moments of a layer's slices of other ranks, which are not moved here: those of all ranks together are
/// whole.
pub(in crate::train) fn clear_foreign_moments(layer: &mut Linear, rank: RankId, ranks: usize) {
    for (owner, pieces) in layer.pieces(ranks).enumerate() {
        if owner != rank.index() {
            pieces.into_iter().for_each(|mut piece| piece.clear_moments());
        }
    }
}
