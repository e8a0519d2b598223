//! One rank: its gradients are the sums, and its copy is the only one.

use super::{Clip, DenseReduction, Sent, UpdateContext};
use crate::base::Result;
use crate::collective::Links;
use crate::data::Batch;
use crate::layer::Linear;
use crate::machine::team::Team;
use crate::model::{Network, Stage, Tables};
use crate::optim::StepSizes;
use crate::train::Clock;

/// Nothing to reduce.
pub(in crate::train) struct Alone {
    clip: Option<Clip>,
    step_sizes: StepSizes,
}

impl Alone {
    pub(in crate::train) fn new(clip: Option<Clip>) -> Self {
        Self { clip, step_sizes: StepSizes::default() }
    }
}

impl DenseReduction for Alone {
    fn begin_step(&mut self, step_sizes: StepSizes) {
        self.step_sizes = step_sizes;
    }

    fn begin(&mut self, _: usize, _: &mut Linear) {}

    fn begin_replicas(&mut self, _: &Team, _: &mut Tables, _: &Batch, _: &[f32]) {}

    fn update(&mut self, context: UpdateContext<'_>) -> Result<()> {
        let UpdateContext { team, network, clock, .. } = context;
        clock.time(Stage::UpdateDense, || {
            self.clip.iter().for_each(|clip| clip.whole(team, network));
            network.update(team, self.step_sizes);
        });
        Ok(())
    }

    fn complete(&mut self, _: &mut dyn Network, _: &mut Clock) -> Result<()> {
        Ok(())
    }

    fn sent(&self) -> Sent {
        Sent { planned: Links::uniform(1, 0), so_far: vec![0] }
    }
}
