//! Whether a text file begins with the names of its columns, and what separates them.
//!
//! Names of files do not tell: `.tsv` and `.txt` are Criteo's logs as well as tables with a header, and RecBole's
//! `.inter` is one. A header is a line of names, none of them blank or a number, and most lines behind it have as many
//! fields. Sentences have that, too, where blanks or commas separate their words, of which some come twice: names that
//! do, which whoever reads the columns refuses, are a header between other separators alone.

use std::collections::HashSet;
use std::fs::File;
use std::io::Read;
use std::path::Path;

use super::label::finite;
use super::records::{Record, Splitter};
use super::row::is_named;
use super::{TextSchema, bad, listed};
use crate::base::Result;
use crate::data::Labels;
use crate::data::text::{LONGEST, Wanted, decoded, is_object, is_parquet_at, without_end, without_mark};
use crate::data::tsv::Layout;

/// What separates columns in the field's data sets; the last is Hive's default.
const DELIMITERS: [char; 6] = [',', '\t', ';', '|', ' ', '\u{1}'];
/// Fields of a line of Criteo's logs.
const CRITEO: usize = Layout::criteo(Labels::Required, LONGEST).columns();
/// Lines behind the header that are looked at.
const LINES: usize = 20;

/// What the first lines of a text file tell.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Header {
    /// What separates columns.
    pub delimiter: char,
    /// The fields of its first line.
    pub names: Vec<String>,
}

/// The kind of a column that RecBole's headers state: `item_id:token`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stated {
    /// A category.
    Token,
    /// Categories, separated by blanks.
    Tokens,
    /// A number.
    Float,
    /// Numbers, separated by blanks.
    Floats,
}

/// A column's name without the kind that RecBole's headers state, and that kind.
#[must_use]
pub fn stated(name: &str) -> (&str, Option<Stated>) {
    let kinds = [
        (":token", Stated::Token),
        (":token_seq", Stated::Tokens),
        (":float", Stated::Float),
        (":float_seq", Stated::Floats),
    ];
    let found = kinds.into_iter().find_map(|(ending, kind)| Some((name.strip_suffix(ending)?, Some(kind))));
    found.filter(|(bare, _)| !bare.is_empty()).unwrap_or((name, None))
}

/// The header of a text file, plain or compressed; nothing where its first line is none, or it is no text.
#[must_use]
pub fn header(path: &Path) -> Option<Header> {
    let lines = first_lines(path)?;
    if lines.first().is_some_and(|line| is_object(line)) {
        // Whoever reads it as rows tells what it is.
        return None;
    }
    let found = split(&lines)?;
    let text = |name: &String| !name.trim().is_empty() && !name.chars().any(char::is_control);
    let named = found.names.iter().all(|name| text(name) && finite(name.as_bytes()).is_none());
    let different: HashSet<&str> = found.names.iter().map(String::as_str).collect();
    let prose = [' ', ','].contains(&found.delimiter) && different.len() < found.names.len();
    (found.names.len() > 1 && named && !prose).then_some(found)
}

/// Whether a text file begins as a table does: with a row of Criteo's log, or a header and a row of as many fields.
#[must_use]
pub fn is_table(path: &Path) -> bool {
    let lines = first_lines(path).unwrap_or_default();
    // Kaggle's tests have no label.
    let is_log =
        |line: &Vec<u8>| [CRITEO - 1, CRITEO].contains(&(line.iter().filter(|byte| **byte == b'\t').count() + 1));
    let is_row = |line: &Vec<u8>, header: &Header| {
        let mut record = Record::default();
        Splitter::new(header.delimiter).split(line, &mut record) && record.len() == header.names.len()
    };
    lines.first().is_some_and(is_log)
        || lines.get(1).is_some_and(|line| header(path).is_some_and(|header| is_row(line, &header)))
}

