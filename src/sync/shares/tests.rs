//! Every row is lent once, and only what was lent.

use super::*;
use crate::simd::{Isa, Kernel};
use crate::sync::{Crew, Patience, each_alone};

#[test]
fn every_row_is_lent_once() {
    let crew = Crew::start(3, Patience::SHARED_CORE, |_| ()).unwrap();
    let (mut a, mut b) = (vec![0u32; 7 * 2], vec![0u32; 4 * 3]);
    let mut lender = Lender::new(2, 3);
    let mut mark = |lender: &mut Lender<u32>| {
        a.fill(0);
        b.fill(0);
        let matrices = [Matrix { data: &mut a[..], width: 2 }, Matrix { data: &mut b[..], width: 3 }];
        crew.each(lender.matrices(matrices), |mut share| {
            let (own, mark) = (share.matrices(), share.part() as u32 + 1);
            for matrix in 0..2 {
                let mut band = share.band(matrix);
                assert!(own.contains(&matrix) || band.rows().is_empty(), "rows of {matrix}, of {own:?}");
                band.rows().for_each(|row| band.row(row).iter_mut().for_each(|x| *x += mark));
                band.all().iter_mut().for_each(|x| *x += 10);
            }
        });
        [a.clone(), b.clone()].map(|all| all.into_iter().map(|x| x - 10).collect::<Vec<_>>())
    };
    // In the middle of a matrix, where one ends or begins, and where all end.
    for (cuts, expected) in [
        ([[0, 5], [1, 1]], [[1, 1, 1, 1, 1, 2, 2], [2, 3, 3, 3, 0, 0, 0]]),
        ([[0, 0], [0, 7]], [[2; 7], [3, 3, 3, 3, 0, 0, 0]]),
        ([[1, 0], [2, 0]], [[1; 7], [2, 2, 2, 2, 0, 0, 0]]),
        ([[1, 4], [2, 0]], [[1; 7], [1, 1, 1, 1, 0, 0, 0]]),
    ] {
        lender.reset();
        cuts.into_iter().for_each(|[matrix, row]| lender.cut(matrix, row));
        let each = |marks: &[u32], width: usize| marks.iter().flat_map(|mark| vec![*mark; width]).collect::<Vec<_>>();
        assert_eq!(mark(&mut lender), [each(&expected[0], 2), each(&expected[1][..4], 3)], "cut at {cuts:?}");
    }
    lender.cut_each(3);
    assert_eq!(
        mark(&mut lender),
        [[1, 1, 1, 1, 2, 2, 2, 2, 3, 3, 3, 3, 3, 3].to_vec(), [1, 1, 1, 2, 2, 2, 3, 3, 3, 3, 3, 3].to_vec()]
    );
}

#[test]
fn parts_have_as_many_elements_each() {
    let (mut a, mut b, mut none) = (vec![0u8; 30], vec![0u8; 70], Vec::new());
    for parts in [1, 2, 3, 10, 200] {
        let mut lender = Lender::new(3, parts);
        let mut loan = lender.begin();
        loan.matrix(Matrix { data: &mut a, width: 3 });
        loan.matrix(Matrix { data: &mut none, width: 1 });
        loan.matrix(Matrix { data: &mut b, width: 1 });
        loan.cut_evenly(parts);
        let mut lent = Vec::new();
        each_alone(loan.lend(), |mut share| {
            lent.push((0..3).map(|matrix| share.band(matrix).all().len()).sum::<usize>());
        });
        assert_eq!((lent.len(), lent.iter().sum::<usize>()), (parts, 100));
        // No part is longer than its share and a row of the widest matrix.
        assert!(lent.iter().all(|len| *len <= 100usize.div_ceil(parts) + 3), "{lent:?}");
    }
    let mut lender = Lender::<u8>::new(0, 4);
    let mut loan = lender.begin();
    loan.cut_evenly(4);
    assert_eq!(loan.lend().len(), 4);
}

#[test]
fn windows_leave_other_columns_alone() {
    let crew = Crew::start(2, Patience::SHARED_CORE, |_| ()).unwrap();
    let mut data = vec![0u32; 3 * 8];
    let mut lender = Lender::new(2, 2);
    lender.cut(1, 1);
    let mut loan = lender.begin();
    loan.windows(&mut data, 8, &[1, 4], 3);
    crew.each(loan.lend(), |mut share| {
        for window in 0..2 {
            let mut band = share.band(window);
            band.rows().for_each(|row| band.row(row).fill(window as u32 + 1));
        }
    });
    assert!(data.chunks(8).all(|row| row == [0, 1, 1, 1, 2, 2, 2, 0]), "{data:?}");
}

