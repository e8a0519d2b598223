//! One rank: its gradients are the sums, and its copy is the only one.

use super::{Clip, DenseReduction, Sent, UpdateContext};
use crate::base::Result;
use crate::collective::Links;
use crate::model::Stage;

/// Nothing to reduce.
pub(in crate::train) struct Alone {
    clip: Option<Clip>,
}

impl Alone {
    pub(in crate::train) fn new(clip: Option<Clip>) -> Self {
        Self { clip }
    }
}

impl DenseReduction for Alone {
    fn update(&mut self, context: UpdateContext<'_>) -> Result<()> {
        let UpdateContext { team, network, clock, step_sizes, .. } = context;
        clock.time(Stage::UpdateDense, || {
            self.clip.iter().for_each(|clip| clip.whole(team, network));
            network.update(team, step_sizes);
        });
        Ok(())
    }

    fn sent(&self) -> Sent {
        Sent { planned: Links::uniform(1, 0), so_far: vec![0] }
    }
}
