//! How tables are divided for a run: what the configuration and the data ask of them, what this machine does, and the
//! plan that follows from both, or from a file.

use std::path::Path;

use super::by_number::ByNumber;
use super::collective::tensors;
use super::copies::usual_budget;
use super::figures;
use super::session::open_data;
use crate::base::config::{
    Collective, Config, DataConfig, Determinism, Hot, ModelConfig, SourceKind, TrainConfig, Update,
};
use crate::base::console::note;
use crate::base::units::{Count, Many};
use crate::base::{Error, RankId, Result, input};
use crate::data::hot::WHOLE_BELOW;
use crate::data::{Labels, Opening, Schema, Source};
use crate::machine::placement::Placement;
use crate::machine::site::Known;
use crate::machine::{Machine, Site};
use crate::math::Grains;
use crate::model::{Shape, StoredTables, param_states, table_param_groups};
use crate::optim::{ByGroup, Optimizer, ParamGroup, ParamState};
use crate::shard::demand::{Demand, measured};
use crate::shard::planner::{plan_by_free, price};
use crate::shard::scheme::{Scheme, Sharding};
use crate::shard::{Model, Options, Plan, Reserve, TableLoad, Workload, file};

/// Samples from which look-ups and their skew are measured: a minibatch, within these bounds.
const MEASURED: std::ops::RangeInclusive<usize> = 2048..=16_384;

/// Bytes of a look-up in the lists by which rows are moved in order: it is sorted from one to another.
const SORTED_BYTES: usize = 2 * size_of::<u64>();

/// Which plan ranks follow.
#[derive(Debug, Clone, Copy, Default)]
pub struct Wanted<'a> {
    /// The user's.
    pub file: Option<&'a Path>,
    /// That of the run which is continued: followed if it is for as many ranks.
    pub kept: Option<&'a Path>,
    /// Whether the data's first samples may be looked at.
    pub sampled: bool,
}

/// What tables are divided for.
#[derive(Debug, Clone, Copy)]
pub enum Aim<'a> {
    /// To train them.
    Train,
    /// To predict, with those that a checkpoint has looked up there.
    Predict(Option<&'a StoredTables>),
}

impl<'a> Aim<'a> {
    /// To predict with what a checkpoint has, or to train.
    #[must_use]
    pub const fn of(predicts: bool, stored: Option<&'a StoredTables>) -> Self {
        if predicts { Self::Predict(stored) } else { Self::Train }
    }
}

/// A division of tables.
#[derive(Debug)]
pub struct Division {
    /// Who holds what.
    pub sharding: Sharding,
    /// The same as a plan's file; nothing for one rank, which has no choice.
    pub toml: Option<String>,
    /// How the plan that is followed says that dense gradients are reduced.
    pub collective: Option<String>,
    /// Where it comes from, and by whose figures.
    pub told: Vec<String>,
}

/// Divides the tables of a model that is to be trained or used: as a plan's file says, or as is predicted to be best.
///
/// # Errors
/// When the file does not fit the model or a rank cannot hold its part.
pub fn divide(
    config: &Config,
    source: &dyn Source,
    site: (&Machine, &Placement),
    wanted: Wanted<'_>,
    aim: Aim<'_>,
) -> Result<Division> {
    check_data(config, source)?;
    ByNumber::of(config, source).explain(divided(config, source, site, wanted, aim))
}

