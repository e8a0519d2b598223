//! Learned weights of rows against their definition in plain loops, bit for bit: what look-ups pool, and how rows and
//! weights move, on any instruction set, by any number of threads, from any number of sources.

use octorec::base::config::{Pooling, Precision, Update};
use octorec::base::rng::{Random, Stream};
use octorec::data::Bag;
use octorec::embedding::{LookUp, Lookups, Slots, Source, Spec, Table, TableTensor, Updater};
use octorec::machine::team::Team;
use octorec::memory::Supply;
use octorec::optim::{Averages, Optimizer, ParamState, rowwise_rate};
use octorec::simd::Isa;
use octorec::simd::split::shorten;

const RATE: f32 = 0.1;
const ROWS: usize = 37;
const SAMPLES: usize = 50;
const STEPS: usize = 3;

struct Case {
    dim: usize,
    bag: Bag,
    /// Of look-ups; none: all are 1.
    weights: Vec<f32>,
    pooling: Pooling,
    kept: ParamState,
    /// Initial rows and their weights.
    rows: Vec<f32>,
    learned: Vec<f32>,
    /// Of pooled rows.
    gradient: Vec<f32>,
}

fn floats(seed: u64, count: usize) -> Vec<f32> {
    let random = Random::new(seed, Stream::Label);
    (0..count as u64).map(|at| random.uniform(at) as f32 * 2.0 - 1.0).collect()
}

impl Case {
    fn new(dim: usize, weighted: bool, pooling: Pooling, precision: Precision, optimizer: Optimizer) -> Self {
        let random = Random::new(7, Stream::Label);
        let mut bag = Bag { offsets: vec![0], rows: Vec::new() };
        for sample in 0..SAMPLES as u64 {
            // Empty bags, and one row in every second look-up.
            for at in 0..[0, 1, 5, 20][random.below(sample, 4) as usize] {
                let row = random.below(1000 * (sample + 1) + at, 2 * ROWS as u64);
                bag.rows.push(if row < ROWS as u64 { row as u32 } else { 3 });
            }
            bag.close();
        }
        let weights = if weighted { floats(1, bag.rows.len()) } else { Vec::new() };
        let kept = ParamState { precision, optimizer, row_weights: true };
        let keep = |x: f32| if precision == Precision::Bf16Lsb8 { shorten(x) } else { x };
        let rows = floats(2, ROWS * dim).into_iter().map(keep).collect();
        let (learned, gradient) = (floats(3, ROWS), floats(4, SAMPLES * dim));
        Self { dim, bag, weights, pooling, kept, rows, learned, gradient }
    }

    fn table(&self, team: &Team) -> Table {
        let mut table = Table::new("C".to_owned(), ROWS as u64, self.dim, self.kept, &mut Supply::System).unwrap();
        table.reset_optimizer_state(team);
        assert_eq!(table.export(TableTensor::RowWeight, 0..ROWS)[..], [1.0; ROWS], "weights begin with 1");
        table.set_weights(0, &self.rows);
        table.import(TableTensor::RowWeight, 0, &self.learned);
        table
    }

