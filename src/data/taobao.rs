//! Generated behaviour sequences with the shape of Taobao's, as TBSM reads them: a user, the items that the user has
//! seen, the last of which is the one in question, and their categories.
//!
//! A user has some favourite categories, and a visit a few, some of the user's among them, from which most of what is
//! seen comes; every second item in question comes from there, too. Whether it is clicked is planted: it depends on how
//! many of the last twenty items were of its category, the last ones counting most, and on how good the category is.
//! Who sees all of them can know the true probability; who sees the item in question alone knows the category's and the
//! user's part in it.
//!
//! Sample n is a pure function of (`data.seed`, n): nothing is stored, any sample is reached at once, and tables may be
//! of any size. Test samples are the numbers after the training samples.

use super::planted::{Counts, calibrated, logistic};
use super::schema::{Categorical, Description};
use super::zipf::{Scatter, Zipf};
use super::{Batch, Column, Reader, Samples, Schema, Source, Split};
use crate::base::config::{DataConfig, LookUps};
use crate::base::rng::{Random, Stream};
use crate::base::{Error, Result};

/// Users, items and categories of Taobao's log as TBSM's reference prepares it.
const ROWS: [u64; 3] = [987_994, 4_162_024, 9439];
const NAMES: [&str; 3] = ["user", "items", "categories"];
/// Items before the one in question that the planted probability depends on.
const HISTORY: usize = 20;
/// The share of clicks, and the AUC of the true probabilities.
const CLICK_RATE: f64 = 0.5;
const BAYES_AUC: f64 = 0.9;
/// Samples that the click model is calibrated on.
const CALIBRATION: u64 = 1 << 14;
/// Favourite categories of a user, and of a visit; the share of the latter that are among the former.
const OF_USER: u64 = 8;
const OF_VISIT: u64 = 3;
const LOYAL: f64 = 0.5;
/// The share of items that have nothing to do with their visit.
const ASTRAY: f64 = 0.3;
/// How popular categories are, and the items of one: exponents of their frequencies.
const POPULARITY: [f64; 2] = [0.8, 1.05];
/// What the goodness of a category weighs beside how often it was seen, of which a standard deviation weighs 1.
const GOODNESS: f64 = 0.4;

/// The generated sequences.
pub struct Taobao {
    schema: Schema,
    random: Random,
    users: Random,
    goodness: Random,
    categories: u64,
    items: u64,
    /// Of categories, and of the items of one.
    popularity: [Zipf; 2],
    /// The standard deviation of how often a category in question was seen.
    deviation: f64,
    scatters: [Scatter; 3],
    /// Items before the one in question that are drawn, and look-ups that a sample shows.
    history: usize,
    shown: usize,
    scale: f64,
    intercept: f64,
    counts: Counts,
}

/// A sample before it is shown.
#[derive(Debug, Clone, Default)]
struct Visit {
    user: u64,
    /// By popularity; the last is the one in question.
    items: Vec<u64>,
}

