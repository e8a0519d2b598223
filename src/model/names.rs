//! What tensors are called in a state dict: as in the project that defines the model.

use crate::base::config::{Interaction, ModelConfig, Triangle};

/// Who defines a model: its initial weights, and what its tensors are called.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Project {
    /// facebookresearch/dlrm.
    Dlrm,
    /// TorchRec (`torchrec.models.dlrm`), with the tables of MLPerf's `torchrec_dlrm`.
    TorchRec,
}

/// What names of models' tensors begin with.
pub const ROOTS: [&str; 9] = [
    "emb_l.",
    "bot_l.",
    "top_l.",
    "sparse_arch.",
    "dense_arch.",
    "inter_arch.",
    "over_arch.",
    "wide_l.",
    "wide_dense.",
];

/// Weights and biases of a module.
fn of_module(module: &str) -> [String; 2] {
    ["weight", "bias"].map(|kind| format!("{module}.{kind}"))
}

impl Project {
    /// The one that defines this model.
    #[must_use]
    pub const fn of(model: &ModelConfig) -> Self {
        match (model.interaction, model.triangle) {
            (Interaction::Dcn, _) | (Interaction::Dot, Triangle::Upper) => Self::TorchRec,
            (Interaction::Dot, Triangle::Lower) | (Interaction::Cat, _) => Self::Dlrm,
        }
    }

    /// The weights of a table.
    #[must_use]
    pub fn table(self, table: usize) -> String {
        match self {
            Self::Dlrm => format!("emb_l.{table}.weight"),
            Self::TorchRec => {
                format!("sparse_arch.embedding_bag_collection.embedding_bags.t_cat_{table}.weight")
            }
        }
    }

    /// The weights of a table of a model that has `deep` tables before those of its wide part.
    #[must_use]
    pub fn table_of(self, table: usize, deep: usize) -> String {
        if table < deep { self.table(table) } else { format!("wide_l.{}.weight", table - deep) }
    }

    /// Weights and biases of layer number `index` of a network that has so many layers in its bottom MLP, its interaction
    /// and its top MLP; the next is the wide part's.
    #[must_use]
    pub fn layer(self, index: usize, [bottom, crossed, top]: [usize; 3]) -> [String; 2] {
        match index {
            _ if index < bottom => self.bottom(index),
            _ if index < bottom + crossed => cross(index - bottom),
            _ if index < bottom + crossed + top => self.top(index - bottom - crossed, top),
            _ => of_module("wide_dense"),
        }
    }

    /// Weights and biases of a layer of the bottom MLP.
    fn bottom(self, layer: usize) -> [String; 2] {
        match self {
            // Every second module of the reference's Sequential is an activation.
            Self::Dlrm => of_module(&format!("bot_l.{}", 2 * layer)),
            Self::TorchRec => of_module(&format!("dense_arch.model._mlp.{layer}._linear")),
        }
    }

    /// Weights and biases of one of `layers` layers of the top MLP; TorchRec's last is no part of its MLP.
    fn top(self, layer: usize, layers: usize) -> [String; 2] {
        match self {
            Self::Dlrm => of_module(&format!("top_l.{}", 2 * layer)),
            Self::TorchRec if layer + 1 == layers => of_module("over_arch.model.1"),
            Self::TorchRec => of_module(&format!("over_arch.model.0._mlp.{layer}._linear")),
        }
    }
}

/// Weights and biases of a matrix of the cross network: V and W of each layer in turn; V has no biases.
fn cross(matrix: usize) -> [String; 2] {
    let of = |kind: &str| format!("inter_arch.crossnet.{kind}.{}", matrix / 2);
    [of(if matrix.is_multiple_of(2) { "V_kernels" } else { "W_kernels" }), of("bias")]
}
