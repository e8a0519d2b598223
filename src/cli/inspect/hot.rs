//! `octorec inspect --hot`: which rows take most of the look-ups, how much memory they take, and how many inputs need
//! no other row.

use std::fmt::Write;
use std::path::{Path, PathBuf};

use clap::Args;

use crate::base::config::{Command, Config, SourceKind};
use crate::base::units::{Bytes, Count, Many, Seconds, parse_bytes};
use crate::base::{Error, Result, console};
use crate::cli::chart::{Line, Panel, thresholds};
use crate::cli::copies::{follow, tagged};
use crate::cli::deep::DeepTables;
use crate::cli::output::{refuse_overwriting, refuse_unwritable};
use crate::cli::overrides::{BaseArgs, KeyArgs, named, source_of};
use crate::cli::preprocess::memory;
use crate::cli::session::{data_name, open_data, report_skipped};
use crate::cli::table::Table;
use crate::cli::terminal::bar;
use crate::data::hot::{CONFIDENCE, Options, Profile, Tags, Tried, WHOLE_BELOW, profile};
use crate::data::{Labels, Opening};
use crate::machine::team::pool;
use crate::memory::write_file;
use crate::optim::{Optimizer, ParamState};
use crate::train::save_hot;

/// Accesses in a sample below which chance decides much of whether a row has them.
const FEW: u32 = 10;

/// Hot rows.
#[derive(Debug, Args)]
pub struct HotProfileArgs {
    /// Find the rows that take most of the look-ups, for the model and the data that --preset, --config, --set and
    /// their like describe: a share of the training samples is looked at, and rows that are looked up often enough are
    /// hot.
    #[arg(
        long,
        conflicts_with_all = ["format", "label", "rows", "write_schema"],
        help_heading = HOT
    )]
    pub hot: bool,

    /// Share of the training samples that is looked at.
    #[arg(long, value_name = "SHARE", default_value = "5%", value_parser = share, requires = "hot", help_heading = HOT)]
    sample: f64,

    /// What hot rows may take, with what the optimizer keeps beside them: the memory of each rank that holds a copy.
    #[arg(
        long,
        value_name = "SIZE",
        default_value = "512MiB",
        value_parser = parse_bytes,
        requires = "hot",
        help_heading = HOT
    )]
    hot_budget: u64,

    /// Memory that may be used for counting, which is slower where tables need more.
    #[arg(long, value_name = "SIZE", default_value = "4GiB", value_parser = memory, requires = "hot", help_heading = HOT)]
    memory: u64,

    /// Write the hot rows to this file, for `octorec train` with `--hot exact` or `--hot fae`, and `--hot-set FILE`.
    #[arg(long, value_name = "FILE", requires = "hot", help_heading = HOT)]
    out: Option<PathBuf>,

    /// Tell all training samples apart, too, and keep in --out's file which of them are hot, so that training with it
    /// by `--hot fae` begins at once.
    #[arg(long, requires = "out", help_heading = HOT)]
    inputs: bool,

    /// Draw the size of hot rows and the share of hot samples over the threshold.
    #[arg(long, value_name = "FILE", requires = "hot", help_heading = HOT)]
    svg: Option<PathBuf>,
}

/// The group of these flags.
const HOT: &str = "Hot rows";

/// A share: `5%`, `0.5%`, `100%`.
fn share(text: &str) -> std::result::Result<f64, String> {
    let number = text.strip_suffix('%').and_then(|number| number.trim().parse::<f64>().ok());
    number
        .filter(|percent| *percent > 0.0 && *percent <= 100.0)
        .map(|percent| percent / 100.0)
        .ok_or_else(|| "more than 0% and at most 100% is expected, as in 5%".to_owned())
}

