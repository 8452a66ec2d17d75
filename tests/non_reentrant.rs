//! The non-reentrant locks: an owner that holds one and asks for it again gets an error, not a second hold.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test that cannot go on ends here")]

#[path = "support/suite.rs"]
mod suite;
mod support;

use std::{fmt::Debug, future::IntoFuture};

use redlatch::{Error, Kind, OwnerId};
use suite::{
    Subject,
    scene::{NAME, Scene, is_lost},
};
use support::{eventually, ms, secs, within};

suite::suite!(non_reentrant, NON_REENTRANT);
suite::suite!(non_reentrant_fair, NON_REENTRANT_FAIR);

const QUEUE: &str = "redisson_lock_queue:{orders}";

/// A test for both of them.
macro_rules! for_both {
    ($($test:ident)+) => {
        mod plain {
            $(#[tokio::test] async fn $test() { super::$test(&crate::suite::NON_REENTRANT).await })+
        }
        mod fair {
            $(#[tokio::test] async fn $test() { super::$test(&crate::suite::NON_REENTRANT_FAIR).await })+
        }
    };
}

for_both! {
    an_owner_that_holds_it_is_refused_at_once_and_keeps_what_it_has
    after_a_release_or_a_loss_the_owner_can_take_it_again
    of_two_waits_of_one_owner_the_second_is_refused_when_the_first_is_granted
    an_owner_that_holds_the_reentrant_lock_of_the_name_is_refused
    a_lost_answer_is_not_taken_for_a_hold_of_before
}

fn is_refused<T: Debug>(outcome: Result<T, Error>, expected: &OwnerId) {
    match outcome {
        Err(error @ Error::AlreadyHeld { .. }) => {
            let Error::AlreadyHeld { key, owner } = &error else { unreachable!("matched above") };
            assert_eq!((key.as_str(), owner), (NAME, expected));
            assert!(error.to_string().contains(NAME), "{error}");
            assert!(!error.retry_is_safe());
        }
        other => panic!("not refused: {other:?}"),
    }
}

async fn an_owner_that_holds_it_is_refused_at_once_and_keeps_what_it_has(subject: &'static Subject) {
    let s = Scene::new(subject).await;
    let (client, other) = (s.client().await, s.client().await);
    let (lock, owner) = (s.lock(&client), client.owner());
    let guard = lock.owned_by(&owner).lock().lease(secs(20)).await.unwrap();
    // Others in line make no difference.
    let behind = suite::scene::turn(&s.lock(&other));
    s.asleep(&other, 1).await;
    let (held, line) = (left(&s).await, line(&s).await);
    for handle in [lock.clone(), s.lock(&client)] {
        let again = handle.owned_by(&owner);
        is_refused(within(secs(2), "lock", again.lock().into_future()).await, &owner);
        is_refused(within(secs(2), "lease", again.lock().lease(secs(60)).into_future()).await, &owner);
        is_refused(again.try_lock().await, &owner);
        is_refused(within(secs(2), "wait", again.try_lock().wait(secs(60)).into_future()).await, &owner);
    }
    assert_eq!((s.count(&lock, &owner).await, guard.hold_count()), (1, 1));
    assert!(guard.is_valid() && left(&s).await <= held, "its lease is what it was");
    assert_eq!(self::line(&s).await, line, "and so is the line");
    // Everybody else waits as ever.
    assert!(lock.try_lock().await.unwrap().is_none());
    guard.release().await.unwrap();
    within(secs(3), "whoever was behind", behind).await.unwrap().unwrap();
    s.nothing_is_left(&[&client, &other]).await;
}

async fn left(s: &Scene) -> i64 {
    s.probe.ask(&["PTTL", NAME]).await
}

async fn line(s: &Scene) -> Vec<String> {
    s.probe.ask(&["LRANGE", QUEUE, "0", "-1"]).await
}

async fn after_a_release_or_a_loss_the_owner_can_take_it_again(subject: &'static Subject) {
    let s = Scene::new(subject).await;
    let client = s.client().await;
    let owner = client.owner();
    let owned = s.lock(&client).owned_by(&owner);
    owned.lock().await.unwrap().release().await.unwrap();
    drop(owned.lock().await.unwrap());
    let guard = within(secs(3), "given back in the background", owned.lock().into_future()).await.unwrap();
    owned.release().await.unwrap();
    is_lost(guard.release().await, NAME);
    // Its lease ends.
    let guard = owned.lock().lease(ms(80)).await.unwrap();
    within(secs(3), "its end", guard.lost()).await;
    eventually(secs(3), "for Redis as well", || async { !s.probe.exists(NAME).await }).await;
    let next = owned.lock().await.unwrap();
    is_lost(guard.release().await, NAME);
    assert!(next.is_valid());
    // Forced open, and deleted behind its back.
    assert!(s.lock(&client).force_release().await.unwrap());
    let again = owned.lock().await.unwrap();
    is_lost(next.release().await, NAME);
    s.probe.run(&["DEL", NAME]).await;
    let last = owned.try_lock().await.unwrap().expect("Redis says that it is free");
    assert!(!again.is_valid() && last.is_valid());
    is_lost(again.release().await, NAME);
    assert_eq!(s.count(&s.lock(&client), &owner).await, 1);
    last.release().await.unwrap();
    s.nothing_is_left(&[&client]).await;
}

async fn of_two_waits_of_one_owner_the_second_is_refused_when_the_first_is_granted(subject: &'static Subject) {
    let s = Scene::new(subject).await;
    let (client, other) = (s.client().await, s.client().await);
    let guard = s.lock(&other).lock().await.unwrap();
    let owner = client.owner();
    let mut waits = tokio::task::JoinSet::new();
    for _ in 0..2 {
        let owned = s.lock(&client).owned_by(&owner);
        waits.spawn(async move { owned.lock().await });
    }
    eventually(secs(2), "both wait", || async { client.stats().waiters == 2 && client.stats().in_flight == 0 }).await;
    guard.release().await.unwrap();
    let outcomes = within(secs(2), "both are told", waits.join_all()).await;
    let (granted, refused): (Vec<_>, Vec<_>) = outcomes.into_iter().partition(Result::is_ok);
    assert_eq!((granted.len(), refused.len()), (1, 1), "{refused:?}");
    for outcome in refused {
        is_refused(outcome, &owner);
    }
    assert_eq!(s.count(&s.lock(&client), &owner).await, 1);
    for guard in granted {
        guard.unwrap().release().await.unwrap();
    }
    s.nothing_is_left(&[&client, &other]).await;
}

async fn an_owner_that_holds_the_reentrant_lock_of_the_name_is_refused(subject: &'static Subject) {
    let s = Scene::new(subject).await;
    let client = s.client().await;
    let owner = client.owner();
    // The keys are the same, and so is the owner.
    let reentrant = match s.lock(&client).kind() {
        Kind::NonReentrantFair => client.fair_lock(NAME).into_any(),
        _ => client.lock(NAME).into_any(),
    };
    let guard = reentrant.owned_by(&owner).lock().await.unwrap();
    is_refused(s.lock(&client).owned_by(&owner).lock().await, &owner);
    is_refused(s.lock(&client).owned_by(&owner).try_lock().await, &owner);
    assert!(s.lock(&client).try_lock().await.unwrap().is_none());
    assert_eq!(s.count(&s.lock(&client), &owner).await, 1);
    guard.release().await.unwrap();
    // The other way round nothing is refused: Redisson's plain lock just counts.
    let guard = s.lock(&client).owned_by(&owner).lock().await.unwrap();
    let again = reentrant.owned_by(&owner).try_lock().await.unwrap().expect("re-entered");
    assert_eq!(s.count(&s.lock(&client), &owner).await, 2);
    again.release().await.unwrap();
    assert_eq!(s.count(&s.lock(&client), &owner).await, 1);
    guard.release().await.unwrap();
    s.nothing_is_left(&[&client]).await;
}

async fn a_lost_answer_is_not_taken_for_a_hold_of_before(subject: &'static Subject) {
    let s = Scene::new(subject).await;
    let (proxy, client) = s.behind_proxy(|b| b.response_timeout(secs(3))).await;
    let owned = s.lock(&client).owned_by(&client.owner());
    for _ in 0..6 {
        // The grant is made, its answer is lost with the link: asked again, the lock is the owner's, by this very request.
        proxy.lose_replies();
        let asked = s.probe.calls(&["evalsha"]).await;
        let wait = tokio::spawn(owned.lock().into_future());
        eventually(secs(3), "granted", || async { s.probe.calls(&["evalsha"]).await > asked }).await;
        proxy.cut();
        proxy.let_go();
        let guard = within(secs(2), "granted", wait).await.unwrap().unwrap();
        is_refused(owned.lock().await, &owned.owner());
        guard.release().await.unwrap();
        eventually(secs(3), "free", || async { s.keys().await.is_empty() }).await;
    }
    s.nothing_is_left(&[&client]).await;
}
