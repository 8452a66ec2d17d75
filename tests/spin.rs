//! The spin lock: it asks again and again, tells nobody and listens to nothing.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test that cannot go on ends here")]

#[path = "support/suite.rs"]
mod suite;
mod support;

use std::{
    future::IntoFuture,
    io::{BufRead, BufReader, Write},
    net::TcpStream,
    sync::{Arc, Mutex},
    time::Duration,
};

use redlatch::{BackOff, Client, SpinLock};
use suite::{
    messages::Messages,
    scene::{NAME, Scene, turn, waiting},
};
use support::{eventually, forgotten, ms, redis::Redis, secs, within};
use tokio::time::Instant;

suite::suite!(spin, SPIN);

async fn scene() -> Scene {
    Scene::new(&suite::SPIN).await
}

fn spin(client: &Client) -> SpinLock {
    client.spin_lock(NAME)
}

/// When clients have called scripts, in the server's time.
struct Questions(Arc<Mutex<Vec<Duration>>>);

impl Questions {
    /// From now on, until the server ends.
    fn to(redis: &Redis) -> Self {
        let times = Arc::new(Mutex::new(Vec::new()));
        let mut connection = TcpStream::connect(("127.0.0.1", redis.port())).unwrap();
        connection.write_all(b"MONITOR\r\n").unwrap();
        let mut lines = BufReader::new(connection).lines();
        // It hears everything from here on.
        assert_eq!(lines.next().unwrap().unwrap(), "+OK");
        let list = times.clone();
        std::thread::spawn(move || {
            for line in lines.map_while(Result::ok) {
                // `+1700000000.123456 [0 127.0.0.1:40000] "EVALSHA" ...`
                let Some((time, command)) = line.trim_start_matches('+').split_once(' ') else { continue };
                let is_question = command.split('"').nth(1).is_some_and(|name| name.eq_ignore_ascii_case("evalsha"));
                if is_question && !command.contains(" lua]") {
                    let (secs, micros) = time.split_once('.').unwrap();
                    let micros = secs.parse::<u64>().unwrap() * 1_000_000 + micros.parse::<u64>().unwrap();
                    list.lock().unwrap().push(Duration::from_micros(micros));
                }
            }
        });
        Self(times)
    }

    /// How long after one another.
    fn gaps(&self) -> Vec<Duration> {
        self.0.lock().unwrap().windows(2).map(|pair| pair[1] - pair[0]).collect()
    }
}

#[tokio::test]
async fn the_pauses_double_up_to_a_bound() {
    let s = scene().await;
    let client = s.client().await;
    s.taken_over(NAME, secs(20)).await;
    spin(&client).try_lock().await.unwrap();
    spin(&client).try_lock().await.unwrap();
    let questions = Questions::to(&s.redis);
    let waiter = waiting(&spin(&client).into_any());
    eventually(secs(5), "it asks", || async { questions.gaps().len() >= 11 }).await;
    waiter.abort();
    let gaps = questions.gaps();
    for (gap, least) in gaps.iter().zip([1, 2, 4, 8, 16, 32, 64, 128, 128, 128, 128]) {
        assert!(*gap + ms(1) > ms(least), "{gaps:?}");
    }
    // A busy machine may be late once, but not always.
    assert!(gaps[..3].iter().min() < Some(&ms(40)) && gaps[7..].iter().min() < Some(&ms(250)), "{gaps:?}");
    s.probe.run(&["DEL", NAME]).await;
    s.nothing_is_left(&[&client]).await;
}

#[tokio::test]
async fn the_pauses_are_the_handles() {
    let s = scene().await;
    let client = s.client().await;
    spin(&client).lock().await.unwrap().release().await.unwrap();
    s.taken_over(NAME, secs(20)).await;
    for (back_off, least) in [
        (BackOff::constant(ms(30)), [30, 30, 30, 30, 30]),
        (BackOff::exponential(ms(5), ms(40), 3), [5, 15, 40, 40, 40]),
    ] {
        let questions = Questions::to(&s.redis);
        let waiter = waiting(&spin(&client).back_off(back_off).into_any());
        eventually(secs(5), "it asks", || async { questions.gaps().len() >= 5 }).await;
        waiter.abort();
        forgotten(&client).await;
        let gaps = questions.gaps();
        for (gap, least) in gaps.iter().zip(least) {
            assert!(*gap + ms(1) > ms(least), "{back_off:?}: {gaps:?}");
        }
        assert!(gaps[2..].iter().min() < Some(&ms(100)), "{back_off:?}: {gaps:?}");
    }
    s.probe.run(&["DEL", NAME]).await;
    s.nothing_is_left(&[&client]).await;
}

