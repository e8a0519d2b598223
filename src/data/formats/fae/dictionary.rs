//! Which rows are hot, and at which position each stands among the hot rows of all tables.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::packed::{origin, stream};
use super::{RERUN, bad};
use crate::base::{Error, Result, interrupt};
use crate::data::Description;
use crate::data::formats::pickle::{Part, Shared, Unpickler, Value};
use crate::data::hot::HotSet;
use crate::memory::FileBytes;

/// The hot rows of all tables.
pub(super) struct Dictionary {
    path: PathBuf,
    tables: usize,
    /// Of each position its table and row.
    rows: Vec<(u32, u32)>,
}

impl Dictionary {
    /// Reads `hot_emb_dict.npz`; takes some 40 bytes a hot row.
    ///
    /// # Errors
    /// When it cannot be read, or is no such dictionary.
    pub(super) fn read(path: &Path) -> Result<Self> {
        let bytes = FileBytes::streamed(path)?;
        let fail = |reason: String| bad(path, format!("{reason}: {RERUN}"));
        let (member, header) = stream(&bytes)?;
        let [tables] = header.shape[..] else {
            return Err(fail(format!("has shape {:?}; a dictionary for each table is expected", header.shape)));
        };
        if !header.dtype.ends_with('O') {
            return Err(fail(format!("has dtype {}; dictionaries, which are objects, are expected", header.dtype)));
        }
        let shared = Arc::new(Shared::of(member, origin(path))?);
        let mut unpickler = Unpickler::new(stream(&bytes)?.0, origin(path), shared);
        let (mut found, mut items) = (Vec::new(), 0u32);
        let end = loop {
            if interrupt::requested() {
                return Err(Error::Interrupted);
            }
            match unpickler.next()? {
                Part::Pairs(table, pairs) => {
                    for pair in pairs.as_chunks::<2>().0 {
                        found.push(entry(pair, table).map_err(|reason| fail(format!("table {table}: {reason}")))?);
                    }
                }
                Part::Items(values) => {
                    for value in values {
                        if value != Value::Dict(items) {
                            let reason = format!("table {items} has {} instead of a dictionary", value.kind());
                            return Err(fail(reason));
                        }
                        items += 1;
                    }
                }
                Part::End(end) => break end,
            }
        };
        match &end {
            Value::Array(array) if array.streamed() && array.shape() == header.shape => {}
            other => return Err(fail(format!("holds {} instead of {tables} dictionaries", other.kind()))),
        }
        Ok(Self { path: path.to_owned(), tables, rows: by_position(found).map_err(fail)? })
    }

    /// The file.
    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// How many tables there are.
    pub(super) const fn tables(&self) -> usize {
        self.tables
    }

    /// How many hot rows there are.
    pub(super) const fn len(&self) -> usize {
        self.rows.len()
    }

    /// The table and the row at a position, if there is one.
    pub(super) fn at(&self, position: u32) -> Option<(u32, u32)> {
        self.rows.get(position as usize).copied()
    }

    /// The last hot row of each table.
    pub(super) fn largest(&self) -> Vec<Option<u32>> {
        let mut most = vec![None; self.tables];
        for &(table, row) in &self.rows {
            let most = &mut most[table as usize];
            *most = (*most).max(Some(row));
        }
        most
    }

    /// The hot rows of each table, rising.
    pub(super) fn sorted(&self) -> Vec<Vec<u32>> {
        let mut tables = vec![Vec::new(); self.tables];
        self.rows.iter().for_each(|&(table, row)| tables[table as usize].push(row));
        tables.iter_mut().for_each(|rows| rows.sort_unstable());
        tables
    }

    /// The hot rows of tables whose sizes the file `told` tells.
    ///
    /// # Errors
    /// When a table lacks one of them.
    pub(super) fn set(&self, description: &Description, told: &Path) -> Result<HotSet> {
        let mut set = HotSet::new();
        for (table, (hot, column)) in self.sorted().into_iter().zip(&description.categorical).enumerate() {
            if let Some(row) = hot.last().filter(|row| u64::from(**row) >= column.rows) {
                let reason = format!(
                    "table {table} ({}) has {} rows, but its row {row} is hot by {}: copy what belongs to the same data",
                    column.name,
                    column.rows,
                    self.path.display()
                );
                return Err(bad(told, reason));
            }
            if hot.len() as u64 == column.rows {
                set.push_whole(column.rows);
            } else {
                set.push_some(column.rows, hot.into_iter());
            }
        }
        Ok(set)
    }
}

/// A row and its position.
struct Hot {
    table: u32,
    row: u32,
    position: i64,
}

/// The row and the position of a pair of a table's dictionary.
fn entry([key, value]: &[Value; 2], dict: u32) -> std::result::Result<Hot, String> {
    let Value::Tuple(key) = key else {
        return Err(format!("a key is {} instead of a table's number with a row's", key.kind()));
    };
    let [Some(table), Some(row)] = [0, 1].map(|at| key.get(at)?.number()?.whole()) else {
        return Err("a key is no table's number with a row's".to_owned());
    };
    if key.len() != 2 || table != i64::from(dict) {
        return Err(format!("a row of table {table} stands in its dictionary"));
    }
    let known = u32::try_from(row).ok().filter(|row| *row < u32::MAX);
    let row = known.ok_or_else(|| format!("row {row} is none: 0 to 2^32 - 2 are possible"))?;
    let position = value.number().and_then(|number| number.whole());
    let position = position.ok_or_else(|| format!("row {row} has {} instead of a position", value.kind()))?;
    Ok(Hot { table: dict, row, position })
}

/// The rows in the order of their positions, which are 0, 1, 2 …
fn by_position(found: Vec<Hot>) -> std::result::Result<Vec<(u32, u32)>, String> {
    const NONE: (u32, u32) = (u32::MAX, u32::MAX);
    let count = found.len();
    let mut rows = vec![NONE; count];
    for Hot { table, row, position } in found {
        let place = usize::try_from(position).ok().and_then(|position| rows.get_mut(position));
        let place = place.ok_or_else(|| {
            format!("row {row} of table {table} has position {position}, but there are {count} hot rows")
        })?;
        if *place != NONE {
            return Err(format!(
                "row {row} of table {table} has position {position}, as row {} of table {} has: positions are 32-bit \
                 fractions, which are all there up to 16,777,216 alone; with a smaller --hot-emb-gpu-mem",
                place.1, place.0
            ));
        }
        *place = (table, row);
    }
    let mut sorted = rows.clone();
    sorted.sort_unstable();
    match sorted.windows(2).find(|pair| pair[0] == pair[1]) {
        Some(twice) => Err(format!("row {} of table {} has two positions", twice[0].1, twice[0].0)),
        None => Ok(rows),
    }
}
