//! Replies of a shape that no script of ours produces.

use std::{fmt::Debug, future::IntoFuture};

use redlatch::{Client, Error};

use crate::{
    advises,
    fake::{Asked, Fake},
    support::{Reports, eventually, forgotten, ms, secs, within},
};

/// Well-formed, but out of place in every reply.
const ODD: [&str; 7] =
    ["+OK\r\n", "$2\r\nhi\r\n", "*0\r\n", "*1\r\n*0\r\n", "*3\r\n:1\r\n:1\r\n:1\r\n", ":-9\r\n", "*1\r\n$1\r\n1\r\n"];

fn is_unexpected<T: Debug>(result: Result<T, Error>, script: &str) {
    match result {
        Err(error @ Error::UnexpectedReply { .. }) => {
            let named =
                matches!(&error, Error::UnexpectedReply { key, script: s, .. } if key == "orders" && *s == script);
            assert!(named && error.to_string().contains("orders"), "{error:?}");
        }
        other => panic!("{script}: {other:?}"),
    }
}

async fn client(fake: &Fake) -> Client {
    Client::builder().url(fake.url()).response_timeout(ms(500)).connect().await.unwrap()
}

#[tokio::test]
async fn an_odd_answer_to_a_take_is_an_error_that_names_the_key() {
    let fake = Fake::with(&[]).await;
    let client = client(&fake).await;
    let lock = client.lock("orders");
    for (number, odd) in ODD.into_iter().enumerate() {
        fake.answer(Asked::Acquire, odd);
        is_unexpected(within(secs(1), "take", lock.lock().into_future()).await, "lock_acquire");
        let waiting = lock.try_lock().wait(secs(60)).into_future();
        is_unexpected(within(secs(1), "wait", waiting).await, "lock_acquire");
        assert_eq!(fake.asked(Asked::Acquire), 2 * (number + 1), "one question each");
        forgotten(&client).await;
    }
    assert!(fake.connections() <= 2, "the connections are kept");
}

#[tokio::test]
async fn the_message_about_an_odd_answer_says_what_to_do() {
    let fake = Fake::with(&[(Asked::Acquire, "+OK\r\n")]).await;
    let error = client(&fake).await.lock("orders").lock().await.expect_err("no such answer");
    advises(&error, "orders");
}

#[tokio::test]
async fn what_an_odd_answer_may_have_granted_is_given_back() {
    let fake = Fake::with(&[(Asked::Acquire, "+OK\r\n")]).await;
    let client = client(&fake).await;
    is_unexpected(client.lock("orders").lock().await, "lock_acquire");
    forgotten(&client).await;
    assert_eq!(fake.asked(Asked::Release), 1, "nothing half taken may stay");
}

#[tokio::test]
async fn an_odd_answer_to_a_release_is_an_error_that_names_the_key() {
    let fake = Fake::with(&[]).await;
    let client = client(&fake).await;
    // Any number is a count here.
    for odd in ODD.into_iter().filter(|odd| !odd.starts_with(':')) {
        let guard = client.lock("orders").lock().await.unwrap();
        fake.answer(Asked::Release, odd);
        is_unexpected(within(secs(1), "release", guard.release()).await, "lock_release");
        forgotten(&client).await;
        fake.answer(Asked::ForceRelease, odd);
        is_unexpected(client.lock("orders").force_release().await, "lock_force_release");
    }
}

#[tokio::test]
async fn an_odd_answer_to_a_query_is_an_error_that_names_the_key() {
    let fake = Fake::with(&[]).await;
    let client = client(&fake).await;
    let (lock, owner) = (client.lock("orders"), client.owner());
    for odd in ["$2\r\nhi\r\n", "*1\r\n*0\r\n"] {
        fake.answer(Asked::Query, odd);
        is_unexpected(lock.is_locked().await, "query");
        is_unexpected(lock.is_held_by(&owner).await, "query");
        is_unexpected(lock.hold_count(&owner).await, "query");
        is_unexpected(lock.remaining_ttl().await, "query");
        is_unexpected(lock.owned_by(&owner).release().await, "query");
    }
}

