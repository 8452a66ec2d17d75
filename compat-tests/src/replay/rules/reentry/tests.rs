use std::time::Duration;

use serde_json::json;

use super::super::super::protocol::CallError;
use super::super::super::snapshot::Found;
use super::*;

/// The rule, driven by steps as they would be seen, and the database it is told of.
struct Story {
    rule: Reentry,
    names: Names,
    snapshot: Snapshot,
    step: Step,
    now: i64,
}

impl Story {
    fn new() -> Self {
        let ids = ["A", "B"].map(|name| (name.to_owned(), format!("id-{name}")));
        Self {
            rule: Reentry::new(3_000),
            names: Names::new(ids),
            snapshot: Snapshot::new(),
            step: step(json!({"op": "sleep"}), &json!({})),
            now: 0,
        }
    }

    /// The database holds this under `k` now.
    fn key(&mut self, owner: &str, count: u64, pttl: i64) -> &mut Self {
        let fields = BTreeMap::from([(owner.as_bytes().to_vec(), count.to_string().into_bytes())]);
        let found = Found { content: FoundContent::Hash(fields), pttl };
        self.snapshot = Snapshot::from([(b"k".to_vec(), found)]);
        self
    }

    fn no_key(&mut self) -> &mut Self {
        self.snapshot.clear();
        self
    }

    /// A step over 10 ms, recorded with this keyspace and these results.
    fn step(&mut self, what: Value, keyspace: &Value, result: Option<Value>) -> Expectation {
        self.full_step(what, keyspace, result.map(Ok), &[])
    }

    fn full_step(
        &mut self,
        what: Value,
        keyspace: &Value,
        result: Option<Result<Value, CallError>>,
        ended: &[Ended],
    ) -> Expectation {
        self.step = step(what, keyspace);
        let (asked, read) = (Span { lo: self.now, hi: self.now + 5 }, Span { lo: self.now + 5, hi: self.now + 10 });
        let took = Some((Duration::from_millis(5), Duration::from_millis(5)));
        let seen = Seen { result, took, snapshot: self.snapshot.clone(), heard: Vec::new() };
        let facts = Facts { step: &self.step, names: &self.names, seen: &seen, asked, read, ended, behind: 0 };
        self.rule.observe(&facts);
        let mut expected = Expectation::recorded(&self.step, &self.step);
        self.rule.adjust(&mut expected);
        self.rule.passed(&self.step, &seen, &self.names);
        self.now += 10;
        expected
    }

