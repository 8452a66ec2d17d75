//! The spin lock beside Redisson's: nobody listens, nobody is told.

mod support;

use std::time::{Duration, Instant};

use compat_tests::{
    Api, Audit, JavaError, LockKind, Outcome, Register, SharedRedis, Trace, eventually, full_run, within,
};
use support::ways::{BOTH, excludes_both_ways};
use support::{Pair, wait_as};

const KIND: LockKind = LockKind::Spin;
const SECOND: Duration = Duration::from_secs(1);
/// The longest pause between two attempts, in either language.
const LONGEST: Duration = Duration::from_millis(128);

#[tokio::test]
async fn one_language_keeps_the_other_out() -> Outcome {
    excludes_both_ways(&Pair::start().await?, KIND).await
}

/// A pause of the back-off later at most, not at the end of the lease, which is 30 s away.
#[tokio::test]
async fn waiters_of_both_languages_notice_a_release_of_the_other() -> Outcome {
    let pair = Pair::start().await?;
    let bound = LONGEST + SECOND;
    let rust = KIND.in_rust(&pair.client, "order");
    for round in 0..if full_run() { 100 } else { 6 } {
        let java = pair.peer.lock_of(KIND, "order", 1000).through(BOTH[round % 2]);
        let guard = rust.lock().await?;
        let mut waiting = java.lock();
        asks_at_leisure(&pair.redis).await?;
        assert!(!waiting.is_answered(), "Rust holds");
        guard.release().await?;
        within(bound, "Java's grant", waiting).await??;

        let waiting = wait_as(&rust.owned_by(&pair.client.owner()));
        asks_at_leisure(&pair.redis).await?;
        assert!(!waiting.is_finished(), "Java holds");
        java.unlock().await?;
        let (guard, _) = within(bound, "Rust's grant", waiting).await???;
        guard.release().await?;
    }
    Ok(())
}

/// Redisson's last pause is not cut, so its wait may be longer by one; ours is not.
#[tokio::test]
async fn a_bounded_wait_ends_when_it_should() -> Outcome {
    let pair = Pair::start().await?;
    let rust = KIND.in_rust(&pair.client, "order");
    let java = pair.peer.lock_of(KIND, "order", 1000).through(Api::Sync);
    let wait = Duration::from_millis(500);

    java.lock().await?;
    let began = Instant::now();
    assert!(rust.try_lock().wait(wait).await?.is_none(), "Java holds");
    let waited = began.elapsed();
    assert!(waited >= wait && waited < wait + LONGEST / 2, "{waited:?}");
    java.unlock().await?;

    let guard = rust.lock().await?;
    let began = Instant::now();
    assert!(!java.try_lock_within(wait).await?, "Rust holds");
    let waited = began.elapsed();
    assert!(waited + Duration::from_millis(10) >= wait && waited < wait + 2 * LONGEST, "{waited:?}");
    guard.release().await?;
    Ok(())
}

#[tokio::test]
async fn counts_of_re_entry_mean_the_same_to_both() -> Outcome {
    let pair = Pair::start().await?;
    let java = pair.peer.lock_of(KIND, "order", 1000);
    let owner = pair.client.owner();
    let rust = KIND.in_rust(&pair.client, "order").owned_by(&owner);
    for api in BOTH {
        java.through(api).lock().await?;
        java.through(api).lock().await?;
        assert_eq!(pair.redis.hash("order").await?, [(java.owner(), "2".to_owned())].into());
        java.unlock().await?;
        assert!(rust.try_lock().await?.is_none(), "one of two");
        java.unlock().await?;

        let (first, second) = (rust.lock().await?, rust.lock().await?);
        assert_eq!(pair.redis.hash("order").await?, [(owner.to_string(), "2".to_owned())].into());
        first.release().await?;
        assert!(!java.through(api).try_lock().await?, "one of two");
        let refused = java.through(api).unlock().await;
        assert!(refused.as_ref().is_err_and(JavaError::is_not_owner), "{refused:?}");
        second.release().await?;
    }
    Ok(())
}

