//! Networks of one's own layers in f64: what each layer gives, name by name, from the description.

use std::collections::HashMap;

use octorec::base::config::{LayerKind, ModelConfig, NamedLayer};

use crate::gradients::{Weights, tensor};

/// The numbers that a name stands for, each of its vectors by itself.
struct Network<'a> {
    model: &'a ModelConfig,
    weights: &'a Weights,
    /// The features of a sample by their names, and the wide part's sum.
    given: HashMap<String, Vec<Vec<f64>>>,
    wide: f64,
}

/// The logit of a sample with these dense features, whose pooled rows are `vectors`, and whose wide part's sum is
/// `wide`.
pub fn logit(model: &ModelConfig, weights: &Weights, dense: Vec<f64>, vectors: &[Vec<f64>], wide: f64) -> f64 {
    let mut given: HashMap<_, _> =
        vectors.iter().enumerate().map(|(at, vector)| (format!("C{}", at + 1), vec![vector.clone()])).collect();
    given.insert("dense".to_owned(), vec![dense]);
    given.insert("embeddings".to_owned(), vectors.to_vec());
    let read = |name: &String| model.layers.iter().any(|layer| layer.of.contains(name));
    let last = model.layers.iter().find(|layer| !read(&layer.name)).unwrap();
    Network { model, weights, given, wide }.layer(last)[0]
}

impl Network<'_> {
    fn vectors(&self, name: &str) -> Vec<Vec<f64>> {
        match self.model.layers.iter().find(|layer| layer.name == name) {
            Some(layer) => vec![self.layer(layer)],
            None => self.given[name].clone(),
        }
    }

    fn product(&self, name: &str, x: &[f64]) -> Vec<f64> {
        let rows = tensor(self.weights, name).chunks(x.len());
        rows.map(|row| row.iter().zip(x).map(|(w, x)| w * x).sum()).collect()
    }

    fn layer(&self, layer: &NamedLayer) -> Vec<f64> {
        let vectors: Vec<Vec<f64>> = layer.of.iter().flat_map(|name| self.vectors(name)).collect();
        let all = vectors.concat();
        let of = |what: &str, at: usize| format!("layers.{}.{what}.{at}", layer.name);
        let plus = |x: Vec<f64>, bias: &[f64]| x.iter().zip(bias).map(|(x, b)| x + b).collect::<Vec<_>>();
        match layer.kind {
            LayerKind::Relu => all.into_iter().map(|x| x.max(0.0)).collect(),
            LayerKind::Sigmoid => all.into_iter().map(|x| 1.0 / (1.0 + (-x).exp())).collect(),
            LayerKind::Concat => all,
            LayerKind::Wide => vec![self.wide],
            LayerKind::Sum => (0..vectors[0].len()).map(|at| vectors.iter().map(|vector| vector[at]).sum()).collect(),
            LayerKind::Linear => (0..layer.outputs.len()).fold(all, |x, at| {
                let x = if at > 0 { x.into_iter().map(|x| x.max(0.0)).collect() } else { x };
                let [weight, bias] = ["weight", "bias"].map(|kind| format!("layers.{}.{at}.{kind}", layer.name));
                plus(self.product(&weight, &x), tensor(self.weights, &bias))
            }),
            LayerKind::Cross => (0..layer.layers.unwrap()).fold(all.clone(), |x, at| {
                let u = self.product(&of("V_kernels", at), &x);
                let h = plus(self.product(&of("W_kernels", at), &u), tensor(self.weights, &of("bias", at)));
                (0..x.len()).map(|i| all[i] * h[i] + x[i]).collect()
            }),
            LayerKind::Dot => {
                let until = |i: usize| i + usize::from(layer.itself == Some(true));
                let pairs = (0..vectors.len()).flat_map(|i| (0..until(i)).map(move |j| (i, j)));
                pairs.map(|(i, j)| vectors[i].iter().zip(&vectors[j]).map(|(a, b)| a * b).sum()).collect()
            }
            LayerKind::Attention => unreachable!("time series have a test of their own"),
        }
    }
}
