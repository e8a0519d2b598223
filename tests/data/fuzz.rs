//! Every parser against what nobody would write: arbitrary bytes, and sound documents with bytes damaged or with
//! numbers, words and lines where they should not stand. Whatever it is, it is an error or a value, never a panic.
//!
//! PROPTEST_CASES=n tries n of each instead of what a second allows.

use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::LazyLock;

use octorec::base::config::{Command, Config, DataConfig, KEYS, Layers, OnBadRow, SourceKind, Vocab};
use octorec::collective::Payload;
use octorec::data::blocks::{BlockFile, Codec, Manifest, Options};
use octorec::data::formats::{self, Files, Format, Rows, Table, Target, csv};
use octorec::data::stack_distance::StackProfile;
use octorec::data::{Batch, Criteo, Opening, Samples, Source, Split};
use octorec::machine::{Machine, Routes, discover};
use octorec::shard::{Reserve, TableLoad, Workload, file};
use octorec::train::{Checkpoint, load_vocabulary, save_vocabulary};
use proptest::prelude::*;
use safetensors::tensor::{Dtype, TensorView};

use super::chance::Chance;
use super::spoil::{damage, twist, value};

/// Cases of a battery, unless PROPTEST_CASES says another number: `quick` takes a second.
fn cases(quick: u32) -> ProptestConfig {
    let wanted = std::env::var("PROPTEST_CASES").ok().and_then(|cases| cases.parse().ok());
    ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(wanted.unwrap_or(quick)) }
}

/// A document that was changed once or several times.
fn twisted(seed: u64, text: &str) -> String {
    let mut chance = Chance::new(seed, 0);
    (0..chance.between(1, 4)).fold(text.to_owned(), |text, _| twist(&mut chance, &text).0)
}

/// Bytes that were damaged once or several times.
fn damaged(seed: u64, bytes: &[u8]) -> Vec<u8> {
    let mut chance = Chance::new(seed, 1);
    let mut bytes = bytes.to_vec();
    for _ in 0..chance.between(1, 4) {
        damage(&mut chance, &mut bytes);
    }
    bytes
}

/// A folder with sound files of every kind.
struct Sound {
    folder: tempfile::TempDir,
    clicks: Vec<u8>,
}

impl Sound {
    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn text(&self, name: &str) -> String {
        fs::read_to_string(self.path(name)).unwrap()
    }
}

fn generate(folder: &Path, format: Format) {
    let config = DataConfig { train_samples: 60, test_samples: 20, rows_cap: 50, ..DataConfig::default() };
    let log = Criteo::new(&config, &[], 13).unwrap();
    let options = Options { codec: Codec::Lz4, block_rows: 16 };
    let mut target = Target::create(folder, format, &log.description(), options).unwrap();
    for (split, rows) in [(Split::Train, 60), (Split::Test, 20)] {
        target
            .write(split, |sink| {
                let mut samples = Samples::new(&log.description());
                log.fill(split, 0..rows, &mut samples);
                sink.push(&samples)?;
                Ok(rows)
            })
            .unwrap();
    }
    target.seal().unwrap();
}

const SETS: &[(Format, &str)] = &[
    (Format::Octorec, "octorec"),
    (Format::Mlperf, "mlperf"),
    (Format::Nvidia, "nvidia"),
    (Format::Torchrec, "torchrec"),
    (Format::Hugectr, "hugectr"),
];

static SOUND: LazyLock<Sound> = LazyLock::new(|| {
    let folder = tempfile::tempdir().unwrap();
    SETS.iter().for_each(|(format, name)| generate(&folder.path().join(name), *format));
    let config = DataConfig { train_samples: 30, test_samples: 0, ..DataConfig::default() };
    let mut clicks = Vec::new();
    Criteo::new(&config, &[], 13).unwrap().write_tsv(Split::Train, 0..30, &mut clicks).unwrap();
    let path = folder.path().join("clicks.tsv");
    fs::write(&path, &clicks).unwrap();
    let data = tsv_config(&path, OnBadRow::Fail);
    let tsv = Files::open_criteo(&data, &[], Opening::default()).unwrap();
    save_vocabulary(&folder.path().join("vocabulary"), tsv.about().vocabulary.as_deref().unwrap()).unwrap();
    let progress = serde_json::json!({"step": 3, "epoch": 0, "sample": 30});
    let header =
        serde_json::json!({"progress": progress, "config": Config::default(), "weighted": [], "vocabulary": null});
    let numbers: Vec<u8> = (0..48u8).collect();
    let tensors = [("emb_l.0.weight", vec![3, 2]), ("top_l.0.bias", vec![6])]
        .map(|(name, shape)| (name, TensorView::new(Dtype::F32, shape, &numbers[..24]).unwrap()));
    let metadata = HashMap::from([("octorec".to_owned(), header.to_string())]);
    let bytes = safetensors::serialize(tensors, Some(metadata)).unwrap();
    fs::write(folder.path().join("checkpoint"), bytes).unwrap();
    fs::write(folder.path().join("trace"), "0, 1, 2\n0, 1, 3\n0.5, 0.75, 1.0\n").unwrap();
    Sound { folder, clicks }
});

