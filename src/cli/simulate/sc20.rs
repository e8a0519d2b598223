//! `octorec simulate sc20`: the scaling results of Kalamkar et al. (SC 2020), simulated from their machines and their
//! implementation's rates, beside what the paper tells and beside octorec's own exchanges on the same machines.

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};

use clap::Args;
use serde::Serialize;

use super::chart::{Bar, Line, bars, lines};
use super::question::{Answer, Question};
use crate::base::config::{Command, Config, Layers};
use crate::base::console::{note, pretty, shown};
use crate::base::{Error, Result};
use crate::cli::division::planned;
use crate::cli::table::Table;
use crate::collective::plan::Exchange;
use crate::collective::{Parcels, Payload, Timing, Works};
use crate::machine::Machine;
use crate::machine::placement::{CommCores, RankPer};
use crate::memory::{make_folder, write_file};
use crate::model::Shape;
use crate::shard::{Kind, Options, Workload};
use crate::simulate::{MessageKind, Rates};

/// The paper's implementation.
const RATES: &str = include_str!("../../../topology/rates/sc20.toml");

/// Seconds of a sample that a loader spends on every rank, where samples come from files (Section VI-D2): its 160 bytes
/// are read and written by a core.
fn loader_s(rates: &Rates) -> f64 {
    2.0 * 160.0 / (rates.core_gb_s * 1e9)
}

/// Communication cores of each socket (Section VI-B).
const COMM_CORES: usize = 4;

/// Bytes of a socket's memory where the tables of a whole model must fit: 192 GiB, as four of the hosts have.
const MEMORY: u64 = 192 << 30;

/// Flags of `octorec simulate sc20`.
#[derive(Debug, Clone, Args)]
pub struct Sc20Args {
    /// Write each figure as SVG, and its numbers as JSON, into this folder
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Only these models: small, large, mlperf; default: all, which takes a minute
    #[arg(long, value_name = "NAME,...", value_delimiter = ',', value_parser = [SMALL.name, LARGE.name, MLPERF.name])]
    models: Vec<String>,
    /// Print one JSON object, for scripts
    #[arg(long)]
    json: bool,
}

/// A model as the paper scales it.
struct Model {
    name: &'static str,
    ranks: &'static [usize],
    /// Minibatch of strong scaling; samples a rank of weak scaling.
    strong: usize,
    weak: usize,
    /// Whether samples come from files.
    loads: bool,
}

const SMALL: Model = Model { name: "small", ranks: &[1, 2, 4, 8], strong: 8192, weak: 1024, loads: false };
const LARGE: Model = Model { name: "large", ranks: &[4, 8, 16, 32, 64], strong: 16384, weak: 512, loads: false };
const MLPERF: Model = Model { name: "mlperf", ranks: &[1, 2, 4, 8, 16, 26], strong: 16384, weak: 2048, loads: true };

/// How a model is run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Way {
    /// As in the paper, and the same without overlap.
    Overlapped,
    Blocking,
    /// octorec's exchanges, division and choices.
    Octorec,
}

/// A result of the paper beside the simulated one.
#[derive(Debug, Serialize)]
struct Case {
    section: &'static str,
    what: String,
    /// The least and the largest value that the paper tells.
    published: [f64; 2],
    simulated: f64,
    octorec: Option<f64>,
    /// From the nearer end of what is published.
    deviation: f64,
}

/// What is simulated.
#[derive(Debug, Serialize)]
struct Report {
    rates: String,
    cases: Vec<Case>,
}

impl Case {
    fn new(section: &'static str, what: impl Into<String>, published: [f64; 2], simulated: f64) -> Self {
        let [low, high] = published;
        let nearest = simulated.clamp(low, high);
        Self { section, what: what.into(), published, simulated, octorec: None, deviation: simulated / nearest - 1.0 }
    }

    fn beside(self, octorec: f64) -> Self {
        Self { octorec: Some(octorec), ..self }
    }
}

/// The models on a machine.
struct Bench {
    machine: Machine,
    rates: Rates,
    usual: Rates,
    paper: Options,
    own: Options,
    configs: BTreeMap<&'static str, (Config, Workload)>,
}

impl Bench {
    fn new(topology: &str) -> Result<Self> {
        let mut machine = Machine::load(topology)?;
        machine.nodes.iter_mut().for_each(|node| node.memory_bytes = node.memory_bytes.max(MEMORY));
        let rates = Rates::parse(RATES).map_err(|reason| Error::config("sc20.toml", reason))?;
        let mut configs = BTreeMap::new();
        for model in [&SMALL, &LARGE, &MLPERF] {
            let mut layers = Layers::default();
            layers.preset(model.name)?;
            let mut config = layers.finish(Command::Simulate)?;
            let workload = in_one_part(planned(&mut config, None, None)?.0);
            configs.insert(model.name, (config, workload));
        }
        let paper = Options { replicate_below: 0, scheme: Some(Kind::Table) };
        Ok(Self { machine, rates, usual: Rates::default(), paper, own: Options::default(), configs })
    }

