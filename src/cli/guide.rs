//! Guides for users, deeper than the README: `make docs` builds them as pages, `octorec guide PAGE` prints them.

use clap::{Args, ValueEnum};

use super::terminal;
use crate::base::{Result, console};

/// The pages, each by its file in `guide`, as a module for `make docs` and as a value of the command's argument.
macro_rules! pages {
    ($($(#[$about:meta])* $Page:ident = $module:ident, $file:literal;)+) => {
        $(#[doc = include_str!($file)] pub mod $module {})+

        /// A page.
        #[derive(Debug, Clone, Copy, ValueEnum)]
        enum Page {
            $($(#[$about])* $Page,)+
        }

        impl Page {
            const fn text(self) -> &'static str {
                match self {
                    $(Self::$Page => include_str!($file),)+
                }
            }
        }
    };
}

pages! {
    /// Formats, values and rows, preprocessing.
    Data = data, "guide/data.md";
    /// Ranks of one machine: where they are, what they exchange, copies of hot rows, the same bits.
    Ranks = ranks, "guide/ranks.md";
    /// Jobs of several machines.
    Machines = machines, "guide/machines.md";
    /// Networks, and your own.
    Models = models, "guide/models.md";
    /// bfloat16, instruction sets, optimizers, learning rates.
    Precision = precision, "guide/precision.md";
    /// What a run's directory and metrics hold; early stopping.
    Results = results, "guide/results.md";
    /// What a step would take elsewhere.
    Prediction = prediction, "guide/prediction.md";
    /// Searching for rates and more.
    Search = search, "guide/search.md";
    /// Predictions, export.
    Serving = serving, "guide/serving.md";
}

/// Arguments of `octorec guide`.
#[derive(Debug, Args)]
pub struct GuideArgs {
    /// Which page; without it: what there is.
    page: Option<Page>,
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
