//! The blocked layout of weights and activations: panels of 64 columns.
//!
//! SC20 (III-B) keeps weights as `[Kb][Cb][bc][bk]` and activations as `[Cb][Nb][bn][bc]`. With one width for all
//! blocks of features, bc = bk = 64, the two inner row dimensions of each lie one after another, so both are the same
//! thing: panels of 64 columns, `[Kb][C][64]` and `[Cb][N][64]`. How many rows make a block is then no property of the
//! memory but a choice of each pass (see [`super::Plan`]), and a minibatch that is no multiple of anything has no tail.
//!
//! 64 floats are 4 cache lines, 4 vectors of AVX-512 or 8 of AVX2; a constant width lets the rows of a tile be constant
//! offsets in the machine code. The last panel is padded with zeros in memory (13 inputs take 64 columns); kernels
//! leave the padding's vectors out of their work, so it costs bytes only.
//!
//! A step in depth reads the same rows of one panel after another. Panels a power of two apart would all fall on the
//! same cache sets; so the distance between panels is an odd number of 16 rows.

use std::fmt;
use std::ops::Range;

use bytemuck::Pod;

use crate::base::Result;
use crate::memory::{Buffer, Supply};
use crate::sync::Grid;

/// Columns of a panel.
pub const WIDTH: usize = 64;

/// One row of a panel.
pub type Row<T> = [T; WIDTH];

/// Rows in which the distance of panels is counted: with an odd count of them, panels spread over all sets of a cache.
const SPREAD: usize = 16;

/// A matrix in panels: element (i, j) in row i of panel j / 64, at j % 64.
pub struct Panels<T> {
    cells: Buffer<T>,
    rows: usize,
    columns: usize,
    stride: usize,
}

impl<T: Pod> Panels<T> {
    /// A matrix of zeros from the system.
    #[must_use]
    pub fn zeroed(rows: usize, columns: usize) -> Self {
        let stride = Self::stride_for(rows, columns);
        Self { cells: Buffer::zeroed(columns.div_ceil(WIDTH) * stride * WIDTH), rows, columns, stride }
    }

    /// A matrix of zeros from a supply; `name` says what for.
    ///
    /// # Errors
    /// When the supply is exhausted.
    pub fn supplied(name: &str, rows: usize, columns: usize, supply: &mut Supply<'_>) -> Result<Self> {
        let stride = Self::stride_for(rows, columns);
        let cells = supply.buffer(name, columns.div_ceil(WIDTH) * stride * WIDTH)?;
        Ok(Self { cells, rows, columns, stride })
    }

    /// The sizes of a matrix, without its numbers.
    #[must_use]
    pub fn bare(rows: usize, columns: usize) -> Self {
        Self { cells: Buffer::default(), rows, columns, stride: Self::stride_for(rows, columns) }
    }

    const fn stride_for(rows: usize, columns: usize) -> usize {
        if columns > WIDTH { SPREAD * (rows.div_ceil(SPREAD) | 1) } else { rows.next_multiple_of(SPREAD) }
    }

    /// Rows.
    #[must_use]
    pub const fn rows(&self) -> usize {
        self.rows
    }

    /// Columns, without padding.
    #[must_use]
    pub const fn columns(&self) -> usize {
        self.columns
    }

    /// Panels.
    #[must_use]
    pub const fn panels(&self) -> usize {
        self.columns.div_ceil(WIDTH)
    }

    /// Rows from the start of a panel to the start of the next.
    #[must_use]
    pub const fn stride(&self) -> usize {
        self.stride
    }

    /// Columns of a panel that are no padding.
    #[must_use]
    pub const fn width(&self, panel: usize) -> usize {
        let left = self.columns - panel * WIDTH;
        if left < WIDTH { left } else { WIDTH }
    }

    /// All rows of all panels, with those between them.
    #[must_use]
    pub fn cells(&self) -> &[Row<T>] {
        self.cells.as_chunks().0
    }

    /// As [`Panels::cells`], so that row `first` of each panel comes first; panels are as far from each other.
    ///
    /// # Panics
    /// When there is no such row.
    #[must_use]
    pub(super) fn cells_from(&self, first: usize) -> &[Row<T>] {
        assert!(first <= self.rows, "row {first} of {}", self.rows);
        let cells = self.cells();
        &cells[first.min(cells.len())..]
    }

    /// As [`Panels::cells`], to be overwritten; padding must stay 0.
    #[must_use]
    pub fn cells_mut(&mut self) -> &mut [Row<T>] {
        self.cells.as_chunks_mut().0
    }

