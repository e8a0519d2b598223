//! Asynchronous successive halving (ASHA; Li et al. 2020, its stopping rule): a trial that reaches an evaluation 1, η,
//! η², … goes on if it is among the best 1/η of all that have reached it so far.

use std::collections::BTreeMap;

/// What was found at each rung, by trial; what is to be small.
#[derive(Debug, Clone)]
pub struct Halving {
    /// η: of so many trials one goes on.
    keep_one_of: u64,
    rungs: BTreeMap<u64, BTreeMap<u64, f64>>,
}

impl Halving {
    /// Where one of so many goes on.
    ///
    /// # Panics
    /// When that is less than 2.
    pub fn new(keep_one_of: u64) -> Self {
        assert!(keep_one_of > 1, "something is left");
        Self { keep_one_of, rungs: BTreeMap::new() }
    }

    fn is_rung(&self, evaluation: u64) -> bool {
        let mut rung = 1;
        while rung < evaluation {
            rung *= self.keep_one_of;
        }
        rung == evaluation
    }

    /// Notes what trial `trial` has found at evaluation number `evaluation` (from 1); whether it goes on.
    pub fn goes_on(&mut self, trial: u64, evaluation: u64, found: f64) -> bool {
        if !self.is_rung(evaluation) {
            return true;
        }
        let rung = self.rungs.entry(evaluation).or_default();
        rung.insert(trial, found);
        let better = rung.values().filter(|other| **other < found).count() as u64;
        // Too few to tell: the first ones go on.
        let stay = (rung.len() as u64 / self.keep_one_of).max(1);
        (rung.len() as u64) < self.keep_one_of || better < stay
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_of_so_many_goes_on_from_each_rung() {
        let mut halving = Halving::new(3);
        // Two are too few to tell; then the best third.
        let at_first: Vec<bool> = [0.5, 0.9, 0.6, 0.4, 0.7, 0.3, 0.45]
            .iter()
            .zip(0..)
            .map(|(found, trial)| halving.goes_on(trial, 1, *found))
            .collect();
        assert_eq!(at_first, [true, true, false, true, false, true, false]);
        assert!(halving.goes_on(2, 2, 0.99), "the second evaluation is no rung");
        assert!(halving.goes_on(0, 3, 0.5) && halving.goes_on(1, 3, 0.8) && !halving.goes_on(3, 3, 0.55));
        // Told again, as after a kill, it is the same.
        assert!(!halving.goes_on(3, 3, 0.55));
        assert!(
            [1, 3, 9, 27].iter().all(|at| halving.is_rung(*at)) && ![2, 6, 10].iter().any(|at| halving.is_rung(*at))
        );
    }
}
