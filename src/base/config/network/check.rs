//! Whether layers make a network, and how wide each is.

use std::collections::HashMap;

use super::{DENSE, EMBEDDINGS, LayerKind, NamedLayer};
use crate::base::config::ModelConfig;
use crate::base::error::meant;

/// What a layer gives for a sample, as far as it is known without the data.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Width {
    /// Numbers.
    pub numbers: Option<usize>,
    /// Whether it does at each step of a time series.
    pub each_step: bool,
}

/// The layers of a network in an order in which each comes after those that it reads.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Widths {
    /// Their numbers.
    pub order: Vec<usize>,
    /// What each gives, by number.
    pub of: Vec<Width>,
    /// The number of the one that is the logit.
    pub logit: usize,
}

/// What an operand is.
enum Operand {
    Layer(usize),
    Dense,
    Embeddings,
    Column,
}

/// The widest layer.
const WIDEST: usize = 1 << 20;

impl ModelConfig {
    /// Checks that [`ModelConfig::network`] is one and finds how wide its layers are; `columns` are the names of the
    /// data's categorical columns where these are known.
    ///
    /// # Errors
    /// In words: what is wrong with which layer, and what would be right.
    pub fn widths(&self, columns: Option<&[String]>) -> Result<Widths, String> {
        let layers = self.network();
        let net = Net::new(self, &layers, columns)?;
        let order = net.order()?;
        let logit = net.logit()?;
        let mut of = vec![Width { numbers: None, each_step: false }; layers.len()];
        for &at in &order {
            of[at] = net.width(at, &of).map_err(|reason| format!("{}: {reason}", layers[at].title()))?;
        }
        net.whole(logit, &of)?;
        Ok(Widths { order, of, logit })
    }
}

impl NamedLayer {
    fn title(&self) -> String {
        format!("layer {} ({})", self.name, self.kind.name())
    }
}

struct Net<'a> {
    model: &'a ModelConfig,
    layers: &'a [NamedLayer],
    numbers: HashMap<&'a str, usize>,
    columns: Option<&'a [String]>,
    /// By number, the layers that read it.
    readers: Vec<Vec<usize>>,
}

impl<'a> Net<'a> {
    fn new(model: &'a ModelConfig, layers: &'a [NamedLayer], columns: Option<&'a [String]>) -> Result<Self, String> {
        let mut numbers = HashMap::new();
        for (at, layer) in layers.iter().enumerate() {
            let name = &*layer.name;
            if name.is_empty() || !name.chars().all(|c| c.is_alphanumeric() || c == '_' || c == '-') {
                return Err(format!("a layer is called {name:?}: a name has letters, digits, _ and -"));
            }
            if [DENSE, EMBEDDINGS].contains(&name) || columns.is_some_and(|columns| columns.contains(&layer.name)) {
                return Err(format!(
                    "{}: so the data's features are called; give the layer another name",
                    layer.title()
                ));
            }
            if numbers.insert(name, at).is_some() {
                return Err(format!("two layers are called {name}"));
            }
        }
        if let Some(name) =
            [DENSE, EMBEDDINGS].iter().find(|name| columns.is_some_and(|all| all.iter().any(|own| own == *name)))
        {
            return Err(format!(
                "the data has a column {name}, and so other features are called for layers: rename the column in what \
                 describes the data"
            ));
        }
        let mut net = Self { model, layers, numbers, columns, readers: vec![Vec::new(); layers.len()] };
        for (at, layer) in layers.iter().enumerate() {
            net.form(layer).map_err(|reason| format!("{}: {reason}", layer.title()))?;
            for name in &layer.of {
                let operand = net.operand(name).map_err(|reason| format!("{}: {reason}", layer.title()))?;
                if let Operand::Layer(from) = operand {
                    net.readers[from].push(at);
                }
            }
        }
        Ok(net)
    }

    fn operand(&self, name: &str) -> Result<Operand, String> {
        if let Some(at) = self.numbers.get(name) {
            return Ok(Operand::Layer(*at));
        }
        match (name, self.columns) {
            (DENSE, _) => Ok(Operand::Dense),
            (EMBEDDINGS, _) => Ok(Operand::Embeddings),
            (_, Some(columns)) if columns.iter().all(|column| column != name) => {
                let known = self.layers.iter().map(|layer| &*layer.name).chain([DENSE, EMBEDDINGS]);
                let known = known.chain(columns.iter().map(|column| &**column));
                Err(format!(
                    "it reads {name}, which is no layer and no column{}; the columns are {}",
                    meant(name, known),
                    columns.join(", ")
                ))
            }
            _ => Ok(Operand::Column),
        }
    }

