//! Sums down the columns of a matrix: a layer's bias gradient.

use crate::simd::{Kernel, Simd, combine};

/// `out[j] = sum over i of from[i][first + j]`, in ascending i.
#[derive(Debug)]
pub struct ColumnSums<'a> {
    /// One sum a column, from column `first` on.
    pub out: &'a mut [f32],
    /// The first column that is summed.
    pub first: usize,
    /// The matrix: element (i, j) at `i * row + j`.
    pub from: &'a [f32],
    /// Distance between rows.
    pub row: usize,
    /// Rows.
    pub rows: usize,
}

impl Kernel for ColumnSums<'_> {
    type Out = ();

    #[inline(always)]
    fn run<S: Simd>(self, simd: S) {
        let first = self.first;
        self.out.fill(0.0);
        for i in 0..self.rows {
            let row = &self.from[i * self.row + first..][..self.out.len()];
            combine(simd, self.out, row, |sum, x| simd.add(sum, x));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::math::random;
    use crate::simd::Isa;

    #[test]
    fn sums_run_in_ascending_order() {
        let from = random(7 * 41, 1);
        for isa in Isa::all() {
            let mut out = [5.0; 35];
            isa.run(ColumnSums { out: &mut out, first: 3, from: &from, row: 41, rows: 7 });
            for (j, &sum) in out.iter().enumerate() {
                assert_eq!(sum, (0..7).fold(0.0, |sum, i| sum + from[i * 41 + 3 + j]), "{isa:?}");
            }
        }
    }
}
