//! `octorec bench`: one object for scripts, a table for people. Small sizes; no test asserts a time.

use super::{SGD, fail, json, run, succeed};

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
    let tiny = "--set model.rows=[5000,70,3] --set model.bottom=[13,32,16] --set model.top=[16,1] --batch 96 \
                --limit-mib 16";
    let report =
        json(&format!("bench step {tiny} {SGD} --zipf 1.05 --rows-cap 1000 --repeat 3 --minibatches 1 --json"));
    for key in ["warm_ms_median", "ms_median", "ms_min", "ms_max", "samples_per_s", "roofline_ms", "ratio"] {
        assert!(report[key].as_f64().unwrap() > 0.0, "{key}: {report}");
    }
    let stages = report["stages"].as_array().unwrap();
    assert_eq!(stages.len(), 10, "a single rank exchanges nothing");
    let sum: f64 = stages.iter().map(|stage| stage["roofline_ms"].as_f64().unwrap()).sum();
    assert!((sum - report["roofline_ms"].as_f64().unwrap()).abs() < 1e-9);
    // Every different row is read once; 3 tables of 96 bags, 16 floats each, are written as pooled rows.
    let (rows, pooled) = (report["row_bytes"].as_f64().unwrap(), 3.0 * 96.0 * 64.0);
    assert!(rows > 0.0 && rows < pooled, "some rows are looked up twice: {report}");
    assert_eq!(stages[0]["bytes"], rows + pooled);
    assert_eq!(report["cold"], false);
    // By hand: 96 samples; 13 to 32 to 16; 6 pairs of 4 vectors beside the 16 numbers of one, 22 to 16 to 1; a fused
    // multiply-add is two operations; a look-up adds a row, an update multiplies and adds one.
    let (bottom, pairs, top) = (13.0 * 32.0 + 32.0 * 16.0, 6.0 * 16.0, 22.0 * 16.0 + 16.0);
    for (stage, operations) in [
        ("look up rows", 96.0 * 3.0 * 16.0),
        ("bottom MLP", 96.0 * 2.0 * bottom),
        ("interaction", 96.0 * 2.0 * pairs),
        ("top MLP", 96.0 * 2.0 * top),
        ("loss", 0.0),
        ("back top MLP", 96.0 * 4.0 * top),
        ("back interaction", 96.0 * 4.0 * pairs),
        ("back bottom MLP", 96.0 * (4.0 * bottom - 2.0 * 13.0 * 32.0)),
        ("update rows", 96.0 * 3.0 * 16.0 * 2.0),
        ("update MLPs", 2.0 * (bottom + top)),
    ] {
        let found = stages.iter().find(|row| row["stage"] == stage).unwrap_or_else(|| panic!("{stage}"));
        assert_eq!(found["operations"], operations, "{stage}");
    }
    // Where f32 go over tiles, their peak is a limit too, and the step has a second roofline.
    let on_tiles = octorec::simd::Isa::best().amx_thirds().is_some();
    assert_eq!(report["limits"].as_array().unwrap().len(), if on_tiles { 5 } else { 4 });
    assert_eq!(report["tiles_roofline_ms"].is_number(), on_tiles);
    let fused = json(&format!("bench step {tiny} --isa scalar --repeat 3 --minibatches 2 --json"));
    assert_eq!(fused["limits"].as_array().unwrap().len(), 4);
    assert!(fused["tiles_roofline_ms"].is_null());
    let message = fail(&format!("bench step {tiny} --source criteo"));
    assert!(message.contains("`octorec bench step` does not use data.source"), "{message}");
}

#[test]
fn mlps_are_held_against_the_peak() {
    for precision in ["f32", "bf16"] {
        let line =
            format!("bench mlp --batch 40 --widths 64,70 --layers 2 --rounds 1 --threads 2 --precision {precision}");
        let report = json(&format!("{line} --json"));
        let rows = report["rows"].as_array().unwrap();
        assert_eq!(rows.len(), 2 * 3, "{report}");
        for (row, pass) in rows.iter().zip(["forward", "backward-data", "backward-weights"].into_iter().cycle()) {
            assert_eq!((&row["pass"], &row["n"], &row["precision"]), (&pass.into(), &40.into(), &precision.into()));
            assert_eq!(row["c"], row["k"]);
            let figure = |key: &str| row[key].as_f64().unwrap();
            assert!(figure("gflops") > 0.0 && figure("peak_gflops") > 0.0, "{row}");
            assert!((figure("ratio") - figure("gflops") / figure("peak_gflops")).abs() < 1e-9, "{row}");
            let cycles = figure("gflops") / figure("clock_ghz") / (figure("peak_gflops") / figure("peak_clock_ghz"));
            assert!((figure("cycle_ratio") / cycles - 1.0).abs() < 1e-9, "{row}");
        }
        let mean = rows.iter().map(|row| row["ratio"].as_f64().unwrap()).sum::<f64>() / rows.len() as f64;
        assert!((report["mean_ratio"].as_f64().unwrap() - mean).abs() < 1e-9);
    }
    let help = String::from_utf8(succeed("bench mlp --help").stdout).unwrap();
    assert!(help.contains("[default: 1024]") && help.contains("4096]"), "{help}");
}

