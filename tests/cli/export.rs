//! Models as other programs take them: what is in the files, and that those programs find the probabilities of
//! `predict`.

use std::collections::HashSet;
use std::fs;
use std::path::Path;
use std::process::Command;

use octorec::simd::split::split;
use octorec::train::export::onnx::proto;
use prost::Message;
use safetensors::SafeTensors;
use safetensors::tensor::Dtype;

use super::requirement::required;
use super::{fail, octorec, succeed, tiny_training};

/// A run of 20 steps with these settings.
fn run(folder: &Path, settings: &str) -> String {
    let run = folder.join("run").display().to_string();
    succeed(&format!("{} {settings} --steps 20 --out {run}", tiny_training()));
    run
}

/// A tensor's bytes in a graph's file, or in the file beside it.
fn bytes(tensor: &proto::Tensor, beside: &[u8]) -> Vec<u8> {
    let entry = |key: &str| {
        let of = tensor.external_data.iter().find(|entry| entry.key.as_deref() == Some(key));
        of.and_then(|entry| entry.value.clone())
    };
    match (&tensor.raw_data, entry("offset"), entry("length")) {
        (Some(raw), None, None) => raw.clone(),
        (None, Some(offset), Some(length)) => {
            assert_eq!((tensor.data_location, entry("location").as_deref()), (Some(1), Some("model.onnx.data")));
            let [offset, length] = [offset, length].map(|number| number.parse::<usize>().unwrap());
            assert!(offset.is_multiple_of(4096), "runtimes map it");
            beside[offset..offset + length].to_vec()
        }
        other => panic!("{:?}: {other:?}", tensor.name),
    }
}

/// Checks that a graph can be run from its first node to its last, and holds its tensors against a checkpoint's;
/// returns the names of what is given to it.
fn hold(onnx: &Path, checkpoint: &[u8], bags: &str) -> Vec<String> {
    let model = proto::Model::decode(&*fs::read(onnx).unwrap()).unwrap();
    let beside = fs::read(onnx.with_extension("onnx.data")).unwrap_or_default();
    assert_eq!((model.ir_version, model.opset_import[0].version), (Some(8), Some(18)));
    let graph = model.graph.unwrap();
    let checkpoint = SafeTensors::deserialize(checkpoint).unwrap();
    let mut known: HashSet<&str> = HashSet::new();
    let mut tensors = 0;
    for tensor in &graph.initializer {
        let name = tensor.name.as_deref().unwrap();
        assert!(known.insert(name), "{name} comes twice");
        let Ok(given) = checkpoint.tensor(name) else { continue };
        tensors += 1;
        let mut expected = given.data().to_vec();
        let mut dims: Vec<i64> = given.shape().iter().map(|&length| length as i64).collect();
        if tensor.data_type == Some(proto::BFLOAT16) {
            let values: Vec<f32> = bytemuck::allocation::pod_collect_to_vec(&expected);
            let halves: Vec<u16> = values.iter().map(|&x| split(x).0).collect();
            expected = bytemuck::cast_slice(&halves).to_vec();
        }
        if name.contains("emb") && bags == "padded" {
            dims[0] += 1;
            expected.resize(expected.len() / (dims[0] - 1) as usize * dims[0] as usize, 0);
        }
        assert_eq!(tensor.dims, dims, "{name}");
        assert!(bytes(tensor, &beside) == expected, "{name}");
    }
    let moments = checkpoint.names().iter().filter(|name| name.starts_with("state.")).count();
    assert_eq!(tensors + moments, checkpoint.names().len(), "all weights, and nothing of the optimizer's");
    let inputs: Vec<String> = graph.input.iter().map(|input| input.name.clone().unwrap()).collect();
    known.extend(inputs.iter().map(String::as_str));
    for node in &graph.node {
        for input in &node.input {
            assert!(known.contains(input.as_str()), "{:?} reads {input}, which nobody has left", node.name);
        }
        for output in &node.output {
            assert!(known.insert(output), "{output} is left twice");
        }
    }
    let outputs: Vec<_> = graph.output.iter().map(|output| output.name.as_deref().unwrap()).collect();
    assert_eq!(outputs, ["probabilities"]);
    assert!(known.contains("probabilities"));
    inputs
}

