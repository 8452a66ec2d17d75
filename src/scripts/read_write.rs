//! The scripts of the read/write lock: arguments in, enums out. The only file that knows their wire values.

use std::time::Duration;

use redis::Value;

use super::{
    Call, READ_ACQUIRE, READ_RELEASE, READ_RENEW, READ_WRITE_FORCE_RELEASE, READ_WRITE_IS_LOCKED, Script,
    WRITE_ACQUIRE, WRITE_RELEASE,
    answers::{Acquired, Busy, Forced, Granted, Released},
};
use crate::{
    connection::Invocation,
    error::Error,
    keys,
    lease::wire_millis,
    owner::{Holder, OwnerId, Role},
    topology::Flavour,
};

/// The lock's hash, and where its releases are told.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Names<'a> {
    pub(crate) key: &'a str,
    pub(crate) channel: &'a str,
}

/// What an acquire asks for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Acquire<'a> {
    pub(crate) owner: OwnerId,
    pub(crate) target: u64,
    pub(crate) lease: Duration,
    /// What the key must live for when other holds of the owner, of either role, are still there.
    pub(crate) longest: Duration,
    pub(crate) abandoned: &'a [Holder],
}

/// A read hold is given back.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ReadRelease<'a> {
    pub(crate) owner: OwnerId,
    pub(crate) target: u64,
    /// What hold keys have left afterwards: those of the numbers from `target + 1 - rearm.len()` to `target`.
    pub(crate) rearm: &'a [Duration],
    /// Refuse a hash that is no read/write lock; for a release that no guard stands behind.
    pub(crate) strict: bool,
    /// Tell nobody if the lock is gone: it went by itself.
    pub(crate) ended: bool,
}

/// A write hold is given back.
#[derive(Clone, Copy, Debug)]
pub(crate) struct WriteRelease {
    pub(crate) owner: OwnerId,
    pub(crate) target: u64,
    /// The longest of the write holds that are left.
    pub(crate) left: Duration,
    /// As for reads.
    pub(crate) strict: bool,
    pub(crate) ended: bool,
}

/// Read holds of an owner that shall last longer. Nothing is shortened.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ReadRenewal<'a> {
    pub(crate) key: &'a str,
    pub(crate) owner: OwnerId,
    pub(crate) holds: Raise,
    /// What the lock's key must live for at least.
    pub(crate) key_lives: Duration,
}

/// Which hold keys a renewal means, and what they have left afterwards at least.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Raise {
    All(Duration),
    None,
    /// By number, from 1.
    One(u64, Duration),
}

fn reader(owner: OwnerId) -> String {
    Holder { owner, role: Role::Read }.to_string()
}

fn writer(owner: OwnerId) -> String {
    Holder { owner, role: Role::Write }.to_string()
}

pub(crate) fn acquire_read(key: &str, ask: &Acquire<'_>) -> Invocation {
    finish_acquire(READ_ACQUIRE.call(&[key]).arg(reader(ask.owner)), key, ask)
}

pub(crate) fn acquire_write(key: &str, ask: &Acquire<'_>) -> Invocation {
    finish_acquire(WRITE_ACQUIRE.call(&[key]).arg(writer(ask.owner)).arg(reader(ask.owner)), key, ask)
}

fn finish_acquire(call: Call, key: &str, ask: &Acquire<'_>) -> Invocation {
    let call = call.arg(ask.target).arg(wire_millis(ask.lease)).arg(wire_millis(ask.longest.max(ask.lease)));
    let call = call.arg(keys::suffix_base(key));
    ask.abandoned.iter().fold(call, |call, gone| call.arg(gone.to_string())).done()
}

pub(crate) fn read_read_acquired(key: &str, reply: &Value) -> Result<Acquired, Error> {
    acquired(reply, false).ok_or_else(|| READ_ACQUIRE.unexpected(key, reply))
}

pub(crate) fn read_write_acquired(key: &str, reply: &Value) -> Result<Acquired, Error> {
    let outcome = match reply {
        Value::Array(parts) => match parts.as_slice() {
            [Value::Int(0), Value::Int(left)] => acquired(&Value::Int(*left), true),
            [Value::Int(1), Value::Int(left)] => match acquired(&Value::Int(*left), true) {
                Some(Acquired::Busy(busy)) => Some(Acquired::Upgrade(busy)),
                _ => None,
            },
            _ => acquired(reply, false),
        },
        _ => acquired(reply, false),
    };
    outcome.ok_or_else(|| WRITE_ACQUIRE.unexpected(key, reply))
}

fn acquired(reply: &Value, by_readers: bool) -> Option<Acquired> {
    let busy = |retry_in| Acquired::Busy(Busy { retry_in, by_readers, ..Busy::default() });
    let granted = |found, fresh| Acquired::Granted(Granted { found, fresh, token: None });
    match reply {
        Value::Nil => Some(granted(0, true)),
        Value::Int(-2) if !by_readers => Some(Acquired::Foreign),
        Value::Int(-1) => Some(busy(None)),
        Value::Int(ms) => u64::try_from(*ms).ok().map(|ms| busy(Some(Duration::from_millis(ms)))),
        Value::Array(parts) => match parts.as_slice() {
            [Value::Int(found)] => u64::try_from(*found).ok().map(|found| granted(found, false)),
            _ => None,
        },
        _ => None,
    }
}

