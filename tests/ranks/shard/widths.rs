//! Tables of one model that differ in columns and in what the optimizer keeps of them, as those of a wide part do.

use octorec::base::{RankId, TableId};
use octorec::shard::planner::{alternatives, price};
use octorec::shard::{
    HotPrices, Kind, Model, Options, Part, Rows, Scheme, Sharding, TableLoad, Workload, file, plan, report,
};

use super::{mesh, mixed, on, shipped};

/// The tables of 26 columns, of which the wide part has each again, with two crosses; Adagrad, and FTRL for the wide
/// part.
fn wide_and_deep(batch: usize) -> Workload {
    let rows = |column: u64| 5 + column * column * column * 300;
    let deep = (0..26).map(|column| (rows(column), 16));
    let wide = (0..26).map(|column| (rows(column), 1)).chain([(100_000, 1); 2]);
    let mut work = mixed(&deep.chain(wide).collect::<Vec<_>>(), batch);
    for table in &mut work.tables {
        table.state_bytes = if table.dim == 1 { 8 } else { 4 };
        table.skew = 1.05;
    }
    work
}

#[test]
fn each_table_costs_what_its_own_columns_and_state_are() {
    // Of one row each, so that every look-up is of it.
    let mut work = mixed(&[(1, 16), (1, 1), (1, 32)], 100);
    work.tables[0].state_bytes = 8;
    (work.tables[1].state_bytes, work.tables[1].row_state_bytes) = (2, 4);
    let site = on(&mesh(&[(1024, 50.0); 2]), 2);
    let model = Model::new(&work, &site);
    let of = |table: u32, width: usize| model.load(TableId(table), &Rows::all(1), width, true);
    let (deep, wide, plain) = (of(0, 16), of(1, 1), of(2, 32));
    // A row of 4 bytes takes a whole cache line, and so do 2 bytes of state and 4 a row; 99 look-ups find it in a
    // cache.
    let times = |bytes: i64| bytes + 99 * bytes / 4;
    assert_eq!([deep.lookup_rows, wide.lookup_rows, plain.lookup_rows], [times(64), times(64), times(128)]);
    let updates = [deep.update_rows, wide.update_rows, plain.update_rows];
    assert_eq!(updates, [times(2 * (64 + 128)), times(2 * (64 + 64 + 64)), times(2 * 128)]);
    assert_eq!([deep.lookup_stream, wide.lookup_stream, plain.lookup_stream], [16, 1, 32].map(|dim| 400 + 400 * dim));
    assert_eq!([deep.memory, wide.memory, plain.memory], [16 * 12, 4 + 2 + 4, 32 * 4]);
    assert_eq!([deep.columns, wide.columns, plain.columns], [16, 1, 32]);
    // On every rank, with a gradient.
    let replicas = [0, 1, 2].map(|table| model.replica(TableId(table)).memory);
    assert_eq!(replicas, [16 * 16, 4 + 4 + 2 + 4, 32 * 8]);
    let lists = |schemes: Vec<Scheme>| {
        let sharding = Sharding::new(&[1; 3], work.dims(), 2, schemes).unwrap();
        model.cost(&sharding).allreduce_bytes
    };
    let table = || Scheme::Table(RankId(0));
    // A row's sum, its number and an offset, and two words more.
    assert_eq!(lists(vec![Scheme::Replicated, table(), table()]), 4 * (16 + 2 + 2));
    assert_eq!(lists(vec![table(), Scheme::Replicated, table()]), 4 * (1 + 2 + 2));
    assert_eq!(lists(vec![Scheme::Replicated; 3]), 4 * (16 + 1 + 32 + 3 * 4));
}

