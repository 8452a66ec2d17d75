use super::{super::server::assert_near, *};

const FREED: Released = Released { found: 1, published: false, untold: false, granted: None, was_free: false };
const TOLD: Released = Released { published: true, ..FREED };
/// Nothing was held, and the head was told.
const LEFT: Released = Released { found: 0, was_free: true, ..TOLD };
/// The same, and there was nobody to tell.
const FREE: Released = Released { published: false, ..LEFT };

#[test]
fn the_last_release_tells_the_head_alone() {
    let mut fair = Fair::start();
    fair.hold(9, 5000);
    fair.put(1, 60_000);
    fair.put(2, 70_000);
    assert_eq!(fair.release(Release { strict: true, ..give(9) }), TOLD);
    assert_eq!(fair.count(9), None);
    assert_eq!(fair.line(), [1, 2]);
    assert_eq!(fair.0.heard(), told(1));
}

#[test]
fn a_release_with_nobody_in_line_tells_nobody() {
    let mut fair = Fair::start();
    fair.hold(9, 5000);
    assert_eq!(fair.release(give(9)), FREED);
    assert_eq!(fair.release(give(9)), FREE);
    assert!(fair.0.contents().is_empty());
    assert_eq!(fair.0.heard(), []);
}

#[test]
fn a_partial_release_sets_the_count_and_the_expiry() {
    let mut fair = Fair::start();
    fair.acquire(ask(1));
    fair.acquire(Acquire { target: 3, ..ask(1) });
    fair.put(2, 60_000);
    let asked = Release { target: 2, left: ms(9000), candidates: &[candidate(2, 1000, 1000)], ..give(1) };
    assert_eq!(fair.release(asked), Released { found: 3, ..Released::default() });
    assert_eq!(fair.count(1), Some(2));
    assert_near(fair.ttl(), 9000);
    let before = fair.0.contents();
    assert_eq!(fair.release(asked), Released { found: 2, ..Released::default() });
    assert_eq!(fair.0.contents(), before);
    // A count is never raised.
    assert_eq!(fair.release(Release { target: 5, ..asked }), Released { found: 2, ..Released::default() });
    assert_eq!(fair.count(1), Some(2));
    assert_eq!(fair.0.heard(), []);
}

#[test]
fn a_release_of_an_absent_lock_tells_the_head() {
    let mut fair = Fair::start();
    fair.put(1, 60_000);
    assert_eq!(fair.release(Release { candidates: &[candidate(1, 1000, 1000)], ..give(9) }), LEFT);
    assert_eq!(fair.line(), [1]);
    assert_eq!(fair.0.heard(), told(1));
}

#[test]
fn a_release_of_another_ones_lock_does_nothing() {
    let mut fair = Fair::start();
    fair.hold(8, 5000);
    fair.put(1, 60_000);
    let before = fair.0.contents();
    for target in [0, 1] {
        assert_eq!(fair.release(Release { target, ..give(9) }), Released::default());
    }
    assert_eq!(fair.0.contents(), before);
    assert_eq!(fair.0.heard(), []);
}

#[test]
fn dead_heads_are_dropped_before_the_head_is_told() {
    let mut fair = Fair::start();
    fair.hold(9, 5000);
    fair.put(1, 0);
    fair.push(2);
    fair.put(3, 60_000);
    assert_eq!(fair.release(give(9)), TOLD);
    assert_eq!(fair.line(), [3]);
    assert_eq!([fair.score(1), fair.score(2)], [None, None]);
    assert_eq!(fair.0.heard(), told(3));
}

#[test]
fn the_head_that_leaves_a_free_lock_tells_the_next_one() {
    let mut fair = Fair::start();
    fair.put(1, 10_000);
    fair.put(2, 20_000);
    assert_eq!(fair.release(leave(1, 4000)), LEFT);
    assert_eq!(fair.line(), [2]);
    assert_near(fair.left(2), 16_000);
    assert_eq!(fair.0.heard(), told(2));
    let before = fair.0.contents();
    assert_eq!(fair.release(leave(1, 4000)), FREE);
    assert_eq!(fair.0.contents(), before);
    assert_eq!(fair.0.heard(), []);
}

#[test]
fn the_last_waiter_leaves_nothing_behind() {
    let mut fair = Fair::start();
    fair.put(1, 10_000);
    assert_eq!(fair.release(leave(1, 4000)), FREE);
    assert!(fair.0.contents().is_empty());
    assert_eq!(fair.0.heard(), []);
}

#[test]
fn the_head_that_leaves_a_held_lock_tells_nobody() {
    let mut fair = Fair::start();
    fair.hold(9, 5000);
    fair.put(1, 10_000);
    fair.put(2, 20_000);
    assert_eq!(fair.release(leave(1, 4000)), Released::default());
    assert_eq!(fair.line(), [2]);
    assert_near(fair.left(2), 16_000);
    assert_eq!(fair.0.heard(), []);
}

#[test]
fn who_leaves_the_middle_takes_its_patience_off_those_behind() {
    let mut fair = Fair::start();
    fair.put(1, 10_000);
    fair.put(2, 20_000);
    fair.push(3);
    fair.put(4, 30_000);
    fair.push(2);
    fair.put(5, 40_000);
    assert_eq!(fair.release(leave(2, 4000)), FREE);
    assert_eq!(fair.line(), [1, 3, 4, 5]);
    assert_near(fair.left(1), 10_000);
    assert_eq!([fair.score(2), fair.score(3)], [None, None]);
    assert_near(fair.left(4), 26_000);
    assert_near(fair.left(5), 36_000);
    let before = fair.0.contents();
    assert_eq!(fair.release(leave(2, 4000)), FREE);
    assert_eq!(fair.0.contents(), before);
    assert_eq!(fair.0.heard(), []);
}

