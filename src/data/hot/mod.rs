//! Hot rows: which rows of which tables take most of the look-ups, told from a sample of the inputs.
//!
//! Source: Adnan, Maboud, Mahajan and Nair, "Accelerating Recommendation System Training by Leveraging Popular Choices"
//! (FAE, VLDB 2022), section 4.1 and 4.2. Its notation: a row is hot at the threshold t when at least t x T of the T
//! accesses to its table are to it; of a sampled share x of the inputs, `H = t x T x x` accesses are asked. Tables of
//! less than [`WHOLE_BELOW`] bytes are hot as a whole. The optimizer looks for the smallest t at which all hot rows fit
//! a budget.
//!
//! | step                                                     | file        |
//! |----------------------------------------------------------|-------------|
//! | sample the inputs                                        | `sample`    |
//! | log accesses a row                                       | `log`       |
//! | estimate, per table and threshold, how many rows are hot | `estimate`  |
//! | choose the threshold                                     | `optimizer` |
//! | judge inputs outside the sample, and collect the rows    | `search`    |
//! | infer how many rows all inputs would make hot            | `rates`     |
//! | hold the rows, a bit each, and tell hot inputs           | `set`       |
//! | number the hot rows of a table, for copies of them       | `slots`     |
//! | tell all hot inputs from all cold ones, in one pass      | `classify`  |
//! | keep which inputs are hot, a bit each                    | `tags`      |
//! | read the hot inputs alone, or the cold ones              | `inputs`    |
//!
//! Three things differ from the paper, all for the sake of what the figures mean. T times x is not computed from the
//! number of inputs but counted: it is the sample's own number of accesses to the table. And inputs that are judged are
//! not those that were counted, since a row that was counted is hotter in the sample than elsewhere. And the size of
//! the rows that the sample makes hot, which is what a budget must hold, is told apart from that of the rows that all
//! inputs would make hot: where few accesses are asked, the former are many more.

mod classify;
mod estimate;
mod inputs;
mod log;
mod optimizer;
mod profile;
mod rates;
mod sample;
mod search;
mod set;
mod slots;
mod tags;

pub use classify::{Classified, Tally, classify};
pub use estimate::{CHUNKS, CONFIDENCE, ENTRIES};
pub use inputs::{Chosen, HotInputs, Inputs};
pub use optimizer::{Interval, Size, Tried};
pub use profile::{Options, Profile, Step, TableProfile, Times, profile, profile_within};
pub use set::HotSet;
pub use slots::{HotSlots, TableSlots};
pub use tags::Tags;

/// Bytes below which a table is hot as a whole.
pub const WHOLE_BELOW: u64 = 1 << 20;
