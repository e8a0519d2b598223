//! Flags that would have no effect, and wishes that nothing could fulfil: each is refused by its name, with what to do.

use std::fs;

use super::{json, run, succeed, tiny_training, tsv};

/// Whether the message of a command that fails has these words.
fn refused(line: &str, words: &[&str]) {
    let output = run(line);
    let message = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success(), "{line}: {message}");
    assert!(words.iter().all(|word| message.contains(word)), "{line}: {message}");
}

#[test]
fn flags_without_effect_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let data = tsv(&folder.path().join("good.tsv"), 300).display().to_string();
    let to = |name: &str| folder.path().join(name).display().to_string();
    let train = format!("train --data {data} --batch 64 --steps 2 --threads 1");
    refused(&format!("{train} --checkpoint-every 1"), &["--checkpoint-every", "--out DIR"]);
    refused(&format!("{train} --set train.checkpoint_every=1"), &["--set train.checkpoint_every=1", "--out DIR"]);
    refused(&format!("{train} --set train.checkpoint_minutes=5"), &["--set train.checkpoint_minutes=5", "--out DIR"]);
    let saving = format!("{train} --out {} --set train.checkpoint_minutes", to("run"));
    refused(
        &format!("{saving}=5 --checkpoint-every 9"),
        &["--set", "has an effect only with train.checkpoint_every = 0"],
    );
    refused(&format!("{saving}=-1"), &["train.checkpoint_minutes = -1 must lie in [0, 10^6]"]);
    std::fs::copy(&data, to("copy.tsv")).unwrap();
    let both = format!("{train} --test-data {} --test-fraction 0.4", to("copy.tsv"));
    refused(&both, &["--test-fraction", "--test-data are for tests"]);
    let day = "--split last-day-dlrm --threads 1";
    succeed(&format!("preprocess criteo-kaggle --in {data} --out {} {day}", to("split")));
    let split = format!("train --data {} --batch 64 --steps 2 --threads 1", to("split"));
    refused(&format!("{split} --test-fraction 0.4"), &["--test-fraction", "the data say which samples are for tests"]);
    succeed(&format!("convert {} {} --format hugectr", to("split"), to("raw")));
    let tests = format!("train --data {}/test_data.bin --batch 64 --threads 1", to("raw"));
    refused(&tests, &["--data", "has samples for tests only"]);
    succeed(&format!("{} --test-data {}/test_data.bin", split.replace("split", "raw"), to("raw")));
    refused(&format!("{train} --keep-best"), &["--keep-best", "--out DIR"]);
    refused(&format!("{train} --set train.keep_best=true"), &["--set train.keep_best=true", "--out DIR"]);
    let kept = format!("{train} --test-fraction 0 --keep-best --out {}", to("kept"));
    refused(&kept, &["--keep-best", "no test samples", "--test-data"]);
    let waits = format!("{} --patience 3", tiny_training());
    refused(&waits, &["--patience: ", "needs evaluations on the way", "--eval-every STEPS", "train.evals_per_epoch=N"]);
    refused(&format!("{waits} --eval-every 40"), &["--patience: ", "the run has 40 steps", "--eval-every N"]);
    succeed(&format!("{waits} --eval-every 39"));
    let keeps = format!("{} --keep-best --out {}", tiny_training(), to("keeps"));
    refused(&keeps, &["--keep-best: ", "the run has 40 steps", "--eval-every N"]);
    succeed(&format!("{keeps} --eval-every 39"));
    succeed(&format!("{waits} --set train.evals_per_epoch=2"));
    for flag in ["--target-auc 0.6", "--eval-every 1", "--patience 1 --eval-every 1"] {
        let wish = flag.split(' ').next().unwrap();
        refused(&format!("{train} --test-fraction 0 {flag}"), &[wish, "no test samples", "--test-data"]);
        let generated = format!("{} --set data.test_samples=0 {flag}", tiny_training());
        refused(&generated, &[wish, "no test samples", "data.test_samples"]);
    }
    refused("config --list --preset kaggle", &["--list", "--preset"]);
    for flag in ["--lr 3", "--data none.tsv", "--no-shuffle"] {
        refused(&format!("config --list {flag}"), &[flag.split(' ').next().unwrap(), "has no effect on the list"]);
    }
    for flag in ["--threads 9999", "--ranks 4096", "--smt", "--comm-cores 0", "--rank-per l3"] {
        refused(&format!("topo --export toml {flag}"), &["--export toml", "is all that is printed"]);
    }
    refused(&format!("inspect {data} --max-line 0"), &["--max-line", "from 1B to 1GiB"]);
    refused(&format!("train --data {data} --max-line 999TiB"), &["--max-line", "from 1B to 1GiB"]);
    refused("bench step --preset kaggle --ranks 1 --alone", &["--alone", "--ranks"]);
    let simulate = "simulate --topology two-socket --preset kaggle --batch-per-rank 64";
    refused(&format!("{simulate} --set train.batch=999"), &["--set train.batch=999", "--batch-per-rank"]);
    let plan = to("plan.toml");
    succeed(&format!("plan --topology two-socket --preset kaggle --out {plan}"));
    for flag in ["--scheme row", "--replicate-below 0"] {
        let line = format!("plan --topology two-socket --preset kaggle --plan {plan} {flag}");
        refused(&line, &[flag.split(' ').next().unwrap(), "--plan"]);
    }
    for scheme in ["table", "replicated"] {
        let line = format!("plan --topology two-socket --preset kaggle --scheme {scheme} --replicate-below 5");
        refused(&line, &["--replicate-below", "--scheme", "leave one of the two away"]);
    }
    succeed("plan --topology two-socket --preset kaggle --scheme auto --replicate-below 5");
}

