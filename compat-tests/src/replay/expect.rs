//! What a step must show, and what it showed.

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::Value;

use super::format::{Entry, Message, PublishedMatch, Range, RecordedError, Step};
use super::listener::Heard;
use super::protocol::CallError;
use super::rules::is_acquire;
use super::snapshot::Snapshot;

/// All a step must show.
#[derive(Clone, Debug)]
pub(crate) struct Expectation {
    pub(crate) result: ExpectedResult,
    pub(crate) elapsed: Option<Range>,
    /// A wait that gives up must not end before.
    pub(crate) patience: Option<i64>,
    pub(crate) keyspace: BTreeMap<String, Entry>,
    pub(crate) published: Vec<Message>,
    pub(crate) matching: PublishedMatch,
}

/// The end of the step's operation.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum ExpectedResult {
    /// The step has none, or it is awaited later.
    None,
    Value(Value),
    Error(RecordedError),
}

impl Expectation {
    /// As recorded. `operation` is the step that began what this one ends (itself, but for an `await`).
    pub(crate) fn recorded(step: &Step, operation: &Step) -> Self {
        let result = match (&step.error, &step.returns) {
            _ if step.starts_handle().is_some() => ExpectedResult::None,
            // Java has one error for both: no hold to release, and a hold that must not be taken twice.
            (Some(error), _) if error.kind == "IllegalMonitorStateException" && is_acquire(&operation.op) => {
                ExpectedResult::Error(RecordedError::of("AlreadyHeld"))
            }
            (Some(error), _) => ExpectedResult::Error(error.clone()),
            (None, Some(value)) => ExpectedResult::Value(value.clone()),
            (None, None) => ExpectedResult::None,
        };
        Self {
            result,
            elapsed: step.elapsed_ms,
            patience: operation.ms("wait_ms").filter(|_| operation.op != "lock"),
            keyspace: step.keyspace.clone(),
            published: step.published.clone(),
            matching: step.published_match,
        }
    }
}

/// All a step showed.
#[derive(Clone, Debug)]
pub(crate) struct Seen {
    pub(crate) result: Option<Result<Value, CallError>>,
    /// How long the operation took, and how long it was until the step that awaits it had it.
    pub(crate) took: Option<(Duration, Duration)>,
    pub(crate) snapshot: Snapshot,
    pub(crate) heard: Vec<Heard>,
}
