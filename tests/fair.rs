//! The fair lock: its queue in Redis decides who is next, whatever process that is in.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test that cannot go on ends here")]

#[path = "fair/crowd.rs"]
mod crowd;
#[path = "fair/dead.rs"]
mod dead;
#[path = "fair/leaving.rs"]
mod leaving;
#[path = "fair/order.rs"]
mod order;
#[path = "fair/patience.rs"]
mod patience;
#[path = "support/suite.rs"]
mod suite;
mod support;

use redlatch::{Client, Error, FairLock, Guard, OwnerId};
use suite::scene::{NAME, Scene};
use support::{eventually, secs};
use tokio::task::JoinHandle;

suite::suite!(fair, FAIR);

const QUEUE: &str = "redisson_lock_queue:{orders}";
const TIMEOUTS: &str = "redisson_lock_timeout:{orders}";
const CHANNEL: &str = "redisson_lock__channel:{orders}";

async fn scene() -> Scene {
    Scene::new(&suite::FAIR).await
}

fn fair(client: &Client) -> FairLock {
    client.fair_lock(NAME)
}

/// The queue in Redis, head first.
async fn line(s: &Scene) -> Vec<String> {
    s.probe.ask(&["LRANGE", QUEUE, "0", "-1"]).await
}

/// So many stand in it.
async fn queued(s: &Scene, number: usize) {
    eventually(secs(5), "they stand in line", || async { line(s).await.len() == number }).await;
}

/// When others may throw this one out, in the server's time.
async fn score(s: &Scene, owner: &str) -> Option<i64> {
    s.probe.ask::<Option<f64>>(&["ZSCORE", TIMEOUTS, owner]).await.map(|score| score as i64)
}

/// The server's clock in ms.
async fn server_time(s: &Scene) -> i64 {
    let (secs, micros): (i64, i64) = s.probe.ask(&["TIME"]).await;
    secs * 1000 + micros / 1000
}

/// Puts somebody into line who is not of this program, and gives it a score so many ms from now; tells the score.
async fn stands_in_line(s: &Scene, owner: &str, score_in: i64) -> i64 {
    let score = server_time(s).await + score_in;
    s.probe.run(&["RPUSH", QUEUE, owner]).await;
    s.probe.run(&["ZADD", TIMEOUTS, &score.to_string(), owner]).await;
    score
}

/// Waits for this owner, in a task.
fn waits(lock: &FairLock, owner: &OwnerId) -> JoinHandle<Result<Guard, Error>> {
    tokio::spawn(std::future::IntoFuture::into_future(lock.owned_by(owner).lock()))
}

#[tokio::test]
async fn a_free_fair_lock_is_taken_and_released_with_one_command_each() {
    let s = scene().await;
    let client = s.client().await;
    fair(&client).lock().await.unwrap().release().await.unwrap();
    s.probe.run(&["CONFIG", "RESETSTAT"]).await;
    for _ in 0..50 {
        fair(&client).lock().await.unwrap().release().await.unwrap();
    }
    assert_eq!(s.probe.calls(&["evalsha"]).await, 100);
    assert_eq!(s.probe.calls(&["eval", "script|load", "subscribe"]).await, 0);
    s.nothing_is_left(&[&client]).await;
}

#[tokio::test]
async fn side_keys_of_another_type_are_refused_and_left_as_they_were() {
    for key in [QUEUE, TIMEOUTS] {
        let s = scene().await;
        let client = s.client().await;
        s.probe.run(&["SET", key, "42"]).await;
        let before = s.probe.everything().await;
        suite::scene::is_foreign(fair(&client).lock().await, NAME);
        suite::scene::is_foreign(fair(&client).try_lock().await, NAME);
        suite::scene::is_foreign(fair(&client).try_lock().wait(secs(9)).await, NAME);
        support::forgotten(&client).await;
        assert_eq!(s.probe.everything().await, before);
    }
}
