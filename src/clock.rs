//! The clock against which leases are judged.
//!
//! On Linux and Android it goes on counting while the machine is suspended (`CLOCK_BOOTTIME`, feature
//! `suspend-clock`), because Redis goes on counting too. Elsewhere it is the monotonic clock.

use std::time::Duration;

/// A point in time, in nanoseconds from an origin that only this process knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Moment(u64);

impl Moment {
    pub(crate) fn now() -> Self {
        Self(nanos_now())
    }

    pub(crate) fn plus(self, by: Duration) -> Self {
        Self(self.0.saturating_add(saturating_nanos(by)))
    }

    pub(crate) fn minus(self, by: Duration) -> Self {
        Self(self.0.saturating_sub(saturating_nanos(by)))
    }

    /// Time from `earlier` to `self`, zero if `earlier` is not earlier.
    pub(crate) fn since(self, earlier: Self) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }

    pub(crate) fn as_nanos(self) -> u64 {
        self.0
    }

    pub(crate) fn from_nanos(nanos: u64) -> Self {
        Self(nanos)
    }
}

fn saturating_nanos(d: Duration) -> u64 {
    u64::try_from(d.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(all(feature = "suspend-clock", any(target_os = "linux", target_os = "android")))]
fn nanos_now() -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
    // Both fields are never negative for this clock.
    (now.tv_sec as u64) * 1_000_000_000 + now.tv_nsec as u64
}

#[cfg(not(all(feature = "suspend-clock", any(target_os = "linux", target_os = "android"))))]
fn nanos_now() -> u64 {
    use std::time::Instant;
    static ORIGIN: once_cell::sync::Lazy<Instant> = once_cell::sync::Lazy::new(Instant::now);
    saturating_nanos(ORIGIN.elapsed()) + 1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn adding_the_longest_duration_saturates() {
        assert_eq!(Moment::now().plus(Duration::MAX), Moment::from_nanos(u64::MAX));
        assert_eq!(Moment::from_nanos(3).minus(Duration::from_secs(1)), Moment::from_nanos(0));
    }

    #[test]
    fn time_does_not_run_backwards() {
        let first = Moment::now();
        let second = Moment::now();
        assert!(second >= first);
        assert_eq!(first.since(second.plus(Duration::from_secs(1))), Duration::ZERO);
    }
}
