//! Steps as they would be seen, for the tests of the rules.

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::{Value, json};

use super::super::expect::{Expectation, Seen};
use super::super::format::{Content, Entry, Field, Range, Scenario, Score, Step, Ttl};
use super::super::listener::Heard;
use super::super::names::Names;
use super::super::protocol::CallError;
use super::super::snapshot::{Found, FoundContent, Snapshot};
use super::{Ended, Facts, Rule, Rules, Span};

/// The wall clock when a story begins.
pub(super) const CLOCK: i64 = 1_700_000_000_000;

/// The rules, driven by steps, and the database they are told of. The watchdog timeout is 3 s, the patience 5 s; the ids of
/// the clients A and B are `id-A` and `id-B`.
pub(super) struct Story {
    rules: Rules,
    names: Names,
    snapshot: Snapshot,
    step: Step,
    heard: Vec<Heard>,
    pub(super) now: i64,
}

impl Story {
    pub(super) fn new() -> Self {
        let scenario: Scenario = serde_json::from_value(json!({
            "name": "story", "redisson_version": "", "redis_version": "", "clients": {}, "steps": [],
            "config": {"lockWatchdogTimeout": 3_000, "fairLockWaitTimeout": 5_000, "codec": "string"},
        }))
        .expect("a scenario");
        Self {
            rules: Rules::new(&scenario),
            names: Names::new(["A", "B"].map(|name| (name.to_owned(), format!("id-{name}")))),
            snapshot: Snapshot::new(),
            step: step(json!({"op": "sleep"}), &json!({})),
            heard: Vec::new(),
            now: 0,
        }
    }

    /// The database holds this hash now.
    pub(super) fn hash(&mut self, key: &str, fields: &[(&str, &str)], pttl: i64) -> &mut Self {
        let fields = fields.iter().map(|(name, value)| (name.as_bytes().into(), value.as_bytes().into())).collect();
        self.put(key, FoundContent::Hash(fields), pttl)
    }

    pub(super) fn list(&mut self, key: &str, members: &[&str]) -> &mut Self {
        self.put(key, FoundContent::List(members.iter().map(|member| member.as_bytes().into()).collect()), -1)
    }

    /// Scores are counted from the clock at which the story began.
    pub(super) fn zset(&mut self, key: &str, scores: &[(&str, i64)]) -> &mut Self {
        let text = |score: i64| (CLOCK + score).to_string().into_bytes();
        let scores = scores.iter().map(|(name, score)| (name.as_bytes().into(), text(*score))).collect();
        self.put(key, FoundContent::Zset(scores), -1)
    }

    pub(super) fn text(&mut self, key: &str, text: &str, pttl: i64) -> &mut Self {
        self.put(key, FoundContent::Text(text.into()), pttl)
    }

    pub(super) fn no_key(&mut self, key: &str) -> &mut Self {
        self.snapshot.remove(key.as_bytes());
        self
    }

    pub(super) fn nothing(&mut self) -> &mut Self {
        self.snapshot.clear();
        self
    }

    /// The next step hears this message.
    pub(super) fn hears(&mut self, channel: &str, payload: &str) -> &mut Self {
        self.heard.push(Heard { channel: channel.into(), payload: payload.into() });
        self
    }

    fn put(&mut self, key: &str, content: FoundContent, pttl: i64) -> &mut Self {
        self.snapshot.insert(key.as_bytes().to_vec(), Found { content, pttl });
        self
    }

    /// A step over 10 ms, recorded with this keyspace and this result.
    pub(super) fn step(&mut self, what: Value, keyspace: &Value, result: Option<Value>) -> Expectation {
        self.full_step(what, keyspace, result.map(Ok), &[], None)
    }

    /// The same with everything; what must be shown if one rule is left out.
    pub(super) fn full_step(
        &mut self,
        what: Value,
        keyspace: &Value,
        result: Option<Result<Value, CallError>>,
        ended: &[Ended],
        without: Option<Rule>,
    ) -> Expectation {
        self.step = step(what, keyspace);
        let (asked, read) = (Span { lo: self.now, hi: self.now + 5 }, Span { lo: self.now + 5, hi: self.now + 10 });
        let took = Some((Duration::from_millis(5), Duration::from_millis(5)));
        let seen = Seen { result, took, snapshot: self.snapshot.clone(), heard: std::mem::take(&mut self.heard) };
        let (names, step) = (&self.names, &self.step);
        let facts = Facts { step, names, seen: &seen, asked, read, ended, behind: 0, clock: CLOCK + asked.lo };
        self.rules.observe(&facts);
        let expected = self.rules.adjusted(&Expectation::recorded(step, step), without);
        self.rules.passed(&facts);
        self.now += 10;
        expected
    }

