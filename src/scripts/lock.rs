//! The plain lock's scripts: arguments in, enums out. The only file that knows their wire values.

use std::time::Duration;

use redis::Value;

use super::{LOCK_ACQUIRE, LOCK_FORCE_RELEASE, LOCK_RELEASE, LOCK_RENEW, LOCK_TRANSFER};
use crate::{connection::Invocation, error::Error, lease::wire_millis, owner::OwnerId, topology::Flavour};

/// Answer of an acquire.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Acquired {
    /// The key was free; the count is 1.
    Fresh,
    /// The key was the owner's with this count; the count is the target now.
    Reentered { found: u64 },
    /// Somebody else holds it, for this long, or without expiry.
    Busy { retry_in: Option<Duration> },
    /// The hash has fields of another kind.
    Foreign,
}

/// Answer of a release.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Released {
    /// The count before; 0 when the owner held nothing.
    pub(crate) found: u64,
    /// The lock was freed but the channel refused the message.
    pub(crate) untold: bool,
}

/// Answer of a transfer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Transferred {
    /// The new owner holds it.
    Granted,
    /// The old owner held nothing.
    Gone,
    /// Other fields are in the hash.
    Foreign,
}

/// `longest`: what the key must live for when other holds of the owner are still there.
pub(crate) fn acquire(
    key: &str,
    owner: OwnerId,
    target: u64,
    lease: Duration,
    longest: Duration,
    abandoned: &[OwnerId],
) -> Invocation {
    let call = LOCK_ACQUIRE.call(&[key]).arg(owner.to_string()).arg(target);
    let call = call.arg(wire_millis(lease)).arg(wire_millis(longest.max(lease)));
    abandoned.iter().fold(call, |call, gone| call.arg(gone.to_string())).done()
}

pub(crate) fn read_acquired(key: &str, reply: &Value) -> Result<Acquired, Error> {
    match reply {
        Value::Nil => Ok(Acquired::Fresh),
        Value::Int(-2) => Ok(Acquired::Foreign),
        Value::Int(-1) => Ok(Acquired::Busy { retry_in: None }),
        Value::Int(ms) => match u64::try_from(*ms) {
            Ok(ms) => Ok(Acquired::Busy { retry_in: Some(Duration::from_millis(ms)) }),
            Err(_) => Err(LOCK_ACQUIRE.unexpected(key, reply)),
        },
        Value::Array(found) => match found.as_slice() {
            [Value::Int(n)] if *n >= 0 => Ok(Acquired::Reentered { found: n.unsigned_abs() }),
            _ => Err(LOCK_ACQUIRE.unexpected(key, reply)),
        },
        _ => Err(LOCK_ACQUIRE.unexpected(key, reply)),
    }
}

/// `strict`: refuse a hash that is no plain lock; for a release that no guard stands behind.
pub(crate) fn release(
    key: &str,
    owner: OwnerId,
    target: u64,
    lease: Duration,
    channel: &str,
    flavour: Flavour,
    strict: bool,
) -> Invocation {
    let call = LOCK_RELEASE.call(&[key]).arg(owner.to_string()).arg(target).arg(wire_millis(lease));
    call.arg(channel).arg(flavour.publish()).arg(u8::from(strict)).done()
}

pub(crate) fn read_released(key: &str, reply: &Value) -> Result<Released, Error> {
    match reply {
        Value::Int(n) => Ok(Released { found: n.unsigned_abs(), untold: *n < 0 }),
        _ => Err(LOCK_RELEASE.unexpected(key, reply)),
    }
}

pub(crate) fn transfer(key: &str, old: OwnerId, new: OwnerId, lease: Duration, channel: &str) -> Invocation {
    LOCK_TRANSFER.call(&[key]).arg(old.to_string()).arg(new.to_string()).arg(wire_millis(lease)).arg(channel).done()
}