#[test]
fn flags_of_data_sets_are_refused_where_these_have_no_place_for_them() {
    let folder = tempfile::tempdir().unwrap();
    let to = |name: &str| folder.path().join(name).display().to_string();
    let generate = format!("data generate {} --set data.train_samples=100 --set data.test_samples=50", to("g"));
    refused(&format!("{generate} --format mlperf --codec zstd"), &["--codec", "mlperf has no blocks"]);
    refused(&format!("{generate} --trace {}", to("j.log")), &["--trace", "--access lru"]);
    refused(&format!("{generate} --text --set data.lookups=5"), &["--text", "one value a column"]);
    refused(&format!("{generate} --text --preset rmc4"), &["--text", "13 integers and 26 categories"]);
    refused(&format!("{generate} --preset rmc1 --set data.drift=0.1"), &["data.drift", "another --preset"]);
    // A preset of random look-ups is drawn as a click log.
    succeed(&format!("{generate} --preset small --rows-cap 50"));
    succeed(&format!("{generate} --text --rows-cap 50"));
    let (text, blocks) = (to("g/day_0"), to("blocks"));
    let preprocess = format!("preprocess criteo-kaggle --in {text} --out {blocks}");
    for (flag, whose) in [
        ("--schema x.toml", "preprocess csv"),
        ("--test-fraction 0.3", "--split fraction"),
        ("--validation-fraction 0.3", "--split fraction"),
        ("--seed 7", "--shuffle"),
        ("--ts-length 7", "preprocess tbsm"),
    ] {
        refused(&format!("{preprocess} {flag}"), &[flag.split(' ').next().unwrap(), whose]);
    }
    succeed(&format!("{preprocess} --split fraction --test-fraction 0.3 --shuffle total --seed 7"));
    refused(&format!("inspect {blocks} --max-line 5MiB"), &["--max-line", "no"]);
    // Blocks say what they are, and a name of a format what a described file is not.
    fs::write(to("s.toml"), "label = \"label\"\n[[categorical]]\ncolumn = \"user\"\n").unwrap();
    fs::write(to("log.csv"), "label,user\n1,a\n0,b\n").unwrap();
    for command in ["data verify", "inspect", "data profile", "convert"] {
        let copy = if command == "convert" { to("copy") } else { String::new() };
        let line = format!("{command} {blocks} {copy} --schema {}", to("s.toml"));
        refused(&line, &["is of format octorec, which needs no schema"]);
    }
    for format in ["csv", "parquet"] {
        let line = format!("data verify {blocks} --schema {} --format {format}", to("s.toml"));
        refused(&line, &["is of format octorec, which needs no schema"]);
    }
    let verify = format!("data verify {} --schema {}", to("log.csv"), to("s.toml"));
    refused(&format!("{verify} --format parquet"), &["log.csv: is no Parquet"]);
    succeed(&format!("{verify} --format csv"));
    refused(&format!("convert {text} {}", to("c")), &["octorec preprocess criteo-kaggle"]);
}