    /// Of the paper's implementation, whose communication is overlapped.
    fn question<'a>(&'a self, config: &'a Config, workload: &'a Workload) -> Question<'a> {
        Question {
            config,
            machine: &self.machine,
            workload,
            rank_per: RankPer::default(),
            comm_cores: CommCores::Count(COMM_CORES),
            overlap: true,
            options: &self.paper,
            rates: &self.rates,
        }
    }

    fn ask(&self, model: &Model, ranks: usize, batch: usize, way: Way) -> Result<Answer> {
        let (config, workload) = &self.configs[model.name];
        let mut config = config.clone();
        let mut rates = self.rates.clone();
        if way != Way::Octorec {
            config.train.collective = crate::base::config::Collective::Ring;
            rates.whole_sample_s = if model.loads { loader_s(&rates) } else { 0.0 };
        }
        let asked = self.question(&config, workload);
        let question = match way {
            Way::Octorec => Question { options: &self.own, rates: &self.usual, ..asked },
            _ => Question { overlap: way == Way::Overlapped, rates: &rates, ..asked },
        };
        question.ask(Some(ranks), batch)
    }

    /// All numbers of ranks of a model.
    fn series(&self, model: &Model, strong: bool, way: Way) -> Result<Vec<Answer>> {
        let batch = |ranks: usize| if strong { model.strong } else { model.weak * ranks };
        model.ranks.iter().map(|ranks| self.ask(model, *ranks, batch(*ranks), way)).collect()
    }
}

/// Samples a second of one answer over those of the first, of so many ranks.
fn gain(series: &[Answer], ranks: usize) -> f64 {
    let of = series.iter().find(|answer| answer.ranks == ranks).expect("it was simulated");
    of.samples_per_s() / series[0].samples_per_s()
}

impl Sc20Args {
    fn models(&self) -> Vec<&'static Model> {
        let wanted = |model: &&Model| self.models.is_empty() || self.models.iter().any(|name| name == model.name);
        [&SMALL, &LARGE, &MLPERF].into_iter().filter(wanted).collect()
    }

    /// The table as text or JSON; writes the figures.
    pub(super) fn report(&self) -> Result<String> {
        let cluster = Bench::new("fat-tree-64")?;
        let sockets = Bench::new("twisted-hypercube-8")?;
        let figures = Figures::new(self.out.as_deref())?;
        let single = cluster.ask(&SMALL, 1, 2048, Way::Overlapped)?.outcome.step_s * 1e3;
        let mut cases = vec![Case::new("VI-C", "Small, one socket, ms a step", [38.0; 2], single)];
        cases.extend(hidden(&sockets, &figures)?);
        for (strong, figure) in [(true, [9, 10, 11]), (false, [12, 13, 14])] {
            let mut all = Vec::new();
            for model in self.models() {
                note!("{} scaling, {}", if strong { "strong" } else { "weak" }, model.name);
                let [paper, own] = [Way::Overlapped, Way::Octorec].map(|way| cluster.series(model, strong, way));
                all.push((model, paper?, own?));
            }
            let (section, published): (_, [(&str, usize, [f64; 2]); 3]) = match strong {
                true => ("VI-D1", [("small", 8, [5.0, 6.0]), ("large", 32, [5.0, 6.0]), ("mlperf", 26, [8.5; 2])]),
                false => ("VI-D2", [("small", 8, [6.4; 2]), ("large", 64, [13.5; 2]), ("mlperf", 26, [17.0; 2])]),
            };
            for (model, paper, own) in &all {
                let (_, ranks, told) = *published.iter().find(|result| result.0 == model.name).expect("of each model");
                let kind = if strong { "strong" } else { "weak" };
                let what = format!("{}, {kind}, {ranks} ranks over {}", model.name, model.ranks[0]);
                cases.push(Case::new(section, what, told, gain(paper, ranks)).beside(gain(own, ranks)));
            }
            figures.speedups(figure[0], strong, &all, &published)?;
            for (model, paper, own) in all.iter().filter(|of| of.0.name != SMALL.name) {
                let blocking = cluster.series(model, strong, Way::Blocking)?;
                figures.breakdown(figure[1], figure[2], model, [paper, &blocking, own])?;
            }
        }
        cases.push(flat(&sockets, &figures)?);
        cases.extend(volumes(&cluster));
        let report = Report { rates: cluster.rates.told, cases };
        figures.table(&report)?;
        Ok(shown(&report, self.json))
    }
}

