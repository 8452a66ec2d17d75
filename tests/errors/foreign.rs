//! A key that somebody else uses for something else.

use std::future::IntoFuture;

use redlatch::{Client, Error, OwnerId, RemainingTtl};

use crate::{
    is_foreign,
    support::{
        asleep, forgotten, ms,
        redis::{Probe, Redis},
        secs, within,
    },
};

/// Every way to take the lock is refused at once, with few questions.
async fn takes_are_refused(client: &Client, probe: &Probe, name: &str, owner: &OwnerId) {
    let lock = client.lock(name);
    let before = probe.everything().await;
    let asked = probe.calls(&["evalsha"]).await;
    is_foreign(within(secs(2), "lock", lock.lock().into_future()).await, name);
    is_foreign(lock.try_lock().await, name);
    is_foreign(within(secs(2), "wait", lock.try_lock().wait(secs(60)).into_future()).await, name);
    is_foreign(lock.owned_by(owner).try_lock().await, name);
    is_foreign(lock.force_release().await, name);
    let asked = probe.calls(&["evalsha"]).await - asked;
    // The very first ones may have to be loaded and repeated, and what failed may be undone to be sure.
    assert!((5..=12).contains(&asked), "{asked} commands for five operations");
    assert_eq!(probe.everything().await, before);
    forgotten(client).await;
}

#[tokio::test]
async fn a_key_of_another_type_is_refused_by_every_operation_and_left_alone() {
    let redis = Redis::start();
    let (client, probe) = (redis.client().await, redis.probe().await);
    let owner = client.owner_with_thread_id(7).unwrap();
    let writes: [&[&str]; 5] = [
        &["SET", "string", "42"],
        &["RPUSH", "list", "a", "b"],
        &["SADD", "set", "a", "b"],
        &["ZADD", "zset", "1", "a"],
        &["XADD", "stream", "*", "k", "v"],
    ];
    for write in writes {
        let name = write[1];
        probe.run(write).await;
        takes_are_refused(&client, &probe, name, &owner).await;
        let (lock, before) = (client.lock(name), probe.everything().await);
        is_foreign(lock.owned_by(&owner).release().await, name);
        is_foreign(lock.is_held_by(&owner).await, name);
        is_foreign(lock.hold_count(&owner).await, name);
        assert!(lock.is_locked().await.unwrap(), "as Redisson: a key is there");
        assert_eq!(lock.remaining_ttl().await.unwrap(), RemainingTtl::NoExpiry);
        assert_eq!(probe.everything().await, before);
    }
    forgotten(&client).await;
}

#[tokio::test]
async fn fields_of_other_kinds_are_refused_at_once_and_left_alone() {
    let redis = Redis::start();
    let (client, probe) = (redis.client().await, redis.probe().await);
    let owner = client.owner_with_thread_id(7).unwrap();
    let own = owner.to_string();
    let (own_write, group_expiry, group_count) =
        (format!("{own}:write"), format!("qwvAS12pR0CgRitaypEjUw:{own}:expire_time"), format!("h:{own}:lock_count"));
    let shapes: [&[&str]; 7] = [
        &["HSET", "read", "mode", "read", "x:1", "1"],
        &["HSET", "read-own", "mode", "read", &own, "1"],
        &["HSET", "write", "mode", "write", "x:1:write", "1"],
        &["HSET", "write-own", "mode", "write", &own_write, "1"],
        &["HSET", "mode-only", "mode", "read"],
        &["HSET", "several", "x:1", "1", "y:2", "1"],
        &["HSET", "group", "qwvAS12pR0CgRitaypEjUw", &own, &group_expiry, "9999999999999", &group_count, "1"],
    ];
    for shape in shapes {
        probe.run(shape).await;
        probe.run(&["PEXPIRE", shape[1], "60000"]).await;
        takes_are_refused(&client, &probe, shape[1], &owner).await;
    }
}

