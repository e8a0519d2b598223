//! `octorec simulate`: predictions for machines that one does not have.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

use octorec::model::Stage;

use super::{fail, json, run, succeed, tiny_training};

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
    let message = fail("simulate --topology two-socket --preset small --ranks 1 --comm-cores 4");
    assert!(message.contains("--comm-cores: one rank has nobody to communicate with"), "{message}");
    let message = fail("simulate --topology this-small-box --preset large");
    assert!(message.contains("--topology this-small-box: table 1 (C2): 5.7 GiB are needed"), "{message}");
    let message = fail("simulate --topology fat-tree-64 --preset small --ranks 8,65");
    assert!(message.contains("--ranks: 65 ranks are too many to simulate a step of: at most 64"), "{message}");
    let output = run("simulate collectives --topology two-socket --bytes 63");
    let message = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2));
    assert!(message.contains("--bytes") && message.contains("a multiple of 4 from 64"), "{message}");
}

#[test]
fn where_cores_work_for_the_network_more_bandwidth_makes_no_step_longer() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("hosts.toml");
    let point = |gb_s: f64, core_s_per_gb: f64| {
        let text = format!(
            "name = \"hosts\"\n[[node]]\nids = \"0-3\"\nnodes_per_host = 2\ncores = 4\nmemory_gib = 16\nmemory_gb_s = 50\n\
             peak_f32_gflop_s = 200\n[[switch]]\nname = \"s\"\n[[link]]\npairs = [[\"0-3\", \"s\"]]\ngb_s = {gb_s:?}\n\
             latency_ns = 1000\ncore_s_per_gb = {core_s_per_gb:?}\n[[link]]\npairs = [[0, 1], [2, 3]]\ngb_s = 20\n"
        );
        std::fs::write(&file, text).unwrap();
        json(&format!("simulate --topology {} --preset small --json", file.display()))["points"][0].clone()
    };
    // A schedule that sends more between machines keeps their cores busy, however wide the links are.
    let [narrow, wide] = [12.5, 25.0].map(|gb_s| point(gb_s, 1.0)["step_ms"].as_f64().unwrap());
    assert!(wide <= 1.0001 * narrow, "{wide} ms, with half of the bandwidth {narrow}");
    // What is waited for is named.
    let limit = point(12.5, 20.0)["bottleneck"].as_str().unwrap().to_owned();
    assert!(limit.starts_with("dense gradients on compute cores of rank "), "{limit}");
}

#[test]
fn a_link_that_limits_nothing_is_not_blamed() {
    // Two ranks of 14 threads share a memory beside one of 28, which waits for them; the link is busy for 3 % of the step.
    let found = json("simulate --topology two-socket --preset small --rows-cap 100000 --ranks 3 --json");
    let limit = found["points"][0]["bottleneck"].as_str().unwrap();
    assert!(limit.starts_with("dense gradients") && !limit.contains("link"), "{limit}");
}

#[test]
fn copies_of_hot_rows_are_simulated_beside_the_step_without() {
    let step = |flags: &str| {
        let words = format!("simulate --topology twisted-hypercube-8 --preset rmc2 --ranks 1,8 --json {flags}");
        json(&words)["points"].as_array().unwrap().clone()
    };
    let of = |point: &serde_json::Value, key: &str| point[key].as_f64().unwrap_or_else(|| panic!("{key}: {point}"));
    let [off, exact, fae] = ["", "--hot exact --hot-budget 64MiB", "--hot fae --hot-budget 64MiB"].map(step);
    // One rank has no use for copies.
    for points in [&off, &exact, &fae] {
        assert!(points[0].get("hot_rows").is_none() && points[0]["step_ms"] == off[0]["step_ms"], "{points:?}");
    }
    assert!(off[1].get("step_ms_without").is_none());
    for points in [&exact, &fae] {
        assert_eq!(of(&points[1], "step_ms_without"), of(&off[1], "step_ms"));
        assert!(of(&points[1], "hot_rows") > 50.0);
        assert_ne!(of(&points[1], "step_ms"), of(&off[1], "step_ms"));
    }
    assert!(of(&exact[1], "hot_lookups") > 0.05 && exact[1].get("hot_inputs").is_none());
    assert!(of(&fae[1], "hot_inputs") > 0.0 && fae[1].get("hot_lookups").is_none());
    // What travels less is waited for less; sums and moved rows take their time.
    let exposed = |points: &[serde_json::Value], kind: &str| of(&points[1]["exposed_ms"], kind);
    assert!(exposed(&off, "hot rows") == 0.0 && exposed(&exact, "hot rows") > 0.0);
    let text = String::from_utf8_lossy(&succeed("simulate --topology two-socket --preset rmc2 --hot exact").stdout)
        .into_owned();
    assert!(text.contains("step ms without copies") && text.contains("% of look-ups"), "{text}");
    let text = String::from_utf8_lossy(&succeed("simulate --topology two-socket --preset rmc2").stdout).into_owned();
    assert!(!text.contains("hot rows"), "{text}");
    let message = fail("simulate --topology two-socket --preset rmc2 --hot-budget 64MiB");
    assert!(message.contains("train.hot"), "{message}");
}

