//! Sums whose bits do not depend on the number of ranks: by grains of the minibatch, added in a fixed tree.
//!
//! The gradients of replicated tables go to all ranks sample by sample, and every rank applies them in that order, as
//! the owner of a divided table does.

use super::{Clip, DenseReduction, Nodes, Sent, UpdateContext};
use crate::base::Result;
use crate::collective::{Carrier, Pieces, PiecesMemory};
use crate::data::Batch;
use crate::exchange::Replicas;
use crate::machine::team::Team;
use crate::memory::recycled;
use crate::model::{Stage, Tables};

/// A reduction in a fixed order.
pub(in crate::train) struct ByGrains {
    nodes: Nodes,
    replicas: Replicas,
    /// Where there are replicated tables.
    replicas_lane: Option<Box<dyn Carrier>>,
    lane: Box<dyn Carrier>,
    /// Memory that steps use again, one a part of the gradient.
    memory: Vec<PiecesMemory>,
    list: Vec<Pieces<'static>>,
    clip: Option<Clip>,
}

impl ByGrains {
    pub(in crate::train) fn new(
        nodes: Nodes,
        replicas: Replicas,
        replicas_lane: Option<Box<dyn Carrier>>,
        lane: Box<dyn Carrier>,
        clip: Option<Clip>,
    ) -> Self {
        let memory = (0..nodes.parts()).map(|_| PiecesMemory::default()).collect();
        Self { nodes, replicas, replicas_lane, lane, memory, list: Vec::new(), clip }
    }
}

impl DenseReduction for ByGrains {
    fn begin_replicas(&mut self, team: &Team, tables: &mut Tables, batch: &Batch, gradient: &[f32]) {
        tables.list_replicas(team, batch, gradient, &mut self.replicas);
    }

    fn update(&mut self, context: UpdateContext<'_>) -> Result<()> {
        let UpdateContext { team, network, tables, clock, step_sizes } = context;
        let Self { nodes, replicas, replicas_lane, lane, memory, list, clip } = self;
        if let Some(lane) = replicas_lane {
            clock.exchange([Stage::UpdateRows, Stage::ReduceDense], &mut **lane, |lane| replicas.exchange(lane))?;
            clock.time(Stage::UpdateRows, || tables.update_replicas(team, replicas, step_sizes));
        }
        clock.time(Stage::ReduceDense, || {
            let mut parts: Vec<Pieces<'_>> = recycled(std::mem::take(list));
            parts.extend(memory.iter_mut().map(|memory| Pieces::within(memory, team.isa())));
            network.each_layer_mut(&mut |layer| {
                for (part, gradients) in parts.iter_mut().zip(layer.sums_mut()) {
                    gradients.into_iter().for_each(|gradient| part.push(gradient));
                }
            });
            let result = nodes.sum(team, &mut **lane, &mut parts);
            memory.iter_mut().zip(parts.drain(..)).for_each(|(memory, part)| *memory = part.into_memory());
            *list = recycled(parts);
            result
        })?;
        // Every rank has all sums, and so the same norm.
        clock.time(Stage::UpdateDense, || {
            clip.iter().for_each(|clip| clip.whole(team, network));
            network.update(team, step_sizes);
        });
        Ok(())
    }

    fn sent(&self) -> Sent {
        let mut so_far = self.lane.sent().to_vec();
        let lists = self.replicas_lane.iter().flat_map(|lane| lane.sent());
        so_far.iter_mut().zip(lists).for_each(|(sum, bytes)| *sum += bytes);
        Sent { planned: self.nodes.traffic(), so_far }
    }

    fn cost(&self) -> Option<String> {
        Some(self.nodes.cost())
    }
}
