//! Rows that arrive are those of a file, however they come.

use std::collections::VecDeque;
use std::io::Read;
use std::path::Path;

use super::*;
use crate::base::config::{DataConfig, Vocab};
use crate::data::Labels;

/// Comes in these pieces; nothing: a pause.
struct Pieces(VecDeque<Option<Vec<u8>>>);

impl Pieces {
    fn of(text: &str, size: usize) -> Self {
        Self(text.as_bytes().chunks(size).map(|piece| Some(piece.to_vec())).collect())
    }
}

impl Read for Pieces {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        while let Some(front) = self.0.front_mut() {
            let Some(piece) = front else {
                self.0.pop_front();
                continue;
            };
            let taken = piece.len().min(buffer.len());
            buffer[..taken].copy_from_slice(&piece[..taken]);
            piece.drain(..taken);
            // What comes next is seen as soon as this is read.
            if piece.is_empty() {
                self.0.pop_front();
            }
            return Ok(taken);
        }
        Ok(0)
    }
}

impl Input for Pieces {
    fn waits(&self) -> bool {
        matches!(self.0.front(), Some(None))
    }
}

/// All that arrives, in the minibatches that a reader hands over.
fn arrivals(
    config: &Config,
    opening: Opening<'_>,
    (input, writing): (Pieces, Writing),
    limit: usize,
) -> Result<Vec<Batch>> {
    let source = Incoming::open(config, opening, Box::new(input), writing)?;
    let mut reader = source.open(Split::Train, 0)?;
    assert!(source.open(Split::Train, 0).is_err(), "it comes once");
    let mut found = Vec::new();
    loop {
        let mut batch = Batch::new(source.schema());
        let read = reader.read(&mut batch, limit)?;
        assert_eq!(read, batch.samples());
        batch.check(source.schema()).unwrap();
        if read == 0 {
            return Ok(found);
        }
        found.push(batch);
    }
}

fn joined(batches: &[Batch]) -> Batch {
    let (first, rest) = batches.split_first().unwrap();
    let mut whole = first.clone();
    rest.iter().for_each(|batch| whole.append_range(batch, 0..batch.samples()));
    whole
}

/// What a model knows that was trained on this file, and all rows of another one as it reads them.
fn stored(config: &mut Config, train: &Path, asked: &Path) -> (Vocabulary, Batch) {
    config.data.path = train.display().to_string();
    config.data.test_fraction = 0.0;
    let known = crate::data::open(config, Opening::default()).unwrap().about().vocabulary.as_deref().unwrap().clone();
    config.data.path = asked.display().to_string();
    let opening = Opening {
        known: Some(known.clone()),
        labels: Labels::Optional,
        unseen: OnUnseen::EmptyBag,
        whole: true,
        ..Opening::default()
    };
    let source = crate::data::open(config, opening).unwrap();
    let mut batch = Batch::new(source.schema());
    source.open(Split::Train, 0).unwrap().read(&mut batch, 1000).unwrap();
    (known, batch)
}

fn opening(known: &Vocabulary) -> Opening<'static> {
    Opening { known: Some(known.clone()), ..Opening::default() }
}

/// Labels are NaN: compared without them.
fn same(a: &Batch, b: &Batch) {
    assert_eq!((&a.dense, &a.bags, &a.weights), (&b.dense, &b.bags, &b.weights));
}

/// Rows in Criteo's layout: the values of some columns follow the row's number.
fn criteo(rows: std::ops::Range<u32>) -> String {
    let row = |row: u32| {
        let integers = (0..13).map(|n| if (row + n).is_multiple_of(5) { String::new() } else { (row * n).to_string() });
        let categories =
            (0..26).map(|n| if (row + n).is_multiple_of(7) { String::new() } else { format!("{:x}", row % (n + 2)) });
        format!("1\t{}\n", integers.chain(categories).collect::<Vec<_>>().join("\t"))
    };
    rows.map(row).collect()
}

