//! An object of JSON becomes the fields of a row, by the names of its columns.
//!
//! Every column must be there, so that a misspelt name is told; `null` is a blank field. Lists become fields with the
//! column's separator between their values. Line ends within names and texts are those that a file has once it is read:
//! LF alone. What else an object has is of no interest.

use std::collections::HashMap;
use std::fmt;

use serde::Deserializer;
use serde::de::{DeserializeSeed, Error as _, IgnoredAny, MapAccess, Visitor};
use serde_json::value::RawValue;

use crate::data::text::with_plain_ends;

/// A column of text.
#[derive(Debug, Clone)]
pub struct Column {
    /// Its name.
    pub name: String,
    /// What separates its values, where there may be several.
    pub separator: Option<String>,
    /// What becomes of its numbers.
    pub numbers: Numbers,
    /// What `false` and `true` are as text.
    pub truths: [&'static str; 2],
}

/// What becomes of the numbers of a column.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Numbers {
    /// They are text as they stand: 18.0 is another value than 18, as it is in files of text.
    AsWritten,
    /// They are integers, also where another program writes 18.0.
    Whole,
    /// They are refused: digits would be taken for those of another base.
    Refused,
}

/// What `false` and `true` are as text, where nothing speaks for another spelling.
pub const TRUTHS: [&str; 2] = ["false", "true"];

/// The columns of objects, and the fields of the last one.
#[derive(Debug, Clone)]
pub struct Objects {
    columns: Vec<Column>,
    by_name: HashMap<String, usize>,
    fields: Vec<Vec<u8>>,
    seen: Vec<bool>,
}

impl Objects {
    /// Objects of these columns.
    pub fn new(columns: Vec<Column>) -> Self {
        let by_name = columns.iter().enumerate().map(|(at, column)| (column.name.clone(), at)).collect();
        let (fields, seen) = (vec![Vec::new(); columns.len()], vec![false; columns.len()]);
        Self { columns, by_name, fields, seen }
    }

    /// The names of the columns.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.columns.iter().map(|column| &*column.name)
    }

    /// Takes a line apart; the fields come in the order of the columns.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn read(&mut self, line: &[u8]) -> Result<&[Vec<u8>], String> {
        self.fields.iter_mut().for_each(Vec::clear);
        self.seen.fill(false);
        let mut text = serde_json::Deserializer::from_slice(line);
        let whole = Object(self).deserialize(&mut text).and_then(|()| text.end());
        whole.map_err(|error| {
            // Python's json and others write what JSON has no number for.
            let near = line.iter().skip(error.column().saturating_sub(3)).take(12).copied().collect::<Vec<_>>();
            let none =
                ["NaN", "Infinity"].into_iter().find(|word| memchr::memmem::find(&near, word.as_bytes()).is_some());
            let remedy = none.map(|word| {
                format!(
                    ": {word} is no JSON: write null, as pandas' DataFrame.to_json or simplejson with ignore_nan does"
                )
            });
            let error = error.to_string();
            // Lines are counted by whoever reads them.
            let reason = error.split(" at line 1").next().unwrap_or_default();
            format!("an object of JSON is expected: {reason}{}", remedy.unwrap_or_default())
        })?;
        match self.seen.iter().position(|seen| !seen) {
            None => Ok(&self.fields),
            Some(missing) => {
                let name = &self.columns[missing].name;
                Err(format!("the object has no {name}; where there is no value, null says so"))
            }
        }
    }
}

/// Reads an object into the fields.
struct Object<'a>(&'a mut Objects);

impl<'de> DeserializeSeed<'de> for Object<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, from: D) -> Result<(), D::Error> {
        from.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for Object<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object with the columns' names")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        let Objects { columns, by_name, fields, seen } = self.0;
        while let Some(Key(found)) = map.next_key_seed(Name(by_name))? {
            let Some(at) = found else {
                map.next_value::<IgnoredAny>()?;
                continue;
            };
            if std::mem::replace(&mut seen[at], true) {
                return Err(A::Error::custom(format_args!("{} comes twice", columns[at].name)));
            }
            // The text of a value, which tells 18.0 from 18.
            let value = map.next_value::<&'de RawValue>()?.get();
            columns[at].write(value, false, &mut fields[at]).map_err(A::Error::custom)?;
        }
        Ok(())
    }
}

/// The number of the column of a name, if it is one's.
struct Key(Option<usize>);

