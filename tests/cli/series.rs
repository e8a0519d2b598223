//! TBSM as a user trains it: the preset, checkpoints, what comes after training, and keys that are refused.

use std::fmt::Write;
use std::fs;
use std::process::Stdio;

use safetensors::SafeTensors;

use super::{fail, json, octorec, succeed};

/// The generated series with small tables and few steps.
const MODEL: &str = "--preset rmc1 --set model.rows=[60,400,30] --set data.train_samples=4000 --set data.test_samples=1000 \
                     --batch 64 --eval-every 0 --threads 1";

#[test]
fn a_checkpoint_has_the_names_of_the_reference_and_is_resumed_to_the_bit_on_other_ranks() {
    let folder = tempfile::tempdir().unwrap();
    let (whole, parts) = (folder.path().join("whole"), folder.path().join("parts"));
    let checkpoint = |run: &std::path::Path| fs::read(run.join("checkpoint.safetensors")).unwrap();
    let line = format!("train {MODEL} --seed 5 --determinism ranks");
    let summary = json(&format!("{line} --ranks 1 --steps 40 --out {} --json", whole.display()));
    let file = checkpoint(&whole);
    let tensors = SafeTensors::deserialize(&file).unwrap();
    for (name, shape) in [
        ("dlrm.emb_l.1.weight", &[400, 16][..]),
        ("dlrm.bot_l.0.weight", &[16, 1]),
        ("dlrm.top_l.2.bias", &[15]),
        ("ams.0.A", &[15, 15]),
        ("ams.0.mlp.0.weight", &[15, 20]),
        ("ams.0.mlp.4.weight", &[20, 15]),
        ("mlps.0.0.weight", &[60, 30]),
        ("mlps.0.2.bias", &[1]),
        ("state.ams.0.A.sum", &[15, 15]),
    ] {
        assert_eq!(tensors.tensor(name).unwrap_or_else(|_| panic!("{name} is missing")).shape(), shape, "{name}");
    }
    succeed(&format!("{line} --ranks 2 --steps 17 --out {}", parts.display()));
    let resumed = json(&format!("train --resume {} --ranks 1 --steps 40 --json", parts.display()));
    assert_eq!(resumed["final_loss"], summary["final_loss"]);
    let weights = |file: &[u8]| {
        let head = u64::from_le_bytes(file[..8].try_into().unwrap()) as usize;
        file[8 + head..].to_vec()
    };
    assert!(weights(&checkpoint(&parts)) == weights(&file), "stopping and resuming on other ranks changes no bit");
    let scores = json(&format!("eval --checkpoint {} --json", whole.display()));
    assert_eq!(scores["auc"], summary["auc"]);
    // Stored as arrays, the same samples are the same run.
    let stored = folder.path().join("stored");
    succeed(&format!(
        "data generate {} --preset rmc1 --set model.rows=[60,400,30] --set data.train_samples=4000 --set data.test_samples=1000",
        stored.display()
    ));
    let scores = json(&format!("eval --checkpoint {} --data {} --json", whole.display(), stored.display()));
    assert!((scores["auc"].as_f64().unwrap() - summary["auc"].as_f64().unwrap()).abs() < 1e-9, "{scores}, {summary}");
}

