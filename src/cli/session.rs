//! What the commands that use a model have in common: opening data with a progress bar, and finding a trained model.

use std::panic::resume_unwind;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use clap::Args;
use indicatif::{ProgressBar, ProgressStyle};

use super::help::MODEL;
use super::ranks::Started;
use crate::base::config::{Config, IsaChoice, SourceKind};
use crate::base::console::note;
use crate::base::input::read_text;
use crate::base::units::{Bytes, Count, Many};
use crate::base::{Error, NodeId, Result};
use crate::data::blocks::MANIFEST;
use crate::data::derived::Derived;
use crate::data::hot::HotSlots;
use crate::data::incoming::{Incoming, Writing};
use crate::data::schema::{Scale, Scales, TrainedColumns};
use crate::data::{self, Labels, OnUnseen, Opening, Source, Split, Vocabulary};
use crate::machine::placement::{Placement, Wishes};
use crate::machine::team::{Team, roam};
use crate::machine::{Machine, place};
use crate::math::part_for;
use crate::memory::{FolderLock, same_file, write_file};
use crate::model::{Parameter, Shape, TrainSpec};
use crate::optim::ByGroup;
use crate::simd::Isa;
use crate::train::{Checkpoint, Progress, Ranks, checkpoint_in, has_begun, load_vocabulary, vocabulary_in};

/// What a trained model knows of its data.
#[derive(Debug, Default)]
pub struct Learned {
    /// The mapping from categories to rows, where the data needed one.
    pub vocabulary: Option<Vocabulary>,
    /// What was learned of dense columns.
    pub scales: Option<Scales>,
    /// The columns that it reads.
    pub columns: Option<TrainedColumns>,
    /// Whether training begins with it: what it lacks of dense columns is then learned, too.
    pub begins: bool,
    /// The text of the schema that described the data, where they were described text.
    pub schema: Option<String>,
}

impl Learned {
    /// Puts it where data are opened; says if the file that described the data now has another text than the schema
    /// that is used.
    fn open<'a>(self, config: &Config, opening: Opening<'a>) -> Opening<'a> {
        let path = Path::new(&config.data.schema);
        let differs = |own: &&String| path.is_file() && read_text(path).is_ok_and(|text| text != **own);
        if self.schema.as_ref().filter(differs).is_some() {
            note!("note: {} is not the schema that this model was trained with: its own is used", path.display());
        }
        let Self { vocabulary: known, scales, columns, begins, schema } = self;
        Opening { known, scales, columns, begins, schema, ..opening }
    }
}

/// Opens the configured data set, drawing a bar while a file's first pass runs; the model takes from it what it leaves
/// to the data.
pub fn open_data(config: &mut Config, known: Learned, labels: Labels, unseen: OnUnseen) -> Result<Arc<dyn Source>> {
    open_as(config, known, Opening { labels, unseen, ..Opening::default() })
}

/// Generated data, as the model reads it.
///
/// # Errors
/// As [`data::open`], and [`Derived::of`].
pub fn open_generated(config: &Config) -> Result<Arc<dyn Source>> {
    Derived::of(&config.model, data::open(config, Opening::default())?)
}

/// As [`open_data`], all rows as one split, for a trained model.
pub fn open_whole(config: &mut Config, known: Learned) -> Result<Arc<dyn Source>> {
    let (labels, unseen) = (Labels::Optional, OnUnseen::EmptyBag);
    open_as(config, known, Opening { labels, unseen, whole: true, ..Opening::default() })
}

/// Rows that arrive by standard input, for a trained model.
///
/// # Errors
/// As [`Incoming::standard`].
pub fn open_incoming(config: &mut Config, known: Learned, writing: Writing) -> Result<Arc<dyn Source>> {
    let source = Incoming::standard(config, known.open(config, Opening::default()), writing)?;
    config.model.follow(source.schema().dense, source.schema().names(), source.schema().rows());
    config.model.sequences = source.schema().sequences(&config.model)?;
    Derived::of(&config.model, Arc::new(source))
}

