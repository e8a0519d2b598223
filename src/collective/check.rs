//! The proof that a schedule computes what it claims: it is run on symbols instead of numbers.
//!
//! The symbol of a span is the list of terms that it is the sum of: how often each rank's own value is in it. Spans are
//! cut wherever any hop or slice begins or ends, so the proof costs as little for a gigabyte as for a line.

use std::ops::Range;

use super::parcels::Parcels;
use super::schedule::{Fold, Goal, Hop, Schedule};
use super::slices::Slices;
use crate::base::RankId;

/// How often each rank's value is a term; `None` for memory that means nothing yet.
type Symbol = Option<Vec<u32>>;

fn overlap(a: &Range<usize>, b: &Range<usize>) -> bool {
    a.start.max(b.start) < a.end.min(b.end)
}

impl Schedule {
    /// Whether the schedule reaches its goal whatever the timing.
    ///
    /// # Errors
    /// The first hop or span that is wrong, in words.
    pub fn check(&self) -> Result<(), String> {
        for (number, round) in self.rounds.iter().enumerate() {
            self.check_round(round).map_err(|reason| format!("round {}: {reason}", number + 1))?;
        }
        match &self.goal {
            Goal::ReduceScatter(slices) => self.check_tensor(slices, true, false),
            Goal::AllGather(slices) => self.check_tensor(slices, false, true),
            Goal::AllReduce(slices) => self.check_tensor(slices, true, true),
            Goal::AllToAll(parcels) => self.check_parcels(parcels),
        }
    }

    /// Within a round nothing depends on which hop is first, except that terms are added in the order of the hops.
    fn check_round(&self, round: &[Hop]) -> Result<(), String> {
        let in_place = !matches!(self.goal, Goal::AllToAll(_));
        for (index, hop) in round.iter().enumerate() {
            let Hop { from, to, source, target, .. } = hop;
            if from.index() >= self.ranks() || to.index() >= self.ranks() || source.len() != target.len() {
                return Err(format!("{hop:?} has no such rank or spans of different lengths"));
            }
            if source.is_empty() || in_place && (from == to || source != target) {
                return Err(format!("{hop:?} goes nowhere, or elsewhere in the tensor"));
            }
            for other in &round[index + 1..] {
                let both_add = hop.fold == Fold::Add && other.fold == Fold::Add;
                if !both_add && *to == other.to && overlap(target, &other.target) {
                    return Err(format!("{hop:?} and {other:?} write the same elements"));
                }
            }
            let read = |other: &&Hop| other.from == *to && overlap(&other.source, target);
            if let Some(other) = round.iter().find(read).filter(|_| in_place) {
                return Err(format!("{other:?} reads what {hop:?} writes"));
            }
        }
        Ok(())
    }

    fn check_tensor(&self, slices: &Slices, reduces: bool, gathers: bool) -> Result<(), String> {
        let ranks = self.ranks();
        let spans = self.rounds.iter().flatten().map(|hop| hop.source.clone());
        let spans = spans.chain((0..ranks).map(|rank| slices.slice(rank)));
        let mut cuts: Vec<usize> = spans.flat_map(|span| [span.start, span.end]).collect();
        cuts.sort_unstable();
        cuts.dedup();
        let atoms = |span: &Range<usize>| {
            let at = |cut| cuts.binary_search(&cut).expect("every end of a span is a cut");
            if span.is_empty() { 0..0 } else { at(span.start)..at(span.end) }
        };
        let unit = |rank: usize| Some((0..ranks).map(|other| u32::from(other == rank)).collect::<Vec<_>>());
        let mut memory: Vec<Vec<Symbol>> = vec![vec![None; cuts.len()]; ranks];
        for (rank, symbols) in memory.iter_mut().enumerate() {
            let own = if reduces { 0..cuts.len() } else { atoms(&slices.slice(rank)) };
            symbols[own].fill(unit(rank));
        }
        for round in &self.rounds {
            let before = memory.clone();
            for hop in round {
                for atom in atoms(&hop.source) {
                    let (sent, here) = (&before[hop.from.index()][atom], &mut memory[hop.to.index()][atom]);
                    let Some(sent) = sent else { return Err(format!("{hop:?} sends what its sender does not have")) };
                    match (hop.fold, here) {
                        (Fold::Copy, here) => *here = Some(sent.clone()),
                        (Fold::Add, Some(here)) => here.iter_mut().zip(sent).for_each(|(here, sent)| *here += sent),
                        (Fold::Add, None) => return Err(format!("{hop:?} adds to nothing")),
                    }
                }
            }
        }
        for (owner, slice) in (0..ranks).map(|rank| (rank, slices.slice(rank))) {
            let wanted = if reduces { Some(vec![1; ranks]) } else { unit(owner) };
            for rank in (0..ranks).filter(|&rank| gathers || rank == owner) {
                for atom in atoms(&slice) {
                    let found = &memory[rank][atom];
                    if *found != wanted {
                        let owner = RankId(owner as u32);
                        let at = cuts[atom];
                        return Err(format!(
                            "element {at} of {owner} ends as {found:?} at rank {rank}; {wanted:?} is claimed"
                        ));
                    }
                }
            }
        }
        Ok(())
    }

