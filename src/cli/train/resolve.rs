//! What a run is to do: its configuration, with what is known of its data, and where an earlier run stopped.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use super::TrainArgs;
use super::init::{FROM_THE_START, INSTEAD, refuse_identifiers};
use crate::base::config::{Command, Config, DataConfig, Hot, Layers, SourceKind, TrainConfig, Vocab};
use crate::base::console::note;
use crate::base::error::shell;
use crate::base::input::read_text;
use crate::base::{Error, Result};
use crate::cli::trained::{Trained, refuse_other_rows};
use crate::data::formats::csv::{TextCategorical, TextDense, TextSchema};
use crate::data::tsv::Layout;
use crate::data::{Labels, Numbering, Opening, Schema, Vocabulary};
use crate::train::{
    Checkpoint, Instead, KnownRows, Progress, ROWS_TAKEN, checkpoint_in, digest, load_vocabulary, resume_in,
    vocabulary_in,
};

/// What can be done about data that a run cannot go on with.
const ANOTHER_RUN: &str = "or begin another run, without --resume";

/// What can be done about data whose rows are others.
const OTHER_ROWS: Instead = Instead { otherwise: ANOTHER_RUN, begins: false, may_have_grown: false, may_skip: true };

/// A run that is asked for.
pub(super) struct Resolved {
    pub config: Config,
    /// How its data are opened, by what an earlier run, or the model of --init, knows of its own.
    pub opening: Opening<'static>,
    /// What is known of the rows of that run, or that model.
    pub rows: KnownRows,
    /// Where it goes on, if it does.
    pub resumed: Option<Resumed>,
    /// The preset and the file that it is asked for with; of an earlier run that goes on as it was, none.
    pub layers: Layers,
}

/// Where an earlier run stopped.
pub(super) struct Resumed {
    /// Its checkpoint.
    pub path: PathBuf,
    pub progress: Progress,
    /// Whether it goes on with another configuration than its checkpoint's.
    pub is_changed: bool,
    /// Whether rows of its data are taken for those of the checkpoint, which says otherwise or nothing.
    pub rows_taken: bool,
}

/// With what a run goes on that was resumed with another configuration than its checkpoint's, and has saved nothing
/// since.
struct Noted {
    config: Config,
    /// As [`Resumed::rows_taken`].
    rows_taken: bool,
}

impl TrainArgs {
    /// The run that is asked for: a new one, or an earlier one, as it was but for what the user changes.
    pub(super) fn resolve(&self) -> Result<Resolved> {
        match self.resume.as_deref() {
            Some(run) => self.resolve_resumed(Trained::find(run, true, self.verify)?, run),
            None => {
                let layers = self.base.layers()?;
                let config = self.keys.finish_with(layers.clone(), Command::Train, self.copies.values()?)?;
                config.train.check_ends_of_warm_up()?;
                let (opening, rows) = self.opening_of_init(&config)?;
                Ok(Resolved { config, opening, rows, resumed: None, layers })
            }
        }
    }

