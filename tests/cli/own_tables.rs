//! Tables of a user's own, as other programs write them: what stands for a missing value, numbers with and without a
//! fraction, blank labels, several files, no file at all.

use std::fs::{self, File};
use std::io::Write;
use std::path::Path;
use std::process::Stdio;

use safetensors::SafeTensors;
use serde_json::Value;

use super::{fail, json, octorec, run, succeed, tiny_training, tsv};

/// A model that trains in a fraction of a second, with whatever columns the data have.
const SMALL: &str =
    "--set model.bottom=[0,8,4] --set model.top=[8,1] --set model.dim=4 --batch 50 --lr 0.1 --eval-every 0";

const SCHEMA: &str = r#"
label = "click"
dense = [{ column = "price", float = true }]
categorical = [
    { column = "segment" }, { column = "segment", name = "hashed", rows = 50 }, { column = "seen" }, { column = "user" },
]
"#;

/// Clicks as pandas writes them: integers with blanks as 18.0, truths as Python has them. The users of the last hundred
/// rows are new ones in every second.
fn clicks() -> String {
    let row = |n: u32| {
        let segment = ["18.0", "25.0", ""][(n % 3) as usize];
        let seen = if n % 5 < 2 { "True" } else { "False" };
        let user = if n >= 300 && n.is_multiple_of(2) { format!("new{}", n % 3) } else { format!("u{}", n % 7) };
        format!("{},{}.5,{segment},{seen},{user}\n", (n * 7919 / 13) % 2, n % 11)
    };
    "click,price,segment,seen,user\n".to_owned() + &(0..400).map(row).collect::<String>()
}

/// The file, its schema, and flags that name both.
fn written(folder: &Path) -> String {
    let (data, schema) = (folder.join("clicks.csv"), folder.join("clicks.toml"));
    fs::write(&data, clicks()).unwrap();
    fs::write(&schema, SCHEMA).unwrap();
    format!("--data {} --schema {}", data.display(), schema.display())
}

/// A command that reads this by standard input: its exit code, what it printed and what it said.
fn fed(line: &str, input: &Path) -> (Option<i32>, String, String) {
    let stdin = Stdio::from(File::open(input).unwrap());
    let output = octorec().args(line.split_whitespace()).stdin(stdin).output().unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (output.status.code(), text(&output.stdout), text(&output.stderr))
}

#[test]
fn objects_of_the_same_rows_have_the_same_probabilities() {
    let folder = tempfile::tempdir().unwrap();
    let (data, run, rows) = (written(folder.path()), folder.path().join("run"), folder.path().join("rows.json"));
    succeed(&format!("train {data} {SMALL} --test-fraction 0 --steps 40 --out {}", run.display()));
    let predict = format!("predict --checkpoint {} --data", run.display());
    let expected = succeed(&format!("{predict} {}", folder.path().join("clicks.csv").display())).stdout;
    let expected = String::from_utf8(expected).unwrap();
    let object = |line: &str| {
        let [_, price, segment, seen, user] = line.split(',').collect::<Vec<_>>()[..] else { panic!("{line}") };
        let segment = if segment.is_empty() { "null" } else { segment };
        let seen = seen.to_lowercase();
        format!("{{\"price\": {price}, \"segment\": {segment}, \"seen\": {seen}, \"user\": \"{user}\"}}\n")
    };
    fs::write(&rows, clicks().lines().skip(1).map(object).collect::<String>()).unwrap();
    let (code, found, told) = fed(&format!("{predict} - --format json"), &rows);
    assert_eq!(code, Some(0), "{told}");
    assert!(!told.contains("not in the model's vocabulary"), "{told}");
    let numbers = |text: &str, from: usize, behind: usize| -> Vec<f64> {
        text.lines().map(|line| line[from..line.len() - behind].parse().unwrap()).collect()
    };
    assert_eq!(numbers(&found, "{\"probability\":".len(), 1), numbers(&expected, 0, 0));
    // What is compressed, or nothing, is told.
    fs::write(&rows, b"\x1f\x8b\x08\x00\x00\x00\x00\x00").unwrap();
    let (code, _, told) = fed(&format!("{predict} -"), &rows);
    assert!(code == Some(1) && told.contains("what arrives is gzip") && told.contains("zcat FILE |"), "{told}");
    fs::write(&rows, "price,segment,seen,user\n").unwrap();
    let (code, found, told) = fed(&format!("{predict} -"), &rows);
    assert!(code == Some(0) && found.is_empty() && told.contains("0 rows came"), "{told}");
    let pipe = folder.path().join("pipe");
    assert!(std::process::Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    let message = fail(&format!("{predict} {}", pipe.display()));
    assert!(message.contains("rows are read as they arrive with --data -"), "{message}");
    for line in [format!("eval --checkpoint {} --data -", run.display()), "train --data -".to_owned()] {
        let message = fail(&line);
        assert!(message.contains("--data -: standard input can be read once"), "{line}: {message}");
    }
    assert!(fail("inspect -").contains("standard input can be read once"));
}

/// A text with a line break and a truth, as spreadsheets write both.
#[test]
fn objects_mean_what_files_of_spreadsheets_mean() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name).display().to_string();
    let schema = "label = 'click'\ndense = [{ column = 'price', float = true }]\ncategorical = [{ column = 'note' }, \
                  { column = 'note', name = 'hashed', rows = 1000 }, { column = 'seen' }]\n";
    fs::write(at("s.toml"), schema).unwrap();
    let numbers = || (0..200u32).map(|n| (n % 2, n % 11, n % 7, n % 5 < 2));
    let row = |(click, price, note, seen): (u32, u32, u32, bool)| {
        format!("{click},{price}.5,\"line\r\nbreak {note}\",{}\r\n", if seen { "TRUE" } else { "FALSE" })
    };
    fs::write(at("log.csv"), "click,price,note,seen\r\n".to_owned() + &numbers().map(row).collect::<String>()).unwrap();
    let data = format!("--data {} --schema {}", at("log.csv"), at("s.toml"));
    succeed(&format!("train {data} {SMALL} --test-fraction 0 --steps 40 --out {}", at("run")));
    let predict = format!("predict --checkpoint {} --data", at("run"));
    let expected = String::from_utf8(succeed(&format!("{predict} {}", at("log.csv"))).stdout).unwrap();
    let object = |(_, price, note, seen): (u32, u32, u32, bool)| {
        format!("{{\"price\": {price}.5, \"note\": \"line\\r\\nbreak {note}\", \"seen\": {seen}}}\n")
    };
    fs::write(at("rows.json"), numbers().map(object).collect::<String>()).unwrap();
    let (code, found, told) = fed(&format!("{predict} - --format json"), Path::new(&at("rows.json")));
    assert!(code == Some(0) && !told.contains("not in the model's vocabulary"), "{told}");
    let found = found.lines().map(|line| line["{\"probability\":".len()..line.len() - 1].parse::<f64>().unwrap());
    let expected: Vec<f64> = expected.lines().map(|line| line.parse().unwrap()).collect();
    assert_eq!(expected.len(), 200);
    assert_eq!(found.collect::<Vec<_>>(), expected);
}

