//! `octorec schema`: how a table of text is described, key by key.

use clap::Args;

use crate::base::{Result, console};
use crate::data::formats::csv::keys;

/// Arguments of `octorec schema`.
#[derive(Debug, Args)]
pub struct SchemaArgs {
    /// Print the keys as a table in Markdown
    #[arg(long)]
    markdown: bool,
}

impl SchemaArgs {
    /// Prints the guide.
    pub fn run(&self) -> Result<()> {
        let text = if self.markdown { keys::markdown() } else { keys::guide() };
        console::result(format_args!("{text}")).map(|_| ())
    }
}

/// What `octorec help schema` and `octorec schema --help` print.
pub fn help() -> String {
    format!(
        "{}\nUsage: octorec schema [--markdown]\n\n  --markdown  Print the keys as a table in Markdown\n",
        keys::guide()
    )
}
