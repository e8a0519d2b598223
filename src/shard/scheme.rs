//! How embedding tables are divided among ranks, and who owns what.
//!
//! Invariant of [`Sharding`]: every element (row, column) of every table lies in exactly one [`Shard`], or, where the
//! table is replicated, in one shard of each rank. Tables are numbered as in the schema, ranks from 0 without gaps.
//!
//! Sources: whole tables, SC20 (Kalamkar et al. 2020) IV-B; columns ("vertical split") and replicated small tables,
//! Intel's "scale-out" solution for MLPerf DLRM (2021); rows, with partial pooling summed at the receiver, Mudigere et
//! al. 2022 ("Software-hardware co-design for fast and scalable training of DLRMs", 4.2).

use std::fmt;
use std::ops::Range;

use serde::Serialize;

use crate::base::{RankId, TableId, named};

/// Tables with fewer rows are replicated unless somebody says otherwise (Intel's MLPerf solution).
pub const REPLICATE_BELOW: u64 = 2048;

/// Rows of a table at equal distances: `first`, `first + step`, and so on, `count` of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
pub struct Rows {
    /// The first row.
    pub first: u64,
    /// From one row to the next; 1: they are contiguous.
    pub step: u64,
    /// How many.
    pub count: u64,
}

impl Rows {
    /// All rows of a table.
    #[must_use]
    pub const fn all(count: u64) -> Self {
        Self { first: 0, step: 1, count }
    }

    /// Where a table's row lies among these; `None` when it is not one of them.
    #[must_use]
    pub const fn local(&self, row: u64) -> Option<u64> {
        if row < self.first || !(row - self.first).is_multiple_of(self.step) {
            return None;
        }
        let local = (row - self.first) / self.step;
        if local < self.count { Some(local) } else { None }
    }

    /// The places of those that lie in a range of the table's rows: they are consecutive.
    #[must_use]
    pub fn within(&self, rows: &Range<usize>) -> Range<usize> {
        let before = |row: usize| (row as u64).saturating_sub(self.first).div_ceil(self.step).min(self.count) as usize;
        before(rows.start)..before(rows.end)
    }

    /// The table's row at place `local`: the inverse of [`Rows::local`].
    #[must_use]
    pub const fn global(&self, local: u64) -> u64 {
        self.first + local * self.step
    }
}

/// A rank's part of a table: so many columns or rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Part {
    /// Who holds it.
    pub rank: RankId,
    /// Columns or rows, at least 1.
    pub size: u64,
}

/// How one table is divided. A rank may hold several parts of a table.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Scheme {
    /// The whole table on one rank.
    Table(RankId),
    /// All rows of some columns a part, from the first column on; widths add up to the table's.
    Column(Vec<Part>),
    /// Consecutive rows a part, from row 0 on. Each part pools the rows that it has; the receiver adds up.
    RowContiguous(Vec<Part>),
    /// Row `r` on the `r % n`-th of the n ranks, as its row `r / n`. Pooled as `RowContiguous`.
    RowCyclic(Vec<RankId>),
    /// The whole table on every rank; the gradients of rows that a minibatch names reach all ranks as lists.
    Replicated,
}

named! {
    /// The kinds of [`Scheme`] that a user chooses from.
    #[derive(PartialOrd, Ord)]
    pub enum Kind {
        /// Whole tables.
        Table = "table",
        /// Columns.
        Column = "column",
        /// Rows, contiguous or cyclic.
        Row = "row",
        /// A copy on each rank.
        Replicated = "replicated",
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl Scheme {
    /// Its kind.
    #[must_use]
    pub const fn kind(&self) -> Kind {
        match self {
            Self::Table(_) => Kind::Table,
            Self::Column(_) => Kind::Column,
            Self::RowContiguous(_) | Self::RowCyclic(_) => Kind::Row,
            Self::Replicated => Kind::Replicated,
        }
    }

    /// The rank of each part; none for a replicated table.
    #[must_use]
    pub fn ranks(&self) -> Vec<RankId> {
        match self {
            Self::Table(rank) => vec![*rank],
            Self::Column(parts) | Self::RowContiguous(parts) => parts.iter().map(|part| part.rank).collect(),
            Self::RowCyclic(ranks) => ranks.clone(),
            Self::Replicated => Vec::new(),
        }
    }
}

/// What one rank holds of one table: a matrix of `rows.count` x `columns.len()`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Shard {
    /// The table.
    pub table: TableId,
    /// Which part of the table, counted from 0; of a replicated table, the rank's number.
    pub part: usize,
    /// Who holds it.
    pub rank: RankId,
    /// Its rows of the table.
    pub rows: Rows,
    /// Its columns of the table.
    pub columns: Range<usize>,
}

/// Why schemes do not divide tables.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Flaw {
    /// The table that is divided wrongly.
    pub table: TableId,
    /// The part that is wrong, if it is one.
    pub part: Option<usize>,
    /// What is wrong and what would be right.
    pub reason: String,
}

