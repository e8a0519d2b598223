//! Hot rows: what a sample tells against what counting everything tells, through the library and through the command.

use std::process::{Command, Output};
use std::sync::Arc;

use octorec::base::config::DataConfig;
use octorec::base::rng::{Random, Stream};
use octorec::base::units::parse_bytes;
use octorec::base::{Error, Result};
use octorec::data::hot::{Chosen, HotSet, Inputs, Options, Profile, Tags, Tally, WHOLE_BELOW, classify, profile};
use octorec::data::zipf::{Scatter, Zipf};
use octorec::data::{Batch, Criteo, Reader, Schema, Source, Split};
use serde_json::Value;

/// Rows and Zipf exponent of each table: three large ones and a small one.
const TABLES: [(u64, f64); 4] = [(60_000, 0.8), (40_000, 1.0), (300_000, 0.9), (500, 0.5)];
const ROW_BYTES: u64 = 64;

/// Samples whose look-ups follow Zipf's law, hot rows anywhere in their tables.
struct Skewed {
    schema: Schema,
    samples: u64,
    /// Of each table, a sample's; an even number.
    lookups: u64,
    ranks: Vec<(Zipf, Scatter, Random)>,
}

struct SkewedReader<'a> {
    of: &'a Skewed,
    next: u64,
}

impl Skewed {
    fn new(samples: u64, lookups: u64, seed: u64) -> Self {
        let ranks = TABLES.iter().zip(0..).map(|(&(rows, exponent), table)| {
            let random = Random::new(seed, Stream::Column(table));
            (Zipf::new(rows, exponent), Scatter::new(rows, u64::from(table) + 1), random)
        });
        let schema = Schema::criteo(0, &TABLES.map(|(rows, _)| rows)).with_lookups(|_| lookups as usize);
        Self { schema, samples, lookups, ranks: ranks.collect() }
    }

    /// Accesses of every row of every table.
    fn counts(&self) -> Vec<Vec<u32>> {
        let mut counts: Vec<Vec<u32>> = TABLES.iter().map(|(rows, _)| vec![0; *rows as usize]).collect();
        self.each(|batch| {
            for (counts, bag) in counts.iter_mut().zip(&batch.bags) {
                bag.rows.iter().for_each(|&row| counts[row as usize] += 1);
            }
        });
        counts
    }

    fn each(&self, mut look: impl FnMut(&Batch)) {
        let (mut reader, mut batch) = (self.open(Split::Train, 0).unwrap(), Batch::new(&self.schema));
        while reader.read(&mut batch, 4096).unwrap() > 0 {
            look(&batch);
            batch.clear();
        }
    }

    fn profile(&self, options: &Options) -> Profile {
        profile(self, options, &|_| Ok(())).unwrap()
    }
}

impl Source for Skewed {
    fn schema(&self) -> &Schema {
        &self.schema
    }

    fn samples(&self, _: Split) -> Option<u64> {
        Some(self.samples)
    }

    fn open(&self, _: Split, start: u64) -> Result<Box<dyn Reader + '_>> {
        Ok(Box::new(SkewedReader { of: self, next: start }))
    }

    /// The number of a sample stands for its probability.
    fn truth(&self, _: Split, start: u64, count: usize) -> Option<Vec<f32>> {
        Some((start..self.samples.min(start + count as u64)).map(|n| n as f32).collect())
    }
}

impl Reader for SkewedReader<'_> {
    fn read(&mut self, batch: &mut Batch, limit: usize) -> Result<usize> {
        let (count, pairs) = ((self.of.samples - self.next).min(limit as u64), self.of.lookups / 2);
        for n in self.next..self.next + count {
            batch.labels.push(0.0);
            for ((zipf, scatter, random), bag) in self.of.ranks.iter().zip(&mut batch.bags) {
                let draws = (0..pairs).flat_map(|pair| random.uniform_pair(n * pairs + pair));
                bag.rows.extend(draws.map(|uniform| scatter.row(zipf.rank(uniform))));
                bag.close();
            }
        }
        self.next += count;
        Ok(count as usize)
    }

    fn skip(&mut self, count: u64) -> Result<u64> {
        let count = count.min(self.of.samples - self.next);
        self.next += count;
        Ok(count)
    }
}

