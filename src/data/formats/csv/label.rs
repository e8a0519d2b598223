//! How a column of text becomes a label: as 0 or 1, or by a comparison.

use std::cmp::Ordering;

use super::lookups::trimmed;
use super::propose::MISSING;
use super::row::is_named;
use super::schema::TextSchema;

/// The finite number that a field is.
pub(super) fn finite(field: &[u8]) -> Option<f64> {
    std::str::from_utf8(field).ok()?.trim().parse().ok().filter(|value: &f64| value.is_finite())
}

impl TextSchema {
    /// What a model that was trained by the schema lives with, and whoever writes one is told.
    pub(super) fn check_label(&self) -> std::result::Result<(), String> {
        let (label, rule) = self.rule()?;
        if let Some(line) = self.reading(&label) {
            return Err(format!(
                "label = {:?} follows from column {label}, which {line} reads as a feature, so that the model would be told \
                 the answer: leave that one out",
                self.label
            ));
        }
        rule.check_missing(&label, &self.missing)
    }

    /// The label's column and rule, as far as the schema alone tells which columns a file has.
    fn rule(&self) -> std::result::Result<(String, Rule), String> {
        let dense = self.dense.iter().map(|spec| &spec.column);
        let categorical = self.categorical.iter().flat_map(|spec| spec.weights.iter().chain([&spec.column]));
        let names = self.columns.iter().chain(&self.weight).chain(dense).chain(categorical);
        Rule::of(&self.label, names.map(String::as_bytes))
    }

    /// That nothing else reads the column of weights.
    pub(super) fn check_weight(&self) -> std::result::Result<(), String> {
        let Some(weight) = &self.weight else { return Ok(()) };
        let (label, _) = self.rule()?;
        let of_label = is_named(weight.as_bytes(), &label).then(|| format!("label = {:?}", self.label));
        of_label.or_else(|| self.reading(weight)).map_or(Ok(()), |line| {
            Err(format!(
                "weight = {weight:?} says how much each row counts, of which a model knows nothing when it serves, and {line} \
                 reads the same column: leave one of them out"
            ))
        })
    }

    /// The line by which a column of the file is read as a feature, or weighs one, whatever blanks it has around the
    /// name.
    fn reading(&self, column: &str) -> Option<String> {
        let dense = self.dense.iter().filter(|spec| !spec.weighs).map(|spec| ("dense", "column", Some(&spec.column)));
        let categorical = self.categorical.iter().flat_map(|spec| {
            [("categorical", "column", Some(&spec.column)), ("categorical", "weights", spec.weights.as_ref())]
        });
        let mut lines = dense.chain(categorical).filter_map(|(heading, key, read)| Some((heading, key, read?)));
        let found = lines.find(|(.., read)| is_named(read.as_bytes(), column));
        found.map(|(heading, key, read)| format!("[[{heading}]] {key} = {read:?}"))
    }
}

/// Labels of columns of 0 and 1, and whether they are positive.
pub(super) const BITS: [(&str, bool); 4] = [("0", false), ("1", true), ("0.0", false), ("1.0", true)];
/// Words for no and yes.
pub(super) const TRUTHS: [[&str; 2]; 6] =
    [["False", "True"], ["false", "true"], ["FALSE", "TRUE"], ["no", "yes"], ["No", "Yes"], ["N", "Y"]];

/// When a row is positive.
#[derive(Debug, Clone)]
pub(super) enum Rule {
    /// The field is 0 or 1, perhaps as the float that pandas makes of it.
    Bit,
    /// The field is this text or, where that is a number, equals it; or (false) does not. A blank one is neither,
    /// unless the text is blank.
    Text(String, Option<f64>, bool),
    /// The field is a number that compares so with this one, of which this is the text.
    Number(String, f64, fn(Ordering) -> bool),
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
                    value.to_owned(),
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