impl Taobao {
    /// Sequences of so many look-ups as `data.lookups` says, of tables of `model_rows` rows; without those, of
    /// Taobao's.
    ///
    /// # Errors
    /// [`Error::Config`] when there are not three tables, or dense features are asked for.
    pub fn new(config: &DataConfig, model_rows: &[u64], dense: usize) -> Result<Self> {
        let fail = |origin: &str, reason: String| Err(Error::config(origin, reason));
        let rows = if model_rows.is_empty() { &ROWS[..] } else { model_rows };
        let rows: Vec<u64> = rows.iter().map(|rows| config.capped(*rows)).collect();
        let Ok(rows): std::result::Result<[u64; 3], _> = rows.try_into() else {
            let reason =
                format!("{} tables: generated sequences have three, of users, items and categories", model_rows.len());
            return fail("model.rows", reason);
        };
        if rows.iter().any(|&rows| rows == 0 || rows > u64::from(u32::MAX)) {
            return fail("model.rows", "every table needs 1 to 2^32 - 1 rows".to_owned());
        }
        if dense > 0 {
            let reason = "generated sequences have no dense features: let it begin with 1, the position of a step, where \
                          model.ts_length is above 0, and else be []";
            return fail("model.bottom", reason.to_owned());
        }
        let shown = match &config.lookups {
            LookUps::Same(shown) => *shown,
            LookUps::Each(counts) => match counts[..] {
                [1, items, categories] if items == categories => items,
                _ => {
                    return fail(
                        "data.lookups",
                        "a user, and as many items as categories: e.g. [1, 21, 21]".to_owned(),
                    );
                }
            },
        };
        if shown == 0 {
            return fail("data.lookups", "a sequence has at least the item in question".to_owned());
        }
        let [users, items, categories] = rows;
        let column =
            |of: usize| Column { lookups: if of == 0 { 1 } else { shown }, ..Column::new(NAMES[of], rows[of]) };
        let mut made = Self {
            schema: Schema { dense: 0, weighted: false, tables: (0..3).map(column).collect() },
            random: Random::new(config.seed, Stream::Sample(1)),
            users: Random::new(config.seed, Stream::Teacher(0)),
            goodness: Random::new(config.seed, Stream::Teacher(1)),
            categories,
            items,
            popularity: [Zipf::new(categories, POPULARITY[0]), Zipf::new((items / categories).max(1), POPULARITY[1])],
            deviation: 1.0,
            scatters: [users, items, categories].map(|rows| Scatter::new(rows, 7)),
            history: HISTORY.max(shown - 1),
            shown,
            scale: 1.0,
            intercept: 0.0,
            counts: Counts::of(config),
        };
        // Of each visit the two parts of its score alone: its items may be many.
        let mut visit = Visit::default();
        let parts = (0..CALIBRATION).map(|n| {
            made.draw(n, &mut visit);
            [made.seen(&visit), made.good(&visit)]
        });
        let parts: Vec<[f64; 2]> = parts.collect();
        let mean = parts.iter().map(|[seen, _]| seen).sum::<f64>() / parts.len() as f64;
        let variance = parts.iter().map(|[seen, _]| (seen - mean).powi(2)).sum::<f64>() / parts.len() as f64;
        // What never varies has nothing to say.
        made.deviation = if variance > 1e-12 { variance.sqrt() } else { 1.0 };
        let scores = parts.into_iter().map(|parts| made.score(parts)).collect();
        let [scale, intercept] = calibrated(scores, CLICK_RATE, BAYES_AUC);
        (made.scale, made.intercept) = (scale, intercept);
        made.random = Random::new(config.seed, Stream::Sample(0));
        Ok(made)
    }

    /// An item of one of the visit's favourite categories, or of any; `at` is the number that it is drawn by.
    fn item(&self, favourites: &[u64; OF_VISIT as usize], at: u64) -> u64 {
        let [which, popular] = self.random.uniform_pair(at);
        let category = match (which - ASTRAY) / (1.0 - ASTRAY) {
            near if near >= 0.0 => favourites[((near * OF_VISIT as f64) as usize).min(favourites.len() - 1)],
            _ => self.popularity[0].rank(which / ASTRAY),
        };
        let item = self.popularity[1].rank(popular) * self.categories + category;
        // Of few items not each category has one.
        if item < self.items { item } else { category % self.items }
    }

    /// Sample number `n` among all.
    fn draw(&self, n: u64, visit: &mut Visit) {
        let first = n.wrapping_mul(self.numbers());
        visit.user = self.random.below(first, self.scatters[0].rows());
        let favourite = |which: u64| {
            let [loyal, any] = self.random.uniform_pair(first + 2 + which);
            match loyal / LOYAL {
                own if own < 1.0 => {
                    let own = (own * OF_USER as f64) as u64;
                    self.popularity[0].rank(self.users.uniform(visit.user * OF_USER + own))
                }
                _ => self.popularity[0].rank(any),
            }
        };
        let favourites = std::array::from_fn(|which| favourite(which as u64));
        let first = first + 2 + OF_VISIT;
        visit.items.clear();
        visit.items.extend((0..self.history as u64).map(|step| self.item(&favourites, first + step)));
        let [elsewhere, any] = self.random.uniform_pair(first + self.history as u64);
        let asked = if elsewhere < 0.5 { [self.popularity[0].rank(any); OF_VISIT as usize] } else { favourites };
        visit.items.push(self.item(&asked, first + self.history as u64 + 1));
    }