    fn check_parcels(&self, parcels: &Parcels) -> Result<(), String> {
        let mut moved = 0;
        let mut targets: Vec<(RankId, Range<usize>)> = Vec::new();
        for hop in self.rounds.iter().flatten() {
            let mut at = hop.source.start;
            while at < hop.source.end {
                let holds = parcels.between(hop.from, hop.to).find(|parcel| parcel.send.contains(&at));
                let Some(parcel) = holds else { return Err(format!("{hop:?} sends element {at}, which is not due")) };
                let lands = hop.target.start + (at - hop.source.start);
                if lands != parcel.receive.start + (at - parcel.send.start) {
                    return Err(format!("{hop:?} puts element {at} of {parcel:?} at {lands}"));
                }
                at = parcel.send.end.min(hop.source.end);
            }
            moved += hop.source.len();
            targets.push((hop.to, hop.target.clone()));
        }
        targets.sort_by_key(|(to, target)| (*to, target.start));
        for pair in targets.windows(2) {
            let [(to, first), (other, second)] = pair else { unreachable!("windows of two") };
            if to == other && overlap(first, second) {
                return Err(format!("{to} receives elements {first:?} and {second:?}"));
            }
        }
        let due: usize = parcels.iter().map(|parcel| parcel.send.len()).sum();
        if moved == due { Ok(()) } else { Err(format!("{moved} elements move, {due} are due")) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::collective::Payload;
    use crate::collective::plan::{Exchange, Ring, direct, ring};

    /// The schedule after a change must not pass.
    fn refused(good: &Schedule, change: impl FnOnce(&mut Schedule), why: &str) {
        assert_eq!(good.check(), Ok(()));
        let mut bad = good.clone();
        change(&mut bad);
        let reason = bad.check().expect_err(why);
        assert!(reason.contains(why), "{reason}");
    }

    #[test]
    fn wrong_schedules_are_refused() {
        let slices = Slices::of(&[32, 16, 48]);
        let around = ring(&Ring::of(3));
        let ring = around.plan(&slices, Payload::F32).all_reduce();
        refused(&ring, |bad| _ = bad.rounds[1].pop(), "is claimed");
        refused(&ring, |bad| bad.rounds.swap(0, 1), "is claimed");
        refused(&ring, |bad| bad.rounds[2][0].fold = Fold::Add, "is claimed");
        refused(&ring, |bad| bad.rounds[0][0].to = RankId(7), "no such rank");
        refused(&ring, |bad| bad.rounds[0][0].target.start += 1, "different lengths");
        let at_once = |bad: &mut Schedule| {
            let second = bad.rounds.remove(1);
            bad.rounds[0].extend(second);
        };
        refused(&ring, at_once, "reads what");
        let gather = direct(3).plan(&slices, Payload::F32).reversed();
        refused(&gather, |bad| bad.rounds[0][0].source = 33..65, "goes nowhere");
        refused(&gather, |bad| bad.rounds[0][0].from = RankId(2), "reads what");
        let around = around.plan(&slices, Payload::F32).reversed();
        refused(&around, |bad| bad.rounds.swap(0, 1), "does not have");
        let twice = |bad: &mut Schedule| bad.rounds[0].extend_from_within(..1);
        refused(&gather, twice, "write the same");

        let sources = [(RankId(1), vec![2, 3]), (RankId(0), vec![1, 4]), (RankId(1), vec![5, 0])];
        let plan = Exchange::ScatterList.plan(&Parcels::new(2, &sources), Payload::F32);
        refused(&plan, |bad| _ = bad.rounds[0].pop(), "are due");
        refused(&plan, |bad| bad.rounds[0][0].target = 4..6, "puts element");
        refused(&plan, |bad| bad.rounds[0][0].to = RankId(1), "not due");
        refused(&plan, |bad| bad.rounds.extend_from_within(..1), "receives elements");
    }
}
