//! A key that somebody else took, overwrote or forced open under a hold.

use std::time::Duration;

use tokio::time::{Instant, sleep_until};

use crate::{
    Kept, is_lost, lost_no_later_than,
    support::{
        asleep, eventually, forgotten, ms,
        redis::{Probe, Redis},
        secs, within,
    },
    take,
};

/// The next renewal of a watchdog timeout of 1,500 ms has come by then; the lease itself would have lasted longer.
const A_RENEWAL: Duration = Duration::from_millis(500 + 400);

/// Takes the key away from whoever has it, in one step.
const TAKE_OVER: &str =
    "redis.call('del', KEYS[1]) redis.call('hset', KEYS[1], 'foreign:1', 1) redis.call('pexpire', KEYS[1], 20000)";

async fn taken_over(probe: &Probe, name: &str) {
    probe.run(&["EVAL", TAKE_OVER, "1", name]).await;
}

/// The foreign hold is what it was: not renewed, not released.
async fn is_untouched(probe: &Probe, name: &str, taken: Instant) {
    assert_eq!(probe.ask::<Vec<String>>(&["HGETALL", name]).await, ["foreign:1", "1"]);
    let asked = taken.elapsed().as_millis() as i64;
    let left: i64 = probe.ask(&["PTTL", name]).await;
    assert!((1..=20_000 - asked + 50).contains(&left), "{left} ms are left {asked} ms after it was taken");
}

#[tokio::test]
async fn a_foreign_holder_is_neither_renewed_nor_released_by_the_one_before() {
    let redis = Redis::start();
    let client = redis.builder().watchdog_timeout(ms(1500)).connect().await.unwrap();
    let probe = redis.probe().await;
    let guard = take(&client, "orders", Kept::Watched).await;
    let taken = Instant::now();
    taken_over(&probe, "orders").await;
    within(A_RENEWAL, "lost by the next renewal", guard.lost()).await;
    is_untouched(&probe, "orders", taken).await;
    is_lost(guard.release().await, "orders");
    forgotten(&client).await;
    is_untouched(&probe, "orders", taken).await;
}

#[tokio::test]
async fn a_release_that_is_the_first_to_find_a_foreign_holder_reports_the_loss() {
    for kept in [Kept::Watched, Kept::Fixed(secs(60))] {
        let redis = Redis::start();
        let (client, probe) = (redis.client().await, redis.probe().await);
        let guard = take(&client, "orders", kept).await;
        let taken = Instant::now();
        taken_over(&probe, "orders").await;
        is_lost(within(secs(2), "release", guard.release()).await, "orders");
        is_untouched(&probe, "orders", taken).await;
        forgotten(&client).await;
    }
}

#[tokio::test]
async fn a_hand_over_that_finds_a_foreign_holder_grants_nothing_and_the_waiter_goes_on_waiting() {
    let redis = Redis::start();
    let (client, probe) = (redis.client().await, redis.probe().await);
    let lock = client.lock("orders");
    let guard = lock.lock().await.unwrap();
    let asked = probe.calls(&["evalsha"]).await;
    let waiter = tokio::spawn({
        let lock = lock.clone();
        async move { lock.lock().await?.release().await }
    });
    asleep(&client, &probe, 1, asked).await;
    let taken = Instant::now();
    taken_over(&probe, "orders").await;
    is_lost(guard.release().await, "orders");
    eventually(secs(5), "it has asked", || async { client.stats().in_flight == 0 }).await;
    is_untouched(&probe, "orders", taken).await;
    assert!(!waiter.is_finished());
    probe
        .run(&["EVAL", "redis.call('del', KEYS[1]) redis.call('publish', ARGV[1], '0')", "1", "orders", CHANNEL])
        .await;
    within(secs(2), "its turn", waiter).await.unwrap().unwrap();
    forgotten(&client).await;
}

const CHANNEL: &str = "redisson_lock__channel:{orders}";

#[tokio::test]
async fn a_held_key_that_becomes_something_else_is_lost_by_the_next_renewal_and_left_alone() {
    let redis = Redis::start();
    let client = redis.builder().watchdog_timeout(ms(1500)).connect().await.unwrap();
    let probe = redis.probe().await;
    let guard = take(&client, "orders", Kept::Watched).await;
    let neighbour = take(&client, "neighbour", Kept::Watched).await;
    probe.run(&["SET", "orders", "42"]).await;
    within(A_RENEWAL, "lost by the next renewal", guard.lost()).await;
    is_lost(guard.release().await, "orders");
    // The hold that is renewed in the same call goes on.
    let until = Instant::now() + ms(1800);
    while Instant::now() < until {
        assert!(neighbour.is_valid() && probe.exists("neighbour").await);
        assert_eq!(probe.ask::<i64>(&["PTTL", "orders"]).await, -1);
        sleep_until(Instant::now() + ms(20)).await;
    }
    assert_eq!(probe.ask::<String>(&["GET", "orders"]).await, "42");
    neighbour.release().await.unwrap();
    forgotten(&client).await;
}

