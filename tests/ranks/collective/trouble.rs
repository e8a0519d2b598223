//! One rank in trouble: all return, soon, with its words.

use std::time::{Duration, Instant};

use octorec::base::{Error, Place, RankId, Result};
use octorec::collective::plan::{Ring, direct, ring};
use octorec::collective::{Carrier, Executor, Links, Member, Payload, Slices, Tensor};
use octorec::simd::Isa;
use octorec::sync::{Job, Patience};

use super::with_lanes;

const RANKS: usize = 4;
const CULPRIT: RankId = RankId(2);

/// Ring all-reduces until the culprit does something else; returns the job's error and how long it took.
fn reduce_until(
    deadline: Duration,
    trouble: impl Fn(&Member) -> Result<()> + Send + Sync + 'static,
) -> (Error, Duration) {
    let job = Job::new(RANKS, Patience::SHARED_CORE, deadline);
    let start = Instant::now();
    let windows = vec![Links::uniform(RANKS, 256)];
    let result = with_lanes(&job, windows, move |member: Member, mut lanes: Vec<Box<dyn Carrier>>| {
        let schedule = ring(&Ring::of(RANKS)).plan(&Slices::even(1000, RANKS), Payload::F32).all_reduce();
        let mut executor = Executor::new(&schedule, &*lanes[0], "all-reduce of the test");
        let mut data = vec![1.0; 1000];
        for step in 0.. {
            if step == 5 && member.rank == CULPRIT {
                trouble(&member)?;
            }
            member.job.enter(Place { rank: member.rank, stage: "all-reduce of the test", sequence: step + 1 });
            executor.run(&mut *lanes[0], &mut Tensor::new(&mut data, Payload::F32, Isa::best()))?;
        }
        Ok(())
    });
    (result.unwrap_err(), start.elapsed())
}

#[test]
fn a_panic_is_everybodys_end_with_its_words() {
    let (error, took) = reduce_until(Duration::from_secs(120), |_| panic!("a cosmic ray hit row 7"));
    let text = error.to_string();
    assert!(text.starts_with("rank 2 in all-reduce of the test #5: panicked: a cosmic ray hit row 7"), "{text}");
    assert!(took < Duration::from_secs(60), "long before the deadline");
}

#[test]
fn an_error_of_one_rank_is_the_jobs_error() {
    let (error, took) = reduce_until(Duration::from_secs(120), |_| Err(Error::Interrupted));
    assert!(matches!(error, Error::Interrupted) && took < Duration::from_secs(60), "{error}");
}

#[test]
fn a_stalled_rank_is_named_after_the_deadline_even_if_it_never_returns() {
    let asleep = |_: &Member| {
        std::thread::sleep(Duration::from_secs(3600));
        Ok(())
    };
    let (error, took) = reduce_until(Duration::from_millis(400), asleep);
    let text = error.to_string();
    assert!(text.contains("in all-reduce of the test #6: waited 0.4 s for rank"), "{text}");
    // Whoever noticed first may have waited for a rank that itself waited for the culprit, who is still at #5.
    assert!(text.contains("rank 2 in all-reduce of the test #5"), "{text}");
    assert!(took < Duration::from_secs(60));
}

#[test]
fn different_schedules_are_noticed() {
    let job = Job::new(2, Patience::SHARED_CORE, Duration::from_secs(60));
    let error = with_lanes(&job, vec![Links::uniform(2, 4096)], |member: Member, mut lanes: Vec<Box<dyn Carrier>>| {
        let mut data = vec![1.0; 1000];
        let elements = if member.rank == RankId(0) { 1000 } else { 900 };
        let schedule = direct(2).plan(&Slices::even(elements, 2), Payload::F32);
        let mut executor = Executor::new(&schedule, &*lanes[0], "test");
        executor.run(&mut *lanes[0], &mut Tensor::new(&mut data, Payload::F32, Isa::best()))
    });
    let text = error.unwrap_err().to_string();
    assert!(text.contains("bytes where") && text.contains("different schedules"), "{text}");
}
