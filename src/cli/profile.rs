//! The stages of a step against the limits of this machine, as `train --profile` and `bench step` show them.

use std::fmt;

use serde::Serialize;

use super::table::Table;
use super::timing::machine_team;
use crate::base::Result;
use crate::base::config::Config;
use crate::base::units::Many;
use crate::machine::limits::{Bracket, CEILINGS, Ceiling, Rate};
use crate::machine::placement::Placement;
use crate::machine::team::Team;
use crate::model::{Limits, Stage};
use crate::simd::Isa;
use crate::train::{Breakdown, Profile, StageTime};

/// All stages, and the limits that they are held against.
#[derive(Debug, Serialize)]
pub struct Profiled {
    /// Mean milliseconds a step of waiting for data, which is no stage.
    wait_ms: f64,
    stages: Vec<StageTime>,
    /// Mean milliseconds a step in which communication threads were at work while the compute threads were, too.
    hidden_dense_ms: f64,
    pub(super) ranks: usize,
    /// Of the job: of several, ranks, times and work are those of one.
    machines: usize,
    /// The least milliseconds of a step whose f32 are multiplied on tiles; the stages' are of fused multiply-adds.
    #[serde(skip_serializing_if = "Option::is_none")]
    tiles_roofline_ms: Option<f64>,
    limits: Vec<LimitRow>,
    remarks: Vec<String>,
    #[serde(skip)]
    samples: usize,
}

#[derive(Debug, Serialize)]
struct LimitRow {
    what: &'static str,
    #[serde(flatten)]
    bracket: Bracket,
}

/// Measures the limits of a model's steps that [`Profiled::new`] wants before and after them; memory is
/// measured on so many bytes, or on more than the caches hold.
///
/// # Errors
/// When the hardware cannot be explored or memory is refused.
pub fn limits(team: &Team, config: &Config, bytes: Option<usize>) -> Result<[Rate; CEILINGS.len()]> {
    // Of rows of the deep tables: those of a wide part are of one weight.
    let (model, precision) = (&config.model, config.train.precision);
    Ok(Ceiling::new(team, model.dim, [model.layer_precision(precision), precision], bytes)?.measure())
}

/// The limits that [`Profiled::new`] wants, measured before and after a run.
pub struct LimitsBracket<'a> {
    config: Config,
    ranks: (&'a Placement, Isa),
    /// Nothing where nobody wants them.
    before: Option<[Rate; CEILINGS.len()]>,
}

impl<'a> LimitsBracket<'a> {
    /// Measures them before a run on ranks that stand so, if they are wanted.
    ///
    /// # Errors
    /// As [`limits`].
    pub fn open(wanted: bool, config: &Config, ranks: (&'a Placement, Isa)) -> Result<Self> {
        let mut bracket = Self { config: config.clone(), ranks, before: None };
        bracket.before = wanted.then(|| bracket.measure()).transpose()?;
        Ok(bracket)
    }

    /// Measures them after it.
    ///
    /// # Errors
    /// As [`limits`].
    pub fn close(self) -> Result<Option<[Bracket; CEILINGS.len()]>> {
        let Some(before) = self.before else { return Ok(None) };
        let after = self.measure()?;
        Ok(Some(std::array::from_fn(|at| Bracket { before: before[at], after: after[at] })))
    }

    fn measure(&self) -> Result<[Rate; CEILINGS.len()]> {
        let (placement, isa) = self.ranks;
        limits(&machine_team(placement, isa)?, &self.config, None)
    }
}

impl Profiled {
    /// The profile of the steps that `ranks` timed, those of one of so many machines, between two measurements of its
    /// limits.
    pub fn new(
        profile: &Profile,
        (ranks, machines): (&[Breakdown], usize),
        brackets: [Bracket; CEILINGS.len()],
    ) -> Self {
        let [gflop_s, stream_gb_s, gather_gb_s, scatter_gb_s, tiles] = brackets.map(|bracket| bracket.mean());
        let limits = Limits { gflop_s, stream_gb_s, gather_gb_s, scatter_gb_s };
        let (stages, on_tiles) = (profile.stages(ranks, &limits), brackets[0] != brackets[4]);
        let tiles_roofline_ms =
            on_tiles.then(|| profile.roofline_ms(&Limits { gflop_s: tiles.max(gflop_s), ..limits }));
        let measured = if on_tiles { &brackets[..] } else { &brackets[..4] };
        let limits: Vec<_> =
            CEILINGS.into_iter().zip(measured).map(|(what, &bracket)| LimitRow { what, bracket }).collect();
        let remarks = limits.iter().filter_map(|row| row.bracket.remark(row.what)).collect();
        let mean = |ms: fn(&Breakdown) -> f64| ranks.iter().map(ms).sum::<f64>() / ranks.len().max(1) as f64;
        Self {
            wait_ms: mean(|rank| rank.stages_ms[Stage::WaitData as usize]),
            hidden_dense_ms: mean(|rank| rank.hidden_dense_ms),
            ranks: ranks.len(),
            machines,
            stages,
            tiles_roofline_ms,
            limits,
            remarks,
            samples: profile.samples(),
        }
    }

