//! In which order a run takes its minibatches: as the data set has them, or, of hot and cold inputs, as a shuffle
//! scheduler says.
//!
//! Source: Adnan, Maboud, Mahajan and Nair (FAE, VLDB 2022), section 4.4. An epoch's cold and hot inputs are cut into
//! minibatches of their own. They take turns, cold ones first: at the rate R(r) a turn is r % of the epoch's
//! minibatches of its kind, one at least. Between two turns the model is judged. A loss that has not fallen halves
//! the rate, and one that has fallen four times in a row doubles it, within R(1) and R(100); the first rate is R(50).
//! (The paper's Equation 5 has `min` and `max` the wrong way round, as its text says.)

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::{InputStream, Progress};
use crate::base::{Error, Result};
use crate::data::hot::{Chosen, Inputs, Tags};
use crate::data::{Plan, Position, Source, Split};

/// Why nothing can be learned from data without a training sample.
pub fn untrainable(source: &dyn Source) -> Error {
    let [validates, tests] = [Split::Validation, Split::Test].map(|split| source.samples(split).is_some_and(|n| n > 0));
    let reason = match source.about().has_own_tests {
        true if validates => {
            "all of its samples are for validation or tests: lower --validation-fraction, or name training samples by it"
        }
        true => "has samples for tests only: name training samples by it, and these by --test-data",
        false if validates && tests => "there is no training sample: lower --validation-fraction or --test-fraction",
        false if validates => "there is no training sample: lower --validation-fraction (data.validation_fraction)",
        false if tests => "there is no training sample: lower data.test_fraction",
        false => "there is no training sample, nor one for tests: name data with samples",
    };
    Error::config(if source.about().has_own_tests { "--data" } else { "data" }, reason)
}

/// The first rate, in percent.
const FIRST: f64 = 50.0;
/// The least and the greatest rate.
const RATES: [f64; 2] = [1.0, 100.0];
/// Falls of that loss in a row that double the rate: the paper's u.
const FALLS: u32 = 4;

/// What takes turns: cold inputs, then hot ones.
const KINDS: [Inputs; 2] = [Inputs::Cold, Inputs::Hot];

/// Where a shuffle scheduler stands.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Shuffled {
    /// Percent of an epoch's minibatches of a kind that are a turn.
    pub rate: f64,
    /// Times in a row that the loss of the samples that it is judged by has fallen.
    pub falls: u32,
    /// The last of these losses, if there was one.
    pub loss: Option<f64>,
    /// Whether hot inputs have the turn; else cold ones.
    pub hot: bool,
    /// Minibatches left of the turn; 0: it has ended, and the test is due.
    pub left: u64,
    /// Minibatches of this epoch that are done: of cold inputs, and of hot ones.
    pub done: [u64; 2],
    /// Minibatches of an epoch.
    pub counts: [u64; 2],
}

/// What a test between two turns led to: an entry of a run's metrics.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Judged {
    kind: &'static str,
    /// Steps before it.
    pub step: u64,
    /// The log loss, where there are samples for that.
    pub logloss: Option<f64>,
    /// The rate until then, in percent.
    pub rate_before: f64,
    /// The rate from then on.
    pub rate: f64,
    /// Who has the next turn.
    pub next: &'static str,
    /// How many minibatches it has.
    pub minibatches: u64,
}

impl Judged {
    /// Another rate, for people; the test was made on samples of this split.
    pub fn told(&self, split: Split) -> String {
        let Self { step, rate_before, rate, .. } = self;
        let why = if rate < rate_before { "has not fallen" } else { "has fallen four times in a row" };
        let (samples, loss) = (split.name(), self.logloss.unwrap_or(f64::NAN));
        format!(
            "step {step}: the {samples} log loss ({loss:.4}) {why}: hot and cold inputs take turns at R({rate}), not R({rate_before})"
        )
    }
}

/// The order of a run's minibatches.
pub struct Order {
    batch: u64,
    hot: Option<(Arc<Tags>, Shuffled)>,
}

impl Shuffled {
    fn begin(counts: [u64; 2]) -> Self {
        let start = Self { rate: FIRST, falls: 0, loss: None, hot: counts[0] == 0, left: 0, done: [0; 2], counts };
        Self { left: start.turn(start.hot), ..start }
    }

    /// Whether a scheduler can stand there.
    pub(super) fn is_sound(&self) -> bool {
        let done = self.done.iter().zip(self.counts).all(|(done, count)| *done <= count) && self.done != self.counts;
        done && self.left <= self.remaining(self.hot)
            && (RATES[0]..=RATES[1]).contains(&self.rate)
            && self.falls < FALLS
    }

    /// Minibatches of a kind that the epoch still has.
    fn remaining(&self, hot: bool) -> u64 {
        self.counts[usize::from(hot)] - self.done[usize::from(hot)]
    }

    /// The length of a kind's next turn.
    fn turn(&self, hot: bool) -> u64 {
        let part = (self.rate / 100.0 * self.counts[usize::from(hot)] as f64).round() as u64;
        part.max(1).min(self.remaining(hot))
    }

