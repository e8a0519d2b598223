//! The file beside a graph that holds its weights, and whose it is.

use std::path::{Path, PathBuf};

use prost::Message;

use super::proto::{Model, Tensor};
use crate::memory::FileMap;

/// What graphs say of the program that has written them.
pub const PRODUCER: &str = "octorec";

/// Who has left a file beside a graph.
#[derive(Debug, PartialEq, Eq)]
pub enum Owner {
    /// octorec, with the graph that is there: all of it is that one's weights.
    Octorec,
    /// Another program, with the graph that is there, or somebody who has changed it since.
    Other,
    /// Nobody knows: no graph that is there has its weights in it.
    Unknown,
}

/// The file beside a graph that holds its weights.
#[must_use]
pub fn data_path(path: &Path) -> PathBuf {
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(".data");
    path.with_file_name(name)
}

/// Whose the file is that lies beside `path`, where that of a graph's weights would; nothing where there is none, or
/// nothing in it.
pub fn owner_of(path: &Path) -> Option<Owner> {
    let beside = data_path(path);
    let bytes = std::fs::metadata(&beside).ok().map(|found| found.len()).filter(|bytes| *bytes > 0)?;
    let file = if path.is_file() { FileMap::open(path).ok() } else { None };
    let Some(model) = file.and_then(|file| Model::decode(&file[..]).ok()) else { return Some(Owner::Unknown) };
    let name = beside.file_name().unwrap_or_default().to_string_lossy();
    let tensors = model.graph.iter().flat_map(|graph| &graph.initializer);
    let end = tensors.filter_map(|tensor| end_in(tensor, &name)).max();
    Some(match end {
        None => Owner::Unknown,
        Some(end) if end == bytes && model.producer_name.as_deref() == Some(PRODUCER) => Owner::Octorec,
        Some(_) => Owner::Other,
    })
}

/// Where a tensor ends in the file of this name, if it lies there.
fn end_in(tensor: &Tensor, name: &str) -> Option<u64> {
    let entry = |key: &str| {
        let entry = tensor.external_data.iter().find(|entry| entry.key.as_deref() == Some(key))?;
        entry.value.as_deref()
    };
    let number = |key: &str| entry(key).and_then(|text| text.parse::<u64>().ok()).unwrap_or(0);
    (entry("location")? == name).then(|| number("offset").saturating_add(number("length")))
}
