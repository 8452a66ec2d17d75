//! ACL users with too few rights.

use std::future::IntoFuture;

use redlatch::{Action, Client, Error, Fault};

use crate::{
    fails,
    support::{
        Reports, eventually, forgotten,
        redis::{Probe, Redis},
        secs, within,
    },
};

const CHANNEL: &str = "redisson_lock__channel:{orders}";

struct Stage {
    redis: Redis,
    probe: Probe,
}

impl Stage {
    /// A server with a user `app` of these rights.
    async fn new(rights: &str) -> Self {
        let redis = Redis::start();
        let probe = redis.probe().await;
        let words: Vec<&str> = ["ACL", "SETUSER", "app", "on", ">pw"].into_iter().chain(rights.split(' ')).collect();
        probe.run(&words).await;
        Self { redis, probe }
    }

    async fn client(&self) -> Client {
        self.redis.builder().username("app").password("pw").connect().await.unwrap()
    }

    async fn nothing_is_left(&self, client: &Client) {
        forgotten(client).await;
        assert_eq!(self.probe.keys().await, Vec::<String>::new());
        eventually(secs(1), "no subscription", || async { self.probe.channels().await.is_empty() }).await;
    }
}

#[tokio::test]
async fn without_script_rights_every_take_is_refused_and_nothing_is_left() {
    let stage = Stage::new("~* &* +@all -@scripting").await;
    let client = stage.client().await;
    let lock = client.lock("orders");
    for _ in 0..3 {
        fails(lock.lock().await, Action::Acquire, Fault::NoPermission, "orders");
        fails(lock.try_lock().wait(secs(60)).await, Action::Acquire, Fault::NoPermission, "orders");
        fails(lock.force_release().await, Action::ForceRelease, Fault::NoPermission, "orders");
    }
    assert!(!lock.is_locked().await.unwrap());
    let all: String = stage.probe.ask(&["INFO", "commandstats"]).await;
    let refused = all.lines().find(|line| line.starts_with("cmdstat_evalsha:")).expect("was asked");
    assert!(refused.contains("calls=0,") && refused.contains("rejected_calls=9,"), "one question each: {refused}");
    stage.nothing_is_left(&client).await;
}

#[tokio::test]
async fn without_the_right_to_load_scripts_the_error_names_the_lock() {
    let stage = Stage::new("~* &* +@all -script").await;
    let client = stage.client().await;
    fails(client.lock("orders").lock().await, Action::Acquire, Fault::NoPermission, "orders");
    stage.nothing_is_left(&client).await;
}

#[tokio::test]
async fn without_the_keys_pattern_every_operation_is_refused() {
    let stage = Stage::new("~other:* &* +@all").await;
    let client = stage.client().await;
    let (lock, owner) = (client.lock("orders"), client.owner());
    fails(lock.lock().await, Action::Acquire, Fault::NoPermission, "orders");
    fails(lock.try_lock().await, Action::Acquire, Fault::NoPermission, "orders");
    fails(lock.is_locked().await, Action::Query, Fault::NoPermission, "orders");
    fails(lock.hold_count(&owner).await, Action::Query, Fault::NoPermission, "orders");
    fails(lock.remaining_ttl().await, Action::Query, Fault::NoPermission, "orders");
    fails(lock.force_release().await, Action::ForceRelease, Fault::NoPermission, "orders");
    client.lock("other:orders").lock().await.unwrap().release().await.unwrap();
    stage.nothing_is_left(&client).await;
}

#[tokio::test]
async fn without_the_right_to_a_command_inside_the_script_a_take_is_refused() {
    for missing in ["-exists", "-hset", "-pexpire"] {
        let stage = Stage::new(&format!("~* &* +@all {missing}")).await;
        let client = stage.client().await;
        fails(client.lock("orders").lock().await, Action::Acquire, Fault::NoPermission, "orders");
    }
}

#[tokio::test]
async fn a_take_that_is_refused_half_way_leaves_nothing_half_taken() {
    let stage = Stage::new("~* &* +@all -pexpire").await;
    let client = stage.client().await;
    let error = client.lock("orders").lock().await.expect_err("it may not set the lease");
    assert!(matches!(&error, Error::Redis { doing: Action::Acquire, key, .. } if key == "orders"), "{error:?}");
    forgotten(&client).await;
    let ttl = stage.probe.ask::<i64>(&["PTTL", "orders"]).await;
    assert_eq!(ttl, -2, "a key without expiry locks everybody out for ever");
}