    /// Whether a layer has what its type needs, and nothing else.
    fn form(&self, layer: &NamedLayer) -> Result<(), String> {
        use LayerKind::{Attention, Concat, Cross, Dot, Linear, Relu, Sigmoid, Sum, Wide};
        let kind = layer.kind;
        let has = [
            ("outputs", !layer.outputs.is_empty(), matches!(kind, Linear | Attention)),
            ("layers", layer.layers.is_some(), kind == Cross),
            ("rank", layer.rank.is_some(), kind == Cross),
            ("itself", layer.itself.is_some(), kind == Dot),
        ];
        for (key, given, used) in has {
            if given && !used {
                return Err(format!("`{key}` has no effect there: leave it away"));
            }
            if !given && used && key != "itself" && kind != Attention {
                return Err(format!("`{key}` is missing"));
            }
        }
        if let Some(width) = layer.outputs.iter().find(|width| !(1..=WIDEST).contains(*width)) {
            return Err(format!("outputs = {:?}: 1 to 2^20 are possible, and not {width}", layer.outputs));
        }
        for (key, value, most) in [("layers", layer.layers, 64), ("rank", layer.rank, WIDEST)] {
            if let Some(value) = value.filter(|value| !(1..=most).contains(value)) {
                return Err(format!("{key} = {value} must lie in [1, {most}]"));
            }
        }
        let (least, most) = match kind {
            Linear | Relu | Sigmoid | Cross | Attention => (1, 1),
            Dot | Concat | Sum => (1, usize::MAX),
            Wide => (0, 0),
        };
        if layer.of.len() < least {
            return Err(format!("`of` must name {} or more that it reads", least.max(1)));
        }
        if layer.of.len() > most {
            return Err(match kind {
                Wide => {
                    "it reads all dense features and categories, which need not be named: leave `of` away".to_owned()
                }
                _ => "it reads one layer: put several side by side with a layer of type concat".to_owned(),
            });
        }
        if let Some(name) = layer.of.iter().enumerate().find(|(at, name)| layer.of[..*at].contains(name)) {
            return Err(format!("`of` names {} twice", name.1));
        }
        if kind == Wide && self.model.dim == 1 {
            return Err(
                "with model.dim = 1 a vector is what the wide part has for each category: use a larger one".to_owned()
            );
        }
        if kind == Wide && self.model.ts_length > 0 {
            return Err("no model has both a wide part and attention over a time series".to_owned());
        }
        Ok(())
    }

    /// An order in which every layer comes after those that it reads: as they are given, where that is one.
    fn order(&self) -> Result<Vec<usize>, String> {
        #[derive(Clone, Copy, PartialEq)]
        enum Mark {
            New,
            Open,
            Done,
        }
        fn visit(
            net: &Net<'_>,
            at: usize,
            marks: &mut [Mark],
            path: &mut Vec<usize>,
            order: &mut Vec<usize>,
        ) -> Result<(), String> {
            match marks[at] {
                Mark::Done => return Ok(()),
                Mark::Open => {
                    let from = path.iter().position(|on| *on == at).unwrap_or(0);
                    let names: Vec<_> = path[from..].iter().chain([&at]).map(|at| &*net.layers[*at].name).collect();
                    return Err(format!("layers read each other in a circle: {}", names.join(" reads ")));
                }
                Mark::New => {}
            }
            marks[at] = Mark::Open;
            path.push(at);
            for name in &net.layers[at].of {
                if let Some(&from) = net.numbers.get(&**name) {
                    visit(net, from, marks, path, order)?;
                }
            }
            path.pop();
            marks[at] = Mark::Done;
            order.push(at);
            Ok(())
        }
        let (mut marks, mut order) = (vec![Mark::New; self.layers.len()], Vec::new());
        for at in 0..self.layers.len() {
            visit(self, at, &mut marks, &mut Vec::new(), &mut order)?;
        }
        Ok(order)
    }

    /// The layer that no other reads.
    fn logit(&self) -> Result<usize, String> {
        let ends: Vec<usize> = (0..self.layers.len()).filter(|at| self.readers[*at].is_empty()).collect();
        match ends[..] {
            [one] => Ok(one),
            _ => {
                let names: Vec<_> = ends.iter().map(|at| &*self.layers[*at].name).collect();
                Err(format!(
                    "one layer must be the logit, which no other reads, and here {} are read by none: let another layer read \
                     them, or leave them away",
                    names.join(", ")
                ))
            }
        }
    }

    /// The vectors that an operand is, each with its width; `None` where the data must say how many there are.
    fn vectors(&self, name: &str, of: &[Width]) -> Option<Vec<Option<usize>>> {
        let (dim, dense) = (Some(self.model.dim), self.model.bottom.first().copied().unwrap_or(0));
        match self.operand(name) {
            Ok(Operand::Layer(at)) => Some(vec![of[at].numbers]),
            Ok(Operand::Dense) => Some(vec![(dense > 0).then_some(dense)]),
            Ok(Operand::Embeddings) => self.columns.map(|columns| vec![dim; columns.len()]),
            Ok(Operand::Column) | Err(_) => Some(vec![dim]),
        }
    }