#[test]
fn the_cost_of_all_tables_is_the_sum_of_each() {
    let (work, site) = (wide_and_deep(4096), shipped("twisted-hypercube-8", 8));
    let rows: Vec<u64> = work.tables.iter().map(|table| table.rows).collect();
    let scheme = |table: usize| match table % 4 {
        0 => Scheme::Table(RankId(table as u32 % 8)),
        1 => Scheme::RowCyclic(vec![RankId(table as u32 % 8)]),
        2 if work.tables[table].dim == 16 => Scheme::Column(
            [3, 13].into_iter().zip([1, 6]).map(|(size, rank)| Part { rank: RankId(rank), size }).collect(),
        ),
        _ => Scheme::Replicated,
    };
    let division = |tables: &[usize]| {
        let (rows, dims) =
            tables.iter().map(|&table| (rows[table], work.tables[table].dim)).unzip::<_, _, Vec<_>, Vec<_>>();
        Sharding::new(&rows, dims, 8, tables.iter().map(|&table| scheme(table)).collect()).unwrap()
    };
    let model = Model::new(&work, &site);
    let all = model.tally(&division(&(0..54).collect::<Vec<_>>()));
    let mut sum = model.empty();
    for table in 0..54 {
        let one = Workload { tables: vec![work.tables[table].clone()], ..work.clone() };
        let tally = Model::new(&one, &site).tally(&division(&[table]));
        sum.ranks.iter_mut().zip(&tally.ranks).for_each(|(sum, one)| *sum += *one);
        sum.all += tally.all;
        sum.replicas += tally.replicas;
        sum.replicated += tally.replicated;
    }
    assert_eq!(
        (&all.ranks, all.all, all.replicas, all.replicated),
        (&sum.ranks, sum.all, sum.replicas, sum.replicated)
    );
    // Pooled sums of all tables that are not replicated: the columns of each, for every sample of another rank.
    let columns: usize = (0..54).filter(|table| scheme(*table) != Scheme::Replicated).map(|t| work.tables[t].dim).sum();
    assert_eq!(all.all.columns, columns as i64);
    let cost = model.cost(&division(&(0..54).collect::<Vec<_>>()));
    assert_eq!(cost.exchanges[1].bytes, (columns * 4096 / 8 * 7 * 4) as u64);
}

#[test]
fn wide_and_deep_on_the_eight_sockets_of_sc20() {
    let (work, site) = (wide_and_deep(8192), shipped("twisted-hypercube-8", 8));
    let model = Model::new(&work, &site);
    for kind in [None, Some(Kind::Table), Some(Kind::Column), Some(Kind::Row), Some(Kind::Replicated)] {
        let plan = plan(&model, &Options { scheme: kind, ..Options::default() }).expect("there is a plan");
        for (table, load) in (0..).map(TableId).zip(&work.tables) {
            let scheme = plan.sharding.scheme(table);
            assert_eq!(plan.sharding.dim(table), load.dim);
            assert!(kind.is_none_or(|kind| scheme.kind() == kind), "{table}: {scheme:?}");
            // One column is nothing to divide.
            if let (Scheme::Column(parts), 1) = (scheme, load.dim) {
                assert!(kind.is_some() && parts.len() == 1, "{table}: {scheme:?}");
            }
        }
        let text = file::to_toml(&plan.sharding, &work, "");
        assert_eq!(file::parse(&text, "plan.toml", &work, 8).unwrap(), plan.sharding);
        assert_eq!((text.matches("\ndim = 16\n").count(), text.matches("\ndim = 1\n").count()), (1, 28), "{text}");
        let shown = report::text(&model, &plan);
        assert!(shown.contains("of 16 columns (28 tables: 1), on 8 ranks"), "{shown}");
        let kept: u64 = plan.cost.ranks.iter().map(|rank| rank.shard_bytes).sum();
        if kind != Some(Kind::Replicated) && kind.is_some() {
            let bytes = |table: &TableLoad| table.rows * (table.dim * (4 + table.state_bytes)) as u64;
            assert_eq!(kept, work.tables.iter().map(bytes).sum::<u64>());
        }
    }
    let plan = plan(&model, &Options::default()).unwrap();
    assert!(plan.cost.score <= plan.start);
    let ways = alternatives(&model, &Options::default(), &plan.sharding, TableId(50));
    assert!(ways.iter().all(|way| !way.label.contains("column")), "{ways:?}");
}

