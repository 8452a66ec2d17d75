//! Waiting: who is woken, when it ends, what it leaves.

use redlatch::Client;
use tokio::time::Instant;

use super::{
    Subject,
    scene::{NAME, Scene, waiting},
};
use crate::support::{ms, secs, within};

pub async fn a_release_wakes_a_waiter_of_another_client(subject: &'static Subject) {
    let s = Scene::new(subject).await;
    let (a, b) = (s.client().await, s.client().await);
    woken(&s, &a, &b).await;
}

pub async fn a_release_wakes_a_waiter_of_the_same_client(subject: &'static Subject) {
    let s = Scene::new(subject).await;
    let a = s.client().await;
    woken(&s, &a, &a).await;
}

/// The lease is 30 s: whoever is not woken shows.
async fn woken(s: &Scene, holder: &Client, waiter: &Client) {
    for (held, wanted) in [(s.rival(holder), s.lock(waiter)), (s.lock(holder), s.rival(waiter))] {
        for is_bounded in [false, true] {
            let guard = held.lock().await.unwrap();
            let wait = if is_bounded {
                let bounded = wanted.try_lock().wait(secs(60));
                tokio::spawn(async move { bounded.await.map(|guard| guard.expect("within its wait")) })
            } else {
                waiting(&wanted)
            };
            s.asleep(waiter, 1).await;
            guard.release().await.unwrap();
            let granted = within(secs(3), "woken", wait).await.unwrap().unwrap();
            assert_eq!(s.count(&wanted, &granted.owner()).await, 1);
            granted.release().await.unwrap();
        }
    }
    s.nothing_is_left(&[holder, waiter]).await;
}

pub async fn a_wait_that_ends_says_so_in_time_and_leaves_nothing_behind(subject: &'static Subject) {
    let s = Scene::new(subject).await;
    let (holder, client) = (s.client().await, s.client().await);
    let guard = s.rival(&holder).lock().await.unwrap();
    let waits: Vec<_> = [60, 20, 100, 40]
        .into_iter()
        .map(|wait| {
            let (lock, started) = (s.lock(&client), Instant::now());
            tokio::spawn(async move {
                assert!(lock.try_lock().wait(ms(wait)).await.unwrap().is_none());
                let took = started.elapsed();
                assert!((ms(wait)..ms(wait + 1500)).contains(&took), "{wait} ms took {took:?}");
            })
        })
        .collect();
    for wait in waits {
        within(secs(2), "its end", wait).await.unwrap();
    }
    crate::support::forgotten(&client).await;
    assert_eq!(s.keys().await, keys_of_one_hold(&s, &guard.owner()).await, "nobody stands in line any more");
    guard.release().await.unwrap();
    s.nothing_is_left(&[&holder, &client]).await;
}

/// The key, and for a reader its hold key.
async fn keys_of_one_hold(s: &Scene, owner: &redlatch::OwnerId) -> Vec<String> {
    let mut keys = vec![NAME.to_owned()];
    let hold_key = super::suffixed(NAME, &format!("{owner}:rwlock_timeout:1"));
    if s.holders(NAME).await == [owner.to_string()] && s.subject.is_read_write() {
        keys.push(hold_key);
    }
    keys.sort();
    keys
}

pub async fn a_try_without_a_wait_asks_once_and_changes_nothing(subject: &'static Subject) {
    let s = Scene::new(subject).await;
    let (holder, client) = (s.client().await, s.client().await);
    s.lock(&client).lock().await.unwrap().release().await.unwrap();
    let guard = s.rival(&holder).lock().await.unwrap();
    let before = s.probe.everything().await;
    s.probe.run(&["CONFIG", "RESETSTAT"]).await;
    for _ in 0..3 {
        assert!(s.lock(&client).try_lock().await.unwrap().is_none());
    }
    assert_eq!(s.probe.calls(&["evalsha"]).await, 3);
    assert_eq!(s.probe.calls(&["eval", "script|load", "subscribe"]).await, 0);
    assert_eq!(s.probe.everything().await, before);
    guard.release().await.unwrap();
    s.nothing_is_left(&[&holder, &client]).await;
}

pub async fn the_end_of_a_lease_ends_the_wait(subject: &'static Subject) {
    let s = Scene::new(subject).await;
    let client = s.client().await;
    s.taken_over(NAME, ms(300)).await;
    let taken = Instant::now();
    let waits = [waiting(&s.lock(&client)), waiting(&s.lock(&client))];
    // Nobody tells of an expiry.
    for wait in waits {
        let guard = within(secs(2), "granted", wait).await.unwrap().unwrap();
        assert!((ms(280)..secs(2)).contains(&taken.elapsed()), "{:?}", taken.elapsed());
        assert_eq!(s.count(&s.lock(&client), &guard.owner()).await, 1);
        guard.release().await.unwrap();
    }
    s.nothing_is_left(&[&client]).await;
}
