//! A file of samples, from front to back: an array of objects, pickled and compressed, of which no sample is reached
//! but by way of all before it.

use std::collections::VecDeque;
use std::fmt;
use std::path::Path;
use std::sync::Arc;

use super::{RERUN, bad, fault};
use crate::base::Result;
use crate::data::Description;
use crate::data::formats::npy::Header;
use crate::data::formats::npz::Member;
use crate::data::formats::pickle::{Number, Origin, Part, Shared, Unpickler, Value};
use crate::memory::FileBytes;

/// What `numpy.savez_compressed` calls the first array that it gets.
pub(super) const ARRAY: &str = "arr_0";

/// Values of a sample.
const PARTS: usize = 3;

/// A pickle's place, for messages.
pub(super) fn origin(path: &Path) -> Origin {
    Origin::new(path, ARRAY)
}

/// A file of samples.
pub(super) struct Packed {
    bytes: Arc<FileBytes>,
    shared: Arc<Shared>,
    shape: Vec<usize>,
}

/// A sample as it was pickled.
pub(super) struct Sample {
    pub(super) dense: Value,
    pub(super) lookups: Value,
    pub(super) label: Value,
}

/// What a sample consists of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Layout {
    /// Dense features.
    pub(super) dense: usize,
    /// Whether they are fractions rather than whole numbers.
    pub(super) fractions: bool,
    /// Tables, each looked up once.
    pub(super) tables: usize,
}

impl fmt::Display for Layout {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = if self.fractions { "fractions" } else { "whole numbers" };
        write!(to, "{} dense features ({kind}) and {} look-ups", self.dense, self.tables)
    }
}

impl Layout {
    /// Columns in Criteo's layout, of tables of so many rows.
    pub(super) fn description(&self, rows: &[u64]) -> Description {
        let mut description = Description::criteo(self.dense, rows);
        description.dense.iter_mut().for_each(|column| column.float = self.fractions);
        description
    }

    /// That of a sample.
    fn of(sample: &Sample, path: &Path) -> Result<Self> {
        let series = |value: &Value| match value {
            Value::Array(array) => array.shape().len() == 2,
            Value::List(items) => items.first().is_some_and(|item| item.row().is_some()),
            _ => false,
        };
        if series(&sample.dense) {
            let reason = "holds time series, as FAE's profiler of TBSM writes them; samples of DLRM are read: preprocess \
                          Taobao's log with `octorec preprocess tbsm`, and tell its hot rows with `octorec inspect --hot`";
            return Err(fault(path, 0, reason));
        }
        let row = |value: &Value, what: &str| {
            value.row().ok_or_else(|| fault(path, 0, format!("has {} instead of {what}: {RERUN}", value.kind())))
        };
        let fractions = match &sample.dense {
            Value::Array(array) => array.fractions(),
            other => (0..other.row().unwrap_or(0)).any(|at| matches!(other.number_at(at), Some(Number::Float(_)))),
        };
        Ok(Self {
            dense: row(&sample.dense, "a row of dense features")?,
            fractions,
            tables: row(&sample.lookups, "a row of look-ups")?,
        })
    }
}

impl Packed {
    /// Opens a file of samples, and reads it once for what its pickle looks up again; the archive's checksum is
    /// compared.
    ///
    /// # Errors
    /// When it cannot be read, or holds no array of samples.
    pub(super) fn open(path: &Path) -> Result<Self> {
        let bytes = FileBytes::streamed(path)?;
        let (member, header) = stream(&bytes)?;
        if !matches!(header.shape[..], [_] | [_, PARTS]) || !header.dtype.ends_with('O') {
            let reason = format!(
                "has shape {:?} and dtype {}; samples, which are objects of {PARTS} parts, are expected: {RERUN}",
                header.shape, header.dtype
            );
            return Err(bad(path, reason));
        }
        let shared = Arc::new(Shared::of(member, origin(path))?);
        // Before anybody takes memory for them.
        if header.shape[0] as u64 > shared.opcodes() {
            let reason = format!("says that it has {} samples, but has fewer values: {RERUN}", header.shape[0]);
            return Err(bad(path, reason));
        }
        Ok(Self { bytes, shared, shape: header.shape })
    }

    /// The file.
    pub(super) fn path(&self) -> &Path {
        self.bytes.path()
    }

    /// How many samples there are.
    pub(super) fn samples(&self) -> u64 {
        self.shape[0] as u64
    }

