//! A campaign against octorec's promises: processes killed and signalled at random moments, damaged and hostile files,
//! full disks, vanishing folders, limits, closed pipes and rivals, in random order.
//!
//! `make campaign MINUTES=30 SEED=1` runs it; CASE=n repeats one case. Every case is a function of the seed and its own
//! number, down to the moments of its signals (which octorec reaches a little earlier or later each time). Held against
//! every process: it does not panic, no signal ends it that it was not sent, it ends within a minute with exit code 0,
//! 1 or 2 (130 where it was asked to stop), and a failure has a message that names what is wrong. Held against what it
//! leaves: nothing finished is lost, what goes on after a kill ends with the bytes of a run that was left alone, and
//! what is damaged is refused or gives the very result of what is sound.

mod case;
mod damage;
mod disk;
mod hostile;
mod kills;
mod limits;
mod outputs;
mod process;
mod results;
mod rivals;
mod stock;
mod tally;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::{Duration, Instant};

use case::Case;
use stock::Stock;
use tally::Tally;

/// A kind of case, and how often it is drawn.
struct Family {
    name: &'static str,
    share: usize,
    run: fn(&mut Case<'_>),
}

const fn family(name: &'static str, share: usize, run: fn(&mut Case<'_>)) -> Family {
    Family { name, share, run }
}

const FAMILIES: &[Family] = &[
    family("train, killed and resumed", 10, kills::train),
    family("train --force, killed", 3, kills::force),
    family("preprocess, killed and repeated", 5, kills::preprocess),
    family("convert and generate, killed and repeated", 4, kills::convert),
    family("one file, killed while it is written", 3, kills::one_file),
    family("damaged", 22, damage::copies),
    family("cut short while it is read", 2, damage::while_read),
    family("disk full", 6, outputs::disk_full),
    family("not writable", 4, outputs::not_writable),
    family("folder removed meanwhile", 3, outputs::vanishing),
    family("output not read to its end", 3, outputs::unread),
    family("limits", 10, limits::limits),
    family("two at one output", 4, rivals::rivals),
    family("hostile documents", 10, hostile::documents),
    family("hostile text", 6, hostile::text),
    family("hostile settings", 6, hostile::settings),
];

/// A number of the environment, or what it is without.
fn wanted<T: std::str::FromStr>(name: &str) -> Option<T> {
    let text = std::env::var(name).ok().filter(|text| !text.is_empty())?;
    Some(text.parse().unwrap_or_else(|_| panic!("{name}={text}: a number is expected")))
}

/// Draws a family and runs one case of it.
fn run(stock: &Stock, seed: u64, number: u64, tally: &mut Tally) {
    let mut case = Case::new(stock, seed, number);
    let mut at = case.chance.below(FAMILIES.iter().map(|family| family.share).sum());
    let family = FAMILIES.iter().find(|family| {
        let found = at < family.share;
        at = at.saturating_sub(family.share);
        found
    });
    let family = family.expect("shares add up");
    let done = catch_unwind(AssertUnwindSafe(|| (family.run)(&mut case)));
    if done.is_err() {
        case.broken.push("the campaign itself stumbled: see the panic above".to_owned());
    }
    if let Some(disk) = &stock.disk {
        disk.clear();
    }
    tally.add(family.name, seed, number, &case);
}

#[test]
#[ignore = "takes as long as MINUTES says: make campaign"]
fn campaign() {
    let minutes: f64 = wanted("MINUTES").unwrap_or(1.0);
    let seed: u64 = wanted("SEED").unwrap_or(1);
    println!("campaign: SEED={seed}, {minutes} minutes");
    let stock = Stock::new();
    let mut tally = Tally::default();
    let began = Instant::now();
    match wanted("CASE") {
        Some(number) => {
            run(&stock, seed, number, &mut tally);
            tally.show_commands();
        }
        None => {
            let end = Duration::from_secs_f64(60.0 * minutes);
            for number in (0..).take_while(|_| began.elapsed() < end) {
                run(&stock, seed, number, &mut tally);
            }
        }
    }
    println!("{tally}");
    assert!(
        tally.broken() == 0,
        "{} broken promises; each is told above with the command that repeats it",
        tally.broken()
    );
}