struct Name<'a>(&'a HashMap<String, usize>);

impl<'de> DeserializeSeed<'de> for Name<'_> {
    type Value = Key;

    fn deserialize<D: Deserializer<'de>>(self, from: D) -> Result<Key, D::Error> {
        from.deserialize_str(self)
    }
}

impl Visitor<'_> for Name<'_> {
    type Value = Key;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a name")
    }

    fn visit_str<E>(self, name: &str) -> Result<Key, E> {
        let plain = || with_plain_ends(name.as_bytes());
        let found = self.0.get(name).or_else(|| self.0.get(std::str::from_utf8(&plain()).ok()?));
        Ok(Key(found.copied()))
    }
}

impl Column {
    /// Writes a value of JSON into a field, as text has it; `within`: whether it is one of a list.
    fn write(&self, value: &str, within: bool, into: &mut Vec<u8>) -> Result<(), String> {
        let parsed = |error: serde_json::Error| format!("{}: {error}", self.name);
        match value.as_bytes() {
            [b'"', inner @ .., b'"'] if memchr::memchr(b'\\', inner).is_none() => self.text(inner, within, into),
            [b'"', ..] => {
                let text: String = serde_json::from_str(value).map_err(parsed)?;
                self.text(text.as_bytes(), within, into)
            }
            [b'[', ..] => {
                let Some(separator) = self.separator.as_ref().filter(|_| !within) else {
                    return Err(format!("{}: one value is expected, found a list", self.name));
                };
                let values: Vec<&RawValue> = serde_json::from_str(value).map_err(parsed)?;
                for (at, value) in values.into_iter().enumerate() {
                    if at > 0 {
                        into.extend_from_slice(separator.as_bytes());
                    }
                    self.write(value.get(), true, into)?;
                }
                Ok(())
            }
            [b'{', ..] => Err(format!("{}: one value is expected, found an object", self.name)),
            [b'n', ..] => Ok(()),
            [b't' | b'f', ..] => self.text(self.truths[usize::from(value == "true")].as_bytes(), within, into),
            _ => self.number(value, within, into),
        }
    }

    fn text(&self, text: &[u8], within: bool, into: &mut Vec<u8>) -> Result<(), String> {
        let text = &*with_plain_ends(text);
        let separator = self.separator.as_deref().filter(|_| within);
        if separator.is_some_and(|separator| memchr::memmem::find(text, separator.as_bytes()).is_some()) {
            let (name, text) = (&self.name, String::from_utf8_lossy(text));
            return Err(format!("{name}: the value {text:?} contains what separates values"));
        }
        into.extend_from_slice(text);
        Ok(())
    }

