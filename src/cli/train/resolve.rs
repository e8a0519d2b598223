//! What a run is to do: its configuration, with what is known of its data, and where an earlier run stopped.

use std::path::PathBuf;

use super::TrainArgs;
use crate::base::config::{Command, Config, Hot, Layers, Vocab};
use crate::base::{Error, Result};
use crate::cli::session::Learned;
use crate::cli::trained::Trained;
use crate::train::{Checkpoint, Progress, load_vocabulary, vocabulary_in};

/// A run that is asked for.
pub(super) struct Resolved {
    pub config: Config,
    /// What is known of the data.
    pub known: Learned,
    /// Where it goes on, if it does.
    pub resumed: Option<Resumed>,
}

/// Where an earlier run stopped.
pub(super) struct Resumed {
    /// Its checkpoint.
    pub path: PathBuf,
    pub progress: Progress,
}

impl TrainArgs {
    /// The run that is asked for: a new one, or an earlier one, as it was but for what the user changes.
    pub(super) fn resolve(&self) -> Result<Resolved> {
        match self.resume.as_deref() {
            Some(path) => self.resolve_resumed(Trained::find(path, self.verify)?),
            None => {
                let config = self.keys.finish_with(self.base.layers()?, Command::Train, self.copies.values()?)?;
                config.train.check_ends_of_warm_up()?;
                let known = self.known_of_init(&config)?;
                Ok(Resolved { config, known, resumed: None })
            }
        }
    }

    fn resolve_resumed(&self, trained: Trained) -> Result<Resolved> {
        let Trained { path, header, mut known } = trained;
        let Some((progress, trained)) = header else {
            let reason = "is not one of octorec's runs: start from its weights with --init".to_owned();
            return Err(Error::Checkpoint { path, reason });
        };
        let layers = Layers::from_config(&trained, "--resume");
        let config = self.keys.finish_with(layers, Command::Train, self.copies.values()?)?;
        if self.keys.origin("data.schema").is_some() {
            known.schema = None;
        }
        let kept = [
            ("data.vocab", config.data.vocab == trained.data.vocab),
            ("data.rows_cap", config.data.rows_cap == trained.data.rows_cap),
        ];
        if let Some((key, _)) = kept.into_iter().find(|(_, same)| !same) {
            let reason =
                "a run keeps the vocabulary that it began with: leave the key away, or begin another with --out";
            return Err(Error::config(format!("{key} with --resume"), reason));
        }
        let hot = |config: &Config| (config.train.hot_set.clone(), config.train.hot_budget);
        let in_turns = [&config, &trained].map(|config| config.train.hot == Hot::Fae);
        if in_turns == [true; 2] && hot(&config) != hot(&trained) {
            let reason =
                "a run whose hot and cold inputs take turns keeps the hot rows that it began with: leave the key away, \
                 or begin another run with --out and --init"
                    .to_owned();
            let origin = "train.hot_set or train.hot_budget with --resume".to_owned();
            return Err(Error::config(origin, reason));
        }
        Ok(Resolved { config, known, resumed: Some(Resumed { path, progress }) })
    }

    /// Where a run begins with a model's weights, dense columns are read by what was learned of them there, and values
    /// of text have the rows that they have there.
    fn known_of_init(&self, config: &Config) -> Result<Learned> {
        let Some(path) = self.init.as_deref().filter(|_| config.data.is_stored()) else {
            return Ok(Learned::default());
        };
        let weights = Checkpoint::open_as(path, false)?;
        // Of a damaged header the weights are as good.
        let known = Learned { scales: weights.scales().ok().flatten(), begins: true, ..Learned::default() };
        let beside = vocabulary_in(path);
        if config.data.vocab == Vocab::Hash || !beside.exists() {
            return Ok(known);
        }
        if let Ok(Some((_, trained))) = weights.header() {
            let (cap, vocab) = (trained.data.rows_cap, trained.data.vocab);
            let kept = [
                ("data.rows_cap", cap == config.data.rows_cap, format!("--rows-cap {cap}")),
                ("data.vocab", vocab == config.data.vocab, format!("--vocab {}", format!("{vocab:?}").to_lowercase())),
            ];
            if let Some((key, _, remedy)) = kept.into_iter().find(|(_, same, _)| !same) {
                let reason = format!(
                    "values of text keep the rows that they have in the model whose weights the run begins with: use {remedy}"
                );
                return Err(Error::config(format!("{key} with --init"), reason));
            }
        }
        let vocabulary = Some(load_vocabulary(&beside, !self.verify.no_verify)?);
        Ok(Learned { vocabulary, ..known })
    }
}
