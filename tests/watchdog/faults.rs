//! Renewal when things go wrong on the way to Redis, or in it.

use redlatch::{Action, Client, Error};
use tokio::time::Instant;

use crate::{
    lives,
    support::{Reports, eventually, forgotten, ms, proxy::Proxy, redis::Redis, secs, within},
};

#[tokio::test]
async fn one_renewal_that_gets_lost_is_reported_and_tried_again_in_time() {
    let redis = Redis::start();
    let proxy = Proxy::to(redis.port()).await;
    let reports = Reports::default();
    let builder = Client::builder().url(proxy.url()).watchdog_timeout(ms(1500)).response_timeout(ms(250));
    let client = reports.of(builder).connect().await.unwrap();
    let probe = redis.probe().await;
    let guard = client.lock("orders").lock().await.unwrap();
    proxy.hold_commands();
    eventually(secs(1), "a renewal is on its way", || async { proxy.held() > 0 }).await;
    // Its connection is given up and killed; it never arrives.
    lives(&guard, &probe, ms(2500)).await;
    assert!(reports.any(|e| matches!(e, Error::Redis { doing: Action::Renew, key, .. } if key == "orders")));
    assert_eq!(reports.all().len(), 1, "{:?}", reports.all());
    assert_eq!(guard.hold_count(), 1);
    guard.release().await.unwrap();
    proxy.let_go();
    forgotten(&client).await;
    assert_eq!(probe.keys().await, Vec::<String>::new());
}

#[tokio::test]
async fn a_lost_answer_to_a_renewal_costs_nothing() {
    let redis = Redis::start();
    let proxy = Proxy::to(redis.port()).await;
    let builder = Client::builder().url(proxy.url()).watchdog_timeout(ms(900)).response_timeout(ms(100));
    let client = builder.connect().await.unwrap();
    let probe = redis.probe().await;
    let guard = client.lock("orders").lock().await.unwrap();
    let connections = proxy.accepted();
    proxy.lose_replies();
    eventually(secs(1), "a new connection", || async { proxy.accepted() > connections }).await;
    lives(&guard, &probe, ms(1000)).await;
    guard.release().await.unwrap();
    forgotten(&client).await;
    assert_eq!(probe.keys().await, Vec::<String>::new());
}

#[tokio::test]
async fn scripts_flushed_between_lock_and_release_and_before_each_renewal_are_loaded_again() {
    let redis = Redis::start();
    let reports = Reports::default();
    let client = reports.of(redis.builder().watchdog_timeout(ms(300))).connect().await.unwrap();
    let probe = redis.probe().await;
    let guard = client.lock("orders").lock().await.unwrap();
    probe.run(&["SCRIPT", "FLUSH"]).await;
    guard.release().await.unwrap();
    assert!(!probe.exists("orders").await);

    let guard = client.lock("orders").lock().await.unwrap();
    let end = Instant::now() + ms(1000);
    while Instant::now() < end {
        probe.run(&["SCRIPT", "FLUSH"]).await;
        lives(&guard, &probe, ms(40)).await;
    }
    assert!(probe.calls(&["script|load"]).await > 5, "every renewal had to load it");
    probe.run(&["SCRIPT", "FLUSH"]).await;
    guard.extend(secs(1)).await.unwrap();
    probe.run(&["SCRIPT", "FLUSH"]).await;
    guard.release().await.unwrap();
    forgotten(&client).await;
    assert_eq!(probe.keys().await, Vec::<String>::new());
    assert!(reports.all().is_empty(), "{:?}", reports.all());
}

#[tokio::test]
async fn a_hold_does_not_survive_a_restart_of_redis_and_its_guard_says_so() {
    let redis = Redis::start();
    let client = redis.builder().watchdog_timeout(ms(900)).connect().await.unwrap();
    let guard = client.lock("orders").lock().await.unwrap();
    let redis = redis.kill_and_restart();
    let probe = redis.probe().await;
    within(ms(900), "lost by a renewal", guard.lost()).await;
    assert!(!probe.exists("orders").await, "renewal makes nothing anew");
    assert!(matches!(guard.release().await, Err(Error::LeaseLost(_))));
    let again = within(secs(2), "taken anew", async { client.lock("orders").lock().await.unwrap() }).await;
    lives(&again, &probe, ms(1000)).await;
    again.release().await.unwrap();
    forgotten(&client).await;
}

#[tokio::test]
async fn waiters_get_the_lock_after_a_restart_of_redis_and_the_old_guard_does_not_touch_it() {
    let redis = Redis::start();
    let holder = redis.builder().watchdog_timeout(ms(900)).connect().await.unwrap();
    let other = redis.builder().watchdog_timeout(secs(60)).connect().await.unwrap();
    let guard = holder.lock("orders").lock().await.unwrap();
    let wait = |client: &Client| {
        let lock = client.lock("orders");
        tokio::spawn(async move {
            let guard = lock.lock().await?;
            assert!(lock.is_held_by(&guard.owner()).await?);
            guard.release().await
        })
    };
    let (near, far) = (wait(&holder), wait(&other));
    let waits = |client: &Client| client.stats().waiters == 1 && client.stats().in_flight == 0;
    eventually(secs(5), "both wait", || async { waits(&holder) && waits(&other) }).await;
    let redis = redis.kill_and_restart();
    within(secs(5), "the other client's waiter", far).await.unwrap().unwrap();
    within(secs(5), "the holder's own waiter", near).await.unwrap().unwrap();
    within(ms(900), "lost by a renewal", guard.lost()).await;
    assert!(matches!(guard.release().await, Err(Error::LeaseLost(_))));
    forgotten(&holder).await;
    forgotten(&other).await;
    assert_eq!(redis.probe().await.keys().await, Vec::<String>::new());
}
