//! Days of a log as blocks: new values of a day get rows behind those of the days before, as those of text do, and
//! models go on with them.

use std::collections::HashMap;
use std::fs;
use std::ops::Range;
use std::path::Path;

use safetensors::tensor::TensorView;
use safetensors::{SafeTensors, serialize};

use super::{fail, json, run, succeed};

/// A model of such days that trains in a fraction of a second.
const DAILY: &str = "--set model.bottom=[0,8,8] --set model.top=[8,1] --set model.dim=8 --batch 50 --threads 1 \
                     --optimizer-rows adagrad --eval-every 0 --test-fraction 0 --seed 5";

/// What is said of blocks of another vocabulary.
const OTHER: &str = "is not the vocabulary that this model was trained with";

/// Days in a folder, and the lines that work on them.
struct Days(tempfile::TempDir);

impl Days {
    /// With a schema of these categorical columns.
    fn of(categorical: &str) -> Self {
        let days = Self(tempfile::tempdir().unwrap());
        days.describe("day.toml", categorical);
        days
    }

    fn at(&self, name: &str) -> String {
        self.0.path().join(name).display().to_string()
    }

    fn describe(&self, name: &str, categorical: &str) {
        let dense = "[[dense]]\ncolumn = 'price'\nfloat = true\ntransform = 'standardise'\n";
        fs::write(self.at(name), format!("label = 'click'\n{dense}{categorical}")).unwrap();
    }

    /// Text of a day whose users are these, ten rows each.
    fn write(&self, name: &str, users: Range<u32>) {
        let row = |n: u32| format!("{},{}.5,u{},g{}\n", n % 3 % 2, n % 11, users.start + n / 10, n % 7);
        let rows: String = (0..10 * users.len() as u32).map(row).collect();
        fs::write(self.at(name), format!("click,price,user,genre\n{rows}")).unwrap();
    }

    fn preprocess(&self, text: &str, out: &str, more: &str) -> String {
        let [text, schema, out] = [text, "day.toml", out].map(|name| self.at(name));
        format!("preprocess csv --in {text} --schema {schema} --out {out} --threads 2 {more}")
    }

    /// Blocks of a day whose vocabulary is that of others, with its new values.
    fn grow(&self, text: &str, from: &str, out: &str) -> String {
        self.preprocess(text, out, &format!("--vocabulary {} --grow", self.at(from)))
    }

    fn train(&self, data: &str, steps: u32, out: &str, more: &str) -> String {
        format!("train --data {} {DAILY} --steps {steps} --out {} {more}", self.at(data), self.at(out))
    }

    fn of_run(&self, command: &str, run: &str, data: &str) -> String {
        format!("{command} --checkpoint {} --data {}", self.at(run), self.at(data))
    }

    /// The tensors of a run, by name; without the last rows of tables, if these are not to be compared.
    fn tensors(&self, run: &str, whole: bool) -> Vec<(String, Vec<u8>)> {
        const ROW: usize = 8 * size_of::<f32>();
        let checkpoint = fs::read(self.at(&format!("{run}/checkpoint.safetensors"))).unwrap();
        let tensors = SafeTensors::deserialize(&checkpoint).unwrap();
        let mut tensors: Vec<_> = tensors
            .iter()
            .map(|(name, tensor)| {
                let data = tensor.data();
                let is_table = name.contains("emb_l.") && data.len() >= ROW;
                (name.to_owned(), data[..data.len() - if is_table && !whole { ROW } else { 0 }].to_vec())
            })
            .collect();
        tensors.sort();
        tensors
    }

    /// The last row of the users' table.
    fn last_row(&self, run: &str) -> Vec<u8> {
        let tensors = self.tensors(run, true);
        let (_, users) = tensors.iter().find(|(name, _)| name == "emb_l.0.weight").unwrap();
        users[users.len() - 8 * size_of::<f32>()..].to_vec()
    }
}

const USERS_AND_GENRES: &str = "[[categorical]]\ncolumn = 'user'\n[[categorical]]\ncolumn = 'genre'\n";

