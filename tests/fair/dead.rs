//! Those in line who are dead, and locks that nobody lets go.

use std::future::IntoFuture;

use tokio::time::Instant;

use crate::{
    QUEUE, TIMEOUTS, fair, line, queued, scene, server_time, stands_in_line,
    suite::scene::{NAME, turn, waiting},
    support::{eventually, forgotten, ms, secs, within},
};

#[tokio::test]
async fn behind_a_dead_head_few_questions_are_asked_until_its_time_is_over() {
    let s = scene().await;
    let client = s.client().await;
    let dies = stands_in_line(&s, "dead:1", 1_600).await;
    let waits: Vec<_> = (0..3).map(|_| waiting(&fair(&client).into_any())).collect();
    queued(&s, 4).await;
    eventually(secs(3), "all sleep", || async { client.stats().in_flight == 0 }).await;
    s.probe.run(&["CONFIG", "RESETSTAT"]).await;
    let started = Instant::now();
    let mut waits = waits.into_iter();
    let guard = within(secs(4), "the next", waits.next().unwrap()).await.unwrap().unwrap();
    let (asked, took) = (s.probe.calls(&["evalsha", "eval"]).await, started.elapsed());
    let late = server_time(&s).await - dies;
    assert!((0..1500).contains(&late), "{late} ms after its time");
    assert!(asked as f64 / took.as_secs_f64() < 10.0, "{asked} questions in {took:?}");
    guard.release().await.unwrap();
    for wait in waits {
        within(secs(3), "those behind", wait).await.unwrap().unwrap().release().await.unwrap();
    }
    s.nothing_is_left(&[&client]).await;
}

#[tokio::test]
async fn behind_a_dead_head_under_a_holder_that_dies_the_same_holds() {
    let s = scene().await;
    let (client, other) = (s.client().await, s.client().await);
    s.taken_over(NAME, ms(500)).await;
    let dies = stands_in_line(&s, "dead:1", 1_500).await;
    let first = waiting(&fair(&client).into_any());
    queued(&s, 2).await;
    let second = waiting(&fair(&other).into_any());
    queued(&s, 3).await;
    let (asked, started) = (s.probe.calls(&["evalsha"]).await, Instant::now());
    let guard = within(secs(4), "the next", first).await.unwrap().unwrap();
    let (asked, took) = (s.probe.calls(&["evalsha"]).await - asked, started.elapsed());
    let late = server_time(&s).await - dies;
    assert!((0..1500).contains(&late), "{late} ms after its time");
    assert!((asked as f64) < 2.0 * 10.0 * took.as_secs_f64(), "{asked} questions of two clients in {took:?}");
    guard.release().await.unwrap();
    within(secs(3), "the last", second).await.unwrap().unwrap().release().await.unwrap();
    s.nothing_is_left(&[&client, &other]).await;
}

#[tokio::test]
async fn an_entry_without_a_time_blocks_nobody() {
    let s = scene().await;
    let client = s.client().await;
    s.probe.run(&["RPUSH", QUEUE, "dead:1", "dead:2"]).await;
    within(secs(3), "free", fair(&client).lock().into_future()).await.unwrap().release().await.unwrap();
    // While it is held as well.
    let guard = fair(&client).lock().await.unwrap();
    s.probe.run(&["RPUSH", QUEUE, "dead:3"]).await;
    let next = turn(&fair(&client).into_any());
    eventually(secs(2), "it waits", || async { client.stats().waiters == 1 && client.stats().in_flight == 0 }).await;
    guard.release().await.unwrap();
    within(secs(3), "its turn", next).await.unwrap().unwrap();
    s.nothing_is_left(&[&client]).await;
}

#[tokio::test]
async fn a_stale_queue_on_a_free_name_is_cleared_by_whoever_comes() {
    let s = scene().await;
    let client = s.client().await;
    for is_waiting in [false, true] {
        for n in 0..20 {
            stands_in_line(&s, &format!("dead:{n}"), -1 - n).await;
        }
        let lock = fair(&client);
        let guard = match is_waiting {
            true => within(secs(3), "free", lock.lock().into_future()).await.unwrap(),
            false => lock.try_lock().await.unwrap().expect("the queue is stale"),
        };
        assert_eq!(s.probe.ask::<u64>(&["EXISTS", QUEUE, TIMEOUTS]).await, 0);
        guard.release().await.unwrap();
    }
    s.nothing_is_left(&[&client]).await;
}

