//! A plan for the eye: who holds what, what each rank's minibatch takes, and why.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use super::cost::Model;
use super::forecast::{Limit, copier_name};
use super::planner::{Alternative, Plan};
use super::scheme::{Kind, Scheme};
use super::workload::Workload;
use crate::base::TableId;
use crate::base::units::{Bytes, Count, Many};
use crate::machine::draw::table;
use crate::machine::ranges::ranges;

/// Tables and ranks are listed up to so many.
const LISTED: usize = 64;

/// Characters of the longest bar.
const BAR: usize = 40;

fn ms(seconds: f64) -> String {
    format!("{:.3}", seconds * 1e3)
}

/// Everything about a plan.
#[must_use]
pub fn text(model: &Model<'_>, plan: &Plan) -> String {
    let mut out = String::new();
    // Writing to a String cannot fail.
    let _ = write(model, plan, &mut out);
    out
}

fn write(model: &Model<'_>, plan: &Plan, out: &mut String) -> std::fmt::Result {
    let (site, work, cost) = (model.site, model.workload, &plan.cost);
    let rows: u64 = work.tables.iter().map(|table| table.rows).sum();
    writeln!(
        out,
        "plan       {}, {} of {}, on {} of {}; minibatch {}",
        Many(work.tables.len() as u64, "table"),
        Many(rows, "row"),
        columns(work),
        Many(model.ranks() as u64, "rank"),
        site.machine,
        work.batch
    )?;
    let (slowest, mean) = (cost.score.slowest_s, cost.score.mean_s);
    writeln!(out, "predicted  {} ms for the slowest rank, {} ms on average", ms(slowest), ms(mean))?;
    if plan.start.slowest_s > slowest {
        writeln!(
            out,
            "           greedy start {} ms; {} divisions priced",
            ms(plan.start.slowest_s),
            Count(plan.priced as u64)
        )?;
    }
    let Limit { rank, what, seconds } = &cost.limit;
    let share = 100.0 * seconds / slowest.max(f64::MIN_POSITIVE);
    writeln!(out, "limited by {what}, {} of {} ms on {rank} ({share:.0} %)", ms(*seconds), ms(slowest))?;
    tables(model, plan, out)?;
    ranks(model, plan, out)?;
    bars(plan, out)?;
    exchanges(plan, out)?;
    if !site.assumptions.is_empty() {
        writeln!(out, "\nassumed\n  {}", site.assumptions.join("\n  "))?;
    }
    Ok(())
}

/// The widths of tables: the widest, and how many tables have fewer columns.
fn columns(work: &Workload) -> String {
    let widest = work.widest();
    let mut narrower = BTreeMap::<usize, u64>::new();
    for dim in work.dims().into_iter().filter(|dim| *dim < widest) {
        *narrower.entry(dim).or_default() += 1;
    }
    let narrower = narrower.iter().rev();
    let narrower = narrower.map(|(dim, count)| format!(" ({}: {dim})", Many(*count, "table")));
    std::iter::once(Many(widest as u64, "column").to_string()).chain(narrower).collect()
}

