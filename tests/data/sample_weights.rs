//! Weights of samples: read from text and Parquet, kept in blocks, refused where they are none or have no place.

use std::fs;
use std::path::{Path, PathBuf};

use octorec::base::Result;
use octorec::base::config::{DataConfig, OnBadRow};
use octorec::data::blocks::{Codec, Options};
use octorec::data::formats::csv::TextSchema;
use octorec::data::formats::{self, Files, Format, Target};
use octorec::data::samples::{Samples, Values};
use octorec::data::schema::{Categorical, Dense, Description};
use octorec::data::{Batch, Labels, Opening, Source, Split};

const SCHEMA: &str = "label = 'click'\nweight = 'w'\n[[dense]]\ncolumn = 'price'\nfloat = true\n[[categorical]]\n\
                      column = 'user'\nrows = 50\n";

fn written(folder: &Path, name: &str, text: &str) -> String {
    fs::write(folder.join(name), text).unwrap();
    folder.join(name).display().to_string()
}

fn config(path: &str, schema: &str) -> DataConfig {
    DataConfig { path: path.to_owned(), schema: schema.to_owned(), test_fraction: 0.0, ..DataConfig::default() }
}

fn read(source: &dyn Source) -> Batch {
    let mut batch = Batch::new(source.schema());
    let mut reader = source.open(Split::Train, 0).unwrap();
    while reader.read(&mut batch, 3).unwrap() == 3 {}
    batch.check(source.schema()).unwrap();
    batch
}

fn weights(batch: &Batch) -> Option<Vec<f32>> {
    batch.sample_weights(0).map(|rows| rows.rows_from(0).map(|row| row[0]).collect())
}

fn message(config: &DataConfig) -> String {
    Files::open(config, Opening::default()).err().expect("it should be refused").to_string()
}

#[test]
fn a_weight_of_text_is_no_feature_and_a_wrong_one_makes_its_row_malformed() {
    let folder = tempfile::tempdir().unwrap();
    let schema = written(folder.path(), "s.toml", SCHEMA);
    let rows = "w,click,price,user\n2,1,0.5,a\n0.25,0,1.5,b\n0,1,,c\n1e9,0,3,d\n";
    let path = written(folder.path(), "a.csv", rows);
    let files = Files::open(&config(&path, &schema), Opening::default()).unwrap();
    assert_eq!((files.schema().dense, files.schema().weighted), (1, true));
    assert_eq!(files.about().dense_columns.len(), 1);
    let batch = read(&files);
    assert_eq!(weights(&batch), Some(vec![2.0, 0.25, 0.0, 1e9]));
    let features: Vec<f32> = batch.features(0).rows_from(0).map(|row| row[0]).collect();
    assert_eq!(features, [0.5, 1.5, 0.0, 3.0]);
    for (wrong, shown) in
        [("", ""), ("-1", "-1"), ("inf", "inf"), ("nan", "nan"), ("two", "two"), ("2e9", "2e9"), ("1e400", "1e400")]
    {
        let path = written(folder.path(), "b.csv", &format!("{rows}{wrong},1,2,e\n1,1,2,f\n"));
        let mut config = config(&path, &schema);
        let told = format!(
            "{path}: line 6: column w: a weight, which is 0 or a number from 10^-9 to 10^9, is expected, found \"{shown}\""
        );
        let found = message(&config);
        assert!(found.starts_with(&told), "{found}");
        config.on_bad_row = OnBadRow::Skip;
        let files = Files::open(&config, Opening::default()).unwrap();
        assert_eq!((files.skipped_rows(), weights(&read(&files)).unwrap().len()), (1, 5), "{wrong}");
    }
    // Without the key, nothing is there.
    let plain = written(folder.path(), "p.toml", &SCHEMA.replace("weight = 'w'\n", ""));
    let files = Files::open(&config(&path, &plain), Opening::default()).unwrap();
    let batch = read(&files);
    assert_eq!((files.schema().weighted, batch.dense_width, weights(&batch)), (false, 1, None));
}

#[test]
fn whoever_predicts_needs_no_weight_and_whoever_scores_does() {
    let folder = tempfile::tempdir().unwrap();
    let schema = written(folder.path(), "s.toml", SCHEMA);
    let bare = written(folder.path(), "bare.csv", "price,user\n0.5,a\n1.5,b\n");
    let message = message(&config(&bare, &schema));
    assert!(message.contains("has no column click"), "{message}");
    let unweighed = written(folder.path(), "u.csv", "click,price,user\n1,0.5,a\n0,1.5,b\n");
    let message = self::message(&config(&unweighed, &schema));
    assert!(message.contains("has no column w"), "{message}");
    let opened = |path: &str, schema: &str| {
        let opening = Opening { labels: Labels::Optional, whole: true, ..Opening::default() };
        Files::open(&config(path, schema), opening).unwrap()
    };
    for path in [&bare, &unweighed] {
        assert_eq!(weights(&read(&opened(path, &schema))), Some(vec![1.0; 2]), "{path}");
    }
    // What stands in the place of a weight does not matter to them, and rows without a header may lack both.
    let wrong = written(folder.path(), "x.csv", "w,price,user\nnone,0.5,a\n,1.5,b\n");
    assert_eq!(weights(&read(&opened(&wrong, &schema))), Some(vec![1.0; 2]));
    let listed = written(folder.path(), "l.toml", &format!("columns = ['w', 'click', 'price', 'user']\n{SCHEMA}"));
    for text in ["0.5,a\n1.5,b\n", "7,0.5,a\n7,1.5,b\n", "7,1,0.5,a\n7,0,1.5,b\n"] {
        let path = written(folder.path(), "h.csv", text);
        let batch = read(&opened(&path, &listed));
        let features: Vec<f32> = batch.features(0).rows_from(0).map(|row| row[0]).collect();
        assert_eq!(features, [0.5, 1.5], "{text}");
    }
}

