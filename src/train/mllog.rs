//! MLPerf's log of a run: a line an event, as mlcommons/logging writes and checks them.
//!
//! `:::MLLOG {"namespace", "time_ms", "event_type", "key", "value", "metadata"}`, times in milliseconds since 1970.
//! Keys and their order are those of the rules of two benchmarks: DLRM (training v0.7 to v2.1) and DLRM-DCNv2 (v3.0
//! on), which differ in hyper-parameters and in how they count epochs: from 1 and from 0.

use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use serde::Serialize;
use serde_json::{Value, json};

use crate::base::config::{
    Command, Config, Decay, LayerKind, Layers, ModelConfig, NamedLayer, SourceKind, TrainConfig,
};
use crate::base::{Error, Result, named};
use crate::memory::create_file;
use crate::optim::Schedule;

named! {
    /// Which rules a run is logged by.
    pub enum Benchmark {
        /// DLRM, of v0.7 to v2.1.
        Dlrm = "dlrm",
        /// DLRM-DCNv2, of v3.0 on.
        DlrmDcnv2 = "dlrm_dcnv2",
    }
}

impl Benchmark {
    /// The number of the first epoch.
    const fn first_epoch(self) -> f64 {
        match self {
            Self::Dlrm => 1.0,
            Self::DlrmDcnv2 => 0.0,
        }
    }

    /// Whether a run is one of the closed division: its model, its optimizer and its target are those of the rules.
    #[must_use]
    pub fn is_closed(self, config: &Config) -> bool {
        let mut layers = Layers::default();
        let Ok(rules) = layers.preset(self.rules()).and_then(|()| layers.finish(Command::Config)) else { return false };
        let train = &config.train;
        let steps = [train.warmup_steps, train.decay_steps];
        let steps_rows = [train.warmup_steps_rows.or(steps[0]), train.decay_steps_rows.or(steps[1])];
        let recipe = match self {
            Self::Dlrm => {
                let decays = [train.decay, train.decay_rows.or(train.decay)];
                (decays, train.decay_power) == ([Decay::Polynomial; 2], 2.0) && steps_rows == steps
            }
            Self::DlrmDcnv2 => {
                train.eps == rules.train.eps && train.initial_accumulator == 0.0 && [steps, steps_rows] == [[0; 2]; 2]
            }
        };
        let optimizers = |train: &TrainConfig| [train.optimizer, train.optimizer_rows];
        // What columns are called is the data's.
        let model = |config: &Config| ModelConfig { columns: Vec::new(), ..config.model.clone() };
        model(config) == model(&rules)
            && optimizers(train) == optimizers(&rules.train)
            && recipe
            && train.clip_norm == 0.0
            && train.weight_decay == 0.0
            && train.target_auc >= rules.train.target_auc
            && config.data.source == SourceKind::Files
    }

    /// That of a network.
    #[must_use]
    pub fn of(config: &Config) -> Self {
        let crosses = config.model.network().iter().any(|layer| layer.kind == LayerKind::Cross);
        if crosses { Self::DlrmDcnv2 } else { Self::Dlrm }
    }

    /// The preset that holds what the closed division fixes.
    const fn rules(self) -> &'static str {
        match self {
            Self::Dlrm => "mlperf-v1",
            Self::DlrmDcnv2 => "dcnv2",
        }
    }
}

/// Who runs what, and where.
#[derive(Debug, Clone)]
pub struct Submission {
    /// The rules.
    pub benchmark: Benchmark,
    /// Who submits.
    pub org: String,
    /// The processor.
    pub platform: String,
}

/// A log that is being written; every line is handed to the system at once.
#[derive(Debug)]
pub struct MlLog {
    path: PathBuf,
    file: File,
    benchmark: Benchmark,
    /// Steps of an epoch, where they end.
    epoch_steps: Option<u64>,
    /// Where the block that is under way began, in epochs.
    block: Option<f64>,
    /// Whether no run is under way.
    ended: bool,
}

#[derive(Serialize)]
struct Line<'a> {
    namespace: &'static str,
    time_ms: u64,
    event_type: &'static str,
    key: &'a str,
    value: Value,
    metadata: Value,
}

const START: &str = "INTERVAL_START";
const END: &str = "INTERVAL_END";
const POINT: &str = "POINT_IN_TIME";

