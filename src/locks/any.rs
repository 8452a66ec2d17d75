//! What all kinds of locks have in common, as a type of its own: a handle that has forgotten its kind.

use std::{fmt, sync::Arc, time::Duration};

use redis::{Cmd, Value, cmd};
use tokio::sync::oneshot;

use crate::{
    acquire::{Acquire, Request, TryAcquire},
    answers::Forced,
    back_off::BackOff,
    dispatch,
    error::{Action, Error},
    keys,
    kind::Kind,
    lease::Lease,
    owner::OwnerId,
    protocol::{Names, Protocol},
    table::Shared,
};

/// A lock of any kind: what every handle converts into, for code that does not care which it is.
///
/// A cheap handle without I/O; clones name the same lock. Every acquisition has an owner of its own, so clones, tasks and
/// branches of a `select!` exclude each other; re-entry is asked for with [`owned_by`](Self::owned_by).
///
/// When the holder dies the lock is free when its lease ends: one watchdog timeout (30 s by default) after its last renewal,
/// or at the end of a fixed lease. A lock in Redis cannot promise exclusion across a paused process, a failover that loses
/// the last writes, or a clock that jumps on the Redis host: see `docs/guarantees.md`.
#[derive(Clone)]
pub struct AnyLock {
    shared: Arc<Shared>,
    names: Arc<Names>,
    pub(super) patience: Option<Duration>,
    pub(super) back_off: BackOff,
}

impl AnyLock {
    pub(super) fn new(
        shared: Arc<Shared>,
        kind: Kind,
        protocol: &'static dyn Protocol,
        name: String,
        channel: String,
        side: Box<[String]>,
    ) -> Self {
        let names = Names { kind, protocol, key: name.into(), channel: channel.into(), side };
        Self { shared, names: Arc::new(names), patience: None, back_off: BackOff::default() }
    }

    /// What kind of lock it is.
    pub fn kind(&self) -> Kind {
        self.names.kind
    }

    /// The lock's name, which is its key.
    pub fn name(&self) -> &str {
        &self.names.key
    }

    /// Takes the lock, waiting until it is free.
    ///
    /// # Redis
    /// Writes the key `{name}` (hash), and what the kind keeps beside it; listens only while waiting. One command when the
    /// lock is free.
    ///
    /// # Lease and wait
    /// Renewed by the watchdog until released, or kept for [`Acquire::lease`] and not renewed. Waits without limit.
    ///
    /// # Errors
    /// [`Error::Misuse`] for an empty name or a lease out of range; [`Error::ForeignData`] if the key is no lock of this kind;
    /// [`Error::Redis`] or [`Error::Unresolved`] if an attempt failed (what it may have got is given back in the background);
    /// [`Error::LeaseLost`] if the grant came after its lease had ended; [`Error::AlreadyHeld`] and
    /// [`Error::UpgradeImpossible`] where the kind knows them; [`Error::Closed`].
    ///
    /// # Cancel safety
    /// Dropping the future gives up the place in line. If Redis had already granted the lock it is released in the
    /// background.
    pub fn lock(&self) -> Acquire {
        Acquire::new(self.request(None))
    }

    /// Takes the lock if that can be had: at once, or within [`TryAcquire::wait`]. `None` when it could not.
    ///
    /// # Redis
    /// As [`lock`](Self::lock); without a wait it is one command and listens to nothing.
    ///
    /// # Lease and wait
    /// As [`lock`](Self::lock); a wait is precise to about a millisecond, and to one response timeout when Redis is silent.
    ///
    /// # Errors
    /// As [`lock`](Self::lock). A wait that ends while an attempt is unresolved is an error, never `None`.
    ///
    /// # Cancel safety
    /// As [`lock`](Self::lock).
    pub fn try_lock(&self) -> TryAcquire {
        TryAcquire::new(self.request(None))
    }

    /// The same lock, acting as one owner: its acquisitions re-enter each other.
    pub fn owned_by(&self, owner: &OwnerId) -> OwnedLock {
        OwnedLock { lock: self.clone(), owner: *owner }
    }

