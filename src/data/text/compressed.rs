//! Compressed text, recognised by its first bytes, and what is said when it is broken. Parquet is text, too: see
//! [`parquet::text`].
//!
//! Files of several gzip members (`cat a.gz b.gz`, bgzip) or zstd frames (pzstd) are read to the end.

use std::fs::File;
use std::io::{self, BufReader, ErrorKind, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use flate2::read::MultiGzDecoder;

use crate::base::{Error, Result};
use crate::data::formats::parquet;

/// Bytes that are asked of the file at once.
const CHUNK: usize = 256 << 10;
const GZIP: [u8; 2] = [0x1f, 0x8b];
const ZSTD: [u8; 4] = [0x28, 0xb5, 0x2f, 0xfd];

/// Whether a zstd frame begins so, or one to be skipped (0x184d2a50 to 0x184d2a5f): pzstd begins with such.
fn is_zstd(magic: &[u8]) -> bool {
    magic.starts_with(&ZSTD) || matches!(magic, [0x50..=0x5f, 0x2a, 0x4d, 0x18, ..])
}

/// Which columns of a table somebody reads: the others are blank in the text of Parquet, whatever they hold.
#[derive(Clone, Copy)]
pub enum Wanted<'a> {
    /// None of them: their names alone.
    Names,
    /// All, as they are.
    All,
    /// Those whose names are such, of whose lists each value counts.
    #[cfg_attr(not(feature = "parquet"), expect(dead_code, reason = "what reads Parquet is not built"))]
    Of(&'a dyn Fn(&str) -> bool),
}

/// Whether a file that begins so begins and ends with this word of Parquet: text may begin with the same letters, but
/// does not end with them.
fn is_between(word: [u8; 4], magic: &[u8], file: &mut (impl Read + Seek)) -> io::Result<bool> {
    let mut last = Vec::with_capacity(word.len());
    if magic.starts_with(&word) && file.seek(SeekFrom::End(0))? >= 2 * word.len() as u64 {
        file.seek(SeekFrom::End(-(word.len() as i64)))?;
        file.read_to_end(&mut last)?;
    }
    Ok(last == word)
}

/// Whether the file at `path` is Parquet, whose text has commas between its fields and begins with a line of names.
pub fn is_parquet_at(path: &Path) -> bool {
    // Whoever opens a pipe to look at it takes from it what its reader wants.
    let Some(mut file) = path.is_file().then(|| File::open(path).ok()).flatten() else { return false };
    let mut magic = [0; parquet::MAGIC.len()];
    file.read_exact(&mut magic).and_then(|()| is_between(parquet::MAGIC, &magic, &mut file)).unwrap_or(false)
}

/// Whether a file that is no whole Parquet was to be one, by its first bytes and its name.
fn is_part_of_parquet(magic: &[u8], path: &Path) -> bool {
    let named = path.extension().is_some_and(|extension| extension.eq_ignore_ascii_case("parquet"));
    magic.strip_prefix(&parquet::MAGIC).is_some_and(|behind| named || behind.starts_with(&PAGE))
}

/// The text of a file, of Parquet that of the columns that are `wanted`, and whether it is compressed.
///
/// # Errors
/// When it cannot be read, and when it is packed or written as none that is read here.
pub fn decoded(
    mut file: impl Read + Seek + Send + 'static,
    path: &Path,
    wanted: Wanted<'_>,
) -> Result<(Box<dyn Read + Send>, bool)> {
    let fail = |error| Error::io(path, "read")(error);
    let mut magic = Vec::with_capacity(FIRST);
    file.by_ref().take(FIRST as u64).read_to_end(&mut magic).map_err(fail)?;
    let is_parquet = is_between(parquet::MAGIC, &magic, &mut file).map_err(fail)?;
    if is_between(parquet::SEALED, &magic, &mut file).map_err(fail)? {
        return Err(Error::bad_file(path, parquet::ENCRYPTED));
    }
    file.seek(SeekFrom::Start(0)).map_err(fail)?;
    Ok(if is_parquet {
        (parquet::text(file, path, wanted)?, true)
    } else if is_part_of_parquet(&magic, path) {
        let reason = "begins as Parquet does, but does not end so, as a copy that was cut off: copy or write it again";
        return Err(Error::bad_file(path, reason));
    } else if magic.starts_with(&GZIP) {
        let text = MultiGzDecoder::new(BufReader::with_capacity(CHUNK, file));
        (Box::new(Unpacked::of(text, "zcat", path)), true)
    } else if is_zstd(&magic) {
        let text = zstd::Decoder::with_buffer(BufReader::with_capacity(CHUNK, file)).map_err(fail)?;
        (Box::new(Unpacked::of(text, "zstdcat", path)), true)
    } else if is_office(&magic) {
        return Err(Error::bad_file(path, format!("is {OFFICE}")));
    } else if let Some((kind, program)) = foreign(&magic) {
        return Err(no_text(path, kind, &format!("{program} FILE")));
    } else {
        (Box::new(file), false)
    })
}

/// That a file is no text, and the command that makes such of it.
fn no_text(path: &Path, kind: &str, command: &str) -> Error {
    let reason = format!(
        "is {kind}; rows are read from UTF-8 text, also as gzip or zstd packs it, and from Parquet: make text of it \
         (`{command} > NEW`)"
    );
    Error::bad_file(path, reason)
}

/// What a file holds that is unpacked, which may be no text of UTF-8 either.
struct Unpacked<R> {
    text: R,
    /// The program that unpacks, for a message.
    program: &'static str,
    path: PathBuf,
    /// Whether the first bytes were looked at.
    begun: bool,
}

impl<R: Read> Unpacked<R> {
    fn of(text: R, program: &'static str, path: &Path) -> Self {
        Self { text, program, path: path.to_owned(), begun: false }
    }
}

impl<R: Read> Read for Unpacked<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let mut read = self.text.read(buffer)?;
        if self.begun {
            return Ok(read);
        }
        // A decoder may hand out fewer bytes than tell.
        while 0 < read && read < UTF16 && read < buffer.len() {
            match self.text.read(&mut buffer[read..]) {
                Ok(0) => break,
                Ok(more) => read += more,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        self.begun = true;
        match is_utf16(&buffer[..read]) {
            true => {
                let command = format!("{} FILE | {ICONV}", self.program);
                Err(io::Error::other(no_text(&self.path, "packed text in UTF-16", &command)))
            }
            false => Ok(read),
        }
    }
}

/// A file whose bytes are counted as they are read, for somebody else to look at.
pub struct Counted {
    file: File,
    bytes: Arc<AtomicU64>,
}

impl Counted {
    /// Counts in `bytes`.
    pub const fn new(file: File, bytes: Arc<AtomicU64>) -> Self {
        Self { file, bytes }
    }
}

impl Read for Counted {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.file.read(buffer)?;
        // Relaxed: a figure for a progress bar, it orders nothing.
        self.bytes.fetch_add(read as u64, Ordering::Relaxed);
        Ok(read)
    }
}

