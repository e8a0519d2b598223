//! What goes directly, what by way of relays, and when: a linear program.
//!
//! Time is cut into phases. A phase lasts until its busiest resource (a direction of a link, a memory) has moved its
//! load; all together are as short as possible. What is relayed gets to its relay in one phase and leaves it in a later
//! one. Of the divisions that are equally short, one with few detours and with messages of even sizes is taken:
//! messages that share a resource get even parts of it, so that an uneven phase ends with resources that nobody fills.
//!
//! Or two phases are alike: half of what goes from one place to another goes in each, as far as relays allow that.
//! Their program has one phase, in which relays send on what they get, and is solved much sooner. Whoever shares a
//! resource in one phase then shares it in the other as well, and places have in both the same part of what they have
//! to do, so that few wait at the end of the first for the second. Where more is relayed between two places than goes
//! directly, phases differ there, and take longer than the program says.
//!
//! Source: the concurrent flow of Basu et al., Efficient all-to-all collective communication schedules for
//! direct-connect topologies, arXiv 2309.13541, for machines whose routes are fixed, so that only relays can leave
//! them.

use std::collections::BTreeMap;

use microlp::{ComparisonOp, LinearExpr, OptimizationDirection, Problem, Variable};

/// A smaller share of a demand is rounding.
const LEAST_SHARE: f64 = 1e-6;

/// Resources that a unit takes, and how much of each.
pub(super) type Takes = Vec<(usize, f64)>;

/// Units that must get from one place to another.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Demand {
    pub(super) from: usize,
    pub(super) to: usize,
    /// How many.
    pub(super) amount: f64,
    /// What each takes on its direct way.
    pub(super) direct: Takes,
    /// By way of which places they could go, and what each takes to get there and from there.
    pub(super) relays: Vec<(usize, [Takes; 2])>,
}

/// How a part of a demand goes.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Way {
    /// Directly, in this phase.
    Direct(usize),
    /// By way of a place, in these phases.
    By(usize, [usize; 2]),
}

/// Parts of a demand that are 1 together.
pub(super) type Division = Vec<(Way, f64)>;

/// What decides among divisions that are equally short.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Taste {
    /// How many phases there are; 1: two that are alike.
    pub(super) phases: usize,
    /// The cost of each wire of a leg beyond its first: a message over one link keeps it full until its end.
    pub(super) wire: f64,
    /// The cost of relaying.
    pub(super) relay: f64,
    /// The cost of the longest message of each phase; 0: messages may have any sizes, which is solved much sooner.
    pub(super) longest: f64,
}

impl Taste {
    /// Rounds of what is divided so.
    pub(super) const fn rounds(self) -> usize {
        if self.phases == 1 { 2 } else { self.phases }
    }
}

