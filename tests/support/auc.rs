//! The area under the ROC curve, in the words of its definition.

/// The chance that a click scores above a sample without one; ties count half.
pub fn auc(scores: &[f32], labels: &[f32]) -> f64 {
    let mut order: Vec<usize> = (0..scores.len()).collect();
    order.sort_unstable_by(|&a, &b| scores[a].total_cmp(&scores[b]));
    let (mut below, mut right, mut clicks) = (0.0, 0.0, 0.0);
    for group in order.chunk_by(|&a, &b| scores[a] == scores[b]) {
        let hits: f64 = group.iter().map(|&n| f64::from(labels[n])).sum();
        let others = group.len() as f64 - hits;
        right += hits * (below + 0.5 * others);
        below += others;
        clicks += hits;
    }
    right / (clicks * below)
}
