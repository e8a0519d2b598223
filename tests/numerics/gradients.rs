//! Every gradient of the model against finite differences of an independent f64 model.
//!
//! The f64 model below is written from the specification, not from octorec's code, with plain loops. Its central
//! differences are exact to about 1e-8; octorec's f32 gradients must agree within f32's rounding of the sums involved.

use std::sync::Arc;

use octorec::base::config::{Command, Composition, Config, Interaction, Layers, Loss, Pooling};
use octorec::base::rng::{Random, Stream};
use octorec::data::derived::derived_columns;
use octorec::data::{Bag, Batch, Schema};
use octorec::embedding::TableTensor;
use octorec::model::{Parameter, TensorSlot, TrainSpec};
use octorec::simd::Isa;
use octorec::train::Ranks;

use crate::layers::logit;
use crate::renamed::renamed;

/// All tensors by name, in f64.
pub type Weights = Vec<(String, Vec<usize>, Vec<f64>)>;

pub fn tensor<'a>(weights: &'a Weights, name: &str) -> &'a [f64] {
    &weights.iter().find(|(known, ..)| known == name).unwrap_or_else(|| panic!("{name}")).2
}

fn perceptron(weights: &Weights, prefix: &str, mut x: Vec<f64>, relu_last: bool) -> Vec<f64> {
    let layers = weights.iter().filter(|(name, ..)| name.starts_with(prefix) && name.ends_with("bias")).count();
    for layer in 0..layers {
        let weight = tensor(weights, &format!("{prefix}.{}.weight", 2 * layer));
        let bias = tensor(weights, &format!("{prefix}.{}.bias", 2 * layer));
        let inputs = x.len();
        x = (0..bias.len())
            .map(|k| bias[k] + (0..inputs).map(|c| weight[k * inputs + c] * x[c]).sum::<f64>())
            .map(|y| if layer + 1 < layers || relu_last { y.max(0.0) } else { y })
            .collect();
    }
    x
}

/// x_{l+1} = x_0 ⊙ (W (V x_l) + b) + x_l, layer by layer.
fn cross(weights: &Weights, layers: usize, first: &[f64]) -> Vec<f64> {
    let product = |name: String, x: &[f64]| -> Vec<f64> {
        let rows = tensor(weights, &name).chunks(x.len());
        rows.map(|row| row.iter().zip(x).map(|(w, x)| w * x).sum()).collect()
    };
    (0..layers).fold(first.to_vec(), |x, layer| {
        let u = product(format!("inter_arch.crossnet.V_kernels.{layer}"), &x);
        let h = product(format!("inter_arch.crossnet.W_kernels.{layer}"), &u);
        let bias = tensor(weights, &format!("inter_arch.crossnet.bias.{layer}"));
        (0..x.len()).map(|i| first[i] * (h[i] + bias[i]) + x[i]).collect()
    })
}

/// What a tower's top MLP reads, of the bottom MLP's output and the other vectors.
fn interacted(config: &Config, weights: &Weights, x: Vec<f64>, others: &[Vec<f64>]) -> Vec<f64> {
    let model = &config.model;
    let mut features = x;
    match model.interaction {
        Interaction::Cat => others.iter().for_each(|vector| features.extend(vector)),
        Interaction::Dot => {
            let vectors: Vec<_> = std::iter::once(features.clone()).chain(others.iter().cloned()).collect();
            for i in 0..vectors.len() {
                for j in 0..i + usize::from(model.interaction_itself) {
                    features.push(vectors[i].iter().zip(&vectors[j]).map(|(a, b)| a * b).sum());
                }
            }
        }
        Interaction::Dcn => {
            others.iter().for_each(|vector| features.extend(vector));
            features = cross(weights, model.cross_layers, &features);
        }
    }
    features
}

