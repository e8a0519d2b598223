//! A few steps as activities: each rank walks the corridor (`train/step.rs`), stage by stage, and messages lead from
//! rank to rank.
//!
//! Ranks of one host write messages straight into each other's windows: the look-up of a row, or the packing of a
//! gradient, is the message, and takes of the sender's cores, of both memories and of the links between. Between hosts
//! they are staged, and travel while the ranks compute: one message from all ranks of a host to all of another. Layers
//! are reduced one after another, in the order in which their gradients are complete, by communication cores, or by the
//! compute cores after the backward pass. Lists for replicated tables go around a ring of all ranks, in turn with the
//! layers.

use std::collections::BTreeMap;

use super::outcome::{Label, MessageKind, Outcome, Wait};
use super::rates::Rates;
use super::reduction::ReductionPhase;
use crate::base::RankId;
use crate::collective::plan::Reduction;
use crate::collective::{Copier, Payload};
use crate::machine::fluid::{Activity, After, Fluid};
use crate::machine::placement::RankPlace;
use crate::machine::{Placement, Site};
use crate::model::{Limits, Shape, Stage, Work};
use crate::optim::ParamState;
use crate::shard::{Model, RankLoad};

/// Steps that are simulated: the first has nothing behind it, so the others are counted.
pub(super) const STEPS: usize = 3;

/// What is simulated.
#[derive(Clone, Copy)]
pub struct Scene<'a> {
    /// The network.
    pub shape: &'a Shape,
    /// What is kept of its weights.
    pub kept: ParamState,
    /// Whether the gradients of all layers are clipped together.
    pub clips: bool,
    /// The tables on the machine.
    pub model: &'a Model<'a>,
    /// What each rank does with their rows.
    pub rows: &'a [RankLoad],
    /// Where ranks stand.
    pub placement: &'a Placement,
    /// How layers are reduced among several ranks.
    pub reduction: Option<&'a Reduction>,
    /// What gradients travel in.
    pub payload: Payload,
    /// Whether layers are reduced behind the backward pass, where there are communication cores.
    pub overlap: bool,
    /// How near stages come to the machine's limits.
    pub rates: &'a Rates,
}

/// What a training step takes.
#[must_use]
pub fn simulate(scene: &Scene<'_>) -> Outcome {
    let mut builder = Builder::new(scene);
    for step in 0..STEPS {
        builder.step(step);
    }
    builder.outcome()
}

/// A rank on its way through the corridor.
pub(super) struct Walker {
    /// Its last activity.
    pub(super) last: Option<usize>,
    /// Messages that have come or are to come, by kind.
    pub(super) comes: [Vec<After>; MessageKind::ALL.len()],
    samples: usize,
    /// How many of them walk through the network last, once the others have gone forward and back.
    last_part: usize,
    /// Its part of what all ranks of its memory can do.
    limits: Limits,
    /// What its cores would do if the memory were theirs alone.
    alone: Limits,
}

pub(super) struct Builder<'a> {
    pub(super) scene: Scene<'a>,
    pub(super) site: &'a Site,
    pub(super) fluid: Fluid,
    labels: Vec<Option<Label>>,
    pub(super) walkers: Vec<Walker>,
    /// The reduction that communication cores were given last.
    pub(super) reduced: Option<usize>,
    /// By step, the last activity of each rank.
    ends: Vec<Vec<usize>>,
    pub(super) step: usize,
    /// By the number of parameters, and what is done of it.
    pub(super) reductions: BTreeMap<(usize, ReductionPhase), Activity>,
    /// Where each rank ends its list for replicated tables, until it is sent.
    pub(super) listed: Vec<usize>,
}

