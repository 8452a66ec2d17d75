//! Foreign data, no memory, no right to publish; and the forced release.

use super::{
    super::server::{assert_near, assert_refused, owner},
    *,
};
use crate::answers::Forced;

impl Fair {
    fn force(&mut self) -> Result<Forced, RedisError> {
        let reply = self.0.try_call(&fair::force_release(NAMES, Flavour::Plain))?;
        Ok(fair::read_forced(NAMES.key, &reply).expect("a reply of the script's"))
    }

    /// From now on publishing is refused.
    fn gag(&mut self) {
        self.0.run_words(&["ACL", "SETUSER", "mute", "on", ">x", "~*", "resetchannels", "+@all"]);
        self.0.become_user("mute");
    }
}

#[test]
fn a_forced_release_frees_the_lock_and_tells_the_head() {
    let mut fair = Fair::start();
    assert_eq!(fair.force().expect("runs"), Forced::WasFree);
    fair.hold(9, 5000);
    assert_eq!(fair.force().expect("runs"), Forced::Freed { untold: false });
    assert_eq!(fair.0.heard(), []);
    fair.hold(9, 5000);
    fair.put(1, 0);
    fair.put(2, 60_000);
    assert_eq!(fair.force().expect("runs"), Forced::Freed { untold: false });
    assert_eq!((fair.count(9), fair.line(), fair.score(1)), (None, vec![2], None));
    assert_eq!(fair.0.heard(), told(2));
    assert_eq!(fair.force().expect("runs"), Forced::WasFree);
    assert_eq!(fair.0.heard(), []);
}

#[test]
fn a_forced_release_of_a_free_lock_tells_a_new_head() {
    let mut fair = Fair::start();
    fair.put(1, 0);
    fair.put(2, 60_000);
    assert_eq!(fair.force().expect("runs"), Forced::WasFree);
    assert_eq!(fair.line(), [2]);
    assert_eq!(fair.0.heard(), told(2));
}

#[test]
fn hashes_of_other_kinds_are_left_as_they_are() {
    let one = owner(1).to_string();
    let shapes: [&[&str]; 5] = [
        &["mode", "read"],
        &["mode", "read", &one, "1"],
        &["somebody", "1", &one, "1"],
        &[&one, "many"],
        &["somebody", "1", "somebody else", "1"],
    ];
    for shape in shapes {
        let mut fair = Fair::start();
        fair.0.run_words(&[&["HSET", NAMES.key], shape].concat());
        fair.put(2, -1);
        let before = fair.0.contents();
        assert_eq!(fair.acquire(ask(1)), Acquired::Foreign, "{shape:?}");
        assert_eq!(fair.acquire(Acquire { enqueue: false, ..ask(1) }), Acquired::Foreign, "{shape:?}");
        if shape.contains(&one.as_str()) {
            assert_refused(fair.try_release(Release { strict: true, ..give(1) }), "WRONGTYPE");
        }
        if shape.len() > 2 || shape[0] == "mode" {
            assert_eq!(fair.force().expect("runs"), Forced::Foreign, "{shape:?}");
        }
        assert_eq!(fair.0.contents(), before, "{shape:?}");
        assert_eq!(fair.0.heard(), []);
    }
}

#[test]
fn a_key_of_another_type_is_refused_before_anything_is_written() {
    for wrong in [NAMES.key, NAMES.queue, NAMES.timeouts] {
        let mut fair = Fair::start();
        fair.hold(1, 5000);
        fair.put(2, -1);
        fair.put(3, 60_000);
        fair.0.run_words(&["SET", wrong, "text"]);
        let before = fair.0.contents();
        let gone = [owner(2), owner(1)];
        assert_refused(fair.try_acquire(ask(1)), "WRONGTYPE");
        assert_refused(fair.try_acquire(Acquire { enqueue: false, abandoned: &gone, ..ask(4) }), "WRONGTYPE");
        assert_refused(fair.try_release(leave(1, 4000)), "WRONGTYPE");
        assert_refused(fair.try_release(Release { target: 1, ..give(1) }), "WRONGTYPE");
        assert_refused(fair.force(), "WRONGTYPE");
        assert_eq!(fair.0.contents(), before, "{wrong}");
        assert_eq!(fair.0.heard(), []);
    }
}

#[test]
fn times_of_another_type_are_refused_before_a_lock_without_a_line_is_touched() {
    let mut fair = Fair::start();
    fair.0.run_words(&["SET", NAMES.timeouts, "text"]);
    for held in [true, false] {
        if held {
            fair.hold(1, 5000);
        } else {
            fair.expire();
        }
        let before = fair.0.contents();
        assert_refused(fair.try_acquire(ask(1)), "WRONGTYPE");
        assert_refused(fair.try_acquire(ask(2)), "WRONGTYPE");
        if held {
            assert_refused(fair.try_release(give(1)), "WRONGTYPE");
            assert_refused(fair.force(), "WRONGTYPE");
        }
        assert_eq!(fair.0.contents(), before, "{held}");
    }
}

#[test]
fn a_full_server_can_be_left() {
    let mut fair = Fair::start();
    fair.hold(9, 5000);
    fair.0.run_words(&["HSET", NAMES.key, &owner(9).to_string(), "3"]);
    for n in 1..=4 {
        fair.put(n, n * 10_000);
    }
    fair.0.fill();
    let before = fair.0.contents();
    assert_refused(fair.try_acquire(ask(5)), "OOM");
    assert_eq!(fair.0.contents(), before);
    // Part of a hold, a place in the middle, the rest with a grant, a hold, a place, by force.
    assert_eq!(fair.release(Release { target: 1, ..give(9) }).found, 3);
    assert_eq!(fair.count(9), Some(1));
    fair.release(leave(2, 4000));
    assert_near(fair.left(3), 26_000);
    let candidates = [candidate(1, 8000, 4000)];
    assert_eq!(fair.release(Release { candidates: &candidates, ..give(9) }).granted, Some(0));
    assert_eq!((fair.count(1), fair.line()), (Some(1), vec![3, 4]));
    assert_near(fair.left(3), 22_000);
    fair.release(give(1));
    fair.release(leave(3, 4000));
    assert_eq!((fair.count(1), fair.line()), (None, vec![4]));
    assert_eq!(fair.force().expect("runs"), Forced::WasFree);
    assert_near(fair.left(4), 32_000 - 4000);
}

#[test]
fn a_refused_message_does_not_undo_what_was_done() {
    let mut fair = Fair::start();
    fair.hold(9, 5000);
    fair.put(1, 10_000);
    fair.put(2, 20_000);
    fair.gag();
    let asked = Release { candidates: &[candidate(1, 8000, 4000)], ..give(9) };
    assert_eq!(
        fair.release(asked),
        Released { found: 1, published: true, untold: true, granted: Some(0), was_free: false }
    );
    assert_eq!(fair.count(1), Some(1));
    assert_eq!(fair.force().expect("runs"), Forced::Freed { untold: true });
    assert_eq!(
        fair.release(give(9)),
        Released { found: 0, published: true, untold: true, granted: None, was_free: true }
    );
    // Nobody is told of a new head, and the caller gets its place all the same.
    fair.set_score(2, 0);
    fair.put(3, 30_000);
    assert!(fair.place(ask(4)).ahead.is_some());
    assert_eq!(fair.line(), [3, 4]);
}
