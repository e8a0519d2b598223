//! What a run begins with: weights of the distributions that `model/init.rs` names, samples in an order of the seed.

use std::fs;
use std::path::Path;

use safetensors::tensor::TensorView;
use safetensors::{SafeTensors, serialize};

use super::{SGD, fail, json, succeed, tiny_training, tsv};

/// Numbers of a checkpoint's tensor.
fn numbers(checkpoint: &[u8], name: &str) -> Vec<f64> {
    let file = SafeTensors::deserialize(checkpoint).unwrap();
    let bytes = file.tensor(name).unwrap_or_else(|error| panic!("{name}: {error}")).data().to_vec();
    bytes.chunks_exact(4).map(|word| f64::from(f32::from_le_bytes(word.try_into().unwrap()))).collect()
}

/// A run whose only step moves nothing, so that its checkpoint holds what it began with.
fn begun(folder: &Path, flags: &str) -> Vec<u8> {
    let out = folder.join("begun");
    succeed(&format!("{} {flags} --steps 1 --lr 1e-30 --out {} --force", tiny_training(), out.display()));
    fs::read(out.join("checkpoint.safetensors")).unwrap()
}

#[test]
fn weights_begin_with_the_deviations_of_the_reference() {
    let folder = tempfile::tempdir().unwrap();
    // Layers whose inputs differ much from their outputs, so that neither stands for the other.
    let layers = "--set model.bottom=[13,800,8] --set model.top=[700,1]";
    let checkpoint = begun(folder.path(), &format!("{layers} --seed 3"));
    let interacted = numbers(&checkpoint, "top_l.0.weight").len() as f64 / 700.0;
    for (layer, inputs, outputs) in
        [("bot_l.0", 13.0, 800.0), ("bot_l.2", 800.0, 8.0), ("top_l.0", interacted, 700.0), ("top_l.2", 700.0, 1.0)]
    {
        let spreads = [("weight", 2.0 / (inputs + outputs)), ("bias", 1.0 / outputs)];
        for (kind, variance) in spreads.map(|(kind, variance): (_, f64)| (kind, variance)) {
            let found = numbers(&checkpoint, &format!("{layer}.{kind}"));
            let count = found.len() as f64;
            if count < 500.0 {
                continue;
            }
            let mean = found.iter().sum::<f64>() / count;
            let second = found.iter().map(|x| x * x).sum::<f64>() / count;
            let fourth = found.iter().map(|x| x.powi(4)).sum::<f64>() / count;
            // Five standard errors of each moment of a normal distribution.
            let bound = 5.0 / count.sqrt();
            assert!(mean.abs() < bound * variance.sqrt(), "{layer}.{kind}: mean {mean}");
            assert!((second / variance - 1.0).abs() < bound * 2f64.sqrt(), "{layer}.{kind}: variance {second}");
            assert!((fourth / variance.powi(2) - 3.0).abs() < bound * 96f64.sqrt(), "{layer}.{kind}: fourth {fourth}");
        }
    }
    for table in ["emb_l.0", "emb_l.2"] {
        let found = numbers(&checkpoint, &format!("{table}.weight"));
        let (count, bound) = (found.len() as f64, (8.0 / found.len() as f64).sqrt());
        let largest = found.iter().fold(0.0f64, |most, x| most.max(x.abs()));
        let second = found.iter().map(|x| x * x).sum::<f64>() / count / bound.powi(2);
        assert!((0.99..=1.000_001).contains(&(largest / bound)), "{table}: {largest} of {bound}");
        assert!((second - 1.0 / 3.0).abs() < 5.0 * (4.0f64 / 45.0 / count).sqrt(), "{table}: variance {second}");
    }
    assert!(begun(folder.path(), &format!("{layers} --seed 3")) == checkpoint, "the same seed, the same weights");
    let other = begun(folder.path(), &format!("{layers} --seed 4"));
    for name in ["bot_l.0.weight", "bot_l.0.bias", "top_l.2.weight", "emb_l.0.weight"] {
        assert_ne!(numbers(&other, name), numbers(&checkpoint, name), "{name}: another seed, other weights");
    }
}

