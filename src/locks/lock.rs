//! `RLock`: Redisson's re-entrant lock.

use std::sync::Arc;

use super::{AnyLock, lock_handle};
use crate::{keys, kind::Kind, protocol::Protocol, table::Shared};

/// Redisson's `RLock` on the same key: one owner at a time, re-entrant, first come first served within the process.
///
/// A cheap handle without I/O; clones name the same lock. Every acquisition has an owner of its own, so clones, tasks and
/// branches of a `select!` exclude each other; re-entry is asked for with [`owned_by`](Self::owned_by).
///
/// When the holder dies the lock is free when its lease ends: one watchdog timeout (30 s by default) after its last renewal,
/// or at the end of a fixed lease. A lock in Redis cannot promise exclusion across a paused process, a failover that loses
/// the last writes, or a clock that jumps on the Redis host: see `docs/guarantees.md`.
///
/// # Redis
/// Writes the key `{name}` (hash); listens on `redisson_lock__channel:{name}` only while waiting. Scripts: `lock_*.lua`.
///
/// ```no_run
/// # async fn example() -> Result<(), redlatch::Error> {
/// let client = redlatch::Client::connect("redis://127.0.0.1:6379").await?;
/// let lock = client.lock("order:42");
/// let guard = lock.lock().await?;
/// // ... the work ...
/// guard.release().await?;
/// # Ok(()) }
/// ```
#[derive(Clone)]
pub struct RLock(AnyLock);

impl RLock {
    pub(crate) fn new(shared: Arc<Shared>, name: String) -> Self {
        let channel = keys::lock_channel(&name);
        Self(AnyLock::new(shared, Kind::Lock, &Plain, name, channel, Box::default()))
    }
}

lock_handle!(RLock);

/// Re-entrant or not.
#[derive(Debug)]
pub(super) struct Plain;

impl Protocol for Plain {}
