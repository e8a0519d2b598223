//! Damage in data sets is found wherever it is; and preprocessing loses no data, whenever it ends.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use octorec::base::config::DataConfig;
use octorec::base::rng::{Random, Stream};
use octorec::data::blocks::Manifest;
use octorec::data::formats::csv::TextSchema;
use octorec::data::formats::{self, Target};
use octorec::data::preprocess::{Options, Recipe, SplitBy, preprocess};
use octorec::data::{Criteo, Samples, Split, blocks};
use tempfile::TempDir;

/// Places that are the same on every run.
fn places(seed: u64, count: u64, below: usize) -> impl Iterator<Item = usize> {
    let random = Random::new(seed, Stream::Label);
    (0..count).map(move |n| random.below(n, below as u64) as usize)
}

fn folder() -> TempDir {
    // In memory where there is such a folder: hundreds of small files are flushed to it.
    let memory = Path::new("/dev/shm");
    if memory.is_dir() { tempfile::tempdir_in(memory) } else { tempfile::tempdir() }.unwrap()
}

/// Rows of a click log.
fn log(path: &Path, rows: u64) {
    let config = DataConfig { train_samples: rows, test_samples: 0, ..DataConfig::default() };
    let mut file = std::io::BufWriter::new(fs::File::create(path).unwrap());
    Criteo::new(&config, &[], 13).unwrap().write_tsv(Split::Train, 0..rows, &mut file).unwrap();
}

/// What is wrong with a data set, if anything.
fn fault(path: &Path) -> Option<String> {
    formats::open(path, None, None).and_then(|set| formats::verify(&set, |_| ())).err().map(|error| error.to_string())
}

/// All rows of a data set, in order, with the names of its columns.
fn rows(path: &Path) -> Option<(Vec<Samples>, Vec<octorec::data::Split>, octorec::data::Description)> {
    let set = formats::open(path, None, None).ok()?;
    let mut all = Vec::new();
    for member in &set.members {
        formats::scan(&*member.table, 0, member.table.rows(), |samples| {
            all.push(samples.clone());
            Ok(())
        })
        .ok()?;
    }
    Some((all, set.members.iter().map(|member| member.role).collect(), set.description))
}

/// The files of a folder whose names end so.
fn files(folder: &Path, end: &str) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let mut files: Vec<_> = entries.filter(|path| path.is_file() && path.to_string_lossy().ends_with(end)).collect();
    files.sort();
    files
}

fn contents(folder: &Path) -> Vec<(PathBuf, Vec<u8>)> {
    let relative = |path: &PathBuf| path.strip_prefix(folder).unwrap().to_owned();
    files(folder, "").iter().map(|path| (relative(path), fs::read(path).unwrap())).collect()
}

/// Data sets with vocabularies of 32-bit words and of 64-bit fingerprints.
fn preprocessed(folder: &Path) -> [PathBuf; 2] {
    let (words, prints) = (folder.join("words"), folder.join("fingerprints"));
    log(&folder.join("log.tsv"), 900);
    let split = SplitBy::Fraction { validation: 0.0, test: 0.2 };
    let options = Options::new(Recipe::CriteoKaggle, vec![folder.join("log.tsv")], words.clone());
    preprocess(&Options { split, file_rows: 300, ..options }, &|_, _, _| ()).unwrap();
    let rows = (0..300).map(|n| format!("u{},g{}|g{},{}\n", n * n % 101, n % 5, n % 7, n % 6));
    fs::write(folder.join("ratings.csv"), "user,genres,rating\n".to_owned() + &rows.collect::<String>()).unwrap();
    fs::write(
        folder.join("schema.toml"),
        "label = 'rating >= 4'\ncategorical = [{ column = 'user' }, { column = 'genres', separator = '|' }]\n",
    )
    .unwrap();
    let schema = TextSchema::read(&folder.join("schema.toml")).unwrap();
    let options = Options::new(Recipe::Table(schema), vec![folder.join("ratings.csv")], prints.clone());
    preprocess(&Options { min_count: 3, ..options }, &|_, _, _| ()).unwrap();
    [words, prints]
}

