//! Outputs that cannot be written, that vanish, and that nobody reads to their end.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};

use super::case::Case;
use super::damage::RUN;
use super::process::Line;
use super::results::{Results, copy};
use super::stock::{BUILT_IN, MODEL, Stock};

/// A command that writes to `{}`.
struct Writer {
    words: String,
    /// Whether `{}` is a folder, and what is in it of a run.
    folder: bool,
    run: bool,
}

fn writers(stock: &Stock) -> Vec<Writer> {
    let writer = |words: String, folder| Writer { run: words.contains("--out {}") && folder, words, folder };
    let train = format!("train {MODEL} {BUILT_IN} --rows-cap 3000 --steps 40 --threads 1");
    let (log, many, csv) = (stock.at("log"), stock.at("many"), stock.at("csv/ratings.csv"));
    let mut all = vec![
        writer(format!("{train} --checkpoint-every 10 --out {{}}"), true),
        writer(format!("train {MODEL} --data {} --epochs 3 --threads 1 --out {{}}", stock.at("text/clicks.tsv")), true),
        writer(format!("preprocess criteo-kaggle --in {log} --threads 1 --file-rows 4000 --out {{}}"), true),
        writer(format!("preprocess criteo-terabyte --in {log} --threads 2 --shuffle total --out {{}}"), true),
        writer(format!("convert {many} {{}} --format octorec --codec raw"), true),
        writer(format!("convert {many} {{}} --format mlperf"), true),
        writer(format!("convert {many} {{}} --format torchrec"), true),
        writer("data generate {} --set data.train_samples=9000 --set data.test_samples=500".to_owned(), true),
        writer(format!("predict --checkpoint {} --data {log}/day_0 --out {{}}", stock.at(RUN)), false),
        writer(format!("{train} --trace-loss {{}}"), false),
        writer(format!("inspect {csv} --write-schema {{}}"), false),
        writer("topo --topology twisted-hypercube-8 --svg {}".to_owned(), false),
        writer("topo --topology ring-4 --schedule auto --svg {}".to_owned(), false),
        writer("plan --preset kaggle --ranks 2 --out {}".to_owned(), false),
    ];
    all.iter_mut().for_each(|writer| writer.run = writer.words.starts_with("train") && writer.folder);
    all
}

fn line(writer: &Writer, to: &Path) -> Line {
    Line::new(writer.words.replace("{}", &to.display().to_string()))
}

/// Draws a writer, and says what it leaves where nothing is in its way.
fn draw(case: &mut Case<'_>) -> (Writer, Results) {
    let mut all = writers(case.stock);
    let number = case.chance.below(all.len());
    let writer = all.swap_remove(number);
    let words: Vec<&str> = writer.words.split_whitespace().filter(|word| !word.starts_with('/')).collect();
    case.kind = words[..if words[0] == "data" { 2 } else { 1 }].join(" ");
    let results = case.results();
    let expected = case.known(&format!("writer {number}"), &line(&writer, &results.join("it")), &results);
    (writer, expected.without("metrics.jsonl"))
}

/// Does again, or goes on with, what could not be finished, and holds it to what was expected.
fn again(case: &mut Case<'_>, writer: &Writer, to: &Path, expected: &Results) {
    let saved = writer.run && to.join("checkpoint.safetensors").exists();
    let line = if saved { Line::new(format!("train --resume {}", to.display())) } else { line(writer, to) };
    if case.succeeds(&line, "nothing is in the way any more").is_some() {
        let found = Results::of(to.parent().expect("an output has a parent")).without("metrics.jsonl");
        case.same(&line, "what was done again", &found, expected);
    }
}

/// A disk that is full at some moment; then it is not.
pub fn disk_full(case: &mut Case<'_>) {
    let Some(disk) = &case.stock.disk else {
        case.skipped = Some("this user mounts no small disk".to_owned());
        return;
    };
    if case.chance.once_in(5) {
        return resumed_on_full_disk(case);
    }
    let (writer, expected) = draw(case);
    let folder = disk.path("results");
    fs::create_dir(&folder).unwrap();
    let most = *case.chance.pick(&[20_000, 200_000, 2_000_000]);
    let left = case.chance.below(most);
    disk.leave(left);
    let to = folder.join("it");
    let line = line(&writer, &to);
    let ended = case.told(&line, &[&to.display().to_string()]);
    disk.free();
    if ended.succeeded() {
        let found = Results::of(&folder).without("metrics.jsonl");
        case.same(&line, "exit code 0 on a full disk", &found, &expected);
    } else {
        again(case, &writer, &to, &expected);
    }
    case.broken.iter_mut().for_each(|broken| *broken = format!("{left} bytes left: {broken}"));
}