fn options(share: f64, budget: u64) -> Options {
    Options {
        share,
        budget,
        row_bytes: ROW_BYTES,
        memory: 1 << 30,
        seed: 1,
        whole_below: WHOLE_BELOW,
        least: 0.0,
        infer: true,
    }
}

#[test]
fn a_sample_tells_what_counting_everything_tells() {
    let source = Skewed::new(500_000, 10, 7);
    let found = source.profile(&options(0.2, 330_000));
    let counts = source.counts();
    let (mut compared, mut compared_tables, mut inferred, mut misled) = (0, [0; 3], 0, 0);
    for tried in &found.tried {
        for (table, (size, counts)) in tried.tables.iter().zip(&counts).take(3).enumerate() {
            let told = size.rows;
            assert!(told.low <= told.value && told.value <= told.high);
            let counted = size.counted as f64;
            assert!((told.low..=told.high).contains(&counted), "{}: table {table}: {size:?}", tried.threshold);
            let accesses: u64 = counts.iter().map(|&count| u64::from(count)).sum();
            let least = tried.threshold * accesses as f64;
            let truth = counts.iter().filter(|&&count| f64::from(count) >= least).count() as f64;
            let off = |value: f64| (value / truth - 1.0).abs();
            if size.cutoff >= 3 && truth >= 1000.0 {
                assert!(off(size.inferred) < 0.1, "{}: table {table}: {size:?}, {truth}", tried.threshold);
                inferred += 1;
                misled += u32::from(off(counted) > 0.1);
            }
            // Large enough to say so: chance decides little on rows with 50 accesses, and the interval is no wider.
            if size.cutoff >= 50 && truth >= 100.0 && (told.high - told.low) / 2.0 <= 0.1 * told.value {
                assert!(off(told.value) < 0.1, "{}: table {table}: {size:?}, {truth}", tried.threshold);
                compared += 1;
                compared_tables[table] += 1;
            }
        }
    }
    // Of few accesses, what the sample makes hot is not what all inputs would.
    assert!(inferred >= 6 && misled >= 1, "{inferred} {misled}");
    assert!(compared >= 6 && compared_tables.iter().filter(|&&times| times > 0).count() >= 2, "{compared_tables:?}");
    // The small table is hot as a whole, and its rows count.
    assert!(found.tables[3].small && found.set.is_whole(3) && found.set.rows(3) == 500);
    assert!(found.inputs == 500_000 && found.sampled.abs_diff(100_000) <= found.stretch);
    assert!(found.judged >= 16_384 && found.tables[0].accesses == 10 * found.sampled);
}

#[test]
fn what_judged_inputs_tell_holds_for_inputs_that_nobody_saw() {
    // Other inputs with the same rows hot.
    let (source, others) = (Skewed::new(200_000, 2, 7), Skewed::new(50_000, 2, 8));
    let found = source.profile(&options(0.2, 2 << 20));
    let (mut hot, mut inputs, mut lookups, mut all) = (Vec::new(), 0, [0u64; 4], 0);
    others.each(|batch| {
        inputs += found.set.classify(batch, &mut hot);
        all += 2 * batch.samples() as u64;
        for (table, bag) in batch.bags.iter().enumerate() {
            lookups[table] += bag.rows.iter().filter(|&&row| found.set.contains(table, row)).count() as u64;
        }
    });
    let chosen = &found.tried[found.chosen];
    let near = |told: f64, truth: f64, by: f64| assert!((told - truth).abs() < by, "{told} {truth}");
    assert!((0.05..0.95).contains(&chosen.hot_inputs), "{}", chosen.hot_inputs);
    near(chosen.hot_inputs, inputs as f64 / 50_000.0, 0.02);
    near(chosen.hot_lookups, lookups.iter().sum::<u64>() as f64 / (4 * all) as f64, 0.01);
    for (table, &lookups) in found.tables.iter().zip(&lookups) {
        near(table.hot_lookups.unwrap(), lookups as f64 / all as f64, 0.015);
    }
}

/// Whether all hot rows of one are hot in the other.
fn within(small: &HotSet, large: &HotSet) -> bool {
    (0..small.tables()).all(|table| small.iter(table).all(|row| large.contains(table, row)))
}