#[test]
fn a_dcnv2_begins_with_the_deviations_of_torchrec() {
    let folder = tempfile::tempdir().unwrap();
    let layers = "--set model.bottom=[13,800,8] --set model.top=[700,1] --set model.interaction=dcn \
                  --set model.cross_rank=30 --set model.cross_layers=2";
    let checkpoint = begun(folder.path(), &format!("{layers} --seed 3"));
    let moment = |numbers: &[f64], power| numbers.iter().map(|x| x.powi(power)).sum::<f64>() / numbers.len() as f64;
    // Uniform up to the root of one over the inputs, weights and biases alike.
    let width = numbers(&checkpoint, "inter_arch.crossnet.bias.0").len() as f64;
    for (layer, inputs) in [
        ("dense_arch.model._mlp.0._linear", 13.0),
        ("dense_arch.model._mlp.1._linear", 800.0),
        ("over_arch.model.0._mlp.0._linear", width),
        ("over_arch.model.1", 700.0f64),
    ] {
        for kind in ["weight", "bias"] {
            let found: Vec<_> =
                numbers(&checkpoint, &format!("{layer}.{kind}")).iter().map(|x| x * inputs.sqrt()).collect();
            assert!(found.iter().all(|x| x.abs() <= 1.000_001), "{layer}.{kind}");
            if found.len() >= 500 {
                let bound = 5.0 / (found.len() as f64).sqrt();
                assert!(moment(&found, 1).abs() < bound * (1.0f64 / 3.0).sqrt(), "{layer}.{kind}: mean");
                assert!((moment(&found, 2) - 1.0 / 3.0).abs() < bound * (4.0f64 / 45.0).sqrt(), "{layer}.{kind}");
            }
        }
    }
    // Xavier's normal distribution, and no bias.
    for matrix in ["V_kernels.0", "W_kernels.0", "V_kernels.1", "W_kernels.1"] {
        let found = numbers(&checkpoint, &format!("inter_arch.crossnet.{matrix}"));
        let (variance, bound) = (2.0 / (width + 30.0), 5.0 / (found.len() as f64).sqrt());
        assert!(moment(&found, 1).abs() < bound * variance.sqrt(), "{matrix}: mean");
        assert!((moment(&found, 2) / variance - 1.0).abs() < bound * 2f64.sqrt(), "{matrix}: variance");
        assert!((moment(&found, 4) / variance.powi(2) - 3.0).abs() < bound * 96f64.sqrt(), "{matrix}: fourth");
    }
    assert!(numbers(&checkpoint, "inter_arch.crossnet.bias.1").iter().all(|x| x.abs() < 1e-20));
    let table = numbers(&checkpoint, "sparse_arch.embedding_bag_collection.embedding_bags.t_cat_2.weight");
    let largest = table.iter().fold(0.0f64, |most, x| most.max(x.abs()));
    assert!((largest / (8.0 / table.len() as f64).sqrt() - 1.0).abs() < 0.01, "{largest}");
    let same = numbers(&checkpoint, "inter_arch.crossnet.V_kernels.0");
    assert_ne!(same, numbers(&checkpoint, "inter_arch.crossnet.V_kernels.1"), "each layer draws its own");
}

/// No training sample has a value that is new to the test samples: their row would stay as it was drawn.
#[test]
fn the_row_of_unseen_values_begins_as_zero_whoever_holds_it() {
    let folder = tempfile::tempdir().unwrap();
    let file = tsv(&folder.path().join("clicks.tsv"), 400);
    let data = format!("--data {} --set data.test_fraction=0.25 --set data.vocab", file.display());
    let tables = |checkpoint: &[u8]| -> Vec<_> {
        (0..26).map(|table| numbers(checkpoint, &format!("emb_l.{table}.weight"))).collect()
    };
    let one = tables(&begun(folder.path(), &format!("{data}=train --ranks 1")));
    for (table, weights) in one.iter().enumerate() {
        let mut rows: Vec<_> = weights.chunks(8).map(|row| row.iter().any(|x| *x != 0.0)).collect();
        assert!(rows.len() > 1 && rows.pop() == Some(false), "table {table}: the last row");
        assert!(rows.iter().all(|is_drawn| *is_drawn), "table {table}: the others");
    }
    let model = format!("{SGD} --set model.bottom=[13,32,8] --set model.top=[16,1] --set model.dim=8 --batch 64");
    for scheme in ["table", "row", "column", "replicated"] {
        let plan = folder.path().join(scheme);
        succeed(&format!("plan {model} {data}=train --ranks 2 --scheme {scheme} --out {}", plan.display()));
        let flags = format!("{data}=train --ranks 2 --threads 1 --plan {}", plan.display());
        assert!(tables(&begun(folder.path(), &flags)) == one, "{scheme}");
    }
    // Rows of values that training samples have are all drawn.
    let all = tables(&begun(folder.path(), &format!("{data}=all --ranks 1")));
    assert!(all.iter().flat_map(|weights| weights.chunks(8)).all(|row| row.iter().any(|x| *x != 0.0)));
}

