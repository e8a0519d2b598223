//! Ways to damage bytes, and to change documents so that their reader is asked for the impossible.

use super::chance::Chance;

/// What was done to a file, for people, and whether a reader that has checksums must notice: a whole range cut out of
/// the middle of a text may leave a text.
pub struct Damage {
    /// In words.
    pub what: String,
    /// A flipped bit, or an end that is missing.
    pub plain: bool,
}

/// Damages bytes in one of many ways; at least one byte differs afterwards, unless there was none.
pub fn damage(chance: &mut Chance, bytes: &mut Vec<u8>) -> Damage {
    let told = |what: String, plain| Damage { what, plain };
    if bytes.is_empty() {
        bytes.push(chance.word() as u8);
        return told("a byte in an empty file".to_owned(), false);
    }
    let length = bytes.len();
    let (at, to) = (chance.below(length), chance.below(length));
    let (from, to) = (at.min(to), at.max(to) + 1);
    match chance.below(14) {
        0..=5 => {
            let bit = chance.below(8);
            bytes[at] ^= 1 << bit;
            told(format!("bit {bit} of byte {at} flipped"), true)
        }
        6..=8 => {
            bytes.truncate(at);
            told(format!("cut to {at} of {length} bytes"), true)
        }
        9 => {
            bytes[at] = bytes[at].wrapping_add(1 + chance.below(255) as u8);
            told(format!("byte {at} changed to {}", bytes[at]), false)
        }
        10 => {
            bytes.drain(from..to);
            told(format!("bytes {from} to {to} taken out"), false)
        }
        11 => {
            let more: Vec<u8> = (0..chance.between(1, 40)).map(|_| chance.word() as u8).collect();
            let what = format!("{} bytes put in at {at}", more.len());
            bytes.splice(at..at, more);
            told(what, false)
        }
        12 => {
            bytes[from..to].fill(if chance.once_in(2) { 0 } else { 0xff });
            told(format!("bytes {from} to {to} overwritten"), false)
        }
        _ => {
            let again = bytes[from..to.min(from + 4096)].to_vec();
            bytes.extend(again);
            told(format!("bytes {from} on once more at the end"), false)
        }
    }
}

/// Numbers at the edges of what types hold.
const EXTREMES: &[&str] = &[
    "0",
    "-1",
    "1",
    "2",
    "3",
    "7",
    "65",
    "1000000",
    "2147483648",
    "4294967295",
    "4294967296",
    "9007199254740993",
    "9223372036854775807",
    "9223372036854775808",
    "18446744073709551615",
    "18446744073709551616",
    "-9223372036854775808",
    "0.5",
    "1e-320",
    "1e308",
    "1e999",
    "-1e308",
    "nan",
    "inf",
    "-inf",
    "0x7fffffffffffffff",
];

/// Values that are no numbers.
const STRANGE: &[&str] = &[
    "\"\"",
    "[]",
    "{}",
    "true",
    "[0]",
    "[[]]",
    "\"\\u0000\"",
    "\"x\"",
    "[1,2,3,4,5,6,7,8,9]",
    "\"..\"",
    "1979-05-27",
    "[-1]",
    "[18446744073709551615]",
    "''",
    "\"host\"",
    "null",
    "\u{feff}",
    "\u{202e}abc",
];

/// A value that nobody expects.
pub fn value(chance: &mut Chance) -> String {
    match chance.below(6) {
        0..=3 => (*chance.pick(EXTREMES)).to_owned(),
        4 => (*chance.pick(STRANGE)).to_owned(),
        _ => nested(chance),
    }
}

fn nested(chance: &mut Chance) -> String {
    let depth = *chance.pick(&[3, 100, 5000, 100_000]);
    format!("{}{}", "[".repeat(depth), "]".repeat(depth))
}

/// Changes a document: numbers become extreme, lines vanish, come twice or change places, words of it stand elsewhere.
pub fn twist(chance: &mut Chance, text: &str) -> (String, String) {
    let lines: Vec<&str> = text.lines().collect();
    let numbers = spans(text, |c| c.is_ascii_digit());
    let words = spans(text, |c| c.is_ascii_alphanumeric() || c == '_');
    match chance.below(10) {
        0..=3 if !numbers.is_empty() => {
            let (from, to) = *chance.pick(&numbers);
            let new = (*chance.pick(EXTREMES)).to_owned();
            let what = format!("{} at byte {from} became {new}", &text[from..to]);
            (format!("{}{new}{}", &text[..from], &text[to..]), what)
        }
        4 | 5 if lines.iter().any(|line| line.contains('=')) => {
            let with: Vec<usize> = (0..lines.len()).filter(|&at| lines[at].contains('=')).collect();
            let at = *chance.pick(&with);
            let (key, new) = (lines[at].split('=').next().unwrap_or_default(), value(chance));
            let shown: String = new.chars().take(30).collect();
            let what = format!("line {}: {key}= {shown}", at + 1);
            let mut lines: Vec<String> = lines.iter().map(|line| (*line).to_owned()).collect();
            lines[at] = format!("{key}= {new}");
            (lines.join("\n"), what)
        }
        6 if words.len() > 1 => {
            let (from, to) = *chance.pick(&words);
            let (a, b) = *chance.pick(&words);
            let what = format!("{} at byte {from} became {}", &text[from..to], &text[a..b]);
            (format!("{}{}{}", &text[..from], &text[a..b], &text[to..]), what)
        }
        7 if lines.len() > 1 => {
            let at = chance.below(lines.len());
            let mut lines = lines;
            lines.remove(at);
            (lines.join("\n"), format!("line {} left out", at + 1))
        }
        8 if !lines.is_empty() => {
            let (at, times) = (chance.below(lines.len()), *chance.pick(&[2, 3, 50]));
            let mut lines = lines;
            let line = lines[at];
            lines.splice(at..=at, std::iter::repeat_n(line, times));
            (lines.join("\n"), format!("line {} {times} times", at + 1))
        }
        _ => {
            let at = (0..=chance.below(text.len() + 1)).rev().find(|&at| text.is_char_boundary(at)).unwrap_or(0);
            let new = *chance
                .pick(&["\0", "\r", "\n", "[", "[[x]]\n", "\"", "{", "<", "&", "\u{feff}", "=", "#", "\t\t", "é"]);
            (format!("{}{new}{}", &text[..at], &text[at..]), format!("{new:?} at byte {at}"))
        }
    }
}

/// Where runs of such characters lie.
fn spans(text: &str, is: impl Fn(char) -> bool) -> Vec<(usize, usize)> {
    let mut found = Vec::new();
    let mut from = None;
    for (at, c) in text.char_indices().chain([(text.len(), '\n')]) {
        match (is(c), from) {
            (true, None) => from = Some(at),
            (false, Some(start)) => {
                found.push((start, at));
                from = None;
            }
            _ => (),
        }
    }
    found
}