#[tokio::test]
async fn an_odd_answer_to_a_renewal_is_reported_and_ends_in_the_loss_of_the_hold() {
    let fake = Fake::with(&[(Asked::Renew, "+OK\r\n")]).await;
    let reports = Reports::default();
    let builder = reports.of(Client::builder().url(fake.url()).watchdog_timeout(ms(300)));
    let client = builder.connect().await.unwrap();
    let guard = client.lock("orders").lock().await.unwrap();
    within(ms(400), "lost", guard.lost()).await;
    assert!((1..=30).contains(&fake.asked(Asked::Renew)), "{} renewals of one lease", fake.asked(Asked::Renew));
    let told = reports.all();
    is_unexpected(Err::<(), _>(told.first().expect("reported").clone()), "lock_renew");
    assert!(matches!(guard.release().await, Err(Error::LeaseLost(_))));
    forgotten(&client).await;
    let renewals = fake.asked(Asked::Renew);
    client.lock("other").lock().await.unwrap().release().await.unwrap();
    assert_eq!(fake.asked(Asked::Renew), renewals, "what is lost is not renewed");
}

#[tokio::test]
async fn an_odd_answer_to_an_extension_leaves_the_hold_as_it_was() {
    let fake = Fake::with(&[(Asked::Renew, "*2\r\n:1\r\n:1\r\n")]).await;
    let client = client(&fake).await;
    let guard = client.lock("orders").lock().lease(secs(60)).await.unwrap();
    is_unexpected(guard.extend(secs(600)).await, "lock_renew");
    assert!(guard.is_valid() && guard.valid_for() <= secs(60));
}

#[tokio::test]
async fn an_odd_answer_to_a_hand_over_is_reported_and_the_lock_goes_the_long_way() {
    let fake = Fake::with(&[(Asked::Transfer, "+OK\r\n")]).await;
    let reports = Reports::default();
    let client = reports.of(Client::builder().url(fake.url())).connect().await.unwrap();
    let lock = client.lock("orders");
    let guard = lock.lock().await.unwrap();
    fake.answer(Asked::Acquire, ":30000\r\n");
    let waiter = tokio::spawn({
        let lock = lock.clone();
        async move { lock.lock().await?.release().await }
    });
    eventually(secs(2), "waits", || async { client.stats().waiters == 1 && fake.asked(Asked::Acquire) == 2 }).await;
    eventually(secs(2), "asleep", || async { client.stats().in_flight == 0 }).await;
    fake.answer(Asked::Acquire, "$-1\r\n");
    guard.release().await.unwrap();
    within(secs(2), "granted", waiter).await.unwrap().unwrap();
    forgotten(&client).await;
    assert_eq!(fake.asked(Asked::Transfer), 1);
    is_unexpected(Err::<(), _>(reports.all().first().expect("reported").clone()), "lock_transfer");
}

#[tokio::test]
async fn a_server_that_breaks_the_protocol_is_not_hammered() {
    for asked in [Asked::Acquire, Asked::Release] {
        let fake = Fake::with(&[(asked, "?no such type\r\n")]).await;
        // A release is tried for one watchdog timeout at least.
        let builder = Client::builder().url(fake.url()).response_timeout(ms(500)).watchdog_timeout(secs(1));
        let client = builder.connect().await.unwrap();
        let outcome =
            within(secs(3), "the bound", async { client.lock("orders").lock().lease(secs(1)).await?.release().await });
        let error = outcome.await.expect_err("it never answers");
        assert!(matches!(&error, Error::Redis { key, .. } if key == "orders"), "{error:?}");
        advises(&error, "orders");
        let bound = 60;
        assert!(fake.asked(asked) <= bound, "{asked:?} was sent {} times", fake.asked(asked));
        assert!(fake.connections() <= bound, "{} connections", fake.connections());
        // A command whose end nobody could enforce is remembered for some seconds beyond its lease.
        let empty = redlatch::Stats::default();
        eventually(secs(20), "forgotten", || async { client.stats() == empty }).await;
        assert!(fake.connections() <= 2 * bound, "{} connections in the end", fake.connections());
    }
}