#[test]
fn budgets_are_kept_and_used() {
    let source = Skewed::new(60_000, 10, 3);
    let all: u64 = TABLES.iter().map(|(rows, _)| rows * ROW_BYTES).sum();
    let mut before: Option<Profile> = None;
    for budget in [100_000, 1 << 20, 4 << 20, 8 << 20, all] {
        let found = source.profile(&options(0.2, budget));
        let rows: u64 = (0..4).map(|table| found.set.rows(table)).sum();
        let chosen = &found.tried[found.chosen];
        assert_eq!(rows * ROW_BYTES, chosen.counted_bytes);
        assert!(chosen.bytes.high <= budget as f64 && rows * ROW_BYTES <= budget, "{budget}: {chosen:?}");
        for (table, of) in found.tables.iter().enumerate() {
            assert_eq!((of.hot_rows, chosen.tables[table].counted), (found.set.rows(table), found.set.rows(table)));
            assert_eq!(found.set.iter(table).count() as u64, of.hot_rows);
        }
        // Falling thresholds make more rows hot, and more inputs.
        assert!(found.tried.is_sorted_by(|a, b| a.threshold > b.threshold
            && a.counted_bytes <= b.counted_bytes
            && a.hot_inputs <= b.hot_inputs
            && a.hot_lookups <= b.hot_lookups));
        let last = &found.tried[found.tried.len() - 1];
        assert_eq!((last.threshold, last.hot_inputs, last.counted_bytes), (0.0, 1.0, all));
        if let Some(before) = &before {
            assert!(within(&before.set, &found.set), "{budget}");
        }
        if budget == all {
            assert!((0..4).all(|table| found.set.is_whole(table)) && found.chosen + 1 == found.tried.len());
        } else if budget == 100_000 {
            // Many accesses make a row hot: a step of the threshold is a small one.
            assert!(chosen.counted_bytes as f64 > 0.7 * budget as f64, "{budget}: {chosen:?}");
        }
        before = Some(found);
    }
    let refused = |budget| profile(&source, &options(0.2, budget), &|_| Ok(())).unwrap_err().to_string();
    assert_eq!(
        refused(20_000),
        "--hot-budget: tables of less than 1.0 MiB are hot as a whole, and take 31.2 KiB, of 19.5 KiB that are allowed: \
         allow more than 32000B"
    );
    // More than that is allowed, and not yet enough: rows of a log that were not drawn may be hot.
    let message = refused(32_001);
    assert!(message.contains("the hottest rows of the others") && message.contains("left of 31.3 KiB"), "{message}");
    // The size that is named is one that the flag reads, one that is enough, and the least one of whole KiB.
    let named = parse_bytes(message.rsplit(' ').next().unwrap()).unwrap();
    let found = source.profile(&options(0.2, named));
    assert!(found.tried[found.chosen].bytes.high <= named as f64 && found.set.is_whole(3), "{message}");
    assert!(refused(named - 1024).starts_with("--hot-budget: "));
}

#[test]
fn a_sample_that_no_machine_holds_is_refused_before_it_is_drawn() {
    let config = DataConfig { train_samples: u64::MAX >> 1, ..DataConfig::default() };
    let source = Criteo::new(&config, &[9; 2], 1).unwrap();
    let error = profile(&source, &options(0.05, 1 << 20), &|_| Ok(())).unwrap_err().to_string();
    for told in ["--sample: drawing 5.000 % of 9,223,372,036,854,775,807 training samples", "sample fewer inputs"] {
        assert!(error.contains(told), "{error}");
    }
}

/// All but what depends on the machine.
fn shown(found: &Profile) -> String {
    let mut value = serde_json::to_value(found).unwrap();
    for key in ["seconds", "memory_bytes"] {
        assert!(value.as_object_mut().unwrap().remove(key).is_some(), "{key}");
    }
    value.to_string()
}