#[test]
fn data_that_a_configuration_file_names_are_read_or_refused() {
    let folder = tempfile::tempdir().unwrap();
    let data = written(folder.path());
    let at = |name: &str| folder.path().join(name).display().to_string();
    let criteo = tsv(&folder.path().join("log.tsv"), 300).display().to_string();
    let mine = at("mine.toml");
    let write = |text: &str| fs::write(&mine, format!("[train]\nseed = 7\n{text}")).unwrap();
    let printed = |line: &str| String::from_utf8(succeed(&format!("config --config {mine} {line}")).stdout).unwrap();
    write("");
    let [described, of_criteo] = [printed(&data), printed(&format!("--data {criteo}"))];
    assert!(
        described.contains("source = \"files\"") && of_criteo.contains("source = \"tsv\""),
        "{described}{of_criteo}"
    );
    write(&format!("[data]\npath = {criteo:?}\n"));
    assert_eq!(printed(""), of_criteo, "as --data says it");
    write(&format!("[data]\npath = {:?}\nschema = {:?}\n", at("clicks.csv"), at("clicks.toml")));
    assert_eq!(printed(""), described);
    // A preset's generator gives way, too; one that the command line asks for does not.
    assert!(printed("--preset demo").contains("source = \"files\""));
    let generated = printed("--source criteo");
    assert!(generated.contains("source = \"criteo\"") && generated.contains("path = \"\""), "{generated}");
    // As a file it says the same: so do those of a search's trials.
    let again = at("again.toml");
    fs::write(&again, &generated).unwrap();
    assert_eq!(String::from_utf8(succeed(&format!("config --config {again}")).stdout).unwrap(), generated);
    for line in [
        format!("train --config {mine} {SMALL} --steps 3 --out {}", at("run")),
        format!("train --resume {} --steps 6", at("run")),
    ] {
        let told = String::from_utf8(succeed(&line).stderr).unwrap();
        assert!(told.contains("clicks.csv") && !told.contains("built-in click log"), "{line}: {told}");
    }
    // What would not be read is refused where it stands.
    let names = format!("mine.toml:5: data.path names data, but data.source = \"criteo\" ({mine}:4) generates others");
    let nobody = "mine.toml:4: data.schema belongs to data that nothing names: name them".to_owned();
    for (text, told) in
        [("[data]\nsource = \"criteo\"\npath = \"a.csv\"\n", names), ("[data]\nschema = \"s.toml\"\n", nobody)]
    {
        write(text);
        for command in ["train --steps 3", "config", "inspect --hot"] {
            let message = fail(&format!("{command} --config {mine}"));
            assert!(message.contains(&told), "{command}: {message}");
        }
    }
    // Which data, the command line may say.
    write(&format!("[data]\nschema = {:?}\n", at("clicks.toml")));
    assert_eq!(printed(&format!("--data {}", at("clicks.csv"))), described);
}

#[test]
fn a_configuration_is_printed_as_the_data_make_it() {
    let folder = tempfile::tempdir().unwrap();
    let data = written(folder.path());
    let mine = folder.path().join("mine.toml");
    let config = succeed(&format!("config {data} --eval-every 0")).stdout;
    let text = String::from_utf8(config.clone()).unwrap();
    assert!(text.contains("bottom = [1, 128, 64, 16]") && text.contains("\"hashed\""), "{text}");
    let table: toml::Table = text.parse().unwrap();
    assert_eq!(table["model"]["rows"].to_string(), "[3, 50, 2, 10]", "users u0 to u6, and three that are new");
    fs::write(&mine, config).unwrap();
    succeed(&format!("train --config {} --steps 3", mine.display()));
    let svg = folder.path().join("network.svg");
    succeed(&format!("config {data} --svg {}", svg.display()));
    assert!(!fs::read_to_string(&svg).unwrap().contains("13 numbers"));
    // A file that tells of the model what the data would is enough, unless other data are named.
    fs::remove_file(folder.path().join("clicks.csv")).unwrap();
    let again = succeed(&format!("config --config {} --svg {}", mine.display(), svg.display())).stdout;
    assert_eq!(String::from_utf8(again).unwrap(), text);
    let other = folder.path().join("other.csv");
    assert!(fail(&format!("config --config {} --data {}", mine.display(), other.display())).contains("other.csv"));
}

#[test]
fn a_decay_of_ones_own_begins_at_once_and_one_that_never_begins_is_told() {
    let folder = tempfile::tempdir().unwrap();
    let line = format!(
        "train {} {SMALL} --steps 10 --set train.decay=exponential --set train.decay_steps=5",
        written(folder.path())
    );
    let told = |more: &str| String::from_utf8(succeed(&format!("{line} {more}")).stderr).unwrap();
    let message = told("");
    assert!(message.contains("; decaying from step 1 on") && !message.contains("warning: the rate"), "{message}");
    let message = told("--set train.decay_start=50");
    assert!(message.contains("warning: the rate decays from step 50 on, and the run has 10 steps"), "{message}");
    assert!(message.contains("--set train.decay_start=0 has it"), "{message}");
    // Once the rate has risen.
    let message = told("--set train.warmup_steps=4");
    assert!(message.contains("; decaying from step 4 on") && !message.contains("warning: the rate"), "{message}");
    let message = told("--set train.warmup_steps=4 --set train.decay_start=50");
    assert!(message.contains("--set train.decay_start=4 has it decay from the end of the warm-up"), "{message}");
    let message = told("--set train.warmup_steps=4 --set train.decay_start=4");
    assert!(!message.contains("warning: the rate"), "{message}");
    let message = told("--set train.warmup_steps=20");
    assert!(message.contains("choose train.warmup_steps, 20 now"), "{message}");
    // Rows have a course of their own, and other ways to decay an end.
    let message = told("--set train.warmup_steps_rows=2 --set train.decay_rows=cosine");
    assert!(message.contains("; layers decaying from step 1 on; rows decaying in steps 2 to 7"), "{message}");
    let message = told("--set train.decay_start_rows=50");
    assert!(message.contains("warning: the rate of rows decays from step 50 on, and the run has 10"), "{message}");
    assert!(message.contains("--set train.decay_start_rows=0 has it"), "{message}");
}

#[test]
fn users_that_the_vocabulary_does_not_know_are_no_group_but_told_of() {
    let folder = tempfile::tempdir().unwrap();
    let (data, run) = (written(folder.path()), folder.path().join("run"));
    for vocab in ["train", "all"] {
        succeed(&format!(
            "train {data} {SMALL} --vocab {vocab} --test-fraction 0.25 --steps 5 --force --out {}",
            run.display()
        ));
        let eval = format!("eval --checkpoint {} --gauc user --by user", run.display());
        let found = json(&format!("{eval} --json"));
        let without = if vocab == "train" { 50 } else { 0 };
        assert_eq!(found["gauc_samples_without_group"].as_u64(), Some(without), "{vocab}: {found}");
        let values = found["by_value"]["values"].as_array().unwrap();
        let of = |name: &str| values.iter().find(|value| value["value"] == name).map(|value| value["samples"].clone());
        // Of the last hundred rows every second one is of u0 to u6.
        assert!((6..=8).contains(&of("u3").unwrap().as_u64().unwrap()), "{found}");
        let unseen: Vec<_> = values.iter().filter(|value| value["unseen"] == true).collect();
        let shown = String::from_utf8(succeed(&eval).stdout).unwrap();
        assert!(shown.contains("\n  user ") && shown.contains("\n  u3 "), "{shown}");
        if vocab == "train" {
            assert!(unseen.len() == 1 && unseen[0]["samples"] == 50 && unseen[0]["value"].is_null(), "{found}");
            assert!(shown.contains("\n  (unseen values) ") && values.len() == 8 && *unseen[0] == values[0], "{shown}");
        } else {
            assert!(unseen.is_empty() && values.len() == 10 && of("new1").is_some(), "{found}");
        }
    }
    // Of hashed columns and numbers nobody knows the text; blank is one.
    let found = json(&format!("eval --checkpoint {} --by hashed --json", run.display()));
    assert!(found["by_value"]["values"][0]["value"].is_null() && found["by_value"]["count"] == 3, "{found}");
    let shown =
        String::from_utf8(succeed(&format!("eval --checkpoint {} --by segment", run.display())).stdout).unwrap();
    assert!(shown.contains("\n  (blank) ") && shown.contains("\n  18.0 "), "{shown}");
}

