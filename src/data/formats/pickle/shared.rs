//! Which values of a pickle are looked up again.
//!
//! Python numbers nearly every value as it writes it, in case the same one comes once more, and does not say which ones
//! do. A pass over the opcodes tells, and takes no memory for values.

use std::collections::HashSet;
use std::io::Read;

use super::Origin;
use super::opcodes::{AGAIN, Opcode, Opcodes};
use crate::base::units::Count;
use crate::base::{Error, Result, interrupt};

/// Values that may be looked up again: what NumPy writes has a few tens.
const MOST: usize = 1 << 20;

/// Opcodes between two looks at the wish to stop.
const PORTION: u64 = 1 << 20;

/// The numbers of the values that are looked up again.
#[derive(Debug, Clone, Default)]
pub(in crate::data::formats) struct Shared {
    numbers: HashSet<u32>,
    last: u32,
    opcodes: u64,
}

impl Shared {
    /// Reads a pickle from its first byte to its last.
    ///
    /// # Errors
    /// When it cannot be read, ends early, has opcodes that make no data, or looks up too many values; and
    /// [`Error::Interrupted`].
    pub(in crate::data::formats) fn of(stream: impl Read, origin: Origin) -> Result<Self> {
        let mut opcodes = Opcodes::new(stream, origin);
        let mut shared = Self::default();
        loop {
            shared.opcodes += 1;
            if shared.opcodes.is_multiple_of(PORTION) && interrupt::requested() {
                return Err(Error::Interrupted);
            }
            match opcodes.next()? {
                Opcode::Stop => break,
                Opcode::Text(length) | Opcode::Bytes(length) => opcodes.skip(length)?,
                Opcode::Global => {
                    opcodes.line()?;
                    opcodes.line()?;
                }
                Opcode::Get(number) if shared.numbers.insert(number) => {
                    shared.last = shared.last.max(number);
                    if shared.numbers.len() > MOST {
                        let reason = format!(
                            "looks up more than {} values again, which NumPy's arrays do not: {AGAIN}",
                            Count(MOST as u64)
                        );
                        return Err(opcodes.fail(reason));
                    }
                }
                _ => {}
            }
        }
        opcodes.end()?;
        Ok(shared)
    }

    /// How many opcodes there are: it has no more values.
    pub(in crate::data::formats) const fn opcodes(&self) -> u64 {
        self.opcodes
    }

    /// Whether the value of this number is looked up again.
    pub(super) fn has(&self, number: u32) -> bool {
        number <= self.last && self.numbers.contains(&number)
    }
}
