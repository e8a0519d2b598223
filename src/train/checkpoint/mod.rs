//! A run's state in one file: every tensor and the position from which training continues.
//!
//! The format is safetensors, with the names and shapes of facebookresearch/dlrm's state dict, so PyTorch reads it with
//! `safetensors.torch.load_file` and `load_state_dict`. The position, the resolved configuration and the random seeds
//! it holds travel in the file's metadata. What optimizers keep of weights has the weights' names and PyTorch's, e.g.
//! `state.emb_l.0.weight.momentum_buffer`; the learning rate follows from the step. Weights that lie in halves are
//! joined: a file has the exact 32-bit numbers whatever the precision of the run, so a run in one precision can be
//! continued in another. Beside the shapes of the tables, which the tensors have, the header says which columns'
//! look-ups had weights: data without them, or with others, would train another model; what was learned of dense
//! columns that are standardised or ages, and the text of the schema that described the data, if one did: by these,
//! data is read wherever the model is used. What its training samples looked like, column by column, is there to
//! compare later data with.
//!
//! Every tensor and the head carry hashes (see `tensor_file`), which are checked as they are read: a flipped bit is an
//! error that names the tensor. Files of other programs carry none.
//!
//! Invariant: a checkpoint file is always whole. It is written under another name, flushed to the disk and then
//! renamed, so a full disk, a crash or a signal leaves the previous one untouched.

mod columns;
mod exported;
mod floats;
mod head;
mod kinds;
mod numbers;
mod place;
mod rounds;
mod start;
mod weights;
mod writers;

pub use numbers::{Instead, KnownRows, RowsBy};
pub use place::TrainedOn;
pub use start::Start;
pub use writers::Writers;

use std::path::Path;
use std::sync::Arc;

use safetensors::tensor::{Dtype, Metadata};
use serde::{Deserialize, Serialize};

use self::head::head_of;
use self::rounds::{Rounds, SAVE};
use self::writers::share;
use super::Ranks;
use super::best::Evaluations;
use super::order::Shuffled;
use super::tensor_file::{Hashes, TensorFile};
use super::vocabulary::digest;
use crate::base::config::Config;
use crate::base::{Error, Result};
use crate::data::schema::{Dense, Scales};
use crate::data::statistics::Statistics;
use crate::data::{About, Numbering, Schema, Source};
use crate::memory::FileMap;

/// The metadata key that holds [`Header`] as JSON; one key, so that equal runs write equal bytes.
const METADATA: &str = "octorec";

/// Where a run stands.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct Progress {
    /// Steps done.
    pub step: u64,
    /// The current pass over the data, from 0.
    pub epoch: u64,
    /// Samples of that pass which are done.
    pub sample: u64,
    /// Where hot and cold inputs take turns, whose turn it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shuffled: Option<Shuffled>,
    /// What the evaluations so far have come to.
    #[serde(default, skip_serializing_if = "Evaluations::is_none")]
    pub evaluations: Evaluations,
    /// The loss of the run's first step by weight, where that is more than 1: what has exploded is told by it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub first_loss: Option<f64>,
}

/// What octorec says of a model in its file's head.
#[derive(Debug, Serialize, Deserialize)]
pub(in crate::train) struct Header {
    progress: Progress,
    pub config: Config,
    /// The tables whose look-ups had weights, ascending; `None` in files of versions that did not say.
    #[serde(default)]
    pub weighted: Option<Vec<usize>>,
    /// The tables whose look-ups are steps of a time series, ascending.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub sequences: Vec<usize>,
    /// The [`digest`] of the vocabulary by which categories became rows; `None` where there is none, or the file is of
    /// a version that did not say.
    #[serde(default)]
    vocabulary: Option<String>,
    /// Which values rows stand for; empty where nothing tells, and in files of versions that did not say, as of rows of
    /// values of text.
    #[serde(default, skip_serializing_if = "Numbering::is_empty")]
    numbering: Numbering,
    /// Whether it was trained on data of which nothing tells that their rows are its own, since somebody has said so.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    rows_taken: bool,
    /// What was learned of dense columns.
    #[serde(default, skip_serializing_if = "Scales::is_empty")]
    pub scales: Scales,
    /// Names and transforms of dense columns, where the data say; those of categories are the model's columns.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub dense: Vec<(String, String)>,
    /// The text of the schema that described its data; `None` where none did, and in files of versions that kept none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    schema_text: Option<String>,
    /// What it was trained on; `None` of samples that are not stored, and in files of versions that did not say.
    #[serde(default, rename = "trained_on", skip_serializing_if = "Option::is_none")]
    data: Option<TrainedOn>,
    /// With whose weights it began; `None` of a run that drew its own, and in files of versions that did not say.
    #[serde(default, rename = "init", skip_serializing_if = "Option::is_none")]
    start: Option<Start>,
    /// What its training samples look like; `None` of samples that are not stored, and in files of versions that did
    /// not say.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    statistics: Option<Statistics>,
}

