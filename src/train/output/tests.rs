//! What a run's directory holds, whatever happens to it.

use super::*;
use serde_json::json;

/// A run that has logged so many steps and saved.
fn run(path: &Path, steps: u64, checkpoint: &str) -> OutputDir {
    let mut output = OutputDir::create(path, true).unwrap();
    output.begin().unwrap();
    (1..=steps).for_each(|step| output.log(&json!({"kind": "step", "step": step})).unwrap());
    output.flush().unwrap();
    write_file(&output.checkpoint(), checkpoint.as_bytes()).unwrap();
    output.saved().unwrap();
    output
}

fn steps_logged(path: &Path) -> Vec<u64> {
    let lines = fs::read_to_string(path.join(METRICS)).unwrap();
    lines.lines().filter_map(|line| Some(logged(line.as_bytes())?.step)).collect()
}

#[test]
fn a_directory_is_taken_once_and_resuming_takes_back_what_came_after() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("run");
    drop(run(&path, 5, "first"));
    fs::write(path.join(METRICS), fs::read_to_string(path.join(METRICS)).unwrap() + "{\"kind\": \"st").unwrap();
    let message = OutputDir::create(&path, false).unwrap_err().to_string();
    assert!(message.contains("--resume") && message.contains("--force"), "{message}");

    let mut output = OutputDir::resume(&path).unwrap();
    output.rewind(4, false).unwrap();
    output.log(&json!({"kind": "eval", "step": 4})).unwrap();
    output.flush().unwrap();
    output.rewind(4, false).unwrap();
    assert_eq!(steps_logged(&path), [1, 2, 3, 4, 4]);
    // A test that is made again is not logged twice.
    output.rewind(4, true).unwrap();
    assert_eq!(steps_logged(&path), [1, 2, 3, 4]);
    output.rewind(3, false).unwrap();
    assert_eq!(steps_logged(&path), [1, 2, 3]);
    let message = OutputDir::resume(&path).unwrap_err().to_string();
    assert!(message.contains("another process"), "{message}");
}

#[test]
fn zeros_that_a_failed_machine_has_left_in_the_metrics_stand_in_nobodys_way() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("run");
    fs::create_dir(&path).unwrap();
    let (line, zeros) = ("{\"kind\": \"step\", \"step\": 1}\n", "\0".repeat(100_000));
    for left in ["", "\0\0", &zeros, &format!("\0\0{line}"), &format!("\0: 1}}\n{line}"), line] {
        fs::write(path.join(METRICS), left).unwrap();
        fs::write(path.join(CONFIG), "").unwrap();
        assert!(has_begun(&path), "{} bytes", left.len());
        OutputDir::create(&path, false).unwrap();
    }
    for own in ["\n", "mine\n", &format!("mine\n{line}"), "\0\0mine\n"] {
        fs::write(path.join(METRICS), own).unwrap();
        assert!(!has_begun(&path), "{own}");
        let message = OutputDir::create(&path, false).unwrap_err().to_string();
        assert!(message.contains("metrics.jsonl") && message.contains("elsewhere"), "{message}");
    }
    // Beside a checkpoint, what is whole of them stays.
    let path = folder.path().join("saved");
    drop(run(&path, 3, "first"));
    let mut left = fs::read(path.join(METRICS)).unwrap();
    left[..9].fill(0);
    left.extend(b"\0\0\0\xff\xfe");
    fs::write(path.join(METRICS), left).unwrap();
    OutputDir::resume(&path).unwrap().rewind(3, false).unwrap();
    assert_eq!(steps_logged(&path), [2, 3]);
    assert!(!fs::read(path.join(METRICS)).unwrap().contains(&0));
}

