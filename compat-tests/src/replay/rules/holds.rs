//! The holds of one lock as docs/guarantees.md wants them: the pure part of rule `1.6`.
//!
//! All times are milliseconds since the start of the scenario. What is known only to lie between two instants is a
//! [`Span`].

use super::super::format::Range;

/// Milliseconds a reckoned time may be off: rounding at three places, and a clock that is read between two of them.
const GRAIN: i64 = 20;
/// How early a renewal timer may be taken to be late: less than two thirds of the timeout, by this.
const TIMER_SLACK: i64 = 300;
/// The longest margin by which a hold counts as lost before its lease ends.
const LOSS_MARGIN: i64 = 500;
/// Leases that end within this end in a row.
const IN_A_ROW: i64 = 100;
/// The longest time in which a lost count is given back.
const GIVE_BACK: i64 = 500;

/// Some instant between these two.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Span {
    pub(crate) lo: i64,
    pub(crate) hi: i64,
}

/// Who holds, as the vectors write it: `$A:1` is thread 1 of client A.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Owner(String);

impl Owner {
    pub(super) fn new(client: &str, thread: i64) -> Self {
        Self(format!("${client}:{thread}"))
    }

    /// The owner that a field of a lock names.
    pub(super) fn named(field: &str) -> Self {
        Self(field.to_owned())
    }

    pub(super) fn field(&self) -> &str {
        &self.0
    }

    /// Whether it acts through this client.
    pub(super) fn is_of(&self, client: &str) -> bool {
        self.0.strip_prefix('$').and_then(|rest| rest.strip_prefix(client)).is_some_and(|rest| rest.starts_with(':'))
    }
}

/// The lock under one key, as its holder's client sees it.
#[derive(Clone, Debug)]
pub(super) struct Lock {
    watchdog: i64,
    owner: Option<Owner>,
    /// Oldest first.
    holds: Vec<Hold>,
    /// The end of the TTL that was set last; `None` for no expiry.
    ttl_end: Option<Span>,
    /// Somebody else set the TTL: until this time it may be too early for a renewal.
    unrenewed_until: i64,
    /// The owner's process was killed: nobody renews or gives back.
    orphan: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Hold {
    Watchdog,
    Fixed {
        end: Span,
    },
    /// Its lease ended and nothing else was left to hold: the client counts on the key to be gone. If somebody gave the key
    /// more time, the count stands until then, or until the owner asks anew.
    Forgotten,
}

/// What a release left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Released {
    NotOwner,
    Partly,
    Fully,
}

/// What must be under the key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Held {
    pub(super) owner: Owner,
    pub(super) count: usize,
    /// `None` for no expiry.
    pub(super) pttl: Option<Range>,
}

impl Span {
    fn plus(self, ms: i64) -> Self {
        Self { lo: self.lo.saturating_add(ms), hi: self.hi.saturating_add(ms) }
    }

    fn later(self, other: Self) -> Self {
        Self { lo: self.lo.max(other.lo), hi: self.hi.max(other.hi) }
    }
}

impl Lock {
    pub(super) fn free(watchdog: i64) -> Self {
        Self { watchdog, owner: None, holds: Vec::new(), ttl_end: None, unrenewed_until: 0, orphan: false }
    }

    pub(super) fn owner(&self) -> Option<&Owner> {
        self.owner.as_ref()
    }

    pub(super) fn watchdog(&self) -> i64 {
        self.watchdog
    }

    /// There are holds, and no client looks after any of them.
    pub(super) fn is_forgotten(&self) -> bool {
        self.holds.iter().all(|hold| *hold == Hold::Forgotten) && !self.holds.is_empty()
    }

    /// The end of the TTL that was set last.
    pub(super) fn ttl_end(&self) -> Option<Span> {
        self.ttl_end
    }

    pub(super) fn count(&self) -> usize {
        self.holds.len()
    }

    /// A granted acquire. `lease` is `None` for the watchdog.
    pub(super) fn acquire(&mut self, owner: Owner, lease: Option<i64>, at: Span) {
        if self.owner.as_ref() != Some(&owner) {
            self.clear();
            self.owner = Some(owner);
        }
        self.holds.retain(|hold| *hold != Hold::Forgotten);
        self.holds.push(match lease {
            Some(lease) => Hold::Fixed { end: at.plus(lease) },
            None => Hold::Watchdog,
        });
        self.set_ttl(at);
    }

    /// A granted acquire of Redisson's: it overwrites the TTL, and its holds are its own affair.
    pub(super) fn acquire_there(&mut self, owner: Owner, lease: i64, at: Span) {
        if self.owner.as_ref() != Some(&owner) {
            self.clear();
            self.owner = Some(owner);
        }
        self.holds.push(Hold::Forgotten);
        self.ttl_is(Some(lease), at);
    }

