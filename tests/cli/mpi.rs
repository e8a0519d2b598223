//! One job on several machines: processes that mpirun starts, each with ranks of its own, train to the bits of one
//! process.
//!
//! All processes are on this host; `tests/mpi` has two hosts.

use std::fs;
use std::io::Write;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::sync::mpsc;
use std::time::Duration;

use flate2::Compression;
use flate2::write::GzEncoder;
use rustix::process::{Pid, Signal, kill_process};
use tempfile::tempdir;

use super::own_layers::{DATA, OWN};
use super::validation::{SHARES, STEPS, text};
use crate::requirement::required;
use crate::{TINY, tiny_training};

/// What carries messages between processes.
#[derive(Debug, Clone, Copy)]
enum Wire {
    SharedMemory,
    Tcp,
}

/// Runs a command line in so many processes, if this build and this host can.
fn mpirun(processes: usize, wire: Wire, line: &str) -> Option<Output> {
    mpirun_with(Path::new(concat!(env!("CARGO_TARGET_TMPDIR"), "/no-cache")), processes, wire, line)
}

/// As [`mpirun`], with measured figures in this folder.
fn mpirun_with(cache: &Path, processes: usize, wire: Wire, line: &str) -> Option<Output> {
    let mut command = launcher(processes, wire)?;
    command.env("OCTOREC_CACHE", cache);
    command.arg(env!("CARGO_BIN_EXE_octorec")).args(line.split_whitespace());
    Some(command.output().expect("mpirun runs"))
}

/// What comes of a job; one that waits for ever is ended.
fn output_of(mut job: Child) -> Output {
    for _ in 0..1200 {
        if job.try_wait().unwrap().is_some() {
            return job.wait_with_output().unwrap();
        }
        std::thread::sleep(Duration::from_millis(100));
    }
    // The launcher ends what it has started.
    kill_process(Pid::from_child(&job), Signal::TERM).unwrap();
    panic!("the job waits: {}", String::from_utf8_lossy(&job.wait_with_output().unwrap().stderr));
}

/// The launcher, Open MPI's or MPICH's, without the program that it starts. `MPIRUN` names another than `mpirun`.
fn launcher(processes: usize, wire: Wire) -> Option<Command> {
    let mpirun = std::env::var("MPIRUN").unwrap_or_else(|_| "mpirun".to_owned());
    let found = Command::new(&mpirun).arg("--version").output();
    let found = match found {
        Ok(version) if cfg!(feature = "mpi") => Ok(String::from_utf8_lossy(&version.stdout).into_owned()),
        Ok(_) => Err("built without the feature mpi".to_owned()),
        Err(error) => Err(format!("{mpirun}: {error}")),
    };
    let version = required("mpi", found)?;
    let mut command = Command::new(&mpirun);
    if version.contains("Open MPI") {
        command.args(["--allow-run-as-root", "--oversubscribe", "--bind-to", "none"]);
        // Containers forbid the copies from process to process that it would try.
        let quiet = ["--mca", "btl_base_warn_component_unused", "0"];
        command.args(["--mca", "btl_vader_single_copy_mechanism", "none"]).args(quiet);
        if let Wire::Tcp = wire {
            command.args(["--mca", "btl", "tcp,self", "--mca", "btl_tcp_if_include", "lo"]);
        }
    } else if let Wire::Tcp = wire {
        command.args(["-genv", "UCX_TLS", "tcp,self", "-genv", "MPIR_CVAR_NOLOCAL", "1"]);
    }
    command.args(["-n", &processes.to_string()]);
    Some(command)
}

/// Losses and checkpoint of a training.
fn results(folder: &Path, name: &str) -> (Vec<u8>, Vec<u8>) {
    let read = |file: String| fs::read(folder.join(&file)).unwrap_or_else(|error| panic!("{file}: {error}"));
    (read(format!("{name}/losses")), read(format!("{name}/run/checkpoint.safetensors")))
}

/// A small training: of a model of these words' own, or of the one of all tests.
fn training(words: &str) -> String {
    let own = words.contains("--config");
    if own { format!("train --eval-every 0 {words}") } else { format!("{} {words}", tiny_training()) }
}

/// The training of `words`, in one process.
fn alone(folder: &Path, words: &str) -> (Vec<u8>, Vec<u8>) {
    fs::create_dir(folder.join("alone")).unwrap();
    let out = folder.join("alone");
    let out = out.display();
    crate::succeed(&format!("{} --trace-loss {out}/losses --out {out}/run", training(words)));
    results(folder, "alone")
}

/// Words by which tables are divided as they were there: otherwise a network between ranks may divide them otherwise.
fn by_plan_of_one(folder: &Path) -> String {
    format!("--plan {}", folder.join("alone/run/plan.toml").display())
}

/// The same, on so many machines with so many ranks each; nothing where that is impossible here.
fn together(folder: &Path, [machines, ranks]: [usize; 2], wire: Wire, words: &str) -> Option<(Vec<u8>, Vec<u8>)> {
    let name = format!("{machines}x{ranks}-{wire:?}");
    fs::create_dir(folder.join(&name)).unwrap();
    let out = folder.join(&name);
    let out = out.display();
    let line = format!("{} --ranks {ranks} --threads 1 --trace-loss {out}/losses --out {out}/run", training(words));
    let output = mpirun(machines, wire, &line)?;
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{name}: {stderr}");
    assert!(machines == 1 || stderr.contains("each machine its own tables"), "{name}: {stderr}");
    Some(results(folder, &name))
}

