//! The values of a categorical field, and how much each look-up weighs.

use super::schema::TextCategorical;
use super::shown;
use crate::base::units::Many;

impl TextCategorical {
    /// Hands over every value of a field with its weight, 1 where the column has none. `weights` is the field of the
    /// column of weights, if the schema names one.
    ///
    /// # Errors
    /// What is wrong with the weights, and what `each` finds.
    pub(super) fn each_value<E: From<String>>(
        &self,
        field: &[u8],
        weights: Option<&[u8]>,
        mut each: impl FnMut(&[u8], f32) -> Result<(), E>,
    ) -> Result<(), E> {
        let mut one = |value, weighs: Option<&[u8]>| match (weighs, &self.weight_separator) {
            (Some(weighs), _) => each(value, self.weight(weighs)?),
            (None, Some(separator)) => {
                let (value, weighs) = self.parted(value, separator)?;
                each(value, self.weight(weighs)?)
            }
            (None, None) => each(value, 1.0),
        };
        let Some(separator) = &self.separator else { return one(field, weights) };
        let Some(weights) = weights else {
            return values_of(field, separator, &self.padding).try_for_each(|value| one(value, None));
        };
        // Places count, so blanks and padding are left out only behind this, and blanks that separate stay.
        let all = |field| if trimmed(field).is_empty() { Vec::new() } else { parts(field, separator).collect() };
        let (values, weights) = (all(field), all(weights));
        if values.len() != weights.len() {
            let (name, weighs) = (&self.column, self.weights.as_deref().unwrap_or_default());
            let reason = format!(
                "column {name} has {}, its column of weights {weighs} has {}: one weight a value is expected",
                Many(values.len() as u64, "value"),
                weights.len()
            );
            return Err(reason.into());
        }
        let there = values.into_iter().zip(weights).filter(|(value, _)| !is_blank(value, &self.padding));
        there.into_iter().try_for_each(|(value, weighs)| one(value, Some(weighs)))
    }

    /// A weight as a number; what was expected otherwise.
    fn weight(&self, field: &[u8]) -> Result<f32, String> {
        let text = std::str::from_utf8(field).unwrap_or("?").trim();
        let number = text.parse().ok().filter(|weight: &f32| weight.is_finite());
        number.ok_or_else(|| {
            let column = self.weights.as_ref().unwrap_or(&self.column);
            format!("column {column}: a finite number is expected as a weight, found \"{}\"", shown(field))
        })
    }

    /// Parts `value:weight`.
    fn parted<'a>(&self, value: &'a [u8], separator: &str) -> Result<(&'a [u8], &'a [u8]), String> {
        let at = memchr::memmem::rfind(value, separator.as_bytes());
        at.map(|at| (trimmed(&value[..at]), &value[at + separator.len()..])).ok_or_else(|| {
            format!(
                "column {}: a value, {separator:?} and its weight are expected, found \"{}\"",
                self.column,
                shown(value)
            )
        })
    }
}

/// Whether a part of a list stands for no value.
fn is_blank(part: &[u8], padding: &str) -> bool {
    part.is_empty() || part == padding.as_bytes()
}

/// The values of a field that may have several; blank ones and the padding are none.
pub(super) fn values_of<'a>(field: &'a [u8], separator: &'a str, padding: &'a str) -> impl Iterator<Item = &'a [u8]> {
    parts(field, separator).filter(move |value| !is_blank(value, padding))
}

/// A list's parts without blanks around them, blank ones too. It need not be UTF-8.
fn parts<'a>(field: &'a [u8], separator: &'a str) -> impl Iterator<Item = &'a [u8]> {
    let finder = memchr::memmem::Finder::new(separator);
    let mut rest = Some(field);
    std::iter::from_fn(move || {
        let text = rest?;
        let at = finder.find(text);
        rest = at.map(|at| &text[at + separator.len()..]);
        Some(trimmed(&text[..at.unwrap_or(text.len())]))
    })
}

