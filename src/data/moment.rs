//! Moments of time in text: what hour of the day, what day of the week, how old.
//!
//! All are UTC, unless they say how far from that they are: a log that says nothing else is taken at its word, and a
//! shifted clock has the same hours under other names.

use super::samples::MISSING;
use crate::base::named;

/// Seconds from the start of 1970, from which logs count, to that of 2000, from which a [`Moment`] does.
const EPOCH: i64 = 946_684_800;
/// Seconds of a day.
pub(super) const DAY: i64 = 86_400;

named! {
    /// How a column writes moments.
    #[derive(Default)]
    pub enum Unit {
        /// Seconds since 1970; fractions are cut off.
        #[default]
        Seconds = "seconds",
        /// Milliseconds since 1970.
        Milliseconds = "milliseconds",
        /// Microseconds since 1970.
        Microseconds = "microseconds",
        /// Nanoseconds since 1970.
        Nanoseconds = "nanoseconds",
        /// Two digits each of year, month, day and hour: 14102103 is the 21st of October 2014, 3 o'clock.
        Hours = "YYMMDDHH",
        /// Four digits of the year, two each of month and day: 20141021.
        Days = "YYYYMMDD",
        /// A date and, behind a blank or a T, a time of the day, perhaps with its distance from UTC:
        /// 2014-10-21 03:00:00, 2014-10-21 05:00:00+02:00.
        Written = "YYYY-MM-DD",
    }
}

/// Whole seconds since the start of 2000, from 1932 to 2068.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Moment(pub i32);

impl Unit {
    /// What a field has to be, for messages.
    #[must_use]
    pub const fn expects(self) -> &'static str {
        match self {
            Self::Seconds => "a time in seconds since 1970, from 1932 to 2068",
            Self::Milliseconds => "a time in milliseconds since 1970, from 1932 to 2068",
            Self::Microseconds => "a time in microseconds since 1970, from 1932 to 2068",
            Self::Nanoseconds => "a time in nanoseconds since 1970, from 1932 to 2068",
            Self::Hours => "a time as YYMMDDHH, such as 14102103, from 2000 to 2068",
            Self::Days => "a date as YYYYMMDD, such as 20141021, from 1932 to 2068",
            Self::Written => "a date as YYYY-MM-DD, with or without a time as HH:MM:SS behind it, from 1932 to 2068",
        }
    }

    /// The moment that a field is; `None` where it is none.
    #[must_use]
    pub fn parse(self, field: &[u8]) -> Option<Moment> {
        let text = std::str::from_utf8(field).ok()?.trim();
        let seconds = match self {
            Self::Seconds => whole(text)?,
            Self::Milliseconds => whole(text)?.div_euclid(1_000),
            Self::Microseconds => whole(text)?.div_euclid(1_000_000),
            Self::Nanoseconds => whole(text)?.div_euclid(1_000_000_000),
            Self::Hours => {
                let [year, month, day, hour] = pairs(text)?;
                moment_of(2000 + year, month, day)? + 3600 * below(hour, 24)?
            }
            Self::Days => {
                let [century, year, month, day] = pairs(text)?;
                moment_of(100 * century + year, month, day)?
            }
            Self::Written => written(text)?,
        };
        let since = i32::try_from(seconds.checked_sub(EPOCH)?).ok()?;
        (since != MISSING).then_some(Moment(since))
    }
}

impl Moment {
    /// The hour of the day, from 0 to 23.
    #[must_use]
    pub fn hour(self) -> u32 {
        (i64::from(self.0).rem_euclid(DAY) / 3600) as u32
    }

    /// The day of the week, from Monday, 0, to Sunday, 6.
    #[must_use]
    pub fn weekday(self) -> u32 {
        // The year 2000 began on a Saturday.
        (i64::from(self.0).div_euclid(DAY) + 5).rem_euclid(7) as u32
    }

    /// Days from here to a moment that is not older, fractions included; negative where it is.
    #[must_use]
    pub fn days_until(self, newest: Self) -> f64 {
        (i64::from(newest.0) - i64::from(self.0)) as f64 / DAY as f64
    }
}

