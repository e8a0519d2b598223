//! octorec against others' numbers: PyTorch's test vectors, the printed example of the reference's README, and
//! sklearn's scores. `tests/vectors/README.md` says where the files come from.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Arc;

use octorec::base::config::{Command, Config, Layers};
use octorec::data::{Bag, Batch, Schema};
use octorec::model::TrainSpec;
use octorec::optim::{ByGroup, Schedule};
use octorec::simd::Isa;
use octorec::train::{Checkpoint, Rates};
use safetensors::SafeTensors;
use serde_json::Value;

pub fn vector_path(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/vectors").join(name)
}

pub fn vector_file(name: &str) -> Vec<u8> {
    let path = vector_path(name);
    std::fs::read(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// Numbers of a tensor.
pub fn numbers<T: bytemuck::Pod>(tensors: &SafeTensors<'_>, name: &str) -> Vec<T> {
    bytemuck::allocation::pod_collect_to_vec(
        tensors.tensor(name).unwrap_or_else(|_| panic!("{name} is missing")).data(),
    )
}

/// |found - expected| over the largest |expected|, which is how far apart two tensors are.
pub fn distance(found: &[f32], expected: &[f32]) -> f64 {
    assert_eq!(found.len(), expected.len());
    let scale = expected.iter().fold(1e-30f64, |scale, &x| scale.max(f64::from(x).abs()));
    let apart = found.iter().zip(expected).map(|(&a, &b)| (f64::from(a) - f64::from(b)).abs());
    apart.fold(0.0, f64::max) / scale
}

/// A case's configuration, from the strings that the generator left.
fn config(metadata: &HashMap<String, String>) -> Config {
    let list = |key: &str| metadata[key].replace('-', ", ");
    let mut layers = Layers::default();
    let document = [
        format!("model.bottom=[{}]", list("bottom")),
        format!("model.top=[{}]", list("top")),
        format!("model.dim={}", metadata["dim"]),
        format!("model.interaction={:?}", metadata["interaction"]),
        format!("model.interaction_itself={}", metadata["interaction_itself"]),
        format!("model.loss={:?}", metadata["loss"]),
        format!("model.loss_weights=[{}]", metadata["loss_weights"]),
        format!("model.loss_threshold={}", metadata["loss_threshold"]),
        format!("train.lr={}", metadata["lr"]),
        format!("train.warmup_steps={}", metadata["warmup_steps"]),
        format!("train.decay_start={}", metadata["decay_start"]),
        format!("train.decay_steps={}", metadata["decay_steps"]),
    ];
    layers.document(&document.join("\n"), "vectors").unwrap();
    layers.finish(Command::Train).unwrap()
}

/// The minibatch whose tensors' names begin so.
pub fn batch(tensors: &SafeTensors<'_>, name: &str, tables: usize, dense_width: usize) -> Batch {
    let bag = |t: usize| Bag {
        offsets: numbers(tensors, &format!("{name}.offsets{t}")),
        rows: numbers(tensors, &format!("{name}.rows{t}")),
    };
    // Nothing where a table's look-ups have none.
    let weights = |t: usize| {
        let name = format!("{name}.weights{t}");
        if tensors.tensor(&name).is_ok() { numbers(tensors, &name) } else { Vec::new() }
    };
    Batch {
        dense_width,
        weighted: false,
        dense: numbers(tensors, &format!("{name}.dense")),
        bags: (0..tables).map(bag).collect(),
        weights: (0..tables).map(weights).collect(),
        labels: numbers(tensors, &format!("{name}.labels")),
    }
}

/// Trains through a case's minibatches and compares every loss, every probability and every final weight.
fn follow(name: &str, threads: usize, isa: Isa) {
    let bytes = vector_file(name);
    let (_, header) = SafeTensors::read_metadata(&bytes).unwrap();
    let tensors = SafeTensors::deserialize(&bytes).unwrap();
    let config = config(header.metadata().as_ref().unwrap());
    let rows: Vec<u64> = (0..)
        .map_while(|t| tensors.tensor(&format!("init.emb_l.{t}.weight")).ok())
        .map(|tensor| tensor.shape()[0] as u64)
        .collect();
    let schema = Schema::criteo(config.model.bottom[0], &rows);
    let model = crate::alone::alone(&config.model, &schema, TrainSpec::sgd(64), threads, isa).unwrap();
    let parameters = model.parameters().unwrap();
    for parameter in &parameters {
        model
            .import_rows(parameter, 0..parameter.rows(), &numbers::<f32>(&tensors, &format!("init.{}", parameter.name)))
            .unwrap();
    }
    let losses: Vec<f32> = numbers(&tensors, "losses");
    assert!(losses.len() >= 3, "{name} has its minibatches");
    let schedule = Schedule::new(&config.train);
    for (number, &expected) in losses.iter().enumerate() {
        let batch = batch(&tensors, &format!("batch{number}"), rows.len(), schema.dense);
        batch.check(&schema).unwrap();
        let rate = schedule.rate(number as u64 + 1) as f32;
        let batch = Arc::new(batch);
        let probabilities = model.predict(&batch).unwrap();
        let loss = model.step(&batch, rate).unwrap();
        let apart = (loss / f64::from(expected) - 1.0).abs();
        assert!(apart < 1e-5, "{name}, step {}: loss {loss}, PyTorch {expected}", number + 1);
        let expected: Vec<f32> = numbers(&tensors, &format!("probabilities{number}"));
        assert!(distance(&probabilities, &expected) < 1e-5, "{name}, step {}: probabilities", number + 1);
    }
    for parameter in &parameters {
        let expected: Vec<f32> = numbers(&tensors, &format!("final.{}", parameter.name));
        let apart = distance(&model.export(parameter).unwrap(), &expected);
        assert!(apart < 1e-5, "{name}: final {} is {apart:e} from PyTorch's", parameter.name);
        let before: Vec<f32> = numbers(&tensors, &format!("init.{}", parameter.name));
        assert!(distance(&before, &expected) > 1e-4, "{name}: {} was meant to move", parameter.name);
    }
}

#[test]
fn pytorch_test_vectors_are_followed() {
    let names = ["dot_bce", "dot_itself_mse", "cat_wbce", "dot_bce_threshold", "dot_bce_schedule", "dot_bce_wide"];
    for isa in Isa::every() {
        for threads in [1, 3] {
            for name in names {
                follow(&format!("{name}.safetensors"), threads, isa);
            }
        }
    }
}

/// The keys of each of the optimizers' cases.
const OPTIMIZERS: [(&str, &[&str]); 7] = [
    (
        "momentum",
        &["optimizer=momentum", "momentum=0.8", "weight_decay=0.01", "optimizer_rows=sgd", "lr=0.02", "lr_rows=0.05"],
    ),
    (
        "adagrad",
        &[
            "optimizer=adagrad",
            "weight_decay=0.01",
            "optimizer_rows=adagrad",
            "initial_accumulator=0.05",
            "lr=0.02",
            "lr_rows=0.05",
        ],
    ),
    ("rowwise", &["optimizer=adagrad", "optimizer_rows=rowwise-adagrad", "lr=0.02", "lr_rows=0.05"]),
    ("lamb", &["optimizer=lamb", "weight_decay=0.01", "optimizer_rows=adagrad", "lr=0.01", "lr_rows=0.02"]),
    (
        "lamb-corrected",
        &[
            "optimizer=lamb",
            "bias_correction=true",
            "eps=1e-5",
            "beta2=0.99",
            "optimizer_rows=sgd",
            "lr=0.004",
            "lr_rows=0.05",
        ],
    ),
    ("adam", &["optimizer=adam", "weight_decay=0.01", "optimizer_rows=adam", "lr=0.002", "lr_rows=0.004"]),
    ("clipped", &["optimizer=momentum", "momentum=0.8", "weight_decay=0.01", "clip_norm=0.3", "lr=0.05"]),
];

/// Trains for 30 steps by one of these, and compares every loss, every weight and all that the optimizers keep.
fn follow_optimizer(case: &str, keys: &[&str], threads: usize, isa: Isa) {
    let bytes = vector_file("optimizers.safetensors");
    let (_, header) = SafeTensors::read_metadata(&bytes).unwrap();
    let (tensors, metadata) = (SafeTensors::deserialize(&bytes).unwrap(), header.metadata().as_ref().unwrap());
    let mut layers = Layers::default();
    layers.document("[model]\nbottom = [13, 16, 8]\ntop = [12, 1]\ndim = 8", "vectors").unwrap();
    keys.iter().for_each(|key| layers.assignment(&format!("train.{key}")).unwrap());
    let config = layers.finish(Command::Train).unwrap();
    let schema = Schema::criteo(13, &[3, 17, 40]);
    let optimizers = ByGroup::configured(&config.train);
    let clip_norm = Some(config.train.clip_norm).filter(|bound| *bound > 0.0);
    let spec = TrainSpec { optimizers, clip_norm, ..TrainSpec::sgd(24) };
    let model = crate::alone::alone(&config.model, &schema, spec, threads, isa).unwrap();
    let mut parameters = model.parameters().unwrap();
    for parameter in &parameters {
        model
            .import_rows(parameter, 0..parameter.rows(), &numbers::<f32>(&tensors, &format!("init.{}", parameter.name)))
            .unwrap();
    }
    let minibatches: usize = metadata["minibatches"].parse().unwrap();
    let losses: Vec<f32> = numbers(&tensors, &format!("{case}.losses"));
    assert_eq!(losses.len(), 30);
    for (step, &expected) in losses.iter().enumerate() {
        let batch = batch(&tensors, &format!("batch{}", step % minibatches), 3, 13);
        let loss = model.step(&Arc::new(batch), Rates::base(&config.train)).unwrap();
        let apart = (loss / f64::from(expected) - 1.0).abs();
        assert!(apart < 1e-5, "{case}, step {}: loss {loss}, PyTorch {expected}", step + 1);
    }
    parameters.extend(model.moments(&parameters));
    for parameter in &parameters {
        let expected: Vec<f32> = numbers(&tensors, &format!("{case}.{}", parameter.name));
        let apart = distance(&model.export(parameter).unwrap(), &expected);
        assert!(apart < 1e-5, "{case}: {} is {apart:e} from PyTorch's", parameter.name);
    }
    let theirs = tensors.names().into_iter().filter(|name| name.starts_with(&format!("{case}."))).count();
    assert_eq!(theirs, 1 + parameters.len(), "{case}: nothing is kept that is not compared");
}

#[test]
fn pytorch_optimizers_and_their_state_are_followed() {
    for (case, keys) in OPTIMIZERS {
        for isa in Isa::every() {
            for threads in [1, 3] {
                follow_optimizer(case, keys, threads, isa);
            }
        }
    }
}

/// A model that PyTorch has trained for 15 steps goes on here, with what its optimizers keep.
#[test]
fn a_model_that_pytorch_hands_over_goes_on_as_it_would_have_there() {
    let bytes = vector_file("optimizers.safetensors");
    let tensors = SafeTensors::deserialize(&bytes).unwrap();
    for case in ["momentum", "adagrad", "adam"] {
        let (_, keys) = OPTIMIZERS.iter().find(|(name, _)| *name == case).unwrap();
        let mut layers = Layers::default();
        layers.document("[model]\nbottom = [13, 16, 8]\ntop = [12, 1]\ndim = 8", "vectors").unwrap();
        keys.iter().for_each(|key| layers.assignment(&format!("train.{key}")).unwrap());
        let config = layers.finish(Command::Train).unwrap();
        let spec = TrainSpec { optimizers: ByGroup::configured(&config.train), ..TrainSpec::sgd(24) };
        let schema = Schema::criteo(13, &[3, 17, 40]);
        let model = crate::alone::alone(&config.model, &schema, spec, 2, Isa::best()).unwrap();
        let path = vector_path(&format!("handover_{case}.safetensors"));
        Checkpoint::open(&path).unwrap().load_into(&model).unwrap();
        let losses: Vec<f32> = numbers(&tensors, &format!("{case}.losses"));
        for (step, &expected) in losses.iter().enumerate().skip(15) {
            let batch = batch(&tensors, &format!("batch{}", step % 10), 3, 13);
            let loss = model.step(&Arc::new(batch), Rates::base(&config.train)).unwrap();
            assert!((loss / f64::from(expected) - 1.0).abs() < 1e-5, "{case}, step {}: {loss}", step + 1);
        }
        let mut parameters = model.parameters().unwrap();
        parameters.extend(model.moments(&parameters));
        for parameter in &parameters {
            let expected: Vec<f32> = numbers(&tensors, &format!("{case}.{}", parameter.name));
            let apart = distance(&model.export(parameter).unwrap(), &expected);
            assert!(apart < 1e-5, "{case}: {} is {apart:e} from PyTorch's", parameter.name);
        }
    }
}

#[test]
fn the_reference_readme_example_is_reproduced() {
    let golden: Value = serde_json::from_slice(&vector_file("golden.json")).unwrap();
    let floats = |value: &Value| -> Vec<f32> {
        fn collect(value: &Value, into: &mut Vec<f32>) {
            match value {
                Value::Array(items) => items.iter().for_each(|item| collect(item, into)),
                number => into.push(number.as_f64().unwrap() as f32),
            }
        }
        let mut found = Vec::new();
        collect(value, &mut found);
        found
    };
    let integers = |value: &Value| -> Vec<u32> { floats(value).iter().map(|&x| x as u32).collect() };
    let mut layers = Layers::default();
    let document = "[model]\nbottom = [4, 3, 2]\ntop = [4, 2, 1]\ndim = 2\nloss = \"mse\"\n[train]\nlr = 0.01";
    layers.document(document, "golden").unwrap();
    let config = layers.finish(Command::Train).unwrap();
    let schema = Schema::criteo(4, &[4, 3, 2]);
    let model = crate::alone::alone(&config.model, &schema, TrainSpec::sgd(2), 1, Isa::best()).unwrap();
    let parameters = model.parameters().unwrap();
    for parameter in &parameters {
        model.import_rows(parameter, 0..parameter.rows(), &floats(&golden["initial"][&parameter.name])).unwrap();
    }
    for (given, expected) in golden["batches"].as_array().unwrap().iter().zip([0.451_893, 0.402_002, 0.275_460]) {
        let bags = given["bags"].as_array().unwrap();
        let bag = |bag: &Value| Bag { offsets: integers(&bag["offsets"]), rows: integers(&bag["rows"]) };
        let batch = Batch {
            dense_width: 4,
            weighted: false,
            dense: floats(&given["dense"]),
            bags: bags.iter().map(bag).collect(),
            weights: vec![Vec::new(); bags.len()],
            labels: floats(&given["labels"]),
        };
        batch.check(&schema).unwrap();
        let loss = model.step(&Arc::new(batch), 0.01).unwrap();
        // Inputs and parameters are printed with five digits, so the losses can agree to about that.
        assert!((loss - expected).abs() < 5e-6, "loss {loss}, printed {expected}");
    }
    for parameter in &parameters {
        let expected = floats(&golden["updated"][&parameter.name]);
        for (found, expected) in model.export(parameter).unwrap().iter().zip(expected) {
            assert!((found - expected).abs() < 1.5e-5, "{}: {found}, printed {expected}", parameter.name);
        }
    }
}
