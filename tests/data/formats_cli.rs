//! Data sets as a user of the command meets them: generated, converted, verified, inspected, trained on, and
//! interrupted.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::{Command, Output};
use std::time::{Duration, Instant};

use octorec::data::formats::Format;
use octorec::data::stack_distance::StackProfile;
use serde_json::Value;

const TINY: &str = "--set model.bottom=[13,32,8] --set model.top=[16,1] --set model.dim=8 --batch 64 --lr 0.1 \
                    --eval-every 0";

fn octorec(line: &str) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_octorec"));
    command.args(line.split_whitespace());
    command
}

fn run(line: &str, code: i32) -> Output {
    let output = octorec(line).output().unwrap();
    assert_eq!(output.status.code(), Some(code), "octorec {line}\n{}", String::from_utf8_lossy(&output.stderr));
    output
}

fn json(line: &str) -> Value {
    serde_json::from_slice(&run(line, 0).stdout).unwrap()
}

fn fail(line: &str) -> String {
    String::from_utf8_lossy(&run(line, 1).stderr).into_owned()
}

fn generate(to: &Path, format: &str) {
    let sizes = "--set data.train_samples=1280 --set data.test_samples=320";
    run(&format!("data generate {} --format {format} {sizes}", to.display()), 0);
}

#[test]
fn every_format_gives_the_same_losses_and_resumes_exactly() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    let shown = |name: &str| at(name).display().to_string();
    run(
        &format!(
            "train {TINY} --set data.train_samples=1280 --set data.test_samples=320 --epochs 1 --trace-loss {}",
            shown("own")
        ),
        0,
    );
    let expected = std::fs::read_to_string(at("own")).unwrap();
    for format in [
        "octorec",
        "mlperf",
        "torchrec",
        #[cfg(feature = "parquet")]
        "parquet",
    ] {
        generate(&at(format), format);
        let message = run(&format!("data verify {}", shown(format)), 0);
        assert!(String::from_utf8_lossy(&message.stdout).contains("sound, 1,600 samples"));
        run(&format!("train {TINY} --data {} --epochs 1 --trace-loss {}", shown(format), shown("trace")), 0);
        assert_eq!(std::fs::read_to_string(at("trace")).unwrap(), expected, "{format}");
        if format == "torchrec" {
            continue;
        }
        // 9 steps and the rest are the whole, in shuffled windows smaller than the data.
        let window = "--set data.shuffle_window=500";
        let data = shown(format);
        run(&format!("train {TINY} {window} --data {data} --steps 22 --out {}", shown("whole")), 0);
        run(&format!("train {TINY} {window} --data {data} --steps 9 --out {}", shown("parts")), 0);
        run(&format!("train --resume {} --steps 22", shown("parts")), 0);
        let eval = |run: &str| json(&format!("eval --checkpoint {} --data {data} --json", shown(run)));
        assert_eq!(eval("whole"), eval("parts"), "{format}");
        std::fs::remove_dir_all(at("whole")).unwrap();
        std::fs::remove_dir_all(at("parts")).unwrap();
    }
}

#[test]
fn damage_is_found_by_verify_and_by_training() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("log");
    generate(&path, "octorec");
    let part = path.join("part-00000.octo");
    let mut bytes = std::fs::read(&part).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle..middle + 64].iter_mut().for_each(|byte| *byte ^= 0x55);
    std::fs::write(&part, &bytes).unwrap();
    for line in [format!("data verify {}", path.display()), format!("train {TINY} --data {}", path.display())] {
        let message = fail(&line);
        assert!(message.contains("part-00000.octo: block 0 (samples 0 to 1279), column "), "{message}");
        assert!(message.contains("copy or write the file again"), "{message}");
    }
    std::fs::write(&part, &bytes[..middle]).unwrap();
    let message = fail(&format!("data verify {}", path.display()));
    assert!(message.contains("is truncated at byte"), "{message}");
}

