//! What the keys of [`super::TrainConfig`] that name something can be.

use serde::{Deserialize, Serialize};

use crate::base::named;

named! {
    /// How weights move by their gradients.
    #[derive(Default)]
    pub enum OptimizerName {
        /// Stochastic gradient descent.
        #[default]
        Sgd = "sgd",
        /// The same with momentum (`train.momentum`), as PyTorch's without dampening and Nesterov's correction.
        Momentum = "momentum",
        /// Adagrad, as PyTorch's without decay of the rate.
        Adagrad = "adagrad",
        /// Adagrad with one number a row, the sum of the mean squares of its gradients, as TorchRec's. For rows alone.
        RowwiseAdagrad = "rowwise-adagrad",
        /// Adam, as PyTorch's; of rows, as its SparseAdam.
        Adam = "adam",
        /// LAMB, as in Intel's MLPerf submissions. For layers alone.
        Lamb = "lamb",
        /// FTRL-Proximal (McMahan et al. 2013), which keeps weights that tell little at 0 (`train.l1`).
        Ftrl = "ftrl",
    }
}

/// Which samples evaluations are made on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum EvalSplit {
    /// Those for validation; where the data have none, those for tests.
    #[default]
    Validation,
    /// Those for tests.
    Test,
}

/// By which score one evaluation is better than another.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum BestBy {
    /// A higher AUC.
    #[default]
    Auc,
    /// A lower log loss.
    Logloss,
}

impl BestBy {
    /// The score, for people.
    #[must_use]
    pub const fn words(self) -> &'static str {
        match self {
            Self::Auc => "AUC",
            Self::Logloss => "log loss",
        }
    }
}

/// How the learning rate decays, t steps after `train.decay_start`, of T = `train.decay_steps`. Steps count from 1: where
/// decay starts at 0, the first step has t = 1 of `Polynomial` and t = 0 of the others.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Decay {
    /// By `((T - t) / T) ^ decay_power`, until one step is left.
    #[default]
    Polynomial,
    /// By `(1 + cos(pi t / T)) / 2`, until T.
    Cosine,
    /// By `decay_factor` once in T steps.
    Steps,
    /// By `decay_factor ^ (t / T)`.
    Exponential,
}

/// How base learning rates grow with the minibatch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum LrScaling {
    /// They do not.
    #[default]
    None,
    /// By `batch / lr_batch` (Goyal et al. 2017).
    Linear,
    /// By its square root (Krizhevsky 2014; You et al. 2020, for LAMB).
    Sqrt,
}

/// The instruction set that kernels use.
///
/// All but the last give the same bits in 32-bit floats, on any machine; in bfloat16 all but the last two do: without
/// the instructions numbers are widened and multiplied as 32-bit floats, nearly as fast as those. AMX adds products in
/// another order, and only a machine that has it gives its bits; so a run that other machines shall repeat names
/// `avx512-bf16`, or where that is not, any other.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum IsaChoice {
    /// The fastest that the machine has: `amx-bf16x3` where there is AMX-BF16.
    #[default]
    Auto,
    /// Portable code.
    Scalar,
    /// AVX2 with FMA.
    Avx2,
    /// AVX-512 F, BW, DQ and VL.
    Avx512,
    /// The same with AVX512-BF16.
    Avx512Bf16,
    /// The same with AMX-BF16.
    AmxBf16,
    /// The same, and 32-bit floats are multiplied on tiles, too, as three bfloat16 each, no less accurately.
    #[serde(rename = "amx-bf16x3")]
    AmxBf16x3,
}

named! {
    /// How embedding rows are moved. All but `atomic` and `rtm` give the same bits for every number of threads.
    #[derive(Default)]
    pub enum Update {
        /// One of the deterministic ones, chosen by the size and the skew of the minibatches.
        #[default]
        Auto = "auto",
        /// One thread, look-up by look-up: the definition.
        Serial = "serial",
        /// Look-ups shared out, each element added by compare and exchange: the order of sums is left to chance.
        Atomic = "atomic",
        /// As `atomic`, each row in a transaction where the processor has them.
        Rtm = "rtm",
        /// Rows shared out; each thread reads all look-ups and moves its own rows (SC20, Algorithm 4).
        RaceFree = "race-free",
        /// Look-ups are sorted by row and shared out by number, a row's to one thread.
        Sorted = "sorted",
    }
}

/// What may differ between two runs that give the same bits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Determinism {
    /// Nothing need agree: updates may leave the order of sums to chance.
    None,
    /// The number of threads, and time. Several ranks give the bits of as many ranks, tables divided alike.
    #[default]
    Run,
    /// The number of ranks and the division of tables, too: gradients of weights are summed over fixed parts of the
    /// minibatch in a fixed tree, rows pooled in the order of the bag and moved in the order of samples.
    Ranks,
}

