//! What octorec says: of what happened, of what is wrong and of what to do, in words that are true.

use std::fmt::Write;
use std::fs;

use super::{fail, octorec, run, succeed, tiny_training, tsv};

/// What a command that succeeds tells people.
fn told(line: &str) -> String {
    String::from_utf8(succeed(line).stderr).unwrap()
}

#[test]
fn one_thing_is_no_plural_and_nothing_is_not_counted() {
    let folder = tempfile::tempdir().unwrap();
    let line = format!("{} --steps 1 --threads 1", tiny_training().replace("--epochs 1", ""));
    let message = told(&line);
    assert!(message.contains(": 1 thread on cpu "), "{message}");
    assert!(message.contains("\n1 step, 64 samples in "), "{message}");
    assert!(!message.contains("read 0 B") && !message.contains("0.000"), "no zero counters: {message}");
    let data = tsv(&folder.path().join("good.tsv"), 200);
    let mut text = fs::read_to_string(&data).unwrap();
    text.push_str("1\tshort\n");
    fs::write(&data, text).unwrap();
    let bad = format!("train --data {} --set train.eval_every=0 --steps 1 --batch 64", data.display());
    let message = told(&format!("{bad} --on-bad-row skip"));
    assert!(message.contains("left out 1 malformed row\n"), "{message}");
    // A cpu that many threads share is named once.
    let message = told(&format!("{line} --threads 64"));
    assert!(message.contains(": 64 threads on cpu") && message.matches("0-1").count() <= 2, "{message}");
}

#[test]
fn waiting_for_data_is_told_once() {
    let folder = tempfile::tempdir().unwrap();
    let data = tsv(&folder.path().join("good.tsv"), 500);
    let message = told(&format!("train --data {} --set train.eval_every=0 --steps 3 --batch 64", data.display()));
    let spent = message.lines().find(|line| line.starts_with("3 steps")).unwrap();
    assert!(spent.contains("the first minibatch took") && spent.contains("later steps waited"), "{spent}");
    assert_eq!(message.matches("wait").count(), 1, "{message}");
    assert!(!message.contains("0 B/0 B"), "{message}");
}

#[test]
fn a_test_set_of_one_class_says_why_it_has_no_auc() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("run");
    let data = tsv(&folder.path().join("good.tsv"), 300);
    let ones: String = fs::read_to_string(&data).unwrap().lines().fold(String::new(), |mut text, line| {
        let _ = writeln!(text, "{}{}", 1, &line[1..]);
        text
    });
    let (one, none) = (folder.path().join("ones.tsv"), folder.path().join("zeros.tsv"));
    fs::write(&one, &ones).unwrap();
    let zeros: String = ones.lines().map(|line| format!("0{}\n", &line[1..])).collect();
    fs::write(&none, zeros).unwrap();
    let quick = "--set train.eval_every=0 --steps 2 --batch 64";
    let train = format!("train --data {} {quick} --test-data", data.display());
    let message = told(&format!("{train} {} --out {}", none.display(), out.display()));
    assert!(message.contains("all labels are 0; AUC and calibration need samples of both kinds"), "{message}");
    assert!(!message.contains("NaN") && !message.contains("inf"), "{message}");
    let output = succeed(&format!("eval --checkpoint {} --data {}", out.display(), one.display()));
    let (results, message) = (String::from_utf8(output.stdout).unwrap(), String::from_utf8(output.stderr).unwrap());
    assert!(results.contains("AUC          -\n") && results.contains("label rate   1.0"), "{results}");
    assert!(message.contains("all labels are 1; an AUC needs samples of both kinds"), "{message}");
    // The remedy.
    let output = succeed(&format!("eval --checkpoint {} --data {}", out.display(), data.display()));
    assert!(String::from_utf8(output.stdout).unwrap().contains("AUC          0."));
}

