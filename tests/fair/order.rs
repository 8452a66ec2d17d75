//! Who is next.

use std::{
    future::IntoFuture,
    sync::{Arc, Mutex},
};

use tokio::time::Instant;

use crate::{
    CHANNEL, fair, line, queued, scene, score, stands_in_line,
    suite::{messages::Messages, scene::NAME},
    support::{eventually, forgotten, ms, secs, within},
    waits,
};

#[tokio::test]
async fn the_lock_is_granted_in_the_order_of_the_queue_whatever_client_waits() {
    let s = scene().await;
    let clients = [s.client().await, s.client().await, s.client().await];
    let granted = Arc::new(Mutex::new(Vec::new()));
    let guard = fair(&clients[0]).lock().await.unwrap();
    let mut turns = Vec::new();
    for (place, client) in [0, 1, 2, 0, 0, 1, 1, 2, 2, 0, 1, 0].into_iter().enumerate() {
        let (lock, granted, is_bounded) = (fair(&clients[client]), granted.clone(), place % 3 == 0);
        turns.push(tokio::spawn(async move {
            let guard = match is_bounded {
                true => lock.try_lock().wait(secs(60)).await.unwrap().expect("within its wait"),
                false => lock.lock().await.unwrap(),
            };
            granted.lock().unwrap().push(guard.owner().to_string());
            guard.release().await.unwrap();
        }));
        queued(&s, place + 1).await;
    }
    let expected = line(&s).await;
    assert_eq!(s.probe.ask::<u64>(&["ZCARD", crate::TIMEOUTS]).await, 12, "each with its time");
    guard.release().await.unwrap();
    for turn in turns {
        within(secs(5), "its turn", turn).await.unwrap();
    }
    assert_eq!(*granted.lock().unwrap(), expected);
    s.nothing_is_left(&[&clients[0], &clients[1], &clients[2]]).await;
}

#[tokio::test]
async fn a_release_that_hands_over_in_the_process_is_one_command_and_tells_the_head() {
    const WAITERS: usize = 12;
    let s = scene().await;
    let mut messages = Messages::on(&s.redis).await;
    let client = s.client().await;
    let guard = fair(&client).lock().await.unwrap();
    let turns: Vec<_> = (0..WAITERS).map(|_| crate::suite::scene::turn(&fair(&client).into_any())).collect();
    queued(&s, WAITERS).await;
    eventually(secs(5), "all sleep", || async {
        client.stats().in_flight == 0 && s.probe.channels().await.len() == WAITERS
    })
    .await;
    messages.take().await;
    let order = line(&s).await;
    s.probe.run(&["CONFIG", "RESETSTAT"]).await;
    guard.release().await.unwrap();
    for turn in turns {
        within(secs(5), "its turn", turn).await.unwrap().unwrap();
    }
    let asked = s.probe.calls(&["evalsha", "eval"]).await as usize;
    assert!((WAITERS + 1..=WAITERS + 3).contains(&asked), "{asked} commands for {WAITERS} grants");
    // As Redisson tells the head, so that nobody who watches is misled.
    let told: Vec<String> = messages.take().await.into_iter().map(|(channel, _)| channel).collect();
    assert_eq!(told, order.iter().map(|owner| format!("{CHANNEL}:{owner}")).collect::<Vec<_>>());
    s.nothing_is_left(&[&client]).await;
}

#[tokio::test]
async fn without_local_hand_over_the_order_is_the_same() {
    let s = scene().await;
    let client = s.redis.builder().local_handoff(false).connect().await.unwrap();
    let granted = Arc::new(Mutex::new(Vec::new()));
    let guard = fair(&client).lock().await.unwrap();
    let mut turns = Vec::new();
    for place in 0..6 {
        let (lock, granted) = (fair(&client), granted.clone());
        turns.push(tokio::spawn(async move {
            let guard = lock.lock().await.unwrap();
            granted.lock().unwrap().push(guard.owner().to_string());
            guard.release().await.unwrap();
        }));
        queued(&s, place + 1).await;
    }
    let expected = line(&s).await;
    guard.release().await.unwrap();
    for turn in turns {
        within(secs(5), "its turn", turn).await.unwrap();
    }
    assert_eq!(*granted.lock().unwrap(), expected);
    s.nothing_is_left(&[&client]).await;
}

