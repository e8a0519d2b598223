//! `octorec inspect`: what a data set holds, and the schema that it proposes. What is hot is another question, see
//! [`hot`], and so is how samples differ from those of a model, see [`against`].

mod against;
mod hot;

use std::path::{Path, PathBuf};

use clap::Args;
use serde::Serialize;

use self::hot::HotProfileArgs;
use super::heed_signals;
use super::output::{refuse_overwriting, write_editable};
use super::overrides::{BaseArgs, KeyArgs, refuse_standard_input};
use super::session::{report_skipped, warn_of_skipped};
use super::table::Table;
use crate::base::config::OnBadRow;
use crate::base::console::note;
use crate::base::units::{Count, Many};
use crate::base::{Error, Result, console, interrupt};
use crate::data::formats::csv::{self, LeftOut};
use crate::data::formats::{self, Dataset, Described, Format, SCHEMA, parquet};
use crate::data::samples::Samples;
use crate::data::survey::{CategoricalFindings, DenseFindings, Findings, Survey, sparkline};
use crate::data::tsv::{GoodRows, Layout};
use crate::data::{Alone, Description, Labels, Telling};

/// Arguments of `octorec inspect`.
#[derive(Debug, Args)]
pub struct InspectArgs {
    /// A data set in any format, or text in Criteo's layout (plain or gzip). With --hot: without it, the built-in click
    /// log.
    #[arg(required_unless_present = "hot")]
    path: Option<PathBuf>,

    /// Its format, where its files do not tell it.
    #[arg(long, value_enum, value_name = "NAME")]
    format: Option<Format>,

    /// Where a schema is proposed: the label's column, or a comparison such as "rating >= 4"; without it, it is told
    /// from names and values. For a Parquet file it asks for such a schema.
    #[arg(long, value_name = "RULE", conflicts_with_all = ["schema", "format"])]
    label: Option<String>,

    /// Rows to look at, from the start of every part; 0: all.
    #[arg(long, value_name = "N", default_value_t = 1_000_000)]
    rows: u64,

    /// Write the proposed schema to this file: for a text file with a header line, or a Parquet file whose values are
    /// no row numbers, what --schema takes; for data of row numbers, what may lie beside them as schema.toml.
    #[arg(long, value_name = "FILE")]
    write_schema: Option<PathBuf>,

    /// Compare all of PATH, read as this run's model reads it, with the samples that the model was trained on: its
    /// labels, and column by column how many values are unseen, missing or elsewhere, most changed first. A run's
    /// directory, or its checkpoint file; nothing is trained or scored.
    #[arg(
        long,
        value_name = "RUN",
        conflicts_with_all = ["format", "label", "rows", "write_schema", "schema", "hot"]
    )]
    against: Option<PathBuf>,

    /// Print what was found as one JSON object.
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    hot: HotProfileArgs,

    #[command(flatten)]
    base: BaseArgs,

    #[command(flatten)]
    keys: KeyArgs,
}

/// Flags of [`KeyArgs`] that are not for --hot alone.
const ALWAYS: [&str; 3] = ["--schema", "--max-line", "--on-bad-row"];

/// What `--json` prints.
#[derive(Serialize)]
struct Report<'a> {
    format: &'a str,
    rows_total: Option<u64>,
    #[serde(flatten)]
    findings: &'a Findings,
    schema: &'a Description,
    /// Columns of text that the proposed schema leaves out.
    #[serde(skip_serializing_if = "<[LeftOut]>::is_empty")]
    left_out: &'a [LeftOut],
}

/// What was looked at.
struct Seen {
    format: &'static str,
    rows_total: Option<u64>,
    findings: Findings,
    schema: Description,
    left_out: Vec<LeftOut>,
}

