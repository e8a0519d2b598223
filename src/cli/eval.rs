//! `octorec eval`: scores a trained model on labelled data.

mod against;
mod report;

use std::cell::Cell;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use clap::Args;
use serde::Serialize;

use super::division::check_data;
use super::heed_signals;
use super::importance::{Importance, importance};
use super::ranks::Started;
use super::session::{open_columns, open_watched, report_skipped};
use super::text::of_text;
use super::trained::{
    ANOTHER_MODEL, Trained, TrainedArgs, beside_checks, open_trained, refuse_own_numbers, whole_file,
};
use super::unseen::{Unknown, Unseen};
use crate::base::config::{Config, OnBadRow, Vocab};
use crate::base::console::note;
use crate::base::error::meant;
use crate::base::units::{Count, Many};
use crate::base::{Error, Result, TableId, console};
use crate::collective::World;
use crate::data::derived::Derived;
use crate::data::formats::csv::{TextCategorical, TextSchema};
use crate::data::{Feature, Labels, LoaderMode, OnUnseen, Opening, Source, Split};
use crate::train::{Checkpoint, Evaluation, GroupBy, Questions, evaluate};

pub(super) use report::number;

use against::{Comparison, same_samples, same_tables};
use report::EvalReport;

/// Buckets of calibration in JSON.
const BUCKETS: u64 = 10;

/// Arguments of `octorec eval`.
#[derive(Debug, Args)]
pub struct EvalArgs {
    /// The run's directory, or its checkpoint file.
    #[arg(long, value_name = "DIR|FILE")]
    checkpoint: PathBuf,

    /// Also score this model, a run's directory or its checkpoint file, on the same samples, and tell whether the
    /// difference is more than chance. Each model reads them by its own schema and vocabulary.
    #[arg(long, value_name = "DIR|FILE")]
    against: Option<PathBuf>,

    /// Labelled data: its test samples, those for validation where there are only such, or all of it where none are set
    /// apart. Without it: the run's own test samples.
    #[arg(long, value_name = "PATH")]
    data: Option<PathBuf>,

    /// Score these samples, of the run or of --data; without it: test samples, or of --data what is said there
    #[arg(long, value_enum, value_name = "SPLIT")]
    split: Option<Split>,

    /// Malformed rows of text; without it: as when the model was trained
    #[arg(long, value_enum, value_name = "WHAT")]
    on_bad_row: Option<OnBadRow>,

    #[command(flatten)]
    trained: TrainedArgs,

    /// Show calibration by so many buckets of probabilities, each of as many samples, or of as much weight where
    /// samples have weights (equal ones stay together); in --json 10 unless told otherwise, 0: none.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(0..=100_000))]
    calibration_buckets: Option<u64>,

    /// Also give the mean AUC of groups, weighted by their samples: a group is a value of this categorical column of
    /// the model (values that share a row are one), or of any column of text with a schema. Groups of one class are
    /// left out.
    #[arg(long, value_name = "COLUMN")]
    gauc: Option<String>,

    /// Also give the scores of the samples of each value of such a column, those with the most samples first: of 20
    /// values, in --json of 10,000.
    #[arg(long, value_name = "COLUMN")]
    by: Option<String>,

    /// Also tell what each column is worth: how much worse the scores are when its values are exchanged among samples
    /// (permutation importance). Takes a pass for each column.
    #[arg(long)]
    importance: bool,

    /// Print the scores as one JSON object on stdout.
    #[arg(long)]
    json: bool,
}

/// A model's scores, as `--json` prints them.
#[derive(Serialize)]
struct Scored {
    #[serde(flatten)]
    evaluation: Evaluation,
    /// Malformed rows that were left out.
    skipped_rows: u64,
    /// Categorical values that the model's vocabulary does not know.
    unknown_values: u64,
    unknown_values_by_column: Vec<Unknown>,
    #[serde(skip_serializing_if = "Option::is_none")]
    importance: Option<Vec<Importance>>,
}

/// A model, and the samples that it is scored on.
struct Subject {
    /// The checkpoint file.
    path: PathBuf,
    config: Config,
    /// The columns of the data alone.
    data: Arc<dyn Source>,
    /// With those that the model makes of them.
    source: Arc<dyn Source>,
    split: Split,
}

/// How far the command has come.
#[derive(Default)]
struct SoFar {
    /// Samples that were scored, in all passes.
    scored: Arc<AtomicU64>,
    /// Samples of each pass, where that is known.
    samples: Cell<Option<u64>>,
    /// Passes that are wanted.
    passes: Cell<u64>,
}