#[test]
fn the_seed_orders_the_samples() {
    let folder = tempfile::tempdir().unwrap();
    let first = folder.path().join("first.safetensors");
    fs::write(&first, begun(folder.path(), "--seed 3")).unwrap();
    let losses = |flags: &str| {
        let file = folder.path().join("losses");
        let line = format!("{} --steps 12 --init {} {flags}", tiny_training(), first.display());
        succeed(&format!("{line} --trace-loss {}", file.display()));
        fs::read_to_string(file).unwrap()
    };
    // The same initial weights, so that only the order of samples can make a difference.
    assert_ne!(losses("--seed 1"), losses("--seed 2"), "another seed, another order");
    assert_eq!(losses("--seed 1"), losses("--seed 1"));
    assert_eq!(losses("--seed 1 --no-shuffle"), losses("--seed 2 --no-shuffle"), "no order to draw");
    assert_ne!(losses("--seed 1"), losses("--seed 1 --no-shuffle"));
}

#[test]
fn what_is_taken_of_other_weights_is_told() {
    let folder = tempfile::tempdir().unwrap();
    let first = folder.path().join("first.safetensors");
    fs::write(&first, begun(folder.path(), "--optimizer adam --optimizer-rows adagrad")).unwrap();
    let told = |flags: &str| {
        let output = succeed(&format!("{} --steps 1 --init {} {flags}", tiny_training(), first.display()));
        let told = String::from_utf8(output.stderr).unwrap();
        let begin = format!("--init {}: ", first.display());
        told.lines().find_map(|line| line.strip_prefix(&begin)).unwrap_or_else(|| panic!("{told}")).to_owned()
    };
    // 26 tables; two layers of the bottom MLP and two of the top one, each with biases.
    let weights = "34 tensors of weights";
    let same = told("--optimizer adam --optimizer-rows adagrad");
    assert!(same.starts_with(&format!("{weights}, ")) && same.contains(" of the optimizer of layers, "), "{same}");
    assert!(same.contains(" of the optimizer of rows") && !same.contains("left aside"), "{same}");
    let others = told("--optimizer sgd --optimizer-rows momentum");
    assert!(
        others.contains(&format!("{weights}, nothing of the optimizer of rows, which begins anew; left aside: ")),
        "{others}"
    );
    assert!(others.contains("(state.") && others.ends_with(", ...)"), "{others}");
    // A wide part's optimizer is another one: what it keeps is not what the others lack.
    let wide = |layers: &str, rows: &str| format!("--set model.wide=true --optimizer {layers} --optimizer-rows {rows}");
    fs::write(&first, begun(folder.path(), &wide("adagrad", "adagrad"))).unwrap();
    for (flags, anew) in [
        (wide("adagrad", "adagrad"), [false, false]),
        (wide("adam", "adagrad"), [true, false]),
        (wide("adagrad", "adam"), [false, true]),
        (wide("adagrad", "adagrad") + " --set train.optimizer_wide=adam", [true, true]),
    ] {
        let told = told(&flags);
        let begins = ["layers", "rows"].map(|of| told.contains(&format!("the optimizer of {of}, which begins anew")));
        assert_eq!(begins, anew, "{flags}: {told}");
    }
}

