//! `octorec inspect DAY --against RUN`: how samples differ from those that a run's model was trained on, before
//! anything is trained or scored.
//!
//! Samples are read as `eval --data` reads them, in one pass behind the one that opens text, and only counted. What the
//! training samples were, the checkpoint tells ([`Statistics`]); without that, all that is known of them is the
//! vocabulary, and the scales of standardised columns.

use std::path::Path;
use std::sync::Arc;

use serde::Serialize;

use super::percent;
use crate::base::console::note;
use crate::base::units::{Count, Many};
use crate::base::{Result, console};
use crate::cli::eval::number;
use crate::cli::overrides::KeyArgs;
use crate::cli::session::{open_columns, report_skipped};
use crate::cli::table::Table;
use crate::cli::text::of_text;
use crate::cli::trained::{Trained, VerifyArgs, open_trained, refuse_own_numbers, whole_file};
use crate::data::derived::Derived;
use crate::data::schema::{Dense, Transform};
use crate::data::statistics::{CategoricalStatistics, DenseStatistics, Known, Statistics};
use crate::data::{Feature, Labels, OnUnseen, Opening, Source, Split};
use crate::train::{Checkpoint, Instead};

/// What can be done about data whose columns or rows are others.
const ANOTHER: &str = "or name a run of such data with --against";

/// A column of whose values more than this share are unseen is likely to be another one, or to be written otherwise.
const MOSTLY: f64 = 0.5;

/// What `--json` prints; `null` is what nothing tells.
#[derive(Serialize)]
struct Report {
    data: String,
    /// The checkpoint.
    against: String,
    samples: u64,
    /// Malformed rows that were left out.
    skipped_rows: u64,
    /// How many of the training samples the numbers before are of.
    trained_samples: Option<u64>,
    /// Samples that have a label.
    labelled: u64,
    /// Their mean label, by which all samples count the same, whatever they weigh.
    label_rate: Option<f64>,
    trained_label_rate: Option<f64>,
    /// Most changed first.
    columns: Vec<Compared>,
    warnings: Vec<String>,
}

/// A column, now and when the model was trained.
#[derive(Serialize)]
struct Compared {
    column: String,
    /// The Population Stability Index.
    psi: Option<f64>,
    /// Share of samples without a value; nothing where such a sample looks up a row as others do.
    missing: Option<f64>,
    trained_missing: Option<f64>,
    #[serde(flatten)]
    facts: Facts,
}

/// What is told of one kind of columns.
#[derive(Serialize)]
#[serde(tag = "kind", rename_all = "lowercase")]
enum Facts {
    Dense {
        /// Share of samples whose value the transform makes 0, since it is below what that is for.
        clipped: Option<f64>,
        trained_clipped: Option<f64>,
        /// The mean of values, as the model reads them.
        mean: Option<f64>,
        trained_mean: Option<f64>,
        /// How far the mean has moved, in standard deviations of the training samples.
        shift: Option<f64>,
    },
    Categorical {
        /// Share of values that the model has not learned; nothing where each has a row whatever it is.
        unseen: Option<f64>,
    },
}

/// Prints how the samples at `day` differ from those that the model of a run was trained on.
///
/// # Errors
/// When the run has no checkpoint, or the data are none that its model reads.
pub(super) fn compare(day: &Path, run: &Path, keys: &KeyArgs, json: bool) -> Result<()> {
    let verify = VerifyArgs { no_verify: false };
    let trained = Trained::find(run, false, verify)?;
    let mut config = trained.config()?;
    whole_file(&mut config, &trained, ("inspect", day))?;
    if let Some(flag) = keys.origin("data.max_line") {
        of_text(&flag, &config)?;
        config.data.max_line = keys.max_line();
    }
    if let Some(flag) = keys.origin("data.on_bad_row") {
        of_text(&flag, &config)?;
        config.data.on_bad_row = keys.on_bad_row()?;
    }
    let rows = config.model.rows.clone();
    let (labels, unseen) = (Labels::Optional, OnUnseen::EmptyBag);
    // Blocks whose vocabulary has grown from the model's are a day like any other.
    let numbering = Checkpoint::open_as(&trained.path, false)?.numbering()?;
    let opening = Opening { labels, unseen, whole: true, numbering, ..trained.opening };
    let data = open_columns(&mut config, opening)?;
    let source = Derived::of(&config.model, Arc::clone(&data))?;
    refuse_own_numbers(&*data)?;
    let instead = Instead { otherwise: ANOTHER, begins: false, may_have_grown: true, may_skip: false };
    let checkpoint = open_trained(&trained.path, verify, (Some(&config.data), &*source), instead)?;
    let dense: Vec<&str> = data.about().dense_columns.iter().map(|(name, _)| &**name).collect();
    let categorical = data.schema().names();
    let categorical: Vec<&str> = categorical.iter().map(|name| &**name).collect();
    checkpoint.check_names(&dense, &categorical, ANOTHER)?;
    source.schema().check_model(&config.model)?;

    let before = checkpoint.statistics()?.filter(|before| fits(before, &*data));
    if before.is_none() {
        note!(
            "note: {} does not tell what its training samples were: it is of an earlier version, or these were generated or \
             could not be looked at; a run that is trained on stored data now tells it",
            trained.path.display()
        );
    }
    let counted = count(&*data, before, &rows)?;
    report_skipped(data.skipped_rows());
    let columns = compared(&*data, &rows, before, &counted);
    let now = counted.statistics;
    warn(&columns, &now);
    let report = Report {
        data: day.display().to_string(),
        against: trained.path.display().to_string(),
        samples: now.samples,
        skipped_rows: data.skipped_rows(),
        trained_samples: before.map(|before| before.samples),
        labelled: now.labelled,
        label_rate: now.label_rate(),
        trained_label_rate: before.and_then(Statistics::label_rate),
        columns,
        warnings: console::warnings(),
    };
    if json { console::json(&report) } else { console::result(format_args!("{}", shown(&report))) }
}