/// The checkpoint's tensors, without its head, which says how many ranks there were.
fn weights(checkpoint: &[u8]) -> &[u8] {
    let head = u64::from_le_bytes(checkpoint[..8].try_into().unwrap()) as usize;
    &checkpoint[8 + head..]
}

#[test]
fn machines_train_to_the_bits_of_one_rank_if_asked() {
    for precision in ["f32", "bf16"] {
        let folder = tempdir().unwrap();
        let words = format!("--determinism ranks --precision {precision} --steps 12");
        let whole = alone(folder.path(), &format!("{words} --ranks 1 --threads 1"));
        for shape in [[1, 4], [2, 2], [4, 1], [3, 1], [2, 3]] {
            let Some(found) = together(folder.path(), shape, Wire::SharedMemory, &words) else { return };
            assert!(found.0 == whole.0, "{precision}, {shape:?}: other losses");
            assert!(weights(&found.1) == weights(&whole.1), "{precision}, {shape:?}: other weights");
        }
        let Some(found) = together(folder.path(), [2, 2], Wire::Tcp, &words) else { return };
        assert!(found.0 == whole.0 && weights(&found.1) == weights(&whole.1), "{precision}: over TCP");
    }
}

#[test]
fn machines_train_every_kind_of_model_to_the_bits_of_one_rank() {
    for model in [
        "--set model.wide=true --set model.wide_crosses=[[\"C1\",\"C6\"]]",
        "--set model.ts_length=2 --set model.sequences=[\"C1\",\"C6\"] --set data.lookups=4",
        "--set model.md_temperature=0.2 --set model.md_threshold=4",
        "--set model.qr_collisions=3 --set model.qr_threshold=9",
        "--set model.weighted_pooling=learned --hot exact --hot-budget 64KiB --hot-revise 5",
        "--hot fae --hot-budget 6MiB --set train.hot_test_samples=100",
    ] {
        let folder = tempdir().unwrap();
        let words = format!("--determinism ranks --steps 12 {model}");
        let whole = alone(folder.path(), &format!("{words} --ranks 1 --threads 1"));
        for shape in [[2, 2], [3, 1]] {
            let Some(found) = together(folder.path(), shape, Wire::SharedMemory, &words) else { return };
            assert!(found.0 == whole.0 && weights(&found.1) == weights(&whole.1), "{model}, {shape:?}: other bits");
        }
    }
}

#[test]
fn machines_train_a_network_of_ones_own_to_the_bits_of_one_rank() {
    let folder = tempdir().unwrap();
    let config = folder.path().join("mine.toml");
    fs::write(&config, OWN).unwrap();
    let words = format!("--config {} {DATA} --batch 64 --lr 0.01 --determinism ranks --steps 12", config.display());
    let whole = alone(folder.path(), &format!("{words} --ranks 1 --threads 1"));
    for shape in [[2, 2], [3, 1]] {
        let Some(found) = together(folder.path(), shape, Wire::SharedMemory, &words) else { return };
        assert!(found.0 == whole.0 && weights(&found.1) == weights(&whole.1), "{shape:?}: other bits");
    }
}

#[test]
fn machines_end_together_when_tests_get_no_better_and_keep_the_best_model() {
    let folder = tempdir().unwrap();
    // What nearly stands still gets no better.
    let words = "--determinism ranks --eval-every 2 --patience 1 --set train.decay=cosine --set train.decay_start=0 \
                 --set train.decay_steps=10";
    let whole = alone(folder.path(), &format!("{words} --ranks 1 --threads 1"));
    let losses = whole.0.iter().filter(|&&byte| byte == b'\n').count();
    assert!(losses < 40, "patience has not ended it");
    let best = |name: &str| fs::read(folder.path().join(name).join("run/best/checkpoint.safetensors")).unwrap();
    for shape in [[2, 2], [3, 1]] {
        let Some(found) = together(folder.path(), shape, Wire::SharedMemory, words) else { return };
        assert!(found.0 == whole.0 && weights(&found.1) == weights(&whole.1), "{shape:?}: other bits");
        let [machines, ranks] = shape;
        let name = format!("{machines}x{ranks}-SharedMemory");
        assert!(weights(&best(&name)) == weights(&best("alone")), "{shape:?}: another best model");
        // As a kill behind the best model and before the run's own checkpoint leaves it.
        let ahead = folder.path().join(format!("ahead{machines}"));
        let place = format!("--ranks {ranks} --threads 1");
        let begun = format!("{} {place} --steps 4 --out {}/run", training(words), ahead.display());
        let resumed = format!("train --resume {}/run --steps 40 {place}", ahead.display());
        for line in [begun, resumed] {
            let output = mpirun(machines, Wire::SharedMemory, &line).unwrap();
            assert!(output.status.success(), "{line}: {}", String::from_utf8_lossy(&output.stderr));
            if line.contains("--out") {
                let kept = folder.path().join(&name).join("run/best/checkpoint.safetensors");
                fs::copy(kept, ahead.join("run/best/checkpoint.safetensors")).unwrap();
            }
        }
        let end = fs::read(ahead.join("run/checkpoint.safetensors")).unwrap();
        assert!(weights(&end) == weights(&whole.1), "{shape:?}: ends elsewhere");
        let kept = fs::read(ahead.join("run/best/checkpoint.safetensors")).unwrap();
        assert!(weights(&kept) == weights(&best("alone")), "{shape:?}: another best model");
    }
}

