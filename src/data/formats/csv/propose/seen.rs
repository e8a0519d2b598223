//! What the first rows tell of a column: its values as text, as numbers, as moments and as lists.

use std::collections::{HashMap, HashSet};

use twox_hash::XxHash3_64;

use super::super::lookups::values_of;
use super::super::number;
use super::form::Form;
use crate::data::moment::{Moment, Unit};
use crate::data::survey::SystematicSample;

/// Separators of lists, the likeliest first.
pub(super) const SEPARATORS: [&str; 4] = ["|", ";", ",", " "];

/// What programs write where there is no value.
pub(in super::super) const MISSING: [&str; 8] = ["nan", "NaN", "NULL", "null", "None", "NA", "N/A", "\\N"];

/// Different values that are counted, more than rows are looked at unless somebody asks for more.
const MOST: usize = 1 << 20;

/// Different texts that are kept.
const TEXTS: usize = 3;

/// A column's values.
pub(super) struct Seen {
    /// Its name in the header.
    pub(super) name: String,
    /// Fields that are not blank.
    pub(super) present: u64,
    pub(super) blank: u64,
    /// Those of them whose value is counted: one of the first [`MOST`] different ones.
    pub(super) counted: u64,
    /// How often each text of [`MISSING`] occurs, until [`Seen::settle`] says what it is.
    aside: [u64; MISSING.len()],
    /// How often each value occurs, by its hash.
    values: HashMap<u64, u64>,
    /// The first different values.
    pub(super) texts: Vec<String>,
    /// Those that are finite numbers, and those of them that are whole, and whole without a sign of a fraction.
    pub(super) numbers: u64,
    pub(super) whole: u64,
    pub(super) integers: u64,
    /// Numbers that are not written as numbers are: 00501.
    pub(super) padded: u64,
    pub(super) least: f64,
    pub(super) most: f64,
    /// How often each integer occurs.
    pub(super) occurring: HashMap<i64, u64>,
    last: f64,
    /// Whether no number is less than, or equal to, the one before.
    pub(super) rising: bool,
    /// For quantiles.
    kept: SystematicSample,
    pub(super) lists: [List; SEPARATORS.len()],
    /// Texts between square brackets.
    pub(super) bracketed: u64,
    pub(super) moments: [Moments; Unit::ALL.len()],
    forms: [Formed; Form::ALL.len()],
}

/// A column of values in a form that nobody reads.
struct Formed {
    form: Form,
    /// Whether all may be.
    all: bool,
    /// The first that is.
    example: Option<String>,
}

/// A column as lists.
#[derive(Default)]
pub(super) struct List {
    /// Fields of several values.
    pub(super) several: u64,
    /// All values, and different ones.
    pub(super) parts: u64,
    pub(super) distinct: HashSet<u64>,
}

/// A column as moments.
pub(super) struct Moments {
    pub(super) unit: Unit,
    /// Whether all are: between 1990 and 2040.
    pub(super) all: bool,
    hours: u32,
    weekdays: u32,
}

fn hash(field: &[u8]) -> u64 {
    XxHash3_64::oneshot(field)
}

impl Seen {
    pub(super) fn new(name: &str) -> Self {
        Self {
            name: name.to_owned(),
            present: 0,
            blank: 0,
            counted: 0,
            aside: [0; MISSING.len()],
            values: HashMap::new(),
            texts: Vec::new(),
            numbers: 0,
            whole: 0,
            integers: 0,
            padded: 0,
            least: f64::INFINITY,
            most: f64::NEG_INFINITY,
            occurring: HashMap::new(),
            last: f64::NEG_INFINITY,
            rising: true,
            kept: SystematicSample::default(),
            lists: Default::default(),
            bracketed: 0,
            moments: Unit::ALL.map(|unit| Moments { unit, all: true, hours: 0, weekdays: 0 }),
            forms: Form::ALL.map(|form| Formed { form, all: true, example: None }),
        }
    }

