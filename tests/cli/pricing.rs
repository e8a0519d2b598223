//! Plans are priced with figures: those of this machine, if they were measured; and never with others without a word.

use std::fmt::Write;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Output;

use serde_json::Value;
use tempfile::TempDir;

use super::{SGD, TINY, fail, json, octorec, succeed};

/// The model of `TINY`.
const MODEL: &str = "--set model.bottom=[13,32,8] --set model.top=[16,1] --set model.dim=8 --batch 64";

/// A cache of the user's, which only one test has.
struct Cache(TempDir);

impl Cache {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    fn run(&self, line: &str) -> Output {
        let mut command = octorec();
        command.env_remove("OCTOREC_CACHE").env("XDG_CACHE_HOME", self.0.path());
        command.args(line.split_whitespace()).output().expect("the binary runs")
    }

    /// What a command that must succeed printed, and told.
    fn succeed(&self, line: &str) -> (String, String) {
        let output = self.run(line);
        let [printed, told] = [output.stdout, output.stderr].map(|text| String::from_utf8(text).unwrap());
        assert!(output.status.success(), "octorec {line}\n{told}");
        (printed, told)
    }

    fn json(&self, line: &str) -> Value {
        serde_json::from_str(&self.succeed(line).0).unwrap()
    }

    /// The line on figures that a command told; empty if there was none.
    fn figures(&self, line: &str) -> String {
        let (_, told) = self.succeed(line);
        let lines: Vec<_> = told.lines().filter(|line| line.starts_with("figures: ")).collect();
        assert!(lines.len() < 2, "{told}");
        lines.first().map_or_else(String::new, |line| (*line).to_owned())
    }

    /// Measures, as quickly as can be; the file of the figures.
    fn measured(&self) -> (PathBuf, Value) {
        let report = self.json("topo --measure --seconds 0.5 --json");
        let file = PathBuf::from(report["kept"].as_str().expect("there is a cache"));
        assert!(file.starts_with(self.0.path().join("octorec")), "{}", file.display());
        (file, report)
    }
}

/// A file of figures with other values, each a JSON pointer.
fn change(file: &Path, changes: &[(&str, Value)]) {
    let mut figures: Value = serde_json::from_slice(&fs::read(file).unwrap()).unwrap();
    for (pointer, value) in changes {
        *figures.pointer_mut(pointer).unwrap_or_else(|| panic!("{pointer} in {}", file.display())) = value.clone();
    }
    fs::write(file, figures.to_string()).unwrap();
}

/// A training of so many steps of 64 samples.
fn training(steps: u64) -> String {
    format!("train {TINY} {SGD} --steps {steps} --set data.train_samples=2560 --set data.test_samples=640 --threads 1")
}

fn two_ranks() -> String {
    format!("{} --ranks 2", training(2))
}

