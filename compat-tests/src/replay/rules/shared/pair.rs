//! The holds of one read/write lock as docs/guarantees.md wants them. Times are milliseconds since the scenario began.

use std::collections::BTreeMap;

use super::super::super::format::Range;
use super::super::holds::Span;

/// Milliseconds a reckoned time may be off.
const GRAIN: i64 = 20;
/// How early a renewal timer may be taken to be late: less than two thirds of the timeout, by this.
const TIMER_SLACK: i64 = 300;
/// The longest margin by which a hold counts as lost before its lease ends.
const LOSS_MARGIN: i64 = 500;
/// The longest time in which a lost count is given back.
const GIVE_BACK: i64 = 500;
/// The longest time from when a command is made until it runs.
const SENDING: i64 = 100;
/// A release looks at all others' hold keys if there are so many readers at most,
const FEW: usize = 8;
/// and may leave the key this much too long if there are more.
const SLACK: i64 = 1_000;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Role {
    Read,
    Write,
}

/// Who holds, in which role: the owner as the vectors write it, without `:write`.
pub(super) type Holder = (String, Role);

#[derive(Clone, Debug)]
pub(super) struct Pair {
    watchdog: i64,
    holds: BTreeMap<Holder, Holds>,
    /// The end of the TTL that was set last; `None` for no expiry.
    ttl_end: Option<Span>,
    /// The ends of the keys of read holds, by owner and number.
    hold_keys: BTreeMap<(String, usize), Span>,
    /// Somebody else set an expiry: until this time it may be too early for a renewal.
    unrenewed_until: i64,
    /// A writer of ours is waiting, which shortens the key when readers turn it away.
    pub(super) writer_waits: bool,
}

#[derive(Clone, Debug)]
struct Holds {
    /// The name of the client, if one of this replay holds.
    client: Option<String>,
    /// Oldest first.
    live: Vec<Hold>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Hold {
    Watchdog,
    Fixed {
        end: Span,
    },
    /// No client looks after it.
    Forgotten,
}

/// What a release left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Released {
    NotOwner,
    /// Others hold on, or the owner itself in the same role.
    Partly,
    /// The owner gave up writing and reads on.
    Downgraded,
    Freed,
}

/// What time did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Passed {
    /// A count was given back.
    pub(super) given_back: bool,
    /// By that the lock was freed and its channel told, as at the last release in this role.
    pub(super) freed: Option<Role>,
}

fn plus(span: Span, ms: i64) -> Span {
    Span { lo: span.lo.saturating_add(ms), hi: span.hi.saturating_add(ms) }
}

fn later(one: Span, other: Span) -> Span {
    Span { lo: one.lo.max(other.lo), hi: one.hi.max(other.hi) }
}

impl Pair {
    pub(super) fn free(watchdog: i64) -> Self {
        let (holds, hold_keys) = (BTreeMap::new(), BTreeMap::new());
        Self { watchdog, holds, ttl_end: None, hold_keys, unrenewed_until: 0, writer_waits: false }
    }

    pub(super) fn is_free(&self) -> bool {
        self.holds.is_empty()
    }

    pub(super) fn count(&self, owner: &str, role: Role) -> usize {
        self.holds.get(&(owner.to_owned(), role)).map_or(0, |holds| holds.live.len())
    }

    pub(super) fn holders(&self) -> impl Iterator<Item = (&Holder, usize)> {
        self.holds.iter().map(|(holder, holds)| (holder, holds.live.len()))
    }

    pub(super) fn writer(&self) -> Option<&str> {
        self.holds.keys().find(|(_, role)| *role == Role::Write).map(|(owner, _)| owner.as_str())
    }

    /// Whether this owner may hold in this role now.
    pub(super) fn admits(&self, owner: &str, role: Role) -> bool {
        match (self.writer(), role) {
            (Some(writer), _) => writer == owner,
            (None, Role::Read) => true,
            (None, Role::Write) => self.is_free(),
        }
    }

    /// A granted acquire. `lease` is `None` for the watchdog.
    pub(super) fn acquire(&mut self, client: &str, (owner, role): Holder, lease: Option<i64>, at: Span) {
        if !self.admits(&owner, role) {
            // Granted all the same: nobody else can be there any more.
            self.holds.clear();
        }
        let fresh = self.is_free();
        let hold = lease.map_or(Hold::Watchdog, |lease| Hold::Fixed { end: plus(at, lease) });
        let lease = lease.unwrap_or(self.watchdog);
        let holds = self.holds.entry((owner.clone(), role)).or_insert(Holds { client: None, live: Vec::new() });
        let again = !holds.live.is_empty();
        holds.client = Some(client.to_owned());
        holds.live.retain(|hold| *hold != Hold::Forgotten);
        holds.live.push(hold);
        let number = holds.live.len();
        if role == Role::Read {
            self.hold_keys.insert((owner.clone(), number), plus(at, lease));
        }
        let promised = self.promised(&owner, at).unwrap_or_else(|| plus(at, lease));
        self.ttl_end = match (self.ttl_end, role) {
            _ if fresh => Some(plus(at, lease)),
            (Some(end), Role::Write) if again => Some(later(plus(later(end, at), lease), promised)),
            (Some(end), _) => Some(later(end, promised)),
            (None, _) => Some(promised),
        };
    }