/// A whole number, or the whole part of one with a fraction, as other programs write them.
fn whole(text: &str) -> Option<i64> {
    text.parse().ok().or_else(|| {
        let value: f64 = text.parse().ok()?;
        (value.abs() < 9e15).then(|| value.floor() as i64)
    })
}

/// Four pairs of digits.
fn pairs(text: &str) -> Option<[i64; 4]> {
    let digits: [u8; 8] = text.as_bytes().try_into().ok()?;
    if !digits.iter().all(u8::is_ascii_digit) {
        return None;
    }
    let pair = |at: usize| i64::from(digits[2 * at] - b'0') * 10 + i64::from(digits[2 * at + 1] - b'0');
    Some(std::array::from_fn(pair))
}

fn below(value: i64, bound: i64) -> Option<i64> {
    (0..bound).contains(&value).then_some(value)
}

/// Seconds from the start of 1970 to that of a day of the Gregorian calendar; `None` where there is no such day.
fn moment_of(year: i64, month: i64, day: i64) -> Option<i64> {
    let leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
    let length = match month {
        2 => 28 + i64::from(leap),
        4 | 6 | 9 | 11 => 30,
        1..=12 => 31,
        _ => return None,
    };
    if !(1..=length).contains(&day) || !(1..10_000).contains(&year) {
        return None;
    }
    // Years that begin in March have their leap day at the end.
    let (year, month) = if month > 2 { (year, month - 3) } else { (year - 1, month + 9) };
    let days = 365 * year + year.div_euclid(4) - year.div_euclid(100) + year.div_euclid(400);
    // The 719,468th such day is the first of 1970.
    Some((days + (153 * month + 2) / 5 + day - 1 - 719_468) * DAY)
}

/// `2014-10-21`, or that with ` 03:00`, `T03:00:00`, a fraction of the second, a Z, ` UTC` or an [`offset`] behind it.
fn written(text: &str) -> Option<i64> {
    let number =
        |text: &str, width: usize| (text.len() == width && is_digits(text)).then(|| text.parse::<i64>().ok())?;
    let (date, time) = text.split_once([' ', 'T']).map_or((text, None), |(date, time)| (date, Some(time)));
    let mut parts = date.split('-');
    let day = moment_of(number(parts.next()?, 4)?, number(parts.next()?, 2)?, number(parts.next()?, 2)?)?;
    if parts.next().is_some() {
        return None;
    }
    let Some(time) = time else { return Some(day) };
    let (time, ahead) = match time.find(['+', '-']) {
        Some(at) => (time[..at].trim_end(), offset(&time[at..])?),
        None => (time.strip_suffix('Z').or_else(|| time.strip_suffix(" UTC")).unwrap_or(time), 0),
    };
    let mut parts = time.split(':');
    let (hour, minute) = (below(number(parts.next()?, 2)?, 24)?, below(number(parts.next()?, 2)?, 60)?);
    let second = parts.next().map_or(Some(0), |text| {
        let (whole, fraction) = text.split_once('.').unwrap_or((text, "0"));
        below(number(whole, 2)?, 61).filter(|_| is_digits(fraction))
    })?;
    parts.next().is_none().then_some(day + 3600 * hour + 60 * minute + second - ahead)
}

/// Whether a text is digits and nothing else.
pub(super) fn is_digits(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit())
}