#[tokio::test]
async fn a_release_tells_the_head_only_and_nobody_when_nobody_waits() {
    let s = scene().await;
    let mut messages = Messages::on(&s.redis).await;
    let client = s.client().await;
    fair(&client).lock().await.unwrap().release().await.unwrap();
    assert_eq!(messages.take().await, []);
    let guard = fair(&client).lock().await.unwrap();
    stands_in_line(&s, "x:1", 60_000).await;
    stands_in_line(&s, "x:2", 60_000).await;
    guard.release().await.unwrap();
    assert_eq!(messages.take().await, [(format!("{CHANNEL}:x:1"), "0".to_owned())]);
    // Forcing it open tells the head as well.
    s.taken_over(NAME, secs(20)).await;
    assert!(fair(&client).force_release().await.unwrap());
    assert_eq!(messages.take().await, [(format!("{CHANNEL}:x:1"), "0".to_owned())]);
    assert_eq!(line(&s).await, ["x:1", "x:2"]);
    forgotten(&client).await;
}

#[tokio::test]
async fn a_try_without_a_wait_does_not_queue_and_does_not_overtake() {
    let s = scene().await;
    let client = s.client().await;
    stands_in_line(&s, "x:1", 60_000).await;
    let before = s.probe.everything().await;
    assert!(fair(&client).try_lock().await.unwrap().is_none(), "free, but somebody else is next");
    s.taken_over("other", secs(20)).await;
    assert!(client.fair_lock("other").try_lock().await.unwrap().is_none());
    s.probe.run(&["DEL", "other"]).await;
    assert_eq!(s.probe.everything().await, before, "it leaves no trace");
    assert_eq!(client.stats().subscriptions, 0);
    forgotten(&client).await;
}

#[tokio::test]
async fn we_wait_behind_whoever_came_before_us_from_another_program() {
    let s = scene().await;
    let client = s.client().await;
    let guard = fair(&client).lock().await.unwrap();
    stands_in_line(&s, "x:1", 60_000).await;
    let owner = client.owner();
    let waiting = waits(&fair(&client), &owner);
    queued(&s, 2).await;
    guard.release().await.unwrap();
    eventually(secs(2), "it looks", || async { client.stats().in_flight == 0 }).await;
    // The other one takes it as Redisson does, and releases it.
    let take = "redis.call('lpop', KEYS[2]) redis.call('zrem', KEYS[3], ARGV[1]) redis.call('hset', KEYS[1], ARGV[1], 1) \
                redis.call('pexpire', KEYS[1], 30000)";
    assert!(!s.probe.exists(NAME).await && !waiting.is_finished());
    s.probe.run(&["EVAL", take, "3", NAME, crate::QUEUE, crate::TIMEOUTS, "x:1"]).await;
    assert_eq!(line(&s).await, [owner.to_string()]);
    s.let_go(NAME).await;
    let guard = within(secs(3), "our turn", waiting).await.unwrap().unwrap();
    guard.release().await.unwrap();
    s.nothing_is_left(&[&client]).await;
}

#[tokio::test]
async fn two_clients_that_alternate_hand_over_without_delay() {
    let s = scene().await;
    let (a, b) = (s.client().await, s.client().await);
    let mut times = Vec::new();
    let mut guard = fair(&a).lock().await.unwrap();
    for round in 0..30 {
        let next = if round % 2 == 0 { &b } else { &a };
        let waiting = tokio::spawn(fair(next).lock().into_future());
        queued(&s, 1).await;
        s.asleep(next, 1).await;
        let released = Instant::now();
        guard.release().await.unwrap();
        guard = within(secs(2), "handed over", waiting).await.unwrap().unwrap();
        times.push(released.elapsed());
    }
    guard.release().await.unwrap();
    times.sort();
    assert!(times[15] < ms(50), "{times:?}");
    s.nothing_is_left(&[&a, &b]).await;
}

#[tokio::test]
async fn an_owner_that_waits_twice_stands_in_line_once() {
    let s = scene().await;
    let (client, other) = (s.client().await, s.client().await);
    let guard = fair(&other).lock().await.unwrap();
    let owner = client.owner();
    let waiting = [waits(&fair(&client), &owner), waits(&fair(&client), &owner)];
    eventually(secs(2), "both wait", || async { client.stats().waiters == 2 && client.stats().in_flight == 0 }).await;
    queued(&s, 1).await;
    assert!(score(&s, &owner.to_string()).await.is_some());
    guard.release().await.unwrap();
    let mut guards = Vec::new();
    for wait in waiting {
        guards.push(within(secs(3), "both are granted", wait).await.unwrap().unwrap());
    }
    assert_eq!(s.count(&fair(&client).into_any(), &owner).await, 2);
    for guard in guards {
        guard.release().await.unwrap();
    }
    s.nothing_is_left(&[&client, &other]).await;
}