/// All files of a folder, by name.
fn files(folder: &str) -> Vec<(String, Vec<u8>)> {
    let file =
        |entry: fs::DirEntry| (entry.file_name().to_string_lossy().into_owned(), fs::read(entry.path()).unwrap());
    let mut files: Vec<_> = fs::read_dir(Path::new(folder)).unwrap().map(|entry| file(entry.unwrap())).collect();
    files.sort();
    files
}

#[test]
fn blocks_of_a_grown_vocabulary_go_on_as_text_does() {
    let days = Days::of(USERS_AND_GENRES);
    // The second day lacks the first two users and has three new ones.
    days.write("day0.csv", 0..12);
    days.write("day1.csv", 2..15);
    for (vocab, least) in [("all", ""), ("train", "--min-count 1")] {
        let text = format!("--schema {} --vocab {vocab} --force", days.at("day.toml"));
        succeed(&days.train("day0.csv", 9, "text0", &text));
        succeed(&days.train("day1.csv", 6, "text1", &format!("{text} --init {}", days.at("text0"))));
        succeed(&days.preprocess("day0.csv", "blocks0", &format!("{least} --force")));
        succeed(&days.train("blocks0", 9, "run0", "--force"));
        let before = files(&days.at("blocks0"));
        let told = |line: &str| String::from_utf8(succeed(line).stderr).unwrap();
        let words = "19 values of its vocabulary kept, and 3 new values (user 3) added";
        let message = told(&format!("{} {least} --force", days.grow("day1.csv", "blocks0", "blocks1")));
        assert!(message.contains(&format!("--vocabulary {}: {words}", days.at("blocks0"))), "{message}");
        assert!(files(&days.at("blocks0")) == before, "what grows is a copy");
        let message = told(&days.train("blocks1", 6, "run1", &format!("--force --init {}", days.at("run0"))));
        assert!(message.contains(&format!("--init {}: {words}", days.at("run0"))), "{message}");
        // Blocks' row of unseen values begins as any other, and that of text as zero; no sample has it.
        let whole = vocab == "all";
        for (text, blocks) in [("text0", "run0"), ("text1", "run1")] {
            let [text, blocks] = [text, blocks].map(|run| days.tensors(run, whole));
            let names = |of: &[(String, Vec<u8>)]| of.iter().map(|(name, _)| name.clone()).collect::<Vec<_>>();
            assert_eq!(names(&text), names(&blocks));
            let other = text.iter().zip(&blocks).find(|(text, blocks)| text != blocks);
            assert!(other.is_none(), "{vocab}: {} is another in blocks", other.unwrap().0.0);
        }
        let rows = days.tensors("run1", true).iter().find(|(name, _)| name == "emb_l.0.weight").unwrap().1.len() / 32;
        assert_eq!(rows, 15 + usize::from(!whole));
        if !whole {
            assert!(days.last_row("run1") == days.last_row("run0"), "the row of unseen values is the last one");
        }
        let scores = |run: &str, data: &str| json(&format!("{} --json", days.of_run("eval", run, data)))["auc"].clone();
        assert!(scores("run1", "blocks1").is_number());
        assert_eq!(scores("run1", "blocks1"), scores("text1", "day1.csv"));
    }
}

