//! With whose weights a run began, by which a command that is given again is told from one that begins with others.

use std::path::Path;

use serde::{Deserialize, Serialize};

use super::super::tensor_file::HEAD;
use super::Checkpoint;
use crate::base::Result;

/// The weights that a run began with.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Start {
    /// Their folder or file, as it was given.
    pub path: String,
    /// The hash of that file's head, which has the hashes of all tensors; `None` of a file without hashes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seal: Option<String>,
}

impl Start {
    /// That with the weights of a file, which was given as `path`.
    #[must_use]
    pub fn of(path: &Path, weights: &Checkpoint<'_>) -> Self {
        let seal = weights.metadata.metadata().as_ref().and_then(|entries| entries.get(HEAD)).cloned();
        Self { path: path.display().to_string(), seal }
    }
}

impl Checkpoint<'_> {
    /// With whose weights the run began; `None` where it drew its own, or the file does not say.
    ///
    /// # Errors
    /// As [`Checkpoint::header`].
    pub fn start(&self) -> Result<Option<Start>> {
        Ok(self.own_header()?.and_then(|header| header.start.clone()))
    }
}