    /// A granted acquire of Redisson's: its holds are its own affair.
    pub(super) fn acquire_there(&mut self, (owner, role): Holder, lease: i64, at: Span) {
        if !self.admits(&owner, role) {
            self.holds.clear();
        }
        let fresh = self.is_free();
        let holds = self.holds.entry((owner.clone(), role)).or_insert(Holds { client: None, live: Vec::new() });
        holds.live.push(Hold::Forgotten);
        let number = holds.live.len();
        let end = plus(at, lease);
        if role == Role::Read {
            self.hold_keys.insert((owner, number), end);
        }
        self.ttl_end = Some(match (self.ttl_end, role) {
            (Some(left), Role::Read) if !fresh => later(left, end),
            (Some(left), Role::Write) if !fresh => plus(later(left, at), lease),
            _ => end,
        });
    }

    /// A release of Redisson's; what is left of write holds gets this lease.
    pub(super) fn release_there(&mut self, owner: &str, role: Role, lease: i64, at: Span) -> Released {
        let released = self.release(owner, role, at);
        match (released, role) {
            (Released::Partly, Role::Write) => self.ttl_end = Some(plus(at, lease)),
            // Also while the owner writes.
            (Released::Partly, Role::Read) => self.ttl_end = self.last_hold_key(at).or(self.ttl_end),
            _ => {}
        }
        released
    }

    /// A release without a guard: the most recent hold goes.
    pub(super) fn release(&mut self, owner: &str, role: Role, at: Span) -> Released {
        let holder = (owner.to_owned(), role);
        let Some(holds) = self.holds.get_mut(&holder) else { return Released::NotOwner };
        let last = holds.live.len().saturating_sub(1);
        self.remove(&holder, last, at)
    }

    /// The hold at this place goes; those behind it move up.
    fn remove(&mut self, holder: &Holder, index: usize, at: Span) -> Released {
        let Some(holds) = self.holds.get_mut(holder) else { return Released::NotOwner };
        let count = holds.live.len();
        holds.live.remove(index);
        let moved: Vec<(usize, Span)> = holds
            .live
            .iter()
            .enumerate()
            .skip(index)
            .map(|(at_place, hold)| (at_place + 1, hold.end(at, self.watchdog)))
            .collect();
        if holds.live.is_empty() {
            self.holds.remove(holder);
        }
        let (owner, role) = holder;
        match role {
            Role::Read => {
                self.hold_keys.remove(&(owner.clone(), count));
                self.hold_keys.extend(moved.into_iter().map(|(number, end)| ((owner.clone(), number), end)));
                self.after_reader(at)
            }
            Role::Write if self.holds.contains_key(holder) => {
                self.ttl_end = self.promised(owner, at).or_else(|| Some(plus(at, self.watchdog)));
                Released::Partly
            }
            Role::Write if self.is_free() => self.freed(),
            Role::Write => Released::Downgraded,
        }
    }

    /// A read hold went: the key lives as long as the last of the others, unless it is written.
    fn after_reader(&mut self, at: Span) -> Released {
        if self.is_free() {
            return self.freed();
        }
        if self.writer().is_some() {
            return Released::Partly;
        }
        match (self.last_hold_key(at), self.ttl_end) {
            (None, _) => self.freed(),
            (Some(last), Some(end)) if self.holds.len() > FEW => {
                self.ttl_end = Some(Span { lo: last.lo, hi: last.hi.max(end.hi.min(last.hi + SLACK)) });
                Released::Partly
            }
            (Some(last), _) => {
                self.ttl_end = Some(last);
                Released::Partly
            }
        }
    }

    fn freed(&mut self) -> Released {
        self.clear();
        Released::Freed
    }

    /// Nothing is held any more; keys of read holds stay until they end.
    pub(super) fn clear(&mut self) {
        self.holds.clear();
        self.ttl_end = None;
    }

    /// The process of this client was killed.
    pub(super) fn orphan(&mut self, client: &str, now: Span) {
        let renewed = self.ttl(now, 0);
        if let (true, Some(ttl)) = (self.is_renewed(), renewed) {
            self.ttl_end = Some(Span { lo: now.lo + ttl.min, hi: now.hi + ttl.max });
        }
        for holds in self.holds.values_mut().filter(|holds| holds.client.as_deref() == Some(client)) {
            holds.live.fill(Hold::Forgotten);
        }
    }

