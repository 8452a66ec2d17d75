//! Fifty thousand holds that the watchdog of one client keeps alive for three leases, nine periods: none may be lost. Prints
//! what a hold costs in memory, and what the renewals cost in commands.
#![allow(missing_docs, reason = "a benchmark has no interface")]
#![allow(clippy::unwrap_used, reason = "a failure ends the benchmark")]

#[path = "support/rounds.rs"]
mod rounds;
#[path = "../tests/support/mod.rs"]
mod support;

use std::time::Duration;

use redlatch::{Client, Guard};
use support::{
    Reports, forgotten,
    redis::{Probe, Redis},
    secs, within,
};
use tokio::{
    task::JoinSet,
    time::{Instant, sleep},
};

/// The watchdog's lease; a period is a third of it.
const LEASE: Duration = Duration::from_secs(6);
/// Tasks that take and release them side by side.
const TASKS: usize = 64;

#[tokio::main(flavor = "current_thread")]
async fn main() {
    let holds = rounds::wanted(50_000).max(1_000);
    let (redis, reports) = (Redis::start(), Reports::default());
    let probe = redis.probe().await;
    let client = reports.of(redis.builder()).watchdog_timeout(LEASE).connect().await.unwrap();
    client.lock("warm").lock().await.unwrap().release().await.unwrap();

    let before = resident();
    let guards = take(&client, holds).await;
    let per_hold = resident().zip(before).map(|(after, before)| after.saturating_sub(before) / holds as u64);
    let (renewals, started) = (probe.calls(&["evalsha"]).await, Instant::now());
    sleep(3 * LEASE).await;
    let renewals = (probe.calls(&["evalsha"]).await - renewals) as f64 / started.elapsed().as_secs_f64();

    let valid = guards.iter().filter(|guard| guard.is_valid()).count();
    assert_eq!((valid, keys(&probe).await), (holds, holds), "holds that are valid, and keys of holds");
    assert!(reports.all().is_empty(), "{:?}", reports.all());
    give_back(guards).await;
    forgotten(&client).await;
    assert_eq!(keys(&probe).await, 0, "all are released");

    let per_hold = per_hold.map_or("unknown".to_owned(), |bytes| format!("{bytes} bytes"));
    let least = (holds as f64 / 100.0) / (LEASE.as_secs_f64() / 3.0);
    println!("holds: {holds} kept for {:?}, none lost", 3 * LEASE);
    println!("holds: {per_hold} of memory a hold");
    println!("holds: {renewals:.0} renewal commands a second, at least {least:.0} with a hundred holds in each");
}

async fn take(client: &Client, holds: usize) -> Vec<Guard> {
    let mut tasks = JoinSet::new();
    for task in 0..TASKS {
        let client = client.clone();
        tasks.spawn(async move {
            let mut guards = Vec::with_capacity(holds / TASKS + 1);
            for hold in (task..holds).step_by(TASKS) {
                guards.push(client.lock(format!("hold:{hold}")).lock().await.unwrap());
            }
            guards
        });
    }
    within(secs(60), "all taken", tasks.join_all()).await.into_iter().flatten().collect()
}

async fn give_back(guards: Vec<Guard>) {
    let mut tasks: Vec<Vec<Guard>> = (0..TASKS).map(|_| Vec::new()).collect();
    for (index, guard) in guards.into_iter().enumerate() {
        tasks[index % TASKS].push(guard);
    }
    let release = |guards: Vec<Guard>| async {
        for guard in guards {
            guard.release().await.unwrap();
        }
    };
    within(secs(60), "all released", tasks.into_iter().map(release).collect::<JoinSet<()>>().join_all()).await;
}

async fn keys(probe: &Probe) -> usize {
    probe.ask(&["DBSIZE"]).await
}

/// Bytes of this process in memory, where the system tells.
fn resident() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let kib = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?.trim().strip_suffix(" kB")?;
    Some(kib.parse::<u64>().ok()? * 1024)
}
