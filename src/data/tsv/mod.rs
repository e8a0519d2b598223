//! Criteo's raw layout: label, 13 integers and 26 hexadecimal categories a line, separated by tabs, plain or gzip.
//!
//! The file is streamed and never held. Opening it makes one pass that counts rows and, where ids follow first
//! appearance, learns the vocabulary; reading is a second pass. Follows facebookresearch/dlrm, `data_utils.py`: blank
//! is 0, categories are taken modulo `rows_cap` before they get ids, dense features are ln(x + 1) with negatives as 0.
//! [`Files`](super::formats::Files) splits the rows of the file, and takes those of a second one for tests.

mod arriving;
mod encoding;
mod fault;
mod layout;
mod row;
mod scan;
mod swar;
mod table;
mod walk;

use std::path::Path;
use std::sync::Arc;

pub(super) use arriving::Arriving;
use encoding::{Encoding, cap};
pub use fault::Fault;
pub use layout::Layout;
pub use row::Row;
pub use scan::GoodRows;
pub(super) use scan::refuse_other_lines;
use scan::{Task, scan};
use table::CriteoTable;

use super::formats::{Dataset, Member, Table};
use super::source::first_part;
use super::text::Scanned;
use super::unfinished::refuse_moving;
use super::vocabulary::FirstSeen;
use super::{OnUnseen, Opening, Split, Vocabulary};
use crate::base::config::{DataConfig, OnBadRow, Vocab};
use crate::base::input::Found;
use crate::base::{Error, Result};

/// Opens `data.path` (and `data.test_path`, whose rows are for tests), with one pass over each. `model_rows` are the
/// rows of the model's tables, or nothing where they follow from the data. `data.rows_cap` is in row numbers then.
///
/// # Errors
/// [`Error::Io`], [`Error::BadFile`] and [`Error::BadRow`] for what is wrong with the files, [`Error::Config`] when
/// hashing has no number of rows, [`Error::Interrupted`].
pub(super) fn open(config: &DataConfig, model_rows: &[u64], opening: Opening<'_>) -> Result<Dataset> {
    let layout = Layout::criteo(opening.labels, config.max_line);
    let mut progress = opening.progress;
    let path = Path::new(&config.path);
    let test_path = (!config.test_path.is_empty()).then(|| Path::new(&config.test_path));
    [Some(path), test_path].into_iter().flatten().try_for_each(refuse_moving)?;
    let bytes = Found::at(path)?.bytes();
    let total = bytes + test_path.map(Found::at).transpose()?.map_or(0, |found| found.bytes());
    let mut pass = |path: &Path, task: Task<'_>, done: u64| {
        scan(path, (&layout, config.on_bad_row), task, (done, total), progress.as_mut())
    };
    let cap = cap(config.rows_cap);
    let [held_out, _] = config.held_out();
    let learned = opening.known.is_none() && config.vocab != Vocab::Hash;
    let train = |first: &Scanned| first_part(first.rows, held_out);
    // Values that a model's vocabulary lacks are no fault of samples that it is judged by.
    let of_tests = OnUnseen::EmptyBag;
    let mut is_strict = false;
    let mut growth = Vec::new();

    let (encoding, first, second) = match (opening.known, config.vocab) {
        (None, Vocab::All) => {
            let mut vocabulary = Vocabulary::empty(layout.categorical);
            let mut learn = |path: &Path, done| {
                let vocabulary = &mut vocabulary;
                pass(path, Task::Learn { vocabulary, cap, first_seen: None }, done)
            };
            let first = learn(path, 0)?;
            let second = test_path.map(|path| learn(path, bytes)).transpose()?;
            (Encoding::Vocabulary { vocabulary: Arc::new(vocabulary), cap }, first, second)
        }
        (known, vocab) if opening.begins && known.is_some() || vocab == Vocab::Train && known.is_none() => {
            let grows = known.is_some();
            let vocabulary = known.map(|known| checked(known, &layout)).transpose()?;
            let mut vocabulary = vocabulary.unwrap_or_else(|| Vocabulary::empty(layout.categorical));
            let mut seen = FirstSeen::of(vocabulary.columns().iter().map(Vec::len).collect());
            let task = Task::Learn { vocabulary: &mut vocabulary, cap, first_seen: Some(&mut seen) };
            let first = pass(path, task, 0)?;
            let kept = seen.kept(train(&first));
            vocabulary.keep_first(&kept);
            if grows {
                growth = seen.growth((1..).map(|n| format!("C{n}")), &kept, vocabulary.unseen_row());
            } else {
                vocabulary = vocabulary.with_unseen_row(true);
            }
            let encoding = Encoding::Vocabulary { vocabulary: Arc::new(vocabulary), cap };
            let check = |path: &Path| pass(path, Task::Check(&encoding, of_tests), bytes);
            let second = test_path.map(check).transpose()?;
            (encoding, first, second)
        }
        (known, _) => {
            let encoding = match known {
                Some(known) => Encoding::Vocabulary { vocabulary: Arc::new(checked(known, &layout)?), cap },
                None => Encoding::modulo(layout.categorical, config.rows_cap, model_rows)?,
            };
            // Nothing is learned here. Where a malformed row ends the run anyway, lines need only be counted.
            let task = |unseen| match config.on_bad_row {
                OnBadRow::Fail => Task::Count,
                OnBadRow::Skip => Task::Check(&encoding, unseen),
            };
            // Which samples of a single file are for tests is known when all are counted.
            let mut first = pass(path, task(if held_out > 0.0 { of_tests } else { opening.unseen }), 0)?;
            is_strict = opening.unseen == OnUnseen::Reject && first.first_unseen.is_some_and(|row| row < train(&first));
            if is_strict {
                first = pass(path, task(OnUnseen::Reject), 0)?;
            }
            let second = test_path.map(|path| pass(path, task(of_tests), bytes)).transpose()?;
            (encoding, first, second)
        }
    };
    let strict = match opening.unseen {
        OnUnseen::Reject if is_strict => u64::MAX,
        OnUnseen::Reject => train(&first),
        OnUnseen::EmptyBag => 0,
    };
    let table = |text, strict| CriteoTable::new(text, (layout, config.on_bad_row), (encoding.clone(), strict));
    let mut tables = vec![(Split::Train, table(first, strict))];
    tables.extend(second.map(|second| (Split::Test, table(second, 0))));
    let description = tables[0].1.description().clone();
    let members = tables.into_iter().map(|(role, table)| Member { role, table: Box::new(table) });
    let mut dataset = Dataset::new(description, members.collect());
    dataset.learned = learned;
    dataset.vocabulary = encoding.vocabulary().cloned();
    dataset.growth = growth;
    dataset.blanks = encoding.rows_of_blanks();
    Ok(dataset)
}

fn checked(vocabulary: Vocabulary, layout: &Layout) -> Result<Vocabulary> {
    if vocabulary.columns().len() == layout.categorical {
        return Ok(vocabulary);
    }
    Err(Error::config(
        "vocabulary",
        format!(
            "it has {} columns, the data has {}: it belongs to a model of other data",
            vocabulary.columns().len(),
            layout.categorical
        ),
    ))
}
