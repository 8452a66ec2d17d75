use serde_json::{Value, json};

use super::super::super::expect::{Expectation, ExpectedResult};
use super::super::super::format::{Message, RecordedError, Ttl};
use super::super::Rule;
use super::super::story::{Story, assert_reckoned, awaited, begun, failed, hash_of, on, recorded_hash};
use super::*;

const A: (&str, i64) = ("A", 1);
const B: (&str, i64) = ("B", 1);

fn try_lock(kind: &str, who: (&str, i64), lease: i64) -> Value {
    on(kind, who, "tryLock", json!({"wait_ms": 0, "lease_ms": lease}), json!(true))
}

fn unlock(kind: &str, who: (&str, i64)) -> Value {
    on(kind, who, "unlock", json!({}), json!(null))
}

/// A recorded lock with these fields, and keys of read holds of so many ms.
fn recorded(fields: Value, pttl: i64, holds: &[(&str, usize, i64)]) -> Value {
    let mut keyspace = json!({"k": recorded_hash(fields, pttl - 400, pttl + 5)});
    for (owner, number, pttl) in holds {
        keyspace[keys::hold_key("k", owner, *number)] =
            json!({"type": "string", "value": "1", "pttl": [pttl - 400, pttl + 5]});
    }
    keyspace
}

trait Holds {
    /// The lock in the database now, and nothing else.
    fn pair(&mut self, fields: &[(&str, &str)], pttl: i64, holds: &[(&str, usize, i64)]) -> &mut Self;
}

impl Holds for Story {
    fn pair(&mut self, fields: &[(&str, &str)], pttl: i64, holds: &[(&str, usize, i64)]) -> &mut Self {
        self.nothing().hash("k", fields, pttl);
        for (owner, number, pttl) in holds {
            self.text(&keys::hold_key("k", owner, *number), "1", *pttl);
        }
        self
    }
}

fn told(payload: &str) -> Vec<Message> {
    vec![Message { channel: keys::pair_channel("k"), payload: payload.to_owned() }]
}

/// TTL of the lock, which must have these fields.
#[track_caller]
fn ttl_of(expected: &Expectation, fields: &[(&str, &str)]) -> Ttl {
    let (found, ttl) = hash_of(expected, "k");
    assert_eq!(found, fields.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect());
    ttl
}

#[track_caller]
fn hold_ttl(expected: &Expectation, owner: &str, number: usize) -> Ttl {
    expected.keyspace[&keys::hold_key("k", owner, number)].ttl
}

/// A writes for 9 s and reads for 7 s.
fn writer_that_reads() -> Story {
    let mut story = Story::new();
    let there = recorded(json!({"mode": "write", "$A:1:write": "1"}), 9_000, &[]);
    story.pair(&[("mode", "write"), ("id-A:1:write", "1")], 9_000, &[]);
    story.step(try_lock("write", A, 9_000), &there, Some(json!(true)));
    let there = recorded(json!({"mode": "write", "$A:1:write": "1", "$A:1": "1"}), 9_000, &[("$A:1", 1, 7_000)]);
    let fields = [("mode", "write"), ("id-A:1:write", "1"), ("id-A:1", "1")];
    story.pair(&fields, 8_990, &[("id-A:1", 1, 7_000)]);
    story.step(try_lock("read", A, 7_000), &there, Some(json!(true)));
    story
}

#[test]
fn ordinary_holds_are_compared_as_recorded() {
    let mut story = Story::new();
    let there = recorded(json!({"mode": "read", "$A:1": "1"}), 9_000, &[("$A:1", 1, 9_000)]);
    story.pair(&[("mode", "read"), ("id-A:1", "1")], 9_000, &[("id-A:1", 1, 9_000)]);
    let expected = story.step(try_lock("read", A, 9_000), &there, Some(json!(true)));
    assert_eq!(expected.keyspace, story.recorded(&there));
    let there =
        recorded(json!({"mode": "read", "$A:1": "1", "$B:1": "1"}), 9_000, &[("$A:1", 1, 9_000), ("$B:1", 1, 4_000)]);
    let fields = [("mode", "read"), ("id-A:1", "1"), ("id-B:1", "1")];
    story.pair(&fields, 8_990, &[("id-A:1", 1, 8_990), ("id-B:1", 1, 4_000)]);
    let expected = story.step(try_lock("read", B, 4_000), &there, Some(json!(true)));
    assert_eq!(expected.keyspace, story.recorded(&there));
}