/// A day of a log whose users are these, ten rows each, and its schema.
fn day(folder: &Path, name: &str, users: std::ops::Range<u32>) -> String {
    let (data, schema) = (folder.join(name), folder.join("day.toml"));
    let row = |n: u32| format!("{},{}.5,u{},g{}\n", n % 3 % 2, n % 11, users.start + n / 10, n % 7);
    let rows: String = (0..10 * users.len() as u32).map(row).collect();
    fs::write(&data, format!("click,price,user,genre\n{rows}")).unwrap();
    let dense = "[[dense]]\ncolumn = 'price'\nfloat = true\ntransform = 'standardise'\n";
    let categorical = "[[categorical]]\ncolumn = 'user'\n[[categorical]]\ncolumn = 'genre'\n";
    fs::write(&schema, format!("label = 'click'\n{dense}{categorical}")).unwrap();
    format!("--data {} --schema {} --test-fraction 0", data.display(), schema.display())
}

/// A model of such days that trains in a fraction of a second.
const DAILY: &str = "--set model.bottom=[0,8,8] --set model.top=[8,1] --set model.dim=8 --batch 50 --threads 1 \
                     --optimizer-rows adagrad --eval-every 0";

/// The rows of a checkpoint's table, or of what the optimizer keeps of it.
fn rows_of(run: &Path, tensor: &str) -> Vec<Vec<f64>> {
    let checkpoint = fs::read(run.join("checkpoint.safetensors")).unwrap();
    numbers(&checkpoint, tensor).chunks(8).map(<[f64]>::to_vec).collect()
}

#[test]
fn new_values_get_new_rows_and_known_ones_keep_theirs() {
    let folder = tempfile::tempdir().unwrap();
    let to = |name: &str| folder.path().join(name);
    // The second day lacks the first two users and has three new ones.
    let (first, second) = (day(folder.path(), "day0.csv", 0..12), day(folder.path(), "day1.csv", 2..15));
    let both = day(folder.path(), "both.csv", 0..15);
    let name = "emb_l.0.weight";
    for vocab in ["all", "train"] {
        let unseen = usize::from(vocab == "train");
        let [known, next, all] =
            [&first, &second, &both].map(|data| format!("train {data} {DAILY} --vocab {vocab} --seed 5"));
        succeed(&format!("{known} --steps 9 --out {} --force", to("run").display()));
        // What a new model of as many values begins with.
        succeed(&format!("{all} --steps 1 --lr 1e-30 --out {} --force", to("new").display()));
        let (had, drawn) = (rows_of(&to("run"), name), rows_of(&to("new"), name));
        assert_eq!((had.len(), drawn.len()), (12 + unseen, 15 + unseen));
        let init = format!("{next} --steps 1 --lr 1e-30 --init {}", to("run").display());
        let mut checkpoints = Vec::new();
        for scheme in ["", "table", "row", "column", "replicated"] {
            let ranks = if scheme.is_empty() {
                "--ranks 1".to_owned()
            } else {
                // Of data with as many values.
                let plan = to(&format!("{vocab}-{scheme}")).display().to_string();
                let model = "--set model.bottom=[0,8,8] --set model.top=[8,1] --set model.dim=8 --batch 50";
                let rows = format!("--set train.optimizer_rows=adagrad --set data.vocab={vocab}");
                succeed(&format!("plan {both} {model} {rows} --ranks 2 --scheme {scheme} --out {plan}"));
                format!("--ranks 2 --plan {plan}")
            };
            let output = succeed(&format!("{init} {ranks} --out {} --force", to("next").display()));
            let told = String::from_utf8(output.stderr).unwrap();
            for words in [
                "19 values of its vocabulary kept (2 of them not in these data), and 3 new values (user 3) added",
                "column price: mean",
                "kept from --init",
            ] {
                assert!(told.contains(words), "{words}: {told}");
            }
            let (rows, kept) = (rows_of(&to("next"), name), rows_of(&to("next"), &format!("state.{name}.sum")));
            assert_eq!((rows.len(), kept.len()), (15 + unseen, 15 + unseen), "{scheme}");
            assert!(rows[..12] == had[..12], "{scheme}: known values keep their rows");
            assert!(rows[12..15] == drawn[12..15], "{scheme}: new ones begin as of a new model");
            assert!(rows[12..15].iter().flatten().all(|x| *x != 0.0), "{scheme}");
            assert!(rows[15..] == had[12..], "{scheme}: the row of unseen values is the last one");
            // Of users whom the second day does not have, nothing has moved.
            let before = rows_of(&to("run"), &format!("state.{name}.sum"));
            assert!(kept[..2] == before[..2] && before[..2].iter().flatten().any(|x| *x > 0.0), "{scheme}");
            checkpoints.push(rows);
        }
        assert!(checkpoints.windows(2).all(|pair| pair[0] == pair[1]), "whoever holds them");
        // The run goes on, and is scored, by all values.
        let run = to("next").display().to_string();
        succeed(&format!("train --resume {run} --steps 3"));
        let scores = json(&format!("eval --checkpoint {run} --data {} --json", to("both.csv").display()));
        assert_eq!((&scores["unknown_values"], &scores["samples"]), (&0.into(), &150.into()));
        day(folder.path(), "day2.csv", 10..20);
        let scores = json(&format!("eval --checkpoint {run} --data {} --json", to("day2.csv").display()));
        let user = serde_json::json!({ "column": "user", "values": 50, "share": 0.5 });
        assert_eq!((&scores["unknown_values"], &scores["unknown_values_by_column"][0]), (&50.into(), &user), "{vocab}");
    }
    // Numbers of rows: their learned weights, and what row-wise Adagrad keeps.
    let learned = "--set model.weighted_pooling=learned --optimizer-rows rowwise-adagrad";
    let model = DAILY.replace("--optimizer-rows adagrad", learned);
    succeed(&format!("train {first} {model} --steps 9 --out {}", to("weighed").display()));
    let init = format!("train {second} {model} --steps 1 --lr 1e-30 --init {}", to("weighed").display());
    succeed(&format!("{init} --out {}", to("heavier").display()));
    let [had, has] = ["weighed", "heavier"].map(|run| fs::read(to(run).join("checkpoint.safetensors")).unwrap());
    let weights = [&had, &has].map(|checkpoint| numbers(checkpoint, "v_W_l.0"));
    assert!(weights[1][..12] == weights[0][..] && weights[0].iter().any(|weight| *weight != 1.0), "{weights:?}");
    assert_eq!(weights[1][12..], [1.0; 3]);
    let kept = [&had, &has].map(|checkpoint| numbers(checkpoint, "state.emb_l.0.weight.momentum"));
    assert!(kept[1].len() == 15 && kept[1][..2] == kept[0][..2] && kept[0][0] > 0.0, "{kept:?}");
}

