//! A holder that dies, and one that lives on its watchdog alone: in either language, with the other one waiting.

mod support;

use std::time::{Duration, Instant};

use compat_tests::{Api, Failure, LockKind, Outcome, Peer, SharedRedis, channel_of, within};
use redlatch::Client;
use support::Pair;
use support::holder::Holder;
use tokio::time::sleep;

const WATCHDOG: Duration = Duration::from_millis(1500);
/// A grant may come so much after the key has expired.
const GRACE: Duration = Duration::from_secs(1);

#[tokio::test]
async fn a_killed_java_holder_frees_the_lock_within_its_lease() -> Outcome {
    let pair = Pair::with_watchdog(WATCHDOG).await?;
    for lease in [None, Some(Duration::from_secs(2))] {
        let holder = Peer::options().watchdog(WATCHDOG).start(&pair.redis).await?;
        let java = holder.lock("order", 1000);
        match lease {
            None => java.lock().await?,
            Some(lease) => java.lock_for(lease).await?,
        }
        let waiting = tokio::spawn(pair.client.lock("order").lock().into_future());
        pair.redis.listeners(&channel_of("order"), 1).await?;
        holder.kill9()?;
        let (left, killed) = (time_left(&pair.redis).await?, Instant::now());
        let guard = within(left + GRACE, "the grant after Java was killed", waiting).await???;
        assert!(killed.elapsed() + Duration::from_millis(5) >= left, "{:?} of {left:?}", killed.elapsed());
        guard.release().await?;
    }
    Ok(())
}

#[tokio::test]
async fn a_killed_rust_holder_frees_the_lock_within_its_lease() -> Outcome {
    let pair = Pair::with_watchdog(WATCHDOG).await?;
    for (api, lease) in [(Api::Async, None), (Api::Sync, None), (Api::Sync, Some(Duration::from_secs(2)))] {
        let mut holder = Holder::of(LockKind::Lock, "order").watchdog(WATCHDOG).lease(lease).start(&pair.redis).await?;
        holder.holds().await?;
        let java = pair.peer.lock("order", 1000).through(api);
        let scripts = pair.redis.scripts_run().await?;
        let waiting = java.lock();
        java.sleeps(&pair.redis, scripts).await?;
        assert_eq!(pair.redis.hash("order").await?, [(holder.owner().to_owned(), "1".into())].into());
        holder.kill9().await?;
        let (left, killed) = (time_left(&pair.redis).await?, Instant::now());
        within(left + GRACE, "the grant after Rust was killed", waiting).await??;
        assert!(killed.elapsed() + Duration::from_millis(5) >= left, "{:?} of {left:?}", killed.elapsed());
        java.unlock().await?;
    }
    Ok(())
}

#[tokio::test]
async fn a_watchdog_hold_of_rust_outlives_three_leases_and_keeps_java_out() -> Outcome {
    let pair = Pair::with_watchdog(WATCHDOG).await?;
    let guard = pair.client.lock("order").lock().await?;
    let java = pair.peer.lock("order", 1000);
    let began = Instant::now();
    while began.elapsed() < 3 * WATCHDOG + WATCHDOG / 2 {
        assert!(!java.try_lock().await?, "granted to Java after {:?}", began.elapsed());
        assert!(time_left(&pair.redis).await? > Duration::ZERO);
        sleep(Duration::from_millis(50)).await;
    }
    assert!(guard.is_valid());
    guard.release().await?;
    assert!(java.try_lock().await?);
    Ok(())
}

#[tokio::test]
async fn a_watchdog_hold_of_java_outlives_three_leases_and_keeps_rust_out() -> Outcome {
    let pair = Pair::with_watchdog(WATCHDOG).await?;
    let lock = pair.client.lock("order");
    for api in [Api::Async, Api::Sync] {
        let java = pair.peer.lock("order", 1000).through(api);
        java.lock().await?;
        let began = Instant::now();
        while began.elapsed() < 3 * WATCHDOG + WATCHDOG / 2 {
            assert!(lock.try_lock().await?.is_none(), "granted to Rust after {:?}", began.elapsed());
            assert!(time_left(&pair.redis).await? > Duration::ZERO);
            sleep(Duration::from_millis(50)).await;
        }
        java.unlock().await?;
        let guard = lock.try_lock().await?.ok_or_else(|| Failure::new("held after Java's unlock"))?;
        guard.release().await?;
    }
    Ok(())
}

/// The waiter stays in its wait for all that time, across many ends of the lease it was told.
#[tokio::test]
async fn waiters_of_both_languages_sleep_through_the_renewals_of_the_other() -> Outcome {
    let pair = Pair::with_watchdog(WATCHDOG).await?;
    let (lock, java) = (pair.client.lock("order"), pair.peer.lock("order", 1000));
    let (begins, lasts) = (Instant::now(), 3 * WATCHDOG + WATCHDOG / 2);

    let guard = lock.lock().await?;
    let waiting = java.try_lock_within(lasts);
    assert!(!waiting.await?, "granted to Java after {:?}", begins.elapsed());
    guard.release().await?;

    java.lock().await?;
    let another: Client = pair.another_client().await?;
    let waited = another.lock("order").try_lock().wait(lasts).await?;
    assert!(waited.is_none(), "granted to Rust");
    java.unlock().await?;
    Ok(())
}

/// What is left of the key; an error when it is gone or never expires.
async fn time_left(redis: &SharedRedis) -> Outcome<Duration> {
    let left = redis.pttl("order").await?;
    let left = u64::try_from(left).map_err(|_| Failure::new(format!("PTTL is {left}")))?;
    Ok(Duration::from_millis(left))
}
