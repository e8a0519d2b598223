//! NVIDIA's split binary (DeepLearningExamples, `dlrm/data`): `feature_spec.yaml`, and for each mapping (train, test)
//! `label.bin` (bool), `numerical.bin` (float16, row-major) and a file of int8, int16 or int32 a categorical column.
//!
//! Dense features are stored transformed. A cardinality decides the type: below 127 int8, below 32767 int16, else
//! int32.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use half::f16;
use serde::{Deserialize, Serialize};

use super::dataset::Member;
use super::records::Records;
use super::strided::{Field, Kind, Strided};
use super::{Dataset, ROLES, Sink, bad, filled, folder};
use crate::base::{Error, Result, input};
use crate::data::schema::{Categorical, Dense, Label};
use crate::data::{Description, Samples, Split};
use crate::memory::{FileBytes, WholeFile, write_file};

/// How the specification is called.
pub(super) const SPEC: &str = "feature_spec.yaml";

#[derive(Debug, Serialize, Deserialize)]
struct Spec {
    feature_spec: BTreeMap<String, Feature>,
    source_spec: BTreeMap<String, Vec<Chunk>>,
    channel_spec: Channels,
    #[serde(default)]
    metadata: BTreeMap<String, String>,
}

#[derive(Debug, Default, Serialize, Deserialize)]
struct Feature {
    #[serde(default)]
    dtype: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    cardinality: Option<u64>,
}

#[derive(Debug, Serialize, Deserialize)]
struct Chunk {
    #[serde(rename = "type")]
    kind: String,
    features: Vec<String>,
    files: Vec<String>,
}

#[derive(Debug, Serialize, Deserialize)]
struct Channels {
    categorical: Vec<String>,
    numerical: Vec<String>,
    label: Vec<String>,
}

fn kind(dtype: &str) -> Option<Kind> {
    Some(match dtype.trim_start_matches("torch.") {
        "bool" => Kind::Bool,
        "int8" => Kind::Int8,
        "int16" => Kind::Int16,
        "int32" => Kind::Int32,
        "float16" => Kind::Float16,
        "float32" => Kind::Float32,
        _ => return None,
    })
}

pub(super) fn open(path: &Path) -> Result<Dataset> {
    let folder = folder(path);
    let path = folder.join(SPEC);
    let text = input::read_text(&path)?;
    let spec: Spec =
        serde_saphyr::from_str(&text).map_err(|error| bad(&path, format!("is no feature spec: {error}")))?;
    let [label] = &spec.channel_spec.label[..] else {
        let found = spec.channel_spec.label.len();
        return Err(bad(&path, format!("channel_spec: label names {found} features; 1 expected")));
    };
    let dense = |name: &String| Dense { name: name.clone(), float: true, ..Dense::default() };
    let categorical = |name: &String| {
        let rows = spec.feature_spec.get(name).and_then(|feature| feature.cardinality);
        let rows = rows.ok_or_else(|| bad(&path, format!("feature_spec: {name} has no cardinality")))?;
        Ok(Categorical::new(name.clone(), rows))
    };
    let description = Description {
        label: Label { name: label.clone(), float: false },
        dense: spec.channel_spec.numerical.iter().map(dense).collect(),
        categorical: spec.channel_spec.categorical.iter().map(categorical).collect::<Result<_>>()?,
        weight: None,
    };
    description.check().map_err(|reason| bad(&path, reason))?;
    let mut members = Vec::new();
    for (mapping, chunks) in &spec.source_spec {
        let role = match mapping.as_str() {
            "train" => Split::Train,
            "test" => Split::Test,
            "val" | "validation" => Split::Validation,
            _ => return Err(bad(&path, format!("source_spec: the mapping {mapping} is neither train, val nor test"))),
        };
        let fields = fields(&spec, chunks, folder, &path)?;
        let field = |name: &String| {
            let found = fields.get(name.as_str()).cloned();
            found.ok_or_else(|| bad(&path, format!("source_spec: {mapping} has no file with the feature {name}")))
        };
        let numbers = |names: &[String]| names.iter().map(field).collect::<Result<Vec<_>>>();
        let (dense, categorical) = (numbers(&spec.channel_spec.numerical)?, numbers(&spec.channel_spec.categorical)?);
        let not_integer = |field: &&Field| field.kind.float() || field.kind == Kind::Bool;
        if let Some(field) = dense.iter().find(|field| !field.kind.float()) {
            return Err(bad(
                &path,
                format!("feature_spec: {} holds numerical features, but no floats", field.path().display()),
            ));
        }
        if let Some(field) = categorical.iter().find(not_integer) {
            return Err(bad(
                &path,
                format!("feature_spec: {} holds categories, but no integers", field.path().display()),
            ));
        }
        let table = Strided::new(description.clone(), field(label)?, dense, categorical)?;
        members.push(Member { role, table: Box::new(table) });
    }
    Ok(Dataset::new(description, members))
}

