//! A trained model as an ONNX graph of standard operators (opset 18), from dense features and row numbers to click
//! probabilities.
//!
//! What it takes, `octorec guide serving` tells in a table: `dense`, and of each table t `ids_t`, with `offsets_t` or
//! padded ([`Bags`]), and `weights_t`. Of a model of time series, a sequence is padded in either case, at its
//! beginning.
//!
//! A model with a wide part looks columns up in its tables, too, by the same inputs; the crosses are tables behind
//! those of the columns, t counted on, with the row numbers of [`crate::data::wide::bucket`].
//!
//! A column that is looked up by quotients and remainders has one input: the graph divides.
//!
//! The result is `probabilities`, one a sample. All lengths but the number of dense features are free. Tensors keep the
//! names of the state dict. A padded table has one more row, of zeros, which pads bags of fewer look-ups.
//!
//! A model in bfloat16 has its weights in that type; what its layers take is rounded to it by two casts, and all sums
//! are in 32 bits, as in octorec. A sum in another order may then be rounded to the other side, so that probabilities
//! of such a model agree to the digits that bfloat16 has.

mod beside;
mod build;
mod network;
pub mod proto;
mod series;

use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use prost::Message;
use serde::Serialize;

pub use self::beside::data_path;
use self::beside::{Owner, PRODUCER, owner_of};
use self::build::{Argument, Builder, Length, Stored};
use self::network::{Given, linear, network};
use self::proto::{EXTERNAL, Entry, FLOAT, INT64, Model, OperatorSet};
use self::series::series;
use super::{Exported, Number};
use crate::base::config::{Composition, Pooling};
use crate::base::console::note;
use crate::base::{Error, Result};
use crate::memory::{WholeFile, is_stream};
use crate::model::Parameter;

/// The operators' definitions that the graph is written for.
const OPSET: i64 = 18;
/// The version of the format that goes with them.
const IR_VERSION: i64 = 8;
/// What no protobuf message can exceed, less what the graph itself takes.
pub const INLINE_MAX: u64 = (2 << 30) - (64 << 20);
/// Tensors of another file begin at multiples of this, so that they can be mapped.
const ALIGNMENT: u64 = 4096;
/// What is scattered is added up.
const ADD: [Argument<'static>; 2] = [Argument::Int("axis", 0), Argument::Text("reduction", "add")];
/// The least tensor that goes to another file.
const EXTERNAL_MIN: usize = 1024;

/// How the look-ups of a minibatch come.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Bags {
    /// ids_t [samples, n]: n look-ups of each sample, any n; the number behind a table's last row stands for none.
    Padded,
    /// ids_t [look-ups] and offsets_t [samples + 1]: bags of any length, one behind the other.
    Offsets,
}

