//! Some bags of one table, as one thread divides them: first counted, then written, each look-up to the owners of its
//! row, or to its rank's own copies of hot rows.

use std::ops::Range;
use std::sync::atomic::{AtomicU32, Ordering};

use super::owners::Owners;
use super::streams::Streams;
use crate::base::even_part;
use crate::data::Bag;
use crate::data::hot::TableSlots;
use crate::embedding::PackedBag;
use crate::exchange::scan::Counters;
use crate::exchange::vectors::MessageForm;
use crate::shard::scheme::Split;

/// Some bags of one table.
#[derive(Debug)]
pub(super) struct BagUnit {
    pub(super) table: usize,
    /// Which chunk of the bags, of how many.
    pub(super) chunk: [usize; 2],
    /// One counter per part, and a last one for this rank's hot copies, where bags may be hot: while counting, its
    /// look-ups; while writing, the next position.
    next: Vec<u32>,
    /// What bags each part gets, unless it gets all.
    met: Vec<Met>,
    /// Whether each bag has one look-up, and all go to the same parts: found by counting.
    single: bool,
    /// The slot of each of its look-ups, or [`NONE`]: asked for once, at random places.
    slots: Vec<u32>,
}

/// A look-up of a row that is not hot.
const NONE: u32 = u32::MAX;

/// Bags that a part of a table gets: first how many, then where the next one goes.
#[derive(Debug, Clone, Copy)]
struct Met {
    bags: u32,
    cold: u32,
    /// The last bag that has a look-up in the part.
    last: u32,
}

impl Met {
    const NONE: Self = Self { bags: 0, cold: 0, last: u32::MAX };
}

/// The one step's look-ups of a table.
pub(super) struct Given<'a> {
    pub(super) owners: &'a Owners,
    /// Where this rank has copies.
    pub(super) slots: Option<&'a TableSlots>,
    pub(super) bag: &'a Bag,
    pub(super) weights: &'a [f32],
    pub(super) form: MessageForm,
}

impl Given<'_> {
    /// Which bags are a chunk, of how many.
    fn chunk(&self, [index, count]: [usize; 2]) -> Range<usize> {
        even_part(self.bag.samples(), index, count)
    }

    /// The look-ups of these bags.
    fn look_ups(&self, bags: &Range<usize>) -> Range<usize> {
        self.bag.offsets[bags.start] as usize..self.bag.offsets[bags.end] as usize
    }

    /// Whether a bag goes to the owners.
    const fn goes(&self, rows: &[u32], hot: bool) -> bool {
        !rows.is_empty() && (!hot || self.form.marked())
    }
}

/// Whether there are any look-ups in a bag, and all of them are hot.
fn is_hot(slots: &[u32]) -> bool {
    !slots.is_empty() && !slots.contains(&NONE)
}

impl Counters for BagUnit {
    fn counters(&mut self) -> impl Iterator<Item = &mut u32> {
        let of_bags = self.met.iter_mut().flat_map(|met| [&mut met.bags, &mut met.cold]);
        self.next.iter_mut().chain(of_bags)
    }
}

impl BagUnit {
    /// A chunk, of how many, of the bags of a table that goes to so many parts in this form, with at most so many
    /// look-ups.
    pub(super) fn new(table: usize, chunk: [usize; 2], parts: usize, look_ups: usize, form: MessageForm) -> Self {
        let [next, met, slots] = match form {
            MessageForm::RowPerSample => [parts, 0, 0],
            MessageForm::VectorPerBag { .. } => [parts + 1, parts, look_ups],
        };
        let (next, met, slots) = (vec![0; next], vec![Met::NONE; met], Vec::with_capacity(slots));
        Self { table, chunk, next, met, single: false, slots }
    }

