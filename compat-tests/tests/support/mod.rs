//! The two parties and the Redis between them.
#![allow(dead_code, reason = "every test binary uses a part of it")]

pub(crate) mod holder;
pub(crate) mod latencies;
pub(crate) mod ways;

use std::future::IntoFuture;
use std::time::Duration;

use compat_tests::{Failure, LockKind, Outcome, Peer, SharedRedis, eventually, now_us};
use redlatch::{Client, Guard, OwnedLock};
use tokio::sync::{Mutex, MutexGuard};
use tokio::task::JoinHandle;

/// Tests that measure short times run one after another: a JVM that starts beside them would show.
static TURN: Mutex<()> = Mutex::const_new(());

/// A Redis, a Java client and a Rust client on it. Fields go in this order when dropped.
pub(crate) struct Pair {
    pub(crate) client: Client,
    pub(crate) peer: Peer,
    pub(crate) redis: SharedRedis,
    /// Held until the rest is gone.
    turn: Option<MutexGuard<'static, ()>>,
}

impl Pair {
    pub(crate) async fn start() -> Outcome<Self> {
        let turn = TURN.lock().await;
        let mut pair = Self::with_watchdog(Duration::from_secs(30)).await?;
        pair.turn = Some(turn);
        Ok(pair)
    }

    /// Both renew with this watchdog timeout. Other tests may run beside it.
    pub(crate) async fn with_watchdog(timeout: Duration) -> Outcome<Self> {
        let redis = SharedRedis::start().await?;
        let peer = Peer::options().watchdog(timeout).start(&redis).await?;
        let client = Client::builder().url(redis.url()).watchdog_timeout(timeout).connect().await?;
        Ok(Self { client, peer, redis, turn: None })
    }

    /// One more Rust client, another process as far as locks are concerned.
    pub(crate) async fn another_client(&self) -> Outcome<Client> {
        Ok(Client::connect(&self.redis.url()).await?)
    }
}

/// Waits in a task of its own; the time is that of the grant.
pub(crate) fn wait_for_a_minute(client: &Client, name: &str) -> JoinHandle<Outcome<(Guard, u64)>> {
    wait_as(&client.lock(name).owned_by(&client.owner()))
}

/// The same with a lock of any kind, as this owner.
pub(crate) fn wait_as(lock: &OwnedLock) -> JoinHandle<Outcome<(Guard, u64)>> {
    let waiting = lock.try_lock().wait(Duration::from_secs(60)).into_future();
    tokio::spawn(async move {
        let guard = waiting.await?.ok_or_else(|| Failure::new("the whole wait passed"))?;
        Ok((guard, now_us()))
    })
}

/// Returns when the client has a waiter that listens and has no question open.
pub(crate) async fn rust_sleeps(pair: &Pair, name: &str) -> Outcome {
    rust_sleeps_on(pair, &LockKind::Lock.channel(name, ""), 1).await
}

/// Returns when the client has so many waiters, listens on this channel, and has no question open.
pub(crate) async fn rust_sleeps_on(pair: &Pair, channel: &str, waiters: usize) -> Outcome {
    pair.redis.listeners(channel, 1).await?;
    eventually(Duration::from_secs(10), "waiters with nothing in flight", async || {
        let stats = pair.client.stats();
        Ok(stats.waiters == waiters && stats.in_flight == 0)
    })
    .await
}