#[test]
fn steps_are_predicted_for_any_number_of_ranks() {
    let folder = tempfile::tempdir().unwrap();
    let [trace, svg] = ["trace.json", "chart.svg"].map(|name| folder.path().join(name));
    let line = "simulate --topology twisted-hypercube-8 --preset small --rows-cap 100000 --batch 8192 --ranks 1,2,4,8";
    let files = format!("--trace {} --svg {}", trace.display(), svg.display());
    let found = json(&format!("{line} {files} --json"));
    let points = found["points"].as_array().unwrap();
    let number = |point: &serde_json::Value, key: &str| point[key].as_f64().unwrap();
    assert_eq!(points.iter().map(|point| number(point, "ranks")).collect::<Vec<_>>(), [1.0, 2.0, 4.0, 8.0]);
    for pair in points.windows(2) {
        assert!(number(&pair[0], "step_ms") > number(&pair[1], "step_ms"), "{pair:?}");
        assert!(number(&pair[0], "efficiency") > number(&pair[1], "efficiency"), "{pair:?}");
    }
    for point in points {
        let exposed: f64 = point["exposed_ms"].as_object().unwrap().values().map(|ms| ms.as_f64().unwrap()).sum();
        let (step, compute) = (number(point, "step_ms"), number(point, "compute_ms"));
        assert!(((compute + exposed) / step - 1.0).abs() < 0.03, "{point}");
        assert!((number(point, "samples_per_s") / (8192.0 / step * 1e3) - 1.0).abs() < 1e-9);
        assert!((number(point, "speedup") / number(point, "ranks") - number(point, "efficiency")).abs() < 1e-9);
        assert_eq!((point["batch"].as_u64(), point["machines"].as_u64()), (Some(8192), Some(1)));
    }
    assert!(points[0]["collective"].is_null() && points[3]["collective"].is_string());
    let trace: serde_json::Value = serde_json::from_str(&std::fs::read_to_string(trace).unwrap()).unwrap();
    let tracks: std::collections::BTreeSet<_> =
        trace["traceEvents"].as_array().unwrap().iter().map(|event| event["pid"].as_u64().unwrap()).collect();
    assert_eq!(tracks.len(), 8);
    let svg = std::fs::read_to_string(svg).unwrap();
    assert!(svg.contains("training on twisted-hypercube-8") && svg.contains("predicted"), "{svg}");

    // The minibatch grows with the ranks in two ways of saying so, and a named schedule is taken.
    let batches = |line: &str| -> Vec<u64> {
        let found = json(&format!("simulate --topology ring-4 --preset small --rows-cap 1000 {line} --json"));
        found["points"].as_array().unwrap().iter().map(|point| point["batch"].as_u64().unwrap()).collect()
    };
    assert_eq!(batches("--ranks 2,4 --batch-per-rank 512"), [1024, 2048]);
    assert_eq!(batches("--ranks 2,4 --batch 1024 --scaling weak"), [1024, 2048]);
    assert_eq!(batches("--ranks 4,2 --batch 1024 --scaling weak"), [2048, 1024]);
    // A model without any layer: two rows' product.
    let folder = tempfile::tempdir().unwrap();
    let factors = folder.path().join("factors.toml");
    let text = "[data]\nsource = 'random'\n[model]\nbottom = []\ndim = 8\nrows = [100, 100]\ncolumns = ['user', 'item']\n\
                layers = [{ name = 'logit', type = 'dot', of = ['user', 'item'] }]\n";
    std::fs::write(&factors, text).unwrap();
    let line = format!("simulate --topology two-socket --config {} --ranks 1,2 --batch 512 --json", factors.display());
    assert_eq!(json(&line)["points"].as_array().unwrap().len(), 2);
    std::fs::write(&factors, text.replace("random", "criteo")).unwrap();
    for command in [&line, &format!("plan --topology two-socket --config {}", factors.display())] {
        let message = fail(command);
        assert!(message.contains("reads user, which is no layer and no column"), "{message}");
    }
    // As many cores communicate as `train` would try, and none where all compute.
    let cores = |keys: &str| {
        let line =
            format!("simulate --topology twisted-hypercube-8 --preset mlperf --rows-cap 10000 --batch 2048 {keys}");
        json(&format!("{line} --json"))["points"][0]["comm_cores"].as_u64().unwrap()
    };
    assert!([0, 1, 2, 4].contains(&cores("")) && cores("--threads 28") == 0);
    let crowded = succeed("simulate --topology ring-4 --preset small --rows-cap 1000 --ranks 4,2 --threads 30").stderr;
    let crowded = String::from_utf8_lossy(&crowded);
    assert_eq!(
        crowded.matches("warning: 30 threads of a rank take turns on 28 processing units").count(),
        1,
        "{crowded}"
    );
    // It has no such flag, and measures nothing.
    assert!(!crowded.contains("--smt") && !crowded.contains("measured here"), "{crowded}");
    let ring =
        json("simulate --topology ring-4 --preset small --rows-cap 1000 --collective ring --comm-cores 2 --json");
    assert_eq!((&ring["points"][0]["collective"], &ring["points"][0]["comm_cores"]), (&"ring".into(), &2.into()));
    // Norms of layers, and the one that gradients are clipped by, cost ranks an exchange.
    let step_ms = |keys: &str| {
        let found =
            json(&format!("simulate --topology ring-4 --preset small --rows-cap 1000 --comm-cores 0 {keys} --json"));
        found["points"][0]["step_ms"].as_f64().unwrap()
    };
    assert!(step_ms("--set train.optimizer=lamb") > step_ms("--set train.optimizer=adam"));
    assert!(step_ms("--set train.clip_norm=1") > step_ms(""));
    let table = succeed("simulate --topology ring-4 --preset small --rows-cap 1000 --ranks 1,4 --overlap off").stdout;
    let table = String::from_utf8_lossy(&table);
    assert!(
        table.contains("A training step on ring-4; layers at 0.72 of the peak")
            && table.contains("gradients of pooled rows")
    );
}

