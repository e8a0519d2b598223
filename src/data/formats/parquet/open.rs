//! Opens Parquet files as one data set: whose rows they are, which columns they have, how large their tables must be.

use std::path::{Path, PathBuf};

use parquet::file::statistics::Statistics;
use rayon::prelude::*;

use super::columns::{self, Columns, Kind, Leaf, Merlin, WEIGHTS, is_index};
use super::numbers::{Numbers, Scratch};
use super::read::{NUMBERED, ParquetTable, fault};
use super::{EXTENSION, is_such, refuse_below, role};
use crate::base::console::note;
use crate::base::units::Many;
use crate::base::{Error, Result, input, interrupt};
use crate::data::formats::csv::listed as listed_names;
use crate::data::formats::{Dataset, Like, Member, Reading, SCHEMA, bad, folder, sidecar};
use crate::data::schema::Categorical;
use crate::data::unfinished::name;
use crate::data::{Description, Labels, Split};
use crate::memory::{listed, natural};

/// What NVTabular tells HugeCTR of the columns.
const MERLIN: &str = "_metadata.json";

/// Whether a file's columns are told without a schema for text: by what lies beside it, or since all values are numbers
/// that may be those of rows.
///
/// # Errors
/// When it is no whole Parquet file.
pub fn tells_columns(path: &Path) -> Result<bool> {
    let home = folder(path);
    if path.is_dir() || [SCHEMA, MERLIN].iter().any(|name| home.join(name).exists()) {
        return Ok(true);
    }
    let leaves = ParquetTable::open(path)?.leaves();
    let found = columns::inferred(&leaves, None, Labels::Required)
        .and_then(|told| Columns::find(&leaves, &told, Labels::Required));
    Ok(found.is_ok())
}

/// Opens a file, or a directory of them.
pub(in crate::data::formats) fn open(path: &Path, reading: Reading<'_>) -> Result<Dataset> {
    let parts = parts(path)?;
    let Some((_, first)) = parts.first() else { return Err(bad(path, format!("has no *{EXTENSION}"))) };
    let home = folder(path);
    let mut known = sidecar(home)?;
    if let Some(known) = known.as_mut().filter(|known| known.weight.is_some() && reading.labels != Labels::Required) {
        // Whoever predicts weighs no sample.
        known.dense.pop();
        known.weight = None;
    }
    let merlin = merlin(&[home, folder(first)])?;
    let like = reading.like.filter(|_| known.is_none());
    let mut members = Vec::new();
    let mut description = known.clone().or_else(|| like.map(alike));
    let tells_itself = known.is_none() && reading.columns.is_none() && merlin.is_none();
    // Whether somebody has said how many rows tables have.
    let is_sized = known.is_some() || like.is_some_and(|like| !like.sized_by_values);
    let mut names: Option<Vec<String>> = description.as_ref().map(names_of);
    let mut unread = Vec::new();
    if path.is_dir() && reading.labels == Labels::Required {
        note_unheeded(path, &parts);
    }
    for (role, path) in &parts {
        let fail = |reason: String| bad(path, reason);
        let file = ParquetTable::open(path)?;
        let leaves = file.leaves();
        let wanted = match (&description, reading.columns) {
            (Some(known), _) => known.clone(),
            (None, Some(trained)) => {
                columns::of_trained(&leaves, merlin.as_ref(), trained, reading.labels).map_err(fail)?
            }
            (None, None) => columns::inferred(&leaves, merlin.as_ref(), reading.labels).map_err(fail)?,
        };
        let columns = Columns::find(&leaves, &wanted, reading.labels).map_err(fail)?;
        if tells_itself {
            let is_first = members.is_empty();
            if is_first {
                note_index(path, &leaves);
            }
            let mut here: Vec<String> = leaves.into_iter().map(|leaf| leaf.name).collect();
            if let Some(names) = &names {
                here.retain(|name| !(names.contains(name) || is_first && is_index(name)));
                if !here.is_empty() {
                    unread.push((path, here));
                }
            } else {
                names = Some(here);
            }
        }
        members.push((*role, file.with(columns)));
        description = Some(wanted);
    }
    let left = match like {
        Some(like) => format!("what is not read of {}", like.path.display()),
        None => format!("what {}, the first file, has not", first.display()),
    };
    note_unread(&left, &unread);
    let mut description = description.expect("there is a file");
    let tables: Vec<_> = members.iter().map(|(_, table)| table).collect();
    let sizes = sizes(&tables, &description)?;
    // The tables of a trained model, whose columns were found by their names, have the rows that they have.
    let trained = reading.columns.filter(|trained| known.is_none() && !trained.names.is_empty());
    for (at, (column, size)) in description.categorical.iter_mut().zip(&sizes).enumerate() {
        if !is_sized {
            column.rows = size.largest.map_or(1, |most| most.saturating_add(1));
        }
        if let Some(&rows) = trained.and_then(|trained| trained.rows.get(at)) {
            // Beyond a limit, numbers are taken modulo it.
            column.rows = if rows == reading.cap { rows.max(column.rows) } else { rows };
        }
    }
    let is_of_values = !is_sized && description.categorical.iter().any(|column| column.rows > u64::from(u32::MAX));
    let advice = if is_of_values { NUMBERED } else { "" };
    description.check().map_err(|reason| bad(path, reason + advice))?;
    let longest: Vec<u32> = sizes.iter().map(|size| size.longest).collect();
    let finished = members.into_iter().map(|(role, mut table)| {
        (table.description, table.longest, table.labels) = (description.clone(), longest.clone(), reading.labels);
        Member { role, table: Box::new(table) as _ }
    });
    let members = finished.collect();
    Ok(Dataset { sized_by_values: !is_sized, ..Dataset::new(description, members) })
}

