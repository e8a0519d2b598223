//! What `inspect` proposes for logs in the shapes of public data sets trains as well, unedited, as what somebody writes
//! who knows how they came about; and each rule by which it tells columns apart.

use std::fmt::Write;
use std::fs;

use octorec::data::formats::csv::{Clock, TextCategorical, TextDense, TextSchema};
use octorec::data::moment::Unit;
use octorec::data::schema::Transform;
use serde_json::Value;

use super::{fail, json, octorec, succeed};

/// Numbers that are random enough, and the same everywhere.
struct Dice(u64);

impl Dice {
    fn next(&mut self) -> u64 {
        // SplitMix64.
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn below(&mut self, n: u64) -> u64 {
        self.next() % n
    }

    fn share(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1u64 << 53) as f64
    }

    /// Small numbers are frequent: the one in the middle is about the square root of `n`.
    fn skewed(&mut self, n: u64) -> u64 {
        ((n as f64).powf(self.share()) as u64 - 1).min(n - 1)
    }

    fn normal(&mut self) -> f64 {
        (0..12).map(|_| self.share()).sum::<f64>() - 6.0
    }
}

/// What belongs to a value of a column for good: the same for the same arguments.
fn effect(column: u64, value: u64, size: f64) -> f64 {
    size * Dice(column << 32 | value).normal()
}

fn clicked(score: f64, dice: &mut Dice) -> bool {
    dice.share() < 1.0 / (1.0 + (-score).exp())
}

/// How the time of day moves people, hour by hour: no line and no wave.
fn mood(hour: u64) -> f64 {
    effect(99, hour, 0.9)
}

const WEATHER: [&str; 9] = ["sunny", "cloudy", "rainy", "snowy", "foggy", "windy", "drizzle", "stormy", "unknown"];
const DAYTIME: [&str; 7] = ["sunrise", "morning", "noon", "afternoon", "evening", "sunset", "night"];
const WEEKDAY: [&str; 7] = ["monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday"];
const GENRES: [&str; 12] = [
    "Action",
    "Adventure",
    "Animation",
    "Children's",
    "Comedy",
    "Crime",
    "Drama",
    "Fantasy",
    "Horror",
    "Romance",
    "Sci-Fi",
    "War",
];

/// The use of apps in context: labels 1 and -1, ten categorical columns, and a count that is 1 in every row.
fn frappe(rows: usize, seed: u64) -> String {
    let mut dice = Dice(seed);
    let mut text = "label,user,item,cnt,daytime,weekday,isweekend,homework,cost,weather,country,city\n".to_owned();
    for _ in 0..rows {
        let (user, item, city) = (dice.skewed(250), dice.skewed(400), dice.below(60));
        let (daytime, weekday, weather) = (dice.below(7), dice.below(7), dice.below(9));
        let (homework, cost, country) = (dice.below(3), dice.below(2), city % 20);
        let score = effect(1, user, 0.8)
            + effect(2, item, 0.9)
            + effect(3, daytime, 0.5)
            + effect(4, weather, 0.4)
            + effect(5, homework * 2 + cost, 0.4);
        let label = if clicked(score, &mut dice) { 1 } else { -1 };
        let (daytime, weather) = (DAYTIME[daytime as usize], WEATHER[weather as usize]);
        let isweekend = u8::from(weekday > 4);
        let weekday = WEEKDAY[weekday as usize];
        let context = format!("{daytime},{weekday},{isweekend},{homework},{cost},{weather},C{country},{city}");
        let _ = writeln!(text, "{label},{user},{},1,{context}", item + 1000);
    }
    text
}

const FRAPPE: &str = "\
label = 'label == 1'
categorical = [
    { column = 'user' }, { column = 'item' }, { column = 'daytime' }, { column = 'weekday' }, { column = 'isweekend' },
    { column = 'homework' }, { column = 'cost' }, { column = 'weather' }, { column = 'country' }, { column = 'city' },
]
";

