//! The dot interaction: every pair of a sample's vectors, multiplied.
//!
//! A sample's features T are F vectors of E elements (the bottom MLP's output x first, then one pooled row a table).
//! Forward: Z = T Tᵀ, and the result is [x, z] with z the entries of Z's lower triangle, row by row (i ascending, j < i,
//! or j <= i with `itself`), as facebookresearch/dlrm orders them. (TorchRec takes the upper triangle: its top weights
//! are not interchangeable with these.)
//! Backward: with the symmetric S that has dz at (i, j) and (j, i), dT = S T, plus dx in row 0.

use super::View;
use crate::base::Result;
use crate::machine::team::Team;
use crate::math::{Gemm, Start, Strided};
use crate::memory::{Arena, Buffer, Supply};
use crate::simd::{Kernel, Simd};
use crate::sync::{Each, Rows};

/// The interaction of `vectors` vectors of `dim` elements.
#[derive(Debug)]
pub struct Dot {
    shape: Shape,
    /// Working space, one a thread.
    scratch: Vec<Scratch>,
}

#[derive(Debug, Clone, Copy)]
struct Shape {
    vectors: usize,
    dim: usize,
    itself: bool,
}

#[derive(Debug)]
struct Scratch {
    /// Tᵀ, dim x vectors.
    transposed: Buffer<f32>,
    /// Z or S, vectors x vectors.
    products: Buffer<f32>,
}

impl Shape {
    const fn features(self) -> usize {
        self.vectors * self.dim
    }

    const fn outputs(self) -> usize {
        let pairs = self.vectors * (self.vectors - 1) / 2;
        self.dim + pairs + if self.itself { self.vectors } else { 0 }
    }

    /// How many entries of row i of Z are kept.
    const fn kept(self, i: usize) -> usize {
        if self.itself { i + 1 } else { i }
    }
}

impl Dot {
    /// The interaction of `vectors` vectors of `dim` elements, for a team of `threads`.
    ///
    /// # Errors
    /// When the supply is exhausted.
    pub fn new(vectors: usize, dim: usize, itself: bool, threads: usize, supply: &mut Supply<'_>) -> Result<Self> {
        let scratch = (0..threads).map(|_| {
            let transposed = supply.buffer("transposed features", dim * vectors)?;
            Ok(Scratch { transposed, products: supply.buffer("products", vectors * vectors)? })
        });
        Ok(Self { scratch: scratch.collect::<Result<_>>()?, shape: Shape { vectors, dim, itself } })
    }

    /// Takes all planned buffers from the arena.
    pub fn settle(&mut self, arena: &mut Arena) {
        for Scratch { transposed, products } in &mut self.scratch {
            for buffer in [transposed, products] {
                buffer.settle(arena);
            }
        }
    }

    /// Columns of the result: dim + F (F - 1) / 2, and F more with `itself`.
    #[must_use]
    pub const fn outputs(&self) -> usize {
        self.shape.outputs()
    }

    /// Vectors that meet, and their elements.
    #[must_use]
    pub const fn shape(&self) -> (usize, usize) {
        (self.shape.vectors, self.shape.dim)
    }

    /// Writes [x, z] of every sample; `out` has a row of [`Dot::outputs`] for each row of `features`.
    ///
    /// # Panics
    /// When a matrix has too few rows.
    pub fn forward(&mut self, team: &Team, features: &[f32], out: &mut [f32]) {
        let isa = team.isa();
        let shape = self.shape;
        let bands = Rows::new(out, shape.outputs(), team.threads(), 1);
        let scratch = Each::new(&mut self.scratch[..crate::sync::Parts::len(&bands)]);
        team.each((bands, scratch), |(band, scratch)| {
            let features = &features[band.first * shape.features()..][..band.rows * shape.features()];
            isa.run(Forward { shape, features, out: band.data, scratch });
        });
    }