/// What separates the columns of a text file, whatever its first line is; a comma where nothing tells.
#[must_use]
pub fn delimiter(path: &Path) -> char {
    if is_parquet_at(path) {
        return ',';
    }
    first_lines(path).and_then(|lines| split(&lines)).map_or(',', |header| header.delimiter)
}

/// What to do where a line that one delimiter has left whole falls into the parts that are wanted by another one;
/// `kept` is that of a schema that a trained model keeps.
pub(super) fn separated(line: &[u8], kept: Option<char>, is_wanted: impl Fn(&[&[u8]]) -> bool) -> Option<String> {
    fn unquoted(part: &[u8]) -> &[u8] {
        part.strip_prefix(b"\"").and_then(|part| part.strip_suffix(b"\"")).unwrap_or(part)
    }
    let fits = |delimiter: &char| {
        let parts: Vec<_> = line.split(|byte| *byte == *delimiter as u8).map(unquoted).collect();
        parts.len() > 1 && is_wanted(&parts)
    };
    let delimiter = DELIMITERS.into_iter().find(fits)?;
    let name = match delimiter {
        ',' => "commas",
        '\t' => "tabs",
        ';' => "semicolons",
        '|' => "bars",
        ' ' => "blanks",
        _ => "Hive's default",
    };
    let written = |delimiter: char| toml::Value::String(delimiter.to_string());
    Some(match kept {
        None => format!("the line looks separated by {name}: say delimiter = {} in the schema", written(delimiter)),
        Some(own) => format!(
            "the line looks separated by {name}, and this model's own schema has delimiter = {}: write the file with that",
            written(own)
        ),
    })
}

/// Refuses the first line of a text as names of columns where none that the schema reads is there, and it is a row, or
/// where one is not there and the line has, by a schema that a trained model keeps, another delimiter. A name may be
/// blank, as that of the index that pandas writes.
///
/// # Errors
/// [`Error::BadFile`](crate::base::Error::BadFile) with what to do.
pub(in crate::data) fn check_header(path: &Path, schema: &TextSchema, names: &[Vec<u8>], kept: bool) -> Result<()> {
    let dense = schema.dense.iter().filter(|column| !column.weighs).map(|column| &*column.column);
    let wanted: Vec<&str> = dense.chain(schema.categorical.iter().map(|column| &*column.column)).collect();
    let is_there = |name: &&str| names.iter().any(|found| is_named(found, name));
    let Some(&missing) = wanted.iter().find(|name| !is_there(name)) else { return Ok(()) };
    if !schema.columns.is_empty() {
        return Ok(());
    }
    if let ([line], true) = (names, kept)
        && let Some(advice) = separated(line, Some(schema.delimiter), |parts| parts.contains(&missing.as_bytes()))
    {
        return Err(bad(path, format!("has no column {missing}: {advice}")));
    }
    // One that is misspelt leaves the others.
    if wanted.iter().any(is_there) || names.iter().all(|name| finite(name).is_none()) {
        return Ok(());
    }
    let remedy = match kept {
        true => "put the line of names before it that the model's data begin with",
        false => "put a line of names before it, or list them in the schema (columns = [..])",
    };
    let names: Vec<_> = names.iter().map(|name| String::from_utf8_lossy(name)).collect();
    let line = listed(names.iter().map(|name| &**name));
    let reason = format!(
        "has no column {missing}, and its first line ({line}) looks like a row, not like the names of columns: {remedy}"
    );
    Err(bad(path, reason))
}

/// The first lines of a file; nothing where it is no regular file, or cannot be read. Empty lines are left out.
fn first_lines(path: &Path) -> Option<Vec<Vec<u8>>> {
    // Whoever opens a pipe to look at it takes from it what its reader wants.
    if !std::fs::metadata(path).ok()?.is_file() {
        return None;
    }
    let (text, _) = decoded(File::open(path).ok()?, path, Wanted::Names).ok()?;
    let mut some = Vec::new();
    text.take(LONGEST as u64).read_to_end(&mut some).ok()?;
    let whole = some.len() < LONGEST;
    let text = without_mark(&some);
    let mut lines: Vec<&[u8]> = text.split(|&byte| byte == b'\n').collect();
    if !whole {
        // It goes on behind what was read.
        lines.pop();
    }
    let lines = lines.into_iter().map(without_end);
    Some(lines.filter(|line| !line.is_empty()).take(LINES + 1).map(<[u8]>::to_vec).collect())
}

