//! What the replay and its client processes say to each other: one JSON object a line.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// The first line to a client process.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Start {
    pub(crate) url: String,
    pub(crate) client_id: String,
    pub(crate) watchdog_ms: u64,
    /// How long a waiter for a fair lock counts as alive if its wait has no bound.
    pub(crate) fair_patience_ms: u64,
    pub(crate) local_handoff: bool,
}

/// Every further line: an operation. Operations do not wait for each other.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Call {
    pub(crate) id: u64,
    pub(crate) kind: String,
    pub(crate) key: String,
    pub(crate) instance: Option<String>,
    pub(crate) thread: i64,
    pub(crate) op: String,
    pub(crate) args: Map<String, Value>,
}

/// A line from a client process.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) enum Line {
    /// The client is connected.
    Ready,
    /// The client could not be connected.
    Refused(String),
    /// The operation runs.
    Started { id: u64 },
    /// The operation has ended.
    Ended { id: u64, micros: u64, result: Result<Value, CallError> },
}

/// An error of the crate, taken apart.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct CallError {
    /// The variant; `Misuse` with its own: `Misuse::EmptyName`.
    pub(crate) class: String,
    /// First word of the server's error reply.
    pub(crate) code: Option<String>,
    pub(crate) text: String,
}

/// An operation of no lock: the call whose `id` is in `args` is cancelled. True when it was under way.
pub(crate) const CANCEL: &str = "cancel";

impl CallError {
    /// The caller has changed its mind.
    pub(crate) fn cancelled() -> Self {
        Self { class: "Cancelled".to_owned(), code: None, text: "cancelled".to_owned() }
    }

    /// The caller asked for something this replay cannot do; no recorded error is like it.
    pub(crate) fn replay(text: impl Into<String>) -> Self {
        Self { class: "Replay".to_owned(), code: None, text: text.into() }
    }
}
