//! `RLock` through the public API.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test that cannot go on ends here")]

mod support;

use redlatch::{Error, RemainingTtl};
use support::{eventually, forgotten, ms, redis::Redis, secs, within};

#[tokio::test]
async fn a_free_lock_is_taken_and_released_with_one_command_each() {
    let redis = Redis::start();
    let (client, probe) = (redis.client().await, redis.probe().await);
    let lock = client.lock("orders");
    lock.lock().await.unwrap().release().await.unwrap();
    probe.run(&["CONFIG", "RESETSTAT"]).await;
    for _ in 0..100 {
        let guard = lock.lock().await.unwrap();
        assert!(guard.is_valid());
        guard.release().await.unwrap();
    }
    let all: String = probe.ask(&["INFO", "commandstats"]).await;
    assert_eq!(probe.calls(&["evalsha"]).await, 200, "{all}");
    assert_eq!(probe.calls(&["eval", "script|load", "subscribe", "get", "del"]).await, 0, "{all}");
    assert!(probe.keys().await.is_empty());
    forgotten(&client).await;
}

#[tokio::test]
async fn two_clients_exclude_each_other_and_the_waiter_is_woken_by_the_release() {
    let redis = Redis::start();
    let (a, b) = (redis.client().await, redis.client().await);
    let guard = a.lock("orders").lock().await.unwrap();
    assert!(b.lock("orders").try_lock().await.unwrap().is_none());
    let waiter = tokio::spawn({
        let lock = b.lock("orders");
        async move { lock.try_lock().wait(secs(60)).await }
    });
    let probe = redis.probe().await;
    eventually(secs(5), "subscription", || async { !probe.channels().await.is_empty() }).await;
    eventually(secs(5), "asleep", || async { b.stats().in_flight == 0 }).await;
    guard.release().await.unwrap();
    let granted = within(secs(1), "wake-up", waiter).await.unwrap().unwrap().expect("granted");
    granted.release().await.unwrap();
    forgotten(&a).await;
    forgotten(&b).await;
    eventually(secs(1), "unsubscribed", || async { probe.channels().await.is_empty() }).await;
    assert!(probe.keys().await.is_empty());
}

#[tokio::test]
async fn waiters_of_one_process_take_turns_with_one_command_a_hand_over() {
    let redis = Redis::start();
    let (client, probe) = (redis.client().await, redis.probe().await);
    let lock = client.lock("orders");
    let guard = lock.lock().await.unwrap();
    let tasks: Vec<_> = (0..16)
        .map(|_| {
            let lock = lock.clone();
            tokio::spawn(async move {
                for _ in 0..20 {
                    lock.lock().await.unwrap().release().await.unwrap();
                }
            })
        })
        .collect();
    eventually(secs(5), "all wait", || async { client.stats().waiters == 16 && client.stats().in_flight == 0 }).await;
    probe.run(&["CONFIG", "RESETSTAT"]).await;
    guard.release().await.unwrap();
    for task in tasks {
        within(secs(20), "turns", task).await.unwrap();
    }
    let commands = probe.calls(&["evalsha", "eval", "subscribe", "unsubscribe"]).await;
    assert!((321..360).contains(&commands), "{commands} commands for 320 hand-overs");
    forgotten(&client).await;
}

#[tokio::test]
async fn queries_tell_what_redis_has() {
    let redis = Redis::start();
    let client = redis.client().await;
    let lock = client.lock("q");
    let owner = client.owner_with_thread_id(7).unwrap();
    assert!(!lock.is_locked().await.unwrap());
    assert_eq!(lock.remaining_ttl().await.unwrap(), RemainingTtl::NoKey);
    let first = lock.owned_by(&owner).lock().lease(secs(9)).await.unwrap();
    let second = lock.owned_by(&owner).lock().lease(secs(5)).await.unwrap();
    assert_eq!(lock.hold_count(&owner).await.unwrap(), 2);
    assert!(lock.is_held_by(&owner).await.unwrap());
    let RemainingTtl::Left(left) = lock.remaining_ttl().await.unwrap() else { panic!("expires") };
    assert!(left > secs(8), "never below what the first hold was promised: {left:?}");
    first.release().await.unwrap();
    assert_eq!(lock.hold_count(&owner).await.unwrap(), 1);
    let RemainingTtl::Left(left) = lock.remaining_ttl().await.unwrap() else { panic!("expires") };
    assert!(left <= secs(5), "the hold that is left ends at its own end: {left:?}");
    second.release().await.unwrap();
    assert_eq!(lock.hold_count(&owner).await.unwrap(), 0);
    assert!(matches!(lock.owned_by(&owner).release().await, Err(Error::NotOwner { .. })));
    let probe = redis.probe().await;
    probe.run(&["HSET", "q", "x:1", "1"]).await;
    assert_eq!(lock.remaining_ttl().await.unwrap(), RemainingTtl::NoExpiry);
    assert!(lock.try_lock().wait(ms(50)).await.unwrap().is_none());
    assert!(lock.force_release().await.unwrap());
    assert!(!lock.force_release().await.unwrap());
}

