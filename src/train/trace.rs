//! Traces in the Trace Event Format, which Perfetto (ui.perfetto.dev) and chrome://tracing read: a process a rank, in it a
//! track of its compute threads, which go through the stages together, and one a communication thread.

use std::time::Instant;

use serde_json::{Value, json};

use super::clock::Span;

/// The spans of a rank's compute threads, and those of each of its communication threads.
pub(super) type RankSpans = (Vec<Span>, Vec<Vec<Span>>);

/// The trace of some ranks; times are counted from `began`.
pub(super) fn json(began: Instant, ranks: &[RankSpans]) -> String {
    let mut events = Vec::new();
    for (rank, (compute, communication)) in ranks.iter().enumerate() {
        events.push(name("process_name", rank, 0, &format!("rank {rank}")));
        events.push(name("thread_name", rank, 0, "compute threads"));
        events.extend(compute.iter().map(|span| event(span, began, rank, 0, "stage")));
        for (thread, spans) in communication.iter().enumerate() {
            events.push(name("thread_name", rank, thread + 1, &format!("communication thread {thread}")));
            events.extend(spans.iter().map(|span| event(span, began, rank, thread + 1, "communication")));
        }
    }
    json!({ "traceEvents": events, "displayTimeUnit": "ms" }).to_string()
}

fn name(kind: &str, pid: usize, tid: usize, name: &str) -> Value {
    json!({ "name": kind, "ph": "M", "pid": pid, "tid": tid, "args": { "name": name } })
}

fn event(span: &Span, began: Instant, pid: usize, tid: usize, category: &str) -> Value {
    let category = match span.name {
        "step" => "step",
        "wait for data" => "data",
        _ => category,
    };
    let us = |duration: std::time::Duration| duration.as_secs_f64() * 1e6;
    let number = if category == "communication" { "layer" } else { "step" };
    json!({
        "name": span.name, "cat": category, "ph": "X", "pid": pid, "tid": tid,
        "ts": us(span.began.saturating_duration_since(began)), "dur": us(span.took), "args": { number: span.number },
    })
}
