//! What users tell rayon.

use std::env;

/// Whether a variable of rayon's says how many threads its pools have.
#[must_use]
pub fn tells_rayon() -> bool {
    ["RAYON_NUM_THREADS", "RAYON_RS_NUM_CPUS"].into_iter().any(|name| env::var_os(name).is_some())
}