impl Seek for Counted {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        let at = self.file.seek(to)?;
        self.bytes.store(at, Ordering::Relaxed);
        Ok(at)
    }
}

/// What is wrong with a file that could not be read on after so many complete lines.
pub fn unreadable(path: &Path, compressed: bool, lines: u64, error: io::Error) -> Error {
    // What a reader of Parquet has found says all.
    let error = match error.downcast::<Error>() {
        Ok(told) => return told,
        Err(error) => error,
    };
    let reason = match error.kind() {
        ErrorKind::UnexpectedEof if compressed => format!(
            "the {} file is truncated: it ends in the middle of its data after {lines} complete lines; \
             copy or download it again",
            kind(path)
        ),
        // Errors of a decoder have no number of the system's.
        _ if compressed && error.raw_os_error().is_none() => {
            let kind = kind(path);
            format!(
                "the {kind} file is corrupt after {lines} complete lines ({error}); check it with `{kind} -t`, \
                 copy or download it again"
            )
        }
        _ => return Error::Io { path: path.to_owned(), action: "read", source: error },
    };
    Error::bad_file(path, reason)
}

/// What a compressed file is; only asked for a message.
fn kind(path: &Path) -> &'static str {
    let mut magic = [0; 4];
    let read = File::open(path).and_then(|mut file| file.read_exact(&mut magic));
    if read.is_ok() && is_zstd(&magic) { "zstd" } else { "gzip" }
}

