//! What reductions send: gradients of layers, one after another, and among them the lists for replicated tables and
//! what norms are made of.

use std::collections::BTreeMap;

use super::build::{Builder, Extra};
use super::outcome::{Label, MessageKind};
use crate::base::RankId;
use crate::collective::{Copier, Payload, Schedule, Slices, Works, flow};
use crate::machine::fluid::{Activity, After, Fluid};
use crate::model::{LayerShape, Stage};
use crate::train::MOST_REDUCERS;

/// What is done of a layer's reduction at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct ReductionPhase {
    /// Its gradients are summed.
    sums: bool,
    /// The norm of all layers' gradients is made.
    clips: bool,
    /// Its weights are moved and gathered.
    moves: bool,
}

impl ReductionPhase {
    const WHOLE: Self = Self { sums: true, clips: false, moves: true };
}

impl Builder<'_> {
    /// Layers that are reduced together: how many parameters, the last layer's number, and what completes its gradient.
    fn buckets(&self, complete: Vec<(usize, Vec<usize>)>) -> Vec<(usize, usize, Vec<usize>)> {
        let shapes: Vec<LayerShape> = self.scene.shape.layers().map(|layer| layer.shape).collect();
        let (mut buckets, mut open, last) = (Vec::new(), 0, complete.len());
        for (at, (layer, completes)) in complete.into_iter().enumerate() {
            open += shapes[layer].parameters();
            if open * size_of::<f32>() >= self.scene.rates.bucket_bytes || at + 1 == last {
                buckets.push((std::mem::take(&mut open), layer, completes));
            }
        }
        buckets
    }

    /// Compute cores copy all gradients to another place, or all of them back.
    pub(super) fn copy_gradients(&mut self) {
        let copying = self.scene.rates.copies_gradients && self.ranks() > 1;
        for rank in 0..if copying { self.ranks() } else { 0 } {
            let copied_s = (2 * self.scene.shape.parameters() * size_of::<f32>()) as f64 / self.copied(rank);
            self.walk(rank, Stage::ReduceDense, copied_s, copied_s, Extra::default(), None);
        }
    }

    /// The reduction of dense gradients and the update of the layers.
    pub(super) fn reduce(&mut self, complete: Vec<(usize, Vec<usize>)>) {
        let ranks = self.ranks();
        if ranks == 1 {
            self.work(0, Stage::UpdateDense, 0, None);
            return;
        }
        let by_cores = self.by_cores();
        // Of compute threads only some reduce.
        let most = if by_cores { f64::INFINITY } else { MOST_REDUCERS as f64 };
        let copier = |rank| Copier { cores: self.copier(rank).cores.min(most), ..self.copier(rank) };
        let copiers: Vec<Copier> = (0..ranks).map(copier).collect();
        let last: Vec<usize> = self.walkers.iter().map(|walker| walker.last.expect("a rank has walked")).collect();
        let behind = by_cores && self.scene.overlap;
        let mut layers_done = None;
        let buckets = self.buckets(complete);
        // Where gradients are clipped, all of them are summed before the first weight moves.
        let parts: Vec<(usize, ReductionPhase)> = match self.scene.clips {
            false => (0..buckets.len()).map(|at| (at, ReductionPhase::WHOLE)).collect(),
            true => {
                let sums = (0..buckets.len()).map(|at| (at, ReductionPhase { moves: false, ..ReductionPhase::WHOLE }));
                let moves =
                    (0..buckets.len()).map(|at| (at, ReductionPhase { sums: false, clips: at == 0, moves: true }));
                sums.chain(moves).collect()
            }
        };
        for (at, part) in parts {
            let (parameters, layer, completes) = &buckets[at];
            // What gradients of the bottom MLP come after has been listed before.
            if behind && self.listed.first().is_some_and(|listed| completes[0] > *listed) {
                self.send_lists(&copiers, None);
            }
            let own = if behind { completes } else { &last };
            let after: Vec<After> = self.reduced.iter().chain(own).map(|end| After::Gone(*end)).collect();
            let began = self.fluid.add(Activity::MOMENT, after);
            let reduction = self.reduction(*parameters, part, &copiers);
            let done = self.fluid.add(reduction, [After::Gone(began)]);
            (self.reduced, layers_done) = (Some(done), Some(done));
            for rank in 0..ranks {
                let label = Label::Layer { rank, step: self.step, layer: *layer, began };
                self.add(Activity::MOMENT, [After::Gone(done)], label);
            }
        }
        self.send_lists(&copiers, (!behind).then_some(&last[..]));
        // A network may have no layer at all.
        let Some(done) = layers_done else { return };
        for rank in 0..ranks {
            // What communication cores reduce behind other work is needed in the next forward pass.
            self.walkers[rank].comes[MessageKind::DenseGradients as usize].push(After::Gone(done));
            if !behind || self.scene.rates.waits_before_update {
                self.walk(rank, Stage::ReduceDense, 0.0, 0.0, Extra::default(), Some(MessageKind::DenseGradients));
            }
        }
    }

    /// The reduction of so many parameters, their update and the way back, or a part of that, as one activity of all
    /// ranks: it takes as long as by itself, or longer where others take of the same links and memories. Norms cost
    /// ranks an exchange of a cache line each.
    fn reduction(&mut self, parameters: usize, part: ReductionPhase, copiers: &[Copier]) -> Activity {
        if let Some(known) = self.reductions.get(&(parameters, part)) {
            return known.clone();
        }
        let (ranks, scene) = (self.ranks(), self.scene);
        let slices = Slices::even(parameters, ranks);
        let reduction = scene.reduction.expect("several ranks have one");
        let mut alone = Fluid::new(self.fluid.rates().to_vec());
        let send = |schedule: &Schedule, alone: &mut Fluid, ready| {
            flow(schedule, self.site, Works::LinksAndMemories, Some(copiers), alone, ready)
        };
        let mut ready = vec![None; ranks];
        if part.sums {
            ready = send(&reduction.plan(&slices, scene.payload), &mut alone, ready);
        }
        if part.clips {
            ready = send(&reduction.gather_lines(), &mut alone, ready);
        }
        if part.moves {
            // The sum is at hand: weights, and what is kept beside them, are read and written.
            let bytes = parameters as f64 / ranks as f64 * (2 * scene.kept.bytes()) as f64;
            let moved = ready.into_iter().enumerate().map(|(rank, ready)| {
                let takes = vec![(copiers[rank].resource, copiers[rank].takes), (self.pool(rank), 1.0)];
                Some(alone.add(Activity { amount: bytes, takes, latency_s: 0.0 }, ready.map(After::Gone)))
            });
            ready = moved.collect();
            if scene.kept.optimizer.needs_norms() {
                ready = send(&reduction.gather_lines(), &mut alone, ready);
            }
            ready = send(&reduction.plan(&slices, Payload::F32).all_gather(), &mut alone, ready);
        }
        let flowed = alone.run();
        let seconds = ready.into_iter().flatten().map(|end| flowed[end].gone_s).fold(0.0, f64::max);
        // Its unit is a byte of the gradients, so that it shares memory and links as messages do; the copiers are all
        // its own.
        let amount = (parameters * size_of::<f32>()) as f64;
        let taken = alone.taken().into_iter().enumerate().filter(|(_, taken)| *taken > 0.0);
        let mut takes: Vec<(usize, f64)> = taken.map(|(resource, taken)| (resource, taken / amount)).collect();
        let copier = |resource: usize| copiers.iter().any(|copier| copier.resource == resource);
        takes.retain(|(resource, _)| !copier(*resource));
        takes.extend(copiers.iter().map(|copier| (copier.resource, seconds / amount)));
        let activity = Activity { amount, takes, latency_s: 0.0 };
        self.reductions.insert((parameters, part), activity.clone());
        activity
    }

    /// All ranks' lists for replicated tables around a ring, as one activity, unless they have been sent: after what
    /// was reduced before, and after these, or as soon as there are lists.
    fn send_lists(&mut self, copiers: &[Copier], after: Option<&[usize]>) {
        let listed = std::mem::take(&mut self.listed);
        if listed.is_empty() {
            return;
        }
        let (ranks, mut takes, mut hops_s) = (self.ranks(), BTreeMap::<usize, f64>::new(), Vec::new());
        for from in 0..ranks {
            let to = (from + 1) % ranks;
            let mut take = |resource: usize, times: f64| *takes.entry(resource).or_default() += times;
            self.wires([from, to]).iter().for_each(|wire| take(*wire, 1.0));
            let network =
                if self.place(from).host == self.place(to).host { 0.0 } else { self.scene.rates.network_copies };
            let core_s = self.site.core_s(RankId(from as u32), RankId(to as u32));
            for (rank, core_s) in [from, to].into_iter().zip(core_s) {
                take(self.pool(rank), 1.0);
                // One core reads and writes it.
                let core = (self.scene.rates.core_gb_s * 1e9).min(self.copied(rank));
                take(copiers[rank].resource, (2.0 + network) / core + core_s / copiers[rank].cores);
            }
            hops_s.push(self.site.latency_s(RankId(from as u32), RankId(to as u32)));
        }
        // A list is under way over all steps but one.
        let latency_s = hops_s.iter().sum::<f64>() - hops_s.iter().copied().fold(f64::INFINITY, f64::min);
        let amount = (ranks - 1) as f64 * self.scene.rows[0].list;
        let ready = self.fluid.add(Activity::MOMENT, after.unwrap_or(&listed).iter().map(|end| After::Gone(*end)));
        let (kind, step) = (MessageKind::ReplicaGradients, self.step);
        let label = Label::Way { to: 0, receivers: ranks, step, kind, ready: Some(ready) };
        let after: Vec<After> = self.reduced.into_iter().chain([ready]).map(After::Gone).collect();
        let way = self.add(Activity { amount, takes: takes.into_iter().collect(), latency_s }, after, label);
        self.reduced = Some(way);
        self.walkers
            .iter_mut()
            .for_each(|walker| walker.comes[MessageKind::ReplicaGradients as usize].push(After::Arrived(way)));
    }
}
