//! NVIDIA's split binary (DeepLearningExamples, `dlrm/data`): `feature_spec.yaml`, and for each mapping (train, test)
//! `label.bin` (bool), `numerical.bin` (float16, row-major) and a file of int8, int16 or int32 a categorical column.
//!
//! Dense features are stored transformed. A cardinality decides the type: below 127 int8, below 32767 int16, else
//! int32.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::dataset::Member;
use super::records::Records;
use super::strided::{Field, Kind, Layout, Row, Strided, StridedSink};
use super::{Dataset, ROLES, bad, filled, folder};
use crate::base::{Error, Result, input};
use crate::data::schema::{Categorical, Dense, Label};
use crate::data::{Description, Split};
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
    let name = dtype.trim_start_matches("torch.");
    Kind::ALL.into_iter().find(|kind| kind.name() == name)
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
        let (fields, files) = fields(&spec, chunks, folder, &path)?;
        let field = |name: &String| {
            let found = fields.get(name.as_str()).copied();
            found.ok_or_else(|| bad(&path, format!("source_spec: {mapping} has no file with the feature {name}")))
        };
        let numbers = |names: &[String]| names.iter().map(field).collect::<Result<Vec<_>>>();
        let (dense, categorical) = (numbers(&spec.channel_spec.numerical)?, numbers(&spec.channel_spec.categorical)?);
        let file = |field: &Field| files[field.file].file().path().display();
        let not_integer = |field: &&Field| field.kind.float() || field.kind == Kind::Bool;
        if let Some(field) = dense.iter().find(|field| !field.kind.float()) {
            return Err(bad(&path, format!("feature_spec: {} holds numerical features, but no floats", file(field))));
        }
        if let Some(field) = categorical.iter().find(not_integer) {
            return Err(bad(&path, format!("feature_spec: {} holds categories, but no integers", file(field))));
        }
        let layout = Layout { label: field(label)?, dense, categorical };
        let table = Strided::new(description.clone(), layout, files)?;
        members.push(Member { role, table: Box::new(table) });
    }
    Ok(Dataset::new(description, members))
}

/// Every feature of one mapping, and the files that they lie in.
fn fields<'a>(
    spec: &Spec,
    chunks: &'a [Chunk],
    folder: &Path,
    path: &Path,
) -> Result<(BTreeMap<&'a str, Field>, Vec<Records>)> {
    let (mut fields, mut files) = (BTreeMap::new(), Vec::new());
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
        let (mut row, mut first) = (Row { file: files.len(), width: 0 }, None);
        for name in &chunk.features {
            let dtype = spec.feature_spec.get(name).map(|feature| feature.dtype.as_str());
            let dtype = dtype.ok_or_else(|| bad(path, format!("source_spec: feature_spec has no {name}")))?;
            let kind =
                kind(dtype).ok_or_else(|| bad(path, format!("feature_spec: {name} has the unknown dtype {dtype}")))?;
            let stride = kind.size() * chunk.features.len();
            if *first.get_or_insert(kind) != kind {
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
            fields.insert(name.as_str(), row.field(kind, 1));
        }
        let rows = bytes.len() / row.width;
        files.push(Records::new(bytes, 0, row.width, rows));
    }
    Ok((fields, files))
}

const fn categorical_kind(rows: u64) -> Kind {
    match rows {
        0..127 => Kind::Int8,
        127..32_767 => Kind::Int16,
        _ => Kind::Int32,
    }
}

fn categorical_files(description: &Description) -> impl Iterator<Item = (usize, String)> {
    (0..description.categorical.len()).map(|table| (table, format!("cat_{table}.bin")))
}

/// Writes one mapping.
pub(super) fn sink(folder: &Path, role: Split, description: &Description) -> Result<StridedSink> {
    if let Some(column) = description.not_one_hot() {
        let reason = format!("split binary holds one look-up a column without weight, unlike column {}", column.name);
        return Err(bad(folder, reason));
    }
    let folder = folder.join(role.of(ROLES));
    std::fs::create_dir_all(&folder).map_err(Error::io(&folder, "create"))?;
    let names = ["label.bin", "numerical.bin"].into_iter().map(str::to_owned);
    let names = names.chain(categorical_files(description).map(|(_, name)| name));
    let files = names.map(|name| WholeFile::create(&folder.join(name))).collect::<Result<_>>()?;
    let row = |file| Row { file, width: 0 };
    let (mut numerical, categorical) = (row(1), (2..).zip(&description.categorical));
    let layout = Layout {
        label: row(0).field(Kind::Bool, 1),
        dense: description.dense.iter().map(|_| numerical.field(Kind::Float16, 1)).collect(),
        categorical: categorical.map(|(file, column)| row(file).field(categorical_kind(column.rows), 1)).collect(),
    };
    Ok(StridedSink::new(layout, files, description))
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
            .map(|column| (column.name.clone(), feature(categorical_kind(column.rows).name(), Some(column.rows)))),
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
