//! The difference between what a step must show and what it showed, in words.

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::Value;

use super::expect::{Expectation, ExpectedResult, Seen};
use super::format::{Content, Entry, Field, Message, PublishedMatch, Range, RecordedError, Score, Ttl};
use super::listener::Heard;
use super::names::{Bindings, Names, Pattern, holds_raw_permits};
use super::protocol::CallError;
use super::snapshot::{Found, FoundContent, Snapshot};

/// What texts and times are compared against.
#[derive(Clone, Debug)]
pub(crate) struct Context<'a> {
    pub(crate) names: &'a Names,
    /// By how many milliseconds this replay is behind the recording; lowers every minimum.
    pub(crate) behind: i64,
    /// The wall clock at the start of the step, in Unix milliseconds.
    pub(crate) clock: i64,
}

/// Which parts of a step are compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Scope {
    Everything,
    /// Results, and the keyspace if this is the scenario's last step.
    GrantsAndEndState {
        last: bool,
    },
}

/// Every difference in a sentence of its own; none when the step passes.
pub(crate) fn differences(
    expected: &Expectation,
    seen: &Seen,
    context: &Context<'_>,
    scope: Scope,
    bindings: &mut Bindings,
) -> Vec<String> {
    let mut comparison = Comparison { context, bindings, differences: Vec::new() };
    comparison.result(expected, seen);
    if matches!(scope, Scope::Everything) {
        comparison.elapsed(expected, seen);
    }
    if matches!(scope, Scope::Everything | Scope::GrantsAndEndState { last: true }) {
        comparison.keyspace(&expected.keyspace, &seen.snapshot);
    }
    if matches!(scope, Scope::Everything) {
        comparison.published(&expected.published, expected.matching, &seen.heard);
    }
    comparison.differences
}

struct Comparison<'a> {
    context: &'a Context<'a>,
    bindings: &'a mut Bindings,
    differences: Vec<String>,
}

