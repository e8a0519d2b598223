//! What a pickle can make.

use std::sync::Arc;

use super::numpy::{Array, Dtype, Unbuilt};

/// A value.
#[derive(Debug, Clone, PartialEq)]
pub(in crate::data::formats) enum Value {
    None,
    Bool(bool),
    /// A whole number, NumPy's included.
    Int(i64),
    /// A fraction, NumPy's included.
    Float(f64),
    Text(Arc<str>),
    Bytes(Arc<[u8]>),
    Tuple(Arc<[Self]>),
    /// Any list but the first.
    List(Vec<Self>),
    /// The first list, with as many items, which were handed out.
    Streamed(u64),
    /// The dictionary of this number, counted from 0; its pairs were handed out.
    Dict(u32),
    Array(Array),
    Dtype(Dtype),
    /// A name that stands for something that this reader makes itself.
    Global(Global),
    /// What has no content yet.
    Unbuilt(Unbuilt),
}

/// The names that arrays of NumPy need; all that is known of them is here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::data::formats) enum Global {
    /// `numpy.core.multiarray._reconstruct`: an array without content.
    Reconstruct,
    /// `numpy.core.multiarray.scalar`: a number from its dtype and its bytes.
    Scalar,
    /// `numpy.ndarray`.
    Ndarray,
    /// `numpy.dtype`.
    Dtype,
    /// `_codecs.encode`: bytes from a text, as protocol 2 writes them.
    Encode,
}

impl Global {
    /// What a module's name stands for, if it is one of these.
    pub(super) fn named(module: &str, name: &str) -> Option<Self> {
        Some(match (module, name) {
            // NumPy 2 has it under another name.
            ("numpy.core.multiarray" | "numpy._core.multiarray", "_reconstruct") => Self::Reconstruct,
            ("numpy.core.multiarray" | "numpy._core.multiarray", "scalar") => Self::Scalar,
            ("numpy", "ndarray") => Self::Ndarray,
            ("numpy", "dtype") => Self::Dtype,
            ("_codecs", "encode") => Self::Encode,
            _ => return None,
        })
    }
}

/// A number as it was stored.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(in crate::data::formats) enum Number {
    Int(i64),
    Float(f64),
}

impl Number {
    /// It as a whole number, if it is one.
    pub(in crate::data::formats) fn whole(self) -> Option<i64> {
        match self {
            Self::Int(value) => Some(value),
            // From 2^63 on, a fraction is none of these.
            Self::Float(value) => (value.fract() == 0.0 && value.abs() < 9.2e18).then_some(value as i64),
        }
    }

    /// The nearest fraction.
    pub(in crate::data::formats) fn float(self) -> f64 {
        match self {
            Self::Int(value) => value as f64,
            Self::Float(value) => value,
        }
    }
}

impl std::fmt::Display for Number {
    fn fmt(&self, to: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Int(value) => value.fmt(to),
            Self::Float(value) => value.fmt(to),
        }
    }
}

impl Value {
    /// It as a number; of an array, its only one.
    pub(in crate::data::formats) fn number(&self) -> Option<Number> {
        match self {
            Self::Bool(value) => Some(Number::Int(i64::from(*value))),
            Self::Int(value) => Some(Number::Int(*value)),
            Self::Float(value) => Some(Number::Float(*value)),
            Self::Array(array) if array.len() == 1 => array.number(0),
            _ => None,
        }
    }

    /// How many numbers a row of them has: a list, a tuple or an array of one dimension.
    pub(in crate::data::formats) fn row(&self) -> Option<usize> {
        match self {
            Self::Tuple(items) => Some(items.len()),
            Self::List(items) => Some(items.len()),
            Self::Array(array) => (array.shape().len() == 1).then_some(array.len()),
            _ => None,
        }
    }

    /// Number `at` of a row.
    pub(in crate::data::formats) fn number_at(&self, at: usize) -> Option<Number> {
        match self {
            Self::Tuple(items) => items.get(at)?.number(),
            Self::List(items) => items.get(at)?.number(),
            Self::Array(array) => array.number(at),
            _ => None,
        }
    }

    /// What it is, for messages.
    pub(in crate::data::formats) fn kind(&self) -> String {
        match self {
            Self::None => "None".to_owned(),
            Self::Bool(_) => "a truth value".to_owned(),
            Self::Int(_) => "a whole number".to_owned(),
            Self::Float(_) => "a fraction".to_owned(),
            Self::Text(_) => "a text".to_owned(),
            Self::Bytes(_) => "bytes".to_owned(),
            Self::Tuple(items) => format!("a tuple of {}", items.len()),
            Self::List(items) => format!("a list of {}", items.len()),
            Self::Streamed(_) => "a list".to_owned(),
            Self::Dict(_) => "a dictionary".to_owned(),
            Self::Array(array) => format!("an array of shape {:?}", array.shape()),
            Self::Dtype(_) => "a dtype".to_owned(),
            Self::Global(_) => "a name".to_owned(),
            Self::Unbuilt(_) => "something without content".to_owned(),
        }
    }
}