/// Whether these are of as many columns as the data have.
fn fits(before: &Statistics, data: &dyn Source) -> bool {
    let schema = data.schema();
    (before.dense.len(), before.categorical.len()) == (schema.dense, schema.tables.len())
}

/// Samples that were counted.
struct Counted {
    statistics: Statistics,
    dense: Vec<Dense>,
    /// Whether it is known of each categorical column which samples have no value.
    tells_missing: Vec<bool>,
}

/// Counts all samples in the bins of those before, where these are known. The model's tables have so many `rows`.
fn count(data: &dyn Source, before: Option<&Statistics>, rows: &[u64]) -> Result<Counted> {
    let schema = data.schema();
    let empty = || Statistics::of_columns(schema.dense, schema.tables.len());
    let (mut statistics, mut dense) = (before.map_or_else(empty, Statistics::emptied), Vec::new());
    // By categorical column, whether a blank field has a row of its own, and whether bags may have no look-up.
    let mut blanks = Vec::new();
    // Rows that the model has not, and the one of values that it has not seen, are not learned.
    let known = schema.tables.iter().enumerate().map(|(table, column)| {
        let rows = rows.get(table).copied().unwrap_or(u64::MAX);
        // Where blocks have grown, the first new value has the number that the row of unseen ones had.
        let grown = data.about().growth.get(table).filter(|column| column.new > 0 && column.unseen_row);
        let moved = grown.and_then(|column| u32::try_from(column.kept + column.new).ok());
        let rows = grown.map_or(rows, |column| rows.min(column.kept));
        Known { rows: column.unseen().map_or(rows, |unseen| rows.min(unseen)), moved }
    });
    let known: Vec<Known> = known.collect();
    let all = data.samples(Split::Train).unwrap_or(0);
    data.each_stored(Split::Train, 0..all, &mut |stored| {
        if statistics.samples == 0 {
            dense = stored.description.features().to_vec();
            let has_row = |table: usize| stored.blanks.get(table).is_some_and(Option::is_some);
            let columns = stored.description.categorical.iter().enumerate();
            blanks = columns.map(|(table, column)| (has_row(table), column.hots == 0)).collect();
        }
        statistics.add(stored, &known);
        Ok(())
    })?;
    let lost = data.lost();
    statistics.categorical.iter_mut().zip(&lost).for_each(|(counted, lost)| counted.tell_apart(*lost));
    let tells = |(table, (has_row, is_list)): (usize, &(bool, bool))| match lost.get(table) {
        Some(lost) => *has_row || lost.tells_blanks,
        None => *is_list,
    };
    let tells_missing = blanks.iter().enumerate().map(tells).collect();
    Ok(Counted { statistics, dense, tells_missing })
}

/// All columns, most changed first.
fn compared(
    data: &dyn Source,
    rows: &[u64],
    before: Option<&Statistics>,
    Counted { statistics: now, dense, tells_missing }: &Counted,
) -> Vec<Compared> {
    let share = |count: u64, of: u64| count as f64 / of.max(1) as f64;
    let numbered = data.unseen_values();
    let mut columns: Vec<Compared> = Feature::all(data)
        .map(|(column, feature)| match feature {
            Feature::Dense(at) => {
                let (then, counted) = (before.map(|before| &before.dense[at]), &now.dense[at]);
                let is_log = dense.get(at).is_some_and(|column| column.transform == Transform::Log);
                let (trained_mean, shift) = moved(then, counted, dense.get(at));
                let trained = |of: fn(&DenseStatistics) -> u64| {
                    before.zip(then).map(|(before, then)| share(of(then), before.samples))
                };
                Compared {
                    column,
                    psi: then.map(|then| then.stability_index(counted)),
                    missing: Some(share(counted.missing, now.samples)),
                    trained_missing: trained(|then| then.missing),
                    facts: Facts::Dense {
                        clipped: is_log.then(|| share(counted.clipped, now.samples)),
                        trained_clipped: trained(|then| then.clipped).filter(|_| is_log),
                        mean: (counted.present > 0).then_some(counted.mean),
                        trained_mean,
                        shift,
                    },
                }
            }
            Feature::Categorical(at) => {
                let (then, counted) = (before.map(|before| &before.categorical[at]), &now.categorical[at]);
                let tells = numbered.iter().any(|met| met.column == column) || is_beyond(data, rows, at);
                let missing = |of: &Statistics, column: &CategoricalStatistics| {
                    tells_missing.get(at).is_some_and(|tells| *tells).then(|| share(column.missing, of.samples))
                };
                Compared {
                    column,
                    psi: then.map(|then| then.stability_index(counted)),
                    missing: missing(now, counted),
                    trained_missing: before.zip(then).and_then(|(before, then)| missing(before, then)),
                    facts: Facts::Categorical { unseen: tells.then(|| counted.unseen_share()) },
                }
            }
        })
        .collect();
    columns.sort_by(|a, b| b.change().total_cmp(&a.change()));
    columns
}

