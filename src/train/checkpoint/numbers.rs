//! Which row belongs to which value: the vocabulary that a model's rows are numbered by.

use std::path::Path;

use super::Checkpoint;
use crate::base::Result;
use crate::data::{About, Numbering, Source, Vocabulary};
use crate::train::export::torch::MODEL;
use crate::train::vocabulary::digest;

impl Checkpoint<'_> {
    /// Checks that this vocabulary, read from `path` or not there, is the one that the model was trained with; where
    /// nothing is verified, that there is one.
    ///
    /// # Errors
    /// [`Error::Checkpoint`](crate::base::Error::Checkpoint) when it is another, or missing.
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

    /// Checks that a run may begin with these weights: that rows of embeddings are those of the same values, where both
    /// number values by a vocabulary; `numbers` is the [`digest`] of that of the data, before they add values to it.
    /// `beside` is where the model's is looked for. Where the file does not tell by which vocabulary its rows are
    /// numbered, and none is there: what may be wrong, for people.
    ///
    /// # Errors
    /// [`Error::Checkpoint`](crate::base::Error::Checkpoint) when they are not.
    pub fn check_numbers(&self, numbers: Option<&str>, beside: &Path) -> Result<Option<String>> {
        let Some(numbers) = numbers else { return Ok(None) };
        let place = beside.display();
        match self.numbered_by() {
            Some(wanted) if numbers != wanted => Err(self.fail(format!(
                "values of these data get other rows than this model has for them: put the vocabulary that it was trained with \
                 at {place}, or train from the start"
            ))),
            None if beside.exists() && self.exported_by().is_some_and(|told| told.is_null()) => Ok(Some(format!(
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

    /// Checks that row numbers of stored data stand for the values that they stood for where the model was trained, as
    /// far as both tell, or, where the data have been compared with its vocabulary, for these and new ones; not where
    /// nothing is verified. `begins`: training is to begin with the model.
    ///
    /// # Errors
    /// [`Error::Checkpoint`](crate::base::Error::Checkpoint) with the first column of which they do not.
    pub(super) fn check_numbering(&self, source: &dyn Source, begins: bool) -> Result<()> {
        // Of a damaged header the weights are as good.
        let Some(header) = self.own_header().ok().flatten().filter(|_| self.verified) else { return Ok(()) };
        let About { growth, numbering, .. } = source.about();
        let has_grown = |column: &str| growth.iter().any(|grown| grown.new > 0 && grown.column == column);
        let mut others = numbering.differences(&header.numbering);
        let Some(column) = others.find(|name| !has_grown(name)) else { return Ok(()) };
        let growing = match begins {
            true => "; with --grow new values get rows, and `octorec train --init` goes on with them",
            false => "",
        };
        Err(self.fail(format!(
            "the vocabulary of these data is not the vocabulary that this model was trained with: values of column {column} \
             would get other rows; make the data again with `octorec preprocess` and its --vocabulary DIR, which names the \
             data set that it was trained on ({}) or one that was made by its vocabulary{growing}",
            header.config.data.path
        )))
    }

    /// Which values the rows of the stored data stood for that the model was trained on, as far as the file tells.
    ///
    /// # Errors
    /// As [`Checkpoint::header`].
    pub fn numbering(&self) -> Result<Numbering> {
        Ok(self.own_header()?.map(|header| header.numbering.clone()).unwrap_or_default())
    }

    /// The [`digest`] of the vocabulary that its rows are numbered by, where the file tells it: a checkpoint, or a
    /// state dict that was exported from one.
    #[must_use]
    pub fn numbered_by(&self) -> Option<String> {
        if let Some(header) = self.sound_header() {
            return header.vocabulary.clone();
        }
        self.exported_by()?.as_str().map(str::to_owned)
    }

    /// What a state dict says of the vocabulary of the model that it was exported from: its [`digest`], or null.
    fn exported_by(&self) -> Option<serde_json::Value> {
        let described = self.metadata.metadata().as_ref()?.get(MODEL)?;
        let mut described: serde_json::Value = serde_json::from_str(described).ok()?;
        described.get_mut("vocabulary").map(serde_json::Value::take)
    }
}
