//! Cells of Parquet that are no plain numbers and texts: what they are as text, which columns have none, and what is
//! said of files that cannot be read.

use std::fs::{self, File};
use std::path::Path;
use std::sync::Arc;

use ::parquet::data_type::{ByteArray, DataType, FixedLenByteArrayType, Int32Type, Int96, Int96Type};
use ::parquet::file::properties::WriterProperties;
use ::parquet::file::writer::{SerializedColumnWriter, SerializedFileWriter};
use ::parquet::schema::parser::parse_message_type;
use octorec::data::Samples;
use octorec::data::formats::{self, Described};

use super::{Column, LAYERS, labels, numbered, predict, write};
use crate::{fail, json, succeed};

/// What writes a column.
type Fill = Box<dyn Fn(&mut SerializedColumnWriter<'_>)>;

/// Writes a column without gaps.
fn fill<T: DataType>(values: Vec<T::T>) -> Fill {
    Box::new(move |to| {
        to.typed::<T>().write_batch(&values, None, None).unwrap();
    })
}

/// Writes such columns, in one row group.
fn store(path: &Path, message: &str, columns: &[Fill]) {
    let schema = Arc::new(parse_message_type(&format!("message log {{ {message} }}")).unwrap());
    let properties = Arc::new(WriterProperties::builder().build());
    let mut writer = SerializedFileWriter::new(File::create(path).unwrap(), schema, properties).unwrap();
    let mut group = writer.next_row_group().unwrap();
    for fill in columns {
        let mut to = group.next_column().unwrap().unwrap();
        fill(&mut to);
        to.close().unwrap();
    }
    group.close().unwrap();
    writer.close().unwrap();
}

#[test]
fn uuids_and_moments_of_all_years_are_those_of_the_text() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    // The last day of the year 9999, which Spark writes where there is no end, and the first one of 2026.
    let moments = [(5_373_484, "9999-12-31 00:00:00"), (2_461_042, "2026-01-01 00:00:00")];
    let of = |n: usize| moments[n % 3 % 2];
    let uids = (0..60).map(|n| ByteArray::from(vec![n as u8 % 7; 16]).into()).collect();
    let ends = (0..60).map(|n| {
        let mut value = Int96::new();
        value.set_data(0, 0, of(n).0);
        value
    });
    let columns = [
        fill::<Int32Type>((0..60).map(|n| n % 2).collect()),
        fill::<FixedLenByteArrayType>(uids),
        fill::<Int96Type>(ends.collect()),
    ];
    let message = "required int32 label; required fixed_len_byte_array(16) uid (UUID); required int96 until;";
    store(&at("log.parquet"), message, &columns);
    let mut text = "label,uid,until\n".to_owned();
    for n in 0..60 {
        let byte = format!("{:02x}", n % 7);
        let groups = [4, 2, 2, 2, 6].map(|bytes| byte.repeat(bytes)).join("-");
        text += &format!("{},{groups},{}\n", n % 2, of(n).1);
    }
    fs::write(at("log.csv"), text).unwrap();
    let schema = at("told.toml");
    fs::write(&schema, "label = 'label'\ncategorical = [{ column = 'uid' }, { column = 'until' }]\n").unwrap();
    let found = |name: &str| {
        let dataset = formats::open(&at(name), None, Some(Described::by(&schema))).unwrap();
        let mut found = Samples::new(&dataset.description);
        dataset.members[0].table.open(0).unwrap().read(&mut found, usize::MAX).unwrap();
        let values = dataset.vocabulary.as_ref().map(|known| known.texts().to_vec());
        format!("{:?} {values:?} {found:?}", dataset.description)
    };
    assert_eq!(found("log.parquet"), found("log.csv"));
    // As a moment whose age counts, such an end is refused as that of text is.
    let age = "label = 'label'\ncategorical = [{ column = 'uid' }]\n\
               dense = [{ column = 'until', name = 'age', time = 'age', unit = 'YYYY-MM-DD' }]\n";
    fs::write(&schema, age).unwrap();
    for name in ["log.csv", "log.parquet"] {
        let message = fail(&format!("inspect {} --schema {}", at(name).display(), schema.display()));
        assert!(message.contains("line 2: column until: ") && message.contains("found \"9999-12-31"), "{message}");
    }
}

