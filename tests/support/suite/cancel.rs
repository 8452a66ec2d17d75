//! Futures dropped at any point.

use std::{
    future::{IntoFuture, poll_fn},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    task::{Context, Poll, Waker},
    time::{Duration, Instant},
};

use redlatch::{AnyLock, Guard};
use tokio::time::{sleep, timeout};

use super::{
    Subject,
    scene::{Random, Scene, turn, waiting},
};
use crate::support::{eventually, full, ms, secs, within};

/// Polls the acquisition `polls` times, each time after something has happened, then drops it.
async fn drop_after(lock: &AnyLock, polls: usize) -> Option<Guard> {
    let mut future = lock.lock().into_future();
    for poll in 0..polls {
        let mut polled = false;
        let step = poll_fn(|cx| {
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
        if let Ok(Some(guard)) = timeout(ms(10), step).await {
            return Some(guard);
        }
    }
    None
}

pub async fn an_acquire_dropped_at_every_await_point_leaves_nothing_behind(subject: &'static Subject) {
    let s = Scene::new(subject).await;
    let (holder, canceller) = (s.client().await, s.client().await);
    for held in [false, true] {
        for polls in 0..6 {
            for delay in [0, 200, 600] {
                let guard = if held { Some(s.rival(&holder).lock().await.unwrap()) } else { None };
                let own = drop_after(&s.lock(&canceller), polls).await;
                if delay > 0 {
                    sleep(Duration::from_micros(delay)).await;
                }
                drop(guard);
                drop(own);
                // The lock is free again at once, not at the end of a lease.
                let next = within(secs(2), "free again", s.rival(&holder).lock().into_future()).await.unwrap();
                next.release().await.unwrap();
            }
            s.nothing_is_left(&[&holder, &canceller]).await;
        }
    }
}

/// Takes and frees the lock until told to stop.
fn come_and_go(lock: AnyLock, stop: Arc<AtomicBool>, seed: u64) -> tokio::task::JoinHandle<u64> {
    tokio::spawn(async move {
        let (mut random, mut holds) = (Random(seed), 0);
        while !stop.load(Ordering::Relaxed) {
            let guard = lock.lock().await.unwrap();
            holds += 1;
            sleep(ms(random.below(2))).await;
            guard.release().await.unwrap();
            sleep(ms(random.below(2))).await;
        }
        holds
    })
}

pub async fn an_acquire_dropped_at_random_times_leaves_nothing_behind(subject: &'static Subject) {
    let s = Scene::new(subject).await;
    let (holder, canceller) = (s.client().await, s.client().await);
    let stop = Arc::new(AtomicBool::new(false));
    let holding = come_and_go(s.rival(&holder), stop.clone(), 1);
    let rounds = if full() { 4_000 } else { 150 };
    let tasks: Vec<_> = (0..4)
        .map(|task| {
            let lock = s.lock(&canceller);
            tokio::spawn(async move {
                let mut random = Random(task);
                for _ in 0..rounds {
                    let patience = Duration::from_micros(random.below(4_000));
                    let work = async {
                        match random.below(3) {
                            0 => Some(lock.lock().await.unwrap()),
                            1 => Some(lock.lock().lease(secs(20)).await.unwrap()),
                            _ => lock.try_lock().wait(ms(1)).await.unwrap(),
                        }
                    };
                    let guard = timeout(patience, work).await.ok().flatten();
                    if let Some(guard) = guard.filter(|_| random.below(2) == 0) {
                        let _ = timeout(patience / 2, guard.release()).await;
                    }
                }
            })
        })
        .collect();
    for task in tasks {
        within(secs(120), "cancelling", task).await.unwrap();
    }
    stop.store(true, Ordering::Relaxed);
    assert!(within(secs(5), "the holder", holding).await.unwrap() > 0, "it came to its turn");
    s.nothing_is_left(&[&holder, &canceller]).await;
}

pub async fn a_cancelled_waiter_passes_its_turn_on(subject: &'static Subject) {
    let s = Scene::new(subject).await;
    let client = s.client().await;
    let mut random = Random(7);
    for _ in 0..40 {
        let guard = s.rival(&client).lock().await.unwrap();
        let waiters = [s.lock(&client), s.rival(&client), s.lock(&client), s.rival(&client)].map(|lock| turn(&lock));
        eventually(secs(2), "all wait", || async { client.stats().waiters == 4 }).await;
        drop(guard);
        if random.below(2) == 0 {
            tokio::task::yield_now().await;
        }
        waiters[random.below(3) as usize].abort();
        for waiter in waiters {
            match within(secs(3), "the others", waiter).await {
                Ok(outcome) => outcome.unwrap(),
                Err(e) => assert!(e.is_cancelled()),
            }
        }
    }
    s.nothing_is_left(&[&client]).await;
}

pub async fn a_cancelled_release_is_finished_by_the_client(subject: &'static Subject) {
    let s = Scene::new(subject).await;
    let client = s.client().await;
    for _ in 0..60 {
        let guard = s.lock(&client).lock().await.unwrap();
        let mut release = Box::pin(guard.release());
        assert!(release.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
        drop(release);
    }
    s.nothing_is_left(&[&client]).await;
}

pub async fn a_waiter_that_is_never_polled_again_holds_nobody_up(subject: &'static Subject) {
    let s = Scene::new(subject).await;
    let (client, other) = (s.client().await, s.client().await);
    // On a free lock: the first poll sends the attempt, nothing ever takes the grant.
    let mut unpolled = s.lock(&client).lock().into_future();
    assert!(unpolled.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
    let started = Instant::now();
    let guard = within(secs(2), "another client", s.rival(&other).lock().into_future()).await.unwrap();
    assert!(started.elapsed() < secs(2), "{:?}", started.elapsed());
    assert_eq!(client.stats().renewals, 0, "an offer is not renewed");
    // In line: those behind it go on.
    let behind: Vec<_> = (0..3).map(|_| turn(&s.rival(&client))).collect();
    eventually(secs(2), "all wait", || async { client.stats().waiters == 4 }).await;
    let started = Instant::now();
    guard.release().await.unwrap();
    for turn in behind {
        within(secs(2), "those behind", turn).await.unwrap().unwrap();
    }
    assert!(started.elapsed() < secs(3), "{:?}", started.elapsed());
    // Polled again it gets the lock: it has kept its place.
    within(secs(2), "the late one", unpolled).await.unwrap().release().await.unwrap();
    // And one that nobody ever polls again can be dropped.
    let guard = s.rival(&other).lock().await.unwrap();
    let unpolled = waiting(&s.lock(&client));
    eventually(secs(2), "it waits", || async { client.stats().waiters == 1 }).await;
    unpolled.abort();
    guard.release().await.unwrap();
    s.nothing_is_left(&[&client, &other]).await;
}
