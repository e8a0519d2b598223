//! Restricted Transactional Memory: a whole row is moved as one transaction, with vectors inside.
//!
//! Source: Intel 64 and IA-32 Architectures Software Developer's Manual, volume 1, chapter 16 (XBEGIN, XEND, abort
//! status). The flag (CPUID leaf 7, EBX bit 11) may be set although every transaction aborts, as microcode may have
//! switched it off; so possession of an [`Rtm`] proves that one has committed here. A transaction may always abort: its
//! user retries a few times and then falls back on `atoms::mul_add`, which a transaction tolerates, because any foreign
//! write to its lines aborts it.

use std::arch::asm;
use std::arch::x86_64::{__m256, _mm256_set1_ps};

use super::primitive::AtomicU32;

/// Transactions that are tried before the caller falls back.
const ATTEMPTS: usize = 8;

/// What EAX holds when a transaction has committed.
const COMMITTED: i32 = -1;

/// Abort status: another try may succeed (bit 1), or another thread used the memory (bit 2).
const WORTH_A_RETRY: i32 = 0b110;

/// Proof that this processor runs transactions, and has AVX2 and FMA.
#[derive(Debug, Clone, Copy)]
pub struct Rtm(());

impl Rtm {
    /// The proof.
    ///
    /// # Errors
    /// What is missing.
    pub fn detect() -> Result<Self, &'static str> {
        if !is_x86_feature_detected!("rtm") {
            return Err("this processor has no transactional memory (RTM)");
        }
        if !(is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma")) {
            return Err("this processor has transactional memory but not AVX2 and FMA");
        }
        let proof = Self(());
        let mut row = [0.0f32.to_bits(); 8];
        let tried = (0..64).any(|_| proof.mul_add(super::atomic_words_32(&mut row), 1.0, 1.0, &[1.0; 8]));
        if tried {
            Ok(proof)
        } else {
            Err("this processor announces transactional memory, but every transaction aborts")
        }
    }

    /// `row[e] = rate * (factor * gradient[e]) + row[e]` for all e at once, each sum rounded once; false and nothing
    /// done when no transaction committed.
    ///
    /// # Panics
    /// When `row` and `gradient` have different lengths.
    #[must_use]
    #[inline]
    pub fn mul_add(self, row: &[AtomicU32], rate: f32, factor: f32, gradient: &[f32]) -> bool {
        assert_eq!(row.len(), gradient.len(), "one gradient an element");
        for _ in 0..ATTEMPTS {
            // SAFETY: `self` exists, so `detect` saw RTM, AVX2 and FMA; the lengths are equal, checked above.
            #[allow(unsafe_code)]
            let status = unsafe { attempt(row, rate, factor, gradient) };
            if status == COMMITTED {
                return true;
            }
            if status & WORTH_A_RETRY == 0 {
                return false;
            }
            std::hint::spin_loop();
        }
        false
    }
}

/// One transaction; returns its status.
///
/// # Safety
/// The processor has RTM, AVX2 and FMA, and `gradient` is as long as `row`.
#[allow(unsafe_code)]
#[target_feature(enable = "avx2,fma")]
unsafe fn attempt(row: &[AtomicU32], rate: f32, factor: f32, gradient: &[f32]) -> i32 {
    let (rate, factor): (__m256, __m256) = (_mm256_set1_ps(rate), _mm256_set1_ps(factor));
    let mut status = COMMITTED;
    let bytes = size_of_val(row);
    // SAFETY: all loads and stores lie in the two slices, `bytes` long each (the contract); the row's words are
    // atomics, so they may be changed through a shared reference, and the transaction makes the change whole. On an
    // abort the processor restores all registers and memory as of XBEGIN, writes EAX and jumps to label 6.
    unsafe {
        asm!(
            "xbegin 6f",
            "2: cmp {at}, {whole}",
            "jae 4f",
            "vmulps {part}, {factor}, [{gradient} + {at}]",
            "vmovups {sum}, [{row} + {at}]",
            "vfmadd231ps {sum}, {part}, {rate}",
            "vmovups [{row} + {at}], {sum}",
            "add {at}, 32",
            "jmp 2b",
            "4: cmp {at}, {bytes}",
            "jae 5f",
            "vmulss {part:x}, {factor:x}, dword ptr [{gradient} + {at}]",
            "vmovss {sum:x}, dword ptr [{row} + {at}]",
            "vfmadd231ss {sum:x}, {part:x}, {rate:x}",
            "vmovss dword ptr [{row} + {at}], {sum:x}",
            "add {at}, 4",
            "jmp 4b",
            "5: xend",
            "6:",
            at = inout(reg) 0usize => _,
            whole = in(reg) bytes / 32 * 32,
            bytes = in(reg) bytes,
            row = in(reg) row.as_ptr(),
            gradient = in(reg) gradient.as_ptr(),
            rate = in(ymm_reg) rate,
            factor = in(ymm_reg) factor,
            part = out(ymm_reg) _,
            sum = out(ymm_reg) _,
            inout("eax") status,
            options(nostack),
        );
    }
    status
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::base::requirement::required;

    #[test]
    fn a_transaction_moves_a_whole_row_or_nothing() {
        let Some(rtm) = required("rtm", Rtm::detect()) else { return };
        let mut committed = 0;
        for len in 0..70 {
            let before: Vec<f32> = (0..len).map(|e| e as f32 * 0.37 - 3.0).collect();
            let gradient: Vec<f32> = (0..len).map(|e| 1.0 / (e as f32 + 1.3)).collect();
            let moved: Vec<f32> = (0..len).map(|e| (-0.1f32).mul_add(0.7 * gradient[e], before[e])).collect();
            let mut row = before.clone();
            let words = bytemuck::cast_slice_mut(&mut row);
            let done = rtm.mul_add(super::super::atomic_words_32(words), -0.1, 0.7, &gradient);
            assert_eq!(row, if done { moved } else { before }, "{len} elements");
            committed += usize::from(done);
        }
        // One may always abort, though it is tried eight times; most abort nowhere.
        assert!(committed >= 35, "only {committed} of 70 transactions committed");
    }
}