#[test]
fn a_machine_is_measured_once_and_known_again() {
    let cache = Cache::new();
    let (plan, train) = (format!("plan {MODEL} {SGD} --ranks 2"), two_ranks());
    let step = "bench step --set model.rows=[500,70] --set model.bottom=[13,32,16] --set model.top=[16,1] --batch 96 \
                --ranks 2 --threads 1 --limit-mib 16 --repeat 1 --minibatches 1";
    for line in [&plan, &train, step] {
        let told = cache.figures(line);
        assert!(told.contains("assumed, not measured") && told.contains("`octorec topo --measure`"), "{line}: {told}");
        assert!(told.contains("100 GB/s (a socket of SC20's machine)"), "{line}: {told}");
        assert!(told.contains("146 GFLOP/s each"), "{line}: {told}");
    }
    // One rank has no choice to price.
    assert_eq!(cache.figures(&format!("{} --ranks 1", training(2))), "");

    // As it said.
    let (file, report) = cache.measured();
    let nodes = report["nodes"].as_array().unwrap();
    let positive = |value: &Value| value.as_f64().is_some_and(|figure| figure > 0.0);
    for node in nodes {
        for key in ["read", "copy", "stream_copy", "row", "row_update"] {
            assert!(positive(&node[format!("{key}_gb_s")]), "{key}: {node}");
        }
        assert!(positive(&node["peak_f32_gflop_s"]), "{node}");
    }
    let pairs = report["pairs"].as_array().unwrap();
    assert_eq!(pairs.len(), nodes.len() * nodes.len());
    assert!(pairs.iter().all(|pair| positive(&pair["write_gb_s"])), "{report}");
    // Within a node nothing is written while all write to all, and one node has no links.
    assert!(pairs.iter().all(|pair| positive(&pair["loaded_gb_s"]) == (pair["from"] != pair["to"])), "{report}");
    assert_eq!(report["links"].is_null(), nodes.len() == 1, "{report}");
    for line in [&plan, &train, step] {
        let told = cache.figures(line);
        assert!(told.starts_with("figures: measured on this machine "), "{line}: {told}");
        assert!(told.contains(file.to_str().unwrap()), "{line}: {told}");
    }
    let machine = cache.json("topo --json");
    assert_eq!(machine["machine"]["nodes"][0]["row_gb_s"], nodes[0]["row_gb_s"]);
    assert!(machine["machine"]["measured"].as_str().is_some_and(|kept| kept.contains(file.to_str().unwrap())));

    // A description with these figures prices as this machine does.
    let described = cache.0.path().join("host.toml");
    cache.succeed(&format!("topo --export {}", described.display()));
    let score = |line: &str| cache.json(&format!("{line} --json"))["plan"]["cost"]["score"].clone();
    assert_eq!(score(&plan), score(&format!("{plan} --topology {}", described.display())));
    assert!(cache.figures(&format!("{train} --topology {}", described.display())).contains("as described"));
    // What the user gives wins, and is told.
    assert_ne!(score(&plan), score(&format!("{plan} --memory-gb-s 1")));
    let told = cache.figures(&format!("{plan} --memory-gb-s 1"));
    assert!(told.contains("except: memory of every node: 1 GB/s, as given with --memory-gb-s"), "{told}");
    let other = format!("{plan} --topology two-socket");
    assert!(cache.figures(&other).contains("as described for two-socket"));
    assert_ne!(score(&other), score(&format!("{other} --link-gb-s 0.001")));
}

