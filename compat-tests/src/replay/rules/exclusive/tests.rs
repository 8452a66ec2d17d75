use serde_json::{Value, json};

use super::super::super::expect::{Expectation, ExpectedResult};
use super::super::super::format::{Content, Field, Message, RecordedError, Ttl};
use super::super::Rule;
use super::super::story::{Story, awaited, begun, failed, on as on_any, scores_of};
use crate::channel_of;

fn on(client: &str, op: &str, args: Value, returns: Value) -> Value {
    on_any("lock", (client, 1), op, args, returns)
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

/// The database holds this under `k` now, and nothing else.
trait Holds {
    fn key(&mut self, owner: &str, count: u64, pttl: i64) -> &mut Self;
    fn free(&mut self) -> &mut Self;
}

impl Holds for Story {
    fn key(&mut self, owner: &str, count: u64, pttl: i64) -> &mut Self {
        self.hash("k", &[(owner, &count.to_string())], pttl)
    }

    fn free(&mut self) -> &mut Self {
        self.no_key("k")
    }
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

/// The same, of a grant that may have come a while before it was heard of.
#[track_caller]
fn assert_reckoned_within(expected: &Expectation, owner: &str, pttl: i64) {
    let (got, ttl) = expected_key(expected, owner);
    let Ttl::Reckoned(range) = ttl else { panic!("not reckoned: {ttl:?}") };
    assert!(
        got == "1" && (range.min..=range.max).contains(&pttl) && range.max - range.min < 1_400,
        "{pttl} in {range:?}"
    );
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
    let expected = story.free().step(unlock(), &json!({}), Some(json!(null)));
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
    story.free().step(unlock(), &json!({}), Some(json!(null)));
    let expected = story.key("id-A:1", 1, 500).step(try_lock(500), &held("$A:1", 1, 100, 505), Some(json!(true)));
    assert_recorded(&expected, "$A:1");
}

#[test]
fn a_lease_the_java_object_remembers_is_not_given_to_the_next_hold() {
    let mut story = Story::new();
    story.key("id-A:1", 1, 2_000).step(try_lock(2_000), &held("$A:1", 1, 1_600, 2_005), Some(json!(true)));
    story.free().sleep(2_500, &json!({}));
    let lock = on("A", "lock", json!({}), json!(null));
    let expected = story.key("id-A:1", 1, 3_000).step(lock, &held("$A:1", 1, 1_600, 2_005), Some(json!(null)));
    assert_reckoned(&expected, "$A:1", "1", 2_995);
    // There it expires after two seconds; here it is renewed, and the owner can still release it.
    let expected = story.key("id-A:1", 1, 2_900).sleep(2_500, &json!({}));
    assert_eq!(expected_key(&expected, "$A:1").0, "1");
    let mut late = on("A", "unlock", json!({}), json!(null));
    late["error"] = json!({"type": "IllegalMonitorStateException", "message": "not locked"});
    let expected = story.free().step(late, &json!({}), Some(json!(null)));
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
    let expected = story.free().step(unlock(), &held("$A:1", 1, 8_600, 9_005), Some(json!(null)));
    assert!(expected.keyspace.is_empty());
    assert_eq!(expected.published.len(), 1);
    let mut last = unlock();
    last["published"] = json!([{"channel": channel_of("k"), "payload": "0"}]);
    let expected = story.full_step(last, &json!({}), Some(failed("NotOwner")), &[], None);
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
    let wait = begun("lock", ("B", 1), "lock", json!({"lease_ms": 5_000}), "w");
    story.step(wait, &held("$A:1", 2, 8_600, 9_005), None);
    story.key("id-A:1", 1, 8_960).step(unlock(), &held("$A:1", 1, 8_600, 9_005), Some(json!(null)));
    // Released and taken within one step.
    let ended = story.ends("w", true);
    let recorded = held("$B:1", 1, 4_600, 5_005);
    let expected = story.key("id-B:1", 1, 4_998).full_step(unlock(), &recorded, Some(Ok(json!(null))), &ended, None);
    let (count, Ttl::Reckoned(range)) = expected_key(&expected, "$B:1") else { panic!("reckoned: {expected:?}") };
    assert!(count == "1" && range.min <= 4_998 && range.max >= 4_998, "{range:?}");
    let expected = story.step(awaited("w", json!(null)), &recorded, Some(json!(null)));
    assert_recorded(&expected, "$B:1");
}

#[test]
fn a_lock_that_was_released_too_early_is_not_excused() {
    let mut story = Story::new();
    story.key("id-A:1", 1, 9_000).step(try_lock(9_000), &held("$A:1", 1, 8_600, 9_005), Some(json!(true)));
    story.key("id-A:1", 2, 8_990).step(try_lock(9_000), &held("$A:1", 2, 8_600, 9_005), Some(json!(true)));
    let expected = story.free().step(unlock(), &held("$A:1", 1, 8_600, 9_005), Some(json!(null)));
    assert_reckoned(&expected, "$A:1", "1", 8_975);
    assert!(expected.published.is_empty());
}

#[test]
fn plain_commands_move_the_ttl_and_the_holds_stay() {
    let mut story = Story::new();
    story.key("id-A:1", 1, 1_000).step(try_lock(1_000), &held("$A:1", 1, 600, 1_005), Some(json!(true)));
    let raw = json!({"op": "raw", "args": {"cmd": ["PEXPIRE", "k", "9000"]}});
    story.key("id-A:1", 1, 9_000).step(raw, &held("$A:1", 1, 8_600, 9_005), None);
    // The lease of the hold ends and the key lives on: that is as recorded, and asked for again it counts from one.
    let expected = story.key("id-A:1", 1, 6_500).sleep(2_500, &held("$A:1", 1, 6_100, 6_505));
    assert_recorded(&expected, "$A:1");
    let recorded = held("$A:1", 2, 4_600, 5_005);
    let expected = story.key("id-A:1", 1, 5_000).step(try_lock(5_000), &recorded, Some(json!(true)));
    assert_reckoned(&expected, "$A:1", "1", 4_995);
    let raw = json!({"op": "raw", "args": {"cmd": ["DEL", "k"]}});
    let expected = story.free().step(raw, &json!({}), None);
    assert!(expected.keyspace.is_empty() && expected.published.is_empty());
}

// ---- fair locks

const QUEUE: &str = "redisson_lock_queue:{k}";
const TIMEOUTS: &str = "redisson_lock_timeout:{k}";

fn fair(who: (&str, i64), op: &str, args: Value, returns: Value) -> Value {
    on_any("fair", who, op, args, returns)
}

fn told(owner: &str) -> Message {
    Message { channel: format!("{}:{owner}", channel_of("k")), payload: "0".to_owned() }
}

/// A holds, then A:2 waits for 1200 ms and B for ever.
fn two_wait_behind_a_holder(there: &Value) -> Story {
    let mut story = Story::new();
    let hold = fair(("A", 1), "tryLock", json!({"wait_ms": 0, "lease_ms": 20_000}), json!(true));
    story.key("id-A:1", 1, 20_000).step(hold, there, Some(json!(true)));
    story.list(QUEUE, &["id-A:2"]).zset(TIMEOUTS, &[("id-A:2", 21_200)]).key("id-A:1", 1, 19_990);
    story.step(begun("fair", ("A", 2), "tryLock", json!({"wait_ms": 1_200, "lease_ms": 100}), "a"), there, None);
    story.list(QUEUE, &["id-A:2", "id-B:1"]).zset(TIMEOUTS, &[("id-A:2", 21_200), ("id-B:1", 26_200)]);
    story.key("id-A:1", 1, 19_980);
    story.step(begun("fair", ("B", 1), "lock", json!({}), "b"), there, None);
    story
}

fn recorded_line(there: &Value, owner: &str, score: i64) -> Value {
    let mut keyspace = there.clone();
    keyspace[QUEUE] = json!({"type": "list", "value": [owner], "pttl": -1});
    keyspace[TIMEOUTS] = json!({"type": "zset", "value": {owner: [score - 400, score + 100]}, "pttl": -1});
    keyspace
}

#[test]
fn who_gives_up_takes_its_own_patience_from_those_behind() {
    let there = held("$A:1", 1, 19_600, 20_005);
    let mut story = two_wait_behind_a_holder(&there);
    story.list(QUEUE, &["id-B:1"]).zset(TIMEOUTS, &[("id-B:1", 25_000)]).key("id-A:1", 1, 18_790);
    story.now += 1_200;
    // Recorded: 5000 less, the patience of waits without a bound.
    let recorded = recorded_line(&there, "$B:1", 26_200 - 5_000 - 1_220);
    let ended = story.ends("a", false);
    let gave_up = awaited("a", json!(false));
    let expected = story.full_step(gave_up, &recorded, Some(Ok(json!(false))), &ended, None);
    assert_eq!(scores_of(&expected, TIMEOUTS), [("$B:1".to_owned(), 25_000)].into());
}

#[test]
fn without_its_rule_the_score_is_as_recorded() {
    let there = held("$A:1", 1, 19_600, 20_005);
    let mut story = two_wait_behind_a_holder(&there);
    story.list(QUEUE, &["id-B:1"]).zset(TIMEOUTS, &[("id-B:1", 25_000)]);
    let recorded = recorded_line(&there, "$B:1", 20_000);
    let ended = story.ends("a", false);
    let gave_up = awaited("a", json!(false));
    let expected = story.full_step(gave_up, &recorded, Some(Ok(json!(false))), &ended, Some(Rule::Patience));
    assert_eq!(expected.keyspace, story.recorded(&recorded));
}

#[test]
fn a_waiter_that_gave_up_and_still_stands_in_line_is_not_excused() {
    let there = held("$A:1", 1, 19_600, 20_005);
    let mut story = two_wait_behind_a_holder(&there);
    let ended = story.ends("a", false);
    let recorded = recorded_line(&there, "$B:1", 20_000);
    let expected = story.full_step(awaited("a", json!(false)), &recorded, Some(Ok(json!(false))), &ended, None);
    assert_eq!(scores_of(&expected, TIMEOUTS), [("$B:1".to_owned(), 25_000)].into());
}

#[test]
fn a_blocking_call_that_gives_up_is_compared_as_recorded() {
    let there = held("$A:1", 1, 19_600, 20_005);
    let mut story = Story::new();
    let hold = fair(("A", 1), "tryLock", json!({"wait_ms": 0, "lease_ms": 20_000}), json!(true));
    story.key("id-A:1", 1, 20_000).step(hold, &there, Some(json!(true)));
    story.list(QUEUE, &["id-A:2", "id-B:1"]).zset(TIMEOUTS, &[("id-A:2", 21_200), ("id-B:1", 26_200)]);
    let mut wait = begun("fair", ("A", 2), "tryLock", json!({"wait_ms": 1_200}), "a");
    wait["api"] = json!("sync");
    story.step(wait, &there, None);
    story.step(begun("fair", ("B", 1), "lock", json!({}), "b"), &there, None);
    let recorded = recorded_line(&there, "$B:1", 20_000);
    let ended = story.ends("a", false);
    let expected = story.full_step(awaited("a", json!(false)), &recorded, Some(Ok(json!(false))), &ended, None);
    assert_eq!(expected.keyspace, story.recorded(&recorded));
}

#[test]
fn a_head_without_a_score_is_out_of_the_way() {
    let mut story = Story::new();
    let there = json!({QUEUE: {"type": "list", "value": ["x:1"], "pttl": -1}});
    let raw = json!({"op": "raw", "args": {"cmd": ["RPUSH", QUEUE, "x:1"]}});
    story.list(QUEUE, &["x:1"]).step(raw, &there, None);
    let try_it = fair(("A", 1), "tryLock", json!({}), json!(false));
    let expected = story.no_key(QUEUE).key("id-A:1", 1, 3_000).step(try_it.clone(), &there, Some(json!(true)));
    assert_eq!(expected.result, ExpectedResult::Value(json!(true)));
    assert_reckoned(&expected, "$A:1", "1", 2_995);
    assert!(!expected.keyspace.contains_key(QUEUE));
    // Another one is kept out by the holder, not by the queue.
    let other = fair(("B", 1), "tryLock", json!({}), json!(false));
    let expected = story.key("id-A:1", 1, 2_990).step(other, &there, Some(json!(true)));
    assert_eq!(expected.result, ExpectedResult::Value(json!(false)));
}

#[test]
fn a_new_head_is_told_when_the_lock_is_free_and_only_then() {
    for (free, count) in [(true, 1), (false, 0)] {
        let mut story = Story::new();
        if !free {
            let hold = fair(("B", 1), "tryLock", json!({"wait_ms": 0, "lease_ms": 9_000}), json!(true));
            story.key("id-B:1", 1, 9_000).step(hold, &held("$B:1", 1, 8_600, 9_005), Some(json!(true)));
        }
        let there = json!({});
        let raw = json!({"op": "raw", "args": {"cmd": ["ZADD", TIMEOUTS, "1", "x:1"]}});
        story.list(QUEUE, &["x:1", "x:2"]).zset(TIMEOUTS, &[("x:1", -1_000), ("x:2", 60_000)]);
        story.step(raw, &there, None);
        let try_it = fair(("A", 1), "tryLock", json!({}), json!(false));
        story.list(QUEUE, &["x:2"]).zset(TIMEOUTS, &[("x:2", 60_000)]);
        let expected = story.step(try_it, &there, Some(json!(false)));
        assert_eq!(expected.published, vec![told("x:2"); count], "free: {free}");
    }
}

#[test]
fn the_queue_of_a_departed_lock_is_reckoned_from_its_longer_lease() {
    let mut story = Story::new();
    let there = held("$A:1", 2, 600, 1_005);
    let hold = |lease: i64| fair(("A", 1), "tryLock", json!({"wait_ms": 0, "lease_ms": lease}), json!(true));
    story.key("id-A:1", 1, 9_000).step(hold(9_000), &held("$A:1", 1, 8_600, 9_005), Some(json!(true)));
    story.key("id-A:1", 2, 8_990).step(hold(1_000), &there, Some(json!(true)));
    story.list(QUEUE, &["id-B:1"]).zset(TIMEOUTS, &[("id-B:1", 14_002)]).key("id-A:1", 2, 8_980);
    let recorded = recorded_line(&there, "$B:1", 6_000);
    let expected = story.step(begun("fair", ("B", 1), "lock", json!({}), "b"), &recorded, None);
    let score = scores_of(&expected, TIMEOUTS)["$B:1"];
    assert!((13_990..14_020).contains(&score), "{score}");
    // Released, told and taken: its patience is nobody's, and nobody is left.
    story.key("id-A:1", 1, 8_970).step(fair(("A", 1), "unlock", json!({}), json!(null)), &recorded, Some(json!(null)));
    story.no_key(QUEUE).no_key(TIMEOUTS).key("id-B:1", 1, 3_000);
    let ended = story.ends("b", true);
    let unlock = fair(("A", 1), "unlock", json!({}), json!(null));
    let recorded = held("$B:1", 1, 2_600, 3_005);
    let expected = story.full_step(unlock, &recorded, Some(Ok(json!(null))), &ended, None);
    assert_eq!(expected.published, [told("$B:1")]);
    assert!(!expected.keyspace.contains_key(QUEUE));
    assert_reckoned_within(&expected, "$B:1", 2_995);
}

#[test]
fn nobody_overtakes_in_the_queue_of_a_departed_lock() {
    let there = held("$A:1", 1, 19_600, 20_005);
    let mut story = two_wait_behind_a_holder(&there);
    let again = fair(("A", 1), "tryLock", json!({"wait_ms": 0, "lease_ms": 9_000}), json!(true));
    story.key("id-A:1", 2, 19_970).step(again, &held("$A:1", 2, 8_600, 9_005), Some(json!(true)));
    let unlock = || fair(("A", 1), "unlock", json!({}), json!(null));
    story.key("id-A:1", 1, 19_960).step(unlock(), &held("$A:1", 1, 8_600, 9_005), Some(json!(null)));
    // B has it although A:2 stands first.
    story.list(QUEUE, &["id-A:2"]).zset(TIMEOUTS, &[("id-A:2", 16_200)]).key("id-B:1", 1, 3_000);
    let ended = story.ends("b", true);
    let expected = story.full_step(unlock(), &json!({}), Some(Ok(json!(null))), &ended, None);
    assert!(!expected.keyspace.contains_key("k"), "{:?}", expected.keyspace);
    assert_eq!(scores_of(&expected, TIMEOUTS).len(), 2);
}

// ---- fenced, spin and non-reentrant locks

const TOKEN: &str = "redisson_lock_token:{k}";

fn with_token(mut keyspace: Value, token: u64) -> Value {
    keyspace[TOKEN] = json!({"type": "string", "value": token.to_string(), "pttl": -1});
    keyspace
}

fn fenced(who: (&str, i64), op: &str, args: Value, returns: Value) -> Value {
    on_any("fenced", who, op, args, returns)
}

#[test]
fn the_lease_of_a_blocking_call_for_a_token_is_honoured() {
    let mut story = Story::new();
    let mut lock = fenced(("A", 1), "lockAndGetToken", json!({"lease_ms": 9_000}), json!(1));
    lock["api"] = json!("sync");
    let recorded = with_token(held("$A:1", 1, 2_600, 3_005), 1);
    let expected = story.text(TOKEN, "1", -1).key("id-A:1", 1, 9_000).step(lock, &recorded, Some(json!(1)));
    assert_reckoned(&expected, "$A:1", "1", 8_995);
    assert_eq!(expected.result, ExpectedResult::Value(json!(1)));
    assert!(matches!(&expected.keyspace[TOKEN].value, Content::Text(token) if token == "1"));
}

#[test]
fn a_try_for_a_token_without_arguments_tries_once() {
    let mut story = Story::new();
    let there = with_token(held("$A:1", 1, 8_600, 9_005), 1);
    let hold = fenced(("A", 1), "tryLock", json!({"wait_ms": 0, "lease_ms": 9_000}), json!(true));
    story.text(TOKEN, "1", -1).key("id-A:1", 1, 9_000).step(hold, &there, Some(json!(true)));
    story.key("id-A:1", 1, 8_990);
    story.step(begun("fenced", ("B", 1), "tryLockAndGetToken", json!({}), "b"), &there, None);
    // Recorded: B waited and has it now, with token 2.
    let unlock = fenced(("A", 1), "unlock", json!({}), json!(null));
    let recorded = with_token(held("$B:1", 1, 2_600, 3_005), 2);
    let ended = story.ends("b", false);
    let expected = story.free().full_step(unlock, &recorded, Some(Ok(json!(null))), &ended, None);
    assert!(!expected.keyspace.contains_key("k"));
    assert!(matches!(&expected.keyspace[TOKEN].value, Content::Text(token) if token == "1"));
    let expected = story.step(awaited("b", json!(2)), &recorded, Some(json!(null)));
    assert_eq!(expected.result, ExpectedResult::Value(json!(null)));
    // Free on both sides, and one token behind.
    let unlock = fenced(("B", 1), "unlock", json!({}), json!(null));
    let recorded = with_token(json!({}), 2);
    let expected = story.full_step(unlock, &recorded, Some(failed("NotOwner")), &[], None);
    assert_eq!(expected.result, ExpectedResult::Error(RecordedError::of("IllegalMonitorStateException")));
    let take = fenced(("A", 1), "tryLockAndGetToken", json!({"wait_ms": 0, "lease_ms": 500}), json!(3));
    let recorded = with_token(held("$A:1", 1, 100, 505), 3);
    let expected = story.text(TOKEN, "2", -1).key("id-A:1", 1, 500).step(take, &recorded, Some(json!(2)));
    assert_eq!(expected.result, ExpectedResult::Value(json!(2)));
    assert!(matches!(&expected.keyspace[TOKEN].value, Content::Text(token) if token == "2"));
    assert_recorded(&expected, "$A:1");
}

#[test]
fn a_token_that_was_drawn_without_a_grant_is_not_excused() {
    let mut story = Story::new();
    let there = with_token(held("$A:1", 1, 8_600, 9_005), 1);
    let hold = || fenced(("A", 1), "tryLock", json!({"wait_ms": 0, "lease_ms": 9_000}), json!(true));
    story.text(TOKEN, "1", -1).key("id-A:1", 1, 9_000).step(hold(), &there, Some(json!(true)));
    let recorded = with_token(held("$A:1", 2, 8_600, 9_005), 2);
    let expected = story.text(TOKEN, "3", -1).key("id-A:1", 2, 9_000).step(hold(), &recorded, Some(json!(true)));
    assert!(matches!(&expected.keyspace[TOKEN].value, Content::Text(token) if token == "2"));
}

#[test]
fn a_token_that_somebody_deleted_is_gone() {
    let mut story = Story::new();
    let there = with_token(held("$A:1", 1, 8_600, 9_005), 1);
    let hold = || fenced(("A", 1), "tryLock", json!({"wait_ms": 0, "lease_ms": 9_000}), json!(true));
    story.text(TOKEN, "1", -1).key("id-A:1", 1, 9_000).step(hold(), &there, Some(json!(true)));
    let recorded = with_token(held("$A:1", 2, 8_600, 9_005), 2);
    story.text(TOKEN, "2", -1).key("id-A:1", 2, 9_000).step(hold(), &recorded, Some(json!(true)));
    let raw = json!({"op": "raw", "args": {"cmd": ["DEL", TOKEN]}});
    let expected = story.no_key(TOKEN).step(raw, &held("$A:1", 2, 8_600, 9_005), None);
    assert!(!expected.keyspace.contains_key(TOKEN));
    let recorded = with_token(held("$A:1", 3, 8_600, 9_005), 1);
    let expected = story.text(TOKEN, "1", -1).key("id-A:1", 3, 9_000).step(hold(), &recorded, Some(json!(true)));
    assert!(matches!(&expected.keyspace[TOKEN].value, Content::Text(token) if token == "1"));
}

#[test]
fn leases_that_end_in_a_row_may_be_told() {
    for told in [false, true] {
        let mut story = Story::new();
        story.key("id-A:1", 1, 200).step(try_lock(200), &held("$A:1", 1, 0, 205), Some(json!(true)));
        story.key("id-A:1", 2, 190).step(try_lock(195), &held("$A:1", 2, 0, 205), Some(json!(true)));
        if told {
            story.hears(&channel_of("k"), "0");
        }
        let expected = story.free().sleep(400, &json!({}));
        assert_eq!(expected.published.len(), usize::from(told));
    }
}

#[test]
fn a_lock_without_expiry_is_not_granted_with_token_minus_one() {
    let mut story = Story::new();
    let there = json!({"k": {"type": "hash", "value": {"x:1": "1"}, "pttl": -1}});
    let raw = json!({"op": "raw", "args": {"cmd": ["HSET", "k", "x:1", "1"]}});
    story.hash("k", &[("x:1", "1")], -1).step(raw, &there, None);
    let take = fenced(("A", 1), "tryLockAndGetToken", json!({"wait_ms": 0, "lease_ms": 500}), json!(-1));
    let expected = story.step(take, &there, Some(json!(null)));
    assert_eq!(expected.result, ExpectedResult::Value(json!(null)));
}

#[test]
fn the_release_of_a_departed_spin_lock_tells_nobody() {
    let mut story = Story::new();
    let spin = |op: &str, args: Value, returns: Value| on_any("spin", ("A", 1), op, args, returns);
    let hold = |lease: i64| spin("tryLock", json!({"wait_ms": 0, "lease_ms": lease}), json!(true));
    story.key("id-A:1", 1, 9_000).step(hold(9_000), &held("$A:1", 1, 8_600, 9_005), Some(json!(true)));
    story.key("id-A:1", 2, 8_990).step(hold(1_000), &held("$A:1", 2, 600, 1_005), Some(json!(true)));
    let recorded = held("$A:1", 1, 600, 1_005);
    let unlock = || spin("unlock", json!({}), json!(null));
    let expected = story.key("id-A:1", 1, 8_980).step(unlock(), &recorded, Some(json!(null)));
    assert_reckoned(&expected, "$A:1", "1", 8_975);
    let expected = story.free().step(unlock(), &json!({}), Some(json!(null)));
    assert!(expected.published.is_empty());
}

#[test]
fn a_departed_lock_that_does_not_reenter_refuses_its_owner() {
    let mut story = Story::new();
    // The Java object remembers two seconds.
    let hold = |args: Value| on_any("nonreentrant", ("A", 1), "tryLock", args, json!(true));
    let args = json!({"wait_ms": 0, "lease_ms": 2_000});
    story.key("id-A:1", 1, 2_000).step(hold(args), &held("$A:1", 1, 1_600, 2_005), Some(json!(true)));
    story.free().sleep(2_500, &json!({}));
    let recorded = held("$A:1", 1, 1_600, 2_005);
    let expected = story.key("id-A:1", 1, 3_000).step(hold(json!({})), &recorded, Some(json!(true)));
    assert_reckoned(&expected, "$A:1", "1", 2_995);
    let refused = Some(failed("AlreadyHeld"));
    let expected = story.full_step(hold(json!({})), &json!({}), refused, &[], None);
    assert_eq!(expected.result, ExpectedResult::Error(RecordedError::of("AlreadyHeld")));
}