/// Every feature of one mapping.
fn fields<'a>(spec: &Spec, chunks: &'a [Chunk], folder: &Path, path: &Path) -> Result<BTreeMap<&'a str, Field>> {
    let mut fields = BTreeMap::new();
    for chunk in chunks {
        if chunk.kind != "split_binary" {
            return Err(bad(path, format!("source_spec: type {} cannot be read; split_binary can", chunk.kind)));
        }
        if chunk.features.is_empty() {
            // Data without dense features have an empty file of them.
            continue;
        }
        let [file] = &chunk.files[..] else {
            return Err(bad(
                path,
                format!("source_spec: {} files for {:?}; 1 expected", chunk.files.len(), chunk.features),
            ));
        };
        let file = folder.join(file);
        let bytes = FileBytes::streamed(&file)?;
        filled(&bytes)?;
        let mut whole: Option<Field> = None;
        for (at, name) in chunk.features.iter().enumerate() {
            let dtype = spec.feature_spec.get(name).map(|feature| feature.dtype.as_str());
            let dtype = dtype.ok_or_else(|| bad(path, format!("source_spec: feature_spec has no {name}")))?;
            let kind =
                kind(dtype).ok_or_else(|| bad(path, format!("feature_spec: {name} has the unknown dtype {dtype}")))?;
            let stride = kind.size() * chunk.features.len();
            if whole.as_ref().is_some_and(|first| first.kind != kind) {
                return Err(bad(path, format!("feature_spec: {} holds features of two dtypes", file.display())));
            }
            if !bytes.len().is_multiple_of(stride) {
                let reason = format!(
                    "its {} bytes are no whole number of rows of {} features of {dtype}: it is truncated, or {SPEC} is of \
                     other data",
                    bytes.len(),
                    chunk.features.len()
                );
                return Err(bad(&file, reason));
            }
            let first = whole.get_or_insert_with(|| {
                let records = Records::new(Arc::clone(&bytes), 0, stride, bytes.len() / stride);
                Field { records: Arc::new(records), offset: 0, kind, count: 1 }
            });
            fields.insert(name.as_str(), first.at(at));
        }
    }
    Ok(fields)
}

const fn categorical_type(rows: u64) -> (&'static str, usize) {
    match rows {
        0..127 => ("int8", 1),
        127..32_767 => ("int16", 2),
        _ => ("int32", 4),
    }
}

/// Writes one mapping.
pub(super) struct SplitSink {
    label: WholeFile,
    numerical: WholeFile,
    categorical: Vec<WholeFile>,
    description: Description,
    bytes: Vec<u8>,
}

fn categorical_files(description: &Description) -> impl Iterator<Item = (usize, String)> {
    (0..description.categorical.len()).map(|table| (table, format!("cat_{table}.bin")))
}

impl SplitSink {
    pub(super) fn create(folder: &Path, role: Split, description: &Description) -> Result<Self> {
        if let Some(column) = description.not_one_hot() {
            let reason =
                format!("split binary holds one look-up a column without weight, unlike column {}", column.name);
            return Err(bad(folder, reason));
        }
        let folder = folder.join(role.of(ROLES));
        std::fs::create_dir_all(&folder).map_err(Error::io(&folder, "create"))?;
        let file = |name: &str| WholeFile::create(&folder.join(name));
        Ok(Self {
            label: file("label.bin")?,
            numerical: file("numerical.bin")?,
            categorical: categorical_files(description).map(|(_, name)| file(&name)).collect::<Result<_>>()?,
            description: description.clone(),
            bytes: Vec::new(),
        })
    }
}

