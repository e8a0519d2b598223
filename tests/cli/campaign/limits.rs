//! Little address space, few open files, small files, small stacks: the work is done as ever, or refused with a word.

use super::case::Case;
use super::process::Line;
use super::results::Results;
use super::stock::{BUILT_IN, FORMATS, MODEL};

/// Commands of all kinds; `{}` becomes the folder of their results.
fn commands(case: &Case<'_>) -> Vec<String> {
    let at = |name: &str| case.stock.at(name);
    let log = at("log");
    vec![
        format!("train {MODEL} {BUILT_IN} --rows-cap 5000 --steps 20 --threads 1 --out {{}}/run"),
        format!("train {MODEL} {BUILT_IN} --rows-cap 500 --steps 20 --ranks 3 --threads 1 --out {{}}/run"),
        format!("train {MODEL} --data {} --epochs 2 --threads 2 --trace-loss {{}}/losses", at("text/clicks.tsv")),
        format!("train {MODEL} --data {} --steps 30 --threads 1 --trace-loss {{}}/losses", at("many")),
        format!("preprocess criteo-kaggle --in {log} --out {{}}/blocks --threads 2 --memory 16MiB --shuffle total"),
        format!("preprocess criteo-terabyte --in {log} --out {{}}/blocks --threads 3 --codec zstd --file-rows 700"),
        format!("convert {} {{}}/other --format {}", at("many"), FORMATS[0]),
        format!("convert {} {{}}/other --format torchrec", at("many")),
        format!("predict --checkpoint {} --data {} --out {{}}/clicks", at(super::damage::RUN), at("log/day_0")),
        format!("data verify {}", at("many")),
        format!("inspect {} --write-schema {{}}/schema.toml", at("csv/ratings.csv")),
        "data generate {}/blocks --set data.train_samples=5000 --set data.test_samples=500".to_owned(),
        "topo --svg {}/machine.svg".to_owned(),
    ]
}

/// Runs a command under one limit; then, in the same place, without it.
pub fn limits(case: &mut Case<'_>) {
    let all = commands(case);
    let number = case.chance.below(all.len());
    let (kind, limit) = match case.chance.below(8) {
        // KiB, MiB by MiB: from what the program itself takes to what is enough.
        0..=2 => ("memory", format!("-v {}", 1024 * case.chance.between(60, 1200))),
        3 | 4 => ("open files", format!("-n {}", case.chance.between(6, 60))),
        // Blocks of 512 bytes.
        5 | 6 => ("file size", format!("-f {}", case.chance.between(0, 3000))),
        _ => ("stack", format!("-s {}", case.chance.between(64, 4096))),
    };
    kind.clone_into(&mut case.kind);
    let version = Line::new("--version").limit(&limit);
    if !version.start(&case.stock.program).end().succeeded() {
        // The system's loader does not get it to its first line.
        return;
    }
    let results = case.results();
    let words = all[number].replace("{}", &results.display().to_string());
    let plain = Line::new(&words);
    // What a machine is may change while a campaign runs.
    let name = if words.starts_with("topo") { words } else { format!("limits {number}") };
    let expected = case.known(&name, &plain, &results);
    let results = case.results();
    let line = plain.clone().limit(limit);
    let ended = case.run(&line);
    if ended.succeeded() {
        compare(case, &line, &Results::of(&results), &expected);
        return;
    }
    // Where it was refused, nothing is in the way.
    let run = results.join("run");
    let again = match run.join("checkpoint.safetensors").exists() {
        true => Line::new(format!("train --resume {} --ranks {}", run.display(), if number == 1 { 3 } else { 1 })),
        false => plain,
    };
    if case.succeeds(&again, "nothing limits what is done again").is_some() {
        compare(case, &again, &Results::of(&results), &expected);
    }
}

/// Compares what does not depend on the clock.
fn compare(case: &mut Case<'_>, line: &Line, found: &Results, expected: &Results) {
    let timeless = |results: &Results| results.clone().without("metrics.jsonl");
    case.same(line, "other results under a limit", &timeless(found), &timeless(expected));
}
