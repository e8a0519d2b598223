//! Which row belongs to which value: the vocabulary that a model's rows are numbered by.

use std::path::Path;
use std::sync::Arc;

use serde_json::Value;

use super::Checkpoint;
use crate::base::{Error, Result};
use crate::data::{About, Numbering, Source, Vocabulary};
use crate::train::vocabulary::digest;

/// How data tell which row of a table a look-up is of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RowsBy<'a> {
    /// By the values of text, which have rows by a vocabulary.
    Vocabulary,
    /// By the values of text, which all have rows by a hash, or as a schema says.
    Hash,
    /// By numbers of rows, which stand for these values, as far as is known.
    Number(&'a Numbering),
}

/// What a command can do in the place of reading data whose rows are those of other values.
#[derive(Debug, Clone, Copy)]
pub struct Instead {
    /// That, in words: "or ...".
    pub otherwise: &'static str,
    /// Whether training begins with the model, whose tables may then grow.
    pub begins: bool,
    /// Whether data whose vocabulary has grown from the model's are taken: whether theirs has is known once they are
    /// open.
    pub may_have_grown: bool,
    /// Whether the command has --no-verify.
    pub may_skip: bool,
}

/// What is known of the rows of a model that a run goes on with, or begins with, which its data need not tell.
#[derive(Debug, Clone, Default)]
pub struct KnownRows {
    /// The vocabulary by which values of text have them, where the data are no text.
    pub vocabulary: Option<Arc<Vocabulary>>,
    /// Which values they stand for.
    pub numbering: Numbering,
    /// Whether those of the data are taken for them because somebody has said so.
    pub taken: bool,
}

impl KnownRows {
    /// The same data with what was known before, and whether somebody's word is all that tells that rows of the data
    /// are the model's.
    pub(in crate::train) fn with(&self, about: &About) -> (About, bool) {
        let is_told = match self.numbering.is_empty() {
            true => !about.numbering.is_empty(),
            false => about.numbering.tells(&self.numbering),
        };
        let about = About {
            numbering: about.numbering.clone().or(&self.numbering),
            vocabulary: about.vocabulary.clone().or_else(|| self.vocabulary.clone()),
            ..about.clone()
        };
        (about, self.taken && !is_told)
    }
}