    /// A minibatch is done; whether the epoch is, too.
    fn step_done(&mut self) -> bool {
        self.done[usize::from(self.hot)] += 1;
        self.left -= 1;
        let ended = self.done == self.counts;
        if ended {
            self.done = [0; 2];
        }
        // Where the other kind has none left, this one goes on; an epoch begins with cold inputs.
        let other = self.remaining(!self.hot) > 0 && (self.hot || !ended);
        if self.left == 0 && !other {
            self.left = self.turn(self.hot);
        }
        ended
    }

    /// The other kind's turn begins, after a test.
    fn judge(&mut self, step: u64, logloss: Option<f64>) -> Judged {
        let rate_before = self.rate;
        if let (Some(before), Some(now)) = (self.loss, logloss) {
            self.falls = if now < before { self.falls + 1 } else { 0 };
            if self.falls == 0 {
                self.rate = (self.rate / 2.0).max(RATES[0]);
            } else if self.falls == FALLS {
                (self.rate, self.falls) = ((self.rate * 2.0).min(RATES[1]), 0);
            }
        }
        self.loss = logloss.or(self.loss);
        self.hot = !self.hot;
        self.left = self.turn(self.hot);
        let next = if self.hot { "hot" } else { "cold" };
        Judged { kind: "shuffle", step, logloss, rate_before, rate: self.rate, next, minibatches: self.left }
    }
}

impl Order {
    /// The order of minibatches of so many samples, from where a run stands; with the tags of its inputs, if hot and
    /// cold ones take turns.
    ///
    /// # Errors
    /// When the run has begun in another order, or with another number of minibatches of either kind.
    pub fn new(tags: Option<&Arc<Tags>>, batch: usize, progress: &Progress) -> Result<Self> {
        let batch = batch as u64;
        if progress.step > 0 && tags.is_some() != progress.shuffled.is_some() {
            let (began, now) =
                if tags.is_some() { ("as the data has them", "fae") } else { ("in turns", "off or exact") };
            let reason = format!(
                "{now} is another order of the data, and the run began with samples {began}: continue it with the --hot that it \
                 began with, or begin another with --init"
            );
            return Err(Error::config("--resume with train.hot", reason));
        }
        let begin = |tags: &Arc<Tags>| {
            let counts = KINDS.map(|inputs| tags.count(inputs).div_ceil(batch));
            match progress.shuffled {
                Some(at) if at.counts != counts => {
                    let ([cold, hot], [cold_now, hot_now]) = (at.counts, counts);
                    let reason = format!(
                        "the run began with {cold} cold and {hot} hot minibatches an epoch, and now there are {cold_now} and \
                         {hot_now}: continue it with the same data, --batch and --hot-set"
                    );
                    Err(Error::config("--resume with train.hot = \"fae\"", reason))
                }
                at => Ok((Arc::clone(tags), at.unwrap_or_else(|| Shuffled::begin(counts)))),
            }
        };
        Ok(Self { batch, hot: tags.map(begin).transpose()? })
    }

    /// Minibatches of an epoch; nothing where the data never ends.
    pub fn epoch_steps(&self, source: &dyn Source) -> Option<u64> {
        match &self.hot {
            Some((_, at)) => Some(at.counts.iter().sum()),
            None => source.samples(Split::Train).map(|samples| samples.div_ceil(self.batch)),
        }
    }

    /// Where minibatches come from; `plan` is that of a run that takes them as the data set has them.
    pub fn streams(&self, source: &Arc<dyn Source>, plan: Plan) -> Vec<InputStream> {
        let Some((tags, at)) = &self.hot else {
            return vec![InputStream { inputs: Inputs::Mixed, source: Arc::clone(source), plan }];
        };
        let stream = |(inputs, done): (Inputs, u64)| {
            let sample = (done * self.batch).min(tags.count(inputs));
            let start = Position { sample, ..plan.start };
            let source: Arc<dyn Source> = Arc::new(Chosen::new(Arc::clone(source), Arc::clone(tags), inputs));
            InputStream { inputs, source, plan: Plan { start, ..plan } }
        };
        KINDS.into_iter().zip(at.done).map(stream).collect()
    }

    /// What the next minibatch is of.
    pub fn next(&self) -> Inputs {
        self.hot.as_ref().map_or(Inputs::Mixed, |(_, at)| KINDS[usize::from(at.hot)])
    }

    /// Whether a turn has ended, and the model is to be tested before the next one.
    pub fn is_due(&self) -> bool {
        self.hot.as_ref().is_some_and(|(_, at)| at.left == 0)
    }

    /// Begins the next turn, after a test.
    ///
    /// # Panics
    /// Where nothing takes turns.
    pub fn judge(&mut self, progress: &mut Progress, logloss: Option<f64>) -> Judged {
        let (_, at) = self.hot.as_mut().expect("inputs take turns");
        let judged = at.judge(progress.step, logloss);
        progress.shuffled = Some(*at);
        judged
    }

