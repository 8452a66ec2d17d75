//! Taking read and write holds.

use super::*;

#[test]
fn a_reader_of_a_free_lock_makes_the_hash_and_a_hold_key() {
    let cases =
        [("rw", "{rw}:"), ("q{w}e", "q{w}e:"), ("a}b", "{a}b}:"), ("{", "{:"), ("Bücher: 書 %s", "{Bücher: 書 %s}:")];
    for (name, start) in cases {
        let lock = Lock::named(name);
        assert_eq!(lock.read(1, 1, s(30)), fresh(), "{name}");
        lock.assert_fields(&[("mode", "read"), ("1", "1")]);
        let hold_key = format!("{start}00000000-0000-0000-0000-00000000000a:1:rwlock_timeout:1");
        let mut keys = vec![name.to_owned(), hold_key.clone()];
        keys.sort();
        assert_eq!(lock.keys(), keys);
        assert_eq!(lock.server.ask::<String>(cmd("GET").arg(&hold_key)), "1");
        about(lock.lives(), s(30));
        about(lock.left(&hold_key), s(30));
        assert_eq!(lock.release_read(1, 0, &[]), released(1, true), "{name}");
        lock.assert_heard(&["0"]);
        assert_eq!(lock.keys(), Vec::<String>::new());
    }
}

#[test]
fn readers_share_and_never_shorten_the_key() {
    let lock = Lock::new();
    assert_eq!(lock.read(1, 1, s(30)), fresh());
    assert_eq!(lock.read(2, 1, s(60)), granted(0));
    about(lock.lives(), s(60));
    assert_eq!(lock.read(3, 1, s(10)), granted(0));
    about(lock.lives(), s(60));
    about(lock.hold_lives(3, 1), s(10));
    lock.assert_fields(&[("mode", "read"), ("1", "1"), ("2", "1"), ("3", "1")]);
    lock.assert_heard(&[]);
}

#[test]
fn each_read_hold_has_a_key_of_its_own_number() {
    let lock = Lock::new();
    lock.read(1, 1, s(30));
    assert_eq!(lock.read(1, 2, s(10)), granted(1));
    about(lock.hold_lives(1, 1), s(30));
    about(lock.hold_lives(1, 2), s(10));
    about(lock.lives(), s(30));
    let ask = Acquire { owner: owner(1), target: 3, lease: s(10), longest: s(80), abandoned: &[] };
    assert_eq!(lock.read_asking(&ask), granted(2));
    about(lock.lives(), s(80));
    lock.assert_fields(&[("mode", "read"), ("1", "3")]);
}

#[test]
fn a_read_that_is_sent_again_counts_once() {
    let lock = Lock::new();
    lock.read(1, 1, s(10));
    assert_eq!(lock.read(1, 1, s(30)), granted(1));
    lock.assert_fields(&[("mode", "read"), ("1", "1")]);
    about(lock.hold_lives(1, 1), s(30));
    about(lock.lives(), s(30));
    lock.read(1, 2, s(60));
    assert_eq!(lock.read(1, 2, s(60)), granted(2));
    lock.assert_fields(&[("mode", "read"), ("1", "2")]);
    assert_eq!(lock.keys().len(), 3);
}

#[test]
fn holds_that_are_gone_are_not_counted_again() {
    let lock = Lock::new();
    assert_eq!(lock.read(1, 3, s(30)), fresh());
    lock.assert_fields(&[("mode", "read"), ("1", "1")]);
    assert_eq!(lock.read(2, 3, s(30)), granted(0), "others read, this one has nothing any more");
    lock.assert_fields(&[("mode", "read"), ("1", "1"), ("2", "1")]);
    about(lock.hold_lives(2, 1), s(30));
    assert_eq!(lock.hold_lives(2, 3), None);
    lock.server.ask::<()>(cmd("DEL").arg(&lock.name));
    assert_eq!(lock.write(3, 4, s(30)), fresh());
    lock.assert_fields(&[("mode", "write"), ("3:write", "1")]);
}

