//! The fair lock's scripts: arguments in, enums out. The only file that knows their wire values.

use std::time::Duration;

use redis::Value;

use super::{
    FAIR_ACQUIRE, FAIR_FORCE_RELEASE, FAIR_RELEASE,
    answers::{Acquired, Busy, Forced, Granted, Place, Released},
    lock::Reentry,
};
use crate::{connection::Invocation, error::Error, lease::wire_millis, owner::Holder, topology::Flavour};

/// A patience is at most about 550 years: sums of hundreds of them are still exact in a score.
const MAX_PATIENCE: Duration = Duration::from_millis(1 << 44);

/// What a fair lock has in Redis.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Names<'a> {
    pub(crate) key: &'a str,
    pub(crate) queue: &'a str,
    pub(crate) timeouts: &'a str,
    /// A waiter's own channel is `<channel>:<owner>`.
    pub(crate) channel: &'a str,
}

impl<'a> Names<'a> {
    fn keys(&self) -> [&'a str; 3] {
        [self.key, self.queue, self.timeouts]
    }
}

/// What an acquire asks for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Acquire<'a> {
    pub(crate) owner: Holder,
    /// The holds of the owner afterwards.
    pub(crate) target: u64,
    pub(crate) lease: Duration,
    /// What the key must live for when other holds of the owner are still there.
    pub(crate) longest: Duration,
    /// With what the owner stands in line, or would. A grant takes the same off everybody behind it.
    pub(crate) patience: Duration,
    /// Stand in line when it is not the owner's turn.
    pub(crate) enqueue: bool,
    pub(crate) reentry: Reentry,
    pub(crate) abandoned: &'a [Holder],
}

/// What a release asks for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Release<'a> {
    pub(crate) owner: Holder,
    /// The holds of the owner afterwards.
    pub(crate) target: u64,
    /// What the key must live for when there are any.
    pub(crate) left: Duration,
    /// The patience with which the owner stands in line, to take it out of there too.
    pub(crate) leave: Option<Duration>,
    /// Refuse a hash that is no plain lock; for a release that no guard stands behind.
    pub(crate) strict: bool,
    /// Who may be granted at once if it is the head.
    pub(crate) candidates: &'a [Candidate],
}

/// A waiter of this client that stands in line in Redis.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Candidate {
    pub(crate) owner: Holder,
    pub(crate) lease: Duration,
    /// With what it stands in line.
    pub(crate) patience: Duration,
}

pub(crate) fn acquire(names: Names<'_>, asked: &Acquire<'_>, flavour: Flavour) -> Invocation {
    let call = FAIR_ACQUIRE.call(&names.keys()).arg(asked.owner.to_string()).arg(asked.target);
    let call = call.arg(wire_millis(asked.lease)).arg(wire_millis(asked.longest.max(asked.lease)));
    let call = call.arg(wire_patience(asked.patience)).arg(u8::from(asked.enqueue)).arg(asked.reentry.wire());
    let call = call.arg(names.channel).arg(flavour.publish());
    asked.abandoned.iter().fold(call, |call, gone| call.arg(gone.to_string())).done()
}

/// When nobody holds the lock, but it is not the owner's turn, it is busy without an end.
pub(crate) fn read_acquired(key: &str, reply: &Value) -> Result<Acquired, Error> {
    let unexpected = || FAIR_ACQUIRE.unexpected(key, reply);
    let parts = match reply {
        Value::Nil => return Ok(Acquired::Granted(Granted { found: 0, fresh: true, token: None })),
        Value::Int(-3) => return Ok(Acquired::Reentry),
        Value::Int(-2) => return Ok(Acquired::Foreign),
        Value::Int(left) => {
            let retry_in = end(*left).ok_or_else(unexpected)?;
            return Ok(Acquired::Busy(Busy { retry_in, ..Busy::default() }));
        }
        Value::Array(parts) => parts.as_slice(),
        _ => return Err(unexpected()),
    };
    let (left, mine, ahead) = match parts {
        [Value::Int(found)] if *found > 0 => {
            return Ok(Acquired::Granted(Granted { found: found.unsigned_abs(), fresh: false, token: None }));
        }
        [Value::Int(left), Value::Int(mine)] => (left, mine, None),
        [Value::Int(left), Value::Int(mine), Value::BulkString(head), Value::Int(theirs)] => {
            let theirs = millis(*theirs).ok_or_else(unexpected)?;
            // An owner that is no text can only be waited for.
            (left, mine, Some((String::from_utf8_lossy(head).into_owned(), theirs)))
        }
        _ => return Err(unexpected()),
    };
    let retry_in = end(*left).ok_or_else(unexpected)?;
    let expires_in = millis(*mine).ok_or_else(unexpected)?;
    Ok(Acquired::Busy(Busy { retry_in, by_readers: false, place: Some(Place { expires_in, ahead }) }))
}

pub(crate) fn release(names: Names<'_>, asked: &Release<'_>, flavour: Flavour) -> Invocation {
    let call = FAIR_RELEASE.call(&names.keys()).arg(asked.owner.to_string()).arg(asked.target);
    let call = call.arg(wire_millis(asked.left)).arg(names.channel).arg(flavour.publish()).arg(u8::from(asked.strict));
    let call = match asked.leave {
        Some(patience) => call.arg(wire_patience(patience)),
        None => call.arg(""),
    };
    let add = |call: super::Call, candidate: &Candidate| {
        let call = call.arg(candidate.owner.to_string()).arg(wire_millis(candidate.lease));
        call.arg(wire_patience(candidate.patience))
    };
    asked.candidates.iter().fold(call, add).done()
}