#[test]
fn columns_that_the_model_does_not_have_group_samples_too() {
    let folder = tempfile::tempdir().unwrap();
    let (data, run, other) = (written(folder.path()), folder.path().join("run"), folder.path().join("other.csv"));
    // Segments are hashed alone, and users are none of the model's.
    let schema = SCHEMA.replace("{ column = \"segment\" }, ", "").replace(", { column = \"user\" },", "");
    assert!(schema.matches("column = ").count() == 3 && schema.contains("hashed"), "{schema}");
    fs::write(folder.path().join("clicks.toml"), schema).unwrap();
    succeed(&format!("train {data} {SMALL} --test-fraction 0.25 --steps 5 --out {}", run.display()));
    let line = |flags: &str| format!("eval --checkpoint {} {flags}", run.display());
    let eval = |flags: &str| json(&line(&format!("{flags} --json")));
    // The same segments, by their rows and by their texts.
    let (hashed, segment) = (eval("--gauc hashed --by hashed"), eval("--gauc segment --by segment"));
    let scores = |found: &Value| {
        let values = found["by_value"]["values"].as_array().unwrap().iter();
        let of = |value: &Value| ["logloss", "auc", "calibration"].map(|key| value[key].as_f64().unwrap());
        let mut scores: Vec<_> = values.map(of).collect();
        scores.sort_by(|a, b| a[0].total_cmp(&b[0]));
        scores
    };
    assert!(scores(&hashed) == scores(&segment) && scores(&segment).len() == 3, "{hashed} and {segment}");
    assert!((hashed["gauc"].as_f64().unwrap() - segment["gauc"].as_f64().unwrap()).abs() < 1e-12);
    let users = eval("--gauc segment --by user --ranks 1 --threads 1");
    assert_eq!(users, eval("--gauc segment --by user --ranks 3 --threads 2"));
    let values = users["by_value"]["values"].as_array().unwrap();
    let of_new = values.iter().filter(|value| value["value"].as_str().unwrap().starts_with("new"));
    let samples = of_new.map(|value| value["samples"].as_u64().unwrap()).sum::<u64>();
    assert!((values.len(), samples) == (10, 50), "{users}");
    // Text that nobody can enter in its middle is read by one rank for all.
    let packed = folder.path().join("clicks.csv.gz");
    let mut file = flate2::write::GzEncoder::new(File::create(&packed).unwrap(), flate2::Compression::fast());
    file.write_all(clicks().as_bytes()).unwrap();
    file.finish().unwrap();
    let of =
        |file: &str| eval(&format!("--data {}/{file} --gauc segment --by user --ranks 3", folder.path().display()));
    assert_eq!(of("clicks.csv.gz"), of("clicks.csv"));
    let message = fail(&line("--by usr"));
    let told = ["--by: ", "called usr (they are hashed, seen)", "clicks.csv", "has no column usr", "click, price"];
    assert!(told.iter().all(|words| message.contains(words)), "{message}");
    // Which rows are samples only the model's columns tell.
    fs::write(&other, clicks() + "1,1.5,18.0,True\n").unwrap();
    let skip = format!("--data {} --on-bad-row skip", other.display());
    succeed(&line(&format!("{skip} --by seen")));
    let message = fail(&line(&format!("{skip} --gauc user")));
    let told =
        ["--gauc: ", "called user", "1 malformed row", "name a column of the model, or score data without such rows"];
    assert!(told.iter().all(|words| message.contains(words)), "{message}");
}

#[test]
fn crosses_of_a_preset_that_the_data_lack_have_a_remedy() {
    let folder = tempfile::tempdir().unwrap();
    let line = format!("train --preset wide-deep {} --steps 3", written(folder.path()));
    let message = fail(&line);
    assert!(message.contains("unknown categorical column `C6`"), "{message}");
    assert!(message.contains("or none with --set model.wide_crosses=[]"), "{message}");
    succeed(&format!("{line} --set model.wide_crosses=[]"));
}

#[test]
fn several_files_become_a_data_set() {
    let folder = tempfile::tempdir().unwrap();
    written(folder.path());
    let (parts, blocks) = (folder.path().join("parts"), folder.path().join("blocks"));
    fs::create_dir(&parts).unwrap();
    for name in ["a.csv", "b.csv"] {
        fs::write(parts.join(name), clicks()).unwrap();
    }
    let schema = folder.path().join("clicks.toml");
    let remedy = format!("preprocess csv --in {} --schema", parts.display());
    let message = fail(&format!("inspect {}", parts.display()));
    assert!(message.contains(&remedy), "{message}");
    succeed(&format!("{remedy} {} --out {}", schema.display(), blocks.display()));
    // Whoever names several of them is told how.
    let [a, b] = ["a.csv", "b.csv"].map(|name| parts.join(name).display().to_string());
    for line in [format!("train --data {a} --data {b}"), format!("predict --checkpoint run --data {a} {b}")] {
        let output = run(&line);
        let message = String::from_utf8(output.stderr).unwrap();
        assert!(output.status.code() == Some(2) && message.contains("--data FOLDER"), "{message}");
    }
}

