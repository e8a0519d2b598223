//! `octorec tune gemm` and what `train` and `bench` make of its files. No test asserts a time.

use octorec::simd::Isa;
use serde_json::Value;

use super::{fail, json, run, succeed};

/// A model whose layers are multiplied in microseconds.
const TINY: &str = "--set model.rows=[50,7] --set model.bottom=[13,80,16] --set model.top=[70,1] --threads 2";

#[test]
fn plans_are_written_read_and_change_no_result() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("plans.toml");
    let file = path.display();
    let report = json(&format!("tune gemm {TINY} --batch 96 --repeat 2 --only f32 --json --out {file}"));
    assert_eq!(report["threads"], 2);
    let rows = report["rows"].as_array().unwrap();
    // Four layers of different shapes, three passes each.
    assert_eq!(rows.len(), 4 * 3, "{report}");
    for row in rows {
        assert!(row["gain"].as_f64().unwrap() >= 1.0 && row["candidates"].as_u64().unwrap() >= 1, "{row}");
        assert!(row["best"]["ms"].as_f64().unwrap() <= row["model"]["ms"].as_f64().unwrap(), "{row}");
    }
    // Whatever was found worth writing, a plan that the model does not choose has to be followed.
    let text = std::fs::read_to_string(&path).unwrap();
    let mut written: toml::Table = toml::from_str(&text).unwrap();
    let plan =
        "rows = 96\ngrain = 1\ncolumns = 80\nsteps = 13\nwhole = false\nacross = 1\ndepth = 128\ngroup = 1\ngain = 1.5";
    // One plan for forward, and one for the gradient of weights, whose right operand is not transposed but copied.
    let weights = "rows = 13\ngrain = 64\ncolumns = 80\nsteps = 96\nwhole = false\nacross = 2\ndepth = 64\ngroup = 1\n\
                   gain = 1.5";
    let read = matches!(Isa::best(), Isa::Scalar(_) | Isa::Avx2(_));
    let strips = format!("strips = {read}\n{weights}");
    let plans = [plan, &strips].map(|plan| toml::Value::Table(toml::from_str(plan).unwrap()));
    written.insert("plans".to_owned(), toml::Value::Array(plans.to_vec()));
    std::fs::write(&path, toml::to_string(&written).unwrap()).unwrap();

    let train =
        format!("train {TINY} --batch 96 --steps 5 --set data.train_samples=960 --set data.test_samples=96 --json");
    let with = succeed(&format!("{train} --tuned {file}"));
    let message = String::from_utf8_lossy(&with.stderr);
    assert!(message.contains("plans: 2 shapes from"), "{message}");
    let [with, without]: [Value; 2] =
        [with, succeed(&train)].map(|output| serde_json::from_slice(&output.stdout).unwrap());
    assert_eq!(with["final_loss"], without["final_loss"]);
    let bench = succeed(&format!("bench gemm --shape 96x13x80 --threads 2 --rounds 1 --tuned {file}"));
    assert!(String::from_utf8_lossy(&bench.stderr).contains("plans: 2 shapes"));

    // A file for other threads is left unused, and the user is told.
    let other = succeed(&format!("{train} --threads 1 --tuned {file}"));
    let message = String::from_utf8_lossy(&other.stderr);
    assert!(message.contains("left unused") && message.contains("1 thread"), "{message}");

    // Strips that no tile of this machine reads are refused.
    if !read {
        let text = std::fs::read_to_string(&path).unwrap().replace("strips = false", "strips = true");
        std::fs::write(&path, text).unwrap();
        let message = fail(&format!("{train} --tuned {file}"));
        assert!(message.contains("plan 2 of it is impossible") && message.contains("read no strips"), "{message}");
    }
}