#[test]
fn every_flip_and_cut_of_a_vocabulary_is_found() {
    let folder = folder();
    let mut flips = 0;
    for set in preprocessed(folder.path()) {
        assert_eq!(fault(&set), None);
        let vocabularies = files(&set, ".vocabulary");
        assert_eq!(vocabularies.len(), Manifest::read(&set).unwrap().schema.categorical.len());
        for (at, path) in vocabularies.iter().enumerate() {
            let whole = fs::read(path).unwrap();
            // Some in its head, some behind it, and the last bit.
            let head = places(at as u64, 4, 8 * 32);
            let body = places(at as u64 + 100, 4, 8 * (whole.len() - 32)).map(|bit| 8 * 32 + bit);
            for bit in head.chain(body).chain([8 * whole.len() - 1]) {
                let mut bytes = whole.clone();
                bytes[bit / 8] ^= 1 << (bit % 8);
                fs::write(path, &bytes).unwrap();
                let found = fault(&set).unwrap_or_else(|| panic!("{}: bit {bit} went unnoticed", path.display()));
                assert!(found.contains(&*path.to_string_lossy()), "{found}");
                flips += 1;
            }
            for len in [0, 31, 32, whole.len() / 2, whole.len() - 1] {
                fs::write(path, &whole[..len]).unwrap();
                assert!(fault(&set).is_some(), "{} cut at byte {len}", path.display());
            }
            fs::remove_file(path).unwrap();
            assert!(fault(&set).unwrap().contains("No such file"), "{} is missing", path.display());
            fs::write(path, whole).unwrap();
        }
        // One of another column.
        fs::copy(&vocabularies[0], &vocabularies[1]).unwrap();
        assert!(fault(&set).unwrap().contains("it belongs to another data set"));
    }
    assert!(flips > 200);
}

#[test]
fn every_flip_of_a_block_file_or_manifest_is_found_or_changes_nothing() {
    let folder = folder();
    let [set, _] = preprocessed(folder.path());
    let before = rows(&set).expect("it is sound");
    let same = |after: &(Vec<Samples>, Vec<Split>, octorec::data::Description)| {
        after.0 == before.0 && after.1 == before.1 && after.2 == before.2
    };
    for (seed, name, least) in [(1, "part-00000.octo", 100), (2, "part-00002.octo", 100), (3, "dataset.toml", 200)] {
        let path = set.join(name);
        let whole = fs::read(&path).unwrap();
        let mut found = 0;
        for bit in places(seed, 250, 8 * whole.len()) {
            let mut bytes = whole.clone();
            bytes[bit / 8] ^= 1 << (bit % 8);
            fs::write(&path, &bytes).unwrap();
            match fault(&set) {
                Some(_) => found += 1,
                // Padding, or a word that is reserved: whoever reads it gets the same.
                None => assert!(rows(&set).is_some_and(|after| same(&after)), "{name}: bit {bit} changed the data"),
            }
        }
        assert!(found >= least, "{name}: {found} of 250 flips are found");
        for len in places(seed + 10, 20, whole.len()).chain([0, whole.len() - 1]) {
            fs::write(&path, &whole[..len]).unwrap();
            let harmless = || rows(&set).is_some_and(|after| same(&after));
            assert!(fault(&set).is_some() || harmless(), "{name} cut at byte {len}");
        }
        fs::write(&path, &whole).unwrap();
    }
    assert_eq!(fault(&set), None);
}

/// A data set of a format, with samples for training and for test.
fn generated(to: &Path, format: formats::Format) {
    let config = DataConfig { train_samples: 130, test_samples: 40, ..DataConfig::default() };
    let log = Criteo::new(&config, &[], 13).unwrap();
    let description = log.description();
    let mut target = Target::create(to, format, &description, blocks::Options::default()).unwrap();
    for (split, count) in [(Split::Train, 130), (Split::Test, 40)] {
        let mut samples = Samples::new(&description);
        log.fill(split, 0..count, &mut samples);
        target.write(split, |sink| sink.push(&samples).map(|()| count)).unwrap();
    }
    target.seal().unwrap();
}

