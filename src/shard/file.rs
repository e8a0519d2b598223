//! A plan as TOML that a person can edit and pass back.
//!
//! Invariant: reading what was written gives an equal [`Sharding`]. Every complaint names file, line, table and rank.
//!
//! ```toml
//! ranks = 4
//! dim = 16             # columns of every table that does not say its own
//! collective = "ring"  # how dense gradients are reduced; where left out, as the configuration says
//!
//! [[table]]
//! id = 0
//! rows = 1000000
//! scheme = "column"    # table, column, row or replicated
//! ranks = [0, 2]
//! sizes = [12, 4]      # columns of each rank; even where left out
//!
//! [[table]]
//! id = 1
//! scheme = "row"
//! layout = "cyclic"    # or contiguous, where `sizes` are rows
//! ranks = [3, 1]
//!
//! [[table]]
//! id = 2
//! dim = 1
//! scheme = "replicated"
//! ```

use std::fmt::Write as _;
use std::ops::Range;

use serde::Deserialize;
use toml::Spanned;

use super::scheme::{Flaw, Kind, Part, Scheme, Sharding, even};
use super::workload::Workload;
use crate::base::error::{nearest, suggestion};
use crate::base::units::Many;
use crate::base::{Error, RankId, Result, TableId, input};
use crate::collective::plan::Reduction;
use crate::machine::placement::RANKS_MAX;

/// Parts of a table, at most: all are priced for all ranks.
const PARTS_MOST: usize = 4 * RANKS_MAX;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    ranks: Spanned<usize>,
    dim: Spanned<usize>,
    collective: Option<Spanned<String>>,
    #[serde(default)]
    table: Vec<Spanned<Entry>>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Entry {
    id: Spanned<u32>,
    name: Option<Spanned<String>>,
    rows: Option<Spanned<u64>>,
    dim: Option<Spanned<usize>>,
    scheme: Spanned<String>,
    layout: Option<Spanned<String>>,
    ranks: Option<Spanned<Vec<Spanned<u32>>>>,
    sizes: Option<Spanned<Vec<u64>>>,
}

/// The division as TOML, under `about` as a comment.
#[must_use]
pub fn to_toml(sharding: &Sharding, workload: &Workload, about: &str) -> String {
    let mut text = String::new();
    // Writing to a String cannot fail.
    let _ = write(sharding, workload, about, &mut text);
    text
}

fn write(sharding: &Sharding, workload: &Workload, about: &str, out: &mut String) -> std::fmt::Result {
    for line in about.lines() {
        writeln!(out, "# {line}")?;
    }
    let widest = workload.widest();
    writeln!(out, "ranks = {}\ndim = {widest}", sharding.ranks())?;
    for (number, scheme) in (0..).zip(sharding.schemes()) {
        let table = TableId(number);
        let name = toml::Value::String(workload.tables[table.index()].name.clone());
        writeln!(out, "\n[[table]]\nid = {number}\nname = {name}\nrows = {}", sharding.rows(table))?;
        if sharding.dim(table) != widest {
            writeln!(out, "dim = {}", sharding.dim(table))?;
        }
        writeln!(out, "scheme = \"{}\"", scheme.kind())?;
        match scheme {
            Scheme::RowCyclic(_) => writeln!(out, "layout = \"cyclic\"")?,
            Scheme::RowContiguous(_) => writeln!(out, "layout = \"contiguous\"")?,
            _ => {}
        }
        if *scheme != Scheme::Replicated {
            writeln!(out, "ranks = {:?}", scheme.ranks().iter().map(|rank| rank.0).collect::<Vec<_>>())?;
        }
        if let Scheme::Column(parts) | Scheme::RowContiguous(parts) = scheme {
            writeln!(out, "sizes = {:?}", parts.iter().map(|part| part.size).collect::<Vec<_>>())?;
        }
    }
    Ok(())
}

/// The text, to turn places into lines.
struct Source<'a> {
    text: &'a str,
    origin: &'a str,
}

impl Source<'_> {
    fn at(&self, place: &Range<usize>, reason: impl Into<String>) -> Error {
        let line = input::line(self.text, place.start);
        Error::ShardingPlan { origin: self.origin.to_owned(), line, reason: reason.into() }
    }
}

