//! `octorec config`: prints a configuration, and draws its network.

use std::path::PathBuf;

use clap::Args;

use super::heed_signals;
use super::network;
use super::output::refuse_overwriting;
use super::overrides::{BaseArgs, KeyArgs};
use super::session::open_data;
use super::table::Table;
use super::terminal;
use crate::base::config::{Command, DEFAULT_PRESET, PRESETS, preset};
use crate::base::{Error, Result, console};
use crate::data::Opening;
use crate::memory::write_file;

/// Arguments of `octorec config`.
#[derive(Debug, Args)]
pub struct ConfigArgs {
    #[command(flatten)]
    base: BaseArgs,
    #[command(flatten)]
    keys: KeyArgs,
    /// List the presets.
    #[arg(long, conflicts_with_all = ["preset", "config", "set"])]
    list: bool,
    /// Write the network out as model.layers, to change it: what a built-in one is, layer by layer.
    #[arg(long, conflicts_with = "list")]
    layers: bool,
    /// Draw the network, too.
    #[arg(long, value_name = "FILE", conflicts_with = "list")]
    svg: Option<PathBuf>,
}

/// The first sentence of a preset's remarks.
fn sentence(preset: &str) -> String {
    let remarks = preset.lines().map_while(|line| line.strip_prefix('#')).map(str::trim);
    let remarks = remarks.collect::<Vec<_>>().join(" ");
    let ends = |(at, _): &(usize, &str)| remarks[at + 2..].starts_with(char::is_uppercase);
    let end = remarks.match_indices(". ").find(ends).map_or(remarks.len(), |(at, _)| at + 1);
    remarks[..end].to_owned()
}

/// All presets: a table of this width for a person, or a line each for a program.
fn presets(width: Option<usize>) -> String {
    let about = |(name, preset): &(&str, &str)| {
        let default = if *name == DEFAULT_PRESET { " (default)" } else { "" };
        [(*name).to_owned(), sentence(preset) + default]
    };
    let Some(width) = width else {
        let longest = PRESETS.iter().map(|(name, _)| name.len()).max().unwrap_or(0);
        return PRESETS.iter().map(about).map(|[name, what]| format!("{name:<longest$}  {what}\n")).collect();
    };
    let mut table = Table::new(["preset", "what it is"]).within(width);
    PRESETS.iter().map(about).for_each(|row| table.row(row));
    table.to_string()
}

impl ConfigArgs {
    /// Prints the complete configuration that a run with these arguments would use; what files say of the model is read
    /// of them as training does, unless the configuration file, such as a run's own, tells it of the same data.
    pub fn run(&self) -> Result<()> {
        if self.list {
            if let Some(flag) = self.keys.given(&[])? {
                let reason = "has no effect on the list of presets: leave it away, or --list".to_owned();
                return Err(Error::config(flag, reason));
            }
            return console::result(format_args!("{}", presets(terminal::width())));
        }
        let layers = self.base.layers()?;
        let in_file = ["model.rows", "model.columns"].into_iter().all(|key| layers.in_file(key));
        let mut config = self.keys.finish(layers, Command::Config)?;
        let tells = in_file && !config.model.columns.is_empty();
        let is_told = tells && !self.keys.begins(&["data.", "model.rows", "model.columns"])?;
        refuse_overwriting(&[("--svg", self.svg.as_deref())], &self.base.input_files(&config, Command::Config))?;
        if config.data.is_stored() && !is_told {
            heed_signals()?;
            // As training begins: flags that would be refused there are so here.
            config = self.keys.finish(self.base.layers()?, Command::Train)?;
            open_data(&mut config, Opening::default())?;
        }
        if let Some(path) = &self.svg {
            let told = |reason| Error::config("model", reason);
            write_file(path, network::svg(&config.model).map_err(told)?.as_bytes())?;
        }
        if self.layers {
            config.model.layers = config.model.network();
            config.model.follow_layers();
        }
        let mut text = String::new();
        if let Some(name) = &self.base.preset {
            // The preset's own remarks, which say where its numbers come from.
            let remarks = preset(name)?.lines().take_while(|line| line.starts_with('#'));
            remarks.for_each(|line| text.push_str(&format!("{line}\n")));
        }
        console::result(format_args!("{text}{}", config.to_toml()))
    }
}
