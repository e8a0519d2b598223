//! octorec on a kernel with eight NUMA nodes: `make test-numa` boots one under emulation and runs this binary in it.
//!
//! Called by `cargo test` on any other machine it says that it is skipped and passes. The script beside this file
//! (`run`) first asks the bare machine for its losses (`--losses`), then starts the binary as a guest (`--guest`).

mod forbidden;
mod memory;
mod place;
#[path = "../support/planned.rs"]
mod planned;
mod ranks;
mod report;
mod schedules;
mod training;
mod whole;

use std::process::ExitCode;

use clap::Parser;
use octorec::cli::Cli;
use octorec::collective::World;
use octorec::machine::Machine;
use report::Report;

/// What `cargo test` and nextest see of this binary.
const TEST: &str = "eight_nodes_under_emulation";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match words[..] {
        ["--losses"] => {
            print!("{}{}", training::losses_here(), ranks::losses_here());
            ExitCode::SUCCESS
        }
        // The command itself, for checks of what it says.
        ["--octorec", ..] => match Cli::parse_from(&words).run(&World::alone()) {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => {
                eprintln!("error: {error}");
                ExitCode::FAILURE
            }
        },
        ["--guest", scenario, losses] => guest(scenario, losses),
        ["--guest", ..] => {
            eprintln!("usage: --guest eight|half|nine LOSSES");
            ExitCode::FAILURE
        }
        _ if words.contains(&"--list") => {
            // Among those that are ignored, too, so that nextest counts it as skipped and not as passed.
            println!("{TEST}: test");
            ExitCode::SUCCESS
        }
        _ => {
            println!("{TEST}: skipped: this needs a machine with eight NUMA nodes; `make test-numa` boots one");
            ExitCode::SUCCESS
        }
    }
}

fn guest(scenario: &str, losses: &str) -> ExitCode {
    let mut report = Report::start(scenario);
    match scenario {
        // Eight nodes of one processing unit.
        "eight" => {
            report.check("eight nodes and their distances", || place::discovered(1, false));
            report.check("instruction sets", place::instruction_sets);
            report.check("eight ranks are placed", || place::ranks(8, 1));
            report.check("arenas lie on their ranks' nodes", || memory::arenas_at_home(8));
            report.check("no page strays among many regions", memory::neighbours);
            report.check("memory is bound, not only preferred", memory::bound_alone);
            report.check("a wrong binding is reported", memory::wrong_binding);
            report.check("a half wrong piece is reported", memory::half_wrong);
            report.check("a full node is refused", memory::full_node);
            report.check("a kernel that forbids binding", forbidden::first_touch);
            report.check("a thousand regions", || place::regions(1000, 8));
            report.check("losses are those of the bare machine", || training::compare(losses));
            report.check("eight ranks train as one", || ranks::train(losses));
            report.check("schedules are carried out as planned", schedules::all);
            report.check("schedules change no bit", || ranks::whatever(losses));
            report.check("all nodes and pairs are measured", whole::measure);
            report.check("training takes all nodes by itself", whole::train);
        }
        // The same machine from inside a control group with nodes 0 to 3.
        "half" => {
            report.check("half of the machine is allowed", place::half);
            report.check("four ranks are placed", || place::ranks(4, 1));
            report.check("arenas lie on their ranks' nodes", || memory::arenas_at_home(4));
            report.check("memory of the other half is refused", memory::forbidden_nodes);
        }
        // Eight nodes of two processing units and one without any; emulated by one thread a processing unit.
        "nine" => {
            report.check("eight nodes and a memory-only one", || place::discovered(2, true));
            report.check("eight ranks of two threads are placed", || place::ranks(8, 2));
            report.check("arenas lie on their ranks' nodes", || memory::arenas_at_home(8));
            report.check("an arena on the memory-only node", memory::capacity_tier);
            report.check("regions of real concurrency", || place::regions(100, 16));
            report.check("losses are those of the bare machine", || training::compare(losses));
            report.check("eight ranks train as one", || ranks::train(losses));
            report.check("a core of each node communicates", || ranks::communicate(losses));
            report.check("the number of such cores is found", ranks::choose);
        }
        other => report.check(other, || panic!("there is no such scenario")),
    }
    report.end()
}

/// The machine that runs this process.
fn host() -> Machine {
    Machine::load("host").expect("hwloc explores this machine")
}