    /// Looks at a field.
    pub(super) fn add(&mut self, field: &[u8]) {
        let field = field.trim_ascii();
        if field.is_empty() {
            self.blank += 1;
            return;
        }
        match MISSING.iter().position(|text| text.as_bytes() == field) {
            Some(at) => self.aside[at] += 1,
            None => self.add_value(field),
        }
    }

    /// Whether a text of [`MISSING`] occurs among what else are numbers or moments.
    pub(super) fn lacks_by(&self, text: &str) -> bool {
        let occurs = MISSING.iter().zip(self.aside).any(|(known, times)| *known == text && times > 0);
        occurs && self.present > 0 && (self.is_numeric() || self.moments.iter().any(|moments| moments.all))
    }

    /// Takes these texts of [`MISSING`] for blanks, and the others for values, when all fields were seen.
    pub(super) fn settle(&mut self, blank: &[String]) {
        for (text, times) in MISSING.into_iter().zip(std::mem::take(&mut self.aside)) {
            match blank.iter().any(|known| known == text) {
                true => self.blank += times,
                false => (0..times).for_each(|_| self.add_value(text.as_bytes())),
            }
        }
    }

    fn add_value(&mut self, field: &[u8]) {
        self.present += 1;
        let counts = self.values.len() < MOST && self.lists.iter().all(|list| list.distinct.len() < MOST);
        let key = hash(field);
        // Behind the limit no value is new, and those that are known are counted on.
        if counts || self.values.contains_key(&key) {
            self.counted += 1;
            let times = self.values.entry(key).or_insert(0);
            *times += 1;
            if *times == 1 && self.texts.len() < TEXTS {
                self.texts.push(String::from_utf8_lossy(field).into_owned());
            }
        }
        self.bracketed += u64::from(field.starts_with(b"[") && field.ends_with(b"]"));
        let number = number(field);
        if self.forms.iter().any(|formed| formed.all) {
            // Of plain numbers, only those of so many digits can be times.
            let is_plain = number.is_some() && !matches!(field.len(), 12 | 14);
            let found = if is_plain { None } else { Form::of(field) };
            self.forms.iter_mut().for_each(|formed| formed.add(field, found, number.is_some()));
        }
        match number {
            Some(value) => self.add_number(field, value, counts),
            None if !counts => (),
            None => {
                for (list, separator) in self.lists.iter_mut().zip(SEPARATORS) {
                    list.add(field, separator);
                }
            }
        }
        self.moments.iter_mut().filter(|moments| moments.all).for_each(|moments| moments.add(field));
    }

    fn add_number(&mut self, field: &[u8], value: f64, counts: bool) {
        self.numbers += 1;
        self.whole += u64::from(value.fract() == 0.0);
        self.integers += u64::from(!field.iter().any(|byte| matches!(byte, b'.' | b'e' | b'E')));
        let digits = field.strip_prefix(b"-").unwrap_or(field);
        self.padded += u64::from(digits.len() > 1 && digits[0] == b'0' && digits[1].is_ascii_digit());
        (self.least, self.most) = (self.least.min(value), self.most.max(value));
        self.rising &= value > self.last;
        self.last = value;
        if counts && value.fract() == 0.0 && value.abs() < 9e15 {
            *self.occurring.entry(value as i64).or_insert(0) += 1;
        }
        self.kept.push(self.numbers - 1, value);
    }

    /// Different values of the fields that are counted.
    pub(super) fn distinct(&self) -> u64 {
        self.values.len() as u64
    }

