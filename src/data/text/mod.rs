//! What all formats of text go through: lines of files, compressed or not, places to enter them at, malformed rows, and
//! pieces of text as columns.

mod columns;
mod compressed;
mod form;
mod lines;
mod marks;
mod scanned;
mod skipped;

use crate::base::Reason;
use crate::base::units::Bytes;

pub use columns::{BadLine, Columns, Tally, line_at, line_ends, most_rows};
pub use compressed::{Counted, Wanted, decoded, is_parquet_at, line_feeds, packed, unreadable};
pub use form::{Form, Shown, is_object};
pub use lines::{LONGEST, Line, Lines, MARK, MOST_CRS, Place, with_plain_ends, without_end, without_mark};
pub use marks::Marks;
pub use scanned::Scanned;
pub use skipped::Skipped;

/// The first line of a row, counted from 1, and the row or what is wrong with it.
pub type Judged<T> = (u64, std::result::Result<T, Reason>);

/// Bytes of a field that messages show.
pub const SHOWN: usize = 32;

/// What a person may see of a field: control characters escaped, long ones cut.
#[must_use]
pub fn shown(field: &[u8]) -> String {
    let cut = &field[..field.len().min(SHOWN)];
    format!("{}{}", cut.escape_ascii(), if field.len() > SHOWN { "..." } else { "" })
}

/// What is wrong with a line that is longer than any row may be.
#[must_use]
pub fn too_long(limit: usize) -> Reason {
    let limit = Bytes(limit as u64);
    Reason::with_remedy(format!(
        "the line is longer than {limit}: allow longer lines with --max-line, or make line feeds of CRs where these alone end \
         lines (`tr '\\r' '\\n' < FILE > NEW`, FILE unpacked), or is this no text file?"
    ))
}
