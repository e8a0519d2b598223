//! Every element has its owner, and mappings agree with their inverses.

use octorec::base::{RankId, TableId};
use octorec::data::Slice;
use octorec::shard::{Kind, Part, Rows, Scheme, Sharding, Split};
use proptest::prelude::*;

use super::{any_sharding, sample_rank};

proptest! {
    #[test]
    fn every_element_is_owned_once_or_by_all(sharding in any_sharding()) {
        for table in TableId::all(sharding.tables()) {
            let (rows, dim) = (sharding.rows(table) as usize, sharding.dim(table));
            let mut owned = vec![0; rows * dim];
            for shard in sharding.of_table(table) {
                for local in 0..shard.rows.count {
                    let row = shard.rows.global(local);
                    prop_assert_eq!(shard.rows.local(row), Some(local));
                    for column in shard.columns.clone() {
                        owned[row as usize * dim + column] += 1;
                    }
                }
            }
            let replicated = sharding.scheme(table).kind() == Kind::Replicated;
            let wanted = if replicated { sharding.ranks() } else { 1 };
            prop_assert!(owned.iter().all(|times| *times == wanted), "{table}: {owned:?}");
        }
    }

    #[test]
    fn owners_of_a_row_are_the_shards_that_have_it(sharding in any_sharding()) {
        for table in TableId::all(sharding.tables()) {
            let split = Split::new(&sharding, table);
            for row in 0..sharding.rows(table) {
                let owners: Vec<_> = match (&split, split.part(row as u32)) {
                    (Split::Whole, (_, local)) => {
                        sharding.of_table(table).iter().map(|shard| (shard.part, u64::from(local))).collect()
                    }
                    (_, (part, local)) => vec![(part, u64::from(local))],
                };
                let shards = sharding.of_table(table).iter();
                let having: Vec<_> = shards
                    .filter_map(|shard| {
                        let local = (0..shard.rows.count).find(|local| shard.rows.global(*local) == row)?;
                        Some((shard.part, local))
                    })
                    .collect();
                prop_assert_eq!(owners, having);
            }
        }
    }

    #[test]
    fn ranks_hold_all_shards_between_them(sharding in any_sharding()) {
        let mut held: Vec<_> = (0..sharding.ranks() as u32)
            .flat_map(|rank| sharding.of_rank(RankId(rank)).inspect(move |shard| assert_eq!(shard.rank, RankId(rank))))
            .map(|shard| (shard.table, shard.part))
            .collect();
        held.sort_unstable();
        let all: Vec<_> = sharding.shards().iter().map(|shard| (shard.table, shard.part)).collect();
        prop_assert_eq!(held, all);
    }

    #[test]
    fn slices_of_a_minibatch_follow_each_other(batch in 0usize..300, ranks in 1usize..70) {
        let mut next = 0;
        for rank in 0..ranks {
            let slice = Slice::new(rank, ranks).of(batch);
            prop_assert_eq!(slice.start, next);
            prop_assert!(slice.len() == batch / ranks || slice.len() == batch / ranks + 1);
            slice.clone().for_each(|sample| assert_eq!(sample_rank(batch, ranks, sample).index(), rank));
            next = slice.end;
        }
        prop_assert_eq!(next, batch);
        // The longer slices come first.
        let lengths: Vec<_> = (0..ranks).map(|rank| Slice::new(rank, ranks).of(batch).len()).collect();
        prop_assert!(lengths.is_sorted_by(|a, b| a >= b));
    }

    #[test]
    fn rows_that_are_not_there_have_no_place(first in 0u64..9, step in 1u64..9, count in 0u64..9, row in 0u64..100) {
        let rows = Rows { first, step, count };
        let place = (0..count).find(|local| rows.global(*local) == row);
        prop_assert_eq!(rows.local(row), place);
    }
}

#[test]
fn flaws_name_table_part_and_what_is_right() {
    let part = |rank, size| Part { rank: RankId(rank), size };
    let flaw = |scheme| {
        let flaw = Sharding::new(&[5, 100], vec![16; 2], 3, vec![Scheme::Replicated, scheme]).unwrap_err();
        assert_eq!(flaw.table, TableId(1));
        (flaw.part, flaw.reason)
    };
    let (part_number, reason) = flaw(Scheme::Table(RankId(3)));
    assert_eq!(part_number, Some(0));
    assert!(reason.contains("rank 3 does not exist: ranks are numbered 0 to 2"), "{reason}");
    let (part_number, reason) = flaw(Scheme::Column(vec![part(0, 8), part(1, 7)]));
    assert_eq!(part_number, None);
    assert!(reason.contains("15 columns together, the table has 16"), "{reason}");
    let (part_number, reason) = flaw(Scheme::RowContiguous(vec![part(0, 100), part(2, 0)]));
    assert_eq!(part_number, Some(1));
    assert!(reason.contains("rank 2 has no rows"), "{reason}");
    assert!(flaw(Scheme::RowContiguous(vec![part(0, u64::MAX), part(2, 5)])).1.contains("the table has 100"));
    assert!(flaw(Scheme::Column(vec![])).1.contains("0 columns together"));
    assert!(flaw(Scheme::RowCyclic(vec![])).1.contains("no rank"));
    assert!(flaw(Scheme::RowCyclic(vec![RankId(0); 101])).1.contains("100 rows cannot be dealt to 101 ranks"));
}
