//! The fenced lock's scripts.

use redis::{RedisError, Value};

use super::server::{Server, assert_near, assert_refused, ms, owner};
use crate::{
    owner::Holder,
    scripts::{
        answers::{Acquired, Busy, Granted, Transferred},
        fenced,
    },
};

const KEY: &str = "d";
const TOKEN: &str = "redisson_lock_token:{d}";
const CHANNEL: &str = "redisson_lock__channel:{d}";

struct Fenced(Server);

fn granted(found: u64, token: u64) -> Acquired {
    Acquired::Granted(Granted { found, fresh: found == 0, token: Some(token) })
}

impl Fenced {
    fn try_acquire(&mut self, n: i64, target: u64, abandoned: &[Holder]) -> Result<Acquired, RedisError> {
        let call = fenced::acquire(KEY, TOKEN, owner(n), target, ms(5000), ms(9000), abandoned);
        Ok(fenced::read_acquired(KEY, &self.0.try_call(&call)?).expect("a reply of the script's"))
    }

    fn acquire(&mut self, n: i64, target: u64) -> Acquired {
        self.try_acquire(n, target, &[]).expect("the script runs")
    }

    fn transfer(&mut self, old: i64, new: i64) -> (Transferred, Option<u64>) {
        let reply = self.0.call(&fenced::transfer(KEY, TOKEN, owner(old), owner(new), ms(7000), CHANNEL));
        fenced::read_transferred(KEY, &reply).expect("a reply of the script's")
    }

    fn ttl(&mut self, key: &str) -> i64 {
        self.0.ask(&["PTTL", key])
    }
}

#[test]
fn every_grant_draws_a_token_re_entry_and_repetition_too() {
    let mut fenced = Fenced(Server::start());
    assert_eq!(fenced.acquire(1, 1), granted(0, 1));
    assert_near(fenced.ttl(KEY), 5000);
    assert_eq!(fenced.acquire(1, 2), granted(1, 2));
    assert_near(fenced.ttl(KEY), 9000);
    assert_eq!(fenced.acquire(1, 2), granted(2, 3));
    assert_eq!(fenced.0.ask::<u64>(&["HGET", KEY, &owner(1).to_string()]), 2);
    // Who is refused draws none.
    match fenced.acquire(2, 1) {
        Acquired::Busy(Busy { retry_in: Some(left), by_readers: false, place: None }) => {
            assert_near(left.as_millis().try_into().expect("a short time"), 9000);
        }
        other => panic!("{other:?}"),
    }
    assert_eq!(fenced.0.ask::<u64>(&["GET", TOKEN]), 3);
    assert_eq!(fenced.ttl(TOKEN), -1);
    // The token outlives the lock.
    fenced.0.run_words(&["DEL", KEY]);
    assert_eq!(fenced.acquire(2, 1), granted(0, 4));
    assert_eq!(fenced.ttl(TOKEN), -1);
}

#[test]
fn a_lock_without_expiry_is_not_granted() {
    let mut fenced = Fenced(Server::start());
    fenced.0.run_words(&["HSET", KEY, "somebody", "1"]);
    assert_eq!(fenced.acquire(1, 1), Acquired::Busy(Busy::default()));
    assert!(!fenced.0.contents().contains_key(TOKEN));
}

#[test]
fn a_hold_of_an_abandoned_owner_counts_as_free() {
    let mut fenced = Fenced(Server::start());
    assert_eq!(fenced.acquire(1, 1), granted(0, 1));
    assert_eq!(fenced.try_acquire(2, 1, &[owner(3), owner(1)]).expect("runs"), granted(0, 2));
    assert_eq!(fenced.0.ask::<Vec<String>>(&["HKEYS", KEY]), [owner(2).to_string()]);
}

#[test]
fn an_abandoned_owner_is_in_nobodys_way_when_the_holder_enters_again() {
    let mut fenced = Fenced(Server::start());
    assert_eq!(fenced.acquire(1, 1), granted(0, 1));
    assert_eq!(fenced.try_acquire(1, 2, &[owner(3)]).expect("runs"), granted(1, 2));
}

#[test]
fn a_token_is_counted_up_from_whatever_it_is() {
    let mut fenced = Fenced(Server::start());
    // On both sides of what a number in Lua can tell.
    for token in [9_007_199_254_740_991, 9_007_199_254_740_992, 9_007_199_254_740_993, 999_999_999_999_999_998] {
        fenced.0.run_words(&["DEL", KEY]);
        fenced.0.run_words(&["SET", TOKEN, &(token - 1).to_string()]);
        assert_eq!(fenced.acquire(1, 1), granted(0, token));
        assert_eq!(fenced.transfer(1, 2).0, Transferred::Granted { token: Some(token + 1) });
    }
    fenced.0.run_words(&["DEL", KEY]);
    fenced.0.run_words(&["SET", TOKEN, "1"]);
    assert_eq!(fenced.acquire(1, 1), granted(0, 2));
    fenced.0.run_words(&["SET", TOKEN, "0"]);
    assert_eq!(fenced.transfer(1, 2).0, Transferred::Granted { token: Some(1) });
    fenced.0.run_words(&["DEL", TOKEN]);
    assert_eq!(fenced.transfer(2, 1).0, Transferred::Granted { token: Some(1) });
}

