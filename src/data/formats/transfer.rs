//! All rows of a data set, one after the other: into another format, or only looked at.

use std::path::Path;

use rayon::prelude::*;

use super::{Dataset, Table, Target, bad};
use crate::base::{Error, Result, interrupt};
use crate::data::vocabulary::file::check as check_vocabulary;
use crate::data::{Description, Samples, Split};

/// Rows between two looks at the progress bar and the wish to stop.
const PORTION: usize = 1 << 14;

/// Hands rows `from..to` of a table to `each`, in portions.
///
/// # Errors
/// What the table or `each` finds, [`Error::Interrupted`], and a file's row number that is none of its table's.
pub fn scan(table: &dyn Table, from: u64, to: u64, mut each: impl FnMut(&Samples) -> Result<()>) -> Result<()> {
    let description = table.description();
    let mut samples = Samples::new(description);
    let mut rows = table.open(from)?;
    let mut done = from;
    while done < to {
        if interrupt::requested() {
            return Err(Error::Interrupted);
        }
        samples.clear();
        let wanted = PORTION.min(usize::try_from(to - done).unwrap_or(PORTION));
        if rows.read(&mut samples, wanted)? < wanted {
            return Err(bad(table.path(), format!("ends after {} rows", done + samples.len() as u64)));
        }
        check_rows(&samples, description, done).map_err(|reason| bad(table.path(), reason))?;
        each(&samples)?;
        done += wanted as u64;
    }
    Ok(())
}

/// Whether every row number is one of its table's. `first` is the number of the first sample.
fn check_rows(samples: &Samples, description: &Description, first: u64) -> std::result::Result<(), String> {
    for (table, (lookups, column)) in samples.lookups.iter().zip(&description.categorical).enumerate() {
        let Some((at, sample)) = lookups.beyond(column.hots, column.rows) else { continue };
        return Err(format!(
            "table {table} ({}): row {} is beyond its {} rows (sample {}): the file is damaged, or what lies beside it and \
             tells the numbers of rows belongs to other data",
            column.name,
            lookups.rows[at],
            column.rows,
            first as usize + sample
        ));
    }
    Ok(())
}

/// Copies all rows into `target`, role by role; `progress` is told how many are done. Returns how many there are.
///
/// # Errors
/// As [`scan`] and [`Target::write`].
pub fn convert(from: &Dataset, target: &mut Target, mut progress: impl FnMut(u64)) -> Result<u64> {
    let mut done = 0;
    if let Some(vocabulary) = &from.vocabulary {
        target.number_by(vocabulary, &from.numbered)?;
    }
    for role in Split::ALL {
        let members: Vec<_> = from.members.iter().filter(|member| member.role == role).collect();
        if members.iter().all(|member| member.table.rows() == 0) {
            continue;
        }
        target.write(role, |sink| {
            let before = done;
            for member in members {
                scan(&*member.table, 0, member.table.rows(), |samples| {
                    sink.push(samples)?;
                    done += samples.len() as u64;
                    progress(done);
                    Ok(())
                })?;
            }
            Ok(done - before)
        })?;
    }
    target.bring(&from.vocabularies)?;
    Ok(done)
}

/// Reads every row of every table, in parallel, and checks whatever the format lets one check; then the files with the
/// values behind row numbers.
///
/// # Errors
/// The first fault in the order of the rows; that there are none.
pub fn verify(dataset: &Dataset, progress: impl Fn(u64) + Sync) -> Result<u64> {
    /// Rows that one thread checks at a time.
    const SHARE: u64 = 1 << 18;
    let mut shares = Vec::new();
    for member in &dataset.members {
        let rows = member.table.rows();
        let share = if member.table.is_seekable() { SHARE } else { rows.max(1) };
        let from = (0..rows).step_by(share as usize);
        shares.extend(from.map(|from| (&member.table, from, rows.min(from.saturating_add(share)))));
    }
    let results: Vec<Result<()>> = shares
        .into_par_iter()
        .map(|(table, from, to)| {
            scan(&**table, from, to, |samples| {
                progress(samples.len() as u64);
                Ok(())
            })
        })
        .collect();
    results.into_iter().collect::<Result<()>>()?;
    let checks: Vec<Result<()>> =
        dataset.vocabularies.par_iter().map(|(path, rows)| verify_vocabulary(path, *rows)).collect();
    checks.into_iter().collect::<Result<()>>()?;
    match (dataset.members.iter().map(|member| member.table.rows()).sum(), dataset.members.first()) {
        (0, Some(member)) => {
            Err(bad(member.table.path(), "has no sample, nor has any file beside it: copy or write it again"))
        }
        (rows, _) => Ok(rows),
    }
}

fn verify_vocabulary(path: &Path, rows: u64) -> Result<()> {
    let found = check_vocabulary(path)?;
    // A table whose column never had a value has one row.
    if found.max(1) == rows {
        return Ok(());
    }
    let reason = format!(
        "numbers {found} rows, but its table has {rows}: it belongs to another data set: copy it again, or preprocess its \
         data again"
    );
    Err(bad(path, reason))
}
