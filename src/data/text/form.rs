//! Lines that are written otherwise than rows of text: objects of JSON, and lines that end with CR alone.
//!
//! The first row of a text shows it. One such row before a good one is malformed, and no more: all that is told then is
//! what every malformed row tells. Where the next one is no row either, all are written so, and what they are is told.

use std::path::Path;

use super::line_feeds;
use crate::base::{Error, Reason, Result};

/// What is said of lines that are objects.
const OBJECTS: &str = "holds objects of JSON, a line each, which only `predict --data - --format json` reads, as they arrive: write \
                       it as CSV or Parquet (pandas: read_json(FILE, lines=True).to_csv(NEW, index=False))";

/// Whether a line is an object of JSON.
#[must_use]
pub fn is_object(line: &[u8]) -> bool {
    line.trim_ascii_start().starts_with(b"{") && serde_json::from_slice::<serde::de::IgnoredAny>(line).is_ok()
}

/// Whether a CR stands alone in a field; one in quotes may go over several lines.
fn has_lone_cr(field: &[u8]) -> bool {
    field.split(|&byte| byte == b'\r').skip(1).any(|behind| behind.first() != Some(&b'\n'))
}

/// What a row shows of how the lines of its text are written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Shown {
    /// It has as many fields as a row, and nothing that a row has not.
    Row,
    /// Neither a row nor anything else.
    Nothing,
    /// Lines are written so, otherwise than rows of text.
    Other(String),
}

impl Shown {
    /// What a row of the text at `path` shows, whose `line` it is if it has one of its own; in a row that `fits`,
    /// having as many fields as there are columns, a quoted field may have any character.
    pub fn by<'a>(path: &Path, line: Option<&[u8]>, fits: bool, fields: impl IntoIterator<Item = &'a [u8]>) -> Self {
        if line.is_some_and(is_object) {
            return Self::Other(OBJECTS.to_owned());
        }
        if fits {
            return Self::Row;
        }
        let command = fields.into_iter().any(has_lone_cr).then(|| line_feeds(path)).flatten();
        command.map_or(Self::Nothing, |command| {
            Self::Other(format!("has lines that end with CR alone: make line feeds of them (`{command}`)"))
        })
    }
}

/// How the lines of a text are written, as its first rows show one by one.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum Form {
    /// No row was read.
    #[default]
    Unknown,
    /// The first one shows that they are written otherwise than rows of text, as is said here.
    Doubted(String),
    /// As rows of text: nothing else is to be looked for.
    Rows,
}

impl Form {
    /// Whether more rows are wanted to tell.
    #[must_use]
    pub fn is_open(&self) -> bool {
        *self != Self::Rows
    }

    /// Takes what the next row shows, nothing at the text's end; what is wrong with a row that shows another form, as
    /// nobody may wait for the next one to tell.
    ///
    /// # Errors
    /// [`Error::BadFile`] where the text at `path` is written otherwise.
    pub fn take(&mut self, path: &Path, shown: Option<Shown>) -> Result<Option<Reason>> {
        match (std::mem::replace(self, Self::Rows), shown) {
            (Self::Unknown, Some(Shown::Other(reason))) => {
                *self = Self::Doubted(reason.clone());
                Ok(Some(Reason::with_remedy(reason)))
            }
            (Self::Doubted(reason), shown) if shown != Some(Shown::Row) => Err(Error::bad_file(path, reason)),
            _ => Ok(None),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What the rows of a text show, which have two fields between tabs; the error, or what is wrong with each.
    fn told(text: &str) -> std::result::Result<Vec<bool>, String> {
        let (path, mut form) = (Path::new("rows.txt"), Form::default());
        let mut wrong = Vec::new();
        for line in text.split('\n').map(str::as_bytes) {
            let fields: Vec<&[u8]> = line.split(|byte| *byte == b'\t').collect();
            let shown = Shown::by(path, Some(line), fields.len() == 2, fields);
            wrong.push(form.take(path, Some(shown)).map_err(|error| error.to_string())?.is_some());
        }
        form.take(path, None).map_err(|error| error.to_string())?;
        Ok(wrong)
    }

    #[test]
    fn a_text_is_told_by_its_first_two_rows() {
        for (text, expected) in [
            ("1\ta\n0\tb", [false, false]),
            // One before a good row is malformed.
            ("{\"a\": 1}\n0\tb", [true, false]),
            ("1\ta\r0\tb\n0\tb", [true, false]),
            // And so is one behind whatever is no object.
            ("1\ta\n{\"a\": 1}", [false, false]),
            ("x\n{\"a\": 1}", [false, false]),
            ("{no object}\n{\"a\": 1}", [false, false]),
        ] {
            assert_eq!(told(text), Ok(expected.to_vec()), "{text:?}");
        }
        for (text, expected) in [
            ("{\"a\": 1}", "rows.txt: holds objects of JSON, a line each"),
            ("{\"a\": 1}\n{\"a\": 2}\n0\tb", "rows.txt: holds objects of JSON, a line each"),
            ("{\"a\":\t1}\n{}", "rows.txt: holds objects of JSON, a line each"),
            ("{\"a\": 1}\nx", "rows.txt: holds objects of JSON, a line each"),
            ("1\ta\r0\tb\r1\tc", "rows.txt: has lines that end with CR alone"),
        ] {
            let message = told(text).unwrap_err();
            assert!(message.starts_with(expected), "{text:?}: {message}");
        }
    }
}
