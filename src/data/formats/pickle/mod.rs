//! Python's pickles, as far as they are data: what NumPy writes for arrays of objects (`numpy.savez` of lists, tuples,
//! dictionaries, arrays and numbers).
//!
//! Source: the Python library's `pickletools`, protocols 2 to 4, and what NumPy's arrays, dtypes and scalars reduce to.
//!
//! A pickle is a program for a stack machine that may call any function of any module. This reader calls none: the
//! names that it knows (`value::Global`) stand for values that it makes itself, and all others are refused, as is every
//! opcode that makes no data.
//!
//! | step                                                       | file      |
//! |------------------------------------------------------------|-----------|
//! | take the bytes apart into opcodes                          | `opcodes` |
//! | find the values that are looked up again, in a first pass  | `shared`  |
//! | run the opcodes, and hand out what they make               | `machine` |
//! | what they can make                                         | `value`   |
//! | NumPy's arrays, dtypes and scalars                         | `numpy`   |
//!
//! Memory is bounded, whatever the file's size. The items of the first list, which are an array's, and the pairs of all
//! dictionaries are handed out as they come ([`Part`]) and not kept. Of the values that a pickle numbers, all of them
//! in case it names one again, those that it does are known from the first pass ([`Shared`]), and no others are kept:
//! tens among millions. Between two parts there is room for [`machine::ROOM`] bytes, and values nest
//! [`machine::DEEPEST`] deep at most, which is checked without recursion.

mod machine;
mod numpy;
mod opcodes;
mod shared;
mod value;

use std::path::{Path, PathBuf};

pub(super) use machine::{Part, Unpickler};
pub(super) use numpy::Dtype;
pub(super) use shared::Shared;
pub(super) use value::{Number, Value};

use super::bad;
use crate::base::Error;
use crate::base::units::Count;

/// Where a pickle stands, for messages.
#[derive(Debug, Clone)]
pub(super) struct Origin {
    /// The file.
    pub(super) path: PathBuf,
    /// What the file calls it.
    pub(super) array: String,
}

impl Origin {
    /// The array of an archive.
    pub(super) fn new(path: &Path, array: &str) -> Self {
        Self { path: path.to_owned(), array: array.to_owned() }
    }

    /// The error of a pickle of which so many bytes were read.
    fn fail(&self, byte: u64, reason: impl std::fmt::Display) -> Error {
        bad(&self.path, format!("array {}: byte {} of its pickle: {reason}", self.array, Count(byte)))
    }
}

#[cfg(test)]
mod tests;
