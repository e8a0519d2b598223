//! Damaged files of every kind: refused with their name, or read as if they were sound.

use std::fs;
use std::path::Path;
use std::time::Duration;

use super::case::Case;
use super::process::Line;
use super::results::{Results, copy, files};
use super::stock::{BUILT_IN, FORMATS, MODEL, Stock};
use crate::spoil::damage;

/// What of a kind's damage must be noticed, unless it changes nothing.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Noticed {
    /// All of it: there are checksums, or a copy of what is damaged.
    All,
    /// Flipped bits and missing ends: what people may edit can be edited.
    Plain,
    /// What makes it unreadable: nothing in it says what it should be.
    Unreadable,
}

/// A kind of file.
pub struct Kind {
    /// For people.
    pub name: &'static str,
    /// The folder of the stock that a case copies.
    pub folder: &'static str,
    /// What the names of those files have in them that are damaged.
    pub victims: &'static str,
    noticed: Noticed,
    /// Commands that read the copy.
    commands: fn(&Stock, copy: &Path, results: &Path) -> Vec<String>,
    /// Files of the copy that are results, too.
    after: &'static [&'static str],
}

const fn kind(
    name: &'static str,
    folder: &'static str,
    victims: &'static str,
    noticed: Noticed,
    commands: fn(&Stock, &Path, &Path) -> Vec<String>,
) -> Kind {
    Kind { name, folder, victims, noticed, commands, after: &[] }
}

/// The run on text, in the stock.
pub const RUN: &str = "run/of-text";

const KINDS: &[Kind] = &[
    kind("raw blocks", "blocks-raw", ".octo", Noticed::All, data_set),
    kind("lz4 blocks", "blocks-lz4", ".octo", Noticed::All, data_set),
    kind("zstd blocks", "blocks-zstd", ".octo", Noticed::All, data_set),
    kind("a manifest", "blocks-zstd", "dataset.toml", Noticed::Plain, data_set),
    kind("mlperf", "mlperf", "", Noticed::Unreadable, data_set),
    kind("nvidia", "nvidia", "", Noticed::Unreadable, data_set),
    kind("feature_spec.yaml", "nvidia", ".yaml", Noticed::Unreadable, data_set),
    kind("torchrec (npy, npz)", "torchrec", "", Noticed::Unreadable, data_set),
    kind("hugectr", "hugectr", "", Noticed::Unreadable, data_set),
    kind("parquet", "parquet", "", Noticed::Unreadable, data_set),
    kind("a checkpoint", RUN, "checkpoint.safetensors", Noticed::All, scores),
    Kind {
        after: &["checkpoint.safetensors"],
        ..kind("a checkpoint, resumed", RUN, "checkpoint.safetensors", Noticed::All, resume)
    },
    kind("a vocabulary", RUN, "vocabulary.safetensors", Noticed::All, scores),
    kind("weights of --init", RUN, "checkpoint.safetensors", Noticed::All, init),
    kind("a table's run", "run-of-table/run", "safetensors", Noticed::All, table_scores),
    Kind { after: &["checkpoint.safetensors"], ..kind("metrics", RUN, "metrics.jsonl", Noticed::All, resume) },
    Kind { after: &["checkpoint.safetensors"], ..kind("a run's config", RUN, "config.toml", Noticed::All, resume) },
    kind("text", "text", ".tsv", Noticed::Unreadable, text),
    kind("packed text", "packed", ".gz", Noticed::All, packed),
    kind("a table", "csv", ".csv", Noticed::Unreadable, table),
    kind("a schema", "csv", ".toml", Noticed::Unreadable, table),
    kind("a configuration", "config", "", Noticed::Unreadable, config),
    kind("a plan", "plan", "", Noticed::Unreadable, plan),
    kind("a machine", "machine", "", Noticed::Unreadable, machine),
    kind("hwloc's XML", "xml", "", Noticed::Unreadable, xml),
    kind("tuned blocking", "tuned", "", Noticed::Unreadable, tuned),
    kind("a trace", "traces", "", Noticed::Unreadable, trace),
    kind("unfinished preprocessing", "halted", "", Noticed::All, halted),
];