impl Sink for SplitSink {
    fn push(&mut self, samples: &Samples) -> Result<()> {
        let bytes = &mut self.bytes;
        bytes.clear();
        bytes.extend(samples.labels.iter().map(|&label| u8::from(label != 0.0)));
        self.label.append(bytes)?;
        let (width, columns) = (samples.dense.len(), &self.description.dense);
        bytes.clear();
        bytes.resize(2 * width * samples.len(), 0);
        for (at, (values, column)) in samples.dense.iter().zip(columns).enumerate() {
            let cells = bytes.as_chunks_mut::<2>().0.iter_mut().skip(at).step_by(width);
            let feature = column.feature();
            let mut beyond = None;
            for (n, cell) in cells.enumerate() {
                let value = values.feature(n, feature);
                let half = f16::from_f32(value);
                if !half.is_finite() && value.is_finite() {
                    beyond = Some(value);
                }
                *cell = half.to_le_bytes();
            }
            if let Some(value) = beyond {
                let reason = format!(
                    "column {} has the feature {value}, and 16-bit floats end at {}: give the column another transform, or \
                     choose another --format",
                    column.name,
                    f16::MAX
                );
                return Err(bad(self.numerical.path(), reason));
            }
        }
        self.numerical.append(bytes)?;
        for ((file, lookups), column) in
            self.categorical.iter_mut().zip(&samples.lookups).zip(&self.description.categorical)
        {
            bytes.clear();
            match categorical_type(column.rows).1 {
                1 => bytes.extend(lookups.rows.iter().map(|&row| row as u8)),
                2 => bytes.extend(lookups.rows.iter().flat_map(|&row| (row as u16).to_le_bytes())),
                _ => bytes.extend_from_slice(bytemuck::cast_slice(&lookups.rows)),
            }
            file.append(bytes)?;
        }
        Ok(())
    }

    fn finish(self: Box<Self>) -> Result<u64> {
        let mut bytes = self.label.finish()? + self.numerical.finish()?;
        for file in self.categorical {
            bytes += file.finish()?;
        }
        Ok(bytes)
    }
}

/// Writes the specification; from then on the directory is a data set.
pub(super) fn seal(folder: &Path, description: &Description, roles: &[Split]) -> Result<()> {
    let feature = |dtype: &str, cardinality| Feature { dtype: dtype.to_owned(), cardinality };
    let numerical: Vec<String> = description.dense.iter().map(|column| column.name.clone()).collect();
    let categorical: Vec<String> = description.categorical.iter().map(|column| column.name.clone()).collect();
    let label = vec![description.label.name.clone()];
    let mut features = BTreeMap::new();
    features.insert(label[0].clone(), feature("bool", None));
    features.extend(numerical.iter().map(|name| (name.clone(), feature("float16", None))));
    features.extend(
        description
            .categorical
            .iter()
            .map(|column| (column.name.clone(), feature(categorical_type(column.rows).0, Some(column.rows)))),
    );
    let chunks = |role: &Split| {
        let folder = role.of(ROLES);
        let chunk = |features: Vec<String>, file: &str| Chunk {
            kind: "split_binary".to_owned(),
            features,
            files: vec![format!("{folder}/{file}")],
        };
        let mut chunks = vec![chunk(numerical.clone(), "numerical.bin"), chunk(label.clone(), "label.bin")];
        chunks
            .extend(categorical_files(description).map(|(table, file)| chunk(vec![categorical[table].clone()], &file)));
        (folder.to_owned(), chunks)
    };
    let spec = Spec {
        feature_spec: features,
        source_spec: roles.iter().map(chunks).collect(),
        metadata: BTreeMap::new(),
        channel_spec: Channels { categorical: categorical.clone(), numerical: numerical.clone(), label: label.clone() },
    };
    let path: PathBuf = folder.join(SPEC);
    let text = serde_saphyr::to_string(&spec).map_err(|error| bad(&path, error.to_string()))?;
    write_file(&path, text.as_bytes())
}
