//! Files of tensors (safetensors) that are checked when they are read: each tensor's hash stands in the file's head,
//! and so does the head's own.
//!
//! Two keys of `__metadata__` hold them, in 16 hexadecimal digits each: `octorec.hashes` those of the tensors, as a
//! JSON object by name, and `octorec.head` that of all bytes before the first tensor, taken with 16 zeros in its own
//! place. A tensor's hash is a tree of two levels, so that several threads can take it: the XXH3 of each MiB of its
//! bytes (the last may be shorter), and over these, little-endian and one behind the other, XXH3 again. What is written
//! is hashed on its way, what is read is hashed a window ahead of its use: memory does not grow with the model.
//!
//! Other programs ignore these keys; their own files have neither and are read as they are.

use std::collections::{BTreeMap, HashMap};
use std::hash::Hasher;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use memchr::memmem;
use rayon::prelude::*;
use safetensors::tensor::{Dtype, Metadata, TensorInfo};
use serde::ser::{Serialize, SerializeMap, Serializer};
use twox_hash::XxHash3_64;

use crate::base::{Result, interrupt};
use crate::memory::{FilePart, Flush, WholeFile};

/// The metadata key of the tensors' hashes.
const HASHES: &str = "octorec.hashes";
/// The metadata key of the head's hash.
pub(super) const HEAD: &str = "octorec.head";
/// What precedes the head's hash in the file; within a string of JSON its quotes would be escaped.
const BEFORE: &[u8] = b"\"octorec.head\":\"";
const ZEROS: [u8; 16] = *b"0000000000000000";

/// Bytes of a tensor that are hashed on their own.
const PIECE: usize = 1 << 20;
/// Bytes that are hashed at a time, by all threads.
const WINDOW: usize = 32 * PIECE;

/// What remains to be said when damage was found.
pub(super) const REMEDY: &str = "put an undamaged copy of the file in its place, or read it as it is with --no-verify";

fn digits(hash: u64) -> String {
    format!("{hash:016x}")
}

/// The hash of a tensor whose bytes come a few at a time.
#[derive(Default)]
struct Tree {
    piece: XxHash3_64,
    /// Bytes of the piece so far.
    filled: usize,
    pieces: XxHash3_64,
}

impl Tree {
    fn add(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            let (now, rest) = bytes.split_at(bytes.len().min(PIECE - self.filled));
            self.piece.write(now);
            self.filled += now.len();
            if self.filled == PIECE {
                self.end_piece();
            }
            bytes = rest;
        }
    }

    fn end_piece(&mut self) {
        let piece = std::mem::take(&mut self.piece).finish();
        self.pieces.write(&piece.to_le_bytes());
        self.filled = 0;
    }

    /// The hash of what was added; from then on it is another tensor's.
    fn take(&mut self) -> u64 {
        if self.filled > 0 {
            self.end_piece();
        }
        std::mem::take(&mut self.pieces).finish()
    }
}

/// A file on its way to be whole. Tensors' bytes are appended one tensor after another: in their order, or from one
/// that was sought. Other machines may write some of them ([`TensorFile::join`]).
pub(super) struct TensorFile {
    file: Sink,
    metadata: BTreeMap<&'static str, String>,
    tensors: Vec<(String, TensorInfo)>,
    /// Of the tensors that are complete; those without bytes are.
    hashes: Vec<Option<u64>>,
    tree: Tree,
    /// Bytes before the tensors.
    start: usize,
    /// The tensor to which the next bytes belong, and their place behind `start`.
    next: (usize, usize),
}

/// Where bytes go.
enum Sink {
    Own(WholeFile),
    /// A file that the first machine has begun.
    Shared(FilePart),
}

impl Sink {
    fn write_at(&mut self, at: usize, bytes: &[u8]) -> Result<()> {
        match self {
            Self::Own(file) => file.write_at(at as u64, bytes),
            Self::Shared(file) => file.write_at(at as u64, bytes),
        }
    }
}

/// By what another machine finds a file of tensors and knows it: its name for now, and the length and the hash of its
/// head.
pub(super) type Landmark = (PathBuf, usize, u64);

/// The JSON before the tensors.
struct Head<'a> {
    metadata: &'a BTreeMap<&'static str, String>,
    tensors: &'a [(String, TensorInfo)],
}