    /// This keyspace, as if it had been recorded.
    pub(super) fn recorded(&self, keyspace: &Value) -> BTreeMap<String, Entry> {
        step(json!({"op": "sleep"}), keyspace).keyspace
    }

    /// Nothing but time goes by.
    pub(super) fn sleep(&mut self, ms: i64, keyspace: &Value) -> Expectation {
        self.now += ms;
        self.step(json!({"op": "sleep"}), keyspace, None)
    }

    /// An operation that was begun has just ended.
    pub(super) fn ends(&self, handle: &str, granted: bool) -> [Ended; 1] {
        [Ended { handle: handle.to_owned(), at: self.now + 6, granted }]
    }
}

fn step(mut what: Value, keyspace: &Value) -> Step {
    what["keyspace"] = keyspace.clone();
    what["t_ms"] = json!(0);
    if what.get("published").is_none() {
        what["published"] = json!([]);
    }
    serde_json::from_value(what).expect("a step")
}

/// An operation on the lock `k`.
pub(super) fn on(kind: &str, who: (&str, i64), op: &str, args: Value, returns: Value) -> Value {
    let (client, thread) = who;
    json!({"client": client, "thread": thread, "object": kind, "key": "k", "op": op, "args": args, "returns": returns})
}

/// The same, begun and not waited for.
pub(super) fn begun(kind: &str, who: (&str, i64), op: &str, args: Value, handle: &str) -> Value {
    let mut what = on(kind, who, op, args, json!({"pending": true}));
    what["handle"] = json!(handle);
    what
}

pub(super) fn awaited(handle: &str, returns: Value) -> Value {
    json!({"op": "await", "handle": handle, "returns": returns})
}

/// The error of a call, by its class.
pub(super) fn failed(class: &str) -> Result<Value, CallError> {
    Err(CallError { class: class.to_owned(), code: None, text: String::new() })
}

pub(super) fn recorded_hash(fields: Value, min: i64, max: i64) -> Value {
    json!({"type": "hash", "value": fields, "pttl": [min, max]})
}

/// The fields of a hash that must be there, and its TTL.
#[track_caller]
pub(super) fn hash_of(expected: &Expectation, key: &str) -> (BTreeMap<String, String>, Ttl) {
    let Some(Entry { value: Content::Hash(fields), ttl }) = expected.keyspace.get(key) else {
        panic!("{key} in {:?}", expected.keyspace)
    };
    let text = |field: &Field| match field {
        Field::Text(text) => text.clone(),
        other => panic!("{other:?}"),
    };
    (fields.iter().map(|(name, value)| (name.clone(), text(value))).collect(), *ttl)
}

/// The TTL is reckoned, tightly, and this is in it.
#[track_caller]
pub(super) fn assert_reckoned(ttl: Ttl, pttl: i64) {
    let Ttl::Reckoned(Range { min, max }) = ttl else { panic!("not reckoned: {ttl:?}") };
    assert!((min..=max).contains(&pttl) && max - min < 90, "{pttl} in [{min}, {max}]");
}

/// The scores that must be there, counted from the clock at which the story began; of ranges the middle.
#[track_caller]
pub(super) fn scores_of(expected: &Expectation, key: &str) -> BTreeMap<String, i64> {
    let Some(Entry { value: Content::Zset(scores), .. }) = expected.keyspace.get(key) else {
        panic!("{key} in {:?}", expected.keyspace)
    };
    let score = |score: &Score| match score {
        Score::Exact(score) => score - CLOCK,
        Score::Reckoned(Range { min, max }) => i64::midpoint(*min, *max) - CLOCK,
        Score::Offset(range) => panic!("as recorded: {range:?}"),
    };
    scores.iter().map(|(name, of)| (name.clone(), score(of))).collect()
}
