//! Damage in a model's files is found wherever it is, and its message helps; and predictions are of every row.

use std::fs;
use std::path::{Path, PathBuf};

use octorec::base::config::{Command, Config, Layers};
use octorec::base::rng::{Random, Stream};
use octorec::data::schema::Scales;
use octorec::data::{About, Schema, Vocabulary};
use octorec::model::TrainSpec;
use octorec::optim::ByGroup;
use octorec::simd::Isa;
use octorec::train::{Checkpoint, Origin, Progress, Ranks, digest, load_vocabulary, save, save_vocabulary};
use safetensors::tensor::TensorView;
use safetensors::{SafeTensors, serialize};

use super::{TINY, fail, json, run, succeed, tsv};

/// Places that are the same on every run.
fn places(seed: u64, count: u64, below: usize) -> impl Iterator<Item = usize> {
    let random = Random::new(seed, Stream::Label);
    (0..count).map(move |n| random.below(n, below as u64) as usize)
}

/// The tensor that holds a byte of a file; `None` in its head.
fn tensor_at(whole: &[u8], at: usize) -> Option<String> {
    let (len, metadata) = SafeTensors::read_metadata(whole).unwrap();
    let at = at.checked_sub(8 + len)?;
    let tensors = metadata.tensors();
    let found = tensors.iter().find(|(_, info)| (info.data_offsets.0..info.data_offsets.1).contains(&at));
    Some(found.expect("a byte of a tensor").0.clone())
}

fn config() -> Config {
    let mut layers = Layers::default();
    for setting in [
        "model.bottom=[7, 20, 8]",
        "model.top=[15, 1]",
        "model.dim=8",
        "train.optimizer=\"momentum\"",
        "train.optimizer_rows=\"momentum\"",
    ] {
        layers.assignment(setting).unwrap();
    }
    layers.finish(Command::Train).unwrap()
}

fn model(config: &Config, schema: &Schema) -> Ranks {
    let spec = TrainSpec { optimizers: ByGroup::configured(&config.train), ..TrainSpec::sgd(16) };
    let ranks = crate::alone::alone(&config.model, schema, spec, 1, Isa::best()).unwrap();
    ranks.initialise(3).unwrap();
    ranks
}

#[test]
fn every_flip_and_cut_of_a_checkpoint_is_found() {
    let folder = tempfile::tempdir().unwrap();
    let (config, schema) = (config(), Schema::criteo(7, &[50, 3, 200]));
    let ranks = model(&config, &schema);
    let [good, bad] = ["good", "bad"].map(|name| folder.path().join(name));
    let (schema, about, scales) = (&schema, &About::default(), &Scales::default());
    let origin = Origin { schema, about, rows_taken: false, scales, data: None, start: None, statistics: None };
    save(Some(&good), &ranks, Progress::default(), &config, origin).unwrap();
    let whole = fs::read(&good).unwrap();
    let load = |path: &Path, verified: bool| {
        Checkpoint::open_as(path, verified)
            .and_then(|checkpoint| checkpoint.load_into(&ranks))
            .map_err(|e| e.to_string())
    };
    load(&good, true).unwrap();
    let (len, metadata) = SafeTensors::read_metadata(&whole).unwrap();
    let head = 8 + len;
    assert!(metadata.tensors().keys().any(|name| name.starts_with("state.emb_l.1.")), "it has what optimizers keep");
    // The whole length, places in the head, places in the rest, and both ends of each tensor.
    let mut bits: Vec<usize> = (0..64).collect();
    bits.extend(places(1, 300, 8 * head));
    bits.extend(places(2, 300, 8 * (whole.len() - head)).map(|bit| 8 * head + bit));
    bits.extend(
        metadata
            .tensors()
            .values()
            .flat_map(|info| [info.data_offsets.0, info.data_offsets.1 - 1])
            .map(|at| 8 * (head + at)),
    );
    let mut unverified = 0;
    for bit in bits {
        let mut bytes = whole.clone();
        bytes[bit / 8] ^= 1 << (bit % 8);
        fs::write(&bad, &bytes).unwrap();
        let Err(message) = load(&bad, true) else { panic!("bit {bit} of {} went unnoticed", 8 * whole.len()) };
        assert!(message.contains("bad"), "{message}");
        if let Some(name) = tensor_at(&whole, bit / 8) {
            assert!(
                message.contains(&format!("tensor {name} is damaged")) && message.contains("--no-verify"),
                "{message}"
            );
            unverified += usize::from(load(&bad, false).is_ok());
        }
    }
    assert!(unverified > 300, "without a look at hashes, {unverified} are read");
    for len in places(4, 60, whole.len()).chain([0, 7, 8, head, whole.len() - 1]) {
        fs::write(&bad, &whole[..len]).unwrap();
        assert!(load(&bad, true).is_err(), "cut at byte {len}");
    }
    fs::write(&bad, [&whole[..], &[0]].concat()).unwrap();
    assert!(load(&bad, true).is_err(), "a byte more");
}

