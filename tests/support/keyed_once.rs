//! JSON as scripts in any language read it.

use std::fmt;

use serde::de::{self, Deserialize, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_json::Value;

/// JSON in which no object has a key twice: readers differ in what they make of that.
pub struct KeyedOnce(pub Value);

impl<'de> Deserialize<'de> for KeyedOnce {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Any;
        impl<'de> Visitor<'de> for Any {
            type Value = Value;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("JSON")
            }
            fn visit_unit<E: de::Error>(self) -> Result<Value, E> {
                Ok(Value::Null)
            }
            fn visit_bool<E: de::Error>(self, found: bool) -> Result<Value, E> {
                Ok(found.into())
            }
            fn visit_i64<E: de::Error>(self, found: i64) -> Result<Value, E> {
                Ok(found.into())
            }
            fn visit_u64<E: de::Error>(self, found: u64) -> Result<Value, E> {
                Ok(found.into())
            }
            fn visit_f64<E: de::Error>(self, found: f64) -> Result<Value, E> {
                Ok(found.into())
            }
            fn visit_str<E: de::Error>(self, found: &str) -> Result<Value, E> {
                Ok(found.into())
            }
            fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Value, A::Error> {
                let mut all = Vec::new();
                while let Some(KeyedOnce(item)) = items.next_element()? {
                    all.push(item);
                }
                Ok(all.into())
            }
            fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Value, A::Error> {
                let mut all = serde_json::Map::new();
                while let Some((key, KeyedOnce(value))) = entries.next_entry::<String, _>()? {
                    if all.insert(key.clone(), value).is_some() {
                        return Err(de::Error::custom(format!("{key} stands there twice")));
                    }
                }
                Ok(all.into())
            }
        }
        deserializer.deserialize_any(Any).map(Self)
    }
}
