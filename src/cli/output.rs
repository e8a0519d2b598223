//! The files that commands write: which files they refuse to write over, and what to mix with standard output.

use std::path::{Path, PathBuf};

use crate::base::{Error, Result};
use crate::data::blocks::MANIFEST;
use crate::memory::{same_file, write_file};

/// Refuses an output that is one of the command's inputs, or a file in a folder that is one, unless it is a picture or
/// TOML other than a data set's.
///
/// # Errors
/// [`Error::Config`] that names the flag.
pub fn refuse_overwriting(flag: &str, out: Option<&Path>, inputs: &[&Path]) -> Result<()> {
    let within = |out: &Path, folder: &Path| {
        let file = out.canonicalize().ok().filter(|file| file.is_file());
        let of_data = |file: &PathBuf| {
            let is_other_toml = || file.file_name().is_none_or(|name| name != MANIFEST);
            !file.extension().is_some_and(|kind| kind == "svg" || kind == "toml" && is_other_toml())
        };
        file.filter(of_data).and_then(|file| Some(same_file(file.parent()?, folder))) == Some(true)
    };
    let lost = |out: &Path| inputs.iter().any(|input| same_file(out, input) || within(out, input));
    match out.filter(|out| lost(out)) {
        None => Ok(()),
        Some(out) => {
            let reason =
                format!("{} is an input of this command, which would be lost: name another file", out.display());
            Err(Error::config(flag, reason))
        }
    }
}

/// Refuses `--json` where the file that a command writes would go to standard output as well; `and_so` says of what is
/// in it that it goes there.
///
/// # Errors
/// [`Error::Config`] that names the flag.
pub fn refuse_mixing(json: bool, out: Option<&Path>, and_so: &str) -> Result<()> {
    let to_stdout = |out: &Path| same_file(out, Path::new("/dev/stdout"));
    if !json || !out.is_none_or(to_stdout) {
        return Ok(());
    }
    let reason =
        format!("its object goes to standard output, and so {and_so}: name a file with --out FILE, or leave it away");
    Err(Error::config("--json", reason))
}

/// Writes a text that is made to be edited, unless a file with other text is there.
///
/// # Errors
/// As [`refuse_edited`], and when the file cannot be written.
pub fn write_editable(flag: &str, path: &Path, text: &str) -> Result<()> {
    refuse_edited(flag, path, Some(text))?;
    write_file(path, text.as_bytes())
}

/// Refuses to write `text`, or one that is not known yet, over a file with another one, which somebody may have edited.
///
/// # Errors
/// [`Error::Config`] that names the flag.
pub fn refuse_edited(flag: &str, path: &Path, text: Option<&str>) -> Result<()> {
    let same = || std::fs::read(path).is_ok_and(|there| Some(&there[..]) == text.map(str::as_bytes));
    let has_text = std::fs::metadata(path).is_ok_and(|found| found.is_file() && found.len() > 0);
    if !has_text || same() {
        return Ok(());
    }
    let what = if text.is_some() { ", with other text" } else { " already" };
    let reason =
        format!("{} is there{what}, which would be lost: name another file, or remove that one", path.display());
    Err(Error::config(flag, reason))
}
