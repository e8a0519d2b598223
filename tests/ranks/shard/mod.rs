//! Tables divided among ranks: who owns what, what that costs, and whether the planner finds what is good.

mod command;
mod file;
mod hot;
mod planner;
mod scheme;
mod traffic;
mod widths;

use octorec::base::{RankId, TableId};
use octorec::collective::Payload;
use octorec::machine::placement::Wishes;
use octorec::machine::site::Known;
use octorec::machine::{Machine, Site, place};
use octorec::shard::{Part, Reserve, Scheme, Sharding, TableLoad, Workload};
use proptest::prelude::*;

/// Tables of these rows; one look-up a sample, all rows alike, SGD in f32.
fn workload(rows: &[u64], dim: usize, batch: usize) -> Workload {
    mixed(&rows.iter().map(|rows| (*rows, dim)).collect::<Vec<_>>(), batch)
}

/// The tables of a division.
fn work_of(sharding: &Sharding, batch: usize) -> Workload {
    let tables = TableId::all(sharding.tables());
    mixed(&tables.map(|table| (sharding.rows(table), sharding.dim(table))).collect::<Vec<_>>(), batch)
}

/// As [`workload`], tables of these rows and columns.
fn mixed(tables: &[(u64, usize)], batch: usize) -> Workload {
    let table = |(number, &(rows, dim)): (usize, &(u64, usize))| TableLoad {
        name: format!("C{number}"),
        rows,
        dim,
        positions: 1,
        lookups: 1.0,
        longest: 1,
        skew: 0.0,
        weighted: false,
        state_bytes: 0,
        row_weight_bytes: 0,
        row_state_bytes: 0,
        sorting: 0,
        stored: false,
    };
    Workload {
        tables: (1..).zip(tables).map(table).collect(),
        batch,
        weight_bytes: 4,
        exchange_bytes: 4,
        payload: Payload::F32,
        dense_bytes: 0,
        sample_bytes: 0,
        part_bytes: 0,
        part_rows: 1,
        part: None,
        layers: Vec::new(),
        collective: None,
        sample_operations: 0,
        bf16: false,
        learns: true,
        grains: None,
        reserve: Reserve::default(),
    }
}

/// `ranks` ranks on a shipped machine.
pub fn shipped(name: &str, ranks: usize) -> Site {
    on(&Machine::load(name).expect("shipped"), ranks)
}

pub fn on(machine: &Machine, ranks: usize) -> Site {
    let placement = place(machine, &Wishes { ranks: Some(ranks), ..Wishes::default() }).expect("placed");
    Site::new(machine, &placement, Known::default())
}

/// One node a rank with memory (MiB) and bandwidth (GB/s) as given, every two linked.
fn mesh(nodes: &[(u64, f64)]) -> Machine {
    let pairs: Vec<_> = (0..nodes.len()).flat_map(|a| (a + 1..nodes.len()).map(move |b| (a, b))).collect();
    linked(nodes, &pairs)
}

/// As [`mesh`] with links between these nodes only.
pub fn linked(nodes: &[(u64, f64)], pairs: &[(usize, usize)]) -> Machine {
    let mut text = "name = \"mesh\"\n".to_owned();
    for (id, (mib, gb_s)) in nodes.iter().enumerate() {
        let gib = *mib as f64 / 1024.0;
        text += &format!("[[node]]\nids = {id}\ncores = 4\nmemory_gib = {gib:?}\nmemory_gb_s = {gb_s:?}\n");
    }
    let pairs: Vec<String> = pairs.iter().map(|(a, b)| format!("[{a}, {b}]")).collect();
    if !pairs.is_empty() {
        text += &format!("[[link]]\npairs = [{}]\ngb_s = 10\n", pairs.join(", "));
    }
    Machine::parse(&text, "mesh").expect("a valid machine")
}

/// The rank that has a sample: the first `batch % ranks` ranks have one more than the others.
fn sample_rank(batch: usize, ranks: usize, sample: usize) -> RankId {
    let (size, more) = (batch / ranks, batch % ranks);
    let longer = more * (size + 1);
    let rank = if sample < longer { sample / (size + 1) } else { more + (sample - longer) / size };
    RankId(rank as u32)
}

/// Any division of any small tables, of any widths.
fn any_sharding() -> impl Strategy<Value = Sharding> {
    let tables = prop::collection::vec((1u64..60, 1usize..20), 1..5);
    (1usize..9, tables).prop_flat_map(|(ranks, tables)| {
        let schemes: Vec<_> = tables.iter().map(|(rows, dim)| any_scheme(*rows, *dim, ranks)).collect();
        let (rows, dims): (Vec<u64>, Vec<usize>) = tables.into_iter().unzip();
        schemes.prop_map(move |schemes| Sharding::new(&rows, dims.clone(), ranks, schemes).expect("a valid division"))
    })
}

fn any_scheme(rows: u64, dim: usize, ranks: usize) -> BoxedStrategy<Scheme> {
    let rank = move || (0..ranks as u32).prop_map(RankId);
    // Sizes are the distances between sorted cuts, so they add up.
    let parts = move |whole: u64| {
        prop::collection::btree_set(1..whole.max(2), 0..6).prop_flat_map(move |cuts| {
            let mut sizes = Vec::new();
            let mut first = 0;
            for cut in cuts.into_iter().filter(|cut| *cut < whole).chain([whole]) {
                sizes.push(cut - first);
                first = cut;
            }
            let part = |size| rank().prop_map(move |rank| Part { rank, size });
            sizes.into_iter().map(part).collect::<Vec<_>>()
        })
    };
    let most = usize::try_from(rows).unwrap().min(10);
    prop_oneof![
        rank().prop_map(Scheme::Table),
        parts(dim as u64).prop_map(Scheme::Column),
        parts(rows).prop_map(Scheme::RowContiguous),
        prop::collection::vec(rank(), 1..=most).prop_map(Scheme::RowCyclic),
        Just(Scheme::Replicated),
    ]
    .boxed()
}
