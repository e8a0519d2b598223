//! The files that commands write: which files they refuse to write over, and what to mix with standard output.

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

use crate::base::config::{Command, Config};
use crate::base::{Error, Result};
use crate::data::blocks::MANIFEST;
use crate::data::formats::Format;
use crate::memory::{WholeFile, is_stream, partial_of, same_file, write_file};
use crate::train::run_of;

/// Refuses outputs, each with its flag, of which one is another, or one of the command's inputs, or a file in a folder
/// that is one, unless it is a picture or TOML other than a data set's; one that would be read as a file of a folder of
/// data ([`reads`]); a file of any run; and pictures (`--svg`) where something else is.
///
/// # Errors
/// [`Error::Config`] that names the flag.
pub fn refuse_overwriting(outputs: &[(&str, Option<&Path>)], inputs: &[&Path]) -> Result<()> {
    let outputs: Vec<(&str, &Path)> = outputs.iter().filter_map(|&(flag, out)| Some((flag, out?))).collect();
    for (at, &(flag, out)) in outputs.iter().enumerate() {
        refuse_losing(flag, out, inputs, "an input of this command")?;
        if flag == "--svg" {
            refuse_other_than_picture(flag, out)?;
        }
        // A stream takes what several write. Of a folder that is yet to be made nothing but the name tells.
        let same = |other: &Path| replaces(out) && (other == out || same_file(other, out));
        if let Some((other, _)) = outputs[..at].iter().find(|(_, other)| same(other)) {
            let reason = format!("{} is also what {other} writes: name another file", out.display());
            return Err(Error::config(flag, reason));
        }
    }
    Ok(())
}

/// Whether what is written to a path takes the place of what is there, or makes it.
fn replaces(out: &Path) -> bool {
    !is_stream(out) && !out.is_dir()
}

/// Refuses outputs that are data, a schema, a hot set or tuned blocking of the run whose model a command takes: `eval`
/// and `train --resume` read them, be it that this command does not.
///
/// # Errors
/// [`Error::Config`] that names the flag.
pub fn refuse_losing_data(outputs: &[(&str, Option<&Path>)], run: &Path, config: &Config) -> Result<()> {
    let read = config.input_files(Command::Train);
    let whose = format!("part of the data or configuration that the run of {} reads", run.display());
    outputs
        .iter()
        .filter_map(|&(flag, out)| Some((flag, out?)))
        .try_for_each(|(flag, out)| refuse_losing(flag, out, &read, &whose))
}

/// Refuses a picture where another file is, which somebody may have written.
fn refuse_other_than_picture(flag: &str, out: &Path) -> Result<()> {
    /// Bytes in which a picture says what it is.
    const HEAD: u64 = 1024;
    let mut head = Vec::new();
    let file = Some(out).filter(|out| out.is_file() && replaces(out)).and_then(|out| File::open(out).ok());
    // What cannot be read is told where it is written.
    let _ = file.map(|file| file.take(HEAD).read_to_end(&mut head));
    if head.is_empty() || String::from_utf8_lossy(&head).contains("<svg") {
        return Ok(());
    }
    let out = out.display();
    let reason =
        format!("{out} is there and is no picture, which would be lost: name another file, or remove that one");
    Err(Error::config(flag, reason))
}

/// Refuses one output, where it is one of these inputs, which the text tells.
fn refuse_losing(flag: &str, out: &Path, inputs: &[&Path], told: &str) -> Result<()> {
    let within = |out: &Path, folder: &Path| {
        let file = out.canonicalize().ok().filter(|file| file.is_file());
        let of_data = |file: &PathBuf| {
            let is_other_toml = || file.file_name().is_none_or(|name| name != MANIFEST);
            !file.extension().is_some_and(|kind| kind == "svg" || kind == "toml" && is_other_toml())
        };
        file.filter(of_data).and_then(|file| Some(same_file(file.parent()?, folder))) == Some(true)
    };
    // An input may also have the name of a file that is not whole yet.
    let is = |out: &Path, input: &Path| same_file(out, input) || same_file(&partial_of(out), input);
    // Of a folder of Parquet nothing else is read.
    let is_part = |out: &Path, input: &Path| {
        // What a link names counts, whatever its own name.
        let file = out.canonicalize().unwrap_or_else(|_| out.to_owned());
        within(out, input) && (reads(input, &file) || !is_of_parquet(input))
    };
    let lost = |out: &Path| inputs.iter().any(|input| is(out, input) || is_part(out, input));
    let joins = |out: &Path| {
        let name = out.file_name()?;
        let is_read =
            !name.to_string_lossy().starts_with(['.', '_']) && out.extension().is_none_or(|kind| kind != "toml");
        let holds = |input: &&&Path| reads(input, out) && same_file(&input.join(name), out);
        inputs.iter().find(holds).filter(|_| is_read)
    };
    if lost(out) {
        let reason = format!("{} is {told}, which would be lost: name another file", out.display());
        return Err(Error::config(flag, reason));
    }
    if let Some(run) = run_of(out) {
        let (out, run) = (out.display(), run.display());
        let reason = format!("{out} is a file of the run in {run}, which would be lost: name another file");
        return Err(Error::config(flag, reason));
    }
    joins(out).map_or(Ok(()), |folder| Err(read_as_data(flag, out, folder)))
}