impl Header {
    fn of(progress: Progress, config: &Config, origin: Origin<'_>) -> Self {
        let Origin { schema, about, rows_taken, scales, data, start, statistics } = origin;
        let positions = schema.positions(&config.model).into_iter().enumerate();
        let sequences = positions.filter(|(_, positions)| *positions > 1).map(|(table, _)| table).collect();
        Self {
            progress,
            config: config.clone(),
            weighted: Some(weighted(schema)),
            sequences,
            vocabulary: about.vocabulary.as_deref().map(digest),
            numbering: about.numbering.clone(),
            rows_taken,
            scales: scales.clone(),
            dense: about.dense_columns.clone(),
            schema_text: about.schema_text.clone(),
            data,
            start: start.cloned(),
            statistics: statistics.cloned(),
        }
    }

    /// That of a file with this head, if it is octorec's.
    ///
    /// # Errors
    /// What is wrong with it, for people.
    fn read(head: &Metadata) -> std::result::Result<Option<Self>, String> {
        let Some(text) = head.metadata().as_ref().and_then(|entries| entries.get(METADATA)) else { return Ok(None) };
        let header: Self = serde_json::from_str(text)
            .map_err(|error| format!("its header is damaged or of another version: {error}"))?;
        let Progress { step, epoch, sample, shuffled, evaluations, .. } = header.progress;
        if shuffled.is_some_and(|at| !at.is_sound()) {
            let reason =
                "its header is damaged: no turns of hot and cold inputs stand so: start from its weights with --init";
            return Err(reason.to_owned());
        }
        let [cold, hot] = shuffled.map_or([0; 2], |at| at.counts);
        let best = evaluations.best.map_or(0, |best| best.step);
        let numbers = [("step", step), ("epoch", epoch), ("sample", sample), ("cold", cold), ("hot", hot)];
        let numbers = [&numbers[..], &[("step", best), ("evaluation", evaluations.since)]].concat();
        if let Some((name, number)) = numbers.into_iter().find(|(_, number)| i64::try_from(*number).is_err()) {
            return Err(format!(
                "its header is damaged: no run reaches {name} {number}: start from its weights with --init"
            ));
        }
        // A run that goes on is configured and told by TOML.
        match header.config.beyond_toml() {
            None => Ok(Some(header)),
            Some((key, number)) => Err(format!(
                "its header is damaged: {key} is {number}, and keys go to 2^63 - 1: start from its weights with --init"
            )),
        }
    }
}

/// A checkpoint file, open for reading.
#[derive(Debug)]
pub struct Checkpoint<'a> {
    path: &'a Path,
    bytes: Arc<FileMap>,
    /// All bytes before the tensors, as they were when it was opened.
    head: Vec<u8>,
    /// What these say of the tensors.
    metadata: Metadata,
    /// What octorec says there; nothing in another program's file. Or what is wrong with that.
    header: std::result::Result<Option<Header>, String>,
    /// Whether what is read is checked, where there is something to check it by.
    verified: bool,
    /// Whether rows of data are compared with its own.
    compares_rows: bool,
    hashes: Option<Hashes>,
}

