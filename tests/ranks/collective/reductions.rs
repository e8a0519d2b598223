//! Reduce-scatter, all-gather and all-reduce, and the all-to-all that copies.

use octorec::collective::plan::{self, Exchange, Reduction, Ring, Topology, hierarchical, two_ring};
use octorec::collective::{Between, Executor, Links, Parcels, Payload, Schedule, Slices, Tensor};
use octorec::simd::{Isa, bf16};
use proptest::prelude::*;

use super::proof::check;
use super::{interpret, job, numbers, rank, sizes, with_lanes};

/// All ways to reduce among so many ranks, on any number of machines.
fn reductions(ranks: usize) -> impl Iterator<Item = Reduction> {
    let machines = (1..=ranks).filter(move |local| ranks.is_multiple_of(*local));
    plan::reductions(&Topology::of(ranks)).into_iter().chain(machines.map(move |local| hierarchical(ranks, local)))
}

/// All schedules of a division into slices.
fn schedules(slices: &Slices, payload: Payload) -> Vec<Schedule> {
    let scatters = reductions(slices.ranks()).map(|kind| kind.plan(slices, payload));
    scatters.flat_map(|scatter| [scatter.all_gather(), scatter.all_reduce(), scatter]).collect()
}

fn parcels(seed: u64, ranks: usize, sources: usize) -> Parcels {
    let source = |at: usize| {
        let owner = sizes(seed + at as u64, 1, 1000)[0] % ranks;
        (rank(owner), sizes(seed * 31 + at as u64, ranks, 70))
    };
    Parcels::new(ranks, &(0..sources).map(source).collect::<Vec<_>>())
}

#[test]
fn every_schedule_proves_itself() {
    for ranks in 1..=9 {
        for seed in 0..20 {
            let slices = match seed {
                0 => Slices::even(0, ranks),
                1 => Slices::even(1000, ranks),
                _ => Slices::of(&sizes(seed * 100 + ranks as u64, ranks, 90)),
            };
            let elements: usize = (0..ranks).map(|rank| slices.slice(rank).len()).sum();
            for schedule in schedules(&slices, Payload::F32) {
                check(&schedule).unwrap_or_else(|reason| panic!("{reason}\n{schedule}"));
            }
            // Every term of every slice travels once, whichever way.
            for kind in reductions(ranks) {
                assert_eq!(kind.plan(&slices, Payload::Bf16).traffic().total(), elements * (ranks - 1) * 2);
            }
            for sources in [0, 1, 7] {
                for kind in Exchange::ALL {
                    let parcels = parcels(seed, ranks, sources);
                    let schedule = kind.plan(&parcels, Payload::Raw(8));
                    check(&schedule).unwrap_or_else(|reason| panic!("{reason}\n{schedule}"));
                    let due = parcels.iter().filter(|parcel| parcel.from != parcel.to);
                    let due: usize = due.map(|parcel| parcel.send.len() * 8).sum();
                    assert_eq!(schedule.traffic().total(), due);
                }
            }
        }
    }
    let hypercube = two_ring(&Ring::through(vec![0, 1, 2, 4, 7, 6, 5, 3]));
    let hypercube = hypercube.plan(&Slices::even(4096, 8), Payload::F32);
    assert_eq!(check(&hypercube), Ok(()));
    assert!(hypercube.traffic().at(rank(2), rank(4)) > 0 && hypercube.traffic().at(rank(2), rank(3)) == 0);
}

#[test]
fn between_machines_each_part_of_the_tensor_goes_once() {
    let (machines, local) = (3, 4);
    let slices = Slices::even(128 * machines * local, machines * local);
    let traffic = hierarchical(machines * local, local).plan(&slices, Payload::F32).traffic();
    let machine = |rank: usize| rank / local;
    let pairs = || (0..machines * local).flat_map(|from| (0..machines * local).map(move |to| (from, to)));
    for (from, to) in pairs().filter(|(from, to)| machine(*from) != machine(*to)) {
        let due = if from % local == to % local { 128 * 4 } else { 0 };
        assert_eq!(traffic.at(rank(from), rank(to)), due, "{from} to {to}");
    }
}

