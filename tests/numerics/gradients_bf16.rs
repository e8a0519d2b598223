//! Every gradient of a model in bfloat16 against an f64 model that rounds where octorec says it does.
//!
//! The model below is written from the specification (SC20, Section VII), not from octorec's code: layers see the upper
//! halves of their weights, and activations and the gradients between layers are rounded to bfloat16; all other numbers
//! are f64. Sums differ from octorec's by the rounding of 32-bit floats, which now and then puts one of them on the
//! other side of a boundary of bfloat16. That is the tolerance: a few of the thousands of terms of a gradient are off
//! by 2^-9.

use std::sync::Arc;

use octorec::base::config::{Command, Layers, Precision};
use octorec::base::rng::{Random, Stream};
use octorec::data::{Bag, Batch, Schema};
use octorec::model::TrainSpec;
use octorec::simd::Isa;
use octorec::simd::bf16::{narrow, widen};
use octorec::train::Ranks;

use crate::renamed::renamed;

const SAMPLES: usize = 53;
const DIM: usize = 16;
const ROWS: [u64; 3] = [50, 3, 400];

/// Rounded to bfloat16.
fn rounded(x: f64) -> f64 {
    f64::from(widen(narrow(x as f32)))
}

/// What a layer or a look-up sees of a weight.
fn upper_half(x: f32) -> f64 {
    f64::from(f32::from_bits(x.to_bits() & 0xffff_0000))
}

fn dot(a: impl IntoIterator<Item = f64>, b: impl IntoIterator<Item = f64>) -> f64 {
    a.into_iter().zip(b).map(|(a, b)| a * b).sum()
}

/// Tensors by name.
struct Tensors(Vec<(String, Vec<f64>)>);

/// Whether it is the weights of a layer of the top MLP.
fn is_of_top(name: &str) -> bool {
    (name.starts_with("over_arch") || name.starts_with("top_l")) && name.ends_with("weight")
}

impl Tensors {
    fn of(model: &Ranks, see: impl Fn(&str, f32) -> f64) -> Self {
        let tensor = |parameter| model.export(parameter).unwrap();
        let parameters = model.parameters().unwrap();
        let top = parameters.iter().filter(|parameter| is_of_top(&parameter.name)).count();
        let tensors = parameters.iter().map(|parameter| {
            let name = renamed(&parameter.name, top);
            let see = |x| see(&name, x);
            (name.clone(), tensor(parameter).into_iter().map(see).collect())
        });
        Self(tensors.collect())
    }

    fn get(&self, name: &str) -> &[f64] {
        &self.0.iter().find(|(known, _)| known == name).unwrap_or_else(|| panic!("{name}")).1
    }

    fn get_mut(&mut self, name: &str) -> &mut [f64] {
        &mut self.0.iter_mut().find(|(known, _)| known == name).unwrap_or_else(|| panic!("{name}")).1
    }

    fn layers(&self, prefix: &str) -> usize {
        self.0.iter().filter(|(name, _)| name.starts_with(prefix) && name.ends_with("bias")).count()
    }
}

/// What enters each layer, and what leaves the last.
fn forward(weights: &Tensors, prefix: &str, input: &[f64], relu_last: bool) -> Vec<Vec<f64>> {
    let layers = weights.layers(prefix);
    let mut flow = vec![input.iter().map(|&x| rounded(x)).collect::<Vec<_>>()];
    for layer in 0..layers {
        let (x, last) = (&flow[layer], layer + 1 == layers);
        let w = weights.get(&format!("{prefix}.{}.weight", 2 * layer)).chunks(x.len());
        let bias = weights.get(&format!("{prefix}.{}.bias", 2 * layer));
        let sums = w.zip(bias).map(|(w, bias)| bias + dot(w.iter().copied(), x.iter().copied()));
        let relu = sums.map(|y| if last && !relu_last { y } else { y.max(0.0) });
        flow.push(relu.map(|y| if last { y } else { rounded(y) }).collect());
    }
    flow
}

/// Adds a sample's gradients of all layers; returns that of the input.
fn backward(
    weights: &Tensors,
    prefix: &str,
    flow: &[Vec<f64>],
    output: impl Iterator<Item = f64>,
    sums: &mut Tensors,
) -> Vec<f64> {
    let mut dy: Vec<f64> = output.map(rounded).collect();
    for layer in (0..weights.layers(prefix)).rev() {
        let (x, weight) = (&flow[layer], format!("{prefix}.{}.weight", 2 * layer));
        for (dw, dy) in sums.get_mut(&weight).chunks_mut(x.len()).zip(&dy) {
            dw.iter_mut().zip(x).for_each(|(dw, x)| *dw += dy * x);
        }
        let bias = sums.get_mut(&format!("{prefix}.{}.bias", 2 * layer));
        bias.iter_mut().zip(&dy).for_each(|(db, dy)| *db += dy);
        let w = weights.get(&weight);
        let column = |c: usize| dot(dy.iter().copied(), w.iter().skip(c).step_by(x.len()).copied());
        let gated = |c: usize| if x[c] > 0.0 { rounded(column(c)) } else { 0.0 };
        dy = (0..x.len()).map(|c| if layer == 0 { column(c) } else { gated(c) }).collect();
    }
    dy
}

