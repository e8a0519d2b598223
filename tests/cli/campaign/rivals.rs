//! Two processes at one output: one of them is refused, or both leave what one of them alone would.

use std::time::Duration;

use super::case::Case;
use super::process::Line;
use super::results::Results;
use super::stock::{BUILT_IN, MODEL};

/// Starts the same command twice, the second a little later.
pub fn rivals(case: &mut Case<'_>) {
    let stock = case.stock;
    let log = stock.at("log");
    let (kind, words) = match case.chance.below(6) {
        0 => (
            "train",
            format!("train {MODEL} {BUILT_IN} --rows-cap 900 --steps 60 --checkpoint-every 5 --threads 1 --out"),
        ),
        1 => (
            "train --force",
            format!(
                "train {MODEL} {BUILT_IN} --rows-cap 900 --steps 60 --checkpoint-every 5 --threads 1 --force --out"
            ),
        ),
        2 => ("preprocess", format!("preprocess criteo-kaggle --in {log} --threads 1 --file-rows 900 --out")),
        3 => ("convert", format!("convert {} --format mlperf", stock.at("many"))),
        4 => ("predict", format!("predict --checkpoint {} --data {log}/day_0 --out", stock.at(super::damage::RUN))),
        _ => ("generate", "data generate --set data.train_samples=20000 --set data.test_samples=500".to_owned()),
    };
    kind.clone_into(&mut case.kind);
    let [whole, out] = ["whole/it", "out/it"].map(|name| case.path(name));
    std::fs::create_dir(case.path("whole")).unwrap();
    std::fs::create_dir(case.path("out")).unwrap();
    let line = Line::new(&words).and(out.display().to_string());
    let Some(reference) = case.succeeds(&Line::new(&words).and(whole.display().to_string()), "one alone") else {
        return;
    };
    let first = case.start(&line);
    let wait = case.chance.within(reference.took.max(Duration::from_millis(50)));
    std::thread::sleep(wait);
    let second = case.start(&line);
    let (first, second) = (case.end(&line, first), case.end(&line, second));
    let place = out.display().to_string();
    case.names(&line, &first, &[&place]);
    case.names(&line, &second, &[&place]);
    if !first.succeeded() && !second.succeeded() {
        case.broke(&line, "neither of two got it done", Some(&first));
        return;
    }
    let timeless = |name: &str, case: &Case<'_>| Results::of(&case.path(name)).without("metrics.jsonl");
    let (found, expected) = (timeless("out", case), timeless("whole", case));
    case.same(&line, "two at one output", &found, &expected);
}
