//! The head of a file of tensors: all bytes before the first one, and what they say.

use safetensors::tensor::Metadata;

/// The head of a whole file, copied before it is read: others may write into a mapped file, and what was found sound
/// stays so.
///
/// # Errors
/// Why it is no whole file of tensors, for people.
pub(super) fn head_of(file: &[u8]) -> Result<(Vec<u8>, Metadata), String> {
    /// Bytes of JSON that readers of the format take at most.
    const MOST: u64 = 100_000_000;
    let &len = file.first_chunk().ok_or("it has fewer than 8 bytes")?;
    let len = u64::from_le_bytes(len);
    if len > MOST {
        return Err(format!("its head would have {len} bytes, and has at most {MOST}"));
    }
    let json = size_of::<u64>();
    let head = file.get(..json + len as usize).ok_or("it ends within its head")?.to_vec();
    let metadata: Metadata =
        serde_json::from_slice(&head[json..]).map_err(|error| format!("its head cannot be read: {error}"))?;
    let (has, said) = (file.len() - head.len(), metadata.data_len());
    if has != said {
        return Err(format!("it has {has} bytes of tensors, and its head says {said}"));
    }
    Ok((head, metadata))
}

#[cfg(test)]
mod tests {
    use safetensors::tensor::{Dtype, SafeTensors, TensorView, serialize};

    use super::*;

    #[test]
    fn a_head_is_read_where_the_library_reads_it_and_says_the_same() {
        let numbers: Vec<u8> = (0..24).collect();
        let view = |shape: Vec<usize>, bytes| TensorView::new(Dtype::F32, shape, bytes).unwrap();
        let tensors = [("a", view(vec![2, 2], &numbers[..16])), ("b", view(vec![2], &numbers[16..]))];
        let mut file = serialize(tensors, None).unwrap();
        let (len, theirs) = SafeTensors::read_metadata(&file).unwrap();
        let (head, ours) = head_of(&file).unwrap();
        assert_eq!(head, file[..8 + len]);
        assert_eq!(serde_json::to_value(ours).unwrap(), serde_json::to_value(theirs).unwrap());
        let agree = |file: &[u8]| head_of(file).is_ok() == SafeTensors::read_metadata(file).is_ok();
        assert!(
            (0..=file.len()).all(|end| agree(&file[..end]) && (end == file.len() || head_of(&file[..end]).is_err()))
        );
        for bit in 0..8 * (8 + len) {
            file[bit / 8] ^= 1 << (bit % 8);
            assert!(agree(&file), "bit {bit}");
            file[bit / 8] ^= 1 << (bit % 8);
        }
    }
}
