//! TorchRec's models as a user trains them: DCNv2's presets, checkpoints under TorchRec's names, and what comes after
//! training.

use std::fs;
use std::path::Path;

use safetensors::tensor::TensorView;
use safetensors::{SafeTensors, serialize};

use super::auc::auc;
use super::{ONE_EPOCH, fail, json, octorec, succeed, tiny_training, tsv};

/// A training of 40 steps on bags of several rows.
fn training() -> String {
    format!(
        "train {ONE_EPOCH} --set model.interaction=dcn --set model.cross_layers=2 --set model.cross_rank=9 \
         --set model.bottom=[13,32,8] --set model.top=[16,8,1] --set model.dim=8 --set data.lookups=3 --batch 64 \
         --optimizer adagrad --optimizer-rows adagrad --lr 0.02 --eval-every 0"
    )
}

fn checkpoint(run: &Path) -> Vec<u8> {
    fs::read(run.join("checkpoint.safetensors")).unwrap()
}

/// Names and shapes of a checkpoint's weights, without tables.
fn layers(file: &[u8]) -> Vec<(String, Vec<usize>)> {
    let file = SafeTensors::deserialize(file).unwrap();
    let mut layers: Vec<_> = file.tensors().into_iter().map(|(name, of)| (name, of.shape().to_vec())).collect();
    layers.retain(|(name, _)| ["dense_arch", "inter_arch", "over_arch"].iter().any(|root| name.starts_with(root)));
    layers.sort();
    layers
}

#[test]
fn a_checkpoint_has_the_tensors_of_torchrec_and_is_resumed_to_the_bit() {
    let folder = tempfile::tempdir().unwrap();
    let (whole, parts) = (folder.path().join("whole"), folder.path().join("parts"));
    let line = format!("{} --seed 5 --ranks 2 --threads 1", training());
    let summary = json(&format!("{line} --steps 40 --out {} --json", whole.display()));
    let width = 8 + 26 * 8;
    let expected = [
        ("dense_arch.model._mlp.0._linear.bias", vec![32]),
        ("dense_arch.model._mlp.0._linear.weight", vec![32, 13]),
        ("dense_arch.model._mlp.1._linear.bias", vec![8]),
        ("dense_arch.model._mlp.1._linear.weight", vec![8, 32]),
        ("inter_arch.crossnet.V_kernels.0", vec![9, width]),
        ("inter_arch.crossnet.V_kernels.1", vec![9, width]),
        ("inter_arch.crossnet.W_kernels.0", vec![width, 9]),
        ("inter_arch.crossnet.W_kernels.1", vec![width, 9]),
        ("inter_arch.crossnet.bias.0", vec![width]),
        ("inter_arch.crossnet.bias.1", vec![width]),
        ("over_arch.model.0._mlp.0._linear.bias", vec![16]),
        ("over_arch.model.0._mlp.0._linear.weight", vec![16, width]),
        ("over_arch.model.0._mlp.1._linear.bias", vec![8]),
        ("over_arch.model.0._mlp.1._linear.weight", vec![8, 16]),
        ("over_arch.model.1.bias", vec![1]),
        ("over_arch.model.1.weight", vec![1, 8]),
    ];
    assert_eq!(layers(&checkpoint(&whole)), expected.map(|(name, shape)| (name.to_owned(), shape)));

    succeed(&format!("{line} --steps 17 --out {}", parts.display()));
    succeed(&format!("train --resume {} --steps 40 --ranks 2 --threads 1", parts.display()));
    assert!(checkpoint(&whole) == checkpoint(&parts), "stopping and resuming changes no bit");

    // One rank evaluates what two have trained.
    let scores = json(&format!("eval --checkpoint {} --ranks 1 --json", whole.display()));
    let apart = |key: &str| (scores[key].as_f64().unwrap() - summary[key].as_f64().unwrap()).abs();
    assert!(apart("auc") < 1e-6 && apart("logloss") < 1e-6, "{scores} {summary}");
}

