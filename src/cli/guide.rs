//! Guides for users, deeper than the README: `make docs` builds them as pages.

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