/// A run that goes on where there is no room keeps what it saved.
fn resumed_on_full_disk(case: &mut Case<'_>) {
    "train --resume".clone_into(&mut case.kind);
    let disk = case.stock.disk.as_ref().expect("the caller looked");
    let whole = case.path("whole");
    copy(&case.stock.path(RUN), &whole);
    let go_on = |run: &Path| Line::new(format!("train --resume {} --steps 40 --checkpoint-every 5", run.display()));
    if case.succeeds(&go_on(&whole), "an undisturbed training").is_none() {
        return;
    }
    let run = disk.path("run");
    copy(&case.stock.path(RUN), &run);
    disk.leave(case.chance.below(100_000));
    let line = go_on(&run);
    case.told(&line, &[&run.display().to_string()]);
    case.succeeds(&Line::new(format!("eval --checkpoint {}", run.display())), "the old checkpoint is there");
    disk.free();
    if case.succeeds(&line, "there is room again").is_some() {
        let [found, expected] = [&run, &whole].map(|run| Results::of(run).without("metrics.jsonl"));
        case.same(&line, "resumed on a disk that was full", &found, &expected);
    }
}

/// Places where nothing can be written, by what is wrong with them, and whether that is so for files and folders.
fn impossible(case: &mut Case<'_>) -> (&'static str, PathBuf) {
    let path = |name: &str| case.path(name);
    fs::write(path("a-file"), "x").unwrap();
    symlink(path("b"), path("a")).unwrap();
    symlink(path("a"), path("b")).unwrap();
    fs::create_dir(path("locked")).unwrap();
    fs::set_permissions(path("locked"), fs::Permissions::from_mode(0o555)).unwrap();
    let places = [
        ("below a file", path("a-file").join("it")),
        ("a loop of links", path("a").join("it")),
        ("below /proc", PathBuf::from("/proc/nobody/it")),
        ("a locked folder", path("locked").join("it")),
        ("a long name", path(&"n".repeat(300))),
        ("a loop of links itself", path("a")),
    ];
    case.chance.pick(&places).clone()
}

/// An output where it cannot be: refused with its name.
pub fn not_writable(case: &mut Case<'_>) {
    let mut all = writers(case.stock);
    let number = case.chance.below(all.len());
    let writer = all.swap_remove(number);
    let (kind, to) = impossible(case);
    kind.clone_into(&mut case.kind);
    let line = line(&writer, &to).unprivileged();
    let ended = case.told(&line, &[&to.display().to_string()]);
    if ended.succeeded() {
        case.broke(&line, "exit code 0", Some(&ended));
    }
    // And a folder where a file should be, or a file where a folder should be.
    let to = case.path("taken");
    if writer.folder {
        fs::write(&to, "of before").unwrap()
    } else {
        fs::create_dir(&to).unwrap()
    }
    let line = self::line(&writer, &to);
    let ended = case.told(&line, &[&to.display().to_string()]);
    if ended.succeeded() || (writer.folder && fs::read(&to).ok().as_deref() != Some(b"of before")) {
        case.broke(&line, "it takes what is in its way", Some(&ended));
    }
}

/// The output's folder, or the one around it, is removed while it is written.
pub fn vanishing(case: &mut Case<'_>) {
    let (writer, expected) = draw(case);
    let around = case.path("around");
    fs::create_dir(&around).unwrap();
    let to = around.join("it");
    let line = line(&writer, &to);
    let mut running = case.start(&line);
    let moment = case.chance.within(std::time::Duration::from_millis(700));
    let mut late = false;
    if !running.ends_within(moment) {
        // What is written meanwhile may be in the way of removing.
        let victim = if case.chance.once_in(2) { &to } else { &around };
        let _ = fs::remove_dir_all(victim);
        case.damages += 1;
        // What had written everything before has nothing left to notice it by.
        late = running.ends_within(std::time::Duration::from_millis(200));
    }
    let ended = case.end(&line, running);
    case.names(&line, &ended, &[&around.display().to_string()]);
    if late && ended.succeeded() {
        return;
    }
    if ended.succeeded() && writer.run {
        // It is saved, though what lay beside it is gone.
        case.succeeds(&Line::new(format!("eval --checkpoint {}", to.display())), "exit code 0 means saved");
    } else if ended.succeeded() && writer.words.starts_with("preprocess") {
        let found = Results::of(&around);
        case.same(&line, "exit code 0 means written", &found, &expected);
    }
    if !ended.succeeded() {
        let _ = fs::remove_dir_all(&around);
        fs::create_dir(&around).unwrap();
        again(case, &writer, &to, &expected);
    }
}

/// Somebody reads the first bytes of what is printed and then goes: what is written is whole.
pub fn unread(case: &mut Case<'_>) {
    let (writer, expected) = draw(case);
    let messages = case.chance.once_in(2);
    (if messages { "messages" } else { "results" }).clone_into(&mut case.kind);
    let around = case.results();
    let json = if case.kind == "train" { "--json" } else { "" };
    let line = line(&writer, &around.join("it")).and(json);
    case.lines.push(line.to_string());
    let most = case.chance.below(300) as u64;
    let running = line.start_unread(&case.stock.program, messages, most);
    let ended = case.end_unread(&line, running);
    if ended.succeeded() || writer.run {
        let found = Results::of(&around).without("metrics.jsonl");
        case.same(&line, "nobody reads what it prints, and it writes something else", &found, &expected);
    }
    if messages && !ended.succeeded() {
        case.broke(&line, "it fails because nobody reads its messages", Some(&ended));
    }
}