/// The stages whose results a stage needs, on the same rank.
fn needs(stage: Stage) -> &'static [Stage] {
    match stage {
        Stage::WaitData => &[],
        Stage::PackIds => &[Stage::WaitData],
        Stage::WaitIds => &[Stage::PackIds],
        Stage::LookUp => &[Stage::WaitIds, Stage::UpdateRows],
        Stage::Bottom => &[Stage::WaitData, Stage::UpdateDense],
        Stage::WaitRows => &[Stage::LookUp],
        Stage::JoinRows => &[Stage::WaitRows],
        Stage::Interact => &[Stage::Bottom, Stage::JoinRows],
        Stage::Top => &[Stage::Interact, Stage::UpdateDense],
        Stage::Loss => &[Stage::Top],
        Stage::BackTop => &[Stage::Loss],
        Stage::BackInteract => &[Stage::BackTop],
        Stage::PackGradients => &[Stage::BackInteract],
        Stage::BackBottom => &[Stage::BackInteract],
        Stage::WaitGradients => &[Stage::PackGradients],
        Stage::UpdateRows => &[Stage::WaitGradients, Stage::LookUp],
        Stage::ReduceDense => &[Stage::BackTop, Stage::BackBottom],
        Stage::UpdateDense => &[Stage::ReduceDense],
    }
}

