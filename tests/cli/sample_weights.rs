//! Samples that do not count the same, as a user trains on them and scores them.

use std::fs;
use std::path::Path;

use safetensors::SafeTensors;

use super::{fail, json, succeed};

const MODEL: &str = "--set model.bottom=[0,8,4] --set model.top=[8,1] --set model.dim=4 --lr 0.1 --eval-every 0 --threads 1 \
                     --optimizer sgd --optimizer-rows sgd";

const SCHEMA: &str = "label = 'click'\nweight = 'w'\n[[dense]]\ncolumn = 'price'\nfloat = true\n[[categorical]]\n\
                      column = 'user'\nrows = 50\n[[categorical]]\ncolumn = 'item'\nrows = 50\n";

/// A row of the log but for its weight.
fn row(n: u32) -> String {
    let (user, item) = (n * 7919 % 13, n * 31 % 17);
    format!("{},{}.25,u{user},i{item}", u32::from((user + item + n % 3).is_multiple_of(4)), n % 11)
}

/// A log of rows with these weights.
fn log(path: &Path, weights: impl IntoIterator<Item = (u32, String)>) -> String {
    let rows: String = weights.into_iter().map(|(n, weight)| format!("{},{weight}\n", row(n))).collect();
    fs::write(path, format!("click,price,user,item,w\n{rows}")).unwrap();
    path.display().to_string()
}

fn schema(folder: &Path, text: &str, name: &str) -> String {
    fs::write(folder.join(name), text).unwrap();
    folder.join(name).display().to_string()
}

/// The tensors of a run's checkpoint.
fn tensors(run: &Path) -> Vec<(String, Vec<u8>)> {
    let file = fs::read(run.join("checkpoint.safetensors")).unwrap();
    let tensors = SafeTensors::deserialize(&file).unwrap();
    let mut all: Vec<_> = tensors.iter().map(|(name, tensor)| (name.to_owned(), tensor.data().to_vec())).collect();
    all.sort();
    all
}

#[test]
fn ranks_weigh_samples_alike_and_weights_of_1_change_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    let weighted = schema(folder.path(), SCHEMA, "w.toml");
    let plain = schema(folder.path(), &SCHEMA.replace("weight = 'w'\n", ""), "p.toml");
    let ones = log(&at("ones.csv"), (0..600).map(|n| (n, "1.0".to_owned())));
    let data = log(&at("log.csv"), (0..600).map(|n| (n, format!("{}.5", n % 5))));
    let train = |data: &str, schema: &str, out: &str, more: &str| {
        let out = at(out);
        let line =
            format!("train --data {data} --schema {schema} {MODEL} --batch 48 --epochs 3 --test-fraction 0.2 {more}");
        (json(&format!("{line} --out {} --json", out.display())), tensors(&out))
    };
    let (without, of_ones) = (train(&ones, &plain, "plain", ""), train(&ones, &weighted, "ones", ""));
    assert!(without.1 == of_ones.1, "weights of 1 change no bit of the model");
    assert_eq!((&without.0["final_loss"], &without.0["auc"]), (&of_ones.0["final_loss"], &of_ones.0["auc"]));
    // No feature is made of the weights, so that a model's columns are those of its data.
    train(&data, &weighted, "further", &format!("--init {}", at("plain").display()));
    for precision in ["f32", "bf16"] {
        let keys = |ranks: u32| {
            format!("--precision {precision} --determinism ranks --set train.eval_batch=100 --ranks {ranks}")
        };
        let (one, model) = train(&data, &weighted, &format!("{precision}-1"), &keys(1));
        assert_ne!(one["final_loss"], without.0["final_loss"]);
        for ranks in [2, 3] {
            let (found, same) = train(&data, &weighted, &format!("{precision}-{ranks}"), &keys(ranks));
            assert!(same == model, "{precision}, {ranks} ranks");
            for key in ["final_loss", "auc", "logloss", "accuracy", "calibration", "normalised_entropy"] {
                assert_eq!(found[key], one[key], "{precision}, {ranks} ranks: {key}");
            }
        }
    }
    // Scores of several ranks, by groups too, are those of one.
    let eval = |ranks: u32| {
        let run = at("f32-1");
        let line = format!("eval --checkpoint {} --data {data} --gauc user --by item --ranks {ranks}", run.display());
        json(&format!("{line} --threads 1 --json"))
    };
    let found = eval(1);
    assert_eq!(found, eval(2));
    assert_eq!((&found["samples"], &found["weight"]), (&600.into(), &(600.0 * 2.5).into()));
    let of_values: f64 =
        found["by_value"]["values"].as_array().unwrap().iter().map(|v| v["weight"].as_f64().unwrap()).sum();
    let of_buckets: f64 =
        found["calibration_buckets"].as_array().unwrap().iter().map(|b| b["weight"].as_f64().unwrap()).sum();
    assert!((of_values - 1500.0).abs() < 1e-6 && (of_buckets - 1500.0).abs() < 1e-6, "{found}");
    let told = String::from_utf8(succeed(&format!("eval --checkpoint {} --data {data}", at("f32-1").display())).stdout);
    assert!(told.unwrap().contains("weight       1500.000000"));
}