#[test]
fn emptied_and_cut_files_of_every_format_are_not_sound() {
    let folder = folder();
    for (at, format) in formats::Format::WRITTEN.iter().enumerate() {
        let set = folder.path().join(format.name());
        generated(&set, *format);
        assert_eq!(fault(&set), None, "{}", format.name());
        for path in files(&set, "") {
            let whole = fs::read(&path).unwrap();
            let name = format!("{}/{}", format.name(), path.file_name().unwrap().to_string_lossy());
            fs::write(&path, "").unwrap();
            assert!(fault(&set).is_some(), "{name} is empty");
            let described = path.extension().is_some_and(|end| end == "toml" || end == "yaml");
            // A file of rows alone tells no cut between them.
            let rows = |len: usize| match format.name() {
                "mlperf" => len.is_multiple_of(160),
                "hugectr" => len.is_multiple_of(160),
                _ => false,
            };
            for len in
                places(at as u64, 12, whole.len()).chain([whole.len() - 1]).filter(|&len| !described && !rows(len))
            {
                fs::write(&path, &whole[..len]).unwrap();
                assert!(fault(&set).is_some(), "{name} cut at byte {len} of {}", whole.len());
            }
            fs::write(&path, &whole).unwrap();
        }
        assert_eq!(fault(&set), None, "{}", format.name());
    }
}

#[test]
fn converted_data_keeps_its_vocabularies() {
    let folder = folder();
    for set in preprocessed(folder.path()) {
        let dataset = formats::open(&set, None, None).unwrap();
        let to = set.with_extension("again");
        let mut target =
            Target::create(&to, formats::Format::Octorec, &dataset.description, blocks::Options::default()).unwrap();
        formats::convert(&dataset, &mut target, |_| ()).unwrap();
        target.seal().unwrap();
        assert_eq!(fault(&to), None);
        let values =
            |folder: &Path| files(folder, ".vocabulary").iter().map(|path| fs::read(path).unwrap()).collect::<Vec<_>>();
        assert!(values(&to) == values(&set) && !values(&to).is_empty());
    }
}

/// Preprocesses a log by the command.
fn command(input: &Path, out: &Path, more: &str) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_octorec"));
    command.args(["preprocess", "criteo-kaggle", "--threads", "2", "--in"]).arg(input).arg("--out").arg(out);
    command.args(more.split_whitespace()).stdout(Stdio::null());
    command
}

/// The message of a command that must fail.
fn refused(mut command: Command) -> String {
    let output = command.output().unwrap();
    let message = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(1), "{message}");
    message
}