/// The last span of each stage that does something begins after the last ones of those whose results it needs, on each
/// rank and in each step; rows and layers are those that the step before has moved.
fn in_order(trace: &Path) {
    let text = std::fs::read_to_string(trace).unwrap();
    let trace: serde_json::Value = serde_json::from_str(&text).unwrap();
    let mut last = BTreeMap::<(u64, u64, &str), [f64; 2]>::new();
    for event in trace["traceEvents"].as_array().unwrap() {
        let (Some(step), Some(name)) = (event["args"]["step"].as_u64(), event["name"].as_str()) else { continue };
        // Layers that are simulated are moved as they are reduced.
        let name = if name.starts_with("reduce layer") { Stage::UpdateDense.name() } else { name };
        let [began, took] = ["ts", "dur"].map(|key| event[key].as_f64().unwrap());
        let span = last.entry((event["pid"].as_u64().unwrap(), step, name)).or_insert([began, began + took]);
        if began >= span[0] {
            *span = [began, began + took];
        }
    }
    let mut compared = 0;
    for (&(rank, step, name), [began, _]) in &last {
        let Some(stage) = Stage::ALL.into_iter().find(|stage| stage.name() == name && !stage.is_wait()) else {
            continue;
        };
        let mut open = needs(stage).to_vec();
        while let Some(need) = open.pop() {
            if need.is_wait() {
                open.extend(needs(need));
                continue;
            }
            let before = u64::from(matches!(need, Stage::UpdateRows | Stage::UpdateDense));
            let Some([_, ended]) = last.get(&(rank, step - before, need.name())) else { continue };
            // Seconds become microseconds, and sums of them are rounded.
            assert!(
                began + 1e-3 >= *ended,
                "rank {rank}, step {step}: {name} at {began}, {} until {ended}",
                need.name()
            );
            compared += 1;
        }
    }
    assert!(compared > 2 * 3 * 8, "{compared} stages of two ranks in three steps: {text}");
}

#[test]
fn stages_go_in_their_order_where_they_are_simulated_and_where_they_run() {
    let folder = tempfile::tempdir().unwrap();
    let trace = folder.path().join("trace.json");
    let model =
        "--set model.bottom=[16,64,32] --set model.top=[64,1] --set model.dim=32 --set model.rows=[5000000,5000000]";
    for cores in ["--comm-cores 0", "--comm-cores 2", "--comm-cores 2 --overlap off"] {
        let line = format!("simulate --topology twisted-hypercube-8 --preset small {model} --ranks 2 {cores}");
        succeed(&format!("{line} --trace {}", trace.display()));
        in_order(&trace);
    }
    succeed(&format!("{} --steps 3 --ranks 2 --threads 1 --trace {}", tiny_training(), trace.display()));
    in_order(&trace);
}