#[test]
fn a_sample_of_weight_2_counts_as_two_and_one_of_weight_0_not_at_all() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    let schema = schema(folder.path(), SCHEMA, "w.toml");
    // 64 rows either way, so that the mean is over the same number of rows.
    let weight = |n: u32| [0, 1, 2, 1][(n % 4) as usize];
    let weighted = log(&at("weighted.csv"), (0..64).map(|n| (n, weight(n).to_string())));
    let repeated = log(&at("repeated.csv"), (0..64).flat_map(|n| (0..weight(n)).map(move |_| (n, "1".to_owned()))));
    let train = |data: &str, out: &str, more: &str| {
        let line =
            format!("train --data {data} --schema {schema} {MODEL} --epochs 20 --test-fraction 0 --no-shuffle {more}");
        json(&format!("{line} --out {} --json", at(out).display()))["final_loss"].as_f64().unwrap()
    };
    for (name, more) in [
        ("bce", ""),
        ("wbce", "--set model.loss=wbce --set model.loss_weights=[0.5,2.0]"),
        ("mse", "--set model.loss=mse"),
    ] {
        let more = format!("--batch 64 {more}");
        let losses =
            [("a", &weighted), ("b", &repeated)].map(|(run, data)| train(data, &format!("{name}-{run}"), &more));
        assert!((losses[0] - losses[1]).abs() < 1e-4 * losses[1], "{name}: {losses:?}");
        let scores = [("a", &weighted), ("a", &repeated)].map(|(run, data)| {
            let run = at(&format!("{name}-{run}"));
            json(&format!("eval --checkpoint {} --data {data} --threads 1 --gauc user --json", run.display()))
        });
        assert_eq!((&scores[0]["weight"], &scores[1]["weight"]), (&64.0.into(), &64.0.into()));
        for key in ["auc", "pr_auc", "logloss", "normalised_entropy", "accuracy", "calibration", "label_rate", "gauc"] {
            let [a, b] = [0, 1].map(|of| scores[of][key].as_f64().unwrap());
            assert!((a - b).abs() < 1e-9, "{name}, {key}: {a} {b}");
        }
    }
}

#[test]
fn what_samples_weigh_does_not_look_like_a_loss_that_has_exploded() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    let (weighted, plain) = (schema(folder.path(), SCHEMA, "w.toml"), schema_without(folder.path()));
    // Behind 10 light minibatches, 12 heavy ones are more than those that end a run, and 6 those that it does not save.
    let heavy = |name: &str, minibatches: u32| {
        let weight = |n: u32| if n < 160 { "1" } else { "1000" };
        log(&at(name), (0..160 + 16 * minibatches).map(|n| (n, weight(n).to_owned())))
    };
    let (many, few) = (heavy("many.csv", 12), heavy("few.csv", 6));
    // Clicks that weigh more than other samples do, and come behind them.
    let clicks = at("clicks.csv").display().to_string();
    let rows: String = (0..352).map(|n| format!("{}{},1\n", u32::from(n >= 160), &row(n)[1..])).collect();
    fs::write(&clicks, format!("click,price,user,item,w\n{rows}")).unwrap();
    let wbce = format!("--schema {plain} --set model.loss=wbce --set model.loss_weights=[1,10000]");
    for (name, data, keys, steps) in [
        ("many", &many, format!("--schema {weighted}"), 22),
        ("two", &many, format!("--schema {weighted} --ranks 2"), 22),
        ("few", &few, format!("--schema {weighted} --checkpoint-every 4"), 16),
        ("clicks", &clicks, wbce, 22),
    ] {
        let run = at(name).display().to_string();
        // Adagrad's steps are as long whatever the weights are.
        let line = format!(
            "train --data {data} {keys} --set model.bottom=[0,8,4] --set model.top=[8,1] --set model.dim=4 --lr 0.01 --threads 1 \
             --optimizer adagrad --optimizer-rows adagrad --eval-every 0 --batch 16 --no-shuffle --test-fraction 0 --out {run}"
        );
        let found = json(&format!("{line} --json"));
        let is_of_weights = found["final_loss"].as_f64().unwrap() > 200.0;
        assert!(is_of_weights && found["step"] == steps, "{name}: {found}");
        // All of it is saved: there is nothing left to do.
        let found = json(&format!("train --resume {run} --json"));
        assert_eq!((&found["outcome"], &found["steps"]), (&"already-finished".into(), &0.into()), "{name}: {found}");
    }
}

