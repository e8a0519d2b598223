//! Hot rows in a safetensors file: of each table a tensor of its hot rows, rising. How many rows each table has stands
//! in the head, so that a file is taken for no other tables than its own. Where training samples were told apart by
//! them, their tags are a tensor more, a bit a sample, and the head says how many samples there are.

use std::path::Path;

use safetensors::tensor::{Dtype, SafeTensors};

use super::tensor_file::{Hashes, TensorFile};
use crate::base::{Error, Result, input};
use crate::data::Schema;
use crate::data::hot::{HotSet, Tags};

/// The metadata key of the tables, and what its value begins with: what the file is, and its version.
const TABLES: &str = "hot_rows_of";

/// What stands there before the tables.
const VERSION: &str = "1";

/// What remains to be said when damage was found.
const ANEW: &str = "put an undamaged copy of the file in its place, or have the rows told anew with `octorec inspect --hot --out FILE`";

/// A table as the head tells of it.
#[derive(serde::Serialize, serde::Deserialize, PartialEq)]
struct Column {
    name: String,
    rows: u64,
}

/// What the head tells.
#[derive(serde::Serialize, serde::Deserialize)]
struct Head {
    version: String,
    tables: Vec<Column>,
    /// Training samples that have tags.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    samples: Option<u64>,
}

/// The name of the tags' tensor.
const TAGS: &str = "inputs";

/// The name of a table's tensor: tables are numbered, so that no name need be safe.
fn tensor(table: usize) -> String {
    format!("hot.{table}")
}

/// Writes the hot rows of a schema's tables, and the tags of its training samples, if there are some.
///
/// # Errors
/// When the file cannot be written; an older one then stays.
pub fn save_hot(path: &Path, schema: &Schema, set: &HotSet, tags: Option<&Tags>) -> Result<()> {
    let tables = schema.tables.iter().map(|column| Column { name: column.name.clone(), rows: column.rows }).collect();
    let head = Head { version: VERSION.to_owned(), tables, samples: tags.map(Tags::samples) };
    let head = serde_json::to_string(&head).expect("names and numbers are representable in JSON");
    // In the order of safetensors' own writer.
    let mut tables: Vec<usize> = (0..set.tables()).collect();
    tables.sort_by_key(|table| tensor(*table));
    let sizes = tables.iter().map(|&table| {
        let rows = set.rows(table) as usize;
        (tensor(table), Dtype::U32, vec![rows], rows * size_of::<u32>())
    });
    let tagged = tags.map(|tags| (TAGS.to_owned(), Dtype::U64, vec![tags.words().len()], size_of_val(tags.words())));
    // Words of eight bytes come first.
    let mut file = TensorFile::begin(path, (TABLES, head), tagged.into_iter().chain(sizes))?;
    tags.map_or(Ok(()), |tags| file.append(bytemuck::cast_slice(tags.words())))?;
    for table in tables {
        let rows: Vec<u32> = set.iter(table).collect();
        file.append(bytemuck::cast_slice(&rows))?;
    }
    file.finish().map(|_| ())
}