#[tokio::test]
async fn a_read_hold_of_the_same_owner_is_not_released_as_a_plain_lock() {
    let redis = Redis::start();
    let (client, probe) = (redis.client().await, redis.probe().await);
    let owner = client.owner_with_thread_id(7).unwrap();
    probe.run(&["HSET", "rw", "mode", "read", &owner.to_string(), "1"]).await;
    probe.run(&["PEXPIRE", "rw", "60000"]).await;
    let before = probe.everything().await;
    is_foreign(client.lock("rw").owned_by(&owner).release().await, "rw");
    assert_eq!(probe.everything().await, before);
}

#[tokio::test]
async fn a_count_that_is_no_number_is_refused_and_left_alone() {
    let redis = Redis::start();
    let (client, probe) = (redis.client().await, redis.probe().await);
    let owner = client.owner_with_thread_id(7).unwrap();
    let lock = client.lock("orders").owned_by(&owner);
    for value in ["abc", "", "1.5", "-3"] {
        probe.run(&["HSET", "orders", &owner.to_string(), value]).await;
        probe.run(&["PEXPIRE", "orders", "60000"]).await;
        let before = probe.everything().await;
        for taking in [true, false] {
            let outcome = if taking { lock.try_lock().await.map(drop) } else { lock.release().await };
            let error = outcome.expect_err("that is no count");
            // Less than one is no hold at all.
            let typed = match &error {
                Error::UnexpectedReply { key, .. } | Error::ForeignData { key, .. } => key == "orders",
                Error::NotOwner { key, .. } => key == "orders" && value == "-3",
                _ => false,
            };
            assert!(typed, "`{value}`: {error:?}");
            assert!(probe.everything().await == before, "`{value}` was changed, taking: {taking}");
        }
        forgotten(&client).await;
    }
}

#[tokio::test]
async fn a_single_unknown_owner_is_a_holder() {
    let redis = Redis::start();
    let (client, probe) = (redis.client().await, redis.probe().await);
    let lock = client.lock("orders");
    probe.run(&["HSET", "orders", "somebody", "1"]).await;
    assert!(lock.try_lock().await.unwrap().is_none());
    assert!(lock.try_lock().wait(ms(50)).await.unwrap().is_none());
    probe.run(&["PEXPIRE", "orders", "300"]).await;
    let waiting = lock.try_lock().wait(secs(60)).into_future();
    let guard = within(secs(3), "its end is waited for", waiting).await.unwrap().expect("it has ended");
    assert!(lock.is_held_by(&guard.owner()).await.unwrap(), "by a watchdog hold, which lives");
    guard.release().await.unwrap();
    forgotten(&client).await;
}

#[tokio::test]
async fn a_held_key_that_was_overwritten_is_left_alone_by_its_release() {
    let redis = Redis::start();
    let (client, probe) = (redis.client().await, redis.probe().await);
    let guard = client.lock("orders").lock().await.unwrap();
    probe.run(&["SET", "orders", "42"]).await;
    is_foreign(guard.release().await, "orders");
    assert_eq!(probe.ask::<String>(&["GET", "orders"]).await, "42");
    assert_eq!(probe.ask::<i64>(&["PTTL", "orders"]).await, -1);
    forgotten(&client).await;
}

#[tokio::test]
async fn a_field_that_joins_a_hold_survives_its_release() {
    let redis = Redis::start();
    let (client, probe) = (redis.client().await, redis.probe().await);
    let lock = client.lock("orders");
    let guard = lock.lock().await.unwrap();
    // A local waiter would make the release a hand-over, which it must not be now.
    let asked = probe.calls(&["evalsha"]).await;
    let waiting = tokio::spawn(lock.lock().into_future());
    asleep(&client, &probe, 1, asked).await;
    probe.run(&["HSET", "orders", "mode", "write", "x:1:write", "1"]).await;
    guard.release().await.unwrap();
    is_foreign(within(secs(2), "the waiter is told", waiting).await.unwrap(), "orders");
    let mut left: Vec<String> = probe.ask(&["HGETALL", "orders"]).await;
    left.sort();
    assert_eq!(left, ["1", "mode", "write", "x:1:write"]);
    forgotten(&client).await;
}
