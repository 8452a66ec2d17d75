//! Renewal.

use super::*;
use crate::scripts::{
    lock as plain,
    read_write::{Raise, ReadRenewal},
};

fn renew(lock: &Lock, renewals: &[(i64, Raise, Duration)]) -> Vec<u64> {
    let renewals = renewals.iter().map(|(thread, holds, key_lives)| ReadRenewal {
        key: &lock.name,
        owner: owner(*thread),
        holds: *holds,
        key_lives: *key_lives,
    });
    let reply = lock.run(&read_write::renew_reads(renewals.clone()));
    read_write::read_renewed(&lock.name, &reply, renewals.len()).expect("a count each")
}

#[test]
fn a_renewal_raises_what_it_names_and_shortens_nothing() {
    let lock = Lock::new();
    lock.read(1, 1, s(60));
    lock.read(1, 2, s(10));
    lock.read(1, 3, s(10));
    assert_eq!(renew(&lock, &[(1, Raise::One(2, s(30)), s(30))]), [3]);
    about(lock.hold_lives(1, 2), s(30));
    about(lock.hold_lives(1, 3), s(10));
    about(lock.lives(), s(60));
    assert_eq!(renew(&lock, &[(1, Raise::All(s(40)), s(40))]), [3]);
    about(lock.hold_lives(1, 1), s(60));
    about(lock.hold_lives(1, 2), s(40));
    about(lock.hold_lives(1, 3), s(40));
    about(lock.lives(), s(60));
    assert_eq!(renew(&lock, &[(1, Raise::None, s(90))]), [3]);
    about(lock.hold_lives(1, 1), s(60));
    about(lock.lives(), s(90));
    assert_eq!(renew(&lock, &[(1, Raise::One(4, s(95)), s(95))]), [3]);
    assert_eq!(lock.hold_lives(1, 4), None, "there is no such hold");
}

#[test]
fn a_hold_key_that_lapsed_is_made_anew_also_without_memory() {
    let lock = Lock::new();
    lock.read(1, 1, s(30));
    lock.read(1, 2, s(30));
    lock.lapse(1, 1);
    assert_eq!(renew(&lock, &[(1, Raise::All(s(30)), s(30))]), [2]);
    about(lock.hold_lives(1, 1), s(30));
    lock.lapse(1, 2);
    lock.server.ask::<()>(cmd("CONFIG").arg("SET").arg("maxmemory").arg("1"));
    assert_eq!(renew(&lock, &[(1, Raise::All(s(30)), s(10))]), [2]);
    about(lock.hold_lives(1, 2), s(30));
    assert_eq!(lock.server.ask::<String>(cmd("GET").arg(lock.hold_key(1, 2))), "1");
}

#[test]
fn each_hold_of_a_batch_has_its_own_answer() {
    let lock = Lock::new();
    lock.read(1, 1, s(10));
    lock.read(2, 1, s(10));
    lock.server.ask::<()>(cmd("SET").arg("text").arg("text"));
    lock.server.ask::<()>(cmd("HSET").arg("plain").arg(reader(1).to_string()).arg(1));
    let one = |key, thread| ReadRenewal { key, owner: owner(thread), holds: Raise::All(s(30)), key_lives: s(30) };
    let key = &*lock.name;
    let batch =
        [one("text", 1), one(key, 1), one("nothing", 1), one("plain", 1), one("plain", 2), one(key, 3), one(key, 2)];
    let reply = lock.run(&read_write::renew_reads(batch.into_iter()));
    assert_eq!(read_write::read_renewed(key, &reply, 7).expect("a count each"), [0, 1, 0, 0, 0, 0, 1]);
    about(lock.hold_lives(1, 1), s(30));
    about(lock.hold_lives(2, 1), s(30));
    assert_eq!(lock.left("plain"), None);
    assert_eq!(lock.keys().len(), 5, "nothing was made");
}

#[test]
fn reads_of_a_writer_are_renewed_without_shortening_the_write_hold() {
    let lock = Lock::new();
    lock.write(1, 1, s(60));
    lock.read(1, 1, s(10));
    assert_eq!(renew(&lock, &[(1, Raise::All(s(30)), s(30))]), [1]);
    about(lock.hold_lives(1, 1), s(30));
    about(lock.lives(), s(60));
}

#[test]
fn a_write_hold_is_renewed_like_that_of_a_plain_lock() {
    let lock = Lock::new();
    lock.write(1, 1, s(10));
    lock.write(1, 2, s(10));
    let renew = || {
        let reply = lock.run(&plain::renew([(&*lock.name, writer(1), s(30))].into_iter()));
        plain::read_renewed(&lock.name, &reply, 1).expect("a count")
    };
    assert_eq!(renew(), [2]);
    about(lock.lives(), s(30));
    lock.read(1, 1, s(10));
    lock.release_write(1, 0, s(30));
    assert_eq!(renew(), [0], "it only reads now");
    lock.assert_fields(&[("mode", "read"), ("1", "1")]);
}
