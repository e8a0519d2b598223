//! Where samples come from: one trait ([`Source`]), one file a format, everything streaming.
//!
//! A source knows its [`Schema`] and hands out [`Reader`]s that start at any sample; a reader appends to a [`Batch`]
//! whose memory is reused. Nothing here knows the model or the machine.

mod batch;
mod criteo;
pub mod dense;
mod schema;
mod source;
pub mod tsv;
pub mod zipf;

pub use batch::{Bag, Batch};
pub use criteo::Criteo;
pub use schema::{Column, Schema};
pub use source::{Reader, Source, Split};
pub use tsv::{Labels, Opening, Tsv, Vocabulary};