impl InspectArgs {
    /// Looks and prints.
    pub fn run(&self) -> Result<()> {
        heed_signals()?;
        if self.hot.hot {
            return self.hot.run(self.path.as_deref(), &self.base, &self.keys, self.json);
        }
        let base = self.base.preset.as_ref().map(|_| "--preset").or(self.base.config.as_ref().map(|_| "--config"));
        if let Some(flag) = base.or(self.keys.given(&ALWAYS)?) {
            let reason = "has an effect only with --hot: leave it away, or ask for hot rows".to_owned();
            return Err(Error::config(flag, reason));
        }
        let (path, schema) = (self.path.as_deref().expect("clap requires it"), self.keys.schema());
        refuse_standard_input(path, "inspect")?;
        if let Some(run) = &self.against {
            return against::compare(path, run, &self.keys, self.json);
        }
        let inputs = [Some(path), schema].into_iter().flatten();
        refuse_overwriting(&[("--write-schema", self.write_schema.as_deref())], &inputs.collect::<Vec<_>>())?;
        let format = self.format;
        let limit = if self.rows == 0 { u64::MAX } else { self.rows };
        let text = format.is_none() && !path.is_dir() && Format::detect(path).is_none();
        let text = text && schema.is_none();
        let is_csv = format.or_else(|| Format::detect(path)) == Some(Format::Csv);
        let is_table = is_csv || format.is_none() && self.is_log(path)?;
        let is_text = text || is_table || (format.is_none() && schema.is_some());
        self.check(is_text, is_table)?;

        let (seen, proposed) = if is_table && schema.is_none() {
            self.propose(path, limit)?
        } else {
            let seen = match text {
                true => seen_text(path, limit, self.keys.max_line(), self.keys.on_bad_row()?)?,
                false => seen_files(path, format, self.keys.described()?, limit)?,
            };
            let proposed = seen.schema.to_toml();
            (seen, proposed)
        };
        if let Some(path) = &self.write_schema {
            write_editable("--write-schema", path, &proposed)?;
        }
        if self.json {
            let Seen { format, rows_total, findings, schema, left_out } = &seen;
            let report = Report { format, rows_total: *rows_total, findings, schema, left_out };
            console::json(&report)
        } else {
            console::result(format_args!("{}", table(&seen)))
        }
    }

    /// Whether a Parquet file is described as text is: since its values are no row numbers, or the user names the
    /// label.
    fn is_log(&self, path: &Path) -> Result<bool> {
        let is_file = path.is_file() && Format::detect(path) == Some(Format::Parquet);
        Ok(is_file && (self.label.is_some() || !parquet::tells_columns(path)?))
    }

    /// Refuses flags that have no effect on such data.
    fn check(&self, is_text: bool, is_table: bool) -> Result<()> {
        let of_text = ["data.max_line", "data.on_bad_row"].into_iter().find_map(|key| self.keys.origin(key));
        if let Some(flag) = of_text.filter(|_| !is_text) {
            let reason = "has an effect only on text, and these data are none: leave it away".to_owned();
            return Err(Error::config(flag, reason));
        }
        if self.label.is_some() && !is_table {
            let reason = "only tables of text with a header line, and single Parquet files, have a label to be named";
            return Err(Error::config("--label", reason.to_owned()));
        }
        Ok(())
    }

    /// A table of text by the schema that is proposed for it, and that.
    fn propose(&self, path: &Path, limit: u64) -> Result<(Seen, String)> {
        let (max_line, on_bad_row) = (self.keys.max_line(), self.keys.on_bad_row()?);
        let proposal = csv::propose(path, limit, self.label.as_deref(), max_line, on_bad_row)?;
        let choices = csv::Choices { max_line, on_bad_row, rows: limit, ..csv::Choices::default() };
        let dataset = csv::open_as(path, proposal.schema.clone(), &choices, &mut |_, _| {})?;
        let rows = dataset.members.iter().map(|member| member.table.rows()).sum();
        let proposed = proposal.to_toml(rows);
        let seen = surveyed(&dataset, Format::detect(path).map_or("csv", Format::name), limit)?;
        let rows_total = seen.rows_total.filter(|_| proposal.is_whole());
        Ok((Seen { left_out: proposal.left_out, rows_total, ..seen }, proposed))
    }
}

fn seen_files(path: &Path, format: Option<Format>, described: Option<Described<'_>>, limit: u64) -> Result<Seen> {
    let dataset = formats::open(path, format, described)?;
    let format = format.or_else(|| Format::detect(path)).unwrap_or(Format::Csv);
    if format == Format::Parquet && dataset.sized_by_values {
        let single = "; where they are identifiers, --label COLUMN proposes a schema for --schema";
        note!(
            "note: whole numbers are taken for row numbers here, of which a table has as many as the greatest asks for: a \
             {SCHEMA} beside the files says what else they are (--write-schema writes one to edit){}",
            if path.is_file() { single } else { "" }
        );
    }
    surveyed(&dataset, format.name(), limit)
}

fn surveyed(dataset: &Dataset, format: &'static str, limit: u64) -> Result<Seen> {
    let mut survey = Survey::new(&dataset.description).with_blanks(&dataset.blanks);
    let (mut alone, mut total) = (Alone::new(&dataset.description), 0);
    for member in &dataset.members {
        let rows = member.table.rows();
        total += rows;
        formats::scan(&*member.table, 0, rows.min(limit), |samples| {
            survey.add(samples, &dataset.description);
            alone.add(samples);
            Ok(())
        })?;
    }
    let skipped = dataset.members.iter().map(|member| member.table.skipped_rows()).sum::<u64>();
    report_skipped(skipped);
    let first = dataset.members.iter().find_map(|member| member.table.first_skipped());
    warn_of_skipped(skipped, total, first);
    alone.telling(&dataset.description).iter().for_each(doubt);
    let findings = survey.findings(&dataset.description, true);
    Ok(Seen { format, rows_total: Some(total), findings, schema: dataset.description.clone(), left_out: Vec::new() })
}