/// Writes the graph to `path`. Weights of more than `external_above` bytes go to a file beside it, with `.data` behind
/// its name, which is returned; one that an earlier export has left there goes where the weights need none.
///
/// # Errors
/// When the checkpoint is damaged or a file cannot be written, and when the file beside is there and no graph that has
/// its weights in it; older files of these names then stay.
///
/// # Panics
/// When `external_above` is more than [`INLINE_MAX`].
pub fn write(model: &Exported<'_>, path: &Path, bags: Bags, external_above: u64) -> Result<Option<PathBuf>> {
    assert!(external_above <= INLINE_MAX, "a message holds it");
    let Builder { mut graph, stored } = build(model, bags);
    let bytes = |of: &Stored<'_>| (model.bytes(of.of) + of.zeros * row_bytes(model, of)) as u64;
    let outside = stored.iter().map(bytes).sum::<u64>() > external_above;
    if outside && (is_stream(path) || path.is_dir()) {
        let reason = format!("{} is no regular file: name one, beside which the weights go", path.display());
        return Err(Error::config("--out", reason));
    }
    let (beside, owner) = (outside.then(|| data_path(path)), owner_of(path));
    if let Some(beside) = beside.as_deref().filter(|_| owner == Some(Owner::Unknown)) {
        let reason = format!(
            "{} is there, without the graph whose weights it would hold, and would be lost: name another file, or move it away",
            beside.display()
        );
        return Err(Error::config("--out", reason));
    }
    let told = beside.as_deref().map(named_in_graph).transpose()?;
    let mut data = beside.as_deref().map(WholeFile::create).transpose()?;
    for of in &stored {
        let zeros = vec![0; of.zeros * row_bytes(model, of)];
        let tensor = &mut graph.initializer[of.index];
        match (&mut data, &told) {
            (Some(file), Some(name)) if bytes(of) as usize >= EXTERNAL_MIN => {
                let start = file.written().next_multiple_of(ALIGNMENT);
                file.write_at(start, &[])?;
                model.pieces(of.of, &mut |piece| file.append(piece))?;
                file.append(&zeros)?;
                let entries =
                    [("location", name.clone()), ("offset", start.to_string()), ("length", bytes(of).to_string())];
                tensor.external_data =
                    entries.map(|(key, value)| Entry { key: Some(key.to_owned()), value: Some(value) }).to_vec();
                tensor.data_location = Some(EXTERNAL);
            }
            _ => {
                let mut raw = Vec::with_capacity(bytes(of) as usize);
                model.pieces(of.of, &mut |piece| {
                    raw.extend_from_slice(piece);
                    Ok(())
                })?;
                raw.extend_from_slice(&zeros);
                tensor.raw_data = Some(raw);
            }
        }
    }
    let message = Model {
        ir_version: Some(IR_VERSION),
        producer_name: Some(PRODUCER.to_owned()),
        producer_version: Some(env!("CARGO_PKG_VERSION").to_owned()),
        doc_string: None,
        graph: Some(graph),
        opset_import: vec![OperatorSet { domain: Some(String::new()), version: Some(OPSET) }],
        metadata_props: metadata(model),
    };
    let mut file = WholeFile::create(path)?;
    file.append(&message.encode_to_vec())?;
    // The graph last: where it is, what it names is.
    data.map(WholeFile::finish).transpose()?;
    file.finish()?;
    if !outside && owner == Some(Owner::Octorec) {
        // The graph that had its weights there is gone.
        let left = data_path(path);
        std::fs::remove_file(&left).map_err(Error::io(&left, "remove"))?;
        note!("note: {} is removed: it held the weights of the graph that was there", left.display());
    }
    Ok(beside)
}

/// The name by which a graph finds the file of its weights beside it.
///
/// # Errors
/// When it is no UTF-8, as all text of a graph is: another name would be none.
fn named_in_graph(beside: &Path) -> Result<String> {
    let name = beside.file_name().and_then(OsStr::to_str).map(str::to_owned);
    name.ok_or_else(|| {
        let reason = format!(
            "{}: this name is no UTF-8, as which the graph names the file of its weights: name another file",
            beside.display()
        );
        Error::config("--out", reason)
    })
}

/// Of which columns the inputs are: the names of those whose look-ups `ids_0` and on are, crosses behind them, and how
/// many rows each has; how dense features are made of theirs, where the data said; and the schema, where there was one.
fn metadata(model: &Exported<'_>) -> Vec<Entry> {
    fn entry(key: &str, columns: &impl Serialize) -> Entry {
        let columns = serde_json::to_string(columns).expect("columns are representable in JSON");
        Entry { key: Some(key.to_owned()), value: Some(columns) }
    }
    let crosses = model.model().wide_crosses.iter().filter(|_| model.model().wide).map(|cross| cross.join(" x "));
    let mut columns = model.columns();
    let mut rows: Vec<u64> = (0..columns.len()).map(|column| model.values(column)).collect();
    columns.extend(crosses);
    rows.resize(columns.len(), model.model().wide_buckets);
    let dense = (!model.dense.is_empty()).then(|| entry("octorec.dense_columns", &model.dense));
    let schema = model.schema.as_ref().map(|schema| entry("octorec.schema", schema));
    [entry("octorec.columns", &columns), entry("octorec.rows", &rows)].into_iter().chain(dense).chain(schema).collect()
}

fn row_bytes(model: &Exported<'_>, of: &Stored<'_>) -> usize {
    of.of.columns() * model.number(of.of).bytes()
}

