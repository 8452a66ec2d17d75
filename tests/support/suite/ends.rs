//! Guards that are dropped, clients that are shut down.

use redlatch::Error;
use tokio::time::Instant;

use super::{
    Subject,
    scene::{NAME, Scene, turn, waiting},
};
use crate::support::{Reports, eventually, ms, secs, within};

pub async fn a_dropped_guard_frees_the_lock_for_whoever_waits(subject: &'static Subject) {
    let s = Scene::new(subject).await;
    let (a, b) = (s.client().await, s.client().await);
    for waiter_of in [&a, &b] {
        for is_fixed in [false, true] {
            let lock = s.lock(&a);
            let guard = if is_fixed { lock.lock().lease(secs(20)).await } else { lock.lock().await }.unwrap();
            let waiter = turn(&s.rival(waiter_of));
            s.asleep(waiter_of, 1).await;
            drop(guard);
            within(secs(3), "woken", waiter).await.unwrap().unwrap();
        }
    }
    s.nothing_is_left(&[&a, &b]).await;
}

pub async fn a_guard_dropped_by_a_panic_is_released(subject: &'static Subject) {
    let s = Scene::new(subject).await;
    let client = s.client().await;
    let guard = s.lock(&client).lock().await.unwrap();
    let panicking = tokio::spawn(async move {
        let _guard = guard;
        std::panic::resume_unwind(Box::new("on purpose"));
    });
    assert!(panicking.await.unwrap_err().is_panic());
    eventually(secs(3), "released", || async { s.keys().await.is_empty() }).await;
    s.nothing_is_left(&[&client]).await;
}

pub async fn shutdown_leaves_holds_to_their_leases_and_ends_waits(subject: &'static Subject) {
    let s = Scene::new(subject).await;
    let reports = Reports::default();
    let client = reports.of(s.redis.builder().watchdog_timeout(ms(1200))).connect().await.unwrap();
    let other = s.client().await;
    let held = s.lock(&client).lock().await.unwrap();
    let taken = s.rival(&other).owned_by(&other.owner());
    let elsewhere = (subject.rival)(&other, "elsewhere").lock().await.unwrap();
    let waits = [waiting(&(subject.lock)(&client, "elsewhere")), waiting(&s.rival(&client))];
    let bounded = (subject.lock)(&client, "elsewhere").try_lock().wait(secs(60));
    let bounded = tokio::spawn(async move { bounded.await });
    eventually(secs(2), "all wait", || async { client.stats().waiters == 3 && client.stats().in_flight == 0 }).await;
    let dropped = (subject.lock)(&client, "dropped").lock().await.unwrap();
    let released = (subject.lock)(&client, "released").lock().await.unwrap();
    drop(dropped);
    let releasing = tokio::spawn(released.release());
    tokio::task::yield_now().await;

    within(secs(2), "shutdown", client.shutdown()).await.unwrap();
    let ended = Instant::now();
    assert!(!s.probe.exists("dropped").await && !s.probe.exists("released").await, "what was queued is sent");
    let in_line = s.keys().await.into_iter().find(|key| key.starts_with("redisson_lock_"));
    assert_eq!(in_line, None, "nobody of it stands in line any more");
    releasing.await.unwrap().unwrap();
    assert!(!held.is_valid() && s.probe.exists(NAME).await, "left to its lease");
    within(secs(2), "told", held.lost()).await;
    for wait in waits {
        let told = within(secs(2), "the wait ends", wait).await.unwrap();
        assert!(matches!(told, Err(Error::Closed)), "{told:?}");
    }
    let told = within(secs(2), "the wait ends", bounded).await.unwrap();
    assert!(matches!(told, Err(Error::Closed)), "{told:?}");
    let lock = s.lock(&client);
    assert!(matches!(lock.lock().await, Err(Error::Closed)));
    assert!(matches!(lock.try_lock().wait(secs(9)).await, Err(Error::Closed)));
    assert!(matches!(lock.is_locked().await, Err(Error::Closed)));
    assert!(matches!(lock.force_release().await, Err(Error::Closed)));
    assert!(matches!(held.extend(secs(1)).await, Err(Error::Closed)));
    assert!(matches!(held.release().await, Err(Error::Closed)));

    // Others get it at the end of that lease, those who waited for the client as well.
    let guard = within(secs(4), "the lease ends", std::future::IntoFuture::into_future(taken.lock())).await.unwrap();
    assert!(ended.elapsed() < ms(1200 + 1500), "{:?}", ended.elapsed());
    guard.release().await.unwrap();
    elsewhere.release().await.unwrap();
    assert!(reports.all().is_empty(), "{:?}", reports.all());
    within(secs(2), "shutting down again", client.shutdown()).await.unwrap();
    eventually(secs(2), "side keys end too", || async { s.keys().await.is_empty() }).await;
    s.nothing_is_left(&[&client, &other]).await;
}
