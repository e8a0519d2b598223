//! How the dense gradients of a run are reduced: as the user says, or by the schedule that is predicted to be the
//! quickest, and, where that may change bits from run to run, was found to be.

use std::fmt;

use serde::Serialize;

use super::machines::Everyone;
use crate::base::config::{Collective, Config, Precision, TrainConfig, Wire, WireChoice};
use crate::base::units::Many;
use crate::base::{Error, Result};
use crate::collective::plan::Reduction;
use crate::collective::{MOST_COMPARED, Priced, Reduced, candidates, priced};
use crate::data::Schema;
use crate::machine::site::Known;
use crate::machine::{Machine, Site};
use crate::model::{LayerShape, Shape};

/// Candidates that are tried beside each other, at most.
const TRIED: usize = 3;
/// Among many ranks on machines with unequal numbers of them, those that are compared.
const UNEVEN: [&str; 3] = ["two-ring", "direct", "halving-doubling"];
/// Prices of figures that were measured are right within this much.
const DOUBT: f64 = 1.3;

/// How dense gradients are to be reduced.
#[derive(Debug, Clone, Default)]
pub enum Dense {
    /// As the configuration says; where it leaves the choice, by price and, if the run may depend on time, by trial.
    #[default]
    Chosen,
    /// The same without trials.
    Priced,
    /// So, whatever else.
    Given(Reduction),
}

/// What was chosen, and why.
#[derive(Debug, Clone, Serialize)]
pub struct Choice {
    schedule: &'static str,
    #[serde(skip)]
    why: Why,
    /// Whose figures the prices are.
    figures: String,
    /// The chosen one first.
    candidates: Vec<Candidate>,
    #[serde(skip)]
    assumed: bool,
    /// Whether there are too many ranks for others to be compared.
    #[serde(skip)]
    many: bool,
    /// Which machine stands in the way of a schedule for machines.
    #[serde(skip)]
    uneven: Option<String>,
}

/// Why a schedule is taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Why {
    Cheapest,
    Asked,
    Kept,
}

/// A schedule that could be taken.
#[derive(Debug, Clone, Serialize)]
pub struct Candidate {
    schedule: &'static str,
    #[serde(skip)]
    reduction: Reduction,
    /// Milliseconds of a step in which gradients are reduced and weights gathered, nothing hidden.
    predicted_ms: f64,
    /// Milliseconds of a step with small tables, where it was tried.
    #[serde(skip_serializing_if = "Option::is_none")]
    step_ms: Option<f64>,
}

/// What is taken for the layers of this model among these ranks; `kept` is what the run has taken until now, with which
/// it goes on unless somebody says otherwise.
///
/// # Errors
/// When the configuration names a schedule that these machines do not allow.
pub fn choose(config: &Config, schema: &Schema, everyone: &Everyone, kept: Option<&str>) -> Result<Choice> {
    let Everyone { machine, placement, .. } = everyone;
    let site = Site::new(machine, placement, Known::default());
    let (wanted, uneven) = (config.train.collective, uneven(&everyone.counts));
    let named = |name: &str| candidates(Some(name), &site);
    let kept = kept.filter(|_| wanted == Collective::Auto).map(named).filter(|kept| !kept.is_empty());
    let (why, candidates) = match (kept, wanted) {
        (Some(kept), _) => (Why::Kept, kept),
        // Of machines with unequal numbers of ranks the usual schedule is but one of those that may suit.
        (None, Collective::Auto) if uneven.is_some() && site.ranks.len() > MOST_COMPARED => {
            (Why::Cheapest, UNEVEN.into_iter().flat_map(named).collect())
        }
        (None, Collective::Auto) => (Why::Cheapest, candidates(None, &site)),
        (None, asked) => (Why::Asked, named(asked.name())),
    };
    if candidates.is_empty() {
        return Err(impossible(wanted));
    }
    let payload = config.wires().dense.into();
    let shape = Shape::of(&config.model, &schema.positions(&config.model), &config.model.dims(&schema.rows()));
    let tensors = tensors(&shape, config.model.layer_precision(config.train.precision));
    let candidate = |Priced { reduction, seconds }| Candidate {
        schedule: reduction.name,
        reduction,
        predicted_ms: seconds * 1e3,
        step_ms: None,
    };
    let candidates: Vec<_> = priced(candidates, &tensors, payload, &site).into_iter().map(candidate).collect();
    let figures = figures(machine, &site);
    let assumed = !site.assumptions.is_empty();
    let many = why == Why::Cheapest && site.ranks.len() > MOST_COMPARED;
    let uneven = uneven.filter(|_| why == Why::Cheapest);
    Ok(Choice { schedule: candidates[0].schedule, why, figures, candidates, assumed, many, uneven })
}

