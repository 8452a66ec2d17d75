//! The fenced lock: every grant has a number above all before it.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test that cannot go on ends here")]

#[path = "support/suite.rs"]
mod suite;
mod support;

use std::{
    future::IntoFuture,
    sync::{Arc, Mutex},
};

use redlatch::{Client, Error, FencedLock, FencingToken, Guard};
use suite::scene::{NAME, Scene, is_foreign, turn, waiting};
use support::{eventually, forgotten, ms, secs, within};

suite::suite!(fenced, FENCED);

const TOKEN: &str = "redisson_lock_token:{orders}";

async fn scene() -> Scene {
    Scene::new(&suite::FENCED).await
}

fn fenced(client: &Client) -> FencedLock {
    client.fenced_lock(NAME)
}

fn token(guard: &Guard) -> u64 {
    guard.fencing_token().expect("every grant has one").get()
}

#[tokio::test]
async fn the_number_grows_with_every_grant_whoever_it_is_for() {
    let s = scene().await;
    let (a, b) = (s.client().await, s.client().await);
    assert_eq!(fenced(&a).token().await.unwrap(), None);
    let mut last = 0;
    let mut next = |guard: &Guard, what: &str| {
        let token = token(guard);
        assert!(token > last, "{what}: {token} after {last}");
        last = token;
        token
    };
    let first = fenced(&a).lock().await.unwrap();
    assert_eq!(next(&first, "the first"), 1);
    assert_eq!(s.probe.ask::<u64>(&["GET", TOKEN]).await, 1);
    first.release().await.unwrap();
    let owner = b.owner();
    let outer = fenced(&b).owned_by(&owner).lock().await.unwrap();
    next(&outer, "another client");
    let inner = fenced(&b).owned_by(&owner).lock().await.unwrap();
    next(&inner, "a re-entry");
    assert!(outer.fencing_token() < inner.fencing_token());
    inner.release().await.unwrap();
    // Handed over within the process.
    let waiter = waiting(&fenced(&b).into_any());
    s.asleep(&b, 1).await;
    outer.release().await.unwrap();
    let handed = within(secs(3), "handed over", waiter).await.unwrap().unwrap();
    next(&handed, "a hand-over");
    handed.release().await.unwrap();
    // After an end that nobody told of.
    let short = fenced(&a).lock().lease(ms(80)).await.unwrap();
    next(&short, "a short one");
    let after = within(secs(2), "its end", fenced(&b).lock().into_future()).await.unwrap();
    next(&after, "after an expiry");
    assert_eq!(fenced(&a).token().await.unwrap(), after.fencing_token());
    // Forced open, deleted.
    assert!(fenced(&a).force_release().await.unwrap());
    let forced = fenced(&a).try_lock().await.unwrap().expect("free");
    next(&forced, "after force");
    s.probe.run(&["DEL", NAME]).await;
    let deleted = fenced(&b).try_lock().wait(secs(1)).await.unwrap().expect("free");
    let number = next(&deleted, "after a deletion");
    assert_eq!(s.probe.ask::<u64>(&["GET", TOKEN]).await, number);
    deleted.release().await.unwrap();
    drop((short, after, forced));
    s.nothing_is_left(&[&a, &b]).await;
    assert_eq!(s.probe.keys().await, [TOKEN], "the counter stays");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_resource_sees_numbers_that_only_grow_however_holders_come_and_go() {
    let s = scene().await;
    let clients = [s.client().await, s.client().await, s.client().await];
    let (seen, mut tasks) = (Arc::new(Mutex::new(Vec::new())), Vec::new());
    for n in 0..9 {
        let (lock, seen) = (fenced(&clients[n % 3]), seen.clone());
        tasks.push(tokio::spawn(async move {
            for round in 0..25 {
                let guard = match round % 3 {
                    0 => lock.lock().lease(secs(20)).await.unwrap(),
                    _ => lock.lock().await.unwrap(),
                };
                seen.lock().unwrap().push(token(&guard));
                if round % 4 == 0 { drop(guard) } else { guard.release().await.unwrap() }
            }
        }));
    }
    for task in tasks {
        within(secs(20), "the rounds", task).await.unwrap();
    }
    let seen = seen.lock().unwrap().clone();
    assert!(seen.len() == 225 && seen.is_sorted_by(|a, b| a < b), "{seen:?}");
    s.nothing_is_left(&[&clients[0], &clients[1], &clients[2]]).await;
}

#[tokio::test]
async fn a_busy_key_that_does_not_expire_is_no_grant() {
    let s = scene().await;
    let client = s.client().await;
    s.probe.run(&["HSET", NAME, "x:1", "1"]).await;
    assert!(fenced(&client).try_lock().await.unwrap().is_none());
    assert!(fenced(&client).try_lock().wait(ms(80)).await.unwrap().is_none());
    assert!(!s.probe.exists(TOKEN).await, "no number was drawn");
    assert_eq!(s.holders(NAME).await, ["x:1"]);
    forgotten(&client).await;
}

#[tokio::test]
async fn who_does_not_get_the_lock_draws_no_number() {
    let s = scene().await;
    let (a, b) = (s.client().await, s.client().await);
    let guard = fenced(&a).lock().await.unwrap();
    for _ in 0..3 {
        assert!(fenced(&b).try_lock().wait(ms(20)).await.unwrap().is_none());
    }
    assert_eq!(fenced(&b).token().await.unwrap(), guard.fencing_token());
    guard.release().await.unwrap();
    s.nothing_is_left(&[&a, &b]).await;
}

#[tokio::test]
async fn the_counter_never_expires() {
    let s = scene().await;
    let client = s.client().await;
    let endless = || async { assert_eq!(s.probe.ask::<i64>(&["PTTL", TOKEN]).await, -1) };
    let guard = fenced(&client).lock().lease(secs(5)).await.unwrap();
    endless().await;
    guard.extend(secs(9)).await.unwrap();
    endless().await;
    let next = turn(&fenced(&client).into_any());
    s.asleep(&client, 1).await;
    guard.release().await.unwrap();
    within(secs(3), "its turn", next).await.unwrap().unwrap();
    endless().await;
    fenced(&client).lock().await.unwrap().release().await.unwrap();
    endless().await;
    assert!(!fenced(&client).force_release().await.unwrap());
    endless().await;
    s.nothing_is_left(&[&client]).await;
}

#[tokio::test]
async fn a_counter_that_is_no_number_is_refused_and_left_as_it_was() {
    let s = scene().await;
    let client = s.client().await;
    let writes: [&[&str]; 5] = [
        &["SET", TOKEN, "abc"],
        &["SET", TOKEN, "1.5"],
        &["SET", TOKEN, ""],
        &["RPUSH", TOKEN, "1"],
        &["HSET", TOKEN, "1", "1"],
    ];
    for write in writes {
        s.probe.run(&["DEL", TOKEN]).await;
        s.probe.run(write).await;
        let before = s.probe.everything().await;
        is_foreign(within(secs(2), "lock", fenced(&client).lock().into_future()).await, NAME);
        is_foreign(fenced(&client).try_lock().await, NAME);
        is_foreign(within(secs(2), "wait", fenced(&client).try_lock().wait(secs(60)).into_future()).await, NAME);
        forgotten(&client).await;
        assert_eq!(s.probe.everything().await, before, "{write:?}");
        let read = fenced(&client).token().await;
        assert!(matches!(read, Err(Error::UnexpectedReply { .. } | Error::ForeignData { .. })), "{write:?}: {read:?}");
    }
}

#[tokio::test]
async fn a_counter_at_its_end_grants_nothing() {
    let s = scene().await;
    let client = s.client().await;
    let last = i64::MAX.to_string();
    s.probe.run(&["SET", TOKEN, &last]).await;
    let outcome = within(secs(2), "told", fenced(&client).lock().into_future()).await;
    assert!(outcome.is_err(), "{outcome:?}");
    forgotten(&client).await;
    assert_eq!(s.probe.keys().await, [TOKEN], "nothing is half taken");
    assert_eq!(s.probe.ask::<String>(&["GET", TOKEN]).await, last);
}

#[tokio::test]
async fn a_counter_that_becomes_something_else_under_a_holder_does_not_keep_it_from_releasing() {
    let s = scene().await;
    let client = s.client().await;
    let guard = fenced(&client).lock().await.unwrap();
    let waiter = waiting(&fenced(&client).into_any());
    s.asleep(&client, 1).await;
    s.probe.run(&["SET", TOKEN, "abc"]).await;
    let _ = within(secs(2), "released", guard.release()).await;
    let told = within(secs(2), "the waiter is told", waiter).await.unwrap();
    assert!(told.is_err(), "{told:?}");
    eventually(secs(2), "free", || async { !s.probe.exists(NAME).await }).await;
    assert_eq!(s.probe.ask::<String>(&["GET", TOKEN]).await, "abc");
    forgotten(&client).await;
}

#[tokio::test]
async fn only_fenced_grants_have_a_number_and_numbers_compare() {
    let s = scene().await;
    let client = s.client().await;
    for subject in suite::ALL {
        let guard = (subject.lock)(&client, "any").lock().await.unwrap();
        assert_eq!(guard.fencing_token().is_some(), subject.kind == redlatch::Kind::Fenced, "{subject:?}");
        guard.release().await.unwrap();
    }
    let (first, second): (FencingToken, FencingToken);
    first = fenced(&client).lock().await.unwrap().fencing_token().unwrap();
    second = fenced(&client).lock().await.unwrap().fencing_token().unwrap();
    assert!(first < second && first.get() < second.get());
    assert_eq!(second.to_string(), second.get().to_string());
    forgotten(&client).await;
}

#[tokio::test]
async fn the_counter_follows_the_rule_for_braces() {
    let s = scene().await;
    let client = s.client().await;
    for (name, counter) in [("a{b}c", "redisson_lock_token:a{b}c"), ("x}", "redisson_lock_token:{x}}")] {
        client.fenced_lock(name).lock().await.unwrap().release().await.unwrap();
        assert_eq!(s.probe.ask::<Option<u64>>(&["GET", counter]).await, Some(1), "{name}");
    }
    forgotten(&client).await;
}
