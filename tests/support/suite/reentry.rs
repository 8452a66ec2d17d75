//! What one owner may do that others may not.

use redlatch::{Error, Guard};

use super::{
    Subject,
    scene::{NAME, Scene, is_lost, lives, turn},
};
use crate::support::{eventually, ms, secs, within};

pub async fn an_owner_takes_it_again_and_has_to_give_it_back_as_often(subject: &'static Subject) {
    let s = Scene::new(subject).await;
    let (client, other) = (s.client().await, s.client().await);
    let (lock, owner) = (s.lock(&client), client.owner());
    let outer = lock.owned_by(&owner).lock().await.unwrap();
    let stranger = turn(&s.rival(&other));
    let local = turn(&s.rival(&client));
    eventually(secs(2), "they wait", || async { client.stats().waiters + other.stats().waiters == 2 }).await;
    // Past everybody who waits, on every way to ask for it, and through another handle.
    let mut guards = vec![outer];
    guards.push(lock.owned_by(&owner).lock().await.unwrap());
    guards.push(lock.clone().owned_by(&owner).try_lock().await.unwrap().expect("its own"));
    guards.push(s.lock(&client).owned_by(&owner).try_lock().wait(secs(9)).await.unwrap().expect("its own"));
    guards.push(lock.owned_by(&owner).lock().lease(secs(40)).await.unwrap());
    for guard in &guards {
        assert_eq!((guard.owner(), guard.hold_count()), (owner, 5));
    }
    while let Some(guard) = guards.pop() {
        assert_eq!(s.count(&lock, &owner).await, guards.len() as u64 + 1);
        assert_eq!(lock.hold_count(&owner).await.unwrap(), guards.len() as u64 + 1);
        assert!(!stranger.is_finished() && !local.is_finished());
        guard.release().await.unwrap();
    }
    assert_eq!(lock.hold_count(&owner).await.unwrap(), 0);
    within(secs(3), "the stranger", stranger).await.unwrap().unwrap();
    within(secs(3), "the other owner", local).await.unwrap().unwrap();
    s.nothing_is_left(&[&client, &other]).await;
}

pub async fn guards_of_one_owner_go_in_any_order_and_never_shorten_each_other(subject: &'static Subject) {
    const LEASES: [u64; 3] = [60, 20, 40];
    let s = Scene::new(subject).await;
    let client = s.client().await;
    for order in [[0, 1, 2], [0, 2, 1], [1, 0, 2], [1, 2, 0], [2, 0, 1], [2, 1, 0]] {
        let (lock, owner) = (s.lock(&client), client.owner());
        let mut guards: Vec<Option<Guard>> = Vec::new();
        for lease in LEASES {
            guards.push(Some(lock.owned_by(&owner).lock().lease(secs(lease)).await.unwrap()));
        }
        for gone in order {
            floor(&s, &guards).await;
            guards[gone].take().unwrap().release().await.unwrap();
            for guard in guards.iter().flatten() {
                assert!(guard.is_valid());
            }
        }
        s.nothing_is_left(&[&client]).await;
    }

    /// No guard is promised more than Redis keeps.
    async fn floor(s: &Scene, guards: &[Option<Guard>]) {
        let longest =
            guards.iter().zip(LEASES).filter(|(guard, _)| guard.is_some()).map(|(_, lease)| secs(lease)).max();
        let left = std::time::Duration::from_millis(s.probe.ask(&["PTTL", NAME]).await);
        assert!(left + secs(2) > longest.unwrap(), "{left:?} are left of {longest:?}");
        for guard in guards.iter().flatten() {
            assert!(guard.valid_for() <= left + ms(50), "{guard:?} with {left:?} left");
        }
    }
}

pub async fn a_fixed_hold_beside_a_renewed_one_ends_alone(subject: &'static Subject) {
    let s = Scene::new(subject).await;
    let client = s.watched(secs(1)).await;
    let (lock, owner) = (s.lock(&client), client.owner());
    let outer = lock.owned_by(&owner).lock().await.unwrap();
    let inner = lock.owned_by(&owner).lock().lease(ms(450)).await.unwrap();
    within(secs(3), "its end", inner.lost()).await;
    assert!(outer.is_valid());
    eventually(secs(3), "its count is given back", || async { s.count(&lock, &owner).await == 1 }).await;
    lives(&outer, &s.probe, ms(800)).await;
    is_lost(inner.release().await, NAME);
    assert_eq!((s.count(&lock, &owner).await, outer.hold_count()), (1, 1));
    outer.release().await.unwrap();
    s.nothing_is_left(&[&client]).await;
}

pub async fn a_release_without_a_guard_is_for_the_owner_only(subject: &'static Subject) {
    let s = Scene::new(subject).await;
    let (client, other) = (s.client().await, s.client().await);
    let owner = client.owner_with_thread_id(7).unwrap();
    let (owned, theirs) = (s.lock(&client).owned_by(&owner), s.rival(&other).owned_by(&other.owner()));
    assert_eq!(owned.owner(), owner);
    let refused = |outcome: Result<(), Error>| match outcome {
        Err(Error::NotOwner { key, .. }) => assert_eq!(key, NAME),
        other => panic!("not refused: {other:?}"),
    };
    let guard = owned.lock().await.unwrap();
    refused(theirs.release().await);
    refused(s.lock(&client).owned_by(&client.owner()).release().await);
    assert!(guard.is_valid());
    owned.release().await.unwrap();
    assert!(!guard.is_valid(), "the guard knows");
    assert_eq!(s.keys().await, Vec::<String>::new());
    is_lost(guard.release().await, NAME);
    s.nothing_is_left(&[&client, &other]).await;
}
