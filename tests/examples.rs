//! Every example runs and does what it says. (Its `main` prints what the function called here gives.)
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test ends at the first surprise")]

mod support;

use std::time::{Duration, Instant};

use support::{
    eventually, ms,
    redis::{Probe, Redis},
    secs, within,
};
use tokio::sync::{mpsc, oneshot};

#[path = "../examples/basic.rs"]
#[expect(dead_code, reason = "its `main`")]
mod basic;
#[path = "../examples/beside_java.rs"]
#[expect(dead_code, reason = "its `main`")]
mod beside_java;
#[path = "../examples/fair_queue.rs"]
#[expect(dead_code, reason = "its `main`")]
mod fair_queue;
#[path = "../examples/fencing_token.rs"]
#[expect(dead_code, reason = "its `main`")]
mod fencing_token;
#[path = "../examples/fixed_lease_and_loss.rs"]
#[expect(dead_code, reason = "its `main`")]
mod fixed_lease_and_loss;
#[path = "../examples/non_reentrant.rs"]
#[expect(dead_code, reason = "its `main`")]
mod non_reentrant;
#[path = "../examples/read_write.rs"]
#[expect(dead_code, reason = "its `main`")]
mod read_write;
#[path = "../examples/reentry.rs"]
#[expect(dead_code, reason = "its `main`")]
mod reentry;
#[path = "../examples/shutdown.rs"]
#[expect(dead_code, reason = "its `main`")]
mod shutdown;
#[path = "../examples/spin.rs"]
#[expect(dead_code, reason = "its `main`")]
mod spin;
#[path = "../examples/try_with_wait.rs"]
#[expect(dead_code, reason = "its `main`")]
mod try_with_wait;

const LIMIT: Duration = Duration::from_secs(20);

#[test]
fn every_example_is_run_here() {
    let here = include_str!("examples.rs");
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/examples");
    for file in std::fs::read_dir(folder).unwrap() {
        let name = file.unwrap().file_name().into_string().unwrap();
        assert!(here.contains(&format!("#[path = \"../examples/{name}\"]")), "{name} is not in this test");
    }
}

#[tokio::test]
async fn basic_loses_no_addition() {
    let redis = Redis::start();
    let sum = within(LIMIT, "the example", basic::run(&redis.url())).await;
    assert_eq!(sum.unwrap(), 40);
    nothing_is_left(&redis.probe().await).await;
}

#[tokio::test]
async fn try_with_wait_gets_the_lock_only_when_it_is_released() {
    let redis = Redis::start();
    let started = Instant::now();
    let told = within(LIMIT, "the example", try_with_wait::run(&redis.url())).await.unwrap();
    assert_eq!(told, try_with_wait::Told { at_once: false, after_a_short_wait: false, released_meanwhile: true });
    assert!((ms(50)..secs(5)).contains(&started.elapsed()), "{:?}", started.elapsed());
    nothing_is_left(&redis.probe().await).await;
}

#[tokio::test]
async fn reentry_counts_and_keeps_strangers_out() {
    let redis = Redis::start();
    let steps = within(LIMIT, "the example", reentry::run(&redis.url())).await.unwrap();
    let expected = [
        "inside the call: 2",
        "after the call: 1",
        "another owner gets it: false",
        "one of two released: 1",
        "both released, locked: false",
    ];
    assert_eq!(steps, expected);
    nothing_is_left(&redis.probe().await).await;
}

#[tokio::test]
async fn fixed_lease_and_loss_stops_the_work_that_takes_too_long() {
    let redis = Redis::start();
    let steps = within(LIMIT, "the example", fixed_lease_and_loss::run(&redis.url())).await.unwrap();
    let expected = [
        "in time: 42",
        "the long work was stopped, completed: false",
        "still valid: false, time left: 0ns",
        "the release tells of the loss too",
    ];
    assert_eq!(steps, expected);
}

#[tokio::test]
async fn shutdown_leaves_no_lock_behind() {
    let redis = Redis::start();
    let probe = redis.probe().await;
    let (stop, stopped) = oneshot::channel::<()>();
    let watched = probe.clone();
    let watcher = tokio::spawn(async move {
        // Told to stop in the middle of its work.
        eventually(LIMIT, "the first round", || watched.exists("examples:shutdown")).await;
        stop.send(()).unwrap();
    });
    let rounds = within(LIMIT, "the example", shutdown::run(&redis.url(), async { stopped.await.unwrap() })).await;
    watcher.await.unwrap();
    assert!(rounds.unwrap() > 0);
    nothing_is_left(&probe).await;
}

