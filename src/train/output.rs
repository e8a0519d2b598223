//! What a run leaves behind: `config.toml`, `metrics.jsonl`, the checkpoint and the vocabulary, in one directory.

use std::fs::{self, File};
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};

use serde::Serialize;

use super::checkpoint::write_whole;
use crate::base::config::Config;
use crate::base::{Error, Result};

const CONFIG: &str = "config.toml";
const METRICS: &str = "metrics.jsonl";
const CHECKPOINT: &str = "checkpoint.safetensors";
const VOCABULARY: &str = "vocabulary.safetensors";

/// A run's directory.
#[derive(Debug)]
pub struct OutputDir {
    path: PathBuf,
    metrics: BufWriter<File>,
}

impl OutputDir {
    /// Takes a directory for a new run, creating it if need be; `force` replaces the run that it holds.
    ///
    /// # Errors
    /// [`Error::OutputTaken`] when it holds a run, or when the system refuses.
    pub fn create(path: &Path, force: bool) -> Result<Self> {
        fs::create_dir_all(path).map_err(Error::io(path, "create"))?;
        let files = [METRICS, CONFIG, CHECKPOINT, VOCABULARY].map(|name| path.join(name));
        let taken: Vec<_> = files.into_iter().filter(|file| file.exists()).collect();
        if !taken.is_empty() && !force {
            return Err(Error::OutputTaken { path: path.to_owned() });
        }
        for file in taken {
            fs::remove_file(&file).map_err(Error::io(&file, "remove"))?;
        }
        Self::open(path)
    }

    /// Continues in the directory of a run that had done `step` steps: what was logged after them is taken back.
    ///
    /// # Errors
    /// When the directory holds no run, or the system refuses.
    pub fn resume(path: &Path, step: u64) -> Result<Self> {
        let file = path.join(METRICS);
        let kept: String = match fs::read_to_string(&file) {
            Ok(text) => text.lines().filter(|line| logged_step(line).is_some_and(|at| at <= step)).fold(
                String::new(),
                |mut kept, line| {
                    kept.push_str(line);
                    kept.push('\n');
                    kept
                },
            ),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => String::new(),
            Err(error) => return Err(Error::io(&file, "read")(error)),
        };
        write_whole(&file, |partial| fs::write(partial, kept).map_err(Error::io(&file, "write")))?;
        Self::open(path)
    }

    fn open(path: &Path) -> Result<Self> {
        let file = path.join(METRICS);
        let metrics = File::options().create(true).append(true).open(&file).map_err(Error::io(&file, "create"))?;
        Ok(Self { path: path.to_owned(), metrics: BufWriter::new(metrics) })
    }

    /// The directory.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Where the run's checkpoint is or will be.
    #[must_use]
    pub fn checkpoint(&self) -> PathBuf {
        checkpoint_in(&self.path)
    }

    /// Where the run's vocabulary is or will be.
    #[must_use]
    pub fn vocabulary(&self) -> PathBuf {
        vocabulary_in(&self.path)
    }

    /// Writes the resolved configuration.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub fn write_config(&self, config: &Config) -> Result<()> {
        let file = self.path.join(CONFIG);
        write_whole(&file, |partial| fs::write(partial, config.to_toml()).map_err(Error::io(&file, "write")))
    }

    /// Appends one JSON object to the metrics.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub fn log(&mut self, entry: &impl Serialize) -> Result<()> {
        let line = serde_json::to_string(entry).expect("a metrics entry is representable in JSON");
        writeln!(self.metrics, "{line}").map_err(Error::io(&self.path.join(METRICS), "write"))
    }

    /// Hands all metrics to the system.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub fn flush(&mut self) -> Result<()> {
        self.metrics.flush().map_err(Error::io(&self.path.join(METRICS), "write"))
    }
}

/// The checkpoint that `path` means: itself if it is a file, or that of the run in it.
#[must_use]
pub fn checkpoint_in(path: &Path) -> PathBuf {
    if path.is_dir() { path.join(CHECKPOINT) } else { path.to_owned() }
}

/// The vocabulary beside the checkpoint that `path` means.
#[must_use]
pub fn vocabulary_in(path: &Path) -> PathBuf {
    if path.is_dir() { path.join(VOCABULARY) } else { path.with_file_name(VOCABULARY) }
}

/// The step of a metrics line; `None` for a line that was cut off.
fn logged_step(line: &str) -> Option<u64> {
    serde_json::from_str::<serde_json::Value>(line).ok()?.get("step")?.as_u64()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_directory_is_taken_once_and_resuming_takes_back_what_came_after() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("run");
        let mut output = OutputDir::create(&path, false).unwrap();
        for step in 1..=5 {
            output.log(&json!({"kind": "step", "step": step})).unwrap();
        }
        output.flush().unwrap();
        fs::write(path.join(METRICS), fs::read_to_string(path.join(METRICS)).unwrap() + "{\"kind\": \"st").unwrap();
        let message = OutputDir::create(&path, false).unwrap_err().to_string();
        assert!(message.contains("--resume") && message.contains("--force"), "{message}");

        OutputDir::resume(&path, 3).unwrap().flush().unwrap();
        let text = fs::read_to_string(path.join(METRICS)).unwrap();
        assert_eq!(text.lines().filter_map(logged_step).collect::<Vec<_>>(), [1, 2, 3]);

        OutputDir::create(&path, true).unwrap().flush().unwrap();
        assert_eq!(fs::read_to_string(path.join(METRICS)).unwrap(), "");
    }
}
