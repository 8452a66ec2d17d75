//! From one mode to the other: writing and reading, downgrade, upgrade, forcing open.

use std::future::IntoFuture;

use redlatch::Error;
use tokio::time::Instant;

use crate::{
    CHANNEL, both, fields, hold_key, left, scene,
    suite::{
        messages::Messages,
        scene::{NAME, is_lost, lives, waiting},
    },
    support::{eventually, forgotten, ms, secs, within},
};

#[tokio::test]
async fn an_owner_that_writes_may_read_and_keeps_reading_when_it_has_written() {
    let s = scene().await;
    let mut messages = Messages::on(&s.redis).await;
    let (client, other) = (s.watched(secs(1)).await, s.client().await);
    let owner = client.owner();
    let write = both(&client).write().owned_by(&owner).lock().await.unwrap();
    let read = both(&client).read().owned_by(&owner).lock().await.unwrap();
    let (reading, writing) = (owner.to_string(), format!("{owner}:write"));
    let pair = |name: &str, value: &str| (name.to_owned(), value.to_owned());
    let mut expected = [pair("mode", "write"), pair(&reading, "1"), pair(&writing, "1")];
    expected.sort();
    assert_eq!(fields(&s).await, expected);
    assert!(both(&client).read().is_locked().await.unwrap() && both(&client).write().is_locked().await.unwrap());
    assert!(both(&other).read().try_lock().await.unwrap().is_none());
    assert!(both(&client).read().try_lock().await.unwrap().is_none(), "another owner of the client");

    let waits = [waiting(&both(&other).read().into_any()), waiting(&both(&client).read().into_any())];
    s.asleep(&other, 1).await;
    let writer = waiting(&both(&other).write().into_any());
    eventually(secs(3), "it waits", || async { other.stats().waiters == 2 }).await;
    messages.take().await;
    write.release().await.unwrap();
    let mut readers = Vec::new();
    for wait in waits {
        readers.push(within(secs(3), "let in at once", wait).await.unwrap().unwrap());
    }
    assert_eq!(messages.take().await, [(CHANNEL.to_owned(), "1".to_owned())]);
    assert!(read.is_valid(), "the read hold is what it was");
    assert!(!writer.is_finished(), "it is read");
    assert!(!both(&client).write().is_locked().await.unwrap());
    for reader in readers {
        reader.release().await.unwrap();
    }
    // What is left is renewed as any read hold.
    lives(&read, &s.probe, ms(1300)).await;
    assert!(s.probe.exists(&hold_key(&owner, 1)).await && !writer.is_finished());
    let mut expected = [pair("mode", "read"), pair(&reading, "1")];
    expected.sort();
    assert_eq!(fields(&s).await, expected);
    read.release().await.unwrap();
    within(secs(3), "the writer", writer).await.unwrap().unwrap().release().await.unwrap();
    s.nothing_is_left(&[&client, &other]).await;
}

#[tokio::test]
async fn a_read_hold_released_by_the_writer_neither_frees_nor_shortens_the_write_hold() {
    let s = scene().await;
    let (client, other) = (s.client().await, s.client().await);
    let owner = client.owner();
    let write = both(&client).write().owned_by(&owner).lock().lease(secs(50)).await.unwrap();
    let read = both(&client).read().owned_by(&owner);
    let (short, long) = (read.lock().lease(secs(5)).await.unwrap(), read.lock().lease(secs(9)).await.unwrap());
    assert!(left(&s, NAME).await > secs(48));
    long.release().await.unwrap();
    assert!(left(&s, NAME).await > secs(48), "{:?}", left(&s, NAME).await);
    assert!(left(&s, &hold_key(&owner, 1)).await <= secs(5));
    short.release().await.unwrap();
    assert!(left(&s, NAME).await > secs(48) && write.is_valid());
    assert!(both(&other).write().try_lock().await.unwrap().is_none());
    assert!(both(&other).read().try_lock().await.unwrap().is_none());
    write.release().await.unwrap();
    s.nothing_is_left(&[&client, &other]).await;
}

#[tokio::test]
async fn a_read_hold_released_by_the_writer_does_not_end_the_renewal_of_its_write_hold() {
    let s = scene().await;
    let client = s.watched(secs(1)).await;
    let owner = client.owner();
    let write = both(&client).write().owned_by(&owner).lock().await.unwrap();
    both(&client).read().owned_by(&owner).lock().await.unwrap().release().await.unwrap();
    lives(&write, &s.probe, ms(1300)).await;
    write.release().await.unwrap();
    s.nothing_is_left(&[&client]).await;
}

fn is_upgrade<T: std::fmt::Debug>(outcome: Result<T, Error>, expected: &redlatch::OwnerId) {
    match outcome {
        Err(Error::UpgradeImpossible { key, owner }) => assert_eq!((key.as_str(), &owner), (NAME, expected)),
        other => panic!("not refused: {other:?}"),
    }
}

