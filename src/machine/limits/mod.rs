//! The limits of this machine, measured: how fast a team of threads can move memory and multiply.
//!
//! Benches divide by these. Machines drift (the same two cores gave 315 and 475 GFLOP/s within an hour), so a bench
//! measures its limits right before and right after its work, in the same process and with the same team: [`around`].
//!
//! What makes a figure trustworthy: memory is touched by its team before the clock starts, buffers are several times
//! larger than the last-level cache, every answer is checked, and a [`Rate`] keeps median, minimum and maximum.
//! Words are as in STREAM (McCalpin 1995): 1 GB/s is 10^9 bytes a second; each formula says which bytes count.

mod ceiling;
mod clock;
mod journey;
mod memory;
mod peak;
mod processor;
mod rows;
mod stream;
mod taken;
mod together;

use std::time::{Duration, Instant};

use serde::Serialize;

use crate::base::median;

pub use ceiling::{CEILINGS, Ceiling};
pub use clock::clock_ghz;
pub use journey::journeys;
pub use memory::{Field, Pages};
pub use peak::{
    AMX_PEAK_FORMULA, BF16_PEAK_FORMULA, F32_PEAK_FORMULA, amx_peak, bf16_pass_peak, bf16_peak, f32_peak, thirds_peak,
};
pub use processor::Processor;
pub use rows::{AHEAD, GATHER_FORMULA, Gathered, UPDATE_FORMULA};
pub use stream::{COPY_FORMULA, READ_FORMULA, STREAM_COPY_FORMULA};
pub use taken::core_seconds_taken;
pub use together::write_together;

/// How fast something went, over several passes, in 10^9 units (bytes or floating-point operations) a second.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Rate {
    /// The median pass.
    pub median: f64,
    /// The slowest pass.
    pub min: f64,
    /// The fastest pass.
    pub max: f64,
    /// How many passes were timed.
    pub passes: usize,
}

/// Bounds on the passes of one measurement.
const PASSES: std::ops::RangeInclusive<usize> = 5..=25;

/// A measurement ends after this time and the fewest passes.
const ENOUGH: Duration = Duration::from_millis(250);

impl Rate {
    /// Times `pass`, which does `units` units of work, after one pass that is not timed.
    ///
    /// # Panics
    /// When `pass` does.
    pub fn measure(units: f64, mut pass: impl FnMut()) -> Self {
        pass();
        let start = Instant::now();
        let mut seconds = Vec::with_capacity(*PASSES.end());
        while seconds.len() < *PASSES.start() || (seconds.len() < *PASSES.end() && start.elapsed() < ENOUGH) {
            let start = Instant::now();
            pass();
            // A clock may be too coarse for a tiny pass in a test.
            seconds.push(start.elapsed().as_secs_f64().max(1e-9));
        }
        Self::of(units, seconds)
    }

    /// The median, the least and the greatest, for a table.
    #[must_use]
    pub fn cells(&self) -> [String; 3] {
        [self.median, self.min, self.max].map(|rate| format!("{rate:.1}"))
    }

    /// Of passes that took so many seconds each.
    fn of(units: f64, mut seconds: Vec<f64>) -> Self {
        let median = median(&mut seconds);
        let rate = |seconds: f64| units / seconds / 1e9;
        let passes = seconds.len();
        Self { median: rate(median), min: rate(seconds[passes - 1]), max: rate(seconds[0]), passes }
    }
}

/// A limit right before and right after some work.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Bracket {
    /// Before the work.
    pub before: Rate,
    /// After it.
    pub after: Rate,
}

impl Bracket {
    /// Above this share the machine changed too much during the work for its ratio to be trusted.
    pub const DRIFT_WORTH_SAYING: f64 = 0.10;

    /// What to divide by: (before + after) / 2, of the medians.
    #[must_use]
    pub fn mean(&self) -> f64 {
        (self.before.median + self.after.median) / 2.0
    }

    /// |after - before| / mean.
    #[must_use]
    pub fn drift(&self) -> f64 {
        (self.after.median - self.before.median).abs() / self.mean()
    }

    /// A sentence for the user when the limit called `name` drifted by more than 10 %.
    #[must_use]
    pub fn remark(&self, name: &str) -> Option<String> {
        (self.drift() > Self::DRIFT_WORTH_SAYING).then(|| {
            let (before, after, percent) = (self.before.median, self.after.median, self.drift() * 100.0);
            format!("{name} was {before:.1} before and {after:.1} after the work ({percent:.0} % apart): run it again")
        })
    }
}

/// Measures limits, does the work, and measures them again.
pub fn around<const LIMITS: usize, T>(
    mut measure: impl FnMut() -> [Rate; LIMITS],
    work: impl FnOnce() -> T,
) -> ([Bracket; LIMITS], T) {
    let before = measure();
    let result = work();
    let after = measure();
    (std::array::from_fn(|i| Bracket { before: before[i], after: after[i] }), result)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rate(median: f64) -> Rate {
        Rate { median, min: median, max: median, passes: 5 }
    }

    #[test]
    fn drift_is_told_beyond_a_tenth() {
        let mut values = [rate(100.0), rate(104.0)].into_iter();
        let ([bracket], result) = around(|| [values.next().unwrap()], || 7);
        assert_eq!((result, bracket.mean(), bracket.remark("read")), (7, 102.0, None));
        let far = Bracket { before: rate(100.0), after: rate(80.0) };
        let remark = far.remark("read").unwrap();
        assert!(remark.starts_with("read was 100.0 before and 80.0 after"), "{remark}");
    }

    #[test]
    fn a_rate_orders_its_passes() {
        let mut passes = 0;
        let rate = Rate::measure(1e6, || passes += 1);
        assert_eq!(passes, rate.passes + 1);
        assert!(0.0 < rate.min && rate.min <= rate.median && rate.median <= rate.max && rate.max.is_finite());
    }

    #[test]
    fn a_rate_is_of_billions_a_second() {
        let rate = Rate::of(1e6, vec![0.004, 0.001, 0.003, 0.002]);
        let exact = [(rate.max, 1.0), (rate.median, 0.4), (rate.min, 0.25)];
        assert!(exact.iter().all(|(found, expected)| (found - expected).abs() < 1e-9) && rate.passes == 4, "{rate:?}");
        // Who sleeps for a millisecond sleeps no less, so a million units are no more than a billion a second.
        let rate = Rate::measure(1e6, || std::thread::sleep(Duration::from_millis(1)));
        assert!(0.0 < rate.max && rate.max <= 1.0, "{rate:?}");
    }
}