#[test]
fn names_of_no_format_are_refused_with_those_that_there_are() {
    let folder = tempfile::tempdir().unwrap();
    let [from, to] = ["from", "to"].map(|name| folder.path().join(name).display().to_string());
    for line in [
        format!("data verify {from} --format torchrek"),
        format!("inspect {from} --format torchrek"),
        format!("convert {from} {to} --format torchrek"),
        format!("convert {from} {to} --from-format torchrek"),
        format!("data generate {to} --format torchrek"),
    ] {
        let message = String::from_utf8_lossy(&run(&line, 2).stderr).into_owned();
        assert!(message.contains("invalid value 'torchrek'"), "{message}");
        assert!(Format::ALL.iter().all(|format| message.contains(format.name())), "{message}");
    }
    generate(Path::new(&from), "octorec");
    let message = fail(&format!("convert {from} {to} --format csv"));
    assert!(message.contains("octorec writes no csv: choose one of octorec, "), "{message}");
}

#[test]
fn inspect_tells_the_same_of_every_format() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name).display().to_string();
    generate(&folder.path().join("a"), "octorec");
    run(&format!("convert {} {} --format mlperf", at("a"), at("b")), 0);
    let (a, b) = (json(&format!("inspect {} --json", at("a"))), json(&format!("inspect {} --json", at("b"))));
    assert_eq!((&a["rows"], &a["rows_total"], &a["format"]), (&1600.into(), &1600.into(), &"octorec".into()));
    assert_eq!((&a["categorical"], &a["label_rate"]), (&b["categorical"], &b["label_rate"]));
    #[cfg(feature = "parquet")]
    {
        run(&format!("convert {} {} --format parquet --codec zstd", at("a"), at("p")), 0);
        let mut parquet = json(&format!("inspect {} --json", at("p")));
        assert_eq!(parquet["format"], "parquet");
        parquet["format"] = a["format"].clone();
        assert_eq!(parquet, a);
    }
    let rate = a["label_rate"].as_f64().unwrap();
    assert!((0.1..0.5).contains(&rate), "{rate}");
    let missing = |found: &Value| found["dense"][0]["missing"].as_f64().unwrap();
    assert!(missing(&a) > 0.1 && missing(&b) == 0.0, "the 160-byte layout has no missing integers");
    let column = &a["categorical"][2];
    let share = column["hottest_share"].as_f64().unwrap();
    assert!(column["distinct"].as_u64().unwrap() <= column["rows"].as_u64().unwrap() && share > 0.0 && share < 1.0);
    let text = run(&format!("inspect {} --rows 100 --write-schema {}", at("a"), at("schema.toml")), 0);
    let text = String::from_utf8_lossy(&text.stdout).into_owned();
    assert!(text.contains("octorec: 200 of 1,600 rows") && text.contains('█'), "{text}");
    assert!(std::fs::read_to_string(at("schema.toml")).unwrap().contains("name = \"C26\""));
}

#[test]
fn the_help_of_commands_that_read_data_names_every_format() {
    let names = Format::ALL.map(Format::name).join(", ");
    for command in ["inspect", "data verify", "convert"] {
        let help = String::from_utf8(run(&format!("{command} --help"), 0).stdout).unwrap();
        let help = help.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(help.contains(&names), "{command}: {help}");
    }
}

#[test]
fn rows_of_torchrecs_tables_are_kept_as_the_note_says() {
    let folder = tempfile::tempdir().unwrap();
    generate(folder.path(), "torchrec");
    std::fs::remove_file(folder.path().join("schema.toml")).unwrap();
    let inspect = format!("inspect {}", folder.path().display());
    let said = || String::from_utf8(run(&inspect, 0).stderr).unwrap();
    let keep = format!("{inspect} --write-schema {}/schema.toml", folder.path().display());
    assert!(said().contains(&format!("octorec {keep} keeps them")), "{}", said());
    run(&keep, 0);
    assert!(!said().contains("keeps them"));
}