#[tokio::test]
async fn a_pause_is_cut_to_what_is_left_of_the_wait() {
    let s = scene().await;
    let client = s.client().await;
    let lock = spin(&client).back_off(BackOff::constant(secs(3)));
    s.taken_over(NAME, secs(20)).await;
    let started = Instant::now();
    assert!(lock.try_lock().wait(ms(200)).await.unwrap().is_none());
    let took = started.elapsed();
    assert!((ms(200)..ms(1500)).contains(&took), "{took:?}");
    // And asks once more then.
    let wait = tokio::spawn(lock.try_lock().wait(ms(400)).into_future());
    s.asleep(&client, 1).await;
    s.probe.run(&["DEL", NAME]).await;
    let guard = within(secs(3), "its last look", wait).await.unwrap().unwrap().expect("it had become free");
    guard.release().await.unwrap();
    s.nothing_is_left(&[&client]).await;
}

#[tokio::test]
async fn it_publishes_nothing_and_listens_to_nothing() {
    let s = scene().await;
    let mut messages = Messages::on(&s.redis).await;
    let (a, b) = (s.client().await, s.client().await);
    let guard = spin(&a).lock().await.unwrap();
    let turns = [turn(&spin(&a).into_any()), turn(&spin(&b).into_any()), turn(&spin(&b).into_any())];
    eventually(secs(2), "they wait", || async { a.stats().waiters + b.stats().waiters == 3 }).await;
    assert_eq!(a.stats().subscriptions + b.stats().subscriptions, 0);
    assert_eq!(s.probe.channels().await, Vec::<String>::new());
    guard.release().await.unwrap();
    for turn in turns {
        within(secs(3), "its turn", turn).await.unwrap().unwrap();
    }
    let guard = spin(&a).lock().await.unwrap();
    assert!(spin(&b).force_release().await.unwrap());
    drop(guard);
    s.nothing_is_left(&[&a, &b]).await;
    assert_eq!(messages.take().await, []);
    assert_eq!(s.probe.calls(&["subscribe", "psubscribe", "ssubscribe"]).await, 1, "the test's own");
}

#[tokio::test]
async fn all_waiters_of_a_client_ask_as_often_as_one() {
    let s = scene().await;
    let client = s.client().await;
    s.taken_over(NAME, secs(20)).await;
    let lock = spin(&client).back_off(BackOff::constant(ms(50)));
    let waits: Vec<_> = (0..10).map(|_| turn(&lock.clone().into_any())).collect();
    eventually(secs(2), "all wait", || async { client.stats().waiters == 10 }).await;
    let (asked, started) = (s.probe.calls(&["evalsha"]).await, Instant::now());
    eventually(secs(5), "they ask", || async { s.probe.calls(&["evalsha"]).await >= asked + 6 }).await;
    assert!(started.elapsed() > ms(200), "six questions in {:?}", started.elapsed());
    s.probe.run(&["DEL", NAME]).await;
    for wait in waits {
        within(secs(5), "its turn", wait).await.unwrap().unwrap();
    }
    s.nothing_is_left(&[&client]).await;
}

#[tokio::test]
async fn it_and_the_plain_lock_of_the_name_keep_each_other_out() {
    let s = scene().await;
    let (a, b) = (s.client().await, s.client().await);
    // The spinner finds out by asking.
    let guard = a.lock(NAME).lock().await.unwrap();
    assert!(spin(&b).try_lock().await.unwrap().is_none());
    let wait = waiting(&spin(&b).into_any());
    eventually(secs(2), "it waits", || async { b.stats().waiters == 1 }).await;
    guard.release().await.unwrap();
    let guard = within(secs(3), "it asks", wait).await.unwrap().unwrap();
    // Nobody tells the plain lock, but it knows when the lease ends.
    assert!(a.lock(NAME).try_lock().await.unwrap().is_none());
    guard.release().await.unwrap();
    let guard = spin(&b).lock().lease(ms(300)).await.unwrap();
    let wait = waiting(&a.lock(NAME).into_any());
    eventually(secs(2), "it waits", || async { a.stats().waiters == 1 }).await;
    drop(guard);
    within(secs(3), "the end of the lease", wait).await.unwrap().unwrap().release().await.unwrap();
    s.nothing_is_left(&[&a, &b]).await;
}
