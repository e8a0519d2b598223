//! What is said of a warm-up that takes all of a run, whose rates then never have their full height.

use super::TrainArgs;
use super::prepare::steps_of;
use crate::base::config::{Layers, TrainConfig};
use crate::base::console::note;
use crate::base::units::{Count, Many};

impl TrainArgs {
    /// Warns of warm-ups that the user asks for, and that the run, of so many samples, ends before; those of a preset
    /// are for longer runs.
    pub(super) fn warn_of_long_warm_up(&self, layers: &Layers, train: &TrainConfig, samples: Option<u64>) {
        let Some(steps) = steps_of(train, samples) else { return };
        let asked = asked_warm_ups(train, |key| self.keys.ask_for(key, layers));
        long_warm_ups(train, "the run", steps, asked).iter().for_each(|told| note!("warning: {told}"));
    }
}

/// Whether somebody asks for the warm-up of layers, and for that of rows, which follow where they have no key of their
/// own.
pub(in crate::cli) fn asked_warm_ups(train: &TrainConfig, asks_for: impl Fn(&str) -> bool) -> [bool; 2] {
    let own = train.warmup_steps_rows.given().is_some();
    ["train.warmup_steps", if own { "train.warmup_steps_rows" } else { "train.warmup_steps" }].map(asks_for)
}

/// What is to be said of the rates of layers and of rows, if somebody has asked for their warm-up, that take all of so
/// many steps to rise; `whose` tells whether these are a run's or a trial's.
pub(in crate::cli) fn long_warm_ups(
    train: &TrainConfig,
    whose: &str,
    steps: u64,
    [of_layers, of_rows]: [bool; 2],
) -> Vec<String> {
    let [[layers, ..], [rows, ..]] = train.courses();
    // One step of warm-up is none: the first one has the whole rate.
    let is_long = |warm_up: u64| warm_up > 1 && warm_up >= steps;
    let [layers_long, rows_long] = [of_layers && is_long(layers), of_rows && is_long(rows)];
    let own = train.warmup_steps_rows.given().is_some();
    let each = match (layers_long, rows_long) {
        (true, true) if !own => vec![("the rate", "train.warmup_steps", layers)],
        _ => {
            let key_of_rows = if own { "train.warmup_steps_rows" } else { "train.warmup_steps" };
            [
                (layers_long, ("the rate of layers", "train.warmup_steps", layers)),
                (rows_long, ("the rate of rows", key_of_rows, rows)),
            ]
            .into_iter()
            .filter_map(|(is_long, told)| is_long.then_some(told))
            .collect()
        }
    };
    let within =
        if steps > 1 { format!(", and a number below {} ends it within {whose}", Count(steps)) } else { String::new() };
    let told = |(rate, key, warm_up): (&str, &str, u64)| {
        let (warm_up, steps) = (Count(warm_up), Many(steps, "step"));
        format!(
            "{rate} rises until step {warm_up}, and {whose} has {steps}, so that all of it is warm-up: --set {key}=0 leaves \
             the warm-up away{within}"
        )
    };
    each.into_iter().map(told).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::config::Setting::Given;

    #[test]
    fn a_warm_up_that_takes_the_whole_run_is_told_with_its_key() {
        let told = |train: &TrainConfig, asked| long_warm_ups(train, "the run", 43, asked);
        let long = |rate: &str, until: &str, key: &str| {
            format!(
                "{rate} rises until step {until}, and the run has 43 steps, so that all of it is warm-up: --set {key}=0 \
                 leaves the warm-up away, and a number below 43 ends it within the run"
            )
        };
        let none = TrainConfig::default();
        assert!(told(&none, [true; 2]).is_empty());
        // The case of the longest one that ends within the run.
        let short = TrainConfig { warmup_steps: 42, ..none.clone() };
        assert!(told(&short, [true; 2]).is_empty());
        let both = TrainConfig { warmup_steps: 1531, ..none.clone() };
        assert_eq!(told(&both, [true; 2]), [long("the rate", "1,531", "train.warmup_steps")]);
        // Of a preset's, nobody is warned.
        assert!(told(&both, [false; 2]).is_empty());
        let rows = TrainConfig { warmup_steps_rows: Given(43), ..short };
        assert_eq!(told(&rows, [true; 2]), [long("the rate of rows", "43", "train.warmup_steps_rows")]);
        let layers = TrainConfig { warmup_steps_rows: Given(0), ..both.clone() };
        assert_eq!(told(&layers, [true; 2]), [long("the rate of layers", "1,531", "train.warmup_steps")]);
        let each = TrainConfig { warmup_steps_rows: Given(99), ..both };
        assert_eq!(
            told(&each, [true; 2]),
            [
                long("the rate of layers", "1,531", "train.warmup_steps"),
                long("the rate of rows", "99", "train.warmup_steps_rows"),
            ]
        );
        assert_eq!(told(&each, [false, true]).len(), 1);
        let asked = |train: &TrainConfig, of: &str| asked_warm_ups(train, |key| key == of);
        assert_eq!(asked(&none, "train.warmup_steps"), [true; 2], "rows follow");
        let rows = TrainConfig { warmup_steps_rows: Given(43), ..none.clone() };
        assert_eq!(asked(&rows, "train.warmup_steps"), [true, false], "those of a preset are not asked for");
        assert_eq!(asked(&rows, "train.warmup_steps_rows"), [false, true]);
        // A run of one step has its whole rate from a warm-up of one on.
        let one = |warmup_steps| long_warm_ups(&TrainConfig { warmup_steps, ..none.clone() }, "a trial", 1, [true; 2]);
        assert!(one(1).is_empty() && one(2)[0].ends_with("train.warmup_steps=0 leaves the warm-up away"));
    }
}
