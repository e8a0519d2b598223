//! What tensors are called in a state dict: as in the project that defines the model.

use super::graph::ChainLayer;
use super::{Role, Shape};
use crate::base::config::{Interaction, ModelConfig, Triangle, layer_names};

/// Who defines a model: its initial weights, and what its tensors are called.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Project {
    /// facebookresearch/dlrm.
    Dlrm,
    /// TorchRec (`torchrec.models.dlrm`), with the tables of MLPerf's `torchrec_dlrm`.
    TorchRec,
    /// facebookresearch/tbsm, whose towers are facebookresearch/dlrm's.
    Tbsm,
    /// Nobody but who has composed it: tensors are called as the layers are.
    Own,
}

/// What names of models' tensors begin with, and whose models those are, where that tells.
const ROOTS: [(&str, Option<Project>); 15] = [
    ("emb_l.", Some(Project::Dlrm)),
    ("v_W_l.", None),
    ("bot_l.", Some(Project::Dlrm)),
    ("top_l.", Some(Project::Dlrm)),
    ("sparse_arch.", Some(Project::TorchRec)),
    ("dense_arch.", Some(Project::TorchRec)),
    ("inter_arch.", Some(Project::TorchRec)),
    ("over_arch.", Some(Project::TorchRec)),
    ("wide_l.", None),
    ("wide_dense.", None),
    ("dlrm.", Some(Project::Tbsm)),
    ("ams.", Some(Project::Tbsm)),
    ("mlps.", Some(Project::Tbsm)),
    ("tables.", Some(Project::Own)),
    ("layers.", Some(Project::Own)),
];

/// Whether a tensor has the name of one of a model's.
#[must_use]
pub fn is_of_model(tensor: &str) -> bool {
    ROOTS.iter().any(|(root, _)| tensor.starts_with(root))
}

/// Weights and biases of a module.
fn of_module(module: &str) -> [String; 2] {
    ["weight", "bias"].map(|kind| format!("{module}.{kind}"))
}

impl Project {
    /// The one that defines this model.
    #[must_use]
    pub const fn of(model: &ModelConfig) -> Self {
        match (model.interaction, model.triangle) {
            _ if !model.layers.is_empty() => Self::Own,
            _ if model.ts_length > 0 => Self::Tbsm,
            (Interaction::Dcn, _) | (Interaction::Dot, Triangle::Upper) => Self::TorchRec,
            (Interaction::Dot, Triangle::Lower) | (Interaction::Cat, _) => Self::Dlrm,
        }
    }

    /// The one by whose names a tensor is called, where its name tells.
    #[must_use]
    pub fn of_name(tensor: &str) -> Option<Self> {
        ROOTS.iter().find(|(root, _)| tensor.starts_with(root)).and_then(|(_, project)| *project)
    }

