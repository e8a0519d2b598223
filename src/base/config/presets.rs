//! The models of the papers and of the reference's recipes, as TOML documents beside this file.
//!
//! A new preset is one new file and one line here.

use crate::base::error::{Error, Result};

/// What is trained unless a preset or a file is named, the built-in click log or data of one's own: a recipe that
/// learns tables of any size in one pass.
pub const DEFAULT_PRESET: &str = "demo";

/// Name and document of every preset, in the order in which they are listed to users.
pub const PRESETS: [(&str, &str); 19] = [
    ("demo", include_str!("presets/demo.toml")),
    ("kaggle", include_str!("presets/kaggle.toml")),
    ("terabyte", include_str!("presets/terabyte.toml")),
    ("small", include_str!("presets/small.toml")),
    ("large", include_str!("presets/large.toml")),
    ("mlperf", include_str!("presets/mlperf.toml")),
    ("dcnv2", include_str!("presets/dcnv2.toml")),
    ("dcnv2-small", include_str!("presets/dcnv2-small.toml")),
    ("wide-deep", include_str!("presets/wide-deep.toml")),
    ("mlperf-v1", include_str!("presets/mlperf-v1.toml")),
    ("nvidia-113b", include_str!("presets/nvidia-113b.toml")),
    ("rmc1", include_str!("presets/rmc1.toml")),
    ("rmc2", include_str!("presets/rmc2.toml")),
    ("rmc3", include_str!("presets/rmc3.toml")),
    ("rmc4", include_str!("presets/rmc4.toml")),
    ("syn-m1", include_str!("presets/syn-m1.toml")),
    ("syn-m2", include_str!("presets/syn-m2.toml")),
    ("syn-m3", include_str!("presets/syn-m3.toml")),
    ("syn-m4", include_str!("presets/syn-m4.toml")),
];

/// The TOML document of a preset.
///
/// # Errors
/// When no preset has that name; the error lists all and suggests the nearest.
pub fn preset(name: &str) -> Result<&'static str> {
    let found = PRESETS.iter().find(|(known, _)| *known == name).map(|(_, text)| *text);
    found.ok_or_else(|| Error::unknown("--preset", "preset", name, PRESETS.map(|(known, _)| known)))
}
