//! What a column is, by its name and the magnitudes of its values.
//!
//! Names decide little, as most logs have names of their own. What tells kinds apart are magnitudes: how many of the
//! values differ, whether they only rise, whether they are seconds of our days, how often small integers occur.

use super::super::sniff::{Stated, stated};
use super::form::Form;
use super::seen::{SEPARATORS, Seen};
use crate::base::units::Count;
use crate::data::moment::Unit;
use crate::data::schema::Transform;

/// What a column is.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Kind {
    /// Nothing to learn from.
    Out,
    /// Moments: which of hour and weekday differ.
    Time { unit: Unit, hour: bool, weekday: bool },
    /// Lists of values.
    List(&'static str),
    /// A number.
    Dense { transform: Transform, float: bool },
    /// A value of many.
    Categorical,
}

/// Rows from which on values that never repeat tell something.
const ENOUGH: u64 = 20;
/// Different integers up to which a column is categorical whatever they are.
const FEW: u64 = 50;
/// Times that an integer occurs in the mean from which on its category can be learned: it need not be a number then.
const OFTEN: f64 = 5.0;

/// Last words of names of things that are told apart, not counted.
const IDENTIFIERS: &str = "id ids uid iid uuid guid key code hash index idx user item movie product article video song \
                           artist ad advertiser campaign creative publisher site app device model brand category zip \
                           zipcode postcode sku asin isbn ip domain session customer account store shop city country \
                           state region type userid itemid movieid productid adid deviceid sessionid";
/// Words in names of moments.
const TIMES: &str = "time timestamp ts date datetime day hour unix epoch created";

/// The words of a name: `movieId` and `movie_id` have the same.
pub(super) fn words(name: &str) -> Vec<String> {
    let mut words = vec![String::new()];
    let mut lower = false;
    for c in stated(name).0.chars() {
        if !c.is_alphanumeric() || (c.is_uppercase() && lower) {
            words.push(String::new());
        }
        lower = c.is_lowercase();
        words
            .last_mut()
            .expect("there is one")
            .extend(c.is_alphanumeric().then_some(c).into_iter().flat_map(char::to_lowercase));
    }
    words.retain(|word| !word.is_empty());
    words
}

fn has(list: &str, word: &str) -> bool {
    list.split_whitespace().any(|known| known == word)
}

fn is_identifier(name: &str) -> bool {
    words(name).last().is_some_and(|word| has(IDENTIFIERS, word))
}

fn is_time(name: &str) -> bool {
    words(name).iter().any(|word| has(TIMES, word))
}

/// What a column is, and why; `whole`: all rows of the file were seen.
pub(super) fn kind(seen: &Seen, whole: bool) -> (Kind, String) {
    let (present, distinct) = (seen.present, seen.distinct());
    if distinct == 0 {
        return (Kind::Out, "all its fields are blank".to_owned());
    }
    if distinct == 1 && seen.blank == 0 {
        return (Kind::Out, format!("its value is {:?} in every row", seen.texts[0]));
    }
    if let Some(found) = time(seen) {
        return found;
    }
    if stated(&seen.name).1 == Some(Stated::Floats) {
        return (Kind::Out, "a vector of numbers, by its header: no feature that a model has a place for".to_owned());
    }
    let form = seen.form();
    let is_told = stated(&seen.name).1.is_some() || is_identifier(&seen.name) && !is_time(&seen.name);
    if let (Some((Form::Time, told)), false) = (&form, is_told) {
        return (Kind::Out, told.clone());
    }
    let fractions = seen.is_numeric() && seen.whole < present;
    if distinct == seen.counted && present >= ENOUGH && !fractions && names_rows(seen) {
        if let Some((_, told)) = form {
            return (Kind::Out, told);
        }
        let first = if seen.counted < present { "first " } else { "" };
        let values = format!("each of its {first}{} values", Count(distinct));
        return (Kind::Out, format!("{values} occurs once, as a row's number or name"));
    }
    match stated(&seen.name).1 {
        Some(Stated::Token) => {
            let tokens = format!("{}{} tokens", seen.at_least(), Count(distinct));
            return (Kind::Categorical, format!("{tokens}, by its header"));
        }
        Some(Stated::Tokens) => return (Kind::List(" "), "lists of tokens, by its header".to_owned()),
        _ => (),
    }
    if !seen.is_numeric() || seen.padded > 0 {
        return text(seen, whole);
    }
    if fractions {
        let (transform, how) = transform(seen);
        return (Kind::Dense { transform, float: true }, format!("numbers with fractions{how}"));
    }
    integers(seen)
}

/// Whether values of which each occurs once name rows, rather than measure something.
fn names_rows(seen: &Seen) -> bool {
    let range = seen.most - seen.least + 1.0;
    !seen.is_numeric()
        || seen.rising
        || is_identifier(&seen.name)
        || seen.most >= f64::from(i32::MAX)
        // All or most of the numbers of a range, in any order.
        || range <= 2.0 * seen.present as f64
}

