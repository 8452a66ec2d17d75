//! What a lock that nobody else wants costs: one task alone, and 256 tasks on 256 keys, beside the ceiling: the same two
//! scripts a cycle, sent by hand down a bare redis-rs connection with the same settings, on the same current-thread runtime.
//!
//! The ratio printed at the end comes from rounds of both that take turns in one process, so that a busy machine slows
//! down both.
#![allow(missing_docs, reason = "a benchmark has no interface")]
#![allow(clippy::unwrap_used, reason = "a failure ends the benchmark")]

#[path = "support/ceiling.rs"]
mod ceiling;
#[path = "support/rounds.rs"]
mod rounds;
#[path = "../tests/support/mod.rs"]
mod support;

use std::time::{Duration, Instant};

use ceiling::Ceiling;
use criterion::{Criterion, Throughput};
use redlatch::{Client, RLock};
use rounds::Rounds;
use support::redis::Redis;
use tokio::{runtime::Runtime, task::JoinSet};

const TASKS: u64 = 256;
/// Cycles of a task in one round of the ratio.
const ROUND: u64 = 30;

fn main() {
    let redis = Redis::start();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let (client, ceiling) = runtime.block_on(async { (redis.client().await, Ceiling::connect(redis.port()).await) });
    let mut criterion = Criterion::default().configure_from_args();
    alone(&mut criterion, &runtime, &client, &ceiling);
    side_by_side(&mut criterion, &runtime, &client, &ceiling);
    criterion.final_summary();
    let (mut ours, mut bare) = (Rounds::default(), Rounds::default());
    for _ in 0..rounds::wanted(99) {
        ours.run(redis.pid(), TASKS * ROUND, || runtime.block_on(locks(&client, ROUND)));
        bare.run(redis.pid(), TASKS * ROUND, || runtime.block_on(scripts(&ceiling, ROUND)));
    }
    println!("uncontended: {}", ours.summary("cycle"));
    println!("ceiling: {}", bare.summary("cycle"));
    println!("uncontended/ceiling ratio: {:.2} ({} rounds)", ours.median() / bare.median(), ours.len());
}

/// One task, one cycle after the other: the latency of a lock.
fn alone(criterion: &mut Criterion, runtime: &Runtime, client: &Client, ceiling: &Ceiling) {
    let mut group = criterion.benchmark_group("uncontended/1 task");
    group.sample_size(20).measurement_time(Duration::from_secs(3)).throughput(Throughput::Elements(1));
    let lock = client.lock("alone");
    group.bench_function("redlatch", |b| b.iter(|| runtime.block_on(cycle(&lock))));
    let keys = ceiling.key("alone");
    group.bench_function("ceiling", |b| b.iter(|| runtime.block_on(keys.cycle())));
    group.finish();
}

/// 256 tasks, each with a key of its own.
fn side_by_side(criterion: &mut Criterion, runtime: &Runtime, client: &Client, ceiling: &Ceiling) {
    let mut group = criterion.benchmark_group("uncontended/256 tasks");
    group.sample_size(20).measurement_time(Duration::from_secs(3)).throughput(Throughput::Elements(1));
    group.bench_function("redlatch", |b| {
        b.iter_custom(|n| share_of(n, |rounds| runtime.block_on(locks(client, rounds))));
    });
    group.bench_function("ceiling", |b| {
        b.iter_custom(|n| share_of(n, |rounds| runtime.block_on(scripts(ceiling, rounds))));
    });
    group.finish();
}

/// Runs at least `cycles` in whole rounds of all tasks, and tells what `cycles` of them took.
fn share_of(cycles: u64, run: impl FnOnce(u64) -> Duration) -> Duration {
    let rounds = cycles.div_ceil(TASKS);
    run(rounds).mul_f64(cycles as f64 / (rounds * TASKS) as f64)
}

async fn cycle(lock: &RLock) {
    lock.lock().await.unwrap().release().await.unwrap();
}

async fn locks(client: &Client, rounds: u64) -> Duration {
    let started = Instant::now();
    let mut tasks = JoinSet::new();
    for task in 0..TASKS {
        let lock = client.lock(format!("lock:{task}"));
        tasks.spawn(async move {
            for _ in 0..rounds {
                cycle(&lock).await;
            }
        });
    }
    tasks.join_all().await;
    started.elapsed()
}

async fn scripts(ceiling: &Ceiling, rounds: u64) -> Duration {
    let started = Instant::now();
    let mut tasks = JoinSet::new();
    for task in 0..TASKS {
        let keys = ceiling.key(&format!("lock:{task}"));
        tasks.spawn(async move {
            for _ in 0..rounds {
                keys.cycle().await;
            }
        });
    }
    tasks.join_all().await;
    started.elapsed()
}
