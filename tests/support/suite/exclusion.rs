//! Who holds it keeps the others out.

use std::sync::{Arc, Mutex};

use redlatch::{AnyLock, RemainingTtl};
use tokio::task::yield_now;

use super::{
    Subject,
    scene::{NAME, Scene},
};
use crate::support::{ms, secs, within};

pub async fn a_hold_keeps_the_others_out(subject: &'static Subject) {
    let s = Scene::new(subject).await;
    let (a, b) = (s.client().await, s.client().await);
    for (lock, rival_of) in [(s.lock(&a), Scene::rival as fn(&Scene, _) -> AnyLock), (s.rival(&a), Scene::lock)] {
        assert!(!lock.is_locked().await.unwrap());
        assert_eq!(lock.remaining_ttl().await.unwrap(), RemainingTtl::NoKey);
        let guard = lock.lock().await.unwrap();
        assert_eq!((guard.name(), lock.name(), guard.hold_count()), (NAME, NAME, 1));
        for client in [&a, &b] {
            let rival = rival_of(&s, client);
            assert!(rival.try_lock().await.unwrap().is_none());
            assert!(rival.try_lock().wait(ms(20)).await.unwrap().is_none());
            assert!(rival.owned_by(&client.owner()).try_lock().await.unwrap().is_none());
        }
        assert!(guard.is_valid() && lock.is_locked().await.unwrap());
        assert!(lock.is_held_by(&guard.owner()).await.unwrap());
        assert!(!lock.is_held_by(&a.owner()).await.unwrap());
        assert_eq!(lock.hold_count(&guard.owner()).await.unwrap(), 1);
        assert_eq!(s.count(&lock, &guard.owner()).await, 1);
        let RemainingTtl::Left(left) = lock.remaining_ttl().await.unwrap() else { panic!("expires") };
        assert!((secs(28)..=secs(30)).contains(&left), "{left:?}");
        guard.release().await.unwrap();
        s.nothing_is_left(&[&a, &b]).await;
    }
}

/// Who is inside: those that may be there together, and those that may not.
#[derive(Debug, Default)]
struct Room {
    together: usize,
    alone: usize,
    visits: usize,
}

impl Room {
    fn enter(&mut self, is_shared: bool) {
        if is_shared {
            self.together += 1
        } else {
            self.alone += 1
        }
        self.visits += 1;
        assert!(self.alone == 0 || self.alone == 1 && self.together == 0, "{self:?}");
    }

    fn leave(&mut self, is_shared: bool) {
        if is_shared { self.together -= 1 } else { self.alone -= 1 }
    }
}

pub async fn those_who_come_and_go_never_meet(subject: &'static Subject) {
    const ROUNDS: usize = 12;
    let s = Scene::new(subject).await;
    let clients = [s.client().await, s.client().await, s.client().await];
    let (room, mut tasks) = (Arc::new(Mutex::new(Room::default())), Vec::new());
    for client in &clients {
        let visitors =
            [(s.lock(client), subject.is_shared()), (s.lock(client), subject.is_shared()), (s.rival(client), false)];
        for (lock, is_shared) in visitors {
            let room = room.clone();
            tasks.push(tokio::spawn(async move {
                for _ in 0..ROUNDS {
                    let guard = lock.lock().await.unwrap();
                    room.lock().unwrap().enter(is_shared);
                    yield_now().await;
                    assert!(guard.is_valid());
                    room.lock().unwrap().leave(is_shared);
                    guard.release().await.unwrap();
                }
            }));
        }
    }
    for task in tasks {
        within(secs(20), "the rounds", task).await.unwrap();
    }
    assert_eq!(room.lock().unwrap().visits, 9 * ROUNDS);
    s.nothing_is_left(&[&clients[0], &clients[1], &clients[2]]).await;
}
