//! The cross network of DCNv2 (Wang et al., arXiv:2008.13535) in low rank, as TorchRec and MLPerf have it.
//!
//! With x_0 the vectors of a sample side by side ([`Concat`]), layer l of L computes x_{l+1} = x_0 ⊙ h_l + x_l with
//! h_l = W_l u_l + b_l and u_l = V_l x_l: V to few numbers, W back to many. With g_l the gradient of x_l, backward:
//!
//! | gradient of | is                                  |
//! |-------------|-------------------------------------|
//! | h_l         | g_{l+1} ⊙ x_0                       |
//! | u_l         | W_lᵀ of it                          |
//! | x_l         | g_l = V_lᵀ of that + g_{l+1}        |
//! | x_0         | g_0 + the sum of g_{l+1} ⊙ h_l      |
//!
//! The products with V and W are those of [`Linear`] layers. What goes round a layer is added where the layer's own
//! sums end; the element-wise rest is one pass over a layer's numbers forward and one backward, a fused multiply-add
//! each.
//!
//! Layers of split weights multiply bfloat16: x_l, u_l and h_l are rounded to it, and so are the gradients of h_l and
//! u_l. Gradients of x_l stay in 32 bits from end to end, and so does x_L, which leaves.

use super::flow::{Backward, Flow, MIXED};
use super::{Concat, Features, FeaturesMut, Linear};
use crate::base::Result;
use crate::machine::team::Team;
use crate::math::Part;
use crate::math::brgemm::{Cell, Panels, Row, WIDTH};
use crate::memory::Supply;
use crate::optim::ParamState;
use crate::simd::{Kernel, Simd};
use crate::sync::GridPart;

/// Cross layers with what a part of a minibatch leaves in them.
#[derive(Debug)]
pub struct Cross {
    concat: Concat,
    /// V and W of each layer in turn.
    layers: Vec<Linear>,
    levels: Vec<Level>,
    /// The sum of g_{l+1} ⊙ h_l; after the last, with g_1.
    x0_gradient: Flow,
    /// g_l, in turn.
    x_gradients: [Flow; 2],
    h_gradient: Flow,
    u_gradient: Flow,
    /// Where layers multiply bfloat16: room for x_l or the gradient of h_l and for u_l or its gradient, in pairs of
    /// samples.
    pairs: Option<[Panels<u32>; 2]>,
}

/// What a layer's forward pass leaves for its backward pass, samples x numbers.
#[derive(Debug)]
struct Level {
    x: Flow,
    u: Flow,
    h: Flow,
}

impl Cross {
    /// `[layers, rank]` layers, which have as many numbers between V and W, on the concatenation of a sample's vectors,
    /// all weights 0, with room for parts of `samples` samples.
    ///
    /// # Errors
    /// When the supply is exhausted.
    ///
    /// # Panics
    /// When there are no layers.
    pub fn new(
        concat: Concat,
        [layers, rank]: [usize; 2],
        samples: usize,
        kept: ParamState,
        supply: &mut Supply<'_>,
    ) -> Result<Self> {
        assert!(layers > 0, "a cross network has layers");
        let (width, half) = (concat.outputs(), kept.precision.is_split());
        let mut matrices = Vec::with_capacity(2 * layers);
        for _ in 0..layers {
            matrices.push(Linear::without_biases(width, rank, kept, supply)?);
            matrices.push(Linear::new(rank, width, kept, supply)?);
        }
        let mut flow = |name: &str, width: usize, half: bool| Flow::supplied(name, samples, width, half, supply);
        let levels = (0..layers).map(|_| {
            let [x, h] = ["crossed features", "what they are multiplied by"].map(|name| flow(name, width, half));
            Ok(Level { x: x?, h: h?, u: flow("projected features", rank, half)? })
        });
        Ok(Self {
            levels: levels.collect::<Result<_>>()?,
            x0_gradient: flow("gradient of features as factors", width, false)?,
            x_gradients: [
                flow("gradient of crossed features", width, false)?,
                flow("gradient of crossed features", width, false)?,
            ],
            h_gradient: flow("gradient of factors", width, half)?,
            u_gradient: flow("gradient of projected features", rank, half)?,
            pairs: match half {
                true => Some([
                    Panels::supplied("crossed features in pairs", samples.div_ceil(2), width, supply)?,
                    Panels::supplied("projected features in pairs", samples.div_ceil(2), rank, supply)?,
                ]),
                false => None,
            },
            concat,
            layers: matrices,
        })
    }

