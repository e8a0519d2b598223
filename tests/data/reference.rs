//! Files that other projects' own tools wrote (`tests/fixtures/reference/generate.py`) are read, and written byte for
//! byte.

use std::path::{Path, PathBuf};

use octorec::data::blocks::Options;
use octorec::data::formats::{self, Dataset, Format, Target};
use octorec::data::samples::{Samples, Values};
use octorec::data::stack_distance::{StackCounter, StackProfile};
use octorec::data::{Description, Split};

fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/reference").join(name)
}

fn rows(dataset: &Dataset, role: Split) -> Samples {
    let mut all = Samples::new(&dataset.description);
    for member in dataset.members.iter().filter(|member| member.role == role) {
        member.table.open(0).unwrap().read(&mut all, usize::MAX).unwrap();
    }
    all.check(&dataset.description);
    all
}

const FILES: [(Split, &str, usize); 3] =
    [(Split::Train, "train_data.bin", 7), (Split::Validation, "val_data.bin", 3), (Split::Test, "test_data.bin", 2)];

#[test]
fn hugectrs_converter_writes_the_rows_that_are_read_and_written_here() {
    let folder = tempfile::tempdir().unwrap();
    // Its input is TorchRec's arrays: day 0 for training, of day 1 the first half (rounded up) for validation.
    let arrays = formats::open(&fixture("hugectr/arrays"), None, None).unwrap();
    let mut description: Description = arrays.description.clone();
    assert_eq!(description.categorical.iter().map(|column| column.hots).collect::<Vec<_>>(), [3, 1, 2]);
    let mut target = Target::create(folder.path(), Format::Hugectr, &description, Options::default()).unwrap();
    assert_eq!(formats::convert(&arrays, &mut target, |_| ()).unwrap(), 12);
    target.seal().unwrap();
    for (role, name, count) in FILES {
        let theirs = std::fs::read(fixture("hugectr").join(name)).unwrap();
        assert_eq!(theirs.len(), count * 4 * (1 + 2 + 6), "{name}");
        assert_eq!(std::fs::read(folder.path().join(name)).unwrap(), theirs, "{name}");
        // Theirs in the place of ours.
        std::fs::write(folder.path().join(name), theirs).unwrap();
        let read = formats::open(folder.path(), None, None).unwrap();
        assert_eq!(rows(&read, role), rows(&arrays, role), "{name}");
    }
    let train = rows(&formats::open(folder.path(), None, None).unwrap(), Split::Train);
    assert_eq!(train.labels, [0.0, 1.0, 0.0, 1.0, 0.0, 1.0, 0.0]);
    assert_eq!(train.dense[1], Values::Floats((0..7).map(|n| n as f32 / 4.0 + 1.0).collect()));
    assert_eq!(train.lookups[2].rows[..4], [40, 41, 41, 42]);
    // Other columns than the rows have.
    description.categorical.pop();
    std::fs::write(folder.path().join("schema.toml"), description.to_toml()).unwrap();
    let found = formats::open(folder.path(), None, None).err().unwrap().to_string();
    assert!(found.contains("no whole number of rows of 28 bytes"), "{found}");
}

#[test]
fn the_references_trace_profiles_are_read_and_counted_alike() {
    let trace = std::fs::read_to_string(fixture("dlrm/trace.log")).unwrap();
    let mut counter = StackCounter::default();
    trace.split(", ").for_each(|row| {
        counter.access(row.parse().unwrap());
    });
    let ours = counter.profile().unwrap();
    // With numpy 2 the reference prints the types of its row numbers, too.
    for name in ["dist.log", "dist_numpy1.log"] {
        let theirs = StackProfile::read(&fixture("dlrm").join(name)).unwrap();
        assert_eq!((&theirs.rows, &theirs.distances), (&ours.rows, &ours.distances), "{name}");
        let near = |(a, b): (&f64, &f64)| (a - b).abs() < 1e-12;
        assert!(theirs.cumulative.iter().zip(&ours.cumulative).all(near), "it adds rounded shares up: {theirs:?}");
    }
    // What is written here has its first two lines as the reference writes and reads them.
    let folder = tempfile::tempdir().unwrap();
    ours.write(&folder.path().join("dist.log")).unwrap();
    let written = std::fs::read_to_string(folder.path().join("dist.log")).unwrap();
    let theirs = std::fs::read_to_string(fixture("dlrm/dist_numpy1.log")).unwrap();
    assert!(written.lines().take(2).eq(theirs.lines().take(2)) && written.lines().count() == 3, "{written}");
}