#[test]
fn the_seed_decides_and_neither_threads_nor_memory_do() {
    let source = Skewed::new(20_000, 10, 3);
    let wanted = options(0.1, 1 << 20);
    let found = source.profile(&wanted);
    for threads in [1, 3] {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
        let again = pool.install(|| source.profile(&wanted));
        assert!(shown(&again) == shown(&found) && again.set == found.set, "{threads} threads");
    }
    // Less memory than arrays need: a map holds what the largest table's rows have.
    let less = source.profile(&Options { memory: found.memory_bytes - 1, ..wanted });
    assert!(less.memory_bytes < found.memory_bytes);
    assert!(shown(&less) == shown(&found) && less.set == found.set);
    let other = source.profile(&Options { seed: 2, ..wanted });
    assert_ne!(other.set, found.set);
    // Everything counted: the same for every seed, but for which entries of the log are drawn.
    let [one, two] = [1, 2].map(|seed| source.profile(&Options { seed, ..options(1.0, 1 << 20) }));
    assert_eq!((one.sampled, two.sampled), (20_000, 20_000));
    let exact = |found: &Profile| {
        found.tried.iter().flat_map(|tried| &tried.tables).all(|size| size.inferred == size.counted as f64)
    };
    assert!(exact(&one) && exact(&two) && !exact(&found));
    let accessed = |found: &Profile| found.tables.iter().map(|table| table.accessed_rows).collect::<Vec<_>>();
    assert_eq!(accessed(&one), accessed(&two));
}

#[test]
fn all_inputs_are_told_apart_in_order_by_any_number_of_workers() {
    let source = Skewed::new(20_000, 2, 5);
    let set = source.profile(&options(0.5, 2 << 20)).set;
    let (mut expected, mut all, mut hot) = (Vec::new(), Batch::new(&source.schema), Vec::new());
    source.each(|batch| {
        set.classify(batch, &mut hot);
        expected.extend_from_slice(&hot);
        all.append_range(batch, 0..batch.samples());
    });
    let many = expected.iter().filter(|&&hot| hot).count() as u64;
    assert!(many > 100 && many < 19_900, "{many} are hot");
    for workers in [0, 1, 2, 5, 1000] {
        let (mut found, mut read) = (Vec::new(), Batch::new(&source.schema));
        let tally = classify(&source, Split::Train, &set, workers, |portion| {
            assert_eq!(portion.first, found.len() as u64);
            found.extend_from_slice(&portion.hot);
            read.append_range(&portion.batch, 0..portion.batch.samples());
            Ok(())
        });
        assert_eq!(tally.unwrap(), Tally { inputs: 20_000, hot: many }, "{workers} workers");
        assert!(found == expected && read == all, "{workers} workers");
        // What the sink cannot do ends the pass.
        let mut left = 3;
        let stopped = classify(&source, Split::Train, &set, workers, |_| {
            left -= 1;
            if left == 0 { Err(Error::Interrupted) } else { Ok(()) }
        });
        assert!(matches!(stopped, Err(Error::Interrupted)) && left == 0);
    }
    let none = classify(&Skewed::new(0, 2, 5), Split::Train, &set, 3, |_| unreachable!("there is no input"));
    assert_eq!(none.unwrap(), Tally::default());
    // A row that its table lacks is named, whichever worker meets it.
    let mut wrong = Skewed::new(20_000, 2, 5);
    wrong.schema.tables[2].rows -= 299_000;
    let told = classify(&wrong, Split::Train, &set, 3, |_| Ok(())).unwrap_err().to_string();
    let counted = profile(&wrong, &options(0.1, 2 << 20), &|_| Ok(())).unwrap_err().to_string();
    for message in [told, counted] {
        assert!(message.starts_with("table 2 (C3): row ") && message.contains("is beyond its 1000 rows"), "{message}");
    }
}

