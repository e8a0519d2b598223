//! Where a run goes on: where it stopped, as long as it meets the samples there that it left, in the same order; and
//! whether a model's test and validation samples are still those that it was not trained on.

use serde::{Deserialize, Serialize};

use super::{Checkpoint, Header, Progress};
use crate::base::config::{Config, EvalSplit, OnBadRow};
use crate::base::console::note;
use crate::base::units::{Count, Many};
use crate::base::{Error, Result};
use crate::data::formats::csv::TextSchema;
use crate::data::schema::Label;
use crate::data::{About, Source, Split, may_be_same};

/// What tells stored samples for training, tests and validation from others.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TrainedOn {
    #[serde(flatten)]
    train: Stored,
    /// `None` in files of versions that did not say.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    tests: Option<Stored>,
    /// `None` where there are none, and in files of versions that left them unused.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    validation: Option<Stored>,
    /// The column that was the label; `None` of text, and in files of versions that did not say.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) label: Option<Label>,
    /// The column of samples' weights, where they had some; `None` of text, too.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) weight: Option<String>,
}

/// What tells stored samples of a split from others.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Stored {
    samples: u64,
    fingerprint: String,
}

impl Stored {
    fn of(source: &dyn Source, split: Split) -> Option<Self> {
        Some(Self { samples: source.samples(split)?, fingerprint: source.fingerprint(split)? })
    }

    /// Whether they are the same, as far as both tell.
    fn is_same(&self, other: &Self) -> bool {
        self.samples == other.samples && may_be_same(&self.fingerprint, &other.fingerprint)
    }

    /// Whether they may be those of `all` that are not malformed.
    fn may_be_left_of(&self, all: &Self) -> bool {
        may_be_same(&self.fingerprint, &all.fingerprint) && self.samples <= all.samples
    }
}

/// The schema whose text this is.
pub(super) fn schema(text: &str) -> Option<TextSchema> {
    toml::from_str(text).ok()
}

/// The column by whose values samples count: that of the text of a schema, where one describes them.
fn weight(text: Option<&str>, told: Option<&str>) -> Option<String> {
    text.map_or_else(|| told.map(str::to_owned), |text| schema(text)?.weight)
}

impl TrainedOn {
    /// That of a data set; nothing where its samples are generated or arrive.
    #[must_use]
    pub fn of(source: &dyn Source) -> Option<Self> {
        let (train, tests) = (Stored::of(source, Split::Train)?, Stored::of(source, Split::Test));
        let validation = Stored::of(source, Split::Validation).filter(|stored| stored.samples > 0);
        let About { label, weight, schema_text, .. } = source.about();
        // Of described text the schema tells it.
        let weight = weight.clone().filter(|_| schema_text.is_none());
        Some(Self { train, tests, validation, label: label.clone(), weight })
    }

    /// Whether both have the same training samples.
    pub(super) fn trains_like(&self, other: &Self) -> bool {
        self.train.is_same(&other.train)
    }

    /// The samples of a split that are none of training.
    const fn held_out(&self, split: Split) -> Option<&Stored> {
        match split {
            Split::Train => None,
            Split::Test => self.tests.as_ref(),
            Split::Validation => self.validation.as_ref(),
        }
    }

    /// Which samples evaluations of a run on these data are made on.
    fn evaluated(&self, config: &Config) -> EvalSplit {
        if self.validation.is_some() { config.train.eval_split } else { EvalSplit::Test }
    }
}