fn tsv_config(path: &Path, on_bad_row: OnBadRow) -> DataConfig {
    let path = path.display().to_string();
    DataConfig { source: SourceKind::Tsv, path, on_bad_row, vocab: Vocab::All, ..DataConfig::default() }
}

/// Opens bytes as a click log and reads whatever rows it has.
fn read_clicks(bytes: &[u8], on_bad_row: OnBadRow) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("clicks.tsv");
    fs::write(&path, bytes).unwrap();
    let Ok(source) = Files::open_criteo(&tsv_config(&path, on_bad_row), &[], Opening::default()) else { return };
    for split in [Split::Train, Split::Test] {
        let Ok(mut reader) = source.open(split, 0) else { continue };
        let mut batch = Batch::new(source.schema());
        while reader.read(&mut batch, 7).is_ok_and(|read| read > 0) {}
    }
}

/// Opens and checks a data set of which one file has these bytes.
fn read_set(name: &str, victim: &Path, bytes: &[u8]) {
    let folder = tempfile::tempdir().unwrap();
    let from = SOUND.path(name);
    for path in files(&from) {
        let to = folder.path().join(path.strip_prefix(&from).unwrap());
        fs::create_dir_all(to.parent().unwrap()).unwrap();
        fs::copy(&path, to).unwrap();
    }
    fs::write(folder.path().join(victim.strip_prefix(&from).unwrap()), bytes).unwrap();
    if let Ok(dataset) = formats::open(folder.path(), None, None) {
        let _ = formats::verify(&dataset, |_| ());
    }
}

/// One file of a data set, drawn.
fn victim(name: &str, ending: &str, at: prop::sample::Index) -> PathBuf {
    let mut files = files(&SOUND.path(name));
    files.retain(|path| path.to_string_lossy().ends_with(ending));
    at.get(&files).clone()
}

/// The files in a folder and in those within it, by name.
fn files(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let mut found: Vec<PathBuf> =
        entries.flat_map(|path| if path.is_dir() { files(&path) } else { vec![path] }).collect();
    found.sort();
    found
}

/// A schema with every kind of column, and a table for it.
const TABLE: &str = "user,rating,genres,age,price\nu1,5,Drama|War,18,1.5\nu2,1,,,7\nu1,3,\"a,b\",99,1e3\n";
const SCHEMA: &str = r#"label = "rating >= 4"
delimiter = ","
[[dense]]
column = "price"
float = true
transform = "log"
[[dense]]
column = "genres"
name = "length"
count = "|"
padding = "0"
[[categorical]]
column = "user"
rows = 10
[[categorical]]
column = "genres"
separator = "|"
[[categorical]]
column = "age"
buckets = [18.0, 25.0]
"#;

fn read_table(table: &[u8], schema: &[u8]) {
    let folder = tempfile::tempdir().unwrap();
    let [path, described] = ["a.csv", "a.toml"].map(|name| folder.path().join(name));
    fs::write(&path, table).unwrap();
    fs::write(&described, schema).unwrap();
    if let Ok(dataset) = formats::open(&path, None, Some(formats::Described::by(&described))) {
        let _ = formats::verify(&dataset, |_| ());
    }
    if let Ok(schema) = csv::propose(&path, u64::MAX, None, 1 << 20, OnBadRow::Fail) {
        let _ = schema.to_toml(1);
    }
}

fn read_tensors(bytes: &[u8]) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("checkpoint");
    fs::write(&path, bytes).unwrap();
    if let Ok(checkpoint) = Checkpoint::open(&path) {
        let _ = checkpoint.header();
    }
    let _ = load_vocabulary(&path, true);
}

fn read_machine(text: &str) {
    if let Ok(machine) = Machine::parse(text, "machine.toml") {
        let _ = (Routes::new(&machine).diameter(), machine.to_toml());
    }
}

/// The work that the plan below divides.
fn workload() -> Workload {
    let table = |rows| TableLoad {
        name: format!("C{rows}"),
        rows,
        dim: 16,
        positions: 1,
        lookups: 1.0,
        longest: 1,
        skew: 0.0,
        weighted: false,
        state_bytes: 0,
        row_weight_bytes: 0,
        row_state_bytes: 0,
        sorting: 0,
        stored: false,
    };
    Workload {
        tables: vec![table(100), table(7)],
        batch: 32,
        weight_bytes: 4,
        exchange_bytes: 4,
        payload: Payload::F32,
        dense_bytes: 1000,
        sample_bytes: 100,
        part_bytes: 100,
        part_rows: 1,
        part: None,
        layers: Vec::new(),
        collective: None,
        sample_operations: 2000,
        bf16: false,
        learns: true,
        grains: None,
        reserve: Reserve::default(),
    }
}

