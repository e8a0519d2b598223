//! What a step of ranks should send.

use octorec::base::Result;
use octorec::data::Batch;
use octorec::data::hot::Inputs;
use octorec::exchange::Traffic;
use octorec::train::Ranks;

/// Bytes that a training step on this minibatch of such inputs sends, as planned: [`Ranks::traffic`] grows by just so
/// much.
pub fn planned_traffic(ranks: &Ranks, batch: &Batch, inputs: Inputs) -> Result<Traffic> {
    Ok(Traffic::of_step(ranks.layout(), (batch, inputs), &ranks.dense_traffic()?))
}