    /// Whether the lock is taken. For most kinds: whether the key exists (`EXISTS`), whatever it holds, as Redisson's
    /// `isLocked`; for a read or write lock: whether the key is in that mode, or its writer reads as well.
    ///
    /// # Redis
    /// One command: `EXISTS`, or for a read or write lock the script `read_write_is_locked.lua`.
    ///
    /// # Errors
    /// [`Error::Redis`] if the command failed; [`Error::Misuse`] for an empty name.
    pub async fn is_locked(&self) -> Result<bool, Error> {
        let Some(call) = self.names.protocol.is_locked(&self.names, self.names.kind.role()) else {
            return Ok(self.number(cmd("EXISTS").arg(self.name())).await? > 0);
        };
        keys::check_name(self.name())?;
        self.open()?;
        match self.shared.topology.connection(self.name()).run(&call, || true).await {
            Ok(reply) => self.names.protocol.read_is_locked(&self.names, &reply),
            Err(e) => Err(e.into_source().map_or(Error::Closed, |e| Error::redis(Action::Query, self.name(), e))),
        }
    }

    /// Whether this owner holds the lock.
    ///
    /// # Redis
    /// One command: `HEXISTS`.
    ///
    /// # Errors
    /// As [`is_locked`](Self::is_locked), and [`Error::ForeignData`] if the key is no hash.
    pub async fn is_held_by(&self, owner: &OwnerId) -> Result<bool, Error> {
        Ok(self.number(cmd("HEXISTS").arg(self.name()).arg(self.names.holder(*owner).to_string())).await? > 0)
    }

    /// How often this owner holds the lock; 0 when it does not.
    ///
    /// # Redis
    /// One command: `HGET`.
    ///
    /// # Errors
    /// As [`is_held_by`](Self::is_held_by).
    pub async fn hold_count(&self, owner: &OwnerId) -> Result<u64, Error> {
        let count = self.number(cmd("HGET").arg(self.name()).arg(self.names.holder(*owner).to_string())).await?;
        Ok(u64::try_from(count).unwrap_or(0))
    }

    /// How long until the key expires, whatever it holds.
    ///
    /// # Redis
    /// One command: `PTTL`.
    ///
    /// # Errors
    /// As [`is_locked`](Self::is_locked).
    pub async fn remaining_ttl(&self) -> Result<RemainingTtl, Error> {
        Ok(match self.number(cmd("PTTL").arg(self.name())).await? {
            -2 => RemainingTtl::NoKey,
            ms => u64::try_from(ms).map_or(RemainingTtl::NoExpiry, |ms| RemainingTtl::Left(Duration::from_millis(ms))),
        })
    }

    /// Frees the lock whoever holds it, and wakes a waiter. `false` when it was free; for a read or write lock also when it
    /// is in the other mode. Holders are not asked; those of this client learn it at once, others of this crate by their
    /// next renewal.
    ///
    /// # Redis
    /// The kind's script for it: deletes the key, tells a waiter (spin locks: nobody). What the kind keeps beside the key
    /// stays.
    ///
    /// # Errors
    /// [`Error::ForeignData`] if the key is no lock of this kind (nothing is deleted); [`Error::Redis`] if the command failed, in
    /// which case the lock may have been freed or not.
    ///
    /// # Cancel safety
    /// The command may run or not.
    pub async fn force_release(&self) -> Result<bool, Error> {
        keys::check_name(self.name())?;
        self.open()?;
        let key = self.shared.find(&self.names);
        let before = key.as_ref().map(|key| key.look(|q| q.watermark()));
        let call =
            self.names.protocol.force_release(&self.names, self.names.kind.role(), self.shared.topology.flavour());
        let reply = match self.shared.topology.connection(self.name()).run(&call, || true).await {
            Ok(reply) => reply,
            Err(e) => {
                return Err(e
                    .into_source()
                    .map_or(Error::Closed, |e| Error::redis(Action::ForceRelease, self.name(), e)));
            }
        };
        let forced = self.names.protocol.read_forced(&self.names, &reply)?;
        if let (Forced::Freed { .. }, Some(key), Some(before)) = (forced, key, before) {
            self.shared.act(&key, |q, now, out| q.forced(now, before, out));
        }
        match forced {
            Forced::Freed { untold: false } => Ok(true),
            Forced::Freed { untold: true } => Err(dispatch::untold_error(&self.names.channel)),
            Forced::WasFree => Ok(false),
            Forced::Foreign => Err(dispatch::foreign(self.name())),
        }
    }

