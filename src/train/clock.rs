//! Where a step's time goes: every stage is timed, always (two clock readings a stage, some 50 ns).

use std::path::Path;
use std::time::Instant;

use serde::Serialize;

use super::write_whole;
use crate::base::{Error, Result};
use crate::model::Stage;

/// Stages that a trace keeps at most: enough for a thousand steps, a few MB of text.
const TRACE_LIMIT: usize = 10_000;

/// The time of every stage since the clock was made.
#[derive(Debug)]
pub struct Clock {
    started: Instant,
    seconds: [f64; Stage::ALL.len()],
    steps: u64,
    trace: Option<Vec<Event>>,
}

/// One stage of one step, in the Trace Event Format that Perfetto and chrome://tracing read.
#[derive(Debug, Serialize)]
struct Event {
    name: &'static str,
    ph: &'static str,
    /// Start, in microseconds.
    ts: f64,
    /// Duration, in microseconds.
    dur: f64,
    pid: u32,
    tid: u32,
}

impl Clock {
    /// A clock at 0; `traced` also keeps when each stage began.
    #[must_use]
    pub fn new(traced: bool) -> Self {
        let trace = traced.then(|| Vec::with_capacity(TRACE_LIMIT));
        Self { started: Instant::now(), seconds: [0.0; Stage::ALL.len()], steps: 0, trace }
    }

    /// Runs and times a stage.
    #[inline]
    pub fn time<T>(&mut self, stage: Stage, work: impl FnOnce() -> T) -> T {
        let began = Instant::now();
        let result = work();
        let took = began.elapsed().as_secs_f64();
        self.seconds[stage as usize] += took;
        if let Some(trace) = self.trace.as_mut().filter(|trace| trace.len() < TRACE_LIMIT) {
            let ts = began.duration_since(self.started).as_secs_f64() * 1e6;
            trace.push(Event { name: stage.name(), ph: "X", ts, dur: took * 1e6, pid: 0, tid: 0 });
        }
        result
    }

    /// Ends a step.
    pub const fn step_done(&mut self) {
        self.steps += 1;
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
        let events = self.trace.as_deref().unwrap_or_default();
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
        for _ in 0..2 {
            clock.time(Stage::Top, || std::thread::sleep(std::time::Duration::from_millis(3)));
            assert_eq!(clock.time(Stage::Loss, || 7), 7);
            clock.step_done();
        }
        assert!(clock.ms(Stage::Top) >= 3.0 && clock.ms(Stage::Bottom) == 0.0);
        let file = tempfile::NamedTempFile::new().unwrap();
        clock.write_trace(file.path()).unwrap();
        let trace: serde_json::Value = serde_json::from_slice(&std::fs::read(file.path()).unwrap()).unwrap();
        let events = trace["traceEvents"].as_array().unwrap();
        assert_eq!(events.len(), 4);
        assert!(events[0]["dur"].as_f64().unwrap() >= 3000.0);
    }
}
