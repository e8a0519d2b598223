//! The layers of a network as nodes, from dense features and vectors to the logit: one by one, as the model's
//! description has them.

use super::build::{Argument, Builder};
use super::proto::{BFLOAT16, FLOAT};
use super::{side_by_side, stored};
use crate::base::config::{DENSE, EMBEDDINGS, LayerKind, NamedLayer};
use crate::model::LayerWeights;
use crate::train::export::Exported;

/// What the layers read.
pub(super) struct Given {
    /// The dense features, if there are any.
    pub(super) dense: Option<String>,
    /// The vector of each column.
    pub(super) vectors: Vec<String>,
    /// The terms of the wide part, if there is one.
    pub(super) wide: Vec<String>,
    /// Of a time series, which steps are there.
    pub(super) there: Option<String>,
}

/// The logit.
pub(super) fn network<'a>(graph: &mut Builder<'a>, model: &'a Exported<'_>, given: &Given) -> String {
    let layers = model.network();
    let mut results: Vec<String> = vec![String::new(); layers.len()];
    for &at in &model.widths().order {
        let layer = &layers[at];
        let operands: Vec<String> = layer.of.iter().flat_map(|name| operands(model, given, &results, name)).collect();
        let x = |graph: &mut Builder<'a>| match &operands[..] {
            [one] => one.clone(),
            several => side_by_side(graph, several),
        };
        results[at] = match layer.kind {
            LayerKind::Concat => side_by_side(graph, &operands),
            LayerKind::Dot => dot(graph, model, layer, &operands),
            LayerKind::Sum => sum(graph, &operands),
            LayerKind::Wide => sum(graph, &given.wide),
            LayerKind::Linear => {
                let x = x(graph);
                chain(graph, model, model.layers_of(&layer.name), &x)
            }
            LayerKind::Relu => {
                let x = x(graph);
                graph.node("Relu", &[&x], &[])
            }
            LayerKind::Sigmoid => {
                let x = x(graph);
                graph.node("Sigmoid", &[&x], &[])
            }
            LayerKind::Cross => {
                let x = x(graph);
                cross(graph, model, &layer.name, &x)
            }
            LayerKind::Attention => {
                let (x, there) = (x(graph), given.there.as_deref().unwrap_or_default());
                attention(graph, model, (&layer.name, there), &x)
            }
        };
    }
    results[model.widths().logit].clone()
}

/// What a name stands for.
fn operands(model: &Exported<'_>, given: &Given, results: &[String], name: &str) -> Vec<String> {
    if let Some(at) = model.network().iter().position(|layer| layer.name == name) {
        return vec![results[at].clone()];
    }
    match name {
        DENSE => given.dense.iter().cloned().collect(),
        EMBEDDINGS => given.vectors.clone(),
        _ => model.column(name).map(|column| given.vectors[column].clone()).into_iter().collect(),
    }
}

fn sum(graph: &mut Builder<'_>, terms: &[String]) -> String {
    let terms: Vec<&str> = terms.iter().map(String::as_str).collect();
    if let [one] = terms[..] { one.to_owned() } else { graph.node("Sum", &terms, &[]) }
}

/// Layers with ReLU between them.
fn chain<'a>(graph: &mut Builder<'a>, model: &'a Exported<'_>, layers: Vec<&'a LayerWeights>, x: &str) -> String {
    let (mut x, last) = (x.to_owned(), layers.len());
    for (index, layer) in layers.into_iter().enumerate() {
        x = linear(graph, model, layer, &x);
        if index + 1 < last {
            x = graph.node("Relu", &[&x], &[]);
        }
    }
    x
}

/// What a layer takes: where it multiplies bfloat16, rounded to it.
fn rounded(graph: &mut Builder<'_>, model: &Exported<'_>, x: &str) -> String {
    if !model.rounds() {
        return x.to_owned();
    }
    let half = graph.cast(x, BFLOAT16);
    graph.cast(&half, FLOAT)
}

/// x Wᵀ + b.
pub(super) fn linear<'a>(graph: &mut Builder<'a>, model: &Exported<'_>, layer: &'a LayerWeights, x: &str) -> String {
    let x = rounded(graph, model, x);
    let mut inputs = vec![x, stored(graph, model, &layer.weight)];
    inputs.extend(layer.bias.as_ref().map(|bias| stored(graph, model, bias)));
    let inputs: Vec<&str> = inputs.iter().map(String::as_str).collect();
    graph.node("Gemm", &inputs, &[Argument::Int("transB", 1)])
}

