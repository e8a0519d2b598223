//! What was simulated: a step's time, how much of it ranks compute, and what of each exchange they wait for.

use std::collections::BTreeMap;

use serde_json::Value;

use super::build::STEPS;
use crate::base::named;
use crate::machine::fluid::{Flowed, Fluid};
use crate::model::Stage;
use crate::train::trace::{complete, document, name, names};

named! {
    /// What ranks exchange. Where bytes are counted, those of replicated tables' gradients are among dense gradients:
    /// see [`crate::exchange::Traffic`].
    pub enum MessageKind {
        /// Ids of rows.
        Ids = "ids",
        /// Pooled rows.
        PooledRows = "pooled rows",
        /// Gradients of pooled rows.
        Gradients = "gradients of pooled rows",
        /// Sums of hot rows' gradients.
        HotGradients = "hot rows' gradients",
        /// Hot rows that moved.
        HotRows = "hot rows",
        /// Gradients of replicated tables.
        ReplicaGradients = "replicated tables' gradients",
        /// Gradients of layers, and moved weights.
        DenseGradients = "dense gradients",
    }
}

/// What an activity is.
#[derive(Debug, Clone, Copy)]
pub(super) enum Label {
    /// A stage of a rank, or a part of one.
    Stage {
        rank: usize,
        stage: Stage,
        step: usize,
        /// Seconds if nobody else takes of what it takes, and links are endlessly fast.
        alone_s: f64,
        /// Set if it is a message at the same time.
        sends: Option<MessageKind>,
        wait: Option<Wait>,
        /// Whether it is work on replicated tables, which each rank has a copy of.
        is_replicated: bool,
    },
    /// A message to some ranks of one host, the first of which is named, on its way while its senders compute. Where it
    /// takes turns with the reduction of layers, it could have begun after `ready`.
    Way { to: usize, receivers: usize, step: usize, kind: MessageKind, ready: Option<usize> },
    /// The end of a layer's reduction on a rank, which began with another activity.
    Layer { rank: usize, step: usize, layer: usize, began: usize },
}

/// What a stage waits for, once the rank's activity before has ended.
#[derive(Debug, Clone, Copy)]
pub(super) struct Wait {
    pub kind: MessageKind,
    pub after: Option<usize>,
}

/// What a step takes; means over ranks.
#[derive(Debug, Clone)]
pub struct Outcome {
    /// From the end of a step to the end of the next.
    pub step_s: f64,
    /// Of which ranks compute.
    pub compute_s: f64,
    /// By [`Stage::ALL`]: seconds of each stage on the rank where it takes longest, without waiting.
    pub stages_s: [f64; Stage::ALL.len()],
    /// Of [`Stage::UpdateRows`] there, those of replicated tables.
    replicated_s: f64,
    /// By [`MessageKind::ALL`]: seconds that ranks wait, or write slower than their memory allows.
    pub exposed_s: [f64; MessageKind::ALL.len()],
    /// Seconds of exchanges while ranks compute.
    pub hidden_s: [f64; MessageKind::ALL.len()],
    /// Each resource with the share of the time in which it is busy, the busiest first.
    pub busy: Vec<(String, f64)>,
    /// The same, as far as exchanges keep them busy.
    exchanging: Vec<(String, f64)>,
    spans: Vec<TraceSpan>,
}

#[derive(Debug, Clone)]
struct TraceSpan {
    name: String,
    category: &'static str,
    place: [usize; 2],
    time_s: [f64; 2],
    number: u64,
}

