//! How much worse a model's scores are without what a column says (`octorec eval --importance`).

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use serde::Serialize;

use super::eval::number;
use super::table::Table;
use super::terminal::bar;
use crate::base::Result;
use crate::base::config::Config;
use crate::data::derived::Derived;
use crate::data::{Feature, LoaderMode, Permuted, Source, Split};
use crate::train::{Questions, Ranks, Scores, evaluate};

/// What one column is worth.
#[derive(Debug, Serialize)]
pub struct Importance {
    column: String,
    /// AUC with the column's values exchanged among samples.
    auc: f64,
    /// By how much that is less.
    auc_drop: f64,
    /// Log loss likewise.
    logloss: f64,
    /// By how much that is more.
    logloss_rise: f64,
}

/// What every column of `data` is worth to the model that has these scores: those first without which log loss rises
/// the most. Each takes a pass over the split, whose samples are counted in `scored`. All machines call it at the same
/// time.
///
/// # Errors
/// As [`evaluate`].
pub fn importance(
    ranks: &Ranks,
    config: &Config,
    data: &Arc<dyn Source>,
    (split, mode): (Split, LoaderMode),
    (scores, scored): (&Scores, &Arc<AtomicU64>),
) -> Result<Vec<Importance>> {
    let features: Vec<_> = Feature::all(&**data).collect();
    let progress = bar(features.len() as u64 * scores.samples, "scored, a column at a time exchanged");
    let mut found = Vec::new();
    for (column, feature) in features {
        let source = Derived::of(&config.model, Arc::new(Permuted::new(Arc::clone(data), feature)))?;
        let questions = Questions { scored: Arc::clone(scored), ..Questions::default() };
        let without = evaluate(ranks, &source, (split, config.train.eval_batch), mode, questions)?;
        let Scores { auc, logloss, .. } = without.expect("as many samples as before").scores;
        let (auc_drop, logloss_rise) = (scores.auc - auc, logloss - scores.logloss);
        found.push(Importance { column, auc, auc_drop, logloss, logloss_rise });
        progress.inc(scores.samples);
    }
    found.sort_by(|a, b| b.logloss_rise.total_cmp(&a.logloss_rise));
    Ok(found)
}

/// For people.
pub struct Importances<'a>(pub &'a [Importance]);

impl fmt::Display for Importances<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut table = Table::new(["values exchanged of", "AUC", "less by", "log loss", "more by"]);
        for Importance { column, auc, auc_drop, logloss, logloss_rise } in self.0 {
            let [auc, auc_drop, logloss, logloss_rise] = [auc, auc_drop, logloss, logloss_rise].map(|x| number(*x, 6));
            table.row([column.clone(), auc, auc_drop, logloss, logloss_rise]);
        }
        write!(f, "{table}")
    }
}