/// The logit of a time series: of a table that is a sequence, `rows` has those of its look-ups, of another the pooled
/// one.
fn series(config: &Config, weights: &Weights, dense: &[f64], rows: &[(bool, Vec<Vec<f64>>)]) -> f64 {
    let (model, steps) = (&config.model, config.model.ts_length + 1);
    let spheres: Vec<Vec<f64>> = (0..steps)
        .map(|step| {
            let at = |rows: &[Vec<f64>]| (rows.len() + step).checked_sub(steps).and_then(|at| rows.get(at).cloned());
            let vectors: Vec<Vec<f64>> = rows
                .iter()
                .map(|(sequence, rows)| match sequence {
                    true => at(rows).unwrap_or_else(|| vec![0.0; model.dim]),
                    false => rows[0].clone(),
                })
                .collect();
            let inputs = std::iter::once(step as f64 / steps as f64).chain(dense.iter().copied()).collect();
            let x = perceptron(weights, "bot_l", inputs, true);
            let z = perceptron(weights, "top_l", interacted(config, weights, x, &vectors), true);
            let there = rows.iter().any(|(sequence, rows)| *sequence && at(rows).is_some());
            let norm = z.iter().map(|z| z * z).sum::<f64>().sqrt().max(1e-12);
            z.into_iter().map(|z| if there { z / norm } else { 0.0 }).collect()
        })
        .collect();
    let (asked, seen) = spheres.split_last().unwrap();
    let (matrix, m) = (tensor(weights, "ams.0.A"), asked.len());
    let u: Vec<f64> = (0..m).map(|k| (0..m).map(|i| matrix[k * m + i] * asked[i]).sum()).collect();
    let x: Vec<f64> = (0..m).map(|i| (0..m).map(|k| matrix[k * m + i] * u[k]).sum()).collect();
    let like = seen.iter().map(|v| v.iter().zip(&x).map(|(v, x)| v * x).sum()).collect();
    let y = perceptron(weights, "ams.0.mlp", like, false).into_iter().map(|y| 1.0 / (1.0 + (-y).exp()));
    let mut both = vec![0.0; m];
    for (y, v) in y.zip(seen) {
        both.iter_mut().zip(v).for_each(|(c, v)| *c += y * v);
    }
    both.extend(asked);
    perceptron(weights, "mlps.0", both, false)[0]
}

