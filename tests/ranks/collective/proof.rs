//! The proof that a schedule computes what it claims: it is run on symbols instead of numbers.
//!
//! The symbol of a span is the list of terms that it is the sum of: how often each rank's own value is in it. Spans are
//! cut wherever any hop or slice begins or ends, so the proof costs as little for a gigabyte as for a line.

use std::collections::BTreeMap;
use std::ops::Range;

use octorec::base::RankId;
use octorec::collective::plan::{Exchange, Ring, direct, ring};
use octorec::collective::{Fold, Goal, Hop, Parcels, Payload, Schedule, Slices};

/// How often each rank's value is a term; `None` for memory that means nothing yet.
type Symbol = Option<Vec<u32>>;

fn overlap(a: &Range<usize>, b: &Range<usize>) -> bool {
    a.start.max(b.start) < a.end.min(b.end)
}

/// Whether the schedule reaches its goal whatever the timing.
///
/// # Errors
/// The first hop or span that is wrong, in words.
pub fn check(schedule: &Schedule) -> Result<(), String> {
    for (number, round) in schedule.rounds.iter().enumerate() {
        check_round(schedule, round).map_err(|reason| format!("round {}: {reason}", number + 1))?;
    }
    match &schedule.goal {
        Goal::ReduceScatter(slices) => check_tensor(schedule, slices, true, false),
        Goal::AllGather(slices) => check_tensor(schedule, slices, false, true),
        Goal::AllReduce(slices) => check_tensor(schedule, slices, true, true),
        Goal::AllToAll(parcels) => check_parcels(schedule, parcels),
    }
}