/// Says that columns of row names, as pandas writes them, are left out of files that nobody describes.
fn note_index(path: &Path, leaves: &[Leaf]) {
    for Leaf { name, .. } in leaves.iter().filter(|leaf| is_index(&leaf.name)) {
        note!(
            "note: {}: column {name} is left out, since pandas writes an index so: where it is a feature, name it in a {SCHEMA} \
             beside the files",
            path.display()
        );
    }
}

/// The columns of another data set, whose tables have no rows yet where the values are to tell how many.
fn alike(Like { description, sized_by_values, .. }: Like<'_>) -> Description {
    let mut description = description.clone();
    if sized_by_values {
        description.categorical.iter_mut().for_each(|column| column.rows = 0);
    }
    description
}

/// The names of the columns that are read by a description.
fn names_of(description: &Description) -> Vec<String> {
    let dense = description.dense.iter().map(|column| column.name.clone());
    let categorical = description.categorical.iter().flat_map(|Categorical { name, weighted, .. }| {
        [Some(name.clone()), weighted.then(|| format!("{name}{WEIGHTS}"))].into_iter().flatten()
    });
    [description.label.name.clone()].into_iter().chain(dense).chain(categorical).collect()
}

/// Says which columns of files that nobody describes are `left` out.
fn note_unread(left: &str, unread: &[(&PathBuf, Vec<String>)]) {
    let Some(((path, _), others)) = unread.split_first() else { return };
    let more = match others.len() as u64 {
        0 => String::new(),
        count => format!(" and {}", Many(count, "more file")),
    };
    let mut columns: Vec<&str> = Vec::new();
    for column in unread.iter().flat_map(|(_, columns)| columns) {
        if !columns.contains(&&**column) {
            columns.push(column);
        }
    }
    note!(
        "note: {}{more}: left out {left}: {}; a {SCHEMA} beside the files says which columns are read, \
         where all files have them",
        path.display(),
        columns.join(", ")
    );
}

/// Says which files of a folder are for training though their names begin as those of samples that are held out do.
fn note_unheeded(folder: &Path, parts: &[(Split, PathBuf)]) {
    let begins = |name: &str| ["val", "test"].iter().any(|word| name.to_lowercase().starts_with(word));
    let files = parts.iter().map(|(_, path)| path).filter(|path| path.parent() == Some(folder));
    let names: Vec<_> = files.map(|path| name(path)).filter(|name| begins(name) && role(name).is_none()).collect();
    if !names.is_empty() {
        note!(
            "note: {}: samples for training, too, are those of {}: by a name the words train, val (valid, validation) and test \
             alone, as in test-0{EXTENSION}, tell what else they are for",
            folder.display(),
            listed_names(names.iter().map(|name| &**name))
        );
    }
}

/// The files, those of a role in the order of the numbers in their names.
fn parts(path: &Path) -> Result<Vec<(Split, PathBuf)>> {
    if !path.is_dir() {
        return Ok(vec![(role(&name(path)).unwrap_or(Split::Train), path.to_owned())]);
    }
    let file = |path: &Path| is_such(&name(path)) && path.is_file();
    let mut found = Vec::new();
    for entry in listed(path, "list")? {
        let of = role(&name(&entry));
        if file(&entry) {
            found.push((of.unwrap_or(Split::Train), entry));
        } else if let (Some(role), true) = (of, entry.is_dir()) {
            refuse_below(&entry, |_| false)?;
            found.extend(listed(&entry, "list")?.into_iter().filter(|path| file(path)).map(|path| (role, path)));
        }
    }
    refuse_below(path, |name| role(name).is_some())?;
    // Numbers that are equal, as 1 and 01, stay in the order of the list.
    found.sort_by_cached_key(|(role, path)| (*role as u8, natural(&path.to_string_lossy())));
    Ok(found)
}

