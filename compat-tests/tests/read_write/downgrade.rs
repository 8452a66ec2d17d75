//! A writer that takes a read hold as well and lets the write hold go.

use std::time::Duration;

use compat_tests::{Api, LockKind, Outcome, Trace, eventually, within};

use crate::support::ways::BOTH;
use crate::support::{Pair, rust_sleeps_on, wait_as};
use crate::{SECOND, java};

/// Redisson publishes nothing there; ours does, so that readers need not wait for an expiry.
#[tokio::test]
async fn a_downgrade_by_rust_lets_java_readers_in_at_once() -> Outcome {
    let pair = Pair::start().await?;
    let owner = pair.client.owner();
    for _round in 0..5 {
        let writes = LockKind::Write.in_rust(&pair.client, "order").owned_by(&owner).lock().await?;
        let reads = LockKind::Read.in_rust(&pair.client, "order").owned_by(&owner).lock().await?;
        let mut waiters = Vec::new();
        for thread in 2000..2004 {
            let reader = java(&pair, LockKind::Read, thread, Api::Sync);
            let scripts = pair.redis.scripts_run().await?;
            let waiting = reader.lock();
            reader.sleeps(&pair.redis, scripts).await?;
            waiters.push((reader, waiting));
        }
        // One of the own process as well: what it is told says nothing about the holds of the writer.
        let others = LockKind::Read.in_rust(&pair.client, "order");
        assert!(others.try_lock().await?.is_none(), "its writer holds");
        let local = wait_as(&others.owned_by(&pair.client.owner()));
        eventually(SECOND, "a waiter", async || Ok(pair.client.stats().waiters == 1)).await?;
        writes.release().await?;
        within(SECOND, "the grant of the Rust reader", local).await???.0.release().await?;
        for (reader, waiting) in waiters {
            within(SECOND, "the grant of a Java reader", waiting).await??;
            assert!(!java(&pair, LockKind::Write, 3000, Api::Async).try_lock().await?, "two read");
            reader.unlock().await?;
        }
        assert!(!java(&pair, LockKind::Write, 3000, Api::Async).try_lock().await?, "Rust still reads");
        assert!(reads.is_valid());
        reads.release().await?;
        assert_eq!(pair.redis.pttl("order").await?, -2);
    }
    Ok(())
}

/// Java tells nobody: a reader of ours sleeps until the end of the lease it was told, as one of Java's would. It is the
/// peer's fault (a message that is not sent cannot be heard), and this is all that can be had.
#[tokio::test]
async fn a_downgrade_by_java_lets_rust_readers_in_by_the_end_of_the_lease_they_know() -> Outcome {
    let pair = Pair::start().await?;
    let lease = Duration::from_millis(1_500);
    for api in BOTH {
        let (writer, reader) = (java(&pair, LockKind::Write, 1000, api), java(&pair, LockKind::Read, 1000, api));
        writer.lock_for(lease).await?;
        let waiting = wait_as(&LockKind::Read.in_rust(&pair.client, "order").owned_by(&pair.client.owner()));
        rust_sleeps_on(&pair, &LockKind::Read.channel("order", ""), 1).await?;
        // The lock lives much longer than the lease that the waiter knows.
        reader.lock().await?;
        let mut trace = Trace::start(&pair.redis).await?;
        writer.unlock().await?;
        let published = trace.section().await?.into_iter().filter(|command| command.words[0] == "publish");
        assert_eq!(published.collect::<Vec<_>>(), [], "or this test is out of date");
        let (guard, _) = within(lease + SECOND, "the grant of a Rust reader", waiting).await???;
        assert_eq!(reader.hold_count().await?, 1, "both read");
        reader.unlock().await?;
        guard.release().await?;
        assert_eq!(pair.redis.pttl("order").await?, -2);
    }
    Ok(())
}

/// Whoever reads last wakes the writer, whichever language it was that wrote before.
#[tokio::test]
async fn a_writer_waits_for_both_languages_behind_a_downgrade() -> Outcome {
    let pair = Pair::start().await?;
    let owner = pair.client.owner();
    for is_java_last in [true, false] {
        let writes = LockKind::Write.in_rust(&pair.client, "order").owned_by(&owner).lock().await?;
        let reads = LockKind::Read.in_rust(&pair.client, "order").owned_by(&owner).lock().await?;
        writes.release().await?;
        let reader = java(&pair, LockKind::Read, 1000, Api::Sync);
        reader.lock().await?;
        let writer = java(&pair, LockKind::Write, 2000, Api::Sync);
        let scripts = pair.redis.scripts_run().await?;
        let mut waiting = writer.lock();
        writer.sleeps(&pair.redis, scripts).await?;
        if is_java_last {
            reads.release().await?;
            assert!(!waiting.is_answered(), "Java reads");
            reader.unlock().await?;
        } else {
            reader.unlock().await?;
            assert!(!waiting.is_answered(), "Rust reads");
            reads.release().await?;
        }
        within(SECOND, "the grant of Java's writer", waiting).await??;
        writer.unlock().await?;
    }
    Ok(())
}
