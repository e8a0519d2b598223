//! Every key of a schema of text, for people: what `octorec schema` prints.

/// A key.
#[derive(Debug)]
pub struct Key {
    /// Its name.
    pub name: &'static str,
    /// What it takes, and what holds without it.
    pub takes: &'static str,
    /// What it means.
    pub meaning: &'static str,
    /// Lines of a schema that use it; those of columns without their heading.
    pub example: &'static str,
}

/// Keys that stand together.
#[derive(Debug)]
pub struct Section {
    /// The heading; empty: they stand at the top.
    pub heading: &'static str,
    /// What it describes.
    pub about: &'static str,
    /// Its keys.
    pub keys: &'static [Key],
}

const TIME_UNIT: &str = "\"seconds\" (the default), \"milliseconds\", \"microseconds\" or \"nanoseconds\" since 1970, \
                         \"YYMMDDHH\", \"YYYYMMDD\", \"YYYY-MM-DD\" (a time as HH:MM:SS may follow)";

/// All keys.
pub const SECTIONS: [Section; 3] = [
    Section {
        heading: "",
        about: "At the top: the file and its label",
        keys: &[
            Key {
                name: "label",
                takes: "a column, or a comparison with >=, <=, >, <, == or !=",
                meaning: "When a row is positive. A column alone must hold 0 and 1; <, <=, > and >= compare numbers, == and != \
                          text as well. A row whose label is missing is malformed, unless the comparison is with nothing: \
                          \"bought_at !=\" is positive wherever there is a value. A column of the file \
                          that has the whole text for its name is meant before a comparison. No feature is made of the label's \
                          column.",
                example: "label = \"rating >= 4\"",
            },
            Key {
                name: "weight",
                takes: "a column; without it all rows count the same",
                meaning: "How much each row counts, 0 or a number from 10^-9 to 10^9: its loss is multiplied by it (the loss stays the mean \
                          over the rows of a minibatch), and scores count it in place of the row. A row whose weight is missing, \
                          negative or no number is malformed. No feature is made of the column, and predict needs none.",
                example: "weight = \"importance\"",
            },
            Key {
                name: "delimiter",
                takes: "one ASCII character; \",\" without it",
                meaning: "What separates columns. Fields may be quoted with \".",
                example: "delimiter = \"\\t\"",
            },
            Key {
                name: "columns",
                takes: "names; without it the file's first line has them",
                meaning: "The names of all columns, in order, of a file without a header line.",
                example: "columns = [\"user\", \"item\", \"rating\"]",
            },
            Key {
                name: "missing",
                takes: "texts; without it, only a blank field is missing",
                meaning: "What other programs write where there is no value: in every column such a field counts as blank.",
                example: "missing = [\"NULL\", \"nan\"]",
            },
        ],
    },
    Section {
        heading: "[[dense]]",
        about: "One for each dense feature: a number",
        keys: &[
            Key {
                name: "column",
                takes: "a name of the header",
                meaning: "Where the values stand. A blank field is a missing value.",
                example: "column = \"price\"",
            },
            Key {
                name: "name",
                takes: "a name; the column's without it",
                meaning: "What it is called in the data set: for a column that is used twice.",
                example: "column = \"price\"\nname = \"price_log\"",
            },
            Key {
                name: "transform",
                takes: "\"none\" (the default), \"log\" or \"standardise\"",
                meaning: "log: ln(x + 1), with missing and negative values as 0, for counts. standardise: (x - mean) / standard \
                          deviation, with missing values as 0; both are those of the training samples, are kept in the \
                          checkpoint, and serve as they are wherever the model is used.",
                example: "column = \"price\"\ntransform = \"standardise\"",
            },
            Key {
                name: "float",
                takes: "true or false (the default)",
                meaning: "That values are fractions, not integers of 32 bits. train finds it out; preprocess reads once and must \
                          be told.",
                example: "column = \"price\"\nfloat = true",
            },
            Key {
                name: "count",
                takes: "a separator",
                meaning: "The feature is the number of values in the field, not the field.",
                example: "column = \"history\"\nname = \"length\"\ncount = \",\"",
            },
            Key {
                name: "padding",
                takes: "a value",
                meaning: "With count: this value does not count.",
                example: "column = \"history\"\nname = \"length\"\ncount = \",\"\npadding = \"0\"",
            },
            Key {
                name: "time",
                takes: "\"age\"",
                meaning: "Values are times; the feature is how many days before the newest training sample they are (negative \
                          where they are newer, as rows to be served are by nature; log makes 0 of these). Goes with \
                          transform.",
                example: "column = \"timestamp\"\nname = \"age\"\ntime = \"age\"\ntransform = \"log\"",
            },
            Key {
                name: "unit",
                takes: TIME_UNIT,
                meaning: "With time: how times are written; all are UTC, unless an offset such as +01:00 stands behind them.",
                example: "column = \"timestamp\"\ntime = \"age\"\nunit = \"milliseconds\"",
            },
        ],
    },
    Section {
        heading: "[[categorical]]",
        about: "One for each categorical column: an embedding table",
        keys: &[
            Key {
                name: "column",
                takes: "a name of the header",
                meaning: "Where the values stand: any text, of which each has a row of the table.",
                example: "column = \"user_id\"",
            },
            Key {
                name: "name",
                takes: "a name; the column's without it",
                meaning: "What it is called in the data set: for a column that is used twice.",
                example: "column = \"age\"\nname = \"age_group\"\nbuckets = [18, 30, 50]",
            },
            Key {
                name: "separator",
                takes: "a text; without it a field is one value",
                meaning: "A field is a list of values, of which any number may be there.",
                example: "column = \"genres\"\nseparator = \"|\"",
            },
            Key {
                name: "padding",
                takes: "a value",
                meaning: "With separator: this value stands for none, where lists were made equally long.",
                example: "column = \"history\"\nseparator = \",\"\npadding = \"0\"",
            },
            Key {
                name: "weights",
                takes: "a name of the header",
                meaning: "The column whose numbers weigh the look-ups: as many as there are values, with the same separator.",
                example: "column = \"genres\"\nseparator = \"|\"\nweights = \"shares\"",
            },
            Key {
                name: "weight_separator",
                takes: "a text",
                meaning: "Behind every value stands, after this, the weight of its look-up: Drama:0.7|Comedy:0.3.",
                example: "column = \"genres\"\nseparator = \"|\"\nweight_separator = \":\"",
            },
            Key {
                name: "buckets",
                takes: "rising numbers",
                meaning: "Values are numbers, of which each bucket has a row: one begins at each of these. A blank field has a \
                          row of its own.",
                example: "column = \"age\"\nbuckets = [18, 30, 50]",
            },
            Key {
                name: "rows",
                takes: "1 to 4294967295; without it values are numbered as they appear",
                meaning: "Values are hashed to so many rows: for columns with more values than memory, and to train on several \
                          files without a common vocabulary.",
                example: "column = \"device_ip\"\nrows = 100000",
            },
            Key {
                name: "time",
                takes: "\"hour\" or \"weekday\"",
                meaning: "Values are times; the category is the hour of the day or the day of the week. A blank field has a row \
                          of its own.",
                example: "column = \"timestamp\"\nname = \"hour\"\ntime = \"hour\"",
            },
            Key {
                name: "unit",
                takes: TIME_UNIT,
                meaning: "With time: how times are written; all are UTC, unless an offset such as +01:00 stands behind them.",
                example: "column = \"hour\"\ntime = \"hour\"\nunit = \"YYMMDDHH\"",
            },
        ],
    },
];

