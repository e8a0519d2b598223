//! The vocabulary of a run, in a safetensors file beside its checkpoint: one tensor of values a column, in id order.
//!
//! It is a file of its own so that the checkpoint keeps exactly the tensors of the reference's state dict.

use std::borrow::Cow;
use std::collections::HashMap;
use std::path::Path;

use safetensors::tensor::{Dtype, SafeTensors, View};

use super::checkpoint::write_whole;
use crate::base::{Error, Result};
use crate::data::Vocabulary;
use crate::memory::FileBytes;

/// The metadata key that says whether unlisted values have a row.
const UNSEEN_ROW: &str = "unseen_row";

struct Column<'a>([usize; 1], &'a [u32]);

impl View for Column<'_> {
    fn dtype(&self) -> Dtype {
        Dtype::U32
    }

    fn shape(&self) -> &[usize] {
        &self.0
    }

    fn data(&self) -> Cow<'_, [u8]> {
        bytemuck::cast_slice(self.1).into()
    }

    fn data_len(&self) -> usize {
        size_of_val(self.1)
    }
}

/// Writes a vocabulary.
///
/// # Errors
/// When the file cannot be written; an older one then stays.
pub fn save_vocabulary(path: &Path, vocabulary: &Vocabulary) -> Result<()> {
    let columns = vocabulary.columns().iter().zip(1..).map(|(keys, n)| (format!("C{n}"), Column([keys.len()], keys)));
    let metadata = HashMap::from([(UNSEEN_ROW.to_owned(), vocabulary.unseen_row().to_string())]);
    write_whole(path, |partial| {
        safetensors::serialize_to_file(columns, Some(metadata), partial).map_err(|error| match error {
            safetensors::SafeTensorError::IoError(source) => Error::io(path, "write")(source),
            other => Error::BadFile { path: path.to_owned(), reason: other.to_string() },
        })
    })
}

/// Reads a vocabulary.
///
/// # Errors
/// When the file cannot be read or is damaged.
pub fn load_vocabulary(path: &Path) -> Result<Vocabulary> {
    let damaged =
        |reason: String| Error::BadFile { path: path.to_owned(), reason: format!("damaged vocabulary: {reason}") };
    let bytes = FileBytes::open(path)?;
    let (_, header) = SafeTensors::read_metadata(&bytes).map_err(|error| damaged(error.to_string()))?;
    let unseen_row = header.metadata().as_ref().and_then(|entries| entries.get(UNSEEN_ROW));
    let unseen_row = unseen_row.is_some_and(|text| text == "true");
    let tensors = SafeTensors::deserialize(&bytes).map_err(|error| damaged(error.to_string()))?;
    let columns = (1..=tensors.len()).map(|n| {
        let tensor = tensors.tensor(&format!("C{n}")).map_err(|error| damaged(error.to_string()))?;
        match tensor.dtype() {
            Dtype::U32 => Ok(bytemuck::allocation::pod_collect_to_vec(tensor.data())),
            other => Err(damaged(format!("column C{n} has type {other:?} instead of U32"))),
        }
    });
    Vocabulary::from_columns(columns.collect::<Result<_>>()?, unseen_row)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_vocabulary_survives_its_file() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("vocabulary.safetensors");
        let columns: Vec<Vec<u32>> = (0..26).map(|c| (0..c).map(|i| i * 7919 + c).collect()).collect();
        for unseen_row in [false, true] {
            let vocabulary = Vocabulary::from_columns(columns.clone(), unseen_row).unwrap();
            save_vocabulary(&path, &vocabulary).unwrap();
            assert_eq!(load_vocabulary(&path).unwrap(), vocabulary);
        }
        std::fs::write(&path, b"not a vocabulary").unwrap();
        assert!(load_vocabulary(&path).unwrap_err().to_string().contains("damaged vocabulary"));
    }
}