impl<'a> Builder<'a> {
    fn new(scene: &Scene<'a>) -> Self {
        let (site, model) = (scene.model.site, scene.model);
        let ranks = site.ranks.len();
        let bf16 = model.workload.bf16;
        let walker = |rank: usize| {
            let at = &site.ranks[rank];
            let gflop_s = at.peak_gflop_s(bf16);
            let limits =
                Limits { gflop_s, stream_gb_s: at.gb_s, gather_gb_s: at.row_gb_s, scatter_gb_s: at.row_update_gb_s };
            let sharers = site.pools[at.pool].ranks.len() as f64;
            let draws = scene.rates.measured_on_gflop_s.map_or(1.0, |measured_on| sharers * gflop_s / measured_on);
            let alone = Limits {
                gflop_s,
                stream_gb_s: limits.stream_gb_s * draws,
                gather_gb_s: limits.gather_gb_s * draws,
                scatter_gb_s: limits.scatter_gb_s * draws,
            };
            let rank = RankId(rank as u32);
            let samples = model.samples(rank);
            let last_part = samples / samples.div_ceil(model.part(rank).max(1)).max(1);
            let comes = std::array::from_fn(|_| Vec::new());
            Walker { last: None, comes, samples, last_part, limits, alone }
        };
        // Behind wires and memories: each rank's compute cores, then its communication cores, in seconds.
        let mut rates = site.resources();
        rates.extend(std::iter::repeat_n(1.0, 2 * ranks));
        Self {
            scene: *scene,
            site,
            fluid: Fluid::new(rates),
            labels: Vec::new(),
            walkers: (0..ranks).map(walker).collect(),
            reduced: None,
            ends: Vec::new(),
            step: 0,
            reductions: BTreeMap::new(),
            listed: Vec::new(),
        }
    }

    pub(super) fn ranks(&self) -> usize {
        self.walkers.len()
    }

