//! Which leaves of a Parquet file are the label, dense and categorical columns, and whether their types fit.

use parquet::basic::{ConvertedType as Old, LogicalType, Type as Physical};
use parquet::schema::types::{ColumnDescriptor, SchemaDescriptor};
use serde::Deserialize;

use crate::data::schema::{Categorical, Dense, Label, TrainedColumns, Transform};
use crate::data::{Description, Labels};

/// What follows a categorical column's name in that of its weights.
pub(super) const WEIGHTS: &str = "_weights";

/// Whether a name is that of an index, as pandas writes each level of it that has none, which no log has.
pub(super) fn is_index(name: &str) -> bool {
    let level = name.strip_prefix("__index_level_").and_then(|rest| rest.strip_suffix("__"));
    level.is_some_and(|level| level.parse::<u32>().is_ok())
}

/// One column of a file.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Leaf {
    /// Its number among the file's leaves, and that of the column that it is of.
    pub(super) at: usize,
    column: usize,
    pub(super) name: String,
    pub(super) kind: Kind,
    /// Whether a row has a list of values.
    pub(super) list: bool,
    /// Whether it is a part of something that is neither a value nor a list of values.
    pub(super) nested: bool,
    /// The definition level of a value that is there.
    pub(super) present: i16,
    /// The least definition level of a place in a list; of a list that is there and empty, one less.
    pub(super) place: i16,
}

/// What values are.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Kind {
    /// Whole numbers; whether their highest bit is a value's.
    Whole { unsigned: bool },
    /// Floats of 32 or 64 bits.
    Float,
    /// Nothing but gaps, whose type nobody knew: they are gaps of whatever is expected.
    Blank,
    /// Nothing that is trained on, in the file's words.
    Other(String),
}

impl Leaf {
    /// `several`: its column has other leaves.
    fn new(at: usize, (root, several): (usize, bool), column: &ColumnDescriptor) -> Self {
        let parts = column.path().parts();
        let levels = column.max_rep_level();
        // A list's values are below a group of its own, at most.
        let nested = levels > 1 || parts.len() > if levels == 1 { 3 } else { 1 };
        // Older files have but the converted type.
        let old = column.converted_type();
        let (named, unsigned) = match column.logical_type_ref() {
            Some(LogicalType::Integer(int)) => (false, !int.is_signed),
            Some(_) => (true, false),
            None => {
                let is_whole = matches!(old, Old::INT_8 | Old::INT_16 | Old::INT_32 | Old::INT_64 | Old::NONE);
                let unsigned = matches!(old, Old::UINT_8 | Old::UINT_16 | Old::UINT_32 | Old::UINT_64);
                (!is_whole && !unsigned, unsigned)
            }
        };
        let kind = match column.physical_type() {
            _ if nested || several => Kind::Other("a nested structure".to_owned()),
            Physical::INT32 | Physical::INT64 if column.logical_type_ref() == Some(&LogicalType::Unknown) => {
                Kind::Blank
            }
            Physical::BOOLEAN => Kind::Whole { unsigned: true },
            // A date or a decimal is an integer to Parquet only.
            Physical::INT32 | Physical::INT64 if !named => Kind::Whole { unsigned },
            Physical::FLOAT | Physical::DOUBLE => Kind::Float,
            other => match column.logical_type_ref() {
                Some(logical) => Kind::Other(format!("{other} ({logical:?})")),
                None if old != Old::NONE => Kind::Other(format!("{other} ({old})")),
                None => Kind::Other(other.to_string()),
            },
        };
        Self {
            at,
            column: root,
            name: parts[0].clone(),
            kind,
            list: levels == 1,
            nested: nested || several,
            present: column.max_def_level(),
            place: column.repeated_ancestor_def_level(),
        }
    }

    /// Its kind, for messages.
    pub(super) fn shown(&self) -> String {
        let kind = match &self.kind {
            Kind::Whole { .. } => "whole numbers",
            Kind::Float => "floats",
            Kind::Blank => "no values",
            Kind::Other(kind) => kind,
        };
        if self.list { format!("lists of {kind}") } else { kind.to_owned() }
    }

    fn whole(&self) -> bool {
        matches!(self.kind, Kind::Whole { .. })
    }

    /// Whether it may hold floats: has some, or gaps alone.
    fn float(&self) -> bool {
        matches!(self.kind, Kind::Float | Kind::Blank)
    }

    /// One of its whole numbers, for messages: those without signs are read as if they had some.
    pub(super) fn shown_value(&self, value: i64) -> String {
        if self.kind == (Kind::Whole { unsigned: true }) { (value as u64).to_string() } else { value.to_string() }
    }
}

