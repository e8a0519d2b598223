//! Checkpoints whose numbers are of another type are refused, whether or not they are as wide as f32; of other programs'
//! files those of 16 bits are taken.

use std::fs;
use std::path::Path;

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

/// Writes the tensors of a file as another program would: each with the type and the bytes that `of` gives it.
fn rewrite(path: &str, file: &SafeTensors<'_>, of: impl Fn(&str, &TensorView<'_>) -> (Dtype, Vec<u8>)) {
    let tensors = file.tensors().into_iter().map(|(name, view)| {
        let (dtype, bytes) = of(&name, &view);
        (name, dtype, view.shape().to_vec(), bytes)
    });
    let tensors: Vec<_> = tensors.collect();
    let views = tensors.iter().map(|(name, dtype, shape, bytes)| {
        (name.as_str(), TensorView::new(*dtype, shape.clone(), bytes).expect("bytes of the shape"))
    });
    fs::write(path, serialize(views, None).unwrap()).unwrap();
}

/// The values of a tensor of 32-bit floats, bfloat16, or halves of the kind that the test below writes.
fn values(view: &TensorView<'_>) -> Vec<f32> {
    let half = |bytes: &[u8]| u16::from_le_bytes([bytes[0], bytes[1]]);
    let (words, halves) = (view.data().chunks_exact(4), view.data().chunks_exact(2));
    match view.dtype() {
        Dtype::F32 => words.map(|word| f32::from_le_bytes(word.try_into().unwrap())).collect(),
        Dtype::BF16 => halves.map(|bytes| f32::from_bits(u32::from(half(bytes)) << 16)).collect(),
        Dtype::F16 => {
            let value =
                |half: u16| (1.0 + f32::from(half & 0x3ff) / 1024.0) / if half >> 15 == 1 { -256.0 } else { 256.0 };
            halves.map(|bytes| value(half(bytes))).collect()
        }
        other => panic!("{other:?}"),
    }
}

/// The upper halves of 32-bit floats, which are bfloat16.
fn upper(view: &TensorView<'_>) -> Vec<u8> {
    view.data().chunks_exact(4).flat_map(|word| [word[2], word[3]]).collect()
}

/// What is told of a run that begins with the weights of `file`; checks that a step at rate 0 saves the very same.
fn begun_with(folder: &Path, file: &str, flags: &str) -> String {
    let out = folder.join("begun");
    let line = format!("{} --steps 1 --lr 0 {flags} --init {file} --out {} --force", tiny_training(), out.display());
    let told = String::from_utf8(succeed(&line).stderr).unwrap();
    let [given, saved] = [Path::new(file), &out.join("checkpoint.safetensors")].map(|path| fs::read(path).unwrap());
    let [given, saved] = [&given, &saved].map(|file| SafeTensors::deserialize(file).unwrap());
    let weights: Vec<_> = given.names().into_iter().filter(|name| !name.starts_with("state.")).collect();
    assert_eq!(weights.len(), 34);
    for name in weights {
        assert!(values(&given.tensor(name).unwrap()) == values(&saved.tensor(name).unwrap()), "{flags}: {name}");
    }
    told
}

#[test]
fn weights_of_sixteen_bits_in_another_programs_file_are_begun_with() {
    let folder = tempfile::tempdir().unwrap();
    let to = |name: &str| folder.path().join(name).display().to_string();
    succeed(&format!("{} --precision bf16 --steps 2 --out {}", tiny_training(), to("run")));
    let exported = to("exported.safetensors");
    succeed(&format!("export --checkpoint {} --format torch --out {exported}", to("run")));
    for precision in ["f32", "bf16"] {
        let told = begun_with(folder.path(), &exported, &format!("--precision {precision}"));
        // 26 tables and the matrices of four layers, whose biases are whole.
        assert!(told.contains(": 34 tensors of weights (30 of them of 16 bits, widened)\n"), "{told}");
    }
    let exported = fs::read(exported).unwrap();
    // As `model.half()` has them: of either sign, from 2^-8 on.
    rewrite(&to("half.safetensors"), &SafeTensors::deserialize(&exported).unwrap(), |_, view| {
        let elements: usize = view.shape().iter().product();
        let half = |n: usize| (0x1c00 | (n % 512) as u16 | ((n % 2) as u16) << 15).to_le_bytes();
        (Dtype::F16, (0..elements).flat_map(half).collect())
    });
    let told = begun_with(folder.path(), &to("half.safetensors"), "--precision f32");
    assert!(told.contains(": 34 tensors of weights (34 of them of 16 bits, widened)\n"), "{told}");
}

#[test]
fn what_optimizers_keep_may_have_sixteen_bits_and_what_they_count_may_not() {
    let folder = tempfile::tempdir().unwrap();
    let to = |name: &str| folder.path().join(name).display().to_string();
    let adam = "--optimizer adam --optimizer-rows adam";
    succeed(&format!("{} {adam} --steps 2 --out {}", tiny_training(), to("run")));
    let whole = fs::read(to("run/checkpoint.safetensors")).unwrap();
    let (file, short) = (SafeTensors::deserialize(&whole).unwrap(), to("short.safetensors"));
    rewrite(&short, &file, |_, view| (Dtype::BF16, upper(view)));
    let message = fail(&format!("{} {adam} --steps 1 --init {short}", tiny_training()));
    assert!(message.contains(".step has type BF16 and counts updates, of which 16 bits hold few exactly"), "{message}");
    rewrite(&short, &file, |name, view| match name.ends_with(".step") {
        true => (Dtype::F32, view.data().to_vec()),
        false => (Dtype::BF16, upper(view)),
    });
    let told = begun_with(folder.path(), &short, adam);
    assert!(told.contains(": 34 tensors of weights (34 of them of 16 bits, widened), "), "{told}");
    assert!(told.contains(" of the optimizer of layers, ") && !told.contains("begins anew"), "{told}");
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