#[test]
fn a_downgrade_is_told_and_lets_readers_in() {
    let mut story = writer_that_reads();
    let there = recorded(json!({"mode": "write", "$A:1:write": "1", "$A:1": "1"}), 9_000, &[("$A:1", 1, 7_000)]);
    story.step(begun("read", B, "lock", json!({"lease_ms": 5_000}), "b"), &there, None);
    // Recorded: B sleeps on.
    let there = recorded(json!({"mode": "read", "$A:1": "1"}), 9_000, &[("$A:1", 1, 7_000)]);
    let fields = [("mode", "read"), ("id-A:1", "1"), ("id-B:1", "1")];
    story.pair(&fields, 8_970, &[("id-A:1", 1, 6_980), ("id-B:1", 1, 5_000)]);
    let ended = story.ends("b", true);
    let expected = story.full_step(unlock("write", A), &there, Some(Ok(json!(null))), &ended, None);
    assert_eq!(expected.published, told("1"));
    assert_reckoned(ttl_of(&expected, &[("mode", "read"), ("$A:1", "1"), ("$B:1", "1")]), 8_965);
    assert_reckoned(hold_ttl(&expected, "$A:1", 1), 6_975);
    // A leaves and B reads on: nobody is told, there B is.
    let there = recorded(json!({"mode": "read", "$B:1": "1"}), 5_000, &[("$B:1", 1, 5_000)]);
    let mut leave = unlock("read", A);
    leave["published"] = json!([{"channel": keys::pair_channel("k"), "payload": "0"}]);
    story.pair(&[("mode", "read"), ("id-B:1", "1")], 4_990, &[("id-B:1", 1, 4_990)]);
    let expected = story.step(leave, &there, Some(json!(null)));
    assert!(expected.published.is_empty());
    assert_reckoned(ttl_of(&expected, &[("mode", "read"), ("$B:1", "1")]), 4_985);
    // From here on both sides are alike.
    let expected = story.step(awaited("b", json!(null)), &there, Some(json!(null)));
    assert_eq!(expected.keyspace, story.recorded(&there));
}

#[test]
fn without_its_rule_a_downgrade_is_silent() {
    let mut story = writer_that_reads();
    let there = recorded(json!({"mode": "read", "$A:1": "1"}), 9_000, &[("$A:1", 1, 7_000)]);
    story.pair(&[("mode", "read"), ("id-A:1", "1")], 8_970, &[("id-A:1", 1, 6_980)]);
    let done = Some(Ok(json!(null)));
    let expected = story.full_step(unlock("write", A), &there, done, &[], Some(Rule::Downgrade));
    assert!(expected.published.is_empty());
}

#[test]
fn a_downgrade_does_not_excuse_a_lost_reader_or_another_expiry() {
    let mut story = writer_that_reads();
    let there = recorded(json!({"mode": "read", "$A:1": "1"}), 9_000, &[("$A:1", 1, 7_000)]);
    story.nothing();
    let expected = story.step(unlock("write", A), &there, Some(json!(null)));
    assert_reckoned(ttl_of(&expected, &[("mode", "read"), ("$A:1", "1")]), 8_975);
}

#[test]
fn the_release_of_a_read_hold_leaves_the_expiry_to_the_writer() {
    let mut story = writer_that_reads();
    let fields = [("mode", "write"), ("id-A:1:write", "1"), ("id-A:1", "2")];
    story.pair(&fields, 8_980, &[("id-A:1", 1, 6_980), ("id-A:1", 2, 1_000)]);
    let all = json!({"mode": "write", "$A:1:write": "1", "$A:1": "2"});
    let there = recorded(all, 9_000, &[("$A:1", 1, 7_000), ("$A:1", 2, 1_000)]);
    story.step(try_lock("read", A, 1_000), &there, Some(json!(true)));
    // Recorded: cut to the seven seconds of the other read hold.
    let there = recorded(json!({"mode": "write", "$A:1:write": "1", "$A:1": "1"}), 7_000, &[("$A:1", 1, 7_000)]);
    story.pair(&[("mode", "write"), ("id-A:1:write", "1"), ("id-A:1", "1")], 8_970, &[("id-A:1", 1, 6_970)]);
    let expected = story.step(unlock("read", A), &there, Some(json!(null)));
    let fields = [("mode", "write"), ("$A:1:write", "1"), ("$A:1", "1")];
    assert_reckoned(ttl_of(&expected, &fields), 8_965);
    assert!(expected.published.is_empty());
}

