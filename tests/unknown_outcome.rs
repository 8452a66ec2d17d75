//! Outcomes that are unknown because a reply was lost or a command held up: resolved, never doubled.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test that cannot go on ends here")]

mod support;

use std::{future::IntoFuture, time::Duration};

use redlatch::{Client, Error, Fault};
use support::{
    eventually, forgotten, ms,
    proxy::Proxy,
    redis::{Probe, Redis},
    secs, within,
};

const TIMEOUT: Duration = Duration::from_millis(300);

struct Scene {
    redis: Redis,
    proxy: Proxy,
    client: Client,
    probe: Probe,
}

impl Scene {
    async fn new() -> Self {
        let redis = Redis::start();
        let proxy = Proxy::to(redis.port()).await;
        let client = Client::builder()
            .url(proxy.url())
            .response_timeout(TIMEOUT)
            .watchdog_timeout(secs(3))
            .connect()
            .await
            .unwrap();
        // The scripts are known to the server before anything is disturbed.
        client.lock("warm").lock().await.unwrap().release().await.unwrap();
        let probe = redis.probe().await;
        Self { redis, proxy, client, probe }
    }

    async fn count(&self, owner: &redlatch::OwnerId) -> Option<u64> {
        self.probe.ask(&["HGET", "u", &owner.to_string()]).await
    }

    async fn free(&self) {
        eventually(secs(2), "free", || async { self.probe.keys().await.is_empty() }).await;
        forgotten(&self.client).await;
    }
}

/// The two ways to lose a reply: after the script ran, and with the script itself still to run.
#[derive(Clone, Copy, Debug)]
enum Trouble {
    ReplyLost,
    CommandHeld,
}

const TROUBLES: [Trouble; 2] = [Trouble::ReplyLost, Trouble::CommandHeld];

impl Trouble {
    fn begin(self, proxy: &Proxy) {
        match self {
            Self::ReplyLost => proxy.lose_replies(),
            Self::CommandHeld => proxy.hold_commands(),
        }
    }
}

#[tokio::test]
async fn an_acquire_whose_outcome_is_unknown_is_undone_when_its_caller_was_told() {
    for trouble in TROUBLES {
        let s = Scene::new().await;
        trouble.begin(&s.proxy);
        let error = within(secs(3), "told", s.client.lock("u").lock().into_future()).await.unwrap_err();
        assert!(matches!(error, Error::Redis { fault: Fault::TimedOut, .. }), "{trouble:?}: {error:?}");
        s.free().await;
        // Now the held command goes on its way, too late.
        s.proxy.let_go();
        let guard = within(secs(2), "again", s.client.lock("u").lock().into_future()).await.unwrap();
        assert_eq!(s.count(&guard.owner()).await, Some(1));
        guard.release().await.unwrap();
        s.free().await;
    }
}

#[tokio::test]
async fn an_explicit_owner_never_gets_a_count_of_two_from_one_hold() {
    for trouble in TROUBLES {
        let s = Scene::new().await;
        let owner = s.client.owner_with_thread_id(1).unwrap();
        let lock = s.client.lock("u").owned_by(&owner);
        trouble.begin(&s.proxy);
        assert!(within(secs(3), "told", lock.lock().into_future()).await.is_err());
        let guard = within(secs(3), "again", lock.lock().into_future()).await.unwrap();
        s.proxy.let_go();
        assert_eq!(s.count(&owner).await, Some(1), "{trouble:?}");
        guard.release().await.unwrap();
        s.free().await;
    }
}

#[tokio::test]
async fn a_reentry_whose_outcome_is_unknown_leaves_the_outer_hold_as_it_was() {
    for trouble in TROUBLES {
        let s = Scene::new().await;
        let owner = s.client.owner();
        let lock = s.client.lock("u").owned_by(&owner);
        let outer = lock.lock().await.unwrap();
        trouble.begin(&s.proxy);
        assert!(within(secs(3), "told", lock.lock().into_future()).await.is_err());
        eventually(secs(2), "resolved", || async { s.client.stats().in_flight == 0 }).await;
        s.proxy.let_go();
        assert_eq!(s.count(&owner).await, Some(1), "{trouble:?}");
        assert!(outer.is_valid());
        outer.release().await.unwrap();
        s.free().await;
    }
}

#[tokio::test]
async fn a_broken_connection_is_mended_without_the_caller_noticing() {
    let s = Scene::new().await;
    for _ in 0..50 {
        let acquire = tokio::spawn(s.client.lock("u").lock().into_future());
        s.proxy.cut();
        let guard = within(secs(2), "granted", acquire).await.unwrap().unwrap();
        assert_eq!(s.count(&guard.owner()).await, Some(1));
        let release = tokio::spawn(guard.release());
        s.proxy.cut();
        within(secs(2), "released", release).await.unwrap().unwrap();
    }
    s.free().await;
}

#[tokio::test]
async fn a_release_whose_outcome_is_unknown_is_finished_in_the_background() {
    for trouble in TROUBLES {
        let s = Scene::new().await;
        let guard = s.client.lock("u").lock().await.unwrap();
        trouble.begin(&s.proxy);
        let told = within(secs(3), "told", guard.release()).await;
        assert!(matches!(told, Err(Error::Redis { fault: Fault::TimedOut, .. })), "{trouble:?}: {told:?}");
        s.free().await;
        s.proxy.let_go();
        let other = s.redis.client().await;
        let guard = other.lock("u").lock().await.unwrap();
        assert_eq!(s.count(&guard.owner()).await, Some(1), "the late release touches nobody else");
        guard.release().await.unwrap();
    }
}

