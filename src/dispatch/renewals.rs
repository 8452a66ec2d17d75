//! Renewals of the watchdog, in batches, and the extension that a guard asks for.

use std::{sync::Arc, time::Duration};

use redis::{RedisError, Value};

use crate::{
    clock::Moment,
    connection::{Invocation, RunError},
    error::{Action, Error},
    owner::{Holder, Role},
    queue::{Extension, Renewal, RenewalDue},
    scripts::{
        lock,
        read_write::{self, Raise, ReadRenewal},
    },
    table::{Key, Shared, Watched},
};

/// Holds renewed by one call.
const RENEWAL_BATCH: usize = 100;

impl Shared {
    /// Renews what is due, in calls of a hundred, side by side: one that fails holds up no other.
    pub(crate) fn renew(self: Arc<Self>, mut due: Vec<Watched>) {
        let group = |hold: &Watched| (self.topology.group(&hold.key.names.key), hold.owner.role == Role::Read);
        due.sort_by_cached_key(group);
        while let Some(last) = due.last().map(group) {
            let start = due.partition_point(|hold| group(hold) < last);
            let batch = due.split_off(start.max(due.len().saturating_sub(RENEWAL_BATCH)));
            self.runtime.spawn(self.clone().renew_batch(batch));
        }
    }

    async fn renew_batch(self: Arc<Self>, batch: Vec<Watched>) {
        let now = Moment::now();
        let ask = |hold: Watched| match hold.key.touch(|q| q.renewal_due(now, hold.owner)) {
            Renewal::Due(due) => Some((hold, due)),
            Renewal::Postponed => {
                self.watch_again(hold, self.watchdog.retry(now));
                None
            }
            Renewal::Over => None,
        };
        let batch: Vec<(Watched, RenewalDue)> = batch.into_iter().filter_map(ask).collect();
        let Some((first, _)) = batch.first() else { return };
        let first = first.key.names.key.clone();
        let call = renewal(batch.iter().map(|(hold, due)| Renewed {
            key: &hold.key.names.key,
            owner: hold.owner,
            rank: 0,
            holds: due.holds,
            ttl: due.ttl,
        }));
        let sent = Moment::now();
        let counts = match self.topology.connection(&first).run(&call, || true).await {
            Ok(reply) => read_renewed(batch.first().map(|(hold, _)| hold.owner), &first, &reply, batch.len()),
            Err(RunError::Closed) => return,
            Err(e) => Err(Error::redis(Action::Renew, &first, e.into_source().unwrap_or_else(closed))),
        };
        match counts {
            Ok(counts) => {
                for ((hold, due), found) in batch.into_iter().zip(counts) {
                    self.act(&hold.key, |q, now, out| q.renewed(now, hold.owner, due, sent, found, out));
                    let at = self.watchdog.next(Moment::now(), hold.due);
                    self.watch_again(hold, at);
                }
            }
            Err(error) => {
                self.report(&error);
                for (hold, _) in batch {
                    self.act(&hold.key, |q, now, out| q.renewal_failed(now, hold.owner, out));
                    self.watch_again(hold, self.watchdog.retry(Moment::now()));
                }
            }
        }
    }

    fn watch_again(&self, hold: Watched, due: Moment) {
        let (key, owner) = (hold.key.clone(), hold.owner);
        if !key.look(|q| q.is_renewed(owner)) {
            return;
        }
        let token = self.watchdog.set(due, Watched { due, ..hold });
        if let Some(surplus) = key.touch(|q| q.watched(owner, token)) {
            self.watchdog.cancel(surplus);
        }
    }

    pub(crate) async fn extend(self: Arc<Self>, key: Arc<Key>, asked: Extension) {
        let name = key.names.key.clone();
        let call =
            renewal([Renewed { key: &name, owner: asked.owner, rank: asked.rank, holds: asked.lease, ttl: asked.ttl }]);
        let sent = Moment::now();
        let outcome = match self.topology.connection(&name).run(&call, || true).await {
            Ok(reply) => read_renewed(Some(asked.owner), &name, &reply, 1).map(|counts| counts.into_iter().sum()),
            Err(e) => Err(e.into_source().map_or(Error::Closed, |e| Error::redis(Action::Renew, &name, e))),
        };
        self.act(&key, |q, now, out| q.extended(now, asked, sent, outcome, out));
    }
}

/// What a hold is renewed with.
struct Renewed<'a> {
    key: &'a str,
    owner: Holder,
    /// Which of a reader's holds, counted from 1; 0: all.
    rank: u64,
    holds: Duration,
    ttl: Duration,
}

/// One call for several holds of the same sort: readers', or others'.
fn renewal<'a>(holds: impl IntoIterator<Item = Renewed<'a>>) -> Invocation {
    let holds: Vec<Renewed<'_>> = holds.into_iter().collect();
    if holds.first().is_none_or(|hold| hold.owner.role != Role::Read) {
        return lock::renew(holds.iter().map(|hold| (hold.key, hold.owner, hold.ttl)));
    }
    read_write::renew_reads(holds.iter().map(|hold| ReadRenewal {
        key: hold.key,
        owner: hold.owner.owner,
        holds: match hold.rank {
            0 if hold.holds.is_zero() => Raise::None,
            0 => Raise::All(hold.holds),
            rank => Raise::One(rank, hold.holds),
        },
        key_lives: hold.ttl,
    }))
}

/// The hold count of each, 0 where the owner holds nothing any more.
fn read_renewed(of: Option<Holder>, key: &str, reply: &Value, expected: usize) -> Result<Vec<u64>, Error> {
    match of {
        Some(Holder { role: Role::Read, .. }) => read_write::read_renewed(key, reply, expected),
        _ => lock::read_renewed(key, reply, expected),
    }
}

fn closed() -> RedisError {
    std::io::Error::new(std::io::ErrorKind::NotConnected, "the client was shut down").into()
}