/// The graph, without the numbers of the model's tensors.
fn build<'a>(model: &'a Exported<'_>, bags: Bags) -> Builder<'a> {
    let mut graph = Builder::default();
    graph.graph.name = Some("octorec".to_owned());
    let given = match model.model().ts_length {
        0 => single(&mut graph, model, bags),
        _ => series(&mut graph, model, bags),
    };
    let mut x = network(&mut graph, model, &given);
    x = graph.node("Sigmoid", &[&x], &[]);
    let threshold = model.model().loss_threshold;
    if threshold > 0.0 {
        let [low, high] = [("lowest", threshold), ("highest", 1.0 - threshold)].map(|(name, p)| graph.float(name, p));
        x = graph.node("Clip", &[&x, &low, &high], &[]);
    }
    let last = graph.integers("axis_1", &[1], false);
    graph.node_to("Squeeze", &[&x, &last], &[], "probabilities");
    graph.output("probabilities", FLOAT, &[samples()], "click probabilities");
    graph
}

/// The number of samples, which is free.
fn samples() -> Length {
    Length::Any("samples".to_owned())
}

/// The input of the dense features, if there are any.
fn dense(graph: &mut Builder<'_>, model: &Exported<'_>) -> Option<String> {
    let features = model.model().dense();
    let what = "dense features as the model takes them, transformed as its training data was";
    (features > 0).then(|| graph.input("dense", FLOAT, &[samples(), Length::Known(features)], what))
}

/// What the layers of a model read whose samples go through it once.
fn single<'a>(graph: &mut Builder<'a>, model: &'a Exported<'_>, bags: Bags) -> Given {
    let dense = dense(graph, model);
    let deep = model.model().deep_tables(model.weights.tables.len());
    let count = deep - model.composed.len();
    let columns: Vec<LookedUp> = (0..count).map(|column| looked_up(graph, model, bags, column, column)).collect();
    let vectors = columns.iter().enumerate().map(|(table, column)| {
        if let Some(remainders) = model.remainders(table) {
            return composed(graph, model, [table, remainders], column);
        }
        let pooled = pooled(graph, model, table, &column.ids, column);
        match model.projection(table) {
            None => pooled,
            Some(layer) => {
                let matrix = stored(graph, model, &layer.weight);
                graph.node("Gemm", &[&pooled, &matrix], &[Argument::Int("transB", 1)])
            }
        }
    });
    let vectors = vectors.collect();
    let mut wide = Vec::new();
    if model.model().wide {
        if let (Some(dense), Some(layer)) = (&dense, model.wide()) {
            wide.push(linear(graph, model, layer, dense));
        }
        // Each column once more, and then the crosses, whose combinations come as rows of their own.
        let crosses = (2 * deep..model.weights.tables.len()).map(|table| (table, table - deep));
        let crosses: Vec<_> = crosses.map(|(table, column)| looked_up(graph, model, bags, table, column)).collect();
        for (table, column) in (deep..).zip(columns.iter().chain(&crosses)) {
            wide.push(pooled(graph, model, table, &column.ids, column));
        }
    }
    Given { dense, vectors, wide, there: None }
}

/// A tensor of the model as 32-bit floats.
fn stored<'a>(graph: &mut Builder<'a>, model: &Exported<'_>, of: &'a Parameter) -> String {
    let number = model.number(of);
    let name = graph.stored(of, 0, number);
    if number == Number::Bf16 { graph.cast(&name, FLOAT) } else { name }
}

/// Vectors of each sample in one row.
fn side_by_side(graph: &mut Builder<'_>, vectors: &[String]) -> String {
    let inputs: Vec<&str> = vectors.iter().map(String::as_str).collect();
    graph.node("Concat", &inputs, &[Argument::Int("axis", 1)])
}