    /// The rows of a panel.
    ///
    /// # Panics
    /// When there is no such panel.
    #[must_use]
    pub fn panel(&self, panel: usize) -> &[Row<T>] {
        &self.cells()[panel * self.stride..][..self.rows]
    }

    /// As [`Panels::panel`], to be overwritten; padding must stay 0.
    ///
    /// # Panics
    /// When there is no such panel.
    #[must_use]
    pub fn panel_mut(&mut self, panel: usize) -> &mut [Row<T>] {
        let (stride, rows) = (self.stride, self.rows);
        &mut self.cells_mut()[panel * stride..][..rows]
    }

    /// The first `rows` rows, to be overwritten, in `pieces` nearly equal bands of rows of all panels, each of which
    /// begins at a multiple of `grain`; padding must stay 0.
    ///
    /// # Panics
    /// When there are fewer rows, or `pieces` or `grain` is 0.
    #[must_use]
    pub fn grid(&mut self, rows: usize, pieces: usize, grain: usize) -> Grid<'_, Row<T>> {
        assert!(rows <= self.rows, "{rows} rows of {}", self.rows);
        let sizes = [self.panels(), rows, self.stride];
        Grid::new(self.cells_mut(), sizes, [1, pieces], grain)
    }

    /// Takes the rows `range` from a row-major matrix: element (i, j) from `from[i * row + j]`, i counted from the
    /// range's start.
    ///
    /// # Panics
    /// When the range goes past the last row or `from` is too small.
    pub fn import(&mut self, range: Range<usize>, from: &[T], row: usize) {
        for panel in 0..self.panels() {
            let width = self.width(panel);
            for (i, to) in self.panel_mut(panel)[range.clone()].iter_mut().enumerate() {
                to[..width].copy_from_slice(&from[i * row + panel * WIDTH..][..width]);
            }
        }
    }

    /// Gives the rows `range` to a row-major matrix, the reverse of [`Panels::import`].
    ///
    /// # Panics
    /// When the range goes past the last row or `to` is too small.
    pub fn export(&self, range: Range<usize>, to: &mut [T], row: usize) {
        for panel in 0..self.panels() {
            let width = self.width(panel);
            for (i, from) in self.panel(panel)[range.clone()].iter().enumerate() {
                to[i * row + panel * WIDTH..][..width].copy_from_slice(&from[..width]);
            }
        }
    }

    /// The panels of a matrix given row-major without gaps.
    ///
    /// # Panics
    /// When `from` is not rows x columns.
    #[must_use]
    pub fn from_rows(from: &[T], rows: usize, columns: usize) -> Self {
        assert_eq!(from.len(), rows * columns, "rows x columns");
        let mut panels = Self::zeroed(rows, columns);
        panels.import(0..rows, from, columns);
        panels
    }

    /// The matrix row-major without gaps.
    #[must_use]
    pub fn to_rows(&self) -> Vec<T> {
        let mut rows = vec![T::zeroed(); self.rows * self.columns];
        self.export(0..self.rows, &mut rows, self.columns);
        rows
    }
}

impl<T> fmt::Debug for Panels<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Panels({} x {}, {} rows apart)", self.rows, self.columns, self.stride)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_come_back_and_padding_stays_zero() {
        for (rows, columns) in [(1, 1), (5, 13), (3, 64), (7, 65), (33, 479), (0, 4), (4, 0)] {
            let from: Vec<u32> = (1..).take(rows * columns).collect();
            let panels = Panels::from_rows(&from, rows, columns);
            assert_eq!(panels.to_rows(), from);
            let cells = panels.cells().as_flattened();
            assert_eq!(cells.iter().filter(|&&x| x != 0).count(), rows * columns);
            assert!(panels.panels() < 2 || (panels.stride() / SPREAD) % 2 == 1);
            for i in 0..rows {
                for j in 0..columns {
                    assert_eq!(panels.panel(j / WIDTH)[i][j % WIDTH], from[i * columns + j]);
                }
            }
        }
    }

    #[test]
    fn a_range_of_rows_moves_alone() {
        let mut panels = Panels::<u16>::zeroed(9, 70);
        panels.import(2..4, &[7; 200], 100);
        let rows = panels.to_rows();
        assert!((0..9 * 70).all(|i| (rows[i] == 7) == (140..280).contains(&i)));
        let mut out = [0; 200];
        panels.export(3..5, &mut out, 100);
        assert!(out[..70].iter().all(|&x| x == 7) && out[70..].iter().all(|&x| x == 0));
    }
}
