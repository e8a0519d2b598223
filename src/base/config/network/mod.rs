//! A network as layers by their names: what `model.layers` has of one that a user composes, and what the other keys of
//! a model say of a built-in one. Whatever is built, counted, drawn or exported is made from this description.

mod check;

use serde::{Deserialize, Deserializer, Serialize};

pub use check::{Width, Widths};

use super::{Interaction, ModelConfig};
use crate::base::named;

/// What a layer reads as the dense features of a sample.
pub const DENSE: &str = "dense";
/// What it reads as the vectors of all categorical columns, in the order of the data.
pub const EMBEDDINGS: &str = "embeddings";

/// Names of the layers of built-in networks.
pub(crate) mod names {
    pub(crate) const BOTTOM: &str = "bottom";
    pub(crate) const TOP: &str = "top";
    pub(crate) const CROSS: &str = "cross";
    pub(crate) const ATTENTION: &str = "attention";
    pub(crate) const HEAD: &str = "head";
}

/// A layer of a network.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NamedLayer {
    /// What others read it by.
    pub name: String,
    /// What it does.
    #[serde(rename = "type")]
    pub kind: LayerKind,
    /// What it reads: layers, columns, [`DENSE`], [`EMBEDDINGS`].
    #[serde(default, deserialize_with = "one_or_more", skip_serializing_if = "Vec::is_empty")]
    pub of: Vec<String>,
    /// Outputs of each of its fully connected layers (`linear`, `attention`).
    #[serde(default, deserialize_with = "one_or_more", skip_serializing_if = "Vec::is_empty")]
    pub outputs: Vec<usize>,
    /// How many layers it has (`cross`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub layers: Option<usize>,
    /// Numbers between the two matrices of each (`cross`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rank: Option<usize>,
    /// Whether each vector's product with itself is kept, too (`dot`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub itself: Option<bool>,
}

named! {
    /// What a layer does.
    pub enum LayerKind {
        /// Fully connected layers with biases, a ReLU between each two.
        Linear = "linear",
        /// max(x, 0).
        Relu = "relu",
        /// 1 / (1 + e^-x).
        Sigmoid = "sigmoid",
        /// Low-rank cross layers (DCNv2): x_{l+1} = x_0 ⊙ (W V x_l + b) + x_l.
        Cross = "cross",
        /// The products of each two vectors.
        Dot = "dot",
        /// All numbers side by side.
        Concat = "concat",
        /// The sum of vectors, number by number.
        Sum = "sum",
        /// Attention of the last step of a time series over those before it (TBSM).
        Attention = "attention",
        /// A weight for each dense feature, each category and each cross of categories (Wide & Deep).
        Wide = "wide",
    }
}

impl NamedLayer {
    /// Of this name and kind, which reads these.
    #[must_use]
    pub fn new(name: &str, kind: LayerKind, of: &[&str]) -> Self {
        let of = of.iter().map(|name| (*name).to_owned()).collect();
        Self { name: name.to_owned(), kind, of, outputs: Vec::new(), layers: None, rank: None, itself: None }
    }
}

/// One value, or a list of them.
fn one_or_more<'de, D: Deserializer<'de>, T: Deserialize<'de>>(from: D) -> Result<Vec<T>, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged, expecting = "a value of the right type, or a list of such values, is expected")]
    enum OneOrMore<T> {
        One(T),
        More(Vec<T>),
    }
    Ok(match OneOrMore::deserialize(from)? {
        OneOrMore::One(value) => vec![value],
        OneOrMore::More(values) => values,
    })
}

impl ModelConfig {
    /// The layers of the network: those that are given, or those of the built-in one that the other keys describe. The
    /// one that no other reads is the logit.
    #[must_use]
    pub fn network(&self) -> Vec<NamedLayer> {
        if self.layers.is_empty() { self.built_in() } else { self.layers.clone() }
    }

    fn built_in(&self) -> Vec<NamedLayer> {
        use LayerKind::{Attention, Concat, Cross, Dot, Linear, Relu, Sum, Wide};
        let mut layers = Vec::new();
        let mut add = |name: &'static str, kind, of: &[&str], more: &dyn Fn(&mut NamedLayer)| {
            let mut layer = NamedLayer::new(name, kind, of);
            more(&mut layer);
            layers.push(layer);
            name
        };
        let plain = |_: &mut NamedLayer| ();
        let x = match &self.bottom[..] {
            [] => None,
            [_] => Some(DENSE),
            [_, outputs @ ..] => {
                let bottom = add(names::BOTTOM, Linear, &[DENSE], &|layer| layer.outputs = outputs.to_vec());
                Some(add("x", Relu, &[bottom], &plain))
            }
        };
        let vectors: Vec<&str> = x.into_iter().chain([EMBEDDINGS]).collect();
        let features = match self.interaction {
            Interaction::Dot => {
                let itself = self.interaction_itself.then_some(true);
                let z = add("z", Dot, &vectors, &|layer| layer.itself = itself);
                x.map_or(z, |x| add("interaction", Concat, &[x, z], &plain))
            }
            Interaction::Cat => add("interaction", Concat, &vectors, &plain),
            Interaction::Dcn => {
                let x0 = add("interaction", Concat, &vectors, &plain);
                let sizes = |layer: &mut NamedLayer| {
                    (layer.layers, layer.rank) = (Some(self.cross_layers), Some(self.cross_rank));
                };
                add(names::CROSS, Cross, &[x0], &sizes)
            }
        };
        let top = add(names::TOP, Linear, &[features], &|layer| layer.outputs.clone_from(&self.top));
        if self.ts_length > 0 {
            let steps = add("steps", Relu, &[top], &plain);
            let series = add(names::ATTENTION, Attention, &[steps], &|layer| layer.outputs.clone_from(&self.tsl_mlp));
            add(names::HEAD, Linear, &[series], &|layer| layer.outputs.clone_from(&self.arch_mlp));
        }
        if self.wide {
            let wide = add("wide", Wide, &[], &plain);
            add("logit", Sum, &[top, wide], &plain);
        }
        layers
    }
}