#[test]
fn criteos_rows_are_those_of_a_file_however_they_come() {
    let folder = tempfile::tempdir().unwrap();
    let [train, asked] = ["train", "asked"].map(|name| folder.path().join(name));
    let text = criteo(5..45);
    std::fs::write(&train, criteo(0..9)).unwrap();
    std::fs::write(&asked, &text).unwrap();
    let mut config = Config::default();
    config.data.source = SourceKind::Tsv;
    let (known, expected) = stored(&mut config, &train, &asked);
    assert!(expected.bags.iter().any(|bag| bag.rows.len() < 40), "some values are not known");
    for (size, limit) in [(1, 7), (100, 1000), (4096, 3)] {
        let input = (Pieces::of(&text, size), Writing::Text);
        let found = arrivals(&config, opening(&known), input, limit).unwrap();
        same(&joined(&found), &expected);
        assert!(found.iter().rev().skip(1).all(|batch| batch.samples() == limit), "nothing pauses");
    }
    let object = |line: &str| {
        let fields: Vec<&str> = line.split('\t').skip(1).collect();
        let number =
            |n: usize, field: &str| format!("\"I{}\":{}", n + 1, if field.is_empty() { "null" } else { field });
        let integers = fields[..13].iter().enumerate().map(|(n, field)| number(n, field));
        let categories = fields[13..].iter().enumerate().map(|(n, field)| format!("\"C{}\":\"{field}\"", n + 1));
        format!("{{{}}}\n", integers.chain(categories).collect::<Vec<_>>().join(","))
    };
    let objects: String = text.lines().map(object).collect();
    let found = arrivals(&config, opening(&known), (Pieces::of(&objects, 1000), Writing::Json), 1000).unwrap();
    same(&joined(&found), &expected);
}

#[test]
fn a_pause_hands_over_what_has_come_and_trouble_waits_for_those_before_it() {
    let folder = tempfile::tempdir().unwrap();
    let train = folder.path().join("train");
    std::fs::write(&train, criteo(0..9)).unwrap();
    let mut config = Config::default();
    config.data.source = SourceKind::Tsv;
    let (known, _) = stored(&mut config, &train, &train);
    let (a, b) = (criteo(0..3), criteo(3..5));
    let (half, rest) = b.split_at(b.len() / 3);
    let text = |text: &str| Some(text.as_bytes().to_vec());
    let pieces = [text(&a), text(half), None, text(rest), None, None, text("1\t2\n")];
    let source = Incoming::open(&config, opening(&known), Box::new(Pieces(pieces.into())), Writing::Text).unwrap();
    let mut reader = source.open(Split::Train, 0).unwrap();
    let mut batch = Batch::new(source.schema());
    assert_eq!(reader.read(&mut batch, 100).unwrap(), 3, "half a row is none");
    assert_eq!(reader.read(&mut batch, 100).unwrap(), 2);
    let message = reader.read(&mut batch, 100).unwrap_err().to_string();
    assert!(message.contains("standard input") && message.contains("line 6"), "{message}");
    let bad = a.clone() + "x\n" + &b;
    let input = (Pieces::of(&bad, 1 << 20), Writing::Text);
    let source = Incoming::open(&config, opening(&known), Box::new(input.0), input.1).unwrap();
    let mut reader = source.open(Split::Train, 0).unwrap();
    assert_eq!(reader.read(&mut batch, 100).unwrap(), 3);
    assert!(reader.read(&mut batch, 100).unwrap_err().to_string().contains("line 4"));
}

#[test]
fn samples_that_stand_in_for_malformed_rows_have_no_values() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).display().to_string();
    std::fs::write(path("train.csv"), "click,user\n1,u1\n0,u2\n").unwrap();
    std::fs::write(path("schema.toml"), "label = \"click\"\n[[categorical]]\ncolumn = \"user\"\n").unwrap();
    std::fs::write(path("train"), criteo(0..9)).unwrap();
    for (source, schema, train, asked) in [
        (SourceKind::Files, path("schema.toml"), path("train.csv"), "user\nu1\nu1,2\nu9\n".to_owned()),
        (SourceKind::Tsv, String::new(), path("train"), criteo(1..2) + "x\n" + &criteo(100..101)),
    ] {
        let mut config = Config::default();
        (config.data.source, config.data.schema) = (source, schema);
        let (known, _) = stored(&mut config, Path::new(&train), Path::new(&train));
        for shares in [false, true] {
            let (known, malformed) = (known.clone().with_unseen_row(shares), Malformed::default());
            let input = Box::new(Pieces::of(&asked, 1000));
            let source = Incoming::open(&config, opening(&known), input, Writing::Text).unwrap();
            let source = source.answering(Some(malformed.clone()));
            let mut batch = Batch::new(source.schema());
            assert_eq!(source.open(Split::Train, 0).unwrap().read(&mut batch, 100).unwrap(), 3);
            assert!(malformed.take(1).is_some());
            let met = source.unseen_values();
            // The last column of Criteo's has a value that the first nine rows have not.
            let last = met.last().unwrap();
            assert!(met.iter().all(|met| met.values == 2), "{met:?}");
            assert_eq!((last.left_out, last.shared), if shares { (0, 1) } else { (1, 0) }, "{met:?}");
        }
    }
}

