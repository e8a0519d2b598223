//! `octorec bench alltoall`: what an all-to-all moves, against the non-temporal copy limit of the same minute.
//!
//! "in place" writes straight into the receivers' windows, where they read it: one read and one write a byte. The ways
//! of calling ([`Exchange`]) copy once more, out of the window: two reads and two writes. "relayed" goes by way of
//! other ranks where the machine's routes collide, which reads and writes once more; where none do, it is "alltoall".

use std::fmt;

use clap::Args;
use serde::Serialize;

use super::LimitArgs;
use super::ranks::{BenchRanks, Figures, Frame, Sizes};
use crate::base::units::Bytes;
use crate::base::{Error, RankId, Result, even_part};
use crate::cli::table::Table;
use crate::collective::plan::{Exchange, relayed};
use crate::collective::{Between, Executor, LaneSpec, Links, OneSided, Opened, Parcels, Payload, Raw, Works, World};
use crate::machine::Site;
use crate::memory::Buffer;
use crate::sync::{Line, write_lines};

/// Least and most bytes of a window that messages are copied out of. They go in quarters or smaller pieces, so that a
/// call's root still sends while the others copy; of 16 MiB, pieces of 1 MiB were quickest.
const WINDOW_BYTES: [usize; 2] = [64 << 10, 1 << 20];

/// Flags of `octorec bench alltoall`.
#[derive(Debug, Clone, Args)]
pub struct AllToAllArgs {
    /// Ranks on each machine, each a thread on a core of its own while there are enough
    #[arg(long, value_name = "R", default_value_t = 2, value_parser = clap::value_parser!(u32).range(1..=64))]
    ranks: u32,
    /// Bytes from each rank to each other; default: 64 KiB, 1 MiB and 16 MiB
    #[arg(long, value_name = "BYTES", value_parser = super::ranks::message_bytes)]
    bytes: Option<usize>,
    /// Embedding tables of each rank, among which its bytes are divided
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = clap::value_parser!(u32).range(1..=1024))]
    tables: u32,
    /// One way (`relayed` on one machine only); default: all
    #[arg(long, value_name = "NAME", value_parser = Kind::ALL.map(Kind::name))]
    algorithm: Option<String>,
    #[command(flatten)]
    limit: LimitArgs,
    /// Print one JSON object, for scripts
    #[arg(long)]
    pub(super) json: bool,
}

/// How ranks exchange.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    InPlace,
    Call(Exchange),
    Relayed,
}

impl Kind {
    const ALL: [Self; 6] = [
        Self::InPlace,
        Self::Call(Exchange::AllToAll),
        Self::Call(Exchange::Pairwise),
        Self::Call(Exchange::FusedScatter),
        Self::Call(Exchange::ScatterList),
        Self::Relayed,
    ];

    const fn name(self) -> &'static str {
        match self {
            Self::InPlace => "in-place",
            Self::Call(exchange) => exchange.name(),
            Self::Relayed => "relayed",
        }
    }
}

/// What was measured.
#[derive(Debug, Serialize)]
pub struct Report {
    #[serde(flatten)]
    frame: Frame,
    tables: u32,
    rows: Vec<Row>,
}

#[derive(Debug, Serialize)]
struct Row {
    algorithm: &'static str,
    /// From each rank to each other.
    message_bytes: usize,
    #[serde(flatten)]
    figures: Figures,
}

/// Words that tell sender, receiver and place apart.
fn word(from: RankId, to: RankId, at: usize) -> u32 {
    (from.0 << 26 | to.0 << 20) ^ at as u32
}

impl AllToAllArgs {
    /// Measures all sizes and algorithms.
    ///
    /// # Errors
    /// When threads or memory are refused, the hardware cannot be explored, or a rank gets stuck.
    ///
    /// # Panics
    /// When a byte arrives that was not sent.
    pub fn measure(&self, world: &World) -> Result<Report> {
        let yard = BenchRanks::new(world, self.ranks as usize)?;
        let sizes = self.bytes.map_or_else(|| vec![64 << 10, 1 << 20, 16 << 20], |bytes| vec![bytes]);
        // Between machines nobody knows the routes.
        let site = yard.site();
        let possible = |kind: &Kind| *kind != Kind::Relayed || site.is_some();
        let wanted = |kind: &Kind| self.algorithm.as_ref().is_none_or(|wanted| wanted == kind.name());
        let kinds: Vec<Kind> = Kind::ALL.into_iter().filter(possible).filter(wanted).collect();
        if kinds.is_empty() {
            let reason = "relayed is for one machine, whose routes are known: start it without mpirun".to_owned();
            return Err(Error::config("--algorithm", reason));
        }
        let (frame, rows) = yard.measure(self.limit.bytes(), || {
            let mut rows = Vec::new();
            for &message_bytes in &sizes {
                for &kind in &kinds {
                    let figures = self.time(&yard, kind, site, message_bytes)?;
                    rows.push(Row { algorithm: kind.name(), message_bytes, figures });
                }
                // All that the ranks of a machine have for those of another.
                let bytes = message_bytes * (self.ranks * self.ranks) as usize;
                let moved = bytes * world.machines() * (world.machines() - 1);
                let raw = yard.time_raw(Raw::AllToAll, Sizes { moved, memory: 2 * moved }, bytes)?;
                rows.extend(raw.into_iter().map(|(algorithm, figures)| Row { algorithm, message_bytes, figures }));
            }
            Ok(rows)
        })?;
        let rows = rows.into_iter().map(|row| Row { figures: row.figures.against(&frame), ..row }).collect();
        Ok(Report { frame, tables: self.tables, rows })
    }