#[test]
fn what_is_left_of_write_holds_keeps_its_own_lease() {
    let mut story = Story::new();
    let one = [("mode", "write"), ("id-A:1:write", "1")];
    let there = recorded(json!({"mode": "write", "$A:1:write": "1"}), 9_000, &[]);
    story.pair(&one, 9_000, &[]).step(try_lock("write", A, 9_000), &there, Some(json!(true)));
    // Leases add up, on both sides.
    let there = recorded(json!({"mode": "write", "$A:1:write": "2"}), 14_000, &[]);
    story.pair(&[("mode", "write"), ("id-A:1:write", "2")], 13_990, &[]);
    let expected = story.step(try_lock("write", A, 5_000), &there, Some(json!(true)));
    assert_reckoned(ttl_of(&expected, &[("mode", "write"), ("$A:1:write", "2")]), 13_985);
    // Recorded: the last lease starts again.
    let there = recorded(json!({"mode": "write", "$A:1:write": "1"}), 5_000, &[]);
    let expected = story.pair(&one, 8_980, &[]).step(unlock("write", A), &there, Some(json!(null)));
    assert_reckoned(ttl_of(&expected, &[("mode", "write"), ("$A:1:write", "1")]), 8_975);
    // Free on both sides: as recorded again.
    story.nothing().step(unlock("write", A), &json!({}), Some(json!(null)));
    let there = recorded(json!({"mode": "write", "$A:1:write": "1"}), 500, &[]);
    let expected = story.pair(&one, 500, &[]).step(try_lock("write", A, 500), &there, Some(json!(true)));
    assert_eq!(expected.keyspace, story.recorded(&there));
}

#[test]
fn a_read_hold_whose_lease_ended_beside_another_gives_its_count_back() {
    let mut story = Story::new();
    let one = recorded(json!({"mode": "read", "$A:1": "1"}), 700, &[("$A:1", 1, 700)]);
    story.pair(&[("mode", "read"), ("id-A:1", "1")], 700, &[("id-A:1", 1, 700)]);
    story.step(try_lock("read", A, 700), &one, Some(json!(true)));
    let two = recorded(json!({"mode": "read", "$A:1": "2"}), 9_000, &[("$A:1", 1, 700), ("$A:1", 2, 9_000)]);
    story.pair(&[("mode", "read"), ("id-A:1", "2")], 9_000, &[("id-A:1", 1, 690), ("id-A:1", 2, 9_000)]);
    story.step(try_lock("read", A, 9_000), &two, Some(json!(true)));
    // Recorded: the count stays, and the key of the first hold is gone. Here the second hold has moved up.
    let there = recorded(json!({"mode": "read", "$A:1": "2"}), 7_500, &[("$A:1", 2, 7_500)]);
    story.pair(&[("mode", "read"), ("id-A:1", "1")], 7_490, &[("id-A:1", 1, 7_490)]);
    let expected = story.sleep(1_500, &there);
    ttl_of(&expected, &[("mode", "read"), ("$A:1", "1")]);
    assert!(!expected.keyspace.contains_key(&keys::hold_key("k", "$A:1", 2)));
    // Its second unlock comes to nothing.
    let there = recorded(json!({"mode": "read", "$A:1": "1"}), 7_400, &[]);
    let expected = story.nothing().step(unlock("read", A), &there, Some(json!(null)));
    assert_eq!(expected.published, told("0"));
    let expected = story.full_step(unlock("read", A), &json!({}), Some(failed("NotOwner")), &[], None);
    assert_eq!(expected.result, ExpectedResult::Error(RecordedError::of("IllegalMonitorStateException")));
}

#[test]
fn a_single_read_hold_that_ended_beside_other_readers_is_given_back() {
    let mut story = Story::new();
    let one = recorded(json!({"mode": "read", "$A:1": "1"}), 700, &[("$A:1", 1, 700)]);
    story.pair(&[("mode", "read"), ("id-A:1", "1")], 700, &[("id-A:1", 1, 700)]);
    story.step(try_lock("read", A, 700), &one, Some(json!(true)));
    let both = json!({"mode": "read", "$A:1": "1", "$B:1": "1"});
    let two = recorded(both.clone(), 9_000, &[("$A:1", 1, 700), ("$B:1", 1, 9_000)]);
    let fields = [("mode", "read"), ("id-A:1", "1"), ("id-B:1", "1")];
    story.pair(&fields, 9_000, &[("id-A:1", 1, 690), ("id-B:1", 1, 9_000)]);
    story.step(try_lock("read", B, 9_000), &two, Some(json!(true)));
    // Recorded: the count stays. Here it is gone, and nobody is told, for B reads on.
    let there = recorded(both, 7_500, &[("$B:1", 1, 7_500)]);
    let one = [("mode", "read"), ("id-B:1", "1")];
    let expected = story.pair(&one, 7_490, &[("id-B:1", 1, 7_490)]).sleep(1_500, &there);
    ttl_of(&expected, &[("mode", "read"), ("$B:1", "1")]);
    assert!(expected.published.is_empty());
    let not_owner = Some(failed("NotOwner"));
    let there = recorded(json!({"mode": "read", "$B:1": "1"}), 7_500, &[("$B:1", 1, 7_500)]);
    let expected = story.full_step(unlock("read", A), &there, not_owner, &[], None);
    assert_eq!(expected.result, ExpectedResult::Error(RecordedError::of("IllegalMonitorStateException")));
}