    /// What its samples consist of, by the first one; nothing where there is none.
    ///
    /// # Errors
    /// When it cannot be read, or is no sample of DLRM.
    pub(super) fn layout(&self) -> Result<Option<Layout>> {
        if self.samples() == 0 {
            return Ok(None);
        }
        Layout::of(&self.read()?.next()?, self.path()).map(Some)
    }

    /// Its samples from the first on.
    ///
    /// # Errors
    /// When it cannot be read.
    pub(super) fn read(&self) -> Result<SampleReader<'_>> {
        let (member, _) = stream(&self.bytes)?;
        let unpickler = Unpickler::new(member, origin(self.path()), Arc::clone(&self.shared));
        Ok(SampleReader { of: self, unpickler, values: VecDeque::new(), next: 0 })
    }
}

/// The array's bytes, from behind its header on.
pub(super) fn stream(bytes: &Arc<FileBytes>) -> Result<(Member, Header)> {
    let mut member = Member::open(bytes, ARRAY)?;
    let header = Header::take(&mut member, bytes.path(), &format!("array {ARRAY}"))?;
    Ok((member, header))
}

/// The samples of a file that are still to come.
pub(super) struct SampleReader<'a> {
    of: &'a Packed,
    unpickler: Unpickler<Member>,
    /// Items of the array that no sample has yet.
    values: VecDeque<Value>,
    next: u64,
}

impl SampleReader<'_> {
    /// The number of the next sample.
    pub(super) const fn number(&self) -> u64 {
        self.next
    }

    /// How many samples are still to come.
    pub(super) fn left(&self) -> u64 {
        self.of.samples() - self.next
    }

    /// Bytes of the pickle that were read.
    pub(super) const fn at(&self) -> u64 {
        self.unpickler.at()
    }

    /// The next sample; behind the last one the file's end is checked.
    ///
    /// # Errors
    /// When it cannot be read, or is none.
    ///
    /// # Panics
    /// When none is left.
    pub(super) fn next(&mut self) -> Result<Sample> {
        assert!(self.left() > 0, "sample {} of {}", self.next, self.of.samples());
        let flat = self.of.shape.len() == 2;
        let needed = if flat { PARTS } else { 1 };
        while self.values.len() < needed {
            match self.unpickler.next()? {
                Part::Items(values) => self.values.extend(values),
                Part::Pairs(..) => return Err(self.fault(format!("has a dictionary in it: {RERUN}"))),
                Part::End(_) => {
                    let reason = format!("is missing, and the file says that it has {}: {RERUN}", self.of.samples());
                    return Err(self.fault(reason));
                }
            }
        }
        let values = if flat { self.values.drain(..PARTS).collect() } else { self.parts()? };
        let [dense, lookups, label]: [Value; PARTS] = match values.try_into() {
            Ok(values) => values,
            Err(values) => {
                return Err(self.fault(format!("has {} parts instead of {PARTS}: {RERUN}", values.len())));
            }
        };
        self.next += 1;
        if self.left() == 0 {
            self.end()?;
        }
        Ok(Sample { dense, lookups, label })
    }

    /// The parts of the next sample, where it is an item of its own.
    fn parts(&mut self) -> Result<Vec<Value>> {
        match self.values.pop_front() {
            Some(Value::List(parts)) => Ok(parts),
            Some(Value::Tuple(parts)) => Ok(parts.to_vec()),
            other => {
                let kind = other.map_or_else(String::new, |value| value.kind());
                Err(self.fault(format!("is {kind} instead of {PARTS} parts: {RERUN}")))
            }
        }
    }

    /// Checks that nothing but the array follows.
    fn end(&mut self) -> Result<()> {
        let fail = |reason: String| bad(self.of.path(), format!("{reason}: {RERUN}"));
        if !self.values.is_empty() {
            return Err(fail(format!("has more than the {} samples that it says", self.of.samples())));
        }
        match self.unpickler.next()? {
            Part::End(Value::Array(array)) if array.streamed() && array.shape() == self.of.shape => Ok(()),
            Part::End(other) => Err(fail(format!("holds {} instead of samples", other.kind()))),
            Part::Items(_) | Part::Pairs(..) => {
                Err(fail(format!("has more than the {} samples that it says", self.of.samples())))
            }
        }
    }

    fn fault(&self, reason: impl fmt::Display) -> crate::base::Error {
        fault(self.of.path(), self.next, reason)
    }
}
