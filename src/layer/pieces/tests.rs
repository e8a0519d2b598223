//! Pieces move as their layer does, and the layer as each of its weights.

use super::*;
use crate::base::config::Precision;
use crate::layer::LayerTensor;
use crate::machine::team::Team;
use crate::math::random;
use crate::memory::Supply;
use crate::optim::{Averages, ParamState};

/// A layer with weights, biases and gradients; equal for equal shapes.
fn layer(inputs: usize, outputs: usize, kept: ParamState) -> Linear {
    let mut layer = Linear::new(inputs, outputs, kept, &mut Supply::System).unwrap();
    layer.import(LayerTensor::Weight, 0..outputs, &random(inputs * outputs, 1));
    layer.bias_mut().copy_from_slice(&random(outputs, 2));
    let gradient = layer.update_operands().gradient;
    gradient.weight.import(0..inputs, &random(inputs * outputs, 3), outputs);
    gradient.bias.copy_from_slice(&random(outputs, 4));
    layer
}

fn bits(layer: &Linear) -> Vec<u32> {
    let tensors = [LayerTensor::Weight, LayerTensor::Bias];
    tensors.into_iter().flat_map(|tensor| layer.export(tensor, 0..layer.outputs())).map(f32::to_bits).collect()
}

fn moments(layer: &mut Linear) -> Vec<Vec<f32>> {
    let count = layer.update_operands().optimizer.moments().len();
    let of = |moment| [LayerTensor::WeightMoment(moment), LayerTensor::BiasMoment(moment)];
    (0..count).flat_map(of).map(|tensor| layer.export(tensor, 0..layer.outputs())).collect()
}

#[test]
fn a_layer_moves_as_each_of_its_weights() {
    let team = Team::new(3).unwrap();
    for ((inputs, outputs), kept) in cases().filter(|(_, kept)| kept.precision != Precision::Bf16Lsb8) {
        let mut layer = layer(inputs, outputs, kept);
        let count = inputs * outputs;
        let (mut weights, mut biases) = (random(count, 1), random(outputs, 2));
        let [mut of_weights, mut of_biases] = [count, outputs].map(|len| [vec![0.0f32; len], vec![0.0; len]]);
        // Gradients are inputs x outputs, weights outputs x inputs.
        let gradient: Vec<f32> = {
            let g = random(count, 3);
            (0..count).map(|at| g[at % inputs * outputs + at / inputs]).collect()
        };
        let step = |weights: &mut [f32], kept_of: &mut [Vec<f32>; MOMENTS], gradient: &[f32], step_size: StepSize| {
            for (at, (weight, gradient)) in weights.iter_mut().zip(gradient).enumerate() {
                let mut own = [kept_of[0][at], kept_of[1][at]];
                *weight = with_rule!(kept.optimizer, step_size, rule => rule.step(*weight, *gradient, &mut own));
                [kept_of[0][at], kept_of[1][at]] = own;
            }
        };
        for number in 1..=3 {
            let step_size = StepSize { rate: 0.3, step: number };
            layer.update(&team, step_size);
            step(&mut weights, &mut of_weights, &gradient, step_size);
            step(&mut biases, &mut of_biases, &random(outputs, 4), step_size);
        }
        let expected: Vec<u32> = weights.iter().chain(&biases).map(|x| x.to_bits()).collect();
        assert_eq!(bits(&layer), expected, "{inputs} x {outputs} {kept:?}");
        let of_each = of_weights.into_iter().zip(of_biases).take(kept.optimizer.moments().len());
        let expected: Vec<_> = of_each.flat_map(|(weight, bias)| [weight, bias]).collect();
        assert_eq!(moments(&mut layer), expected, "{inputs} x {outputs} {kept:?}");
    }
}

const SHAPES: [(usize, usize); 6] = [(1, 1), (13, 64), (33, 65), (64, 130), (129, 48), (200, 513)];

fn cases() -> impl Iterator<Item = ((usize, usize), ParamState)> {
    let averages = Averages { beta1: 0.9, beta2: 0.999, eps: 1e-8, bias_correction: true };
    let optimizers = [
        Optimizer::Sgd,
        Optimizer::SgdWithDecay { decay: 0.1 },
        Optimizer::Momentum { momentum: 0.9, decay: 0.0 },
        Optimizer::Adam { averages, decay: 0.1 },
    ];
    let precisions = [Precision::F32, Precision::Bf16, Precision::Bf16Lsb8];
    let kept =
        precisions.map(|precision| optimizers.map(|optimizer| ParamState { precision, optimizer, row_weights: false }));
    SHAPES.into_iter().flat_map(move |shape| kept.concat().into_iter().map(move |kept| (shape, kept)))
}

#[test]
fn pieces_move_as_the_layer_does() {
    let team = Team::new(1).unwrap();
    for ((inputs, outputs), kept) in cases() {
        for count in [1, 2, 3, 8, 40] {
            let (mut whole, mut cut) = (layer(inputs, outputs, kept), layer(inputs, outputs, kept));
            for _ in 0..2 {
                whole.update(&team, 0.3.into());
                cut.pieces(count).flatten().for_each(|mut piece| piece.update(team.isa(), 0.3.into()));
            }
            assert_eq!(moments(&mut whole), moments(&mut cut), "{inputs} x {outputs} {kept:?} in {count}");
            assert_eq!(bits(&whole), bits(&cut), "{inputs} x {outputs} {kept:?} in {count}");
        }
    }
}

