//! What a state dict that octorec exported says of its model, beside the weights: by it a run begins with these as with
//! the checkpoint that they came from.

use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

use super::Checkpoint;
use crate::base::Result;
use crate::data::schema::{Scale, Scales};
use crate::train::export::torch::MODEL;

/// A dense column as an export describes it; what was learned of it stands beside, if something was.
#[derive(Deserialize)]
struct Column {
    name: String,
    #[serde(rename = "read")]
    _read: String,
    #[serde(flatten)]
    learned: Map<String, Value>,
}

impl Checkpoint<'_> {
    /// What the model has learned of its data's dense columns: what a checkpoint says, or a state dict that was
    /// exported from one; `None` in another program's file.
    ///
    /// # Errors
    /// As [`Checkpoint::header`], and when what the state dict says of it is damaged.
    pub fn scales(&self) -> Result<Option<Scales>> {
        if let Some(header) = self.own_header()? {
            return Ok(Some(header.scales.clone()));
        }
        let Some(told) = self.exported("dense_columns") else { return Ok(None) };
        let columns: Vec<Column> = self.told_as(told)?;
        let learned = columns.into_iter().filter(|column| !column.learned.is_empty());
        let scale = |Column { name, learned, .. }| Ok((name, self.told_as::<Scale>(Value::Object(learned))?));
        learned.map(scale).collect::<Result<_>>().map(Some)
    }

    /// What a state dict that was exported says of its model by this key; nothing of another file.
    pub(super) fn exported(&self, key: &str) -> Option<Value> {
        let described = self.metadata.metadata().as_ref()?.get(MODEL)?;
        let mut described: Value = serde_json::from_str(described).ok()?;
        described.get_mut(key).map(Value::take)
    }

    /// The same as what it stands for.
    ///
    /// # Errors
    /// [`Error::Checkpoint`](crate::base::Error::Checkpoint) when it is none.
    pub(super) fn told_as<T: DeserializeOwned>(&self, told: Value) -> Result<T> {
        serde_json::from_value(told).map_err(|error| {
            self.fail(format!(
                "what its metadata {MODEL} say of the model is damaged ({error}): export the model again"
            ))
        })
    }
}
