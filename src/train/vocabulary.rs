//! The vocabulary of a run, in a safetensors file beside its checkpoint: one tensor of values a column, in id order.
//! Values of text are two: their bytes, one value behind the other, and where each ends.
//!
//! It is a file of its own so that the checkpoint keeps exactly the tensors of the reference's state dict.

use std::borrow::Cow;
use std::path::Path;

use safetensors::tensor::{Dtype, SafeTensors};
use twox_hash::XxHash3_64;

use super::tensor_file::{Hashes, REMEDY, TensorFile};
use crate::base::{Error, Result, input};
use crate::data::Vocabulary;

/// The metadata key that says whether unlisted values have a row.
const UNSEEN_ROW: &str = "unseen_row";

enum Column<'a> {
    Words(Cow<'a, [u32]>),
    Bytes(Vec<u8>),
}

impl Column<'_> {
    fn bytes(&self) -> &[u8] {
        match self {
            Self::Words(words) => bytemuck::cast_slice(words),
            Self::Bytes(bytes) => bytes,
        }
    }

    /// Its type, and its elements.
    fn kind(&self) -> (Dtype, usize) {
        match self {
            Self::Words(words) => (Dtype::U32, words.len()),
            Self::Bytes(bytes) => (Dtype::U8, bytes.len()),
        }
    }
}