/// The leaves of a file.
pub(super) fn leaves(schema: &SchemaDescriptor) -> Vec<Leaf> {
    let root = |at: usize| schema.get_column_root_idx(at);
    // Those of a column stand beside each other.
    let beside = |at: usize| [at.checked_sub(1), Some(at + 1).filter(|&next| next < schema.num_columns())];
    let several = |at: usize| beside(at).into_iter().flatten().any(|other| root(other) == root(at));
    let leaf = |(at, column): (usize, &_)| Leaf::new(at, (root(at), several(at)), column);
    schema.columns().iter().enumerate().map(|(at, column)| leaf((at, column))).collect()
}

/// Where a description's columns are in a file.
#[derive(Debug, Clone)]
pub(super) struct Columns {
    /// Nowhere, if there need be none.
    pub(super) label: Option<Leaf>,
    pub(super) dense: Vec<Leaf>,
    /// Row numbers, and their weights where there are any.
    pub(super) categorical: Vec<(Leaf, Option<Leaf>)>,
}

impl Columns {
    /// The leaves that `description` names.
    ///
    /// # Errors
    /// A sentence that names the column which is missing or has another type.
    pub(super) fn find(leaves: &[Leaf], description: &Description, labels: Labels) -> Result<Self, String> {
        let find = |name: &str| {
            let mut found = leaves.iter().filter(|leaf| leaf.name == name);
            let leaf = found.next().ok_or_else(|| missing(leaves, &[name]))?;
            match found.next() {
                Some(other) if other.column == leaf.column => Err(format!("column {name} is a structure of several")),
                Some(other) => Err(format!(
                    "has two columns {name}, numbers {} and {}: write it again with another name for one of them",
                    leaf.column + 1,
                    other.column + 1
                )),
                None => Ok(leaf.clone()),
            }
        };
        let number = |name: &str, float: bool| {
            let leaf = find(name)?;
            let fits = !leaf.list && (leaf.whole() || leaf.kind == Kind::Blank || (float && leaf.kind == Kind::Float));
            let wanted = if float { "floats" } else { "whole numbers" };
            fits.then_some(leaf.clone()).ok_or_else(|| {
                let hint = if !float && leaf.kind == Kind::Float { " (float = true in the schema)" } else { "" };
                format!("column {name} has {}, but {wanted} are expected{hint}", leaf.shown())
            })
        };
        let name = &description.label.name;
        let there = leaves.iter().any(|leaf| leaf.name == *name);
        let label = match labels {
            Labels::Required if !there => {
                let advice = "a schema.toml beside the files names the label if it is another one";
                return Err(format!("{}: {advice}", missing(leaves, &[name])));
            }
            // What stands in its place may be anything.
            Labels::Unused => None,
            Labels::Required | Labels::Optional => there.then(|| find(name)).transpose()?,
        };
        if let Some(label) = label.as_ref().filter(|label| label.list || matches!(label.kind, Kind::Other(_))) {
            return Err(format!("the label {} has {}, but numbers are expected", label.name, label.shown()));
        }
        let categorical = |column: &Categorical| {
            let leaf = find(&column.name)?;
            // A row without a value is told when it is read: lists may all be empty.
            if !leaf.whole() && leaf.kind != Kind::Blank {
                let advice = "number its values first, as `octorec preprocess csv` or NVTabular's Categorify do";
                let (name, shown) = (&column.name, leaf.shown());
                return Err(format!("column {name} has {shown}, but row numbers are expected: {advice}"));
            }
            if !leaf.list && column.hots != 1 {
                let Categorical { name, hots, .. } = column;
                return Err(format!("column {name} has one value a row, but hots = {hots} needs lists"));
            }
            if !column.weighted {
                return Ok((leaf, None));
            }
            let weights = find(&format!("{}{WEIGHTS}", column.name))?;
            if !weights.float() || weights.list != leaf.list {
                let (name, shown) = (&weights.name, weights.shown());
                return Err(format!("column {name} has {shown}, but a float for each value of {} is due", leaf.name));
            }
            Ok((leaf, Some(weights)))
        };
        Ok(Self {
            label,
            dense: description
                .dense
                .iter()
                .map(|column| number(&column.name, column.float))
                .collect::<Result<_, _>>()?,
            categorical: description.categorical.iter().map(categorical).collect::<Result<_, _>>()?,
        })
    }