/// Four owners of each language, checked by a register; and nobody says a word or listens to one.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_two_hold_it_and_nothing_is_published() -> Outcome {
    let pair = Pair::start().await?;
    let mut trace = Trace::start(&pair.redis).await?;
    let turns = if full_run() { 1_000 } else { 60 };
    let audit = |seed| {
        let mut audit = Audit::new("spin", "order", Register::Exclusion("register".into()));
        (audit.workers, audit.turns, audit.seed) = (4, turns, seed);
        audit.longest_hold = Duration::from_millis(1);
        audit
    };
    let java = pair.peer.audit(&audit(1));
    let rust = within(Duration::from_secs(300), "the turns of Rust", async {
        audit(2).run(&pair.client, &pair.redis.admin()).await
    });
    let rust = rust.await??;
    let java = java.report_within(Duration::from_secs(300)).await?;
    assert_eq!((rust.holds, rust.refused), (4 * turns, 0));
    assert_eq!((java.count, java.refused, java.errors.as_slice()), (4 * turns, 0, [].as_slice()));
    let section = trace.section().await?;
    let speaks = ["publish", "spublish", "subscribe", "ssubscribe", "psubscribe"];
    let said: Vec<_> = section.iter().filter(|command| speaks.contains(&command.words[0].as_str())).collect();
    assert!(said.is_empty(), "{said:?}");
    Ok(())
}

/// A forced release tells nobody either.
#[tokio::test]
async fn a_forced_release_of_either_language_frees_it_without_a_message() -> Outcome {
    let pair = Pair::start().await?;
    let rust = KIND.in_rust(&pair.client, "order");
    let java = pair.peer.lock_of(KIND, "order", 1000);
    let mut trace = Trace::start(&pair.redis).await?;
    java.lock().await?;
    assert!(rust.force_release().await?);
    let refused = java.unlock().await;
    assert!(refused.as_ref().is_err_and(JavaError::is_not_owner), "{refused:?}");
    let guard = rust.lock().await?;
    assert!(java.force_unlock().await?);
    assert!(matches!(guard.release().await, Err(redlatch::Error::LeaseLost(_))));
    let published = trace.section().await?.into_iter().filter(|command| command.words[0] == "publish");
    assert_eq!(published.collect::<Vec<_>>(), []);
    Ok(())
}

/// One hash for both: a plain lock keeps a spin lock of that name out, and the other way round. Only, who listens for a
/// release of a spin lock hears nothing, and comes at the end of its lease.
#[tokio::test]
async fn a_plain_lock_of_that_name_excludes_it_across_languages() -> Outcome {
    let pair = Pair::start().await?;
    let plain = pair.peer.lock("order", 1000);
    plain.lock().await?;
    let waiting = wait_as(&KIND.in_rust(&pair.client, "order").owned_by(&pair.client.owner()));
    asks_at_leisure(&pair.redis).await?;
    assert!(!waiting.is_finished(), "Java holds");
    plain.unlock().await?;
    within(LONGEST + SECOND, "Rust's grant", waiting).await???.0.release().await?;

    let lease = Duration::from_millis(1_200);
    let guard = KIND.in_rust(&pair.client, "order").lock().lease(lease).await?;
    let scripts = pair.redis.scripts_run().await?;
    let mut waiting = plain.lock();
    plain.sleeps(&pair.redis, scripts).await?;
    assert!(!waiting.is_answered(), "Rust holds");
    guard.release().await?;
    within(lease + SECOND, "Java's grant", waiting).await??;
    plain.unlock().await?;
    Ok(())
}

/// Waits until the pauses of the only waiter have become long: it has asked ten times.
async fn asks_at_leisure(redis: &SharedRedis) -> Outcome {
    let before = redis.scripts_run().await?;
    eventually(Duration::from_secs(10), "ten attempts", async || Ok(redis.scripts_run().await? >= before + 10)).await
}
