//! What comes too late: a renewal's answer, a grant, the work itself.

use std::{
    future::{IntoFuture, poll_fn},
    sync::atomic::{AtomicUsize, Ordering},
    task::Poll,
};

use redlatch::{Client, Error};
use tokio::time::{Instant, sleep};

use crate::{
    Kept, ends, is_lost, lost_no_later_than,
    support::{
        asleep, eventually, forgotten, ms,
        proxy::Proxy,
        redis::{Probe, Redis},
        secs, within,
    },
    take,
};

const SCRIPTS: [&str; 4] = [
    include_str!("../../lua/lock_acquire.lua"),
    include_str!("../../lua/lock_release.lua"),
    include_str!("../../lua/lock_renew.lua"),
    include_str!("../../lua/lock_transfer.lua"),
];

struct Stage {
    _redis: Redis,
    proxy: Proxy,
    client: Client,
    probe: Probe,
}

impl Stage {
    async fn new() -> Self {
        let redis = Redis::start();
        let proxy = Proxy::to(redis.port()).await;
        let builder = Client::builder().url(proxy.url()).watchdog_timeout(ms(600)).response_timeout(secs(10));
        let client = builder.connect().await.unwrap();
        let probe = redis.probe().await;
        // What follows is one command each.
        for script in SCRIPTS {
            probe.run(&["SCRIPT", "LOAD", script]).await;
        }
        Self { _redis: redis, proxy, client, probe }
    }

    async fn nothing_is_left(&self) {
        forgotten(&self.client).await;
        assert_eq!(self.probe.keys().await, Vec::<String>::new());
    }
}

#[tokio::test]
async fn the_answer_to_a_renewal_that_comes_after_the_end_revives_nothing() {
    let s = Stage::new().await;
    let guard = take(&s.client, "orders", Kept::Watched).await;
    // Not the first one, which may come so early that the key ends hardly later for it.
    let mut before = guard.valid_for();
    let renewed = || {
        let now = guard.valid_for();
        std::future::ready(std::mem::replace(&mut before, now) < now)
    };
    eventually(secs(1), "renewed", renewed).await;
    let before = s.probe.calls(&["evalsha"]).await;
    s.proxy.hold_replies();
    let renewed = || async { s.probe.calls(&["evalsha"]).await > before };
    eventually(secs(1), "Redis has renewed it", renewed).await;
    // In Redis the hold lives on; here nobody knows.
    within(secs(1), "lost", guard.lost()).await;
    assert!(s.probe.exists("orders").await, "renewed not long ago");
    s.proxy.let_go();
    // What Redis still has for it is given back, so nobody waits for its end.
    s.nothing_is_left().await;
    assert!(!guard.is_valid());
    is_lost(guard.release().await, "orders");
    s.nothing_is_left().await;
}

#[tokio::test]
async fn a_grant_whose_answer_comes_after_its_lease_is_no_grant() {
    let s = Stage::new().await;
    for kept in [Kept::Fixed(ms(300)), Kept::Watched] {
        let lock = s.client.lock("orders");
        s.proxy.hold_replies();
        let waiting = match kept {
            Kept::Fixed(lease) => tokio::spawn(lock.lock().lease(lease).into_future()),
            Kept::Watched => tokio::spawn(lock.lock().into_future()),
        };
        eventually(secs(1), "Redis has granted", || s.probe.exists("orders")).await;
        ends(&s.probe, "orders").await;
        assert!(!waiting.is_finished());
        s.proxy.let_go();
        match within(secs(1), "the answer", waiting).await.unwrap() {
            // Asked anew, it may well be had.
            Ok(guard) => assert!(guard.is_valid() && s.probe.exists("orders").await, "{kept:?}"),
            Err(error) => assert!(matches!(error, Error::LeaseLost(_)), "{kept:?}: {error:?}"),
        }
        s.nothing_is_left().await;
    }
}

