//! Many holds at once.

use redlatch::Guard;
use tokio::{
    task::JoinSet,
    time::{Instant, sleep},
};

use crate::support::{Reports, forgotten, ms, redis::Redis, secs, within};

const HOLDS: usize = 2000;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_thousand_holds_are_renewed_in_batches_spread_over_the_period_and_none_is_lost() {
    let redis = Redis::start();
    let reports = Reports::default();
    let client = reports.of(redis.builder().watchdog_timeout(ms(1500))).connect().await.unwrap();
    let probe = redis.probe().await;
    let mut taking = JoinSet::new();
    for number in 0..HOLDS {
        let lock = client.lock(format!("orders:{number}"));
        taking.spawn(async move { lock.lock().await.unwrap() });
    }
    let guards: Vec<Guard> = within(secs(5), "all taken", taking.join_all()).await;
    assert_eq!(client.stats().holds, HOLDS);

    let before = probe.calls(&["evalsha"]).await;
    let started = Instant::now();
    let mut samples = 0;
    while started.elapsed() < ms(3000) {
        assert_eq!(probe.ask::<usize>(&["DBSIZE"]).await, HOLDS);
        let lost = guards.iter().filter(|guard| !guard.is_valid()).count();
        assert_eq!(lost, 0, "{:?} after the start", started.elapsed());
        samples += 1;
        sleep(ms(20)).await;
    }
    let periods = started.elapsed().as_secs_f64() / 0.5;
    let calls = (probe.calls(&["evalsha"]).await - before) as f64 / periods;
    // Sixty-four ticks a period, about 31 holds each.
    assert!((20.0..=100.0).contains(&calls), "{calls} renewal calls a period for {HOLDS} holds ({samples} looks)");

    // A look may fall on a moment when this machine is late; one of several must show the spread.
    let mut widest = 0;
    for _ in 0..8 {
        let mut tenths = [0; 10];
        for left in probe.ask::<Vec<i64>>(&["EVAL", ALL_TTLS, "0"]).await {
            assert!(left > 0, "every hold lives");
            tenths[usize::try_from((left - 1000).clamp(0, 499) / 50).unwrap()] += 1;
        }
        widest = widest.max(tenths.iter().filter(|&&holds| holds >= HOLDS / 40).count());
        sleep(ms(70)).await;
    }
    assert!(widest >= 8, "renewals fall into {widest} tenths of the period");

    for guard in guards {
        assert!(guard.is_valid());
        drop(guard);
    }
    forgotten(&client).await;
    assert_eq!(probe.ask::<usize>(&["DBSIZE"]).await, 0);
    assert!(reports.all().is_empty(), "{:?}", reports.all());
}

/// How long every key has to live.
const ALL_TTLS: &str =
    "local all = {} for i, key in ipairs(redis.call('keys', '*')) do all[i] = redis.call('pttl', key) end return all";
