//! A rank's copy of a table that every rank has.

use std::ops::Range;

use super::sparse::SparseGradients;
use crate::base::TableId;
use crate::embedding::{LookUp, Table, Updater};
use crate::optim::ParamGroup;

/// A table that every rank has.
#[derive(Debug)]
pub(super) struct Replica {
    pub table: TableId,
    pub params: ParamGroup,
    /// Its columns of a sample's features.
    pub columns: Range<usize>,
    pub weights: [Table; 1],
    pub look_up: LookUp,
    pub updater: Updater,
    /// Unless look-ups go to all ranks as they are.
    pub sums: Option<SparseGradients>,
}
