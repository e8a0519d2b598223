//! A data set of any format, and the [`Source`] that trains on it.
//!
//! Tables of one role follow each other. Training and test samples are those of their roles; where a data set has no test
//! samples, its validation samples stand in, and where it has neither, the last share of the training samples.

use std::path::Path;

use super::{Format, Rows, Table, bad, csv, hugectr, mlperf, nvidia, octorec, parquet, torchrec};
use crate::base::config::DataConfig;
use crate::base::{Error, Result};
use crate::data::blocks::Role;
use crate::data::tsv::first_part;
use crate::data::{Batch, Description, Opening, Reader, Samples, Schema, Source, Split, Vocabulary};

/// A data set on disk.
pub struct Dataset {
    /// The columns of all tables.
    pub description: Description,
    /// Its rows, by what they are for.
    pub members: Vec<Member>,
    /// Whether row numbers were given while the files were opened: other files then have other numbers.
    pub learned: bool,
    /// The values behind row numbers, where they were numbered by first appearance, now or for an earlier model.
    pub vocabulary: Option<Vocabulary>,
}

/// Some rows of a data set.
pub struct Member {
    /// What they are for.
    pub role: Role,
    /// The rows.
    pub table: Box<dyn Table>,
}

impl Dataset {
    pub(super) fn new(description: Description, members: Vec<Member>) -> Self {
        Self { description, members, learned: false, vocabulary: None }
    }

    /// Rows for a purpose.
    #[must_use]
    pub fn rows(&self, role: Role) -> u64 {
        self.members.iter().filter(|member| member.role == role).map(|member| member.table.rows()).sum()
    }

    /// What its rows are for, in the order of [`Role`].
    #[must_use]
    pub fn roles(&self) -> Vec<Role> {
        let all = [Role::Train, Role::Validation, Role::Test];
        all.into_iter().filter(|&role| self.members.iter().any(|member| member.role == role)).collect()
    }
}

/// Opens a data set, in the format that its files tell where none is given.
///
/// # Errors
/// When the format cannot be told, or the files cannot be used.
pub fn open(path: &Path, format: Option<Format>, schema: Option<&Path>) -> Result<Dataset> {
    std::fs::metadata(path).map_err(Error::io(path, "open"))?;
    // Only text is described by a schema of its own.
    let text = schema.map(|_| Format::Csv);
    match format.or(text).or_else(|| Format::detect(path)) {
        Some(Format::Octorec) => octorec::open(path),
        Some(Format::Mlperf) => mlperf::open(path),
        Some(Format::Nvidia) => nvidia::open(path),
        Some(Format::Torchrec) => torchrec::open(path),
        Some(Format::Hugectr) => hugectr::open(path),
        Some(Format::Parquet) => parquet::open(path),
        Some(Format::Csv) => csv::open(path, schema),
        None => {
            let known = Format::ALL.map(Format::name).join(", ");
            Err(bad(path, format!("its files tell no format: name one of {known} with --format")))
        }
    }
}

/// A data set to train on.
pub struct Files {
    description: Description,
    schema: Schema,
    cap: u64,
    longest: Vec<u32>,
    learned: bool,
    vocabulary: Option<Vocabulary>,
    members: Vec<Member>,
    train: Vec<Share>,
    test: Vec<Share>,
}

/// Rows `first..first + rows` of a member.
#[derive(Debug, Clone, Copy)]
struct Share {
    member: usize,
    first: u64,
    rows: u64,
}

impl Files {
    /// Opens `data.path` (and `data.test_path`).
    ///
    /// # Errors
    /// As [`open`], and when test samples have other columns.
    pub fn open(config: &DataConfig) -> Result<Self> {
        Self::open_as(config, &Opening::default())
    }

