//! `train --ranks`: one run on several ranks, its checkpoint one file that any other number of ranks continues.

use std::fs;
use std::path::Path;

use octorec::model::Stage;

use super::{criteo_sample, fail, json, run, succeed, tiny_training};

fn losses(path: &Path) -> Vec<f64> {
    fs::read_to_string(path).unwrap().lines().map(|line| line.parse().unwrap()).collect()
}

fn follow(alone: &[f64], others: &[f64], bound: f64, what: &str) {
    assert_eq!(alone.len(), others.len(), "{what}");
    for (step, (a, b)) in alone.iter().zip(others).enumerate() {
        assert!((a - b).abs() <= bound * a.abs(), "{what}: step {step}: {b}, not {a}");
    }
}

#[test]
fn ranks_follow_the_losses_of_one_and_continue_each_others_runs() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    let trace = |name: &str, arguments: &str| {
        let summary = json(&format!("{arguments} --trace-loss {} --json", path(name).display()));
        (losses(&path(name)), summary)
    };
    let train = tiny_training();
    let (alone, summary) = trace("alone", &train);
    for ranks in [2, 3, 5] {
        let out = path(&format!("run{ranks}"));
        let (first, _) =
            trace("first", &format!("{train} --ranks {ranks} --threads 1 --steps 20 --out {}", out.display()));
        follow(&alone[..20], &first, 1e-5, &format!("{ranks} ranks"));
        let other = 6 - ranks;
        let resume = format!("train --resume {} --steps 40 --ranks {other} --threads 1", out.display());
        let (second, ended) = trace("second", &resume);
        follow(&alone[20..], &second, 1e-4, &format!("{other} ranks after {ranks}"));
        let apart = ended["auc"].as_f64().unwrap() - summary["auc"].as_f64().unwrap();
        assert!(apart.abs() < 1e-3, "{ended} and {summary}");
        // What several ranks saved, one evaluates to the same scores.
        let scores = json(&format!("eval --checkpoint {} --json", out.display()));
        assert!((scores["auc"].as_f64().unwrap() - ended["auc"].as_f64().unwrap()).abs() < 1e-6);
    }
}

#[test]
fn tables_are_divided_as_an_edited_plan_says() {
    let folder = tempfile::tempdir().unwrap();
    let plan = folder.path().join("plan.toml");
    let model = "--set model.bottom=[13,32,8] --set model.top=[16,1] --set model.dim=8 --batch 64";
    succeed(&format!("plan {model} --ranks 2 --scheme row --out {}", plan.display()));
    let train = format!("{} --ranks 2 --threads 1 --plan {}", tiny_training(), plan.display());
    assert!(json(&format!("{train} --json"))["auc"].as_f64().unwrap() > 0.5);
    let message = fail(&format!("{} --ranks 3 --threads 1 --plan {}", tiny_training(), plan.display()));
    assert!(message.contains("plan.toml") && message.contains("ranks"), "{message}");
    // Of rows of which a number is kept no plan divides columns.
    let message = fail(&format!("plan {model} --ranks 2 --scheme column --optimizer-rows rowwise-adagrad"));
    assert!(message.contains("rowwise-adagrad"), "{message}");
    let text = std::fs::read_to_string(&plan).unwrap();
    std::fs::write(&plan, format!("collective = \"rign\"\n{text}")).unwrap();
    let message = fail(&train);
    assert!(message.contains("plan.toml:1: collective") && message.contains("is ring meant?"), "{message}");
}

