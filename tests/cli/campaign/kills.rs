//! Processes that are killed, stopped or asked to stop in the middle, and what goes on from there.

use std::fs;
use std::path::Path;
use std::time::Duration;

use rustix::process::Signal;
use serde_json::Value;

use super::case::Case;
use super::process::{Ended, Line};
use super::results::{Results, copy};
use super::stock::{BUILT_IN, FORMATS, MODEL};

/// Kills of one piece of work, at most; then it is left alone.
const KILLS: usize = 6;

/// Starts a command and disturbs it by one or several signals within the time that it takes undisturbed.
fn disturbed(case: &mut Case<'_>, line: &Line, whole: Duration) -> Ended {
    let mut running = case.start(line);
    let moment = case.chance.within(whole);
    if running.ends_within(moment) {
        return case.end(line, running);
    }
    case.kills += 1;
    let ask = *case.chance.pick(&[Signal::TERM, Signal::INT, Signal::HUP]);
    let (soon, later) = (case.chance.within(Duration::from_millis(20)), case.chance.within(whole / 2));
    match case.chance.below(10) {
        0..=3 => running.signal(Signal::KILL),
        4..=6 => running.signal(ask),
        // Twice: at once.
        7 => {
            running.signal(ask);
            running.ends_within(soon);
            running.signal(ask);
        }
        // Nothing ends by a pipe that it does not write to.
        8 => {
            running.signal(Signal::PIPE);
            running.ends_within(later);
            running.signal(Signal::KILL);
        }
        _ => {
            running.signal(Signal::STOP);
            std::thread::sleep(4 * soon);
            running.signal(Signal::CONT);
            if case.chance.once_in(2) {
                running.ends_within(later);
                running.signal(if case.chance.once_in(2) { Signal::KILL } else { ask });
            }
        }
    }
    case.end(line, running)
}

/// The words of a training, without its length and its output.
fn training(case: &mut Case<'_>) -> String {
    let stock = case.stock;
    let source = match case.chance.below(6) {
        0 => format!("{BUILT_IN} --rows-cap 100"),
        1 => format!("{BUILT_IN} --rows-cap 5000"),
        2 => format!("--data {} --test-fraction 0.2 --set data.shuffle_window=50", stock.at("text/clicks.tsv")),
        3 => format!("--data {}", stock.at("blocks-zstd")),
        4 => format!("--data {} --schema {}", stock.at("csv/ratings.csv"), stock.at("csv/ratings.toml")),
        _ => format!("--data {} --set data.shuffle_window=1000", stock.at("many")),
    };
    let precision = if case.chance.once_in(3) { "--precision bf16" } else { "" };
    let moments = if case.chance.once_in(3) { "--optimizer momentum --optimizer-rows momentum" } else { "" };
    let window = case.chance.between(1, 9);
    format!("{MODEL} {source} {precision} {moments} --seed {window} --threads 1")
}

/// The loss of every step, as a run's metrics have them.
fn losses(run: &Path) -> Vec<(u64, String)> {
    let text = fs::read_to_string(run.join("metrics.jsonl")).unwrap_or_default();
    let entries = text.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let steps = entries.filter(|entry| entry["kind"] == "step");
    steps.map(|entry| (entry["step"].as_u64().unwrap_or(0), entry["loss"].to_string())).collect()
}

/// Where the checkpoint of a run lies.
fn weights(run: &Path) -> std::path::PathBuf {
    run.join("checkpoint.safetensors")
}

/// Holds a run to another that was never disturbed.
fn same_run(case: &mut Case<'_>, line: &Line, run: &Path, whole: &Path) {
    if fs::read(weights(run)).ok() != fs::read(weights(whole)).ok() {
        case.broke(line, "what was killed and resumed ends with other weights", None);
    }
    if losses(run) != losses(whole) {
        case.broke(line, "what was killed and resumed has other losses in its metrics", None);
    }
}