/// Section VI-B, Figure 6: the exchange of five layers of 1024 x 1024 behind their backward passes.
fn hidden(sockets: &Bench, figures: &Figures<'_>) -> Result<Vec<Case>> {
    let mut layers = Layers::default();
    layers.preset("small")?;
    layers.assignment("model.bottom=[1024,1024,1024,1024,1024,1024]")?;
    layers.assignment("model.top=[1]")?;
    layers.assignment("model.dim=1024")?;
    // No more of a table than a model must have: what is measured is the layers' communication.
    layers.assignment("model.rows=[1]")?;
    let mut config = layers.finish(Command::Simulate)?;
    config.train.collective = crate::base::config::Collective::TwoRing;
    let workload = in_one_part(planned(&mut config, None, None)?.0);
    let rates = Rates { bucket_bytes: 0, copies_gradients: false, ..sockets.usual.clone() };
    let question = Question { options: &sockets.own, rates: &rates, ..sockets.question(&config, &workload) };
    let answer = question.ask(Some(8), 8 * 1024)?;
    let dense = MessageKind::DenseGradients as usize;
    let [hidden, exposed] = [answer.outcome.hidden_s, answer.outcome.exposed_s].map(|kinds| kinds[dense] * 1e3);
    let bar = |name: &str, parts: [f64; 2]| Bar { name: name.to_owned(), parts: parts.to_vec() };
    let all = [bar("published", [2.84 + 1.86, 0.0]), bar("simulated", [hidden, exposed])];
    figures.draw(
        6,
        "",
        &bars("communication of five layers behind the backward pass, 8 sockets", "ms", &["hidden", "exposed"], &all),
        &all.map(|bar| (bar.name, bar.parts)),
    )?;
    Ok(vec![Case::new("VI-B", "five layers of 1024, 8 sockets: ms of communication", [4.70; 2], hidden + exposed)])
}

/// Section VI-D3, Figure 15: what an all-to-all that does not know the links gains from 4 to 8 sockets.
fn flat(sockets: &Bench, figures: &Figures<'_>) -> Result<Case> {
    let (config, workload) = &sockets.configs["mlperf"];
    let bytes = workload.dims().iter().sum::<usize>() * MLPERF.strong * 4;
    let mut all = Vec::new();
    for ranks in [2, 4, 8] {
        let (_, site) = sockets.question(config, workload).site(Some(ranks), CommCores::Count(0))?;
        let parcels = Parcels::uniform(ranks, bytes / ranks / ranks / 4);
        // As MPI's libraries do it, whatever the links are.
        let flat = Exchange::Pairwise.plan(&parcels, Payload::Raw(4));
        let best = crate::collective::plan::exchanges(&parcels, Payload::Raw(4), &site, Works::LinksAndMemories);
        let seconds = |schedule| Timing::of(schedule, &site, Works::LinksAndMemories).seconds * 1e3;
        let least = best.iter().map(seconds).fold(f64::INFINITY, f64::min);
        all.push((ranks, seconds(&flat), least));
    }
    let line = |name: &str, of: fn(&(usize, f64, f64)) -> f64| Line {
        name: name.to_owned(),
        points: all.iter().map(|point| (point.0 as f64, of(point))).collect(),
        joined: true,
    };
    let drawn = [line("all-to-all by pairs", |point| point.1), line("the quickest schedule", |point| point.2)];
    figures.draw(
        15,
        "",
        &lines("all-to-all of MLPerf, strong scaling on 8 sockets", ["sockets", "ms"], &drawn),
        &all,
    )?;
    let gained = all[1].1 / all[2].1;
    Ok(Case::new("VI-D3", "all-to-all by pairs, 4 sockets over 8 (at most 1.5 is told)", [1.0, 1.5], gained)
        .beside(all[1].2 / all[2].2))
}

/// Table II.
fn volumes(cluster: &Bench) -> Vec<Case> {
    let mib = f64::from(1 << 20);
    let told = [(&SMALL, 9.5, 15.8), (&LARGE, 1047.0, 1024.0), (&MLPERF, 9.0, 208.0)];
    let of = told.iter().flat_map(|(model, reduced, exchanged)| {
        let (config, workload) = &cluster.configs[model.name];
        let dims = workload.dims();
        let shape = Shape::of(&config.model, &workload.positions(), &dims);
        let columns: usize = dims.iter().sum();
        let bytes = [shape.parameters() * 4, columns * model.strong * 4].map(|bytes| bytes as f64 / mib);
        [
            Case::new("Table II", format!("{}: MiB of an all-reduce", model.name), [*reduced; 2], bytes[0]),
            Case::new("Table II", format!("{}: MiB of an all-to-all", model.name), [*exchanged; 2], bytes[1]),
        ]
    });
    of.collect()
}

