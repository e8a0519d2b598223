//! Updates by threads that own rows: `serial`, where one thread owns all, and `race-free`, where each owns a range.

use super::Table;
use super::form::Form;
use super::gradient_source::GradientSource;
use super::row::{MOST_AHEAD, Move, columns, prefetch, rows_ahead};
use crate::simd::{Kernel, Simd};
use crate::sync::Band;

/// One table's rows, moved look-up by look-up: samples in ascending order, a bag's look-ups in theirs. The definition
/// of every other way.
pub(super) struct MoveSerially<'a, F> {
    pub form: F,
    pub table: &'a mut Table,
    pub source: GradientSource<'a>,
    pub rate: f32,
}

impl<F: Form> Kernel for MoveSerially<'_, F> {
    type Out = ();

    #[inline(always)]
    fn run<S: Simd>(self, simd: S) {
        let Self { form, table, source, rate } = self;
        let (bag, dim, width) = (source.bag(), table.dim(), table.width());
        let (words, distance) = (table.words_mut(), rows_ahead(width * size_of::<u32>()));
        for sample in 0..bag.samples() {
            for position in bag.offsets[sample] as usize..bag.offsets[sample + 1] as usize {
                if let Some(&ahead) = bag.rows.get(position + distance) {
                    prefetch(simd, &words[ahead as usize * width..][..width]);
                }
                let row = &mut words[bag.rows[position] as usize * width..][..width];
                let (gradient, factor) = source.at(sample, position);
                columns(simd, dim, &mut Move { form, row, dim, gradient, factor, rate });
            }
        }
    }
}

/// One table's rows of one thread: SC20, Algorithm 4, lines 6 to 10. All look-ups are read, in order; those of own rows
/// are gathered first, without a branch that guesses, so that their rows can be asked for early.
pub(super) struct MoveOwn<'a, F> {
    pub form: F,
    pub band: Band<'a, u32>,
    pub dim: usize,
    pub source: GradientSource<'a>,
    pub rate: f32,
}

impl<F: Form> Kernel for MoveOwn<'_, F> {
    type Out = ();

    #[inline(always)]
    fn run<S: Simd>(mut self, simd: S) {
        let mine = self.band.rows();
        if mine.is_empty() {
            return;
        }
        let (first, count) = (mine.start as u32, mine.len() as u32);
        let width = size_of_val(self.band.row(mine.start));
        // As many are gathered, and asked for, as were before, which are moved meanwhile.
        let block = rows_ahead(width);
        let (mut now, mut next) = ([(0u32, 0u32); MOST_AHEAD], [(0u32, 0u32); MOST_AHEAD]);
        let (mut waiting, bag) = (0, self.source.bag());
        let (mut sample, mut position) = (0, bag.offsets[0] as usize);
        loop {
            let mut held = 0;
            'gather: while sample < bag.samples() {
                let end = bag.offsets[sample + 1] as usize;
                while position < end {
                    next[held] = (sample as u32, position as u32);
                    held += usize::from(bag.rows[position].wrapping_sub(first) < count);
                    position += 1;
                    if held == block {
                        break 'gather;
                    }
                }
                sample += 1;
            }
            // In one place, for it is long: the last look-ups are moved in a turn that gathers none.
            self.move_gathered(simd, &now[..waiting], &next[..held]);
            if held == 0 {
                return;
            }
            (now, waiting) = (next, held);
        }
    }
}

impl<F: Form> MoveOwn<'_, F> {
    /// Asks for a look-up's row, and for its gradient, which samples lie too far apart for the hardware to foresee,
    /// unless it is that of the sample `asked` before.
    #[inline(always)]
    fn ask<S: Simd>(&mut self, simd: S, (sample, position): (u32, u32), asked: &mut u32) {
        prefetch(simd, self.band.row(self.source.bag().rows[position as usize] as usize));
        if sample != *asked {
            prefetch(simd, self.source.at(sample as usize, position as usize).0);
            *asked = sample;
        }
    }

    /// Moves the rows of some look-ups, and asks for those of the next ones.
    #[inline(always)]
    fn move_gathered<S: Simd>(&mut self, simd: S, now: &[(u32, u32)], next: &[(u32, u32)]) {
        let (form, dim, bag) = (self.form, self.dim, self.source.bag());
        let row_of = |position: u32| bag.rows[position as usize] as usize;
        let mut asked = u32::MAX;
        for &ahead in next.get(now.len()..).unwrap_or_default() {
            self.ask(simd, ahead, &mut asked);
        }
        for (index, &(sample, position)) in now.iter().enumerate() {
            if let Some(&ahead) = next.get(index) {
                self.ask(simd, ahead, &mut asked);
            }
            let (gradient, factor) = self.source.at(sample as usize, position as usize);
            let row = self.band.row(row_of(position));
            columns(simd, dim, &mut Move { form, row, dim, gradient, factor, rate: self.rate });
        }
    }
}