    /// Numbers of a sample: its user, its luck, its favourites, the items, and whether the last one is of these.
    const fn numbers(&self) -> u64 {
        4 + OF_VISIT + self.history as u64
    }

    /// The number that decides whether it is clicked, by its probability.
    fn luck(&self, n: u64) -> f64 {
        self.random.uniform(n.wrapping_mul(self.numbers()) + 1)
    }

    const fn category(&self, item: u64) -> u64 {
        item % self.categories
    }

    /// How many of the last items were of the category of the one in question, the last ones counting most, between 0
    /// and 1.
    fn seen(&self, visit: &Visit) -> f64 {
        let (asked, seen) = visit.items.split_last().expect("there is an item in question");
        let (mut sum, mut all) = (0.0, 0.0);
        for (step, item) in seen[seen.len() - HISTORY..].iter().enumerate() {
            let weight = 1.0 + step as f64 / HISTORY as f64;
            all += weight;
            if self.category(*item) == self.category(*asked) {
                sum += weight;
            }
        }
        sum / all
    }

    /// How good the category of the item in question is: normally distributed.
    fn good(&self, visit: &Visit) -> f64 {
        let asked = *visit.items.last().expect("there is an item in question");
        self.goodness.normal(self.category(asked))
    }

    /// What a click depends on, of [`Taobao::seen`] and [`Taobao::good`].
    fn score(&self, [seen, good]: [f64; 2]) -> f64 {
        GOODNESS.mul_add(good, seen / self.deviation)
    }

    fn probability(&self, visit: &Visit) -> f64 {
        logistic(self.scale.mul_add(self.score([self.seen(visit), self.good(visit)]), self.intercept))
    }

    /// The columns of its samples as files store them.
    #[must_use]
    pub fn description(&self) -> Description {
        let categorical = self
            .schema
            .tables
            .iter()
            .map(|column| Categorical { hots: column.lookups as u32, ..Categorical::new(&column.name, column.rows) });
        Description { categorical: categorical.collect(), ..Description::criteo(0, &[]) }
    }

    /// Appends samples `range` of a split as files store them.
    ///
    /// # Panics
    /// When `samples` are of another description than [`Taobao::description`].
    pub fn fill(&self, split: Split, range: std::ops::Range<u64>, samples: &mut Samples) {
        let mut visit = Visit::default();
        for n in range {
            let label = self
                .sample(self.counts.number(split, n), &mut visit, |table, row| samples.lookups[table].rows.push(row));
            samples.labels.push(label);
        }
    }

    /// The label of sample number `n` among all; `take` gets each look-up with its table.
    fn sample(&self, n: u64, visit: &mut Visit, mut take: impl FnMut(usize, u32)) -> f32 {
        self.draw(n, visit);
        let [users, items, categories] = &self.scatters;
        take(0, users.row(visit.user));
        for item in &visit.items[visit.items.len() - self.shown..] {
            take(1, items.row(*item));
            take(2, categories.row(self.category(*item)));
        }
        f32::from(u8::from(self.luck(n) < self.probability(visit)))
    }
}

impl Source for Taobao {
    fn schema(&self) -> &Schema {
        &self.schema
    }

    fn samples(&self, split: Split) -> Option<u64> {
        Some(self.counts.of_split(split))
    }