/// The tables whose look-ups have weights.
fn weighted(schema: &Schema) -> Vec<usize> {
    schema.tables.iter().enumerate().filter(|(_, column)| column.weighted).map(|(table, _)| table).collect()
}

/// Bytes of tensors that are on their way to a file or from one at a time: saving takes a few times that, whatever the
/// size of the model.
const PIECE: usize = 4 << 20;

/// What of a model's data no tensor tells.
#[derive(Debug, Clone)]
pub struct Origin<'a> {
    /// Its columns.
    pub schema: &'a Schema,
    /// What is known of it, with what was known before of the model's rows.
    pub about: &'a About,
    /// Whether nothing tells that its rows are the model's, and somebody has said so.
    pub rows_taken: bool,
    /// What was learned of dense columns.
    pub scales: &'a Scales,
    /// Which samples it is trained on, if they are stored.
    pub data: Option<TrainedOn>,
    /// With whose weights it began, if with another model's.
    pub start: Option<&'a Start>,
    /// What its training samples look like, where that is known.
    pub statistics: Option<&'a Statistics>,
}

/// Writes the model of `ranks`, where it stands, how it is configured and what it comes of to `path`, piece by piece.
/// All machines take part; the first one has a path. Where all of them see the file that it begins there, on a file
/// system that keeps apart what they write, each writes the tables that it has, side by side; else the first one writes
/// what the others give it.
///
/// # Errors
/// When the file cannot be written; an older file of that name is then still there, whole.
pub fn save(
    path: Option<&Path>,
    ranks: &Ranks,
    progress: Progress,
    config: &Config,
    origin: Origin<'_>,
) -> Result<Writers> {
    let mut parameters = ranks.parameters()?;
    parameters.extend(ranks.moments(&parameters));
    // The order of safetensors' own writer: all tensors are of one type, so by name.
    parameters.sort_by(|a, b| a.name.cmp(&b.name));
    let sizes = || {
        parameters.iter().map(|parameter| {
            let bytes = parameter.len() * size_of::<f32>();
            (parameter.name.clone(), Dtype::F32, parameter.shape.clone(), bytes)
        })
    };
    let header = serde_json::to_string(&Header::of(progress, config, origin));
    let header = header.expect("a header is representable in JSON");
    let own = path.map(|path| TensorFile::begin(path, (METADATA, header), sizes())).transpose()?;
    let (mut file, writers) = share(ranks, own, sizes)?;
    let mut saving = Rounds::new(ranks, file.as_ref())?;
    let is_held = !matches!(writers, Writers::First { .. });
    let holders: Vec<Option<usize>> =
        parameters.iter().map(|parameter| ranks.holder(parameter).filter(|_| is_held)).collect();
    saving.gather_at_first(&parameters, &holders, &mut file)?;
    let file = saving.write_held(&parameters, &holders, file)?;
    saving.settle()?;
    let (part, own) = if ranks.world().is_first() { (None, file) } else { (file, None) };
    let parts = ranks.gather(SAVE, part.map_or(Ok(Vec::new()), TensorFile::finish_part)?)?;
    if let Some(mut file) = own {
        parts.iter().for_each(|part| file.take_over(part));
        file.finish()?;
    }
    saving.alive()?;
    Ok(writers)
}

impl<'a> Checkpoint<'a> {
    /// Opens a file of tensors: octorec's own or another program's. What is read of it is checked by the hashes that it
    /// carries, if it carries any.
    ///
    /// # Errors
    /// When it cannot be read, is no safetensors file, or its head is damaged.
    pub fn open(path: &'a Path) -> Result<Self> {
        Self::open_as(path, true)
    }

    /// As [`Checkpoint::open`]; without `verified`, nothing is checked by hashes.
    ///
    /// # Errors
    /// As [`Checkpoint::open`].
    pub fn open_as(path: &'a Path, verified: bool) -> Result<Self> {
        let bytes = Arc::new(FileMap::open(path)?);
        let fail = |reason| failure(&bytes, path, reason);
        let (head, metadata) =
            head_of(&bytes).map_err(|reason| fail(format!("is no whole safetensors file: {reason}")))?;
        let hashes = if verified { Hashes::read(&head, &metadata).map_err(fail)? } else { None };
        let header = Header::read(&metadata);
        Ok(Self { path, bytes, head, metadata, header, verified, compares_rows: verified, hashes })
    }