    /// Where the run stands after a step, which was its `step`th, to this position in the data.
    pub fn step_done(&mut self, before: Progress, position: Position) -> Progress {
        let step = before.step + 1;
        let Some((tags, at)) = &mut self.hot else {
            return Progress { step, epoch: position.epoch, sample: position.sample, shuffled: None, ..before };
        };
        let epoch = before.epoch + u64::from(at.step_done());
        let samples = KINDS.iter().zip(at.done).map(|(inputs, done)| (done * self.batch).min(tags.count(*inputs)));
        Progress { step, epoch, sample: samples.sum(), shuffled: Some(*at), ..before }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The turns of some steps, as (kind, minibatches), tested with these losses.
    fn turns(counts: [u64; 2], steps: u64, mut losses: impl Iterator<Item = f64>) -> (Vec<(bool, u64)>, Shuffled) {
        let mut at = Shuffled::begin(counts);
        let mut turns: Vec<(bool, u64)> = Vec::new();
        for step in 0..steps {
            if at.left == 0 {
                let judged = at.judge(step, losses.next());
                assert_eq!((judged.rate, judged.minibatches), (at.rate, at.left));
                assert!(at.left > 0);
                turns.push((at.hot, 0));
            } else if turns.is_empty() {
                turns.push((at.hot, 0));
            }
            turns.last_mut().unwrap().1 += 1;
            at.step_done();
        }
        (turns, at)
    }

    #[test]
    fn cold_and_hot_inputs_take_turns_and_cold_ones_begin() {
        let none = || std::iter::empty();
        // Half of ten, half of six; and again.
        let epoch = [(false, 5), (true, 3), (false, 5), (true, 3)];
        assert_eq!(turns([10, 6], 16, none()).0, epoch);
        assert_eq!(turns([10, 6], 32, none()).0, [epoch, epoch].concat());
        // An odd number is rounded up, and what is left is the last turn's.
        assert_eq!(turns([5, 1], 6, none()).0, [(false, 3), (true, 1), (false, 2)]);
        // The next epoch begins with cold inputs: nothing is between them and the last ones.
        assert_eq!(turns([5, 1], 9, none()).0, [(false, 3), (true, 1), (false, 5)]);
        assert_eq!(turns([0, 4], 8, none()).0, [(true, 8)]);
        assert_eq!(turns([4, 0], 8, none()).0, [(false, 8)]);
        assert_eq!(turns([1, 1], 4, none()).0, [(false, 1), (true, 1), (false, 1), (true, 1)]);
    }

    #[test]
    fn the_rate_halves_when_the_loss_has_not_fallen_and_doubles_after_four_falls() {
        // The first loss has none before it.
        let rate = |losses: &[f64]| {
            let mut at = Shuffled::begin([1000, 1000]);
            losses.iter().for_each(|loss| _ = at.judge(0, Some(*loss)));
            at.rate
        };
        assert_eq!(rate(&[0.5]), 50.0);
        assert_eq!(rate(&[0.5, 0.6]), 25.0);
        assert_eq!(rate(&[0.5, 0.5]), 25.0);
        assert_eq!(rate(&[0.5, 0.4, 0.3, 0.2]), 50.0);
        assert_eq!(rate(&[0.5, 0.4, 0.3, 0.2, 0.1]), 100.0);
        // A rise begins the count anew, and so does a doubling; neither bound is passed.
        assert_eq!(rate(&[0.9, 0.8, 0.7, 0.6, 0.65, 0.6, 0.5, 0.4]), 25.0);
        assert_eq!(rate(&[0.9, 0.8, 0.7, 0.6, 0.65, 0.6, 0.5, 0.4, 0.3]), 50.0);
        assert_eq!(rate(&[0.9, 0.8, 0.7, 0.6, 0.5, 0.4, 0.3, 0.2, 0.1, 0.05]), 100.0);
        assert_eq!(rate(&[0.1; 20]), 1.0);
        // Without a test the rate stays.
        assert_eq!(Shuffled::begin([10, 10]).judge(3, None).rate, 50.0);
    }

    #[test]
    fn a_scheduler_stands_only_where_it_can() {
        let begun = Shuffled::begin([10, 6]);
        assert!(begun.is_sound() && Shuffled { left: 0, done: [5, 0], ..begun }.is_sound());
        for wrong in [
            Shuffled { done: [11, 0], ..begun },
            Shuffled { done: [10, 6], ..begun },
            Shuffled { left: 6, done: [5, 0], ..begun },
            Shuffled { rate: 0.5, ..begun },
            Shuffled { rate: f64::NAN, ..begun },
            Shuffled { falls: 4, ..begun },
        ] {
            assert!(!wrong.is_sound(), "{wrong:?}");
        }
    }

    #[test]
    fn every_minibatch_of_an_epoch_has_its_turn_whatever_the_losses_are() {
        let mut drawn = 1u64;
        let losses = std::iter::repeat_with(|| {
            drawn = drawn.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (drawn >> 40) as f64
        });
        let (turns, at) = turns([97, 41], 138 * 7, losses);
        let of = |hot: bool| turns.iter().filter(|turn| turn.0 == hot).map(|turn| turn.1).sum::<u64>();
        assert_eq!((of(false), of(true), at.done), (97 * 7, 41 * 7, [0; 2]));
        assert!(at.rate < 50.0 && turns.len() > 28, "{turns:?}");
    }
}
