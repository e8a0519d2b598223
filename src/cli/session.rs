//! The data that a command works on: opened, with a bar while they are read, and what is said of them and their model.

use std::path::Path;
use std::sync::Arc;

use super::ranks::Started;
use super::terminal::bar_of;
use crate::base::Result;
use crate::base::config::{Config, DataConfig, SourceKind};
use crate::base::console::{escaped, note};
use crate::base::input::read_text;
use crate::base::units::{Bytes, Count, Many};
use crate::data::derived::Derived;
use crate::data::incoming::{Incoming, Malformed, Writing};
use crate::data::schema::{Scale, Scales};
use crate::data::{self, Growth, Opening, Source, Split};

/// Opens the configured data set, drawing a bar while a file's first pass runs; the model takes from it what it leaves
/// to the data, and gets it with the columns that it makes itself.
pub fn open_data(config: &mut Config, opening: Opening<'_>) -> Result<Arc<dyn Source>> {
    let source = open_columns(config, opening)?;
    Derived::of(&config.model, source)
}

/// Generated data, as the model reads it.
///
/// # Errors
/// As [`data::open`], and [`Derived::of`].
pub fn open_generated(config: &Config) -> Result<Arc<dyn Source>> {
    Derived::of(&config.model, data::open(config, Opening::default())?)
}

/// Rows that arrive by standard input, or of the configured file where its malformed rows are answered, for a trained
/// model.
///
/// # Errors
/// As [`Incoming::standard`] and [`Incoming::file`].
pub fn open_incoming(
    config: &mut Config,
    opening: Opening<'_>,
    by_stdin: Option<Writing>,
    malformed: Option<Malformed>,
) -> Result<Arc<dyn Source>> {
    tell_of_own_schema(config, &opening);
    let source = match by_stdin {
        Some(writing) => Incoming::standard(config, opening, writing)?,
        None => Incoming::file(config, opening)?,
    };
    let source = source.answering(malformed);
    config.model.follow(source.schema().dense, source.schema().names(), source.schema().rows());
    config.model.sequences = source.schema().sequences(&config.model)?;
    Derived::of(&config.model, Arc::new(source))
}

/// As [`data::open`], drawing a bar while a file's first pass runs.
pub fn open_watched(config: &Config, opening: Opening<'_>) -> Result<Arc<dyn Source>> {
    const TEMPLATE: &str = "{bar:30} {bytes}/{total_bytes}  reading {msg}  {eta} left";
    let begin = |total| bar_of(TEMPLATE, total, config.data.path.clone());
    // Drawn only once there is something to watch.
    let mut bar = None;
    let progress = Box::new(|done, total| {
        if done > 0 && done < total {
            bar.get_or_insert_with(|| begin(total)).set_position(done);
        }
    });
    data::open(config, Opening { progress, ..opening })
}

/// As [`open_data`], with the columns of the data alone.
pub fn open_columns(config: &mut Config, opening: Opening<'_>) -> Result<Arc<dyn Source>> {
    tell_of_own_schema(config, &opening);
    let trained = opening.scales.is_some();
    let source = open_watched(config, opening)?;
    if trained {
        // What the model lacks is told before anything is built.
        source.scales()?;
    }
    let rows = Split::ALL.into_iter().filter_map(|split| source.samples(split));
    warn_of_skipped(source.skipped_rows(), rows.sum(), source.first_skipped());
    let (names, rows) = (source.schema().names(), source.schema().rows());
    match config.data.is_stored() {
        true => config.model.follow(source.schema().dense, names, rows),
        // Of generated data, too, those that there are: which tables are two depends on them.
        false => (config.model.columns, config.model.rows) = (names, rows),
    }
    config.model.sequences = source.schema().sequences(&config.model)?;
    Ok(source)
}

/// Says if the file that described a model's data now has another text than the schema that is used.
fn tell_of_own_schema(config: &Config, opening: &Opening<'_>) {
    let path = Path::new(&config.data.schema);
    let differs = |own: &&String| path.is_file() && read_text(path).is_ok_and(|text| text != **own);
    if opening.schema.as_ref().filter(differs).is_some() {
        note!("note: {} is not the schema that this model was trained with: its own is used", path.display());
    }
}

/// Says how many malformed rows of the data were left out.
pub fn report_skipped(rows: u64) {
    if rows > 0 {
        note!("left out {}", Many(rows, "malformed row"));
    }
}

/// Warns where more than a few of all rows are malformed and left out, with what is known of the first one: then the
/// schema is the likelier fault.
pub fn warn_of_skipped(skipped: u64, rows: u64, first: Option<&str>) {
    const FEW: f64 = 0.03;
    let all = skipped + rows;
    let share = skipped as f64 / all as f64;
    if share > FEW {
        let first = first.map_or("--on-bad-row fail says what is wrong with the first".to_owned(), |first| {
            format!("the first is {first}")
        });
        note!(
            "warning: {:.1} % of all rows ({} of {}) are malformed and left out: {first}",
            100.0 * share,
            Count(skipped),
            Count(all)
        );
    }
}

/// What the data are called.
#[must_use]
pub fn data_name(data: &DataConfig) -> &str {
    match data.source {
        SourceKind::Criteo => "built-in click log",
        SourceKind::Taobao => "built-in time series",
        SourceKind::Random => "random look-ups",
        SourceKind::Tsv | SourceKind::Files => &data.path,
    }
}