#[test]
fn every_flip_and_cut_of_a_vocabulary_is_found() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("vocabulary.safetensors");
    let value = |n: u32| format!("value {n}").into_bytes().into_boxed_slice();
    let texts = vec![(0..40).map(value).collect(), Vec::new(), (7..30).map(value).collect()];
    let numbers = vec![(0..90).map(|n: u32| n * 7919).collect(), vec![5], Vec::new()];
    for vocabulary in [Vocabulary::of_texts(texts), Vocabulary::from_columns(numbers, true).unwrap()] {
        save_vocabulary(&path, &vocabulary).unwrap();
        assert_eq!(digest(&load_vocabulary(&path, true).unwrap()), digest(&vocabulary));
        let whole = fs::read(&path).unwrap();
        for bit in places(5, 1500, 8 * whole.len()).chain(0..64) {
            let mut bytes = whole.clone();
            bytes[bit / 8] ^= 1 << (bit % 8);
            fs::write(&path, &bytes).unwrap();
            let message = load_vocabulary(&path, true).expect_err(&format!("bit {bit} went unnoticed")).to_string();
            assert!(message.contains("vocabulary.safetensors"), "{message}");
        }
        for len in (0..whole.len()).step_by(7) {
            fs::write(&path, &whole[..len]).unwrap();
            assert!(load_vocabulary(&path, true).is_err(), "cut at byte {len}");
        }
    }
}

/// A run on a log, with optimizers that keep something.
fn trained(folder: &Path) -> (PathBuf, PathBuf) {
    let (out, data) = (folder.join("run"), tsv(&folder.join("clicks.tsv"), 400));
    let optimizers = "--optimizer momentum --optimizer-rows momentum";
    succeed(&format!("train {TINY} {optimizers} --data {} --steps 3 --out {}", data.display(), out.display()));
    (out, data)
}

/// Flips the lowest bit of a byte.
fn flip(path: &Path, at: impl FnOnce(&[u8]) -> usize) -> Vec<u8> {
    let before = fs::read(path).unwrap();
    let mut bytes = before.clone();
    bytes[at(&before)] ^= 1;
    fs::write(path, bytes).unwrap();
    before
}

