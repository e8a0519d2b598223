//! Files of measured plans: `octorec tune gemm` writes them, `train` and `bench` let passes use them.
//!
//! A plan is good for one processor, instruction set and number of threads. A file for others is left unused and the
//! user is told so: the run is as right without it, and not slower than one that never was tuned.

use std::collections::HashMap;
use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::base::config::Config;
use crate::base::console::note;
use crate::base::units::Many;
use crate::base::{Error, Result, input};
use crate::machine::limits::Processor;
use crate::math::brgemm::{Plan, Shape, install};
use crate::simd::Isa;

/// A file of plans.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PlanFile {
    /// The processor's name.
    pub machine: String,
    /// The instruction set.
    pub isa: String,
    /// Threads of a team.
    pub threads: usize,
    /// What was found to be quicker than the model's choice.
    #[serde(default)]
    pub plans: Vec<Entry>,
}

/// One shape and its plan.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Entry {
    /// Rows of the result.
    pub rows: usize,
    /// Ranges of rows begin at multiples of this.
    pub grain: usize,
    /// Columns of the result.
    pub columns: usize,
    /// Terms of each sum, pairs of bfloat16 counted as one.
    pub steps: usize,
    /// Whether a sum cannot be left and taken up again.
    pub whole: bool,
    /// Ranges of panels.
    pub across: usize,
    /// Steps of one chunk of depth.
    pub depth: usize,
    /// Panels at a time.
    pub group: usize,
    /// Whether the right operand is copied in strips.
    #[serde(default)]
    pub strips: bool,
    /// How many times quicker than the model's choice it was.
    pub gain: f64,
}

impl Entry {
    /// The entry of a plan.
    pub const fn new(shape: Shape, plan: Plan, gain: f64) -> Self {
        let Shape { rows, grain, columns, steps, whole, .. } = shape;
        let Plan { across, depth, group, strips, .. } = plan;
        Self { rows, grain, columns, steps, whole, across, depth, group, strips, gain }
    }

    /// The shape of the work on a team of `threads`.
    pub const fn shape(&self, threads: usize) -> Shape {
        let Self { rows, grain, columns, steps, whole, .. } = *self;
        Shape { rows, grain, columns, steps, whole, threads }
    }

    /// The shape and the plan, if the shape allows it.
    fn plan(&self, threads: usize) -> std::result::Result<(Shape, Plan), String> {
        /// More of anything no layer has, and no product of it counts bytes.
        const MOST: usize = 1 << 24;
        let Self { rows, grain, columns, steps, across, depth, group, .. } = *self;
        let sizes = [
            ("rows", rows),
            ("grain", grain),
            ("columns", columns),
            ("steps", steps),
            ("across", across),
            ("depth", depth),
            ("group", group),
        ];
        if let Some((name, size)) = sizes.into_iter().find(|(_, size)| !(1..=MOST).contains(size)) {
            return Err(format!("{name} = {size} is no layer's: 1 to {MOST} are possible"));
        }
        let shape = self.shape(threads);
        Ok((shape, Plan::chosen(shape, across, depth, group, self.strips)?))
    }
}

impl PlanFile {
    /// A file without plans for this machine and teams of so many threads.
    ///
    /// # Errors
    /// When the hardware cannot be explored.
    pub fn empty(threads: usize, isa: Isa) -> Result<Self> {
        let machine = Processor::of_this_machine()?.model;
        Ok(Self { machine, isa: isa.name().to_owned(), threads, plans: Vec::new() })
    }

    /// Reads a file.
    ///
    /// # Errors
    /// When it cannot be read, is no such file, or has a plan that its shape does not allow.
    fn read(path: &Path) -> Result<(Self, HashMap<Shape, Plan>)> {
        let fail = |reason: String| Error::config(path.display().to_string(), reason);
        let text = input::read_text(path)?;
        let file: Self = toml::from_str(&text).map_err(|error| {
            fail(format!("is no file of plans as `octorec tune gemm` writes them: {}", error.to_string().trim_end()))
        })?;
        if file.threads == 0 {
            return Err(fail("threads = 0: plans are for at least one thread".to_owned()));
        }
        let plan = |(index, entry): (usize, &Entry)| {
            entry.plan(file.threads).map_err(|reason| fail(format!("plan {} of it is impossible: {reason}", index + 1)))
        };
        let plans = file.plans.iter().enumerate().map(plan).collect::<Result<_>>()?;
        Ok((file, plans))
    }

    /// What it was made for.
    fn maker(&self) -> String {
        format!("{}, {}, {}", self.machine, self.isa, Many(self.threads as u64, "thread"))
    }
}

/// Lets all passes use the plans of a file, or notes that they are for another machine.
///
/// # Errors
/// As [`PlanFile::read`], when a plan for this machine has strips that its tiles do not read, and when the hardware
/// cannot be explored.
pub fn install_plans(path: &Path, threads: usize, isa: Isa) -> Result<()> {
    let (file, plans) = PlanFile::read(path)?;
    let here = PlanFile::empty(threads, isa)?.maker();
    if file.maker() == here {
        // Not before: plans of another machine are not this one's to judge.
        if let Some(index) = file.plans.iter().position(|entry| entry.strips && !Plan::reads_strips(isa)) {
            let reason = format!("plan {} of it is impossible: tiles of {} read no strips", index + 1, isa.name());
            return Err(Error::config(path.display().to_string(), format!("{reason}; set its strips = false")));
        }
        note!("plans: {} shapes from {}", plans.len(), path.display());
        install(plans);
    } else {
        // Nor are those that ranks with other threads had, which were tried before.
        install(HashMap::new());
        let path = path.display();
        note!("note: {path} is left unused: its plans are for {}; this run has {here}", file.maker());
    }
    Ok(())
}

/// Does so with the configuration's file, if it names one.
///
/// # Errors
/// As [`install_plans`].
pub fn use_plans(config: &Config, threads: usize, isa: Isa) -> Result<()> {
    let path = &config.train.tuned;
    if path.is_empty() {
        return Ok(());
    }
    let named = |error: Error| Error::config("train.tuned", error.to_string());
    install_plans(Path::new(path), threads, isa).map_err(named)
}
