//! Which files a run reads, and in which order: a day follows the other, each once.

use std::borrow::Cow;
use std::collections::HashMap;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use crate::base::console::note;
use crate::base::{Error, Result};
use crate::data::formats::csv::listed as listed_names;
use crate::data::formats::{is_hidden, parquet};
use crate::data::unfinished::{name, refuse_moving};
use crate::memory::{listed, natural};

/// The input files: folders stand for what is in them, day_2 before day_10, those of Parquet for that
/// alone.
///
/// # Errors
/// When there are none, one comes twice, or they stand in the order in which a shell sorts names.
pub fn input_files(inputs: &[PathBuf]) -> Result<Vec<PathBuf>> {
    let mut all = Vec::new();
    for input in inputs {
        refuse_moving(input)?;
        if !input.is_dir() {
            all.push(input.clone());
            continue;
        }
        let [mut found, _] = files_in(input)?;
        if found.is_empty() || found.iter().any(|path| parquet::is_such(&name(path))) {
            parquet::refuse_below(input, |_| false)?;
        }
        // Numbers that are equal, as 1 and 01, stay in the order of the list.
        found.sort_by_cached_key(|path| natural(&path.to_string_lossy()));
        all.extend(found);
    }
    if all.is_empty() {
        let named = inputs.first().cloned().unwrap_or_default();
        return Err(Error::bad_file(named, "there is no file in it to read"));
    }
    if let Some(pair) = sorted_by_a_shell(&all) {
        let [first, second] = pair.map(|path| path.file_name().unwrap_or_default().to_string_lossy());
        let reason = format!(
            "stands before {second}, as a shell sorts names, but files are read in the order of their days: name them in \
             that order, with braces ({}) or by the folder that they are alone in",
            braces(&first)
        );
        return Err(Error::bad_file(pair[0], reason));
    }
    refuse_twice(&all)?;
    Ok(all)
}

/// The files of a folder that are read and those that are not: beside Parquet lie notes, or the same rows as text.
fn files_in(folder: &Path) -> Result<[Vec<PathBuf>; 2]> {
    let mut found = listed(folder, "read")?;
    found.retain(|path| path.is_file() && !is_hidden(&name(path)));
    let (such, others): (Vec<_>, Vec<_>) = found.into_iter().partition(|path| parquet::is_such(&name(path)));
    Ok(if such.is_empty() { [others, such] } else { [such, others] })
}

/// Says which files of an input, where it is a folder, are not read, but for what describes the others.
///
/// # Errors
/// When the folder cannot be read.
pub(in crate::data) fn note_left_out(input: &Path) -> Result<()> {
    if !input.is_dir() {
        return Ok(());
    }
    let [_, mut others] = files_in(input)?;
    others.retain(|file| file.extension().is_none_or(|end| end != "toml"));
    if !others.is_empty() {
        let names: Vec<_> = others.iter().map(|file| name(file)).collect();
        note!(
            "note: {}: its *.parquet alone are read, not {}",
            input.display(),
            listed_names(names.iter().map(|name| &**name))
        );
    }
    Ok(())
}

/// Two neighbours of the same kind that come by their digits, not by their numbers, where all names do. The last file
/// alone tells nothing: it is held out by whoever names it behind the others.
fn sorted_by_a_shell(all: &[PathBuf]) -> Option<[&Path; 2]> {
    let names: Vec<_> = all.iter().map(|path| path.to_string_lossy()).collect();
    let (_, before) = names.split_last()?;
    let swapped = |pair: &[Cow<'_, str>]| kind(&pair[0]) == kind(&pair[1]) && natural(&pair[0]) > natural(&pair[1]);
    let at = before.windows(2).position(swapped).filter(|_| names.is_sorted())?;
    Some([&all[at], &all[at + 1]])
}

/// A name without its numbers.
fn kind(name: &str) -> String {
    name.chars().filter(|c| !c.is_ascii_digit()).collect()
}

/// How a shell is told to count: day_{0..N}.gz.
fn braces(name: &str) -> String {
    let end = name.rfind(|c: char| c.is_ascii_digit()).map_or(0, |last| last + 1);
    let begin = name[..end].trim_end_matches(|c: char| c.is_ascii_digit()).len();
    format!("{}{{0..N}}{}", &name[..begin], &name[end..])
}

/// Refuses a file that would be read twice: by two names, or packed and unpacked.
fn refuse_twice(all: &[PathBuf]) -> Result<()> {
    let (mut files, mut names) = (HashMap::new(), HashMap::new());
    for path in all {
        // What is not there is told when it is opened.
        let number = fs::metadata(path).ok().map(|found| (found.dev(), found.ino()));
        let same = number.and_then(|number| files.insert(number, path));
        if let Some(other) = same {
            let reason = format!("is the same file as {}: name it once", other.display());
            return Err(Error::bad_file(path.clone(), reason));
        }
        let packed = path.extension().is_some_and(|end| end == "gz" || end == "zst");
        let name = if packed { path.with_extension("") } else { path.clone() };
        if let Some(other) = names.insert(name, path) {
            let reason = format!(
                "would be read beside {}, the same log packed otherwise: name one of the two (of a folder, move one out of \
                 it)",
                other.display()
            );
            return Err(Error::bad_file(path.clone(), reason));
        }
    }
    Ok(())
}

/// Refuses inputs of which no row is of use: each would be a day without rows, the last one that of validation and
/// test. Of each, `found` are its rows, and the malformed ones that were left out.
pub(super) fn refuse_empty<'a>(inputs: impl Iterator<Item = &'a Path>, found: &[[u64; 2]]) -> Result<()> {
    let empty: Vec<_> = inputs.zip(found).filter(|(_, [rows, _])| *rows == 0).collect();
    let what = |skipped: u64| match skipped {
        0 => "there are no rows in it".to_owned(),
        _ => format!("there is no usable row in it: all {skipped} are malformed"),
    };
    let Some(((first, [_, skipped]), others)) = empty.split_first() else { return Ok(()) };
    let mut reason = what(*skipped);
    others.iter().for_each(|(path, [_, skipped])| reason += &format!("; {}: {}", path.display(), what(*skipped)));
    if empty.iter().any(|(_, [_, skipped])| *skipped > 0) {
        reason += "; without --on-bad-row skip the first is described";
    }
    if empty.len() < found.len() {
        reason += ": mend or replace it and run the same command again, or leave it away and add --force";
    }
    Err(Error::bad_file(*first, reason))
}
