//! A server that is out of memory, a replica, or still loading.

use std::{future::IntoFuture, path::Path};

use redlatch::{Action, Error, Fault, Guard, RLock};
use tokio::task::JoinHandle;

use crate::{
    fails,
    support::{
        Reports, asleep, eventually, forgotten, ms,
        redis::{Probe, Redis},
        secs, within,
    },
};

/// Scripts asked to run, those aside that had to be loaded first.
async fn questions(probe: &Probe) -> u64 {
    probe.calls(&["evalsha"]).await - probe.calls(&["script|load"]).await
}

async fn fill_memory(probe: &Probe) {
    probe.run(&["CONFIG", "SET", "maxmemory-policy", "noeviction"]).await;
    probe.run(&["CONFIG", "SET", "maxmemory", "1"]).await;
}

fn take_and_release(lock: RLock) -> JoinHandle<Result<(), Error>> {
    tokio::spawn(async move { lock.lock().await?.release().await })
}

#[tokio::test]
async fn a_full_server_refuses_every_take_and_keeps_nothing_of_it() {
    let redis = Redis::start();
    let (client, probe) = (redis.client().await, redis.probe().await);
    let held = client.lock("held");
    let owner = client.owner();
    let outer = held.owned_by(&owner).lock().await.unwrap();
    fill_memory(&probe).await;
    let before = probe.everything().await;
    let asked = questions(&probe).await;
    for _ in 0..3 {
        fails(client.lock("new").lock().await, Action::Acquire, Fault::OutOfMemory, "new");
        fails(client.lock("new").try_lock().wait(secs(60)).await, Action::Acquire, Fault::OutOfMemory, "new");
        fails(held.owned_by(&owner).lock().await, Action::Acquire, Fault::OutOfMemory, "held");
    }
    assert!(held.try_lock().await.unwrap().is_none(), "busy is told without memory");
    // One question each; what failed may be undone to be sure.
    let asked = questions(&probe).await - asked;
    assert!((10..=19).contains(&asked), "{asked} commands for ten operations");
    assert_eq!(probe.everything().await, before);
    assert!(outer.is_valid());
    assert_eq!(outer.hold_count(), 1);
    outer.release().await.unwrap();
    assert_eq!(probe.keys().await, Vec::<String>::new());
    forgotten(&client).await;
}

#[tokio::test]
async fn with_a_full_server_every_hold_can_still_be_released() {
    let redis = Redis::start();
    let (client, probe) = (redis.client().await, redis.probe().await);
    let (owner, twice) = (client.owner(), client.lock("twice"));
    let watched = client.lock("watched").lock().await.unwrap();
    let leased = client.lock("leased").lock().lease(secs(60)).await.unwrap();
    let dropped = client.lock("dropped").lock().await.unwrap();
    let forced = client.lock("forced").lock().await.unwrap();
    let mut reentered: Vec<Guard> = Vec::new();
    for _ in 0..3 {
        reentered.push(twice.owned_by(&owner).lock().await.unwrap());
    }
    fill_memory(&probe).await;
    fails(client.lock("new").try_lock().await, Action::Acquire, Fault::OutOfMemory, "new");

    watched.release().await.unwrap();
    leased.release().await.unwrap();
    drop(dropped);
    assert!(client.lock("forced").force_release().await.unwrap());
    assert!(!forced.is_valid());
    drop(forced);
    for (left, guard) in [2, 1, 0].into_iter().zip(reentered) {
        guard.release().await.unwrap();
        assert_eq!(twice.hold_count(&owner).await.unwrap(), left);
    }
    forgotten(&client).await;
    assert_eq!(probe.keys().await, Vec::<String>::new());
}

#[tokio::test]
async fn with_a_full_server_the_lock_still_goes_from_waiter_to_waiter() {
    let redis = Redis::start();
    let (client, probe) = (redis.client().await, redis.probe().await);
    let lock = client.lock("orders");
    let guard = lock.lock().await.unwrap();
    let asked = probe.calls(&["evalsha"]).await;
    let tasks: Vec<_> = (0..2).map(|_| take_and_release(lock.clone())).collect();
    asleep(&client, &probe, 2, asked).await;
    fill_memory(&probe).await;
    guard.release().await.unwrap();
    for task in tasks {
        within(secs(2), "its turn", task).await.unwrap().unwrap();
    }
    forgotten(&client).await;
    assert_eq!(probe.keys().await, Vec::<String>::new());
}

