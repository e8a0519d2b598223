//! Writes tables whose columns lie at fixed distances in files.

use std::ops::Range;

use half::f16;

use super::{Kind, Layout, TURNED};
use crate::base::Result;
use crate::data::formats::{Sink, bad};
use crate::data::samples::Values;
use crate::data::{Description, Samples};
use crate::memory::WholeFile;

/// A file that is being written.
pub(in crate::data::formats) struct Page {
    pub(in crate::data::formats) file: WholeFile,
    /// Bytes of a row.
    pub(in crate::data::formats) width: usize,
    /// The rows that come next.
    bytes: Vec<u8>,
}

impl Page {
    /// Some of the rows that come next, and how many bytes each has.
    fn rows(&mut self, rows: &Range<usize>) -> (&mut [u8], usize) {
        (&mut self.bytes[rows.start * self.width..rows.end * self.width], self.width)
    }
}

/// Writes the rows of a layout whose fields fill its files' rows: integers of dense columns as the log said them, those
/// below 0 as 0; floats as features.
pub(in crate::data::formats) struct StridedSink {
    layout: Layout,
    pub(in crate::data::formats) description: Description,
    pub(in crate::data::formats) pages: Vec<Page>,
}

impl StridedSink {
    /// Writes rows of `description` behind what the files have already.
    pub(in crate::data::formats) fn new(layout: Layout, files: Vec<WholeFile>, description: &Description) -> Self {
        let page = |(number, file)| Page { file, width: layout.width(number), bytes: Vec::new() };
        let pages = files.into_iter().enumerate().map(page).collect();
        Self { layout, description: description.clone(), pages }
    }
}

impl Sink for StridedSink {
    fn push(&mut self, samples: &Samples) -> Result<()> {
        let Self { layout, description, pages } = self;
        pages.iter_mut().for_each(|page| page.bytes.resize(page.width * samples.len(), 0));
        // The first column with a feature that its type cannot hold, and such a one.
        let mut beyond: Option<(usize, f32)> = None;
        let mut features = Vec::new();
        for first in (0..samples.len()).step_by(TURNED) {
            let rows = first..samples.len().min(first + TURNED);
            let (field, labels) = (&layout.label, &samples.labels[rows.clone()]);
            let cells = pages[field.file].rows(&rows);
            match field.kind {
                Kind::Bool => field.write(cells, labels, |label| [u8::from(label != 0.0)]),
                _ => field.write(cells, labels, |label| (label as i32).to_le_bytes()),
            }
            for (at, (field, values)) in layout.dense.iter().zip(&samples.dense).enumerate() {
                let cells = pages[field.file].rows(&rows);
                if let (Kind::Int32, Values::Integers(values)) = (field.kind, values) {
                    // Missing ones are the smallest i32.
                    field.write(cells, &values[rows.clone()], |value| value.max(0).to_le_bytes());
                    continue;
                }
                values.features(rows.clone(), description.dense[at].feature(), &mut features);
                if field.kind == Kind::Float16 {
                    field.write(cells, &features, |value: f32| {
                        let half = f16::from_f32(value);
                        if !half.is_finite() && value.is_finite() && beyond.is_none_or(|(known, _)| at <= known) {
                            beyond = Some((at, value));
                        }
                        half.to_le_bytes()
                    });
                } else {
                    field.write(cells, &features, f32::to_le_bytes);
                }
            }
            for (field, lookups) in layout.categorical.iter().zip(&samples.lookups) {
                let cells = pages[field.file].rows(&rows);
                let numbers = &lookups.rows[rows.start * field.count..rows.end * field.count];
                match field.kind {
                    Kind::Int8 => field.write(cells, numbers, |number| [number as u8]),
                    Kind::Int16 => field.write(cells, numbers, |number| (number as u16).to_le_bytes()),
                    _ => field.write(cells, numbers, u32::to_le_bytes),
                }
            }
        }
        if let Some((column, value)) = beyond {
            let reason = format!(
                "column {} has the feature {value}, and 16-bit floats end at {}: give the column another transform, or \
                 choose another --format",
                description.dense[column].name,
                f16::MAX
            );
            return Err(bad(pages[layout.dense[column].file].file.path(), reason));
        }
        pages.iter_mut().try_for_each(|page| page.file.append(&page.bytes))
    }

    fn finish(self: Box<Self>) -> Result<u64> {
        self.pages.into_iter().map(|page| page.file.finish()).sum()
    }
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::super::{Records, Row, Strided};
    use super::*;
    use crate::data::Batch;
    use crate::data::fingerprint::{of_bytes, of_ends};
    use crate::data::formats::Table;
    use crate::data::schema::{Categorical, Dense};
    use crate::memory::FileBytes;

    /// More than are turned at a time.
    const ROWS: usize = 3 * TURNED + 7;

    fn float(name: &str) -> Dense {
        Dense { name: name.to_owned(), float: true, ..Dense::default() }
    }