/// One to four ranks, killed again and again and resumed, end with the bits of a run that was left alone.
pub fn train(case: &mut Case<'_>) {
    let ranks = case.chance.between(1, 4);
    case.kind = if ranks == 1 { "1 rank".to_owned() } else { format!("{ranks} ranks") };
    let any_ranks = case.chance.once_in(4);
    let determinism = if any_ranks { "--determinism ranks" } else { "" };
    let (steps, every) = (case.chance.between(20, 120), case.chance.between(1, 30));
    let saves = match case.chance.once_in(3) {
        true => "--set train.checkpoint_minutes=0.0005".to_owned(),
        false => format!("--checkpoint-every {every}"),
    };
    let words = format!("{} {determinism} --steps {steps} {saves}", training(case));
    let [whole, run] = ["whole", "run"].map(|name| case.path(name));
    let first = |out: &Path| Line::new(format!("train {words} --ranks {ranks} --out {}", out.display()));
    let Some(reference) = case.succeeds(&first(&whole), "an undisturbed training") else { return };
    let mut line = first(&run);
    for _ in 0..KILLS {
        let had = weights(&run).exists();
        // Of a try that was killed before it had saved.
        let logged = losses(&run);
        let ended = disturbed(case, &line, reference.took);
        if had && !weights(&run).exists() {
            case.broke(&line, "the checkpoint is gone", Some(&ended));
        }
        // Before its first step there is nothing to save; one that begins anew has forgotten what was logged.
        let now = losses(&run);
        let trained = !now.is_empty() && now != logged;
        if ended.code() == Some(130) && ended.signals.len() == 1 && trained && !weights(&run).exists() {
            case.broke(&line, "asked to stop, it saved nothing", Some(&ended));
        }
        if let Some(1 | 2) = ended.code() {
            case.broke(&line, "what a kill left cannot be continued", Some(&ended));
        }
        let ranks = if any_ranks { case.chance.between(1, 4) } else { ranks };
        line = match weights(&run).exists() {
            true => Line::new(format!("train --resume {} --ranks {ranks}", run.display())),
            false => first(&run),
        };
        if ended.succeeded() {
            break;
        }
    }
    if case.succeeds(&line, "nobody disturbs what is resumed").is_some() {
        same_run(case, &line, &run, &whole);
    }
}

/// A run that replaces another, killed: the old one is there until the new one is.
pub fn force(case: &mut Case<'_>) {
    let words = format!("{} --steps 60 --checkpoint-every 20", training(case));
    let [whole, run] = ["whole", "run"].map(|name| case.path(name));
    let first = |out: &Path| Line::new(format!("train {words} --out {}", out.display()));
    let Some(reference) = case.succeeds(&first(&whole), "an undisturbed training") else { return };
    copy(&case.stock.path("run/of-text"), &run);
    let line = first(&run).and("--force");
    let eval = Line::new(format!("eval --checkpoint {}", run.display()));
    for _ in 0..KILLS / 2 {
        let ended = disturbed(case, &line, reference.took);
        case.succeeds(&eval, "neither the old run nor the new one can be read");
        if ended.succeeded() {
            break;
        }
    }
    if case.succeeds(&line, "nobody disturbs what is forced").is_some() {
        same_run(case, &line, &run, &whole);
        if run.join(".previous").exists() {
            case.broke(&line, "the run that was replaced is still there", None);
        }
    }
}

/// Whether a data set is written: a kill may come after its last act.
fn complete(ended: &Ended) -> bool {
    ended.succeeded() || ended.stderr.contains("holds a data set already")
}