impl Outcome {
    pub(super) fn of(
        fluid: &Fluid,
        labels: &[Option<Label>],
        ends: &[Vec<usize>],
        resource: &dyn Fn(usize) -> String,
    ) -> Self {
        let flowed = fluid.run();
        let ranks = ends[0].len();
        let end_s = |step: usize| ends[step].iter().map(|end| flowed[*end].gone_s).fold(0.0, f64::max);
        let counted = (STEPS - 1) as f64;
        let (mut stages, mut replicated) = (vec![[0.0; Stage::ALL.len()]; ranks], vec![0.0; ranks]);
        let (mut compute_s, mut exposed_s, mut total_s) =
            (0.0, [0.0; MessageKind::ALL.len()], [0.0; MessageKind::ALL.len()]);
        let mut spans = Vec::new();
        // By step, from when to when lists for replicated tables let layers go before.
        let turns = labels.iter().zip(&flowed).filter_map(|(label, at)| match label {
            Some(Label::Way { step, ready: Some(ready), .. }) => Some((*step, [flowed[*ready].gone_s, at.began_s])),
            _ => None,
        });
        let turns: BTreeMap<usize, [f64; 2]> = turns.collect();
        // By the first receiver and kind.
        let mut under_way = BTreeMap::<(usize, usize), UnderWay>::new();
        for (label, at) in labels.iter().zip(&flowed) {
            let Some(label) = *label else { continue };
            spans.extend(span(label, &flowed, at));
            let first = match label {
                Label::Stage { step, .. } | Label::Way { step, .. } | Label::Layer { step, .. } => step == 0,
            };
            if first {
                continue;
            }
            let took_s = at.gone_s - at.began_s;
            match label {
                Label::Stage { rank, stage, step, alone_s, sends, wait, is_replicated } => {
                    let own_s = if sends.is_some() { took_s.min(alone_s) } else { took_s };
                    compute_s += own_s;
                    stages[rank][stage as usize] += own_s / counted;
                    replicated[rank] += if is_replicated { own_s / counted } else { 0.0 };
                    if let Some(kind) = sends {
                        exposed_s[kind as usize] += took_s - own_s;
                    }
                    if let Some(Wait { kind, after }) = wait {
                        let since_s = after.map_or(0.0, |after| flowed[after].gone_s);
                        // Whoever waits for lists waits for the layers that go before them.
                        let turn = turns.get(&step).filter(|_| kind == MessageKind::ReplicaGradients);
                        let layers_s = turn.map_or(0.0, |[ready_s, began_s]| {
                            (began_s.min(at.began_s) - ready_s.max(since_s)).max(0.0)
                        });
                        exposed_s[kind as usize] += at.began_s - since_s - layers_s;
                        exposed_s[MessageKind::DenseGradients as usize] += layers_s;
                    }
                }
                Label::Way { to, receivers, kind, .. } => {
                    let all = under_way.entry((to, kind as usize)).or_default();
                    all.receivers = receivers;
                    all.times.push([at.began_s, at.arrived_s]);
                }
                Label::Layer { began, .. } => {
                    total_s[MessageKind::DenseGradients as usize] += at.gone_s - flowed[began].gone_s;
                }
            }
        }
        for ((_, kind), UnderWay { receivers, times }) in under_way {
            total_s[kind] += receivers as f64 * covered(times);
        }
        let each = 1.0 / (counted * ranks as f64);
        // Layers of the last step are still reduced when its ranks have ended their walk.
        let whole_s = flowed.iter().map(|at| at.gone_s).fold(f64::MIN_POSITIVE, f64::max);
        let shares = |taken: Vec<f64>| {
            let shares = taken.into_iter().zip(fluid.rates()).enumerate();
            let mut shares: Vec<(String, f64)> =
                shares.map(|(at, (taken, rate))| (resource(at), taken / rate / whole_s)).collect();
            shares.sort_by(|a, b| b.1.total_cmp(&a.1));
            shares
        };
        let computes = |number: usize| matches!(labels[number], Some(Label::Stage { sends: None, .. }));
        let exchanging = shares(fluid.taken_by(|number| !computes(number)));
        let updates = stages.iter().map(|rank| rank[Stage::UpdateRows as usize]).zip(replicated);
        let replicated_s = updates.reduce(|a, b| if b.0 > a.0 { b } else { a }).map_or(0.0, |(_, seconds)| seconds);
        let stages_s = std::array::from_fn(|stage| stages.iter().map(|rank| rank[stage]).fold(0.0, f64::max));
        Self {
            step_s: (end_s(STEPS - 1) - end_s(0)) / counted,
            compute_s: compute_s * each,
            stages_s,
            replicated_s,
            exposed_s: exposed_s.map(|all| all * each),
            hidden_s: std::array::from_fn(|kind| ((total_s[kind] - exposed_s[kind]) * each).max(0.0)),
            busy: shares(fluid.taken()),
            exchanging,
            spans,
        }
    }

    /// The mean of steps of which a share is another: of hot and cold inputs that take turns. Its timeline stays this
    /// one's.
    #[must_use]
    pub fn mixed(self, other: &Self, share: f64) -> Self {
        let mean = |own: f64, others: f64| (1.0 - share) * own + share * others;
        let step_s = mean(self.step_s, other.step_s);
        let shares = |of: fn(&Self) -> &Vec<(String, f64)>| {
            let share = |outcome: &Self, name: &str| {
                let found = of(outcome).iter().find(|(own, _)| own == name);
                found.map_or(0.0, |(_, share)| share * outcome.step_s / step_s)
            };
            let names = of(&self).iter().map(|(name, _)| name);
            let mut shares: Vec<(String, f64)> =
                names.map(|name| (name.clone(), mean(share(&self, name), share(other, name)))).collect();
            shares.sort_by(|a, b| b.1.total_cmp(&a.1));
            shares
        };
        let [busy, exchanging] = [shares(|outcome| &outcome.busy), shares(|outcome| &outcome.exchanging)];
        Self {
            step_s,
            compute_s: mean(self.compute_s, other.compute_s),
            stages_s: std::array::from_fn(|stage| mean(self.stages_s[stage], other.stages_s[stage])),
            replicated_s: mean(self.replicated_s, other.replicated_s),
            exposed_s: std::array::from_fn(|kind| mean(self.exposed_s[kind], other.exposed_s[kind])),
            hidden_s: std::array::from_fn(|kind| mean(self.hidden_s[kind], other.hidden_s[kind])),
            busy,
            exchanging,
            spans: self.spans,
        }
    }

