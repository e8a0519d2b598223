//! Every key works or is refused, in every command; a wrong value is blamed on the place that gave it; and what a run's
//! directory says of itself is what was trained.

use std::collections::HashMap;
use std::fs;
use std::path::Path;

use octorec::base::config::{Command, Config, KEYS, Key, Layers};
use serde_json::Value;

use super::{fail, json, octorec, run, succeed, tiny_training, tsv};

/// The keys of a training that takes a fraction of a second, by the data that it reads.
const MODEL: [(&str, &str); 9] = [
    ("model.bottom", "[13,16,8]"),
    ("model.top", "[16,1]"),
    ("model.dim", "8"),
    ("train.batch", "64"),
    ("train.lr", "0.1"),
    ("train.steps", "5"),
    ("train.eval_every", "0"),
    ("train.optimizer", "sgd"),
    ("train.optimizer_rows", "sgd"),
];
const TURNS: &[(&str, &str)] = &[("train.hot", "fae"), ("train.hot_budget", "3379200"), ("data.train_samples", "320")];
const BUILT_IN: &[(&str, &str)] = &[("data.train_samples", "640"), ("data.test_samples", "128")];
const RANDOM: &[(&str, &str)] =
    &[("data.source", "random"), ("data.test_samples", "128"), ("model.rows", "[300,400,500]")];
const TEXT: &[(&str, &str)] = &[("data.source", "tsv"), ("data.path", "good.tsv")];
const TABLE: &[(&str, &str)] =
    &[("data.source", "files"), ("data.path", "good.csv"), ("data.schema", "one.toml"), ("model.bottom", "[1,16,8]")];

/// How a key shows that it has an effect.
struct Case {
    key: &'static str,
    value: &'static str,
    /// The data.
    data: &'static [(&'static str, &'static str)],
    /// Other keys that are set on both sides.
    with: &'static [(&'static str, &'static str)],
}

const fn case(
    key: &'static str,
    value: &'static str,
    data: &'static [(&'static str, &'static str)],
    with: &'static [(&'static str, &'static str)],
) -> Case {
    Case { key, value, data, with }
}

/// A cross network.
const CROSS: &[(&str, &str)] = &[("model.interaction", "dcn"), ("model.cross_rank", "4")];