#[test]
fn a_model_goes_on_with_blocks_that_have_grown_from_its_own_alone() {
    let days = Days::of(USERS_AND_GENRES);
    for (name, users) in [("day0.csv", 0..12), ("day1.csv", 2..15), ("day2.csv", 4..20)] {
        days.write(name, users);
    }
    succeed(&days.preprocess("day0.csv", "blocks0", "--min-count 1"));
    succeed(&days.grow("day1.csv", "blocks0", "blocks1"));
    succeed(&days.grow("day2.csv", "blocks1", "blocks2"));
    // The same days with vocabularies of their own, one of which has the old values in another order.
    succeed(&days.preprocess("day1.csv", "own1", "--min-count 1"));
    succeed(&days.grow("day0.csv", "own1", "turned"));
    succeed(&days.train("blocks0", 9, "run0", ""));
    let init =
        |data: &str, out: &str, more: &str| days.train(data, 2, out, &format!("--init {} {more}", days.at("run0")));
    for other in ["own1", "turned"] {
        let message = fail(&init(other, "refused", ""));
        assert!(message.contains(OTHER) && message.contains("values of column user "), "{message}");
        assert!(message.contains("with --grow new values get rows"), "{message}");
    }
    succeed(&init("blocks1", "run1", ""));
    // A day may be left out: the vocabulary has grown twice.
    let message = String::from_utf8(succeed(&init("blocks2", "run2", "")).stderr).unwrap();
    assert!(message.contains("19 values of its vocabulary kept, and 8 new values (user 8) added"), "{message}");
    // A file of blocks is as good as their folder, and so is a copy.
    succeed(&format!("convert {} {} --format octorec", days.at("blocks1"), days.at("copy")));
    succeed(&init("copy", "run3", ""));
    succeed(&init("blocks1/part-00000.octo", "run4", "--no-verify"));
    // Only a run that begins grows; one that has grown reads blocks of its own vocabulary.
    let refused = |line: &str| {
        let message = fail(line);
        assert!(message.contains(OTHER), "{line}: {message}");
        message
    };
    let message = refused(&format!("train --resume {} --steps 10 --data {}", days.at("run0"), days.at("blocks1")));
    assert!(!message.contains("--grow"), "{message}");
    for (run, data) in [("run0", "blocks1"), ("run1", "blocks0"), ("run1", "blocks2")] {
        for command in ["eval", "predict"] {
            let message = refused(&days.of_run(command, run, data));
            assert!(message.contains("--vocabulary DIR") && !message.contains("--grow"), "{run}, {data}: {message}");
        }
    }
    refused(&days.train("blocks0", 2, "refused", &format!("--init {}", days.at("run1"))));
    // The remedy; and the grown run goes on.
    succeed(&days.preprocess("day0.csv", "again0", &format!("--vocabulary {}", days.at("blocks1"))));
    succeed(&days.of_run("eval", "run1", "again0"));
    succeed(&days.of_run("eval", "run1", "blocks1"));
    succeed(&format!("train --resume {} --steps 3", days.at("run1")));
    succeed(&days.train("blocks2", 2, "next", &format!("--init {}", days.at("run1"))));
    // Under a limit the last row would be another value's.
    let message = fail(&init("blocks1", "refused", "--rows-cap 15"));
    assert!(
        message.contains("column user of these blocks has 16 rows") && message.contains("raise it to 16"),
        "{message}"
    );
    succeed(&init("blocks1", "capped", "--rows-cap 16"));
}

#[test]
fn the_row_of_unseen_values_goes_on_where_no_value_was_frequent() {
    let days = Days::of(USERS_AND_GENRES);
    // Each user comes once.
    let row = |n: u32| format!("{},{}.5,v{n},g{}\n", n % 3 % 2, n % 11, n % 7);
    let rows: String = (0..60).map(row).collect();
    fs::write(days.at("day0.csv"), format!("click,price,user,genre\n{rows}")).unwrap();
    days.write("day1.csv", 0..3);
    succeed(&days.preprocess("day0.csv", "blocks0", "--min-count 2"));
    succeed(&days.train("blocks0", 9, "run0", ""));
    succeed(&format!("{} --min-count 2", days.grow("day1.csv", "blocks0", "blocks1")));
    let output = succeed(&days.train("blocks1", 2, "run1", &format!("--init {}", days.at("run0"))));
    let message = String::from_utf8(output.stderr).unwrap();
    assert!(message.contains("7 values of its vocabulary kept, and 3 new values (user 3) added"), "{message}");
    // The last rows of what the users' table has, weights and moments. No sample of the second day has an unseen value.
    let last = |run: &str, rows: usize| {
        let tensors = days.tensors(run, true).into_iter();
        let of_users = tensors.filter(|(name, _)| name.contains("emb_l.0.") && !name.ends_with(".step"));
        let row = |(name, data): (String, Vec<u8>)| {
            assert_eq!(data.len(), 32 * rows, "{name}");
            (name, data[data.len() - 32..].to_vec())
        };
        of_users.map(row).collect::<Vec<_>>()
    };
    let (before, after) = (last("run0", 1), last("run1", 4));
    assert_eq!(before.len(), 2);
    assert!(before.iter().all(|(_, row)| row.iter().any(|byte| *byte != 0)), "it was trained");
    assert!(before == after);
}