#[test]
fn a_kind_of_inputs_is_a_data_set_whatever_is_read_skipped_and_picked() {
    let source = Skewed::new(20_000, 2, 5);
    let set = source.profile(&options(0.5, 2 << 20)).set;
    let tags = Arc::new(Tags::of(&source, &set, 2, &|_, _| ()).unwrap());
    let (mut all, mut hot) = (Batch::new(&source.schema), Vec::new());
    assert_eq!(source.open(Split::Train, 0).unwrap().read(&mut all, usize::MAX).unwrap(), 20_000);
    set.classify(&all, &mut hot);
    let source: Arc<dyn Source> = Arc::new(source);
    for inputs in [Inputs::Hot, Inputs::Cold] {
        let places: Vec<usize> = (0..20_000).filter(|&at| hot[at] == (inputs == Inputs::Hot)).collect();
        let of = |numbers: &mut dyn Iterator<Item = usize>| {
            let mut batch = Batch::new(source.schema());
            numbers.for_each(|number| batch.push_from(&all, places[number]));
            batch
        };
        let chosen = Chosen::new(Arc::clone(&source), Arc::clone(&tags), inputs);
        let count = places.len();
        assert_eq!((chosen.samples(Split::Train), chosen.samples(Split::Test)), (Some(count as u64), Some(20_000)));
        let opened = |start: usize| chosen.open(Split::Train, start as u64).unwrap();
        for start in [0, 1, 77, count - 3, count] {
            let (mut reader, mut found) = (opened(start), Batch::new(source.schema()));
            while reader.read(&mut found, 999).unwrap() > 0 {}
            assert!(found == of(&mut (start..count)), "{inputs:?} from {start}");
        }
        let (mut reader, mut found) = (opened(10), Batch::new(source.schema()));
        assert_eq!((reader.skip(5).unwrap(), reader.read(&mut found, 2).unwrap()), (5, 2));
        assert_eq!(reader.pick(&mut found, &[0, 1, 30]).unwrap(), 3);
        assert_eq!((reader.read(&mut found, 1).unwrap(), reader.skip(1 << 40).unwrap()), (1, count as u64 - 49));
        assert_eq!((reader.read(&mut found, 1).unwrap(), reader.pick(&mut found, &[0]).unwrap()), (0, 0));
        assert!(found == of(&mut [15, 16, 17, 18, 47, 48].into_iter()), "{inputs:?}");
        // What is planted is that of the samples that are there.
        let told = |start: usize, count: usize| chosen.truth(Split::Train, start as u64, count).unwrap();
        let of_last: Vec<f32> = places[count - 2..].iter().map(|&place| place as f32).collect();
        assert!(told(count - 2, 7) == of_last && told(count, 3).is_empty() && told(count + 5, 1).is_empty());
        // What is not there of picks is left away.
        let (mut reader, mut found) = (opened(count - 2), Batch::new(source.schema()));
        assert_eq!(reader.pick(&mut found, &[1, 2, 9]).unwrap(), 1);
        assert!(found == of(&mut [count - 1].into_iter()));
    }
}

fn octorec(line: &str) -> Output {
    Command::new(env!("CARGO_BIN_EXE_octorec")).args(line.split_whitespace()).output().unwrap()
}

fn succeed(line: &str) -> String {
    let output = octorec(line);
    assert!(output.status.success(), "octorec {line}\n{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

fn fail(line: &str, code: i32) -> String {
    let output = octorec(line);
    let message = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(code), "octorec {line}\n{message}");
    message
}

/// A profile as a command prints it, without what depends on the machine.
fn json(line: &str) -> Value {
    let mut value: Value = serde_json::from_str(&succeed(&format!("{line} --json"))).unwrap();
    let object = value.as_object_mut().unwrap();
    assert!(object.remove("seconds").is_some() && object.remove("memory_bytes").is_some());
    value
}

const HOT: &str = "--hot --sample 10% --hot-budget 4MiB --optimizer-rows sgd";

#[test]
fn every_source_tells_the_same_of_the_same_data() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name).display().to_string();
    let samples = "--set data.train_samples=20000";
    let generated = json(&format!("inspect {HOT} {samples}"));
    assert_eq!(generated["inputs"], 20_000);
    assert_eq!(generated["tables"][2]["rows"], 35_104);
    assert!(generated["tables"][0]["small"] == true && generated["tables"][2]["small"] == false);
    for format in ["octorec", "mlperf"] {
        succeed(&format!("data generate {} --format {format} {samples} --set data.test_samples=100", at(format)));
        assert_eq!(json(&format!("inspect {} {HOT}", at(format))), generated, "{format}");
    }
    // Text has its own row numbers, and only rows that occur, so that tables are smaller.
    let config = DataConfig { train_samples: 20_000, test_samples: 0, ..DataConfig::default() };
    let mut text = Vec::new();
    Criteo::new(&config, &[], 13).unwrap().write_tsv(Split::Train, 0..20_000, &mut text).unwrap();
    std::fs::write(folder.path().join("log.tsv"), text).unwrap();
    let tsv = json(&format!(
        "inspect {} {HOT} --hot-budget 16MiB --test-fraction 0 --set model.dim=64 --set model.bottom=[13,64]",
        at("log.tsv")
    ));
    assert_eq!((&tsv["inputs"], &tsv["sampled"]), (&generated["inputs"], &generated["sampled"]));
    assert_eq!(tsv["row_bytes"], 256);
    for (text, generated) in tsv["tables"].as_array().unwrap().iter().zip(generated["tables"].as_array().unwrap()) {
        if text["small"] == false && generated["small"] == false {
            assert_eq!(text["accessed_rows"], generated["accessed_rows"], "{}", text["name"]);
        }
    }
    // Moments of the optimizer take a part of the budget.
    assert_eq!(json(&format!("inspect {HOT} {samples} --optimizer-rows adam --hot-budget 16MiB"))["row_bytes"], 192);
}

