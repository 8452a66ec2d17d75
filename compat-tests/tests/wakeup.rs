//! Waiters that sleep until the other language lets go: by a release, or by force.

mod support;

use std::time::Duration;

use compat_tests::{Api, Command, JavaError, JavaLock, Outcome, Source, Trace, full_run, now_us, within};
use redlatch::{Client, Error, Guard};
use support::latencies::Latencies;
use support::{Pair, rust_sleeps, wait_for_a_minute};

const SECOND: Duration = Duration::from_secs(1);
const BOTH: [Api; 2] = [Api::Async, Api::Sync];

/// 30 s of TTL and 60 s of wait: who is granted within a second was woken, neither by polling nor by expiry.
#[tokio::test]
async fn a_rust_waiter_is_woken_by_java_every_time() -> Outcome {
    let pair = Pair::start().await?;
    let mut trace = Trace::start(&pair.redis).await?;
    let mut wakes = Latencies::default();
    let mut commands: Vec<Vec<Command>> = Vec::new();
    // One more in front: connections are made and scripts loaded, that is not part of a wake-up.
    for round in 0..=rounds() {
        let java = pair.peer.lock("order", 1000).through(BOTH[round % 2]);
        java.lock().await?;
        trace.section().await?;

        let waiting = wait_for_a_minute(&pair.client, "order");
        rust_sleeps(&pair, "order").await?;
        let unlocked = now_us();
        let unlock = java.unlock();
        let (guard, granted) = within(SECOND, "the waiter's grant", waiting).await???;
        unlock.await?;
        let section = trace.section().await?;
        if round > 0 {
            wakes.add(unlocked, granted);
            // The keepalive goes by the clock, whatever is waited for.
            let is_counted = |command: &Command| command.source == Source::Rust && command.words[0] != "ping";
            commands.push(section.into_iter().filter(is_counted).collect());
        }
        guard.release().await?;
        assert!(!pair.client.lock("order").is_locked().await?, "round {round}: free after the release");
    }
    wakes.check("a release");
    let sent: usize = commands.iter().map(Vec::len).sum();
    let longest = commands.iter().max_by_key(|round| round.len());
    println!("{sent} commands of Rust from the begin of its waits to its grants");
    assert!(sent <= 4 * commands.len(), "{sent} commands in {} rounds; the longest: {longest:?}", commands.len());
    Ok(())
}

#[tokio::test]
async fn a_java_waiter_is_woken_by_rust_every_time() -> Outcome {
    let pair = Pair::start().await?;
    let mut wakes = Latencies::default();
    for round in 0..rounds() {
        let java = pair.peer.lock("order", 1000).through(BOTH[round % 2]);
        let guard = pair.client.lock("order").lock().await?;

        let scripts = pair.redis.scripts_run().await?;
        let mut waiting = java.try_lock_within(Duration::from_secs(60));
        java.sleeps(&pair.redis, scripts).await?;
        assert!(!waiting.is_answered(), "round {round}: Rust still holds");
        let released = now_us();
        guard.release().await?;
        let (is_granted, granted) = within(SECOND, "the waiter's grant", waiting.timed()).await??;
        assert!(is_granted, "round {round}");
        wakes.add(released, granted);
        java.unlock().await?;
    }
    wakes.check("a release");
    Ok(())
}

#[tokio::test]
async fn a_force_release_by_rust_wakes_a_java_waiter() -> Outcome {
    let pair = Pair::start().await?;
    let lock = pair.client.lock("order");
    for api in BOTH {
        for holder in Party::BOTH {
            let held = Held::by(holder, &pair, &pair.client).await?;
            let waiter = pair.peer.lock("order", 2000).through(api);
            let scripts = pair.redis.scripts_run().await?;
            let waiting = waiter.try_lock_within(Duration::from_secs(60));
            waiter.sleeps(&pair.redis, scripts).await?;

            assert!(lock.force_release().await?, "{holder:?} held it");
            assert!(within(SECOND, "the waiter's grant", waiting).await??, "{api:?}, {holder:?}");
            held.expect_refusal().await?;
            waiter.unlock().await?;
        }
    }
    assert!(!lock.force_release().await?, "nothing to force");
    Ok(())
}

#[tokio::test]
async fn a_force_unlock_by_java_wakes_a_rust_waiter() -> Outcome {
    let pair = Pair::start().await?;
    let another = pair.another_client().await?;
    for api in BOTH {
        let java = pair.peer.lock("order", 2000).through(api);
        for holder in Party::BOTH {
            let held = Held::by(holder, &pair, &another).await?;
            let waiting = wait_for_a_minute(&pair.client, "order");
            rust_sleeps(&pair, "order").await?;

            assert!(java.force_unlock().await?, "{holder:?} held it");
            let (guard, _) = within(SECOND, "the waiter's grant", waiting).await???;
            held.expect_refusal().await?;
            guard.release().await?;
        }
        assert!(!java.force_unlock().await?, "nothing to force");
    }
    Ok(())
}

/// The waiter and the hold that is taken away belong to one client, which knows of no other.
#[tokio::test]
async fn a_force_unlock_by_java_wakes_the_next_in_the_line_of_the_client_that_held() -> Outcome {
    let pair = Pair::start().await?;
    let held = Held::by(Party::Rust, &pair, &pair.client).await?;
    let waiting = wait_for_a_minute(&pair.client, "order");
    rust_sleeps(&pair, "order").await?;
    assert!(pair.peer.lock("order", 2000).force_unlock().await?);
    let (guard, _) = within(SECOND, "the waiter's grant", waiting).await???;
    held.expect_refusal().await?;
    guard.release().await?;
    Ok(())
}

fn rounds() -> usize {
    if full_run() { 1000 } else { 200 }
}

#[derive(Clone, Copy, Debug)]
enum Party {
    Java,
    Rust,
}

impl Party {
    const BOTH: [Party; 2] = [Party::Java, Party::Rust];
}

/// A hold of the lock `order` that is about to be taken away.
enum Held<'a> {
    Java(JavaLock<'a>),
    Rust(Guard),
}

impl<'a> Held<'a> {
    async fn by(party: Party, pair: &'a Pair, client: &Client) -> Outcome<Self> {
        match party {
            Party::Java => {
                let java = pair.peer.lock("order", 1000);
                java.lock().await?;
                Ok(Self::Java(java))
            }
            Party::Rust => Ok(Self::Rust(client.lock("order").lock().await?)),
        }
    }

    /// The one it was taken from is told when it releases.
    async fn expect_refusal(self) -> Outcome {
        match self {
            Self::Java(java) => {
                let refused = java.unlock().await;
                assert!(refused.as_ref().is_err_and(JavaError::is_not_owner), "{refused:?}");
            }
            Self::Rust(guard) => {
                let refused = guard.release().await;
                assert!(matches!(refused, Err(Error::LeaseLost(_))), "{refused:?}");
            }
        }
        Ok(())
    }
}
