//! `octorec bench`: one object for scripts, a table for people. Small sizes; no test asserts a time.

use super::{fail, json, run, succeed};

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

#[test]
fn a_step_is_held_against_its_roofline() {
    let tiny = "--set model.rows=[5000,70,3] --set model.bottom=[13,32,16] --set model.top=[16,1] --batch 96";
    let report = json(&format!("bench step {tiny} --zipf 1.05 --rows-cap 1000 --repeat 3 --minibatches 2 --json"));
    for key in ["ms_median", "ms_min", "ms_max", "samples_per_s", "roofline_ms", "ratio"] {
        assert!(report[key].as_f64().unwrap() > 0.0, "{key}: {report}");
    }
    let stages = report["stages"].as_array().unwrap();
    assert_eq!(stages.len(), octorec::model::Stage::ALL.len());
    let sum: f64 = stages.iter().map(|stage| stage["roofline_ms"].as_f64().unwrap()).sum();
    assert!((sum - report["roofline_ms"].as_f64().unwrap()).abs() < 1e-9);
    // 3 tables of 96 look-ups, 16 floats each.
    assert_eq!(stages[0]["bytes"], 3.0 * 96.0 * 64.0);
    assert_eq!(report["limits"].as_array().unwrap().len(), 4);
    let message = fail(&format!("bench step {tiny} --source criteo"));
    assert!(message.contains("random look-ups"), "{message}");
}
