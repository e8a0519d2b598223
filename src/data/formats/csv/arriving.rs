//! Rows of described text as they arrive, for a trained model: behind a header line, or as objects of JSON.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::bad;
use super::encoding::Encoding;
use super::records::{Record, Records};
use super::row::{Projection, Row};
use super::scan::{header_of, refuse_names, row_columns, shown};
use super::schema::TextSchema;
use super::sniff::check_header;
use crate::base::config::{DataConfig, Vocab};
use crate::base::{Reason, Result};
use crate::data::formats::files::limit_rows;
use crate::data::incoming::{Column, Next, Numbers, Objects, Parse, TRUTHS, UNSEEN, Writing, refuse};
use crate::data::schema::{Dense, Description};
use crate::data::text::{Form, Judged, Lines, Shown};
use crate::data::{Batch, Labels, Opening, Samples, Schema, Vocabulary};

/// What `false` and `true` are in text that Python wrote, and in that of spreadsheets and databases.
const OTHER_TRUTHS: [[&str; 2]; 2] = [["False", "True"], ["FALSE", "TRUE"]];

/// What is needed to read such rows.
pub struct Arriving {
    text: TextSchema,
    encoding: Encoding,
    description: Description,
    schema: Schema,
    known: Option<Arc<Vocabulary>>,
    /// At most this many rows a table; 0: no limit.
    cap: u64,
    writing: Writing,
    /// Whether each categorical column has any number of look-ups.
    lists: Vec<bool>,
}

impl Arriving {
    /// Those at `path`, for a model that knows these values.
    ///
    /// # Errors
    /// When it knows none of a column that needs them, or has learned nothing of a dense column that needs it.
    pub fn new(
        config: &DataConfig,
        mut text: TextSchema,
        opening: Opening<'_>,
        (path, writing): (&Path, Writing),
    ) -> Result<Self> {
        let known = opening.known.map(Arc::new);
        if known.is_none() && config.vocab == Vocab::Hash {
            super::hash(&mut text, config.rows_cap)?;
        }
        if known.is_none() && text.categorical.iter().any(|column| column.fixed_rows().is_none()) {
            return refuse(
                path,
                "this model knows no rows of categories: it was not trained on text that this schema describes",
            );
        }
        let mut encoding = Encoding::new(&text, known.as_deref(), false, config.rows_cap)?;
        encoding.keep_all();
        // Numbers that are no fractions by their kind stay integers; of all others nobody knows what will come.
        let float = |at: usize| text.dense[at].unit().is_none() && text.dense[at].count.is_none();
        let mut description = text.description(float, |at| encoding.table(at, &text.categorical[at], UNSEEN));
        let scales = opening.scales.unwrap_or_default();
        description.scaled(&scales).map_err(|column| {
            bad(path, format!("column {column} is standardised or an age, but the model has learned nothing of it"))
        })?;
        let lists = description.categorical.iter().map(|column| column.hots == 0).collect();
        let cap = config.rows_cap;
        let schema = description.schema(cap);
        Ok(Self { text, encoding, description, schema, known, cap, writing, lists })
    }

    /// The columns of objects: those that the schema uses, each once.
    fn objects(&self) -> Objects {
        let mut columns: Vec<Column> = Vec::new();
        let mut add = |name: &str, separator: Option<&String>| {
            let found = columns.iter_mut().find(|column| column.name == name);
            match found {
                Some(column) => column.separator = column.separator.take().or_else(|| separator.cloned()),
                None => columns.push(Column {
                    name: name.to_owned(),
                    separator: separator.cloned(),
                    numbers: Numbers::AsWritten,
                    truths: TRUTHS,
                }),
            }
        };
        let features = self.text.dense.iter().filter(|column| !column.weighs);
        features.for_each(|column| add(&column.column, column.count.as_ref()));
        for column in &self.text.categorical {
            add(&column.column, column.separator.as_ref());
            column.weights.iter().for_each(|weights| add(weights, column.separator.as_ref()));
        }
        for (at, column) in self.text.categorical.iter().enumerate() {
            let knows = |texts: [&str; 2]| texts.iter().any(|text| self.encoding.knows(at, text.as_bytes()));
            // As other programs write them, where the model knows them so.
            if let Some(truths) = OTHER_TRUTHS.into_iter().find(|truths| !knows(TRUTHS) && knows(*truths)) {
                let found = columns.iter_mut().filter(|found| found.name == column.column);
                found.for_each(|found| found.truths = truths);
            }
        }
        Objects::new(columns)
    }
}

impl Parse for Arriving {
    fn schema(&self) -> &Schema {
        &self.schema
    }

    fn dense_columns(&self) -> Vec<(String, String)> {
        self.description.features().iter().map(Dense::title).collect()
    }

    fn vocabulary(&self) -> Option<&Arc<Vocabulary>> {
        self.known.as_ref()
    }