/// As [`data::open`], drawing a bar while a file's first pass runs.
pub fn open_watched(config: &Config, opening: Opening<'_>) -> Result<Arc<dyn Source>> {
    let message = config.data.path.clone();
    let begin = |total| {
        let style = ProgressStyle::with_template("{bar:30} {bytes}/{total_bytes}  reading {msg}  {eta} left");
        let bar = ProgressBar::new(total).with_message(message.clone());
        bar.with_style(style.expect("the template is well-formed"))
    };
    // Drawn only once there is something to watch.
    let mut bar = None;
    let mut progress = |done, total| {
        if done > 0 && done < total {
            bar.get_or_insert_with(|| begin(total)).set_position(done);
        }
    };
    let source = data::open(config, Opening { progress: Some(&mut progress), ..opening });
    bar.iter().for_each(ProgressBar::finish_and_clear);
    source
}

fn open_as(config: &mut Config, known: Learned, opening: Opening<'_>) -> Result<Arc<dyn Source>> {
    let trained = known.scales.is_some();
    let opening = known.open(config, opening);
    let source = open_watched(config, opening)?;
    if trained {
        // What the model lacks is told before anything is built.
        source.scales()?;
    }
    let rows = [Split::Train, Split::Test].into_iter().filter_map(|split| source.samples(split));
    warn_of_skipped(source.skipped_rows(), rows.sum(), source.first_skipped());
    let (names, rows) = (source.schema().names(), source.schema().rows());
    match config.data.is_stored() {
        true => config.model.follow(source.schema().dense, names, rows),
        // Of generated data, too, those that there are: which tables are two depends on them.
        false => (config.model.columns, config.model.rows) = (names, rows),
    }
    config.model.sequences = source.schema().sequences(&config.model)?;
    Derived::of(&config.model, source)
}

/// The team of rank 0 on this host, every thread pinned, with the nodes of its memory; prints where it stands.
///
/// `threads` 0 means one for each core of the rank. For benches of kernels, which one team runs.
pub fn place_team(threads: usize, isa: IsaChoice) -> Result<(Team, Vec<NodeId>)> {
    let isa = Isa::chosen(isa)?;
    let machine = Machine::load("host")?;
    let threads = (threads > 0).then_some(threads);
    let placement = place(&machine, &Wishes { ranks: Some(1), threads, ..Wishes::default() })?;
    placement.warnings.iter().for_each(|warning| note!("warning: {warning}"));
    let rank = &placement.ranks[0];
    let team = Team::pinned(&rank.compute, placement.spin, isa)?;
    note!("placement: {}", placement.line(rank));
    Ok((team, rank.memory_nodes.clone()))
}

/// What trains and evaluates a model on these places.
pub fn train_spec(config: &Config, source: &dyn Source, placement: &Placement) -> TrainSpec {
    let threads = placement.ranks.iter().map(|rank| rank.compute.len()).max().unwrap_or(1);
    let (model, schema) = (&config.model, source.schema());
    let shape = Shape::of(model, &schema.positions(model), &model.dims(&schema.rows()));
    TrainSpec {
        samples: config.train.minibatch().max(config.train.eval_batch),
        part: config.train.part.given().unwrap_or_else(|| part_for(shape.part_sizes(), threads)),
        update: config.train.update,
        update_fused: config.train.update_fused,
        precision: config.train.precision,
        optimizers: ByGroup::configured(&config.train),
        clip_norm: Some(config.train.clip_norm).filter(|bound| *bound > 0.0),
    }
}

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

/// Opens a trained model's checkpoint for use on this data; says if the data differs from what it was trained on in
/// whether look-ups have weights.
///
/// # Errors
/// As [`Checkpoint::open`].
pub fn open_trained<'a>(path: &'a Path, verify: VerifyArgs, source: &dyn Source) -> Result<Checkpoint<'a>> {
    let checkpoint = Checkpoint::open_as(path, !verify.no_verify)?;
    checkpoint.check_columns(source)?;
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
        ranks.world().all_done("check the model")?;
        Ok(done)
    })
}

/// Says how many values of the data a model could not know.
pub fn report_unseen(unseen: u64) {
    if unseen > 0 {
        let (was, counts) = if unseen == 1 { ("was", "it counts") } else { ("were", "they count") };
        note!("{} {was} not in the model's vocabulary: {counts} as empty", Many(unseen, "categorical value"));
    }
}