/// All tables, divided among ranks.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Sharding {
    ranks: usize,
    /// Of each table.
    dims: Vec<usize>,
    rows: Vec<u64>,
    schemes: Vec<Scheme>,
    /// By table, then by part.
    shards: Vec<Shard>,
    /// Where each table's shards begin; one more entry than tables.
    #[serde(skip)]
    starts: Vec<usize>,
}

impl Sharding {
    /// Divides tables of `rows` x `dims` among `ranks` ranks, one scheme a table.
    ///
    /// # Errors
    /// The first [`Flaw`]: a rank that does not exist, no parts, an empty part, or sizes that do not add up.
    ///
    /// # Panics
    /// When there are not as many schemes and dimensions as tables, or no rank.
    pub fn new(rows: &[u64], dims: Vec<usize>, ranks: usize, schemes: Vec<Scheme>) -> Result<Self, Flaw> {
        assert_eq!(dims.len(), rows.len(), "one dimension a table");
        assert_eq!(rows.len(), schemes.len(), "one scheme a table");
        assert!(ranks > 0, "at least one rank");
        let (mut shards, mut starts) = (Vec::new(), vec![0]);
        for (((table, scheme), rows), dim) in (0..).map(TableId).zip(&schemes).zip(rows).zip(&dims) {
            check(scheme, *rows, *dim, ranks).map_err(|(part, reason)| Flaw { table, part, reason })?;
            divide(table, scheme, *rows, *dim, ranks, &mut shards);
            starts.push(shards.len());
        }
        Ok(Self { ranks, dims, rows: rows.to_vec(), schemes, shards, starts })
    }

    /// How many ranks.
    #[must_use]
    pub const fn ranks(&self) -> usize {
        self.ranks
    }

    /// How many tables.
    #[must_use]
    pub const fn tables(&self) -> usize {
        self.rows.len()
    }

    /// Columns of a table.
    #[must_use]
    pub fn dim(&self, table: TableId) -> usize {
        self.dims[table.index()]
    }

    /// Rows of a table.
    #[must_use]
    pub fn rows(&self, table: TableId) -> u64 {
        self.rows[table.index()]
    }

    /// How a table is divided.
    #[must_use]
    pub fn scheme(&self, table: TableId) -> &Scheme {
        &self.schemes[table.index()]
    }

    /// All tables' schemes.
    #[must_use]
    pub fn schemes(&self) -> &[Scheme] {
        &self.schemes
    }

    /// All shards, by table and then by part.
    #[must_use]
    pub fn shards(&self) -> &[Shard] {
        &self.shards
    }

    /// The shards of a table, by part.
    #[must_use]
    pub fn of_table(&self, table: TableId) -> &[Shard] {
        &self.shards[self.starts[table.index()]..self.starts[table.index() + 1]]
    }

    /// What a rank holds, by table and then by part.
    pub fn of_rank(&self, rank: RankId) -> impl Iterator<Item = &Shard> {
        self.shards.iter().filter(move |shard| shard.rank == rank)
    }

    /// Shards of tables of which not every rank has a copy, by table and then by part.
    pub fn divided(&self) -> impl Iterator<Item = &Shard> {
        self.shards.iter().filter(|shard| !self.is_replicated(shard.table))
    }

    /// Whether every rank has a copy of a table.
    #[must_use]
    pub fn is_replicated(&self, table: TableId) -> bool {
        self.scheme(table).kind() == Kind::Replicated
    }

    /// Whether the pooled sums of a table's shards are partial: the receiver adds them up instead of joining columns.
    #[must_use]
    pub fn partial(&self, table: TableId) -> bool {
        self.scheme(table).kind() == Kind::Row
    }
}

/// How a table's rows are divided into parts, which are numbered as its shards are.
#[derive(Debug)]
pub enum Split {
    /// Every part gets all look-ups.
    Whole,
    /// Row r goes to part r % n.
    Cyclic(u32),
    /// The first row of each part.
    Contiguous(Vec<u32>),
}

