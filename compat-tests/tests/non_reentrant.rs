//! The locks that refuse their own holder, beside Redisson's. What they leave in Redis is what the other kinds do, so where
//! Redisson has them not its plain and its fair lock stand in for them.

mod support;

use std::time::Duration;

use compat_tests::{JavaError, LockKind, Outcome, Peer, SharedRedis, full_run};
use redlatch::Error;
use support::Pair;
use support::ways::{BOTH, excludes_both_ways, wakes_both_ways};

const KINDS: [LockKind; 2] = [LockKind::NonReentrant, LockKind::NonReentrantFair];

#[tokio::test]
async fn one_language_keeps_the_other_out() -> Outcome {
    let pair = Pair::start().await?;
    for kind in KINDS {
        excludes_both_ways(&pair, kind).await?;
    }
    Ok(())
}

#[tokio::test]
async fn waiters_of_both_languages_are_woken_by_a_release_of_the_other() -> Outcome {
    let pair = Pair::start().await?;
    for kind in KINDS {
        wakes_both_ways(&pair, kind, if full_run() { 200 } else { 20 }).await?;
    }
    Ok(())
}

/// With or without a wait, and the hold stays as it was.
#[tokio::test]
async fn its_own_holder_is_refused_in_either_language() -> Outcome {
    let pair = Pair::start().await?;
    let wait = Duration::from_millis(50);
    for kind in KINDS {
        let lock = kind.in_rust(&pair.client, "order");
        let owner = pair.client.owner();
        let owned = lock.owned_by(&owner);
        let guard = owned.lock().await?;
        let before = pair.redis.hash("order").await?;
        for refused in [owned.lock().await.map(Some), owned.try_lock().await, owned.try_lock().wait(wait).await] {
            let is_named = |key: &str, named| key == "order" && named == owner;
            match refused {
                Err(Error::AlreadyHeld { key, owner: named }) if is_named(&key, named) => {}
                other => panic!("{kind}: {other:?}"),
            }
        }
        assert_eq!(pair.redis.hash("order").await?, before, "{kind}");
        assert!(guard.is_valid(), "{kind}");
        assert!(!pair.peer.lock_of(kind.or_like(), "order", 1000).try_lock().await?, "{kind}: Rust holds");
        guard.release().await?;

        if !kind.is_in_redisson() {
            continue;
        }
        for api in BOTH {
            let java = pair.peer.lock_of(kind, "order", 1000).through(api);
            java.lock().await?;
            let before = pair.redis.hash("order").await?;
            let refused = [java.lock().await.map(|()| true), java.try_lock().await, java.try_lock_within(wait).await];
            assert!(refused.iter().all(|answer| answer.as_ref().is_err_and(JavaError::is_not_owner)), "{refused:?}");
            assert_eq!(pair.redis.hash("order").await?, before, "{kind}");
            assert!(lock.try_lock().await?.is_none(), "{kind}: Java holds");
            java.unlock().await?;
            assert_eq!(pair.redis.pttl("order").await?, -2, "{kind}: one unlock is enough");
        }
    }
    Ok(())
}

/// The owner is one, whatever kind of handle it comes by: a re-entrant hold counts as well.
#[tokio::test]
async fn a_count_of_a_re_entrant_handle_is_refused_to_the_other() -> Outcome {
    let pair = Pair::start().await?;
    let owner = pair.client.owner();
    let guard = pair.client.lock("order").owned_by(&owner).lock().await?;
    let refused = pair.client.non_reentrant_lock("order").owned_by(&owner).lock().await;
    assert!(matches!(refused, Err(Error::AlreadyHeld { .. })), "{refused:?}");
    guard.release().await?;
    let java = pair.peer.lock("order", 1000);
    assert!(java.try_lock().await?, "free again");
    if LockKind::NonReentrant.is_in_redisson() {
        let refused = pair.peer.lock_of(LockKind::NonReentrant, "order", 1000).try_lock().await;
        assert!(refused.as_ref().is_err_and(JavaError::is_not_owner), "{refused:?}");
    }
    java.unlock().await?;
    Ok(())
}

#[tokio::test]
async fn a_redisson_without_them_says_so() -> Outcome {
    let redis = SharedRedis::start().await?;
    let peer = Peer::start(&redis).await?;
    for kind in KINDS {
        for api in BOTH {
            let answer = peer.lock_of(kind, "order", 1000).through(api).try_lock().await;
            let is_absent = answer.as_ref().is_err_and(|error| error.is_a("UnsupportedOperationException"));
            assert_eq!(is_absent, !kind.is_in_redisson(), "{kind} {api:?}: {answer:?}");
            // Another kind on that name comes next.
            peer.lock("order", 1000).force_unlock().await?;
        }
    }
    Ok(())
}
