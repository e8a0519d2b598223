//! NumPy's archives: a zip file with one array file a member.
//!
//! Members that are stored are read where they stand; `numpy.savez` stores, `numpy.savez_compressed` does not. A
//! [`Member`] reads either from front to back.

use std::io::{self, BufReader, Cursor, Read, Take, Write};
use std::path::Path;
use std::sync::Arc;

use flate2::read::DeflateDecoder;
use zip::write::SimpleFileOptions;
use zip::{CompressionMethod, ZipArchive, ZipWriter};

use super::bad;
use super::npy::{self, Header};
use crate::base::{Error, Result};
use crate::memory::{FileBytes, FileCursor};
use crate::memory::{WholeFile, write_file};

type Archive = ZipArchive<BufReader<FileCursor>>;

fn archive(file: &Arc<FileBytes>) -> Result<Archive> {
    let archive = ZipArchive::new(BufReader::new(file.cursor(0)));
    archive.map_err(|error| bad(file.path(), format!("is no whole NumPy archive: {error}")))
}

/// Where the stored member `name` (without `.npy`) stands in the archive: its first byte and its length.
pub(super) fn stored(file: &Arc<FileBytes>, name: &str) -> Result<(usize, usize)> {
    let (path, mut archive) = (file.path(), archive(file)?);
    let member = find(&archive, name, path)?;
    let member = archive.by_index_raw(member).map_err(|error| bad(path, format!("array {name}: {error}")))?;
    if member.compression() != CompressionMethod::Stored {
        let reason = "is compressed and cannot be read in place: write the archive with numpy.savez";
        return Err(bad(path, format!("array {name}: {reason}")));
    }
    let start = member.data_start().ok_or_else(|| bad(path, format!("array {name}: its place is unknown")))?;
    let (start, length) = (start as usize, member.size() as usize);
    if start.checked_add(length).is_none_or(|end| end > file.len()) {
        return Err(bad(path, format!("array {name}: is truncated: copy or write the archive again")));
    }
    Ok((start, length))
}

/// The bytes of one array file of an archive, from front to back; its end is an error where the checksum is another
/// one.
pub(super) struct Member {
    bytes: Packed,
    sum: crc32fast::Hasher,
    expected: u32,
}

/// How a member lies in the archive.
enum Packed {
    Stored(Take<FileCursor>),
    Deflated(DeflateDecoder<Take<FileCursor>>),
}

impl Member {
    /// The member `name` (without `.npy`) of an archive.
    pub(super) fn open(file: &Arc<FileBytes>, name: &str) -> Result<Self> {
        let (path, mut archive) = (file.path(), archive(file)?);
        let at = find(&archive, name, path)?;
        let fail = |reason: String| bad(path, format!("array {name}: {reason}"));
        let member = archive.by_index_raw(at).map_err(|error| fail(error.to_string()))?;
        let start = member.data_start().ok_or_else(|| fail("its place is unknown".to_owned()))?;
        let bytes = file.cursor(start as usize).take(member.compressed_size());
        let bytes = match member.compression() {
            CompressionMethod::Stored => Packed::Stored(bytes),
            CompressionMethod::Deflated => Packed::Deflated(DeflateDecoder::new_with_buf(bytes, vec![0; CHUNK])),
            other => {
                let reason = format!("is compressed by {other}: write the archive with numpy.savez_compressed");
                return Err(fail(reason));
            }
        };
        Ok(Self { bytes, sum: crc32fast::Hasher::new(), expected: member.crc32() })
    }
}

impl Read for Member {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let count = match &mut self.bytes {
            Packed::Stored(bytes) => bytes.read(into)?,
            Packed::Deflated(bytes) => bytes.read(into)?,
        };
        self.sum.update(&into[..count]);
        if count == 0 && !into.is_empty() && self.sum.clone().finalize() != self.expected {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "its checksum is another one"));
        }
        Ok(count)
    }
}

/// Bytes that a deflated member asks of the file at once.
const CHUNK: usize = 256 << 10;

/// Whether the archive has an array `name`.
pub(super) fn has(file: &Arc<FileBytes>, name: &str) -> Result<bool> {
    Ok(archive(file)?.index_for_name(&format!("{name}.npy")).is_some())
}