#[test]
fn text_with_a_header_trains_as_described() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name).display().to_string();
    let mut text = "user,genres,year,rating\n".to_owned();
    for n in 0..600u32 {
        text += &format!("u{},g{}|g{},{},{}\n", n % 37, n % 5, n % 7, 1900 + n % 90, 1 + n % 5);
    }
    std::fs::write(at("ratings.csv"), &text).unwrap();
    let found = run(&format!("inspect {} --write-schema {}", at("ratings.csv"), at("schema.toml")), 0);
    let found = String::from_utf8_lossy(&found.stdout).into_owned();
    assert!(found.contains("csv: 600 rows") && found.contains("genres"), "{found}");
    let tiny = "--set model.bottom=[0,16,8] --set model.top=[16,1] --set model.dim=8 --batch 32";
    let data = format!("--data {} --schema {}", at("ratings.csv"), at("schema.toml"));
    let trained = json(&format!("train {tiny} {data} --epochs 1 --json --out {}", at("run")));
    assert_eq!(trained["samples"], 540);
    // The run keeps its vocabulary: other files get the same row numbers, whatever the order of their values.
    let all = json(&format!("eval --checkpoint {} --data {} --json", at("run"), at("ratings.csv")));
    assert_eq!(all["samples"], 600);
    let predict = |name: &str| {
        run(&format!("predict --checkpoint {} --data {} --out {}", at("run"), at(name), at("clicks")), 0);
        let text = std::fs::read_to_string(at("clicks")).unwrap();
        text.lines().map(str::to_owned).collect::<Vec<_>>()
    };
    let expected = predict("ratings.csv");
    let rows: Vec<String> = text.lines().map(str::to_owned).collect();
    // Backwards, and without labels.
    let unlabelled = |row: &String| row.rsplit_once(',').unwrap().0.to_owned() + "\n";
    let new: String = [&rows[0]].into_iter().chain(rows[1..].iter().rev()).map(unlabelled).collect();
    std::fs::write(at("new.csv"), new).unwrap();
    assert!(predict("new.csv").iter().eq(expected.iter().rev()));
    std::fs::write(at("unseen.csv"), "user,genres,year,rating\nu1,g1,1900,1\nu1,g1|zzz,1900,2\nyyy,g1,1900,2\n")
        .unwrap();
    let unseen = run(&format!("predict --checkpoint {} --data {}", at("run"), at("unseen.csv")), 0);
    let said = String::from_utf8_lossy(&unseen.stderr).into_owned();
    assert!(said.contains("2 categorical values were not in the model's vocabulary"), "{said}");
    let clicks: Vec<_> = String::from_utf8_lossy(&unseen.stdout).lines().map(str::to_owned).collect();
    assert_eq!((clicks.len(), clicks[0] == clicks[1]), (3, true), "an unknown genre is no look-up");
    // Training goes on with the row numbers that it has, so it needs known values.
    let message = fail(&format!("train --resume {} --epochs 2 --data {}", at("run"), at("unseen.csv")));
    assert!(
        message.contains("unseen.csv: line 3: column genres: the value \"zzz\" is not in the vocabulary"),
        "{message}"
    );
    run(&format!("convert {} {} --schema {}", at("ratings.csv"), at("blocks"), at("schema.toml")), 0);
    let of_blocks = format!("train {tiny} --data {} --epochs 1 --json --out {}", at("blocks"), at("of-blocks"));
    assert_eq!(json(&of_blocks)["samples"], 540);
    // The same rows in another order have other numbers, which the values beside them tell.
    let turned: Vec<&str> = rows[..1].iter().chain(rows[1..].iter().rev()).map(String::as_str).collect();
    std::fs::write(at("turned.csv"), turned.join("\n")).unwrap();
    run(&format!("convert {} {} --schema {}", at("turned.csv"), at("turned"), at("schema.toml")), 0);
    let verified = run(&format!("data verify {}", at("turned")), 0);
    assert!(String::from_utf8_lossy(&verified.stdout).contains("600 samples, 3 vocabularies"));
    let eval = |data: &str| format!("eval --checkpoint {} --data {}", at("of-blocks"), at(data));
    assert_eq!(json(&format!("{} --json", eval("blocks")))["samples"], 600);
    let message = fail(&eval("turned"));
    assert!(message.contains("the vocabulary of these data is not the vocabulary that"), "{message}");
    assert!(message.contains("of column genres"), "{message}");
    assert!(fail(&format!("train {tiny} --data {}", at("ratings.csv"))).contains("name one with --schema FILE"));
}