#[test]
fn another_limit_of_rows_than_that_of_the_model_is_refused_with_what_to_do() {
    let days = Days::of(USERS_AND_GENRES);
    days.write("day0.csv", 0..12);
    days.write("day1.csv", 2..15);
    for (least, of) in [("", "all"), ("--min-count 1", "frequent")] {
        succeed(&days.preprocess("day0.csv", &format!("{of}0"), least));
        succeed(&days.grow("day1.csv", &format!("{of}0"), &format!("{of}1")));
        succeed(&days.train(&format!("{of}0"), 2, &format!("{of}-limited"), "--rows-cap 10"));
    }
    succeed(&days.train("all0", 2, "all-whole", ""));
    let init = |data: &str, run: &str, more: &str| {
        days.train(data, 2, "next", &format!("--init {} --force {more}", days.at(run)))
    };
    let begins = "in the model that the run begins with:";
    let message = fail(&init("all1", "all-limited", ""));
    let words =
        format!("column user has 15 rows in these data, and 10 {begins} use --rows-cap 10, or train from the start");
    assert!(message.contains(&words), "{message}");
    succeed(&init("all1", "all-limited", "--rows-cap 10"));
    let message = fail(&init("all1", "all-whole", "--rows-cap 10"));
    let words =
        format!("column user has 10 rows in these data, and 12 {begins} use --rows-cap 0, or train from the start");
    assert!(message.contains(&words), "{message}");
    succeed(&init("all1", "all-whole", "--rows-cap 0"));
    // Under that limit unseen values would get another's row.
    let message = fail(&init("frequent1", "frequent-limited", ""));
    let words = format!("column user has 16 rows in these data, and 10 {begins} train from the start");
    assert!(message.contains(&words), "{message}");
}

#[test]
fn what_unseen_values_have_learned_by_their_number_is_told_to_be_lost() {
    let days = Days::of(USERS_AND_GENRES);
    days.write("day0.csv", 0..12);
    days.write("day1.csv", 2..15);
    for (least, lost) in [("--min-count 1", true), ("", false)] {
        succeed(&days.preprocess("day0.csv", "blocks0", &format!("{least} --force")));
        succeed(&format!("{} {least} --force", days.grow("day1.csv", "blocks0", "blocks1")));
        for (model, told) in [
            ("--set model.qr_threshold=9 --set model.qr_collisions=4", lost),
            ("--set model.wide=true --set model.wide_crosses=[[\"user\",\"genre\"]]", lost),
            // No column of a cross has grown, and those of its own keep theirs.
            ("--set model.wide=true", false),
        ] {
            succeed(&days.train("blocks0", 2, "run0", &format!("{model} --force")));
            let init = format!("{model} --force --init {}", days.at("run0"));
            let message = String::from_utf8(succeed(&days.train("blocks1", 2, "run1", &init)).stderr).unwrap();
            let words = "warning: column user: quotients and remainders, and crosses of a wide part,";
            assert_eq!(message.contains(words), told, "{least} {model}: {message}");
        }
    }
}