impl Checkpoint<'_> {
    /// Checks that this vocabulary, read from `path` or not there, is the one that the model was trained with; where
    /// nothing is verified, that there is one.
    ///
    /// # Errors
    /// [`Error::Checkpoint`] when it is another, or missing.
    pub fn check_vocabulary(&self, vocabulary: Option<&Vocabulary>, path: &Path) -> Result<()> {
        let Some(wanted) = self.own_header()?.and_then(|header| header.vocabulary.as_ref()) else { return Ok(()) };
        let path = path.display();
        match vocabulary {
            Some(vocabulary) if !self.verified || digest(vocabulary) == *wanted => Ok(()),
            Some(_) => Err(self.fail(format!(
                "{path} is not the vocabulary that this model was trained with: categories would get other rows; put its own \
                 back"
            ))),
            None => Err(self.fail(format!(
                "{path}, the vocabulary that this model was trained with, is missing: without it categories would get other \
                 rows; put it back"
            ))),
        }
    }

    /// Checks that a run on the data of `source` may begin with these weights: that rows of embeddings are those of
    /// the same values, as far as the file tells how they are numbered; `numbers` is the [`digest`] of the vocabulary
    /// of the data, if they have one, before they add values to it. `beside` is where the model's is looked for. Where
    /// the file does not tell by which vocabulary its rows are numbered, and none is there: what may be wrong, for
    /// people. Data of another kind are [`Checkpoint::check_rows`]' to refuse.
    ///
    /// # Errors
    /// [`Error::Checkpoint`] when they are not.
    pub fn check_numbers(
        &self,
        numbers: Option<&str>,
        source: &dyn Source,
        beside: &Path,
        instead: Instead,
    ) -> Result<Option<String>> {
        let About { schema_text, numbering, .. } = source.about();
        let Some(numbers) = numbers else {
            // That no column of a schema is numbered is known once it is read.
            if schema_text.is_some() && self.verified {
                self.check_rows(RowsBy::Hash, "", instead)?;
            }
            return self.doubt_of_blocks(numbering);
        };
        let place = beside.display();
        match self.numbered_by() {
            Some(wanted) if numbers != wanted => Err(self.fail(format!(
                "values of these data get other rows than this model has for them: put the vocabulary that it was trained with \
                 at {place}, or train from the start"
            ))),
            None if beside.exists() && self.exported("vocabulary").is_some_and(|told| told.is_null()) => Ok(Some(format!(
                "{} was trained without a vocabulary, but values of these data are numbered by {place}, which may give them rows \
                 of other values: remove that unless it is this model's",
                self.path.display()
            ))),
            None if !beside.exists() => Ok(Some(format!(
                "{} does not tell which value each of its rows belongs to, and there is no {place}: values of these data \
                 are numbered as they appear in them, which may give them rows of other values; if the model was trained by \
                 another vocabulary, put that there",
                self.path.display()
            ))),
            Some(_) | None => Ok(None),
        }
    }

    /// Checks, before they are read, that data at `path` have the rows that the model has: those of values of text, by
    /// a vocabulary, or numbers that stand for the values that they stood for where it was trained, as far as both
    /// tell; a model of text takes no others, unless it has before. Where nothing is to be verified, nobody asks.
    ///
    /// # Errors
    /// [`Error::Checkpoint`] when they are not, with what to do `instead`.
    pub fn check_rows(&self, by: RowsBy<'_>, path: &str, instead: Instead) -> Result<()> {
        let Instead { otherwise, begins, may_have_grown, may_skip } = instead;
        let (known, by_vocabulary) = (self.sound_numbering()?, self.numbered_by().is_some());
        let is_told = match by {
            RowsBy::Number(numbers) => {
                if !may_have_grown && let Some(column) = numbers.difference(&known) {
                    return Err(self.other_values(column, begins));
                }
                !by_vocabulary || numbers.tells(&known)
            }
            // Who has taken both kinds, unverified, knows what they are.
            RowsBy::Vocabulary => by_vocabulary || known.is_empty(),
            RowsBy::Hash => !by_vocabulary && known.is_empty(),
        };
        // By that word numbers are rows; of what a hash or another vocabulary makes of text it says nothing.
        if is_told || (matches!(by, RowsBy::Number(_)) && self.rows_are_taken()) {
            return Ok(());
        }
        Err(self.fail(match by {
            RowsBy::Number(_) => {
                let skips = if may_skip { "; if they are the rows of its vocabulary, --no-verify takes them" } else { "" };
                format!(
                    "its rows are those of values of its vocabulary, and {path} has numbers of rows, which may be those of \
                     other values: name the text that these were made of, {otherwise}{skips}"
                )
            }
            RowsBy::Hash if by_vocabulary => format!(
                "its rows are those of values of its vocabulary, and values of these data get theirs by a hash: give them the \
                 same --vocab as where it was trained and columns without `rows`, {otherwise}"
            ),
            RowsBy::Hash | RowsBy::Vocabulary => {
                let growing = match (begins, self.sound_header()) {
                    (true, Some(_)) => ", and --grow, by which new values get rows,",
                    (true, None) => {
                        " (where values are new, with --grow, and begin with the run's own directory, --init RUN),"
                    }
                    (false, _) => ",",
                };
                format!(
                    "its rows are those of values of the vocabulary of {}, and values of text would get others: make blocks of \
                     the text with `octorec preprocess` and its --vocabulary DIR, which names that data set{growing} and name \
                     these, {otherwise}",
                    self.trained_path().unwrap_or("the data set that it was trained on")
                )
            }
        }))
    }

    /// The same file, whose rows those of data are `taken` for without a comparison, or compared as before.
    #[must_use]
    pub(in crate::train) const fn taking_rows(mut self, taken: bool) -> Self {
        self.compares_rows &= !taken;
        self
    }

    /// Whether it was trained on data of which nothing tells that their rows are its own, since somebody has said so.
    pub(in crate::train) fn rows_are_taken(&self) -> bool {
        match self.sound_header() {
            Some(header) => header.rows_taken,
            None => self.exported("rows_taken") == Some(Value::Bool(true)),
        }
    }

    /// What is known of its rows; `vocabulary` is its own, where the data that follow have none, and `taken` whether
    /// theirs are taken for its own now. Of a damaged header nothing: the weights are as good.
    ///
    /// # Errors
    /// When what a state dict says of them is damaged.
    pub fn known_rows(&self, vocabulary: Option<Vocabulary>, taken: bool) -> Result<KnownRows> {
        let taken = taken || self.rows_are_taken();
        Ok(KnownRows { vocabulary: vocabulary.map(Arc::new), numbering: self.sound_numbering()?, taken })
    }

    /// What may be wrong with blocks that tell which values their rows belong to, where nothing in the file does.
    fn doubt_of_blocks(&self, numbering: &Numbering) -> Result<Option<String>> {
        let is_told = !matches!(self.header, Ok(None)) || !self.sound_numbering()?.is_empty();
        Ok((!is_told && !numbering.is_empty()).then(|| {
            format!(
                "{} does not tell which value each of its rows belongs to: right only if the model was trained by the \
                 vocabulary of these data",
                self.path.display()
            )
        }))
    }

    /// The data that it was trained on, where the file tells it.
    fn trained_path(&self) -> Option<&str> {
        Some(&*self.sound_header()?.config.data.path)
    }

    /// Checks that row numbers of stored data stand for the values that they stood for where the model was trained, as
    /// far as both tell, or, where the data have been compared with its vocabulary, for these and new ones; not where
    /// nothing is verified. `begins`: training is to begin with the model.
    ///
    /// # Errors
    /// [`Error::Checkpoint`] with the first column of which they do not.
    pub(super) fn check_numbering(&self, source: &dyn Source, begins: bool) -> Result<()> {
        let About { vocabulary, growth, numbering, .. } = source.about();
        // A vocabulary is compared as a whole.
        if !self.compares_rows || vocabulary.is_some() {
            return Ok(());
        }
        let known = self.sound_numbering()?;
        let has_grown = |column: &str| growth.iter().any(|grown| grown.new > 0 && grown.column == column);
        let mut others = numbering.differences(&known);
        others.find(|name| !has_grown(name)).map_or(Ok(()), |column| Err(self.other_values(column, begins)))
    }

    /// That rows of a column of data are those of other values than the model's.
    fn other_values(&self, column: &str, begins: bool) -> Error {
        if self.numbered_by().is_some() {
            return self.fail(format!(
                "its rows are those of values of its vocabulary, and these data have other values in the rows of column {column}: \
                 name the text that they were made of, or data whose values have the numbers of that which it was trained on"
            ));
        }
        let growing = match (begins, self.sound_header()) {
            (true, Some(_)) => "; with --grow new values get rows, and `octorec train --init` goes on with them",
            (true, None) => "; with blocks that have grown by --grow, begin with the run's own directory (--init RUN)",
            (false, _) => "",
        };
        self.fail(format!(
            "the vocabulary of these data is not the vocabulary that this model was trained with: values of column {column} \
             would get other rows; make the data again with `octorec preprocess` and its --vocabulary DIR, which names the \
             data set that it was trained on{} or one that was made by its vocabulary{growing}",
            self.trained_path().map_or_else(String::new, |path| format!(" ({path})"))
        ))
    }

    /// Which values rows stood for where the model was trained, as far as the file tells: a checkpoint, or a state dict
    /// that was exported from one.
    ///
    /// # Errors
    /// As [`Checkpoint::header`], and when what the state dict says of it is damaged.
    pub fn numbering(&self) -> Result<Numbering> {
        match self.own_header()? {
            Some(header) => Ok(header.numbering.clone()),
            None => self.exported("numbering").map_or_else(|| Ok(Numbering::default()), |told| self.told_as(told)),
        }
    }

    /// The same, of a damaged header nothing: the weights are as good.
    fn sound_numbering(&self) -> Result<Numbering> {
        if self.header.is_err() { Ok(Numbering::default()) } else { self.numbering() }
    }

    /// The [`digest`] of the vocabulary that its rows are numbered by, where the file tells it: a checkpoint, or a
    /// state dict that was exported from one.
    #[must_use]
    pub fn numbered_by(&self) -> Option<String> {
        if let Some(header) = self.sound_header() {
            return header.vocabulary.clone();
        }
        self.exported("vocabulary")?.as_str().map(str::to_owned)
    }
}