#[test]
fn the_number_of_ranks_changes_no_bit_where_that_is_asked_for() {
    let folder = tempfile::tempdir().unwrap();
    let run = |ranks: usize, precision: &str| {
        let out = folder.path().join(format!("{ranks}-{precision}"));
        succeed(&format!(
            "{} --seed 5 --ranks {ranks} --threads 1 --steps 12 --determinism ranks --precision {precision} --out {}",
            training(),
            out.display()
        ));
        // Behind the header, which has the directory's plan.
        let file = checkpoint(&out);
        let header = u64::from_le_bytes(file[..8].try_into().unwrap()) as usize;
        file[8 + header..].to_vec()
    };
    for precision in ["f32", "bf16"] {
        let alone = run(1, precision);
        assert!(run(2, precision) == alone && run(3, precision) == alone, "{precision}");
    }
}

#[test]
fn predictions_are_those_of_the_evaluation_and_weights_start_a_run() {
    let folder = tempfile::tempdir().unwrap();
    let data = tsv(&folder.path().join("clicks.tsv"), 2000);
    let (out, labels) = (folder.path().join("run"), fs::read_to_string(&data).unwrap());
    let on_data =
        training().replace("--set data.lookups=3", &format!("--data {} --test-fraction 0.25", data.display()));
    let summary = json(&format!("{on_data} --epochs 1 --out {} --json", out.display()));
    let tail: Vec<&str> = labels.lines().skip(1500).collect();
    let file = folder.path().join("tail.tsv");
    fs::write(&file, tail.join("\n")).unwrap();
    let printed = succeed(&format!("predict --checkpoint {} --data {}", out.display(), file.display())).stdout;
    let printed = String::from_utf8(printed).unwrap();
    let probabilities: Vec<f32> = printed.lines().map(|line| line.parse().unwrap()).collect();
    let labels: Vec<f32> = tail.iter().map(|line| line[..1].parse().unwrap()).collect();
    assert_eq!(auc(&probabilities, &labels), summary["auc"].as_f64().unwrap());

    // From the same weights, the seed of the initial weights no longer matters; those of another model do not fit.
    let weights = out.join("checkpoint.safetensors");
    let from = |seed: u64| json(&format!("{on_data} --init {} --no-shuffle --seed {seed} --json", weights.display()));
    assert_eq!(from(1)["final_loss"], from(2)["final_loss"]);
    let message = fail(&format!("{on_data} --init {} --set model.cross_rank=8", weights.display()));
    assert!(message.contains("inter_arch.crossnet.V_kernels.0 has shape [9, "), "{message}");
    let message = fail(&format!("{on_data} --init {} --set model.cross_layers=1", weights.display()));
    assert!(message.contains("inter_arch.crossnet.") && message.contains("has no place in the model"), "{message}");
}

