//! Attention over the steps of a time series, as TBSM has it (Ishkhanov et al., arXiv:2008.11922; facebookresearch/tbsm,
//! `TSL_Net` with `tsl_inner = "def"`), and the layers from there to the logit.
//!
//! A sample's steps are vectors z_0 .. z_T of m numbers, outputs of a ReLU; the last is that of the item in question. With a
//! matrix A, a multilayer perceptron of T inputs and T outputs, and σ the logistic function:
//!
//! | what                                | is                                          | its gradient                        |
//! |-------------------------------------|---------------------------------------------|-------------------------------------|
//! | steps on the sphere                 | v_t = z_t / max(‖z_t‖, 10⁻¹²); 0 where the step is not there | dz_t = (dv_t - v_t (v_t · dv_t)) / ‖z_t‖ |
//! | the last one, in the inner product  | u = A v_T, x = Aᵀ u                         | du = A dx, dA = du v_Tᵀ + u dxᵀ, dv_T = Aᵀ du + dw |
//! | how like each step is to it         | a_t = v_t · x for t < T                     | dx = Σ da_t v_t                     |
//! | how much each step counts           | y = σ(MLP(a))                               | dMLP_t = (dc · v_t) y_t (1 - y_t)   |
//! | the series                          | c = Σ y_t v_t                               | dv_t = y_t dc + da_t x              |
//! | the logit                           | MLP([c, v_T])                               | [dc, dw]                            |
//!
//! Of a sample, vectors are kept with a lane for each step, so that sums over their numbers go from number to number, each
//! lane on its own, and sums over steps go from step to step in lanes of numbers: in both the order is that of the scalar
//! definition, however wide vectors are.
//!

use super::flow::{Backward, Flow};
use super::{InputGradient, Linear, Mlp};
use crate::base::Result;
use crate::base::config::ModelConfig;
use crate::machine::team::Team;
use crate::math::brgemm::{Panels, Row, Scratch, WIDTH, export_rows, import_rows};
use crate::math::{Part, STEPS as LANES, Share, exp_of_negative};
use crate::memory::{Arena, Buffer, Supply};
use crate::optim::Kept;
use crate::simd::{Kernel, Simd};
use crate::sync::{Grid, GridPart};

/// Shorter vectors than this are divided by it, as PyTorch's `normalize` does.
const SHORTEST: f32 = 1e-12;

/// Attention with what a part of a minibatch leaves in it.
#[derive(Debug)]
pub struct Attention {
    sizes: Sizes,
    /// A.
    matrix: [Linear; 1],
    mlp: Mlp,
    head: Mlp,
    /// v_T, u, x, and the gradients of the three.
    flows: [Flow; 6],
    /// Of both uses of A, what it was multiplied with and the gradient of the result: two rows a sample.
    uses: [Flow; 2],
    /// Of each sample, as [`Sizes`] says.
    kept: Buffer<f32>,
    scratch: Scratch,
}

/// What is kept of a sample: v, a row for each number with a lane for each step; 1 / ‖z_t‖, or 0 where a step is not there; y_t.
#[derive(Debug, Clone, Copy)]
struct Sizes {
    /// T + 1.
    steps: usize,
    /// m.
    numbers: usize,
}

impl Sizes {
    /// Lanes for steps.
    const fn lanes(self) -> usize {
        self.steps.next_multiple_of(LANES)
    }

    /// Rows of v.
    const fn rows(self) -> usize {
        self.numbers.next_multiple_of(LANES)
    }

    const fn kept(self) -> usize {
        (self.rows() + 2) * self.lanes()
    }

    /// v, the scales and the weights of a sample.
    fn split(self, kept: &[f32]) -> [&[f32]; 3] {
        let (v, rest) = kept.split_at(self.rows() * self.lanes());
        let (scale, y) = rest.split_at(self.lanes());
        [v, scale, y]
    }
}

