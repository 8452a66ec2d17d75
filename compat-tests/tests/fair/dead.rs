//! Heads of the queue that do not come any more.

use std::time::Duration;

use compat_tests::{Api, Command, Outcome, Peer, Source, Trace, within};
use futures_util::future::try_join_all;
use tokio::time::sleep;

use crate::scene::{Queue, Waiter, queue_as};
use crate::support::Pair;
use crate::support::holder::Holder;
use crate::{KIND, SECOND};

/// How long the lock is held, and how long the dead ones were ready to wait: through `tryLock(wait)`, since the patience
/// of a `lock()` is five minutes, and fixed in old versions.
const LEASE: Duration = Duration::from_millis(1_500);
const PATIENCE: Duration = Duration::from_millis(2_000);

/// Redisson leaves a waiter that was interrupted in the queue: it costs as much as a dead one, and not more.
#[tokio::test]
async fn a_killed_or_interrupted_waiter_costs_rust_no_more_than_its_patience() -> Outcome {
    let pair = Pair::start().await?;
    let another = Peer::start(&pair.redis).await?;
    let mut trace = Trace::start(&pair.redis).await?;
    let mut dead = Vec::new();

    let queue = held_by_java(&pair, "killed-java").await?;
    let lock = another.lock_of(KIND, queue.name(), 2000).through(Api::Sync);
    let _never = lock.try_lock_within(PATIENCE);
    queue.has(1).await?;
    another.kill9()?;
    dead.push(DeadHead::look_at(&pair, queue, &lock.owner()).await?);

    let queue = held_by_java(&pair, "interrupted-java").await?;
    let lock = pair.peer.lock_of(KIND, queue.name(), 2000).through(Api::Sync);
    let scripts = pair.redis.scripts_run().await?;
    let waiting = lock.try_lock_within(PATIENCE);
    lock.sleeps(&pair.redis, scripts).await?;
    assert!(pair.peer.cancel(&waiting).await?);
    let interrupted = waiting.await;
    assert!(interrupted.as_ref().is_err_and(|error| error.is_a("InterruptedException")), "{interrupted:?}");
    dead.push(DeadHead::look_at(&pair, queue, &lock.owner()).await?);

    dead.push(killed_rust_waiter(&pair, "killed-rust").await?);

    let mut waiters = Vec::new();
    for head in &dead {
        let lock = KIND.in_rust(&pair.client, head.queue.name()).owned_by(&pair.client.owner());
        waiters.push(Waiter::rust(&lock));
        head.queue.has(2).await?;
    }
    // From the moment that nobody holds the locks and only the dead ones stand before ours.
    for head in &dead {
        head.is_alone().await?;
    }
    trace.section().await?;
    let mut left = Vec::new();
    for head in &dead {
        left.push(head.left().await?);
    }
    let comes = waiters.iter_mut().zip(&dead).zip(&left).map(|((waiter, head), left)| async move {
        let name = head.queue.name();
        within(*left + SECOND, &format!("the grant behind {name}"), waiter.granted()).await??;
        head.is_over(0).await
    });
    try_join_all(comes).await?;
    let section = trace.section().await?;
    for (head, left) in dead.iter().zip(&left) {
        let name = head.queue.name();
        let is_counted =
            |command: &&Command| command.source == Source::Rust && command.words.iter().any(|word| word.contains(name));
        let sent: Vec<&Command> = section.iter().filter(is_counted).collect();
        let rate = sent.len() as f64 / left.as_secs_f64();
        println!("behind {name} Rust sent {} commands in {left:?}, {rate:.1} a second", sent.len());
        assert!(rate < 10.0, "behind {name}, in {left:?}: {sent:?}");
    }
    for (waiter, head) in waiters.into_iter().zip(&dead) {
        waiter.release().await?;
        assert_eq!(head.queue.keys().await?, Vec::<String>::new());
    }
    Ok(())
}

