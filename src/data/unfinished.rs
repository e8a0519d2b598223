//! A folder into which several files are written as one: a data set, or a log of some days.
//!
//! Everything is written into a working folder, beside an older data set, which stays and can be read until the new one
//! is whole. Then the old one goes and the new files move into its place, last the one without which they are no data
//! set; what moves is written down before, and a kill in the middle of that is mended by whoever writes to the folder
//! next. What a kill before that has left goes then, unless it has a journal by which the same command goes on.

use std::borrow::Cow;
use std::collections::{BTreeSet, HashSet};
use std::fs::{self, File};
use std::io::ErrorKind;
use std::path::{Component, Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::base::console::note;
use crate::base::{Error, Result, input};
use crate::memory::{self, FolderLock, make_folder, refuse_foreign, whole_name, write_file};

/// The working folder.
pub(super) const WORK: &str = "unfinished";
/// The file in it of work that goes on after a kill.
pub(super) const JOURNAL: &str = "journal.json";
/// The file in it of work that begins anew after a kill; once all is whole, it says how many bytes of rows there are,
/// which file moves last, and what was asked for of which version.
const ANEW: &str = ".octorec-anew";
/// The file in it that lists what is whole and on its way out.
const MOVING: &str = "moving";
const MARKS: [&str; 3] = [JOURNAL, ANEW, MOVING];

/// The version, as finished work tells it: another one may write other files.
const VERSION: &str = env!("CARGO_PKG_VERSION");

/// A folder that is being written to, by nobody else.
#[derive(Debug)]
pub struct Unfinished {
    folder: PathBuf,
    work: PathBuf,
    /// Whether nobody goes on with what is left unfinished here.
    anew: bool,
    lock: FolderLock,
}

/// What moves, by names within the folder.
#[derive(Serialize, Deserialize)]
struct Move {
    /// What goes of an older data set.
    old: Vec<String>,
    /// What comes, in this order.
    new: Vec<String>,
}

impl Move {
    /// What a list says; nothing of one that this octorec has not written.
    fn parse(text: &str) -> Option<Self> {
        let is_within = |name: &String| Path::new(name).components().all(|part| matches!(part, Component::Normal(_)));
        let found: Self = serde_json::from_str(text).ok()?;
        found.old.iter().chain(&found.new).all(is_within).then_some(found)
    }
}

impl Unfinished {
    /// Takes a folder, which is made where it is not there, for work that goes on after a kill.
    ///
    /// # Errors
    /// [`Error::OutputBusy`] when another process writes to it, [`Error::BadFile`] when the working folder is a link or
    /// holds one, and when the system refuses.
    pub(super) fn take(folder: &Path) -> Result<Self> {
        make_folder(folder)?;
        let work = folder.join(WORK);
        refuse_foreign(folder, [WORK])?;
        refuse_foreign(&work, listed(&work)?.iter().filter_map(|path| path.file_name()))?;
        let lock = FolderLock::take(folder)?;
        Ok(Self { folder: folder.to_owned(), work, anew: false, lock })
    }

    /// Moves what an earlier attempt at the same `task` has finished, but was killed while it moved, into its place.
    /// Returns the bytes of its rows; nothing where there was no such attempt.
    ///
    /// # Errors
    /// [`Error::OutputBusy`] when another process writes to the folder, and when the system refuses.
    pub fn end(folder: &Path, task: &str) -> Result<Option<u64>> {
        let work = folder.join(WORK);
        if finished(&work, task).is_none() {
            return Ok(None);
        }
        let mut left = Self::take(folder)?;
        left.anew = true;
        let Some((bytes, last)) = finished(&work, task) else { return Ok(None) };
        if is_moving(folder) {
            left.move_out()?;
        } else if folder.join(&last).exists() && !work.join(&last).exists() {
            // All has moved, but for the mark.
            left.sweep()?;
        } else {
            return Ok(None);
        }
        note!("note: {}: what this command had finished when it was killed is in its place now", folder.display());
        Ok(Some(bytes))
    }

    /// Takes a folder, which is made where it is not there, for files that are written in one go, unless `refuse` finds
    /// what they would be mixed with. Dropped before [`Unfinished::finish`], nothing of them stays.
    ///
    /// # Errors
    /// [`Error::OutputBusy`] when another process writes to it, those of `refuse`, when other work lies in the working
    /// folder, and when the system refuses.
    pub fn begin(folder: &Path, refuse: impl FnOnce() -> Result<()>) -> Result<Self> {
        let mut begun = Self::take(folder)?;
        begun.anew = true;
        if is_moving(folder) {
            begun.move_out()?;
            note!("note: {}: what was on its way into its place here is whole now", folder.display());
        }
        refuse()?;
        if begun.work.join(JOURNAL).exists() {
            let reason = "holds what `octorec preprocess` has begun: finish it by the same command, begin it anew by another \
                          with --force, or choose another directory";
            return Err(Error::bad_file(&begun.work, reason));
        }
        begun.empty("another directory")?;
        let marked = write_file(&begun.work.join(ANEW), b"");
        marked.inspect_err(|_| drop(fs::remove_dir(&begun.work))).map(|()| begun)
    }

    /// The folder in which files are written until all are whole.
    #[must_use]
    pub fn work(&self) -> &Path {
        &self.work
    }

    /// Empties the working folder, which is made where it is not there. `other` is what may be chosen instead.
    ///
    /// # Errors
    /// When somebody else's files are in it, and when the system refuses.
    pub(super) fn empty(&self, other: &str) -> Result<()> {
        let is_ours = MARKS.iter().any(|mark| self.work.join(mark).is_file());
        if !is_ours && !listed(&self.work)?.iter().all(|path| is_mark(path)) {
            let reason =
                format!("is where unfinished work goes, and holds something else: move it away, or choose {other}");
            return Err(Error::bad_file(&self.work, reason));
        }
        self.sweep()?;
        fs::create_dir_all(&self.work).map_err(Error::io(&self.work, "create"))
    }

    /// Removes the working folder. A mark is the first that comes, in a file beside its own, and the last that goes;
    /// the one that tells what was asked for goes after all others.
    fn sweep(&self) -> Result<()> {
        let (mut marks, others): (Vec<_>, Vec<_>) = listed(&self.work)?.into_iter().partition(|path| is_mark(path));
        marks.sort_by_key(|path| whole_name(&name(path)) == ANEW);
        for path in others.iter().chain(&marks) {
            if path.is_dir() { remove_folder(path)? } else { remove(path)? }
        }
        remove_folder(&self.work)
    }

    /// Everything in the working folder is whole, with so many bytes of rows, and takes its place, the file `last`, one
    /// of them, last: `task` is what was asked for, by which the same command knows it again ([`Unfinished::end`]).
    ///
    /// # Errors
    /// When the system refuses; whoever writes to the folder next goes on from there.
    pub fn finish(self, last: &str, (task, bytes): (&str, u64)) -> Result<()> {
        write_file(&self.work.join(ANEW), format!("{bytes}\n{last}\n{VERSION}\n{task}").as_bytes())?;
        let mut written = Vec::new();
        for path in listed(&self.work)?.into_iter().filter(|path| !is_mark(path)) {
            if path.is_dir() {
                let within = listed(&path)?;
                written.extend(within.iter().map(|file| format!("{}/{}", name(&path), name(file))));
            } else {
                written.push(name(&path).into_owned());
            }
        }
        self.replace(Vec::new(), written, last)
    }

    /// These files of the working folder are whole: they take the place of the `old` ones, the file `last` last.
    ///
    /// # Errors
    /// As [`Unfinished::finish`].
    pub(super) fn replace(&self, mut old: Vec<String>, mut new: Vec<String>, last: &str) -> Result<()> {
        // The first that goes and the last that comes: nobody reads old and new together.
        new.sort_by_key(|name| name == last);
        let replaced: HashSet<&String> = new.iter().filter(|name| *name != last).collect();
        old.retain(|name| !replaced.contains(name));
        old.sort_by_key(|name| name != last);
        let text = serde_json::to_string(&Move { old, new }).expect("plain data is JSON");
        write_file(&self.work.join(MOVING), text.as_bytes())?;
        self.move_out()
    }

    /// Moves what is whole into its place: as often as it is called, whatever was moved before.
    ///
    /// # Errors
    /// When the system refuses, and when another version of octorec has written what moves.
    pub(super) fn move_out(&self) -> Result<()> {
        let list = self.work.join(MOVING);
        let text = fs::read_to_string(&list).map_err(Error::io(&list, "read"))?;
        let Some(Move { old, new }) = Move::parse(&text) else {
            let reason = "is no list of what moves that this octorec has written: finish with the version that began, or \
                          move the folder that it is in away";
            return Err(Error::bad_file(list, reason));
        };
        if new.last().is_some_and(|last| self.work.join(last).exists()) {
            if !has_mark(&self.work) {
                let reason =
                    "lists what moves, but no octorec has begun anything beside it: move the folder that it is in away";
                return Err(Error::bad_file(list, reason));
            }
            refuse_foreign(&self.work, &new)?;
            // A link in a file's own place is replaced itself.
            refuse_foreign(&self.folder, old.iter().chain(&new).filter_map(|name| Path::new(name).parent()))?;
            old.iter().try_for_each(|name| remove(&self.folder.join(name)))?;
            let mut folders = BTreeSet::new();
            let flush = |folder: &PathBuf| {
                File::open(folder).and_then(|open| open.sync_all()).map_err(Error::io(folder, "write"))
            };
            for name in new.iter().filter(|name| self.work.join(name).exists()) {
                let (from, to) = (self.work.join(name), self.folder.join(name));
                let folder = to.parent().unwrap_or(&self.folder).to_owned();
                fs::create_dir_all(&folder).map_err(Error::io(&folder, "create"))?;
                if new.last() == Some(name) {
                    // It says that all others are there: so they must be, whatever a machine that fails has lost.
                    folders.iter().try_for_each(flush)?;
                }
                fs::rename(&from, &to).map_err(|error| match error.kind() {
                    ErrorKind::CrossesDevices => {
                        let reason = "lies on another file system than its folder's other files, so that it cannot take its \
                                      place at once";
                        let remedy = format!("{reason}: move {} there, then give the same command again", from.display());
                        Error::bad_file(&to, remedy)
                    }
                    _ => Error::io(&to, "create")(error),
                })?;
                folders.insert(folder);
            }
            folders.iter().try_for_each(flush)?;
        }
        self.sweep()
    }
}

impl Drop for Unfinished {
    fn drop(&mut self) {
        if !self.anew {
            return;
        }
        if self.work.join(ANEW).exists() && !is_moving(&self.folder) {
            // If this fails, whoever writes next does it.
            let _ = self.sweep();
        }
        self.lock.remove_if_new(&self.folder);
    }
}

/// Refuses to read a folder of which only a part of what belongs there has its place, and what belongs to such a part:
/// a file, or a folder of files.
///
/// # Errors
/// That names it.
pub(super) fn refuse_moving(path: &Path) -> Result<()> {
    let named = std::path::absolute(path).map_err(Error::io(path, "open"))?;
    // Where links lead; what is not there is told by whoever opens it.
    let real = fs::canonicalize(path).unwrap_or_else(|_| named.clone());
    // What moves lies in the folder, or in one within it.
    let moving = |whole: &Path| {
        let folder = whole.ancestors().take(3).find(|folder| moves(folder, whole))?;
        Some((folder.to_owned(), folder == whole))
    };
    let Some((folder, is_whole)) = moving(&named).or_else(|| moving(&real)) else { return Ok(()) };
    let what = match is_whole {
        true => "holds the beginning of what moves into its place".to_owned(),
        false => format!("is a part of what moves into its place in {}", folder.display()),
    };
    let reason = format!(
        "{what}, by somebody who was killed or goes on: wait, or give the same command again, which moves the rest"
    );
    Err(Error::bad_file(path, reason))
}

/// Whether something is on its way into its place in this folder that is at `path`, or within that; or whatever it is,
/// where nobody can tell. A list that stands there without a mark is somebody's own, which tells nothing of what lies
/// beside its folder.
fn moves(folder: &Path, path: &Path) -> bool {
    let Some(within) = path.strip_prefix(folder).ok().filter(|_| is_moving(folder)) else { return false };
    let work = folder.join(WORK);
    let list = fs::read_to_string(work.join(MOVING)).unwrap_or_default();
    match Move::parse(&list) {
        Some(Move { old, new }) => old.iter().chain(&new).any(|name| Path::new(name).starts_with(within)),
        None => folder == path || has_mark(&work),
    }
}

/// Whether a working folder is marked as octorec's own, by more than a list.
fn has_mark(work: &Path) -> bool {
    [JOURNAL, ANEW].iter().any(|mark| work.join(mark).is_file())
}

/// What a working folder tells of work at this `task` that is whole: the bytes of its rows, and the file that moves
/// last.
fn finished(work: &Path, task: &str) -> Option<(u64, String)> {
    let said = input::read_text(&work.join(ANEW)).ok()?;
    let mut parts = said.splitn(4, '\n');
    let (bytes, last) = (parts.next()?.parse().ok()?, parts.next()?);
    (parts.next() == Some(VERSION) && parts.next() == Some(task)).then(|| (bytes, last.to_owned()))
}

/// Whether something is on its way into its place in this folder; nobody does it any more where its lock is free.
pub(super) fn is_moving(folder: &Path) -> bool {
    folder.join(WORK).join(MOVING).is_file()
}

/// Whether a file of the working folder is a mark, whole or not.
fn is_mark(path: &Path) -> bool {
    path.is_file() && MARKS.contains(&whole_name(&name(path)))
}

/// The name of a file.
pub(super) fn name(path: &Path) -> Cow<'_, str> {
    path.file_name().unwrap_or_default().to_string_lossy()
}

