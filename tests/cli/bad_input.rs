//! Wrong input gets a message that names the place and what to do.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};

use flate2::Compression;
use flate2::write::GzEncoder;

use super::{TINY, fail, json, succeed, tiny_training, tsv};

/// A data file whose line 3 is replaced.
fn with_line_3(folder: &Path, change: impl Fn(&str) -> String) -> PathBuf {
    let path = tsv(&folder.join("bad.tsv"), 10);
    let text = fs::read_to_string(&path).unwrap();
    let lines: Vec<String> =
        text.lines().enumerate().map(|(n, line)| if n == 2 { change(line) } else { line.to_owned() }).collect();
    fs::write(&path, lines.join("\n")).unwrap();
    path
}

fn training(data: &Path) -> String {
    format!("train {TINY} --epochs 1 --batch 4 --data {}", data.display())
}

#[test]
fn malformed_rows_name_file_line_expected_and_found() {
    let folder = tempfile::tempdir().unwrap();
    let field = |number: usize, value: &'static str| {
        move |line: &str| {
            let mut fields: Vec<&str> = line.split('\t').collect();
            fields[number] = value;
            fields.join("\t")
        }
    };
    let cut = |line: &str| line.rsplit_once('\t').unwrap().0.to_owned();
    type Change = Box<dyn Fn(&str) -> String>;
    let cases: [(Change, &[&str]); 4] = [
        (Box::new(cut), &["40", "39"]),
        (Box::new(field(0, "2")), &["label", "2"]),
        (Box::new(field(20, "xyz")), &["C7", "xyz"]),
        (Box::new(field(3, "1.5")), &["I3", "1.5"]),
    ];
    for (change, expected) in cases {
        let path = with_line_3(folder.path(), change);
        let message = fail(&training(&path));
        assert!(message.contains("bad.tsv: line 3:"), "{message}");
        assert!(expected.iter().all(|part| message.contains(part)), "{message} has {expected:?}");
        let skipped = json(&format!("{} --on-bad-row skip --test-fraction 0 --json", training(&path)));
        assert_eq!((&skipped["samples"], &skipped["skipped_rows"]), (&9.into(), &1.into()));
    }
}

#[test]
fn damaged_files_are_named() {
    let folder = tempfile::tempdir().unwrap();
    let plain = tsv(&folder.path().join("good.tsv"), 400);
    let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
    encoder.write_all(&fs::read(&plain).unwrap()).unwrap();
    let whole = encoder.finish().unwrap();
    let path = folder.path().join("cut.tsv.gz");
    fs::write(&path, &whole[..whole.len() / 2]).unwrap();
    let message = fail(&training(&path));
    assert!(message.contains("cut.tsv.gz") && message.contains("truncated"), "{message}");

    fs::write(&path, &whole).unwrap();
    let packed = json(&format!("{} --test-fraction 0 --json", training(&path)));
    let unpacked = json(&format!("{} --test-fraction 0 --json", training(&plain)));
    assert_eq!(packed["final_loss"], unpacked["final_loss"], "gzip and plain text train alike");

    let empty = folder.path().join("empty.tsv");
    fs::write(&empty, "").unwrap();
    assert!(fail(&training(&empty)).contains("empty.tsv"), "an empty file");
    let message = fail(&training(Path::new("/nowhere/clicks.tsv")));
    assert!(message.contains("/nowhere/clicks.tsv: cannot open"), "{message}");
}

#[test]
fn configurations_that_cannot_work_are_refused_before_any_work() {
    let line = format!("train {TINY}");
    for (further, expected) in [
        ("--set model.dims=3", "did you mean `model.dim`"),
        ("--preset kagle", "did you mean `kaggle`"),
        ("--source tvs", "data.source"),
        ("--set model.dim=16", "model.bottom ends in 8 but model.dim is 16"),
        ("--set model.top=[16,2]", "must end in 1"),
        ("--source random --set model.rows=[]", "model.rows"),
        ("--batch 0", "train.batch"),
        ("--config /nowhere.toml", "/nowhere.toml: cannot read"),
        ("--init /nowhere.safetensors", "/nowhere.safetensors: cannot open"),
        ("--lr -1", "train.lr"),
        ("--lr 1e308", "train.lr: with what scales it"),
    ] {
        // Clap takes "-1" for a flag unless it is attached.
        let further = further.replace("--lr -1", "--lr=-1");
        let message = fail(&format!("{line} {further}"));
        assert!(message.contains(expected), "{further}: {message}");
    }
    let endless = "train --source random --set model.rows=[10,20] --set model.bottom=[13,8] --set model.dim=8 --set \
                   data.test_samples=0";
    assert!(fail(endless).contains("--steps"), "an endless source needs an end");
}

