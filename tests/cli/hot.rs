//! `train --hot exact`: copies of hot rows change no bit of a run, and less travels among its ranks.

use std::fs;

use serde_json::Value;

use super::{fail, run, succeed, tiny_training, tsv};

/// What a command printed on both streams.
fn told(line: &str) -> (Value, String) {
    let output = succeed(&format!("{line} --json"));
    (serde_json::from_slice(&output.stdout).unwrap(), String::from_utf8(output.stderr).unwrap())
}

/// The same of a training, behind its losses, which go to a file.
fn traced(losses: &str, line: &str) -> (String, Value, String) {
    let (results, said) = told(&format!("{line} --trace-loss {losses}"));
    (fs::read_to_string(losses).unwrap(), results, said)
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
    let trace = |name: &str, line: &str| traced(&at(name), line);
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

/// A run on data whose popular values change every 16 steps.
fn drifting_training() -> String {
    let data = "--set data.train_samples=4096 --set data.days=4 --set data.drift=0.9 --set data.shuffle=false";
    format!("{} {data} --threads 1", tiny_training())
}

/// What a run's log says of its revisions, without what a clock says.
fn revised(out: &str) -> Vec<Value> {
    let log = fs::read_to_string(format!("{out}/metrics.jsonl")).unwrap();
    let entries = log.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    let mut entries: Vec<Value> = entries.filter(|entry| entry["kind"] == "hot_rows").collect();
    entries.iter_mut().for_each(|entry| entry["ms"] = Value::Null);
    entries
}

#[test]
fn hot_rows_follow_the_data_and_a_stop_changes_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name).display().to_string();
    let train = format!("{} --ranks 3 --hot exact --hot-budget 96KiB", drifting_training());
    let trace = |name: &str, line: &str| traced(&at(name), line);
    // Whatever is hot, where sums have their order.
    let (off, ..) = trace("off", &format!("{} --determinism ranks", drifting_training()));
    let (ranks, ..) = trace("ranks", &format!("{train} --determinism ranks --hot-revise 16"));
    assert!(ranks == off, "losses to the last digit");
    // Where they have not, the order goes with the rows.
    let (whole, followed, said) = trace("whole", &format!("{train} --hot-revise 16 --out {}", at("run")));
    let (_, stayed, _) = trace("stayed", &train);
    let turns = revised(&at("run"));
    assert_eq!(turns.iter().map(|turn| turn["step"].as_u64().unwrap()).collect::<Vec<_>>(), [16, 32, 48]);
    for turn in &turns {
        let [rows, entered, bytes] = ["rows", "entered", "bytes"].map(|key| turn[key].as_u64().unwrap());
        assert!(entered > 0 && entered < rows && bytes > 8 * entered, "{turn}");
    }
    assert!(said.contains("step 16: copies of ") && said.contains(" of the look-ups to come are of them"), "{said}");
    assert!(sent(&followed, "pooled_rows") < sent(&stayed, "pooled_rows"), "{followed}, {stayed}");
    // In the middle of a window, and between two.
    let lines: Vec<&str> = whole.lines().collect();
    for steps in [23, 32] {
        let out = at(&format!("stopped after {steps}")).replace(' ', "-");
        let (begun, ..) = trace("first", &format!("{train} --hot-revise 16 --steps {steps} --out {out}"));
        let (ended, ..) = trace("second", &format!("train --resume {out} --steps 64 --ranks 3 --threads 1"));
        assert_eq!(begun.lines().chain(ended.lines()).collect::<Vec<_>>(), lines, "{steps}");
        assert_eq!(revised(&out).len(), if steps == 32 { 2 } else { 3 }, "{steps}");
    }
    let message = fail(&format!("{train} --hot-revise 16 --set train.hot_set=somewhere --set train.hot_budget=auto"));
    assert!(message.contains("train.hot_set names the hot rows"), "{message}");
    let message = fail(&format!("{} --hot-revise 16", drifting_training()));
    assert!(message.contains("train.hot = \"exact\""), "{message}");
}

