//! What a run begins with: weights of the distributions that `model/init.rs` names, samples in an order of the seed.

use std::fs;
use std::path::Path;

use safetensors::SafeTensors;

use super::{SGD, succeed, tiny_training, tsv};

/// Numbers of a checkpoint's tensor.
fn numbers(checkpoint: &[u8], name: &str) -> Vec<f64> {
    let file = SafeTensors::deserialize(checkpoint).unwrap();
    let bytes = file.tensor(name).unwrap_or_else(|error| panic!("{name}: {error}")).data().to_vec();
    bytes.chunks_exact(4).map(|word| f64::from(f32::from_le_bytes(word.try_into().unwrap()))).collect()
}

/// A run whose only step moves nothing, so that its checkpoint holds what it began with.
fn begun(folder: &Path, flags: &str) -> Vec<u8> {
    let out = folder.join("begun");
    succeed(&format!("{} {flags} --steps 1 --lr 1e-30 --out {} --force", tiny_training(), out.display()));
    fs::read(out.join("checkpoint.safetensors")).unwrap()
}

#[test]
fn weights_begin_with_the_deviations_of_the_reference() {
    let folder = tempfile::tempdir().unwrap();
    // Layers whose inputs differ much from their outputs, so that neither stands for the other.
    let layers = "--set model.bottom=[13,800,8] --set model.top=[700,1]";
    let checkpoint = begun(folder.path(), &format!("{layers} --seed 3"));
    let interacted = numbers(&checkpoint, "top_l.0.weight").len() as f64 / 700.0;
    for (layer, inputs, outputs) in
        [("bot_l.0", 13.0, 800.0), ("bot_l.2", 800.0, 8.0), ("top_l.0", interacted, 700.0), ("top_l.2", 700.0, 1.0)]
    {
        let spreads = [("weight", 2.0 / (inputs + outputs)), ("bias", 1.0 / outputs)];
        for (kind, variance) in spreads.map(|(kind, variance): (_, f64)| (kind, variance)) {
            let found = numbers(&checkpoint, &format!("{layer}.{kind}"));
            let count = found.len() as f64;
            if count < 500.0 {
                continue;
            }
            let mean = found.iter().sum::<f64>() / count;
            let second = found.iter().map(|x| x * x).sum::<f64>() / count;
            let fourth = found.iter().map(|x| x.powi(4)).sum::<f64>() / count;
            // Five standard errors of each moment of a normal distribution.
            let bound = 5.0 / count.sqrt();
            assert!(mean.abs() < bound * variance.sqrt(), "{layer}.{kind}: mean {mean}");
            assert!((second / variance - 1.0).abs() < bound * 2f64.sqrt(), "{layer}.{kind}: variance {second}");
            assert!((fourth / variance.powi(2) - 3.0).abs() < bound * 96f64.sqrt(), "{layer}.{kind}: fourth {fourth}");
        }
    }
    for table in ["emb_l.0", "emb_l.2"] {
        let found = numbers(&checkpoint, &format!("{table}.weight"));
        let (count, bound) = (found.len() as f64, (8.0 / found.len() as f64).sqrt());
        let largest = found.iter().fold(0.0f64, |most, x| most.max(x.abs()));
        let second = found.iter().map(|x| x * x).sum::<f64>() / count / bound.powi(2);
        assert!((0.99..=1.000_001).contains(&(largest / bound)), "{table}: {largest} of {bound}");
        assert!((second - 1.0 / 3.0).abs() < 5.0 * (4.0f64 / 45.0 / count).sqrt(), "{table}: variance {second}");
    }
    assert!(begun(folder.path(), &format!("{layers} --seed 3")) == checkpoint, "the same seed, the same weights");
    let other = begun(folder.path(), &format!("{layers} --seed 4"));
    for name in ["bot_l.0.weight", "bot_l.0.bias", "top_l.2.weight", "emb_l.0.weight"] {
        assert_ne!(numbers(&other, name), numbers(&checkpoint, name), "{name}: another seed, other weights");
    }
}

#[test]
fn a_dcnv2_begins_with_the_deviations_of_torchrec() {
    let folder = tempfile::tempdir().unwrap();
    let layers = "--set model.bottom=[13,800,8] --set model.top=[700,1] --set model.interaction=dcn \
                  --set model.cross_rank=30 --set model.cross_layers=2";
    let checkpoint = begun(folder.path(), &format!("{layers} --seed 3"));
    let moment = |numbers: &[f64], power| numbers.iter().map(|x| x.powi(power)).sum::<f64>() / numbers.len() as f64;
    // Uniform up to the root of one over the inputs, weights and biases alike.
    let width = numbers(&checkpoint, "inter_arch.crossnet.bias.0").len() as f64;
    for (layer, inputs) in [
        ("dense_arch.model._mlp.0._linear", 13.0),
        ("dense_arch.model._mlp.1._linear", 800.0),
        ("over_arch.model.0._mlp.0._linear", width),
        ("over_arch.model.1", 700.0f64),
    ] {
        for kind in ["weight", "bias"] {
            let found: Vec<_> =
                numbers(&checkpoint, &format!("{layer}.{kind}")).iter().map(|x| x * inputs.sqrt()).collect();
            assert!(found.iter().all(|x| x.abs() <= 1.000_001), "{layer}.{kind}");
            if found.len() >= 500 {
                let bound = 5.0 / (found.len() as f64).sqrt();
                assert!(moment(&found, 1).abs() < bound * (1.0f64 / 3.0).sqrt(), "{layer}.{kind}: mean");
                assert!((moment(&found, 2) - 1.0 / 3.0).abs() < bound * (4.0f64 / 45.0).sqrt(), "{layer}.{kind}");
            }
        }
    }
    // Xavier's normal distribution, and no bias.
    for matrix in ["V_kernels.0", "W_kernels.0", "V_kernels.1", "W_kernels.1"] {
        let found = numbers(&checkpoint, &format!("inter_arch.crossnet.{matrix}"));
        let (variance, bound) = (2.0 / (width + 30.0), 5.0 / (found.len() as f64).sqrt());
        assert!(moment(&found, 1).abs() < bound * variance.sqrt(), "{matrix}: mean");
        assert!((moment(&found, 2) / variance - 1.0).abs() < bound * 2f64.sqrt(), "{matrix}: variance");
        assert!((moment(&found, 4) / variance.powi(2) - 3.0).abs() < bound * 96f64.sqrt(), "{matrix}: fourth");
    }
    assert!(numbers(&checkpoint, "inter_arch.crossnet.bias.1").iter().all(|x| x.abs() < 1e-20));
    let table = numbers(&checkpoint, "sparse_arch.embedding_bag_collection.embedding_bags.t_cat_2.weight");
    let largest = table.iter().fold(0.0f64, |most, x| most.max(x.abs()));
    assert!((largest / (8.0 / table.len() as f64).sqrt() - 1.0).abs() < 0.01, "{largest}");
    let same = numbers(&checkpoint, "inter_arch.crossnet.V_kernels.0");
    assert_ne!(same, numbers(&checkpoint, "inter_arch.crossnet.V_kernels.1"), "each layer draws its own");
}