#[tokio::test]
async fn an_owner_that_reads_and_asks_to_write_is_told_at_once_that_this_cannot_be() {
    let s = scene().await;
    let (client, other) = (s.client().await, s.client().await);
    let owner = client.owner();
    let reads = both(&client).read().owned_by(&owner).lock().await.unwrap();
    let beside = both(&other).read().lock().await.unwrap();
    let write = both(&client).write().owned_by(&owner);
    for guards_beside in [Some(beside), None] {
        let before = fields(&s).await;
        is_upgrade(within(secs(2), "lock", write.lock().into_future()).await, &owner);
        is_upgrade(within(secs(2), "lease", write.lock().lease(secs(1)).into_future()).await, &owner);
        is_upgrade(within(secs(2), "wait", write.try_lock().wait(secs(60)).into_future()).await, &owner);
        assert!(write.try_lock().await.unwrap().is_none(), "an attempt without a wait just fails");
        assert_eq!(fields(&s).await, before);
        drop(guards_beside);
        eventually(secs(3), "it reads alone", || async { s.holders(NAME).await.len() == 1 }).await;
    }
    assert!(reads.is_valid());
    // Any other owner just waits.
    let writer = waiting(&both(&client).write().into_any());
    s.asleep(&client, 1).await;
    is_upgrade(within(secs(2), "past the line", write.lock().into_future()).await, &owner);
    reads.release().await.unwrap();
    within(secs(3), "the writer", writer).await.unwrap().unwrap().release().await.unwrap();
    let guard = within(secs(3), "it reads no more", write.lock().into_future()).await.unwrap();
    guard.release().await.unwrap();
    s.nothing_is_left(&[&client, &other]).await;
}

#[tokio::test]
async fn where_upgrades_wait_they_wait_and_give_up() {
    let s = scene().await;
    let client = s.redis.builder().upgrade_waits(true).connect().await.unwrap();
    let owner = client.owner();
    let reads = both(&client).read().owned_by(&owner).lock().await.unwrap();
    let write = both(&client).write().owned_by(&owner);
    assert!(write.try_lock().await.unwrap().is_none());
    let started = Instant::now();
    assert!(within(secs(2), "its end", write.try_lock().wait(ms(150)).into_future()).await.unwrap().is_none());
    assert!(started.elapsed() >= ms(150));
    let waits = tokio::spawn(write.lock().into_future());
    s.asleep(&client, 1).await;
    assert!(!waits.is_finished());
    reads.release().await.unwrap();
    let guard = within(secs(3), "once it has read", waits).await.unwrap().unwrap();
    assert_eq!(s.count(&both(&client).write().into_any(), &owner).await, 1);
    guard.release().await.unwrap();
    // With a lease the wait ends with it.
    let reads = both(&client).read().owned_by(&owner).lock().lease(ms(300)).await.unwrap();
    let guard = within(secs(2), "its lease has ended", write.lock().into_future()).await.unwrap();
    assert!(!reads.is_valid());
    guard.release().await.unwrap();
    is_lost(reads.release().await, NAME);
    s.nothing_is_left(&[&client]).await;
}

#[tokio::test]
async fn forcing_open_is_for_the_mode_that_is_held() {
    let s = scene().await;
    let mut messages = Messages::on(&s.redis).await;
    let (client, other) = (s.client().await, s.client().await);
    let (read, write) = (both(&other).read(), both(&other).write());
    assert!(!read.force_release().await.unwrap() && !write.force_release().await.unwrap());

    let reader = both(&client).read().lock().await.unwrap();
    let before = fields(&s).await;
    messages.take().await;
    assert!(!write.force_release().await.unwrap());
    assert_eq!((fields(&s).await, messages.take().await), (before, vec![]));
    assert!(read.is_locked().await.unwrap() && !write.is_locked().await.unwrap());
    assert!(read.force_release().await.unwrap());
    assert_eq!(messages.take().await, [(CHANNEL.to_owned(), "0".to_owned())]);
    assert_eq!(s.probe.keys().await, [hold_key(&reader.owner(), 1)], "it ends by itself");
    is_lost(reader.release().await, NAME);

    let writer = both(&client).write().lock().await.unwrap();
    let before = fields(&s).await;
    messages.take().await;
    assert!(!read.force_release().await.unwrap());
    assert_eq!((fields(&s).await, messages.take().await), (before, vec![]));
    assert!(!read.is_locked().await.unwrap() && write.is_locked().await.unwrap());
    assert!(write.force_release().await.unwrap());
    assert_eq!(messages.take().await, [(CHANNEL.to_owned(), "1".to_owned())]);
    is_lost(writer.release().await, NAME);
    forgotten(&client).await;
    s.nothing_is_left_after_a_loss(&[&client, &other]).await;
}

#[tokio::test]
async fn a_write_lock_taken_again_lasts_as_long_as_it_was_promised_at_least() {
    let s = scene().await;
    let client = s.client().await;
    let write = both(&client).write().owned_by(&client.owner());
    let outer = write.lock().lease(secs(30)).await.unwrap();
    let inner = write.lock().lease(secs(3)).await.unwrap();
    // As in Redisson the leases add up.
    let both_left = left(&s, NAME).await;
    assert!((secs(31)..=secs(33)).contains(&both_left), "{both_left:?}");
    inner.release().await.unwrap();
    let outer_left = left(&s, NAME).await;
    assert!(outer_left > secs(28) && outer.is_valid(), "{outer_left:?}");
    outer.release().await.unwrap();
    s.nothing_is_left(&[&client]).await;
}