/// The first machine that has another number of ranks than most.
fn uneven(counts: &[usize]) -> Option<String> {
    let most = counts.iter().max_by_key(|count| counts.iter().filter(|other| other == count).count())?;
    let (machine, count) = counts.iter().enumerate().find(|(_, count)| *count != most)?;
    Some(format!(
        "machine {machine} has {} and others {most}: as many on each (--ranks) would allow hierarchical",
        Many(*count as u64, "rank")
    ))
}

/// What several ranks do by themselves with pooled rows and their gradients.
pub(super) fn rows_note(config: &Config) -> Option<&'static str> {
    let is_chosen = config.train.wire == WireChoice::Auto && config.wires().rows == Wire::Bf16;
    is_chosen.then_some("rows and their gradients: bf16 between ranks, as layers multiply (--wire f32: whole)")
}

/// What one rank has no use for, of what the configuration says of the exchange among several.
pub(super) fn idle(train: &TrainConfig) -> Vec<String> {
    let collective = (train.collective != Collective::Auto).then(|| ("train.collective", train.collective.name()));
    let wire = (train.wire == WireChoice::Bf16).then_some(("train.wire", "bf16"));
    let told = |(key, name)| format!("one rank exchanges nothing: {key} = \"{name}\" changes nothing");
    collective.into_iter().chain(wire).map(told).collect()
}

/// A schedule is named that these machines do not allow.
pub(super) fn impossible(wanted: Collective) -> Error {
    let reason = match wanted {
        Collective::Hierarchical => format!(
            "{} is for several machines with equally many ranks: leave the choice to octorec (--collective auto), or start as \
             many ranks on each machine",
            wanted.name()
        ),
        _ => format!(
            "{} finds no way along the links of this machine, or nothing to gain there: leave the choice to octorec \
             (--collective auto)",
            wanted.name()
        ),
    };
    Error::config("train.collective", reason)
}

/// The layers of a model as they are sent.
pub(super) fn tensors(shape: &Shape, precision: Precision) -> Vec<Reduced> {
    let tensor = |layer: LayerShape| Reduced {
        gradients: layer.parameters(),
        words: layer.weights() * precision.bytes() / size_of::<f32>() + layer.biases,
    };
    shape.layers().map(|layer| tensor(layer.shape)).collect()
}

/// Whose figures prices are, in a few words.
fn figures(machine: &Machine, site: &Site) -> String {
    match &machine.measured {
        Some(measured) => format!("figures measured {measured}"),
        None if machine.is_this_system && !site.assumptions.is_empty() => "figures assumed, not measured".to_owned(),
        None => format!("figures as described for {}", machine.name),
    }
}

impl Choice {
    /// What is taken.
    #[must_use]
    pub fn reduction(&self) -> &Reduction {
        &self.candidates[0].reduction
    }

    /// Those that a trial must tell apart: prices of measured figures that differ by little, and any that were priced
    /// with assumptions. None where there is nothing to choose.
    #[must_use]
    pub fn doubtful(&self) -> Vec<Reduction> {
        let most = if self.assumed { f64::INFINITY } else { self.candidates[0].predicted_ms * DOUBT };
        let near = self.candidates.iter().take(TRIED).take_while(|candidate| candidate.predicted_ms <= most);
        let near: Vec<_> = near.map(|candidate| candidate.reduction.clone()).collect();
        if near.len() < 2 { Vec::new() } else { near }
    }

