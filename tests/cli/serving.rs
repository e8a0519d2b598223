//! A trained model at work: rows that arrive by standard input, and tables that are looked up where the checkpoint has
//! them.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Stdio};
use std::time::{Duration, Instant};

use octorec::base::config::{Config, SourceKind, Vocab};
use octorec::data::formats::{self, Described, scan};
use octorec::data::wide::bucket;
use octorec::data::{self, Batch, Opening, Split};
use octorec::train::export::onnx::proto;
use prost::Message;
use safetensors::tensor::TensorView;
use safetensors::{SafeTensors, serialize};

use super::{ONE_EPOCH, TINY, fail, json, octorec, succeed, tsv};

/// A run on a generated file in Criteo's layout; the run, the file and the file's rows as text.
fn trained(folder: &Path, more: &str) -> (String, PathBuf, String) {
    let file = tsv(&folder.join("clicks.tsv"), 600);
    let run = folder.join("run").display().to_string();
    succeed(&format!(
        "train --preset demo {TINY} --data {} --steps 20 --test-fraction 0 {more} --out {run}",
        file.display()
    ));
    let text = fs::read_to_string(&file).unwrap();
    (run, file, text)
}

/// A command that is asked row by row.
struct Asked {
    command: Child,
    rows: Option<ChildStdin>,
    answers: BufReader<ChildStdout>,
}

impl Asked {
    fn start(line: &str) -> Self {
        let mut command = octorec()
            .args(line.split_whitespace())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let (rows, answers) = (command.stdin.take(), BufReader::new(command.stdout.take().unwrap()));
        Self { command, rows, answers }
    }

    fn ask(&mut self, text: &str) {
        let rows = self.rows.as_mut().unwrap();
        if let Err(error) = rows.write_all(text.as_bytes()).and_then(|()| rows.flush()) {
            let mut told = String::new();
            self.command.stderr.as_mut().unwrap().read_to_string(&mut told).unwrap();
            panic!("{error}: {told}");
        }
    }

    fn answer(&mut self) -> String {
        let mut line = String::new();
        self.answers.read_line(&mut line).unwrap();
        line.trim_end().to_owned()
    }

    /// Ends the input; the exit code and what was said.
    fn end(mut self) -> (Option<i32>, Vec<String>, String) {
        drop(self.rows.take());
        let rest = self.answers.lines().map(Result::unwrap).collect();
        let output = self.command.wait_with_output().unwrap();
        (output.status.code(), rest, String::from_utf8_lossy(&output.stderr).into_owned())
    }
}

fn lines(output: &[u8]) -> Vec<String> {
    String::from_utf8_lossy(output).lines().map(str::to_owned).collect()
}

/// A row of Criteo's text as an object.
fn object(line: &str) -> String {
    let fields: Vec<&str> = line.split('\t').skip(1).collect();
    let fields = fields.iter().enumerate().map(|(at, field)| match at {
        0..13 if field.is_empty() => format!("\"I{}\":null", at + 1),
        0..13 => format!("\"I{}\":{field}", at + 1),
        _ => format!("\"C{}\":\"{field}\"", at - 12),
    });
    format!("{{{}}}\n", fields.collect::<Vec<_>>().join(","))
}

#[test]
fn rows_that_arrive_are_answered_when_the_input_pauses() {
    let folder = tempfile::tempdir().unwrap();
    let (run, file, text) = trained(folder.path(), "");
    let expected = lines(&succeed(&format!("predict --checkpoint {run} --data {}", file.display())).stdout);
    assert_eq!(expected.len(), 600);
    let rows: Vec<&str> = text.split_inclusive('\n').collect();
    let mut asked = Asked::start(&format!("predict --checkpoint {run} --data -"));
    for at in 0..3 {
        asked.ask(rows[at]);
        assert_eq!(asked.answer(), expected[at]);
    }
    let (half, rest) = rows[3].split_at(20);
    asked.ask(half);
    asked.ask(&format!("{rest}{}", rows[4]));
    assert_eq!([asked.answer(), asked.answer()], expected[3..5]);
    asked.ask(&rows[5..].concat());
    let (code, rest, told) = asked.end();
    assert_eq!((code, &rest[..]), (Some(0), &expected[5..]), "{told}");
    assert!(told.contains("600 probabilities: one for each row of standard input"), "{told}");

    let mut asked = Asked::start(&format!("predict --checkpoint {run} --data - --format json"));
    asked.ask(&object(rows[0].trim_end_matches('\n')));
    assert_eq!(asked.answer(), format!("{{\"probability\":{}}}", expected[0]));
    rows[1..].iter().for_each(|row| asked.ask(&object(row.trim_end_matches('\n'))));
    let (code, rest, told) = asked.end();
    let found: Vec<f64> = rest.iter().map(|line| line[15..line.len() - 1].parse().unwrap()).collect();
    let expected: Vec<f64> = expected[1..].iter().map(|line| line.parse().unwrap()).collect();
    assert_eq!((code, found), (Some(0), expected), "{told}");
}