    /// All of them.
    pub(super) fn all(&self) -> impl Iterator<Item = &Leaf> {
        let categorical = self.categorical.iter().flat_map(|(rows, weights)| std::iter::once(rows).chain(weights));
        self.label.iter().chain(&self.dense).chain(categorical)
    }
}

/// That a file lacks columns.
fn missing(leaves: &[Leaf], names: &[&str]) -> String {
    let known: Vec<_> = leaves.iter().map(|leaf| &leaf.name[..]).collect();
    format!("has no column {}; it has {}", names.join(", "), known.join(", "))
}

/// What `_metadata.json` says columns are for.
#[derive(Debug, Deserialize)]
pub(super) struct Merlin {
    labels: Vec<Named>,
    #[serde(default)]
    conts: Vec<Named>,
    #[serde(default)]
    cats: Vec<Named>,
}

#[derive(Debug, Deserialize)]
struct Named {
    col_name: String,
}

fn dense(leaf: &Leaf) -> Dense {
    let float = leaf.float();
    let transform = if float { Transform::None } else { Transform::Log };
    Dense { name: leaf.name.clone(), float, transform, ..Dense::default() }
}

fn categorical(leaves: &[Leaf], leaf: &Leaf) -> Categorical {
    let weights = format!("{}{WEIGHTS}", leaf.name);
    let weighted = leaves.iter().find(|leaf| leaf.name == weights).is_some_and(Leaf::float);
    Categorical { hots: u32::from(!leaf.list), weighted, ..Categorical::new(&leaf.name, 0) }
}

impl Merlin {
    /// The label; nothing where several are named, or none, and nobody reads one.
    fn label(&self, labels: Labels) -> Result<Option<Label>, String> {
        match &self.labels[..] {
            [label] => Ok(Some(Label { name: label.col_name.clone(), float: false })),
            _ if labels == Labels::Unused => Ok(None),
            others => Err(format!("_metadata.json has {} labels: name one in a schema.toml", others.len())),
        }
    }
}

/// The columns that a trained model reads, by their names; categorical ones have no rows yet. Where it names none, they
/// are told as those of files without a schema are.
///
/// # Errors
/// A sentence that names the columns which are missing.
pub(super) fn of_trained(
    leaves: &[Leaf],
    merlin: Option<&Merlin>,
    trained: &TrainedColumns,
    labels: Labels,
) -> Result<Description, String> {
    if trained.names.is_empty() {
        return inferred(leaves, merlin, labels);
    }
    let find = |name: &str| leaves.iter().find(|leaf| leaf.name == name);
    let dense_names = trained.dense.iter().flatten().map(|(name, _)| name);
    let weight = trained.weight.as_ref().filter(|_| labels == Labels::Required);
    let absent: Vec<&str> = dense_names
        .chain(&trained.names)
        .chain(weight)
        .map(String::as_str)
        .filter(|name| find(name).is_none())
        .collect();
    if !absent.is_empty() {
        let advice = "the model was trained on columns of these names: name files that have them, or describe columns of \
                      other names in a schema.toml beside the files";
        return Err(format!("{}: {advice}", missing(leaves, &absent)));
    }
    let there = |name: &String| find(name).ok_or_else(|| missing(leaves, &[name]));
    let read = |(name, how): &(String, String)| {
        let told = dense(there(name)?);
        // A column may be of floats for its gaps alone: it is read as it was.
        let mut ways = Transform::ALL.map(|transform| Dense { transform, ..told.clone() }).into_iter();
        Ok(ways.find(|way| way.title().1 == *how).unwrap_or(told))
    };
    // Other files may call it as those do that nobody has described.
    let usual = Label { float: trained.label.as_ref().is_some_and(|own| own.float), ..Label::default() };
    let own = trained.label.clone().filter(|own| find(&own.name).is_some() || find(&usual.name).is_none());
    let mut dense = match &trained.dense {
        Some(columns) => columns.iter().map(read).collect::<Result<_, String>>()?,
        None => inferred(leaves, merlin, labels)?.dense,
    };
    dense.retain(|column| Some(&column.name) != trained.weight.as_ref());
    dense.extend(weight.map(|name| Dense { name: name.clone(), float: true, ..Dense::default() }));
    Ok(Description {
        weight: weight.cloned(),
        label: merlin.map(|told| told.label(labels)).transpose()?.flatten().or(own).unwrap_or(usual),
        dense,
        categorical: trained
            .names
            .iter()
            .map(|name| Ok(categorical(leaves, there(name)?)))
            .collect::<Result<_, String>>()?,
    })
}

