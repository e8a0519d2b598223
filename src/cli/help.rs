//! What `--help` shows: of each command the flags that it honours, the most used ones first, the others by group.

use std::any::TypeId;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

use clap::builder::StyledStr;
use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{ArgAction, Command as Program, CommandFactory, Error, FromArgMatches};

use super::Cli;
use super::overrides::KeyArgs;
use crate::base::config::{Command, KEYS, Key};

/// Flags on what is learned from.
pub const DATA: &str = "Data";
/// Flags on the network.
pub const MODEL: &str = "Model";
/// Flags on how the network is trained.
pub const TRAINING: &str = "Training";
/// Flags on where ranks and threads stand, and what they run on.
pub const MACHINE: &str = "Machine";
/// Flags on what is written where.
pub const OUTPUT: &str = "Output";

impl Cli {
    /// The arguments of this process; ends it where they are wrong or ask for help.
    #[must_use]
    pub fn of_this_process() -> Self {
        let mut program = Self::program();
        let given: Vec<OsString> = std::env::args_os().collect();
        let mut matches =
            program.try_get_matches_from_mut(&given).unwrap_or_else(|error| with_keys(error, &program, &given).exit());
        Self::from_arg_matches_mut(&mut matches).unwrap_or_else(|error| error.format(&mut program).exit())
    }

    /// The program with all of its commands, in each command's help the flags that it honours.
    #[must_use]
    pub fn program() -> Program {
        let keys = keys();
        Command::ALL.into_iter().fold(last_counts(Self::command()), |program, command| {
            let words: Vec<&str> = command.name().split(' ').collect();
            of_command(program, &words, (command, &keys))
        })
    }
}

/// What to do with several files of data.
const MORE_DATA: &str = "several files of text that a schema describes are one table in a folder that they are alone in: name \
                         that ('--data FOLDER'); of others 'octorec preprocess' makes a data set, and a model of that \
                         predicts such data sets alone";

/// Flags, and the keys that they change.
fn keys() -> Vec<(&'static str, &'static Key)> {
    let flags = KeyArgs::default().values().expect("no flag was given");
    flags.into_iter().map(|(flag, key, _)| (flag, Key::named(key).expect("it is a key"))).collect()
}

/// The error of a flag that the command does not have, where a key of the configuration that the command uses has its
/// name: with a tip on how that is set; and that of several files of data, with one on how they are named.
fn with_keys(mut error: Error, program: &Program, given: &[OsString]) -> Error {
    let (mut of, mut words) = (program, Vec::new());
    for word in given {
        if let Some(next) = of.find_subcommand(word) {
            of = next;
            words.push(next.get_name());
        }
    }
    let tell = |error: &mut Error, tips| error.insert(ContextKind::Suggested, ContextValue::StyledStrs(tips));
    let reads_data = of.get_arguments().any(|arg| arg.get_long() == Some("data"));
    let is_more_data = match (error.kind(), error.get(ContextKind::InvalidArg)) {
        (ErrorKind::ArgumentConflict, Some(ContextValue::String(flag))) => flag.starts_with("--data "),
        (ErrorKind::UnknownArgument, Some(ContextValue::String(word))) => Path::new(word).is_file(),
        _ => false,
    };
    if reads_data && is_more_data {
        tell(&mut error, vec![MORE_DATA.into()]);
        return error;
    }
    let words = words.join(" ");
    // The search, which is none of these, trains.
    let command = Command::ALL.into_iter().find(|command| command.name() == words).unwrap_or(Command::Train);
    let sets = of.get_arguments().any(|arg| arg.get_long() == Some("set"));
    let Some(ContextValue::String(flag)) = error.get(ContextKind::InvalidArg).filter(|_| sets) else { return error };
    let name = flag.trim_start_matches('-').replace('-', "_");
    let is_named = |key: &&Key| key.name.split_once('.').is_some_and(|(_, last)| last == name);
    let keys = KEYS.iter().filter(|key| is_named(key) && key.honoured(command));
    let tips: Vec<StyledStr> = keys.map(|key| format!("it is set by '--set {}=VALUE'", key.name).into()).collect();
    if error.kind() == ErrorKind::UnknownArgument && !tips.is_empty() {
        tell(&mut error, tips);
    }
    error
}

/// Flags of names that are given once, besides those of files and folders.
const ONCE: [&str; 3] = ["preset", "topology", "export"];

/// Of a flag that comes twice, the last counts, so that a shell's alias can be overridden: in all commands, and for all
/// flags but those that name a file, a folder, a preset or a machine. Whoever gives two of these means both.
fn last_counts(program: Program) -> Program {
    let program = program.mut_args(|arg| {
        let names = arg.get_value_parser().type_id() == TypeId::of::<PathBuf>();
        let once = names || arg.get_long().is_some_and(|long| ONCE.contains(&long));
        let one = matches!(arg.get_action(), ArgAction::Set | ArgAction::SetTrue) && !arg.is_positional();
        let own = arg.get_id().clone();
        if one && !once { arg.overrides_with(own) } else { arg }
    });
    program.mut_subcommands(last_counts)
}

/// Hides, in the subcommand of these words, what has no effect there. It is still parsed, so that the answer says which
/// command it is for.
fn of_command(
    program: Program,
    words: &[&str],
    (command, keys): (Command, &[(&'static str, &'static Key)]),
) -> Program {
    match words {
        [] => program.mut_args(|arg| {
            let long = arg.get_long().map(|long| format!("--{long}"));
            let key = keys.iter().find(|(flag, _)| Some(*flag) == long.as_deref());
            let hidden = arg.is_hide_set() || key.is_some_and(|(_, key)| !key.honoured(command));
            arg.hide(hidden)
        }),
        [first, rest @ ..] => program.mut_subcommand(*first, |program| of_command(program, rest, (command, keys))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn find<'a>(program: &'a Program, name: &str) -> &'a Program {
        name.split(' ').fold(program, |program, word| program.find_subcommand(word).unwrap())
    }

    #[test]
    fn help_shows_a_flag_where_its_key_is_honoured_and_nowhere_else() {
        let program = Cli::program();
        for command in Command::ALL {
            let shown = find(&program, command.name());
            for (flag, key) in keys() {
                let arg = shown.get_arguments().find(|arg| arg.get_long() == flag.strip_prefix("--"));
                // A command may have a flag of its own by that name.
                let arg = arg.unwrap_or_else(|| panic!("{}: {flag}", command.name()));
                assert_eq!(!arg.is_hide_set(), key.honoured(command), "octorec {}: {flag}", command.name());
            }
        }
    }

    #[test]
    fn training_shows_ten_flags_before_the_groups() {
        let program = Cli::program();
        let train = find(&program, "train");
        let mut first: Vec<_> = train.get_arguments().filter(|arg| arg.get_help_heading().is_none()).collect();
        first.sort_by_key(|arg| arg.get_display_order());
        let first: Vec<_> = first.iter().filter_map(|arg| arg.get_long()).collect();
        let usual = ["data", "schema", "preset", "epochs", "batch", "lr", "out", "resume", "ranks", "json"];
        assert_eq!(first, usual);
        let mut groups: Vec<_> = train.get_arguments().filter_map(|arg| arg.get_help_heading()).collect();
        groups.dedup();
        assert_eq!(groups[0], DATA);
        groups.sort_unstable();
        groups.dedup();
        assert_eq!(groups, [DATA, MACHINE, MODEL, OUTPUT, TRAINING]);
    }

    #[test]
    fn arguments_are_well_formed() {
        Cli::program().debug_assert();
    }
}