pub(crate) fn release_read(names: Names<'_>, flavour: Flavour, ask: &ReadRelease<'_>) -> Invocation {
    let ReadRelease { owner, target, rearm, strict, ended } = *ask;
    // Hold keys are numbered from 1: what would be below that has no place.
    let rearm = &rearm[rearm.len() - rearm.len().min(usize::try_from(target).unwrap_or(usize::MAX))..];
    let first = target + 1 - rearm.len() as u64;
    let call = READ_RELEASE.call(&[names.key]).arg(reader(owner)).arg(target).arg(keys::suffix_base(names.key));
    let call = call.arg(names.channel).arg(flavour.publish()).arg(mode(strict, ended)).arg(first);
    rearm.iter().fold(call, |call, left| call.arg(wire_millis(*left))).done()
}

pub(crate) fn release_write(names: Names<'_>, flavour: Flavour, ask: &WriteRelease) -> Invocation {
    let WriteRelease { owner, target, left, strict, ended } = *ask;
    let call = WRITE_RELEASE.call(&[names.key]).arg(writer(owner)).arg(reader(owner)).arg(target);
    let call = call.arg(wire_millis(left)).arg(keys::suffix_base(names.key));
    call.arg(names.channel).arg(flavour.publish()).arg(mode(strict, ended)).done()
}

fn mode(strict: bool, ended: bool) -> u8 {
    match (strict, ended) {
        (true, _) => 1,
        (false, true) => 2,
        (false, false) => 0,
    }
}

pub(crate) fn read_read_released(key: &str, reply: &Value) -> Result<Released, Error> {
    released(&READ_RELEASE, key, reply)
}

pub(crate) fn read_write_released(key: &str, reply: &Value) -> Result<Released, Error> {
    released(&WRITE_RELEASE, key, reply)
}

fn released(script: &Script, key: &str, reply: &Value) -> Result<Released, Error> {
    match reply {
        Value::Array(parts) => match parts.as_slice() {
            [Value::Int(found @ 0..), Value::Int(told @ -1..=1)] => Ok(Released {
                found: found.unsigned_abs(),
                published: *told != 0,
                untold: *told < 0,
                ..Released::default()
            }),
            _ => Err(script.unexpected(key, reply)),
        },
        _ => Err(script.unexpected(key, reply)),
    }
}

/// One call for several renewals, which share a slot; the same key may come more than once. Write holds are renewed as
/// those of a plain lock.
pub(crate) fn renew_reads<'a>(renewals: impl Iterator<Item = ReadRenewal<'a>> + Clone) -> Invocation {
    let keys: Vec<&str> = renewals.clone().map(|r| r.key).collect();
    renewals
        .fold(READ_RENEW.call(&keys), |call, ReadRenewal { key, owner, holds, key_lives }| {
            let (least, rank) = match holds {
                Raise::All(least) => (wire_millis(least), 0),
                Raise::None => (0, 0),
                Raise::One(rank, least) => (wire_millis(least), rank.max(1)),
            };
            call.arg(reader(owner)).arg(keys::suffix_base(key)).arg(least).arg(rank).arg(wire_millis(key_lives))
        })
        .done()
}

/// The hold count of each, 0 where the reader holds nothing any more.
pub(crate) fn read_renewed(key: &str, reply: &Value, expected: usize) -> Result<Vec<u64>, Error> {
    let Value::Array(counts) = reply else { return Err(READ_RENEW.unexpected(key, reply)) };
    let read = |count: &Value| match count {
        Value::Int(n) => Some(u64::try_from(*n).unwrap_or(0)),
        _ => None,
    };
    match counts.iter().map(read).collect::<Option<Vec<u64>>>() {
        Some(counts) if counts.len() == expected => Ok(counts),
        _ => Err(READ_RENEW.unexpected(key, reply)),
    }
}

/// The `mode` in which a role has the lock, and what is published when it goes.
fn mode_and_payload(role: Role) -> (&'static str, u8) {
    match role {
        Role::Read => ("read", 0),
        Role::Sole | Role::Write => ("write", 1),
    }
}

pub(crate) fn force_release(names: Names<'_>, flavour: Flavour, role: Role) -> Invocation {
    let (mode, payload) = mode_and_payload(role);
    let call = READ_WRITE_FORCE_RELEASE.call(&[names.key]).arg(mode);
    call.arg(names.channel).arg(flavour.publish()).arg(payload).done()
}

