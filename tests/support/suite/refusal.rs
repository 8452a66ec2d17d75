//! Odd names, foreign data, servers that refuse.

use std::future::IntoFuture;

use redlatch::{Action, Client, Error, Fault, Guard};

use super::{
    Subject,
    scene::{NAME, Scene, is_foreign, turn},
};
use crate::support::{eventually, forgotten, ms, secs, within};

pub async fn odd_names_are_names_like_any_other(subject: &'static Subject) {
    const NAMES: [&str; 14] = [
        "a{b}c",
        "{x}",
        "{}",
        "{x",
        "y}{",
        "}",
        "a:b:c",
        "mode",
        "übung 錠 🔒",
        "two words",
        " ",
        "a\nb\t\"'\\",
        "*?[a]",
        "redisson_lock__channel:{orders}",
    ];
    let s = Scene::new(subject).await;
    let (a, b) = (s.client().await, s.client().await);
    let lock = |client: &Client, name: &str| (subject.lock)(client, name);
    let mut guards: Vec<Guard> = Vec::new();
    for name in NAMES {
        guards.push(lock(&a, name).lock().await.unwrap());
        assert_eq!(guards.last().unwrap().name(), name);
    }
    let keys = s.keys().await;
    for (name, guard) in NAMES.iter().zip(&guards) {
        assert!(keys.iter().any(|key| key == name), "`{name}` is the key");
        assert_eq!(s.holders(name).await, [super::scene::field(&lock(&a, name), &guard.owner())]);
        assert_eq!(lock(&b, name).hold_count(&guard.owner()).await.unwrap(), 1);
    }
    let extra = if subject.kind == redlatch::Kind::Read { NAMES.len() } else { 0 };
    assert_eq!(keys.len(), NAMES.len() + extra, "{keys:?}");
    let waiters: Vec<_> = NAMES.iter().map(|name| turn(&(subject.rival)(&b, name))).collect();
    s.asleep(&b, NAMES.len()).await;
    for guard in guards {
        guard.release().await.unwrap();
    }
    for (name, waiter) in NAMES.iter().zip(waiters) {
        within(secs(2), name, waiter).await.unwrap().unwrap();
    }
    s.nothing_is_left(&[&a, &b]).await;
}

/// Every way to take the lock is refused at once.
async fn takes_are_refused(s: &Scene, client: &Client, name: &str) {
    let (lock, owner) = ((s.subject.lock)(client, name), client.owner_with_thread_id(7).unwrap());
    let before = s.probe.everything().await;
    is_foreign(within(secs(2), "lock", lock.lock().into_future()).await, name);
    is_foreign(lock.try_lock().await, name);
    is_foreign(within(secs(2), "wait", lock.try_lock().wait(secs(60)).into_future()).await, name);
    is_foreign(lock.owned_by(&owner).try_lock().await, name);
    is_foreign(lock.owned_by(&owner).lock().lease(secs(1)).await, name);
    assert_eq!(s.probe.everything().await, before);
    forgotten(client).await;
    assert_eq!(s.probe.everything().await, before);
}

pub async fn keys_of_another_type_are_refused_and_left_as_they_were(subject: &'static Subject) {
    let s = Scene::new(subject).await;
    let client = s.client().await;
    let owner = client.owner_with_thread_id(7).unwrap();
    let writes: [&[&str]; 5] = [
        &["SET", "string", "42"],
        &["RPUSH", "list", "a", "b"],
        &["SADD", "set", "a", "b"],
        &["ZADD", "zset", "1", "a"],
        &["XADD", "stream", "*", "k", "v"],
    ];
    for write in writes {
        let name = write[1];
        s.probe.run(write).await;
        takes_are_refused(&s, &client, name).await;
        let (lock, before) = ((subject.lock)(&client, name), s.probe.everything().await);
        is_foreign(lock.force_release().await, name);
        is_foreign(lock.owned_by(&owner).release().await, name);
        is_foreign(lock.is_held_by(&owner).await, name);
        is_foreign(lock.hold_count(&owner).await, name);
        assert_eq!(s.probe.everything().await, before);
    }
    forgotten(&client).await;
}

pub async fn fields_of_other_kinds_are_refused_and_left_as_they_were(subject: &'static Subject) {
    let s = Scene::new(subject).await;
    let client = s.client().await;
    let own = client.owner_with_thread_id(7).unwrap().to_string();
    let (write, expiry, count) =
        (format!("{own}:write"), format!("qwvAS12pR0CgRitaypEjUw:{own}:expire_time"), format!("h:{own}:lock_count"));
    let shapes: [(bool, &[&str]); 8] = [
        (false, &["HSET", "read", "mode", "read", "x:1", "1"]),
        (false, &["HSET", "read-own", "mode", "read", &own, "1"]),
        (false, &["HSET", "write", "mode", "write", "x:1:write", "1"]),
        (false, &["HSET", "write-own", "mode", "write", &write, "1"]),
        (true, &["HSET", "plain", "x:1", "1"]),
        (true, &["HSET", "plain-own", &own, "1"]),
        (true, &["HSET", "group", "qwvAS12pR0CgRitaypEjUw", &own, &expiry, "9999999999999", &count, "1"]),
        (false, &["HSET", "group", "qwvAS12pR0CgRitaypEjUw", &own, &expiry, "9999999999999", &count, "1"]),
    ];
    for (_, shape) in shapes.iter().filter(|(is_for_read_write, _)| *is_for_read_write == subject.is_read_write()) {
        s.probe.run(shape).await;
        s.probe.run(&["PEXPIRE", shape[1], "60000"]).await;
        takes_are_refused(&s, &client, shape[1]).await;
    }
}

