//! `octorec predict`: a click probability for every row of a file or data set, or of standard input, in its order.

use std::cell::Cell;
use std::io::{BufWriter, ErrorKind, Write};
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};
use std::time::Instant;

use clap::{Args, ValueEnum};
use serde::Serialize;

use super::heed_signals;
use super::output::{refuse_losing_data, refuse_mixing, refuse_overwriting};
use super::ranks::Started;
use super::session::{open_data, open_incoming};
use super::text::of_text;
use super::trained::{
    ANOTHER_MODEL, Trained, TrainedArgs, beside_checks, open_trained, refuse_own_numbers, whole_file,
};
use super::unseen::{Unknown, Unseen};
use crate::base::config::OnBadRow;
use crate::base::console::note;
use crate::base::units::Many;
use crate::base::{Error, Result, console};
use crate::collective::World;
use crate::data::incoming::{Malformed, Writing};
use crate::data::{Labels, OnUnseen, Opening, Split};
use crate::memory::{WholeFile, is_stream};
use crate::train::{Checkpoint, Taker, predict, run_files};

/// Arguments of `octorec predict`.
#[derive(Debug, Args)]
pub struct PredictArgs {
    /// The run's directory, or its checkpoint file.
    #[arg(long, value_name = "DIR|FILE")]
    checkpoint: PathBuf,

    /// Rows in any format that `train --data` reads; in text and Parquet the label column may be missing or, but for
    /// text without a header, hold what is no label. Every row gets a probability, in the order of the file; of a data
    /// set those for training, validation and test, in the order of its files (of octorec's blocks: as dataset.toml
    /// lists them; of others: training, validation, test). With "-" rows of text come by standard input, in bounded
    /// memory: whenever it pauses, those that have come are answered.
    #[arg(long, value_name = "PATH|-")]
    data: PathBuf,

    /// With --data -: how rows and probabilities are written [default: text]
    #[arg(long, value_enum, value_name = "HOW")]
    format: Option<Format>,

    /// Malformed rows of text [default: fail]
    #[arg(long, value_enum, value_name = "WHAT")]
    on_bad_row: Option<BadRow>,

    /// Where the probabilities go, one a line; without it: stdout.
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,

    #[command(flatten)]
    trained: TrainedArgs,

    /// With --out: print a summary as one JSON object on stdout.
    #[arg(long)]
    json: bool,
}

/// What `--json` prints.
#[derive(Serialize)]
struct Results {
    /// The file with the probabilities.
    out: String,
    rows: u64,
    /// Malformed rows among them, which were answered.
    malformed_rows: u64,
    /// Categorical values that the model's vocabulary does not know.
    unknown_values: u64,
    unknown_values_by_column: Vec<Unknown>,
    /// From when the first row was asked for until the file was whole.
    seconds: f64,
    rows_per_s: f64,
}

/// How rows and probabilities are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Format {
    /// As files of such text: a header line where those have one.
    Text,
    /// An object a line, by the columns' names (of Criteo's text I1 to I13 and C1 to C26); null is a missing value;
    /// lists where a column has several values. The answer is {"probability": P}.
    Json,
}

/// What a malformed row does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum BadRow {
    /// It ends the command, with its line.
    Fail,
    /// It is answered in its place: nan; in JSON {"error": WHY}.
    Answer,
}

/// What standard output is called in messages.
const STDOUT: &str = "stdout";

impl PredictArgs {
    /// Whether the rows are those of all files of a folder.
    pub fn is_of_folder(&self) -> bool {
        self.data.is_dir()
    }

    /// Whether the rows come by standard input.
    fn arrives(&self) -> bool {
        self.data.as_os_str() == "-"
    }

    fn is_json(&self) -> bool {
        self.format == Some(Format::Json)
    }

    /// Refuses what cannot be read, and flags that do not go together.
    fn check(&self, world: &World) -> Result<()> {
        let refuse = |origin: &str, reason: &str| Err(Error::config(origin, reason));
        let arrives = self.arrives();
        refuse_mixing(self.json, ("--out", self.out.as_deref()), "do the probabilities")?;
        if self.out.as_ref().is_some_and(|out| out.as_os_str() == "-") {
            return refuse("--out -", "leave it away for standard output; a file of this name is ./-");
        }
        if self.format.is_some() && !arrives {
            return refuse("--format", "is of rows that come by standard input: add --data -, or leave it away");
        }
        if arrives && world.machines() > 1 {
            return refuse("--data -", "standard input is one machine's: name a file that all machines see");
        }
        if std::fs::metadata(&self.data).is_ok_and(|found| found.file_type().is_fifo()) {
            let reason = format!(
                "{} is a pipe, and files are read more than once: rows are read as they arrive with --data - (... | octorec \
                 predict --data -)",
                self.data.display()
            );
            return refuse("--data", &reason);
        }
        Ok(())
    }

