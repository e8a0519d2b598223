//! Some bags of one table, as one thread divides them: first counted, then written, each look-up to its rank's own
//! copies or to the owners of its row.

use std::ops::Range;
use std::sync::atomic::{AtomicU32, Ordering};

use crate::base::RankId;
use crate::data::Bag;
use crate::data::hot::TableSlots;
use crate::embedding::PackedBag;
use crate::exchange::ids::{Owners, Split};
use crate::exchange::stretches::Stretch;

/// A stream that is sent.
#[derive(Debug, Clone, Default)]
pub(super) struct Sent {
    pub(super) bag: PackedBag,
    pub(super) marks: Range<usize>,
    /// Where the numbers of its bags are listed, behind the messages.
    pub(super) all: Range<usize>,
    /// The same of those whose pooled rows come back.
    pub(super) cold: Range<usize>,
}

/// Some bags of one table.
#[derive(Debug)]
pub(super) struct Unit {
    pub(super) table: usize,
    /// Which stretch of the bags, of how many.
    pub(super) stretch: [usize; 2],
    pub(super) parts: Vec<Part>,
    /// Look-ups of hot bags: first how many, then where the next one goes.
    pub(super) hot: u32,
    /// Whether each bag has one look-up, and all go to the same parts: found by counting.
    single: bool,
    /// The slot of each of its look-ups, or [`NONE`]: asked for once, at random places.
    slots: Vec<u32>,
}

/// A look-up of a row that is not hot.
const NONE: u32 = u32::MAX;

/// What a part of a table gets of them: first how much, then where the next one goes.
#[derive(Debug, Clone, Copy)]
pub(super) struct Part {
    pub(super) look_ups: u32,
    pub(super) bags: u32,
    pub(super) cold: u32,
    /// The last bag that has a look-up in the part.
    last: u32,
}

impl Part {
    const NONE: Self = Self { look_ups: 0, bags: 0, cold: 0, last: u32::MAX };
}

/// The one step's look-ups of a table.
pub(super) struct Given<'a> {
    pub(super) owners: &'a Owners,
    /// Where this rank has copies.
    pub(super) slots: Option<&'a TableSlots>,
    pub(super) bag: &'a Bag,
    pub(super) weights: &'a [f32],
    /// Whether hot bags travel, too, with marks.
    pub(super) marked: bool,
}

impl Given<'_> {
    /// Which bags are a stretch, of how many.
    fn stretch(&self, [index, count]: [usize; 2]) -> Range<usize> {
        let bags = self.bag.samples();
        bags * index / count..bags * (index + 1) / count
    }

    /// The look-ups of these bags.
    fn look_ups(&self, bags: &Range<usize>) -> Range<usize> {
        self.bag.offsets[bags.start] as usize..self.bag.offsets[bags.end] as usize
    }

    /// The look-ups of some bags, with their slots, and whether there are any and all of them are hot.
    fn bags<'a>(
        &'a self,
        bags: Range<usize>,
        slots: &'a [u32],
    ) -> impl Iterator<Item = (usize, &'a [u32], &'a [u32], bool)> {
        let first = self.look_ups(&bags).start;
        bags.map(move |number| {
            let rows = self.bag.of(number);
            let slots = &slots[self.bag.offsets[number] as usize - first..][..rows.len()];
            (number, rows, slots, !slots.is_empty() && !slots.contains(&NONE))
        })
    }

    /// Whether a bag goes to the owners.
    const fn goes(&self, rows: &[u32], hot: bool) -> bool {
        !rows.is_empty() && (!hot || self.marked)
    }
}

impl Stretch for Unit {
    fn counts(&mut self) -> impl Iterator<Item = &mut u32> {
        let Self { parts, hot, .. } = self;
        let of_parts = parts.iter_mut().flat_map(|part| [&mut part.look_ups, &mut part.bags, &mut part.cold]);
        of_parts.chain(std::iter::once(hot))
    }
}

impl Unit {
    /// A stretch, of how many, of the bags of a table that goes to so many parts, with at most so many look-ups.
    pub(super) fn new(table: usize, stretch: [usize; 2], parts: usize, look_ups: usize) -> Self {
        let (parts, slots) = (vec![Part::NONE; parts], Vec::with_capacity(look_ups));
        Self { table, stretch, parts, hot: 0, single: false, slots }
    }

