//! What FAE's published code has told apart, converted, and trained on its very own hot and cold samples.

use std::fs;
use std::path::Path;

use serde_json::Value;

use super::{fail, json, succeed};

const VECTORS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/vectors/fae");

const NAMES: [&str; 3] = ["train_normal.npz", "train_hot.npz", "hot_emb_dict.npz"];

/// Settings of a model for its four dense features and five tables.
const TINY: &str = "--set model.bottom=[4,16,8] --set model.top=[16,1] --set model.dim=8 --batch 16 --lr 0.1 --epochs 2 \
                    --eval-every 0 --no-shuffle --threads 1";

fn errors(line: &str) -> String {
    String::from_utf8(succeed(line).stderr).unwrap()
}

#[test]
fn converted_samples_are_trained_in_turns_as_fae_told_them_apart() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name).display().to_string();
    let expected: Value = serde_json::from_slice(&fs::read(format!("{VECTORS}/expected.json")).unwrap()).unwrap();
    let samples = expected["train"].as_array().unwrap().len() as u64;
    let hot = samples - expected["cold"].as_u64().unwrap();

    let said = errors(&format!("convert {VECTORS}/kaggle/kaggle_hot_cold {}", at("blocks")));
    let file = at("blocks/hot.safetensors");
    assert!(said.contains(&format!("{}: {} samples, ", at("blocks"), samples + 21)), "{said}");
    let told = format!(
        "{file}: 60 hot rows, {hot} of {samples} training samples look up no others: octorec train --data {} \
                        --hot fae --hot-set {file}",
        at("blocks")
    );
    assert!(said.contains(&told) && !said.contains("no test samples"), "{said}");

    // The command that was told.
    let train = format!("train --data {} {TINY}", at("blocks"));
    let trained = |line: &str, trace: &str| {
        let output = succeed(&format!("{line} --json --trace-loss {}", at(trace)));
        let results: Value = serde_json::from_slice(&output.stdout).unwrap();
        let auc = results["auc"].as_f64().unwrap();
        assert!((0.0..=1.0).contains(&auc), "{results}");
        (results, String::from_utf8(output.stderr).unwrap(), fs::read_to_string(at(trace)).unwrap())
    };
    let out = format!("--out {}", at("run"));
    let (results, said, losses) = trained(&format!("{train} --hot fae --hot-set {file} {out}"), "alone");
    let share = 100.0 * hot as f64 / samples as f64;
    let shares = format!("hot inputs: {hot} of {samples} training samples ({share:.1} %) look up hot rows alone");
    assert!(said.contains(&shares) && said.contains(&format!("as in {file}")), "{said}");
    let metrics = fs::read_to_string(at("run/metrics.jsonl")).unwrap();
    assert!(metrics.lines().any(|line| line.contains("\"shuffle\"")), "turns: {metrics}");
    let plain = succeed(&format!("{train} --hot fae --hot-set {file}"));
    let plain = [plain.stdout, plain.stderr].concat();
    assert!(String::from_utf8_lossy(&plain).to_lowercase().contains("auc"), "{}", String::from_utf8_lossy(&plain));
    let scores = json(&format!("eval --checkpoint {} --json", at("run")));
    assert_eq!(scores["auc"], results["auc"]);
    // Ranks take the same turns, and copies of hot rows travel among them.
    let exact = format!("{train} --hot fae --determinism ranks --hot-set {file}");
    let (_, _, one) = trained(&exact, "one");
    let (two, _, losses_of_two) = trained(&format!("{exact} --ranks 2"), "two");
    assert!(one == losses_of_two && !losses.is_empty(), "any number of ranks takes the same turns");
    let sent: u64 = two["traffic"]["hot_rows"]
        .as_array()
        .unwrap()
        .iter()
        .flat_map(|row| row.as_array().unwrap())
        .map(|bytes| bytes.as_u64().unwrap())
        .sum();
    assert!(sent > 0, "{two}");
}

#[test]
fn other_formats_get_the_same_file_and_data_without_test_samples_say_so() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name).display().to_string();
    let from = format!("{VECTORS}/kaggle/kaggle_hot_cold");
    succeed(&format!("convert {from} {}", at("blocks")));
    let told = json(&format!("convert {from} {} --format torchrec --json", at("arrays")));
    assert_eq!((&told["hot_set"], &told["hot_rows"]), (&Value::from(at("arrays/hot.safetensors")), &Value::from(60)));
    assert!(told["hot_samples"].as_u64() > Some(0), "{told}");
    let read = |name: &str| fs::read(at(name)).unwrap();
    assert!(read("blocks/hot.safetensors") == read("arrays/hot.safetensors"));
    let said =
        errors(&format!("train --data {} {TINY} --hot fae --hot-set {}", at("arrays"), at("arrays/hot.safetensors")));
    assert!(said.contains("hot inputs: "), "{said}");

    for name in ["processes", "tutorial"] {
        // With as many rows as those have that its test samples are from.
        let from = at(&format!("{name}-files"));
        fs::create_dir(&from).unwrap();
        let counts = "kaggle/train_fea_count.npz".to_owned();
        for file in NAMES.map(|file| format!("{name}/{file}")).into_iter().chain([counts]) {
            let path = Path::new(VECTORS).join(file);
            fs::copy(&path, Path::new(&from).join(path.file_name().unwrap())).unwrap();
        }
        let said = errors(&format!("convert {from} {} --from-format fae", at(name)));
        assert!(said.contains("no test samples: FAE's code takes them from *_processed.npz"), "{said}");
        assert!(read(&format!("{name}/hot.safetensors")) == read("blocks/hot.safetensors"), "{name}");
        // Those of other data with the same columns, as the message says.
        let hot = at(&format!("{name}/hot.safetensors"));
        let line = format!("train --data {} {TINY} --hot fae --hot-set {hot} --test-data", at(name));
        let said = errors(&format!("{line} {}", at("blocks")));
        assert!(said.contains("hot inputs: "), "{said}");
    }
    // Tags of all samples are none of a part of them.
    let hot = at("processes/hot.safetensors");
    let message = fail(&format!("train --data {} {TINY} --hot fae --hot-set {hot}", at("processes")));
    assert!(message.contains("tells 299 training samples apart, and the data has 269"), "{message}");

    let verified = succeed(&format!("data verify {from}"));
    assert!(String::from_utf8_lossy(&verified.stdout).contains("sound, 320 samples"));
    let found = json(&format!("inspect {from} --json"));
    assert_eq!((&found["format"], &found["rows_total"]), (&Value::from("fae"), &Value::from(320)));
}

#[test]
fn what_cannot_be_converted_is_refused_and_nothing_is_left_that_looks_like_data() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name).display().to_string();
    fs::create_dir(at("from")).unwrap();
    for name in &NAMES[..2] {
        fs::copy(Path::new(VECTORS).join("tutorial").join(name), folder.path().join("from").join(name)).unwrap();
    }
    let message = fail(&format!("convert {} {}", at("from"), at("to")));
    assert!(message.contains("hot_emb_dict.npz: is missing") && message.contains("FAE's profiler"), "{message}");
    assert!(!folder.path().join("to").exists());
    let message = fail(&format!("convert {VECTORS}/tutorial {} --format fae", at("to")));
    assert!(message.contains("octorec writes no fae"), "{message}");
}
