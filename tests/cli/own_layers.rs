//! Networks of one's own layers, as a user writes, draws, trains and hands them over.

use std::fs;
use std::path::Path;

use safetensors::SafeTensors;

use super::{fail, json, succeed};

/// Some thousand samples.
pub const DATA: &str = "--set data.train_samples=4000 --set data.test_samples=600";

/// Products beside cross layers, and a wide part.
pub const OWN: &str = r#"
[model]
bottom = [13]
dim = 8
wide_crosses = [["C1", "C2"]]
wide_buckets = 500

[[model.layers]]
name = "logit"
type = "sum"
of = ["deep", "wide"]

[[model.layers]]
name = "wide"
type = "wide"

[[model.layers]]
name = "products"
type = "dot"
of = ["x", "embeddings"]

[[model.layers]]
name = "crossed"
type = "cross"
of = "all"
layers = 2
rank = 6

[[model.layers]]
name = "all"
type = "concat"
of = ["dense", "C3", "C1"]

[[model.layers]]
name = "x"
type = "relu"
of = "bottom"

[[model.layers]]
name = "bottom"
type = "linear"
of = "dense"
outputs = [16, 8]

[[model.layers]]
name = "both"
type = "concat"
of = ["crossed", "products", "x"]

[[model.layers]]
name = "deep"
type = "linear"
of = "both"
outputs = [24, 1]
"#;

fn written(folder: &Path, text: &str) -> String {
    let file = folder.join("mine.toml");
    fs::write(&file, text).unwrap();
    file.display().to_string()
}

/// The whole configuration of a preset, with the layers of its network.
fn expanded(folder: &Path, flags: &str) -> String {
    let output = succeed(&format!("config {flags} --layers"));
    written(folder, &String::from_utf8(output.stdout).unwrap())
}

#[test]
fn a_built_in_network_is_the_same_as_its_layers_to_the_bit() {
    let folder = tempfile::tempdir().unwrap();
    for (flags, more) in [
        ("--preset demo", ""),
        ("--preset kaggle --rows-cap 300", "--precision bf16"),
        ("--preset wide-deep --rows-cap 300 --optimizer adagrad", ""),
        ("--preset demo --set model.interaction=cat --set model.dim=8", ""),
        ("--preset rmc1", ""),
    ] {
        let train = format!("{DATA} --batch 128 --steps 12 --eval-every 0 --threads 1 {more} --json");
        let whole = json(&format!("train {flags} {train}"));
        let mine = json(&format!("train --config {} {train}", expanded(folder.path(), flags)));
        for key in ["loss", "auc", "train_loss"] {
            assert_eq!(mine[key], whole[key], "{flags}: {key}: {mine}");
        }
    }
}

#[test]
fn a_network_of_ones_own_is_trained_resumed_and_planned_as_any_other() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name).display().to_string();
    let mine = written(folder.path(), OWN);
    let line =
        format!("train --config {mine} {DATA} --batch 128 --lr 0.01 --eval-every 0 --determinism ranks --threads 1");
    let summary = json(&format!("{line} --ranks 1 --steps 24 --out {} --json", at("whole")));
    succeed(&format!("{line} --ranks 3 --steps 11 --out {}", at("parts")));
    let resumed = json(&format!("train --resume {} --ranks 2 --steps 24 --json", at("parts")));
    assert_eq!(resumed["final_loss"], summary["final_loss"]);
    let scores = json(&format!("eval --checkpoint {} --json", at("whole")));
    assert_eq!(scores["auc"], summary["auc"]);
    let file = fs::read(folder.path().join("whole/checkpoint.safetensors")).unwrap();
    let tensors = SafeTensors::deserialize(&file).unwrap();
    let shape = |name: &str| tensors.tensor(name).unwrap_or_else(|_| panic!("{name}")).shape().to_vec();
    assert_eq!(shape("layers.bottom.0.weight"), [16, 13]);
    assert_eq!(shape("layers.crossed.V_kernels.1"), [6, 13 + 16]);
    assert_eq!(shape("layers.crossed.bias.0"), [13 + 16]);
    // Of 27 vectors each with those before it.
    assert_eq!(shape("layers.deep.0.weight"), [24, 13 + 16 + 27 * 26 / 2 + 8]);
    assert_eq!(shape("wide_dense.weight"), [1, 13]);
    assert_eq!(shape("tables.25.weight")[1], 8);
    let where_to = "--topology twisted-hypercube-8 --ranks 8 --json";
    let plan = json(&format!("plan --config {mine} {where_to}"));
    assert_eq!(plan["workload"]["tables"].as_array().unwrap().len(), 26 + 27);
    assert!(json(&format!("simulate --config {mine} {where_to}"))["points"][0]["step_ms"].as_f64().unwrap() > 0.0);
    // Names of columns come with random data, too.
    let random = "--set model.rows=[70,30] --set model.columns=[\"a\",\"b\"]";
    let layers = r#"
[[model.layers]]
name = "all"
type = "concat"
of = ["b", "dense", "a"]
[[model.layers]]
name = "logit"
type = "linear"
of = "all"
outputs = 1
"#;
    let mine = written(folder.path(), layers);
    let bench =
        format!("bench step --config {mine} {random} --batch 64 --repeat 2 --minibatches 2 --limit-mib 16 --json");
    assert!(json(&bench)["roofline_ms"].as_f64().unwrap() > 0.0);
}