    /// The name of what is taken.
    #[must_use]
    pub const fn schedule(&self) -> &'static str {
        self.schedule
    }

    /// Takes the one of this name, if it is there.
    pub fn take(&mut self, name: &[u8]) {
        if let Some(at) = self.candidates.iter().position(|candidate| candidate.schedule.as_bytes() == name) {
            self.candidates[..=at].rotate_right(1);
            self.schedule = self.candidates[0].schedule;
        }
    }

    /// Notes what a step of the first candidates has taken; returns the name of the quickest.
    pub fn tried(&mut self, steps_ms: &[f64]) -> &'static str {
        self.candidates.iter_mut().zip(steps_ms).for_each(|(candidate, ms)| candidate.step_ms = Some(*ms));
        let tried = self.candidates.iter().zip(steps_ms);
        tried.min_by(|a, b| a.1.total_cmp(b.1)).map_or(self.schedule, |(quickest, _)| quickest.schedule)
    }
}

/// A number with three digits at least that say something.
fn figure(ms: f64) -> String {
    let digits = if ms >= 0.1 { 2 } else { 4 };
    format!("{ms:.digits$}")
}

impl fmt::Display for Choice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "dense gradients: {}", self.schedule)?;
        f.write_str(match self.why {
            Why::Cheapest => "",
            Why::Asked => ", as asked",
            Why::Kept => ", as the plan says",
        })?;
        let [first, others @ ..] = &self.candidates[..] else { return Ok(()) };
        write!(f, ", {} ms a step predicted", figure(first.predicted_ms))?;
        if self.many && self.uneven.is_none() {
            write!(f, " (others are compared among at most {MOST_COMPARED} ranks)")?;
        }
        let list = |number: fn(&Candidate) -> Option<f64>, all: &[Candidate]| {
            let told = all.iter().filter_map(|other| Some(format!("{} {}", other.schedule, figure(number(other)?))));
            told.collect::<Vec<_>>().join(", ")
        };
        if !others.is_empty() {
            write!(f, " ({})", list(|other| Some(other.predicted_ms), others))?;
        }
        write!(f, "; {}", self.figures)?;
        self.uneven.as_ref().map_or(Ok(()), |uneven| write!(f, "; {uneven}"))?;
        if first.step_ms.is_some() {
            write!(f, "; ms of a step with small tables: {}", list(|tried| tried.step_ms, &self.candidates))?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::schema::Column;
    use crate::machine::cluster::cluster;
    use crate::machine::placement::{Wishes, place};

    #[test]
    fn many_ranks_on_unequal_machines_choose_among_several_schedules_and_say_why_not_hierarchical() {
        let machine = Machine::load("twisted-hypercube-8").unwrap();
        let part = |ranks: usize| {
            let wishes = Wishes { ranks: Some(ranks), threads: Some(1), ..Wishes::default() };
            (machine.clone(), place(&machine, &wishes).unwrap())
        };
        let parts: Vec<_> = (0..9).map(|number| part(if number == 4 { 7 } else { 8 })).collect();
        let counts = parts.iter().map(|(_, placement)| placement.ranks.len()).collect();
        let (machine, placement) = cluster(&parts, None);
        let schema = Schema { dense: 13, weighted: false, tables: vec![Column::new("a", 50)] };
        let choice = choose(&Config::default(), &schema, &Everyone { machine, placement, counts }, None)
            .expect("it is possible");
        let mut names: Vec<_> = choice.candidates.iter().map(|candidate| candidate.schedule).collect();
        names.sort_unstable();
        assert_eq!(names, ["direct", "halving-doubling", "two-ring"]);
        let told = choice.to_string();
        assert!(told.contains("machine 4 has 7 ranks and others 8: as many on each (--ranks)"), "{told}");
        assert!(uneven(&[8, 8]).is_none() && uneven(&[3]).is_none());
    }

    #[test]
    fn every_planner_can_be_asked_for() {
        let names = Collective::ALL.map(Collective::name);
        assert_eq!(names[0], "auto");
        let (mut names, mut planners) = (names[1..].to_vec(), Reduction::NAMES.to_vec());
        names.sort_unstable();
        planners.sort_unstable();
        assert_eq!(names, planners, "each in the list of the configuration and in that of planners");
    }
}
