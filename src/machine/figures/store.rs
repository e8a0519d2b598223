//! Where figures are kept: a file a machine, all in one folder, since a home directory may be several machines' own.

use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use super::{Figures, Fingerprint};
use crate::base::{Error, Result};
use crate::memory::write_file;

/// How files of figures begin and end.
const PREFIX: &str = "figures-";
const SUFFIX: &str = ".json";

/// No file of figures is larger: one of 1024 nodes has a million pairs.
const MOST_BYTES: u64 = 256 << 20;

/// A folder of figures.
#[derive(Debug, Clone)]
pub struct Store {
    folder: PathBuf,
}

/// What a [`Store`] has for a machine.
#[derive(Debug, Default)]
pub struct Kept {
    /// Its figures and their file.
    pub figures: Option<(Figures, PathBuf)>,
    /// Files that could not be read, and why.
    pub notes: Vec<String>,
}

impl Store {
    /// That folder; it need not exist.
    #[must_use]
    pub const fn new(folder: PathBuf) -> Self {
        Self { folder }
    }

    /// Where it is.
    #[must_use]
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// The figures of a machine, the newest if there are several.
    #[must_use]
    pub fn find(&self, here: &Fingerprint) -> Kept {
        let mut kept = Kept::default();
        let entries = match fs::read_dir(&self.folder) {
            Ok(entries) => entries,
            Err(error) if error.kind() == ErrorKind::NotFound => return kept,
            Err(error) => {
                kept.notes.push(format!("{}: measured figures cannot be looked for: {error}", self.folder.display()));
                return kept;
            }
        };
        let ours = |path: &PathBuf| {
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            name.starts_with(PREFIX) && name.ends_with(SUFFIX)
        };
        let mut files: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).filter(ours).collect();
        files.sort_unstable();
        for path in files {
            match read(&path) {
                Err(reason) => kept.notes.push(format!(
                    "{} is left unused: {reason}; remove it, `octorec topo --measure` writes a new one",
                    path.display()
                )),
                Ok(figures) if figures.fingerprint.difference(here).is_some() => {}
                Ok(figures) => {
                    let newer = |(known, _): &(Figures, PathBuf)| known.measured_s < figures.measured_s;
                    if kept.figures.as_ref().is_none_or(newer) {
                        kept.figures = Some((figures, path));
                    }
                }
            }
        }
        kept
    }

    /// Keeps figures in the place of older ones of the same machine, and says where.
    ///
    /// # Errors
    /// When the folder or the file cannot be written.
    pub fn keep(&self, figures: &Figures) -> Result<PathBuf> {
        fs::create_dir_all(&self.folder).map_err(Error::io(&self.folder, "create"))?;
        let fresh = || self.folder.join(format!("{PREFIX}{}{SUFFIX}", figures.fingerprint.name()));
        let path = self.find(&figures.fingerprint).figures.map_or_else(fresh, |(_, path)| path);
        let text = serde_json::to_string_pretty(figures).expect("plain data with string keys is JSON");
        write_file(&path, (text + "\n").as_bytes())?;
        Ok(path)
    }
}

fn read(path: &Path) -> std::result::Result<Figures, String> {
    let size = fs::metadata(path).map_err(|error| error.to_string())?;
    if !size.is_file() || size.len() > MOST_BYTES {
        return Err("it is no file of figures".to_owned());
    }
    let text = fs::read_to_string(path).map_err(|error| error.to_string())?;
    let figures: Figures = serde_json::from_str(&text).map_err(|error| error.to_string())?;
    figures.check()?;
    Ok(figures)
}

/// Seconds since 1970.
pub fn now_s() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}