#[test]
fn profiles_are_all_written_or_none_and_never_over_their_data() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name).display().to_string();
    let (text, schema) = ("label,a,b\n1,x,\n0,y,\n1,x,p|q\n0,z,q\n", "label = 'label'\n");
    let schema = format!("{schema}[[categorical]]\ncolumn = 'a'\n[[categorical]]\ncolumn = 'b'\nseparator = '|'\n");
    std::fs::write(at("day_0.csv"), text).unwrap();
    std::fs::write(at("schema_1.toml"), &schema).unwrap();
    let profile = |data: &str| format!("data profile {} --schema {}", at(data), at("schema_1.toml"));
    for (trace, input) in [("day_j.csv", "day_0.csv"), ("schema_j.toml", "schema_1.toml")] {
        let message = fail(&format!("{} --trace {}", profile("day_0.csv"), at(trace)));
        assert!(message.contains("--trace: ") && message.contains("is an input of this command"), "{message}");
        assert!(message.contains(input), "{message}");
    }
    // Only later rows have values in the second column.
    let message = fail(&format!("{} --rows 2 --trace {}", profile("day_0.csv"), at("dist_j.log")));
    assert!(message.contains("column b has no look-up to profile"), "{message}");
    // Names are judged before the data are read, which are damaged here.
    generate(&folder.path().join("log"), "octorec");
    let part = folder.path().join("log/part-00000.octo");
    let mut bytes = std::fs::read(&part).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle..middle + 64].iter_mut().for_each(|byte| *byte ^= 0x55);
    std::fs::write(&part, &bytes).unwrap();
    let damaged = |trace: &str| fail(&format!("data profile {} --trace {}", at("log"), at(trace)));
    assert!(damaged("dist_j.log").contains("part-00000.octo: block 0"));
    let message = damaged("dist.log");
    assert!(message.contains("dist.log has no `j` for a column's number"), "{message}");
    let names =
        std::fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let mut names: Vec<_> = names.collect();
    names.sort();
    assert_eq!(names, ["day_0.csv", "log", "schema_1.toml"]);
    assert_eq!(std::fs::read_to_string(at("day_0.csv")).unwrap(), text);
    run(&format!("{} --trace {}", profile("day_0.csv"), at("dist_j.log")), 0);
    let rows = |column: u32| StackProfile::read(Path::new(&at(&format!("dist_{column}.log")))).unwrap().rows.len();
    assert_eq!([rows(0), rows(1)], [3, 2]);
}

#[test]
fn look_ups_are_generated_with_the_locality_of_a_trace() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name).display().to_string();
    generate(&folder.path().join("log"), "octorec");
    run(&format!("data profile {} --trace {}", at("log"), at("dist_emb_j.log")), 0);
    let small = "--set data.train_samples=3000 --set data.test_samples=0 --format mlperf";
    run(&format!("data generate {} {small} --access lru --trace {}", at("lru"), at("dist_emb_j.log")), 0);
    run(&format!("data profile {} --trace {}", at("lru"), at("again_j.log")), 0);
    // The share of look-ups that were made not long ago is that of the trace; the click log's own would be so, too, but
    // the same rows must come in the same order of first appearance, which it has not.
    for column in [2, 9] {
        let [from, to] = ["dist_emb", "again"]
            .map(|name| StackProfile::read(&folder.path().join(format!("{name}_{column}.log"))).unwrap());
        let common = from.rows.len().min(to.rows.len());
        assert!(common > 100 && from.rows[..common] == to.rows[..common], "column {column}");
        let near = |profile: &StackProfile| {
            let at = profile.distances.partition_point(|&distance| distance <= 64);
            profile.cumulative[at - 1] - profile.cumulative[0]
        };
        assert!((near(&from) - near(&to)).abs() < 0.1, "column {column}: {} {}", near(&from), near(&to));
    }
    let message = fail(&format!("data generate {} {small} --access lru --trace {}", at("x"), at("none.txt")));
    assert!(message.contains("none.txt has no `j` for a column's number"), "{message}");
}

#[test]
fn a_killed_conversion_leaves_no_data_set_and_is_done_again() {
    let folder = tempfile::tempdir().unwrap();
    let to = folder.path().join("log");
    let line = format!("data generate {} --set data.train_samples=1000000000", to.display());
    let mut child = octorec(&line).stderr(std::process::Stdio::null()).spawn().unwrap();
    let partial = to.join("unfinished/.part-00000.octo.octorec-partial");
    let begin = Instant::now();
    while !partial.metadata().is_ok_and(|file| file.len() > 0) {
        assert!(begin.elapsed() < Duration::from_secs(60), "it writes");
        std::thread::sleep(Duration::from_millis(5));
    }
    // Nobody else writes there now, and afterwards what it has left goes, whatever the format of the next.
    assert!(
        fail(&format!("data generate {} --format mlperf", to.display()))
            .contains("is being written by another process")
    );
    child.kill().unwrap();
    child.wait().unwrap();
    assert!(!to.join("part-00000.octo").exists() && !to.join("dataset.toml").exists());
    std::fs::write(to.join("unfinished/part-00007.octo"), "of its").unwrap();
    assert!(fail(&format!("data verify {}", to.display())).contains("tell no format"));
    // Whatever it is called and whenever it came: what lies beside the working folder is somebody's own.
    let own = ["notes.txt", "part-00007.octo"].map(|name| to.join(name));
    own.iter().for_each(|path| std::fs::write(path, "mine").unwrap());
    generate(&to, "torchrec");
    run(&format!("data verify {}", to.display()), 0);
    assert!(!to.join("unfinished").exists() && !partial.exists());
    assert!(own.iter().all(|path| std::fs::read_to_string(path).unwrap() == "mine"));
}