#[test]
fn columns_that_no_schema_reads_are_told_and_stop_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    let [price, ..] = numbered(0..60);
    let user = Column::Text((0..60).map(|n| Some(format!("u{}", n % 5))).collect());
    let parts = || Column::Small((0..60).map(Some).collect());
    // A bar in a value of a list that nobody asks for.
    let tags = |bar: &str| Column::List((0..60).map(|n| Some(vec![format!("t{bar}{}", n % 4)])).collect());
    let columns = "optional int32 label; optional double price; optional binary user (UTF8); \
                   required group st { optional int32 a; optional int32 b; } \
                   optional group tags (LIST) { repeated group list { optional binary element (UTF8); } }";
    let log = at("log.parquet");
    write(&log, columns, &[labels(0..60), price, user, parts(), parts(), tags("|")], 60);
    let inspect = format!("inspect {} --label label --write-schema {}", log.display(), at("new.toml").display());
    let left_out = json(&format!("{inspect} --json"))["left_out"].clone();
    let reason = |name: &str| {
        let found = left_out.as_array().unwrap().iter().find(|out| out["column"] == name);
        found.unwrap_or_else(|| panic!("{name} is not among {left_out}"))["reason"].as_str().unwrap().to_owned()
    };
    assert_eq!(reason("st"), "it is a structure, which has no text");
    assert!(reason("tags").starts_with("it is a list of which a value holds |"), "{left_out}");
    let written = fs::read_to_string(at("new.toml")).unwrap();
    assert!(
        written.contains("# left out: st: it is a structure") && written.contains("# left out: tags: "),
        "{written}"
    );
    assert!(!written.contains("column = \"tags\""), "{written}");
    let message = fail(&format!("inspect {} --label st", log.display()));
    assert!(message.contains("column st cannot be the label: it is a structure"), "{message}");
    // What the schema asks for is told with what it is; what it does not is read by nobody.
    let by = |categorical: &str| {
        let dense = "label = 'label'\ndense = [{ column = 'price', float = true }]\n";
        fs::write(at("told.toml"), format!("{dense}categorical = [{{ column = 'user' }}{categorical}]\n")).unwrap();
        format!("--schema {}", at("told.toml").display())
    };
    let train =
        |by: &str, run: &str| format!("train --data {} {by} {LAYERS} --out {}", log.display(), at(run).display());
    let message = fail(&train(&by(", { column = 'st' }"), "none"));
    assert!(message.contains("log.parquet: column st is a structure, which has no text"), "{message}");
    let message = fail(&train(&by(", { column = 'tags', separator = '|' }"), "neither"));
    assert!(message.contains("row group 0, column tags, row 0: a value of its list holds |"), "{message}");
    succeed(&train(&by(""), "run"));
    let expected = predict(&at("run"), &log);
    assert_eq!(expected.len(), 60);
    let line = format!("predict --checkpoint {} --data {} --threads 1", at("run").display(), log.display());
    let answered = String::from_utf8(succeed(&format!("{line} --on-bad-row answer")).stdout).unwrap();
    assert!(answered.lines().eq(&expected), "{answered}");
    succeed(&format!("preprocess csv --in {} --out {} {}", log.display(), at("blocks").display(), by("")));
    // Lists without such a value are proposed, and the other columns say what they did.
    let [price, ..] = numbered(0..60);
    let user = Column::Text((0..60).map(|n| Some(format!("u{}", n % 5))).collect());
    write(&log, columns, &[labels(0..60), price, user, parts(), parts(), tags("")], 60);
    let left_out = json(&format!("inspect {} --label label --json", log.display()))["left_out"].clone();
    assert!(left_out.as_array().unwrap().iter().all(|out| out["column"] != "tags"), "{left_out}");
    assert_eq!(predict(&at("run"), &log), expected);
}

