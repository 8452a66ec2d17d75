//! The keys of read holds, and how long the main key lives for their sake.

use std::time::Duration;

use redlatch::Guard;
use tokio::time::{Instant, sleep};

use crate::{
    both, fields, hold_key, left, scene,
    suite::scene::{NAME, Random, Scene},
    support::{eventually, ms, secs},
};

#[tokio::test]
async fn each_read_hold_has_a_numbered_key_that_lives_as_long_as_it() {
    const LEASES: [u64; 3] = [60, 20, 40];
    let s = scene().await;
    let client = s.client().await;
    for order in [[0, 1, 2], [0, 2, 1], [1, 0, 2], [1, 2, 0], [2, 0, 1], [2, 1, 0]] {
        let owner = client.owner();
        let read = both(&client).read().owned_by(&owner);
        let mut guards: Vec<Option<Guard>> = Vec::new();
        for (number, lease) in (1..).zip(LEASES) {
            guards.push(Some(read.lock().lease(secs(lease)).await.unwrap()));
            let lives = left(&s, &hold_key(&owner, number)).await;
            assert!(lives <= secs(lease) && lives + secs(1) > secs(lease), "{number}: {lives:?}");
            assert_eq!(s.probe.ask::<String>(&["GET", &hold_key(&owner, number)]).await, "1");
        }
        let mut expected = vec![("mode".to_owned(), "read".to_owned()), (owner.to_string(), LEASES.len().to_string())];
        expected.sort();
        assert_eq!(fields(&s).await, expected);
        for gone in order {
            guards[gone].take().unwrap().release().await.unwrap();
            lives_of(&s, &owner, &guards, LEASES).await;
        }
        s.nothing_is_left(&[&client]).await;
    }

    /// Hold keys 1 to count have the leases of the holds that are left, and the main key has the longest.
    async fn lives_of(s: &Scene, owner: &redlatch::OwnerId, guards: &[Option<Guard>], leases: [u64; 3]) {
        let mut expected: Vec<u64> =
            guards.iter().zip(leases).filter(|(guard, _)| guard.is_some()).map(|(_, lease)| lease).collect();
        let mut lives = Vec::new();
        for number in 1..=expected.len() as u64 {
            lives.push(left(s, &hold_key(owner, number)).await);
        }
        lives.sort();
        expected.sort_unstable();
        for (lives, lease) in lives.iter().zip(&expected) {
            assert!(*lives <= secs(*lease) + ms(50) && *lives + secs(1) > secs(*lease), "{lives:?}, {expected:?}");
        }
        let others: Vec<String> = s.probe.ask(&["KEYS", "*rwlock_timeout*"]).await;
        assert_eq!(others.len(), expected.len(), "{others:?}");
        if let Some(longest) = expected.last() {
            let main = left(s, NAME).await;
            assert!(main + secs(1) > secs(*longest) && main <= secs(*longest) + ms(50), "{main:?} for {expected:?}");
        }
    }
}

#[tokio::test]
async fn hold_keys_follow_the_rule_for_braces() {
    let s = scene().await;
    let client = s.client().await;
    for (name, prefix) in [("plain", "{plain}"), ("q{w}e", "q{w}e"), ("x}", "{x}}"), ("übung 錠", "{übung 錠}")] {
        let guard = client.read_write_lock(name).read().lock().await.unwrap();
        let mut expected = [name.to_owned(), format!("{prefix}:{}:rwlock_timeout:1", guard.owner())];
        expected.sort();
        assert_eq!(s.probe.keys().await, expected);
        guard.release().await.unwrap();
        assert_eq!(s.probe.keys().await, Vec::<String>::new());
    }
}

#[tokio::test]
async fn a_short_read_lease_does_not_shorten_a_longer_one() {
    let s = scene().await;
    let (a, b) = (s.client().await, s.client().await);
    let long = both(&a).read().lock().lease(secs(30)).await.unwrap();
    let short = both(&b).read().lock().lease(secs(3)).await.unwrap();
    assert!(left(&s, NAME).await > secs(28));
    short.release().await.unwrap();
    assert!(left(&s, NAME).await > secs(28));
    let short = both(&b).read().lock().lease(secs(3)).await.unwrap();
    long.release().await.unwrap();
    let main = left(&s, NAME).await;
    assert!(main <= secs(3) && short.valid_for() <= main + ms(10), "{main:?}");
    short.release().await.unwrap();
    s.nothing_is_left(&[&a, &b]).await;
}

#[tokio::test]
async fn a_long_fixed_read_lease_is_not_cut_by_the_renewals_of_others() {
    let s = scene().await;
    let (patient, other) = (s.watched(ms(1200)).await, s.watched(ms(900)).await);
    let long = both(&patient).read().lock().lease(secs(20)).await.unwrap();
    let taken = Instant::now();
    // Renewals of ours never lower it.
    let short = both(&other).read().lock().await.unwrap();
    let end = Instant::now() + ms(1000);
    while Instant::now() < end {
        assert!(left(&s, NAME).await + taken.elapsed() + ms(50) > secs(20));
        sleep(ms(10)).await;
    }
    short.release().await.unwrap();
    // Those of Redisson do: it is raised again within a period.
    for _ in 0..2 {
        s.probe.run(&["PEXPIRE", NAME, "1200"]).await;
        eventually(ms(1150), "raised again", || async { left(&s, NAME).await > secs(15) }).await;
    }
    assert!(long.is_valid() && left(&s, NAME).await + taken.elapsed() < secs(21));
    long.release().await.unwrap();
    s.nothing_is_left(&[&patient, &other]).await;
}

#[tokio::test]
async fn among_many_readers_a_release_leaves_the_key_to_live_as_long_as_the_longest_hold() {
    const READERS: usize = 64;
    let s = scene().await;
    let (a, b) = (s.client().await, s.client().await);
    let mut random = Random(64);
    // Leases of any length, and of nearly the same.
    for spread in [50_000, 1_500] {
        let mut readers: Vec<(Instant, Guard)> = Vec::new();
        for n in 0..READERS {
            let lease = ms(10_000 + random.below(spread));
            let client = if n % 2 == 0 { &a } else { &b };
            let taken = Instant::now();
            readers.push((taken + lease, both(client).read().lock().lease(lease).await.unwrap()));
        }
        while !readers.is_empty() {
            let (_, gone) = readers.swap_remove(random.below(readers.len() as u64) as usize);
            gone.release().await.unwrap();
            let Some(longest) = readers.iter().map(|(end, _)| *end).max() else { break };
            let (before, main) = (Instant::now(), left(&s, NAME).await);
            assert!(Instant::now() + main + ms(5) >= longest, "{main:?}, but the longest has {:?}", longest - before);
            assert!(before + main <= longest + ms(2_000), "{main:?}, but the longest has {:?}", longest - before);
            if readers.len().is_multiple_of(8) {
                all_are_there(&s, &readers).await;
            }
        }
        s.nothing_is_left(&[&a, &b]).await;
    }

    async fn all_are_there(s: &Scene, readers: &[(Instant, Guard)]) {
        let mut holders = s.holders(NAME).await;
        let mut expected: Vec<String> = readers.iter().map(|(_, guard)| guard.owner().to_string()).collect();
        holders.sort();
        expected.sort();
        assert_eq!(holders, expected);
        assert_eq!(s.probe.ask::<Vec<String>>(&["KEYS", "*rwlock_timeout*"]).await.len(), readers.len());
        for (_, guard) in readers {
            assert!(guard.is_valid() && guard.valid_for() > Duration::ZERO);
        }
    }
}
