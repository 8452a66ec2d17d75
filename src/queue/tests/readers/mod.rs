//! Readers and writers.

mod scenes;

use super::*;

const READ: Role = Role::Read;
const WRITE: Role = Role::Write;
/// A release that has left the key as it was may have left it this much too long.
const SLACK: Duration = SECOND;

/// A read/write lock's hash and its hold keys.
#[derive(Debug)]
pub(super) struct ReadWrite {
    mode: Option<Role>,
    counts: Vec<(Holder, u64)>,
    end: Moment,
    hold_keys: HashMap<(OwnerId, u64), Moment>,
    /// So many other readers are all looked at by a release.
    few: usize,
    /// A foreign renewal has left the key with less than its holds have.
    cut: bool,
    told: Vec<Option<Holder>>,
    forced: u64,
}

impl ReadWrite {
    pub(super) fn new(few: usize) -> Self {
        Self {
            mode: None,
            counts: Vec::new(),
            end: Moment::from_nanos(0),
            hold_keys: HashMap::new(),
            few,
            cut: false,
            told: Vec::new(),
            forced: 0,
        }
    }

    fn count(&self, holder: Holder) -> u64 {
        self.counts.iter().find(|(other, _)| *other == holder).map_or(0, |(_, count)| *count)
    }

    fn set(&mut self, holder: Holder, count: u64) {
        match self.counts.iter().position(|(other, _)| *other == holder) {
            Some(index) if count == 0 => drop(self.counts.remove(index)),
            Some(index) => self.counts[index].1 = count,
            None => self.counts.push((holder, count)),
        }
        if self.counts.is_empty() {
            self.mode = None;
        }
    }

    fn drop_keys_above(&mut self, owner: OwnerId, number: u64) {
        self.hold_keys.retain(|(other, n), _| *other != owner || *n <= number);
    }

    fn clear(&mut self) {
        self.counts.clear();
        (self.mode, self.cut) = (None, false);
    }

    /// Until when the last hold key of a reader lives, if one of that number or above does.
    fn last_hold(&self, now: Moment, holder: Holder, from: u64) -> Option<Moment> {
        let keys = (from..=self.count(holder)).filter_map(|n| self.hold_keys.get(&(holder.owner, n)).copied());
        keys.filter(|end| holder.role == READ && *end > now).max()
    }

    fn last_of_all(&self, now: Moment) -> Option<Moment> {
        self.counts.iter().filter_map(|(holder, _)| self.last_hold(now, *holder, 1)).max()
    }

    fn raise(&mut self, to: Moment) {
        self.end = self.end.max(to);
        self.cut &= self.hold_keys.values().any(|end| *end > self.end);
    }

    fn without_abandoned(&mut self, gone: &[Holder]) {
        for holder in gone.iter().filter(|holder| self.count(**holder) > 0).copied().collect::<Vec<_>>() {
            if holder.role == WRITE {
                self.mode = Some(READ);
            } else {
                self.drop_keys_above(holder.owner, 0);
            }
            self.set(holder, 0);
        }
    }

    fn take(&mut self, now: Moment, owner: Holder, term: Duration) -> AttemptReply {
        (self.mode, self.end) = (Some(owner.role), now.plus(term));
        self.set(owner, 1);
        if owner.role == READ {
            self.hold_keys.insert((owner.owner, 1), self.end);
        }
        AttemptReply::Granted(Granted { found: 0, fresh: true, token: None })
    }

    fn acquire_read(&mut self, now: Moment, a: &Attempt) -> AttemptReply {
        let writes = |state: &Self| state.mode == Some(WRITE) && state.count(of(a.owner, WRITE)) == 0;
        if writes(self) {
            self.without_abandoned(&a.abandoned);
        }
        if writes(self) {
            let retry_in = Some(self.end.since(now));
            return AttemptReply::Busy(BusyReply { retry_in, ..BusyReply::default() });
        }
        if self.mode.is_none() {
            return self.take(now, a.owner, a.term.length);
        }
        let found = self.count(a.owner);
        let number = if found > 0 { a.target } else { 1 };
        self.set(a.owner, number);
        self.hold_keys.insert((a.owner.owner, number), now.plus(a.term.length));
        self.raise(now.plus(a.ttl));
        AttemptReply::Granted(Granted { found, fresh: false, token: None })
    }

    fn acquire_write(&mut self, now: Moment, a: &Attempt) -> AttemptReply {
        if self.mode == Some(READ) && self.count(of(a.owner, READ)) > 0 {
            let retry_in = Some(self.end.since(now));
            return AttemptReply::Upgrade(BusyReply { retry_in, by_readers: true, place: None });
        }
        if self.mode == Some(READ) || self.mode == Some(WRITE) && self.count(a.owner) == 0 {
            self.without_abandoned(&a.abandoned);
        }
        match (self.mode, self.count(a.owner)) {
            (None, _) => self.take(now, a.owner, a.term.length),
            (Some(READ), _) => {
                if let Some(last) = self.last_of_all(now).filter(|last| *last < self.end) {
                    self.end = last;
                }
                let retry_in = Some(self.end.since(now));
                AttemptReply::Busy(BusyReply { retry_in, by_readers: true, place: None })
            }
            (_, 0) => {
                let retry_in = Some(self.end.since(now));
                AttemptReply::Busy(BusyReply { retry_in, ..BusyReply::default() })
            }
            (_, found) => {
                self.set(a.owner, a.target);
                let added = if found == a.target { self.end } else { self.end.plus(a.term.length) };
                self.raise(added.max(now.plus(a.ttl)));
                AttemptReply::Granted(Granted { found, fresh: false, token: None })
            }
        }
    }