#[test]
fn a_model_beyond_the_machine_names_its_largest_table() {
    let rows = "--set model.rows=[1000,4294967295,2000] --set model.dim=4096 --set model.bottom=[13,4096]";
    let message = fail(&format!("train --source random --steps 1 {rows}"));
    assert!(message.contains("table 1 (C2)") && message.contains("64.0 TiB are needed"), "{message}");
}

#[test]
fn checkpoints_that_are_none_are_named() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("run");
    let written = folder.path().join("model.safetensors");
    for line in ["eval".to_owned(), format!("export --format torch --out {}", written.display())] {
        let message = fail(&format!("{line} --checkpoint {}", out.display()));
        assert!(message.contains("there is no checkpoint"), "{message}");
    }
    fs::create_dir(&out).unwrap();
    fs::write(out.join("checkpoint.safetensors"), b"nonsense").unwrap();
    let message = fail(&format!("train --resume {}", out.display()));
    assert!(message.contains("checkpoint.safetensors") && message.contains("safetensors file"), "{message}");
}

#[test]
fn a_diverging_run_stops_and_keeps_what_was_saved() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("run");
    let line = format!("{} --out {}", tiny_training(), out.display());
    succeed(&format!("{line} --steps 3"));
    let message = fail(&format!("train --resume {} --steps 2000 --lr 1e30", out.display()));
    assert!(message.contains("diverged") && message.contains("the last checkpoint is"), "{message}");
    json(&format!("eval --checkpoint {} --json", out.display()));
}

#[test]
fn a_run_whose_loss_has_exploded_ends_before_it_saves_that() {
    let folder = tempfile::tempdir().unwrap();
    let (data, out) = (tsv(&folder.path().join("clicks.tsv"), 2000), folder.path().join("run"));
    let train = format!("train --data {} --batch 64 --eval-every 0 --rows-cap 50", data.display());
    succeed(&format!("{train} --steps 2 --out {}", out.display()));
    let file = || fs::read(out.join("checkpoint.safetensors")).unwrap();
    let before = file();
    // Adagrad's steps are bounded, so that no number is lost.
    let wild = format!("train --resume {} --steps 400 --lr 1000 --set train.checkpoint_every=4", out.display());
    let message = fail(&wild);
    assert!(
        message.contains("training diverged; use a lower --lr") && message.contains("the last checkpoint is"),
        "{message}"
    );
    let step = message.split("the loss of step ").nth(1).and_then(|rest| rest.split(' ').next()?.parse::<u64>().ok());
    assert!(file() == before, "{message}");
    // Nor does it save that where its steps end before.
    let output = succeed(&format!("{wild} --steps {}", step.unwrap() - 1));
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(said.contains("is not saved: the loss has exploded in the last 9 steps") && file() == before, "{said}");
    // The rows, whose rate is the preset's, do not move with the other.
    assert!(message.contains("note: --lr: the rows keep the rate of the run, train.lr_rows = 0.05; "), "{message}");
    assert!(said.contains("go on from that checkpoint at a lower --lr and a lower train.lr_rows, 0.05 now"), "{said}");
    let told = |out: &Path, step: u64| {
        format!("\nthe last checkpoint is that of step {step}: {}", out.join("checkpoint.safetensors").display())
    };
    assert!(said.contains(&told(&out, 2)) && !said.contains("\nsaved: "), "{said}");
    // The same where this process has saved its first step.
    let own = folder.path().join("own");
    let output = succeed(&format!("{train} --steps 9 --lr 1000 --checkpoint-every 1 --out {}", own.display()));
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(said.contains(&told(&own, 1)) && !said.contains("\nsaved: "), "{said}");
    // Nor is the last model said to be saved where an earlier one was better.
    let better = folder.path().join("better");
    let each = train.replace("--eval-every 0", "--eval-every 1");
    succeed(&format!("{each} --steps 4 --lr 0.05 --out {}", better.display()));
    let output = succeed(&format!("train --resume {} --steps 12 --lr 1000 --json", better.display()));
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(said.contains("\nbest: ") && !said.contains("is the one that is saved"), "{said}");
    assert!(said.contains(&told(&better, 4)), "{said}");
    let found: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((&found["step"], &found["saved_step"]), (&12.into(), &4.into()), "{found}");
    let found = json(&format!("train --resume {} --steps 20 --lr 0.01 --json", out.display()));
    assert_eq!((&found["outcome"], &found["saved_step"]), (&"finished".into(), &20.into()), "{found}");
}