/// Ratings of films, tab-separated: integers as ids, a Unix time, genres in one field.
fn movielens(rows: usize, seed: u64) -> String {
    let mut dice = Dice(seed);
    let mut text = "user_id\titem_id\trating\ttimestamp\tgenres\n".to_owned();
    for _ in 0..rows {
        let (user, item, time) = (dice.below(400), dice.skewed(300), 874_724_710 + dice.below(200 * 86_400));
        let mut genres: Vec<u64> = (0..1 + item % 3).map(|n| (item * 7 + n * 5) % 12).collect();
        genres.dedup();
        let taste: f64 = genres.iter().map(|&genre| effect(3, (user % 8) * 12 + genre, 0.3)).sum();
        let (hour, weekday) = (time / 3600 % 24, (time / 86_400 + 3) % 7);
        let score = effect(1, user, 0.7) + effect(2, item, 0.7) + taste + mood(hour) + effect(5, weekday, 0.4);
        let rating = (3.4 + 0.8 * score + 0.7 * dice.normal()).round().clamp(1.0, 5.0);
        let genres: Vec<_> = genres.iter().map(|&genre| GENRES[genre as usize]).collect();
        let _ = writeln!(text, "{}\t{}\t{rating}\t{time}\t{}", user + 1, item + 1, genres.join("|"));
    }
    text
}

const MOVIELENS: &str = r#"
label = "rating >= 4"
delimiter = "\t"
categorical = [
    { column = "user_id" }, { column = "item_id" }, { column = "genres", separator = "|" },
    { column = "timestamp", name = "hour", time = "hour" }, { column = "timestamp", name = "weekday", time = "weekday" },
]
"#;

/// Clicks on advertisements: a row's own id, hours as YYMMDDHH, hexadecimal and numeric categories.
fn avazu(rows: usize, seed: u64) -> String {
    let mut dice = Dice(seed);
    let columns = "id,click,hour,C1,banner_pos,site_id,site_category,app_id,device_ip,device_type,C14,C17,C20,C21";
    let mut text = format!("{columns}\n");
    for n in 0..rows {
        // The log is in order of time: ten days.
        let hour = 240 * n / rows;
        let (day, hour) = (21 + hour as u64 / 24, hour as u64 % 24);
        let (site, app, ad) = (dice.skewed(300), dice.skewed(200), dice.skewed(250));
        let (c1, banner, kind) = (1001 + dice.below(2) * 4, dice.below(3), dice.below(4));
        let score = effect(1, site, 0.8)
            + effect(2, app, 0.5)
            + effect(3, ad, 0.7)
            + effect(4, banner, 0.5)
            + mood(hour)
            + effect(6, kind, 0.3)
            - 1.0;
        let click = u8::from(clicked(score, &mut dice));
        let hex = |column: u64, value: u64| format!("{:08x}", Dice(column << 40 | value).next() as u32);
        let (c17, c20) = (ad / 3 * 7 + 112, if dice.below(2) == 0 { -1 } else { 100_000 + dice.below(150) as i64 });
        let _ = writeln!(
            text,
            "{},{click},1410{day}{hour:02},{c1},{banner},{},{},{},{},{kind},{},{c17},{c20},{}",
            10_000_000_000_000_000_000 + dice.next() % 8_000_000_000_000_000_000,
            hex(1, site),
            hex(2, site % 20),
            hex(3, app),
            hex(4, dice.skewed(6000)),
            ad * 37 + 375,
            13 + ad % 50,
        );
    }
    text
}

const AVAZU: &str = "\
label = 'click'
categorical = [
    { column = 'hour', time = 'hour', unit = 'YYMMDDHH' },
    { column = 'C1' }, { column = 'banner_pos' }, { column = 'site_id' }, { column = 'site_category' },
    { column = 'app_id' }, { column = 'device_ip' }, { column = 'device_type' }, { column = 'C14' }, { column = 'C17' },
    { column = 'C20' }, { column = 'C21' },
]
";

/// The same small model for both schemas, by the recipe for data of their own; the last 30 % of the rows are for test.
const MODEL: &str = "--set model.dim=8 --set model.bottom=[0,32,8] --set model.top=[32,1] --test-fraction 0.3 \
                     --eval-every 0 --json";