#[test]
fn a_time_without_a_place_goes_alone() {
    let mut fair = Fair::start();
    fair.put(1, 10_000);
    fair.set_score(2, 20_000);
    assert_eq!(fair.release(leave(2, 4000)), FREE);
    assert_eq!((fair.line(), fair.score(2)), (vec![1], None));
    assert_near(fair.left(1), 10_000);
}

#[test]
fn who_leaves_tells_the_next_one_that_is_alive() {
    let mut fair = Fair::start();
    fair.put(1, 10_000);
    fair.put(2, 3000);
    fair.push(3);
    fair.put(4, 40_000);
    // Without the patience of the head the second one is dead.
    assert_eq!(fair.release(leave(1, 4000)), LEFT);
    assert_eq!(fair.line(), [4]);
    assert_near(fair.left(4), 36_000);
    assert_eq!(fair.0.heard(), told(4));
}

#[test]
fn a_waiter_that_leaves_behind_a_dead_head_tells_the_new_one() {
    let mut fair = Fair::start();
    fair.put(1, 0);
    fair.put(2, 20_000);
    fair.put(3, 30_000);
    assert_eq!(fair.release(leave(3, 4000)), LEFT);
    assert_eq!(fair.line(), [2]);
    assert_eq!(fair.0.heard(), told(2));
}

#[test]
fn a_holder_that_leaves_gives_back_both() {
    let mut fair = Fair::start();
    fair.hold(1, 5000);
    fair.put(1, 10_000);
    fair.put(2, 20_000);
    assert_eq!(fair.release(leave(1, 4000)), TOLD);
    assert_eq!((fair.count(1), fair.line()), (None, vec![2]));
    assert_near(fair.left(2), 16_000);
    assert_eq!(fair.0.heard(), told(2));
}

#[test]
fn a_head_of_the_same_client_is_granted_by_the_release_and_told() {
    let candidates = [candidate(3, 1000, 1000), candidate(1, 8000, 4000)];
    let asked = Release { candidates: &candidates, ..give(9) };
    let mut fair = Fair::start();
    fair.hold(9, 5000);
    fair.put(1, 10_000);
    fair.put(2, 20_000);
    fair.put(3, 30_000);
    assert_eq!(fair.release(asked), Released { granted: Some(1), ..TOLD });
    assert_eq!((fair.count(1), fair.count(9)), (Some(1), None));
    assert_near(fair.ttl(), 8000);
    assert_eq!((fair.line(), fair.score(1)), (vec![2, 3], None));
    assert_near(fair.left(2), 16_000);
    assert_near(fair.left(3), 26_000);
    assert_eq!(fair.0.heard(), told(1));

    // A second sending finds the grant of the first one, and takes nothing off again.
    let before = fair.0.contents();
    fair.0.run_words(&["PEXPIRE", NAMES.key, "100"]);
    assert_eq!(fair.release(asked), Released { granted: Some(1), ..Released::default() });
    assert_near(fair.ttl(), 8000);
    assert_eq!(fair.0.contents(), before);
    assert_eq!(fair.0.heard(), []);
}

#[test]
fn a_head_of_another_client_is_told_and_not_passed_over() {
    let mut fair = Fair::start();
    fair.hold(9, 5000);
    fair.put(1, 10_000);
    fair.put(2, 20_000);
    assert_eq!(fair.release(Release { candidates: &[candidate(2, 8000, 4000)], ..give(9) }), TOLD);
    assert_eq!((fair.count(2), fair.line()), (None, vec![1, 2]));
    assert_eq!(fair.0.heard(), told(1));
}

#[test]
fn a_candidate_behind_a_dead_head_is_granted() {
    let mut fair = Fair::start();
    fair.hold(9, 5000);
    fair.put(1, 0);
    fair.put(2, 20_000);
    let asked = Release { candidates: &[candidate(2, 8000, 4000)], ..give(9) };
    assert_eq!(fair.release(asked), Released { granted: Some(0), ..TOLD });
    assert_eq!((fair.count(2), fair.line()), (Some(1), vec![]));
    assert_eq!(fair.0.heard(), told(2));
}

#[test]
fn an_owner_that_leaves_lets_a_candidate_behind_it_in() {
    let mut fair = Fair::start();
    fair.hold(9, 5000);
    fair.put(9, 10_000);
    fair.put(1, 20_000);
    fair.put(2, 30_000);
    let asked = Release { candidates: &[candidate(1, 8000, 3000)], ..leave(9, 4000) };
    assert_eq!(fair.release(asked), Released { granted: Some(0), ..TOLD });
    assert_eq!((fair.count(1), fair.line()), (Some(1), vec![2]));
    assert_near(fair.left(2), 23_000);
    let before = fair.0.contents();
    assert_eq!(fair.release(asked), Released { granted: Some(0), ..Released::default() });
    assert_eq!(fair.0.contents(), before);
    assert_eq!(fair.0.heard(), told(1));
}

#[test]
fn a_field_that_is_left_keeps_the_lock_held() {
    let mut fair = Fair::start();
    fair.hold(9, 5000);
    fair.0.run_words(&["HSET", NAMES.key, "somebody", "1"]);
    fair.put(1, 10_000);
    let asked = Release { candidates: &[candidate(1, 8000, 4000)], ..give(9) };
    assert_eq!(fair.release(asked), FREED);
    assert_eq!((fair.count(9), fair.count(1), fair.line()), (None, None, vec![1]));
    assert_eq!(fair.0.heard(), []);
}
