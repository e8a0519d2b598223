//! Sums whose bits do not depend on the number of ranks: by grains of the minibatch, added in a fixed tree.
//!
//! The gradients of replicated tables go to all ranks as they are, and every rank applies them in the order of samples, as
//! the owner of a divided table does.

use super::{DenseReduction, Scene, Sent};
use crate::base::Result;
use crate::collective::Carrier;
use crate::data::Batch;
use crate::exchange::{Nodes, Pieces, Replicas};
use crate::layer::Linear;
use crate::machine::team::Team;
use crate::model::{Network, Stage, Tables};
use crate::train::Clock;

/// A reduction in a fixed order.
pub(in crate::train) struct ByGrains {
    nodes: Nodes,
    replicas: Replicas,
    lane: Box<dyn Carrier>,
}

impl ByGrains {
    pub(in crate::train) const fn new(nodes: Nodes, replicas: Replicas, lane: Box<dyn Carrier>) -> Self {
        Self { nodes, replicas, lane }
    }
}

impl DenseReduction for ByGrains {
    fn cut(&mut self, network: &mut dyn Network, whole: usize) {
        network.cut(self.nodes.share(), whole);
    }

    fn begin(&mut self, _: usize, _: &mut Linear, _: f32) {}

    fn begin_replicas(&mut self, _: &Team, _: &mut Tables, _: &Batch, _: &[f32], _: f32) {}

    fn update(&mut self, scene: Scene<'_>) -> Result<()> {
        let Scene { team, layout, network, tables, batch, whole, rate, clock } = scene;
        let Self { nodes, replicas, lane } = self;
        clock.exchange([Stage::UpdateRows, Stage::ReduceDense], &mut **lane, |lane| {
            replicas.exchange(layout, lane, batch, network.features_gradient(batch.samples()))?;
            replicas.take(layout, whole, |lookups, gradient, slots| {
                tables.update_replicas_by(team, lookups, gradient, slots, rate);
            });
            Ok(())
        })?;
        clock.time(Stage::ReduceDense, || {
            let mut parts: Vec<Vec<&mut [f32]>> = (0..nodes.parts()).map(|_| Vec::new()).collect();
            network.each_layer_mut(&mut |layer| {
                parts.iter_mut().zip(layer.parts_mut()).for_each(|(part, gradients)| part.extend(gradients));
            });
            let parts = parts.into_iter().map(|part| Pieces::new(part, team.isa())).collect();
            nodes.sum(team, &mut **lane, parts)
        })?;
        clock.time(Stage::UpdateDense, || network.update(team, rate));
        Ok(())
    }

    fn complete(&mut self, _: &mut dyn Network, _: &mut Tables, _: &mut Clock) -> Result<()> {
        Ok(())
    }

    fn sent(&self) -> Sent {
        Sent { planned: self.nodes.traffic(), so_far: self.lane.sent().to_vec() }
    }

    fn cost(&self) -> Option<String> {
        Some(self.nodes.cost())
    }
}
