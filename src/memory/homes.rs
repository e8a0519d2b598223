//! Where pages really are, as the kernel answers, against where they should be.
//!
//! `mbind` returning 0 proves nothing about pages: one that exists already stays where it is. Only the question for
//! each page does (`move_pages` without targets; see `ffi::numa`).

use std::collections::BTreeMap;
use std::fmt;

use crate::base::{NodeId, Result};
use crate::ffi::linux::HUGE_PAGE_BYTES;
use crate::ffi::numa::{PageHome, nodes_of_pages};

/// Bytes asked about in one call, so that the answer of a large arena needs no large memory itself.
const SPAN_BYTES: usize = 64 << 20;

/// What became of the pages of one piece of memory.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Homes {
    /// All pages that were asked about, not each one of large memory.
    pub pages: usize,
    /// Those on a wanted node.
    pub at_home: usize,
    /// Those on another node, counted by node.
    pub elsewhere: BTreeMap<NodeId, usize>,
    /// Offset in bytes of the first page that is on another node.
    pub first_elsewhere: Option<usize>,
    /// Pages without memory: nobody has touched them, or they are swapped out.
    pub untouched: usize,
    /// Pages for which the kernel gave no answer.
    pub unknown: usize,
}

impl Homes {
    /// Asks for the pages of `start..start + len`; none is touched or moved. Of large memory it asks for one page in
    /// each huge page's place, which one thread has touched: for each of a terabyte's pages the kernel takes minutes.
    ///
    /// # Errors
    /// [`crate::base::Error::System`] when the kernel refuses the call.
    pub fn ask(start: *const u8, len: usize, wanted: &[NodeId]) -> Result<Self> {
        let mut homes = Self::default();
        for offset in (0..len).step_by(SPAN_BYTES) {
            let span = SPAN_BYTES.min(len - offset);
            let step = if len > SPAN_BYTES { HUGE_PAGE_BYTES } else { 1 };
            homes.count(offset, span, &nodes_of_pages(start.wrapping_add(offset), span, step)?, wanted);
        }
        Ok(homes)
    }

    fn count(&mut self, offset: usize, span: usize, answers: &[PageHome], wanted: &[NodeId]) {
        let page = if answers.is_empty() { 0 } else { span.div_ceil(answers.len()) };
        self.pages += answers.len();
        for (number, answer) in answers.iter().enumerate() {
            match answer {
                PageHome::Node(node) if wanted.contains(node) => self.at_home += 1,
                PageHome::Node(node) => {
                    *self.elsewhere.entry(*node).or_default() += 1;
                    self.first_elsewhere.get_or_insert(offset + number * page);
                }
                PageHome::Untouched => self.untouched += 1,
                PageHome::Unknown(_) => self.unknown += 1,
            }
        }
    }

    /// Whether every page is known to be on a wanted node.
    #[must_use]
    pub const fn all_at_home(&self) -> bool {
        self.at_home == self.pages
    }
}

impl fmt::Display for Homes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} of {} pages at home", self.at_home, self.pages)?;
        if let Some(first) = self.first_elsewhere {
            let wrong: usize = self.elsewhere.values().sum();
            let nodes = self.elsewhere.iter().map(|(node, count)| format!("{count} on {node}"));
            let nodes = nodes.collect::<Vec<_>>().join(", ");
            write!(f, "; {wrong} elsewhere, the first at offset {first:#x} ({nodes})")?;
        }
        if self.untouched > 0 {
            write!(f, "; {} untouched", self.untouched)?;
        }
        if self.unknown > 0 {
            write!(f, "; {} unknown", self.unknown)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_elsewhere_are_counted_and_the_first_is_found() {
        let mut homes = Homes::default();
        let at = |node| PageHome::Node(NodeId(node));
        homes.count(0, 3 << 12, &[at(1), at(1), at(2)], &[NodeId(1), NodeId(2)]);
        assert!(homes.all_at_home());
        assert_eq!(homes.to_string(), "3 of 3 pages at home");
        homes.count(3 << 12, 5 << 12, &[at(1), at(7), at(0), at(7), PageHome::Untouched], &[NodeId(1)]);
        homes.count(8 << 12, 1 << 12, &[PageHome::Unknown(16)], &[NodeId(1)]);
        assert!(!homes.all_at_home());
        let report = "4 of 9 pages at home; 3 elsewhere, the first at offset 0x4000 (1 on node 0, 2 on node 7); \
                      1 untouched; 1 unknown";
        assert_eq!(homes.to_string(), report);
    }
}
