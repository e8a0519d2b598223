//! The house rules that a machine can check; `src/lib.rs` has the plan.

use std::fs;
use std::path::{Path, PathBuf};

/// The floors, lowest first: a module may use floors before it in this list and its own.
const FLOORS: [&str; 19] = [
    "base",
    "ffi",
    "memory",
    "simd",
    "sync",
    "machine",
    "math",
    "collective",
    "data",
    "shard",
    "optim",
    "embedding",
    "layer",
    "exchange",
    "model",
    "train",
    "simulate",
    "cli",
    "main",
];

/// Floors that must not know floors below them, though these come before them in [`FLOORS`].
const WALLS: [(&str, &[&str]); 7] = [
    ("math", &["ffi"]),
    ("collective", &["math"]),
    ("data", &["ffi", "collective"]),
    ("optim", &["ffi", "machine", "collective", "data", "shard"]),
    ("embedding", &["ffi", "collective", "shard"]),
    ("layer", &["ffi", "collective", "data", "shard", "embedding"]),
    ("exchange", &["ffi", "optim", "layer"]),
];

/// The rooms in which `unsafe` may stand.
const UNSAFE_ROOMS: [&str; 4] = ["ffi", "memory", "simd", "sync"];

/// Lines above which a file should be split by subject.
const LONGEST: usize = 500;

/// Columns of a line; rustfmt sees to code.
const WIDEST: usize = 120;

fn source_files() -> Vec<PathBuf> {
    fn collect(folder: &Path, into: &mut Vec<PathBuf>) {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                collect(&path, into);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                into.push(path);
            }
        }
    }
    let mut files = Vec::new();
    collect(&Path::new(env!("CARGO_MANIFEST_DIR")).join("src"), &mut files);
    assert!(files.len() > 30, "the house was found");
    files.sort();
    files
}

/// The floor a file stands on: the first part of its path below `src`.
fn floor(path: &Path) -> String {
    let below = path.strip_prefix(Path::new(env!("CARGO_MANIFEST_DIR")).join("src")).unwrap();
    let first = below.components().next().unwrap().as_os_str().to_string_lossy();
    first.trim_end_matches(".rs").to_owned()
}

/// Code without comments and string literals' insides would be ideal; comments are enough here.
fn code_lines(text: &str) -> impl Iterator<Item = (usize, &str)> {
    text.lines().enumerate().map(|(number, line)| (number + 1, line.split("//").next().unwrap_or_default()))
}

#[test]
fn arrows_between_floors_go_down() {
    let rank = |name: &str| FLOORS.iter().position(|floor| *floor == name);
    for path in source_files() {
        let here = floor(&path);
        if here == "lib" {
            continue;
        }
        let own = rank(&here).unwrap_or_else(|| panic!("{here} is no floor of the plan"));
        for (number, line) in code_lines(&fs::read_to_string(&path).unwrap()) {
            for used in line.split("crate::").skip(1) {
                let name: String = used.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect();
                let Some(other) = rank(&name) else { panic!("{}:{number}: crate::{name} is no floor", path.display()) };
                assert!(other <= own, "{}:{number}: {here} must not use {name}, a floor above it", path.display());
                let wall = WALLS.iter().any(|(floor, hidden)| *floor == here && hidden.contains(&name.as_str()));
                assert!(!wall, "{}:{number}: {here} must not know {name}", path.display());
            }
        }
    }
}

#[test]
fn every_floor_is_on_the_map() {
    let map = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("src/lib.rs")).unwrap();
    let mut floors: Vec<_> = source_files().iter().map(|path| floor(path)).collect();
    floors.dedup();
    for name in floors.iter().filter(|name| *name != "lib" && *name != "main") {
        assert!(map.contains(&format!("//! | `{name}`")), "{name} has a row in the map of src/lib.rs");
    }
}

#[test]
fn files_open_with_their_purpose_and_stay_short() {
    for path in source_files() {
        let text = fs::read_to_string(&path).unwrap();
        assert!(text.starts_with("//!"), "{} opens with //!", path.display());
        let lines = text.lines().count();
        assert!(lines <= LONGEST, "{} has {lines} lines: split it by subject", path.display());
        for (number, line) in (1..).zip(text.lines()).filter(|(_, line)| is_prose(line)) {
            assert!(line.chars().count() <= WIDEST, "{}:{number}: wrap this comment", path.display());
        }
        let stem = path.file_stem().unwrap().to_string_lossy().into_owned();
        for vague in ["util", "utils", "common", "misc", "helper", "helpers"] {
            assert!(stem != vague, "{}: a room needs a name", path.display());
        }
    }
}

/// A line of a comment that can be wrapped: no row of a table.
fn is_prose(line: &str) -> bool {
    line.trim_start().starts_with("//") && !line.trim_end().ends_with('|')
}

#[test]
fn unsafe_has_addresses_and_proofs() {
    for path in source_files() {
        let text = fs::read_to_string(&path).unwrap();
        let lines: Vec<_> = text.lines().collect();
        for (number, line) in code_lines(&text) {
            let uses = ["unsafe {", "unsafe impl", "unsafe fn", "unsafe extern", "unsafe trait"];
            let Some(_) = uses.iter().find(|form| line.contains(*form)) else { continue };
            let here = floor(&path);
            assert!(UNSAFE_ROOMS.contains(&here.as_str()), "{}:{number}: unsafe outside its rooms", path.display());
            if line.contains("unsafe {") || line.contains("unsafe impl") {
                let above = lines[number.saturating_sub(8)..number].iter();
                let proven = above.clone().any(|line| line.contains("SAFETY:"));
                assert!(proven, "{}:{number}: no SAFETY proof above", path.display());
            }
        }
    }
}

#[test]
fn the_environment_is_read_in_one_place() {
    for path in source_files() {
        let text = fs::read_to_string(&path).unwrap();
        // Tests, at a file's foot, may look for data that is not part of the project.
        let code = text.split("#[cfg(test)]").next().unwrap();
        for (number, line) in code_lines(code) {
            assert!(
                !line.contains("env::var") || path.to_string_lossy().contains("base/config"),
                "{}:{number}: the environment is read outside base/config",
                path.display()
            );
        }
    }
}
