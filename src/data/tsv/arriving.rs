//! Criteo's rows as they arrive, for a trained model.

use std::path::Path;
use std::sync::Arc;

use super::encoding::{Encoding, cap};
use super::layout::Layout;
use super::row::Row;
use super::table::append;
use super::{Fault, checked};
use crate::base::config::{DataConfig, Vocab};
use crate::base::{Error, Reason, Result};
use crate::data::incoming::{Column, Next, Numbers, Objects, Parse, TRUTHS, UNSEEN, Writing, refuse};
use crate::data::text::{Line, Lines};
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
        let (objects, row) = (self.objects.clone(), Row::new(&self.layout));
        let unseen = vec![0; self.layout.categorical];
        Ok(Box::new(Arrivals { of: self, lines, objects, text: Vec::new(), row, unseen }))
    }
}

struct Arrivals<'a> {
    of: &'a Arriving,
    lines: Lines,
    objects: Option<Objects>,
    /// An object as a line of text.
    text: Vec<u8>,
    row: Row,
    unseen: Vec<u64>,
}

impl Arrivals<'_> {
    /// Parses the next line into `row`; nothing at the end, or what is wrong with it.
    fn parse(&mut self) -> Result<Option<std::result::Result<(), Reason>>> {
        let Arriving { layout, encoding, .. } = self.of;
        let line = match self.lines.next_line()? {
            None => return Ok(None),
            Some(Line::TooLong) => return Ok(Some(Err(Fault::TooLong { limit: layout.max_line }.reason()))),
            Some(Line::Text(line)) => line,
        };
        let line = match &mut self.objects {
            None => line,
            Some(objects) => match objects.read(line) {
                Err(reason) => return Ok(Some(Err(reason.into()))),
                Ok(fields) => {
                    let divides = |field: &Vec<u8>| field.iter().any(|byte| matches!(byte, b'\t' | b'\n' | b'\r'));
                    if let Some(at) = fields.iter().position(divides) {
                        let column = objects.names().nth(at).unwrap_or_default();
                        let reason =
                            format!("column {column}: its value holds a tab or a line's end, which no field can");
                        return Ok(Some(Err(reason.into())));
                    }
                    self.text.clear();
                    // There is no label.
                    for (at, field) in fields.iter().enumerate() {
                        if at > 0 {
                            self.text.push(b'\t');
                        }
                        self.text.extend_from_slice(field);
                    }
                    &self.text
                }
            },
        };
        let parsed = self.row.parse(line, layout).and_then(|()| encoding.encode(&mut self.row.categories, UNSEEN));
        Ok(Some(parsed.map_err(|fault| fault.reason())))
    }
}

impl Next for Arrivals<'_> {
    fn next(&mut self, batch: &mut Batch) -> Result<bool> {
        match self.parse()? {
            None => Ok(false),
            Some(Ok(())) => {
                append(&self.row, batch, |column| self.unseen[column] += 1);
                Ok(true)
            }
            Some(Err(reason)) => {
                Err(Error::BadRow { path: self.lines.path().to_owned(), line: self.lines.place().lines, reason })
            }
        }
    }

    fn stand_in(&mut self, batch: &mut Batch) {
        append(&Row::new(&self.of.layout), batch, |_| {});
    }

    fn finish(&mut self, _batch: &mut Batch) {}

    fn waits(&mut self) -> bool {
        self.lines.wait()
    }

    fn unseen(&self) -> &[u64] {
        &self.unseen
    }
}