#[test]
fn two_rings_use_both_ways_of_each_link_alike() {
    for ranks in 3..=9 {
        // Slices of whole pairs of cache lines, so that both halves are as long.
        let slices = Slices::even(128 * ranks, ranks);
        let scatter = two_ring(&Ring::of(ranks)).plan(&slices, Payload::F32);
        for schedule in [scatter.all_gather(), scatter.all_reduce(), scatter] {
            let traffic = schedule.traffic();
            let share = traffic.total() / (2 * ranks);
            for (from, to) in (0..ranks * ranks).map(|at| (at / ranks, at % ranks)) {
                let neighbours = (from + 1) % ranks == to || (to + 1) % ranks == from;
                let expected = if neighbours { share } else { 0 };
                assert_eq!(traffic.at(rank(from), rank(to)), expected, "{from} to {to} of {ranks}");
            }
        }
    }
}

/// Runs a schedule on tensors; returns each rank's tensor and the bytes that it sent.
pub fn run(schedule: &Schedule, memory: &[Vec<f32>], window: usize) -> Vec<(Vec<f32>, Vec<usize>)> {
    let (schedule, memory) = (schedule.clone(), memory.to_vec());
    let windows = Links::uniform(schedule.ranks(), window);
    let ranks = with_lanes(&job(schedule.ranks()), vec![windows], move |member, mut lanes| {
        let mut data = memory[member.rank.index()].clone();
        let mut executor = Executor::new(&schedule, &*lanes[0], "test");
        executor.run(&mut *lanes[0], &mut Tensor::new(&mut data, schedule.payload, Isa::best()))?;
        Ok((data, lanes[0].sent().to_vec()))
    });
    ranks.unwrap()
}

pub fn bits(data: &[f32]) -> Vec<u32> {
    data.iter().map(|x| x.to_bits()).collect()
}

