//! `RFairLock`: whoever came first is served first, whatever process it is in.

use std::{sync::Arc, time::Duration};

use redis::Value;

use super::{AnyLock, lock_handle};
use crate::{
    connection::Invocation,
    error::Error,
    keys,
    kind::Kind,
    owner::Role,
    protocol::{Names, Protocol, Way},
    queue::{Attempt, Candidate, Discipline, Release},
    scripts::{
        answers::{Acquired, Forced, Released},
        fair,
    },
    table::Shared,
    topology::Flavour,
};

/// Redisson's fair lock on the same keys: a re-entrant lock that is granted in the order in which its waiters came, across
/// processes and languages.
///
/// Every waiter stands in a queue in Redis. One that dies there holds up those behind it until its *patience* ends; a wait
/// that ends otherwise, by cancelling it too, leaves the queue at once. A patience is counted from when the one before it
/// ends, and is never refreshed: a lock that is held for longer than all that throws a living waiter out of its place, and it
/// queues again at the end. So does a waiter whose future is not polled within 100 ms of being granted the lock.
///
/// [`try_lock`](Self::try_lock) without a wait does not queue, and gets the lock only if nobody waits.
///
/// A release grants the lock at once if the head of the queue is a waiter of this client, and tells it all the same.
///
/// Otherwise as [`RLock`](crate::RLock).
///
/// # Redis
/// Writes the key `{name}` (hash), `redisson_lock_queue:{name}` (list) and `redisson_lock_timeout:{name}` (sorted set);
/// listens on `redisson_lock__channel:{name}:<owner>` only while waiting. Scripts: `fair_*.lua`, `lock_renew.lua`.
#[derive(Clone)]
pub struct FairLock(AnyLock);

impl FairLock {
    pub(crate) fn new(shared: Arc<Shared>, name: String) -> Self {
        let channel = keys::lock_channel(&name);
        let side = [keys::fair_queue(&name), keys::fair_timeouts(&name)];
        Self(AnyLock::new(shared, Kind::Fair, &Fair, name, channel, side.into()))
    }

    /// For how long a wait without a bound that is begun with this handle counts as alive, once its turn could have come. In
    /// place of [`ClientBuilder::fair_patience`](crate::ClientBuilder::fair_patience). A bounded wait counts for as long as
    /// it is. Zero counts as 1 ms.
    #[must_use]
    pub fn patience(mut self, patience: Duration) -> Self {
        self.0.patience = Some(patience);
        self
    }
}

lock_handle!(FairLock);

/// Re-entrant or not.
#[derive(Debug)]
pub(super) struct Fair;

impl Protocol for Fair {
    fn discipline(&self) -> Discipline {
        Discipline::Fair
    }

    fn acquire(&self, names: &Names, ask: &Attempt, way: Way) -> Invocation {
        let asked = fair::Acquire {
            owner: ask.owner,
            target: ask.target,
            lease: ask.term.length,
            longest: ask.ttl,
            patience: ask.patience,
            enqueue: ask.enqueue,
            reentry: way.reentry(ask),
            abandoned: &ask.abandoned,
        };
        fair::acquire(wire_names(names), &asked, way.flavour)
    }

    fn read_acquired(&self, names: &Names, _ask: &Attempt, reply: &Value) -> Result<Acquired, Error> {
        fair::read_acquired(&names.key, reply)
    }

    fn release(&self, names: &Names, ask: &Release, strict: bool, way: Way) -> Invocation {
        let candidate = |c: &Candidate| fair::Candidate { owner: c.owner, lease: c.term.length, patience: c.patience };
        let candidates: Vec<fair::Candidate> = ask.candidates.iter().map(candidate).collect();
        let asked = fair::Release {
            owner: ask.owner,
            target: ask.target,
            left: ask.ttl,
            leave: ask.leave,
            strict,
            candidates: &candidates,
        };
        fair::release(wire_names(names), &asked, way.flavour)
    }

    fn read_released(&self, names: &Names, _ask: &Release, reply: &Value) -> Result<Released, Error> {
        fair::read_released(&names.key, reply)
    }

    fn tells_when_free(&self) -> bool {
        true
    }

    fn force_release(&self, names: &Names, _role: Role, flavour: Flavour) -> Invocation {
        fair::force_release(wire_names(names), flavour)
    }

    fn read_forced(&self, names: &Names, reply: &Value) -> Result<Forced, Error> {
        fair::read_forced(&names.key, reply)
    }
}

fn wire_names(names: &Names) -> fair::Names<'_> {
    let side = |index: usize| names.side.get(index).map_or("", String::as_str);
    fair::Names { key: &names.key, queue: side(0), timeouts: side(1), channel: &names.channel }
}
