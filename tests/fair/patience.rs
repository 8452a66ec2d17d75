//! The scores of those who wait: when they count as dead.

use redlatch::{FairLock, OwnerId};

use crate::{
    NAME, QUEUE, TIMEOUTS, fair, line, queued, scene, score, server_time,
    suite::scene::Scene,
    support::{eventually, ms, secs, within},
    waits,
};

/// The end of the holder's lease, in the server's time.
async fn lease_end(s: &Scene) -> i64 {
    const END: &str = "local now = redis.call('time') \
                       return now[1] * 1000 + math.floor(now[2] / 1000) + redis.call('pttl', KEYS[1])";
    s.probe.ask(&["EVAL", END, "1", NAME]).await
}

fn about(is: i64, expected: i64) {
    assert!((is - expected).abs() <= 10, "{is} is not about {expected}: {} ms off", is - expected);
}

#[tokio::test]
async fn scores_add_up_and_are_taken_off_as_redisson_does() {
    let s = scene().await;
    let clients = [s.client().await, s.client().await, s.client().await, s.client().await];
    let guard = fair(&clients[0]).lock().lease(secs(60)).await.unwrap();
    let owners: Vec<OwnerId> = clients[1..].iter().map(redlatch::Client::owner).collect();
    let name = |n: usize| owners[n].to_string();
    let first = waits(&fair(&clients[1]), &owners[0]);
    queued(&s, 1).await;
    let bounded = fair(&clients[2]).owned_by(&owners[1]).try_lock().wait(secs(5));
    let second = tokio::spawn(async move { bounded.await });
    queued(&s, 2).await;
    let third = waits(&fair(&clients[3]), &owners[2]);
    queued(&s, 3).await;
    let scores = [score(&s, &name(0)).await, score(&s, &name(1)).await, score(&s, &name(2)).await].map(Option::unwrap);
    about(scores[0], lease_end(&s).await + 300_000);
    assert_eq!((scores[1] - scores[0], scores[2] - scores[1]), (5_000, 300_000));
    // Who gives up takes its own patience off those behind it.
    second.abort();
    queued(&s, 2).await;
    assert_eq!(line(&s).await, [name(0), name(2)]);
    assert_eq!(score(&s, &name(0)).await, Some(scores[0]));
    assert_eq!(score(&s, &name(2)).await, Some(scores[2] - 5_000));
    // So does who is granted.
    guard.release().await.unwrap();
    let guard = within(secs(3), "the first", first).await.unwrap().unwrap();
    assert_eq!(score(&s, &name(2)).await, Some(scores[2] - 305_000));
    assert_eq!(line(&s).await, [name(2)]);
    guard.release().await.unwrap();
    within(secs(3), "the third", third).await.unwrap().unwrap().release().await.unwrap();
    s.nothing_is_left(&clients.iter().collect::<Vec<_>>()).await;
}

#[tokio::test]
async fn a_hand_over_in_the_process_takes_the_patience_off_as_well() {
    let s = scene().await;
    let (client, other) = (s.client().await, s.client().await);
    let guard = fair(&client).lock().lease(secs(60)).await.unwrap();
    let (ours, theirs) = (client.owner(), other.owner());
    let near = waits(&fair(&client).patience(secs(7)), &ours);
    queued(&s, 1).await;
    let far = waits(&fair(&other), &theirs);
    queued(&s, 2).await;
    let before = score(&s, &theirs.to_string()).await.unwrap();
    guard.release().await.unwrap();
    let guard = within(secs(3), "handed over", near).await.unwrap().unwrap();
    assert_eq!(score(&s, &theirs.to_string()).await, Some(before - 7_000));
    guard.release().await.unwrap();
    within(secs(3), "the other", far).await.unwrap().unwrap().release().await.unwrap();
    s.nothing_is_left(&[&client, &other]).await;
}