/// What a cross layer leaves: its input x, V x and what x_0 is multiplied by, all rounded.
type Crossed = [Vec<f64>; 3];

/// The matrix with a row for each of so many outputs times a vector.
fn times(matrix: &[f64], x: &[f64]) -> Vec<f64> {
    matrix.chunks(x.len()).map(|row| dot(row.iter().copied(), x.iter().copied())).collect()
}

/// The same with the matrix transposed.
fn times_transposed(matrix: &[f64], dy: &[f64]) -> Vec<f64> {
    let columns = matrix.len() / dy.len();
    (0..columns).map(|c| dot(dy.iter().copied(), matrix.iter().skip(c).step_by(columns).copied())).collect()
}

/// Each layer's numbers, and what leaves the last, which is not rounded.
fn cross(weights: &Tensors, features: &[f64]) -> (Vec<Crossed>, Vec<f64>) {
    let rounded_all = |x: Vec<f64>| x.into_iter().map(rounded).collect::<Vec<_>>();
    let first = rounded_all(features.to_vec());
    let layers = weights.0.iter().filter(|(name, _)| name.contains("V_kernels")).count();
    let (mut levels, mut x) = (Vec::new(), first.clone());
    for layer in 0..layers {
        let of = |kind: &str| weights.get(&format!("inter_arch.crossnet.{kind}.{layer}"));
        let u = rounded_all(times(of("V_kernels"), &x));
        let h = rounded_all(times(of("W_kernels"), &u).iter().zip(of("bias")).map(|(h, b)| h + b).collect());
        let next: Vec<f64> = (0..x.len()).map(|i| first[i] * h[i] + x[i]).collect();
        levels.push([x, u, h]);
        x = if layer + 1 < layers { rounded_all(next) } else { next };
    }
    (levels, x)
}

/// Adds a sample's gradients of all cross layers; returns that of x_0, given that of what leaves the last layer.
fn cross_back(weights: &Tensors, levels: &[Crossed], mut above: Vec<f64>, sums: &mut Tensors) -> Vec<f64> {
    let mut round = vec![0.0; above.len()];
    for (layer, [x, u, h]) in levels.iter().enumerate().rev() {
        let name = |kind: &str| format!("inter_arch.crossnet.{kind}.{layer}");
        let dh: Vec<f64> = above.iter().zip(&levels[0][0]).map(|(g, x0)| rounded(g * x0)).collect();
        round.iter_mut().zip(&above).zip(h).for_each(|((sum, g), h)| *sum += g * h);
        let du: Vec<f64> = times_transposed(weights.get(&name("W_kernels")), &dh).into_iter().map(rounded).collect();
        for (kind, dy, x) in [("W_kernels", &dh, u), ("V_kernels", &du, x)] {
            for (dw, dy) in sums.get_mut(&name(kind)).chunks_mut(x.len()).zip(dy) {
                dw.iter_mut().zip(x).for_each(|(dw, x)| *dw += dy * x);
            }
        }
        sums.get_mut(&name("bias")).iter_mut().zip(&dh).for_each(|(db, dh)| *db += dh);
        let dx = times_transposed(weights.get(&name("V_kernels")), &du);
        above.iter_mut().zip(dx).for_each(|(above, dx)| *above += dx);
    }
    above.iter().zip(round).map(|(above, round)| above + round).collect()
}

/// The mean loss, and the gradients of all weights.
fn model_of_the_roundings(weights: &Tensors, batch: &Batch) -> (f64, Tensors) {
    let is_crossed = weights.0.iter().any(|(name, _)| name.contains("crossnet"));
    let mut sums = Tensors(weights.0.iter().map(|(name, values)| (name.clone(), vec![0.0; values.len()])).collect());
    let mut loss = 0.0;
    for n in 0..SAMPLES {
        let dense: Vec<f64> =
            batch.dense[n * batch.dense_width..][..batch.dense_width].iter().map(|&x| x.into()).collect();
        let bottom = forward(weights, "bot_l", &dense, true);
        let mut vectors = vec![bottom.last().unwrap().clone()];
        for (t, bag) in batch.bags.iter().enumerate() {
            let table = weights.get(&format!("emb_l.{t}.weight"));
            vectors.push((0..DIM).map(|e| bag.of(n).iter().map(|&row| table[row as usize * DIM + e]).sum()).collect());
        }
        let pairs: Vec<_> = (0..vectors.len()).flat_map(|i| (0..i).map(move |j| (i, j))).collect();
        let mut features = vectors[0].clone();
        let mut levels = Vec::new();
        if is_crossed {
            (levels, features) = cross(weights, &vectors.concat());
        } else {
            features.extend(pairs.iter().map(|&(i, j)| dot(vectors[i].iter().copied(), vectors[j].iter().copied())));
        }
        let top = forward(weights, "top_l", &features, false);
        let (z, label) = (top.last().unwrap()[0], f64::from(batch.labels[n]));
        let p = 1.0 / (1.0 + (-z).exp());
        loss -= (label * p.ln() + (1.0 - label) * (1.0 - p).ln()) / SAMPLES as f64;

        let dz = std::iter::once((p - label) / SAMPLES as f64);
        let dfeatures = backward(weights, "top_l", &top, dz, &mut sums);
        let mut dvectors = vec![vec![0.0; DIM]; vectors.len()];
        if is_crossed {
            let dfeatures = cross_back(weights, &levels, dfeatures.clone(), &mut sums);
            dvectors.iter_mut().zip(dfeatures.chunks(DIM)).for_each(|(to, from)| to.copy_from_slice(from));
        } else {
            dvectors[0].copy_from_slice(&dfeatures[..DIM]);
        }
        for (&(i, j), dz) in pairs.iter().zip(&dfeatures[DIM..]).filter(|_| !is_crossed) {
            for e in 0..DIM {
                dvectors[i][e] += dz * vectors[j][e];
                dvectors[j][e] += dz * vectors[i][e];
            }
        }
        let gated = dvectors[0].iter().zip(&vectors[0]).map(|(&dx, &x)| if x > 0.0 { dx } else { 0.0 });
        backward(weights, "bot_l", &bottom, gated, &mut sums);
        for (t, bag) in batch.bags.iter().enumerate() {
            let table = sums.get_mut(&format!("emb_l.{t}.weight"));
            for &row in bag.of(n) {
                table[row as usize * DIM..][..DIM].iter_mut().zip(&dvectors[t + 1]).for_each(|(sum, dx)| *sum += dx);
            }
        }
    }
    (loss, sums)
}

