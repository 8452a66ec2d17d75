//! Redisson's locks that refuse to be taken twice by one owner.

use std::{sync::Arc, time::Duration};

use super::{AnyLock, fair::Fair, lock::Plain, lock_handle};
use crate::{keys, kind::Kind, table::Shared};

/// Redisson's non-reentrant lock on the same key: an [`RLock`](crate::RLock) that its holder cannot take again.
///
/// Taking it as an owner that holds it is [`Error::AlreadyHeld`](crate::Error::AlreadyHeld), at once. Acquisitions without an
/// explicit owner exclude each other as always.
///
/// # Redis
/// As [`RLock`](crate::RLock).
#[derive(Clone)]
pub struct NonReentrantLock(AnyLock);

impl NonReentrantLock {
    pub(crate) fn new(shared: Arc<Shared>, name: String) -> Self {
        let channel = keys::lock_channel(&name);
        Self(AnyLock::new(shared, Kind::NonReentrant, &Plain, name, channel, Box::default()))
    }
}

lock_handle!(NonReentrantLock);

/// Redisson's non-reentrant fair lock on the same keys: a [`FairLock`](crate::FairLock) that its holder cannot take again.
///
/// Taking it as an owner that holds it is [`Error::AlreadyHeld`](crate::Error::AlreadyHeld), at once.
///
/// # Redis
/// As [`FairLock`](crate::FairLock).
#[derive(Clone)]
pub struct NonReentrantFairLock(AnyLock);

impl NonReentrantFairLock {
    pub(crate) fn new(shared: Arc<Shared>, name: String) -> Self {
        let channel = keys::lock_channel(&name);
        let side = [keys::fair_queue(&name), keys::fair_timeouts(&name)];
        Self(AnyLock::new(shared, Kind::NonReentrantFair, &Fair, name, channel, side.into()))
    }

    /// As [`FairLock::patience`](crate::FairLock::patience); zero counts as 1 ms.
    #[must_use]
    pub fn patience(mut self, patience: Duration) -> Self {
        self.0.patience = Some(patience);
        self
    }
}

lock_handle!(NonReentrantFairLock);