#[test]
fn described_rows_are_those_of_a_file_behind_a_header_and_as_objects() {
    let folder = tempfile::tempdir().unwrap();
    let [train, asked, schema] = ["train.csv", "asked.csv", "schema.toml"].map(|name| folder.path().join(name));
    let header = "click,price,genres,shares,user\n";
    std::fs::write(&train, format!("{header}1,2,a|b,1|1,u1\n0,,c,1,u2\n")).unwrap();
    let rows = "1,7,a|c,0.5|-2,u2\n0,-1.5,,,u9\n1,,b|zz|a,1|2|3,u1\n";
    std::fs::write(&asked, format!("{header}{rows}")).unwrap();
    let toml = "label = \"click\"\n[[dense]]\ncolumn = \"price\"\ntransform = \"log\"\n[[dense]]\ncolumn = \"genres\"\n\
                name = \"count\"\ncount = \"|\"\n[[categorical]]\ncolumn = \"genres\"\nseparator = \"|\"\n\
                weights = \"shares\"\n[[categorical]]\ncolumn = \"user\"\n";
    std::fs::write(&schema, toml).unwrap();
    let mut config = Config::default();
    config.data.source = SourceKind::Files;
    config.data.schema = schema.display().to_string();
    let (known, expected) = stored(&mut config, &train, &asked);
    let find = |text: &str, size: usize, writing| {
        let found = arrivals(&config, opening(&known), (Pieces::of(text, size), writing), 2).unwrap();
        same(&joined(&found), &expected);
    };
    for size in [1, 30, 1000] {
        find(&format!("{header}{rows}"), size, Writing::Text);
        // The label may be missing, and columns stand in any order.
        find("user,shares,genres,price\nu2,0.5|-2,a|c,7\nu9,,,-1.5\nu1,1|2|3,b|zz|a,\n", size, Writing::Text);
        let objects = "{\"price\":7,\"genres\":[\"a\",\"c\"],\"shares\":[0.5,-2],\"user\":\"u2\",\"click\":1}\n\
                       {\"user\":\"u9\",\"price\":-1.5,\"genres\":[],\"shares\":[]}\n\
                       {\"price\":null,\"genres\":[\"b\",\"zz\",\"a\"],\"shares\":[1,2,3],\"user\":\"u1\"}\n";
        find(objects, size, Writing::Json);
    }
    // Where the schema lists the columns, the first line is a row.
    std::fs::write(&schema, format!("columns = [\"click\", \"price\", \"genres\", \"shares\", \"user\"]\n{toml}"))
        .unwrap();
    let found = arrivals(&config, opening(&known), (Pieces::of(rows, 5), Writing::Text), 2).unwrap();
    same(&joined(&found), &expected);
}

#[test]
fn a_model_that_knows_no_rows_is_not_asked() {
    let config = |source, vocab| Config {
        data: DataConfig { source, vocab, rows_cap: 10, ..DataConfig::default() },
        ..Config::default()
    };
    let open = |config: &Config| {
        Incoming::open(config, Opening::default(), Box::new(Pieces::of("", 1)), Writing::Text).map(|_| ())
    };
    let message = open(&config(SourceKind::Tsv, Vocab::All)).unwrap_err().to_string();
    assert!(message.contains("--data -: this model knows no rows of categories"), "{message}");
    let message = open(&config(SourceKind::Files, Vocab::All)).unwrap_err().to_string();
    assert!(message.contains("this run was trained on another format"), "{message}");
    open(&config(SourceKind::Tsv, Vocab::Hash)).unwrap();
}
