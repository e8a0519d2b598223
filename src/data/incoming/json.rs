//! An object of JSON becomes the fields of a row, by the names of its columns.
//!
//! Every column must be there, so that a misspelt name is told; `null` is a blank field. Lists become fields with the
//! column's separator between their values. What else an object has is of no interest.

use std::collections::HashMap;
use std::fmt;
use std::io::Write;

use serde::Deserializer;
use serde::de::{DeserializeSeed, Error as _, IgnoredAny, MapAccess, SeqAccess, Visitor};

/// A column of text.
#[derive(Debug, Clone)]
pub struct Column {
    /// Its name.
    pub name: String,
    /// What separates its values, where there may be several.
    pub separator: Option<String>,
    /// Whether its values are text in any case: digits would be taken for those of another base.
    pub is_text: bool,
}

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
            let error = error.to_string();
            // Lines are counted by whoever reads them.
            let reason = error.split(" at line 1").next().unwrap_or_default();
            format!("an object of JSON is expected: {reason}")
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
            map.next_value_seed(Field { column: &columns[at], into: &mut fields[at], within: false })?;
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
        Ok(Key(self.0.get(name).copied()))
    }
}

/// Writes a value into a field, as text has it.
struct Field<'a> {
    column: &'a Column,
    into: &'a mut Vec<u8>,
    /// Whether it is one of a list.
    within: bool,
}

impl Field<'_> {
    fn number<E: serde::de::Error>(self, number: impl fmt::Display) -> Result<(), E> {
        if self.column.is_text {
            return Err(E::custom(format_args!("{}: text is expected, found the number {number}", self.column.name)));
        }
        write!(self.into, "{number}").map_err(E::custom)
    }
}

impl<'de> DeserializeSeed<'de> for Field<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, from: D) -> Result<(), D::Error> {
        from.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Field<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a value of {}", self.column.name)
    }

    fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<(), E> {
        let separator = self.column.separator.as_deref().filter(|_| self.within);
        if separator.is_some_and(|separator| text.contains(separator)) {
            let name = &self.column.name;
            return Err(E::custom(format_args!("{name}: the value {text:?} contains what separates values")));
        }
        self.into.extend_from_slice(text.as_bytes());
        Ok(())
    }

    fn visit_u64<E: serde::de::Error>(self, number: u64) -> Result<(), E> {
        self.number(number)
    }

    fn visit_i64<E: serde::de::Error>(self, number: i64) -> Result<(), E> {
        self.number(number)
    }

    fn visit_f64<E: serde::de::Error>(self, number: f64) -> Result<(), E> {
        self.number(number)
    }

    fn visit_bool<E: serde::de::Error>(self, truth: bool) -> Result<(), E> {
        self.visit_str(if truth { "true" } else { "false" })
    }

    fn visit_unit<E>(self) -> Result<(), E> {
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<(), A::Error> {
        let Self { column, into, within } = self;
        let Some(separator) = column.separator.as_ref().filter(|_| !within) else {
            return Err(A::Error::custom(format_args!("{}: one value is expected, found a list", column.name)));
        };
        let mut first = true;
        loop {
            let before = into.len();
            if !first {
                into.extend_from_slice(separator.as_bytes());
            }
            if list.next_element_seed(Field { column, into: &mut *into, within: true })?.is_none() {
                into.truncate(before);
                return Ok(());
            }
            first = false;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn objects() -> Objects {
        let column = |name: &str, separator: Option<&str>, is_text| Column {
            name: name.to_owned(),
            separator: separator.map(str::to_owned),
            is_text,
        };
        Objects::new(vec![column("price", None, false), column("genres", Some("|"), false), column("C1", None, true)])
    }

    #[test]
    fn values_become_fields_as_text_has_them() {
        let mut objects = objects();
        let mut read = |line: &str| -> Result<Vec<String>, String> {
            let fields = objects.read(line.as_bytes())?;
            Ok(fields.iter().map(|field| String::from_utf8(field.clone()).unwrap()).collect())
        };
        let found = read(r#" {"C1": "0a", "more": {"x": [1]}, "genres": ["Drama", 7, null, -1.5], "price": 2.25} "#);
        assert_eq!(found.unwrap(), ["2.25", "Drama|7||-1.5", "0a"]);
        let found = read(r#"{"price": null, "genres": [], "C1": "t\u00e4g"}"#).unwrap();
        assert_eq!(found, ["", "", "täg"]);
        assert_eq!(read(r#"{"price": -3, "genres": "a|b", "C1": null}"#).unwrap(), ["-3", "a|b", ""]);
        for (line, reason) in [
            (r#"{"price": 1, "genres": []}"#, "the object has no C1; where there is no value, null says so"),
            (r#"{"price": [1], "genres": [], "C1": ""}"#, "price: one value is expected, found a list"),
            (r#"{"price": 1, "genres": [["a"]], "C1": ""}"#, "genres: one value is expected, found a list"),
            (
                r#"{"price": 1, "genres": ["a|b"], "C1": ""}"#,
                "genres: the value \"a|b\" contains what separates values",
            ),
            (r#"{"price": 1, "genres": [], "C1": 10}"#, "C1: text is expected, found the number 10"),
            (r#"{"price": 1, "price": 2, "genres": [], "C1": ""}"#, "price comes twice"),
            (r#"{"price": {}, "genres": [], "C1": ""}"#, "expected a value of price"),
            (r#"{"price": 1, "genres": [], "C1": ""} {}"#, "trailing characters"),
            ("[1, 2]", "expected an object with the columns' names"),
            ("", "EOF while parsing"),
        ] {
            let message = read(line).unwrap_err();
            assert!(message.contains(reason), "{line}: {message}");
        }
    }
}
