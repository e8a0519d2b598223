//! The rows of which ranks that train have copies: read from a file, or told from a sample of the data.

use std::fmt;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use clap::Args;
use indicatif::ProgressBar;

use super::deep::DeepTables;
use super::help::MACHINE;
use super::overrides::{KeyFlag, named};
use super::terminal::bar;
use crate::base::config::{Config, Hot};
use crate::base::console::note;
use crate::base::units::{Bytes, Count, Many, Seconds, parse_bytes};
use crate::base::{Error, Result, interrupt};
use crate::data::hot::{HotInputs, HotSet, HotSlots, Inputs, Options, Step, Tags, WHOLE_BELOW, profile_within};
use crate::data::{Source, Split};
use crate::machine::team::{pool, processors};
use crate::train::{Length, Ranks, Revisions, Windows, load_hot};

/// Samples from which hot rows are told: some seconds of reading, and a row that a minibatch looks up a few times comes
/// hundreds of times among them.
const SAMPLES: u64 = 1 << 20;

/// Of the samples between two revisions, one in so many is read for the latter.
const WINDOW_PART: u64 = 8;

/// Samples that are read for a revision, if there are as many.
const WINDOW_SAMPLES: u64 = 1 << 16;

/// Bytes that counting may take beside what trains: enough for all of [`SAMPLES`] with a look-up or a few in each
/// table.
const MEMORY: u64 = 1 << 30;

/// The part of the tables' weights that copies may take unless told otherwise: one in so many bytes.
const PART: u64 = 50;

/// What copies may take on each rank unless told otherwise, where the tables' weights take so many bytes.
#[must_use]
pub const fn usual_budget(weights: u64) -> u64 {
    weights / PART
}

/// Which copies of hot rows ranks have.
#[derive(Debug, Clone, Args)]
pub struct HotArgs {
    /// Rows that are looked up most: off; exact (every rank reads its own copies, equal to the rows in every step;
    /// other look-ups travel, and what keeps copies equal); or fae (inputs that look up hot rows alone are trained in
    /// minibatches of their own, for which no row travels, in turns with the others: another order of the data, judged
    /// by the test log loss).
    #[arg(long, value_name = "NAME", help_heading = MACHINE)]
    hot: Option<String>,

    /// What copies may take on each rank; default: a fiftieth of what the tables' weights take, beside tables that are
    /// copied whole.
    #[arg(long, value_name = "SIZE", value_parser = parse_bytes, help_heading = MACHINE)]
    hot_budget: Option<u64>,
}

impl HotArgs {
    /// Its flags, each with its key and value.
    #[must_use]
    pub fn values(&self) -> [KeyFlag; 2] {
        let bytes = self.hot_budget.map(|bytes| toml::Value::Integer(i64::try_from(bytes).unwrap_or(i64::MAX)));
        [("--hot", "train.hot", self.hot.clone().map(toml::Value::String)), ("--hot-budget", "train.hot_budget", bytes)]
    }
}

/// Copies of hot rows, and which rows are hot.
#[derive(Debug, Clone, Args)]
pub struct CopyArgs {
    #[command(flatten)]
    hot: HotArgs,

    /// Steps after which it is told anew which rows are hot, from a sample of the samples to come: for data whose hot
    /// rows change with time. Default: they stay.
    #[arg(long, value_name = "STEPS", conflicts_with = "hot_set", help_heading = MACHINE)]
    hot_revise: Option<u64>,

    /// The hot rows, as `octorec inspect --hot --out FILE` wrote them; default: told from a sample of the data.
    #[arg(long, value_name = "FILE", conflicts_with = "hot_budget", help_heading = MACHINE)]
    hot_set: Option<PathBuf>,
}

impl CopyArgs {
    /// Its flags, each with its key and value.
    ///
    /// # Errors
    /// As [`named`].
    pub fn values(&self) -> Result<[KeyFlag; 4]> {
        let [hot, budget] = self.hot.values();
        let steps = self.hot_revise.map(|steps| toml::Value::Integer(i64::try_from(steps).unwrap_or(i64::MAX)));
        let set = self.hot_set.as_ref().map(|path| named(path, "--hot-set").map(toml::Value::String)).transpose()?;
        Ok([hot, budget, ("--hot-revise", "train.hot_revise", steps), ("--hot-set", "train.hot_set", set)])
    }
}