const PLAN: &str = "ranks = 3\ndim = 16\n[[table]]\nid = 0\nrows = 100\nscheme = \"column\"\nranks = [0, 2]\nsizes = [12, \
                    4]\n[[table]]\nid = 1\nscheme = \"row\"\nlayout = \"cyclic\"\nranks = [2, 1]\n";

fn read_config(text: &str) {
    for command in Command::ALL {
        let mut layers = Layers::default();
        if layers.document(text, "config.toml").is_ok() {
            let _ = layers.finish(command);
        }
    }
}

fn bytes() -> impl Strategy<Value = Vec<u8>> {
    prop::collection::vec(any::<u8>(), 0..600)
}

proptest! {
    #![proptest_config(cases(150))]

    #[test]
    fn clicks(seed: u64, bytes in bytes(), skip: bool, arbitrary in prop::bool::weighted(0.2)) {
        let bytes = if arbitrary { bytes } else { damaged(seed, &SOUND.clicks) };
        read_clicks(&bytes, if skip { OnBadRow::Skip } else { OnBadRow::Fail });
    }

    #[test]
    fn packed_clicks(seed: u64, bytes in bytes(), magic in prop::sample::select(vec![&[0x1f, 0x8b, 8, 0][..], &[0x28, 0xb5, 0x2f, 0xfd]])) {
        read_clicks(&[magic, &bytes].concat(), OnBadRow::Skip);
        let packed = zstd::bulk::compress(&SOUND.clicks, 3).unwrap();
        read_clicks(&damaged(seed, &packed), OnBadRow::Skip);
    }

    #[test]
    fn tables_and_schemas(seed: u64, arbitrary in bytes(), which in 0..4) {
        match which {
            0 => read_table(&arbitrary, SCHEMA.as_bytes()),
            1 => read_table(TABLE.as_bytes(), &arbitrary),
            2 => read_table(&damaged(seed, TABLE.as_bytes()), twisted(seed, SCHEMA).as_bytes()),
            _ => read_table(TABLE.as_bytes(), twisted(seed, SCHEMA).as_bytes()),
        }
    }

    #[test]
    fn configurations(seed: u64, arbitrary in ".{0,200}", which in 0..3) {
        let sound = toml::to_string(&Config::default()).unwrap();
        match which {
            0 => read_config(&arbitrary),
            1 => read_config(&twisted(seed, &sound)),
            _ => {
                let mut chance = Chance::new(seed, 2);
                let mut layers = Layers::default();
                layers.preset("demo").unwrap();
                for _ in 0..chance.between(1, 3) {
                    let key = chance.pick(KEYS).name;
                    let value = value(&mut chance);
                    let _ = layers.assignment(&format!("{key}={value}"));
                }
                let _ = layers.finish(Command::Train);
            }
        }
    }

    #[test]
    fn numpy_arrays_and_archives(seed: u64, at: prop::sample::Index, arbitrary in bytes(), header: bool, mlperf: bool) {
        let (set, ending) = if mlperf { ("mlperf", ".npz") } else { ("torchrec", ".npy") };
        let victim = victim(set, ending, at);
        let sound = fs::read(&victim).unwrap();
        // The text of an array's header, changed as documents are; its length stays.
        let bytes = match header {
            true => {
                let mut text = twisted(seed, &String::from_utf8_lossy(&sound[..sound.len().min(110)])).into_bytes();
                text.extend(&sound[sound.len().min(110)..]);
                text
            }
            false => damaged(seed, &sound),
        };
        read_set(set, &victim, &bytes);
        read_set(set, &victim, &[&sound[..sound.len().min(10)], &arbitrary].concat());
    }

    #[test]
    fn rows_of_other_programs(seed: u64, at: prop::sample::Index, set in prop::sample::select(vec!["mlperf", "nvidia", "hugectr"])) {
        let victim = victim(set, "", at);
        read_set(set, &victim, &damaged(seed, &fs::read(&victim).unwrap()));
    }

    #[test]
    fn feature_specifications(seed: u64, arbitrary in "[a-z:{}\\[\\]&*!|>'\"#,0-9 \n-]{0,200}", whole: bool) {
        let victim = SOUND.path("nvidia/feature_spec.yaml");
        let text = if whole { arbitrary } else { twisted(seed, &fs::read_to_string(&victim).unwrap()) };
        read_set("nvidia", &victim, text.as_bytes());
    }

    #[test]
    fn tensors(seed: u64, arbitrary in bytes(), vocabulary: bool, which in 0..3) {
        let sound = fs::read(SOUND.path(if vocabulary { "vocabulary" } else { "checkpoint" })).unwrap();
        let length = usize::try_from(u64::from_le_bytes(sound[..8].try_into().unwrap())).unwrap();
        let with_head = |head: &[u8]| [&(head.len() as u64).to_le_bytes(), head, &sound[8 + length..]].concat();
        match which {
            0 => read_tensors(&damaged(seed, &sound)),
            1 => read_tensors(&with_head(twisted(seed, &String::from_utf8_lossy(&sound[8..8 + length])).as_bytes())),
            _ => read_tensors(&with_head(&arbitrary)),
        }
    }

    #[test]
    fn blocks_and_manifests(seed: u64, at: prop::sample::Index, manifest: bool) {
        if manifest {
            let victim = SOUND.path("octorec/dataset.toml");
            read_set("octorec", &victim, twisted(seed, &SOUND.text("octorec/dataset.toml")).as_bytes());
        } else {
            let victim = victim("octorec", ".octo", at);
            let folder = tempfile::tempdir().unwrap();
            let path = folder.path().join("a.octo");
            fs::write(&path, damaged(seed, &fs::read(&victim).unwrap())).unwrap();
            if let Ok(file) = BlockFile::open(&path) {
                // By readers of their own, so that each block is entered, whatever is wrong with others.
                let read = |mut rows: Box<dyn Rows + '_>| rows.read(&mut Samples::new(file.description()), 1);
                (0..file.rows()).for_each(|at| drop(file.open(at).and_then(read)));
            }
            let _ = Manifest::read(folder.path());
        }
    }

    #[test]
    fn descriptions_of_machines(seed: u64, which in 0..10usize, arbitrary in ".{0,200}") {
        let shipped = octorec::machine::describe::SHIPPED;
        match shipped.get(which) {
            Some((_, text)) => read_machine(&twisted(seed, text)),
            None => read_machine(&arbitrary),
        }
    }

    #[test]
    fn plans(seed: u64, arbitrary in ".{0,200}", whole in prop::bool::weighted(0.2)) {
        let text = if whole { arbitrary } else { twisted(seed, PLAN) };
        let _ = file::parse(&text, "plan.toml", &workload(), 3);
    }

    #[test]
    fn traces(seed: u64) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("dist_emb_0.log");
        fs::write(&path, twisted(seed, &SOUND.text("trace"))).unwrap();
        if let Ok(profile) = StackProfile::read(&path) {
            let mut trace = octorec::data::stack_distance::StackTrace::new(profile, seed, 0);
            for _ in 0..50 {
                trace.next_row();
            }
        }
    }
}

