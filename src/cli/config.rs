//! `octorec config`: prints a configuration.

use clap::Args;

use super::overrides::{BaseArgs, KeyArgs};
use crate::base::config::{Command, DEFAULT_PRESET, PRESETS, preset};
use crate::base::{Result, console};

/// Arguments of `octorec config`.
#[derive(Debug, Args)]
#[command(args_override_self = true)]
pub struct ConfigArgs {
    #[command(flatten)]
    base: BaseArgs,
    #[command(flatten)]
    keys: KeyArgs,
    /// List the presets.
    #[arg(long)]
    list: bool,
}

impl ConfigArgs {
    /// Prints the complete configuration that a run with these arguments would use.
    pub fn run(&self) -> Result<()> {
        if self.list {
            let mut text = String::new();
            for (name, preset) in PRESETS {
                let about = preset.lines().next().unwrap_or_default().trim_start_matches("# ");
                let default = if name == DEFAULT_PRESET { " (default)" } else { "" };
                text.push_str(&format!("{name:<10}{about}{default}\n"));
            }
            return console::result(format_args!("{text}")).map(|_| ());
        }
        let config = self.keys.finish(self.base.layers()?, Command::Config)?;
        let mut text = String::new();
        if let Some(name) = &self.base.preset {
            // The preset's own remarks, which say where its numbers come from.
            let remarks = preset(name)?.lines().take_while(|line| line.starts_with('#'));
            remarks.for_each(|line| text.push_str(&format!("{line}\n")));
        }
        console::result(format_args!("{text}{}", config.to_toml())).map(|_| ())
    }
}