    /// Its file.
    pub(in crate::train) const fn path(&self) -> &Path {
        self.path
    }

    /// Whether it should be checked and carries nothing to check it by: another program's file, or an older version's.
    #[must_use]
    pub fn lacks_hashes(&self) -> bool {
        self.verified && self.hashes.is_none()
    }

    /// Where the run stood and how it was configured; `None` in another program's file.
    ///
    /// # Errors
    /// When the header is damaged.
    pub fn header(&self) -> Result<Option<(Progress, Config)>> {
        Ok(self.own_header()?.map(|header| (header.progress, header.config.clone())))
    }

    /// The text of the schema that described its data; `None` where none did, or the file does not say.
    ///
    /// # Errors
    /// As [`Checkpoint::header`].
    pub fn schema_text(&self) -> Result<Option<String>> {
        Ok(self.own_header()?.and_then(|header| header.schema_text.clone()))
    }

    /// How this data's weights of look-ups differ from those of the data that the model was trained on, for people;
    /// `None` where they do not, or the file does not say.
    ///
    /// # Errors
    /// As [`Checkpoint::header`].
    pub fn other_weights(&self, schema: &Schema) -> Result<Option<String>> {
        let Some(before) = self.own_header()?.and_then(|header| header.weighted.as_ref()) else { return Ok(None) };
        let now = weighted(schema);
        let differing = (0..schema.tables.len()).find(|table| before.contains(table) != now.contains(table));
        Ok(differing.map(|table| {
            let (had, has) = if now.contains(&table) { ("without", "with") } else { ("with", "without") };
            let name = &schema.tables[table].name;
            format!("table {table} ({name}) was trained {had} weights of its look-ups, and this data comes {has} them")
        }))
    }

    /// Checks that columns of these data, where they have the names of columns that the model was trained on, come in
    /// its order, are transformed alike as far as they say how, and have the same values in their rows; `begins`:
    /// training is to begin with the model, whose tables may then grow.
    ///
    /// # Errors
    /// [`Error::Checkpoint`] with the first one that is not.
    pub fn check_columns(&self, source: &dyn Source, begins: bool) -> Result<()> {
        let Some(header) = self.sound_header() else { return self.check_numbering(source, begins) };
        let plain = |names: Vec<String>| names.into_iter().map(|name| (name, String::new())).collect::<Vec<_>>();
        let categories = [header.config.model.columns.clone(), source.schema().names()].map(plain);
        let About { dense_columns: has_dense, schema_text, .. } = source.about();
        let had_dense = &header.dense;
        // Stored without transforms, as by formats that know none, values may be transformed already.
        let is_plain = |columns: &[(String, String)], schema: Option<&str>| {
            let as_is = Dense::default().title().1;
            schema.is_none() && columns.iter().all(|(_, read)| *read == as_is)
        };
        let is_told =
            !is_plain(had_dense, header.schema_text.as_deref()) && !is_plain(has_dense, schema_text.as_deref());
        for (kind, had, has) in [("dense", had_dense, has_dense), ("categorical", &categories[0], &categories[1])] {
            for (at, (column, read)) in had.iter().enumerate() {
                let found = has.iter().enumerate().find(|(_, (other, _))| other == column);
                let reason = match found {
                    Some((place, _)) if place != at => {
                        let order: Vec<_> = had.iter().map(|(name, _)| &name[..]).collect();
                        format!(
                            "{kind} column {column} was number {} where this model was trained and is number {} of these data: \
                             describe the columns in the model's order, {}",
                            at + 1,
                            place + 1,
                            order.join(", ")
                        )
                    }
                    Some((_, (_, now))) if now != read && is_told => format!(
                        "{kind} column {column} was read {read} where this model was trained, and these data give it {now}: \
                         describe it as it was"
                    ),
                    _ => continue,
                };
                return Err(self.fail(reason));
            }
        }
        self.check_numbering(source, begins)
    }

