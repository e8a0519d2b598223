//! Relations over a whole machine that no single value can break alone.
//!
//! One piece, no link twice, routes along links, oversubscription as the links say, distances symmetric and in the
//! order of hops. Each complaint names the line and the broken relation.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use super::file::Rows;
use super::hosts::Hosts;
use super::parse::Source;
use super::{End, LOCAL_DISTANCE, Machine};
use crate::base::{NodeId, Result};
use crate::machine::routes::Routes;

/// No machine has more links, so that a few ranges in a text cannot ask for all memory.
const LINKS_MOST: usize = 1 << 16;
/// Ends that all routes pass together, at most, for the same reason.
const STEPS_MOST: usize = 1 << 22;

/// Where in the text things are described, and what was described so far.
#[derive(Debug, Default)]
pub struct Places {
    pub nodes: BTreeMap<NodeId, Range<usize>>,
    pub switches: Vec<Range<usize>>,
    /// Links that take of cores, by their positions.
    pub worked: Vec<(usize, Range<usize>)>,
    linked: BTreeSet<(End, End)>,
    routed: BTreeSet<(End, End)>,
    steps: usize,
}

/// A link that is to be added.
pub fn link(
    source: &Source<'_>,
    machine: &Machine,
    places: &mut Places,
    [from, to]: [End; 2],
    place: &Range<usize>,
) -> Result<()> {
    let (a, b) = (|| machine.end_name(from), || machine.end_name(to));
    if from == to {
        return Err(source.at(place, format!("a link joins {} with itself", a())));
    }
    if !places.linked.insert((from.min(to), from.max(to))) {
        let reason = format!("{} and {} are linked twice: add up the bandwidths of both links", a(), b());
        return Err(source.at(place, reason));
    }
    if places.linked.len() > LINKS_MOST {
        return Err(source.at(place, format!("more than {LINKS_MOST} links: join what is far apart by switches")));
    }
    Ok(())
}

/// Links that take of cores, once all links are there: only those of a machine to what lies outside of it do.
pub fn worked(source: &Source<'_>, machine: &Machine, places: &Places) -> Result<()> {
    let hosts = Hosts::of(machine);
    for (link, place) in &places.worked {
        let link = &machine.links[*link];
        let reason = match link.ends {
            _ if hosts.has_inside(link) => "both ends are one machine's",
            [End::Switch(_), End::Switch(_)] => "between two switches there is no machine",
            _ => continue,
        };
        let reason = format!("core_s_per_gb is what the network takes of a machine's cores, and {reason}");
        return Err(source.at(place, reason));
    }
    Ok(())
}

/// Links and switches together.
pub fn graph(source: &Source<'_>, machine: &Machine, places: &Places) -> Result<()> {
    one_piece(source, machine, places)?;
    oversubscription(source, machine, places)
}

fn one_piece(source: &Source<'_>, machine: &Machine, places: &Places) -> Result<()> {
    let mut near = BTreeMap::<End, Vec<End>>::new();
    for [a, b] in machine.links.iter().map(|link| link.ends) {
        near.entry(a).or_default().push(b);
        near.entry(b).or_default().push(a);
    }
    let start = End::Node(machine.nodes[0].id);
    let mut reached = BTreeSet::from([start]);
    let mut edge = vec![start];
    while let Some(end) = edge.pop() {
        for other in near.get(&end).into_iter().flatten() {
            if reached.insert(*other) {
                edge.push(*other);
            }
        }
    }
    let all = machine.nodes.iter().map(|node| End::Node(node.id)).chain((0..machine.switches.len()).map(End::Switch));
    let apart: Vec<End> = all.filter(|end| !reached.contains(end)).collect();
    let Some(first) = apart.first() else { return Ok(()) };
    let place = match first {
        End::Node(id) => &places.nodes[id],
        End::Switch(position) => &places.switches[*position],
    };
    let names: Vec<String> = apart.iter().map(|end| machine.end_name(*end)).collect();
    let home = machine.end_name(start);
    Err(source.at(place, format!("the links leave the machine in pieces: {home} cannot reach {}", names.join(", "))))
}