    /// Writes the probabilities; whoever interrupts that is told how far it came.
    pub fn run(&self, world: &World) -> Result<()> {
        heed_signals()?;
        let so_far = Cell::default();
        self.answer(world, &so_far).inspect_err(|error| {
            if matches!(error, Error::Interrupted) {
                self.tell_interrupted(so_far.get());
            }
        })
    }

    /// Writes them; `so_far` is how many rows had theirs when the user interrupted.
    fn answer(&self, world: &World, so_far: &Cell<u64>) -> Result<()> {
        self.check(world)?;
        let (arrives, is_json) = (self.arrives(), self.is_json());
        let trained = Trained::find(&self.checkpoint, false, self.trained.verify)?;
        let mut config = trained.config()?;
        let files = run_files(&self.checkpoint);
        let inputs = files.iter().chain([&self.data, &trained.path]).map(PathBuf::as_path);
        let inputs: Vec<&Path> = inputs.chain(self.trained.ranks.input_files()).collect();
        refuse_overwriting(&[("--out", self.out.as_deref())], &inputs)?;
        refuse_losing_data(&[("--out", self.out.as_deref())], &self.checkpoint, &config)?;
        // A row that is left out would shift all lines behind it.
        config.data.on_bad_row = OnBadRow::Fail;
        if !arrives {
            whole_file(&mut config, &trained, ("--data", &self.data))?;
        }
        self.trained.limit_lines(&mut config)?;
        if self.on_bad_row.is_some() {
            of_text("--on-bad-row", &config)?;
        }
        let malformed = (self.on_bad_row == Some(BadRow::Answer)).then(Malformed::default);
        let source = if arrives || malformed.is_some() {
            let by_stdin = arrives.then_some(if is_json { Writing::Json } else { Writing::Text });
            open_incoming(&mut config, trained.opening, by_stdin, malformed.clone())?
        } else {
            let (labels, unseen) = (Labels::Unused, OnUnseen::EmptyBag);
            let opening = Opening { labels, unseen, whole: true, ..trained.opening };
            open_data(&mut config, opening)?
        };
        refuse_own_numbers(&*source)?;
        config.use_here(self.trained.threads);
        // What arrives was named nowhere.
        let named = Some(&config.data).filter(|_| !arrives);
        let checkpoint = open_trained(&trained.path, self.trained.verify, (named, &*source), ANOTHER_MODEL)?;
        let Started { ranks, .. } = self.trained.ranks.start_trained(world, &config, &*source, &checkpoint)?;
        let of = (Split::Train, config.train.eval_batch);
        let predict = |to: &mut dyn Taker| {
            let to = &mut OfFile { to, checkpoint: &checkpoint };
            beside_checks(&checkpoint, &ranks, || predict(&ranks, &source, of, to))
        };
        let began = Instant::now();
        let how = Answering { is_json, malformed };
        let written = match &self.out {
            _ if !world.is_first() => {
                return predict(&mut Answers::new(std::io::sink(), Path::new("nowhere"), how, false));
            }
            Some(path) => {
                let mut file = WholeFile::create(path)?;
                let written = Answers::new(&mut file, path, how, false).take_all(predict, so_far)?;
                file.finish()?;
                written
            }
            None => {
                // Other machines go on to the end, which all reach together.
                let may_end = world.machines() == 1;
                Answers::new(std::io::stdout().lock(), Path::new(STDOUT), how, may_end).take_all(predict, so_far)?
            }
        };
        self.report(written, began.elapsed().as_secs_f64(), &Unseen(source.unseen_values()))
    }

    /// What the rows are called in messages.
    fn rows_of(&self) -> String {
        if self.arrives() { "standard input".to_owned() } else { self.data.display().to_string() }
    }

    /// Tells how far an interrupted command came, and what there is of it.
    fn tell_interrupted(&self, rows: u64) {
        let (whose, done) = (self.rows_of(), Many(rows, "row"));
        let written = match &self.out {
            Some(out) if !is_stream(out) => {
                let stays = if out.exists() { "is what it was" } else { "is not there" };
                format!("no probability is written: {} {stays}", out.display())
            }
            _ if rows == 0 => "no probability is written".to_owned(),
            Some(out) => format!("their probabilities are written to {}, those of others are not", out.display()),
            None => "their probabilities are written to standard output, those of others are not".to_owned(),
        };
        match rows {
            0 => note!("interrupted before a row of {whose} was answered: {written}"),
            _ => note!("interrupted after {done} of {whose}: {written}"),
        }
    }

    /// Tells what was written in so many seconds.
    fn report(&self, written: Written, seconds: f64, unseen: &Unseen) -> Result<()> {
        let Written { rows, malformed_rows, first, is_read } = written;
        unseen.report();
        if let Some(first) = first {
            let answer = if self.is_json() { "an error" } else { "nan" };
            note!("warning: {} answered with {answer}; the first: {first}", Many(malformed_rows, "malformed row"));
        }
        if rows == 0 {
            note!("warning: 0 rows came: nothing is predicted");
        }
        let whose = self.rows_of();
        match is_read {
            true => note!("{}: one for each row of {whose}, in its order", Many(rows, "probability")),
            false => note!(
                "note: standard output was closed before a probability for each row of {whose} was written: whoever read it has \
                 the first ones alone"
            ),
        }
        if let Some(out) = self.out.as_ref().filter(|_| self.json) {
            let (out, rows_per_s) = (out.display().to_string(), rows as f64 / seconds);
            console::json(&Results {
                out,
                rows,
                malformed_rows,
                unknown_values: unseen.total(),
                unknown_values_by_column: unseen.by_column(),
                seconds,
                rows_per_s,
            })?;
        }
        Ok(())
    }
}