    /// V and W of each layer in turn, first to last.
    #[must_use]
    pub fn layers(&self) -> &[Linear] {
        &self.layers
    }

    /// As [`Cross::layers`], to be overwritten.
    pub fn layers_mut(&mut self) -> &mut [Linear] {
        &mut self.layers
    }

    /// Columns of the result: as many as the features have.
    #[must_use]
    pub const fn outputs(&self) -> usize {
        self.concat.outputs()
    }

    /// Writes x_L of the first `samples` samples to the rows of `out`, samples x [`Cross::outputs`].
    ///
    /// # Panics
    /// When a matrix has another shape than the interaction or too few rows.
    pub fn forward(&mut self, team: &Team, samples: usize, from: Features<'_, f32>, out: &mut Panels<f32>) {
        let Self { concat, layers, levels, .. } = self;
        match &mut levels[0].x {
            Flow::Whole(x) => concat.forward(team, samples, from, x),
            Flow::Half(x) => concat.forward(team, samples, from, x),
        }
        for (index, layer) in layers.chunks_exact(2).enumerate() {
            let (here, next) = levels.split_at_mut(index + 1);
            let level = &mut here[index];
            layer[0].forward(team, samples, &level.x, &mut level.u, false);
            layer[1].forward(team, samples, &level.u, &mut level.h, false);
            let next = next.first_mut().map(|next| &mut next.x);
            match ([&here[0].x, &here[index].h, &here[index].x], next) {
                ([Flow::Whole(x0), Flow::Whole(h), Flow::Whole(x)], next) => {
                    advance(team, samples, [x0, h, x], next.map_or(&mut *out, Flow::whole_mut));
                }
                ([Flow::Half(x0), Flow::Half(h), Flow::Half(x)], Some(Flow::Half(next))) => {
                    advance(team, samples, [x0, h, x], next);
                }
                ([Flow::Half(x0), Flow::Half(h), Flow::Half(x)], None) => advance(team, samples, [x0, h, x], out),
                _ => unreachable!("{MIXED}"),
            }
        }
    }

    /// Replaces the features of the samples of a part, that of the last forward pass, by their gradient, given
    /// `gradient` with respect to x_L; what goes to x becomes 0 where x, a ReLU's output, is. With the last part,
    /// `done` gets each of [`Cross::layers`], last to first, as soon as the gradients of its weights are complete:
    /// until the next forward pass nothing else needs it.
    ///
    /// # Panics
    /// As [`Cross::forward`].
    pub fn backward(
        &mut self,
        team: &Team,
        part: &Part<'_>,
        gradient: &Panels<f32>,
        features: FeaturesMut<'_, f32>,
        mut done: impl FnMut(usize, &mut Linear),
    ) {
        let Self { layers, levels, x0_gradient, x_gradients, h_gradient, u_gradient, pairs, .. } = self;
        let (count, samples) = (levels.len(), part.len());
        for (index, layer) in layers.chunks_exact_mut(2).enumerate().rev() {
            let [first, second] = &mut *x_gradients;
            let (below, above) = if index % 2 == 0 { (first, &*second) } else { (second, &*first) };
            let above = if index + 1 == count { gradient } else { above.whole() };
            let Level { x, u, h } = &levels[index];
            let ends = [index + 1 == count, index == 0];
            let sum = x0_gradient.whole_mut();
            match ([&levels[0].x, h], &mut *h_gradient) {
                ([Flow::Whole(x0), Flow::Whole(h)], Flow::Whole(to)) => {
                    retreat(team, samples, (above, [x0, h]), ends, (to, sum));
                }
                ([Flow::Half(x0), Flow::Half(h)], Flow::Half(to)) => {
                    retreat(team, samples, (above, [x0, h]), ends, (to, sum));
                }
                _ => unreachable!("{MIXED}"),
            }
            let [v, w] = layer else { unreachable!("a layer is V and W") };
            // Pairs are in the order of the operands: u, then the gradient of h; x, then the gradient of u.
            w.backward_data(team, samples, h_gradient, u_gradient, Backward::Keep);
            pairs.iter_mut().for_each(|pairs| pairs.reverse());
            w.backward_weights(team, part, [u, h_gradient], pairs.as_mut());
            if part.is_last {
                done(2 * index + 1, w);
            }
            let round = if index == 0 { x0_gradient.whole() } else { above };
            v.backward_data(team, samples, u_gradient, below, Backward::Add(round));
            pairs.iter_mut().for_each(|pairs| pairs.reverse());
            v.backward_weights(team, part, [x, u_gradient], pairs.as_mut());
            if part.is_last {
                done(2 * index, v);
            }
        }
        self.concat.backward(team, samples, self.x_gradients[0].whole(), features);
    }
}

