//! Whether a hold can still be trusted: one atomic deadline, shared by the guard and the client.

use std::{
    sync::atomic::{AtomicU64, Ordering},
    time::Duration,
};

use tokio::sync::Notify;

use crate::clock::Moment;

/// The conservative end of a hold. Once lost it stays lost.
#[derive(Debug)]
pub(crate) struct Validity {
    /// Nanoseconds of [`Moment`]; 0 = lost.
    deadline: AtomicU64,
    changed: Notify,
}

impl Validity {
    pub(crate) fn until(deadline: Moment) -> Self {
        Self { deadline: AtomicU64::new(deadline.as_nanos().max(1)), changed: Notify::new() }
    }

    pub(crate) fn is_valid(&self, now: Moment) -> bool {
        now < self.deadline()
    }

    /// Time left at `now`.
    pub(crate) fn left(&self, now: Moment) -> Duration {
        self.deadline().since(now)
    }

    /// Puts the deadline off, never forward. A hold whose deadline has passed is lost for good: `false`.
    pub(crate) fn extend(&self, now: Moment, deadline: Moment) -> bool {
        let update = |old: u64| (old > now.as_nanos()).then_some(old.max(deadline.as_nanos()));
        let extended = self.deadline.fetch_update(Ordering::AcqRel, Ordering::Acquire, update).is_ok();
        if !extended {
            self.lose();
        }
        extended
    }

    pub(crate) fn lose(&self) {
        self.deadline.store(0, Ordering::Release);
        self.changed.notify_waiters();
    }

    /// Resolves when the hold is lost or its deadline has passed.
    pub(crate) async fn lost(&self) {
        loop {
            let changed = self.changed.notified();
            tokio::pin!(changed);
            changed.as_mut().enable();
            let left = self.left(Moment::now());
            if left.is_zero() {
                return;
            }
            // The timer does not count suspended time; looking again once a second does.
            tokio::select! {
                () = changed => {}
                () = tokio::time::sleep(left.min(Duration::from_secs(1))) => {}
            }
        }
    }

    fn deadline(&self) -> Moment {
        Moment::from_nanos(self.deadline.load(Ordering::Acquire))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: u64) -> Moment {
        Moment::from_nanos(ms * 1_000_000)
    }

    #[test]
    fn a_hold_is_valid_until_its_deadline_and_a_late_renewal_does_not_revive_it() {
        let validity = Validity::until(at(100));
        assert!(validity.is_valid(at(99)));
        assert!(!validity.is_valid(at(100)));
        assert!(validity.extend(at(99), at(200)));
        assert!(validity.is_valid(at(150)));
        assert!(!validity.extend(at(200), at(300)));
        assert!(!validity.is_valid(at(10)), "lost is final");
    }

    #[test]
    fn an_extension_never_brings_the_deadline_forward() {
        let validity = Validity::until(at(100));
        assert!(validity.extend(at(10), at(50)));
        assert!(validity.is_valid(at(99)));
    }
}
