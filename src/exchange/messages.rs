//! Messages of rows: lines of what the layout says that travels, floats or halves.
//!
//! Whoever can, writes what travels right into the receiver's window and reads it there. Pooled rows, which threads
//! write in pieces that are no whole lines of halves, are written beside it first ([`Rounding`]); gradients, which the
//! update reads in the order of rows, are widened when they have come ([`Widening`]).

use super::vectors::MessageForm;
use super::{Ids, Minibatch, Pass, RankContext, Route, message_bytes, row_elements};
use crate::base::config::Wire;
use crate::base::{RankId, Result};
use crate::collective::{Carrier, Incoming, OneSided, Opened, narrow, widen};
use crate::memory::{Buffer, Supply, recycled};
use crate::simd::{Simd, combine, combine_halves};
use crate::sync::{Lender, Line, Matrix, Rows, Stores};

/// Lines of floats that become one line of bfloat16.
const PAIR: usize = 2;

/// The all-to-all of rows.
#[derive(Debug)]
pub struct RowMessages {
    messages: OneSided,
    pass: Pass,
    /// Samples of the minibatch whose messages are planned.
    planned: usize,
}

impl RowMessages {
    /// A rank's messages of a pass.
    pub(super) fn new(context: &RankContext, pass: Pass) -> Self {
        let stage = match pass {
            Pass::Forward => "exchange of pooled rows",
            Pass::Backward => "exchange of gradients",
        };
        Self { messages: OneSided::new(context.rank, context.layout.ranks(), stage), pass, planned: 0 }
    }

    /// Plans the messages of a minibatch, whose look-ups `ids` have: whole lines of what travels.
    fn plan(&mut self, context: &RankContext, carrier: &dyn Carrier, minibatch: &Minibatch, ids: &Ids) {
        let (layout, whole, pass) = (&*context.layout, minibatch.whole, self.pass);
        // With a row a sample, all minibatches of a size have messages of the same lengths.
        if self.planned == whole && layout.form() == MessageForm::RowPerSample {
            return;
        }
        self.messages.plan(carrier, |from, to| message_bytes(layout, ids, whole, pass, Route::of(pass, from, to)));
        self.planned = whole;
    }