#[test]
fn rows_before_a_malformed_one_are_answered() {
    let folder = tempfile::tempdir().unwrap();
    let (run, _, text) = trained(folder.path(), "");
    let rows: Vec<&str> = text.split_inclusive('\n').collect();
    let mut asked = Asked::start(&format!("predict --checkpoint {run} --data -"));
    asked.ask(&format!("{}{}x\ty\n{}", rows[0], rows[1], rows[2]));
    let (code, answers, told) = asked.end();
    assert_eq!((code, answers.len()), (Some(1), 2), "{told}");
    assert!(told.contains("standard input: line 3"), "{told}");
    assert!(told.contains("a probability is written for every row"), "{told}");
    let mut asked = Asked::start(&format!("predict --checkpoint {run} --data - --format json"));
    asked.ask("{\"I1\":1}\n");
    let (code, _, told) = asked.end();
    assert!(code == Some(1) && told.contains("the object has no I2; where there is no value, null says so"), "{told}");
    let message = fail(&format!("predict --checkpoint {run} --data somewhere --format json"));
    assert!(message.contains("--format: is of rows that come by standard input"), "{message}");
}

#[test]
fn malformed_rows_are_answered_in_their_place() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name).display().to_string();
    let (run, file, text) = trained(folder.path(), "");
    let predict = format!("predict --checkpoint {run} --data");
    let expected = lines(&succeed(&format!("{predict} {}", file.display())).stdout);
    let rows: Vec<&str> = text.split_inclusive('\n').collect();
    let mut asked = Asked::start(&format!("{predict} - --format json --on-bad-row answer"));
    // Whoever asks is answered, though nothing else comes.
    asked.ask("{\"I1\":1}\n");
    let told = asked.answer();
    assert!(told.starts_with("{\"error\":") && told.contains("line 1: the object has no I2"), "{told}");
    asked.ask(&object(rows[0].trim_end()));
    assert_eq!(asked.answer(), format!("{{\"probability\":{}}}", expected[0]));
    asked.ask(&format!("no object\n{}", object(rows[1].trim_end())));
    assert!(asked.answer().starts_with("{\"error\":"));
    assert_eq!(asked.answer(), format!("{{\"probability\":{}}}", expected[1]));
    // A label and a number in one field are no labelled row.
    asked.ask(&object(rows[0].trim_end()).replacen("\"I1\":", "\"I1\":\"0\\t5\",\"was\":", 1));
    let told = asked.answer();
    assert!(told.starts_with("{\"error\":") && told.contains("line 5: column I1: its value holds a tab"), "{told}");
    let (code, rest, told) = asked.end();
    assert!(code == Some(0) && rest.is_empty(), "{told}");
    assert!(told.contains("3 malformed rows answered with an error; the first: standard input: line 1:"), "{told}");

    // Of a file, of which the first and the last row are malformed, too.
    let bad = "1\tonly\n";
    fs::write(at("bad.tsv"), format!("{bad}{}{bad}{bad}{}{bad}", rows[..300].concat(), rows[300..].concat())).unwrap();
    let message = fail(&format!("{predict} {}", at("bad.tsv")));
    assert!(message.contains("bad.tsv: line 1") && message.contains("--on-bad-row answer"), "{message}");
    let nan = "nan".to_owned();
    let mut whole = vec![nan.clone()];
    whole.extend_from_slice(&expected[..300]);
    whole.extend([nan.clone(), nan.clone()]);
    whole.extend_from_slice(&expected[300..]);
    whole.push(nan);
    let line = format!("{predict} {} --on-bad-row answer --out {} --json", at("bad.tsv"), at("out"));
    let told = json(&line);
    assert_eq!((&told["rows"], &told["malformed_rows"]), (&604.into(), &4.into()));
    assert_eq!(fs::read_to_string(at("out")).unwrap().lines().collect::<Vec<_>>(), whole);

    // Text with a header, a list that may be empty, a hashed column, and a quotation mark that nothing closes.
    table(&at("clicks.csv"));
    let schema = "label = \"clicked\"\ndense = [{ column = \"price\" }, { column = \"age\", transform = \"standardise\" }]\n\
                  categorical = [{ column = \"item\", separator = \"|\" }, { column = \"user\", rows = 9 }]\n";
    fs::write(at("schema.toml"), schema).unwrap();
    let model = "--set model.bottom=[2,8,4] --set model.dim=4 --set model.top=[4,1] --threads 1 --batch 20";
    let data = format!("--data {} --schema {}", at("clicks.csv"), at("schema.toml"));
    succeed(&format!("train {data} {model} --steps 4 --out {}", at("described")));
    let predict = format!("predict --checkpoint {} --data", at("described"));
    let expected = lines(&succeed(&format!("{predict} {}", at("clicks.csv"))).stdout);
    let text = fs::read_to_string(at("clicks.csv")).unwrap();
    let rows: Vec<&str> = text.split_inclusive('\n').collect();
    let bad = [rows[0], "0,x,1,i1,u1\n", rows[1], "0,\"1,1,i1,u1\n", &rows[2..].concat()].concat();
    fs::write(at("bad.csv"), &bad).unwrap();
    let output = succeed(&format!("{predict} {} --on-bad-row answer", at("bad.csv")));
    let found = lines(&output.stdout);
    let (first, second) = (&found[..1], &found[2..3]);
    assert_eq!((first, second), (&["nan".to_owned()][..], &["nan".to_owned()][..]), "{found:?}");
    assert!(found[1] == expected[0] && found[3..] == expected[1..], "{found:?}");
    let told = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(told.contains("2 malformed rows answered with nan; the first: ") && told.contains("line 2"), "{told}");
    // Damage of the file is no malformed row: here of the checksum behind its last row.
    let mut packed = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    packed.write_all(bad.as_bytes()).unwrap();
    let mut packed = packed.finish().unwrap();
    let answer = format!("{predict} {} --on-bad-row answer", at("bad.csv.gz"));
    fs::write(at("bad.csv.gz"), &packed).unwrap();
    assert_eq!(lines(&succeed(&answer).stdout), found);
    let crc = packed.len() - 8;
    packed[crc] ^= 1;
    fs::write(at("bad.csv.gz"), &packed).unwrap();
    let message = fail(&answer);
    assert!(message.contains("the gzip file is corrupt"), "{message}");
    let message = fail(&format!("{predict} {} --on-bad-row answer", folder.path().display()));
    assert!(message.contains("is a folder"), "{message}");
    succeed(&format!("data generate {} --set data.train_samples=100 --set data.test_samples=50", at("blocks")));
    let message = fail(&format!("predict --checkpoint {run} --data {} --on-bad-row answer", at("blocks")));
    assert!(message.contains("--on-bad-row: has an effect only on text"), "{message}");
}