/// A whole schema, for ratings of films.
pub const WHOLE: &str = r#"label = "rating >= 4"
delimiter = "\t"

[[dense]]
column = "price"
float = true
transform = "standardise"

[[categorical]]
column = "user_id"

[[categorical]]
column = "genres"
separator = "|"

[[categorical]]
column = "timestamp"
name = "hour"
time = "hour"
"#;

#[cfg(test)]
mod tests {
    use serde::de::DeserializeOwned;

    use super::super::{TextCategorical, TextDense, TextSchema};
    use super::*;

    /// What stands between backquotes in the complaint about a wrong document, but for the wrong thing itself.
    fn expected<T: DeserializeOwned>(wrong: &str) -> Vec<String> {
        let Err(error) = toml::from_str::<T>(wrong) else { panic!("{wrong} is no error") };
        error.message().split('`').skip(1).step_by(2).skip(1).map(str::to_owned).collect()
    }

    #[test]
    fn the_guide_has_every_key_that_a_schema_takes() {
        let known =
            [expected::<TextSchema>("_ = 1"), expected::<TextDense>("_ = 1"), expected::<TextCategorical>("_ = 1")];
        for (section, mut known) in SECTIONS.iter().zip(known) {
            // Sections are keys of their own.
            known.retain(|key| key != "dense" && key != "categorical");
            let mut told: Vec<_> = section.keys.iter().map(|key| key.name.to_owned()).collect();
            known.sort();
            told.sort();
            assert_eq!(told, known, "keys of {:?}", section.heading);
        }
    }

    #[test]
    fn the_guide_has_every_value_that_a_key_chooses_from() {
        let takes = |section: usize, name: &str| {
            SECTIONS[section].keys.iter().find(|key| key.name == name).expect("a key").takes
        };
        for (section, name, values) in [
            (1, "transform", expected::<TextDense>("column = 'a'\ntransform = '_'")),
            (1, "unit", expected::<TextDense>("column = 'a'\nunit = '_'")),
            (2, "time", expected::<TextCategorical>("column = 'a'\ntime = '_'")),
            (2, "unit", expected::<TextCategorical>("column = 'a'\nunit = '_'")),
        ] {
            assert!(values.len() > 1, "{name}");
            values
                .iter()
                .for_each(|value| assert!(takes(section, name).contains(&format!("{value:?}")), "{name} = {value}"));
        }
        assert!(toml::from_str::<TextDense>("column = 'a'\ntime = 'age'").is_ok(), "a single value is not listed");
    }

    #[test]
    fn every_example_is_a_schema() {
        let checked = |text: &str| {
            let schema: TextSchema = toml::from_str(text).unwrap_or_else(|error| panic!("{error}: {text}"));
            schema.check().and_then(|()| schema.check_label()).unwrap_or_else(|reason| panic!("{reason}: {text}"));
        };
        for Section { heading, keys, .. } in &SECTIONS {
            for key in *keys {
                let label = if key.name == "label" { "" } else { "label = \"y\"\n" };
                checked(&format!("{label}{heading}\n{}", key.example));
                assert!(key.example.lines().any(|line| line.starts_with(&format!("{} = ", key.name))), "{}", key.name);
            }
        }
        checked(WHOLE);
    }
}
