//! One rank: its gradients are the sums, and its copy is the only one.

use super::{Clip, DenseReduction, Scene, Sent};
use crate::base::Result;
use crate::collective::Links;
use crate::data::Batch;
use crate::layer::Linear;
use crate::machine::team::Team;
use crate::model::{Network, Stage, Tables};
use crate::optim::StepSize;
use crate::train::Clock;

/// Nothing to reduce.
pub(in crate::train) struct Alone {
    clip: Option<Clip>,
}

impl Alone {
    pub(in crate::train) const fn new(clip: Option<Clip>) -> Self {
        Self { clip }
    }
}

impl DenseReduction for Alone {
    fn begin(&mut self, _: usize, _: &mut Linear, _: StepSize) {}

    fn begin_replicas(&mut self, _: &Team, _: &mut Tables, _: &Batch, _: &[f32]) {}

    fn update(&mut self, scene: Scene<'_>) -> Result<()> {
        let Scene { team, network, step_sizes, clock, .. } = scene;
        clock.time(Stage::UpdateDense, || {
            self.clip.iter().for_each(|clip| clip.whole(team, network));
            network.update(team, step_sizes);
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