#[test]
fn what_a_run_goes_on_with_stays_until_a_checkpoint_has_it() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("run");
    drop(run(&path, 5, "first"));
    let noted = || fs::read_to_string(resume_in(&path)).ok();
    let config = Config::default();
    let resumed = |config: Option<&Config>, begins: bool| {
        let mut output = OutputDir::resume(&path).unwrap();
        output.resume_with(config, false).unwrap();
        if begins {
            output.rewind(5, false).unwrap();
            output.log(&json!({"kind": "step", "step": 6})).unwrap();
        }
        output
    };
    // A failure before the first step takes it back, but no kill.
    drop(resumed(Some(&config), false));
    assert_eq!(noted(), None);
    drop(resumed(Some(&config), false).resumed_before.take());
    assert_eq!(noted(), Some(config.to_toml()));
    let mut other = Config::default();
    other.train.epochs += 1;
    drop(resumed(Some(&other), false));
    assert_eq!(noted(), Some(config.to_toml()));
    drop(resumed(Some(&other), true));
    assert_eq!(noted(), Some(other.to_toml()));
    resumed(Some(&other), true).saved().unwrap();
    assert_eq!(noted(), None);
    drop(resumed(Some(&other), true));
    drop(resumed(None, true));
    assert_eq!(noted(), None);
    // By what word rows of its data are the model's, too.
    let mut output = OutputDir::resume(&path).unwrap();
    output.resume_with(Some(&other), true).unwrap();
    assert_eq!(noted(), Some(format!("rows_taken = true\n{}", other.to_toml())));
}

#[test]
fn what_is_replaced_goes_when_something_was_saved_in_its_place() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("run");
    drop(run(&path, 5, "first"));
    // Claimed and not begun, begun and not saved, begun and killed.
    drop(OutputDir::create(&path, true).unwrap());
    assert_eq!(
        (steps_logged(&path).len(), fs::read_to_string(path.join(CHECKPOINT)).unwrap()),
        (5, "first".to_owned())
    );
    let mut output = OutputDir::create(&path, true).unwrap();
    output.begin().unwrap();
    output.log(&json!({"kind": "step", "step": 1})).unwrap();
    output.flush().unwrap();
    assert_eq!(fs::read_to_string(checkpoint_in(&path)).unwrap(), "first");
    drop(output);
    assert_eq!(
        (steps_logged(&path).len(), fs::read_to_string(path.join(CHECKPOINT)).unwrap()),
        (5, "first".to_owned())
    );
    let mut output = OutputDir::create(&path, true).unwrap();
    output.begin().unwrap();
    output.metrics = None;
    drop(output);
    assert_eq!(fs::read_to_string(checkpoint_in(&path)).unwrap(), "first");
    drop(OutputDir::resume(&path).unwrap());
    assert_eq!(
        (steps_logged(&path).len(), fs::read_to_string(path.join(CHECKPOINT)).unwrap()),
        (5, "first".to_owned())
    );
    // What only the run without a checkpoint has written goes with it; what is not a run's stays.
    let mut output = OutputDir::create(&path, true).unwrap();
    output.begin().unwrap();
    write_file(&path.join(VOCABULARY), b"of another run").unwrap();
    fs::write(path.join(PREVIOUS).join("mine.txt"), "notes").unwrap();
    drop(output);
    assert!(!path.join(VOCABULARY).exists() && path.join(PREVIOUS).join("mine.txt").exists());
    fs::remove_dir_all(path.join(PREVIOUS)).unwrap();
    // Killed at each file on its way aside, and on its way back.
    write_file(&path.join(VOCABULARY), b"values").unwrap();
    write_file(&path.join(CONFIG), b"keys").unwrap();
    write_file(&path.join(PLAN), b"who holds what").unwrap();
    write_file(&path.join(HOT), b"hot rows").unwrap();
    write_file(&path.join(RESUME), b"other keys").unwrap();
    fs::create_dir(path.join(BEST)).unwrap();
    let of_best = ALL_FILES.into_iter().filter(|name| name.starts_with(BEST));
    of_best.for_each(|name| write_file(&path.join(name), name.as_bytes()).unwrap());
    let aside = path.join(PREVIOUS);
    for moved in 0..=ALL_FILES.len() {
        fs::create_dir_all(&aside).unwrap();
        let names: Vec<_> = ALL_FILES.into_iter().rev().take(moved).collect();
        move_files(&names, &path, &aside).unwrap();
        assert_eq!(fs::read_to_string(checkpoint_in(&path)).unwrap(), "first", "{moved} moved");
        assert_eq!(fs::read_to_string(vocabulary_in(&path)).unwrap(), "values", "{moved} moved");
        drop(OutputDir::resume(&path).unwrap());
        assert!(ALL_FILES.iter().all(|name| path.join(name).exists()) && !aside.exists(), "{moved} moved");
    }
    // Whoever trains the best model further keeps it, then and later.
    let busy = FolderLock::take(&path.join(BEST)).unwrap();
    let message = OutputDir::create(&path, true).unwrap().begin().unwrap_err().to_string();
    assert!(message.contains("another process") && path.join(CHECKPOINT).exists(), "{message}");
    drop(busy);
    let log = path.join(BEST).join(METRICS);
    fs::write(&log, "").unwrap();
    for message in [OutputDir::create(&path, true).unwrap_err(), OutputDir::resume(&path).unwrap().best().unwrap_err()]
        .map(|e| e.to_string())
    {
        assert!(message.contains("best elsewhere"), "{message}");
    }
    fs::remove_file(log).unwrap();

    drop(run(&path, 2, "second"));
    assert_eq!(
        (steps_logged(&path).len(), fs::read_to_string(path.join(CHECKPOINT)).unwrap()),
        (2, "second".to_owned())
    );
    assert!(!path.join(PREVIOUS).exists() && !path.join(BEST).exists());
}