    fn width(&self, at: usize, of: &[Width]) -> Result<Width, String> {
        use LayerKind::{Attention, Concat, Cross, Dot, Linear, Relu, Sigmoid, Sum, Wide};
        let layer = &self.layers[at];
        let series = self.model.ts_length > 0;
        let steps = |name: &String| match self.numbers.get(&**name) {
            Some(&from) => of[from].each_step,
            None => series,
        };
        let each_step = layer.of.first().is_some_and(steps);
        if let Some(other) = layer.of.iter().find(|name| steps(name) != each_step) {
            return Err(format!(
                "it reads {} and {other}, of which one is of each step of a time series and one of all of them together",
                layer.of[0]
            ));
        }
        // Nothing where the number of vectors, or the width of one, is not known yet.
        let vectors: Option<Vec<Vec<_>>> = layer.of.iter().map(|name| self.vectors(name, of)).collect();
        let vectors: Option<Vec<Option<usize>>> = vectors.map(|vectors| vectors.into_iter().flatten().collect());
        let count = vectors.as_ref().map(Vec::len);
        let widths: Option<Vec<usize>> = vectors.as_ref().and_then(|vectors| vectors.iter().copied().collect());
        let one = widths.as_ref().and_then(|widths| widths.first()).copied();
        let known: Vec<usize> = vectors.iter().flatten().flatten().copied().collect();
        let unequal = known.windows(2).find(|pair| pair[0] != pair[1]).filter(|_| matches!(layer.kind, Dot | Sum));
        if let Some(pair) = unequal {
            return Err(format!(
                "it reads vectors of {} and of {} numbers, which must be equal (those of columns have model.dim = {})",
                pair[0], pair[1], self.model.dim
            ));
        }
        let numbers = match layer.kind {
            Linear => layer.outputs.last().copied(),
            Relu | Sigmoid | Cross => {
                let one_vector = count.is_none_or(|count| count == 1) && layer.of[0] != EMBEDDINGS;
                match one_vector {
                    true => one,
                    false => widths.map(|widths| widths.iter().sum()),
                }
            }
            Concat => widths.map(|widths| widths.iter().sum()),
            Sum => one,
            Dot => {
                let pairs = |n: usize| n * n.saturating_sub(1) / 2 + if layer.itself == Some(true) { n } else { 0 };
                if count.is_some_and(|count| pairs(count) == 0) {
                    return Err("it reads one vector: products are of two".to_owned());
                }
                count.map(pairs)
            }
            Attention => {
                if !series {
                    return Err("attention is over the steps of a time series: set model.ts_length".to_owned());
                }
                if !each_step {
                    return Err(format!("it reads {}, which is of all steps together already", layer.of[0]));
                }
                let from = self.numbers.get(&*layer.of[0]).map(|from| (&self.layers[*from], *from));
                let read = from.filter(|(from, at)| from.kind == Relu && self.readers[*at].len() == 1);
                let of_linear = read
                    .and_then(|(from, _)| self.numbers.get(&*from.of[0]))
                    .is_some_and(|&linear| self.layers[linear].kind == Linear && self.readers[linear].len() == 1);
                if !of_linear {
                    return Err(
                        "it reads the outputs of a relu of a linear layer, both of which nobody else reads".to_owned()
                    );
                }
                one.map(|numbers| 2 * numbers)
            }
            Wide => Some(1),
        };
        Ok(Width { numbers, each_step: each_step && layer.kind != Attention })
    }

    /// What the network as a whole must be.
    fn whole(&self, logit: usize, of: &[Width]) -> Result<(), String> {
        let last = &self.layers[logit];
        let fail = |reason: String| {
            Err(format!("{}: it is the logit, which no other layer reads, and {reason}", last.title()))
        };
        if last.kind == LayerKind::Sigmoid {
            return fail("the loss takes it before the logistic function: leave this layer away".to_owned());
        }
        if of[logit].each_step {
            return fail("it is of each step of a time series: a layer of type attention makes one of all".to_owned());
        }
        if let Some(numbers) = of[logit].numbers.filter(|numbers| *numbers != 1) {
            return fail(format!("has {numbers} numbers instead of 1"));
        }
        let wide: Vec<usize> = (0..self.layers.len()).filter(|at| self.layers[*at].kind == LayerKind::Wide).collect();
        if wide.len() > 1 {
            return Err("there are two layers of type wide: one has weights for everything".to_owned());
        }
        if let Some(&at) = wide.first()
            && (self.readers[at] != [logit] || last.kind != LayerKind::Sum)
        {
            return Err(format!("{}: only the logit, a layer of type sum, reads it", self.layers[at].title()));
        }
        let reads = |name: &str| self.layers.iter().any(|layer| layer.of.iter().any(|of| of == name));
        if !reads(DENSE) && wide.is_empty() && self.model.bottom.first().is_some_and(|inputs| *inputs > 0) {
            return Err(format!(
                "no layer reads {DENSE}, the {} dense features: let one, or use model.bottom = [] with data that has none",
                self.model.bottom[0]
            ));
        }
        if reads(DENSE) && self.model.bottom.is_empty() {
            return Err(format!(
                "a layer reads {DENSE}, and there are no dense features (model.bottom = []): leave {DENSE} away, or use data that has some"
            ));
        }
        let unread = |column: &&String| !reads(column);
        match self.columns.filter(|_| !reads(EMBEDDINGS)).and_then(|columns| columns.iter().find(unread)) {
            Some(column) => Err(format!(
                "no layer reads column {column}: name it, or {EMBEDDINGS}, which are the vectors of all columns"
            )),
            None => Ok(()),
        }
    }
}