#[test]
fn machines_without_tables_take_the_best_model_back_with_their_copies_of_hot_rows() {
    let folder = tempdir().unwrap();
    // All that is looked up is one table, which the first machine has whole.
    let plan = folder.path().join("plan.toml");
    fs::write(&plan, "ranks = 2\ndim = 8\n[[table]]\nid = 0\nscheme = \"table\"\nranks = [0]\n").unwrap();
    let (data, at) = (text(folder.path()), folder.path().display());
    let line = format!(
        "train {data} {SHARES} {STEPS} --keep-best --hot exact --hot-budget 64KiB --ranks 1 --plan {at}/plan.toml --timeout 20 \
         --out {at}/run --json"
    );
    let Some(output) = mpirun(2, Wire::SharedMemory, &line) else { return };
    let told = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && told.contains("hot rows: copies of "), "{told}");
    let results: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert!(results["best_step"].as_u64().unwrap() < 80 && results["auc"].is_f64(), "{results}");
    let best = crate::json(&format!("eval --checkpoint {at}/run/best --ranks 1 --threads 1 --json"));
    let [of_two, of_one] = [&results, &best].map(|results| results["auc"].as_f64().unwrap());
    assert!((of_two - of_one).abs() < 1e-6, "{of_two}, not {of_one}");
}

#[test]
fn one_thread_may_call_mpi_for_all() {
    let folder = tempdir().unwrap();
    let words = "--determinism ranks --steps 12";
    let whole = alone(folder.path(), &format!("{words} --ranks 1 --threads 1"));
    let out = folder.path().display();
    let line =
        format!("{} {words} --ranks 2 --threads 1 --trace-loss {out}/losses --out {out}/run --force", tiny_training());
    for (calls, told) in [("one", "MPI_THREAD_FUNNELED"), ("any", "MPI_THREAD_MULTIPLE")] {
        let Some(mut command) = launcher(2, Wire::SharedMemory) else { return };
        command.env("OCTOREC_MPI_CALLS", calls).env("OCTOREC_CACHE", folder.path().join("no-cache"));
        let output = command.arg(env!("CARGO_BIN_EXE_octorec")).args(line.split_whitespace()).output().unwrap();
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success() && stderr.contains(told), "{calls}: {stderr}");
        let found = results(folder.path(), ".");
        assert!(found.0 == whole.0 && weights(&found.1) == weights(&whole.1), "{calls}: other bits");
    }
    let Some(mut command) = launcher(2, Wire::SharedMemory) else { return };
    let output =
        command.env("OCTOREC_MPI_CALLS", "two").arg(env!("CARGO_BIN_EXE_octorec")).arg("train").output().unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success() && stderr.contains("OCTOREC_MPI_CALLS: `two`"), "{stderr}");
}

#[test]
fn a_launcher_that_mpi_does_not_understand_is_told() {
    let Some(mut command) = launcher(1, Wire::SharedMemory) else { return };
    // As four processes are that srun has started and each of which finds itself alone.
    let command = command.args(["env", "OMPI_COMM_WORLD_SIZE=4", env!("CARGO_BIN_EXE_octorec"), "config"]);
    let output = command.output().unwrap();
    let message = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success() && output.stdout.is_empty(), "{message}");
    assert!(message.contains("MPI: cannot work as one of 4 processes") && message.contains("--mpi=pmix"), "{message}");
}

