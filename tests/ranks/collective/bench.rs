//! `octorec bench alltoall` and `allreduce`: the bytes are right; no test asserts a time.

use std::process::{Command, Output};

use serde_json::Value;

fn run(line: &str) -> Output {
    Command::new(env!("CARGO_BIN_EXE_octorec")).args(line.split_whitespace()).output().expect("the binary runs")
}

fn json(line: &str) -> Value {
    let output = run(line);
    assert!(output.status.success(), "octorec {line}\n{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).expect("one JSON object")
}

#[test]
fn reports_tell_bytes_rates_and_their_ratio_to_the_limit() {
    let all_to_all = json("bench alltoall --ranks 3 --bytes 4100 --tables 2 --limit-mib 16 --json");
    let all_reduce = json("bench allreduce --ranks 2 --bytes 100000 --bf16 --limit-mib 16 --json");
    for (report, bytes, names) in [
        (&all_to_all, 6 * 4100, &["in-place", "alltoall", "pairwise", "fused-scatter", "scatter-list", "relayed"][..]),
        (
            &all_reduce,
            2 * 50000,
            &["direct", "ring", "two-ring", "multi-ring", "halving-doubling", "breadth-first", "spanning-trees"],
        ),
    ] {
        let limit = &report["copy_limit"];
        let limit = (limit["before"]["median"].as_f64().unwrap() + limit["after"]["median"].as_f64().unwrap()) / 2.0;
        let rows = report["rows"].as_array().unwrap();
        assert_eq!(rows.len(), names.len());
        for (row, name) in rows.iter().zip(names) {
            assert_eq!((&row["algorithm"], &row["bytes"]), (&(*name).into(), &bytes.into()), "{row}");
            let (rate, ratio) = (row["memory_gb_s"].as_f64().unwrap(), row["ratio"].as_f64().unwrap());
            assert!(rate > row["gb_s"].as_f64().unwrap() && (ratio - rate / limit).abs() < 1e-6, "{row}");
        }
    }
}

#[test]
fn impossible_wishes_are_refused() {
    for (line, code, word) in [
        ("alltoall --ranks 65", 2, "1..=64"),
        ("alltoall --ranks 1", 1, "use 2 or more"),
        ("allreduce --bytes 7", 2, "multiple of 4"),
        ("allreduce --algorithm hierarchical", 1, "--algorithm"),
    ] {
        let output = run(&format!("bench {line}"));
        let message = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.code() == Some(code) && message.contains(word), "{message}");
    }
}