#[test]
fn a_network_is_drawn_with_every_layer_and_what_it_gives() {
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path().join("network.svg");
    let drawn = |flags: &str| {
        succeed(&format!("config {flags} --svg {}", at.display()));
        fs::read_to_string(&at).unwrap()
    };
    let own = drawn(&format!("--config {}", written(folder.path(), OWN)));
    for words in ["crossed", "cross, 2 layers of rank 6", "29 numbers", "embeddings", "1 number", "sum: the logit"] {
        assert!(own.contains(&format!(">{words}<")), "{words}: {own}");
    }
    // A line for each thing that is read.
    assert_eq!(own.matches("<path").count(), 14);
    assert!(own.starts_with("<svg") && own.ends_with("</svg>\n"));
    let series = drawn("--preset rmc1");
    assert!(series.contains(">attention by 15, 15 over 20 steps<") && series.contains("numbers a step<"), "{series}");
}

#[test]
fn what_is_no_network_is_refused_by_the_layer_that_is_wrong() {
    let folder = tempfile::tempdir().unwrap();
    let logit = r#"{ name = "logit", type = "linear", of = "x", outputs = 1 }"#;
    for (layers, told) in [
        (r#"{ name = "x", type = "linaer", of = "dense" }"#, "unknown variant `linaer`"),
        (r#"{ name = "x", type = "relu", of = "dense", wdth = 3 }"#, "unknown field `wdth`"),
        (r#"{ type = "relu", of = "dense" }"#, "missing field `name`"),
        (
            r#"{ name = "x", type = "concat", of = ["dense", "embedings"] }"#,
            "reads embedings, which is no layer and no column (did you mean embeddings?)",
        ),
        (
            r#"{ name = "x", type = "relu", of = "y" }, { name = "y", type = "relu", of = "x" }"#,
            "layers read each other in a circle: x reads y reads x",
        ),
        (
            r#"{ name = "x", type = "concat", of = ["dense", "embeddings"] }, { name = "y", type = "relu", of = "dense" }"#,
            "here y, logit are read by none",
        ),
        (r#"{ name = "x", type = "concat", of = ["dense"] }"#, "no layer reads column C1"),
        (r#"{ name = "x", type = "concat", of = ["embeddings"] }"#, "no layer reads dense, the 13 dense features"),
        (
            r#"{ name = "x", type = "sum", of = ["dense", "embeddings"] }"#,
            "layer x (sum): it reads vectors of 13 and of 16 numbers, which must be equal",
        ),
        (
            r#"{ name = "x", type = "linear", of = ["dense", "C1"], outputs = 3 }"#,
            "put several side by side with a layer of type concat",
        ),
        (r#"{ name = "x", type = "linear", of = "dense" }"#, "layer x (linear): `outputs` is missing"),
        (r#"{ name = "x", type = "cross", of = "dense", layers = 2 }"#, "`rank` is missing"),
        (r#"{ name = "x", type = "concat", of = "dense", outputs = 2 }"#, "`outputs` has no effect there"),
        (
            r#"{ name = "C1", type = "concat", of = "dense" }, { name = "x", type = "concat", of = ["C1", "embeddings"] }"#,
            "so the data's features are called",
        ),
        (
            r#"{ name = "x", type = "concat", of = "dense" }, { name = "x", type = "concat", of = "C1" }"#,
            "two layers are called x",
        ),
        (r#"{ name = "x", type = "attention", of = "dense" }"#, "set model.ts_length"),
        (
            r#"{ name = "x", type = "concat", of = ["dense", "embeddings", "w"] }, { name = "w", type = "wide" }"#,
            "only the logit, a layer of type sum, reads it",
        ),
    ] {
        let mine = written(folder.path(), &format!("[model]\nlayers = [\n{layers},\n{logit}\n]\n"));
        let message = fail(&format!("train --config {mine} {DATA}"));
        assert!(message.contains(told), "{layers}: {message}");
        assert!(message.contains("model.layers"), "{layers}: {message}");
    }
    let many = logit.replace("\"x\"", "\"all\"").replace("outputs = 1", "outputs = 2");
    let all = r#"{ name = "all", type = "concat", of = ["dense", "embeddings"] }"#;
    let mine = written(folder.path(), &format!("[model]\nlayers = [{all}, {many}]\n"));
    assert!(fail(&format!("train --config {mine} {DATA}")).contains("has 2 numbers instead of 1"));
    let twice =
        format!("{all}, {}, {{ name = \"p\", type = \"sigmoid\", of = \"logit\" }}", many.replace("= 2", "= 1"));
    let mine = written(folder.path(), &format!("[model]\nlayers = [{twice}]\n"));
    assert!(fail(&format!("train --config {mine} {DATA}")).contains("leave this layer away"));
    // Keys of built-in networks would do nothing.
    let mine = written(folder.path(), OWN);
    for key in
        ["model.top=[8,1]", "model.interaction=cat", "model.cross_rank=3", "model.wide=true", "model.triangle=upper"]
    {
        let message = fail(&format!("train --config {mine} {DATA} --set {key}"));
        assert!(message.contains("has an effect only with"), "{key}: {message}");
    }
}