    fn release_read(&mut self, now: Moment, r: &Release) -> Released {
        let (owner, found) = (r.owner, self.count(r.owner));
        if found == 0 {
            let published = self.mode.is_none() && !r.ended;
            self.told.extend(published.then_some(None));
            return Released { published, ..Released::default() };
        }
        let rearm = &r.rearm[r.rearm.len() - r.rearm.len().min(r.target as usize)..];
        let first = r.target + 1 - rearm.len() as u64;
        let given = self.last_hold(now, owner, first.min(r.target + 1));
        self.drop_keys_above(owner.owner, r.target);
        let left = found.min(r.target);
        for (n, lives) in (first..=left).zip(rearm) {
            self.hold_keys.insert((owner.owner, n), now.plus(*lives));
        }
        self.set(owner, left);
        let released = |published| Released { found, published, ..Released::default() };
        if self.mode.is_none() {
            self.told.push(None);
            return released(true);
        }
        if self.mode == Some(WRITE) {
            return released(false);
        }
        let others: Vec<Holder> = self.counts.iter().map(|(other, _)| *other).filter(|o| *o != owner).collect();
        if others.len() > self.few {
            let enough = self.end.minus(SLACK);
            let mut most = self.last_hold(now, owner, 1);
            if most.is_none_or(|most| most <= enough) && given.is_none_or(|given| given < enough) {
                return released(false);
            }
            let lot = now.as_nanos() as usize / 1_000_000 % others.len();
            for other in others.iter().cycle().skip(lot).take(2) {
                if most.is_none_or(|most| most <= enough) {
                    most = most.max(self.last_hold(now, *other, 1));
                }
            }
            if let Some(most) = most.filter(|most| *most > enough.max(now)) {
                self.raise(most);
                return released(false);
            }
        }
        match self.last_of_all(now) {
            Some(most) => {
                (self.end, self.cut) = (most, false);
                released(false)
            }
            None => {
                self.clear();
                self.told.push(None);
                released(true)
            }
        }
    }

    fn release_write(&mut self, now: Moment, r: &Release) -> Released {
        let found = if self.mode == Some(WRITE) { self.count(r.owner) } else { 0 };
        if found == 0 {
            let published = self.mode.is_none() && !r.ended;
            self.told.extend(published.then_some(None));
            return Released { published, ..Released::default() };
        }
        self.set(r.owner, found.min(r.target));
        if r.target > 0 {
            let reads = self.last_hold(now, of(r.owner, READ), 1);
            self.end = now.plus(r.ttl).max(reads.unwrap_or(now));
            return Released { found, ..Released::default() };
        }
        self.mode = self.mode.map(|_| READ);
        self.told.push(None);
        Released { found, published: true, ..Released::default() }
    }
}

fn of(owner: Holder, role: Role) -> Holder {
    Holder { role, ..owner }
}

fn foreign_owner(thread: i64, role: Role) -> Holder {
    Holder { owner: OwnerId::with_thread(Uuid::from_u128(2), thread).expect("a free id"), role }
}

fn foreign_release(owner: Holder, now: Moment) -> Release {
    let (rearm, candidates) = (Vec::new(), Vec::new());
    Release { owner, target: 0, ttl: MS, rearm, end: now, promised: now, ended: false, leave: None, candidates }
}

impl Redis for ReadWrite {
    const DISCIPLINE: Discipline = Discipline::Readers;
    const TELLS_WHEN_FREE: bool = true;

    fn acquire(&mut self, now: Moment, a: &Attempt) -> AttemptReply {
        if a.owner.role == READ { self.acquire_read(now, a) } else { self.acquire_write(now, a) }
    }

    fn release(&mut self, now: Moment, r: &Release) -> Released {
        if r.owner.role == READ { self.release_read(now, r) } else { self.release_write(now, r) }
    }

    fn renew(&mut self, now: Moment, owner: Holder, rank: u64, holds: Duration, ttl: Duration) -> u64 {
        let found = self.count(owner);
        if found > 0 && owner.role == READ {
            let ranks = if rank == 0 { 1..=found } else { rank..=rank.min(found) };
            for n in ranks.filter(|_| !holds.is_zero()) {
                let end = self.hold_keys.entry((owner.owner, n)).or_insert(now);
                *end = (*end).max(now.plus(holds));
            }
            self.raise(now.plus(ttl));
        } else if found > 0 {
            self.end = now.plus(ttl);
        }
        found
    }