#[tokio::test]
async fn five_dead_waiters_cost_no_more_than_the_last_of_them() {
    let s = scene().await;
    let client = s.client().await;
    let mut dies = 0;
    for n in 1..=5 {
        dies = stands_in_line(&s, &format!("dead:{n}"), n * 150).await;
    }
    let guard = within(secs(3), "free", fair(&client).lock().into_future()).await.unwrap();
    let late = server_time(&s).await - dies;
    assert!((0..1500).contains(&late), "{late} ms after the last");
    guard.release().await.unwrap();
    s.nothing_is_left(&[&client]).await;
}

#[tokio::test]
async fn when_a_dead_head_is_thrown_out_the_living_one_behind_it_is_told() {
    let s = scene().await;
    let (client, other) = (s.client().await, s.client().await);
    // The dead one is cleared away by somebody who is not next.
    s.taken_over(NAME, secs(30)).await;
    stands_in_line(&s, "dead:1", 60_000).await;
    let next = waiting(&fair(&client).into_any());
    queued(&s, 2).await;
    s.asleep(&client, 1).await;
    s.probe.run(&["DEL", NAME]).await;
    s.probe.run(&["ZADD", TIMEOUTS, "1", "dead:1"]).await;
    assert!(fair(&other).try_lock().await.unwrap().is_none(), "it has to wait in line");
    within(secs(3), "told", next).await.unwrap().unwrap().release().await.unwrap();
    s.nothing_is_left(&[&client, &other]).await;
}

#[tokio::test]
async fn a_hold_that_is_not_released_ends_with_its_lease_and_the_next_takes_over() {
    let s = scene().await;
    let (a, b) = (s.client().await, s.client().await);
    let first = fair(&a).try_lock().wait(secs(20)).lease(ms(800)).await.unwrap().expect("free");
    let taken = Instant::now();
    let second = tokio::spawn(fair(&b).try_lock().wait(secs(20)).lease(ms(800)).into_future());
    queued(&s, 1).await;
    let third = turn(&fair(&a).into_any());
    queued(&s, 2).await;
    std::mem::forget(first);
    let second = within(secs(2), "the second", second).await.unwrap().unwrap().expect("within its wait");
    let took = taken.elapsed();
    assert!((ms(780)..ms(2500)).contains(&took), "{took:?}");
    std::mem::forget(second);
    within(secs(2), "the third", third).await.unwrap().unwrap();
    let took = taken.elapsed();
    assert!((ms(1560)..ms(4000)).contains(&took), "{took:?}");
    s.nothing_is_left(&[&a, &b]).await;
}

#[tokio::test]
async fn a_key_that_was_deleted_by_hand_holds_the_line_up_no_longer_than_its_lease() {
    let s = scene().await;
    let client = s.client().await;
    s.taken_over(NAME, secs(1)).await;
    let taken = Instant::now();
    let next = waiting(&fair(&client).into_any());
    queued(&s, 1).await;
    s.probe.run(&["DEL", NAME]).await;
    let guard = within(secs(2), "the head", next).await.unwrap().unwrap();
    assert!(taken.elapsed() < secs(3), "{:?}", taken.elapsed());
    guard.release().await.unwrap();
    s.nothing_is_left(&[&client]).await;
}

#[tokio::test]
async fn a_line_that_was_deleted_by_hand_forms_again() {
    let s = scene().await;
    let (holder, client) = (s.client().await, s.client().await);
    for gone in [[QUEUE, QUEUE], [TIMEOUTS, TIMEOUTS], [QUEUE, TIMEOUTS]] {
        let guard = fair(&holder).lock().lease(ms(500)).await.unwrap();
        let turns = [turn(&fair(&client).into_any()), turn(&fair(&client).into_any())];
        queued(&s, 2).await;
        s.asleep(&client, 2).await;
        s.probe.run(&["DEL", gone[0], gone[1]]).await;
        guard.release().await.unwrap();
        for turn in turns {
            within(secs(3), "its turn", turn).await.unwrap().unwrap();
        }
        forgotten(&client).await;
        assert_eq!(line(&s).await, Vec::<String>::new(), "{gone:?}");
    }
    s.nothing_is_left(&[&holder, &client]).await;
}
