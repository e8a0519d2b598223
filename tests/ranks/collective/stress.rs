//! Many rounds of every collective with ranks that dawdle at random: not a wrong byte.
//!
//! `make collectives` runs the 10,000 rounds; an ordinary test run takes fewer.

use std::time::Duration;

use octorec::base::rng::{Random, Stream};
use octorec::base::{Place, RankId, Trouble};
use octorec::collective::plan::{Exchange, Topology, reductions};
use octorec::collective::{
    Between, Carrier, Executor, Links, OneSided, Opened, Outgoing, Parcels, Payload, Slices, Tensor,
};
use octorec::simd::Isa;
use octorec::sync::Line;

use super::{interpret, job, numbers, rank, sizes, with_lanes};

/// A lane that dawdles before it does something.
struct Dawdling {
    lane: Box<dyn Carrier>,
    delays: Delays,
}

struct Delays {
    random: Random,
    drawn: u64,
}

impl Delays {
    fn dawdle(&mut self) {
        self.drawn += 1;
        let [kind, length, ..] = self.random.block(self.drawn);
        match kind % 512 {
            0 => std::thread::sleep(Duration::from_micros(u64::from(length % 100))),
            1..60 => (0..length % 200).for_each(|_| std::hint::spin_loop()),
            60..120 => std::thread::yield_now(),
            _ => {}
        }
    }
}

impl Carrier for Dawdling {
    fn rank(&self) -> RankId {
        self.lane.rank()
    }

    fn ranks(&self) -> usize {
        self.lane.ranks()
    }

    fn room(&self, from: RankId, to: RankId) -> usize {
        self.lane.room(from, to)
    }

    fn try_send(&mut self, to: RankId, bytes: usize, write: &mut dyn FnMut(&mut [Line])) -> bool {
        let delays = &mut self.delays;
        delays.dawdle();
        self.lane.try_send(to, bytes, &mut |lines| {
            delays.dawdle();
            write(lines);
            delays.dawdle();
        })
    }