/// The command that makes line feeds of the CRs in a file's text; nothing of Parquet, in whose fields they stand.
pub fn line_feeds(path: &Path) -> Option<String> {
    if is_parquet_at(path) {
        return None;
    }
    let mut magic = [0; 4];
    // Whoever opens a pipe to look at it takes from it what its reader wants.
    let is_read = path.is_file() && File::open(path).and_then(|mut file| file.read_exact(&mut magic)).is_ok();
    let made = "tr '\\r' '\\n'";
    Some(match is_read {
        true if magic.starts_with(&GZIP) => format!("zcat FILE | {made} > NEW"),
        true if is_zstd(&magic) => format!("zstdcat FILE | {made} > NEW"),
        _ => format!("{made} < FILE > NEW"),
    })
}

/// What compressed data begin with, what they are called, and the program that writes their text to a pipe.
const PACKED: [(&[u8], &str, &str); 5] = [
    (&GZIP, "gzip", "zcat"),
    (&ZSTD, "zstd", "zstdcat"),
    (b"\xfd7zXZ\0", "xz", "xzcat"),
    (b"PK\x03\x04", "a zip archive", "unzip -p"),
    (b"BZh91AY&SY", "bzip2", "bzcat"),
];

/// Bytes of a file that tell what it is.
const FIRST: usize = 96;

/// The program that makes text of UTF-8 of UTF-16.
const ICONV: &str = "iconv -f UTF-16 -t UTF-8";
/// Bytes that tell text in UTF-16.
const UTF16: usize = 4;

/// Whether text in UTF-16 begins so: behind its mark, letters of plain text have a zero beside them, which such text in
/// one byte a letter has nowhere.
fn is_utf16(first: &[u8]) -> bool {
    matches!(first, [0xff, 0xfe, _, 0, ..] | [0xfe, 0xff, 0, _, ..])
}

/// What is said of spreadsheets.
const OFFICE: &str = "a spreadsheet, or another document of an office program, and rows are read from text: save it as \
                      CSV in that program (or by pandas: read_excel(FILE).to_csv(NEW, index=False))";