/// A route that is to be added, once all links are there.
pub fn route(
    source: &Source<'_>,
    machine: &Machine,
    places: &mut Places,
    path: &[End],
    place: &Range<usize>,
) -> Result<()> {
    // First, since a path that is far too long was cut anywhere.
    if path.iter().collect::<BTreeSet<_>>().len() < path.len() || path.len() < 2 {
        return Err(source.at(place, "a route joins two nodes and passes nothing twice"));
    }
    let (Some(first @ End::Node(_)), Some(last @ End::Node(_))) = (path.first(), path.last()) else {
        return Err(source.at(place, "a route begins and ends at a node"));
    };
    for step in path.windows(2) {
        if !places.linked.contains(&(step[0].min(step[1]), step[0].max(step[1]))) {
            let (a, b) = (machine.end_name(step[0]), machine.end_name(step[1]));
            return Err(source.at(place, format!("the route goes from {a} to {b}, but no link joins them")));
        }
    }
    if !places.routed.insert((*first.min(last), *first.max(last))) {
        let (a, b) = (machine.end_name(*first), machine.end_name(*last));
        return Err(source.at(place, format!("a second route between {a} and {b}")));
    }
    places.steps += path.len();
    if places.steps > STEPS_MOST {
        let reason =
            format!("routes pass more than {STEPS_MOST} ends together: leave out those that are the shortest ways");
        return Err(source.at(place, reason));
    }
    Ok(())
}

fn oversubscription(source: &Source<'_>, machine: &Machine, places: &Places) -> Result<()> {
    for (position, (switch, place)) in machine.switches.iter().zip(&places.switches).enumerate() {
        let Some(wanted) = switch.oversubscription else { continue };
        let [mut down, mut up] = [0.0, 0.0];
        for link in machine.links.iter().filter(|link| link.ends.contains(&End::Switch(position))) {
            let between = link.ends.iter().all(|end| matches!(end, End::Switch(_)));
            *if between { &mut up } else { &mut down } += link.gb_s.unwrap_or(0.0);
        }
        let name = &switch.name;
        if up == 0.0 || (down / up - wanted).abs() > 0.01 * wanted {
            return Err(source.at(
                place,
                format!(
                    "switch `{name}`: oversubscription = {wanted}, but its links carry {down} GB/s down and {up} up"
                ),
            ));
        }
    }
    Ok(())
}

/// The distance matrix as plain numbers.
pub fn distances(source: &Source<'_>, machine: &Machine, routes: &Routes, rows: &Rows) -> Result<Vec<Vec<u32>>> {
    let ids = &machine.distances.ids;
    let count = ids.len();
    if rows.get_ref().len() != count {
        let reason = format!("distances has {} rows for {count} nodes", rows.get_ref().len());
        return Err(source.at(&rows.span(), reason));
    }
    for (row, id) in rows.get_ref().iter().zip(ids) {
        if row.get_ref().len() != count {
            let reason = format!("the distances of {id} are {} numbers for {count} nodes", row.get_ref().len());
            return Err(source.at(&row.span(), reason));
        }
    }
    let cell = |from: usize, to: usize| &rows.get_ref()[from].get_ref()[to];
    let value = |from: usize, to: usize| *cell(from, to).get_ref();
    // The nearest and the farthest pair of each hop count so far, with their cells.
    let mut of_hops = BTreeMap::<usize, [(u32, usize, usize); 2]>::new();
    for from in 0..count {
        for to in 0..count {
            let (a, b, distance) = (ids[from], ids[to], value(from, to));
            let place = cell(from, to).span();
            if from == to && distance != LOCAL_DISTANCE {
                let reason = format!("{a} is at distance {distance} from itself: it must be {LOCAL_DISTANCE}");
                return Err(source.at(&place, reason));
            }
            if from != to && distance <= LOCAL_DISTANCE {
                let reason = format!("{b} is at distance {distance} from {a}: another node is beyond {LOCAL_DISTANCE}");
                return Err(source.at(&place, reason));
            }
            if value(to, from) != distance {
                let back = value(to, from);
                let reason = format!("asymmetric: {a} to {b} is {distance}, {b} to {a} is {back}");
                return Err(source.at(&place, reason));
            }
            let Some(hops) = routes.shortest_hops(a, b).filter(|_| from < to) else { continue };
            let here = (distance, from, to);
            let ends = of_hops.entry(hops).or_insert([here, here]);
            ends[0] = ends[0].min(here);
            ends[1] = ends[1].max(here);
        }
    }
    for ((fewer, near), (more, far)) in of_hops.iter().zip(of_hops.iter().skip(1)) {
        let ((high, a, b), (low, c, d)) = (near[1], far[0]);
        if high > low {
            let reason = format!(
                "distances contradict the links: {} to {} is {low} over {more} hops, but {} to {} is {high} over {fewer}",
                ids[c], ids[d], ids[a], ids[b]
            );
            return Err(source.at(&cell(c, d).span(), reason));
        }
    }
    Ok((0..count).map(|from| (0..count).map(|to| value(from, to)).collect()).collect())
}