/// The mean loss of the specification (reference page, C1).
fn loss(config: &Config, weights: &Weights, batch: &Batch) -> f64 {
    let model = &config.model;
    let samples = batch.samples();
    let each = (0..samples).map(|n| {
        let dense = &batch.dense[n * batch.dense_width..(n + 1) * batch.dense_width];
        let (mut vectors, mut rows, mut wide) = (Vec::<Vec<f64>>::new(), Vec::new(), 0.0);
        let composed = composed(weights);
        for (t, bag) in batch.bags.iter().enumerate() {
            let remainders = t.checked_sub(TABLES).and_then(|number| composed.get(number));
            let name = match (t.checked_sub(TABLES), remainders) {
                (None, _) if composed.contains(&t) => format!("emb_l.{t}.weight_q"),
                (None, _) => format!("emb_l.{t}.weight"),
                (Some(_), Some(column)) => format!("emb_l.{column}.weight_r"),
                (Some(number), None) => format!("wide_l.{number}.weight"),
            };
            let (_, shape, table) = weights.iter().find(|(known, ..)| *known == name).unwrap();
            let matrix = weights.iter().find(|(known, ..)| *known == name.replace("weight", "proj.weight"));
            let dim = shape[1];
            let learned =
                weights.iter().find(|(known, ..)| *known == name.replace("emb_l", "v_W_l").replace(".weight", ""));
            let learned = |row: u32| learned.map_or(1.0, |(.., weights)| weights[row as usize]);
            let row = |row: u32, e: usize| learned(row) * table[row as usize * dim + e];
            let first = bag.offsets[n] as usize;
            let weight = |k: usize| batch.weights[t].get(first + k).map_or(1.0, |&weight| f64::from(weight));
            let part = if model.pooling == Pooling::Mean { 1.0 / bag.of(n).len().max(1) as f64 } else { 1.0 };
            let pooled = |e: usize| bag.of(n).iter().enumerate().map(|(k, &r)| part * weight(k) * row(r, e)).sum();
            let mut vector: Vec<f64> = (0..dim).map(pooled).collect();
            if let Some((.., matrix)) = matrix {
                vector = matrix.chunks(dim).map(|row| row.iter().zip(&vector).map(|(w, x)| w * x).sum()).collect();
            }
            let sequence = model.sequences.contains(&format!("C{}", t + 1));
            let single = |(k, &r): (usize, &u32)| (0..dim).map(|e| weight(k) * row(r, e)).collect();
            rows.push(match sequence {
                true => (true, bag.of(n).iter().enumerate().map(single).collect()),
                false => (false, vec![vector.clone()]),
            });
            match remainders {
                _ if t < TABLES => vectors.push(vector),
                Some(&column) => match model.qr_operation {
                    Composition::Mult => vectors[column].iter_mut().zip(vector).for_each(|(q, r)| *q *= r),
                    Composition::Add => vectors[column].iter_mut().zip(vector).for_each(|(q, r)| *q += r),
                    Composition::Concat => vectors[column].extend(vector),
                },
                None => wide += vector[0],
            }
        }
        let dense: Vec<f64> = dense.iter().map(|&v| f64::from(v)).collect();
        if model.wide && !dense.is_empty() {
            let of_dense = tensor(weights, "wide_dense.weight").iter().zip(&dense);
            wide += of_dense.map(|(w, x)| w * x).sum::<f64>() + tensor(weights, "wide_dense.bias")[0];
        }
        let z = match model.ts_length {
            _ if !model.layers.is_empty() => logit(model, weights, dense, &vectors, wide),
            0 => {
                let x = perceptron(weights, "bot_l", dense, true);
                perceptron(weights, "top_l", interacted(config, weights, x, &vectors), false)[0] + wide
            }
            _ => series(config, weights, &dense, &rows),
        };
        let h = f64::from(model.loss_threshold);
        let p = 1.0 / (1.0 + (-z).exp());
        let p = if h > 0.0 { p.clamp(h, 1.0 - h) } else { p };
        let t = f64::from(batch.labels[n]);
        let entropy = -(t * p.ln() + (1.0 - t) * (1.0 - p).ln());
        match model.loss {
            Loss::Mse => (p - t) * (p - t),
            Loss::Bce => entropy,
            Loss::Wbce => f64::from(model.loss_weights[t as usize]) * entropy,
        }
    });
    each.sum::<f64>() / samples as f64
}

fn random_batch(schema: &Schema, samples: usize, seed: u64) -> Batch {
    let random = Random::new(seed, Stream::Label);
    let mut next = 0;
    let mut draw = |bound: u64| {
        next += 1;
        random.below(next, bound)
    };
    let mut batch = Batch::new(schema);
    for _ in 0..samples {
        batch.dense.extend((0..schema.dense).map(|_| draw(1000) as f32 / 500.0 - 1.0));
        batch.labels.push(draw(2) as f32);
        for ((column, bag), weights) in schema.tables.iter().zip(&mut batch.bags).zip(&mut batch.weights) {
            // Empty bags and repeated rows included.
            (0..draw(4)).for_each(|_| bag.rows.push(draw(column.rows) as u32));
            if column.weighted {
                weights.resize_with(bag.rows.len(), || draw(1000) as f32 / 400.0 - 1.0);
            }
            Bag::close(bag);
        }
    }
    batch.check(schema).unwrap();
    batch
}

/// Tables of the data.
const TABLES: usize = 3;

/// The columns that are looked up by quotients, and by remainders in tables behind those of all.
fn composed(weights: &Weights) -> Vec<usize> {
    let is_there = |name: String| weights.iter().any(|(known, ..)| *known == name);
    (0..TABLES).filter(|column| is_there(format!("emb_l.{column}.weight_q"))).collect()
}

