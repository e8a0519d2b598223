//! How much a key matters: the share of the variance of trials' ranks that its value explains alone.
//!
//! Trials are ranked by their score, so that a bad one is the last and no outlier; those without one, which have
//! failed, tell nothing of how good a value is. A range is cut into quarters, a list of choices is what it is, and the
//! share is epsilon squared, the correlation ratio less what as many classes would explain by chance (Kelley 1935). It
//! tells of one key at a time, and nothing of what keys do together.

use super::space::Space;

/// The shares of the keys, by the space's; nothing without trials enough to tell.
pub fn shares(space: &Space, trials: &[(Vec<f64>, f64)]) -> Vec<Option<f64>> {
    let trials: Vec<_> = trials.iter().filter(|(_, score)| score.is_finite()).cloned().collect();
    let ranks = ranks(&trials);
    let count = ranks.len() as f64;
    let mean = ranks.iter().sum::<f64>() / count;
    let total: f64 = ranks.iter().map(|rank| (rank - mean).powi(2)).sum();
    let share = |(at, parameter): (usize, &super::space::Parameter)| {
        let (most, _) = parameter.domain.class(0.0);
        let mut classes = vec![(0.0, 0.0); most];
        for ((places, _), rank) in trials.iter().zip(&ranks) {
            let (sum, samples) = &mut classes[parameter.domain.class(places[at]).1];
            *sum += rank;
            *samples += 1.0;
        }
        let filled = classes.iter().filter(|(_, samples)| *samples > 0.0);
        let between: f64 = filled.clone().map(|(sum, samples)| samples * (sum / samples - mean).powi(2)).sum();
        let classes = filled.count() as f64;
        let chance = (count - 1.0) / (count - classes);
        (count > classes && classes > 1.0 && total > 0.0).then(|| (1.0 - (1.0 - between / total) * chance).max(0.0))
    };
    space.parameters.iter().enumerate().map(share).collect()
}

/// Of the best trial 0; equal ones share the mean of their ranks.
fn ranks(trials: &[(Vec<f64>, f64)]) -> Vec<f64> {
    let score = |at: usize| trials[at].1;
    let mut order: Vec<usize> = (0..trials.len()).collect();
    order.sort_unstable_by(|&a, &b| score(a).total_cmp(&score(b)));
    let (mut ranks, mut better) = (vec![0.0; trials.len()], 0);
    for equal in order.chunk_by(|&a, &b| score(a) == score(b)) {
        let rank = better as f64 + (equal.len() as f64 - 1.0) / 2.0;
        equal.iter().for_each(|&at| ranks[at] = rank);
        better += equal.len();
    }
    ranks
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_decides_a_score_explains_it_and_what_does_not_explains_nothing() {
        let text = "[train]\nlr = { from = 0.0, to = 1.0 }\nmomentum = { from = 0.0, to = 0.9 }\n\
                    optimizer = { choices = [\"sgd\", \"adam\"] }";
        let space = Space::parse(text, "space.toml").unwrap();
        let place = |n: u32, step: u32| f64::from(n * step % 97) / 97.0;
        let trials: Vec<_> = (0..96)
            .map(|n| {
                let places = vec![place(n, 31), place(n, 57), place(n, 11)];
                let worst = if n == 5 { f64::INFINITY } else { 0.0 };
                let score = places[0] + if places[2] < 0.5 { 0.5 } else { 0.0 } + worst;
                (places, score)
            })
            .collect();
        let found = shares(&space, &trials);
        let of = |at: usize| found[at].unwrap();
        assert!(of(0) > 0.4 && of(1) < 0.08 && of(2) > 0.3, "{found:?}");
        // What has failed, be it by one of the keys, explains nothing.
        let failed = |momentum: f64| (vec![0.5, momentum, 0.5], f64::INFINITY);
        let with_failed = [&trials[..], &[0.8, 0.85, 0.9, 0.95].map(failed)].concat();
        assert_eq!(shares(&space, &with_failed), found);
        let ties = [2.0, f64::INFINITY, 1.0, 2.0, f64::INFINITY].map(|score| (Vec::new(), score));
        assert_eq!(ranks(&ties), [1.5, 3.5, 0.0, 1.5, 3.5]);
        assert_eq!(shares(&space, &trials[..1]), [None; 3]);
        assert_eq!(shares(&space, &[]), [None; 3]);
    }
}
