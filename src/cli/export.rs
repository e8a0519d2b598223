//! `octorec export`: a trained model as other programs take it.

use std::path::{Path, PathBuf};

use clap::{Args, ValueEnum};
use serde::Serialize;

use super::heed_signals;
use super::output::{refuse_losing_data, refuse_mixing, refuse_overwriting};
use super::trained::{VerifyArgs, saved_in};
use crate::base::console::note;
use crate::base::units::{Bytes, Count, parse_bytes};
use crate::base::{Error, Result, console};
use crate::data::Vocabulary;
use crate::memory::{is_stream, make_folder, same_file};
use crate::train::export::{Exported, onnx, torch};
use crate::train::{Checkpoint, digest, load_vocabulary, run_files, save_vocabulary, vocabulary_in};

/// Arguments of `octorec export`.
#[derive(Debug, Args)]
pub struct ExportArgs {
    /// The run's directory, or its checkpoint file.
    #[arg(long, visible_alias = "model", value_name = "DIR|FILE")]
    checkpoint: PathBuf,

    /// What is written.
    #[arg(long, value_enum)]
    format: Format,

    /// The file to write; what else is written lies beside it.
    #[arg(long, value_name = "FILE")]
    out: PathBuf,

    /// Of onnx: how look-ups are given to the graph; sequences of a time series are padded either way, before their
    /// steps (octorec guide serving) [default: padded]
    #[arg(long, value_enum, value_name = "HOW")]
    bags: Option<onnx::Bags>,

    /// Of onnx: weights of more than this go to a file beside the graph, FILE.data, which runtimes map; the graph's own
    /// file cannot hold 2 GiB [default: 512MiB]
    #[arg(long, value_name = "SIZE", value_parser = parse_bytes)]
    external_above: Option<u64>,

    #[command(flatten)]
    verify: VerifyArgs,

    /// Print what was written as one JSON object on stdout.
    #[arg(long)]
    json: bool,
}

/// What `--json` prints.
#[derive(Serialize)]
struct Results {
    format: Format,
    /// The file that was asked for, then those beside it.
    files: Vec<String>,
    parameters: u64,
    /// How the tables' weights are written.
    weights: &'static str,
    bytes: u64,
}

/// Formats of other programs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "lowercase")]
enum Format {
    /// An ONNX graph, for onnxruntime and others.
    Onnx,
    /// A state dict (safetensors) with PyTorch's names, load.py, which rebuilds the model with PyTorch alone, and the
    /// run's vocabulary.safetensors, if it has one: by it `train --init` gives values the rows that they have here.
    Torch,
}

/// Bytes of weights that a graph's own file holds unless somebody says otherwise.
const INLINE: u64 = 512 << 20;

impl ExportArgs {
    /// Writes the model.
    pub fn run(&self) -> Result<()> {
        heed_signals()?;
        refuse_mixing(self.json, ("--out", Some(&self.out)), "does the model")?;
        let file = saved_in(&self.checkpoint, false)?;
        let refuse = |origin: &str, reason: String| Err(Error::config(origin, reason));
        let files = run_files(&self.checkpoint);
        let inputs: Vec<&Path> = files.iter().chain([&file]).map(PathBuf::as_path).collect();
        let weights = (self.format == Format::Onnx).then(|| onnx::data_path(&self.out));
        let outputs = [("--out", Some(&*self.out)), ("--out", weights.as_deref())];
        refuse_overwriting(&outputs, &inputs)?;
        for (flag, given) in [("--bags", self.bags.is_some()), ("--external-above", self.external_above.is_some())] {
            if given && self.format != Format::Onnx {
                return refuse(flag, "has no effect on --format torch: leave it away".to_owned());
            }
        }
        if self.format == Format::Torch && (is_stream(&self.out) || self.out.is_dir()) {
            let reason = format!("{} is no regular file: name one, beside which load.py goes", self.out.display());
            return refuse("--out", reason);
        }
        if self.format == Format::Torch && vocabulary_in(&self.out) == self.out {
            let reason =
                format!("{} is the name of the vocabulary beside a state dict: choose another", self.out.display());
            return refuse("--out", reason);
        }
        let external_above = self.external_above.unwrap_or(INLINE);
        onnx::check_limit(external_above, "--external-above")?;
        let checkpoint = self.verify.open(&file)?;
        let Some(model) = Exported::of(&checkpoint)? else {
            let reason = "holds weights but not how they were trained: give a run of octorec's".to_owned();
            return Err(Error::Checkpoint { path: file, reason });
        };
        refuse_losing_data(&outputs, &self.checkpoint, model.config())?;
        if let Some(folder) = self.out.parent().filter(|folder| !folder.as_os_str().is_empty()) {
            make_folder(folder)?;
        }
        let beside: Vec<PathBuf> = match self.format {
            Format::Onnx => {
                let bags = self.bags.unwrap_or(onnx::Bags::Padded);
                onnx::write(&model, &self.out, bags, external_above)?.into_iter().collect()
            }
            Format::Torch => {
                let vocabulary = self.vocabulary(&checkpoint)?;
                let script = torch::write(&model, &self.out)?;
                let beside = vocabulary.map(|(vocabulary, path)| save_vocabulary(&path, &vocabulary).map(|()| path));
                std::iter::once(script).chain(beside.transpose()?).collect()
            }
        };
        let files: Vec<_> = std::iter::once(self.out.clone()).chain(beside).collect();
        let names: Vec<_> = files.iter().map(|file| file.display().to_string()).collect();
        let size = |file: &PathBuf| std::fs::metadata(file).map_or(0, |found| found.len());
        let (parameters, bytes) = (model.parameters(), files.iter().map(size).sum());
        let (weights, kind) = if model.is_bf16() { ("bf16", " in bfloat16") } else { ("f32", "") };
        note!("{}: {} parameters{kind}, {}", names.join(" and "), Count(parameters), Bytes(bytes));
        if self.json {
            console::json(&Results { format: self.format, files: names, parameters, weights, bytes })?;
        }
        Ok(())
    }

    /// The vocabulary that goes beside a state dict, and where it goes; nothing where the model has none, or its own is
    /// there.
    fn vocabulary(&self, checkpoint: &Checkpoint<'_>) -> Result<Option<(Vocabulary, PathBuf)>> {
        let (own, beside) = (vocabulary_in(&self.checkpoint), vocabulary_in(&self.out));
        if checkpoint.numbered_by().is_none() || !own.exists() || same_file(&own, &beside) {
            return Ok(None);
        }
        let vocabulary = load_vocabulary(&own, !self.verify.no_verify)?;
        checkpoint.check_vocabulary(Some(&vocabulary), &own)?;
        // That of the state dict that is written over goes with it.
        let had = Checkpoint::open_as(&self.out, false).ok().and_then(|replaced| replaced.numbered_by());
        let may_go = |there: String| there == digest(&vocabulary) || had == Some(there);
        if beside.exists() && !load_vocabulary(&beside, false).is_ok_and(|there| may_go(digest(&there))) {
            let reason = format!(
                "{} is there, neither this model's, which goes beside a state dict, nor that of the file to replace: name a \
                 file in another folder, or remove that one",
                beside.display()
            );
            return Err(Error::config("--out", reason));
        }
        Ok(Some((vocabulary, beside)))
    }
}