/// Initial weights move an AUC by as much as a column does.
const SEEDS: [u32; 3] = [1, 2, 3];

/// The mean AUC with the proposed schema, and with the one that somebody wrote.
fn aucs(name: &str, text: &str, written: &str) -> (f64, f64) {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name).display().to_string();
    fs::write(at(name), text).unwrap();
    fs::write(at("written.toml"), written).unwrap();
    succeed(&format!("inspect {} --write-schema {}", at(name), at("proposed.toml")));
    let auc = |schema: &str| {
        let found = |seed: &u32| {
            json(&format!("train --data {} --schema {} {MODEL} --seed {seed}", at(name), at(schema)))["auc"].as_f64()
        };
        SEEDS.iter().filter_map(found).sum::<f64>() / SEEDS.len() as f64
    };
    (auc("proposed.toml"), auc("written.toml"))
}

/// Whether the proposal is as good as what somebody wrote, and both have learned something.
fn judge(name: &str, text: &str, written: &str, least: f64) {
    let (proposed, written) = aucs(name, text, written);
    println!("{name}: AUC {proposed:.4} as proposed, {written:.4} as written");
    assert!(written > least, "{name}: AUC {written} with the schema that somebody wrote");
    assert!(proposed > written - 0.005, "{name}: AUC {proposed} as proposed, {written} as written");
}

#[test]
fn the_use_of_apps_is_learned_as_proposed() {
    judge("frappe.csv", &frappe(30_000, 1), FRAPPE, 0.7);
}

#[test]
fn ratings_of_films_are_learned_as_proposed() {
    judge("u.inter", &movielens(30_000, 1), MOVIELENS, 0.7);
}

#[test]
fn clicks_on_advertisements_are_learned_as_proposed() {
    judge("train.csv", &avazu(30_000, 1), AVAZU, 0.7);
}

/// A table, its proposed schema, and what was printed as JSON and in the schema.
struct Proposed {
    schema: TextSchema,
    left_out: Vec<(String, String)>,
    toml: String,
    table: String,
}

fn proposed(name: &str, text: &str, further: &str) -> Proposed {
    let folder = tempfile::tempdir().unwrap();
    let (data, schema) = (folder.path().join(name), folder.path().join("schema.toml"));
    fs::write(&data, text).unwrap();
    let line = format!("inspect {} --write-schema {}", data.display(), schema.display());
    let arguments =
        line.split_whitespace().chain((!further.is_empty()).then_some(["--label", further]).into_iter().flatten());
    let run = |more: &[&str]| {
        let output = octorec().args(arguments.clone()).args(more).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8_lossy(&output.stdout).into_owned()
    };
    let found: Value = serde_json::from_str(&run(&["--json"])).unwrap();
    let left_out = found["left_out"].as_array().cloned().unwrap_or_default();
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    Proposed {
        schema: TextSchema::read(&schema).unwrap(),
        left_out: left_out.iter().map(|column| (text(&column["column"]), text(&column["reason"]))).collect(),
        toml: fs::read_to_string(&schema).unwrap(),
        table: run(&[]),
    }
}

impl Proposed {
    fn dense(&self, column: &str) -> Option<&TextDense> {
        self.schema.dense.iter().find(|dense| dense.column == column)
    }

    fn categorical(&self, column: &str) -> Vec<&TextCategorical> {
        self.schema.categorical.iter().filter(|categorical| categorical.column == column).collect()
    }
}

