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

/// The bytes of `512MiB`, `4GiB`, `4G` or `4096`.
///
/// # Errors
/// What is expected.
pub fn parse_bytes(text: &str) -> Result<u64, String> {
    let digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let shift = match text[digits..].trim_start().to_ascii_lowercase().as_str() {
        "" | "b" => 0,
        "k" | "kib" => 10,
        "m" | "mib" => 20,
        "g" | "gib" => 30,
        "t" | "tib" => 40,
        _ => return Err("a number with B, KiB, MiB, GiB or TiB is expected, as in 4GiB".to_owned()),
    };
    let number: u64 = text[..digits].parse().map_err(|_| "a number is expected, as in 4GiB".to_owned())?;
    number.checked_mul(1 << shift).ok_or_else(|| "this is more than any machine has".to_owned())
}

/// The shortest text of which [`parse_bytes`] makes so many bytes.
#[must_use]
pub fn spelled(bytes: u64) -> String {
    let units = [(40, "TiB"), (30, "GiB"), (20, "MiB"), (10, "KiB")];
    let unit = units.into_iter().find(|(shift, _)| bytes > 0 && bytes.is_multiple_of(1 << shift));
    unit.map_or_else(|| bytes.to_string(), |(shift, unit)| format!("{}{unit}", bytes >> shift))
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

/// A number of things; prints as `1 step`, `2,500 steps` or `2 copies` (of `copy`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Many<'a>(pub u64, pub &'a str);

impl fmt::Display for Many<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let of_y = self.1.strip_suffix('y').filter(|rest| !rest.ends_with(['a', 'e', 'o', 'u']));
        let (stem, ending) = match self.0 {
            1 => (self.1, ""),
            // Spoken with a k.
            _ if self.1.ends_with("epoch") => (self.1, "s"),
            _ if ["ch", "ss"].iter().any(|end| self.1.ends_with(end)) => (self.1, "es"),
            _ => of_y.map_or((self.1, "s"), |stem| (stem, "ies")),
        };
        write!(f, "{} {stem}{ending}", Count(self.0))
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
        assert_eq!((Many(1, "row").to_string(), Many(2_000, "row").to_string()), ("1 row".into(), "2,000 rows".into()));
        assert_eq!([Many(2, "epoch"), Many(2, "batch")].map(|many| many.to_string()), ["2 epochs", "2 batches"]);
        let ys = [Many(1, "copy"), Many(2, "copy"), Many(2, "day")];
        assert_eq!(ys.map(|many| many.to_string()), ["1 copy", "2 copies", "2 days"]);
        assert_eq!(Seconds(0.843).to_string(), "0.84 s");
        assert_eq!(Seconds(200.4).to_string(), "3 min 20 s");
    }

    #[test]
    fn sizes_have_units() {
        assert_eq!(parse_bytes("4GiB"), Ok(4 << 30));
        assert_eq!(parse_bytes("512m"), Ok(512 << 20));
        assert_eq!(parse_bytes("1 TiB"), Ok(1 << 40));
        assert_eq!(parse_bytes("7"), Ok(7));
        for (bytes, text) in [(0, "0"), (1025, "1025"), (1 << 20, "1MiB"), (1 << 42, "4TiB"), (3 << 29, "1536MiB")] {
            assert_eq!((spelled(bytes), parse_bytes(text)), (text.to_owned(), Ok(bytes)));
        }
        assert!(parse_bytes("4 apples").unwrap_err().contains("as in 4GiB"));
        assert!(parse_bytes("99999999999TiB").unwrap_err().contains("more than any machine has"));
    }
}