/// Trains on it, turns it into blocks, checks it.
fn data_set(_: &Stock, copy: &Path, results: &Path) -> Vec<String> {
    let (copy, results) = (copy.display(), results.display());
    vec![
        format!("train {MODEL} --data {copy} --epochs 1 --threads 1 --trace-loss {results}/losses"),
        format!("convert {copy} {results}/blocks --codec raw"),
        format!("data verify {copy}"),
        format!("inspect {copy} --write-schema {results}/schema.toml"),
    ]
}

fn scores(stock: &Stock, copy: &Path, results: &Path) -> Vec<String> {
    let (copy, results, text) = (copy.display(), results.display(), stock.at("text/clicks.tsv"));
    vec![
        format!("predict --checkpoint {copy} --data {text} --threads 1 --out {results}/clicks"),
        format!("eval --checkpoint {copy} --data {text} --threads 1 --json"),
    ]
}

fn table_scores(stock: &Stock, copy: &Path, results: &Path) -> Vec<String> {
    let (copy, results, table) = (copy.display(), results.display(), stock.at("csv/ratings.csv"));
    vec![
        format!("predict --checkpoint {copy} --data {table} --threads 1 --out {results}/clicks"),
        format!("eval --checkpoint {copy} --threads 1 --json"),
    ]
}

fn resume(_: &Stock, copy: &Path, results: &Path) -> Vec<String> {
    vec![format!("train --resume {} --steps 12 --trace-loss {}/losses", copy.display(), results.display())]
}

fn init(stock: &Stock, copy: &Path, results: &Path) -> Vec<String> {
    let (copy, results, text) = (copy.display(), results.display(), stock.at("text/clicks.tsv"));
    let data = format!("--data {text} --test-fraction 0.2 --threads 1 --epochs 1");
    vec![format!("train {MODEL} {data} --init {copy}/checkpoint.safetensors --trace-loss {results}/losses")]
}

fn text(_: &Stock, copy: &Path, results: &Path) -> Vec<String> {
    let (file, results) = (copy.join("clicks.tsv"), results.display());
    let file = file.display();
    vec![
        format!("train {MODEL} --data {file} --threads 1 --epochs 1 --trace-loss {results}/losses"),
        format!("train {MODEL} --data {file} --on-bad-row skip --threads 1 --epochs 1 --trace-loss {results}/losses"),
        format!("preprocess criteo-kaggle --threads 1 --in {file} --out {results}/blocks"),
        format!("inspect {file}"),
    ]
}

fn packed(_: &Stock, copy: &Path, results: &Path) -> Vec<String> {
    let (file, results) = (copy.join("clicks.tsv.gz"), results.display());
    let file = file.display();
    vec![
        format!("train {MODEL} --data {file} --threads 1 --epochs 1 --trace-loss {results}/losses"),
        format!("preprocess criteo-kaggle --threads 1 --in {file} --out {results}/blocks"),
    ]
}

fn table(_: &Stock, copy: &Path, results: &Path) -> Vec<String> {
    let (copy, results) = (copy.display(), results.display());
    let file = format!("{copy}/ratings.csv --schema {copy}/ratings.toml");
    vec![
        format!("train {MODEL} --data {file} --threads 1 --epochs 1 --trace-loss {results}/losses"),
        format!("convert {file} {results}/blocks"),
        format!("inspect {file}"),
        format!("preprocess csv --threads 1 --in {file} --out {results}/blocks"),
        format!("inspect {copy}/ratings.csv --write-schema {results}/schema.toml"),
    ]
}

fn config(_: &Stock, copy: &Path, results: &Path) -> Vec<String> {
    let file = copy.join("config.toml");
    let file = file.display();
    vec![
        format!("train --config {file} --threads 1 --trace-loss {}/losses", results.display()),
        format!("config --config {file}"),
        format!("plan --config {file} --ranks 2"),
    ]
}

