//! `octorec topo`: text, picture, JSON and export of every shipped machine.

use std::path::Path;

use clap::Parser;
use octorec::cli::topo::{TopoArgs, report, run};
use octorec::collective::World;
use octorec::machine::describe::SHIPPED;
use octorec::machine::{Machine, discover};

#[derive(Parser)]
pub struct Command {
    #[command(flatten)]
    args: TopoArgs,
}

pub fn args(words: &[&str]) -> TopoArgs {
    Command::try_parse_from([&["topo"], words].concat()).unwrap_or_else(|error| panic!("{error}")).args
}

pub fn told(words: &[&str]) -> String {
    report(&args(words), &World::alone()).unwrap_or_else(|error| panic!("{words:?}: {error}"))
}

/// Every tag is closed in order, attributes are quoted, text has no bare `<` or `&`.
pub fn assert_well_formed(svg: &str) {
    let mut open = Vec::new();
    let mut rest = svg.trim();
    while let Some(start) = rest.find('<') {
        let text = &rest[..start];
        for entity in text.split('&').skip(1) {
            assert!(["amp;", "lt;", "gt;"].iter().any(|known| entity.starts_with(known)), "{text}");
        }
        let end = start + rest[start..].find('>').expect("a tag ends");
        let tag = &rest[start + 1..end];
        assert!(tag.matches('"').count().is_multiple_of(2), "{tag}");
        if let Some(name) = tag.strip_prefix('/') {
            assert_eq!(open.pop(), Some(name.to_owned()));
        } else if !tag.ends_with('/') {
            open.push(tag.split_whitespace().next().unwrap_or_default().to_owned());
        }
        assert!(!tag.contains("NaN") && !tag.contains("inf"), "{tag}");
        rest = &rest[end + 1..];
    }
    assert!(open.is_empty() && rest.is_empty(), "{open:?} {rest}");
}

#[test]
fn every_shipped_machine_is_told_and_drawn() {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR"));
    for (name, _) in SHIPPED {
        let picture = folder.join(format!("topology-{name}.svg"));
        let text = told(&["--topology", name, "--svg", picture.to_str().expect("a plain path")]);
        for part in ["machine ", "links ", "placement ", "reasons", name] {
            assert!(text.contains(part), "{name}: {part} is missing in\n{text}");
        }
        let svg = std::fs::read_to_string(&picture).expect("the picture was written");
        assert_well_formed(&svg);
        let cores = Machine::load(name).expect("shipped").cores();
        let squares = svg.matches("rx=\"1.5\"").count();
        assert_eq!(squares, cores + 4, "{name}: a square a core and four in the legend");
    }
}

#[test]
fn wishes_reach_the_picture() {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let cases: [(&str, &[&str]); 5] = [
        ("virtual", &["--topology", "two-socket", "--ranks", "8", "--comm-cores", "1"]),
        ("caches", &["--topology", "epyc-nps4-2s", "--rank-per", "l3"]),
        ("sockets", &["--topology", "epyc-nps4-2s", "--rank-per", "socket", "--smt"]),
        ("turns", &["--topology", "this-small-box", "--ranks", "8"]),
        (
            "memories",
            &["--topology", "synthetic:Package:2 [numa(memory=4GB)] [numa(memory=64GB)] Core:4 PU:1", "--threads", "2"],
        ),
    ];
    for (name, words) in cases {
        let picture = folder.join(format!("wishes-{name}.svg"));
        told(&[words, &["--svg", picture.to_str().expect("a plain path")]].concat());
        assert_well_formed(&std::fs::read_to_string(&picture).expect("the picture was written"));
    }
}

#[test]
fn names_cannot_break_the_picture() {
    let mut machine = discover::synthetic("Package:1 NUMANode:1 Core:1 PU:1").expect("synthetic");
    machine.name = "<&>\u{1}\"'".to_owned();
    let placement = octorec::machine::place(&machine, &Default::default()).expect("a placement");
    assert_well_formed(&octorec::machine::draw::svg(&machine, &placement));
}

#[test]
fn json_has_everything() {
    for (name, _) in SHIPPED {
        let json: serde_json::Value = serde_json::from_str(&told(&["--topology", name, "--json"])).expect("JSON");
        assert_eq!(json["machine"]["name"], name);
        assert_eq!(
            json["placement"]["ranks"].as_array().map(Vec::len),
            json["machine"]["nodes"].as_array().map(Vec::len)
        );
        assert!(json["placement"]["reasons"].as_array().is_some_and(|reasons| !reasons.is_empty()));
    }
}

#[test]
fn an_export_can_be_loaded_as_a_file() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("machine.toml");
    std::fs::write(&path, told(&["--topology", "epyc-nps4-2s", "--export", "toml"])).expect("a file");
    let path = path.to_str().expect("a plain path");
    assert!(told(&["--topology", path]).contains("iod0 - nodes 0-3: 51.2 GB/s each way"));
    std::fs::write(path, "name = \"x\"\n[[node]]\nids = 0\ncores = 1\nmemory_gib = -1\n").expect("a file");
    let message = report(&args(&["--topology", path]), &World::alone()).expect_err("no memory").to_string();
    assert!(message.starts_with(&format!("{path}:5: memory_gib")), "{message}");
}

#[test]
fn the_host_is_told() {
    run(&args(&[]), &World::alone()).expect("the host can be shown");
    run(&args(&["--json"]), &World::alone()).expect("the host can be shown");
    let text = told(&[]);
    assert!(text.contains("machine    host: "), "{text}");
}

#[test]
fn wrong_flags_are_refused() {
    for words in [&["--comm-cores", "some"][..], &["--rank-per", "rack"], &["--seconds", "1"]] {
        assert!(Command::try_parse_from([&["topo"], words].concat()).is_err(), "{words:?}");
    }
    let message = report(&args(&["--json", "--export", "toml"]), &World::alone()).expect_err("one of them").to_string();
    assert!(message.starts_with("--export toml: is all that is printed"), "{message}");
}