#[test]
fn each_row_without_names_tells_whether_it_has_a_label() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name).display().to_string();
    let rows = |fields: &[usize]| -> String {
        let row = |n: usize| [format!("{}", n % 3 / 2), format!("{}", n % 17), format!("i{}", n % 5), "2".to_owned()];
        let line = |n| fields.iter().map(|&field| row(n)[field].clone()).collect::<Vec<_>>().join(",") + "\n";
        (0..100).map(line).collect()
    };
    let trained = |name: &str, columns: &str, weight: &str, fields: &[usize]| {
        fs::write(at("log.csv"), rows(fields)).unwrap();
        let schema = format!(
            "label = \"clicked\"\n{weight}columns = [{columns}]\ndense = [{{ column = \"price\" }}]\n\
             categorical = [{{ column = \"item\", rows = 9 }}]\n"
        );
        fs::write(at("schema.toml"), schema).unwrap();
        let model = "--set model.bottom=[1,8,4] --set model.dim=4 --set model.top=[4,1] --threads 1 --batch 20";
        let data = format!("--data {} --schema {}", at("log.csv"), at("schema.toml"));
        succeed(&format!("train {data} {model} --steps 4 --out {}", at(name)));
        let predict = format!("predict --checkpoint {} --data", at(name));
        (lines(&succeed(&format!("{predict} {}", at("log.csv"))).stdout), predict)
    };
    // A malformed row is not what tells it of all others.
    let (expected, predict) = trained("run", "\"clicked\", \"price\", \"item\"", "", &[0, 1, 2]);
    for bad in ["0,x,i1\n", "{\"price\": 3, \"item\": \"i1\"}\n"] {
        fs::write(at("bad.csv"), bad.to_owned() + &rows(&[1, 2])).unwrap();
        let found = lines(&succeed(&format!("{predict} {} --on-bad-row answer", at("bad.csv"))).stdout);
        assert!(found[0] == "nan" && found[1..] == expected, "{bad}: {found:?}");
    }

    // A header is no row: neither of a file nor of a stream, with the label or without it.
    for (header, fields) in [("clicked,price,item\n", &[0, 1, 2][..]), ("price,item\n", &[1, 2][..])] {
        fs::write(at("headed.csv"), header.to_owned() + &rows(fields)).unwrap();
        let message = fail(&format!("{predict} {}", at("headed.csv")));
        assert!(message.contains("its first line is the names of its columns"), "{message}");
        let stream = fs::File::open(at("headed.csv")).unwrap();
        let output = octorec().args(format!("{predict} -").split_whitespace()).stdin(stream).output().unwrap();
        let message = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success() && message.contains("remove the line, or, of a schema"), "{message}");
    }

    // Nor is an object of JSON, whatever its commas are: what reads it is told.
    fs::write(at("rows.jsonl"), "{\"price\": 3, \"item\": \"i1\"}\n").unwrap();
    let output = |flag: &str| {
        let stream = fs::File::open(at("rows.jsonl")).unwrap();
        octorec().args(format!("{predict} - {flag}").split_whitespace()).stdin(stream).output().unwrap()
    };
    let message = String::from_utf8_lossy(&output("").stderr).into_owned();
    assert!(
        message.contains("holds objects of JSON, a line each, which only `predict --data - --format json`"),
        "{message}"
    );
    assert!(output("--format json").status.success());
    // Where malformed rows are answered, the first one is, and that all are so is told.
    let answered = output("--on-bad-row answer");
    assert_eq!((answered.status.code(), lines(&answered.stdout)), (Some(1), vec!["nan".to_owned()]));
    let message = String::from_utf8_lossy(&answered.stderr).into_owned();
    let told = "standard input: holds objects of JSON, a line each, which only `predict --data - --format json`";
    assert!(message.contains(told), "{message}");

    // Of a label and a weight that stand beside each other one may be missing, and of others both.
    let weight = "weight = \"w\"\n";
    for (name, columns, order) in [
        ("beside", "\"w\", \"clicked\", \"price\", \"item\"", [3, 0, 1, 2]),
        ("apart", "\"clicked\", \"price\", \"item\", \"w\"", [0, 1, 2, 3]),
    ] {
        let (expected, predict) = trained(name, columns, weight, &order);
        for left_out in [&[0, 3][..], &[3], &[0]] {
            let fields: Vec<usize> = order.into_iter().filter(|field| !left_out.contains(field)).collect();
            fs::write(at("rows.csv"), rows(&fields)).unwrap();
            for more in ["", "--on-bad-row answer"] {
                let line = format!("{predict} {} {more}", at("rows.csv"));
                if name == "beside" || left_out.len() == 2 {
                    assert_eq!(lines(&succeed(&line).stdout), expected, "{line}: {left_out:?}");
                } else if more.is_empty() {
                    let message = fail(&line);
                    let told = "is it the label (clicked) or the weight (w) that is missing? write both or neither";
                    assert!(message.contains(told), "{message}");
                } else {
                    assert!(lines(&succeed(&line).stdout).iter().all(|line| line == "nan"), "{left_out:?}");
                }
            }
        }
    }
}

