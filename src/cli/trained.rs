//! A trained model: where its files are, whether they are sound, and which data it can be used on.

use std::panic::resume_unwind;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use clap::Args;

use super::help::MODEL;
use super::overrides::{named, source_of};
use super::ranks::RankArgs;
use super::text::{max_line, of_text};
use crate::base::config::{Config, DataConfig, SourceKind, Vocab};
use crate::base::console::note;
use crate::base::{Error, Result};
use crate::data::formats::{Format, SCHEMA, open};
use crate::data::{Numbering, Opening, Source};
use crate::machine::team::roam;
use crate::memory::FolderLock;
use crate::model::Parameter;
use crate::train::{
    Checkpoint, Instead, Progress, Ranks, RowsBy, checkpoint_in, has_begun, load_vocabulary, vocabulary_in,
};

/// Whether what a model's files hold is checked.
#[derive(Debug, Clone, Copy, Args)]
pub struct VerifyArgs {
    /// Take the model as its files have it. Without this, weights, optimizer state and vocabulary are checked against
    /// the hashes that were written with them (many GB/s), and the vocabulary against the model's; damage is then an
    /// error.
    #[arg(long, help_heading = MODEL)]
    pub no_verify: bool,
}

impl VerifyArgs {
    /// Opens a checkpoint file; says if nothing can tell whether it is damaged.
    ///
    /// # Errors
    /// As [`Checkpoint::open`].
    pub fn open<'a>(&self, path: &'a Path) -> Result<Checkpoint<'a>> {
        let checkpoint = Checkpoint::open_as(path, !self.no_verify)?;
        if checkpoint.lacks_hashes() {
            note!("{} carries no hashes: damage in it would go unnoticed", path.display());
        }
        Ok(checkpoint)
    }
}

/// How a trained model is used on data.
#[derive(Debug, Args)]
pub struct TrainedArgs {
    /// The longest line of text, such as 64MiB; default: as when the model was trained.
    #[arg(long, value_name = "SIZE", value_parser = max_line)]
    max_line: Option<u64>,

    /// Compute threads of each rank; 0: one for each core.
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub threads: usize,

    #[command(flatten)]
    pub verify: VerifyArgs,

    #[command(flatten)]
    pub ranks: RankArgs,
}

impl TrainedArgs {
    /// Puts the longest line into a configuration that names the data.
    ///
    /// # Errors
    /// When it is given, and the data are no text.
    pub fn limit_lines(&self, config: &mut Config) -> Result<()> {
        let Some(bytes) = self.max_line else { return Ok(()) };
        of_text("--max-line", config)?;
        config.data.max_line = bytes as usize;
        Ok(())
    }
}

/// The checkpoint that `path` (a run's directory or a file) means; `is_ours`: this command has the directory's lock.
///
/// # Errors
/// [`Error::Checkpoint`] when it is not there.
pub fn saved_in(path: &Path, is_ours: bool) -> Result<PathBuf> {
    let file = checkpoint_in(path);
    if file.exists() {
        return Ok(file);
    }
    let held = if is_ours { Some(false) } else { FolderLock::is_held(path) };
    let reason = if held == Some(true) {
        "there is no checkpoint yet: a training that runs writes to this directory, and has not saved one; wait for it (it \
         saves every 30 minutes, or as --checkpoint-every N and train.checkpoint_minutes say, and at its end)"
    } else if held.is_none() && has_begun(path) {
        "there is no checkpoint, and its .lock, which tells whether a training runs that has not saved one yet, may be \
         opened by those alone who may write to this directory: ask who trains there"
    } else if has_begun(path) {
        "there is no checkpoint: this run ended before it saved one; start it again with the same --out; \
         --set train.checkpoint_minutes=M has it save every M minutes (default: 30), --checkpoint-every N every N steps"
    } else {
        "there is no checkpoint: has this run saved one (train with --out DIR)?"
    };
    let reason = reason.to_owned();
    Err(Error::Checkpoint { path: file, reason })
}

/// A trained model's file with what lies beside it.
pub struct Trained {
    /// The checkpoint file.
    pub path: PathBuf,
    /// How it was trained; `None` for another program's file.
    pub header: Option<(Progress, Config)>,
    /// How data are opened by what it knows of its own.
    pub opening: Opening<'static>,
}

