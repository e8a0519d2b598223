//! Numbers and times in forms that no schema reads, so that `inspect` says what they are and not that they are names.

use crate::data::moment::{Unit, is_digits};

/// What a text looks like.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Form {
    /// A number with a comma, a currency or a percent sign: 73987,93, 1,234, $1.50, 37%.
    Number,
    /// A date in another order, or a time without signs between its parts: 21.10.2014, 10/21/2014 03:00,
    /// 20141021030000.
    Time,
}

const MONTHS: [&str; 12] = [
    "january",
    "february",
    "march",
    "april",
    "may",
    "june",
    "july",
    "august",
    "september",
    "october",
    "november",
    "december",
];

impl Form {
    pub(super) const ALL: [Self; 2] = [Self::Number, Self::Time];

    /// What a field without blanks around it looks like, if it is none of these.
    pub(super) fn of(field: &[u8]) -> Option<Self> {
        let text = std::str::from_utf8(field).ok().filter(|text| text.len() <= 40)?;
        match () {
            () if is_number(text) => Some(Self::Number),
            // Also those that are read, but too early or too late for a time of our days: birth dates are categories.
            () if Unit::Written.parse(field).is_some() => None,
            () if is_time(text) => Some(Self::Time),
            () => None,
        }
    }

    /// Whether a field may stand among these: plain numbers do among the others.
    pub(super) fn takes(self, found: Option<Self>, is_number: bool) -> bool {
        found == Some(self) || self == Self::Number && is_number
    }

    /// What is said of a column of these; `example` is one of its values.
    pub(super) fn told(self, example: &str) -> String {
        let (what, advice) = match self {
            Self::Number => ("numbers", "write them with digits and a decimal point alone"),
            Self::Time => ("times", "write them as 2014-10-21 03:00:00, or in seconds since 1970"),
        };
        format!("its values look like {what} in a form that octorec does not read, such as {example:?}: {advice}")
    }
}

fn is_number(text: &str) -> bool {
    let signs = ['$', '€', '£', '¥', '%', ' '];
    let bare = text.trim_matches(signs);
    let digits = bare.strip_prefix(['-', '+']).unwrap_or(bare);
    let is_marked = bare.len() < text.len() && digits.parse::<f64>().is_ok();
    let mut parts = digits.split(',');
    let first = parts.next().unwrap_or_default();
    let others: Vec<_> = parts.collect();
    let has_comma = match others[..] {
        [] => false,
        // A decimal comma, perhaps with points between thousands.
        [last] if !last.contains('.') => is_digits(last) && first.split('.').all(is_digits),
        // Commas between thousands.
        _ => others.iter().all(|part| part.split('.').next().is_some_and(|part| part.len() == 3 && is_digits(part))),
    };
    digits.starts_with(|c: char| c.is_ascii_digit()) && (is_marked || has_comma && is_digits(&first.replace('.', "")))
}

fn is_time(text: &str) -> bool {
    if is_digits(text) {
        // A date, and an hour and a minute behind it, and perhaps a second.
        return matches!(text.len(), 12 | 14)
            && Unit::Days.parse(&text.as_bytes()[..8]).is_some()
            && &text[8..10] < "24";
    }
    let words: Vec<&str> = text.split(|c: char| !c.is_ascii_alphanumeric()).filter(|word| !word.is_empty()).collect();
    let is_month = |word: &str| word.len() >= 3 && MONTHS.iter().any(|month| month.starts_with(&word.to_lowercase()));
    let is_year = |word: &str| word.len() == 4 && is_digits(word) && ["19", "20"].contains(&&word[..2]);
    if words.len() >= 3 && words.iter().any(|word| is_month(word)) && words.iter().any(|word| is_year(word)) {
        return true;
    }
    let date = text.split([' ', 'T']).next().unwrap_or_default();
    let parts: Vec<&str> = date.split(['/', '.', '-']).collect();
    let below = |part: &str, bound: u32| part.len() <= 2 && part.parse().is_ok_and(|n: u32| (1..=bound).contains(&n));
    let pair = |a: &str, b: &str| below(a, 31) && below(b, 12) || below(a, 12) && below(b, 31);
    match parts[..] {
        [a, b, year] if is_year(year) => pair(a, b),
        [year, a, b] if is_year(year) => pair(a, b),
        [a, b, year] => date.contains('/') && pair(a, b) && year.len() == 2 && is_digits(year),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_and_times_of_other_forms_are_told_from_names() {
        let of = |text: &str| Form::of(text.as_bytes());
        for number in ["73987,93", "1,234", "12,345,678.90", "1.234,5", "$1.50", "-37%", "12 €", "+3,5", "0,5"] {
            assert_eq!(of(number), Some(Form::Number), "{number}");
        }
        for time in [
            "21.10.2014",
            "10/21/2014 03:00",
            "1/2/14",
            "2014/10/21 03:00:00",
            "20141021030000",
            "201410210300",
            "Tue, 21 Oct 2014 03:00:00 GMT",
            "21-Oct-2014",
            "October 21, 2014",
        ] {
            assert_eq!(of(time), Some(Form::Time), "{time}");
        }
        for other in [
            "",
            "12",
            "1.5",
            "17,4,0",
            "1,2,3",
            "10.0.0",
            "1.2.3",
            "192.168.0.1",
            "a,b",
            "37",
            "$",
            "%",
            "New York, 2014",
            "May",
            "31/12",
            "99/99/2014",
            "12345678901234",
            "u12%",
            "-",
            "2014",
            "marmalade jar 2014",
            "1,",
            ",5",
            "1985-04-12",
            "1970-01-01 00:00:00",
        ] {
            assert_eq!(of(other), None, "{other}");
        }
    }
}
