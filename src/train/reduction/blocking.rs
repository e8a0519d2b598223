//! The compute threads reduce, after the backward pass.

use super::{DenseReduction, Scene, Sent, Sliced};
use crate::base::Result;
use crate::data::Batch;
use crate::layer::Linear;
use crate::machine::team::Team;
use crate::model::{Network, Stage, Tables};
use crate::train::Clock;

/// A reduction that the compute threads wait for.
pub(in crate::train) struct Blocking {
    sliced: Sliced,
    /// Layers whose gradients are complete, in that order.
    ready: Vec<usize>,
}

impl Blocking {
    pub(in crate::train) fn new(sliced: Sliced) -> Self {
        Self { ready: Vec::with_capacity(sliced.layers()), sliced }
    }
}

impl DenseReduction for Blocking {
    fn begin(&mut self, index: usize, _: &mut Linear, _: f32) {
        self.ready.push(index);
    }

    fn begin_replicas(&mut self, team: &Team, tables: &mut Tables, batch: &Batch, gradient: &[f32], _: f32) {
        tables.sum_replicas(team, batch, gradient);
    }

    fn update(&mut self, scene: Scene<'_>) -> Result<()> {
        let Scene { team, network, tables, rate, clock, .. } = scene;
        let (sliced, ready) = (&mut self.sliced, &mut self.ready);
        clock.time(Stage::ReduceDense, || {
            let layers = ready.drain(..);
            for index in layers {
                sliced.layer(team, index, network.layer_mut(index), rate)?;
            }
            if tables.has_replicas() { sliced.replicas(team.isa(), tables.sums_mut()) } else { Ok(()) }
        })?;
        clock.time(Stage::UpdateRows, || tables.update_replicas(team, rate));
        Ok(())
    }

    fn complete(&mut self, _: &mut dyn Network, _: &mut Tables, _: &mut Clock) -> Result<()> {
        Ok(())
    }

    fn updates_in(&self) -> Stage {
        Stage::ReduceDense
    }

    fn sent(&self) -> Sent {
        self.sliced.sent()
    }
}