/// Where figures are written.
struct Figures<'a>(Option<&'a Path>);

impl<'a> Figures<'a> {
    fn new(folder: Option<&'a Path>) -> Result<Self> {
        if let Some(folder) = folder {
            make_folder(folder)?;
        }
        Ok(Self(folder))
    }

    /// A figure of the paper, and its numbers.
    fn draw(&self, number: usize, part: &str, svg: &str, data: &impl Serialize) -> Result<()> {
        let Some(folder) = self.0 else { return Ok(()) };
        let name = format!("figure-{number:02}{part}");
        write_file(&folder.join(format!("{name}.svg")), svg.as_bytes())?;
        write_file(&folder.join(format!("{name}.json")), pretty(data).as_bytes())
    }

    fn table(&self, report: &Report) -> Result<()> {
        let Some(folder) = self.0 else { return Ok(()) };
        write_file(&folder.join("published.json"), pretty(report).as_bytes())
    }

    fn speedups(
        &self,
        number: usize,
        strong: bool,
        all: &[(&Model, Vec<Answer>, Vec<Answer>)],
        published: &[(&str, usize, [f64; 2])],
    ) -> Result<()> {
        let line = |name: String, series: &[Answer]| Line {
            name,
            points: series.iter().map(|answer| (answer.ranks as f64, gain(series, answer.ranks))).collect(),
            joined: true,
        };
        let mut drawn: Vec<Line> = Vec::new();
        for (model, paper, own) in all {
            drawn.push(line(format!("{}, simulated", model.name), paper));
            drawn.push(line(format!("{}, octorec", model.name), own));
        }
        let told = published.iter().map(|(_, ranks, told)| (*ranks as f64, f64::midpoint(told[0], told[1])));
        drawn.push(Line { name: "published".to_owned(), points: told.collect(), joined: false });
        let title =
            if strong { "strong scaling, over the fewest ranks" } else { "weak scaling, over the fewest ranks" };
        let data: Vec<_> = drawn.iter().map(|line| (&line.name, &line.points)).collect();
        self.draw(number, "", &lines(title, ["ranks", "speed-up"], &drawn), &data)
    }

    /// Compute and exposed time, and communication by kind, with and without overlap, and octorec's.
    fn breakdown(&self, whole: usize, parts: usize, model: &Model, ways: [&Vec<Answer>; 3]) -> Result<()> {
        let names = ["", "b", "o"];
        let series =
            || ways.into_iter().zip(names).flat_map(|(all, name)| all.iter().map(move |answer| (answer, name)));
        let bar = |answer: &Answer, name: &str, parts: Vec<f64>| Bar { name: format!("{}{name}", answer.ranks), parts };
        let ms = |seconds: f64| seconds * 1e3;
        let first: Vec<Bar> = series()
            .map(|(answer, name)| {
                let exposed: f64 = answer.outcome.exposed_s.iter().sum();
                bar(answer, name, vec![ms(answer.outcome.compute_s), ms(exposed)])
            })
            .collect();
        let second: Vec<Bar> = series()
            .map(|(answer, name)| bar(answer, name, answer.outcome.exposed_s.iter().map(|all| ms(*all)).collect()))
            .collect();
        let part = format!("-{}", model.name);
        for (number, title, kinds, all) in [
            (whole, "compute and exposed communication", vec!["compute", "exposed"], first),
            (parts, "exposed communication by kind", MessageKind::ALL.map(MessageKind::name).to_vec(), second),
        ] {
            let data: Vec<_> = all.iter().map(|bar| (&bar.name, &bar.parts)).collect();
            self.draw(
                number,
                &part,
                &bars(&format!("{}: {title} (b: blocking, o: octorec)", model.name), "ms a step", &kinds, &all),
                &data,
            )?;
        }
        Ok(())
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}\n", self.rates)?;
        let mut table = Table::new(["section", "result", "published", "simulated", "deviation", "octorec"]);
        for case in &self.cases {
            let [low, high] = case.published;
            let told = if low == high { format!("{low}") } else { format!("{low} to {high}") };
            table.row([
                case.section.to_owned(),
                case.what.clone(),
                told,
                format!("{:.2}", case.simulated),
                format!("{:+.0} %", case.deviation * 1e2),
                case.octorec.map_or_else(String::new, |own| format!("{own:.2}")),
            ]);
        }
        write!(f, "{table}")
    }
}

/// PyTorch takes a minibatch through the network as a whole.
fn in_one_part(workload: Workload) -> Workload {
    Workload { part: Some(usize::MAX), ..workload }
}