fn divided(
    config: &Config,
    source: &dyn Source,
    (machine, placement): (&Machine, &Placement),
    wanted: Wanted<'_>,
    aim: Aim<'_>,
) -> Result<Division> {
    let several = placement.ranks.len() > 1;
    let site = Site::new(machine, placement, Known::default());
    // What cannot change a plan need not be measured.
    let chosen = wanted.file.is_none() && several;
    let (demands, looked_at) = demands(config, source, wanted.sampled && chosen);
    let workload = workload(config, tables(config, source.schema(), &demands, aim), aim);
    let model = Model::new(&workload, &site);
    let mut told = Vec::new();
    let followed = match (wanted.file, wanted.kept.filter(|_| several)) {
        (Some(path), _) => Some(follow(&model, path)?),
        (None, Some(path)) => keep(&model, path, &mut told)?,
        (None, None) => None,
    };
    if let Some(path) = wanted.kept.filter(|path| !several && path.exists()) {
        // Which one rank does not follow, so that it may be damaged.
        let before = input::read_text(path).and_then(|text| file::ranks(&text, &path.display().to_string()));
        told.extend(before.ok().map(|before| {
            let ranks = Many(before as u64, "rank");
            format!("one rank goes on with the run of {ranks}: --ranks {before} goes on as it began")
        }));
    }
    let path = wanted.file.or(wanted.kept).filter(|_| followed.is_some() && several);
    let named = |path: &Path| file::collective(&input::read_text(path)?, &path.display().to_string());
    let collective = path.map(named).transpose()?.flatten();
    let plan = match followed {
        Some(plan) => plan,
        None if !several && matches!(aim, Aim::Predict(_)) => {
            // There is no choice, and what of stored tables is asked for is read when it is.
            let schemes = vec![Scheme::Table(RankId(0)); workload.tables.len()];
            let rows: Vec<u64> = workload.tables.iter().map(|table| table.rows).collect();
            let sharding = Sharding::new(&rows, workload.dims(), 1, schemes).expect("whole tables on the only rank");
            return Ok(Division { sharding, toml: None, collective, told });
        }
        None => {
            if several {
                told.push(figures::line(machine, &site.assumptions));
                told.extend(figures::remark(machine));
                told.extend(looked_at);
                told.extend(undivided(&config.model).map(str::to_owned));
            }
            plan_by_free(&model, &Options::default(), &mut told)?
        }
    };
    let toml = several.then(|| file::to_toml(&plan.sharding, &workload, &about(&model, &plan)));
    Ok(Division { sharding: plan.sharding, toml, collective, told })
}

/// Checks that data have what a model reads.
///
/// # Errors
/// [`Error::Config`], which names their file if they are stored.
pub fn check_data(config: &Config, source: &dyn Source) -> Result<()> {
    source.schema().check_model(&config.model).map_err(|error| match error {
        // What the data lacks is told of its file.
        Error::Config { origin, reason } if origin == "data" && config.data.is_stored() => {
            Error::config(config.data.path.clone(), reason)
        }
        error => error,
    })
}

/// Why columns of tables are not divided, where that is the model's to say.
pub fn undivided(model: &ModelConfig) -> Option<&'static str> {
    model.weighs_rows().then_some(
        "plan: columns of tables are not divided: model.weighted_pooling = \"learned\" gives each row one weight, for which a rank \
         needs all of its columns",
    )
}

/// The plan of a file.
///
/// # Errors
/// When it cannot be read, or does not fit the model or the machine.
pub fn follow(model: &Model<'_>, path: &Path) -> Result<Plan> {
    let text = input::read_text(path)?;
    price(model, file::parse(&text, &path.display().to_string(), model.workload, model.ranks())?)
}

/// The plan that a run has followed until now, if it is for as many ranks.
fn keep(model: &Model<'_>, path: &Path, told: &mut Vec<String>) -> Result<Option<Plan>> {
    if !path.exists() {
        return Ok(None);
    }
    let text = input::read_text(path)?;
    let remedy = |error: Error| match error {
        Error::ShardingPlan { origin, line, reason } => {
            let reason = format!("{reason}; to continue with a new plan, remove this file");
            Error::ShardingPlan { origin, line, reason }
        }
        other => other,
    };
    let (origin, ranks) = (path.display().to_string(), model.ranks());
    let planned = file::ranks(&text, &origin).map_err(remedy)?;
    if planned != ranks {
        told.push(format!("plan: a new one for {ranks} ranks, the run's was for {}", Many(planned as u64, "rank")));
        return Ok(None);
    }
    let sharding = file::parse(&text, &origin, model.workload, ranks).map_err(remedy)?;
    told.push(format!("plan: as the run has it ({origin})"));
    // Nobody has named this file with --plan.
    let too_big = |error: Error| match error {
        Error::ShardTooBig { table, name, need, place, free, .. } => {
            let advice = format!("remove {origin} to continue with a new plan, or lower --batch or train.eval_batch");
            Error::ShardTooBig { table, name, need, place, free, advice }
        }
        other => other,
    };
    price(model, sharding).map(Some).map_err(too_big)
}

