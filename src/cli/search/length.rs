//! How many steps a trial has, as far as that is known before the first one, and what does not end within them.

use super::SearchArgs;
use super::journal::JOURNAL;
use super::space::{Domain, Parameter, Space};
use crate::base::Result;
use crate::base::config::Config;
use crate::base::console::note;
use crate::base::units::{Count, Many};
use crate::cli::session::open_data;
use crate::cli::train::steps_of;
use crate::data::{Opening, Split};

/// Whether it is searched over how many steps or samples a trial has, or over one of these keys of `[train]`.
pub fn is_open(space: &Space, others: &[&str]) -> bool {
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

impl SearchArgs {
    /// Warns of warm-ups that take all of a trial, of which no score says anything. The data, whose samples may have to
    /// be counted, are opened only where the space has a warm-up and nobody has set how many steps there are; of a
    /// search that goes on, this was told when it began.
    pub(super) fn warn_of_long_warm_ups(&self, base: &Config, space: &Space) -> Result<()> {
        let Some((most, Parameter { key, place, .. })) = longest_warm_up(space).filter(|(most, _)| *most > 1) else {
            return Ok(());
        };
        if is_open(space, &[]) || self.out.join(JOURNAL).exists() {
            return Ok(());
        }
        let samples = match base.train.steps {
            0 => open_data(&mut base.clone(), Opening::default())?.samples(Split::Train),
            _ => None,
        };
        let Some(steps) = steps_of(&base.train, samples).filter(|steps| most >= *steps) else { return Ok(()) };
        note!(
            "warning: {place}: {key} goes up to {}, and a trial has {}: with {} or more all of it is warm-up, and its score \
             says little; end it below that, or train for longer",
            Count(most),
            Many(steps, "step"),
            Count(steps)
        );
        Ok(())
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