#[tokio::test]
async fn beside_java_waits_for_the_other_side() {
    let redis = Redis::start();
    let probe = redis.probe().await;
    // What Redisson's `lock()` writes.
    let java = "5c3f7a0e-8b0c-4c1f-9d38-1c6f3b6a7e11:52";
    probe.run(&["HSET", "order:42", java, "1"]).await;
    probe.run(&["PEXPIRE", "order:42", "30000"]).await;

    let (tell, mut told) = mpsc::unbounded_channel();
    let url = redis.url();
    let ours = tokio::spawn(async move { beside_java::run(&url, "order:42", |state| tell.send(state).unwrap()).await });
    let state = within(LIMIT, "the first word", told.recv()).await.unwrap();
    assert!(state.starts_with("order:42 is held, for "), "{state}");
    let channel = "redisson_lock__channel:{order:42}";
    eventually(LIMIT, "waiting in earnest", async || probe.channels().await == [channel]).await;
    assert_eq!(probe.ask::<Vec<String>>(&["HKEYS", "order:42"]).await, [java]);

    // What Redisson's `unlock()` does.
    probe.run(&["DEL", "order:42"]).await;
    probe.run(&["PUBLISH", channel, "0"]).await;
    let state = within(LIMIT, "the second word", told.recv()).await.unwrap();
    assert!(state.starts_with("our turn as "), "{state}");
    assert!(within(LIMIT, "the example", ours).await.unwrap().unwrap());
    nothing_is_left(&probe).await;
}

#[tokio::test]
async fn fair_queue_serves_in_the_order_of_arrival() {
    let redis = Redis::start();
    let served = within(LIMIT, "the example", fair_queue::run(&redis.url())).await.unwrap();
    assert_eq!(served, [0, 1, 2, 3, 4, 5]);
    nothing_is_left(&redis.probe().await).await;
}

#[tokio::test]
async fn read_write_lets_readers_in_together_and_writers_alone() {
    let redis = Redis::start();
    let steps = within(LIMIT, "the example", read_write::run(&redis.url())).await.unwrap();
    let expected = [
        "two read, a writer gets in: false",
        "one writes, a reader gets in: false",
        "it only reads now, a reader gets in: true",
        "asks to write again, refused: true",
        "nobody reads, a writer gets in: true",
    ];
    assert_eq!(steps, expected);
    nothing_is_left(&redis.probe().await).await;
}

#[tokio::test]
async fn fencing_token_keeps_the_paused_holder_from_writing() {
    let redis = Redis::start();
    let steps = within(LIMIT, "the example", fencing_token::run(&redis.url())).await.unwrap();
    let expected = [
        "the first writes: true",
        "the next has a higher number: true",
        "the next writes: true",
        "the first writes again: false",
        "the order is shipped",
    ];
    assert_eq!(steps, expected);
    let probe = redis.probe().await;
    // The counter must not start again.
    assert_eq!(probe.keys().await, ["redisson_lock_token:{examples:fencing_token}"]);
    eventually(LIMIT, "the last subscription to end", async || probe.channels().await.is_empty()).await;
}

#[tokio::test]
async fn spin_has_the_lock_after_one_pause_at_most() {
    let redis = Redis::start();
    let late = within(LIMIT, "the example", spin::run(&redis.url())).await.unwrap();
    assert!(late < secs(1), "{late:?}");
    nothing_is_left(&redis.probe().await).await;
}

#[tokio::test]
async fn non_reentrant_refuses_the_job_that_holds_it() {
    let redis = Redis::start();
    let steps = within(LIMIT, "the example", non_reentrant::run(&redis.url())).await.unwrap();
    let expected = [
        "`examples:non_reentrant` is held by this very job",
        "another job gets it: false",
        "after the release the job does again: true",
    ];
    assert_eq!(steps, expected);
    nothing_is_left(&redis.probe().await).await;
}

/// No key is left, and soon no subscription.
async fn nothing_is_left(probe: &Probe) {
    assert_eq!(probe.keys().await, Vec::<String>::new());
    eventually(LIMIT, "the last subscription to end", async || probe.channels().await.is_empty()).await;
}