#[tokio::test]
async fn a_hand_over_whose_answer_comes_after_the_new_lease_is_no_grant() {
    let s = Stage::new().await;
    let lock = s.client.lock("orders");
    let guard = lock.lock().lease(secs(60)).await.unwrap();
    let asked = s.probe.calls(&["evalsha"]).await;
    let waiting = tokio::spawn(lock.lock().lease(ms(300)).into_future());
    asleep(&s.client, &s.probe, 1, asked).await;
    let first = s.probe.ask::<Vec<String>>(&["HKEYS", "orders"]).await;
    s.proxy.hold_replies();
    let releasing = tokio::spawn(guard.release());
    let handed_over = || async {
        let now = s.probe.ask::<Vec<String>>(&["HKEYS", "orders"]).await;
        !now.is_empty() && now != first
    };
    eventually(secs(1), "handed over", handed_over).await;
    ends(&s.probe, "orders").await;
    s.proxy.let_go();
    within(secs(1), "released", releasing).await.unwrap().unwrap();
    match within(secs(1), "the answer", waiting).await.unwrap() {
        Ok(guard) => assert!(guard.is_valid() && s.probe.exists("orders").await),
        Err(error) => assert!(matches!(error, Error::LeaseLost(_)), "{error:?}"),
    }
    s.nothing_is_left().await;
}

#[tokio::test]
async fn work_that_completes_too_late_comes_back_inside_the_error() {
    let redis = Redis::start();
    let client = redis.client().await;
    let guard = take(&client, "orders", Kept::Fixed(ms(200))).await;
    let stuck = async {
        // In one poll, which nothing can interrupt.
        std::thread::sleep(ms(250));
        "done"
    };
    let lost = guard.protect(stuck).await.expect_err("too late");
    assert_eq!((lost.completed, lost.name.as_str(), lost.owner), (Some("done"), "orders", guard.owner()));
    is_lost(guard.release().await, "orders");
    forgotten(&client).await;
}

#[tokio::test]
async fn work_in_time_comes_back_as_it_is() {
    let redis = Redis::start();
    let client = redis.builder().watchdog_timeout(ms(300)).connect().await.unwrap();
    let guard = take(&client, "orders", Kept::Watched).await;
    let started = Instant::now();
    let work = async {
        sleep(ms(700)).await;
        42
    };
    assert_eq!(guard.protect(work).await, Ok(42), "two leases long");
    assert!(started.elapsed() >= ms(700));
    guard.release().await.unwrap();
}

#[tokio::test]
async fn work_is_not_polled_again_once_the_hold_is_lost() {
    for kept in [Kept::Watched, Kept::Fixed(ms(300))] {
        let redis = Redis::start();
        let client = redis.builder().watchdog_timeout(ms(300)).connect().await.unwrap();
        let probe = redis.probe().await;
        let guard = take(&client, "orders", kept).await;
        let (polls, late) = (AtomicUsize::new(0), AtomicUsize::new(0));
        let busy = poll_fn(|cx| {
            let counter = if guard.is_valid() { &polls } else { &late };
            counter.fetch_add(1, Ordering::SeqCst);
            cx.waker().wake_by_ref();
            Poll::<()>::Pending
        });
        probe.run(&["DEL", "orders"]).await;
        let lost = within(secs(1), "the end", guard.protect(busy)).await.expect_err("the hold is gone");
        assert_eq!(lost.completed, None);
        assert!(polls.load(Ordering::SeqCst) > 0);
        // The hold may end between the look and the poll, once.
        assert!(late.load(Ordering::SeqCst) <= 1, "polled {} times after the end", late.load(Ordering::SeqCst));
        let unpolled = guard.protect(poll_fn(|_| -> Poll<()> { panic!("polled without a hold") })).await;
        assert!(unpolled.is_err());
        is_lost(guard.release().await, "orders");
    }
}

#[tokio::test]
async fn a_hold_ends_on_time_while_its_client_is_busy_with_others() {
    let s = Stage::new().await;
    let guard = take(&s.client, "orders", Kept::Fixed(ms(700))).await;
    let stop = Instant::now() + secs(1);
    let traffic = tokio::spawn({
        let lock = s.client.lock("other");
        async move {
            while Instant::now() < stop {
                lock.lock().await.unwrap().release().await.unwrap();
            }
        }
    });
    lost_no_later_than(&guard, ends(&s.probe, "orders")).await;
    traffic.await.unwrap();
    drop(guard);
    s.nothing_is_left().await;
}