impl Split {
    /// That of a table.
    #[must_use]
    pub fn new(sharding: &Sharding, table: TableId) -> Self {
        match sharding.scheme(table) {
            Scheme::RowCyclic(ranks) => Self::Cyclic(ranks.len() as u32),
            Scheme::RowContiguous(_) => {
                Self::Contiguous(sharding.of_table(table).iter().map(|shard| shard.rows.first as u32).collect())
            }
            Scheme::Table(_) | Scheme::Column(_) | Scheme::Replicated => Self::Whole,
        }
    }

    /// The part that has a row, and the row's number there.
    #[must_use]
    #[inline(always)]
    pub fn part(&self, row: u32) -> (usize, u32) {
        match self {
            Self::Whole => (0, row),
            Self::Cyclic(parts) => ((row % parts) as usize, row / parts),
            Self::Contiguous(firsts) => {
                let part = firsts.partition_point(|first| *first <= row) - 1;
                (part, row - firsts[part])
            }
        }
    }
}

fn check(scheme: &Scheme, rows: u64, dim: usize, ranks: usize) -> Result<(), (Option<usize>, String)> {
    for (part, rank) in scheme.ranks().iter().enumerate() {
        if rank.index() >= ranks {
            return Err((Some(part), format!("{rank} does not exist: ranks are numbered 0 to {}", ranks - 1)));
        }
    }
    let sizes = |parts: &[Part], whole: u64, what: &str| {
        if let Some(part) = parts.iter().position(|part| part.size == 0) {
            return Err((Some(part), format!("{} has no {what}: leave it out", parts[part].rank)));
        }
        let sum = parts.iter().fold(0u64, |sum, part| sum.saturating_add(part.size));
        if sum != whole {
            return Err((None, format!("the parts have {sum} {what} together, the table has {whole}")));
        }
        Ok(())
    };
    match scheme {
        Scheme::Table(_) | Scheme::Replicated => Ok(()),
        Scheme::Column(parts) => sizes(parts, dim as u64, "columns"),
        Scheme::RowContiguous(parts) => sizes(parts, rows, "rows"),
        Scheme::RowCyclic(ranks) if ranks.is_empty() => Err((None, "no rank is named".to_owned())),
        Scheme::RowCyclic(ranks) if ranks.len() as u64 > rows => {
            Err((None, format!("{rows} rows cannot be dealt to {} ranks", ranks.len())))
        }
        Scheme::RowCyclic(_) => Ok(()),
    }
}

/// The shards of a scheme that was checked.
fn divide(table: TableId, scheme: &Scheme, rows: u64, dim: usize, ranks: usize, shards: &mut Vec<Shard>) {
    let mut add = |part: usize, rank: RankId, rows: Rows, columns: Range<usize>| {
        shards.push(Shard { table, part, rank, rows, columns });
    };
    match scheme {
        Scheme::Table(rank) => add(0, *rank, Rows::all(rows), 0..dim),
        Scheme::Replicated => RankId::all(ranks).for_each(|rank| add(rank.index(), rank, Rows::all(rows), 0..dim)),
        Scheme::Column(parts) => {
            let mut first = 0;
            for (number, part) in parts.iter().enumerate() {
                let end = first + part.size as usize;
                add(number, part.rank, Rows::all(rows), first..end);
                first = end;
            }
        }
        Scheme::RowContiguous(parts) => {
            let mut first = 0;
            for (number, part) in parts.iter().enumerate() {
                add(number, part.rank, Rows { first, step: 1, count: part.size }, 0..dim);
                first += part.size;
            }
        }
        Scheme::RowCyclic(ranks) => {
            for (number, rank) in ranks.iter().enumerate() {
                add(number, *rank, cyclic(rows, ranks.len(), number), 0..dim);
            }
        }
    }
}

/// `whole` units in `parts` parts as even as possible, the larger ones first.
pub(super) fn even(whole: u64, parts: usize) -> Vec<u64> {
    let parts = parts as u64;
    (0..parts).map(|part| whole / parts + u64::from(part < whole % parts)).collect()
}

/// The rows of part `part` of `parts` when rows are dealt in turn.
pub(super) const fn cyclic(rows: u64, parts: usize, part: usize) -> Rows {
    let (step, first) = (parts as u64, part as u64);
    Rows { first, step, count: rows.saturating_sub(first).div_ceil(step) }
}