#[test]
fn flags_of_ranks_that_would_have_no_effect_are_refused() {
    let refused = |flags: &str, named: &str| {
        let message = fail(&format!("{} {flags}", tiny_training()));
        assert!(message.contains(named), "{flags}: {message}");
    };
    refused("--ranks 1 --comm-cores 1", "--comm-cores");
    refused("--ranks 2 --comm-cores 1 --determinism ranks", "--determinism ranks");
    refused("--topology twisted-hypercube-8", "describes another machine");
    refused("--topology fat-tree-64", "fat-tree-64 describes 32 hosts, and this process runs on one");
    let message = fail("bench step --preset kaggle --rows-cap 100 --batch 64 --minibatches 1 --alone --threads 1");
    assert!(message.contains("--alone"), "{message}");
    let message = fail("bench allreduce --ranks 2 --bytes 65536 --algorithm pipelined-trees");
    assert!(message.contains("nothing to gain") && !message.contains("mpirun"), "{message}");
    // Its minibatches are drawn before the clock starts: there is nothing to load, and no such flag.
    let help = String::from_utf8(succeed("bench step --help").stdout).unwrap();
    assert!(help.contains("--overlap") && !help.contains("--loader"), "{help}");
    let help = String::from_utf8(succeed("train --help").stdout).unwrap();
    assert!(help.contains("--overlap") && help.contains("--loader"), "{help}");
    let seconds = "a number of seconds from 0.001 to 1,000,000,000 is expected";
    for (wrong, words) in [
        ("--ranks 0", ""),
        ("--ranks many", ""),
        ("--timeout 0", seconds),
        ("--timeout soon", seconds),
        ("--timeout 1e10", seconds),
    ] {
        let output = run(&format!("{} {wrong}", tiny_training()));
        let message = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.code() == Some(2) && message.contains(words), "{wrong}: {message}");
    }
}

#[test]
fn rows_travel_in_what_layers_multiply_unless_ranks_shall_change_no_bit_or_somebody_says_so() {
    let (folder, wide) = (tempfile::tempdir().unwrap(), "--set model.bottom=[13,32,64] --set model.dim=64");
    let train = format!("{} --steps 2 --threads 1 {wide}", tiny_training());
    let run = folder.path().join("run");
    // One plan and one schedule for all: bytes are priced, so that who holds what may follow from them.
    succeed(&format!("{train} --ranks 2 --out {}", run.display()));
    let sent = |flags: &str| {
        let results = succeed(&format!("{train} --json --ranks 2 --plan {}/plan.toml {flags}", run.display())).stdout;
        let results: serde_json::Value = serde_json::from_slice(&results).unwrap();
        ["pooled_rows", "pooled_gradients", "dense_gradients"].map(|kind| {
            let rows = results["traffic"][kind].as_array().unwrap().iter().flat_map(|row| row.as_array().unwrap());
            rows.map(|bytes| bytes.as_u64().unwrap()).sum::<u64>()
        })
    };
    let whole = sent("--precision f32");
    assert!(whole.iter().all(|bytes| *bytes > 0), "{whole:?}");
    let [rows, gradients, _] = whole;
    let halves = |all: u64, found: u64| (0.45..0.6).contains(&(found as f64 / all as f64));
    for precision in ["bf16", "bf16-lsb8"] {
        let found = sent(&format!("--precision {precision}"));
        assert!(halves(rows, found[0]) && halves(gradients, found[1]), "{precision}: {found:?} of {whole:?}");
        let plain = sent(&format!("--precision {precision} --wire f32"));
        assert_eq!((found[2], &plain[..2]), (plain[2], &whole[..2]), "{precision}");
    }
    let told = |flags: &str| {
        let output = succeed(&format!("{train} --ranks 2 {flags}")).stderr;
        String::from_utf8(output).unwrap().contains("rows and their gradients: bf16 between ranks")
    };
    assert!(told("--precision bf16") && !told("--precision bf16 --wire f32") && !told("--wire bf16"));
    let found = sent("--precision bf16 --wire bf16");
    let plain = sent("--precision bf16");
    assert!(found[2] < plain[2] && found[..2] == plain[..2], "{found:?} of {plain:?}");
    assert_eq!(sent("--wire bf16")[..2], plain[..2]);
    let [rows, gradients, _] = sent("--precision bf16 --determinism ranks");
    assert_eq!([rows, gradients], whole[..2]);
    // Plans are priced with what will travel.
    for (flags, rows, dense) in [
        ("", 4, "f32"),
        ("--precision bf16", 2, "f32"),
        ("--wire bf16", 2, "bf16"),
        ("--precision bf16 --wire f32", 4, "f32"),
    ] {
        let plan = succeed(&format!("plan --preset demo --ranks 2 --json {flags}")).stdout;
        let workload = &serde_json::from_slice::<serde_json::Value>(&plan).unwrap()["workload"];
        assert_eq!((&workload["exchange_bytes"], &workload["payload"]), (&rows.into(), &dense.into()), "{flags}");
    }
}

