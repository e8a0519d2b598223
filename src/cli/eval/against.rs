//! Two models on the same samples: by how much they differ, and whether that is more than chance.

use std::fmt;
use std::path::Path;

use serde::Serialize;

use super::report::{number, write_buckets};
use super::{Scored, Subject};
use crate::base::units::{Count, Many};
use crate::base::{Error, Result};
use crate::cli::table::Table;
use crate::data::Split;
use crate::train::{Scores, StandardErrors, paired_errors};

/// Standard errors to either side of a normal distribution's mean, between which 95 % of it lie.
const OF_95: f64 = 1.959_963_984_540_054;

/// Refuses two models that would not be scored on the same samples, as far as that is known before they are read;
/// `named`: one set of data is named for both.
pub fn same_samples(own: &Subject, other: &Subject, named: bool) -> Result<()> {
    let sources = [own, other].map(|subject| &*subject.source);
    let skipped = sources.map(|source| source.skipped_rows());
    let other_schema = sources[0].schema_text() != sources[1].schema_text();
    if skipped[0] != skipped[1] || (skipped[0] > 0 && other_schema) {
        let reason = format!(
            "A leaves out {} of these data and B {}, each by its own schema, so that samples may not be the same: mend those \
             rows or take them out (--on-bad-row fail names the first one), or name other data with --data FILE",
            Many(skipped[0], "malformed row"),
            Count(skipped[1]),
        );
        return Err(Error::config("--against", reason));
    }
    let found = [own, other].map(|subject| subject.source.samples(subject.split));
    // Samples for validation lie before those for tests.
    let place = |subject: &Subject| {
        let tests = subject.source.samples(Split::Test).filter(|_| subject.split == Split::Validation);
        (subject.source.fingerprint(subject.split), tests)
    };
    let counts = found.map(|found| Many(found.unwrap_or(0), "sample").to_string());
    let reason = if found[0] != found[1] {
        format!("A would be scored on {}, and B on {}", counts[0], counts[1])
    } else if !named && place(own) != place(other) {
        format!("A and B would each be scored on {} of its own run, which are not the same", counts[0])
    } else if sources[0].schema().weighted != sources[1].schema().weighted {
        let weighs = if sources[0].schema().weighted { "A" } else { "B" };
        return Err(Error::config("--against", format!("samples have weights by the data of {weighs} alone{ALIKE}")));
    } else {
        return Ok(());
    };
    let remedy = match named {
        true => "name labelled data that hold the same samples for both with --data FILE",
        false => "name labelled data for both with --data FILE, such as the test samples of one of them",
    };
    Err(Error::config("--against", format!("{reason}: {remedy}")))
}

/// What can be done where samples are told apart by the models' own schemas.
const ALIKE: &str = ": compare models whose schemas have the same label and weight, or, where these were not scored on the same \
                     data, name labelled data for both with --data FILE";

/// What was found of two models, of which the first is A and the second B.
#[derive(Serialize)]
pub struct Comparison<'a> {
    #[serde(skip)]
    paths: [&'a Path; 2],
    #[serde(flatten)]
    own: Scored,
    against: Scored,
    difference: Difference,
    verdict: String,
    /// Whether buckets are shown.
    #[serde(skip)]
    table: bool,
}

/// The scores of A minus those of B.
#[derive(Serialize)]
struct Difference {
    auc: f64,
    pr_auc: f64,
    logloss: f64,
    normalised_entropy: f64,
    accuracy: f64,
    calibration: f64,
    /// Of these differences; nothing where samples have weights.
    #[serde(flatten)]
    errors: Option<StandardErrors>,
    /// Where the differences of endlessly many samples lie, by 95 %.
    #[serde(skip_serializing_if = "Option::is_none")]
    auc_interval: Option<Interval>,
    #[serde(skip_serializing_if = "Option::is_none")]
    logloss_interval: Option<Interval>,
}

/// From where to where a difference may lie.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
struct Interval([f64; 2]);

impl Interval {
    fn around(difference: f64, error: f64) -> Self {
        Self([difference - OF_95 * error, difference + OF_95 * error])
    }

    /// Which model has the higher score, if 0 is no part of it.
    fn higher(self) -> Option<Model> {
        let Self([low, high]) = self;
        if low > 0.0 {
            Some(Model::A)
        } else if high < 0.0 {
            Some(Model::B)
        } else {
            None
        }
    }
}

/// One of the two.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Model {
    A,
    B,
}

impl Model {
    const fn other(self) -> Self {
        match self {
            Self::A => Self::B,
            Self::B => Self::A,
        }
    }
}

impl<'a> Comparison<'a> {
    /// Of models at these paths, A and B, with what each of them gave each sample; `table`: buckets are shown.
    ///
    /// # Errors
    /// When the samples were others.
    pub fn new(paths: [&'a Path; 2], [mut own, mut against]: [Scored; 2], table: bool) -> Result<Self> {
        let [a, b] =
            [&mut own, &mut against].map(|scored| scored.evaluation.each.take().expect("each sample was asked for"));
        if let Some(what) = a.differs(&b) {
            return Err(Error::config("--against", format!("{what}{ALIKE}")));
        }
        let difference = Difference::new([&own, &against].map(|of| &of.evaluation.scores), paired_errors(&a, &b));
        let verdict = difference.verdict(own.evaluation.scores.samples);
        Ok(Self { paths, own, against, difference, verdict, table })
    }

    /// Why there is no AUC, where there is none.
    pub fn undefined(&self) -> Option<String> {
        let of = |scored: &Scored| scored.evaluation.scores.undefined();
        of(&self.own).or_else(|| of(&self.against))
    }
}

impl Difference {
    fn new([a, b]: [&Scores; 2], errors: Option<StandardErrors>) -> Self {
        let (auc, logloss) = (a.auc - b.auc, a.logloss - b.logloss);
        Self {
            auc,
            pr_auc: a.pr_auc - b.pr_auc,
            logloss,
            normalised_entropy: a.normalised_entropy - b.normalised_entropy,
            accuracy: a.accuracy - b.accuracy,
            calibration: a.calibration - b.calibration,
            errors,
            auc_interval: errors.map(|errors| Interval::around(auc, errors.auc_se)),
            logloss_interval: errors.map(|errors| Interval::around(logloss, errors.logloss_se)),
        }
    }

