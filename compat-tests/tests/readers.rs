//! Many readers of both languages on one read/write lock.

#[path = "readers/slow_log.rs"]
mod slow_log;
mod support;

use std::future::IntoFuture;
use std::time::Duration;

use compat_tests::{Api, JavaLock, LockKind, Outcome, Peer, SharedRedis, full_run, hold_key, within};
use futures_util::future::try_join_all;
use redlatch::{Client, Guard};
use slow_log::Times;
use support::holder::Holder;
use support::{Pair, wait_as};
use tokio::time::{Instant, sleep};

use LockKind::{Read, Write};

const SECOND: Duration = Duration::from_secs(1);
/// A third of it is the period of the renewals.
const WATCHDOG: Duration = Duration::from_secs(3);
/// Four and a half periods: whoever is not renewed is gone by then.
const WATCHED: Duration = Duration::from_millis(4_500);
/// Of the one that dies. Longer than all the others are watched and one more watchdog timeout, so that whatever a waiter
/// was told about the live ones ends before it.
const LEASE: Duration = Duration::from_secs(9);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Language {
    Java,
    Rust,
}

#[tokio::test]
async fn a_java_reader_that_dies_keeps_a_writer_out_no_longer_than_its_lease() -> Outcome {
    one_of_fifty_dies(Language::Java, Language::Rust).await?;
    if full_run() {
        one_of_fifty_dies(Language::Java, Language::Java).await?;
    }
    Ok(())
}

#[tokio::test]
async fn a_rust_reader_that_dies_keeps_a_writer_out_no_longer_than_its_lease() -> Outcome {
    one_of_fifty_dies(Language::Rust, Language::Java).await?;
    if full_run() {
        one_of_fifty_dies(Language::Rust, Language::Rust).await?;
    }
    Ok(())
}

/// Those that live keep all their hold keys, and the dead one's time is the time that its own key has left.
async fn one_of_fifty_dies(dies: Language, writes: Language) -> Outcome {
    let pair = Pair::with_watchdog(WATCHDOG).await?;
    let doomed = Peer::start(&pair.redis).await?;
    let reads = Read.in_rust(&pair.client, "order");
    let guards: Vec<Guard> = try_join_all((0..25).map(|_| reads.lock().into_future())).await?;
    let threads = (1000..1024).map(|thread| pair.peer.lock_of(Read, "order", thread));
    let readers: Vec<JavaLock<'_>> = threads.collect();
    try_join_all(readers.iter().map(|reader| reader.lock().into_future())).await?;
    let dead = match dies {
        Language::Java => {
            let dead = doomed.lock_of(Read, "order", 1000);
            dead.lock_for(LEASE).await?;
            doomed.kill9()?;
            dead.owner()
        }
        Language::Rust => {
            let mut dead = Holder::of(Read, "order").lease(Some(LEASE)).start(&pair.redis).await?;
            dead.holds().await?;
            dead.kill9().await?;
            dead.owner().to_owned()
        }
    };
    // Its lease began a little earlier.
    let began = Instant::now();
    assert_eq!(pair.redis.hash("order").await?.len(), 51, "fifty readers, and the mode");
    let writer = pair.peer.lock_of(Write, "order", 5000).through(Api::Sync);
    let mut java_waits = (writes == Language::Java).then(|| writer.lock());
    let owner = pair.client.owner();
    let rust_waits =
        (writes == Language::Rust).then(|| wait_as(&Write.in_rust(&pair.client, "order").owned_by(&owner)));

    let owners = guards.iter().map(|guard| guard.owner().to_string()).chain(readers.iter().map(JavaLock::owner));
    let keys: Vec<String> = owners.map(|owner| hold_key("order", &owner, 1)).collect();
    let watched = Instant::now();
    while watched.elapsed() < WATCHED {
        for (key, left) in keys.iter().zip(times_left(&pair.redis, &keys).await?) {
            assert!(left > 0, "{key} has lapsed ({left}) after {:?}", watched.elapsed());
        }
        assert!(pair.redis.pttl("order").await? > 0);
        sleep(Duration::from_millis(20)).await;
    }
    assert!(guards.iter().all(Guard::is_valid));

    try_join_all(guards.into_iter().map(Guard::release)).await?;
    try_join_all(readers.iter().map(|reader| reader.unlock().into_future())).await?;
    // Old versions renew the hold keys of all readers, to their own timeout: this one then lapses earlier than its reader
    // meant, but a writer sleeps as long as it was told.
    let (released, own) = (Instant::now(), LEASE.saturating_sub(began.elapsed()));
    let left = pair.redis.pttl(&hold_key("order", &dead, 1)).await?;
    let left = Duration::from_millis(u64::try_from(left)?);
    assert!(left <= own + SECOND / 10, "{left:?} left, {own:?} of its lease");
    let what = format!("the grant of the writer {left:?} after the others left");
    if let Some(waiting) = java_waits.take() {
        within(own + SECOND, &what, waiting).await??;
        writer.unlock().await?;
    }
    if let Some(waiting) = rust_waits {
        let (guard, _) = within(own + SECOND, &what, waiting).await???;
        guard.release().await?;
    }
    let waited = released.elapsed();
    println!("{dies:?} died with {left:?} of its lease to go, {writes:?} wrote after {waited:?}");
    assert!(waited + SECOND / 10 >= left, "the dead one's lease was cut: {waited:?} of {left:?}");
    Ok(())
}