#[test]
fn hot_rows_are_those_of_a_file_if_it_is_of_these_data() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name).display().to_string();
    let train = tiny_training();
    let data = "--set data.train_samples=2560";
    let keys = "--set model.bottom=[13,32,8] --set model.dim=8";
    succeed(&format!(
        "inspect --hot --optimizer-rows sgd {data} {keys} --sample 50% --hot-budget 5MiB --out {}",
        at("hot")
    ));
    let train = format!("{train} {data} --threads 1 --ranks 2");
    let (results, said) = told(&format!("{train} --hot exact --hot-set {} --out {}", at("hot"), at("run")));
    assert!(said.contains(&format!("; as in {}", at("hot"))) && sent(&results, "hot_rows") > 0, "{said}");
    let refused = |line: &str, words: &[&str]| {
        let message = fail(line);
        assert!(words.iter().all(|word| message.contains(word)), "{line}: {message}");
    };
    // `train --resume` reads them again, also where the data are generated.
    let (clicks, hot) = (tsv(&folder.path().join("clicks.tsv"), 20), fs::read(at("hot")).unwrap());
    for command in [format!("predict --data {}", clicks.display()), "export --format torch".to_owned()] {
        let line = format!("{command} --checkpoint {} --out {}", at("run"), at("hot"));
        refused(&line, &["--out: ", "hot is part of the data or configuration that the run of ", "would be lost"]);
        assert!(fs::read(at("hot")).unwrap() == hot, "{command}");
    }
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
    for revised in ["", " --hot-revise 1"] {
        let (results, said) = told(&format!("{unending}{revised}"));
        assert!(said.contains("hot rows: copies of ") && sent(&results, "hot_rows") > 0, "{said}");
    }
    let both = run(&format!("{train} --hot exact --hot-budget 1MiB --hot-set {}", at("hot")));
    assert_eq!(both.status.code(), Some(2));
}

#[test]
fn one_rank_sends_nothing_and_less_of_nothing_is_nothing() {
    let output = succeed("plan --preset small --rows-cap 1000 --ranks 1 --topology two-socket --hot");
    let text = String::from_utf8_lossy(&output.stdout);
    let least = text.lines().find(|line| line.trim_start().starts_with("1.0 MiB")).expect("the least budget");
    assert!(text.contains("no budget lets less travel") && !least.contains("100.0 %"), "{text}");
}

/// A training whose larger tables have rows that are looked up seldom.
fn training_in_turns() -> String {
    format!("{} --set data.train_samples=2560 --threads 1", tiny_training())
}

/// The tests between turns that a run's metrics tell of.
fn judged(out: &str) -> Vec<Value> {
    let metrics = fs::read_to_string(format!("{out}/metrics.jsonl")).unwrap();
    let entries = metrics.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    entries.filter(|entry| entry["kind"] == "shuffle").collect()
}

