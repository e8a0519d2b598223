//! Data: sources, formats, preprocessing and loaders, through the library and through the command.

mod blocks;
mod criteo;
mod formats;
mod formats_cli;
mod loader;
mod parquet;
mod portions;
mod preprocess;
mod preprocess_killed;
mod reference;
#[path = "../support/requirement.rs"]
mod requirement;
#[path = "../support/sample.rs"]
mod sample;
mod sources;
mod tsv;
mod weights;
