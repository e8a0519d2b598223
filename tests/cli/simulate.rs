//! `octorec simulate`: predictions for machines that one does not have.

use super::{fail, json, run, succeed};

#[test]
fn collectives_are_priced_beside_their_bounds() {
    let found = json("simulate collectives --topology twisted-hypercube-8 --bytes 1MiB,64MiB --links-only --json");
    assert_eq!((found["ranks"].as_u64(), found["links_only"].as_bool()), (Some(8), Some(true)));
    let rows = found["rows"].as_array().unwrap();
    for collective in ["all-gather", "reduce-scatter", "all-reduce", "all-to-all"] {
        for bytes in [1_u64 << 20, 64 << 20] {
            let of = |row: &&serde_json::Value| row["collective"] == collective && row["bytes"] == bytes;
            let rows: Vec<_> = rows.iter().filter(of).collect();
            let time = |row: &serde_json::Value| row["time_us"].as_f64().unwrap();
            let chosen: Vec<_> = rows.iter().filter(|row| row["chosen"] == true).collect();
            assert_eq!(chosen.len(), 1, "{rows:?}");
            assert!(rows.len() > 2 && rows.iter().all(|row| time(row) >= time(chosen[0])));
            for row in &rows {
                let (time, bound) = (time(row), row["bound_us"].as_f64().unwrap());
                assert!((row["ratio"].as_f64().unwrap() - time / bound).abs() < 1e-9 && time >= bound);
                assert!(row["busiest"].as_str().unwrap().starts_with("link node"), "{row}");
            }
            if collective != "all-to-all" {
                assert_eq!(chosen[0]["planner"], "breadth-first");
            }
        }
    }
    // 7/8 of 64 MiB over three links of 22 GB/s.
    let bound = rows.iter().find(|row| row["bytes"] == 64 << 20).unwrap()["bound_us"].as_f64().unwrap();
    assert!((bound - 7.0 / 8.0 * f64::from(64 << 20) / 66e3).abs() < 0.1, "{bound}");
    let table = succeed("simulate collectives --topology fat-tree-64 --bytes 64MiB").stdout;
    let table = String::from_utf8_lossy(&table);
    assert!(table.contains("64 ranks on fat-tree-64, links and memories") && table.contains("hierarchical"), "{table}");
    let few = json("simulate collectives --topology fat-tree-64 --ranks 3 --bytes 4096 --bf16 --json");
    assert_eq!(few["ranks"], 3);
}

#[test]
fn what_cannot_be_simulated_is_told() {
    let message = fail("simulate collectives --topology this-small-box");
    assert!(message.contains("this-small-box has one rank, which sends nothing: set --ranks"), "{message}");
    let message = fail("simulate collectives --topology twisted-hypercube-8 --ranks 300");
    assert!(message.contains("--ranks: 300 ranks are too many to simulate: at most 256"), "{message}");
    let message = fail("simulate collectives --topology twisted-hypercub-8");
    assert!(message.contains("twisted-hypercube-8"), "{message}");
    let output = run("simulate collectives --topology two-socket --bytes 63");
    let message = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2));
    assert!(message.contains("--bytes") && message.contains("a multiple of 4 from 64"), "{message}");
}