/// A field, or a part of it, without the blanks around it: all that Unicode has where it is text, otherwise ASCII's.
pub(super) fn trimmed(part: &[u8]) -> &[u8] {
    match part {
        [] => part,
        [first, .., last] if first.is_ascii_graphic() && last.is_ascii_graphic() => part,
        _ => std::str::from_utf8(part).map_or_else(|_| part.trim_ascii(), |text| text.trim().as_bytes()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pairs(column: &TextCategorical, field: &str, weights: Option<&str>) -> Result<Vec<(String, f32)>, String> {
        let mut found = Vec::new();
        column.each_value(field.as_bytes(), weights.map(str::as_bytes), |value, weight| {
            found.push((String::from_utf8_lossy(value).into_owned(), weight));
            Ok::<(), String>(())
        })?;
        Ok(found)
    }

    fn list(pairs: &[(&str, f32)]) -> Result<Vec<(String, f32)>, String> {
        Ok(pairs.iter().map(|&(value, weight)| (value.to_owned(), weight)).collect())
    }

    #[test]
    fn weights_stand_in_a_column_beside_or_behind_each_value() {
        let plain = TextCategorical { column: "tags".to_owned(), ..TextCategorical::default() };
        assert_eq!(pairs(&plain, "a|b", None), list(&[("a|b", 1.0)]));
        let lists = TextCategorical { separator: Some("|".to_owned()), padding: "0".to_owned(), ..plain.clone() };
        assert_eq!(pairs(&lists, "a| b||0", None), list(&[("a", 1.0), ("b", 1.0)]));
        let beside = TextCategorical { weights: Some("w".to_owned()), ..lists.clone() };
        assert_eq!(pairs(&beside, "a|b||0|c", Some("1|-0.5|||2e3")), list(&[("a", 1.0), ("b", -0.5), ("c", 2000.0)]));
        assert_eq!(pairs(&beside, "", Some(" ")), list(&[]));
        let message = pairs(&beside, "a", Some("1|2")).unwrap_err();
        assert_eq!(message, "column tags has 1 value, its column of weights w has 2: one weight a value is expected");
        let message = pairs(&beside, "a|b", Some("1|")).unwrap_err();
        assert_eq!(message, "column w: a finite number is expected as a weight, found \"\"");
        assert!(pairs(&beside, "a|b", Some("1|1e99")).unwrap_err().contains("found \"1e99\""));
        let blanks = TextCategorical { separator: Some(" ".to_owned()), ..beside };
        assert_eq!(pairs(&blanks, "a  ", Some("1 0 0")), list(&[("a", 1.0)]));
        assert_eq!(pairs(&blanks, " b", Some("0.5 1")), list(&[("b", 1.0)]));
        assert!(pairs(&blanks, " b c", Some("1 2 ")).is_err(), "c has no weight");
        let behind = TextCategorical { weight_separator: Some(":".to_owned()), ..lists };
        assert_eq!(pairs(&behind, "a:1|x:y:0.5|0", None), list(&[("a", 1.0), ("x:y", 0.5)]));
        assert_eq!(
            pairs(&behind, "a:1|b", None).unwrap_err(),
            "column tags: a value, \":\" and its weight are expected, found \"b\""
        );
        let single = TextCategorical { weights: Some("w".to_owned()), ..plain };
        assert_eq!(pairs(&single, "a", Some("0.25")), list(&[("a", 0.25)]));
        assert!(pairs(&single, "a", Some("nan")).is_err());
    }

    #[test]
    fn a_list_has_the_same_values_with_and_without_weights() {
        let lists = TextCategorical {
            column: "genres".to_owned(),
            separator: Some("|".to_owned()),
            ..TextCategorical::default()
        };
        let weighted = TextCategorical { weights: Some("w".to_owned()), ..lists.clone() };
        let values = |column: &TextCategorical, field: &[u8], weights: Option<&[u8]>| {
            let mut found = Vec::new();
            let take = |value: &[u8], _| {
                found.push(value.to_vec());
                Ok::<(), String>(())
            };
            column.each_value(field, weights, take).map(|()| found)
        };
        // Latin-1, and a blank that is none of ASCII's.
        for field in [&b"Com\xe9die| Drama"[..], "g1|\u{a0}g2".as_bytes()] {
            let alone = values(&lists, field, None).unwrap();
            assert_eq!(alone.len(), 2, "{}", field.escape_ascii());
            assert_eq!(values(&weighted, field, Some(b"1|2")).unwrap(), alone, "{}", field.escape_ascii());
        }
    }
}