#[test]
fn a_writer_reads_and_others_do_not() {
    let lock = Lock::new();
    assert_eq!(lock.write(1, 1, s(30)), fresh());
    about(lock.lives(), s(30));
    assert_eq!(lock.read(1, 1, s(60)), granted(0));
    about(lock.lives(), s(60));
    about(lock.hold_lives(1, 1), s(60));
    lock.assert_fields(&[("mode", "write"), ("1", "1"), ("1:write", "1")]);
    about(busy(lock.read(2, 1, s(10)), false), s(60));
    about(busy(lock.write(2, 1, s(10)), false), s(60));
    lock.assert_fields(&[("mode", "write"), ("1", "1"), ("1:write", "1")]);
    lock.server.ask::<()>(cmd("PERSIST").arg(&lock.name));
    assert_eq!(busy(lock.read(2, 1, s(10)), false), None);
    assert_eq!(busy(lock.write(2, 1, s(10)), false), None);
    assert_eq!(lock.keys().len(), 2);
}

#[test]
fn one_more_write_hold_adds_its_lease_once() {
    let lock = Lock::new();
    lock.write(1, 1, s(30));
    assert_eq!(lock.write(1, 1, s(30)), granted(1), "sent again");
    about(lock.lives(), s(30));
    assert_eq!(lock.write(1, 2, s(20)), granted(1));
    about(lock.lives(), s(50));
    assert_eq!(lock.write(1, 2, s(20)), granted(2), "sent again");
    about(lock.lives(), s(50));
    lock.assert_fields(&[("mode", "write"), ("1:write", "2")]);
    let ask = Acquire { owner: owner(1), target: 3, lease: s(10), longest: s(90), abandoned: &[] };
    assert_eq!(lock.write_asking(&ask), granted(2));
    about(lock.lives(), s(90));
}

#[test]
fn leases_of_any_length_can_be_added() {
    let longest = Duration::from_millis(i64::MAX as u64 - (1 << 44));
    let lock = Lock::new();
    lock.write(1, 1, longest);
    assert_eq!(lock.write(1, 2, longest), granted(1));
    assert_eq!(lock.write(1, 3, s(10)), granted(2));
    assert!(lock.lives() > Some(longest / 2));
    assert_eq!(lock.read(1, 1, longest), granted(0));
    assert_eq!(lock.release_write(1, 1, s(10)), released(3, false));
    assert!(lock.lives() > Some(longest / 2), "for the read hold");
    assert_eq!(lock.release_write(1, 0, s(10)), released(1, true));
    assert_eq!(lock.read(2, 1, longest), granted(0));
    assert_eq!(lock.release_read(1, 0, &[]), released(1, false));
    assert!(lock.lives() > Some(longest / 2));
}

#[test]
fn a_writer_is_refused_by_readers_and_told_when_the_last_hold_ends() {
    let lock = Lock::new();
    lock.read(1, 1, s(30));
    lock.read(2, 1, s(60));
    lock.read(2, 2, s(10));
    about(busy(lock.write(3, 1, s(10)), true), s(60));
    about(lock.lives(), s(60));
    lock.lapse(2, 1);
    about(busy(lock.write(3, 1, s(10)), true), s(30));
    about(lock.lives(), s(30));
    lock.server.ask::<()>(cmd("PEXPIRE").arg(&lock.name).arg(10_000));
    about(busy(lock.write(3, 1, s(10)), true), s(10));
    about(lock.lives(), s(10));
    lock.assert_fields(&[("mode", "read"), ("1", "1"), ("2", "2")]);
}

#[test]
fn where_no_hold_key_lives_a_refused_writer_leaves_the_key_as_it_is() {
    let lock = Lock::new();
    lock.read(1, 1, s(30));
    lock.lapse(1, 1);
    about(busy(lock.write(2, 1, s(10)), true), s(30));
    about(lock.lives(), s(30));
    lock.server.ask::<()>(cmd("PERSIST").arg(&lock.name));
    assert_eq!(busy(lock.write(2, 1, s(10)), true), None);
}

#[test]
fn who_reads_can_not_write() {
    let lock = Lock::new();
    lock.read(1, 1, s(30));
    assert!(matches!(lock.write(1, 1, s(30)), Acquired::Upgrade(busy) if busy.by_readers && busy.retry_in.is_some()));
    lock.read(2, 1, s(30));
    assert!(matches!(lock.write(2, 1, s(30)), Acquired::Upgrade(_)));
    lock.assert_fields(&[("mode", "read"), ("1", "1"), ("2", "1")]);
}

fn ask(thread: i64, abandoned: &[Holder]) -> Acquire<'_> {
    Acquire { owner: owner(thread), target: 1, lease: s(30), longest: s(30), abandoned }
}

