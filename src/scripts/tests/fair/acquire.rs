use super::{super::server::assert_near, *};

#[test]
fn a_free_lock_is_granted_and_leaves_no_queue() {
    let mut fair = Fair::start();
    assert_eq!(fair.acquire(Acquire { lease: ms(5000), longest: ms(9000), ..ask(1) }), FRESH);
    assert_eq!(fair.count(1), Some(1));
    assert_near(fair.ttl(), 5000);
    assert_eq!(fair.0.contents().len(), 1);
    assert_eq!(fair.0.heard(), []);
}

#[test]
fn a_free_lock_is_taken_once_whatever_the_owner_believed_to_hold() {
    let mut fair = Fair::start();
    assert_eq!(fair.acquire(Acquire { target: 3, ..ask(1) }), FRESH);
    assert_eq!(fair.count(1), Some(1));
}

#[test]
fn an_attempt_without_waiting_leaves_no_place() {
    let mut fair = Fair::start();
    fair.hold(1, 5000);
    let busy = fair.busy(Acquire { enqueue: false, ..ask(2) });
    assert_near(millis(busy.retry_in.expect("an expiry")), 5000);
    assert_eq!((busy.place, busy.by_readers), (None, false));
    assert_eq!(fair.0.contents().len(), 1);
}

/// The worked example of the protocol: 359,685, then 5,000 more, then 300,000 more.
#[test]
fn scores_add_up_along_the_line_and_shrink_when_somebody_leaves() {
    let mut fair = Fair::start();
    fair.hold(9, 59_700);
    let place = fair.place(ask(1));
    assert_near(millis(place.expires_in), 359_700);
    assert_eq!(place.ahead, None);
    let busy = fair.busy(Acquire { patience: ms(5000), ..ask(2) });
    assert_near(millis(busy.retry_in.expect("an expiry")), 59_700);
    fair.place(ask(3));
    let scores = [1, 2, 3].map(|n| fair.score(n).expect("a score"));
    assert_eq!([scores[1] - scores[0], scores[2] - scores[1]], [5000, 300_000]);
    assert_near(scores[0] - fair.0.now(), 359_700);
    assert_eq!(fair.line(), [1, 2, 3]);

    assert_eq!(fair.release(leave(2, 5000)), Released::default());
    assert_eq!([fair.score(1), fair.score(2), fair.score(3)], [Some(scores[0]), None, Some(scores[2] - 5000)]);

    fair.expire();
    assert_eq!(fair.acquire(ask(1)), FRESH);
    assert_eq!([fair.score(1), fair.score(3)], [None, Some(scores[2] - 305_000)]);
    assert_eq!(fair.line(), [3]);
    assert_eq!(fair.0.heard(), []);
}

#[test]
fn the_first_waiter_of_a_lock_without_expiry_counts_from_now() {
    let mut fair = Fair::start();
    fair.0.run_words(&["HSET", NAMES.key, &owner(9).to_string(), "1"]);
    let busy = fair.busy(ask(1));
    assert_eq!(busy.retry_in, None);
    assert_near(millis(busy.place.expect("in line").expires_in), 300_000);
    assert_eq!(fair.busy(Acquire { enqueue: false, ..ask(2) }).retry_in, None);
}

#[test]
fn asking_again_keeps_the_place_and_its_time() {
    let mut fair = Fair::start();
    fair.hold(9, 5000);
    fair.place(ask(1));
    fair.place(ask(2));
    let before = fair.0.contents();
    let place = fair.place(Acquire { patience: ms(77), ..ask(1) });
    assert_near(millis(place.expires_in), 305_000);
    fair.place(ask(2));
    assert_eq!(fair.0.contents(), before);
}

#[test]
fn who_asks_without_waiting_keeps_the_place_it_has() {
    let mut fair = Fair::start();
    fair.hold(9, 5000);
    fair.place(ask(1));
    let before = fair.0.contents();
    assert_eq!(fair.busy(Acquire { enqueue: false, ..ask(1) }).place, None);
    assert_eq!(fair.0.contents(), before);
}

#[test]
fn a_holder_enters_again_past_the_line() {
    let mut fair = Fair::start();
    fair.acquire(ask(1));
    fair.place(ask(2));
    let granted = Acquired::Granted(Granted { found: 1, fresh: false, token: None });
    let again = Acquire { target: 2, lease: ms(1000), longest: ms(60_000), ..ask(1) };
    assert_eq!(fair.acquire(again), granted);
    assert_eq!(fair.count(1), Some(2));
    assert_near(fair.ttl(), 60_000);
    let before = fair.0.contents();
    assert_eq!(fair.acquire(again), Acquired::Granted(Granted { found: 2, fresh: false, token: None }));
    assert_eq!(fair.0.contents(), before);
    assert_eq!(fair.line(), [2]);
}

