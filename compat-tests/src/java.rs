use std::time::Duration;

use crate::peer::{FromAnswer, Peer, Reply};
use crate::server::{numsub, scripts_run};
use crate::{Outcome, SharedRedis, channel_of, eventually, redisson_version};

/// Which of Redisson's faces is used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Api {
    /// `lockAsync(.., threadId)` and the like.
    Async,
    /// `lock()` and the like, on a thread that has this id. Calls of one thread run one after another.
    Sync,
}

/// A Java `RLock`, as one thread of the peer uses it. Calls are sent at once, not when first polled.
#[derive(Clone, Debug)]
pub struct JavaLock<'a> {
    peer: &'a Peer,
    name: String,
    thread: i64,
    api: Api,
}

impl<'a> JavaLock<'a> {
    pub(crate) fn new(peer: &'a Peer, name: &str, thread: i64, api: Api) -> Self {
        Self { peer, name: name.into(), thread, api }
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

    /// Waits until a wait of this lock sleeps: it listens, and has asked once before and once after it did so.
    ///
    /// `scripts_before` is [`SharedRedis::scripts_run`] as it was before the wait began.
    pub async fn sleeps(&self, redis: &SharedRedis, scripts_before: u64) -> Outcome {
        let (admin, channel) = (redis.admin(), channel_of(&self.name));
        eventually(Duration::from_secs(10), &format!("a Java waiter on {channel}"), async || {
            let mut admin = admin.clone();
            Ok(numsub(&mut admin, &channel).await? > 0 && scripts_run(&mut admin).await? >= scripts_before + 2)
        })
        .await?;
        if loses_early_messages(&redisson_version()) {
            // The client works on the answer to its second question in the meantime.
            self.through(Api::Async).is_locked().await?;
        }
        Ok(())
    }

    fn call<T: FromAnswer>(&self, verb: &str, who: Who, times: &[Duration]) -> Reply<T> {
        match self.api {
            Api::Async => self.call_async(verb, who, times),
            Api::Sync => {
                let thread = self.thread.to_string();
                let times = milliseconds(times);
                let words = [&thread, verb, &self.name].into_iter().chain(times.iter().map(String::as_str));
                self.peer.call("sync", &words.collect::<Vec<_>>())
            }
        }
    }

    fn call_async<T: FromAnswer>(&self, verb: &str, who: Who, times: &[Duration]) -> Reply<T> {
        let thread = (who == Who::Thread).then(|| self.thread.to_string());
        let times = milliseconds(times);
        let words = [self.name.as_str()].into_iter().chain(thread.iter().chain(&times).map(String::as_str));
        self.peer.call(verb, &words.collect::<Vec<_>>())
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

/// Before 3.28.0 a message that comes right after the second question's answer wakes nobody: the asynchronous waiter is
/// not yet entered in the list of those to be woken. No client can make up for that; it sleeps until the TTL it was told.
fn loses_early_messages(version: &str) -> bool {
    let mut numbers = version.split('.').map(|number| number.parse().unwrap_or(0));
    let (major, minor): (u32, u32) = (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0));
    (major, minor) < (3, 28)
}

#[cfg(test)]
mod tests {
    use super::loses_early_messages;

    #[test]
    fn versions_are_compared_as_numbers() {
        assert!(loses_early_messages("3.17.7"));
        assert!(!loses_early_messages("3.28.0"));
        assert!(!loses_early_messages("4.7.0"));
    }
}
