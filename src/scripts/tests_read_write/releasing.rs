//! Giving holds back.

use super::*;
use crate::answers::Forced;

#[test]
fn the_last_reader_frees_the_lock_and_wakes_one() {
    let lock = Lock::new();
    lock.read(1, 1, s(30));
    lock.read(1, 2, s(30));
    assert_eq!(lock.release_read(1, 0, &[]), released(2, true));
    lock.assert_heard(&["0"]);
    assert_eq!(lock.keys(), Vec::<String>::new());
}

#[test]
fn while_others_read_the_key_lives_as_long_as_the_last_of_them() {
    let lock = Lock::new();
    lock.read(1, 1, s(60));
    lock.read(2, 1, s(30));
    lock.read(3, 1, s(10));
    assert_eq!(lock.release_read(1, 0, &[]), released(1, false));
    about(lock.lives(), s(30));
    // Another client's renewal may have cut it: protocol 14.32.
    lock.server.ask::<()>(cmd("PEXPIRE").arg(&lock.name).arg(5_000));
    assert_eq!(lock.release_read(3, 0, &[]), released(1, false));
    about(lock.lives(), s(30));
    lock.assert_fields(&[("mode", "read"), ("2", "1")]);
    lock.assert_heard(&[]);
    assert_eq!(lock.release_read(2, 0, &[]), released(1, true));
    lock.assert_heard(&["0"]);
    assert_eq!(lock.keys(), Vec::<String>::new());
}

#[test]
fn a_partial_release_drops_the_highest_number_and_sets_anew_what_is_left() {
    let lock = Lock::new();
    lock.read(1, 1, s(90));
    lock.read(1, 2, s(60));
    lock.read(1, 3, s(10));
    for _ in 0..2 {
        // The hold that was promised 90 s goes: numbers 1 and 2 are those of the others now. Sent twice.
        let found = lock.release_read(1, 2, &[s(60), s(10)]).found;
        assert!(found == 3 || found == 2);
        lock.assert_fields(&[("mode", "read"), ("1", "2")]);
        about(lock.hold_lives(1, 1), s(60));
        about(lock.hold_lives(1, 2), s(10));
        assert_eq!(lock.hold_lives(1, 3), None);
        about(lock.lives(), s(60));
    }
    assert_eq!(lock.release_read(1, 1, &[]), released(2, false));
    about(lock.hold_lives(1, 1), s(60));
    lock.lapse(1, 1);
    lock.read(1, 2, s(10));
    assert_eq!(lock.release_read(1, 1, &[s(20)]), released(2, false), "a hold key that lapsed is made anew");
    about(lock.hold_lives(1, 1), s(20));
    about(lock.lives(), s(20));
    lock.assert_heard(&[]);
}

#[test]
fn only_as_many_hold_keys_are_set_anew_as_there_are_holds() {
    let lock = Lock::new();
    lock.read(1, 1, s(30));
    lock.read(2, 1, s(30));
    assert_eq!(lock.release_read(1, 2, &[s(60), s(60)]), released(1, false), "fewer than the client believed");
    about(lock.hold_lives(1, 1), s(60));
    assert_eq!(lock.hold_lives(1, 2), None);
    about(lock.lives(), s(60));
    assert_eq!(lock.release_read(1, 0, &[s(60)]), released(1, false));
    lock.assert_fields(&[("mode", "read"), ("2", "1")]);
    assert_eq!(lock.keys().len(), 2);
}

