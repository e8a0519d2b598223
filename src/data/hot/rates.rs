//! How many rows all inputs would make hot, inferred from a sample of them.
//!
//! Rows with at least H accesses in a sample are not as many as rows with at least H / x among all inputs, of which x
//! were sampled: there are more rows just below any threshold than just above it, and chance lifts more of them over it
//! than it drops. With H of 50 that is a few per cent, with H of 10 some 10 to 20, and with H of 1 there may be ten
//! times as many. So the rates at which rows are accessed are inferred from how many rows the sample accessed never,
//! once, twice …: these numbers are a mixture of Poisson distributions, whose weights expectation maximisation finds,
//! smoothed at each step (Silverman, Jones, Wilson and Nychka, "A smoothed EM approach to indirect estimation
//! problems", 1990). Here logarithms of densities are smoothed, over the logarithm of the rate, so that a power law
//! stays as it is, and the less the greater the rate: a count of n tells its logarithm to 1 / sqrt(n), so that many
//! rows tell of an edge there (the rarest rows of a table by Zipf's law are all about as rare) and few counts do not.
//! What a row's accesses in the sample leave open is what the other inputs bring, by the rates that it may have.
//!
//! Accesses are taken to be independent of each other; those of a log that come in bursts are not quite.

/// More accesses in the sample are taken for what they are.
pub(super) const MOST: usize = 200;
/// Rates below 1 that are told apart lie so far from each other by their logarithm, greater ones nearer.
const APART: f64 = 0.15;
/// Of rates beyond this, counts tell more than their rough size.
const TOLD: f64 = 2.0;
/// The greatest, in accesses in the sample: rows of more than [`MOST`] have some rate.
const GREATEST: f64 = 2.0 * MOST as f64;
/// Steps of the search, beyond which little changes.
const STEPS: usize = 1600;
/// Chances below this tell nothing.
const NO_CHANCE: f64 = 1e-14;
/// Poisson distributions of greater means are taken as normal.
const NORMAL: f64 = 30.0;

/// The rates of a table's rows, inferred.
#[derive(Debug)]
pub(super) struct Rates {
    /// Rows by accesses in the sample, 0 to [`MOST`] of them, and those with more.
    rows: Vec<f64>,
    rates: Vec<f64>,
    /// By accesses in the sample, what share of rows has which rate: as `rows` without the last, each as `rates`.
    posterior: Vec<Vec<f64>>,
}

impl Rates {
    /// Infers rates from the numbers of rows with 0 to [`MOST`] accesses in the sample, and with more; some row was
    /// accessed.
    pub(super) fn fit(rows: &[u64]) -> Self {
        assert_eq!(rows.len(), MOST + 2, "a number for every count");
        let rows: Vec<f64> = rows.iter().map(|&rows| rows as f64).collect();
        let all: f64 = rows.iter().sum();
        let accesses: f64 = rows.iter().zip(0..).map(|(rows, count)| rows * f64::from(count)).sum();
        let least = 1e-3 * (accesses / all).min(1.0);
        let next = |rate: &f64| {
            let next = rate * libm::exp(APART / (1.0 + rate / TOLD).sqrt());
            (next < GREATEST).then_some(next)
        };
        let rates: Vec<f64> = std::iter::successors(Some(least), next).collect();
        let smoothing = Smoothing::over(&rates);
        let likelihoods: Vec<Likelihoods> = rates.iter().map(|&rate| Likelihoods::of(rate)).collect();
        let mut weights: Vec<f64> =
            rates.iter().zip(&smoothing.widths).map(|(rate, width)| width / rate.sqrt()).collect();
        normalise(&mut weights);
        for _ in 0..STEPS {
            let mixture = mixture(&weights, &likelihoods);
            let wanted: Vec<f64> = rows.iter().zip(&mixture).map(|(rows, mixture)| rows / all / mixture).collect();
            for (weight, Likelihoods { first, chances }) in weights.iter_mut().zip(&likelihoods) {
                *weight *= chances.iter().zip(&wanted[*first..]).map(|(chance, wanted)| chance * wanted).sum::<f64>();
            }
            smoothing.smooth(&mut weights);
            normalise(&mut weights);
        }
        let mixture = mixture(&weights, &likelihoods);
        let posterior = (0..=MOST).map(|count| {
            weights.iter().zip(&likelihoods).map(|(weight, of)| weight * of.at(count) / mixture[count]).collect()
        });
        Self { posterior: posterior.collect(), rows, rates }
    }