    /// Counts what each part gets.
    pub(super) fn count(&mut self, given: &Given<'_>) {
        let Self { chunk, next, met, slots, single, .. } = self;
        let (split, bags) = (&given.owners.split, given.chunk(*chunk));
        let look_ups = given.look_ups(&bags);
        let (first, rows) = (look_ups.start, &given.bag.rows[look_ups]);
        if given.form == MessageForm::RowPerSample {
            if let Split::Whole = split {
                return next.fill(rows.len() as u32);
            }
            next.fill(0);
            return rows.iter().for_each(|row| next[split.part(*row).0] += 1);
        }
        next.fill(0);
        met.fill(Met::NONE);
        let (of_hot, next) = next.split_last_mut().expect("a count of hot look-ups");
        slots.clear();
        match given.slots {
            None => slots.resize(rows.len(), NONE),
            Some(hot) => slots.extend(rows.iter().map(|row| hot.slot(*row).unwrap_or(NONE))),
        }
        // Mostly each bag has one look-up, and all go to the same parts: no branch depends on a row then.
        *single = matches!(split, Split::Whole) && given.bag.is_single(&bags);
        if *single {
            let hot = slots.iter().map(|slot| u32::from(*slot != NONE)).sum::<u32>();
            let cold = bags.len() as u32 - hot;
            let go = if given.form.marked() { hot + cold } else { cold };
            *of_hot = hot;
            next.fill(go);
            return met.fill(Met { bags: go, cold, ..Met::NONE });
        }
        for number in bags {
            let (rows, start) = (given.bag.of(number), given.bag.offsets[number] as usize - first);
            let hot = is_hot(&slots[start..start + rows.len()]);
            *of_hot += if hot { rows.len() as u32 } else { 0 };
            if !given.goes(rows, hot) {
                continue;
            }
            if let Split::Whole = split {
                next[0] += rows.len() as u32;
                met[0].bags += 1;
                met[0].cold += u32::from(!hot);
                continue;
            }
            for row in rows {
                let part = split.part(*row).0;
                next[part] += 1;
                let met = &mut met[part];
                if met.last != number as u32 {
                    met.last = number as u32;
                    met.bags += 1;
                    met.cold += u32::from(!hot);
                }
            }
        }
        if let Split::Whole = split {
            let (look_ups, bags) = (next[0], met[0]);
            next.fill(look_ups);
            met.fill(bags);
        }
        met.iter_mut().for_each(|met| met.last = u32::MAX);
    }

    /// How many look-ups, bags, and bags whose pooled rows come back a part gets of a table of so many bags; the first
    /// chunk has counted them for all, and begins at 0 afterwards.
    pub(super) fn take(&mut self, part: usize, bags: usize) -> [usize; 3] {
        let take = |count: &mut u32| std::mem::take(count) as usize;
        let of_bags = self.met.get_mut(part).map(|met| [&mut met.bags, &mut met.cold].map(take));
        let [bags, cold] = of_bags.unwrap_or([bags; 2]);
        [take(&mut self.next[part]), bags, cold]
    }

    /// The same of the look-ups in this rank's copies.
    pub(super) fn take_hot(&mut self) -> usize {
        self.next.last_mut().map_or(0, std::mem::take) as usize
    }

    /// Writes its look-ups; `own` is where those of hot bags go.
    pub(super) fn write(&mut self, given: &Given<'_>, out: &[AtomicU32], to: &Streams, own: Option<&PackedBag>) {
        match (given.form, &given.owners.split) {
            (MessageForm::RowPerSample, Split::Whole) => self.write_whole(given, out, to),
            (MessageForm::RowPerSample, _) => self.write_bags::<true>(given, out, to, None),
            (MessageForm::VectorPerBag { marked: false }, _) if self.single => self.write_single(given, out, to, own),
            (MessageForm::VectorPerBag { .. }, _) => self.write_bags::<false>(given, out, to, own),
        }
    }

    /// Copies all bags to all parts, as they are.
    fn write_whole(&self, given: &Given<'_>, out: &[AtomicU32], streams: &Streams) {
        // Relaxed: every word has one writer, and the region's end hands them over.
        let put = |at: usize, word: u32| out[at].store(word, Ordering::Relaxed);
        let Given { owners, bag, weights, .. } = *given;
        let bags = given.chunk(self.chunk);
        let look_ups = given.look_ups(&bags);
        let (first, rows) = (look_ups.start, &bag.rows[look_ups]);
        for to in owners.parts.iter().filter_map(|of| streams.bag(*of)) {
            let ends = bags.clone().map(|number| (number + 1, bag.offsets[number + 1]));
            ends.for_each(|(number, end)| put(to.offsets.start + number, end));
            (to.rows.start + first..).zip(rows).for_each(|(at, row)| put(at, *row));
            if owners.weighted {
                let own = weights[first..][..rows.len()].iter();
                (to.weights.start + first..).zip(own).for_each(|(at, weight)| put(at, weight.to_bits()));
            }
        }
    }

