//! The plain lock's scripts, as the kinds use them that are nearly one.

use redis::Value;

use super::server::{Server, assert_near, assert_refused, ms, owner};
use crate::{
    connection::Invocation,
    scripts::{
        answers::{Acquired, Forced, Granted, Released},
        lock::{self, Reentry},
    },
    topology::Flavour,
};

const KEY: &str = "s";

fn acquire(n: i64, target: u64, reentry: Reentry) -> Invocation {
    lock::acquire(KEY, owner(n), target, ms(5000), ms(9000), reentry, &[owner(99)])
}

impl Server {
    fn take(&mut self, n: i64, target: u64, reentry: Reentry) -> Acquired {
        let reply = self.call(&acquire(n, target, reentry));
        lock::read_acquired(KEY, &reply).expect("a reply of the script's")
    }

    fn give_back(&mut self, n: i64, target: u64, channel: &str) -> Released {
        let reply = self.call(&lock::release(KEY, owner(n), target, ms(3000), channel, Flavour::Plain, false));
        lock::read_released(KEY, target, !channel.is_empty(), &reply).expect("a reply of the script's")
    }
}

fn granted(found: u64) -> Acquired {
    Acquired::Granted(Granted { found, fresh: found == 0, token: None })
}

#[test]
fn a_lock_that_is_not_re_entrant_refuses_its_holder_but_knows_an_earlier_grant() {
    let mut server = Server::start();
    for free in [Reentry::Refused, Reentry::RefusedButRepeated] {
        assert_eq!(server.take(1, 1, free), granted(0));
        server.run_words(&["DEL", KEY]);
    }
    server.take(1, 1, Reentry::Refused);
    let before = server.contents();
    assert_eq!(server.take(1, 1, Reentry::Refused), Acquired::Reentry);
    assert_near(server.ask(&["PTTL", KEY]), 5000);
    assert_eq!(server.take(1, 1, Reentry::RefusedButRepeated), granted(1));
    assert_near(server.ask(&["PTTL", KEY]), 9000);
    assert_eq!(server.contents(), before);
    assert!(matches!(server.take(2, 1, Reentry::RefusedButRepeated), Acquired::Busy(_)));
    // Two holds are no grant of a lock that is not re-entrant.
    assert_eq!(server.take(1, 2, Reentry::Allowed), granted(1));
    assert_eq!(server.take(1, 1, Reentry::RefusedButRepeated), Acquired::Reentry);
    assert_eq!(server.ask::<u64>(&["HGET", KEY, &owner(1).to_string()]), 2);
    server.run_words(&["HSET", KEY, "mode", "read"]);
    assert_eq!(server.take(1, 1, Reentry::Refused), Acquired::Foreign);
}

#[test]
fn an_abandoned_hold_is_not_mistaken_for_an_argument() {
    let mut server = Server::start();
    server.take(99, 1, Reentry::Allowed);
    assert_eq!(server.take(1, 1, Reentry::Refused), granted(0));
    assert_eq!(server.ask::<Vec<String>>(&["HKEYS", KEY]), [owner(1).to_string()]);
}

#[test]
fn without_a_channel_nobody_is_told() {
    let mut server = Server::start();
    server.take(1, 1, Reentry::Allowed);
    server.take(1, 2, Reentry::Allowed);
    assert_eq!(server.give_back(1, 1, ""), Released { found: 2, ..Released::default() });
    assert_near(server.ask(&["PTTL", KEY]), 3000);
    assert_eq!(server.give_back(1, 0, ""), Released { found: 1, ..Released::default() });
    assert_eq!(server.give_back(1, 0, ""), Released::default());
    assert!(server.contents().is_empty());
    server.take(1, 1, Reentry::Allowed);
    let forced = lock::force_release(KEY, "", Flavour::Plain);
    for outcome in [Forced::Freed { untold: false }, Forced::WasFree] {
        let reply = server.call(&forced);
        assert_eq!(lock::read_forced(KEY, &reply).expect("a reply of the script's"), outcome);
    }
    assert_eq!(server.heard(), []);

    server.take(1, 1, Reentry::Allowed);
    let forced = lock::force_release(KEY, "forced", Flavour::Plain);
    server.call(&forced);
    assert_eq!(server.heard(), [("forced".to_owned(), "0".to_owned())]);

    server.take(1, 1, Reentry::Allowed);
    let freed = Released { found: 1, published: true, untold: false, granted: None, was_free: false };
    assert_eq!(server.give_back(1, 0, "told"), freed);
    assert_eq!(server.heard(), [("told".to_owned(), "0".to_owned())]);
}

#[test]
fn hashes_of_other_kinds_are_left_as_they_are() {
    let mut server = Server::start();
    let one = owner(1).to_string();
    let shapes: [&[&str]; 4] =
        [&["mode", "read"], &["mode", "read", &one, "1"], &["somebody", "1", &one, "1"], &[&one, "many"]];
    for shape in shapes {
        server.run_words(&["DEL", KEY]);
        server.run_words(&[&["HSET", KEY], shape].concat());
        let before = server.contents();
        for reentry in [Reentry::Allowed, Reentry::Refused, Reentry::RefusedButRepeated] {
            assert_eq!(server.take(1, 1, reentry), Acquired::Foreign, "{shape:?}");
        }
        if shape.contains(&one.as_str()) {
            let strict = lock::release(KEY, owner(1), 0, ms(3000), "told", Flavour::Plain, true);
            assert_refused(server.try_call(&strict), "WRONGTYPE");
        }
        if shape.contains(&"mode") || shape.contains(&"somebody") {
            let reply = server.call(&lock::force_release(KEY, "told", Flavour::Plain));
            assert_eq!(lock::read_forced(KEY, &reply).expect("a reply of the script's"), Forced::Foreign);
        }
        assert_eq!(server.contents(), before, "{shape:?}");
    }
    server.run_words(&["HSET", KEY, &one, "1"]);
    let strict = lock::release(KEY, owner(1), 0, ms(3000), "told", Flavour::Plain, true);
    assert_eq!(server.call(&strict), Value::Int(1));
    assert_eq!(server.heard(), [("told".to_owned(), "0".to_owned())]);
}