/// Reads the hot rows of a schema's tables, and the tags of its training samples, if they are there.
///
/// # Errors
/// When the file cannot be read, is damaged, or has rows of other tables.
pub fn load_hot(path: &Path, schema: &Schema) -> Result<(HotSet, Option<Tags>)> {
    let bad = |reason: String| Error::bad_file(path, reason);
    let other =
        |error: String| bad(format!("no file of hot rows, as `octorec inspect --hot --out FILE` writes it: {error}"));
    let bytes = input::read(path)?;
    let (_, header) = SafeTensors::read_metadata(&bytes).map_err(|error| other(error.to_string()))?;
    let head = header.metadata().as_ref().and_then(|entries| entries.get(TABLES));
    let head = head.ok_or_else(|| other(format!("its head has no {TABLES}")))?;
    let head: Head = serde_json::from_str(head).map_err(|error| other(error.to_string()))?;
    if head.version != VERSION {
        return Err(bad(format!(
            "version {} of files of hot rows: this octorec reads version {VERSION}",
            head.version
        )));
    }
    if head.tables.len() != schema.tables.len() {
        let (theirs, ours) = (head.tables.len(), schema.tables.len());
        return Err(bad(format!("hot rows of {theirs} tables, and the data has {ours}: name a file of these data")));
    }
    for (table, (theirs, ours)) in head.tables.iter().zip(&schema.tables).enumerate() {
        if (&theirs.name, theirs.rows) != (&ours.name, ours.rows) {
            return Err(bad(format!(
                "table {table} is {} with {} rows, and in the data {} with {}: name a file of these data",
                theirs.name, theirs.rows, ours.name, ours.rows
            )));
        }
    }
    let damaged = |reason: String| bad(format!("damaged hot rows: {reason}"));
    let tensors = SafeTensors::deserialize(&bytes).map_err(|error| damaged(error.to_string()))?;
    let hashes = Hashes::read(&bytes, &header).map_err(damaged)?;
    let read = |name: &str, dtype: Dtype| {
        let found = tensors.tensor(name).map_err(|error| damaged(error.to_string()))?;
        if hashes.as_ref().is_some_and(|hashes| !hashes.check(name, found.data()).found_sound()) {
            return Err(damaged(format!("tensor {name} has another hash: {ANEW}")));
        }
        if found.dtype() != dtype {
            return Err(damaged(format!("tensor {name} has type {:?} instead of {dtype:?}", found.dtype())));
        }
        Ok(found.data().to_vec())
    };
    let mut set = HotSet::new();
    for (table, column) in schema.tables.iter().enumerate() {
        let name = tensor(table);
        let rows: Vec<u32> = bytemuck::allocation::pod_collect_to_vec(&read(&name, Dtype::U32)?);
        if !rows.is_sorted_by(|a, b| a < b) || rows.last().is_some_and(|last| u64::from(*last) >= column.rows) {
            return Err(damaged(format!("the rows of tensor {name} do not rise, or its table lacks the last one")));
        }
        if rows.len() as u64 == column.rows {
            set.push_whole(column.rows);
        } else {
            set.push_some(column.rows, rows.into_iter());
        }
    }
    let tags = |samples| {
        let words = bytemuck::allocation::pod_collect_to_vec(&read(TAGS, Dtype::U64)?);
        Tags::new(samples, words).map_err(damaged)
    };
    Ok((set, head.samples.map(tags).transpose()?))
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use safetensors::tensor::TensorView;

    use super::*;

    fn schema(rows: [u64; 12]) -> Schema {
        Schema::criteo(0, &rows)
    }

    #[test]
    fn hot_rows_survive_their_file_and_go_with_no_other_data() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("hot.safetensors");
        let ours = schema([5, 130, 40, 7, 7, 7, 7, 7, 7, 7, 7, 1000]);
        let mut set = HotSet::new();
        set.push_whole(5);
        set.push_some(130, [129, 3, 64].into_iter());
        set.push_some(40, std::iter::empty());
        (0..8).for_each(|table| set.push_some(7, std::iter::once(table % 7)));
        set.push_some(1000, 3..999);
        let tags = Tags::new(70, vec![0x8000_0000_0000_0001, 5]).unwrap();
        save_hot(&path, &ours, &set, Some(&tags)).unwrap();
        assert!(load_hot(&path, &ours).unwrap() == (set.clone(), Some(tags)));
        save_hot(&path, &ours, &set, None).unwrap();
        assert!(load_hot(&path, &ours).unwrap() == (set, None));

        let fails = |schema: &Schema, reason: &str| {
            let error = load_hot(&path, schema).unwrap_err().to_string();
            assert!(error.contains(reason) && error.contains("hot.safetensors"), "{error}");
        };
        fails(&schema([5, 131, 40, 7, 7, 7, 7, 7, 7, 7, 7, 1000]), "with 130 rows, and in the data");
        fails(&Schema::criteo(0, &[5, 130]), "of 12 tables, and the data has 2");
        let whole = std::fs::read(&path).unwrap();
        let mut wrong = whole.clone();
        *wrong.last_mut().unwrap() ^= 1;
        std::fs::write(&path, &wrong).unwrap();
        fails(&ours, "damaged hot rows");
        std::fs::write(&path, &whole[..whole.len() / 2]).unwrap();
        fails(&ours, "octorec inspect --hot --out FILE");
        let before = b"version\\\":\\\"";
        let at = whole.windows(before.len()).position(|bytes| bytes == before).unwrap();
        let mut wrong = whole;
        wrong[at + before.len()] = b'2';
        std::fs::write(&path, &wrong).unwrap();
        fails(&ours, "version 2 of files of hot rows: this octorec reads version 1");
    }

    #[test]
    fn rows_of_another_programs_file_rise_and_are_the_tables() {
        let folder = tempfile::tempdir().unwrap();
        let (path, ours) = (folder.path().join("hot.safetensors"), Schema::criteo(0, &[5]));
        for rows in [[3_u32, 1], [0, 5]] {
            let tables = vec![Column { name: ours.tables[0].name.clone(), rows: 5 }];
            let head = Head { version: VERSION.to_owned(), tables, samples: None };
            let head = HashMap::from([(TABLES.to_owned(), serde_json::to_string(&head).unwrap())]);
            let rows = TensorView::new(Dtype::U32, vec![2], bytemuck::cast_slice(&rows)).unwrap();
            std::fs::write(&path, safetensors::serialize([(tensor(0), rows)], Some(head)).unwrap()).unwrap();
            let error = load_hot(&path, &ours).unwrap_err().to_string();
            assert!(error.contains("the rows of tensor hot.0 do not rise"), "{error}");
        }
    }
}