/// Rows of a table by their numbers, as 32-bit floats, each times its learned weight if it has one.
fn rows<'a>(graph: &mut Builder<'a>, model: &'a Exported<'_>, table: usize, ids: &str, zeros: usize) -> String {
    let of = &model.weights.tables[table];
    let name = graph.stored(of, zeros, model.number(of));
    let rows = graph.node("Gather", &[&name, ids], &[Argument::Int("axis", 0)]);
    let rows = if model.number(of) == Number::Bf16 { graph.cast(&rows, FLOAT) } else { rows };
    let Some(of) = model.weights.row_weights.get(table) else { return rows };
    let name = graph.stored(of, zeros, Number::F32);
    let weights = graph.node("Gather", &[&name, ids], &[Argument::Int("axis", 0)]);
    let last = graph.integers("axis_last", &[-1], false);
    let weights = graph.node("Unsqueeze", &[&weights, &last], &[]);
    graph.node("Mul", &[&rows, &weights], &[])
}

/// Sums of bags divided by how many look-ups they have, where the model pools means; `counts` [samples, 1].
fn averaged(graph: &mut Builder<'_>, sums: &str, counts: &str) -> String {
    let one = graph.float("one", 1.0);
    let counts = graph.cast(counts, FLOAT);
    let counts = graph.node("Max", &[&counts, &one], &[]);
    graph.node("Div", &[sums, &counts], &[])
}

/// The look-ups of a column: what the tables that it is looked up in share.
struct LookedUp {
    ids: String,
    weights: Option<String>,
    bags: InBags,
}

/// Which of them are a sample's.
enum InBags {
    /// A row each; `pad` is no row.
    Padded { pad: u64 },
    /// The bag of each, the samples' number, and where bags begin and end.
    Offsets { bag: String, samples: String, ends: [String; 2] },
}

/// The inputs of a column, whose rows are those of `table`.
fn looked_up(graph: &mut Builder<'_>, model: &Exported<'_>, bags: Bags, table: usize, column: usize) -> LookedUp {
    let count = model.values(table);
    let (what, lengths) = match bags {
        Bags::Padded => {
            let lengths = vec![Length::Any("samples".to_owned()), Length::Any(format!("bag_{column}"))];
            (format!("rows of table {column}, from 0; {count} is none"), lengths)
        }
        Bags::Offsets => (format!("rows of table {column}, from 0"), vec![Length::Any(format!("lookups_{column}"))]),
    };
    let ids = graph.input(&format!("ids_{column}"), INT64, &lengths, &what);
    let bags = match bags {
        Bags::Padded => InBags::Padded { pad: count },
        Bags::Offsets => numbered(graph, column, &ids),
    };
    let weights = model.weighted[table].then(|| {
        let weights = graph.input(&format!("weights_{column}"), FLOAT, &lengths, "weights of the look-ups");
        let last = graph.integers("axis_last", &[-1], false);
        graph.node("Unsqueeze", &[&weights, &last], &[])
    });
    LookedUp { ids, weights, bags }
}

/// Numbers look-ups that come one behind the other by the bag that they are in.
fn numbered(graph: &mut Builder<'_>, column: usize, ids: &str) -> InBags {
    let ends = [Length::Any("samples_and_1".to_owned())];
    let what = "where each sample's look-ups begin, and where the last one's end";
    let offsets = graph.input(&format!("offsets_{column}"), INT64, &ends, what);
    let [zero, one, end, axis] = [("from_0", 0), ("from_1", 1), ("to_end", i64::MAX), ("to_last", -1)]
        .map(|(name, value)| graph.integers(name, &[value], false));
    let ends = graph.node("Slice", &[&offsets, &one, &end], &[]);
    let starts = graph.node("Slice", &[&offsets, &zero, &axis], &[]);
    // How many bags have ended before each look-up: a 1 at each end, added up.
    let lookups = graph.node("Shape", &[ids], &[]);
    let lookups_and_1 = graph.node("Add", &[&lookups, &one], &[]);
    let nought = graph.integers("nought", &[0], true);
    let unmarked = graph.node("Expand", &[&nought, &lookups_and_1], &[]);
    let samples = graph.node("Shape", &[&ends], &[]);
    let unit = graph.integers("unit", &[1], true);
    let marks = graph.node("Expand", &[&unit, &samples], &[]);
    let marked = graph.node("ScatterElements", &[&unmarked, &ends, &marks], &ADD);
    let ended = graph.node("CumSum", &[&marked, &nought], &[]);
    let bag = graph.node("Slice", &[&ended, &zero, &axis], &[]);
    let last = graph.integers("axis_last", &[-1], false);
    let bag = graph.node("Unsqueeze", &[&bag, &last], &[]);
    InBags::Offsets { bag, samples, ends: [starts, ends] }
}

