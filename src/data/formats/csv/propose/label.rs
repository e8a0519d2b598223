//! Which column is the label, and when a row is positive.

use super::kind::words;
use super::seen::Seen;
use crate::base::units::Many;

/// Words in names of labels of two values, the surest first.
const LABELS: [&str; 15] = [
    "label",
    "target",
    "click",
    "clicked",
    "y",
    "converted",
    "conversion",
    "purchase",
    "purchased",
    "bought",
    "response",
    "outcome",
    "like",
    "liked",
    "class",
];
/// Words in names of ratings.
const RATINGS: [&str; 7] = ["rating", "ratings", "stars", "score", "grade", "overall", "rate"];
/// Values that say yes.
const POSITIVE: [&str; 10] = ["1", "true", "t", "yes", "y", "click", "clicked", "buy", "positive", "pos"];
/// Share of a rating's range above which a row is positive: 4 of 1 to 5.
const HIGH: f64 = 0.75;
/// Different values of a rating, of which one is the bound.
const STEPS: usize = 100;

/// A label's rule, the column that it is of, and why.
pub(super) type Found = (String, usize, String);

/// The label; in the error what stands against each candidate.
pub(super) fn label(columns: &[Seen]) -> Result<Found, String> {
    let named = |list: &[&str], seen: &Seen| {
        let words = words(&seen.name);
        list.iter().position(|known| words.iter().any(|word| word == known))
    };
    // Whole names before parts of names, surer words before others.
    let ranked = |list: &[&str]| {
        let found =
            columns.iter().enumerate().filter_map(|(at, seen)| Some((named(list, seen)?, words(&seen.name).len(), at)));
        let mut found: Vec<_> = found.collect();
        found.sort_by_key(|&(word, words, at)| (words > 1, word, words, at));
        found.into_iter().map(|(.., at)| at).collect::<Vec<_>>()
    };
    let named = ranked(&LABELS).into_iter().chain(ranked(&RATINGS));
    let two = named.clone().find_map(|at| two_values(&columns[at]).map(|(rule, why)| (rule, at, why)));
    let rating = || ranked(&RATINGS).into_iter().find_map(|at| rating(&columns[at]).map(|(rule, why)| (rule, at, why)));
    if let Some(found) = two.or_else(rating) {
        return Ok(found);
    }
    let mut bits = columns.iter().enumerate().filter(|(_, seen)| is_bit(seen));
    match (bits.next(), bits.next()) {
        (Some((at, seen)), None) => Ok((seen.name.clone(), at, "the only column of 0 and 1".to_owned())),
        (Some((_, a)), Some((_, b))) => {
            Err(format!("several columns hold 0 and 1 ({}, {}), and no name says which is the label", a.name, b.name))
        }
        _ => Err(match named.map(|at| &columns[at]).find(|seen| seen.present > 0 && seen.distinct() == 1) {
            Some(seen) => {
                format!("column {} holds {:?} in every row, so nothing can be learned of it", seen.name, seen.texts[0])
            }
            None => "no column is called as labels are and has two values, or numbers to compare".to_owned(),
        }),
    }
}

fn is_bit(seen: &Seen) -> bool {
    seen.blank == 0 && seen.distinct() == 2 && seen.texts.iter().all(|text| text == "0" || text == "1")
}

/// The rule of a column of two values.
fn two_values(seen: &Seen) -> Option<(String, String)> {
    if is_bit(seen) {
        return Some((seen.name.clone(), "0 and 1".to_owned()));
    }
    let [a, b] = &seen.texts[..] else { return None };
    if seen.blank > 0 || seen.distinct() != 2 {
        return None;
    }
    let (positive, why) = if seen.is_numeric() {
        let number = |text: &str| text.parse().unwrap_or(f64::NEG_INFINITY);
        (if number(a) > number(b) { a } else { b }, "the greater of")
    } else {
        let says_yes = |text: &&String| POSITIVE.contains(&&text.to_lowercase()[..]);
        match [a, b].into_iter().find(says_yes) {
            Some(positive) => (positive, "of"),
            None => (if seen.times(a) < seen.times(b) { a } else { b }, "the rarer of"),
        }
    };
    Some((format!("{} == {positive}", seen.name), format!("{why} {a:?} and {b:?}")))
}

/// What to do with a column that somebody takes for a label of 0 and 1, and whose values are others; of a few that are
/// others, the first is told with its line.
pub(super) fn advice(seen: &Seen) -> Option<String> {
    let name = &seen.name;
    let bits = ["0", "1"].iter().map(|bit| seen.times(bit)).sum::<u64>();
    if 2 * bits >= seen.counted {
        return None;
    }
    let (held, rule) = match two_values(seen).or_else(|| rating(seen)) {
        Some((rule, _)) if seen.is_numeric() => (format!("numbers from {} to {}", seen.least, seen.most), rule),
        Some((rule, _)) => (seen.texts.iter().map(|text| format!("{text:?}")).collect::<Vec<_>>().join(" and "), rule),
        None if seen.is_numeric() => (format!("numbers from {} to {}", seen.least, seen.most), format!("{name} >= N")),
        None => (
            seen.at_least().to_owned() + &Many(seen.distinct(), "different value").to_string(),
            format!("{name} == {}", seen.texts[0]),
        ),
    };
    Some(format!(
        "column {name} holds {held}, and a label is 0 or 1: say which rows are positive by a comparison (>=, <=, >, <, == or \
         !=), such as --label \"{rule}\""
    ))
}

/// The rule of a column of ratings.
fn rating(seen: &Seen) -> Option<(String, String)> {
    if !seen.is_numeric() || seen.blank > 0 || seen.distinct() < 3 {
        return None;
    }
    let bound = seen.least + HIGH * (seen.most - seen.least);
    // One of its values, if these are steps: integers are known all, halves follow from the bound.
    let whole = seen.whole == seen.present && seen.occurring.len() <= STEPS;
    let bound = if whole {
        seen.occurring.keys().map(|&value| value as f64).filter(|&value| value >= bound).fold(seen.most, f64::min)
    } else {
        (2.0 * bound).ceil() / 2.0
    };
    let bound = if bound > seen.least && bound <= seen.most { bound } else { seen.most };
    let why =
        format!("ratings from {} to {}; choose another bound if that is not what you mean", seen.least, seen.most);
    Some((format!("{} >= {bound}", seen.name), why))
}