fn succeed(mut command: Command) {
    let output = command.output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

#[test]
fn forced_preprocessing_that_fails_leaves_the_data_before() {
    let folder = folder();
    let at = |name: &str| folder.path().join(name);
    log(&at("old.tsv"), 800);
    fs::write(at("bad.tsv"), fs::read_to_string(at("old.tsv")).unwrap() + "1\tonly\n").unwrap();
    let out = at("out");
    succeed(command(&at("old.tsv"), &out, "--file-rows 200"));
    let before = contents(&out);
    for (input, more, reason) in [
        ("nowhere.tsv", "", "nowhere.tsv"),
        ("bad.tsv", "", "bad.tsv: line 801"),
        ("old.tsv", "--vocabulary nowhere", "nowhere"),
        ("old.tsv", "--split fraction --validation-fraction 0.9 --test-fraction 0.9", "--validation-fraction"),
    ] {
        let message = refused(command(&at(input), &out, &format!("--force {more}")));
        assert!(message.contains(reason), "{message}");
        assert!(contents(&out) == before && fault(&out).is_none(), "{input} {more}: the old data stays");
    }
    // Without --force nothing is touched either, finished or not.
    let message = refused(command(&at("old.tsv"), &out, ""));
    assert!(message.contains("holds a data set already: replace it with --force"), "{message}");
    assert!(out.join("unfinished").exists() && contents(&out) == before);
    // The remedy: what was wrong is mended, and the same command replaces the data and leaves nothing beside it.
    fs::copy(at("old.tsv"), at("bad.tsv")).unwrap();
    succeed(command(&at("bad.tsv"), &out, "--force --file-rows 300 --min-count 2"));
    succeed(command(&at("bad.tsv"), &at("fresh"), "--file-rows 300 --min-count 2"));
    assert!(contents(&out) == contents(&at("fresh")) && !out.join("unfinished").exists());
}

#[test]
fn forced_preprocessing_that_is_killed_leaves_the_data_before_and_goes_on() {
    let folder = folder();
    let at = |name: &str| folder.path().join(name);
    log(&at("old.tsv"), 500);
    log(&at("new.tsv"), 12_000);
    let (out, more) = (at("out"), "--memory 16MiB --shuffle total --file-rows 700 --split last-day-dlrm --force");
    succeed(command(&at("old.tsv"), &out, "--file-rows 100"));
    succeed(command(&at("new.tsv"), &at("fresh"), more));
    let (old, new) = (contents(&out), contents(&at("fresh")));
    let mut kills = 0;
    // Each time a little later, down to the last acts.
    for files in (1..60).step_by(3) {
        let mut child = command(&at("new.tsv"), &out, more).stderr(Stdio::null()).spawn().unwrap();
        let ended = loop {
            if child.try_wait().unwrap().is_some() {
                break true;
            }
            if fs::read_dir(out.join("unfinished")).map_or(0, Iterator::count) >= files {
                child.kill().unwrap();
                child.wait().unwrap();
                break false;
            }
            std::thread::sleep(Duration::from_micros(300));
        };
        kills += usize::from(!ended);
        if ended {
            break;
        }
        // The old data as it was, or, in the last acts, what the next start makes the new one of.
        let found = contents(&out);
        assert!(found == old || out.join("unfinished/moving").exists() || found == new, "after kill {kills}");
        assert!(found != old || fault(&out).is_none());
    }
    succeed(command(&at("new.tsv"), &out, more));
    assert!(contents(&out) == new && kills > 3, "{kills} kills");
}

#[test]
fn data_on_its_way_into_its_place_gets_there() {
    let folder = folder();
    let at = |name: &str| folder.path().join(name);
    log(&at("old.tsv"), 500);
    log(&at("new.tsv"), 900);
    succeed(command(&at("new.tsv"), &at("fresh"), "--file-rows 300"));
    let new = contents(&at("fresh"));
    let starts = [("--file-rows 300 --force", 0), ("--file-rows 300", 0), ("--file-rows 400", 1)];
    for (n, (then, code)) in starts.into_iter().enumerate() {
        let out = at(&format!("out{n}"));
        succeed(command(&at("old.tsv"), &out, "--file-rows 100"));
        // The second file finds its name taken.
        fs::remove_file(out.join("part-00002.octo")).unwrap();
        fs::create_dir(out.join("part-00002.octo")).unwrap();
        fs::write(out.join("part-00002.octo/mine"), "").unwrap();
        let message = refused(command(&at("new.tsv"), &out, "--file-rows 300 --force"));
        assert!(message.contains("part-00002.octo: cannot"), "{message}");
        fs::remove_dir_all(out.join("part-00002.octo")).unwrap();
        let output = command(&at("new.tsv"), &out, then).output().unwrap();
        assert_eq!(output.status.code(), Some(code), "{}", String::from_utf8_lossy(&output.stderr));
        assert!(contents(&out) == new && !out.join("unfinished").exists(), "{then}");
    }
}

#[test]
fn one_process_at_a_time_preprocesses_into_a_folder() {
    let folder = folder();
    let at = |name: &str| folder.path().join(name);
    log(&at("log.tsv"), 300);
    let out = at("out");
    fs::create_dir(&out).unwrap();
    // As a process holds it that is writing.
    let lock = fs::File::create(out.join(".lock")).unwrap();
    lock.lock().unwrap();
    for more in ["", "--force"] {
        let message = refused(command(&at("log.tsv"), &out, more));
        assert!(message.contains("is being written by another process"), "{message}");
        assert!(message.contains("choose another --out") && files(&out, "").len() == 1, "{message}");
    }
    drop(lock);
    succeed(command(&at("log.tsv"), &out, ""));
}

#[test]
fn preprocessing_and_conversion_know_what_the_other_has_left() {
    let folder = folder();
    let at = |name: &str| folder.path().join(name);
    log(&at("log.tsv"), 300);
    fs::write(at("bad.tsv"), fs::read_to_string(at("log.tsv")).unwrap() + "1\tonly\n").unwrap();
    let clicks = Criteo::new(&DataConfig::default(), &[], 13).unwrap();
    let description = clicks.description();
    let create = |to: &Path, format| Target::create(to, format, &description, blocks::Options::default());
    // A run that the same command goes on with is not removed.
    refused(command(&at("bad.tsv"), &at("run"), ""));
    let before = contents(&at("run/unfinished"));
    for format in formats::Format::WRITTEN {
        let message = create(&at("run"), *format).err().unwrap().to_string();
        assert!(message.contains("unfinished: holds what `octorec preprocess` has begun"), "{message}");
    }
    assert!(contents(&at("run/unfinished")) == before && !before.is_empty());
    // Nor do both write to a folder at a time.
    let begun = create(&at("out"), formats::Format::Octorec).unwrap();
    assert!(refused(command(&at("log.tsv"), &at("out"), "")).contains("is being written by another process"));
    let mut samples = Samples::new(&description);
    clicks.fill(Split::Train, 0..50, &mut samples);
    let mut rows = create(&at("begun"), formats::Format::Octorec).unwrap();
    rows.write(Split::Train, |sink| sink.push(&samples).map(|()| 50)).unwrap();
    fs::create_dir(at("killed")).unwrap();
    fs::create_dir(at("killed/unfinished")).unwrap();
    for (name, bytes) in contents(rows.work()) {
        fs::write(at("killed/unfinished").join(name), bytes).unwrap();
    }
    drop(begun);
    // What a conversion has left that was killed or failed is in nobody's way.
    for out in ["out", "killed"] {
        succeed(command(&at("log.tsv"), &at(out), ""));
        assert!(fault(&at(out)).is_none() && !at(out).join("unfinished").exists(), "{out}");
    }
    assert!(contents(&at("out")) == contents(&at("killed")));
}

#[test]
fn no_input_is_lost_to_the_output() {
    let folder = folder();
    let at = |name: &str| folder.path().join(name);
    let out = at("out");
    fs::create_dir(&out).unwrap();
    // A log that has the name of an output, named itself and by its folder, through a link.
    log(&out.join("C1.vocabulary"), 300);
    log(&at("log.tsv"), 300);
    std::os::unix::fs::symlink(out.join("C1.vocabulary"), at("link")).unwrap();
    let before = contents(&out);
    for input in [out.join("C1.vocabulary"), out.clone(), at("link")] {
        for more in ["", "--force"] {
            let message = refused(command(&input, &out, more));
            assert!(message.contains("is an input that would be lost to --out"), "{message}");
            assert!(contents(&out) == before, "{}", input.display());
        }
    }
    succeed(command(&at("log.tsv"), &at("words"), ""));
    let before = contents(&at("words"));
    for more in ["", "--force"] {
        let message =
            refused(command(&at("log.tsv"), &at("words"), &format!("{more} --vocabulary {}", at("words").display())));
        assert!(message.contains("is an input that would be lost to --out"), "{message}");
    }
    assert!(contents(&at("words")) == before);
    // The remedy.
    succeed(command(&at("log.tsv"), &at("again"), &format!("--vocabulary {}", at("words").display())));
}