#[tokio::test]
async fn a_patience_is_the_handles_or_the_clients_and_a_bounded_wait_has_its_own() {
    let s = scene().await;
    let holder = s.client().await;
    let client = s.redis.builder().fair_patience(secs(9)).connect().await.unwrap();
    let guard = fair(&holder).lock().lease(secs(60)).await.unwrap();
    let cases: [(FairLock, u64, Option<u64>); 4] = [
        (fair(&client), 9, None),
        (fair(&client).patience(secs(70)), 70, None),
        (fair(&client).patience(secs(70)), 20, Some(20)),
        (fair(&holder), 300, None),
    ];
    for (lock, patience, wait) in cases {
        let owner = client.owner();
        let lock = lock.owned_by(&owner);
        let waiting = tokio::spawn(async move {
            match wait {
                Some(wait) => lock.try_lock().wait(secs(wait)).await,
                None => lock.lock().await.map(Some),
            }
        });
        queued(&s, 1).await;
        about(score(&s, &owner.to_string()).await.unwrap(), lease_end(&s).await + patience as i64 * 1000);
        waiting.abort();
        queued(&s, 0).await;
    }
    guard.release().await.unwrap();
    s.nothing_is_left(&[&holder, &client]).await;
}

#[tokio::test]
async fn short_waits_do_not_push_the_scores_into_the_future() {
    let s = scene().await;
    let (holder, client) = (s.client().await, s.client().await);
    let guard = fair(&holder).lock().lease(secs(30)).await.unwrap();
    let tries: Vec<_> = (0..3)
        .map(|_| {
            let lock = fair(&client);
            tokio::spawn(async move {
                for _ in 0..20 {
                    assert!(lock.try_lock().wait(ms(8)).lease(secs(30)).await.unwrap().is_none());
                }
            })
        })
        .collect();
    for task in tries {
        within(secs(10), "the tries", task).await.unwrap();
    }
    let owner = client.owner();
    let waiting = waits(&fair(&client), &owner);
    queued(&s, 1).await;
    about(score(&s, &owner.to_string()).await.unwrap(), lease_end(&s).await + 300_000);
    guard.release().await.unwrap();
    within(secs(3), "its turn", waiting).await.unwrap().unwrap().release().await.unwrap();
    s.nothing_is_left(&[&holder, &client]).await;
}

#[tokio::test]
async fn a_living_waiter_that_was_thrown_out_queues_again_and_gets_the_lock() {
    let s = scene().await;
    let (client, other) = (s.redis.builder().fair_patience(ms(300)).connect().await.unwrap(), s.client().await);
    // Whoever holds it now will hold it for longer than it seems.
    s.taken_over(NAME, ms(900)).await;
    let (hasty, calm) = (client.owner(), other.owner());
    let first = waits(&fair(&client), &hasty);
    queued(&s, 1).await;
    s.probe.run(&["PEXPIRE", NAME, "30000"]).await;
    let second = waits(&fair(&other), &calm);
    queued(&s, 2).await;
    let old = score(&s, &hasty.to_string()).await.unwrap();
    let asked = s.probe.calls(&["evalsha"]).await;
    eventually(secs(3), "it has queued again", || async {
        score(&s, &hasty.to_string()).await.is_some_and(|new| new > old)
    })
    .await;
    assert!(server_time(&s).await >= old, "not before its time was over");
    assert_eq!(line(&s).await, [calm.to_string(), hasty.to_string()], "at the end of the line");
    assert!(s.probe.calls(&["evalsha"]).await - asked < 12, "without a rush of questions");
    s.let_go(NAME).await;
    within(secs(3), "who is the first now", second).await.unwrap().unwrap().release().await.unwrap();
    within(secs(3), "and then it", first).await.unwrap().unwrap().release().await.unwrap();
    s.nothing_is_left(&[&client, &other]).await;
}

#[tokio::test]
async fn waiters_outlive_their_patience_many_times_under_one_long_hold() {
    let s = scene().await;
    let holder = s.watched(secs(1)).await;
    let client = s.redis.builder().fair_patience(ms(120)).connect().await.unwrap();
    let guard = fair(&holder).lock().await.unwrap();
    let turns: Vec<_> = (0..3).map(|_| crate::suite::scene::turn(&fair(&client).into_any())).collect();
    queued(&s, 3).await;
    let end = tokio::time::Instant::now() + ms(2500);
    while tokio::time::Instant::now() < end {
        tokio::time::sleep(ms(20)).await;
        assert!(guard.is_valid() && client.stats().waiters == 3);
    }
    guard.release().await.unwrap();
    for turn in turns {
        within(secs(2), "its turn", turn).await.unwrap().unwrap();
    }
    assert_eq!(s.probe.ask::<u64>(&["EXISTS", QUEUE, TIMEOUTS]).await, 0);
    s.nothing_is_left(&[&holder, &client]).await;
}
