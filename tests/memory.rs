//! Memory belongs to present holds and waiters, never to names that were used once. Alone in its file: the memory of the
//! whole process is measured.
#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test that cannot go on ends here")]

mod support;

use redlatch::Client;
use support::{forgotten, full, redis::Redis, secs, within};
use tokio::task::JoinSet;

const TASKS: u64 = 256;
/// The last nine tenths of the names may add this much to the process, as single pages of the allocator's. A pointer kept for
/// every name would be more.
const ALLOWED_KIB: u64 = 512;

#[tokio::test]
async fn names_that_were_locked_once_leave_nothing_behind() {
    let redis = Redis::start();
    let (client, probe) = (redis.client().await, redis.probe().await);
    let names = if full() { 1_000_000 } else { 100_000 };
    cycles(&client, 0, names / 10).await;
    let early = resident_kib();
    cycles(&client, names / 10, names).await;
    let late = resident_kib();
    assert!(late <= early + ALLOWED_KIB, "{early} KiB after a tenth of {names} names, {late} KiB after all");
    forgotten(&client).await;
    assert!(probe.channels().await.is_empty());
    assert!(probe.keys().await.is_empty());
}

/// Locks and releases the names from `first` to before `end`, by many tasks side by side.
async fn cycles(client: &Client, first: u64, end: u64) {
    let mut tasks = JoinSet::new();
    for task in 0..TASKS {
        let client = client.clone();
        tasks.spawn(async move {
            for name in (first + task..end).step_by(TASKS as usize) {
                let guard = client.lock(format!("name:{name}")).lock().await.unwrap();
                guard.release().await.unwrap();
            }
        });
    }
    within(secs(900), "all names", tasks.join_all()).await;
}

fn resident_kib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.trim().strip_suffix(" kB").unwrap().parse().unwrap()
}