fn batch(schema: &Schema, seed: u64) -> Batch {
    let (random, mut next) = (Random::new(seed, Stream::Label), 0);
    let mut draw = |bound: u64| {
        next += 1;
        random.below(next, bound)
    };
    let mut batch = Batch::new(schema);
    for _ in 0..SAMPLES {
        batch.dense.extend((0..schema.dense).map(|_| draw(1000) as f32 / 500.0 - 1.0));
        batch.labels.push(draw(2) as f32);
        for (column, bag) in schema.tables.iter().zip(&mut batch.bags) {
            (0..draw(4)).for_each(|_| bag.rows.push(draw(column.rows) as u32));
            Bag::close(bag);
        }
    }
    batch.check(schema).unwrap();
    batch
}

#[test]
fn gradients_are_those_of_a_model_with_the_same_roundings() {
    gradients_are_those(&[]);
}

#[test]
fn gradients_of_cross_layers_are_those_of_a_model_with_the_same_roundings() {
    gradients_are_those(&["model.interaction=dcn", "model.cross_layers=1", "model.cross_rank=70"]);
    gradients_are_those(&["model.interaction=dcn", "model.cross_layers=3", "model.cross_rank=9"]);
}

fn gradients_are_those(more: &[&str]) {
    let mut layers = Layers::default();
    let sizes = ["model.bottom=[7, 70, 33, 16]", "model.top=[65, 20, 1]", "model.dim=16"];
    for setting in sizes.iter().chain(more) {
        layers.assignment(setting).unwrap();
    }
    let (config, schema) = (layers.finish(Command::Train).unwrap(), Schema::criteo(7, &ROWS));
    for (isa, seed) in Isa::every().into_iter().zip(3..) {
        let spec = TrainSpec { precision: Precision::Bf16, ..TrainSpec::sgd(SAMPLES) };
        let model = crate::alone::alone(&config.model, &schema, spec, 2, isa).unwrap();
        model.initialise(seed).unwrap();
        let batch = batch(&schema, seed);
        let see = |name: &str, x: f32| if name.contains("bias") { f64::from(x) } else { upper_half(x) };
        let (expected_loss, expected) = model_of_the_roundings(&Tensors::of(&model, see), &batch);
        let rate = 0.5f32;
        let before = Tensors::of(&model, |_, x| f64::from(x));
        let loss = model.step(&Arc::new(batch), rate).unwrap();
        let after = Tensors::of(&model, |_, x| f64::from(x));
        assert!((loss - expected_loss).abs() < 1e-5, "{isa:?}: loss {loss}, not {expected_loss}");
        for ((name, expected), ((_, before), (_, after))) in expected.0.iter().zip(before.0.iter().zip(&after.0)) {
            let length = |x: &mut dyn Iterator<Item = f64>| x.map(|x| x * x).sum::<f64>().sqrt();
            let found = before.iter().zip(after).map(|(before, after)| (before - after) / f64::from(rate));
            let apart = length(&mut found.zip(expected).map(|(found, expected)| found - expected));
            // The step itself is rounded to half a unit in the last place of the weight.
            let rounding = 1.2e-7 * length(&mut before.iter().copied());
            let size = length(&mut expected.iter().copied());
            println!("{isa:?} {name}: {:e}", apart / size);
            assert!(size > 1e-4, "{isa:?}: {name} has a gradient");
            assert!(apart < 1e-3 * size + rounding, "{isa:?}: {name} is off by {apart:e} of {size:e}");
        }
    }
}
