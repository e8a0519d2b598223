//! A machine and its ranks for the eye: as text (`octorec topo`) and as a picture (`--svg`); and what a schedule puts
//! on its links ([`rounds()`]).
//!
//! All show only what is in [`super::Machine`] and [`super::Placement`]: what is unknown is shown as unknown.

pub(crate) mod canvas;
mod layout;
mod rounds;
mod svg;
mod text;

use crate::base::units::Many;

pub use rounds::{Panel, Picture, direction, rounds};
pub use svg::svg;
pub(crate) use text::table;
pub use text::text;

/// "1 node", "2 nodes".
fn counted(count: usize, word: &str) -> String {
    Many(count as u64, word).to_string()
}

/// A number with at most one digit after the point, or "?" for what is unknown.
fn known(value: Option<f64>) -> String {
    value.map_or_else(|| "?".to_owned(), |value| ((value * 10.0).round() / 10.0).to_string())
}
