//! The network between client and server is cut for seven seconds with commands in flight. Afterwards no hold is doubled,
//! deleted or orphaned: with the right to `CLIENT KILL` because nothing is asked before the old connection is known to be
//! dead, without it because an owner with an unresolved command is not used again in time.
//!
//! Needs root and `ip` of iproute2, for network namespaces.
#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test that cannot go on ends here")]

#[path = "outage/netns.rs"]
mod netns;
#[path = "outage/scene.rs"]
mod scene;
mod support;

use std::{sync::Mutex, time::Duration};

use netns::Network;
use redlatch::{Error, Fault, Guard};
use scene::{Leg, Patience, Scene, spawn, watch_time};
use support::{eventually, ms, secs, within};
use tokio::time::{Instant, sleep};

/// Lease of holds whose command stays unresolved: longer than the outage and the way back.
const LEASE: Duration = Duration::from_secs(11);
/// What an owner has to wait beyond the lease, and some time to spare.
const STRAY: Duration = Duration::from_secs(10 + 4);

/// Runs a test's clients beyond the link, in a thread and a runtime of their own.
fn on_client_side(test: impl AsyncFnOnce(&Network) + Send) {
    let network = Network::new();
    network.on_client_side(|| {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(test(&network));
    });
}

#[test]
fn an_acquire_in_flight_during_an_outage_holds_once_or_not_at_all() {
    on_client_side(async |network| {
        let scene = Scene::new(network, true, 1).await;
        let flights = scene.outage(|leg| spawn(leg.acquire()), async |leg| scene.exists(&leg.key).await).await;
        let mut held = Vec::new();
        for (leg, flight) in scene.legs.iter().zip(flights) {
            match (leg.patience, flight.await.unwrap()) {
                (Patience::Long, Ok(guard)) => held.push(guard),
                (Patience::Short, Err(error)) if was_cut(&error) => match leg.owner {
                    Some(_) => held.push(leg.acquire_again().await),
                    None => eventually(secs(8), &leg.key, async || !scene.exists(&leg.key).await).await,
                },
                (_, other) => panic!("{}: {other:?}", leg.key),
            }
        }
        scene.keeps(&held, watch_time()).await;
        scene.end(held).await;
    });
}

#[test]
fn a_release_in_flight_during_an_outage_takes_away_its_own_hold_and_no_other() {
    on_client_side(async |network| {
        let scene = Scene::new(network, true, 2).await;
        let (going, mut held) = take_before_the_outage(&scene, None).await;
        // Of an explicit owner's two holds one is left.
        let has_run = async |leg: &Leg| match leg.owner {
            Some(owner) => scene.count(&leg.key, owner).await == 1,
            None => !scene.exists(&leg.key).await,
        };
        let flights = scene.outage(|leg| spawn(going.take(leg).release()), has_run).await;
        for (leg, flight) in scene.legs.iter().zip(flights) {
            expect_released(leg, within(secs(8), &leg.key, flight).await.unwrap());
            eventually(secs(8), &leg.key, || has_run(leg)).await;
            // Taken at once, so that a release that came late would be seen.
            held.push(match leg.owner {
                Some(_) => leg.acquire_again().await,
                None => scene.other.lock(&leg.key).try_lock().await.unwrap().expect("free"),
            });
        }
        scene.keeps(&held, watch_time()).await;
        scene.end(held).await;
    });
}

#[test]
fn without_the_right_to_kill_an_acquire_in_flight_during_an_outage_costs_its_owner_one_lease() {
    on_client_side(async |network| {
        let scene = Scene::new(network, false, 1).await;
        let start = |leg: &Leg| spawn(leg.acquire().lease(LEASE));
        let flights = scene.outage(start, async |leg| scene.exists(&leg.key).await).await;
        for (leg, flight) in scene.legs.iter().zip(flights) {
            match (leg.patience, within(secs(8), &leg.key, flight).await.unwrap()) {
                (Patience::Short, Err(error)) if was_cut(&error) => {}
                (Patience::Long, Err(Error::Unresolved { .. })) => {}
                (_, other) => panic!("{}: {other:?}", leg.key),
            }
        }
        let explicit = || scene.legs.iter().filter(|leg| leg.owner.is_some());
        for leg in explicit() {
            a_stray_hold_is_free_for_its_client_alone(&scene, leg).await;
        }
        let held = owners_are_refused_until_nothing_can_come_any_more(&scene).await;
        scene.keeps(&held, secs(1)).await;
        scene.end(held).await;
    });
}

