//! `RReadWriteLock`: many readers or one writer.

use std::{fmt, sync::Arc};

use redis::Value;

use super::{AnyLock, lock_handle};
use crate::{
    connection::Invocation,
    error::Error,
    keys,
    kind::Kind,
    owner::{Holder, Role},
    protocol::{Names, Protocol, Way},
    queue::{Attempt, Discipline, Release},
    scripts::{
        answers::{Acquired, Forced, Released},
        read_write,
    },
    table::Shared,
    topology::Flavour,
};

/// Redisson's read/write lock on the same keys: many readers at a time, or one writer.
///
/// Both sides are re-entrant per owner. An owner that writes may read too, and keeps reading when it gives up writing: others
/// who wait to read are let in then. An owner that only reads can never write, it would wait for itself: that is
/// [`Error::UpgradeImpossible`](crate::Error::UpgradeImpossible) at once, or `None` from a try without a wait.
///
/// Within a process the line is in order. A waiting writer holds up the readers behind it for a second at a time; then those
/// that are in line pass, for a task may wait for one read lock while it has another. So readers that keep coming keep a
/// writer out only if their holds always last for more than a second. Across processes there is no order. When a reader
/// dies, writers get in when its own lease has ended.
///
/// A writer's leases add up when it takes the lock again, as in Redisson; when its last hold ends unreleased the lock is
/// given back all the same.
#[derive(Clone)]
pub struct ReadWriteLock {
    shared: Arc<Shared>,
    name: String,
}

impl ReadWriteLock {
    pub(crate) fn new(shared: Arc<Shared>, name: String) -> Self {
        Self { shared, name }
    }

    /// The lock's name, which is its key.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The side of the readers.
    pub fn read(&self) -> ReadLock {
        ReadLock(self.side(Kind::Read))
    }

    /// The side of the writers.
    pub fn write(&self) -> WriteLock {
        WriteLock(self.side(Kind::Write))
    }

    fn side(&self, kind: Kind) -> AnyLock {
        let channel = keys::read_write_channel(&self.name);
        AnyLock::new(self.shared.clone(), kind, &ReadWrite, self.name.clone(), channel, Box::default())
    }
}

impl fmt::Debug for ReadWriteLock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ReadWriteLock").field("name", &self.name).finish_non_exhaustive()
    }
}

/// The readers' side of a [`ReadWriteLock`].
///
/// # Redis
/// Writes the key `{name}` (hash with the field `mode`) and a key `{name}:<owner>:rwlock_timeout:<n>` for each hold, whose
/// expiry is that hold's lease; listens on `redisson_rwlock:{name}` only while waiting. Scripts: `read_*.lua`, of which
/// `read_write_*.lua` are shared with the writers.
#[derive(Clone)]
pub struct ReadLock(AnyLock);

/// The writers' side of a [`ReadWriteLock`].
///
/// # Redis
/// Writes the key `{name}` (hash with the field `mode`); listens on `redisson_rwlock:{name}` only while waiting. A writer
/// that readers keep out asks every second besides. Scripts: `write_*.lua`, `read_write_*.lua`, `lock_renew.lua`.
#[derive(Clone)]
pub struct WriteLock(AnyLock);

lock_handle!(ReadLock);
lock_handle!(WriteLock);

/// Both sides: they share the key, its holders and its waiters.
#[derive(Debug)]
struct ReadWrite;

impl Protocol for ReadWrite {
    fn discipline(&self) -> Discipline {
        Discipline::Readers
    }

    fn hands_over(&self) -> bool {
        false
    }

    fn acquire(&self, names: &Names, ask: &Attempt, _way: Way) -> Invocation {
        let asked = read_write::Acquire {
            owner: ask.owner.owner,
            target: ask.target,
            lease: ask.term.length,
            longest: ask.ttl,
            abandoned: &ask.abandoned,
        };
        match ask.owner.role {
            Role::Read => read_write::acquire_read(&names.key, &asked),
            Role::Sole | Role::Write => read_write::acquire_write(&names.key, &asked),
        }
    }

    fn read_acquired(&self, names: &Names, ask: &Attempt, reply: &Value) -> Result<Acquired, Error> {
        match ask.owner.role {
            Role::Read => read_write::read_read_acquired(&names.key, reply),
            Role::Sole | Role::Write => read_write::read_write_acquired(&names.key, reply),
        }
    }

    fn release(&self, names: &Names, ask: &Release, strict: bool, way: Way) -> Invocation {
        let Release { owner: Holder { owner, role }, target, ttl, ref rearm, ended, .. } = *ask;
        match role {
            Role::Read => {
                let asked = read_write::ReadRelease { owner, target, rearm, strict, ended };
                read_write::release_read(wire_names(names), way.flavour, &asked)
            }
            Role::Sole | Role::Write => {
                let asked = read_write::WriteRelease { owner, target, left: ttl, strict, ended };
                read_write::release_write(wire_names(names), way.flavour, &asked)
            }
        }
    }

    fn read_released(&self, names: &Names, ask: &Release, reply: &Value) -> Result<Released, Error> {
        match ask.owner.role {
            Role::Read => read_write::read_read_released(&names.key, reply),
            Role::Sole | Role::Write => read_write::read_write_released(&names.key, reply),
        }
    }

    fn tells_when_free(&self) -> bool {
        true
    }

    fn force_release(&self, names: &Names, role: Role, flavour: Flavour) -> Invocation {
        read_write::force_release(wire_names(names), flavour, role)
    }

    fn read_forced(&self, names: &Names, reply: &Value) -> Result<Forced, Error> {
        read_write::read_forced(&names.key, reply)
    }

    fn is_locked(&self, names: &Names, role: Role) -> Option<Invocation> {
        Some(read_write::is_locked(&names.key, role))
    }

    fn read_is_locked(&self, names: &Names, reply: &Value) -> Result<bool, Error> {
        read_write::read_is_locked(&names.key, reply)
    }
}

fn wire_names(names: &Names) -> read_write::Names<'_> {
    read_write::Names { key: &names.key, channel: &names.channel }
}
