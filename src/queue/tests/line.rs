//! A line of waiters: the plain lock and its like. The model of Redis serves spinning waiters, too.

use super::*;

/// A lock's hash, of which at most one owner has a field.
#[derive(Debug, Default)]
pub(super) struct Plain<const SPIN: bool> {
    holder: Option<(Holder, u64, Moment)>,
    told: Vec<Option<Holder>>,
    forced: u64,
}

fn foreign_owner() -> Holder {
    OwnerId::with_thread(Uuid::from_u128(2), 1).expect("a free id").alone()
}

impl<const SPIN: bool> Plain<SPIN> {
    fn tell(&mut self) {
        if !SPIN {
            self.told.push(None);
        }
    }

    pub(super) fn hold_elsewhere(&mut self, now: Moment, lease: Duration) {
        self.holder = Some((foreign_owner(), 1, now.plus(lease)));
    }

    pub(super) fn free(&mut self) {
        self.holder = None;
    }

    fn is_foreign(&self) -> bool {
        self.holder.is_some_and(|(owner, ..)| owner == foreign_owner())
    }
}

impl<const SPIN: bool> Redis for Plain<SPIN> {
    const DISCIPLINE: Discipline = if SPIN { Discipline::Spin } else { Discipline::Line };
    const PACE: Duration = if SPIN { Duration::from_millis(140) } else { Duration::from_millis(10) };
    const LOOKS: Duration = if SPIN { Duration::from_millis(40) } else { Duration::from_millis(300) };

    fn acquire(&mut self, now: Moment, a: &Attempt) -> AttemptReply {
        if self.holder.is_some_and(|(owner, ..)| owner != a.owner && a.abandoned.contains(&owner)) {
            self.holder = None;
        }
        match self.holder {
            None => {
                self.holder = Some((a.owner, 1, now.plus(a.term.length)));
                AttemptReply::Granted(Granted { found: 0, fresh: true, token: None })
            }
            Some((owner, found, _)) if owner == a.owner => {
                self.holder = Some((a.owner, a.target, now.plus(a.ttl)));
                AttemptReply::Granted(Granted { found, fresh: false, token: None })
            }
            Some((.., end)) => AttemptReply::Busy(BusyReply { retry_in: Some(end.since(now)), ..BusyReply::default() }),
        }
    }

    fn release(&mut self, now: Moment, r: &Release) -> Released {
        let Some((_, found, _)) = self.holder.filter(|(owner, ..)| *owner == r.owner) else {
            return Released::default();
        };
        if r.target == 0 {
            self.holder = None;
            self.tell();
        } else {
            self.holder = Some((r.owner, found.min(r.target), now.plus(r.ttl)));
        }
        Released { found, published: r.target == 0 && !SPIN, ..Released::default() }
    }

    fn transfer(&mut self, now: Moment, t: &Transfer) -> bool {
        match self.holder {
            Some((owner, ..)) if owner == t.new || owner == t.old => {
                self.holder = Some((t.new, 1, now.plus(t.term.length)));
                true
            }
            _ => false,
        }
    }

    fn renew(&mut self, now: Moment, owner: Holder, _rank: u64, _holds: Duration, ttl: Duration) -> u64 {
        match &mut self.holder {
            Some((holder, count, end)) if *holder == owner => {
                *end = now.plus(ttl);
                *count
            }
            _ => 0,
        }
    }

    fn force(&mut self, now: Moment, _role: Role) -> bool {
        self.expire(now);
        let freed = self.holder.take().is_some();
        if freed {
            self.forced += 1;
            self.tell();
        }
        freed
    }

    fn expire(&mut self, now: Moment) {
        self.holder = self.holder.filter(|(.., end)| *end > now);
    }

    fn holds(&self) -> Vec<Found> {
        self.holder.into_iter().map(|(owner, count, end)| Found { owner, count, end, worth: end }).collect()
    }

    fn take_told(&mut self) -> Vec<Option<Holder>> {
        std::mem::take(&mut self.told)
    }

    fn forced(&self) -> u64 {
        self.forced
    }

