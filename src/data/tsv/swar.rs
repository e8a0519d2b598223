//! Fields of eight bytes at once: a 64-bit word holds eight characters, and arithmetic on the word is arithmetic on
//! each ("SIMD within a register", Lamport 1975). Every byte of a word stays below 256, so nothing carries over.
//!
//! The first character is the lowest byte of a word.

const ONES: u64 = 0x0101_0101_0101_0101;
const HIGH: u64 = 0x8080_8080_8080_8080;

const fn all(byte: u8) -> u64 {
    ONES * byte as u64
}

/// Eight bytes of the text; `None` where fewer are left.
#[inline]
pub(super) fn word(text: &[u8], at: usize) -> Option<u64> {
    let bytes = text.get(at..at.checked_add(8)?)?;
    Some(u64::from_le_bytes(bytes.try_into().expect("eight bytes were taken")))
}

/// Characters before the first tab; 8 where there is none.
#[inline]
pub(super) fn before_tab(word: u64) -> u32 {
    // The lowest byte that is 0 is found exactly; borrows reach only bytes above it.
    let x = word ^ all(b'\t');
    (x.wrapping_sub(ONES) & !x & HIGH).trailing_zeros() / 8
}

/// The number that the first `digits` (1 to 8) characters write; `None` when one of them is no digit.
#[inline]
pub(super) fn decimal(word: u64, digits: u32) -> Option<u32> {
    // Leading characters '0' take the place of what follows the number.
    let unused = 64 - 8 * digits;
    let zeros = if unused == 0 { 0 } else { all(b'0') >> (8 * digits) };
    let d = ((word << unused) | zeros) ^ all(b'0');
    // 0x0a + 0x76 sets the high bit.
    if (((d & !HIGH) + all(0x76)) | d) & HIGH != 0 {
        return None;
    }
    let pairs = (d.wrapping_mul(10 << 8 | 1) >> 8) & 0x00FF_00FF_00FF_00FF;
    let fours = (pairs.wrapping_mul(100 << 16 | 1) >> 16) & 0x0000_FFFF_0000_FFFF;
    Some((fours.wrapping_mul(10_000 << 32 | 1) >> 32) as u32)
}

/// The number that eight hexadecimal digits write; `None` when one of them is none.
#[inline]
pub(super) fn hexadecimal(word: u64) -> Option<u32> {
    let ascii = word & !HIGH;
    // A sum's high bit tells whether the character is at least the bound.
    let at_least = |characters: u64, bound: u8| characters + all(0x80 - bound);
    let digit = at_least(ascii, b'0') & !at_least(ascii, b'9' + 1);
    let lower = ascii | all(0x20);
    let letter = at_least(lower, b'a') & !at_least(lower, b'f' + 1);
    if (digit | letter) & !word & HIGH != HIGH {
        return None;
    }
    // Letters have bit 6: their lower four bits lack 9.
    let nibbles = (ascii & all(0x0F)) + ((ascii & all(0x40)) >> 6) * 9;
    let x = nibbles.swap_bytes();
    let x = (x | x >> 4) & 0x00FF_00FF_00FF_00FF;
    let x = (x | x >> 8) & 0x0000_FFFF_0000_FFFF;
    Some((x | x >> 16) as u32)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn words_near_the_end_are_not_taken() {
        assert_eq!(word(b"12345678", 0), Some(u64::from_le_bytes(*b"12345678")));
        assert_eq!((word(b"12345678", 1), word(b"", 0), word(b"1", usize::MAX)), (None, None, None));
        assert_eq!(before_tab(u64::from_le_bytes(*b"12\t4\t\t\t8")), 2);
        assert_eq!(before_tab(u64::from_le_bytes(*b"\t\x08\x0a45678")), 0);
        assert_eq!(before_tab(u64::from_le_bytes(*b"\x08\x0a345678")), 8);
    }

    /// Every byte at every place.
    #[test]
    fn one_wrong_character_is_enough() {
        for at in 0..8 {
            for byte in 0..=255u8 {
                let mut text = *b"01234567";
                text[at] = byte;
                let word = u64::from_le_bytes(text);
                let expected = std::str::from_utf8(&text).ok();
                let hex = expected.filter(|_| byte.is_ascii_hexdigit()).map(|t| u32::from_str_radix(t, 16).unwrap());
                let decimals = expected.filter(|_| byte.is_ascii_digit()).map(|t| t.parse().unwrap());
                assert_eq!((hexadecimal(word), decimal(word, 8)), (hex, decimals), "{text:?}");
            }
        }
    }

    proptest! {
        #[test]
        fn numbers_are_those_of_the_standard_library(value: u32, short in 0..100_000_000u32, upper: bool) {
            let hex = if upper { format!("{value:08X}") } else { format!("{value:08x}") };
            prop_assert_eq!(hexadecimal(word(hex.as_bytes(), 0).unwrap()), Some(value));
            let digits = short.to_string();
            let padded = format!("{digits}\tfxyz9-\n0");
            prop_assert_eq!(decimal(word(padded.as_bytes(), 0).unwrap(), digits.len() as u32), Some(short));
        }
    }
}