#[test]
fn damaged_models_are_refused_by_every_command_and_the_remedies_work() {
    let folder = tempfile::tempdir().unwrap();
    let (out, data) = trained(folder.path());
    let checkpoint = out.join("checkpoint.safetensors");
    let (run, data) = (out.display(), data.display());
    let start = |name: &str| {
        let out = folder.path().join(name);
        format!("train {TINY} --data {data} --steps 3 --init {} --out {} --force", checkpoint.display(), out.display())
    };
    let commands = [
        format!("eval --checkpoint {run}"),
        format!("predict --checkpoint {run} --data {data}"),
        start("other"),
        format!("train --resume {run} --steps 5"),
    ];
    let middle = |name: &str| {
        let name = name.to_owned();
        move |whole: &[u8]| {
            let (len, metadata) = SafeTensors::read_metadata(whole).unwrap();
            let (from, to) = metadata.tensors()[&name].data_offsets;
            8 + len + (from + to) / 2 / 4 * 4
        }
    };
    for tensor in ["emb_l.2.weight", "state.bot_l.0.weight.momentum_buffer"] {
        let before = flip(&checkpoint, middle(tensor));
        for command in &commands {
            // Only a run that goes on reads what its optimizer kept.
            if tensor.starts_with("state.") && !command.contains("--resume") {
                continue;
            }
            let message = fail(command);
            let damage = format!("checkpoint.safetensors: tensor {tensor} is damaged");
            assert!(message.contains(&damage) && message.contains("put an undamaged copy"), "{command}: {message}");
            if !command.contains("--resume") {
                succeed(&format!("{command} --no-verify"));
            }
        }
        fs::write(&checkpoint, before).unwrap();
        commands[..2].iter().for_each(|command| drop(succeed(command)));
    }
    // The same of the vocabulary, which weights alone do not need.
    let vocabulary = out.join("vocabulary.safetensors");
    let before = flip(&vocabulary, middle("C3"));
    for command in [&commands[0], &commands[1], &commands[3]] {
        let message = fail(command);
        assert!(message.contains("vocabulary.safetensors: damaged vocabulary: tensor C3"), "{message}");
        assert!(message.contains("--no-verify"), "{message}");
    }
    succeed(&format!("{} --no-verify", commands[1]));
    fs::write(&vocabulary, before).unwrap();
    flip(&checkpoint, middle("emb_l.2.weight"));
    succeed(&format!("{} --no-verify", commands[3]));
    // What it has saved since is sound.
    commands.iter().for_each(|command| drop(succeed(command)));
    let message = fail(&format!("train {TINY} --no-verify"));
    assert!(message.contains("--no-verify: there is nothing to verify"), "{message}");
}

#[test]
fn files_without_hashes_are_read_with_a_note() {
    let folder = tempfile::tempdir().unwrap();
    let (out, data) = trained(folder.path());
    let path = out.join("checkpoint.safetensors");
    let eval = format!("eval --checkpoint {} --json", out.display());
    let note = "carries no hashes: damage in it would go unnoticed";
    let expected = run(&eval);
    assert!(!String::from_utf8_lossy(&expected.stderr).contains(note));
    let whole = fs::read(&path).unwrap();
    let (_, metadata) = SafeTensors::read_metadata(&whole).unwrap();
    let file = SafeTensors::deserialize(&whole).unwrap();
    let views = || file.tensors().into_iter().filter(|(name, _)| !name.starts_with("state."));
    // As an older version wrote it, and as another program does.
    let mut said = metadata.metadata().clone().unwrap();
    said.retain(|key, _| key == "octorec");
    let written = |said| serialize::<_, TensorView<'_>, _>(views(), said).unwrap();
    fs::write(&path, written(Some(said))).unwrap();
    let found = run(&eval);
    assert_eq!(found.stdout, expected.stdout);
    let said = String::from_utf8_lossy(&found.stderr).into_owned();
    assert_eq!(said.matches(note).count(), 1, "{said}");
    assert!(!String::from_utf8_lossy(&run(&format!("{eval} --no-verify")).stderr).contains(note));
    fs::write(&path, written(None)).unwrap();
    let found = succeed(&format!("train {TINY} --data {} --init {} --steps 2", data.display(), path.display()));
    assert!(String::from_utf8_lossy(&found.stderr).contains(note));
    // Half of the two keys is damage, and no older file.
    let mut half = metadata.metadata().clone().unwrap();
    half.remove("octorec.head");
    fs::write(&path, written(Some(half))).unwrap();
    assert!(fail(&eval).contains("its head"));
}

/// The predictions of a command, and what it said.
fn predicted(line: &str) -> (Vec<String>, String) {
    let output = succeed(line);
    let lines = String::from_utf8(output.stdout).unwrap().lines().map(str::to_owned).collect();
    (lines, String::from_utf8(output.stderr).unwrap())
}

