//! A queue in Redis, in which others stand as well.

mod scenes;

use super::*;
use crate::answers::Place;

/// Somebody else who waits or holds.
#[derive(Clone, Copy, Debug)]
struct Foreign {
    owner: Holder,
    patience: Duration,
    dead: bool,
}

/// The lock's hash, the queue, and when each of those in it counts as dead.
#[derive(Debug, Default)]
pub(super) struct Seats {
    holder: Option<(Holder, u64, Moment)>,
    line: Vec<Holder>,
    times: HashMap<Holder, Moment>,
    foreign: Vec<Foreign>,
    made: i64,
    told: Vec<Option<Holder>>,
    forced: u64,
}

impl Seats {
    fn live_head(&mut self, now: Moment) -> Option<Holder> {
        while let Some(head) = self.line.first().copied() {
            if self.times.get(&head).is_some_and(|ends| *ends > now) {
                return Some(head);
            }
            self.line.remove(0);
            self.times.remove(&head);
        }
        None
    }

    fn place(&self, owner: Holder) -> Option<usize> {
        self.line.iter().position(|other| *other == owner)
    }

    /// The head, or who comes when nobody waits, gets the lock.
    fn let_in(&mut self, now: Moment, owner: Holder, term: Duration, patience: Duration) {
        assert!(self.holder.is_none() && self.line.first().is_none_or(|head| *head == owner), "out of turn");
        if !self.line.is_empty() {
            self.line.remove(0);
        }
        self.times.remove(&owner);
        self.times.values_mut().for_each(|ends| *ends = ends.minus(patience));
        self.holder = Some((owner, 1, now.plus(term)));
    }

    /// Takes an owner out of the queue; those behind it get nearer.
    fn leave(&mut self, owner: Holder, patience: Duration) {
        self.times.remove(&owner);
        if let Some(place) = self.place(owner) {
            self.line.remove(place);
            for behind in &self.line[place..] {
                if let Some(ends) = self.times.get_mut(behind) {
                    *ends = ends.minus(patience);
                }
            }
        }
    }

    /// What Redisson does for a waiter: it tells nobody that a dead head is gone.
    fn foreign_asks(&mut self, now: Moment, Foreign { owner, patience, .. }: Foreign) {
        let head = self.live_head(now);
        if self.holder.is_none() && head.is_none_or(|head| head == owner) {
            return self.let_in(now, owner, FOREIGN_LEASE, patience);
        }
        if self.holder.is_some_and(|(holder, ..)| holder == owner) || self.times.contains_key(&owner) {
            return;
        }
        let left = self.holder.map(|(.., end)| end);
        let last = self.line.last().filter(|last| **last != owner).and_then(|last| self.times.get(last));
        let after = last.copied().or(left).unwrap_or(now);
        self.times.insert(owner, after.plus(patience));
        self.line.push(owner);
    }

    fn foreign_frees(&mut self, now: Moment) {
        self.live_head(now);
        self.holder = None;
        self.told.extend(self.line.first().map(|head| Some(*head)));
    }

    fn foreign_holder(&self) -> Option<Foreign> {
        let (owner, ..) = self.holder?;
        self.foreign.iter().find(|f| f.owner == owner).copied()
    }

    fn new_foreign(&mut self, pick: usize) -> Foreign {
        self.made += 1;
        let owner = OwnerId::with_thread(Uuid::from_u128(2), self.made).expect("a free id").alone();
        let foreign = Foreign { owner, patience: [300 * MS, SECOND][pick % 2], dead: false };
        self.foreign.push(foreign);
        foreign
    }
}

impl Redis for Seats {
    const DISCIPLINE: Discipline = Discipline::Fair;
    const TELLS_WHEN_FREE: bool = true;

    fn acquire(&mut self, now: Moment, a: &Attempt) -> AttemptReply {
        let first = self.line.first().copied();
        let mut freed = false;
        for gone in &a.abandoned {
            if self.holder.is_some_and(|(owner, ..)| owner == *gone) {
                (self.holder, freed) = (None, true);
            }
            self.line.retain(|other| other != gone);
            self.times.remove(gone);
        }
        let head = self.live_head(now);
        if let Some((_, found, _)) = self.holder.filter(|(owner, ..)| *owner == a.owner) {
            self.holder = Some((a.owner, a.target, now.plus(a.ttl)));
            return AttemptReply::Granted(Granted { found, fresh: false, token: None });
        }
        if self.holder.is_none() && head.is_none_or(|head| head == a.owner) {
            self.let_in(now, a.owner, a.term.length, a.patience);
            return AttemptReply::Granted(Granted { found: 0, fresh: true, token: None });
        }
        if self.holder.is_none() && (freed || head != first) {
            self.told.push(Some(head.expect("else it was granted")));
        }
        let retry_in = self.holder.map(|(.., end)| end.since(now));
        let mut place = None;
        if a.enqueue {
            let stands = self.place(a.owner);
            if stands.is_none() || self.times.get(&a.owner).is_none_or(|ends| *ends <= now) {
                let before = self.line[..stands.unwrap_or(self.line.len())].last();
                let after = before.and_then(|before| self.times.get(before)).copied();
                let ends = after.unwrap_or(now.plus(retry_in.unwrap_or_default())).max(now).plus(a.patience);
                self.times.insert(a.owner, ends);
                if stands.is_none() {
                    self.line.push(a.owner);
                }
            }
            let ends = |owner: Holder| self.times[&owner].since(now);
            let ahead = head.filter(|_| self.holder.is_none()).map(|head| (head.to_string(), ends(head)));
            place = Some(Place { expires_in: ends(a.owner), ahead });
        }
        AttemptReply::Busy(BusyReply { retry_in, by_readers: false, place })
    }

