//! Where a run goes on: where it stopped, as long as it meets the samples there that it left, in the same order.

use serde::{Deserialize, Serialize};

use super::{Checkpoint, Header, Progress};
use crate::base::config::{Config, OnBadRow};
use crate::base::console::note;
use crate::base::units::{Count, Many};
use crate::base::{Error, Result};
use crate::data::{Source, Split};

/// What tells stored training samples from others.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TrainedOn {
    samples: u64,
    fingerprint: String,
}

impl TrainedOn {
    /// That of a data set; nothing where its samples are generated or arrive.
    #[must_use]
    pub fn of(source: &dyn Source) -> Option<Self> {
        Some(Self { samples: source.samples(Split::Train)?, fingerprint: source.fingerprint()? })
    }
}

impl Checkpoint<'_> {
    /// Where a run goes on that stands at `progress`. Within a pass over the samples that is there, and neither they
    /// nor their order may be others than those that the pass began with; behind a pass other samples are the next
    /// one's.
    ///
    /// # Errors
    /// [`Error::Checkpoint`] and [`Error::Config`] when they are others.
    pub(in crate::train) fn goes_on(
        &self,
        progress: Progress,
        config: &Config,
        source: &dyn Source,
    ) -> Result<Progress> {
        let Some(Header { data: had, config: began, .. }) = self.own_header()? else { return Ok(progress) };
        let count = had.as_ref().map(|had| had.samples).or_else(|| source.samples(Split::Train));
        // Where hot and cold inputs take turns, samples are counted otherwise.
        let ended = progress.shuffled.is_none() && count.is_some_and(|count| progress.sample >= count);
        let within = !ended && progress.step > 0 && (progress.sample > 0 || progress.shuffled.is_some());
        if within {
            keeps_order(began, config)?;
        }
        let now = TrainedOn::of(source);
        let (Some(had), Some(now)) = (had, now) else { return Ok(progress) };
        if *had == now {
            return Ok(progress);
        }
        // The remedy that the first malformed row was told with. Fewer rows may move the end of the training samples.
        let skips = |config: &Config| config.data.on_bad_row == OnBadRow::Skip;
        let fewer = had.fingerprint == now.fingerprint && now.samples <= had.samples;
        if fewer && !skips(began) && skips(config) {
            return Ok(Progress { sample: progress.sample.min(now.samples), ..progress });
        }
        if within {
            return Err(self.fail(format!(
                "the run stopped within a pass over {}, and these {} are others, or have changed or grown since: name \
                 the data that it began with (--data, --test-fraction), or start from its weights with --init",
                Many(had.samples, "training sample"),
                now.samples
            )));
        }
        if ended {
            let train = &config.train;
            if train.steps == 0 && progress.epoch + 1 >= train.epochs {
                let reason = format!(
                    "the run has made {}, and these are other training samples than those of the last one: raise it \
                     (--epochs {}) to train on all {} of them, or name the data that it was trained on (--data)",
                    Many(progress.epoch + 1, "epoch"),
                    progress.epoch + 2,
                    Count(now.samples)
                );
                return Err(Error::config("train.epochs with --resume", reason));
            }
            note!("these are other training samples than those of the last pass: the next pass begins with them");
            return Ok(Progress { epoch: progress.epoch + 1, sample: 0, ..progress });
        }
        Ok(progress)
    }
}

/// Refuses another order of samples than the pass began with.
fn keeps_order(began: &Config, config: &Config) -> Result<()> {
    let shuffles = config.data.shuffle;
    let kept = [
        ("data.shuffle", shuffles == began.data.shuffle),
        ("data.shuffle_window", !shuffles || config.data.shuffle_window == began.data.shuffle_window),
        ("train.seed", !shuffles || config.train.seed == began.train.seed),
    ];
    match kept.into_iter().find(|(_, same)| !same) {
        None => Ok(()),
        Some((key, _)) => {
            let reason = "the run stopped within a pass over the samples, whose order is kept to its end: leave the key \
                          away, or begin another run with --out and --init";
            Err(Error::config(format!("{key} with --resume"), reason))
        }
    }
}