    /// What it is called.
    #[must_use]
    pub const fn title(self) -> &'static str {
        match self {
            Self::Dlrm => "facebookresearch/dlrm",
            Self::TorchRec => "TorchRec",
            Self::Tbsm => "facebookresearch/tbsm",
            Self::Own => "models of own layers",
        }
    }

    /// What in a configuration gives its names.
    #[must_use]
    pub const fn keys(self) -> &'static str {
        match self {
            Self::Dlrm => {
                "model.interaction = \"dot\" with model.triangle = \"lower\", or \"cat\", without model.ts_length and model.layers"
            }
            Self::TorchRec => {
                "model.interaction = \"dcn\", or \"dot\" with model.triangle = \"upper\", without model.ts_length and model.layers"
            }
            Self::Tbsm => "model.ts_length above 0, without model.layers",
            Self::Own => "model.layers",
        }
    }

    /// The weights of a table.
    #[must_use]
    fn table(self, table: usize) -> String {
        match self {
            Self::Dlrm => format!("emb_l.{table}.weight"),
            Self::Tbsm => format!("dlrm.emb_l.{table}.weight"),
            Self::Own => format!("tables.{table}.weight"),
            Self::TorchRec => {
                format!("sparse_arch.embedding_bag_collection.embedding_bags.t_cat_{table}.weight")
            }
        }
    }

    /// The weights of the table that a column of the data is looked up in, or of its quotients.
    #[must_use]
    pub fn column(self, column: usize, model: &ModelConfig) -> String {
        let of = self.table(column);
        if model.own_composed().contains(&column) { format!("{of}_q") } else { of }
    }

    /// The weights of all of a model's `count` tables: those that its columns are looked up in, then those of
    /// remainders or of a wide part.
    #[must_use]
    pub fn tables(self, model: &ModelConfig, count: usize) -> Vec<String> {
        let (composed, deep) = (model.own_composed(), model.deep_tables(count));
        let columns = (0..model.vectors(count)).map(|column| self.column(column, model));
        let remainders = composed.iter().map(|column| format!("{}_r", self.table(*column)));
        let wide = (0..count - deep).map(|table| format!("wide_l.{table}.weight"));
        columns.chain(remainders).chain(wide).collect()
    }

    /// What the learned weights of rows are called of those of a model's `count` tables whose rows have some. TorchRec
    /// has none, and so no name of its own for them.
    #[must_use]
    pub fn row_weights(self, model: &ModelConfig, count: usize) -> Vec<String> {
        let of = |table: usize| match self {
            Self::Dlrm | Self::TorchRec => format!("v_W_l.{table}"),
            Self::Tbsm => format!("dlrm.v_W_l.{table}"),
            Self::Own => format!("tables.{table}.row_weights"),
        };
        (0..model.weighing_tables(count)).map(of).collect()
    }

    /// Weights and biases of layer number `index` of a network of this shape.
    ///
    /// # Panics
    /// When it has no such layer.
    #[must_use]
    pub fn layer(self, index: usize, shape: &Shape) -> [String; 2] {
        match shape.layers().nth(index).expect("there is such a layer").role {
            Role::Wide => of_module("wide_dense"),
            Role::Projection(table) => {
                ["weight", "bias"].map(|kind| self.table(table).replace("weight", &format!("proj.{kind}")))
            }
            Role::Chain(layer) if self == Self::Own => of_module(&format!("layers.{}.{}", layer.of, layer.index[0])),
            Role::Cross(of, matrix) if self == Self::Own => self.cross(&format!("layers.{of}"), matrix),
            Role::Attention(of, index) if self == Self::Own => attention(&format!("layers.{of}"), index),
            Role::Cross(_, matrix) => {
                let root = if self == Self::Tbsm { "dlrm." } else { "" };
                self.cross(&format!("{root}inter_arch.crossnet"), matrix)
            }
            Role::Attention(_, index) => attention("ams.0", index),
            Role::Chain(ChainLayer { of, index: [index, count], .. }) => match &**of {
                layer_names::BOTTOM => self.bottom(*index),
                layer_names::HEAD => of_module(&format!("mlps.0.{}", 2 * index)),
                _ => self.top(*index, *count),
            },
        }
    }

    /// Weights and biases of a layer of the bottom MLP.
    fn bottom(self, layer: usize) -> [String; 2] {
        match self {
            // Every second module of the reference's Sequential is an activation.
            Self::Dlrm | Self::Own => of_module(&format!("bot_l.{}", 2 * layer)),
            Self::Tbsm => of_module(&format!("dlrm.bot_l.{}", 2 * layer)),
            Self::TorchRec => of_module(&format!("dense_arch.model._mlp.{layer}._linear")),
        }
    }

    /// Weights and biases of one of `layers` layers of the top MLP; TorchRec's last is no part of its MLP.
    fn top(self, layer: usize, layers: usize) -> [String; 2] {
        match self {
            Self::Dlrm | Self::Own => of_module(&format!("top_l.{}", 2 * layer)),
            Self::Tbsm => of_module(&format!("dlrm.top_l.{}", 2 * layer)),
            Self::TorchRec if layer + 1 == layers => of_module("over_arch.model.1"),
            Self::TorchRec => of_module(&format!("over_arch.model.0._mlp.{layer}._linear")),
        }
    }

    /// Weights and biases of a matrix of a cross network: V and W of each layer in turn; V has no biases.
    fn cross(self, root: &str, matrix: usize) -> [String; 2] {
        let of = |kind: &str| format!("{root}.{kind}.{}", matrix / 2);
        [of(if matrix.is_multiple_of(2) { "V_kernels" } else { "W_kernels" }), of("bias")]
    }
}

/// Weights and biases of attention: the matrix, then layers with an activation behind each.
fn attention(root: &str, index: usize) -> [String; 2] {
    match index {
        0 => ["A", "bias"].map(|kind| format!("{root}.{kind}")),
        _ => of_module(&format!("{root}.mlp.{}", 2 * (index - 1))),
    }
}