#[test]
fn trained_models_refuse_flags_of_other_data_and_allow_long_lines() {
    let folder = tempfile::tempdir().unwrap();
    let run = folder.path().join("run").display().to_string();
    let data = tsv(&folder.path().join("good.tsv"), 300);
    succeed(&format!("train --data {} --batch 64 --steps 2 --out {run}", data.display()));
    let mut text = fs::read_to_string(&data).unwrap();
    let long = text.lines().next().unwrap().to_owned() + &"f".repeat(2 << 10);
    text.push_str(&long);
    let other = folder.path().join("long.tsv");
    fs::write(&other, text).unwrap();
    for command in ["eval", "predict"] {
        let line = format!("{command} --checkpoint {run} --data {}", other.display());
        refused(&format!("{line} --max-line 1KiB"), &["longer than 1.0 KiB", "--max-line"]);
        refused(&format!("{line} --ranks 2 --threads 1 --comm-cores 1"), &["--comm-cores", "predictions"]);
    }
    let generated = folder.path().join("generated").display().to_string();
    succeed(&format!("{} --steps 2 --out {generated}", tiny_training().replace("--epochs 1", "")));
    refused(&format!("eval --checkpoint {generated} --on-bad-row skip"), &["--on-bad-row", "only on text"]);
    refused(&format!("eval --checkpoint {generated} --max-line 1MiB"), &["--max-line", "only on text"]);
}

#[test]
fn a_search_refuses_keys_without_effect_and_fails_where_all_trials_do() {
    let folder = tempfile::tempdir().unwrap();
    let space = folder.path().join("space.toml");
    let search = |space_text: &str, flags: &str| {
        fs::write(&space, space_text).unwrap();
        let out = folder.path().join(format!("s{}", space_text.len()));
        let tiny = tiny_training().replacen("train ", "", 1);
        format!("search --space {} --out {} --trials 2 {tiny} {flags}", space.display(), out.display())
    };
    refused(&search("[data]\nzipf = { from = 0.1, to = 1.5 }\n", ""), &["data.zipf", "random"]);
    let alone = "[train]\nwarmup_steps = { from = 5, to = 9 }\n";
    refused(&search(alone, "--set data.test_samples=0"), &["data.test_samples = 0", "compared by test samples"]);
    // A key that only goes with another's value stands beside it.
    let both = "[train]\nbeta1 = { from = 0.8, to = 0.9 }\noptimizer = { choices = [\"sgd\", \"adam\"] }\n";
    let found = json(&format!("{} --json", search(both, "")));
    assert_eq!(found["trials"].as_array().unwrap().len(), 2, "{found}");
}

#[test]
fn the_manual_is_at_hand() {
    let list = String::from_utf8(succeed("guide").stdout).unwrap();
    let pages: Vec<&str> = list.lines().filter_map(|line| line.split_whitespace().nth(2)).collect();
    assert!(pages.len() >= 9, "{list}");
    for page in pages {
        let text = String::from_utf8(succeed(&format!("guide {page}")).stdout).unwrap();
        assert!(text.lines().count() > 20, "{page}: {text}");
        // Pages that it names are there.
        for named in text.split("octorec guide ").skip(1) {
            let name: String = named.chars().take_while(char::is_ascii_lowercase).collect();
            assert!(list.contains(&format!("guide {name} ")), "{page} names {name}");
        }
    }
}