#[test]
fn dense_gradients_go_as_was_asked_or_as_is_predicted_to_be_quickest_and_the_run_says_why() {
    let train = format!("{} --steps 2 --threads 1", tiny_training());
    let told = |flags: &str| {
        let output = succeed(&format!("{train} --json {flags}"));
        let said = String::from_utf8(output.stderr).unwrap();
        let said = said.lines().find(|line| line.starts_with("dense gradients:")).map(str::to_owned);
        (serde_json::from_slice::<serde_json::Value>(&output.stdout).unwrap(), said)
    };
    // Who sends to the rank after the next one: nobody around a ring.
    for (name, skips) in [("direct", true), ("ring", false), ("two-ring", false), ("halving-doubling", true)] {
        let (results, said) = told(&format!("--ranks 4 --collective {name}"));
        let sent = results["traffic"]["dense_gradients"][0][2].as_u64().unwrap();
        assert_eq!(sent > 0, skips, "{name}: {results}");
        let back = results["traffic"]["dense_gradients"][1][0].as_u64().unwrap();
        assert!(name != "two-ring" || back > 0, "{results}");
        assert_eq!(results["collective"]["schedule"], name);
        assert!(said.is_some_and(|said| said.contains(&format!("{name}, as asked, "))), "{name}");
    }
    let (results, said) = told("--ranks 3");
    let (chosen, said) = (results["collective"]["schedule"].as_str().unwrap(), said.unwrap());
    assert!(said.starts_with(&format!("dense gradients: {chosen}, ")), "{said}");
    assert!(said.contains(" ms a step predicted (") && said.contains("; figures "), "{said}");
    let candidates = results["collective"]["candidates"].as_array().unwrap();
    let ms: Vec<f64> = candidates.iter().map(|candidate| candidate["predicted_ms"].as_f64().unwrap()).collect();
    assert!(ms.len() > 2 && ms.iter().all(|other| ms[0] <= other * 1.01), "{results}");
    // What makes no difference is neither chosen nor told.
    for flags in ["--ranks 1", "--ranks 3 --determinism ranks"] {
        let (results, said) = told(flags);
        assert!(results["collective"].is_null() && said.is_none(), "{flags}: {results}");
    }
    // Unless somebody asked for it.
    let said = String::from_utf8(succeed(&format!("{train} --ranks 1 --collective ring --wire bf16")).stderr).unwrap();
    for told in ["train.collective = \"ring\" changes nothing", "train.wire = \"bf16\" changes nothing"] {
        assert!(said.contains(&format!("one rank exchanges nothing: {told}")), "{said}");
    }
    let refused = |flags: &str, words: &[&str]| {
        let message = fail(&format!("{train} {flags}"));
        assert!(words.iter().all(|word| message.contains(word)), "{flags}: {message}");
    };
    refused("--ranks 3 --collective hierarchical", &["train.collective", "several machines", "--collective auto"]);
    refused("--collective ring --determinism ranks", &["--collective", "exchange of their own", "--determinism run"]);
    refused("--collective star", &["--collective", "two-ring"]);
}