/// Preprocessing that is killed again and again ends with the bytes of one that was left alone.
pub fn preprocess(case: &mut Case<'_>) {
    let days = case.stock.at("log");
    let recipe = *case.chance.pick(&["criteo-kaggle", "criteo-terabyte"]);
    let split = *case.chance.pick(&["none", "last-day-dlrm", "last-day-torchrec", "fraction"]);
    let shuffle = *case.chance.pick(&["none", "day", "total"]);
    let codec = *case.chance.pick(&["raw", "lz4", "zstd"]);
    let (rows, least) = (case.chance.between(500, 9000), case.chance.between(0, 3));
    let words = format!(
        "preprocess {recipe} --in {days} --split {split} --shuffle {shuffle} --codec {codec} --file-rows {rows} \
         --min-count {least} --memory 16MiB"
    );
    let [whole, out] = ["whole", "out"].map(|name| case.path(name));
    let first = Line::new(format!("{words} --threads 1 --out {}", whole.display()));
    let Some(reference) = case.succeeds(&first, "undisturbed preprocessing") else { return };
    let line = |threads| Line::new(format!("{words} --threads {threads} --out {}", out.display()));
    let mut done = false;
    for _ in 0..KILLS {
        let threads = case.chance.between(1, 3);
        let ended = disturbed(case, &line(threads), reference.took);
        done = complete(&ended);
        match ended.code() {
            _ if done => break,
            Some(1 | 2) => case.broke(&line(threads), "what a kill left cannot be continued", Some(&ended)),
            _ => (),
        }
    }
    if !done {
        let ended = case.run(&line(1));
        if !complete(&ended) {
            case.broke(&line(1), "nobody disturbs what goes on", Some(&ended));
            return;
        }
    }
    case.same(&line(1), "what was killed and went on", &Results::of(&out), &Results::of(&whole));
}

/// Conversions and generated data: the same command after a kill ends with the same bytes.
pub fn convert(case: &mut Case<'_>) {
    let format = if case.chance.once_in(3) { "octorec" } else { *case.chance.pick(FORMATS) };
    format.clone_into(&mut case.kind);
    let many = case.stock.at("many");
    let words = |out: &Path, generate: bool| match generate {
        true => Line::new(format!(
            "data generate {} --set data.train_samples=20000 --set data.test_samples=3000 --format {format}",
            out.display()
        )),
        false => Line::new(format!("convert {many} {} --format {format}", out.display())),
    };
    let generate = case.chance.once_in(3);
    let [whole, out] = ["whole", "out"].map(|name| case.path(name));
    let Some(reference) = case.succeeds(&words(&whole, generate), "undisturbed writing") else { return };
    let line = words(&out, generate);
    let mut done = false;
    for _ in 0..KILLS {
        let ended = disturbed(case, &line, reference.took);
        done = complete(&ended);
        if done {
            break;
        }
        if ended.code() == Some(1) {
            case.broke(&line, "what a kill left cannot be written again", Some(&ended));
        }
    }
    if !done {
        let ended = case.run(&line);
        if !complete(&ended) {
            case.broke(&line, "nobody disturbs what is written again", Some(&ended));
            return;
        }
    }
    case.same(&line, "what was killed and written again", &Results::of(&out), &Results::of(&whole));
}

/// A file that a command replaces is the old one or the new one, whole.
pub fn one_file(case: &mut Case<'_>) {
    let stock = case.stock;
    let (run, day) = (stock.at("run/of-text"), stock.at("log/day_0"));
    let (kind, words) = match case.chance.below(3) {
        0 => ("predict --out", format!("predict --checkpoint {run} --data {day} --threads 1 --out")),
        1 => ("train --trace-loss", format!("train {MODEL} {BUILT_IN} --steps 50 --threads 1 --trace-loss")),
        _ => ("topo --svg", "topo --topology twisted-hypercube-8 --svg".to_owned()),
    };
    // Losses are written as they come: what stands there is a beginning.
    let grows = kind == "train --trace-loss";
    kind.clone_into(&mut case.kind);
    let [whole, file] = ["whole", "file"].map(|name| case.path(name));
    let Some(reference) = case.succeeds(&Line::new(&words).and(whole.to_str().unwrap()), "undisturbed writing") else {
        return;
    };
    let expected = fs::read(&whole).unwrap();
    let line = Line::new(&words).and(file.to_str().unwrap());
    for _ in 0..KILLS {
        // A picture takes the place of none but a picture.
        let old = b"<svg>of before</svg>\n";
        fs::write(&file, old).unwrap();
        let ended = disturbed(case, &line, reference.took);
        let found = fs::read(&file).unwrap_or_default();
        let whole =
            found == expected || (found == old && !ended.succeeded()) || (grows && expected.starts_with(&found));
        if !whole {
            case.broke(&line, format!("a file of {} bytes, neither the old nor the new", found.len()), Some(&ended));
        }
    }
}
