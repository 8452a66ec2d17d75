//! What the Java side showed in a step, as a step of a recorded scenario.
//!
//! The times in it are those that the other side must show: Redisson's own, moved by how much the two sides were apart
//! when they did what set them.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

use super::call::{Op, Step};
use super::side::{Answer, Clock, Observed};
use crate::replay::names::Names;
use crate::replay::snapshot::{Found, FoundContent};
use crate::replay::{format, rules};
use crate::{Failure, Outcome};

/// Milliseconds between what Redis does for a waiter and its hearing of it.
const GRAIN: i64 = 45;
/// A time that has moved by less than this was not set anew.
const SAME: i64 = 5;
/// A call that took less did not wait.
const WAITED: i64 = 45;
/// How much sooner and later than Redisson's a wait may end. The planner's times bound it as well.
const SOONER: i64 = 250;
const LATER: i64 = 300;

/// By how many milliseconds a time of the other side may differ from Redisson's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Shift {
    lo: i64,
    hi: i64,
}

/// The times that were set earlier and still stand, by key and member.
#[derive(Debug, Default)]
pub(crate) struct Times {
    known: BTreeMap<(String, Option<String>), Known>,
}

#[derive(Clone, Copy, Debug)]
struct Known {
    java: i64,
    other: i64,
    shift: Shift,
}

/// What a step showed on one side.
#[derive(Clone, Copy)]
pub(crate) struct View<'a> {
    pub(crate) observed: &'a Observed,
    pub(crate) names: &'a Names,
}

/// A step as it was performed; `begun` is when the call began that it awaits.
pub(crate) struct Recording<'a> {
    pub(crate) step: &'a Step,
    pub(crate) begun: Option<i64>,
    pub(crate) java: View<'a>,
    pub(crate) other: View<'a>,
    pub(crate) clock: &'a Clock,
    /// How much slower than planned everything is.
    pub(crate) stretch: i64,
}