#[test]
fn what_abandoned_owners_hold_counts_as_free() {
    let lock = Lock::new();
    lock.write(1, 1, s(60));
    assert_eq!(lock.read_asking(&ask(2, &[writer(7), writer(1)])), fresh());
    lock.assert_fields(&[("mode", "read"), ("2", "1")]);
    about(lock.lives(), s(30));
    lock.release_read(2, 0, &[]);

    lock.write(1, 1, s(60));
    lock.read(1, 1, s(60));
    lock.read(1, 2, s(60));
    let bystander = lock.read_asking(&ask(2, &[writer(7)]));
    about(busy(bystander, false), s(60));
    assert_eq!(lock.read_asking(&ask(2, &[writer(1)])), granted(0), "the writer's reads are left");
    lock.assert_fields(&[("mode", "read"), ("1", "2"), ("2", "1")]);

    about(busy(lock.write_asking(&ask(3, &[reader(1)])), true), s(30));
    lock.assert_fields(&[("mode", "read"), ("2", "1")]);
    assert_eq!(lock.keys().len(), 2, "its hold keys are gone, too");
    assert_eq!(lock.write_asking(&ask(3, &[reader(2), reader(1)])), fresh());
    lock.assert_fields(&[("mode", "write"), ("3:write", "1")]);

    lock.read(3, 1, s(60));
    about(busy(lock.write_asking(&ask(4, &[writer(3)])), true), s(60));
    lock.assert_fields(&[("mode", "read"), ("3", "1")]);
    assert_eq!(lock.write_asking(&ask(4, &[writer(3), reader(3)])), fresh());
    assert_eq!(lock.keys(), [&*lock.name]);
}

#[test]
fn what_is_no_read_write_lock_is_left_as_it_is() {
    let lock = Lock::new();
    let (own, own_write) = (reader(1).to_string(), writer(1).to_string());
    let unchanged = |fields: &[(&str, &str)], take: &dyn Fn() -> Acquired, expected: Acquired| {
        lock.server.ask::<()>(cmd("DEL").arg(&lock.name));
        lock.server.ask::<()>(cmd("HSET").arg(&lock.name).arg(fields));
        let before = lock.fields();
        assert_eq!(take(), expected, "{fields:?}");
        assert_eq!((lock.fields(), lock.lives(), lock.keys().len()), (before, None, 1), "{fields:?}");
    };
    let read = || lock.read(1, 2, s(30));
    let write = || lock.write(1, 2, s(30));
    for odd in [&[("somebody", "1")][..], &[("mode", "odd"), ("somebody", "1")], &[(&own, "1")], &[(&own_write, "1")]] {
        unchanged(odd, &read, Acquired::Foreign);
        unchanged(odd, &write, Acquired::Foreign);
    }
    unchanged(&[("mode", "read"), (&own, "many")], &read, Acquired::Foreign);
    unchanged(&[("mode", "write"), (&own_write, "many")], &write, Acquired::Foreign);
    lock.server.ask::<()>(cmd("SET").arg(&lock.name).arg("text"));
    let ask = Acquire { owner: owner(1), target: 1, lease: s(30), longest: s(30), abandoned: &[] };
    for call in [read_write::acquire_read(&lock.name, &ask), read_write::acquire_write(&lock.name, &ask)] {
        let error = lock.server.run(&call).expect_err("another type");
        assert!(error.to_string().contains("WRONGTYPE"), "{error}");
    }
    assert_eq!(lock.server.ask::<String>(cmd("GET").arg(&lock.name)), "text");
}

#[test]
fn a_server_without_memory_refuses_new_holds_and_changes_nothing() {
    let lock = Lock::new();
    lock.read(1, 1, s(30));
    lock.server.ask::<()>(cmd("CONFIG").arg("SET").arg("maxmemory").arg("1"));
    let ask = Acquire { owner: owner(1), target: 2, lease: s(60), longest: s(60), abandoned: &[] };
    let other = Acquire { owner: owner(2), ..ask };
    for ask in [ask, other] {
        let error = lock.server.run(&read_write::acquire_read(&lock.name, &ask)).expect_err("no memory");
        assert!(error.to_string().contains("OOM"), "{error}");
    }
    lock.assert_fields(&[("mode", "read"), ("1", "1")]);
    about(lock.lives(), s(30));
    assert_eq!(lock.keys().len(), 2);
}