/// Whether a document of an office program begins so: a zip archive with such files in it, or one of before 2007.
fn is_office(first: &[u8]) -> bool {
    const FILES: [&[u8]; 5] =
        [b"[Content_Types].xml", b"_rels/", b"docProps/", b"xl/", b"mimetypeapplication/vnd.oasis.opendocument."];
    // The name of the first file stands behind a head of 30 bytes, and what the file holds, unpacked, behind its name.
    let name = first.strip_prefix(b"PK\x03\x04").and_then(|behind| behind.get(26..));
    first.starts_with(b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1")
        || name.is_some_and(|name| FILES.iter().any(|file| name.starts_with(file)))
}

/// What begins so and is no text of UTF-8, and the program that makes such text of it.
fn foreign(first: &[u8]) -> Option<(&'static str, &'static str)> {
    if is_utf16(first) {
        return Some(("text in UTF-16", ICONV));
    }
    PACKED.into_iter().find(|(magic, ..)| first.starts_with(magic)).map(|(_, kind, program)| (kind, program))
}

/// What follows in Parquet, and in no text: the field with which the heads of pages and of files begin.
const PAGE: [u8; 1] = [0x15];

/// What is said of text that arrives and is compressed, by its first bytes; nothing where it is not.
pub fn packed(first: &[u8]) -> Option<String> {
    if first.strip_prefix(&parquet::MAGIC).is_some_and(|behind| behind.starts_with(&PAGE)) {
        let advice = "its end is read first: name the file itself (`--data FILE`)";
        return Some(format!("what arrives is Parquet, which no pipe can give, since {advice}"));
    }
    if is_office(first) {
        return Some(format!("what arrives is {OFFICE}"));
    }
    let (kind, program) = foreign(first)?;
    Some(format!(
        "what arrives is {kind}, and rows are UTF-8 text: make such of it on the way (`{program} FILE | octorec ...`)"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn line_feeds_are_made_of_what_a_packed_file_holds() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let told = |bytes: &[u8]| {
            std::fs::write(file.path(), bytes).unwrap();
            line_feeds(file.path())
        };
        let plain = "tr '\\r' '\\n' < FILE > NEW";
        assert_eq!(told(b"a,1\rb,0\r").as_deref(), Some(plain));
        assert_eq!(told(b"\x1f\x8b\x08\0").as_deref(), Some("zcat FILE | tr '\\r' '\\n' > NEW"));
        assert_eq!(told(&ZSTD).as_deref(), Some("zstdcat FILE | tr '\\r' '\\n' > NEW"));
        assert_eq!(told(b"PAR1....PAR1"), None);
        assert_eq!(line_feeds(Path::new("standard input")).as_deref(), Some(plain));
    }

    #[test]
    fn what_arrives_compressed_is_told_by_its_first_bytes() {
        let told = |bytes: &[u8]| packed(bytes);
        assert!(told(&zstd::encode_all(&b"a line\n"[..], 3).unwrap()).unwrap().contains("is zstd"));
        assert!(told(b"\x1f\x8b\x08\0").unwrap().contains("zcat FILE |"));
        assert!(
            told(b"PAR1\x15\x04").unwrap().contains("Parquet") && told(b"PAR1\x15").unwrap().contains("--data FILE")
        );
        assert!([&b"label,user\n"[..], b"PAR1,1\n", b"BZh", b"PK", b""].into_iter().all(|text| told(text).is_none()));
        assert!(told(b"\xff\xfel\0a\0").unwrap().contains("iconv -f UTF-16 -t UTF-8 FILE |"));
    }

    #[test]
    fn files_that_are_no_text_are_told_with_what_makes_text_of_them() {
        let open =
            |bytes: &[u8], name: &str| decoded(std::io::Cursor::new(bytes.to_vec()), Path::new(name), Wanted::All);
        let open = |bytes: &[u8], name: &str| open(bytes, name).map(|(_, packed)| packed);
        let utf16 = |from: fn(u16) -> [u8; 2]| "\u{feff}label,user\n".encode_utf16().flat_map(from).collect::<Vec<_>>();
        for (bytes, program) in [
            (&b"\xfd7zXZ\0\0\x04"[..], "xzcat"),
            (b"PK\x03\x04\x14\0", "unzip -p"),
            (b"BZh91AY&SY\0", "bzcat"),
            (b"PK\x03\x04\x14\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\x05\0\0\0a.csv", "unzip -p"),
            (&utf16(u16::to_le_bytes), "iconv -f UTF-16 -t UTF-8"),
            (&utf16(u16::to_be_bytes), "iconv -f UTF-16 -t UTF-8"),
        ] {
            let message = open(bytes, "day").unwrap_err().to_string();
            assert!(
                message.starts_with("day: is ") && message.contains(&format!("`{program} FILE > NEW`")),
                "{message}"
            );
        }
        assert!(PACKED.iter().all(|(magic, ..)| magic.len() <= FIRST));
        let zip = |name: &str| [&b"PK\x03\x04"[..], &[0; 26], name.as_bytes(), &[0; 99]].concat();
        for office in [
            zip("[Content_Types].xml"),
            zip("xl/workbook.xml"),
            zip("mimetypeapplication/vnd.oasis.opendocument.spreadsheet"),
            b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1\0\0".to_vec(),
        ] {
            let message = open(&office, "day").unwrap_err().to_string();
            assert!(message.starts_with("day: is a spreadsheet") && message.contains("save it as CSV"), "{message}");
            assert!(packed(&office).unwrap().contains("what arrives is a spreadsheet"));
        }
        for text in [&b"PK,user\n"[..], b"BZh9,1\n", b"\xff\xfe,1\n", b"1"] {
            assert!(!open(text, "day").unwrap());
        }
        // Half of a copy of Parquet, and what its writer has encrypted.
        for (bytes, name) in
            [(&b"PAR1\x15\x04\x15\x10"[..], "day"), (b"PAR1", "day.parquet"), (b"PAR1 PAR", "a.PARQUET")]
        {
            let message = open(bytes, name).unwrap_err().to_string();
            assert!(message.contains(": begins as Parquet does, but does not end so"), "{message}");
        }
        let message = open(b"PARE\x15\x04PARE", "day").unwrap_err().to_string();
        assert!(message.contains("day: is encrypted Parquet"), "{message}");
        for text in [&b"PAR1"[..], b"PAR1,user\n", b"PARENT,user\n1,2\n"] {
            assert!(!open(text, "day").unwrap());
        }
    }

    #[test]
    fn packed_text_is_looked_at_as_plain_text_is() {
        let gzip = |text: &[u8]| {
            let mut packed = Vec::new();
            flate2::read::GzEncoder::new(text, flate2::Compression::fast()).read_to_end(&mut packed).unwrap();
            packed
        };
        let read = |bytes: Vec<u8>| {
            let (mut text, _) = decoded(std::io::Cursor::new(bytes), Path::new("day"), Wanted::All).unwrap();
            let mut all = Vec::new();
            text.read_to_end(&mut all).map(|_| all)
        };
        let utf16: Vec<u8> = "\u{feff}label,user\n".encode_utf16().flat_map(u16::to_le_bytes).collect();
        for (bytes, program) in [(gzip(&utf16), "zcat"), (zstd::encode_all(&utf16[..], 1).unwrap(), "zstdcat")] {
            let error = unreadable(Path::new("day"), true, 0, read(bytes).unwrap_err()).to_string();
            let told = format!("(`{program} FILE | iconv -f UTF-16 -t UTF-8 > NEW`)");
            assert!(error.starts_with("day: is packed text in UTF-16; rows") && error.contains(&told), "{error}");
        }
        for text in [&b""[..], b"1", b"\xff\xfe,1\n", b"label,user\n1,a\n"] {
            // Of members that have fewer bytes than tell, too.
            let bytes: Vec<u8> = text.chunks(1).flat_map(gzip).collect();
            let bytes = if text.is_empty() { gzip(b"") } else { bytes };
            assert_eq!(read(bytes).unwrap(), text);
        }
        let bytes: Vec<u8> = utf16.chunks(1).flat_map(gzip).collect();
        assert!(read(bytes).is_err());
    }

    #[test]
    fn frames_to_be_skipped_may_come_first() {
        // As pzstd has it: the size of the frame that follows, in a frame of its own.
        let text = "a line\n".repeat(100);
        let frame = zstd::encode_all(text.as_bytes(), 3).unwrap();
        let mut bytes = Vec::from([0x50, 0x2a, 0x4d, 0x18, 4, 0, 0, 0]);
        bytes.extend((frame.len() as u32).to_le_bytes());
        bytes.extend(frame);
        let (mut found, compressed) =
            decoded(std::io::Cursor::new(bytes.repeat(2)), Path::new("a.zst"), Wanted::All).unwrap();
        let mut read = String::new();
        found.read_to_string(&mut read).unwrap();
        assert!(compressed && read == text.repeat(2));
        let plain = std::io::Cursor::new(b"P*M plain text".to_vec());
        let (_, compressed) = decoded(plain, Path::new("a"), Wanted::All).unwrap();
        assert!(!compressed);
    }
}
