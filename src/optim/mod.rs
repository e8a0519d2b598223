//! How weights move: optimizers and the learning rate over time.
//!
//! An optimizer is a [`Rule`]: what one weight becomes by its gradient and the moments that belong to it. Who owns
//! weights applies the rule to all of them: layers to whole blocks ([`Move`], and [`MoveSplit`] where weights are in
//! halves), embedding tables to each row that a step looked up. Moments lie beside the weights: they are allocated,
//! divided and saved with them. Two move weights as SGD does, at a rate that follows from what they keep: row-wise
//! Adagrad, with a number a row, and LAMB, which needs norms of whole tensors and so passes over them twice
//! ([`Direct`]).
//!
//! A new optimizer is one new file with its rule, a variant of [`Optimizer`] and of [`StepRule`], and its name and what
//! it is configured by in `base/config`; the compiler names each `match` that must know it.

mod adagrad;
mod adam;
mod clip;
mod decay;
mod ftrl;
mod group;
mod halves;
mod lamb;
mod momentum;
mod optimizer;
mod schedule;
mod sgd;
mod whole;

use crate::simd::Simd;

pub use adagrad::{Adagrad, in_pairs, rowwise_rate};
pub use adam::{Adam, Averages};
pub use clip::{Scale, SquareRows, clip_factor};
pub use decay::Decayed;
pub use ftrl::Ftrl;
pub use group::{ByGroup, ParamGroup};
pub use halves::{Low, MoveSplit};
pub use lamb::{Direct, LONGEST, Lamb, ROW, Squares, trust};
pub use momentum::Momentum;
pub use optimizer::{Optimizer, ParamState, StepRule, StepSize, StepSizes};
pub(crate) use optimizer::{match_rule, with_rule};
pub use schedule::Schedule;
pub use sgd::Sgd;
pub use whole::Move;

/// Moments that a weight has at most.
pub const MOMENTS: usize = 2;

/// How one weight moves.
pub trait Rule: Copy + Send + Sync {
    /// Numbers that are kept beside each weight, at most [`MOMENTS`].
    const MOMENTS: usize;

    /// The weight afterwards; moves the moments, of which only the first [`Rule::MOMENTS`] mean something.
    fn step(self, weight: f32, gradient: f32, moments: &mut [f32; MOMENTS]) -> f32;

    /// [`Rule::step`] in every lane.
    fn steps<S: Simd>(self, simd: S, weight: S::V, gradient: S::V, moments: &mut [S::V; MOMENTS]) -> S::V;
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::config::{OptimizerName, TrainConfig};
    use crate::math::random;
    use crate::simd::{Isa, Kernel};

    /// A rule in every lane, on a vector.
    struct Steps<'a, R> {
        rule: R,
        weight: &'a mut [f32],
        gradient: &'a [f32],
        moments: &'a mut [Vec<f32>; MOMENTS],
    }

    impl<R: Rule> Kernel for Steps<'_, R> {
        type Out = usize;

        #[inline(always)]
        fn run<S: Simd>(self, simd: S) -> usize {
            let Self { rule, weight, gradient, moments } = self;
            let mut own = moments.each_ref().map(|moments| simd.load(moments));
            let moved = rule.steps(simd, simd.load(weight), simd.load(gradient), &mut own);
            simd.store(moved, weight);
            moments.iter_mut().zip(own).for_each(|(to, own)| simd.store(own, to));
            S::LANES
        }
    }

    #[test]
    fn rules_give_their_own_bits_in_every_lane() {
        let of = |optimizer, weight_decay| {
            Optimizer::dense(&TrainConfig { optimizer, weight_decay, ..TrainConfig::default() })
        };
        let names = [
            OptimizerName::Sgd,
            OptimizerName::Momentum,
            OptimizerName::Adagrad,
            OptimizerName::Adam,
            OptimizerName::Ftrl,
        ];
        let sparse = TrainConfig { optimizer_rows: OptimizerName::Adam, ..TrainConfig::default() };
        let all = names.iter().flat_map(|&name| [of(name, 0.0), of(name, 0.25)]).chain([Optimizer::rows(&sparse)]);
        let all = all.flat_map(|optimizer| Isa::all().into_iter().map(move |isa| (optimizer, isa)));
        // At the first step, too, where nothing is kept yet.
        for ((optimizer, isa), first) in all.flat_map(|one| [(one, false), (one, true)]) {
            let (mut weight, gradient) = (random(16, 1), random(16, 2));
            let before = weight.clone();
            // Second moments are not below 0.
            let mut moments = [random(16, 3), random(16, 4)].map(|m| m.iter().map(|x| x.abs()).collect::<Vec<f32>>());
            if first {
                moments.iter_mut().for_each(|moments| moments.fill(0.0));
            }
            let kept = moments.clone();
            let step_size = StepSize { rate: 0.3, step: 3 };
            with_rule!(optimizer, step_size, rule => {
                let (weight, moments) = (&mut weight, &mut moments);
                let lanes = isa.run(Steps { rule, weight, gradient: &gradient, moments });
                for lane in 0..lanes {
                    let mut own = [kept[0][lane], kept[1][lane]];
                    let expected = rule.step(before[lane], gradient[lane], &mut own);
                    let found = [weight[lane], moments[0][lane], moments[1][lane]].map(f32::to_bits);
                    assert_eq!(found, [expected, own[0], own[1]].map(f32::to_bits), "{optimizer:?}, {isa:?}, lane {lane}");
                }
            });
        }
    }
}
