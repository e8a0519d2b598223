//! Quantities as people read them: bytes, counts and durations with a sensible number of digits.
//!
//! Arithmetic stays in plain integers and seconds; these are for the last step, the message.

use std::fmt;

/// A number of bytes; prints with binary units: `19.1 GiB`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Bytes(pub u64);

impl fmt::Display for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const UNITS: [&str; 5] = ["B", "KiB", "MiB", "GiB", "TiB"];
        let mut value = self.0 as f64;
        let mut unit = 0;
        while value >= 1024.0 && unit + 1 < UNITS.len() {
            value /= 1024.0;
            unit += 1;
        }
        if unit == 0 { write!(f, "{} B", self.0) } else { write!(f, "{value:.1} {}", UNITS[unit]) }
    }
}

/// A count; prints with thousands separators: `33,762,577`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Count(pub u64);

impl fmt::Display for Count {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let digits = self.0.to_string();
        for (position, digit) in digits.chars().enumerate() {
            if position > 0 && (digits.len() - position).is_multiple_of(3) {
                write!(f, ",")?;
            }
            write!(f, "{digit}")?;
        }
        Ok(())
    }
}

/// A duration in seconds; prints as `0.84 s`, `12.3 s` or `3 min 20 s`.
#[derive(Debug, Clone, Copy, PartialEq, PartialOrd)]
pub struct Seconds(pub f64);

impl fmt::Display for Seconds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0 < 10.0 {
            write!(f, "{:.2} s", self.0)
        } else if self.0 < 120.0 {
            write!(f, "{:.1} s", self.0)
        } else {
            let whole = self.0.round() as u64;
            write!(f, "{} min {} s", whole / 60, whole % 60)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantities_print_as_people_read_them() {
        assert_eq!(Bytes(512).to_string(), "512 B");
        assert_eq!(Bytes(20_508_468_838).to_string(), "19.1 GiB");
        assert_eq!(Count(33_762_577).to_string(), "33,762,577");
        assert_eq!(Count(7).to_string(), "7");
        assert_eq!(Seconds(0.843).to_string(), "0.84 s");
        assert_eq!(Seconds(200.4).to_string(), "3 min 20 s");
    }
}
