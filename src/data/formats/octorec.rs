//! Opens octorec's own data sets: a directory with its manifest, or a single block file.

use std::path::{Path, PathBuf};

use super::dataset::Member;
use super::{Dataset, Table};
use crate::base::Result;
use crate::data::blocks::{BlockFile, MANIFEST, Manifest, Part};
use crate::data::{Description, Split};

/// Whether that is a single block file.
pub(super) fn is_block_file(path: &Path) -> bool {
    !path.is_dir() && path.file_name().is_none_or(|name| name != MANIFEST)
}

pub(super) fn open(path: &Path) -> Result<Dataset> {
    let folder = super::folder(path);
    if is_block_file(path) {
        let file = BlockFile::open(path)?;
        let mut description = file.description().clone();
        // It may have left the folder of its data set.
        let away = description.categorical.iter_mut().filter(|column| !folder.join(&column.vocabulary).is_file());
        away.for_each(|column| column.vocabulary.clear());
        let vocabularies = beside(folder, &description);
        let members = vec![Member { role: Split::Train, table: Box::new(file) }];
        return Ok(Dataset { vocabularies, ..Dataset::new(description, members) });
    }
    let manifest = Manifest::read(folder)?;
    let open = |part: &Part| Ok(Member { role: part.role, table: Box::new(manifest.open(folder, part)?) });
    let members = manifest.parts.iter().map(open).collect::<Result<_>>()?;
    let vocabularies = beside(folder, &manifest.schema);
    Ok(Dataset { vocabularies, ..Dataset::new(manifest.schema.clone(), members) })
}

/// The files with the values behind row numbers that a description names.
fn beside(folder: &Path, description: &Description) -> Vec<(PathBuf, u64)> {
    let named = description.categorical.iter().filter(|column| !column.vocabulary.is_empty());
    named.map(|column| (folder.join(&column.vocabulary), column.rows)).collect()
}