/// One line on the data and one on the model and the machine. `kept` are the scales that the model had with which
/// training begins or goes on, and what this comes from, for people.
///
/// # Errors
/// When a rank fails.
pub fn describe(config: &Config, source: &dyn Source, started: &Started, kept: Option<(&Scales, &str)>) -> Result<()> {
    let samples = |split| source.samples(split).map_or("endless".to_owned(), |count| Count(count).to_string());
    let schema = source.schema();
    let rows: u64 = schema.tables.iter().map(|column| column.rows).sum();
    let name = data_name(&config.data);
    let validation = match source.samples(Split::Validation) {
        Some(0) => String::new(),
        _ => format!(", {} validation", samples(Split::Validation)),
    };
    note!(
        "data: {name}: {} training{validation} and {} test samples, {}, {} with {}",
        samples(Split::Train),
        samples(Split::Test),
        Many(schema.dense as u64, "dense feature"),
        Many(schema.tables.len() as u64, "table"),
        Many(rows, "row")
    );
    describe_scales(source, kept)?;
    let parameters = started.ranks.parameters()?;
    let parameters: u64 =
        parameters.iter().map(|parameter| parameter.shape.iter().map(|&n| n as u64).product::<u64>()).sum();
    let precision = config.train.precision;
    let Started { placement, isa, .. } = started;
    let threads = placement.ranks[0].compute.len();
    let teams = match placement.ranks.len() {
        1 => String::new(),
        ranks => format!("{ranks} ranks of "),
    };
    let mut who = format!("{teams}{} with {}", Many(threads as u64, "thread"), isa.name());
    let split = config.model.layer_precision(precision).is_split();
    if split && !isa.multiplies_pairs() {
        who += &format!(": products of bf16 as f32 ({} has none of bf16)", isa.name());
    }
    if isa.amx_thirds().is_some() && !split {
        who += ": products of f32 as bf16 in three parts (--isa avx512: as f32)";
    }
    note!(
        "model: {} parameters ({}) in {}; {who}",
        Count(parameters),
        Bytes(parameters * precision.bytes() as u64),
        precision.name(),
    );
    Ok(())
}

/// What was learned of dense columns, in their order, now or for the model that training begins or goes on with: a line
/// for each of a few.
fn describe_scales(source: &dyn Source, kept: Option<(&Scales, &str)>) -> Result<()> {
    const FEW: usize = 10;
    let (columns, scales) = (&source.about().dense_columns, source.scales()?);
    let kept_from = |name: &String| kept.and_then(|(kept, from)| kept.contains_key(name).then_some(from));
    if scales.len() > FEW {
        let (many, old) = (Many(scales.len() as u64, "column"), scales.keys().filter_map(kept_from));
        let of = match (kept, old.count()) {
            (Some((_, from)), old) if old > 0 => format!(", those of {old} of them kept from {from}"),
            _ => String::new(),
        };
        note!("{many}: means and standard deviations learned from training samples, which the checkpoint keeps{of}");
        return Ok(());
    }
    let mut scales: Vec<_> = scales.into_iter().collect();
    scales.sort_by_key(|(name, _)| columns.iter().position(|(column, _)| column == name));
    for (name, Scale { newest, mean, deviation }) in scales {
        let age = if newest == 0 { "" } else { " days of age" };
        let whence =
            kept_from(&name).map_or("learned from training samples".to_owned(), |from| format!("kept from {from}"));
        note!("column {}: mean {mean:.6}{age}, standard deviation {deviation:.6}, {whence}", escaped(&name));
    }
    Ok(())
}

/// What data add to a vocabulary, in a line; nothing where they cannot add to one. `cap` is the limit of tables' rows
/// (0: none).
pub fn growth_told(cap: u64, growth: &[Growth]) -> Option<String> {
    /// Columns with new values that are named.
    const NAMED: usize = 8;
    let sum = |of: fn(&Growth) -> u64| growth.iter().map(of).sum::<u64>();
    let (kept, new) = (sum(|column| column.kept), sum(|column| column.new));
    let absent = growth.iter().map(|column| column.absent).sum::<Option<u64>>();
    let absent = absent.map_or(String::new(), |absent| format!(" ({} of them not in these data)", Count(absent)));
    let grown: Vec<_> = growth.iter().filter(|column| column.new > 0).collect();
    let names = grown.iter().take(NAMED).map(|column| format!("{} {}", escaped(&column.column), Count(column.new)));
    let names = names.collect::<Vec<_>>().join(", ");
    let names = match grown.len() {
        0 => String::new(),
        1..=NAMED => format!(" ({names})"),
        _ => format!(" ({names}, ...)"),
    };
    let is_full = cap > 0 && grown.iter().any(|column| column.kept + column.new + u64::from(column.unseen_row) > cap);
    let shared = if is_full { "; beyond data.rows_cap rows, values share rows" } else { "" };
    (!growth.is_empty()).then(|| {
        format!(
            "{} of its vocabulary kept{absent}, and {}{names} added{shared}",
            Many(kept, "value"),
            Many(new, "new value")
        )
    })
}
