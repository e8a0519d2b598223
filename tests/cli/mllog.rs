//! MLPerf's log of a run, held to the rules of mlcommons/logging's compliance checker: training_2.1.0 of DLRM, and
//! training_6.0.0 of DLRM-DCNv2.

use std::fs;

use serde_json::Value;

use super::{fail, json, tiny_training};

/// Keys that occur exactly once, in all rules.
const ONCE: [&str; 10] = [
    "submission_benchmark",
    "submission_division",
    "submission_org",
    "submission_platform",
    "submission_status",
    "init_stop",
    "run_start",
    "run_stop",
    "train_samples",
    "eval_samples",
];

/// Keys that occur exactly once in the closed division, which a log of the open one may have as well.
const COMMON: [&str; 4] =
    ["global_batch_size", "gradient_accumulation_steps", "opt_base_learning_rate", "opt_learning_rate_warmup_steps"];

/// Those of DLRM.
const DLRM: [&str; 4] = [
    "lr_decay_start_steps",
    "sgd_opt_base_learning_rate",
    "sgd_opt_learning_rate_decay_poly_power",
    "sgd_opt_learning_rate_decay_steps",
];

/// Those of DLRM-DCNv2.
const DCNV2: [&str; 7] = [
    "opt_name",
    "opt_adagrad_learning_rate_decay",
    "opt_weight_decay",
    "opt_adagrad_initial_accumulator_value",
    "opt_adagrad_epsilon",
    "opt_learning_rate_decay_start_step",
    "opt_learning_rate_decay_steps",
];

/// Keys that occur at least once.
const SOME: [&str; 7] =
    ["cache_clear", "init_start", "block_start", "block_stop", "eval_start", "eval_stop", "eval_accuracy"];

/// The events of a log; fails unless they keep the rules.
fn checked(text: &str, own: &[&str], first_epoch: f64) -> Vec<Value> {
    let events: Vec<Value> = text
        .lines()
        .map(|line| serde_json::from_str(line.strip_prefix(":::MLLOG ").expect("every line is an event")).unwrap())
        .collect();
    let key = |event: &Value| event["key"].as_str().unwrap().to_owned();
    let count = |name: &str| events.iter().filter(|event| event["key"] == name).count();
    for name in ONCE.iter().chain(&COMMON).chain(own) {
        assert_eq!(count(name), 1, "{name} once in\n{text}");
    }
    SOME.iter().for_each(|name| assert!(count(name) > 0, "{name} in\n{text}"));
    for event in &events {
        assert!(event["metadata"].is_object() && event.get("value").is_some() && event["namespace"] == "", "{event}");
        let kind = match &key(event)[..] {
            name if name.ends_with("_start") && !name.starts_with("lr_") => "INTERVAL_START",
            name if name.ends_with("_stop") => "INTERVAL_END",
            _ => "POINT_IN_TIME",
        };
        assert_eq!(event["event_type"], kind, "{event}");
    }
    let times: Vec<u64> = events.iter().map(|event| event["time_ms"].as_u64().unwrap()).collect();
    assert!(times.is_sorted() && times[0] > 1_600_000_000_000 && times[times.len() - 1] - times[0] < 30 * 60_000);
    // Initialisation ends before the run starts; every interval ends before the next begins.
    let at = |name: &str| events.iter().position(|event| event["key"] == name).unwrap();
    assert!(at("cache_clear") < at("init_start") && at("init_start") < at("init_stop"), "{text}");
    let before = ONCE[..5].iter().chain(&ONCE[8..]).chain(&COMMON).chain(own).chain(&["weights_initialization"]);
    before.for_each(|name| assert!(at("init_start") < at(name) && at(name) < at("init_stop"), "{name} in\n{text}"));
    assert_eq!(at("run_start"), at("init_stop") + 1);
    let run: Vec<String> = events[at("run_start")..].iter().map(key).collect();
    assert_eq!(run.last().unwrap(), "run_stop");
    for (before, after) in run.iter().zip(&run[1..]) {
        let allowed: &[&str] = match &before[..] {
            "run_start" => &["block_start"],
            "block_start" => &["block_stop"],
            "block_stop" => &["eval_start", "run_stop"],
            "eval_start" => &["eval_accuracy"],
            "eval_accuracy" => &["eval_stop"],
            "eval_stop" => &["block_start", "eval_start", "run_stop"],
            other => panic!("{other} within a run"),
        };
        assert!(allowed.contains(&&after[..]), "{after} behind {before} in\n{text}");
    }
    let mut last = first_epoch;
    for event in &events {
        let metadata = &event["metadata"];
        match &key(event)[..] {
            "block_start" => {
                assert!(metadata["epoch_count"].as_f64().unwrap() > 0.0);
                assert_eq!(metadata["first_epoch_num"], last, "blocks begin where an evaluation was");
            }
            "block_stop" => assert_eq!(metadata["first_epoch_num"], last),
            "eval_start" => {
                let epoch = metadata["epoch_num"].as_f64().unwrap();
                assert!(epoch > last, "{event}");
                last = epoch;
            }
            "eval_accuracy" => {
                assert!((0.0..1.0).contains(&event["value"].as_f64().unwrap()) && metadata["epoch_num"] == last);
            }
            "eval_stop" => assert_eq!(metadata["epoch_num"], last),
            "run_stop" => assert!(["success", "aborted"].contains(&metadata["status"].as_str().unwrap())),
            "submission_org" | "submission_platform" => assert_ne!(event["value"], ""),
            "submission_division" => assert!(["closed", "open"].contains(&event["value"].as_str().unwrap())),
            _ => (),
        }
    }
    events
}