#[tokio::test]
async fn with_a_full_server_a_woken_waiter_gets_the_error_and_holds_are_renewed() {
    let redis = Redis::start();
    let reports = Reports::default();
    let holder = reports.of(redis.builder().watchdog_timeout(ms(300))).connect().await.unwrap();
    let (client, probe) = (redis.client().await, redis.probe().await);
    let guard = holder.lock("orders").lock().await.unwrap();
    let kept = holder.lock("kept").lock().await.unwrap();
    let asked = probe.calls(&["evalsha"]).await + 1;
    let waiter = take_and_release(client.lock("orders"));
    asleep(&client, &probe, 1, asked).await;
    fill_memory(&probe).await;
    guard.release().await.unwrap();
    fails(within(secs(2), "woken", waiter).await.unwrap(), Action::Acquire, Fault::OutOfMemory, "orders");
    forgotten(&client).await;
    let renewals = probe.calls(&["evalsha"]).await + 6;
    eventually(secs(3), "two leases", || async { probe.calls(&["evalsha"]).await >= renewals }).await;
    assert!(kept.is_valid() && probe.exists("kept").await);
    assert_eq!(probe.keys().await, ["kept"]);
    kept.release().await.unwrap();
    forgotten(&holder).await;
    assert!(reports.all().is_empty(), "{:?}", reports.all());
}

#[tokio::test]
async fn a_replica_refuses_takes_by_name_and_what_was_held_is_released_once_it_is_a_master_again() {
    let redis = Redis::start();
    let (client, probe) = (redis.client().await, redis.probe().await);
    let (one, two) = (client.lock("one").lock().await.unwrap(), client.lock("two").lock().await.unwrap());
    probe.run(&["REPLICAOF", "127.0.0.1", "1"]).await;
    let before = probe.everything().await;
    let asked = questions(&probe).await;
    fails(client.lock("new").lock().await, Action::Acquire, Fault::ReadOnly, "new");
    fails(client.lock("new").try_lock().wait(secs(60)).await, Action::Acquire, Fault::ReadOnly, "new");
    fails(client.lock("one").force_release().await, Action::ForceRelease, Fault::ReadOnly, "one");
    let asked = questions(&probe).await - asked;
    assert!((3..=6).contains(&asked), "{asked} commands for three operations");
    assert!(client.lock("one").is_locked().await.unwrap(), "reading goes on");
    fails(within(secs(2), "told at once", one.release()).await, Action::Release, Fault::ReadOnly, "one");
    drop(two);
    assert_eq!(probe.everything().await, before);
    let asked = probe.calls(&["evalsha"]).await;
    tokio::time::sleep(ms(500)).await; // how often it is tried in this time is the subject
    let tries = probe.calls(&["evalsha"]).await - asked;
    assert!((1..=20).contains(&tries), "{tries} tries in half a second for two holds");
    probe.run(&["REPLICAOF", "NO", "ONE"]).await;
    forgotten(&client).await;
    assert_eq!(probe.keys().await, Vec::<String>::new());
    client.lock("new").lock().await.unwrap().release().await.unwrap();
}

/// A server that takes about a second to load what `dir` has.
fn slow_to_load(dir: &Path) -> Redis {
    let dir = dir.display().to_string();
    let slowly = ["--key-load-delay", "1000", "--loading-process-events-interval-bytes", "1024"];
    Redis::with(&[&["--dir", &dir], &slowly[..]].concat())
}

#[tokio::test]
async fn while_redis_loads_takes_are_refused_by_name_and_work_afterwards() {
    let saved = Redis::start();
    let probe = saved.probe().await;
    probe.run(&["DEBUG", "POPULATE", "1200", "filler", "64"]).await;
    probe.run(&["SAVE"]).await;
    let redis = slow_to_load(saved.dir());
    let probe = redis.probe().await;
    let loading = || async { probe.ask::<String>(&["INFO", "persistence"]).await.contains("\nloading:1") };
    assert!(loading().await, "loads slowly enough to be seen");
    let client = match within(secs(2), "connecting", redis.builder().connect()).await {
        Ok(client) => client,
        refused => return fails(refused, Action::Connect, Fault::Loading, &format!("127.0.0.1:{}", redis.port())),
    };
    let lock = client.lock("orders");
    for _ in 0..3 {
        fails(lock.lock().await, Action::Acquire, Fault::Loading, "orders");
        fails(lock.try_lock().wait(secs(60)).await, Action::Acquire, Fault::Loading, "orders");
        fails(lock.is_locked().await, Action::Query, Fault::Loading, "orders");
        fails(lock.force_release().await, Action::ForceRelease, Fault::Loading, "orders");
    }
    assert!(loading().await, "still");
    forgotten(&client).await;
    let all: String = probe.ask(&["INFO", "commandstats"]).await;
    let refused = all.lines().find(|line| line.starts_with("cmdstat_evalsha:")).expect("was asked");
    assert!(refused.contains("calls=0,") && refused.contains("rejected_calls=9,"), "one question each: {refused}");
    eventually(secs(10), "loaded", || async { !loading().await }).await;
    lock.lock().into_future().await.unwrap().release().await.unwrap();
    assert_eq!(probe.ask::<u64>(&["DBSIZE"]).await, 1200);
}
