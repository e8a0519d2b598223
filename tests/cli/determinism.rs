//! The same command gives the same bits, whatever the number of threads.

use std::fs;
use std::path::Path;

use super::{criteo_sample, fail, json, succeed, tiny_training};

/// The loss trace and the checkpoint's bytes of a run with these further arguments.
fn run(folder: &Path, name: &str, further: &str) -> (String, Vec<u8>) {
    let (out, trace) = (folder.join(name), folder.join(format!("{name}.txt")));
    succeed(&format!("{} --out {} --trace-loss {} {further}", tiny_training(), out.display(), trace.display()));
    (fs::read_to_string(trace).unwrap(), fs::read(out.join("checkpoint.safetensors")).unwrap())
}

/// The bytes behind the header, which names the number of threads.
fn weights(file: &[u8]) -> &[u8] {
    let header = u64::from_le_bytes(file[..8].try_into().unwrap()) as usize;
    &file[8 + header..]
}

#[test]
fn the_same_command_gives_the_same_bits() {
    let folder = tempfile::tempdir().unwrap();
    let (losses, checkpoint) = run(folder.path(), "a", "--threads 2");
    assert_eq!(losses.lines().count(), 40);
    assert!(
        losses.lines().all(|line| line.split('e').next().unwrap().replace(['.', '-'], "").len() == 9),
        "nine digits"
    );
    let again = run(folder.path(), "b", "--threads 2");
    assert_eq!(losses, again.0);
    assert!(checkpoint == again.1, "checkpoints are the same bytes");
}

#[test]
fn every_number_of_threads_gives_the_same_bits() {
    let folder = tempfile::tempdir().unwrap();
    let (losses, checkpoint) = run(folder.path(), "1", "--threads 1");
    for threads in [2, 3, 7] {
        let (other_losses, other) = run(folder.path(), &threads.to_string(), &format!("--threads {threads}"));
        assert_eq!(losses, other_losses, "{threads} threads");
        assert!(weights(&checkpoint) == weights(&other), "weights of {threads} threads");
    }
}

#[test]
fn another_seed_gives_another_run() {
    let folder = tempfile::tempdir().unwrap();
    let (losses, _) = run(folder.path(), "a", "--seed 1");
    assert_ne!(losses, run(folder.path(), "b", "--seed 2").0);
}

#[test]
fn every_number_of_ranks_gives_the_same_bits_if_asked() {
    let folder = tempfile::tempdir().unwrap();
    let train = "--determinism ranks --threads 1 --set train.eval_batch=100";
    let (losses, checkpoint) = run(folder.path(), "1", &format!("{train} --ranks 1"));
    for ranks in [2, 3, 5, 8] {
        let (other_losses, other) = run(folder.path(), &ranks.to_string(), &format!("{train} --ranks {ranks}"));
        assert_eq!(losses, other_losses, "{ranks} ranks");
        assert!(weights(&checkpoint) == weights(&other), "weights of {ranks} ranks");
    }
    // One run that several numbers of ranks have a part in.
    let (first, _) = run(folder.path(), "parts", &format!("{train} --ranks 3 --steps 10"));
    let (out, trace) = (folder.path().join("parts"), folder.path().join("rest.txt"));
    let steps = losses.lines().count();
    let resume = format!("train --resume {} --steps {steps} --ranks 4 --threads 1", out.display());
    let summary = json(&format!("{resume} --trace-loss {} --json", trace.display()));
    assert_eq!(format!("{first}{}", fs::read_to_string(trace).unwrap()), losses);
    let continued = fs::read(out.join("checkpoint.safetensors")).unwrap();
    assert!(weights(&checkpoint) == weights(&continued), "weights of 4 ranks after 3");
    let sent = &summary["traffic"]["ordered"];
    assert!(sent[0][1].as_u64().unwrap() > 0 && sent[0][0] == 0, "{sent}");
}

