//! Integers as distances from the smallest of them, in 0, 1, 2 or 4 bytes each.
//!
//! A missing integer is distance 0 and the smallest present one distance 1, so a missing value does not widen a column.

use std::ops::Range;

use super::layout::Section;
use crate::data::samples::MISSING;

/// Fills `codes` for unsigned values; returns the base.
pub(super) fn of_unsigned(values: &[u32], codes: &mut Vec<u32>) -> u32 {
    let base = values.iter().copied().min().unwrap_or(0);
    codes.clear();
    codes.extend(values.iter().map(|value| value - base));
    base
}

/// Fills `codes` for signed values, some missing; returns the base as bits.
pub(super) fn of_signed(values: &[i32], codes: &mut Vec<u32>) -> u32 {
    let base = values.iter().copied().filter(|&value| value != MISSING).min().unwrap_or(0);
    codes.clear();
    // The distance of two i32s that are not MISSING is below 2^32 - 1, so one more fits.
    codes.extend(values.iter().map(|&value| if value == MISSING { 0 } else { value.wrapping_sub(base) as u32 + 1 }));
    base as u32
}

/// The integer behind a code.
#[inline]
pub(super) fn signed(code: u32, base: u32) -> i32 {
    if code == 0 { MISSING } else { base.wrapping_add(code - 1) as i32 }
}

/// The narrowest width that holds all codes, and the bytes.
pub(super) fn pack(codes: &[u32], bytes: &mut Vec<u8>) -> u8 {
    let width = width(codes.iter().copied().max().unwrap_or(0));
    bytes.clear();
    append(codes, width, bytes);
    width
}

/// Bytes of a code where none is above `most`.
pub(in crate::data) const fn width(most: u32) -> u8 {
    match most {
        0 => 0,
        1..=0xFF => 1,
        0x100..=0xFFFF => 2,
        _ => 4,
    }
}

/// Appends codes that this width holds.
pub(in crate::data) fn append(codes: &[u32], width: u8, bytes: &mut Vec<u8>) {
    match width {
        0 => (),
        1 => bytes.extend(codes.iter().map(|&code| code as u8)),
        2 => bytes.extend(codes.iter().flat_map(|&code| (code as u16).to_le_bytes())),
        _ => bytes.extend_from_slice(bytemuck::cast_slice(codes)),
    }
}

/// Appends values `range` of a section, `base` added. `bytes` are the section's, whole ([`Section::plain`] of them).
pub(super) fn unpack(section: &Section, bytes: &[u8], range: Range<usize>, base: u32, values: &mut Vec<u32>) {
    let width = usize::from(section.width);
    let bytes = &bytes[range.start * width..range.end * width];
    match width {
        0 => values.resize(values.len() + range.len(), base),
        1 => values.extend(bytes.iter().map(|&code| base.wrapping_add(u32::from(code)))),
        2 => {
            values.extend(
                bytes.as_chunks::<2>().0.iter().map(|&code| base.wrapping_add(u16::from_le_bytes(code).into())),
            );
        }
        _ => values.extend(bytes.as_chunks::<4>().0.iter().map(|&code| base.wrapping_add(u32::from_le_bytes(code)))),
    }
}

/// Floats `range` of a section of width 4.
pub(super) fn floats(bytes: &[u8], range: Range<usize>) -> impl Iterator<Item = f32> {
    bytes[4 * range.start..4 * range.end].as_chunks::<4>().0.iter().map(|&bits| f32::from_le_bytes(bits))
}

impl Section {
    /// Bytes of the values, not compressed.
    pub(super) fn plain(&self) -> usize {
        self.count as usize * usize::from(self.width)
    }
}

#[cfg(test)]
mod tests {
    use bytemuck::Zeroable;
    use proptest::prelude::*;

    use super::*;

    fn through(codes: &[u32], base: u32, range: Range<usize>) -> (u8, Vec<u32>) {
        let mut bytes = Vec::new();
        let width = pack(codes, &mut bytes);
        let section = Section { width, count: codes.len() as u32, ..Section::zeroed() };
        assert_eq!(bytes.len(), section.plain());
        let mut values = Vec::new();
        unpack(&section, &bytes, range, base, &mut values);
        (width, values)
    }

    #[test]
    fn widths_are_the_narrowest() {
        for (values, width) in [
            (vec![7, 7, 7], 0),
            (vec![1000, 1255], 1),
            (vec![1000, 1256], 2),
            (vec![9, 9 + 65_535], 2),
            (vec![9, 9 + 65_536], 4),
            (vec![0, u32::MAX], 4),
        ] {
            let mut codes = Vec::new();
            let base = of_unsigned(&values, &mut codes);
            assert_eq!(through(&codes, base, 0..values.len()), (width, values));
        }
        let mut codes = Vec::new();
        of_signed(&[MISSING, -2, 252], &mut codes);
        assert_eq!(through(&codes, 0, 0..3).0, 1, "a missing value does not widen a column");
    }

    proptest! {
        #[test]
        fn values_survive(values in prop::collection::vec(any::<i32>(), 0..40), shift in 0u32..32, cut in 0usize..40) {
            let mut values: Vec<i32> = values.iter().map(|value| value >> shift).collect();
            if shift % 3 == 0 {
                values.extend([MISSING, i32::MAX, MISSING + 1]);
            }
            let cut = cut.min(values.len());
            let mut codes = Vec::new();
            let base = of_signed(&values, &mut codes);
            let (_, found) = through(&codes, 0, cut..values.len());
            let found: Vec<i32> = found.into_iter().map(|code| signed(code, base)).collect();
            prop_assert_eq!(&found, &values[cut..]);
            let unsigned: Vec<u32> = values.iter().map(|&value| value as u32).collect();
            let base = of_unsigned(&unsigned, &mut codes);
            prop_assert_eq!(&through(&codes, base, cut..values.len()).1, &unsigned[cut..]);
        }
    }
}