/// How often a step moves a weight: an embedding row once a look-up, anything else once.
fn moves(tensor: &str, row: usize, batch: &Batch, composed: &[usize]) -> f64 {
    let number = |rest: &str| rest.split('.').next().unwrap().parse::<usize>().unwrap();
    let wide = tensor.strip_prefix("wide_l.").map(|rest| TABLES + number(rest));
    let behind = |column: usize| TABLES + composed.iter().position(|composed| *composed == column).unwrap();
    let of_column = |column| if tensor.ends_with("_r") { behind(column) } else { column };
    let table = tensor.strip_prefix("emb_l.").map(number).map(of_column).or(wide);
    table.map_or(1.0, |t| batch.bags[t].rows.iter().filter(|&&looked_up| looked_up as usize == row).count() as f64)
}

fn check(settings: &[&str], threads: usize, seed: u64) {
    check_weighted(settings, threads, seed, &[]);
}

/// With look-ups of some tables weighted.
fn check_weighted(settings: &[&str], threads: usize, seed: u64, weighted: &[usize]) {
    let largest = compare(settings, threads, seed, weighted);
    assert!(largest > 1e-3, "{settings:?}: there were gradients to compare");
}

/// Returns the largest gradient that there was.
fn compare(settings: &[&str], threads: usize, seed: u64, weighted: &[usize]) -> f64 {
    let mut layers = Layers::default();
    for setting in settings {
        layers.assignment(setting).unwrap();
    }
    let config = layers.finish(Command::Train).unwrap();
    let mut schema = Schema::criteo(config.model.dense(), &[5, 3, 40]);
    weighted.iter().for_each(|&table| schema.tables[table].weighted = true);
    if let Some(columns) = derived_columns(&config.model, &schema).unwrap() {
        // Each table gets look-ups of its own: what they are made of is another test's.
        schema = columns.schema(&schema);
    }
    let (update, update_fused) = (config.train.update, config.train.update_fused);
    let spec = TrainSpec { update, update_fused, ..TrainSpec::sgd(19) };
    let model = crate::alone::alone(&config.model, &schema, spec, threads, Isa::best()).unwrap();
    model.initialise(seed).unwrap();
    let is_row_weight = |of: &Parameter| matches!(of.slot, TensorSlot::Table(_, TableTensor::RowWeight));
    for (at, of) in (1..).zip(model.parameters().unwrap()).filter(|(_, of)| is_row_weight(of)) {
        // All begin with 1, which tells little.
        let values: Vec<f32> = (0..of.len()).map(|row| (at * row % 7) as f32 * 0.375 - 0.5).collect();
        model.import_rows(&of, 0..of.rows(), &values).unwrap();
    }
    let batch = Arc::new(random_batch(&schema, 19, seed));
    let export = |model: &Ranks| -> Weights {
        let wide = |values: Vec<f32>| values.into_iter().map(f64::from).collect();
        let parameters = model.parameters().unwrap();
        let name = |name: &str| renamed(name.strip_prefix("dlrm.").unwrap_or(name), config.model.top.len());
        parameters.iter().map(|p| (name(&p.name), p.shape.clone(), wide(model.export(p).unwrap()))).collect()
    };
    let mut weights = export(&model);
    let expected_loss = loss(&config, &weights, &batch);
    // A power of two: the step itself rounds only once, when it is added to the weight.
    let rate = 0.5f32;
    let found_loss = model.step(&batch, rate).unwrap();
    assert!((found_loss - expected_loss).abs() < 2e-6, "{settings:?}: loss {found_loss}, f64 {expected_loss}");
    let moved = export(&model);
    let mut largest: f64 = 0.0;
    for t in 0..weights.len() {
        for i in 0..weights[t].2.len() {
            let here = weights[t].2[i];
            let mut nudged = |by: f64| {
                weights[t].2[i] = here + by;
                let value = loss(&config, &weights, &batch);
                weights[t].2[i] = here;
                value
            };
            let nudge = 1e-6;
            let expected = (nudged(nudge) - nudged(-nudge)) / (2.0 * nudge);
            let found = (here - moved[t].2[i]) / f64::from(rate);
            largest = largest.max(expected.abs());
            // Rounding of the weight itself (half a unit in its last place, over the rate, each time it moves), of the
            // f32 chain, and of the difference quotient.
            let row = i / weights[t].1.get(1).copied().unwrap_or(1);
            let moves = moves(&weights[t].0, row, &batch, &composed(&weights));
            let bound = 1.2e-7 * here.abs() * moves + 3e-6 * expected.abs() + 2e-7;
            assert!(
                (found - expected).abs() < bound,
                "{settings:?}: {} [{i}]: gradient {found:e}, finite difference {expected:e}",
                weights[t].0
            );
        }
    }
    largest
}