/// Panics unless all of these have `samples` rows and the columns of the result.
fn check<C: Cell, D: Cell>(samples: usize, from: &[&Panels<C>], to: &Panels<D>) {
    let fits = |rows: usize, columns: usize| rows >= samples && columns == to.columns();
    assert!(
        fits(to.rows(), to.columns()) && from.iter().all(|from| fits(from.rows(), from.columns())),
        "{from:?}, {to:?}"
    );
}

/// x_{l+1} = x_0 ⊙ h_l + x_l for the first `samples` rows, from `[x_0, h_l, x_l]`.
fn advance<C: Cell, D: Cell>(team: &Team, samples: usize, from: [&Panels<C>; 3], next: &mut Panels<D>) {
    check(samples, &from, next);
    let isa = team.isa();
    team.share(next.grid(samples, team.pieces(), 1), |next| isa.run(Advance { from, next }));
}

struct Advance<'a, C, D> {
    from: [&'a Panels<C>; 3],
    next: GridPart<'a, Row<D>>,
}

impl<C: Cell, D: Cell> Kernel for Advance<'_, C, D> {
    type Out = ();
    const BF16: bool = size_of::<C>() < size_of::<f32>() || size_of::<D>() < size_of::<f32>();

    #[inline(always)]
    fn run<S: Simd>(mut self, simd: S) {
        let rows = self.next.rows();
        for panel in self.next.panels() {
            let [x0, h, x] = self.from.map(|from| &from.panel(panel)[rows.clone()]);
            for (((next, x0), h), x) in self.next.panel(panel).iter_mut().zip(x0).zip(h).zip(x) {
                // Padding is 0 and stays so.
                for at in (0..WIDTH).step_by(S::LANES) {
                    let (x0, h) = (C::load(simd, &x0[at..]), C::load(simd, &h[at..]));
                    let sum = simd.mul_add(x0, h, C::load(simd, &x[at..]));
                    D::store(simd, sum, &mut next[at..]);
                }
            }
        }
    }
}

/// What the way back through a layer begins with, for the first `samples` rows, from g_{l+1} and `[x_0, h_l]`: the
/// gradient of h_l, and the sum of g_{l+1} ⊙ h_l, which the last layer begins and to which the first adds g_1; `last`
/// and `first` say whether it is one of them.
fn retreat<C: Cell>(
    team: &Team,
    samples: usize,
    (above, from): (&Panels<f32>, [&Panels<C>; 2]),
    [last, first]: [bool; 2],
    (h_gradient, sum): (&mut Panels<C>, &mut Panels<f32>),
) {
    check(samples, &from, h_gradient);
    check(samples, &[above], sum);
    check(samples, &[&*h_gradient], sum);
    let (isa, pieces) = (team.isa(), team.pieces());
    let grids = (h_gradient.grid(samples, pieces, 1), sum.grid(samples, pieces, 1));
    team.share(grids, |(h_gradient, sum)| isa.run(Retreat { above, from, last, first, h_gradient, sum }));
}

struct Retreat<'a, C> {
    above: &'a Panels<f32>,
    from: [&'a Panels<C>; 2],
    last: bool,
    first: bool,
    h_gradient: GridPart<'a, Row<C>>,
    sum: GridPart<'a, Row<f32>>,
}

