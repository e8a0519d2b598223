//! Where figures are kept: a file a machine, all in one folder, since a home directory may be several machines' own.

use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use serde::Serialize;
use serde::de::DeserializeOwned;

use super::fingerprint::fnv1a;
use super::{Figures, Fingerprint, Network};
use crate::base::console::pretty;
use crate::base::units::Many;
use crate::base::{Error, Result};
use crate::memory::{WholeFile, write_file};

/// How files of figures begin and end, those of machines and those of networks.
const PREFIX: &str = "figures-";
const NETWORK: &str = "network-";
const SUFFIX: &str = ".json";

/// No file of figures is larger: one of 1024 nodes has a million pairs.
const MOST_BYTES: u64 = 256 << 20;

/// A folder of figures.
#[derive(Debug, Clone)]
pub struct Store {
    folder: PathBuf,
}

/// What a [`Store`] has for a machine or a network.
#[derive(Debug)]
pub struct Kept<T> {
    /// Its figures and their file.
    pub figures: Option<(T, PathBuf)>,
    /// Why these figures may be of another state of the machine; where there are none, why those that are kept are.
    pub doubt: Option<String>,
    /// Files that could not be read, and why.
    pub notes: Vec<String>,
}

impl Store {
    /// That folder; it need not exist.
    #[must_use]
    pub const fn new(folder: PathBuf) -> Self {
        Self { folder }
    }

    /// Where it is.
    #[must_use]
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// The figures of a machine, the newest if there are several; those of whom nobody can doubt that they are its own
    /// come first. Where there are none, `doubt` says in what those of the same processor differ.
    #[must_use]
    pub fn find(&self, here: &Fingerprint) -> Kept<Figures> {
        let own = self.own(here);
        if own.figures.is_some() {
            return own;
        }
        let mut likely = self.newest_figures(|known| known.difference(here).is_none());
        if let Some((figures, path)) = &likely.figures {
            likely.doubt = figures.fingerprint.doubt(here).map(|doubt| {
                format!("{}: {doubt}: measure anew if modules changed (octorec topo --measure)", path.display())
            });
            return likely;
        }
        let mut alike = self.newest_figures(|known| known.processor == here.processor);
        if let Some((figures, path)) = alike.figures.take() {
            alike.doubt = figures.fingerprint.difference(here).map(|difference| {
                format!(
                    "{} has figures of such a machine, or of this one in another state: {difference}; `octorec topo \
                     --measure` measures it as it is now",
                    path.display()
                )
            });
        }
        alike
    }

    /// The figures of this very machine.
    fn own(&self, here: &Fingerprint) -> Kept<Figures> {
        self.newest_figures(|known| known.difference(here).is_none() && known.doubt(here).is_none())
    }

    fn newest_figures(&self, wanted: impl Fn(&Fingerprint) -> bool) -> Kept<Figures> {
        self.newest(PREFIX, Figures::check, |figures| wanted(&figures.fingerprint), |figures| figures.measured_s)
    }

    /// The network that connects these machines, the newest if there are several.
    #[must_use]
    pub fn find_network(&self, hosts: &[String]) -> Kept<Network> {
        self.newest(NETWORK, Network::check, |network| network.connects(hosts), |network| network.measured_s)
    }

    /// Of the files of a kind that are sound, the newest that is wanted.
    fn newest<T: DeserializeOwned>(
        &self,
        prefix: &str,
        check: impl Fn(&T) -> std::result::Result<(), String>,
        wanted: impl Fn(&T) -> bool,
        time: impl Fn(&T) -> u64,
    ) -> Kept<T> {
        let mut kept = Kept { figures: None, doubt: None, notes: Vec::new() };
        let entries = match fs::read_dir(&self.folder) {
            Ok(entries) => entries,
            Err(error) if error.kind() == ErrorKind::NotFound => return kept,
            Err(error) => {
                kept.notes.push(format!("{}: measured figures cannot be looked for: {error}", self.folder.display()));
                return kept;
            }
        };
        let ours = |path: &PathBuf| {
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            name.starts_with(prefix) && name.ends_with(SUFFIX)
        };
        let mut files: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).filter(ours).collect();
        files.sort_unstable();
        for path in files {
            match read(&path).and_then(|figures: T| check(&figures).map(|()| figures)) {
                Err(reason) => kept.notes.push(format!(
                    "{} is left unused: {reason}; remove it, `octorec topo --measure` writes a new one",
                    path.display()
                )),
                Ok(figures) if wanted(&figures) => {
                    if kept.figures.as_ref().is_none_or(|(known, _)| time(known) < time(&figures)) {
                        kept.figures = Some((figures, path));
                    }
                }
                Ok(_) => {}
            }
        }
        kept
    }

    /// Keeps figures in the place of older ones of the same machine, and says where. Those that may be another one's
    /// stay.
    ///
    /// # Errors
    /// When the folder or the file cannot be written.
    pub fn keep(&self, figures: &Figures) -> Result<PathBuf> {
        let fresh = || self.folder.join(format!("{PREFIX}{}{SUFFIX}", figures.fingerprint.name()));
        self.write(self.own(&figures.fingerprint).figures.map_or_else(fresh, |(_, path)| path), figures)
    }

    /// The same of a network.
    ///
    /// # Errors
    /// When the folder or the file cannot be written.
    pub fn keep_network(&self, network: &Network) -> Result<PathBuf> {
        let name = fnv1a(network.hosts.join(" ").as_bytes());
        self.write(self.folder.join(format!("{NETWORK}{name}{SUFFIX}")), network)
    }

    /// Finds out whether figures could be kept, before they are measured; nothing stays of it but the folder.
    ///
    /// # Errors
    /// When the folder or a file in it cannot be written.
    pub fn try_out(&self) -> Result<()> {
        fs::create_dir_all(&self.folder).map_err(Error::io(&self.folder, "create"))?;
        WholeFile::create(&self.folder.join(format!("{PREFIX}tried{SUFFIX}"))).map(drop)
    }

    fn write(&self, path: PathBuf, figures: &impl Serialize) -> Result<PathBuf> {
        fs::create_dir_all(&self.folder).map_err(Error::io(&self.folder, "create"))?;
        write_file(&path, pretty(figures).as_bytes())?;
        Ok(path)
    }
}

