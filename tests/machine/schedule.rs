//! `octorec topo --schedule`: bytes on links, told and drawn, are those of the schedule itself.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use clap::Parser;
use octorec::cli::topo::report;
use octorec::collective::plan::{ALL_TO_ALLS, Reduction, Topology, exchange};
use octorec::collective::{Parcels, Payload, Schedule, Slices, Timing, Works, World};
use octorec::machine::placement::Wishes;
use octorec::machine::site::Known;
use octorec::machine::{Machine, Site, place};
use serde_json::Value;

use super::draw::{Command, args, assert_well_formed, told};

const BYTES: usize = 1 << 20;
const OPERATIONS: [&str; 4] = ["all-gather", "reduce-scatter", "all-reduce", "all-to-all"];

/// Ranks on a shipped machine.
fn site(name: &str, ranks: usize) -> Site {
    let machine = Machine::load(name).expect("shipped");
    let placement =
        place(&machine, &Wishes { ranks: Some(ranks), threads: Some(1), ..Wishes::default() }).expect("placed");
    Site::new(&machine, &placement, Known::default())
}

/// The schedule of a name, where there is one.
fn planned(name: &str, operation: &str, site: &Site) -> Option<Schedule> {
    let (ranks, elements) = (site.ranks.len(), BYTES / 4);
    if operation == "all-to-all" {
        let parcels = Parcels::uniform(ranks, elements / ranks);
        return exchange(name, &parcels, Payload::Raw(4), site, Works::LinksAndMemories);
    }
    let scatter = Reduction::named(name, &Topology::along(site))?.plan(&Slices::even(elements, ranks), Payload::F32);
    Some(match operation {
        "all-gather" => scatter.all_gather(),
        "all-reduce" => scatter.all_reduce(),
        _ => scatter,
    })
}

/// What rounds put on each wire of a site, by its name, and how much goes from rank to rank of one node.
fn on_wires(schedule: &Schedule, site: &Site, rounds: &[usize]) -> (BTreeMap<String, u64>, u64) {
    let (mut wires, mut within) = (BTreeMap::new(), 0);
    for hop in rounds.iter().flat_map(|round| &schedule.rounds[*round]) {
        let (path, bytes) = (site.path(hop.from, hop.to), schedule.hop_bytes(hop) as u64);
        path.iter().for_each(|wire| *wires.entry(site.wires[*wire].name.clone()).or_default() += bytes);
        within += if path.is_empty() { bytes } else { 0 };
    }
    (wires, within)
}

/// The same of a round in JSON.
fn in_json(round: &Value) -> (BTreeMap<String, u64>, u64) {
    let number = |value: &Value| value["bytes"].as_u64().expect("bytes");
    let name = |end: &Value| {
        let end = end.as_str().expect("a name");
        if end.parse::<u32>().is_ok() { format!("node {end}") } else { end.to_owned() }
    };
    let links = round["links"].as_array().expect("a list").iter();
    let links = links.map(|link| (format!("{} to {}", name(&link["from"]), name(&link["to"])), number(link)));
    (links.collect(), round["within"].as_array().expect("a list").iter().map(number).sum())
}

/// The same of panels in a picture: "node 0 to node 1: 524288 bytes;".
fn in_picture(svg: &str) -> Vec<(String, u64)> {
    let titles = svg.split("<title>").skip(1).map(|rest| rest.split("</title>").next().expect("it ends"));
    let told = titles.flat_map(|title| title.split(';')).map(str::trim).filter(|told| !told.is_empty());
    let pair = |told: &str| {
        let (name, bytes) = told.strip_suffix(" bytes").and_then(|told| told.rsplit_once(": ")).expect(told);
        (name.to_owned(), bytes.parse().expect(bytes))
    };
    told.map(pair).collect()
}

