//! The read/write lock beside Redisson's.

#[path = "read_write/downgrade.rs"]
mod downgrade;
mod support;

use std::time::Duration;

use compat_tests::{Api, Audit, Failure, JavaLock, LockKind, Outcome, Peer, Register, full_run, hold_key, within};
use redlatch::{Client, Error};
use support::latencies::Latencies;
use support::ways::{BOTH, excludes_both_ways, that_hear};
use support::{Pair, rust_sleeps_on, wait_as};
use tokio::time::Instant;

const SECOND: Duration = Duration::from_secs(1);

#[tokio::test]
async fn a_writer_of_one_language_keeps_writers_of_the_other_out() -> Outcome {
    excludes_both_ways(&Pair::start().await?, LockKind::Write).await
}

#[tokio::test]
async fn readers_of_both_languages_share_and_keep_writers_out() -> Outcome {
    let pair = Pair::start().await?;
    let (reads, writes) =
        (LockKind::Read.in_rust(&pair.client, "order"), LockKind::Write.in_rust(&pair.client, "order"));
    for api in BOTH {
        let (java_reads, java_writes) =
            (java(&pair, LockKind::Read, 1000, api), java(&pair, LockKind::Write, 2000, api));
        let guard = reads.lock().await?;
        assert!(java_reads.try_lock().await?, "{api:?}: Java reads beside Rust");
        for owner in [&java_writes, &java(&pair, LockKind::Write, 1000, api)] {
            assert!(!owner.try_lock().await?, "{api:?}: Java writes beside readers");
        }
        assert!(!java_writes.try_lock_within(SECOND / 2).await?, "{api:?}: a bounded wait of Java's");
        assert!(writes.try_lock().await?.is_none(), "{api:?}: Rust writes beside readers");
        guard.release().await?;
        assert!(writes.try_lock().await?.is_none(), "{api:?}: Rust writes beside a reader of Java's");
        let second = reads.try_lock().await?.ok_or_else(|| Failure::new("Rust reads beside Java"))?;
        java_reads.unlock().await?;
        assert!(!java_writes.try_lock().await?, "{api:?}: Java writes beside a reader of Rust's");
        second.release().await?;

        assert!(java_writes.try_lock().await?, "{api:?}: free after the last reader");
        assert!(reads.try_lock().await?.is_none(), "{api:?}: Rust reads beside a writer of Java's");
        java_writes.unlock().await?;
        let guard = writes.try_lock().await?.ok_or_else(|| Failure::new("free after the writer"))?;
        assert!(!java_reads.try_lock().await?, "{api:?}: Java reads beside a writer of Rust's");
        guard.release().await?;
        assert!(!writes.is_locked().await?);
    }
    Ok(())
}

/// 30 s of TTL and 60 s of wait: who is granted within a second was woken, neither by polling nor by expiry.
#[tokio::test]
async fn readers_and_writers_of_one_language_are_woken_by_those_of_the_other() -> Outcome {
    let pair = Pair::start().await?;
    use LockKind::{Read, Write};
    for (held, waits) in [(Read, Write), (Write, Read), (Write, Write)] {
        let (mut of_rust, mut of_java) = (Latencies::default(), Latencies::default());
        // A writer's message wakes only those of Java's who sleep already.
        let hears = if held == Write { [Api::Sync; 2] } else { that_hear() };
        for round in 0..if full_run() { 400 } else { 40 } {
            let holder = java(&pair, held, 1000, BOTH[round % 2]);
            holder.lock().await?;
            of_rust.wake_rust(&pair, waits, &holder).await?;

            let guard = held.in_rust(&pair.client, "order").lock().await?;
            of_java.wake_java(&pair, &java(&pair, waits, 2000, hears[round % 2]), guard).await?;
        }
        of_rust.check(&format!("Java's {held} ends, Rust's {waits} waits"));
        of_java.check(&format!("Rust's {held} ends, Java's {waits} waits"));
    }
    Ok(())
}

