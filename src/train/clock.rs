//! Where a step's time goes: every stage is timed, always (two clock readings a stage, some 50 ns).

use std::path::Path;
use std::time::Instant;

use serde::Serialize;

use super::write_whole;
use crate::base::{Error, Result};
use crate::model::Stage;

/// Steps that a trace keeps at most: some 2 MB of text.
const TRACED_STEPS: u64 = 1000;

/// Events of a step: its stages, the wait for its data, and itself.
const EVENTS: usize = Stage::ALL.len() + 2;

/// The time of every stage since the clock was made.
#[derive(Debug)]
pub struct Clock {
    started: Instant,
    seconds: [f64; Stage::ALL.len()],
    waited: f64,
    steps: u64,
    /// When the current step's first stage began.
    step_began: Option<Instant>,
    trace: Option<Vec<Event>>,
}

/// Something that took time, in the Trace Event Format that Perfetto and chrome://tracing read.
#[derive(Debug, Serialize)]
struct Event {
    name: &'static str,
    /// "stage", "step" or "data".
    cat: &'static str,
    ph: &'static str,
    /// Start, in microseconds.
    ts: f64,
    /// Duration, in microseconds.
    dur: f64,
    pid: u32,
    tid: u32,
    args: Arguments,
}

#[derive(Debug, Serialize)]
struct Arguments {
    /// The step of this process, from 1.
    step: u64,
}

impl Clock {
    /// A clock at 0; `traced` also keeps when each stage began.
    #[must_use]
    pub fn new(traced: bool) -> Self {
        // All at once: a step allocates nothing.
        let trace = traced.then(|| Vec::with_capacity(TRACED_STEPS as usize * EVENTS));
        let seconds = [0.0; Stage::ALL.len()];
        Self { started: Instant::now(), seconds, waited: 0.0, steps: 0, step_began: None, trace }
    }

    /// Runs and times a stage.
    #[inline]
    pub fn time<T>(&mut self, stage: Stage, work: impl FnOnce() -> T) -> T {
        let began = Instant::now();
        let result = work();
        let took = began.elapsed().as_secs_f64();
        self.seconds[stage as usize] += took;
        self.step_began.get_or_insert(began);
        self.keep(stage.name(), "stage", began, took);
        result
    }

    /// Runs and times what gets the next minibatch.
    #[inline]
    pub fn wait<T>(&mut self, work: impl FnOnce() -> T) -> T {
        let began = Instant::now();
        let result = work();
        let took = began.elapsed().as_secs_f64();
        self.waited += took;
        self.keep("wait for data", "data", began, took);
        result
    }

    /// Ends a step.
    pub fn step_done(&mut self) {
        if let Some(began) = self.step_began.take() {
            self.keep("step", "step", began, began.elapsed().as_secs_f64());
        }
        self.steps += 1;
    }

    fn keep(&mut self, name: &'static str, cat: &'static str, began: Instant, took: f64) {
        let Some(trace) = self.trace.as_mut().filter(|trace| trace.len() < trace.capacity()) else { return };
        if self.steps < TRACED_STEPS {
            let ts = began.duration_since(self.started).as_secs_f64() * 1e6;
            let args = Arguments { step: self.steps + 1 };
            trace.push(Event { name, cat, ph: "X", ts, dur: took * 1e6, pid: 0, tid: 0, args });
        }
    }

    /// Mean milliseconds a step that were spent waiting for data; 0 before the first step.
    #[must_use]
    pub fn wait_ms(&self) -> f64 {
        if self.steps == 0 { 0.0 } else { self.waited * 1e3 / self.steps as f64 }
    }

    /// Mean milliseconds a step that a stage took; 0 before the first step.
    #[must_use]
    pub fn ms(&self, stage: Stage) -> f64 {
        if self.steps == 0 { 0.0 } else { self.seconds[stage as usize] * 1e3 / self.steps as f64 }
    }

    /// Writes the trace for Perfetto (ui.perfetto.dev) or chrome://tracing.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub fn write_trace(&self, path: &Path) -> Result<()> {
        let names = [("process_name", "octorec"), ("thread_name", "rank 0")].map(
            |(kind, name)| serde_json::json!({ "name": kind, "ph": "M", "pid": 0, "tid": 0, "args": { "name": name } }),
        );
        let events = self.trace.as_deref().unwrap_or_default().iter();
        let events = events.map(|event| serde_json::to_value(event).expect("an event is representable in JSON"));
        let events: Vec<_> = names.into_iter().chain(events).collect();
        let text = serde_json::to_string(&serde_json::json!({ "traceEvents": events, "displayTimeUnit": "ms" }))
            .expect("events are representable in JSON");
        write_whole(path, |partial| std::fs::write(partial, text).map_err(Error::io(path, "write")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stages_add_up_and_traces_are_json() {
        let mut clock = Clock::new(true);
        for step in 1..=2 {
            assert_eq!(clock.wait(|| step), step);
            clock.time(Stage::Top, || std::thread::sleep(std::time::Duration::from_millis(3)));
            assert_eq!(clock.time(Stage::Loss, || 7), 7);
            clock.step_done();
        }
        assert!(clock.ms(Stage::Top) >= 3.0 && clock.ms(Stage::Bottom) == 0.0 && clock.wait_ms() < 3.0);
        let file = tempfile::NamedTempFile::new().unwrap();
        clock.write_trace(file.path()).unwrap();
        let trace: serde_json::Value = serde_json::from_slice(&std::fs::read(file.path()).unwrap()).unwrap();
        let events = trace["traceEvents"].as_array().unwrap();
        let of = |cat: &str| events.iter().filter(|event| event["cat"] == cat).collect::<Vec<_>>();
        let (stages, steps) = (of("stage"), of("step"));
        assert_eq!((stages.len(), steps.len(), of("data").len()), (4, 2, 2));
        assert!(stages[0]["dur"].as_f64().unwrap() >= 3000.0);
        for (number, (step, stages)) in (1..).zip(steps.iter().zip(stages.chunks(2))) {
            let ends = |event: &serde_json::Value| {
                let start = event["ts"].as_f64().unwrap();
                (start, start + event["dur"].as_f64().unwrap())
            };
            assert_eq!(step["args"]["step"], number);
            assert!(stages.iter().all(|stage| ends(stage).0 >= ends(step).0 && ends(stage).1 <= ends(step).1 + 1e-3));
        }
    }

    #[test]
    fn a_trace_ends_and_never_grows_its_memory() {
        let mut clock = Clock::new(true);
        let room = clock.trace.as_ref().unwrap().capacity();
        for _ in 0..TRACED_STEPS + 5 {
            clock.wait(|| ());
            Stage::ALL.into_iter().for_each(|stage| clock.time(stage, || ()));
            clock.step_done();
        }
        let trace = clock.trace.as_ref().unwrap();
        assert_eq!((trace.len(), trace.capacity()), (TRACED_STEPS as usize * EVENTS, room));
    }
}