#[test]
fn every_schedule_is_told_and_drawn_as_it_is() {
    let picture = Path::new(env!("CARGO_TARGET_TMPDIR")).join("schedule-any.svg");
    let picture = picture.to_str().expect("a plain path");
    let mut drawn = 0;
    for (machine, ranks) in [
        ("twisted-hypercube-8", 8),
        ("twisted-hypercube-8", 6),
        ("hypercube-8", 8),
        ("ring-4", 8),
        ("two-socket", 2),
        ("full-4", 4),
        ("epyc-nps4-2s", 8),
        ("fat-tree-64", 8),
    ] {
        let site = site(machine, ranks);
        for (name, operation) in
            Reduction::NAMES.iter().chain(&ALL_TO_ALLS).flat_map(|name| OPERATIONS.map(|operation| (*name, operation)))
        {
            let (count, bytes) = (ranks.to_string(), BYTES.to_string());
            let words =
                ["--topology", machine, "--ranks", &count, "--schedule", name, "--of", operation, "--bytes", &bytes];
            let Some(schedule) = planned(name, operation, &site) else {
                let message = report(&args(&words), &World::alone()).expect_err("no such schedule").to_string();
                assert!(message.starts_with(&format!("--schedule: {name} ")), "{message}");
                continue;
            };
            drawn += 1;
            let json = told(&[&words[..], &["--json", "--svg", picture]].concat());
            let json: Value = serde_json::from_str(&json).expect("JSON");
            assert_eq!((&json["schedule"], &json["collective"]), (&Value::from(name), &Value::from(operation)));
            let rounds = json["rounds"].as_array().expect("a list");
            assert_eq!(rounds.len(), schedule.rounds.len(), "{words:?}");
            for (number, round) in rounds.iter().enumerate() {
                assert_eq!(in_json(round), on_wires(&schedule, &site, &[number]), "{words:?}, round {number}");
            }
            let whole = on_wires(&schedule, &site, &(0..rounds.len()).collect::<Vec<_>>());
            assert_eq!(in_json(&json["total"]), whole, "{words:?}");
            let timing = Timing::of(&schedule, &site, Works::Links);
            let carried: u64 = whole.0.values().sum();
            assert_eq!(timing.wire_bytes.iter().sum::<f64>(), carried as f64);

            let svg = fs::read_to_string(picture).expect("the picture was written");
            assert_well_formed(&svg);
            let mut all: BTreeMap<String, u64> = BTreeMap::new();
            in_picture(&svg).into_iter().for_each(|(name, bytes)| *all.entry(name).or_default() += bytes);
            let inside: u64 = all.iter().filter(|(name, _)| name.starts_with("within ")).map(|(_, bytes)| bytes).sum();
            all.retain(|name, _| !name.starts_with("within "));
            // Beside several panels there is one of their sum.
            let times = if svg.contains(">all ") { 2 } else { 1 };
            let expected = whole.0.iter().map(|(name, bytes)| (name.clone(), bytes * times)).collect();
            if svg.contains("are not drawn") {
                assert!(json["rounds"].as_array().is_some_and(|rounds| rounds.len() > 20), "{words:?}");
            } else {
                assert_eq!((all, inside), (expected, whole.1 * times), "{words:?}");
            }
        }
    }
    assert!(drawn > 150, "{drawn}");
}

