//! What locks of every kind need to know of those who wait and of those who hold.

use super::super::call::{Call, Owner};
use super::{WATCHDOG_MS, When};

/// A call that waits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Waiter {
    pub(super) id: usize,
    pub(super) owner: Owner,
    /// It asks to share.
    pub(super) shares: bool,
    pub(super) lease: Option<i64>,
    /// When it gives up.
    pub(super) deadline: Option<When>,
    /// The end of the key as it knows it: it looks again then, told or not.
    pub(super) seen: When,
}

/// How long a call may wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Patience {
    OneAttempt,
    Until(i64),
    Forever,
}

impl Patience {
    pub(super) fn of(call: &Call) -> Self {
        match (call.op, call.wait_ms()) {
            ("lock", _) => Self::Forever,
            (_, Some(ms)) if ms > 0 => Self::Until(ms),
            _ => Self::OneAttempt,
        }
    }
}

/// The acquiring calls, of any kind.
pub(super) fn is_acquire(op: &str) -> bool {
    matches!(op, "lock" | "tryLock" | "tryLockAndGetToken")
}

/// The holds of one owner as this crate's client knows them, oldest first. Java's client knows nothing of the kind.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Holds(Vec<Hold>);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Hold {
    Watchdog,
    Until(When),
    /// Its lease is over, and there was nothing else to hold: the client counts on the key to be gone.
    Forgotten,
}

impl Holds {
    /// One more; says how many counts were forgotten and are not counted any more.
    pub(super) fn push(&mut self, lease: Option<i64>, when: When) -> usize {
        let before = self.0.len();
        self.0.retain(|hold| *hold != Hold::Forgotten);
        let forgotten = before - self.0.len();
        self.0.push(lease.map_or(Hold::Watchdog, |lease| Hold::Until(when.plus(lease))));
        forgotten
    }

    pub(super) fn pop(&mut self) {
        self.0.pop();
    }

    /// The latest end; the watchdog's is one timeout away.
    pub(super) fn latest(&self, now: When) -> Option<When> {
        let ends = self.0.iter().filter_map(|hold| match hold {
            Hold::Watchdog => Some(now.plus(WATCHDOG_MS)),
            Hold::Until(ends) => Some(*ends),
            Hold::Forgotten => None,
        });
        ends.reduce(When::later)
    }

    /// The leases that end before the key does, and their places.
    pub(super) fn ends_before(&self, key: When) -> impl Iterator<Item = (usize, When)> {
        self.0.iter().enumerate().filter_map(move |(at, hold)| match hold {
            Hold::Until(ends) if ends.lo < key.lo - 5 => Some((at, *ends)),
            _ => None,
        })
    }

    /// A lease is over while the key lives on. Says whether its count is given back: not that of the last live hold.
    pub(super) fn over(&mut self, at: usize) -> bool {
        let alone = self.0.iter().filter(|hold| **hold != Hold::Forgotten).count() == 1;
        if alone {
            self.0[at] = Hold::Forgotten;
        } else {
            self.0.remove(at);
        }
        !alone
    }

    /// The same where the count is given back in any case.
    pub(super) fn end(&mut self, at: usize) {
        self.0.remove(at);
    }

    /// The ends from this place on.
    pub(super) fn from(&self, at: usize, now: When) -> Vec<Option<When>> {
        let end = |hold: &Hold| match hold {
            Hold::Watchdog => Some(now.plus(WATCHDOG_MS)),
            Hold::Until(ends) => Some(*ends),
            Hold::Forgotten => None,
        };
        self.0.iter().skip(at).map(end).collect()
    }
}