/// How rows are answered.
struct Answering {
    is_json: bool,
    /// Those that get no probability.
    malformed: Option<Malformed>,
}

/// What was answered.
#[derive(Default)]
struct Written {
    rows: u64,
    /// Of these.
    malformed_rows: u64,
    /// What is wrong with the first one of those.
    first: Option<Error>,
    /// Whether all of it went to somebody.
    is_read: bool,
}

/// Writes probabilities, a line each.
struct Answers<'a, W: Write> {
    to: BufWriter<W>,
    path: &'a Path,
    how: Answering,
    /// Whether a reader who has seen enough ends the command.
    may_end: bool,
    /// Whether anybody reads.
    is_read: bool,
    written: Written,
}

impl<'a, W: Write> Answers<'a, W> {
    fn new(to: W, path: &'a Path, how: Answering, may_end: bool) -> Self {
        let (to, written) = (BufWriter::with_capacity(1 << 16, to), Written::default());
        Self { to, path, how, may_end, is_read: true, written }
    }

    /// Takes what `predict` finds, to its end; where the user interrupts it, what has come is written, and how many
    /// rows that are goes to `so_far`.
    fn take_all(mut self, predict: impl FnOnce(&mut dyn Taker) -> Result<()>, so_far: &Cell<u64>) -> Result<Written> {
        let done = predict(&mut self);
        if matches!(done, Err(Error::Interrupted)) {
            // Otherwise its own end tells that the rest is not there.
            let written = self.finish()?;
            so_far.set(written.rows);
            return Err(Error::Interrupted);
        }
        done?;
        self.finish()
    }

    fn write(&mut self, probabilities: &[f32]) -> std::io::Result<()> {
        let Answering { is_json, malformed } = &self.how;
        for probability in probabilities {
            let number = self.written.rows;
            self.written.rows += 1;
            if let Some(error) = malformed.as_ref().and_then(|malformed| malformed.take(number)) {
                match is_json {
                    true => writeln!(self.to, "{}", serde_json::json!({ "error": error.to_string() }))?,
                    false => writeln!(self.to, "nan")?,
                }
                self.written.malformed_rows += 1;
                self.written.first.get_or_insert(error);
            // Nine significant digits give every f32 back.
            } else if *is_json && !probability.is_finite() {
                writeln!(self.to, "{{\"probability\":null}}")?;
            } else if *is_json {
                writeln!(self.to, "{{\"probability\":{probability:.8e}}}")?;
            } else {
                writeln!(self.to, "{probability:.8e}")?;
            }
        }
        Ok(())
    }

    /// Whether to go on after this.
    fn judge(&mut self, result: std::io::Result<()>) -> Result<bool> {
        match result {
            Ok(()) => Ok(true),
            // The reader has seen enough.
            Err(error) if error.kind() == ErrorKind::BrokenPipe && self.path == Path::new(STDOUT) => {
                self.is_read = false;
                Ok(!self.may_end)
            }
            Err(error) => Err(Error::io(self.path, "write")(error)),
        }
    }

    /// Writes what is left; returns what there was.
    fn finish(mut self) -> Result<Written> {
        if self.is_read {
            let result = self.to.flush();
            self.judge(result)?;
        }
        if !self.is_read {
            // What nobody reads is not tried again.
            let _ = self.to.into_parts();
        }
        Ok(Written { is_read: self.is_read, ..self.written })
    }
}

/// Takes what was computed of a file that was there.
struct OfFile<'a, 'b> {
    to: &'a mut dyn Taker,
    checkpoint: &'a Checkpoint<'b>,
}

impl Taker for OfFile<'_, '_> {
    fn take(&mut self, probabilities: &[f32]) -> Result<bool> {
        self.checkpoint.check_read()?;
        self.to.take(probabilities)
    }

    fn pause(&mut self) -> Result<bool> {
        self.to.pause()
    }
}

impl<W: Write> Taker for Answers<'_, W> {
    fn take(&mut self, probabilities: &[f32]) -> Result<bool> {
        if !self.is_read {
            self.written.rows += probabilities.len() as u64;
            self.how.malformed.iter().for_each(Malformed::clear);
            return Ok(true);
        }
        let result = self.write(probabilities);
        self.judge(result)
    }

    fn pause(&mut self) -> Result<bool> {
        if !self.is_read {
            return Ok(true);
        }
        let result = self.to.flush();
        self.judge(result)
    }
}