#[tokio::test]
async fn without_channel_rights_a_contended_wait_is_an_error_that_names_the_channel() {
    let stage = Stage::new("~* resetchannels +@all").await;
    let (client, holder) = (stage.client().await, stage.redis.client().await);
    let guard = holder.lock("orders").lock().await.unwrap();
    let lock = client.lock("orders");
    assert!(lock.try_lock().await.unwrap().is_none(), "one attempt needs no channel");
    for _ in 0..2 {
        let refused = within(secs(2), "refusal", lock.lock().into_future()).await;
        fails(refused, Action::Subscribe, Fault::NoPermission, CHANNEL);
        let refused = within(secs(2), "refusal", lock.try_lock().wait(secs(60)).into_future()).await;
        fails(refused, Action::Subscribe, Fault::NoPermission, CHANNEL);
    }
    forgotten(&client).await;
    assert!(guard.is_valid());
    guard.release().await.unwrap();
    stage.nothing_is_left(&client).await;
}

#[tokio::test]
async fn without_the_right_to_publish_a_release_frees_the_key_and_says_that_nobody_was_told() {
    for rights in ["~* resetchannels +@all", "~* &* +@all -publish"] {
        let stage = Stage::new(rights).await;
        let client = stage.client().await;
        let guard = client.lock("orders").lock().await.unwrap();
        fails(guard.release().await, Action::Publish, Fault::NoPermission, CHANNEL);
        stage.nothing_is_left(&client).await;
        drop(client.lock("orders").lock().await.unwrap());
        eventually(secs(2), "the dropped guard's key goes", || async { stage.probe.keys().await.is_empty() }).await;
        forgotten(&client).await;
        let owner = client.owner();
        let first = client.lock("orders").owned_by(&owner).lock().await.unwrap();
        let second = client.lock("orders").owned_by(&owner).lock().await.unwrap();
        second.release().await.unwrap();
        fails(client.lock("orders").force_release().await, Action::Publish, Fault::NoPermission, CHANNEL);
        assert!(!first.is_valid());
        assert!(matches!(first.release().await, Err(Error::LeaseLost(_))));
        stage.nothing_is_left(&client).await;
    }
}

#[tokio::test]
async fn a_dropped_guard_that_may_not_publish_is_reported() {
    let stage = Stage::new("~* resetchannels +@all").await;
    let reports = Reports::default();
    let builder = reports.of(stage.redis.builder().username("app").password("pw"));
    let client = builder.connect().await.unwrap();
    drop(client.lock("orders").lock().await.unwrap());
    stage.nothing_is_left(&client).await;
    let told = reports.all();
    assert_eq!(told.len(), 1, "{told:?}");
    fails(Err::<(), _>(told[0].clone()), Action::Publish, Fault::NoPermission, CHANNEL);
}

#[tokio::test]
async fn without_the_rights_to_client_info_and_pubsub_locks_work_all_the_same() {
    let stage = Stage::new("~* &* +@all -client -info -pubsub").await;
    let (a, b) = (stage.client().await, stage.client().await);
    let take = |client: &Client| {
        let lock = client.lock("orders");
        tokio::spawn(async move {
            let guard = lock.lock().await?;
            assert!(guard.is_valid());
            guard.release().await
        })
    };
    let guard = a.lock("orders").lock().await.unwrap();
    let (near, far) = (take(&a), take(&b));
    eventually(secs(5), "both wait", || async {
        let asleep = |c: &Client| c.stats().waiters == 1 && c.stats().in_flight == 0;
        asleep(&a) && asleep(&b) && stage.probe.ask::<Vec<String>>(&["PUBSUB", "CHANNELS"]).await == [CHANNEL]
    })
    .await;
    guard.release().await.unwrap();
    for (name, waiter) in [("near", near), ("far", far)] {
        within(secs(3), name, waiter).await.unwrap().unwrap();
    }
    stage.nothing_is_left(&a).await;
    stage.nothing_is_left(&b).await;
}