/// Streams 1, 2, 3 … into all rows, in parts that end within rows.
struct Fill<'a>(Band<'a, f32>);

impl Kernel for Fill<'_> {
    type Out = ();

    #[inline(always)]
    fn run<S: Simd>(mut self, simd: S) {
        let from: Vec<f32> = (1..=self.0.rows().len() * self.0.width()).map(|x| x as f32).collect();
        let first = self.0.rows().start * self.0.width();
        from.chunks(48).enumerate().for_each(|(part, from)| self.0.stream(simd, first + part * 48, from));
    }
}

#[test]
fn rows_of_whole_lines_are_streamed() {
    let mut lines = vec![Line::default(); 3 * 4];
    let floats: &mut [f32] = bytemuck::cast_slice_mut(&mut lines);
    let mut lender = Lender::new(1, 1);
    for (start, width, whole) in [(16, 32, true), (8, 32, false), (16, 24, false)] {
        let mut loan = lender.begin();
        loan.windows(floats, 64, &[start], width);
        let lent = loan.lend();
        // SAFETY: the only part, once.
        #[allow(unsafe_code)]
        let mut share = unsafe { lent.part(0) };
        assert_eq!(share.band(0).has_lines(), whole, "{width} columns from {start} on");
    }
    for isa in Isa::all() {
        floats.fill(0.0);
        let mut loan = lender.begin();
        loan.windows(floats, 64, &[16], 32);
        let lent = loan.lend();
        // SAFETY: as above.
        #[allow(unsafe_code)]
        let mut share = unsafe { lent.part(0) };
        isa.run(Fill(share.band(0)));
        for (row, floats) in floats.chunks(64).enumerate() {
            let expected = |at: usize| if (16..48).contains(&at) { (row * 32 + at - 15) as f32 } else { 0.0 };
            assert!((0..64).all(|at| floats[at] == expected(at)), "{isa:?} row {row}: {floats:?}");
        }
    }
}

#[test]
#[should_panic(expected = "whole lines are streamed")]
fn rows_that_end_within_a_line_are_not_streamed() {
    let mut lines = vec![Line::default(); 3];
    let mut lender = Lender::new(1, 1);
    let lent = lender.matrices([Matrix { data: bytemuck::cast_slice_mut(&mut lines), width: 24 }]);
    // SAFETY: the only part, once.
    #[allow(unsafe_code)]
    let mut share = unsafe { lent.part(0) };
    Isa::best().run(Fill(share.band(0)));
}

#[test]
#[should_panic(expected = "boundaries go up")]
fn overlapping_ranges_are_refused() {
    let mut lender = Lender::new(1, 3);
    lender.cut(0, 3);
    lender.cut(0, 2);
    let _ = lender.matrices([Matrix { data: &mut [0u8; 4], width: 1 }]);
}

#[test]
#[should_panic(expected = "boundaries go up")]
fn rows_that_a_matrix_does_not_have_are_refused() {
    let mut lender = Lender::new(1, 2);
    lender.cut(0, 5);
    let _ = lender.matrices([4, 9].map(|len| Matrix { data: vec![0u8; len].leak(), width: 1 }));
}

#[test]
#[should_panic(expected = "boundaries go up")]
fn a_matrix_that_is_not_lent_is_refused() {
    let mut lender = Lender::new(1, 2);
    lender.cut(1, 1);
    let _ = lender.matrices([Matrix { data: &mut [0u8; 4], width: 1 }]);
}

#[test]
#[should_panic(expected = "row 2 of 0..2")]
fn a_foreign_row_is_refused() {
    let crew = Crew::start(1, Patience::SHARED_CORE, |_| ()).unwrap();
    let mut lender = Lender::new(1, 2);
    lender.cut(0, 2);
    crew.each(lender.matrices([Matrix { data: &mut [0u8; 4], width: 1 }]), |mut share| {
        let _ = share.band(0).row(2);
    });
}

#[test]
#[should_panic(expected = "boundaries go up")]
fn shares_that_wrap_are_refused() {
    // Of 4 rows part 2^62 would begin with the first again where products wrap.
    let mut lender = Lender::new(1, 1);
    lender.cut_each(1 << 63);
    let _ = lender.matrices([Matrix { data: &mut [0u8; 4], width: 1 }]);
}

#[test]
#[should_panic(expected = "lie side by side in 8")]
fn windows_whose_end_wraps_are_refused() {
    Lender::new(2, 1).begin().windows(&mut [0u8; 8], 8, &[0, usize::MAX - 1], 2);
}