proptest! {
    // hwloc itself takes a millisecond or ten.
    #![proptest_config(cases(60))]

    // hwloc's own reader dies of some of these by a signal.
    #[test]
    fn hwlocs_xml(seed: u64, arbitrary in "[<>a-z/=\" 0-9]{0,200}", whole in prop::bool::weighted(0.1)) {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/twisted8.xml");
        let text = if whole { arbitrary } else { twisted(seed, &fs::read_to_string(path).unwrap()) };
        if let Ok(machine) = discover::xml(&text, "machine", "machine.xml") {
            let _ = (Routes::new(&machine).diameter(), machine.to_toml());
        }
    }
}

// Damage to what is refused anyway would show nothing.
#[test]
fn the_sound_files_are_sound() {
    for (_, name) in SETS {
        let dataset = formats::open(&SOUND.path(name), None, None).unwrap();
        assert_eq!(formats::verify(&dataset, |_| ()).unwrap(), 80, "{name}");
        assert_eq!(dataset.description.categorical.len(), 26, "{name}");
    }
    read_clicks(&SOUND.clicks, OnBadRow::Fail);
    let vocabulary = load_vocabulary(&SOUND.path("vocabulary"), true).unwrap();
    assert_eq!(vocabulary.columns().len(), 26);
    let path = SOUND.path("checkpoint");
    assert_eq!(Checkpoint::open(&path).unwrap().header().unwrap().unwrap().0.step, 3);
    file::parse(PLAN, "plan.toml", &workload(), 3).unwrap();
    StackProfile::read(&SOUND.path("trace")).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let [path, described] = ["a.csv", "a.toml"].map(|name| folder.path().join(name));
    fs::write(&path, TABLE).unwrap();
    fs::write(&described, SCHEMA).unwrap();
    assert_eq!(formats::open(&path, None, Some(formats::Described::by(&described))).unwrap().members.len(), 1);
}
