//! What is missing is said, and CI takes nothing for tested that was not.

use crate::requirement::{REQUIREMENTS, required, verdict};

const ALLOWED: &str = "# names\nrtm  # often off\n\n";

#[test]
fn a_missing_requirement_skips_at_home_and_fails_in_ci() {
    assert_eq!(verdict("avx512", "old", false, ALLOWED), Ok("skipped: no avx512: old".to_owned()));
    assert!(verdict("avx512", "old", true, ALLOWED).is_err_and(|failure| failure.contains("CI requires avx512: old")));
    assert_eq!(verdict("rtm", "off", true, ALLOWED), Ok("skipped: no rtm: off".to_owned()));
    // Neither a comment nor a part of a name allows anything, and a misspelt name is no requirement.
    assert!(verdict("avx2", "old", true, "# avx2\navx2-more\n").is_err());
    assert!(verdict("avx-2", "old", false, "avx-2").is_err_and(|failure| failure.contains("no requirement")));
    assert_eq!(required("rtm", Ok::<_, String>(7)), Some(7));
}

#[test]
fn what_may_be_missing_is_a_requirement() {
    let allowed = include_str!("../../.ci/may-be-missing");
    let names = allowed.lines().map(|line| line.split('#').next().unwrap().trim()).filter(|name| !name.is_empty());
    for name in names {
        assert!(REQUIREMENTS.iter().any(|(known, _)| *known == name), "{name}");
        assert!(!["numa-emulation", "criteo-sample", "avx2"].contains(&name), "{name} is never missing");
    }
}
