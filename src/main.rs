//! The `octorec` command: arguments in, exit code out.

use std::process::ExitCode;
use std::time::Duration;

use octorec::base::{Error, console, interrupt};
use octorec::cli::Cli;
use octorec::collective::World;
use octorec::ffi::signals;
use octorec::memory::{Heap, watch_starts_of_threads};

#[global_allocator]
static HEAP: Heap = Heap;

/// The work's stack in bytes. The main thread's is as large as the shell says (`ulimit -s`), which may be far too
/// little.
const STACK: usize = 8 << 20;

/// How long a machine that has failed, or was asked to stop, waits for the others to do so, too.
const PATIENCE: Duration = Duration::from_secs(2);

fn main() -> ExitCode {
    signals::refuse_large_files();
    watch_starts_of_threads();
    match std::thread::Builder::new().name("octorec".to_owned()).stack_size(STACK).spawn(run) {
        // What a panic has to say was said.
        Ok(work) => work.join().unwrap_or(ExitCode::from(101)),
        Err(source) => told(&Error::Threads { wanted: 1, source }),
    }
}

fn run() -> ExitCode {
    let cli = Cli::of_this_process();
    let world = match cli.world() {
        Ok(world) => world,
        Err(error) => return told(&error),
    };
    let deadline = cli.deadline();
    // A process that leaves MPI long before the others is taken for a failed one: the launcher would end the job.
    match cli.run(&world).and_then(|()| world.all_done("end the job", deadline)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) if world.machines() > 1 => ended(&world, &error),
        Err(Error::Interrupted) => ExitCode::from(interrupt::EXIT_CODE),
        Err(error) => told(&error),
    }
}

/// The end of one of several machines. What all have met is told once; else nobody waits for this one.
fn ended(world: &World, error: &Error) -> ExitCode {
    let code = if matches!(error, Error::Interrupted) { interrupt::EXIT_CODE } else { 1 };
    let own = error.to_string();
    let all = world.end(own.clone(), PATIENCE);
    let first = all.as_ref().ok().and_then(|all| all.iter().position(|theirs| *theirs == own));
    if code == 1 && first.is_none_or(|first| first == world.machine()) {
        told(error);
    }
    if all.is_err() {
        world.abort(code);
    }
    ExitCode::from(code)
}

fn told(error: &Error) -> ExitCode {
    console::write_note(format_args!("error: {error}"));
    ExitCode::FAILURE
}