/// The columns that files without a schema have; categorical ones have no rows yet.
///
/// # Errors
/// A sentence that names the column which cannot be told.
pub(super) fn inferred(leaves: &[Leaf], merlin: Option<&Merlin>, labels: Labels) -> Result<Description, String> {
    let find = |name: &str| leaves.iter().find(|leaf| leaf.name == name);
    let mut description = Description::default();
    if let Some(merlin) = merlin {
        let leaf = |named: &Named| {
            find(&named.col_name).ok_or_else(|| format!("has no column {}, which _metadata.json names", named.col_name))
        };
        description.label = merlin.label(labels)?.unwrap_or_default();
        for named in &merlin.conts {
            description.dense.push(dense(leaf(named)?));
        }
        for named in &merlin.cats {
            description.categorical.push(categorical(leaves, leaf(named)?));
        }
        return Ok(description);
    }
    // Lists that are all empty have no type either.
    let is_rows = |leaf: &Leaf| leaf.whole() || leaf.list && leaf.kind == Kind::Blank;
    let weights = |name: &str| name.strip_suffix(WEIGHTS).is_some_and(|of| find(of).is_some_and(is_rows));
    for leaf in leaves.iter().filter(|leaf| leaf.name != description.label.name && !is_index(&leaf.name)) {
        match &leaf.kind {
            Kind::Float | Kind::Blank if weights(&leaf.name) => (),
            Kind::Float | Kind::Blank if !leaf.list => description.dense.push(dense(leaf)),
            Kind::Whole { .. } if !leaf.list && counted(&leaf.name) => description.dense.push(dense(leaf)),
            Kind::Whole { .. } | Kind::Blank => description.categorical.push(categorical(leaves, leaf)),
            _ => {
                let advice = "`octorec inspect FILE --write-schema SCHEMA` proposes a schema for such values, which --schema SCHEMA \
                              takes; or leave it out by a schema.toml beside the files";
                return Err(format!(
                    "column {} has {}, which is neither dense nor row numbers: {advice}",
                    leaf.name,
                    leaf.shown()
                ));
            }
        }
    }
    Ok(description)
}

