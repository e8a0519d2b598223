//! Checkpoints whose numbers are of another type are refused, whether or not they are as wide as f32.

use std::fs;

use safetensors::tensor::{Dtype, TensorView};
use safetensors::{SafeTensors, serialize};

use super::{fail, json, succeed, tiny_training};

#[test]
fn numbers_of_another_type_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("run");
    succeed(&format!("{} --steps 1 --out {}", tiny_training(), out.display()));
    let path = out.join("checkpoint.safetensors");
    let whole = fs::read(&path).unwrap();
    let (_, metadata) = SafeTensors::read_metadata(&whole).unwrap();
    let file = SafeTensors::deserialize(&whole).unwrap();
    let written = |name: &str, dtype: Dtype, width: usize| {
        let tensors = file.names().into_iter().map(|tensor| {
            let view = file.tensor(tensor).unwrap();
            let (shape, elements) = (view.shape().to_vec(), view.data().len() / 4);
            let (dtype, bytes) =
                if tensor == name { (dtype, vec![0; elements * width]) } else { (view.dtype(), view.data().to_vec()) };
            (tensor.to_owned(), dtype, shape, bytes)
        });
        let tensors: Vec<_> = tensors.collect();
        let views = tensors.iter().map(|(name, dtype, shape, bytes)| {
            (name.as_str(), TensorView::new(*dtype, shape.clone(), bytes).expect("bytes of the shape"))
        });
        // Another program knows nothing of hashes.
        let mut said = metadata.metadata().clone().unwrap();
        said.retain(|key, _| key == "octorec");
        fs::write(&path, serialize(views, Some(said)).unwrap()).unwrap();
    };
    let line = format!("eval --checkpoint {}", out.display());
    for name in ["bot_l.0.weight", "top_l.0.bias", "emb_l.3.weight"] {
        for (dtype, width) in [(Dtype::F64, 8), (Dtype::F16, 2), (Dtype::BF16, 2), (Dtype::I32, 4)] {
            written(name, dtype, width);
            let message = fail(&line);
            let expected = format!("tensor {name} has type {dtype:?}; convert it to F32");
            assert!(message.contains(&expected), "{message}");
        }
    }
    written("", Dtype::F32, 4);
    assert!(json(&format!("{line} --json"))["auc"].is_number(), "the same file with f32 is read");
}

#[test]
fn counts_of_updates_are_whole_and_the_same_for_all() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("run");
    let line = format!("{} --optimizer adam --optimizer-rows adam", tiny_training());
    succeed(&format!("{line} --steps 2 --out {}", out.display()));
    let path = out.join("checkpoint.safetensors");
    let whole = fs::read(&path).unwrap();
    let (_, metadata) = SafeTensors::read_metadata(&whole).unwrap();
    let file = SafeTensors::deserialize(&whole).unwrap();
    let counts = file.names().into_iter().filter(|name| name.ends_with(".step"));
    let of_layers = counts.filter(|name| !name.contains("emb_l")).max().expect("a layer counts its updates").to_owned();
    let with = |count: f32| {
        let tensors: Vec<_> = file.tensors();
        let views = tensors.iter().map(|(name, view)| {
            let bytes = if *name == of_layers { bytemuck::bytes_of(&count) } else { view.data() };
            (name.as_str(), TensorView::new(view.dtype(), view.shape().to_vec(), bytes).expect("bytes of the shape"))
        });
        let mut said = metadata.metadata().clone().unwrap();
        said.retain(|key, _| key == "octorec");
        fs::write(&path, serialize(views, Some(said)).unwrap()).unwrap();
        format!("train --resume {} --steps 4 --json", out.display())
    };
    for (count, said) in [(3.0, "give them one number"), (-1.0, "it counts updates"), (1.5, "it counts updates")] {
        let message = fail(&with(count));
        assert!(message.contains(said) && message.contains(&of_layers), "{count}: {message}");
    }
    assert_eq!(json(&with(2.0))["step"].as_u64(), Some(4), "the number that it was");
}