/// What is asked of each table, as far as it is known without looking at the data; and, if that was looked at, a line
/// that says so.
fn demands(config: &Config, source: &dyn Source, sampled: bool) -> (Vec<Demand>, Option<String>) {
    let columns = config.model.deep_tables(source.schema().tables.len());
    if config.data.source == SourceKind::Random {
        let drawn = (0..columns).map(|column| drawn(&config.data, column)).collect();
        return (widened(config, source.schema(), drawn), None);
    }
    let samples = config.train.minibatch().clamp(*MEASURED.start(), *MEASURED.end());
    if let Some((demands, samples)) = sampled.then(|| measured(source, samples)).flatten() {
        let told =
            format!("look-ups of a sample, and how often rows come: as in the first {} samples", Count(samples as u64));
        return (demands, Some(told));
    }
    let look_ups = |table: usize| match config.data.is_stored() {
        true => source.schema().tables[table].lookups,
        false => config.data.lookups.of(table),
    };
    let known = (0..columns).map(|column| Demand { lookups: look_ups(column) as f64, skew: 0.0 }).collect();
    (widened(config, source.schema(), known), None)
}

/// What is asked of all tables, where it is known of the data's columns: of a wide part the same again, and of a cross
/// each combination of its columns' look-ups, which come at least as unevenly as those of the most even one.
fn widened(config: &Config, schema: &Schema, columns: Vec<Demand>) -> Vec<Demand> {
    if !config.model.wide {
        return columns;
    }
    let of = |name: &String| {
        let column = schema.tables.iter().position(|column| column.name == *name);
        columns[column.expect("a cross is of the data's columns: the schema has its table")]
    };
    let crosses = config.model.wide_crosses.iter().map(|cross| {
        let crossed = cross.iter().map(of);
        let both = |a: Demand, b: Demand| Demand { lookups: a.lookups * b.lookups, skew: a.skew.min(b.skew) };
        crossed.reduce(both).expect("a cross is of two columns or more")
    });
    let crosses: Vec<Demand> = crosses.collect();
    [&columns[..], &columns, &crosses].concat()
}

/// What random data asks of a table.
fn drawn(data: &DataConfig, table: usize) -> Demand {
    let most = data.lookups.of(table) as f64;
    Demand { lookups: if data.lookups_fixed { most } else { (most + 1.0) / 2.0 }, skew: data.zipf }
}

/// What a configuration asks of a machine that need not be there: its data is looked at, nothing is built. Look-ups a
/// sample and their skew may be known better. Of tables that no memory has room for, what comes second tells more.
///
/// # Errors
/// When the data cannot be read, or the model has no tables.
pub fn planned(config: &mut Config, lookups: Option<f64>, skew: Option<f64>) -> Result<(Workload, ByNumber)> {
    let opening = Opening { labels: Labels::Optional, ..Opening::default() };
    let source = open_data(config, opening)?;
    if !config.model.layers.is_empty() {
        source.schema().check_model(&config.model)?;
    }
    let known = lookups.is_some() && skew.is_some();
    let (mut demands, looked_at) = demands(config, &*source, !known);
    looked_at.iter().for_each(|line| note!("{line}"));
    for demand in &mut demands {
        demand.lookups = lookups.unwrap_or(demand.lookups);
        demand.skew = skew.unwrap_or(demand.skew);
    }
    // Crosses have as many rows as the model says; what a table's width follows is its rows.
    let mut schema = source.schema().clone();
    let capped = schema.tables.len() - if config.model.wide { config.model.wide_crosses.len() } else { 0 };
    schema.tables[..capped].iter_mut().for_each(|column| column.rows = config.data.capped(column.rows));
    let tables = tables(config, &schema, &demands, Aim::Train);
    if tables.is_empty() {
        let reason = "the model has no embedding tables: there is nothing to divide".to_owned();
        return Err(Error::config("model.rows", reason));
    }
    Ok((workload(config, tables, Aim::Train), ByNumber::of(config, &*source)))
}