    /// The column and the rule of a label in a file of these columns. One whose name is the whole text stands before
    /// the comparison that it could be, and blanks around a name in the file, as some programs write them behind a
    /// comma, need not be said.
    pub(super) fn of<'a>(text: &str, names: impl Iterator<Item = &'a [u8]> + Clone) -> Result<(String, Self), String> {
        let (column, rule) = Self::parse(text)?;
        let has = |name: &str| names.clone().any(|known| known == name.as_bytes());
        if has(text) {
            return Ok((text.to_owned(), Self::Bit));
        }
        if has(&column) {
            return Ok((column, rule));
        }
        let padded = padded(&column, names);
        Ok((padded.unwrap_or(column), rule))
    }

    /// The label of a field; `None` when the rule does not apply to it.
    pub(super) fn label(&self, field: &[u8]) -> Option<f32> {
        let positive = match self {
            Self::Bit => BITS.iter().find(|(text, _)| text.as_bytes() == field.trim_ascii())?.1,
            Self::Text(text, number, equal) => {
                let field = field.trim_ascii();
                if field.is_empty() && !text.is_empty() {
                    return None;
                }
                is_same(field, text, *number) == *equal
            }
            Self::Number(text, bound, holds) => holds(match (integer(field.trim_ascii()), integer(text.as_bytes())) {
                (Some(field), Some(text)) => field.cmp(&text),
                _ => finite(field)?.partial_cmp(bound)?,
            }),
        };
        Some(if positive { 1.0 } else { 0.0 })
    }

    /// Whether it tells the labels of `column` by none of these texts, which count as blank: of a blank field there is
    /// no label.
    ///
    /// # Errors
    /// The text, and what to write instead.
    pub(super) fn check_missing(&self, column: &str, missing: &[String]) -> Result<(), String> {
        if let (Self::Bit, Some(bit)) = (self, missing.iter().find(|text| ["0", "1"].contains(&text.as_str()))) {
            return Err(format!(
                "label = {column:?}: {bit:?} counts as blank (missing), and a row without a label is malformed: leave it out \
                 of `missing`, which is for every column (a list has `padding` for such a value)"
            ));
        }
        let Self::Text(text, number, equal) = self else { return Ok(()) };
        let Some(blank) = missing.iter().find(|blank| is_same(blank.as_bytes(), text, *number)) else { return Ok(()) };
        let operator = if *equal { "==" } else { "!=" };
        Err(format!(
            "label = \"{column} {operator} {text}\": {blank:?} counts as blank (missing), and a row without a label is \
             malformed: compare with a blank field (label = \"{column} {operator}\")"
        ))
    }

    /// What fields it applies to.
    pub(super) fn expects(&self) -> &'static str {
        match self {
            Self::Bit => "the label 0 or 1",
            Self::Text(..) => "a text that is not missing",
            Self::Number(..) => "a number",
        }
    }

    /// What to do about a field of column `name` that it does not apply to; nothing where the row is to be mended.
    /// `kept`: the schema is one that a trained model keeps, which stays as it is.
    pub(super) fn advice(&self, name: &str, field: &[u8], kept: bool) -> Option<String> {
        let Self::Bit = self else { return None };
        let text = std::str::from_utf8(field.trim_ascii()).ok().filter(|text| !text.is_empty())?;
        if kept {
            let advice = format!(
                "this model's own schema says label = {name:?}: if all rows have such labels, write them as 0 and 1; if it \
                 alone is wrong, mend the line"
            );
            return Some(advice).filter(|_| !MISSING.contains(&text));
        }
        let rule = match (finite(text.as_bytes()), TRUTHS.iter().find(|truths| truths.contains(&text))) {
            (Some(number), _) if number < 1.0 => format!("\"{name} > 0\""),
            (Some(_), _) => format!("\"{name} >= N\", N the least number of a positive row"),
            (None, Some([_, yes])) => format!("\"{name} == {yes}\""),
            (None, None) if MISSING.contains(&text) => {
                return Some(format!(
                    "if there is no label where it stands, say missing = [{text:?}] in the schema and leave such rows out \
                     with --on-bad-row skip; otherwise mend the line"
                ));
            }
            (None, None) => format!("\"{name} == TEXT\", TEXT that of a positive row"),
        };
        Some(format!(
            "say in the schema which rows are positive (label = {rule}), or mend the line if it alone is wrong"
        ))
    }
}

