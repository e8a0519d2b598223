//! Which trial comes next: drawn evenly, or by tree-structured Parzen estimators (Bergstra, Bardenet, Bengio, Kégl
//! 2011), each key for itself, from how trials before it ended.

use clap::ValueEnum;
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use tpe::{TpeOptimizerBuilder, categorical_range, histogram_estimator, parzen_estimator, range};

use super::space::{Domain, Space};

/// How trials are chosen.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum)]
pub enum Sampler {
    /// Evenly at random.
    Random,
    /// By what good trials before have in common; the first ten evenly.
    #[default]
    Tpe,
}

/// A trial that has ended: its places, and what is to be small.
pub type Ended = (Vec<f64>, f64);

/// Trials that are drawn evenly before others are learned from.
const FIRST: usize = 10;

/// Share of trials that are taken as good.
const GOOD: f64 = 0.2;

impl Sampler {
    /// The places of trial `number`, a pure function of seed, number and what has ended, best known or not.
    pub fn next(self, space: &Space, seed: u64, number: u64, ended: &[Ended]) -> Vec<f64> {
        // Distinct seeds for distinct trials; the generator mixes them.
        let mut random = StdRng::seed_from_u64(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15).wrapping_add(number));
        let evenly = self == Self::Random || ended.len() < FIRST;
        let place = |(at, domain): (usize, &Domain)| {
            let drawn: f64 = random.random();
            if evenly { drawn } else { learned(domain, at, ended, &mut random).unwrap_or(drawn) }
        };
        space.parameters.iter().map(|parameter| &parameter.domain).enumerate().map(place).collect()
    }
}

/// The most promising place of one key.
fn learned(domain: &Domain, at: usize, ended: &[Ended], random: &mut StdRng) -> Option<f64> {
    let choices = if let Domain::Choices(values) = domain { Some(values.len()) } else { None };
    let (estimator, within) = match choices {
        Some(count) => (histogram_estimator(), categorical_range(count).ok()?),
        None => (parzen_estimator(), range(0.0, 1.0).ok()?),
    };
    let mut optimizer = TpeOptimizerBuilder::new().gamma(GOOD).build(estimator, within).ok()?;
    for (places, score) in ended {
        let place = match choices {
            Some(count) => Domain::index(places[at], count) as f64,
            None => places[at],
        };
        optimizer.tell(place, *score).ok()?;
    }
    let place = optimizer.ask(random).ok()?;
    // The middle of a choice's part.
    Some(choices.map_or(place, |count| (place.floor() + 0.5) / count as f64).clamp(0.0, 1.0 - f64::EPSILON))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn space() -> Space {
        let text = "[train]\nlr = { from = 0.01, to = 1.0, log = true }\nmomentum = { from = 0.0, to = 0.9 }\n\
                    optimizer = { choices = [\"sgd\", \"adam\", \"lamb\"] }";
        Space::parse(text, "space.toml").unwrap()
    }

    /// Best at lr's place 0.7 with the second optimizer; momentum does not matter.
    fn score(places: &[f64]) -> f64 {
        let choice = Domain::index(places[2], 3);
        (places[0] - 0.7).powi(2) + if choice == 1 { 0.0 } else { 0.2 }
    }

    fn search(sampler: Sampler, seed: u64, trials: u64) -> Vec<Ended> {
        let mut ended = Vec::new();
        for number in 0..trials {
            let places = sampler.next(&space(), seed, number, &ended);
            assert!(places.iter().all(|place| (0.0..1.0).contains(place)), "{places:?}");
            ended.push((places.clone(), score(&places)));
        }
        ended
    }

    #[test]
    fn trials_are_the_same_for_the_same_seed_and_history() {
        let once = search(Sampler::Tpe, 3, 25);
        assert_eq!(search(Sampler::Tpe, 3, 25), once);
        assert_ne!(search(Sampler::Tpe, 4, 25), once);
        assert_eq!(Sampler::Tpe.next(&space(), 3, 25, &once), Sampler::Tpe.next(&space(), 3, 25, &once.clone()));
    }

    #[test]
    fn what_good_trials_have_in_common_is_tried_more_often() {
        let tail = |ended: Vec<Ended>| ended[20..].iter().map(|(_, score)| score).sum::<f64>() / 40.0;
        let mean = |sampler| (0..10).map(|seed| tail(search(sampler, seed, 60))).sum::<f64>() / 10.0;
        let (random, learned) = (mean(Sampler::Random), mean(Sampler::Tpe));
        assert!(learned < 0.5 * random, "{learned}, evenly {random}");
    }
}