#[test]
fn figures_of_another_machine_and_damaged_ones_are_left_alone() {
    let cache = Cache::new();
    let (file, _) = cache.measured();
    let good = fs::read(&file).unwrap();
    let plan = format!("plan {MODEL} {SGD} --ranks 2");
    let memory = "/fingerprint/nodes/0/memory_bytes";
    for (pointer, value) in [
        ("/fingerprint/processor", Value::from("Another CPU @ 9 GHz")),
        ("/fingerprint/isa", Value::from("sse")),
        ("/fingerprint/nodes/0/pus", Value::from("0-9999")),
        (memory, Value::from(1u64 << 50)),
        ("/fingerprint/distances", serde_json::json!([[10, 77], [77, 10]])),
    ] {
        change(&file, &[(pointer, value)]);
        let (_, told) = cache.succeed(&plan);
        assert!(told.contains("assumed, not measured"), "{pointer}: {told}");
        // Why, where they could be this machine's.
        let own = told.contains("figures of such a machine, or of this one in another state");
        assert_eq!(own, !pointer.ends_with("processor"), "{pointer}: {told}");
        fs::write(&file, &good).unwrap();
    }
    // Virtual machines give memory back, and modules may have changed: who prices is told, and who does not is not.
    let bytes = serde_json::from_slice::<Value>(&good).unwrap().pointer(memory).unwrap().as_u64().unwrap();
    change(&file, &[(memory, Value::from(bytes - bytes / 100 * 7))]);
    assert!(cache.figures(&plan).contains("measured on this machine"));
    for (line, doubted) in [(&plan, true), (&format!("{} --ranks 1", training(2)), false)] {
        let (_, told) = cache.succeed(line);
        let note = told.lines().find(|told| told.contains("measure anew if modules changed"));
        assert_eq!(note.is_some_and(|note| note.starts_with("note: ")), doubted, "{line}: {told}");
    }

    for damage in [&good[..good.len() / 2], b"", b"[]", b"\xff\xfe", &[b'['; 100_000]] {
        fs::write(&file, damage).unwrap();
        let (_, told) = cache.succeed(&plan);
        assert!(told.contains("is left unused") && told.contains("remove it"), "{told}");
        assert!(told.contains("assumed, not measured"), "{told}");
    }
    for (pointer, value) in [
        ("/nodes/0/read_gb_s", -1.0),
        ("/pairs/0/write_gb_s", 0.0),
        ("/nodes/0/peak_f32_gflop_s", 1e-300),
        ("/version", 77.0),
    ] {
        fs::write(&file, &good).unwrap();
        let value = if pointer == "/version" { Value::from(77) } else { Value::from(value) };
        change(&file, &[(pointer, value)]);
        assert!(cache.succeed(&plan).1.contains("is left unused"), "{pointer}");
    }
    // Removed, as it said.
    fs::remove_file(&file).unwrap();
    let (_, told) = cache.succeed(&plan);
    assert!(!told.contains("left unused") && told.contains("assumed, not measured"), "{told}");

    let refused = |line: &str, words: &str| {
        let output = cache.run(line);
        let told = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(!output.status.success() && told.contains(words), "{line}: {told}");
    };
    refused("topo --measure --topology full-4", "measures this machine: leave --topology away");
    refused("topo --measure --ranks 2", "--ranks");
    refused("topo --seconds 2", "--measure");
    refused("topo --measure --export host.xml", "ends in .toml");
    refused("topo --export toml --json", "--export FILE");
    refused("topo --measure --schedule ring", "--schedule");
    let nowhere = octorec()
        .args(["topo", "--measure", "--seconds", "0.5"])
        .env_remove("OCTOREC_CACHE")
        .env_remove("XDG_CACHE_HOME")
        .env_remove("HOME")
        .output()
        .unwrap();
    let told = String::from_utf8_lossy(&nowhere.stderr).into_owned();
    assert!(nowhere.status.code() == Some(1) && told.contains("set OCTOREC_CACHE or HOME"), "{told}");
}

#[test]
fn what_cannot_be_kept_is_told_before_anything_is_measured() {
    let cache = Cache::new();
    // A file is in the folder's place.
    let taken = cache.0.path().join("octorec");
    fs::write(&taken, "mine").unwrap();
    let told = |line: &str| {
        let output = cache.run(line);
        let told = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(!output.status.success() && !told.contains("measuring"), "{line}: {told}");
        told
    };
    let message = told("topo --measure --seconds 0.5");
    assert!(
        message.contains("--measure: the figures cannot be kept") && message.contains("OCTOREC_CACHE"),
        "{message}"
    );
    let export = cache.0.path().join("host.toml");
    fs::write(&export, "# Mine.\n").unwrap();
    let message = told(&format!("topo --measure --seconds 0.5 --export {}", export.display()));
    assert!(message.contains("host.toml is there already, which would be lost"), "{message}");
    assert_eq!(fs::read_to_string(&export).unwrap(), "# Mine.\n");
    assert_eq!(fs::read(&taken).unwrap(), b"mine");
}

/// Two nodes that are joined, every figure described.
const MACHINE: &str = "name = \"pair\"\n[[node]]\nids = \"0-1\"\ncores = 8\nmemory_gib = 64\nmemory_gb_s = 50\n\
                       copy_gb_s = 30\nstream_copy_gb_s = 40\nrow_gb_s = 20\nrow_update_gb_s = 10\n\
                       peak_f32_gflop_s = 500\npeak_bf16_gflop_s = 2000\n\
                       [[link]]\npairs = [[0, 1]]\ngb_s = 300\nlatency_ns = 100\n";

