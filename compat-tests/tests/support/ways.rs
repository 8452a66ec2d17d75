//! What is asked of every kind, with either language as the holder.

use std::time::{Duration, Instant};

use compat_tests::{Api, Failure, JavaLock, LockKind, Outcome, now_us, redisson_before, within};

use redlatch::Guard;

use super::latencies::Latencies;
use super::{Pair, rust_sleeps_on, wait_as};

const SECOND: Duration = Duration::from_secs(1);
/// Redisson gives up with an error when it could not even subscribe in that time: a machine may be busy.
const WAIT: Duration = Duration::from_millis(300);

/// Both of Redisson's faces.
pub(crate) const BOTH: [Api; 2] = [Api::Async, Api::Sync];

/// Those of them through which a waiter hears every message. Before 3.28.0 an asynchronous one is deaf for a moment after it
/// has asked for the second time, and nobody can see when that is over.
pub(crate) fn that_hear() -> [Api; 2] {
    if redisson_before(3, 28) { [Api::Sync; 2] } else { BOTH }
}

/// One attempt and a bounded wait are in vain while the other language holds; a release lets the other in.
pub(crate) async fn excludes_both_ways(pair: &Pair, kind: LockKind) -> Outcome {
    let rust = kind.in_rust(&pair.client, "order");
    for api in BOTH {
        let java = pair.peer.lock_of(kind.or_like(), "order", 1000).through(api);
        let guard = rust.lock().await?;
        assert!(!java.try_lock().await?, "{kind} {api:?}: one attempt of Java's");
        let began = Instant::now();
        let bounded = java.through(if gives_up_well(kind) { api } else { Api::Sync });
        assert!(!bounded.try_lock_within(WAIT).await?, "{kind} {api:?}: a bounded wait of Java's");
        // Redisson's timer may tick a little early.
        let waited = began.elapsed() + Duration::from_millis(10);
        assert!(waited >= WAIT, "{kind} {api:?}: Java gave up after {waited:?}");
        assert!(java.is_locked().await?, "{kind} {api:?}");
        assert_eq!(java.hold_count().await?, 0, "{kind} {api:?}");
        guard.release().await?;

        assert!(java.try_lock().await?, "{kind} {api:?}: free after Rust's release");
        assert!(rust.try_lock().await?.is_none(), "{kind} {api:?}: one attempt of Rust's");
        let began = Instant::now();
        assert!(rust.try_lock().wait(WAIT).await?.is_none(), "{kind} {api:?}: a bounded wait of Rust's");
        let waited = began.elapsed();
        assert!(waited >= WAIT, "{kind} {api:?}: Rust gave up after {waited:?}");
        assert!(rust.is_locked().await?, "{kind} {api:?}");
        java.unlock().await?;

        let guard = rust.try_lock().await?.ok_or_else(|| Failure::new("held after Java's unlock"))?;
        guard.release().await?;
        assert!(!rust.is_locked().await?, "{kind} {api:?}: free in the end");
    }
    Ok(())
}

/// Waiters of either language are woken by a release of the other: 30 s of TTL, 60 s of wait.
pub(crate) async fn wakes_both_ways(pair: &Pair, kind: LockKind, rounds: usize) -> Outcome {
    let (mut of_rust, mut of_java) = (Latencies::default(), Latencies::default());
    for round in 0..rounds {
        let java = pair.peer.lock_of(kind.or_like(), "order", 1000).through(that_hear()[round % 2]);
        java.lock().await?;
        of_rust.wake_rust(pair, kind, &java).await?;

        let guard = kind.in_rust(&pair.client, "order").lock().await?;
        of_java.wake_java(pair, &java, guard).await?;
    }
    of_rust.check(&format!("{kind}: Java lets Rust in"));
    of_java.check(&format!("{kind}: Rust lets Java in"));
    Ok(())
}

impl Latencies {
    /// A Rust waiter of this kind on the lock `order`, which this Java lock holds and now releases.
    pub(crate) async fn wake_rust(&mut self, pair: &Pair, kind: LockKind, holder: &JavaLock<'_>) -> Outcome {
        let owner = pair.client.owner();
        let waiting = wait_as(&kind.in_rust(&pair.client, "order").owned_by(&owner));
        rust_sleeps_on(pair, &kind.channel("order", &owner.to_string()), 1).await?;
        let released = now_us();
        let unlock = holder.unlock();
        let (guard, granted) = within(SECOND, "Rust's grant", waiting).await???;
        unlock.await?;
        self.add(released, granted);
        guard.release().await?;
        Ok(())
    }

    /// This Java lock waits for what the guard holds, which is now released.
    pub(crate) async fn wake_java(&mut self, pair: &Pair, waiter: &JavaLock<'_>, guard: Guard) -> Outcome {
        let scripts = pair.redis.scripts_run().await?;
        let mut waiting = waiter.try_lock_within(Duration::from_secs(60));
        waiter.sleeps(&pair.redis, scripts).await?;
        assert!(!waiting.is_answered(), "Rust still holds");
        let released = now_us();
        guard.release().await?;
        let (is_granted, granted) = within(SECOND, "Java's grant", waiting.timed()).await??;
        assert!(is_granted, "woken, and then the whole wait passed");
        self.add(released, granted);
        waiter.unlock().await?;
        Ok(())
    }
}

/// Redisson's asynchronous bounded waits that fail: a fair one takes the wrong patience off those behind it, and one of
/// an old spin lock hardly counts its sleeps.
fn gives_up_well(kind: LockKind) -> bool {
    !(kind.is_fair() || kind == LockKind::Spin && redisson_before(3, 52))
}
