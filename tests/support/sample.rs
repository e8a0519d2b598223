//! The real sample of Criteo's click log, which cannot be part of the repository.

use std::path::{Path, PathBuf};

use crate::requirement::required;

/// The sample's file: in the folder that `OCTOREC_CRITEO_SAMPLE` names, or beside the repository.
pub fn criteo_sample() -> Option<PathBuf> {
    let beside = || Path::new(env!("CARGO_MANIFEST_DIR")).join("../shared/data/criteo_sample");
    let folder = std::env::var_os("OCTOREC_CRITEO_SAMPLE").map_or_else(beside, PathBuf::from);
    let file = folder.join("criteo_80k.tsv.gz");
    let found = if file.exists() { Ok(file) } else { Err(format!("there is no {}", file.display())) };
    required("criteo-sample", found)
}
