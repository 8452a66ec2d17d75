//! The suite over the plain lock, and what only several kinds together can show.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test that cannot go on ends here")]

#[path = "support/suite.rs"]
mod suite;
mod support;

use redlatch::{AnyLock, Client, Kind};
use suite::scene::{NAME, Scene, is_foreign};
use support::{forgotten, secs, within};

suite::suite!(lock, LOCK);

#[tokio::test]
async fn every_handle_becomes_an_any_lock_that_knows_its_kind_and_name() {
    let s = Scene::new(&suite::LOCK).await;
    let client = s.client().await;
    let (c, n) = (&client, "orders");
    let converted: [(Kind, AnyLock, AnyLock); 8] = [
        (Kind::Lock, c.lock(n).into(), c.lock(n).into_any()),
        (Kind::Fair, c.fair_lock(n).into(), c.fair_lock(n).into_any()),
        (Kind::Read, c.read_write_lock(n).read().into(), c.read_write_lock(n).read().into_any()),
        (Kind::Write, c.read_write_lock(n).write().into(), c.read_write_lock(n).write().into_any()),
        (Kind::Fenced, c.fenced_lock(n).into(), c.fenced_lock(n).into_any()),
        (Kind::Spin, c.spin_lock(n).into(), c.spin_lock(n).into_any()),
        (Kind::NonReentrant, c.non_reentrant_lock(n).into(), c.non_reentrant_lock(n).into_any()),
        (Kind::NonReentrantFair, c.non_reentrant_fair_lock(n).into(), c.non_reentrant_fair_lock(n).into_any()),
    ];
    assert_eq!(c.read_write_lock(n).name(), n);
    for (kind, into, into_any) in converted {
        for lock in [into, into_any] {
            assert_eq!((lock.kind(), lock.name()), (kind, n));
            assert!(format!("{lock:?}").contains(n), "{lock:?}");
            assert!(!kind.to_string().is_empty());
            // It is that kind in what it does, too: its clone sees what it holds.
            let guard = lock.clone().lock().await.unwrap();
            assert_eq!(lock.hold_count(&guard.owner()).await.unwrap(), 1);
            assert_eq!(guard.fencing_token().is_some(), kind == Kind::Fenced);
            guard.release().await.unwrap();
        }
    }
    s.nothing_is_left(&[&client]).await;
}

/// Kinds that write the same hash.
fn of_one_hash() -> impl Iterator<Item = &'static suite::Subject> {
    suite::ALL.into_iter().filter(|subject| !subject.is_read_write())
}

#[tokio::test]
async fn kinds_of_one_hash_keep_each_other_out() {
    let s = Scene::new(&suite::LOCK).await;
    let (a, b) = (s.client().await, s.client().await);
    for holder in of_one_hash() {
        let guard = (holder.lock)(&a, NAME).lock().await.unwrap();
        for other in of_one_hash() {
            for client in [&a, &b] {
                let lock = (other.lock)(client, NAME);
                assert!(lock.try_lock().await.unwrap().is_none(), "{:?} and {:?}", holder.kind, other.kind);
                assert_eq!(lock.hold_count(&guard.owner()).await.unwrap(), 1);
            }
        }
        guard.release().await.unwrap();
    }
    s.nothing_is_left(&[&a, &b]).await;
}

#[tokio::test]
async fn a_read_write_lock_and_any_other_kind_of_the_name_refuse_each_other() {
    let s = Scene::new(&suite::LOCK).await;
    let (a, b) = (s.client().await, s.client().await);
    let refused = |holder: &'static suite::Subject, other: &'static suite::Subject, client: Client| {
        let (s, a) = (&s, &a);
        async move {
            let guard = (holder.lock)(a, NAME).lock().await.unwrap();
            let before = s.probe.everything().await;
            let lock = (other.lock)(&client, NAME);
            is_foreign(lock.try_lock().await, NAME);
            is_foreign(within(secs(2), "wait", async { lock.try_lock().wait(secs(60)).await }).await, NAME);
            forgotten_but_for(&client, a).await;
            assert_eq!(s.probe.everything().await, before, "{:?} under {:?}", other.kind, holder.kind);
            assert!(guard.is_valid());
            guard.release().await.unwrap();
        }
    };
    for of_hash in of_one_hash() {
        for of_modes in [&suite::READ, &suite::WRITE] {
            for client in [&a, &b] {
                refused(of_hash, of_modes, client.clone()).await;
                refused(of_modes, of_hash, client.clone()).await;
            }
        }
    }
    s.nothing_is_left(&[&a, &b]).await;

    /// Nothing of the refused attempt is left; the holder's hold may be.
    async fn forgotten_but_for(client: &Client, holder: &Client) {
        if client.id() == holder.id() {
            let quiet = || async { client.stats().in_flight == 0 && client.stats().waiters == 0 };
            support::eventually(secs(2), "quiet", quiet).await;
        } else {
            forgotten(client).await;
        }
    }
}

#[tokio::test]
async fn the_same_owner_holds_locks_of_all_kinds_at_once() {
    let s = Scene::new(&suite::LOCK).await;
    let client = s.client().await;
    let owner = client.owner();
    let mut guards = Vec::new();
    for subject in suite::ALL {
        let name = format!("{:?}", subject.kind);
        guards.push((subject.lock)(&client, &name).owned_by(&owner).lock().await.unwrap());
    }
    assert_eq!(client.stats().holds, suite::ALL.len());
    for guard in guards {
        assert!(guard.is_valid());
        guard.release().await.unwrap();
    }
    s.nothing_is_left(&[&client]).await;
}
