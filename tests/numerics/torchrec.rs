//! TorchRec's models against PyTorch: logits of the same weights, and what 30 steps make of them. `tests/vectors/README.md` says where
//! the file comes from.

use std::sync::Arc;

use octorec::base::config::{Command, Layers, Precision};
use octorec::data::Schema;
use octorec::model::Room;
use octorec::optim::Optimizer;
use octorec::simd::Isa;
use octorec::train::{Ranks, Rates};
use safetensors::SafeTensors;

use crate::parity::{batch, distance, numbers, vector_file};

/// Trains for 30 steps, and compares logits, every loss, every weight and all that the optimizers keep.
fn follow(case: &str, threads: usize, isa: Isa, precision: Precision) {
    let bytes = vector_file("torchrec.safetensors");
    let (_, header) = SafeTensors::read_metadata(&bytes).unwrap();
    let tensors = SafeTensors::deserialize(&bytes).unwrap();
    let mut layers = Layers::default();
    layers.document(&header.metadata().as_ref().unwrap()[case], "vectors").unwrap();
    let config = layers.finish(Command::Train).unwrap();
    let (model, tables) = (&config.model, config.model.rows.len());
    let schema = Schema::criteo(model.dense(), &model.rows);
    let (optimizer, optimizer_rows) = (Optimizer::dense(&config.train), Optimizer::rows(&config.train));
    let room = Room { lookups: 9, precision, optimizer, optimizer_rows, ..Room::samples(40) };
    let ranks = Ranks::alone(model, &schema, room, threads, isa).unwrap();
    let mut parameters = ranks.parameters().unwrap();
    for parameter in &parameters {
        ranks.import(parameter, &numbers::<f32>(&tensors, &format!("{case}.init.{}", parameter.name))).unwrap();
    }
    let minibatches = (0..).take_while(|at| tensors.tensor(&format!("{case}.batch{at}.dense")).is_ok()).count();
    let batches: Vec<_> = (0..minibatches)
        .map(|at| Arc::new(batch(&tensors, &format!("{case}.batch{at}"), tables, schema.dense)))
        .collect();
    // Bfloat16 keeps 8 bits: what it computes is near, and tests of roundings say how it computes.
    let [logits, loss, weights] = match precision {
        Precision::F32 => [1e-6, 1e-5, 1e-5],
        Precision::Bf16 | Precision::Bf16Lsb8 => [5e-3, 5e-3, 5e-2],
    };
    for (at, batch) in batches.iter().enumerate() {
        batch.check(&schema).unwrap();
        let expected: Vec<f32> = numbers(&tensors, &format!("{case}.logits{at}"));
        for (p, expected) in ranks.predict(batch).unwrap().iter().zip(&expected) {
            let logit = (f64::from(*p) / (1.0 - f64::from(*p))).ln();
            assert!((logit - f64::from(*expected)).abs() < logits, "{case}, minibatch {at}: {logit}, not {expected}");
        }
    }
    let losses: Vec<f32> = numbers(&tensors, &format!("{case}.losses"));
    assert_eq!(losses.len(), 30);
    for (step, &expected) in losses.iter().enumerate() {
        let found = ranks.step(&batches[step % minibatches], Rates::base(&config.train)).unwrap();
        let apart = (found / f64::from(expected) - 1.0).abs();
        assert!(apart < loss, "{case}, {isa:?}, step {}: loss {found}, PyTorch {expected}", step + 1);
    }
    parameters.extend(ranks.moments(&parameters));
    for parameter in &parameters {
        let expected: Vec<f32> = numbers(&tensors, &format!("{case}.{}", parameter.name));
        let apart = distance(&ranks.export(parameter).unwrap(), &expected);
        assert!(apart < weights, "{case}, {isa:?}: {} is {apart:e} from PyTorch's", parameter.name);
    }
    let theirs = tensors.names().into_iter().filter(|name| name.starts_with(&format!("{case}."))).count();
    let given = tensors
        .names()
        .into_iter()
        .filter(|name| ["init.", "batch", "logits"].iter().any(|kind| name.starts_with(&format!("{case}.{kind}"))));
    assert_eq!(theirs - given.count(), 1 + parameters.len(), "{case}: nothing is kept that is not compared");
}

#[test]
fn pytorch_is_followed_on_any_instruction_set() {
    for case in ["sgd", "adagrad", "one-layer", "dot"] {
        for isa in Isa::every() {
            for threads in [1, 3] {
                follow(case, threads, isa, Precision::F32);
            }
        }
    }
}

/// By SGD: Adagrad divides by what it has seen, and of gradients that are nearly 0 their rounding decides.
#[test]
fn bfloat16_is_near_pytorch() {
    for (case, isa) in Isa::every().into_iter().flat_map(|isa| [("sgd", isa), ("dot", isa)]) {
        follow(case, 2, isa, Precision::Bf16);
    }
}