    /// Lets `fill` write the messages of a minibatch, whose look-ups `ids` have, as they travel, and hands them over:
    /// as [`OneSided::begin`].
    ///
    /// # Errors
    /// [`crate::base::Error::Rank`] when the job is in trouble.
    pub(super) fn begin(
        &mut self,
        context: &RankContext,
        carrier: &mut dyn Carrier,
        minibatch: &Minibatch,
        ids: &Ids,
        fill: impl FnMut(&mut [Opened<'_>]),
    ) -> Result<()> {
        self.plan(context, carrier, minibatch, ids);
        self.messages.begin(carrier, fill)
    }

    /// Whether [`RowMessages::finish`] would not wait.
    ///
    /// # Errors
    /// [`crate::base::Error::Rank`] when the job is in trouble.
    pub(super) fn has_come(&mut self, carrier: &mut dyn Carrier) -> Result<bool> {
        self.messages.has_come(carrier)
    }

    /// Waits for the others' messages, and lends them.
    ///
    /// # Errors
    /// [`crate::base::Error::Rank`] when the job is in trouble.
    pub(super) fn finish<'a>(&'a mut self, carrier: &'a mut dyn Carrier) -> Result<Incoming<'a>> {
        self.messages.finish(carrier)
    }
}

/// Lines of floats that all messages of a pass from or to a rank take at most, in minibatches of up to `batch` samples;
/// none where floats travel.
fn lines_of_floats(context: &RankContext, pass: Pass, batch: usize, is_sent: bool) -> usize {
    let (own, layout) = (context.rank, &*context.layout);
    if layout.wire() == Wire::F32 {
        return 0;
    }
    let others = RankId::all(layout.ranks()).filter(|other| *other != own);
    let lines = others.map(|other| {
        let route = if is_sent { Route::of(pass, own, other) } else { Route::of(pass, other, own) };
        Line::hold(row_elements(layout, batch, route) * size_of::<f32>())
    });
    lines.sum()
}

/// Messages whose floats are written in any order, and rounded when all of them are there.
#[derive(Debug)]
pub(super) struct Rounding {
    /// All messages, before they are rounded; empty where floats travel.
    floats: Buffer<Line>,
    /// Those that are filled together, and of each where it is among the floats and how it is written: memory that runs
    /// use again.
    whole: Vec<Opened<'static>>,
    places: Vec<(usize, Stores)>,
    lender: Lender<Line>,
}

impl Rounding {
    /// Of a pass in minibatches of up to `batch` samples.
    ///
    /// # Errors
    /// When the supply is exhausted.
    pub(super) fn new(context: &RankContext, pass: Pass, batch: usize, supply: &mut Supply<'_>) -> Result<Self> {
        let ranks = context.layout.ranks();
        let lines = lines_of_floats(context, pass, batch, true);
        Ok(Self {
            floats: supply.buffer("rows before they are rounded", lines)?,
            whole: Vec::with_capacity(ranks),
            places: Vec::with_capacity(ranks),
            lender: Lender::new(ranks, context.team.threads()),
        })
    }

    /// Lets `fill` write the floats of these messages, which travel as the layout says.
    pub(super) fn fill(
        &mut self,
        context: &RankContext,
        messages: &mut [Opened<'_>],
        fill: &mut impl FnMut(&mut [Opened<'_>]),
    ) {
        if context.layout.wire() == Wire::F32 {
            return fill(messages);
        }
        let Self { floats: out, whole, places, lender } = self;
        let (team, isa) = (&context.team, context.team.isa());
        let (mut floats, mut left): (Vec<Opened<'_>>, _) = (recycled(std::mem::take(whole)), &mut out[..]);
        let (mut start, mut loan) = (0, lender.begin());
        places.clear();
        for Opened { to, stores, lines } in messages {
            let own = left.split_off_mut(..PAIR * lines.len()).expect("room for all messages");
            floats.push(Opened { to: *to, stores: Stores::Plain, lines: own });
            places.push((start, *stores));
            start += lines.len();
            loan.matrix(Matrix { data: std::mem::take(lines), width: 1 });
        }
        fill(&mut floats);
        *whole = recycled(floats);
        loan.cut_evenly(team.threads());
        let (floats, places): (&[f32], _) = (bytemuck::cast_slice(&out[..]), &places[..]);
        team.each(loan.lend(), |mut share| {
            for at in share.matrices() {
                let ((start, stores), mut band) = (places[at], share.band(at));
                let [from, to] = [band.rows().start, band.rows().end].map(|line| (start + line) * PAIR * Line::FLOATS);
                narrow(isa, stores, &floats[from..to], band.all());
            }
        });
    }
}

/// Floats of messages that came as halves.
#[derive(Debug)]
pub(super) struct Widening {
    /// Empty where floats travel.
    floats: Buffer<Line>,
    /// Where what came from each rank begins; one more entry than ranks.
    starts: Vec<usize>,
}

impl Widening {
    /// Of a pass in minibatches of up to `batch` samples.
    ///
    /// # Errors
    /// When the supply is exhausted.
    pub(super) fn new(context: &RankContext, pass: Pass, batch: usize, supply: &mut Supply<'_>) -> Result<Self> {
        let lines = lines_of_floats(context, pass, batch, false);
        let floats = supply.buffer("rows that came rounded", lines)?;
        Ok(Self { floats, starts: vec![0; context.layout.ranks() + 1] })
    }

    /// Takes what has come: nothing where floats travel, which are read where they are.
    pub(super) fn take(&mut self, context: &RankContext, incoming: &Incoming<'_>) {
        if context.layout.wire() == Wire::F32 {
            return;
        }
        let Self { floats, starts } = self;
        for from in RankId::all(starts.len() - 1) {
            let lines = if from == context.rank { 0 } else { PAIR * incoming.from(from).len() };
            starts[from.index() + 1] = starts[from.index()] + lines;
        }
        let (team, isa, starts) = (&context.team, context.team.isa(), &starts[..]);
        let all = starts[starts.len() - 1];
        team.each(Rows::new(&mut floats[..all], PAIR, team.threads(), 1), |band| {
            let (mut at, mut left) = (PAIR * band.first, band.data);
            // Of the rank whose floats the first ones are, and of those behind it.
            let mut from = starts.partition_point(|start| *start <= at) - 1;
            while !left.is_empty() {
                let len = left.len().min(starts[from + 1] - at);
                let floats = left.split_off_mut(..len).expect("no more than there are");
                let lines = &incoming.from(RankId(from as u32))[(at - starts[from]) / PAIR..][..len / PAIR];
                widen(isa, lines, bytemuck::cast_slice_mut(floats));
                (at, from) = (at + len, from + 1);
            }
        });
    }

    /// The floats from a rank, of what has come and was taken.
    pub(super) fn from<'a>(&'a self, incoming: &'a Incoming<'_>, rank: RankId) -> &'a [f32] {
        let lines = match self.starts[rank.index()..] {
            _ if self.floats.is_empty() => incoming.from(rank),
            [start, end, ..] => &self.floats[start..end],
            _ => unreachable!("a start and an end a rank"),
        };
        bytemuck::cast_slice(lines)
    }
}

/// Vectors of a message, as they lie in it.
#[derive(Debug, Clone, Copy)]
pub(super) enum Cells<'a> {
    Floats(&'a [f32]),
    Halves(&'a [u16]),
}

impl<'a> Cells<'a> {
    /// What travels as the layout says.
    pub(super) fn new(wire: Wire, lines: &'a [Line]) -> Self {
        match wire {
            Wire::F32 => Self::Floats(bytemuck::cast_slice(lines)),
            Wire::Bf16 => Self::Halves(bytemuck::cast_slice(lines)),
        }
    }

    /// Those from an element on.
    #[inline(always)]
    pub(super) fn behind(self, start: usize) -> Self {
        match self {
            Self::Floats(floats) => Self::Floats(&floats[start..]),
            Self::Halves(halves) => Self::Halves(&halves[start..]),
        }
    }

    /// Writes the vector at an element to `to`, or adds it.
    #[inline(always)]
    pub(super) fn put<S: Simd, const ADD: bool>(self, simd: S, start: usize, to: &mut [f32]) {
        match self {
            Self::Floats(floats) if ADD => {
                combine(simd, to, &floats[start..start + to.len()], |sum, x| simd.add(sum, x))
            }
            Self::Floats(floats) => to.copy_from_slice(&floats[start..start + to.len()]),
            Self::Halves(halves) => {
                combine_halves(
                    simd,
                    to,
                    &halves[start..start + to.len()],
                    |sum, x| {
                        if ADD { simd.add(sum, x) } else { x }
                    },
                )
            }
        }
    }
}