    fn time(&self, yard: &BenchRanks, kind: Kind, site: Option<&Site>, message_bytes: usize) -> Result<Figures> {
        let (ranks, tables) = (yard.ranks(), self.tables as usize);
        let elements = message_bytes / 4;
        let sizes = |table: usize| vec![even_part(elements, table, tables).len(); ranks];
        let sources: Vec<_> =
            (0..ranks * tables).map(|at| (RankId((at / tables) as u32), sizes(at % tables))).collect();
        let parcels = Parcels::new(ranks, &sources);
        let payload = Payload::Raw(4);
        let schedule = match (kind, site) {
            (Kind::Relayed, Some(site)) => relayed(&parcels, payload, site, Works::LinksAndMemories),
            (Kind::Call(exchange), _) => exchange.plan(&parcels, payload),
            _ => Exchange::AllToAll.plan(&parcels, payload),
        };
        let moved = schedule.traffic().total();
        let copies = kind != Kind::InPlace;
        let memory = if copies { schedule.memory_bytes() } else { 2 * moved };
        let sizes = Sizes { moved, memory };
        // What is read where it lies must be there as a whole.
        let [least, most] = WINDOW_BYTES;
        let room = if copies { (message_bytes / 4).clamp(least, most) } else { message_bytes };
        let windows = Links::uniform(ranks, room.next_multiple_of(Line::BYTES));
        let lane = if copies { LaneSpec::at_once(windows) } else { LaneSpec::together(windows) };
        yard.time(sizes, lane, move |member, lane, isa, clock| {
            let (me, spans) = (member.rank, move |to: usize| to * elements..(to + 1) * elements);
            let mut send = Buffer::<u32>::zeroed(parcels.send_len(me));
            for to in 0..ranks {
                let own = send[spans(to)].iter_mut().enumerate();
                own.for_each(|(at, x)| *x = word(me, RankId(to as u32), at));
            }
            let right = |from: usize, words: &[u32]| {
                let due = |(at, &found): (usize, &u32)| found == word(RankId(from as u32), me, at);
                assert!(words.iter().enumerate().all(due), "rank {from} to {me}");
            };
            if copies {
                let mut receive = Buffer::<u32>::zeroed(parcels.receive_len(me));
                let mut transit = Buffer::<u32>::zeroed(schedule.transit_len(me));
                let mut executor = Executor::new(&schedule, lane, "bench all-to-all");
                clock.run(&mut member.barrier, || {
                    let mut memory = Between::new(&send, &mut receive, isa).relaying(&mut transit);
                    executor.run(lane, &mut memory)
                })?;
                (0..ranks).for_each(|from| right(from, &receive[spans(from)]));
            } else {
                let mut exchange = OneSided::new(lane.rank(), lane.ranks(), "bench all-to-all");
                exchange.plan(lane, |_, _| message_bytes);
                let mut pack = |messages: &mut [Opened<'_>]| {
                    for Opened { to, stores, lines } in messages {
                        write_lines(isa, *stores, lines, &send[spans(to.index())]);
                    }
                };
                clock.run(&mut member.barrier, || {
                    exchange.begin(lane, &mut pack)?;
                    exchange.finish(lane).map(drop)
                })?;
                exchange.begin(lane, &mut pack)?;
                let incoming = exchange.finish(lane)?;
                for from in (0..ranks).filter(|from| *from != me.index()) {
                    right(from, &bytemuck::cast_slice(incoming.from(RankId(from as u32)))[..elements]);
                }
            }
            assert!(lane.sent().iter().sum::<usize>() > 0, "something was sent");
            Ok(())
        })
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}", self.frame)?;
        let mut table = Table::new(["all-to-all", "message", "us", "GB/s", "GB/s of memory", "of the limit"]);
        for Row { algorithm, message_bytes, figures } in &self.rows {
            let names = [(*algorithm).to_owned(), Bytes(*message_bytes as u64).to_string()];
            table.row(names.into_iter().chain(figures.cells()));
        }
        write!(f, "{table}\n{}", Frame::LEGEND)
    }
}