    fn request(&self, owner: Option<OwnerId>) -> Request {
        Request {
            shared: self.shared.clone(),
            names: self.names.clone(),
            owner,
            lease: Lease::Watchdog,
            patience: self.patience,
            back_off: self.back_off,
        }
    }

    fn open(&self) -> Result<(), Error> {
        if self.shared.is_closed() { Err(Error::Closed) } else { Ok(()) }
    }

    pub(super) async fn number(&self, query: &Cmd) -> Result<i64, Error> {
        keys::check_name(self.name())?;
        self.open()?;
        match self.shared.topology.connection(self.name()).command(query).await {
            Ok(reply) => self.read_number(&reply),
            Err(e) => Err(e.into_source().map_or(Error::Closed, |e| Error::redis(Action::Query, self.name(), e))),
        }
    }

    pub(super) fn read_number(&self, reply: &Value) -> Result<i64, Error> {
        match reply {
            Value::Int(n) => Ok(*n),
            Value::Nil => Ok(0),
            reply => redis::from_redis_value_ref(reply).map_err(|_| Error::UnexpectedReply {
                script: "query",
                key: self.name().to_owned(),
                reply: format!("{reply:?}"),
            }),
        }
    }
}

impl fmt::Debug for AnyLock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AnyLock").field("kind", &self.kind()).field("name", &self.name()).finish_non_exhaustive()
    }
}

/// A lock that acts as one owner.
///
/// While the owner holds the lock, taking it again adds a hold and returns at once. Its guards may be released in any order;
/// each gives one hold back. The key's time to live is never shorter than what any live hold of the owner was promised.
#[derive(Clone, Debug)]
pub struct OwnedLock {
    lock: AnyLock,
    owner: OwnerId,
}

impl OwnedLock {
    /// The owner.
    pub fn owner(&self) -> OwnerId {
        self.owner
    }

    /// As [`AnyLock::lock`], re-entering if the owner holds the lock.
    ///
    /// # Errors
    /// As [`AnyLock::lock`], and [`Error::Unresolved`] if an earlier command of this owner may still run.
    ///
    /// # Cancel safety
    /// As [`AnyLock::lock`]. A hold that the owner had before stays.
    pub fn lock(&self) -> Acquire {
        Acquire::new(self.lock.request(Some(self.owner)))
    }

    /// As [`AnyLock::try_lock`], re-entering if the owner holds the lock.
    ///
    /// An owner that reads and asks to write without a wait gets `None`, not [`Error::UpgradeImpossible`].
    ///
    /// # Errors
    /// As [`lock`](Self::lock).
    ///
    /// # Cancel safety
    /// As [`lock`](Self::lock).
    pub fn try_lock(&self) -> TryAcquire {
        TryAcquire::new(self.lock.request(Some(self.owner)))
    }

    /// Gives the owner's newest hold back without its guard, which reports the loss from then on. For bridges whose caller
    /// only knows lock and unlock.
    ///
    /// # Redis
    /// As [`Guard::release`](crate::Guard::release). An owner without a hold in this client costs an `HGET` before. If that
    /// finds nothing it is over, but for fair, read and write locks: their release script runs all the same, and tells
    /// waiters where the lock is free.
    ///
    /// # Errors
    /// [`Error::NotOwner`] when the owner holds nothing; but a fair lock that nobody holds is released without an error, as in
    /// Redisson. Otherwise as [`Guard::release`](crate::Guard::release).
    ///
    /// # Cancel safety
    /// Safe: once polled, the release is the client's.
    pub async fn release(&self) -> Result<(), Error> {
        let (lock, owner) = (&self.lock, self.owner);
        keys::check_name(lock.name())?;
        lock.open()?;
        let (reply, outcome) = oneshot::channel();
        lock.shared.act_on(&lock.names, |q, now, out| q.release_any(now, lock.names.holder(owner), reply, out))?;
        match outcome.await.unwrap_or(Err(Error::Closed)) {
            Err(Error::LeaseLost(_)) => Err(self.not_owner()),
            other => other,
        }
    }

    fn not_owner(&self) -> Error {
        Error::NotOwner { key: self.lock.name().to_owned(), owner: self.owner }
    }
}

/// How long a key has to live.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum RemainingTtl {
    /// This long.
    Left(Duration),
    /// The key exists and does not expire: not by any lock client's doing.
    NoExpiry,
    /// There is no key.
    NoKey,
}
