//! How fast a lock goes round among the tasks of one process, beside the rate at which one task can call the transfer script
//! by hand, one call after the other: no lock whose every hand-over is seen by Redis can go round faster.
#![allow(missing_docs, reason = "a benchmark has no interface")]
#![allow(clippy::unwrap_used, reason = "a failure ends the benchmark")]

#[path = "support/rounds.rs"]
mod rounds;
#[path = "../tests/support/mod.rs"]
mod support;

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use criterion::{Criterion, Throughput};
use redis::{AsyncConnectionConfig, Value, aio::MultiplexedConnection};
use redlatch::Client;
use rounds::Rounds;
use support::redis::Redis;
use tokio::{runtime::Runtime, task::JoinSet};

/// Tasks that want the lock all the time.
const CONVOYS: [u64; 2] = [16, 64];
/// Hand-overs of one round of the ratio.
const ROUND: u64 = 1_000;

fn main() {
    let redis = Redis::start();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let (client, bare) = runtime.block_on(async { (redis.client().await, Transfers::prepare(redis.port()).await) });
    let mut criterion = Criterion::default().configure_from_args();
    compare(&mut criterion, &runtime, &client, &bare);
    criterion.final_summary();
    let (mut convoys, mut raw) = (CONVOYS.map(|_| Rounds::default()), Rounds::default());
    for _ in 0..rounds::wanted(51) {
        for (convoy, tasks) in convoys.iter_mut().zip(CONVOYS) {
            convoy.run(redis.pid(), ROUND, || runtime.block_on(go_round(&client, tasks, ROUND)));
        }
        raw.run(redis.pid(), ROUND, || runtime.block_on(bare.run(ROUND)));
    }
    println!("calls of the script by hand: {}", raw.summary("call"));
    for (convoy, tasks) in convoys.iter().zip(CONVOYS) {
        println!("convoy of {tasks}: {}", convoy.summary("hand-over"));
        println!(
            "contended/calls ratio, {tasks} tasks: {:.2} ({} rounds)",
            convoy.median() / raw.median(),
            convoy.len()
        );
    }
}

fn compare(criterion: &mut Criterion, runtime: &Runtime, client: &Client, bare: &Transfers) {
    let mut group = criterion.benchmark_group("contended");
    group.sample_size(20).measurement_time(Duration::from_secs(3)).throughput(Throughput::Elements(1));
    for tasks in CONVOYS {
        group.bench_function(format!("{tasks} tasks"), |b| {
            b.iter_custom(|n| runtime.block_on(go_round(client, tasks, n)));
        });
    }
    group.bench_function("calls by hand", |b| b.iter_custom(|n| runtime.block_on(bare.run(n))));
    group.finish();
}

/// Lets `tasks` take the lock `turns` times in all.
async fn go_round(client: &Client, tasks: u64, turns: u64) -> Duration {
    let started = Instant::now();
    let left = Arc::new(AtomicU64::new(turns));
    let one_less = |left: u64| left.checked_sub(1);
    let mut convoy = JoinSet::new();
    for _ in 0..tasks {
        let (lock, left) = (client.lock("convoy"), left.clone());
        convoy.spawn(async move {
            while left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, one_less).is_ok() {
                lock.lock().await.unwrap().release().await.unwrap();
            }
        });
    }
    convoy.join_all().await;
    started.elapsed()
}

/// The transfer script, called by hand: from one owner to the other and back.
struct Transfers {
    con: MultiplexedConnection,
    digest: String,
}

impl Transfers {
    const KEY: &str = "by hand";
    const OWNERS: [&str; 2] = ["00000000-0000-4000-8000-000000000000:1", "00000000-0000-4000-8000-000000000000:2"];
    const LEASE_MS: u64 = 30_000;

    async fn prepare(port: u16) -> Self {
        let client = redis::Client::open(format!("redis://127.0.0.1:{port}")).unwrap();
        let config = AsyncConnectionConfig::new().set_response_timeout(None);
        let mut con = client.get_multiplexed_async_connection_with_config(&config).await.unwrap();
        let script = include_str!("../lua/lock_transfer.lua");
        let digest = redis::cmd("SCRIPT").arg("LOAD").arg(script).query_async(&mut con).await.unwrap();
        Self { con, digest }
    }

    async fn run(&self, calls: u64) -> Duration {
        let mut con = self.con.clone();
        let held = redis::cmd("HSET").arg(Self::KEY).arg(Self::OWNERS[0]).arg(1).to_owned();
        con.send_packed_command(&held).await.unwrap();
        let started = Instant::now();
        for call in 0..calls {
            let [old, new] = if call % 2 == 0 { [0, 1] } else { [1, 0] }.map(|index: usize| Self::OWNERS[index]);
            let mut transfer = redis::cmd("EVALSHA");
            transfer.arg(&self.digest).arg(1).arg(Self::KEY).arg(old).arg(new).arg(Self::LEASE_MS);
            transfer.arg("redisson_lock__channel:{by hand}");
            let reply = con.send_packed_command(&transfer).await.unwrap();
            assert_eq!(reply, Value::Array(vec![Value::Int(1), Value::Int(0)]), "handed over");
        }
        let took = started.elapsed();
        con.send_packed_command(redis::cmd("DEL").arg(Self::KEY)).await.unwrap();
        took
    }
}