impl Attention {
    /// Of vectors of `numbers` numbers, all weights 0, with room for parts of `samples`.
    ///
    /// # Errors
    /// When the supply is exhausted.
    ///
    /// # Panics
    /// When layers are kept in halves.
    pub fn new(
        config: &ModelConfig,
        numbers: usize,
        samples: usize,
        kept: Kept,
        supply: &mut Supply<'_>,
    ) -> Result<Self> {
        assert!(!kept.precision.is_split(), "attention is in 32-bit floats");
        let sizes = Sizes { steps: config.steps(), numbers };
        let (history, needed) = (config.ts_length, InputGradient::Needed);
        let mlp = [&[history], &config.tsl_mlp[..], &[history]].concat();
        let head = [&[2 * numbers], &config.arch_mlp[..]].concat();
        let matrix = [Linear::without_biases(numbers, numbers, kept, supply)?];
        let mut flow = |name: &str, rows: usize| Flow::supplied(name, rows, numbers, false, supply);
        let learning = if kept.optimizer.moves() { samples } else { 0 };
        let flows = [
            flow("last steps", samples)?,
            flow("last steps through the matrix", samples)?,
            flow("last steps in the inner product", samples)?,
            flow("gradient of last steps", learning)?,
            flow("gradient of last steps through the matrix", learning)?,
            flow("gradient of last steps in the inner product", learning)?,
        ];
        let uses = [flow("inputs of the matrix", 2 * learning)?, flow("gradients of its outputs", 2 * learning)?];
        Ok(Self {
            sizes,
            matrix,
            mlp: Mlp::new(&mlp, samples, needed, kept, supply)?,
            head: Mlp::new(&head, samples, needed, kept, supply)?,
            flows,
            uses,
            kept: supply.buffer("steps on the sphere", samples * sizes.kept())?,
            scratch: Scratch::default(),
        })
    }

    /// Takes all planned buffers from the arena.
    pub fn settle(&mut self, arena: &mut Arena) {
        self.matrix[0].settle(arena);
        self.mlp.settle(arena);
        self.head.settle(arena);
        self.flows.iter_mut().chain(&mut self.uses).for_each(|flow| flow.settle(arena));
        self.kept.settle(arena);
    }

    /// As [`Mlp::plan_sums`].
    ///
    /// # Errors
    /// When the supply is exhausted.
    pub fn plan_sums(&mut self, share: &Share, supply: &mut Supply<'_>) -> Result<()> {
        self.matrix[0].plan_sums(share.sum.depth, supply)?;
        self.mlp.plan_sums(share, supply)?;
        self.head.plan_sums(share, supply)
    }

    /// A, the layers of attention, and those behind it.
    #[must_use]
    pub fn chains(&self) -> [&[Linear]; 3] {
        [&self.matrix, self.mlp.layers(), self.head.layers()]
    }

    /// As [`Attention::chains`], to be changed.
    pub fn chains_mut(&mut self) -> [&mut [Linear]; 3] {
        [&mut self.matrix, self.mlp.layers_mut(), self.head.layers_mut()]
    }

    /// Writes the logits of samples whose steps are `z`, those of each sample one behind the other; `there` says which are, 1 or 0.
    ///
    /// # Panics
    /// When `z` has other columns or `there` too few elements.
    pub fn forward(&mut self, team: &Team, z: &Panels<f32>, there: &[f32], logits: &mut [f32]) {
        let Self { sizes, matrix: [matrix], mlp, head, flows: [w, u, x, ..], kept, scratch, .. } = self;
        let (sizes, samples, isa) = (*sizes, logits.len(), team.isa());
        assert!(z.columns() == sizes.numbers && z.rows() >= samples * sizes.steps, "{z:?} are steps");
        let parts = (state(team, samples, sizes, kept), rows_of(team, samples, w.whole_mut()));
        team.share(parts, |(kept, w)| isa.run(Normalise { sizes, z, there, kept, w }));
        matrix.forward(team, samples, w, u, false);
        matrix.backward_data(team, samples, u, x, Backward::Keep, scratch);
        let (x, state_of) = (x.whole(), &kept[..]);
        team.share(rows_of(team, samples, mlp.input_mut()), |a| isa.run(Like { sizes, kept: state_of, x, a }));
        mlp.forward(team, samples, false);
        let (weights, w) = (mlp.output(), w.whole());
        let parts = (state(team, samples, sizes, kept), rows_of(team, samples, head.input_mut()));
        team.share(parts, |(kept, out)| isa.run(Context { sizes, z, weights, w, kept, out }));
        head.forward(team, samples, false);
        export_rows(team, head.output(), logits, 1);
    }