/// Whether a file of the name of `out` is read in a folder, unless it is hidden: of text any, of Parquet its own alone.
fn reads(folder: &Path, out: &Path) -> bool {
    let is_such = out.extension().is_some_and(|end| end.eq_ignore_ascii_case("parquet"));
    is_text_folder(folder) || is_such && is_of_parquet(folder)
}

/// Whether `*.parquet` alone are read in a folder.
fn is_of_parquet(path: &Path) -> bool {
    path.is_dir() && Format::detect(path) == Some(Format::Parquet)
}

/// Whether all files in a folder are read as one table: it tells no format.
fn is_text_folder(path: &Path) -> bool {
    path.is_dir() && Format::detect(path).is_none()
}

/// Refuses a folder for `what` that the configuration names as data, where all files in it are read as text, or all but
/// its Parquet are told each time as such that are not.
///
/// # Errors
/// [`Error::Config`] that names the flag.
pub fn refuse_text_folder(flag: &str, what: &str, out: &Path, config: &Config) -> Result<()> {
    let mut data = [&config.data.path, &config.data.test_path].into_iter().map(Path::new);
    let Some(folder) = data.find(|data| same_file(data, out)) else { return Ok(()) };
    if is_text_folder(folder) {
        return Err(read_as_data(flag, Path::new(what), folder));
    }
    // Of a folder that nobody describes the others are no table, and nothing is said of them.
    if config.data.schema.is_empty() || !is_of_parquet(folder) {
        return Ok(());
    }
    let folder = folder.display();
    let reason = format!(
        "{what} would lie in {folder}, the folder of its data, of which a schema describes the *.parquet: these alone are \
         read, and a note would name the files of {what} among those that are not, whenever they are: name a folder within \
         it, or a place elsewhere"
    );
    Err(Error::config(flag, reason))
}

/// The error of an output that whoever reads a folder would take for a part of it.
fn read_as_data(flag: &str, out: &Path, folder: &Path) -> Error {
    let which = if is_text_folder(folder) { "files" } else { "*.parquet" };
    let (out, folder) = (out.display(), folder.display());
    let reason =
        format!("{out} lies in {folder}, all of whose {which} are read as data: name a place outside that folder");
    Error::config(flag, reason)
}

/// Refuses outputs that cannot be written, before the work whose results they get.
///
/// # Errors
/// As [`WholeFile::create`].
pub fn refuse_unwritable(outputs: &[Option<&Path>]) -> Result<()> {
    // Whoever reads a pipe would take its being closed for its end.
    let mut files = outputs.iter().flatten().filter(|out| replaces(out));
    files.try_for_each(|out| WholeFile::create(out).map(drop))
}

/// Refuses `--json` where the file that a command writes by a flag, or without it, would go to standard output as well;
/// `and_so` says of what is in it that it goes there.
///
/// # Errors
/// [`Error::Config`] that names the flag.
pub fn refuse_mixing(json: bool, (flag, out): (&str, Option<&Path>), and_so: &str) -> Result<()> {
    let to_stdout = |out: &Path| same_file(out, Path::new("/dev/stdout"));
    if !json || !out.is_none_or(to_stdout) {
        return Ok(());
    }
    let reason =
        format!("its object goes to standard output, and so {and_so}: name a file with {flag} FILE, or leave it away");
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
    let has_text = std::fs::metadata(path).is_ok_and(|found| found.is_file() && found.len() > 0) && replaces(path);
    if !has_text || same() {
        return Ok(());
    }
    let what = if text.is_some() { ", with other text" } else { " already" };
    let reason =
        format!("{} is there{what}, which would be lost: name another file, or remove that one", path.display());
    Err(Error::config(flag, reason))
}
