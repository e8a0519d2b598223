//! What the layers of a model of time series read, at each step.

use super::build::{Argument, Builder, Length};
use super::proto::{FLOAT, INT64};
use super::{Bags, Given, dense, looked_up, pooled, rows, samples, side_by_side};
use crate::train::export::Exported;

/// What they read. Steps of samples are rows: those of a sample one behind the other.
pub(super) fn series<'a>(graph: &mut Builder<'a>, model: &'a Exported<'_>, bags: Bags) -> Given {
    let (config, steps) = (model.model(), model.model().steps() as i64);
    let dense = dense(graph, model);
    let (mut vectors, mut there) = (Vec::new(), Vec::new());
    let (one, many) = (graph.integers("of_1", &[1], false), graph.integers("of_steps", &[steps], false));
    let dim = graph.integers("of_dim", &[config.dim as i64], false);
    let rows_of_dim = graph.integers("rows_of_dim", &[-1, config.dim as i64], false);
    let axis = graph.integers("axis_1", &[1], false);
    // How many samples there are, of what comes first.
    let mut count: Option<String> = None;
    let mut pooled_tables = Vec::new();
    for (table, of) in model.weights.tables.iter().enumerate() {
        if model.sequences[table] {
            let lengths = [samples(), Length::Known(steps as usize)];
            let rows_in = of.rows() as i64;
            let what = format!(
                "rows of table {table}, from 0, the step in question last; {rows_in} is none, before the others"
            );
            let ids = graph.input(&format!("ids_{table}"), INT64, &lengths, &what);
            let mut found = rows(graph, model, table, &ids, 1);
            if model.weighted[table] {
                let weights = graph.input(&format!("weights_{table}"), FLOAT, &lengths, "weights of the look-ups");
                let last = graph.integers("axis_last", &[-1], false);
                let weights = graph.node("Unsqueeze", &[&weights, &last], &[]);
                found = graph.node("Mul", &[&found, &weights], &[]);
            }
            let pad = graph.integers(&format!("rows_{rows_in}"), &[rows_in], true);
            let real = graph.node("Less", &[&ids, &pad], &[]);
            there.push(graph.cast(&real, FLOAT));
            if count.is_none() {
                let shape = graph.node("Shape", &[&ids], &[]);
                let zero = graph.integers("from_0", &[0], false);
                count = Some(graph.node("Slice", &[&shape, &zero, &one], &[]));
            }
            vectors.push(graph.node("Reshape", &[&found, &rows_of_dim], &[]));
        } else {
            let column = looked_up(graph, model, bags, table, table);
            pooled_tables.push((table, pooled(graph, model, table, &column.ids, &column)));
            vectors.push(String::new());
        }
    }
    let count = count.expect("a time series has a sequence");
    // The same at each step.
    let spread = |graph: &mut Builder<'a>, x: &str, width: &str, rows: &str| {
        let shape = graph.node("Concat", &[&count, &many, width], &[Argument::Int("axis", 0)]);
        let x = graph.node("Unsqueeze", &[x, &axis], &[]);
        let x = graph.node("Expand", &[&x, &shape], &[]);
        graph.node("Reshape", &[&x, rows], &[])
    };
    for (table, pooled) in pooled_tables {
        vectors[table] = spread(graph, &pooled, &dim, &rows_of_dim);
    }
    let there: Vec<&str> = there.iter().map(String::as_str).collect();
    let there = if there.len() > 1 { graph.node("Max", &there, &[]) } else { there[0].to_owned() };
    let inputs = (!config.bottom.is_empty()).then(|| {
        let positions: Vec<f32> = (0..steps).map(|step| (step as f64 / steps as f64) as f32).collect();
        let positions = graph.floats("positions", &[1, steps, 1], &positions);
        let shape = graph.node("Concat", &[&count, &many, &one], &[Argument::Int("axis", 0)]);
        let positions = graph.node("Expand", &[&positions, &shape], &[]);
        let column = graph.integers("rows_of_1", &[-1, 1], false);
        let positions = graph.node("Reshape", &[&positions, &column], &[]);
        match &dense {
            None => positions,
            Some(dense) => {
                let features = graph.integers("of_features", &[config.dense() as i64], false);
                let rows = graph.integers("rows_of_features", &[-1, config.dense() as i64], false);
                let dense = spread(graph, dense, &features, &rows);
                side_by_side(graph, &[positions, dense])
            }
        }
    });
    Given { dense: inputs, vectors, wide: Vec::new(), there: Some(there) }
}
