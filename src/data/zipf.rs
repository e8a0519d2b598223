//! Ranks from a Zipf distribution: P(rank k) is proportional to (k + 1)^-s for k in 0..n.
//!
//! The most frequent ranks are drawn exactly, by the inverse of their cumulative distribution with a guide table (Chen
//! & Asau 1974). Beyond them the sum is taken as the integral of x^-s, which for exponents up to 3 differs from it by
//! less than one part in 10^8 there, so tables of tens of millions of rows cost a fixed amount of memory and time.

/// Ranks that are drawn exactly.
const EXACT: u64 = 1 << 13;

/// A Zipf distribution over `n` ranks, drawn from by one uniform number.
#[derive(Debug, Clone)]
pub struct Zipf {
    /// Cumulative probability of rank 0 to k, for the exact ranks.
    cumulative: Vec<f64>,
    /// For each of as many equal cells of [0, `cumulative.last()`): the first rank that reaches into it.
    guide: Vec<u32>,
    tail: Option<Tail>,
    ranks: u64,
}

/// The ranks beyond the exact ones, as an interval of the real line.
#[derive(Debug, Clone)]
struct Tail {
    /// 1 - s.
    power: f64,
    /// x^(1 - s) at the start (or ln x where s is 1), and its growth to the end.
    start: f64,
    growth: f64,
}

impl Zipf {
    /// The distribution over `ranks` ranks (at least 1) with exponent `exponent` (0: uniform).
    #[must_use]
    pub fn new(ranks: u64, exponent: f64) -> Self {
        assert!(ranks > 0, "a distribution needs a rank");
        let exact = ranks.min(EXACT);
        let mut sum = 0.0;
        let mut cumulative: Vec<f64> = (1..=exact)
            .map(|k| {
                sum += libm::pow(k as f64, -exponent);
                sum
            })
            .collect();
        let rest = integral(exact as f64 + 0.5, ranks as f64 + 0.5, exponent);
        let total = sum + rest;
        for value in &mut cumulative {
            *value /= total;
        }
        let mass = cumulative[cumulative.len() - 1];
        let cells = cumulative.len();
        let mut rank = 0u32;
        let guide = (0..cells)
            .map(|cell| {
                let low = mass * cell as f64 / cells as f64;
                while cumulative[rank as usize] <= low {
                    rank += 1;
                }
                rank
            })
            .collect();
        let tail = (ranks > exact).then(|| {
            let power = 1.0 - exponent;
            let (start, end) = (antiderivative(exact as f64 + 0.5, power), antiderivative(ranks as f64 + 0.5, power));
            Tail { power, start, growth: end - start }
        });
        Self { cumulative, guide, tail, ranks }
    }

    /// The distribution whose hottest 1 % of ranks (at least one) take `share` of all draws; the uniform one where
    /// they take more than that already.
    #[must_use]
    pub fn with_hottest_share(ranks: u64, share: f64) -> Self {
        let hot = (ranks / 100).max(1);
        let (mut low, mut high) = (0.0, 16.0);
        // 40 halvings: far below what f64 sums resolve.
        for _ in 0..40 {
            let middle = 0.5 * (low + high);
            if mass(hot, middle) < share * mass(ranks, middle) { low = middle } else { high = middle }
        }
        Self::new(ranks, if high < 1e-9 { 0.0 } else { high })
    }

    /// The rank at `uniform` in [0, 1).
    #[must_use]
    #[inline]
    pub fn rank(&self, uniform: f64) -> u64 {
        let mass = self.cumulative[self.cumulative.len() - 1];
        match &self.tail {
            Some(tail) if uniform >= mass => {
                let x = tail.at((uniform - mass) / (1.0 - mass));
                // Rank k covers [k + 0.5, k + 1.5) of the real line.
                ((x - 0.5) as u64).clamp(self.cumulative.len() as u64, self.ranks - 1)
            }
            _ => {
                let cells = self.guide.len();
                let cell = ((uniform / mass * cells as f64) as usize).min(cells - 1);
                let mut rank = self.guide[cell] as usize;
                while rank + 1 < self.cumulative.len() && self.cumulative[rank] <= uniform {
                    rank += 1;
                }
                rank as u64
            }
        }
    }

    /// The share of all draws that the first `count` ranks take.
    #[must_use]
    pub fn share(&self, count: u64) -> f64 {
        if count == 0 {
            return 0.0;
        }
        let exact = self.cumulative.len() as u64;
        let known = self.cumulative[count.min(exact) as usize - 1];
        match &self.tail {
            Some(tail) if count > exact => {
                known + (1.0 - known) * (antiderivative(count as f64 + 0.5, tail.power) - tail.start) / tail.growth
            }
            _ => known,
        }
    }
}

impl Tail {
    #[inline]
    fn at(&self, uniform: f64) -> f64 {
        let value = self.start + uniform * self.growth;
        if self.power.abs() < NEARLY_ONE { libm::exp(value) } else { libm::exp(libm::log(value) / self.power) }
    }
}