    /// What follows of it, of so many samples.
    fn verdict(&self, samples: u64) -> String {
        let (Some(auc), Some(logloss)) = (self.auc_interval, self.logloss_interval) else {
            return "whether the difference is more than chance is not told of samples that have weights".to_owned();
        };
        // A lower loss is better.
        match (auc.higher(), logloss.higher().map(Model::other)) {
            (None, None) => {
                format!("no difference can be told from {}: no 95 % interval excludes 0", Many(samples, "sample"))
            }
            (Some(auc), Some(logloss)) if auc == logloss => {
                format!("{auc:?} is better: the 95 % intervals of the differences of AUC and of log loss exclude 0")
            }
            (Some(auc), Some(logloss)) => format!(
                "{auc:?} orders samples better, and {logloss:?} has the better probabilities: the 95 % intervals of the \
                 differences of AUC and of log loss exclude 0"
            ),
            (Some(auc), None) => format!(
                "{auc:?} orders samples better: the 95 % interval of the difference of AUC excludes 0; log loss tells no \
                 difference"
            ),
            (None, Some(logloss)) => format!(
                "{logloss:?} has the better probabilities: the 95 % interval of the difference of log loss excludes 0; AUC \
                 tells no difference"
            ),
        }
    }
}

impl fmt::Display for Comparison<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [a, b] = [&self.own, &self.against].map(|scored| &scored.evaluation);
        let (own, other, difference) = (a.scores, b.scores, &self.difference);
        writeln!(f, "A  {}\nB  {}\n", self.paths[0].display(), self.paths[1].display())?;
        let mut table = Table::new(["", "A", "B", "A - B", "95 % interval"]);
        let signed = |x: f64| if x.is_finite() { format!("{x:+.6}") } else { "-".to_owned() };
        let mut row = |name: &str, [own, other, difference]: [f64; 3], interval: Option<Interval>| {
            let interval = interval.filter(|Interval([low, _])| low.is_finite());
            let interval =
                interval.map_or_else(String::new, |Interval([low, high])| format!("{low:+.6} .. {high:+.6}"));
            table.row([name.to_owned(), number(own, 6), number(other, 6), signed(difference), interval]);
        };
        row("AUC", [own.auc, other.auc, difference.auc], difference.auc_interval);
        row("PR-AUC", [own.pr_auc, other.pr_auc, difference.pr_auc], None);
        row("log loss", [own.logloss, other.logloss, difference.logloss], difference.logloss_interval);
        row("NE", [own.normalised_entropy, other.normalised_entropy, difference.normalised_entropy], None);
        row("accuracy", [own.accuracy, other.accuracy, difference.accuracy], None);
        row("calibration", [own.calibration, other.calibration, difference.calibration], None);
        writeln!(f, "{table}\nlabel rate   {:.6}\nsamples      {}", own.label_rate, Count(own.samples))?;
        if let Some(weight) = own.weight {
            writeln!(f, "weight       {weight:.6}")?;
        }
        for (name, evaluation) in [("A", a), ("B", b)].into_iter().filter(|_| self.table) {
            write!(f, "\n{name}")?;
            write_buckets(f, &evaluation.calibration_buckets)?;
        }
        writeln!(f, "\n{}", self.verdict)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_verdict_follows_from_the_sides_of_0_on_which_intervals_lie() {
        let scores = |auc, logloss| Scores {
            auc,
            logloss,
            pr_auc: 0.5,
            normalised_entropy: 0.9,
            accuracy: 0.8,
            calibration: 1.0,
            label_rate: 0.2,
            samples: 2000,
            weight: None,
        };
        let told = |auc: [f64; 2], logloss: [f64; 2], errors| {
            let [a, b] = [0, 1].map(|of| scores(auc[of], logloss[of]));
            Difference::new([&a, &b], errors).verdict(2000)
        };
        let errors = Some(StandardErrors { auc_se: 0.01, logloss_se: 0.01 });
        let same = [0.71, 0.70];
        let nothing = "no difference can be told from 2,000 samples";
        for (auc, logloss, due) in [
            (same, same, nothing),
            // 1.95 and 1.97 standard errors.
            ([0.7195, 0.70], same, nothing),
            ([0.7197, 0.70], same, "A orders samples better: "),
            ([0.70, 0.75], same, "B orders samples better: "),
            (same, [0.40, 0.45], "A has the better probabilities: "),
            ([0.75, 0.70], [0.40, 0.45], "A is better: "),
            ([0.70, 0.75], [0.45, 0.40], "B is better: "),
            ([0.75, 0.70], [0.45, 0.40], "A orders samples better, and B has the better probabilities: "),
            ([f64::NAN, f64::NAN], [0.40, 0.45], "A has the better probabilities: "),
        ] {
            let told = told(auc, logloss, errors);
            assert!(told.starts_with(due), "{auc:?}, {logloss:?}: {told}");
        }
        assert!(told([0.75, 0.70], same, None).contains("samples that have weights"));
        let none = Some(StandardErrors { auc_se: f64::NAN, logloss_se: f64::NAN });
        assert!(told([0.75, 0.70], same, none).starts_with(nothing));
    }
}