/// Runs a command of whose files the rows find their name taken, as if a kill had come while they moved.
fn halted(line: &str, to: &Path) {
    let taken = to.join("part-00000.octo");
    std::fs::create_dir_all(taken.join("mine")).unwrap();
    assert!(fail(line).contains("part-00000.octo: cannot create"));
    std::fs::remove_dir_all(taken).unwrap();
}

#[test]
fn what_a_killed_command_had_finished_is_not_that_of_other_inputs() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    let shown = |name: &str| at(name).display().to_string();
    let text = format!("label,user\n{}", "1,12\n0,34\n".repeat(4000));
    let schema = "label = 'label'\n[[categorical]]\ncolumn = 'user'\nrows = 100\n";
    let write = |name: &str, text: &str| std::fs::write(at(name), text).unwrap();
    let middle = text.len() / 2 + text[text.len() / 2..].find("\n1").unwrap() + 1;
    let mended = format!("{}0{}", &text[..middle], &text[middle + 1..]);
    let (grown, missing) = (format!("{text}1,56\n"), format!("missing = ['34']\n{schema}"));
    // Nothing changes but what is printed, a file grows or has a label mended, or the schema says something else.
    let changes = [("log.csv", &*grown), ("log.csv", &*mended), ("s.toml", &*missing)];
    for (n, change) in [None].into_iter().chain(changes.map(Some)).enumerate() {
        write("log.csv", &text);
        write("s.toml", schema);
        let to = format!("blocks{n}");
        let line = format!("convert {} {} --schema {}", shown("log.csv"), shown(&to), shown("s.toml"));
        halted(&line, &at(&to));
        let Some((name, text)) = change else {
            let output = run(&format!("{line} --json"), 0);
            assert!(String::from_utf8_lossy(&output.stderr).contains("is in its place now"));
            continue;
        };
        write(name, text);
        let message = fail(&line);
        assert!(message.contains("whole now") && message.contains("holds a data set already"), "{n}: {message}");
    }
    // Arrays, of which both ends stay as they are.
    generate(&at("arrays"), "torchrec");
    let line = format!("convert {} {}", shown("arrays"), shown("of_arrays"));
    halted(&line, &at("of_arrays"));
    let sparse = at("arrays/day_0_sparse.npy");
    let mut bytes = std::fs::read(&sparse).unwrap();
    let middle = bytes.len() / 8 * 4;
    bytes[middle..middle + 4].fill(0);
    std::fs::write(&sparse, bytes).unwrap();
    assert!(fail(&line).contains("holds a data set already"));
    // Profiles of other look-ups.
    let profile = format!("data profile {} --trace {}", shown("arrays"), shown("dist_j.log"));
    run(&profile, 0);
    let small = "--set data.train_samples=128 --set data.test_samples=32";
    let line = format!("data generate {} {small} --access lru --trace {}", shown("generated"), shown("dist_j.log"));
    halted(&line, &at("generated"));
    run(&format!("{profile} --rows 100"), 0);
    assert!(fail(&line).contains("holds a data set already"));
}

#[test]
fn a_day_of_text_is_not_read_while_the_others_move() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    let days = at("days").display().to_string();
    run(&format!("data generate {days} --text --set data.train_samples=128 --set data.test_samples=32"), 0);
    // As a kill leaves them between the two.
    std::fs::create_dir(at("days/unfinished")).unwrap();
    std::fs::rename(at("days/day_1"), at("days/unfinished/day_1")).unwrap();
    std::fs::write(at("days/unfinished/moving"), r#"{"old": [], "new": ["day_0", "day_1"]}"#).unwrap();
    std::fs::copy(at("days/day_0"), at("other")).unwrap();
    let other = at("other").display().to_string();
    for data in [format!("--data {days}/day_0"), format!("--data {other} --test-data {days}/day_0")] {
        let message = fail(&format!("train {TINY} {data}"));
        assert!(message.contains("day_0: is a part of what moves into its place in"), "{message}");
    }
}

