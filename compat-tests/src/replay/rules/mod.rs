//! Deliberate differences: each is a rule that says when it applies and what must be seen instead. Comparison goes on
//! from there.

mod absent;
mod alike;
mod awaited;
mod empty_name;
mod exclusive;
mod holds;
mod keys;
mod shared;
#[cfg(test)]
mod story;
mod table;
mod view;

use std::collections::BTreeSet;

use serde_json::Value;

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
    /// Giving up a write hold is told although the owner reads on.
    Downgrade,
    /// The release of a read hold does not shorten the key while its owner writes.
    WriteKept,
    /// A fair waiter that gives up takes away the patience it was queued with.
    Patience,
    /// A place in a fair queue without a score is stale.
    Scoreless,
    /// Whoever becomes the head of a fair queue while the lock is free is told.
    HeadTold,
    /// A fair waiter whose time is over stands in line again by itself.
    Horizon,
    /// A fenced lock without an expiry is held, not granted with token -1.
    NoExpiry,
    /// The calls of a fenced lock do what their arguments say.
    Arguments,
    /// Every hold has a renewal of its own.
    OwnMode,
    /// Readers only ever raise the time the key has.
    RaiseOnly,
    /// A refused writer looks at all readers, and shortens the key to the last of them.
    Readers,
    /// An operation the crate does not have on purpose.
    Absent,
    /// The empty name is refused.
    EmptyName,
}

impl Rule {
    pub(crate) const ALL: [Self; 14] = [
        Self::Reentry,
        Self::Downgrade,
        Self::WriteKept,
        Self::Patience,
        Self::Scoreless,
        Self::HeadTold,
        Self::Horizon,
        Self::NoExpiry,
        Self::Arguments,
        Self::OwnMode,
        Self::RaiseOnly,
        Self::Readers,
        Self::Absent,
        Self::EmptyName,
    ];

    pub(crate) fn id(self) -> &'static str {
        match self {
            Self::Reentry => "1.6",
            Self::Downgrade => "1",
            Self::WriteKept => "2",
            Self::Patience => "8",
            Self::Scoreless => "10",
            Self::HeadTold => "11",
            Self::Horizon => "12",
            Self::NoExpiry => "13",
            Self::Arguments => "15",
            Self::OwnMode => "16",
            Self::RaiseOnly => "32",
            Self::Readers => "readers",
            Self::Absent => "absent-operation",
            Self::EmptyName => "lock-name-empty",
        }
    }

    /// Whether a lock may go on to differ for this reason although it looks as recorded for the moment.
    fn outlives_its_traces(self) -> bool {
        matches!(self, Self::Reentry | Self::Arguments)
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
    /// The wall clock when the step began, in Unix milliseconds.
    pub(crate) clock: i64,
}

impl Facts<'_> {
    /// The same times in Unix milliseconds.
    fn on_wall_clock(&self, span: Span) -> Span {
        let offset = self.clock - self.asked.lo;
        Span { lo: span.lo + offset - 1, hi: span.hi + offset + 1 }
    }
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
    exclusive: exclusive::Exclusive,
    shared: shared::Shared,
    empty_name: empty_name::EmptyName,
}

impl Rules {
    pub(crate) fn new(scenario: &Scenario) -> Self {
        Self::beside(scenario, [])
    }

    /// The same where some of the clients are Redisson's, as in the recording; what they do is never a difference, but they
    /// may meet one.
    pub(crate) fn beside<'a>(scenario: &Scenario, redisson: impl IntoIterator<Item = &'a str>) -> Self {
        let redisson: BTreeSet<String> = redisson.into_iter().map(str::to_owned).collect();
        let ms = |ms: u64| i64::try_from(ms).unwrap_or(i64::MAX);
        let (watchdog, patience) =
            (ms(scenario.config.lock_watchdog_timeout), ms(scenario.config.fair_lock_wait_timeout));
        Self {
            exclusive: exclusive::Exclusive::new(watchdog, patience, redisson.clone()),
            shared: shared::Shared::new(watchdog, redisson),
            empty_name: empty_name::EmptyName::default(),
        }
    }

    /// Takes note of a step.
    pub(crate) fn observe(&mut self, facts: &Facts<'_>) {
        self.empty_name.observe(facts.step);
        if !empty_name::applies(facts.step) {
            self.exclusive.observe(facts);
            self.shared.observe(facts);
        }
    }

    /// What the step last observed must show, one rule left out if asked for.
    pub(crate) fn adjusted(&self, recorded: &Expectation, without: Option<Rule>) -> Expectation {
        let mut expected = recorded.clone();
        self.exclusive.adjust(&mut expected, without);
        self.shared.adjust(&mut expected, without);
        if without != Some(Rule::EmptyName) {
            self.empty_name.adjust(&mut expected);
        }
        expected
    }

    /// The step last observed has passed.
    pub(crate) fn passed(&mut self, facts: &Facts<'_>) {
        self.exclusive.passed(facts);
        self.shared.passed(facts);
    }
}

/// Whether the operation asks for a hold.
pub(crate) fn is_acquire(op: &str) -> bool {
    matches!(op, "lock" | "lockAndGetToken" | "tryLock" | "tryLockAndGetToken")
}

/// Whether the operation ended with a hold for its caller.
pub(crate) fn is_granted(op: &str, result: &Result<Value, CallError>) -> bool {
    match (op, result) {
        ("lock" | "lockAndGetToken", Ok(_)) => true,
        ("tryLock", Ok(value)) => value == &Value::Bool(true),
        ("tryLockAndGetToken", Ok(value)) => value.is_number(),
        _ => false,
    }
}