impl SoFar {
    /// Tells it whoever has interrupted the command.
    fn tell(&self) {
        // Relaxed: nobody counts any more.
        let scored = self.scored.load(Ordering::Relaxed);
        let several = Some(self.passes.get()).filter(|passes| *passes > 1);
        let several = several.map_or_else(String::new, |passes| format!(" in {}", Many(passes, "pass")));
        let done = match self.samples.get().map(|samples| samples * self.passes.get()) {
            _ if scored == 0 => "before a sample was scored".to_owned(),
            Some(all) => format!("after {} of {}{several}", Count(scored), Many(all, "sample")),
            None => format!("after {}", Many(scored, "sample")),
        };
        note!("interrupted {done}: no scores are printed, since they are of all samples, and nothing else is written");
    }
}

impl EvalArgs {
    /// Prints the scores; whoever interrupts that is told how far it came.
    pub fn run(&self, world: &World) -> Result<()> {
        heed_signals()?;
        let so_far = SoFar::default();
        self.print(world, &so_far).inspect_err(|error| {
            if matches!(error, Error::Interrupted) {
                so_far.tell();
            }
        })
    }

    /// Prints them.
    fn print(&self, world: &World, so_far: &SoFar) -> Result<()> {
        if let Some(other) = &self.against {
            return self.compare(world, other, so_far);
        }
        let subject = self.subject(&self.checkpoint)?;
        let columns = if self.importance { Feature::all(&*subject.data).count() as u64 } else { 0 };
        so_far.passes.set(1 + columns);
        let scored = self.score(world, &subject, &self.opened(&subject)?, so_far)?;
        if self.json {
            return console::json(&scored);
        }
        let Scored { evaluation: found, importance, .. } = &scored;
        let table = self.calibration_buckets.is_some();
        let (groups, by) = (self.gauc.as_deref(), self.by.as_deref());
        console::result(format_args!(
            "{}",
            EvalReport { found, groups, by, importance: importance.as_deref(), table }
        ))?;
        found.scores.undefined().iter().for_each(|why| note!("note: {why}"));
        Ok(())
    }

    /// Scores two models on the same samples, one after the other, and prints how they differ.
    fn compare(&self, world: &World, other: &Path, so_far: &SoFar) -> Result<()> {
        so_far.passes.set(2);
        for (flag, is_given) in
            [("--gauc", self.gauc.is_some()), ("--by", self.by.is_some()), ("--importance", self.importance)]
        {
            if is_given {
                let reason = "asks for more of one model, and --against compares the scores of two: leave it away, or score \
                              each model alone, without --against";
                return Err(Error::config(flag, reason));
            }
        }
        let find = |name: &str, path: &Path| {
            note!("{name}: {}", path.display());
            self.subject(path)
        };
        let paths = [&*self.checkpoint, other];
        // What is told of a model stands below its name.
        let own = find("A", paths[0])?;
        let of_own = self.opened(&own)?;
        let other = find("B", paths[1])?;
        let checkpoints = [of_own, self.opened(&other)?];
        same_samples(&own, &other, self.data.is_some())?;
        if self.trained.ranks.plan.is_some() {
            same_tables(&own, &other)?;
        }
        // Before the first one is scored, which may take long.
        for (Subject { config, source, .. }, checkpoint) in [&own, &other].into_iter().zip(&checkpoints) {
            check_data(config, &**source)?;
            checkpoint.check_tensors(&config.model, &source.schema().rows())?;
        }
        let score = |name: &str, subject, checkpoint| {
            note!("scoring {name}");
            self.score(world, subject, checkpoint, so_far)
        };
        let (own, other) = (score("A", &own, &checkpoints[0])?, score("B", &other, &checkpoints[1])?);
        let found = Comparison::new(paths, [own, other], self.calibration_buckets.is_some())?;
        if self.json {
            return console::json(&found);
        }
        console::result(format_args!("{found}"))?;
        found.undefined().iter().for_each(|why| note!("note: {why}"));
        Ok(())
    }

