//! `train --hot exact`: copies of hot rows change no bit of a run, and less travels among its ranks.

use std::fs;

use serde_json::Value;

use super::{fail, run, succeed, tiny_training};

/// What a command printed on both streams.
fn told(line: &str) -> (Value, String) {
    let output = succeed(&format!("{line} --json"));
    (serde_json::from_slice(&output.stdout).unwrap(), String::from_utf8(output.stderr).unwrap())
}

fn sent(results: &Value, kind: &str) -> u64 {
    let rows = results["traffic"][kind].as_array().unwrap();
    rows.iter().flat_map(|row| row.as_array().unwrap()).map(|bytes| bytes.as_u64().unwrap()).sum()
}

#[test]
fn a_run_with_copies_of_hot_rows_is_that_without_and_goes_on_with_or_without_them() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name).display().to_string();
    let train = format!("{} --determinism ranks --threads 1", tiny_training());
    let trace = |name: &str, line: &str| {
        let (results, said) = told(&format!("{line} --trace-loss {}", at(name)));
        (fs::read_to_string(at(name)).unwrap(), results, said)
    };
    let (alone, whole, said) = trace("alone", &format!("{train} --hot exact"));
    assert!(said.contains("hot rows: one rank reads all rows where they are, without copies"), "{said}");
    let (off, without, _) = trace("off", &format!("{train} --ranks 3"));
    let (exact, with, said) = trace("exact", &format!("{train} --ranks 3 --hot exact --hot-budget 64KiB"));
    assert!(off == alone && exact == alone, "losses to the last digit");
    assert_eq!(whole["auc"], with["auc"]);
    assert!(said.contains("hot rows: copies of ") && said.contains(" of look-ups are of them (as in "), "{said}");
    assert!(sent(&with, "hot_rows") > 0 && sent(&without, "hot_rows") == 0, "{with}");
    assert!(sent(&with, "pooled_rows") < sent(&without, "pooled_rows"));
    // Sums of gradients travel where their order is free.
    let (_, free, _) = trace("free", &format!("{} --threads 1 --ranks 3 --hot exact", tiny_training()));
    let (_, plain, _) = trace("plain", &format!("{} --threads 1 --ranks 3", tiny_training()));
    for kind in ["ids", "pooled_rows", "pooled_gradients"] {
        assert!(sent(&free, kind) < sent(&plain, kind), "{kind}");
    }
    assert!(sent(&free, "hot_gradients") > 0);
    // A run's copies are no part of it.
    let lines: Vec<&str> = alone.lines().collect();
    for (first, second) in [("--hot exact", "--hot off"), ("--hot off", "--hot exact"), ("--hot exact", "")] {
        let out = at(&format!("run of {first} {second}").replace(' ', "-"));
        let (begun, ..) = trace("first", &format!("{train} --ranks 2 --steps 20 --out {out} {first}"));
        let (ended, results, _) =
            trace("second", &format!("train --resume {out} --steps 40 --ranks 3 --threads 1 {second}"));
        assert_eq!(begun.lines().chain(ended.lines()).collect::<Vec<_>>(), lines, "{first}, then {second}");
        assert_eq!(results["auc"], whole["auc"]);
        let scores = told(&format!("eval --checkpoint {out}")).0;
        assert_eq!(scores["auc"], whole["auc"], "{first}, then {second}");
    }
}

#[test]
fn hot_rows_are_those_of_a_file_if_it_is_of_these_data() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name).display().to_string();
    let train = tiny_training();
    let data = "--set data.train_samples=2560";
    let keys = "--set model.bottom=[13,32,8] --set model.dim=8";
    succeed(&format!("inspect --hot --preset demo {data} {keys} --sample 50% --hot-budget 5MiB --out {}", at("hot")));
    let train = format!("{train} {data} --threads 1 --ranks 2");
    let (results, said) = told(&format!("{train} --hot exact --hot-set {}", at("hot")));
    assert!(said.contains(&format!("; as in {}", at("hot"))) && sent(&results, "hot_rows") > 0, "{said}");
    let refused = |line: &str, words: &[&str]| {
        let message = fail(line);
        assert!(words.iter().all(|word| message.contains(word)), "{line}: {message}");
    };
    let missing = at("missing");
    refused(&format!("{train} --hot exact --hot-set {missing}"), &[&missing]);
    fs::write(at("text"), "rows").unwrap();
    refused(&format!("{train} --hot exact --hot-set {}", at("text")), &["octorec inspect --hot --out FILE"]);
    let other = format!("{train} --rows-cap 50 --hot exact --hot-set {}", at("hot"));
    refused(&other, &["in the data", "name a file of these data"]);
    refused(&format!("{train} --hot-budget 1MiB"), &["--hot-budget", "train.hot = \"exact\""]);
    refused(&format!("{train} --hot-set {}", at("hot")), &["--hot-set", "train.hot = \"exact\""]);
    refused(&format!("{train} --hot lukewarm"), &["--hot", "exact"]);
    let keys = "--set train.hot_set=x --hot exact --hot-budget 1MiB";
    refused(&format!("{train} {keys}"), &["train.hot_set", "train.hot_budget"]);
    let unending = "train --source random --set model.rows=[50,90] --set model.bottom=[13,16,8] --set model.dim=8 \
                    --set model.top=[16,1] --steps 2 --ranks 2 --threads 1 --hot exact";
    refused(unending, &["its samples never end", "--hot-set FILE"]);
    let both = run(&format!("{train} --hot exact --hot-budget 1MiB --hot-set {}", at("hot")));
    assert_eq!(both.status.code(), Some(2));
}