fn tables(model: &Model<'_>, plan: &Plan, out: &mut String) -> std::fmt::Result {
    let mut cells = vec![["table", "name", "rows", "bytes", "scheme", "on ranks"].map(str::to_owned).to_vec()];
    let shown = TableId::all(plan.sharding.tables()).take(LISTED);
    for id in shown {
        let load = &model.workload.tables[id.index()];
        let scheme = plan.sharding.scheme(id);
        // With what is kept of its rows, as ranks' memory is counted.
        let of_row = load.dim * (model.workload.weight_bytes + load.state_bytes) + load.row_state_bytes;
        let bytes = load.rows * of_row as u64;
        let holders = match scheme {
            Scheme::Replicated => "all".to_owned(),
            _ => holders(scheme),
        };
        let kind = match scheme {
            Scheme::Column(parts) => format!("column in {}", parts.len()),
            Scheme::RowContiguous(parts) => format!("row in {}", parts.len()),
            Scheme::RowCyclic(ranks) => format!("row mod {}", ranks.len()),
            _ => scheme.kind().to_string(),
        };
        let (rows, bytes) = (Count(load.rows).to_string(), Bytes(bytes).to_string());
        cells.push(vec![id.0.to_string(), load.name.clone(), rows, bytes, kind, holders]);
    }
    let reasons = std::iter::once("why").chain(plan.reasons.iter().map(String::as_str));
    writeln!(out)?;
    for (line, reason) in table(&cells).lines().zip(reasons) {
        writeln!(out, "{line}  {reason}")?;
    }
    let more = plan.sharding.tables().saturating_sub(LISTED);
    if more > 0 {
        writeln!(out, "  and {more} more: --out FILE and --json have all")?;
    }
    Ok(())
}

/// The ranks of a table's parts; a long list is cut.
fn holders(scheme: &Scheme) -> String {
    let mut numbers: Vec<u32> = scheme.ranks().iter().map(|rank| rank.0).collect();
    numbers.sort_unstable();
    let text = ranges(numbers);
    match text.char_indices().nth(24) {
        Some((end, _)) => format!("{}...", &text[..end]),
        None => text,
    }
}

fn ranks(model: &Model<'_>, plan: &Plan, out: &mut String) -> std::fmt::Result {
    let header = ["rank", "node", "shards", "tables", "dense", "buffers", "memory", "look-up", "exchange"];
    let header = header.into_iter().chain(["all-reduce", "update", "MLPs", "total ms"]);
    let mut cells = vec![header.map(str::to_owned).collect::<Vec<_>>()];
    for cost in plan.cost.ranks.iter().take(LISTED) {
        let standing = &model.site.ranks[cost.rank.index()];
        let share = plan.cost.pool_bytes[standing.pool] as f64 / model.site.pools[standing.pool].usable().max(1) as f64;
        cells.push(vec![
            cost.rank.0.to_string(),
            standing.node.0.to_string(),
            cost.shards.to_string(),
            Bytes(cost.shard_bytes).to_string(),
            Bytes(cost.dense_bytes).to_string(),
            Bytes(cost.buffer_bytes).to_string(),
            format!("{:.0} %", share * 100.0),
            ms(cost.lookup_s),
            ms(cost.exchange_s),
            ms(cost.allreduce_s),
            ms(cost.update_s),
            ms(cost.mlp_s),
            ms(cost.total_s()),
        ]);
    }
    writeln!(out, "\n{}", table(&cells))?;
    let reserve: u64 = model.site.pools.iter().map(|pool| pool.reserve).sum();
    writeln!(out, "  memory: of what the rank's node has, {} of all nodes kept in reserve", Bytes(reserve))?;
    Ok(())
}

fn bars(plan: &Plan, out: &mut String) -> std::fmt::Result {
    let slowest = plan.cost.score.slowest_s.max(f64::MIN_POSITIVE);
    writeln!(out, "\n  l look-up, x exchange, r all-reduce, u update, m MLPs")?;
    for cost in plan.cost.ranks.iter().take(LISTED) {
        let mut bar = String::new();
        let mut until = 0.0;
        let stages = [
            ('l', cost.lookup_s),
            ('x', cost.exchange_s),
            ('r', cost.allreduce_s),
            ('u', cost.update_s),
            ('m', cost.mlp_s),
        ];
        for (letter, seconds) in stages {
            until += seconds;
            let end = (until / slowest * BAR as f64).round() as usize;
            bar.extend(std::iter::repeat_n(letter, end.saturating_sub(bar.len())));
        }
        writeln!(out, "  {:>4} {bar:<BAR$} {} ms", cost.rank.0, ms(cost.total_s()))?;
    }
    let more = plan.cost.ranks.len().saturating_sub(LISTED);
    if more > 0 {
        writeln!(out, "  and {more} more: --json has all")?;
    }
    Ok(())
}

