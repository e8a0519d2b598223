//! Runs checks one after another, prints what each found, and never hangs.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::ExitCode;
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

/// After this long the process ends and names the check that it was in.
const DEADLINE: Duration = Duration::from_secs(180);

pub struct Report {
    scenario: String,
    current: Arc<Mutex<String>>,
    passed: usize,
    failed: usize,
    began: Instant,
}

impl Report {
    pub fn start(scenario: &str) -> Self {
        let current = Arc::new(Mutex::new(String::new()));
        let (watched, name) = (Arc::clone(&current), scenario.to_owned());
        thread::spawn(move || {
            thread::sleep(DEADLINE);
            let check = watched.lock().map(|check| check.clone()).unwrap_or_default();
            println!("FAIL {name}: {check}: not done after {} s", DEADLINE.as_secs());
            std::process::exit(124);
        });
        Self { scenario: scenario.to_owned(), current, passed: 0, failed: 0, began: Instant::now() }
    }

    /// Runs `check` on a thread of its own, so that no affinity or memory policy outlives it; it returns what it saw.
    pub fn check(&mut self, name: &str, check: impl FnOnce() -> String + Send) {
        name.clone_into(&mut self.current.lock().expect("no check holds the name"));
        let began = Instant::now();
        let result = thread::scope(|scope| scope.spawn(|| catch_unwind(AssertUnwindSafe(check))).join());
        let seconds = began.elapsed().as_secs_f64();
        match result {
            Ok(Ok(found)) => {
                self.passed += 1;
                println!("ok   {name}: {found} [{seconds:.2} s]");
            }
            // The panic's message is on stderr, which is the same line to the host.
            _ => {
                self.failed += 1;
                println!("FAIL {name} [{seconds:.2} s]");
            }
        }
    }

    pub fn end(self) -> ExitCode {
        let seconds = self.began.elapsed().as_secs_f64();
        println!("numa {}: {} passed, {} failed in {seconds:.1} s", self.scenario, self.passed, self.failed);
        ExitCode::from(u8::from(self.failed > 0 || self.passed == 0))
    }
}
