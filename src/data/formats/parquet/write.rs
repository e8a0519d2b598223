//! Writes Parquet: `train/part_0.parquet`, `valid/…`, `test/…`, row numbers as INT64 as Merlin's tools want them, the
//! other columns in their own types, and a `schema.toml` with what Parquet cannot say.

use std::path::Path;
use std::sync::Arc;

use parquet::basic::{Compression, ConvertedType, Repetition, Type as Physical, ZstdLevel};
use parquet::data_type::{DataType, FloatType, Int32Type, Int64Type};
use parquet::errors::ParquetError;
use parquet::file::properties::WriterProperties;
use parquet::file::writer::{SerializedFileWriter, SerializedRowGroupWriter};
use parquet::schema::types::{Type, TypePtr};

use super::columns::WEIGHTS;
use crate::base::{Error, Result};
use crate::data::blocks::{Codec, Options};
use crate::data::formats::{SCHEMA, Sink, bad};
use crate::data::samples::{Lookups, MISSING, Values};
use crate::data::{Description, Samples, Split};
use crate::memory::{WholeFile, write_file};

/// The file in the folder of a role.
const PART: &str = "part_0.parquet";

/// Row groups have this many times as many rows as octorec's blocks: 131,072 where nothing else is asked for.
const BLOCKS: usize = 32;

/// Where the file of a role lies.
const FOLDERS: [&str; 3] = ["train", "valid", "test"];

/// Writes one file.
pub(in crate::data::formats) struct ParquetSink {
    writer: SerializedFileWriter<WholeFile>,
    description: Description,
    pending: Samples,
    group: usize,
    levels: Levels,
}

/// Levels of one column.
#[derive(Default)]
struct Levels {
    present: Vec<i16>,
    again: Vec<i16>,
}

fn schema(description: &Description) -> parquet::errors::Result<Type> {
    let leaf = |name: &str, kind: Physical, repetition: Repetition| -> parquet::errors::Result<TypePtr> {
        Type::primitive_type_builder(name, kind).with_repetition(repetition).build().map(Arc::new)
    };
    let list =
        |name: &str, kind: Physical| -> parquet::errors::Result<TypePtr> {
            let places = Type::group_type_builder("list")
                .with_repetition(Repetition::REPEATED)
                .with_fields(vec![leaf("element", kind, Repetition::REQUIRED)?]);
            let whole = Type::group_type_builder(name)
                .with_repetition(Repetition::REQUIRED)
                .with_converted_type(ConvertedType::LIST)
                .with_fields(vec![Arc::new(places.build()?)]);
            whole.build().map(Arc::new)
        };
    let number = |float: bool| if float { Physical::FLOAT } else { Physical::INT32 };
    let mut fields = vec![leaf(&description.label.name, number(description.label.float), Repetition::REQUIRED)?];
    for column in &description.dense {
        fields.push(leaf(&column.name, number(column.float), Repetition::OPTIONAL)?);
    }
    for column in &description.categorical {
        let mut add = |name: &str, kind: Physical| -> parquet::errors::Result<()> {
            fields.push(if column.hots == 1 { leaf(name, kind, Repetition::REQUIRED)? } else { list(name, kind)? });
            Ok(())
        };
        add(&column.name, Physical::INT64)?;
        if column.weighted {
            add(&format!("{}{WEIGHTS}", column.name), Physical::FLOAT)?;
        }
    }
    Type::group_type_builder("schema").with_fields(fields).build()
}

impl ParquetSink {
    pub(in crate::data::formats) fn create(
        home: &Path,
        role: Split,
        description: &Description,
        options: Options,
    ) -> Result<Self> {
        let taken = |name: &String| {
            let dense = description.dense.iter().map(|column| &column.name);
            dense.chain(description.categorical.iter().map(|column| &column.name)).any(|other| other == name)
        };
        let weighted = description.categorical.iter().filter(|column| column.weighted);
        if let Some(twice) = weighted.map(|column| format!("{}{WEIGHTS}", column.name)).find(taken) {
            return Err(bad(home, format!("column {twice} would be in the place of weights: give it another name")));
        }
        let folder = home.join(role.of(FOLDERS));
        std::fs::create_dir_all(&folder).map_err(Error::io(&folder, "create"))?;
        let path = folder.join(PART);
        let compression = match options.codec {
            Codec::Raw => Compression::UNCOMPRESSED,
            Codec::Lz4 => Compression::LZ4_RAW,
            Codec::Zstd => Compression::ZSTD(ZstdLevel::default()),
        };
        let properties = WriterProperties::builder()
            .set_compression(compression)
            .set_created_by(concat!("octorec ", env!("CARGO_PKG_VERSION")).to_owned())
            .build();
        let schema = schema(description).map_err(|error| bad(&path, error.to_string()))?;
        let writer = SerializedFileWriter::new(WholeFile::create(&path)?, Arc::new(schema), Arc::new(properties));
        Ok(Self {
            writer: writer.map_err(|error| failed(&path, error))?,
            description: description.clone(),
            pending: Samples::new(description),
            group: options.block_rows as usize * BLOCKS,
            levels: Levels::default(),
        })
    }