#[test]
fn a_launcher_may_have_started_more_than_it_says() {
    let Some(mut command) = launcher(3, Wire::SharedMemory) else { return };
    let command = command.args(["env", "OMPI_COMM_WORLD_SIZE=2", env!("CARGO_BIN_EXE_octorec"), "config"]);
    let output = command.output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

#[test]
fn machines_sum_what_ranks_of_one_sum() {
    // Of two terms there is but one sum, in whatever order: two ranks are two ranks wherever they are.
    for words in ["", "--optimizer momentum --optimizer-rows momentum", "--rows-cap 5 --precision bf16"] {
        let folder = tempdir().unwrap();
        let words = format!("{words} --steps 12");
        let whole = alone(folder.path(), &format!("{words} --ranks 2 --threads 1"));
        let words = format!("{words} {}", by_plan_of_one(folder.path()));
        let Some(found) = together(folder.path(), [2, 1], Wire::SharedMemory, &words) else { return };
        assert!(found.0 == whole.0, "{words}: other losses");
        assert!(weights(&found.1) == weights(&whole.1), "{words}: other weights");
    }
}

#[test]
fn machines_of_one_rank_have_communication_cores() {
    let folder = tempdir().unwrap();
    let whole = alone(folder.path(), "--steps 12 --ranks 2 --threads 1");
    let plan = by_plan_of_one(folder.path());
    for (name, overlap) in [("on", "--overlap on"), ("off", "--overlap off")] {
        let folder = folder.path().join(name);
        fs::create_dir(&folder).unwrap();
        let words = format!("--steps 12 --comm-cores 1 {overlap} {plan}");
        let Some(found) = together(&folder, [2, 1], Wire::SharedMemory, &words) else { return };
        assert!(found.0 == whole.0 && weights(&found.1) == weights(&whole.1), "{overlap}: other bits");
    }
}

#[test]
fn machines_send_each_other_what_ranks_of_one_send() {
    // By one plan: tables are divided otherwise where a network lies between ranks.
    let folder = tempdir().unwrap();
    let run = folder.path().join("run");
    let run = run.display();
    let words = format!("{} --determinism ranks --steps 5 --threads 1 --json", tiny_training());
    let one = crate::succeed(&format!("{words} --ranks 4 --out {run}"));
    let line = format!("{words} --ranks 2 --plan {run}/plan.toml");
    let Some(two) = mpirun(2, Wire::SharedMemory, &line) else { return };
    assert!(two.status.success(), "{}", String::from_utf8_lossy(&two.stderr));
    let traffic = |json: &[u8]| serde_json::from_slice::<serde_json::Value>(json).unwrap()["traffic"].clone();
    let (here, there) = (traffic(&one.stdout), traffic(&two.stdout));
    assert!(here.is_object());
    assert_eq!(here, there);
}

#[test]
fn machines_tell_what_all_ranks_have_read_and_of_which_machine_the_profile_is() {
    let line = format!("{} --steps 3 --ranks 1 --threads 1 --profile --json", tiny_training());
    let Some(output) = mpirun(2, Wire::SharedMemory, &line) else { return };
    let told = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{told}");
    let results: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(results["data_bytes_read"].as_array().unwrap().len(), 2, "{results}");
    assert_eq!([&results["profile"]["ranks"], &results["profile"]["machines"]], [1, 2], "{results}");
    assert!(told.contains("those of the 1 rank of this machine, one of 2"), "{told}");
}

#[test]
fn what_machines_have_trained_goes_on_on_any_number_of_them_and_is_scored_by_all() {
    let folder = tempdir().unwrap();
    let words = "--determinism ranks --checkpoint-every 4";
    let whole = alone(folder.path(), &format!("{words} --steps 12 --ranks 1 --threads 1"));
    let Some(_) = together(folder.path(), [2, 1], Wire::SharedMemory, &format!("{words} --steps 5")) else { return };
    let run = folder.path().join("2x1-SharedMemory/run");
    let run = run.display();
    let resumed =
        mpirun(3, Wire::SharedMemory, &format!("train --resume {run} --steps 12 --ranks 1 --threads 1")).unwrap();
    assert!(resumed.status.success(), "{}", String::from_utf8_lossy(&resumed.stderr));
    let checkpoint = fs::read(folder.path().join("2x1-SharedMemory/run/checkpoint.safetensors")).unwrap();
    assert!(weights(&checkpoint) == weights(&whole.1), "resumed on three machines: other weights");

    let line =
        format!("eval --checkpoint {run} --ranks 1 --threads 1 --json --gauc C5 --by C3 --calibration-buckets 7");
    let scores = mpirun(2, Wire::SharedMemory, &line).unwrap();
    assert!(scores.status.success(), "{}", String::from_utf8_lossy(&scores.stderr));
    let one = crate::succeed(&line);
    assert_eq!(
        String::from_utf8_lossy(&scores.stdout),
        String::from_utf8_lossy(&one.stdout),
        "told once, and the same"
    );
    assert!(String::from_utf8_lossy(&one.stdout).contains("\"gauc\":0."));

    // So are two models together, sample by sample.
    let other = folder.path().join("other").display().to_string();
    crate::succeed(&format!("{} --steps 3 --ranks 1 --threads 1 --out {other}", tiny_training()));
    let line = format!("eval --checkpoint {run} --against {other} --ranks 1 --threads 1 --json");
    let both = mpirun(2, Wire::SharedMemory, &line).unwrap();
    assert!(both.status.success(), "{}", String::from_utf8_lossy(&both.stderr));
    let one = String::from_utf8_lossy(&crate::succeed(&line).stdout).into_owned();
    assert!(String::from_utf8_lossy(&both.stdout) == one && one.contains("\"auc_interval\":["), "{one}");
}

#[test]
fn machines_save_by_the_clock_of_the_first_one() {
    let (folder, program) = (tempdir().unwrap(), env!("CARGO_BIN_EXE_octorec"));
    let run = folder.path().join("run");
    let checkpoint = run.join("checkpoint.safetensors");
    let (words, run) = ("--determinism ranks --ranks 1 --threads 1", run.display());
    // The second machine is killed as soon as there is a second checkpoint in the place of the first.
    let file = checkpoint.display();
    let kill = format!(
        "now=$(stat -c %i {file} 2>/dev/null); [ -n \"$now\" -a -n \"$first\" -a \"$now\" != \"$first\" ] && kill -KILL $$ && \
         break; first=${{first:-$now}}"
    );
    let second = format!("(for _ in $(seq 3000); do {kill}; sleep 0.1; done) &\nexec {program} \"$@\"");
    let Some(mut command) = two(folder.path(), [&format!("exec {program} \"$@\""), &second]) else { return };
    let line =
        format!("{} {words} --steps 100000000 --set train.checkpoint_minutes=0.001 --out {run}", tiny_training());
    let job = command.args(line.split_whitespace()).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    let output = output_of(job);
    let message = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success() && checkpoint.exists(), "{message}");
    let resume = |steps: u64| {
        let line = format!("train --resume {run} --ranks 1 --threads 1 --steps {steps} --json");
        let output = mpirun(2, Wire::SharedMemory, &line).unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        serde_json::from_slice::<serde_json::Value>(&output.stdout).unwrap()["step"].as_u64().unwrap()
    };
    let steps = resume(1) + 20;
    resume(steps);
    let whole = alone(folder.path(), &format!("{words} --steps {steps}"));
    assert!(weights(&fs::read(checkpoint).unwrap()) == weights(&whole.1), "other weights");
}

