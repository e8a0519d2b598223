//! `octorec bench`: one object for scripts, a table for people. Small sizes; no test asserts a time.

use super::{json, run, succeed};

#[test]
fn team_tells_its_regions() {
    let report = json("bench team --threads 2 --regions 50 --json");
    assert_eq!(report["threads"], 2);
    let rows = report["rows"].as_array().unwrap();
    for what in ["octorec", "rayon broadcast", "std::thread::scope"] {
        for state in ["hot", "after 1 ms"] {
            let row = rows.iter().find(|row| row["what"] == what && row["state"] == state).unwrap();
            assert!(row["median_ns"].as_f64().unwrap() <= row["p99_ns"].as_f64().unwrap(), "{row}");
        }
    }
    let text = String::from_utf8(succeed("bench team --threads 1 --regions 5").stdout).unwrap();
    assert!(text.contains("rayon broadcast") && text.contains("NUMA node"), "{text}");
}

#[test]
fn memory_tells_rates_and_formulas() {
    let report = json("bench memory --threads 2 --mib 4 --json");
    let rows = report["rows"].as_array().unwrap();
    assert_eq!(rows.len(), 5 * 2 * 2);
    for row in rows {
        assert!(row["gb_s"]["median"].as_f64().unwrap() > 0.0, "{row}");
        assert!(row["formula"].as_str().unwrap().contains("/ s"), "{row}");
    }
    let text = String::from_utf8(succeed("bench memory --threads 1 --mib 4").stdout).unwrap();
    assert!(text.contains("non-temporal copy") && text.contains("row update"), "{text}");
}

#[test]
fn odd_rows_are_refused() {
    let output = run("bench memory --row-bytes 100");
    assert_eq!(output.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&output.stderr).contains("multiple of 64"));
}
