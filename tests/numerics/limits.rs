//! Limits on small fields: every measurement checks its own answer, and here its figures must at least be numbers.
//! No test asserts a time.

use octorec::machine::limits::{AHEAD, Field, Pages, Processor, Rate};
use octorec::machine::team::Team;
use octorec::simd::Isa;

use crate::requirement::required;

fn is_a_rate(rate: Rate) {
    assert!(rate.passes >= 5, "{rate:?}");
    assert!(0.0 < rate.min && rate.min <= rate.median && rate.median <= rate.max && rate.max.is_finite(), "{rate:?}");
}

#[test]
fn every_measurement_checks_out_on_every_instruction_set() {
    for isa in Isa::all() {
        for threads in 1..=3 {
            let team = Team::with_isa(threads, isa).unwrap();
            for pages in Pages::ALL {
                let field = Field::new(&team, 4 << 20, pages);
                let Some(mut field) = required("huge-pages", field) else { continue };
                assert_eq!((field.bytes(), field.pages()), (4 << 20, pages));
                is_a_rate(field.read(&team));
                is_a_rate(field.copy(&team));
                is_a_rate(field.stream_copy(&team));
                for row_bytes in [64, 192, 256, 4096] {
                    let gathered = field.gather(&team, row_bytes);
                    is_a_rate(gathered.rate);
                    let updated = field.update(&team, row_bytes);
                    is_a_rate(updated.rate);
                    assert!(AHEAD.contains(&gathered.ahead) && AHEAD.contains(&updated.ahead));
                }
            }
        }
    }
}

#[test]
fn a_sum_is_exact_and_the_same_for_all() {
    let field = Field::new(&Team::new(2).unwrap(), 2 << 20, Pages::Small).unwrap();
    let expected: f64 = field.cells().iter().map(|&x| f64::from(x)).sum();
    assert!(expected > 0.0);
    for isa in Isa::all() {
        for threads in 1..=5 {
            assert_eq!(field.sum(&Team::with_isa(threads, isa).unwrap()), expected, "{isa:?} {threads}");
        }
    }
}

#[test]
#[should_panic(expected = "no whole cache lines")]
fn rows_are_whole_lines() {
    let team = Team::new(1).unwrap();
    Field::new(&team, 2 << 20, Pages::Small).unwrap().gather(&team, 100);
}

#[test]
fn fields_are_larger_than_caches() {
    const GIB: u64 = 1 << 30;
    // What is available changes while other tests run, but not by half.
    let available = octorec::memory::available_bytes().expect("Linux tells it") as f64;
    for (l3, wanted) in [(None, GIB), (Some(GIB / 100), GIB), (Some(GIB), 4 * GIB), (Some(1 << 50), 4 << 50)] {
        let bytes = Field::sensible_bytes(l3);
        assert_eq!(bytes % (2 << 20), 0, "whole huge pages");
        if (wanted as f64) < available / 16.0 {
            assert_eq!(bytes as u64, wanted, "{l3:?}");
        } else {
            assert!(bytes as u64 <= wanted && (bytes as f64) < available / 4.0, "{l3:?}: {bytes} of {available}");
        }
    }
    let processor = Processor::of_this_machine().unwrap();
    assert!(processor.cores > 0 && !processor.model.is_empty());
    println!("{processor}");
}
