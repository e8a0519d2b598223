//! How text with a header line is read, by commands that read all of a data set.

use std::path::PathBuf;

use clap::Args;

use crate::base::config::{Config, MAX_LINE, OnBadRow, SourceKind};
use crate::base::units::parse_bytes;
use crate::base::{Error, Result};
use crate::data::formats::Described;

/// Flags of text.
#[derive(Debug, Args)]
pub struct TextArgs {
    /// What describes the data, where they are text with a header line (`octorec inspect` proposes it).
    #[arg(long, value_name = "FILE")]
    schema: Option<PathBuf>,

    /// The longest line of text, such as 64MiB; default: 16MiB.
    #[arg(long, value_name = "SIZE", value_parser = max_line, requires = "schema")]
    max_line: Option<u64>,
}

impl TextArgs {
    /// How the text is described, if it is.
    pub fn described(&self) -> Option<Described<'_>> {
        let max_line = self.max_line.map_or(MAX_LINE, |bytes| bytes as usize);
        self.schema.as_deref().map(|schema| Described { schema, max_line, on_bad_row: OnBadRow::Fail })
    }
}

/// Refuses a flag that is of text alone where the data are none.
pub fn of_text(flag: &str, config: &Config) -> Result<()> {
    let data = &config.data;
    if data.source == SourceKind::Tsv || (data.source == SourceKind::Files && !data.schema.is_empty()) {
        return Ok(());
    }
    let reason = "has an effect only on text, and these data are none: leave it away".to_owned();
    Err(Error::config(flag, reason))
}

/// The longest line.
pub fn max_line(text: &str) -> std::result::Result<u64, String> {
    let bytes = parse_bytes(text)?;
    if (1..=1 << 30).contains(&bytes) { Ok(bytes) } else { Err("a size from 1B to 1GiB is expected".to_owned()) }
}