#[test]
fn another_form_of_criteos_rows_is_no_malformed_row() {
    let folder = tempfile::tempdir().unwrap();
    let (run, file, text) = trained(folder.path(), "");
    let predict = format!("predict --checkpoint {run} --data");
    let rows: Vec<&str> = text.lines().take(3).collect();
    let objects: Vec<String> = rows.iter().map(|row| object(row)).collect();
    let (json, crs) = (objects.concat(), rows.join("\r"));
    let told = [
        (&json, "holds objects of JSON, a line each, which only `predict --data - --format json`"),
        (&crs, "has lines that end with CR alone: make line feeds of them (`tr '\\r' '\\n' < FILE > NEW`)"),
    ];
    for (content, told) in told {
        let mut asked = Asked::start(&format!("{predict} - --on-bad-row answer"));
        asked.ask(content);
        let (code, answers, said) = asked.end();
        assert_eq!((code, &answers[..]), (Some(1), &["nan".to_owned()][..]), "{said}");
        assert!(said.contains(&format!("error: standard input: {told}")), "{said}");
        let mut asked = Asked::start(&format!("{predict} -"));
        asked.ask(content);
        let (code, answers, said) = asked.end();
        assert!(code == Some(1) && answers.is_empty() && said.contains(told), "{said}");
        let path = folder.path().join("other.tsv");
        fs::write(&path, content).unwrap();
        for more in ["", "--on-bad-row answer"] {
            let message = fail(&format!("{predict} {} {more}", path.display()));
            assert!(message.contains("other.tsv: ") && message.contains(told), "{more}: {message}");
        }
        let preprocess = format!("preprocess criteo-kaggle --out {} --in", folder.path().join("blocks").display());
        for command in [&preprocess, "inspect", "train --preset demo --steps 1 --data"] {
            let message = fail(&format!("{command} {}", path.display()));
            assert!(message.contains("other.tsv: ") && message.contains(told), "{command}: {message}");
        }
    }

    // One such row before good ones is malformed, and those are answered.
    let expected = lines(&succeed(&format!("{predict} {}", file.display())).stdout);
    let mut asked = Asked::start(&format!("{predict} - --on-bad-row answer"));
    asked.ask(&objects[0]);
    assert_eq!(asked.answer(), "nan");
    rows.iter().for_each(|row| asked.ask(&format!("{row}\n")));
    asked.ask(&objects[1]);
    let (code, answers, said) = asked.end();
    let good = expected[..3].iter().map(String::as_str).chain(["nan"]).collect::<Vec<_>>();
    assert_eq!((code, answers.iter().map(String::as_str).collect::<Vec<_>>()), (Some(0), good), "{said}");
    assert!(
        said.contains("2 malformed rows answered with nan; the first: standard input: line 1: holds objects"),
        "{said}"
    );
}