#[test]
fn what_optimizers_keep_is_saved_and_goes_on_with_any_number_of_ranks() {
    let folder = tempfile::tempdir().unwrap();
    let of = |layers: &str, rows: &str| {
        let more = "--lr 0.02 --threads 1 --set train.eval_batch=100";
        format!("--optimizer {layers} --optimizer-rows {rows} {more}")
    };
    let (momentum, adam) = (of("momentum", "momentum"), of("adam", "adam"));
    let lamb = of("lamb", "adagrad");
    let adagrad = of("adagrad", "rowwise-adagrad") + " --set train.initial_accumulator=0.1";
    let (plain, _) = run(folder.path(), "plain", &of("sgd", "sgd"));
    let buffers = ["emb_l.0.weight.momentum_buffer", "top_l.0.bias.momentum_buffer"];
    let sums = ["emb_l.0.weight.momentum", "top_l.0.bias.sum"];
    for (name, optimizers, tensors, determinism, first, then) in [
        ("alone", &momentum, buffers, "", 1, 1),
        ("slices", &momentum, buffers, "", 3, 3),
        ("ranks", &momentum, buffers, "--determinism ranks", 2, 5),
        ("adam", &adam, ["emb_l.0.weight.exp_avg_sq", "top_l.0.bias.step"], "", 3, 3),
        ("adam-ranks", &adam, ["emb_l.0.weight.step", "top_l.0.bias.exp_avg"], "--determinism ranks", 3, 2),
        ("lamb", &lamb, ["top_l.0.weight.exp_avg_sq", "bot_l.0.weight.step"], "", 3, 3),
        ("lamb-ranks", &lamb, ["emb_l.0.weight.sum", "top_l.0.weight.exp_avg"], "--determinism ranks", 2, 3),
        ("adagrad", &adagrad, sums, "", 2, 2),
        ("adagrad-ranks", &adagrad, sums, "--determinism ranks", 5, 3),
    ] {
        let train = format!("{optimizers} {determinism} --ranks {first}");
        let (losses, whole) = run(folder.path(), name, &train);
        assert_ne!(losses, plain, "{name} matters");
        let begun = format!("{name}-begun");
        let (start, _) = run(folder.path(), &begun, &format!("{train} --steps 15"));
        let (out, trace) = (folder.path().join(begun), folder.path().join("rest.txt"));
        let steps = losses.lines().count();
        let resume = format!("train --resume {} --steps {steps} --ranks {then} --threads 1", out.display());
        succeed(&format!("{resume} --trace-loss {}", trace.display()));
        assert_eq!(format!("{start}{}", fs::read_to_string(trace).unwrap()), losses, "{name}");
        let continued = fs::read(out.join("checkpoint.safetensors")).unwrap();
        assert!(weights(&whole) == weights(&continued), "{name}: weights and moments of {then} ranks after {first}");
        let header = String::from_utf8_lossy(&continued[8..continued.len() - weights(&continued).len()]).into_owned();
        for tensor in tensors {
            assert!(header.contains(&format!("\"state.{tensor}\"")), "{name}: {tensor}");
        }
        // Predictions need none of it.
        succeed(&format!("eval --checkpoint {} --threads 1", out.display()));
    }
    // A run goes on with its own optimizers.
    let out = folder.path().join("adam");
    let message = fail(&format!("train --resume {} --optimizer-rows adagrad --threads 1", out.display()));
    assert!(message.contains("lacks what these optimizers keep: start from its weights with --init"), "{message}");
    // Weights alone: a new run begins with no momentum.
    let from = folder.path().join("plain/checkpoint.safetensors");
    run(folder.path(), "from", &format!("{momentum} --ranks 2 --init {}", from.display()));
}

#[test]
fn an_optimizer_that_sums_a_rows_gradients_needs_sorted_look_ups() {
    let message = fail(&format!("{} --optimizer-rows momentum --update race-free", tiny_training()));
    assert!(message.contains("train.update = \"auto\" or \"sorted\""), "{message}");
    let message = fail(&format!("{} --optimizer momentum --set train.momentum=1", tiny_training()));
    assert!(message.contains("train.momentum = 1 must lie in [0, 1)"), "{message}");
    succeed(&format!("{} --optimizer-rows momentum --update sorted --steps 3", tiny_training()));
}

#[test]
fn ways_that_leave_bits_to_chance_are_refused() {
    for update in ["atomic", "rtm"] {
        let message = fail(&format!("{} --determinism ranks --ranks 2 --update {update}", tiny_training()));
        assert!(message.contains(update) && message.contains("train.determinism"), "{message}");
    }
}