impl Comparison<'_> {
    fn say(&mut self, difference: String) {
        self.differences.push(difference);
    }

    fn result(&mut self, expected: &Expectation, seen: &Seen) {
        match (&expected.result, &seen.result) {
            (ExpectedResult::None, None) => {}
            (ExpectedResult::Value(value), Some(Ok(returned))) if self.value_fits(value, returned) => {}
            (ExpectedResult::Error(error), Some(Err(failed))) if error_fits(error, failed) => {}
            (wanted, got) => {
                let (got, wanted) = (described_result(got.as_ref()), described_expected(wanted));
                self.say(format!("{got}, expected {wanted}"));
            }
        }
        let gave_up = matches!(&seen.result, Some(Ok(Value::Bool(false) | Value::Null)));
        if let (true, Some(patience), Some((took, _))) = (gave_up, expected.patience, seen.took)
            && matches!(&expected.result, ExpectedResult::Value(Value::Bool(false) | Value::Null))
            && i128::from(patience) > to_ms(took)
        {
            self.say(format!("gave up after {took:?}, before its wait of {patience} ms was over"));
        }
    }

    fn elapsed(&mut self, expected: &Expectation, seen: &Seen) {
        let (Some(range), Some((took, until_awaited))) = (expected.elapsed, seen.took) else { return };
        let fits = |time: Duration| (i128::from(range.min)..=i128::from(range.max)).contains(&to_ms(time));
        if !fits(took) && !fits(until_awaited) {
            self.say(format!("took {took:?}, expected {} ms", shown(range)));
        }
    }

    fn keyspace(&mut self, expected: &BTreeMap<String, Entry>, snapshot: &Snapshot) {
        let mut unexpected: BTreeMap<&[u8], &Found> = snapshot.iter().map(|(key, found)| (&key[..], found)).collect();
        for (key, entry) in expected {
            let pattern = self.context.names.pattern(key);
            let found = self.take(&mut unexpected, |bindings, key| pattern.matches(key, bindings), &pattern);
            match found {
                Some(found) => self.entry(key, entry, found),
                None => self.say(format!("key {key:?} is missing")),
            }
        }
        for (key, found) in unexpected {
            self.say(format!("key {:?} must not be there: {}", text(key), described(found)));
        }
    }

    /// Takes the entry whose name fits out of the map.
    fn take<'v, V: ?Sized>(
        &mut self,
        among: &mut BTreeMap<&'v [u8], &'v V>,
        mut fits: impl FnMut(&mut Bindings, &[u8]) -> bool,
        pattern: &Pattern,
    ) -> Option<&'v V> {
        if let Some(literal) = pattern.literal() {
            return among.remove(literal.as_bytes());
        }
        let name = among.keys().copied().find(|name| fits(self.bindings, name))?;
        among.remove(name)
    }

    fn entry(&mut self, key: &str, entry: &Entry, found: &Found) {
        self.ttl(key, entry.ttl, found.pttl);
        match (&entry.value, &found.content) {
            (Content::Text(wanted), FoundContent::Text(got)) => {
                if !self.context.names.pattern(wanted).matches(got, self.bindings) {
                    self.say(format!("key {key:?} holds {:?}, expected {wanted:?}", text(got)));
                }
            }
            (Content::Hash(wanted), FoundContent::Hash(got)) => self.hash(key, wanted, got),
            (Content::Zset(wanted), FoundContent::Zset(got)) => self.zset(key, wanted, got),
            (Content::List(wanted), FoundContent::List(got)) => {
                let fits = wanted.len() == got.len()
                    && wanted.iter().zip(got).all(|(wanted, got)| self.member_fits(key, wanted, got));
                if !fits {
                    self.say(format!("list {key:?} is {:?}, expected {wanted:?}", texts(got)));
                }
            }
            (Content::Set(wanted), FoundContent::Set(got)) => {
                let mut left: Vec<&Vec<u8>> = got.iter().collect();
                let all = wanted.iter().all(|wanted| {
                    let at = left.iter().position(|got| self.member_fits(key, wanted, got));
                    at.map(|at| left.swap_remove(at)).is_some()
                });
                if !all || !left.is_empty() {
                    self.say(format!("set {key:?} is {:?}, expected {wanted:?}", texts(got)));
                }
            }
            (wanted, got) => {
                self.say(format!("key {key:?} is a {}, expected a {}", got.kind(), kind_of(wanted)));
            }
        }
    }

    fn member_fits(&mut self, key: &str, wanted: &str, got: &[u8]) -> bool {
        let pattern = self.context.names.pattern(wanted);
        if holds_raw_permits(key) {
            pattern.matches_raw_permit(got, self.bindings)
        } else {
            pattern.matches(got, self.bindings)
        }
    }

    fn ttl(&mut self, key: &str, wanted: Ttl, pttl: i64) {
        let (range, how) = match wanted {
            Ttl::Never if pttl == -1 => return,
            Ttl::Never => return self.say(format!("key {key:?}: pttl {pttl}, expected no expiry")),
            Ttl::Recorded(range) => (self.lowered(range), "recorded"),
            Ttl::Reckoned(range) => (range, "reckoned"),
        };
        if pttl < range.min || pttl > range.max {
            self.say(format!("key {key:?}: pttl {pttl} outside {} ({how})", shown(range)));
        }
    }

    fn hash(&mut self, key: &str, wanted: &BTreeMap<String, Field>, got: &BTreeMap<Vec<u8>, Vec<u8>>) {
        let mut unexpected: BTreeMap<&[u8], &[u8]> = got.iter().map(|(name, value)| (&name[..], &value[..])).collect();
        for (name, field) in wanted {
            let pattern = self.context.names.pattern(name);
            let found = self.take(&mut unexpected, |bindings, name| pattern.matches(name, bindings), &pattern);
            match (field, found) {
                (_, None) => self.say(format!("key {key:?}: field {name:?} is missing")),
                (Field::Text(wanted), Some(value)) => {
                    if !self.context.names.pattern(wanted).matches(value, self.bindings) {
                        let value = text(value);
                        self.say(format!("key {key:?}: field {name:?} is {value:?}, expected {wanted:?}"));
                    }
                }
                (Field::Offset(range), Some(value)) => {
                    self.offset(&format!("key {key:?}: field {name:?}"), *range, value)
                }
            }
        }
        for (name, value) in unexpected {
            let (name, value) = (text(name), text(value));
            self.say(format!("key {key:?}: field {name:?} = {value:?} must not be there"));
        }
    }

    fn zset(&mut self, key: &str, wanted: &BTreeMap<String, Score>, got: &BTreeMap<Vec<u8>, Vec<u8>>) {
        let raw = holds_raw_permits(key);
        let mut unexpected: BTreeMap<&[u8], &[u8]> = got.iter().map(|(name, score)| (&name[..], &score[..])).collect();
        for (name, score) in wanted {
            let pattern = self.context.names.pattern(name);
            let fits = |bindings: &mut Bindings, member: &[u8]| {
                if raw { pattern.matches_raw_permit(member, bindings) } else { pattern.matches(member, bindings) }
            };
            let found = self.take(&mut unexpected, fits, &pattern);
            match (score, found) {
                (_, None) => self.say(format!("key {key:?}: member {name:?} is missing")),
                (Score::Exact(wanted), Some(got)) => {
                    if wanted.to_string().as_bytes() != got {
                        let got = text(got);
                        self.say(format!("key {key:?}: member {name:?} has score {got}, expected {wanted}"));
                    }
                }
                (Score::Offset(range), Some(got)) => self.offset(&format!("key {key:?}: member {name:?}"), *range, got),
                (Score::Reckoned(range), Some(got)) => {
                    let stored = std::str::from_utf8(got).ok().and_then(|score| score.parse::<i64>().ok());
                    if !stored.is_some_and(|score| (range.min..=range.max).contains(&score)) {
                        let (got, range) = (text(got), shown(*range));
                        self.say(format!("key {key:?}: member {name:?} has score {got}, outside {range} (reckoned)"));
                    }
                }
            }
        }
        for (name, score) in unexpected {
            let (name, score) = (text(name), text(score));
            self.say(format!("key {key:?}: member {name:?} with score {score} must not be there"));
        }
    }

    /// A time on the wall clock, stored as a plain decimal integer.
    fn offset(&mut self, what: &str, range: Range, stored: &[u8]) {
        let range = self.lowered(range);
        let number = std::str::from_utf8(stored).ok().filter(|text| !text.starts_with('+'));
        match number.and_then(|text| text.parse::<i64>().ok()) {
            Some(time) if (range.min..=range.max).contains(&(time - self.context.clock)) => {}
            Some(time) => {
                let offset = time - self.context.clock;
                self.say(format!("{what}: {offset} ms from the start of the step, expected {}", shown(range)));
            }
            None => self.say(format!("{what}: {:?} is no decimal integer", text(stored))),
        }
    }

    fn published(&mut self, wanted: &[Message], matching: PublishedMatch, heard: &[Heard]) {
        let mut left: Vec<&Heard> = heard.iter().collect();
        let fits = match matching {
            PublishedMatch::Exact => {
                wanted.len() == heard.len()
                    && wanted.iter().zip(heard).all(|(wanted, got)| self.message_fits(wanted, got))
            }
            PublishedMatch::AnyOrder => {
                wanted.len() == heard.len()
                    && wanted.iter().all(|wanted| {
                        let at = left.iter().position(|got| self.message_fits(wanted, got));
                        at.map(|at| left.remove(at)).is_some()
                    })
            }
            PublishedMatch::Dedup => {
                wanted.iter().all(|wanted| heard.iter().any(|got| self.message_fits(wanted, got)))
                    && heard.iter().all(|got| wanted.iter().any(|wanted| self.message_fits(wanted, got)))
            }
        };
        if !fits {
            let got: Vec<_> = heard.iter().map(|got| (text(&got.channel), text(&got.payload))).collect();
            let wanted: Vec<_> = wanted.iter().map(|wanted| (&wanted.channel, &wanted.payload)).collect();
            self.say(format!("published {got:?}, expected {wanted:?}"));
        }
    }

    fn message_fits(&mut self, wanted: &Message, got: &Heard) -> bool {
        let names = self.context.names;
        names.pattern(&wanted.channel).matches(&got.channel, self.bindings)
            && names.pattern(&wanted.payload).matches(&got.payload, self.bindings)
    }

    fn value_fits(&mut self, wanted: &Value, got: &Value) -> bool {
        match (wanted, got) {
            (Value::Object(_), got) => {
                let range = wanted.get("ms").and_then(|range| serde_json::from_value::<Range>(range.clone()).ok());
                let range = range.map(|range| self.lowered(range));
                matches!((range, got.as_i64()), (Some(range), Some(ms)) if (range.min..=range.max).contains(&ms))
            }
            (Value::String(wanted), Value::String(got)) => {
                self.context.names.pattern(wanted).matches(got.as_bytes(), self.bindings)
            }
            (Value::Array(wanted), Value::Array(got)) => {
                wanted.len() == got.len() && wanted.iter().zip(got).all(|(wanted, got)| self.value_fits(wanted, got))
            }
            (wanted, got) => wanted == got,
        }
    }

    fn lowered(&self, range: Range) -> Range {
        Range { min: range.min.saturating_sub(self.context.behind), max: range.max }
    }
}

