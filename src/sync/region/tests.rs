//! Regions of crews whose threads sleep, spin, panic and end.

use std::sync::atomic::AtomicU64;

use super::*;

#[test]
fn every_thread_runs_every_region_once() {
    for patience in [Patience::OWN_CORE, Patience::SHARED_CORE] {
        for threads in 1..=4 {
            let crew = Crew::start(threads, patience, |_| ()).unwrap();
            let calls: Vec<AtomicU64> = (0..threads).map(|_| AtomicU64::new(0)).collect();
            for _ in 0..200 {
                crew.run(|index| {
                    calls[index].fetch_add(1, Ordering::Relaxed);
                });
            }
            assert!(calls.iter().all(|count| count.load(Ordering::Relaxed) == 200));
        }
    }
}

#[test]
fn a_panic_reaches_the_leader_and_the_crew_lives_on() {
    let crew = Crew::start(3, Patience::OWN_CORE, |_| ()).unwrap();
    for culprit in 0..3 {
        let body = |index: usize| assert!(index != culprit, "thread {index} gave up");
        let caught = catch_unwind(AssertUnwindSafe(|| crew.run(body))).unwrap_err();
        let message = caught.downcast_ref::<String>().unwrap();
        assert_eq!(*message, format!("thread {culprit} gave up"));
    }
    crew.run(|_| ());
    // When all give up, nothing of it is left for the next region.
    assert!(catch_unwind(AssertUnwindSafe(|| crew.run(|_| panic!("all gave up")))).is_err());
    crew.run(|_| ());
}

#[test]
fn sleepers_wake_up() {
    let crew = Crew::start(2, Patience::SHARED_CORE, |_| ()).unwrap();
    let calls = AtomicU64::new(0);
    for _ in 0..20 {
        std::thread::sleep(std::time::Duration::from_millis(1));
        crew.run(|_| {
            calls.fetch_add(1, Ordering::Relaxed);
        });
    }
    assert_eq!(calls.load(Ordering::Relaxed), 40);
}

#[test]
fn a_crew_that_is_dropped_within_its_region_tells_its_helpers_nothing() {
    let crew = Crew::start(2, Patience::SHARED_CORE, |_| ()).unwrap();
    let shared = crew.shared.clone();
    // As where a thread ends the process within a region, and the system drops what is the thread's own.
    crew.running.set(true);
    drop(crew);
    assert_eq!(shared.mailboxes[0].last(), 0, "the helper may be reading its order");
}

thread_local! {
    static CREW: std::cell::OnceCell<Crew> = const { std::cell::OnceCell::new() };
}

#[test]
fn a_region_inside_another_is_refused() {
    for threads in [1, 3] {
        // A thread of its own, so that its crew ends with it.
        let outcome = std::thread::spawn(move || {
            let crew = || Crew::start(threads, Patience::SHARED_CORE, |_| ()).unwrap();
            CREW.with(|own| {
                let caught = catch_unwind(AssertUnwindSafe(|| {
                    // Without captures, so that nothing forbids it when it is compiled.
                    own.get_or_init(crew).run(|thread| {
                        if thread == 0 {
                            CREW.with(|own| own.get().unwrap().run(|_| ()));
                        }
                    });
                }));
                // The crew lives on.
                let calls = AtomicU64::new(0);
                own.get().unwrap().run(|_| {
                    calls.fetch_add(1, Ordering::Relaxed);
                });
                assert_eq!(calls.into_inner(), threads as u64);
                caught.unwrap_err().downcast_ref::<&str>().map(|message| (*message).to_owned())
            })
        });
        let message = outcome.join().unwrap();
        assert_eq!(message.as_deref(), Some("a region cannot start inside another of the same crew"));
    }
}