#[test]
fn files_of_a_folder_are_one_table() {
    let folder = tempfile::tempdir().unwrap();
    written(folder.path());
    let at = |name: &str| folder.path().join(name).display().to_string();
    // Cut where other values come first, in the order of the numbers in their names; one is packed, and the schema lies
    // beside them.
    let (text, parts) = (clicks(), folder.path().join("parts"));
    let lines: Vec<&str> = text.split_inclusive('\n').collect();
    let rows = |from: usize, to: usize| lines[0].to_owned() + &lines[1 + from..=to].concat();
    fs::create_dir(&parts).unwrap();
    fs::write(parts.join("day_2.csv"), rows(0, 130)).unwrap();
    fs::write(parts.join("day_10.csv"), rows(130, 310)).unwrap();
    let mut packed = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    packed.write_all(rows(310, 400).as_bytes()).unwrap();
    fs::write(parts.join("day_11.csv.gz"), packed.finish().unwrap()).unwrap();
    fs::copy(at("clicks.toml"), parts.join("clicks.toml")).unwrap();
    let weights = |name: &str| {
        let whole = fs::read(at(&format!("{name}/checkpoint.safetensors"))).unwrap();
        let tensors = SafeTensors::deserialize(&whole).unwrap();
        let mut tensors: Vec<_> =
            tensors.iter().map(|(name, tensor)| (name.to_owned(), tensor.data().to_vec())).collect();
        tensors.sort();
        tensors
    };
    for (number, more) in ["", "--vocab train --test-fraction 0.3"].into_iter().enumerate() {
        let names = ["one", "several"].map(|name| format!("{name}{number}"));
        for (name, data) in names.iter().zip(["clicks.csv", "parts"]) {
            let data = format!("--data {} --schema {}", at(data), at("clicks.toml"));
            succeed(&format!("train {data} {SMALL} --threads 1 --steps 12 {more} --out {}", at(name)));
        }
        assert!(weights(&names[0]) == weights(&names[1]), "{more}");
        let eval = |name: &str| json(&format!("eval --checkpoint {} --json", at(name)));
        if !more.is_empty() {
            assert_eq!(eval(&names[0]), eval(&names[1]));
        }
        let predict =
            |data: &str| succeed(&format!("predict --checkpoint {} --data {}", at(&names[0]), at(data))).stdout;
        assert!(predict("clicks.csv") == predict("parts"), "{more}");
    }
    succeed(&format!("train --resume {} --steps 14", at("several1")));
    // By two ranks, the last file as that of tests; and in a folder of its own, which is as good.
    let schema = format!("--schema {}", at("clicks.toml"));
    let train = |data: &str| format!("train --data {} {schema} {SMALL} --threads 1 --steps 6", at(data));
    let (last, tests) = (parts.join("day_11.csv.gz"), folder.path().join("tests"));
    let message = fail(&format!("{} --test-data {}", train("parts"), last.display()));
    assert!(message.contains("day_11.csv.gz is among what data.path"), "{message}");
    assert!(message.contains("move it out of the folder"), "{message}");
    let message = fail(&format!("{} --test-data {}", train("parts/day_2.csv"), at("parts")));
    assert!(message.contains("day_2.csv is among what data.path"), "{message}");
    fs::create_dir(&tests).unwrap();
    fs::rename(&last, tests.join("day_11.csv.gz")).unwrap();
    let scores: Vec<Value> = ["tests", "tests/day_11.csv.gz"]
        .into_iter()
        .map(|data| {
            json(&format!("{} --ranks 2 --comm-cores 0 --test-data {} --json", train("parts"), at(data)))["auc"].clone()
        })
        .collect();
    assert!(scores[0].is_number() && scores[0] == scores[1], "{scores:?}");
    // What would be read as data is written elsewhere, or in a folder within.
    let message = fail(&format!("{} --out {}", train("parts"), at("parts")));
    assert!(message.contains("--out: a run lies in ") && message.contains("read as data"), "{message}");
    let predict = format!("predict --checkpoint {} --data {} --out", at("one0"), at("parts"));
    let message = fail(&format!("{predict} {}", at("parts/p.txt")));
    assert!(message.contains("p.txt lies in ") && message.contains("name a place outside that folder"), "{message}");
    succeed(&format!("{} --out {}", train("parts"), at("parts/run")));
    succeed(&format!("{predict} {}", at("parts/run/p.txt")));
    // Malformed rows of several files are left out, and samples for tests may begin where a file does.
    fs::write(parts.join("day_2.csv"), rows(0, 130) + "1,x,,,\n").unwrap();
    fs::write(
        parts.join("day_10.csv"),
        "click,price,segment,seen,user\n1,x,,,\n".to_owned() + &lines[131..=260].concat(),
    )
    .unwrap();
    fs::write(at("clicks.csv"), rows(0, 260)).unwrap();
    let [one, several] = ["clicks.csv", "parts"].map(|data| {
        json(&format!(
            "{} --on-bad-row skip --test-fraction 0.5 --out {} --json",
            train(data),
            at(&format!("{data}-half"))
        ))
    });
    assert_eq!(one["auc"], several["auc"]);
    assert!(weights("clicks.csv-half") == weights("parts-half"));
    let message = String::from_utf8(succeed(&format!("{} --on-bad-row skip", train("parts"))).stderr).unwrap();
    assert!(message.contains("left out 2 malformed rows"), "{message}");
    fs::write(parts.join("day_2.csv"), rows(0, 130)).unwrap();
    // What is wrong is told of the file that it is in.
    fs::write(parts.join("day_10.csv"), rows(130, 310) + "1,x,,,\n").unwrap();
    let message = fail(&format!("train --data {} --schema {} {SMALL} --steps 3", at("parts"), at("clicks.toml")));
    assert!(message.contains("day_10.csv: line 182: column price"), "{message}");
    let message = fail(&format!("predict --checkpoint {} --data {} --on-bad-row answer", at("one0"), at("parts")));
    assert!(message.contains("one file after another"), "{message}");
    let message = fail(&format!("predict --checkpoint {} --data {}", at("one0"), at("parts")));
    assert!(message.contains("day_10.csv: line 182") && !message.contains("--on-bad-row"), "{message}");
    assert!(message.contains("end the line: a probability is written for every row"), "{message}");
    // A day without rows is a note, and none with any an error.
    let header = rows(0, 0);
    fs::write(parts.join("day_10.csv"), rows(130, 310)).unwrap();
    let predict = format!("predict --checkpoint {} --data {}", at("one0"), at("parts"));
    let whole = succeed(&predict).stdout;
    fs::write(parts.join("day_1.csv"), &header).unwrap();
    fs::write(parts.join("day_11.csv"), "").unwrap();
    let output = succeed(&predict);
    let told = String::from_utf8(output.stderr).unwrap();
    assert!(told.contains("no rows are in day_1.csv, day_11.csv") && output.stdout == whole, "{told}");
    fs::write(parts.join("day_2.csv"), &header).unwrap();
    fs::write(parts.join("day_10.csv"), &header).unwrap();
    let message = fail(&predict);
    assert!(message.contains("day_1.csv: has no rows behind its header"), "{message}");
}

#[test]
fn columns_that_are_hashed_to_fewer_rows_than_values_are_told() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name).display().to_string();
    let row = |n: u32| format!("{},{n},u{}\n", n % 2, n % 200);
    fs::write(at("clicks.csv"), "click,price,user\n".to_owned() + &(0..400).map(row).collect::<String>()).unwrap();
    // There are 200 values.
    for (rows, more, told_rows) in [
        (48, "", Some(48)),
        (100, "", Some(100)),
        (250, "", None),
        (5000, "", None),
        // So few tell nothing.
        (8, "", None),
        (5000, "--rows-cap 48", Some(48)),
    ] {
        let column = format!("{{ column = 'user', rows = {rows} }}");
        fs::write(
            at("s.toml"),
            format!("label = 'click'\ndense = [{{ column = 'price' }}]\ncategorical = [{column}]\n"),
        )
        .unwrap();
        let line = format!("train --data {} --schema {} {SMALL} --steps 1 {more}", at("clicks.csv"), at("s.toml"));
        let message = String::from_utf8(succeed(&line).stderr).unwrap();
        assert_eq!(message.contains("column user has about "), told_rows.is_some(), "{message}");
        assert!(told_rows.is_none_or(|rows| message.contains(&format!("hashed to {rows} rows"))), "{message}");
    }
}

