//! The stages of a step against the limits of this machine, as `train --profile` and `bench step` show them.

use std::fmt;

use serde::Serialize;

use super::bench::table::Table;
use crate::base::Result;
use crate::base::config::Precision;
use crate::machine::limits::{Bracket, CEILINGS, Ceiling, Rate};
use crate::machine::team::Team;
use crate::model::Limits;
use crate::train::{Clock, Profile, StageTime};

/// All stages, and the limits that they are held against.
#[derive(Debug, Serialize)]
pub struct Profiled {
    /// Mean milliseconds a step of waiting for data, which is no stage.
    wait_ms: f64,
    stages: Vec<StageTime>,
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

/// Measures the limits that [`Profiled::new`] wants before and after the steps; tables have `dim` columns.
///
/// # Errors
/// When the hardware cannot be explored or memory is refused.
pub fn limits(team: &Team, dim: usize, precision: Precision) -> Result<[Rate; CEILINGS.len()]> {
    Ok(Ceiling::new(team, dim, precision, None)?.measure())
}

impl Profiled {
    /// The profile of the steps that `clock` timed, between two measurements of the limits.
    pub fn new(profile: &Profile, clock: &Clock, brackets: [Bracket; CEILINGS.len()]) -> Self {
        let [gflop_s, stream_gb_s, gather_gb_s, scatter_gb_s, tiles] = brackets.map(|bracket| bracket.mean());
        let limits = Limits { gflop_s, stream_gb_s, gather_gb_s, scatter_gb_s };
        let (stages, on_tiles) = (profile.stages(clock, &limits), brackets[0] != brackets[4]);
        let tiles_roofline_ms =
            on_tiles.then(|| profile.roofline_ms(&Limits { gflop_s: tiles.max(gflop_s), ..limits }));
        let measured = if on_tiles { &brackets[..] } else { &brackets[..4] };
        let limits: Vec<_> =
            CEILINGS.into_iter().zip(measured).map(|(what, &bracket)| LimitRow { what, bracket }).collect();
        let remarks = limits.iter().filter_map(|row| row.bracket.remark(row.what)).collect();
        Self { wait_ms: clock.wait_ms(), stages, tiles_roofline_ms, limits, remarks, samples: profile.samples() }
    }

    /// The least milliseconds of a step.
    pub fn roofline_ms(&self) -> f64 {
        self.stages.iter().map(|stage| stage.roofline_ms).sum()
    }

    /// A line a stage; `step` names the last line, a step of `ms` milliseconds.
    pub fn table(&self, step: &str, ms: f64) -> Table {
        let percent = |part: f64| if part > 0.0 { format!("{:.0} %", 100.0 * part) } else { "-".to_owned() };
        let mut table = Table::new(["stage", "ms", "share", "at least", "of limit", "achieved"]);
        for row in &self.stages {
            let times = [format!("{:.3}", row.ms), percent(row.share), format!("{:.3}", row.roofline_ms)];
            let figures = times.into_iter().chain([percent(row.ratio), row.achieved()]);
            table.row([row.stage.to_owned()].into_iter().chain(figures));
        }
        let roofline = self.roofline_ms();
        let times = [format!("{ms:.3}"), String::new(), format!("{roofline:.3}")];
        let rate = format!("{:.0} samples/s", self.samples as f64 / ms * 1e3);
        table.row([step.to_owned()].into_iter().chain(times).chain([percent(roofline / ms), rate]));
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
