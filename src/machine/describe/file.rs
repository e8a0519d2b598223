//! The shape of a description in TOML, each value with its place in the text so that errors can name the line.
//!
//! Only shape lives here: names, types, defaults. Whether the values make sense together is for `parse` and `check`.

use std::fmt;
use std::ops::RangeInclusive;

use serde::Deserialize;
use serde::de::{self, Deserializer, Visitor};
use toml::Spanned;

/// A matrix, every row and number with its place.
pub type Rows = Spanned<Vec<Spanned<Vec<Spanned<u32>>>>>;

/// A whole file.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct File {
    pub name: String,
    #[serde(default)]
    pub about: String,
    /// Distances, one row a node, nodes with cores first.
    pub distances: Option<Rows>,
    #[serde(default)]
    pub node: Vec<Spanned<NodeGroup>>,
    #[serde(default)]
    pub memory_only: Vec<Spanned<TierGroup>>,
    #[serde(default)]
    pub switch: Vec<Spanned<SwitchEntry>>,
    #[serde(default)]
    pub link: Vec<Spanned<LinkGroup>>,
    #[serde(default)]
    pub route: Vec<RouteEntry>,
}

/// Nodes that are alike.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NodeGroup {
    pub ids: Spanned<Ends>,
    pub cores: Spanned<usize>,
    pub smt: Option<Spanned<usize>>,
    pub nodes_per_package: Option<Spanned<u32>>,
    pub nodes_per_host: Option<Spanned<u32>>,
    pub host: Option<u32>,
    pub package: Option<u32>,
    pub l1_kib: Option<u64>,
    pub l2_kib: Option<u64>,
    /// Size of each last-level cache: one of all, or a list of as many as there are.
    pub l3_kib: Option<Spanned<Sizes>>,
    /// How many last-level caches a node has, of equally many cores.
    pub l3_groups: Option<Spanned<usize>>,
    /// Cores of each last-level cache, where they differ.
    pub l3_cores: Option<Spanned<Vec<usize>>>,
    pub memory_gib: Spanned<f64>,
    pub memory_gb_s: Option<Spanned<f64>>,
    pub copy_gb_s: Option<Spanned<f64>>,
    pub stream_copy_gb_s: Option<Spanned<f64>>,
    pub row_gb_s: Option<Spanned<f64>>,
    pub row_update_gb_s: Option<Spanned<f64>>,
    pub peak_f32_gflop_s: Option<Spanned<f64>>,
    pub peak_bf16_gflop_s: Option<Spanned<f64>>,
    /// Numbers of each core's hardware threads, where they do not follow Linux's usual order.
    pub pus: Option<Spanned<Vec<Vec<u32>>>>,
}

/// Memory-only nodes that are alike.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TierGroup {
    pub ids: Spanned<Ends>,
    pub memory_gib: Spanned<f64>,
    pub memory_gb_s: Option<Spanned<f64>>,
    pub near: Option<Spanned<Vec<u32>>>,
}

/// A switch.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SwitchEntry {
    pub name: String,
    pub oversubscription: Option<Spanned<f64>>,
}

/// Links that are alike.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LinkGroup {
    pub pairs: Vec<Spanned<[Ends; 2]>>,
    pub gb_s: Option<Spanned<f64>>,
    pub latency_ns: Option<Spanned<f64>>,
    pub core_s_per_gb: Option<Spanned<f64>>,
}

/// An explicit path.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RouteEntry {
    pub path: Spanned<Vec<Ends>>,
}

/// One or several ends: a number, a list of numbers in a string ("0-3,8"), or a switch's name. No number is named
/// twice; ranges stay ranges, so that a file takes no more memory than its text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Ends {
    Nodes(Vec<RangeInclusive<u32>>),
    Switch(String),
}

/// The size of all, or those of each.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Sizes {
    Alike(u64),
    Each(Vec<u64>),
}

impl<'de> Deserialize<'de> for Sizes {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        /// Untagged, so that neither form needs a name.
        #[derive(Deserialize)]
        #[serde(untagged)]
        enum Form {
            Alike(u64),
            Each(Vec<u64>),
        }
        match Form::deserialize(deserializer) {
            Ok(Form::Alike(kib)) => Ok(Self::Alike(kib)),
            Ok(Form::Each(kib)) => Ok(Self::Each(kib)),
            Err(_) => Err(de::Error::custom("a number of KiB or a list of such numbers is expected")),
        }
    }
}

/// Node numbers are below this: the kernel's own limit.
const NODES_MAX: u32 = 1024;

impl Ends {
    fn from_text(text: &str) -> Result<Self, String> {
        if text.starts_with(|first: char| first.is_ascii_alphabetic()) {
            return Ok(Self::Switch(text.to_owned()));
        }
        let number = |digits: &str| {
            digits.trim().parse::<u32>().ok().filter(|number| *number < NODES_MAX).ok_or_else(|| {
                format!("`{text}` is neither a switch's name nor node numbers below {NODES_MAX} like \"0-3,8\"")
            })
        };
        let mut nodes = Vec::new();
        for part in text.split(',') {
            let (first, last) = part.split_once('-').unwrap_or((part, part));
            let (first, last) = (number(first)?, number(last)?);
            if first > last {
                return Err(format!("`{part}` goes backwards: write {last}-{first}"));
            }
            nodes.push(first..=last);
        }
        let mut ascending: Vec<(u32, u32)> = nodes.iter().map(|range| (*range.start(), *range.end())).collect();
        ascending.sort_unstable();
        match ascending.windows(2).find(|two| two[1].0 <= two[0].1) {
            Some(two) => Err(format!("{} is named twice", two[1].0)),
            None => Ok(Self::Nodes(nodes)),
        }
    }
}

impl<'de> Deserialize<'de> for Ends {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Ear;
        impl Visitor<'_> for Ear {
            type Value = Ends;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "a node number, numbers like \"0-3,8\", or a switch's name")
            }
            fn visit_i64<E: de::Error>(self, number: i64) -> Result<Ends, E> {
                Ends::from_text(&number.to_string()).map_err(E::custom)
            }
            fn visit_str<E: de::Error>(self, text: &str) -> Result<Ends, E> {
                Ends::from_text(text).map_err(E::custom)
            }
        }
        deserializer.deserialize_any(Ear)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ends_are_numbers_ranges_or_names() {
        assert_eq!(Ends::from_text("0-3,8"), Ok(Ends::Nodes(vec![0..=3, 8..=8])));
        assert_eq!(Ends::from_text("leaf0"), Ok(Ends::Switch("leaf0".to_owned())));
        assert!(Ends::from_text("3-1").is_err_and(|reason| reason.contains("write 1-3")));
        for twice in ["2,0-3", "0-3,2", "2,2", "0-1023,0-1023"] {
            assert!(Ends::from_text(twice).is_err_and(|reason| reason.ends_with(" is named twice")), "{twice}");
        }
        assert!(Ends::from_text("-1").is_err());
        assert!(Ends::from_text("0-4000000000").is_err());
        assert!(Ends::from_text("").is_err());
    }
}