impl Serialize for Head<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> std::result::Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(1 + self.tensors.len()))?;
        map.serialize_entry("__metadata__", self.metadata)?;
        self.tensors.iter().try_for_each(|(name, info)| map.serialize_entry(name, info))?;
        map.end()
    }
}

impl TensorFile {
    /// Begins a file with one entry of metadata and these tensors, each given with its name, type, shape and bytes.
    /// Wider types come first, so that all are aligned.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub(super) fn begin(
        path: &Path,
        (key, value): (&'static str, String),
        tensors: impl Iterator<Item = (String, Dtype, Vec<usize>, usize)>,
    ) -> Result<Self> {
        let mut file = Self::of(Sink::Own(WholeFile::create(path)?), tensors);
        file.metadata = BTreeMap::from([(key, value)]);
        let head = file.head();
        file.start = head.len();
        file.file.write_at(0, &head)?;
        Ok(file)
    }

    /// The same file, to write some of its tensors, on another machine; nothing where it does not see the file.
    pub(super) fn join(
        (path, len, seal): &Landmark,
        tensors: impl Iterator<Item = (String, Dtype, Vec<usize>, usize)>,
    ) -> Option<Self> {
        let file = FilePart::open(path, *len, |head| XxHash3_64::oneshot(head) == *seal)?;
        Some(Self { start: *len, ..Self::of(Sink::Shared(file), tensors) })
    }

    fn of(file: Sink, tensors: impl Iterator<Item = (String, Dtype, Vec<usize>, usize)>) -> Self {
        let mut end = 0;
        let tensors = tensors.map(|(name, dtype, shape, bytes)| {
            let start = end;
            end += bytes;
            (name, TensorInfo { dtype, shape, data_offsets: (start, end) })
        });
        let tensors: Vec<_> = tensors.collect();
        let of_nothing =
            |info: &TensorInfo| (info.data_offsets.0 == info.data_offsets.1).then(|| Tree::default().take());
        let hashes = tensors.iter().map(|(_, info)| of_nothing(info)).collect();
        let mut file =
            Self { file, metadata: BTreeMap::new(), tensors, hashes, tree: Tree::default(), start: 0, next: (0, 0) };
        file.seek(0);
        file
    }

    /// Flushes the head to the disk and tells by what others know it; nothing where it is no file to be shared.
    ///
    /// # Errors
    /// When the system refuses.
    pub(super) fn share(&mut self) -> Result<Option<Landmark>> {
        let head = self.head();
        let Sink::Own(file) = &mut self.file else { return Ok(None) };
        Ok(file.share()?.map(|path| (path, head.len(), XxHash3_64::oneshot(&head))))
    }

    /// As [`WholeFile::flush_beside`].
    pub(super) fn flush_beside(&self) -> Result<Option<Flush>> {
        match &self.file {
            Sink::Own(file) => file.flush_beside(),
            Sink::Shared(file) => file.flush_beside().map(Some),
        }
    }

    /// What is appended next belongs to this tensor, or if it has no bytes, to the next that has.
    pub(super) fn seek(&mut self, tensor: usize) {
        let bytes = |(_, info): &(String, TensorInfo)| info.data_offsets.1 - info.data_offsets.0;
        let tensor = (tensor..self.tensors.len()).find(|tensor| bytes(&self.tensors[*tensor]) > 0);
        self.next = tensor.map_or((self.tensors.len(), 0), |tensor| (tensor, self.tensors[tensor].1.data_offsets.0));
    }

    /// All bytes before the tensors; hashes that are not known yet are 0, in as many digits.
    fn head(&mut self) -> Vec<u8> {
        let all = self.tensors.iter().zip(&self.hashes);
        let hashes: BTreeMap<_, _> = all.map(|((name, _), hash)| (name, digits(hash.unwrap_or(0)))).collect();
        self.metadata
            .insert(HASHES, serde_json::to_string(&hashes).expect("names and digits are representable in JSON"));
        let unsealed = self.head_sealed(&digits(0));
        let seal = XxHash3_64::oneshot(&unsealed);
        self.head_sealed(&digits(seal))
    }

