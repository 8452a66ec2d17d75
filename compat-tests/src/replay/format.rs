//! The vectors as they stand in their files (`vectors/README.md`).
//!
//! Unknown fields are refused: a field nobody reads is a check nobody makes.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Deserializer};
use serde_json::{Map, Value};

use crate::{Failure, Outcome};

/// A short list of steps against an empty database.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Scenario {
    pub(crate) name: String,
    #[serde(rename = "redisson_version")]
    _redisson_version: String,
    #[serde(rename = "redis_version")]
    _redis_version: String,
    pub(crate) config: Config,
    /// Client name to the id it had in the recording; a replay uses ids of its own.
    pub(crate) clients: BTreeMap<String, String>,
    pub(crate) steps: Vec<Step>,
}

/// Settings of every client of the scenario.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub(crate) struct Config {
    pub(crate) lock_watchdog_timeout: u64,
    pub(crate) fair_lock_wait_timeout: u64,
    #[serde(rename = "codec")]
    _codec: String,
}

/// One operation, and all there is to see after it.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Step {
    pub(crate) client: Option<String>,
    pub(crate) thread: Option<i64>,
    pub(crate) object: Option<String>,
    pub(crate) key: Option<String>,
    pub(crate) instance: Option<String>,
    pub(crate) op: String,
    #[serde(default)]
    pub(crate) args: Map<String, Value>,
    /// The crate has one face for both forms; Redisson's two do not always behave alike.
    #[serde(default)]
    pub(crate) api: Option<Api>,
    pub(crate) handle: Option<String>,
    pub(crate) settle_ms: Option<u64>,
    /// Absent and `null` are not the same: a pause has no result, an unlock has none to tell.
    #[serde(default, deserialize_with = "present")]
    pub(crate) returns: Option<Value>,
    pub(crate) error: Option<RecordedError>,
    pub(crate) elapsed_ms: Option<Range>,
    pub(crate) keyspace: BTreeMap<String, Entry>,
    pub(crate) published: Vec<Message>,
    #[serde(default)]
    pub(crate) published_match: PublishedMatch,
    /// For information only.
    #[serde(rename = "subscribed", default)]
    _subscribed: Value,
    /// For information only.
    #[serde(rename = "transient", default)]
    _transient: Value,
    /// From the start of the scenario to the reading of the keyspace.
    pub(crate) t_ms: f64,
}

impl Step {
    /// Whole milliseconds under this name in `args`.
    pub(crate) fn ms(&self, name: &str) -> Option<i64> {
        self.args.get(name).and_then(Value::as_i64)
    }

    /// Whether the operation is started here and awaited by a later step.
    pub(crate) fn starts_handle(&self) -> Option<&str> {
        if self.op == "await" && self.object.is_none() { None } else { self.handle.as_deref() }
    }

    /// The handle an `await` step names.
    pub(crate) fn awaits_handle(&self) -> Option<&str> {
        if self.op == "await" && self.object.is_none() { self.handle.as_deref() } else { None }
    }
}

/// `sync`: recorded through the blocking form of the call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Api {
    Sync,
}

/// How a failed call failed.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct RecordedError {
    #[serde(rename = "type")]
    pub(crate) kind: String,
    /// Texts are Java's; only the type is compared.
    #[serde(rename = "message", default)]
    _message: Option<String>,
    pub(crate) redis_code: Option<String>,
}

impl RecordedError {
    /// An error of this type, as if it had been recorded.
    pub(crate) fn of(kind: &str) -> Self {
        Self { kind: kind.to_owned(), _message: None, redis_code: None }
    }
}

/// Lowest and highest, both allowed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(from = "(i64, i64)")]
pub(crate) struct Range {
    pub(crate) min: i64,
    pub(crate) max: i64,
}

impl From<(i64, i64)> for Range {
    fn from((min, max): (i64, i64)) -> Self {
        Self { min, max }
    }
}

/// One published message.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Message {
    pub(crate) channel: String,
    pub(crate) payload: String,
}

/// How two lists of messages are compared.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum PublishedMatch {
    #[default]
    Exact,
    AnyOrder,
    Dedup,
}

/// One key of the database.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(try_from = "RawEntry")]
pub(crate) struct Entry {
    pub(crate) value: Content,
    pub(crate) ttl: Ttl,
}

/// What a key holds. Texts may carry placeholders.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Content {
    Text(String),
    Hash(BTreeMap<String, Field>),
    List(Vec<String>),
    Set(Vec<String>),
    Zset(BTreeMap<String, Score>),
}

/// A value of a hash.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(untagged)]
pub(crate) enum Field {
    Text(String),
    /// Milliseconds from the clock at the start of the step.
    Offset(Range),
}

/// A score of a sorted set.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(untagged)]
pub(crate) enum Score {
    Exact(i64),
    /// Milliseconds from the clock at the start of the step.
    Offset(Range),
    /// Unix milliseconds, reckoned from this replay's own clock.
    #[serde(skip)]
    Reckoned(Range),
}