impl Trained {
    /// Finds the checkpoint that `path` (a run's directory or a file) means.
    ///
    /// # Errors
    /// As [`saved_in`], whose `is_ours` it has, and when a file is damaged, or another one's vocabulary lies there.
    pub fn find(path: &Path, is_ours: bool, verify: VerifyArgs) -> Result<Self> {
        let file = saved_in(path, is_ours)?;
        let checkpoint = verify.open(&file)?;
        let header = checkpoint.header()?;
        if let Some((_, config)) = &header {
            config.validate(&format!("{}: its configuration", file.display()))?;
        }
        let beside = vocabulary_in(path);
        let known = if beside.exists() { Some(load_vocabulary(&beside, !verify.no_verify)?) } else { None };
        checkpoint.check_vocabulary(known.as_ref(), &beside)?;
        let columns = header.as_ref().map(|(_, config)| checkpoint.columns(&config.model)).transpose()?;
        let (scales, schema) = (checkpoint.scales()?, checkpoint.schema_text()?);
        let opening = Opening { known, scales, columns, schema, ..Opening::default() };
        Ok(Self { path: file, header, opening })
    }

    /// How the model was trained.
    ///
    /// # Errors
    /// [`Error::Checkpoint`] when the file does not say it.
    pub fn config(&self) -> Result<Config> {
        self.header.as_ref().map(|(_, config)| config.clone()).ok_or_else(|| Error::Checkpoint {
            path: self.path.clone(),
            reason: "holds weights but not how they were trained: give a run of octorec's".to_owned(),
        })
    }
}

/// Reads all of a file, which the argument `origin` names, as one split, in its order.
///
/// # Errors
/// When it is text with a header, and the run has no schema that would describe it; text whose values the model does
/// not know, as one of generated samples knows none; or Parquet of row numbers that need not be those of the model's
/// vocabulary.
pub fn whole_file(config: &mut Config, trained: &Trained, (origin, path): (&str, &Path)) -> Result<()> {
    let schema = match Format::detect(path) {
        Some(Format::Csv) => Some(" --schema FILE"),
        _ => (path.is_file() && source_of(path) == SourceKind::Tsv).then_some(""),
    };
    if let Some(schema) = schema.filter(|_| !config.data.is_stored()) {
        let path = path.display();
        let reason = format!(
            "{path} is text, whose values this model has no rows for, since it was trained on generated samples, whose row \
             numbers stand for no values: use a model that was trained on such text (octorec train --data {path}{schema} --out \
             DIR)"
        );
        return Err(Error::config(origin, reason));
    }
    if config.data.schema.is_empty() && Format::detect(path) == Some(Format::Csv) {
        let (path, blocks) = (path.display(), &config.data.path);
        let further = match Format::detect(Path::new(blocks)) {
            Some(Format::Octorec) => format!(
                "which it becomes by the vocabulary of those blocks (octorec preprocess csv --in {path} --schema FILE --vocabulary \
                 {blocks} --out ROWS; the label may be missing), and name ROWS"
            ),
            _ => "or train on such text (octorec train --schema FILE)".to_owned(),
        };
        let reason = format!(
            "{path} is text with named columns, but this run was trained without a schema: name data of the kind that it was \
             trained on, {further}"
        );
        return Err(Error::config(origin, reason));
    }
    let is_numbered = trained.opening.known.is_some() || config.data.source == SourceKind::Tsv;
    if config.data.schema.is_empty() && is_numbered && is_bare_parquet(path) {
        let reason = format!(
            "{} is Parquet, whose whole numbers are numbers of rows, but this model was trained on values of text: name text \
             of the kind that it was trained on; or, if these are the rows of its vocabulary, say so in a {SCHEMA} beside \
             the files",
            path.display()
        );
        return Err(Error::config(origin, reason));
    }
    config.data.source = if config.data.schema.is_empty() { source_of(path) } else { SourceKind::Files };
    let numbered = trained.opening.known.is_some() || config.data.vocab == Vocab::Hash;
    if config.data.source == SourceKind::Tsv && !numbered && path.is_file() {
        let path = path.display();
        let reason = format!(
            "{path} is text, whose values this model has no rows for, since it was trained on none: write blocks by the \
             vocabulary of those that it was trained on (octorec preprocess criteo-kaggle --in {path} --vocabulary DIR --out \
             BLOCKS), and name them"
        );
        return Err(Error::config(origin, reason));
    }
    config.data.path = named(path, origin)?;
    config.data.test_path.clear();
    (config.data.test_fraction, config.data.validation_fraction) = (0.0, 0.0);
    Ok(())
}

/// Whether whole numbers of a path are taken for numbers of rows: it is Parquet, which nothing beside it describes.
pub fn is_bare_parquet(path: &Path) -> bool {
    let beside = if path.is_dir() { path.join(SCHEMA) } else { path.with_file_name(SCHEMA) };
    Format::detect(path) == Some(Format::Parquet) && !beside.exists()
}

