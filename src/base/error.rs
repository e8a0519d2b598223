//! Errors as facts that a person can act on: which file, row, table or key, and what to do.
//!
//! One variant for each thing that can be wrong; each carries what was found, not a finished sentence.

use std::fmt;
use std::io;
use std::ops::Deref;
use std::path::{Path, PathBuf};

use super::ids::TableId;
use super::trouble::Trouble;
use super::units::{Bytes, Many};

/// What octorec's functions return.
pub type Result<T> = std::result::Result<T, Error>;

/// Everything that can go wrong, in the words that a user reads.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The operating system refused a file operation.
    #[error("{path}: cannot {action}: {source}{}", remedy(source))]
    Io {
        /// The file or folder.
        path: PathBuf,
        /// What was tried, as a verb: "read", "write", "create".
        action: &'static str,
        /// The system's reason.
        source: io::Error,
    },

    /// A signal handler could not be installed.
    #[error("cannot watch for Ctrl-C: {source}")]
    Signals {
        /// The system's reason.
        source: io::Error,
    },

    /// The system has no thread to give.
    #[error(
        "cannot start {}: {source}: use fewer with --threads, or allow this process more (ulimit -u, ulimit -v)",
        Many(*wanted as u64, "thread")
    )]
    Threads {
        /// How many were wanted.
        wanted: usize,
        /// The system's reason.
        source: io::Error,
    },

    /// The configuration names a key that does not exist.
    #[error("{origin}: unknown key `{key}`{}", suggestion(nearest))]
    UnknownKey {
        /// The file, flag or preset that holds the key.
        origin: String,
        /// The dotted key as it was written.
        key: String,
        /// The known key that is spelled most like it.
        nearest: Option<String>,
    },

    /// A name that should be one of a fixed list is not.
    #[error("{origin}: unknown {what} `{found}`{}; one of: {known}", suggestion(nearest))]
    UnknownName {
        /// Where it was written.
        origin: String,
        /// What kind of name it should be, e.g. "preset".
        what: &'static str,
        /// The name as it was written.
        found: String,
        /// The known name that is spelled most like it.
        nearest: Option<String>,
        /// All of the known names.
        known: String,
    },

    /// A configuration value cannot be understood or contradicts another.
    #[error("{origin}: {reason}")]
    Config {
        /// The file, flag or preset that holds the value.
        origin: String,
        /// What is wrong and what would be right.
        reason: String,
    },

    /// A row of a data file does not follow the format.
    #[error("{path}: line {line}: {reason}")]
    BadRow {
        /// The data file.
        path: PathBuf,
        /// Counted from 1.
        line: u64,
        /// What was expected and what was found.
        reason: Reason,
    },

    /// A data file as a whole cannot be used.
    #[error("{path}: {reason}")]
    BadFile {
        /// The data file.
        path: PathBuf,
        /// What is wrong and what to do.
        reason: String,
    },

    /// A look-up names a row that the table does not have.
    #[error(
        "table {table} ({name}): row {row} is beyond its {rows} rows (sample {sample} of the minibatch): \
         the data and the model disagree about this column's vocabulary"
    )]
    RowBeyondTable {
        /// The table's number.
        table: u32,
        /// The table's column name.
        name: String,
        /// The row that was asked for.
        row: u64,
        /// How many rows there are.
        rows: u64,
        /// Which sample of the minibatch asked.
        sample: usize,
    },

    /// What this machine has of the embedding tables does not fit into its memory.
    #[error(
        "this machine's part of the tables needs {need}, {free} are available: its part of table {table} ({name}; \
         {rows} rows of {dim}) alone needs {table_need}: lower --rows-cap or model.dim, divide the tables among more machines, or \
         use one with more memory"
    )]
    TableTooBig {
        /// The largest table's number.
        table: u32,
        /// Its column name.
        name: String,
        /// Its rows.
        rows: u64,
        /// Its columns.
        dim: usize,
        /// Bytes of what this machine has of it.
        table_need: Bytes,
        /// The same of all tables.
        need: Bytes,
        /// What the system has to give.
        free: Bytes,
    },

    /// A checkpoint does not fit the model.
    #[error("{path}: {reason}")]
    Checkpoint {
        /// The checkpoint file.
        path: PathBuf,
        /// Which tensor, which shapes, what to do.
        reason: String,
    },

    /// The output directory already holds something that would be lost.
    #[error(
        "{path} already holds a run: continue it with --resume {word}, or by this command with --auto-resume; replace it with \
         --force, or choose another --out",
        word = shell(.path)
    )]
    OutputTaken {
        /// The directory.
        path: PathBuf,
    },

    /// Another process writes to the output directory.
    #[error(
        "{path} is being written by another process: wait for it, stop it, or choose another --out; if there is none, as when \
         its machine has died, remove {path}/.lock"
    )]
    OutputBusy {
        /// The directory.
        path: PathBuf,
    },

    /// A machine description contradicts itself.
    #[error("{origin}:{line}: {reason}")]
    Topology {
        /// The file, or the name of a machine that octorec ships.
        origin: String,
        /// Counted from 1.
        line: usize,
        /// The broken relation and what would be right.
        reason: String,
    },

    /// The hardware could not be explored.
    #[error("{origin}: cannot {action}: {reason}")]
    Discovery {
        /// "this machine", an hwloc XML file or a synthetic description.
        origin: String,
        /// What was tried, as a verb.
        action: &'static str,
        /// The library's reason and what to do.
        reason: String,
    },

    /// The wished ranks, threads and communication cores cannot be placed.
    #[error("placement: {reason}")]
    Placement {
        /// Which wish cannot be met and what would be possible.
        reason: String,
    },

    /// What is planned for a node exceeds its free memory.
    #[error(
        "{place}: needs {need}, has {free} free ({reserve} of it stay with the system): use more nodes, fewer --ranks or a \
         smaller --batch or train.eval_batch, a lower --rows-cap, model.dim or --hot-budget, bags that are cut (room is kept \
         for the longest), or narrower layers (model.bottom, model.top)"
    )]
    NodeFull {
        /// The node, or the nodes that an arena may lie on.
        place: String,
        /// What is planned there.
        need: Bytes,
        /// What the kernel can hand out.
        free: Bytes,
        /// What is kept back, because beyond its memory the kernel ends the process.
        reserve: Bytes,
    },

    /// A table, or what a plan gives to a node, fits no memory.
    #[error(
        "{table} ({name}): {need} are needed for its weights, its optimizer state and its look-ups; {place} has {free} left: {advice}"
    )]
    ShardTooBig {
        /// The table.
        table: TableId,
        /// Its column name.
        name: String,
        /// Bytes of the table, or of what is planned there.
        need: Bytes,
        /// The node, or the nodes, with the reason why these.
        place: String,
        /// What tables could have there.
        free: Bytes,
        /// What would help.
        advice: String,
    },

    /// A plan of who holds which table cannot be followed.
    #[error("{origin}:{line}: {reason}")]
    ShardingPlan {
        /// The file.
        origin: String,
        /// Counted from 1.
        line: usize,
        /// The table and rank, what is wrong and what would be right.
        reason: String,
    },

    /// A system call about threads or memory placement failed.
    #[error("cannot {action}: {source}")]
    System {
        /// What was tried, with its operands.
        action: String,
        /// The system's reason.
        source: io::Error,
    },

    /// Training left the realm of numbers.
    #[error(
        "the loss of step {step} is {loss:.3e}{} (learning rate {rate}): training diverged; {}{}",
        if *by_weight { " by weight" } else { "" },
        cause.as_deref().unwrap_or("use a lower --lr (and train.lr_rows, if that is set)"),
        saved.as_ref().map(|path| format!("; the last checkpoint is {}", path.display())).unwrap_or_default()
    )]
    Diverged {
        /// The step, from 1.
        step: u64,
        /// NaN, infinite, or so large for many steps that the weights tell nothing any more.
        loss: f64,
        /// Whether that is the mean by the weights of samples, which is another than the mean over samples.
        by_weight: bool,
        /// The step's learning rate.
        rate: f64,
        /// What is known of the cause, with a remedy; without it, the learning rate is.
        cause: Option<String>,
        /// A checkpoint from before, if there is one.
        saved: Option<PathBuf>,
    },

    /// MPI, or a process of the job under it.
    #[error("MPI: cannot {action}: {reason}")]
    Mpi {
        /// What was wanted.
        action: String,
        /// What MPI says, or how to mend it.
        reason: String,
    },

    /// A rank brought the job down; see [`Trouble`].
    #[error(transparent)]
    Rank(Trouble),

    /// The user asked the process to stop; nothing is wrong.
    #[error("interrupted")]
    Interrupted,
}

