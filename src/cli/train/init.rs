//! Weights of other programs that a run is to begin with: what is wrong with their file, and the lines of Python that
//! mend it.

use std::path::Path;

use memchr::memmem;
use safetensors::tensor::{Dtype, SafeTensors};

use crate::base::{Error, Result};
use crate::memory::FileMap;

/// What files of PyTorch and NumPy begin with: archives, arrays, pickles.
const FOREIGN: [&[u8]; 3] = [b"PK\x03\x04", b"\x93NUMPY", b"\x80"];

/// Refuses a file of PyTorch's or NumPy's own, and one whose names begin as those of distributed training do.
///
/// # Errors
/// [`Error::Config`] with what to do; whoever reads the file tells what else is wrong with it.
pub(super) fn check(path: &Path) -> Result<()> {
    let Ok(bytes) = FileMap::open(path) else { return Ok(()) };
    let Some((length, rest)) = bytes.split_first_chunk::<8>() else { return Ok(()) };
    // The length of a head of safetensors, of which the upper bytes are 0.
    let length = u64::from_le_bytes(*length);
    let shown = path.display();
    let reason = if length > u64::from(u32::MAX) && FOREIGN.iter().any(|magic| bytes.starts_with(magic)) {
        format!(
            "{shown} is a file of PyTorch or NumPy, and weights are read from safetensors. In Python, where state_dict is \
             torch.load({shown:?}, map_location=\"cpu\") or the model's state_dict(): import safetensors.torch; \
             safetensors.torch.save_file(state_dict, \"model.safetensors\")"
        )
    } else if memmem::find(&rest[..rest.len().min(length as usize)], b"\"module.emb_l.").is_some() {
        format!(
            "{shown} has names that begin with module., as DistributedDataParallel writes them. In Python: import \
             safetensors.torch as st; st.save_file({{name.removeprefix(\"module.\"): tensor for name, tensor in \
             st.load_file({shown:?}).items()}}, \"model.safetensors\")"
        )
    } else {
        return Ok(());
    };
    Err(Error::config("--init", reason))
}

/// The error of a run that began with these weights: where it diverged and they are no numbers, that is the cause.
pub(super) fn explained(error: Error, init: Option<&Path>) -> Error {
    match error {
        Error::Diverged { step, loss, rate, cause: None, saved } => {
            let cause = init.and_then(broken_tensor);
            Error::Diverged { step, loss, rate, cause, saved }
        }
        other => other,
    }
}

/// The first tensor of a file with a value that is no finite number, in words.
fn broken_tensor(path: &Path) -> Option<String> {
    let bytes = FileMap::open(path).ok()?;
    let tensors = SafeTensors::deserialize(&bytes).ok()?;
    let is_broken = |data: &[u8]| data.as_chunks().0.iter().any(|value| !f32::from_le_bytes(*value).is_finite());
    let mut tensors = tensors.iter();
    let (name, _) = tensors.find(|(_, tensor)| tensor.dtype() == Dtype::F32 && is_broken(tensor.data()))?;
    Some(format!(
        "tensor {name} of --init {} holds values that are no finite numbers: begin with other weights",
        path.display()
    ))
}