#[test]
fn a_run_goes_on_with_the_schedule_that_it_began_with() {
    let folder = tempfile::tempdir().unwrap();
    let (out, plan) = (folder.path().join("run"), folder.path().join("run/plan.toml"));
    let said = |line: &str| {
        let said = String::from_utf8(succeed(line).stderr).unwrap();
        said.lines().find(|line| line.starts_with("dense gradients:")).unwrap().to_owned()
    };
    let first = said(&format!("{} --steps 2 --ranks 3 --threads 1 --out {}", tiny_training(), out.display()));
    let text = fs::read_to_string(&plan).unwrap();
    let line = text.lines().find(|line| line.starts_with("collective = ")).unwrap();
    let chosen = line.split('"').nth(1).unwrap();
    assert!(first.starts_with(&format!("dense gradients: {chosen}, ")), "{first}");
    // Whatever another choice would be predicted to give.
    fs::write(&plan, text.replace(line, "collective = \"ring\"")).unwrap();
    let resume = format!("train --resume {} --threads 1", out.display());
    let again = said(&format!("{resume} --steps 4 --ranks 3"));
    assert!(again.starts_with("dense gradients: ring, as the plan says, "), "{again}");
    let named = said(&format!("{resume} --steps 6 --ranks 3 --collective two-ring"));
    assert!(named.starts_with("dense gradients: two-ring, as asked, "), "{named}");
    let others = said(&format!("{resume} --steps 8 --ranks 2 --collective auto"));
    assert!(others.starts_with("dense gradients: direct, 0."), "{others}");
}

#[test]
fn this_machines_own_description_places_ranks_as_the_machine_does() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("host.toml");
    fs::write(&file, succeed("topo --export toml").stdout).unwrap();
    let placed = |flags: &str| {
        let output = succeed(&format!("{} --steps 1 --ranks 2 --threads 1 {flags}", tiny_training()));
        let told = String::from_utf8(output.stderr).unwrap();
        told.lines().filter(|line| line.starts_with("placement: rank")).map(str::to_owned).collect::<Vec<_>>()
    };
    let (host, described) = (placed(""), placed(&format!("--topology {}", file.display())));
    assert!(host.len() == 2 && host == described, "{host:?}, {described:?}");
}

#[test]
fn several_ranks_evaluate_predict_and_trace_as_one_does() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).display().to_string();
    succeed(&format!("{} --out {}", tiny_training(), path("run")));
    let eval = |flags: &str| json(&format!("eval --checkpoint {} --json {flags}", path("run")));
    assert_eq!(eval("--ranks 1"), eval("--ranks 3 --threads 1"));
    let data = "--set data.train_samples=200 --set data.test_samples=50";
    succeed(&format!("data generate {} --format octorec {data}", path("rows")));
    let predict = |flags: &str, to: &str| {
        succeed(&format!("predict --checkpoint {} --data {} --out {to} {flags}", path("run"), path("rows")));
        fs::read_to_string(to).unwrap()
    };
    let alone = predict("--ranks 1", &path("one"));
    assert!(alone.lines().count() >= 200);
    assert_eq!(alone, predict("--ranks 2 --threads 1", &path("two")));

    let trace = path("trace.json");
    let line = format!("{} --steps 3 --ranks 2 --threads 1 --trace {trace}", tiny_training());
    succeed(&line);
    let trace: serde_json::Value = serde_json::from_slice(&fs::read(trace).unwrap()).unwrap();
    let events = trace["traceEvents"].as_array().unwrap();
    for rank in 0..2 {
        let of = |name: &str| events.iter().filter(|event| event["pid"] == rank && event["name"] == name).count();
        assert_eq!((of("step"), of("top MLP"), of("process_name")), (3, 3, 1), "rank {rank}");
        assert!(of("wait for data") >= 3 && of("pack ids") == 3, "rank {rank}");
    }
}