    fn number(&self, number: &str, within: bool, into: &mut Vec<u8>) -> Result<(), String> {
        match self.numbers {
            Numbers::AsWritten => self.text(number.as_bytes(), within, into),
            Numbers::Whole => {
                // Of 18.0 and 1e3 the shortest text is that of an integer.
                let value = number.parse::<f64>().ok().filter(|_| number.contains(['.', 'e', 'E']));
                into.extend_from_slice(value.map_or_else(|| number.to_owned(), |value| value.to_string()).as_bytes());
                Ok(())
            }
            Numbers::Refused => Err(format!("{}: text is expected, found the number {number}", self.name)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn objects() -> Objects {
        let column = |name: &str, separator: Option<&str>, numbers| Column {
            name: name.to_owned(),
            separator: separator.map(str::to_owned),
            numbers,
            truths: TRUTHS,
        };
        let text = Numbers::AsWritten;
        let python = Column { truths: ["False", "True"], ..column("seen", None, text) };
        let whole = column("I1", None, Numbers::Whole);
        let (price, genres) = (column("price", None, text), column("genres", Some("|"), text));
        Objects::new(vec![price, genres, column("C1", None, Numbers::Refused), python, whole])
    }

    #[test]
    fn values_become_fields_as_text_has_them() {
        let mut objects = objects();
        let mut read = |line: &str| -> Result<Vec<String>, String> {
            // Two columns that are of no interest here come first, unless the object is none.
            let line = line.replacen("{\"", "{\"seen\": null, \"I1\": null, \"", 1);
            let fields = objects.read(line.as_bytes())?;
            assert_eq!(fields[3..], [b"", b""]);
            Ok(fields[..3].iter().map(|field| String::from_utf8(field.clone()).unwrap()).collect())
        };
        let found = read(r#" {"C1": "0a", "more": {"x": [1]}, "genres": ["Drama", 7, null, -1.5], "price": 2.25} "#);
        assert_eq!(found.unwrap(), ["2.25", "Drama|7||-1.5", "0a"]);
        let found = read(r#"{"price": null, "genres": [], "C1": "t\u00e4g"}"#).unwrap();
        assert_eq!(found, ["", "", "täg"]);
        assert_eq!(read(r#"{"price": -3, "genres": "a|b", "C1": null}"#).unwrap(), ["-3", "a|b", ""]);
        let found = read(r#"{"price": 18.0, "genres": [1e3, 18.50, true, 12345678901234567890123], "C1": "\"\\"}"#);
        assert_eq!(found.unwrap(), ["18.0", "1e3|18.50|true|12345678901234567890123", "\"\\"]);
        for (line, reason) in [
            (r#"{"price": NaN, "genres": [], "C1": ""}"#, ": NaN is no JSON: write null"),
            (r#"{"price": 1, "genres": ["a", NaN], "C1": ""}"#, ": NaN is no JSON: write null"),
            (r#"{"price": -Infinity, "genres": [], "C1": ""}"#, ": Infinity is no JSON: write null"),
            (r#"{"price": 1, "genres": []}"#, "the object has no C1; where there is no value, null says so"),
            (r#"{"price": [1], "genres": [], "C1": ""}"#, "price: one value is expected, found a list"),
            (r#"{"price": 1, "genres": [["a"]], "C1": ""}"#, "genres: one value is expected, found a list"),
            (
                r#"{"price": 1, "genres": ["a|b"], "C1": ""}"#,
                "genres: the value \"a|b\" contains what separates values",
            ),
            (r#"{"price": 1, "genres": [], "C1": 10}"#, "C1: text is expected, found the number 10"),
            (r#"{"price": 1, "price": 2, "genres": [], "C1": ""}"#, "price comes twice"),
            (r#"{"price": {}, "genres": [], "C1": ""}"#, "price: one value is expected, found an object"),
            (r#"{"price": 01, "genres": [], "C1": ""}"#, "an object of JSON is expected: "),
            (r#"{"price": 1, "genres": [], "C1": ""} {}"#, "trailing characters"),
            ("[1, 2]", "expected an object with the columns' names"),
            ("", "EOF while parsing"),
        ] {
            let message = read(line).unwrap_err();
            assert!(message.contains(reason), "{line}: {message}");
        }
    }

    #[test]
    fn line_ends_within_texts_and_names_are_those_of_files() {
        let mut objects = objects();
        let fields = objects
            .read(
                br#"{"price": "a\r\nb\r", "genres": ["x\r\r\ny", "\n"], "C1": "p\r\r\r\nq", "seen": "\r", "I1": null}"#,
            )
            .unwrap();
        assert_eq!(fields, [&b"a\nb\r"[..], b"x\ny|\n", b"p\r\nq", b"\r", b""]);
        let column =
            Column { name: "in\nEUR".to_owned(), separator: None, numbers: Numbers::AsWritten, truths: TRUTHS };
        let mut objects = Objects::new(vec![column]);
        for name in [r"in\nEUR", r"in\r\nEUR"] {
            assert_eq!(objects.read(format!(r#"{{"{name}": 7}}"#).as_bytes()).unwrap(), [b"7"]);
        }
        let both = objects.read(br#"{"in\nEUR": 7, "in\r\nEUR": 8}"#).unwrap_err();
        assert!(both.contains("comes twice"), "{both}");
    }

    #[test]
    fn truths_and_integers_are_as_their_column_has_them() {
        let mut objects = objects();
        let mut read = |seen: &str, integer: &str| {
            let line = format!(r#"{{"price": true, "genres": [], "C1": "", "seen": {seen}, "I1": {integer}}}"#);
            let fields = objects.read(line.as_bytes()).unwrap();
            [0, 3, 4].map(|at: usize| String::from_utf8(fields[at].clone()).unwrap())
        };
        assert_eq!(read("true", "18.0"), ["true", "True", "18"]);
        assert_eq!(read("false", "-5"), ["true", "False", "-5"]);
        assert_eq!(read("null", "1e3"), ["true", "", "1000"]);
    }
}