/// One column of each kind, none of them with a name that tells it.
fn kinds(rows: u64) -> String {
    let mut dice = Dice(3);
    let header = "a,b,c,d,e,f,g,h,i,j,k,l,m,n,o,p,q,r,s,label\n";
    (0..rows).fold(header.to_owned(), |mut text, n| {
        let second = 1_500_000_000 + dice.below(90 * 86_400);
        let (day, hour) = (1 + dice.below(28), dice.below(24));
        let number = |n: u64| format!("{:08x}", Dice(n).next() as u32);
        let list = |dice: &mut Dice, sign: &str, of: u64| {
            (0..1 + dice.below(4)).map(|_| format!("t{}", dice.below(of))).collect::<Vec<_>>().join(sign)
        };
        let fields = [
            // a: rows in order; b: numbers of rows in any order; c: a key; d: always 1; e: blank.
            n.to_string(),
            (n * 7919 % rows + 1).to_string(),
            number(n),
            "1".to_owned(),
            String::new(),
            // f, g, h, i, j: moments.
            second.to_string(),
            format!("{second}{:03}", dice.below(1000)),
            format!("1409{day:02}{hour:02}"),
            format!("201409{day:02}"),
            format!("2014-09-{day:02} {hour:02}:{:02}:00", dice.below(60)),
            // k, l, m: lists; n: names of several words, which are none.
            list(&mut dice, "|", 30),
            list(&mut dice, " ", 30),
            format!("\"{}\"", list(&mut dice, ",", 30)),
            ["New York", "San Francisco", "Boston", "Los Angeles", "Washington"][dice.below(5) as usize].to_owned(),
            // o: identifiers without their name, also large ones; p: counts; q: prices; r: heights; s: codes.
            (1_000_000 + dice.skewed(300) * 977).to_string(),
            (dice.skewed(100_000)).to_string(),
            format!("{:.2}", (2.0 + 1.5 * dice.normal()).exp()),
            format!("{:.1}", 170.0 + 10.0 * dice.normal()),
            format!("{:05}", 500 + dice.below(900)),
            // The label.
            ["no", "yes"][dice.below(2) as usize].to_owned(),
        ];
        let _ = writeln!(text, "{}", fields.join(","));
        text
    })
}

#[test]
fn kinds_of_columns_are_told_from_magnitudes() {
    let found = proposed("log.csv", &kinds(4000), "");
    assert_eq!(found.schema.label, "label == yes");
    let out: Vec<_> = found.left_out.iter().map(|(column, _)| &column[..]).collect();
    assert_eq!(out, ["a", "b", "c", "d", "e"], "{:?}", found.left_out);
    for ((column, reason), told) in found.left_out.iter().zip([
        "each of its 4,000 values occurs once",
        "each of its 4,000 values occurs once",
        "each of its 4,000 values occurs once",
        "its value is \"1\" in every row",
        "all its fields are blank",
    ]) {
        assert!(reason.contains(told), "{column}: {reason}");
        assert!(found.table.contains(reason), "the table says why {column} is left out: {}", found.table);
        assert!(found.toml.contains(&format!("# left out: {column}: {reason}")), "{}", found.toml);
    }
    let units = [Unit::Seconds, Unit::Milliseconds, Unit::Hours, Unit::Days, Unit::Written];
    for (column, unit) in ["f", "g", "h", "i", "j"].into_iter().zip(units) {
        let clocks: Vec<_> = found.categorical(column).iter().map(|column| (column.time, column.unit)).collect();
        let mut expected = vec![(Some(Clock::Hour), Some(unit)), (Some(Clock::Weekday), Some(unit))];
        expected.drain(..usize::from(unit == Unit::Days));
        assert_eq!(clocks, expected, "{column}");
        assert!(found.dense(column).is_none());
    }
    for (column, separator) in
        [("k", Some("|")), ("l", Some(" ")), ("m", Some(",")), ("n", None), ("o", None), ("s", None)]
    {
        let separators: Vec<_> = found.categorical(column).iter().map(|column| column.separator.as_deref()).collect();
        assert_eq!(separators, [separator], "{column}");
    }
    for (column, transform, float) in
        [("p", Transform::Log, false), ("q", Transform::Log, true), ("r", Transform::Standardise, true)]
    {
        let dense = found.dense(column).unwrap_or_else(|| panic!("{column} is dense: {}", found.toml));
        assert_eq!((dense.transform, dense.float), (transform, float), "{column}");
    }
}

