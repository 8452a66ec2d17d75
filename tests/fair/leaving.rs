//! Every way out of the line: nobody stands there who does not wait.

use std::future::IntoFuture;

use redlatch::Client;
use tokio::task::JoinHandle;

use crate::{
    CHANNEL, QUEUE, TIMEOUTS, fair, line, queued, scene, score,
    suite::scene::{NAME, Scene, waiting},
    support::{eventually, forgotten, secs, within},
    waits,
};

/// Nobody of the client stands in line or listens any more, soon; the next one has moved up.
async fn has_left(s: &Scene, client: &Client, next: &str, was: i64, patience: i64) {
    eventually(secs(2), "it has left", || async { line(s).await == [next] }).await;
    assert_eq!(s.probe.ask::<Vec<String>>(&["ZRANGE", TIMEOUTS, "0", "-1"]).await, [next]);
    assert_eq!(score(s, next).await, Some(was - patience), "its patience is taken off");
    forgotten(client).await;
    eventually(secs(3), "it listens no more", || async { s.probe.channels().await == [format!("{CHANNEL}:{next}")] })
        .await;
}

#[tokio::test]
async fn whoever_stops_waiting_leaves_at_once_and_those_behind_move_up() {
    let s = scene().await;
    let (holder, behind) = (s.client().await, s.client().await);
    let guard = fair(&holder).lock().await.unwrap();
    for way in ["cancelled", "timed out", "cancelled unanswered", "shut down"] {
        let client = s.client().await;
        let (leaver, next) = (client.owner(), behind.owner());
        let (wait, patience) = if way == "timed out" { (secs(1), 1000) } else { (secs(60), 60_000) };
        let bounded = fair(&client).owned_by(&leaver).try_lock().wait(wait);
        let leaving = tokio::spawn(bounded.into_future());
        queued(&s, 1).await;
        let staying = waits(&fair(&behind), &next);
        queued(&s, 2).await;
        s.asleep(&behind, 1).await;
        let was = score(&s, &next.to_string()).await.unwrap();
        match way {
            "timed out" => assert!(within(secs(3), "its end", leaving).await.unwrap().unwrap().is_none()),
            "shut down" => {
                within(secs(2), "shutdown", client.shutdown()).await.unwrap();
                assert_eq!(line(&s).await, [next.to_string()], "shutdown waits for it");
            }
            "cancelled" => {
                s.asleep(&client, 1).await;
                leaving.abort();
            }
            _ => leaving.abort(),
        }
        has_left(&s, &client, &next.to_string(), was, patience).await;
        staying.abort();
        queued(&s, 0).await;
        forgotten(&behind).await;
    }
    guard.release().await.unwrap();
    s.nothing_is_left(&[&holder, &behind]).await;
}

#[tokio::test]
async fn a_waiter_whose_link_breaks_keeps_its_place_and_one_that_gives_up_meanwhile_leaves() {
    let s = scene().await;
    let (proxy, client) = s.behind_proxy(|b| b.response_timeout(secs(3))).await;
    let holder = s.client().await;
    let guard = fair(&holder).lock().await.unwrap();
    let (stays, goes) = (client.owner(), client.owner());
    let (staying, going) = (waits(&fair(&client), &stays), waits(&fair(&client), &goes));
    queued(&s, 2).await;
    s.asleep(&client, 2).await;
    going.abort();
    proxy.cut();
    eventually(secs(2), "one has left", || async { line(&s).await == [stays.to_string()] }).await;
    proxy.cut();
    guard.release().await.unwrap();
    let guard = within(secs(2), "the other has its turn", staying).await.unwrap().unwrap();
    guard.release().await.unwrap();
    s.nothing_is_left(&[&client, &holder]).await;
}

#[tokio::test]
async fn a_place_whose_taking_was_not_answered_is_given_up() {
    for is_held_back in [false, true] {
        let s = scene().await;
        let (proxy, client) = s.behind_proxy(|b| b).await;
        let holder = s.client().await;
        let guard = fair(&holder).lock().await.unwrap();
        if is_held_back {
            proxy.hold_commands();
        } else {
            proxy.lose_replies();
        }
        let outcome = within(secs(3), "told", fair(&client).lock().into_future()).await;
        assert!(outcome.is_err(), "{outcome:?}");
        forgotten(&client).await;
        proxy.let_go();
        eventually(secs(2), "nobody stands in line", || async { line(&s).await.is_empty() }).await;
        assert!(!s.probe.exists(TIMEOUTS).await);
        guard.release().await.unwrap();
        s.nothing_is_left(&[&client, &holder]).await;
    }
}

