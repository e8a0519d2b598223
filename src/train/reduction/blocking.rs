//! The compute threads reduce, after the backward pass.

use super::sliced::LayerBlock;
use super::{DenseReduction, Sent, Sliced, UpdateContext};
use crate::base::Result;
use crate::data::Batch;
use crate::exchange::Replicas;
use crate::layer::Linear;
use crate::machine::team::Team;
use crate::model::{Network, Stage, Tables};
use crate::optim::StepSizes;
use crate::train::Clock;

/// A reduction that the compute threads wait for.
pub(in crate::train) struct Blocking {
    sliced: Sliced,
    replicas: Replicas,
    /// Layers whose gradients are complete, in that order.
    ready: Vec<usize>,
    step_sizes: StepSizes,
}

impl Blocking {
    pub(in crate::train) fn new(sliced: Sliced, replicas: Replicas) -> Self {
        Self { ready: Vec::with_capacity(sliced.layers()), sliced, replicas, step_sizes: StepSizes::default() }
    }
}

impl DenseReduction for Blocking {
    fn begin_step(&mut self, step_sizes: StepSizes) {
        self.step_sizes = step_sizes;
    }

    fn begin(&mut self, index: usize, _: &mut Linear) {
        self.ready.push(index);
    }

    fn begin_replicas(&mut self, team: &Team, tables: &mut Tables, batch: &Batch, gradient: &[f32]) {
        tables.list_replicas(team, batch, gradient, &mut self.replicas);
    }

    fn update(&mut self, context: UpdateContext<'_>) -> Result<()> {
        let UpdateContext { team, network, tables, clock } = context;
        let Self { sliced, replicas, ready, step_sizes } = self;
        clock.time(Stage::ReduceDense, || {
            for index in ready.drain(..) {
                let block = LayerBlock::take(index, network.layer_mut(index), *step_sizes);
                sliced.reduce(team, block, |_, block| block.put_back(network))?;
            }
            sliced.check_all_done();
            sliced.replicas(replicas)
        })?;
        clock.time(Stage::UpdateRows, || tables.update_replicas(team, replicas, *step_sizes));
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
