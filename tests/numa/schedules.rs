//! Schedules of every planner, carried out by a rank on each node: results are right, and every link carries what is
//! planned.

use std::time::Duration;

use octorec::base::RankId;
use octorec::collective::plan::{Topology, exchanges, reductions};
use octorec::collective::{
    Between, Executor, Fabric, Links, Member, Parcels, Payload, Schedule, SharedMemory, Slices, Tensor, Works, launch,
};
use octorec::machine::placement::Placement;
use octorec::machine::routes::LinkLoads;
use octorec::machine::site::Known;
use octorec::machine::team::Team;
use octorec::machine::{Machine, Routes, Site};
use octorec::memory::Supply;
use octorec::simd::Isa;
use octorec::sync::{Job, Patience};

use crate::host;
use crate::place::placement;

/// Elements of a tensor: little, for the sake of the emulator, but slices and parts of different lengths.
const ELEMENTS: usize = 2500;
/// Bytes from each rank to each other that are on their way at a time: less than the longest messages.
const WINDOW: usize = 512;

/// What each rank sent to each other while it carried out its part, after which its memory was checked.
fn carry_out(schedule: &Schedule, placement: &Placement) -> Vec<Vec<usize>> {
    let ranks = schedule.ranks();
    let job = Job::new(ranks, Patience::SHARED_CORE, Duration::from_secs(60));
    let fabric = SharedMemory::new(&job, vec![Links::uniform(ranks, WINDOW)]);
    let (schedule, placement) = (schedule.clone(), placement.clone());
    let body = move |mut member: Member| {
        let me = member.rank.index();
        // Memory comes into being where its rank runs.
        let _here = Team::pinned(&placement.ranks[me].compute[..1], true, Isa::best())?;
        let memory = fabric.memory(member.rank, &mut Supply::System)?;
        let mut lanes = fabric.connect(&mut member.barrier, memory)?;
        let mut executor = Executor::new(&schedule, &*lanes[0], "test");
        // Small whole numbers, whose sums are exact in any order.
        match &schedule.goal {
            octorec::collective::Goal::AllToAll(parcels) => {
                let cell = |from: usize, at: usize| ((from << 16) + at) as u32;
                let send: Vec<u32> = (0..parcels.send_len(member.rank)).map(|at| cell(me, at)).collect();
                let mut receive = vec![0; parcels.receive_len(member.rank)];
                let mut transit = vec![0; schedule.transit_len(member.rank)];
                let mut between = Between::new(&send, &mut receive, Isa::best()).relaying(&mut transit);
                executor.run(&mut *lanes[0], &mut between)?;
                for parcel in parcels.iter().filter(|parcel| parcel.to == member.rank) {
                    let sent = parcel.send.clone().map(|at| cell(parcel.from.index(), at));
                    assert!(receive[parcel.receive.clone()].iter().copied().eq(sent), "{parcel:?}");
                }
            }
            goal => {
                let own = |rank: usize, at: usize| ((rank + 1) * (at % 97 + 1)) as f32;
                let mut data: Vec<f32> = (0..ELEMENTS).map(|at| own(me, at)).collect();
                executor.run(&mut *lanes[0], &mut Tensor::new(&mut data, schedule.payload, Isa::best()))?;
                let sum = |at: usize| (0..ranks).map(|rank| own(rank, at)).sum::<f32>();
                let (slices, reduces, gathers) = match goal {
                    octorec::collective::Goal::ReduceScatter(slices) => (slices, true, false),
                    octorec::collective::Goal::AllGather(slices) => (slices, false, true),
                    octorec::collective::Goal::AllReduce(slices) => (slices, true, true),
                    octorec::collective::Goal::AllToAll(_) => unreachable!("see above"),
                };
                for rank in (0..ranks).filter(|rank| gathers || *rank == me) {
                    let expected = |at: usize| if reduces { sum(at) } else { own(rank, at) };
                    assert!(slices.slice(rank).all(|at| data[at] == expected(at)), "slice {rank}");
                }
            }
        }
        Ok(lanes[0].sent().to_vec())
    };
    launch(&job, 0..job.ranks(), body).expect("the ranks carry it out")
}

/// What these bytes from rank to rank put on each link.
fn loads(machine: &Machine, bytes: impl Fn(usize, usize) -> u64) -> LinkLoads {
    let nodes = machine.nodes.len();
    let traffic: Vec<Vec<u64>> = (0..nodes).map(|from| (0..nodes).map(|to| bytes(from, to)).collect()).collect();
    Routes::new(machine).loads(machine, &traffic)
}

/// Every collective by every planner.
pub fn all() -> String {
    let (machine, placement) = (host(), placement());
    let site = Site::new(&machine, &placement, Known::default());
    let ranks = site.ranks.len();
    assert_eq!((ranks, machine.nodes.len()), (8, 8), "a rank on each node");
    let slices = Slices::even(ELEMENTS, ranks);
    let scatters = reductions(&Topology::along(&site)).into_iter().map(|kind| kind.plan(&slices, Payload::F32));
    let mut schedules: Vec<Schedule> =
        scatters.flat_map(|scatter| [scatter.all_gather(), scatter.all_reduce(), scatter]).collect();
    let parcels = Parcels::uniform(ranks, ELEMENTS / ranks);
    schedules.extend(exchanges(&parcels, Payload::Raw(4), &site, Works::Links));
    let (mut links, mut rounds) = (0, 0);
    for schedule in &schedules {
        let name = format!("{} {}", schedule.algorithm, schedule.goal.name());
        let (sent, planned) = (carry_out(schedule, &placement), schedule.traffic());
        let found = loads(&machine, |from, to| sent[from][to] as u64);
        let expected = loads(&machine, |from, to| planned.at(RankId(from as u32), RankId(to as u32)) as u64);
        assert_eq!(found, expected, "{name}: bytes on each link");
        // Site and machine must agree on the ways.
        let mut wires = vec![0; site.wires.len()];
        for hop in schedule.rounds.iter().flatten() {
            site.path(hop.from, hop.to).iter().for_each(|wire| wires[*wire] += schedule.hop_bytes(hop) as u64);
        }
        assert_eq!(found.bytes.iter().flatten().copied().collect::<Vec<_>>(), wires, "{name}: as it is priced");
        links += found.bytes.iter().flatten().filter(|bytes| **bytes > 0).count();
        rounds += schedule.rounds.len();
    }
    format!("{} schedules of {rounds} rounds, {links} directions of links as planned", schedules.len())
}