const SIZES: [&str; 3] = ["model.bottom=[6, 9, 4]", "model.top=[11, 5, 1]", "model.dim=4"];

#[test]
fn dot_interaction_and_cross_entropy() {
    for threads in [1, 2, 5] {
        check(&SIZES, threads, 3);
    }
}

#[test]
fn dot_with_itself_and_squared_error() {
    check(&[&SIZES[..], &["model.interaction_itself=true", "model.loss=mse"]].concat(), 2, 4);
}

#[test]
fn concatenation_and_weighted_cross_entropy() {
    let sizes = ["model.interaction=cat", "model.bottom=[6, 9, 7]", "model.top=[11, 5, 1]", "model.dim=4"];
    check(&[&sizes[..], &["model.loss=wbce", "model.loss_weights=[0.6, 2.5]"]].concat(), 2, 5);
}

#[test]
fn cross_layers_and_cross_entropy() {
    let sizes = ["model.interaction=dcn", "model.bottom=[6, 9, 7]", "model.top=[11, 5, 1]", "model.dim=4"];
    for (layers, rank, threads) in
        [("model.cross_layers=1", 3, 1), ("model.cross_layers=2", 5, 2), ("model.cross_layers=3", 1, 3)]
    {
        check(&[&sizes[..], &[layers, &format!("model.cross_rank={rank}")]].concat(), threads, 9);
    }
    // More numbers between V and W than x_0 has, and one layer behind.
    let other = ["model.interaction=dcn", "model.bottom=[3, 4]", "model.top=[1]", "model.dim=4", "model.cross_rank=19"];
    check(&[&other[..], &["model.cross_layers=2", "model.pooling=mean"]].concat(), 2, 10);
}