#[test]
fn a_read_hold_that_ends_with_its_key_tells_nobody() {
    let mut story = Story::new();
    let one = recorded(json!({"mode": "read", "$A:1": "1"}), 700, &[("$A:1", 1, 700)]);
    story.pair(&[("mode", "read"), ("id-A:1", "1")], 700, &[("id-A:1", 1, 700)]);
    story.step(try_lock("read", A, 700), &one, Some(json!(true)));
    let expected = story.nothing().sleep(1_500, &json!({}));
    assert!(expected.published.is_empty() && expected.keyspace.is_empty());
}

#[test]
fn a_lock_that_somebody_deleted_is_not_given_back() {
    let mut story = Story::new();
    let there = recorded(json!({"mode": "write", "$A:1:write": "1"}), 300, &[]);
    story.pair(&[("mode", "write"), ("id-A:1:write", "1")], 300, &[]);
    story.step(try_lock("write", A, 300), &there, Some(json!(true)));
    let raw = json!({"op": "raw", "args": {"cmd": ["DEL", "k"]}});
    let expected = story.nothing().step(raw, &json!({}), None);
    assert!(expected.published.is_empty());
    let expected = story.sleep(1_000, &json!({}));
    assert!(expected.published.is_empty() && expected.keyspace.is_empty());
}

#[test]
fn a_writer_is_let_in_when_the_hold_before_it_was_given_back() {
    let mut story = Story::new();
    let there = recorded(json!({"mode": "write", "$B:1:write": "1"}), 370, &[]);
    let held = [("mode", "write"), ("id-B:1:write", "1")];
    story.pair(&held, 370, &[]).step(try_lock("write", B, 370), &there, Some(json!(true)));
    let there = recorded(json!({"mode": "write", "$B:1:write": "1"}), 33_000, &[]);
    let raw = json!({"op": "raw", "args": {"cmd": ["PEXPIRE", "k", "33000"]}});
    story.pair(&held, 33_000, &[]).step(raw, &there, None);
    story.step(begun("write", A, "lock", json!({"lease_ms": 5_000}), "a"), &there, None);
    story.now += 400;
    // Recorded: B's count stands for as long as the key does.
    let ended = story.ends("a", true);
    let slept = json!({"op": "sleep"});
    story.pair(&[("mode", "write"), ("id-A:1:write", "1")], 4_990, &[]);
    let expected = story.full_step(slept, &there, None, &ended, None);
    ttl_of(&expected, &[("mode", "write"), ("$A:1:write", "1")]);
    assert_eq!(expected.published, told("1"));
}

#[test]
fn a_refused_writer_shortens_the_key_to_the_last_reader() {
    let mut story = writer_that_reads();
    let there = recorded(json!({"mode": "read", "$A:1": "1"}), 9_000, &[("$A:1", 1, 7_000)]);
    story.pair(&[("mode", "read"), ("id-A:1", "1")], 8_980, &[("id-A:1", 1, 6_980)]);
    story.step(unlock("write", A), &there, Some(json!(null)));
    let mut refused = try_lock("write", B, 500);
    refused["returns"] = json!(false);
    story.pair(&[("mode", "read"), ("id-A:1", "1")], 6_970, &[("id-A:1", 1, 6_970)]);
    let expected = story.step(refused, &there, Some(json!(false)));
    assert_reckoned(ttl_of(&expected, &[("mode", "read"), ("$A:1", "1")]), 6_965);
    assert_eq!(expected.result, ExpectedResult::Value(json!(false)));
}