impl HotProfileArgs {
    /// Profiles the data at `path`, or what the configuration names, and prints what was found.
    pub fn run(&self, path: Option<&Path>, base: &BaseArgs, keys: &KeyArgs, json: bool) -> Result<()> {
        let mut config = configured(path, base, keys)?;
        let outputs = [("--out", self.out.as_deref()), ("--svg", self.svg.as_deref())];
        refuse_overwriting(&outputs, &base.input_files(&config, Command::Inspect))?;
        refuse_unwritable(&outputs.map(|(_, path)| path))?;
        // Tags are of the rows that training reads, to which one without a label or a weight is malformed.
        let labels = if self.inputs { Labels::Required } else { Labels::Optional };
        let source = open_data(&mut config, Opening { labels, ..Opening::default() })?;
        if self.inputs {
            // The search may take long.
            Tags::check_memory(&*source, "leave --inputs away")?;
        }
        let row_weights = config.model.weighs_rows();
        let kept =
            ParamState { precision: config.train.precision, optimizer: Optimizer::rows(&config.train), row_weights };
        let options = Options {
            share: self.sample,
            budget: self.hot_budget,
            row_bytes: (config.model.dim * kept.bytes() + kept.row_bytes()) as u64,
            memory: self.memory,
            seed: config.train.seed,
            whole_below: WHOLE_BELOW,
            least: 0.0,
            infer: true,
        };
        let pool = pool(config.train.threads)?;
        let deep = DeepTables::of(&*source);
        let bar = bar(0, "looking for hot rows");
        let found = pool.install(|| profile(deep.source, &options, &|step| follow(&bar, step)))?;
        drop(bar);
        report_skipped(source.skipped_rows());
        if let Some(path) = &self.out {
            let set = deep.of_all(found.set.clone());
            let tags = self.inputs.then(|| tagged(&config, deep.source, &set)).transpose()?;
            save_hot(path, source.schema(), &set, tags.as_ref())?;
        }
        if let Some(path) = &self.svg {
            write_file(path, drawn(&found).as_bytes())?;
        }
        match json {
            true => console::json(&found),
            false => console::result(format_args!("{}: {}", data_name(&config.data), report(&found))),
        }
    }
}

/// The configuration, with the data at `path`.
fn configured(path: Option<&Path>, base: &BaseArgs, keys: &KeyArgs) -> Result<Config> {
    let mut layers = base.layers()?;
    if let Some(path) = path {
        let described = keys.schema().is_some() || layers.text_of("data.schema").is_some();
        let kind = if described { SourceKind::Files } else { source_of(path) };
        layers.fix("data.path", named(path, "PATH")?, "PATH")?;
        layers.fix("data.source", kind.name(), "PATH")?;
    }
    let config = keys.finish(layers, Command::Inspect)?;
    if let Some(path) = path
        && !config.data.is_stored()
    {
        let reason = format!("data are generated, but {} is named, too: leave one of them away", path.display());
        return Err(Error::config("data.source", reason));
    }
    Ok(config)
}

/// What people read: what was found, how it was looked for, each threshold, and the tables of which a part is hot.
fn report(found: &Profile) -> String {
    let mut text = String::new();
    let percent = |share: f64| format!("{:.2} %", 100.0 * share);
    let bytes = |bytes: f64| Bytes(bytes.round() as u64).to_string();
    let rows: u64 = found.tables.iter().map(|table| table.rows).sum();
    let chosen = &found.tried[found.chosen];
    let _ = writeln!(
        text,
        "{} of {} are hot, {} of the {} that they may take; {} of all look-ups are of them, and {} of all samples look up no \
         other",
        Count(chosen.counted_bytes / found.row_bytes),
        Many(rows, "row"),
        Bytes(chosen.counted_bytes),
        Bytes(found.budget_bytes),
        percent(chosen.hot_lookups),
        percent(chosen.hot_inputs)
    );
    let _ = writeln!(
        text,
        "told from {} of {} training samples ({}, in stretches of {}), and judged by {} others",
        Count(found.sampled),
        Count(found.inputs),
        percent(found.sampled as f64 / found.inputs as f64),
        Count(found.stretch),
        Count(found.judged)
    );
    let small = if found.tables.iter().any(|table| table.small) {
        format!("; tables of less than {} are hot as a whole", Bytes(WHOLE_BELOW))
    } else {
        String::new()
    };
    let _ = writeln!(
        text,
        "{} with {} of {} take {}{small}",
        Many(found.tables.len() as u64, "table"),
        Many(rows, "row"),
        Bytes(found.row_bytes),
        Bytes(rows * found.row_bytes)
    );
    let _ = writeln!(
        text,
        "\na row is hot that has at least this share of its table's look-ups; of the shares whose rows fit, the least is chosen\n"
    );
    let between = format!("{} % between", 100.0 * CONFIDENCE);
    let heads = ["threshold", "", "hot rows", "size", &between, "counted", "by all", "hot samples", "hot look-ups"];
    let mut table = Table::new(heads).words(1);
    for (at, tried) in found.tried.iter().enumerate() {
        table.row([
            shown(tried.threshold),
            if at == found.chosen { "chosen" } else { "" }.to_owned(),
            Count((tried.bytes.value / found.row_bytes as f64).round() as u64).to_string(),
            bytes(tried.bytes.value),
            format!("{} and {}", bytes(tried.bytes.low), bytes(tried.bytes.high)),
            bytes(tried.counted_bytes as f64),
            bytes(tried.inferred_bytes),
            percent(tried.hot_inputs),
            percent(tried.hot_lookups),
        ]);
    }
    let _ = writeln!(text, "{table}");
    text += &tables(found, chosen);
    text += &chance(found, chosen);
    let times = &found.seconds;
    let _ = writeln!(
        text,
        "counted in {}, thresholds tried in {}, judged in {}; memory for up to {}",
        Seconds(times.sample),
        Seconds(times.estimate),
        Seconds(times.judge),
        Bytes(found.memory_bytes)
    );
    text
}