    /// As [`Files::open`], with the vocabulary of a trained model.
    ///
    /// # Errors
    /// As [`Files::open`].
    pub fn open_as(config: &DataConfig, opening: &Opening<'_>) -> Result<Self> {
        let schema = (!config.schema.is_empty()).then(|| Path::new(&config.schema));
        let path = Path::new(&config.path);
        let dataset = match schema {
            Some(schema) => {
                let known = opening.known.as_ref();
                let choices = csv::Choices { known, unseen: opening.unseen, labels: opening.labels };
                csv::open_as(path, csv::TextSchema::read(schema)?, &choices)?
            }
            None => open(path, None, None)?,
        };
        let mut test = None;
        if !config.test_path.is_empty() {
            let path = Path::new(&config.test_path);
            if dataset.learned {
                let reason = "its values would get other row numbers than the training file's: put both into one file, or \
                              give every categorical column of the schema rows or buckets";
                return Err(bad(path, reason));
            }
            let other = open(path, None, schema)?;
            if other.description != dataset.description {
                let reason = format!("has other columns than {}", config.path);
                return Err(bad(path, reason));
            }
            test = Some(other.members);
        }
        Self::over(dataset, test, config)
    }

    fn over(dataset: Dataset, test: Option<Vec<Member>>, config: &DataConfig) -> Result<Self> {
        let Dataset { description, mut members, learned, vocabulary } = dataset;
        let share = |members: &[Member], from: usize, role: Option<Role>| -> Vec<Share> {
            let wanted = members.iter().enumerate().skip(from);
            wanted
                .filter(|(_, member)| role.is_none_or(|role| role == member.role))
                .map(|(at, member)| Share { member: at, first: 0, rows: member.table.rows() })
                .collect()
        };
        let mut train = share(&members, 0, Some(Role::Train));
        let own = members.len();
        let mut tests = match test {
            Some(others) => {
                members.extend(others);
                share(&members, own, None)
            }
            None => share(&members, 0, Some(Role::Test)),
        };
        if tests.is_empty() {
            tests = share(&members, 0, Some(Role::Validation));
        }
        if tests.is_empty() {
            let total: u64 = train.iter().map(|share| share.rows).sum();
            (train, tests) = cut(&train, first_part(total, config.test_fraction));
        }
        let longest = members
            .iter()
            .map(|member| member.table.longest())
            .reduce(|a, b| a.into_iter().zip(b).map(|(a, b)| a.max(b)).collect());
        Ok(Self {
            schema: description.schema(config.rows_cap),
            cap: config.rows_cap,
            longest: longest.unwrap_or_default(),
            description,
            learned,
            vocabulary,
            members,
            train,
            test: tests,
        })
    }

    fn shares(&self, split: Split) -> &[Share] {
        match split {
            Split::Train => &self.train,
            Split::Test => &self.test,
        }
    }
}

/// The first `rows` rows, and the rest.
fn cut(shares: &[Share], mut rows: u64) -> (Vec<Share>, Vec<Share>) {
    let (mut before, mut after) = (Vec::new(), Vec::new());
    for &share in shares {
        let here = rows.min(share.rows);
        rows -= here;
        before.extend((here > 0).then_some(Share { rows: here, ..share }));
        let rest = share.rows - here;
        after.extend((rest > 0).then_some(Share { first: share.first + here, rows: rest, ..share }));
    }
    (before, after)
}

impl Source for Files {
    fn schema(&self) -> &Schema {
        &self.schema
    }

    fn samples(&self, split: Split) -> Option<u64> {
        Some(self.shares(split).iter().map(|share| share.rows).sum())
    }

    fn numbers_own_values(&self) -> bool {
        self.learned
    }

    fn vocabulary(&self) -> Option<&Vocabulary> {
        self.vocabulary.as_ref()
    }

    fn unseen_values(&self) -> u64 {
        self.members.iter().map(|member| member.table.unseen_values()).sum()
    }

    fn lookups(&self) -> usize {
        self.longest.iter().copied().max().unwrap_or(1).max(1) as usize
    }

