//! NumPy's arrays, dtypes and scalars in a pickle: made from what their `__reduce__` says.
//!
//! An array is `_reconstruct(ndarray, (0,), b'b')`, then filled with (version, shape, dtype, whether it stands column
//! by column, its bytes or its objects as a list); a dtype is `dtype('i4', False, True)`, then filled with (version,
//! byte order, and seven entries for types that are no plain numbers); a scalar is `scalar(dtype, its bytes)`.

use std::sync::Arc;

use half::f16;

use super::value::{Global, Number, Value};

/// Why something is none of NumPy's data.
pub(super) type Fault<T> = Result<T, String>;

/// The most dimensions of an array.
const DIMENSIONS: usize = 8;

/// The type of an array's cells.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::data::formats) enum Dtype {
    /// Objects: any values.
    Object,
    /// 0 or 1, a byte.
    Bool,
    /// With a sign, of so many bytes.
    Signed(usize),
    /// Without a sign, of so many bytes.
    Unsigned(usize),
    /// A fraction of so many bytes.
    Float(usize),
}

impl Dtype {
    /// The type of this code, e.g. `i4`.
    fn named(code: &str) -> Fault<Self> {
        Ok(match code {
            "O8" | "O" => Self::Object,
            "b1" => Self::Bool,
            "i1" => Self::Signed(1),
            "i2" => Self::Signed(2),
            "i4" => Self::Signed(4),
            "i8" => Self::Signed(8),
            "u1" => Self::Unsigned(1),
            "u2" => Self::Unsigned(2),
            "u4" => Self::Unsigned(4),
            "u8" => Self::Unsigned(8),
            "f2" => Self::Float(2),
            "f4" => Self::Float(4),
            "f8" => Self::Float(8),
            _ => return Err(format!("dtype {code:?} is no number of up to eight bytes: convert it with astype")),
        })
    }

    /// Bytes of a cell; none of an object.
    const fn size(self) -> Option<usize> {
        match self {
            Self::Object => None,
            Self::Bool => Some(1),
            Self::Signed(size) | Self::Unsigned(size) | Self::Float(size) => Some(size),
        }
    }

    /// The number that a cell's bytes are, the lowest first.
    pub(in crate::data::formats) fn number(self, cell: &[u8]) -> Option<Number> {
        let mut bytes = [0; 8];
        bytes.get_mut(..cell.len())?.copy_from_slice(cell);
        let word = u64::from_le_bytes(bytes);
        Some(match (self, cell.len()) {
            (Self::Object, _) => return None,
            (Self::Bool, _) => Number::Int(i64::from(word != 0)),
            (Self::Signed(_), 1) => Number::Int(i64::from(word as i8)),
            (Self::Signed(_), 2) => Number::Int(i64::from(word as i16)),
            (Self::Signed(_), 4) => Number::Int(i64::from(word as i32)),
            (Self::Signed(_), _) => Number::Int(word as i64),
            // What no i64 holds is no number of anything here.
            (Self::Unsigned(_), _) => i64::try_from(word).map_or(Number::Float(word as f64), Number::Int),
            (Self::Float(_), 2) => Number::Float(f16::from_bits(word as u16).to_f64()),
            (Self::Float(_), 4) => Number::Float(f64::from(f32::from_bits(word as u32))),
            (Self::Float(_), _) => Number::Float(f64::from_bits(word)),
        })
    }
}

/// What was made by a call, and is filled by what follows.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(in crate::data::formats) struct Unbuilt {
    what: What,
    /// The number under which it is looked up again.
    pub(super) number: Option<u32>,
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum What {
    Array,
    Dtype(Dtype),
}

/// An array.
#[derive(Debug, Clone, PartialEq)]
pub(in crate::data::formats) struct Array {
    shape: Vec<usize>,
    cells: Cells,
}

#[derive(Debug, Clone, PartialEq)]
enum Cells {
    Numbers(Dtype, Arc<[u8]>),
    Objects(Arc<[Value]>),
    /// The items of the first list, which were handed out.
    Streamed,
}

impl Array {
    /// Its sizes.
    pub(in crate::data::formats) fn shape(&self) -> &[usize] {
        &self.shape
    }

    /// How many cells it has.
    pub(in crate::data::formats) fn len(&self) -> usize {
        self.shape.iter().product()
    }

    /// Whether its cells are the items of the first list, which were handed out.
    pub(in crate::data::formats) const fn streamed(&self) -> bool {
        matches!(self.cells, Cells::Streamed)
    }

    /// Whether its cells are 32-bit fractions, which tell whole numbers apart up to 2^24.
    pub(in crate::data::formats) const fn single(&self) -> bool {
        matches!(self.cells, Cells::Numbers(Dtype::Float(4), _))
    }

    /// Whether its cells are fractions.
    pub(in crate::data::formats) const fn fractions(&self) -> bool {
        matches!(self.cells, Cells::Numbers(Dtype::Float(_), _))
    }