#[test]
fn a_lock_that_is_not_re_entrant_refuses_its_holder() {
    let mut fair = Fair::start();
    let refused = Acquire { reentry: Reentry::Refused, lease: ms(9000), longest: ms(9000), ..ask(1) };
    let repeated = Acquire { reentry: Reentry::RefusedButRepeated, ..refused };
    assert_eq!(fair.acquire(refused), FRESH);
    fair.0.run_words(&["PEXPIRE", NAMES.key, "2000"]);
    assert_eq!(fair.acquire(refused), Acquired::Reentry);
    assert_near(fair.ttl(), 2000);
    assert_eq!(fair.acquire(repeated), Acquired::Granted(Granted { found: 1, fresh: false, token: None }));
    assert_near(fair.ttl(), 9000);
    // Two holds are no grant of a lock that is not re-entrant.
    fair.0.run_words(&["HSET", NAMES.key, &owner(1).to_string(), "2"]);
    assert_eq!(fair.acquire(repeated), Acquired::Reentry);
    assert_eq!(fair.count(1), Some(2));
}

#[test]
fn dead_heads_are_dropped_and_the_new_head_of_a_free_lock_is_told() {
    let mut fair = Fair::start();
    fair.put(1, 0);
    fair.push(2);
    fair.put(3, 60_000);
    fair.put(4, -5000);
    let busy = fair.busy(ask(5));
    assert_eq!(busy.retry_in, None);
    let place = busy.place.expect("in line");
    let (head, theirs) = place.ahead.expect("nobody holds it");
    assert_eq!(head, owner(3).to_string());
    assert_near(millis(theirs), 60_000);
    // Behind one whose time is over, not before now.
    assert_near(millis(place.expires_in), 300_000);
    assert_eq!(fair.line(), [3, 4, 5]);
    assert_eq!([fair.score(1), fair.score(2)], [None, None]);
    assert_eq!(fair.0.heard(), told(3));
    // Once is enough.
    assert_eq!(fair.busy(Acquire { enqueue: false, ..ask(6) }), Busy::default());
    assert_eq!(fair.0.heard(), []);
}

#[test]
fn whoever_comes_first_behind_dead_heads_is_granted() {
    let mut fair = Fair::start();
    fair.put(1, -1);
    fair.push(2);
    assert_eq!(fair.acquire(Acquire { enqueue: false, ..ask(3) }), FRESH);
    assert_eq!(fair.0.contents().len(), 1);
    assert_eq!(fair.0.heard(), []);
}

#[test]
fn nobody_is_told_of_a_lock_that_is_held() {
    let mut fair = Fair::start();
    fair.hold(9, 5000);
    fair.put(1, -1);
    fair.put(2, 60_000);
    fair.place(ask(3));
    assert_eq!(fair.line(), [2, 3]);
    assert_eq!(fair.0.heard(), []);
}

#[test]
fn a_waiter_whose_own_time_is_over_goes_to_the_end() {
    let mut fair = Fair::start();
    fair.hold(9, 5000);
    fair.put(1, 0);
    fair.put(2, 60_000);
    assert_near(millis(fair.place(ask(1)).expires_in), 360_000);
    assert_eq!(fair.line(), [2, 1]);
}

#[test]
fn a_head_whose_own_time_is_over_tells_the_next_one_of_a_free_lock() {
    let mut fair = Fair::start();
    fair.put(1, 0);
    fair.put(2, 60_000);
    let (head, _) = fair.place(ask(1)).ahead.expect("nobody holds it");
    assert_eq!(head, owner(2).to_string());
    assert_eq!(fair.line(), [2, 1]);
    assert_eq!(fair.0.heard(), told(2));
}

#[test]
fn a_time_without_a_place_gets_one() {
    let mut fair = Fair::start();
    fair.hold(9, 5000);
    fair.put(1, 60_000);
    fair.set_score(2, 1000);
    // A live time without a place was another wait's.
    assert_near(millis(fair.place(ask(2)).expires_in), 360_000);
    assert_near(fair.left(2), 360_000);
    assert_eq!(fair.line(), [1, 2]);
}