fn merlin(folders: &[&Path]) -> Result<Option<Merlin>> {
    let Some(path) = folders.iter().map(|folder| folder.join(MERLIN)).find(|path| path.exists()) else {
        return Ok(None);
    };
    let text = input::read_text(&path)?;
    let found = serde_json::from_str(&text);
    found.map(Some).map_err(|error| bad(&path, format!("does not name labels, conts and cats: {error}")))
}

/// What the values of a categorical column ask for.
#[derive(Debug, Clone, Copy)]
struct Size {
    /// The greatest row number.
    largest: Option<u64>,
    /// The most look-ups of a row.
    longest: u32,
}

impl Size {
    fn or(self, other: Self) -> Self {
        Self { largest: self.largest.max(other.largest), longest: self.longest.max(other.longest) }
    }
}

/// The sizes of all categorical columns: from statistics where they say enough, otherwise by reading the column.
fn sizes(tables: &[&ParquetTable], description: &Description) -> Result<Vec<Size>> {
    let groups: Vec<_> = tables
        .iter()
        .flat_map(|table| (0..table.metadata.num_row_groups()).map(move |group| (*table, group)))
        .collect();
    let sized = |(at, column): (usize, &Categorical)| {
        let of = |&(table, group): &(&ParquetTable, usize)| {
            let leaf = &table.columns().categorical[at].0;
            let stated = stated(table, group, leaf);
            let told = column.rows > 0 || stated.is_some();
            if told && !(leaf.list && column.hots == 0) {
                return Ok(Size { largest: stated, longest: column.hots });
            }
            scanned(table, group, leaf)
        };
        let none = Size { largest: None, longest: column.hots };
        groups.par_iter().map(of).try_reduce(|| none, |a, b| Ok(a.or(b)))
    };
    description.categorical.par_iter().enumerate().map(sized).collect()
}

/// The greatest value of a row group, as its statistics say.
fn stated(table: &ParquetTable, group: usize, leaf: &Leaf) -> Option<u64> {
    let statistics = table.metadata.row_group(group).column(leaf.at).statistics()?;
    let unsigned = leaf.kind == Kind::Whole { unsigned: true };
    if unsigned && statistics.is_min_max_deprecated() {
        // Written as if they had signs.
        return None;
    }
    match statistics {
        Statistics::Int32(found) if unsigned => found.max_opt().map(|&most| u64::from(most as u32)),
        Statistics::Int32(found) => u64::try_from(*found.max_opt()?).ok(),
        Statistics::Int64(found) => u64::try_from(*found.max_opt()?).ok(),
        _ => None,
    }
}

fn scanned(table: &ParquetTable, group: usize, leaf: &Leaf) -> Result<Size> {
    /// Rows that are looked at together.
    const PORTION: usize = 1 << 14;
    let fail = |error| fault(table.path_of(), group, &leaf.name, error);
    let mut numbers = Numbers::open(&table.counted(), &table.metadata, group, leaf, 0).map_err(fail)?;
    let (mut scratch, mut size) = (Scratch::default(), Size { largest: None, longest: u32::from(!leaf.list) });
    let mut left = table.rows_of(group);
    while left > 0 {
        if interrupt::requested() {
            return Err(Error::Interrupted);
        }
        let rows = left.min(PORTION as u64) as usize;
        numbers.read(rows, &mut scratch).map_err(fail)?;
        // What is negative is told with its row when it is read.
        let most = scratch.integers.iter().copied().max();
        size.largest = size.largest.max(most.and_then(|most| u64::try_from(most).ok()));
        let lists = scratch.again.chunk_by(|_, &next| next > 0).map(|list| list.len() as u32);
        size.longest = size.longest.max(lists.max().unwrap_or(0));
        left -= rows as u64;
    }
    Ok(size)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_equal_numbers_come_in_one_order_wherever_they_lie() {
        let folder = tempfile::tempdir().unwrap();
        let name = |zeros: usize| format!("day_{}1.parquet", "0".repeat(zeros));
        // A folder is listed in the order of hashes, or that in which its files were made, or backwards.
        let write = |&zeros: &usize| std::fs::write(folder.path().join(name(zeros)), "").unwrap();
        [2, 0, 4, 1, 5, 3].iter().for_each(write);
        let found: Vec<_> = parts(folder.path()).unwrap().into_iter().map(|(_, path)| path).collect();
        assert_eq!(found, [5, 4, 3, 2, 1, 0].map(|zeros| folder.path().join(name(zeros))));
    }
}
