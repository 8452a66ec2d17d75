//! A queue in Redis, and waiters of either language in it.

use std::collections::BTreeMap;
use std::future::IntoFuture;
use std::time::Duration;

use compat_tests::{Failure, JavaLock, Outcome, Reply, SharedRedis, eventually, prefixed, within};
use redis::AsyncCommands;
use redlatch::{Error, Guard, OwnedLock};
use tokio::task::JoinHandle;

/// The three keys of a fair lock, as the server has them.
pub(crate) struct Queue<'a> {
    redis: &'a SharedRedis,
    name: &'static str,
    list: String,
    timeouts: String,
}

impl<'a> Queue<'a> {
    pub(crate) fn of(redis: &'a SharedRedis, name: &'static str) -> Self {
        let list = prefixed("redisson_lock_queue", name);
        Self { redis, name, list, timeouts: prefixed("redisson_lock_timeout", name) }
    }

    /// Of the lock.
    pub(crate) fn name(&self) -> &'static str {
        self.name
    }

    /// Waits until so many stand in it.
    pub(crate) async fn has(&self, count: usize) -> Outcome {
        let what = format!("{count} in the queue of {}", self.name);
        eventually(Duration::from_secs(10), &what, async || {
            let length: usize = self.redis.admin().llen(&self.list).await?;
            Ok(length == count)
        })
        .await
    }

    /// Until when each member counts as alive, in milliseconds since the epoch.
    pub(crate) async fn scores(&self) -> Outcome<BTreeMap<String, i64>> {
        let pairs: Vec<(String, i64)> = self.redis.admin().zrange_withscores(&self.timeouts, 0, -1).await?;
        Ok(pairs.into_iter().collect())
    }

    /// The score of this member; an error when it has none.
    pub(crate) async fn score(&self, member: &str) -> Outcome<i64> {
        let scores = self.scores().await?;
        scores.get(member).copied().ok_or_else(|| Failure::new(format!("{member} is not queued: {scores:?}")))
    }

    /// The server's clock.
    pub(crate) async fn server_ms(&self) -> Outcome<i64> {
        let (seconds, micros): (i64, i64) = redis::cmd("TIME").query_async(&mut self.redis.admin()).await?;
        Ok(seconds * 1000 + micros / 1000)
    }

    /// Those of the three keys that exist.
    pub(crate) async fn keys(&self) -> Outcome<Vec<String>> {
        let mut there = Vec::new();
        for key in [self.name, &self.list, &self.timeouts] {
            if self.redis.admin().exists(key).await? {
                there.push(key.to_owned());
            }
        }
        Ok(there)
    }

    /// As somebody does by hand.
    pub(crate) async fn delete_lock(&self) -> Outcome {
        Ok(self.redis.admin().del(self.name).await?)
    }
}

/// Begins to wait, in a task of its own.
pub(crate) fn queue_as<F, T>(waiting: F) -> JoinHandle<Result<T, Error>>
where
    F: IntoFuture<Output = Result<T, Error>>,
    F::IntoFuture: Send + 'static,
    T: Send + 'static,
{
    tokio::spawn(waiting.into_future())
}

/// One that waits, or holds.
pub(crate) enum Waiter<'a> {
    Java { lock: JavaLock<'a>, waiting: Option<Reply<()>> },
    Rust { waiting: Option<JoinHandle<Result<Guard, Error>>>, guard: Option<Guard> },
}

impl<'a> Waiter<'a> {
    pub(crate) fn rust(lock: &OwnedLock) -> Self {
        Self::Rust { waiting: Some(queue_as(lock.lock())), guard: None }
    }

    /// Sleeps when this returns: old clients lose a message that comes just before.
    pub(crate) async fn java(redis: &SharedRedis, lock: JavaLock<'a>) -> Outcome<Self> {
        let scripts = redis.scripts_run().await?;
        let waiting = Some(lock.lock());
        lock.sleeps(redis, scripts).await?;
        Ok(Self::Java { lock, waiting })
    }

    pub(crate) async fn granted(&mut self) -> Outcome {
        match self {
            Self::Java { waiting, .. } => {
                if let Some(waiting) = waiting.take() {
                    waiting.await?;
                }
            }
            Self::Rust { waiting, guard } => {
                if let Some(waiting) = waiting.take() {
                    *guard = Some(waiting.await??);
                }
            }
        }
        Ok(())
    }

    pub(crate) fn is_granted(&mut self) -> bool {
        match self {
            Self::Java { waiting, .. } => waiting.as_mut().is_none_or(Reply::is_answered),
            Self::Rust { waiting, .. } => waiting.as_ref().is_none_or(JoinHandle::is_finished),
        }
    }

    pub(crate) async fn release(self) -> Outcome {
        match self {
            Self::Java { lock, .. } => lock.unlock().await?,
            Self::Rust { guard, .. } => guard.ok_or_else(|| Failure::new("not granted"))?.release().await?,
        }
        Ok(())
    }

    /// Drops the future of a Rust waiter.
    pub(crate) fn cancel(self) {
        if let Self::Rust { waiting: Some(waiting), .. } = self {
            waiting.abort();
        }
    }

    /// Is granted within a second, and lets go.
    pub(crate) async fn comes_next(mut self, what: &str) -> Outcome {
        within(Duration::from_secs(1), what, self.granted()).await??;
        self.release().await
    }
}
