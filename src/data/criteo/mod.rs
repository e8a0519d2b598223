//! The built-in click log: generated with the shape of Criteo's, labelled by a planted click model.
//!
//! With more `data.lookups` than one, further rows are drawn uniformly beside a sample's own, as MLPerf makes multi-hot
//! data of Criteo's: they tell nothing. With a `data.drift` the values that are popular change from day to day.
//!
//! Sample n is a pure function of (`data.seed`, n): nothing is stored, any sample is reached at once, and the tables
//! may be of any size. Test samples are the numbers after the training samples. The true click probability of every
//! sample is known ([`Source::truth`]), so a model's AUC can be held against the best that is possible.

mod drift;
mod integers;
mod raw;
mod sample;
mod shape;
mod teacher;

use drift::Drift;
use sample::{Drawer, Sample};
use shape::{CATEGORIES, INTEGERS};
use teacher::Teacher;

use super::dense::log_count;
use super::planted::Counts;
use super::random::Draws;
use super::zipf::Scatter;
use super::{Batch, Reader, Schema, Source, Split};
use crate::base::config::{DataConfig, LookUps};
use crate::base::rng::{Random, Stream};
use crate::base::units::Many;
use crate::base::{Error, Result};

/// Samples that the click model is calibrated on.
const CALIBRATION: u64 = 1 << 14;

/// The generated click log.
pub struct Criteo {
    schema: Schema,
    drawer: Drawer,
    teacher: Teacher,
    random: Random,
    scatters: Vec<Scatter>,
    drift: Option<Drift>,
    /// What else a bag has, and how many rows of it, by table.
    further: Vec<(Draws, u64)>,
    counts: Counts,
}

impl Criteo {
    /// A click log of `dense` integers and tables of `model_rows` rows; without those, of the 26 cardinalities of
    /// Criteo's sample. Columns beyond Criteo's 13 and 26 repeat their shapes.
    ///
    /// # Errors
    /// [`Error::Config`] when a table has 0 rows or 2^32 and more, a bag no look-up, or `data.lookups` not one for each
    /// table.
    pub fn new(config: &DataConfig, model_rows: &[u64], dense: usize) -> Result<Self> {
        let sample_rows: Vec<u64> = CATEGORIES.iter().map(|shape| shape.rows).collect();
        let rows = if model_rows.is_empty() { &sample_rows[..] } else { model_rows };
        let rows: Vec<u64> = rows.iter().map(|rows| config.capped(*rows)).collect();
        let rows = &rows[..];
        if let Some(table) = rows.iter().position(|&rows| rows == 0 || rows > u64::from(u32::MAX)) {
            let reason = format!("table {table} has {} rows; 1 to 2^32 - 1 are possible", rows[table]);
            return Err(Error::config("model.rows", reason));
        }
        let look_ups = &config.lookups;
        if look_ups.counts().contains(&0) || matches!(look_ups, LookUps::Each(counts) if counts.len() != rows.len()) {
            let reason = format!("there must be 1 or more for each of {}", Many(rows.len() as u64, "table"));
            return Err(Error::config("data.lookups", reason));
        }
        let further = (0u32..)
            .zip(rows)
            .map(|(table, &rows)| (Draws::new(config.seed, table, rows, 0.0), look_ups.of(table as usize) as u64 - 1));
        let further = further.collect();
        let drawer = Drawer::new(dense, rows);
        let shapes: Vec<_> = INTEGERS.iter().copied().cycle().take(dense).collect();
        let mut teacher = Teacher::new(config.seed, &shapes, rows.len());
        let calibration = Random::new(config.seed, Stream::Sample(1));
        let drift = Drift::new(config, rows);
        let draw = |n| {
            let mut sample = Sample::default();
            drawer.draw(&calibration, n, &mut sample);
            drift.iter().for_each(|drift| drift.apply_any(n, &mut sample));
            sample
        };
        teacher.calibrate(&(0..CALIBRATION).map(draw).collect::<Vec<_>>());
        Ok(Self {
            schema: Schema::criteo(dense, rows).with_lookups(|table| look_ups.of(table)),
            drawer,
            teacher,
            random: Random::new(config.seed, Stream::Sample(0)),
            scatters: (0..).zip(rows).map(|(column, &rows)| Scatter::new(rows, 7 * column + 1)).collect(),
            drift,
            further,
            counts: Counts::of(config),
        })
    }

    /// Draws sample number `n` among all.
    fn draw(&self, n: u64, sample: &mut Sample) {
        self.drawer.draw(&self.random, n, sample);
        self.drift.iter().for_each(|drift| drift.apply(n, sample));
    }

    /// Appends what sample number `n` among all looks up in a table.
    fn look_up(&self, table: usize, n: u64, sample: &Sample, to: &mut Vec<u32>) {
        to.push(self.scatters[table].row(u64::from(sample.values[table])));
        let (draws, count) = &self.further[table];
        draws.push(n.wrapping_mul(count.div_ceil(2)), *count, to);
    }

    /// Appends sample number `n` among all.
    fn push(&self, n: u64, sample: &mut Sample, batch: &mut Batch) {
        self.draw(n, sample);
        batch.labels.push(f32::from(self.label(sample)));
        batch.dense.extend(sample.integers.iter().map(|&value| log_count(value)));
        for (table, bag) in batch.bags.iter_mut().enumerate() {
            self.look_up(table, n, sample, &mut bag.rows);
            bag.close();
        }
    }

    fn label(&self, sample: &Sample) -> u8 {
        u8::from(sample.luck < self.teacher.probability(sample))
    }
}

impl Source for Criteo {
    fn schema(&self) -> &Schema {
        &self.schema
    }

    fn samples(&self, split: Split) -> Option<u64> {
        Some(self.counts.of_split(split))
    }

    fn open(&self, split: Split, start: u64) -> Result<Box<dyn Reader + '_>> {
        let mut sample = Sample::default();
        self.counts.open(split, start, move |n, batch| self.push(n, &mut sample, batch))
    }

    fn truth(&self, split: Split, start: u64, count: usize) -> Option<Vec<f32>> {
        let mut sample = Sample::default();
        let probability = |n| {
            self.draw(n, &mut sample);
            self.teacher.probability(&sample)
        };
        Some(self.counts.truth(split, start, count, probability))
    }
}