#[test]
fn tables_that_have_other_rows_than_their_vocabulary_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let to = |name: &str| folder.path().join(name);
    let run = to("run").display().to_string();
    let [first, second] =
        [("day0.csv", 0..12), ("day1.csv", 2..15)].map(|(name, users)| day(folder.path(), name, users));
    let known = |flags: &str| succeed(&format!("train {first} {DAILY} {flags} --steps 2 --out {run} --force"));
    let begin = |flags: &str| format!("train {second} {DAILY} {flags} --steps 1 --lr 1e-30 --init {run}");
    // Where values share rows, one of them has none of its own; as PyTorch writes a file again, it tells of no limit.
    fs::create_dir(to("bare")).unwrap();
    let bare = to("bare/model.safetensors").display().to_string();
    for (vocab, cap, needs) in [("all", 8, 15), ("train", 12, 16)] {
        known(&format!("--vocab {vocab} --rows-cap {cap}"));
        let whole = fs::read(to("run/checkpoint.safetensors")).unwrap();
        let tensors = SafeTensors::deserialize(&whole).unwrap().tensors();
        fs::write(&bare, serialize::<_, TensorView<'_>, _>(tensors, None).unwrap()).unwrap();
        fs::copy(to("run/vocabulary.safetensors"), to("bare/vocabulary.safetensors")).unwrap();
        let begin = format!("train {second} {DAILY} --vocab {vocab} --steps 1 --init {bare}");
        let message = fail(&begin);
        let told = format!("emb_l.0.weight has shape [{cap}, 8] but the model needs [{needs}, 8]");
        assert!(message.contains(&told), "{message}");
        // With as few rows it goes on.
        succeed(&format!("{begin} --rows-cap {cap}"));
    }
    // All 15 users have a row, but beside that of unseen values.
    for (vocab, shares) in [("all", false), ("train", true)] {
        let flags = format!("--vocab {vocab} --rows-cap 15");
        known(&flags);
        let told = String::from_utf8(succeed(&begin(&flags)).stderr).unwrap();
        assert!(told.contains("3 new values (user 3) added"), "{told}");
        assert_eq!(told.contains("beyond data.rows_cap rows, values share rows"), shares, "{told}");
    }
    // Quotients grow, and remainders do not.
    let quotients = "--set model.qr_threshold=9 --set model.qr_collisions=";
    known(&format!("{quotients}4"));
    succeed(&format!("{} --out {}", begin(&format!("{quotients}4")), to("next").display()));
    let [had, has] = ["run", "next"].map(|run| rows_of(&to(run), "emb_l.0.weight_q"));
    assert!(had.len() == 3 && has.len() == 4 && has[..3] == had[..], "{had:?} {has:?}");
    let message = fail(&begin(&format!("{quotients}5")));
    assert!(message.contains("emb_l.0.weight_r has shape [4, 8] but the model needs [5, 8]"), "{message}");
}

