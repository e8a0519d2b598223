//! Criteo's rows as they arrive, for a trained model.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::checked;
use super::encoding::{Encoding, cap};
use super::layout::Layout;
use super::row::Row;
use super::table::append;
use crate::base::config::{DataConfig, Vocab};
use crate::base::{Reason, Result};
use crate::data::incoming::{Column, Next, Numbers, Objects, Parse, TRUTHS, UNSEEN, Writing, refuse};
use crate::data::text::{Form, Judged, Lines, Shown};
use crate::data::{Batch, Labels, Schema, Vocabulary};

/// What is needed to read such rows.
pub struct Arriving {
    layout: Layout,
    encoding: Encoding,
    schema: Schema,
    /// Where rows are objects: I1 to I13, C1 to C26.
    objects: Option<Objects>,
}

impl Arriving {
    /// Those at `path`, for a model that knows these values, or whose values are hashed.
    ///
    /// # Errors
    /// When it knows none, or has other columns.
    pub fn new(
        config: &DataConfig,
        model_rows: &[u64],
        known: Option<Vocabulary>,
        (path, writing): (&Path, Writing),
    ) -> Result<Self> {
        let layout = Layout::criteo(Labels::Optional, config.max_line);
        let encoding = match known {
            Some(known) => {
                let vocabulary = Arc::new(checked(known, &layout)?);
                Encoding::Vocabulary { vocabulary, cap: cap(config.rows_cap) }
            }
            None if config.vocab == Vocab::Hash => Encoding::modulo(layout.categorical, config.rows_cap, model_rows)?,
            None => return refuse(path, "this model knows no rows of categories: it was not trained on Criteo's text"),
        };
        let column = |name: String, numbers| Column { name, separator: None, numbers, truths: TRUTHS };
        let integers = (1..=layout.dense).map(|n| column(format!("I{n}"), Numbers::Whole));
        let categories = (1..=layout.categorical).map(|n| column(format!("C{n}"), Numbers::Refused));
        let objects = (writing == Writing::Json).then(|| Objects::new(integers.chain(categories).collect()));
        Ok(Self { schema: Schema::criteo(layout.dense, &encoding.rows()), layout, encoding, objects })
    }
}

impl Parse for Arriving {
    fn schema(&self) -> &Schema {
        &self.schema
    }

    fn vocabulary(&self) -> Option<&Arc<Vocabulary>> {
        self.encoding.vocabulary()
    }

    fn begin(&self, lines: Lines) -> Result<Box<dyn Next + '_>> {
        let (path, form) = (lines.path().to_owned(), Form::default());
        let (objects, row) = (self.objects.clone(), Row::new(&self.layout));
        Ok(Box::new(Arrivals { of: self, path, lines, form, objects, text: Vec::new(), row }))
    }
}

struct Arrivals<'a> {
    of: &'a Arriving,
    /// Where they come from.
    path: PathBuf,
    lines: Lines,
    /// How lines are written that are no objects.
    form: Form,
    objects: Option<Objects>,
    /// An object as a line of text.
    text: Vec<u8>,
    row: Row,
}

impl Next for Arrivals<'_> {
    fn next(&mut self) -> Result<Option<Judged<()>>> {
        let (Arriving { layout, encoding, .. }, row) = (self.of, &mut self.row);
        let next = self.lines.next_row()?;
        let mut other = None;
        if self.objects.is_none() && self.form.is_open() {
            let shown = |line: &std::result::Result<&[u8], Reason>| match line {
                Ok(line) => layout.shown(&self.path, line),
                Err(_) => Shown::Nothing,
            };
            other = self.form.take(&self.path, next.as_ref().map(|(_, line)| shown(line)))?;
        }
        let Some((number, line)) = next else { return Ok(None) };
        let line = other.map_or(line, Err).and_then(|line| match &mut self.objects {
            None => Ok(line),
            Some(objects) => line_of(objects, line, &mut self.text),
        });
        let read = line.and_then(|line| {
            let parsed = row.parse(line, layout).and_then(|()| encoding.encode(&mut row.categories, UNSEEN));
            parsed.map_err(|fault| fault.reason())
        });
        Ok(Some((number, read)))
    }

    fn stand_in(&mut self) {
        self.row = Row::new(&self.of.layout);
    }

    fn push(&mut self, batch: &mut Batch, left_out: &[AtomicU64]) {
        append(&self.row, batch, |column| {
            // Relaxed: a count that is read when all reading is done.
            left_out[column].fetch_add(1, Ordering::Relaxed);
        });
    }

    fn waits(&mut self) -> bool {
        self.lines.wait()
    }
}

/// An object as a line of text, without a label.
fn line_of<'a>(objects: &mut Objects, line: &[u8], text: &'a mut Vec<u8>) -> std::result::Result<&'a [u8], Reason> {
    let fields = objects.read(line)?;
    let divides = |field: &Vec<u8>| field.iter().any(|byte| matches!(byte, b'\t' | b'\n' | b'\r'));
    if let Some(at) = fields.iter().position(divides) {
        let column = objects.names().nth(at).unwrap_or_default();
        return Err(format!("column {column}: its value holds a tab or a line's end, which no field can").into());
    }
    text.clear();
    for field in fields {
        text.extend_from_slice(field);
        text.push(b'\t');
    }
    // Behind the last one is none.
    text.pop();
    Ok(text)
}