#[test]
fn values_that_the_model_does_not_know_are_those_of_all_machines() {
    let folder = tempdir().unwrap();
    let data = crate::tsv(&folder.path().join("clicks.tsv"), 300);
    let run = folder.path().join("run").display().to_string();
    crate::succeed(&format!("train {TINY} --data {} --steps 2 --threads 1 --out {run}", data.display()));
    let text = fs::read_to_string(&data).unwrap();
    let other = text.lines().map(|line| line.rsplit_once('\t').unwrap().0.to_owned() + "\tdeadbeef\n");
    fs::write(&data, other.collect::<String>()).unwrap();
    let line = format!("eval --checkpoint {run} --data {} --ranks 1 --threads 1", data.display());
    let Some(two) = mpirun(2, Wire::SharedMemory, &line) else { return };
    let one = String::from_utf8_lossy(&crate::succeed(&line).stderr).into_owned();
    let note = one.lines().find(|line| line.contains("not in the model's vocabulary")).expect("it is told");
    let two = String::from_utf8_lossy(&two.stderr).into_owned();
    assert!(two.contains(note), "{two}, not {note}");
    // Of test samples of a run the second half of a minibatch is the second machine's to read.
    let mut lines: Vec<&str> = text.lines().take(64).collect();
    let other = lines[40].rsplit_once('\t').unwrap().0.to_owned() + "\tdeadbeef";
    lines[40] = &other;
    let tests = folder.path().join("test.tsv");
    fs::write(&tests, lines.join("\n") + "\n").unwrap();
    fs::write(&data, &text).unwrap();
    let (from, tests) = (format!("--init {run}/checkpoint.safetensors"), format!("--test-data {}", tests.display()));
    let line = format!("train {TINY} --data {} {tests} {from} --steps 1 --ranks 1 --threads 1", data.display());
    let Some(two) = mpirun(2, Wire::SharedMemory, &line) else { return };
    let told = String::from_utf8_lossy(&two.stderr).into_owned();
    let note = "samples that the model is judged by have values that are not in the model's vocabulary, and count as empty: \
                of C26\n";
    assert!(two.status.success() && told.contains(note), "{told}");
}

/// Changes a byte of a table's weights in a run's checkpoint.
fn damage_table(run: &Path) {
    let path = run.join("checkpoint.safetensors");
    let mut bytes = fs::read(&path).unwrap();
    let head = u64::from_le_bytes(bytes[..8].try_into().unwrap()) as usize;
    let tensors: serde_json::Value = serde_json::from_slice(&bytes[8..8 + head]).unwrap();
    let first = tensors["emb_l.0.weight"]["data_offsets"][0].as_u64().unwrap() as usize;
    bytes[8 + head + first] ^= 1;
    fs::write(path, bytes).unwrap();
}

#[test]
fn damage_that_a_machine_finds_ends_all_before_scores_are_told() {
    let folder = tempdir().unwrap();
    let Some(_) = together(folder.path(), [2, 1], Wire::SharedMemory, "--steps 3") else { return };
    let run = folder.path().join("2x1-SharedMemory/run");
    damage_table(&run);
    let line = format!("eval --checkpoint {} --ranks 1 --threads 1", run.display());
    let output = mpirun(2, Wire::SharedMemory, &line).unwrap();
    let message = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success() && message.contains("emb_l.0.weight is damaged"), "{message}");
    assert!(output.stdout.is_empty(), "{}", String::from_utf8_lossy(&output.stdout));
}

#[test]
fn machines_that_have_nothing_to_do_wait_for_the_one_that_works() {
    let folder = tempdir().unwrap();
    let pipe = folder.path().join("pipe");
    assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    let Some(mut command) = launcher(2, Wire::SharedMemory) else { return };
    let command = command.arg(env!("CARGO_BIN_EXE_octorec")).args(["config", "--svg"]).arg(&pipe);
    let mut job = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    // The first machine writes when somebody reads: later than a process stays in MPI that waits for nobody.
    std::thread::sleep(Duration::from_secs(12));
    assert!(job.try_wait().unwrap().is_none(), "the launcher has ended the job");
    let (sender, picture) = mpsc::channel();
    // Nobody comes to the other end of a pipe whose writer has failed.
    std::thread::spawn(move || sender.send(fs::read_to_string(&pipe).unwrap()));
    let output = output_of(job);
    let picture = picture.recv_timeout(Duration::from_secs(60)).expect("somebody has written");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert!(picture.trim_end().ends_with("</svg>"), "{picture}");
}

