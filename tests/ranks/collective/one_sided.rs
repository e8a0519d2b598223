//! The all-to-all that writes into the peer's memory and reads in place.

use octorec::collective::{Links, OneSided, Parcels, Payload};
use octorec::machine::team::Team;
use octorec::sync::{Line, Rows};

use super::{job, rank, sizes, with_lanes};

/// What rank `from` has for rank `to` in a step.
fn cell(from: usize, to: usize, step: u32, at: usize) -> u32 {
    ((from * 8 + to) as u32) << 24 ^ step << 16 ^ at as u32
}

#[test]
fn rows_are_written_into_the_peers_window_and_read_there() {
    for ranks in 1..=5 {
        let sources: Vec<_> = (0..6).map(|at| (rank(at % ranks), sizes(at as u64, ranks, 60))).collect();
        let parcels = Parcels::new(ranks, &sources);
        let back_parcels = Parcels::uniform(ranks, 5);
        // One lane there, whose messages are read while the other lane brings something back.
        let windows = vec![Links::uniform(ranks, 4096), Links::uniform(ranks, 64)];
        let results = with_lanes(&job(ranks), windows, move |member, mut lanes| {
            let me = member.rank.index();
            let team = Team::new(2)?;
            let (there, back) = lanes.split_at_mut(1);
            let (outbox, inbox) = there[0].halves();
            let (back_outbox, back_inbox) = back[0].halves();
            let mut exchange = OneSided::new(&parcels, Payload::F32, outbox, inbox, "rows there");
            let mut returns = OneSided::new(&back_parcels, Payload::Raw(4), back_outbox, back_inbox, "rows back");
            for step in 0..50 {
                exchange.begin(outbox, |to, lines| {
                    // Filled by the whole team, each thread its own lines.
                    team.each(Rows::new(lines, 1, 2, 1), |band| {
                        for (line, at) in band.data.iter_mut().zip(band.first..) {
                            *line = Line::from(std::array::from_fn(|i| cell(me, to.index(), step, at * 16 + i)));
                        }
                    });
                })?;
                let incoming = exchange.finish(inbox)?;
                returns.begin(back_outbox, |to, lines| lines[0] = Line::from([cell(me, to.index(), step, 99); 16]))?;
                for from in 0..ranks {
                    let due: usize = parcels.between(rank(from), member.rank).map(|parcel| parcel.send.len()).sum();
                    let lines = incoming.from(rank(from));
                    let words: &[u32] = bytemuck::cast_slice(lines);
                    if from == me {
                        assert!(lines.is_empty());
                    } else {
                        assert_eq!(lines.len(), (due * 4).div_ceil(64));
                        assert!(words.iter().enumerate().all(|(at, &word)| word == cell(from, me, step, at)));
                    }
                }
                let returned = returns.finish(back_inbox)?;
                for from in (0..ranks).filter(|from| *from != me) {
                    assert_eq!(returned.from(rank(from)), [Line::from([cell(from, me, step, 99); 16])]);
                }
            }
            Ok(())
        });
        results.unwrap();
    }
}

#[test]
fn a_window_that_is_too_small_is_refused_with_its_ranks() {
    let windows = vec![Links::uniform(2, 128)];
    let error = with_lanes(&job(2), windows, |_, mut lanes| {
        let (outbox, inbox) = lanes[0].halves();
        let _ = OneSided::new(&Parcels::uniform(2, 33), Payload::F32, outbox, inbox, "test");
        Ok(())
    })
    .unwrap_err()
    .to_string();
    assert!(error.contains("132 bytes from rank") && error.contains("in a window of 128"), "{error}");
}