#[test]
fn a_loss_that_has_exploded_ends_a_run_whatever_its_samples_weigh() {
    let folder = tempfile::tempdir().unwrap();
    let schema = schema(folder.path(), SCHEMA, "w.toml");
    // By light ones the mean loss is small all the time.
    for weight in ["1000", "0.0000001"] {
        let data = log(&folder.path().join("log.csv"), (0..352).map(|n| (n, weight.to_owned())));
        for ranks in [1, 2] {
            // Adagrad's steps are bounded, so that no number is lost.
            let message = fail(&format!(
                "train --data {data} --schema {schema} --set model.bottom=[0,8,4] --set model.top=[8,1] --set model.dim=4 --lr 100 \
                 --threads 1 --optimizer adagrad --optimizer-rows adagrad --eval-every 0 --batch 16 --no-shuffle \
                 --test-fraction 0 --ranks {ranks}"
            ));
            let is_told = message.contains(" by weight (learning rate 100): training diverged");
            assert!(is_told, "{weight}, {ranks} ranks: {message}");
        }
    }
}

#[test]
fn blocks_keep_weights_through_preprocessing_and_conversion() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name).display().to_string();
    let schema = schema(folder.path(), SCHEMA, "w.toml");
    let data = log(Path::new(&at("log.csv")), (0..400).map(|n| (n, format!("{}.5", n % 5))));
    let preprocess = format!("preprocess csv --in {data} --schema {schema} --out {}", at("blocks"));
    succeed(&preprocess);
    succeed(&format!("data verify {}", at("blocks")));
    succeed(&format!("convert {} {}", at("blocks"), at("again")));
    let message = fail(&format!("convert {} {} --format torchrec", at("blocks"), at("arrays")));
    assert!(message.contains("torchrec has no place for weights of samples, which column w has"), "{message}");
    let train = format!("train --data {} {MODEL} --batch 48 --epochs 2 --test-fraction 0.25", at("blocks"));
    let found = json(&format!("{train} --out {} --json", at("run")));
    assert!(found["final_loss"].as_f64().unwrap() > 0.0);
    let eval = |data: &str| json(&format!("eval --checkpoint {} --data {} --threads 1 --json", at("run"), at(data)));
    let scores = eval("blocks");
    assert_eq!((&scores["samples"], &scores["weight"]), (&400.into(), &1000.0.into()), "{scores}");
    assert_eq!(eval("again"), scores);
    if cfg!(feature = "parquet") {
        succeed(&format!("convert {} {} --format parquet", at("blocks"), at("parquet")));
        assert_eq!(eval("parquet"), scores);
    }
    // The probabilities need none.
    let predict =
        |data: &str| succeed(&format!("predict --checkpoint {} --data {} --threads 1", at("run"), at(data))).stdout;
    assert_eq!(predict("blocks"), predict("again"));
    // A run that goes on keeps what its samples count.
    let plain = schema_without(folder.path());
    succeed(&format!("preprocess csv --in {data} --schema {plain} --out {}", at("plain")));
    let message = fail(&format!("train --resume {} --data {} --epochs 4", at("run"), at("plain")));
    let other = "samples counted by column w where this model was trained, and these data have them count all the same";
    assert!(message.contains(other), "{message}");
    // Scores are those of the data that are named, and whether these count otherwise is told.
    let told = |data: &str| {
        let output = succeed(&format!("eval --checkpoint {} --data {} --threads 1", at("run"), at(data)));
        String::from_utf8(output.stderr).unwrap()
    };
    assert!(told("plain").contains(&format!("warning: {other}, and so do the scores")), "{}", told("plain"));
    assert!(!told("blocks").contains("samples counted"), "{}", told("blocks"));
    assert!(eval("plain").get("weight").is_none());
}