#[test]
fn remedies_for_a_model_s_own_schema_are_of_the_data() {
    let folder = tempfile::tempdir().unwrap();
    let data = written(folder.path());
    let at = |name: &str| folder.path().join(name).display().to_string();
    succeed(&format!("train {data} {SMALL} --test-fraction 0 --steps 3 --out {}", at("run")));
    let text = clicks();
    fs::write(at("tabs.csv"), text.replace(',', "\t")).unwrap();
    fs::write(at("rows.csv"), text.split_once('\n').unwrap().1).unwrap();
    let words = text.lines().map(|line| match line.split_once(',').unwrap() {
        ("0", rest) => format!("false,{rest}\n"),
        ("1", rest) => format!("true,{rest}\n"),
        _ => format!("{line}\n"),
    });
    fs::write(at("words.csv"), words.collect::<String>()).unwrap();
    for command in ["eval", "predict"] {
        let of = |name: &str| fail(&format!("{command} --checkpoint {} --data {}", at("run"), at(name)));
        let message = of("tabs.csv");
        let told =
            "has no column price: the line looks separated by tabs, and this model's own schema has delimiter = \",\"";
        assert!(message.contains(told) && !message.contains("say delimiter"), "{message}");
        let message = of("rows.csv");
        assert!(
            message.contains("looks like a row, not like the names of columns: put the line of names"),
            "{message}"
        );
        assert!(!message.contains("columns = "), "{message}");
    }
    let message = fail(&format!("eval --checkpoint {} --data {}", at("run"), at("words.csv")));
    assert!(message.contains("if all rows have such labels, write them as 0 and 1"), "{message}");
    // Predictions do not need them, of files as of rows that arrive.
    let predicted = |name: &str| succeed(&format!("predict --checkpoint {} --data {}", at("run"), at(name))).stdout;
    let expected = predicted("clicks.csv");
    assert!(!expected.is_empty());
    assert_eq!(predicted("words.csv"), expected);
    let rows = File::open(at("words.csv")).unwrap();
    let arrived = octorec().args(["predict", "--checkpoint", &at("run"), "--data", "-"]).stdin(rows).output().unwrap();
    assert_eq!(arrived.stdout, expected, "{}", String::from_utf8_lossy(&arrived.stderr));
    let train = |name: &str| format!("train --data {} --schema {} {SMALL} --steps 3", at(name), at("clicks.toml"));
    let message = fail(&train("rows.csv"));
    assert!(message.contains("looks like a row, not like the names of columns"), "{message}");
    assert!(message.contains("(columns = [..])") && !message.contains("did you mean"), "{message}");
    // As pandas writes a table with its index; a name may be a number.
    let indexed = |(at, line): (usize, &str)| match at {
        0 => format!(",2026,{line}\n"),
        _ => format!("{at},x,{line}\n"),
    };
    fs::write(at("pandas.csv"), text.lines().enumerate().map(indexed).collect::<String>()).unwrap();
    succeed(&train("pandas.csv"));
    fs::write(at("pandas.csv"), fs::read_to_string(at("pandas.csv")).unwrap().replacen("price", "prise", 1)).unwrap();
    let message = fail(&train("pandas.csv"));
    assert!(message.contains("has no column price (did you mean prise?)"), "{message}");
    // Weights that were learned for other labels.
    let init = format!("--init {}", at("run/checkpoint.safetensors"));
    let told = |line: &str| String::from_utf8(succeed(line).stderr).unwrap();
    assert!(!told(&format!("{} {init}", train("clicks.csv"))).contains("label = "));
    fs::write(at("clicks.toml"), SCHEMA.replace("\"click\"", "\"click != 1\"")).unwrap();
    let message = told(&format!("{} {init}", train("clicks.csv")));
    assert!(
        message.contains("trained with label = \"click\", and these data have label = \"click != 1\""),
        "{message}"
    );
}

#[test]
fn a_model_of_blocks_predicts_text_by_their_vocabulary() {
    let folder = tempfile::tempdir().unwrap();
    written(folder.path());
    let at = |name: &str| folder.path().join(name).display().to_string();
    let preprocess =
        |text: &str, more: &str| format!("preprocess csv --in {} --schema {} {more}", at(text), at("clicks.toml"));
    succeed(&preprocess("clicks.csv", &format!("--out {}", at("blocks"))));
    succeed(&format!("train --data {} {SMALL} --test-fraction 0 --steps 40 --out {}", at("blocks"), at("run")));
    let predict = |data: &str| format!("predict --checkpoint {} --data {}", at("run"), at(data));
    let message = fail(&predict("clicks.csv"));
    let remedy = format!("preprocess csv --in {} --schema FILE --vocabulary {}", at("clicks.csv"), at("blocks"));
    assert!(message.contains(&remedy), "{message}");
    // The remedy, and rows that have no label.
    let rows: String = clicks().lines().map(|line| line.split_once(',').unwrap().1.to_owned() + "\n").collect();
    fs::write(at("rows.csv"), rows).unwrap();
    let message = fail(&preprocess("rows.csv", &format!("--out {}", at("rows"))));
    assert!(message.contains("has no column click"), "{message}");
    let expected = succeed(&predict("blocks")).stdout;
    for text in ["clicks.csv", "rows.csv"] {
        let out = text.replace(".csv", "");
        let output = succeed(&preprocess(text, &format!("--vocabulary {} --out {}", at("blocks"), at(&out))));
        let message = String::from_utf8(output.stderr).unwrap();
        let told = format!("{} has no column click: these blocks have no labels", at(text));
        assert_eq!(message.contains(&told), text == "rows.csv", "{message}");
        assert_eq!(succeed(&predict(&out)).stdout, expected, "{text}");
    }
    // A slip of the header's.
    fs::write(at("slip.csv"), clicks().replacen("click,", "clicked,", 1)).unwrap();
    let output = succeed(&preprocess("slip.csv", &format!("--vocabulary {} --out {}", at("blocks"), at("slip"))));
    let message = String::from_utf8(output.stderr).unwrap();
    assert!(message.contains("has no column click (did you mean clicked?): these blocks have no labels"), "{message}");
    let eval = |data: &str| format!("eval --checkpoint {} --data {}", at("run"), at(data));
    succeed(&eval("clicks"));
    for line in [eval("rows"), format!("train --data {} {SMALL} --steps 3", at("rows"))] {
        let message = fail(&line);
        assert!(message.contains("has samples without a label, which `octorec predict` alone reads"), "{message}");
    }
    assert_eq!(json(&format!("inspect {} --json", at("rows")))["label_rate"], serde_json::Value::Null);
}

#[test]
fn blocks_of_another_vocabulary_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    written(folder.path());
    let at = |name: &str| folder.path().join(name).display().to_string();
    // The same values, which come in another order.
    let text = clicks();
    let (header, rows) = text.split_once('\n').unwrap();
    let rows: String = rows.lines().rev().map(|row| format!("{row}\n")).collect();
    fs::write(at("turned.csv"), format!("{header}\n{rows}")).unwrap();
    let preprocess = |text: &str, more: &str| {
        succeed(&format!("preprocess csv --in {} --schema {} --out {more}", at(text), at("clicks.toml")))
    };
    preprocess("clicks.csv", &at("blocks"));
    preprocess("turned.csv", &at("turned"));
    preprocess("turned.csv", &format!("{} --vocabulary {}", at("again"), at("blocks")));
    let rows = |set: &str| fs::read_to_string(format!("{}/dataset.toml", at(set))).unwrap();
    assert_eq!(rows("turned"), rows("blocks"), "their numbers of rows tell nothing");
    let train = format!("train {SMALL} --test-fraction 0");
    succeed(&format!("{train} --data {} --steps 8 --out {}", at("blocks"), at("run")));
    let (begin, resume) = (format!("{train} --steps 3 --init {}", at("run/checkpoint.safetensors")), at("resumed"));
    let uses = |data: &str| {
        fs::create_dir_all(&resume).unwrap();
        fs::read_dir(at("run")).unwrap().for_each(|file| {
            let file = file.unwrap();
            fs::copy(file.path(), Path::new(&resume).join(file.file_name())).unwrap();
        });
        let data = at(data);
        [
            format!("predict --checkpoint {} --data {data}", at("run")),
            format!("eval --checkpoint {} --data {data}", at("run")),
            format!("{begin} --data {data}"),
            format!("train --resume {resume} --steps 10 --data {data}"),
        ]
    };
    for data in ["turned", "turned/part-00000.octo"] {
        for line in uses(data) {
            let message = fail(&line);
            assert!(message.contains("is not the vocabulary that this model was trained with"), "{line}: {message}");
            assert!(message.contains("--vocabulary DIR") && message.contains(&at("blocks")), "{line}: {message}");
        }
    }
    let tested = |data: &str| format!("train {SMALL} --steps 3 --data {} --test-data {}", at("blocks"), at(data));
    let message = fail(&tested("turned"));
    assert!(message.contains("has other values in the rows of column"), "{message}");
    assert!(message.contains(&format!("--vocabulary {}", at("blocks"))), "{message}");
    // The remedy, a copy, and blocks that lie away from their vocabularies; other formats have no place for them.
    succeed(&format!("convert {} {} --format octorec", at("again"), at("copy")));
    succeed(&format!("convert {} {} --format torchrec", at("turned"), at("arrays")));
    fs::create_dir(at("away")).unwrap();
    fs::copy(at("turned/part-00000.octo"), at("away/part-00000.octo")).unwrap();
    for data in ["again", "copy", "again/part-00000.octo"] {
        uses(data).iter().for_each(|line| drop(succeed(line)));
    }
    succeed(&tested("copy"));
    for data in ["away/part-00000.octo", "arrays"] {
        succeed(&uses(data)[0]);
    }
    // A run that goes on with such blocks still knows by which vocabulary its rows are numbered.
    fs::copy(at("again/part-00000.octo"), at("away/again.octo")).unwrap();
    let [.., begin, resume] = uses("away/again.octo");
    succeed(&begin);
    succeed(&resume);
    let message = fail(&format!("predict --checkpoint {} --data {}", at("resumed"), at("turned")));
    assert!(message.contains("is not the vocabulary that this model was trained with"), "{message}");
    // Beside others, in either place.
    for (train, tests) in [("away/again.octo", "copy"), ("copy", "away/again.octo")] {
        succeed(&format!("train {SMALL} --steps 3 --data {} --test-data {}", at(train), at(tests)));
    }
    succeed(&format!("{} --no-verify", uses("turned")[0]));
}

