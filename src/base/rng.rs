//! Randomness as a pure function of (seed, stream, index): Philox4x32-10.
//!
//! Source: Salmon, Moraes, Dror, Shaw, "Parallel random numbers: as easy as 1, 2, 3", SC 2011.
//! A counter-based generator has no state to share, so initial weights and synthetic data do not depend on how many
//! threads or ranks draw them, nor in which order. Transcendental functions come from `libm` (pure Rust), so that
//! the bits do not depend on the system's C library either.

const MULTIPLIER: [u32; 2] = [0xD251_1F53, 0xCD9E_8D57];
const WEYL: [u32; 2] = [0x9E37_79B9, 0xBB67_AE85];
const ROUNDS: usize = 10;

/// Ten rounds of Philox on one 128-bit counter under one 64-bit key.
#[must_use]
#[inline]
pub fn philox4x32(mut counter: [u32; 4], mut key: [u32; 2]) -> [u32; 4] {
    for round in 0..ROUNDS {
        if round > 0 {
            key = [key[0].wrapping_add(WEYL[0]), key[1].wrapping_add(WEYL[1])];
        }
        let low = u64::from(MULTIPLIER[0]) * u64::from(counter[0]);
        let high = u64::from(MULTIPLIER[1]) * u64::from(counter[2]);
        counter = [
            (high >> 32) as u32 ^ counter[1] ^ key[0],
            high as u32,
            (low >> 32) as u32 ^ counter[3] ^ key[1],
            low as u32,
        ];
    }
    counter
}

/// The finaliser of SplitMix64 (Steele, Lea, Flood, OOPSLA 2014): a bijection that spreads the bits of a word over all
/// of it.
#[must_use]
#[inline]
pub const fn spread(mut x: u64) -> u64 {
    x = (x ^ x >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ x >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ x >> 31
}

/// What a sequence of random numbers is for. Two streams never share a number under one seed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Stream {
    /// Initial rows of an embedding table.
    Embedding(u32),
    /// Initial weights of an MLP layer: (which MLP, layer).
    Weight(u32, u32),
    /// Initial bias of an MLP layer: (which MLP, layer).
    Bias(u32, u32),
    /// The order of samples within a shuffle window: (epoch, window).
    Shuffle(u32, u32),
    /// Values of a synthetic column.
    Column(u32),
    /// Labels of synthetic samples.
    Label,
    /// Parameters of a synthetic data set's teacher.
    Teacher(u32),
    /// Whole synthetic samples, for a purpose: 0 the data itself, 1 calibration.
    Sample(u32),
    /// Values of a synthetic column that come into fashion.
    Drift(u32),
    /// What is looked at of a data set: (0: which samples, 1: which rows of a table's log; the table).
    Profile(u32, u32),
    /// How a column's values are exchanged among samples.
    Permutation(u32),
}

impl Stream {
    /// The upper half of the Philox counter: a kind above two coordinates.
    const fn words(self) -> [u32; 2] {
        // 8 bits of kind, 24 bits of the first coordinate, 32 of the second.
        match self {
            Self::Embedding(table) => [1 << 24, table],
            Self::Weight(mlp, layer) => [2 << 24 | mlp, layer],
            Self::Bias(mlp, layer) => [3 << 24 | mlp, layer],
            Self::Shuffle(epoch, window) => [4 << 24 | epoch, window],
            Self::Column(column) => [5 << 24, column],
            Self::Label => [6 << 24, 0],
            Self::Teacher(part) => [7 << 24, part],
            Self::Sample(purpose) => [8 << 24, purpose],
            Self::Profile(what, table) => [9 << 24 | what, table],
            Self::Drift(column) => [10 << 24, column],
            Self::Permutation(column) => [11 << 24, column],
        }
    }
}

/// All random numbers of one stream under one seed, addressed by index.
#[derive(Debug, Clone, Copy)]
pub struct Random {
    key: [u32; 2],
    stream: [u32; 2],
}