#[test]
fn state_of_rows_keeps_only_its_own_tables_from_column_division() {
    // What is wide and hot is best divided by columns, and may be where nothing is kept of whole rows.
    let mut work = mixed(&[(1_000_000, 256), (1_000_000, 256)], 4096);
    work.tables[0].row_state_bytes = 4;
    let site = on(&mesh(&[(65_536, 50.0); 4]), 4);
    let model = Model::new(&work, &site);
    let plan = plan(&model, &Options::default()).unwrap();
    let columns = |table| {
        let ways = alternatives(&model, &Options::default(), &plan.sharding, TableId(table));
        ways.iter().any(|way| way.label.contains("column"))
    };
    assert!(!columns(0) && columns(1));
}

const PLAN: &str = "ranks = 2\ndim = 16\n\n[[table]]\nid = 0\nscheme = \"column\"\nranks = [0, 1]\n\n[[table]]\nid = 1\n\
                    dim = 1\nscheme = \"table\"\nranks = [1]\n";

#[test]
fn a_plan_of_other_widths_is_refused_with_both_numbers() {
    let parse = |text: &str, dims: [usize; 2]| {
        let work = mixed(&[(100, dims[0]), (100, dims[1])], 10);
        file::parse(text, "p.toml", &work, 2).map_err(|error| error.to_string())
    };
    let narrow = parse(PLAN, [16, 1]).unwrap().of_table(TableId(1))[0].clone();
    assert_eq!((narrow.rows.count, narrow.columns.len()), (100, 1));
    // As files were before tables had widths of their own.
    assert_eq!(parse(&PLAN.replace("dim = 1\n", ""), [16, 16]).unwrap().dim(TableId(1)), 16);
    for (text, dims, wanted) in [
        (
            PLAN.to_owned(),
            [16, 16],
            "p.toml:11: table 1 (C2): it has 16 columns, the plan was made for 1: make a new one",
        ),
        (PLAN.to_owned(), [8, 1], "p.toml:2: table 0 (C1): it has 8 columns, the plan was made for 16: make a new one"),
        (
            PLAN.replace("dim = 1\n", ""),
            [16, 1],
            "p.toml:2: table 1 (C2): it has 1 column, the plan was made for 16: make a new one",
        ),
        (PLAN.replace("dim = 1\n", "dim = 0\n"), [16, 1], "p.toml:11: table 1 (C2): it has 1 column"),
    ] {
        let message = parse(&text, dims).unwrap_err();
        assert!(message.contains(wanted), "{message}");
    }
}

#[test]
fn only_rows_of_deep_tables_have_copies() {
    let (rows, ranks) = ([200_000, 200_000, 50_000], 4);
    let prices_of = |dims: [usize; 3]| {
        let tables: Vec<_> = rows.into_iter().zip(dims).collect();
        let mut work = mixed(&tables, 4096);
        work.tables.iter_mut().for_each(|table| table.skew = 1.2);
        let schemes = (0..3).map(|table| Scheme::Table(RankId(table))).collect();
        let sharding = Sharding::new(&rows, work.dims(), ranks, schemes).unwrap();
        let prices = HotPrices::new(&work, &sharding);
        let budgets = [1 << 10, 1 << 16, 1 << 30];
        budgets.map(|budget| (prices.rows(budget), prices.of(budget)))
    };
    let [small, middle, all] = prices_of([16, 1, 32]);
    for (hot, price) in [&small, &middle, &all] {
        assert_eq!(hot[1], 0, "a row of one column is not hot");
        assert_eq!(price.bytes, hot[0] * 8 * 16 + hot[2] * 8 * 32);
        assert!(price.bytes <= price.budget && price.rows == hot.iter().sum::<u64>());
    }
    assert!(all.0[0] > 20 && all.0[2] > 20 && small.0[0] < all.0[0], "{small:?} {all:?}");
    assert!(all.1.with() < all.1.without);
    // A model whose vectors are single numbers has no other tables.
    assert!(prices_of([1; 3])[2].0.iter().all(|hot| *hot > 20));
}