#[tokio::test]
async fn a_head_that_leaves_a_free_lock_tells_the_next() {
    for is_timeout in [false, true] {
        let s = scene().await;
        let (b, c) = (s.client().await, s.client().await);
        s.taken_over(NAME, secs(30)).await;
        let wait = if is_timeout { secs(1) } else { secs(60) };
        let head = tokio::spawn(fair(&b).try_lock().wait(wait).into_future());
        queued(&s, 1).await;
        let next = waiting(&fair(&c).into_any());
        queued(&s, 2).await;
        s.asleep(&b, 1).await;
        s.asleep(&c, 1).await;
        // It becomes free, and nobody is told.
        s.probe.run(&["DEL", NAME]).await;
        let first = if is_timeout {
            // Its last look may find it free: then it has it.
            within(secs(3), "the head", head).await.unwrap().unwrap()
        } else {
            head.abort();
            None
        };
        drop(first);
        within(secs(3), "the next", next).await.unwrap().unwrap().release().await.unwrap();
        s.nothing_is_left(&[&b, &c]).await;
    }
}

#[tokio::test]
async fn a_head_that_is_cancelled_as_it_is_told_passes_its_turn_on() {
    let s = scene().await;
    let clients = [s.client().await, s.client().await, s.client().await];
    for round in 0..40 {
        let guard = fair(&clients[0]).lock().await.unwrap();
        // In the holder's own process, and in another.
        let head = waiting(&fair(&clients[round % 2]).into_any());
        queued(&s, 1).await;
        let next = waiting(&fair(&clients[2]).into_any());
        queued(&s, 2).await;
        let releasing = tokio::spawn(guard.release());
        for _ in 0..round % 5 {
            tokio::task::yield_now().await;
        }
        head.abort();
        within(secs(3), "released", releasing).await.unwrap().unwrap();
        drop(head.await);
        within(secs(3), "the next", next).await.unwrap().unwrap().release().await.unwrap();
    }
    s.nothing_is_left(&[&clients[0], &clients[1], &clients[2]]).await;
}

#[tokio::test]
async fn taking_and_releasing_leaves_no_key_however_many_wait() {
    let s = scene().await;
    let (a, b) = (s.client().await, s.client().await);
    for waiters in 0..4 {
        let guard = fair(&a).lock().await.unwrap();
        let turns: Vec<JoinHandle<_>> = (0..waiters)
            .map(|n| crate::suite::scene::turn(&fair(if n % 2 == 0 { &a } else { &b }).into_any()))
            .collect();
        queued(&s, waiters).await;
        guard.release().await.unwrap();
        for turn in turns {
            within(secs(3), "its turn", turn).await.unwrap().unwrap();
        }
        assert_eq!(s.probe.keys().await, Vec::<String>::new());
    }
    s.nothing_is_left(&[&a, &b]).await;
}

#[tokio::test]
async fn with_a_full_server_the_lock_goes_down_the_line_and_the_line_can_be_left() {
    let s = scene().await;
    let client = s.client().await;
    let guard = fair(&client).lock().await.unwrap();
    let cancelled = waiting(&fair(&client).into_any());
    queued(&s, 1).await;
    let turns: Vec<_> = (0..2).map(|_| crate::suite::scene::turn(&fair(&client).into_any())).collect();
    queued(&s, 3).await;
    eventually(secs(2), "all sleep", || async { client.stats().waiters == 3 && client.stats().in_flight == 0 }).await;
    s.probe.run(&["CONFIG", "SET", "maxmemory-policy", "noeviction"]).await;
    s.probe.run(&["CONFIG", "SET", "maxmemory", "1"]).await;
    cancelled.abort();
    queued(&s, 2).await;
    guard.release().await.unwrap();
    for turn in turns {
        within(secs(2), "its turn", turn).await.unwrap().unwrap();
    }
    assert_eq!(s.probe.ask::<u64>(&["EXISTS", QUEUE, TIMEOUTS]).await, 0);
    s.nothing_is_left(&[&client]).await;
}