    fn open(&self, split: Split, start: u64) -> Result<Box<dyn Reader + '_>> {
        let mut visit = Visit::default();
        let push = move |n, batch: &mut Batch| {
            let label = self.sample(n, &mut visit, |table, row| batch.bags[table].rows.push(row));
            batch.labels.push(label);
            batch.bags.iter_mut().for_each(super::Bag::close);
        };
        self.counts.open(split, start, push)
    }

    fn truth(&self, split: Split, start: u64, count: usize) -> Option<Vec<f32>> {
        let mut visit = Visit::default();
        let probability = |n| {
            self.draw(n, &mut visit);
            self.probability(&visit)
        };
        Some(self.counts.truth(split, start, count, probability))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(lookups: usize) -> DataConfig {
        DataConfig { lookups: LookUps::Same(lookups), train_samples: 5000, test_samples: 3000, ..DataConfig::default() }
    }

    fn read(source: &Taobao, split: Split, start: u64, count: usize) -> Batch {
        let mut batch = Batch::new(source.schema());
        source.open(split, start).unwrap().read(&mut batch, count).unwrap();
        batch.check(source.schema()).unwrap();
        batch
    }

    #[test]
    fn samples_are_what_their_number_and_the_look_ups_say() {
        let rows = [500, 4000, 60];
        let whole = Taobao::new(&config(21), &rows, 0).unwrap();
        let batch = read(&whole, Split::Train, 0, 4000);
        assert!((0..4000).all(|n| [0, 1, 2].map(|table: usize| batch.bags[table].of(n).len()) == [1, 21, 21]));
        let later = read(&whole, Split::Train, 3990, 10);
        assert!((0..10).all(|n| later.bags[1].of(n) == batch.bags[1].of(3990 + n) && later.labels[n] == batch.labels[3990 + n]));
        // Fewer are the last ones of the same samples, by the same truth.
        let last = Taobao::new(&config(1), &rows, 0).unwrap();
        let short = read(&last, Split::Train, 0, 4000);
        assert!((0..4000).all(|n| short.bags[1].of(n) == &batch.bags[1].of(n)[20..]) && short.labels == batch.labels);
        assert_eq!(whole.truth(Split::Test, 5, 50), last.truth(Split::Test, 5, 50));
        // An item has one category.
        let mut of = std::collections::HashMap::new();
        for (item, category) in batch.bags[1].rows.iter().zip(&batch.bags[2].rows) {
            assert_eq!(of.entry(item).or_insert(category), &category);
        }
        assert!(of.len() > 1000);
    }

    #[test]
    fn labels_follow_the_planted_probability() {
        let source = Taobao::new(&config(21), &[500, 4000, 60], 0).unwrap();
        let (batch, truth) = (read(&source, Split::Test, 0, 3000), source.truth(Split::Test, 0, 3000).unwrap());
        let clicks: f32 = batch.labels.iter().sum();
        let expected: f32 = truth.iter().sum();
        // Five standard errors.
        assert!((clicks - expected).abs() < 5.0 * (3000.0f32 / 4.0).sqrt(), "{clicks} clicks, {expected} expected");
        let (mut right, mut pairs) = (0.0, 0.0);
        for (p, _) in truth.iter().zip(&batch.labels).filter(|(_, y)| **y == 1.0) {
            for (q, _) in truth.iter().zip(&batch.labels).filter(|(_, y)| **y == 0.0) {
                right += f64::from(u8::from(p > q));
                pairs += 1.0;
            }
        }
        assert!((right / pairs - BAYES_AUC).abs() < 0.02, "AUC {}", right / pairs);
    }

    #[test]
    fn what_cannot_be_generated_is_refused() {
        let message =
            |config: &DataConfig, rows: &[u64], dense| Taobao::new(config, rows, dense).err().unwrap().to_string();
        assert!(message(&config(3), &[1, 2], 0).starts_with("model.rows: 2 tables: generated sequences have three"));
        assert!(message(&config(3), &[9, 9, 9], 2).contains("generated sequences have no dense features"));
        let uneven = DataConfig { lookups: LookUps::Each(vec![1, 4, 5]), ..config(1) };
        assert!(message(&uneven, &[9, 9, 9], 0).contains("as many items as categories"));
    }
}