/// The hot rows of a run on so many ranks whose inputs come in any order, from this training sample on; nothing where
/// no copies are wanted, or one rank would have them. `tell` hears what they are.
///
/// # Errors
/// When the file or the data cannot be read, or the inputs should be in an order.
pub fn hot_rows(
    config: &Config,
    source: &dyn Source,
    (ranks, ordered): (usize, bool),
    from: u64,
    tell: &mut dyn FnMut(&str),
) -> Result<Option<Arc<HotSlots>>> {
    match config.train.hot {
        Hot::Off => return Ok(None),
        Hot::Exact => {}
        Hot::Fae => {
            let reason =
                "fae is an order of all inputs of a training, and this command's minibatches have none: use exact";
            return Err(Error::config("train.hot", reason));
        }
    }
    if ranks == 1 {
        tell("hot rows: one rank reads all rows where they are, without copies");
        return Ok(None);
    }
    let row_bytes = row_bytes(config, ordered);
    let deep = DeepTables::of(source);
    let (set, how) = match &*config.train.hot_set {
        "" => {
            let window = windows(config, source).map(|windows| windows.range(windows.of(from)));
            let window = window.map(|window| as_read(config, deep.source, window));
            let wanted = Wanted { row_bytes, whole_below: 0, least: least(config, &deep, ranks), window };
            let told = shown(config, deep.source, wanted)?;
            let how = told.to_string();
            (deep.of_all(told.set), how)
        }
        path => (loaded(&deep, source, Path::new(path))?.0, format!("as in {path}")),
    };
    let rows: u64 = (0..set.tables()).map(|table| set.rows(table)).sum();
    tell(&format!("hot rows: copies of {} on each rank, up to {}; {how}", Many(rows, "row"), Bytes(rows * row_bytes)));
    Ok(Some(Arc::new(HotSlots::new(&set))))
}

/// The windows of the training samples in which it is told anew which rows are hot, if that is wanted.
fn windows(config: &Config, source: &dyn Source) -> Option<Windows> {
    let span = config.train.hot_revise.saturating_mul(config.train.minibatch() as u64);
    (span > 0).then(|| Windows::new(source.samples(Split::Train), span))
}

/// The samples among which those of a window are, as they lie in the data: they are shuffled within windows of their
/// own.
fn as_read(config: &Config, source: &dyn Source, window: Range<u64>) -> Range<u64> {
    let Some(samples) = source.samples(Split::Train).filter(|_| config.data.shuffle) else { return window };
    let shuffled = config.data.shuffle_window.max(1) as u64;
    let end = window.end.div_ceil(shuffled).saturating_mul(shuffled);
    window.start / shuffled * shuffled..end.min(samples)
}

/// The share of its table's look-ups that a row has at least of which a copy pays: one that a minibatch looks up as
/// often as there are ranks. Without a copy, each look-up of another rank sends the row and its gradient once; with it,
/// each rank sends one sum and gets one row.
fn least(config: &Config, deep: &DeepTables<'_>, ranks: usize) -> f64 {
    let look_ups = (config.train.minibatch() * deep.source.schema().longest()) as f64;
    (ranks as f64 / look_ups).min(1.0)
}

/// How the hot rows of ranks that were started follow the data, from this training sample on, if that is wanted.
#[must_use]
pub fn revisions(config: &Config, source: &Arc<dyn Source>, ranks: &Ranks, from: u64) -> Option<Revisions> {
    let layout = ranks.layout();
    let windows = windows(config, &**source).filter(|_| config.train.hot == Hot::Exact && layout.hot().is_some())?;
    let (ranks, row_bytes) = (layout.ranks(), row_bytes(config, layout.grains().is_some()));
    let (of_run, data) = (config.clone(), Arc::clone(source));
    let find = move |window| {
        let deep = DeepTables::of(&*data);
        let window = Some(as_read(&of_run, deep.source, window));
        let wanted = Wanted { row_bytes, whole_below: 0, least: least(&of_run, &deep, ranks), window };
        // Beside the ranks' threads one is enough: it has as long as they train on a window.
        let told = told(&of_run, deep.source, wanted, 1, &|_| Ok(()))?;
        Ok((HotSlots::new(&deep.of_all(told.set)), told.lookups))
    };
    let length = match config.train.steps {
        0 => Length::Epochs(config.train.epochs),
        steps => Length::Steps(steps, config.train.minibatch() as u64),
    };
    Some(Revisions::new(windows, length, from, Arc::new(find)))
}