fn exchanges(plan: &Plan, out: &mut String) -> std::fmt::Result {
    writeln!(out)?;
    for exchange in &plan.cost.exchanges {
        let wire = exchange.wire.as_ref().map(|(name, bytes, seconds)| {
            (*seconds, format!("busiest {name}: {} in {} ms", Bytes(*bytes), ms(*seconds)))
        });
        let cores = exchange.cores.as_ref();
        let cores = cores.map(|(name, seconds)| (*seconds, format!("busiest {name}: {} ms", ms(*seconds))));
        let leaves = wire.is_some();
        let copies = exchange.copies.filter(|_| leaves);
        let copies =
            copies.map(|(rank, seconds)| (seconds, format!("busiest {}: {} ms", copier_name(rank), ms(seconds))));
        let busiest = wire.into_iter().chain(cores).chain(copies).reduce(|a, b| if b.0 > a.0 { b } else { a });
        let busiest = busiest.map_or_else(|| "none leave their node".to_owned(), |(_, words)| words);
        writeln!(out, "  {:<12} {:>10} between ranks, {busiest}", exchange.name, Bytes(exchange.bytes).to_string())?;
    }
    if plan.cost.allreduce_bytes > 0 {
        let replicated = plan.sharding.schemes().iter().filter(|scheme| scheme.kind() == Kind::Replicated).count();
        let (bytes, tables) =
            (Bytes(plan.cost.allreduce_bytes).to_string(), Many(replicated as u64, "replicated table"));
        let busiest = plan.cost.allreduce_busiest.as_ref();
        let busiest = busiest.map_or_else(String::new, |(name, s)| format!(", busiest {name}: {} ms", ms(*s)));
        writeln!(out, "  {:<12} {bytes:>10} of gradients of {tables}{busiest}", "all-reduce")?;
    }
    writeln!(
        out,
        "  MLPs at the cores' peak, with the all-reduce of their gradients; nothing is taken as hidden behind other work"
    )?;
    Ok(())
}

/// All ways to divide one table, best of each, while the others stay.
#[must_use]
pub fn explanation(model: &Model<'_>, plan: &Plan, id: TableId, ways: &[Alternative]) -> String {
    let load = &model.workload.tables[id.index()];
    let mut out = format!(
        "{id} ({}): {}, {} {} a sample{}, Zipf exponent {}; {}\n",
        load.name,
        Many(load.rows, "row"),
        load.lookups,
        if load.lookups == 1.0 { "look-up" } else { "look-ups" },
        if load.weighted { " with weights" } else { "" },
        load.skew,
        plan.reasons[id.index()]
    );
    for shard in plan.sharding.of_table(id).iter().take(LISTED) {
        let (rows, columns) = (shard.rows, &shard.columns);
        let which = match rows.step {
            1 => format!("rows {} to {}", rows.first, rows.first + rows.count - 1),
            step => format!("{} rows, every {step}th from {}", Count(rows.count), rows.first),
        };
        let memory = model.load(id, &shard.rows, columns.len(), true).memory.unsigned_abs();
        let _ = writeln!(
            out,
            "  {}: {which}, columns {} to {}: {}",
            shard.rank,
            columns.start,
            columns.end - 1,
            Bytes(memory)
        );
    }
    let mut cells = vec![["way", "slowest ms", "mean ms", ""].map(str::to_owned).to_vec()];
    for way in ways {
        let [slowest, mean] = way.score.map_or_else(
            || ["does not fit".to_owned(), "-".to_owned()],
            |score| [ms(score.slowest_s), ms(score.mean_s)],
        );
        let chosen = if way.chosen { "<- as planned" } else { "" };
        cells.push(vec![way.label.clone(), slowest, mean, chosen.to_owned()]);
    }
    let _ = writeln!(out, "if only this table were divided otherwise:\n{}", table(&cells));
    out
}
