//! Data: sources, formats, preprocessing and loaders, through the library and through the command.

#[path = "../support/auc.rs"]
mod auc;
mod blocks;
#[path = "../support/chance.rs"]
#[allow(dead_code, reason = "the campaign draws moments, too")]
mod chance;
mod criteo;
mod fae;
mod formats;
mod formats_cli;
mod fuzz;
mod hot;
mod integrity;
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
mod sample_weights;
mod sources;
#[path = "../support/spoil.rs"]
#[allow(dead_code, reason = "the campaign tells what it did")]
mod spoil;
mod text;
mod tsv;
mod weights;