#[test]
fn without_the_right_to_kill_a_release_in_flight_during_an_outage_costs_its_owner_one_lease() {
    on_client_side(async |network| {
        let scene = Scene::new(network, false, 1).await;
        let (going, _) = take_before_the_outage(&scene, Some(LEASE)).await;
        let has_run = async |leg: &Leg| !scene.exists(&leg.key).await;
        let flights = scene.outage(|leg| spawn(going.take(leg).release()), has_run).await;
        for (leg, flight) in scene.legs.iter().zip(flights) {
            expect_released(leg, within(secs(8), &leg.key, flight).await.unwrap());
            eventually(secs(8), &leg.key, || has_run(leg)).await;
        }
        let held = owners_are_refused_until_nothing_can_come_any_more(&scene).await;
        scene.keeps(&held, secs(1)).await;
        scene.end(held).await;
    });
}

/// Guards by leg, to be taken one by one.
struct Going(Mutex<Vec<Guard>>);

impl Going {
    fn take(&self, leg: &Leg) -> Guard {
        let mut guards = self.0.lock().unwrap();
        let index = guards.iter().position(|guard| guard.name() == leg.key).unwrap();
        guards.swap_remove(index)
    }
}

/// The holds to be released in flight. Without a lease every explicit owner gets a second one, which stays.
async fn take_before_the_outage(scene: &Scene<'_>, lease: Option<Duration>) -> (Going, Vec<Guard>) {
    let (mut going, mut staying) = (Vec::new(), Vec::new());
    for leg in &scene.legs {
        match lease {
            Some(lease) => going.push(leg.acquire().lease(lease).await.unwrap()),
            None => going.push(leg.acquire().await.unwrap()),
        }
        if lease.is_none() && leg.owner.is_some() {
            staying.push(leg.acquire().await.unwrap());
        }
    }
    (Going(Mutex::new(going)), staying)
}

/// The first command of a client that waits too long takes the connection with it, and the other one that is in flight.
fn was_cut(error: &Error) -> bool {
    matches!(error, Error::Redis { fault: Fault::TimedOut | Fault::Unreachable, .. })
}

fn expect_released(leg: &Leg, released: Result<(), Error>) {
    match (leg.patience, &released) {
        (Patience::Long, Ok(())) => {}
        (Patience::Short, Err(error)) if was_cut(error) => {}
        _ => panic!("{}: {released:?}", leg.key),
    }
}

/// The command that vanished comes after all: what it takes is nobody's.
async fn a_stray_hold_is_free_for_its_client_alone(scene: &Scene<'_>, leg: &Leg) {
    let (key, owner) = (&*leg.key, leg.owner.unwrap().to_string());
    let lease = LEASE.as_millis().to_string();
    let stray = async || {
        scene.ask::<()>(&["HSET", key, &owner, "1"]).await;
        scene.ask::<()>(&["PEXPIRE", key, &lease]).await;
    };
    eventually(secs(8), key, async || !scene.exists(key).await).await;
    stray().await;
    let guard = within(secs(2), key, async { leg.lock.try_lock().await.unwrap() }).await.expect("free for this client");
    assert_eq!(scene.ask::<Vec<String>>(&["HKEYS", key]).await, [guard.owner().to_string()]);
    guard.release().await.unwrap();
    stray().await;
    assert!(scene.other.lock(key).try_lock().await.unwrap().is_none(), "{key}: others have to wait");
    scene.ask::<()>(&["DEL", key]).await;
}

/// Automatic owners are new each time and served at once; an explicit one is told to wait, and is served in the end.
async fn owners_are_refused_until_nothing_can_come_any_more(scene: &Scene<'_>) -> Vec<Guard> {
    let (mut held, deadline) = (Vec::new(), Instant::now() + LEASE + STRAY);
    for leg in scene.legs.iter().filter(|leg| leg.owner.is_none()) {
        held.push(leg.acquire_again().await);
    }
    for leg in scene.legs.iter().filter(|leg| leg.owner.is_some()) {
        let refused = leg.acquire().await;
        assert!(matches!(refused, Err(Error::Unresolved { .. })), "{}: {refused:?}", leg.key);
        let others = leg.lock.try_lock().await.unwrap().expect("free for others");
        others.release().await.unwrap();
    }
    for leg in scene.legs.iter().filter(|leg| leg.owner.is_some()) {
        held.push(loop {
            match leg.acquire().await {
                Ok(guard) => break guard,
                Err(Error::Unresolved { .. }) if Instant::now() < deadline => sleep(ms(100)).await,
                Err(error) => panic!("{}: {error}", leg.key),
            }
        });
    }
    held
}