#[test]
fn every_figure_of_a_machine_has_its_price() {
    let cache = Cache::new();
    let file = cache.0.path().join("pair.toml");
    let model = "--set model.rows=[500,70000,3000000] --set model.bottom=[13,64,64] --set model.top=[64,1] \
                 --set model.dim=64 --batch 4096 --skew 0 --lookups 3";
    let score = |text: &str, more: &str| {
        fs::write(&file, text).unwrap();
        let line = format!("plan {model} {SGD} --ranks 2 --topology {} {more}", file.display());
        assert!(cache.figures(&line).contains("as described for"), "{more}");
        let plan = cache.json(&format!("{line} --json"));
        plan["plan"]["cost"]["score"]["slowest_s"].as_f64().unwrap()
    };
    for (from, to, more) in [
        ("memory_gb_s = 50", "memory_gb_s = 5", ""),
        ("\ncopy_gb_s = 30", "\ncopy_gb_s = 0.3", "--scheme replicated"),
        ("stream_copy_gb_s = 40", "stream_copy_gb_s = 4", ""),
        ("row_gb_s = 20", "row_gb_s = 2", ""),
        ("row_update_gb_s = 10", "row_update_gb_s = 1", ""),
        ("peak_f32_gflop_s = 500", "peak_f32_gflop_s = 50", ""),
        ("peak_bf16_gflop_s = 2000", "peak_bf16_gflop_s = 200", "--precision bf16"),
        ("\ngb_s = 300", "\ngb_s = 1", ""),
        ("latency_ns = 100", "latency_ns = 10000000", ""),
    ] {
        assert!(MACHINE.contains(from), "{from}");
        let (before, after) = (score(MACHINE, more), score(&MACHINE.replacen(from, to, 1), more));
        assert!(after > 1.01 * before, "{to}: {before} s, then {after} s");
    }
    // The shipped machine of the paper.
    let shipped = Path::new(env!("CARGO_MANIFEST_DIR")).join("topology/twisted-hypercube-8.toml");
    let shipped = fs::read_to_string(shipped).unwrap();
    let before = score(&shipped, "");
    for (from, to) in [("latency_ns = 70", "latency_ns = 7000000"), ("peak_f32_gflop_s = 4100", "peak_f32_gflop_s = 1")]
    {
        let after = score(&shipped.replacen(from, to, 1), "");
        assert!(after > 1.5 * before, "{to}: {before} s, then {after} s");
    }
}

#[test]
fn precision_changes_the_bytes_of_rows_and_the_time_of_layers() {
    let cache = Cache::new();
    let file = cache.0.path().join("pair.toml");
    fs::write(&file, MACHINE).unwrap();
    let plan = |precision: &str| {
        let model = "--set model.rows=[500,70000,3000000] --set model.dim=64 --set model.bottom=[13,64,64]";
        let line = format!("plan {model} {SGD} --ranks 2 --topology {} --precision {precision} --json", file.display());
        cache.json(&line)
    };
    let (full, half) = (plan("f32"), plan("bf16"));
    assert_eq!(
        (&full["workload"]["weight_bytes"], &half["workload"]["weight_bytes"]),
        (&Value::from(4), &Value::from(2))
    );
    let sum = |plan: &Value, key: &str| {
        let ranks = plan["plan"]["cost"]["ranks"].as_array().unwrap();
        ranks.iter().map(|rank| rank[key].as_f64().unwrap()).sum::<f64>()
    };
    assert!(sum(&half, "lookup_s") < 0.9 * sum(&full, "lookup_s"));
    // 500 and 2000 GFLOP/s.
    let ratio = sum(&full, "mlp_s") / sum(&half, "mlp_s");
    assert!((ratio - 4.0).abs() < 1e-9, "{ratio}");
}