#[test]
fn blank_labels_and_texts_for_nothing_are_told_and_left_out() {
    let folder = tempfile::tempdir().unwrap();
    let (data, schema) = (folder.path().join("log.csv"), folder.path().join("log.toml"));
    let row = |n: u32| {
        let click = if n % 20 == 3 { String::new() } else { (n % 2).to_string() };
        let city = if n.is_multiple_of(10) { String::new() } else { format!("c{}", n % 7) };
        let age = match n % 25 {
            1 => "NULL".to_owned(),
            2 => "NaN".to_owned(),
            _ => format!("{n}.5"),
        };
        format!("{click},{city},{age}\n")
    };
    fs::write(&data, "click,city,age\n".to_owned() + &(0..200).map(row).collect::<String>()).unwrap();
    let line = format!("inspect {}", data.display());
    let message = fail(&line);
    assert!(message.contains("column click can be the label (click), but is blank in 10 rows"), "{message}");
    assert!(message.contains("--on-bad-row skip"), "{message}");
    let message = fail(&format!("{line} --label click"));
    assert!(message.contains("line 5") && message.contains("--on-bad-row skip"), "{message}");
    let line = format!("{line} --on-bad-row skip --write-schema {}", schema.display());
    let output = succeed(&line);
    assert!(String::from_utf8_lossy(&output.stderr).contains("left out 10 malformed rows"));
    let found = json(&format!("{line} --json"));
    let (city, age) = (&found["categorical"][0], &found["dense"][0]);
    let share = |value: &serde_json::Value, rows: f64| (value.as_f64().unwrap() - rows / 190.0).abs() < 1e-9;
    assert!(share(&city["missing"], 20.0) && share(&age["missing"], 16.0), "{found}");
    assert_eq!(city["distinct"].as_u64(), Some(7), "{found}");
    let text = fs::read_to_string(&schema).unwrap();
    assert!(text.contains("missing = [\"NaN\", \"NULL\"]") && text.contains("# 7 different values"), "{text}");
    assert!(text.contains("count as blank in every column"), "{text}");
    // As it was proposed.
    let train = format!("train --data {} --schema {} {SMALL} --steps 3", data.display(), schema.display());
    succeed(&format!("{train} --on-bad-row skip"));
    fs::write(&schema, text.replace("missing = [\"NaN\", \"NULL\"]", "")).unwrap();
    assert!(fail(&format!("{train} --on-bad-row fail")).contains("found \"NULL\""));
    fs::write(&schema, text.replace("\"NaN\"", "\" NaN\"")).unwrap();
    assert!(fail(&train).contains("a text without blanks around it is expected"));
    // Without a header.
    fs::write(&data, "0,36,C\n1,77,C\n0,50,D\n").unwrap();
    let message = String::from_utf8(succeed(&format!("inspect {}", data.display())).stderr).unwrap();
    assert!(message.contains("its first line, which is taken for the names of columns, looks like a row"), "{message}");
    fs::write(&data, "u1,buy,3\nu2,see,4\nu3,buy,5\n").unwrap();
    let message = fail(&format!("inspect {}", data.display()));
    assert!(message.contains("does not look like names of columns") && message.contains("columns = [..]"), "{message}");
}

/// A table of a user, a day and a label of 200 rows, with a schema that has this rule and takes "NULL" for blank: flags
/// that name both.
fn labelled(folder: &Path, label: impl Fn(u32) -> &'static str, rule: &str) -> String {
    let (data, schema) = (folder.join("log.csv"), folder.join("log.toml"));
    let rows: String = (0..200).map(|n| format!("{},u{},d{}\n", label(n), n % 7, n % 5)).collect();
    fs::write(&data, format!("target,user,day\n{rows}")).unwrap();
    let columns = "categorical = [{ column = \"user\" }, { column = \"day\" }]";
    fs::write(&schema, format!("label = \"{rule}\"\nmissing = [\"NULL\"]\n{columns}\n")).unwrap();
    format!("--data {} --schema {}", data.display(), schema.display())
}

#[test]
fn rows_whose_label_is_missing_are_no_negatives() {
    let folder = tempfile::tempdir().unwrap();
    let run = folder.path().join("run");
    let label = |n: u32| match n % 10 {
        3 => "",
        4 => "NULL",
        _ if n.is_multiple_of(2) => "True",
        _ => "False",
    };
    for rule in ["target == True", "target != False"] {
        let data = labelled(folder.path(), label, rule);
        let train = format!("train {data} {SMALL} --steps 3 --test-fraction 0 --force --out {}", run.display());
        let message = fail(&train);
        let told = "line 5: column target: a text that is not missing is expected, found \"\": mend the line, or leave such \
                    rows out with --on-bad-row skip";
        assert!(message.contains(told), "{message}");
        // The remedy.
        let output = succeed(&format!("{train} --on-bad-row skip"));
        let message = String::from_utf8(output.stderr).unwrap();
        assert!(message.contains("160 training and 0 test samples"), "{message}");
        assert!(message.contains("warning: 20.0 % of all rows (40 of 200) are malformed"), "{message}");
        let inspect = format!("inspect {} --on-bad-row skip --json", data.strip_prefix("--data ").unwrap());
        let found = json(&inspect);
        assert_eq!((&found["rows"], &found["label_rate"]), (&160.into(), &0.5.into()), "{found}");
    }
    // A prediction needs no label.
    let log = folder.path().join("log.csv");
    let output = succeed(&format!("predict --checkpoint {} --data {}", run.display(), log.display()));
    assert_eq!(output.stdout.iter().filter(|byte| **byte == b'\n').count(), 200);
}

