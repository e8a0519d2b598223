//! Things dealt in nearly equal parts of consecutive ones: to threads, ranks, pieces.

use std::ops::Range;

/// Part `index` of `count` things cut into `parts` nearly equal ones, which follow one another and are all of them:
/// from ⌊count × index / parts⌋ to ⌊count × (index + 1) / parts⌋. Exact for any count if `parts` is at most 2^32, and
/// for any parts if count × parts can be counted.
///
/// # Panics
/// When `parts` is 0.
#[must_use]
#[inline]
pub const fn even_part(count: usize, index: usize, parts: usize) -> Range<usize> {
    border(count, index, parts)..border(count, index + 1, parts)
}

/// ⌊count × index / parts⌋ without the product, which might wrap.
#[inline]
const fn border(count: usize, index: usize, parts: usize) -> usize {
    count / parts * index + count % parts * index / parts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_follow_one_another_and_are_nearly_equal() {
        for count in (0..70).chain([usize::MAX - 1, usize::MAX]) {
            for parts in [1, 2, 3, 7, 64, 1 << 32] {
                let mut next = 0;
                for index in 0..parts.min(64) {
                    let part = even_part(count, index, parts);
                    let exact = |index: usize| (count as u128 * index as u128 / parts as u128) as usize;
                    assert_eq!((part.start, part.end), (exact(index), exact(index + 1)));
                    assert_eq!(part.start, next);
                    next = part.end;
                }
                assert_eq!(even_part(count, parts - 1, parts).end, count);
            }
        }
    }
}