    /// Counts what each part gets.
    pub(super) fn count(&mut self, given: &Given<'_>) {
        let Self { stretch, parts, hot: of_hot, slots, single, .. } = self;
        parts.fill(Part::NONE);
        *of_hot = 0;
        let bags = given.stretch(*stretch);
        let rows = &given.bag.rows[given.look_ups(&bags)];
        slots.clear();
        match given.slots {
            None => slots.resize(rows.len(), NONE),
            Some(hot) => slots.extend(rows.iter().map(|row| hot.slot(*row).unwrap_or(NONE))),
        }
        // Mostly each bag has one look-up, and all go to the same parts: no branch depends on a row then.
        *single = matches!(given.owners.split, Split::Whole) && given.bag.is_single(&bags);
        if *single {
            let hot = slots.iter().map(|slot| u32::from(*slot != NONE)).sum::<u32>();
            let cold = bags.len() as u32 - hot;
            let go = if given.marked { hot + cold } else { cold };
            *of_hot = hot;
            return parts.fill(Part { look_ups: go, bags: go, cold, ..Part::NONE });
        }
        for (number, rows, _, hot) in given.bags(bags, slots) {
            *of_hot += if hot { rows.len() as u32 } else { 0 };
            if !given.goes(rows, hot) {
                continue;
            }
            if let Split::Whole = given.owners.split {
                let first = &mut parts[0];
                first.look_ups += rows.len() as u32;
                first.bags += 1;
                first.cold += u32::from(!hot);
                continue;
            }
            for row in rows {
                let part = &mut parts[given.owners.split.part(*row).0];
                part.look_ups += 1;
                if part.last != number as u32 {
                    part.last = number as u32;
                    part.bags += 1;
                    part.cold += u32::from(!hot);
                }
            }
        }
        if let Split::Whole = given.owners.split {
            let first = parts[0];
            parts.fill(first);
        }
        parts.iter_mut().for_each(|part| part.last = u32::MAX);
    }

    /// Writes its look-ups; `own` is where those of hot bags go.
    pub(super) fn write(&mut self, given: &Given<'_>, out: &[AtomicU32], sends: &[Vec<Sent>], own: Option<&PackedBag>) {
        if self.single && !given.marked {
            return self.write_single(given, out, sends, own);
        }
        let Self { stretch, parts, hot: of_hot, slots, .. } = self;
        // Relaxed: every word has one writer, and the region's end hands them over; bits of marks are only added.
        let put = |at: usize, word: u32| out[at].store(word, Ordering::Relaxed);
        let Given { owners, bag, weights, .. } = *given;
        let weight = |position: usize| if owners.weighted { weights[position].to_bits() } else { 0 };
        let place = |(rank, stream): &(RankId, usize)| sends[rank.index()].get(*stream);
        for (number, rows, slots, hot) in given.bags(given.stretch(*stretch), slots) {
            let first = bag.offsets[number] as usize;
            if let Some(own) = own {
                for (position, slot) in (first..).zip(slots).filter(|_| hot) {
                    put(own.rows.start + *of_hot as usize, *slot);
                    if owners.weighted {
                        put(own.weights.start + *of_hot as usize, weight(position));
                    }
                    *of_hot += 1;
                }
                put(own.offsets.start + number + 1, *of_hot);
            }
            if !given.goes(rows, hot) {
                continue;
            }
            let look_up = |part: &mut Part, to: &Sent, position: usize, row: u32| {
                put(to.bag.rows.start + part.look_ups as usize, row);
                if owners.weighted {
                    put(to.bag.weights.start + part.look_ups as usize, weight(position));
                }
                part.look_ups += 1;
                part.last = number as u32;
            };
            for (position, row) in (first..).zip(rows) {
                if let Split::Whole = owners.split {
                    for (part, to) in parts.iter_mut().zip(&owners.parts) {
                        place(to).into_iter().for_each(|to| look_up(part, to, position, *row));
                    }
                } else {
                    let (part, row) = owners.split.part(*row);
                    let to = place(&owners.parts[part]);
                    to.into_iter().for_each(|to| look_up(&mut parts[part], to, position, row));
                }
            }
            for (part, to) in parts.iter_mut().zip(&owners.parts).filter(|(part, _)| part.last == number as u32) {
                let Some(to) = place(to) else { continue };
                put(to.bag.offsets.start + part.bags as usize + 1, part.look_ups);
                put(to.all.start + part.bags as usize, number as u32);
                if hot {
                    out[to.marks.start + part.bags as usize / 32].fetch_or(1 << (part.bags % 32), Ordering::Relaxed);
                } else {
                    put(to.cold.start + part.cold as usize, number as u32);
                    part.cold += 1;
                }
                part.bags += 1;
            }
        }
    }

    /// The same of bags with one look-up each, all of which go to the same parts unless they are hot.
    fn write_single(&mut self, given: &Given<'_>, out: &[AtomicU32], sends: &[Vec<Sent>], own: Option<&PackedBag>) {
        let Self { stretch, parts, hot: of_hot, slots, .. } = self;
        // Relaxed: as above.
        let put = |at: usize, word: u32| out[at].store(word, Ordering::Relaxed);
        let Given { owners, bag, weights, .. } = *given;
        let bags = given.stretch(*stretch);
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
            for (part, (rank, stream)) in parts.iter_mut().zip(&owners.parts) {
                let Some(to) = sends[rank.index()].get(*stream) else { continue };
                for lane in ones(cold) {
                    let position = first + start + lane;
                    look_up(&to.bag, part.look_ups, position, bag.rows[position]);
                    part.look_ups += 1;
                    put(to.bag.offsets.start + part.bags as usize + 1, part.look_ups);
                    // Without marks those that go are those that come back.
                    put(to.all.start + part.bags as usize, (bags.start + start + lane) as u32);
                    part.bags += 1;
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