#[test]
fn among_many_readers_a_release_looks_at_all_only_when_a_few_do_not_settle_it() {
    let lock = Lock::new();
    let looked = || ["hrandfield", "hgetall", "pttl"].map(|command| lock.server.calls(command));
    let costs = |thread| {
        let before = looked();
        assert_eq!(lock.release_read(thread, 0, &[]), released(1, false));
        let after = looked();
        [0, 1, 2].map(|i| after[i] - before[i])
    };
    lock.read(1, 1, s(10));
    for thread in 2..20 {
        lock.read(thread, 1, s(30));
    }
    lock.read(20, 1, s(60));
    assert_eq!(costs(1), [0, 0, 2], "somebody else has the time of the key");
    about(lock.lives(), s(60));
    assert_eq!(costs(20), [1, 1, 22], "it alone had the time of the key");
    about(lock.lives(), s(30));
    assert_eq!(costs(2), [1, 0, 4], "one of two others has that time");
    about(lock.lives(), s(30));
    lock.read(3, 2, s(30));
    let before = looked();
    assert_eq!(lock.release_read(3, 1, &[]), released(2, false));
    assert_eq!(looked()[..2], before[..2], "its own other hold has that time");
    lock.server.ask::<()>(cmd("PERSIST").arg(&lock.name));
    assert_eq!(costs(3)[..2], [0, 1], "a key without an end gets one");
    about(lock.lives(), s(30));
    for thread in 4..10 {
        assert_eq!(costs(thread), [1, 0, 4]);
    }
    for thread in 10..19 {
        assert_eq!(costs(thread)[..2], [u64::from(thread < 11), u64::from(thread >= 11)], "of {thread}");
    }
    assert_eq!(lock.release_read(19, 0, &[]), released(1, true));
    lock.assert_heard(&["0"]);
}

#[test]
fn readers_without_a_live_hold_key_count_as_dead() {
    let lock = Lock::new();
    lock.read(1, 1, s(30));
    lock.read(2, 1, s(30));
    lock.read(2, 2, s(30));
    lock.lapse(2, 1);
    lock.lapse(2, 2);
    assert_eq!(lock.release_read(1, 0, &[]), released(1, true));
    lock.assert_heard(&["0"]);
    assert_eq!(lock.keys(), Vec::<String>::new());
}

#[test]
fn under_the_owners_own_write_hold_a_read_release_is_silent_and_shortens_nothing() {
    let lock = Lock::new();
    lock.write(1, 1, s(60));
    lock.read(1, 1, s(10));
    lock.read(1, 2, s(20));
    assert_eq!(lock.release_read(1, 1, &[]), released(2, false));
    about(lock.lives(), s(60));
    assert_eq!(lock.release_read(1, 0, &[]), released(1, false));
    about(lock.lives(), s(60));
    lock.assert_fields(&[("mode", "write"), ("1:write", "1")]);
    assert_eq!(lock.keys(), [&*lock.name]);
    lock.assert_heard(&[]);
}

#[test]
fn a_release_of_nothing_does_nothing_and_of_a_free_lock_wakes() {
    let lock = Lock::new();
    assert_eq!(lock.release_read(1, 0, &[]), released(0, true));
    lock.assert_heard(&["0"]);
    assert_eq!(lock.release_write(1, 0, s(30)), released(0, true));
    lock.assert_heard(&["1"]);

    lock.read(1, 1, s(30));
    assert_eq!(lock.release_read(2, 0, &[]), released(0, false));
    assert_eq!(lock.release_write(1, 0, s(30)), released(0, false));
    lock.assert_fields(&[("mode", "read"), ("1", "1")]);
    lock.release_read(1, 0, &[]);
    lock.heard();

    lock.write(1, 1, s(30));
    assert_eq!(lock.release_read(1, 0, &[]), released(0, false));
    assert_eq!(lock.release_write(2, 0, s(30)), released(0, false));
    lock.assert_fields(&[("mode", "write"), ("1:write", "1")]);
    lock.assert_heard(&[]);
}

#[test]
fn the_last_write_release_frees_the_lock_and_wakes_all() {
    let lock = Lock::new();
    lock.write(1, 1, s(30));
    lock.write(1, 2, s(30));
    for found in [2, 1] {
        // The second is the first one sent again.
        assert_eq!(lock.release_write(1, 1, s(10)), released(found, false));
        lock.assert_fields(&[("mode", "write"), ("1:write", "1")]);
        about(lock.lives(), s(10));
    }
    lock.assert_heard(&[]);
    assert_eq!(lock.release_write(1, 0, s(10)), released(1, true));
    lock.assert_heard(&["1"]);
    assert_eq!(lock.keys(), Vec::<String>::new());
}

