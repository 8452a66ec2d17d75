//! Spinning waiters.

use super::{line::Plain, *};

type Spinning = Plain<true>;

/// Who stands in line asks when its pause is over, or its wait.
pub(super) fn sent(queue: &Queue, now: Moment, attempt: &Attempt) {
    let Some(waiter) = queue.line.iter().find(|w| w.id == attempt.waiter) else { return };
    let due = queue.spin.next(waiter.id, waiter.want.back_off);
    assert!(waiter.expired || due <= now, "asks before its pause is over: {queue:?}");
}

proptest! {
    #![proptest_config(cases(800, 300_000))]

    #[test]
    fn in_any_order_of_events_nobody_spins_for_ever(
        rests: bool,
        ending in select(Ending::ALL),
        events in events(),
    ) {
        in_order(World::new(Spinning::default(), false, false), events, rests, ending);
    }
}

/// When the attempts of the next waits come, while the lock is held elsewhere.
fn attempts_within(world: &mut World<Spinning>, time: Duration) -> Vec<Duration> {
    let (start, end) = (world.now, world.now.plus(time));
    let mut times = Vec::new();
    while let Some(next) = world.queue.next_deadline(world.now).filter(|at| *at <= end) {
        let before = world.attempts;
        world.pass(next.since(world.now));
        if world.attempts > before {
            times.push(world.now.since(start));
        }
        world.flush();
    }
    times
}

fn held_elsewhere() -> World<Spinning> {
    let mut world = World::new(Spinning::default(), false, false);
    world.redis.hold_elsewhere(world.now, 60 * SECOND);
    world
}

#[test]
fn the_head_asks_after_pauses_that_double_with_some_jitter_up_to_the_cap() {
    let mut world = held_elsewhere();
    world.join(world.want(world.fresh(Role::Sole)));
    world.flush();
    let times = attempts_within(&mut world, SECOND);
    let mut before = Duration::ZERO;
    for (index, time) in times.iter().enumerate() {
        let pause = time.saturating_sub(before);
        let least = MS * (1 << index).min(128);
        let most = (least + MS * (1 << index)).min(128 * MS);
        assert!((least..=most.max(least)).contains(&pause), "pause {index} is {pause:?}");
        before = *time;
    }
    assert!(times.len() >= 11, "{times:?}");
}

#[test]
fn those_who_only_try_do_not_put_the_head_off() {
    let mut world = held_elsewhere();
    let want = Want { back_off: BackOff::constant(64 * MS), ..world.want(world.fresh(Role::Sole)) };
    world.join(want);
    world.flush();
    let mut asked = world.attempts;
    for _ in 0..20 {
        world.join(Want { immediate: true, ..world.want(world.fresh(Role::Sole)) });
        world.flush();
        asked += 1;
        world.wait(32 * MS);
    }
    assert!(world.attempts >= asked + 8, "the head asked {} times in 640 ms", world.attempts - asked);
}

#[test]
fn the_last_attempt_comes_when_the_wait_ends_and_only_the_head_has_one() {
    let mut world = held_elsewhere();
    let pause = Want { back_off: BackOff::constant(SECOND), ..world.want(world.fresh(Role::Sole)) };
    let second = Want { owner: world.fresh(Role::Sole), ..pause };
    world.join(pause);
    world.join(second);
    world.flush();
    world.wait(100 * MS);
    let asked = world.attempts;
    world.expire(1);
    assert_eq!((world.attempts, world.waiters.len()), (asked, 1), "not at the head: out at once");
    world.redis.free();
    world.expire(0);
    world.flush();
    assert_eq!((world.attempts, world.guards.len()), (asked + 1, 1), "free at the last moment");
}

#[test]
fn what_is_held_here_is_asked_for_as_well_for_nobody_tells_when_it_is_taken_away() {
    let mut world = World::new(Spinning::default(), false, false);
    world.join(world.want(world.fresh(Role::Sole)));
    world.flush();
    world.join(world.want(world.fresh(Role::Sole)));
    world.wait(2 * SECOND);
    assert_eq!(world.guards.len(), 1, "renewed and held on");
    assert!((8..=30).contains(&world.attempts), "with growing pauses: {}", world.attempts);
    let asked = world.attempts;
    world.release_guard(0);
    world.wait(2 * MS);
    assert_eq!((world.attempts, world.guards.len()), (asked + 1, 1), "asked a pause after the release");
}