impl MlLog {
    /// Begins a log: what the system held of the data is forgotten, or not, and initialisation begins.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub fn begin(path: &Path, benchmark: Benchmark, cache_cleared: bool) -> Result<Self> {
        let file = create_file(path)?;
        let mut log = Self { path: path.to_owned(), file, benchmark, epoch_steps: None, block: None, ended: true };
        log.point("cache_clear", json!(cache_cleared))?;
        log.line(START, "init_start", Value::Null, json!({}))?;
        Ok(log)
    }

    /// Who submits what: the hyper-parameters that the rules ask for, and the samples.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub fn describe(&mut self, config: &Config, submission: &Submission, [train, eval]: [u64; 2]) -> Result<()> {
        let Submission { benchmark, org, platform } = submission;
        let division = if benchmark.is_closed(config) { "closed" } else { "open" };
        let keys = &config.train;
        let [layers, rows] = [Schedule::new(keys), Schedule::rows(keys)].map(|schedule| schedule.base());
        let common = [
            ("submission_benchmark", json!(benchmark.name())),
            ("submission_division", json!(division)),
            ("submission_org", json!(org)),
            ("submission_platform", json!(platform)),
            ("submission_status", json!("research")),
            ("seed", json!(keys.seed)),
            ("global_batch_size", json!(keys.minibatch())),
            ("gradient_accumulation_steps", json!(keys.accumulate)),
            ("opt_base_learning_rate", json!(layers)),
            ("opt_learning_rate_warmup_steps", json!(keys.warmup_steps)),
        ];
        let start = if keys.decay_steps > 0 { keys.courses()[0][1] } else { 0 };
        let own = match benchmark {
            Benchmark::Dlrm => vec![
                ("lr_decay_start_steps", json!(start)),
                ("sgd_opt_base_learning_rate", json!(rows)),
                ("sgd_opt_learning_rate_decay_poly_power", json!(keys.decay_power)),
                ("sgd_opt_learning_rate_decay_steps", json!(keys.decay_steps)),
            ],
            Benchmark::DlrmDcnv2 => vec![
                ("opt_name", json!(keys.optimizer.name())),
                ("opt_adagrad_learning_rate_decay", json!(0.0)),
                ("opt_weight_decay", json!(keys.weight_decay)),
                ("opt_adagrad_initial_accumulator_value", json!(keys.initial_accumulator)),
                // PyTorch's Adagrad's, unless the key says otherwise.
                ("opt_adagrad_epsilon", json!(keys.eps.or(1e-10))),
                ("opt_learning_rate_decay_start_step", json!(start)),
                ("opt_learning_rate_decay_steps", json!(keys.decay_steps)),
            ],
        };
        let samples = [("train_samples", json!(train)), ("eval_samples", json!(eval))];
        common.into_iter().chain(own).chain(samples).try_for_each(|(key, value)| self.point(key, value))
    }

    /// Weights were drawn: of the tables, and of the fully connected layers of a network.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub fn initialised(&mut self, network: &[NamedLayer]) -> Result<()> {
        let chains = network.iter().filter(|layer| layer.kind == LayerKind::Linear);
        let layers = chains.flat_map(|layer| (1..=layer.outputs.len()).map(|n| format!("{}_mlp_dense{n}", layer.name)));
        let tensors = std::iter::once("embeddings".to_owned()).chain(layers);
        for tensor in tensors {
            self.line(POINT, "weights_initialization", Value::Null, json!({ "tensor": tensor }))?;
        }
        Ok(())
    }

    /// Initialisation is over, and the run's time begins: no sample was read before.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub(super) fn run_starts(&mut self, epoch_steps: Option<u64>) -> Result<()> {
        (self.epoch_steps, self.ended) = (epoch_steps, false);
        self.line(END, "init_stop", Value::Null, json!({}))?;
        self.line(START, "run_start", Value::Null, json!({}))?;
        self.block_starts(0)
    }

    fn block_starts(&mut self, step: u64) -> Result<()> {
        let first = self.epoch(step);
        self.block = Some(first);
        // Blocks last until the next evaluation; how long that is is known when they stop.
        self.line(START, "block_start", Value::Null, json!({ "first_epoch_num": first, "epoch_count": 1 }))
    }

    fn block_stops(&mut self) -> Result<()> {
        let Some(first) = self.block.take() else { return Ok(()) };
        self.line(END, "block_stop", Value::Null, json!({ "first_epoch_num": first }))
    }

    /// After this step an evaluation begins.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub(super) fn eval_starts(&mut self, step: u64) -> Result<()> {
        self.block_stops()?;
        self.line(START, "eval_start", Value::Null, json!({ "epoch_num": self.epoch(step) }))
    }

    /// What it found.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub(super) fn eval_stops(&mut self, step: u64, auc: f64) -> Result<()> {
        let epoch = json!({ "epoch_num": self.epoch(step) });
        self.line(POINT, "eval_accuracy", json!(auc), epoch.clone())?;
        self.line(END, "eval_stop", Value::Null, epoch)
    }

    /// Training goes on behind an evaluation.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub(super) fn goes_on(&mut self, step: u64) -> Result<()> {
        self.block_starts(step)
    }

    /// The run's time ends: at its target, or without it. Before it has begun, and later, calls say nothing.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub(super) fn run_stops(&mut self, success: bool) -> Result<()> {
        if std::mem::replace(&mut self.ended, true) {
            return Ok(());
        }
        self.block_stops()?;
        let status = if success { "success" } else { "aborted" };
        self.line(END, "run_stop", Value::Null, json!({ "status": status }))
    }

    /// The epoch in which a step ends, and how far in it; to four digits, as rules count twentieths.
    fn epoch(&self, step: u64) -> f64 {
        let done = self.epoch_steps.map_or(0.0, |steps| step as f64 / steps.max(1) as f64);
        ((self.benchmark.first_epoch() + done) * 1e4).round() / 1e4
    }

    fn point(&mut self, key: &str, value: Value) -> Result<()> {
        self.line(POINT, key, value, json!({}))
    }

    fn line(&mut self, event_type: &'static str, key: &str, value: Value, metadata: Value) -> Result<()> {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let line = Line { namespace: "", time_ms: since.as_millis() as u64, event_type, key, value, metadata };
        let text = serde_json::to_string(&line).expect("an event is representable in JSON");
        writeln!(self.file, ":::MLLOG {text}").map_err(Error::io(&self.path, "write"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_is_closed_as_long_as_it_keeps_what_the_rules_fix() {
        for (benchmark, free, fixed) in [
            (
                Benchmark::Dlrm,
                ["train.batch=55296", "train.lr=24.0", "train.warmup_steps=2750"],
                &[
                    "model.top=[512,1]",
                    "train.optimizer=lamb",
                    "train.optimizer_rows=adagrad",
                    "train.target_auc=0.8",
                    "train.clip_norm=1.0",
                    "train.weight_decay=0.1",
                    "train.decay_power=1.0",
                    "train.warmup_steps_rows=5",
                    "train.decay_rows=cosine",
                ][..],
            ),
            (
                Benchmark::DlrmDcnv2,
                ["train.batch=32768", "train.lr=0.004", "train.seed=7"],
                &[
                    "model.cross_rank=64",
                    "train.eps=1e-10",
                    "train.warmup_steps=10",
                    "train.target_auc=0.8025",
                    "train.initial_accumulator=0.1",
                    "train.weight_decay=0.1",
                ],
            ),
        ] {
            let with = |changes: &[&str]| {
                let mut layers = Layers::default();
                layers.preset(benchmark.rules()).unwrap();
                changes.iter().for_each(|change| layers.assignment(change).unwrap());
                layers.finish(Command::Config).unwrap()
            };
            const STORED: [&str; 2] = ["data.source=files", "data.path=blocks"];
            assert!(benchmark.is_closed(&with(&STORED)) && benchmark.is_closed(&with(&[&STORED[..], &free].concat())));
            // With the names that the data give to columns.
            let mut named = with(&STORED);
            named.model.columns = (1..=26).map(|column| format!("C{column}")).collect();
            assert!(benchmark.is_closed(&named));
            for change in fixed {
                assert!(!benchmark.is_closed(&with(&[&STORED[..], &[*change]].concat())), "{change}");
            }
            let generated = with(&[]);
            assert!(Benchmark::ALL.iter().all(|benchmark| !benchmark.is_closed(&generated)));
            assert_eq!(Benchmark::of(&generated), benchmark);
        }
    }
}