#[test]
fn a_partial_write_release_leaves_the_owners_reads_their_time() {
    let lock = Lock::new();
    lock.write(1, 1, s(30));
    lock.write(1, 2, s(30));
    lock.read(1, 1, s(90));
    assert_eq!(lock.release_write(1, 1, s(10)), released(2, false));
    about(lock.lives(), s(90));
}

#[test]
fn a_writer_that_goes_on_reading_lets_other_readers_in_and_says_so() {
    let lock = Lock::new();
    lock.write(1, 1, s(60));
    lock.read(1, 1, s(30));
    assert_eq!(lock.release_write(1, 0, s(30)), released(1, true));
    lock.assert_heard(&["1"]);
    lock.assert_fields(&[("mode", "read"), ("1", "1")]);
    about(lock.lives(), s(60));
    assert_eq!(lock.read(2, 1, s(30)), granted(0));
    assert_eq!(lock.release_write(1, 0, s(30)), released(0, false), "sent again");
    lock.assert_heard(&[]);
}

#[test]
fn a_hash_of_another_kind_is_never_released() {
    let lock = Lock::new();
    let strict_read = ReadRelease { owner: owner(1), target: 0, rearm: &[], strict: true, ended: false };
    let strict_write = WriteRelease { owner: owner(1), target: 0, left: s(30), strict: true, ended: false };
    for (mode, value) in [(None, "1"), (Some("odd"), "1"), (Some("read"), "many"), (Some("write"), "many")] {
        lock.server.ask::<()>(cmd("DEL").arg(&lock.name));
        let (as_reader, as_writer) = (reader(1).to_string(), writer(1).to_string());
        lock.server.ask::<()>(cmd("HSET").arg(&lock.name).arg(&[(as_reader, value), (as_writer, value)]));
        if let Some(mode) = mode {
            lock.server.ask::<()>(cmd("HSET").arg(&lock.name).arg("mode").arg(mode));
        } else {
            assert_eq!(lock.release_read(1, 0, &[]), released(0, false), "the hold is gone");
            assert_eq!(lock.release_write(1, 0, s(30)), released(0, false));
        }
        let before = lock.fields();
        let error = lock.server.run(&read_write::release_read(lock.names(), Flavour::Plain, &strict_read));
        assert!(error.expect_err("refused").to_string().contains("WRONGTYPE"));
        if mode == Some("read") {
            assert_eq!(lock.release_write(1, 0, s(30)), released(0, false), "who reads has no write hold");
        } else {
            let error = lock.server.run(&read_write::release_write(lock.names(), Flavour::Plain, &strict_write));
            assert!(error.expect_err("refused").to_string().contains("WRONGTYPE"));
        }
        assert_eq!(lock.fields(), before);
    }
    lock.assert_heard(&[]);
}

#[test]
fn a_server_without_memory_takes_every_hold_back() {
    let lock = Lock::new();
    let limit = |bytes: &str| lock.server.ask::<()>(cmd("CONFIG").arg("SET").arg("maxmemory").arg(bytes));
    lock.read(1, 1, s(30));
    lock.read(1, 2, s(60));
    lock.read(2, 1, s(30));
    lock.lapse(1, 1);
    limit("1");
    assert_eq!(lock.release_read(1, 1, &[s(60)]), released(2, false));
    about(lock.hold_lives(1, 1), s(60));
    lock.lapse(1, 1);
    assert_eq!(lock.release_read(1, 1, &[s(60)]), released(1, false), "sent again, and a hold key is missing");
    about(lock.hold_lives(1, 1), s(60));
    assert_eq!(lock.release_read(1, 0, &[]), released(1, false));
    assert_eq!(lock.release_read(2, 0, &[]), released(1, true));
    assert_eq!(lock.keys(), Vec::<String>::new());

    limit("0");
    lock.write(1, 1, s(30));
    lock.write(1, 2, s(30));
    lock.read(1, 1, s(30));
    limit("1");
    assert_eq!(lock.release_write(1, 1, s(30)), released(2, false));
    assert_eq!(lock.release_write(1, 0, s(30)), released(1, true));
    lock.assert_fields(&[("mode", "read"), ("1", "1")]);
    assert_eq!(lock.release_read(1, 0, &[]), released(1, true));
    lock.assert_heard(&["0", "1", "0"]);
}

