//! `octorec eval`: scores a trained model on labelled data.

use std::path::PathBuf;

use clap::Args;

use super::overrides::source_of;
use super::preprocess::BadRow;
use super::ranks::{Purpose, RankArgs, Started};
use super::session::{Trained, VerifyArgs, load, open_data, report_skipped, report_unseen};
use crate::base::config::{Config, SourceKind};
use crate::base::console::note;
use crate::base::units::Count;
use crate::base::{Error, Result, console, interrupt};
use crate::collective::World;
use crate::data::formats::Format;
use crate::data::{Labels, Source, Split, Unseen};
use crate::train::{Scores, auc, predict};

/// Arguments of `octorec eval`.
#[derive(Debug, Args)]
#[command(args_override_self = true)]
pub struct EvalArgs {
    /// The run's directory, or its checkpoint file.
    #[arg(long, value_name = "DIR|FILE")]
    checkpoint: PathBuf,

    /// Labelled data: its test samples, or all of it where none are set apart. Without it: the run's own test samples.
    #[arg(long, value_name = "PATH")]
    data: Option<PathBuf>,

    /// Malformed rows of text; without it: as when the model was trained
    #[arg(long, value_enum, value_name = "WHAT")]
    on_bad_row: Option<BadRow>,

    /// Compute threads of each rank; 0: one for each core.
    #[arg(long, value_name = "N", default_value_t = 0)]
    threads: usize,

    #[command(flatten)]
    verify: VerifyArgs,

    #[command(flatten)]
    ranks: RankArgs,

    /// Print the scores as one JSON object on stdout.
    #[arg(long)]
    json: bool,
}

impl EvalArgs {
    /// Prints the scores.
    pub fn run(&self, world: &World) -> Result<()> {
        interrupt::install()?;
        let trained = Trained::find(&self.checkpoint, self.verify)?;
        let mut config = trained.config()?;
        if let Some(path) = &self.data {
            whole_file(&mut config, path)?;
        }
        if let Some(what) = self.on_bad_row {
            config.data.on_bad_row = what.into();
        }
        let source = open_data(&mut config, trained.known, Labels::Required, Unseen::NoRow)?;
        if self.data.is_some() {
            refuse_own_numbers(&*source)?;
        }
        let whole = self.data.is_some() && source.samples(Split::Test) == Some(0);
        let split = if whole { Split::Train } else { Split::Test };
        config.use_here(self.threads);
        let Started { ranks, .. } = self.ranks.start(world, &config, &*source, Purpose::Predict, None, false)?;
        load(&trained.path, self.verify, &*source, &ranks)?;
        let found = predict(&ranks, &source, split, config.train.eval_batch)?;
        report_unseen(&*source);
        report_skipped(source.skipped_rows());
        if found.labels.is_empty() {
            let (origin, reason) = match &self.data {
                Some(path) => ("--data", format!("{} has no samples: name labelled data", path.display())),
                None => ("eval", "this run kept no test samples: name labelled data with --data FILE".to_owned()),
            };
            return Err(Error::Config { origin: origin.to_owned(), reason });
        }
        let scores = Scores::new(&found.probabilities, &found.labels);
        let truth = source.truth(split, 0, found.labels.len());
        let best_possible = truth.map(|truth| auc(&truth, &found.labels));
        if self.json {
            let text = serde_json::to_string(&scores).expect("scores are representable in JSON");
            console::result(format_args!("{text}\n"))?;
        } else {
            let possible = best_possible.map_or(String::new(), |best| format!("  possible   {best:.6}\n"));
            let Scores { auc, logloss, accuracy, calibration, label_rate, samples } = scores;
            let number = |x: f64, digits: usize| if x.is_finite() { format!("{x:.digits$}") } else { "-".to_owned() };
            console::result(format_args!(
                "AUC          {}\n{possible}log loss     {logloss:.6}\naccuracy     {accuracy:.6}\n\
                 calibration  {}\nlabel rate   {label_rate:.6}\nsamples      {}\n",
                number(auc, 6),
                number(calibration, 4),
                Count(samples)
            ))?;
            scores.undefined().iter().for_each(|why| note!("note: {why}"));
        }
        Ok(())
    }
}

/// Reads all of a file as one split, in its order.
///
/// # Errors
/// When it is text with a header, and the run has no schema that would describe it.
pub(super) fn whole_file(config: &mut Config, path: &std::path::Path) -> Result<()> {
    if config.data.schema.is_empty() && Format::detect(path) == Some(Format::Csv) {
        let reason = format!(
            "{} is text with named columns, but this run was trained without a schema: name data of the kind that it was \
             trained on, or train on such text (octorec train --schema FILE)",
            path.display()
        );
        return Err(Error::Config { origin: "--data".to_owned(), reason });
    }
    config.data.source = if config.data.schema.is_empty() { source_of(path) } else { SourceKind::Files };
    config.data.path = path.display().to_string();
    config.data.test_path.clear();
    config.data.test_fraction = 0.0;
    Ok(())
}

/// Refuses data whose values got other row numbers than the model's.
pub(super) fn refuse_own_numbers(source: &dyn Source) -> Result<()> {
    if !source.numbers_own_values() {
        return Ok(());
    }
    let reason = "the values of this file were numbered as they appeared in it, not as the model knows them: give the \
                  schema's categorical columns rows or buckets before training"
        .to_owned();
    Err(Error::Config { origin: "data.schema".to_owned(), reason })
}

impl Trained {
    /// How the model was trained.
    pub(super) fn config(&self) -> Result<Config> {
        self.header.as_ref().map(|(_, config)| config.clone()).ok_or_else(|| Error::Checkpoint {
            path: self.path.clone(),
            reason: "holds weights but not how they were trained: give a run of octorec's".to_owned(),
        })
    }
}