#[test]
fn a_renewal_does_not_cut_the_key_under_a_longer_read_hold() {
    let mut story = Story::new();
    let long = recorded(json!({"mode": "read", "$B:1": "1"}), 20_000, &[("$B:1", 1, 20_000)]);
    story.pair(&[("mode", "read"), ("id-B:1", "1")], 20_000, &[("id-B:1", 1, 20_000)]);
    story.step(try_lock("read", B, 20_000), &long, Some(json!(true)));
    let both = json!({"mode": "read", "$A:1": "1", "$B:1": "1"});
    let there = recorded(both.clone(), 20_000, &[("$A:1", 1, 3_000), ("$B:1", 1, 20_000)]);
    let fields = [("mode", "read"), ("id-A:1", "1"), ("id-B:1", "1")];
    story.pair(&fields, 19_990, &[("id-A:1", 1, 3_000), ("id-B:1", 1, 19_990)]);
    story.step(on("read", A, "lock", json!({}), json!(null)), &there, Some(json!(null)));
    // Recorded: three seconds.
    let there = recorded(both, 3_000, &[("$A:1", 1, 3_000), ("$B:1", 1, 17_500)]);
    story.pair(&fields, 17_480, &[("id-A:1", 1, 2_500), ("id-B:1", 1, 17_480)]);
    let expected = story.sleep(2_500, &there);
    assert_reckoned(ttl_of(&expected, &[("mode", "read"), ("$A:1", "1"), ("$B:1", "1")]), 17_475);
    let Ttl::Reckoned(renewed) = hold_ttl(&expected, "$A:1", 1) else { panic!("reckoned") };
    assert!(renewed.min > 1_600 && renewed.max <= 3_050, "{renewed:?}");
}

#[test]
fn the_release_of_a_read_hold_does_not_end_the_renewal_of_the_writer() {
    let mut story = Story::new();
    let written = recorded(json!({"mode": "write", "$A:1:write": "1"}), 3_000, &[]);
    let fields = [("mode", "write"), ("id-A:1:write", "1")];
    let lock = |kind: &str| on(kind, A, "lock", json!({}), json!(null));
    story.pair(&fields, 3_000, &[]).step(lock("write"), &written, Some(json!(null)));
    let both = recorded(json!({"mode": "write", "$A:1:write": "1", "$A:1": "1"}), 3_000, &[("$A:1", 1, 3_000)]);
    let and_read = [("mode", "write"), ("id-A:1:write", "1"), ("id-A:1", "1")];
    story.pair(&and_read, 2_990, &[("id-A:1", 1, 3_000)]).step(lock("read"), &both, Some(json!(null)));
    story.pair(&fields, 2_980, &[]).step(unlock("read", A), &written, Some(json!(null)));
    // Recorded: it was not renewed any more and is gone.
    let expected = story.pair(&fields, 2_500, &[]).sleep(4_000, &json!({}));
    let Ttl::Reckoned(renewed) = ttl_of(&expected, &[("mode", "write"), ("$A:1:write", "1")]) else {
        panic!("reckoned")
    };
    assert!(renewed.min > 1_600, "{renewed:?}");
    let mut refused = try_lock("read", B, 500);
    refused["returns"] = json!(true);
    let expected = story.step(refused, &json!({}), Some(json!(false)));
    assert_eq!(expected.result, ExpectedResult::Value(json!(false)));
}

#[test]
fn a_fixed_read_hold_beside_one_on_the_watchdog_keeps_its_own_end() {
    let mut story = Story::new();
    let there = recorded(json!({"mode": "read", "$A:1": "1"}), 3_000, &[("$A:1", 1, 3_000)]);
    story.pair(&[("mode", "read"), ("id-A:1", "1")], 3_000, &[("id-A:1", 1, 3_000)]);
    story.step(on("read", A, "lock", json!({}), json!(null)), &there, Some(json!(null)));
    let there = recorded(json!({"mode": "read", "$A:1": "2"}), 3_000, &[("$A:1", 1, 3_000), ("$A:1", 2, 500)]);
    story.pair(&[("mode", "read"), ("id-A:1", "2")], 2_990, &[("id-A:1", 1, 2_990), ("id-A:1", 2, 500)]);
    let expected = story.step(try_lock("read", A, 500), &there, Some(json!(true)));
    let Ttl::Reckoned(range) = hold_ttl(&expected, "$A:1", 2) else { panic!("reckoned") };
    assert!(range.min <= 495 && range.min > 450, "{range:?}");
}

#[test]
fn names_of_hold_keys_are_told_apart() {
    for (lock, name, owner) in [
        ("rw", "{rw}:$A:1:rwlock_timeout:1", Some(("$A:1", 1))),
        ("q{w}e", "q{w}e:$A:1:rwlock_timeout:2", Some(("$A:1", 2))),
        ("rw", "{rw2}:$A:1:rwlock_timeout:1", None),
        ("rw", "rw", None),
        ("rw", "{rw}:$A:1:rwlock_timeout:x", None),
    ] {
        assert_eq!(number_of(lock, name), owner.map(|(owner, number)| (owner.to_owned(), number)), "{lock} {name}");
    }
}