fn plan(_: &Stock, copy: &Path, results: &Path) -> Vec<String> {
    let words = format!("{MODEL} {BUILT_IN} --rows-cap 100 --ranks 2 --threads 1 --steps 3");
    vec![format!("train {words} --plan {}/plan.toml --trace-loss {}/losses", copy.display(), results.display())]
}

fn machine(_: &Stock, copy: &Path, results: &Path) -> Vec<String> {
    on_machine(&copy.join("machine.toml"), results)
}

fn xml(_: &Stock, copy: &Path, results: &Path) -> Vec<String> {
    on_machine(&copy.join("machine.xml"), results)
}

fn on_machine(file: &Path, results: &Path) -> Vec<String> {
    let (file, results) = (file.display(), results.display());
    vec![
        format!("topo --topology {file} --svg {results}/machine.svg"),
        format!("topo --topology {file} --export toml"),
        format!("plan --preset demo --topology {file} --out {results}/plan.toml"),
    ]
}

fn tuned(_: &Stock, copy: &Path, results: &Path) -> Vec<String> {
    let layers = "--set model.bottom=[13,80,16] --set model.top=[70,1] --set model.dim=16 --rows-cap 100";
    let length = "--batch 96 --steps 3 --set data.train_samples=960 --set data.test_samples=96 --threads 1";
    let (copy, results) = (copy.display(), results.display());
    vec![format!("train {layers} {length} --tuned {copy}/tuned.toml --trace-loss {results}/losses")]
}

fn trace(_: &Stock, copy: &Path, results: &Path) -> Vec<String> {
    let rows = "--set data.train_samples=300 --set data.test_samples=0 --rows-cap 100";
    let (copy, results) = (copy.display(), results.display());
    vec![format!("data generate {results}/blocks {rows} --access lru --trace {copy}/dist_j.log")]
}

fn halted(stock: &Stock, copy: &Path, _: &Path) -> Vec<String> {
    vec![stock.halted(copy)]
}

/// The kind of this name.
pub fn kind_named(name: &str) -> &'static Kind {
    KINDS.iter().find(|kind| kind.name == name).expect("a kind of the list")
}

/// Kinds that people write, or could.
pub fn documents() -> Vec<&'static Kind> {
    let names = [
        "a manifest",
        "feature_spec.yaml",
        "metrics",
        "a schema",
        "a configuration",
        "a plan",
        "a machine",
        "hwloc's XML",
        "tuned blocking",
        "a trace",
    ];
    names.into_iter().map(kind_named).collect()
}

/// A fresh copy of what a kind's commands read, and one of these commands.
pub fn copied(case: &mut Case<'_>, kind: &Kind) -> (std::path::PathBuf, String) {
    let (folder, results) = (case.path("copy"), case.results());
    let _ = fs::remove_dir_all(&folder);
    copy(&case.stock.path(kind.folder), &folder);
    let commands = (kind.commands)(case.stock, &folder, &results);
    (folder, case.chance.pick(&commands).clone())
}

/// Damages one kind of file several times, each time in a fresh copy.
pub fn copies(case: &mut Case<'_>) {
    let exists = |kind: &&Kind| !kind.folder.eq("parquet") || FORMATS.contains(&"parquet");
    let kinds: Vec<&Kind> = KINDS.iter().filter(exists).collect();
    let kind = *case.chance.pick(&kinds);
    kind.name.clone_into(&mut case.kind);
    for _ in 0..6 {
        one(case, kind);
    }
}