    /// The earlier run in the folder `run`.
    fn resolve_resumed(&self, trained: Trained, run: &Path) -> Result<Resolved> {
        let Trained { path, header, mut opening } = trained;
        let Some((progress, trained)) = header else {
            let reason = "is not one of octorec's runs: start from its weights with --init".to_owned();
            return Err(Error::Checkpoint { path, reason });
        };
        let stored = |config: &Config| Layers::from_config(config, "--resume");
        let noted = noted_in(run)?;
        let before = noted.as_ref().map_or(&trained, |noted| &noted.config);
        let layers = if self.auto_resume { self.base.layers()? } else { Layers::default() };
        let config = if self.auto_resume {
            let asked = self.keys.finish_with(layers.clone(), Command::Train, self.copies.values()?)?;
            refuse_another(&asked, before, run)?;
            stored(before).finish(Command::Train)?
        } else {
            self.keys.finish_with(stored(before), Command::Train, self.copies.values()?)?
        };
        // A run that was begun otherwise goes on as it was.
        if config.train.courses() != before.train.courses() {
            config.train.check_ends_of_warm_up()?;
        }
        self.note_rates_that_stay(&config, &before.train);
        let is_changed = config != stored(&trained).finish(Command::Train)?;
        if noted.is_some() && is_changed {
            tell_of_noted(&config, &trained, run);
        }
        let is_named = self.keys.origin("data.schema").is_some() && !self.auto_resume;
        if is_named || before.data.schema != trained.data.schema {
            opening.schema = None;
            check_names(&Checkpoint::open_as(&path, false)?, &config.data, ANOTHER_RUN)?;
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
        let weights = Checkpoint::open_as(&path, false)?;
        let samples = |data: &DataConfig| [&data.path, &data.test_path, &data.schema].map(String::clone);
        let is_same = |noted: &Noted| samples(&noted.config.data) == samples(&config.data);
        let rows_taken = noted.as_ref().is_some_and(|noted| noted.rows_taken && is_same(noted));
        if rows_taken {
            note!(
                "note: rows of these data are taken for those of the model, as the run was resumed last, with --no-verify ({})",
                resume_in(run).display()
            );
        }
        let rows_taken = rows_taken || self.takes_rows(&weights, &config.data, "--resume", OTHER_ROWS)?;
        let vocabulary = self.kept_vocabulary(&weights, &config.data, &mut opening);
        let rows = weights.known_rows(vocabulary, rows_taken)?;
        // What the optimizers have summed up since is the checkpoint's: no other beginning would move a bit of it.
        let begun = |config: &Config| config.train.initial_accumulator;
        if begun(&config) != begun(before) {
            let reason = format!(
                "the optimizer's sums began at {} and go on as the checkpoint has them: leave the key away, or begin another run \
                 with --out",
                begun(before)
            );
            return Err(Error::config("train.initial_accumulator with --resume", reason));
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
        let resumed = Some(Resumed { path: path.clone(), progress, is_changed, rows_taken });
        Ok(Resolved { config, opening, rows, resumed, layers })
    }

    /// Whether rows of data that are not known to be the model's are taken for them, by --no-verify; `flag` is that by
    /// which training begins or goes on.
    ///
    /// # Errors
    /// Without it, that they are not known to be.
    fn takes_rows(&self, weights: &Checkpoint<'_>, data: &DataConfig, flag: &str, instead: Instead) -> Result<bool> {
        let checked = refuse_identifiers(weights, data, (flag, instead.otherwise))
            .and_then(|()| refuse_other_rows(weights, data, instead));
        if self.verify.no_verify { Ok(checked.is_err()) } else { checked.map(|()| false) }
    }

    /// Takes the model's vocabulary from how data are opened that are no text: they do not need it, and the run keeps
    /// it, for text that comes later. One of other values that lies there is none of the model.
    fn kept_vocabulary(
        &self,
        weights: &Checkpoint<'_>,
        data: &DataConfig,
        opening: &mut Opening<'_>,
    ) -> Option<Vocabulary> {
        if data.source == SourceKind::Tsv || !data.schema.is_empty() {
            return None;
        }
        let wanted = weights.numbered_by()?;
        opening.known.take().filter(|known| self.verify.no_verify || digest(known) == wanted)
    }

    /// Tells those who give a run another rate which of its other rates do not move with it, as they were given before,
    /// be it by the preset.
    fn note_rates_that_stay(&self, config: &Config, before: &TrainConfig) {
        let train = &config.train;
        let Some(origin) = self.keys.origin("train.lr").filter(|_| train.lr != before.lr) else { return };
        let wide = train.lr_wide.given().filter(|_| config.model.wide);
        let rates =
            [("the rows keep", "train.lr_rows", train.lr_rows.given()), ("the wide part keeps", "train.lr_wide", wide)];
        for (keep, key, rate) in rates {
            if let Some(rate) = rate.filter(|_| self.keys.origin(key).is_none()) {
                note!("note: {origin}: {keep} the rate of the run, {key} = {rate}; --set {key}=RATE changes it");
            }
        }
    }

    /// Where a run begins with a model's weights, dense columns are read by what was learned of them there, and values
    /// have the rows that they have there.
    fn opening_of_init(&self, config: &Config) -> Result<(Opening<'static>, KnownRows)> {
        let Some(path) = self.init.as_deref().filter(|_| config.data.is_stored()) else {
            return Ok((Opening::default(), KnownRows::default()));
        };
        let file = checkpoint_in(path);
        let weights = Checkpoint::open_as(&file, false)?;
        check_names(&weights, &config.data, FROM_THE_START)?;
        let rows_taken = self.takes_rows(&weights, &config.data, "--init", INSTEAD)?;
        // Of a damaged header the weights are as good.
        let (scales, numbering) = match weights.header() {
            Ok(Some(_)) => (weights.scales()?, weights.numbering()?),
            // Under which limit its tables have their rows nothing tells: it begins with data that have not grown.
            Ok(None) => (weights.scales()?, Numbering::default()),
            Err(_) => (None, Numbering::default()),
        };
        let trained = weights.header().ok().flatten();
        let columns = trained.map(|(_, trained)| weights.columns(&trained.model)).transpose()?;
        let mut opening = Opening { scales, columns, numbering, begins: true, ..Opening::default() };
        let beside = vocabulary_in(path);
        if config.data.vocab == Vocab::Hash || !beside.exists() {
            return Ok((opening, weights.known_rows(None, rows_taken)?));
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
        opening.known = Some(load_vocabulary(&beside, !self.verify.no_verify)?);
        let vocabulary = self.kept_vocabulary(&weights, &config.data, &mut opening);
        Ok((opening, weights.known_rows(vocabulary, rows_taken)?))
    }
}

/// Checks, before any value is looked at, that text has the columns of the model whose run goes on with it, or with
/// whose weights one begins; `otherwise` is what else can be done about others.
fn check_names(weights: &Checkpoint<'_>, data: &DataConfig, otherwise: &str) -> Result<()> {
    if !data.schema.is_empty() {
        let schema = TextSchema::read(Path::new(&data.schema))?;
        let features = schema.dense.iter().filter(|column| !column.weighs);
        let dense: Vec<_> = features.map(TextDense::name).collect();
        let categorical: Vec<_> = schema.categorical.iter().map(TextCategorical::name).collect();
        return weights.check_names(&dense, &categorical, otherwise);
    }
    if data.source != SourceKind::Tsv {
        return Ok(());
    }
    let layout = Layout::criteo(Labels::default(), data.max_line);
    let names = Schema::criteo(layout.dense, &vec![0; layout.categorical]).names();
    let names: Vec<_> = names.iter().map(|name| &**name).collect();
    let otherwise = format!("these are the columns of Criteo's text, as which {} is read; {otherwise}", data.path);
    weights.check_names(&[], &names, &otherwise)
}

/// What [`OutputDir::resume_with`](crate::train::OutputDir::resume_with) has noted in the folder of a run.
fn noted_in(run: &Path) -> Result<Option<Noted>> {
    let path = resume_in(run);
    if !path.exists() {
        return Ok(None);
    }
    let origin = path.display().to_string();
    let fail = |error: toml::de::Error| {
        let reason = format!("{}; remove this file to go on with the configuration of the checkpoint", error.message());
        Error::config(&origin, reason)
    };
    let text = read_text(&path)?;
    let rest = text.strip_prefix(ROWS_TAKEN);
    let config: Config = toml::from_str(rest.unwrap_or(&text)).map_err(fail)?;
    config.validate(&origin)?;
    Ok(Some(Noted { config, rows_taken: rest.is_some() }))
}

/// The keys in which two configurations differ, each with its value in either: of what the data tell a model, nothing
/// that `one` leaves to them, and no start of a decay that is the same in numbers, as older versions wrote it.
fn differences(one: &Config, other: &Config) -> Vec<(String, [String; 2])> {
    let mut other = other.clone();
    let begun = TrainConfig { decay_start: one.train.decay_start, ..other.train.clone() };
    if begun.courses() == other.train.courses() {
        other.train = begun;
    }
    let (own, model) = (&one.model, &mut other.model);
    (model.rows, model.columns, model.sequences) = (own.rows.clone(), own.columns.clone(), own.sequences.clone());
    match (own.bottom.first(), model.bottom.first_mut()) {
        (Some(0), Some(first)) => *first = 0,
        (Some(0), None) => model.bottom.clone_from(&own.bottom),
        _ => (),
    }
    let [one, other] = [one, &other].map(Config::values);
    let value = |of: &BTreeMap<String, String>, key: &str| of.get(key).cloned().unwrap_or_default();
    let keys = one.keys().chain(other.keys().filter(|key| !one.contains_key(*key)));
    let both = keys.map(|key| (key.clone(), [&one, &other].map(|of| value(of, key))));
    both.filter(|(_, [own, other])| own != other).collect()
}

/// Refuses to continue a run by a command that asks for another one.
fn refuse_another(asked: &Config, before: &Config, run: &Path) -> Result<()> {
    let Some((key, [now, had])) = differences(asked, before).into_iter().next() else { return Ok(()) };
    let shown = run.display();
    let reason = format!(
        "{shown} holds a run with {key} = {had}, and {now} is asked for: go on with its own by --resume {}, give that the \
         flags that shall change, or begin another run with another --out or --force in the place of --auto-resume",
        shell(run)
    );
    Err(Error::config(format!("{key} with --auto-resume"), reason))
}

/// Says with what a run goes on that was resumed before and has saved nothing since.
fn tell_of_noted(config: &Config, trained: &Config, run: &Path) {
    let changed: Vec<_> =
        differences(config, trained).into_iter().map(|(key, [now, _])| format!("{key} = {now}")).collect();
    note!(
        "note: the run goes on as it was resumed last, with {} ({}, until a checkpoint has it; without that file: as the \
         checkpoint was trained)",
        changed.join(", "),
        resume_in(run).display()
    );
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::config::Setting;

    #[test]
    fn a_start_of_decay_that_older_versions_wrote_as_a_number_is_the_same() {
        let asked = |warmup_steps, decay_steps| {
            let train = TrainConfig { warmup_steps, decay_steps, ..TrainConfig::default() };
            Config { train, ..Config::default() }
        };
        let begun = |config: &Config, start| {
            let train = TrainConfig { decay_start: Setting::Given(start), ..config.train.clone() };
            Config { train, ..config.clone() }
        };
        let keys = |one: &Config, other: &Config| -> Vec<String> {
            differences(one, other).into_iter().map(|(key, _)| key).collect()
        };
        for (config, start) in [(asked(0, 0), 0), (asked(5, 0), 0), (asked(5, 20), 5)] {
            assert!(keys(&config, &begun(&config, start)).is_empty(), "{start}");
        }
        assert_eq!(keys(&asked(5, 20), &begun(&asked(5, 20), 9)), ["train.decay_start"]);
        assert_eq!(keys(&asked(4, 20), &begun(&asked(5, 20), 5)), ["train.warmup_steps"]);
    }
}