    /// Writes the gradient of every sample's features, given `gradient` with respect to [x, z] (samples x outputs).
    ///
    /// # Panics
    /// When a matrix has too few rows.
    pub fn backward(&mut self, team: &Team, features: &[f32], gradient: View<'_>, features_gradient: &mut [f32]) {
        let isa = team.isa();
        let shape = self.shape;
        let bands = Rows::new(features_gradient, shape.features(), team.threads(), 1);
        let scratch = Each::new(&mut self.scratch[..crate::sync::Parts::len(&bands)]);
        team.each((bands, scratch), |(band, scratch)| {
            let features = &features[band.first * shape.features()..][..band.rows * shape.features()];
            let gradient = View { data: &gradient.data[band.first * gradient.row..], row: gradient.row };
            isa.run(Backward { shape, features, gradient, out: band.data, scratch });
        });
    }
}

struct Forward<'a> {
    shape: Shape,
    features: &'a [f32],
    out: &'a mut [f32],
    scratch: &'a mut Scratch,
}

impl Kernel for Forward<'_> {
    type Out = ();

    #[inline(always)]
    fn run<S: Simd>(self, simd: S) {
        let Shape { vectors, dim, .. } = self.shape;
        let Scratch { transposed, products } = self.scratch;
        let samples = self.features.chunks_exact(self.shape.features());
        for (features, out) in samples.zip(self.out.chunks_exact_mut(self.shape.outputs())) {
            for (v, vector) in features.chunks_exact(dim).enumerate() {
                let column = transposed[v..].iter_mut().step_by(vectors);
                column.zip(vector).for_each(|(to, &from)| *to = from);
            }
            let gemm = Gemm {
                out: products,
                out_row: vectors,
                rows: vectors,
                columns: vectors,
                a: Strided { data: features, row: dim, depth: 1 },
                b: transposed,
                b_row: vectors,
                depth: dim,
                start: Start::Zero,
                relu: false,
            };
            gemm.run(simd);
            let (x, mut z) = out.split_at_mut(dim);
            x.copy_from_slice(&features[..dim]);
            for i in 0..vectors {
                let (row, rest) = z.split_at_mut(self.shape.kept(i));
                row.copy_from_slice(&products[i * vectors..][..row.len()]);
                z = rest;
            }
        }
    }
}

struct Backward<'a> {
    shape: Shape,
    features: &'a [f32],
    gradient: View<'a>,
    out: &'a mut [f32],
    scratch: &'a mut Scratch,
}

impl Kernel for Backward<'_> {
    type Out = ();

    #[inline(always)]
    fn run<S: Simd>(self, simd: S) {
        let Shape { vectors, dim, .. } = self.shape;
        let symmetric = &mut self.scratch.products;
        let samples = self.features.chunks_exact(self.shape.features());
        for (n, (features, out)) in samples.zip(self.out.chunks_exact_mut(self.shape.features())).enumerate() {
            let gradient = &self.gradient.data[n * self.gradient.row..][..self.shape.outputs()];
            let (x, mut z) = gradient.split_at(dim);
            for i in 0..vectors {
                let (row, rest) = z.split_at(self.shape.kept(i));
                symmetric[i * vectors + i] = 0.0;
                for (j, &dz) in row.iter().enumerate() {
                    // The diagonal counts twice: z_ii = t_i . t_i.
                    let dz = if i == j { 2.0 * dz } else { dz };
                    symmetric[i * vectors + j] = dz;
                    symmetric[j * vectors + i] = dz;
                }
                z = rest;
            }
            out.fill(0.0);
            out[..dim].copy_from_slice(x);
            let gemm = Gemm {
                out,
                out_row: dim,
                rows: vectors,
                columns: dim,
                a: Strided { data: symmetric, row: vectors, depth: 1 },
                b: features,
                b_row: dim,
                depth: vectors,
                start: Start::Out,
                relu: false,
            };
            gemm.run(simd);
        }
    }
}
