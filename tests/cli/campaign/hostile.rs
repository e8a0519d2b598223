//! Documents, text and settings that somebody made to do harm: refused with their name, or followed.

use std::fs;
use std::path::Path;

use octorec::base::config::KEYS;

use super::case::Case;
use super::damage::{copied, documents as kinds};
use super::process::Line;
use super::stock::{BUILT_IN, LAYERS, MODEL};
use crate::spoil::{twist, value};

/// A belt for this machine: what asks for more than it has is to be refused, and is refused here in any case.
const BELT: &str = "-v 8000000";

/// Documents whose numbers, lines and words stand where they should not.
pub fn documents(case: &mut Case<'_>) {
    let all = kinds();
    for _ in 0..4 {
        let kind = *case.chance.pick(&all);
        let (folder, words) = copied(case, kind);
        let files = super::results::files(&folder);
        let victims: Vec<_> = files.iter().filter(|file| file.to_string_lossy().contains(kind.victims)).collect();
        let victim = *case.chance.pick(&victims);
        let mut text = String::from_utf8_lossy(&fs::read(victim).unwrap()).into_owned();
        let mut told = Vec::new();
        for _ in 0..case.chance.between(1, 3) {
            let (twisted, what) = twist(&mut case.chance, &text);
            text = twisted;
            told.push(what);
        }
        fs::write(victim, text).unwrap();
        case.damages += 1;
        let mut line = Line::new(words).limit(BELT);
        if kind.folder == "config" && line.to_string().contains(" train ") {
            // As short as a run can be, whatever the document says.
            line = line.and("--steps 2 --set data.test_samples=64 --set data.train_samples=640");
        }
        let broken = case.broken.len();
        // What is too large for the machine is told by the keys that make it so.
        case.told(&line, &[&folder.display().to_string(), "--config", "--set", "--steps", "model.bottom"]);
        for broken in &mut case.broken[broken..] {
            *broken = format!("{}: {}: {broken}", kind.name, told.join(", "));
        }
    }
    String::clear(&mut case.kind);
}

/// Fields that no click log has, among some that it has.
const FIELDS: &[&str] = &[
    "",
    "0",
    "1",
    "-1",
    "2",
    "68fd1e64",
    "FFFFFFFF",
    "fffffffff",
    "99999999999",
    "-2147483648",
    "-2147483649",
    "2147483647",
    "1.5",
    "1e9",
    "nan",
    "\0",
    "\u{feff}",
    " 1",
    "1 ",
    "0x1",
    "+1",
    "é",
    "\"",
    "\"a\tb\"",
    "\r",
    "'",
    "|",
    "|||",
    ",",
    "#",
    "NULL",
    "\\N",
    "\u{1f600}",
    "00000000000000000000001",
];

/// A line of such fields; now and then endless, or not text at all.
fn hostile_line(case: &mut Case<'_>, columns: usize, delimiter: &str) -> Vec<u8> {
    if case.chance.once_in(12) {
        return (0..case.chance.below(200)).map(|_| case.chance.word() as u8).collect();
    }
    if case.chance.once_in(12) {
        let length = *case.chance.pick(&[10_000, 100_000, 1_000_000, 20_000_000]);
        return vec![*case.chance.pick(b"1a\t\0"); length];
    }
    let columns = if case.chance.once_in(4) { case.chance.between(0, 2 * columns) } else { columns };
    let fields: Vec<&str> = (0..columns).map(|_| *case.chance.pick(FIELDS)).collect();
    fields.join(delimiter).into_bytes()
}

/// Puts hostile lines among sound ones.
fn with_hostile_lines(case: &mut Case<'_>, path: &Path, delimiter: &str) {
    let sound = fs::read(path).unwrap();
    let mut lines: Vec<Vec<u8>> = sound.split(|&byte| byte == b'\n').map(<[u8]>::to_vec).collect();
    let columns = lines[0].split(|byte| delimiter.as_bytes().contains(byte)).count();
    for _ in 0..case.chance.between(1, 5) {
        let line = hostile_line(case, columns, delimiter);
        let at = case.chance.below(lines.len());
        if case.chance.once_in(2) { lines[at] = line } else { lines.insert(at, line) }
    }
    if case.chance.once_in(6) {
        lines.truncate(case.chance.below(4));
    }
    let end: &[u8] = if case.chance.once_in(5) { b"\r\n" } else { b"\n" };
    fs::write(path, lines.join(end)).unwrap();
}

/// Text whose lines are none.
pub fn text(case: &mut Case<'_>) {
    let criteo = case.chance.once_in(2);
    (if criteo { "clicks" } else { "tables" }).clone_into(&mut case.kind);
    for _ in 0..3 {
        let kind = super::damage::kind_named(if criteo { "text" } else { "a table" });
        let (folder, words) = copied(case, kind);
        let (file, delimiter) = if criteo { ("clicks.tsv", "\t") } else { ("ratings.csv", ",") };
        with_hostile_lines(case, &folder.join(file), delimiter);
        case.damages += 1;
        case.told(&Line::new(words).limit(BELT), &[&folder.display().to_string()]);
    }
}

/// Random look-ups, few.
const RANDOM: &str = "--set model.rows=[10,2000] --set data.test_samples=64";

/// Keys set to what nobody would.
pub fn settings(case: &mut Case<'_>) {
    // As long as a run is asked to be, it takes.
    let long = ["train.steps", "train.epochs", "data.test_samples", "data.train_samples", "data.lookups"];
    let keys: Vec<&str> = KEYS.iter().map(|key| key.name).filter(|key| !long.contains(key)).collect();
    for _ in 0..4 {
        let all = [
            format!("train {MODEL} {BUILT_IN} --steps 2"),
            format!("train {MODEL} {BUILT_IN} --steps 2 --ranks 2 --threads 1"),
            format!("train {MODEL} --set model.bottom=[13,16,8] --source random {RANDOM} --steps 2"),
            format!("plan {LAYERS} --ranks 2"),
            "plan --preset small --ranks 4".to_owned(),
            format!("config {LAYERS}"),
        ];
        let words = case.chance.pick(&all);
        let mut line = Line::new(words).limit(BELT);
        let mut names = vec!["--set".to_owned()];
        for _ in 0..case.chance.between(1, 2) {
            let (key, value) = (*case.chance.pick(&keys), value(&mut case.chance));
            if value.len() > 100_000 || value.contains('\0') {
                continue;
            }
            line = line.word("--set").word(format!("{key}={value}"));
            names.extend([key.to_owned(), key.split('.').next_back().unwrap_or_default().to_owned(), value]);
        }
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        case.told(&line, &names);
    }
}
