//! What scripts read: `--json` of the commands that write files is one object on standard output, and nothing else.

use std::fs;

use serde_json::{Value, json};

use super::{TINY, fail, json, succeed, tsv};

#[test]
fn commands_that_write_files_tell_scripts_what_they_wrote() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name).display().to_string();
    let size = |name: &str| fs::metadata(at(name)).unwrap().len();

    let sizes = "--set data.train_samples=300 --set data.test_samples=100 --rows-cap 50";
    let told = json(&format!("data generate {} {sizes} --text --json", at("log")));
    let bytes = size("log/day_0") + size("log/day_1");
    let expected = json!({
        "out": at("log"), "format": "text", "train_samples": 300, "test_samples": 100, "bytes": bytes
    });
    assert_eq!(told, expected);
    let told = json(&format!("data generate {} {sizes} --format mlperf --json", at("rows")));
    assert_eq!((&told["format"], &told["train_samples"]), (&json!("mlperf"), &json!(300)));
    assert!(told["bytes"].as_u64() >= Some(400 * 160), "{told}");

    let line = format!("preprocess criteo-terabyte --in {} --out {} --threads 1 --json", at("log"), at("blocks"));
    let mut told = json(&line);
    assert!(told["seconds"].as_f64() > Some(0.0), "{told}");
    told.as_object_mut().unwrap().remove("seconds");
    let summary: Value = serde_json::from_slice(&fs::read(at("blocks/preprocess.json")).unwrap()).unwrap();
    let mut expected = json!({ "out": at("blocks") });
    expected.as_object_mut().unwrap().extend(summary.as_object().unwrap().clone());
    assert_eq!(told, expected);
    assert_eq!((&told["rows"], &told["days"], &told["bytes"]), (&json!(400), &json!([300, 100]), &json!(bytes)));

    let told = json(&format!("convert {} {} --format torchrec --json", at("blocks"), at("arrays")));
    assert!(told["bytes"].as_u64() > Some(0), "{told}");
    let expected = json!({ "out": at("arrays"), "format": "torchrec", "samples": 400, "bytes": told["bytes"] });
    assert_eq!(told, expected);
    let told = json(&format!("data verify {} --json", at("blocks")));
    assert_eq!(told, json!({ "path": at("blocks"), "samples": 400, "vocabularies": 26 }));
    let told = json(&format!("data profile {} --trace {} --json", at("blocks"), at("p_j.log")));
    let columns = told["columns"].as_array().unwrap();
    assert_eq!((columns.len(), &columns[1]["column"], &columns[1]["file"]), (26, &json!("C2"), &json!(at("p_1.log"))));
    assert!(columns[1]["rows"].as_u64() <= Some(50), "{told}");
}

#[test]
fn what_a_model_was_used_for_is_told_to_scripts() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name).display().to_string();
    let data = tsv(&folder.path().join("clicks.tsv"), 300).display().to_string();
    let other = fs::read_to_string(&data).unwrap().lines().take(3).fold(String::new(), |text, line| {
        // The last column's value is one that the model has never seen.
        let known = line.rsplit_once('\t').unwrap().0;
        format!("{text}{known}\tfedcba98\n")
    });
    fs::write(at("other.tsv"), other).unwrap();
    let train = format!("train --preset demo {TINY} --data {data} --steps 4 --test-fraction 0 --threads 1");
    succeed(&format!("{train} --out {}", at("run")));

    let predict = format!("predict --checkpoint {} --data {} --json", at("run"), at("other.tsv"));
    let told = json(&format!("{predict} --out {}", at("found")));
    assert_eq!(fs::read_to_string(at("found")).unwrap().lines().count(), 3);
    assert_eq!([&told["out"], &told["rows"], &told["unknown_values"]], [&json!(at("found")), &json!(3), &json!(3)]);
    let [seconds, speed] = ["seconds", "rows_per_s"].map(|key| told[key].as_f64().unwrap());
    assert!(seconds > 0.0 && (seconds * speed / 3.0 - 1.0).abs() < 1e-9, "{told}");
    for flag in ["--trace-loss", "--trace", "--mllog"] {
        let message = fail(&format!("{train} --json {flag} /dev/stdout"));
        assert!(message.contains("--json: ") && message.contains(&format!("{flag} FILE")), "{message}");
    }
    // Where the probabilities go to standard output, nothing else does.
    for out in ["", " --out /dev/stdout"] {
        let message = fail(&format!("{predict}{out}"));
        assert!(message.contains("--json: ") && message.contains("--out FILE"), "{message}");
    }

    let told = json(&format!("export --checkpoint {} --format torch --out {} --json", at("run"), at("model")));
    let files = ["model", "load.py", "vocabulary.safetensors"].map(at);
    let bytes: u64 = files.iter().map(|file| fs::metadata(file).unwrap().len()).sum();
    assert_eq!((&told["format"], &told["files"]), (&json!("torch"), &json!(files)));
    assert_eq!((&told["weights"], &told["bytes"]), (&json!("f32"), &json!(bytes)));
    assert!(told["parameters"].as_u64() > Some(0), "{told}");
    // The folder is made.
    succeed(&format!("export --checkpoint {} --format onnx --out {}", at("run"), at("new/folder/model.onnx")));
    assert!(fs::metadata(at("new/folder/model.onnx")).unwrap().len() > 0);
    let message = fail(&format!("export --checkpoint {} --format onnx --out /dev/stdout --json", at("run")));
    assert!(message.contains("--json: ") && message.contains("so does the model: name a file with --out"), "{message}");
}