/// A repeated release whose first sending granted the lock finds nothing any more, and names the candidate again.
pub(crate) fn read_released(key: &str, reply: &Value) -> Result<Released, Error> {
    let unexpected = || FAIR_RELEASE.unexpected(key, reply);
    let Value::Array(parts) = reply else { return Err(unexpected()) };
    let [Value::Int(found), Value::Int(told), Value::Int(granted)] = parts.as_slice() else {
        return Err(unexpected());
    };
    let (published, untold) = match told {
        0 => (false, false),
        1 => (true, false),
        -1 => (true, true),
        _ => return Err(unexpected()),
    };
    let was_free = *found == -1;
    let found = u64::try_from(if was_free { 0 } else { *found }).map_err(|_| unexpected())?;
    let granted = usize::try_from(*granted).map_err(|_| unexpected())?.checked_sub(1);
    Ok(Released { found, was_free, published, untold, granted })
}

pub(crate) fn force_release(names: Names<'_>, flavour: Flavour) -> Invocation {
    FAIR_FORCE_RELEASE.call(&names.keys()).arg(names.channel).arg(flavour.publish()).done()
}

pub(crate) fn read_forced(key: &str, reply: &Value) -> Result<Forced, Error> {
    match reply {
        Value::Int(1) => Ok(Forced::Freed { untold: false }),
        Value::Int(0) => Ok(Forced::WasFree),
        Value::Int(-1) => Ok(Forced::Freed { untold: true }),
        Value::Int(-2) => Ok(Forced::Foreign),
        _ => Err(FAIR_FORCE_RELEASE.unexpected(key, reply)),
    }
}

fn wire_patience(patience: Duration) -> u64 {
    wire_millis(patience.min(MAX_PATIENCE))
}

fn millis(ms: i64) -> Option<Duration> {
    u64::try_from(ms).ok().map(Duration::from_millis)
}

/// -1: there is none. `None`: not a reply of ours.
fn end(left: i64) -> Option<Option<Duration>> {
    if left == -1 { Some(None) } else { millis(left).map(Some) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ints(parts: &[i64]) -> Value {
        Value::Array(parts.iter().map(|n| Value::Int(*n)).collect())
    }

    fn with_head(left: i64, mine: i64, theirs: i64) -> Value {
        Value::Array(vec![Value::Int(left), Value::Int(mine), Value::BulkString(b"u:1".to_vec()), Value::Int(theirs)])
    }

    #[test]
    fn acquire_replies_become_outcomes() {
        let ms = Duration::from_millis;
        let busy = |retry_in, place| Acquired::Busy(Busy { retry_in, by_readers: false, place });
        let place = |mine, ahead| Some(Place { expires_in: ms(mine), ahead });
        let cases = [
            (Value::Nil, Acquired::Granted(Granted { found: 0, fresh: true, token: None })),
            (ints(&[2]), Acquired::Granted(Granted { found: 2, fresh: false, token: None })),
            (Value::Int(0), busy(Some(ms(0)), None)),
            (Value::Int(-1), busy(None, None)),
            (Value::Int(-2), Acquired::Foreign),
            (Value::Int(-3), Acquired::Reentry),
            (ints(&[0, 5]), busy(Some(ms(0)), place(5, None))),
            (ints(&[-1, 5]), busy(None, place(5, None))),
            (with_head(-1, 5, 3), busy(None, place(5, Some(("u:1".to_owned(), ms(3)))))),
        ];
        for (reply, outcome) in cases {
            assert_eq!(read_acquired("k", &reply).expect("known"), outcome);
        }
    }

    #[test]
    fn release_replies_become_outcomes() {
        let released =
            |found, published, untold, granted| Released { found, published, untold, granted, was_free: false };
        let cases = [
            (ints(&[0, 0, 0]), Released::default()),
            (ints(&[2, 1, 0]), released(2, true, false, None)),
            (ints(&[1, -1, 1]), released(1, true, true, Some(0))),
            (ints(&[0, 0, 3]), released(0, false, false, Some(2))),
        ];
        for (reply, outcome) in cases {
            assert_eq!(read_released("k", &reply).expect("known"), outcome);
        }
    }

    #[test]
    fn replies_of_a_wrong_shape_are_errors_that_name_the_key() {
        let odd = [
            Value::Okay,
            Value::Int(-4),
            ints(&[]),
            ints(&[0]),
            ints(&[-2]),
            ints(&[5, -1]),
            ints(&[-2, 5]),
            ints(&[1, 2, -1]),
            ints(&[1, 2, 0]),
            ints(&[-2, 0, 0]),
            ints(&[1, 1, 1, 1]),
            with_head(-2, 5, 3),
            with_head(-1, -5, 3),
            with_head(-1, 5, -3),
        ];
        for reply in odd {
            for error in [
                read_acquired("orders", &reply).err(),
                read_released("orders", &reply).err(),
                read_forced("orders", &reply).err(),
            ] {
                match error {
                    Some(Error::UnexpectedReply { key, .. }) => assert_eq!(key, "orders"),
                    other => panic!("{reply:?}: {other:?}"),
                }
            }
        }
    }
}