/// What people should know of a threshold where few accesses of the sample make a row hot; nothing elsewhere.
fn chance(found: &Profile, chosen: &Tried) -> String {
    let mut text = String::new();
    let large =
        || chosen.tables.iter().zip(&found.tables).filter(|(_, table)| !table.small).map(|(size, _)| size.cutoff);
    let few = large().filter(|cutoff| (1..FEW).contains(cutoff)).count();
    if few > 0 && found.sampled < found.inputs {
        let _ = writeln!(
            text,
            "{}: fewer than {FEW} of the sample's accesses make a row hot, so that chance decides on many: a larger --sample \
             tells hot rows better",
            Many(few as u64, "table")
        );
        if large().all(|cutoff| cutoff == 1) {
            let left = Bytes(found.budget_bytes - chosen.counted_bytes);
            let _ = writeln!(text, "every row that the sample accessed is hot, and {left} are left for others");
        }
    }
    text
}

/// A threshold in percent, with three digits.
fn shown(threshold: f64) -> String {
    let percent = 100.0 * threshold;
    let digits = if percent > 0.0 { (2.0 - percent.log10().floor()).max(0.0) as usize } else { 0 };
    format!("{percent:.digits$} %")
}

/// At the threshold that is chosen, which tables are hot as a whole, and a line for each of the others.
fn tables(found: &Profile, chosen: &Tried) -> String {
    let heads = ["table", "rows", "accessed", "hot from", "estimated", "between", "hot rows", "by all", "hot look-ups"];
    let mut table = Table::new(heads);
    let all = || chosen.tables.iter().zip(&found.tables);
    for (size, column) in all().filter(|(size, _)| size.cutoff > 0) {
        let count = |value: f64| Count(value.round() as u64).to_string();
        table.row([
            column.name.clone(),
            Count(column.rows).to_string(),
            Count(column.accessed_rows).to_string(),
            Many(u64::from(size.cutoff), "access").to_string(),
            count(size.rows.value),
            format!("{} and {}", count(size.rows.low), count(size.rows.high)),
            Count(column.hot_rows).to_string(),
            count(size.inferred),
            column.hot_lookups.map_or_else(|| "-".to_owned(), |share| format!("{:.2} %", 100.0 * share)),
        ]);
    }
    let (whole, every) = (all().filter(|(size, _)| size.cutoff == 0).count(), found.tables.len());
    let sum = format!("{whole} of {} are hot as a whole", Many(every as u64, "table"));
    if whole == every { sum + "\n" } else { format!("{sum}, and of the others these rows:\n\n{table}\n") }
}

/// The curves of the paper's Figure 5: size and hot inputs over the threshold.
fn drawn(found: &Profile) -> String {
    const MIB: f64 = (1u64 << 20) as f64;
    let points = |of: fn(&Tried) -> f64| {
        // No logarithm shows 0.
        found.tried.iter().filter(|tried| tried.threshold > 0.0).map(|tried| (tried.threshold, of(tried))).collect()
    };
    let line = |name: &str, of: fn(&Tried) -> f64| Line { name: name.to_owned(), points: points(of), joined: true };
    let size = Panel {
        y: "MiB of hot rows",
        lines: vec![
            line("estimated", |tried| tried.bytes.value / MIB),
            line("its upper end", |tried| tried.bytes.high / MIB),
            line("counted", |tried| tried.counted_bytes as f64 / MIB),
        ],
        level: Some(("budget", found.budget_bytes as f64 / MIB)),
    };
    let inputs = Panel {
        y: "% hot",
        lines: vec![
            line("samples", |tried| 100.0 * tried.hot_inputs),
            line("look-ups", |tried| 100.0 * tried.hot_lookups),
        ],
        level: None,
    };
    thresholds("threshold (share of a table's accesses)", found.tried[found.chosen].threshold, &[size, inputs])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_are_percentages() {
        assert_eq!([share("5%"), share("100%"), share("0.5 %")], [Ok(0.05), Ok(1.0), Ok(0.005)]);
        for wrong in ["5", "0%", "101%", "-1%", "five%", "%", "NaN%", ""] {
            assert!(share(wrong).unwrap_err().contains("as in 5%"), "{wrong}");
        }
    }
}