/// The one name that is `column` but for blanks around it.
fn padded<'a>(column: &str, names: impl Iterator<Item = &'a [u8]>) -> Option<String> {
    let mut found = names.filter(|name| trimmed(name) == column.as_bytes());
    let first = found.next()?;
    found.all(|other| other == first).then(|| String::from_utf8_lossy(first).into_owned())
}

/// Whether a field without blanks around it is this text or, where that is a number, equals it.
fn is_same(field: &[u8], text: &str, number: Option<f64>) -> bool {
    if field == text.as_bytes() {
        return true;
    }
    match (integer(field), integer(text.as_bytes())) {
        (Some(field), Some(text)) => field == text,
        _ => number.is_some_and(|number| finite(field) == Some(number)),
    }
}

/// A plain integer of any size: floats would take neighbours among ids of more than 53 bits for the same.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Integer<'a> {
    is_negative: bool,
    /// Without zeros before them.
    digits: &'a [u8],
}

impl Ord for Integer<'_> {
    fn cmp(&self, other: &Self) -> Ordering {
        let sizes = (self.digits.len(), self.digits).cmp(&(other.digits.len(), other.digits));
        match (self.is_negative, other.is_negative) {
            (false, false) => sizes,
            (true, true) => sizes.reverse(),
            (negative, others) => others.cmp(&negative),
        }
    }
}

impl PartialOrd for Integer<'_> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