#[test]
fn a_place_without_a_live_time_gets_one_where_it_is() {
    let mut fair = Fair::start();
    fair.hold(9, 5000);
    fair.put(1, 60_000);
    fair.push(2);
    fair.put(3, 400_000);
    for over in [false, true] {
        if over {
            fair.set_score(2, -1);
        }
        let place = fair.place(Acquire { patience: ms(7000), ..ask(2) });
        assert_near(millis(place.expires_in), 67_000);
        assert_near(fair.left(2), 67_000);
        assert_eq!(fair.line(), [1, 2, 3]);
    }
}

#[test]
fn who_comes_behind_one_without_a_time_counts_from_the_expiry() {
    let mut fair = Fair::start();
    fair.hold(9, 5000);
    fair.put(1, 60_000);
    fair.push(2);
    assert_near(millis(fair.place(ask(3)).expires_in), 305_000);
}

#[test]
fn a_grant_takes_its_patience_off_all_who_wait() {
    let mut fair = Fair::start();
    fair.put(1, 10_000);
    fair.put(2, 20_000);
    fair.put(3, 30_000);
    assert_eq!(fair.acquire(Acquire { patience: ms(4000), enqueue: false, ..ask(1) }), FRESH);
    assert_near(fair.left(2), 16_000);
    assert_near(fair.left(3), 26_000);
    assert_eq!(fair.score(1), None);
    let before = fair.0.contents();
    assert_eq!(
        fair.acquire(Acquire { patience: ms(4000), enqueue: false, ..ask(1) }),
        Acquired::Granted(Granted { found: 1, fresh: false, token: None })
    );
    assert_eq!(fair.0.contents(), before);
}

#[test]
fn a_free_lock_is_the_heads() {
    let mut fair = Fair::start();
    fair.put(1, 10_000);
    assert_eq!(fair.busy(Acquire { enqueue: false, ..ask(2) }), Busy::default());
    let place = fair.place(Acquire { patience: ms(1000), ..ask(2) });
    assert_near(millis(place.expires_in), 11_000);
    let (head, theirs) = place.ahead.expect("nobody holds it");
    assert_eq!(head, owner(1).to_string());
    assert_near(millis(theirs), 10_000);
    assert_eq!(fair.0.heard(), []);
}

#[test]
fn abandoned_owners_hold_nothing_and_wait_for_nothing() {
    let gone = [owner(7), owner(8)];
    let asked = Acquire { abandoned: &gone, ..ask(1) };
    let mut fair = Fair::start();
    fair.hold(7, 5000);
    fair.put(8, 60_000);
    assert_eq!(fair.acquire(asked), FRESH);
    assert_eq!(fair.0.contents().len(), 1);

    // The hold of one kept another one waiting.
    fair.expire();
    fair.hold(8, 5000);
    fair.put(7, 50_000);
    fair.put(2, 60_000);
    let (head, _) = fair.place(asked).ahead.expect("nobody holds it");
    assert_eq!(head, owner(2).to_string());
    assert_eq!(fair.line(), [2, 1]);
    assert_eq!(fair.score(7), None);
    assert_eq!(fair.0.heard(), told(2));

    // So did the hold of one alone.
    fair.0.run_words(&["DEL", NAMES.queue, NAMES.timeouts]);
    fair.hold(7, 5000);
    fair.put(2, 60_000);
    assert!(fair.place(asked).ahead.is_some());
    assert_eq!(fair.line(), [2, 1]);
    assert_eq!(fair.0.heard(), told(2));

    // A place in the middle was in nobody's way.
    fair.0.run_words(&["DEL", NAMES.queue, NAMES.timeouts]);
    fair.put(2, 60_000);
    fair.put(7, 70_000);
    fair.place(asked);
    assert_eq!(fair.line(), [2, 1]);
    assert_eq!(fair.0.heard(), []);
}

#[test]
fn a_time_without_end_can_be_told() {
    let mut fair = Fair::start();
    fair.push(1);
    fair.0.run_words(&["ZADD", NAMES.timeouts, "+inf", &owner(1).to_string()]);
    let place = fair.place(ask(2));
    assert!(place.expires_in > ms(1 << 50));
    assert!(place.ahead.expect("nobody holds it").1 > ms(1 << 50));
}

#[test]
fn a_wait_without_end_leaves_times_that_can_be_reckoned_with() {
    let mut fair = Fair::start();
    fair.hold(9, 5000);
    fair.place(Acquire { patience: Duration::MAX, ..ask(1) });
    fair.place(Acquire { patience: ms(7), ..ask(2) });
    assert_eq!(fair.score(2).expect("a score") - fair.score(1).expect("a score"), 7);
    fair.release(leave(1, u64::MAX));
    assert_near(fair.left(2), 5007);
}