#[test]
fn a_reader_who_has_seen_enough_ends_the_command() {
    let folder = tempfile::tempdir().unwrap();
    let (run, _, text) = trained(folder.path(), "");
    let row = text.split_inclusive('\n').next().unwrap();
    let mut asked = Asked::start(&format!("predict --checkpoint {run} --data -"));
    asked.ask(row);
    asked.answer();
    let Asked { mut command, rows, answers } = asked;
    drop(answers);
    let mut rows = rows.unwrap();
    rows.write_all(row.as_bytes()).unwrap();
    // Its input stays open.
    let began = Instant::now();
    while command.try_wait().unwrap().is_none() {
        assert!(began.elapsed() < Duration::from_secs(20), "it waits for rows that nobody asks for");
        std::thread::sleep(Duration::from_millis(20));
    }
    assert_eq!(command.wait().unwrap().code(), Some(0));
}

#[test]
fn a_model_finds_the_same_where_its_checkpoint_has_the_tables() {
    let folder = tempfile::tempdir().unwrap();
    // While it trained, its tables lay in memory; bit for bit the same is found with those of the file, whatever the
    // ranks.
    for (name, more) in [
        ("plain", ""),
        ("mean", "--set model.pooling=mean --set data.lookups=3"),
        ("bf16", "--precision bf16"),
        ("lsb8", "--precision bf16-lsb8"),
        ("adam", "--optimizer adam --optimizer-rows adam"),
    ] {
        let run = folder.path().join(name).display().to_string();
        let trained = json(&format!("train {ONE_EPOCH} {TINY} {more} --out {run} --json"));
        for ranks in ["--ranks 1", "--ranks 2 --threads 1", "--ranks 3 --threads 1"] {
            let found = json(&format!("eval --checkpoint {run} {ranks} --json"));
            for score in ["auc", "logloss"] {
                assert_eq!(found[score], trained[score], "{name}, {ranks}: {score}");
            }
        }
    }
}

#[test]
fn a_rank_alone_predicts_with_tables_that_its_memory_cannot_hold() {
    let folder = tempfile::tempdir().unwrap();
    let (run, file, _) = trained(folder.path(), "");
    let small = folder.path().join("small.toml").display().to_string();
    succeed(&format!("topo --export {small}"));
    let text = fs::read_to_string(&small).unwrap();
    let line = |line: &str| if line.starts_with("memory_gib") { "memory_gib = 0.01" } else { line }.to_owned() + "\n";
    fs::write(&small, text.lines().map(line).collect::<String>()).unwrap();
    let place = format!("--data {} --ranks 1 --topology {small}", file.display());
    let message = fail(&format!("train --preset demo {TINY} --steps 1 {place}"));
    assert!(message.contains("before any table"), "{message}");
    let of = |line: &str| lines(&succeed(&format!("predict --checkpoint {run} {line}")).stdout);
    assert_eq!(of(&place), of(&format!("--data {}", file.display())));
}

#[test]
fn damage_in_a_table_is_found_beside_the_work() {
    let folder = tempfile::tempdir().unwrap();
    let (run, file, _) = trained(folder.path(), "");
    let checkpoint = format!("{run}/checkpoint.safetensors");
    let whole = fs::read(&checkpoint).unwrap();
    let (head, metadata) = safetensors::SafeTensors::read_metadata(&whole).unwrap();
    let at = 8 + head + metadata.info("emb_l.3.weight").unwrap().data_offsets.0;
    let mut damaged = whole.clone();
    damaged[at + 2] ^= 0x40;
    fs::write(&checkpoint, &damaged).unwrap();
    let out = folder.path().join("probabilities");
    let predict = format!("predict --checkpoint {run} --data {} --out {}", file.display(), out.display());
    for line in [&predict, &format!("eval --checkpoint {run} --data {}", file.display())] {
        let message = fail(line);
        assert!(message.contains("tensor emb_l.3.weight is damaged (its hash differs)"), "{message}");
    }
    assert!(!out.exists());
    succeed(&format!("{predict} --no-verify"));
    assert_eq!(fs::read_to_string(&out).unwrap().lines().count(), 600);
}

/// A table with two columns of each kind.
fn table(path: &str) {
    let rows = (0..200).map(|n| format!("{},{},{},i{},u{}\n", n % 3 / 2, n % 17, n % 40, n % 5, n % 7));
    fs::write(path, "clicked,price,age,item,user\n".to_owned() + &rows.collect::<String>()).unwrap();
}