fn one(case: &mut Case<'_>, kind: &Kind) {
    let (folder, results) = (case.path("copy"), case.results());
    let _ = fs::remove_dir_all(&folder);
    copy(&case.stock.path(kind.folder), &folder);
    let number = case.chance.below((kind.commands)(case.stock, &folder, &results).len());
    let words = |folder: &Path| (kind.commands)(case.stock, folder, &results)[number].clone();
    let line = Line::new(words(&folder));
    let after = |printed: Vec<u8>| {
        let shown = String::from_utf8_lossy(&printed).replace(&folder.display().to_string(), "COPY");
        let name = |name: &&str| fs::read(folder.join(name)).unwrap_or_default();
        let kept: Vec<u8> = kind.after.iter().flat_map(name).collect();
        let unfinished = if kind.folder == "halted" { Results::of(&folder) } else { Results::default() };
        // What is printed may name the folder of the results, which is another in each case.
        let shown = shown.replace(&results.display().to_string(), "RESULTS");
        (Results::of(&results).and_printed([shown.into_bytes(), kept].concat()), unfinished)
    };
    let name = format!("{} {number}", kind.name);
    let known = case.stock.known.borrow().get(&name).cloned();
    let known = known.or_else(|| {
        let ended = case.succeeds(&line, "a sound copy is read")?;
        let (found, unfinished) = after(ended.stdout);
        let mut known = case.stock.known.borrow_mut();
        known.insert(format!("{name}, folder"), unfinished);
        known.insert(name.clone(), found.clone());
        Some(found)
    });
    let Some(known) = known else { return };
    let unfinished = case.stock.known.borrow()[&format!("{name}, folder")].clone();
    // A fresh copy: the sound one may have been worked on.
    let _ = fs::remove_dir_all(&folder);
    copy(&case.stock.path(kind.folder), &folder);
    fs::remove_dir_all(&results).unwrap();
    fs::create_dir(&results).unwrap();
    let victims: Vec<_> =
        files(&folder).into_iter().filter(|file| file.to_string_lossy().contains(kind.victims)).collect();
    let victim = case.chance.pick(&victims).clone();
    let mut bytes = fs::read(&victim).unwrap();
    let done = damage(&mut case.chance, &mut bytes);
    fs::write(&victim, bytes).unwrap();
    case.damages += 1;
    let (place, shown) = (folder.display().to_string(), victim.file_name().unwrap_or_default().to_string_lossy());
    let broken = case.broken.len();
    let ended = case.told(&line, &[&place]);
    let must = kind.noticed == Noticed::All || (kind.noticed == Noticed::Plain && done.plain);
    if ended.succeeded() && must {
        let (found, folder) = after(ended.stdout);
        let what = "the damage was not noticed";
        case.same(&line, what, &found, &known);
        case.same(&line, what, &folder, &unfinished);
    }
    for broken in &mut case.broken[broken..] {
        *broken = format!("{shown}: {}: {broken}", done.what);
    }
}

/// A mapped file is cut short, or its folder is removed, while it is read.
pub fn while_read(case: &mut Case<'_>) {
    let folder = case.path("copy");
    copy(&case.stock.path("many"), &folder);
    let results = case.results();
    let line = match case.chance.below(3) {
        0 => format!("train {MODEL} --data {} --epochs 20 --threads 1 --set data.shuffle_window=500", folder.display()),
        1 => format!("data verify {}", folder.display()),
        _ => format!("convert {} {}/other --format mlperf", folder.display(), results.display()),
    };
    let line = Line::new(line);
    let mut running = case.start(&line);
    let moment = case.chance.within(Duration::from_millis(600));
    if !running.ends_within(moment) {
        let all = files(&folder);
        let blocks: Vec<_> = all.iter().filter(|file| file.extension().is_some_and(|end| end == "octo")).collect();
        let victim = *case.chance.pick(&blocks);
        let length = fs::metadata(victim).unwrap().len();
        let left = case.chance.below(length as usize) as u64;
        if case.chance.once_in(4) {
            fs::remove_dir_all(&folder).unwrap();
        } else {
            fs::File::options().write(true).open(victim).unwrap().set_len(left).unwrap();
        }
        case.damages += 1;
    }
    let ended = case.end(&line, running);
    case.names(&line, &ended, &[&folder.display().to_string()]);
}