    pub(super) fn place(&self, rank: usize) -> &'a RankPlace {
        &self.scene.placement.ranks[rank]
    }

    pub(super) fn pool(&self, rank: usize) -> usize {
        self.site.wires.len() + self.site.ranks[rank].pool
    }

    fn cores(&self, rank: usize) -> usize {
        self.site.wires.len() + self.site.pools.len() + rank
    }

    /// The cores of a rank's communication threads: its compute cores where they share them.
    fn comm(&self, rank: usize) -> usize {
        if self.place(rank).shares_cores() { self.cores(rank) } else { self.cores(rank) + self.ranks() }
    }

    /// Bytes a second of a rank's memory, copied past the caches.
    pub(super) fn copied(&self, rank: usize) -> f64 {
        self.site.ranks[rank].stream_copy_gb_s * 1e9
    }

    pub(super) fn add(&mut self, activity: Activity, after: impl IntoIterator<Item = After>, label: Label) -> usize {
        let number = self.fluid.add(activity, after);
        self.labels.resize(number, None);
        self.labels.push(Some(label));
        number
    }

    /// Something that a rank's compute cores do next, once what it waits for has come: alone it takes `alone_s`
    /// seconds, of which its memory is busy for `memory_s`.
    pub(super) fn walk(
        &mut self,
        rank: usize,
        stage: Stage,
        alone_s: f64,
        memory_s: f64,
        extra: Extra,
        waits: Option<MessageKind>,
    ) -> usize {
        let mut takes = extra.takes;
        let bytes = memory_s * self.copied(rank);
        // Its unit is a byte in memory or on its way, so that what shares a memory or a link shares it fairly.
        let amount = if extra.bytes > 0.0 { extra.bytes } else { bytes.max(alone_s * 1e6) };
        if amount > 0.0 {
            takes.push((self.cores(rank), alone_s / amount));
            takes.push((self.pool(rank), bytes / amount));
        }
        let last = self.walkers[rank].last;
        let comes = waits.map_or_else(Vec::new, |kind| std::mem::take(&mut self.walkers[rank].comes[kind as usize]));
        let wait = waits.map(|kind| Wait { kind, after: last });
        let sends = extra.kind;
        let label = Label::Stage { rank, stage, step: self.step, alone_s, sends, wait, is_replicated: false };
        let after: Vec<After> = last.map(After::Gone).into_iter().chain(comes).collect();
        let number = self.add(Activity { amount, takes, latency_s: extra.latency_s }, after, label);
        self.walkers[rank].last = Some(number);
        number
    }

    /// A stage of a rank that sends nothing.
    fn stage(&mut self, rank: usize, stage: Stage, work: &Work, waits: Option<MessageKind>) -> usize {
        let Walker { limits, alone, .. } = &self.walkers[rank];
        let memory_s = limits.ms(&Work { operations: 0.0, ..*work }) * 1e-3;
        let alone_s = alone.ms(work) * 1e-3 / self.scene.rates.of(stage);
        self.walk(rank, stage, alone_s, memory_s, Extra::default(), waits)
    }

    /// A stage of a rank's tables: bytes of random rows, and bytes in order.
    fn rows(&mut self, rank: usize, stage: Stage, [rows, stream]: [f64; 2], waits: Option<MessageKind>) -> usize {
        let [alone_s, memory_s] = self.rows_s(rank, stage, [rows, stream]);
        self.walk(rank, stage, alone_s / self.scene.rates.of(stage), memory_s, Extra::default(), waits)
    }

    /// Seconds of the rank's cores, had they the memory to themselves, and of its part of the memory.
    fn rows_s(&self, rank: usize, stage: Stage, [rows, stream]: [f64; 2]) -> [f64; 2] {
        let Walker { limits, alone, .. } = &self.walkers[rank];
        [alone, limits].map(|limits| {
            // Sums are read and written, too.
            let written = matches!(stage, Stage::UpdateRows | Stage::PackGradients);
            let random = if written { limits.scatter_gb_s } else { limits.gather_gb_s };
            rows / (random * 1e9) + stream / (limits.stream_gb_s * 1e9)
        })
    }

    fn step(&mut self, step: usize) {
        self.step = step;
        let ranks = self.ranks();
        let (batch, element) = {
            let workload = self.scene.model.workload;
            (workload.batch as f64, workload.exchange_bytes as f64)
        };
        let of = self.scene.rows;
        let samples = |builder: &Self, rank: usize| builder.walkers[rank].samples as f64;
        for rank in 0..ranks {
            let besides_s = self.besides_s(rank, batch);
            if besides_s > 0.0 {
                self.walk(rank, Stage::WaitData, besides_s, 0.0, Extra::default(), None);
            }
        }
        self.exchange(MessageKind::Ids, Stage::PackIds, |builder, from, to| {
            let bytes = of[to].ids * samples(builder, from) + of[to].id_heads;
            (bytes, [2.0 * bytes / builder.copied(from); 2])
        });
        for rank in 0..ranks {
            // What waits for ids has no work of its own.
            self.walk(rank, Stage::LookUp, 0.0, 0.0, Extra::default(), Some(MessageKind::Ids));
        }
        self.exchange(MessageKind::PooledRows, Stage::LookUp, |builder, from, to| {
            let samples = samples(builder, to);
            let looked_up = of[from].for_others.map(|bytes| bytes * samples);
            (of[from].columns * samples * element, builder.rows_s(from, Stage::LookUp, looked_up))
        });
        for rank in 0..ranks {
            let Walker { samples, last_part, .. } = self.walkers[rank];
            // While pooled rows travel, own ones of all parts are pooled, and the first part has something to do.
            self.rows(rank, Stage::LookUp, of[rank].for_own, None);
            self.work(rank, Stage::Bottom, last_part, Some(MessageKind::DenseGradients));
            let all = of.iter().map(|of| of.columns).sum::<f64>();
            let others = (all - of[rank].columns) * samples as f64 * element;
            let joined_s = 2.0 * others / self.copied(rank);
            self.walk(rank, Stage::JoinRows, joined_s, joined_s, Extra::default(), Some(MessageKind::PooledRows));
            let (forward, back) = (
                [Stage::Bottom, Stage::Interact, Stage::Top, Stage::Loss],
                [Stage::BackTop, Stage::BackInteract, Stage::BackBottom],
            );
            if samples > last_part {
                forward.into_iter().chain(back).for_each(|stage| _ = self.work(rank, stage, samples - last_part, None));
            }
            forward[1..].iter().for_each(|stage| _ = self.work(rank, *stage, last_part, None));
        }
        let complete = self.backward(element);
        if !self.scene.rates.waits_before_update {
            self.update_rows();
        }
        self.copy_gradients();
        self.reduce(complete);
        self.copy_gradients();
        if self.scene.rates.waits_before_update {
            self.update_rows();
        }
        self.update_replicas();
        let ends = self.walkers.iter().map(|walker| walker.last.expect("a rank has walked"));
        self.ends.push(ends.collect());
    }

    /// Seconds of a rank's step that are no stage's.
    fn besides_s(&self, rank: usize, batch: f64) -> f64 {
        let (rates, place) = (self.scene.rates, self.place(rank));
        let others = if place.shares_cores() { 0 } else { place.comm.len() };
        let (compute, all) = (place.compute.len() as f64, (place.compute.len() + others) as f64);
        let sample_s = rates.sample_s * all / compute;
        rates.step_s + sample_s * self.walkers[rank].samples as f64 + rates.whole_sample_s * batch
    }

    /// A stage of the network, for so many samples.
    pub(super) fn work(&mut self, rank: usize, stage: Stage, samples: usize, waits: Option<MessageKind>) -> usize {
        let work = self.scene.shape.work(stage, samples, self.scene.kept);
        self.stage(rank, stage, &work, waits)
    }

    /// The backward pass of the last part, with which gradients are complete. Returns the layers in the order in which
    /// their gradients are: the number of each, and the activity that completes it on each rank.
    fn backward(&mut self, element: f64) -> Vec<(usize, Vec<usize>)> {
        let ranks = self.ranks();
        let of = |stage: Stage| -> Vec<usize> {
            let layers = self.scene.shape.layers().enumerate();
            layers.filter(|(_, layer)| layer.stage == stage).map(|(at, _)| at).collect()
        };
        let [top, crossed, bottom] = [Stage::Top, Stage::Interact, Stage::Bottom].map(of);
        let mut complete = Vec::new();
        for (stage, layers) in [(Stage::BackTop, top), (Stage::BackInteract, crossed)] {
            self.layers(stage, &layers, &mut complete);
            let through: usize = layers.iter().map(|layer| self.scene.shape.multiplied(*layer)).sum();
            for rank in 0..ranks {
                // Beside the layers.
                let samples = self.walkers[rank].last_part;
                let mut rest = self.scene.shape.work(stage, samples, self.scene.kept);
                rest.operations = (rest.operations - (4 * samples * through) as f64).max(0.0);
                self.stage(rank, stage, &rest, None);
            }
        }
        self.listed.clear();
        for (rank, of) in self.scene.rows.iter().enumerate().filter(|(_, of)| of.list > 0.0) {
            let listed = self.rows(rank, Stage::UpdateRows, of.listed, None);
            self.is_replicated(listed);
            self.listed.push(listed);
        }
        self.exchange(MessageKind::Gradients, Stage::PackGradients, |builder, from, to| {
            let bytes = builder.scene.rows[to].columns * builder.walkers[from].samples as f64 * element;
            (bytes, [bytes / builder.copied(from); 2])
        });
        self.layers(Stage::BackBottom, &bottom, &mut complete);
        complete
    }

    /// Layers from the last to the first; nobody needs the gradient of the dense features.
    fn layers(&mut self, stage: Stage, layers: &[usize], complete: &mut Vec<(usize, Vec<usize>)>) {
        for &layer in layers.iter().rev() {
            let passes = if layer == 0 && stage == Stage::BackBottom { 2.0 } else { 4.0 };
            let of_rank = |rank: usize, builder: &mut Self| {
                let operations =
                    passes * (builder.walkers[rank].last_part * builder.scene.shape.multiplied(layer)) as f64;
                builder.stage(rank, stage, &Work::arithmetic(operations), None)
            };
            complete.push((layer, (0..self.ranks()).map(|rank| of_rank(rank, self)).collect()));
        }
    }

    /// Whether communication cores carry what travels.
    pub(super) fn by_cores(&self) -> bool {
        self.scene.placement.ranks.iter().all(|place| !place.comm.is_empty())
    }

    pub(super) fn copier(&self, rank: usize) -> Copier {
        let (place, rates) = (self.place(rank), self.scene.rates);
        let own = place.comm.len() as f64 * rates.core_gb_s * 1e9;
        let (resource, bytes_s) = match self.by_cores() {
            true => (self.comm(rank), own.min(self.copied(rank))),
            false => (self.cores(rank), self.copied(rank)),
        };
        let cores = if resource == self.cores(rank) { place.compute.len() } else { place.comm.len() };
        let (takes, cores) = (1.0 / bytes_s, cores as f64);
        Copier { resource, takes, host: place.host, network: rates.network_copies, cores }
    }

    /// Backward and update of the rows.
    fn update_rows(&mut self) {
        let of = self.scene.rows;
        self.sum_hot();
        for (rank, of) in of.iter().enumerate() {
            self.walk(rank, Stage::UpdateRows, 0.0, 0.0, Extra::default(), Some(MessageKind::Gradients));
            self.rows(rank, Stage::UpdateRows, of.update, Some(MessageKind::HotGradients));
        }
        self.exchange(MessageKind::HotRows, Stage::UpdateRows, |builder, from, _| {
            let bytes = of[from].moved;
            (bytes, [bytes / builder.copied(from); 2])
        });
        let moved = of.iter().map(|of| of.moved).sum::<f64>();
        for (rank, of) in of.iter().enumerate().filter(|_| moved > 0.0) {
            let others = moved - of.moved;
            self.rows(rank, Stage::UpdateRows, [others, others], Some(MessageKind::HotRows));
        }
    }

    /// Sums of the gradients of copies, to the owners of their rows.
    fn sum_hot(&mut self) {
        let of = self.scene.rows;
        for (rank, of) in of.iter().enumerate().filter(|(_, of)| of.sums != [0.0; 2]) {
            self.rows(rank, Stage::PackGradients, of.sums, None);
        }
        self.exchange(MessageKind::HotGradients, Stage::PackGradients, |builder, from, to| {
            let bytes = of[from].sent_sums[to];
            (bytes, [bytes / builder.copied(from); 2])
        });
    }

    /// Update of replicated tables, once all ranks' lists have come.
    fn update_replicas(&mut self) {
        for (rank, of) in self.scene.rows.iter().enumerate().filter(|(_, of)| of.update_replicas != [0.0; 2]) {
            if self.ranks() > 1 {
                self.walk(rank, Stage::ReduceDense, 0.0, 0.0, Extra::default(), Some(MessageKind::ReplicaGradients));
            }
            let update = self.rows(rank, Stage::UpdateRows, of.update_replicas, None);
            self.is_replicated(update);
        }
    }

    /// Notes of a stage's activity that it is one of replicated tables.
    fn is_replicated(&mut self, activity: usize) {
        if let Some(Label::Stage { is_replicated, .. }) = &mut self.labels[activity] {
            *is_replicated = true;
        }
    }

    fn outcome(mut self) -> Outcome {
        self.labels.resize(self.fluid.len(), None);
        let named = |resource: usize| self.site.resource_name(resource);
        let first = self.site.wires.len() + self.site.pools.len();
        Outcome::of(&self.fluid, &self.labels, &self.ends, &|resource| match resource {
            shared if shared < first => named(shared),
            own if own < first + self.ranks() => format!("compute cores of rank {}", own - first),
            comm => format!("communication cores of rank {}", comm - first - self.ranks()),
        })
    }
}

/// What an activity of the compute cores is besides: a message.
#[derive(Default)]
pub(super) struct Extra {
    pub bytes: f64,
    pub takes: Vec<(usize, f64)>,
    pub latency_s: f64,
    pub kind: Option<MessageKind>,
}
