//! When renewal has to end: with the release, the guard, the client.

use std::{
    future::IntoFuture,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

use redlatch::{Client, Error};
use tokio::time::{Instant, sleep};

use crate::{
    lives,
    support::{Reports, eventually, forgotten, full, ms, proxy::Proxy, redis::Redis, secs, within},
};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_release_that_meets_a_renewal_frees_the_key_and_ends_renewal() {
    let redis = Redis::start();
    let reports = Reports::default();
    // The first renewal comes somewhere in the first 150 ms: every third round reaches into it.
    let client = reports.of(redis.builder().watchdog_timeout(ms(450))).connect().await.unwrap();
    let probe = redis.probe().await;
    let rounds = if full() { 400 } else { 63 };
    let tasks: Vec<_> = (0..16)
        .map(|task| {
            let client = client.clone();
            tokio::spawn(async move {
                let name = format!("orders:{task}");
                for round in 0..rounds {
                    let guard = client.lock(&name).lock().await.unwrap();
                    sleep(ms((task * 7 + round * 13) % 50)).await;
                    guard.release().await.unwrap();
                }
            })
        })
        .collect();
    for task in tasks {
        within(secs(60), "the rounds", task).await.unwrap();
    }
    forgotten(&client).await;
    assert_eq!(probe.keys().await, Vec::<String>::new());
    assert!(reports.all().is_empty(), "{:?}", reports.all());
    let asked = probe.calls(&["evalsha"]).await;
    client.lock("after").lock().await.unwrap().release().await.unwrap();
    assert_eq!(probe.calls(&["evalsha"]).await, asked + 2, "nothing is renewed any more");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn owners_that_take_turns_at_full_speed_keep_exactly_one_renewal() {
    for handoff in [true, false] {
        let redis = Redis::start();
        let builder = redis.builder().watchdog_timeout(ms(300)).local_handoff(handoff);
        let client = builder.connect().await.unwrap();
        let probe = redis.probe().await;
        let (turns, end) = (Arc::new(AtomicUsize::new(0)), Instant::now() + ms(2400));
        let tasks: Vec<_> = (0..2)
            .map(|task| {
                let (client, probe, turns) = (client.clone(), probe.clone(), turns.clone());
                tokio::spawn(async move {
                    let lock = client.lock("orders").owned_by(&client.owner_with_thread_id(task).unwrap());
                    let mut long = Instant::now() + ms(300 + 500 * task as u64);
                    while Instant::now() < end {
                        let guard = lock.lock().await.unwrap();
                        turns.fetch_add(1, Ordering::SeqCst);
                        let stats = client.stats();
                        let one_at_most = stats.renewals <= 1 && stats.scheduled_renewals <= 1;
                        assert!(stats.holds == 1 && one_at_most, "{stats:?}");
                        if Instant::now() > long {
                            // Longer than a lease: it has to be renewed.
                            lives(&guard, &probe, ms(400)).await;
                            let one =
                                || async { client.stats().scheduled_renewals == 1 && client.stats().renewals == 1 };
                            eventually(secs(1), "one renewal", one).await;
                            long = Instant::now() + ms(1000);
                        }
                        guard.release().await.unwrap();
                    }
                })
            })
            .collect();
        for task in tasks {
            within(secs(10), "the turns", task).await.unwrap();
        }
        assert!(turns.load(Ordering::SeqCst) > 20, "{turns:?} turns");
        forgotten(&client).await;
        assert_eq!(probe.keys().await, Vec::<String>::new());
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn owners_that_take_turns_at_full_speed_never_wait_for_a_lease_to_end() {
    for handoff in [true, false] {
        let redis = Redis::start();
        // The lease is 30 s: a wake-up that gets lost would show.
        let client = redis.builder().local_handoff(handoff).connect().await.unwrap();
        let end = Instant::now() + ms(1500);
        let tasks: Vec<_> = (0..2)
            .map(|_| {
                let lock = client.lock("orders");
                tokio::spawn(async move {
                    while Instant::now() < end {
                        lock.lock().await.unwrap().release().await.unwrap();
                    }
                })
            })
            .collect();
        for task in tasks {
            within(secs(4), "the turns", task).await.unwrap();
        }
        forgotten(&client).await;
    }
}

#[tokio::test]
async fn a_connection_that_is_cut_while_a_release_is_in_flight_leaves_the_key_no_longer_than_a_lease() {
    let timeout = ms(400);
    let redis = Redis::start();
    let probe = redis.probe().await;
    for round in 0..if full() { 300 } else { 30 } {
        let proxy = Proxy::to(redis.port()).await;
        let builder = Client::builder().url(proxy.url()).watchdog_timeout(timeout).response_timeout(ms(200));
        let client = builder.connect().await.unwrap();
        let guard = client.lock("orders").lock().await.unwrap();
        match round % 3 {
            // Cut before, at, and after the moment when it is sent; its answer lost; held back on its way.
            0 => {}
            1 => proxy.lose_replies(),
            _ => proxy.hold_commands(),
        }
        let released = Instant::now();
        let releasing = tokio::spawn(guard.release());
        for _ in 0..round % 7 {
            tokio::task::yield_now().await;
        }
        proxy.cut();
        eventually(timeout, "the key is gone", || async { !probe.exists("orders").await }).await;
        assert!(released.elapsed() <= timeout + ms(50));
        proxy.let_go();
        // Whatever it says: it says it soon, and nothing comes back.
        let outcome = within(secs(2), "release", releasing).await.unwrap();
        assert!(matches!(outcome, Ok(()) | Err(Error::Redis { .. } | Error::LeaseLost(_))), "{outcome:?}");
        forgotten(&client).await;
        assert_eq!(probe.keys().await, Vec::<String>::new());
    }
}

#[tokio::test]
async fn shutdown_ends_renewal_quietly_and_sends_what_is_being_released() {
    let redis = Redis::start();
    let reports = Reports::default();
    let client = reports.of(redis.builder().watchdog_timeout(ms(1500))).connect().await.unwrap();
    let probe = redis.probe().await;
    let mut guards = Vec::new();
    for number in 0..10 {
        guards.push(client.lock(format!("held:{number}")).lock().await.unwrap());
    }
    let dropped = client.lock("dropped").lock().await.unwrap();
    let released = client.lock("released").lock().await.unwrap();
    let waiting = tokio::spawn(client.lock("held:0").lock().into_future());
    let bounded = tokio::spawn(client.lock("held:1").try_lock().wait(secs(60)).into_future());
    eventually(secs(2), "both wait", || async { client.stats().waiters == 2 }).await;
    drop(dropped);
    let releasing = tokio::spawn(released.release());
    tokio::task::yield_now().await;

    within(secs(1), "shutdown", client.shutdown()).await.unwrap();
    let ended = Instant::now();
    assert!(!probe.exists("dropped").await && !probe.exists("released").await, "what was queued is sent");
    releasing.await.unwrap().unwrap();
    for guard in &guards {
        assert!(!guard.is_valid());
        within(ms(100), "told", guard.lost()).await;
        assert!(probe.exists(guard.name()).await, "{} is not left to its lease", guard.name());
    }
    assert!(matches!(within(ms(100), "the wait ends", waiting).await.unwrap(), Err(Error::Closed)));
    assert!(matches!(within(ms(100), "the wait ends", bounded).await.unwrap(), Err(Error::Closed)));
    assert!(matches!(client.lock("new").lock().await, Err(Error::Closed)));
    assert!(matches!(client.lock("new").try_lock().await, Err(Error::Closed)));
    assert!(matches!(client.lock("new").is_locked().await, Err(Error::Closed)));
    assert!(matches!(client.lock("new").force_release().await, Err(Error::Closed)));
    assert!(matches!(guards[0].extend(secs(1)).await, Err(Error::Closed)));
    assert_eq!(client.stats().scheduled_renewals, 0);

    let asked = probe.calls(&["evalsha"]).await;
    eventually(ms(2000), "the leases end", || async { probe.keys().await.is_empty() }).await;
    assert!(ended.elapsed() < ms(1600), "{:?}", ended.elapsed());
    assert_eq!(probe.calls(&["evalsha"]).await, asked, "nothing is renewed");
    assert!(reports.all().is_empty(), "{:?}", reports.all());
    for guard in guards {
        assert!(matches!(guard.release().await, Err(Error::Closed)));
    }
    assert!(reports.all().is_empty(), "{:?}", reports.all());
    within(ms(100), "shutting down again", client.shutdown()).await.unwrap();
    forgotten(&client).await;
}

#[tokio::test]
async fn a_guard_that_is_dropped_by_a_panic_is_released() {
    let redis = Redis::start();
    let (client, probe) = (redis.client().await, redis.probe().await);
    let guard = client.lock("orders").lock().await.unwrap();
    let panicking = tokio::spawn(async move {
        let _guard = guard;
        std::panic::resume_unwind(Box::new("on purpose"));
    });
    assert!(panicking.await.unwrap_err().is_panic());
    eventually(ms(500), "released", || async { !probe.exists("orders").await }).await;
    forgotten(&client).await;
}

#[test]
fn a_guard_that_outlives_its_runtime_is_dropped_without_harm_and_its_lease_ends() {
    let redis = Redis::start();
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let guard = runtime.block_on(async {
        let client = redis.builder().watchdog_timeout(ms(300)).connect().await.unwrap();
        client.lock("orders").lock().await.unwrap()
    });
    drop(runtime);
    drop(guard);
    let runtime = tokio::runtime::Runtime::new().unwrap();
    runtime.block_on(async {
        let probe = redis.probe().await;
        eventually(ms(500), "its lease ends", || async { !probe.exists("orders").await }).await;
    });
}
