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
    let fail = |reason: String| Err(Error::config("--against", reason));
    let sources = [own, other].map(|subject| &*subject.source);
    let skipped = [own, other].map(skipped_rows);
    let other_schema = sources[0].about().schema_text != sources[1].about().schema_text;
    if skipped[0] != skipped[1] || (skipped[0] > 0 && other_schema) {
        let (data, remedy) = match named {
            true => (
                "these data",
                "mend those rows or take them out (--on-bad-row fail names the first one), or name other data with --data FILE",
            ),
            // A run's own samples are those that it was trained beside.
            false => ("its own files", "name labelled data without such rows for both with --data FILE"),
        };
        return fail(format!(
            "A leaves out {} of {data} and B {}, each by its own schema, so that samples may not be the same: {remedy}",
            Many(skipped[0], "malformed row"),
            Count(skipped[1]),
        ));
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
        return fail(format!("samples have weights by the data of {weighs} alone{ALIKE}"));
    } else {
        return Ok(());
    };
    if named {
        return fail(format!("{reason}: name labelled data that hold the same samples for both with --data FILE"));
    }
    let paths = |of: fn(&Subject) -> &str| [own, other].map(of);
    let trained_on = paths(|subject| &subject.config.data.path);
    let tests = paths(|subject| &subject.config.data.test_path)
        .into_iter()
        .find(|path| Path::new(path).exists() && !trained_on.contains(path));
    let such = match tests {
        Some(path) => format!("such as {path}"),
        None => "which neither was trained on".to_owned(),
    };
    fail(format!("{reason}: name labelled data that both models can read with --data FILE, {such}"))
}

/// Malformed rows that are left out where they may move a model's samples.
fn skipped_rows(subject: &Subject) -> u64 {
    match subject.split {
        // Their end is where those for tests begin, perhaps in another file.
        Split::Validation => subject.source.skipped_rows(),
        split => subject.source.skipped_rows_beside(split),
    }
}