/// The pooled rows of a table, of these row numbers for the column's look-ups.
fn pooled<'a>(
    graph: &mut Builder<'a>,
    model: &'a Exported<'_>,
    table: usize,
    numbers: &str,
    column: &LookedUp,
) -> String {
    let LookedUp { ids, weights, bags } = column;
    let zeros = usize::from(matches!(bags, InBags::Padded { .. }));
    let mut rows = rows(graph, model, table, numbers, zeros);
    if let Some(weights) = weights {
        rows = graph.node("Mul", &[&rows, weights], &[]);
    }
    let average = model.model().pooling == Pooling::Mean;
    match bags {
        InBags::Padded { pad } => {
            let middle = graph.integers("axis_1", &[1], false);
            let sums = graph.node("ReduceSum", &[&rows, &middle], &[Argument::Int("keepdims", 0)]);
            if !average {
                return sums;
            }
            let pad = graph.integers(&format!("rows_{pad}"), &[*pad as i64], true);
            let real = graph.node("Less", &[ids, &pad], &[]);
            let real = graph.cast(&real, INT64);
            let counts = graph.node("ReduceSum", &[&real, &middle], &[Argument::Int("keepdims", 1)]);
            averaged(graph, &sums, &counts)
        }
        InBags::Offsets { bag, samples, ends: [starts, ends] } => {
            // The bag of each number of each row.
            let shape = graph.node("Shape", &[&rows], &[]);
            let bag = graph.node("Expand", &[bag, &shape], &[]);
            let dim = model.weights.tables[table].columns();
            let dim = graph.integers(&format!("dim_{dim}"), &[dim as i64], false);
            let shape = graph.node("Concat", &[samples, &dim], &[Argument::Int("axis", 0)]);
            let zero = graph.float("zero", 0.0);
            let empty = graph.node("Expand", &[&zero, &shape], &[]);
            let sums = graph.node("ScatterElements", &[&empty, &bag, &rows], &ADD);
            if !average {
                return sums;
            }
            let counts = graph.node("Sub", &[ends, starts], &[]);
            let last = graph.integers("axis_last", &[-1], false);
            let counts = graph.node("Unsqueeze", &[&counts, &last], &[]);
            averaged(graph, &sums, &counts)
        }
    }
}

/// The vector of a column that is looked up by quotients and remainders. What pads a bag pads those of both.
fn composed<'a>(graph: &mut Builder<'a>, model: &'a Exported<'_>, tables: [usize; 2], column: &LookedUp) -> String {
    let by = graph.integers("collisions", &[model.model().qr_collisions as i64], true);
    let parts = [("Div", tables[0]), ("Mod", tables[1])].map(|(operator, table)| {
        let mut ids = graph.node(operator, &[&column.ids, &by], &[]);
        if let InBags::Padded { pad } = column.bags {
            let pad = graph.integers(&format!("rows_{pad}"), &[pad as i64], true);
            let none = model.weights.tables[table].rows();
            let none = graph.integers(&format!("rows_{none}"), &[none as i64], true);
            let real = graph.node("Less", &[&column.ids, &pad], &[]);
            ids = graph.node("Where", &[&real, &ids, &none], &[]);
        }
        pooled(graph, model, table, &ids, column)
    });
    let [q, r] = &parts;
    match model.model().qr_operation {
        Composition::Mult => graph.node("Mul", &[q, r], &[]),
        Composition::Add => graph.node("Add", &[q, r], &[]),
        Composition::Concat => side_by_side(graph, &parts),
    }
}

/// Refuses a limit that no message can hold.
///
/// # Errors
/// [`Error::Config`] that names `origin`.
pub fn check_limit(bytes: u64, origin: &str) -> Result<()> {
    if bytes <= INLINE_MAX {
        return Ok(());
    }
    let reason = format!("no protobuf file holds more than 2 GiB: {INLINE_MAX} bytes of weights at most");
    Err(Error::config(origin, reason))
}