    fn force(&mut self, now: Moment, role: Role) -> bool {
        self.expire(now);
        let freed = self.mode == Some(role);
        if freed {
            self.clear();
            self.forced += 1;
            self.told.push(None);
        }
        freed
    }

    fn expire(&mut self, now: Moment) {
        if self.mode.is_some() && self.end <= now {
            // What a foreign renewal has cut short is gone, as if by force.
            self.forced += u64::from(self.cut);
            self.clear();
        }
        self.hold_keys.retain(|_, end| *end > now);
    }

    fn holds(&self) -> Vec<Found> {
        let found = |(owner, count): &(Holder, u64)| {
            let last = (1..=*count).filter_map(|n| self.hold_keys.get(&(owner.owner, n)).copied()).max();
            let worth = match owner.role {
                READ => last.unwrap_or(Moment::from_nanos(0)),
                _ => self.end,
            };
            // What a foreign renewal has cut short is raised again within a period.
            Found {
                owner: *owner,
                count: *count,
                end: self.end,
                worth: if self.cut { worth } else { worth.min(self.end) },
            }
        };
        self.counts.iter().map(found).collect()
    }

    fn take_told(&mut self) -> Vec<Option<Holder>> {
        std::mem::take(&mut self.told)
    }

    fn forced(&self) -> u64 {
        self.forced
    }

    fn foreign(&mut self, now: Moment, pick: usize) {
        let reader = foreign_owner(1 + pick as i64 / 8 % 2, READ);
        let writer = foreign_owner(3, WRITE);
        match pick % 8 {
            0 | 1 if self.mode.is_none() || self.mode == Some(READ) => {
                self.mode = Some(READ);
                self.set(reader, 1);
                self.hold_keys.insert((reader.owner, 1), now.plus(FOREIGN_LEASE));
                self.raise(now.plus(FOREIGN_LEASE));
            }
            2 if self.mode.is_none() => drop(self.take(now, writer, FOREIGN_LEASE)),
            // A renewal by Redisson sets the key's time to live, whatever others have.
            3 if self.count(reader) > 0 => {
                self.hold_keys.insert((reader.owner, 1), now.plus(FOREIGN_LEASE));
                self.cut |= self.end > now.plus(FOREIGN_LEASE);
                self.end = now.plus(FOREIGN_LEASE);
            }
            4 | 5 if self.count(reader) > 0 => drop(self.release_read(now, &foreign_release(reader, now))),
            6 if self.count(writer) > 0 => drop(self.release_write(now, &foreign_release(writer, now))),
            7 if pick.is_multiple_of(5) => drop(self.force(now, Self::role(pick))),
            _ => {}
        }
    }

    fn end_foreign(&mut self, now: Moment, dies: bool) -> Moment {
        let foreign = |holder: &Holder| holder.owner.client_id() == Uuid::from_u128(2);
        let theirs: Vec<Holder> = self.counts.iter().map(|(holder, _)| *holder).filter(foreign).collect();
        if dies && !theirs.is_empty() {
            return self.end;
        }
        for holder in theirs {
            self.release(now, &foreign_release(holder, now));
        }
        now
    }

    fn role(pick: usize) -> Role {
        if pick.is_multiple_of(2) { READ } else { WRITE }
    }

    fn excludes(one: Holder, other: Holder) -> bool {
        one.owner != other.owner && (one.role == WRITE || other.role == WRITE)
    }

    fn check(&self, now: Moment, queue: &Queue, quiet: bool) {
        // What was taken by force may be believed in until Redis is asked again.
        for owner in queue.owners.iter().filter(|o| o.id.role == READ && !o.live.is_empty() && self.forced == 0) {
            let settled = owner.is_idle() && owner.leaving.is_empty() && owner.count == owner.live.len() as u64;
            if !settled || self.count(owner.id) != owner.count {
                continue;
            }
            for (hold, number) in owner.live.iter().zip(1..).filter(|(hold, _)| hold.validity.is_valid(now)) {
                let end = self.hold_keys.get(&(owner.id.owner, number));
                assert!(end.is_some_and(|end| *end >= hold.end), "hold {number} ends at {end:?}: {owner:?} {self:?}");
            }
        }
        if quiet && !queue.settings.upgrade_waits {
            for waiter in queue.line.iter().filter(|w| matches!(w.state, WaiterState::Waiting) && !w.stalled) {
                let owner = waiter.want.owner;
                let live = |role| queue.owner(of(owner, role)).is_some_and(|o| !o.live.is_empty());
                let upgrade = owner.role == WRITE && live(READ) && !live(WRITE);
                assert!(!upgrade, "{owner} waits for itself: {queue:?}");
            }
        }
    }
}

proptest! {
    #![proptest_config(cases(800, 300_000))]

    #[test]
    fn in_any_order_of_events_nobody_writes_beside_another_and_nobody_waits_for_ever(
        few in select(&[8usize, 1][..]),
        upgrade_waits: bool,
        mute: bool,
        rests: bool,
        ending in select(Ending::ALL),
        events in events(),
    ) {
        let world = World { mute, ..World::new(ReadWrite::new(few), false, upgrade_waits) };
        in_order(world, events, rests, ending);
    }
}