#[test]
fn a_token_that_cannot_be_counted_up_is_foreign() {
    let tokens = ["many", "", "-1", "1.5", "007", " 1", "9223372036854775807", "99999999999999999999"];
    for held in [false, true] {
        for token in tokens {
            let mut fenced = Fenced(Server::start());
            if held {
                assert_eq!(fenced.acquire(1, 1), granted(0, 1));
            }
            fenced.0.run_words(&["SET", TOKEN, token]);
            let before = fenced.0.contents();
            assert_eq!(fenced.acquire(1, 2), Acquired::Foreign, "{token}");
            assert_eq!(fenced.try_acquire(2, 1, &[owner(1)]).expect("runs"), Acquired::Foreign, "{token}");
            if held {
                assert_eq!(fenced.transfer(1, 2).0, Transferred::Foreign, "{token}");
                assert_eq!(fenced.transfer(2, 1).0, Transferred::Foreign, "{token}");
            }
            assert_eq!(fenced.0.contents(), before, "{token}");
        }
    }
}

#[test]
fn hashes_and_keys_of_other_kinds_are_left_as_they_are() {
    let mut fenced = Fenced(Server::start());
    let one = owner(1).to_string();
    let shapes: [&[&str]; 3] = [&["mode", "read"], &[&one, "1", "somebody", "1"], &[&one, "many"]];
    for shape in shapes {
        fenced.0.run_words(&["FLUSHALL"]);
        fenced.0.run_words(&[&["HSET", KEY], shape].concat());
        let before = fenced.0.contents();
        assert_eq!(fenced.acquire(1, 1), Acquired::Foreign, "{shape:?}");
        if shape[0] == one {
            assert_eq!(fenced.transfer(1, 2).0, Transferred::Foreign, "{shape:?}");
        }
        assert_eq!(fenced.0.contents(), before, "{shape:?}");
    }
    for key in [KEY, TOKEN] {
        fenced.0.run_words(&["FLUSHALL"]);
        fenced.0.run_words(&["HSET", KEY, &one, "1"]);
        fenced.0.run_words(&["DEL", key]);
        fenced.0.run_words(&["RPUSH", key, "text"]);
        let before = fenced.0.contents();
        let call = fenced::transfer(KEY, TOKEN, owner(1), owner(2), ms(7000), CHANNEL);
        assert_refused(fenced.try_acquire(1, 1, &[]), "WRONGTYPE");
        assert_refused(fenced.try_acquire(2, 1, &[owner(1)]), "WRONGTYPE");
        assert_refused(fenced.0.try_call(&call), "WRONGTYPE");
        assert_eq!(fenced.0.contents(), before, "{key}");
    }
}

#[test]
fn a_transfer_draws_a_token_for_the_new_owner() {
    let mut fenced = Fenced(Server::start());
    fenced.acquire(1, 1);
    assert_eq!(fenced.transfer(1, 2), (Transferred::Granted { token: Some(2) }, Some(0)));
    assert_near(fenced.ttl(KEY), 7000);
    assert_eq!(fenced.0.ask::<Vec<String>>(&["HGETALL", KEY]), [owner(2).to_string(), "1".to_owned()]);
    // A second sending finds the grant of the first one.
    fenced.0.run_words(&["PEXPIRE", KEY, "100"]);
    assert_eq!(fenced.transfer(1, 2).0, Transferred::Granted { token: Some(3) });
    assert_near(fenced.ttl(KEY), 7000);
    assert_eq!(fenced.transfer(1, 3).0, Transferred::Gone);
    assert_eq!(fenced.0.ask::<Vec<String>>(&["HGETALL", KEY]), [owner(2).to_string(), "1".to_owned()]);
    assert_eq!(fenced.0.ask::<Value>(&["GET", TOKEN]), Value::BulkString(b"3".to_vec()));
    assert_eq!(fenced.ttl(TOKEN), -1);
    assert_eq!(fenced.0.heard(), []);
}

#[test]
fn a_full_server_still_hands_over() {
    let mut fenced = Fenced(Server::start());
    fenced.acquire(1, 1);
    fenced.0.fill();
    assert_refused(fenced.try_acquire(1, 2, &[]), "OOM");
    assert_eq!(fenced.0.ask::<u64>(&["GET", TOKEN]), 1);
    assert_eq!(fenced.transfer(1, 2).0, Transferred::Granted { token: Some(2) });
    assert_eq!(fenced.transfer(1, 2).0, Transferred::Granted { token: Some(3) });
}
