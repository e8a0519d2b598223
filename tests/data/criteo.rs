//! The generated click log: its shape against the real sample's published figures, and what can be learned from it.

use std::collections::HashMap;

use octorec::base::config::{DataConfig, LookUps};
use octorec::data::{Batch, Criteo, Samples, Source, Split};

use super::auc::auc;

const SAMPLES: usize = 80_000;

fn log(config: &DataConfig) -> Criteo {
    Criteo::new(config, &[], 13).unwrap()
}

fn read(source: &Criteo, split: Split, samples: usize) -> Batch {
    let mut batch = Batch::new(source.schema());
    assert_eq!(source.open(split, 0).unwrap().read(&mut batch, samples).unwrap(), samples);
    batch.check(source.schema()).unwrap();
    batch
}

#[test]
fn columns_have_the_shape_of_the_real_sample() {
    // Missing rate, median, p90, p99 and maximum of I1 to I13, from the sample's description.
    let integers: [(f64, [i64; 4]); 13] = [
        (44.5, [1, 9, 44, 556]),
        (0.0, [3, 206, 2298, 18_522]),
        (19.1, [8, 61, 364, 65_535]),
        (19.4, [5, 21, 45, 417]),
        (4.8, [2214, 32_247, 275_158, 1_170_890]),
        (25.2, [38, 341, 1575, 16_290]),
        (4.7, [3, 31, 200, 8807]),
        (0.1, [8, 35, 48, 4352]),
        (4.7, [40, 310, 1248, 12_661]),
        (44.5, [1, 1, 3, 6]),
        (4.7, [1, 6, 23, 104]),
        (77.2, [0, 2, 15, 493]),
        (19.4, [5, 27, 76, 6558]),
    ];
    // Missing rate of C1 to C26, and what the hottest 1 % of values take of the samples that have one.
    let missing_rates = [
        0.0, 0.0, 3.9, 3.9, 0.0, 13.7, 0.0, 0.0, 0.0, 0.0, 0.0, 3.9, 0.0, 0.0, 0.0, 3.9, 0.0, 0.0, 41.4, 41.4, 3.9,
        81.7, 0.0, 3.9, 41.4, 41.4,
    ];
    let hottest_shares = [
        80.0, 28.0, 38.0, 47.0, 67.0, 54.0, 24.0, 76.0, 88.0, 47.0, 23.0, 40.0, 23.0, 36.0, 29.0, 43.0, 43.0, 35.0,
        73.0, 37.0, 42.0, 52.0, 44.0, 58.0, 32.0, 49.0,
    ];
    let log = log(&DataConfig { train_samples: SAMPLES as u64, ..DataConfig::default() });
    let mut text = Vec::new();
    log.write_tsv(Split::Train, 0..SAMPLES as u64, &mut text).unwrap();
    let text = String::from_utf8(text).unwrap();
    let table: Vec<Vec<&str>> = text.lines().map(|line| line.split('\t').collect()).collect();
    assert!(table.len() == SAMPLES && table.iter().all(|row| row.len() == 40));
    let present = |column: usize| table.iter().map(move |row| row[column]).filter(|field| !field.is_empty());
    let missing = |column: usize| 100.0 - present(column).count() as f64 / SAMPLES as f64 * 100.0;

    for (column, (rate, quantiles)) in (1..).zip(integers) {
        assert!((missing(column) - rate).abs() < 0.7, "I{column}: {} % missing", missing(column));
        let mut values: Vec<i64> = present(column).map(|field| field.parse().unwrap()).collect();
        values.sort_unstable();
        for (level, expected) in [0.5, 0.9, 0.99].into_iter().zip(quantiles) {
            let found = values[(level * values.len() as f64) as usize];
            assert!((found - expected).abs() as f64 <= 1.0 + 0.15 * expected as f64, "I{column} {level}: {found}");
        }
        let maximum = values[values.len() - 1];
        assert!(maximum <= quantiles[3] && maximum as f64 > 0.2 * quantiles[3] as f64, "I{column}: {maximum}");
    }
    // Columns that the real log lacks together are lacking together.
    for together in [&[1, 10][..], &[4, 13], &[16, 17, 25, 29, 34, 37], &[32, 33, 38, 39]] {
        assert!(table.iter().all(|row| together.iter().all(|&c| row[c].is_empty() == row[together[0]].is_empty())));
    }
    for (number, (rate, share)) in (1..).zip(missing_rates.into_iter().zip(hottest_shares)) {
        let column = 13 + number;
        assert!((missing(column) - rate).abs() < 0.7, "C{number}: {} % missing", missing(column));
        let mut counts = HashMap::new();
        present(column).for_each(|field| *counts.entry(field).or_insert(0u32) += 1);
        let values = log.schema().tables[number - 1].rows - u64::from(rate > 0.0);
        assert!(counts.len() as u64 <= values);
        let mut counts: Vec<u32> = counts.into_values().collect();
        counts.sort_unstable_by(|a, b| b.cmp(a));
        let hot: u32 = counts[..(values / 100).max(1) as usize].iter().sum();
        let found = 100.0 * f64::from(hot) / f64::from(counts.iter().sum::<u32>());
        assert!((found - share).abs() < 3.0, "C{number}: the hottest 1 % take {found} %");
    }
}