    fn head_sealed(&mut self, seal: &str) -> Vec<u8> {
        self.metadata.insert(HEAD, seal.to_owned());
        let head = Head { metadata: &self.metadata, tensors: &self.tensors };
        let json = serde_json::to_vec(&head).expect("metadata is representable in JSON");
        // Numbers begin at a multiple of 8.
        let len = json.len().next_multiple_of(8);
        let mut bytes = (len as u64).to_le_bytes().to_vec();
        bytes.extend(json);
        bytes.resize(8 + len, b' ');
        bytes
    }

    /// Appends bytes of one tensor, which is then the next or complete.
    ///
    /// # Errors
    /// When the system refuses them: a full disk.
    ///
    /// # Panics
    /// When the tensor has fewer.
    pub(super) fn append(&mut self, bytes: &[u8]) -> Result<()> {
        if bytes.is_empty() {
            return Ok(());
        }
        let (tensor, at) = self.next;
        let end = self.tensors[tensor].1.data_offsets.1;
        assert!(at + bytes.len() <= end, "{} bytes for tensor {}", bytes.len(), self.tensors[tensor].0);
        let (file, tree, place) = (&mut self.file, &mut self.tree, self.start + at);
        if bytes.len() < PIECE {
            tree.add(bytes);
            file.write_at(place, bytes)?;
        } else {
            rayon::join(|| tree.add(bytes), || file.write_at(place, bytes)).1?;
        }
        self.next = (tensor, at + bytes.len());
        if self.next.1 == end {
            self.hashes[tensor] = Some(self.tree.take());
            self.seek(tensor + 1);
        }
        Ok(())
    }

    /// Flushes a part to the disk, and returns the tensors that were written and their hashes, one behind the other.
    ///
    /// # Errors
    /// When the system refuses.
    ///
    /// # Panics
    /// When it is the whole file.
    pub(super) fn finish_part(self) -> Result<Vec<u64>> {
        let Sink::Shared(file) = self.file else { panic!("the whole file is finished as such") };
        file.finish()?;
        let written = self.hashes.iter().zip(0..).filter_map(|(hash, tensor)| Some([tensor, (*hash)?]));
        Ok(written.flatten().collect())
    }

    /// Takes over what [`TensorFile::finish_part`] told of tensors that another machine has written.
    pub(super) fn take_over(&mut self, written: &[u64]) {
        for pair in written.chunks_exact(2) {
            self.hashes[pair[0] as usize] = Some(pair[1]);
        }
    }

    /// Completes the head, flushes to the disk and gives the file its name.
    ///
    /// # Errors
    /// When the system refuses; an older file of that name then stays.
    ///
    /// # Panics
    /// When a tensor is not complete, or it is a part of another machine's file.
    pub(super) fn finish(mut self) -> Result<u64> {
        assert!(self.hashes.iter().all(Option::is_some), "every tensor was appended");
        let head = self.head();
        let Sink::Own(mut file) = self.file else { panic!("a part has no head") };
        file.overwrite_start(&head)?;
        file.finish()
    }
}

/// The tensors' hashes that a file holds; its head was found sound.
#[derive(Debug)]
pub(super) struct Hashes(HashMap<String, String>);

impl Hashes {
    /// Takes them from a file's bytes, its head at least, whose metadata was read; `None` where there are none: in
    /// another program's file, or one of a version that wrote none.
    ///
    /// # Errors
    /// What is wrong with the head, for people.
    pub(super) fn read(bytes: &[u8], metadata: &Metadata) -> std::result::Result<Option<Self>, String> {
        let entry = |key| metadata.metadata().as_ref().and_then(|entries| entries.get(key));
        let damaged = || {
            format!(
                "its head (names, shapes, how it came about) has another hash than it says: it is damaged, or another \
                 program wrote it anew: {REMEDY}"
            )
        };
        match (entry(HASHES), entry(HEAD)) {
            (None, None) => Ok(None),
            (Some(hashes), Some(seal)) => {
                if hash_of_head(bytes).as_ref() != Some(seal) {
                    return Err(damaged());
                }
                serde_json::from_str(hashes).map(|hashes| Some(Self(hashes))).map_err(|_| damaged())
            }
            _ => Err(damaged()),
        }
    }

