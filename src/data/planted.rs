//! What planted click models have in common: how often there is a click, and how well the best model tells, are set by an
//! intercept and a scale of their scores.

/// Scale and intercept with which these scores make clicks so often, and the true probabilities have this AUC (the Bayes AUC).
pub(super) fn calibrated(mut scores: Vec<f64>, rate: f64, bayes_auc: f64) -> [f64; 2] {
    scores.sort_unstable_by(f64::total_cmp);
    let scale = bisect(0.0, 8.0, |scale| auc(&scores, scale, intercept(&scores, scale, rate)) < bayes_auc);
    [scale, intercept(&scores, scale, rate)]
}

/// The intercept at which the click rate is met.
fn intercept(scores: &[f64], scale: f64, rate: f64) -> f64 {
    let clicks = |shift: f64| scores.iter().map(|score| logistic(scale * score + shift)).sum::<f64>();
    bisect(-30.0, 30.0, |shift| clicks(shift) < rate * scores.len() as f64)
}

/// The expected AUC of the true probabilities, for scores in ascending order.
fn auc(scores: &[f64], scale: f64, intercept: f64) -> f64 {
    let (mut clicks, mut others, mut right, mut same) = (0.0, 0.0, 0.0, 0.0);
    for score in scores {
        let p = logistic(scale * score + intercept);
        right += p * others;
        clicks += p;
        others += 1.0 - p;
        same += p * (1.0 - p);
    }
    right / (clicks * others - same)
}

/// Where a condition that holds up to a point stops to hold.
fn bisect(mut low: f64, mut high: f64, holds: impl Fn(f64) -> bool) -> f64 {
    for _ in 0..20 {
        let middle = 0.5 * (low + high);
        if holds(middle) { low = middle } else { high = middle }
    }
    0.5 * (low + high)
}

/// The probability of a logit.
pub(super) fn logistic(x: f64) -> f64 {
    1.0 / (1.0 + libm::exp(-x))
}