    fn open(&self, split: Split, start: u64) -> Result<Box<dyn Reader + '_>> {
        let shares = self.shares(split);
        let total: u64 = shares.iter().map(|share| share.rows).sum();
        if start > total {
            let path = self.members.first().map_or(Path::new("data"), |member| member.table.path());
            return Err(bad(path, format!("sample {start} is asked for, but this part has {total} samples")));
        }
        let (_, left) = cut(shares, start);
        let scratch = Samples::new(&self.description);
        Ok(Box::new(FilesReader {
            files: self,
            left: left.into_iter().collect(),
            open: None,
            scratch,
            starts: Vec::new(),
            closed_bytes: 0,
        }))
    }
}

struct FilesReader<'a> {
    files: &'a Files,
    /// What is still to be read, that of `open` first.
    left: std::collections::VecDeque<Share>,
    open: Option<Box<dyn Rows + 'a>>,
    scratch: Samples,
    /// Where each bag's new rows begin.
    starts: Vec<usize>,
    /// Bytes that were read of shares that are done.
    closed_bytes: u64,
}

impl Reader for FilesReader<'_> {
    fn read(&mut self, batch: &mut Batch, limit: usize) -> Result<usize> {
        let files = self.files;
        self.starts.clear();
        self.starts.extend(batch.bags.iter().map(|bag| bag.rows.len()));
        let mut read = 0;
        while read < limit
            && let Some(share) = self.left.front_mut()
        {
            if self.open.is_none() {
                self.open = Some(files.members[share.member].table.open(share.first)?);
            }
            let rows = self.open.as_mut().expect("opened above");
            let wanted = usize::try_from(share.rows).unwrap_or(usize::MAX).min(limit - read);
            let found = rows.read_batch(batch, wanted, (&mut self.scratch, &files.description))?;
            if found < wanted {
                return Err(shrunk(&*files.members[share.member].table));
            }
            share.first += found as u64;
            share.rows -= found as u64;
            if share.rows == 0 {
                self.close();
            }
            read += found;
        }
        if files.cap > 0 {
            for (bag, &start) in batch.bags.iter_mut().zip(&self.starts) {
                limit_rows(&mut bag.rows[start..], files.cap);
            }
        }
        Ok(read)
    }

    fn skip(&mut self, count: u64) -> Result<u64> {
        let mut skipped = 0;
        while skipped < count
            && let Some(share) = self.left.front_mut()
        {
            let wanted = share.rows.min(count - skipped);
            // A file that is left whole need not be opened.
            if let Some(rows) = &mut self.open
                && wanted < share.rows
                && rows.skip(wanted)? < wanted
            {
                return Err(shrunk(&*self.files.members[share.member].table));
            }
            share.first += wanted;
            share.rows -= wanted;
            if share.rows == 0 {
                self.close();
            }
            skipped += wanted;
        }
        Ok(skipped)
    }

    fn bytes_read(&self) -> u64 {
        self.closed_bytes + self.open.as_ref().map_or(0, |rows| rows.bytes_read())
    }
}

impl FilesReader<'_> {
    /// Ends the first of the shares.
    fn close(&mut self) {
        self.left.pop_front();
        self.closed_bytes += self.open.take().map_or(0, |rows| rows.bytes_read());
    }
}

fn shrunk(table: &dyn Table) -> Error {
    bad(table.path(), "ends before the rows that it had when it was opened")
}

/// Takes row numbers modulo `cap`, as the reference does at load (`max-ind-range`).
fn limit_rows(rows: &mut [u32], cap: u64) {
    let Ok(cap) = u32::try_from(cap) else { return };
    // The maximum first: it vectorises, and often it is all that is needed; a division takes as long as 20 comparisons.
    if rows.iter().copied().max().unwrap_or(0) >= cap {
        rows.iter_mut().for_each(|row| *row %= cap);
    }
}