#[test]
fn the_shortest_command_draws_the_chosen_schedule() {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR"));
    for name in ["auto", "pipelined-trees", "fused-scatter"] {
        let picture = folder.join(format!("schedule-{name}.svg"));
        let path = picture.to_str().expect("a plain path");
        let text = told(&["--schedule", name, "--topology", "twisted-hypercube-8", "--svg", path]);
        assert!(text.starts_with("schedule   ") && text.contains("64.0 MiB a rank"), "{text}");
        assert!(text.contains("picture    ") && text.contains(" ms predicted"), "{text}");
        let operation = if name == "fused-scatter" { "all-to-all" } else { "all-reduce" };
        assert!(text.contains(operation), "{text}");
        assert_well_formed(&fs::read_to_string(&picture).expect("the picture was written"));
    }
    // Told without a picture: every direction of every link that carries something.
    let text =
        told(&["--schedule", "ring", "--topology", "twisted-hypercube-8", "--of", "all-gather", "--bytes", "8MiB"]);
    assert!(text.contains("rounds 1-7, each: 8.0 MiB on links; longest on node "), "{text}");
    let ways = text.lines().find_map(|line| line.trim_start().strip_prefix("1.0 MiB ")).expect(&text);
    assert_eq!(ways.split_whitespace().filter(|way| way.contains('>')).count(), 8, "{text}");
    // Ranks that share a node use no link.
    let picture = folder.join("schedule-within.svg");
    let path = picture.to_str().expect("a plain path");
    let words = ["--topology", "this-small-box", "--ranks", "2", "--schedule", "ring"];
    let text = told(&words);
    assert!(text.contains("0 B on links") && text.contains("64.0 MiB  within node 0"), "{text}");
    told(&[&words[..], &["--svg", path]].concat());
    let svg = fs::read_to_string(&picture).expect("the picture was written");
    assert_well_formed(&svg);
    assert!(svg.contains("64.0 MiB inside") && svg.contains("ranks 0-1"), "{svg}");
    // The cheapest all-to-all is one of the all-to-alls.
    let text = told(&["--schedule", "auto", "--of", "all-to-all", "--topology", "twisted-hypercube-8"]);
    assert!(ALL_TO_ALLS.iter().any(|name| text.starts_with(&format!("schedule   {name} "))), "{text}");
}

#[test]
fn long_schedules_are_cut_and_say_so() {
    let picture = Path::new(env!("CARGO_TARGET_TMPDIR")).join("schedule-long.svg");
    let path = picture.to_str().expect("a plain path");
    // Every round is another rank's.
    let words = ["--topology", "fat-tree-64", "--ranks", "32", "--schedule", "fused-scatter"];
    let text = told(&[&words[..], &["--svg", path]].concat());
    let rest = "rounds 24 to 32 are not drawn: without --svg all are printed";
    assert!(text.contains(rest), "{text}");
    let svg = fs::read_to_string(&picture).expect("the picture was written");
    assert!(
        svg.contains(rest)
            && svg.contains(">round 23<")
            && !svg.contains(">round 24<")
            && svg.contains(">all 32 rounds<")
    );
    let text = told(&words);
    assert!((1..=32).all(|round| text.contains(&format!("\nround {round}: "))), "{text}");
}

#[test]
fn what_does_not_apply_is_refused_with_what_does() {
    let refused = |words: &[&str], parts: &[&str]| {
        let message = report(&args(words), &World::alone()).expect_err("refused").to_string();
        parts.iter().for_each(|part| assert!(message.contains(part), "{words:?}: {message}"));
    };
    let twisted = ["--topology", "twisted-hypercube-8"];
    let with = |more: &[&'static str]| [&twisted[..], more].concat();
    refused(&with(&["--schedule", "ring", "--of", "all-to-all"]), &["--schedule: ring", "leave --of away", "relayed"]);
    refused(&with(&["--schedule", "relayed", "--of", "all-gather"]), &["is of all-to-alls", "direct, ring"]);
    refused(&with(&["--schedule", "hierarchical"]), &["several machines", "name direct, ring, two-ring"]);
    refused(&with(&["--schedule", "alltoall", "--ranks", "32", "--bytes", "64"]), &["--bytes", "at least 128"]);
    refused(&["--schedule", "auto", "--topology", "this-small-box"], &["one rank", "set --ranks"]);
    refused(&["--schedule", "ring", "--topology", "fat-tree-64", "--ranks", "65"], &["--ranks", "at most 64"]);
    for words in [
        &["--schedule", "rings"][..],
        &["--schedule", "ring", "--measure"],
        &["--schedule", "ring", "--export", "toml"],
        &["--schedule", "ring", "--threads", "2"],
        &["--schedule", "ring", "--comm-cores", "1"],
        &["--schedule", "ring", "--smt"],
        &["--schedule", "ring", "--bytes", "7"],
        &["--of", "all-gather"],
        &["--bytes", "1MiB"],
    ] {
        assert!(Command::try_parse_from([&["topo"], words].concat()).is_err(), "{words:?}");
    }
}
