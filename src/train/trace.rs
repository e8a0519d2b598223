//! Traces in the Trace Event Format, which Perfetto (ui.perfetto.dev) and chrome://tracing read: a process a rank, in
//! it a track of its compute threads, which go through the stages together, and one a communication thread.

use std::time::Instant;

use serde_json::{Value, json};

use super::clock::Span;

/// The spans of a rank's compute threads, and those of each of its communication threads.
pub(super) type RankSpans = (Vec<Span>, Vec<Vec<Span>>);

/// The trace of some ranks; times are counted from `began`.
pub(super) fn json(began: Instant, ranks: &[RankSpans]) -> String {
    let mut events = Vec::new();
    for (rank, (compute, communication)) in ranks.iter().enumerate() {
        events.extend(names(rank));
        events.extend(compute.iter().map(|span| event(span, began, rank, 0, "stage")));
        for (thread, spans) in communication.iter().enumerate() {
            events.push(name("thread_name", rank, thread + 1, &format!("communication thread {thread}")));
            events.extend(spans.iter().map(|span| event(span, began, rank, thread + 1, "communication")));
        }
    }
    document(events)
}

/// The names of a rank and of its compute threads.
pub(crate) fn names(rank: usize) -> [Value; 2] {
    [name("process_name", rank, 0, &format!("rank {rank}")), name("thread_name", rank, 0, "compute threads")]
}

/// A trace of these events.
pub(crate) fn document(events: Vec<Value>) -> String {
    json!({ "traceEvents": events, "displayTimeUnit": "ms" }).to_string()
}

/// What a track is called, or a process.
pub(crate) fn name(kind: &str, pid: usize, tid: usize, name: &str) -> Value {
    json!({ "name": kind, "ph": "M", "pid": pid, "tid": tid, "args": { "name": name } })
}

fn event(span: &Span, began: Instant, pid: usize, tid: usize, category: &str) -> Value {
    let category = match span.name {
        "step" => "step",
        "wait for data" => "data",
        _ => category,
    };
    let number = if category == "communication" { "layer" } else { "step" };
    let seconds = [span.began.saturating_duration_since(began), span.took].map(|time| time.as_secs_f64());
    complete(span.name, category, [pid, tid], seconds, (number, span.number))
}

/// Something that began after so many seconds and took so many, on a track of a process.
pub(crate) fn complete(
    name: &str,
    category: &str,
    [pid, tid]: [usize; 2],
    [began_s, took_s]: [f64; 2],
    (what, number): (&str, u64),
) -> Value {
    json!({
        "name": name, "cat": category, "ph": "X", "pid": pid, "tid": tid,
        "ts": began_s * 1e6, "dur": took_s * 1e6, "args": { what: number },
    })
}