#[test]
fn numbers_and_times_in_other_forms_are_told_as_what_they_are() {
    let header = "label,sent,paid,day,made,share,born\n".to_owned();
    let text = (0..400u64).fold(header, |mut text, n| {
        let (sent, day) = (1_500_000_000_000_000 + n * 7_777_777_777, 1 + n % 28);
        let _ = write!(text, "{},{sent},\"{},{:02}\",{day:02}.{:02}.2024,", n % 3 / 2, n * 13 + 5, n % 100, 1 + n / 40);
        let _ = write!(text, "202403{day:02}{:02}{:02}{:02},{}%,", n % 24, n % 60, n % 59, n % 37);
        let _ = writeln!(text, "{}-{:02}-12", 1950 + n % 40, 1 + n % 12);
        text
    });
    let found = proposed("log.csv", &text, "");
    let clocks: Vec<_> = found.categorical("sent").iter().map(|column| (column.time, column.unit)).collect();
    let micros = Some(Unit::Microseconds);
    assert_eq!(clocks, [(Some(Clock::Hour), micros), (Some(Clock::Weekday), micros)]);
    let out: Vec<_> = found.left_out.iter().map(|(column, reason)| (&column[..], &reason[..])).collect();
    let expected = [("paid", "numbers", "5,00"), ("day", "times", "01.01.2024"), ("made", "times", "20240301000000")];
    assert_eq!(out.len(), expected.len(), "{out:?}");
    for ((column, reason), (name, what, example)) in out.into_iter().zip(expected) {
        let told = format!("look like {what} in a form that octorec does not read, such as {example:?}: write them");
        assert!(column == name && reason.contains(&told), "{column}: {reason}");
    }
    assert_eq!(found.categorical("share").len(), 1);
    assert!(found.toml.contains("# 37 different values; its values look like numbers"), "{}", found.toml);
    // Dates that are read, but no times of our days.
    assert!(found.categorical("born").len() == 1 && found.toml.contains("# 120 different values\n"), "{}", found.toml);
}

#[test]
fn decimal_commas_are_no_lists() {
    let text = (0..4000u64).fold("label;price;tags\n".to_owned(), |mut text, n| {
        let (whole, part) = (n * 7919 % 200, (n * 31 + n / 400) % 100);
        let _ = writeln!(text, "{};{whole},{part:02};{},{},{}", n % 3 / 2, n % 20, n % 30, n % 7);
        text
    });
    let found = proposed("log.csv", &text, "");
    let out: Vec<_> = found.left_out.iter().map(|(column, reason)| (&column[..], &reason[..])).collect();
    let told =
        "such as \"0,00\": write them with digits and a decimal point alone; if these are lists: [[categorical]]";
    assert!(matches!(out[..], [("price", reason)] if reason.contains(told)), "{out:?}");
    assert_eq!(found.categorical("tags")[0].separator.as_deref(), Some(","));
}

#[test]
fn a_column_without_a_name_is_proposed_with_one() {
    let text = (0..400u64).fold("label,,p\n".to_owned(), |mut text, n| {
        let _ = writeln!(text, "{},{},u{}", n % 3 / 2, n * 7 % 40, n % 11);
        text
    });
    let found = proposed("log.csv", &text, "");
    let names: Vec<_> = found.schema.categorical.iter().map(|column| (&column.column[..], column.name())).collect();
    assert_eq!(names, [("", "column 2"), ("p", "p")], "{}", found.toml);
}

#[test]
fn columns_that_follow_the_label_are_asked_about() {
    let folder = tempfile::tempdir().unwrap();
    let (log, mut dice) = (folder.path().join("log.csv"), Dice(11));
    let text = (0..2000).fold("click,user,bought,dwell\n".to_owned(), |mut text, _| {
        let click = dice.below(4) == 0;
        let bought = u8::from(click && dice.below(3) == 0);
        let dwell = if click { format!("{}.5", dice.below(90)) } else { String::new() };
        let _ = writeln!(text, "{},u{},{bought},{dwell}", u8::from(click), dice.below(50));
        text
    });
    fs::write(&log, text).unwrap();
    let message = String::from_utf8(succeed(&format!("inspect {}", log.display())).stderr).unwrap();
    assert!(message.contains("column bought has values of which all "), "{message}");
    assert!(message.contains("column dwell tells the label almost alone (AUC 1.000): is it known before"), "{message}");
    assert!(!message.contains("column user"), "{message}");
}