#[test]
fn memory_is_that_of_windows_activations_and_layers() {
    // 64 samples on two ranks; rank 0 holds the table of 1,000 rows of 16 numbers.
    let mut work = mixed(&[(1000, 16)], 64);
    (work.sample_bytes, work.part_bytes, work.part, work.dense_bytes) = (100, 1000, Some(8), 5000);
    let site = on(&mesh(&[(1024, 50.0); 2]), 2);
    let sharding = Sharding::new(&[1000], vec![16], 2, vec![Scheme::Table(RankId(0))]).unwrap();
    let cost = Model::new(&work, &site).cost(&sharding);
    // 32 samples of 100 bytes, 8 at a time of 1,000 more.
    assert_eq!(cost.ranks[1].dense_bytes, 5000 + 32 * 100 + 8 * 1000);
    // Each window twice: gradients of both ranks' samples, or nothing; pooled rows of its own ones. Offsets and ids of
    // all samples where they come, and of its own where they go.
    let windows = [64 * 16 * 4 + 32 * 16 * 4, 32 * 16 * 4].map(|bytes| 2 * bytes);
    let buffers = [windows[0] + 4 * (64 + 2 + 64) + 4 * (33 + 32), windows[1] + 4 * (33 + 32)];
    assert_eq!([0, 1].map(|rank: usize| cost.ranks[rank].buffer_bytes), buffers);
    // Rank 1 sends 33 offsets and 32 ids and gets 32 pooled rows of 16 numbers, whose gradients it sends.
    let [ids, rows] = [4 * (33 + 32), 32 * 16 * 4];
    assert_eq!([0, 1, 2].map(|exchange: usize| cost.exchanges[exchange].bytes), [ids, rows, rows]);
    let on_wire = |exchange: usize| cost.exchanges[exchange].wire.as_ref().expect("it crosses a link").1;
    assert_eq!([0, 1, 2].map(on_wire), [ids, rows, rows]);
    // A time series has a row a step in each sample.
    let series = {
        let mut series = work.clone();
        (series.tables[0].positions, series.tables[0].lookups) = (3, 3.0);
        Model::new(&series, &site).cost(&sharding)
    };
    assert_eq!(series.exchanges[1].bytes, 3 * rows);
    assert_eq!(series.exchanges[0].bytes, 4 * (3 * 33 + 3 * 32));
    // No more samples at a time than the rank has.
    work.part = Some(500);
    (work.sample_bytes, work.dense_bytes) = (0, 0);
    assert_eq!(Model::new(&work, &site).cost(&sharding).ranks[1].dense_bytes, 32 * 1000);
}