#[test]
fn hot_and_cold_inputs_take_turns_and_no_number_of_ranks_nor_a_stop_changes_a_bit() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name).display().to_string();
    let train = format!(
        "{} --determinism ranks --hot fae --hot-budget 3560KiB --set train.hot_test_samples=100",
        training_in_turns()
    );
    let trace = |name: &str, line: &str| traced(&at(name), line);
    let (alone, whole, said) = trace("alone", &format!("{train} --out {}", at("run")));
    assert!(said.contains("hot inputs: ") && said.contains("look up hot rows alone"), "{said}");
    let turns = judged(&at("run"));
    // Half of the cold minibatches, half of the hot ones, and again: three changes an epoch.
    assert!(turns.len() >= 3, "{turns:?}");
    assert_eq!(
        (&turns[0]["next"], &turns[0]["rate_before"], &turns[1]["next"]),
        (&"hot".into(), &50.0.into(), &"cold".into())
    );
    assert!(
        turns.iter().all(|turn| turn["logloss"].as_f64().unwrap() > 0.0 && turn["minibatches"].as_u64().unwrap() > 0)
    );
    let (three, others, _) = trace("three", &format!("{train} --ranks 3"));
    assert!(three == alone && others["auc"] == whole["auc"], "losses to the last digit");
    assert!(sent(&others, "hot_rows") > 0, "{others}");
    // Another order than that of the data, and another result.
    let (plain, off, _) = trace("plain", &format!("{} --determinism ranks", training_in_turns()));
    assert!(plain != alone && plain.lines().count() <= alone.lines().count());
    let apart = (off["auc"].as_f64().unwrap() - whole["auc"].as_f64().unwrap()).abs();
    assert!(apart < 0.05, "{off}, {whole}");
    // Where a turn is under way, and where one has just ended.
    let steps = turns[0]["step"].as_u64().unwrap();
    let lines: Vec<&str> = alone.lines().collect();
    for (name, steps) in [("middle", steps + 2), ("end", steps)] {
        let out = at(name);
        let (begun, ..) = trace("first", &format!("{train} --ranks 2 --steps {steps} --out {out}"));
        let line = format!("train --resume {out} --steps {} --ranks 3 --threads 1", lines.len());
        let (ended, results, said) = trace("second", &line);
        assert!(said.contains(&format!("as in {out}/hot.safetensors")), "{said}");
        assert_eq!(begun.lines().chain(ended.lines()).collect::<Vec<_>>(), lines, "{name}");
        assert_eq!(results["auc"], whole["auc"]);
        assert_eq!(judged(&out), turns, "{name}");
    }
    // Another order, or other hot rows, are no continuation.
    let end = at("end");
    for (flags, words) in [
        ("--hot off", "off or exact is another order of the data, and the run began with samples in turns"),
        ("--hot-budget 4MiB", "keeps the hot rows that it began with"),
        ("--hot-set other", "leave train.hot_budget away"),
    ] {
        let message = fail(&format!("train --resume {end} --steps 99 --threads 1 {flags}"));
        assert!(message.contains(words), "{flags}: {message}");
    }
    let off = at("off");
    succeed(&format!("{} --steps 9 --out {off}", training_in_turns()));
    let message = fail(&format!("train --resume {off} --steps 99 --threads 1 --hot fae --hot-budget 3560KiB"));
    assert!(message.contains("fae is another order of the data"), "{message}");
    // A minibatch of another size makes other turns.
    let message = fail(&format!("train --resume {} --steps 99 --batch 32 --threads 1", at("end")));
    assert!(message.contains("the run began with") && message.contains("--batch"), "{message}");
}

#[test]
fn the_best_model_of_a_run_with_hot_rows_is_kept_and_goes_on() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name).display().to_string();
    let turns = format!(
        "{} --determinism ranks --hot fae --hot-budget 3560KiB --set train.hot_test_samples=100",
        training_in_turns()
    );
    let revised = format!("{} --ranks 3 --hot exact --hot-budget 96KiB --hot-revise 16", drifting_training());
    for (name, train) in [("turns", turns), ("revised", revised)] {
        let out = at(name);
        let (results, _) = told(&format!("{train} --eval-every 5 --keep-best --out {out}"));
        let scores = told(&format!("eval --checkpoint {out}/best")).0;
        assert_eq!(scores["auc"], results["best_auc"], "{name}");
        let step = results["best_step"].as_u64().unwrap();
        let (on, _) = told(&format!("train --resume {out}/best --steps {} --ranks 3 --threads 1", step + 1));
        assert_eq!((&on["step"], &on["steps"]), (&(step + 1).into(), &1.into()), "{name}");
    }
}

