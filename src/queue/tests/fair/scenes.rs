//! What a fair queue has to get right, one thing at a time.

use super::*;

type FairWorld = World<Seats>;

fn world(handoff: bool) -> FairWorld {
    World::new(Seats::default(), handoff, false)
}

fn join(world: &mut FairWorld, patience: Duration) -> Holder {
    let owner = world.fresh(Role::Sole);
    world.join(Want { patience, ..world.want(owner) });
    world.flush();
    owner
}

fn foreign(world: &mut FairWorld, patience: Duration) -> Holder {
    let new = world.redis.new_foreign(0);
    let new = Foreign { patience, ..new };
    world.redis.foreign.iter_mut().filter(|f| f.owner == new.owner).for_each(|f| *f = new);
    world.redis.foreign_asks(world.now, new);
    new.owner
}

#[test]
fn grants_come_in_the_order_of_the_queue_whoever_stands_in_it() {
    for handoff in [false, true] {
        let mut world = world(handoff);
        let mut owners: Vec<Holder> = Vec::new();
        for _ in 0..4 {
            owners.push(join(&mut world, SECOND));
            owners.push(foreign(&mut world, SECOND));
        }
        let mut granted = Vec::new();
        while granted.len() < owners.len() {
            let (holder, ..) = world.redis.holder.expect("somebody is next");
            granted.push(holder);
            if world.is_ours(holder) {
                world.flush();
                world.release_guard(0);
            } else {
                world.redis.foreign_frees(world.now);
                world.deliver_told();
            }
            world.flush();
            let head = world.redis.line.first().copied();
            if let Some(next) = world.redis.foreign.iter().find(|f| Some(f.owner) == head).copied() {
                world.redis.foreign_asks(world.now, next);
            }
        }
        assert_eq!(granted, owners, "handoff {handoff}");
    }
}

#[test]
fn one_poll_a_fifth_of_a_second_goes_out_behind_a_dead_head() {
    let mut world = world(true);
    join(&mut world, SECOND);
    foreign(&mut world, 5 * SECOND);
    for _ in 0..20 {
        join(&mut world, 300 * SECOND);
    }
    world.release_guard(0);
    world.flush();
    let (free, dead) = (world.now, world.redis.times[&world.redis.line[0]]);
    let before = world.attempts;
    world.wait(2 * SECOND);
    let asked = world.attempts - before;
    assert!((9..=11).contains(&asked), "asked {asked} times in 2 s");
    world.wait(dead.since(world.now) + 250 * MS);
    assert_eq!(world.guards.len(), 1, "its time is over: {:?}", world.redis);
    assert!(world.now.since(free) < 8 * SECOND);
}

#[test]
fn a_waiter_that_was_thrown_out_of_the_queue_stands_in_it_again() {
    let mut world = world(true);
    let holder = foreign(&mut world, SECOND);
    // Two that wait for as long as the holder is thought to hold and a little longer; it goes on holding.
    let waiters = [join(&mut world, 250 * MS), join(&mut world, 250 * MS)];
    for _ in 0..30 {
        world.redis.holder = Some((holder, 1, world.now.plus(FOREIGN_LEASE)));
        world.wait(200 * MS);
        // Others come, throw out who counts as dead, and go.
        let passer_by = foreign(&mut world, SECOND);
        world.redis.leave(passer_by, SECOND);
        world.wait(300 * MS);
        for waiter in waiters {
            assert!(world.redis.place(waiter).is_some(), "{waiter} is forgotten: {:?} {:?}", world.redis, world.queue);
        }
    }
    world.redis.foreign_frees(world.now);
    world.deliver_told();
    world.wait(10 * MS);
    assert_eq!(world.guards.len(), 1);
}

#[test]
fn a_head_of_ours_that_does_not_take_its_turn_costs_the_next_one_a_tenth_of_a_second() {
    for handoff in [false, true] {
        let mut world = world(handoff);
        join(&mut world, SECOND);
        let (sleeper, next) = (join(&mut world, SECOND), join(&mut world, SECOND));
        world.release_guard(0);
        let asleep = world.waiters.iter().position(|w| w.owner == sleeper).expect("waits");
        let asleep = world.waiters.remove(asleep);
        world.flush();
        assert!(world.guards.is_empty());
        world.wait(110 * MS);
        assert_eq!(world.guards.iter().map(|g| g.owner).collect::<Vec<_>>(), [next], "handoff {handoff}");
        world.waiters.push(asleep);
        world.poll_all(true);
        world.flush();
        assert!(world.redis.place(sleeper).is_some(), "it is awake, and stands in line again");
        world.release_guard(0);
        world.wait(10 * MS);
        assert_eq!(world.guards.iter().map(|g| g.owner).collect::<Vec<_>>(), [sleeper]);
    }
}

#[test]
fn the_queue_is_left_on_every_way_out() {
    for way in 0..4 {
        let mut world = world(true);
        foreign(&mut world, SECOND);
        join(&mut world, 300 * SECOND);
        let other = join(&mut world, 300 * SECOND);
        match way {
            0 => world.leave(0),
            1 => world.expire(0),
            2 => {
                // One that is just asking listens again, and is told again.
                for _ in 0..3 {
                    world.channel_refused();
                    world.poll_all(true);
                    world.run_one(1);
                    world.answer_one(0);
                }
            }
            _ => world.close(),
        }
        world.flush();
        let left: &[Holder] = if way < 2 { &[other] } else { &[] };
        assert_eq!(world.redis.line, left, "way {way}");
        assert_eq!(world.redis.times.len(), left.len(), "way {way}");
    }
}

#[test]
fn one_that_does_not_look_keeps_no_place_for_another_of_its_owner() {
    let mut world = world(true);
    let owner = Holder { owner: world.owned[0], role: Role::Sole };
    world.join(world.want(owner));
    let asleep = world.waiters.remove(0);
    world.flush();
    world.wait(110 * MS);
    assert_eq!(world.redis.holder, None, "the offer was withdrawn");
    foreign(&mut world, SECOND);
    world.join(world.want(owner));
    world.flush();
    assert_eq!(world.redis.line, [owner]);
    world.leave(0);
    world.flush();
    assert_eq!(world.redis.line, [], "nobody of this owner would take the lock: {:?}", world.queue);
    world.waiters.push(asleep);
    world.poll_all(true);
    world.flush();
    assert_eq!(world.redis.line, [owner], "it is awake");
}
