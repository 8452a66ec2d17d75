//! The script layer, for replay and differential tests. **Outside semver**: it may change in any release.
//!
//! Applications use [`Client`](crate::Client); a script run by hand bypasses the queue, the watchdog and every guarantee.

use std::time::Duration;

use redis::{Value, aio::ConnectionLike};

use crate::{
    error::{Action, Error},
    keys,
    owner::OwnerId,
    scripts::{
        self,
        answers::{Acquired, Granted},
        lock::{self, Reentry},
    },
    topology::Flavour,
};

/// Name and source of every script.
pub fn scripts() -> Vec<(&'static str, &'static str)> {
    scripts::ALL.iter().map(|script| (script.name, script.source)).collect()
}

/// The channel on which a plain lock's releases are told.
pub fn lock_channel(name: &str) -> String {
    keys::lock_channel(name)
}

/// The cluster slot of a key.
pub fn slot(key: &str) -> u16 {
    keys::slot(key.as_bytes())
}

/// The outcome of a raw acquire.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum RawAcquired {
    /// Somebody else holds it, for this long, or without expiry.
    Busy(Option<Duration>),
    /// The hash has fields of another kind.
    Foreign,
    /// Granted; the count before.
    Granted(u64),
}

/// `lock_acquire.lua` on a connection of the caller's.
///
/// # Errors
/// [`Error::Redis`], [`Error::ForeignData`], [`Error::UnexpectedReply`].
pub async fn lock_acquire(
    con: &mut impl ConnectionLike,
    name: &str,
    owner: OwnerId,
    target: u64,
    lease: Duration,
) -> Result<RawAcquired, Error> {
    let call = lock::acquire(name, owner.alone(), target, lease, lease, Reentry::Allowed, &[]);
    let reply = eval(con, Action::Acquire, name, &call).await?;
    Ok(match lock::read_acquired(name, &reply)? {
        Acquired::Busy(busy) => RawAcquired::Busy(busy.retry_in),
        Acquired::Granted(Granted { found, .. }) => RawAcquired::Granted(found),
        Acquired::Foreign | Acquired::Reentry | Acquired::Upgrade(_) => RawAcquired::Foreign,
    })
}

/// `lock_release.lua` on a connection of the caller's: the count before.
///
/// # Errors
/// As [`lock_acquire`].
pub async fn lock_release(
    con: &mut impl ConnectionLike,
    name: &str,
    owner: OwnerId,
    target: u64,
    lease: Duration,
) -> Result<u64, Error> {
    let call = lock::release(name, owner.alone(), target, lease, &keys::lock_channel(name), Flavour::Plain, false);
    let reply = eval(con, Action::Release, name, &call).await?;
    Ok(lock::read_released(name, target, true, &reply)?.found)
}

async fn eval(
    con: &mut impl ConnectionLike,
    doing: Action,
    name: &str,
    call: &crate::connection::Invocation,
) -> Result<Value, Error> {
    let failed = |e| Error::redis(doing, name, e);
    let load = redis::cmd("SCRIPT").arg("LOAD").arg(call.source).to_owned();
    con.req_packed_command(&load).await.and_then(Value::extract_error).map_err(failed)?;
    con.req_packed_command(&call.evalsha).await.and_then(Value::extract_error).map_err(failed)
}