    /// Back from the gradient of the logits of a part, that of the last forward pass, to that of its steps before their ReLU;
    /// `z` are the same. `done` gets each layer, as [`Mlp::backward`] has it, with its number of those in
    /// [`Attention::chains`].
    pub fn backward(
        &mut self,
        team: &Team,
        part: &Part<'_>,
        z: &Panels<f32>,
        gradient: &[f32],
        to: &mut Panels<f32>,
        mut done: impl FnMut(usize, &mut Linear),
    ) {
        let Self { sizes, matrix: [matrix], mlp, head, flows: [w, u, x, dw, du, dx], uses, kept, scratch } = self;
        let (sizes, samples, isa, kept) = (*sizes, part.len(), team.isa(), &kept[..]);
        import_rows(team, samples, gradient, 1, head.output_and_gradient().1);
        let before = 1 + mlp.layers().len();
        head.backward(team, part, |index, layer| done(before + index, layer));
        let ends = head.input_gradient();
        let dweights = rows_of(team, samples, mlp.output_and_gradient().1);
        team.share(dweights, |to| isa.run(BackContext { sizes, kept, ends, to }));
        mlp.backward(team, part, |index, layer| done(1 + index, layer));
        let da = mlp.input_gradient();
        team.share(rows_of(team, samples, dx.whole_mut()), |to| isa.run(BackLike { sizes, kept, z, da, to }));
        matrix.forward(team, samples, dx, du, false);
        matrix.backward_data(team, samples, du, dw, Backward::Keep, scratch);
        let [inputs, outputs] = uses;
        pair(team, samples, [w.whole(), dx.whole()], inputs.whole_mut());
        pair(team, samples, [du.whole(), u.whole()], outputs.whole_mut());
        matrix.backward_weights(team, &part.with_rows(2), [inputs, outputs], None);
        if part.is_last {
            done(0, matrix);
        }
        let (x, dw) = (x.whole(), dw.whole());
        let shape = [to.panels(), samples * sizes.steps, to.stride()];
        let grid = Grid::new(to.cells_mut(), shape, [1, team.pieces()], sizes.steps);
        team.share(grid, |to| isa.run(BackNormalise { sizes, kept, ends, dw, x, da, to }));
    }
}

/// Rows of a matrix, one a sample, in pieces.
fn rows_of<'a>(team: &Team, samples: usize, panels: &'a mut Panels<f32>) -> Grid<'a, Row<f32>> {
    let sizes = [panels.panels(), samples, panels.stride()];
    Grid::new(panels.cells_mut(), sizes, [1, team.pieces()], 1)
}

/// What is kept of samples, in the same pieces.
fn state<'a>(team: &Team, samples: usize, sizes: Sizes, kept: &'a mut [f32]) -> Grid<'a, f32> {
    let whole = samples * sizes.kept();
    Grid::new(kept, [1, whole, whole], [1, team.pieces()], sizes.kept())
}

/// Puts rows of two matrices in turn.
fn pair(team: &Team, samples: usize, from: [&Panels<f32>; 2], to: &mut Panels<f32>) {
    let sizes = [to.panels(), 2 * samples, to.stride()];
    team.share(Grid::new(to.cells_mut(), sizes, [1, team.pieces()], 2), |mut to| {
        let rows = to.rows();
        for panel in to.panels() {
            for (row, to) in rows.clone().zip(to.panel(panel)) {
                *to = from[row % 2].panel(panel)[row / 2];
            }
        }
    });
}

/// A row of panels.
#[derive(Clone, Copy)]
struct InRow<'a> {
    /// From the row in the first panel on.
    cells: &'a [Row<f32>],
    /// Rows from panel to panel.
    stride: usize,
}

impl<'a> InRow<'a> {
    #[inline(always)]
    fn of(panels: &'a Panels<f32>, row: usize) -> Self {
        Self { cells: &panels.cells()[row..], stride: panels.stride() }
    }

    /// Element `k`.
    #[inline(always)]
    fn at(self, k: usize) -> f32 {
        self.cells[k / WIDTH * self.stride][k % WIDTH]
    }

    /// Those of a panel.
    #[inline(always)]
    fn panel(self, panel: usize) -> &'a Row<f32> {
        &self.cells[panel * self.stride]
    }
}

/// Sums over the numbers of v, by lanes of steps from `lane` on: of `factors` times v.
#[inline(always)]
fn over_numbers<S: Simd>(simd: S, sizes: Sizes, v: &[f32], lane: usize, factors: InRow<'_>) -> S::V {
    let mut sum = simd.splat(0.0);
    for (k, row) in v.chunks_exact(sizes.lanes()).take(sizes.numbers).enumerate() {
        sum = simd.mul_add(simd.splat(factors.at(k)), simd.load(&row[lane..]), sum);
    }
    sum
}