#[test]
fn a_command_that_was_killed_while_its_data_moved_ends_well_when_it_is_given_again() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name).display().to_string();
    generate(Path::new(&at("log")), "torchrec");
    let sizes = "--set data.train_samples=128 --set data.test_samples=32";
    let lines = [("data generate", sizes.to_owned()), ("convert", String::new())];
    for (n, (command, more)) in lines.iter().enumerate() {
        let line = |to: &str, more: &str| match *command {
            "convert" => format!("convert {} {} --json {more}", at("log"), at(to)),
            _ => format!("data generate {} --json {more}", at(to)),
        };
        let (fresh, to) = (format!("fresh{n}"), format!("to{n}"));
        let mut expected = json(&line(&fresh, more));
        expected["out"] = Value::from(at(&to));
        halted(&line(&to, more), Path::new(&at(&to)));
        let output = run(&line(&to, more), 0);
        assert!(
            String::from_utf8_lossy(&output.stderr).contains("had finished when it was killed is in its place now")
        );
        assert_eq!(serde_json::from_slice::<Value>(&output.stdout).unwrap(), expected);
        let part = |to: &str| std::fs::read(Path::new(&at(to)).join("part-00000.octo")).unwrap();
        assert!(part(&to) == part(&fresh) && !Path::new(&at(&to)).join("unfinished").exists());
        run(&format!("data verify {}", at(&to)), 0);
        // Another command has not made them, and is told so.
        std::fs::remove_dir_all(at(&to)).unwrap();
        halted(&line(&to, more), Path::new(&at(&to)));
        let message = fail(&line(&to, &format!("{more} --codec raw")));
        assert!(message.contains("whole now") && message.contains("holds a data set already"), "{message}");
        assert!(part(&to) == part(&fresh));
    }
}

#[test]
fn what_has_the_name_of_a_file_of_the_format_stays() {
    let folder = tempfile::tempdir().unwrap();
    let to = folder.path().join("log");
    let train = to.join("train");
    std::fs::create_dir_all(&train).unwrap();
    std::fs::write(train.join("mine.bin"), "mine").unwrap();
    let line = format!("data generate {} --set data.train_samples=100 --set data.test_samples=10", to.display());
    assert!(fail(&format!("{line} --format nvidia")).contains("mine.bin: has the name of a file of nvidia"));
    assert_eq!(std::fs::read_dir(&to).unwrap().count(), 1, "nothing else stays");
    // Somebody's own are in the working folder, too, unless a mark says otherwise.
    std::fs::create_dir(to.join("unfinished")).unwrap();
    std::fs::write(to.join("unfinished/notes.txt"), "mine").unwrap();
    for kind in ["--format octorec", "--text --rows-cap 50"] {
        let message = fail(&format!("{line} {kind}"));
        assert!(message.contains("is where unfinished work goes, and holds something else"), "{message}");
    }
    assert_eq!(std::fs::read_to_string(to.join("unfinished/notes.txt")).unwrap(), "mine");
    std::fs::remove_dir_all(to.join("unfinished")).unwrap();
    // A folder with other files takes those of a data set beside them.
    std::fs::rename(train.join("mine.bin"), train.join("mine.txt")).unwrap();
    run(&format!("{line} --format nvidia"), 0);
    assert!(train.join("mine.txt").exists() && train.join("label.bin").exists() && !to.join("unfinished").exists());
}