    /// Checks that a run can be continued with this data: that the same columns have weights.
    ///
    /// # Errors
    /// [`Error::Checkpoint`] with the first column that differs.
    pub fn check_weights(&self, schema: &Schema) -> Result<()> {
        self.other_weights(schema)?.map_or(Ok(()), |reason| {
            Err(self.fail(format!("{reason}: continue with the data that it began with, or start from it with --init")))
        })
    }

    /// An error that names this file.
    pub(in crate::train) fn fail(&self, reason: String) -> Error {
        failure(&self.bytes, self.path, reason)
    }

    /// What octorec says in its file's head; nothing in another program's.
    ///
    /// # Errors
    /// As [`Checkpoint::header`].
    pub(in crate::train) fn own_header(&self) -> Result<Option<&Header>> {
        self.header.as_ref().map(Option::as_ref).map_err(|reason| self.fail(reason.clone()))
    }

    /// The same, for checks of weights, which are as good where it is damaged: who goes on by it meets the damage.
    fn sound_header(&self) -> Option<&Header> {
        self.header.as_ref().ok()?.as_ref()
    }
}

/// An error that names a checkpoint's file.
fn failure(bytes: &FileMap, path: &Path, reason: String) -> Error {
    // That it was cut short, if it was: all else may follow from it.
    bytes.check().err().unwrap_or(Error::Checkpoint { path: path.to_owned(), reason })
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::os::unix::fs::FileExt;

    use super::*;

    fn header() -> serde_json::Value {
        let (config, weighted, sequences) = (Config::default(), Some(vec![1]), Vec::new());
        let (progress, scales, dense) = (Progress::default(), Scales::new(), Vec::new());
        let (vocabulary, schema_text, data, start, numbering) = (None, None, None, None, Numbering::default());
        let statistics = None;
        let header = Header {
            progress,
            config,
            weighted,
            sequences,
            vocabulary,
            numbering,
            rows_taken: false,
            scales,
            dense,
            schema_text,
            data,
            start,
            statistics,
        };
        serde_json::to_value(header).unwrap()
    }

    #[test]
    fn what_a_head_has_said_stays_when_another_program_writes_into_the_file() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("model.safetensors");
        let name = String::from("emb_l.0.weight");
        let tensors = [(name.clone(), Dtype::F32, vec![2, 1], 8)].into_iter();
        let mut file = TensorFile::begin(&path, (METADATA, header().to_string()), tensors).unwrap();
        file.append(&[0; 8]).unwrap();
        file.finish().unwrap();
        let checkpoint = Checkpoint::open(&path).unwrap();
        File::options().write(true).open(&path).unwrap().write_all_at(&[0xFF; 64], 0).unwrap();
        assert_eq!(checkpoint.header().unwrap(), Some((Progress::default(), Config::default())));
        assert_eq!(checkpoint.rows(&[name]), [Some(2)]);
        // Who opens it now finds it damaged.
        assert!(Checkpoint::open(&path).is_err());
    }

    #[test]
    fn a_header_of_before_weights_were_noted_says_nothing_of_them() {
        let mut header = header();
        assert_eq!(header["weighted"], serde_json::json!([1]));
        header.as_object_mut().unwrap().remove("weighted");
        assert_eq!(serde_json::from_value::<Header>(header).unwrap().weighted, None);
    }

    #[test]
    fn keys_that_came_after_a_header_was_written_have_their_defaults() {
        let mut header = header();
        for (section, key) in [("model", "qr_threshold"), ("data", "prefetch"), ("train", "beta2")] {
            assert!(header["config"][section].as_object_mut().unwrap().remove(key).is_some(), "{section}.{key}");
        }
        assert_eq!(serde_json::from_value::<Header>(header.clone()).unwrap().config, Config::default());
        // A configuration without one of its sections is none.
        header["config"].as_object_mut().unwrap().remove("train");
        let message = serde_json::from_value::<Header>(header).unwrap_err().to_string();
        assert!(message.contains("missing field `train`"), "{message}");
    }
}
