//! Rows of numbers that lie at equal distances: those of a row-major matrix, or some columns of it.

/// Rows, to be read.
#[derive(Debug, Clone, Copy)]
pub struct StridedRows<'a> {
    /// From the first number of the first row on.
    pub data: &'a [f32],
    /// Distance from a row to the next one.
    pub stride: usize,
}

/// Rows, to be written.
#[derive(Debug)]
pub struct StridedRowsMut<'a> {
    /// From the first number of the first row on.
    pub data: &'a mut [f32],
    /// Distance from a row to the next one.
    pub stride: usize,
}

impl<'a> StridedRows<'a> {
    /// The same rows from this column on.
    #[must_use]
    pub fn columns_from(self, column: usize) -> Self {
        Self { data: self.data.get(column..).unwrap_or_default(), ..self }
    }

    /// The rows from this one on, each with all numbers up to the next.
    ///
    /// # Panics
    /// When rows lie at no distance.
    pub fn rows_from(self, first: usize) -> impl Iterator<Item = &'a [f32]> {
        self.data.chunks(self.stride).skip(first)
    }
}

impl StridedRowsMut<'_> {
    /// The same rows for a while.
    pub const fn reborrow(&mut self) -> StridedRowsMut<'_> {
        StridedRowsMut { data: &mut *self.data, stride: self.stride }
    }
}
