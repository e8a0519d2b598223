//! How many steps a trial has, as far as that is known before the first one, and what does not come, or not end, within
//! them.

use super::SearchArgs;
use super::journal::JOURNAL;
use super::space::{Domain, Parameter, Space};
use crate::base::config::{Config, Layers, TrainConfig};
use crate::base::console::note;
use crate::base::units::{Count, Many};
use crate::base::{Error, Result};
use crate::cli::session::open_data;
use crate::cli::train::{asked_warm_ups, late_evaluations, long_warm_ups, steps_of};
use crate::data::{Opening, Split};

/// Whose steps they are.
const TRIAL: &str = "a trial";

/// Whether it is searched over how many steps or samples a trial has, or over one of these keys of `[train]`.
fn is_open(space: &Space, others: &[&str]) -> bool {
    let lengths = ["batch", "accumulate", "steps", "epochs"];
    let is_length = |name: &str| lengths.contains(&name) || others.contains(&name);
    let is_open = |of: &Parameter| of.key.strip_prefix("train.").is_some_and(is_length) || of.key.starts_with("data.");
    space.parameters.iter().any(is_open)
}

/// The longest warm-up that a space has, with its key and its place.
fn longest_warm_up(space: &Space) -> Option<(u64, &Parameter)> {
    let is_warm_up = |of: &&Parameter| ["train.warmup_steps", "train.warmup_steps_rows"].contains(&&*of.key);
    let most = |of: &Parameter| match &of.domain {
        Domain::Range { to, .. } => *to as u64,
        Domain::Choices(values) => {
            let numbers = values.iter().filter_map(|value| u64::try_from(value.as_integer()?).ok());
            numbers.max().unwrap_or(0)
        }
    };
    space.parameters.iter().filter(is_warm_up).map(|of| (most(of), of)).max_by_key(|(most, _)| *most)
}

/// Training samples of a configuration's data; nothing where they never end.
fn training_samples(config: &Config) -> Result<Option<u64>> {
    Ok(open_data(&mut config.clone(), Opening::default())?.samples(Split::Train))
}

impl SearchArgs {
    /// Refuses to stop trials by evaluations of which none comes before their last step, and warns of warm-ups that
    /// take all of a trial, of which no score says anything: those of the space, and those that `layers` or the command
    /// line ask for. Where it is searched over how many steps or samples there are, some trials may be long enough. The
    /// data, whose samples may have to be counted, are opened once, and only where an evaluation may come late, or
    /// where there is a warm-up and nobody has set how many steps there are; of a search that goes on, all this was
    /// told when it began.
    ///
    /// # Errors
    /// [`Error::Config`] that names `--halving`, and what opening the data for that finds.
    pub(super) fn check_length(&self, layers: &Layers, base: &Config, space: &Space) -> Result<()> {
        if is_open(space, &[]) || self.out.join(JOURNAL).exists() {
            return Ok(());
        }
        let train = &base.train;
        // The first of several parts of all epochs ends before the last step, unless there is one step.
        let is_early = match train.steps {
            0 => train.evals_per_epoch.saturating_mul(train.epochs) > 1,
            steps => (1..steps).contains(&train.eval_every),
        };
        let mut known = None;
        if self.halving > 0 && !is_early && !is_open(space, &["eval_every", "evals_per_epoch"]) {
            let counted = training_samples(base)?;
            if let Some(reason) = late_evaluations(train, counted) {
                return Err(Error::config(format!("--halving {}", self.halving), reason));
            }
            known = Some(counted);
        }
        let searched = longest_warm_up(space).filter(|(most, _)| *most > 1);
        let asked = self.asked_warm_ups(layers, train, space);
        // What outlasts not even one step is no warm-up.
        if searched.is_none() && long_warm_ups(train, TRIAL, 1, asked).is_empty() {
            return Ok(());
        }
        let counted = match (train.steps, known) {
            (0, None) => match training_samples(base) {
                Ok(counted) => counted,
                Err(Error::Interrupted) => return Err(Error::Interrupted),
                // The space may have what the data need and the base lacks; a trial that fails says why.
                Err(_) => return Ok(()),
            },
            (_, known) => known.flatten(),
        };
        let Some(steps) = steps_of(train, counted) else { return Ok(()) };
        if let Some((most, Parameter { key, place, .. })) = searched.filter(|(most, _)| *most >= steps) {
            note!(
                "warning: {place}: {key} goes up to {}, and a trial has {}: with {} or more all of it is warm-up, and its score \
                 says little; end it below that, or train for longer",
                Count(most),
                Many(steps, "step"),
                Count(steps)
            );
        }
        long_warm_ups(train, TRIAL, steps, asked).iter().for_each(|told| note!("warning: {told}"));
        Ok(())
    }

    /// Whether the warm-ups of layers and of rows are asked for, and not searched over: those that all trials have.
    fn asked_warm_ups(&self, layers: &Layers, train: &TrainConfig, space: &Space) -> [bool; 2] {
        let is_searched = |key: &str| space.parameters.iter().any(|of| of.key == key);
        let [of_layers, of_rows] = asked_warm_ups(train, |key| !is_searched(key) && self.keys.ask_for(key, layers));
        [of_layers, of_rows && !is_searched("train.warmup_steps_rows")]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_warm_up_is_that_of_a_range_or_of_choices() {
        let longest = |text: &str| {
            let space = Space::parse(&format!("[train]\n{text}"), "space.toml").unwrap();
            longest_warm_up(&space).map(|(most, of)| (most, of.key.clone()))
        };
        let layers = "warmup_steps = { from = 0, to = 2000 }\n";
        assert_eq!(longest(layers), Some((2000, "train.warmup_steps".to_owned())));
        let rows = "warmup_steps_rows = { choices = [5, 3000] }\n";
        assert_eq!(longest(&format!("{layers}{rows}")), Some((3000, "train.warmup_steps_rows".to_owned())));
        assert_eq!(longest("lr = { from = 0.1, to = 1.0 }\n"), None);
    }
}
