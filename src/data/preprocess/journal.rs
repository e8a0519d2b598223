//! What a run was asked for, kept beside what it has finished, so that the same command goes on where it was killed.
//!
//! Everything finished is a file that has its name only when it is whole; the journal tells whether those files are of
//! this run. It holds what the bytes depend on, and nothing else: another number of threads or another `--memory` may
//! finish a run.

use std::ffi::OsString;
use std::fs;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};
use std::time::UNIX_EPOCH;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::Options;
use super::pieces::Input;
use crate::base::config::OnBadRow;
use crate::base::{Error, Result};
use crate::data::unfinished::JOURNAL;
use crate::memory::write_file;

/// What a run's bytes depend on.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct Journal {
    pub(super) version: u32,
    #[serde(flatten)]
    pub(super) options: Options,
    /// What tells the values of the vocabulary from others: it may lie in the same place and be another one by now.
    /// Nothing without one, and while it has not been looked at.
    pub(super) known: Option<String>,
    pub(super) inputs: Vec<Stamp>,
    /// Sizes of what lies in the working folder: those of the first attempt are kept.
    pub(super) work: WorkSizes,
}

/// How the work is cut; the result does not depend on it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct WorkSizes {
    pub(super) piece_bytes: u64,
    pub(super) run_rows: u64,
}

/// A path, which need not be UTF-8.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "Written", into = "Written")]
pub(super) struct Place(pub(super) PathBuf);

/// The same of one that may be missing, for a field of [`Options`].
pub(super) mod place {
    use std::path::PathBuf;

    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    use super::Place;

    pub fn serialize<S: Serializer>(path: &Option<PathBuf>, to: S) -> Result<S::Ok, S::Error> {
        path.clone().map(Place).serialize(to)
    }

    pub fn deserialize<'a, D: Deserializer<'a>>(from: D) -> Result<Option<PathBuf>, D::Error> {
        Ok(Option::<Place>::deserialize(from)?.map(|Place(path)| path))
    }
}

/// As JSON has a path: text, or else its bytes.
#[derive(Serialize, Deserialize)]
#[serde(untagged)]
enum Written {
    Text(String),
    Bytes(Vec<u8>),
}

impl From<Place> for Written {
    fn from(Place(path): Place) -> Self {
        path.into_os_string().into_string().map_or_else(|bytes| Self::Bytes(bytes.into_vec()), Self::Text)
    }
}

impl From<Written> for Place {
    fn from(written: Written) -> Self {
        Self(match written {
            Written::Text(text) => text.into(),
            Written::Bytes(bytes) => OsString::from_vec(bytes).into(),
        })
    }
}

/// An input as it was found.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Stamp {
    pub(super) path: Place,
    pub(super) bytes: u64,
    modified_ns: u64,
}

impl Stamp {
    pub(super) fn of(input: &Input) -> Result<Self> {
        let data =
            fs::metadata(&input.path).and_then(|data| data.modified()).map_err(Error::io(&input.path, "open"))?;
        let since = data.duration_since(UNIX_EPOCH).unwrap_or_default();
        // Nanoseconds in 64 bits last until the year 2554.
        Ok(Self { path: Place(input.path.clone()), bytes: input.bytes, modified_ns: since.as_nanos() as u64 })
    }
}

/// What an earlier attempt left.
pub(super) enum Earlier {
    /// Nothing.
    None,
    /// Everything finished is of use, but for the parts of these inputs, which have changed since or are judged
    /// otherwise.
    Same { work: WorkSizes, changed: Vec<usize> },
}

impl Journal {
    fn path(work: &Path) -> PathBuf {
        work.join(JOURNAL)
    }

    /// Compares with what an earlier attempt was asked for.
    ///
    /// # Errors
    /// When that was something else.
    pub(super) fn compare(&self, work: &Path) -> Result<Earlier> {
        let path = Self::path(work);
        let Ok(text) = fs::read_to_string(&path) else { return Ok(Earlier::None) };
        let bad = |reason: String| Error::bad_file(path.clone(), reason);
        let ways = "finish that run with its own options, replace it with --force, or choose another --out";
        let earlier: Self = serde_json::from_str(&text)
            .map_err(|error| bad(format!("is no journal of this octorec ({error}): {ways}")))?;
        if earlier.version != self.version {
            let reason = "is of a run that another version of octorec began: finish it with that one, replace it with \
                          --force, or choose another --out";
            return Err(bad(reason.to_owned()));
        }
        if let Some(what) = self.difference(&earlier) {
            return Err(bad(format!("an unfinished run has {what}: {ways}")));
        }
        let (mine, theirs) = (&self.options, &earlier.options);
        let alike = (mine.on_bad_row, mine.max_line) == (theirs.on_bad_row, theirs.max_line)
            || theirs.on_bad_row == OnBadRow::Fail && mine.max_line >= theirs.max_line;
        let changed = (0..self.inputs.len()).filter(|&at| !alike || self.inputs[at] != earlier.inputs[at]).collect();
        Ok(Earlier::Same { work: earlier.work, changed })
    }

