//! The all-to-all that writes into the peer's memory and reads in place, or stages messages where there is less room.

use octorec::base::{Error, Place};
use octorec::collective::{Carrier, Links, OneSided, Opened, Outgoing, Parcels};
use octorec::machine::team::Team;
use octorec::sync::{Line, Rows, Stores};

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
                    let mut filled = Vec::new();
                    exchange.begin(&mut *there, |messages| {
                        assert!(!messages.is_empty(), "there is something to fill");
                        for Opened { to, lines, .. } in messages {
                            let to = *to;
                            filled.push(to);
                            assert_eq!(lines.len(), Line::hold(due(member.rank, to)));
                            // Filled by the whole team, each thread its own lines.
                            team.each(Rows::new(lines, 1, 2, 1), |band| {
                                for (line, at) in band.data.iter_mut().zip(band.first..) {
                                    let cells = std::array::from_fn(|i| cell(me, to.index(), step, at * 16 + i));
                                    *line = Line::from(cells);
                                }
                            });
                        }
                    })?;
                    filled.sort();
                    let others = (0..ranks).map(rank).filter(|to| *to != member.rank && due(member.rank, *to) > 0);
                    assert!(filled.into_iter().eq(others), "each message once");
                    // What is kept is lent again.
                    for _ in 0..step % 3 {
                        exchange.finish(&mut *there)?.keep();
                    }
                    let incoming = exchange.finish(&mut *there)?;
                    returns.begin(&mut *back, |messages| {
                        for Opened { to, lines, .. } in messages {
                            lines[0] = Line::from([cell(me, to.index(), step, 99); 16]);
                        }
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

/// Windows are opened together and handed over before anybody waits: of two messages to each rank, the third waits for
/// the rank that has read none, and the others leave.
#[test]
fn all_windows_that_are_free_are_filled_at_once() {
    let results = with_lanes(&job(3), vec![Links::uniform(3, 128)], |member, mut lanes| {
        let (mut lane, mut barrier) = (lanes.pop().expect("a lane"), member.barrier);
        let me = member.rank.index();
        let place = Place { rank: member.rank, stage: "test", sequence: 1 };
        // This rank's peers in their order; the last one reads late.
        let peers = [1, 2].map(|step| rank((me + step) % 3));
        let due = || peers.map(|to| Outgoing { to, bytes: 100, stores: Stores::Plain }).to_vec();
        let mut rounds = Vec::new();
        let mut send = |lane: &mut dyn Carrier, due: &mut Vec<Outgoing>| {
            lane.try_send_each(due, &mut |messages| {
                messages.iter_mut().for_each(|message| message.lines.fill(Line::from([me as u32; 16])));
                assert!(messages.iter().all(|message| message.lines.len() == 2), "lines of 100 bytes");
                rounds.push(messages.iter().map(|message| message.to).collect::<Vec<_>>());
            })
        };
        for _ in 0..2 {
            let mut due = due();
            assert!(send(&mut *lane, &mut due) && due.is_empty());
        }
        let mut third = due();
        assert!(!send(&mut *lane, &mut third) && third == due(), "a window has two slots");
        barrier.wait("all have sent").map_err(Error::Rank)?;
        // Each reads one message of the rank behind it, whose next peer it is.
        let from = rank((me + 2) % 3);
        assert!(lane.has(place, from, 100).map_err(Error::Rank)?);
        lane.release(from);
        barrier.wait("all have read").map_err(Error::Rank)?;
        assert!(send(&mut *lane, &mut third));
        assert_eq!(third, due()[1..], "what has no place stays");
        assert_eq!(rounds, [peers.to_vec(), peers.to_vec(), vec![peers[0]]]);
        assert_eq!((lane.sent()[peers[0].index()], lane.sent()[peers[1].index()]), (300, 200));
        barrier.wait("all have seen it").map_err(Error::Rank)
    });
    results.unwrap();
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