#[test]
fn a_list_that_was_blank_on_the_first_day_goes_on() {
    let folder = tempfile::tempdir().unwrap();
    let to = |name: &str| folder.path().join(name).display().to_string();
    let columns = "[[dense]]\ncolumn = 'price'\nfloat = true\n[[categorical]]\ncolumn = 'user'\n";
    let list = "[[categorical]]\ncolumn = 'tags'\nseparator = '|'\n";
    fs::write(to("day.toml"), format!("label = 'click'\n{columns}{list}")).unwrap();
    let day = |name: &str, tags: fn(u32) -> String| {
        let row = |n: u32| format!("{},{}.5,u{},{}\n", n % 3 % 2, n % 11, n / 10, tags(n));
        let rows: String = (0..120).map(row).collect();
        fs::write(to(name), format!("click,price,user,tags\n{rows}")).unwrap();
        format!("--data {} --schema {} --test-fraction 0", to(name), to("day.toml"))
    };
    let first = day("day0.csv", |_| String::new());
    let second = day("day1.csv", |n| format!("t{}|t{}", n % 3, n % 5));
    for (vocab, rows) in [("all", 5), ("train", 6)] {
        let [known, next] = [&first, &second].map(|data| format!("train {data} {DAILY} --vocab {vocab} --seed 5"));
        succeed(&format!("{known} --steps 3 --out {} --force", to("run")));
        // What a new model begins with.
        succeed(&format!("{next} --steps 1 --lr 1e-30 --out {} --force", to("new")));
        let init = format!("{next} --steps 1 --lr 1e-30 --init {}", to("run"));
        let output = succeed(&format!("{init} --out {} --force", to("next")));
        let told = String::from_utf8(output.stderr).unwrap();
        assert!(told.contains("and 5 new values (tags 5) added"), "{told}");
        let [had, drawn, has] = ["run", "new", "next"].map(|run| rows_of(&folder.path().join(run), "emb_l.1.weight"));
        assert_eq!((had.len(), has.len()), (1, rows));
        assert!(has == drawn, "{vocab}: the row that nobody had is not taken");
        let [had, has] = ["run", "next"].map(|run| rows_of(&folder.path().join(run), "emb_l.0.weight"));
        assert!(has == had, "{vocab}: users keep theirs");
    }
}

/// With mixed dimensions the rows of the smallest column say how wide those of others are.
#[test]
fn widths_that_would_be_others_are_refused_whichever_column_has_grown() {
    let folder = tempfile::tempdir().unwrap();
    let run = folder.path().join("run").display().to_string();
    let [first, second] = ["day0.csv", "day1.csv"].map(|name| day(folder.path(), name, 0..12));
    // Genres are 11 instead of 7.
    let row = |n: u32| format!("{},{}.5,u{},g{}\n", n % 3 % 2, n % 11, n / 10, n % 11);
    let rows: String = (0..120).map(row).collect();
    fs::write(folder.path().join("day1.csv"), format!("click,price,user,genre\n{rows}")).unwrap();
    let widths = "--set model.md_temperature=0.5 --set model.md_threshold=4 --steps 2";
    succeed(&format!("train {first} {DAILY} {widths} --out {run}"));
    succeed(&format!("train {first} {DAILY} {widths} --init {run}"));
    let message = fail(&format!("train {second} {DAILY} {widths} --init {run}"));
    let told = "rows of column user would have 8 elements, by how many rows columns have now, and have 6 in the model";
    assert!(message.contains("model.md_temperature") && message.contains(told), "{message}");
}