#[test]
fn texts_for_nothing_become_no_negatives_by_what_a_label_is_told() {
    let folder = tempfile::tempdir().unwrap();
    let schema = folder.path().join("log.toml");
    // Beside 0 and 1.
    let bits = |n: u32| if n % 10 == 3 { "nan" } else { ["0", "1"][(n % 2) as usize] };
    let train = format!("train {} {SMALL} --steps 3 --test-fraction 0", labelled(folder.path(), bits, "target"));
    let message = fail(&train);
    let told = "line 5: column target: the label 0 or 1 is expected, found \"nan\": if there is no label where it stands, \
                say missing = [\"nan\"] in the schema and leave such rows out with --on-bad-row skip";
    assert!(message.contains(told) && !message.contains("target =="), "{message}");
    // The remedy.
    let text = fs::read_to_string(&schema).unwrap();
    fs::write(&schema, text.replace("[\"NULL\"]", "[\"nan\"]")).unwrap();
    let message = String::from_utf8(succeed(&format!("{train} --on-bad-row skip")).stderr).unwrap();
    assert!(message.contains("180 training and 0 test samples") && !message.contains("all rows are"), "{message}");
    // Where they are one of the two.
    let dates = |n: u32| if n.is_multiple_of(4) { "2024-03-01" } else { "NULL" };
    let log = folder.path().join("log.csv");
    for (rule, remedy, rate) in [("target != NULL", "target !=", 0.25), ("target == NULL", "target ==", 0.75)] {
        let message = fail(&format!("train {} {SMALL} --steps 3", labelled(folder.path(), dates, rule)));
        let told = format!("log.toml: label = {rule:?}: \"NULL\" counts as blank (missing)");
        assert!(message.contains(&told) && message.contains(&format!("(label = {remedy:?})")), "{message}");
        let message = fail(&format!("inspect {} --label {}", log.display(), rule.replace(' ', "")));
        assert!(message.contains(&format!("--label: label = {rule:?}: \"NULL\" counts as blank")), "{message}");
        succeed(&format!("train {} {SMALL} --steps 3", labelled(folder.path(), dates, remedy)));
        let found = json(&format!("inspect {} --label {} --json", log.display(), remedy.replace(' ', "")));
        assert_eq!((&found["rows"], &found["label_rate"]), (&200.into(), &rate.into()), "{found}");
    }
}

#[test]
fn a_label_is_found_behind_a_blank_in_the_header() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name).display().to_string();
    let rows: String = (0..200).map(|n| format!("u{}, {}.5, {}\n", n % 7, n % 5, n % 2)).collect();
    fs::write(at("log.csv"), format!("user, price, label\n{rows}")).unwrap();
    let inspect = format!("inspect {}", at("log.csv"));
    succeed(&format!("{inspect} --write-schema {}", at("proposed.toml")));
    let found = json(&format!("{inspect} --label label --json"));
    assert_eq!((&found["rows"], &found["label_rate"]), (&200.into(), &0.5.into()), "{found}");
    let train = |schema: &str| {
        format!("train --data {} --schema {} {SMALL} --test-fraction 0 --steps 3", at("log.csv"), at(schema))
    };
    succeed(&format!("{} --out {}", train("proposed.toml"), at("run")));
    succeed(&format!("eval --checkpoint {} --data {}", at("run"), at("log.csv")));
    let own = "label = \"label\"\ndense = [{ column = \" price\", float = true }]\n\
               categorical = [{ column = \"user\" }]\n";
    fs::write(at("own.toml"), own).unwrap();
    succeed(&train("own.toml"));
    fs::write(at("told.toml"), own.replace("\" price\", float = true", "\" label\"")).unwrap();
    let message = fail(&train("told.toml"));
    assert!(message.contains("[[dense]] column = \" label\" reads as a feature"), "{message}");
}

#[test]
fn a_trained_model_reads_by_its_schema_without_advice_on_training() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name).display().to_string();
    let rows = |rating: fn(u32) -> u32| -> String {
        (0..200).map(|n| format!("{},u{},{}\n", rating(n), n % 7, n % 3)).collect()
    };
    let write = |name: &str, rows: &str| fs::write(at(name), format!("rating,user,age\n{rows}")).unwrap();
    write("log.csv", &rows(|n| 1 + n * 7919 % 5));
    // Hashed, so that there is no vocabulary.
    let schema =
        "label = \"rating >= 4\"\ndense = [{ column = \"age\" }]\n[[categorical]]\ncolumn = \"user\"\nrows = 50\n";
    fs::write(at("log.toml"), schema).unwrap();
    let data = format!("--data {} --schema {}", at("log.csv"), at("log.toml"));
    succeed(&format!("train {data} {SMALL} --test-fraction 0.25 --steps 5 --out {}", at("run")));
    // Groups by the label's own column, of which no feature may be made.
    let eval = format!("eval --checkpoint {}", at("run"));
    let found = json(&format!("{eval} --by rating --json"));
    let values = found["by_value"]["values"].as_array().unwrap();
    assert_eq!(values.len(), 5, "{found}");
    for value in values {
        let rating: u32 = value["value"].as_str().unwrap().parse().unwrap();
        assert_eq!(value["label_rate"].as_f64(), Some(f64::from(u8::from(rating >= 4))), "{found}");
    }
    // Of one class there is nothing to learn, but something to score.
    write("low.csv", &rows(|n| 1 + n % 3));
    let scored = format!("{eval} --data {} --by rating", at("low.csv"));
    let message = String::from_utf8(succeed(&scored).stderr).unwrap();
    assert!(!message.contains("can be learned"), "{message}");
    let train = format!("train --data {} --schema {} {SMALL} --steps 3", at("low.csv"), at("log.toml"));
    let init = format!("--init {}/checkpoint.safetensors", at("run"));
    for (more, which) in [
        (String::new(), "rows"),
        // Whatever the test samples are.
        (format!("--test-data {}", at("log.csv")), "training rows"),
        (format!("{init} --on-bad-row skip --test-data {}", at("log.csv")), "training rows"),
    ] {
        let message = String::from_utf8(succeed(&format!("{train} {more}")).stderr).unwrap();
        let told = format!(
            "low.csv: all {which} are negative by label = \"rating >= 4\": nothing can be learned of one class"
        );
        assert!(message.contains(&told), "{message}");
    }
    succeed(&format!("train {data} {SMALL} --test-fraction 0.25 --steps 3 --out {}", at("ended")));
    let more = format!("train --resume {} --data {} --epochs 3 --steps 0", at("ended"), at("low.csv"));
    let message = String::from_utf8(succeed(&more).stderr).unwrap();
    assert!(message.contains("all rows are negative"), "{message}");
    // Its schema is the checkpoint's, which nobody edits.
    write("odd.csv", "5,u1,-\n");
    let message = fail(&format!("{eval} --data {}", at("odd.csv")));
    let told = "column age: a finite number is expected, found \"-\": mend the line, or leave such rows out";
    assert!(message.contains(told), "{message}");
}