pub(crate) fn read_forced(key: &str, reply: &Value) -> Result<Forced, Error> {
    match reply {
        Value::Int(1) => Ok(Forced::Freed { untold: false }),
        Value::Int(0) => Ok(Forced::WasFree),
        Value::Int(-1) => Ok(Forced::Freed { untold: true }),
        Value::Int(-2) => Ok(Forced::Foreign),
        _ => Err(READ_WRITE_FORCE_RELEASE.unexpected(key, reply)),
    }
}

/// Whether anybody has the lock in this role; a writer that also reads has it in both.
pub(crate) fn is_locked(key: &str, role: Role) -> Invocation {
    READ_WRITE_IS_LOCKED.call(&[key]).arg(mode_and_payload(role).0).done()
}

pub(crate) fn read_is_locked(key: &str, reply: &Value) -> Result<bool, Error> {
    match reply {
        Value::Int(0) => Ok(false),
        Value::Int(1) => Ok(true),
        _ => Err(READ_WRITE_IS_LOCKED.unexpected(key, reply)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn array(parts: &[i64]) -> Value {
        Value::Array(parts.iter().map(|n| Value::Int(*n)).collect())
    }

    #[test]
    fn acquire_replies_become_outcomes() {
        let ms = Duration::from_millis;
        let busy = |retry_in, by_readers| Acquired::Busy(Busy { retry_in, by_readers, ..Busy::default() });
        let granted = |found, fresh| Acquired::Granted(Granted { found, fresh, token: None });
        let both = [
            (Value::Nil, granted(0, true)),
            (array(&[0]), granted(0, false)),
            (array(&[2]), granted(2, false)),
            (Value::Int(0), busy(Some(ms(0)), false)),
            (Value::Int(1500), busy(Some(ms(1500)), false)),
            (Value::Int(-1), busy(None, false)),
            (Value::Int(-2), Acquired::Foreign),
        ];
        for (reply, outcome) in both {
            assert_eq!(read_read_acquired("k", &reply).expect("known"), outcome);
            assert_eq!(read_write_acquired("k", &reply).expect("known"), outcome);
        }
        let of_writers = [
            (array(&[0, 1500]), busy(Some(ms(1500)), true)),
            (array(&[0, -1]), busy(None, true)),
            (array(&[1, 1500]), Acquired::Upgrade(Busy { retry_in: Some(ms(1500)), by_readers: true, place: None })),
            (array(&[1, -1]), Acquired::Upgrade(Busy { by_readers: true, ..Busy::default() })),
        ];
        for (reply, outcome) in of_writers {
            assert_eq!(read_write_acquired("k", &reply).expect("known"), outcome);
            assert!(read_read_acquired("k", &reply).is_err(), "{reply:?}");
        }
    }

    #[test]
    fn release_replies_become_outcomes() {
        let released = |found, published, untold| Released { found, published, untold, ..Released::default() };
        let cases = [
            (array(&[0, 0]), released(0, false, false)),
            (array(&[0, 1]), released(0, true, false)),
            (array(&[3, 0]), released(3, false, false)),
            (array(&[3, 1]), released(3, true, false)),
            (array(&[3, -1]), released(3, true, true)),
        ];
        for (reply, outcome) in cases {
            assert_eq!(read_read_released("k", &reply).expect("known"), outcome);
            assert_eq!(read_write_released("k", &reply).expect("known"), outcome);
        }
    }

    #[test]
    fn replies_of_a_wrong_shape_are_errors_that_name_the_key() {
        let odd = [
            Value::Okay,
            Value::BulkString(b"1".to_vec()),
            Value::Int(-9),
            Value::Boolean(true),
            array(&[]),
            array(&[-1]),
            array(&[-1, 0]),
            array(&[0, -2]),
            array(&[2, 7]),
            array(&[1, 1, 1]),
        ];
        for reply in odd {
            let errors = [
                read_read_acquired("orders", &reply).err(),
                read_write_acquired("orders", &reply).err(),
                read_read_released("orders", &reply).err(),
                read_write_released("orders", &reply).err(),
                read_renewed("orders", &reply, 7).err(),
                read_forced("orders", &reply).err(),
                read_is_locked("orders", &reply).err(),
            ];
            for error in errors {
                match error {
                    Some(Error::UnexpectedReply { key, .. }) => assert_eq!(key, "orders"),
                    other => panic!("{reply:?}: {other:?}"),
                }
            }
        }
    }

    #[test]
    fn counts_of_a_renewal_must_match_its_holds() {
        assert_eq!(read_renewed("k", &array(&[1, 0, -1]), 3).expect("three"), [1, 0, 0]);
        assert!(read_renewed("k", &array(&[1, 0, -1]), 2).is_err());
    }

    #[test]
    fn hold_keys_begin_with_the_name_in_braces_unless_it_has_one() {
        let cases =
            [("rw", "{rw}:"), ("q{w}e", "q{w}e:"), ("a}b", "{a}b}:"), ("{", "{:"), ("Bücher 書", "{Bücher 書}:")];
        for (name, prefix) in cases {
            assert_eq!(keys::suffix_base(name), prefix);
        }
    }
}