#[test]
fn layers_of_ones_own() {
    let sizes = ["model.bottom=[6]", "model.dim=4"];
    let everything = r#"model.layers=[
        { name = "logit", type = "sum", of = ["out", "side", "wide"] },
        { name = "bottom", type = "linear", of = "dense", outputs = [7, 4] },
        { name = "x", type = "relu", of = "bottom" },
        { name = "g", type = "sigmoid", of = "gate" },
        { name = "gate", type = "linear", of = "dense", outputs = 4 },
        { name = "fm", type = "dot", of = ["x", "g", "C1", "C3"], itself = true },
        { name = "mixed", type = "sum", of = ["x", "C2"] },
        { name = "deep", type = "concat", of = ["mixed", "g", "embeddings"] },
        { name = "crossed", type = "cross", of = "deep", layers = 2, rank = 3 },
        { name = "r", type = "relu", of = "crossed" },
        { name = "tower", type = "linear", of = "r", outputs = 5 },
        { name = "t", type = "relu", of = "tower" },
        { name = "both", type = "concat", of = ["t", "fm", "C2"] },
        { name = "out", type = "linear", of = "both", outputs = [6, 1] },
        { name = "side", type = "linear", of = "embeddings", outputs = 1 },
        { name = "wide", type = "wide" },
    ]"#;
    for threads in [1, 3] {
        check(&[&sizes[..], &[everything]].concat(), threads, 61);
    }
    // A logit that is bent, by itself or before the wide part is added.
    for end in [
        r#"{ name = "logit", type = "relu", of = "deep" }"#,
        r#"{ name = "bent", type = "relu", of = "deep" }, { name = "wide", type = "wide" },
           { name = "logit", type = "sum", of = ["wide", "bent"] }"#,
    ] {
        let layers = format!(
            r#"model.layers=[{{ name = "all", type = "concat", of = ["dense", "embeddings"] }},
               {{ name = "deep", type = "linear", of = "all", outputs = [5, 1] }}, {end}]"#
        );
        // Some begin with a logit that is 0 for all samples, or for none.
        let settings = [&sizes[..], &[&layers]].concat();
        let found = (63..69).map(|seed| compare(&settings, 2, seed, &[]));
        assert!(found.filter(|largest| *largest > 1e-3).count() > 1, "{settings:?}: there were gradients to compare");
    }
    // A result that is read twice and never bent, two cross networks, and products that are the logit's last but one.
    let other = r#"model.layers=[
        { name = "one", type = "linear", of = "dense", outputs = [4] },
        { name = "a", type = "cross", of = "one", layers = 1, rank = 2 },
        { name = "b", type = "cross", of = "embeddings", layers = 1, rank = 5 },
        { name = "all", type = "sum", of = "embeddings" },
        { name = "pairs", type = "dot", of = ["one", "a", "all"] },
        { name = "joined", type = "concat", of = ["pairs", "b"] },
        { name = "logit", type = "linear", of = "joined", outputs = 1 },
    ]"#;
    check_weighted(&[&sizes[..], &[other, "model.pooling=mean"]].concat(), 2, 62, &[1]);
}

#[test]
fn a_wide_part_beside_any_interaction() {
    let wide = ["model.wide=true", "model.wide_crosses=[[\"C1\",\"C2\"]]", "model.wide_buckets=20"];
    for threads in [1, 3] {
        check(&[&SIZES[..], &wide].concat(), threads, 21);
    }
    let deep = ["model.interaction=cat", "model.bottom=[6]", "model.top=[11, 1]", "model.dim=4"];
    check(&[&deep[..], &wide].concat(), 2, 22);
    check_weighted(&[&deep[..], &wide, &["model.pooling=mean"]].concat(), 2, 23, &[0, 2]);
    let cross = ["model.interaction=dcn", "model.bottom=[3, 4]", "model.top=[1]", "model.dim=4", "model.cross_rank=5"];
    check(&[&cross[..], &wide[..1]].concat(), 2, 24);
    // Features that nothing was done to meet in a cross network, too.
    let plain = ["model.interaction=dcn", "model.bottom=[3]", "model.top=[5, 1]", "model.dim=4", "model.cross_rank=5"];
    check(&plain, 2, 25);
}

#[test]
fn a_time_series_of_any_interaction() {
    let tower =
        ["model.bottom=[3, 9, 4]", "model.top=[11, 6]", "model.dim=4", "model.ts_length=2", "model.arch_mlp=[7, 1]"];
    let sequences = ["model.tsl_mlp=[5, 3]", "model.sequences=[\"C1\", \"C3\"]"];
    for threads in [1, 3] {
        check(&[&tower[..], &sequences].concat(), threads, 31);
    }
    // As many numbers and steps as are more than a vector, of which one sequence tells the first; no layers in between.
    let long = ["model.ts_length=17", "model.top=[18]", "model.tsl_mlp=[]", "model.sequences=[\"C3\"]"];
    check(&[&tower[..], &long, &["model.interaction=cat"]].concat(), 2, 32);
    let cross = ["model.interaction=dcn", "model.cross_layers=2", "model.cross_rank=3", "model.pooling=mean"];
    check_weighted(&[&tower[..], &sequences, &cross].concat(), 2, 33, &[0, 1]);
    check(&[&tower[..], &sequences, &["model.loss=mse", "model.interaction_itself=true"]].concat(), 2, 34);
}