    /// A file of odd width with labels and columns of one and of several look-ups, one of features of two types, one of
    /// a column alone.
    fn layout() -> (Layout, Description) {
        let row = |file| Row { file, width: 0 };
        let (mut first, mut second) = (row(0), row(1));
        let label = first.field(Kind::Bool, 1);
        let look_ups = vec![first.field(Kind::Int16, 1), first.field(Kind::Int32, 3), row(2).field(Kind::Int8, 2)];
        let dense = vec![second.field(Kind::Float16, 1), second.field(Kind::Float32, 1)];
        let categorical = [1, 3, 2].map(|hots| Categorical { hots, ..Categorical::new(format!("C{hots}"), 1 << 20) });
        let description = Description {
            dense: vec![float("half"), float("whole")],
            categorical: categorical.to_vec(),
            ..Description::default()
        };
        (Layout { label, dense, categorical: look_ups }, description)
    }

    fn samples(description: &Description) -> Samples {
        let mut samples = Samples::new(description);
        for n in 0..ROWS as u32 {
            samples.labels.push((n % 2) as f32);
            for (values, at) in samples.dense.iter_mut().zip([4.0, -3.0]) {
                let Values::Floats(values) = values else { panic!("floats were asked for") };
                values.push(n as f32 / at);
            }
            samples.lookups[0].rows.push(300 + n);
            samples.lookups[1].rows.extend([n, 70_000 + n, 9]);
            samples.lookups[2].rows.extend([n % 100, 7]);
        }
        samples
    }

    fn written(layout: &Layout, paths: &[PathBuf], description: &Description, samples: &Samples) -> Vec<Records> {
        let files = paths.iter().map(|path| WholeFile::create(path).unwrap()).collect();
        let mut sink = StridedSink::new(layout.clone(), files, description);
        // In two portions.
        for range in [0..100, 100..samples.len()] {
            let mut some = Samples::new(description);
            some.extend_from(samples, range, description);
            sink.push(&some).unwrap();
        }
        Box::new(sink).finish().unwrap();
        let open = |(at, path): (usize, &PathBuf)| {
            let (file, width) = (FileBytes::open(path).unwrap(), layout.width(at));
            assert_eq!(file.len(), samples.len() * width);
            Records::new(file.into(), 0, width, samples.len())
        };
        paths.iter().enumerate().map(open).collect()
    }

    #[test]
    fn what_a_layout_writes_it_reads_as_samples_and_as_minibatches() {
        let folder = tempfile::tempdir().unwrap();
        let (layout, description) = layout();
        let all = samples(&description);
        let paths = ["a", "b", "c"].map(|name| folder.path().join(name));
        let files = written(&layout, &paths, &description, &all);
        // The second row of the first file, byte by byte.
        let bytes = std::fs::read(&paths[0]).unwrap();
        assert_eq!(bytes[15..30], [1, 45, 1, 1, 0, 0, 0, 113, 17, 1, 0, 9, 0, 0, 0]);
        let table = Strided::new(description.clone(), layout, files).unwrap();
        assert_eq!(table.largest().unwrap(), [Some(300 + ROWS as u32 - 1), Some(70_000 + ROWS as u32 - 1), Some(99)]);
        for start in [0, 5, ROWS - 3] {
            let mut expected = Samples::new(&description);
            expected.extend_from(&all, start..ROWS, &description);
            let mut found = Samples::new(&description);
            assert_eq!(table.open(start as u64).unwrap().read(&mut found, ROWS).unwrap(), ROWS - start);
            assert!(found == expected, "from row {start}");
            let [mut batch, mut due] = [(); 2].map(|()| Batch::new(&description.schema(0)));
            due.append(&expected, &description);
            let mut rows = table.open(start as u64).unwrap();
            // Behind what is there.
            for limit in [2, ROWS] {
                rows.read_batch(&mut batch, limit, (&mut found, &description)).unwrap();
            }
            batch.check(&description.schema(0)).unwrap();
            assert!(batch == due, "from row {start}");
        }
    }

    #[test]
    fn wrong_labels_are_told_with_all_their_digits_and_one_file_as_one_or_as_a_list() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("rows");
        let description = Description { dense: vec![float("x")], ..Description::default() };
        let mut samples = Samples::new(&description);
        (samples.labels, samples.dense) = (vec![1.0, 0.0], vec![Values::Floats(vec![0.5; 2])]);
        let layout = Layout::words(&description);
        let read = || {
            let file = FileBytes::open(&path).unwrap();
            Strided::new(description.clone(), layout.clone(), vec![Records::new(file.into(), 0, 8, 2)]).unwrap()
        };
        let files = vec![WholeFile::create(&path).unwrap()];
        let mut sink = StridedSink::new(layout.clone(), files, &description);
        sink.push(&samples).unwrap();
        assert_eq!(Box::new(sink).finish().unwrap(), 16);
        let mut table = read();
        let file = of_ends(&path).unwrap();
        assert_eq!(table.fingerprint(), Some(of_bytes([bytemuck::bytes_of(&file)])));
        table.told_as_file = true;
        assert_eq!(table.fingerprint(), Some(file));
        let mut bytes = std::fs::read(&path).unwrap();
        bytes[8..12].copy_from_slice(&16_777_217i32.to_le_bytes());
        std::fs::write(&path, bytes).unwrap();
        let mut found = Samples::new(&description);
        let message = read().open(0).unwrap().read(&mut found, 2).unwrap_err().to_string();
        assert!(message.contains("row 1: the label is 16777217; 0 or 1 expected"), "{message}");
    }
}
