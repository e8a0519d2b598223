//! Where a rank's step goes: what it computes, what it packs, and what it waits for.
//!
//! SC20 (Section VI-D) asks of a hybrid-parallel step: how long it computes, how long each collective is exposed, how
//! much of it is hidden, and what packing costs. Every stage is timed, always (two clock readings and a lock that
//! nobody else wants, some 50 ns); within an exchange, the lane itself counts what was waiting for other ranks.

use std::time::{Duration, Instant};

use serde::Serialize;

use crate::base::{Place, RankId};
use crate::collective::Carrier;
use crate::model::Stage;
use crate::sync::Job;

/// Steps that a trace keeps at most.
const TRACED_STEPS: u64 = 1000;

/// Spans that a thread keeps at most: its stages, each of them perhaps in three parts, and the step.
pub(super) const TRACED_SPANS: usize = TRACED_STEPS as usize * (Stage::ALL.len() + 8);

/// Something that took time.
#[derive(Debug, Clone, Copy)]
pub struct Span {
    /// What.
    pub name: &'static str,
    /// The step of this process, from 1; or the number of a layer.
    pub number: u64,
    /// When it began.
    pub began: Instant,
    /// How long it took.
    pub took: Duration,
}

/// The time of every stage of a rank since it was started; its job knows in which one it is.
#[derive(Debug)]
pub struct Clock {
    job: Job,
    rank: RankId,
    seconds: [f64; Stage::ALL.len()],
    steps: u64,
    /// Steps of the run before those of this process.
    before: u64,
    /// When the current step's first stage began.
    step_began: Option<Instant>,
    /// Whether what runs now is part of a step; an evaluation is not.
    stopped: bool,
    spans: Vec<Span>,
    traced: bool,
}

/// One rank's mean step.
#[derive(Debug, Clone, Serialize)]
pub struct Breakdown {
    /// Its number.
    pub rank: u32,
    /// Milliseconds a step, by [`Stage::ALL`].
    pub stages_ms: Vec<f64>,
    /// Milliseconds a step in which communication threads were at work while the compute threads were, too.
    pub hidden_dense_ms: f64,
    /// Steps that were counted.
    pub steps: u64,
}

impl Clock {
    /// The clock of a job's rank, at 0; `traced` also keeps when each stage began.
    #[must_use]
    pub fn new(job: Job, rank: RankId, traced: bool) -> Self {
        // All at once: a step allocates nothing.
        let spans = if traced { Vec::with_capacity(TRACED_SPANS) } else { Vec::new() };
        let seconds = [0.0; Stage::ALL.len()];
        Self { job, rank, seconds, steps: 0, before: 0, step_began: None, stopped: false, spans, traced }
    }

    /// Messages count on from so many steps of the run, which another process has made.
    pub(super) const fn continue_after(&mut self, steps: u64) {
        self.before = steps;
    }

    /// Notes what the rank does now, for messages about it.
    pub(super) fn enter(&self, stage: &'static str) {
        self.job.enter(Place { rank: self.rank, stage, sequence: self.before + self.steps + 1 });
    }

    /// Runs and times a stage.
    #[inline]
    pub fn time<T>(&mut self, stage: Stage, work: impl FnOnce() -> T) -> T {
        self.enter(stage.name());
        let began = Instant::now();
        let result = work();
        self.count(stage, began, began.elapsed());
        result
    }

    /// Runs and times a stage over a lane; what was waiting for other ranks counts as the second stage.
    #[inline]
    pub fn exchange<T>(
        &mut self,
        [stage, wait]: [Stage; 2],
        lane: &mut dyn Carrier,
        work: impl FnOnce(&mut dyn Carrier) -> T,
    ) -> T {
        self.enter(stage.name());
        let (began, before) = (Instant::now(), lane.waited());
        let result = work(lane);
        let (took, waited) = (began.elapsed(), lane.waited().saturating_sub(before));
        self.count(stage, began, took.saturating_sub(waited));
        if !waited.is_zero() {
            self.count(wait, began + took.saturating_sub(waited), waited);
        }
        result
    }

