//! Plans survive being written and read, and what is wrong in them is named where it stands.

use octorec::shard::{Shard, file};
use proptest::prelude::*;

use super::{any_sharding, work_of, workload};

proptest! {
    #[test]
    fn written_and_read_it_is_the_same(sharding in any_sharding()) {
        let work = work_of(&sharding, 10);
        let text = file::to_toml(&sharding, &work, "one line\nand another");
        prop_assert!(text.starts_with("# one line\n# and another\nranks = "));
        let again = file::parse(&text, "plan.toml", &work, sharding.ranks());
        prop_assert_eq!(again.map_err(|error| error.to_string()), Ok(sharding));
    }

    #[test]
    fn no_text_is_a_panic(sharding in any_sharding(), at: prop::sample::Index, put in "[\\[\\]a-z0-9=,\" -]{0,3}") {
        let work = work_of(&sharding, 10);
        let mut text = file::to_toml(&sharding, &work, "");
        let place = at.index(text.len());
        text.replace_range(place..place + 1, &put);
        let _ = file::parse(&text, "plan.toml", &work, sharding.ranks());
    }
}

const GOOD: &str = r#"ranks = 3
dim = 16
[[table]]
id = 0
name = "C1"
rows = 100
scheme = "column"
ranks = [0, 2]
sizes = [12, 4]
[[table]]
id = 1
scheme = "row"
ranks = [2, 1]
"#;

#[test]
fn faults_name_file_line_table_and_rank() {
    let work = workload(&[100, 7], 16, 10);
    file::parse(GOOD, "p.toml", &work, 3).expect("a good plan");
    let many = format!("ranks = {:?}", vec![0; 16_385]);
    for (from, to, message) in [
        ("ranks = 3", "ranks = 4", "p.toml:1: the plan is for 4 ranks, not 3: use --ranks 4"),
        ("ranks = 3", "ranks = 0", "p.toml:1: a plan is for one rank or more, not for 0: make a new one"),
        ("dim = 16", "dim = 8", "p.toml:2: table 0 (C1): it has 16 columns, the plan was made for 8: make a new one"),
        ("id = 1", "id = 2", "p.toml:11: there is no table 2: they are numbered 0 to 1"),
        ("id = 1", "id = 0", "p.toml:11: table 0 is divided twice"),
        ("\"C1\"", "\"C9\"", "p.toml:5: table 0 (C1): the plan calls it C9"),
        ("rows = 100", "rows = 90", "p.toml:6: table 0 (C1): it has 100 rows, the plan was made for 90"),
        ("\"column\"", "\"colum\"", "p.toml:7: table 0 (C1): unknown scheme `colum` (did you mean `column`?)"),
        (
            "ranks = [0, 2]",
            "ranks = [0, 3]",
            "p.toml:8: table 0 (C1): rank 3 does not exist: ranks are numbered 0 to 2",
        ),
        ("ranks = [0, 2]", "ranks = []", "p.toml:8: table 0 (C1): ranks = [..] is missing"),
        ("sizes = [12, 4]", "sizes = [12, 5]", "p.toml:9: table 0 (C1): the parts have 17 columns together"),
        ("sizes = [12, 4]", "sizes = [16]", "p.toml:9: table 0 (C1): 1 sizes for 2 ranks"),
        ("sizes = [12, 4]", "sizes = [16, 0]", "p.toml:8: table 0 (C1): rank 2 has no columns"),
        ("scheme = \"row\"", "scheme = \"table\"", "p.toml:13: table 1 (C2): scheme `table` takes one rank, not 2"),
        ("scheme = \"row\"", "scheme = \"replicated\"", "p.toml:13: table 1 (C2): a replicated table is on every rank"),
        ("scheme = \"row\"", "scheme = \"row\"\nlayout = \"round\"", "p.toml:13: table 1 (C2): unknown layout `round`"),
        (
            "scheme = \"row\"",
            "scheme = \"row\"\nsizes = [3, 3]",
            "p.toml:13: table 1 (C2): the parts have 6 rows together",
        ),
        (
            "scheme = \"row\"",
            "scheme = \"row\"\nlayout = \"cyclic\"\nsizes = [3, 4]",
            "p.toml:14: table 1 (C2): sizes are for columns",
        ),
        (
            "scheme = \"row\"\nranks = [2, 1]",
            "scheme = \"table\"\nlayout = \"cyclic\"\nranks = [2]",
            "p.toml:13: table 1 (C2): layout is for rows",
        ),
        ("scheme = \"row\"", "schema = \"row\"", "p.toml:12: unknown field `schema`"),
        ("ranks = [2, 1]", "ranks = [2, -1]", "p.toml:13: "),
        ("ranks = [2, 1]", many.as_str(), "p.toml:13: table 1 (C2): 16385 parts: a table has at most 16384"),
        ("[[table]]\nid = 1\nscheme = \"row\"\nranks = [2, 1]\n", "", "p.toml:10: table 1 (C2) is missing"),
    ] {
        assert!(GOOD.contains(from), "{from}");
        let found = file::parse(&GOOD.replacen(from, to, 1), "p.toml", &work, 3).unwrap_err().to_string();
        assert!(found.starts_with(message), "{to}: {found}");
    }
}

#[test]
fn sizes_may_be_left_out_where_they_are_even() {
    let work = workload(&[100, 7], 16, 10);
    let text =
        GOOD.replace("sizes = [12, 4]\n", "").replace("scheme = \"row\"", "scheme = \"row\"\nlayout = \"contiguous\"");
    let sharding = file::parse(&text, "p.toml", &work, 3).unwrap();
    let shape = |shard: &Shard| (shard.rank.0, (shard.rows.count, shard.columns.len()));
    assert_eq!(
        sharding.shards().iter().map(shape).collect::<Vec<_>>(),
        [(0, (100, 8)), (2, (100, 8)), (2, (4, 16)), (1, (3, 16))]
    );
}
