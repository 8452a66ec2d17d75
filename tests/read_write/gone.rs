//! Holds that are kept alive, and readers that die.

use std::future::IntoFuture;

use tokio::time::{Instant, sleep};

use crate::{
    both, hold_key, left, scene,
    suite::scene::{NAME, is_lost, waiting},
    support::{eventually, forgotten, ms, secs, within},
};

#[tokio::test]
async fn all_hold_keys_of_all_readers_live_as_long_as_they_are_held() {
    let s = scene().await;
    let (a, b) = (s.watched(ms(900)).await, s.watched(ms(900)).await);
    let owner = a.owner();
    let twice = both(&a).read().owned_by(&owner);
    let mut holds = vec![(twice.lock().await.unwrap(), 1), (twice.lock().await.unwrap(), 2)];
    holds.push((both(&a).read().lock().await.unwrap(), 1));
    holds.push((both(&b).read().lock().await.unwrap(), 1));
    let writer = waiting(&both(&b).write().into_any());
    // Two leases and more.
    let end = Instant::now() + ms(2000);
    while Instant::now() < end {
        for (guard, number) in &holds {
            assert!(guard.is_valid());
            left(&s, &hold_key(&guard.owner(), *number)).await;
        }
        left(&s, NAME).await;
        assert!(!writer.is_finished());
        sleep(ms(20)).await;
    }
    for (guard, _) in holds {
        guard.release().await.unwrap();
    }
    within(secs(3), "the writer", writer).await.unwrap().unwrap().release().await.unwrap();
    s.nothing_is_left(&[&a, &b]).await;
}

#[tokio::test]
async fn one_of_several_readers_dies_and_the_writer_gets_in_when_its_own_lease_ends() {
    let s = scene().await;
    let (dying, living, writer) = (s.watched(ms(900)).await, s.client().await, s.client().await);
    let dead = both(&dying).read().lock().await.unwrap();
    let mut others = Vec::new();
    for _ in 0..4 {
        others.push(both(&living).read().lock().await.unwrap());
    }
    let wait = waiting(&both(&writer).write().into_any());
    s.asleep(&writer, 1).await;
    // Without a release: its hold ends by itself.
    dying.shutdown().await.unwrap();
    let died = Instant::now();
    assert!(!dead.is_valid());
    for other in others {
        other.release().await.unwrap();
    }
    assert!(!wait.is_finished());
    let guard = within(secs(3), "the writer", wait).await.unwrap().unwrap();
    let took = died.elapsed();
    assert!(took < ms(900 + 1500), "{took:?}, though its lease was 900 ms, and those of the others 30 s");
    guard.release().await.unwrap();
    s.nothing_is_left(&[&dying, &living, &writer]).await;
}

#[tokio::test]
async fn a_dead_reader_of_many_does_not_outlive_the_last_of_the_living() {
    let s = scene().await;
    let (dying, living, writer) = (s.watched(ms(300)).await, s.client().await, s.client().await);
    let dead = both(&dying).read().lock().await.unwrap();
    dying.shutdown().await.unwrap();
    let mut others = Vec::new();
    for _ in 0..12 {
        others.push(both(&living).read().lock().await.unwrap());
    }
    eventually(secs(2), "its hold has ended", || async { !s.probe.exists(&hold_key(&dead.owner(), 1)).await }).await;
    let wait = waiting(&both(&writer).write().into_any());
    s.asleep(&writer, 1).await;
    for other in others {
        other.release().await.unwrap();
    }
    let guard = within(secs(3), "the writer", wait).await.unwrap().unwrap();
    guard.release().await.unwrap();
    s.nothing_is_left(&[&dying, &living, &writer]).await;
}

#[tokio::test]
async fn reading_twice_and_releasing_twice_leaves_no_renewal() {
    let s = scene().await;
    let client = s.watched(secs(1)).await;
    let owner = client.owner();
    let read = both(&client).read().owned_by(&owner);
    let (outer, inner) = (read.lock().await.unwrap(), read.lock().await.unwrap());
    assert_eq!((client.stats().renewals, client.stats().holds), (1, 2));
    inner.release().await.unwrap();
    crate::suite::scene::lives(&outer, &s.probe, ms(1300)).await;
    outer.release().await.unwrap();
    forgotten(&client).await;
    assert_eq!(client.stats().scheduled_renewals, 0);
    s.nothing_is_left(&[&client]).await;
}

#[tokio::test]
async fn a_hold_key_that_lapsed_under_a_living_reader_is_made_again() {
    let s = scene().await;
    let client = s.watched(ms(1500)).await;
    let guard = both(&client).read().lock().await.unwrap();
    // As under a stalled server, which lets it end between two renewals.
    s.probe.run(&["DEL", &hold_key(&guard.owner(), 1)]).await;
    eventually(ms(1500), "made again", || async { s.probe.exists(&hold_key(&guard.owner(), 1)).await }).await;
    assert!(guard.is_valid());
    guard.release().await.unwrap();
    s.nothing_is_left(&[&client]).await;
}

#[tokio::test]
async fn a_reader_whose_field_is_gone_has_lost_it_and_the_others_have_not() {
    let s = scene().await;
    let client = s.watched(ms(2400)).await;
    let (robbed, other) = (both(&client).read().lock().await.unwrap(), both(&client).read().lock().await.unwrap());
    s.probe.run(&["HDEL", NAME, &robbed.owner().to_string()]).await;
    within(ms(1600), "lost by the next renewal", robbed.lost()).await;
    is_lost(robbed.release().await, NAME);
    assert!(other.is_valid());
    assert_eq!(s.holders(NAME).await, [other.owner().to_string()]);
    other.release().await.unwrap();
    within(secs(3), "free", both(&client).write().lock().into_future()).await.unwrap().release().await.unwrap();
    s.nothing_is_left_after_a_loss(&[&client]).await;
}