/// Exponents this near to 1 are taken as 1: the antiderivative has a pole there, and x^1e-9 is 1 + 1e-9 ln x.
const NEARLY_ONE: f64 = 1e-9;

fn antiderivative(x: f64, power: f64) -> f64 {
    if power.abs() < NEARLY_ONE { libm::log(x) } else { libm::pow(x, power) }
}

/// The integral of x^-exponent.
#[must_use]
pub fn integral(from: f64, to: f64, exponent: f64) -> f64 {
    let power = 1.0 - exponent;
    let growth = antiderivative(to, power) - antiderivative(from, power);
    if power.abs() < NEARLY_ONE { growth } else { growth / power }
}

/// The sum of k^-exponent for k in 1..=count.
fn mass(count: u64, exponent: f64) -> f64 {
    // Fewer exact terms than in `new` keep the search for the exponent fast; the error is below 1e-5 of the rest.
    let exact = count.min(512);
    let head: f64 = (1..=exact).map(|k| libm::pow(k as f64, -exponent)).sum();
    head + integral(exact as f64 + 0.5, count as f64 + 0.5, exponent)
}

/// A cheap bijection of 0..n: ranks that follow each other land far apart, so that hot rows are spread over a table.
#[derive(Debug, Clone, Copy)]
pub struct Scatter {
    rows: u64,
    stride: u64,
    start: u64,
}

impl Scatter {
    /// The bijection of 0..rows, different for each `salt`.
    #[must_use]
    pub fn new(rows: u64, salt: u64) -> Self {
        const GOLDEN: f64 = 0.618_033_988_749_894_9;
        assert!(rows > 0 && rows <= u64::from(u32::MAX), "products of two rows fit 64 bits");
        let mut stride = ((rows as f64 * GOLDEN) as u64).max(1);
        while gcd(stride, rows) != 1 {
            stride += 1;
        }
        Self { rows, stride: stride % rows.max(2), start: salt % rows }
    }

    /// How many numbers there are.
    #[must_use]
    pub const fn rows(&self) -> u64 {
        self.rows
    }

    /// Where a rank lands.
    #[must_use]
    #[inline]
    pub fn row(&self, rank: u64) -> u32 {
        debug_assert!(rank < self.rows);
        ((rank * self.stride + self.start) % self.rows) as u32
    }
}

fn gcd(a: u64, b: u64) -> u64 {
    if b == 0 { a } else { gcd(b, a % b) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranks_come_as_often_as_they_should() {
        for (ranks, exponent) in [(1, 1.0), (3, 0.0), (100, 1.0), (5_000, 1.3), (200_000, 0.9), (2_000_000, 1.0)] {
            let zipf = Zipf::new(ranks, exponent);
            let draws = 200_000u64;
            let mut hot = [0u64; 3];
            let limits = [(ranks / 1000).max(1), (ranks / 20).max(1), ranks];
            for draw in 0..draws {
                let rank = zipf.rank((draw as f64 + 0.5) / draws as f64);
                assert!(rank < ranks);
                for (count, limit) in hot.iter_mut().zip(limits) {
                    *count += u64::from(rank < limit);
                }
            }
            let exact = |count: u64| (1..=count).map(|k| (k as f64).powf(-exponent)).sum::<f64>();
            let total = exact(ranks);
            for (count, limit) in hot.into_iter().zip(limits) {
                let expected = exact(limit) / total;
                assert!((count as f64 / draws as f64 - expected).abs() < 1e-4, "{ranks} {exponent} {limit}");
                assert!((zipf.share(limit) - expected).abs() < 1e-6, "{ranks} {exponent} {limit}");
            }
        }
    }

    #[test]
    fn the_exponent_is_fitted_to_the_hottest_share() {
        for (ranks, share) in [(484, 0.80), (3, 0.88), (35_103, 0.38), (10_000_000, 0.42)] {
            let zipf = Zipf::with_hottest_share(ranks, share);
            assert!((zipf.share((ranks / 100).max(1)) - share).abs() < 1e-4, "{ranks}");
        }
        // One of two ranks takes half at least.
        assert_eq!(Zipf::with_hottest_share(2, 0.37).share(1), 0.5);
    }

    #[test]
    fn scattering_is_a_bijection_that_separates_neighbours() {
        for rows in [1u64, 2, 3, 4, 10, 97, 1000, 4096] {
            let scatter = Scatter::new(rows, 12_345);
            let mut seen: Vec<u32> = (0..rows).map(|rank| scatter.row(rank)).collect();
            if rows >= 10 {
                assert!(seen.windows(2).all(|pair| u64::from(pair[0].abs_diff(pair[1])) >= rows / 4), "{rows}");
            }
            seen.sort_unstable();
            assert!(seen.into_iter().eq(0..rows as u32), "{rows}");
        }
        let largest = u64::from(u32::MAX);
        assert!(u64::from(Scatter::new(largest, 0).row(largest - 1)) < largest);
    }
}