async fn times_left(redis: &SharedRedis, keys: &[String]) -> Outcome<Vec<i64>> {
    let mut pipe = redis::pipe();
    for key in keys {
        pipe.pttl(key);
    }
    Ok(pipe.query_async(&mut redis.admin()).await?)
}

/// What one script costs the server grows with the readers, in either language: a release of Redisson's looks at all of
/// them, a refused writer of ours does. Ours is no slower than Redisson's.
#[tokio::test]
async fn no_script_of_ours_is_slower_than_redissons_with_thousands_of_readers() -> Outcome {
    let pair = Pair::start().await?;
    let another = pair.another_client().await?;
    // Renewals go on beside the calls that are counted, and with so many holds of one client they are work for it.
    let patient = Client::builder().url(pair.redis.url()).watchdog_timeout(Duration::from_secs(3_600));
    let client = patient.connect().await?;
    let count = if full_run() { 5_000 } else { 500 };
    // A first, small round loads the scripts.
    for count in [count / 10, count / 5, count] {
        let mut rust = Times::start(&pair.redis).await?;
        let reads = Read.in_rust(&client, "order");
        let mut guards = Vec::new();
        for _ in 0..count {
            guards.push(reads.lock().await?);
        }
        rust.phase("acquire", 0.99).await?;
        for _ in 0..REFUSALS {
            assert!(Write.in_rust(&another, "order").try_lock().await?.is_none());
        }
        rust.phase("refused writer", 0.5).await?;
        for guard in guards {
            guard.release().await?;
        }
        rust.phase("release", 0.99).await?;

        let mut java = Times::start(&pair.redis).await?;
        let readers: Vec<_> = (10_000..10_000 + count).map(|thread| pair.peer.lock_of(Read, "order", thread)).collect();
        for some in readers.chunks(50) {
            try_join_all(some.iter().map(|reader| reader.lock().into_future())).await?;
        }
        java.phase("acquire", 0.99).await?;
        for _ in 0..REFUSALS {
            assert!(!pair.peer.lock_of(Write, "order", 1000).try_lock().await?);
        }
        java.phase("refused writer", 0.5).await?;
        for some in readers.chunks(50) {
            try_join_all(some.iter().map(|reader| reader.unlock().into_future())).await?;
        }
        java.phase("release", 0.99).await?;
        println!("{count} readers, server time of scripts in us\n  Rust {rust}\n  Java {java}");
        assert_eq!(pair.redis.pttl("order").await?, -2, "all have left");
        // With few readers it is the overhead of a call that is measured.
        if count >= 500 {
            let (ours, theirs) = (rust.typical_worst(), java.typical_worst());
            assert!(ours as f64 <= 1.2 * theirs as f64, "{ours} us, Redisson's {theirs} us");
        }
    }
    Ok(())
}

const REFUSALS: usize = 21;