#[test]
fn dot_products_above_the_diagonal_are_torchrecs_dlrm() {
    let folder = tempfile::tempdir().unwrap();
    let line = |triangle: &str| format!("{} --triangle {triangle}", tiny_training());
    let out = folder.path().join("run");
    succeed(&format!("{} --steps 5 --ranks 2 --threads 1 --out {}", line("upper"), out.display()));
    let names: Vec<_> = layers(&checkpoint(&out)).into_iter().map(|(name, _)| name).collect();
    let module = |name: &str| ["bias", "weight"].map(|kind| format!("{name}.{kind}"));
    let modules =
        ["dense_arch.model._mlp.0._linear", "dense_arch.model._mlp.1._linear", "over_arch.model.0._mlp.0._linear"];
    let expected: Vec<_> = modules.into_iter().chain(["over_arch.model.1"]).flat_map(module).collect();
    assert_eq!(names, expected);

    // Weights come back to the inputs that they are for, and go on as if nothing had been written.
    let weights = out.join("checkpoint.safetensors");
    let from =
        |seed: u64| json(&format!("{} --init {} --no-shuffle --seed {seed} --json", line("upper"), weights.display()));
    assert_eq!(from(1)["final_loss"], from(2)["final_loss"]);
    let parts = folder.path().join("parts");
    succeed(&format!("{} --steps 3 --optimizer momentum --threads 1 --out {}", line("upper"), parts.display()));
    succeed(&format!("train --resume {} --steps 5", parts.display()));
    succeed(&format!("{} --steps 5 --optimizer momentum --threads 1 --out {} --force", line("upper"), out.display()));
    assert!(checkpoint(&out) == checkpoint(&parts), "stopping and resuming changes no bit");
    let told = "has tensors by the names of TorchRec (dense_arch.model._mlp.0._linear.bias), and this model's are those of \
                facebookresearch/dlrm (bot_l.0.bias): model.triangle must be as where it was trained";
    for other in [
        format!("{} --init {}", line("lower"), weights.display()),
        format!("train --resume {} --steps 7 --triangle lower", parts.display()),
    ] {
        let message = fail(&other);
        assert!(message.contains(told) && !message.contains("optimizer"), "{message}");
    }
    // Without a configuration the names alone tell.
    let (bare, whole) = (folder.path().join("bare.safetensors"), checkpoint(&out));
    let file = SafeTensors::deserialize(&whole).unwrap();
    fs::write(&bare, serialize::<_, TensorView<'_>, _>(file.tensors(), None).unwrap()).unwrap();
    let message = fail(&format!("{} --init {}", line("lower"), bare.display()));
    let names =
        "such names are those with model.interaction = \"dcn\", or \"dot\" with model.triangle = \"upper\", without";
    assert!(message.contains(names) && !message.contains("must be as"), "{message}");
    let message = fail(&format!("{} --triangle upper", training()));
    assert!(message.contains("model.triangle has an effect only with model.interaction = \"dot\""), "{message}");
}

#[test]
fn presets_are_planned_simulated_and_priced() {
    // Small tables, from which nothing need be drawn for long.
    let model = "--preset dcnv2 --source random --rows-cap 100000 --topology twisted-hypercube-8 --ranks 8 --json";
    let plan = json(&format!("plan {model}"));
    let tables = plan["workload"]["tables"].as_array().unwrap();
    let lookups: Vec<f64> = tables.iter().map(|table| table["lookups"].as_f64().unwrap()).collect();
    assert_eq!((lookups.len(), lookups.iter().sum::<f64>()), (26, 214.0), "MLPerf's bags");

    // More time goes to an interaction that has layers.
    let ms = |line: &str| json(line)["points"][0]["step_ms"].as_f64().unwrap();
    let line = format!("simulate {model}");
    assert!(ms(&line) > 1.2 * ms(&format!("{line} --set model.interaction=cat")));
}

#[test]
fn the_small_preset_trains_and_the_large_one_is_timed() {
    let summary = json("train --preset dcnv2-small --steps 200 --set data.test_samples=4000 --eval-every 0 --json");
    assert!(summary["auc"].as_f64().unwrap() > 0.55, "{summary}");
    let report =
        json("bench step --preset dcnv2 --rows-cap 1000 --batch 64 --repeat 2 --minibatches 2 --limit-mib 16 --json");
    assert!(report["roofline_ms"].as_f64().unwrap() > 0.0, "{report}");
}

#[test]
fn keys_of_cross_layers_and_bags_are_refused_where_they_have_no_effect_or_do_not_fit() {
    let message = fail("train --set model.cross_rank=4");
    assert!(message.contains("model.cross_rank has an effect only with model.interaction = \"dcn\""), "{message}");
    let message = fail("train --set model.interaction=dcn --set model.cross_layers=0");
    assert!(message.contains("model.cross_layers = 0 must lie in [1, 64]"), "{message}");
    let message = fail("train --source random --set model.rows=[5,6,7] --set data.lookups=[1,2]");
    assert!(message.contains("data.lookups has 2 numbers for the 3 tables of model.rows"), "{message}");
    let message = fail("train --set data.lookups=[1,2]");
    assert!(message.contains("data.lookups: there must be 1 or more for each of 26 tables"), "{message}");
    let message = fail("train --set data.lookups=many");
    assert!(message.contains("a number of look-ups, or a list with one for each table, is expected"), "{message}");
    let output = octorec().args(["config", "--preset", "dcnv2"]).output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(text.contains("lookups = [") && text.contains("interaction = \"dcn\""), "{text}");
}