/// Asks whether a column is known before the label is.
fn doubt(told: &Telling) {
    let Telling { column, auc, positive } = told;
    let why = match positive {
        0 => format!("column {column} tells the label almost alone (AUC {auc:.3})"),
        _ => format!("column {column} has values of which all {} are positive", Many(*positive as u64, "row")),
    };
    note!(
        "note: {why}: is it known before the label is? Otherwise leave it out, since there is none when a model serves"
    );
}

/// Text in Criteo's layout; values are counted as they stand in the file.
fn seen_text(path: &Path, limit: u64, max_line: usize, on_bad_row: OnBadRow) -> Result<Seen> {
    const PORTION: usize = 1 << 12;
    let layout = Layout::criteo(Labels::Required, max_line);
    let mut schema = Description::criteo(layout.dense, &vec![u64::from(u32::MAX); layout.categorical]);
    for column in &mut schema.categorical {
        // A blank field is no look-up here.
        column.hots = 0;
    }
    let (mut survey, mut samples) = (Survey::new(&schema), Samples::new(&schema));
    let (mut rows, mut number) = (GoodRows::open(path, &layout, on_bad_row)?, 0);
    while number < limit && rows.next_raw()? {
        number += 1;
        // A blank field is 0.
        rows.row().push(&mut samples, 0);
        if samples.len() == PORTION {
            survey.add(&samples, &schema);
            samples.clear();
            if interrupt::requested() {
                return Err(Error::Interrupted);
            }
        }
    }
    let whole = rows.is_at_end()?;
    let (skipped, first) = rows.skipped();
    report_skipped(skipped);
    warn_of_skipped(skipped, number, first);
    survey.add(&samples, &schema);
    let findings = survey.findings(&schema, false);
    for (column, found) in schema.categorical.iter_mut().zip(&findings.categorical) {
        column.hots = 1;
        // Blank fields share a row of their own.
        column.rows = (found.distinct + u64::from(found.missing > 0.0)).max(1);
    }
    Ok(Seen { format: "tsv", rows_total: whole.then_some(number), findings, schema, left_out: Vec::new() })
}

fn table(seen: &Seen) -> String {
    use std::fmt::Write;
    let mut text = String::new();
    let found = &seen.findings;
    let total = match seen.rows_total {
        Some(total) if total != found.rows => format!(" of {}", Count(total)),
        Some(_) => String::new(),
        None => " of more".to_owned(),
    };
    let rate = found.label_rate.map_or("none".to_owned(), |rate| format!("{:.2} %", 100.0 * rate));
    let _ = writeln!(text, "{}: {}{total} rows, label rate {rate}\n", seen.format, Count(found.rows));
    if !found.dense.is_empty() {
        let _ = write!(text, "{}", dense_table(&found.dense, seen.schema.weight.as_deref()));
    }
    if !found.categorical.is_empty() {
        let _ = write!(text, "\n{}", categorical_table(&found.categorical));
    }
    if !seen.left_out.is_empty() {
        let mut table = Table::new(["left out", "reason"]).words(1);
        seen.left_out.iter().for_each(|LeftOut { column, reason }| table.row([column, reason]));
        let _ = write!(text, "\n{table}");
    }
    text
}

fn dense_table(columns: &[DenseFindings], weight: Option<&str>) -> Table {
    let mut table = Table::new(["dense", "missing", "negative", "least", "mean", "most", "shape"]).words(6);
    for column in columns {
        let shown =
            |value: Option<f64>| value.map_or("-".to_owned(), |value| format!("{value:.6}").chars().take(12).collect());
        let what = if weight == Some(&column.name) { " (weight)" } else { "" };
        table.row([
            format!("{}{what}", column.name),
            percent(column.missing),
            percent(column.negative),
            shown(column.least),
            shown(column.mean),
            shown(column.most),
            sparkline(&column.shape),
        ]);
    }
    table
}

fn categorical_table(columns: &[CategoricalFindings]) -> Table {
    let heads = ["categorical", "missing", "distinct", "rows", "look-ups", "hottest 1 %", "by rank, octaves"];
    let mut table = Table::new(heads).words(6);
    for column in columns {
        let weights = column.weight_mean.map_or(String::new(), |mean| format!("  weights, mean {mean:.4}"));
        table.row([
            column.name.clone(),
            percent(column.missing),
            Count(column.distinct).to_string(),
            column.rows.map_or("-".to_owned(), |rows| Count(rows).to_string()),
            format!("{:.2}", column.lookups),
            percent(column.hottest_share),
            format!("{}{weights}", sparkline(&column.shape)),
        ]);
    }
    table
}

fn percent(share: f64) -> String {
    format!("{:.1} %", 100.0 * share)
}
