//! A trained model as PyTorch takes it: a state dict under PyTorch's names, as safetensors, and a script that rebuilds
//! the model from it with PyTorch alone.
//!
//! The file's metadata say what the model is (the key `octorec.model`, JSON): of each layer the names of its weights
//! and biases, in the order in which they are used, so that the script knows no names.

use std::path::{Path, PathBuf};

use safetensors::tensor::Dtype;
use serde::Serialize;

use super::{DenseColumn, Exported, Number};
use crate::base::config::{Composition, LayerKind, Pooling, SourceKind, Triangle, Vocab};
use crate::base::{Error, Result};
use crate::data::Numbering;
use crate::data::formats::csv::TextSchema;
use crate::memory::WholeFile;
use crate::model::{LayerWeights, Parameter};
use crate::train::tensor_file::TensorFile;

/// The script.
const SCRIPT: &str = include_str!("load.py");
/// What it is called.
pub const SCRIPT_NAME: &str = "load.py";
/// The metadata key of [`Description`].
pub(in crate::train) const MODEL: &str = "octorec.model";

/// What the script has to know.
#[derive(Serialize)]
struct Description<'a> {
    /// Dense features; 0: the model has none.
    dense: usize,
    /// How each is made of a column, where the data said.
    dense_columns: &'a [DenseColumn],
    /// What described its data, where they were described text.
    schema: Option<&'a TextSchema>,
    tables: Vec<&'a str>,
    /// Learned weights of their rows, of the first tables or of none.
    row_weights: Vec<&'a str>,
    /// Whether look-ups have weights, by table.
    weighted: &'a [bool],
    /// The layers between the features and the logit, each behind those that it reads.
    network: Vec<Node<'a>>,
    /// Which of them is the logit.
    logit: &'a str,
    /// Names of the columns, in the order of their bags.
    columns: Vec<String>,
    /// Steps of a sample: 1 where it is no time series.
    steps: usize,
    /// The matrix that makes a table's vectors as wide as all, if it is narrower.
    projections: Vec<Option<&'a str>>,
    /// Where columns are looked up by quotients and remainders, how.
    composed: Option<Composed<'a>>,
    /// Whether a table's look-ups are steps.
    sequences: &'a [bool],
    wide: Option<WidePart<'a>>,
    triangle: Triangle,
    pooling: Pooling,
    /// Probabilities lie between this and 1 less this.
    threshold: f32,
    /// Whether what layers take is rounded to bfloat16.
    bf16: bool,
    /// Of a model of Criteo's text: what its categories are taken modulo before they are looked up in the vocabulary,
    /// or where there is none; 0: nothing but the rows of the table.
    criteo_cap: Option<u64>,
    /// Whether a vocabulary numbers values.
    numbered: bool,
    /// What tells that vocabulary from every other, whatever the text.
    vocabulary: Option<String>,
    /// Which values the rows of stored data stand for; left out where nothing tells.
    #[serde(skip_serializing_if = "Numbering::is_empty")]
    numbering: &'a Numbering,
    /// Whether it was trained on data whose rows somebody has said to be its own.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    rows_taken: bool,
}

/// A layer between the features and the logit.
#[derive(Serialize)]
struct Node<'a> {
    name: &'a str,
    #[serde(rename = "type")]
    kind: LayerKind,
    of: &'a [String],
    itself: bool,
    /// Its weights and biases: V and W of each cross layer in turn; of attention the matrix, then the layers over the
    /// steps.
    layers: Vec<[Option<&'a str>; 2]>,
}

/// What the script has to know of a wide part. Its tables follow those of the columns: one for each column, then the
/// crosses'.
#[derive(Serialize)]
struct WidePart<'a> {
    /// The layer over the dense features, if there are any.
    dense: Option<[Option<&'a str>; 2]>,
    /// Names of the columns of each cross.
    crosses: &'a [Vec<String>],
    buckets: u64,
}