    /// How many rows have at least `accesses` of all inputs' accesses, when a share of `sampled` of the inputs (more
    /// than 0, at most 1) was counted. All rows with more than [`MOST`] in the sample are taken to have them.
    pub(super) fn hot(&self, accesses: f64, sampled: f64) -> f64 {
        let others = 1.0 / sampled - 1.0;
        let of_count = |(count, posterior): (usize, &Vec<f64>)| {
            let missing = (accesses - count as f64).ceil();
            let reached =
                posterior.iter().zip(&self.rates).map(|(share, rate)| share * at_least(missing, rate * others));
            self.rows[count] * reached.sum::<f64>()
        };
        self.posterior.iter().enumerate().filter(|(count, _)| self.rows[*count] > 0.0).map(of_count).sum::<f64>()
            + self.rows[MOST + 1]
    }
}

/// The chances of 0 to [`MOST`] accesses at a rate, and of more.
fn likelihoods(rate: f64) -> Vec<f64> {
    let (log, mut term) = (libm::log(rate), -rate);
    let mut chances = vec![libm::exp(term)];
    for count in 1..=MOST {
        term += log - libm::log(count as f64);
        chances.push(libm::exp(term));
    }
    chances.push((1.0 - chances.iter().sum::<f64>()).max(0.0));
    chances
}

/// The same at one rate, without what is next to impossible at either end.
struct Likelihoods {
    first: usize,
    chances: Vec<f64>,
}

impl Likelihoods {
    fn of(rate: f64) -> Self {
        let all = likelihoods(rate);
        let told = |chance: &f64| *chance > NO_CHANCE;
        let (first, last) = (all.iter().position(told).unwrap_or(0), all.iter().rposition(told).unwrap_or(0));
        Self { first, chances: all[first..=last].to_vec() }
    }

    fn at(&self, count: usize) -> f64 {
        count.checked_sub(self.first).and_then(|at| self.chances.get(at)).copied().unwrap_or(0.0)
    }
}

/// The chances of 0 to [`MOST`] accesses, and of more, of a row of any rate; none is 0.
fn mixture(weights: &[f64], likelihoods: &[Likelihoods]) -> Vec<f64> {
    let mut mixture = vec![0.0; MOST + 2];
    for (weight, Likelihoods { first, chances }) in weights.iter().zip(likelihoods) {
        mixture[*first..].iter_mut().zip(chances).for_each(|(sum, chance)| *sum += weight * chance);
    }
    mixture.iter_mut().for_each(|chance| *chance = chance.max(f64::MIN_POSITIVE));
    mixture
}

/// How weights of rates are smoothed.
struct Smoothing {
    /// Of each rate, what lies between the middles to its neighbours, by logarithms.
    widths: Vec<f64>,
    /// The parts of its neighbours.
    neighbours: Vec<[f64; 2]>,
}

impl Smoothing {
    fn over(rates: &[f64]) -> Self {
        let last = rates.len() - 1;
        let gap = |from: usize, to: usize| libm::log(rates[to] / rates[from]);
        let gaps = |at: usize| [gap(at.saturating_sub(1), at), gap(at, (at + 1).min(last))];
        let widths = (0..=last).map(|at| gaps(at).iter().sum::<f64>() / 2.0);
        // What is linear stays so: of two neighbours the nearer one counts more.
        let neighbours = (0..=last).map(|at| {
            let [before, after] = gaps(at);
            if at == 0 || at == last { [0.25; 2] } else { [after, before].map(|gap| 0.5 * gap / (before + after)) }
        });
        Self { widths: widths.collect(), neighbours: neighbours.collect() }
    }

    /// Replaces every density by a geometric mean of itself, half of it, and its neighbours.
    fn smooth(&self, weights: &mut [f64]) {
        let densities = weights.iter().zip(&self.widths).map(|(weight, width)| libm::log((weight / width).max(1e-300)));
        let logs: Vec<f64> = densities.collect();
        let last = logs.len() - 1;
        for (at, weight) in weights.iter_mut().enumerate() {
            let [before, after] = self.neighbours[at];
            let around = before * logs[at.saturating_sub(1)] + after * logs[(at + 1).min(last)];
            *weight = libm::exp(around + 0.5 * logs[at]) * self.widths[at];
        }
    }
}

fn normalise(weights: &mut [f64]) {
    let sum: f64 = weights.iter().sum();
    weights.iter_mut().for_each(|weight| *weight /= sum);
}