#[test]
fn a_bench_of_one_rank_calibrates_what_is_predicted() {
    let folder = tempfile::tempdir().unwrap();
    let bench = folder.path().join("bench.json");
    let model = "--set model.bottom=[16,64,32] --set model.top=[64,1] --set model.dim=32 --set model.rows=[5000,5000]";
    let model = format!("--preset small {model} --batch 512 --threads 1");
    let step = format!("bench step {model} --ranks 1 --comm-cores 0 --repeat 4 --minibatches 8 --limit-mib 16 --json");
    let measured = succeed(&step).stdout;
    std::fs::write(&bench, &measured).unwrap();
    let measured: serde_json::Value = serde_json::from_slice(&measured).unwrap();
    let calibrate = format!("--calibrate {}", bench.display());
    let found = json(&format!("simulate {model} --ranks 1 {calibrate} --json"));
    let (predicted, median) =
        (found["points"][0]["step_ms"].as_f64().unwrap(), measured["ms_median"].as_f64().unwrap());
    let stages = measured["stages"].as_array().unwrap().iter().map(|stage| stage["ms"].as_f64().unwrap());
    let sum: f64 = stages.sum();
    // By construction: stages take what they took in the mean, and the rest of a step what is left of the median.
    let [least, most] = [median.min(sum), median.max(sum)];
    assert!(predicted >= 0.95 * least && predicted < 1.1 * most, "{predicted}: {median}, {sum}");
    assert!(found["rates"].as_str().unwrap().contains("bench.json"), "{found}");
    let message = fail(&format!("simulate {} --ranks 1 {calibrate}", model.replace("--threads 1", "--threads 2")));
    assert!(message.contains("was measured with 1 thread a rank") && message.contains("--threads 1"), "{message}");

    let message = fail(&format!("simulate {} --ranks 1 {calibrate}", model.replace("[64,1]", "[32,1]")));
    assert!(message.contains("bench.json: was measured of another model"), "{message}");
    let message = fail(&format!("simulate {model} --ranks 1 --trace {}/none/trace.json", folder.path().display()));
    assert!(message.contains("none/trace.json: cannot create"), "{message}");
    // What no bench measures.
    let report = |batch: u64, ms: f64, median: f64| {
        let stages = serde_json::json!([{ "stage": Stage::ALL[0].name(), "ms": ms }]);
        let layers = &measured["layer_parameters"];
        let report = serde_json::json!({
            "ranks": 1, "threads": 1, "batch": batch, "layer_parameters": layers, "ms_median": median, "stages": stages
        });
        std::fs::write(&bench, report.to_string()).unwrap();
        fail(&format!("simulate {model} --ranks 1 {calibrate}"))
    };
    for (batch, ms, median, words) in [
        (0, 1.0, 2.0, "batch = 0 must lie in [1, "),
        (u64::MAX, 1.0, 2.0, "batch = 18446744073709551615 must lie in"),
        (64, -5.0, 2.0, ": -5 ms must lie in [0, 1e9]"),
        (64, 1.0, 1e308, "ms_median: "),
    ] {
        let message = report(batch, ms, median);
        assert!(message.contains("bench.json: ") && message.contains(words), "{message}");
    }

    let rates = folder.path().join("rates.toml");
    std::fs::write(&rates, "about = \"half the peak\"\nlayers = 0.5\n").unwrap();
    let line = "simulate --topology two-socket --preset small --rows-cap 1000 --ranks 1";
    let found = json(&format!("{line} --calibrate {} --json", rates.display()));
    assert_eq!(found["rates"], "half the peak");
    std::fs::write(&rates, "layer = 0.5\n").unwrap();
    let message = fail(&format!("{line} --calibrate {}", rates.display()));
    assert!(message.contains("rates.toml") && message.contains("unknown field `layer`"), "{message}");
    std::fs::write(&bench, "{}").unwrap();
    let message = fail(&format!("{line} {calibrate}"));
    assert!(
        message.contains("bench.json")
            && message.contains("octorec bench step --ranks 1 --json` prints, with the --preset and keys"),
        "{message}"
    );
}

#[test]
fn published_results_are_simulated_and_drawn() {
    let folder = tempfile::tempdir().unwrap();
    let found = json(&format!("simulate sc20 --models small,mlperf --out {} --json", folder.path().display()));
    let cases = found["cases"].as_array().unwrap();
    let case = |what: &str| cases.iter().find(|case| case["what"].as_str().unwrap().starts_with(what)).unwrap();
    for (what, published) in [("Small, one socket", 38.0), ("mlperf, strong, 26", 8.5), ("mlperf, weak, 26", 17.0)] {
        assert_eq!(case(what)["published"][0], published);
    }
    for model in ["small", "large", "mlperf"] {
        let volume = case(&format!("{model}: MiB of an all-reduce"));
        assert!(volume["deviation"].as_f64().unwrap().abs() < 0.01, "{volume}");
    }
    let figures = ["06", "09", "10-mlperf", "11-mlperf", "12", "13-mlperf", "14-mlperf", "15"];
    for figure in figures {
        let svg = std::fs::read_to_string(folder.path().join(format!("figure-{figure}.svg"))).unwrap();
        assert!(svg.starts_with("<svg"), "{figure}");
        assert!(folder.path().join(format!("figure-{figure}.json")).exists(), "{figure}");
    }
}

