//! Where octorec keeps what it has found out and would rather not find out again.

use std::env;
use std::ffi::OsString;
use std::path::{PathBuf, absolute};

/// The folder of the user's cache: `$OCTOREC_CACHE`, from the working directory on, else `$XDG_CACHE_HOME/octorec`,
/// else `~/.cache/octorec`; `None` where none of these is set. As the XDG base directory specification says, its paths
/// do not count if they are not absolute.
#[must_use]
pub fn cache_dir() -> Option<PathBuf> {
    choose(|name| env::var_os(name))
}

fn choose(variable: impl Fn(&str) -> Option<OsString>) -> Option<PathBuf> {
    let folder = |name: &str| variable(name).map(PathBuf::from).filter(|path| path.is_absolute());
    // Of what is empty nothing can be made.
    let own = || variable("OCTOREC_CACHE").and_then(|folder| absolute(folder).ok());
    let cache = || folder("XDG_CACHE_HOME").map(|path| path.join("octorec"));
    let home = || folder("HOME").map(|path| path.join(".cache/octorec"));
    own().or_else(cache).or_else(home)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_variable_wins_and_relative_paths_of_others_do_not_count() {
        let chosen = |set: &[(&str, &str)]| {
            choose(|name| set.iter().find(|(known, _)| *known == name).map(|(_, value)| OsString::from(value)))
        };
        let all = [("OCTOREC_CACHE", "/o"), ("XDG_CACHE_HOME", "/x"), ("HOME", "/h")];
        assert_eq!(chosen(&all), Some("/o".into()));
        assert_eq!(chosen(&all[1..]), Some("/x/octorec".into()));
        assert_eq!(chosen(&all[2..]), Some("/h/.cache/octorec".into()));
        assert_eq!(chosen(&[("OCTOREC_CACHE", "o"), all[1]]), Some(env::current_dir().unwrap().join("o")));
        assert_eq!(chosen(&[("OCTOREC_CACHE", ""), ("XDG_CACHE_HOME", "x"), ("HOME", "/h")]), chosen(&all[2..]));
        assert_eq!(chosen(&[]), None);
    }
}
