//! Which column is the label, and when a row is positive.

use super::super::label::BITS;
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

/// What to do where nothing tells the label.
const NAME_IT: &str = ": name the label with --label COLUMN, or --label \"COLUMN >= NUMBER\"";

/// The label; in the error what stands against each candidate, and what to do. `gaps`: rows whose label is blank are
/// left out.
pub(super) fn label(columns: &[Seen], gaps: bool) -> Result<Found, String> {
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
    let found = |gaps: bool| {
        let two = named.clone().find_map(|at| two_values(&columns[at], gaps).map(|(rule, why)| (rule, at, why)));
        let ratings = || ranked(&RATINGS).into_iter();
        two.or_else(|| ratings().find_map(|at| rating(&columns[at], gaps).map(|(rule, why)| (rule, at, why))))
    };
    if let Some(found) = found(gaps) {
        return Ok(found);
    }
    let mut bits = columns.iter().enumerate().filter(|(_, seen)| is_bit(seen, gaps));
    let bits = (bits.next(), bits.next());
    // A column of 0 and 1 that is called as labels are stands before one that is not, blank in some rows or not.
    let gapped = found(true);
    let is_surer = gapped.as_ref().is_some_and(|(_, at, _)| is_bit(&columns[*at], true));
    if let (Some((at, seen)), None) = bits
        && !is_surer
    {
        return Ok((seen.name.clone(), at, "the only column of 0 and 1".to_owned()));
    }
    if let Some((rule, at, _)) = gapped {
        let Seen { name, blank, .. } = &columns[at];
        return Err(format!(
            "column {name} can be the label ({rule}), but is blank in {}: leave them out with --on-bad-row skip, or name \
             another one with --label",
            Many(*blank, "row")
        ));
    }
    match bits {
        (Some((_, a)), Some((_, b))) => {
            let names = format!("{}, {}", a.name, b.name);
            Err(format!("several columns hold 0 and 1 ({names}), and no name says which is the label{NAME_IT}"))
        }
        _ => Err(match named.map(|at| &columns[at]).find(|seen| seen.present > 0 && seen.distinct() == 1) {
            Some(seen) => {
                let (name, value) = (&seen.name, &seen.texts[0]);
                format!("column {name} holds {value:?} in every row, so nothing can be learned of it{NAME_IT}")
            }
            None => format!("no column is called as labels are and has two values, or numbers to compare{NAME_IT}"),
        }),
    }
}

fn is_bit(seen: &Seen, gaps: bool) -> bool {
    (gaps || seen.blank == 0) && seen.distinct() == 2 && seen.texts.iter().all(|text| text == "0" || text == "1")
}

/// The rule of a column of two values.
fn two_values(seen: &Seen, gaps: bool) -> Option<(String, String)> {
    if is_bit(seen, gaps) {
        return Some((seen.name.clone(), "0 and 1".to_owned()));
    }
    let [a, b] = &seen.texts[..] else { return None };
    if (seen.blank > 0 && !gaps) || seen.distinct() != 2 {
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
    let bits = BITS.iter().map(|(bit, _)| seen.times(bit)).sum::<u64>();
    if 2 * bits >= seen.counted {
        return None;
    }
    let (held, rule) = match two_values(seen, false).or_else(|| rating(seen, false)) {
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
fn rating(seen: &Seen, gaps: bool) -> Option<(String, String)> {
    if !seen.is_numeric() || (seen.blank > 0 && !gaps) || seen.distinct() < 3 {
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
