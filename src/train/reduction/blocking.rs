//! The compute threads reduce, after the backward pass.

use super::{DenseReduction, Scene, Sent, Sliced};
use crate::base::Result;
use crate::data::Batch;
use crate::exchange::Replicas;
use crate::layer::Linear;
use crate::machine::team::Team;
use crate::model::{Network, Stage, Tables};
use crate::optim::StepSize;
use crate::train::Clock;

/// A reduction that the compute threads wait for.
pub(in crate::train) struct Blocking {
    sliced: Sliced,
    replicas: Replicas,
    /// Layers whose gradients are complete, in that order.
    ready: Vec<usize>,
}

impl Blocking {
    pub(in crate::train) fn new(sliced: Sliced, replicas: Replicas) -> Self {
        Self { ready: Vec::with_capacity(sliced.layers()), sliced, replicas }
    }
}

impl DenseReduction for Blocking {
    fn begin(&mut self, index: usize, _: &mut Linear, _: StepSize) {
        self.ready.push(index);
    }

    fn begin_replicas(&mut self, team: &Team, tables: &mut Tables, batch: &Batch, gradient: &[f32]) {
        tables.list_replicas(team, batch, gradient, &mut self.replicas);
    }

    fn update(&mut self, scene: Scene<'_>) -> Result<()> {
        let Scene { team, network, tables, step_sizes, clock, .. } = scene;
        let Self { sliced, replicas, ready } = self;
        clock.time(Stage::ReduceDense, || {
            for &index in &*ready {
                let layer = network.layer_mut(index);
                let step_size = step_sizes[layer.group()];
                sliced.layer(team, index, layer, step_size)?;
            }
            if sliced.clips() {
                let factor = sliced.factor(team)?;
                for &index in &*ready {
                    let layer = network.layer_mut(index);
                    let step_size = step_sizes[layer.group()];
                    sliced.finish(team, (index, layer), step_size, factor)?;
                }
            }
            ready.clear();
            sliced.replicas(replicas)
        })?;
        clock.time(Stage::UpdateRows, || tables.update_replicas(team, replicas, step_sizes));
        Ok(())
    }

    fn complete(&mut self, _: &mut dyn Network, _: &mut Clock) -> Result<()> {
        Ok(())
    }

    fn updates_in(&self) -> Stage {
        Stage::ReduceDense
    }

    fn clear_foreign_moments(&self, layer: &mut Linear) {
        self.sliced.clear_foreign_moments(layer);
    }

    fn sent(&self) -> Sent {
        self.sliced.sent()
    }
}
