//! The end of a wait that a step begins and another one awaits.

use std::collections::BTreeSet;

use super::super::expect::{Expectation, ExpectedResult};
use super::Rule;

/// What an `await` must show of a wait for a lock that departed from the recording at some time during the wait.
#[derive(Debug, Default)]
pub(super) struct Awaited {
    /// Why it departed; none if it did not.
    pub(super) causes: BTreeSet<Rule>,
    /// The result, if another one than that recorded would be right.
    pub(super) result: Option<ExpectedResult>,
}

impl Awaited {
    pub(super) fn adjust(&self, expected: &mut Expectation, without: Option<Rule>) {
        if self.causes.is_empty() || without.is_some_and(|rule| self.causes.contains(&rule)) {
            return;
        }
        expected.elapsed = None;
        if let Some(result) = &self.result {
            expected.result = result.clone();
        }
    }
}
