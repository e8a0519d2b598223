//! Weighted look-ups from files through training and evaluation: a weight of 1 is none, a weight of 2 is the row twice.

use std::path::Path;
use std::process::{Command, Output};

use octorec::data::blocks::{Codec, Options};
use octorec::data::formats::{Format, Target};
use octorec::data::samples::{Samples, Values};
use octorec::data::schema::{Categorical, Dense};
use octorec::data::{Description, Split};
use serde_json::Value;

const MODEL: &str = "--set model.bottom=[1,8] --set model.top=[8,1] --set model.dim=8 --batch 32 --lr 0.1 --eval-every 0 \
                     --optimizer sgd --optimizer-rows sgd --set data.shuffle_window=100 --set train.steps=40";
/// The same for `plan`, which has no steps.
const PLANNED: &str = "--set model.bottom=[1,8] --set model.top=[8,1] --set model.dim=8 --batch 32 \
                       --optimizer-rows sgd";

fn octorec(line: &str) -> Output {
    Command::new(env!("CARGO_BIN_EXE_octorec")).args(line.split_whitespace()).output().unwrap()
}

fn run(line: &str) -> String {
    let output = octorec(line);
    assert!(output.status.success(), "octorec {line}\n{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// A log of one-hot `user` and multi-hot `item`, whose look-ups weigh `weight` (nothing: without weights) and are there
/// `times` times.
fn write(folder: &Path, weight: Option<f32>, times: usize) {
    write_log(folder, weight.is_some(), times, |_| weight.unwrap_or(1.0));
}

/// Such a log in which no two look-ups weigh the same.
fn write_varied(folder: &Path) {
    write_log(folder, true, 1, |look_up| 1.5 - (look_up * 7919 % 1009) as f32 / 613.0);
}

/// Such a log, weights by look-up.
fn write_log(folder: &Path, weighted: bool, times: usize, weight: impl Fn(usize) -> f32) {
    let column = |name: &str, rows, hots, weighted| Categorical { hots, weighted, ..Categorical::new(name, rows) };
    let description = Description {
        dense: vec![Dense { name: "age".to_owned(), float: true, ..Dense::default() }],
        categorical: vec![column("user", 40, 1, false), column("item", 60, 0, weighted)],
        ..Description::default()
    };
    let options = Options { codec: Codec::Lz4, block_rows: 50 };
    let mut target = Target::create(folder, Format::Octorec, &description, options).unwrap();
    for (role, range) in [(Split::Train, 0..640u32), (Split::Test, 640..800)] {
        let mut samples = Samples::new(&description);
        for n in range.clone() {
            samples.labels.push((n * n % 7 < 2) as u8 as f32);
            let Values::Floats(ages) = &mut samples.dense[0] else { panic!("ages are floats") };
            ages.push((n % 11) as f32 / 11.0);
            samples.lookups[0].rows.push(n * 13 % 40);
            let items = &mut samples.lookups[1];
            for k in 0..n % 4 {
                items.rows.extend(std::iter::repeat_n((n * 17 + k * 5) % 60, times));
            }
            items.ends.push(items.rows.len() as u32);
            if weighted {
                let more = items.weights.len()..items.rows.len();
                items.weights.extend(more.map(&weight));
            }
        }
        target
            .write(role, |sink| {
                sink.push(&samples)?;
                Ok(samples.len() as u64)
            })
            .unwrap();
    }
    target.seal().unwrap();
}

/// The losses of a training run and the test metrics of its checkpoint.
fn trained(home: &Path, name: &str, weight: Option<f32>, times: usize) -> (Vec<f64>, Value) {
    let data = home.join(name);
    write(&data, weight, times);
    let (data, out, trace) = (data.display(), home.join(format!("{name}-run")), home.join(format!("{name}-losses")));
    run(&format!("train {MODEL} --data {data} --trace-loss {} --out {}", trace.display(), out.display()));
    let losses = std::fs::read_to_string(trace).unwrap();
    let last = |line: &str| line.split_whitespace().last().unwrap().parse().unwrap();
    let metrics = run(&format!("eval --checkpoint {} --data {data} --json", out.display()));
    (losses.lines().map(last).collect(), serde_json::from_str(&metrics).unwrap())
}

#[test]
fn a_weight_of_one_is_none_and_of_two_is_the_row_twice() {
    let home = tempfile::tempdir().unwrap();
    let plain = trained(home.path(), "plain", None, 1);
    let (one, two) = (trained(home.path(), "one", Some(1.0), 1), trained(home.path(), "two", Some(2.0), 1));
    let twice = trained(home.path(), "twice", None, 2);
    assert_eq!(plain.0.len(), 40);
    assert_eq!(plain, one, "the same bits");
    // Moving a row once by twice the gradient rounds once, moving it twice rounds twice.
    let close = |a: f64, b: f64| (a - b).abs() < 1e-5 * b.abs();
    assert!(two.0.iter().zip(&twice.0).all(|(&a, &b)| close(a, b)), "{two:?}\n{twice:?}");
    assert_eq!(two.0[0], twice.0[0], "before anything moved");
    let logloss = |metrics: &Value| metrics["logloss"].as_f64().unwrap();
    assert!(close(logloss(&two.1), logloss(&twice.1)), "{} {}", two.1, twice.1);
    assert!(!close(logloss(&two.1), logloss(&one.1)) && !close(two.0[39], one.0[39]), "weights matter");
}

#[test]
fn inspect_shows_weights() {
    let home = tempfile::tempdir().unwrap();
    let data = home.path().join("data");
    write(&data, Some(0.25), 1);
    let text = run(&format!("inspect {}", data.display()));
    assert!(
        text.lines().any(|line| line.trim_start().starts_with("item ") && line.ends_with("weights, mean 0.2500")),
        "{text}"
    );
    assert!(text.lines().any(|line| line.trim_start().starts_with("user ") && !line.contains("weights")), "{text}");
    let found: Value = serde_json::from_str(&run(&format!("inspect {} --json", data.display()))).unwrap();
    assert_eq!(
        (&found["categorical"][0]["weight_mean"], &found["categorical"][1]["weight_mean"]),
        (&Value::Null, &0.25.into())
    );
    assert_eq!(found["schema"]["categorical"][1]["weighted"], true);
}

/// The losses of a training run.
fn losses(home: &Path, line: &str) -> Vec<f64> {
    let trace = home.join("trace");
    run(&format!("{line} --trace-loss {}", trace.display()));
    std::fs::read_to_string(trace).unwrap().lines().map(|line| line.parse().unwrap()).collect()
}

fn follow(alone: &[f64], others: &[f64], what: &str) {
    assert_eq!((alone.len(), others.len()), (40, 40), "{what}");
    for (step, (a, b)) in alone.iter().zip(others).enumerate() {
        assert!((a - b).abs() <= 1e-5 * a.abs(), "{what}: step {step}: {b}, not {a}");
    }
}

#[test]
fn ranks_follow_the_losses_of_one_whatever_the_plan_and_whoever_reads() {
    let home = tempfile::tempdir().unwrap();
    let home = home.path();
    let data = home.join("data");
    write_varied(&data);
    let train = format!("train {MODEL} --data {} --threads 1", data.display());
    for pooling in ["sum", "mean"] {
        let train = format!("{train} --set model.pooling=\"{pooling}\"");
        let alone = losses(home, &train);
        let ordered = losses(home, &format!("{train} --determinism ranks"));
        follow(&alone, &ordered, "sums in another order");
        for ranks in [2, 3] {
            for loader in ["local", "broadcast", "naive"] {
                let several = format!("{train} --ranks {ranks} --loader {loader}");
                follow(&alone, &losses(home, &several), &several);
                assert_eq!(losses(home, &format!("{several} --determinism ranks")), ordered, "{several}");
            }
            for scheme in ["table", "column", "row", "replicated"] {
                let plan = home.join(format!("plan-{ranks}-{scheme}.toml"));
                let (data, file) = (data.display(), plan.display());
                run(&format!("plan {PLANNED} --data {data} --ranks {ranks} --scheme {scheme} --out {file}"));
                let several = format!("{train} --ranks {ranks} --plan {}", plan.display());
                follow(&alone, &losses(home, &several), &format!("{several}, {scheme}"));
                let same = losses(home, &format!("{several} --determinism ranks"));
                assert_eq!(same, ordered, "{several}, {scheme}");
            }
        }
    }
}

#[test]
fn a_run_is_continued_by_other_ranks_and_only_with_the_weights_that_it_began_with() {
    let home = tempfile::tempdir().unwrap();
    let path = |name: &str| home.path().join(name).display().to_string();
    let (data, plain, out) = (path("data"), path("plain"), path("run"));
    write_varied(Path::new(&data));
    write(Path::new(&plain), None, 1);
    let alone = losses(home.path(), &format!("train {MODEL} --data {data} --threads 1"));
    let train = format!("train {MODEL} --data {data} --threads 1 --out {out}");
    let first = losses(home.path(), &format!("{train} --ranks 2 --steps 15"));
    let refused = |line: &str| {
        let output = octorec(line);
        let message = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(1), "{line}: {message}");
        message
    };
    for ranks in [1, 3] {
        let line = format!("train --resume {out} --data {plain} --steps 40 --threads 1 --ranks {ranks}");
        let message = refused(&line);
        let told = "table 1 (item) was trained with weights of its look-ups, and this data comes without them";
        assert!(message.contains(told) && message.contains("checkpoint.safetensors"), "{message}");
    }
    let evaluated = octorec(&format!("eval --checkpoint {out} --data {plain}"));
    let message = String::from_utf8_lossy(&evaluated.stderr).into_owned();
    assert!(evaluated.status.success() && message.contains("warning: table 1 (item) was trained with"), "{message}");
    let second = losses(home.path(), &format!("train --resume {out} --steps 40 --threads 1 --ranks 3"));
    follow(&alone, &[first, second].concat(), "three ranks after two");
    let evaluated = octorec(&format!("eval --checkpoint {out} --data {data}"));
    assert!(evaluated.status.success() && !String::from_utf8_lossy(&evaluated.stderr).contains("warning: table"));

    let other = path("other");
    run(&format!("train {MODEL} --data {plain} --threads 1 --steps 5 --out {other}"));
    let message = refused(&format!("train --resume {other} --data {data} --steps 40 --threads 1"));
    assert!(message.contains("table 1 (item) was trained without weights"), "{message}");
}
