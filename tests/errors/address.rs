//! The way to the server, and the login.

use std::{future::IntoFuture, net::TcpListener, time::Duration};

use redlatch::{Action, Client, Error, Fault, Misuse};
use tokio::time::Instant;

use crate::{
    fails,
    support::{forgotten, ms, redis::Redis, secs, within},
};

#[tokio::test]
async fn a_url_that_cannot_be_understood_is_named_without_its_password() {
    for (url, shown) in [
        ("", ""),
        ("nonsense", "nonsense"),
        ("http://u:secret@h:1", "http://u:***@h:1"),
        ("redis://u:secret@h:notaport", "redis://u:***@h:notaport"),
        ("redis://u:secret@h:1/notanumber", "redis://u:***@h:1/notanumber"),
        ("rediss://u:secret@h:1", "rediss://u:***@h:1"),
    ] {
        let error = Client::connect(url).await.expect_err("cannot be understood");
        match &error {
            Error::Misuse(Misuse::BadUrl { url, .. }) => assert_eq!(url, shown),
            other => panic!("{url}: {other:?}"),
        }
        let text = error.to_string();
        assert!(text.contains(shown) && text.contains("use redis://"), "{text}");
        assert!(!format!("{error:?} {text}").contains("secret"), "{text}");
    }
}

#[test]
fn outside_a_runtime_connecting_is_a_misuse() {
    let connecting = Client::builder().connect();
    let mut connecting = std::pin::pin!(connecting);
    let mut context = std::task::Context::from_waker(std::task::Waker::noop());
    match connecting.as_mut().poll(&mut context) {
        std::task::Poll::Ready(Err(error)) => {
            assert!(matches!(error, Error::Misuse(Misuse::NoRuntime)), "{error:?}");
            assert!(error.to_string().contains("call this inside one"), "{error}");
        }
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn no_server_is_an_error_at_once_that_names_the_address() {
    let free = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let refused = within(secs(2), "refusal", Client::connect(&format!("redis://{free}"))).await;
    fails(refused, Action::Connect, Fault::Unreachable, &free.to_string());
    let no_socket = within(secs(2), "refusal", Client::connect("unix:///nowhere/redis.sock")).await;
    fails(no_socket, Action::Connect, Fault::Unreachable, "/nowhere/redis.sock");
}

#[tokio::test]
async fn a_server_that_never_answers_is_given_up_after_the_connect_timeout() {
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = silent.local_addr().unwrap();
    let connecting = Client::builder().url(format!("redis://{address}")).connect_timeout(ms(200)).connect();
    let given_up = within(secs(2), "the bound", connecting).await;
    let text = given_up.as_ref().err().map(ToString::to_string).unwrap_or_default();
    assert!(!text.contains("response_timeout"), "that is not the setting: {text}");
    fails(given_up, Action::Connect, Fault::TimedOut, &address.to_string());
}

#[tokio::test]
async fn a_server_that_went_away_is_an_error_within_wait_and_response_timeout() {
    let redis = Redis::start();
    let builder = redis.builder().response_timeout(ms(300)).watchdog_timeout(ms(500));
    let client = builder.connect().await.unwrap();
    let lock = client.lock("orders");
    lock.lock().await.unwrap().release().await.unwrap();
    drop(redis);
    fails(within(secs(2), "lock", lock.lock().into_future()).await, Action::Acquire, Fault::Unreachable, "orders");
    fails(within(secs(2), "try", lock.try_lock().into_future()).await, Action::Acquire, Fault::Unreachable, "orders");
    fails(within(secs(2), "query", lock.is_locked()).await, Action::Query, Fault::Unreachable, "orders");
    fails(within(secs(2), "force", lock.force_release()).await, Action::ForceRelease, Fault::Unreachable, "orders");
    // A command whose end nobody could enforce is remembered for some seconds beyond its lease.
    let empty = redlatch::Stats::default();
    crate::support::eventually(secs(20), "forgotten", || async { client.stats() == empty }).await;
}

#[tokio::test]
async fn a_stopped_server_holds_a_wait_up_by_one_response_timeout_at_most() {
    let redis = Redis::start();
    let client = redis.builder().response_timeout(ms(300)).connect().await.unwrap();
    let lock = client.lock("orders");
    lock.lock().await.unwrap().release().await.unwrap();
    redis.signal("STOP");
    for wait in [Duration::ZERO, ms(100), ms(500)] {
        let started = Instant::now();
        let outcome = lock.try_lock().lease(secs(1)).wait(wait).await;
        // An attempt that stays unresolved is an error, never "not granted".
        let error = outcome.expect_err("nobody answers");
        let fault = matches!(error, Error::Redis { fault: Fault::TimedOut | Fault::Unreachable, .. });
        assert!(fault && error.to_string().contains("orders"), "{error:?}");
        let took = started.elapsed();
        assert!(took < wait.max(ms(300)) + ms(300) + ms(400), "a wait of {wait:?} took {took:?}");
    }
    redis.signal("CONT");
    let probe = redis.probe().await;
    forgotten(&client).await;
    assert_eq!(probe.keys().await, Vec::<String>::new(), "what came through late was given back");
}

#[tokio::test]
async fn a_wrong_password_is_refused_without_being_shown() {
    let redis = Redis::with(&["--requirepass", "right"]);
    let address = format!("127.0.0.1:{}", redis.port());
    for builder in [
        Client::builder().url(format!("redis://:wr0ng-secret@{address}")),
        Client::builder().url(format!("redis://nobody:wr0ng-secret@{address}")),
        redis.builder().username("nobody").password("wr0ng-secret"),
    ] {
        assert!(!format!("{builder:?}").contains("wr0ng-secret"));
        let refused = within(secs(2), "refusal", builder.connect()).await;
        assert!(!format!("{refused:?}").contains("wr0ng-secret"));
        fails(refused, Action::Connect, Fault::AuthFailed, &address);
    }
    let client = redis.builder().password("right").connect().await.unwrap();
    client.lock("orders").lock().await.unwrap().release().await.unwrap();
}

#[tokio::test]
async fn a_missing_password_is_refused_on_connecting() {
    let redis = Redis::with(&["--requirepass", "right"]);
    let refused = within(secs(2), "refusal", redis.builder().connect()).await;
    fails(refused, Action::Connect, Fault::AuthFailed, &format!("127.0.0.1:{}", redis.port()));
}

#[tokio::test]
async fn a_database_that_is_not_there_is_refused_on_connecting() {
    let redis = Redis::start();
    let error = redis.builder().database(99).connect().await.expect_err("there are 16");
    assert!(matches!(error, Error::Redis { doing: Action::Connect, .. }), "{error:?}");
    assert!(error.to_string().contains("99") || error.to_string().contains("database"), "{error}");
}