/// How many ranks a plan is for; `origin` is the file name that errors show.
///
/// # Errors
/// As [`parse`], for what is no plan.
pub fn ranks(text: &str, origin: &str) -> Result<usize> {
    Ok(*shape(&Source { text, origin })?.ranks.get_ref())
}

/// How a plan says that dense gradients are reduced, if it does.
///
/// # Errors
/// As [`ranks`], and for the name of no schedule.
pub fn collective(text: &str, origin: &str) -> Result<Option<String>> {
    let source = Source { text, origin };
    let Some(name) = shape(&source)?.collective else { return Ok(None) };
    if Reduction::NAMES.contains(&name.get_ref().as_str()) {
        return Ok(Some(name.into_inner()));
    }
    let likest =
        nearest(name.get_ref(), Reduction::NAMES).map_or_else(String::new, |name| format!(" (is {name} meant?)"));
    let known = Reduction::NAMES.join(", ");
    let reason = format!("collective: there is no schedule {}{likest}: name one of {known}, or none", name.get_ref());
    Err(source.at(&name.span(), reason))
}

/// A plan that [`to_toml`] wrote, and how dense gradients are reduced.
#[must_use]
pub fn with_collective(plan: &str, name: &str) -> String {
    let (head, tables) = plan.split_at(plan.find("\n[[table]]").unwrap_or(plan.len()));
    format!("{head}collective = \"{name}\"\n{tables}")
}

fn shape(source: &Source<'_>) -> Result<File> {
    let file: File = input::from_toml(source.text).map_err(|(place, reason)| source.at(&place, reason))?;
    if *file.ranks.get_ref() == 0 {
        return Err(source.at(&file.ranks.span(), "a plan is for one rank or more, not for 0: make a new one"));
    }
    Ok(file)
}

/// Reads a division of this workload's tables among `ranks` ranks; `origin` is the file name that errors show.
///
/// # Errors
/// [`Error::ShardingPlan`] with the line of what is wrong: not TOML, unknown keys, another number of ranks, a
/// table that is missing, twice there or of other rows or columns, a rank that does not exist, sizes that do not add
/// up.
pub fn parse(text: &str, origin: &str, workload: &Workload, ranks: usize) -> Result<Sharding> {
    let source = Source { text, origin };
    let file = shape(&source)?;
    if *file.ranks.get_ref() != ranks {
        let planned = file.ranks.get_ref();
        return Err(source.at(
            &file.ranks.span(),
            format!("the plan is for {planned} ranks, not {ranks}: use --ranks {planned} or a new plan"),
        ));
    }
    let mut entries: Vec<Option<&Spanned<Entry>>> = vec![None; workload.tables.len()];
    for entry in &file.table {
        let id = &entry.get_ref().id;
        let number = *id.get_ref() as usize;
        let Some(slot) = entries.get_mut(number) else {
            let last = workload.tables.len() - 1;
            return Err(source.at(&id.span(), format!("there is no table {number}: they are numbered 0 to {last}")));
        };
        if slot.replace(entry).is_some() {
            return Err(source.at(&id.span(), format!("table {number} is divided twice")));
        }
    }
    let mut schemes = Vec::new();
    for (number, entry) in entries.iter().enumerate() {
        let Some(entry) = entry else {
            let name = &workload.tables[number].name;
            let reason = format!("table {number} ({name}) is missing: every table needs a [[table]]");
            return Err(source.at(&(text.len()..text.len()), reason));
        };
        schemes.push(scheme(&source, entry, &file.dim, workload)?);
    }
    let rows: Vec<u64> = workload.tables.iter().map(|table| table.rows).collect();
    Sharding::new(&rows, workload.dims(), ranks, schemes).map_err(|Flaw { table, part, reason }| {
        let entry = entries[table.index()].expect("every table has an entry, checked above");
        let named = entry.get_ref().ranks.as_ref();
        let sizes = entry.get_ref().sizes.as_ref().map(Spanned::span);
        let place = match part {
            Some(part) => named.and_then(|ranks| ranks.get_ref().get(part)).map(Spanned::span),
            None => sizes.or_else(|| named.map(Spanned::span)),
        };
        let name = &workload.tables[table.index()].name;
        source.at(&place.unwrap_or_else(|| entry.span()), format!("{table} ({name}): {reason}"))
    })
}