#[test]
fn a_machine_that_has_nothing_to_do_leaves_the_wish_to_stop_to_the_one_that_works() {
    let folder = tempdir().unwrap();
    let (program, at) = (env!("CARGO_BIN_EXE_octorec"), |name: &str| folder.path().join(name));
    assert!(Command::new("mkfifo").arg(at("pipe")).status().unwrap().success());
    let config = format!("exec {program} config --svg {}", at("pipe").display());
    // SIGUSR1, as soon as it is heeded.
    let asks = "grep -Eq '^SigCgt:.*[2367abef]..$' /proc/$$/status && kill -USR1 $$ && touch";
    let asks = format!("{asks} {} && break", at("asked").display());
    let second = format!("(for _ in $(seq 300); do {asks}; sleep 0.1; done) &\n{config}");
    let Some(mut command) = two(folder.path(), [&config, &second]) else { return };
    let mut job = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    for _ in 0..600 {
        if at("asked").exists() || job.try_wait().unwrap().is_some() {
            break;
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    assert!(at("asked").exists(), "it heeds no signal");
    // The first machine writes when somebody reads.
    let pipe = at("pipe");
    std::thread::spawn(move || fs::read_to_string(&pipe));
    let output = output_of(job);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

#[test]
fn machines_go_on_with_a_run_whose_files_the_first_one_brings_back() {
    let folder = tempdir().unwrap();
    let run = folder.path().join("run");
    crate::succeed(&format!("{} --steps 3 --out {}", tiny_training(), run.display()));
    for steps in 4..8 {
        let previous = run.join(".previous");
        fs::create_dir_all(&previous).unwrap();
        for entry in fs::read_dir(&run).unwrap() {
            let name = entry.unwrap().file_name();
            if name != ".previous" && name != ".lock" {
                fs::rename(run.join(&name), previous.join(&name)).unwrap();
            }
        }
        let line = format!("train --resume {} --ranks 1 --threads 1 --steps {steps}", run.display());
        let Some(output) = mpirun(2, Wire::SharedMemory, &line) else { return };
        assert!(output.status.success(), "{steps}: {}", String::from_utf8_lossy(&output.stderr));
    }
}

#[test]
fn a_machine_at_work_behind_its_last_step_is_waited_for_and_one_that_stands_still_is_not() {
    let program = env!("CARGO_BIN_EXE_octorec");
    for stops in [false, true] {
        let folder = tempdir().unwrap();
        let [pipe, run] = ["pipe", "run"].map(|name| folder.path().join(name));
        assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
        // Behind its last evaluation the first machine has a timeline to write, which it does when somebody reads: here
        // after longer than others wait for one that is silent, or never, since it is stopped.
        let then = if stops { "sleep 1; kill -STOP $$".to_owned() } else { format!("sleep 7; cat {}", pipe.display()) };
        let tested = format!("grep -qs '\"kind\":\"eval\"' {}", run.join("metrics.jsonl").display());
        let meanwhile =
            format!("(for _ in $(seq 600); do if {tested}; then {then}; break; fi; sleep 0.1; done) >/dev/null &");
        let first = format!("{meanwhile}\nexec {program} \"$@\"");
        let Some(mut command) = two(folder.path(), [&first, &format!("exec {program} \"$@\"")]) else { return };
        let line = format!(
            "train {TINY} --steps 3 --ranks 1 --threads 1 --source random --set model.rows=[10,20] \
             --set data.test_samples=640 --timeout 5 --trace {} --out {}",
            pipe.display(),
            run.display()
        );
        command.args(line.split_whitespace()).stdout(Stdio::null()).stderr(Stdio::piped());
        let output = output_of(command.spawn().unwrap());
        let told = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.success(), !stops, "{told}");
        assert_eq!(
            told.contains("cannot end the job: machine 0 (") && told.contains(" no sign of life for 5 s"),
            stops,
            "{told}"
        );
    }
}

#[test]
fn schedules_in_doubt_are_tried_by_all_machines_where_a_run_may_depend_on_time() {
    let line = format!(
        "train {TINY} --steps 3 --ranks 1 --threads 1 --comm-cores 0 --source random --set model.rows=[10,20] --json"
    );
    for (determinism, tried) in [("none", 3), ("run", 0)] {
        let Some(output) = mpirun(3, Wire::SharedMemory, &format!("{line} --determinism {determinism}")) else {
            return;
        };
        let told = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success(), "{told}");
        let results: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        let candidates = results["collective"]["candidates"].as_array().unwrap();
        assert_eq!(candidates[0]["schedule"], results["collective"]["schedule"], "{results}");
        let steps: Vec<f64> = candidates.iter().filter_map(|candidate| candidate["step_ms"].as_f64()).collect();
        // Figures are assumed here.
        assert!(steps.len() == tried && steps.iter().all(|ms| *ms >= steps[0]), "{results}");
        assert_eq!(told.contains("ms of a step with small tables: "), tried > 0, "{told}");
    }
}

/// What comes of a command line on two machines, to which the second one adds these words.
fn where_one_differs(folder: &Path, line: &str, words: &str) -> Option<(bool, String)> {
    where_both_differ(folder, line, ["", words])
}

/// The same, where each has words of its own.
fn where_both_differ(folder: &Path, line: &str, words: [&str; 2]) -> Option<(bool, String)> {
    let program = env!("CARGO_BIN_EXE_octorec");
    let [first, second] = words.map(|words| format!("exec {program} \"$@\" {words}"));
    let mut command = two(folder, [&first, &second])?;
    let output = command.args(line.split_whitespace()).output().unwrap();
    Some((output.status.success(), String::from_utf8_lossy(&output.stderr).into_owned()))
}

/// The launcher of two processes, of which each does what its own script says.
fn two(folder: &Path, scripts: [&str; 2]) -> Option<Command> {
    let script = folder.join("differs");
    let [first, second] = scripts;
    let text = format!("#!/bin/sh\nif [ \"$OMPI_COMM_WORLD_RANK$PMI_RANK\" = 1 ]; then\n{second}\nelse\n{first}\nfi\n");
    fs::write(&script, text).unwrap();
    fs::set_permissions(&script, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    let mut command = launcher(2, Wire::SharedMemory)?;
    command.arg(&script);
    Some(command)
}

#[test]
fn a_machine_that_waits_tells_why_another_one_has_failed() {
    let (folder, program) = (tempdir().unwrap(), env!("CARGO_BIN_EXE_octorec"));
    let scripts = ["config", "train --config no-such.toml"].map(|words| format!("exec {program} {words}"));
    let Some(mut command) = two(folder.path(), [&scripts[0], &scripts[1]]) else { return };
    let output = output_of(command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap());
    let message = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success(), "{message}");
    for told in ["error: MPI: cannot end the job: machine 1 has failed: ", "machine 1: error: "] {
        let told = message.lines().find_map(|line| line.strip_prefix(told));
        assert!(told.is_some_and(|why| why.contains("no-such.toml")), "{message}");
    }
}

#[test]
fn a_machine_that_waits_for_others_to_read_can_be_stopped() {
    let folder = tempdir().unwrap();
    let (program, pipe) = (env!("CARGO_BIN_EXE_octorec"), folder.path().join("pipe"));
    assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    // Nobody reads the pipe: this machine comes to no place where the other one waits.
    let first = format!("exec {program} config --svg {}", pipe.display());
    // SIGUSR1, as soon as it is heeded.
    let asks = "grep -Eq '^SigCgt:.*[2367abef]..$' /proc/$$/status && kill -USR1 $$ && break";
    let words = "--steps 3 --ranks 1 --threads 1 --source random --set model.rows=[10,20]";
    let second = format!("(for _ in $(seq 300); do {asks}; sleep 0.1; done) &\nexec {program} train {TINY} {words}");
    let Some(mut command) = two(folder.path(), [&first, &second]) else { return };
    let output = output_of(command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap());
    assert_eq!(output.status.code(), Some(130), "{}", String::from_utf8_lossy(&output.stderr));
}

#[test]
fn a_machine_that_is_stopped_while_it_opens_its_test_samples_stops_all() {
    let (folder, program) = (tempdir().unwrap(), env!("CARGO_BIN_EXE_octorec"));
    // All samples before those for tests, which are the last ones, are gone through whenever a test begins.
    let plain = fs::read(crate::tsv(&folder.path().join("clicks.tsv"), 100_000)).unwrap();
    let packed = folder.path().join("clicks.tsv.gz");
    let mut encoder = GzEncoder::new(fs::File::create(&packed).unwrap(), Compression::fast());
    encoder.write_all(&plain).unwrap();
    encoder.finish().unwrap();
    let [log, run] = ["log", "run"].map(|name| folder.path().join(name));
    // SIGUSR1, as soon as the first machine's log says that a test begins.
    let asks = format!("kill -0 $$ || break; grep -q eval_start {} && kill -USR1 $$ && break", log.display());
    let first = format!("(while :; do {asks}; sleep 0.002; done) 2>/dev/null &\nexec {program} \"$@\"");
    let Some(mut command) = two(folder.path(), [&first, &format!("exec {program} \"$@\"")]) else { return };
    let line = format!(
        "train {TINY} --data {} --rows-cap 100 --test-fraction 0.01 --on-bad-row skip --eval-every 2 --steps 100000000 \
         --ranks 1 --threads 1 --timeout 20 --mllog {} --out {}",
        packed.display(),
        log.display(),
        run.display()
    );
    let job = command.args(line.split_whitespace()).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    let output = output_of(job);
    assert_eq!(output.status.code(), Some(130), "{}", String::from_utf8_lossy(&output.stderr));
    assert!(run.join("checkpoint.safetensors").exists(), "what was trained is saved");
}

#[test]
fn machines_with_unequal_numbers_of_ranks_are_told_what_equal_ones_would_allow() {
    let folder = tempdir().unwrap();
    let line = format!("{} --steps 2 --ranks 2 --threads 1 --comm-cores 0", tiny_training());
    let Some((done, told)) = where_one_differs(folder.path(), &line, "--ranks 1") else { return };
    assert!(done && told.contains("as many on each (--ranks) would allow hierarchical"), "{told}");
}

#[test]
fn machines_go_on_from_one_checkpoint() {
    let folder = tempdir().unwrap();
    let [one, other] = ["one", "other"].map(|name| folder.path().join(name));
    let words = format!("{} --steps 5 --threads 1", tiny_training());
    crate::succeed(&format!("{words} --out {}", one.display()));
    crate::succeed(&format!("{words} --init {}/checkpoint.safetensors --out {}", one.display(), other.display()));
    let (one, other) = (one.display(), other.display());
    for (line, words) in [
        ("train --steps 9", [format!("--resume {one}"), format!("--resume {other}")]),
        (words.as_str(), [&one, &other].map(|run| format!("--init {run}/checkpoint.safetensors"))),
        ("eval", [format!("--checkpoint {one}"), format!("--checkpoint {other}")]),
    ] {
        let line = format!("{line} --ranks 1 --threads 1");
        let words = [&*words[0], &*words[1]];
        let Some((done, message)) = where_both_differ(folder.path(), &line, words) else { return };
        // Between them the hosts' names.
        let told = [
            "checkpoint.safetensors: machine 1 (",
            ") has another checkpoint than machine 0 (",
            "), one of step 5, of ",
        ];
        assert!(!done && told.iter().all(|words| message.contains(words)), "{line}: {message}");
    }
}

#[test]
fn machines_that_mean_different_jobs_are_told_so() {
    let folder = tempdir().unwrap();
    let line = format!("train {TINY} --steps 3 --ranks 1 --threads 1 --source random --set model.rows=[10,20]");
    let Some((done, message)) = where_one_differs(folder.path(), &line, "--lr 0.5") else { return };
    assert!(!done);
    assert!(message.contains("differ in train.lr: 0.5 and 0.1") && message.contains("machine 1"), "{message}");
    // Other data of the same shape.
    let at = |name: &str| folder.path().join(name).display().to_string();
    for (name, less) in [("one.csv", 0), ("other.csv", 1)] {
        let rows: String = (0..100).map(|n| format!("{},{},u{}\n", n % 2, n % 7 - less, n % 9)).collect();
        fs::write(at(name), format!("click,price,user\n{rows}")).unwrap();
    }
    let schema = "label = 'click'\ndense = [{ column = 'price' }]\ncategorical = [{ column = 'user', rows = 20 }]\n";
    fs::write(at("schema.toml"), schema).unwrap();
    let model = "--set model.bottom=[0,8,4] --set model.top=[8,1] --set model.dim=4 --batch 50";
    let line = format!("train {model} --steps 3 --ranks 1 --threads 1 --schema {}", at("schema.toml"));
    let words = ["one.csv", "other.csv"].map(|name| format!("--data {}", at(name)));
    let (done, message) = where_both_differ(folder.path(), &line, [&words[0], &words[1]]).unwrap();
    assert!(!done && message.contains("differ in files of the training samples"), "{message}");
}

#[test]
fn machines_whose_files_number_values_otherwise_are_told_so() {
    let (folder, program) = (tempdir().unwrap(), env!("CARGO_BIN_EXE_octorec"));
    let data = crate::tsv(&folder.path().join("clicks.tsv"), 300);
    // As many rows with as many values, the other way round.
    let turned: String = fs::read_to_string(&data).unwrap().lines().rev().map(|line| line.to_owned() + "\n").collect();
    let other = folder.path().join("other");
    fs::create_dir(&other).unwrap();
    fs::write(other.join("clicks.tsv"), turned).unwrap();
    let scripts = [folder.path(), &other].map(|at| format!("cd {} && exec {program} \"$@\"", at.display()));
    let Some(mut command) = two(folder.path(), [&scripts[0], &scripts[1]]) else { return };
    let line = format!("train {TINY} --data clicks.tsv --test-fraction 0 --steps 2 --ranks 1 --threads 1");
    let output = command.args(line.split_whitespace()).output().unwrap();
    let message = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success() && message.contains("differ in vocabulary of the data: "), "{message}");
    // Blocks whose common vocabulary has grown by the same values, the other way round.
    let at = |name: &str| folder.path().join(name).display().to_string();
    let first: String =
        fs::read_to_string(&data).unwrap().lines().take(100).map(|line| line.to_owned() + "\n").collect();
    fs::write(at("first.tsv"), first).unwrap();
    let preprocess = |text: &str, out: &str, more: &str| {
        let line = format!("preprocess criteo-terabyte --in {} --out {} --threads 1 {more}", at(text), at(out));
        crate::succeed(&line);
    };
    preprocess("first.tsv", "first", "");
    for place in ["", "other/"] {
        let grow = format!("--vocabulary {} --grow", at("first"));
        preprocess(&format!("{place}clicks.tsv"), &format!("{place}grown"), &grow);
    }
    let train = format!("train {TINY} --test-fraction 0 --steps 2 --ranks 1 --threads 1");
    crate::succeed(&format!("{train} --data {} --out {}", at("first"), at("run")));
    let line = format!("{train} --data grown --init {}", at("run"));
    let output =
        two(folder.path(), [&scripts[0], &scripts[1]]).unwrap().args(line.split_whitespace()).output().unwrap();
    let message = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success() && message.contains("differ in vocabularies beside the data"), "{message}");
}

