//! The stages of a training step: what each is called, how much arithmetic and memory traffic it must have, and how
//! much it sends.
//!
//! The work is what the definition needs, not what an implementation happens to do: it is what measured times are held
//! against. Multiply-adds count two operations; every operand is read once and every result written once.

use crate::base::named;

named! {
    /// A stage of the step, in the order of the corridor (`train/step.rs`), by its name in tables and traces.
    #[derive(PartialOrd, Ord)]
    pub enum Stage {
        /// Wait until the slice of the next minibatch has been read.
        WaitData = "wait for data",
        /// Pack ids of rows for their owners.
        PackIds = "pack ids",
        /// Wait for the ids that other ranks send.
        WaitIds = "wait for ids",
        /// Look up and pool rows.
        LookUp = "look up rows",
        /// Bottom MLP, forward.
        Bottom = "bottom MLP",
        /// Bring pooled rows of other ranks to their places.
        JoinRows = "join pooled rows",
        /// Wait for pooled rows of other ranks.
        WaitRows = "wait for pooled rows",
        /// Interaction, forward.
        Interact = "interaction",
        /// Top MLP, forward.
        Top = "top MLP",
        /// Loss and its gradient.
        Loss = "loss",
        /// Top MLP, backward.
        BackTop = "back top MLP",
        /// Interaction, backward.
        BackInteract = "back interaction",
        /// Pack gradients of pooled rows for the owners of rows.
        PackGradients = "pack gradients of rows",
        /// Bottom MLP, backward.
        BackBottom = "back bottom MLP",
        /// Wait for gradients of pooled rows from other ranks.
        WaitGradients = "wait for gradients of rows",
        /// Backward and update of the rows.
        UpdateRows = "update rows",
        /// Update of the dense weights.
        UpdateDense = "update MLPs",
        /// Wait for the reduction of dense gradients, or carry it out.
        ReduceDense = "reduce dense gradients",
    }
}

/// What limits a stage.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Bound {
    /// Multiply-adds.
    Arithmetic,
    /// Memory, streamed.
    Stream,
    /// Memory, in rows at random places, read.
    Gather,
    /// Memory, in rows at random places, read and written.
    Scatter,
}

/// The work of a stage for one minibatch.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Work {
    /// What it should be limited by.
    pub bound: Bound,
    /// Floating-point operations.
    pub operations: f64,
    /// Bytes that have to move.
    pub bytes: f64,
    /// Bytes that are streamed beside them: what goes with rows at random places, but lies in order.
    pub streamed: f64,
    /// Bytes that go to other ranks.
    pub sent: f64,
}

impl Stage {
    /// Whether the rank waits in it, for data or for other ranks; in [`Stage::ReduceDense`] its threads may work, too.
    #[must_use]
    pub const fn is_wait(self) -> bool {
        matches!(self, Self::WaitData | Self::WaitIds | Self::WaitRows | Self::WaitGradients | Self::ReduceDense)
    }
}

impl Work {
    /// Nothing to do.
    pub const NONE: Self = Self::stream(0.0, 0.0);

    /// So many operations on what is in the caches.
    #[must_use]
    pub const fn arithmetic(operations: f64) -> Self {
        Self { bound: Bound::Arithmetic, operations, bytes: 0.0, streamed: 0.0, sent: 0.0 }
    }

    /// So many operations on so many bytes that are streamed.
    #[must_use]
    pub const fn stream(operations: f64, bytes: f64) -> Self {
        Self { bound: Bound::Stream, operations, bytes, streamed: 0.0, sent: 0.0 }
    }

    /// A part of the work, or a multiple.
    #[must_use]
    pub const fn times(self, factor: f64) -> Self {
        let Self { bound, operations, bytes, streamed, sent } = self;
        let (streamed, sent) = (factor * streamed, factor * sent);
        Self { bound, operations: factor * operations, bytes: factor * bytes, streamed, sent }
    }

    /// The same, and so many bytes more to other ranks.
    #[must_use]
    pub const fn sending(self, bytes: f64) -> Self {
        Self { sent: self.sent + bytes, ..self }
    }

    /// The work of several ranks or parts together.
    #[must_use]
    pub const fn plus(self, other: Self) -> Self {
        Self {
            bound: self.bound,
            operations: self.operations + other.operations,
            bytes: self.bytes + other.bytes,
            streamed: self.streamed + other.streamed,
            sent: self.sent + other.sent,
        }
    }
}