    /// A check of this tensor's bytes.
    pub(super) fn check<'a>(&'a self, name: &str, bytes: &'a [u8]) -> Check<'a> {
        Check { bytes, done: 0, pieces: XxHash3_64::default(), expected: self.0.get(name) }
    }
}

/// The hash of all bytes before the tensors, as they were when the head's own was 0.
fn hash_of_head(bytes: &[u8]) -> Option<String> {
    let (len, _) = bytes.split_first_chunk()?;
    let len = usize::try_from(u64::from_le_bytes(*len)).ok()?.checked_add(8)?;
    let head = bytes.get(..len)?;
    let at = memmem::find(head, BEFORE)? + BEFORE.len();
    let mut hasher = XxHash3_64::default();
    hasher.write(&head[..at]);
    hasher.write(&ZEROS);
    hasher.write(head.get(at + ZEROS.len()..)?);
    Some(digits(hasher.finish()))
}

/// A tensor's bytes, which are hashed ahead of their use.
pub(super) struct Check<'a> {
    bytes: &'a [u8],
    /// Bytes that were hashed.
    done: usize,
    pieces: XxHash3_64,
    expected: Option<&'a String>,
}

impl Check<'_> {
    /// Hashes what lies before byte `end`, by all threads: at most a window more.
    pub(super) fn advance(&mut self, end: usize) {
        while self.done < end.min(self.bytes.len()) {
            let window = &self.bytes[self.done..self.bytes.len().min(self.done + WINDOW)];
            if window.len() <= PIECE {
                self.pieces.write(&XxHash3_64::oneshot(window).to_le_bytes());
            } else {
                let hashes: Vec<u64> = window.par_chunks(PIECE).map(XxHash3_64::oneshot).collect();
                hashes.iter().for_each(|hash| self.pieces.write(&hash.to_le_bytes()));
            }
            self.done += window.len();
        }
    }

    /// The same by this thread alone; nothing where it, or octorec, was told to stop.
    pub(super) fn found_sound_alone(mut self, stop: &AtomicBool) -> Option<bool> {
        for piece in self.bytes.chunks(PIECE) {
            // Relaxed: the flag carries no data.
            if stop.load(Ordering::Relaxed) || interrupt::requested() {
                return None;
            }
            self.pieces.write(&XxHash3_64::oneshot(piece).to_le_bytes());
        }
        self.done = self.bytes.len();
        Some(self.found_sound())
    }

    /// Whether all bytes are those that were written.
    pub(super) fn found_sound(mut self) -> bool {
        self.advance(self.bytes.len());
        self.expected.is_some_and(|expected| *expected == digits(self.pieces.finish()))
    }
}

#[cfg(test)]
mod tests {
    use safetensors::tensor::SafeTensors;

    use super::*;

    /// A file of three tensors, the second without bytes and the last of some pieces, written in parts of these sizes.
    fn file(path: &Path, parts: usize) -> Vec<u8> {
        let large: Vec<u8> = (0..WINDOW as u32 + 70_001).map(|n| (n.wrapping_mul(0x9E37_79B1) >> 13) as u8).collect();
        let tensors = [("a", vec![7; 12]), ("b", Vec::new()), ("c", large)];
        let sizes = tensors.iter().map(|(name, bytes)| ((*name).to_owned(), Dtype::U8, vec![bytes.len()], bytes.len()));
        let mut file = TensorFile::begin(path, ("said", "so \"octorec.head\":\"".to_owned()), sizes).unwrap();
        for (_, bytes) in &tensors {
            bytes.chunks(parts).for_each(|some| file.append(some).unwrap());
        }
        file.finish().unwrap();
        std::fs::read(path).unwrap()
    }

    /// What is wrong with a file, if anything: the tensor, or that it is the head.
    fn fault(bytes: &[u8]) -> Option<String> {
        let Ok((_, metadata)) = SafeTensors::read_metadata(bytes) else { return Some("no safetensors".to_owned()) };
        let hashes = match Hashes::read(bytes, &metadata) {
            Ok(hashes) => hashes.expect("hashes"),
            Err(reason) => return Some(reason),
        };
        let tensors = SafeTensors::deserialize(bytes).unwrap();
        tensors
            .tensors()
            .into_iter()
            .find(|(name, tensor)| !hashes.check(name, tensor.data()).found_sound())
            .map(|t| t.0)
    }