#[test]
fn clicks_follow_the_true_probabilities_on_every_seed() {
    for seed in [1, 2, 99] {
        let log =
            log(&DataConfig { seed, train_samples: SAMPLES as u64, test_samples: 20_000, ..DataConfig::default() });
        let batch = read(&log, Split::Train, SAMPLES);
        let truth = log.truth(Split::Train, 0, SAMPLES).unwrap();
        let rate = batch.labels.iter().sum::<f32>() / SAMPLES as f32;
        assert!((0.224..0.256).contains(&rate), "seed {seed}: click rate {rate}");
        let bayes = auc(&truth, &batch.labels);
        println!("seed {seed}: click rate {rate:.4}, Bayes AUC {bayes:.4}");
        assert!((0.80..0.82).contains(&bayes), "seed {seed}: Bayes AUC {bayes}");
        // Calibrated: in each band of probability, as many clicks as announced.
        for band in 0..10 {
            let low = band as f32 / 10.0;
            let inside: Vec<usize> = (0..SAMPLES).filter(|&n| truth[n] >= low && truth[n] < low + 0.1).collect();
            let clicks: f64 = inside.iter().map(|&n| f64::from(batch.labels[n])).sum();
            let expected: f64 = inside.iter().map(|&n| f64::from(truth[n])).sum();
            let deviation = inside.iter().map(|&n| f64::from(truth[n] * (1.0 - truth[n]))).sum::<f64>().sqrt();
            assert!((clicks - expected).abs() < 4.5 * deviation + 1e-9, "seed {seed}, band {band}");
        }
        let test = log.truth(Split::Test, 0, 50_000).unwrap();
        assert_eq!(test.len(), 20_000, "no truth beyond the end");
        assert_eq!(log.truth(Split::Test, 77, 3).unwrap(), test[77..80]);
        assert_ne!(test[..100], truth[..100]);
    }
}

/// Bins of half a natural logarithm for the integers; an absent one counts as 0.
const BINS: usize = 40;

/// A factorisation machine over the categories and binned integers, trained by Adagrad in one pass.
struct Machine {
    /// Where each field's weights begin.
    first: Vec<usize>,
    width: usize,
    bias: f32,
    weights: Vec<f32>,
    squares: Vec<f32>,
}

impl Machine {
    fn new(log: &Criteo, dim: usize) -> Self {
        let mut first = vec![0usize];
        for rows in std::iter::repeat_n(BINS as u64, 13).chain(log.schema().rows()) {
            first.push(first[first.len() - 1] + rows as usize);
        }
        let width = dim + 1;
        let cells = first[first.len() - 1] * width;
        let start = |n: usize| if n.is_multiple_of(width) { 0.0 } else { (n * 7919 % 1000) as f32 * 1e-4 - 0.05 };
        Self { first, width, bias: -1.0, weights: (0..cells).map(start).collect(), squares: vec![1e-2; cells] }
    }

    /// Scores every sample, and learns from it when `rate` is not 0.
    fn pass(&mut self, batch: &Batch, rate: f32) -> Vec<f32> {
        let width = self.width;
        let (mut active, mut sum) = (vec![0usize; 39], vec![0f32; width]);
        let mut scores = Vec::with_capacity(batch.samples());
        for n in 0..batch.samples() {
            for (c, slot) in active.iter_mut().enumerate() {
                let binned = || ((batch.dense[n * 13 + c] * 2.0) as usize).min(BINS - 1);
                let value = if c < 13 { binned() } else { batch.bags[c - 13].rows[n] as usize };
                *slot = (self.first[c] + value) * width;
            }
            sum.fill(0.0);
            let mut own = 0.0;
            for &at in &active {
                sum.iter_mut().zip(&self.weights[at..]).for_each(|(total, w)| *total += w);
                own += self.weights[at + 1..at + width].iter().map(|w| w * w).sum::<f32>();
            }
            let score = self.bias + sum[0] + 0.5 * (sum[1..].iter().map(|s| s * s).sum::<f32>() - own);
            scores.push(score);
            if rate > 0.0 {
                let error = 1.0 / (1.0 + (-score).exp()) - batch.labels[n];
                self.bias -= 0.01 * rate * error;
                for &at in &active {
                    for (k, total) in sum.iter().enumerate() {
                        let gradient = error * if k == 0 { 1.0 } else { total - self.weights[at + k] };
                        self.squares[at + k] += gradient * gradient;
                        self.weights[at + k] -= rate * gradient / self.squares[at + k].sqrt();
                    }
                }
            }
        }
        scores
    }
}