/// The outcome, and the number of subscribers of the channel where it may be asked.
pub(crate) fn read_transferred(key: &str, reply: &Value) -> Result<(Transferred, Option<u64>), Error> {
    let Value::Array(parts) = reply else { return Err(LOCK_TRANSFER.unexpected(key, reply)) };
    let [Value::Int(state), Value::Int(listeners)] = parts.as_slice() else {
        return Err(LOCK_TRANSFER.unexpected(key, reply));
    };
    let outcome = match state {
        1 => Transferred::Granted,
        0 => Transferred::Gone,
        -2 => Transferred::Foreign,
        _ => return Err(LOCK_TRANSFER.unexpected(key, reply)),
    };
    Ok((outcome, u64::try_from(*listeners).ok()))
}

/// One call for several holds, which share a slot.
pub(crate) fn renew<'a>(holds: impl Iterator<Item = (&'a str, OwnerId, Duration)> + Clone) -> Invocation {
    let keys: Vec<&str> = holds.clone().map(|(key, ..)| key).collect();
    let call = LOCK_RENEW.call(&keys);
    holds.fold(call, |call, (_, owner, lease)| call.arg(owner.to_string()).arg(wire_millis(lease))).done()
}

/// The hold count of each, 0 where the owner holds nothing any more.
pub(crate) fn read_renewed(key: &str, reply: &Value, expected: usize) -> Result<Vec<u64>, Error> {
    let Value::Array(counts) = reply else { return Err(LOCK_RENEW.unexpected(key, reply)) };
    let read = |count: &Value| match count {
        Value::Int(n) => Some(u64::try_from(*n).unwrap_or(0)),
        _ => None,
    };
    match counts.iter().map(read).collect::<Option<Vec<u64>>>() {
        Some(counts) if counts.len() == expected => Ok(counts),
        _ => Err(LOCK_RENEW.unexpected(key, reply)),
    }
}

/// Answer of a forced release.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Forced {
    Freed { untold: bool },
    WasFree,
    Foreign,
}

pub(crate) fn force_release(key: &str, channel: &str, flavour: Flavour) -> Invocation {
    LOCK_FORCE_RELEASE.call(&[key]).arg(channel).arg(flavour.publish()).done()
}

pub(crate) fn read_forced(key: &str, reply: &Value) -> Result<Forced, Error> {
    match reply {
        Value::Int(1) => Ok(Forced::Freed { untold: false }),
        Value::Int(0) => Ok(Forced::WasFree),
        Value::Int(-1) => Ok(Forced::Freed { untold: true }),
        Value::Int(-2) => Ok(Forced::Foreign),
        _ => Err(LOCK_FORCE_RELEASE.unexpected(key, reply)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn replies_of_a_wrong_shape_are_errors_that_name_the_key() {
        let odd =
            [Value::Okay, Value::BulkString(b"1".to_vec()), Value::Array(vec![]), Value::Int(-9), Value::Boolean(true)];
        for reply in odd {
            for error in [
                read_acquired("orders", &reply).err(),
                read_transferred("orders", &reply).err(),
                read_renewed("orders", &reply, 1).err(),
                read_forced("orders", &reply).err(),
            ] {
                match error {
                    Some(Error::UnexpectedReply { key, .. }) => assert_eq!(key, "orders"),
                    other => panic!("{reply:?}: {other:?}"),
                }
            }
        }
        assert!(read_released("orders", &Value::Nil).is_err());
    }

    #[test]
    fn acquire_replies_become_outcomes() {
        let cases = [
            (Value::Nil, Acquired::Fresh),
            (Value::Array(vec![Value::Int(2)]), Acquired::Reentered { found: 2 }),
            (Value::Int(0), Acquired::Busy { retry_in: Some(Duration::ZERO) }),
            (Value::Int(1500), Acquired::Busy { retry_in: Some(Duration::from_millis(1500)) }),
            (Value::Int(-1), Acquired::Busy { retry_in: None }),
            (Value::Int(-2), Acquired::Foreign),
        ];
        for (reply, outcome) in cases {
            assert_eq!(read_acquired("k", &reply).expect("known"), outcome);
        }
    }

    #[test]
    fn counts_of_a_renewal_must_match_its_holds() {
        let reply = Value::Array(vec![Value::Int(1), Value::Int(0), Value::Int(-1)]);
        assert_eq!(read_renewed("k", &reply, 3).expect("three"), [1, 0, 0]);
        assert!(read_renewed("k", &reply, 2).is_err());
    }
}
