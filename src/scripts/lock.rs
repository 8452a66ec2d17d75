//! The plain lock's scripts: arguments in, enums out. The only file that knows their wire values.

use std::time::Duration;

use redis::Value;

use super::{
    LOCK_ACQUIRE, LOCK_FORCE_RELEASE, LOCK_RELEASE, LOCK_RENEW, LOCK_TRANSFER,
    answers::{Acquired, Busy, Forced, Granted, Released, Transferred},
};
use crate::{connection::Invocation, error::Error, lease::wire_millis, owner::Holder, topology::Flavour};

/// Whether an owner that holds the lock may take it once more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reentry {
    Allowed,
    Refused,
    /// Refused, but a hold that is found may be the grant of an earlier sending.
    RefusedButRepeated,
}

impl Reentry {
    pub(super) fn wire(self) -> u8 {
        match self {
            Self::Allowed => 0,
            Self::Refused => 1,
            Self::RefusedButRepeated => 2,
        }
    }
}

/// `longest`: what the key must live for when other holds of the owner are still there.
pub(crate) fn acquire(
    key: &str,
    owner: Holder,
    target: u64,
    lease: Duration,
    longest: Duration,
    reentry: Reentry,
    abandoned: &[Holder],
) -> Invocation {
    let call = LOCK_ACQUIRE.call(&[key]).arg(owner.to_string()).arg(target);
    let call = call.arg(wire_millis(lease)).arg(wire_millis(longest.max(lease))).arg(reentry.wire());
    abandoned.iter().fold(call, |call, gone| call.arg(gone.to_string())).done()
}

pub(crate) fn read_acquired(key: &str, reply: &Value) -> Result<Acquired, Error> {
    match reply {
        Value::Nil => Ok(Acquired::Granted(Granted { found: 0, fresh: true, token: None })),
        Value::Int(-3) => Ok(Acquired::Reentry),
        Value::Int(-2) => Ok(Acquired::Foreign),
        Value::Int(-1) => Ok(Acquired::Busy(Busy::default())),
        Value::Int(ms) => match u64::try_from(*ms) {
            Ok(ms) => Ok(Acquired::Busy(Busy { retry_in: Some(Duration::from_millis(ms)), ..Busy::default() })),
            Err(_) => Err(LOCK_ACQUIRE.unexpected(key, reply)),
        },
        Value::Array(found) => match found.as_slice() {
            [Value::Int(n)] if *n >= 0 => {
                Ok(Acquired::Granted(Granted { found: n.unsigned_abs(), fresh: false, token: None }))
            }
            _ => Err(LOCK_ACQUIRE.unexpected(key, reply)),
        },
        _ => Err(LOCK_ACQUIRE.unexpected(key, reply)),
    }
}

/// `strict`: refuse a hash that is no plain lock; for a release that no guard stands behind. An empty channel tells
/// nobody.
pub(crate) fn release(
    key: &str,
    owner: Holder,
    target: u64,
    lease: Duration,
    channel: &str,
    flavour: Flavour,
    strict: bool,
) -> Invocation {
    let call = LOCK_RELEASE.call(&[key]).arg(owner.to_string()).arg(target).arg(wire_millis(lease));
    call.arg(channel).arg(flavour.publish()).arg(u8::from(strict)).done()
}

/// `told`: there was a channel to publish on.
pub(crate) fn read_released(key: &str, target: u64, told: bool, reply: &Value) -> Result<Released, Error> {
    match reply {
        Value::Int(n) => Ok(Released {
            found: n.unsigned_abs(),
            published: *n != 0 && target == 0 && told,
            untold: *n < 0,
            ..Released::default()
        }),
        _ => Err(LOCK_RELEASE.unexpected(key, reply)),
    }
}

pub(crate) fn transfer(key: &str, old: Holder, new: Holder, lease: Duration, channel: &str) -> Invocation {
    LOCK_TRANSFER.call(&[key]).arg(old.to_string()).arg(new.to_string()).arg(wire_millis(lease)).arg(channel).done()
}

/// The outcome, and the number of subscribers of the channel where it may be asked.
pub(crate) fn read_transferred(key: &str, reply: &Value) -> Result<(Transferred, Option<u64>), Error> {
    let Value::Array(parts) = reply else { return Err(LOCK_TRANSFER.unexpected(key, reply)) };
    let [Value::Int(state), Value::Int(listeners)] = parts.as_slice() else {
        return Err(LOCK_TRANSFER.unexpected(key, reply));
    };
    let outcome = match state {
        1 => Transferred::Granted { token: None },
        0 => Transferred::Gone,
        -2 => Transferred::Foreign,
        _ => return Err(LOCK_TRANSFER.unexpected(key, reply)),
    };
    Ok((outcome, u64::try_from(*listeners).ok()))
}

/// One call for several holds, which share a slot.
pub(crate) fn renew<'a>(holds: impl Iterator<Item = (&'a str, Holder, Duration)> + Clone) -> Invocation {
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

/// An empty channel tells nobody.
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
        assert!(read_released("orders", 0, true, &Value::Nil).is_err());
    }

    #[test]
    fn a_release_publishes_when_it_frees_the_lock_and_there_is_a_channel() {
        let cases =
            [(1, 0, true, true), (-1, 0, true, true), (0, 0, true, false), (2, 1, true, false), (1, 0, false, false)];
        for (n, target, told, published) in cases {
            let released = read_released("k", target, told, &Value::Int(n)).expect("known");
            assert_eq!((released.published, released.untold), (published, n < 0), "{n}, {target}, {told}");
        }
    }

    #[test]
    fn acquire_replies_become_outcomes() {
        let busy = |retry_in| Acquired::Busy(Busy { retry_in, ..Busy::default() });
        let cases = [
            (Value::Nil, Acquired::Granted(Granted { found: 0, fresh: true, token: None })),
            (Value::Array(vec![Value::Int(2)]), Acquired::Granted(Granted { found: 2, fresh: false, token: None })),
            (Value::Int(0), busy(Some(Duration::ZERO))),
            (Value::Int(1500), busy(Some(Duration::from_millis(1500)))),
            (Value::Int(-1), busy(None)),
            (Value::Int(-2), Acquired::Foreign),
            (Value::Int(-3), Acquired::Reentry),
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