/// The division of each demand, and the time of all phases; nothing when the solver finds none. `rates`: how much of
/// each resource there is in a unit of time; the first `wires` resources are links.
pub(super) fn divide(demands: &[Demand], rates: &[f64], wires: usize, taste: Taste) -> Option<(Vec<Division>, f64)> {
    // Numbers near 1, as the solver likes them.
    let amounts = demands.iter().map(|demand| demand.amount).fold(0.0, f64::max);
    let shares = demands.iter().flat_map(|demand| demand.direct.iter().map(|(_, share)| *share));
    let unit = rates.iter().copied().fold(0.0, f64::max) / shares.fold(0.0, f64::max);
    let any = (0.0, f64::INFINITY);
    let mut problem = Problem::new(OptimizationDirection::Minimize);
    let lengths: Vec<Variable> = (0..taste.phases).map(|_| problem.add_var(1.0, any)).collect();
    let longest: Vec<Variable> = (0..taste.phases).map(|_| problem.add_var(taste.longest, any)).collect();
    let mut loads = vec![vec![LinearExpr::empty(); rates.len()]; taste.phases];
    let mut messages: BTreeMap<(usize, usize, usize), LinearExpr> = BTreeMap::new();
    let mut parts: Vec<Vec<(Way, Variable)>> = Vec::with_capacity(demands.len());
    let later = usize::from(taste.phases > 1);
    for demand in demands {
        // A variable for each way: its legs with their phase, ends and resources.
        let mut part = |way: Way, legs: &[(usize, usize, usize, &Takes)]| {
            let crosses = |takes: &Takes| takes.iter().filter(|(resource, _)| *resource < wires).count();
            let more = legs.iter().map(|(.., takes)| crosses(takes).saturating_sub(1)).sum::<usize>();
            let cost = taste.wire * more as f64 + taste.relay * (legs.len() - 1) as f64;
            let variable = problem.add_var(cost, any);
            let mut all: BTreeMap<(usize, usize), f64> = BTreeMap::new();
            for &(phase, from, to, takes) in legs {
                takes.iter().for_each(|(resource, share)| *all.entry((phase, *resource)).or_default() += share);
                // What stays with its place makes nobody else wait.
                if from != to {
                    messages.entry((phase, from, to)).or_insert_with(LinearExpr::empty).add(variable, 1.0);
                }
            }
            for ((phase, resource), share) in all {
                loads[phase][resource].add(variable, share * unit / rates[resource]);
            }
            (way, variable)
        };
        let Demand { from, to, direct, relays, .. } = demand;
        let phases = 0..taste.phases;
        let mut ways: Vec<_> =
            phases.clone().map(|phase| part(Way::Direct(phase), &[(phase, *from, *to, direct)])).collect();
        for (relay, [first, second]) in relays {
            for (there, on) in phases.clone().flat_map(|there| (there + later..taste.phases).map(move |on| (there, on)))
            {
                let legs = [(there, *from, *relay, first), (on, *relay, *to, second)];
                ways.push(part(Way::By(*relay, [there, on]), &legs));
            }
        }
        parts.push(ways);
    }
    for (demand, ways) in demands.iter().zip(&parts) {
        let all: Vec<_> = ways.iter().map(|(_, part)| (*part, 1.0)).collect();
        problem.add_constraint(all, ComparisonOp::Eq, demand.amount / amounts);
    }
    if taste.longest > 0.0 {
        for ((phase, ..), mut message) in messages {
            message.add(longest[phase], -1.0);
            problem.add_constraint(message, ComparisonOp::Le, 0.0);
        }
    }
    for (loads, length) in loads.into_iter().zip(&lengths) {
        for mut load in loads {
            load.add(*length, -1.0);
            problem.add_constraint(load, ComparisonOp::Le, 0.0);
        }
    }
    let solution = problem.solve().ok()?.into_solution().ok()?;
    let time = lengths.iter().map(|length| solution[*length]).sum::<f64>() * amounts / unit;
    let division = |ways: &Vec<(Way, Variable)>| -> Division {
        let all: f64 = ways.iter().map(|(_, part)| solution[*part].max(0.0)).sum();
        let shares = ways.iter().map(|(way, part)| (*way, solution[*part].max(0.0) / all));
        shares.filter(|(_, share)| *share > LEAST_SHARE).collect()
    };
    let divisions: Vec<Division> = parts.iter().map(division).collect();
    Some((if taste.phases == 1 { in_two(demands, divisions) } else { divisions }, time))
}

