//! The fair lock beside Redisson's: one queue in Redis, in which waiters of both languages stand.

#[path = "fair/dead.rs"]
mod dead;
#[path = "fair/scene.rs"]
mod scene;
mod support;

use std::collections::VecDeque;
use std::time::Duration;

use compat_tests::{Api, LockKind, Outcome, full_run, within};
use scene::{Queue, Waiter, queue_as};
use support::Pair;
use support::ways::{excludes_both_ways, that_hear, wakes_both_ways};

const SECOND: Duration = Duration::from_secs(1);
const KIND: LockKind = LockKind::Fair;

#[tokio::test]
async fn one_language_keeps_the_other_out() -> Outcome {
    excludes_both_ways(&Pair::start().await?, KIND).await
}

#[tokio::test]
async fn waiters_of_both_languages_are_woken_by_a_release_of_the_other() -> Outcome {
    wakes_both_ways(&Pair::start().await?, KIND, if full_run() { 200 } else { 20 }).await
}

/// Whose turn it is shows in every step: the head is granted by the release, and nobody else.
#[tokio::test]
async fn six_waiters_of_two_languages_are_granted_in_the_order_they_queued() -> Outcome {
    let pair = Pair::start().await?;
    let another = pair.another_client().await?;
    let queue = Queue::of(&pair.redis, "order");
    let rust = |client| KIND.in_rust(client, "order");
    for round in 0..if full_run() { 200 } else { 20 } {
        let java = |thread, api| pair.peer.lock_of(KIND, "order", thread).through(api);
        let first = java(1000, Api::Sync);
        let mut holder = if round % 2 == 0 {
            first.lock().await?;
            Waiter::Java { lock: first, waiting: None }
        } else {
            Waiter::Rust { waiting: None, guard: Some(rust(&pair.client).lock().await?) }
        };
        let mut waiters = VecDeque::new();
        for place in 0..6_u32 {
            let waiter = match (place + round) % 6 {
                0 | 4 => Waiter::rust(&rust(&pair.client).owned_by(&pair.client.owner())),
                2 => Waiter::rust(&rust(&another).owned_by(&another.owner())),
                1 | 5 => Waiter::java(&pair.redis, java(2000 + i64::from(place), Api::Sync)).await?,
                _ => Waiter::java(&pair.redis, java(2000 + i64::from(place), that_hear()[0])).await?,
            };
            waiters.push_back(waiter);
            queue.has(waiters.len()).await?;
        }
        while let Some(mut next) = waiters.pop_front() {
            holder.release().await?;
            within(SECOND, &format!("round {round}: with {} behind", waiters.len()), next.granted()).await??;
            for waiter in &mut waiters {
                assert!(!waiter.is_granted(), "round {round}: one out of turn");
            }
            queue.has(waiters.len()).await?;
            holder = next;
        }
        holder.release().await?;
        assert_eq!(queue.keys().await?, Vec::<String>::new(), "round {round}");
    }
    Ok(())
}

/// The worked example of the scores: each waiter is good for its own patience behind the one before it.
#[tokio::test]
async fn scores_add_up_over_waiters_of_both_languages() -> Outcome {
    let pair = Pair::start().await?;
    let queue = Queue::of(&pair.redis, "order");
    let lease = Duration::from_secs(40);
    let rust = KIND.in_rust(&pair.client, "order");
    let owners = [pair.client.owner(), pair.client.owner()];
    let java = |thread| pair.peer.lock_of(KIND, "order", thread).through(Api::Sync);

    let guard = rust.lock().lease(lease).await?;
    let until_end = 40_000;
    let first = java(2000).lock();
    queue.has(1).await?;
    let second = queue_as(rust.owned_by(&owners[0]).try_lock().wait(Duration::from_secs(5)));
    queue.has(2).await?;
    let third = java(2001).try_lock_within(Duration::from_secs(60));
    queue.has(3).await?;
    let fourth = queue_as(rust.owned_by(&owners[1]).lock());
    queue.has(4).await?;
    let now = queue.server_ms().await?;
    let scores = queue.scores().await?;
    let expected = [until_end + 300_000, until_end + 305_000, until_end + 365_000, until_end + 665_000];
    let members = [java(2000).owner(), owners[0].to_string(), java(2001).owner(), owners[1].to_string()];
    for (member, expected) in members.iter().zip(expected) {
        let good_for = scores[member] - now;
        assert!((good_for - expected).abs() < 1_000, "{member}: {good_for} ms from now, expected {expected}");
    }

    // The second gives up: those behind it come nearer by its patience and no more. The one before it stays.
    second.abort();
    queue.has(3).await?;
    let after = queue.scores().await?;
    for (member, moved) in [(&members[0], 0), (&members[2], 5_000), (&members[3], 5_000)] {
        assert_eq!(scores[member] - after[member], moved, "{member}");
    }

    // The first is granted: its patience goes, whoever is behind it.
    guard.release().await?;
    within(SECOND, "the grant of the first", first).await??;
    queue.has(2).await?;
    let last = queue.scores().await?;
    for member in &members[2..] {
        assert_eq!(after[member] - last[member], 300_000, "{member}");
    }
    java(2000).unlock().await?;
    assert!(within(SECOND, "the grant of the third", third).await??);
    java(2001).unlock().await?;
    let guard = within(SECOND, "the grant of the fourth", fourth).await???;
    guard.release().await?;
    assert_eq!(queue.keys().await?, Vec::<String>::new());
    Ok(())
}