/// Refuses data, those for tests as well, of which it is known before they are read that their rows are those of other
/// values than the model's: text for a model of blocks, for one of text numbers of rows of which nothing tells that
/// they are its own, and blocks whose vocabulary is another. What cannot be read is told later, and Parquet with a
/// schema beside it has the rows that somebody says it has.
///
/// # Errors
/// As [`Checkpoint::check_rows`].
pub fn refuse_other_rows(weights: &Checkpoint<'_>, data: &DataConfig, instead: Instead) -> Result<()> {
    let paths = [&data.path, &data.test_path].into_iter().filter(|path| !path.is_empty() && data.is_stored());
    paths.into_iter().try_for_each(|path| refuse_rows_of(path, weights, data, instead))
}

/// The same of the samples at a path.
fn refuse_rows_of(named: &str, weights: &Checkpoint<'_>, data: &DataConfig, instead: Instead) -> Result<()> {
    let path = Path::new(named);
    if !path.exists() {
        return Ok(());
    }
    let by_values = if data.vocab == Vocab::Hash { RowsBy::Hash } else { RowsBy::Vocabulary };
    let nothing = Numbering::default();
    let numbers;
    let by = match (Format::detect(path), data.schema.is_empty()) {
        // Text of Criteo's layout may have any name.
        _ if data.source == SourceKind::Tsv => by_values,
        (None | Some(Format::Csv | Format::Parquet), false) => by_values,
        (Some(Format::Parquet), true) if !is_bare_parquet(path) => return Ok(()),
        // With or without a schema, whoever opens these tells what is missing or too much.
        (None | Some(Format::Csv), true) | (Some(_), false) => return Ok(()),
        // Heads of files alone are read.
        (Some(format @ Format::Octorec), true) => {
            let Ok(found) = open(path, Some(format), None).and_then(|blocks| blocks.numbering()) else {
                return Ok(());
            };
            numbers = found;
            RowsBy::Number(&numbers)
        }
        (Some(_), true) => RowsBy::Number(&nothing),
    };
    weights.check_rows(by, named, instead)
}

/// What `eval` and `predict` can do in the place of reading data whose rows are those of other values.
pub const ANOTHER_MODEL: Instead = Instead {
    otherwise: "or use a model that was trained on such data",
    begins: false,
    may_have_grown: false,
    may_skip: true,
};

/// Refuses data whose values got other row numbers than the model's.
pub fn refuse_own_numbers(source: &dyn Source) -> Result<()> {
    if !source.about().numbers_own_values {
        return Ok(());
    }
    let reason = "the values of this file were numbered as they appeared in it, not as the model knows them: give the \
                  schema's categorical columns rows or buckets before training"
        .to_owned();
    Err(Error::config("data.schema", reason))
}

/// Opens a trained model's checkpoint for use on this data, where `data` has named it; says if the data differs from
/// what it was trained on in whether look-ups have weights.
///
/// # Errors
/// As [`Checkpoint::open`], and when the data's rows are those of other values, with what to do `instead`.
pub fn open_trained<'a>(
    path: &'a Path,
    verify: VerifyArgs,
    (data, source): (Option<&DataConfig>, &dyn Source),
    instead: Instead,
) -> Result<Checkpoint<'a>> {
    let checkpoint = Checkpoint::open_as(path, !verify.no_verify)?;
    if let Some(data) = data.filter(|_| !verify.no_verify) {
        refuse_other_rows(&checkpoint, data, instead)?;
    }
    checkpoint.check_columns(source, false)?;
    checkpoint.other_weights(source.schema())?.iter().for_each(|reason| note!("warning: {reason}"));
    Ok(checkpoint)
}

/// Does the work of a trained model, while another thread checks the hashes of the tables that the ranks look up where
/// the checkpoint has them: nobody waits for that before the first answer, and damage is an error in any case. Each
/// machine checks the tables of its own ranks, and waits for what the others find.
///
/// # Errors
/// That of the work, or what is wrong with the checkpoint.
pub fn beside_checks<T>(checkpoint: &Checkpoint<'_>, ranks: &Ranks, work: impl FnOnce() -> Result<T>) -> Result<T> {
    let (stored, held) = (ranks.stored_tables()?, ranks.held_tables());
    let is_stored =
        |parameter: &Parameter| parameter.table().is_some_and(|table| stored[table.index()] && held[table.index()]);
    let tables: Vec<Parameter> = ranks.parameters()?.into_iter().filter(is_stored).collect();
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let check = scope.spawn(|| {
            // Whoever starts it may be pinned to a compute core.
            roam();
            checkpoint.check_stored(&tables, &stop)
        });
        let done = work();
        // Relaxed: the flag carries no data.
        stop.store(done.is_err(), Ordering::Relaxed);
        let sound = check.join().unwrap_or_else(|panic| resume_unwind(panic));
        let done = done?;
        checkpoint.check_read()?;
        sound?;
        ranks.meet_anyway("check the model")?;
        Ok(done)
    })
}
