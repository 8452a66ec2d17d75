//! Dropping an acquisition at any point leaves nothing behind.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test that cannot go on ends here")]

mod support;

use std::{
    future::IntoFuture,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    task::{Context, Poll, Waker},
};

use redlatch::{Client, Guard};
use support::{
    eventually, forgotten, full, ms,
    redis::{Probe, Redis},
    secs, within,
};
use tokio::time::{sleep, timeout};

/// A small generator; its seed is in the name of what it drives.
struct Random(u64);

impl Random {
    fn below(&mut self, n: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (self.0 >> 33) % n
    }
}

/// A client that takes and frees the lock until told to stop.
fn come_and_go(client: Client, name: &'static str, stop: Arc<AtomicBool>, seed: u64) -> tokio::task::JoinHandle<u64> {
    tokio::spawn(async move {
        let (mut random, mut holds) = (Random(seed), 0);
        while !stop.load(Ordering::Relaxed) {
            let guard = client.lock(name).lock().await.unwrap();
            holds += 1;
            sleep(ms(random.below(2))).await;
            guard.release().await.unwrap();
            sleep(ms(random.below(2))).await;
        }
        holds
    })
}

async fn nothing_is_left(clients: &[&Client], probe: &Probe) {
    for client in clients {
        forgotten(client).await;
    }
    eventually(secs(1), "no subscription", || async { probe.channels().await.is_empty() }).await;
    assert_eq!(probe.keys().await, Vec::<String>::new());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_acquire_dropped_at_random_times_leaves_nothing_behind() {
    let redis = Redis::start();
    let (holder, canceller, probe) = (redis.client().await, redis.client().await, redis.probe().await);
    let stop = Arc::new(AtomicBool::new(false));
    let holding = come_and_go(holder.clone(), "c", stop.clone(), 1);
    let rounds = if full() { 10_000 } else { 4_000 };
    let tasks: Vec<_> = (0..8)
        .map(|task| {
            let lock = canceller.lock("c");
            tokio::spawn(async move {
                let (mut random, mut granted) = (Random(task), 0u32);
                for _ in 0..rounds / 8 {
                    let patience = std::time::Duration::from_micros(random.below(4_000));
                    let future = match random.below(3) {
                        0 => timeout(patience, lock.lock().into_future()).await.ok().map(|g| g.unwrap()),
                        1 => {
                            timeout(patience, lock.lock().lease(secs(20)).into_future()).await.ok().map(|g| g.unwrap())
                        }
                        _ => timeout(patience, lock.try_lock().wait(ms(1)).into_future())
                            .await
                            .ok()
                            .and_then(|g| g.unwrap()),
                    };
                    granted += u32::from(future.is_some());
                    match random.below(2) {
                        0 => drop(future),
                        _ => {
                            if let Some(guard) = future {
                                let _ = timeout(patience / 2, guard.release()).await;
                            }
                        }
                    }
                }
                granted
            })
        })
        .collect();
    let mut granted = 0;
    for task in tasks {
        granted += within(secs(120), "cancelling", task).await.unwrap();
    }
    stop.store(true, Ordering::Relaxed);
    let holds = within(secs(5), "the holder", holding).await.unwrap();
    assert!(granted > 0 && holds > 0, "both sides got it now and then: {granted} {holds}");
    nothing_is_left(&[&holder, &canceller], &probe).await;
}

/// Polls the acquisition `polls` times, each time after something has happened, then drops it.
async fn drop_after(client: &Client, polls: usize) -> Option<Guard> {
    let mut future = client.lock("c").lock().into_future();
    for poll in 0..polls {
        let mut polled = false;
        let step = std::future::poll_fn(|cx| {
            if polled {
                return Poll::Ready(None);
            }
            polled = true;
            match future.as_mut().poll(cx) {
                Poll::Ready(guard) => Poll::Ready(Some(guard.unwrap())),
                Poll::Pending if poll + 1 == polls => Poll::Ready(None),
                Poll::Pending => Poll::Pending,
            }
        });
        if let Ok(Some(guard)) = timeout(ms(20), step).await {
            return Some(guard);
        }
    }
    None
}

#[tokio::test]
async fn an_acquire_dropped_at_every_await_point_leaves_nothing_behind() {
    let redis = Redis::start();
    let (holder, canceller, probe) = (redis.client().await, redis.client().await, redis.probe().await);
    for held in [false, true] {
        for polls in 0..6 {
            for delay in 0..4u64 {
                let guard = if held { Some(holder.lock("c").lock().await.unwrap()) } else { None };
                let own = drop_after(&canceller, polls).await;
                if delay > 0 {
                    sleep(std::time::Duration::from_micros(delay * 150)).await;
                }
                drop(guard);
                drop(own);
                // The lock is free again at once, not at the end of a lease.
                let next = within(secs(2), "free again", holder.lock("c").lock().into_future()).await.unwrap();
                next.release().await.unwrap();
                nothing_is_left(&[&holder, &canceller], &probe).await;
            }
        }
    }
}

#[tokio::test]
async fn a_release_cancelled_at_its_first_poll_is_finished_by_the_client() {
    let redis = Redis::start();
    let (client, probe) = (redis.client().await, redis.probe().await);
    for _ in 0..200 {
        let guard = client.lock("c").lock().await.unwrap();
        let mut release = Box::pin(guard.release());
        assert!(release.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
        drop(release);
    }
    nothing_is_left(&[&client], &probe).await;
}

#[tokio::test]
async fn a_cancelled_waiter_passes_its_turn_on() {
    let redis = Redis::start();
    let (client, probe) = (redis.client().await, redis.probe().await);
    let lock = client.lock("c");
    let mut random = Random(7);
    for _ in 0..300 {
        let guard = lock.lock().await.unwrap();
        let waiters: Vec<_> = (0..4)
            .map(|_| {
                let lock = lock.clone();
                tokio::spawn(async move { lock.lock().await.unwrap().release().await.unwrap() })
            })
            .collect();
        eventually(secs(2), "all wait", || async { client.stats().waiters == 4 }).await;
        drop(guard);
        if random.below(2) == 0 {
            tokio::task::yield_now().await;
        }
        waiters[random.below(3) as usize].abort();
        for waiter in waiters {
            if let Err(e) = within(secs(2), "the others", waiter).await {
                assert!(e.is_cancelled());
            }
        }
    }
    nothing_is_left(&[&client], &probe).await;
}

#[tokio::test]
async fn a_waiter_that_is_never_polled_again_holds_nobody_up_beyond_the_offer_bound() {
    let redis = Redis::start();
    let (client, other, probe) = (redis.client().await, redis.client().await, redis.probe().await);
    let lock = client.lock("c");
    // On a free lock: the first poll sends the attempt, nothing ever takes the grant.
    let mut unpolled = lock.lock().into_future();
    assert!(unpolled.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
    let started = std::time::Instant::now();
    let guard = within(secs(2), "another process", other.lock("c").lock().into_future()).await.unwrap();
    assert!(started.elapsed() < ms(250), "{:?}", started.elapsed());
    assert_eq!(client.stats().renewals, 0, "an offer is not renewed");

    // In line: those behind it go on.
    let waiters: Vec<_> = (0..3)
        .map(|_| {
            let lock = lock.clone();
            tokio::spawn(async move { lock.lock().await.unwrap().release().await.unwrap() })
        })
        .collect();
    eventually(secs(2), "all wait", || async { client.stats().waiters == 4 && client.stats().in_flight == 0 }).await;
    let started = std::time::Instant::now();
    guard.release().await.unwrap();
    for waiter in waiters {
        within(secs(2), "those behind", waiter).await.unwrap();
    }
    assert!(started.elapsed() < ms(300), "{:?}", started.elapsed());
    // Polled again it gets the lock: it has kept its place.
    within(secs(2), "the late one", unpolled).await.unwrap().release().await.unwrap();
    nothing_is_left(&[&client, &other], &probe).await;
}

#[tokio::test]
async fn a_wait_that_ends_takes_its_place_out_of_the_line() {
    let redis = Redis::start();
    let (holder, client, probe) = (redis.client().await, redis.client().await, redis.probe().await);
    let guard = holder.lock("c").lock().await.unwrap();
    let lock = client.lock("c");
    let tries = (0..20).map(|i| {
        let lock = lock.clone();
        tokio::spawn(async move { lock.try_lock().wait(ms(20 + i)).await.unwrap().is_none() })
    });
    for over in tries.collect::<Vec<_>>() {
        assert!(within(secs(2), "the wait", over).await.unwrap());
    }
    forgotten(&client).await;
    eventually(secs(1), "no subscription", || async { probe.channels().await.is_empty() }).await;
    guard.release().await.unwrap();
    nothing_is_left(&[&holder, &client], &probe).await;
}
