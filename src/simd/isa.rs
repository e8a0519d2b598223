//! Detection of instruction sets and dispatch to the twin compiled for one.

use std::fmt;
use std::sync::OnceLock;

use super::Simd;
use super::amx::Amx;
use super::avx2::Avx2;
use super::avx512::Avx512;
use super::avx512_bf16::Avx512Bf16;
use super::scalar::Scalar;
use crate::base::config::IsaChoice;
use crate::base::{Error, Result};

/// An algorithm with its arguments, generic over the instruction set.
///
/// Implementations mark `run` `#[inline(always)]`, so that it is compiled with the instruction set of its caller.
/// Arrays of lanes go through loops there, not through `map`: where many call it the compiler leaves it a function of
/// its own, without the instruction set.
pub trait Kernel {
    /// What the algorithm returns.
    type Out;

    /// Whether it uses bfloat16 operations; kernels without them need no twin for processors that have them.
    const BF16: bool = false;

    /// Runs the algorithm with these vector operations.
    fn run<S: Simd>(self, simd: S) -> Self::Out;
}

/// An instruction set that this processor has.
#[derive(Clone, Copy)]
pub enum Isa {
    /// Portable code, the definition of every kernel.
    Scalar(Scalar),
    /// AVX2 with FMA.
    Avx2(Avx2),
    /// AVX-512 F, BW, DQ and VL with FMA.
    Avx512(Avx512),
    /// The same with AVX512-BF16.
    Avx512Bf16(Avx512Bf16),
    /// The same with AMX-BF16: the blocked passes on bfloat16 multiply tiles, whose sums have bits of their own.
    AmxBf16(Amx),
    /// The same, and the passes in 32-bit floats multiply tiles, too, in three parts a number.
    AmxThirds(Amx),
}

impl Isa {
    /// The fastest one that this processor has.
    #[must_use]
    pub fn best() -> Self {
        static BEST: OnceLock<Isa> = OnceLock::new();
        *BEST.get_or_init(|| *Self::every().last().expect("portable code runs everywhere"))
    }

    /// The one that a configuration asks for.
    ///
    /// # Errors
    /// When this processor, or its system, does not have it.
    pub fn chosen(choice: IsaChoice) -> Result<Self> {
        let name = match choice {
            IsaChoice::Auto => return Ok(Self::best()),
            IsaChoice::Scalar => "scalar",
            IsaChoice::Avx2 => "avx2",
            IsaChoice::Avx512 => "avx512",
            IsaChoice::Avx512Bf16 => "avx512-bf16",
            IsaChoice::AmxBf16 => "amx-bf16",
            IsaChoice::AmxBf16x3 => "amx-bf16x3",
        };
        let every = Self::every();
        every.iter().copied().find(|isa| isa.name() == name).ok_or_else(|| {
            let has: Vec<_> = every.iter().map(|isa| isa.name()).collect();
            let reason = format!("this machine has no {name}; it has {}: use one of them or auto", has.join(", "));
            Error::config("train.isa", reason)
        })
    }

    /// [`Isa::all`], and both ways to use AMX-BF16 where it is.
    #[must_use]
    pub fn every() -> Vec<Self> {
        let mut every = Self::all();
        every.extend(Amx::detect().into_iter().flat_map(|amx| [Self::AmxBf16(amx), Self::AmxThirds(amx)]));
        every
    }

    /// All that this processor has and that give the same bits in every kernel, portable code first.
    #[must_use]
    pub fn all() -> Vec<Self> {
        let mut all = vec![Self::Scalar(Scalar)];
        all.extend(Avx2::detect().map(Self::Avx2));
        all.extend(Avx512::detect().map(Self::Avx512));
        all.extend(Avx512Bf16::detect().map(Self::Avx512Bf16));
        all
    }

    /// Its name.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Scalar(_) => "scalar",
            Self::Avx2(_) => "avx2",
            Self::Avx512(_) => "avx512",
            Self::Avx512Bf16(_) => "avx512-bf16",
            Self::AmxBf16(_) => "amx-bf16",
            Self::AmxThirds(_) => "amx-bf16x3",
        }
    }

    /// The proof of AMX-BF16, if bfloat16 are multiplied on tiles.
    #[must_use]
    pub const fn amx(self) -> Option<Amx> {
        if let Self::AmxBf16(amx) | Self::AmxThirds(amx) = self { Some(amx) } else { None }
    }

    /// The same, if 32-bit floats are.
    #[must_use]
    pub const fn amx_thirds(self) -> Option<Amx> {
        if let Self::AmxThirds(amx) = self { Some(amx) } else { None }
    }

    /// Whether it multiplies pairs of bfloat16: by an instruction, or as portable code, by their definition. The others
    /// imitate that element by element.
    #[must_use]
    pub const fn multiplies_pairs(self) -> bool {
        !matches!(self, Self::Avx2(_) | Self::Avx512(_))
    }

    /// Runs the kernel's twin for this instruction set; tiles are for the kernels that ask for them.
    #[inline]
    pub fn run<K: Kernel>(self, kernel: K) -> K::Out {
        match self {
            Self::Scalar(simd) => simd.run(kernel),
            Self::Avx2(simd) => simd.run(kernel),
            Self::Avx512(simd) => simd.run(kernel),
            Self::AmxBf16(amx) | Self::AmxThirds(amx) => Self::Avx512Bf16(amx.avx512_bf16()).run(kernel),
            Self::Avx512Bf16(simd) if K::BF16 => simd.run(kernel),
            Self::Avx512Bf16(simd) => simd.avx512().run(kernel),
        }
    }
}

impl fmt::Debug for Isa {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::requirement::required;

