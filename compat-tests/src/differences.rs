use std::fs;
use std::path::Path;

use serde::Deserialize;

use crate::Outcome;

/// A known mismatch between Redisson and this crate, as `differences.toml` lists it.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct Difference {
    /// The cases of `tests/trace.rs` that show it.
    pub cases: Vec<String>,
    /// The Redisson versions that show it.
    pub redisson: Vec<String>,
    /// Effects that only Java has.
    #[serde(default)]
    pub java: Vec<String>,
    /// Effects that only Rust has.
    #[serde(default)]
    pub rust: Vec<String>,
    /// Why it stays.
    pub reason: String,
    /// Where Redisson does its part: file and line in the sources of the version named there.
    pub source: String,
}

/// The list, as it stands in `differences.toml`.
pub fn differences() -> Outcome<Vec<Difference>> {
    #[derive(Deserialize)]
    #[serde(deny_unknown_fields)]
    struct List {
        difference: Vec<Difference>,
    }
    let text = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("differences.toml"))?;
    Ok(toml::from_str::<List>(&text)?.difference)
}