/// A wide part.
const WIDE: &[(&str, &str)] = &[("model.wide", "true"), ("model.wide_crosses", r#"[["C1","C2"]]"#)];

/// A network of one's own.
const OWN: &str = r#"[
    {name="hidden", type="linear", of="dense", outputs=[9,5]},
    {name="all", type="concat", of=["hidden","embeddings"]},
    {name="logit", type="linear", of="all", outputs=1},
]"#;

/// Narrow tables.
const MIXED: &[(&str, &str)] =
    &[("model.md_temperature", "0.1"), ("model.md_threshold", "4"), ("model.rows", "[100,300]")];

/// Two tables for a column.
const COMPOSED: &[(&str, &str)] =
    &[("model.qr_collisions", "4"), ("model.qr_threshold", "50"), ("model.rows", "[100,300]")];

/// A time series.
const SERIES: &[(&str, &str)] = &[("model.ts_length", "2"), ("data.lookups", "4")];

/// Rates that decay within a run.
const DECAY: &[(&str, &str)] = &[("train.decay_steps", "3"), ("train.decay_start", "1")];

/// In steps.
const FALL: &[(&str, &str)] = &[("train.decay_steps", "3"), ("train.decay_start", "1"), ("train.decay", "steps")];

const CASES: &[Case] = &[
    case("model.bottom", "[13,24,8]", BUILT_IN, &[]),
    case("model.top", "[24,1]", BUILT_IN, &[]),
    case("model.dim", "4", BUILT_IN, &[("model.interaction", "cat")]),
    case("model.md_temperature", "0.2", BUILT_IN, MIXED),
    case("model.md_threshold", "1000", BUILT_IN, MIXED),
    case("model.md_round_dims", "true", BUILT_IN, MIXED),
    case("model.qr_collisions", "3", BUILT_IN, COMPOSED),
    case("model.qr_operation", "concat", BUILT_IN, COMPOSED),
    case("model.qr_threshold", "200", BUILT_IN, COMPOSED),
    case("model.rows", "[300,400]", BUILT_IN, &[]),
    case("model.columns", r#"["C3","C1","C2"]"#, RANDOM, WIDE),
    case("model.pooling", "mean", RANDOM, &[("data.lookups", "3")]),
    case("model.weighted_pooling", "learned", BUILT_IN, &[]),
    case("model.interaction", "cat", BUILT_IN, &[]),
    case("model.interaction_itself", "true", BUILT_IN, &[]),
    case("model.triangle", "upper", BUILT_IN, &[]),
    case("model.cross_layers", "2", BUILT_IN, CROSS),
    case("model.cross_rank", "5", BUILT_IN, CROSS),
    case("model.wide", "true", BUILT_IN, &[]),
    case("model.wide_crosses", r#"[["C2","C1"],["C1","C2"]]"#, BUILT_IN, WIDE),
    case("model.wide_buckets", "3", BUILT_IN, WIDE),
    case("model.ts_length", "4", BUILT_IN, SERIES),
    case("model.sequences", r#"["C1"]"#, BUILT_IN, SERIES),
    case("model.tsl_mlp", "[6]", BUILT_IN, SERIES),
    case("model.arch_mlp", "[9,1]", BUILT_IN, SERIES),
    case("model.loss", "mse", BUILT_IN, &[]),
    case("model.loss_weights", "[1.0,2.0]", BUILT_IN, &[("model.loss", "wbce")]),
    case("model.loss_threshold", "0.45", BUILT_IN, &[]),
    case("model.layers", OWN, BUILT_IN, &[]),
    case("data.source", "criteo", RANDOM, &[]),
    case("data.path", "other.tsv", TEXT, &[]),
    case("data.schema", "two.toml", TABLE, &[]),
    case("data.test_path", "other.tsv", TEXT, &[]),
    case("data.test_fraction", "0.5", TEXT, &[("data.vocab", "train")]),
    case("data.validation_fraction", "0.5", TEXT, &[("data.vocab", "train")]),
    case("data.vocab", "train", TEXT, &[]),
    case("data.rows_cap", "7", BUILT_IN, &[]),
    case("data.on_bad_row", "skip", TEXT, &[("data.path", "bad.tsv")]),
    case("data.max_line", "64", TEXT, &[]),
    case("data.shuffle", "false", BUILT_IN, &[]),
    case("data.shuffle_window", "16", BUILT_IN, &[]),
    case("data.train_samples", "320", BUILT_IN, &[("train.steps", "0")]),
    case("data.test_samples", "64", BUILT_IN, &[]),
    case("data.seed", "5", BUILT_IN, &[]),
    case("data.lookups", "4", BUILT_IN, &[]),
    case("data.lookups_fixed", "false", RANDOM, &[("data.lookups", "4")]),
    case("data.days", "3", BUILT_IN, &[("data.drift", "0.5")]),
    case("data.drift", "0.5", BUILT_IN, &[("data.days", "2")]),
    case("data.zipf", "1.2", RANDOM, &[]),
    case("train.batch", "32", BUILT_IN, &[]),
    case("train.steps", "3", BUILT_IN, &[]),
    case("train.epochs", "2", BUILT_IN, &[("train.steps", "0")]),
    case("train.lr", "0.2", BUILT_IN, &[]),
    case("train.lr_rows", "0.3", BUILT_IN, &[]),
    case("train.lr_wide", "0.3", BUILT_IN, WIDE),
    case("train.lr_scaling", "sqrt", BUILT_IN, &[("train.lr_scaling", "linear"), ("train.lr_batch", "16")]),
    case("train.lr_batch", "16", BUILT_IN, &[("train.lr_scaling", "linear"), ("train.lr_batch", "32")]),
    case("train.warmup_steps", "4", BUILT_IN, &[]),
    case("train.decay", "cosine", BUILT_IN, DECAY),
    case("train.decay_power", "1.0", BUILT_IN, DECAY),
    case("train.decay_factor", "0.5", BUILT_IN, FALL),
    case("train.warmup_steps_rows", "4", BUILT_IN, &[]),
    case("train.decay_rows", "exponential", BUILT_IN, DECAY),
    case("train.decay_start_rows", "2", BUILT_IN, DECAY),
    case("train.decay_steps_rows", "9", BUILT_IN, DECAY),
    case("train.decay_start", "2", BUILT_IN, &[("train.decay_steps", "3")]),
    case("train.decay_steps", "3", BUILT_IN, &[("train.decay_steps", "9"), ("train.decay_start", "1")]),
    case("train.accumulate", "2", BUILT_IN, &[]),
    case("train.optimizer", "momentum", BUILT_IN, &[]),
    case("train.optimizer_rows", "momentum", BUILT_IN, &[]),
    case("train.optimizer_wide", "adagrad", BUILT_IN, WIDE),
    case("train.ftrl_beta", "0.1", BUILT_IN, WIDE),
    case("train.l1", "0.01", BUILT_IN, WIDE),
    case("train.l2", "0.5", BUILT_IN, &[("train.optimizer", "ftrl")]),
    case("train.momentum", "0.5", BUILT_IN, &[("train.optimizer", "momentum")]),
    case("train.eps", "0.01", BUILT_IN, &[("train.optimizer", "adam")]),
    case("train.beta1", "0.5", BUILT_IN, &[("train.optimizer", "adam")]),
    case("train.beta2", "0.5", BUILT_IN, &[("train.optimizer_rows", "adam")]),
    case("train.bias_correction", "false", BUILT_IN, &[("train.optimizer_rows", "adam")]),
    case("train.weight_decay", "0.1", BUILT_IN, &[]),
    case("train.initial_accumulator", "0.5", BUILT_IN, &[("train.optimizer_rows", "rowwise-adagrad")]),
    case("train.update", "sorted", BUILT_IN, &[("train.update", "serial")]),
    case("train.precision", "bf16", BUILT_IN, &[]),
    case("train.determinism", "ranks", BUILT_IN, &[]),
    case("train.wire", "bf16", BUILT_IN, &[]),
    case("train.collective", "ring", BUILT_IN, &[]),
    case("train.hot", "exact", BUILT_IN, &[]),
    case("train.hot_budget", "2048", BUILT_IN, &[("train.hot", "exact")]),
    case("train.hot_set", "nowhere", BUILT_IN, &[("train.hot", "exact")]),
    case("train.hot_revise", "2", BUILT_IN, &[("train.hot", "exact")]),
    case("train.hot_test_samples", "64", BUILT_IN, TURNS),
    case("train.seed", "5", BUILT_IN, &[]),
    case("train.threads", "1", BUILT_IN, &[("train.threads", "2")]),
    case("train.tuned", "nowhere.toml", BUILT_IN, &[]),
    case("train.isa", "scalar", BUILT_IN, &[]),
    case("train.eval_every", "2", BUILT_IN, &[]),
    case("train.eval_split", "test", TEXT, &[("data.validation_fraction", "0.2")]),
    case("train.clip_norm", "0.01", BUILT_IN, &[]),
    case("train.evals_per_epoch", "4", BUILT_IN, &[]),
    case("train.target_auc", "0.01", BUILT_IN, &[]),
    case("train.patience", "1", BUILT_IN, &[("train.eval_every", "1"), ("train.lr", "0.0")]),
    case("train.keep_best", "true", BUILT_IN, &[]),
    // The AUC of this training falls from its first step on, and its log loss, too.
    case("train.best_by", "logloss", BUILT_IN, &[("train.eval_every", "1"), ("train.patience", "1")]),
];

/// Keys that by their meaning change the speed, the memory or the moment of something, and no result.
const UNSEEN: [&str; 6] = [
    "data.prefetch",
    "train.part",
    "train.eval_batch",
    "train.update_fused",
    "train.checkpoint_every",
    "train.checkpoint_minutes",
];

fn folder() -> tempfile::TempDir {
    use std::fmt::Write;
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    tsv(&at("good.tsv"), 600);
    tsv(&at("other.tsv"), 500);
    // Other categories.
    let other = fs::read_to_string(at("other.tsv")).unwrap();
    fs::write(at("other.tsv"), other.replace('a', "f")).unwrap();
    let good = fs::read_to_string(at("good.tsv")).unwrap();
    fs::write(at("bad.tsv"), format!("{good}1\tshort\n")).unwrap();
    let mut text = "clicked,user,item,price\n".to_owned();
    for row in 0u32..600 {
        let [user, item] = [row.wrapping_mul(2_654_435_761) >> 26, row.wrapping_mul(40_503) % 23];
        let _ = writeln!(text, "{},u{user},i{item},{}", u32::from((user + item) % 3 == 0), row % 17);
    }
    fs::write(at("good.csv"), text).unwrap();
    let schema = "label = \"clicked\"\n[[dense]]\ncolumn = \"price\"\n[[categorical]]\ncolumn = \"user\"\n";
    fs::write(at("one.toml"), schema).unwrap();
    fs::write(at("two.toml"), format!("{schema}[[categorical]]\ncolumn = \"item\"\n")).unwrap();
    folder
}

/// `--set` for the keys that a command takes here, the last of each.
fn settings(command: Command, pairs: &[&[(&str, &str)]]) -> Vec<String> {
    let mut last: Vec<(&str, &str)> = Vec::new();
    for (key, value) in pairs.iter().copied().flatten() {
        last.retain(|(known, _)| known != key);
        last.push((key, value));
    }
    let mut layers = Layers::default();
    last.iter().for_each(|(key, value)| layers.assignment(&format!("{key}={value}")).unwrap());
    let config = layers.finish(Command::Config).unwrap();
    let used = last.iter().filter(|(key, _)| Key::named(key).unwrap().idle(command, &config).is_none());
    used.flat_map(|(key, value)| ["--set".to_owned(), format!("{key}={value}")]).collect()
}

/// What a command did with these keys, without what a clock says.
fn done(folder: &Path, command: Command, settings: &[String]) -> String {
    let mut arguments: Vec<&str> = command.name().split(' ').collect();
    match command {
        Command::Train => arguments.extend(["--json", "--ranks", "2", "--trace-loss", "losses"]),
        Command::Plan => arguments.extend(["--json", "--ranks", "2", "--topology", "twisted-hypercube-8"]),
        Command::Generate => arguments.extend(["blocks"]),
        _ => unreachable!("runs of the others take long"),
    }
    arguments.extend(settings.iter().map(String::as_str));
    let _ = fs::remove_dir_all(folder.join("blocks"));
    let output = octorec().current_dir(folder).args(&arguments).output().unwrap();
    let message = String::from_utf8_lossy(&output.stderr).into_owned();
    if !output.status.success() {
        let error = message.lines().rev().find(|line| line.starts_with("error:"));
        return error.unwrap_or_else(|| panic!("{arguments:?} ends without a word: {message}")).to_owned();
    }
    match command {
        Command::Train => {
            let mut summary: Value = serde_json::from_slice(&output.stdout).unwrap();
            let clock = |key: &str| key.contains("seconds") || key.contains("_s") || key.contains("data_");
            summary.as_object_mut().unwrap().retain(|key, _| !clock(key));
            let telling = ["data:", "model:", "placement:", "update of", "step "];
            let said: Vec<_> =
                message.lines().filter(|line| telling.iter().any(|start| line.starts_with(start))).collect();
            format!("{summary}\n{}\n{}", said.join("\n"), fs::read_to_string(folder.join("losses")).unwrap())
        }
        Command::Generate => {
            let files = fs::read_dir(folder.join("blocks")).unwrap().map(|file| file.unwrap().path());
            let mut files: Vec<_> = files.map(|path| (path.clone(), fs::read(path).unwrap())).collect();
            files.sort();
            format!("{files:?}")
        }
        _ => String::from_utf8(output.stdout).unwrap(),
    }
}

#[test]
fn every_key_has_a_case() {
    for key in KEYS {
        let cases = CASES.iter().filter(|case| case.key == key.name).count();
        let expected = usize::from(!UNSEEN.contains(&key.name));
        assert_eq!(cases, expected, "{}: say by which value it shows what it does", key.name);
    }
}

fn walk(command: Command) {
    let folder = folder();
    // Many cases begin with the same keys.
    let mut known = HashMap::new();
    for Case { key, value, data, with } in CASES {
        let honoured = Key::named(key).unwrap().honoured(command);
        // Of a model, generated data take the number of dense features and the tables' rows alone.
        let model = if command == Command::Generate { &MODEL[..0] } else { &MODEL[..] };
        let value = if command == Command::Generate && *key == "model.bottom" { &"[7,16]" } else { value };
        let data: Vec<(&str, &str)> =
            data.iter().filter(|(key, _)| command != Command::Generate || *key != "model.bottom").copied().collect();
        let pairs: [&[_]; 3] = [model, &data, with];
        let mut set = settings(command, &pairs);
        let before = known.entry(set.clone()).or_insert_with_key(|set| done(folder.path(), command, set));
        set.extend(["--set".to_owned(), format!("{key}={value}")]);
        let after = done(folder.path(), command, &set);
        if honoured {
            let unused = after.contains("does not use") || after.contains("has no effect");
            assert!(!unused, "octorec {}: {key} = {value}: {after}", command.name());
            assert!(after != *before, "octorec {}: {key} = {value} changes nothing: {after}", command.name());
        } else {
            let words = format!("`octorec {}` does not use {key}: leave it away", command.name());
            assert!(after.contains(&words), "octorec {}: {key} = {value}: {after}", command.name());
        }
    }
}

#[test]
fn every_key_of_a_training_changes_it() {
    walk(Command::Train);
}

#[test]
fn every_key_of_a_plan_changes_it_and_others_are_refused() {
    walk(Command::Plan);
}

#[test]
fn every_key_of_generated_data_changes_them_and_others_are_refused() {
    walk(Command::Generate);
}

#[test]
fn keys_that_benches_do_not_use_are_refused_with_those_that_do() {
    for command in [Command::Tune, Command::Step, Command::Overlap, Command::Inspect] {
        for key in KEYS {
            let Some(case) = CASES.iter().find(|case| case.key == key.name) else { continue };
            let mut layers = Layers::default();
            for (key, value) in MODEL.iter().chain(case.data).chain(case.with) {
                layers.fix(key, toml_value(value), "base").unwrap();
            }
            layers.assignment(&format!("{}={}", key.name, case.value)).unwrap();
            match layers.finish(command) {
                Ok(_) => assert!(key.honoured(command), "{} takes {}", command.name(), key.name),
                Err(error) => {
                    let message = error.to_string();
                    assert!(!key.honoured(command), "{}: {message}", command.name());
                    assert!(message.starts_with(&format!("--set {}", key.name)), "{message}");
                    assert!(message.contains("it is for train"), "{message}");
                }
            }
        }
    }
}

fn toml_value(text: &str) -> toml::Value {
    let parsed = format!("v = {text}").parse::<toml::Table>().ok().and_then(|mut table| table.remove("v"));
    parsed.unwrap_or_else(|| toml::Value::String(text.to_owned()))
}

#[test]
fn a_wrong_value_is_blamed_on_the_place_that_gave_it() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("mine.toml");
    let line = |text: &str, flags: &str| {
        fs::write(&file, text).unwrap();
        fail(&format!("config --config {} {flags}", file.display()))
    };
    let place = |line: u32| format!("{}:{line}: ", file.display());
    let message = line("[model]\ntop = [8, 1]\ndim = 32\n", "--no-shuffle");
    assert!(message.contains(&place(3)) && !message.contains("--no-shuffle"), "{message}");
    assert!(message.contains("model.bottom ends in 16 but model.dim is 32"), "{message}");
    let message = line("[train]\n\nbatch = -1\n", "");
    assert!(message.contains(&place(3)) && message.contains("train.batch = -1: a whole number from 0"), "{message}");
    let message = line("[train]\nbatch = \"many\"\n", "");
    assert!(message.contains(&place(2)) && message.contains("a whole number"), "{message}");
    let message = line("[train]\nbatchsize = 3\n", "");
    assert!(message.contains(&place(2)) && message.contains("did you mean `train.batch`"), "{message}");
    // Of two keys that contradict each other, the later one is named first, and the other one's place with it.
    let message = line("[model]\ndim = 16\nbottom = [13, 16]\n", "--set model.dim=8");
    assert!(message.starts_with("error: --set model.dim=8: ") && message.contains("model.bottom is from"), "{message}");
    let message = fail("config --batch 0 --lr 0.5");
    assert!(message.starts_with("error: --batch: train.batch = 0 must lie in"), "{message}");
    let message = fail("config --preset kaggle --set model.dim=8");
    assert!(
        message.contains("--set model.dim=8") && message.contains("model.bottom is from preset kaggle"),
        "{message}"
    );
    // The remedies work.
    succeed("config --preset kaggle --set model.dim=8 --set model.interaction=cat");
    fs::write(&file, "[model]\nbottom = [13, 64, 32]\ndim = 32\n").unwrap();
    succeed(&format!("config --config {} --no-shuffle", file.display()));
}

#[test]
fn a_key_without_effect_on_this_data_is_refused_on_the_command_line_and_passed_over_in_a_file() {
    let folder = folder();
    let data = folder.path().join("good.tsv");
    for (flags, words) in [
        ("--test-fraction 0.2", "only with tsv or files"),
        ("--vocab hash", "only with text"),
        ("--schema one.toml", "only with files"),
        ("--set train.momentum=0.5", "only with an optimizer that is `momentum`"),
        ("--optimizer adagrad --set train.beta1=0.8", "only with an optimizer that is `adam` or `lamb`"),
        ("--set train.decay_factor=0.5", "only with train.decay_steps above 0 and train.decay = \"steps\""),
        ("--set train.eps=much", "or auto, is expected"),
        ("--optimizer-rows lamb", "use train.optimizer = \"lamb\""),
        ("--optimizer rowwise-adagrad", "use train.optimizer_rows = \"rowwise-adagrad\""),
        ("--set train.lr_scaling=sqrt", "set train.lr_batch"),
        ("--set model.loss_weights=[1,2]", "only with model.loss = \"wbce\""),
        ("--epochs 2 --steps 3", "only with train.steps = 0"),
        ("--set train.best_by=logloss", "only with train.patience above 0 or train.keep_best = true"),
    ] {
        let message =
            fail(&format!("train --preset tiny {flags}").replace("--preset tiny", "--set train.eval_every=0"));
        assert!(message.contains(words), "{flags}: {message}");
    }
    let message = fail(&format!("train --data {} --set model.rows=[5,6]", data.display()));
    assert!(message.contains("model.rows has no effect with data.source = \"tsv\""), "{message}");
    let file = folder.path().join("mine.toml");
    let tiny =
        "[model]\nbottom = [13, 16, 8]\ntop = [16, 1]\ndim = 8\nrows = [5, 6]\n[train]\nbatch = 64\nmomentum = 0.5\n";
    fs::write(&file, tiny).unwrap();
    let output = succeed(&format!("train --config {} --data {}", file.display(), data.display()));
    let message = String::from_utf8_lossy(&output.stderr);
    assert!(message.contains("mine.toml:5: model.rows gives way to the data"), "{message}");
}

#[test]
fn a_flag_that_a_command_does_not_have_may_be_a_key_of_the_configuration() {
    let told = |line: &str| {
        let output = run(line);
        assert_eq!(output.status.code(), Some(2), "{line}");
        String::from_utf8(output.stderr).unwrap()
    };
    for flag in ["train --weight-decay 0.1", "search --lr 1 --weight-decay=0.1"] {
        let message = told(flag);
        assert!(message.contains("unexpected argument '--weight-decay'"), "{message}");
        assert!(message.contains("tip: it is set by '--set train.weight_decay=VALUE'"), "{message}");
    }
    // The last one's command has `--set`, and does not use this key.
    for none in ["train --no-such-thing", "eval --weight-decay 0.1", "plan --weight-decay 0.1"] {
        assert!(!told(none).contains("it is set by"), "{none}");
    }
}

fn config_of(run: &Path) -> Config {
    toml::from_str(&fs::read_to_string(run.join("config.toml")).unwrap()).unwrap()
}

#[test]
fn a_run_says_what_was_trained() {
    let folder = folder();
    let out = folder.path().join("run");
    let data = folder.path().join("good.tsv");
    // The preset is for 13 dense features and other tables.
    let line = format!("train --data {} --steps 2 --out {}", data.display(), out.display());
    let message = String::from_utf8(succeed(&line).stderr).unwrap();
    let config = config_of(&out);
    assert_eq!(config.model.rows.len(), 26);
    let rows: u64 = config.model.rows.iter().sum();
    let told = message.lines().find(|line| line.starts_with("data:")).unwrap().replace(',', "");
    assert!(told.contains(&format!("26 tables with {rows} rows")), "{told}");
    // It is a configuration that may be trained again, as it is and continued.
    succeed(&format!("train --config {} --steps 2", out.join("config.toml").display()));
    succeed(&format!("train --resume {} --steps 3", out.display()));
    assert_eq!(config_of(&out).model.rows, config.model.rows);
}

#[test]
fn models_take_as_many_dense_features_as_the_data_has_and_need_none() {
    let folder = folder();
    let at = |name: &str| folder.path().join(name).display().to_string();
    // One dense feature, where the preset has 13.
    let one = format!("train --data {} --schema {} --steps 9 --batch 64", at("good.csv"), at("one.toml"));
    succeed(&format!("{one} --out {}", at("one")));
    assert_eq!(config_of(&folder.path().join("one")).model.bottom[0], 1);
    // What the user says is not changed, but refused.
    let message = fail(&format!("{one} --set model.bottom=[13,16,16]"));
    assert!(message.contains("the data has 1 dense feature but model.bottom starts with 13"), "{message}");
    succeed(&format!("{one} --set model.bottom=[1,16,16]"));
    succeed(&format!("{one} --set model.bottom=[0,16,16]"));
    // None at all.
    let schema = "label = \"clicked\"\n[[categorical]]\ncolumn = \"user\"\n[[categorical]]\ncolumn = \"item\"\n\
                  [[categorical]]\ncolumn = \"price\"\n";
    fs::write(at("none.toml"), schema).unwrap();
    let none = format!("train --data {} --schema {} --epochs 20 --batch 32 --lr 0.5", at("good.csv"), at("none.toml"));
    let quiet = "--eval-every 0";
    let first = json(&format!("{none} {quiet} --out {} --json", at("none")));
    assert!(first["final_loss"].as_f64().unwrap() < 0.5, "it learns: {first}");
    assert_eq!(config_of(&folder.path().join("none")).model.bottom, [0; 0]);
    for more in ["--ranks 2", "--precision bf16", "--set model.interaction=cat"] {
        let again = json(&format!("{none} {quiet} --json {more}"));
        assert!(again["final_loss"].as_f64().unwrap() < 0.6, "{more}: {again}");
    }
    let predicted = at("clicks.txt");
    succeed(&format!("eval --checkpoint {}", at("none")));
    succeed(&format!("predict --checkpoint {} --data {} --out {predicted}", at("none"), at("good.csv")));
    assert_eq!(fs::read_to_string(predicted).unwrap().lines().count(), 600);
    // Without a table there is nothing to train here.
    fs::write(at("dense.toml"), "label = \"clicked\"\n[[dense]]\ncolumn = \"price\"\n").unwrap();
    let message = fail(&format!("train --data {} --schema {} --steps 2", at("good.csv"), at("dense.toml")));
    assert!(message.contains("no categorical column"), "{message}");
    // A generator takes the number of dense features from the model.
    let message = fail(&format!("{} --set model.bottom=[0,32,8]", tiny_training()));
    assert!(message.contains("generated data take it from the model"), "{message}");
    succeed(&format!("{} --set model.bottom=[]", tiny_training()));
}

#[test]
fn json_counts_this_process_and_tells_where_the_run_stands() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("run");
    for ranks in [1, 2] {
        let line = format!("{} --ranks {ranks} --out {} --force --json", tiny_training(), out.display());
        let first = json(&line.replace("--force", if ranks == 1 { "" } else { "--force" }));
        let rest = json(&format!("train --resume {} --ranks {ranks} --epochs 2 --json", out.display()));
        for (summary, step) in [(&first, 40), (&rest, 80)] {
            let counts = ["step", "steps", "samples"].map(|key| summary[key].as_u64().unwrap());
            assert_eq!(counts, [step, 40, 2560], "{ranks} ranks: {summary}");
            let keys =
                ["seconds", "samples_per_s", "data_wait_seconds", "data_first_wait_seconds", "data_wait_ms_step"];
            let [seconds, rate, waited, first, ms] = keys.map(|key| summary[key].as_f64().unwrap());
            assert!((ms * 40.0 / 1e3 - (waited - first)).abs() < 1e-9, "of a step: {summary}");
            assert!((rate * seconds - 2560.0).abs() < 1e-6 * 2560.0, "{summary}");
            assert!(first <= waited && waited <= seconds, "of these seconds: {summary}");
        }
    }
    let done = run(&format!("train --resume {}", out.display()));
    let message = String::from_utf8_lossy(&done.stderr).into_owned();
    let told = "no step was left to train: the run stands at step 80, and no further one is asked for";
    assert!(message.contains(told), "{message}");
}

#[test]
fn no_rate_falls_before_it_has_risen() {
    let line = |more: &str| {
        format!("{} --steps 3 --set train.warmup_steps=5 --set train.decay_steps=3 {more}", tiny_training())
    };
    for start in [0, 4] {
        let message = fail(&line(&format!("--set train.decay_start={start}")));
        assert!(message.contains("train.decay_start: ") && message.contains("train.warmup_steps = 5"), "{message}");
    }
    let message = fail(&line("--set train.decay_start=5 --set train.warmup_steps_rows=6"));
    assert!(message.contains("train.decay_start_rows: ") && message.contains("set it to 6 or more"), "{message}");
    let folder = tempfile::tempdir().unwrap();
    let run = folder.path().display();
    succeed(&line(&format!("--set train.decay_start=5 --out {run}")));
    // Nor does it where a run goes on by other steps.
    let resume = |more: &str| format!("train --resume {run} --steps 6 {more}");
    let message = fail(&resume("--set train.warmup_steps=10"));
    assert!(message.contains("train.decay_start: ") && message.contains("set it to 10 or more"), "{message}");
    succeed(&resume("--set train.warmup_steps=10 --set train.decay_start=10"));
}

#[test]
fn decay_begins_at_the_end_of_the_warm_up_wherever_that_is_given() {
    let line = |more: &str| format!("{} --steps 3 --set train.warmup_steps=2 {more}", tiny_training());
    // Of rows alone.
    succeed(&line("--set train.decay_steps_rows=3"));
    succeed(&line("--set train.decay_steps=3 --set train.warmup_steps_rows=3"));
    // In a run that goes on, and in a file that octorec has printed.
    let folder = tempfile::tempdir().unwrap();
    let (run, printed) = (folder.path().join("run").display().to_string(), folder.path().join("printed.toml"));
    succeed(&line(&format!("--out {run}")));
    succeed(&format!("train --resume {run} --steps 6 --set train.decay_steps=4"));
    std::fs::write(&printed, succeed("config --set train.warmup_steps=5").stdout).unwrap();
    let told = succeed(&format!("config --config {} --set train.decay_steps=10", printed.display())).stdout;
    assert!(String::from_utf8(told).unwrap().contains("decay_start = \"auto\""));
}