#[test]
fn whoever_reads_the_data_the_run_is_the_same() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).display().to_string();
    let generate = "--rows-cap 500 --set data.train_samples=5000 --set data.test_samples=500";
    succeed(&format!("data generate {} --format mlperf {generate}", path("data")));
    // 5000 samples are no multiple of 96, two of the ranks get a sample more, and windows end within minibatches.
    let train = "--set model.bottom=[13,16,8] --set model.top=[16,1] --set model.dim=8 --batch 96 --epochs 2 \
                 --set data.shuffle_window=1000";
    for determinism in ["run", "ranks"] {
        let run = |more: &str| {
            let name = path("trace");
            let ranks = format!("--ranks 3 --threads 1 --determinism {determinism} {more}");
            let summary = json(&format!("train --data {} {train} {ranks} --trace-loss {name} --json", path("data")));
            let read: Vec<u64> =
                summary["data_bytes_read"].as_array().unwrap().iter().map(|bytes| bytes.as_u64().unwrap()).collect();
            assert_eq!(summary["samples"], 10_000);
            assert!(summary["data_wait_seconds"].as_f64().is_some());
            (losses(Path::new(&name)), read)
        };
        let (naive, everything) = run("--loader naive");
        let (broadcast, once) = run("--loader broadcast");
        let (local, slices) = run("");
        assert_eq!(naive.len(), 2 * 53);
        assert_eq!((&broadcast, &local), (&naive, &naive), "{determinism}");
        // Two epochs of rows of 160 bytes, and what is read ahead of the end: nothing.
        assert_eq!(everything, [1_600_000; 3], "{determinism}");
        assert_eq!(once, [1_600_000, 0, 0], "{determinism}");
        assert_eq!(slices.iter().sum::<u64>(), 1_600_000, "{determinism}");
        assert!(slices.iter().all(|bytes| (350_000..700_000).contains(bytes)), "{determinism}: {slices:?}");
    }
}

#[test]
fn what_was_trained_before_data_turned_out_bad_is_saved_and_continued() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    let generate = "--set model.rows=[2000,50,3] --set data.train_samples=6000 --set data.test_samples=500";
    succeed(&format!("data generate {} --format octorec --block-rows 1000 {generate}", path("data").display()));
    let blocks = fs::read_dir(path("data")).unwrap().map(|entry| entry.unwrap().path());
    let train = blocks.max_by_key(|file| fs::metadata(file).unwrap().len()).unwrap();
    let good = fs::read(&train).unwrap();
    let mut bad = good.clone();
    // In the last of six blocks.
    let place = good.len() - good.len() / 12;
    bad[place] ^= 0x55;
    let model = "--set model.bottom=[13,16,8] --set model.top=[16,1] --set model.dim=8 --batch 100 --no-shuffle";
    for ranks in [1, 3] {
        let out = path(&format!("run{ranks}"));
        fs::write(&train, &bad).unwrap();
        let data = path("data");
        let start = format!("train --data {} {model} --epochs 1 --ranks {ranks} --threads 1", data.display());
        let message = fail(&format!("{start} --out {}", out.display()));
        assert!(message.contains("block") && message.contains("saved after step 50"), "{ranks} ranks: {message}");
        fs::write(&train, &good).unwrap();
        let summary = json(&format!("train --resume {} --ranks {ranks} --threads 1 --json", out.display()));
        assert_eq!((summary["step"].as_u64(), summary["samples"].as_u64()), (Some(60), Some(1000)), "{summary}");
    }
}

#[test]
fn steps_of_ranks_are_told_apart_by_what_they_were_for() {
    let output = succeed(&format!("{} --ranks 2 --threads 1 --profile --json", tiny_training()));
    let results: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let stages = results["profile"]["stages"].as_array().unwrap();
    for row in stages {
        let ms = |key: &str| row[key].as_f64().unwrap();
        assert!(ms("ms_min") <= ms("ms") && ms("ms") <= ms("ms_max"), "{row}");
        // Nobody may have had to wait.
        let waits = row["stage"].as_str().unwrap().starts_with("wait");
        assert!(waits || ms("ms_max") > 0.0, "{row}");
    }
    let table = String::from_utf8_lossy(&output.stderr).into_owned();
    for name in ["top MLP", "reduce dense gradients", "pack ids", "wait for pooled rows", "update rows"] {
        assert!(stages.iter().any(|row| row["stage"] == name), "{name}: {results}");
        assert!(table.contains(name), "{name}: {table}");
    }
    assert!(
        table.contains("hidden behind other stages") && results["profile"]["hidden_dense_ms"].is_number(),
        "{table}"
    );
}

