//! Which rank holds which part of which table, what that makes ranks exchange, and how a good division is found.
//!
//! [`scheme`] says what a division is and answers who owns a row; [`traffic`] says what it makes ranks exchange;
//! [`Site`](crate::machine::Site) is the machine as seen from ranks; [`cost`] prices the parts of a [`workload`]
//! there ([`skew`] says how often rows come, [`demand`] finds that out from data) and [`forecast`] spells it out;
//! [`rank_load`] says what each rank does with rows; [`hot`] prices copies of hot rows; [`planner`] looks for the
//! cheapest that fits; [`file`](mod@file) keeps one as TOML; [`report`] prints it.
//!
//! All of it is pure: the same schema, workload and machine give the same plan, bit for bit.

pub mod cost;
pub mod demand;
pub mod file;
pub mod forecast;
pub mod hot;
mod memory;
pub mod planner;
pub mod rank_load;
pub mod report;
pub mod scheme;
pub mod skew;
pub mod traffic;
mod ways;
pub mod workload;

pub use cost::{Model, Score};
pub use forecast::{Cost, RankCost};
pub use hot::{FaePrice, HotPrice, HotPrices};
pub use planner::{Options, Plan, plan};
pub use rank_load::RankLoad;
pub use scheme::{Kind, Part, Rows, Scheme, Shard, Sharding, Split};
pub use workload::{Load, Reserve, TableLoad, Workload};