/// Refuses two models whose tables one plan does not divide.
pub fn same_tables(own: &Subject, other: &Subject) -> Result<()> {
    let tables = |Subject { source, config, .. }: &Subject| {
        let (names, rows) = (source.schema().names(), source.schema().rows());
        let dims = config.model.dims(&rows);
        (names, rows, dims)
    };
    if tables(own) == tables(other) {
        return Ok(());
    }
    let reason = "a plan divides the tables of one model, and A and B have other tables: leave it away, and those of each are \
                  divided as is predicted to be best";
    Err(Error::config("--plan", reason))
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

    /// Of a difference of AUC. One that is not 0, but the same for each sample, has the error 0, by which even a few
    /// samples would tell it for certain: it has no interval.
    fn of_auc(difference: f64, error: f64) -> Self {
        let is_the_same_for_each = error == 0.0 && difference != 0.0;
        Self::around(difference, if is_the_same_for_each { f64::NAN } else { error })
    }

    /// Whether there is one.
    fn is_known(self) -> bool {
        self.0.iter().all(|end| end.is_finite())
    }

    /// What people are told of that of a score which does not exclude 0.
    fn tells(self, score: &str) -> String {
        let what = if self.is_known() { "tells no difference" } else { "has no interval" };
        format!("{score} {what}")
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
    /// When the samples were others, and [`Error::Interrupted`].
    pub fn new(paths: [&'a Path; 2], [mut own, mut against]: [Scored; 2], table: bool) -> Result<Self> {
        let [a, b] =
            [&mut own, &mut against].map(|scored| scored.evaluation.each.take().expect("each sample was asked for"));
        if let Some(what) = a.differs(&b) {
            return Err(Error::config("--against", format!("{what}{ALIKE}")));
        }
        let errors = paired_errors(a, b)?;
        let difference = Difference::new([&own, &against].map(|of| &of.evaluation.scores), errors);
        let verdict = difference.verdict(own.evaluation.scores.samples);
        Ok(Self { paths, own, against, difference, verdict, table })
    }

    /// Why there is no AUC, where there is none, and of whom.
    pub fn undefined(&self) -> Vec<String> {
        let [a, b] = [&self.own, &self.against].map(|scored| scored.evaluation.scores.undefined());
        let reasons = if a == b { vec![("A and B", a)] } else { vec![("A", a), ("B", b)] };
        reasons.into_iter().filter_map(|(name, why)| Some(format!("{name}: {}", why?))).collect()
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
            auc_interval: errors.map(|errors| Interval::of_auc(auc, errors.auc_se)),
            logloss_interval: errors.map(|errors| Interval::around(logloss, errors.logloss_se)),
        }
    }

    /// What follows of it, of so many samples.
    fn verdict(&self, samples: u64) -> String {
        let (Some(auc_interval), Some(logloss_interval)) = (self.auc_interval, self.logloss_interval) else {
            return "whether the difference is more than chance is not told of samples that have weights".to_owned();
        };
        // A lower loss is better.
        match (auc_interval.higher(), logloss_interval.higher().map(Model::other)) {
            (None, None) => {
                let of = Many(samples, "sample");
                match [auc_interval, logloss_interval].map(Interval::is_known) {
                    [true, true] => format!("no difference can be told from {of}: no 95 % interval excludes 0"),
                    [false, false] => format!(
                        "whether there is a difference cannot be told from {of}: neither AUC nor log loss has an interval"
                    ),
                    _ => format!(
                        "no difference can be told from {of}: {}, and {}",
                        auc_interval.tells("AUC"),
                        logloss_interval.tells("log loss")
                    ),
                }
            }
            (Some(auc), Some(logloss)) if auc == logloss => {
                format!("{auc:?} is better: the 95 % intervals of the differences of AUC and of log loss exclude 0")
            }
            (Some(auc), Some(logloss)) => format!(
                "{auc:?} orders samples better, and {logloss:?} has the better probabilities: the 95 % intervals of the \
                 differences of AUC and of log loss exclude 0"
            ),
            (Some(auc), None) => format!(
                "{auc:?} orders samples better: the 95 % interval of the difference of AUC excludes 0; {}",
                logloss_interval.tells("log loss")
            ),
            (None, Some(logloss)) => format!(
                "{logloss:?} has the better probabilities: the 95 % interval of the difference of log loss excludes 0; {}",
                auc_interval.tells("AUC")
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
            let interval = interval.filter(|interval| interval.is_known());
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
        let buckets = [("A", &a.calibration_buckets), ("B", &b.calibration_buckets)];
        for (name, buckets) in buckets.into_iter().filter(|(_, buckets)| self.table && !buckets.is_empty()) {
            write!(f, "\n{name}")?;
            write_buckets(f, buckets)?;
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
        ] {
            let told = told(auc, logloss, errors);
            assert!(told.starts_with(due), "{auc:?}, {logloss:?}: {told}");
        }
        assert!(told([0.75, 0.70], same, None).contains("samples that have weights"));
        let of = |auc_se, logloss_se| Some(StandardErrors { auc_se, logloss_se });
        let neither = "whether there is a difference cannot be told from 2,000 samples: neither AUC nor log loss has";
        assert!(told([0.75, 0.70], same, of(f64::NAN, f64::NAN)).starts_with(neither));
        // Of samples of one class.
        let (none, one) = ([f64::NAN; 2], of(f64::NAN, 0.01));
        let due = format!("{nothing}: AUC has no interval, and log loss tells no difference");
        assert_eq!(told(none, same, one), due);
        let found = told(none, [0.40, 0.45], one);
        assert!(found.starts_with("A has the better probabilities: ") && found.ends_with("; AUC has no interval"));
        // A difference that is the same for each sample is not certain; none at all is none.
        assert_eq!(told([1.0, 0.5], same, of(0.0, 0.01)), due);
        assert_eq!(told([0.7, 0.7], same, of(0.0, 0.01)), format!("{nothing}: no 95 % interval excludes 0"));
    }
}