#[test]
fn a_full_disk_is_told_and_nothing_stays() {
    let folder = tempfile::tempdir().unwrap();
    let to = folder.path().join("log");
    std::fs::create_dir(&to).unwrap();
    // Files of a few KiB are the largest.
    let octorec = env!("CARGO_BIN_EXE_octorec");
    let line = format!("{octorec} data generate {} --set data.train_samples=20000", to.display());
    let limited = format!("trap '' XFSZ; ulimit -f 8; exec {line}");
    let output = Command::new("sh").args(["-c", &limited]).output().unwrap();
    let message = String::from_utf8_lossy(&output.stderr);
    assert!(message.contains("part-00000.octo: cannot write: File too large"), "{message}");
    assert_eq!((output.status.code(), std::fs::read_dir(&to).unwrap().count()), (Some(1), 0));
    let none = to.join("none");
    for kind in ["", "--text"] {
        let line = format!("data generate {} {kind} --set data.train_samples=0", none.display());
        let message = fail(&format!("{line} --set data.test_samples=0"));
        assert!(message.contains("data.train_samples and data.test_samples: both are 0"), "{message}");
        assert!(!none.exists(), "{kind}");
    }
}

#[test]
fn columns_of_text_may_be_called_and_hold_what_they_like() {
    let folder = tempfile::tempdir().unwrap();
    let to = |name: &str| folder.path().join(name).display().to_string();
    let long = "l".repeat(250);
    let mut text = format!("user id,user_id,label,tags,00000-user_id,{long},rating\n");
    let row = |n: u32| format!("a{},b{},c{},,d{},e{},{}\n", n % 7, n % 11, n % 3, n % 5, n % 2, n % 6);
    text.extend((0..200).map(row));
    std::fs::write(folder.path().join("log.csv"), text).unwrap();
    let schema = format!(
        "label = 'rating >= 4'\ncategorical = [{{ column = 'user id' }}, {{ column = 'user_id' }}, {{ column = 'label' }}, \
         {{ column = 'tags', separator = '|' }}, {{ column = '00000-user_id' }}, {{ column = '{long}' }}]\n"
    );
    std::fs::write(folder.path().join("log.toml"), schema).unwrap();
    let preprocess = format!("preprocess csv --in {} --schema {}", to("log.csv"), to("log.toml"));
    for threads in [1, 2] {
        let out = to(&format!("blocks-{threads}"));
        run(&format!("{preprocess} --threads {threads} --out {out}"), 0);
        let rows = |line: &str| -> Vec<u64> {
            let found = json(line);
            let columns = found["categorical"].as_array().unwrap();
            columns.iter().map(|column| column["rows"].as_u64().unwrap()).collect()
        };
        run(&format!("data verify {out}"), 0);
        assert_eq!(rows(&format!("inspect {out} --json")), [7, 11, 3, 1, 5, 2]);
    }
    // Both ways to make blocks of it name and write the same files of values, that of a column without any among them.
    run(&format!("convert {} {} --schema {}", to("log.csv"), to("converted"), to("log.toml")), 0);
    let values = |out: &str| {
        let files = std::fs::read_dir(folder.path().join(out)).unwrap().map(|file| file.unwrap().path());
        let files = files.filter(|file| file.extension().is_some_and(|end| end == "vocabulary"));
        files
            .map(|file| (file.file_name().unwrap().to_owned(), std::fs::read(file).unwrap()))
            .collect::<BTreeMap<_, _>>()
    };
    let converted = values("converted");
    assert_eq!(converted.len(), 6);
    assert!(converted == values("blocks-1"), "{:?}", converted.keys());
    run(&format!("{preprocess} --vocabulary {} --out {}", to("converted"), to("by-converted")), 0);
    // Text without a header is described by what the configuration names.
    let bare: String = (0..200).map(|n| format!("a{},b{},{}\n", n % 7, n % 11, n % 2)).collect();
    std::fs::write(folder.path().join("clicks.txt"), bare).unwrap();
    let described = "columns = ['user', 'item', 'click']\nlabel = 'click'\n\
                     categorical = [{ column = 'user' }, { column = 'item' }]\n";
    std::fs::write(folder.path().join("bare.toml"), described).unwrap();
    let config = format!("[model]\nbottom = [0, 8]\ntop = [8, 1]\ndim = 8\n[data]\nschema = '{}'\n", to("bare.toml"));
    std::fs::write(folder.path().join("config.toml"), config).unwrap();
    let line = format!("train --config {} --data {} --batch 32 --epochs 1 --json", to("config.toml"), to("clicks.txt"));
    assert_eq!(json(&line)["samples"], 180);
    // New data are mapped by each column's own values.
    let again = format!("{preprocess} --vocabulary {} --out {}", to("blocks-1"), to("again"));
    run(&again, 0);
    run(&format!("data verify {}", to("again")), 0);
}

