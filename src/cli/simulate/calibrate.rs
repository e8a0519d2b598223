//! Rates that a bench has measured, for a simulation of more ranks of the same cores.

use std::path::Path;

use serde::Deserialize;

use crate::base::units::{Count, Many};
use crate::base::{Error, Result, input};
use crate::model::Stage;
use crate::simulate::{Outcome, Rates};

/// Samples of a minibatch, at most, as for `train.batch`.
const BATCH_MOST: usize = 1 << 31;
/// Milliseconds, at most: longer than any step.
const MS_MOST: f64 = 1e9;

/// What is read of the report of `octorec bench step --json`.
#[derive(Debug, Deserialize)]
pub(super) struct Measured {
    ranks: usize,
    threads: usize,
    pub batch: usize,
    layer_parameters: usize,
    ms_median: f64,
    stages: Vec<MeasuredStage>,
}

#[derive(Debug, Deserialize)]
struct MeasuredStage {
    stage: String,
    ms: f64,
}

/// The report in a file, which must be of a network with so many parameters in its layers.
pub(super) fn read(path: &Path, parameters: usize) -> Result<Measured> {
    let text = input::read_text(path)?;
    let measured: Measured = serde_json::from_str(&text).map_err(|error| {
        let reason = format!("{error}: this is not what `octorec bench step --ranks 1 --json` prints, with the --preset and keys of this model");
        Error::config(path.display().to_string(), reason)
    })?;
    if measured.ranks != 1 {
        let reason = format!("was measured with {} ranks: repeat `octorec bench step` with --ranks 1", measured.ranks);
        return Err(Error::config(path.display().to_string(), reason));
    }
    if measured.layer_parameters != parameters {
        let reason = format!(
            "was measured of another model, whose layers have {} parameters and not {}: repeat `octorec bench step` with the keys \
             of the model that is simulated, and the same --rows-cap, on which its dimensions may depend",
            Count(measured.layer_parameters as u64),
            Count(parameters as u64)
        );
        return Err(Error::config(path.display().to_string(), reason));
    }
    let refuse = |what: String| Err(Error::config(path.display().to_string(), format!("{what}: measure anew")));
    if !(1..=BATCH_MOST).contains(&measured.batch) {
        return refuse(format!("batch = {} must lie in [1, {BATCH_MOST}]", measured.batch));
    }
    let all = measured.stages.iter().map(|stage| (stage.stage.as_str(), stage.ms));
    let wrong = all.chain([("ms_median", measured.ms_median)]).find(|(_, ms)| !(0.0..=MS_MOST).contains(ms));
    match wrong.map(|(what, ms)| format!("{what}: {ms} ms must lie in [0, {MS_MOST:e}]")) {
        Some(reason) => refuse(reason),
        None => Ok(measured),
    }
}

impl Measured {
    /// The share of its limits that each stage has reached on so many threads with this peak, of which `limits` says
    /// what it takes there at least; what is no stage's is each step's.
    pub(super) fn rates(&self, limits: &Outcome, threads: usize, gflop_s: f64, path: &Path) -> Result<Rates> {
        if self.threads != threads {
            let reason = format!(
                "was measured with {} a rank; on this machine one rank has {threads}: set --threads {}",
                Many(self.threads as u64, "thread"),
                self.threads
            );
            return Err(Error::config(path.display().to_string(), reason));
        }
        let mut rates = Rates::at_the_limits();
        let mut staged_ms = 0.0;
        for measured in &self.stages {
            let Some(stage) = Stage::ALL.into_iter().find(|stage| stage.name() == measured.stage) else { continue };
            staged_ms += measured.ms;
            let least_s = limits.stages_s[stage as usize];
            if least_s > 0.0 && measured.ms > 0.0 {
                rates.of_limit[stage as usize] = least_s / (measured.ms * 1e-3);
            }
        }
        rates.step_s = (self.ms_median - staged_ms).max(0.0) * 1e-3;
        rates.measured_on_gflop_s = Some(gflop_s);
        rates.told = format!("stages as fast as measured in {}", path.display());
        Ok(rates)
    }
}
