//! Messages of pooled rows, their gradients and ids: between ranks of a host and between hosts.

use std::collections::BTreeMap;

use super::build::{Builder, Extra};
use super::outcome::{Label, MessageKind};
use crate::base::RankId;
use crate::machine::fluid::{Activity, After};
use crate::model::Stage;

/// Bytes of a message, and the seconds of its sender's cores and memory.
pub(super) type Sent = (f64, [f64; 2]);

/// A message between hosts that waits to be sent.
struct Staged {
    number: usize,
    from: usize,
    to: usize,
    bytes: f64,
}

impl Builder<'_> {
    /// Messages of a kind from each rank to each other, the next one first; `work` gives the bytes, and the seconds of
    /// cores and memory.
    pub(super) fn exchange(&mut self, kind: MessageKind, stage: Stage, work: impl Fn(&Self, usize, usize) -> Sent) {
        let ranks = self.ranks();
        let mut between: BTreeMap<[u32; 2], Vec<Staged>> = BTreeMap::new();
        for step in 1..ranks {
            for from in 0..ranks {
                let to = (from + step) % ranks;
                let sent = work(self, from, to);
                let hosts = [from, to].map(|rank| self.place(rank).host);
                if sent.0 > 0.0 && hosts[0] == hosts[1] {
                    self.write(kind, stage, [from, to], sent);
                } else if sent.0 > 0.0 {
                    let staged = self.stage_message(stage, [from, to], sent);
                    between.entry(hosts).or_default().push(staged);
                }
            }
        }
        for ([_, host], staged) in between {
            self.send(kind, host, &staged);
        }
    }

    /// The wires from one rank to another, for a fluid whose unit is a byte of them.
    pub(super) fn wires(&self, [from, to]: [usize; 2]) -> &[usize] {
        self.site.path(RankId(from as u32), RankId(to as u32))
    }

    /// A message that a rank's compute cores write into another rank's window.
    fn write(&mut self, kind: MessageKind, stage: Stage, [from, to]: [usize; 2], (bytes, [alone_s, memory_s]): Sent) {
        let mut takes: Vec<(usize, f64)> = self.wires([from, to]).iter().map(|wire| (*wire, 1.0)).collect();
        takes.push((self.pool(to), 1.0));
        let latency_s = self.site.latency_s(RankId(from as u32), RankId(to as u32));
        let extra = Extra { bytes, takes, latency_s, kind: Some(kind) };
        let number = self.walk(from, stage, alone_s / self.scene.rates.of(stage), memory_s, extra, None);
        self.walkers[to].comes[kind as usize].push(After::Arrived(number));
    }

    /// A message to another host is staged in its sender's memory.
    fn stage_message(&mut self, stage: Stage, [from, to]: [usize; 2], (bytes, seconds): Sent) -> Staged {
        let [alone_s, memory_s] = seconds.map(|seconds| seconds + bytes / self.copied(from));
        let number = self.walk(from, stage, alone_s / self.scene.rates.of(stage), memory_s, Extra::default(), None);
        Staged { number, from, to, bytes }
    }

    /// What the ranks of one host have for those of another travels as one message, as soon as all of it is staged.
    fn send(&mut self, kind: MessageKind, host: u32, staged: &[Staged]) {
        let amount: f64 = staged.iter().map(|staged| staged.bytes).sum();
        let (mut takes, mut latency_s) = (BTreeMap::<usize, f64>::new(), 0.0);
        for Staged { from, to, bytes, .. } in staged {
            let part = bytes / amount;
            let mut take = |resource: usize, times: f64| *takes.entry(resource).or_default() += times * part;
            self.wires([*from, *to]).iter().for_each(|wire| take(*wire, 1.0));
            take(self.pool(*from), 1.0);
            take(self.pool(*to), 1.0);
            let core_s = self.site.core_s(RankId(*from as u32), RankId(*to as u32));
            for (rank, core_s) in [*from, *to].into_iter().zip(core_s) {
                let copier = self.copier(rank);
                // Communication cores read it from where it is staged and write it to the network; read it there and
                // write it to its place.
                let copied = if self.by_cores() { copier.takes * (2.0 + copier.network) } else { 0.0 };
                take(copier.resource, copied + core_s / copier.cores);
            }
            latency_s = f64::max(latency_s, self.site.latency_s(RankId(*from as u32), RankId(*to as u32)));
        }
        let receivers: Vec<usize> = (0..self.ranks()).filter(|rank| self.place(*rank).host == host).collect();
        let label = Label::Way { to: receivers[0], receivers: receivers.len(), step: self.step, kind, ready: None };
        let activity = Activity { amount, takes: takes.into_iter().collect(), latency_s };
        let way = self.add(activity, staged.iter().map(|staged| After::Gone(staged.number)), label);
        receivers.into_iter().for_each(|to| self.walkers[to].comes[kind as usize].push(After::Arrived(way)));
    }
}