impl Random {
    /// The stream's numbers under `seed`.
    #[must_use]
    pub const fn new(seed: u64, stream: Stream) -> Self {
        Self { key: [seed as u32, (seed >> 32) as u32], stream: stream.words() }
    }

    /// Four independent 32-bit words.
    #[must_use]
    #[inline]
    pub fn block(&self, index: u64) -> [u32; 4] {
        philox4x32([index as u32, (index >> 32) as u32, self.stream[0], self.stream[1]], self.key)
    }

    /// Two uniform numbers in [0, 1) with 53 random bits each.
    #[must_use]
    #[inline]
    pub fn uniform_pair(&self, index: u64) -> [f64; 2] {
        let [a, b, c, d] = self.block(index);
        [unit_f64(a, b), unit_f64(c, d)]
    }

    /// One uniform number in [0, 1).
    #[must_use]
    #[inline]
    pub fn uniform(&self, index: u64) -> f64 {
        self.uniform_pair(index)[0]
    }

    /// One number from the standard normal distribution (Box and Muller 1958).
    #[must_use]
    pub fn normal(&self, index: u64) -> f64 {
        let [radius, angle] = self.uniform_pair(index);
        // 1 - u lies in (0, 1], so the logarithm is finite.
        libm::sqrt(-2.0 * libm::log(1.0 - radius)) * libm::cos(std::f64::consts::TAU * angle)
    }

    /// One integer in [0, bound), each with probability 1/bound up to 2^-64 (Lemire 2019, without rejection).
    #[must_use]
    #[inline]
    pub fn below(&self, index: u64, bound: u64) -> u64 {
        let [a, b, ..] = self.block(index);
        ((u128::from(u64::from(a) << 32 | u64::from(b)) * u128::from(bound)) >> 64) as u64
    }
}

#[inline]
fn unit_f64(high: u32, low: u32) -> f64 {
    const STEP: f64 = 1.0 / (1u64 << 53) as f64;
    ((u64::from(high) << 32 | u64::from(low)) >> 11) as f64 * STEP
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Known answers of the authors' own test vectors (Random123, philox4x32 with 10 rounds).
    #[test]
    fn philox_gives_the_published_answers() {
        assert_eq!(philox4x32([0; 4], [0; 2]), [0x6627_e8d5, 0xe169_c58d, 0xbc57_ac4c, 0x9b00_dbd8]);
        assert_eq!(philox4x32([u32::MAX; 4], [u32::MAX; 2]), [0x408f_276d, 0x41c8_3b0e, 0xa20b_c7c6, 0x6d54_51fd]);
        assert_eq!(
            philox4x32([0x243f_6a88, 0x85a3_08d3, 0x1319_8a2e, 0x0370_7344], [0xa409_3822, 0x299f_31d0]),
            [0xd16c_fe09, 0x94fd_cceb, 0x5001_e420, 0x2412_6ea1]
        );
    }

    #[test]
    fn moments_are_those_of_the_distributions() {
        let random = Random::new(7, Stream::Label);
        let count = 100_000u64;
        let (mut sum, mut square, mut uniform) = (0.0, 0.0, 0.0);
        for index in 0..count {
            let x = random.normal(index);
            sum += x;
            square += x * x;
            uniform += random.uniform(index + count);
        }
        // Five standard errors.
        assert!((sum / count as f64).abs() < 0.016);
        assert!((square / count as f64 - 1.0).abs() < 0.023);
        assert!((uniform / count as f64 - 0.5).abs() < 0.005);
    }

    #[test]
    fn streams_and_seeds_differ() {
        let a = Random::new(1, Stream::Embedding(0)).block(0);
        assert_ne!(a, Random::new(2, Stream::Embedding(0)).block(0));
        assert_ne!(a, Random::new(1, Stream::Embedding(1)).block(0));
        assert_ne!(a, Random::new(1, Stream::Column(0)).block(0));
        assert_ne!(a, Random::new(1, Stream::Embedding(0)).block(1));
        assert!((0..1000).all(|i| Random::new(3, Stream::Label).below(i, 7) < 7));
    }
}
