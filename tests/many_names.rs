//! Thousands of names wanted at once: as many subscriptions as names are waited for, two connections, and nothing left.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test that cannot go on ends here")]

mod support;

use redlatch::{Client, Guard};
use support::{
    Reports, eventually, forgotten, ms,
    redis::{Probe, Redis},
    secs, within,
};
use tokio::task::JoinSet;

#[tokio::test]
async fn names_that_two_clients_wanted_are_forgotten_by_both_and_by_redis() {
    const NAMES: usize = 1_200;
    let redis = Redis::start();
    let (holder, waiter, probe) = (redis.client().await, redis.client().await, redis.probe().await);
    let held = take_all(&holder, NAMES).await;
    // Every second waiter gives up, the others are served.
    let mut waits = JoinSet::new();
    for name in names(NAMES) {
        let patient = waits.len() % 2 == 0;
        let wait = if patient { secs(60) } else { ms(300) };
        let asked = waiter.lock(name).try_lock().wait(wait);
        waits.spawn(async move { (patient, asked.await.unwrap()) });
    }
    eventually(secs(10), "subscribed", || async { probe.channels().await.len() >= NAMES / 2 }).await;
    eventually(secs(10), "the impatient are gone", || async { waiter.stats().waiters == NAMES / 2 }).await;
    drop(held);
    let outcomes = within(secs(20), "all waits", waits.join_all()).await;
    for (patient, guard) in outcomes {
        assert_eq!(patient, guard.is_some());
    }
    for client in [&holder, &waiter] {
        forgotten(client).await;
    }
    eventually(secs(5), "unsubscribed", || async { probe.channels().await.is_empty() }).await;
    assert!(probe.keys().await.is_empty());
}

#[tokio::test]
async fn five_thousand_names_wanted_at_once_share_two_connections() {
    const NAMES: usize = 5_000;
    let redis = Redis::start();
    let (reports, probe) = (Reports::default(), redis.probe().await);
    let client = reports.of(redis.builder()).connect().await.unwrap();
    let held = take_all(&client, NAMES).await;
    let mut waits = JoinSet::new();
    for name in names(NAMES) {
        let asked = client.lock(name).lock();
        waits.spawn(async move { asked.await.unwrap().release().await.unwrap() });
    }
    eventually(secs(20), "subscribed", || async { probe.channels().await.len() == NAMES }).await;
    eventually(secs(20), "all sleep", || async { client.stats().waiters == NAMES && client.stats().in_flight == 0 })
        .await;
    assert_eq!(client.stats().subscriptions, NAMES);
    assert_eq!(connections_besides(&probe).await, 2, "one for commands, one for wake-ups");
    drop(held);
    within(secs(30), "all are served", waits.join_all()).await;
    assert_eq!(connections_besides(&probe).await, 2);
    assert!(reports.all().is_empty(), "{:?}", reports.all());
    forgotten(&client).await;
    eventually(secs(5), "unsubscribed", || async { probe.channels().await.is_empty() }).await;
    assert!(probe.keys().await.is_empty());
}

fn names(number: usize) -> impl Iterator<Item = String> {
    (0..number).map(|n| format!("name:{n}"))
}

async fn take_all(client: &Client, number: usize) -> Vec<Guard> {
    let mut tasks = JoinSet::new();
    for name in names(number) {
        let lock = client.lock(name);
        tasks.spawn(async move { lock.lock().await.unwrap() });
    }
    within(secs(20), "all taken", tasks.join_all()).await
}

/// Connections of the server other than the one that asks.
async fn connections_besides(probe: &Probe) -> usize {
    let (own, all): (u64, String) = (probe.ask(&["CLIENT", "ID"]).await, probe.ask(&["CLIENT", "LIST"]).await);
    let own = format!("id={own} ");
    all.lines().filter(|line| !line.starts_with(&own)).count()
}