#[test]
fn the_command_tells_and_draws_what_it_tried() {
    let folder = tempfile::tempdir().unwrap();
    let svg = folder.path().join("hot.svg");
    let line = format!("inspect {HOT} --set data.train_samples=20000 --threads 2");
    let text = succeed(&format!("{line} --svg {}", svg.display()));
    let found = json(&line);
    for words in [
        " of 200,024 rows are hot, ",
        " of the 4.0 MiB that they may take; ",
        "told from 2,000 of 20,000 training samples (10.00 %, in stretches of 8), and judged by ",
        "26 tables with 200,024 rows of 64 B take 12.2 MiB; tables of less than 1.0 MiB are hot as a whole",
        "99.9 % between",
        "by all",
        "chosen",
        " of 26 tables are hot as a whole, and of the others these rows:",
        "fewer than 10 of the sample's accesses make a row hot",
        "counted in ",
    ] {
        assert!(text.contains(words), "{words}: {text}");
    }
    let tried = found["tried"].as_array().unwrap();
    let chosen = &tried[found["chosen"].as_u64().unwrap() as usize];
    assert!(
        chosen["counted_bytes"].as_u64().unwrap() <= 4 << 20 && chosen["bytes"]["high"].as_f64().unwrap() <= 4194304.0
    );
    assert!(text.starts_with("built-in click log: "), "what was found comes first: {text}");
    let row = text.lines().find(|line| line.contains("   chosen  ")).unwrap();
    let threshold: f64 = row.split_whitespace().next().unwrap().parse().unwrap();
    assert!((threshold / 100.0 / chosen["threshold"].as_f64().unwrap() - 1.0).abs() < 0.01, "{row}");
    assert!(row.contains(&format!("{:.2} %", 100.0 * chosen["hot_inputs"].as_f64().unwrap())), "{row}");
    assert!(
        text.contains(&format!(
            "{:.2} % of all samples look up no other",
            100.0 * chosen["hot_inputs"].as_f64().unwrap()
        ))
    );
    // A sample that is too small for its budget.
    let text = succeed("inspect --hot --preset kaggle --set data.train_samples=20000 --hot-budget 32MiB");
    assert!(text.contains("every row that the sample accessed is hot, and "), "{text}");
    let drawing = std::fs::read_to_string(&svg).unwrap();
    assert!(drawing.starts_with("<svg") && drawing.trim_end().ends_with("</svg>"));
    for words in ["MiB of hot rows", "% hot", "budget", "samples", "look-ups", "its upper end", "chosen"] {
        assert!(drawing.contains(words), "{words}");
    }
    // Two panels of three and two lines with a point a threshold, and a dot in each legend.
    let points = 5 * (tried.len() - 1) + 5;
    assert_eq!(drawing.matches("<circle").count(), points);
}