impl Checkpoint<'_> {
    /// Where a run goes on that stands at `progress`. Within a pass over the samples that is there, and neither they
    /// nor their order may be others than those that the pass began with; behind a pass other samples are the next
    /// one's.
    ///
    /// # Errors
    /// [`Error::Checkpoint`] and [`Error::Config`] when they are others.
    pub(in crate::train) fn goes_on(
        &self,
        progress: Progress,
        config: &Config,
        source: &dyn Source,
    ) -> Result<Progress> {
        let Some(Header { data: had, config: began, .. }) = self.own_header()? else { return Ok(progress) };
        self.check_kinds(config, source, "--resume")?;
        if let Some(other) = self.other_sample_weights(source) {
            return Err(self.fail(format!(
                "{other}: name data that weigh samples as those did (--data; of described text the same weight in --schema), or \
                 start from its weights with --init"
            )));
        }
        let count = had.as_ref().map(|had| had.train.samples).or_else(|| source.samples(Split::Train));
        // Where hot and cold inputs take turns, samples are counted otherwise.
        let ended = progress.shuffled.is_none() && count.is_some_and(|count| progress.sample >= count);
        let within = !ended && progress.step > 0 && (progress.sample > 0 || progress.shuffled.is_some());
        if within {
            keeps_order(began, config)?;
        }
        let now = TrainedOn::of(source);
        let (Some(began_on), Some(now)) = (had, &now) else { return Ok(progress) };
        let (had, now) = (&began_on.train, &now.train);
        if had.is_same(now) {
            return Ok(progress);
        }
        // Fewer rows may move the end of the training samples.
        if leaves_more_out(began, config) && now.may_be_left_of(had) {
            return Ok(Progress { sample: progress.sample.min(now.samples), ..progress });
        }
        if within {
            return Err(self.fail(format!(
                "the run stopped within a pass over {}, and these {} are others, or have changed or grown since: name \
                 the data that it began with (--data, --test-fraction), or start from its weights with --init",
                Many(had.samples, "training sample"),
                now.samples
            )));
        }
        if ended {
            let train = &config.train;
            if train.steps == 0 && progress.epoch + 1 >= train.epochs {
                let reason = format!(
                    "the run has made {}, and these are other training samples than those of the last one: raise it \
                     (--epochs {}) to train on all {} of them, or name the data that it was trained on (--data)",
                    Many(progress.epoch + 1, "epoch"),
                    progress.epoch + 2,
                    Count(now.samples)
                );
                return Err(Error::config("train.epochs with --resume", reason));
            }
            note!("these are other training samples than those of the last pass: the next pass begins with them");
            return Ok(Progress { epoch: progress.epoch + 1, sample: 0, ..progress });
        }
        Ok(progress)
    }

    /// How labels of these data come of another rule than those that the model was trained on, for people; `None` where
    /// they do not, or nobody says.
    #[must_use]
    pub fn other_label(&self, source: &dyn Source) -> Option<String> {
        let had = schema(self.sound_header()?.schema_text.as_deref()?)?.label;
        let has = schema(source.about().schema_text.as_deref()?)?.label;
        let bare = |label: &str| label.split_whitespace().collect::<String>();
        (bare(&had) != bare(&has)).then(|| {
            format!(
                "the model was trained with label = {had:?}, and these data have label = {has:?}: if other rows are positive now, \
                 what it has learned of them holds no more"
            )
        })
    }

    /// How samples of these data count otherwise than those that the model was trained on, for people; `None` where
    /// they do not, or nobody says.
    #[must_use]
    pub fn other_sample_weights(&self, source: &dyn Source) -> Option<String> {
        let Header { schema_text, data, .. } = self.sound_header()?;
        let had = weight(schema_text.as_deref(), data.as_ref().and_then(|data| data.weight.as_deref()));
        let now = source.about();
        let has = weight(now.schema_text.as_deref(), now.weight.as_deref());
        let how = |weight: &Option<String>| match weight {
            Some(column) => format!("by column {column}"),
            None => "all the same".to_owned(),
        };
        (had != has).then(|| {
            format!(
                "samples counted {} where this model was trained, and these data have them count {}",
                how(&had),
                how(&has)
            )
        })
    }

    /// Checks that a split's samples of the model's own data are those of when it was trained: for tests or validation
    /// others of a file that has grown or was cut would be, of which some may have been trained on.
    ///
    /// # Errors
    /// [`Error::Checkpoint`] when they are others.
    pub fn check_tests(&self, config: &Config, source: &dyn Source, split: Split) -> Result<()> {
        let Some(Header { data: Some(had), config: began, .. }) = self.own_header()? else { return Ok(()) };
        let Some(now) = TrainedOn::of(source) else { return Ok(()) };
        let left_out = leaves_more_out(began, config);
        let same = |(had, now): (&Stored, &Stored)| {
            had.is_same(now) || (had.samples, now.samples) == (0, 0) || left_out && now.may_be_left_of(had)
        };
        // Where they are the last of all samples, they follow from those before them.
        let apart = match split {
            Split::Validation => config.data.validation_fraction == 0.0,
            _ => !config.data.test_path.is_empty() || source.about().has_own_tests,
        };
        let train = (!apart || split == Split::Train).then_some((&had.train, &now.train));
        let asked = had.held_out(split).zip(now.held_out(split));
        if train.into_iter().chain(asked).all(same) {
            return Ok(());
        }
        let (name, sample) = (split.name(), format!("{} sample", split.name()));
        let told = |of: &TrainedOn| {
            let asked = of.held_out(split).map(|asked| format!(" and {}", Many(asked.samples, &sample)));
            Many(of.train.samples, "training sample").to_string() + &asked.unwrap_or_default()
        };
        Err(self.fail(format!(
            "its data were {} when it was trained, and these, {} now, are others, or have changed or grown since, so that its \
             {name} samples would be others, too: put its own back, or score data as a whole with --data FILE",
            told(had),
            told(&now)
        )))
    }

    /// As [`Checkpoint::check_tests`], for a run that is to be compared with its evaluations before, now on samples of
    /// `split`: they were made on samples of the same kind.
    ///
    /// # Errors
    /// As [`Checkpoint::check_tests`], also when they were of another kind.
    pub(in crate::train) fn check_evaluated(&self, config: &Config, source: &dyn Source, split: Split) -> Result<()> {
        self.check_tests(config, source, split)?;
        let Some(Header { data: Some(had), config: began, .. }) = self.own_header()? else { return Ok(()) };
        let Some(now) = TrainedOn::of(source) else { return Ok(()) };
        if had.evaluated(began) == now.evaluated(config) {
            return Ok(());
        }
        Err(self.fail("its evaluations were made on samples of another kind (train.eval_split)".to_owned()))
    }
}

/// Whether rows are left out that ended the run before: the remedy that the first malformed row was told with.
fn leaves_more_out(began: &Config, config: &Config) -> bool {
    let skips = |config: &Config| config.data.on_bad_row == OnBadRow::Skip;
    !skips(began) && skips(config)
}

/// Refuses another order of samples than the pass began with.
fn keeps_order(began: &Config, config: &Config) -> Result<()> {
    let shuffles = config.data.shuffle;
    let kept = [
        ("data.shuffle", shuffles == began.data.shuffle),
        ("data.shuffle_window", !shuffles || config.data.shuffle_window == began.data.shuffle_window),
        ("train.seed", !shuffles || config.train.seed == began.train.seed),
    ];
    match kept.into_iter().find(|(_, same)| !same) {
        None => Ok(()),
        Some((key, _)) => {
            let reason = "the run stopped within a pass over the samples, whose order is kept to its end: leave the key \
                          away, or begin another run with --out and --init";
            Err(Error::config(format!("{key} with --resume"), reason))
        }
    }
}