impl Error {
    /// Adds to the error of a malformed row what can be done about it.
    #[must_use]
    pub fn with_remedy(self, remedy: &str) -> Self {
        match self {
            Self::BadRow { path, line, reason } if !reason.has_remedy => {
                // Behind a question stands a sentence of its own.
                let (first, rest) = remedy.split_at(1);
                let reason = match reason.ends_with('?') {
                    true => format!("{reason} {}{rest}", first.to_uppercase()),
                    false => format!("{reason}: {remedy}"),
                };
                Self::BadRow { path, line, reason: Reason::with_remedy(reason) }
            }
            other => other,
        }
    }

    /// A value that cannot be understood or contradicts another: the flag, file or key that holds it, and what would be
    /// right.
    pub fn config(origin: impl Into<String>, reason: impl Into<String>) -> Self {
        Self::Config { origin: origin.into(), reason: reason.into() }
    }

    /// A name, found in `origin`, that is none of these, which are `what`.
    pub fn unknown<'a>(
        origin: impl Into<String>,
        what: &'static str,
        found: &str,
        names: impl IntoIterator<Item = &'a str>,
    ) -> Self {
        let names: Vec<&str> = names.into_iter().collect();
        let (nearest, known) = (nearest(found, names.iter().copied()), names.join(", "));
        Self::UnknownName { origin: origin.into(), what, found: found.to_owned(), nearest, known }
    }

    /// A data file that cannot be used as a whole, and what to do.
    pub fn bad_file(path: impl Into<PathBuf>, reason: impl Into<String>) -> Self {
        Self::BadFile { path: path.into(), reason: reason.into() }
    }

    /// Wraps a system error with the file and the verb that it belongs to.
    pub fn io(path: &Path, action: &'static str) -> impl FnOnce(io::Error) -> Self {
        let path = path.to_owned();
        move |source| Self::Io { path, action, source }
    }

    /// Wraps a system error with how many threads were wanted.
    pub fn threads(wanted: usize) -> impl FnOnce(io::Error) -> Self {
        move |source| Self::Threads { wanted, source }
    }
}