#[test]
fn a_graph_has_the_weights_of_the_checkpoint_and_reads_nothing_that_is_not_there() {
    let dcn = "--set model.interaction=dcn --set model.cross_layers=2 --set model.cross_rank=5 --optimizer adam \
               --optimizer-rows rowwise-adagrad --set data.lookups=3";
    for settings in ["", dcn, "--precision bf16", "--set model.triangle=upper --set model.pooling=mean"] {
        let folder = tempfile::tempdir().unwrap();
        let run = run(folder.path(), settings);
        let checkpoint = fs::read(format!("{run}/checkpoint.safetensors")).unwrap();
        for (bags, above) in [("padded", "512MiB"), ("offsets", "0"), ("padded", "0"), ("offsets", "512MiB")] {
            let out = folder.path().join(format!("{bags}-{above}/model.onnx"));
            fs::create_dir(out.parent().unwrap()).unwrap();
            succeed(&format!(
                "export --checkpoint {run} --format onnx --out {} --bags {bags} --external-above {above}",
                out.display()
            ));
            assert_eq!(out.with_extension("onnx.data").exists(), above == "0");
            let inputs = hold(&out, &checkpoint, bags);
            assert_eq!(inputs.len(), if bags == "padded" { 27 } else { 53 });
            assert_eq!(inputs[..2], ["dense", "ids_0"]);
        }
    }
}

#[test]
fn a_graph_that_holds_its_weights_leaves_nothing_of_an_earlier_one_beside_it() {
    let folder = tempfile::tempdir().unwrap();
    let run = run(folder.path(), "");
    let out = folder.path().join("model.onnx");
    let beside = out.with_extension("onnx.data");
    let export = |above: &str| {
        format!("export --checkpoint {run} --format onnx --out {} --external-above {above}", out.display())
    };
    // Larger ones replace each other, and a smaller one takes what they have left.
    for _ in 0..2 {
        succeed(&export("0"));
        assert!(beside.exists());
    }
    succeed(&export("512MiB"));
    assert!(!beside.exists());
    hold(&out, &fs::read(format!("{run}/checkpoint.safetensors")).unwrap(), "padded");
    // Where no graph has its weights there, a file is somebody's own, and so is one that was changed since.
    fs::write(&beside, "mine").unwrap();
    let message = fail(&export("0"));
    assert!(message.contains("--out: ") && message.contains("would be lost"), "{message}");
    succeed(&export("512MiB"));
    assert_eq!(fs::read_to_string(&beside).unwrap(), "mine");
    fs::remove_file(&beside).unwrap();
    succeed(&export("0"));
    fs::write(&beside, "mine").unwrap();
    succeed(&export("512MiB"));
    assert_eq!(fs::read_to_string(&beside).unwrap(), "mine");
}

#[test]
fn a_state_dict_has_pytorchs_names_and_a_script_beside_it() {
    for (settings, number) in [("--optimizer adam", Dtype::F32), ("--precision bf16", Dtype::BF16)] {
        let folder = tempfile::tempdir().unwrap();
        let run = run(folder.path(), settings);
        let out = folder.path().join("model.safetensors");
        succeed(&format!("export --model {run} --format torch --out {}", out.display()));
        assert!(fs::read_to_string(folder.path().join("load.py")).unwrap().contains("def load(path)"));
        let [found, before] = [out, format!("{run}/checkpoint.safetensors").into()].map(|path| fs::read(path).unwrap());
        let [found, before] = [&found, &before].map(|file| SafeTensors::deserialize(file).unwrap());
        let mut names: Vec<_> = before.names().into_iter().filter(|name| !name.starts_with("state.")).collect();
        names.sort_unstable();
        let mut written = found.names();
        written.sort_unstable();
        assert_eq!(written, names);
        for name in names {
            let (found, before) = (found.tensor(name).unwrap(), before.tensor(name).unwrap());
            assert_eq!(found.shape(), before.shape(), "{name}");
            if name.ends_with("bias") || number == Dtype::F32 {
                assert!(found.dtype() == Dtype::F32 && found.data() == before.data(), "{name}");
            } else {
                let values: Vec<f32> = bytemuck::allocation::pod_collect_to_vec(before.data());
                let halves: Vec<u16> = values.iter().map(|&x| split(x).0).collect();
                assert!(found.dtype() == number && found.data() == bytemuck::cast_slice::<u16, u8>(&halves), "{name}");
            }
        }
    }
}