#[tokio::test]
async fn all_readers_of_one_language_are_woken_by_a_writer_of_the_other() -> Outcome {
    let pair = Pair::start().await?;
    let guard = LockKind::Write.in_rust(&pair.client, "order").lock().await?;
    let mut waiters = Vec::new();
    for thread in 2000..2006 {
        let reader = java(&pair, LockKind::Read, thread, Api::Sync);
        let scripts = pair.redis.scripts_run().await?;
        let waiting = reader.lock();
        reader.sleeps(&pair.redis, scripts).await?;
        waiters.push((reader, waiting));
    }
    guard.release().await?;
    let released = Instant::now();
    for (reader, waiting) in waiters {
        within(SECOND.saturating_sub(released.elapsed()), "every Java reader's grant", waiting).await??;
        reader.unlock().await?;
    }

    let writer = java(&pair, LockKind::Write, 1000, Api::Async);
    writer.lock().await?;
    let reads = LockKind::Read.in_rust(&pair.client, "order");
    let waiters: Vec<_> = (0..6).map(|_| wait_as(&reads.owned_by(&pair.client.owner()))).collect();
    rust_sleeps_on(&pair, &LockKind::Read.channel("order", ""), waiters.len()).await?;
    writer.unlock().await?;
    let released = Instant::now();
    let mut guards = Vec::new();
    for waiting in waiters {
        let left = SECOND.saturating_sub(released.elapsed());
        guards.push(within(left, "every Rust reader's grant", waiting).await???.0);
    }
    for guard in guards {
        guard.release().await?;
    }
    assert!(!reads.is_locked().await?);
    Ok(())
}

/// Hold keys are numbered, and each language counts and deletes its own.
#[tokio::test]
async fn holds_of_both_languages_stand_in_one_hash_with_a_key_each() -> Outcome {
    let pair = Pair::start().await?;
    let owner = pair.client.owner();
    let reads = LockKind::Read.in_rust(&pair.client, "order").owned_by(&owner);
    let reader = java(&pair, LockKind::Read, 1000, Api::Sync);
    let (ours, theirs) = (owner.to_string(), reader.owner());
    let has_keys = async |rust: u64, java: u64| -> Outcome {
        for (owner, count) in [(&ours, rust), (&theirs, java)] {
            for number in 1..=3 {
                let left = pair.redis.pttl(&hold_key("order", owner, number)).await?;
                assert_eq!(left > 0, number <= count, "hold {number} of {owner}, which has {count}: {left} ms left");
            }
            let stored = pair.redis.hash("order").await?;
            assert_eq!(stored.get(owner).cloned(), (count > 0).then(|| count.to_string()), "{stored:?}");
        }
        Ok(())
    };
    let first = reads.lock().await?;
    has_keys(1, 0).await?;
    reader.lock().await?;
    reader.lock_for(Duration::from_secs(50)).await?;
    has_keys(1, 2).await?;
    let second = reads.lock().lease(Duration::from_secs(40)).await?;
    has_keys(2, 2).await?;
    // Not the one taken last.
    first.release().await?;
    has_keys(1, 2).await?;
    let left = pair.redis.pttl("order").await?;
    assert!((45_000..=50_000).contains(&left), "as long as Java's longest hold: {left} ms");
    reader.unlock().await?;
    has_keys(1, 1).await?;
    let left = pair.redis.pttl("order").await?;
    assert!((35_000..=40_000).contains(&left), "as long as Rust's hold, which is the longest now: {left} ms");
    second.release().await?;
    has_keys(0, 1).await?;
    let left = pair.redis.pttl("order").await?;
    assert!((25_000..=30_000).contains(&left), "as long as Java's last hold: {left} ms");
    reader.unlock().await?;
    has_keys(0, 0).await?;
    Ok(())
}

/// A reader can never write before it lets go, in neither language. Java waits for ever; ours says so at once.
#[tokio::test]
async fn a_reader_beside_one_of_the_other_language_cannot_become_the_writer() -> Outcome {
    let pair = Pair::start().await?;
    let owner = pair.client.owner();
    let writes = LockKind::Write.in_rust(&pair.client, "order").owned_by(&owner);
    let guard = LockKind::Read.in_rust(&pair.client, "order").owned_by(&owner).lock().await?;
    for is_beside_java in [true, false] {
        let reader = java(&pair, LockKind::Read, 1000, Api::Async);
        if is_beside_java {
            reader.lock().await?;
        }
        let refused = writes.lock().await;
        assert!(matches!(refused, Err(Error::UpgradeImpossible { .. })), "{refused:?}");
        assert!(writes.try_lock().await?.is_none());
        assert!(!java(&pair, LockKind::Write, 1000, Api::Sync).try_lock_within(SECOND / 2).await?);
        if is_beside_java {
            reader.unlock().await?;
        }
    }
    guard.release().await?;
    Ok(())
}