#[test]
fn every_row_is_predicted_in_the_order_of_the_input() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name).display().to_string();
    let log = tsv(&folder.path().join("log.tsv"), 700);
    let preprocess = |out: &str, split: &str| {
        let line = format!("preprocess criteo-kaggle --in {} --out {} {split} --file-rows 90", log.display(), at(out));
        succeed(&line);
    };
    // The last day's first half is for test, its second for validation.
    preprocess("split", "--split last-day-dlrm");
    preprocess("whole", "");
    succeed(&format!("train {TINY} --data {} --steps 4 --out {}", at("split"), at("run")));
    let predict = |data: &str| predicted(&format!("predict --checkpoint {} --data {}", at("run"), at(data)));
    let (lines, said) = predict("split");
    let all = lines.clone();
    assert_eq!(lines.len(), 700);
    assert!(said.contains("700 probabilities: one for each row of") && said.contains("split, in its order"), "{said}");
    assert!(predict("whole").0 == lines, "rows for test stand where they stood in the log");
    // Other formats have a file a purpose: training, validation, test.
    let part = |roles: &[&str]| {
        let manifest = fs::read_to_string(folder.path().join("split/dataset.toml")).unwrap();
        let rows = |role: &str| manifest.matches(&format!("role = \"{role}\"")).count();
        roles.iter().map(|role| rows(role)).sum::<usize>()
    };
    assert!(part(&["train"]) > 5 && part(&["validation", "test"]) == 2);
    let (train, test) = (600, 50);
    let roles = [&lines[..train], &lines[train + test..], &lines[train..train + test]].concat();
    for format in ["mlperf", "nvidia", "torchrec", "hugectr"] {
        succeed(&format!("convert {} {} --format {format}", at("split"), at(format)));
        let (found, _) = predict(format);
        assert_eq!(found.len(), 700, "{format}");
        assert!(found == roles || format == "nvidia", "{format}");
    }
    // What is read is not written over, nor is a file of it.
    for input in ["split/dataset.toml", "split/part-00003.octo", "run/checkpoint.safetensors"] {
        let before = fs::read(folder.path().join(input)).unwrap();
        let message = fail(&format!("predict --checkpoint {} --data {} --out {}", at("run"), at("split"), at(input)));
        assert!(message.contains("is an input of this command") && fs::read(at(input)).unwrap() == before, "{message}");
    }
    // Text, from the first line to the last, whatever the run kept for its own tests.
    let text = format!("train {TINY} --epochs 1 --data {} --test-fraction 0.3 --on-bad-row skip", log.display());
    succeed(&format!("{text} --out {}", at("text")));
    let (lines, said) = predicted(&format!("predict --checkpoint {} --data {}", at("text"), log.display()));
    assert!(lines.len() == 700 && said.contains("700 probabilities"), "{said}");
    let one = fs::read_to_string(&log).unwrap().lines().nth(650).unwrap().to_owned() + "\n";
    fs::write(folder.path().join("one.tsv"), &one).unwrap();
    let (single, said) = predicted(&format!("predict --checkpoint {} --data {}", at("text"), at("one.tsv")));
    assert!(single == lines[650..651] && said.contains("1 probability: one for each row"), "{said}");
    // A row that is left out would shift the lines behind it.
    fs::write(folder.path().join("bad.tsv"), format!("{one}1\tonly\n{one}")).unwrap();
    let message = fail(&format!("predict --checkpoint {} --data {}", at("text"), at("bad.tsv")));
    assert!(message.contains("bad.tsv: line 2"), "{message}");
    // Values of text have rows by a vocabulary, which a model of blocks has beside them.
    for command in ["eval", "predict"] {
        let message = fail(&format!("{command} --checkpoint {} --data {}", at("run"), log.display()));
        assert!(message.contains("log.tsv is text, whose values this model has no rows for"), "{message}");
        assert!(message.contains("--vocabulary DIR"), "{message}");
    }
    preprocess("again", &format!("--vocabulary {}", at("split")));
    assert!(predict("again").0 == all, "the remedy gives the rows that the model knows");
    // Scores are still of the test samples.
    let scores = json(&format!("eval --checkpoint {} --data {} --json", at("run"), at("split")));
    assert_eq!(scores["samples"], 50);
}