/// The products of each two vectors.
fn dot(graph: &mut Builder<'_>, model: &Exported<'_>, layer: &NamedLayer, vectors: &[String]) -> String {
    let (all, count, itself) = (side_by_side(graph, vectors), vectors.len(), layer.itself == Some(true));
    let name = |what: &str| format!("{}_{what}", layer.name);
    let shape = graph.integers(&name("vectors"), &[-1, count as i64, model.numbers(&layer.of[0]) as i64], false);
    let all = graph.node("Reshape", &[&all, &shape], &[]);
    let turned = graph.node("Transpose", &[&all], &[Argument::Ints("perm", &[0, 2, 1])]);
    let products = graph.node("MatMul", &[&all, &turned], &[]);
    let shape = graph.integers(&name("products"), &[-1, (count * count) as i64], false);
    let products = graph.node("Reshape", &[&products, &shape], &[]);
    let places: Vec<i64> = model.products(count, itself).into_iter().map(|place| place as i64).collect();
    let places = graph.integers(&name("triangle"), &places, false);
    graph.node("Gather", &[&products, &places], &[Argument::Int("axis", 1)])
}

/// x_{l+1} = x_0 ⊙ (W_l V_l x_l + b_l) + x_l.
fn cross<'a>(graph: &mut Builder<'a>, model: &'a Exported<'_>, name: &str, x0: &str) -> String {
    // Rounded here, as every x_l but the last is: the layer that takes it rounds it itself.
    let x0 = rounded(graph, model, x0);
    let mut x = x0.clone();
    for (index, pair) in model.layers_of(name).chunks_exact(2).enumerate() {
        let x_l = if index == 0 { x } else { rounded(graph, model, &x) };
        let u = linear(graph, model, pair[0], &x_l);
        let h = linear(graph, model, pair[1], &u);
        let h = rounded(graph, model, &h);
        let product = graph.node("Mul", &[&x0, &h], &[]);
        x = graph.node("Add", &[&product, &x_l], &[]);
    }
    x
}

/// The context of a time series and its last step, side by side: see `layer/attention`. Steps of samples are rows,
/// those of a sample one behind the other; `there` says which are.
fn attention<'a>(graph: &mut Builder<'a>, model: &'a Exported<'_>, (name, there): (&str, &str), z: &str) -> String {
    let steps = model.model().steps() as i64;
    let layers = model.layers_of(name);
    let m = layers[0].weight.rows() as i64;
    let (axis, many) = (graph.integers("axis_1", &[1], false), graph.integers("of_steps", &[steps], false));
    let cube = graph.integers("steps_of_vectors", &[-1, steps, m], false);
    let z = graph.node("Reshape", &[z, &cube], &[]);
    let last_axis = graph.integers("axis_last", &[-1], false);
    let norm = graph.node("ReduceL2", &[&z, &last_axis], &[Argument::Int("keepdims", 1)]);
    let shortest = graph.float("shortest", 1e-12);
    let norm = graph.node("Max", &[&norm, &shortest], &[]);
    let there = graph.node("Unsqueeze", &[there, &last_axis], &[]);
    let scale = graph.node("Div", &[&there, &norm], &[]);
    let v = graph.node("Mul", &[&z, &scale], &[]);
    let (zero, history) = (graph.integers("from_0", &[0], false), graph.integers("history", &[steps - 1], false));
    let seen = graph.node("Slice", &[&v, &zero, &history, &axis], &[]);
    let asked = graph.node("Slice", &[&v, &history, &many, &axis], &[]);
    let asked = graph.node("Squeeze", &[&asked, &axis], &[]);
    // u = A v, x = Aᵀ u, for a row a sample.
    let matrix = stored(graph, model, &layers[0].weight);
    let u = graph.node("Gemm", &[&asked, &matrix], &[Argument::Int("transB", 1)]);
    let x = graph.node("Gemm", &[&u, &matrix], &[]);
    let x = graph.node("Unsqueeze", &[&x, &last_axis], &[]);
    let a = graph.node("MatMul", &[&seen, &x], &[]);
    let a = graph.node("Squeeze", &[&a, &last_axis], &[]);
    let y = chain(graph, model, layers[1..].to_vec(), &a);
    let y = graph.node("Sigmoid", &[&y], &[]);
    let y = graph.node("Unsqueeze", &[&y, &axis], &[]);
    let c = graph.node("MatMul", &[&y, &seen], &[]);
    let c = graph.node("Squeeze", &[&c, &axis], &[]);
    side_by_side(graph, &[c, asked])
}