fn read<T: DeserializeOwned>(path: &Path) -> std::result::Result<T, String> {
    let size = fs::metadata(path).map_err(|error| error.to_string())?;
    if !size.is_file() || size.len() > MOST_BYTES {
        return Err("it is no file of figures".to_owned());
    }
    let text = fs::read_to_string(path).map_err(|error| error.to_string())?;
    serde_json::from_str(&text).map_err(|error| error.to_string())
}

/// Seconds since 1970.
pub fn now_s() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

/// "3 days ago", of seconds since 1970.
pub(super) fn age(then_s: u64) -> String {
    let seconds = now_s().saturating_sub(then_s);
    let units = [(86_400, "day"), (3_600, "hour"), (60, "minute")];
    match units.into_iter().find(|(unit, _)| seconds >= *unit) {
        Some((unit, name)) => format!("{} ago", Many(seconds / unit, name)),
        None => "just now".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::super::{ROW_BYTES, Together, VERSION};
    use super::*;
    use crate::machine::Machine;

    #[test]
    fn figures_of_a_machine_whose_memory_differs_are_doubted_and_never_written_over() {
        let folder = tempfile::tempdir().unwrap();
        let store = Store::new(folder.path().to_owned());
        let machine = Machine::load("twisted-hypercube-8").unwrap();
        let with = |percent: u64| {
            let mut fingerprint = Fingerprint::of(&machine);
            fingerprint.nodes[2].memory_bytes = fingerprint.nodes[2].memory_bytes / 100 * percent;
            fingerprint
        };
        let keep = |fingerprint: Fingerprint, measured_s: u64| {
            let figures = Figures {
                version: VERSION,
                fingerprint,
                measured_s,
                took_s: 1.0,
                row_bytes: ROW_BYTES,
                nodes: Vec::new(),
                pairs: Vec::new(),
                links: Vec::new(),
                routes: Vec::new(),
                by_package: false,
                doubts: Vec::new(),
            };
            store.keep(&figures).unwrap()
        };
        let found = |percent: u64| {
            let kept = store.find(&with(percent));
            assert_eq!(kept.notes, Vec::<String>::new());
            (kept.figures.map(|(_, path)| path), kept.doubt.unwrap_or_default())
        };
        let first = keep(with(100), 1);
        assert_eq!(found(100), (Some(first.clone()), String::new()));
        assert_eq!(found(98), (Some(first.clone()), String::new()));
        let (file, doubt) = found(80);
        assert_eq!(file.as_ref(), Some(&first));
        let words = "measured when node 2 had 192.0 GiB, here 153.6: measure anew if modules changed";
        assert!(doubt.contains(words), "{doubt}");
        let (none, other) = found(70);
        assert!(none.is_none() && other.contains("in another state: node 2 has 192.0 GiB, here 134.4"), "{other}");
        // Either finds its own, be it older than the other's.
        let second = keep(with(80), 2);
        assert_ne!(second, first);
        assert_eq!(found(80), (Some(second), String::new()));
        assert_eq!(found(100), (Some(first.clone()), String::new()));
        assert_eq!(keep(with(98), 3), first, "another boot of the first one");
    }

    #[test]
    fn of_networks_that_connect_the_same_machines_the_newest_counts() {
        let folder = tempfile::tempdir().unwrap();
        let store = Store::new(folder.path().to_owned());
        let hosts = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
        for times in [[1, 2], [2, 1]] {
            for (names, measured_s) in [&["a", "b"][..], &["a", "b", "c"]].into_iter().zip(times) {
                let pairs = vec![[1e-3, 2e-6]; names.len() - 1];
                let together = Together { gb_s: 1.0, core_s_per_gb: 0.0 };
                let mut network = Network::of(hosts(names), 1_000_000, &pairs, together);
                network.measured_s = measured_s;
                store.keep_network(&network).unwrap();
            }
            let found = store.find_network(&hosts(&["a", "b"])).figures;
            assert_eq!(found.map(|(network, _)| network.measured_s), Some(2), "{times:?}");
        }
    }
}
