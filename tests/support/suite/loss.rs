//! A hold that is taken away, or ends: known in time and for good, and the next holder is left alone.

use std::time::Duration;

use tokio::time::{Instant, sleep};

use super::{
    Subject,
    scene::{NAME, Scene, is_foreign, is_lost, lost_no_later_than, turn},
};
use crate::support::{eventually, forgotten, ms, secs, within};

/// With it the next renewal comes within 800 ms, and the lease itself lasts longer.
const TIMEOUT: Duration = Duration::from_millis(2400);
const A_RENEWAL: Duration = Duration::from_millis(800 + 800);

pub async fn a_deleted_hold_is_lost_by_the_next_renewal_and_not_made_anew(subject: &'static Subject) {
    let s = Scene::new(subject).await;
    let client = s.watched(TIMEOUT).await;
    let guard = s.lock(&client).lock().await.unwrap();
    s.probe.run(&["DEL", NAME]).await;
    within(A_RENEWAL, "lost by the next renewal", guard.lost()).await;
    assert!(!guard.is_valid() && guard.valid_for().is_zero());
    assert!(!s.probe.exists(NAME).await);
    is_lost(guard.extend(secs(9)).await, NAME);
    is_lost(guard.release().await, NAME);
    assert!(!s.probe.exists(NAME).await);
    let next = s.rival(&client).try_lock().await.unwrap().expect("free for the next");
    next.release().await.unwrap();
    s.nothing_is_left_after_a_loss(&[&client]).await;
}

pub async fn a_hold_that_was_taken_over_is_lost_and_the_next_holder_left_alone(subject: &'static Subject) {
    // By a renewal, and by the release, which is the first to ask.
    for timeout in [TIMEOUT, secs(30)] {
        let s = Scene::new(subject).await;
        let client = s.watched(timeout).await;
        let guard = s.lock(&client).lock().await.unwrap();
        let taken = Instant::now();
        s.taken_over(NAME, secs(20)).await;
        if timeout == TIMEOUT {
            within(A_RENEWAL, "lost by the next renewal", guard.lost()).await;
            s.is_untouched(NAME, taken, secs(20)).await;
        }
        is_lost(within(secs(2), "release", guard.release()).await, NAME);
        forgotten(&client).await;
        s.is_untouched(NAME, taken, secs(20)).await;
        assert!(s.lock(&client).try_lock().await.unwrap().is_none());
        s.let_go(NAME).await;
        s.nothing_is_left_after_a_loss(&[&client]).await;
    }
}

pub async fn a_forced_hold_is_lost_at_once_here_and_by_the_next_renewal_elsewhere(subject: &'static Subject) {
    let s = Scene::new(subject).await;
    let (here, elsewhere) = (s.client().await, s.watched(TIMEOUT).await);
    assert!(!s.lock(&here).force_release().await.unwrap(), "it was free");
    for (client, limit) in [(&here, secs(1)), (&elsewhere, A_RENEWAL)] {
        let guard = s.lock(client).lock().await.unwrap();
        // Whoever waits, wherever that is, has a turn.
        let waiters = [turn(&s.rival(&here)), turn(&s.rival(&elsewhere))];
        eventually(secs(2), "both wait", || async { here.stats().waiters + elsewhere.stats().waiters == 2 }).await;
        assert!(s.lock(&here).force_release().await.unwrap());
        within(limit, "told", guard.lost()).await;
        assert!(!guard.is_valid());
        for waiter in waiters {
            within(secs(2), "the next", waiter).await.unwrap().unwrap();
        }
        is_lost(guard.release().await, NAME);
    }
    s.nothing_is_left_after_a_loss(&[&here, &elsewhere]).await;
}

pub async fn a_hold_that_ends_in_silence_is_given_up_before(subject: &'static Subject) {
    tokio::join!(silence(subject, true), silence(subject, false));
}

async fn silence(subject: &'static Subject, is_fixed: bool) {
    let s = Scene::new(subject).await;
    let (proxy, client) = s.behind_proxy(|b| b.watchdog_timeout(ms(600)).response_timeout(secs(3))).await;
    let lock = s.lock(&client);
    let guard = if is_fixed { lock.lock().lease(ms(600)).await.unwrap() } else { lock.lock().await.unwrap() };
    proxy.fall_silent();
    lost_no_later_than(&guard, async {
        while s.probe.exists(NAME).await {
            sleep(ms(1)).await;
        }
    })
    .await;
    let taken = Instant::now();
    s.taken_over(NAME, secs(20)).await;
    proxy.let_go();
    is_lost(within(secs(3), "release", guard.release()).await, NAME);
    // The client is back, and everything it had to say has been said.
    eventually(secs(5), "back", || async { lock.remaining_ttl().await.is_ok() }).await;
    forgotten(&client).await;
    s.is_untouched(NAME, taken, secs(20)).await;
    s.let_go(NAME).await;
    s.nothing_is_left_after_a_loss(&[&client]).await;
}

pub async fn a_key_that_became_something_else_is_left_alone(subject: &'static Subject) {
    let s = Scene::new(subject).await;
    let client = s.watched(TIMEOUT).await;
    // Found by the release, and by a renewal.
    let guard = s.lock(&client).lock().await.unwrap();
    s.probe.run(&["SET", NAME, "42"]).await;
    is_foreign(guard.release().await, NAME);
    s.probe.run(&["DEL", NAME]).await;
    let guard = s.lock(&client).lock().await.unwrap();
    s.probe.run(&["SET", NAME, "42"]).await;
    within(A_RENEWAL, "lost by the next renewal", guard.lost()).await;
    is_lost(guard.release().await, NAME);
    assert_eq!(s.probe.ask::<String>(&["GET", NAME]).await, "42");
    assert_eq!(s.probe.ask::<i64>(&["PTTL", NAME]).await, -1);
    forgotten(&client).await;
    s.probe.run(&["DEL", NAME]).await;
    s.nothing_is_left_after_a_loss(&[&client]).await;
}