/// Within a round nothing depends on which hop is first, except that terms are added in the order of the hops.
fn check_round(schedule: &Schedule, round: &[Hop]) -> Result<(), String> {
    let in_place = !matches!(schedule.goal, Goal::AllToAll(_));
    for (index, hop) in round.iter().enumerate() {
        let Hop { from, to, source, target, .. } = hop;
        if from.index() >= schedule.ranks() || to.index() >= schedule.ranks() || source.len() != target.len() {
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

fn check_tensor(schedule: &Schedule, slices: &Slices, reduces: bool, gathers: bool) -> Result<(), String> {
    let ranks = schedule.ranks();
    let spans = schedule.rounds.iter().flatten().map(|hop| hop.source.clone());
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
    for round in &schedule.rounds {
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

/// Elements keep their names, whose they were and where they lay in that rank's send buffer, on all their way.
fn check_parcels(schedule: &Schedule, parcels: &Parcels) -> Result<(), String> {
    let mut moved = 0;
    let mut arrived: Vec<(RankId, Range<usize>)> = Vec::new();
    let mut transit = vec![Transit::default(); schedule.ranks()];
    let starts: Vec<_> = (0..schedule.ranks()).map(|rank| parcels.transit_starts(RankId(rank as u32))).collect();
    for round in &schedule.rounds {
        // What comes in a round can be sent on in the next.
        let mut comes = Vec::new();
        for hop in round {
            if hop.fold == Fold::Add {
                return Err(format!("{hop:?} adds what an all-to-all only moves"));
            }
            let [[sends, _], [_, receives]] = [hop.from, hop.to].map(|rank| starts[rank.index()]);
            let (sent, received) = (hop.source.end <= sends, hop.target.end <= receives);
            if !sent && hop.source.start < sends || !received && hop.target.start < receives {
                return Err(format!("{hop:?} is partly in transit"));
            }
            if hop.from == hop.to && !(sent && received) {
                return Err(format!("{hop:?} is in transit though it stays"));
            }
            let named = match sent {
                true => vec![Named { owner: hop.from, span: hop.source.clone() }],
                false => transit[hop.from.index()]
                    .read(hop.source.start - sends..hop.source.end - sends)
                    .ok_or_else(|| format!("{hop:?} sends what its sender does not have"))?,
            };
            let mut lands = hop.target.start;
            for Named { owner, span } in named {
                let end = lands + span.len();
                if received {
                    due(parcels, owner, hop, span, lands)?;
                } else {
                    comes.push((hop, lands - receives, Named { owner, span }));
                }
                lands = end;
            }
            if received {
                moved += hop.target.len();
                arrived.push((hop.to, hop.target.clone()));
            }
        }
        for (hop, at, named) in comes {
            transit[hop.to.index()].write(at, named).map_err(|()| format!("{hop:?} writes where others were"))?;
        }
    }
    arrived.sort_by_key(|(to, target)| (*to, target.start));
    for pair in arrived.windows(2) {
        let [(to, first), (other, second)] = pair else { unreachable!("windows of two") };
        if to == other && overlap(first, second) {
            return Err(format!("{to} receives elements {first:?} and {second:?}"));
        }
    }
    let due: usize = parcels.iter().map(|parcel| parcel.send.len()).sum();
    if moved == due { Ok(()) } else { Err(format!("{moved} elements move, {due} are due")) }
}

/// Elements of an owner's send buffer.
#[derive(Debug, Clone)]
struct Named {
    owner: RankId,
    span: Range<usize>,
}

/// Whether these elements are due where a hop brings them, from `lands` on.
fn due(parcels: &Parcels, owner: RankId, hop: &Hop, span: Range<usize>, mut lands: usize) -> Result<(), String> {
    let mut at = span.start;
    while at < span.end {
        let holds = parcels.between(owner, hop.to).find(|parcel| parcel.send.contains(&at));
        let Some(parcel) = holds else {
            return Err(format!("{hop:?} sends element {at} of {owner}, which is not due"));
        };
        if lands != parcel.receive.start + (at - parcel.send.start) {
            return Err(format!("{hop:?} puts element {at} of {parcel:?} at {lands}"));
        }
        let end = parcel.send.end.min(span.end);
        (at, lands) = (end, lands + end - at);
    }
    Ok(())
}

/// A rank's transit buffer: what lies there, by its first element. Each is written once, so that nothing is lost.
#[derive(Debug, Clone, Default)]
struct Transit(BTreeMap<usize, Named>);

impl Transit {
    fn write(&mut self, at: usize, named: Named) -> Result<(), ()> {
        let before = self.0.range(..at + named.span.len()).next_back();
        if before.is_some_and(|(start, other)| start + other.span.len() > at) {
            return Err(());
        }
        self.0.insert(at, named);
        Ok(())
    }

    /// What lies in a part of it; nothing if that is not all there.
    fn read(&self, part: Range<usize>) -> Option<Vec<Named>> {
        let mut at = part.start;
        let mut named = Vec::new();
        while at < part.end {
            let (start, found) = self.0.range(..=at).next_back()?;
            let end = (start + found.span.len()).min(part.end);
            if end <= at {
                return None;
            }
            let first = found.span.start + (at - start);
            named.push(Named { owner: found.owner, span: first..first + (end - at) });
            at = end;
        }
        Some(named)
    }
}

/// The schedule after a change must not pass.
fn refused(good: &Schedule, change: impl FnOnce(&mut Schedule), why: &str) {
    assert_eq!(check(good), Ok(()));
    let mut bad = good.clone();
    change(&mut bad);
    let reason = check(&bad).expect_err(why);
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
    let gather = direct(3).plan(&slices, Payload::F32).all_gather();
    refused(&gather, |bad| bad.rounds[0][0].source = 33..65, "goes nowhere");
    refused(&gather, |bad| bad.rounds[0][0].from = RankId(2), "reads what");
    let around = around.plan(&slices, Payload::F32).all_gather();
    refused(&around, |bad| bad.rounds.swap(0, 1), "does not have");
    let twice = |bad: &mut Schedule| bad.rounds[0].extend_from_within(..1);
    refused(&gather, twice, "write the same");

    let sources = [(RankId(1), vec![2, 3]), (RankId(0), vec![1, 4]), (RankId(1), vec![5, 0])];
    let plan = Exchange::ScatterList.plan(&Parcels::new(2, &sources), Payload::F32);
    refused(&plan, |bad| _ = bad.rounds[0].pop(), "are due");
    refused(&plan, |bad| bad.rounds[0][0].target = 4..6, "puts element");
    refused(&plan, |bad| bad.rounds[0][0].to = RankId(1), "not due");
    refused(&plan, |bad| bad.rounds.extend_from_within(..1), "receives elements");
    refused(&plan, |bad| bad.rounds[0][0].fold = Fold::Add, "only moves");
}

#[test]
fn wrong_relays_are_refused() {
    // Of 8 elements from 0 to 1 rank 2 relays 4, the last ones first; it has nothing of its own, and gets nothing.
    let parcels = Parcels::new(3, &[(RankId(0), vec![0, 8, 0])]);
    let hop = |from: u32, to: u32, source: Range<usize>, target: Range<usize>| {
        let [from, to] = [from, to].map(RankId);
        Hop { from, to, source, target, fold: Fold::Copy }
    };
    let first = vec![hop(0, 1, 0..4, 0..4), hop(0, 2, 6..8, 0..2), hop(0, 2, 4..6, 2..4)];
    let second = vec![hop(2, 1, 2..4, 4..6), hop(2, 1, 0..2, 6..8)];
    let plan = Schedule::new("by hand", Goal::AllToAll(parcels), Payload::Raw(4), vec![first, second]);
    assert_eq!((plan.transit_len(RankId(2)), plan.transit_len(RankId(1))), (4, 0));
    refused(&plan, |bad| bad.rounds.swap(0, 1), "does not have");
    let at_once = |bad: &mut Schedule| {
        let second = bad.rounds.remove(1);
        bad.rounds[0].extend(second);
    };
    refused(&plan, at_once, "does not have");
    refused(&plan, |bad| _ = bad.rounds[0].pop(), "does not have");
    refused(&plan, |bad| _ = bad.rounds[1].pop(), "are due");
    refused(&plan, |bad| bad.rounds[1][0].source = 0..2, "puts element");
    refused(&plan, |bad| bad.rounds[0][2].target = 1..3, "write the same");
    refused(&plan, |bad| bad.rounds[1].push(hop(0, 2, 4..6, 2..4)), "where others were");
    refused(&plan, |bad| bad.rounds[0][0].target = 6..10, "partly in transit");
    refused(&plan, |bad| bad.rounds[0].push(hop(0, 0, 0..2, 0..2)), "though it stays");
    // What is sent on twice arrives twice.
    refused(&plan, |bad| bad.rounds.extend_from_within(1..), "receives elements");
}
