//! TorchRec's models, Wide & Deep, TBSM, tables made smaller, learned weights of rows and networks of one's own layers,
//! against PyTorch: logits of the same weights, and what 30 steps make of them. `tests/vectors/README.md` says where
//! the files come from.

use std::sync::Arc;

use octorec::base::config::{Command, Layers, Precision};
use octorec::data::derived::derived_columns;
use octorec::data::{Bag, Schema};
use octorec::model::TrainSpec;
use octorec::optim::ByGroup;
use octorec::simd::Isa;
use octorec::train::Rates;
use safetensors::SafeTensors;

use crate::parity::{batch, distance, numbers, vector_file};

const TORCHREC: &str = "torchrec.safetensors";
const WIDE: &str = "wide_deep.safetensors";
const SERIES: &str = "tbsm.safetensors";
const SMALL: &str = "small_tables.safetensors";
const OWN: &str = "own_layers.safetensors";
const WEIGHTED: &str = "weighted_pooling.safetensors";

/// Trains for 30 steps, and compares logits, every loss, every weight and all that the optimizers keep.
fn follow([file, case]: [&str; 2], threads: usize, isa: Isa, precision: Precision) {
    let bytes = vector_file(file);
    let (_, header) = SafeTensors::read_metadata(&bytes).unwrap();
    let tensors = SafeTensors::deserialize(&bytes).unwrap();
    let mut layers = Layers::default();
    layers.document(&header.metadata().as_ref().unwrap()[case], "vectors").unwrap();
    let config = layers.finish(Command::Train).unwrap();
    let (model, tables) = (&config.model, config.model.rows.len());
    let mut schema = Schema::criteo(model.dense(), &model.rows);
    for (table, column) in schema.tables.iter_mut().enumerate() {
        column.weighted = tensors.tensor(&format!("{case}.batch0.weights{table}")).is_ok();
    }
    let derived = derived_columns(model, &schema).unwrap();
    let schema = derived.as_ref().map_or(schema.clone(), |derived| derived.schema(&schema));
    let spec = TrainSpec { precision, optimizers: ByGroup::configured(&config.train), ..TrainSpec::sgd(40) };
    let ranks = crate::alone::alone(model, &schema, spec, threads, isa).unwrap();
    let mut parameters = ranks.parameters().unwrap();
    for parameter in &parameters {
        ranks
            .import_rows(
                parameter,
                0..parameter.rows(),
                &numbers::<f32>(&tensors, &format!("{case}.init.{}", parameter.name)),
            )
            .unwrap();
    }
    let minibatches = (0..).take_while(|at| tensors.tensor(&format!("{case}.batch{at}.dense")).is_ok()).count();
    let batches: Vec<_> = (0..minibatches)
        .map(|at| {
            let name = format!("{case}.batch{at}");
            let mut batch = batch(&tensors, &name, tables, schema.dense);
            if let Some(derived) = &derived {
                batch.bags.resize_with(schema.tables.len(), || Bag { offsets: vec![0], rows: Vec::new() });
                batch.weights.resize_with(schema.tables.len(), Vec::new);
                derived.derive(&mut batch, 0).unwrap();
                for (number, bag) in batch.bags[tables..].iter().enumerate() {
                    let of = |what| numbers::<u32>(&tensors, &format!("{name}.derived{number}.{what}"));
                    assert_eq!((&bag.rows, &bag.offsets), (&of("rows"), &of("offsets")), "{name}: derived {number}");
                }
            }
            Arc::new(batch)
        })
        .collect();
    // Bfloat16 keeps 8 bits: what it computes is near, and tests of roundings say how it computes.
    let [logits, loss, weights] = match precision {
        Precision::F32 => [1e-6, 1e-5, 1e-5],
        // Of Wide & Deep the dense features are rounded as they are, in no layer of their own; rows of few columns are
        // multiplied by larger numbers.
        Precision::Bf16 | Precision::Bf16Lsb8 => match file {
            // Of rows near 1 the vectors' products are tens, whose roundings are as much larger than the logit.
            _ if case == "multsgd" || case == "add" => [5e-2, 2e-2, 5e-2],
            SMALL => [1e-2, 1e-2, 5e-2],
            // Products of sums go through four more layers; rows with learned weights are drawn from a wider range.
            OWN | WEIGHTED => [3e-2, 2e-2, 5e-2],
            WIDE => [1e-2, 5e-3, 5e-2],
            _ => [5e-3, 5e-3, 5e-2],
        },
    };
    let compare = |name: &str, bound: f64| {
        for (at, batch) in batches.iter().enumerate() {
            batch.check(&schema).unwrap();
            let expected: Vec<f32> = numbers(&tensors, &format!("{case}.{name}{at}"));
            for (p, expected) in ranks.predict(batch).unwrap().iter().zip(&expected) {
                let logit = (f64::from(*p) / (1.0 - f64::from(*p))).ln();
                let apart = (logit - f64::from(*expected)).abs();
                // Of larger logits, and probabilities near 1, floats have fewer digits.
                assert!(
                    apart < bound * f64::from(expected.abs()).max(1.0),
                    "{case}, {name} {at}: {logit}, not {expected}"
                );
            }
        }
    };
    compare("logits", logits);
    let losses: Vec<f32> = numbers(&tensors, &format!("{case}.losses"));
    assert_eq!(losses.len(), 30);
    for (step, &expected) in losses.iter().enumerate() {
        let found = ranks.step(&batches[step % minibatches], Rates::base(&config.train)).unwrap();
        let apart = (found / f64::from(expected) - 1.0).abs();
        assert!(apart < loss, "{case}, {isa:?}, step {}: loss {found}, PyTorch {expected}", step + 1);
    }
    if tensors.tensor(&format!("{case}.logits_after0")).is_ok() {
        // A wide part begins at 0, and tells something only now.
        compare("logits_after", 10.0 * logits);
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
    let cases = ["sgd", "adagrad", "one-layer", "dot"].map(|case| [TORCHREC, case]);
    let wide = ["ftrl", "adagrad", "nodense", "sgd", "adam"].map(|case| [WIDE, case]);
    let series = ["adagrad", "sgd", "cat", "nodense"].map(|case| [SERIES, case]);
    let small = ["dot", "sgd", "cat", "mult", "multsgd", "add", "concat"].map(|case| [SMALL, case]);
    let own = ["everything", "factors"].map(|case| [OWN, case]);
    let weighted = ["sgd", "adagrad", "adam"].map(|case| [WEIGHTED, case]);
    for case in cases.into_iter().chain(wide).chain(series).chain(small).chain(own).chain(weighted) {
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
    let small = ["sgd", "multsgd", "add"].map(|case| [SMALL, case]);
    let others =
        [[TORCHREC, "sgd"], [TORCHREC, "dot"], [WIDE, "sgd"], [SERIES, "sgd"], [OWN, "factors"], [WEIGHTED, "sgd"]];
    let cases = others.into_iter().chain(small);
    for (case, isa) in cases.flat_map(|case| Isa::every().into_iter().map(move |isa| (case, isa))) {
        follow(case, 2, isa, Precision::Bf16);
    }
}