    /// The least milliseconds of a step.
    pub fn roofline_ms(&self) -> f64 {
        self.stages.iter().map(|stage| stage.roofline_ms).sum()
    }

    /// A line a stage; `step` names the last line, a step of `ms` milliseconds.
    pub fn table(&self, step: &str, ms: f64) -> Table {
        let percent = |part: f64| if part > 0.0 { format!("{:.0} %", 100.0 * part) } else { "-".to_owned() };
        // Of several ranks, work and achievement are those of all together, times those of the mean, least and most.
        let several = |cells: [String; 2]| if self.ranks > 1 { cells.to_vec() } else { Vec::new() };
        let head = [vec!["stage".to_owned(), "ms".to_owned()], several(["least", "most"].map(str::to_owned))].concat();
        let rest = ["share", "at least", "of limit", "achieved"].map(str::to_owned);
        let mut table = Table::new(head.into_iter().chain(rest));
        for row in &self.stages {
            let spread = several([row.ms_min, row.ms_max].map(|ms| format!("{ms:.3}")));
            let start = [row.stage.to_owned(), format!("{:.3}", row.ms)].into_iter().chain(spread);
            let has_work = row.roofline_ms > 0.0;
            let least = if has_work { format!("{:.3}", row.roofline_ms) } else { String::new() };
            let of_limit = if has_work { percent(row.ratio) } else { String::new() };
            table.row(start.chain([percent(row.share), least, of_limit, row.achieved()]));
        }
        let roofline = self.roofline_ms();
        let start = [step.to_owned(), format!("{ms:.3}")].into_iter().chain(several([String::new(), String::new()]));
        let rate = format!("{:.0} samples/s", self.samples as f64 / ms * 1e3);
        table.row(start.chain([String::new(), format!("{roofline:.3}"), percent(roofline / ms), rate]));
        table
    }

    /// The limits, a line each, and what the user should know about them.
    pub fn write_limits(&self, f: &mut impl fmt::Write) -> fmt::Result {
        for LimitRow { what, bracket } in &self.limits {
            let (mean, before, after) = (bracket.mean(), bracket.before.median, bracket.after.median);
            writeln!(f, "  {what}: {mean:.1} (before {before:.1}, after {after:.1})")?;
        }
        if let Some(ms) = self.tiles_roofline_ms {
            writeln!(f, "  f32 of wide layers go over tiles, where a step takes at least {ms:.3} ms")?;
        }
        if self.machines > 1 {
            let (ranks, machines) = (Many(self.ranks as u64, "rank"), self.machines);
            writeln!(f, "  times and work are those of the {ranks} of this machine, one of {machines}")?;
        }
        if self.ranks > 1 {
            writeln!(
                f,
                "  hidden behind other stages: {:.3} ms of the reduction of dense gradients",
                self.hidden_dense_ms
            )?;
        }
        if self.stages.iter().any(|stage| stage.ratio > 1.0) {
            writeln!(
                f,
                "  more than 100 % of a limit: of memory, because limits are measured outside the caches, in which this \
                 stage found part of its data; of arithmetic, because a machine that is shared was slower when the \
                 limit was measured: run it again"
            )?;
        }
        self.remarks.iter().try_for_each(|remark| writeln!(f, "  {remark}"))
    }
}

impl fmt::Display for Profiled {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ms = self.stages.iter().map(|stage| stage.ms).sum::<f64>();
        writeln!(f, "{}", self.table("step (mean)", ms.max(f64::MIN_POSITIVE)))?;
        writeln!(
            f,
            "  and {:.3} ms a step of waiting for data; `at least` divides each stage's work by",
            self.wait_ms
        )?;
        self.write_limits(f)
    }
}
