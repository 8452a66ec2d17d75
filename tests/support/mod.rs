//! What every test of the public API needs: a private Redis, a look into it, and waiting with a bound.
#![allow(dead_code, missing_docs, unreachable_pub, clippy::unwrap_used, clippy::expect_used, reason = "test support")]

pub mod proxy;
pub mod redis;

use std::{
    future::Future,
    sync::{Arc, Mutex},
    time::Duration,
};

use redis::Probe;
use redlatch::{Client, ClientBuilder, Error, Stats};
use tokio::time::{Instant, sleep, timeout};

/// Awaits `work`, which must end within `limit`.
pub async fn within<T>(limit: Duration, what: &str, work: impl Future<Output = T>) -> T {
    match timeout(limit, work).await {
        Ok(value) => value,
        Err(_) => panic!("{what}: not within {limit:?}"),
    }
}

/// Asks `holds` until it is true, which must be so within `limit`.
pub async fn eventually<F: Future<Output = bool>>(limit: Duration, what: &str, mut holds: impl FnMut() -> F) {
    let end = Instant::now() + limit;
    while !holds().await {
        assert!(Instant::now() < end, "{what}: not within {limit:?}");
        sleep(Duration::from_millis(2)).await;
    }
}

/// `waiters` of the client sleep, behind a hold of the client itself: the first of them has asked once since its channel is
/// heard, when Redis had answered `asked` questions before they came.
pub async fn asleep(client: &Client, probe: &Probe, waiters: usize, asked: u64) {
    let asleep = || async {
        let stats = client.stats();
        stats.waiters == waiters && probe.calls(&["evalsha"]).await > asked && client.stats().in_flight == 0
    };
    eventually(secs(5), "the waiters sleep", asleep).await;
}

/// Nothing of any lock is left in the client's memory.
pub async fn forgotten(client: &Client) {
    let end = Instant::now() + secs(5);
    let empty = Stats::default();
    while client.stats() != empty {
        assert!(Instant::now() < end, "left behind: {:?}", client.stats());
        sleep(Duration::from_millis(2)).await;
    }
}

/// What the client reports from the background.
#[derive(Clone, Default)]
pub struct Reports(Arc<Mutex<Vec<Error>>>);

impl Reports {
    pub fn of(&self, builder: ClientBuilder) -> ClientBuilder {
        let reports = self.0.clone();
        builder.on_background_error(move |error| reports.lock().unwrap().push(error.clone()))
    }

    pub fn all(&self) -> Vec<Error> {
        self.0.lock().unwrap().clone()
    }

    pub fn any(&self, which: impl Fn(&Error) -> bool) -> bool {
        self.0.lock().unwrap().iter().any(which)
    }
}

pub fn ms(n: u64) -> Duration {
    Duration::from_millis(n)
}

pub fn secs(n: u64) -> Duration {
    Duration::from_secs(n)
}

/// Whether the long forms of the tests are asked for.
pub fn full() -> bool {
    std::env::var_os("REDLATCH_FULL").is_some()
}