fn time(seen: &Seen) -> Option<(Kind, String)> {
    let named = is_time(&seen.name);
    if is_identifier(&seen.name) && !named {
        return None;
    }
    // Eight digits can be a date in two ways; a name that speaks of hours, or a day 0, tells which.
    let hourly = words(&seen.name).iter().any(|word| word == "hour");
    let mut fits: Vec<_> = seen.moments.iter().filter(|moments| moments.all).collect();
    fits.sort_by_key(|moments| moments.unit == if hourly { Unit::Days } else { Unit::Hours });
    let found = *fits.first()?;
    // Some of few numbers look like moments by chance, and so do numbers that are given away in order of time.
    let is_sure = seen.distinct() >= ENOUGH && found.unit != Unit::Nanoseconds;
    if !(named || is_sure || found.unit == Unit::Written) {
        return None;
    }
    let (hour, weekday) = (found.hours() > 1, found.weekdays() > 1);
    let what = match found.unit {
        Unit::Seconds | Unit::Milliseconds | Unit::Microseconds | Unit::Nanoseconds => {
            format!("times in {} since 1970", found.unit.name())
        }
        unit => format!("times as {}", unit.name()),
    };
    let parts = match (hour, weekday) {
        (true, true) => "the hour of the day and the day of the week",
        (true, false) => "the hour of the day",
        (false, true) => "the day of the week",
        (false, false) => return Some((Kind::Out, format!("{what}, all of one hour and weekday"))),
    };
    let age = "; their age would be [[dense]] with time = \"age\"";
    Some((Kind::Time { unit: found.unit, hour, weekday }, format!("{what}: {parts}{age}")))
}

fn text(seen: &Seen, whole: bool) -> (Kind, String) {
    let (counted, distinct) = (seen.counted, seen.distinct());
    if seen.bracketed == seen.present && seen.lists.iter().any(|list| list.several > 0) {
        let advice =
            "write the values alone, one text between them, such as \"|\".join(values), which separator then names";
        return (Kind::Out, format!("lists as programs print them, brackets and all: {advice}"));
    }
    let form = seen.form();
    for (list, separator) in seen.lists.iter().zip(SEPARATORS) {
        // Values of lists occur again, in this field and others; words of names do not.
        let repeats = list.distinct.len() as f64 <= 0.5 * list.parts as f64;
        if 20 * list.several > counted && repeats && list.distinct.len() as u64 <= distinct {
            // 93,73 is no 73,93: a list has no order.
            if let (Some((Form::Number, told)), ",") = (&form, separator) {
                return (Kind::Out, format!("{told}; if these are lists: [[categorical]] with separator = \",\""));
            }
            let what = format!("lists of {}{} values", seen.at_least(), Count(list.distinct.len() as u64));
            return (Kind::List(separator), format!("{what}, separated by {separator:?}"));
        }
    }
    if whole && counted >= ENOUGH && 20 * distinct >= 19 * counted {
        if let Some((_, told)) = form {
            return (Kind::Out, told);
        }
        let share = 100 * distinct / counted;
        return (Kind::Out, format!("{share} % of its values differ: too few occur again to learn from"));
    }
    let told = form.map_or_else(String::new, |(_, told)| format!("; {told}"));
    (Kind::Categorical, format!("{}{} different values{told}", seen.at_least(), Count(distinct)))
}

fn integers(seen: &Seen) -> (Kind, String) {
    let distinct = seen.distinct();
    let mean = seen.counted as f64 / distinct as f64;
    let values = format!("{}{} different integers", seen.at_least(), Count(distinct));
    // Numbers beyond an i32 are read as floats.
    let float = seen.integers < seen.present || seen.most > f64::from(i32::MAX) || seen.least < -f64::from(i32::MAX);
    if stated(&seen.name).1 == Some(Stated::Float) {
        let (transform, how) = transform(seen);
        return (Kind::Dense { transform, float }, format!("{values}, numbers by its header{how}"));
    }
    if is_identifier(&seen.name) {
        return (Kind::Categorical, format!("{values}, identifiers by the name"));
    }
    if distinct <= FEW && (seen.present < ENOUGH || mean >= 2.0) {
        return (Kind::Categorical, values);
    }
    if counts(seen) {
        return (
            Kind::Dense { transform: Transform::Log, float },
            format!("{values}, small ones the most frequent: counts"),
        );
    }
    let numbered = (0.0..=1.0).contains(&seen.least) && distinct as f64 >= 0.3 * seen.range();
    if mean >= OFTEN || numbered || repeats_without_neighbours(seen) {
        return (
            Kind::Categorical,
            format!("{values}, each {mean:.1} times in the mean: identifiers by their repetition"),
        );
    }
    let (transform, how) = transform(seen);
    (Kind::Dense { transform, float }, format!("{values}, few of them twice: a measure{how}"))
}

/// Whether these are counts: most are small, small ones all occur, some are large.
fn counts(seen: &Seen) -> bool {
    let small = (0..10).filter(|value| seen.occurring.contains_key(value)).count();
    let median = seen.quantile(0.5);
    seen.least >= 0.0
        && small >= 5
        && seen.quantile(0.99) >= 10.0 * median.max(1.0)
        && seen.commonest().is_some_and(|commonest| commonest as f64 <= median)
}

/// Whether values repeat, but hardly any has a neighbour: numbers of a hash do so, measures do not.
fn repeats_without_neighbours(seen: &Seen) -> bool {
    let pairs: f64 = seen.occurring.values().map(|&times| (times * (times - 1)) as f64).sum();
    let next = |value: i64| value.checked_add(1).and_then(|next| seen.occurring.get(&next)).copied().unwrap_or(0);
    let neighbours: f64 = seen.occurring.iter().map(|(&value, &times)| (times * next(value)) as f64).sum();
    pairs >= 50.0 && neighbours < 0.2 * pairs
}

/// Numbers over several magnitudes are seen by their logarithm, others by how far from the mean they are.
fn transform(seen: &Seen) -> (Transform, &'static str) {
    let median = seen.quantile(0.5);
    if seen.least >= 0.0 && seen.quantile(0.99) >= 10.0 * median && seen.most > 1.0 {
        (Transform::Log, " over several magnitudes")
    } else {
        (Transform::Standardise, "")
    }
}
