//! The fenced lock's scripts: arguments in, enums out. The only file that knows their wire values.
//!
//! Release, renewal and forced release are those of the plain lock: they leave the token alone.

use std::time::Duration;

use redis::Value;

use super::{
    FENCED_ACQUIRE, FENCED_TRANSFER,
    answers::{Acquired, Busy, Granted, Transferred},
};
use crate::{connection::Invocation, error::Error, lease::wire_millis, owner::Holder};

/// `longest`: what the key must live for when other holds of the owner are still there.
pub(crate) fn acquire(
    key: &str,
    token: &str,
    owner: Holder,
    target: u64,
    lease: Duration,
    longest: Duration,
    abandoned: &[Holder],
) -> Invocation {
    let call = FENCED_ACQUIRE.call(&[key, token]).arg(owner.to_string()).arg(target);
    let call = call.arg(wire_millis(lease)).arg(wire_millis(longest.max(lease)));
    abandoned.iter().fold(call, |call, gone| call.arg(gone.to_string())).done()
}

pub(crate) fn read_acquired(key: &str, reply: &Value) -> Result<Acquired, Error> {
    let unexpected = || FENCED_ACQUIRE.unexpected(key, reply);
    match reply {
        Value::Int(-2) => Ok(Acquired::Foreign),
        Value::Int(-1) => Ok(Acquired::Busy(Busy::default())),
        Value::Int(ms) => {
            let left = Duration::from_millis(u64::try_from(*ms).map_err(|_| unexpected())?);
            Ok(Acquired::Busy(Busy { retry_in: Some(left), ..Busy::default() }))
        }
        Value::Array(parts) => match parts.as_slice() {
            [Value::Int(found), token] => match (u64::try_from(*found), read_token(token)) {
                (Ok(found), token @ Some(_)) => Ok(Acquired::Granted(Granted { found, fresh: found == 0, token })),
                _ => Err(unexpected()),
            },
            _ => Err(unexpected()),
        },
        _ => Err(unexpected()),
    }
}

pub(crate) fn transfer(key: &str, token: &str, old: Holder, new: Holder, lease: Duration, channel: &str) -> Invocation {
    let call = FENCED_TRANSFER.call(&[key, token]).arg(old.to_string()).arg(new.to_string());
    call.arg(wire_millis(lease)).arg(channel).done()
}

/// The outcome, and the number of subscribers of the channel where it may be asked.
pub(crate) fn read_transferred(key: &str, reply: &Value) -> Result<(Transferred, Option<u64>), Error> {
    let unexpected = || FENCED_TRANSFER.unexpected(key, reply);
    let Value::Array(parts) = reply else { return Err(unexpected()) };
    let [Value::Int(state), Value::Int(listeners), token] = parts.as_slice() else {
        return Err(unexpected());
    };
    let outcome = match (state, read_token(token)) {
        (1, token @ Some(_)) => Transferred::Granted { token },
        (0, None) => Transferred::Gone,
        (-2, None) => Transferred::Foreign,
        _ => return Err(unexpected()),
    };
    Ok((outcome, u64::try_from(*listeners).ok()))
}

/// `None`: not one that was drawn.
fn read_token(token: &Value) -> Option<u64> {
    let token = match token {
        Value::Int(token) => u64::try_from(*token).ok()?,
        Value::BulkString(text) => std::str::from_utf8(text).ok()?.parse().ok()?,
        _ => return None,
    };
    (token > 0).then_some(token)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ints(parts: &[i64]) -> Value {
        Value::Array(parts.iter().map(|n| Value::Int(*n)).collect())
    }

    #[test]
    fn a_grant_has_a_token() {
        let granted = |found, fresh, token| Acquired::Granted(Granted { found, fresh, token: Some(token) });
        let busy = |retry_in| Acquired::Busy(Busy { retry_in, ..Busy::default() });
        let cases = [
            (ints(&[0, 1]), granted(0, true, 1)),
            (ints(&[2, 7]), granted(2, false, 7)),
            (
                Value::Array(vec![Value::Int(1), Value::BulkString(b"9007199254740993".to_vec())]),
                granted(1, false, 9_007_199_254_740_993),
            ),
            (Value::Int(0), busy(Some(Duration::ZERO))),
            (Value::Int(-1), busy(None)),
            (Value::Int(-2), Acquired::Foreign),
        ];
        for (reply, outcome) in cases {
            assert_eq!(read_acquired("k", &reply).expect("known"), outcome);
        }
        let cases = [
            (ints(&[1, 3, 8]), (Transferred::Granted { token: Some(8) }, Some(3))),
            (ints(&[0, -1, 0]), (Transferred::Gone, None)),
            (ints(&[-2, 0, 0]), (Transferred::Foreign, Some(0))),
        ];
        for (reply, outcome) in cases {
            assert_eq!(read_transferred("k", &reply).expect("known"), outcome);
        }
    }

    #[test]
    fn replies_of_a_wrong_shape_are_errors_that_name_the_key() {
        let odd = [
            Value::Nil,
            Value::Okay,
            Value::Int(-3),
            ints(&[1]),
            ints(&[0, 0]),
            Value::Array(vec![Value::Int(1), Value::BulkString(b"-1".to_vec())]),
            Value::Array(vec![Value::Int(1), Value::BulkString(b"many".to_vec())]),
            ints(&[-1, -1]),
            ints(&[1, 0, 0]),
            ints(&[2, 0, 5]),
        ];
        for reply in odd {
            for error in [read_acquired("orders", &reply).err(), read_transferred("orders", &reply).err()] {
                match error {
                    Some(Error::UnexpectedReply { key, .. }) => assert_eq!(key, "orders"),
                    other => panic!("{reply:?}: {other:?}"),
                }
            }
        }
    }
}