    /// What limits the step, in words.
    #[must_use]
    pub fn bottleneck(&self) -> String {
        let exposed: f64 = self.exposed_s.iter().sum();
        let longest = MessageKind::ALL.into_iter().max_by(|a, b| {
            let [a, b] = [a, b].map(|kind| self.exposed_s[*kind as usize]);
            a.total_cmp(&b)
        });
        let kind = longest.expect("there are kinds of messages");
        if exposed > 0.1 * self.step_s {
            // What exchanges keep busy for much less than ranks wait is not what they wait for. Those that copy are
            // busy whenever links and memories are, so these are to blame first.
            let least = 0.5 * self.exposed_s[kind as usize] / self.step_s;
            let named = |starts: &[&str]| {
                let is_one = |name: &String| starts.iter().any(|start| name.starts_with(start));
                self.exchanging.iter().find(|(name, share)| *share >= least && is_one(name))
            };
            let shared = [&["link", "memory"][..], &["communication cores"], &["compute cores"]];
            let shared = shared.into_iter().find_map(named);
            let Some((name, _)) = shared else { return format!("{}: ranks wait for each other", kind.name()) };
            let busy = self.busy.iter().find(|(own, _)| own == name).map_or(0.0, |(_, share)| *share);
            return format!("{} on {name} ({:.0} % busy)", kind.name(), busy * 1e2);
        }
        let all = Stage::ALL.into_iter().max_by(|a, b| {
            let [a, b] = [a, b].map(|stage| self.stages_s[*stage as usize]);
            a.total_cmp(&b)
        });
        let stage = all.expect("a step has stages");
        let seconds = self.stages_s[stage as usize];
        let most = stage == Stage::UpdateRows && self.replicated_s > 0.5 * seconds;
        let of = if most { ", most of it of replicated tables" } else { "" };
        format!("{} ({:.0} % of the step{of})", stage.name(), seconds / self.step_s * 1e2)
    }

    /// A timeline for Perfetto.
    #[must_use]
    pub fn trace(&self) -> String {
        let ranks = self.spans.iter().map(|span| span.place[0] + 1).max().unwrap_or(0);
        let mut events: Vec<Value> = (0..ranks).flat_map(names).collect();
        events.extend((0..ranks).map(|rank| name("thread_name", rank, 1, "communication cores")));
        events.extend((0..ranks).map(|rank| name("thread_name", rank, 2, "messages to this rank")));
        events.extend(self.spans.iter().map(|span| {
            let TraceSpan { name, category, place, time_s, number } = span;
            complete(name, category, *place, *time_s, ("step", *number))
        }));
        document(events)
    }
}

/// Messages of a kind to the ranks of a host.
#[derive(Default)]
struct UnderWay {
    receivers: usize,
    /// When each is on its way.
    times: Vec<[f64; 2]>,
}

/// Seconds that lie in some of these times.
fn covered(mut times: Vec<[f64; 2]>) -> f64 {
    times.sort_by(|a, b| a[0].total_cmp(&b[0]));
    let add = |(seconds, until): (f64, f64), [begins, ends]: [f64; 2]| {
        (seconds + (ends - begins.max(until)).max(0.0), until.max(ends))
    };
    times.into_iter().fold((0.0, 0.0), add).0
}

fn span(label: Label, flowed: &[Flowed], at: &Flowed) -> Option<TraceSpan> {
    let (name, category, place, began_s, end_s, step) = match label {
        Label::Stage { rank, stage, step, .. } => {
            (stage.name().to_owned(), "stage", [rank, 0], at.began_s, at.gone_s, step)
        }
        Label::Way { to, step, kind, .. } => {
            (kind.name().to_owned(), "communication", [to, 2], at.began_s, at.arrived_s, step)
        }
        Label::Layer { rank, step, layer, began } => {
            (format!("reduce layer {layer}"), "communication", [rank, 1], flowed[began].gone_s, at.gone_s, step)
        }
    };
    let time_s = [began_s, end_s - began_s];
    (time_s[1] > 0.0).then(|| TraceSpan { name, category, place, time_s, number: step as u64 + 1 })
}