    /// What is said before a number of different values.
    pub(super) fn at_least(&self) -> &'static str {
        if self.counted < self.present { "at least " } else { "" }
    }

    /// From the least to the greatest number of the fields that are counted.
    pub(super) fn range(&self) -> f64 {
        let all = || self.occurring.keys();
        match (all().min(), all().max()) {
            (Some(&least), Some(&most)) if self.counted < self.present => most as f64 - least as f64,
            _ => self.most - self.least,
        }
    }

    /// How often a value occurs.
    pub(super) fn times(&self, text: &str) -> u64 {
        self.values.get(&hash(text.as_bytes())).copied().unwrap_or(0)
    }

    /// What is said of values that all are in a form that nobody reads, and which form that is.
    pub(super) fn form(&self) -> Option<(Form, String)> {
        let found =
            self.forms.iter().filter(|formed| formed.all).find_map(|formed| Some((formed, formed.example.as_ref()?)));
        found.map(|(formed, example)| (formed.form, formed.form.told(example)))
    }

    /// Whether all are numbers.
    pub(super) fn is_numeric(&self) -> bool {
        self.present > 0 && self.numbers == self.present
    }

    /// The number below which this share of numbers is.
    pub(super) fn quantile(&self, share: f64) -> f64 {
        let mut kept = self.kept.numbers().to_vec();
        kept.sort_unstable_by(f64::total_cmp);
        let at = (share * kept.len() as f64) as usize;
        kept.get(at.min(kept.len().saturating_sub(1))).copied().unwrap_or(0.0)
    }

    /// The integer that occurs most often; the least of several.
    pub(super) fn commonest(&self) -> Option<i64> {
        self.occurring.iter().max_by_key(|&(value, times)| (*times, std::cmp::Reverse(*value))).map(|(value, _)| *value)
    }
}

impl List {
    fn add(&mut self, field: &[u8], separator: &str) {
        let before = self.parts;
        for value in values_of(field, separator, "") {
            self.parts += 1;
            self.distinct.insert(hash(value));
        }
        self.several += u64::from(self.parts > before + 1);
    }
}

impl Formed {
    fn add(&mut self, field: &[u8], found: Option<Form>, is_number: bool) {
        self.all &= self.form.takes(found, is_number);
        if found == Some(self.form) && self.example.is_none() {
            self.example = Some(String::from_utf8_lossy(field).into_owned());
        }
    }
}

impl Moments {
    fn add(&mut self, field: &[u8]) {
        const YEAR: i32 = 31_557_600;
        let found = self.unit.parse(field).filter(|&Moment(seconds)| (-10 * YEAR..40 * YEAR).contains(&seconds));
        match found {
            None => self.all = false,
            Some(moment) => {
                self.hours |= 1 << moment.hour();
                self.weekdays |= 1 << moment.weekday();
            }
        }
    }

    /// Hours of the day that occur.
    pub(super) fn hours(&self) -> u32 {
        self.hours.count_ones()
    }

    /// Days of the week that occur.
    pub(super) fn weekdays(&self) -> u32 {
        self.weekdays.count_ones()
    }
}

#[cfg(test)]
mod tests {
    use super::super::kind::{Kind, kind};
    use super::*;

    #[test]
    fn of_very_many_values_the_first_ones_are_counted() {
        let [mut user, mut name, mut price] = ["user", "name", "price"].map(Seen::new);
        let rows = MOST as u64 + 5000;
        for row in 0..rows {
            user.add((row / 2).to_string().as_bytes());
            name.add(row.to_string().as_bytes());
            price.add((row * 3).to_string().as_bytes());
        }
        assert_eq!((user.counted, user.at_least(), user.distinct()), (rows, "", rows.div_ceil(2)));
        for seen in [&name, &price] {
            assert_eq!((seen.present, seen.counted, seen.distinct()), (rows, MOST as u64, MOST as u64));
            assert_eq!((seen.occurring.len(), seen.at_least(), seen.numbers), (MOST, "at least ", rows));
        }
        assert_eq!((price.range(), price.most), (3.0 * (MOST - 1) as f64, 3.0 * (rows - 1) as f64));
        let (found, reason) = kind(&name, true);
        assert!(found == Kind::Out && reason.contains("each of its first 1,048,576 values occurs once"), "{reason}");
        // Of known values more are counted, of others none.
        name.add(b"0");
        name.add(b"a word");
        assert_eq!((name.counted, name.distinct()), (MOST as u64 + 1, MOST as u64));
        let (found, reason) = kind(&name, true);
        assert!(found == Kind::Out && reason.contains("99 % of its values differ"), "{reason}");
    }
}