#[tokio::test]
async fn a_partial_release_whose_outcome_is_unknown_leaves_a_count_of_one() {
    for trouble in TROUBLES {
        let s = Scene::new().await;
        let owner = s.client.owner();
        let lock = s.client.lock("u").owned_by(&owner);
        let (outer, inner) = (lock.lock().await.unwrap(), lock.lock().await.unwrap());
        trouble.begin(&s.proxy);
        assert!(within(secs(3), "told", inner.release()).await.is_err());
        eventually(secs(2), "resolved", || async { s.client.stats().in_flight == 0 }).await;
        s.proxy.let_go();
        assert_eq!(s.count(&owner).await, Some(1), "{trouble:?}");
        assert!(outer.is_valid());
        outer.release().await.unwrap();
        s.free().await;
    }
}

#[tokio::test]
async fn a_renewal_whose_outcome_is_unknown_is_tried_again_within_the_lease() {
    for trouble in TROUBLES {
        let s = Scene::new().await;
        let guard = s.client.lock("u").lock().await.unwrap();
        let before = s.probe.calls(&["evalsha"]).await;
        trouble.begin(&s.proxy);
        // Three leases later the lock is still held: later renewals came through.
        tokio::select! {
            () = guard.lost() => panic!("{trouble:?}: lost"),
            () = eventually(secs(12), "renewed", || async { s.probe.calls(&["evalsha"]).await >= before + 5 }) => {}
        }
        s.proxy.let_go();
        assert_eq!(s.count(&guard.owner()).await, Some(1), "{trouble:?}");
        guard.release().await.unwrap();
        s.free().await;
    }
}

#[tokio::test]
async fn a_transfer_whose_outcome_is_unknown_grants_at_most_once() {
    for trouble in TROUBLES {
        let s = Scene::new().await;
        let lock = s.client.lock("u");
        let guard = lock.lock().await.unwrap();
        let waiter = tokio::spawn(lock.lock().into_future());
        eventually(secs(2), "waits", || async { s.client.stats().waiters == 1 && s.client.stats().in_flight == 0 })
            .await;
        trouble.begin(&s.proxy);
        let _ = within(secs(3), "told", guard.release()).await;
        match within(secs(3), "the waiter", waiter).await.unwrap() {
            Ok(guard) => {
                assert_eq!(s.count(&guard.owner()).await, Some(1), "{trouble:?}");
                guard.release().await.unwrap();
            }
            Err(error) => assert!(matches!(error, Error::Redis { .. }), "{trouble:?}: {error:?}"),
        }
        s.free().await;
        s.proxy.let_go();
        let guard = within(secs(2), "again", lock.lock().into_future()).await.unwrap();
        let holders: Vec<String> = s.probe.ask(&["HKEYS", "u"]).await;
        assert_eq!(holders, [guard.owner().to_string()], "{trouble:?}");
        guard.release().await.unwrap();
        s.free().await;
    }
}

#[tokio::test]
async fn a_wait_that_ends_while_its_attempt_is_unresolved_is_an_error() {
    let s = Scene::new().await;
    s.proxy.hold_commands();
    let outcome = within(secs(2), "ends", s.client.lock("u").try_lock().wait(ms(50)).into_future()).await;
    assert!(matches!(outcome, Err(Error::Redis { .. })), "{outcome:?}");
    s.proxy.let_go();
    s.free().await;
}

#[tokio::test]
async fn a_stalled_server_costs_an_error_and_no_hold() {
    // The report: a lock that timed out, a second one, one release; a count was left.
    let s = Scene::new().await;
    let owner = s.client.owner_with_thread_id(5).unwrap();
    let lock = s.client.lock("u").owned_by(&owner);
    s.probe.run(&["CLIENT", "PAUSE", "900", "ALL"]).await;
    assert!(within(secs(2), "told", lock.lock().into_future()).await.is_err());
    let guard = within(secs(5), "again", async {
        loop {
            if let Ok(guard) = lock.lock().await {
                break guard;
            }
        }
    })
    .await;
    assert_eq!(s.count(&owner).await, Some(1));
    guard.release().await.unwrap();
    s.free().await;
}

#[tokio::test]
async fn without_the_right_to_kill_a_stray_acquire_counts_as_free_and_its_owner_is_refused() {
    let redis = Redis::start();
    let probe = redis.probe().await;
    probe.run(&["ACL", "SETUSER", "app", "on", ">pw", "~*", "&*", "+@all", "-client|kill"]).await;
    let proxy = Proxy::to(redis.port()).await;
    let builder = Client::builder().url(proxy.url()).username("app").password("pw");
    let client = builder.response_timeout(TIMEOUT).watchdog_timeout(secs(2)).connect().await.unwrap();
    client.lock("warm").lock().await.unwrap().release().await.unwrap();
    let owner = client.owner_with_thread_id(9).unwrap();
    let lock = client.lock("u");
    proxy.hold_commands();
    let error = within(secs(3), "told", lock.owned_by(&owner).lock().into_future()).await.unwrap_err();
    assert!(matches!(error, Error::Redis { .. } | Error::Unresolved { .. }), "{error:?}");
    eventually(secs(2), "undone", || async { client.stats().in_flight == 0 }).await;
    // The stray command runs now, after all that.
    proxy.let_go();
    eventually(secs(2), "the stray hold", || async { probe.keys().await == ["u"] }).await;
    let refused = lock.owned_by(&owner).try_lock().await;
    assert!(matches!(refused, Err(Error::Unresolved { .. })), "{refused:?}");
    let guard = within(secs(1), "free for others", lock.lock().into_future()).await.unwrap();
    let holders: Vec<String> = probe.ask(&["HKEYS", "u"]).await;
    assert_eq!(holders, [guard.owner().to_string()]);
    guard.release().await.unwrap();
    assert!(probe.keys().await.is_empty());
}
