//! Guides for users, deeper than the README: `make docs` builds them as pages, `octorec guide PAGE` prints them.

use clap::{Args, ValueEnum};

use super::terminal;
use crate::base::{Result, console};

#[doc = include_str!("guide/data.md")]
pub mod data {}

#[doc = include_str!("guide/ranks.md")]
pub mod ranks {}

#[doc = include_str!("guide/machines.md")]
pub mod machines {}

#[doc = include_str!("guide/models.md")]
pub mod models {}

#[doc = include_str!("guide/precision.md")]
pub mod precision {}

#[doc = include_str!("guide/results.md")]
pub mod results {}

#[doc = include_str!("guide/prediction.md")]
pub mod prediction {}

#[doc = include_str!("guide/search.md")]
pub mod search {}

#[doc = include_str!("guide/serving.md")]
pub mod serving {}

/// Arguments of `octorec guide`.
#[derive(Debug, Args)]
pub struct GuideArgs {
    /// Which page; without it: what there is.
    page: Option<Page>,
}

/// A page.
#[derive(Debug, Clone, Copy, ValueEnum)]
enum Page {
    /// Formats, values and rows, preprocessing.
    Data,
    /// Ranks of one machine: where they are, what they exchange, copies of hot rows.
    Ranks,
    /// Jobs of several machines.
    Machines,
    /// Networks, and your own.
    Models,
    /// bfloat16, instruction sets, the same bits.
    Precision,
    /// What a run's directory and metrics hold; early stopping.
    Results,
    /// What a step would take elsewhere.
    Prediction,
    /// Searching for rates and more.
    Search,
    /// Predictions, export.
    Serving,
}

impl Page {
    const fn text(self) -> &'static str {
        match self {
            Self::Data => include_str!("guide/data.md"),
            Self::Ranks => include_str!("guide/ranks.md"),
            Self::Machines => include_str!("guide/machines.md"),
            Self::Models => include_str!("guide/models.md"),
            Self::Precision => include_str!("guide/precision.md"),
            Self::Results => include_str!("guide/results.md"),
            Self::Prediction => include_str!("guide/prediction.md"),
            Self::Search => include_str!("guide/search.md"),
            Self::Serving => include_str!("guide/serving.md"),
        }
    }
}

impl GuideArgs {
    /// Prints the page, or which pages there are.
    ///
    /// # Errors
    /// When standard output cannot be written.
    pub fn run(&self) -> Result<()> {
        let list = || {
            let about = |page: &Page| {
                page.to_possible_value()
                    .and_then(|value| Some((value.get_name().to_owned(), value.get_help()?.to_string())))
            };
            let lines = Page::value_variants()
                .iter()
                .filter_map(about)
                .map(|(name, about)| format!("octorec guide {name:<11} {about}\n"));
            lines.collect::<String>()
        };
        // What goes to a file or a pipe stays Markdown.
        let shown = |page: Page| match terminal::width() {
            Some(width) => terminal::page(page.text(), width),
            None => page.text().to_owned(),
        };
        console::result(format_args!("{}", self.page.map_or_else(list, shown)))
    }
}
