//! The all-to-all that writes into the peer's memory and reads in place, or stages messages where there is less room.

use octorec::collective::{Links, OneSided, Parcels};
use octorec::machine::team::Team;
use octorec::sync::{Line, Rows};

use super::{job, rank, sizes, with_lanes};

/// What rank `from` has for rank `to` in a step.
fn cell(from: usize, to: usize, step: u32, at: usize) -> u32 {
    ((from * 8 + to) as u32) << 24 ^ step << 16 ^ at as u32
}

#[test]
fn rows_are_written_for_the_peer_and_read_where_they_lie_or_in_pieces() {
    for ranks in 1..=5 {
        // Whole messages fit, or a few lines of them.
        for room in [4096, 128] {
            // Sizes change from run to run, as those of an epoch's last minibatch do.
            let parcels = [60, 7].map(|most| {
                let sources: Vec<_> = (0..6).map(|at| (rank(at % ranks), sizes(at as u64, ranks, most))).collect();
                Parcels::new(ranks, &sources)
            });
            // One lane there, whose messages are read while the other lane brings something back.
            let windows = vec![Links::uniform(ranks, room), Links::uniform(ranks, 64)];
            let results = with_lanes(&job(ranks), windows, move |member, mut lanes| {
                let me = member.rank.index();
                let team = Team::new(2)?;
                let (mut back, mut there) = (lanes.pop().expect("two lanes"), lanes.pop().expect("two lanes"));
                let mut exchange = OneSided::new(there.rank(), there.ranks(), "rows there");
                let mut returns = OneSided::new(back.rank(), back.ranks(), "rows back");
                returns.plan(&*back, |_, _| 20);
                for step in 0..50 {
                    let parcels = &parcels[step as usize / 10 % 2];
                    let due = |from, to| parcels.between(from, to).map(|parcel| parcel.send.len() * 4).sum::<usize>();
                    exchange.plan(&*there, due);
                    exchange.begin(&mut *there, |to, lines, _| {
                        assert_eq!(lines.len(), Line::hold(due(member.rank, to)));
                        // Filled by the whole team, each thread its own lines.
                        team.each(Rows::new(lines, 1, 2, 1), |band| {
                            for (line, at) in band.data.iter_mut().zip(band.first..) {
                                *line = Line::from(std::array::from_fn(|i| cell(me, to.index(), step, at * 16 + i)));
                            }
                        });
                    })?;
                    // What is kept is lent again.
                    for _ in 0..step % 3 {
                        exchange.finish(&mut *there)?.keep();
                    }
                    let incoming = exchange.finish(&mut *there)?;
                    returns.begin(&mut *back, |to, lines, _| {
                        lines[0] = Line::from([cell(me, to.index(), step, 99); 16]);
                    })?;
                    for from in 0..ranks {
                        let lines = incoming.from(rank(from));
                        let words: &[u32] = bytemuck::cast_slice(lines);
                        if from == me {
                            assert!(lines.is_empty());
                        } else {
                            assert_eq!(lines.len(), Line::hold(due(rank(from), member.rank)));
                            assert!(words.iter().enumerate().all(|(at, &word)| word == cell(from, me, step, at)));
                        }
                    }
                    let returned = returns.finish(&mut *back)?;
                    for from in (0..ranks).filter(|from| *from != me) {
                        assert_eq!(returned.from(rank(from)), [Line::from([cell(from, me, step, 99); 16])]);
                    }
                }
                Ok(())
            });
            results.unwrap();
        }
    }
}

#[test]
fn a_message_where_no_channel_was_planned_is_refused_with_its_peer() {
    let error = with_lanes(&job(2), vec![Links::uniform(2, 0)], |_, lanes| {
        OneSided::new(lanes[0].rank(), lanes[0].ranks(), "test").plan(&*lanes[0], |_, _| 132);
        Ok(())
    })
    .unwrap_err()
    .to_string();
    assert!(error.contains("132 bytes are due between rank") && error.contains("0 fit"), "{error}");
}