/// What lies in a folder; nothing if there is none.
///
/// # Errors
/// When it cannot be read.
pub(super) fn listed(folder: &Path) -> Result<Vec<PathBuf>> {
    if folder.is_dir() { memory::listed(folder, "read") } else { Ok(Vec::new()) }
}

/// Removes a file that may be absent.
///
/// # Errors
/// When the system refuses.
pub(super) fn remove(path: &Path) -> Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != ErrorKind::NotFound => Err(Error::io(path, "remove")(error)),
        _ => Ok(()),
    }
}

fn remove_folder(path: &Path) -> Result<()> {
    if path.is_dir() { fs::remove_dir_all(path).map_err(Error::io(path, "remove")) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Writes `texts` into the working folder, the last one last.
    fn write(unfinished: &Unfinished, texts: &[(&str, &str)]) {
        for (name, text) in texts {
            let path = unfinished.work().join(name);
            make_folder(path.parent().unwrap()).unwrap();
            write_file(&path, text.as_bytes()).unwrap();
        }
    }

    fn names(folder: &Path) -> Vec<String> {
        listed(folder).unwrap().iter().map(|path| name(path).into_owned()).collect()
    }

    #[test]
    fn whoever_comes_next_ends_what_was_moving() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        let begin = || Unfinished::begin(folder.path(), || Ok(()));
        ["a", "old", "whole"].iter().for_each(|name| fs::write(at(name), "old").unwrap());
        fs::create_dir_all(at("within/b/mine")).unwrap();
        let unfinished = begin().unwrap();
        assert!(matches!(begin(), Err(Error::OutputBusy { .. })));
        write(&unfinished, &[("a", "new"), ("whole", "new"), ("within/b", "new"), ("z", "new"), ("scrap", "")]);
        let list = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
        let (old, new) = (list(&["a", "old", "whole"]), list(&["a", "whole", "within/b", "z"]));
        let message = unfinished.replace(old, new, "whole").unwrap_err().to_string();
        assert!(message.contains("within/b: cannot create"), "{message}");
        drop(unfinished);
        // The last one is the first that has gone.
        assert_eq!(names(folder.path()), ["a", "unfinished", "within"]);
        let refused = |name: &str| refuse_moving(&at(name)).err().map(|error| error.to_string());
        assert!(refused("").unwrap().contains("holds the beginning of what moves into its place, by somebody"));
        for name in ["a", "old", "whole", "within", "within/b"] {
            let told = format!("{name}: is a part of what moves into its place in {}, by", folder.path().display());
            assert!(refused(name).unwrap().contains(&told), "{name}");
        }
        assert!(["mine", "within/mine", "within/b/mine/own"].iter().all(|name| refused(name).is_none()));
        fs::remove_dir_all(at("within/b")).unwrap();
        let seen = Unfinished::begin(folder.path(), || {
            let found = ["a", "whole", "within/b", "z"].map(|name| fs::read_to_string(at(name)).unwrap());
            assert_eq!(found, ["new"; 4]);
            Err(Error::bad_file(folder.path(), "seen"))
        });
        assert!(seen.unwrap_err().to_string().contains("seen"));
        assert_eq!(names(folder.path()), ["a", "whole", "within", "z"]);
    }

    #[test]
    fn what_a_killed_command_had_finished_is_taken_by_that_command_alone() {
        let folder = tempfile::tempdir().unwrap();
        let begin = || Unfinished::begin(folder.path(), || Ok(()));
        let end = |task: &str| Unfinished::end(folder.path(), task);
        assert_eq!(end("it\nall").unwrap(), None);
        let unfinished = begin().unwrap();
        write(&unfinished, &[("a", "text"), ("whole", "text")]);
        fs::create_dir_all(folder.path().join("a/mine")).unwrap();
        unfinished.finish("whole", ("it\nall", 8)).unwrap_err();
        fs::remove_dir_all(folder.path().join("a")).unwrap();
        assert_eq!(end("another").unwrap(), None);
        assert_eq!(names(folder.path()), [WORK], "whoever asks for another changes nothing");
        assert_eq!(end("it\nall").unwrap(), Some(8));
        assert_eq!(names(folder.path()), ["a", "whole"]);
        assert_eq!(end("it\nall").unwrap(), None, "it is whole");
        // Killed behind that, before the last mark went; and, of another attempt, before anything moved.
        let work = folder.path().join(WORK);
        for (last, found) in [("whole", Some(8)), ("b", None)] {
            fs::create_dir(&work).unwrap();
            fs::write(work.join(ANEW), format!("8\n{last}\n{VERSION}\nit\nall")).unwrap();
            assert_eq!(end("another").unwrap(), None);
            assert_eq!(end("it\nall").unwrap(), found);
            assert_eq!(names(folder.path()), ["a", "whole"]);
        }
        // Another version may write other files.
        fs::create_dir(&work).unwrap();
        fs::write(work.join(ANEW), "8\nwhole\n0.0.0-other\nit\nall").unwrap();
        assert_eq!(end("it\nall").unwrap(), None);
    }

    #[test]
    fn what_moves_is_found_through_links_and_somebodys_own_list_moves_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        fs::create_dir_all(at("data/unfinished")).unwrap();
        ["data/a", "mine"].iter().for_each(|name| fs::write(at(name), "text").unwrap());
        fs::write(at("data/unfinished/moving"), r#"{"old": [], "new": ["a", "whole"]}"#).unwrap();
        std::os::unix::fs::symlink("data/a", at("latest")).unwrap();
        let told = refuse_moving(&at("latest")).unwrap_err().to_string();
        assert!(told.contains("latest: is a part of what moves into its place in "), "{told}");
        // A file, and a folder, that are called as the list is.
        fs::create_dir(at("unfinished")).unwrap();
        fs::write(at("unfinished/moving"), "to another town").unwrap();
        refuse_moving(&at("mine")).unwrap();
        refuse_moving(folder.path()).unwrap_err();
        fs::write(at("unfinished").join(ANEW), "").unwrap();
        refuse_moving(&at("mine")).unwrap_err();
        fs::remove_dir_all(at("unfinished")).unwrap();
        fs::create_dir_all(at("unfinished/moving/boxes")).unwrap();
        refuse_moving(folder.path()).unwrap();
        let told = Unfinished::begin(folder.path(), || Ok(())).unwrap_err().to_string();
        assert!(told.contains("holds something else") && at("unfinished/moving/boxes").exists(), "{told}");
    }

    #[test]
    fn what_is_dropped_or_killed_goes_and_what_is_somebodys_stays() {
        let folder = tempfile::tempdir().unwrap();
        let work = folder.path().join(WORK);
        let begin = || Unfinished::begin(folder.path(), || Ok(()));
        let unfinished = begin().unwrap();
        write(&unfinished, &[("within/a", "text")]);
        drop(unfinished);
        assert_eq!(names(folder.path()), [""; 0]);
        // Killed before its mark was whole, and behind that.
        for left in [&["..octorec-anew.octorec-partial"][..], &[ANEW, "a", ".b.octorec-partial"]] {
            fs::create_dir(&work).unwrap();
            left.iter().for_each(|name| fs::write(work.join(name), "").unwrap());
            let unfinished = begin().unwrap();
            assert_eq!(names(&work), [ANEW]);
            write(&unfinished, &[("b", "text"), ("within/a", "text")]);
            unfinished.finish("b", ("", 0)).unwrap();
            assert_eq!(names(folder.path()), ["b", "within"]);
        }
        fs::create_dir(&work).unwrap();
        for (name, reason) in [
            ("notes", "holds something else: move it away, or choose another directory"),
            (JOURNAL, "holds what `octorec preprocess` has begun"),
            (MOVING, "is no list of what moves"),
        ] {
            fs::write(work.join(name), r#"{"old": ["../b"], "new": []}"#).unwrap();
            let message = begin().unwrap_err().to_string();
            assert!(message.contains(reason), "{message}");
        }
        assert_eq!(names(&work), [JOURNAL, MOVING, "notes"]);
        assert_eq!(names(folder.path()), ["b", WORK, "within"]);
    }
}
