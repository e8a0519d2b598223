//! Opens octorec's own data sets: a directory with its manifest, or a single block file.

use std::path::Path;

use super::Dataset;
use super::dataset::Member;
use crate::base::Result;
use crate::data::blocks::{BlockFile, MANIFEST, Manifest, Part, Role};

pub(super) fn open(path: &Path) -> Result<Dataset> {
    if !path.is_dir() && path.file_name().is_none_or(|name| name != MANIFEST) {
        let file = BlockFile::open(path)?;
        let mut dataset =
            Dataset::new(file.description().clone(), vec![Member { role: Role::Train, table: Box::new(file) }]);
        dataset.forget_vocabularies();
        return Ok(dataset);
    }
    let folder = super::folder(path);
    let manifest = Manifest::read(folder)?;
    let open = |part: &Part| Ok(Member { role: part.role, table: Box::new(manifest.open(folder, part)?) });
    let members = manifest.parts.iter().map(open).collect::<Result<_>>()?;
    let named = manifest.schema.categorical.iter().filter(|column| !column.vocabulary.is_empty());
    let vocabularies = named.map(|column| (folder.join(&column.vocabulary), column.rows)).collect();
    Ok(Dataset { vocabularies, ..Dataset::new(manifest.schema.clone(), members) })
}