    /// A writer was turned away by readers: the key lives no longer than the last of them. Says whether that shortens it.
    pub(super) fn visit(&mut self, at: Span) -> bool {
        let shortens = self.is_longer_than_its_readers(at);
        if let (true, Some(last)) = (shortens, self.last_hold_key(at)) {
            self.ttl_end = Some(last);
        }
        shortens
    }

    /// Whether the key outlives the keys of all its readers.
    pub(super) fn is_longer_than_its_readers(&self, at: Span) -> bool {
        let (Some(last), Some(end)) = (self.last_hold_key(at), self.ttl_end) else { return false };
        self.writer().is_none() && !self.is_free() && last.hi + GRAIN < end.lo
    }

    /// Whether a renewal as Redisson does it would shorten the key.
    pub(super) fn renewal_would_cut(&self, at: Span) -> bool {
        self.is_renewed() && self.ttl_end.is_some_and(|end| end.hi - at.lo > self.watchdog + GRAIN)
    }

    /// Whether this owner has a hold that is renewed, and whether it has one that is not.
    pub(super) fn modes(&self, owner: &str) -> (bool, bool) {
        let holds = || self.of(owner);
        (holds().any(|hold| *hold == Hold::Watchdog), holds().any(|hold| *hold != Hold::Watchdog))
    }

    /// Whether it is known at this time who holds.
    pub(super) fn is_certain(&self, now: Span) -> bool {
        let ends = |end: Span| end.lo - LOSS_MARGIN <= now.hi && now.lo <= end.hi + GIVE_BACK;
        let key_ends = self.ttl_end.is_some_and(|end| ends(end) && !self.is_renewed_at(end.lo));
        let holds = self.holds.values().flat_map(|holds| &holds.live);
        !key_ends && !holds.into_iter().any(|hold| matches!(hold, Hold::Fixed { end } if ends(*end)))
    }

    /// Fixed holds whose lease has ended give their count back while the key lives on; a key whose time is over is gone. Near
    /// such an end what was `seen` in Redis decides.
    pub(super) fn pass(&mut self, now: Span, seen: Option<&dyn Fn(&Holder) -> usize>) -> Passed {
        let mut passed = Passed::default();
        self.hold_keys.retain(|_, end| now.lo <= end.hi + GRAIN);
        let may_be_gone = self.ttl_end.is_some_and(|end| end.lo - GRAIN <= now.hi && !self.is_renewed_at(end.lo));
        let is_gone = self.ttl_end.is_some_and(|end| end.hi + GRAIN < now.lo) && !self.is_renewed();
        let empty = seen.is_some_and(|seen| self.holds.keys().all(|holder| seen(holder) == 0));
        if is_gone || (may_be_gone && empty) {
            self.clear();
            return passed;
        }
        let holders: Vec<Holder> = self.holds.keys().cloned().collect();
        for holder in holders {
            let mut index = 0;
            while let Some(holds) = self.holds.get_mut(&holder)
                && let Some(hold) = holds.live.get(index)
            {
                let Hold::Fixed { end } = *hold else {
                    index += 1;
                    continue;
                };
                let is_over = end.hi + GIVE_BACK < now.lo;
                let may_be_over = end.lo - LOSS_MARGIN <= now.hi;
                let given_back = is_over || (may_be_over && seen.is_some_and(|seen| seen(&holder) < holds.live.len()));
                if given_back {
                    passed.given_back = true;
                    // It was done some time between the end of its lease and now.
                    let at = Span { lo: end.lo.min(now.lo), hi: now.hi };
                    if self.remove(&holder, index, at) == Released::Freed {
                        passed.freed = Some(holder.1);
                    }
                    continue;
                }
                index += 1;
            }
        }
        passed
    }

    /// What is there is where the reckoning goes on.
    pub(super) fn found(&mut self, ttl: Option<i64>, hold_keys: BTreeMap<(String, usize), i64>, at: Span) {
        self.ttl_end = ttl.filter(|ttl| *ttl >= 0).map(|ttl| plus(at, ttl));
        self.hold_keys = hold_keys.into_iter().map(|(key, ttl)| (key, plus(at, ttl))).collect();
    }

    /// Somebody else wrote to the keys of the lock.
    pub(super) fn was_touched(&mut self, at: Span) {
        self.unrenewed_until = at.hi + self.watchdog / 3 + TIMER_SLACK;
    }

    /// So many counts of this holder are in Redis; the oldest are missing, nobody knows the surplus.
    pub(super) fn found_count(&mut self, holder: &Holder, count: usize) {
        if count == 0 {
            self.holds.remove(holder);
            return;
        }
        let holds = self.holds.entry(holder.clone()).or_insert(Holds { client: None, live: Vec::new() });
        let surplus = holds.live.len().saturating_sub(count);
        holds.live.drain(..surplus);
        while holds.live.len() < count {
            holds.live.insert(0, Hold::Forgotten);
        }
    }