/// Rewrites a checkpoint with another text of its schema, or as versions wrote it that kept none.
fn keep_schema(run: &str, text: Option<&str>) {
    let path = format!("{run}/checkpoint.safetensors");
    let whole = fs::read(&path).unwrap();
    let (_, metadata) = SafeTensors::read_metadata(&whole).unwrap();
    let mut said = metadata.metadata().clone().unwrap();
    said.retain(|key, _| key == "octorec");
    let mut header: serde_json::Value = serde_json::from_str(&said["octorec"]).unwrap();
    assert!(header.as_object_mut().unwrap().remove("schema_text").is_some());
    text.into_iter().for_each(|text| header["schema_text"] = text.into());
    said.insert("octorec".to_owned(), header.to_string());
    let file = SafeTensors::deserialize(&whole).unwrap();
    fs::write(&path, serialize::<_, TensorView<'_>, _>(file.tensors(), Some(said)).unwrap()).unwrap();
}

#[test]
fn a_run_reads_data_by_the_schema_that_it_was_trained_with() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name).display().to_string();
    table(&at("clicks.csv"));
    let schema = "label = \"clicked\"\n[[dense]]\ncolumn = \"price\"\n[[categorical]]\ncolumn = \"item\"\n\
                  [[categorical]]\ncolumn = \"age\"\nbuckets = [10, 20]\n";
    fs::write(at("schema.toml"), schema).unwrap();
    let model = "--set model.bottom=[1,8,4] --set model.dim=4 --set model.top=[4,1] --threads 1 --batch 20";
    let data = format!("--data {} --schema {}", at("clicks.csv"), at("schema.toml"));
    succeed(&format!("train {data} {model} --steps 4 --lr 0.5 --test-fraction 0.5 --out {}", at("run")));
    let predict = |run: &str| succeed(&format!("predict --checkpoint {} --data {}", at(run), at("clicks.csv"))).stdout;
    let arrives = || {
        let mut asked = Asked::start(&format!("predict --checkpoint {} --data -", at("run")));
        asked.ask(&fs::read_to_string(at("clicks.csv")).unwrap());
        asked.end()
    };
    let eval = format!("eval --checkpoint {}", at("run"));
    let note = "schema.toml is not the schema that this model was trained with: its own is used";
    let told = |line: &str| String::from_utf8(succeed(line).stderr).unwrap();
    let (expected, scores, answers) = (predict("run"), json(&format!("{eval} --json")), arrives());
    assert!(!told(&eval).contains(note) && answers.0 == Some(0));
    let reads_alike = || {
        assert!(predict("run") == expected);
        assert_eq!(json(&format!("{eval} --json")), scores);
        assert_eq!(arrives().1, answers.1);
    };
    // Another label, another column and other buckets.
    let changed = schema.replace("\"clicked\"", "\"clicked == 0\"").replace("\"price\"", "\"user\"\ncount = \"|\"");
    fs::write(at("schema.toml"), changed.replace("[10, 20]", "[3, 4, 5]")).unwrap();
    reads_alike();
    assert!(told(&eval).contains(note));
    let resume = format!("train --resume {}", at("run"));
    assert!(told(&format!("{resume} --steps 4")).contains(note));
    let message = fail(&format!("{resume} --steps 6 --schema {}", at("schema.toml")));
    assert!(!message.contains(note), "what is asked for is taken: {message}");
    // On another machine there is none.
    fs::remove_file(at("schema.toml")).unwrap();
    reads_alike();
    succeed(&format!("export --checkpoint {} --format torch --out {}", at("run"), at("model.safetensors")));
    succeed(&format!("{resume} --steps 6"));
    assert!(predict("run") != expected, "it has learned more");
    // One of before is read by the file.
    let now = predict("run");
    keep_schema(&at("run"), Some("lable = \"clicked\""));
    let message = fail(&format!("predict --checkpoint {} --data {}", at("run"), at("clicks.csv")));
    assert!(message.contains("the checkpoint's schema: is no schema") && !message.contains("schema.toml"), "{message}");
    keep_schema(&at("run"), None);
    let message = fail(&format!("predict --checkpoint {} --data {}", at("run"), at("clicks.csv")));
    assert!(message.contains("schema.toml: cannot read"), "{message}");
    fs::write(at("schema.toml"), schema).unwrap();
    assert!(predict("run") == now);
}