#[test]
fn single_layers_of_odd_shapes_on_any_instruction_set() {
    let flags = "--shape 33x13x1 --shape 5x130x64 --pass forward,backward-weights --precision f32,bf16";
    let report = json(&format!("bench gemm {flags} --isa scalar --rounds 1 --threads 1 --json"));
    assert_eq!(report["isa"], "scalar");
    let rows = report["rows"].as_array().unwrap();
    assert_eq!(rows.len(), 2 * 2 * 2, "{report}");
    assert!(rows.iter().all(|row| row["ratio"].as_f64().unwrap() > 0.0 && row["limit"] == "f32 peak"), "{report}");
    let report = json("bench gemm --shape 40x70x70,40x70x64 --pass forward --rounds 1 --threads 1 --json");
    let on_tiles: Vec<_> =
        report["rows"].as_array().unwrap().iter().map(|row| row["tiles_ratio"].is_number()).collect();
    assert_eq!(on_tiles, [report["isa"] == "amx-bf16x3", false]);
    let text = String::from_utf8(succeed("bench gemm --shape 8x8x8 --rounds 1 --threads 1").stdout).unwrap();
    assert!(text.contains("8 x 8 x 8") && text.contains("mean"), "{text}");
    for bad in ["--shape 8x8", "--shape 0x1x1", "--rounds 0", "--pass sideways", "--precision f64"] {
        assert_eq!(run(&format!("bench gemm {bad}")).status.code(), Some(2), "{bad}");
    }
    assert!(fail("bench gemm --isa avx2000").contains("one of: scalar"));
}

#[test]
fn embedding_bags_are_held_against_random_rows() {
    let sizes = "--tables 3 --rows 3000 --dim 24 --lookups 5 --batch 64 --repeat 2 --minibatches 2 --threads 2";
    let report = json(&format!("bench embedding {sizes} --json"));
    assert_eq!(report["table_bytes"], 3 * 3000 * 24 * 4);
    let loads = report["loads"].as_array().unwrap();
    let exponents: Vec<_> = loads.iter().map(|load| load["zipf"].as_f64().unwrap()).collect();
    assert_eq!(exponents, [0.0, 1.05]);
    for load in loads {
        let updates = load["updates"].as_array().unwrap();
        for row in updates.iter().chain([&load["forward"]]) {
            for key in ["ms_median", "ms_min", "ms_max", "gb_s", "limit_gb_s", "ratio"] {
                assert!(row[key].as_f64().unwrap() > 0.0, "{key}: {row}");
            }
        }
        for name in ["serial", "atomic", "race-free", "sorted", "auto"] {
            for fused in [true, false] {
                let found = updates.iter().filter(|row| row["update"] == name && row["fused"] == fused);
                assert_eq!(found.count(), 1, "{name} {fused}");
            }
            let speed_up = load["speed_ups"].as_array().unwrap().iter().find(|row| row["update"] == name).unwrap();
            assert!(speed_up["fused"].as_f64().unwrap() > 0.0 && speed_up["against_atomic"].as_f64().unwrap() > 0.0);
        }
    }
    let remarks = report["remarks"].to_string();
    assert!(remarks.contains("uniform rows") && remarks.contains("whole cache lines: 128 bytes"), "{remarks}");
    let halves = json(&format!("bench embedding {sizes} --precision bf16 --json"));
    assert_eq!(halves["precision"], "bf16");
    let updates = halves["loads"][0]["updates"].as_array().unwrap();
    assert!(updates.iter().all(|row| row["update"] != "rtm" && row["gb_s"].as_f64().unwrap() > 0.0), "{halves}");
    for (optimizer, bytes) in [("adagrad", 24 * 8), ("rowwise-adagrad", 24 * 4 + 4)] {
        let report = json(&format!("bench embedding {sizes} --zipf 0 --optimizer {optimizer} --json"));
        assert_eq!((&report["table_bytes"], &report["optimizer"]), (&(3 * 3000 * bytes).into(), &optimizer.into()));
        let updates = report["loads"][0]["updates"].as_array().unwrap();
        assert!(updates.iter().all(|row| row["update"] == "sorted") && updates.len() == 2, "{report}");
    }
    let message = fail(&format!("bench embedding {sizes} --optimizer adam --update serial"));
    assert!(message.contains("use --update sorted"), "{message}");
    let text = succeed(&format!("bench embedding {sizes} --zipf 0 --update race-free,sorted")).stdout;
    let text = String::from_utf8(text).unwrap();
    assert!(text.contains("look up") && text.contains("update sorted, separate") && !text.contains("Zipf"), "{text}");
    for bad in ["--update quick", "--zipf -1", "--tables 0", "--lookups many", "--optimizer lamb"] {
        assert_eq!(run(&format!("bench embedding {bad}")).status.code(), Some(2), "{bad}");
    }
}

#[test]
fn threads_that_would_take_turns_are_refused_with_the_number_of_processors() {
    let processors = std::thread::available_parallelism().unwrap();
    for bench in ["gemm --shape 8x8x8", "mlp", "peak", "memory"] {
        let message = fail(&format!("bench {bench} --threads 99999"));
        assert!(
            message.contains(&format!("--threads: 99999 threads would take turns on the {processors} ")),
            "{message}"
        );
    }
}
