//! Integers become dense features: ln(x + 1), missing and negative values as 0.
//!
//! Follows the reference (facebookresearch/dlrm, `dlrm_data_pytorch.py`): `log(torch.tensor(X, dtype=float32) + 1)`
//! after negatives were set to 0. The sum is therefore rounded to f32 first; the logarithm is taken in f64 and rounded
//! once, so it is the f32 that lies nearest to the true value in all but about one case in 2^29.

use std::sync::LazyLock;

/// Most integers of click logs are small counts: their logarithms are looked up.
const SMALL: usize = 1024;

static LOGARITHMS: LazyLock<[f32; SMALL]> = LazyLock::new(|| std::array::from_fn(|x| computed(x as i64)));

fn computed(value: i64) -> f32 {
    libm::log(f64::from(value.max(0) as f32 + 1.0)) as f32
}

/// ln(x + 1) of a count; 0 where it is missing or negative.
#[must_use]
#[inline]
pub fn log_count(value: Option<i64>) -> f32 {
    let value = value.unwrap_or(0).max(0);
    match LOGARITHMS.get(usize::try_from(value).unwrap_or(usize::MAX)) {
        Some(&known) => known,
        None => computed(value),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missing_and_negative_values_are_zero_and_the_rest_are_logarithms() {
        assert_eq!(log_count(None), 0.0);
        assert_eq!(log_count(Some(-2)), 0.0);
        assert_eq!(log_count(Some(i64::MIN)), 0.0);
        assert_eq!(log_count(Some(0)), 0.0);
        assert_eq!(log_count(Some(1)), std::f32::consts::LN_2);
        assert_eq!(log_count(Some(9)), std::f32::consts::LN_10);
        assert_eq!(log_count(Some(1023)), 1024f32.ln());
        assert_eq!(log_count(Some(1024)), computed(1024));
        // 2^24 + 1 is no f32: the sum rounds as the reference's does.
        assert_eq!(log_count(Some(1 << 24)), computed((1 << 24) - 1));
        assert!(log_count(Some(i64::MAX)).is_finite());
    }
}