#[test]
fn models_of_terabytes_are_planned_and_simulated_within_a_gigabyte() {
    let folder = tempfile::tempdir().unwrap();
    let (shipped, large) = ("topology/twisted-hypercube-8.toml", folder.path().join("large.toml"));
    let shipped = std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(shipped)).unwrap();
    std::fs::write(&large, shipped.replace("memory_gib = 192", "memory_gib = 2048")).unwrap();
    let rows = |rows: u64| format!("--preset large --set model.rows=[{}]", vec![rows.to_string(); 64].join(","));
    // 421 GiB; 64 tables of 256 columns: 0.95 and 9.5 TiB.
    let models = [
        ("--preset nvidia-113b --source random".to_owned(), "twisted-hypercube-8"),
        (rows(16_000_000), "twisted-hypercube-8"),
        (rows(160_000_000), large.to_str().unwrap()),
    ];
    for (model, topology) in models {
        for command in ["plan", "simulate --comm-cores 4"] {
            let line = format!("{command} {model} --topology {topology} --ranks 8 --json");
            let output = Command::new("sh")
                .args(["-c", "ulimit -v 1048576; exec \"$0\" \"$@\"", env!("CARGO_BIN_EXE_octorec")])
                .args(line.split_whitespace())
                .output()
                .unwrap();
            assert!(output.status.success(), "{line}: {}", String::from_utf8_lossy(&output.stderr));
            let found: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
            if command == "plan" {
                let ranks = found["plan"]["cost"]["ranks"].as_array().unwrap();
                let held: u64 = ranks.iter().map(|rank| rank["shard_bytes"].as_u64().unwrap()).sum();
                assert!(held >> 30 >= 400, "{held} bytes of shards");
            } else {
                assert!(found["points"][0]["step_ms"].as_f64().unwrap() > 0.0);
            }
        }
    }
}

#[test]
fn communication_threads_share_compute_cores_where_there_are_no_others() {
    let folder = tempfile::tempdir().unwrap();
    let machine = folder.path().join("pair.toml");
    let text = "name = \"pair\"\n[[node]]\nids = \"0-1\"\ncores = CORES\nmemory_gib = 64\nmemory_gb_s = 50\n\
                peak_f32_gflop_s = 200\n[[link]]\npairs = [[0, 1]]\ngb_s = 10\nlatency_ns = 100\n";
    let point = |cores: &str, more: &str| {
        std::fs::write(&machine, text.replace("CORES", cores)).unwrap();
        let line = format!("simulate --preset small --rows-cap 1000 --topology {} --ranks 2 {more}", machine.display());
        json(&format!("{line} --json"))["points"][0].clone()
    };
    let ms = |point: &serde_json::Value| point["step_ms"].as_f64().unwrap();
    let (alone, shared) = (point("1", "--comm-cores 0"), point("1", "--comm-cores 1"));
    assert_eq!((&shared["comm_cores"], &shared["cores_shared"]), (&1.into(), &true.into()));
    assert_eq!(alone["cores_shared"], false);
    // What a thread copies on a compute core is hidden behind nothing: the core's time is spent on it.
    assert!(ms(&shared) >= 0.99 * ms(&alone), "{} {}", ms(&shared), ms(&alone));
    let line = format!("simulate --preset small --topology {} --ranks 2 --comm-cores 3", machine.display());
    std::fs::write(&machine, text.replace("CORES", "2")).unwrap();
    assert!(fail(&line).contains("leaves none of its 2 cores for computing: use at most 1"));
    let apart = point("2", "--comm-cores 1");
    assert_eq!(apart["cores_shared"], false);
    let blocked = point("1", "--comm-cores 1 --overlap off");
    assert!(blocked["exposed_ms"]["dense gradients"].as_f64().unwrap() > 0.0, "{blocked}");
}