impl Recording<'_> {
    /// The recorded step that the other side is compared with.
    pub(crate) fn step(&self, times: &mut Times) -> Outcome<format::Step> {
        let mut step = self.step.to_json();
        let shift = self.shift();
        // The answer about a TTL needs the shift of the step before as long as the TTL was not set anew.
        let before = std::mem::take(&mut times.known);
        let keyspace = self.keyspace(&before, times, shift);
        if let Some(answer) = &self.java.observed.answer {
            self.outcome(answer, &before, shift, &mut step);
        } else if self.step.starts_handle() {
            step.insert("returns".to_owned(), json!({"pending": true}));
        }
        step.insert("keyspace".to_owned(), keyspace);
        self.published(&mut step);
        step.insert("t_ms".to_owned(), self.java.observed.read.lo.into());
        let text = Value::Object(step);
        serde_json::from_value(text.clone()).map_err(|error| Failure::new(format!("{error} in {text}")))
    }

    fn outcome(
        &self,
        answer: &Answer,
        before: &BTreeMap<(String, Option<String>), Known>,
        shift: Shift,
        step: &mut Map<String, Value>,
    ) {
        match &answer.result {
            Ok(value) => {
                let value = self.ttl(answer, value, before, shift).unwrap_or_else(|| value.clone());
                step.insert("returns".to_owned(), value);
            }
            Err(error) => {
                step.insert("error".to_owned(), json!({"type": error.class, "message": error.text}));
            }
        }
        let took = answer.at - self.begun.unwrap_or(self.java.observed.begun);
        if took > WAITED {
            step.insert("elapsed_ms".to_owned(), json!([took - SOONER * self.stretch, took + LATER * self.stretch]));
        }
    }

    /// The range for an answer that is a TTL.
    fn ttl(
        &self,
        answer: &Answer,
        value: &Value,
        before: &BTreeMap<(String, Option<String>), Known>,
        shift: Shift,
    ) -> Option<Value> {
        let Op::Call(call) = &self.step.op else { return None };
        let ttl = value.as_i64().filter(|ttl| call.op == "remainTimeToLive" && *ttl >= 0)?;
        let known = before.get(&(call.name.clone(), None)).map_or(shift, |known| known.shift);
        let asked = self.other.observed.answer.as_ref().map_or(answer.at, |other| other.at);
        let moved = ttl + answer.at - asked;
        Some(json!({"ms": [moved + known.lo - GRAIN, moved + known.hi + GRAIN]}))
    }

    fn keyspace(&self, before: &BTreeMap<(String, Option<String>), Known>, times: &mut Times, shift: Shift) -> Value {
        let mut keyspace = Map::new();
        for (key, found) in &self.java.observed.snapshot {
            let name = self.java.names.contract(key);
            let other = self.other_key(&name);
            let mut moved = |id: (String, Option<String>), java: i64, other: Option<i64>| {
                let other = other.unwrap_or(java);
                let stands = before
                    .get(&id)
                    .filter(|known| (known.java - java).abs() <= SAME && (known.other - other).abs() <= SAME);
                let anew = if id.1.is_some() || is_read_write(found) { inherited(before, &id.0, shift) } else { shift };
                let shift = stands.map_or(anew, |known| known.shift);
                times.known.insert(id, Known { java, other, shift });
                shift
            };
            let pttl = self.pttl(&name, found, other, &mut moved);
            let value = self.content(&name, found, other, &mut moved);
            let kind = found.content.kind();
            keyspace.insert(name, json!({"type": kind, "value": value, "pttl": pttl}));
        }
        Value::Object(keyspace)
    }

    fn pttl(
        &self,
        name: &str,
        found: &Found,
        other: Option<&Found>,
        moved: &mut impl FnMut((String, Option<String>), i64, Option<i64>) -> Shift,
    ) -> Value {
        if found.pttl < 0 {
            return found.pttl.into();
        }
        let (java_read, other_read) = (self.java.observed.read, self.other.observed.read);
        let other_ends = other.map(|other| other_read.lo + other.pttl);
        let shift = moved((name.to_owned(), None), java_read.lo + found.pttl, other_ends);
        json!([
            java_read.lo + found.pttl + shift.lo - other_read.hi,
            java_read.hi + found.pttl + shift.hi - other_read.lo,
        ])
    }

    fn content(
        &self,
        name: &str,
        found: &Found,
        other: Option<&Found>,
        moved: &mut impl FnMut((String, Option<String>), i64, Option<i64>) -> Shift,
    ) -> Value {
        let text = |bytes: &[u8]| Value::from(self.java.names.contract(bytes));
        let pairs = |map: &BTreeMap<Vec<u8>, Vec<u8>>| {
            map.iter().map(|(field, value)| (self.java.names.contract(field), text(value))).collect::<Map<_, _>>()
        };
        match &found.content {
            FoundContent::Text(value) => text(value),
            FoundContent::Hash(fields) => pairs(fields).into(),
            FoundContent::List(members) | FoundContent::Set(members) => {
                members.iter().map(|member| text(member)).collect()
            }
            FoundContent::Zset(scores) => {
                let others = other.map(|other| self.scores(other)).unwrap_or_default();
                let offset = self.clock.wall(self.other.observed.begun);
                let score = |(member, score): (&Vec<u8>, &Vec<u8>)| {
                    let member = self.java.names.contract(member);
                    let Some(score) = number(score) else { return (member, text(score)) };
                    let id = (name.to_owned(), Some(member.clone()));
                    let shift = moved(id, score, others.get(&member).copied());
                    (member, json!([score - offset + shift.lo, score - offset + shift.hi]))
                };
                scores.iter().map(score).collect::<Map<_, _>>().into()
            }
            FoundContent::Other(kind) => kind.as_str().into(),
        }
    }

    fn scores(&self, other: &Found) -> BTreeMap<String, i64> {
        let FoundContent::Zset(scores) = &other.content else { return BTreeMap::new() };
        let score = |(member, score): (&Vec<u8>, &Vec<u8>)| Some((self.other.names.contract(member), number(score)?));
        scores.iter().filter_map(score).collect()
    }

    fn other_key(&self, name: &str) -> Option<&Found> {
        let snapshot = &self.other.observed.snapshot;
        snapshot.iter().find(|(key, _)| self.other.names.contract(key) == name).map(|(_, found)| found)
    }

    fn published(&self, step: &mut Map<String, Value>) {
        let text = |bytes: &[u8]| self.java.names.contract(bytes);
        let heard = &self.java.observed.heard;
        let message = |heard: &crate::replay::listener::Heard| json!({"channel": text(&heard.channel), "payload": text(&heard.payload)});
        step.insert("published".to_owned(), heard.iter().map(message).collect());
        // Locks that free themselves within one step have no order among each other.
        if heard.windows(2).any(|pair| pair[0].channel != pair[1].channel) {
            step.insert("published_match".to_owned(), "any_order".into());
        }
    }

    /// How far apart the two sides were in this step.
    fn shift(&self) -> Shift {
        let (java, other) = (self.java.observed, self.other.observed);
        let mut apart = vec![0, other.begun - java.begun];
        let mut exact = !self.step.starts_handle();
        if let (Some(java_answer), Some(other_answer)) = (&java.answer, &other.answer) {
            apart.push(other_answer.at - java_answer.at);
            // Redis was asked some time between the beginning and the answer.
            if self.step.ends == self.step.at && !matches!(self.step.op, Op::Await(_)) {
                apart.extend([other.begun - java_answer.at, other_answer.at - java.begun]);
            } else {
                exact = false;
            }
        } else {
            apart.extend([other.begun - java.done, other.done - java.begun]);
        }
        for ended in &java.ended {
            let same = other.ended.iter().find(|other| other.started == ended.started);
            apart.extend(same.map(|same| same.answer.at - ended.answer.at));
            exact = false;
        }
        let (lo, hi) = apart.iter().fold((0, 0), |(lo, hi), apart| (*apart.min(&lo), *apart.max(&hi)));
        let grain = if exact { SAME } else { GRAIN * self.stretch };
        Shift { lo: lo - grain, hi: hi + grain }
    }
}

/// The main key of a read/write lock: its time is reckoned from those of its holds.
fn is_read_write(found: &Found) -> bool {
    matches!(&found.content, FoundContent::Hash(fields) if fields.contains_key(&b"mode"[..]))
}

/// A time that was reckoned from others of the same lock is off by what they are off by as well: a place in a queue begins
/// where the hold before it ends, a second write lease where the first does.
fn inherited(before: &BTreeMap<(String, Option<String>), Known>, key: &str, shift: Shift) -> Shift {
    let related = before.iter().filter(|((other, _), _)| other.contains(key) || key.contains(other.as_str()));
    related.fold(shift, |widest, (_, known)| Shift {
        lo: widest.lo.min(shift.lo + known.shift.lo),
        hi: widest.hi.max(shift.hi + known.shift.hi),
    })
}

fn number(stored: &[u8]) -> Option<i64> {
    std::str::from_utf8(stored).ok()?.parse().ok()
}

/// What the rules want to know of calls in the background that have ended.
pub(crate) fn ended(observed: &Observed) -> Vec<rules::Ended> {
    let ended = observed.ended.iter().map(|ended| rules::Ended {
        handle: super::call::handle(ended.started),
        at: ended.answer.at + 1,
        granted: rules::is_granted(ended.op, &ended.answer.result),
    });
    ended.collect()
}

#[cfg(test)]
mod tests;
