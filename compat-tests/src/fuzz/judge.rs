//! Compares a side with the Java side, step by step, by the rules of the replay.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use serde_json::json;

use super::call::{CLIENTS, Op, Step};
use super::forecast::{Language, PATIENCE_MS, WATCHDOG_MS};
use super::record::{Recording, Times, View, ended};
use super::side::{Answer, Clock, Observed, Plan};
use crate::Outcome;
use crate::replay::compare::{Context, Scope, differences};
use crate::replay::expect::{Expectation, Seen};
use crate::replay::format;
use crate::replay::names::{Bindings, Names};
use crate::replay::protocol::CallError;
use crate::replay::rules::{Facts, Rule, Rules, Span, is_acquire};

/// The judge of one side in one round.
pub(crate) struct Judge {
    plan: Plan,
    rules: Rules,
    stretch: i64,
    times: Times,
    /// The steps that began something, and when that began here.
    begun: BTreeMap<usize, (format::Step, i64)>,
    /// When it began on the Java side.
    begun_in_java: BTreeMap<usize, i64>,
}

/// What a step came to.
pub(crate) enum Verdict {
    /// As in Java, or as these rules say.
    Fits(BTreeSet<Rule>),
    Differs(Vec<String>),
}

impl Judge {
    pub(crate) fn new(plan: Plan, stretch: i64) -> Outcome<Self> {
        let clients: BTreeMap<_, _> = CLIENTS.iter().map(|client| (*client, "")).collect();
        let scenario = json!({
            "name": "fuzz", "redisson_version": "", "redis_version": "", "clients": clients, "steps": [],
            "config": {"lockWatchdogTimeout": WATCHDOG_MS, "fairLockWaitTimeout": PATIENCE_MS, "codec": "string"},
        });
        let of_java = CLIENTS.iter().zip(&plan.cast).filter(|(_, speaks)| **speaks == Language::Java);
        let rules = Rules::beside(&serde_json::from_value(scenario)?, of_java.map(|(client, _)| *client));
        Ok(Self {
            plan,
            rules,
            stretch,
            times: Times::default(),
            begun: BTreeMap::new(),
            begun_in_java: BTreeMap::new(),
        })
    }

    pub(crate) fn judge(&mut self, step: &Step, java: View<'_>, here: View<'_>, clock: &Clock) -> Outcome<Verdict> {
        let awaited = match &step.op {
            Op::Await(started) => Some(*started),
            _ => None,
        };
        let begun_in_java = awaited.and_then(|started| self.begun_in_java.get(&started).copied());
        let recording = Recording { step, begun: begun_in_java, java, other: here, clock, stretch: self.stretch };
        let recorded = recording.step(&mut self.times)?;
        if step.starts_handle() {
            self.begun.insert(step.number, (recorded.clone(), here.observed.begun));
            self.begun_in_java.insert(step.number, java.observed.begun);
        }
        let begun = awaited.and_then(|started| self.begun.get(&started));
        let operation = begun.map_or(&recorded, |(begun_by, _)| begun_by);
        let seen = self.seen(step, operation, here.observed, begun.map(|(_, at)| *at));
        let ended = ended(here.observed);
        let clock_at = clock.wall(here.observed.begun);
        let facts = Facts {
            step: &recorded,
            names: here.names,
            seen: &seen,
            asked: asked(here.observed),
            read: here.observed.read,
            ended: &ended,
            behind: 0,
            clock: clock_at,
        };
        self.rules.observe(&facts);
        let expected = Expectation::recorded(&recorded, operation);
        let context = Context { names: here.names, behind: 0, clock: clock_at };
        let verdict = self.verdict(&expected, &seen, &context);
        if matches!(verdict, Verdict::Fits(_)) {
            self.rules.passed(&facts);
        }
        Ok(verdict)
    }

    fn verdict(&self, expected: &Expectation, seen: &Seen, context: &Context<'_>) -> Verdict {
        let found = |expected: &Expectation| {
            // Locks that are handed over within a process publish nothing.
            let scope = if self.plan.handoff { Scope::GrantsAndEndState { last: true } } else { Scope::Everything };
            differences(expected, seen, context, scope, &mut Bindings::default())
        };
        let by_rules = found(&self.rules.adjusted(expected, None));
        if !by_rules.is_empty() {
            return Verdict::Differs(by_rules);
        }
        let needed = |rule: &Rule| !found(&self.rules.adjusted(expected, Some(*rule))).is_empty();
        Verdict::Fits(Rule::ALL.into_iter().filter(needed).collect())
    }

    fn seen(&self, step: &Step, operation: &format::Step, observed: &Observed, begun: Option<i64>) -> Seen {
        let speaks = |client: usize| self.plan.cast[client];
        let answer = observed.answer.as_ref();
        let result = answer.map(|answer| match (&answer.result, &step.op) {
            (Err(error), Op::Call(call)) if speaks(call.owner.client) == Language::Java => {
                Err(in_our_words(error, &operation.op))
            }
            (Err(error), _) if error.class == JAVA_ERROR => Err(in_our_words(error, &operation.op)),
            (result, _) => result.clone(),
        });
        let since = begun.unwrap_or(observed.begun);
        let took = answer.map(|Answer { at, .. }| Duration::from_millis(u64::try_from(at - since).unwrap_or(0)));
        // A wait is told in whole milliseconds: one that ends in the same as it should has not ended early.
        let took = took.map(|took| (took + Duration::from_millis(1), took));
        Seen { result, took, snapshot: observed.snapshot.clone(), heard: observed.heard.clone() }
    }
}

const JAVA_ERROR: &str = "IllegalMonitorStateException";

/// Redisson's exception as the error of this crate that means the same.
fn in_our_words(error: &CallError, op: &str) -> CallError {
    let class = match error.class.as_str() {
        JAVA_ERROR if is_acquire(op) => "AlreadyHeld",
        JAVA_ERROR => "NotOwner",
        class => class,
    };
    CallError { class: class.to_owned(), ..error.clone() }
}

fn asked(observed: &Observed) -> Span {
    let answered = observed.answer.as_ref().map_or(observed.begun, |answer| answer.at.max(observed.begun));
    Span { lo: observed.begun, hi: answered + 1 }
}

/// What the Java side showed, in words.
pub(crate) fn described(observed: &Observed, names: &Names) -> Vec<String> {
    let mut lines = Vec::new();
    if let Some(answer) = &observed.answer {
        lines.push(match &answer.result {
            Ok(value) => format!("returned {value}"),
            Err(error) => format!("failed with {} ({})", error.class, error.text),
        });
    }
    for (key, found) in &observed.snapshot {
        let content = names.contract(format!("{:?}", crate::replay::compare::described(found)).as_bytes());
        lines.push(format!("{:?}: {content}", names.contract(key)));
    }
    for heard in &observed.heard {
        let (channel, payload) = (names.contract(&heard.channel), names.contract(&heard.payload));
        lines.push(format!("published {payload:?} on {channel:?}"));
    }
    if lines.is_empty() {
        lines.push("an empty database".to_owned());
    }
    lines
}
