//! The results of operations on a read/write lock that has departed from the recording.

use serde_json::{Value, json};

use super::super::super::expect::ExpectedResult;
use super::super::super::format::RecordedError;
use super::super::{Facts, is_acquire};
use super::{Acquire, Role, State};

/// The longest time a waiter takes to notice that a lock has freed itself.
const NOTICED: i64 = 500;

impl State {
    /// The result of an operation; none when the recorded one stands or either would be right.
    pub(super) fn predict(&self, acquire: &Acquire, facts: &Facts<'_>) -> Option<ExpectedResult> {
        if self.causes.is_empty() {
            return None;
        }
        if !self.pair.is_certain(facts.asked) {
            return Some(match facts.seen.result.as_ref()? {
                Ok(value) => ExpectedResult::Value(value.clone()),
                Err(_) => not_owner(),
            });
        }
        let (owner, role) = &acquire.holder;
        let count = self.pair.count(owner, *role);
        let written = self.pair.writer().is_some();
        let value: Value = match acquire.op.as_str() {
            op if is_acquire(op) && op != "lock" => self.predict_try(acquire, facts)?.into(),
            "unlock" if count == 0 => return Some(not_owner()),
            "unlock" => Value::Null,
            "forceUnlock" | "delete" => (!self.pair.is_free() && written == (*role == Role::Write)).into(),
            "isLocked" => match role {
                Role::Write => written,
                Role::Read => !self.pair.is_free() && (!written || self.pair.holders().count() > 1),
            }
            .into(),
            "isHeldByThread" => {
                let thread = facts.step.ms("thread")?;
                (self.pair.count(&format!("${}:{thread}", acquire.client), *role) > 0).into()
            }
            "isHeldByCurrentThread" => (count > 0).into(),
            "getHoldCount" => count.into(),
            "remainTimeToLive" if self.pair.is_free() => (-2).into(),
            "remainTimeToLive" => match self.pair.ttl(facts.asked, facts.behind) {
                None => (-1).into(),
                Some(range) => json!({ "ms": [range.min, range.max] }),
            },
            _ => return None,
        };
        Some(ExpectedResult::Value(value))
    }

    fn predict_try(&self, acquire: &Acquire, facts: &Facts<'_>) -> Option<bool> {
        let (owner, role) = &acquire.holder;
        if self.pair.admits(owner, *role) {
            return Some(true);
        }
        let gives_up = facts.asked.lo.saturating_add(acquire.wait.unwrap_or_default());
        match self.pair.frees_itself() {
            None => Some(false),
            Some(free) if gives_up < free.lo => Some(false),
            Some(free) if gives_up > free.hi.saturating_add(NOTICED) => Some(true),
            Some(_) => match &facts.seen.result {
                Some(Ok(Value::Bool(granted))) => Some(*granted),
                _ => None,
            },
        }
    }
}

fn not_owner() -> ExpectedResult {
    ExpectedResult::Error(RecordedError::of("IllegalMonitorStateException"))
}