    /// A release of Redisson's; what is left gets this lease.
    pub(super) fn release_there(&mut self, owner: &Owner, lease: i64, at: Span) -> Released {
        let released = self.release(owner, at);
        if released == Released::Partly {
            self.ttl_is(Some(lease), at);
        }
        released
    }

    /// A release without a guard: the most recent hold goes.
    pub(super) fn release(&mut self, owner: &Owner, at: Span) -> Released {
        if self.owner.as_ref() != Some(owner) || self.holds.pop().is_none() {
            return Released::NotOwner;
        }
        if self.holds.is_empty() {
            self.clear();
            return Released::Fully;
        }
        self.set_ttl(at);
        Released::Partly
    }

    /// This is in Redis, and nobody knows how it came there.
    pub(super) fn found(&mut self, owner: Owner, count: usize, left: Option<i64>, at: Span) {
        self.clear();
        self.owner = Some(owner);
        self.holds = vec![Hold::Forgotten; count];
        self.ttl_was_set(left, at);
    }

    /// Nothing is held any more.
    pub(super) fn clear(&mut self) {
        *self = Self::free(self.watchdog);
    }

    /// Only so many counts are left in Redis; those missing were the oldest.
    pub(super) fn truncate(&mut self, count: usize) {
        let surplus = self.holds.len().saturating_sub(count);
        self.holds.drain(..surplus);
        if self.holds.is_empty() {
            self.clear();
        }
    }

    /// The owner's process was killed.
    pub(super) fn orphan(&mut self, at: Span) {
        if let Some(end) = self.ttl_end
            && self.is_renewed()
        {
            let renewed = self.renewed_ttl(end, at);
            self.ttl_end = Some(Span { lo: at.lo + renewed.min, hi: at.hi + renewed.max });
        }
        self.orphan = true;
    }

    /// Somebody else set the TTL, and this is what is left of it.
    pub(super) fn ttl_was_set(&mut self, left: Option<i64>, at: Span) {
        self.ttl_end = left.map(|left| at.plus(left));
        self.unrenewed_until = at.hi + self.watchdog / 3 + TIMER_SLACK;
    }

    /// This is what is left of the TTL, whoever set it.
    pub(super) fn ttl_is(&mut self, left: Option<i64>, at: Span) {
        self.ttl_end = left.map(|left| at.plus(left));
    }

    /// At the end of its lease the last hold but one is given back, and the last one ends at about the same time: then that
    /// may be released as well before the key has ended.
    pub(super) fn ends_in_a_row(&self) -> bool {
        let ends = || {
            self.holds.iter().filter_map(|hold| match hold {
                Hold::Fixed { end } => Some(end.hi),
                Hold::Watchdog | Hold::Forgotten => None,
            })
        };
        let spread = ends().max().unwrap_or_default() - ends().min().unwrap_or_default();
        self.holds.len() > 1 && ends().count() == self.holds.len() && spread < IN_A_ROW
    }

    /// Whether it is known at this time how many holds there are.
    pub(super) fn is_certain(&self, now: Span) -> bool {
        let ends = |end: Span| end.lo - LOSS_MARGIN <= now.hi && now.lo <= end.hi + GIVE_BACK;
        let key_ends = self.ttl_end.is_some_and(|end| ends(end) && !self.is_renewed_at(end.lo));
        !key_ends && !self.holds.iter().any(|hold| matches!(hold, Hold::Fixed { end } if ends(*end)))
    }

    /// Fixed holds whose lease has ended give their count back while others are left; a key whose time is over is gone.
    ///
    /// Near such an end it is left open for a moment whether it has come: the count that was `seen` in Redis decides.
    pub(super) fn pass(&mut self, now: Span, seen: Option<usize>) {
        if self.holds.is_empty() {
            return;
        }
        let key_may_be_gone = self.ttl_end.is_some_and(|end| end.lo - GRAIN <= now.hi && !self.is_renewed_at(end.lo));
        let key_is_gone = self.ttl_end.is_some_and(|end| end.hi + GRAIN < now.lo) && !self.is_renewed();
        if key_is_gone || (key_may_be_gone && seen == Some(0)) {
            return self.clear();
        }
        if self.orphan {
            return;
        }
        let mut at = 0;
        while let Some(hold) = self.holds.get(at) {
            let Hold::Fixed { end } = *hold else {
                at += 1;
                continue;
            };
            let is_over = end.hi + GIVE_BACK < now.lo;
            let may_be_over = end.lo - LOSS_MARGIN <= now.hi;
            let given_back = is_over || (may_be_over && seen.is_some_and(|seen| seen < self.holds.len()));
            let alone = self.holds.iter().filter(|hold| **hold != Hold::Forgotten).count() == 1;
            if alone && is_over {
                self.holds[at] = Hold::Forgotten;
            } else if !alone && given_back {
                self.holds.remove(at);
                continue;
            }
            at += 1;
        }
    }