#[test]
fn a_simple_learner_finds_a_good_part_and_interactions_help() {
    let log = log(&DataConfig { train_samples: 400_000, test_samples: 50_000, ..DataConfig::default() });
    let (train, test) = (read(&log, Split::Train, 400_000), read(&log, Split::Test, 50_000));
    let bayes = auc(&log.truth(Split::Test, 0, 50_000).unwrap(), &test.labels);
    let [linear, pairs] = [0, 4].map(|dim| {
        let mut machine = Machine::new(&log, dim);
        machine.pass(&train, 0.03);
        auc(&machine.pass(&test, 0.0), &test.labels)
    });
    println!("one pass: logistic regression {linear:.4}, factorisation machine {pairs:.4}, Bayes {bayes:.4}");
    assert!(linear > 0.70 && linear < 0.80, "{linear}");
    assert!(pairs > linear + 0.005 && pairs < bayes, "{pairs} against {linear}");
}

#[test]
fn tables_of_any_number_and_size() {
    let config = DataConfig { train_samples: 1000, ..DataConfig::default() };
    let mut rows = vec![40_000_000, 1, 2, 3, 1_000_000];
    rows.resize(40, 10);
    let log = Criteo::new(&config, &rows, 20).unwrap();
    assert_eq!((log.schema().dense, log.schema().rows()), (20, rows));
    let batch = read(&log, Split::Train, 1000);
    assert!(batch.bags[0].rows.iter().any(|&row| row > 20_000_000));
    assert!(batch.bags[1].rows.iter().all(|&row| row == 0));
    let distinct: std::collections::HashSet<u32> = batch.bags[4].rows.iter().copied().collect();
    assert!(distinct.len() > 100, "{}", distinct.len());
    assert!(Criteo::new(&config, &[5, 0], 1).err().unwrap().to_string().contains("table 1 has 0 rows"));
    // No integers, one table: still a teacher, at the same click rate.
    let tiny = Criteo::new(&DataConfig { train_samples: 10_000, ..config }, &[50], 0).unwrap();
    let rate = read(&tiny, Split::Train, 10_000).labels.iter().sum::<f32>() / 10_000.0;
    assert!((0.2..0.28).contains(&rate), "{rate}");
}

#[test]
fn bags_of_several_begin_with_the_row_that_tells_something() {
    let config = DataConfig { train_samples: 3000, test_samples: 100, ..DataConfig::default() };
    let rows = [500, 7, 100_000];
    let alone = Criteo::new(&config, &rows, 13).unwrap();
    let several = DataConfig { lookups: LookUps::Each(vec![4, 1, 9]), ..config.clone() };
    let log = Criteo::new(&several, &rows, 13).unwrap();
    assert_eq!((log.schema().longest(), alone.schema().longest()), (9, 1));
    let (one, many) = (read(&alone, Split::Train, 3000), read(&log, Split::Train, 3000));
    assert!(one.labels == many.labels && one.dense == many.dense);
    assert_eq!(log.truth(Split::Test, 3, 50), alone.truth(Split::Test, 3, 50));
    for (table, count) in [4, 1, 9].into_iter().enumerate() {
        let bags: Vec<_> = (0..3000).map(|n| many.bags[table].of(n)).collect();
        assert!(bags.iter().enumerate().all(|(n, bag)| bag.len() == count && bag[0] == one.bags[table].of(n)[0]));
        // The others fall on all rows alike: the mean of their numbers, within five standard errors.
        let others: Vec<_> = bags.iter().flat_map(|bag| &bag[1..]).map(|row| f64::from(*row)).collect();
        if let Some(middle) = (count > 1).then(|| (rows[table] - 1) as f64 / 2.0) {
            let mean = others.iter().sum::<f64>() / others.len() as f64;
            assert!((mean - middle).abs() < 5.0 * middle / (3.0 * others.len() as f64).sqrt(), "{table}: {mean}");
        }
    }
    // What files get of samples is what a reader of the log gets, from any sample on.
    let description = log.description();
    assert!(description.categorical.iter().map(|column| column.hots).eq([4, 1, 9]));
    let mut samples = Samples::new(&description);
    log.fill(Split::Train, 1000..1200, &mut samples);
    for (lookups, (bag, count)) in samples.lookups.iter().zip(many.bags.iter().zip([4, 1, 9])) {
        assert_eq!(lookups.rows, bag.rows[1000 * count..1200 * count]);
    }
    let mut batch = Batch::new(log.schema());
    log.open(Split::Train, 1000).unwrap().read(&mut batch, 200).unwrap();
    assert_eq!(batch.bags[2].rows, samples.lookups[2].rows);
    let message = Criteo::new(&DataConfig { lookups: LookUps::Each(vec![4, 1]), ..config }, &rows, 13).err().unwrap();
    assert_eq!(message.to_string(), "data.lookups: there must be 1 or more for each of 3 tables");
}