#[test]
fn a_data_set_without_samples_is_not_converted() {
    let folder = tempfile::tempdir().unwrap();
    let to = |name: &str| folder.path().join(name).display().to_string();
    let sizes = "--set data.train_samples=64 --set data.test_samples=0";
    run(&format!("data generate {} --format torchrec {sizes}", to("arrays")), 0);
    for name in ["dense", "sparse", "labels"] {
        // The head alone, which says that nothing follows.
        let path = folder.path().join(format!("arrays/day_0_{name}.npy"));
        let mut head = std::fs::read(&path).unwrap()[..128].to_vec();
        let at = head.windows(5).position(|part| part == b"(64, ").unwrap();
        head[at..at + 5].copy_from_slice(b"(0,  ");
        std::fs::write(path, head).unwrap();
    }
    let message = fail(&format!("convert {} {}", to("arrays"), to("blocks")));
    assert!(message.contains("arrays: has no samples") && message.contains("name data with samples"), "{message}");
    assert!(!folder.path().join("blocks").exists());
}

#[test]
fn formats_hold_what_is_there_or_refuse_it() {
    let folder = tempfile::tempdir().unwrap();
    let to = |name: &str| folder.path().join(name).display().to_string();
    // No dense feature at all.
    let mut text = "user,item,click\n".to_owned();
    (0..200).for_each(|n| text += &format!("a{},b{},{}\n", n % 7, n % 11, n % 2));
    std::fs::write(folder.path().join("log.csv"), text).unwrap();
    let schema = "label = 'click'\ncategorical = [{ column = 'user' }, { column = 'item' }]\n";
    std::fs::write(folder.path().join("log.toml"), schema).unwrap();
    let convert = format!("convert {} --schema {}", to("log.csv"), to("log.toml"));
    let warned = run(&format!("{convert} {} --format nvidia", to("nvidia")), 0).stderr;
    assert!(String::from_utf8_lossy(&warned).contains("nvidia has no place for the values behind row numbers"));
    let found = run(&format!("data verify {}", to("nvidia")), 0);
    assert!(String::from_utf8_lossy(&found.stdout).contains("200 samples"));

    // Criteo's columns, as numbers that neither format holds.
    let names = |prefix: &str, count: usize| (0..count).map(|n| format!("{prefix}{n}")).collect::<Vec<_>>();
    let (dense, categories) = (names("d", 13), names("c", 26));
    let mut text = format!("click,{},{}\n", dense.join(","), categories.join(","));
    for n in 0..100 {
        let numbers = ["70000".to_owned(), (n % 5).to_string()].map(|first| first + &",3".repeat(12));
        text += &format!("{},{},{}\n", n % 2, numbers[usize::from(n != 50)], ["x"; 26].join(","));
    }
    let write = |name: &str, text: &str| std::fs::write(folder.path().join(name), text).unwrap();
    write("wide.csv", &text);
    write("negative.csv", &text.replacen("70000", "-2", 1));
    let schema = |transform: &str| {
        let dense = dense.iter().map(|name| format!("{{ column = '{name}', transform = '{transform}' }}"));
        let categories = categories.iter().map(|name| format!("{{ column = '{name}' }}"));
        let (dense, categories): (Vec<_>, Vec<_>) = (dense.collect(), categories.collect());
        format!("label = 'click'\ndense = [{}]\ncategorical = [{}]\n", dense.join(", "), categories.join(", "))
    };
    write("none.toml", &schema("none"));
    write("log.toml", &schema("log"));
    let convert = |data: &str, schema: &str, format: &str, out: &str| {
        format!("convert {} --schema {} {} --format {format}", to(data), to(schema), to(out))
    };
    let message = fail(&convert("wide.csv", "none.toml", "nvidia", "beyond"));
    assert!(message.contains("d0") && message.contains("70000") && message.contains("65504"), "{message}");
    run(&convert("wide.csv", "log.toml", "nvidia", "logarithms"), 0);
    let message = fail(&convert("negative.csv", "none.toml", "mlperf", "negative"));
    assert!(message.contains("d0") && message.contains("-2") && message.contains("log"), "{message}");
    run(&convert("negative.csv", "log.toml", "mlperf", "as-logarithms"), 0);
    run(&convert("wide.csv", "none.toml", "mlperf", "as-they-are"), 0);
}
