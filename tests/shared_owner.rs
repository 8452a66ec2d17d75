//! Two tasks that act as one owner: whatever the order of their acquires and releases, the count is right.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test that cannot go on ends here")]

mod support;

use std::sync::{
    Arc,
    atomic::{AtomicBool, AtomicU64, Ordering},
};

use redlatch::{Guard, OwnedLock, RLock};
use support::{
    forgotten, full,
    redis::{Probe, Redis},
    secs, within,
};
use tokio::{sync::Barrier, task::JoinSet};

/// Both tasks stop racing after so many rounds and compare notes.
const ROUNDS_OF_A_RACE: u64 = 250;
/// One hold in so many is kept for the time of a few questions to Redis.
const LONGER: u64 = 8;
const QUESTIONS: u64 = 4;

/// What the two tasks and the eye share.
struct Race {
    lock: RLock,
    owned: OwnedLock,
    probe: Probe,
    meet: Barrier,
    /// For each task a number that goes up when it gets a guard and when it gives one up: odd while it has one.
    turns: [AtomicU64; 2],
    over: AtomicBool,
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_tasks_of_one_owner_always_count_right() {
    let redis = Redis::start();
    let (client, probe) = (redis.client().await, redis.probe().await);
    let rounds = if full() { 50_000 } else { 10_000 };
    let (lock, owner) = (client.lock("shared"), client.owner());
    let race = Arc::new(Race {
        owned: lock.owned_by(&owner),
        lock,
        probe: probe.clone(),
        meet: Barrier::new(2),
        turns: Default::default(),
        over: AtomicBool::new(false),
    });
    let eye = tokio::spawn(race.clone().watch());
    let tasks: JoinSet<()> = (0..2).map(|task| race.clone().run(task, rounds)).collect();
    within(secs(600), "the race", tasks.join_all()).await;
    race.over.store(true, Ordering::SeqCst);
    let seen = within(secs(5), "the eye", eye).await.unwrap();
    // That both hold is looked at where they meet; from outside it may be missed on a busy machine.
    assert!(seen[..2].iter().all(|&n| n > 0), "looks during which nobody, one and both surely held: {seen:?}");
    assert!(probe.keys().await.is_empty());
    forgotten(&client).await;
}

impl Race {
    async fn run(self: Arc<Self>, task: usize, rounds: u64) {
        for round in 0..rounds {
            let guard = self.owned.lock().await.unwrap();
            self.turns[task].fetch_add(1, Ordering::SeqCst);
            let count = guard.hold_count();
            assert!(guard.is_valid() && (1..=2).contains(&count), "a count of {count}");
            for _ in 0..if round % LONGER == 0 { QUESTIONS } else { 0 } {
                let count = self.count().await;
                assert!((1..=2).contains(&count), "a count of {count} in Redis");
            }
            self.turns[task].fetch_add(1, Ordering::SeqCst);
            guard.release().await.unwrap();
            if round % ROUNDS_OF_A_RACE == 0 {
                self.compare_notes(task).await;
            }
        }
    }

    /// With both at rest: no hold, then one, then two, then one, and none again.
    async fn compare_notes(&self, task: usize) {
        let mut guard = None;
        self.agree(0, &guard).await;
        for (turn, count) in [(0, 1), (1, 2)] {
            if task == turn {
                guard = Some(self.owned.lock().await.unwrap());
            }
            self.agree(count, &guard).await;
        }
        // The first goes first: guards may be released in any order.
        for (turn, count) in [(0, 1), (1, 0)] {
            if task == turn {
                guard.take().unwrap().release().await.unwrap();
            }
            self.agree(count, &guard).await;
        }
    }

    /// Both tasks have come this far, and until both go on this is the count for Redis and for whoever has a guard.
    async fn agree(&self, count: u64, guard: &Option<Guard>) {
        self.meet.wait().await;
        assert_eq!(self.count().await, count);
        if let Some(guard) = guard {
            assert!(guard.is_valid());
            assert_eq!(guard.hold_count(), count);
        }
        self.meet.wait().await;
    }

    async fn count(&self) -> u64 {
        self.lock.hold_count(&self.owned.owner()).await.unwrap()
    }

    /// Looks at the count from outside, again and again. Tells how many looks there were with no, one and two guards held
    /// during the whole of the look.
    async fn watch(self: Arc<Self>) -> [u64; 3] {
        let (owner, mut seen) = (self.owned.owner().to_string(), [0; 3]);
        while !self.over.load(Ordering::SeqCst) {
            let before = self.turns();
            let count: Option<u64> = self.probe.ask(&["HGET", "shared", &owner]).await;
            let (count, after) = (count.unwrap_or(0), self.turns());
            let held = (0..2).filter(|&task| before[task] == after[task] && before[task] % 2 == 1).count();
            assert!((held as u64..=2).contains(&count), "a count of {count} while {held} guards were held");
            seen[held] += 1;
        }
        seen
    }

    fn turns(&self) -> [u64; 2] {
        [0, 1].map(|task: usize| self.turns[task].load(Ordering::SeqCst))
    }
}