/// What is wrong with a row, in words.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reason {
    text: String,
    /// Whether the words say what can be done, which then nobody else knows better: to leave a header out, a line of a
    /// file that is no text, or all lines of a file with another delimiter, would not help.
    has_remedy: bool,
}

impl Reason {
    /// Words that say what can be done, too.
    #[must_use]
    pub fn with_remedy(text: impl Into<String>) -> Self {
        Self { text: text.into(), has_remedy: true }
    }

    /// The same behind a few words, and with a remedy if it has none.
    #[must_use]
    pub fn of(self, whose: &str, remedy: &str) -> Self {
        let remedy = if self.has_remedy { "" } else { remedy };
        Self::with_remedy(format!("{whose}{self}{remedy}"))
    }
}

impl From<String> for Reason {
    fn from(text: String) -> Self {
        Self { text, has_remedy: false }
    }
}

impl Deref for Reason {
    type Target = str;

    fn deref(&self) -> &str {
        &self.text
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

/// What can be done about a limit of the process.
fn remedy(source: &io::Error) -> &'static str {
    use linux_raw_sys::errno::{EFBIG, EMFILE};
    match source.raw_os_error().and_then(|number| u32::try_from(number).ok()) {
        Some(EFBIG) => ": this process may not write files of that size: raise the limit (ulimit -f)",
        Some(EMFILE) => ": this process may not open more files: raise the limit (ulimit -n)",
        _ => "",
    }
}

/// A path as one word of a command that a message gives to be copied: quoted where a shell would read anything else.
#[must_use]
pub fn shell(path: &Path) -> String {
    let shown = path.display().to_string();
    let is_plain = |letter: char| letter.is_alphanumeric() || "/._-+,:@%=".contains(letter);
    let is_word = !shown.is_empty() && shown.chars().all(is_plain);
    if is_word { shown } else { format!("'{}'", shown.replace('\'', r"'\''")) }
}

/// As [`meant`], of a name that stands in a file or a command as it is.
pub fn suggestion(nearest: &Option<String>) -> String {
    nearest.as_ref().map(|name| format!(" (did you mean `{name}`?)")).unwrap_or_default()
}

/// " (did you mean name?)" of the known name that is spelled most like `word`, or nothing: behind what is unknown.
pub fn meant<'a>(word: &str, known: impl IntoIterator<Item = &'a str>) -> String {
    nearest(word, known).map(|name| format!(" (did you mean {name}?)")).unwrap_or_default()
}

/// The known name that is spelled most like `word`, if any is close enough to be meant.
pub fn nearest<'a>(word: &str, known: impl IntoIterator<Item = &'a str>) -> Option<String> {
    known
        .into_iter()
        .map(|name| (strsim::jaro_winkler(word, name), name))
        .filter(|(score, _)| *score > 0.7)
        .max_by(|a, b| a.0.total_cmp(&b.0))
        .map(|(_, name)| name.to_owned())
}