    fn difference(&self, earlier: &Self) -> Option<String> {
        let paths = |journal: &Self| journal.inputs.iter().map(|stamp| stamp.path.clone()).collect::<Vec<_>>();
        let json = |journal: &Self| match serde_json::to_value(journal).expect("plain data is JSON") {
            Value::Object(fields) => fields,
            _ => unreachable!("a structure is an object"),
        };
        let (mine, theirs) = (json(self), json(earlier));
        let may_differ = |name: &str| {
            matches!(name, "inputs" | "work" | "on_bad_row" | "max_line") || name == "known" && self.known.is_none()
        };
        let other = mine.iter().find(|(name, value)| !may_differ(name) && theirs.get(&name[..]) != Some(value));
        match (other, &self.options.vocabulary) {
            (Some((name, _)), Some(folder)) if name == "known" => {
                let folder = folder.display();
                Some(format!("begun with another vocabulary than the one that {folder} has now (put that back)"))
            }
            (Some((name, value)), _) => {
                let theirs = theirs.get(name).cloned().unwrap_or_default();
                Some(first_difference(name.clone(), &theirs, value))
            }
            (None, _) if paths(self) != paths(earlier) => Some("other input files".to_owned()),
            (None, _) => None,
        }
    }

    pub(super) fn write(&self, work: &Path) -> Result<()> {
        let text = serde_json::to_string_pretty(self).expect("plain data is JSON");
        write_file(&Self::path(work), text.as_bytes())
    }
}

/// Where two values of a key differ first, and how.
fn first_difference(key: String, theirs: &Value, mine: &Value) -> String {
    let inner = match (theirs, mine) {
        (Value::Object(theirs), Value::Object(mine)) if theirs.len() == mine.len() => {
            let mut pairs =
                mine.iter().filter_map(|(name, mine)| Some((format!("{key}.{name}"), theirs.get(name)?, mine)));
            pairs.find(|(_, theirs, mine)| theirs != mine)
        }
        (Value::Array(theirs), Value::Array(mine)) if theirs.len() == mine.len() => {
            let mut pairs = (0..).zip(theirs.iter().zip(mine)).map(|(at, (a, b))| (format!("{key}[{at}]"), a, b));
            pairs.find(|(_, theirs, mine)| theirs != mine)
        }
        _ => None,
    };
    match inner {
        Some((key, theirs, mine)) => first_difference(key, theirs, mine),
        None => format!("{key} = {theirs} instead of {mine}"),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::data::preprocess::Recipe;

    #[test]
    fn a_journal_has_what_the_bytes_depend_on_and_nothing_else() {
        let options = Options::new(Recipe::CriteoKaggle, vec!["log".into()], "out".into());
        let work = WorkSizes { piece_bytes: 1, run_rows: 2 };
        let journal = Journal { version: 1, options, known: None, inputs: Vec::new(), work };
        let written = serde_json::to_value(&journal).unwrap();
        let mut keys: Vec<_> = written.as_object().unwrap().keys().map(String::as_str).collect();
        keys.sort_unstable();
        let of_bytes = "codec days file_rows grow inputs known max_line min_count on_bad_row recipe seed shuffle split version \
                        vocabulary work";
        assert_eq!(keys.join(" "), of_bytes);
        let read: Journal = serde_json::from_value(written).unwrap();
        assert_eq!((read.difference(&journal), read.options.inputs.len(), read.options.memory), (None, 0, 0));
    }

    #[test]
    fn what_differs_is_named_by_its_key_alone() {
        let recipe =
            |float: bool| json!({"table": {"dense": [{"column": "age"}, {"column": "price", "float": float}]}});
        let told = first_difference("recipe".to_owned(), &recipe(false), &recipe(true));
        assert_eq!(told, "recipe.table.dense[1].float = false instead of true");
        assert_eq!(first_difference("rows".to_owned(), &json!([1]), &json!([1, 2])), "rows = [1] instead of [1,2]");
    }
}