    fn try_send_each(&mut self, due: &mut Vec<Outgoing>, fill: &mut dyn FnMut(&mut [Opened<'_>])) -> bool {
        let delays = &mut self.delays;
        delays.dawdle();
        self.lane.try_send_each(due, &mut |messages| {
            delays.dawdle();
            fill(messages);
            delays.dawdle();
        })
    }

    fn has(&mut self, place: Place, from: RankId, bytes: usize) -> Result<bool, Trouble> {
        self.delays.dawdle();
        self.lane.has(place, from, bytes)
    }

    fn front(&self, from: RankId) -> &[Line] {
        self.lane.front(from)
    }

    fn release(&mut self, from: RankId) {
        self.delays.dawdle();
        self.lane.release(from);
        self.delays.dawdle();
    }

    fn pause(&mut self, place: Place, peer: RankId) -> Result<(), Trouble> {
        self.lane.pause(place, peer)
    }

    fn moved(&mut self) {
        self.lane.moved();
    }

    fn sent(&self) -> &[usize] {
        self.lane.sent()
    }

    fn waited(&self) -> Duration {
        self.lane.waited()
    }
}

/// `rounds` rounds of every collective among `ranks` ranks.
fn rounds(ranks: usize, rounds: u64) {
    let slices = Slices::of(&sizes(ranks as u64 + 7, ranks, 200));
    let scatters = [Payload::F32, Payload::Bf16]
        .into_iter()
        .flat_map(|payload| reductions(&Topology::of(ranks)).into_iter().map(move |kind| (kind, payload)));
    let scatters = scatters.map(|(kind, payload)| kind.plan(&slices, payload));
    let reductions: Vec<_> =
        scatters.flat_map(|scatter| [scatter.all_gather(), scatter.all_reduce(), scatter]).collect();
    let sources: Vec<_> = (0..5).map(|at| (rank(at % ranks), sizes(at as u64 + 50, ranks, 90))).collect();
    let parcels = Parcels::new(ranks, &sources);
    let exchanges = Exchange::ALL.map(|kind| kind.plan(&parcels, Payload::Raw(4)));
    // A few inputs with their results, used again and again with another factor, which a power of two keeps exact.
    let inputs: Vec<Vec<f32>> = (0..ranks).map(|rank| numbers(rank as u64, slices.end())).collect();
    let results: Vec<Vec<Vec<f32>>> = reductions
        .iter()
        .map(|schedule| {
            let mut memory = inputs.clone();
            interpret(schedule, &mut memory);
            memory
        })
        .collect();
    let windows = vec![Links::uniform(ranks, 192), Links::uniform(ranks, 4096)];
    let done = with_lanes(&job(ranks), windows, move |member, mut lanes| {
        let (me, isa) = (member.rank.index(), Isa::best());
        let delays = || Delays { random: Random::new(me as u64 + 1000, Stream::Label), drawn: 0 };
        let mut in_place = Dawdling { lane: lanes.pop().expect("two lanes"), delays: delays() };
        let mut carrier = Dawdling { lane: lanes.pop().expect("two lanes"), delays: delays() };
        let bytes = |from, to| parcels.between(from, to).map(|parcel| parcel.send.len() * 4).sum();
        let mut one_sided = OneSided::new(in_place.rank(), in_place.ranks(), "one-sided");
        one_sided.plan(&in_place, bytes);
        // In pieces through windows of a few lines, in turn with the other collectives.
        let mut in_pieces = OneSided::new(carrier.rank(), carrier.ranks(), "one-sided in pieces");
        in_pieces.plan(&carrier, bytes);
        let mut reduce: Vec<_> = reductions.iter().map(|plan| Executor::new(plan, &carrier, plan.algorithm)).collect();
        let mut exchange: Vec<_> = exchanges.iter().map(|plan| Executor::new(plan, &carrier, plan.algorithm)).collect();
        let (mut data, mut send) = (vec![0.0; slices.end()], vec![0u32; parcels.send_len(member.rank)]);
        let mut receive = vec![0u32; parcels.receive_len(member.rank)];
        let mut own_delays = delays();
        for round in 0..rounds {
            // All ranks take the collectives in the same order, which differs from round to round.
            let turn = round as usize;
            for at in 0..reduce.len() {
                let at = (at + turn) % reduce.len();
                let factor = 2f32.powi((round % 5) as i32);
                data.iter_mut().zip(&inputs[me]).for_each(|(x, input)| *x = input * factor);
                reduce[at].run(&mut carrier, &mut Tensor::new(&mut data, reductions[at].payload, isa))?;
                let right =
                    data.iter().zip(&results[at][me]).all(|(x, result)| x.to_bits() == (result * factor).to_bits());
                assert!(right, "round {round}, {}", reductions[at]);
            }
            let word = |from: usize, at: usize| (round as u32) << 12 ^ (from as u32) << 28 ^ at as u32;
            send.iter_mut().enumerate().for_each(|(at, x)| *x = word(me, at));
            for executor in &mut exchange {
                receive.fill(0);
                executor.run(&mut carrier, &mut Between::new(&send, &mut receive, isa))?;
                for parcel in parcels.iter().filter(|parcel| parcel.to == member.rank) {
                    let mut places = parcel.send.clone().zip(parcel.receive.clone());
                    assert!(places.all(|(from, to)| receive[to] == word(parcel.from.index(), from)), "round {round}");
                }
            }
            for (one_sided, lane) in [(&mut one_sided, &mut in_place), (&mut in_pieces, &mut carrier)] {
                one_sided.begin(lane, |messages| {
                    for Opened { to, lines, .. } in messages {
                        own_delays.dawdle();
                        lines.fill(Line::from([word(me, to.index()); 16]));
                    }
                })?;
                own_delays.dawdle();
                let incoming = one_sided.finish(lane)?;
                own_delays.dawdle();
                for from in 0..ranks {
                    let (lines, due) = (incoming.from(rank(from)), bytes(rank(from), member.rank));
                    assert_eq!(lines.len(), if from == me { 0 } else { Line::hold(due) });
                    assert!(lines.iter().all(|line| *line == Line::from([word(from, me); 16])));
                }
            }
        }
        let once: usize =
            reductions.iter().chain(&exchanges).map(|plan| plan.traffic().row(member.rank).iter().sum::<usize>()).sum();
        let pieces: usize = (0..ranks).filter(|to| *to != me).map(|to| bytes(member.rank, rank(to))).sum();
        let once = once + pieces;
        assert_eq!(carrier.sent().iter().sum::<usize>(), once * rounds as usize, "as many bytes as planned");
        Ok(())
    });
    done.unwrap();
}

#[test]
fn delays_change_nothing() {
    for ranks in [2, 3, 4, 8] {
        rounds(ranks, 40);
    }
}

#[test]
#[ignore = "minutes: make collectives"]
fn ten_thousand_rounds_of_every_collective() {
    for ranks in [2, 3] {
        rounds(ranks, 10_000);
    }
}