/// What is asked of the tables of a schema. Those of a wide part have a width and an optimizer of their own.
fn tables(config: &Config, schema: &Schema, demands: &[Demand], aim: Aim<'_>) -> Vec<TableLoad> {
    let (kept, groups) = (kept_by_group(config, aim), table_param_groups(&config.model, schema.tables.len()));
    let positions = schema.positions(&config.model);
    let (learns, by_sorting) =
        (matches!(aim, Aim::Train), matches!(config.train.update, Update::Auto | Update::Sorted));
    let columns = schema.tables.iter().zip(config.model.dims(&schema.rows())).enumerate();
    let table = columns.zip(demands).map(|((table, (column, dim)), demand)| {
        let kept = kept[groups[table]];
        let positions = positions[table];
        TableLoad {
            name: column.name.clone(),
            rows: column.rows,
            dim,
            positions,
            // Of a longer list only the last ones are steps.
            lookups: if positions > 1 { demand.lookups.min(positions as f64) } else { demand.lookups },
            longest: column.lookups.max(positions),
            skew: demand.skew,
            weighted: column.weighted,
            state_bytes: kept.bytes() - kept.precision.read_bytes(),
            row_weight_bytes: if kept.row_weights { size_of::<f32>() } else { 0 },
            row_state_bytes: kept.row_bytes(),
            sorting: if learns && (kept.sums_gradients() || by_sorting) { SORTED_BYTES } else { 0 },
            stored: matches!(aim, Aim::Predict(Some(stored)) if stored.has(table, [column.rows as usize, dim])),
        }
    });
    table.collect()
}

/// What is kept of the weights of each group of parameters.
fn kept_by_group(config: &Config, aim: Aim<'_>) -> ByGroup<ParamState> {
    let optimizers = match aim {
        Aim::Train => ByGroup::configured(&config.train),
        Aim::Predict(_) => ByGroup::all(Optimizer::None),
    };
    param_states(&config.model, config.train.precision, optimizers)
}

/// What minibatches are cut into, if the number of ranks shall change no bit.
#[must_use]
pub fn grains(train: &TrainConfig) -> Option<Grains> {
    (train.determinism == Determinism::Ranks).then(|| Grains::of(train.minibatch()))
}

/// What a configuration makes of tables.
fn workload(config: &Config, tables: Vec<TableLoad>, aim: Aim<'_>) -> Workload {
    let learns = matches!(aim, Aim::Train);
    let (precision, collective) = (config.train.precision, config.train.collective);
    let layers = kept_by_group(config, aim)[ParamGroup::Dense];
    let positions: Vec<usize> = tables.iter().map(|table| table.positions).collect();
    let dims: Vec<usize> = tables.iter().map(|table| table.dim).collect();
    let shape = Shape::of(&config.model, &positions, &dims);
    let [part_bytes, part_rows] = shape.part_sizes();
    let parameters = shape.parameters() as u64;
    let gradient = if learns { size_of::<f32>() } else { 0 };
    let reserve = match aim {
        Aim::Predict(_) => Reserve::default(),
        Aim::Train => Reserve {
            samples: config.train.eval_batch,
            gradient_rows: !config.train.update_fused,
            copies: copies(config, &tables),
            gradients: parameters * size_of::<f32>() as u64,
        },
    };
    Workload {
        tables,
        batch: if learns { config.train.minibatch() } else { config.train.eval_batch },
        weight_bytes: precision.read_bytes(),
        exchange_bytes: config.wires().rows.bytes(),
        payload: config.wires().dense.into(),
        // Weights with what is kept beside them, and gradients; activations and theirs.
        dense_bytes: parameters * (layers.bytes() + gradient) as u64,
        sample_bytes: shape.sample_bytes() as u64,
        part_bytes: part_bytes as u64,
        part_rows,
        part: config.train.part.given(),
        layers: tensors(&shape, layers.precision),
        collective: (collective != Collective::Auto).then(|| collective.name()),
        sample_operations: shape.operations() as u64,
        bf16: layers.precision.is_split(),
        learns,
        grains: grains(&config.train),
        reserve,
    }
}