#[test]
fn what_cannot_be_exported_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let run = run(folder.path(), "");
    let out = folder.path().join("model");
    let export = |more: &str| format!("export --checkpoint {run} --out {} {more}", out.display());
    let message = fail(&export("--format torch --bags padded"));
    assert!(message.contains("--bags: has no effect on --format torch"), "{message}");
    let message = fail(&export("--format onnx --external-above 2GiB"));
    assert!(message.contains("--external-above: no protobuf file holds more than 2 GiB"), "{message}");
    let checkpoint = format!("{run}/checkpoint.safetensors");
    let message = fail(&format!("export --checkpoint {run} --format onnx --out {checkpoint}"));
    assert!(message.contains("is an input of this command"), "{message}");
    // Damage is found on the way, and nothing is left behind.
    let mut bytes = fs::read(&checkpoint).unwrap();
    let last = bytes.len() - 1;
    bytes[last] ^= 1;
    fs::write(&checkpoint, bytes).unwrap();
    for format in ["onnx", "torch"] {
        let message = fail(&export(&format!("--format {format}")));
        assert!(message.contains("is damaged (its hash differs)"), "{message}");
        assert!(!out.exists());
    }
    succeed(&export("--format onnx --no-verify"));
}

#[test]
fn other_programs_find_the_probabilities_of_predict() {
    let python = std::env::var("OCTOREC_PYTHON").unwrap_or_else(|_| "python3".to_owned());
    let has = |module: &str| {
        let code = format!("import numpy, {module}");
        let found = Command::new(&python).args(["-c", &code]).output().map_err(|error| error.to_string())?;
        let last = || String::from_utf8_lossy(&found.stderr).trim().lines().last().unwrap_or_default().to_owned();
        if found.status.success() { Ok(module.to_owned()) } else { Err(format!("{python}: {}", last())) }
    };
    let there: Vec<String> =
        ["onnxruntime", "torch"].into_iter().filter_map(|module| required(module, has(module))).collect();
    if there.is_empty() {
        return;
    }
    let check = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/export/check.py");
    let binary = octorec().get_program().to_owned();
    let output = Command::new(&python)
        .env("OCTOREC_CACHE", concat!(env!("CARGO_TARGET_TMPDIR"), "/no-cache"))
        .arg(check)
        .arg(binary)
        .args(["--rows", "1000", "--cases", ",", "--require"])
        .args(there)
        .output()
        .unwrap();
    let [told, trouble] = [&output.stdout, &output.stderr].map(|text| String::from_utf8_lossy(text).into_owned());
    assert!(output.status.success(), "{told}{trouble}");
    assert!(told.contains("all within their limits"), "{told}");
}