/// Says how many malformed rows of the data were left out.
pub fn report_skipped(rows: u64) {
    if rows > 0 {
        note!("left out {}", Many(rows, "malformed row"));
    }
}

/// Warns where more than a few of all rows are malformed and left out, with what is known of the first one: then the
/// schema is the likelier fault.
pub fn warn_of_skipped(skipped: u64, rows: u64, first: Option<&str>) {
    const FEW: f64 = 0.03;
    let all = skipped + rows;
    let share = skipped as f64 / all as f64;
    if share > FEW {
        let first = first.map_or("--on-bad-row fail says what is wrong with the first".to_owned(), |first| {
            format!("the first is {first}")
        });
        note!(
            "warning: {:.1} % of all rows ({} of {}) are malformed and left out: {first}",
            100.0 * share,
            Count(skipped),
            Count(all)
        );
    }
}

/// One line on the data and one on the model and the machine.
///
/// # Errors
/// When a rank fails.
pub fn describe(config: &Config, source: &dyn Source, started: &Started) -> Result<()> {
    let samples = |split| source.samples(split).map_or("endless".to_owned(), |count| Count(count).to_string());
    let schema = source.schema();
    let rows: u64 = schema.tables.iter().map(|column| column.rows).sum();
    let name = match config.data.source {
        SourceKind::Criteo => "built-in click log".to_owned(),
        SourceKind::Taobao => "built-in time series".to_owned(),
        SourceKind::Random => "random look-ups".to_owned(),
        SourceKind::Tsv | SourceKind::Files => config.data.path.clone(),
    };
    note!(
        "data: {name}: {} training and {} test samples, {}, {} with {}",
        samples(Split::Train),
        samples(Split::Test),
        Many(schema.dense as u64, "dense feature"),
        Many(schema.tables.len() as u64, "table"),
        Many(rows, "row")
    );
    describe_scales(source)?;
    let parameters = started.ranks.parameters()?;
    let parameters: u64 =
        parameters.iter().map(|parameter| parameter.shape.iter().map(|&n| n as u64).product::<u64>()).sum();
    let precision = config.train.precision;
    let Started { placement, isa, .. } = started;
    let threads = placement.ranks[0].compute.len();
    let teams = match placement.ranks.len() {
        1 => String::new(),
        ranks => format!("{ranks} ranks of "),
    };
    let mut who = format!("{teams}{} with {}", Many(threads as u64, "thread"), isa.name());
    if isa.amx_thirds().is_some() && !config.model.layer_precision(precision).is_split() {
        who += ": products of f32 as bf16 in three parts (--isa avx512: as f32)";
    }
    note!(
        "model: {} parameters ({}) in {}; {who}",
        Count(parameters),
        Bytes(parameters * precision.bytes() as u64),
        precision.name(),
    );
    Ok(())
}

/// What was learned of dense columns, in their order: a line for each of a few.
fn describe_scales(source: &dyn Source) -> Result<()> {
    const FEW: usize = 10;
    let (columns, scales) = (source.dense_columns(), source.scales()?);
    if scales.len() > FEW {
        let many = Many(scales.len() as u64, "column");
        note!("{many}: means and standard deviations learned from training samples, which the checkpoint keeps");
        return Ok(());
    }
    let mut scales: Vec<_> = scales.into_iter().collect();
    scales.sort_by_key(|(name, _)| columns.iter().position(|(column, _)| column == name));
    for (name, Scale { newest, mean, deviation }) in scales {
        let age = if newest == 0 { "" } else { " days of age" };
        note!("column {name}: mean {mean:.6}{age}, standard deviation {deviation:.6}, learned from training samples");
    }
    Ok(())
}

/// Refuses an output that is one of the command's inputs, or a file in a folder that is one, unless it is a picture or
/// TOML other than a data set's.
///
/// # Errors
/// [`Error::Config`] that names the flag.
pub fn refuse_overwriting(flag: &str, out: Option<&Path>, inputs: &[&Path]) -> Result<()> {
    let within = |out: &Path, folder: &Path| {
        let file = out.canonicalize().ok().filter(|file| file.is_file());
        let of_data = |file: &PathBuf| {
            let is_other_toml = || file.file_name().is_none_or(|name| name != MANIFEST);
            !file.extension().is_some_and(|kind| kind == "svg" || kind == "toml" && is_other_toml())
        };
        file.filter(of_data).and_then(|file| Some(same_file(file.parent()?, folder))) == Some(true)
    };
    let lost = |out: &Path| inputs.iter().any(|input| same_file(out, input) || within(out, input));
    match out.filter(|out| lost(out)) {
        None => Ok(()),
        Some(out) => {
            let reason =
                format!("{} is an input of this command, which would be lost: name another file", out.display());
            Err(Error::config(flag, reason))
        }
    }
}