#[tokio::test]
async fn holds_that_went_with_the_old_key_do_not_prolong_a_new_one() {
    let redis = Redis::start();
    let (client, other) = (redis.builder().watchdog_timeout(secs(20)).connect().await.unwrap(), redis.client().await);
    let owner = client.owner();
    let lock = client.lock("f").owned_by(&owner);
    let old = lock.lock().await.unwrap();
    assert!(other.lock("f").force_release().await.unwrap());
    let new = lock.try_lock().lease(secs(2)).await.unwrap().expect("free");
    let RemainingTtl::Left(left) = client.lock("f").remaining_ttl().await.unwrap() else { panic!("expires") };
    assert!(left <= secs(2), "{left:?}");
    assert!(!old.is_valid() && new.is_valid());
    assert_eq!(client.lock("f").hold_count(&owner).await.unwrap(), 1);
    assert!(matches!(old.release().await, Err(Error::LeaseLost(_))));
    new.release().await.unwrap();
    assert!(!client.lock("f").is_locked().await.unwrap());
}

/// A guard is never trusted for longer than its key has to live.
async fn trusted_no_longer_than_the_key_lives(guard: &redlatch::Guard, lock: &redlatch::RLock) {
    let trusted = guard.valid_for();
    let RemainingTtl::Left(left) = lock.remaining_ttl().await.unwrap() else { panic!("expires") };
    assert!(trusted <= left + ms(5), "trusted for {trusted:?}, the key lives for {left:?}");
    assert!(left > secs(3000), "{left:?}");
}

#[tokio::test]
async fn an_extension_is_not_cut_short_by_a_release_that_was_decided_before_it() {
    let redis = Redis::start();
    let client = redis.client().await;
    let lock = client.lock("x");
    let owned = lock.owned_by(&client.owner());
    for _ in 0..20 {
        let first = owned.lock().lease(secs(5)).await.unwrap();
        let second = owned.lock().lease(secs(5)).await.unwrap();
        drop(second);
        first.extend(secs(3600)).await.unwrap();
        eventually(secs(1), "released", || async { client.stats().in_flight == 0 }).await;
        trusted_no_longer_than_the_key_lives(&first, &lock).await;
        let (again, extended) =
            tokio::join!(std::future::IntoFuture::into_future(owned.lock().lease(secs(5))), first.extend(secs(3700)));
        extended.unwrap();
        trusted_no_longer_than_the_key_lives(&first, &lock).await;
        again.unwrap().release().await.unwrap();
        trusted_no_longer_than_the_key_lives(&first, &lock).await;
        first.release().await.unwrap();
    }
    forgotten(&client).await;
}

#[tokio::test]
async fn a_release_without_a_guard_waits_for_what_its_owner_is_being_granted() {
    let redis = Redis::start();
    let client = redis.client().await;
    let lock = client.lock("x");
    let owned = lock.owned_by(&client.owner());
    for _ in 0..50 {
        let (taken, released) = tokio::join!(std::future::IntoFuture::into_future(owned.lock()), owned.release());
        let guard = taken.unwrap();
        let count = lock.hold_count(&owned.owner()).await.unwrap();
        match released {
            Ok(()) => assert!(count == 0 && !guard.is_valid(), "released, and the guard knows"),
            Err(Error::NotOwner { .. }) => assert!(count == 1 && guard.is_valid(), "it came too early"),
            Err(other) => panic!("{other}"),
        }
        drop(guard);
        eventually(secs(1), "free", || async { client.stats().holds == 0 }).await;
    }
    forgotten(&client).await;
}

#[tokio::test]
async fn a_hold_of_an_earlier_run_with_the_same_ids_is_released_one_by_one() {
    let redis = Redis::start();
    let (client, probe) = (redis.client().await, redis.probe().await);
    let owner = client.owner_with_thread_id(3).unwrap();
    let owned = client.lock("x").owned_by(&owner);
    probe.run(&["HSET", "x", &owner.to_string(), "2"]).await;
    probe.run(&["PEXPIRE", "x", "60000"]).await;
    let (first, second, third) = tokio::join!(owned.release(), owned.release(), owned.release());
    first.unwrap();
    second.unwrap();
    assert!(matches!(third, Err(Error::NotOwner { .. })), "{third:?}");
    assert!(probe.keys().await.is_empty());
    forgotten(&client).await;
}