#[tokio::test]
async fn a_forced_release_is_known_at_once_here_and_by_the_next_renewal_elsewhere() {
    let redis = Redis::start();
    let here = redis.client().await;
    let elsewhere = redis.builder().watchdog_timeout(ms(1500)).connect().await.unwrap();
    let guard = take(&here, "mine", Kept::Watched).await;
    assert!(here.lock("mine").force_release().await.unwrap());
    assert!(!guard.is_valid());
    within(ms(200), "told", guard.lost()).await;
    is_lost(guard.release().await, "mine");
    let guard = take(&elsewhere, "theirs", Kept::Watched).await;
    assert!(here.lock("theirs").force_release().await.unwrap());
    within(A_RENEWAL, "lost by the next renewal", guard.lost()).await;
    is_lost(guard.release().await, "theirs");
    forgotten(&here).await;
    forgotten(&elsewhere).await;
}

#[tokio::test]
async fn extending_a_hold_that_is_gone_is_a_loss_and_makes_nothing_anew() {
    for foreign in [false, true] {
        for kept in [Kept::Watched, Kept::Fixed(secs(60))] {
            let redis = Redis::start();
            let (client, probe) = (redis.client().await, redis.probe().await);
            let guard = take(&client, "orders", kept).await;
            let taken = Instant::now();
            if foreign {
                taken_over(&probe, "orders").await;
            } else {
                probe.run(&["DEL", "orders"]).await;
            }
            is_lost(guard.extend(secs(120)).await, "orders");
            assert_eq!(probe.exists("orders").await, foreign);
            is_lost(guard.extend(secs(120)).await, "orders");
            is_lost(guard.release().await, "orders");
            if foreign {
                is_untouched(&probe, "orders", taken).await;
            }
            forgotten(&client).await;
        }
    }
}

#[tokio::test]
async fn a_loss_that_an_extension_finds_is_told_to_everybody() {
    let redis = Redis::start();
    let (client, probe) = (redis.client().await, redis.probe().await);
    let guard = take(&client, "orders", Kept::Fixed(secs(60))).await;
    probe.run(&["DEL", "orders"]).await;
    is_lost(guard.extend(secs(120)).await, "orders");
    assert!(!guard.is_valid(), "Redis has said that the hold is gone");
    within(ms(200), "told", guard.lost()).await;
}

#[tokio::test]
async fn two_guards_of_one_client_are_never_valid_at_once() {
    let redis = Redis::start();
    let (client, probe) = (redis.client().await, redis.probe().await);
    for kept in [Kept::Watched, Kept::Fixed(secs(60))] {
        let old = take(&client, "orders", kept).await;
        probe.run(&["DEL", "orders"]).await;
        let new = client.lock("orders").try_lock().await.unwrap().expect("Redis says that it is free");
        assert!(!old.is_valid(), "the grant to another owner says that this hold is gone");
        is_lost(old.release().await, "orders");
        assert!(new.is_valid());
        new.release().await.unwrap();
        forgotten(&client).await;
    }
}

#[tokio::test]
async fn an_extension_makes_a_fixed_lease_last_longer_and_never_shorter() {
    let redis = Redis::start();
    let (client, probe) = (redis.client().await, redis.probe().await);
    let guard = take(&client, "orders", Kept::Fixed(ms(400))).await;
    guard.extend(secs(1)).await.unwrap();
    let extended = Instant::now();
    assert!(guard.valid_for() > ms(900));
    guard.extend(ms(10)).await.unwrap();
    assert!(guard.valid_for() > ms(800));
    assert!(probe.ask::<i64>(&["PTTL", "orders"]).await > 800);
    lost_no_later_than(&guard, crate::ends(&probe, "orders")).await;
    assert!(extended.elapsed() > ms(950), "{:?}", extended.elapsed());
    is_lost(guard.extend(secs(1)).await, "orders");
    assert!(!probe.exists("orders").await);
    is_lost(guard.release().await, "orders");
    forgotten(&client).await;
}

#[tokio::test]
async fn an_extension_of_a_renewed_hold_is_not_cut_short_by_its_next_renewal() {
    let redis = Redis::start();
    let client = redis.builder().watchdog_timeout(ms(300)).connect().await.unwrap();
    let probe = redis.probe().await;
    let guard = take(&client, "orders", Kept::Watched).await;
    guard.extend(secs(20)).await.unwrap();
    let asked = probe.calls(&["evalsha"]).await;
    eventually(secs(2), "renewed", || async { probe.calls(&["evalsha"]).await > asked + 1 }).await;
    let trusted = guard.valid_for();
    let left = Duration::from_millis(probe.ask(&["PTTL", "orders"]).await);
    assert!(trusted <= left, "trusted for {trusted:?}, but Redis ends it in {left:?}");
    assert!(left > secs(15), "never shortened: {left:?}");
    guard.release().await.unwrap();
    forgotten(&client).await;
}
