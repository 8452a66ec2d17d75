//! Fixed leases and renewed ones.

use redlatch::{Error, Misuse, RemainingTtl};
use tokio::time::Instant;

use super::{
    Subject,
    scene::{NAME, Scene, is_lost, lives, lost_no_later_than},
};
use crate::support::{Reports, eventually, ms, secs};

pub async fn a_fixed_lease_ends_on_time_and_is_not_renewed(subject: &'static Subject) {
    let s = Scene::new(subject).await;
    let client = s.watched(ms(120)).await;
    let taken = Instant::now();
    let guard = s.lock(&client).lock().lease(ms(500)).await.unwrap();
    // For a read hold the key is looked after, in case another reader's renewal has cut it short.
    let looks_after = usize::from(subject.is_shared());
    assert_eq!((client.stats().renewals, client.stats().scheduled_renewals), (looks_after, looks_after));
    lost_no_later_than(&guard, async {
        eventually(secs(2), "its end", || async { !s.probe.exists(NAME).await }).await;
    })
    .await;
    let took = taken.elapsed();
    assert!((ms(490)..secs(2)).contains(&took), "{took:?}");
    is_lost(guard.release().await, NAME);
    let tried = s.lock(&client).try_lock().lease(secs(9)).await.unwrap().expect("free again");
    let RemainingTtl::Left(left) = s.lock(&client).remaining_ttl().await.unwrap() else { panic!("expires") };
    assert!((secs(8)..=secs(9)).contains(&left), "{left:?}");
    tried.release().await.unwrap();
    eventually(secs(3), "side keys end with it", || async { s.keys().await.is_empty() }).await;
    s.nothing_is_left(&[&client]).await;
}

pub async fn an_extension_makes_a_hold_last_longer_and_never_shorter(subject: &'static Subject) {
    let s = Scene::new(subject).await;
    let client = s.client().await;
    let guard = s.lock(&client).lock().lease(ms(600)).await.unwrap();
    guard.extend(ms(1000)).await.unwrap();
    let extended = Instant::now();
    assert!(guard.valid_for() > ms(650));
    guard.extend(ms(10)).await.unwrap();
    assert!(guard.valid_for() > ms(620));
    lost_no_later_than(&guard, async {
        eventually(secs(2), "its end", || async { !s.probe.exists(NAME).await }).await;
    })
    .await;
    assert!(extended.elapsed() > ms(950), "{:?}", extended.elapsed());
    is_lost(guard.extend(secs(1)).await, NAME);
    eventually(secs(3), "all of it ended", || async { s.keys().await.is_empty() }).await;
    drop(guard);
    s.nothing_is_left(&[&client]).await;
}

pub async fn a_lease_or_a_name_that_cannot_be_is_refused(subject: &'static Subject) {
    let s = Scene::new(subject).await;
    let client = s.client().await;
    let lock = s.lock(&client);
    for lease in [ms(0), std::time::Duration::MAX] {
        for outcome in [lock.lock().lease(lease).await.map(drop), lock.try_lock().lease(lease).await.map(drop)] {
            assert!(matches!(outcome, Err(Error::Misuse(Misuse::LeaseOutOfRange { .. }))), "{outcome:?}");
        }
    }
    let nameless = (subject.lock)(&client, "");
    for outcome in [
        nameless.lock().await.map(drop),
        nameless.try_lock().wait(secs(1)).await.map(drop),
        nameless.is_locked().await.map(drop),
        nameless.hold_count(&client.owner()).await.map(drop),
        nameless.remaining_ttl().await.map(drop),
        nameless.force_release().await.map(drop),
        nameless.owned_by(&client.owner()).release().await,
    ] {
        assert!(matches!(outcome, Err(Error::Misuse(Misuse::EmptyName))), "{outcome:?}");
    }
    s.nothing_is_left(&[&client]).await;
}

pub async fn a_watched_hold_outlives_its_lease_and_renewal_ends_with_it(subject: &'static Subject) {
    let s = Scene::new(subject).await;
    let reports = Reports::default();
    let client = reports.of(s.redis.builder().watchdog_timeout(secs(1))).connect().await.unwrap();
    for is_dropped in [false, true] {
        let guard = s.lock(&client).lock().await.unwrap();
        if !is_dropped {
            lives(&guard, &s.probe, ms(1300)).await;
        }
        let is_renewed = || async { (client.stats().renewals, client.stats().scheduled_renewals) == (1, 1) };
        eventually(secs(1), "one renewal", is_renewed).await;
        assert_eq!(s.count(&s.lock(&client), &guard.owner()).await, 1);
        assert!(s.rival(&client).try_lock().await.unwrap().is_none());
        if is_dropped {
            drop(guard);
        } else {
            guard.release().await.unwrap();
        }
        s.nothing_is_left(&[&client]).await;
    }
    assert!(reports.all().is_empty(), "{:?}", reports.all());
}