/// Java's too leaves the queue, when it is asked through its synchronous API; the asynchronous one takes five minutes off
/// whoever is behind.
#[tokio::test]
async fn a_waiter_that_gives_up_costs_those_behind_it_nothing() -> Outcome {
    let pair = Pair::start().await?;
    let queue = Queue::of(&pair.redis, "order");
    let rust = KIND.in_rust(&pair.client, "order");
    let java = |thread| pair.peer.lock_of(KIND, "order", thread).through(Api::Sync);
    let wait = Duration::from_millis(300);

    let guard = rust.lock().await?;
    let given_up = java(2000).try_lock_within(wait);
    queue.has(1).await?;
    let behind = Waiter::rust(&rust.owned_by(&pair.client.owner()));
    queue.has(2).await?;
    assert!(!given_up.await?, "Rust holds");
    queue.has(1).await?;
    guard.release().await?;
    behind.comes_next("Rust behind Java that gave up").await?;

    java(1000).lock().await?;
    let given_up = queue_as(rust.try_lock().wait(wait));
    queue.has(1).await?;
    let behind = Waiter::java(&pair.redis, java(2001)).await?;
    queue.has(2).await?;
    assert!(given_up.await??.is_none(), "Java holds");
    queue.has(1).await?;
    java(1000).unlock().await?;
    behind.comes_next("Java behind Rust that gave up").await?;
    assert_eq!(queue.keys().await?, Vec::<String>::new());
    Ok(())
}

/// Not in the middle of the queue, nor at its head.
#[tokio::test]
async fn a_cancelled_rust_waiter_costs_those_behind_it_nothing() -> Outcome {
    let pair = Pair::start().await?;
    let queue = Queue::of(&pair.redis, "order");
    let rust = KIND.in_rust(&pair.client, "order");
    let java = |thread| pair.peer.lock_of(KIND, "order", thread).through(Api::Sync);

    java(1000).lock().await?;
    let head = queue_as(rust.lock());
    queue.has(1).await?;
    let next = Waiter::java(&pair.redis, java(2000)).await?;
    queue.has(2).await?;
    let middle = queue_as(rust.lock());
    queue.has(3).await?;
    let last = Waiter::java(&pair.redis, java(2001)).await?;
    queue.has(4).await?;
    middle.abort();
    queue.has(3).await?;
    head.abort();
    queue.has(2).await?;
    java(1000).unlock().await?;
    next.comes_next("Java behind a cancelled head").await?;
    last.comes_next("Java behind a cancelled one in the middle").await?;
    assert_eq!(queue.keys().await?, Vec::<String>::new());
    Ok(())
}

/// Nothing is published when a key is deleted by hand, and Java's own head would leave without a word. Ours tells the next
/// one, which would sleep until the end of the lease it was told.
#[tokio::test]
async fn a_rust_head_that_leaves_a_free_lock_tells_java() -> Outcome {
    let pair = Pair::start().await?;
    let queue = Queue::of(&pair.redis, "order");
    let rust = KIND.in_rust(&pair.client, "order");
    let stranger = pair.peer.lock_of(KIND, "order", 1000);
    stranger.lock().await?;
    let head = Waiter::rust(&rust.owned_by(&pair.client.owner()));
    queue.has(1).await?;
    let next = Waiter::java(&pair.redis, pair.peer.lock_of(KIND, "order", 2000).through(Api::Sync)).await?;
    queue.has(2).await?;
    queue.delete_lock().await?;
    head.cancel();
    next.comes_next("Java behind a head that left").await?;
    assert_eq!(queue.keys().await?, Vec::<String>::new());
    Ok(())
}
