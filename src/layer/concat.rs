//! The `cat` interaction: the top MLP reads a sample's vectors side by side.
//!
//! They lie side by side in memory already (the feature matrix), so forward and backward are copies of whole rows.

/// The concatenation of vectors that are adjacent already.
#[derive(Debug, Clone, Copy)]
pub struct Concat {
    width: usize,
}

impl Concat {
    /// Vectors that take `width` elements together.
    #[must_use]
    pub const fn new(width: usize) -> Self {
        Self { width }
    }

    /// Columns of the result.
    #[must_use]
    pub const fn outputs(&self) -> usize {
        self.width
    }
}
