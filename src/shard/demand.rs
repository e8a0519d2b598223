//! What a data set asks of its tables: how many look-ups a sample makes, and how unevenly they fall on rows; measured
//! on its first samples.
//!
//! The exponent of a table's Zipf distribution is the one with which as many look-ups would name as many different rows
//! as these did: what the cost of a minibatch depends on. A log whose rows come evenly has 0.

use super::scheme::Rows;
use super::skew::Skew;
use crate::data::{Batch, Source, Split};

/// Samples that are read at a time.
const CHUNK: usize = 512;
/// Row numbers of one table that are held at most.
const MOST_LOOKUPS: usize = 4 << 20;
/// Look-ups that are looked at: so many a row, and at least the second: with more of them every row comes, and with
/// fewer none comes twice, whatever their frequencies.
const DRAWS_A_ROW: u64 = 4;
const LEAST_DRAWS: usize = 64;
/// Standard deviations by which even look-ups may differ from their mean.
const DEVIATIONS: f64 = 4.0;
/// The largest exponent that is told from larger ones.
const STEEPEST: f64 = 4.0;
/// Halvings of the interval that holds the exponent, to below a hundredth.
const HALVINGS: usize = 9;

/// What is asked of one table.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Demand {
    /// Look-ups a sample, on average.
    pub lookups: f64,
    /// Zipf exponent of the rows' frequencies; 0: all alike.
    pub skew: f64,
}

/// Of each table, measured on up to `samples` training samples, and how many these were. `None` where there are none or
/// they cannot be read: whoever trains on them is told.
#[must_use]
pub fn measured(source: &dyn Source, samples: usize) -> Option<(Vec<Demand>, usize)> {
    let schema = source.schema();
    let mut reader = source.open(Split::Train, 0).ok()?;
    let mut seen = vec![(0usize, Vec::<u32>::new()); schema.tables.len()];
    let mut count = 0;
    while count < samples && seen.iter().all(|(all, _)| *all < MOST_LOOKUPS) {
        let mut batch = Batch::new(schema);
        // What is wrong with a row, the run that trains on it tells.
        let Ok(read @ 1..) = reader.read(&mut batch, CHUNK.min(samples - count)) else { break };
        for ((all, rows), (bag, column)) in seen.iter_mut().zip(batch.bags.iter().zip(&schema.tables)) {
            *all += bag.rows.len();
            let wanted = usize::try_from(DRAWS_A_ROW * column.rows).unwrap_or(usize::MAX);
            let wanted = wanted.clamp(LEAST_DRAWS, MOST_LOOKUPS);
            rows.extend(bag.rows.iter().take(wanted.saturating_sub(rows.len())));
        }
        count += read;
    }
    let demand = |((all, mut rows), column): ((usize, Vec<u32>), &crate::data::Column)| {
        let draws = rows.len();
        rows.sort_unstable();
        rows.dedup();
        Demand { lookups: all as f64 / count as f64, skew: exponent(column.rows, draws, rows.len()) }
    };
    (count > 0).then(|| (seen.into_iter().zip(&schema.tables).map(demand).collect(), count))
}

/// The exponent with which `draws` look-ups of a table of `rows` rows name `distinct` different ones.
fn exponent(rows: u64, draws: usize, distinct: usize) -> f64 {
    let expected = |exponent: f64| Skew::new(rows, exponent).unique(&Rows::all(rows), draws as f64);
    // Balls into bins: so many bins stay empty, and their number varies by so much (Johnson and Kotz, "Urn models",
    // 1977).
    let a_row = draws as f64 / rows as f64;
    let empty = libm::exp(-a_row);
    let deviation = (rows as f64 * empty * (1.0 - (1.0 + a_row) * empty)).max(0.0).sqrt();
    if distinct as f64 >= expected(0.0) - DEVIATIONS * deviation.max(0.25) {
        return 0.0;
    }
    let (mut low, mut high) = (0.0, STEEPEST);
    for _ in 0..HALVINGS {
        let middle = (low + high) / 2.0;
        if expected(middle) > distinct as f64 { low = middle } else { high = middle }
    }
    ((low + high) * 50.0).round() / 100.0
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::config::DataConfig;
    use crate::data::Random;

    #[test]
    fn look_ups_and_skew_of_random_data_are_found_again() {
        for zipf in [0.0, 0.7, 1.05, 1.3] {
            let config = DataConfig { lookups: 7.into(), lookups_fixed: false, zipf, ..DataConfig::default() };
            let source = Random::new(&config, &[3, 500, 10_000, 3_000_000], 1).unwrap();
            let (found, samples) = measured(&source, 4_000).unwrap();
            assert_eq!(samples, 4_000);
            for (demand, rows) in found.iter().zip([3, 500, 10_000, 3_000_000]) {
                assert!((demand.lookups - 4.0).abs() < 0.15, "{zipf}, {rows}: {demand:?}");
                // Three rows say nothing.
                assert!(rows == 3 || (demand.skew - zipf).abs() < 0.15, "{zipf}, {rows}: {demand:?}");
            }
        }
        let config = DataConfig::default();
        let even = Random::new(&config, &[10, 1000, 100_000_000], 1).unwrap();
        let (found, _) = measured(&even, 2_000).unwrap();
        assert!(found.iter().all(|demand| *demand == Demand { lookups: 1.0, skew: 0.0 }), "{found:?}");
        assert!(measured(&even, 0).is_none());
    }
}