#[test]
fn a_prediction_needs_no_label_and_gaps_need_no_type() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    let (whole, run, part) = (at("whole.parquet"), at("run"), at("part.parquet"));
    let features = "optional double price; optional int64 user; optional int32 item;";
    let [price, user, item] = numbered(0..400);
    write(&whole, &format!("optional int32 label; {features}"), &[labels(0..400), price, user, item], 400);
    succeed(&format!("train --data {} {LAYERS} --out {}", whole.display(), run.display()));
    let expected = predict(&run, &whole);
    let unknown = || Column::Text((0..50).map(|_| Some("?".to_owned())).collect());
    let seven = || Column::Small(vec![Some(7); 50]);
    let none = || Column::Small(vec![None; 50]);
    for (kind, label) in
        [("binary label (UTF8)", unknown()), ("int32 label", seven()), ("int32 label (UNKNOWN)", none())]
    {
        let [price, user, item] = numbered(0..50);
        write(&part, &format!("optional {kind}; {features}"), &[label, price, user, item], 50);
        assert_eq!(predict(&run, &part), expected[..50], "{kind}");
        fail(&format!("eval --checkpoint {} --data {}", run.display(), part.display()));
    }
    // A price that no row has is the same, whatever type it was given.
    let answers = ["double price", "int32 price (UNKNOWN)"].map(|kind| {
        let [_, user, item] = numbered(0..50);
        let price = if kind.starts_with("double") { Column::Float(vec![None; 50]) } else { none() };
        write(&part, &format!("optional {kind}; optional int64 user; optional int32 item;"), &[price, user, item], 50);
        predict(&run, &part)
    });
    assert!(answers[0].len() == 50 && answers[0] == answers[1]);
}

#[test]
fn a_column_without_a_type_is_gaps_of_the_type_that_is_expected() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    let samples = |data: &Path, by: Option<&Path>| {
        let dataset = formats::open(data, None, by.map(Described::by))?;
        let mut found = Samples::new(&dataset.description);
        for member in &dataset.members {
            member.table.open(0)?.read(&mut found, usize::MAX)?;
        }
        Ok::<_, octorec::base::Error>(format!("{:?} {found:?}", dataset.description))
    };
    // Of a column of strings or of numbers, pandas knows no type where it has gaps alone.
    let none = || Column::Small(vec![None; 40]);
    let store = |path: &Path, kind: &str, visits: Column| {
        let [price, user, _] = numbered(0..40);
        let columns = "optional int32 label; optional double price; optional int64 user;";
        write(path, &format!("{columns} optional {kind}"), &[labels(0..40), price, user, visits], 40);
    };
    let pair = |untyped: &str, typed: &str, column: Column| {
        store(&at("untyped.parquet"), untyped, none());
        store(&at("typed.parquet"), typed, column);
    };
    pair("int32 visits (UNKNOWN);", "int64 visits;", Column::Whole(vec![None; 40]));
    // By a schema beside the files, for whole numbers and for floats.
    for float in [false, true] {
        let schema = format!(
            "label = {{ name = 'label' }}\ndense = [{{ name = 'price', float = true }}, {{ name = 'visits', float = {float} }}]\n\
             categorical = [{{ name = 'user', rows = 400 }}]\n"
        );
        fs::write(at("schema.toml"), schema).unwrap();
        let [untyped, typed] = ["untyped.parquet", "typed.parquet"].map(|name| samples(&at(name), None).unwrap());
        assert_eq!(untyped, typed);
    }
    // As a category's number a gap is told with its row, whatever its type.
    let schema = "label = { name = 'label' }\ndense = [{ name = 'price', float = true }]\n\
                  categorical = [{ name = 'visits', rows = 400 }]\n";
    fs::write(at("schema.toml"), schema).unwrap();
    for name in ["untyped.parquet", "typed.parquet"] {
        let message = samples(&at(name), None).unwrap_err().to_string();
        assert!(message.contains("column visits, row 0: there is no value: give it one"), "{message}");
    }
    // Lists that are all empty are lists, as they are beside those of another file.
    let list = |of: &str| format!("group visits (LIST) {{ repeated group list {{ optional {of}; }} }}");
    store(&at("untyped.parquet"), &list("int32 element (UNKNOWN)"), Column::Empty);
    store(&at("typed.parquet"), &list("int32 element"), Column::Empty);
    fs::write(at("schema.toml"), schema.replace("rows = 400", "rows = 400, hots = 0")).unwrap();
    for described in [true, false] {
        if !described {
            fs::remove_file(at("schema.toml")).unwrap();
        }
        let [untyped, typed] = ["untyped.parquet", "typed.parquet"].map(|name| samples(&at(name), None).unwrap());
        assert_eq!(untyped, typed);
    }
    // By a schema of text it is blank, as a number and as a category.
    pair("int32 visits (UNKNOWN);", "binary visits (UTF8);", Column::Text(vec![None; 40]));
    let text = "label = 'label'\ndense = [{ column = 'visits', float = false }]\n\
                categorical = [{ column = 'user' }, { column = 'visits', name = 'kind' }]\n";
    fs::write(at("told.toml"), text).unwrap();
    let [untyped, typed] =
        ["untyped.parquet", "typed.parquet"].map(|name| samples(&at(name), Some(&at("told.toml"))).unwrap());
    assert_eq!(untyped, typed);
    // A file that has values of such a type is no whole one.
    store(&at("untyped.parquet"), "int32 visits (UNKNOWN);", Column::Small((0..40).map(Some).collect()));
    let message = samples(&at("untyped.parquet"), None).unwrap_err().to_string();
    assert!(message.contains("column visits: ") && message.contains("type says that it has no values"), "{message}");
}

