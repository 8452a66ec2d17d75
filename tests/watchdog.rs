//! The watchdog: holds without a lease live as long as their guard, and not longer; holds with one are left alone.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test that cannot go on ends here")]

#[path = "watchdog/crowd.rs"]
mod crowd;
#[path = "watchdog/ends.rs"]
mod ends;
#[path = "watchdog/faults.rs"]
mod faults;
mod support;

use std::time::Duration;

use redlatch::{Guard, RemainingTtl};
use support::{
    Reports, eventually, forgotten, ms,
    redis::{Probe, Redis},
    secs,
};
use tokio::time::{Instant, sleep};

/// For this long the guard is valid and its key is there.
async fn lives(guard: &Guard, probe: &Probe, time: Duration) {
    let end = Instant::now() + time;
    while Instant::now() < end {
        let there = probe.exists(guard.name()).await;
        assert!(there && guard.is_valid(), "key there: {there}, {guard:?}, {:?} too early", end - Instant::now());
        sleep(ms(10)).await;
    }
}

#[tokio::test]
async fn a_hold_outlives_three_leases() {
    let redis = Redis::start();
    let reports = Reports::default();
    let client = reports.of(redis.builder().watchdog_timeout(ms(600))).connect().await.unwrap();
    let probe = redis.probe().await;
    let guard = client.lock("orders").lock().await.unwrap();
    let before = probe.calls(&["evalsha"]).await;
    lives(&guard, &probe, ms(2100)).await;
    // A renewal a period of 200 ms; the first came early.
    let renewals = probe.calls(&["evalsha"]).await - before;
    assert!((9..=12).contains(&renewals), "{renewals} renewals in ten and a half periods");
    guard.release().await.unwrap();
    forgotten(&client).await;
    assert_eq!(probe.keys().await, Vec::<String>::new());
    assert!(reports.all().is_empty(), "{:?}", reports.all());
}

#[tokio::test]
async fn a_fixed_lease_is_never_renewed() {
    let redis = Redis::start();
    let client = redis.builder().watchdog_timeout(ms(150)).connect().await.unwrap();
    let probe = redis.probe().await;
    client.lock("warm").lock().await.unwrap().release().await.unwrap();
    let before = probe.calls(&["evalsha"]).await;
    let taken = Instant::now();
    let guard = client.lock("orders").lock().lease(ms(700)).await.unwrap();
    assert_eq!((client.stats().renewals, client.stats().scheduled_renewals), (0, 0));
    eventually(secs(2), "its end", || async { !probe.exists("orders").await }).await;
    let took = taken.elapsed();
    assert!((ms(690)..ms(900)).contains(&took), "{took:?}");
    assert!(!guard.is_valid());
    assert_eq!(probe.calls(&["evalsha"]).await - before, 1, "the lock itself");
    drop(guard);
    forgotten(&client).await;
}

#[tokio::test]
async fn after_an_inner_release_the_outer_hold_is_renewed() {
    let redis = Redis::start();
    let client = redis.builder().watchdog_timeout(ms(300)).connect().await.unwrap();
    let (probe, owner) = (redis.probe().await, client.owner());
    let lock = client.lock("orders").owned_by(&owner);
    for inner_lease in [None, Some(ms(100)), Some(secs(5))] {
        let outer = lock.lock().await.unwrap();
        let inner = match inner_lease {
            None => lock.lock().await.unwrap(),
            Some(lease) => lock.lock().lease(lease).await.unwrap(),
        };
        assert_eq!(client.lock("orders").hold_count(&owner).await.unwrap(), 2);
        inner.release().await.unwrap();
        assert_eq!(client.lock("orders").hold_count(&owner).await.unwrap(), 1);
        lives(&outer, &probe, ms(800)).await;
        outer.release().await.unwrap();
        forgotten(&client).await;
        assert_eq!(probe.keys().await, Vec::<String>::new());
    }
}

#[tokio::test]
async fn after_the_outer_release_the_inner_hold_is_renewed_and_a_fixed_one_is_not() {
    let redis = Redis::start();
    let client = redis.builder().watchdog_timeout(ms(300)).connect().await.unwrap();
    let (probe, owner) = (redis.probe().await, client.owner());
    let lock = client.lock("orders").owned_by(&owner);
    let (outer, inner) = (lock.lock().lease(secs(5)).await.unwrap(), lock.lock().await.unwrap());
    outer.release().await.unwrap();
    lives(&inner, &probe, ms(800)).await;
    inner.release().await.unwrap();

    let (outer, inner) = (lock.lock().await.unwrap(), lock.lock().lease(ms(700)).await.unwrap());
    outer.release().await.unwrap();
    let released = Instant::now();
    eventually(secs(2), "its end", || async { !probe.exists("orders").await }).await;
    assert!(released.elapsed() < ms(800) && !inner.is_valid(), "{:?}", released.elapsed());
    drop(inner);
    forgotten(&client).await;
}

#[tokio::test]
async fn a_fixed_hold_beside_a_renewed_one_ends_alone_and_its_count_is_given_back() {
    let redis = Redis::start();
    let client = redis.builder().watchdog_timeout(ms(300)).connect().await.unwrap();
    let (probe, owner) = (redis.probe().await, client.owner());
    let lock = client.lock("orders").owned_by(&owner);
    let (outer, inner) = (lock.lock().await.unwrap(), lock.lock().lease(ms(400)).await.unwrap());
    support::within(secs(1), "its end", inner.lost()).await;
    assert!(outer.is_valid());
    let count = || async { probe.ask::<u64>(&["HGET", "orders", &owner.to_string()]).await };
    eventually(secs(1), "given back", || async { count().await == 1 }).await;
    lives(&outer, &probe, ms(700)).await;
    assert_eq!((count().await, outer.hold_count()), (1, 1));
    outer.release().await.unwrap();
    drop(inner);
    forgotten(&client).await;
    assert_eq!(probe.keys().await, Vec::<String>::new());
}

#[tokio::test]
async fn a_lease_does_not_leak_through_the_handle_into_the_next_hold() {
    let redis = Redis::start();
    let (client, probe) = (redis.client().await, redis.probe().await);
    let (shared, owner) = (client.lock("orders"), client.owner());
    let owned = shared.owned_by(&owner);
    for same_owner in [false, true] {
        let leased = if same_owner { owned.lock() } else { shared.lock() };
        let first = leased.lease(ms(200)).await.unwrap();
        eventually(secs(2), "it ends unreleased", || async { !probe.exists("orders").await }).await;
        let next = if same_owner { owned.lock().await } else { shared.lock().await }.unwrap();
        let RemainingTtl::Left(left) = shared.remaining_ttl().await.unwrap() else { panic!("expires") };
        assert!(left > secs(29) && next.valid_for() > secs(29), "{left:?}");
        drop(first);
        lives(&next, &probe, ms(300)).await;
        next.release().await.unwrap();
        forgotten(&client).await;
    }
}

#[tokio::test]
async fn a_guard_that_is_forgotten_is_renewed_as_long_as_the_client_lives() {
    let redis = Redis::start();
    let client = redis.builder().watchdog_timeout(ms(300)).connect().await.unwrap();
    let probe = redis.probe().await;
    std::mem::forget(client.lock("orders").lock().await.unwrap());
    let end = Instant::now() + ms(1000);
    while Instant::now() < end {
        assert!(probe.exists("orders").await);
        sleep(ms(10)).await;
    }
    client.shutdown().await.unwrap();
    eventually(ms(400), "its end", || async { !probe.exists("orders").await }).await;
    forgotten(&client).await;
}