#[test]
fn room_is_kept_for_the_longest_bags_for_evaluations_and_for_copies() {
    // As before: of two ranks' 64 samples, rank 0 has the table.
    let mut work = mixed(&[(1000, 16)], 64);
    work.sample_bytes = 100;
    let site = on(&mesh(&[(1024, 50.0); 2]), 2);
    let sharding = Sharding::new(&[1000], vec![16], 2, vec![Scheme::Table(RankId(0))]).unwrap();
    let kept = |work: &Workload| {
        let cost = Model::new(work, &site).cost(&sharding);
        [0, 1].map(|rank: usize| [cost.ranks[rank].buffer_bytes, cost.ranks[rank].dense_bytes])
    };
    let mut before = kept(&work);
    let mut adds = |work: &Workload, more: [[u64; 2]; 2], what: &str| {
        (0..2).for_each(|rank| (0..2).for_each(|kind| before[rank][kind] += more[rank][kind]));
        assert_eq!(kept(work), before, "{what}");
    };
    // A bag of five look-ups where one is usual: four words more of each sample.
    work.tables[0].longest = 5;
    adds(&work, [[4 * 4 * (64 + 32), 0], [4 * 4 * 32, 0]], "ids");
    work.tables[0].sorting = 16;
    adds(&work, [[64 * 5 * 16, 0], [0; 2]], "look-ups that are sorted");
    work.reserve.gradient_rows = true;
    adds(&work, [[64 * 5 * 16 * 4, 0], [0; 2]], "gradient rows");
    work.reserve.copies = 1000;
    adds(&work, [[0, 1000]; 2], "copies of hot rows");
    work.reserve.samples = 128;
    let rows = [(64 + 32) * 16 * 8, 32 * 16 * 8];
    let ids = [4 * (64 + 64 * 5 + 32 + 32 * 5), 4 * (32 + 32 * 5)];
    let updates = 64 * 5 * (16 + 64);
    adds(&work, [[rows[0] + ids[0] + updates, 3200], [rows[1] + ids[1], 3200]], "an evaluation");
    // Halves in two windows, and at the owner whole numbers beside them, those to be rounded and those that were.
    let whole = kept(&work);
    work.exchange_bytes = 2;
    let halves = kept(&work);
    let windows = [(128 + 64) * 16 * 4, 64 * 16 * 4];
    assert_eq!(halves[0], [whole[0][0] - windows[0] + 128 * 16 * 8, whole[0][1]]);
    assert_eq!(halves[1], [whole[1][0] - windows[1], whole[1][1]]);
    // One rank exchanges nothing, and moves its rows.
    let alone = on(&mesh(&[(1024, 50.0)]), 1);
    let whole = Sharding::new(&[1000], vec![16], 1, vec![Scheme::Table(RankId(0))]).unwrap();
    let cost = Model::new(&work, &alone).cost(&whole);
    assert_eq!((cost.ranks[0].buffer_bytes, cost.ranks[0].dense_bytes), (128 * 5 * (16 + 64), 128 * 100));
}

#[test]
fn ranks_of_a_node_divide_its_room_for_copies() {
    let (work, site) = (mixed(&[(1000, 16)], 64), on(&mesh(&[(1024, 50.0)]), 2));
    let model = Model::new(&work, &site);
    let cost = model.cost(&Sharding::new(&[1000], vec![16], 2, vec![Scheme::Table(RankId(0))]).unwrap());
    let left = site.pools[0].usable() - cost.pool_bytes[0];
    let rooms = [false, true].map(|revised| model.room_for_copies(&cost, revised));
    assert_eq!((site.pools.len(), rooms), (1, [left / 2, left / 4]));
}

#[test]
fn a_report_has_bytes_of_tables_shares_of_memories_and_what_shards_hold() {
    // 1,024 rows of 16 weights with a state of each, and a number a row besides.
    let mut work = mixed(&[(1024, 16)], 64);
    (work.tables[0].state_bytes, work.tables[0].row_state_bytes, work.dense_bytes) = (4, 4, 8_000_000);
    let site = on(&mesh(&[(32, 50.0); 2]), 2);
    let model = Model::new(&work, &site);
    let half = |rank| Part { rank: RankId(rank), size: 512 };
    let schemes = vec![Scheme::RowContiguous(vec![half(0), half(1)])];
    let plan = price(&model, Sharding::new(&[1024], vec![16], 2, schemes).unwrap()).unwrap();
    let shown = report::text(&model, &plan);
    // Of 16 MiB that are usable, 0.5 % are the shard's and the windows'.
    assert_eq!(site.pools[0].usable(), 16 << 20);
    assert!(shown.contains("132.0 KiB") && shown.contains("48 %"), "{shown}");
    let explained = report::explanation(&model, &plan, TableId(0), &[]);
    assert!(explained.contains("rank 1: rows 512 to 1023, columns 0 to 15: 66.0 KiB"), "{explained}");
}