/// Whether whole numbers of this name are counts, as Criteo's `I1` to `I13` are; TorchRec calls them `int_0` to
/// `int_12`.
fn counted(name: &str) -> bool {
    let number = name.strip_prefix('I').or_else(|| name.strip_prefix("int_"));
    number.is_some_and(|digits| !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit()))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use parquet::schema::parser::parse_message_type;
    use parquet::schema::types::Type;

    use super::*;

    #[test]
    fn older_files_tell_by_the_converted_type_alone_what_integers_are() {
        let kind = |physical: Physical, old: Old| {
            let column = Type::primitive_type_builder("day", physical).with_converted_type(old);
            let column = column.with_precision(9).with_scale(2).build().unwrap();
            assert_eq!(column.get_basic_info().logical_type_ref(), None);
            let rows = Type::group_type_builder("rows").with_fields(vec![Arc::new(column)]).build().unwrap();
            leaves(&SchemaDescriptor::new(Arc::new(rows))).swap_remove(0).kind
        };
        let (short, long) = (Physical::INT32, Physical::INT64);
        for old in [Old::DATE, Old::DECIMAL, Old::TIME_MILLIS] {
            assert_eq!(kind(short, old), Kind::Other(format!("INT32 ({old})")));
        }
        for old in [Old::DECIMAL, Old::TIME_MICROS, Old::TIMESTAMP_MILLIS, Old::TIMESTAMP_MICROS] {
            assert_eq!(kind(long, old), Kind::Other(format!("INT64 ({old})")));
        }
        for (physical, old) in [(short, Old::UINT_8), (short, Old::UINT_32), (long, Old::UINT_64)] {
            assert_eq!(kind(physical, old), Kind::Whole { unsigned: true });
        }
        for (physical, old) in [(short, Old::INT_16), (long, Old::INT_64), (short, Old::NONE), (long, Old::NONE)] {
            assert_eq!(kind(physical, old), Kind::Whole { unsigned: false });
        }
    }

    #[test]
    fn lists_are_of_values_and_not_of_structures() {
        let told = |column: &str| {
            let leaves = leaves(&SchemaDescriptor::new(Arc::new(
                parse_message_type(&format!("message rows {{ {column} }}")).unwrap(),
            )));
            let found = inferred(&leaves, None, Labels::Required);
            found.map(|found| found.categorical.iter().map(|column| column.hots).collect::<Vec<_>>())
        };
        let list = |of: &str| format!("optional group ids (LIST) {{ repeated group list {{ {of} }} }}");
        assert_eq!(told(&list("optional int64 element;")), Ok(vec![0]));
        assert_eq!(told("repeated int64 ids;"), Ok(vec![0]));
        for (column, kind) in [
            (list("optional group element { optional int64 id; }"), "lists of a nested structure"),
            (format!("optional group ids {{ {} }}", list("optional int64 element;")), "lists of a nested structure"),
            ("optional group ids { optional int64 id; }".to_owned(), "a nested structure"),
        ] {
            let message = told(&column).unwrap_err();
            assert!(message.starts_with(&format!("column ids has {kind}, which is neither")), "{message}");
        }
    }

    #[test]
    fn columns_of_one_name_are_told_with_their_numbers() {
        let found = |columns: &str| {
            let message = format!("message rows {{ required int32 label; {columns} }}");
            let leaves = leaves(&SchemaDescriptor::new(Arc::new(parse_message_type(&message).unwrap())));
            let categorical = vec![Categorical { hots: 1, ..Categorical::new("user", 10) }];
            let label = Label { name: "label".to_owned(), float: false };
            let description = Description { label, categorical, ..Description::default() };
            Columns::find(&leaves, &description, Labels::Required).map(|_| ())
        };
        assert_eq!(found("required int64 age; required int64 user;"), Ok(()));
        let told = found("required int64 user; required int64 age; required int64 user;").unwrap_err();
        assert_eq!(told, "has two columns user, numbers 2 and 4: write it again with another name for one of them");
        let told = found("required group user { required int64 a; required int64 b; }").unwrap_err();
        assert_eq!(told, "column user is a structure of several");
    }

    #[test]
    fn a_trained_models_label_is_of_its_kind_under_the_usual_name_too() {
        for name in ["grade", "label"] {
            let message = format!("message rows {{ required double {name}; required int64 user; }}");
            let leaves = leaves(&SchemaDescriptor::new(Arc::new(parse_message_type(&message).unwrap())));
            let label = |name: &str| Label { name: name.to_owned(), float: true };
            let trained = TrainedColumns {
                names: vec!["user".to_owned()],
                rows: vec![10],
                dense: Some(Vec::new()),
                label: Some(label("grade")),
                weight: None,
            };
            assert_eq!(of_trained(&leaves, None, &trained, Labels::Required).unwrap().label, label(name));
        }
    }

    #[test]
    fn labels_that_metadata_name_matter_to_those_who_read_one() {
        let message = "message rows { required int32 a; required int32 b; required float price; required int64 user; }";
        let leaves = leaves(&SchemaDescriptor::new(Arc::new(parse_message_type(message).unwrap())));
        let columns = r#""conts": [{"col_name": "price"}], "cats": [{"col_name": "user"}]"#;
        for (labels, count) in [("", 0), (r#"{"col_name": "a"}, {"col_name": "b"}"#, 2)] {
            let merlin: Merlin = serde_json::from_str(&format!(r#"{{"labels": [{labels}], {columns}}}"#)).unwrap();
            for names in [vec!["user".to_owned()], Vec::new()] {
                // Without names, and of dense columns that no earlier version has kept, all is told by the files.
                let trained = TrainedColumns { rows: vec![10], names, dense: None, label: None, weight: None };
                let found = |labels| of_trained(&leaves, Some(&merlin), &trained, labels);
                let told = format!("_metadata.json has {count} labels: name one in a schema.toml");
                assert_eq!(found(Labels::Optional).unwrap_err(), told);
                let found = found(Labels::Unused).unwrap();
                assert_eq!((&*found.dense[0].name, &*found.categorical[0].name), ("price", "user"));
            }
        }
    }

    #[test]
    fn the_weight_of_a_trained_model_is_a_feature_to_nobody() {
        let message =
            "message rows { required int32 label; required double price; required double w; required int64 user; }";
        let leaves = leaves(&SchemaDescriptor::new(Arc::new(parse_message_type(message).unwrap())));
        // Of blocks, in files of versions that did not say how dense columns were read.
        let trained = TrainedColumns {
            names: vec!["user".to_owned()],
            rows: vec![10],
            dense: None,
            label: None,
            weight: Some("w".to_owned()),
        };
        for (labels, weight) in [(Labels::Required, Some("w")), (Labels::Optional, None)] {
            let found = of_trained(&leaves, None, &trained, labels).unwrap();
            let features: Vec<_> = found.features().iter().map(|column| &*column.name).collect();
            assert_eq!((features, found.weight.as_deref()), (vec!["price"], weight));
        }
    }
}