#[test]
fn values_that_a_grown_vocabulary_has_added_are_those_that_the_model_has_not_seen() {
    let days = Days::of(USERS_AND_GENRES);
    days.write("day0.csv", 0..12);
    days.write("day1.csv", 2..15);
    let inspect = |data: &str| format!("inspect {} --against {} --json", days.at(data), days.at("run0"));
    for least in ["", "--min-count 1"] {
        succeed(&days.preprocess("day0.csv", "blocks0", &format!("{least} --force")));
        succeed(&format!("{} {least} --force", days.grow("day1.csv", "blocks0", "blocks1")));
        succeed(&days.train("blocks0", 9, "run0", "--force"));
        let found = json(&inspect("blocks1"));
        assert_eq!(found["samples"], 130);
        let columns = found["columns"].as_array().unwrap();
        let unseen = |name: &str| &columns.iter().find(|column| column["column"] == name).unwrap()["unseen"];
        // Three of thirteen users.
        assert!((unseen("user").as_f64().unwrap() - 3.0 / 13.0).abs() < 1e-12, "{least}: {found}");
        assert!(unseen("genre").is_null(), "{found}");
    }
    succeed(&days.preprocess("day1.csv", "own1", "--min-count 1"));
    let message = fail(&inspect("own1"));
    assert!(message.contains(OTHER) && !message.contains("--grow"), "{message}");
}

#[test]
fn what_cannot_grow_is_refused_with_what_to_do() {
    let days = Days::of(USERS_AND_GENRES);
    days.write("day0.csv", 0..12);
    days.write("day1.csv", 2..15);
    succeed(&days.preprocess("day0.csv", "blocks0", ""));
    let output = run(&days.preprocess("day1.csv", "blocks1", "--grow"));
    let message = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.code() == Some(2) && message.contains("--vocabulary <DIR>"), "{message}");
    let message =
        fail(&days.preprocess("day1.csv", "blocks1", &format!("--vocabulary {} --min-count 2", days.at("blocks0"))));
    assert!(message.contains("--min-count: has an effect only with new values"), "{message}");
    let grow = days.grow("day1.csv", "blocks0", "blocks1");
    let message = fail(&format!("{grow} --min-count 2"));
    assert!(message.contains("no row is that of infrequent values") && message.contains("leave it away"), "{message}");
    for (categorical, words) in [
        ("[[categorical]]\ncolumn = 'user'\n", "has a column genre, and these data have none"),
        (&format!("{USERS_AND_GENRES}rows = 5\n"), "numbers the values of column genre, and by the schema"),
        (
            &format!("{USERS_AND_GENRES}[[categorical]]\ncolumn = 'price'\nname = 'paid'\n"),
            "has no vocabulary of column paid",
        ),
    ] {
        days.describe("day.toml", categorical);
        let message = fail(&grow);
        assert!(message.contains("dataset.toml") && message.contains(words), "{message}");
    }
    // Nor are values hashed that an older vocabulary numbers, where it is used as it is.
    days.describe("day.toml", &format!("{USERS_AND_GENRES}rows = 5\n"));
    let message = fail(grow.strip_suffix(" --grow").unwrap());
    assert!(message.contains("numbers the values of column genre, and by the schema"), "{message}");
    // A model is trained on it: unlike rows for predict alone, these have labels.
    days.describe("day.toml", USERS_AND_GENRES);
    let text = fs::read_to_string(days.at("day1.csv")).unwrap();
    fs::write(days.at("day1.csv"), text.replacen("click,", "clicked,", 1)).unwrap();
    let message = fail(&grow);
    assert!(message.contains("has no column click"), "{message}");
    assert!(!Path::new(&days.at("blocks1")).join("dataset.toml").exists());
}