#[test]
fn a_message_that_is_refused_does_not_keep_the_lock() {
    let lock = Lock::new();
    lock.read(1, 1, s(30));
    lock.server.ask::<()>(cmd("ACL").arg("SETUSER").arg(&["mute", "on", ">mute", "~*", "+@all", "resetchannels"]));
    lock.server.ask::<()>(cmd("AUTH").arg("mute").arg("mute"));
    let untold = |found| Released { found, published: true, untold: true, granted: None, was_free: false };
    assert_eq!(lock.release_read(1, 0, &[]), untold(1));
    assert_eq!(lock.release_read(1, 0, &[]), untold(0));
    assert_eq!(lock.keys(), Vec::<String>::new());
    lock.write(1, 1, s(30));
    assert_eq!(lock.release_write(1, 0, s(30)), untold(1));
    assert_eq!(lock.keys(), Vec::<String>::new());
    lock.write(1, 1, s(30));
    assert_eq!(force(&lock, Role::Write), Forced::Freed { untold: true });
    assert_eq!(lock.keys(), Vec::<String>::new());
}

fn force(lock: &Lock, role: Role) -> Forced {
    let reply = lock.run(&read_write::force_release(lock.names(), Flavour::Plain, role));
    read_write::read_forced(&lock.name, &reply).expect("a known answer")
}

#[test]
fn a_forced_release_frees_only_what_is_held_in_that_role() {
    let lock = Lock::new();
    assert_eq!((force(&lock, Role::Read), force(&lock, Role::Write)), (Forced::WasFree, Forced::WasFree));
    lock.assert_heard(&[]);
    lock.read(1, 1, s(30));
    assert_eq!(force(&lock, Role::Write), Forced::WasFree);
    assert_eq!(force(&lock, Role::Read), Forced::Freed { untold: false });
    lock.assert_heard(&["0"]);
    assert_eq!(lock.keys(), [lock.hold_key(1, 1)], "hold keys end by themselves");
    lock.write(2, 1, s(30));
    lock.read(2, 1, s(30));
    assert_eq!(force(&lock, Role::Read), Forced::WasFree);
    assert_eq!(force(&lock, Role::Write), Forced::Freed { untold: false });
    lock.assert_heard(&["1"]);
    lock.server.ask::<()>(cmd("HSET").arg(&lock.name).arg("somebody").arg(1));
    assert_eq!((force(&lock, Role::Read), force(&lock, Role::Write)), (Forced::Foreign, Forced::Foreign));
}

#[test]
fn a_writer_that_reads_has_the_lock_in_both_roles() {
    let lock = Lock::new();
    let locked = || {
        [Role::Read, Role::Write].map(|role| {
            let reply = lock.run(&read_write::is_locked(&lock.name, role));
            read_write::read_is_locked(&lock.name, &reply).expect("a known answer")
        })
    };
    assert_eq!(locked(), [false, false]);
    lock.write(1, 1, s(30));
    assert_eq!(locked(), [false, true]);
    lock.read(1, 1, s(30));
    assert_eq!(locked(), [true, true]);
    lock.release_write(1, 0, s(30));
    assert_eq!(locked(), [true, false]);
    lock.release_read(1, 0, &[]);
    lock.server.ask::<()>(cmd("HSET").arg(&lock.name).arg("somebody").arg(1));
    assert_eq!(locked(), [false, false]);
}