    /// The model of this checkpoint, with the samples that are asked for.
    fn subject(&self, checkpoint: &Path) -> Result<Subject> {
        let trained = Trained::find(checkpoint, false, self.trained.verify)?;
        let mut config = trained.config()?;
        if let Some(path) = &self.data {
            whole_file(&mut config, &trained, ("--data", path))?;
        }
        self.trained.limit_lines(&mut config)?;
        // Of the run's own data, what was left out while it was trained is, or is told.
        let leaves_out = self.data.is_none() && config.data.on_bad_row == OnBadRow::Skip;
        if let Some(what) = self.on_bad_row {
            of_text("--on-bad-row", &config)?;
            if leaves_out && what != OnBadRow::Skip {
                let reason = "this run left malformed rows out, and its test samples are among those that remain: leave the \
                              flag away, or score data as a whole with --data FILE";
                return Err(Error::config("--on-bad-row", reason));
            }
            config.data.on_bad_row = what;
        }
        let unseen = if leaves_out { OnUnseen::Reject } else { OnUnseen::EmptyBag };
        let opening = Opening { labels: Labels::Required, unseen, ..trained.opening };
        let data = open_columns(&mut config, opening);
        let data = data.map_err(|error| if self.data.is_none() { of_own_data(error, &config) } else { error })?;
        let source = Derived::of(&config.model, Arc::clone(&data))?;
        if self.data.is_some() {
            refuse_own_numbers(&*source)?;
        }
        let whole = self.data.is_some() && source.samples(Split::Test) == Some(0);
        let split = self.split.unwrap_or(if whole { Split::Train } else { Split::Test });
        self.check_split(&*source)?;
        config.use_here(self.trained.threads);
        Ok(Subject { path: trained.path, config, data, source, split })
    }

    /// Its checkpoint, for use on these samples.
    fn opened<'a>(&self, subject: &'a Subject) -> Result<Checkpoint<'a>> {
        let Subject { path, config, source, split, .. } = subject;
        let checkpoint = open_trained(path, self.trained.verify, (Some(&config.data), &**source), ANOTHER_MODEL)?;
        checkpoint
            .other_sample_weights(&**source)
            .iter()
            .for_each(|reason| note!("warning: {reason}, and so do the scores"));
        if self.data.is_none() {
            checkpoint.check_tests(config, &**source, *split)?;
        }
        Ok(checkpoint)
    }

    /// Its scores.
    fn score(&self, world: &World, subject: &Subject, checkpoint: &Checkpoint<'_>, so_far: &SoFar) -> Result<Scored> {
        let Subject { config, data, source, split, .. } = subject;
        so_far.samples.set(source.samples(*split));
        let groupings = self.groupings(config, &**source, *split)?;
        let Started { ranks, .. } = self.trained.ranks.start_trained(world, config, &**source, checkpoint)?;
        let (buckets, each) = (self.calibration_buckets.unwrap_or(BUCKETS), self.against.is_some());
        let questions =
            Questions { buckets, groupings, each, scored: Arc::clone(&so_far.scored), ..Questions::default() };
        let of = (*split, config.train.eval_batch);
        // What cannot be entered in the middle would be read to each rank's slice by that rank.
        let mode = if source.is_seekable(*split) { LoaderMode::Local } else { LoaderMode::Broadcast };
        let found = beside_checks(checkpoint, &ranks, || evaluate(&ranks, source, of, mode, questions))?;
        let (unseen, skipped_rows) = (self.unseen_values(world, &**source, mode)?, source.skipped_rows());
        unseen.report();
        report_skipped(skipped_rows);
        let Some(evaluation) = found else {
            let (origin, reason) = match &self.data {
                Some(path) => ("--data", format!("{} has no samples: name labelled data", path.display())),
                None => {
                    let is_validated = source.samples(Split::Validation).is_some_and(|samples| samples > 0);
                    let own =
                        if is_validated { "score its validation samples with --split validation, or " } else { "" };
                    ("eval", format!("this run kept no test samples: {own}name labelled data with --data FILE"))
                }
            };
            return Err(Error::config(origin, reason));
        };
        let scores = &evaluation.scores;
        let importance =
            self.importance.then(|| importance(&ranks, config, data, (*split, mode), (scores, &so_far.scored)));
        let importance = importance.transpose()?;
        config.model.reweighed().iter().for_each(|why| note!("note: {why}"));
        Ok(Scored {
            evaluation,
            skipped_rows,
            unknown_values: unseen.total(),
            unknown_values_by_column: unseen.by_column(),
            importance,
        })
    }

    /// Refuses a split without samples, or without an end.
    fn check_split(&self, source: &dyn Source) -> Result<()> {
        let Some(split) = self.split else { return Ok(()) };
        let (flag, name) = (format!("--split {split:?}").to_lowercase(), split.name());
        match source.samples(split) {
            None => Err(Error::config(flag, format!("{name} samples of these data never end: name another split"))),
            Some(0) => {
                let note = match split {
                    // A data set's role has the same name.
                    Split::Validation => " (validation samples of data without others for tests count as these)",
                    Split::Train | Split::Test => "",
                };
                let reason = format!("these data have no {name} samples{note}: name another split, or leave it away");
                Err(Error::config(flag, reason))
            }
            Some(_) => Ok(()),
        }
    }

    /// The columns that group samples.
    fn groupings(&self, config: &Config, source: &dyn Source, split: Split) -> Result<Vec<GroupBy>> {
        let mut groupings = Vec::new();
        if let Some(column) = &self.gauc {
            let by = self.by.as_ref() == Some(column);
            groupings.push(GroupBy { gauc: true, by, ..group_by(config, source, split, ("--gauc", column))? });
        }
        if let Some(column) = self.by.as_ref().filter(|column| self.gauc.as_ref() != Some(*column)) {
            groupings.push(GroupBy { by: true, ..group_by(config, source, split, ("--by", column))? });
        }
        Ok(groupings)
    }

    /// The values that all machines have met together.
    fn unseen_values(&self, world: &World, source: &dyn Source, mode: LoaderMode) -> Result<Unseen> {
        let own = Unseen(source.unseen_values());
        if mode == LoaderMode::Broadcast {
            // Each machine has read everything.
            return Ok(own);
        }
        own.together(world, self.trained.ranks.timeout)
    }
}