/// The separator with which most lines have as many fields as the first, and more than one; the one that gives more
/// fields, where that is a tie.
fn split(lines: &[Vec<u8>]) -> Option<Header> {
    let (first, behind) = lines.split_first()?;
    let candidate = |delimiter: char| {
        let (mut splitter, mut record) = (Splitter::new(delimiter), Record::default());
        if !splitter.split(first, &mut record) || record.len() < 2 {
            return None;
        }
        let names: Option<Vec<String>> = record.iter().map(|name| String::from_utf8(name.to_vec()).ok()).collect();
        let names = names?;
        let alike =
            behind.iter().filter(|line| splitter.split(line, &mut record) && record.len() == names.len()).count();
        (2 * alike >= behind.len()).then_some((alike, Header { delimiter, names }))
    };
    // The first of equals: `max_by_key` would take the last.
    let all = DELIMITERS.into_iter().rev().filter_map(candidate);
    all.max_by_key(|(alike, header)| (*alike, header.names.len())).map(|(_, header)| header)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(text: &str) -> Option<(char, usize)> {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), text).unwrap();
        header(file.path()).map(|header| (header.delimiter, header.names.len()))
    }

    #[test]
    fn headers_are_told_from_rows_and_prose() {
        assert_eq!(found("label,user\n1,a\n0,b\n"), Some((',', 2)));
        assert_eq!(found("\u{feff}label\tuser id\tprice\r\n1\ta, b\t2\r\n"), Some(('\t', 3)));
        assert_eq!(found("user_id:token\titem_id:token\trating:float\n1\t2\t3.0\n"), Some(('\t', 3)));
        assert_eq!(found("label;price;name\n1;2,5;\"a;b\"\n0;3,5;c\n"), Some((';', 3)));
        assert_eq!(found("label|price\n1|2\n"), Some(('|', 2)));
        assert_eq!(found("label price\n1 2\n"), Some((' ', 2)));
        assert_eq!(found("click\u{1}user\n1\u{1}2\n"), Some(('\u{1}', 2)));
        assert_eq!(found("label,user\n"), Some((',', 2)), "a header alone");
        assert_eq!(found("label\tuser\tuser\n1\ta\tb\n"), Some(('\t', 3)), "names that come twice");
        // One malformed line of several does not hide it.
        assert_eq!(found("label,user\n1\n1,a\n0,b\n"), Some((',', 2)));
        for none in [
            "",
            "label\n1\n",
            "1\t2\t3\t0000000a\n",
            "\t\tabc\tdef\n\t\tabc\tdef\n",
            "u1,i2,4,buy\nu2,i3,4,pv\n",
            "a,a\n1,2\n",
            "It was the best of times, it was\nthe worst of times. It was the age\nof wisdom\n",
            "a,\u{7f}b\n1,2\n",
            "{\"label\":1,\"user\":\"a\"}\n{\"label\":0,\"user\":\"b\"}\n",
        ] {
            assert_eq!(found(none), None, "{none:?}");
        }
    }

    #[test]
    fn kinds_are_stated_behind_names() {
        assert_eq!(stated("item_id:token"), ("item_id", Some(Stated::Token)));
        assert_eq!(stated("genres:token_seq"), ("genres", Some(Stated::Tokens)));
        assert_eq!(stated("rating:float"), ("rating", Some(Stated::Float)));
        assert_eq!(stated("vector:float_seq"), ("vector", Some(Stated::Floats)));
        for plain in ["rating", ":float", "a:b"] {
            assert_eq!(stated(plain), (plain, None));
        }
    }
}
