//! What a folder holds that a data set would be mixed with.

use std::path::{Path, PathBuf};

use super::{Format, bad, csv, hugectr, is_hidden, mlperf, nvidia};
use crate::base::Result;
use crate::data::blocks::{EXTENSION, MANIFEST};
use crate::data::unfinished::name;
use crate::memory::listed;

/// The file that is written last.
pub(super) fn last(format: Format) -> &'static str {
    match format {
        Format::Octorec => MANIFEST,
        Format::Mlperf => mlperf::COUNTS,
        Format::Nvidia => nvidia::SPEC,
        _ => super::SCHEMA,
    }
}

/// Whether the rows of a format have a file of this name, or a folder with such files.
fn writes(format: Format, name: &str) -> bool {
    let ends = |ends: &[&str]| ends.iter().any(|end| name.ends_with(end));
    match format {
        Format::Octorec => name.starts_with("part-") && ends(&[EXTENSION]) || ends(&[".vocabulary"]),
        Format::Mlperf => name.starts_with("octorec_") && mlperf::role(name).is_some(),
        Format::Hugectr => hugectr::role(name).is_some(),
        Format::Torchrec => {
            ["day_0_", "val_", "test_"].iter().any(|stem| name.starts_with(stem)) && ends(&[".npy", ".npz"])
        }
        Format::Nvidia | Format::Parquet => ["train", "val", "valid", "test"].contains(&name),
        Format::Csv | Format::Fae => false,
    }
}

/// The files in a folder that are called as those of a format.
fn called_as(folder: &Path, format: Format) -> Result<Vec<PathBuf>> {
    let mut all = Vec::new();
    for path in listed(folder, "list")?.into_iter().filter(|path| writes(format, &name(path))) {
        if path.is_dir() {
            let is_such = |path: &PathBuf| [".bin", ".parquet"].iter().any(|end| name(path).ends_with(end));
            all.extend(listed(&path, "list")?.into_iter().filter(is_such));
        } else {
            all.push(path);
        }
    }
    Ok(all)
}

/// What names of files end in that may be tables of text: reports and notes, which lie beside data, may look like one.
const TEXT: [&str; 6] = ["", "tsv", "txt", "inter", "data", "dat"];

/// Refuses a folder whose files are read as one table of text, which it would not be any more.
///
/// # Errors
/// That names one of them.
pub fn refuse_text(folder: &Path) -> Result<()> {
    let is_text = |path: &PathBuf| {
        let name = name(path).to_ascii_lowercase();
        let plain = [".gz", ".zst"].iter().find_map(|end| name.strip_suffix(end)).unwrap_or(&name);
        let day = plain.strip_prefix("day_").is_some_and(|day| day.parse::<u64>().is_ok());
        let ending = Path::new(plain).extension().unwrap_or_default();
        let sniffed = || TEXT.iter().any(|text| ending == *text) && csv::sniff::is_table(path);
        path.is_file() && !is_hidden(&name) && (day || ending == "csv" || sniffed())
    };
    listed(folder, "list")?.iter().find(|path| is_text(path)).map_or(Ok(()), |path| {
        let reason = "is text, of which all files of a folder are read as one table: choose another directory, or move it \
                      away";
        Err(bad(path, reason))
    })
}

/// Refuses a folder in which files would be written over, or be mixed with others.
///
/// # Errors
/// That names the folder, or one of the files.
pub(super) fn refuse_taken(folder: &Path, format: Format) -> Result<()> {
    let marked = [MANIFEST, nvidia::SPEC, mlperf::COUNTS, super::SCHEMA];
    if marked.iter().any(|name| folder.join(name).exists()) || Format::detect(folder).is_some() {
        return Err(bad(folder, "holds a data set already: choose another directory, or remove this one"));
    }
    refuse_text(folder)?;
    called_as(folder, format)?.first().map_or(Ok(()), |taken| {
        let reason = format!("has the name of a file of {}: choose another directory, or move it away", format.name());
        Err(bad(taken, reason))
    })
}