#[test]
fn labels_are_columns_of_two_values_or_ratings_and_never_constant() {
    let table = |header: &str, row: &dyn Fn(u64) -> String| {
        (0..500).fold(format!("{header}\n"), |text, n| text + &row(n) + "\n")
    };
    let rule = |header: &str, row: &dyn Fn(u64) -> String| proposed("log.csv", &table(header, row), "").schema.label;
    let bit = |n: u64| (n * 7919 / 13) % 2;
    for (header, expected) in [
        ("one,item,is_click", "is_click"),
        ("one,item,Clicked", "Clicked"),
        ("one,item,target", "target"),
        // No name says it, but there is only one.
        ("one,item,z", "z"),
    ] {
        assert_eq!(rule(header, &|n| format!("1,i{},{}", n % 40, bit(n))), expected);
    }
    // A surer name before a weaker one; a constant never.
    assert_eq!(rule("click,like,y", &|n| format!("1,{},{}", n % 2, bit(n))), "y");
    assert_eq!(rule("label,rating,item", &|n| format!("1,{},i{}", 1 + n % 5, n % 40)), "rating >= 4");
    for (values, expected) in [
        (&["1", "10", "7", "8", "3"][..], "rating >= 8"),
        (&["0.5", "1", "4", "4.5", "5"], "rating >= 4"),
        (&["0.5", "5", "3.5", "2.5", "3"], "rating >= 4"),
        (&["1", "2", "3"], "rating >= 3"),
        (&["-1", "1"], "rating == 1"),
        // Where none says yes, the rarer one.
        (&["bad", "good", "bad"], "rating == good"),
    ] {
        let found = rule("item,rating", &|n| format!("i{},{}", n % 40, values[(n % values.len() as u64) as usize]));
        assert_eq!(found, expected);
    }
}

#[test]
fn lists_as_programs_print_them_are_no_values() {
    let header = "label,tags,numbers,age\n".to_owned();
    let text = (0..400).fold(header, |mut text, n| {
        let [a, b] = [n % 7, n % 5];
        let _ = writeln!(text, "{},\"['t{a}', 't{b}']\",[{a} {b}],[{a}]", n % 3 / 2);
        text
    });
    let found = proposed("log.csv", &text, "");
    let out: Vec<_> = found.left_out.iter().map(|(column, _)| &column[..]).collect();
    assert_eq!(out, ["tags", "numbers"], "{:?}", found.left_out);
    let reason = "lists as programs print them, brackets and all: write the values alone";
    assert!(found.left_out.iter().all(|(_, told)| told.contains(reason)), "{:?}", found.left_out);
    // Brackets alone make no list.
    assert_eq!(found.categorical("age").len(), 1);
    // The remedy.
    let text = text.replace("['", "").replace("', '", "|").replace("']", "");
    let found = proposed("log.csv", &text, "");
    assert_eq!(found.categorical("tags")[0].separator.as_deref(), Some("|"));
}

