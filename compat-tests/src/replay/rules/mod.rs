//! Deliberate differences: each is a rule that says when it applies and what must be seen instead. Comparison goes on
//! from there.

mod absent;
mod empty_name;
mod holds;
mod reentry;
mod table;

use super::expect::{Expectation, Seen};
use super::format::{Scenario, Step};
use super::names::Names;
use super::protocol::CallError;

pub(crate) use absent::perform as perform_absent;
pub(crate) use holds::Span;
pub(crate) use table::{Table, TableRule};

/// A rule, by the name the design gives it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Rule {
    /// Re-entry, renewal and partial release never shorten what a live hold was promised.
    Reentry,
    /// An operation the crate does not have on purpose.
    Absent,
    /// The empty name is refused.
    EmptyName,
}

impl Rule {
    pub(crate) const ALL: [Self; 3] = [Self::Reentry, Self::Absent, Self::EmptyName];

    pub(crate) fn id(self) -> &'static str {
        match self {
            Self::Reentry => "1.6",
            Self::Absent => "absent-operation",
            Self::EmptyName => "lock-name-empty",
        }
    }
}

/// What is known of a step when it is over, before it is compared. Times are milliseconds since the scenario began.
#[derive(Clone, Debug)]
pub(crate) struct Facts<'a> {
    pub(crate) step: &'a Step,
    pub(crate) names: &'a Names,
    pub(crate) seen: &'a Seen,
    /// From before the operation was sent until its answer was there.
    pub(crate) asked: Span,
    /// While the keyspace was read.
    pub(crate) read: Span,
    /// Awaited operations whose end was heard of since the step before.
    pub(crate) ended: &'a [Ended],
    /// By how much this replay is behind the recording.
    pub(crate) behind: i64,
}

/// The end of an operation that a handle stands for.
#[derive(Clone, Debug)]
pub(crate) struct Ended {
    pub(crate) handle: String,
    pub(crate) at: i64,
    pub(crate) granted: bool,
}

/// The rules at work in one pass over a scenario.
#[derive(Debug)]
pub(crate) struct Rules {
    reentry: reentry::Reentry,
    empty_name: empty_name::EmptyName,
}

impl Rules {
    pub(crate) fn new(scenario: &Scenario) -> Self {
        let watchdog = i64::try_from(scenario.config.lock_watchdog_timeout).unwrap_or(i64::MAX);
        Self { reentry: reentry::Reentry::new(watchdog), empty_name: empty_name::EmptyName::default() }
    }

    /// Takes note of a step.
    pub(crate) fn observe(&mut self, facts: &Facts<'_>) {
        self.empty_name.observe(facts.step);
        if !empty_name::applies(facts.step) {
            self.reentry.observe(facts);
        }
    }

    /// What the step last observed must show, one rule left out if asked for.
    pub(crate) fn adjusted(&self, recorded: &Expectation, without: Option<Rule>) -> Expectation {
        let mut expected = recorded.clone();
        if without != Some(Rule::Reentry) {
            self.reentry.adjust(&mut expected);
        }
        if without != Some(Rule::EmptyName) {
            self.empty_name.adjust(&mut expected);
        }
        expected
    }

    /// The step last observed has passed.
    pub(crate) fn passed(&mut self, step: &Step, seen: &Seen, names: &Names) {
        self.reentry.passed(step, seen, names);
    }
}

/// Whether the operation ended with a hold for its caller.
pub(crate) fn is_granted(op: &str, result: &Result<serde_json::Value, CallError>) -> bool {
    match (op, result) {
        ("lock", Ok(_)) => true,
        ("tryLock", Ok(value)) => value == &serde_json::Value::Bool(true),
        _ => false,
    }
}