#[test]
fn columns_in_another_order_or_read_otherwise_are_not_those_of_the_model() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name).display().to_string();
    table(&at("clicks.csv"));
    let schema = |dense: [&str; 2], categorical: [&str; 2]| {
        let dense = dense.map(|column| format!("[[dense]]\ncolumn = {column}\n")).concat();
        let categorical = categorical.map(|column| format!("[[categorical]]\ncolumn = {column}\n")).concat();
        fs::write(at("schema.toml"), format!("label = \"clicked\"\n{dense}{categorical}")).unwrap();
    };
    let (price, age) = ("\"price\"\ntransform = \"log\"", "\"age\"");
    let (item, user) = ("\"item\"", "\"user\"");
    schema([price, age], [item, user]);
    let data = format!("--data {} --schema {}", at("clicks.csv"), at("schema.toml"));
    let model = "--set model.bottom=[2,8,4] --set model.dim=4 --set model.top=[4,1] --threads 1 --batch 20";
    succeed(&format!("train {data} {model} --steps 4 --out {}", at("run")));
    // So that it goes by the file.
    keep_schema(&at("run"), None);
    let uses = [
        format!("predict --checkpoint {} --data {}", at("run"), at("clicks.csv")),
        format!("eval --checkpoint {} --data {}", at("run"), at("clicks.csv")),
        format!("train --resume {} --steps 6", at("run")),
    ];
    for (dense, categorical, said) in [
        ([age, price], [item, user], "dense column price was number 1"),
        (["\"price\"", age], [item, user], "dense column price was read by log"),
        ([price, age], [user, item], "categorical column item was number 1"),
    ] {
        schema(dense, categorical);
        for line in &uses {
            let message = fail(line);
            let is_told = message.contains(said) && message.contains("where this model was trained");
            // Training reads all values before it looks at the model.
            let earlier = line.starts_with("train") && message.contains("not in the vocabulary");
            assert!(is_told || earlier, "{line}: {message}");
        }
    }
    schema([price, age], [item, user]);
    uses.iter().for_each(|line| drop(succeed(line)));
}

/// Servers in other languages compute rows as the guide says, from what an exported model has of the schema.
#[test]
fn exported_models_have_the_schema_that_tells_rows() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name).display().to_string();
    // 2014-10-21 was a Tuesday.
    let rows =
        [("2014-10-21 03:30:00", "17.9", "a"), ("2014-10-19 23:00:00", "18", ""), ("", "", "b"), ("", "50", "NULL")];
    let line = |n: usize| {
        let (time, age, city) = rows[n % rows.len()];
        format!("{},{time},{age},{city},a|b\n", n % 3 / 2)
    };
    fs::write(at("clicks.csv"), "click,ts,age,city,tags\n".to_owned() + &(0..60).map(line).collect::<String>())
        .unwrap();
    let schema = r#"
label = "click"
missing = ["NULL"]
categorical = [
    { column = "ts", name = "hour", time = "hour", unit = "YYYY-MM-DD" },
    { column = "ts", name = "day", time = "weekday", unit = "YYYY-MM-DD" },
    { column = "age", buckets = [18, 25, 50] },
    { column = "city" },
    { column = "tags", separator = "|", rows = 1000 },
]
"#;
    fs::write(at("schema.toml"), schema).unwrap();
    let dataset = formats::open(Path::new(&at("clicks.csv")), None, Some(Described::by(Path::new(&at("schema.toml")))));
    let dataset = dataset.unwrap();
    let mut found = vec![Vec::new(); 5];
    let push = |samples: &data::Samples| {
        found.iter_mut().zip(&samples.lookups).for_each(|(rows, lookups)| rows.extend_from_slice(&lookups.rows));
        Ok(())
    };
    scan(&*dataset.members[0].table, 0, rows.len() as u64, push).unwrap();
    assert_eq!(found[..3], [[3, 23, 24, 24], [1, 6, 7, 7], [0, 1, 4, 3]]);
    assert_eq!(found[3], [0, 1, 2, 1], "a blank is a value, and so is what stands for one");
    let guide = String::from_utf8(succeed("guide serving").stdout).unwrap();
    for told in ["17.9 has 0, 18 has 1, 50 has 3 | limits + 1: 4", "0 to 23 | 24", "Monday 0 to Sunday 6 | 7"] {
        assert!(guide.contains(told), "{told}");
    }

    let model = "--set model.bottom=[] --set model.dim=4 --set model.top=[4,1] --threads 1 --batch 20";
    let data = format!("--data {} --schema {}", at("clicks.csv"), at("schema.toml"));
    for (run, more, rows) in [("run", "", 3), ("hashed", "--vocab hash --rows-cap 500", 500)] {
        succeed(&format!("train {data} {model} --steps 4 {more} --out {}", at(run)));
        let export = format!("export --checkpoint {} --format", at(run));
        succeed(&format!("{export} onnx --out {}", at("model.onnx")));
        succeed(&format!("{export} torch --out {}", at("model.safetensors")));
        let graph = proto::Model::decode(&*fs::read(at("model.onnx")).unwrap()).unwrap();
        let told = |key: &str| -> serde_json::Value {
            let entry = graph.metadata_props.iter().find(|entry| entry.key.as_deref() == Some(key)).unwrap();
            serde_json::from_str(entry.value.as_deref().unwrap()).unwrap()
        };
        let schema = told("octorec.schema");
        let hashed = if run == "hashed" { 500.into() } else { serde_json::Value::Null };
        assert_eq!(schema["categorical"][0]["column"], "ts");
        assert_eq!(schema["categorical"][0]["time"], "hour");
        assert_eq!(schema["categorical"][2]["buckets"], serde_json::json!([18.0, 25.0, 50.0]));
        assert_eq!(schema["categorical"][3].get("rows").cloned().unwrap_or_default(), hashed);
        assert_eq!((&schema["categorical"][4]["rows"], &schema["missing"][0]), (&1000.into(), &"NULL".into()));
        let of_tags = if run == "hashed" { 500 } else { 1000 };
        assert_eq!(told("octorec.rows"), serde_json::json!([25, 8, 5, rows, of_tags]));
        let bytes = fs::read(at("model.safetensors")).unwrap();
        let (_, metadata) = SafeTensors::read_metadata(&bytes).unwrap();
        let told: serde_json::Value =
            serde_json::from_str(&metadata.metadata().as_ref().unwrap()["octorec.model"]).unwrap();
        assert_eq!(told["schema"], schema);
    }
}

