//! `RSpinLock`: a lock whose waiters ask again and again.

use std::sync::Arc;

use redis::Value;

use super::{AnyLock, lock_handle};
use crate::{
    back_off::BackOff,
    connection::Invocation,
    error::Error,
    keys,
    kind::Kind,
    owner::Role,
    protocol::{Names, Protocol, Way},
    queue::{Discipline, Release},
    scripts::{answers::Released, lock},
    table::Shared,
    topology::Flavour,
};

/// Redisson's spin lock on the same key: a re-entrant lock that publishes nothing and listens to nothing.
///
/// The first of a process' waiters asks again after a pause that grows: see [`BackOff`]. Good where pub/sub is dear and waits
/// are rare or short; a waiter may be late by one pause. The hash is that of an [`RLock`](crate::RLock), so both exclude each
/// other on one name, but waiters of an `RLock` are not told by a spin lock's release.
///
/// Otherwise as [`RLock`](crate::RLock).
///
/// # Redis
/// Writes the key `{name}` (hash). Scripts: `lock_*.lua`.
#[derive(Clone)]
pub struct SpinLock(AnyLock);

impl SpinLock {
    pub(crate) fn new(shared: Arc<Shared>, name: String) -> Self {
        let channel = keys::lock_channel(&name);
        Self(AnyLock::new(shared, Kind::Spin, &Spinning, name, channel, Box::default()))
    }

    /// How waits that are begun with this handle pause.
    #[must_use]
    pub fn back_off(mut self, back_off: BackOff) -> Self {
        self.0.back_off = back_off;
        self
    }
}

lock_handle!(SpinLock);

#[derive(Debug)]
struct Spinning;

impl Protocol for Spinning {
    fn discipline(&self) -> Discipline {
        Discipline::Spin
    }

    fn hands_over(&self) -> bool {
        false
    }

    fn release(&self, names: &Names, ask: &Release, strict: bool, way: Way) -> Invocation {
        lock::release(&names.key, ask.owner, ask.target, ask.ttl, NOBODY, way.flavour, strict)
    }

    fn read_released(&self, names: &Names, ask: &Release, reply: &Value) -> Result<Released, Error> {
        lock::read_released(&names.key, ask.target, false, reply)
    }

    fn force_release(&self, names: &Names, _role: Role, flavour: Flavour) -> Invocation {
        lock::force_release(&names.key, NOBODY, flavour)
    }
}

/// In place of a channel: nothing is published.
const NOBODY: &str = "";