    fn foreign(&mut self, now: Moment, pick: usize) {
        let hold = Some((foreign_owner(), 1, now.plus(FOREIGN_LEASE)));
        match self.holder {
            None => self.holder = hold,
            Some(_) if self.is_foreign() && pick.is_multiple_of(3) => self.holder = hold,
            Some(_) if self.is_foreign() => {
                self.holder = None;
                self.tell();
            }
            Some(_) if pick.is_multiple_of(16) => drop(self.force(now, Role::Sole)),
            Some(_) => {}
        }
    }

    fn end_foreign(&mut self, now: Moment, dies: bool) -> Moment {
        match self.holder {
            Some((.., end)) if self.is_foreign() && dies => return end,
            Some(_) if self.is_foreign() => {
                self.holder = None;
                self.tell();
            }
            _ => {}
        }
        now
    }

    fn sent(queue: &Queue, now: Moment, attempt: &Attempt) {
        if SPIN {
            spin::sent(queue, now, attempt);
        }
    }
}

proptest! {
    #![proptest_config(cases(800, 300_000))]

    #[test]
    fn in_any_order_of_events_no_two_hold_and_nobody_waits_for_ever(
        handoff: bool,
        reentrant: bool,
        mute: bool,
        rests: bool,
        ending in select(Ending::ALL),
        events in events(),
    ) {
        let world = World { reentrant, mute, ..World::new(Plain::<false>::default(), handoff, false) };
        in_order(world, events, rests, ending);
    }
}

#[test]
fn closing_ends_every_wait_and_still_gives_back_what_was_being_released() {
    let mut world = World::new(Plain::<false>::default(), true, false);
    world.join(world.want(world.fresh(Role::Sole)));
    world.flush();
    world.join(world.want(world.fresh(Role::Sole)));
    world.join(world.want(world.fresh(Role::Sole)));
    world.release_guard(0);
    world.close();
    world.poll_all(false);
    assert!(world.waiters.is_empty());
    world.flush();
    assert_eq!(world.redis.holder, None);
    assert_eq!(world.queue.counts()[3], 0, "nothing is in flight");
}

#[test]
fn a_row_of_hand_overs_ends_when_others_have_listened_long_enough() {
    let mut sharing = Sharing::default();
    let start = Moment::from_nanos(1_000_000_000);
    let at = |ms: u64| start.plus(Duration::from_millis(ms));
    sharing.granted(at(0));
    assert!(sharing.may_transfer(at(1)), "the first hand-over counts the listeners");
    sharing.run_length += 1;
    sharing.listeners = Some(0);
    assert!(sharing.may_transfer(at(49)), "nobody listens");
    assert!(!sharing.may_transfer(at(50)), "somebody may poll");
    sharing.listeners = Some(1);
    assert!(!sharing.may_transfer(at(1)), "somebody listens: it is their turn");

    sharing.freeing(true);
    sharing.freed(at(10), true, true);
    assert!(!sharing.heard(), "the message of our own release says nothing new");
    assert_eq!(sharing.standing_back(at(11)), Some(at(12)));
    for _ in 0..6 {
        assert!(sharing.heard(), "releases by others");
    }
    assert_eq!(sharing.standing_back(at(11)), None, "the next message ends the stand-back");
    sharing.granted(at(12));
    for _ in 0..5 {
        assert!(sharing.may_transfer(at(13)), "as many grants as the other had");
        sharing.run_length += 1;
    }
    assert!(!sharing.may_transfer(at(13)));
}

#[test]
fn standing_back_in_vain_is_done_seldom() {
    let mut sharing = Sharing::default();
    sharing.listeners = Some(1);
    let start = Moment::from_nanos(1_000_000_000);
    let at = |ms: u64| start.plus(Duration::from_millis(ms));
    for round in 0..3 {
        sharing.granted(at(10 * round));
        sharing.freeing(true);
        sharing.freed(at(10 * round), true, true);
        assert!(sharing.standing_back(at(10 * round + 1)).is_some());
        assert!(sharing.standing_back(at(10 * round + 2)).is_none());
        sharing.heard();
    }
    sharing.granted(at(30));
    assert!(sharing.may_transfer(at(31)), "as if nobody listened");
    sharing.freeing(true);
    sharing.freed(at(32), true, true);
    assert!(sharing.standing_back(at(32)).is_none(), "not again so soon");
    sharing.freed(at(80), true, true);
    assert!(sharing.standing_back(at(80)).is_some());
}
