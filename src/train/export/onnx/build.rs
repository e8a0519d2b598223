//! A graph that is built node by node: each method appends what computes something and gives the name of the result.

use super::proto::{
    ATTRIBUTE_INT, ATTRIBUTE_INTS, ATTRIBUTE_STRING, Attribute, BFLOAT16, Dimension, FLOAT, Graph, INT64, Node, Shape,
    Tensor, TensorType, Type, ValueInfo,
};
use crate::model::Parameter;
use crate::train::export::Number;

/// A graph under way.
#[derive(Debug, Default)]
pub struct Builder<'a> {
    pub graph: Graph,
    /// Tensors of the model: the number of the initialiser, whose numbers are still to come; and whether a row of zeros
    /// comes behind the last.
    pub stored: Vec<Stored<'a>>,
}

/// An initialiser that is a tensor of the model.
#[derive(Debug, Clone, Copy)]
pub struct Stored<'a> {
    /// Which of the graph's initialisers.
    pub index: usize,
    /// The tensor.
    pub of: &'a Parameter,
    /// Rows of zeros behind it.
    pub zeros: usize,
}

/// A length in a shape.
#[derive(Debug, Clone)]
pub enum Length {
    /// So many.
    Known(usize),
    /// Whatever comes, by name.
    Any(String),
}

/// An argument of an operator.
#[derive(Debug, Clone, Copy)]
pub enum Argument<'a> {
    /// An integer.
    Int(&'a str, i64),
    /// Integers.
    Ints(&'a str, &'a [i64]),
    /// A text.
    Text(&'a str, &'a str),
}

impl From<Argument<'_>> for Attribute {
    fn from(argument: Argument<'_>) -> Self {
        let of = |name: &str, kind| Self { name: Some(name.to_owned()), kind: Some(kind), ..Self::default() };
        match argument {
            Argument::Int(name, value) => Self { i: Some(value), ..of(name, ATTRIBUTE_INT) },
            Argument::Ints(name, values) => Self { ints: values.to_vec(), ..of(name, ATTRIBUTE_INTS) },
            Argument::Text(name, text) => Self { s: Some(text.as_bytes().to_vec()), ..of(name, ATTRIBUTE_STRING) },
        }
    }
}

impl<'a> Builder<'a> {
    /// Appends a node; `output` is the name of its result.
    pub fn node_to(&mut self, op: &str, inputs: &[&str], arguments: &[Argument<'_>], output: &str) -> String {
        self.graph.node.push(Node {
            input: inputs.iter().map(|input| (*input).to_owned()).collect(),
            output: vec![output.to_owned()],
            name: Some(format!("{op}_{}", self.graph.node.len())),
            op_type: Some(op.to_owned()),
            attribute: arguments.iter().map(|&argument| argument.into()).collect(),
        });
        output.to_owned()
    }

    /// The same with a name that says which node's result it is.
    pub fn node(&mut self, op: &str, inputs: &[&str], arguments: &[Argument<'_>]) -> String {
        let output = format!("{}_{}", op.to_lowercase(), self.graph.node.len());
        self.node_to(op, inputs, arguments, &output)
    }

    /// 64-bit integers that are known: a list of them, or a single one without a shape.
    pub fn integers(&mut self, name: &str, values: &[i64], scalar: bool) -> String {
        let dims = if scalar { Vec::new() } else { vec![values.len() as i64] };
        self.constant(name, dims, INT64, bytemuck::cast_slice(values).to_vec())
    }

    /// A 32-bit float that is known.
    pub fn float(&mut self, name: &str, value: f32) -> String {
        self.constant(name, Vec::new(), FLOAT, value.to_le_bytes().to_vec())
    }

    /// 32-bit floats that are known, of this shape.
    pub fn floats(&mut self, name: &str, shape: &[i64], values: &[f32]) -> String {
        self.constant(name, shape.to_vec(), FLOAT, bytemuck::cast_slice(values).to_vec())
    }

    /// Constants of one name are one.
    fn constant(&mut self, name: &str, dims: Vec<i64>, data_type: i32, bytes: Vec<u8>) -> String {
        if !self.graph.initializer.iter().any(|tensor| tensor.name.as_deref() == Some(name)) {
            self.graph.initializer.push(Tensor {
                dims,
                data_type: Some(data_type),
                name: Some(name.to_owned()),
                raw_data: Some(bytes),
                ..Tensor::default()
            });
        }
        name.to_owned()
    }

    /// A tensor of the model, with so many rows of zeros behind it.
    pub fn stored(&mut self, of: &'a Parameter, zeros: usize, number: Number) -> String {
        let mut dims: Vec<i64> = of.shape.iter().map(|&length| length as i64).collect();
        dims[0] += zeros as i64;
        let data_type = match number {
            Number::F32 => FLOAT,
            Number::Bf16 => BFLOAT16,
        };
        self.stored.push(Stored { index: self.graph.initializer.len(), of, zeros });
        let (name, data_type) = (Some(of.name.clone()), Some(data_type));
        self.graph.initializer.push(Tensor { dims, data_type, name, ..Tensor::default() });
        of.name.clone()
    }

    /// Something that is given to the graph.
    pub fn input(&mut self, name: &str, elem_type: i32, lengths: &[Length], what: &str) -> String {
        self.graph.input.push(value(name, elem_type, lengths, what));
        name.to_owned()
    }

    /// Something that is taken from it, which a node has left.
    pub fn output(&mut self, name: &str, elem_type: i32, lengths: &[Length], what: &str) {
        self.graph.output.push(value(name, elem_type, lengths, what));
    }

    /// Numbers of another type.
    pub fn cast(&mut self, of: &str, to: i32) -> String {
        self.node("Cast", &[of], &[Argument::Int("to", i64::from(to))])
    }
}

fn value(name: &str, elem_type: i32, lengths: &[Length], what: &str) -> ValueInfo {
    let dim = lengths.iter().map(|length| match length {
        Length::Known(length) => Dimension { value: Some(*length as i64), name: None },
        Length::Any(name) => Dimension { value: None, name: Some(name.clone()) },
    });
    let tensor = TensorType { elem_type: Some(elem_type), shape: Some(Shape { dim: dim.collect() }) };
    ValueInfo {
        name: Some(name.to_owned()),
        kind: Some(Type { tensor: Some(tensor) }),
        doc_string: Some(what.to_owned()),
    }
}