#[test]
fn nothing_else_may_read_the_column_of_weights() {
    let folder = tempfile::tempdir().unwrap();
    let head = "label = 'click >= 1'\nweight = 'w'\n";
    for (more, told) in [
        ("[[dense]]\ncolumn = 'w'\n", "[[dense]] column = \"w\" reads the same column"),
        ("[[categorical]]\ncolumn = 'w'\nrows = 9\n", "[[categorical]] column = \"w\" reads the same column"),
        (
            "[[categorical]]\ncolumn = 'user'\nseparator = '|'\nweights = 'w'\n",
            "[[categorical]] weights = \"w\" reads the same column",
        ),
    ] {
        let path = written(folder.path(), "s.toml", &format!("{head}{more}"));
        let message = TextSchema::read(Path::new(&path)).unwrap_err().to_string();
        assert!(
            message.contains("weight = \"w\" says how much each row counts") && message.contains(told),
            "{message}"
        );
    }
    let path = written(folder.path(), "s.toml", "label = 'w'\nweight = 'w'\n[[categorical]]\ncolumn = 'user'\n");
    let message = TextSchema::read(Path::new(&path)).unwrap_err().to_string();
    assert!(message.contains("label = \"w\" reads the same column"), "{message}");
    let path = written(folder.path(), "s.toml", SCHEMA);
    let schema = TextSchema::read(Path::new(&path)).unwrap();
    let again = written(folder.path(), "again.toml", &schema.to_toml());
    assert_eq!(TextSchema::read(Path::new(&again)).unwrap(), schema, "{}", schema.to_toml());
}

fn description() -> Description {
    let float = |name: &str| Dense { name: name.to_owned(), float: true, ..Dense::default() };
    Description {
        weight: Some("w".to_owned()),
        dense: vec![float("price"), float("w")],
        categorical: vec![Categorical::new("user", 50)],
        ..Description::default()
    }
}

fn samples(weight: impl Fn(u32) -> f32) -> Samples {
    let mut samples = Samples::new(&description());
    for n in 0..100u32 {
        samples.labels.push((n % 3 == 0) as u8 as f32);
        for (at, values) in samples.dense.iter_mut().enumerate() {
            let Values::Floats(values) = values else { panic!("all are floats") };
            values.push(if at == 0 { n as f32 / 7.0 } else { weight(n) });
        }
        samples.lookups[0].rows.push(n % 50);
    }
    samples
}

fn write(folder: &Path, format: Format, samples: &Samples) -> Result<PathBuf> {
    let path = folder.join(format.name());
    let options = Options { codec: Codec::Lz4, block_rows: 32 };
    let mut target = Target::create(&path, format, &description(), options)?;
    target.write(Split::Train, |sink| {
        sink.push(samples)?;
        Ok(samples.len() as u64)
    })?;
    target.seal()?;
    Ok(path)
}

#[test]
fn blocks_and_parquet_keep_weights_and_formats_without_a_place_refuse_them() {
    let folder = tempfile::tempdir().unwrap();
    let weight = |n: u32| (n % 4) as f32 * 0.75;
    let whole = samples(weight);
    for &format in Format::WRITTEN {
        if !matches!(format, Format::Octorec | Format::Parquet) {
            let message = write(folder.path(), format, &whole).unwrap_err().to_string();
            let told = "has no place for weights of samples, which column w has: use --format octorec or parquet";
            assert!(message.contains(told), "{message}");
            continue;
        }
        let path = write(folder.path(), format, &whole).unwrap();
        let dataset = formats::open(&path, None, None).unwrap();
        assert_eq!(dataset.description.weight.as_deref(), Some("w"));
        assert_eq!(formats::verify(&dataset, |_| ()).unwrap(), 100);
        let files = Files::open(&config(&path.display().to_string(), ""), Opening::default()).unwrap();
        assert_eq!(
            (files.schema().dense, files.schema().weighted, files.about().weight.as_deref()),
            (1, true, Some("w"))
        );
        let batch = read(&files);
        assert_eq!(weights(&batch), Some((0..100).map(weight).collect()), "{}", format.name());
        assert_eq!(batch.features(99).data[0], 99.0 / 7.0);
    }
    let path = folder.path().join(Format::Octorec.name());
    // What lies in a block later than the first is named by its sample.
    for (wrong, found) in [(f32::NAN, "none"), (-0.5, "-0.5"), (f32::INFINITY, "inf")] {
        fs::remove_dir_all(&path).unwrap();
        let spoiled = samples(|n| if n == 70 { wrong } else { 1.0 });
        let message = write(folder.path(), Format::Octorec, &spoiled).unwrap_err().to_string();
        let told = format!(
            "sample 70: column w: a weight, which is 0 or a number from 10^-9 to 10^9, is expected, found {found}"
        );
        assert!(message.contains(&told), "{message}");
        fs::create_dir_all(&path).unwrap();
    }
}