#[test]
fn data_that_the_configuration_names_are_the_title_and_are_not_written_over() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name).display().to_string();
    let sizes = "--set data.train_samples=20000 --set data.test_samples=100";
    succeed(&format!("data generate {} {sizes}", at("blocks")));
    let mut log = Vec::new();
    let config = DataConfig { train_samples: 50, test_samples: 0, ..DataConfig::default() };
    Criteo::new(&config, &[], 13).unwrap().write_tsv(Split::Train, 0..50, &mut log).unwrap();
    ["day_0.tsv", "day_1.tsv"].iter().for_each(|day| std::fs::write(at(day), &log).unwrap());
    let run = format!("[data]\nsource = \"tsv\"\npath = {:?}\ntest_path = {:?}\n", at("day_0.tsv"), at("day_1.tsv"));
    std::fs::write(at("run.toml"), &run).unwrap();
    for (input, kept) in [("day_0.tsv", &log[..]), ("day_1.tsv", &log[..]), ("run.toml", run.as_bytes())] {
        for flag in ["--out", "--svg"] {
            let message = fail(&format!("inspect --hot --config {} {flag} {}", at("run.toml"), at(input)), 1);
            assert!(message.contains(flag) && message.contains("is an input of this command"), "{message}");
            assert!(std::fs::read(at(input)).unwrap() == kept, "{input}");
        }
    }
    std::fs::write(at("blocks.toml"), format!("[data]\nsource = \"files\"\npath = {:?}\n", at("blocks"))).unwrap();
    let text = succeed(&format!("inspect {HOT} --preset demo --config {}", at("blocks.toml")));
    assert!(text.starts_with(&format!("{}: ", at("blocks"))), "{text}");
}

#[test]
fn what_cannot_be_is_refused_with_a_remedy() {
    let folder = tempfile::tempdir().unwrap();
    let blocks = folder.path().join("blocks").display().to_string();
    succeed(&format!("data generate {blocks} --set data.train_samples=100 --set data.test_samples=10"));
    for (line, code, words) in [
        ("inspect --hot --sample 5".to_owned(), 2, "more than 0% and at most 100% is expected, as in 5%"),
        ("inspect --hot --sample 0%".to_owned(), 2, "as in 5%"),
        ("inspect --hot --hot-budget lots".to_owned(), 2, "as in 4GiB"),
        ("inspect --hot --memory 1KiB".to_owned(), 2, "at least 16MiB"),
        ("inspect".to_owned(), 2, "<PATH>"),
        (format!("inspect {blocks} --sample 5%"), 2, "--hot"),
        (format!("inspect {blocks} --svg x.svg"), 2, "--hot"),
        (format!("inspect {blocks} --hot --format octorec"), 2, "cannot be used with"),
        (format!("inspect {blocks} --hot --rows 5"), 2, "cannot be used with"),
        (format!("inspect {blocks} --preset kaggle"), 1, "--preset: has an effect only with --hot"),
        (format!("inspect {blocks} --set model.dim=8"), 1, "--set: has an effect only with --hot"),
        (format!("inspect {blocks} --threads 2"), 1, "--threads: has an effect only with --hot"),
        (format!("inspect {blocks} --hot --source criteo"), 1, "data are generated, but"),
        (format!("inspect --hot --data {blocks}"), 1, "`octorec inspect` does not use data.path"),
        (format!("inspect {blocks} --hot --batch 7"), 1, "`octorec inspect` does not use train.batch"),
        ("inspect --hot --source random --set model.rows=[5,9]".to_owned(), 1, "data.source: its samples never end"),
        ("inspect --hot --set data.train_samples=0".to_owned(), 1, "no training sample"),
        ("inspect --hot --hot-budget 1MiB".to_owned(), 1, "--hot-budget: tables of less than 1.0 MiB"),
        (
            "inspect --hot --preset mlperf --memory 16MiB".to_owned(),
            1,
            "--memory: counting the sample's accesses takes",
        ),
        (format!("inspect {blocks} --hot --svg {blocks}/dataset.toml"), 1, "is an input of this command"),
        (format!("inspect {blocks}/none --hot"), 1, "none"),
    ] {
        let message = fail(&line, code);
        assert!(message.contains(words), "octorec {line}: {message}");
    }
    let help = succeed("inspect --help");
    let words = ["--hot ", "--sample", "--hot-budget", "--memory", "--svg", "--preset", "--rows-cap"];
    assert!(words.iter().all(|flag| help.contains(flag)) && !help.contains("--batch"), "{help}");
}
