//! Messages of rows: floats on both sides, and on the way between them what the layout says.
//!
//! What travels as it is, is written in the receiver's window and read there. What is rounded on the way is written
//! beside it first, and widened when it has come.

use super::vectors::MessageForm;
use super::{Ids, Minibatch, Pass, RankContext, Route, message_floats, row_floats};
use crate::base::config::Wire;
use crate::base::{RankId, Result};
use crate::collective::{Carrier, Incoming, OneSided, narrow, widen};
use crate::memory::{Buffer, Supply};
use crate::sync::{Line, Rows, Stores};

/// Lines of floats that become one line of bfloat16.
const PAIR: usize = 2;

/// The all-to-all of rows, with its memory.
#[derive(Debug)]
pub struct RowMessages {
    messages: OneSided,
    pass: Pass,
    /// Samples of the minibatch whose messages are planned.
    planned: usize,
    /// Where rows are rounded on the way: one message, before it is.
    out: Buffer<Line>,
    /// And all that come, widened.
    into: Buffer<Line>,
    /// Where what comes from each rank begins among what was widened; one more entry than ranks.
    starts: Vec<usize>,
    /// Whether what was begun last has come and is widened.
    widened: bool,
}

impl RowMessages {
    /// A rank's messages of a pass, in minibatches of up to `batch` samples.
    ///
    /// # Errors
    /// When the supply is exhausted.
    pub(super) fn new(context: &RankContext, pass: Pass, batch: usize, supply: &mut Supply<'_>) -> Result<Self> {
        let (rank, layout) = (context.rank, &*context.layout);
        let wire = layout.wire();
        let stage = match pass {
            Pass::Forward => "exchange of pooled rows",
            Pass::Backward => "exchange of gradients",
        };
        let floats = |from, to| {
            let Route { owner, asking } = Route::of(pass, from, to);
            row_floats(layout, batch, owner, asking)
        };
        let others = || (0..layout.ranks() as u32).map(RankId).filter(|other| *other != rank && wire != Wire::F32);
        let out = others().map(|to| floats(rank, to)).max().unwrap_or(0);
        let into: usize = others().map(|from| floats(from, rank)).sum();
        let mut lines = |name, bytes| supply.buffer(name, Line::hold(bytes));
        Ok(Self {
            messages: OneSided::new(rank, layout.ranks(), stage),
            pass,
            planned: 0,
            starts: vec![0; layout.ranks() + 1],
            out: lines("rows before they are rounded", out)?,
            into: lines("rows that came rounded", into)?,
            widened: false,
        })
    }

    /// Plans the messages of a minibatch, whose look-ups `ids` have: whole lines of what travels.
    fn plan(&mut self, context: &RankContext, carrier: &dyn Carrier, minibatch: &Minibatch, ids: &Ids) {
        let (layout, whole, pass) = (&*context.layout, minibatch.whole, self.pass);
        // With a row a sample, all minibatches of a size have messages of the same lengths.
        if self.planned == whole && layout.form() == MessageForm::RowPerSample {
            return;
        }
        let (own, bytes) = (carrier.rank(), layout.wire().bytes());
        let floats = |from, to| message_floats(layout, ids, whole, pass, Route::of(pass, from, to));
        self.messages.plan(carrier, |from, to| floats(from, to) / size_of::<f32>() * bytes);
        for from in (0..carrier.ranks() as u32).map(RankId) {
            let lines = if from == own { 0 } else { Line::hold(floats(from, own)) };
            self.starts[from.index() + 1] = self.starts[from.index()] + lines;
        }
        self.planned = whole;
    }

    /// Lets `fill` write the floats of each message of a minibatch, whose look-ups `ids` have, and hands it over: as
    /// [`OneSided::begin`].
    ///
    /// # Errors
    /// [`crate::base::Error::Rank`] when the job is in trouble.
    pub(super) fn begin(
        &mut self,
        context: &RankContext,
        carrier: &mut dyn Carrier,
        minibatch: &Minibatch,
        ids: &Ids,
        mut fill: impl FnMut(RankId, &mut [Line], Stores),
    ) -> Result<()> {
        self.plan(context, carrier, minibatch, ids);
        self.widened = false;
        let Self { messages, out, .. } = self;
        if context.layout.wire() == Wire::F32 {
            return messages.begin(carrier, fill);
        }
        let team = &context.team;
        let isa = team.isa();
        messages.begin(carrier, |to, lines, stores| {
            let floats = &mut out[..PAIR * lines.len()];
            fill(to, floats, Stores::Plain);
            let floats: &[f32] = bytemuck::cast_slice(floats);
            team.each(Rows::new(lines, 1, team.threads(), 1), |band| {
                let from = band.first * PAIR * Line::FLOATS;
                narrow(isa, stores, &floats[from..from + band.rows * PAIR * Line::FLOATS], band.data);
            });
        })
    }

    /// Whether [`RowMessages::finish`] would not wait.
    ///
    /// # Errors
    /// [`crate::base::Error::Rank`] when the job is in trouble.
    pub(super) fn has_come(&mut self, carrier: &mut dyn Carrier) -> Result<bool> {
        Ok(self.widened || self.messages.has_come(carrier)?)
    }

    /// Waits for the others' messages, and lends them, for the last time or not.
    ///
    /// # Errors
    /// [`crate::base::Error::Rank`] when the job is in trouble.
    pub(super) fn finish<'a>(
        &'a mut self,
        context: &RankContext,
        carrier: &'a mut dyn Carrier,
        is_last: bool,
    ) -> Result<Arrived<'a>> {
        let Self { messages, into, starts, widened, .. } = self;
        if *widened {
            return Ok(Arrived::Widened { into, starts });
        }
        let mut incoming = messages.finish(carrier)?;
        if context.layout.wire() == Wire::F32 {
            if !is_last {
                incoming.keep();
            }
            return Ok(Arrived::AsSent(incoming));
        }
        *widened = true;
        let team = &context.team;
        let isa = team.isa();
        for from in (0..starts.len() as u32 - 1).map(RankId) {
            let lines = incoming.from(from);
            let floats = &mut into[starts[from.index()]..starts[from.index() + 1]];
            team.each(Rows::new(floats, PAIR, team.threads(), 1), |band| {
                widen(isa, &lines[band.first..band.first + band.rows], bytemuck::cast_slice_mut(band.data));
            });
        }
        Ok(Arrived::Widened { into, starts })
    }
}

/// Rows that have come.
pub(super) enum Arrived<'a> {
    /// In the windows.
    AsSent(Incoming<'a>),
    /// Beside them.
    Widened { into: &'a [Line], starts: &'a [usize] },
}

impl Arrived<'_> {
    /// The floats from a rank; none from this one.
    pub fn from(&self, rank: RankId) -> &[f32] {
        match self {
            Self::AsSent(incoming) => bytemuck::cast_slice(incoming.from(rank)),
            Self::Widened { into, starts } => {
                bytemuck::cast_slice(&into[starts[rank.index()]..starts[rank.index() + 1]])
            }
        }
    }
}
