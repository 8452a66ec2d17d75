//! What the caller hands in.

use std::{future::IntoFuture, time::Duration};

use redlatch::{Client, Error, Misuse, RemainingTtl};

use crate::support::{eventually, forgotten, ms, redis::Redis, secs, within};

#[tokio::test]
async fn the_empty_name_is_refused_by_every_operation_without_asking_redis() {
    let redis = Redis::start();
    let (client, probe) = (redis.client().await, redis.probe().await);
    let (lock, owner) = (client.lock(""), client.owner());
    let owned = lock.owned_by(&owner);
    probe.run(&["CONFIG", "RESETSTAT"]).await;
    let errors = [
        lock.lock().await.err(),
        lock.try_lock().await.err(),
        lock.try_lock().wait(secs(1)).await.err(),
        owned.lock().await.err(),
        owned.try_lock().await.err(),
        owned.release().await.err(),
        lock.is_locked().await.err(),
        lock.is_held_by(&owner).await.err(),
        lock.hold_count(&owner).await.err(),
        lock.remaining_ttl().await.err(),
        lock.force_release().await.err(),
    ];
    for (number, error) in errors.iter().enumerate() {
        assert!(matches!(error, Some(Error::Misuse(Misuse::EmptyName))), "operation {number}: {error:?}");
    }
    assert_eq!(probe.calls(&["evalsha", "exists", "hexists", "hget", "pttl"]).await, 0);
    forgotten(&client).await;
}

#[tokio::test]
async fn a_lease_of_zero_or_longer_than_redis_counts_is_refused_and_named() {
    let redis = Redis::start();
    let (client, probe) = (redis.client().await, redis.probe().await);
    let lock = client.lock("orders");
    let held = client.lock("held").lock().await.unwrap();
    let before = probe.calls(&["evalsha"]).await;
    let i64_max = Duration::from_millis(i64::MAX as u64);
    for lease in [Duration::ZERO, i64_max, i64_max + ms(1), Duration::MAX] {
        for error in [
            lock.lock().lease(lease).await.err(),
            lock.try_lock().lease(lease).await.err(),
            lock.try_lock().wait(secs(1)).lease(lease).await.err(),
            lock.owned_by(&client.owner()).lock().lease(lease).await.err(),
            held.extend(lease).await.err(),
        ] {
            let error = error.expect("out of range");
            assert!(matches!(error, Error::Misuse(Misuse::LeaseOutOfRange { lease: l }) if l == lease), "{error:?}");
            let text = error.to_string();
            assert!(text.contains(&format!("{lease:?}")) && text.contains("give at least 1 ms"), "{text}");
        }
    }
    assert_eq!(probe.calls(&["evalsha"]).await, before, "refused before Redis is asked");
    assert!(held.is_valid());
    held.release().await.unwrap();
    assert_eq!(probe.keys().await, Vec::<String>::new());
    forgotten(&client).await;
}

#[tokio::test]
async fn a_lease_below_a_millisecond_counts_as_one() {
    let redis = Redis::start();
    let (client, probe) = (redis.client().await, redis.probe().await);
    for _ in 0..20 {
        // A millisecond may be over before the answer is here: then it is no grant.
        match client.lock("orders").try_lock().lease(Duration::from_nanos(1)).await {
            Ok(guard) => {
                let guard = guard.expect("nobody holds it");
                assert!(guard.valid_for() <= ms(1));
            }
            Err(error) => assert!(matches!(error, Error::LeaseLost(_)), "{error:?}"),
        }
        within(secs(1), "gone", eventually(secs(1), "the key ends", || async { !probe.exists("orders").await })).await;
    }
    forgotten(&client).await;
}

#[tokio::test]
async fn the_longest_lease_is_kept_without_overflow() {
    let redis = Redis::start();
    let client = redis.client().await;
    let lock = client.lock("orders");
    let longest = Duration::from_millis(i64::MAX as u64 - (1 << 44));
    let guard = lock.lock().lease(longest).await.unwrap();
    assert!(guard.is_valid() && guard.valid_for() > secs(365 * 24 * 3600));
    let RemainingTtl::Left(left) = lock.remaining_ttl().await.unwrap() else { panic!("expires") };
    assert!(left > longest - secs(10), "{left:?}");
    guard.extend(longest).await.unwrap();
    assert!(guard.is_valid());
    assert!(client.lock("orders").try_lock().wait(ms(50)).await.unwrap().is_none());
    guard.release().await.unwrap();
    assert!(!lock.is_locked().await.unwrap());
    forgotten(&client).await;
}

#[tokio::test]
async fn an_endless_wait_takes_a_free_lock() {
    let redis = Redis::start();
    let client = redis.client().await;
    let waiting = client.lock("orders").try_lock().wait(Duration::MAX);
    let guard = within(secs(2), "grant", waiting.into_future()).await.unwrap().expect("nobody holds it");
    guard.release().await.unwrap();
    forgotten(&client).await;
}

#[tokio::test]
async fn an_endless_wait_on_a_held_lock_ends_with_its_release() {
    let redis = Redis::start();
    let (holder, client) = (redis.client().await, redis.client().await);
    let guard = holder.lock("orders").lock().await.unwrap();
    let waiting = tokio::spawn(client.lock("orders").try_lock().wait(Duration::MAX).into_future());
    let probe = redis.probe().await;
    eventually(secs(5), "subscribed", || async { !probe.channels().await.is_empty() }).await;
    eventually(secs(5), "asleep", || async { client.stats().in_flight == 0 }).await;
    assert!(!waiting.is_finished());
    guard.release().await.unwrap();
    let granted = within(secs(2), "grant", waiting).await.unwrap().unwrap().expect("the holder is gone");
    granted.release().await.unwrap();
    forgotten(&client).await;
    forgotten(&holder).await;
}

#[tokio::test]
async fn thread_ids_of_the_crate_and_settings_out_of_range_are_refused_by_name() {
    let redis = Redis::start();
    let client = redis.client().await;
    let error = client.owner_with_thread_id(1 << 61).expect_err("reserved");
    assert!(matches!(error, Error::Misuse(Misuse::ReservedThreadId { id }) if id == 1 << 61));
    assert!(error.to_string().contains("Client::owner()"), "{error}");
    for (option, builder) in [
        ("watchdog_timeout", Client::builder().watchdog_timeout(ms(29))),
        ("watchdog_timeout", Client::builder().watchdog_timeout(Duration::MAX)),
        ("response_timeout", Client::builder().response_timeout(Duration::ZERO)),
        ("connect_timeout", Client::builder().connect_timeout(Duration::MAX)),
        ("database", Client::builder().database(-1)),
    ] {
        let error = builder.url(redis.url()).connect().await.expect_err("out of range");
        assert!(matches!(error, Error::Misuse(Misuse::OptionOutOfRange { option: o, .. }) if o == option), "{error:?}");
        assert!(error.to_string().contains(option), "{error}");
    }
}