    /// Stops the clock, or lets it go on; returns whether it was stopped.
    pub const fn stop(&mut self, stopped: bool) -> bool {
        std::mem::replace(&mut self.stopped, stopped)
    }

    fn count(&mut self, stage: Stage, began: Instant, took: Duration) {
        if self.stopped {
            return;
        }
        self.seconds[stage as usize] += took.as_secs_f64();
        if stage != Stage::WaitData {
            self.step_began.get_or_insert(began);
        }
        self.keep(Span { name: stage.name(), number: self.steps + 1, began, took });
    }

    fn keep(&mut self, span: Span) {
        if self.traced && self.steps < TRACED_STEPS && self.spans.len() < self.spans.capacity() {
            self.spans.push(span);
        }
    }

    /// Ends a step.
    pub fn step_done(&mut self) {
        if let Some(began) = self.step_began.take() {
            self.keep(Span { name: "step", number: self.steps + 1, began, took: began.elapsed() });
        }
        self.steps += 1;
    }

    /// What was traced.
    #[must_use]
    pub fn spans(&self) -> &[Span] {
        &self.spans
    }

    /// The mean step; `busy` is how long communication threads were at work in all steps.
    #[must_use]
    pub fn breakdown(&self, busy: Duration) -> Breakdown {
        let each = |seconds: f64| if self.steps == 0 { 0.0 } else { seconds * 1e3 / self.steps as f64 };
        let exposed = self.seconds[Stage::ReduceDense as usize];
        Breakdown {
            rank: self.rank.0,
            stages_ms: self.seconds.iter().map(|&seconds| each(seconds)).collect(),
            hidden_dense_ms: each((busy.as_secs_f64() - exposed).max(0.0)),
            steps: self.steps,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::Trouble;
    use crate::sync::{Line, Patience};

    fn clock(traced: bool) -> Clock {
        Clock::new(Job::new(4, Patience::SHARED_CORE, Duration::from_secs(5)), RankId(3), traced)
    }

    /// A lane whose user has waited, and waits as long again whenever it moves something.
    struct Waited(Duration, Duration);

    impl Carrier for Waited {
        fn rank(&self) -> RankId {
            RankId(0)
        }
        fn ranks(&self) -> usize {
            1
        }
        fn room(&self, _: RankId, _: RankId) -> usize {
            0
        }
        fn try_send(&mut self, _: RankId, _: usize, _: &mut dyn FnMut(&mut [Line])) -> bool {
            false
        }
        fn has(&mut self, _: Place, _: RankId, _: usize) -> std::result::Result<bool, Trouble> {
            Ok(false)
        }
        fn front(&self, _: RankId) -> &[Line] {
            &[]
        }
        fn release(&mut self, _: RankId) {}
        fn pause(&mut self, _: Place, _: RankId) -> std::result::Result<(), Trouble> {
            Ok(())
        }
        fn moved(&mut self) {
            self.0 += self.1;
        }
        fn sent(&self) -> &[usize] {
            &[]
        }
        fn waited(&self) -> Duration {
            self.0
        }
    }

    #[test]
    fn what_waits_for_others_is_no_part_of_its_stage() {
        let (mut clock, mut lane) = (clock(false), Waited(Duration::from_secs(7), Duration::ZERO));
        clock.exchange([Stage::PackIds, Stage::WaitIds], &mut lane, |_| ());
        let ms = |clock: &Clock, stage: Stage| clock.seconds[stage as usize] * 1e3;
        assert!(ms(&clock, Stage::WaitIds) == 0.0, "it has not waited since");
        let before = ms(&clock, Stage::PackIds);
        let mut slow = Waited(Duration::ZERO, Duration::ZERO);
        let longer = |lane: &mut dyn Carrier| {
            std::thread::sleep(Duration::from_millis(5));
            lane.moved();
        };
        clock.exchange([Stage::PackIds, Stage::WaitIds], &mut slow, longer);
        assert!(ms(&clock, Stage::PackIds) - before >= 5.0 && ms(&clock, Stage::WaitIds) == 0.0);
        // All of it was waiting.
        let (mut clock, mut lane) = (self::clock(false), Waited(Duration::ZERO, Duration::from_millis(5)));
        clock.exchange([Stage::PackIds, Stage::WaitIds], &mut lane, |lane| {
            std::thread::sleep(Duration::from_millis(5));
            lane.moved();
        });
        assert!(ms(&clock, Stage::WaitIds) == 5.0, "{}", ms(&clock, Stage::WaitIds));
        clock.time(Stage::ReduceDense, || std::thread::sleep(Duration::from_millis(2)));
        clock.step_done();
        let exposed = ms(&clock, Stage::ReduceDense);
        let hidden = clock.breakdown(Duration::from_secs(1)).hidden_dense_ms;
        assert!((hidden - (1e3 - exposed)).abs() < 1e-6 && exposed >= 2.0, "{hidden} and {exposed}");
    }

    #[test]
    fn the_job_knows_in_which_stage_of_which_step_a_rank_is() {
        let mut clock = clock(false);
        let job = clock.job.clone();
        let now = || job.place(RankId(3)).to_string();
        // A run that another process has begun.
        clock.continue_after(40);
        for step in 41..=42 {
            let of = |stage: Stage| format!("rank 3 in {} #{step}", stage.name());
            clock.time(Stage::BackBottom, || assert_eq!(now(), of(Stage::BackBottom)));
            let mut lane = Waited(Duration::ZERO, Duration::ZERO);
            let stages = [Stage::UpdateRows, Stage::WaitGradients];
            clock.exchange(stages, &mut lane, |_| assert_eq!(now(), of(Stage::UpdateRows)));
            clock.step_done();
        }
    }

    #[test]
    fn stages_add_up_and_traces_are_spans_within_their_steps() {
        let mut clock = clock(true);
        for step in 1..=2 {
            assert_eq!(clock.time(Stage::WaitData, || step), step);
            clock.time(Stage::Top, || std::thread::sleep(Duration::from_millis(3)));
            assert_eq!(clock.time(Stage::Loss, || 7), 7);
            clock.step_done();
        }
        let before = clock.stop(true);
        clock.time(Stage::Top, || std::thread::sleep(Duration::from_millis(3)));
        clock.stop(before);
        let breakdown = clock.breakdown(Duration::from_millis(8));
        let ms = |stage: Stage| breakdown.stages_ms[stage as usize];
        assert!(ms(Stage::Top) >= 3.0 && ms(Stage::Bottom) == 0.0 && ms(Stage::WaitData) < 3.0);
        assert_eq!((breakdown.rank, breakdown.steps, breakdown.hidden_dense_ms), (3, 2, 4.0));
        let of = |name: &str| clock.spans().iter().filter(|span| span.name == name).copied().collect::<Vec<_>>();
        let (steps, tops, losses) = (of("step"), of(Stage::Top.name()), of(Stage::Loss.name()));
        assert_eq!((steps.len(), tops.len(), losses.len(), of(Stage::WaitData.name()).len()), (2, 2, 2, 2));
        for (number, step) in (1..).zip(&steps) {
            let end = step.began + step.took;
            let inside = |span: &Span| span.began >= step.began && span.began + span.took <= end;
            assert!(
                step.number == number && inside(&tops[number as usize - 1]) && inside(&losses[number as usize - 1])
            );
        }
    }

    #[test]
    fn a_trace_ends_and_never_grows_its_memory() {
        let mut clock = clock(true);
        for _ in 0..TRACED_STEPS + 5 {
            Stage::ALL.into_iter().for_each(|stage| clock.time(stage, || ()));
            clock.step_done();
        }
        assert_eq!(clock.spans.len(), TRACED_STEPS as usize * (Stage::ALL.len() + 1));
        assert_eq!(clock.spans.capacity(), TRACED_SPANS);
    }
}