fn value<'a>(events: &'a [Value], key: &str) -> &'a Value {
    &events.iter().find(|event| event["key"] == key).unwrap()["value"]
}

#[test]
fn a_run_is_logged_by_the_rules_of_dlrm() {
    let folder = tempfile::tempdir().unwrap();
    let log = folder.path().join("run.log");
    // 40 steps an epoch: every second one ends a twentieth.
    let line = format!("{} --set train.evals_per_epoch=20 --mllog {} --json", tiny_training(), log.display());
    let rates =
        "--set train.warmup_steps=7 --set train.lr_rows=0.2 --set train.decay_start=10 --set train.decay_steps=5";
    let summary = json(&format!("{line} --mllog-org us {rates}"));
    assert!(summary["target_seconds"].is_null());
    let events = checked(&fs::read_to_string(&log).unwrap(), &DLRM, 1.0);
    let of = |key: &str| events.iter().filter(|event| event["key"] == key).collect::<Vec<_>>();
    let epochs: Vec<f64> =
        of("eval_start").iter().map(|event| event["metadata"]["epoch_num"].as_f64().unwrap()).collect();
    let twentieths: Vec<f64> = (1..=20).map(|k| ((1.0 + f64::from(k) / 20.0) * 1e4).round() / 1e4).collect();
    assert_eq!(epochs, twentieths);
    assert_eq!(of("run_stop")[0]["metadata"]["status"], "aborted", "there is no target");
    assert_eq!(of("eval_accuracy")[19]["value"], summary["auc"]);
    let tensors: Vec<_> = of("weights_initialization").iter().map(|event| &event["metadata"]["tensor"]).collect();
    assert_eq!(tensors, ["embeddings", "bottom_mlp_dense1", "bottom_mlp_dense2", "top_mlp_dense1", "top_mlp_dense2"]);
    for (key, expected) in [
        ("submission_benchmark", Value::from("dlrm")),
        ("submission_division", "open".into()),
        ("submission_org", "us".into()),
        ("cache_clear", true.into()),
        ("global_batch_size", 64.into()),
        ("opt_base_learning_rate", 0.1.into()),
        ("sgd_opt_base_learning_rate", 0.2.into()),
        ("opt_learning_rate_warmup_steps", 7.into()),
        ("lr_decay_start_steps", 10.into()),
        ("sgd_opt_learning_rate_decay_steps", 5.into()),
        ("sgd_opt_learning_rate_decay_poly_power", 2.0.into()),
        ("train_samples", 2560.into()),
        ("eval_samples", 640.into()),
    ] {
        assert_eq!(*value(&events, key), expected, "{key}");
    }
}

#[test]
fn a_run_that_an_error_ends_is_logged_as_aborted() {
    let folder = tempfile::tempdir().unwrap();
    let log = folder.path().join("run.log");
    let message = fail(&format!("{} --lr 1e30 --mllog {}", tiny_training(), log.display()));
    assert!(message.contains("diverged"), "{message}");
    let text = fs::read_to_string(&log).unwrap();
    let events: Vec<Value> =
        text.lines().map(|line| serde_json::from_str(&line[":::MLLOG ".len()..]).unwrap()).collect();
    let [.., before, last] = &events[..] else { panic!("{text}") };
    assert_eq!((&before["key"], &last["key"]), (&"block_stop".into(), &"run_stop".into()), "{text}");
    assert_eq!(last["metadata"]["status"], "aborted");
}

#[test]
fn a_run_ends_at_its_target_and_is_logged_by_the_rules_of_dcnv2_as_well() {
    let folder = tempfile::tempdir().unwrap();
    let log = folder.path().join("run.log");
    let line = format!("{} --optimizer adagrad --optimizer-rows adagrad", tiny_training());
    let keys = "--eval-every 10 --target-auc 0.01 --set train.eps=1e-8";
    let summary = json(&format!("{line} {keys} --mllog {} --mllog-benchmark dlrm_dcnv2 --json", log.display()));
    assert_eq!((&summary["steps"], &summary["outcome"]), (&10.into(), &"target-reached".into()));
    assert!(summary["target_seconds"].as_f64().unwrap() >= summary["seconds"].as_f64().unwrap());
    let events = checked(&fs::read_to_string(&log).unwrap(), &DCNV2, 0.0);
    assert_eq!(events.last().unwrap()["metadata"]["status"], "success");
    let evaluation = events.iter().find(|event| event["key"] == "eval_accuracy").unwrap();
    assert_eq!((&evaluation["metadata"]["epoch_num"], &evaluation["value"]), (&0.25.into(), &summary["auc"]));
    let expected = [("opt_name", Value::from("adagrad")), ("opt_adagrad_epsilon", 1e-8.into())];
    expected.iter().for_each(|(key, expected)| assert_eq!(value(&events, key), expected, "{key}"));
}
