//! `RLock` beside Redisson's: each case with either language as the holder.

mod support;

use std::time::{Duration, Instant};

use compat_tests::{Api, Command, Failure, JavaError, Outcome, Trace, within};
use redlatch::{Client, Error, RemainingTtl, Uuid};
use support::{Pair, rust_sleeps, wait_for_a_minute};

const SECOND: Duration = Duration::from_secs(1);
const BOTH: [Api; 2] = [Api::Async, Api::Sync];

#[tokio::test]
async fn java_is_kept_out_while_rust_holds() -> Outcome {
    let pair = Pair::start().await?;
    let guard = pair.client.lock("order").lock().await?;
    for api in BOTH {
        let java = pair.peer.lock("order", 1000).through(api);
        assert!(!java.try_lock().await?, "{api:?}: one attempt");
        let began = Instant::now();
        assert!(!java.try_lock_within(Duration::from_millis(300)).await?, "{api:?}: a bounded wait");
        assert!(began.elapsed() >= Duration::from_millis(290), "{api:?}: gave up after {:?}", began.elapsed());
        assert!(java.is_locked().await?, "{api:?}");
        let left = java.ttl().await?;
        assert!((25_000..=30_000).contains(&left), "{api:?}: {left} ms left");
        assert_eq!(java.hold_count().await?, 0, "{api:?}");
    }
    guard.release().await?;
    assert!(pair.peer.lock("order", 1000).try_lock().await?);
    Ok(())
}

#[tokio::test]
async fn rust_is_kept_out_while_java_holds() -> Outcome {
    let pair = Pair::start().await?;
    let lock = pair.client.lock("order");
    for api in BOTH {
        let java = pair.peer.lock("order", 1000).through(api);
        java.lock().await?;
        assert!(lock.try_lock().await?.is_none(), "{api:?}: one attempt");
        let began = Instant::now();
        assert!(lock.try_lock().wait(Duration::from_millis(300)).await?.is_none(), "{api:?}: a bounded wait");
        assert!(began.elapsed() >= Duration::from_millis(300), "{api:?}: gave up after {:?}", began.elapsed());
        assert!(lock.is_locked().await?, "{api:?}");
        match lock.remaining_ttl().await? {
            RemainingTtl::Left(left) => assert!((25..=30).contains(&left.as_secs()), "{api:?}: {left:?} left"),
            other => panic!("{api:?}: {other:?}"),
        }
        java.unlock().await?;
        let guard = lock.try_lock().await?.ok_or_else(|| Failure::new("held after Java's unlock"))?;
        guard.release().await?;
    }
    Ok(())
}

#[tokio::test]
async fn counts_of_re_entry_mean_the_same_to_both() -> Outcome {
    let pair = Pair::start().await?;
    let java = pair.peer.lock("order", 1000);
    // A client under the peer's id asks about the peer's owners; it never takes a lock the peer uses.
    let id: Uuid = pair.peer.client().parse()?;
    let observer = Client::builder().url(pair.redis.url()).client_id(id).connect().await?;
    let owner = observer.owner_with_thread_id(1000)?;
    let lock = pair.client.lock("order");

    for count in 1..=3 {
        java.through(BOTH[count % 2]).lock().await?;
        assert_eq!(java.hold_count().await?, i64::try_from(count)?);
        assert_eq!(observer.lock("order").hold_count(&owner).await?, count as u64);
        assert!(observer.lock("order").is_held_by(&owner).await?);
    }
    for left in [2, 1] {
        java.unlock().await?;
        assert_eq!(observer.lock("order").hold_count(&owner).await?, left);
        assert!(lock.try_lock().await?.is_none(), "{left} counts left");
    }
    java.unlock().await?;

    let reentrant = lock.owned_by(&pair.client.owner_with_thread_id(1000)?);
    let mut guards = Vec::new();
    for count in 1..=3 {
        guards.push(reentrant.lock().await?);
        let stored = pair.redis.hash("order").await?;
        assert_eq!(stored, [(reentrant.owner().to_string(), count.to_string())].into());
    }
    // Not in the order they were taken in.
    for (index, left) in [(1, 2), (1, 1)] {
        guards.remove(index).release().await?;
        let stored = pair.redis.hash("order").await?;
        assert_eq!(stored, [(reentrant.owner().to_string(), left.to_string())].into());
        assert!(!java.try_lock().await?, "{left} counts left");
        assert!(!java.is_held().await?, "equal thread numbers are not equal owners");
    }
    guards.remove(0).release().await?;
    assert!(java.try_lock().await?);
    Ok(())
}