/// The hot rows of a file, and the tags of inputs, if it has some.
fn loaded(deep: &DeepTables<'_>, source: &dyn Source, path: &Path) -> Result<(HotSet, Option<Tags>)> {
    let (set, tags) = load_hot(path, source.schema())?;
    deep.check(&set, &path.display().to_string())?;
    Ok((set, tags))
}

/// The hot rows of a run whose hot and cold inputs take turns, and which these are, whatever the number of ranks;
/// nothing where it does not. A run that is continued has them in the file `kept`, if that is there.
///
/// # Errors
/// When the file or the data cannot be read, or no input is hot.
pub fn hot_inputs(config: &Config, source: &dyn Source, kept: Option<&Path>) -> Result<Option<HotInputs>> {
    if config.train.hot != Hot::Fae {
        return Ok(None);
    }
    if source.samples(Split::Train).is_none() {
        let reason =
            "hot and cold samples take turns within an epoch, and the data's samples never end: use --hot exact";
        return Err(Error::config("--hot fae", reason));
    }
    let deep = DeepTables::of(source);
    let named = Some(Path::new(&config.train.hot_set)).filter(|path| !path.as_os_str().is_empty());
    let file = kept.filter(|path| path.exists()).or(named);
    let (set, tags, how) = match file {
        Some(path) => {
            let (set, tags) = loaded(&deep, source, path)?;
            (set, tags, format!("as in {}", path.display()))
        }
        None => {
            let row_bytes = row_bytes(config, false);
            let told =
                shown(config, deep.source, Wanted { row_bytes, whole_below: WHOLE_BELOW, least: 0.0, window: None })?;
            let how = told.to_string();
            (deep.of_all(told.set), None, how)
        }
    };
    let rows: u64 = (0..set.tables()).map(|table| set.rows(table)).sum();
    let bytes = Bytes(rows * row_bytes(config, false));
    note!("hot rows: copies of {} on each rank of several, up to {bytes}; {how}", Many(rows, "row"));
    let tags = match tags {
        Some(tags) if Some(tags.samples()) != source.samples(Split::Train) => {
            let data = &config.data;
            let keep = match data.is_stored() && data.test_path.is_empty() && data.test_fraction > 0.0 {
                true => ", keep all samples for training (--test-fraction 0, or --test-data PATH)",
                false if data.is_stored() && data.validation_fraction > 0.0 => ", leave --validation-fraction away",
                false => "",
            };
            let found = source.samples(Split::Train).map_or("endless".to_owned(), |samples| Count(samples).to_string());
            let reason = format!(
                "tells {} training samples apart, and the data has {found}: name a file of these data{keep}, or leave --hot-set \
                 away",
                Count(tags.samples())
            );
            return Err(Error::bad_file(file.map(Path::to_owned).unwrap_or_default(), reason));
        }
        Some(tags) => tags,
        None => {
            Tags::check_memory(deep.source, "use --hot exact, which needs none")?;
            tagged(config, deep.source, &set)?
        }
    };
    let (hot, all) = (tags.count(Inputs::Hot), tags.samples());
    if hot == 0 {
        let reason = "no training sample looks up hot rows alone: give copies more memory with --hot-budget (`octorec inspect \
                      --hot` shows what it brings), or use --hot exact, which needs no such samples";
        return Err(Error::config("--hot fae", reason));
    }
    let share = 100.0 * hot as f64 / all as f64;
    note!("hot inputs: {} of {} training samples ({share:.1} %) look up hot rows alone", Count(hot), Count(all));
    Ok(Some(HotInputs { set, tags: Arc::new(tags) }))
}

/// Tells all training samples apart by the hot rows of all tables; that there is memory for it was found before
/// ([`Tags::check_memory`]).
///
/// # Errors
/// As [`Tags::of`].
pub fn tagged(config: &Config, source: &dyn Source, set: &HotSet) -> Result<Tags> {
    let workers = match config.train.threads {
        0 => processors(),
        threads => threads,
    };
    let bar = bar(0, "telling hot inputs from cold ones");
    Tags::of(source, &set.first(source.schema().tables.len()), workers, &|done, total| {
        bar.set_length(total);
        bar.set_position(done);
    })
}

/// Where ranks have copies for hot and cold inputs that take turns.
pub fn slots(source: &dyn Source, hot: &HotInputs) -> Arc<HotSlots> {
    let deep = DeepTables::of(source);
    let of_data = hot.set.first(deep.source.schema().tables.len());
    Arc::new(HotSlots::new(&deep.with_wide(of_data)))
}