    fn lookups<'a>(&self, of: &'a (Vec<Bag>, Vec<Vec<f32>>)) -> Lookups<'a> {
        if self.weights.is_empty() { Lookups::plain(&of.0) } else { Lookups::new(&of.0, &of.1) }
    }

    /// What a look-up reads of a number.
    fn seen(&self, x: f32) -> f32 {
        if self.kept.precision.is_split() { f32::from_bits(x.to_bits() & 0xffff_0000) } else { x }
    }

    fn part(&self, sample: usize) -> f32 {
        let count = self.bag.offsets[sample + 1] - self.bag.offsets[sample];
        if self.pooling == Pooling::Mean { 1.0 / count as f32 } else { 1.0 }
    }

    fn weight(&self, position: usize) -> f32 {
        self.weights.get(position).copied().unwrap_or(1.0)
    }

    fn positions(&self, sample: usize) -> std::ops::Range<usize> {
        self.bag.offsets[sample] as usize..self.bag.offsets[sample + 1] as usize
    }

    /// A row times its weight is rounded, then it counts by the look-up's.
    fn pooled(&self) -> Vec<f32> {
        let mut out = vec![0.0f32; SAMPLES * self.dim];
        for (sample, out) in out.chunks_mut(self.dim).enumerate() {
            for position in self.positions(sample) {
                let row = self.bag.rows[position] as usize;
                for (e, sum) in out.iter_mut().enumerate() {
                    let times = self.learned[row] * self.seen(self.rows[row * self.dim + e]);
                    *sum = self.weight(position).mul_add(times, *sum);
                }
            }
            if self.positions(sample).count() > 0 {
                out.iter_mut().for_each(|sum| *sum *= self.part(sample));
            }
        }
        out
    }

    /// The sum of a row's gradients, in the order of look-ups; nothing for one without any.
    fn sum(&self, of: usize) -> Option<Vec<f32>> {
        let (mut sum, mut met) = (vec![0.0f32; self.dim], false);
        for sample in 0..SAMPLES {
            for position in self.positions(sample).filter(|at| self.bag.rows[*at] as usize == of) {
                let weight = self.weight(position);
                let factor = if self.pooling == Pooling::Mean { weight * self.part(sample) } else { weight };
                let gradient = &self.gradient[sample * self.dim..][..self.dim];
                sum.iter_mut().zip(gradient).for_each(|(sum, g)| *sum += factor * g);
                met = true;
            }
        }
        met.then_some(sum)
    }

    /// Rows, then their weights with what is kept of them, after three updates at the first one's pace.
    fn expected(&self) -> [Vec<f32>; 2] {
        let (dim, optimizer) = (self.dim, self.kept.optimizer);
        let of_row = optimizer.row_moment().is_some();
        let kept = optimizer.moments().len() + usize::from(of_row);
        let (mut rows, mut weights) = (self.rows.clone(), Vec::new());
        for number in 0..ROWS {
            let begin = vec![optimizer.initial(), 0.0];
            let (mut own, mut moments) = (begin.clone(), vec![begin.clone(); dim]);
            let (mut weight, row) = (self.learned[number], &mut rows[number * dim..][..dim]);
            for _ in 0..STEPS {
                let Some(mut sum) = self.sum(number) else { break };
                let mut lanes = [0.0f32; 16];
                for (e, g) in sum.iter_mut().enumerate() {
                    lanes[e % 16] = self.seen(row[e]).mul_add(*g, lanes[e % 16]);
                    *g *= weight;
                }
                for half in [8, 4, 2, 1] {
                    (0..half).for_each(|lane| lanes[lane] += lanes[lane + half]);
                }
                let rate = if of_row { rowwise_rate(&sum, &mut moments[0][0], RATE, eps(optimizer)) } else { RATE };
                for (e, x) in row.iter_mut().enumerate() {
                    let moved = step(optimizer, rate, *x, sum[e], &mut moments[e]);
                    *x = if self.kept.precision == Precision::Bf16Lsb8 { shorten(moved) } else { moved };
                }
                let rate = if of_row { rowwise_rate(&lanes[..1], &mut own[0], RATE, eps(optimizer)) } else { RATE };
                weight = step(optimizer, rate, weight, lanes[0], &mut own);
            }
            weights.push(weight);
            weights.extend(&own[..kept]);
        }
        [rows, weights]
    }

    /// The same by octorec, of samples that come from several sources.
    fn moved(&self, team: &Team, fused: bool, ends: &[usize]) -> [Vec<f32>; 2] {
        let mut start = 0;
        let part = |&end: &usize| {
            let [first, last] = [start, end].map(|sample| self.bag.offsets[sample] as usize);
            let offsets = self.bag.offsets[start..=end].iter().map(|offset| offset - first as u32).collect();
            let bag = Bag { offsets, rows: self.bag.rows[first..last].to_vec() };
            let weights = self.weights.get(first..last).map(<[f32]>::to_vec).unwrap_or_default();
            let gradient = &self.gradient[start * self.dim..end * self.dim];
            start = end;
            ((vec![bag], vec![weights]), gradient)
        };
        let parts: Vec<_> = ends.iter().map(part).collect();
        let slots = Slots::new(self.dim, &[0]);
        let of = |(bags, gradient)| Source { lookups: self.lookups(bags), gradient, slots };
        let sources: Vec<_> = parts.iter().map(|(bags, gradient)| of((bags, *gradient))).collect();
        let (pooling, dim, kept, threads) = (self.pooling, self.dim, self.kept, team.threads());
        let spec = Spec { update: Update::Auto, fused, pooling, tables: 1, dim, kept, lookups: 1, threads };
        let mut updater = Updater::new(spec, &mut Supply::System).unwrap();
        let mut tables = [self.table(team)];
        (0..STEPS).for_each(|_| updater.run(team, &mut tables, &sources, RATE));
        let table = &tables[0];
        let moments = kept.optimizer.moments().len() + usize::from(kept.optimizer.row_moment().is_some());
        let tensors = std::iter::once(TableTensor::RowWeight).chain((0..moments).map(TableTensor::RowWeightMoment));
        let weights: Vec<_> = tensors.map(|tensor| table.export(tensor, 0..ROWS)).collect();
        let by_row = (0..ROWS).flat_map(|row| weights.iter().map(move |of| of[row])).collect();
        [table.weights().to_vec(), by_row]
    }
}