/// Whether the crate's error says what Redisson's says.
fn error_fits(wanted: &RecordedError, got: &CallError) -> bool {
    match (wanted.kind.as_str(), wanted.redis_code.as_deref()) {
        ("IllegalMonitorStateException", _) => got.class == "NotOwner",
        ("RedisException", Some("WRONGTYPE")) => {
            got.class == "ForeignData" || (got.class == "Redis" && got.code.as_deref() == Some("WRONGTYPE"))
        }
        ("RedisException", code) => got.class == "Redis" && got.code.as_deref() == code,
        (kind, _) => got.class == kind,
    }
}

fn described_result(result: Option<&Result<Value, CallError>>) -> String {
    match result {
        None => "no result".to_owned(),
        Some(Ok(value)) => format!("returned {value}"),
        Some(Err(error)) => {
            let code = error.code.as_ref().map(|code| format!(" {code}")).unwrap_or_default();
            format!("failed with {}{code} ({})", error.class, error.text)
        }
    }
}

fn described_expected(expected: &ExpectedResult) -> String {
    match expected {
        ExpectedResult::None => "no result".to_owned(),
        ExpectedResult::Value(value) => value.to_string(),
        ExpectedResult::Error(error) => {
            error.redis_code.as_ref().map_or_else(|| error.kind.clone(), |code| format!("{} {code}", error.kind))
        }
    }
}