/// What a rank's copies of hot rows take at most, with those that take their place where they are revised. A sum of
/// gradients is counted for each, which some runs have no need of.
fn copies(config: &Config, tables: &[TableLoad]) -> u64 {
    let TrainConfig { hot, hot_budget, hot_revise, .. } = &config.train;
    if *hot == Hot::Off {
        return 0;
    }
    let (exact, longest) = (*hot == Hot::Exact, tables.iter().map(|table| table.longest).max().unwrap_or(1));
    // A row pays for its copies that a minibatch looks up as often as there are ranks: no others are copied exactly.
    let most = if exact { (config.train.minibatch() as u64).saturating_mul(longest as u64) / 2 } else { u64::MAX };
    let sum =
        |tables: &[TableLoad], bytes: &dyn Fn(&TableLoad) -> u64| tables.iter().map(bytes).fold(0, u64::saturating_add);
    let copied = sum(tables, &|table| table.rows.min(most).saturating_mul(table.copy_bytes()));
    let deep = &tables[..config.model.deep_tables(tables.len())];
    let widest = deep.iter().map(|table| table.dim).max().unwrap_or(0);
    // A budget buys as many rows as if all were of the widest table (`copies`), and they may all be of that.
    let weights = sum(deep, &|table| table.rows.saturating_mul((widest * size_of::<f32>()) as u64));
    // Small tables are hot as a whole beside FAE's usual budget.
    let whole = |table: &TableLoad| table.rows.saturating_mul(table.copy_bytes());
    let small = |table: &TableLoad| if whole(table) < WHOLE_BELOW { whole(table) } else { 0 };
    let beside = if exact { 0 } else { sum(tables, &small) };
    let budget = match &*config.train.hot_set {
        "" => hot_budget.or(usual_budget(weights).saturating_add(beside)),
        // As many rows as the file has, a number of 32 bits each, and the tables' widest.
        path => {
            let rows = std::fs::metadata(path).map_or(0, |file| file.len() / size_of::<u32>() as u64);
            rows.saturating_mul(tables.iter().map(TableLoad::copy_bytes).max().unwrap_or(0))
        }
    };
    let budget = budget.min(copied);
    if exact && *hot_revise > 0 { budget.saturating_mul(2) } else { budget }
}

/// The first lines of a plan's file.
pub fn about(model: &Model<'_>, plan: &Plan) -> String {
    format!(
        "Who holds which part of which table: {} on {} of {}, minibatch {}.\n\
         Predicted {:.3} ms a minibatch for the slowest rank, nothing hidden. Edit and pass back with --plan FILE.",
        Many(model.workload.tables.len() as u64, "table"),
        Many(model.ranks() as u64, "rank"),
        model.site.machine,
        model.workload.batch,
        plan.cost.score.slowest_s * 1e3
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_of_mixed_widths_have_room_for_as_many_hot_rows_as_are_told() {
        let room = |temperature: f64| {
            let mut config = Config::default();
            (config.model.dim, config.model.md_temperature) = (16, temperature);
            (config.model.wide, config.train.hot) = (false, Hot::Fae);
            let schema = Schema::criteo(1, &[1 << 20, 1 << 24]);
            let demands = [Demand { lookups: 1.0, skew: 0.0 }; 2];
            let tables = tables(&config, &schema, &demands, Aim::Train);
            assert_eq!(tables[0].dim > tables[1].dim, temperature > 0.0, "the larger one is narrower");
            copies(&config, &tables)
        };
        assert_eq!([0.0, 0.5].map(room), [usual_budget(((1 << 20) + (1 << 24)) * 64); 2]);
    }
}