#[test]
fn a_diverged_run_names_the_column_that_is_not_scaled() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name).display().to_string();
    let mut text = "clicked,price,paid,shop\n".to_owned();
    for row in 0..400 {
        let _ = writeln!(text, "{},{},{}e7,s{}", u32::from(row % 3 == 0), row % 7, row % 100 + 1, row % 11);
    }
    fs::write(at("data.csv"), text).unwrap();
    let schema = |transform: &str| {
        let schema = format!(
            "label = \"clicked\"\n[[dense]]\ncolumn = \"price\"\n[[dense]]\ncolumn = \"paid\"\nfloat = true\n\
             {transform}\n[[categorical]]\ncolumn = \"shop\"\n"
        );
        fs::write(at("schema.toml"), schema).unwrap();
    };
    schema("");
    let line =
        format!("train --data {} --schema {} --batch 64 --epochs 2 --eval-every 0", at("data.csv"), at("schema.toml"));
    let sgd = format!("{line} --optimizer sgd --optimizer-rows sgd --lr 1");
    let message = fail(&sgd);
    assert!(message.contains("training diverged; dense feature 2 of 2 (paid) reaches"), "{message}");
    assert!(message.contains("transform = \"log\""), "{message}");
    // Adagrad's steps are bounded.
    let told = |line: &str| String::from_utf8(succeed(line).stderr).unwrap();
    let message = told(&line);
    assert!(message.contains("warning: the loss of the first step is "), "{message}");
    assert!(message.contains(": dense feature 2 of 2 (paid) reaches"), "{message}");
    schema("transform = \"log\"");
    let [sgd, own] = [sgd.replace("--lr 1", "--lr 0.1"), line].map(|line| told(&line));
    assert!(!sgd.contains("warning") && !own.contains("warning"), "{sgd}{own}");
}

#[test]
fn what_a_first_loss_comes_of_is_looked_for_among_the_inputs_whose_turn_it_is() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name).display().to_string();
    // Every other row from the 100th on has a shop of its own, and a large price: cold inputs, whose turn is the first.
    let mut text = "clicked,price,shop\n".to_owned();
    for row in 0..500 {
        let (price, shop) = if row >= 100 && row % 2 == 0 { ("5e7", row) } else { ("1", row % 4) };
        let _ = writeln!(text, "{},{price},s{shop}", u32::from(row % 3 == 0));
    }
    fs::write(at("data.csv"), text).unwrap();
    let schema =
        "label = \"clicked\"\n[[dense]]\ncolumn = \"price\"\nfloat = true\n[[categorical]]\ncolumn = \"shop\"\n";
    fs::write(at("schema.toml"), schema).unwrap();
    // The four common shops have copies, of 8 KiB each.
    let model = "--set model.bottom=[1,32,1024] --set model.top=[32,1] --set model.dim=1024";
    let output = run(&format!(
        "train --data {} --schema {} {model} --batch 50 --steps 2 --no-shuffle --threads 1 --hot fae --hot-budget 32KiB",
        at("data.csv"),
        at("schema.toml")
    ));
    let message = String::from_utf8(output.stderr).unwrap();
    assert!(message.contains("look up hot rows alone"), "{message}");
    assert!(message.contains("warning: the loss of the first step is "), "{message}");
    assert!(message.contains(": dense feature 1 of 1 (price) reaches 5e7 in this minibatch"), "{message}");
}

#[test]
fn help_begins_with_what_is_used_most_and_hides_what_is_not_honoured() {
    let help = |command: &[&str]| {
        let output = octorec().args(command).arg("--help").output().unwrap();
        String::from_utf8(output.stdout).unwrap()
    };
    let train = help(&["train"]);
    let place = |what: &str| train.find(what).unwrap_or_else(|| panic!("{what}: {train}"));
    let order = ["--data <", "--epochs <", "--lr <", "--ranks <", "\nData:", "\nModel:", "\nTraining:", "\nOutput:"];
    assert!(order.windows(2).all(|pair| place(pair[0]) < place(pair[1])), "{train}");
    let words = train.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(words.contains("newest moments that octorec's checkpoint or export has of them"), "{words}");
    let plan = help(&["plan"]);
    assert!(plan.contains("--batch <") && !plan.contains("--lr <") && !plan.contains("--target-auc"), "{plan}");
    let message = fail("plan --lr 3");
    assert!(message.contains("--lr: `octorec plan` does not use train.lr: leave it away"), "{message}");
}