/// Clicks with 40 words of 5,000 each, an item of 3,000 that comes as Zipf says, and a user of 20,000 that comes
/// evenly.
fn clicks(folder: &Path) -> String {
    let mut state = 7u64;
    let mut next = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) as f64 / f64::from(1u32 << 31)
    };
    let mut text = "clicked,price,words,item,user\n".to_owned();
    for row in 0..4000 {
        let words: Vec<String> = (0..40).map(|_| ((next() * 5000.0) as u32).to_string()).collect();
        let (item, user) = (3000f64.powf(next()) as u32, (next() * 20_000.0) as u32);
        writeln!(text, "{},{row},{},i{item},u{user}", u32::from(next() < 0.3), words.join("|")).unwrap();
    }
    fs::write(folder.join("clicks.csv"), text).unwrap();
    let schema = "label = \"clicked\"\n[[dense]]\ncolumn = \"price\"\n[[categorical]]\ncolumn = \"words\"\n\
                  separator = \"|\"\n[[categorical]]\ncolumn = \"item\"\n[[categorical]]\ncolumn = \"user\"\n";
    fs::write(folder.join("schema.toml"), schema).unwrap();
    let [data, schema] = ["clicks.csv", "schema.toml"].map(|name| folder.join(name).display().to_string());
    format!("--data {data} --schema {schema} --set model.bottom=[1,16,8] --set model.dim=8 --set model.top=[16,1]")
}

#[test]
fn forty_look_ups_are_priced_as_forty_and_skew_is_measured() {
    let cache = Cache::new();
    let data = clicks(cache.0.path());
    let (printed, told) = cache.succeed(&format!("plan {data} --ranks 2 --batch 256 --json"));
    assert!(told.contains("as in the first 2,048 samples"), "{told}");
    let plan: Value = serde_json::from_str(&printed).unwrap();
    let table = |at: usize, key: &str| plan["workload"]["tables"][at][key].as_f64().unwrap();
    assert_eq!([0, 1, 2].map(|at| table(at, "lookups")), [40.0, 1.0, 1.0]);
    assert_eq!([0, 2].map(|at| table(at, "skew")), [0.0, 0.0]);
    // Of the items that never came, the data knows nothing: those that came are a little less uneven.
    assert!((0.4..1.3).contains(&table(1, "skew")), "{}", table(1, "skew"));
    let lookup_s = |line: &str| {
        let plan = cache.json(&format!("{line} --json"));
        let ranks = plan["plan"]["cost"]["ranks"].as_array().unwrap();
        ranks.iter().map(|rank| rank["lookup_s"].as_f64().unwrap()).sum::<f64>()
    };
    let measured = format!("plan {data} --ranks 2 --batch 256");
    assert!(lookup_s(&measured) > 3.0 * lookup_s(&format!("{measured} --lookups 1")));
    // Random data says by itself what it asks for.
    let random = "plan --source random --set model.rows=[100000,100000] --set data.lookups=8 --ranks 2";
    let plan = cache.json(&format!("{random} --set data.zipf=1.2 --set data.lookups_fixed=false --json"));
    let table = &plan["workload"]["tables"][1];
    assert_eq!((table["lookups"].as_f64(), table["skew"].as_f64()), (Some(4.5), Some(1.2)), "{table}");
    assert!(lookup_s(random) > 1.1 * lookup_s(&format!("{random} --set data.zipf=1.2")));
}

fn losses(cache: &Cache, line: &str) -> (String, String) {
    let file = cache.0.path().join("losses");
    let (_, told) = cache.succeed(&format!("{line} --trace-loss {}", file.display()));
    (fs::read_to_string(file).unwrap(), told)
}

