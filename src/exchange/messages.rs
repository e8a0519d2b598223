//! Messages of rows: floats on both sides, and on the way between them what the layout says.
//!
//! What travels as it is, is written in the receiver's window and read there. What is rounded on the way is written
//! beside it first, and widened when it has come.

use super::vectors::MessageForm;
use super::{Ids, Minibatch, Pass, RankContext, Route, message_elements, row_elements};
use crate::base::config::Wire;
use crate::base::{RankId, Result};
use crate::collective::{Carrier, Incoming, OneSided, Opened, narrow, widen};
use crate::memory::{Buffer, Supply, recycled};
use crate::sync::{Lender, Line, Matrix, Rows, Stores};

/// Lines of floats that become one line of bfloat16.
const PAIR: usize = 2;

/// The all-to-all of rows, with its memory.
#[derive(Debug)]
pub struct RowMessages {
    messages: OneSided,
    pass: Pass,
    /// Samples of the minibatch whose messages are planned.
    planned: usize,
    /// Where rows are rounded on the way: all messages, before they are.
    out: Buffer<Line>,
    /// Those that are filled together, and of each where it is in `out` and how it is written: memory that runs use
    /// again.
    whole: Vec<Opened<'static>>,
    places: Vec<(usize, Stores)>,
    lender: Lender<Line>,
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
        let lines = |from, to| {
            let Route { owner, asking } = Route::of(pass, from, to);
            Line::hold(row_elements(layout, batch, owner, asking) * size_of::<f32>())
        };
        let others = || (0..layout.ranks() as u32).map(RankId).filter(|other| *other != rank && wire != Wire::F32);
        let out: usize = others().map(|to| lines(rank, to)).sum();
        let into: usize = others().map(|from| lines(from, rank)).sum();
        Ok(Self {
            messages: OneSided::new(rank, layout.ranks(), stage),
            pass,
            planned: 0,
            starts: vec![0; layout.ranks() + 1],
            out: supply.buffer("rows before they are rounded", out)?,
            whole: Vec::with_capacity(layout.ranks()),
            places: Vec::with_capacity(layout.ranks()),
            lender: Lender::new(layout.ranks(), context.team.threads()),
            into: supply.buffer("rows that came rounded", into)?,
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
        let elements = |from, to| message_elements(layout, ids, whole, pass, Route::of(pass, from, to));
        self.messages.plan(carrier, |from, to| elements(from, to) * bytes);
        for from in (0..carrier.ranks() as u32).map(RankId) {
            let lines = if from == own { 0 } else { Line::hold(elements(from, own) * size_of::<f32>()) };
            self.starts[from.index() + 1] = self.starts[from.index()] + lines;
        }
        self.planned = whole;
    }

    /// Lets `fill` write the floats of the messages of a minibatch, whose look-ups `ids` have, and hands them over: as
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
        mut fill: impl FnMut(&mut [Opened<'_>]),
    ) -> Result<()> {
        self.plan(context, carrier, minibatch, ids);
        self.widened = false;
        let Self { messages, out, whole, places, lender, .. } = self;
        if context.layout.wire() == Wire::F32 {
            return messages.begin(carrier, fill);
        }
        let team = &context.team;
        let isa = team.isa();
        messages.begin(carrier, |rounded| {
            let (mut messages, mut left): (Vec<Opened<'_>>, _) = (recycled(std::mem::take(whole)), &mut out[..]);
            let (mut start, mut loan) = (0, lender.begin());
            places.clear();
            for Opened { to, stores, lines } in rounded {
                let floats = left.split_off_mut(..PAIR * lines.len()).expect("room for all messages");
                messages.push(Opened { to: *to, stores: Stores::Plain, lines: floats });
                places.push((start, *stores));
                start += lines.len();
                loan.matrix(Matrix { data: std::mem::take(lines), width: 1 });
            }
            fill(&mut messages);
            *whole = recycled(messages);
            loan.cut_evenly(team.threads());
            let (floats, places): (&[f32], _) = (bytemuck::cast_slice(&out[..]), &places[..]);
            team.each(loan.lend(), |mut share| {
                for at in share.matrices() {
                    let ((start, stores), mut band) = (places[at], share.band(at));
                    let [from, to] =
                        [band.rows().start, band.rows().end].map(|line| (start + line) * PAIR * Line::FLOATS);
                    narrow(isa, stores, &floats[from..to], band.all());
                }
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
        let (incoming, starts) = (&incoming, &starts[..]);
        let all = starts[starts.len() - 1];
        team.each(Rows::new(&mut into[..all], PAIR, team.threads(), 1), |band| {
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