#[test]
fn terms_in_bf16_are_rounded_once_by_direct_and_at_each_hop_by_a_ring() {
    let slices = Slices::even(1024, 4);
    let data: Vec<Vec<f32>> = (0..4).map(|rank| numbers(rank, slices.end())).collect();
    let sum = |at: usize| (1..4).fold(data[0][at], |sum, rank| sum + bf16::widen(bf16::narrow(data[rank][at])));
    let once: Vec<f32> = slices.slice(0).map(sum).collect();
    let found = |kind: Reduction| {
        let ranks = run(&kind.plan(&slices, Payload::Bf16), &data, 256);
        bits(&ranks[0].0[slices.slice(0)])
    };
    assert_eq!(found(plan::direct(4)), bits(&once));
    assert_ne!(found(plan::ring(&Ring::of(4))), bits(&once));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    /// The executor does to the last bit what the schedule says, and sends as many bytes, whatever the windows' size.
    #[test]
    fn the_executor_follows_the_schedule(
        ranks in 1usize..=8,
        seed in 0u64..1000,
        window_lines in 1usize..5,
        bf16 in any::<bool>(),
    ) {
        let payload = if bf16 { Payload::Bf16 } else { Payload::F32 };
        let slices = Slices::of(&sizes(seed, ranks, 120));
        let data: Vec<Vec<f32>> = (0..ranks as u64).map(|rank| numbers(seed * 8 + rank, slices.end())).collect();
        for schedule in schedules(&slices, payload) {
            let mut expected = data.clone();
            interpret(&schedule, &mut expected);
            let traffic = schedule.traffic();
            for (index, (seen, sent)) in run(&schedule, &data, window_lines * 64).iter().enumerate() {
                prop_assert_eq!(bits(seen), bits(&expected[index]), "rank {} of\n{}", index, schedule);
                prop_assert_eq!(&sent[..], traffic.row(rank(index)));
            }
            if matches!(schedule.goal, octorec::collective::Goal::AllReduce(_)) {
                let same = ranks == 1 || expected.iter().all(|other| bits(other) == bits(&expected[0]));
                prop_assert!(same, "all ranks hold the same bits");
                for at in 0..slices.end() {
                    let sum: f64 = data.iter().map(|data| f64::from(data[at])).sum();
                    let tolerance = if bf16 && ranks > 1 { 0.02 * ranks as f64 } else { 1e-5 };
                    prop_assert!((f64::from(expected[0][at]) - sum).abs() <= tolerance, "{} is {}", at, sum);
                }
            }
        }
    }

    /// Every parcel arrives at its place, with each way of calling.
    #[test]
    fn parcels_arrive(ranks in 1usize..=8, seed in 0u64..1000, sources in 0usize..9, window_lines in 1usize..5) {
        let parcels = parcels(seed, ranks, sources);
        let schedules = Exchange::ALL.map(|kind| kind.plan(&parcels, Payload::Raw(8)));
        let windows = Links::uniform(ranks, window_lines * 64);
        let cell = |rank: usize, at: usize| (rank as u64 + 1) << 32 | at as u64;
        let (theirs, plans) = (parcels.clone(), schedules.clone());
        let results = with_lanes(&job(ranks), vec![windows], move |member, mut lanes| {
            let send: Vec<u64> = (0..theirs.send_len(member.rank)).map(|at| cell(member.rank.index(), at)).collect();
            let mut runs = Vec::new();
            for schedule in &plans {
                let mut receive = vec![0; theirs.receive_len(member.rank)];
                let before = lanes[0].sent().to_vec();
                let mut executor = Executor::new(schedule, &*lanes[0], "test");
                executor.run(&mut *lanes[0], &mut Between::new(&send, &mut receive, Isa::best()))?;
                let sent: Vec<usize> = lanes[0].sent().iter().zip(&before).map(|(now, before)| now - before).collect();
                runs.push((receive, sent));
            }
            Ok(runs)
        });
        for (index, runs) in results.unwrap().iter().enumerate() {
            for ((receive, sent), schedule) in runs.iter().zip(&schedules) {
                let traffic = schedule.traffic();
                prop_assert_eq!(&sent[..], traffic.row(rank(index)));
                let mut places = 0;
                for parcel in parcels.iter().filter(|parcel| parcel.to == rank(index)) {
                    places += parcel.receive.len();
                    for (from, to) in parcel.send.clone().zip(parcel.receive.clone()) {
                        prop_assert_eq!(receive[to], cell(parcel.from.index(), from));
                    }
                }
                prop_assert_eq!(places, receive.len());
            }
        }
    }
}

#[test]
fn threads_of_a_rank_reduce_parts_of_a_tensor_side_by_side() {
    let (ranks, lanes, part) = (3, 2, 500);
    let slices = Slices::even(part, ranks);
    let schedule = two_ring(&Ring::of(ranks)).plan(&slices, Payload::F32).all_reduce();
    let windows = vec![Links::uniform(ranks, 128); lanes];
    let plan = schedule.clone();
    let results = with_lanes(&job(ranks), windows, move |member, mut lanes| {
        let mut data = numbers(member.rank.0.into(), part * lanes.len());
        std::thread::scope(|scope| {
            let parts = lanes.iter_mut().zip(data.chunks_mut(part));
            let threads: Vec<_> = parts
                .map(|(lane, data)| {
                    let (job, plan) = (&member.job, &plan);
                    scope.spawn(move || {
                        job.guard(member.rank, || {
                            let mut executor = Executor::new(plan, &**lane, "test");
                            for _ in 0..20 {
                                executor.run(&mut **lane, &mut Tensor::new(data, Payload::F32, Isa::best()))?;
                            }
                            Ok(())
                        })
                    })
                })
                .collect();
            threads.into_iter().try_for_each(|thread| thread.join().expect("guarded"))
        })?;
        Ok(data)
    });
    let results = results.unwrap();
    for lane in 0..lanes {
        let mut expected: Vec<Vec<f32>> =
            (0..ranks as u64).map(|rank| numbers(rank, part * lanes)[lane * part..][..part].to_vec()).collect();
        (0..20).for_each(|_| interpret(&schedule, &mut expected));
        for (seen, expected) in results.iter().zip(&expected) {
            assert_eq!(bits(&seen[lane * part..][..part]), bits(expected));
        }
    }
}