#[test]
fn overlap_is_benched_against_blocking() {
    let tiny = "--set model.rows=[500,70,3] --set model.bottom=[13,32,16] --set model.top=[16,1] --batch 96";
    // Tables of a preset are small here, whatever it says of them.
    succeed("bench overlap --preset mlperf --batch 16 --ranks 2 --repeat 1 --json");
    let output = succeed(&format!("bench overlap {tiny} --ranks 2 --repeat 3 --json"));
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let modes = report["rows"].as_array().unwrap();
    assert_eq!(modes.len(), 3);
    assert!(report["bytes"].as_f64().unwrap() > 0.0);
    for row in modes {
        let figure = |key: &str| row[key].as_f64().unwrap();
        assert!(figure("step_ms") > 0.0 && figure("gemm_ms") > 0.0, "{row}");
        let (all, exposed) = (figure("communication_ms"), figure("exposed_ms"));
        assert!(exposed > 0.0 && exposed <= all, "{row}");
        // Stages have the names that they have in `bench step`.
        assert_eq!(row["breakdowns"]["stages"][0], Stage::ALL[0].name(), "{row}");
        // Compute threads have nothing to hide behind.
        assert!(row["mode"] != "blocking, compute threads" || exposed == all, "{row}");
        assert_eq!(figure("gb_s"), report["bytes"].as_f64().unwrap() / all / 1e6, "{row}");
    }
    // Of halves, no processor has transactions, of which is told.
    let noted = "--set train.update=rtm --optimizer-rows sgd --precision bf16 --determinism none --comm-cores 0";
    let output = succeed(&format!("bench step {tiny} --ranks 2 --alone --limit-mib 16 --repeat 3 {noted} --json"));
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert!(report["alone_ms"]["before"]["median"].as_f64().unwrap() > 0.0, "{report}");
    let told = String::from_utf8(output.stderr).unwrap();
    assert_eq!(told.matches("train.update = \"rtm\" works as").count(), 1, "{told}");
    let mut warnings: Vec<_> = told.lines().filter(|line| line.starts_with("warning: ")).collect();
    let count = warnings.len();
    warnings.sort_unstable();
    warnings.dedup();
    assert_eq!(warnings.len(), count, "{told}");
    // One rank has the same cores before as after.
    let alone: Vec<_> = told.lines().filter(|line| line.starts_with("placement: alone, ")).collect();
    assert!(alone.len() == 2 && alone[0] == alone[1], "{told}");
}

#[test]
fn real_clicks_train_alike_on_any_number_of_ranks() {
    let Some(file) = criteo_sample() else { return };
    let folder = tempfile::tempdir().unwrap();
    let trace = folder.path().join("trace");
    // Sums in another order differ in their last bits. Sooner or later that moves a unit of an MLP over its ReLU's
    // edge, and from there on the runs part; with these rows none does within the steps that are compared.
    for (precision, bound) in [("f32", 1e-6), ("bf16", 1e-3)] {
        let run = |ranks: usize| {
            succeed(&format!(
                "train --preset kaggle --data {} --batch 128 --steps 20 --rows-cap 4000 --precision {precision} \
                 --set train.eval_every=0 --test-fraction 0 --ranks {ranks} --threads 1 --trace-loss {}",
                file.display(),
                trace.display()
            ));
            losses(&trace)
        };
        let alone = run(1);
        for ranks in [2, 3, 4, 5, 8] {
            follow(&alone, &run(ranks), bound, &format!("{ranks} ranks in {precision}"));
        }
    }
}