pub(crate) fn described(found: &Found) -> String {
    let content = match &found.content {
        FoundContent::Text(value) => format!("{:?}", text(value)),
        FoundContent::Hash(map) | FoundContent::Zset(map) => {
            let map: BTreeMap<_, _> = map.iter().map(|(name, value)| (text(name), text(value))).collect();
            format!("{map:?}")
        }
        FoundContent::List(values) | FoundContent::Set(values) => format!("{:?}", texts(values)),
        FoundContent::Other(kind) => kind.clone(),
    };
    format!("{} {content}, pttl {}", found.content.kind(), found.pttl)
}

fn kind_of(content: &Content) -> &'static str {
    match content {
        Content::Text(_) => "string",
        Content::Hash(_) => "hash",
        Content::List(_) => "list",
        Content::Set(_) => "set",
        Content::Zset(_) => "zset",
    }
}

fn shown(range: Range) -> String {
    format!("[{}, {}]", range.min, range.max)
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn texts(values: &[Vec<u8>]) -> Vec<String> {
    values.iter().map(|value| text(value)).collect()
}

/// Whole milliseconds, rounded down.
fn to_ms(time: Duration) -> i128 {
    i128::try_from(time.as_millis()).unwrap_or(i128::MAX)
}

#[cfg(test)]
mod tests;