impl<C: Cell> Kernel for Retreat<'_, C> {
    type Out = ();
    const BF16: bool = size_of::<C>() < size_of::<f32>();

    #[inline(always)]
    fn run<S: Simd>(mut self, simd: S) {
        let rows = self.sum.rows();
        for panel in self.sum.panels() {
            let above = &self.above.panel(panel)[rows.clone()];
            let [x0, h] = self.from.map(|from| &from.panel(panel)[rows.clone()]);
            let results = self.h_gradient.panel(panel).iter_mut().zip(self.sum.panel(panel));
            for ((((h_gradient, sum), above), x0), h) in results.zip(above).zip(x0).zip(h) {
                for at in (0..WIDTH).step_by(S::LANES) {
                    let above = simd.load(&above[at..]);
                    let factor = simd.mul(above, C::load(simd, &x0[at..]));
                    C::store(simd, factor, &mut h_gradient[at..]);
                    let before = if self.last { simd.splat(0.0) } else { simd.load(&sum[at..]) };
                    let after = simd.mul_add(above, C::load(simd, &h[at..]), before);
                    simd.store(if self.first { simd.add(after, above) } else { after }, &mut sum[at..]);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::math::random;
    use crate::simd::Isa;
    use crate::simd::bf16::{narrow, widen};

    /// Samples and columns: one of each, tails of a vector and of a panel, several panels.
    const SIZES: [[usize; 2]; 5] = [[1, 1], [5, 13], [29, 64], [14, 130], [67, 191]];

    /// Numbers that a cell can hold, as cells, and as they are.
    trait Held: Cell + PartialEq {
        fn hold(x: f32) -> Self;
        fn value(self) -> f32;
    }

    impl Held for f32 {
        fn hold(x: f32) -> Self {
            x
        }

        fn value(self) -> f32 {
            self
        }
    }

    impl Held for u16 {
        fn hold(x: f32) -> Self {
            narrow(x)
        }

        fn value(self) -> f32 {
            widen(self)
        }
    }

    fn held<C: Held>(len: usize, which: u32) -> Vec<C> {
        random(len, which).into_iter().map(C::hold).collect()
    }

    /// Both passes by their formulas, number by number, against every instruction set and number of threads.
    fn passes_follow_their_formulas<C: Held, D: Held>() {
        for [n, k] in SIZES {
            let [x0, h, x] = [1, 2, 3].map(|which| held::<C>(n * k, which));
            let (above, sum) = (random(n * k, 4), random(n * k, 5));
            // A row more than there are samples.
            let panels = |from: &[C]| {
                let mut panels = Panels::zeroed(n + 1, k);
                panels.import(0..n, from, k);
                panels
            };
            let [px0, ph, px] = [&x0, &h, &x].map(|from| panels(from));
            let whole = |from: &[f32]| Panels::from_rows(from, n, k);
            let next: Vec<D> = (0..n * k).map(|i| D::hold(x0[i].value().mul_add(h[i].value(), x[i].value()))).collect();
            let factors: Vec<C> = (0..n * k).map(|i| C::hold(above[i] * x0[i].value())).collect();
            for (isa, threads) in Isa::every().into_iter().flat_map(|isa| [(isa, 1), (isa, 3)]) {
                let team = Team::with_isa(threads, isa).unwrap();
                let facts = format!("{isa:?} x {threads}, {n} x {k}");
                let mut out = Panels::<D>::zeroed(n + 1, k);
                advance(&team, n, [&px0, &ph, &px], &mut out);
                assert!(out.to_rows()[..n * k] == next, "forward, {facts}");
                assert!(out.to_rows()[n * k..].iter().all(|x| x.value() == 0.0), "the next row, {facts}");
                for (last, first) in [(false, false), (true, false), (false, true), (true, true)] {
                    let mut found = whole(&sum);
                    let mut factor = Panels::<C>::zeroed(n, k);
                    retreat(&team, n, (&whole(&above), [&px0, &ph]), [last, first], (&mut factor, &mut found));
                    let expected = (0..n * k).map(|i| {
                        let sum = above[i].mul_add(h[i].value(), if last { 0.0 } else { sum[i] });
                        if first { sum + above[i] } else { sum }
                    });
                    assert!(factor.to_rows() == factors, "factors, {facts}");
                    assert!(found.to_rows().into_iter().eq(expected), "sums, {facts}, last {last}, first {first}");
                    let cells =
                        |panels: &Panels<f32>| panels.cells().as_flattened().iter().filter(|x| **x != 0.0).count();
                    let rows = found.to_rows().iter().filter(|x| **x != 0.0).count();
                    assert_eq!(cells(&found), rows, "padding stays 0, {facts}");
                }
            }
        }
    }

    #[test]
    fn passes_in_32_bits_follow_their_formulas() {
        passes_follow_their_formulas::<f32, f32>();
    }

    #[test]
    fn passes_in_bfloat16_follow_their_formulas() {
        passes_follow_their_formulas::<u16, u16>();
        passes_follow_their_formulas::<u16, f32>();
    }
}