fn eps(optimizer: Optimizer) -> f32 {
    match optimizer {
        Optimizer::Adagrad { eps, .. } | Optimizer::RowwiseAdagrad { eps, .. } => eps,
        _ => 0.0,
    }
}

/// What becomes of one number, by the definition of each optimizer.
fn step(optimizer: Optimizer, rate: f32, x: f32, g: f32, moments: &mut [f32]) -> f32 {
    match optimizer {
        Optimizer::Sgd | Optimizer::RowwiseAdagrad { .. } => (-rate).mul_add(g, x),
        Optimizer::Momentum { momentum, .. } => {
            moments[0] = momentum.mul_add(moments[0], g);
            (-rate).mul_add(moments[0], x)
        }
        Optimizer::Adagrad { eps, .. } => {
            moments[0] = g.mul_add(g, moments[0]);
            (-rate).mul_add(g / (moments[0].sqrt() + eps), x)
        }
        Optimizer::SparseAdam { averages } => {
            let [rest1, rest2] = [averages.beta1, averages.beta2].map(|beta| (1.0 - beta) as f32);
            moments[0] = (averages.beta1 as f32).mul_add(moments[0], rest1 * g);
            moments[1] = (averages.beta2 as f32).mul_add(moments[1], (rest2 * g) * g);
            let step = f64::from(rate) * (1.0 - averages.beta2).sqrt() / (1.0 - averages.beta1);
            (-(step as f32)).mul_add(moments[0] / (moments[1].sqrt() + averages.eps), x)
        }
        other => panic!("{other:?} has no definition here"),
    }
}

fn bits(values: &[f32]) -> Vec<u32> {
    values.iter().map(|x| x.to_bits()).collect()
}

#[test]
fn rows_and_their_weights_move_as_is_defined_on_any_instruction_set() {
    let averages = Averages { beta1: 0.9, beta2: 0.999, eps: 1e-8, bias_correction: true };
    for optimizer in [
        Optimizer::Sgd,
        Optimizer::Momentum { momentum: 0.9, decay: 0.0 },
        Optimizer::Adagrad { eps: 1e-10, initial: 0.25, decay: 0.0 },
        Optimizer::RowwiseAdagrad { eps: 1e-8, initial: 0.5 },
        Optimizer::SparseAdam { averages },
    ] {
        for (dim, (weighted, pooling)) in [1, 3, 8, 16, 17, 33, 100]
            .into_iter()
            .zip([(false, Pooling::Sum), (true, Pooling::Mean)].into_iter().cycle())
        {
            for precision in [Precision::F32, Precision::Bf16, Precision::Bf16Lsb8] {
                let case = Case::new(dim, weighted, pooling, precision, optimizer);
                let expected = case.expected();
                assert!(expected[0] != case.rows && case.learned.iter().all(|w| !w.is_nan()), "something moves");
                for isa in Isa::all() {
                    for (threads, fused, ends) in
                        [(1, true, &[SAMPLES][..]), (3, true, &[0, 1, 17, 17, SAMPLES]), (2, false, &[20, SAMPLES])]
                    {
                        let team = Team::with_isa(threads, isa).unwrap();
                        let found = case.moved(&team, fused, ends);
                        let what =
                            format!("{optimizer:?}, {precision:?}, dim {dim}, {isa:?}, {threads} threads, {ends:?}");
                        assert_eq!(bits(&found[1]), bits(&expected[1]), "{what}: weights of rows");
                        assert_eq!(bits(&found[0]), bits(&expected[0]), "{what}: rows");
                    }
                }
            }
        }
    }
}

#[test]
fn look_ups_multiply_rows_by_their_weights_on_any_instruction_set() {
    for (dim, (weighted, pooling)) in [1, 3, 16, 17, 130, 300]
        .into_iter()
        .flat_map(|dim| [(false, Pooling::Sum), (true, Pooling::Mean), (true, Pooling::Sum)].map(|how| (dim, how)))
    {
        for precision in [Precision::F32, Precision::Bf16, Precision::Bf16Lsb8] {
            let case = Case::new(dim, weighted, pooling, precision, Optimizer::Sgd);
            let expected = case.pooled();
            let of = (vec![case.bag.clone()], vec![case.weights.clone()]);
            for (isa, threads) in Isa::all().into_iter().flat_map(|isa| [1, 3].map(|threads| (isa, threads))) {
                let team = Team::with_isa(threads, isa).unwrap();
                let (mut features, tables) = (vec![7.5; SAMPLES * dim], [case.table(&team)]);
                let mut forward = LookUp::new(pooling, 1, threads);
                forward.run(&team, &tables, case.lookups(&of), &mut features, Slots::new(dim, &[0]));
                assert_eq!(bits(&features), bits(&expected), "{precision:?}, dim {dim}, {isa:?}, {threads} threads");
            }
        }
    }
}