/// Refuses `--json` where the file that a command writes would go to standard output as well; `and_so` says of what is
/// in it that it goes there.
///
/// # Errors
/// [`Error::Config`] that names the flag.
pub fn refuse_mixing(json: bool, out: Option<&Path>, and_so: &str) -> Result<()> {
    let to_stdout = |out: &Path| same_file(out, Path::new("/dev/stdout"));
    if !json || !out.is_none_or(to_stdout) {
        return Ok(());
    }
    let reason =
        format!("its object goes to standard output, and so {and_so}: name a file with --out FILE, or leave it away");
    Err(Error::config("--json", reason))
}

/// Writes a text that is made to be edited, unless a file with other text is there.
///
/// # Errors
/// As [`refuse_edited`], and when the file cannot be written.
pub fn write_editable(flag: &str, path: &Path, text: &str) -> Result<()> {
    refuse_edited(flag, path, Some(text))?;
    write_file(path, text.as_bytes())
}

/// Refuses to write `text`, or one that is not known yet, over a file with another one, which somebody may have edited.
///
/// # Errors
/// [`Error::Config`] that names the flag.
pub fn refuse_edited(flag: &str, path: &Path, text: Option<&str>) -> Result<()> {
    let same = || std::fs::read(path).is_ok_and(|there| Some(&there[..]) == text.map(str::as_bytes));
    let has_text = std::fs::metadata(path).is_ok_and(|found| found.is_file() && found.len() > 0);
    if !has_text || same() {
        return Ok(());
    }
    let what = if text.is_some() { ", with other text" } else { " already" };
    let reason =
        format!("{} is there{what}, which would be lost: name another file, or remove that one", path.display());
    Err(Error::config(flag, reason))
}

/// Where training begins; by default with the first sample.
#[derive(Default)]
pub struct Beginning<'a> {
    /// Without --plan, a run that is continued goes on with the plan in this file, if that is there and for as many
    /// ranks.
    pub plan: Option<&'a Path>,
    /// Hot rows by which inputs are in an order, if they are.
    pub hot: Option<Arc<HotSlots>>,
    /// The training sample that comes first.
    pub sample: u64,
}

/// A trained model's file with what lies beside it.
pub struct Trained {
    /// The checkpoint file.
    pub path: PathBuf,
    /// How it was trained; `None` for another program's file.
    pub header: Option<(Progress, Config)>,
    /// What it knows of its data.
    pub known: Learned,
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
    let reason = if !is_ours && FolderLock::is_held(path) {
        "there is no checkpoint yet: a training that runs writes to this directory, and has not saved one; wait for it (it \
         saves every 30 minutes, or as --checkpoint-every N and train.checkpoint_minutes say, and at its end)"
    } else if has_begun(path) {
        "there is no checkpoint: this run ended before it saved one; start it again with the same --out; \
         --set train.checkpoint_minutes=M has it save every M minutes (default: 30), --checkpoint-every N every N steps"
    } else {
        "there is no checkpoint: has this run saved one (train with --out DIR)?"
    };
    let reason = reason.to_owned();
    Err(Error::Checkpoint { path: file, reason })
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
        let vocabulary = if beside.exists() { Some(load_vocabulary(&beside, !verify.no_verify)?) } else { None };
        checkpoint.check_vocabulary(vocabulary.as_ref(), &beside)?;
        let columns = header.as_ref().map(|(_, config)| checkpoint.columns(&config.model)).transpose()?;
        let (scales, schema) = (checkpoint.scales()?, checkpoint.schema_text()?);
        let known = Learned { vocabulary, scales, columns, begins: false, schema };
        Ok(Self { path: file, header, known })
    }
}
