//! How a column of text becomes a label: as 0 or 1, or by a comparison.

use std::cmp::Ordering;

/// The finite number that a field is.
pub(super) fn finite(field: &[u8]) -> Option<f64> {
    std::str::from_utf8(field).ok()?.trim().parse().ok().filter(|value: &f64| value.is_finite())
}

/// When a row is positive.
#[derive(Debug, Clone)]
pub(super) enum Rule {
    /// The field is 0 or 1.
    Bit,
    /// The field is this text or, where that is a number, equals it; or (false) does not.
    Text(String, Option<f64>, bool),
    /// The field is a number that compares so with this one.
    Number(f64, fn(Ordering) -> bool),
}

impl Rule {
    /// The column and the rule of `click`, `rating >= 4` or `behavior == buy`.
    pub(super) fn parse(text: &str) -> Result<(String, Self), String> {
        const OPERATORS: [&str; 6] = [">=", "<=", "==", "!=", ">", "<"];
        let found = OPERATORS.iter().filter_map(|operator| text.split_once(operator).map(|parts| (*operator, parts)));
        // `>=` before `>`: the one that stands first, and the longer of two at one place.
        let found = found.min_by_key(|(operator, (before, _))| (before.len(), std::cmp::Reverse(operator.len())));
        let Some((operator, (column, value))) = found else { return Ok((text.trim().to_owned(), Self::Bit)) };
        let (column, value) = (column.trim().to_owned(), value.trim().trim_matches(['"', '\'']));
        let rule = match operator {
            "==" | "!=" => Self::Text(value.to_owned(), finite(value.as_bytes()), operator == "=="),
            _ => {
                let number = finite(value.as_bytes()).ok_or_else(|| {
                    format!("label = {text:?}: {operator} compares with a number, and {value:?} is none")
                })?;
                Self::Number(
                    number,
                    match operator {
                        ">=" => Ordering::is_ge,
                        "<=" => Ordering::is_le,
                        ">" => Ordering::is_gt,
                        _ => Ordering::is_lt,
                    },
                )
            }
        };
        Ok((column, rule))
    }

    /// The label of a field; `None` when the rule does not apply to it.
    pub(super) fn label(&self, field: &[u8]) -> Option<f32> {
        let positive = match self {
            Self::Bit => match field.trim_ascii() {
                b"0" => false,
                b"1" => true,
                _ => return None,
            },
            Self::Text(text, number, equal) => {
                let field = field.trim_ascii();
                let same = field == text.as_bytes() || number.is_some_and(|number| finite(field) == Some(number));
                same == *equal
            }
            Self::Number(bound, holds) => holds(finite(field)?.partial_cmp(bound)?),
        };
        Some(if positive { 1.0 } else { 0.0 })
    }

    /// What fields it applies to.
    pub(super) fn expects(&self) -> &'static str {
        match self {
            Self::Bit => "the label 0 or 1",
            Self::Text(..) => "any text",
            Self::Number(..) => "a number",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules_say_which_rows_are_positive() {
        let labels = |rule: &str, fields: [&str; 3]| {
            let (column, rule) = Rule::parse(rule).unwrap();
            (column, fields.map(|field| rule.label(field.as_bytes())))
        };
        let (no, yes) = (Some(0.0), Some(1.0));
        assert_eq!(labels("click", ["0", "1", "2"]), ("click".to_owned(), [no, yes, None]));
        assert_eq!(labels("rating >= 4", ["3.5", "4", "NaN"]), ("rating".to_owned(), [no, yes, None]));
        assert_eq!(labels("rating<4", ["3.5", "4", "x"]), ("rating".to_owned(), [yes, no, None]));
        assert_eq!(labels("b == 'buy'", ["buy", "pv", ""]), ("b".to_owned(), [yes, no, no]));
        assert_eq!(labels("income == >50K", [" >50K", ">50K ", " <=50K"]), ("income".to_owned(), [yes, yes, no]));
        assert_eq!(labels("rating == 4", ["4.0", "x", "4"]), ("rating".to_owned(), [yes, no, yes]));
        assert_eq!(labels("b != buy", ["buy", "pv", ""]), ("b".to_owned(), [no, yes, yes]));
        assert_eq!(
            Rule::parse("rating > high").unwrap_err(),
            "label = \"rating > high\": > compares with a number, and \"high\" is none"
        );
    }
}