/// Adds, by numbers from `first` on, the sum over some steps of their two factors times z, whose rows these are.
#[inline(always)]
fn over_steps<S: Simd>(simd: S, z: &[Row<f32>], first: usize, factors: [&[f32]; 2], sums: &mut [f32; LANES]) {
    for at in (0..LANES).step_by(S::LANES) {
        let mut sum = simd.load(&sums[at..]);
        for ((row, a), b) in z.iter().zip(factors[0]).zip(factors[1]) {
            sum = simd.mul_add(simd.splat(a * b), simd.load(&row[first % WIDTH + at..]), sum);
        }
        simd.store(sum, &mut sums[at..]);
    }
}

/// Writes some lanes of a row of panels from column `first` on, those before column `end`.
#[inline(always)]
fn put(to: &mut GridPart<'_, Row<f32>>, row: usize, first: usize, end: usize, lanes: &[f32]) {
    let count = lanes.len().min(end.saturating_sub(first));
    if count > 0 && first / WIDTH == (first + count - 1) / WIDTH {
        to.panel(first / WIDTH)[row][first % WIDTH..][..count].copy_from_slice(&lanes[..count]);
        return;
    }
    for (&lane, column) in lanes.iter().zip(first..end) {
        to.panel(column / WIDTH)[row][column % WIDTH] = lane;
    }
}

/// v, the scales, and v_T.
struct Normalise<'a> {
    sizes: Sizes,
    z: &'a Panels<f32>,
    there: &'a [f32],
    kept: GridPart<'a, f32>,
    w: GridPart<'a, Row<f32>>,
}

impl Kernel for Normalise<'_> {
    type Out = ();

    #[inline(always)]
    fn run<S: Simd>(mut self, simd: S) {
        let sizes = self.sizes;
        let (steps, lanes) = (sizes.steps, sizes.lanes());
        for (index, sample) in self.w.rows().enumerate() {
            let kept = &mut self.kept.panel(0)[index * sizes.kept()..][..sizes.kept()];
            let (v, rest) = kept.split_at_mut(sizes.rows() * lanes);
            for first in (0..sizes.numbers).step_by(LANES) {
                let rows = &self.z.panel(first / WIDTH)[sample * steps..][..steps];
                for (at, rows) in rows.chunks(LANES).enumerate() {
                    let to = &mut v[first * lanes + at * LANES..];
                    match rows.len() {
                        LANES => simd.transpose(&rows.as_flattened()[first % WIDTH..], WIDTH, to, lanes),
                        _ => {
                            let mut block = [[0.0; LANES]; LANES];
                            let from = rows.iter().map(|row| &row[first % WIDTH..][..LANES]);
                            block.iter_mut().zip(from).for_each(|(to, from)| to.copy_from_slice(from));
                            simd.transpose(block.as_flattened(), LANES, to, lanes);
                        }
                    }
                }
            }
            let scale = &mut rest[..lanes];
            for lane in (0..lanes).step_by(S::LANES) {
                let mut squares = simd.splat(0.0);
                for row in v.chunks_exact(lanes).take(sizes.numbers) {
                    let z = simd.load(&row[lane..]);
                    squares = simd.mul_add(z, z, squares);
                }
                simd.store(simd.sqrt(squares), &mut scale[lane..]);
            }
            let there = &self.there[sample * steps..][..steps];
            scale[steps..].fill(0.0);
            scale.iter_mut().zip(there).for_each(|(norm, there)| *norm = there / norm.max(SHORTEST));
            for row in v.chunks_exact_mut(lanes).take(sizes.numbers) {
                for lane in (0..lanes).step_by(S::LANES) {
                    let scaled = simd.mul(simd.load(&row[lane..]), simd.load(&scale[lane..]));
                    simd.store(scaled, &mut row[lane..]);
                }
            }
            for k in 0..sizes.numbers {
                self.w.panel(k / WIDTH)[index][k % WIDTH] = v[k * lanes + steps - 1];
            }
        }
    }
}

/// a.
struct Like<'a> {
    sizes: Sizes,
    kept: &'a [f32],
    x: &'a Panels<f32>,
    a: GridPart<'a, Row<f32>>,
}

impl Kernel for Like<'_> {
    type Out = ();

    #[inline(always)]
    fn run<S: Simd>(mut self, simd: S) {
        let sizes = self.sizes;
        for (index, sample) in self.a.rows().enumerate() {
            let [v, ..] = sizes.split(&self.kept[sample * sizes.kept()..][..sizes.kept()]);
            for lane in (0..sizes.steps - 1).step_by(S::LANES) {
                let mut sums = [0.0; LANES];
                simd.store(over_numbers(simd, sizes, v, lane, InRow::of(self.x, sample)), &mut sums);
                put(&mut self.a, index, lane, sizes.steps - 1, &sums[..S::LANES]);
            }
        }
    }
}

