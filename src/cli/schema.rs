//! `octorec schema`: how a table of text is described, key by key.

use std::fmt::Write;

use clap::Args;

use super::terminal::wrapped;
use crate::base::{Result, console};
use crate::data::formats::csv::keys::{Key, SECTIONS, Section, WHOLE};

/// Columns that sentences of the guide take, behind their indentation.
const WIDTH: usize = 87;

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
        let text = if self.markdown { markdown() } else { guide() };
        console::result(format_args!("{text}"))
    }
}

/// What `octorec help schema` and `octorec schema --help` print.
pub fn help() -> String {
    format!("{}\nUsage: octorec schema [--markdown]\n\n  --markdown  Print the keys as a table in Markdown\n", guide())
}

/// The guide, for a terminal.
fn guide() -> String {
    let mut text = "A schema says how a table of text becomes features: a TOML file for `train --schema FILE`, `convert`,\n\
                    `inspect` and `preprocess csv`. `octorec inspect TABLE --write-schema FILE` proposes one with its reasons.\n\
                    Columns that it does not name are left out. A whole one:\n\n"
        .to_owned();
    let folded = |text| wrapped(text, WIDTH).join("\n        ");
    WHOLE.lines().for_each(|line| text += &format!("    {line}\n"));
    for Section { heading, about, keys } in &SECTIONS {
        let _ = write!(text, "\n{about}{}{heading}\n", if heading.is_empty() { "" } else { ", under " });
        for Key { name, takes, meaning, example } in *keys {
            let _ = writeln!(text, "\n  {name} = {}\n        {}", folded(takes), folded(meaning));
            example.lines().for_each(|line| text += &format!("            {line}\n"));
        }
    }
    text
}

/// All keys as a table in Markdown.
fn markdown() -> String {
    let mut text = "| where | key | takes | meaning | example |\n|---|---|---|---|---|\n".to_owned();
    let cell = |text: &str| text.replace('|', "\\|");
    for Section { heading, keys, .. } in &SECTIONS {
        let place = if heading.is_empty() { "top".to_owned() } else { format!("`{heading}`") };
        for Key { name, takes, meaning, example } in *keys {
            let own = example.lines().find(|line| line.starts_with(name)).unwrap_or(example);
            let _ = writeln!(text, "| {place} | `{name}` | {} | {} | `{}` |", cell(takes), cell(meaning), cell(own));
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_guide_fits_a_terminal_and_the_table_has_a_line_a_key() {
        let guide = guide();
        let longest = guide.lines().max_by_key(|line| line.len()).unwrap();
        assert!(longest.len() <= 106, "{longest}");
        let keys: usize = SECTIONS.iter().map(|section| section.keys.len()).sum();
        assert_eq!(markdown().lines().count(), 2 + keys);
        assert!(markdown().contains("separator = \"\\|\""), "a bar would end the cell");
    }
}