/// The error of a run's own data: where they are gone, what can be scored instead.
fn of_own_data(error: Error, config: &Config) -> Error {
    let Error::Io { path, source, .. } = &error else { return error };
    if source.kind() != ErrorKind::NotFound {
        return error;
    }
    let tests = match &config.data.test_path[..] {
        path if Path::new(path).exists() => format!(", here --data {path}"),
        _ => String::new(),
    };
    let reason = format!(
        "is not there, and without --data a run is scored on its own test samples, which need the data that it was trained \
         on: put it back, or name labelled data with --data FILE{tests}"
    );
    Error::bad_file(path, reason)
}

/// What groups samples by the column whose name a flag gives: one that the model looks up, or of described text any.
fn group_by(config: &Config, source: &dyn Source, split: Split, (flag, column): (&str, &str)) -> Result<GroupBy> {
    let tables = &source.schema().tables;
    let names = || tables.iter().map(|table| &*table.name);
    let own = (0..).map(TableId).zip(names()).find(|(_, name)| *name == column);
    let of = |data, table| GroupBy { data, table, gauc: false, by: false };
    if let Some((table, _)) = own {
        return Ok(of(None, table));
    }
    if let Some(schema) = &source.about().schema_text {
        return Ok(of(Some(open_beside(config, source, split, schema, (flag, column))?), TableId(0)));
    }
    let reason = if names().any(|name| name.starts_with(&format!("{column} / "))) {
        format!(
            "the model knows column {column} by quotients and remainders alone (model.qr_collisions), which many of its \
             values share: name another column"
        )
    } else {
        let (meant, all) = (meant(column, names()), names().collect::<Vec<_>>().join(", "));
        format!("no categorical column is called {column}{meant}: they are {all}")
    };
    Err(Error::config(flag, reason))
}

/// The same samples of described text with a column that the model does not look up, whose values are numbered as they
/// appear.
fn open_beside(
    config: &Config,
    source: &dyn Source,
    split: Split,
    schema: &str,
    (flag, column): (&str, &str),
) -> Result<Arc<dyn Source>> {
    let fail = |reason: String| {
        let all = source.schema().names().join(", ");
        Error::config(
            flag,
            format!("no categorical column of the model is called {column} (they are {all}), and {reason}"),
        )
    };
    let skipped = source.skipped_rows();
    if skipped > 0 {
        // Perhaps for what only the model reads of them. A run's own samples are those that it was trained beside.
        let reason = format!(
            "rows of its data are left out ({}), which the text of this column alone does not tell: name a column of the \
             model, or score data without such rows by --data",
            Many(skipped, "malformed row")
        );
        return Err(fail(reason));
    }
    let schema: TextSchema = toml::from_str(schema).expect("the data were opened by it");
    let (column, name) = (column.to_owned(), format!("values of {column}"));
    let categorical = vec![TextCategorical { column, name, ..TextCategorical::default() }];
    let schema = TextSchema { weight: None, dense: Vec::new(), categorical, ..schema };
    let mut config = config.clone();
    (config.data.vocab, config.data.rows_cap) = (Vocab::All, 0);
    let (labels, unseen) = (Labels::Required, OnUnseen::EmptyBag);
    let opening = Opening { labels, unseen, schema: Some(schema.to_toml()), ..Opening::default() };
    let data = open_watched(&config, opening).map_err(|error| match error {
        Error::Interrupted => error,
        other => fail(other.to_string()),
    })?;
    if data.samples(split) != source.samples(split) {
        return Err(fail(format!("{} has changed since it was opened: try again", config.data.path)));
    }
    Ok(data)
}