/// The number of member `name`, or an error that lists what there is.
fn find(archive: &Archive, name: &str, path: &Path) -> Result<usize> {
    archive.index_for_name(&format!("{name}.npy")).ok_or_else(|| {
        let known: Vec<String> =
            archive.file_names().map(|name| name.map_or_else(|_| "?".into(), Into::into)).collect();
        bad(path, format!("has no array {name}; it has {}", known.join(", ")))
    })
}

/// The `counts` of a `day_fea_count.npz`: integers, compressed or not.
pub(super) fn counts(path: &Path) -> Result<Vec<u64>> {
    integers(path, "counts")
}

/// A short array of integers, compressed or not.
pub(super) fn integers(path: &Path, name: &str) -> Result<Vec<u64>> {
    /// More would be no list of table sizes.
    const MOST: u64 = 1 << 20;
    let mut archive = archive(&Arc::new(FileBytes::open(path)?))?;
    let at = find(&archive, name, path)?;
    let array = format!("array {name}");
    let member = archive.by_index(at).map_err(|error| bad(path, format!("{array}: {error}")))?;
    let mut bytes = Vec::new();
    member.take(MOST).read_to_end(&mut bytes).map_err(Error::io(path, "read"))?;
    let header = Header::parse(&bytes, path, &array)?;
    let (_, _, numbers) = header.matrix(bytes.len(), &["<i4", "<i8", "<u4", "<u8"], Some(1), (path, &array))?;
    let numbers = &bytes[numbers];
    if header.dtype.ends_with('4') {
        Ok(numbers.as_chunks::<4>().0.iter().map(|&word| u32::from_le_bytes(word).into()).collect())
    } else {
        Ok(numbers.as_chunks::<8>().0.iter().map(|&word| u64::from_le_bytes(word)).collect())
    }
}

/// Writes a `day_fea_count.npz`, int32 as the reference does.
pub(super) fn write_counts(path: &Path, counts: &[u64]) -> Result<()> {
    let numbers = counts.iter().map(|&count| i32::try_from(count)).collect::<std::result::Result<Vec<_>, _>>();
    let numbers = numbers.map_err(|_| bad(path, "a table has 2^31 rows or more, which int32 counts cannot say"))?;
    let mut writer = ZipWriter::new(Cursor::new(Vec::new()));
    let result = writer.start_file("counts.npy", options(0)).map_err(std::io::Error::from).and_then(|()| {
        writer.write_all(&npy::header("<i4", &[numbers.len()]))?;
        writer.write_all(bytemuck::cast_slice(&numbers))
    });
    let bytes =
        result.and_then(|()| writer.finish().map_err(std::io::Error::from)).map_err(Error::io(path, "write"))?;
    write_file(path, bytes.get_ref())
}

fn options(bytes: u64) -> SimpleFileOptions {
    let options = SimpleFileOptions::default().compression_method(CompressionMethod::Stored);
    // Archives of more than 4 GiB need the wider entries.
    options.large_file(bytes >= u64::from(u32::MAX)).last_modified_time(zip::DateTime::default())
}

/// Puts finished array files into one archive, stored, and removes them.
pub(super) fn bundle(path: &Path, members: &[(String, std::path::PathBuf)]) -> Result<u64> {
    let file = WholeFile::create(path)?;
    let mut writer = ZipWriter::new_stream(file);
    for (name, from) in members {
        let length = std::fs::metadata(from).map_err(Error::io(from, "read"))?.len();
        let copied = writer.start_file(format!("{name}.npy"), options(length)).map_err(std::io::Error::from);
        let copied = copied.and_then(|()| std::io::copy(&mut std::fs::File::open(from)?, &mut writer));
        copied.map_err(Error::io(path, "write"))?;
    }
    let file = writer.finish().map_err(std::io::Error::from).map_err(Error::io(path, "write"))?.into_inner();
    let bytes = file.finish()?;
    for (_, from) in members {
        std::fs::remove_file(from).map_err(Error::io(from, "remove"))?;
    }
    Ok(bytes)
}
