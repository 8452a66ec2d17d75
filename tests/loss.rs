//! A hold that is not one any more is known to be lost, in time, for good; and nothing brings it back.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test that cannot go on ends here")]

#[path = "loss/late.rs"]
mod late;
#[path = "loss/stopped.rs"]
mod stopped;
mod support;
#[path = "loss/taken.rs"]
mod taken;

use std::{
    future::Future,
    pin::pin,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use redlatch::{Client, Error, Guard};
use support::{
    eventually, forgotten, ms,
    proxy::Proxy,
    redis::{Probe, Redis},
    secs, within,
};
use tokio::{
    task::yield_now,
    time::{Instant, sleep, sleep_until},
};

/// How a hold is kept.
#[derive(Clone, Copy, Debug)]
enum Kept {
    Fixed(Duration),
    Watched,
}

async fn take(client: &Client, name: &str, kept: Kept) -> Guard {
    let lock = client.lock(name);
    match kept {
        Kept::Watched => lock.lock().await.unwrap(),
        Kept::Fixed(lease) => lock.lock().lease(lease).await.unwrap(),
    }
}

/// Runs until `gone` resolves; at that instant the hold must have been given up: by its own state, and for whoever waits.
async fn lost_no_later_than(guard: &Guard, gone: impl Future<Output = ()>) {
    let told = AtomicBool::new(false);
    let waiting = async {
        guard.lost().await;
        told.store(true, Ordering::SeqCst);
    };
    let looking = async {
        gone.await;
        let trusted = guard.is_valid();
        // One turn of the runtime: what is due by now has run then.
        yield_now().await;
        assert!(!trusted, "trusted beyond its end");
        assert!(told.load(Ordering::SeqCst), "whoever waits for the loss was not told in time");
    };
    within(secs(5), "the end", async { tokio::join!(waiting, looking) }).await;
    assert!(!guard.is_valid() && guard.valid_for().is_zero());
}

/// The key ends, seen from a connection of the test's own.
async fn ends(probe: &Probe, name: &str) {
    while probe.exists(name).await {
        sleep(ms(1)).await;
    }
}

fn is_lost<T: std::fmt::Debug>(outcome: Result<T, Error>, name: &str) {
    match outcome {
        Err(Error::LeaseLost(lost)) => assert_eq!(lost.name, name),
        other => panic!("not lost: {other:?}"),
    }
}

#[tokio::test]
async fn a_cut_network_is_noticed_before_the_key_ends() {
    for kept in [Kept::Watched, Kept::Fixed(ms(900))] {
        // A client that still waits for its reply, and one that has given the connection up and cannot open another.
        for response_timeout in [secs(3), ms(100)] {
            let redis = Redis::start();
            let proxy = Proxy::to(redis.port()).await;
            let builder = Client::builder().url(proxy.url()).watchdog_timeout(ms(900)).connect_timeout(ms(100));
            let client = builder.response_timeout(response_timeout).connect().await.unwrap();
            let probe = redis.probe().await;
            let guard = take(&client, "orders", kept).await;
            proxy.fall_silent();
            lost_no_later_than(&guard, ends(&probe, "orders")).await;
            probe.run(&["HSET", "orders", "next:1", "1"]).await;
            probe.run(&["PEXPIRE", "orders", "60000"]).await;
            let before = probe.everything().await;
            proxy.let_go();
            is_lost(within(secs(2), "release", guard.release()).await, "orders");
            // The client is back, and everything it had to say has been said.
            eventually(secs(5), "back", || async { client.lock("orders").is_locked().await.is_ok() }).await;
            forgotten(&client).await;
            assert!(probe.everything().await == before, "{kept:?}: the next holder is left alone");
            assert!(probe.ask::<i64>(&["PTTL", "orders"]).await > 50_000);
        }
    }
}

#[tokio::test]
async fn after_a_cut_a_late_renewal_does_not_bring_the_key_back() {
    let redis = Redis::start();
    let proxy = Proxy::to(redis.port()).await;
    let client = Client::builder().url(proxy.url()).watchdog_timeout(ms(600)).connect().await.unwrap();
    let probe = redis.probe().await;
    let guard = take(&client, "orders", Kept::Watched).await;
    // The renewal is on its way when the hold ends.
    proxy.fall_silent();
    eventually(secs(1), "a renewal is sent", || async { proxy.held() > 0 }).await;
    lost_no_later_than(&guard, ends(&probe, "orders")).await;
    let renewals = probe.calls(&["evalsha"]).await;
    proxy.let_go();
    eventually(secs(2), "it arrives", || async { probe.calls(&["evalsha"]).await > renewals }).await;
    assert!(!guard.is_valid() && !probe.exists("orders").await);
    drop(guard);
    forgotten(&client).await;
    assert_eq!(probe.keys().await, Vec::<String>::new());
}

#[tokio::test]
async fn while_redis_refuses_writes_for_a_while_the_loss_is_noticed_before_the_key_ends() {
    for kept in [Kept::Watched, Kept::Fixed(ms(900))] {
        let redis = Redis::start();
        let client = redis.builder().watchdog_timeout(ms(900)).connect().await.unwrap();
        let probe = redis.probe().await;
        let guard = take(&client, "orders", kept).await;
        // Reading goes on meanwhile, so the end of the key can be seen.
        probe.run(&["CLIENT", "PAUSE", "1500", "WRITE"]).await;
        lost_no_later_than(&guard, ends(&probe, "orders")).await;
        is_lost(within(secs(2), "release", guard.release()).await, "orders");
        probe.run(&["CLIENT", "UNPAUSE"]).await;
        forgotten(&client).await;
        assert_eq!(probe.keys().await, Vec::<String>::new());
    }
}

#[tokio::test]
async fn while_redis_is_paused_for_all_the_loss_is_noticed_before_the_key_ends() {
    for kept in [Kept::Watched, Kept::Fixed(ms(900))] {
        let redis = Redis::start();
        let client = redis.builder().watchdog_timeout(ms(900)).connect().await.unwrap();
        let probe = redis.probe().await;
        let guard = take(&client, "orders", kept).await;
        // Nobody can look now: the end is counted from what was left when the pause began.
        let left = probe.pttl_and_pause("orders", 1600).await;
        lost_no_later_than(&guard, sleep_until(Instant::now() + left)).await;
        is_lost(guard.release().await, "orders");
        // Answered when the pause is over.
        assert_eq!(within(secs(3), "the end of the pause", probe.keys()).await, Vec::<String>::new());
        forgotten(&client).await;
        assert_eq!(probe.keys().await, Vec::<String>::new());
    }
}

#[tokio::test]
async fn a_deleted_hold_under_the_watchdog_is_lost_by_the_next_renewal_which_does_not_make_it_anew() {
    let redis = Redis::start();
    let client = redis.builder().watchdog_timeout(ms(1500)).connect().await.unwrap();
    let probe = redis.probe().await;
    let guard = take(&client, "orders", Kept::Watched).await;
    probe.run(&["DEL", "orders"]).await;
    let deleted = Instant::now();
    within(secs(2), "lost", guard.lost()).await;
    let took = deleted.elapsed();
    assert!(took < ms(500 + 400), "a period is 500 ms, this took {took:?}");
    assert!(!guard.is_valid());
    let asked = probe.calls(&["evalsha"]).await;
    // Nothing renews it any more, and the key stays away, for a lease and more.
    let end = Instant::now() + ms(1600);
    while Instant::now() < end {
        assert!(!probe.exists("orders").await && !guard.is_valid());
        sleep(ms(10)).await;
    }
    is_lost(guard.release().await, "orders");
    assert_eq!(probe.calls(&["evalsha"]).await, asked, "what is lost is neither renewed nor released");
    forgotten(&client).await;
}

#[tokio::test]
async fn a_deleted_hold_with_a_fixed_lease_is_lost_by_the_end_of_its_lease() {
    let redis = Redis::start();
    let (client, probe) = (redis.client().await, redis.probe().await);
    let taken = Instant::now();
    let guard = take(&client, "orders", Kept::Fixed(ms(600))).await;
    probe.run(&["DEL", "orders"]).await;
    lost_no_later_than(&guard, sleep_until(Instant::now().max(taken + ms(600)))).await;
    is_lost(guard.release().await, "orders");
    forgotten(&client).await;
    assert_eq!(probe.keys().await, Vec::<String>::new());
}

#[tokio::test]
async fn several_waiters_for_the_loss_are_all_told_and_those_who_come_late_at_once() {
    let redis = Redis::start();
    let (client, probe) = (redis.builder().watchdog_timeout(ms(600)).connect().await.unwrap(), redis.probe().await);
    let guard = Arc::new(take(&client, "orders", Kept::Watched).await);
    let tasks: Vec<_> = (0..8)
        .map(|_| {
            let guard = guard.clone();
            tokio::spawn(async move { guard.lost().await })
        })
        .collect();
    yield_now().await;
    probe.run(&["DEL", "orders"]).await;
    for task in tasks {
        within(secs(2), "told", task).await.unwrap();
    }
    let mut late = pin!(guard.lost());
    let at_once = std::future::poll_fn(|cx| std::task::Poll::Ready(late.as_mut().poll(cx).is_ready()));
    assert!(at_once.await);
}