#[test]
fn a_directory_without_a_checkpoint_is_free_and_one_that_is_gone_comes_again() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("run");
    let mut output = OutputDir::create(&path, false).unwrap();
    output.begin().unwrap();
    drop(output);
    let mut output = OutputDir::create(&path, false).unwrap();
    output.begin().unwrap();
    assert!(!output.recreate().unwrap());
    fs::remove_dir_all(&path).unwrap();
    assert!(output.recreate().unwrap());
    write_file(&output.checkpoint(), b"here").unwrap();
    assert_eq!(fs::read(path.join(CHECKPOINT)).unwrap(), b"here");
}

#[test]
fn the_best_model_is_as_safe_as_the_run_and_a_folder_of_its_name_is_the_users() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("run");
    fs::create_dir_all(path.join(BEST)).unwrap();
    fs::write(path.join(BEST).join(CONFIG), "mine").unwrap();
    let mut output = OutputDir::create(&path, false).unwrap();
    output.begin().unwrap();
    assert_eq!(fs::read_to_string(path.join(BEST).join(CONFIG)).unwrap(), "mine");
    // Nothing is logged there, and what was removed comes again.
    let mut best = output.best().unwrap();
    fs::remove_dir_all(best.path()).unwrap();
    assert!(best.recreate().unwrap() && !best.path().join(METRICS).exists());
    write_file(&best.checkpoint(), b"best").unwrap();
    write_file(&output.checkpoint(), b"last").unwrap();
    drop((best, output));
    let message = OutputDir::create(&path, false).unwrap_err().to_string();
    assert!(message.contains("--force"), "{message}");
    // Beside no checkpoint it is a run of its own, whole or while another shall replace it.
    fs::remove_file(path.join(CHECKPOINT)).unwrap();
    let refused = || {
        for force in [false, true] {
            let message = OutputDir::create(&path, force).unwrap_err().to_string();
            assert!(message.contains("best elsewhere") && !message.contains("--force"), "{message}");
        }
    };
    refused();
    let aside = path.join(BEST).join(PREVIOUS);
    fs::create_dir(&aside).unwrap();
    fs::rename(path.join(BEST_CHECKPOINT), aside.join(CHECKPOINT)).unwrap();
    refused();
    // The remedy.
    fs::rename(path.join(BEST), folder.path().join("elsewhere")).unwrap();
    OutputDir::create(&path, false).unwrap();
}