#[test]
fn labels_of_other_values_are_told_with_the_rule_that_reads_them() {
    let folder = tempfile::tempdir().unwrap();
    let two = |[no, yes]: [&'static str; 2]| move |n: u32| if n.is_multiple_of(2) { yes } else { no };
    let train = |label: [&'static str; 2], rule: &str| {
        format!("train {} {SMALL} --steps 3", labelled(folder.path(), two(label), rule))
    };
    for (label, found, rule) in [
        (["-1", "1"], "-1", "target > 0"),
        (["0", "0.7"], "0.7", "target > 0"),
        (["False", "True"], "True", "target == True"),
    ] {
        let line = train(label, "target");
        let message = fail(&line);
        let told =
            format!("the label 0 or 1 is expected, found \"{found}\": say in the schema which rows are positive");
        assert!(message.contains(&told) && message.contains(&format!("(label = \"{rule}\")")), "{message}");
        assert!(!message.contains("--on-bad-row"), "this would leave all rows of one kind out: {message}");
        if label == ["-1", "1"] {
            let message = String::from_utf8(succeed(&format!("{line} --on-bad-row skip")).stderr).unwrap();
            assert!(message.contains("warning: 50.0 % of all rows (100 of 200) are malformed"), "{message}");
            let one = "all rows are positive by label = \"target\", perhaps because the negative ones are among the 100 \
                       malformed rows left out";
            assert!(message.contains(one), "{message}");
        }
        // The remedy.
        let message = String::from_utf8(succeed(&train(label, rule)).stderr).unwrap();
        assert!(!message.contains("all rows are") && !message.contains("malformed"), "{message}");
    }
    // As pandas writes a column of integers with gaps.
    succeed(&train(["0.0", "1.0"], "target"));
}

#[test]
fn what_was_learned_of_columns_is_told_in_their_order_and_of_many_in_a_line() {
    let folder = tempfile::tempdir().unwrap();
    let (data, schema) = (folder.path().join("log.csv"), folder.path().join("log.toml"));
    let told = |columns: &[u32]| {
        let names: String = columns.iter().map(|n| format!(",n{n}")).collect();
        let rows: String = (0..100)
            .map(|n| format!("{},u{}{}\n", n % 2, n % 9, format!(",{}.5", n % 7).repeat(columns.len())))
            .collect();
        fs::write(&data, format!("click,user{names}\n{rows}")).unwrap();
        let dense = columns.iter().map(|n| format!("[[dense]]\ncolumn = \"n{n}\"\ntransform = \"standardise\"\n"));
        let user = "label = \"click\"\n[[categorical]]\ncolumn = \"user\"\n";
        fs::write(&schema, user.to_owned() + &dense.collect::<String>()).unwrap();
        let line = format!("train --data {} --schema {} {SMALL} --steps 3", data.display(), schema.display());
        String::from_utf8(succeed(&line).stderr).unwrap()
    };
    let message = told(&[2, 10, 1]);
    let at =
        |name: &str| message.find(&format!("column {name}: mean 3.")).unwrap_or_else(|| panic!("{name}: {message}"));
    assert!(at("n2") < at("n10") && at("n10") < at("n1"), "{message}");
    let message = told(&(0..11).collect::<Vec<_>>());
    assert!(message.contains("11 columns: means and standard deviations learned"), "{message}");
    assert!(!message.contains("column n1"), "{message}");
}

#[test]
fn weights_that_cannot_be_begun_with_say_how_to_mend_them() {
    let folder = tempfile::tempdir().unwrap();
    let (run, file) = (folder.path().join("run"), folder.path().join("model.pt"));
    let line = format!("{} --steps 3", tiny_training());
    let init = format!("{line} --no-verify --init {}", file.display());
    fs::write(&file, b"PK\x03\x04\x00\x00\x08\x08\x00\x00").unwrap();
    assert!(fail(&init).contains("safetensors.torch.save_file(state_dict,"));
    let table = "sparse_arch.embedding_bag_collection.embedding_bags.t_cat_0.weight";
    for (name, mended) in [
        ("module.emb_l.0.weight", "name.removeprefix(\"module.\")"),
        ("model.emb_l.0.weight", "name.removeprefix(\"model.\")"),
        (&format!("model.{table}"), "name.removeprefix(\"model.\")"),
        (&format!("module.model.{table}"), "name.removeprefix(\"module.model.\")"),
        ("bot_l.module.0.weight", "name.replace(\".module.\", \".\")"),
    ] {
        let head = format!(r#"{{"{name}":{{"dtype":"F32","shape":[1],"data_offsets":[0,4]}}}}"#);
        fs::write(&file, [&(head.len() as u64).to_le_bytes()[..], head.as_bytes(), &[0; 4]].concat()).unwrap();
        let message = fail(&init);
        assert!(message.contains(mended) && message.contains(&format!("has tensor {name},")), "{name}: {message}");
    }
    succeed(&format!("{line} --out {}", run.display()));
    let mut bytes = fs::read(run.join("checkpoint.safetensors")).unwrap();
    let (head, metadata) = SafeTensors::read_metadata(&bytes).unwrap();
    let at = 8 + head + metadata.info("top_l.2.bias").unwrap().data_offsets.0;
    bytes[at..at + 4].copy_from_slice(&f32::NAN.to_le_bytes());
    fs::write(&file, bytes).unwrap();
    let message = fail(&init);
    assert!(message.contains("tensor top_l.2.bias of --init") && !message.contains("lower --lr"), "{message}");
}

#[test]
fn a_run_that_does_not_begin_leaves_no_folder() {
    let folder = tempfile::tempdir().unwrap();
    let (runs, missing) = (folder.path().join("runs"), folder.path().join("missing.tsv"));
    fail(&format!("train --data {} --out {}", missing.display(), runs.join("first").display()));
    assert!(!runs.exists());
    // What was there stays.
    fs::create_dir(&runs).unwrap();
    fail(&format!("train --data {} --out {}", missing.display(), runs.join("first").display()));
    assert!(runs.exists() && !runs.join("first").exists());
}

#[test]
fn a_column_is_worth_what_scores_lose_without_its_values() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name).display().to_string();
    let row = |n: u32| {
        let user = n * 7919 % 20;
        format!("{},{}.5,u{user},c{}\n", u32::from(user < 10), n * 31 % 97, n * 17 % 5)
    };
    fs::write(at("log.csv"), format!("click,price,user,city\n{}", (0..3000).map(row).collect::<String>())).unwrap();
    let columns = "dense = [{ column = \"price\", transform = \"standardise\" }]\ncategorical = [{ column = \"user\" }, \
                   { column = \"city\" }]\n";
    fs::write(at("log.toml"), format!("label = \"click\"\n{columns}")).unwrap();
    let data = format!("--data {} --schema {}", at("log.csv"), at("log.toml"));
    succeed(&format!("train {data} {SMALL} --test-fraction 0.25 --out {}", at("run")));
    let eval = format!("eval --checkpoint {}", at("run"));
    let plain = json(&format!("{eval} --json"));
    for ranks in [1, 2] {
        let found = json(&format!("{eval} --importance --json --ranks {ranks} --threads 1"));
        assert_eq!(found["samples"], plain["samples"]);
        let worth = found["importance"].as_array().unwrap();
        assert_eq!(worth.len(), 3, "{found}");
        let number = |column: &Value, key: &str| column[key].as_f64().unwrap();
        for (n, column) in worth.iter().enumerate() {
            let lost = number(&found, "auc") - number(column, "auc");
            assert!((lost - number(column, "auc_drop")).abs() < 1e-12, "{found}");
            assert_eq!(n == 0, column["column"] == "user", "{found}");
            assert!(if n == 0 { lost > 0.3 } else { lost.abs() < 0.05 }, "{found}");
        }
        assert!(worth.is_sorted_by(|a, b| number(a, "logloss_rise") >= number(b, "logloss_rise")), "{found}");
    }
    let told = String::from_utf8(succeed(&format!("{eval} --importance")).stdout).unwrap();
    assert!(
        told.contains("values exchanged of") && told.contains("\n  user ") && told.contains("\n  price "),
        "{told}"
    );
    assert!(plain.get("importance").is_none() && told.lines().count() > 9, "{told}");
}