/// Beyond the look-ups of a sample for which there is room from the start.
#[test]
fn a_bag_far_longer_than_others_gives_the_same_bits_on_any_number_of_ranks() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    let mut text = "click,age,user,tags\n".to_owned();
    for n in 0..160 {
        let count = if n == 50 { 5000 } else { n % 4 };
        let tags: Vec<String> = (0..count).map(|tag| format!("t{}", (n + 7 * tag) % 900)).collect();
        text += &format!("{},{},u{},{}\n", n % 3 % 2, n % 50, n % 13, tags.join("|"));
    }
    fs::write(at("log.csv"), text).unwrap();
    let schema = "label = 'click'\ndense = [{ column = 'age' }]\n\
                  categorical = [{ column = 'user' }, { column = 'tags', separator = '|' }]\n";
    fs::write(at("log.toml"), schema).unwrap();
    let data = format!("--data {} --schema {}", at("log.csv").display(), at("log.toml").display());
    let model = format!("{data} --set model.bottom=[1,8] --set model.top=[8,1] --set model.dim=8 --batch 32");
    let steps = "--epochs 1 --lr 0.1 --eval-every 0 --set train.eval_batch=64 --determinism ranks --threads 1";
    let trained = |name: &str, keys: &str| {
        succeed(&format!("train {model} {steps} {keys} --out {}", at(name).display()));
        fs::read(at(name).join("checkpoint.safetensors")).unwrap()
    };
    let alone = trained("alone", "--ranks 1");
    for scheme in ["table", "row", "replicated"] {
        let plan = at(&format!("{scheme}.toml")).display().to_string();
        succeed(&format!("plan {model} --ranks 2 --scheme {scheme} --out {plan}"));
        let parted = trained(scheme, &format!("--ranks 2 --plan {plan}"));
        assert!(weights(&alone) == weights(&parted), "{scheme}");
    }
}

#[test]
fn real_clicks_give_the_same_bits_on_any_number_of_ranks() {
    let Some(file) = criteo_sample() else { return };
    let folder = tempfile::tempdir().unwrap();
    for precision in ["f32", "bf16"] {
        let run = |ranks: usize| {
            let (trace, out) = (folder.path().join("trace"), folder.path().join("out"));
            succeed(&format!(
                "train --preset kaggle --data {} --batch 128 --steps 20 --rows-cap 4000 --precision {precision} --force \
                 --set train.eval_every=0 --test-fraction 0 --ranks {ranks} --threads 1 --determinism ranks \
                 --trace-loss {} --out {}",
                file.display(),
                trace.display(),
                out.display()
            ));
            (fs::read_to_string(trace).unwrap(), fs::read(out.join("checkpoint.safetensors")).unwrap())
        };
        let (losses, checkpoint) = run(1);
        for ranks in [2, 3, 4, 5, 8] {
            let (other_losses, other) = run(ranks);
            assert_eq!(losses, other_losses, "{ranks} ranks in {precision}");
            assert!(weights(&checkpoint) == weights(&other), "weights of {ranks} ranks in {precision}");
        }
    }
}

#[test]
fn parts_of_a_minibatch_and_accumulated_ones_give_the_bits_of_the_whole() {
    let folder = tempfile::tempdir().unwrap();
    let ways = ["--threads 2", "--threads 1 --ranks 2 --precision bf16", "--threads 1 --ranks 3 --determinism ranks"];
    for (way, more) in ways.into_iter().enumerate() {
        let train =
            |name: &str, further: &str| run(folder.path(), &format!("{name}-{way}"), &format!("{more} {further}"));
        let (losses, checkpoint) = train("whole", "--batch 384 --steps 6 --set train.part=384");
        assert_eq!(losses.lines().count(), 6);
        for (name, further) in [
            ("parts", "--batch 384 --set train.part=64"),
            ("accumulated", "--batch 96 --set train.accumulate=4"),
            ("both", "--batch 48 --set train.accumulate=8 --set train.part=1"),
        ] {
            let (other_losses, other) = train(name, &format!("{further} --steps 6"));
            assert_eq!(losses, other_losses, "{name}, {more}");
            assert!(weights(&checkpoint) == weights(&other), "weights of {name}, {more}");
        }
    }
}