    fn release(&mut self, now: Moment, r: &Release) -> Released {
        let first = self.line.first().copied();
        let mut head = self.live_head(now);
        let found = self.found(r.owner);
        let mut granted = None;
        if found > 0 && r.target > 0 {
            self.holder = Some((r.owner, found.min(r.target), now.plus(r.ttl)));
        } else if found > 0 {
            self.holder = None;
        } else if let Some((holder, _, end)) = &mut self.holder {
            granted = r.candidates.iter().position(|c| c.owner == *holder);
            if let Some(index) = granted {
                *end = now.plus(r.candidates[index].term.length).max(*end);
            }
        }
        if let Some(patience) = r.leave {
            self.leave(r.owner, patience);
            head = self.live_head(now);
        }
        let answer = Released { found, granted, ..Released::default() };
        let Some(head) = head.filter(|_| self.holder.is_none()) else { return answer };
        if found == 0 && r.leave.is_some() && Some(head) == first {
            return answer;
        }
        if let Some(index) = r.candidates.iter().position(|c| found > 0 && c.owner == head) {
            let candidate = r.candidates[index];
            self.let_in(now, head, candidate.term.length, candidate.patience);
            granted = Some(index);
        }
        self.told.push(Some(head));
        Released { published: true, granted, ..answer }
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
        let first = self.line.first().copied();
        let head = self.live_head(now);
        let freed = self.holder.take().is_some();
        self.forced += u64::from(freed);
        self.told.extend(head.filter(|head| freed || Some(*head) != first).map(Some));
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
        let here = |f: &Foreign| self.place(f.owner).is_some() || self.holder.is_some_and(|(o, ..)| o == f.owner);
        let here: Vec<Foreign> = self.foreign.iter().filter(|f| here(f)).copied().collect();
        self.foreign = here;
        let seated: Vec<Foreign> =
            self.foreign.iter().filter(|f| !f.dead && self.place(f.owner).is_some()).copied().collect();
        let some = (!seated.is_empty()).then(|| seated[pick / 8 % seated.len().max(1)]);
        match (pick % 8, some) {
            (0 | 1, _) if self.foreign.len() < 3 => {
                let new = self.new_foreign(pick / 8);
                self.foreign_asks(now, new);
            }
            (2 | 3, Some(some)) => self.foreign_asks(now, some),
            (2..=4, _) if self.foreign_holder().is_some_and(|f| !f.dead) => self.foreign_frees(now),
            (4, Some(some)) => self.leave(some.owner, some.patience),
            (5, _) => {
                if let Some(some) = some.or(self.foreign_holder()) {
                    self.foreign.iter_mut().filter(|f| f.owner == some.owner).for_each(|f| f.dead = true);
                }
            }
            (6, _) if self.foreign_holder().is_some_and(|f| !f.dead) => {
                self.holder = self.holder.map(|(owner, count, _)| (owner, count, now.plus(FOREIGN_LEASE)));
            }
            // One that was put into the queue only.
            (7, _) if pick.is_multiple_of(3) && self.foreign.len() < 3 => {
                let odd = self.new_foreign(0);
                self.foreign.iter_mut().filter(|f| f.owner == odd.owner).for_each(|f| f.dead = true);
                self.line.push(odd.owner);
            }
            (7, _) if pick.is_multiple_of(5) => drop(self.force(now, Role::Sole)),
            _ => {}
        }
    }

    fn end_foreign(&mut self, now: Moment, dies: bool) -> Moment {
        self.foreign.iter_mut().for_each(|f| f.dead |= dies);
        let dead = |owner: &Holder| self.foreign.iter().any(|f| f.dead && f.owner == *owner);
        let held = self.holder.filter(|(owner, ..)| dead(owner)).map(|(.., end)| end);
        let waited = self.line.iter().filter(|owner| dead(owner)).filter_map(|owner| self.times.get(owner).copied());
        // Whoever is behind a dead one, or was thrown out because of what another one took off, looks five times a second.
        waited.chain(held).max().unwrap_or(now).max(now).plus(210 * MS * self.foreign.len() as u32)
    }

    fn foreign_turn(&mut self, now: Moment) {
        self.expire(now);
        loop {
            if self.foreign_holder().is_some_and(|f| !f.dead) {
                self.foreign_frees(now);
            }
            let head = self.live_head(now).filter(|_| self.holder.is_none());
            let Some(next) = self.foreign.iter().find(|f| !f.dead && Some(f.owner) == head).copied() else { return };
            self.foreign_asks(now, next);
        }
    }

    fn check(&self, _now: Moment, queue: &Queue, quiet: bool) {
        if !quiet || queue.closed {
            return;
        }
        for owner in self.line.iter().filter(|owner| owner.owner.client_id() == Uuid::from_u128(1)) {
            let waits = |w: &Waiter| w.want.owner == *owner && matches!(w.state, WaiterState::Waiting) && !w.stalled;
            assert!(queue.waiters().any(waits), "{owner} stands in the queue and nobody waits: {self:?} {queue:?}");
        }
    }
}

proptest! {
    #![proptest_config(cases(800, 300_000))]

    #[test]
    fn in_any_order_of_events_everybody_gets_a_turn_and_nobody_is_left_in_the_queue(
        handoff: bool,
        reentrant: bool,
        mute: bool,
        rests: bool,
        ending in select(Ending::ALL),
        events in events(),
    ) {
        let world = World { reentrant, mute, ..World::new(Seats::default(), handoff, false) };
        in_order(world, events, rests, ending);
    }
}
