//! What a command leaves: files and printed text, to be compared with what another left.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

/// The file by which a process locks a folder; nobody reads it.
const LOCK: &str = ".lock";

/// Files by their place in a folder, with their bytes.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Results(BTreeMap<String, Vec<u8>>);

impl Results {
    /// All files of a folder; nothing where there is none.
    pub fn of(folder: &Path) -> Self {
        let mut results = Self::default();
        results.gather(folder, "");
        results
    }

    fn gather(&mut self, folder: &Path, under: &str) {
        for entry in fs::read_dir(folder).into_iter().flatten().flatten().filter(|entry| entry.file_name() != LOCK) {
            let name = format!("{under}{}", entry.file_name().to_string_lossy());
            if entry.path().is_dir() {
                self.gather(&entry.path(), &format!("{name}/"));
            } else {
                // What vanishes meanwhile is not there.
                self.0.extend(fs::read(entry.path()).ok().map(|bytes| (name, bytes)));
            }
        }
    }

    /// Adds what was printed.
    #[must_use]
    pub fn and_printed(mut self, text: Vec<u8>) -> Self {
        self.0.insert("what was printed".to_owned(), text);
        self
    }

    /// Without files whose path ends so.
    #[must_use]
    pub fn without(mut self, name: &str) -> Self {
        self.0.retain(|path, _| !path.ends_with(name));
        self
    }

    /// How these results differ from those that were expected, and what is there, for people.
    pub fn difference(&self, expected: &Self) -> Option<String> {
        let missing = expected.0.keys().find(|name| !self.0.contains_key(*name));
        let foreign = self.0.keys().find(|name| !expected.0.contains_key(*name));
        let other = self.0.iter().find(|(name, bytes)| expected.0.get(*name).is_some_and(|whole| whole != *bytes));
        match (missing, foreign, other) {
            (Some(name), ..) => Some(format!("{name} is missing")),
            (_, Some(name), _) => Some(format!("{name} is too many")),
            (.., Some((name, bytes))) => {
                let whole = &expected.0[name];
                let at = bytes.iter().zip(whole).take_while(|(a, b)| a == b).count();
                let near = |bytes: &[u8]| {
                    let range = at.saturating_sub(NEAR)..bytes.len().min(at + NEAR);
                    String::from_utf8_lossy(&bytes[range]).into_owned()
                };
                let (found, due) = (near(bytes), near(whole));
                let sizes = format!("{} and {} bytes", bytes.len(), whole.len());
                Some(format!("{name} differs from byte {at} on ({sizes}): {found:?}, not {due:?}"))
            }
            _ => None,
        }
    }
}

/// Bytes on each side of the first that differs, which are told.
const NEAR: usize = 24;

/// Copies a folder with all that is in it.
pub fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap().map(Result::unwrap) {
        let place = to.join(entry.file_name());
        if entry.path().is_dir() {
            copy(&entry.path(), &place);
        } else {
            fs::copy(entry.path(), place).unwrap();
        }
    }
}

/// Every file of a folder, in a fixed order.
pub fn files(folder: &Path) -> Vec<std::path::PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).into_iter().flatten().flatten().filter(|entry| entry.file_name() != LOCK) {
        if entry.path().is_dir() { found.extend(files(&entry.path())) } else { found.push(entry.path()) }
    }
    found.sort();
    found
}