pub async fn with_a_full_server_every_hold_can_be_released(subject: &'static Subject) {
    let s = Scene::new(subject).await;
    let (client, other) = (s.client().await, s.client().await);
    let lock = |name: &str| (subject.lock)(&client, name);
    let watched = lock("watched").lock().await.unwrap();
    let leased = lock("leased").lock().lease(secs(60)).await.unwrap();
    let dropped = lock("dropped").lock().await.unwrap();
    let forced = lock("forced").lock().await.unwrap();
    let owner = client.owner();
    let times = if subject.is_reentrant() { 3 } else { 1 };
    let mut again: Vec<Guard> = Vec::new();
    for _ in 0..times {
        again.push(lock("again").owned_by(&owner).lock().await.unwrap());
    }
    let cancelled = turn(&(subject.rival)(&other, "watched"));
    let bounded = tokio::spawn((subject.rival)(&other, "leased").try_lock().wait(ms(800)).into_future());
    s.asleep(&other, 2).await;
    s.probe.run(&["CONFIG", "SET", "maxmemory-policy", "noeviction"]).await;
    s.probe.run(&["CONFIG", "SET", "maxmemory", "1"]).await;
    let full = "local refused = redis.pcall('set', 'filler', 'x') return refused.err";
    assert!(s.probe.ask::<String>(&["EVAL", full, "0"]).await.contains("OOM"));
    match lock("new").lock().await {
        Err(Error::Redis { doing: Action::Acquire, fault: Fault::OutOfMemory, .. }) => {}
        // A take begins with clearing the queue, and Redis refuses nothing to a script that has begun to write.
        Ok(guard) if subject.is_fair() => guard.release().await.unwrap(),
        other => panic!("{other:?}"),
    }
    // Who waits can leave, and those who hold can release.
    cancelled.abort();
    assert!(within(secs(2), "the wait", bounded).await.unwrap().unwrap().is_none());
    forgotten(&other).await;
    watched.release().await.unwrap();
    leased.release().await.unwrap();
    drop(dropped);
    assert!(lock("forced").force_release().await.unwrap());
    assert!(!forced.is_valid());
    drop(forced);
    for (left, guard) in (0..times).rev().zip(again) {
        guard.release().await.unwrap();
        assert_eq!(lock("again").hold_count(&owner).await.unwrap(), left);
    }
    s.nothing_is_left_after_a_loss(&[&client, &other]).await;
}

/// A client of a user with these rights.
async fn limited(s: &Scene, rights: &str) -> Client {
    let words: Vec<&str> = ["ACL", "SETUSER", "app", "on", ">pw"].into_iter().chain(rights.split(' ')).collect();
    s.probe.run(&words).await;
    s.redis.builder().username("app").password("pw").connect().await.unwrap()
}

pub async fn without_the_right_to_publish_a_hold_can_be_released(subject: &'static Subject) {
    let s = Scene::new(subject).await;
    let client = limited(&s, "~* &* +@all -publish -spublish").await;
    // Fair kinds tell the next one only, and nobody waits; a spin lock tells nobody.
    let tells = !subject.is_fair() && subject.channel(NAME).is_some();
    let told = |outcome: Result<(), Error>| match outcome {
        Ok(()) => assert!(!tells, "somebody should have been told"),
        Err(Error::Redis { doing: Action::Publish, fault: Fault::NoPermission, key, .. }) => {
            assert!(tells);
            assert_eq!(Some(key), subject.channel(NAME));
        }
        Err(other) => panic!("{other:?}"),
    };
    told(s.lock(&client).lock().await.unwrap().release().await);
    s.nothing_is_left(&[&client]).await;
    let guard = s.lock(&client).lock().await.unwrap();
    told(s.lock(&client).force_release().await.map(|freed| assert!(freed)));
    drop(guard);
    eventually(secs(2), "freed", || async { s.keys_after_a_loss().await.is_empty() }).await;
    s.nothing_is_left_after_a_loss(&[&client]).await;
}

pub async fn without_the_right_to_a_channel_a_wait_is_an_error_and_leaves_nothing_behind(subject: &'static Subject) {
    let s = Scene::new(subject).await;
    let (client, holder) = (limited(&s, "~* resetchannels +@all").await, s.client().await);
    let guard = s.rival(&holder).lock().await.unwrap();
    let before = s.keys().await;
    assert!(s.lock(&client).try_lock().await.unwrap().is_none(), "one attempt needs no channel");
    for _ in 0..2 {
        let bounded = s.lock(&client).try_lock().wait(ms(500)).into_future();
        match within(secs(2), "refusal", bounded).await {
            Err(Error::Redis { doing: Action::Subscribe, fault: Fault::NoPermission, key, .. }) => {
                let channel = subject.channel(NAME).unwrap();
                assert!(if subject.is_fair() { key.starts_with(&channel) } else { key == channel }, "{key}");
            }
            other => panic!("not refused: {other:?}"),
        }
        forgotten(&client).await;
        assert_eq!(s.keys().await, before, "nobody stands in line");
    }
    guard.release().await.unwrap();
    s.nothing_is_left(&[&client, &holder]).await;
}