#[tokio::test]
async fn a_killed_rust_waiter_costs_java_no_more_than_its_patience() -> Outcome {
    let pair = Pair::start().await?;
    let head = killed_rust_waiter(&pair, "order").await?;
    let java = pair.peer.lock_of(KIND, "order", 3000).through(Api::Sync);
    let waiting = java.lock();
    head.queue.has(2).await?;
    let left = head.left().await?;
    within(left + SECOND, "Java's grant behind a dead head", waiting).await??;
    // Java goes by its own clock.
    head.is_over(20).await?;
    java.unlock().await?;
    assert_eq!(head.queue.keys().await?, Vec::<String>::new());
    Ok(())
}

/// All within the dead one's time and a second.
#[tokio::test]
async fn those_behind_a_dead_head_come_in_their_order() -> Outcome {
    let pair = Pair::start().await?;
    let head = killed_rust_waiter(&pair, "order").await?;
    let rust = KIND.in_rust(&pair.client, "order");
    let java = pair.peer.lock_of(KIND, "order", 2000).through(Api::Sync);
    let first = queue_as(rust.lock());
    head.queue.has(2).await?;
    let second = java.lock();
    head.queue.has(3).await?;
    let third = queue_as(rust.lock());
    head.queue.has(4).await?;
    let guard = within(head.left().await? + SECOND, "the first behind a dead head", first).await???;
    guard.release().await?;
    within(SECOND, "the second behind a dead head", second).await??;
    java.unlock().await?;
    within(SECOND, "the third behind a dead head", third).await???.release().await?;
    assert_eq!(head.queue.keys().await?, Vec::<String>::new());
    Ok(())
}

/// One in the queue that will not come, when its time is over, and when the holder's is. By the server's clock, in
/// milliseconds.
struct DeadHead<'a> {
    queue: Queue<'a>,
    over: i64,
    ends: i64,
}

impl<'a> DeadHead<'a> {
    /// Its time is that of the holder and its own patience.
    async fn look_at(pair: &'a Pair, queue: Queue<'a>, owner: &str) -> Outcome<Self> {
        queue.has(1).await?;
        let over = queue.score(owner).await?;
        let ends = queue.server_ms().await? + pair.redis.pttl(queue.name()).await?;
        let patience = over - ends;
        assert!((patience - 2_000).abs() < 100, "{}: the patience is {patience} ms", queue.name());
        Ok(Self { queue, over, ends })
    }

    /// Waits until the lock is free but for this head.
    async fn is_alone(&self) -> Outcome {
        while self.queue.server_ms().await? < self.ends {
            sleep(Duration::from_millis(5)).await;
        }
        Ok(())
    }

    async fn left(&self) -> Outcome<Duration> {
        Ok(Duration::from_millis(u64::try_from(self.over - self.queue.server_ms().await?)?))
    }

    /// Fails when somebody was granted in its time, but for so many milliseconds.
    async fn is_over(&self, tolerance: i64) -> Outcome {
        let early = self.over - self.queue.server_ms().await?;
        assert!(early <= tolerance, "granted {early} ms before the time of {} was over", self.queue.name());
        Ok(())
    }
}

async fn held_by_java<'a>(pair: &'a Pair, name: &'static str) -> Outcome<Queue<'a>> {
    pair.peer.lock_of(KIND, name, 1000).lock_for(LEASE).await?;
    Ok(Queue::of(&pair.redis, name))
}

/// A process of ours that waits for a lock of Java's, and is killed there.
async fn killed_rust_waiter<'a>(pair: &'a Pair, name: &'static str) -> Outcome<DeadHead<'a>> {
    let queue = held_by_java(pair, name).await?;
    let mut dead = Holder::of(KIND, name).wait(PATIENCE).start(&pair.redis).await?;
    queue.has(1).await?;
    dead.kill9().await?;
    DeadHead::look_at(pair, queue, dead.owner()).await
}
