use std::time::Duration;

use crate::peer::{FromAnswer, Peer, Reply};
use crate::server::{numsub, scripts_run};
use crate::{LockKind, Outcome, SharedRedis, eventually};

/// Which of Redisson's faces is used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Api {
    /// `lockAsync(.., threadId)` and the like.
    Async,
    /// `lock()` and the like, on a thread that has this id. Calls of one thread run one after another.
    Sync,
}

/// A Java lock, as one thread of the peer uses it. Calls are sent at once, not when first polled.
#[derive(Clone, Debug)]
pub struct JavaLock<'a> {
    peer: &'a Peer,
    kind: LockKind,
    name: String,
    thread: i64,
    api: Api,
}

impl<'a> JavaLock<'a> {
    pub(crate) fn new(peer: &'a Peer, kind: LockKind, name: &str, thread: i64) -> Self {
        Self { peer, kind, name: name.into(), thread, api: Api::Async }
    }

    /// The same lock and thread through this API.
    #[must_use]
    pub fn through(&self, api: Api) -> Self {
        Self { api, ..self.clone() }
    }

    /// The owner on the wire: `<client id>:<thread id>`.
    pub fn owner(&self) -> String {
        format!("{}:{}", self.peer.client(), self.thread)
    }

    /// Waits without a limit; the watchdog renews.
    pub fn lock(&self) -> Reply<()> {
        self.call("lock", Who::Thread, &[])
    }

    /// Waits without a limit; a fixed lease.
    pub fn lock_for(&self, lease: Duration) -> Reply<()> {
        self.call("lock", Who::Thread, &[lease])
    }

    /// Waits without a limit, through the synchronous API, and can be interrupted by [`Peer::cancel`].
    pub fn lock_interruptibly(&self) -> Reply<()> {
        self.through(Api::Sync).call("lockInterruptibly", Who::Thread, &[])
    }

    /// One attempt; the watchdog renews.
    pub fn try_lock(&self) -> Reply<bool> {
        self.call("tryLock", Who::Thread, &[])
    }

    /// A bounded wait; the watchdog renews.
    pub fn try_lock_within(&self, wait: Duration) -> Reply<bool> {
        self.call("tryLock", Who::Thread, &[wait])
    }

    /// A bounded wait; a fixed lease.
    pub fn try_lock_within_for(&self, wait: Duration, lease: Duration) -> Reply<bool> {
        self.call("tryLock", Who::Thread, &[wait, lease])
    }

    /// Drops one count.
    pub fn unlock(&self) -> Reply<()> {
        self.call("unlock", Who::Thread, &[])
    }

    /// Whether there was something to force.
    pub fn force_unlock(&self) -> Reply<bool> {
        self.call("forceUnlock", Who::Anybody, &[])
    }

    /// Whether anybody holds it.
    pub fn is_locked(&self) -> Reply<bool> {
        self.call("isLocked", Who::Anybody, &[])
    }

    /// Whether this thread of the peer holds it.
    pub fn is_held(&self) -> Reply<bool> {
        self.call_async("isHeldByThread", Who::Thread, &[])
    }

    /// How often this thread of the peer holds it.
    pub fn hold_count(&self) -> Reply<i64> {
        self.call("holdCount", Who::Thread, &[])
    }

    /// Milliseconds; -2 no key, -1 no expiry.
    pub fn ttl(&self) -> Reply<i64> {
        self.call("ttl", Who::Anybody, &[])
    }

    /// Waits without a limit; the fencing token of the grant.
    pub fn lock_and_get_token(&self) -> Reply<i64> {
        self.call("lockAndGetToken", Who::Thread, &[])
    }

    /// A bounded wait; the fencing token of the grant, if there was one. Redisson waits for ever when asked without a wait.
    pub fn try_lock_and_get_token_within(&self, wait: Duration) -> Reply<Option<i64>> {
        self.call("tryLockAndGetToken", Who::Thread, &[wait])
    }

    /// The fencing token drawn last, by anybody.
    pub fn token(&self) -> Reply<Option<i64>> {
        self.call("getToken", Who::Anybody, &[])
    }

    /// The channel on which this thread hears of a release.
    pub fn channel(&self) -> String {
        self.kind.channel(&self.name, &self.owner())
    }

    /// Waits until a wait of this lock sleeps: it listens, and has asked once before and once after it did so.
    ///
    /// `scripts_before` is [`SharedRedis::scripts_run`] as it was before the wait began.
    pub async fn sleeps(&self, redis: &SharedRedis, scripts_before: u64) -> Outcome {
        let (admin, channel) = (redis.admin(), self.channel());
        eventually(Duration::from_secs(10), &format!("a Java waiter on {channel}"), async || {
            let mut admin = admin.clone();
            Ok(numsub(&mut admin, &channel).await? > 0 && scripts_run(&mut admin).await? >= scripts_before + 2)
        })
        .await?;
        match self.api {
            Api::Sync => {
                eventually(Duration::from_secs(10), "a Java thread that sleeps", async || {
                    Ok(self.peer.call("asleep", &[&self.thread.to_string()]).await?)
                })
                .await
            }
            // It may still work on the answer to its second question, and nobody can see that. A message `1` wakes only
            // those who are done, and before 3.28.0 so does a `0`; the others sleep until the TTL they were told.
            Api::Async => {
                self.is_locked().await?;
                Ok(())
            }
        }
    }

    fn call<T: FromAnswer>(&self, verb: &str, who: Who, times: &[Duration]) -> Reply<T> {
        match self.api {
            Api::Async => self.call_async(verb, who, times),
            Api::Sync => {
                let (thread, verb) = (self.thread.to_string(), self.of_kind(verb));
                let times = milliseconds(times);
                let words = [&thread, &verb, &self.name].into_iter().chain(&times).map(String::as_str);
                self.peer.call("sync", &words.collect::<Vec<_>>())
            }
        }
    }

    fn call_async<T: FromAnswer>(&self, verb: &str, who: Who, times: &[Duration]) -> Reply<T> {
        let thread = (who == Who::Thread).then(|| self.thread.to_string());
        let times = milliseconds(times);
        let words = [self.name.as_str()].into_iter().chain(thread.iter().chain(&times).map(String::as_str));
        self.peer.call(&self.of_kind(verb), &words.collect::<Vec<_>>())
    }

    fn of_kind(&self, verb: &str) -> String {
        format!("{verb}@{}", self.kind)
    }
}

/// Whether a call is made in the name of a thread.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Who {
    Anybody,
    Thread,
}

fn milliseconds(times: &[Duration]) -> Vec<String> {
    times.iter().map(|time| time.as_millis().to_string()).collect()
}