/// The chance that a Poisson variable of this mean is at least `count`.
fn at_least(count: f64, mean: f64) -> f64 {
    if count <= 0.0 {
        return 1.0;
    }
    if mean >= NORMAL {
        return 0.5 * libm::erfc((count - 0.5 - mean) / (2.0 * mean).sqrt());
    }
    let mut term = libm::exp(-mean);
    let (mut below, mut at) = (0.0, 0.0);
    while at < count && (at < mean || term > 1e-18) {
        below += term;
        at += 1.0;
        term *= mean / at;
    }
    (1.0 - below).max(0.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What a sample of `sampled` shows on average of rows with these rates, and how many rows all inputs make hot.
    struct Shown {
        rows: Vec<u64>,
        rates: Vec<(f64, f64)>,
        sampled: f64,
    }

    impl Shown {
        /// Zipf's law: `accesses` in the sample to `count` rows.
        fn zipf(count: u32, exponent: f64, accesses: f64, sampled: f64) -> Self {
            // Rows of nearly the same rate are one, with their number.
            let mut rates = Vec::new();
            let (mut first, mut mass) = (1.0, 0.0);
            while first <= f64::from(count) {
                let next = (first + 1.0_f64).max((first * 1.01).floor()).min(f64::from(count) + 1.0);
                let rate = ((first + next - 1.0) / 2.0).powf(-exponent);
                rates.push((rate, next - first));
                mass += rate * (next - first);
                first = next;
            }
            rates.iter_mut().for_each(|(rate, _)| *rate *= accesses / mass);
            let mut rows = vec![0.0; MOST + 2];
            for (rate, many) in &rates {
                rows.iter_mut().zip(likelihoods(*rate)).for_each(|(rows, chance)| *rows += many * chance);
            }
            Self { rows: rows.into_iter().map(|rows| rows.round() as u64).collect(), rates, sampled }
        }

        fn hot(&self, accesses: f64) -> f64 {
            let of = |(rate, many): &(f64, f64)| many * at_least(accesses, rate / self.sampled);
            self.rates.iter().map(of).sum()
        }
    }

    #[test]
    fn chances_are_those_of_poisson() {
        // P(X >= 3) at mean 2, P(X >= 60) at mean 50, P(X >= 1) at mean 1e-3.
        for (count, mean, chance) in [(3.0, 2.0, 0.323_324), (60.0, 50.0, 0.092_265), (1.0, 1e-3, 0.000_999_5)] {
            assert!((at_least(count, mean) - chance).abs() < 4e-3, "{count} {mean}");
        }
        assert_eq!((at_least(0.0, 0.0), at_least(1.0, 0.0), at_least(-5.0, 100.0)), (1.0, 0.0, 1.0));
        let chances = likelihoods(7.5);
        assert!((chances.iter().sum::<f64>() - 1.0).abs() < 1e-12 && chances.len() == MOST + 2);
        assert!(likelihoods(GREATEST)[MOST + 1] > 0.999);
    }

    #[test]
    fn a_sample_tells_how_many_rows_all_inputs_make_hot() {
        for (count, exponent, accesses) in [
            (10_000_000, 0.9, 1e6),
            (10_000_000, 1.05, 1e6),
            (2_000_000, 0.7, 1e6),
            (300_000, 1.2, 1e6),
            (100_000, 0.9, 1e6),
            (1_000_000, 1.0, 5e4),
        ] {
            let shown = Shown::zipf(count, exponent, accesses, 0.05);
            let rates = Rates::fit(&shown.rows);
            for cutoff in [2.0, 3.0, 5.0, 10.0, 20.0, 50.0, 100.0] {
                let truth = shown.hot(cutoff / 0.05);
                let sampled: u64 = shown.rows[cutoff as usize..].iter().sum();
                if truth < 300.0 {
                    continue;
                }
                let (found, naive) = (rates.hot(cutoff / 0.05, 0.05) / truth, sampled as f64 / truth);
                // At two accesses, rows that the sample shows as hot may be three times as many.
                assert!((found - 1.0).abs() < 0.13, "{count} {exponent}: {cutoff}: {truth} {found} {naive}");
            }
        }
    }

    #[test]
    fn an_edge_is_found_where_the_rarest_rows_are_all_about_as_rare() {
        // Criteo's column 15: no row has less than a third of the mean, and about 32 accesses in the sample.
        for (count, exponent, edge, bound) in [(11_938, 0.62, 32.0, 0.09), (50_000, 0.3, 14.0, 0.14)] {
            let shown = Shown::zipf(count, exponent, 1e6, 0.05);
            let rates = Rates::fit(&shown.rows);
            for share in [0.3, 0.6, 0.9, 1.0, 1.2, 1.6, 2.5] {
                let accesses = (edge * share / 0.05_f64).round();
                let (truth, found) = (shown.hot(accesses), rates.hot(accesses, 0.05));
                assert!((found / truth - 1.0).abs() < bound, "{count}: {accesses}: {truth} {found}");
            }
        }
    }

    #[test]
    fn where_everything_was_counted_nothing_is_left_open() {
        let mut rows = vec![0; MOST + 2];
        (rows[0], rows[1], rows[7], rows[MOST], rows[MOST + 1]) = (1000, 100, 10, 2, 1);
        let rates = Rates::fit(&rows);
        for (accesses, hot) in [(1.0, 113.0), (2.0, 13.0), (7.0, 13.0), (7.5, 3.0), (200.0, 3.0), (0.0, 1113.0)] {
            assert!((rates.hot(accesses, 1.0) - hot).abs() < 1e-6, "{accesses}: {}", rates.hot(accesses, 1.0));
        }
    }
}