    /// Divides bag by bag: each part gets `EVERY` bag, or those alone that have look-ups in it.
    fn write_bags<const EVERY: bool>(
        &mut self,
        given: &Given<'_>,
        out: &[AtomicU32],
        streams: &Streams,
        own: Option<&PackedBag>,
    ) {
        let Self { chunk, next, met, slots, .. } = self;
        let mut none = 0;
        let (of_hot, next) =
            if EVERY { (&mut none, &mut next[..]) } else { next.split_last_mut().expect("a count of hot look-ups") };
        // Relaxed: as above; bits of marks are only added.
        let put = |at: usize, word: u32| out[at].store(word, Ordering::Relaxed);
        let Given { owners, bag, weights, .. } = *given;
        let bags = given.chunk(*chunk);
        let start = given.look_ups(&bags).start;
        let whole = !EVERY && matches!(owners.split, Split::Whole);
        let look_up = |to: &PackedBag, next: &mut u32, position: usize, word: u32| {
            put(to.rows.start + *next as usize, word);
            if owners.weighted {
                put(to.weights.start + *next as usize, weights[position].to_bits());
            }
            *next += 1;
        };
        for number in bags {
            let (first, rows) = (bag.offsets[number] as usize, bag.of(number));
            let slots = if EVERY { &[][..] } else { &slots[first - start..][..rows.len()] };
            let hot = is_hot(slots);
            if let Some(own) = own {
                (first..).zip(slots).filter(|_| hot).for_each(|(position, slot)| look_up(own, of_hot, position, *slot));
                put(own.offsets.start + number + 1, *of_hot);
            }
            if !EVERY && !given.goes(rows, hot) {
                continue;
            }
            for (position, row) in (first..).zip(rows) {
                let (part, row) = owners.split.part(*row);
                let parts = if whole { 0..owners.parts.len() } else { part..part + 1 };
                for part in parts {
                    let Some(to) = streams.bag(owners.parts[part]) else { continue };
                    look_up(to, &mut next[part], position, row);
                    if !EVERY {
                        met[part].last = number as u32;
                    }
                }
            }
            for (part, of) in owners.parts.iter().enumerate() {
                if !EVERY && met[part].last != number as u32 {
                    continue;
                }
                let Some(to) = streams.bag(*of) else { continue };
                if EVERY {
                    put(to.offsets.start + number + 1, next[part]);
                    continue;
                }
                let (lists, Met { bags, cold, .. }) = (streams.lists(*of), &mut met[part]);
                put(to.offsets.start + *bags as usize + 1, next[part]);
                put(lists.all.start + *bags as usize, number as u32);
                if hot {
                    let marks = &out[to.weights.end + *bags as usize / 32];
                    marks.fetch_or(1 << (*bags % 32), Ordering::Relaxed);
                } else {
                    put(lists.cold.start + *cold as usize, number as u32);
                    *cold += 1;
                }
                *bags += 1;
            }
        }
    }

    /// The same of bags with one look-up each, all of which go to the same parts unless they are hot.
    fn write_single(&mut self, given: &Given<'_>, out: &[AtomicU32], streams: &Streams, own: Option<&PackedBag>) {
        let Self { chunk, next, met, slots, .. } = self;
        let (of_hot, next) = next.split_last_mut().expect("a count of hot look-ups");
        // Relaxed: as above.
        let put = |at: usize, word: u32| out[at].store(word, Ordering::Relaxed);
        let Given { owners, bag, weights, .. } = *given;
        let bags = given.chunk(*chunk);
        let first = given.look_ups(&bags).start;
        for (start, slots) in (0..).step_by(LANES).zip(slots.chunks(LANES)) {
            let hot = slots.iter().rev().fold(0, |hot: u32, slot| hot << 1 | u32::from(*slot != NONE));
            let cold = !hot & (u32::MAX >> (LANES - slots.len()));
            let look_up = |to: &PackedBag, at: u32, position: usize, word: u32| {
                put(to.rows.start + at as usize, word);
                if owners.weighted {
                    put(to.weights.start + at as usize, weights[position].to_bits());
                }
            };
            if let Some(own) = own {
                let ends = own.offsets.start + bags.start + start + 1;
                let mut end = *of_hot;
                for (at, slot) in (ends..).zip(slots) {
                    end += u32::from(*slot != NONE);
                    put(at, end);
                }
                for lane in ones(hot) {
                    look_up(own, *of_hot, first + start + lane, slots[lane]);
                    *of_hot += 1;
                }
            }
            for ((next, met), of) in next.iter_mut().zip(&mut *met).zip(&owners.parts) {
                let Some(to) = streams.bag(*of) else { continue };
                let numbers = streams.lists(*of).all.start;
                for lane in ones(cold) {
                    let position = first + start + lane;
                    look_up(to, *next, position, bag.rows[position]);
                    *next += 1;
                    put(to.offsets.start + met.bags as usize + 1, *next);
                    // Without marks those that go are those that come back.
                    put(numbers + met.bags as usize, (bags.start + start + lane) as u32);
                    met.bags += 1;
                }
            }
        }
    }
}

/// Look-ups of which one word says which are hot.
const LANES: usize = u32::BITS as usize;

/// The bits that are set, rising.
fn ones(mut bits: u32) -> impl Iterator<Item = usize> {
    std::iter::from_fn(move || {
        let lane = (bits != 0).then(|| bits.trailing_zeros() as usize);
        bits &= bits.wrapping_sub(1);
        lane
    })
}