#[tokio::test]
async fn java_reads_the_count_that_rust_wrote() -> Outcome {
    let pair = Pair::start().await?;
    let id: Uuid = pair.peer.client().parse()?;
    let twin = Client::builder().url(pair.redis.url()).client_id(id).connect().await?;
    let owned = twin.lock("order").owned_by(&twin.owner_with_thread_id(1000)?);
    let java = pair.peer.lock("order", 1000);
    let (first, second) = (owned.lock().await?, owned.lock().await?);
    for api in BOTH {
        assert_eq!(java.through(api).hold_count().await?, 2);
    }
    assert!(java.is_held().await?);
    assert!(!pair.peer.lock("order", 1001).is_held().await?);
    first.release().await?;
    assert_eq!(java.hold_count().await?, 1);
    second.release().await?;
    assert_eq!(java.hold_count().await?, 0);
    Ok(())
}

#[tokio::test]
async fn an_unlock_by_java_leaves_the_hold_of_rust_as_it_is() -> Outcome {
    let pair = Pair::start().await?;
    let guard = pair.client.lock("order").lock().lease(Duration::from_secs(20)).await?;
    let before = pair.redis.hash("order").await?;
    let mut trace = Trace::start(&pair.redis).await?;
    for api in BOTH {
        let refused = pair.peer.lock("order", 1000).through(api).unlock().await;
        assert!(refused.as_ref().is_err_and(JavaError::is_not_owner), "{api:?}: {refused:?}");
    }
    assert_eq!(pair.redis.hash("order").await?, before);
    assert!(pair.redis.pttl("order").await? <= 20_000);
    assert_eq!(published(&trace.section().await?), Vec::<String>::new());
    assert!(guard.is_valid());
    guard.release().await?;
    Ok(())
}

#[tokio::test]
async fn a_release_by_rust_leaves_the_hold_of_java_as_it_is() -> Outcome {
    let pair = Pair::start().await?;
    let java = pair.peer.lock("order", 1000);
    java.lock_for(Duration::from_secs(20)).await?;
    let before = pair.redis.hash("order").await?;
    let mut trace = Trace::start(&pair.redis).await?;
    for owner in [pair.client.owner(), pair.client.owner_with_thread_id(1000)?] {
        match pair.client.lock("order").owned_by(&owner).release().await {
            Err(Error::NotOwner { key, owner: named }) => {
                assert_eq!((key.as_str(), named), ("order", owner))
            }
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(pair.redis.hash("order").await?, before);
    assert!(pair.redis.pttl("order").await? <= 20_000);
    assert_eq!(published(&trace.section().await?), Vec::<String>::new());
    assert_eq!(java.hold_count().await?, 1);
    java.unlock().await?;
    Ok(())
}

#[tokio::test]
async fn a_lease_that_ends_lets_the_other_language_in() -> Outcome {
    let pair = Pair::start().await?;
    let lease = Duration::from_millis(800);
    let (lock, java) = (pair.client.lock("order"), pair.peer.lock("order", 1000));

    java.lock_for(lease).await?;
    let left = pair.redis.pttl("order").await?;
    let began = Instant::now();
    let guard = within(lease + SECOND, "the end of Java's lease", lock.lock()).await??;
    assert!(began.elapsed().as_millis() + 5 >= u128::try_from(left)?, "{:?} of {left} ms", began.elapsed());
    guard.release().await?;

    for api in BOTH {
        let guard = lock.lock().lease(lease).await?;
        let left = pair.redis.pttl("order").await?;
        let began = Instant::now();
        within(lease + SECOND, "the end of Rust's lease", java.through(api).lock()).await??;
        assert!(began.elapsed().as_millis() + 5 >= u128::try_from(left)?, "{:?} of {left} ms", began.elapsed());
        assert!(!guard.is_valid(), "its lease has ended");
        java.unlock().await?;
    }
    Ok(())
}

#[tokio::test]
async fn a_name_of_any_shape_is_one_lock_to_both() -> Outcome {
    let pair = Pair::start().await?;
    for name in ["two words", "a{b}c", "{tag}", "Straße/✓", "50%+1", "line\nbreak", "\"quoted\"", ":", "mode", "}x{"]
    {
        let (lock, java) = (pair.client.lock(name), pair.peer.lock(name, 1000));
        let guard = lock.lock().await?;
        let scripts = pair.redis.scripts_run().await?;
        let waiting = java.lock();
        java.sleeps(&pair.redis, scripts).await?;
        guard.release().await?;
        within(SECOND, &format!("Java's grant of {name:?}"), waiting).await??;

        let waiting = wait_for_a_minute(&pair.client, name);
        rust_sleeps(&pair, name).await?;
        java.unlock().await?;
        let (guard, _) = within(SECOND, &format!("Rust's grant of {name:?}"), waiting).await???;
        guard.release().await?;
    }
    Ok(())
}

fn published(commands: &[Command]) -> Vec<String> {
    commands.iter().filter(|command| command.words[0] == "publish").map(ToString::to_string).collect()
}