#[test]
fn files_that_cannot_be_read_are_told_with_their_cause() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("log.parquet");
    let numbers = || fill::<Int32Type>((0..40).collect());
    let columns = [fill::<Int32Type>((0..40).map(|n| n % 2).collect()), numbers(), numbers()];
    store(&file, "required int32 label; required int32 I1; required int32 user;", &columns);
    let whole = fs::read(&file).unwrap();
    let schema = folder.path().join("told.toml");
    fs::write(&schema, "label = 'label'\ndense = [{ column = 'I1' }]\ncategorical = [{ column = 'user' }]\n").unwrap();
    let told = |bytes: &[u8]| {
        fs::write(&file, bytes).unwrap();
        let data = file.display();
        [
            fail(&format!("train --data {data} {LAYERS} --schema {}", schema.display())),
            fail(&format!("inspect {data} --label label")),
            fail(&format!("train --data {data} {LAYERS}")),
        ]
    };
    // Half of a copy, through a schema, a label and without.
    for message in told(&whole[..whole.len() / 2]) {
        let cause = ["begins as Parquet does, but does not end so", "is no whole Parquet file"];
        assert!(message.contains("log.parquet: ") && cause.iter().any(|cause| message.contains(cause)), "{message}");
    }
    // Brotli has the number 4 among codecs, here in the place of none, behind the name of the chunk's column.
    let at = whole.windows(7).rposition(|part| part == b"label\x15\0").unwrap();
    let mut packed = whole.clone();
    packed[at + 6] = 8;
    for message in told(&packed) {
        assert!(message.contains("column label: it is packed with brotli, which is not read here"), "{message}");
        assert!(message.contains("zstd or snappy") && !message.contains("damaged"), "{message}");
    }
    // A page that begins as none does.
    let mut encrypted = whole.clone();
    encrypted[4] = 0;
    for message in told(&encrypted) {
        assert!(message.contains("column label: ") && message.contains("the column is encrypted"), "{message}");
    }
    let mut sealed = whole.clone();
    let end = sealed.len() - 1;
    (sealed[3], sealed[end]) = (b'E', b'E');
    for message in told(&sealed) {
        assert!(
            message.contains("log.parquet: is encrypted Parquet") && message.contains("without encryption"),
            "{message}"
        );
    }
}

#[test]
fn values_behind_row_numbers_that_parquet_cannot_keep_are_told() {
    let folder = tempfile::tempdir().unwrap();
    let to = |name: &str| folder.path().join(name).display().to_string();
    let text: String = (0..80).map(|n| format!("{},u{}\n", n % 2, n % 9)).collect();
    fs::write(to("log.csv"), format!("label,user\n{text}")).unwrap();
    fs::write(to("told.toml"), "label = 'label'\ncategorical = [{ column = 'user' }]\n").unwrap();
    succeed(&format!("preprocess csv --in {} --schema {} --out {}", to("log.csv"), to("told.toml"), to("blocks")));
    let convert = |from: &str, out: &str, format: &str| {
        let output = succeed(&format!("convert {} {} --format {format}", to(from), to(out)));
        String::from_utf8(output.stderr).unwrap()
    };
    let warning = "has no place for the values behind row numbers";
    let warned = convert("blocks", "files", "parquet");
    assert!(warned.contains(&format!("parquet {warning}")), "{warned}");
    let schema = fs::read_to_string(folder.path().join("files/schema.toml")).unwrap();
    assert!(schema.contains("user") && !schema.contains("vocabulary"), "{schema}");
    // Blocks keep them, and Parquet has none to lose.
    for (from, out, format) in
        [("blocks", "copy", "octorec"), ("files", "again", "octorec"), ("files", "more", "parquet")]
    {
        let said = convert(from, out, format);
        assert!(!said.contains(warning), "{from}: {said}");
    }
    assert!(folder.path().join("copy/user.vocabulary").exists());
}
