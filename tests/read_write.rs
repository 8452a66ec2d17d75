//! The read/write lock: readers together or one writer, and what is written for each.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test that cannot go on ends here")]

#[path = "read_write/gone.rs"]
mod gone;
#[path = "read_write/keys.rs"]
mod keys;
#[path = "read_write/modes.rs"]
mod modes;
#[path = "support/suite.rs"]
mod suite;
mod support;
#[path = "read_write/together.rs"]
mod together;

use std::time::Duration;

use redlatch::{Client, OwnerId, ReadWriteLock};
use suite::scene::{NAME, Scene};

suite::suite!(read, READ);
suite::suite!(write, WRITE);

const CHANNEL: &str = "redisson_rwlock:{orders}";

async fn scene() -> Scene {
    Scene::new(&suite::READ).await
}

fn both(client: &Client) -> ReadWriteLock {
    client.read_write_lock(NAME)
}

/// The key that says that this read hold of the owner lives.
fn hold_key(owner: &OwnerId, number: u64) -> String {
    suite::suffixed(NAME, &format!("{owner}:rwlock_timeout:{number}"))
}

/// How long the key has to live; it must be there, and expire.
async fn left(s: &Scene, key: &str) -> Duration {
    let left: i64 = s.probe.ask(&["PTTL", key]).await;
    assert!(left >= 0, "{key}: {left}");
    Duration::from_millis(left as u64)
}

/// The fields of the hash and their values, sorted.
async fn fields(s: &Scene) -> Vec<(String, String)> {
    let mut fields: Vec<(String, String)> = s.probe.ask(&["HGETALL", NAME]).await;
    fields.sort();
    fields
}