#[test]
fn figures_change_plans_and_no_bit_of_a_run_that_goes_on() {
    let cache = Cache::new();
    let (file, _) = cache.measured();
    let path = |name: &str| cache.0.path().join(name);
    let good = fs::read(&file).unwrap();
    // Copies for nothing where exchanges are dear, or dearer than everything else: small tables are on all ranks, or
    // they are not, whatever was measured.
    let figures = |copy: f64| {
        fs::write(&file, &good).unwrap();
        let nodes = serde_json::from_slice::<Value>(&good).unwrap()["nodes"].as_array().unwrap().len();
        for node in 0..nodes {
            let known = [("stream_copy", 0.01), ("row", 20.0), ("row_update", 10.0), ("copy", copy)];
            for (name, gb_s) in known {
                change(&file, &[(&format!("/nodes/{node}/{name}_gb_s"), Value::from(gb_s))]);
            }
        }
    };
    let start = |name: &str, steps: u64| {
        losses(&cache, &format!("{} --ranks 2 --out {}", training(steps), path(name).display())).0
    };
    figures(1e6);
    let (whole, _) = (start("whole", 40), start("half", 20));
    let plan = |name: &str| fs::read_to_string(path(name).join("plan.toml")).unwrap();
    figures(1e-6);
    start("other", 20);
    let parts = |name: &str| plan(name).lines().filter(|line| line.starts_with("scheme")).collect::<Vec<_>>().join(" ");
    assert_ne!(parts("half"), parts("other"));
    let before = plan("half");

    // Continued where other figures would have it otherwise.
    let resume = format!("train --resume {} --threads 1 --steps 40", path("half").display());
    let (rest, told) = losses(&cache, &format!("{resume} --ranks 2"));
    assert!(told.contains("plan: as the run has it") && !told.contains("figures:"), "{told}");
    let second: Vec<_> = whole.lines().skip(20).collect();
    assert_eq!(rest.lines().collect::<Vec<_>>(), second);
    let divided =
        |text: &str| text.lines().filter(|line| !line.starts_with('#')).map(str::to_owned).collect::<Vec<_>>();
    assert_eq!(divided(&plan("half")), divided(&before));

    // With the same plan from a file, too; and with any plan where bits may not depend on it.
    let same = format!("{} --ranks 2 --plan {}", training(40), path("whole").join("plan.toml").display());
    assert_eq!(losses(&cache, &same).0, whole);
    let exact = format!("{} --determinism ranks", training(40));
    let one = losses(&cache, &format!("{exact} --ranks 1")).0;
    for copy in [1e-6, 1e6] {
        figures(copy);
        assert_eq!(losses(&cache, &format!("{exact} --ranks 2")).0, one, "{copy}");
    }

    // Another number of ranks needs another plan.
    let other =
        |steps: u64| format!("train --resume {} --threads 1 --ranks 3 --steps {steps}", path("other").display());
    let (_, told) = cache.succeed(&other(22));
    assert!(told.contains("plan: a new one for 3 ranks, the run's was for 2 ranks"), "{told}");
    assert!(plan("other").contains("ranks = 3\n"));
    // A damaged one is named, with what to do.
    fs::write(path("other").join("plan.toml"), "ranks = 3\ndim = eight\n").unwrap();
    let output = cache.run(&other(24));
    let told = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(1), "{told}");
    assert!(told.contains("plan.toml:2:") && told.contains("remove this file"), "{told}");
    fs::remove_file(path("other").join("plan.toml")).unwrap();
    cache.succeed(&other(24));
}

#[test]
fn a_column_of_several_values_groups_no_samples() {
    let folder = tempfile::tempdir().unwrap();
    let (data, run) = (clicks(folder.path()), folder.path().join("run").display().to_string());
    succeed(&format!("train {data} --batch 64 --steps 3 --threads 1 --out {run}"));
    let message = fail(&format!("eval --checkpoint {run} --gauc words"));
    assert!(
        message.contains("column words has 40 values in sample 0,") && message.contains("lies in one group"),
        "{message}"
    );
    let found = json(&format!("eval --checkpoint {run} --gauc item --json"));
    assert!(found["gauc_groups"].as_u64().is_some_and(|groups| groups > 1), "{found}");
}