#[test]
fn lists_of_any_length_are_steps_from_a_file_and_as_they_arrive() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    let (mut table, mut objects) = ("click,price,user,seen\n".to_owned(), String::new());
    for n in 0..500usize {
        let seen: Vec<String> = (0..(n * 7) % 6).map(|step| format!("i{}", (n * (step + 3)) % 40)).collect();
        let _ = writeln!(table, "{},{},u{},{}", n % 2, n % 9, n % 23, seen.join("|"));
        let listed: Vec<String> = seen.iter().map(|item| format!("\"{item}\"")).collect();
        let _ = writeln!(objects, r#"{{"price": {}, "user": "u{}", "seen": [{}]}}"#, n % 9, n % 23, listed.join(","));
    }
    fs::write(at("clicks.csv"), table).unwrap();
    fs::write(at("clicks.jsonl"), objects).unwrap();
    let schema = "label = \"click\"\n[[dense]]\ncolumn = \"price\"\n[[categorical]]\ncolumn = \"user\"\n\
                  [[categorical]]\ncolumn = \"seen\"\nseparator = \"|\"\n";
    fs::write(at("clicks.toml"), schema).unwrap();
    let (data, run) = (at("clicks.csv"), at("run"));
    let told = succeed(&format!(
        "train --data {} --schema {} --set model.ts_length=3 --set model.bottom=[0,8] --set model.dim=8 --set model.top=[9] \
         --batch 50 --epochs 2 --out {}",
        data.display(),
        at("clicks.toml").display(),
        run.display()
    ));
    assert!(String::from_utf8_lossy(&told.stderr).contains("1 dense feature"));
    let from_file = succeed(&format!("predict --checkpoint {} --data {}", run.display(), data.display())).stdout;
    let mut command = octorec();
    command.args(["predict", "--data", "-", "--format", "json", "--checkpoint"]).arg(&run);
    let output = command.stdin(Stdio::from(fs::File::open(at("clicks.jsonl")).unwrap())).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let of_file: Vec<f64> = String::from_utf8(from_file).unwrap().lines().map(|p| p.parse().unwrap()).collect();
    let of_json =
        |line: &str| serde_json::from_str::<serde_json::Value>(line).unwrap()["probability"].as_f64().unwrap();
    let of_lines: Vec<f64> = String::from_utf8(output.stdout).unwrap().lines().map(of_json).collect();
    assert_eq!(of_file.len(), 500);
    assert!(of_file.iter().zip(&of_lines).all(|(a, b)| (a - b).abs() < 1e-7) && of_file.len() == of_lines.len());
}

#[test]
fn the_preset_is_trained_planned_simulated_and_timed() {
    let where_to = "--preset rmc1 --topology twisted-hypercube-8 --ranks 8 --json";
    let plan = json(&format!("plan {where_to}"));
    let positions = |table: usize| plan["workload"]["tables"][table]["positions"].as_u64().unwrap();
    assert_eq!([0, 1, 2].map(positions), [1, 21, 21]);
    assert!(json(&format!("simulate {where_to}"))["points"][0]["step_ms"].as_f64().unwrap() > 0.0);
    let keys = "--rows-cap 1000 --batch 64 --repeat 2 --minibatches 2 --limit-mib 16 --json";
    assert!(json(&format!("bench step --preset rmc1 {keys}"))["roofline_ms"].as_f64().unwrap() > 0.0);
}

#[test]
fn a_time_series_that_cannot_be_or_would_not_matter_is_refused() {
    for (words, told) in [
        ("--set model.arch_mlp=[3,1]", "model.arch_mlp has an effect only with model.ts_length above 0"),
        ("--preset rmc1 --set model.arch_mlp=[60,2]", "must end in 1, the click probability"),
        ("--preset rmc1 --set model.ts_length=2000", "model.ts_length = 2000 must lie in [0, 1024]"),
        ("--preset rmc1 --set model.wide=true", "leave one away"),
        ("--preset rmc1 --set model.top=[]", "each step of a time series becomes the outputs of a layer"),
        ("--preset rmc1 --set model.sequences=[\"item\"]", "the data has no column item (did you mean items?)"),
        ("--preset rmc1 --set model.sequences=[] --set data.lookups=1", "no column has several look-ups a sample"),
        ("--preset rmc1 --set model.bottom=[3,16]", "generated sequences have no dense features"),
        ("--preset rmc1 --set model.rows=[4,5] --set data.lookups=3", "generated sequences have three"),
    ] {
        let message = fail(&format!("train {words}"));
        assert!(message.contains(told), "{words}: {message}");
    }
    let text = fail("data generate /tmp --preset rmc1 --text");
    assert!(text.contains("one value a column"), "{text}");
}