/// The time a key has left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ttl {
    Never,
    /// As recorded; a slow replay may lower the minimum.
    Recorded(Range),
    /// Reckoned from this replay's own clock.
    Reckoned(Range),
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawEntry {
    #[serde(rename = "type")]
    kind: String,
    value: Value,
    pttl: Value,
}

impl TryFrom<RawEntry> for Entry {
    type Error = serde_json::Error;

    fn try_from(raw: RawEntry) -> Result<Self, Self::Error> {
        use serde::de::Error;
        use serde_json::from_value;
        let value = match raw.kind.as_str() {
            "string" => Content::Text(from_value(raw.value)?),
            "hash" => Content::Hash(from_value(raw.value)?),
            "list" => Content::List(from_value(raw.value)?),
            "set" => Content::Set(from_value(raw.value)?),
            "zset" => Content::Zset(from_value(raw.value)?),
            other => return Err(Self::Error::custom(format!("unknown type of key: {other}"))),
        };
        let ttl = match raw.pttl.as_i64() {
            Some(-1) => Ttl::Never,
            _ => Ttl::Recorded(from_value(raw.pttl)?),
        };
        Ok(Self { value, ttl })
    }
}

/// Every scenario of the `.json` files in these directories, in the order of the file names.
pub(crate) fn load(directories: &[PathBuf]) -> Outcome<Vec<Scenario>> {
    let mut scenarios = Vec::new();
    for directory in directories {
        let files = vector_files(directory)?;
        if files.is_empty() {
            return Err(Failure::new(format!("{}: no .json files", directory.display())));
        }
        for file in files {
            scenarios.extend(read(&file)?);
        }
    }
    Ok(scenarios)
}

fn vector_files(directory: &Path) -> Outcome<Vec<PathBuf>> {
    let context = |error: std::io::Error| Failure::new(format!("{}: {error}", directory.display()));
    let mut files = Vec::new();
    for entry in fs::read_dir(directory).map_err(context)? {
        let path = entry.map_err(context)?.path();
        if path.extension().is_some_and(|extension| extension == "json") {
            files.push(path);
        }
    }
    files.sort();
    Ok(files)
}

fn read(file: &Path) -> Outcome<Vec<Scenario>> {
    let text = fs::read_to_string(file).map_err(|error| Failure::new(format!("{}: {error}", file.display())))?;
    parse(&text).map_err(|error| Failure::new(format!("{}: {error}", file.display())))
}

/// The scenarios of one file.
pub(crate) fn parse(text: &str) -> serde_json::Result<Vec<Scenario>> {
    serde_json::from_str(text)
}

fn present<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Value>, D::Error> {
    Value::deserialize(deserializer).map(Some)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The project's own copy of the vectors.
    fn own() -> Vec<Scenario> {
        load(&[PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/vectors"))]).expect("own vectors")
    }

    fn entry(text: &str) -> serde_json::Result<Entry> {
        serde_json::from_str(text)
    }

    #[test]
    fn every_own_vector_is_read() {
        let scenarios = own();
        assert_eq!(scenarios.len(), 199);
        assert!(scenarios.iter().all(|scenario| !scenario.steps.is_empty()));
    }

    #[test]
    fn no_result_and_a_null_result_are_told_apart() {
        let scenarios = own();
        let steps = || scenarios.iter().flat_map(|scenario| &scenario.steps);
        assert!(steps().filter(|step| step.op == "raw").all(|step| step.returns.is_none()));
        assert!(steps().filter(|step| step.op == "unlock").all(|step| step.returns == Some(Value::Null)));
    }

    #[test]
    fn a_field_nobody_reads_is_refused() {
        let text = r#"[{"name":"x","redisson_version":"","redis_version":"","clients":{},"steps":[],"extra":1,
            "config":{"lockWatchdogTimeout":1,"fairLockWaitTimeout":1,"codec":"string"}}]"#;
        let error = parse(text).expect_err("unknown field").to_string();
        assert!(error.contains("extra"), "{error}");
    }

    #[test]
    fn entries_of_every_type_are_read() {
        let range = Range { min: -5, max: 7 };
        assert_eq!(
            entry(r#"{"type":"zset","value":{"a":[-5,7],"b":922337203685477},"pttl":-1}"#).expect("zset"),
            Entry {
                value: Content::Zset(BTreeMap::from([
                    ("a".to_owned(), Score::Offset(range)),
                    ("b".to_owned(), Score::Exact(922_337_203_685_477)),
                ])),
                ttl: Ttl::Never,
            }
        );
        assert_eq!(
            entry(r#"{"type":"hash","value":{"f:expire_time":[-5,7],"g":"1"},"pttl":[1,2]}"#).expect("hash"),
            Entry {
                value: Content::Hash(BTreeMap::from([
                    ("f:expire_time".to_owned(), Field::Offset(range)),
                    ("g".to_owned(), Field::Text("1".to_owned())),
                ])),
                ttl: Ttl::Recorded(Range { min: 1, max: 2 }),
            }
        );
        assert!(entry(r#"{"type":"stream","value":"x","pttl":-1}"#).is_err());
        assert!(entry(r#"{"type":"string","value":"x","pttl":-2}"#).is_err());
    }
}
