//! The stages of a training step: what each is called, what it waits for, how much arithmetic and memory traffic it
//! must have, and how much it sends.
//!
//! The work is what the definition needs, not what an implementation happens to do: it is what measured times are held
//! against. Multiply-adds count two operations; every operand is read once and every result written once.

use serde::Serialize;

/// A stage of the step, in the order of the corridor (`train/step.rs`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Stage {
    /// Wait until the slice of the next minibatch has been read.
    WaitData,
    /// Pack ids of rows for their owners.
    PackIds,
    /// Wait for the ids that other ranks send.
    WaitIds,
    /// Look up and pool rows.
    LookUp,
    /// Bottom MLP, forward.
    Bottom,
    /// Bring pooled rows of other ranks to their places.
    JoinRows,
    /// Wait for pooled rows of other ranks.
    WaitRows,
    /// Interaction, forward.
    Interact,
    /// Top MLP, forward.
    Top,
    /// Loss and its gradient.
    Loss,
    /// Top MLP, backward.
    BackTop,
    /// Interaction, backward.
    BackInteract,
    /// Pack gradients of pooled rows for the owners of rows.
    PackGradients,
    /// Bottom MLP, backward.
    BackBottom,
    /// Wait for gradients of pooled rows from other ranks.
    WaitGradients,
    /// Backward and update of the rows.
    UpdateRows,
    /// Update of the dense weights.
    UpdateDense,
    /// Wait for the reduction of dense gradients, or carry it out.
    ReduceDense,
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
    /// All stages, in order.
    pub const ALL: [Self; 18] = [
        Self::WaitData,
        Self::PackIds,
        Self::WaitIds,
        Self::LookUp,
        Self::Bottom,
        Self::JoinRows,
        Self::WaitRows,
        Self::Interact,
        Self::Top,
        Self::Loss,
        Self::BackTop,
        Self::BackInteract,
        Self::PackGradients,
        Self::BackBottom,
        Self::WaitGradients,
        Self::UpdateRows,
        Self::UpdateDense,
        Self::ReduceDense,
    ];

    /// Its name in tables and traces.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::WaitData => "wait for data",
            Self::PackIds => "pack ids",
            Self::WaitIds => "wait for ids",
            Self::LookUp => "look up rows",
            Self::Bottom => "bottom MLP",
            Self::JoinRows => "join pooled rows",
            Self::WaitRows => "wait for pooled rows",
            Self::Interact => "interaction",
            Self::Top => "top MLP",
            Self::Loss => "loss",
            Self::BackTop => "back top MLP",
            Self::BackInteract => "back interaction",
            Self::PackGradients => "pack gradients of rows",
            Self::BackBottom => "back bottom MLP",
            Self::WaitGradients => "wait for gradients of rows",
            Self::UpdateRows => "update rows",
            Self::UpdateDense => "update MLPs",
            Self::ReduceDense => "reduce dense gradients",
        }
    }

    /// The stages whose results it needs, on the same rank.
    #[must_use]
    pub const fn needs(self) -> &'static [Self] {
        match self {
            Self::WaitData => &[],
            Self::PackIds => &[Self::WaitData],
            Self::WaitIds => &[Self::PackIds],
            Self::LookUp => &[Self::WaitIds, Self::UpdateRows],
            Self::Bottom => &[Self::WaitData, Self::UpdateDense],
            Self::WaitRows => &[Self::LookUp],
            Self::JoinRows => &[Self::WaitRows],
            Self::Interact => &[Self::Bottom, Self::JoinRows],
            Self::Top => &[Self::Interact, Self::UpdateDense],
            Self::Loss => &[Self::Top],
            Self::BackTop => &[Self::Loss],
            Self::BackInteract => &[Self::BackTop],
            Self::PackGradients => &[Self::BackInteract],
            Self::BackBottom => &[Self::BackInteract],
            Self::WaitGradients => &[Self::PackGradients],
            Self::UpdateRows => &[Self::WaitGradients, Self::LookUp],
            Self::ReduceDense => &[Self::BackTop, Self::BackBottom],
            Self::UpdateDense => &[Self::ReduceDense],
        }
    }

    /// Whether the rank's own threads do nothing useful in it.
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