#[test]
fn names_are_given_once_and_of_other_flags_the_last_counts() {
    for line in [
        "train --data a.tsv --data b.tsv",
        "plan --config a.toml --config b.toml",
        "train --out a --out b",
        "train --resume a --resume b",
        "train --init a --init b",
        "config --preset demo --preset kaggle",
        "topo --topology ring-4 --topology full-4",
        "bench gemm --tuned a.toml --tuned b.toml",
        "convert a.csv b --schema c.toml --schema d.toml",
    ] {
        let output = run(line);
        let message = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(2), "{line}: {message}");
        assert!(message.contains("cannot be used multiple times"), "{line}: {message}");
    }
    let config = |line: &str| String::from_utf8(succeed(line).stdout).unwrap();
    let line = "config --batch 3 --set train.lr=0.5 --set data.seed=7 --batch 64 --no-shuffle --no-shuffle";
    let found = config(line);
    assert!(["batch = 64\n", "lr = 0.5\n", "seed = 7\n"].iter().all(|key| found.contains(key)), "{found}");
    // So it is in every command.
    succeed("bench team --threads 2 --regions 5 --threads 1 --json --json");
}

#[test]
fn presets_are_listed_with_a_whole_sentence_each() {
    let list = String::from_utf8(succeed("config --list").stdout).unwrap();
    let of = |name: &str| list.lines().find(|line| line.trim_start().starts_with(&format!("{name} "))).unwrap();
    assert!(of("demo").ends_with("tables of any size in one pass. (default)"), "{list}");
    assert!(of("wide-deep").ends_with("FTRL with L1 for the wide part and Adagrad for the rest."), "{list}");
    assert!(of("terabyte").ends_with("bench/dlrm_s_criteo_terabyte.sh."), "{list}");
    assert!(list.lines().skip(1).all(|line| line.trim_end_matches(" (default)").ends_with('.')), "{list}");
}

#[test]
fn what_one_rank_or_this_machine_makes_of_a_flag_is_told() {
    let told =
        |flags: &str| String::from_utf8(succeed(&format!("{} --steps 1 {flags}", tiny_training())).stderr).unwrap();
    let idle = "one rank waits for nobody: --timeout changes nothing";
    assert!(told("--ranks 1 --timeout 5").contains(idle));
    assert!(!told("--ranks 1").contains("--timeout"));
    assert!(!told("--ranks 2 --threads 1 --timeout 50").contains(idle));
    let plan = |flags: &str| {
        String::from_utf8(succeed(&format!("plan --topology two-socket --preset demo {flags}")).stderr).unwrap()
    };
    let told = plan("--smt --threads 4 --rank-per socket");
    assert!(
        ["--smt", "--rank-per"].iter().all(|flag| told.contains(&format!("note: {flag} changes nothing"))),
        "{told}"
    );
    assert!(!plan("--smt").contains("changes nothing"));
    let simulate = |flags: &str| String::from_utf8(succeed(&format!("simulate --preset demo {flags}")).stderr).unwrap();
    // A socket is a node of one machine, and not of the other.
    let idle = "--rank-per changes nothing here: ranks stand where those of --rank-per node do";
    let told = simulate("--topology two-socket --ranks 1,2 --rank-per socket");
    assert_eq!(told.matches(idle).count(), 1, "{told}");
    assert!(told.contains(&format!("note: {idle}")), "{told}");
    for flags in ["--topology two-socket --ranks 1,2", "--topology epyc-nps4-2s --rank-per socket"] {
        let told = simulate(flags);
        assert!(!told.contains("changes nothing"), "{told}");
    }
}