#[test]
fn a_label_that_cannot_be_told_is_named_by_a_person() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("log.csv");
    let write = |header: &str, row: &dyn Fn(u64) -> String| {
        fs::write(&path, (0..500).fold(format!("{header}\n"), |text, n| text + &row(n) + "\n")).unwrap();
    };
    let line = format!("inspect {}", path.display());
    write("item,weekend,premium", &|n| format!("i{},{},{}", n % 40, n % 2, n / 250));
    let message = fail(&line);
    assert!(message.contains("log.csv: several columns hold 0 and 1 (weekend, premium)"), "{message}");
    assert!(message.contains("--label COLUMN"), "{message}");
    succeed(&format!("{line} --label weekend"));
    write("item,label,amount", &|n| format!("i{},1,{}.5", n % 40, n));
    let message = fail(&line);
    assert!(message.contains("column label holds \"1\" in every row"), "{message}");
    let found = proposed("log.csv", &fs::read_to_string(&path).unwrap(), "amount >= 100");
    assert_eq!(found.schema.label, "amount >= 100");
    assert!(found.dense("amount").is_none() && found.toml.contains("# as --label says"), "{}", found.toml);
    let message = fail(&format!("{line} --label amount"));
    let advice =
        "--label: column amount holds numbers from 0.5 to 499.5, and a label is 0 or 1: say which rows are positive";
    assert!(message.contains(advice) && message.contains("--label \"amount >= 375\""), "{message}");
    let message = fail(&format!("{line} --label item"));
    assert!(
        message.contains("column item holds 40 different values") && message.contains("\"item == i0\""),
        "{message}"
    );
    write("item,rating,kind", &|n| format!("i{},{},{}", n % 40, n % 5 + 1, if n % 3 == 0 { "buy" } else { "see" }));
    for (label, rule) in [("rating", "rating >= 4"), ("kind", "kind == buy")] {
        let message = fail(&format!("{line} --label {label}"));
        assert!(message.contains(&format!("such as --label \"{rule}\"")), "{message}");
        // The remedy.
        let output = octorec().args(line.split_whitespace()).args(["--label", rule]).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    }
    write("item,label,amount", &|n| format!("i{},1,{}.5", n % 40, n));
    let message = fail(&format!("{line} --label amonut"));
    assert!(
        message
            .contains("--label: there is no column amonut (did you mean amount?): the columns are item, label, amount"),
        "{message}"
    );
    // Where nothing is proposed, the flag would have no effect.
    let log = super::tsv(&folder.path().join("criteo.tsv"), 20);
    let message = fail(&format!("inspect {} --label click", log.display()));
    assert!(message.contains("--label: only tables of text with a header line"), "{message}");
}

#[test]
fn tables_are_told_from_criteos_text_by_their_header() {
    let rows = |sign: &str, header: [&str; 4]| {
        (0..300u64).fold(header.join(sign) + "\n", |text, n| {
            let fields =
                [format!("u{}", n % 30), format!("i{}", n % 50), format!("{}.0", n % 5 + 1), (n * n % 7).to_string()];
            text + &fields.join(sign) + "\n"
        })
    };
    let recbole = ["user_id:token", "item_id:token", "rating:float", "n:float"];
    for (name, sign, header) in [
        ("ml.inter", "\t", recbole),
        ("ml.tsv", "\t", ["user", "item", "rating", "n"]),
        ("ml.txt", ";", ["user", "item", "rating", "n"]),
        ("ml", "|", ["user", "item", "rating", "n"]),
    ] {
        let found = proposed(name, &rows(sign, header), "");
        assert_eq!(found.schema.delimiter.to_string(), sign, "{name}");
        assert_eq!(found.schema.label, format!("{} >= 4", header[2]), "{name}");
        // RecBole's header calls the last column a number.
        let expected = if name == "ml.inter" { (1, 2) } else { (0, 3) };
        assert_eq!((found.schema.dense.len(), found.schema.categorical.len()), expected, "{name}: {}", found.toml);
        assert_eq!(found.schema.categorical[0].name(), header[0].trim_end_matches(":token"));
    }
    // Names that come twice are a header's, too, which is refused as it is with a schema.
    let folder = tempfile::tempdir().unwrap();
    let twice = folder.path().join("twice.tsv");
    fs::write(&twice, rows("\t", ["user", "item", "rating", "item"])).unwrap();
    let message = fail(&format!("inspect {}", twice.display()));
    assert!(message.contains("its header has two columns item, numbers 2 and 4: give one"), "{message}");
    // Criteo's own text begins with a row.
    let log = super::tsv(&folder.path().join("log.txt"), 50);
    assert_eq!(json(&format!("inspect {} --json", log.display()))["format"], "tsv");
}