/// Servers in other languages compute rows of hashed values as the guide says.
#[test]
fn hashed_values_have_the_rows_that_the_guide_computes() {
    const ROWS: u64 = 100_000;
    let folder = tempfile::tempdir().unwrap();
    let guide = String::from_utf8(succeed("guide serving").stdout).unwrap();
    let section = guide.split("# Rows of hashed values\n").nth(1).unwrap().split("\n# ").next().unwrap();
    let example = |line: &str| {
        let cells: Vec<&str> = line.split('|').map(str::trim).collect();
        let value: String = serde_json::from_str(cells.get(1)?.trim_matches('`')).ok()?;
        Some((value, cells.get(2)?.parse::<u64>().ok()?, cells.get(3)?.parse::<u32>().ok()?))
    };
    let examples: Vec<_> = section.lines().filter_map(example).collect();
    assert_eq!(examples.len(), 9, "{section}");

    let (text, schema) = (folder.path().join("values.csv"), folder.path().join("values.toml"));
    let field = |value: &str| match value.contains('"') {
        true => format!("\"{}\"", value.replace('"', "\"\"")),
        false => value.to_owned(),
    };
    let rows = examples.iter().map(|(value, ..)| format!("1,{}\n", field(value)));
    fs::write(&text, "label,value\n".to_owned() + &rows.collect::<String>()).unwrap();
    let described = |rows: &str| format!("label = \"label\"\n[[categorical]]\ncolumn = \"value\"\n{rows}");
    fs::write(&schema, described(&format!("rows = {ROWS}\n"))).unwrap();
    let dataset = formats::open(&text, None, Some(Described::by(&schema))).unwrap();
    let mut found = Vec::new();
    for member in &dataset.members {
        let push = |samples: &data::Samples| {
            found.extend_from_slice(&samples.lookups[0].rows);
            Ok(())
        };
        scan(&*member.table, 0, member.table.rows(), push).unwrap();
    }
    let expected: Vec<u32> = examples.iter().map(|(_, _, row)| *row).collect();
    assert_eq!(found, expected);
    assert!(examples.iter().all(|&(_, crc, row)| crc % ROWS == u64::from(row)));
    assert!(section.contains(&format!("`{}` is the value", field("12\" vinyl"))));

    // The same rows without any in the schema, and those of Criteo's text.
    let criteo = folder.path().join("clicks.tsv");
    fs::write(&criteo, format!("1{}\t68fd1e64{}\n", "\t".repeat(13), "\t".repeat(25))).unwrap();
    fs::write(&schema, described("")).unwrap();
    let hashed = |source: SourceKind, path: &Path, described: Option<&Path>| {
        let mut config = Config::default();
        (config.data.source, config.data.vocab, config.data.rows_cap) = (source, Vocab::Hash, ROWS);
        (config.data.path, config.data.test_fraction) = (path.display().to_string(), 0.0);
        config.data.schema = described.map_or(String::new(), |path| path.display().to_string());
        let source = data::open(&config, Opening::default()).unwrap();
        let mut batch = Batch::new(source.schema());
        source.open(Split::Train, 0).unwrap().read(&mut batch, 100).unwrap();
        batch.bags
    };
    assert_eq!(hashed(SourceKind::Files, &text, Some(&schema))[0].rows, expected);
    let bags = hashed(SourceKind::Tsv, &criteo, None);
    assert_eq!((&bags[0].rows, &bags[1].rows), (&vec![18_852], &vec![0]));
    assert!(section.contains("\n`68fd1e64`, which is 1761418852, has row 18852."));

    let [there, back] = [[3, 17], [17, 3]].map(|rows| bucket(&rows, 1_000_000));
    let crosses = format!("of 1000000 buckets, rows 3 and 17 have {there}, and rows 17 and 3 have {back}.");
    assert!(section.contains(&crosses), "{crosses}");
}
