//! Outcomes that are unknown because a reply was lost, a command held up or a link cut.

use std::future::{Future, IntoFuture};

use redlatch::{Error, Fault};

use super::{
    Subject,
    scene::{NAME, Scene, waiting},
};
use crate::support::{eventually, proxy::Proxy, secs, within};

/// The two ways to lose a reply: after the script ran, and with the script itself still to run.
#[derive(Clone, Copy, Debug)]
enum Trouble {
    ReplyLost,
    CommandHeld,
}

/// Both, side by side: most of the time is spent on waiting for an answer that does not come.
async fn in_both_troubles<F: Future<Output = ()> + Send>(case: impl Fn(Trouble) -> F) {
    tokio::join!(case(Trouble::ReplyLost), case(Trouble::CommandHeld));
}

impl Trouble {
    fn begin(self, proxy: &Proxy) {
        match self {
            Self::ReplyLost => proxy.lose_replies(),
            Self::CommandHeld => proxy.hold_commands(),
        }
    }
}

pub async fn an_acquire_whose_outcome_is_unknown_is_undone(subject: &'static Subject) {
    in_both_troubles(|trouble| async move {
        let s = Scene::new(subject).await;
        let (proxy, client) = s.behind_proxy(|b| b).await;
        trouble.begin(&proxy);
        let told = within(secs(3), "told", s.lock(&client).lock().into_future()).await;
        assert!(matches!(told, Err(Error::Redis { fault: Fault::TimedOut, .. })), "{trouble:?}: {told:?}");
        eventually(secs(2), "undone", || async { s.keys().await.is_empty() }).await;
        // Now the held command goes on its way, too late.
        proxy.let_go();
        let guard = within(secs(2), "again", s.lock(&client).lock().into_future()).await.unwrap();
        assert_eq!(s.count(&s.lock(&client), &guard.owner()).await, 1);
        assert_eq!(s.holders(NAME).await.len(), 1);
        guard.release().await.unwrap();
        s.nothing_is_left(&[&client]).await;
    })
    .await;
}

pub async fn an_owner_never_gets_two_holds_from_one_whose_outcome_is_unknown(subject: &'static Subject) {
    in_both_troubles(|trouble| async move {
        let s = Scene::new(subject).await;
        let (proxy, client) = s.behind_proxy(|b| b).await;
        let owner = client.owner_with_thread_id(1).unwrap();
        let lock = s.lock(&client).owned_by(&owner);
        trouble.begin(&proxy);
        assert!(within(secs(3), "told", lock.lock().into_future()).await.is_err());
        let guard = within(secs(3), "again", lock.lock().into_future()).await.unwrap();
        proxy.let_go();
        assert_eq!(s.count(&s.lock(&client), &owner).await, 1, "{trouble:?}");
        guard.release().await.unwrap();
        s.nothing_is_left(&[&client]).await;
    })
    .await;
}

pub async fn a_release_whose_outcome_is_unknown_is_finished(subject: &'static Subject) {
    in_both_troubles(|trouble| async move {
        let s = Scene::new(subject).await;
        let (proxy, client) = s.behind_proxy(|b| b).await;
        let guard = s.lock(&client).lock().await.unwrap();
        trouble.begin(&proxy);
        let told = within(secs(3), "told", guard.release()).await;
        assert!(matches!(told, Err(Error::Redis { fault: Fault::TimedOut, .. })), "{trouble:?}: {told:?}");
        eventually(secs(2), "finished", || async { s.keys().await.is_empty() }).await;
        proxy.let_go();
        let other = s.client().await;
        let guard = s.rival(&other).lock().await.unwrap();
        assert_eq!(s.count(&s.rival(&other), &guard.owner()).await, 1, "the late release touches nobody else");
        guard.release().await.unwrap();
        s.nothing_is_left(&[&client, &other]).await;
    })
    .await;
}

pub async fn a_hand_over_whose_outcome_is_unknown_grants_at_most_once(subject: &'static Subject) {
    in_both_troubles(|trouble| async move {
        let s = Scene::new(subject).await;
        let (proxy, client) = s.behind_proxy(|b| b).await;
        let guard = s.lock(&client).lock().await.unwrap();
        let waiter = waiting(&s.rival(&client));
        s.asleep(&client, 1).await;
        trouble.begin(&proxy);
        let _ = within(secs(3), "told", guard.release()).await;
        match within(secs(3), "the waiter", waiter).await.unwrap() {
            Ok(guard) => {
                assert_eq!(s.count(&s.rival(&client), &guard.owner()).await, 1, "{trouble:?}");
                guard.release().await.unwrap();
            }
            Err(error) => assert!(matches!(error, Error::Redis { .. }), "{trouble:?}: {error:?}"),
        }
        eventually(secs(2), "free", || async { s.keys().await.is_empty() }).await;
        proxy.let_go();
        let guard = within(secs(2), "again", s.lock(&client).lock().into_future()).await.unwrap();
        assert_eq!(s.holders(NAME).await.len(), 1, "{trouble:?}");
        guard.release().await.unwrap();
        s.nothing_is_left(&[&client]).await;
    })
    .await;
}

pub async fn a_renewal_whose_outcome_is_unknown_is_tried_again(subject: &'static Subject) {
    in_both_troubles(|trouble| async move {
        let s = Scene::new(subject).await;
        let (proxy, client) = s.behind_proxy(|b| b.watchdog_timeout(crate::support::secs(2))).await;
        let guard = s.lock(&client).lock().await.unwrap();
        let before = s.probe.calls(&["evalsha"]).await;
        trouble.begin(&proxy);
        // The first is lost; later ones come through, and the lock is held beyond its first lease.
        tokio::select! {
            () = guard.lost() => panic!("{trouble:?}: lost"),
            () = eventually(secs(6), "renewed", || async { s.probe.calls(&["evalsha"]).await >= before + 3 }) => {}
        }
        proxy.let_go();
        assert_eq!(s.count(&s.lock(&client), &guard.owner()).await, 1, "{trouble:?}");
        guard.release().await.unwrap();
        s.nothing_is_left(&[&client]).await;
    })
    .await;
}

pub async fn a_link_that_is_cut_doubles_and_loses_nothing(subject: &'static Subject) {
    let s = Scene::new(subject).await;
    let (proxy, client) = s.behind_proxy(|b| b.response_timeout(secs(3))).await;
    let lock = s.lock(&client);
    for round in 0..8 {
        let acquire = waiting(&lock);
        for _ in 0..round % 4 {
            tokio::task::yield_now().await;
        }
        proxy.cut();
        let guard = within(secs(2), "granted", acquire).await.unwrap().unwrap();
        assert_eq!(s.count(&lock, &guard.owner()).await, 1);
        // A waiter that sleeps when its link goes is not forgotten.
        let waiter = waiting(&s.rival(&client));
        s.asleep(&client, 1).await;
        let release = tokio::spawn(guard.release());
        for _ in 0..round % 3 {
            tokio::task::yield_now().await;
        }
        proxy.cut();
        within(secs(2), "released", release).await.unwrap().unwrap();
        let guard = within(secs(2), "the waiter", waiter).await.unwrap().unwrap();
        assert_eq!(s.holders(NAME).await.len(), 1);
        guard.release().await.unwrap();
    }
    s.nothing_is_left(&[&client]).await;
}
