//! What readers and writers may expect, one thing at a time.

use super::*;

type ReadersWorld = World<ReadWrite>;

fn world() -> ReadersWorld {
    World::new(ReadWrite::new(8), false, false)
}

fn join(world: &mut ReadersWorld, role: Role) -> Holder {
    let owner = world.fresh(role);
    world.join(world.want(owner));
    world.flush();
    owner
}

fn holds(world: &ReadersWorld, owner: Holder) -> bool {
    world.guards.iter().any(|guard| guard.owner == owner && guard.held.validity.is_valid(world.now))
}

/// A reader elsewhere, for long.
fn read_elsewhere(world: &mut ReadersWorld) {
    let reader = foreign_owner(1, READ);
    world.redis.take(world.now, reader, 600 * SECOND);
}

#[test]
fn a_reader_behind_a_writer_is_let_in_after_a_second_whatever_happens_meanwhile() {
    // The reader in the way is here or elsewhere; the writer has waited for some time before the reader comes; things happen
    // that make the writer ask.
    for here in [true, false] {
        for waited in [0, 300, 700, 990] {
            for noise in [None, Some(Event::Message), Some(Event::LoseChannels), Some(Event::TryOwned)] {
                let mut world = world();
                if here {
                    join(&mut world, READ);
                } else {
                    read_elsewhere(&mut world);
                }
                let writer = join(&mut world, WRITE);
                world.wait(MS * waited);
                let reader = join(&mut world, READ);
                assert!(!holds(&world, reader), "the writer is first");
                for _ in 0..11 {
                    if let Some(event) = noise {
                        event.happen(&mut world, 1);
                    }
                    world.wait(100 * MS);
                }
                assert!(holds(&world, reader), "here {here}, waited {waited} ms, {noise:?}: {:?}", world.queue);
                assert!(!holds(&world, writer));
            }
        }
    }
}

#[test]
fn readers_that_keep_coming_do_not_keep_a_writer_out() {
    let mut world = world();
    let (mut readers, mut writer) = (Vec::new(), None);
    for round in 0..60 {
        readers.push((round, join(&mut world, READ)));
        if round == 10 {
            writer = Some((world.now, join(&mut world, WRITE)));
        }
        world.wait(50 * MS);
        // Each reads for 300 ms once it is in; there is always one.
        while let Some(index) = world
            .guards
            .iter()
            .position(|g| g.owner.role == READ && readers.iter().any(|(since, r)| *r == g.owner && since + 6 <= round))
        {
            world.release_guard(index);
            world.flush();
        }
        if let Some((since, writer)) = writer.filter(|(_, writer)| holds(&world, *writer)) {
            let waited = world.now.since(since);
            assert!(waited <= 600 * MS, "{writer} waited for {waited:?}");
            return;
        }
    }
    panic!("the writer starves: {:?}", world.queue);
}

#[test]
fn whoever_reads_and_wants_to_write_is_told_at_once() {
    for upgrade_waits in [false, true] {
        let mut world = World::new(ReadWrite::new(8), false, upgrade_waits);
        let reader = join(&mut world, READ);
        let writer = of(reader, WRITE);
        world.join(Want { immediate: true, ..world.want(writer) });
        world.flush();
        assert!(world.waiters.is_empty(), "a try is over");
        world.join(world.want(writer));
        world.flush();
        assert_eq!(world.waiters.len(), usize::from(upgrade_waits));
        world.release_guard(0);
        world.wait(10 * MS);
        assert_eq!(holds(&world, writer), upgrade_waits);
    }
}

#[test]
fn a_writer_may_read_and_goes_on_reading_beside_others_when_it_gives_up_writing() {
    let mut world = world();
    let writer = join(&mut world, WRITE);
    let reader = of(writer, READ);
    world.join(world.want(reader));
    world.flush();
    let other = join(&mut world, READ);
    assert!(holds(&world, writer) && holds(&world, reader) && !holds(&world, other));
    world.wait(2 * SECOND);
    assert!(world.attempts <= 4, "the other one does not ask while the lock is written here: {}", world.attempts);
    world.release_guard(0);
    world.wait(10 * MS);
    assert!(!holds(&world, writer) && holds(&world, reader) && holds(&world, other));
}

#[test]
fn a_long_read_lease_is_not_cut_short_by_the_renewals_of_a_reader_elsewhere() {
    let mut world = world();
    world.redis.take(world.now, foreign_owner(1, READ), FOREIGN_LEASE);
    let long = Term { length: 20 * SECOND, renewed: false };
    let reader = world.fresh(READ);
    world.join(Want { term: long, ..world.want(reader) });
    for _ in 0..12 {
        world.wait(300 * MS);
        world.foreign(3);
    }
    // The other one dies: nobody looks at the hold keys any more.
    world.wait(15 * SECOND);
    assert!(holds(&world, reader), "{:?}", world.redis);
    assert_eq!(world.redis.forced, 0, "the key was never gone");
}