/// What pooled rows, their gradients and dense gradients travel in, from rank to rank, as the user says.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum WireChoice {
    /// Pooled rows and their gradients in what the layers multiply, unless the number of ranks shall change no bit
    /// ([`Determinism::Ranks`]); dense gradients as they are.
    #[default]
    Auto,
    /// All as [`Wire::F32`].
    F32,
    /// All as [`Wire::Bf16`].
    Bf16,
}

/// What something travels in, from rank to rank.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Wire {
    /// 32-bit floats, as they are.
    #[default]
    F32,
    /// bfloat16, rounded to nearest even. Pooled rows and their gradients are rounded once and added up in 32 bits. So
    /// are dense gradients by the schedule `direct`: each rank's once. Every other schedule passes sums of some ranks'
    /// on, which are rounded at each hop. Weights that a rank has moved travel whole, and so do the gradients of tables
    /// of which every rank has a copy.
    Bf16,
}

impl Wire {
    /// Bytes of a number that travels.
    #[must_use]
    pub const fn bytes(self) -> usize {
        match self {
            Self::F32 => 4,
            Self::Bf16 => 2,
        }
    }
}

/// What each kind of numbers travels in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Wires {
    /// Pooled rows and their gradients.
    pub rows: Wire,
    /// Dense gradients.
    pub dense: Wire,
}

impl Wires {
    /// The same for all kinds.
    #[must_use]
    pub const fn all(wire: Wire) -> Self {
        Self { rows: wire, dense: wire }
    }
}

/// Whether rows that are looked up most are read from copies that every rank has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Hot {
    /// No: rows are read where they are kept.
    #[default]
    Off,
    /// Yes, and copies are equal to the rows in every step: only other look-ups, sums of hot rows' gradients and moved
    /// hot rows travel. One rank has no use for copies.
    Exact,
    /// Yes, as FAE does: inputs that look up hot rows alone are trained in minibatches of their own, for which no row
    /// travels but sums of gradients and moved rows; they take turns with all others, which read rows where they are
    /// kept.
    Fae,
}

named! {
    /// How the gradients of layers are reduced and their weights gathered, from rank to rank. Which rank's term is
    /// added first follows from it, so that the bits of more than two ranks do, too.
    #[derive(Default)]
    pub enum Collective {
        /// The one that is predicted to be the quickest on this machine; with `train.determinism = "none"` the best are
        /// tried.
        #[default]
        Auto = "auto",
        /// Everybody sends everybody its part at once.
        Direct = "direct",
        /// Around one ring.
        Ring = "ring",
        /// Around a ring in both directions, half each.
        TwoRing = "two-ring",
        /// Halving the ranks and the tensor in each round.
        HalvingDoubling = "halving-doubling",
        /// In as few rounds as the machine's links allow, over links between neighbours alone.
        BreadthFirst = "breadth-first",
        /// Around as many rings as share no link.
        MultiRing = "multi-ring",
        /// Along trees that take links as they can carry them, level by level.
        SpanningTrees = "spanning-trees",
        /// Along these trees, in chunks that keep all levels busy.
        PipelinedTrees = "pipelined-trees",
        /// Inside each machine first, then between machines.
        Hierarchical = "hierarchical",
    }
}

named! {
    /// What weights are read in by the forward and the backward pass, and how much of them an update keeps.
    ///
    /// The split ones are SC20's Split-SGD-BF16 (Section VII): the upper halves of the weights are what the passes
    /// read, with products of bfloat16 summed in 32 bits; the lower halves are only joined to them for an update.
    /// Biases, sums, the interaction, the loss and gradients of weights are in 32 bits whatever the precision.
    #[derive(Default)]
    pub enum Precision {
        /// 32-bit floats throughout.
        #[default]
        F32 = "f32",
        /// bfloat16, with the 16 bits that it leaves out kept for the update: as many bytes as `f32`, as exact an
        /// update.
        Bf16 = "bf16",
        /// bfloat16, with only 8 of those bits: a quarter less memory, and small updates are lost.
        Bf16Lsb8 = "bf16-lsb8",
    }
}

impl Precision {
    /// Whether weights are kept in halves.
    #[must_use]
    pub const fn is_split(self) -> bool {
        !matches!(self, Self::F32)
    }

    /// Bytes of a weight that the passes read.
    #[must_use]
    pub const fn read_bytes(self) -> usize {
        if self.is_split() { 2 } else { 4 }
    }

    /// Bytes of a weight in all.
    #[must_use]
    pub const fn bytes(self) -> usize {
        if matches!(self, Self::Bf16Lsb8) { 3 } else { 4 }
    }
}