#[test]
fn the_network_is_measured_once_and_plans_are_priced_with_it() {
    let folder = tempdir().unwrap();
    let (cache, cluster) = (folder.path().join("cache"), folder.path().join("cluster.toml"));
    let line = format!("topo --measure --seconds 1 --json --export {}", cluster.display());
    let Some(measured) = mpirun_with(&cache, 2, Wire::SharedMemory, &line) else { return };
    assert!(measured.status.success(), "{}", String::from_utf8_lossy(&measured.stderr));
    let found: serde_json::Value = serde_json::from_slice(&measured.stdout).expect("told once, by the first machine");
    assert_eq!(found["network"]["hosts"].as_array().unwrap().len(), 2, "{found}");
    let gb_s = found["network"]["together_gb_s"].as_f64().unwrap();
    assert!(gb_s > 0.0);
    let core_s = found["network"]["core_s_per_gb"].as_f64().unwrap();
    assert!(core_s.is_finite() && core_s >= 0.0, "{core_s} core seconds for a GB");

    let words = format!("{} --steps 2 --ranks 1 --threads 1", tiny_training());
    let known = "network between machines: measured just now";
    let unknown = "network between machines: 12.5 GB/s and 1 us, not measured";
    for (processes, expected) in [(2, known), (3, unknown)] {
        let trained = mpirun_with(&cache, processes, Wire::SharedMemory, &words).unwrap();
        let message = String::from_utf8_lossy(&trained.stderr).into_owned();
        assert!(trained.status.success() && message.contains(expected), "{processes}: {message}");
    }
    // What was exported is a machine for plans without any MPI.
    let plan = crate::succeed(&format!("plan --preset kaggle --ranks 2 --topology {} --json", cluster.display()));
    let plan: serde_json::Value = serde_json::from_slice(&plan.stdout).unwrap();
    assert!(plan.is_object());
}
