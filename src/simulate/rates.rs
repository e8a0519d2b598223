//! How near an implementation comes to the limits of a machine, and what it does besides.

use serde::Deserialize;

use crate::model::Stage;

/// Shares of the limits, and what a step costs besides.
#[derive(Debug, Clone, PartialEq)]
pub struct Rates {
    /// By [`Stage::ALL`]: least time over time.
    pub of_limit: [f64; Stage::ALL.len()],
    /// Bytes a second, in 10^9, that a communication core reads and writes by itself.
    pub core_gb_s: f64,
    /// Seconds of a step that are no stage's.
    pub step_s: f64,
    /// Seconds of a sample of a rank's slice that are no stage's, with all cores of the rank.
    pub sample_s: f64,
    /// Seconds of a sample of the whole minibatch, on every rank: of loaders that read all of it.
    pub whole_sample_s: f64,
    /// Bytes of gradients that are reduced together at least, as far as there are so many: 0: each layer by itself.
    pub bucket_bytes: usize,
    /// Whether compute cores copy gradients into a buffer of their own before they are reduced, and back from it.
    pub copies_gradients: bool,
    /// How often a byte that leaves its host, or comes from another, is read or written by communication cores besides:
    /// what the network's software copies.
    pub network_copies: f64,
    /// Whether rows move when all gradients are reduced; else that goes on until layers are needed again.
    pub waits_before_update: bool,
    /// Where the shares were measured: peak of the cores of a rank that had its memory to itself, in GFLOP/s. What a
    /// rank draws of memory then grows with its cores until all ranks together draw what there is; else ranks of one
    /// memory have equal parts of its bandwidth.
    pub measured_on_gflop_s: Option<f64>,
    /// Where these figures come from, for people.
    pub told: String,
}

/// Share of the peak that the MLPs of SC20 reach on a socket, forward and backward, on average (Section VI-A, Figure
/// 5).
const LAYERS: f64 = 0.72;

/// What a core reads and writes while the others of its socket compute: from the same paper's all-reduce by four cores
/// (Section VI-B): 2.84 and 1.86 ms for the gradients and weights of five layers of 1024 x 1024.
const CORE_GB_S: f64 = 9.0;

/// A document of rates.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct Document {
    about: String,
    layers: f64,
    rows: f64,
    core_gb_s: f64,
    step_ms: f64,
    sample_us: f64,
    whole_sample_us: f64,
    bucket_mib: f64,
    network_copies: f64,
    copies_gradients: bool,
    waits_before_update: bool,
}

impl Default for Document {
    fn default() -> Self {
        Self {
            about: String::new(),
            layers: LAYERS,
            rows: 1.0,
            core_gb_s: CORE_GB_S,
            step_ms: 0.0,
            sample_us: 0.0,
            whole_sample_us: 0.0,
            bucket_mib: 0.0,
            network_copies: 0.0,
            copies_gradients: false,
            waits_before_update: false,
        }
    }
}

impl Default for Rates {
    /// octorec's exchanges with the layers of SC20; memory at its limits.
    fn default() -> Self {
        let told = format!("layers at {LAYERS} of the peak and {CORE_GB_S} GB/s a communication core, as in SC20");
        Self { told, ..Self::from(Document::default()) }
    }
}

impl From<Document> for Rates {
    fn from(document: Document) -> Self {
        let of_limit = Stage::ALL.map(|stage| match stage {
            Stage::Bottom | Stage::Top | Stage::BackTop | Stage::BackBottom => document.layers,
            Stage::LookUp | Stage::UpdateRows => document.rows,
            _ => 1.0,
        });
        Self {
            of_limit,
            core_gb_s: document.core_gb_s,
            step_s: document.step_ms * 1e-3,
            sample_s: document.sample_us * 1e-6,
            whole_sample_s: document.whole_sample_us * 1e-6,
            bucket_bytes: (document.bucket_mib * f64::from(1 << 20)) as usize,
            network_copies: document.network_copies,
            copies_gradients: document.copies_gradients,
            waits_before_update: document.waits_before_update,
            measured_on_gflop_s: None,
            told: document.about,
        }
    }
}

impl Rates {
    /// Those of a TOML document; keys that it leaves away are as [`Rates::default`] has them.
    ///
    /// # Errors
    /// What is wrong with it, in words.
    pub fn parse(text: &str) -> Result<Self, String> {
        let document: Document = toml::from_str(text).map_err(|error| error.to_string())?;
        let shares = [("layers", document.layers), ("rows", document.rows), ("core_gb_s", document.core_gb_s)];
        if let Some((key, value)) = shares.into_iter().find(|(_, value)| !(1e-9..=1e9).contains(value)) {
            return Err(format!("{key} = {value}: must lie in [1e-9, 1e9]"));
        }
        let times = [
            ("step_ms", document.step_ms),
            ("sample_us", document.sample_us),
            ("whole_sample_us", document.whole_sample_us),
            ("bucket_mib", document.bucket_mib),
            ("network_copies", document.network_copies),
        ];
        if let Some((key, value)) = times.into_iter().find(|(_, value)| !(0.0..=1e9).contains(value)) {
            return Err(format!("{key} = {value}: must lie in [0, 1e9]"));
        }
        Ok(Self::from(document))
    }

    /// Of an implementation that is as fast as the machine allows.
    #[must_use]
    pub fn at_the_limits() -> Self {
        let told = "every stage at the machine's limits".to_owned();
        Self { of_limit: [1.0; Stage::ALL.len()], told, ..Self::default() }
    }

    /// The share of a stage.
    #[must_use]
    pub const fn of(&self, stage: Stage) -> f64 {
        self.of_limit[stage as usize]
    }
}