/// Whether a table of the data has rows that the model's has not.
fn is_beyond(data: &dyn Source, rows: &[u64], table: usize) -> bool {
    rows.get(table).is_some_and(|rows| data.schema().tables[table].rows > *rows)
}

/// The mean of a dense column before, and how far it has moved since.
fn moved(then: Option<&DenseStatistics>, now: &DenseStatistics, column: Option<&Dense>) -> (Option<f64>, Option<f64>) {
    let (mean, deviation) = match then {
        Some(then) if then.present > 0 => (then.mean, then.deviation()),
        // What is standardised has this mean and this deviation, for those samples that it was learned from.
        None if column.is_some_and(|column| column.transform == Transform::Standardise) => (0.0, 1.0),
        _ => return (None, None),
    };
    let is_told = now.present > 0 && deviation > 0.0;
    (Some(mean), is_told.then(|| (now.mean - mean) / deviation))
}

impl Compared {
    /// By what columns are ordered.
    fn change(&self) -> f64 {
        let known = match self.facts {
            Facts::Dense { shift, .. } => shift.map(f64::abs),
            Facts::Categorical { unseen } => unseen,
        };
        self.psi.or(known).unwrap_or(0.0)
    }
}

/// Warns of what is plainly wrong.
fn warn(columns: &[Compared], now: &Statistics) {
    if let Some((least, most)) = now.label_range
        && least == most
    {
        note!(
            "warning: all labels are {least}: nothing can be learned of one class; is the label that of the model's schema, and \
             is it known yet for these samples?"
        );
    }
    for Compared { column, missing, trained_missing, facts, .. } in columns {
        if let Facts::Categorical { unseen: Some(unseen) } = facts
            && *unseen > MOSTLY
        {
            note!(
                "warning: column {column}: {} of its values are none that the model was trained on: either they are written \
                 otherwise than they were, which is to be mended before training, or most of them are new, which train --init RUN \
                 learns",
                percent(*unseen)
            );
        }
        let was_there = trained_missing.is_none_or(|before| before < 1.0);
        if missing.is_some_and(|missing| missing >= 1.0) && now.samples > 0 && was_there {
            note!(
                "warning: column {column} has no value in any sample: does whatever writes these data still fill it? The model \
                 cannot tell samples apart by it"
            );
        }
    }
}

/// What people read.
fn shown(report: &Report) -> String {
    let rate = |rate: Option<f64>| rate.map_or("none".to_owned(), |rate| format!("{:.2} %", 100.0 * rate));
    let of = report.trained_samples.map_or_else(String::new, |of| {
        let (before, samples) = (rate(report.trained_label_rate), Many(of, "training sample"));
        format!(", before {before}, as {samples} of {} tell", report.against)
    });
    let mut text =
        format!("{}: {} samples, label rate {}{of}\n", report.data, Count(report.samples), rate(report.label_rate));
    if report.labelled > 0 && report.labelled < report.samples {
        text += &format!("{} have no label\n", Many(report.samples - report.labelled, "sample"));
    }
    let share = |share: Option<f64>| share.map_or("-".to_owned(), percent);
    let mut table = Table::new(["column", "PSI", "unseen", "missing", "before", "clipped", "before", "shift"]);
    for Compared { column, psi, missing, trained_missing, facts } in &report.columns {
        let (unseen, clipped, clipped_before, shift) = match *facts {
            Facts::Dense { clipped, trained_clipped, shift, .. } => (None, clipped, trained_clipped, shift),
            Facts::Categorical { unseen } => (unseen, None, None, None),
        };
        table.row([
            column.clone(),
            psi.map_or("-".to_owned(), |psi| number(psi, 3)),
            share(unseen),
            share(*missing),
            share(*trained_missing),
            share(clipped),
            share(clipped_before),
            shift.map_or("-".to_owned(), |shift| format!("{shift:+.2}")),
        ]);
    }
    format!("{text}\n{table}")
}
