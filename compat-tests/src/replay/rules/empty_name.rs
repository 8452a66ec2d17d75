//! `lock-name-empty`: Redisson takes a lock with the empty name, this crate refuses it.

use std::collections::HashSet;

use super::super::expect::{Expectation, ExpectedResult};
use super::super::format::{RecordedError, Step};
use crate::channel_of;

/// Every operation on the empty name fails with `Misuse::EmptyName` and leaves Redis as it was.
#[derive(Debug, Default)]
pub(super) struct EmptyName {
    /// Operations under way on the empty name.
    handles: HashSet<String>,
    /// The step last observed acts on, or awaits, the empty name.
    refused: bool,
    /// The scenario itself wrote under the empty key.
    written: bool,
}

/// Whether the step acts on the empty name.
pub(super) fn applies(step: &Step) -> bool {
    step.object.is_some() && step.key.as_deref() == Some("")
}

impl EmptyName {
    pub(super) fn observe(&mut self, step: &Step) {
        if applies(step)
            && let Some(handle) = step.starts_handle()
        {
            self.handles.insert(handle.to_owned());
        }
        self.written |= step.op == "raw" && super::exclusive::raw_words(step).any(str::is_empty);
        let awaited = step.awaits_handle().is_some_and(|handle| self.handles.contains(handle));
        self.refused = awaited || applies(step);
    }

    pub(super) fn adjust(&self, expected: &mut Expectation) {
        if !self.written {
            expected.keyspace.remove("");
        }
        if !self.refused {
            return;
        }
        if expected.result != ExpectedResult::None {
            expected.result = ExpectedResult::Error(RecordedError::of("Misuse::EmptyName"));
            expected.elapsed = None;
        }
        expected.published.retain(|message| message.channel != channel_of(""));
    }
}