    #[test]
    fn the_hash_of_a_tensor_does_not_depend_on_how_it_was_cut() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("t");
        let whole = file(&path, usize::MAX);
        assert_eq!(fault(&whole), None);
        assert!([1 << 12, PIECE - 1, 5 * PIECE / 2].into_iter().all(|parts| file(&path, parts) == whole));
        // Used in windows that do not end where pieces do.
        let (_, metadata) = SafeTensors::read_metadata(&whole).unwrap();
        let (hashes, tensors) =
            (Hashes::read(&whole, &metadata).unwrap().unwrap(), SafeTensors::deserialize(&whole).unwrap());
        let bytes = tensors.tensor("c").unwrap().data();
        let alone = |name, stop| hashes.check(name, bytes).found_sound_alone(&AtomicBool::new(stop));
        assert_eq!([alone("c", false), alone("a", false), alone("c", true)], [Some(true), Some(false), None]);
        let mut check = hashes.check("c", bytes);
        (0..bytes.len()).step_by(3 << 20).for_each(|end| check.advance(end));
        assert!(
            check.found_sound() && !hashes.check("a", bytes).found_sound() && !hashes.check("d", bytes).found_sound()
        );
    }

    #[test]
    fn machines_write_one_file_together() {
        let folder = tempfile::tempdir().unwrap();
        let tensors = [("a", vec![1u8; 10]), ("b", Vec::new()), ("c", vec![2; PIECE + 5]), ("d", vec![3; 7])];
        let sizes = || {
            let size =
                |(name, bytes): &(&str, Vec<u8>)| ((*name).to_owned(), Dtype::U8, vec![bytes.len()], bytes.len());
            tensors.iter().map(size)
        };
        let begin = |name| TensorFile::begin(&folder.path().join(name), ("k", "v".to_owned()), sizes()).unwrap();
        let mut alone = begin("alone");
        tensors.iter().for_each(|(_, bytes)| alone.append(bytes).unwrap());
        alone.finish().unwrap();
        let mut first = begin("together");
        let (path, len, seal) = first.share().unwrap().unwrap();
        for unknown in
            [(path.clone(), len, seal + 1), (path.with_extension("no"), len, seal), (path.clone(), 1 << 30, seal)]
        {
            assert!(TensorFile::join(&unknown, sizes()).is_none());
        }
        let mut second = TensorFile::join(&(path, len, seal), sizes()).unwrap();
        second.seek(2);
        tensors[2].1.chunks(1000).for_each(|some| second.append(some).unwrap());
        first.seek(3);
        first.append(&tensors[3].1).unwrap();
        first.seek(0);
        first.append(&tensors[0].1).unwrap();
        first.take_over(&second.finish_part().unwrap());
        first.finish().unwrap();
        let [alone, together] = ["alone", "together"].map(|name| std::fs::read(folder.path().join(name)).unwrap());
        assert!(alone == together && fault(&together).is_none());
    }

    #[test]
    fn every_bit_of_the_head_counts() {
        let folder = tempfile::tempdir().unwrap();
        let whole = file(&folder.path().join("t"), 1 << 20);
        let (len, _) = SafeTensors::read_metadata(&whole).unwrap();
        // The head with the small tensors: what follows takes long to hash.
        let mut bytes = whole.clone();
        for at in 0..8 * (8 + len + 12) {
            bytes[at / 8] ^= 1 << (at % 8);
            let found = SafeTensors::read_metadata(&bytes).ok().and_then(|(_, metadata)| {
                let hashes = Hashes::read(&bytes, &metadata).ok()?.expect("no flip makes it a file without hashes");
                let tensors = SafeTensors::deserialize(&bytes).ok()?;
                hashes.check("a", tensors.tensor("a").ok()?.data()).found_sound().then_some(())
            });
            assert!(found.is_none(), "bit {at}");
            bytes[at / 8] ^= 1 << (at % 8);
        }
        for at in [8 + len + 12, whole.len() - 1, whole.len() - 70_002] {
            bytes[at] ^= 0x40;
            assert_eq!(fault(&bytes).as_deref(), Some("c"), "byte {at}");
            bytes[at] ^= 0x40;
        }
        assert_eq!(fault(&whole[..whole.len() - 1]).as_deref(), Some("no safetensors"));
    }
}