    /// What must be under the key. `behind` is how much later than wanted timers may be.
    pub(super) fn held(&self, now: Span, behind: i64) -> Option<Held> {
        let owner = self.owner.clone()?;
        let pttl = self.ttl_end.map(|end| {
            if self.is_renewed() {
                let range = self.renewed_ttl(end, now);
                return Range { min: range.min - behind - GRAIN, max: range.max + GRAIN };
            }
            Range { min: end.lo - now.hi - GRAIN, max: end.hi - now.lo + GRAIN }
        });
        Some(Held { owner, count: self.holds.len(), pttl })
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

    fn is_renewed(&self) -> bool {
        !self.orphan && self.holds.contains(&Hold::Watchdog)
    }

    /// Whether it has certainly been renewed by this time, since somebody else set the TTL.
    fn is_renewed_at(&self, now: i64) -> bool {
        self.is_renewed() && now >= self.unrenewed_until
    }

    /// The TTL goes to the latest end of all holds; a watchdog hold ends one timeout from now.
    fn set_ttl(&mut self, at: Span) {
        let ends = self.holds.iter().map(|hold| match hold {
            Hold::Watchdog => at.plus(self.watchdog),
            // The time left is reckoned when the command is sent and counts from when it runs.
            Hold::Fixed { end } => Span { lo: end.lo, hi: end.hi + (at.hi - at.lo) },
            // Whoever releases what it does not know leaves one timeout to the rest.
            Hold::Forgotten => at.plus(self.watchdog),
        });
        self.ttl_end = ends.reduce(Span::later);
    }

    /// Renewals come every third of the timeout and set the latest end again.
    fn renewed_ttl(&self, end: Span, now: Span) -> Range {
        let left = end.lo - now.hi;
        let min = if self.is_renewed_at(now.lo) { left.max(self.watchdog * 2 / 3 - TIMER_SLACK) } else { left };
        Range { min, max: (end.hi - now.lo).max(self.watchdog) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: i64) -> Span {
        Span { lo: ms, hi: ms + 2 }
    }

    fn owner() -> Owner {
        Owner::new("A", 1)
    }

    fn lock(leases: &[(i64, Option<i64>)]) -> Lock {
        let mut lock = Lock::free(3_000);
        for (ms, lease) in leases {
            lock.acquire(owner(), *lease, at(*ms));
        }
        lock
    }

    #[track_caller]
    fn assert_held(lock: &Lock, now: i64, count: usize, pttl: i64) {
        let held = lock.held(at(now), 0).expect("held");
        assert_eq!(held.count, count);
        let range = held.pttl.expect("a TTL");
        assert!((range.min..=range.max).contains(&pttl), "{pttl} in {range:?}");
        assert!(range.max - range.min < 60, "{range:?} is tight");
    }

    #[test]
    fn a_shorter_re_entry_does_not_shorten_the_ttl() {
        let lock = lock(&[(0, Some(9_000)), (10, Some(4_000))]);
        assert_held(&lock, 1_000, 2, 8_000);
    }

    #[test]
    fn a_longer_re_entry_raises_the_ttl() {
        let lock = lock(&[(0, Some(4_000)), (10, Some(9_000))]);
        assert_held(&lock, 1_000, 2, 8_010);
    }

    #[test]
    fn a_release_drops_the_latest_hold_and_keeps_the_end_of_the_rest() {
        let mut lock = lock(&[(0, Some(9_000)), (10, Some(20_000))]);
        assert_eq!(lock.release(&owner(), at(1_000)), Released::Partly);
        assert_held(&lock, 1_000, 1, 8_000);
        assert_eq!(lock.release(&owner(), at(1_010)), Released::Fully);
        assert_eq!(lock.release(&owner(), at(1_020)), Released::NotOwner);
        assert_eq!(lock.held(at(1_030), 0), None);
    }

    #[test]
    fn a_release_that_leaves_a_watchdog_hold_starts_its_timeout_again() {
        let mut lock = lock(&[(0, None), (10, Some(20_000))]);
        assert_eq!(lock.release(&owner(), at(2_000)), Released::Partly);
        assert_held(&lock, 2_000, 1, 3_000);
    }

    #[test]
    fn renewal_never_cuts_a_longer_fixed_lease() {
        let lock = lock(&[(0, Some(9_000)), (10, None)]);
        assert_held(&lock, 5_000, 2, 4_000);
        let range = lock.held(at(8_000), 0).and_then(|held| held.pttl).expect("a TTL");
        assert!(range.min <= 1_700 && range.max >= 3_000, "renewed: {range:?}");
    }

    #[test]
    fn a_fixed_hold_that_ends_under_a_living_key_gives_its_count_back() {
        let mut lock = lock(&[(0, Some(1_000)), (10, Some(5_000))]);
        lock.pass(at(400), Some(2));
        assert_held(&lock, 400, 2, 4_610);
        assert!(!lock.is_certain(at(1_200)));
        lock.pass(at(2_000), None);
        assert_held(&lock, 2_000, 1, 3_010);
    }

    #[test]
    fn near_the_end_of_a_lease_the_count_in_redis_decides() {
        for (seen, count) in [(2, 2), (1, 1)] {
            let mut lock = lock(&[(0, Some(1_000)), (10, None)]);
            lock.pass(at(1_100), Some(seen));
            assert_eq!(lock.count(), count);
        }
    }

    #[test]
    fn the_last_hold_ends_with_its_key_and_gives_nothing_back() {
        let mut lock = lock(&[(0, Some(1_000))]);
        lock.pass(at(990), Some(1));
        assert_eq!(lock.count(), 1);
        lock.pass(at(1_100), Some(0));
        assert_eq!(lock.count(), 0);
    }

    #[test]
    fn a_key_that_was_given_more_time_outlives_its_last_hold() {
        let mut lock = lock(&[(0, Some(1_000))]);
        lock.ttl_was_set(Some(9_000), at(100));
        lock.pass(at(2_000), None);
        assert_held(&lock, 2_000, 1, 7_100);
        // Asked for again it counts from one.
        lock.acquire(owner(), Some(500), at(2_010));
        assert_held(&lock, 2_010, 1, 500);
    }

    #[test]
    fn what_is_left_of_forgotten_holds_gets_one_timeout() {
        let mut lock = lock(&[(0, Some(1_000)), (10, Some(1_000))]);
        lock.ttl_was_set(Some(9_000), at(100));
        // Both ended in the same instant.
        lock.pass(at(1_005), Some(2));
        lock.holds.fill(Hold::Forgotten);
        assert_eq!(lock.release(&owner(), at(2_000)), Released::Partly);
        assert_held(&lock, 2_000, 1, 3_000);
    }

    #[test]
    fn the_holds_of_a_killed_process_end_with_the_key() {
        let mut lock = lock(&[(0, Some(1_000)), (10, None)]);
        lock.orphan(at(20));
        lock.pass(at(2_000), None);
        assert_eq!(lock.held(at(2_000), 0).map(|held| held.count), Some(2));
        lock.pass(at(3_200), None);
        assert_eq!(lock.held(at(3_200), 0), None);
    }

    #[test]
    fn a_ttl_that_somebody_set_stands_until_the_next_renewal() {
        let mut lock = lock(&[(0, None)]);
        lock.ttl_was_set(Some(2_000), at(100));
        let range = |lock: &Lock, now: i64| lock.held(at(now), 0).and_then(|held| held.pttl).expect("a TTL");
        assert!((1_960..=2_000).contains(&range(&lock, 100).min));
        assert!(range(&lock, 2_000).min > 1_600);
        // One that ends before the next renewal may take the key with it, or not.
        lock.ttl_was_set(Some(300), at(3_000));
        assert!(!lock.is_certain(at(3_300)));
        assert_eq!(lock.frees_itself().map(|end| end.hi), Some(i64::MAX));
        let mut renewed = lock.clone();
        renewed.pass(at(3_400), Some(1));
        assert_eq!(renewed.count(), 1);
        lock.pass(at(3_400), Some(0));
        assert_eq!(lock.count(), 0);
    }

    #[test]
    fn redissons_holds_overwrite_the_ttl_and_end_with_the_key() {
        let mut lock = Lock::free(3_000);
        lock.acquire_there(owner(), 9_000, at(0));
        lock.acquire_there(owner(), 1_000, at(10));
        assert_held(&lock, 10, 2, 1_000);
        assert_eq!(lock.release_there(&owner(), 5_000, at(20)), Released::Partly);
        assert_held(&lock, 20, 1, 5_000);
        lock.pass(at(6_000), None);
        assert_eq!(lock.count(), 0);
    }

    #[test]
    fn another_owner_starts_afresh() {
        let mut lock = lock(&[(0, Some(1_000)), (10, Some(1_000))]);
        lock.acquire(Owner::new("B", 1), Some(500), at(1_500));
        assert_held(&lock, 1_500, 1, 500);
    }
}