#[test]
fn a_file_that_has_no_plan_for_any_layer_is_told_once() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("plans.toml");
    let file = path.display();
    succeed(&format!("tune gemm {TINY} --batch 96 --repeat 1 --only f32 --out {file}"));
    let mut written: toml::Table = toml::from_str(&std::fs::read_to_string(&path).unwrap()).unwrap();
    let plan = "grain = 1\ncolumns = 80\nsteps = 13\nwhole = false\nacross = 1\ndepth = 64\ngroup = 1\ngain = 1.5";
    let mut told = |rows: usize, line: &str| {
        let plan = toml::Value::Table(toml::from_str(&format!("rows = {rows}\n{plan}")).unwrap());
        written.insert("plans".to_owned(), toml::Value::Array(vec![plan]));
        std::fs::write(&path, toml::to_string(&written).unwrap()).unwrap();
        String::from_utf8(succeed(&format!("{line} --tuned {file}")).stderr).unwrap()
    };
    let train =
        format!("train {TINY} --batch 96 --steps 5 --set data.train_samples=960 --set data.test_samples=0 --ranks 1");
    let bench = "bench gemm --shape 96x13x80 --threads 2 --rounds 1";
    let unused = format!("note: no plan of {file} is used, which has none for these passes on 2 threads");
    for (line, remedy) in [
        (&*train, "`octorec tune gemm` with this run's model, --batch 96 --threads 2 --out FILE measures them"),
        (bench, "`octorec tune gemm` measures those of a model's layers"),
    ] {
        let told = told(97, line);
        assert_eq!(told.matches(&unused).count(), 1, "{told}");
        assert!(told.contains("96 x 80 x ") && told.contains(remedy), "{told}");
    }
    // On tiles, terms are counted otherwise.
    if matches!(Isa::best(), Isa::Scalar(_) | Isa::Avx2(_) | Isa::Avx512(_)) {
        for line in [&*train, bench] {
            let told = told(96, line);
            assert!(!told.contains("no plan of"), "{told}");
        }
    }
}

/// Whatever vectors this machine has, plans of another one's are none of its business.
#[test]
fn strips_of_another_machine_are_left_unused() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("plans.toml");
    let head = "machine = \"m\"\nisa = \"avx2\"\nthreads = 1\n";
    let plan = "rows = 8\ngrain = 1\ncolumns = 8\nsteps = 8\nwhole = false\nacross = 1\ndepth = 64\ngroup = 1\n";
    std::fs::write(&path, format!("{head}[[plans]]\n{plan}strips = true\ngain = 1.5\n")).unwrap();
    let bench = succeed(&format!("bench gemm --shape 8x8x8 --rounds 1 --threads 1 --tuned {}", path.display()));
    let message = String::from_utf8_lossy(&bench.stderr);
    assert!(message.contains("left unused: its plans are for m, avx2, 1 thread"), "{message}");
}

#[test]
fn broken_files_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("plans.toml");
    let bench = format!("bench gemm --shape 8x8x8 --rounds 1 --threads 1 --tuned {}", path.display());
    assert!(fail(&bench).contains("plans.toml: cannot read"));
    let train = fail(&format!("train --steps 1 --tuned {}", folder.path().display()));
    assert!(train.contains("train.tuned: ") && train.contains("is a folder"), "{train}");
    let head = "machine = \"m\"\nisa = \"scalar\"\nthreads = 2\n";
    let plan = "rows = 8\ngrain = 1\ncolumns = 8\nsteps = 8\nwhole = false\ndepth = 64\ngroup = 1\ngain = 1.0\n";
    for (text, reason) in [
        ("rubbish".to_owned(), "is no file of plans"),
        ("machine = 3".to_owned(), "is no file of plans"),
        (format!("{head}[[plans]]\n{plan}across = 3\n"), "plan 1 of it is impossible"),
        (format!("{head}[[plans]]\n{}across = 1\n", plan.replace("grain = 1", "grain = 0")), "grain = 0 is no layer's"),
        (
            format!("{head}[[plans]]\n{}across = 1\n", plan.replace("rows = 8", "rows = 18446744073709551615")),
            "rows = 18446744073709551615 is no layer's",
        ),
        (head.replace('2', "0"), "threads = 0"),
    ] {
        std::fs::write(&path, &text).unwrap();
        let message = fail(&bench);
        assert!(message.contains(reason), "{text}: {message}");
    }
}

#[test]
fn help_names_defaults_and_unknown_names_are_refused() {
    let help = String::from_utf8(succeed("tune gemm --help").stdout).unwrap();
    for word in ["--preset", "--batch", "--threads", "--out", "[default: 15]"] {
        assert!(help.contains(word), "{word}: {help}");
    }
    assert!(fail("tune gemm --preset nosuch").contains("unknown preset"));
    assert_eq!(run("tune gemm --repeat 0").status.code(), Some(2));
}