    /// The TTL the key must have; `behind` is how much later than wanted timers may be.
    pub(super) fn ttl(&self, now: Span, behind: i64) -> Option<Range> {
        let end = self.ttl_end?;
        let mut range = Range { min: end.lo - now.hi - GRAIN, max: end.hi - now.lo + GRAIN };
        for ((owner, role), _) in self.holds.iter().filter(|(_, holds)| holds.live.contains(&Hold::Watchdog)) {
            let promised = self.promised(owner, now).map_or(0, |end| end.hi - now.lo) + GRAIN;
            let renewed = self.renewed(behind);
            range.max = range.max.max(promised);
            match role {
                _ if !self.is_renewed_at(now.lo) => {}
                Role::Read => range.min = range.min.max(renewed),
                // Renewing a writer sets the latest end of its holds, whatever was there.
                Role::Write => {
                    let fixed = self.of(owner).filter(|hold| matches!(hold, Hold::Fixed { .. }));
                    let last = fixed.map(|hold| hold.end(now, 0)).reduce(later);
                    range.min = renewed.max(last.map_or(0, |end| end.lo - now.hi - GRAIN));
                }
            }
        }
        if let (true, Some(last)) = (self.writer_waits && self.writer().is_none(), self.last_hold_key(now)) {
            range.min = range.min.min(last.lo - now.hi - GRAIN);
        }
        Some(range)
    }

    /// The keys of read holds that must be there, and those that may have ended just now, with their TTL.
    pub(super) fn hold_keys(&self, now: Span, behind: i64) -> impl Iterator<Item = (&str, usize, Range)> {
        self.hold_keys.iter().map(move |((owner, number), end)| {
            let mut range = Range { min: end.lo - now.hi - GRAIN, max: end.hi - now.lo + GRAIN };
            // A renewal raises the keys of all holds of a reader, and a hold on the watchdog relies on it.
            if let Some(holds) = self.holds.get(&(owner.clone(), Role::Read))
                && let Some(hold) = holds.live.get(number - 1)
                && holds.live.contains(&Hold::Watchdog)
            {
                range.max = range.max.max(self.watchdog + GRAIN);
                if *hold == Hold::Watchdog && self.is_renewed_at(now.lo) {
                    range.min = range.min.max(self.renewed(behind));
                }
            }
            (owner.as_str(), *number, range)
        })
    }

    /// When the key is free again by itself: `None` when it is renewed for ever, or never expires.
    pub(super) fn frees_itself(&self) -> Option<Span> {
        match self.ttl_end {
            // It may be renewed before that, and then for ever.
            Some(end) if self.is_renewed() && !self.is_renewed_at(end.lo) => Some(Span { hi: i64::MAX, ..end }),
            _ if self.is_renewed() => None,
            end => end,
        }
    }

    /// What a key that is renewed every third of the timeout has left at least.
    fn renewed(&self, behind: i64) -> i64 {
        self.watchdog * 2 / 3 - TIMER_SLACK - behind - GRAIN
    }

    fn is_renewed(&self) -> bool {
        self.holds.values().any(|holds| holds.live.contains(&Hold::Watchdog))
    }

    /// Whether it has certainly been renewed by this time, since somebody else set an expiry.
    fn is_renewed_at(&self, now: i64) -> bool {
        self.is_renewed() && now >= self.unrenewed_until
    }

    fn of(&self, owner: &str) -> impl Iterator<Item = &Hold> {
        self.holds.iter().filter(move |((other, _), _)| other == owner).flat_map(|(_, holds)| &holds.live)
    }

    /// The latest end of an owner's holds in both roles; one on the watchdog ends one timeout from now.
    fn promised(&self, owner: &str, at: Span) -> Option<Span> {
        let known = self.of(owner).filter(|hold| **hold != Hold::Forgotten);
        known.map(|hold| hold.end(at, self.watchdog)).reduce(later)
    }

    /// The end of the last hold key of anybody who reads.
    fn last_hold_key(&self, at: Span) -> Option<Span> {
        let counts = |(owner, number): &(String, usize)| *number <= self.count(owner, Role::Read);
        let ends = self.hold_keys.iter().filter(|(key, _)| counts(key)).map(|(_, end)| *end);
        ends.filter(|end| end.hi > at.lo).reduce(later)
    }
}

impl Hold {
    fn end(&self, at: Span, watchdog: i64) -> Span {
        match self {
            // The time left is reckoned when a command is sent and counts from when it runs.
            Self::Fixed { end } => Span { lo: end.lo, hi: end.hi + (at.hi - at.lo).min(SENDING) },
            Self::Watchdog | Self::Forgotten => plus(at, watchdog),
        }
    }
}