/// Only a lock in its mode is forced, and waiters of the other language hear of it.
#[tokio::test]
async fn a_forced_release_of_one_language_wakes_the_other() -> Outcome {
    let pair = Pair::start().await?;
    use LockKind::{Read, Write};
    for (held, other) in [(Read, Write), (Write, Read)] {
        let (ours, theirs) = (held.in_rust(&pair.client, "order"), java(&pair, held, 1000, Api::Sync));
        let guard = ours.lock().await?;
        let waiter = java(&pair, Write, 2000, Api::Sync);
        let scripts = pair.redis.scripts_run().await?;
        let waiting = waiter.lock();
        waiter.sleeps(&pair.redis, scripts).await?;
        assert!(!other.in_rust(&pair.client, "order").force_release().await?, "{held}: not its mode");
        assert!(ours.force_release().await?, "{held}");
        within(SECOND, "Java's grant", waiting).await??;
        let lost = guard.release().await;
        assert!(matches!(lost, Err(Error::LeaseLost(_))), "{held}: {lost:?}");
        waiter.unlock().await?;

        theirs.lock().await?;
        let owner = pair.client.owner();
        let waiting = wait_as(&Write.in_rust(&pair.client, "order").owned_by(&owner));
        rust_sleeps_on(&pair, &Write.channel("order", ""), 1).await?;
        assert!(!java(&pair, other, 1000, Api::Sync).force_unlock().await?, "{held}: not its mode");
        assert!(theirs.force_unlock().await?, "{held}");
        let (guard, _) = within(SECOND, "Rust's grant", waiting).await???;
        guard.release().await?;
    }
    Ok(())
}

/// Four owners of each language, in two processes each as far as locks are concerned. Each tells a register in Redis what
/// it has, after the grant and before the release.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_writer_is_never_together_with_anyone() -> Outcome {
    // Java's readers may miss a message and then sleep until the TTL they were told: that much longer it may take.
    let watchdog = Duration::from_secs(10);
    let pair = Pair::with_watchdog(watchdog).await?;
    let peer = Peer::options().watchdog(watchdog).start(&pair.redis).await?;
    let client = Client::builder().url(pair.redis.url()).watchdog_timeout(watchdog).connect().await?;
    let holds = if full_run() { 100_000 } else { 3_000 };
    let audit = |seed| {
        let mut audit = Audit::new("read,read,write,downgrade", "order", Register::Exclusion("register".into()));
        (audit.workers, audit.turns, audit.seed) = (2, holds / 8, seed);
        audit.longest_hold = Duration::from_millis(1);
        audit
    };
    let began = Instant::now();
    let (first, second) = (pair.peer.audit(&audit(1)), peer.audit(&audit(2)));
    let (third, fourth) = (audit(3), audit(4));
    let (admin, limit) = (pair.redis.admin(), Duration::from_secs(3_600));
    let rust = within(limit, "the turns of Rust", async {
        tokio::try_join!(third.run(&pair.client, &admin), fourth.run(&client, &admin))
    });
    let (third, fourth) = rust.await??;
    let took = began.elapsed();
    let java = [first.report_within(limit).await?, second.report_within(limit).await?];
    println!("{holds} holds: Rust was done after {took:?}, Java after {:?}", began.elapsed());
    for report in &java {
        assert_eq!((report.count, report.refused, report.errors.as_slice()), (holds / 4, 0, [].as_slice()));
    }
    for tally in [third, fourth] {
        assert_eq!((tally.holds, tally.refused), (holds / 4, 0));
    }
    assert!(!LockKind::Write.in_rust(&client, "order").is_locked().await?);
    assert_eq!(pair.redis.hash("order").await?.len(), 0, "nobody holds it in the end");
    Ok(())
}

fn java(pair: &Pair, kind: LockKind, thread: i64, api: Api) -> JavaLock<'_> {
    pair.peer.lock_of(kind, "order", thread).through(api)
}