/// What a hot row of the widest table takes on a rank: its weights, its learned one included, and unless gradients go
/// to owners bag by bag, a sum of them. Budgets count all rows so, whose tables may be narrower.
fn row_bytes(config: &Config, ordered: bool) -> u64 {
    let copies = if ordered { 1 } else { 2 };
    let beside = usize::from(config.model.weighs_rows());
    ((config.model.dim * copies + beside) * size_of::<f32>()) as u64
}

/// Which hot rows are to be told.
struct Wanted {
    row_bytes: u64,
    /// Tables of fewer bytes are hot as a whole.
    whole_below: u64,
    /// Rows of others have at least this share of look-ups.
    least: f64,
    /// The training samples that count; nothing: all.
    window: Option<Range<u64>>,
}

/// Hot rows by a sample of the data.
struct Told {
    set: HotSet,
    /// The share of look-ups that is of them.
    lookups: f64,
    /// Samples that were read, and how long that took.
    samples: u64,
    seconds: f64,
}

impl fmt::Display for Told {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (samples, took) = (Count(self.samples), Seconds(self.seconds));
        write!(f, "{:.1} % of look-ups are of them (as in {samples} samples, read in {took})", 100.0 * self.lookups)
    }
}

/// Tells hot rows, and shows how far that is.
fn shown(config: &Config, source: &dyn Source, wanted: Wanted) -> Result<Told> {
    let bar = bar(0, "looking for hot rows");
    told(config, source, wanted, config.train.threads, &|step| follow(&bar, step))
}

/// Shows how far a search for hot rows is.
///
/// # Errors
/// [`Error::Interrupted`] when the user wants no more of it.
pub fn follow(bar: &ProgressBar, step: Step) -> Result<()> {
    bar.set_length(step.total);
    bar.set_position(step.done);
    if interrupt::requested() { Err(Error::Interrupted) } else { Ok(()) }
}

/// Tells hot rows by so many threads, 0: as many as there are cores; `progress` is told how far that is.
fn told(
    config: &Config,
    source: &dyn Source,
    Wanted { row_bytes, whole_below, least, window }: Wanted,
    threads: usize,
    progress: &(dyn Fn(Step) -> Result<()> + Sync),
) -> Result<Told> {
    let rows: u64 = source.schema().tables.iter().map(|column| column.rows).sum();
    let weights = rows * (config.model.dim * size_of::<f32>()) as u64;
    // Tables that are hot as a whole are copied beside.
    let small = source.schema().tables.iter().map(|column| column.rows * row_bytes);
    let whole: u64 = small.filter(|bytes| *bytes < whole_below).sum();
    let (within, most) = match window {
        // Of what never ends, the first samples speak for all.
        None => (0..source.samples(Split::Train).unwrap_or(SAMPLES), SAMPLES),
        // What is read twice is a small part of what is read.
        Some(window) => {
            let part = (window.end - window.start) / WINDOW_PART;
            (window, SAMPLES.min(part.max(WINDOW_SAMPLES)))
        }
    };
    let total = within.end - within.start;
    let options = Options {
        share: (most as f64 / total.max(1) as f64).min(1.0),
        budget: config.train.hot_budget.or(usual_budget(weights) + whole),
        row_bytes,
        memory: MEMORY,
        seed: config.train.seed,
        whole_below,
        least,
        infer: false,
    };
    let options = options.within_memory(source, total);
    let pool = pool(threads)?;
    let began = Instant::now();
    let found = pool.install(|| profile_within(source, within, &options, progress)).map_err(|error| match error {
        // Whoever profiles is told of its flags; training has others.
        Error::Config { origin, .. } if origin == "--memory" => {
            let reason = format!(
                "counting look-ups to tell hot rows takes more than {}, even those of a few samples: name the rows with --hot-set \
                 (`octorec inspect --hot --out FILE` finds them), or use --hot off",
                Bytes(MEMORY)
            );
            Error::config("train.hot", reason)
        }
        Error::Config { origin, .. } if origin == "--sample" => {
            let reason = "this machine has less memory free than drawing samples takes: name the hot rows with --hot-set \
                          (`octorec inspect --hot --out FILE` finds them), or use --hot off";
            Error::config("train.hot", reason)
        }
        error => error,
    })?;
    let (lookups, samples) = (found.tried[found.chosen].hot_lookups, found.sampled + found.judged);
    Ok(Told { set: found.set, lookups, samples, seconds: began.elapsed().as_secs_f64() })
}