#[test]
fn columns_of_other_names_are_told_before_values_are_looked_at() {
    let folder = tempfile::tempdir().unwrap();
    let to = |name: &str| folder.path().join(name).display().to_string();
    let data = day(folder.path(), "day0.csv", 0..12);
    let train = format!("train {data} {DAILY} --steps 2");
    succeed(&format!("{train} --out {}", to("run")));
    let resume = format!("train --resume {} --schema {} --steps 4", to("run"), to("day.toml"));
    let schema = fs::read_to_string(to("day.toml")).unwrap();
    let genre = "[[categorical]]\ncolumn = 'genre'\n";
    let more = "[[categorical]]\ncolumn = 'price'\nname = 'bucket'\n";
    let turned = schema.replacen(genre, "", 1).replacen("[[categorical]]", &format!("{genre}[[categorical]]"), 1);
    for (text, told) in [
        (schema.replace(genre, ""), "genre, which they lack (describe it as it was)"),
        (format!("{schema}{more}"), "bucket, which it lacks (leave it out)"),
        (turned, "describe them in the model's, user, genre"),
    ] {
        fs::write(to("day.toml"), text).unwrap();
        for begins in [&format!("{train} --init {}", to("run")), &resume] {
            let message = fail(begins);
            assert!(message.contains(told) && message.contains("run/checkpoint.safetensors"), "{message}");
        }
    }
    // Columns that nobody has described.
    let criteo = tsv(&folder.path().join("raw.tsv"), 50);
    let message = fail(&format!("train --data {} {DAILY} --steps 2 --init {}", criteo.display(), to("run")));
    let told = "user, genre, which they lack (describe it as it was); C1, C2, ";
    assert!(message.contains(told) && message.contains("these are the columns of Criteo's text"), "{message}");
    // As many rows, which are other values' now.
    let users = rows_of(&folder.path().join("run"), "emb_l.0.weight").len();
    let user = "column = 'user'\n";
    fs::write(to("day.toml"), schema.replace(user, &format!("{user}rows = {users}\n"))).unwrap();
    for line in [&format!("{train} --init {}", to("run")), &resume] {
        let message = fail(line);
        let told =
            "values of column user got their rows by a vocabulary where this model was trained, and get them by a hash";
        assert!(message.contains(told), "{message}");
    }
    fs::write(to("day.toml"), schema).unwrap();
    succeed(&format!("{train} --init {}", to("run")));
    succeed(&resume);
    // A folder without a run.
    fs::create_dir(to("empty")).unwrap();
    let message = fail(&format!("{train} --init {}", to("empty")));
    assert!(message.contains("there is no checkpoint"), "{message}");
}

