//! The compute threads reduce, after the backward pass.

use super::sliced::LayerBlock;
use super::{DenseReduction, Sent, Sliced, UpdateContext};
use crate::base::Result;
use crate::data::Batch;
use crate::exchange::Replicas;
use crate::layer::Linear;
use crate::machine::team::Team;
use crate::model::{Stage, Tables};
use crate::optim::StepSizes;

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
    fn begin(&mut self, index: usize, _: &mut Linear, _: StepSizes) {
        self.ready.push(index);
    }

    fn begin_replicas(&mut self, team: &Team, tables: &mut Tables, batch: &Batch, gradient: &[f32]) {
        tables.list_replicas(team, batch, gradient, &mut self.replicas);
    }

    fn update(&mut self, context: UpdateContext<'_>) -> Result<()> {
        let UpdateContext { team, network, tables, clock, step_sizes } = context;
        let Self { sliced, replicas, ready } = self;
        clock.time(Stage::ReduceDense, || {
            for index in ready.drain(..) {
                let block = LayerBlock::take(index, network.layer_mut(index), step_sizes);
                sliced.reduce(team, block, |_, block| block.put_back(network))?;
            }
            sliced.check_all_done();
            sliced.replicas(replicas)
        })?;
        clock.time(Stage::UpdateRows, || tables.update_replicas(team, replicas, step_sizes));
        Ok(())
    }

    fn is_sliced(&self) -> bool {
        true
    }

    fn sent(&self) -> Sent {
        self.sliced.sent()
    }
}