/// Divisions of one phase in two: half of what goes from one place to another in each, of which what gets to relays is
/// in the first and what they send on in the second.
fn in_two(demands: &[Demand], divisions: Vec<Division>) -> Vec<Division> {
    // Of each pair of places what is relayed in the first phase and in the second, and what is not.
    let mut between: BTreeMap<(usize, usize), [f64; 3]> = BTreeMap::new();
    let mut add = |from, to, part: usize, amount| between.entry((from, to)).or_default()[part] += amount;
    for (Demand { from, to, amount, .. }, division) in demands.iter().zip(&divisions) {
        for (way, share) in division {
            match *way {
                Way::Direct(_) => add(*from, *to, 2, share * amount),
                Way::By(relay, _) => {
                    add(*from, relay, 0, share * amount);
                    add(relay, *to, 1, share * amount);
                }
            }
        }
    }
    let divide = |(Demand { from, to, .. }, division): (&Demand, Division)| {
        let parts = division.into_iter().flat_map(|(way, share)| match way {
            Way::Direct(_) => {
                let [first, second, direct] = between[&(*from, *to)];
                let early = (0.5 + (second - first) / (2.0 * direct)).clamp(0.0, 1.0);
                [(Way::Direct(0), share * early), (Way::Direct(1), share * (1.0 - early))]
            }
            Way::By(relay, _) => [(Way::By(relay, [0, 1]), share), (Way::By(relay, [0, 1]), 0.0)],
        });
        parts.filter(|(_, share)| *share > LEAST_SHARE).collect()
    };
    demands.iter().zip(divisions).map(divide).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const EVEN: Taste = Taste { phases: 2, wire: 1e-4, relay: 0.0, longest: 1e-3 };

    fn amount(division: &Division, wanted: impl Fn(&Way) -> bool) -> f64 {
        division.iter().filter(|(way, _)| wanted(way)).map(|(_, share)| share).sum()
    }

    #[test]
    fn a_relay_takes_half_where_its_way_is_as_wide() {
        // Wires 0 and 1 lead directly; 2 leads to the relay and 3 on.
        let demand = Demand {
            from: 0,
            to: 1,
            amount: 10.0,
            direct: vec![(0, 1.0)],
            relays: vec![(2, [vec![(1, 1.0)], vec![(2, 1.0)]])],
        };
        // Directly all the time; half of the time to the relay, half of the time on from there: 2 / 3 and 1 / 3.
        let (divisions, time) = divide(&[demand], &[1.0; 3], 3, EVEN).expect("solved");
        assert!((time - 20.0 / 3.0).abs() < 1e-6, "{time}");
        assert!((amount(&divisions[0], |way| matches!(way, Way::By(2, [0, 1]))) - 1.0 / 3.0).abs() < 1e-6);
    }

    #[test]
    fn phases_are_alike_where_that_is_wanted() {
        // The relay has parcels of its own, on wires that are twice as wide: 6 of 10 go directly, 4 by way of it.
        let leg = |wire: usize| vec![(wire, 1.0)];
        let demand = |from, to, amount, direct, relays| Demand { from, to, amount, direct, relays };
        let demands = [
            demand(0, 1, 10.0, leg(0), vec![(2, [leg(1), leg(2)])]),
            demand(0, 2, 8.0, leg(1), Vec::new()),
            demand(2, 1, 8.0, leg(2), Vec::new()),
        ];
        let (divisions, time) = divide(&demands, &[1.0, 2.0, 2.0], 3, Taste { phases: 1, ..EVEN }).expect("solved");
        assert!((time - 6.0).abs() < 1e-6, "{time}");
        // On each wire half of its load in each phase.
        let early = [(0, 0.3), (1, 0.25), (2, 0.75)];
        for (at, share) in early {
            let found = amount(&divisions[at], |way| *way == Way::Direct(0));
            assert!((found - share).abs() < 1e-6, "{divisions:?}");
        }
        assert!((amount(&divisions[0], |way| *way == Way::By(2, [0, 1])) - 0.4).abs() < 1e-6, "{divisions:?}");
    }

    /// Two demands on one wire, each with a relay of its own: all shares on a grid are tried.
    #[test]
    fn no_division_on_a_grid_is_shorter() {
        let mut number = 5_u64;
        let mut random = |below: u64| {
            number = number.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            ((number >> 33) % below) as f64
        };
        for _ in 0..60 {
            let rates: Vec<f64> = (0..5).map(|_| 1.0 + random(5)).collect();
            let demand = |at: usize, amount: f64| Demand {
                from: at,
                to: 2,
                amount,
                direct: vec![(0, 1.0)],
                relays: vec![(3 + at, [vec![(1 + 2 * at, 1.0)], vec![(2 + 2 * at, 1.0)]])],
            };
            let demands = [demand(0, 1.0 + random(4)), demand(1, 1.0 + random(4))];
            let (divisions, time) = divide(&demands, &rates, 5, EVEN).expect("solved");
            // What is divided so takes as long.
            let mut loads = [[0.0; 5]; 2];
            for (demand, division) in demands.iter().zip(&divisions) {
                assert!((amount(division, |_| true) - 1.0).abs() < 1e-6);
                for (way, share) in division {
                    match way {
                        Way::Direct(phase) => loads[*phase][0] += share * demand.amount,
                        Way::By(relay, [first, second]) => {
                            assert!(first < second);
                            loads[*first][2 * relay - 5] += share * demand.amount;
                            loads[*second][2 * relay - 4] += share * demand.amount;
                        }
                    }
                }
            }
            let length =
                |loads: &[f64; 5]| loads.iter().zip(&rates).map(|(load, rate)| load / rate).fold(0.0, f64::max);
            let found: f64 = loads.iter().map(length).sum();
            assert!((found - time).abs() < 1e-5 * time, "{found} {time}");
            const STEPS: usize = 40;
            let grid = (0..=STEPS).flat_map(|a| (0..=STEPS).map(move |b| [a, b]));
            let best = grid.map(|relayed| {
                let relayed: Vec<f64> =
                    (0..2).map(|at| relayed[at] as f64 / STEPS as f64 * demands[at].amount).collect();
                let legs = |leg: usize| (0..2).map(|at| relayed[at] / rates[1 + 2 * at + leg]).fold(0.0, f64::max);
                let direct: f64 = (0..2).map(|at| demands[at].amount - relayed[at]).sum();
                (legs(0) + legs(1)).max(direct / rates[0])
            });
            let best = best.fold(f64::INFINITY, f64::min);
            assert!(time <= best * (1.0 + 1e-6) && time >= best * 0.9, "{time} {best}");
        }
    }
}
