//! What ranks can prove about themselves: where the pages of their memory are, and what they have sent to each other.

use std::fmt;

use super::copies::HotState;
use super::{Rank, Ranks};
use crate::base::units::{Bytes, Many};
use crate::base::{RankId, Result};
use crate::collective::{Carrier, Links};
use crate::exchange::Traffic;
use crate::memory::Homes;

/// Where the pages of one region of a rank's memory are: of a shard, of its receive windows, of activations.
#[derive(Debug, Clone)]
pub struct Region {
    /// The rank.
    pub rank: RankId,
    /// What for.
    pub name: String,
    /// Its size.
    pub bytes: usize,
    /// Its pages, against the rank's nodes.
    pub homes: Homes,
}

/// Where the pages of all ranks are.
#[derive(Debug, Clone)]
pub struct Verified(pub Vec<Region>);

impl Verified {
    /// Whether every page is known to be where it should be.
    #[must_use]
    pub fn all_at_home(&self) -> bool {
        self.0.iter().all(|region| region.homes.all_at_home())
    }
}

impl fmt::Display for Verified {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let bytes = self.0.iter().map(|region| region.bytes as u64).sum();
        if self.all_at_home() {
            return write!(f, "{} on their nodes", Bytes(bytes));
        }
        let strays: Vec<_> = self.0.iter().filter(|region| !region.homes.all_at_home()).collect();
        write!(f, "of {} not all are known to be on their nodes", Bytes(bytes))?;
        // The rest is of the same kind.
        for Region { rank, name, homes, .. } in strays.iter().take(4) {
            write!(f, "; {rank}, {name}: {homes}")?;
        }
        if strays.len() > 4 { write!(f, "; and {} more", Many(strays.len() as u64 - 4, "region")) } else { Ok(()) }
    }
}

impl Rank {
    fn verify(&self) -> Result<Vec<Region>> {
        let copies = self.hot.as_ref().map(|hot| hot.memory.ask_regions()).transpose()?.unwrap_or_default();
        let regions = self.arena.ask_regions()?.into_iter().chain(copies);
        Ok(regions.map(|(name, bytes, homes)| Region { rank: self.context.rank, name, bytes, homes }).collect())
    }

    /// Bytes to each rank so far.
    fn sent(&self) -> Traffic<Vec<usize>> {
        let of = |lane: &dyn Carrier| lane.sent().to_vec();
        let (lanes, none) = (&self.lanes, vec![0; self.context.layout.ranks()]);
        let (mut dense_gradients, mut ordered) = (self.reduction.sent().so_far, none.clone());
        if self.context.layout.grains().is_some() {
            std::mem::swap(&mut dense_gradients, &mut ordered);
            let unpooled = lanes.unpooled.iter().flat_map(|lane| lane.sent());
            ordered.iter_mut().zip(unpooled).for_each(|(sum, bytes)| *sum += bytes);
        }
        let hot_gradients = self.hot.as_ref().and_then(|hot| hot.lanes.gradients.as_deref()).map(of);
        let hot_rows = self.hot.as_ref().map(|HotState { lanes, filled, .. }| {
            // What brings copies up to date is no step's.
            lanes.rows.sent().iter().zip(filled).map(|(sent, filled)| sent - filled).collect()
        });
        Traffic {
            ids: of(&*lanes.ids),
            pooled_rows: of(&*lanes.pooled),
            pooled_gradients: of(&*lanes.gradients),
            dense_gradients,
            ordered,
            hot_gradients: hot_gradients.unwrap_or_else(|| none.clone()),
            hot_rows: hot_rows.unwrap_or(none),
        }
    }
}

impl Ranks {
    /// Asks the kernel where every page of every rank's memory is: shards, receive windows, activations.
    ///
    /// # Errors
    /// As [`Ranks::all`], and when the kernel does not say.
    pub fn verify(&self) -> Result<Verified> {
        // That a kernel does not say is no reason to end the ranks.
        let regions = self.all(|rank| Ok(rank.verify()))?;
        Ok(Verified(regions.into_iter().collect::<Result<Vec<_>>>()?.concat()))
    }

    /// Bytes that ranks have sent to each other since they were started, evaluations included, but not what brings
    /// copies of hot rows up to date when weights were set, or after cold inputs.
    ///
    /// # Errors
    /// As [`Ranks::all`].
    pub fn traffic(&self) -> Result<Traffic> {
        let ranks = self.layout().ranks();
        let mut all = self.all(|rank| Ok(rank.sent()))?;
        let own: Vec<u64> =
            all.iter().flat_map(Traffic::parts).flat_map(|(_, sent)| sent).map(|bytes| *bytes as u64).collect();
        let sent: Vec<u64> = self.everywhere("gather bytes sent", own)?.concat();
        // Of each rank a row of each kind.
        let kinds = sent.len() / (ranks * ranks);
        let mut of_kinds = (0..kinds).map(|kind| {
            let row = |from: RankId| (from.index() * kinds + kind) * ranks;
            Links::from_fn(ranks, |from, to| sent[row(from) + to.index()] as usize)
        });
        Ok(all.swap_remove(0).map(|_| of_kinds.next().expect("every rank has all kinds")))
    }

    /// Bytes from each rank to each other in a step, as planned, for what every rank has a copy of.
    ///
    /// # Errors
    /// As [`Ranks::all`].
    pub fn dense_traffic(&self) -> Result<Links> {
        Ok(self.all(|rank| Ok(rank.reduction.sent().planned))?.swap_remove(0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_elsewhere_is_told_with_its_rank_and_region() {
        let region = |number: u32, at_home: usize| {
            let homes = Homes { pages: 3, at_home, unknown: 3 - at_home, ..Homes::default() };
            Region { rank: RankId(number), name: format!("rows of table {number}"), bytes: 3 << 12, homes }
        };
        let all = Verified(vec![region(0, 3), region(1, 3)]);
        assert!(all.all_at_home() && all.to_string().ends_with("on their nodes"), "{all}");
        let some = Verified(vec![region(0, 3), region(1, 2)]);
        let told = some.to_string();
        assert!(!some.all_at_home() && told.starts_with("of ") && told.contains("not all are known"), "{told}");
        assert!(told.contains("rank 1, rows of table 1: 2 of 3 pages at home") && !told.contains("table 0"), "{told}");
        for (strays, more) in [(4, None), (5, Some("1 region more")), (6, Some("2 regions more"))] {
            let told = Verified((0..strays).map(|number| region(number, 2)).collect()).to_string();
            assert_eq!(told.split_once("; and ").map(|(_, more)| more), more, "{told}");
        }
    }
}