/// y and [c, v_T].
struct Context<'a> {
    sizes: Sizes,
    z: &'a Panels<f32>,
    /// What the weights are the logistic function of.
    weights: &'a Panels<f32>,
    w: &'a Panels<f32>,
    kept: GridPart<'a, f32>,
    out: GridPart<'a, Row<f32>>,
}

impl Kernel for Context<'_> {
    type Out = ();

    #[inline(always)]
    fn run<S: Simd>(mut self, simd: S) {
        let sizes = self.sizes;
        let (history, lanes, m) = (sizes.steps - 1, sizes.lanes(), sizes.numbers);
        for (index, sample) in self.out.rows().enumerate() {
            let kept = &mut self.kept.panel(0)[index * sizes.kept()..][..sizes.kept()];
            let (scale, y) = kept[sizes.rows() * lanes..].split_at_mut(lanes);
            for (panel, y) in y.chunks_mut(WIDTH).enumerate() {
                let here = WIDTH.min(history.saturating_sub(panel * WIDTH));
                y[here..].fill(0.0);
                if here > 0 {
                    y[..here].iter_mut().zip(&self.weights.panel(panel)[sample]).for_each(|(y, &at)| *y = logistic(at));
                }
            }
            let w = InRow::of(self.w, sample);
            for first in (0..m).step_by(LANES) {
                let (mut sums, mut own) = ([0.0; LANES], [0.0; LANES]);
                let rows = &self.z.panel(first / WIDTH)[sample * sizes.steps..][..history];
                over_steps(simd, rows, first, [y, scale], &mut sums);
                put(&mut self.out, index, first, m, &sums);
                own.copy_from_slice(&w.panel(first / WIDTH)[first % WIDTH..][..LANES]);
                put(&mut self.out, index, m + first, 2 * m, &own);
            }
        }
    }
}

/// 1 / (1 + exp(-x)), rounded once.
#[inline(always)]
fn logistic(x: f32) -> f32 {
    let x = f64::from(x);
    let e = exp_of_negative(-x.abs());
    ((if x < 0.0 { e } else { 1.0 }) / (1.0 + e)) as f32
}

/// The gradient of what y is the logistic function of.
struct BackContext<'a> {
    sizes: Sizes,
    kept: &'a [f32],
    /// [dc, dw].
    ends: &'a Panels<f32>,
    to: GridPart<'a, Row<f32>>,
}

impl Kernel for BackContext<'_> {
    type Out = ();

    #[inline(always)]
    fn run<S: Simd>(mut self, simd: S) {
        let sizes = self.sizes;
        for (index, sample) in self.to.rows().enumerate() {
            let [v, _, y] = sizes.split(&self.kept[sample * sizes.kept()..][..sizes.kept()]);
            for lane in (0..sizes.steps - 1).step_by(S::LANES) {
                let mut sums = [0.0; LANES];
                simd.store(over_numbers(simd, sizes, v, lane, InRow::of(self.ends, sample)), &mut sums);
                sums[..S::LANES].iter_mut().zip(&y[lane..]).for_each(|(sum, y)| *sum *= y * (1.0 - y));
                put(&mut self.to, index, lane, sizes.steps - 1, &sums[..S::LANES]);
            }
        }
    }
}

/// dx.
struct BackLike<'a> {
    sizes: Sizes,
    kept: &'a [f32],
    z: &'a Panels<f32>,
    da: &'a Panels<f32>,
    to: GridPart<'a, Row<f32>>,
}

impl Kernel for BackLike<'_> {
    type Out = ();

    #[inline(always)]
    fn run<S: Simd>(mut self, simd: S) {
        let sizes = self.sizes;
        for (index, sample) in self.to.rows().enumerate() {
            let [_, scale, _] = sizes.split(&self.kept[sample * sizes.kept()..][..sizes.kept()]);
            let da = InRow::of(self.da, sample);
            for first in (0..sizes.numbers).step_by(LANES) {
                let mut sums = [0.0; LANES];
                let rows = &self.z.panel(first / WIDTH)[sample * sizes.steps..][..sizes.steps - 1];
                for (panel, (rows, scale)) in rows.chunks(WIDTH).zip(scale.chunks(WIDTH)).enumerate() {
                    over_steps(simd, rows, first, [da.panel(panel), scale], &mut sums);
                }
                put(&mut self.to, index, first, sizes.numbers, &sums);
            }
        }
    }
}