/// Writes a vocabulary.
///
/// # Errors
/// When the file cannot be written; an older one then stays.
pub fn save_vocabulary(path: &Path, vocabulary: &Vocabulary) -> Result<()> {
    let keys = vocabulary.columns().iter().zip(1..);
    let keys = keys.map(|(keys, n)| (format!("C{n}"), Column::Words(keys.into())));
    let texts = vocabulary.texts().iter().zip(1..).flat_map(|(values, n)| {
        let ends: Vec<u32> = values.iter().scan(0, |end, value| Some(add(end, value.len()))).collect();
        [(format!("T{n}"), Column::Bytes(values.concat())), (format!("T{n}.ends"), Column::Words(ends.into()))]
    });
    let mut columns: Vec<(String, Column<'_>)> = keys.chain(texts).collect();
    columns.sort_by(|(a, first), (b, second)| (second.kind().0, a).cmp(&(first.kind().0, b)));
    let sizes = columns.iter().map(|(name, column)| {
        let (dtype, len) = column.kind();
        (name.clone(), dtype, vec![len], column.bytes().len())
    });
    let mut file = TensorFile::begin(path, (UNSEEN_ROW, vocabulary.unseen_row().to_string()), sizes)?;
    columns.iter().try_for_each(|(_, column)| file.append(column.bytes()))?;
    file.finish().map(|_| ())
}

/// What tells a vocabulary from every other: the XXH3 of all columns, each value by value.
#[must_use]
pub fn digest(vocabulary: &Vocabulary) -> String {
    let add = |digest: u64, bytes: &[u8]| {
        let digest = XxHash3_64::oneshot_with_seed(digest, &(bytes.len() as u64).to_le_bytes());
        XxHash3_64::oneshot_with_seed(digest, bytes)
    };
    let columns = vocabulary.columns().iter();
    let numbers =
        columns.fold(u64::from(vocabulary.unseen_row()), |sum, column| add(sum, bytemuck::cast_slice(column)));
    let column = |sum, values: &Vec<Box<[u8]>>| {
        values.iter().fold(add(sum, &(values.len() as u64).to_le_bytes()), |sum, value| add(sum, value))
    };
    format!("{:016x}", vocabulary.texts().iter().fold(numbers, column))
}

/// Adds to where values end.
fn add(end: &mut u32, bytes: usize) -> u32 {
    *end = u32::try_from(*end as usize + bytes).expect("a column's values in memory are shorter than 4 GiB of text");
    *end
}

/// Reads a vocabulary; if it shall be `verified`, what is read is checked by the hashes that the file carries. (Files
/// of versions that wrote none are known by their checkpoints.)
///
/// # Errors
/// When the file cannot be read or is damaged.
pub fn load_vocabulary(path: &Path, verified: bool) -> Result<Vocabulary> {
    let damaged = |reason: String| Error::bad_file(path, format!("damaged vocabulary: {reason}"));
    let bytes = input::read(path)?;
    let (_, header) = SafeTensors::read_metadata(&bytes).map_err(|error| damaged(error.to_string()))?;
    let unseen_row = header.metadata().as_ref().and_then(|entries| entries.get(UNSEEN_ROW));
    let unseen_row = unseen_row.is_some_and(|text| text == "true");
    let tensors = SafeTensors::deserialize(&bytes).map_err(|error| damaged(error.to_string()))?;
    if verified && let Some(hashes) = Hashes::read(&bytes, &header).map_err(damaged)? {
        let unsound = tensors.iter().find(|(name, tensor)| !hashes.check(name, tensor.data()).found_sound());
        if let Some((name, _)) = unsound {
            return Err(damaged(format!("tensor {name} has another hash: {REMEDY}")));
        }
    }
    let texts = (1..=tensors.len()).map_while(|n| {
        let bytes = tensors.tensor(&format!("T{n}")).ok()?;
        Some((bytes, tensors.tensor(&format!("T{n}.ends"))))
    });
    let texts = texts.map(|(bytes, ends)| {
        let ends = ends.map_err(|error| damaged(error.to_string()))?;
        if ends.dtype() != Dtype::U32 || bytes.dtype() != Dtype::U8 {
            return Err(damaged("values of text are U8, and their ends U32".to_owned()));
        }
        let ends: Vec<u32> = bytemuck::allocation::pod_collect_to_vec(ends.data());
        let starts = [0].into_iter().chain(ends.iter().copied());
        let value = |(start, &end): (u32, &u32)| {
            let value = bytes.data().get(start as usize..end as usize);
            value.map(Box::from).ok_or_else(|| damaged("a value lies beyond its bytes".to_owned()))
        };
        starts.zip(&ends).map(value).collect::<Result<Vec<Box<[u8]>>>>()
    });
    let texts = texts.collect::<Result<Vec<_>>>()?;
    if !texts.is_empty() {
        return Ok(Vocabulary::of_texts(texts).with_unseen_row(unseen_row));
    }
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
            assert_eq!(load_vocabulary(&path, true).unwrap(), vocabulary);
        }
        let value = |text: &str| text.as_bytes().into();
        let texts = vec![vec![value("u1"), value(""), value("Children's")], Vec::new(), vec![value("x")]];
        save_vocabulary(&path, &Vocabulary::of_texts(texts.clone())).unwrap();
        assert_eq!(load_vocabulary(&path, true).unwrap().texts(), texts);
        // Another value, another order, another column, a row more: another vocabulary.
        let of = |columns: &[&[u32]], unseen| {
            let columns = columns.iter().map(|column| column.to_vec()).collect();
            digest(&Vocabulary::from_columns(columns, unseen).unwrap())
        };
        let digests = [
            of(&[&[1, 2], &[3]], false),
            of(&[&[1, 2], &[4]], false),
            of(&[&[2, 1], &[3]], false),
            of(&[&[1], &[2, 3]], false),
            of(&[&[1, 2], &[3]], true),
            digest(&Vocabulary::of_texts(texts.clone())),
            digest(&Vocabulary::of_texts(texts[..2].to_vec())),
        ];
        assert!((1..7).all(|at| !digests[..at].contains(&digests[at])), "{digests:?}");
        assert_eq!(digests[0], of(&[&[1, 2], &[3]], false));
        std::fs::write(&path, b"not a vocabulary").unwrap();
        assert!(load_vocabulary(&path, true).unwrap_err().to_string().contains("damaged vocabulary"));
    }
}