    /// Cell `at`, in the order of the last index, where it is a number.
    pub(in crate::data::formats) fn number(&self, at: usize) -> Option<Number> {
        match &self.cells {
            Cells::Numbers(dtype, bytes) => {
                let size = dtype.size()?;
                dtype.number(bytes.get(at * size..(at + 1) * size)?)
            }
            Cells::Objects(objects) => objects.get(at)?.number(),
            Cells::Streamed => None,
        }
    }

    /// From what fills an array.
    fn built(state: &[Value]) -> Fault<Self> {
        let [Value::Int(_), Value::Tuple(sizes), Value::Dtype(dtype), by_columns, cells] = state else {
            return Err("an array is filled with something else than shape, dtype and cells".to_owned());
        };
        let sizes = sizes.iter().map(|size| match size {
            Value::Int(size) => usize::try_from(*size).ok(),
            _ => None,
        });
        let shape = sizes.collect::<Option<Vec<usize>>>().filter(|shape| shape.len() <= DIMENSIONS);
        let shape = shape.ok_or_else(|| format!("an array's shape is none of up to {DIMENSIONS} sizes"))?;
        let count = shape.iter().try_fold(1usize, |count, size| count.checked_mul(*size));
        let count = count.ok_or_else(|| format!("an array of shape {shape:?} has more cells than can be"))?;
        let columns = match by_columns {
            Value::Bool(columns) => *columns,
            Value::Int(columns) => *columns != 0,
            _ => return Err("an array does not say in which order its cells stand".to_owned()),
        };
        if columns && shape.len() > 1 {
            return Err(format!(
                "an array of shape {shape:?} stands column by column: make it with numpy.ascontiguousarray"
            ));
        }
        let (cells, found) = match (cells, dtype.size()) {
            (Value::Bytes(bytes), Some(size)) if bytes.len().is_multiple_of(size) => {
                (Cells::Numbers(*dtype, Arc::clone(bytes)), bytes.len() / size)
            }
            (Value::List(objects), None) => (Cells::Objects(objects.as_slice().into()), objects.len()),
            (Value::Streamed(found), None) => (Cells::Streamed, usize::try_from(*found).unwrap_or(usize::MAX)),
            (cells, _) => return Err(format!("an array of {dtype:?} cells is filled with {}", cells.kind())),
        };
        if found != count {
            return Err(format!("an array of shape {shape:?} is filled with {found} cells"));
        }
        Ok(Self { shape, cells })
    }
}

/// The value of a call of a name with a tuple of values.
///
/// # Errors
/// When NumPy makes no such call.
pub(super) fn call(global: Global, values: &[Value]) -> Fault<Value> {
    let unbuilt = |what| Ok(Value::Unbuilt(Unbuilt { what, number: None }));
    match (global, values) {
        (Global::Reconstruct, [Value::Global(Global::Ndarray), Value::Tuple(_), Value::Bytes(_)]) => {
            unbuilt(What::Array)
        }
        (Global::Dtype, [Value::Text(code), ..]) => unbuilt(What::Dtype(Dtype::named(code)?)),
        (Global::Scalar, [Value::Dtype(dtype), Value::Bytes(bytes)]) if dtype.size() == Some(bytes.len()) => {
            match dtype.number(bytes) {
                Some(Number::Int(value)) => Ok(Value::Int(value)),
                Some(Number::Float(value)) => Ok(Value::Float(value)),
                None => Err("a scalar is no number".to_owned()),
            }
        }
        (Global::Encode, [Value::Text(text), Value::Text(code)]) if &**code == "latin1" => {
            let bytes = text.chars().map(|letter| u8::try_from(u32::from(letter)).ok());
            let bytes = bytes.collect::<Option<Vec<u8>>>().ok_or("a text has letters beyond latin1")?;
            Ok(Value::Bytes(bytes.into()))
        }
        _ => Err(format!("{global:?} is called in a way in which NumPy does not")),
    }
}

/// What a call has made, filled with a state.
///
/// # Errors
/// When the state is none of it, or of a type that is not read.
pub(super) fn build(unbuilt: Unbuilt, state: &Value) -> Fault<Value> {
    let Value::Tuple(state) = state else { return Err(format!("{} fills nothing", state.kind())) };
    match (unbuilt.what, &**state) {
        (What::Array, state) => Array::built(state).map(Value::Array),
        (What::Dtype(dtype), [Value::Int(_), Value::Text(order), plain @ ..]) => {
            // Fields, names and a type of smaller arrays come first there.
            if plain.iter().take(3).any(|entry| *entry != Value::None) {
                return Err("a dtype has fields; a plain number is expected, such as int32".to_owned());
            }
            if &**order == ">" && dtype.size() != Some(1) {
                return Err("numbers stand with the highest byte first: convert them with astype".to_owned());
            }
            Ok(Value::Dtype(dtype))
        }
        (What::Dtype(_), _) => Err("a dtype is filled with something else than its byte order".to_owned()),
    }
}