/// The plain integer that a text is; nothing for other texts.
fn integer(text: &[u8]) -> Option<Integer<'_>> {
    let digits = text.strip_prefix(b"-").or_else(|| text.strip_prefix(b"+")).unwrap_or(text);
    if digits.is_empty() || !digits.iter().all(u8::is_ascii_digit) {
        return None;
    }
    let zeros = digits.iter().take_while(|digit| **digit == b'0').count();
    let digits = &digits[zeros..];
    Some(Integer { is_negative: text[0] == b'-' && !digits.is_empty(), digits })
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
        assert_eq!(labels("click", ["0.0", "1.0", "-1"]), ("click".to_owned(), [no, yes, None]));
        assert_eq!(labels("b == 'buy'", ["buy", "pv", " "]), ("b".to_owned(), [yes, no, None]));
        assert_eq!(labels("income == >50K", [" >50K", ">50K ", " <=50K"]), ("income".to_owned(), [yes, yes, no]));
        assert_eq!(labels("rating == 4", ["4.0", "x", "4"]), ("rating".to_owned(), [yes, no, yes]));
        assert_eq!(labels("rating == 4", ["", "1", "4"]), ("rating".to_owned(), [None, no, yes]));
        assert_eq!(labels("b != buy", ["buy", "pv", ""]), ("b".to_owned(), [no, yes, None]));
        // Where the rule asks for blanks.
        assert_eq!(labels("b == ''", ["buy", " ", ""]), ("b".to_owned(), [no, yes, yes]));
        assert_eq!(labels("b !=", ["buy", " ", ""]), ("b".to_owned(), [yes, no, no]));
        assert_eq!(
            Rule::parse("rating > high").unwrap_err(),
            "label = \"rating > high\": > compares with a number, and \"high\" is none"
        );
    }

    #[test]
    fn wide_ids_are_compared_by_their_digits() {
        let is = |rule: &str, field: &str| Rule::parse(rule).unwrap().1.label(field.as_bytes()).unwrap() == 1.0;
        let wide = "100000000000000001";
        for (field, same) in [(wide, true), ("100000000000000003", false), ("+0100000000000000001", true)] {
            assert_eq!(is(&format!("camp == {wide}"), field), same, "{field}");
            assert_eq!(is(&format!("camp != {wide}"), field), !same, "{field}");
        }
        assert!(!is(&format!("camp == -{wide}"), wide));
        for (rule, [before, same, behind]) in [
            ("<", [true, false, false]),
            ("<=", [true, true, false]),
            (">", [false, false, true]),
            (">=", [false, true, true]),
        ] {
            let holds = |field: &str| is(&format!("camp {rule} {wide}"), field);
            assert_eq!(
                ["100000000000000000", " +0100000000000000001 ", "100000000000000002"].map(holds),
                [before, same, behind]
            );
            assert_eq!(["-200000000000000001", "1e16", "1000000000000000000"].map(holds), [before, before, behind]);
            let holds = |field: &str| is(&format!("camp {rule} -{wide}"), field);
            assert_eq!(["-100000000000000002", "-100000000000000001", "-5"].map(holds), [before, same, behind]);
            let holds = |field: &str| is(&format!("camp {rule} 0"), field);
            assert_eq!(["-1", "-0", "0.5"].map(holds), [before, same, behind]);
        }
        assert!(is("y == 1", "1.0") && is("y == 1.0", "1") && is("y == 0", "-0") && is("y == -1", "-01"));
    }

    #[test]
    fn a_labels_column_may_have_blanks_around_its_name() {
        let column = |rule: &str, names: &[&str]| {
            let (column, rule) = Rule::of(rule, names.iter().map(|name| name.as_bytes())).unwrap();
            (column, matches!(rule, Rule::Bit))
        };
        assert_eq!(column("label", &["user", " label"]), (" label".to_owned(), true));
        assert_eq!(column(" label", &["label", " label"]), (" label".to_owned(), true));
        assert_eq!(column("label", &[" label", "label"]), ("label".to_owned(), true));
        assert_eq!(column("label > 0", &["user", " label"]), (" label".to_owned(), false));
        // Which of two is meant nobody knows.
        assert_eq!(column("label", &[" label", "label "]), ("label".to_owned(), true));
        assert_eq!(column("age>3", &["age", "age>3"]), ("age>3".to_owned(), true));
        assert_eq!(column("age>3", &["age"]), ("age".to_owned(), false));
    }

    #[test]
    fn labels_of_other_values_have_a_rule_that_reads_them() {
        let (_, bit) = Rule::parse("y").unwrap();
        for (field, others, rule) in [
            ("-1", ["-1", "1"], "y > 0"),
            ("0.7", ["0", "0.7"], "y > 0"),
            ("False", ["False", "True"], "y == True"),
            ("yes", ["no", "yes"], "y == yes"),
        ] {
            assert_eq!(bit.label(field.as_bytes()), None);
            let advice = bit.advice("y", field.as_bytes(), false).unwrap();
            assert!(advice.contains(&format!("(label = {rule:?})")), "{advice}");
            let (_, found) = Rule::parse(rule).unwrap();
            assert_eq!(others.map(|field| found.label(field.as_bytes())), [Some(0.0), Some(1.0)], "{rule}");
        }
        assert!(bit.advice("y", b"5", false).unwrap().contains("\"y >= N\""));
        assert!(bit.advice("y", b"buy", false).unwrap().contains("\"y == TEXT\""));
        assert!(bit.advice("y", b"true", true).unwrap().contains("label = \"y\": if all rows have such labels"));
        for missing in MISSING {
            let advice = bit.advice("y", missing.as_bytes(), false).unwrap();
            let told =
                format!("say missing = [{missing:?}] in the schema and leave such rows out with --on-bad-row skip");
            assert!(advice.contains(&told) && !advice.contains("=="), "a missing label is not negative: {advice}");
        }
        assert_eq!([bit.advice("y", b" ", false), bit.advice("y", b"NULL", true)], [None, None]);
        assert_eq!(Rule::parse("y > 0").unwrap().1.advice("y", b"x", false), None);
    }
}
