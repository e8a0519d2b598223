//! How ranks reach each other: which wires carry what each sends, and which hosts' cores work for it.

use crate::base::RankId;
use crate::machine::Site;

/// In which the work of cores is counted: hundredths of a core second for 10^9 bytes, whole ones.
const WORK_S: f64 = 1e-11;

/// More than any network takes of a core for a byte: sums stay whole numbers of 64 bits.
const WORK_MOST_S: f64 = 1e-6;

/// How a rank reaches the others over one wire, and they it. Behind the wires come hosts: samples and ranks count there
/// as often as a byte takes hundredths of a core second of the host for 10^9 bytes.
#[derive(Debug, Clone, Copy)]
pub(super) struct Reach {
    /// Which wire or host.
    pub wire: usize,
    /// Samples of the ranks that it reaches over the wire.
    pub out: i64,
    /// Samples of the ranks that reach it over the wire.
    pub back: i64,
    /// How many ranks these are.
    pub back_ranks: i64,
}

/// All ways between ranks.
#[derive(Debug, Clone)]
pub(super) struct Ways {
    /// Of each rank.
    pub reach: Vec<Vec<Reach>>,
    /// Lists for replicated tables that take each wire on their way around the ring of ranks; of hosts, as [`Reach`].
    pub ring: Vec<i64>,
    /// Bytes of each wire a second, then of each host, counted as [`Reach`] does.
    pub rates: Vec<f64>,
    /// Seconds of the longest way from or to another rank, by rank.
    pub latency_s: Vec<f64>,
    /// Seconds after which the list of the next rank, which comes last, has been through all others, by rank.
    pub ring_latency_s: Vec<f64>,
}

impl Ways {
    /// Those of ranks with so many samples each.
    pub fn new(site: &Site, slices: &[i64]) -> Self {
        let ids: Vec<RankId> = RankId::all(slices.len()).collect();
        let mut rates: Vec<f64> = site.wires.iter().map(|wire| wire.gb_s * 1e9).collect();
        rates.extend(site.network_cores().into_iter().map(|cores| cores / WORK_S));
        let places = rates.len();
        let passes = |from: RankId, to: RankId| {
            let work = |s: f64| (s.min(WORK_MOST_S) / WORK_S).round() as i64;
            let hosts = site.network_work(from, to).map(|(host, s)| (site.wires.len() + host, work(s)));
            let wires = site.path(from, to).iter().map(|wire| (*wire, 1));
            wires.chain(hosts)
        };
        let reach = ids.iter().map(|rank| {
            let mut all: Vec<_> = (0..places).map(|wire| Reach { wire, out: 0, back: 0, back_ranks: 0 }).collect();
            for (other, samples) in ids.iter().zip(slices) {
                for (wire, times) in passes(*rank, *other) {
                    all[wire].out += samples * times;
                }
                for (wire, times) in passes(*other, *rank) {
                    all[wire].back += samples * times;
                    all[wire].back_ranks += times;
                }
            }
            all.retain(|reach| reach.out + reach.back + reach.back_ranks > 0);
            all
        });
        let reach = reach.collect();
        let latency_s = ids.iter().map(|rank| {
            let ways = ids.iter().flat_map(|other| [site.latency_s(*rank, *other), site.latency_s(*other, *rank)]);
            ways.fold(0.0, f64::max)
        });
        let latency_s = latency_s.collect();
        let next = |rank: &RankId| RankId((rank.0 + 1) % ids.len() as u32);
        let mut ring = vec![0; places];
        for rank in &ids {
            passes(*rank, next(rank)).for_each(|(wire, times)| ring[wire] += (ids.len() as i64 - 1) * times);
        }
        let hops_s: Vec<f64> = ids.iter().map(|rank| site.latency_s(*rank, next(rank))).collect();
        let around_s: f64 = hops_s.iter().sum();
        let ring_latency_s = hops_s.iter().map(|hop_s| around_s - hop_s).collect();
        Self { reach, ring, rates, latency_s, ring_latency_s }
    }
}
