//! The whole command on eight nodes: what it measures of them, and that training takes all of them without being asked.

use std::process::{Command, Output};

/// The command in a process of its own, with a cache of its own.
fn octorec(words: &[&str]) -> Output {
    let own = std::env::current_exe().expect("it runs");
    let output =
        Command::new(own).arg("--octorec").args(words).env("OCTOREC_CACHE", "/tmp/cache").output().expect("it starts");
    assert!(output.status.success(), "{words:?}: {}", String::from_utf8_lossy(&output.stderr));
    output
}

/// Measures all nodes and pairs. Emulated bandwidths say nothing; that there are some, and that it ends, does.
pub fn measure() -> String {
    let output = octorec(&["topo", "--measure", "--seconds", "10", "--json"]);
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).expect("one JSON object");
    let list = |key: &str| report[key].as_array().expect("a list").clone();
    let (nodes, pairs) = (list("nodes"), list("pairs"));
    assert_eq!((nodes.len(), pairs.len()), (8, 64), "{report}");
    let positive = |value: &serde_json::Value| value.as_f64().is_some_and(|figure| figure > 0.0);
    for node in &nodes {
        assert!(["read_gb_s", "row_gb_s", "peak_f32_gflop_s"].iter().all(|key| positive(&node[key])), "{node}");
    }
    for pair in &pairs {
        let other = pair["from"] != pair["to"];
        assert!(positive(&pair["write_gb_s"]) && (!other || positive(&pair["latency_ns"])), "{pair}");
        assert_eq!(positive(&pair["loaded_gb_s"]), other, "{pair}: while all write to all");
    }
    // Emulated memory knows no links: those of distances stay, since nothing else explains the figures better.
    let links = list("links").len();
    assert_eq!(links, 12, "{report}");
    let doubts = report["doubts"].as_array().map_or(0, Vec::len);
    assert!(!report.to_string().contains("lies on other nodes"), "{report}");
    format!(
        "8 nodes and 64 pairs in {:.1} s, {links} links, {doubts} doubts",
        report["took_s"].as_f64().expect("a time")
    )
}

/// `octorec train` with a model and nothing else: a rank on each node, which it says, priced with what was measured.
pub fn train() -> String {
    let file = "/tmp/eight.toml";
    let model = "[model]\nbottom = [13, 19, 8]\ntop = [17, 1]\ndim = 8\nrows = [400, 30, 7, 90]\n\
                 [train]\nbatch = 24\nsteps = 2\n[data]\nsource = \"random\"\ntest_samples = 48\n";
    std::fs::write(file, model).expect("the guest's files can be written");
    let told = String::from_utf8(octorec(&["train", "--config", file]).stderr).expect("plain text");
    for rank in 0..8 {
        let place = format!("placement: rank {rank} on node {rank}: ");
        assert_eq!(told.lines().filter(|line| line.starts_with(&place)).count(), 1, "{place}\n{told}");
    }
    assert!(told.contains("8 ranks of "), "{told}");
    let figures = told.lines().find(|line| line.starts_with("figures: ")).expect(&told);
    assert!(figures.starts_with("figures: measured on this machine "), "{figures}");
    let reason = told.lines().find(|line| line.starts_with("placement: ")).expect(&told);
    reason.to_owned()
}
