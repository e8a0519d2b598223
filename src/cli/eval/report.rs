//! What `octorec eval` tells people of one model.

use std::fmt;

use crate::base::units::{Count, Many};
use crate::cli::importance::{Importance, Importances};
use crate::cli::table::Table;
use crate::train::{Bucket, ByValue, Evaluation, Grouped, MOST_VALUES, Scores, StandardErrors};

/// Values of a column of which people are told.
const SHOWN_VALUES: usize = 20;

/// Letters of a value that they see.
const SHOWN_LETTERS: usize = 40;

/// An evaluation for people.
pub struct EvalReport<'a> {
    pub found: &'a Evaluation,
    /// The column of the groups.
    pub groups: Option<&'a str>,
    /// The column of whose values scores are told.
    pub by: Option<&'a str>,
    /// What columns are worth.
    pub importance: Option<&'a [Importance]>,
    /// Whether buckets are shown.
    pub table: bool,
}

impl fmt::Display for EvalReport<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Evaluation { scores, errors, best_possible_auc, calibration_buckets, grouped, by_value, .. } = self.found;
        let Scores { auc, pr_auc, logloss, normalised_entropy, accuracy, calibration, label_rate, samples, weight } =
            *scores;
        let error = |of: fn(&StandardErrors) -> f64| {
            let known = errors.as_ref().map(of).filter(|error| error.is_finite());
            known.map_or_else(String::new, |error| format!("  (standard error {error:.6})"))
        };
        writeln!(f, "AUC          {}{}", number(auc, 6), error(|errors| errors.auc_se))?;
        if let Some(best) = best_possible_auc {
            writeln!(f, "  possible   {best:.6}")?;
        }
        if let (Some(found), Some(column)) = (grouped, self.groups) {
            let Grouped { gauc, gauc_groups, gauc_samples, .. } = *found;
            writeln!(
                f,
                "GAUC         {}  ({} of {column}, {}; left out: {} of one class with {}, {} without a value that the model \
                 knows)",
                number(gauc, 6),
                Many(gauc_groups, "group"),
                Many(gauc_samples, "sample"),
                Many(found.gauc_groups_of_one_class, "group"),
                Many(found.gauc_samples_of_one_class, "sample"),
                Many(found.gauc_samples_without_group, "sample"),
            )?;
        }
        writeln!(f, "PR-AUC       {}", number(pr_auc, 6))?;
        writeln!(f, "log loss     {}{}", number(logloss, 6), error(|errors| errors.logloss_se))?;
        writeln!(f, "NE           {}", number(normalised_entropy, 6))?;
        writeln!(f, "accuracy     {}", number(accuracy, 6))?;
        writeln!(f, "calibration  {}", number(calibration, 4))?;
        writeln!(f, "label rate   {label_rate:.6}")?;
        writeln!(f, "samples      {}", Count(samples))?;
        if let Some(weight) = weight {
            writeln!(f, "weight       {weight:.6}")?;
        }
        if self.table {
            write_buckets(f, calibration_buckets)?;
        }
        by_value.as_ref().zip(self.by).map_or(Ok(()), |(found, column)| write_by_value(f, found, column))?;
        self.importance.map_or(Ok(()), |columns| write!(f, "\n{}", Importances(columns)))
    }
}

/// A number for people; one that there is not is a line.
pub fn number(x: f64, digits: usize) -> String {
    if x.is_finite() { format!("{x:.digits$}") } else { "-".to_owned() }
}

/// Calibration by bucket of probabilities.
pub fn write_buckets(f: &mut fmt::Formatter<'_>, buckets: &[Bucket]) -> fmt::Result {
    if !buckets.is_empty() {
        writeln!(f, "\nprobabilities            mean      clicked   calibration  samples")?;
    }
    for Bucket { lowest, highest, samples, probability, clicked, .. } in buckets {
        let range = format!("{lowest:.6} .. {highest:.6}");
        let ratio = number(probability / clicked, 4);
        writeln!(f, "{range:<23}  {probability:.6}  {clicked:.6}  {ratio:<11}  {}", Count(*samples))?;
    }
    Ok(())
}

/// The scores of a column's first values.
fn write_by_value(f: &mut fmt::Formatter<'_>, found: &ByValue, column: &str) -> fmt::Result {
    let mut table = Table::new([column, "samples", "label rate", "AUC", "log loss", "NE", "calibration"]);
    let shown = || found.values.iter().take(SHOWN_VALUES);
    for of in shown() {
        let value = match (&of.value, of.row) {
            (Some(text), _) if text.is_empty() => "(blank)".to_owned(),
            (Some(text), _) => text.chars().take(SHOWN_LETTERS).collect(),
            (None, _) if of.unseen => "(unseen values)".to_owned(),
            (None, Some(row)) => format!("row {row}"),
            (None, None) => "(unknown or no value)".to_owned(),
        };
        table.row([
            value,
            Count(of.samples).to_string(),
            number(of.label_rate, 6),
            number(of.auc, 6),
            number(of.logloss, 6),
            number(of.normalised_entropy, 6),
            number(of.calibration, 4),
        ]);
    }
    write!(f, "\n{table}")?;
    let left = found.count - shown().count() as u64;
    if left == 0 {
        return Ok(());
    }
    writeln!(
        f,
        "  and {}: --json has those with the most samples, up to {}",
        Many(left, "more value"),
        Count(MOST_VALUES as u64)
    )
}