    fn sleep(&mut self, ms: i64, keyspace: &Value) -> Expectation {
        self.now += ms;
        self.step(json!({"op": "sleep"}), keyspace, None)
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

fn on(client: &str, op: &str, args: Value, returns: Value) -> Value {
    json!({"client": client, "thread": 1, "object": "lock", "key": "k", "op": op, "args": args, "returns": returns})
}

fn try_lock(lease: i64) -> Value {
    on("A", "tryLock", json!({"wait_ms": 0, "lease_ms": lease}), json!(true))
}

fn unlock() -> Value {
    on("A", "unlock", json!({}), json!(null))
}

fn held(owner: &str, count: u64, min: i64, max: i64) -> Value {
    json!({"k": {"type": "hash", "value": {owner: count.to_string()}, "pttl": [min, max]}})
}

/// Count and TTL range the key must have.
#[track_caller]
fn expected_key(expected: &Expectation, owner: &str) -> (String, Ttl) {
    let entry = expected.keyspace.get("k").expect("a key");
    let Content::Hash(fields) = &entry.value else { panic!("a hash: {entry:?}") };
    let Some(Field::Text(count)) = fields.get(owner) else { panic!("{owner} in {fields:?}") };
    (count.clone(), entry.ttl)
}

#[track_caller]
fn assert_reckoned(expected: &Expectation, owner: &str, count: &str, pttl: i64) {
    let (got, ttl) = expected_key(expected, owner);
    assert_eq!(got, count);
    let Ttl::Reckoned(range) = ttl else { panic!("not reckoned: {ttl:?}") };
    assert!((range.min..=range.max).contains(&pttl) && range.max - range.min < 90, "{pttl} in {range:?}");
}

#[track_caller]
fn assert_recorded(expected: &Expectation, owner: &str) {
    let (_, ttl) = expected_key(expected, owner);
    assert!(matches!(ttl, Ttl::Recorded(_)), "{ttl:?}");
}

#[test]
fn a_single_hold_is_compared_as_recorded() {
    let mut story = Story::new();
    let expected =
        story.key("id-A:1", 1, 8_000).step(try_lock(8_000), &held("$A:1", 1, 7_600, 8_005), Some(json!(true)));
    assert_recorded(&expected, "$A:1");
    let expected = story.no_key().step(unlock(), &json!({}), Some(json!(null)));
    assert!(expected.keyspace.is_empty());
}

#[test]
fn a_shorter_re_entry_is_expected_to_keep_the_longer_end() {
    let mut story = Story::new();
    story.key("id-A:1", 1, 8_000).step(try_lock(8_000), &held("$A:1", 1, 7_600, 8_005), Some(json!(true)));
    let recorded = held("$A:1", 2, 3_600, 4_005);
    let expected = story.key("id-A:1", 2, 7_990).step(try_lock(4_000), &recorded, Some(json!(true)));
    assert_reckoned(&expected, "$A:1", "2", 7_990);
    let expected = story.key("id-A:1", 1, 7_980).step(unlock(), &held("$A:1", 1, 3_600, 4_005), Some(json!(null)));
    assert_reckoned(&expected, "$A:1", "1", 7_980);
    story.no_key().step(unlock(), &json!({}), Some(json!(null)));
    let expected = story.key("id-A:1", 1, 500).step(try_lock(500), &held("$A:1", 1, 100, 505), Some(json!(true)));
    assert_recorded(&expected, "$A:1");
}

#[test]
fn a_lease_the_java_object_remembers_is_not_given_to_the_next_hold() {
    let mut story = Story::new();
    story.key("id-A:1", 1, 2_000).step(try_lock(2_000), &held("$A:1", 1, 1_600, 2_005), Some(json!(true)));
    story.no_key().sleep(2_500, &json!({}));
    let lock = on("A", "lock", json!({}), json!(null));
    let expected = story.key("id-A:1", 1, 3_000).step(lock, &held("$A:1", 1, 1_600, 2_005), Some(json!(null)));
    assert_reckoned(&expected, "$A:1", "1", 2_995);
    // There it expires after two seconds; here it is renewed, and the owner can still release it.
    let expected = story.key("id-A:1", 1, 2_900).sleep(2_500, &json!({}));
    assert_eq!(expected_key(&expected, "$A:1").0, "1");
    let mut late = on("A", "unlock", json!({}), json!(null));
    late["error"] = json!({"type": "IllegalMonitorStateException", "message": "not locked"});
    let expected = story.no_key().step(late, &json!({}), Some(json!(null)));
    assert_eq!(expected.result, ExpectedResult::Value(json!(null)));
    assert_eq!(expected.published, [Message { channel: channel_of("k"), payload: "0".to_owned() }]);
}

#[test]
fn the_count_of_a_fixed_hold_that_ended_is_gone_and_so_is_its_unlock() {
    let mut story = Story::new();
    story.key("id-A:1", 1, 1_000).step(try_lock(1_000), &held("$A:1", 1, 600, 1_005), Some(json!(true)));
    story.key("id-A:1", 2, 9_000).step(try_lock(9_000), &held("$A:1", 2, 8_600, 9_005), Some(json!(true)));
    let expected = story.key("id-A:1", 1, 7_000).sleep(2_000, &held("$A:1", 2, 6_600, 7_005));
    assert_reckoned(&expected, "$A:1", "1", 6_985);
    // Recorded: one count left, nothing published. Here it was the last one.
    let expected = story.no_key().step(unlock(), &held("$A:1", 1, 8_600, 9_005), Some(json!(null)));
    assert!(expected.keyspace.is_empty());
    assert_eq!(expected.published.len(), 1);
    let mut last = unlock();
    last["published"] = json!([{"channel": channel_of("k"), "payload": "0"}]);
    let not_owner = CallError { class: "NotOwner".to_owned(), code: None, text: String::new() };
    let expected = story.full_step(last, &json!({}), Some(Err(not_owner)), &[]);
    assert_eq!(expected.result, ExpectedResult::Error(RecordedError::of("IllegalMonitorStateException")));
    assert!(expected.published.is_empty());
}

#[test]
fn others_are_kept_out_for_as_long_as_the_hold_was_promised() {
    let mut story = Story::new();
    story.key("id-A:1", 1, 9_000).step(try_lock(9_000), &held("$A:1", 1, 8_600, 9_005), Some(json!(true)));
    story.key("id-A:1", 2, 8_990).step(try_lock(500), &held("$A:1", 2, 100, 505), Some(json!(true)));
    story.key("id-A:1", 1, 7_000).sleep(2_000, &json!({}));
    // Recorded: the key had expired and B got it.
    let other = on("B", "tryLock", json!({"wait_ms": 0, "lease_ms": 4_000}), json!(true));
    let expected = story.key("id-A:1", 1, 6_990).step(other, &held("$B:1", 1, 3_600, 4_005), Some(json!(false)));
    assert_eq!(expected.result, ExpectedResult::Value(json!(false)));
    assert_reckoned(&expected, "$A:1", "1", 6_965);
    let ttl = on("B", "remainTimeToLive", json!({}), json!({"ms": [3_600, 4_005]}));
    let expected = story.step(ttl, &held("$B:1", 1, 3_600, 4_005), Some(json!(6_950)));
    let ExpectedResult::Value(value) = expected.result else { panic!("{:?}", expected.result) };
    assert!(value["ms"][0].as_i64() > Some(6_900), "{value}");
}

#[test]
fn a_waiter_that_takes_the_lock_is_compared_as_recorded_again() {
    let mut story = Story::new();
    story.key("id-A:1", 1, 9_000).step(try_lock(9_000), &held("$A:1", 1, 8_600, 9_005), Some(json!(true)));
    story.key("id-A:1", 2, 8_990).step(try_lock(9_000), &held("$A:1", 2, 8_600, 9_005), Some(json!(true)));
    let mut wait = on("B", "lock", json!({"lease_ms": 5_000}), json!({"pending": true}));
    wait["handle"] = json!("w");
    story.step(wait, &held("$A:1", 2, 8_600, 9_005), None);
    story.key("id-A:1", 1, 8_960).step(unlock(), &held("$A:1", 1, 8_600, 9_005), Some(json!(null)));
    // Released and taken within one step.
    let at = story.now + 6;
    let ended = [Ended { handle: "w".to_owned(), at, granted: true }];
    let recorded = held("$B:1", 1, 4_600, 5_005);
    let expected = story.key("id-B:1", 1, 4_998).full_step(unlock(), &recorded, Some(Ok(json!(null))), &ended);
    let (count, Ttl::Reckoned(range)) = expected_key(&expected, "$B:1") else { panic!("reckoned: {expected:?}") };
    assert!(count == "1" && range.min <= 4_998 && range.max >= 4_998, "{range:?}");
    let expected = story.step(json!({"op": "await", "handle": "w", "returns": null}), &recorded, Some(json!(null)));
    assert_recorded(&expected, "$B:1");
}

#[test]
fn a_lock_that_was_released_too_early_is_not_excused() {
    let mut story = Story::new();
    story.key("id-A:1", 1, 9_000).step(try_lock(9_000), &held("$A:1", 1, 8_600, 9_005), Some(json!(true)));
    story.key("id-A:1", 2, 8_990).step(try_lock(9_000), &held("$A:1", 2, 8_600, 9_005), Some(json!(true)));
    let expected = story.no_key().step(unlock(), &held("$A:1", 1, 8_600, 9_005), Some(json!(null)));
    assert_reckoned(&expected, "$A:1", "1", 8_975);
    assert!(expected.published.is_empty());
}

#[test]
fn plain_commands_move_the_ttl_and_the_holds_stay() {
    let mut story = Story::new();
    story.key("id-A:1", 1, 1_000).step(try_lock(1_000), &held("$A:1", 1, 600, 1_005), Some(json!(true)));
    let raw = json!({"op": "raw", "args": {"cmd": ["PEXPIRE", "k", "9000"]}});
    story.key("id-A:1", 1, 9_000).step(raw, &held("$A:1", 1, 8_600, 9_005), None);
    // The lease of the hold ends and the key lives on: its count is given back, which frees and tells.
    let expected = story.no_key().sleep(2_500, &held("$A:1", 1, 6_100, 6_505));
    assert!(expected.keyspace.is_empty());
    assert_eq!(expected.published.len(), 1);
    let raw = json!({"op": "raw", "args": {"cmd": ["DEL", "k"]}});
    let expected = story.step(raw, &json!({}), None);
    assert!(expected.keyspace.is_empty() && expected.published.is_empty());
}