#[test]
fn dense_columns_of_blocks_are_compared_by_name() {
    let folder = tempfile::tempdir().unwrap();
    let to = |name: &str| folder.path().join(name).display().to_string();
    let row = |n: u32| format!("{},{}.5,{}.25,u{}\n", n % 3 % 2, n % 11, n % 7, n % 12);
    fs::write(to("day.csv"), format!("click,price,bid,user\n{}", (0..120).map(row).collect::<String>())).unwrap();
    let blocks = |name: &str, dense: [&str; 2]| {
        let dense = dense.map(|column| format!("[[dense]]\ncolumn = '{column}'\nfloat = true\n")).concat();
        let text = format!("label = 'click'\n{dense}[[categorical]]\ncolumn = 'user'\nrows = 20\n");
        fs::write(to("day.toml"), text).unwrap();
        succeed(&format!("preprocess csv --in {} --schema {} --out {}", to("day.csv"), to("day.toml"), to(name)));
    };
    blocks("blocks", ["price", "bid"]);
    blocks("turned", ["bid", "price"]);
    let train = |data: &str| format!("train --data {} {DAILY} --test-fraction 0 --steps 2", to(data));
    succeed(&format!("{} --out {}", train("blocks"), to("run")));
    let message = fail(&format!("{} --init {}", train("turned"), to("run")));
    assert!(message.contains("describe them in the model's, price, bid"), "{message}");
    let of = |command: &str, data: &str| format!("{command} --checkpoint {} --data {}", to("run"), to(data));
    for command in ["eval", "predict"] {
        let message = fail(&of(command, "turned"));
        assert!(message.contains("dense column price was number 1 where this model was trained"), "{message}");
        succeed(&of(command, "blocks"));
    }
    let found = json(&format!("{} --importance --json", of("eval", "blocks")));
    let found = found["importance"].to_string();
    assert!(found.contains("\"price\"") && found.contains("\"bid\""), "{found}");
    // Through a format that numbers its columns.
    succeed(&format!("convert {} {} --format torchrec", to("blocks"), to("arrays")));
    succeed(&format!("convert {} {}", to("arrays"), to("again")));
    succeed(&format!("{} --init {}", train("again"), to("run")));
    for data in ["arrays", "again"] {
        assert_eq!(succeed(&of("predict", data)).stdout, succeed(&of("predict", "blocks")).stdout, "{data}");
    }
}

#[test]
fn a_hashed_column_of_other_rows_is_named_and_ages_that_log_makes_nothing_of_are_told() {
    let folder = tempfile::tempdir().unwrap();
    let to = |name: &str| folder.path().join(name).display().to_string();
    let schema = |rows: u32| {
        let dense = "[[dense]]\ncolumn = 'at'\ntime = 'age'\ntransform = 'log'\n";
        let text = format!("label = 'click'\n{dense}[[categorical]]\ncolumn = 'user'\nrows = {rows}\n");
        fs::write(to("log.toml"), text).unwrap();
    };
    let log = |name: &str, day: u32| {
        let row = |n: u32| format!("{},{},u{}\n", n % 3 % 2, 1_700_000_000 + day * 86_400 + n * 60, n % 12);
        fs::write(to(name), format!("click,at,user\n{}", (0..120).map(row).collect::<String>())).unwrap();
        format!("train --data {} --schema {} {DAILY} --test-fraction 0 --steps 2", to(name), to("log.toml"))
    };
    let (first, second) = (log("day0.csv", 0), log("day1.csv", 1));
    schema(20);
    succeed(&format!("{first} --out {}", to("run")));
    let told = |line: &str| {
        let output = succeed(&format!("{line} --init {}", to("run")));
        String::from_utf8(output.stderr).unwrap()
    };
    let lost = "warning: column at: more than half of the first training samples are newer";
    assert!(told(&second).contains(lost) && !told(&first).contains(lost), "{}", told(&second));
    schema(40);
    let message = fail(&format!("{first} --init {}", to("run")));
    let rows = "--init: column user has 40 rows in these data, and 20 in the model that the run begins with: describe it as \
                it was (rows = 20 of one that is hashed), or";
    assert!(message.contains(rows), "{message}");
}

#[test]
fn a_model_of_generated_samples_names_no_vocabulary_for_text() {
    let folder = tempfile::tempdir().unwrap();
    let to = |name: &str| folder.path().join(name).display().to_string();
    succeed(&format!("{} --steps 2 --out {}", tiny_training(), to("run")));
    let criteo = tsv(&folder.path().join("raw.tsv"), 50).display().to_string();
    day(folder.path(), "day.csv", 0..12);
    for (data, schema) in [(criteo, ""), (to("day.csv"), " --schema FILE")] {
        for line in [
            format!("eval --checkpoint {} --data {data}", to("run")),
            format!("predict --checkpoint {} --data {data}", to("run")),
            format!("inspect {data} --against {}", to("run")),
        ] {
            let message = fail(&line);
            let remedy = format!("octorec train --data {data}{schema} --out DIR");
            assert!(message.contains("was trained on generated samples") && message.contains(&remedy), "{message}");
            assert!(!message.contains("--vocabulary"), "{message}");
        }
    }
}