/// Seconds that a clock is ahead of UTC: `+01:00`, `-0330`, `+01`.
fn offset(text: &str) -> Option<i64> {
    let sign = if text.starts_with('-') { -1 } else { 1 };
    let number = |from: usize| {
        let pair = text.get(from..from + 2)?;
        is_digits(pair).then(|| pair.parse::<i64>().ok())?
    };
    let minutes = match (text.len(), text.as_bytes().get(3)) {
        (3, _) => 0,
        (5, _) => number(3)?,
        (6, Some(b':')) => number(4)?,
        _ => return None,
    };
    Some(sign * (3600 * below(number(1)?, 24)? + 60 * below(minutes, 60)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_unit_tells_the_same_moment() {
        let fields = [
            "1413860400",
            "1413860400999",
            "1413860400999999",
            "1413860400999999999",
            "14102103",
            "20141021",
            "2014-10-21 03:00:00",
        ];
        for (unit, field) in Unit::ALL.into_iter().zip(fields) {
            let found = unit.parse(field.as_bytes()).unwrap();
            // `date -u -d @1413860400`: Tue Oct 21 03:00:00 UTC 2014
            let hour = if unit == Unit::Days { 0 } else { 3 };
            assert_eq!((found.hour(), found.weekday()), (hour, 1), "{}", unit.name());
            assert_eq!(toml::Value::try_from(unit).unwrap().as_str(), Some(unit.name()));
        }
        let seconds = |field: &str| Unit::Seconds.parse(field.as_bytes());
        let moments = [
            "2014-10-21T03:00:00.5Z",
            "2014-10-21 03:00:00+00:00",
            "2014-10-21 03:00:00 UTC",
            "2014-10-21 03:00:00.123456789 UTC",
            "2014-10-21 05:00:00.500000+02:00",
            "2014-10-20T23:30-0330",
            "2014-10-21 04:00:00 +01",
        ];
        for moment in moments {
            assert_eq!(seconds("1413860400"), Unit::Written.parse(moment.as_bytes()), "{moment}");
        }
        assert_eq!(seconds("946684800"), Some(Moment(0)));
        assert_eq!(seconds("8.81250949e8"), seconds("881250949"));
        // The first day of 1970 was a Thursday; the second before it a Wednesday's last.
        assert_eq!((seconds("0").unwrap().weekday(), seconds("-1").unwrap().weekday()), (3, 2));
        assert_eq!((seconds("-1").unwrap().hour(), seconds("86399.9").unwrap().hour()), (23, 23));
        let day = seconds("0").unwrap().days_until(seconds("129600").unwrap());
        assert!((day - 1.5).abs() < 1e-12);
    }

    #[test]
    fn what_is_no_moment_is_none() {
        for (unit, fields) in [
            (Unit::Seconds, ["", "x", "NaN", "99999999999", "inf"]),
            (Unit::Milliseconds, ["", "1e300", "0x10", "-9223372036854775808", "9223372036854775807"]),
            (Unit::Nanoseconds, ["", "1e300", "0x10", "9223372036854775807", "9223372036854775808"]),
            (Unit::Hours, ["14102124", "14130100", "14022900", "1410210", "+4102103"]),
            (Unit::Days, ["20141301", "20150229", "00000101", "2014-102", "141021030"]),
            (Unit::Written, ["2014-10-21 24:00", "2014-10-21-", "2014-1-1", "2014-10-21 3", "14-10-21"]),
            (
                Unit::Written,
                [
                    "2014-10-21 03:00+",
                    "2014-10-21 03:00+1",
                    "2014-10-21 03:00+24:00",
                    "2014-10-21 03:00+1:00",
                    "2014-10-21 03:00-00:é",
                ],
            ),
            (
                Unit::Written,
                [
                    "2014-10-21 10:00:00.5 PM",
                    "2014-10-21 10:00:00.",
                    "2014-10-21 10:00:00.+02:00",
                    "2014-10-21 10:00.5",
                    "2014-10-21 UTC",
                ],
            ),
        ] {
            for field in fields {
                assert_eq!(unit.parse(field.as_bytes()), None, "{} {field:?}", unit.name());
            }
        }
        for unit in [Unit::Seconds, Unit::Hours, Unit::Days, Unit::Written] {
            assert!(unit.expects().contains(" to 2068"), "{}: dates there are, but not these", unit.name());
        }
        assert_eq!(Unit::Written.parse(b"9999-12-31").or(Unit::Written.parse(b"1925-03-04")), None);
        // Leap years, and the ends of the calendar.
        assert!(Unit::Days.parse(b"20000229").is_some() && Unit::Days.parse(b"21000229").is_none());
        assert_eq!(Unit::Days.parse(b"19700101"), Unit::Seconds.parse(b"0"));
        assert_eq!(Unit::Days.parse(b"20671231"), Unit::Seconds.parse(b"3092515200"));
    }
}