    fn begin(&self, lines: Lines) -> Result<Box<dyn Next + '_>> {
        let path = lines.path().to_owned();
        let text = &*self.text.at(&path);
        let (rows, all) = match self.writing {
            Writing::Json => {
                let objects = self.objects();
                let names = objects.names().map(|name| name.as_bytes().to_vec()).collect();
                (Written::Objects(Box::new(ObjectRows { lines, objects, record: Record::default() })), vec![names])
            }
            Writing::Text => {
                let mut records = Records::of(lines, text.delimiter);
                let is_listed = !text.columns.is_empty();
                let all = match is_listed {
                    false => vec![header_of(&path, &mut records)?],
                    true => row_columns(&path, text, Labels::Unused)?,
                };
                let listed = is_listed.then(|| Listed { path: path.clone(), all: all.clone(), form: Form::default() });
                (Written::Text(Box::new(TextRows { records, listed })), all)
            }
        };
        let find = |names: &Vec<Vec<u8>>| {
            check_header(&path, text, names, true)?;
            Ok(Projection::find(&path, text, names, Labels::Unused)?.kept(true))
        };
        let columns = all.iter().map(find).collect::<Result<Vec<_>>>()?;
        let (row, scratch) = (Row::new(&columns[0]), Samples::new(&self.description));
        Ok(Box::new(Arrivals { of: self, rows, columns, row, scratch }))
    }
}

/// How rows are written.
enum Written {
    /// Behind a header, or as the schema lists the columns.
    Text(Box<TextRows>),
    /// A line each.
    Objects(Box<ObjectRows>),
}

struct TextRows {
    records: Records,
    /// Of rows without a header, until it is known that they are rows.
    listed: Option<Listed>,
}

struct Listed {
    /// Whose rows they are.
    path: PathBuf,
    /// The names that they have, which the first of them must not be.
    all: Vec<Vec<Vec<u8>>>,
    form: Form,
}

impl Listed {
    /// Takes the next row, which was read; what is wrong with it, if it shows that.
    fn take(&mut self, records: &Records, next: Option<&Judged<()>>) -> Result<Option<Reason>> {
        let Self { path, all, form } = self;
        let is_whole = matches!(next, Some((_, Ok(()))));
        if is_whole && *form == Form::Unknown {
            refuse_names(path, &records.record, all)?;
        }
        form.take(path, next.map(|_| if is_whole { shown(path, records, all) } else { Shown::Nothing }))
    }
}

struct ObjectRows {
    lines: Lines,
    objects: Objects,
    record: Record,
}

impl Written {
    /// The fields of the next row; nothing at the end.
    fn next(&mut self) -> Result<Option<Judged<&Record>>> {
        match self {
            Self::Text(rows) => {
                let TextRows { records, listed } = &mut **rows;
                let next = records.next()?;
                let other = listed.as_mut().map_or(Ok(None), |listed| listed.take(records, next.as_ref()))?;
                listed.take_if(|listed| !listed.form.is_open());
                Ok(next.map(|(line, read)| (line, other.map_or(read, Err).map(|()| &records.record))))
            }
            Self::Objects(rows) => {
                let ObjectRows { lines, objects, record } = &mut **rows;
                let Some((number, line)) = lines.next_row()? else { return Ok(None) };
                let fields = line.and_then(|line| objects.read(line).map_err(Reason::from));
                Ok(Some((number, fields.map(|fields| record.filled(fields)))))
            }
        }
    }
}

struct Arrivals<'a> {
    of: &'a Arriving,
    rows: Written,
    /// What a row may have, by its width: with all columns, first, and without some that it may lack.
    columns: Vec<Projection>,
    row: Row<u32>,
    /// Rows that are not in the minibatch yet.
    scratch: Samples,
}

impl Next for Arrivals<'_> {
    fn next(&mut self) -> Result<Option<Judged<()>>> {
        let Some((line, record)) = self.rows.next()? else { return Ok(None) };
        let encoding = &self.of.encoding;
        let row_of = |at, spec: &_, value: &_| encoding.row(at, spec, value, UNSEEN);
        let read = record.and_then(|record| {
            let columns = self.columns.iter().find(|columns| columns.width() == record.len());
            self.row.read(record, columns.unwrap_or(&self.columns[0]), row_of)
        });
        Ok(Some((line, read)))
    }

    fn stand_in(&mut self) {
        if let Written::Text(rows) = &mut self.rows {
            rows.records.keep_first_line();
        }
        self.row.stand_in(&self.columns[0]);
    }

    fn push(&mut self, _batch: &mut Batch, left_out: &[AtomicU64]) {
        self.row.push(&mut self.scratch, &self.columns[0], &self.of.lists);
        for (all, lost) in left_out.iter().zip(self.row.lost()).filter(|(_, lost)| lost.values > 0) {
            // Relaxed: a count that is read when all reading is done.
            all.fetch_add(lost.values, Ordering::Relaxed);
        }
    }

    fn finish(&mut self, batch: &mut Batch) {
        let starts: Vec<usize> = batch.bags.iter().map(|bag| bag.rows.len()).collect();
        batch.append(&self.scratch, &self.of.description);
        self.scratch.clear();
        if self.of.cap > 0 {
            for (bag, start) in batch.bags.iter_mut().zip(starts) {
                limit_rows(&mut bag.rows[start..], self.of.cap);
            }
        }
    }

    fn waits(&mut self) -> bool {
        match &mut self.rows {
            Written::Text(rows) => rows.records.wait(),
            Written::Objects(rows) => rows.lines.wait(),
        }
    }
}