/// How an entry divides its table, whose columns are as many as `dim` says unless it says so itself.
fn scheme(source: &Source<'_>, entry: &Spanned<Entry>, dim: &Spanned<usize>, workload: &Workload) -> Result<Scheme> {
    let (place, entry) = (entry.span(), entry.get_ref());
    let number = *entry.id.get_ref();
    let known = &workload.tables[number as usize];
    let at = |place: &Range<usize>, reason: String| {
        Err(source.at(place, format!("table {number} ({}): {reason}", known.name)))
    };
    if let Some(name) = entry.name.as_ref().filter(|name| **name.get_ref() != known.name) {
        return at(&name.span(), format!("the plan calls it {}: it was made for other data", name.get_ref()));
    }
    if let Some(rows) = entry.rows.as_ref().filter(|rows| *rows.get_ref() != known.rows) {
        let planned = rows.get_ref();
        return at(
            &rows.span(),
            format!("it has {} rows, the plan was made for {planned}: make a new one", known.rows),
        );
    }
    let dim = entry.dim.as_ref().unwrap_or(dim);
    if *dim.get_ref() != known.dim {
        let (columns, planned) = (Many(known.dim as u64, "column"), dim.get_ref());
        return at(&dim.span(), format!("it has {columns}, the plan was made for {planned}: make a new one"));
    }
    let kind = entry.scheme.get_ref().as_str();
    let kinds = Kind::ALL.map(Kind::name);
    if !kinds.contains(&kind) {
        let hint = suggestion(&nearest(kind, kinds));
        return at(&entry.scheme.span(), format!("unknown scheme `{kind}`{hint}; one of: {}", kinds.join(", ")));
    }
    let layout = match &entry.layout {
        None => {
            if entry.sizes.is_some() {
                "contiguous"
            } else {
                "cyclic"
            }
        }
        Some(layout) if kind != "row" => return at(&layout.span(), format!("layout is for rows, not for `{kind}`")),
        Some(layout) if ["cyclic", "contiguous"].contains(&layout.get_ref().as_str()) => layout.get_ref(),
        Some(layout) => {
            return at(&layout.span(), format!("unknown layout `{}`; one of: cyclic, contiguous", layout.get_ref()));
        }
    };
    if let Some(sizes) = entry.sizes.as_ref().filter(|_| kind != "column" && (kind != "row" || layout == "cyclic")) {
        return at(&sizes.span(), "sizes are for columns and contiguous rows".to_owned());
    }
    if kind == "replicated" {
        return match &entry.ranks {
            Some(ranks) => at(&ranks.span(), "a replicated table is on every rank: leave ranks out".to_owned()),
            None => Ok(Scheme::Replicated),
        };
    }
    let Some(ranks) = entry.ranks.as_ref().filter(|ranks| !ranks.get_ref().is_empty()) else {
        return at(
            &entry.ranks.as_ref().map_or(place, Spanned::span),
            "ranks = [..] is missing: who holds it?".to_owned(),
        );
    };
    let count = ranks.get_ref().len();
    if count > PARTS_MOST {
        return at(&ranks.span(), format!("{count} parts: a table has at most {PARTS_MOST}"));
    }
    let holders: Vec<RankId> = ranks.get_ref().iter().map(|rank| RankId(*rank.get_ref())).collect();
    let parts = |whole: u64| {
        let even = even(whole, holders.len());
        let sizes = entry.sizes.as_ref().map_or(&even, Spanned::get_ref);
        let pairs = holders.iter().zip(sizes).map(|(rank, size)| Part { rank: *rank, size: *size });
        (sizes.len() == holders.len()).then(|| pairs.collect::<Vec<_>>())
    };
    let uneven = || {
        let sizes = entry.sizes.as_ref().expect("even sizes are as many as ranks");
        at(&sizes.span(), format!("{} sizes for {} ranks", sizes.get_ref().len(), holders.len()))
    };
    match (kind, layout) {
        ("table", _) if holders.len() == 1 => Ok(Scheme::Table(holders[0])),
        ("table", _) => at(&ranks.span(), format!("scheme `table` takes one rank, not {}", holders.len())),
        ("row", "cyclic") => Ok(Scheme::RowCyclic(holders)),
        ("column", _) => parts(known.dim as u64).map_or_else(uneven, |parts| Ok(Scheme::Column(parts))),
        _ => parts(known.rows).map_or_else(uneven, |parts| Ok(Scheme::RowContiguous(parts))),
    }
}
