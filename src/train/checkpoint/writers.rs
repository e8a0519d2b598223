//! Who writes a checkpoint: each machine the tables that it has, or the first one all.

use safetensors::tensor::Dtype;

use super::rounds::SAVE;
use crate::base::Result;
use crate::memory::is_coherent;
use crate::train::Ranks;
use crate::train::tensor_file::{Landmark, TensorFile};

/// Who writes a checkpoint.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Writers {
    /// There is one machine.
    Alone,
    /// Each machine writes the tables that it has.
    Each,
    /// The first machine writes what others give it: some do not see its file, or all do, on a file system that is not
    /// known to keep apart what several machines write.
    First {
        /// Whether all machines see the file.
        is_seen: bool,
    },
}

/// What a machine can do with the file that the first one has begun: nothing, as it does not see it...
const UNSEEN: u8 = 0;
/// ...only read it...
const SEEN: u8 = 1;
/// ...or also write its part of it.
const COHERENT: u8 = 2;

impl Writers {
    /// Those of several machines that can do this with the file.
    fn of(able: impl Iterator<Item = u8>) -> Self {
        match able.min() {
            Some(COHERENT) => Self::Each,
            least => Self::First { is_seen: least == Some(SEEN) },
        }
    }
}

/// The file of which a machine writes some tensors, if it writes any, and who writes: each machine, where all see the
/// file that the first one has begun and none can damage what another one writes to it.
pub(super) fn share<S: Iterator<Item = (String, Dtype, Vec<usize>, usize)>>(
    ranks: &Ranks,
    mut own: Option<TensorFile>,
    sizes: impl Fn() -> S,
) -> Result<(Option<TensorFile>, Writers)> {
    if ranks.world().machines() == 1 {
        return Ok((own, Writers::Alone));
    }
    let landmark = own.as_mut().map(TensorFile::share).transpose()?.flatten();
    let told = ranks.everywhere(SAVE, serde_json::to_vec(&landmark).unwrap_or_default())?;
    let landmark: Option<Landmark> = serde_json::from_slice(&told[0]).ok().flatten();
    let part = landmark.as_ref().filter(|_| own.is_none()).and_then(|landmark| TensorFile::join(landmark, sizes()));
    let seen = landmark.as_ref().filter(|_| own.is_some() || part.is_some());
    let able = seen.map_or(UNSEEN, |(path, ..)| if is_coherent(path) { COHERENT } else { SEEN });
    let all = ranks.everywhere(SAVE, vec![able])?;
    let writers = Writers::of(all.into_iter().flatten());
    Ok((own.or(part.filter(|_| writers == Writers::Each)), writers))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_machine_writes_where_all_of_them_can() {
        let of = |able: &[u8]| Writers::of(able.iter().copied());
        assert_eq!(of(&[COHERENT; 3]), Writers::Each);
        // The first one may have on a disk of its own what it exports to the others.
        assert_eq!([&[COHERENT, SEEN][..], &[SEEN; 2]].map(of), [Writers::First { is_seen: true }; 2]);
        assert_eq!(
            [&[COHERENT, UNSEEN][..], &[SEEN, UNSEEN, COHERENT]].map(of),
            [Writers::First { is_seen: false }; 2]
        );
    }
}
