//! A data set whose training samples are its hot inputs, or its cold ones, and no others.

use std::sync::Arc;

use super::{HotSet, Tags};
use crate::base::Result;
use crate::data::{Batch, Reader, Schema, Source, Split};

/// What samples look up, where some rows are hot.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Inputs {
    /// Any rows.
    #[default]
    Mixed,
    /// A row at least that is not hot: FAE's cold inputs.
    Cold,
    /// Hot rows alone: FAE's hot inputs.
    Hot,
}

/// What FAE's order of training needs: hot rows, and which inputs look up no others.
#[derive(Debug, Clone)]
pub struct HotInputs {
    /// Hot rows of all tables of the data; none of a wide part's.
    pub set: HotSet,
    /// Which training samples are hot.
    pub tags: Arc<Tags>,
}

/// The hot or the cold training samples of a data set, in its order; its other samples are all there.
///
/// Nothing is stored twice: its readers pick their samples from those of the data set.
pub struct Chosen {
    from: Arc<dyn Source>,
    tags: Arc<Tags>,
    inputs: Inputs,
}

impl Chosen {
    /// Such inputs of a data set with these tags.
    ///
    /// # Panics
    /// When the tags are those of another number of training samples.
    #[must_use]
    pub fn new(from: Arc<dyn Source>, tags: Arc<Tags>, inputs: Inputs) -> Self {
        assert_eq!(from.samples(Split::Train), Some(tags.samples()), "a tag for each training sample");
        Self { from, tags, inputs }
    }
}

impl Source for Chosen {
    fn schema(&self) -> &Schema {
        self.from.schema()
    }

    fn samples(&self, split: Split) -> Option<u64> {
        match split {
            Split::Train => Some(self.tags.count(self.inputs)),
            Split::Validation | Split::Test => self.from.samples(split),
        }
    }

    fn made_of(&self) -> Option<&dyn Source> {
        Some(&*self.from)
    }

    fn open(&self, split: Split, start: u64) -> Result<Box<dyn Reader + '_>> {
        if split != Split::Train {
            return self.from.open(split, start);
        }
        let Self { tags, inputs, .. } = self;
        // Behind the last one is the end.
        let at = if start < tags.count(*inputs) { tags.place(*inputs, start) } else { tags.samples() };
        let from = self.from.open(split, at)?;
        Ok(Box::new(Choosing { from, tags, inputs: *inputs, at, next: start, places: Vec::new() }))
    }

    fn truth(&self, split: Split, start: u64, count: usize) -> Option<Vec<f32>> {
        if split != Split::Train {
            return self.from.truth(split, start, count);
        }
        let of = |number: u64| self.from.truth(split, self.tags.place(self.inputs, number), 1);
        // Behind the last one there are none, as in other sources.
        let end = start.saturating_add(count as u64).min(self.tags.count(self.inputs));
        Some((start..end).map(of).collect::<Option<Vec<_>>>()?.concat())
    }
}

/// A reader of some inputs.
struct Choosing<'a> {
    from: Box<dyn Reader + 'a>,
    tags: &'a Tags,
    inputs: Inputs,
    /// The sample that `from` reads next.
    at: u64,
    /// The next one among those that are chosen.
    next: u64,
    places: Vec<u64>,
}

impl Choosing<'_> {
    /// Reads the inputs of these numbers, which rise, and of which the last are left away that are not there.
    fn take(&mut self, batch: &mut Batch, numbers: impl Iterator<Item = u64>) -> Result<usize> {
        let Self { tags, inputs, at, .. } = *self;
        let count = tags.count(inputs);
        self.places.clear();
        self.places.extend(numbers.take_while(|number| *number < count).map(|number| tags.place(inputs, number) - at));
        let Some(last) = self.places.last() else { return Ok(0) };
        self.at = at + last + 1;
        self.from.pick(batch, &self.places)
    }
}

impl Reader for Choosing<'_> {
    fn read(&mut self, batch: &mut Batch, limit: usize) -> Result<usize> {
        let found = self.take(batch, self.next..self.next.saturating_add(limit as u64))?;
        self.next += found as u64;
        Ok(found)
    }

    fn skip(&mut self, count: u64) -> Result<u64> {
        let skipped = count.min(self.tags.count(self.inputs).saturating_sub(self.next));
        self.next += skipped;
        Ok(skipped)
    }

    fn pick(&mut self, batch: &mut Batch, picks: &[u64]) -> Result<usize> {
        let first = self.next;
        let found = self.take(batch, picks.iter().map(|pick| first + pick))?;
        if let Some(last) = picks.last() {
            self.next = (first + last + 1).min(self.tags.count(self.inputs));
        }
        Ok(found)
    }

    fn bytes_read(&self) -> u64 {
        self.from.bytes_read()
    }
}
