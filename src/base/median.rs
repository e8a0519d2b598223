//! The median of figures.

/// The median of these, which it sorts: of an even number the mean of the middle two.
///
/// # Panics
/// When there are none.
#[must_use]
pub fn median(figures: &mut [f64]) -> f64 {
    figures.sort_unstable_by(f64::total_cmp);
    let count = figures.len();
    assert!(count > 0, "no figures, no median");
    f64::midpoint(figures[(count - 1) / 2], figures[count / 2])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_median_is_in_the_middle() {
        assert_eq!(median(&mut [9.0, 1.0, 2.0]), 2.0);
        assert_eq!(median(&mut [9.0, 1.0, 2.0, 4.0]), 3.0);
        assert_eq!(median(&mut [7.0]), 7.0);
    }
}