#[test]
fn a_run_on_text_goes_on_by_the_weight_that_it_began_with() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    let data = log(&at("log.csv"), (0..200).map(|n| (n, format!("{}.5", n % 5))));
    let [weighted, plain] = [schema(folder.path(), SCHEMA, "w.toml"), schema_without(folder.path())];
    let told = |had: &str, has: &str| {
        format!("samples counted {had} where this model was trained, and these data have them count {has}: name data")
    };
    let (by_column, alike) = ("by column w", "all the same");
    for (own, other, told) in [(&weighted, &plain, told(by_column, alike)), (&plain, &weighted, told(alike, by_column))]
    {
        let run = at("run").display().to_string();
        let train = format!("train --data {data} --schema {own} {MODEL} --batch 20 --epochs 1 --test-fraction 0");
        succeed(&format!("{train} --out {run} --force"));
        let resume = format!("train --resume {run} --epochs 2");
        let message = fail(&format!("{resume} --schema {other}"));
        assert!(message.contains(&told) && message.contains("--schema"), "{message}");
        succeed(&format!("{resume} --schema {own}"));
    }
}

#[test]
fn what_columns_are_worth_is_told_of_weighed_samples_by_the_columns_of_the_data() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name).display().to_string();
    let schema = schema(folder.path(), SCHEMA, "w.toml");
    let data = log(Path::new(&at("log.csv")), (0..400).map(|n| (n, format!("{}.5", n % 5))));
    let quotients = "--set model.qr_collisions=4 --set model.qr_threshold=10";
    for (name, keys) in [("wide", "--set model.wide=true"), ("quotients", quotients)] {
        let train = format!("train --data {data} --schema {schema} {MODEL} {keys} --batch 40 --epochs 1");
        succeed(&format!("{train} --test-fraction 0.25 --out {}", at(name)));
        let found = json(&format!("eval --checkpoint {} --threads 1 --importance --json", at(name)));
        assert!(found["weight"].as_f64().unwrap() > 0.0, "{found}");
        let worth = found["importance"].as_array().unwrap();
        let mut columns: Vec<_> = worth.iter().map(|column| column["column"].as_str().unwrap()).collect();
        columns.sort_unstable();
        assert_eq!(columns, ["item", "price", "user"], "{name}");
        assert!(worth.iter().all(|column| column["logloss"].as_f64().unwrap().is_finite()), "{found}");
    }
}

fn schema_without(folder: &Path) -> String {
    schema(folder, &SCHEMA.replace("weight = 'w'\n", ""), "plain.toml")
}