    /// Writes the pending rows as a row group.
    fn flush(&mut self) -> Result<()> {
        if self.pending.is_empty() {
            return Ok(());
        }
        let path = self.writer.inner().path().to_owned();
        let fail = |error| failed(&path, error);
        let mut group = self.writer.next_row_group().map_err(fail)?;
        let result = write(&mut group, &self.pending, &self.description, &mut self.levels);
        result.and_then(|()| group.close().map(|_| ())).map_err(fail)?;
        self.pending.clear();
        Ok(())
    }
}

/// What the library could not write: what the system said, where it was the system.
fn failed(path: &Path, error: ParquetError) -> Error {
    match error {
        ParquetError::External(source) => match source.downcast::<std::io::Error>() {
            Ok(source) => Error::io(path, "write")(*source),
            Err(other) => bad(path, format!("cannot be written: {other}")),
        },
        other => bad(path, format!("cannot be written: {other}")),
    }
}

fn write(
    group: &mut SerializedRowGroupWriter<'_, WholeFile>,
    samples: &Samples,
    description: &Description,
    levels: &mut Levels,
) -> parquet::errors::Result<()> {
    levels.present.clear();
    levels.again.clear();
    if description.label.float {
        column::<FloatType>(group, &samples.labels, levels)?;
    } else {
        let labels: Vec<i32> = samples.labels.iter().map(|&label| label as i32).collect();
        column::<Int32Type>(group, &labels, levels)?;
    }
    for values in &samples.dense {
        levels.present.clear();
        levels.again.clear();
        match values {
            Values::Integers(values) => {
                levels.present.extend(values.iter().map(|&value| i16::from(value != MISSING)));
                let there: Vec<i32> = values.iter().copied().filter(|&value| value != MISSING).collect();
                column::<Int32Type>(group, &there, levels)?;
            }
            Values::Floats(values) => {
                levels.present.extend(values.iter().map(|value| i16::from(!value.is_nan())));
                let there: Vec<f32> = values.iter().copied().filter(|value| !value.is_nan()).collect();
                column::<FloatType>(group, &there, levels)?;
            }
        }
    }
    for (lookups, column_of) in samples.lookups.iter().zip(&description.categorical) {
        levels.of(lookups, samples.len(), column_of.hots);
        let rows: Vec<i64> = lookups.rows.iter().map(|&row| i64::from(row)).collect();
        column::<Int64Type>(group, &rows, levels)?;
        if column_of.weighted {
            column::<FloatType>(group, &lookups.weights, levels)?;
        }
    }
    Ok(())
}

impl Levels {
    /// Those of lists; none for one look-up a row.
    fn of(&mut self, lookups: &Lookups, rows: usize, hots: u32) {
        self.present.clear();
        self.again.clear();
        if hots == 1 {
            return;
        }
        for n in 0..rows {
            let count = lookups.span(&(n..n + 1), hots).len();
            // An empty list is one level that says so.
            self.present.resize(self.present.len() + count.max(1), i16::from(count > 0));
            self.again.push(0);
            self.again.resize(self.again.len() + count.saturating_sub(1), 1);
        }
    }
}

fn column<T: DataType>(
    group: &mut SerializedRowGroupWriter<'_, WholeFile>,
    values: &[T::T],
    levels: &Levels,
) -> parquet::errors::Result<()> {
    let mut column = group.next_column()?.expect("the schema has a column for each of the description's");
    let [present, again] = [&levels.present, &levels.again].map(|levels| (!levels.is_empty()).then_some(&levels[..]));
    column.typed::<T>().write_batch(values, present, again)?;
    column.close()
}

impl Sink for ParquetSink {
    fn push(&mut self, samples: &Samples) -> Result<()> {
        let mut from = 0;
        while from < samples.len() {
            let rows = (self.group - self.pending.len()).min(samples.len() - from);
            self.pending.extend_from(samples, from..from + rows, &self.description);
            from += rows;
            if self.pending.len() == self.group {
                self.flush()?;
            }
        }
        Ok(())
    }

    fn finish(mut self: Box<Self>) -> Result<u64> {
        self.flush()?;
        let path = self.writer.inner().path().to_owned();
        let file = self.writer.into_inner();
        file.map_err(|error| failed(&path, error))?.finish()
    }
}

/// Writes what the files do not say.
pub(in crate::data::formats) fn seal(folder: &Path, description: &Description) -> Result<()> {
    write_file(&folder.join(SCHEMA), description.to_toml().as_bytes())
}