/// What the script has to know of quotients and remainders, whose tables follow those of the columns.
#[derive(Serialize)]
struct Composed<'a> {
    collisions: u64,
    operation: Composition,
    /// By number.
    columns: &'a [usize],
    /// Values of each column.
    rows: &'a [u64],
}

/// Writes the state dict to `path` and the script into its folder; returns where the script is.
///
/// # Errors
/// When the checkpoint is damaged or a file cannot be written; older files of these names then stay.
pub fn write(model: &Exported<'_>, path: &Path) -> Result<PathBuf> {
    let described = serde_json::to_string(&describe(model)).expect("a description is representable in JSON");
    // Wider numbers first, so that all are aligned; then by name.
    let mut tensors: Vec<&Parameter> = model.weights.tensors().collect();
    tensors.sort_by(|a, b| {
        let width = |of| std::cmp::Reverse(model.number(of).bytes());
        (width(a), &a.name).cmp(&(width(b), &b.name))
    });
    let sizes = tensors.iter().map(|of| {
        let dtype = match model.number(of) {
            Number::F32 => Dtype::F32,
            Number::Bf16 => Dtype::BF16,
        };
        (of.name.clone(), dtype, of.shape.clone(), model.bytes(of))
    });
    let beside = path.with_file_name(SCRIPT_NAME);
    let begins = SCRIPT.lines().next().unwrap_or_default().as_bytes();
    if std::fs::read(&beside).is_ok_and(|held| !held.starts_with(begins)) {
        let reason =
            format!("is not octorec's, and {SCRIPT_NAME} goes with this format: choose another folder for --out");
        return Err(Error::bad_file(beside, reason));
    }
    let mut file = TensorFile::begin(path, (MODEL, described), sizes)?;
    for of in &tensors {
        model.pieces(of, &mut |piece| file.append(piece))?;
    }
    let mut script = WholeFile::create(&beside)?;
    script.append(SCRIPT.as_bytes())?;
    script.finish()?;
    file.finish()?;
    Ok(beside)
}

fn describe<'a>(model: &'a Exported<'_>) -> Description<'a> {
    let (config, data) = (model.model(), &model.config.data);
    let names =
        |LayerWeights { weight, bias }: &'a LayerWeights| [Some(&*weight.name), bias.as_ref().map(|bias| &*bias.name)];
    let node = |&at: &usize| {
        let layer = &model.network()[at];
        let layers = model.layers_of(&layer.name).into_iter().map(names).collect();
        let itself = layer.itself == Some(true);
        Node { name: &layer.name, kind: layer.kind, of: &layer.of, itself, layers }
    };
    let wide = config.wide.then(|| WidePart {
        dense: model.wide().map(names),
        crosses: &config.wide_crosses,
        buckets: config.wide_buckets,
    });
    Description {
        dense_columns: &model.dense,
        schema: model.schema.as_ref(),
        dense: config.dense(),
        tables: model.weights.tables.iter().map(|table| &*table.name).collect(),
        row_weights: model.weights.row_weights.iter().map(|weights| &*weights.name).collect(),
        weighted: &model.weighted,
        network: model.widths().order.iter().map(node).collect(),
        logit: &model.network()[model.widths().logit].name,
        columns: model.columns(),
        steps: config.steps(),
        projections: (0..model.weights.tables.len()).map(|at| Some(&*model.projection(at)?.weight.name)).collect(),
        composed: (!model.composed.is_empty()).then_some(Composed {
            collisions: config.qr_collisions,
            operation: config.qr_operation,
            columns: &model.composed,
            rows: &config.rows,
        }),
        sequences: &model.sequences,
        wide,
        triangle: config.triangle,
        pooling: config.pooling,
        threshold: config.loss_threshold,
        bf16: model.rounds(),
        criteo_cap: (data.source == SourceKind::Tsv).then_some(data.rows_cap),
        numbered: data.source == SourceKind::Tsv && data.vocab != Vocab::Hash,
        vocabulary: model.checkpoint.numbered_by(),
        numbering: &model.numbering,
        rows_taken: model.checkpoint.rows_are_taken(),
    }
}