#[test]
fn what_is_no_weight_is_told_and_predictions_need_none() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    let schema = schema(folder.path(), SCHEMA, "w.toml");
    let wrong = log(&at("wrong.csv"), (0..100).map(|n| (n, if n == 7 { "-1".to_owned() } else { "2".to_owned() })));
    let train = |data: &str| format!("train --data {data} --schema {schema} {MODEL} --batch 20 --epochs 2");
    let message = fail(&train(&wrong));
    let told = "line 9: column w: a weight, which is 0 or a number from 10^-9 to 10^9, is expected, found \"-1\"";
    assert!(message.contains(told), "{message}");
    // Which samples are hot is told of those that training reads.
    let inspect = format!("inspect --hot {wrong} --schema {schema} --set model.bottom=[0,8,4] --set model.dim=4");
    let message = fail(&format!("{inspect} --inputs --out {}", at("hot").display()));
    assert!(message.contains(told), "{message}");
    let run = at("run");
    let output = succeed(&format!("{} --on-bad-row skip --out {}", train(&wrong), run.display()));
    assert!(String::from_utf8_lossy(&output.stderr).contains("left out 1 malformed row"), "{output:?}");
    // Test samples of which none counts.
    let nothing = log(&at("nothing.csv"), (0..100).map(|n| (n, u32::from(n < 75).to_string())));
    let message = fail(&format!("{} --test-fraction 0.25", train(&nothing)));
    assert!(message.contains("weight: all 25 samples that the model is to be judged by have weight 0"), "{message}");
    // Training samples of which none counts.
    let nothing = log(&at("untrained.csv"), (0..100).map(|n| (n, u32::from(n >= 75).to_string())));
    let told = String::from_utf8(succeed(&format!("{} --test-fraction 0.25", train(&nothing))).stderr).unwrap();
    assert!(
        told.contains("warning: the loss of the first step is 0: all its samples have weight 0 by column w"),
        "{told}"
    );
    assert!(!told.contains("normalised entropy is"), "{told}");
    // Samples that count, with labels that the loss does not count.
    let heavy = log(&at("heavy.csv"), (0..100).map(|n| (n, "2".to_owned())));
    let labels = "--set model.loss=wbce --set model.loss_weights=[0,0]";
    let told = String::from_utf8(succeed(&format!("{} {labels}", train(&heavy))).stderr).unwrap();
    let by_labels =
        "the loss of the first step is 0: all its samples have labels of weight 0 by model.loss_weights = [0, 0]";
    assert!(told.contains(by_labels) && !told.contains("by column w"), "{told}");
    // Probabilities are the same without the label and the weight, as text and as objects.
    let (bare, objects) = (at("bare.csv"), at("rows.json"));
    let rows: Vec<Vec<String>> = (0..40).map(|n| row(n).split(',').map(str::to_owned).collect()).collect();
    let text: String = rows.iter().map(|row| row[1..].join(",") + "\n").collect();
    fs::write(&bare, format!("price,user,item\n{text}")).unwrap();
    let object =
        |row: &Vec<String>| format!("{{\"price\": {}, \"user\": \"{}\", \"item\": \"{}\"}}\n", row[1], row[2], row[3]);
    fs::write(&objects, rows.iter().map(object).collect::<String>()).unwrap();
    let whole = log(&at("whole.csv"), (0..40).map(|n| (n, "3".to_owned())));
    let predict = format!("predict --checkpoint {} --threads 1 --data", run.display());
    let expected = succeed(&format!("{predict} {whole}")).stdout;
    assert_eq!(succeed(&format!("{predict} {}", bare.display())).stdout, expected);
    let stdin = fs::File::open(&objects).unwrap();
    let line = format!("{predict} - --format json");
    let output = super::octorec().args(line.split_whitespace()).stdin(stdin).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let numbers = |text: &[u8], from: usize, behind: usize| -> Vec<f64> {
        let text = String::from_utf8_lossy(text).into_owned();
        text.lines().map(|line| line[from..line.len() - behind].parse().unwrap()).collect()
    };
    assert_eq!(numbers(&output.stdout, "{\"probability\":".len(), 1), numbers(&expected, 0, 0));
    let message = fail(&format!("eval --checkpoint {} --data {}", run.display(), bare.display()));
    assert!(message.contains("has no column"), "{message}");
    // A weight may be all the numbers that there are.
    let alone = self::schema(
        folder.path(),
        "label = 'click'\nweight = 'w'\n[[categorical]]\ncolumn = 'user'\n[[categorical]]\ncolumn = 'item'\n",
        "alone.toml",
    );
    let line = format!("train --data {whole} --schema {alone} --set model.bottom=[] --set model.top=[8,1]");
    let line = format!("{line} --set model.dim=4 --batch 10 --epochs 1 --eval-every 0 --threads 1");
    for more in ["", "--set model.wide=true"] {
        assert!(json(&format!("{line} {more} --json"))["final_loss"].as_f64().unwrap().is_finite());
    }
}

#[test]
fn labels_and_weights_that_count_as_blank_are_told_with_what_says_so() {
    let folder = tempfile::tempdir().unwrap();
    let data = log(&folder.path().join("log.csv"), (0..100).map(|n| (n, "2".to_owned())));
    for (missing, label, told) in [
        ("2", "click", "found \"2\", which counts as blank (the schema's `missing` has it)"),
        ("0", "click == 1", "found \"0\", which counts as blank (the schema's `missing` has it)"),
        ("0", "click", "label = \"click\": \"0\" counts as blank (missing)"),
    ] {
        let text = SCHEMA.replace("label = 'click'", &format!("missing = ['{missing}']\nlabel = '{label}'"));
        let schema = schema(folder.path(), &text, "missing.toml");
        let message = fail(&format!("train --data {data} --schema {schema} {MODEL} --batch 20 --epochs 1"));
        assert!(message.contains(told), "{message}");
    }
}

#[test]
fn inspect_proposes_a_weight_by_its_one_name_alone() {
    let folder = tempfile::tempdir().unwrap();
    for (name, is_weight) in [("sample_weight", true), ("weight", false)] {
        let (data, schema) = (folder.path().join(format!("{name}.csv")), folder.path().join(format!("{name}.toml")));
        let rows: String = (0..200u32).map(|n| format!("{},{}.{}\n", row(n), n * 7919 % 23, n % 5)).collect();
        fs::write(&data, format!("click,price,user,item,{name}\n{rows}")).unwrap();
        succeed(&format!("inspect {} --label click --write-schema {}", data.display(), schema.display()));
        let text = fs::read_to_string(&schema).unwrap();
        let table: toml::Table = text.parse().unwrap();
        assert_eq!(table.get("weight").and_then(toml::Value::as_str), is_weight.then_some(name), "{text}");
        let features = text.matches(&format!("column = \"{name}\"")).count();
        assert_eq!(features, usize::from(!is_weight), "{text}");
        let line =
            format!("train --data {} --schema {} {MODEL} --batch 20 --epochs 1", data.display(), schema.display());
        succeed(&line);
    }
}