#[test]
fn names_of_any_length_leave_the_columns_of_a_table_in_line() {
    let folder = tempfile::tempdir().unwrap();
    let (log, schema) = (folder.path().join("log.csv"), folder.path().join("schema.toml"));
    fs::write(&log, "label,the_number_of_a_user,tag\n1,u1,a\n0,u2,b\n").unwrap();
    fs::write(&schema, "label = 'label'\ncategorical = [{ column = 'the_number_of_a_user' }, { column = 'tag' }]")
        .unwrap();
    let text = succeed(&format!("inspect {} --schema {}", log.display(), schema.display())).stdout;
    let text = String::from_utf8(text).unwrap();
    let table: Vec<&str> = text.lines().skip_while(|line| !line.contains("categorical")).collect();
    let ends = |row: &str, of: &str| row.find(of).map(|at| at + of.len());
    assert_eq!((table.len(), ends(table[0], "missing")), (3, ends(table[1], "0.0 %")), "{text}");
    assert_eq!(ends(table[1], "0.0 %"), ends(table[2], "0.0 %"), "{text}");
}

#[test]
fn the_guide_to_schemas_is_found_where_people_look() {
    let text = |line: &str| String::from_utf8(succeed(line).stdout).unwrap();
    let guide = text("schema");
    for line in ["help schema", "schema --help"] {
        let found = text(line);
        assert!(found.starts_with(guide.trim_end()), "{line}: {found}");
        assert!(found.contains("transform = \"standardise\"") && found.contains("--markdown"), "{found}");
    }
    assert!(text("schema --markdown").contains("| `[[categorical]]` | `separator` |"));
}

#[test]
fn files_of_other_formats_are_told_as_what_they_are() {
    let folder = tempfile::tempdir().unwrap();
    let utf16: Vec<u8> = "\u{feff}label,user\n1,a\n0,b\n".encode_utf16().flat_map(u16::to_le_bytes).collect();
    for (name, bytes, told) in [
        ("day.xz", &b"\xfd7zXZ\0\0\x04\xe6\xd6\xb4\x46"[..], "is xz; rows are read from UTF-8 text"),
        ("day.zip", b"PK\x03\x04\x14\0\0\0", "`unzip -p FILE > NEW`"),
        ("unicode.csv", &utf16, "is text in UTF-16; "),
        (
            "day.xlsx",
            b"PK\x03\x04\x14\0\x06\0\x08\0\0\0!\0\0\0\0\0\0\0\0\0\0\0\0\0\x13\0\0\0[Content_Types].xml",
            "as CSV",
        ),
        ("day.jsonl", b"{\"label\": 1, \"user\": \"a\"}\n{\"label\": 0, \"user\": \"b\"}\n", "holds objects of JSON"),
        ("mac.csv", b"label,user\r1,a\r0,b\r", "has lines that end with CR alone"),
    ] {
        let path = folder.path().join(name);
        fs::write(&path, bytes).unwrap();
        let message = fail(&format!("inspect {}", path.display()));
        assert!(message.contains(told), "{name}: {message}");
    }
    for name in ["day.xz", "day.zip"] {
        let message = fail(&format!("train --data {}", folder.path().join(name).display()));
        assert!(message.contains("FILE > NEW"), "{name}: {message}");
    }
}

#[test]
fn rows_that_are_left_out_are_none_of_those_that_a_schema_is_proposed_from() {
    let folder = tempfile::tempdir().unwrap();
    let (data, schema) = (folder.path().join("log.csv"), folder.path().join("schema.toml"));
    let label = |n: u32| if n % 5 == 3 { "" } else { ["0", "1"][(n % 2) as usize] };
    let rows: String = (0..200).map(|n| format!("{},u{},{}.5\n", label(n), n % 7, n % 11)).collect();
    fs::write(&data, format!("click,user,price\n{rows}")).unwrap();
    succeed(&format!("inspect {} --on-bad-row skip --write-schema {}", data.display(), schema.display()));
    let proposed = fs::read_to_string(&schema).unwrap();
    assert!(proposed.starts_with("# Proposed by octorec inspect from all 160 rows: "), "{proposed}");
}