#[test]
fn both_formats_name_the_columns_of_their_inputs() {
    let folder = tempfile::tempdir().unwrap();
    let to = |name: &str| folder.path().join(name).display().to_string();
    let data = super::tsv(&folder.path().join("clicks.tsv"), 200);
    let layers = "--set model.bottom=[13,8] --set model.top=[8,1] --set model.dim=8 --batch 50 --steps 2 --threads 1";
    succeed(&format!(
        "train --data {} {layers} --set model.wide=true --set model.wide_crosses=[[\"C3\",\"C1\"]] --out {}",
        data.display(),
        to("run")
    ));
    let names: Vec<String> = (1..=26).map(|n| format!("C{n}")).collect();
    let dense: Vec<String> = (1..=13).map(|n| format!("I{n}")).collect();
    let is_dense = |found: &serde_json::Value| {
        let found = found.as_array().unwrap();
        assert!(found.iter().zip(&dense).all(|(column, name)| column["name"] == **name && column["read"] == "by log"));
        assert_eq!(found.len(), dense.len());
    };
    for bags in ["padded", "offsets"] {
        let out = to(&format!("{bags}.onnx"));
        succeed(&format!("export --checkpoint {} --format onnx --bags {bags} --out {out}", to("run")));
        let model = proto::Model::decode(&*fs::read(&out).unwrap()).unwrap();
        let told = |key: &str| -> serde_json::Value {
            let entry = model.metadata_props.iter().find(|entry| entry.key.as_deref() == Some(key)).unwrap();
            serde_json::from_str(entry.value.as_deref().unwrap()).unwrap()
        };
        let expected: Vec<String> = names.iter().cloned().chain(["C3 x C1".to_owned()]).collect();
        assert_eq!(told("octorec.columns"), serde_json::json!(expected));
        let graph = model.graph.unwrap();
        let inputs: Vec<_> = graph.input.iter().map(|input| input.name.clone().unwrap()).collect();
        assert_eq!(inputs.iter().filter(|name| name.starts_with("ids_")).count(), expected.len(), "{inputs:?}");
        is_dense(
            &model
                .metadata_props
                .iter()
                .find_map(|entry| {
                    let found = entry.key.as_deref() == Some("octorec.dense_columns");
                    found.then(|| serde_json::from_str(entry.value.as_deref().unwrap()).unwrap())
                })
                .unwrap(),
        );
    }
    let out = to("model.safetensors");
    succeed(&format!("export --checkpoint {} --format torch --out {out}", to("run")));
    let bytes = fs::read(&out).unwrap();
    let (_, metadata) = SafeTensors::read_metadata(&bytes).unwrap();
    let told: serde_json::Value =
        serde_json::from_str(&metadata.metadata().as_ref().unwrap()["octorec.model"]).unwrap();
    assert_eq!(told["columns"], serde_json::json!(names));
    is_dense(&told["dense_columns"]);
}

/// Sequences are padded whichever way look-ups are given, which other columns are not.
#[test]
fn a_time_series_takes_its_steps_as_the_guide_says() {
    let folder = tempfile::tempdir().unwrap();
    let to = |name: &str| folder.path().join(name).display().to_string();
    succeed(&format!(
        "train --preset rmc1 --set model.rows=[60,400,30] --set data.train_samples=200 --set data.test_samples=50 --batch 64 \
         --eval-every 0 --threads 1 --steps 2 --out {}",
        to("run")
    ));
    for bags in ["padded", "offsets"] {
        let out = to(&format!("{bags}.onnx"));
        succeed(&format!("export --checkpoint {} --format onnx --bags {bags} --out {out}", to("run")));
        let graph = proto::Model::decode(&*fs::read(&out).unwrap()).unwrap().graph.unwrap();
        let input = |name: &str| graph.input.iter().find(|input| input.name.as_deref() == Some(name));
        // The preset has 20 steps before the one in question, of the second and the third column.
        for table in [1, 2] {
            let ids = input(&format!("ids_{table}")).unwrap();
            let lengths = &ids.kind.as_ref().unwrap().tensor.as_ref().unwrap().shape.as_ref().unwrap().dim;
            assert_eq!((lengths.len(), lengths[1].value), (2, Some(21)), "{bags}");
            assert!(ids.doc_string.as_deref().unwrap().ends_with("is none, before the others"), "{bags}");
            assert!(input(&format!("offsets_{table}")).is_none(), "{bags}");
        }
        assert_eq!(input("offsets_0").is_some(), bags == "offsets");
    }
    let guide = String::from_utf8(succeed("guide serving").stdout).unwrap();
    let section = guide.split("# ONNX\n").nth(1).unwrap().split("\n# ").next().unwrap();
    let row = section.lines().find(|line| line.starts_with("| `ids_t` of a sequence |")).unwrap();
    assert!(row.contains("`model.ts_length` + 1") && row.contains("stands before them"), "{row}");
}