/// What LAMB is, with norms in 64 bits: a tensor of weights and its moments, moved once.
fn lamb(weights: &mut [f32], moments: &mut [Vec<f64>; 2], gradient: &[f32], step_size: StepSize) {
    let step = i32::try_from(step_size.step).unwrap();
    let direction = |(at, (weight, g)): (usize, (&f32, &f32))| {
        let g = f64::from(*g);
        moments[0][at] = 0.9 * moments[0][at] + 0.1 * g;
        moments[1][at] = 0.999 * moments[1][at] + 0.001 * g * g;
        let [mean, square] = [moments[0][at] / (1.0 - 0.9f64.powi(step)), moments[1][at] / (1.0 - 0.999f64.powi(step))];
        mean / (square.sqrt() + 1e-6) + 0.1 * f64::from(*weight)
    };
    let directions: Vec<f64> = weights.iter().zip(gradient).enumerate().map(direction).collect();
    let norm = |numbers: &mut dyn Iterator<Item = f64>| numbers.map(|x| x * x).sum::<f64>().sqrt();
    let trust = norm(&mut weights.iter().map(|x| f64::from(*x))).min(10.0) / norm(&mut directions.iter().copied());
    let move_one = |(weight, direction): (&mut f32, &f64)| {
        *weight = (f64::from(*weight) - f64::from(step_size.rate) * trust * direction) as f32;
    };
    weights.iter_mut().zip(&directions).for_each(move_one);
}

#[test]
fn lamb_moves_a_layer_by_the_norms_of_all_of_it_on_any_number_of_threads() {
    let averages = Averages { beta1: 0.9, beta2: 0.999, eps: 1e-6, bias_correction: true };
    let optimizer = Optimizer::Lamb { averages, decay: 0.1 };
    for (inputs, outputs) in SHAPES {
        let count = inputs * outputs;
        let (mut weights, mut biases) = (random(count, 1), random(outputs, 2));
        let mut kept = [count, outputs].map(|len| [vec![0.0f64; len], vec![0.0; len]]);
        let kinds = [Precision::F32, Precision::Bf16];
        let kinds = kinds.into_iter().flat_map(|kind| [1, 2, 3].map(|threads| (kind, threads)));
        let new = |(precision, threads)| {
            (
                layer(inputs, outputs, ParamState { precision, optimizer, row_weights: false }),
                Team::new(threads).unwrap(),
            )
        };
        let mut layers: Vec<_> = kinds.map(new).collect();
        for step in 1..=3 {
            let step_size = StepSize { rate: 0.05, step };
            let given = random(count, 3 + step as u32);
            let transposed: Vec<f32> = (0..count).map(|at| given[at % inputs * outputs + at / inputs]).collect();
            lamb(&mut weights, &mut kept[0], &transposed, step_size);
            lamb(&mut biases, &mut kept[1], &random(outputs, 40), step_size);
            for (layer, team) in &mut layers {
                let gradient = layer.update_operands().gradient;
                gradient.weight.import(0..inputs, &given, outputs);
                gradient.bias.copy_from_slice(&random(outputs, 40));
                layer.update(team, step_size);
            }
        }
        let first = (bits(&layers[0].0), moments(&mut layers[0].0));
        for (layer, team) in &mut layers {
            let what = format!("{inputs} x {outputs}, {} threads", team.threads());
            assert!((bits(layer), moments(layer)) == first, "{what}");
        }
        let found = first.0.iter().map(|bits| f32::from_bits(*bits));
        for (found, expected) in found.zip(weights.iter().chain(&biases)) {
            assert!((found - expected).abs() < 2e-5, "{inputs} x {outputs}: {found}, not {expected}");
        }
    }
}

#[test]
fn words_are_all_there_is_and_finer_cuts_keep_boundaries() {
    for ((inputs, outputs), kept) in cases() {
        let (mut from, mut to) = (layer(inputs, outputs, kept), layer(inputs, outputs, kept));
        to.import(LayerTensor::Weight, 0..outputs, &vec![0.0; inputs * outputs]);
        to.bias_mut().fill(0.0);
        for (from, to) in from.pieces(6).flatten().zip(to.pieces(6).flatten()) {
            for (from, to) in from.into_words().into_iter().zip(to.into_words()) {
                to.copy_from_slice(from);
            }
        }
        assert_eq!(bits(&from), bits(&to), "{inputs} x {outputs} {kept:?}");

        let lengths = |layer: &mut Linear, count: usize| -> Vec<[usize; 2]> {
            layer.pieces(count).map(|pair| pair.map(|mut piece| piece.gradient().len())).collect()
        };
        let (coarse, fine) = (lengths(&mut from, 3), lengths(&mut from, 6));
        let joined: Vec<_> = fine.chunks(2).map(|two| [two[0][0] + two[1][0], two[0][1] + two[1][1]]).collect();
        assert_eq!(coarse, joined, "{inputs} x {outputs} {kept:?}");
    }
}