#[test]
fn text_goes_on_with_text_and_blocks_with_blocks() {
    let days = Days::of(USERS_AND_GENRES);
    days.write("day.csv", 0..12);
    // The same rows from the last to the first: as many values, which have other numbers.
    let day = fs::read_to_string(days.at("day.csv")).unwrap();
    let (header, rows) = day.split_once('\n').unwrap();
    let rows: String = rows.lines().rev().map(|row| format!("{row}\n")).collect();
    fs::write(days.at("turned.csv"), format!("{header}\n{rows}")).unwrap();
    let schema = format!("--schema {}", days.at("day.toml"));
    succeed(&days.train("day.csv", 3, "of-text", &schema));
    for name in ["day", "turned"] {
        succeed(&days.preprocess(&format!("{name}.csv"), name, ""));
    }
    succeed(&days.train("day", 3, "of-blocks", ""));
    let (text, blocks) = (days.at("text/model.safetensors"), days.at("blocks/model.safetensors"));
    for (run, export) in [("of-text", &text), ("of-blocks", &blocks)] {
        succeed(&format!("export --checkpoint {} --format torch --out {export}", days.at(run)));
    }
    let init =
        |data: &str, model: &str, more: &str| days.train(data, 1, "next", &format!("--force {more} --init {model}"));
    let told = |line: &str| String::from_utf8(succeed(line).stderr).unwrap();
    // As earlier versions exported it, without which values its rows stand for.
    let old = days.at("text/old.safetensors");
    let whole = fs::read(&text).unwrap();
    let (_, metadata) = SafeTensors::read_metadata(&whole).unwrap();
    let exported = &metadata.metadata().as_ref().unwrap()["octorec.model"];
    let mut described: serde_json::Value = serde_json::from_str(exported).unwrap();
    assert_eq!(described.as_object_mut().unwrap().remove("numbering").unwrap().as_object().unwrap().len(), 2);
    let described = HashMap::from([("octorec.model".to_owned(), described.to_string())]);
    let tensors = SafeTensors::deserialize(&whole).unwrap().tensors();
    fs::write(&old, serialize::<_, TensorView<'_>, _>(tensors, Some(described)).unwrap()).unwrap();
    for model in [&days.at("of-text"), &text, &old] {
        // Blocks of the same text have the same vocabulary.
        let knows = *model != old;
        let untold = |data: &str| format!("{} has numbers of rows, which may be those of other values", days.at(data));
        let why = if knows { "other values in the rows of column ".to_owned() } else { untold("turned") };
        let message = fail(&init("turned", model, ""));
        assert!(message.contains(model) && message.contains(&why), "{message}");
        match knows {
            true => drop(succeed(&init("day", model, ""))),
            false => assert!(fail(&init("day", model, "")).contains(&untold("day"))),
        }
        // The remedies.
        succeed(&init("turned.csv", model, &schema));
        succeed(&init("day", model, "--no-verify"));
        let hashed = fail(&init("day.csv", model, &format!("{schema} --vocab hash --rows-cap 12")));
        assert!(hashed.contains("get theirs by a hash"), "{hashed}");
    }
    // Which is known before the text is read, a row of which is malformed here.
    fs::write(days.at("bad.csv"), format!("{day}1,x,u1,g1\n")).unwrap();
    for (model, growing) in [
        (&days.at("of-blocks"), "which names that data set, and --grow, by which new values get rows, and name these"),
        (&blocks, "with --grow, and begin with the run's own directory, --init RUN), and name these"),
    ] {
        for text in ["day.csv", "bad.csv"] {
            let message = fail(&init(text, model, &schema));
            assert!(message.contains(model) && message.contains("values of text would get others"), "{message}");
            assert!(message.contains(growing), "{message}");
        }
        let message = fail(&init("turned", model, ""));
        assert!(message.contains(OTHER) && message.contains("values of column "), "{message}");
        let said = told(&init("day", model, ""));
        assert!(!said.contains("does not tell which value"), "{said}");
    }
    succeed(&format!("{} --vocabulary {}", days.preprocess("turned.csv", "again", ""), days.at("day")));
    succeed(&init("again", &blocks, ""));
    // From a state dict a model does not grow, and from its run it does.
    days.write("day1.csv", 2..15);
    succeed(&days.grow("day1.csv", "day", "grown"));
    let message = fail(&init("grown", &blocks, ""));
    assert!(message.contains(OTHER) && message.contains("(--init RUN)"), "{message}");
    succeed(&init("grown", &days.at("of-blocks"), ""));
    // As PyTorch writes it again.
    let whole = fs::read(&blocks).unwrap();
    let tensors = SafeTensors::deserialize(&whole).unwrap().tensors();
    fs::write(&blocks, serialize::<_, TensorView<'_>, _>(tensors, None).unwrap()).unwrap();
    let said = told(&init("day", &blocks, ""));
    assert!(said.contains("does not tell which value each of its rows belongs to: right only if"), "{said}");
}