#[test]
fn hot_inputs_are_those_of_a_file_that_tells_them_or_told_by_its_rows() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name).display().to_string();
    let keys = "--set model.bottom=[13,32,8] --set model.dim=8 --set data.train_samples=2560";
    let inspect = format!("inspect --hot --optimizer-rows sgd {keys} --sample 100% --hot-budget 4200KiB");
    succeed(&format!("{inspect} --out {}", at("rows")));
    succeed(&format!("{inspect} --inputs --out {}", at("tagged")));
    let train = format!("{} --determinism ranks --hot fae --set train.hot_test_samples=100", training_in_turns());
    let trace = |name: &str, set: &str| {
        let (_, said) = told(&format!("{train} --trace-loss {} --hot-set {set}", at(name)));
        (fs::read_to_string(at(name)).unwrap(), said)
    };
    let (rows, tagged) = (trace("a", &at("rows")), trace("b", &at("tagged")));
    assert_eq!(rows.0, tagged.0);
    let inputs = |said: &str| said.lines().find(|line| line.starts_with("hot inputs")).map(str::to_owned);
    assert!(inputs(&rows.1).is_some() && inputs(&rows.1) == inputs(&tagged.1), "{}", rows.1);
    let refused = |line: &str, words: &[&str]| {
        let message = fail(line);
        assert!(words.iter().all(|word| message.contains(word)), "{line}: {message}");
    };
    let fewer = format!("{train} --set data.train_samples=2000 --hot-set {}", at("tagged"));
    refused(&fewer, &["tagged", "tells 2,560 training samples apart, and the data has 2,000", "leave --hot-set away"]);
    let other = format!("{train} --ranks 2 --set data.seed=77 --hot-set {}", at("tagged"));
    refused(&other, &["samples that are told to be hot look up rows that are not", "--hot-set", "--inputs"]);
    refused(
        &format!("{train} --hot-budget 64"),
        &["--hot-budget", "hot as a whole", "of 64 B that are allowed: allow more than "],
    );
    let none = "train --preset rmc1 --rows-cap 90000 --set data.train_samples=1280 --batch 64 --threads 1 --hot fae";
    refused(none, &["--hot fae: no training sample looks up hot rows alone", "--hot-budget", "octorec inspect --hot"]);
    refused(&format!("{} --set train.hot_test_samples=9", tiny_training()), &["train.hot_test_samples", "\"fae\""]);
    let step = "bench step --preset kaggle --ranks 2 --threads 1 --batch 64 --rows-cap 100 --set train.hot=fae";
    refused(step, &["train.hot", "an order of all inputs of a training"]);
    let unending = "train --source random --set model.rows=[50,90] --set model.bottom=[13,16,8] --set model.dim=8 \
                    --set model.top=[16,1] --steps 2 --threads 1 --hot fae";
    refused(unending, &["samples never end", "--hot exact"]);
    // More samples than a machine holds a bit or a stretch of, before anything is searched or drawn.
    let most = format!("{inspect} --set data.train_samples=9223372036854775807");
    refused(&most, &["--sample: drawing 100.000 % of 9,223,372,036,854,775,807 ", "sample fewer inputs"]);
    refused(&format!("{most} --inputs --out {}", at("most")), &["data.train_samples", "leave --inputs away"]);
    let flag = run(&format!("{inspect} --inputs"));
    assert!(String::from_utf8_lossy(&flag.stderr).contains("--out"), "tags are kept somewhere");
}

#[test]
fn a_wide_part_and_series_have_hot_inputs_too() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name).display().to_string();
    let wide = "train --preset wide-deep --rows-cap 90000 --set data.train_samples=2560 --set data.test_samples=500 --batch 64 \
                --set model.top=[16,1] --set model.dim=4 --set model.wide_buckets=1000 --epochs 1 --set train.eval_every=0";
    let series = "train --preset rmc1 --rows-cap 90000 --set data.train_samples=1280 --set data.test_samples=200 --batch 64 --epochs 1 --hot-budget 2100KiB";
    for (name, train) in [("wide", wide), ("series", series)] {
        let train = format!("{train} --set train.hot_test_samples=100 --threads 1 --determinism ranks --hot fae");
        let trace = |ranks: usize| {
            let file = at(&format!("{name}{ranks}"));
            let (results, _) = told(&format!("{train} --ranks {ranks} --trace-loss {file}"));
            (fs::read_to_string(file).unwrap(), results)
        };
        let (alone, three) = (trace(1), trace(3));
        assert!(alone.0 == three.0 && alone.1["auc"] == three.1["auc"], "{name}");
        assert!(sent(&three.1, "hot_rows") > 0, "{name}");
    }
}
