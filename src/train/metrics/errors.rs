//! Standard errors of AUC and log loss: how far they may lie, by chance, from those of endlessly many such samples.

use serde::Serialize;

/// Standard errors of a model's scores, or of the differences of two models' scores on the same samples, where no
/// sample depends on another one; NaN where there are too few samples, or no scores.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct StandardErrors {
    /// Of the area under the ROC curve: DeLong, DeLong and Clarke-Pearson, "Comparing the areas under two or more
    /// correlated receiver operating characteristic curves", Biometrics 44, 1988.
    pub auc_se: f64,
    /// Of the mean binary cross-entropy: its standard deviation over samples by the root of their number.
    pub logloss_se: f64,
}

/// The variance of what so many samples were drawn from, by their sum and that of their squares; NaN for fewer than
/// two of them.
fn variance(count: u64, sum: f64, squares: f64) -> f64 {
    if count < 2 {
        return f64::NAN;
    }
    let count = count as f64;
    // What is rounded may be more than what is left.
    (squares - sum * (sum / count)).max(0.0) / (count - 1.0)
}

/// The standard error of the mean of so many samples, by their sum and that of their squares.
pub fn of_mean(count: u64, sum: f64, squares: f64) -> f64 {
    (variance(count, sum, squares) / count as f64).sqrt()
}

/// The placements of the samples of one class (DeLong's structural components): to how many samples of the other class
/// each of them is rightly ordered, a tie counting half. Whole numbers, so that their sums are the same in any order.
#[derive(Debug, Clone, Copy, Default)]
pub struct Placements {
    count: u64,
    /// Of twice each placement.
    sum: i128,
    /// Of the squares of that.
    squares: i128,
}

impl Placements {
    /// Adds `count` samples, `twice` the placement of each of them, or the difference of it between two models.
    pub fn add(&mut self, twice: i128, count: u64) {
        let own = i128::from(count);
        self.count += count;
        self.sum += own * twice;
        self.squares += own * twice * twice;
    }

    /// Together with those of other samples of the class.
    pub const fn with(self, other: Self) -> Self {
        Self { count: self.count + other.count, sum: self.sum + other.sum, squares: self.squares + other.squares }
    }
}

/// The standard error of an AUC, or of a difference of two, by the placements of clicks and of other samples. Of a
/// difference this is DeLong's by the covariance of both, but for what that would lose in rounding.
pub fn of_auc([clicks, others]: [Placements; 2]) -> f64 {
    let part = |own: Placements, other: Placements| {
        // Shares of the other class.
        let whole = 2.0 * other.count as f64;
        variance(own.count, own.sum as f64, own.squares as f64) / (whole * whole) / own.count as f64
    };
    (part(clicks, others) + part(others, clicks)).sqrt()
}

#[cfg(test)]
mod tests {
    use super::super::tests::{evaluation, weighed};

    #[test]
    fn the_error_of_an_auc_is_delongs_as_worked_out_by_hand() {
        // Clicks stand rightly to 4, 3 and 2.5 of four others: 1, 6/8 and 5/8, whose variance is 7/192; others to 1, 3,
        // 2.5 and 3 of three clicks: 4, 12, 10 and 12 twelfths, whose variance is 43/432.
        let probabilities = [0.8, 0.7, 0.6, 0.3, 0.4, 0.4, 0.1];
        let labels = [1.0, 0.0, 1.0, 0.0, 1.0, 0.0, 0.0];
        let found = evaluation(&probabilities, &labels, 0, None);
        assert!((found.scores.auc - 2.375 / 3.0).abs() < 1e-12, "{found:?}");
        let due: f64 = 7.0 / 192.0 / 3.0 + 43.0 / 432.0 / 4.0;
        assert!((due - 1.0 / 27.0).abs() < 1e-12);
        assert!((found.errors.unwrap().auc_se - due.sqrt()).abs() < 1e-12, "{found:?}");
    }

    #[test]
    fn the_error_of_a_log_loss_is_that_of_a_mean() {
        let found = evaluation(&[0.8, 0.4, 0.6, 0.5], &[1.0, 0.0, 0.0, 1.0], 0, None);
        let losses = [0.8f32, 0.6, 0.4, 0.5].map(|p| -f64::from(p).ln());
        let mean = losses.iter().sum::<f64>() / 4.0;
        let variance = losses.iter().map(|loss| (loss - mean).powi(2)).sum::<f64>() / 3.0;
        assert!((found.errors.unwrap().logloss_se - (variance / 4.0).sqrt()).abs() < 1e-6, "{found:?}");
        let same = evaluation(&[0.25; 1000], &[0.0; 1000], 0, None).errors.unwrap();
        assert!(same.logloss_se < 1e-8 && same.auc_se.is_nan(), "{same:?}");
    }

    #[test]
    fn there_are_errors_where_they_follow_from_samples_alone() {
        let errors =
            |probabilities: &[f32], labels: &[f32], weights| weighed(probabilities, labels, weights, 0, None).errors;
        // Of one sample, or one click, nothing tells by how much others would differ.
        let one = errors(&[0.3], &[1.0], None).unwrap();
        assert!(one.auc_se.is_nan() && one.logloss_se.is_nan(), "{one:?}");
        let click = errors(&[0.3, 0.2, 0.4], &[1.0, 0.0, 0.0], None).unwrap();
        assert!(click.auc_se.is_nan() && click.logloss_se > 0.0, "{click:?}");
        let broken = errors(&[0.3, f32::NAN, 0.4, 0.1], &[1.0, 0.0, 0.0, 1.0], None).unwrap();
        assert!(broken.auc_se.is_nan() && broken.logloss_se.is_nan(), "{broken:?}");
        assert_eq!(errors(&[0.3, 0.2, 0.4, 0.1], &[1.0, 0.0, 0.0, 1.0], Some(&[1.0, 2.0, 1.0, 1.0])), None);
    }
}