#[test]
fn narrow_tables_beside_others() {
    // Of 5, 3 and 40 rows: of three, four and one columns.
    let mixed = ["model.md_temperature=0.4", "model.md_threshold=4"];
    for threads in [1, 3] {
        check(&[&SIZES[..], &mixed].concat(), threads, 41);
    }
    let cat = [
        "model.interaction=cat",
        "model.bottom=[6, 9, 7]",
        "model.top=[11, 5, 1]",
        "model.dim=4",
        "model.pooling=mean",
    ];
    check_weighted(&[&cat[..], &mixed, &["model.wide=true"]].concat(), 2, 42, &[0, 2]);
    let cross = ["model.interaction=dcn", "model.bottom=[3, 4]", "model.top=[1]", "model.dim=4", "model.cross_rank=5"];
    check(&[&cross[..], &mixed].concat(), 2, 43);
}

#[test]
fn quotients_and_remainders_beside_a_whole_table() {
    // Of 5 and 40 rows two tables each: of three and two, and of twenty and two.
    let composed = ["model.rows=[5, 3, 40]", "model.qr_collisions=2", "model.qr_threshold=4"];
    for threads in [1, 3] {
        check(&[&SIZES[..], &composed].concat(), threads, 44);
    }
    let cat = [
        "model.interaction=cat",
        "model.bottom=[6, 9, 7]",
        "model.top=[11, 5, 1]",
        "model.dim=4",
        "model.qr_operation=add",
    ];
    check_weighted(&[&cat[..], &composed, &["model.pooling=mean"]].concat(), 2, 45, &[0, 1]);
    let cross = ["model.interaction=dcn", "model.bottom=[3, 4]", "model.top=[1]", "model.dim=4", "model.cross_rank=5"];
    check(&[&cross[..], &composed, &["model.qr_operation=concat"]].concat(), 2, 46);
}

#[test]
fn learned_weights_of_rows() {
    let learned = "model.weighted_pooling=learned";
    for threads in [1, 3] {
        check(&[&SIZES[..], &[learned]].concat(), threads, 47);
        check_weighted(&[&SIZES[..], &[learned, "model.pooling=mean"]].concat(), threads, 48, &[0, 2]);
    }
    check(&[&SIZES[..], &[learned, "train.update_fused=false"]].concat(), 2, 49);
    let narrow = ["model.md_temperature=0.4", "model.md_threshold=4", "model.wide=true", learned];
    check_weighted(&[&SIZES[..], &narrow].concat(), 2, 50, &[1]);
    let series =
        ["model.bottom=[3, 9, 4]", "model.top=[11, 6]", "model.dim=4", "model.ts_length=2", "model.arch_mlp=[7, 1]"];
    let sequences = ["model.tsl_mlp=[5, 3]", "model.sequences=[\"C1\", \"C3\"]", learned];
    check_weighted(&[&series[..], &sequences].concat(), 2, 51, &[0]);
}

#[test]
fn clamped_probabilities_stop_the_gradient() {
    check(&[&SIZES[..], &["model.loss_threshold=0.35"]].concat(), 2, 6);
}

#[test]
fn one_layer_each() {
    let settings = ["model.bottom=[3, 4]", "model.top=[1]", "model.dim=4"];
    check(&settings, 2, 7);
}

#[test]
fn weighted_look_ups_beside_others() {
    for pooling in ["model.pooling=sum", "model.pooling=mean"] {
        for update in ["auto", "serial", "atomic", "race-free", "sorted"] {
            for fused in [true, false] {
                let update = [format!("train.update={update}"), format!("train.update_fused={fused}")];
                let settings = [&SIZES[..], &[pooling, &update[0], &update[1], "train.determinism=none"]].concat();
                check_weighted(&settings, 2, 8, &[0, 2]);
            }
        }
    }
}
