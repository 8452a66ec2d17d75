//! The results of operations on a lock that has departed from the recording.

use serde_json::{Value, json};

use super::super::super::expect::ExpectedResult;
use super::super::super::format::{Range, RecordedError};
use super::super::holds::{Owner, Span};
use super::super::{Facts, is_acquire};
use super::{Acquire, State};

/// The longest time a waiter takes to notice that a lock has freed itself.
const NOTICED: i64 = 500;

impl State {
    /// The result of an operation; none when the recorded one stands or either would be right.
    pub(super) fn predict(&mut self, acquire: &Acquire, facts: &Facts<'_>) -> Option<ExpectedResult> {
        let op = acquire.op.as_str();
        if let ("tryLockAndGetToken" | "lockAndGetToken", Some(Ok(Value::Number(_)))) = (op, &facts.seen.result)
            && !self.departed()
        {
            return Some(ExpectedResult::Value(self.fence.next().into()));
        }
        if op == "getToken" {
            return Some(ExpectedResult::Value(self.fence.token().unwrap_or(0).into()));
        }
        if !self.departed() {
            return None;
        }
        if !self.lock.is_certain(facts.asked) {
            return Some(match facts.seen.result.as_ref()? {
                Ok(value) => ExpectedResult::Value(value.clone()),
                Err(_) if is_acquire(op) => ExpectedResult::Error(RecordedError::of("AlreadyHeld")),
                Err(_) => not_owner(),
            });
        }
        let owner = &acquire.owner;
        let count = self.lock.count();
        let held_by = |owner: &Owner| self.lock.owner() == Some(owner) && count > 0;
        let mine = held_by(owner);
        let value: Value = match op {
            op if is_acquire(op) && mine && !acquire.kind.reenters() => {
                return Some(ExpectedResult::Error(RecordedError::of("AlreadyHeld")));
            }
            "tryLock" => self.predict_try(acquire, mine, facts)?.into(),
            "tryLockAndGetToken" => match self.predict_try(acquire, mine, facts)? {
                true => self.fence.next().into(),
                false => Value::Null,
            },
            "lockAndGetToken" => self.fence.next().into(),
            // To a fair lock that nobody holds it is no error.
            "unlock" if !(mine || count == 0 && acquire.kind.is_fair()) => return Some(not_owner()),
            "unlock" => Value::Null,
            "forceUnlock" | "delete" | "isLocked" => (count > 0).into(),
            "isHeldByThread" => held_by(&Owner::new(facts.step.client.as_deref()?, facts.step.ms("thread")?)).into(),
            "isHeldByCurrentThread" => mine.into(),
            "getHoldCount" => if mine { count } else { 0 }.into(),
            "remainTimeToLive" => match self.lock.held(facts.asked, facts.behind).map(|held| held.pttl) {
                None => (-2).into(),
                Some(None) => (-1).into(),
                Some(Some(Range { min, max })) => json!({ "ms": [min, max] }),
            },
            _ => return None,
        };
        Some(ExpectedResult::Value(value))
    }

    fn predict_try(&self, acquire: &Acquire, mine: bool, facts: &Facts<'_>) -> Option<bool> {
        if mine {
            return Some(true);
        }
        let Span { lo, .. } = facts.asked;
        let gives_up = lo.saturating_add(acquire.wait.unwrap_or_default());
        let queued = acquire.kind.is_fair() && self.is_first_other(acquire, facts);
        if self.lock.count() == 0 && !queued {
            return Some(true);
        }
        match self.lock.frees_itself() {
            None if self.lock.count() > 0 => Some(false),
            _ if acquire.wait.is_none() => Some(false),
            Some(free) if gives_up < free.lo => Some(false),
            Some(free) if gives_up > free.hi.saturating_add(NOTICED) && !queued => Some(true),
            // Free in time, or behind others of whom it is not known how long they take.
            _ => match &facts.seen.result {
                Some(Ok(Value::Bool(granted))) => Some(*granted),
                _ => None,
            },
        }
    }

    /// Whether somebody else was to have the lock first when the operation began.
    fn is_first_other(&self, acquire: &Acquire, facts: &Facts<'_>) -> bool {
        let now = facts.on_wall_clock(facts.asked).lo;
        self.queue.head(now).is_some_and(|head| head != acquire.owner.field())
    }
}

fn not_owner() -> ExpectedResult {
    ExpectedResult::Error(RecordedError::of("IllegalMonitorStateException"))
}
