//! Keys that follow from others until somebody sets them.

use serde::{Deserialize, Serialize};

/// A value, or the word `auto`.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(untagged, expecting = "a value like those of similar keys, or auto, is expected")]
pub enum Setting<T> {
    /// Somebody has set it.
    Given(T),
    /// It follows from others.
    Follows(Word),
}

/// The word.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Word {
    /// `auto`.
    Auto,
}

impl<T> Default for Setting<T> {
    fn default() -> Self {
        Self::AUTO
    }
}

impl<T> Setting<T> {
    /// Not set.
    pub const AUTO: Self = Self::Follows(Word::Auto);
}

impl<T: Copy> Setting<T> {
    /// The value, if it is set.
    pub const fn given(self) -> Option<T> {
        match self {
            Self::Given(value) => Some(value),
            Self::Follows(Word::Auto) => None,
        }
    }

    /// The value, or `other` if none is set.
    pub const fn or(self, other: T) -> T {
        match self {
            Self::Given(value) => value,
            Self::Follows(Word::Auto) => other,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, PartialEq, Serialize, Deserialize)]
    struct Keys {
        number: Setting<f64>,
        switch: Setting<bool>,
    }

    #[test]
    fn values_and_the_word_are_read_as_they_are_written() {
        for (number, switch) in [(Setting::Given(1e-3), Setting::AUTO), (Setting::AUTO, Setting::Given(false))] {
            let keys = Keys { number, switch };
            let text = toml::to_string(&keys).unwrap();
            assert_eq!(toml::from_str::<Keys>(&text).unwrap(), keys, "{text}");
        }
        let whole: Keys = toml::from_str("number = 2\nswitch = \"auto\"").unwrap();
        assert_eq!((whole.number.or(0.0), whole.switch.or(true)), (2.0, true));
        assert!(toml::from_str::<Keys>("number = \"much\"\nswitch = true").unwrap_err().message().contains("or auto"));
    }
}
