//! `RFencedLock`: a lock whose grants are numbered.

use std::sync::Arc;

use redis::{Value, cmd};

use super::{AnyLock, lock_handle};
use crate::{
    connection::Invocation,
    error::Error,
    hold::FencingToken,
    keys,
    kind::Kind,
    protocol::{Names, Protocol, Way},
    queue::{Attempt, Transfer},
    scripts::{
        answers::{Acquired, Transferred},
        fenced,
    },
    table::Shared,
};

/// Redisson's `RFencedLock` on the same keys: a re-entrant lock that numbers its grants.
///
/// Every grant, a re-entry and a hand-over within the process too, has a number above all before it, in whatever language it
/// was taken: [`Guard::fencing_token`](crate::Guard::fencing_token). A resource that refuses numbers below the highest it has
/// seen is safe from holders that were paused past their lease, which no lock alone can promise.
///
/// Otherwise as [`RLock`](crate::RLock). A name needs a token of its own for ever: Redis keeps one small key for every name
/// ever used.
///
/// # Redis
/// Writes the key `{name}` (hash) and `redisson_lock_token:{name}` (a counter, which never expires); listens on
/// `redisson_lock__channel:{name}` only while waiting. Scripts: `fenced_*.lua`, `lock_*.lua`.
#[derive(Clone)]
pub struct FencedLock(AnyLock);

impl FencedLock {
    pub(crate) fn new(shared: Arc<Shared>, name: String) -> Self {
        let (channel, token) = (keys::lock_channel(&name), keys::fencing_token(&name));
        Self(AnyLock::new(shared, Kind::Fenced, &Fenced, name, channel, [token].into()))
    }

    /// The number of the last grant, whoever had it; `None` before the first.
    ///
    /// # Redis
    /// One command: `GET` of `redisson_lock_token:{name}`.
    ///
    /// # Errors
    /// As [`is_locked`](Self::is_locked); [`Error::UnexpectedReply`] if the counter is no number.
    ///
    /// # Cancel safety
    /// Safe: it only reads.
    pub async fn token(&self) -> Result<Option<FencingToken>, Error> {
        let token = keys::fencing_token(self.name());
        let last = self.0.number(cmd("GET").arg(token)).await?;
        Ok(u64::try_from(last).ok().filter(|&last| last > 0).map(FencingToken))
    }
}

lock_handle!(FencedLock);

#[derive(Debug)]
struct Fenced;

impl Protocol for Fenced {
    fn acquire(&self, names: &Names, ask: &Attempt, _way: Way) -> Invocation {
        let Attempt { owner, target, term, ttl, ref abandoned, .. } = *ask;
        fenced::acquire(&names.key, token(names), owner, target, term.length, ttl, abandoned)
    }

    fn read_acquired(&self, names: &Names, _ask: &Attempt, reply: &Value) -> Result<Acquired, Error> {
        fenced::read_acquired(&names.key, reply)
    }

    fn transfer(&self, names: &Names, ask: &Transfer) -> Invocation {
        fenced::transfer(&names.key, token(names), ask.old, ask.new, ask.term.length, &names.channel)
    }

    fn read_transferred(&self, names: &Names, reply: &Value) -> Result<(Transferred, Option<u64>), Error> {
        fenced::read_transferred(&names.key, reply)
    }
}

fn token(names: &Names) -> &str {
    names.side.first().map_or("", String::as_str)
}
