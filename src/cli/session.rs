//! What the commands that use a model have in common: opening data with a progress bar, and finding a trained model.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use indicatif::{ProgressBar, ProgressStyle};

use super::ranks::Started;
use crate::base::config::{Config, IsaChoice, SourceKind};
use crate::base::console::note;
use crate::base::units::{Bytes, Count};
use crate::base::{Error, NodeId, Result};
use crate::data::{self, Labels, Opening, Source, Split, Unseen, Vocabulary};
use crate::machine::placement::Wishes;
use crate::machine::team::Team;
use crate::machine::{Machine, place};
use crate::memory::same_file;
use crate::model::Room;
use crate::optim::Optimizer;
use crate::simd::Isa;
use crate::train::{Checkpoint, Progress, Ranks, checkpoint_in, load_vocabulary, vocabulary_in};

/// Opens the configured data set, drawing a bar while a file's first pass runs.
pub fn open_data(
    config: &Config,
    known: Option<Vocabulary>,
    labels: Labels,
    unseen: Unseen,
) -> Result<Arc<dyn Source>> {
    let style = ProgressStyle::with_template("{bar:30} {bytes}/{total_bytes}  reading {msg}  {eta} left");
    let bar = ProgressBar::no_length().with_style(style.expect("the template is well-formed"));
    bar.set_message(config.data.path.clone());
    let mut progress = |done, total| {
        bar.set_length(total);
        bar.set_position(done);
    };
    let source = data::open(config, Opening { known, labels, unseen, progress: Some(&mut progress) });
    bar.finish_and_clear();
    source
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

/// Room for training and evaluation.
pub fn room(config: &Config, source: &dyn Source) -> Room {
    Room {
        samples: config.train.batch.max(config.train.eval_batch),
        lookups: source.lookups(),
        update: config.train.update,
        update_fused: config.train.update_fused,
        precision: config.train.precision,
        optimizer: Optimizer::dense(&config.train),
        optimizer_rows: Optimizer::rows(&config.train),
    }
}

/// Takes a trained model's weights for use on this data; says if the data differs from what it was trained on in whether
/// look-ups have weights.
///
/// # Errors
/// As [`Checkpoint::load_into`].
pub fn load(path: &Path, source: &dyn Source, ranks: &Ranks) -> Result<()> {
    let checkpoint = Checkpoint::open(path)?;
    checkpoint.other_weights(source.schema())?.iter().for_each(|reason| note!("warning: {reason}"));
    checkpoint.load_into(ranks)
}

/// Says how many values of the data a model could not know.
pub fn report_unseen(source: &dyn Source) {
    let unseen = source.unseen_values();
    if unseen > 0 {
        note!("{} categorical values were not in the model's vocabulary: they count as empty", Count(unseen));
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
        SourceKind::Random => "random look-ups".to_owned(),
        SourceKind::Tsv | SourceKind::Files => config.data.path.clone(),
    };
    note!(
        "data: {name}: {} training and {} test samples, {} dense features, {} tables with {} rows",
        samples(Split::Train),
        samples(Split::Test),
        schema.dense,
        schema.tables.len(),
        Count(rows)
    );
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
    let plural = if threads == 1 { "" } else { "s" };
    let mut who = format!("{teams}{threads} thread{plural} with {}", isa.name());
    if isa.amx_thirds().is_some() && !precision.is_split() {
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

/// Refuses an output that is one of the command's inputs.
///
/// # Errors
/// [`Error::Config`] that names the flag.
pub fn refuse_overwriting(flag: &str, out: Option<&Path>, inputs: &[&Path]) -> Result<()> {
    match out.filter(|out| inputs.iter().any(|input| same_file(out, input))) {
        None => Ok(()),
        Some(out) => {
            let reason =
                format!("{} is an input of this command, which would be lost: name another file", out.display());
            Err(Error::Config { origin: flag.to_owned(), reason })
        }
    }
}

/// A trained model's file with what lies beside it.
pub struct Trained {
    /// The checkpoint file.
    pub path: PathBuf,
    /// How it was trained; `None` for another program's file.
    pub header: Option<(Progress, Config)>,
    /// The mapping from categories to rows, where the data needed one.
    pub vocabulary: Option<Vocabulary>,
}

impl Trained {
    /// Finds the checkpoint that `path` (a run's directory or a file) means.
    pub fn find(path: &Path) -> Result<Self> {
        let file = checkpoint_in(path);
        if !file.exists() {
            let reason = "there is no checkpoint: has this run saved one (train with --out DIR)?".to_owned();
            return Err(Error::Checkpoint { path: file, reason });
        }
        let checkpoint = Checkpoint::open(&file)?;
        let header = checkpoint.header()?;
        let beside = vocabulary_in(path);
        let vocabulary = if beside.exists() { Some(load_vocabulary(&beside)?) } else { None };
        checkpoint.check_vocabulary(vocabulary.as_ref(), &beside)?;
        Ok(Self { path: file, header, vocabulary })
    }
}
