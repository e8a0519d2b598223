//! `octorec config`: prints a configuration.

use clap::Args;

use super::overrides::{BaseArgs, KeyArgs};
use crate::base::Result;
use crate::base::config::{DEFAULT_PRESET, PRESETS, preset};

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
            for (name, text) in PRESETS {
                let about = text.lines().next().unwrap_or_default().trim_start_matches("# ");
                let default = if name == DEFAULT_PRESET { " (default)" } else { "" };
                println!("{name:<10}{about}{default}");
            }
            return Ok(());
        }
        let config = self.keys.finish(self.base.layers()?)?;
        if let Some(name) = &self.base.preset {
            // The preset's own remarks, which say where its numbers come from.
            preset(name)?.lines().take_while(|line| line.starts_with('#')).for_each(|line| println!("{line}"));
        }
        print!("{}", config.to_toml());
        Ok(())
    }
}