/// No training sample has a value that is new to the test samples: their row would stay as it was drawn.
#[test]
fn the_row_of_unseen_values_begins_as_zero_whoever_holds_it() {
    let folder = tempfile::tempdir().unwrap();
    let file = tsv(&folder.path().join("clicks.tsv"), 400);
    let data = format!("--data {} --set data.test_fraction=0.25 --set data.vocab", file.display());
    let tables = |checkpoint: &[u8]| -> Vec<_> {
        (0..26).map(|table| numbers(checkpoint, &format!("emb_l.{table}.weight"))).collect()
    };
    let one = tables(&begun(folder.path(), &format!("{data}=train --ranks 1")));
    for (table, weights) in one.iter().enumerate() {
        let mut rows: Vec<_> = weights.chunks(8).map(|row| row.iter().any(|x| *x != 0.0)).collect();
        assert!(rows.len() > 1 && rows.pop() == Some(false), "table {table}: the last row");
        assert!(rows.iter().all(|is_drawn| *is_drawn), "table {table}: the others");
    }
    let model = format!("{SGD} --set model.bottom=[13,32,8] --set model.top=[16,1] --set model.dim=8 --batch 64");
    for scheme in ["table", "row", "column", "replicated"] {
        let plan = folder.path().join(scheme);
        succeed(&format!("plan {model} {data}=train --ranks 2 --scheme {scheme} --out {}", plan.display()));
        let flags = format!("{data}=train --ranks 2 --threads 1 --plan {}", plan.display());
        assert!(tables(&begun(folder.path(), &flags)) == one, "{scheme}");
    }
    // Rows of values that training samples have are all drawn.
    let all = tables(&begun(folder.path(), &format!("{data}=all --ranks 1")));
    assert!(all.iter().flat_map(|weights| weights.chunks(8)).all(|row| row.iter().any(|x| *x != 0.0)));
}

#[test]
fn the_seed_orders_the_samples() {
    let folder = tempfile::tempdir().unwrap();
    let first = folder.path().join("first.safetensors");
    fs::write(&first, begun(folder.path(), "--seed 3")).unwrap();
    let losses = |flags: &str| {
        let file = folder.path().join("losses");
        let line = format!("{} --steps 12 --init {} {flags}", tiny_training(), first.display());
        succeed(&format!("{line} --trace-loss {}", file.display()));
        fs::read_to_string(file).unwrap()
    };
    // The same initial weights, so that only the order of samples can make a difference.
    assert_ne!(losses("--seed 1"), losses("--seed 2"), "another seed, another order");
    assert_eq!(losses("--seed 1"), losses("--seed 1"));
    assert_eq!(losses("--seed 1 --no-shuffle"), losses("--seed 2 --no-shuffle"), "no order to draw");
    assert_ne!(losses("--seed 1"), losses("--seed 1 --no-shuffle"));
}

#[test]
fn what_is_taken_of_other_weights_is_told() {
    let folder = tempfile::tempdir().unwrap();
    let first = folder.path().join("first.safetensors");
    fs::write(&first, begun(folder.path(), "--optimizer adam --optimizer-rows adagrad")).unwrap();
    let told = |flags: &str| {
        let output = succeed(&format!("{} --steps 1 --init {} {flags}", tiny_training(), first.display()));
        let told = String::from_utf8(output.stderr).unwrap();
        let begin = format!("--init {}: ", first.display());
        told.lines().find_map(|line| line.strip_prefix(&begin)).unwrap_or_else(|| panic!("{told}")).to_owned()
    };
    // 26 tables; two layers of the bottom MLP and two of the top one, each with biases.
    let weights = "34 tensors of weights";
    let same = told("--optimizer adam --optimizer-rows adagrad");
    assert!(same.starts_with(&format!("{weights}, ")) && same.contains(" of the optimizer of layers, "), "{same}");
    assert!(same.contains(" of the optimizer of rows") && !same.contains("left aside"), "{same}");
    let others = told("--optimizer sgd --optimizer-rows momentum");
    assert!(
        others.contains(&format!("{weights}, nothing of the optimizer of rows, which begins anew; left aside: ")),
        "{others}"
    );
    assert!(others.contains("(state.") && others.ends_with(", ...)"), "{others}");
}