    /// Every operation on `values`, `other` and `third`, which have at least 16 elements.
    struct Everything<'a>([&'a [f32]; 3]);

    impl Kernel for Everything<'_> {
        type Out = Vec<u32>;

        #[inline(always)]
        fn run<S: Simd>(self, simd: S) -> Vec<u32> {
            let [a, b, c] = self.0;
            let mut out = vec![0.0; 16 * 7];
            for start in (0..16).step_by(S::LANES) {
                let load = |from: &[f32]| simd.load(&from[start..]);
                let (x, y, z) = (load(a), load(b), load(c));
                simd.prefetch(&a[start..]);
                let results = [
                    simd.mul_add(x, y, z),
                    simd.add(x, y),
                    simd.mul(x, y),
                    simd.relu(x),
                    simd.gate(x, y),
                    simd.splat(a[3]),
                    simd.load_partial(&a[..start.min(S::LANES - 1)]),
                ];
                for (index, result) in results.into_iter().enumerate().take(6) {
                    simd.store(result, &mut out[index * 16 + start..]);
                }
            }
            for length in 0..S::LANES {
                let mut part = [7.0; 16];
                simd.store_partial(simd.load_partial(&a[..length]), &mut part[..length]);
                assert_eq!(bits(&part[..length]), bits(&a[..length]));
                assert!(part[length..].iter().all(|&x| x == 7.0));
                let mut whole = [7.0; 16];
                simd.store(simd.load_partial(&a[..length]), &mut whole);
                assert!(whole[length..S::LANES].iter().all(|&x| x == 0.0));
            }
            bits(&out)
        }
    }

    /// Streams 1, 2, 3 … into the whole slice.
    struct Stream<'a>(&'a mut [f32]);

    impl Kernel for Stream<'_> {
        type Out = ();

        #[inline(always)]
        fn run<S: Simd>(self, simd: S) {
            let numbers: Vec<f32> = (1..=self.0.len()).map(|x| x as f32).collect();
            simd.stream(self.0, |index| simd.load(&numbers[index * S::LANES..]));
        }
    }

    #[test]
    fn streams_fill_aligned_slices_and_refuse_others() {
        #[repr(align(64))]
        struct Aligned([f32; 96]);
        for isa in Isa::all() {
            let mut memory = Aligned([0.0; 96]);
            isa.run(Stream(&mut memory.0[16..80]));
            assert!(
                (0..96).all(|i| memory.0[i] == if (16..80).contains(&i) { i as f32 - 15.0 } else { 0.0 }),
                "{isa:?}"
            );
            for bad in [1..65, 16..81] {
                let memory = std::panic::AssertUnwindSafe(&mut memory);
                let refused = std::panic::catch_unwind(move || isa.run(Stream(&mut { memory }.0.0[bad])));
                assert!(refused.is_err(), "{isa:?}");
            }
        }
    }

    fn bits(values: &[f32]) -> Vec<u32> {
        // All NaNs count as one: which payload survives an operation is not part of any kernel's definition.
        values.iter().map(|x| if x.is_nan() { f32::NAN.to_bits() } else { x.to_bits() }).collect()
    }

    /// The transpose of 16 x 16 elements.
    struct Transpose<'a>(&'a [f32], &'a mut [f32]);

    impl Kernel for Transpose<'_> {
        type Out = ();

        #[inline(always)]
        fn run<S: Simd>(self, simd: S) {
            simd.transpose(self.0, 20, self.1, 33);
        }
    }

    #[test]
    fn blocks_are_transposed() {
        let from: Vec<f32> = (0..320u32).map(|i| f32::from_bits(i.wrapping_mul(0x0101_0101))).collect();
        for isa in Isa::all() {
            let mut to = vec![7.0; 16 * 33];
            isa.run(Transpose(&from, &mut to));
            for (at, x) in to.iter().enumerate() {
                let (j, i) = (at / 33, at % 33);
                let expected = if i < 16 { from[i * 20 + j] } else { 7.0 };
                assert_eq!(x.to_bits(), expected.to_bits(), "{isa:?}");
            }
        }
    }

    /// Tests go through [`Isa::all`] and [`Isa::every`], which are shorter on lesser processors.
    #[test]
    fn tests_meet_every_instruction_set() {
        let found = |name: &str, isas: Vec<Isa>| {
            let here = isas.iter().find(|isa| isa.name() == name);
            here.map(|_| ()).ok_or_else(|| format!("this processor has {isas:?}"))
        };
        for name in ["avx2", "avx512", "avx512-bf16"] {
            let _skipped = required(name, found(name, Isa::all()));
        }
        for name in ["amx-bf16", "amx-bf16x3"] {
            let _skipped = required("amx-bf16", found(name, Isa::every()));
        }
    }

    #[test]
    fn all_instruction_sets_give_the_same_bits() {
        let special =
            [0.0, -0.0, 1.0, -1.5, f32::MIN_POSITIVE / 8.0, f32::MAX, f32::INFINITY, f32::NEG_INFINITY, f32::NAN];
        let random = crate::base::rng::Random::new(5, crate::base::rng::Stream::Label);
        for round in 0..400u64 {
            let draw = |which: u64| -> Vec<f32> {
                let value = |i: u64| {
                    let [a, b, ..] = random.block((round * 3 + which) * 16 + i);
                    if a % 3 == 0 { special[b as usize % special.len()] } else { (b as i32 as f32) / 1e8 }
                };
                (0..16).map(value).collect()
            };
            let [a, b, c] = [draw(0), draw(1), draw(2)];
            let expected = Isa::all()[0].run(Everything([&a, &b, &c]));
            for isa in Isa::all() {
                assert_eq!(isa.run(Everything([&a, &b, &c])), expected, "{isa:?}");
            }
        }
        println!("checked {:?}", Isa::all());
    }
}