/// dz.
struct BackNormalise<'a> {
    sizes: Sizes,
    kept: &'a [f32],
    /// [dc, dw].
    ends: &'a Panels<f32>,
    /// The rest of dw.
    dw: &'a Panels<f32>,
    x: &'a Panels<f32>,
    da: &'a Panels<f32>,
    to: GridPart<'a, Row<f32>>,
}

impl Kernel for BackNormalise<'_> {
    type Out = ();

    #[inline(always)]
    fn run<S: Simd>(mut self, simd: S) {
        let sizes = self.sizes;
        let (lanes, last) = (sizes.lanes(), sizes.steps - 1);
        let rows = self.to.rows();
        for (index, sample) in (rows.start / sizes.steps..rows.end / sizes.steps).enumerate() {
            let [v, scale, y] = sizes.split(&self.kept[sample * sizes.kept()..][..sizes.kept()]);
            let (ends, da) = (InRow::of(self.ends, sample), InRow::of(self.da, sample));
            for at in (0..sizes.steps).step_by(LANES) {
                let steps = LANES.min(sizes.steps - at);
                let mut dv = Gradient {
                    of_c: ends,
                    of_w: [InRow::of(self.dw, sample), ends],
                    x: InRow::of(self.x, sample),
                    numbers: sizes.numbers,
                    y: &y[at..],
                    da: [0.0; LANES],
                    last: [0.0; LANES],
                };
                for (lane, t) in (at..at + steps).enumerate() {
                    if t < last {
                        dv.da[lane] = da.at(t);
                    } else {
                        dv.last[lane] = 1.0;
                    }
                }
                let mut along = [0.0; LANES];
                for lane in (0..LANES).step_by(S::LANES) {
                    let mut sum = simd.splat(0.0);
                    for k in 0..sizes.numbers {
                        sum = simd.mul_add(dv.at(simd, k, lane), simd.load(&v[k * lanes + at + lane..]), sum);
                    }
                    simd.store(sum, &mut along[lane..]);
                }
                for first in (0..sizes.numbers).step_by(LANES) {
                    let (mut block, mut turned) = ([[0.0; LANES]; LANES], [[0.0; LANES]; LANES]);
                    for (k, row) in (first..sizes.numbers).zip(&mut block) {
                        for lane in (0..LANES).step_by(S::LANES) {
                            let v = simd.load(&v[k * lanes + at + lane..]);
                            let minus = simd.mul(simd.splat(-1.0), simd.load(&along[lane..]));
                            let across = simd.mul_add(v, minus, dv.at(simd, k, lane));
                            let dz = simd.gate(simd.mul(across, simd.load(&scale[at + lane..])), v);
                            simd.store(dz, &mut row[lane..]);
                        }
                    }
                    simd.transpose(block.as_flattened(), LANES, turned.as_flattened_mut(), LANES);
                    let to = &mut self.to.panel(first / WIDTH)[index * sizes.steps + at..][..steps];
                    for (to, from) in to.iter_mut().zip(&turned) {
                        to[first % WIDTH..][..LANES].copy_from_slice(from);
                    }
                }
            }
        }
    }
}

/// The gradient of v, of some steps.
struct Gradient<'a> {
    /// dc.
    of_c: InRow<'a>,
    /// The two terms of dw, the second of which has its numbers behind dc's.
    of_w: [InRow<'a>; 2],
    x: InRow<'a>,
    numbers: usize,
    /// Of each lane's step y, da (0 of the last one), and 1 where it is the last.
    y: &'a [f32],
    da: [f32; LANES],
    last: [f32; LANES],
}

impl Gradient<'_> {
    /// Of number `k`, by lanes from `lane` on.
    #[inline(always)]
    fn at<S: Simd>(&self, simd: S, k: usize, lane: usize) -> S::V {
        let of_last = simd.splat(self.of_w[0].at(k) + self.of_w[1].at(self.numbers + k));
        let of_last = simd.mul(of_last, simd.load(&self.last[lane..]));
        let of_x = simd.mul_add(simd.splat(self.x.at(k)), simd.load(&self.da[lane..]), of_last);
        simd.mul_add(simd.splat(self.of_c.at(k)), simd.load(&self.y[lane..]), of_x)
    }
}
