//! How long Redis keeps a hold, and how long we trust it.

use std::time::Duration;

use crate::error::{Error, Misuse};

/// `PEXPIRE` adds the lease to the wall clock in ms; this much room keeps the sum within i64.
const MAX_LEASE_MS: u64 = i64::MAX as u64 - (1 << 44);

/// How long Redis keeps a hold when nobody renews it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Lease {
    /// Ends by itself after this time and is not renewed.
    Fixed(Duration),
    /// One watchdog timeout, renewed every third of it until released.
    Watchdog,
}

/// A lease that has been checked: whole milliseconds, more than zero, within what Redis can add up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Term {
    pub(crate) length: Duration,
    pub(crate) renewed: bool,
}

impl Term {
    pub(crate) fn new(lease: Lease, watchdog_timeout: Duration) -> Result<Self, Error> {
        match lease {
            Lease::Watchdog => Ok(Self { length: watchdog_timeout, renewed: true }),
            Lease::Fixed(length) => Ok(Self { length: whole_millis(length)?, renewed: false }),
        }
    }
}

/// Rounds up to whole milliseconds; refuses zero and what `PEXPIRE` cannot take.
pub(crate) fn whole_millis(lease: Duration) -> Result<Duration, Error> {
    let millis = lease.as_nanos().div_ceil(1_000_000);
    match u64::try_from(millis) {
        Ok(ms) if (1..=MAX_LEASE_MS).contains(&ms) => Ok(Duration::from_millis(ms)),
        _ => Err(Error::Misuse(Misuse::LeaseOutOfRange { lease })),
    }
}

/// Milliseconds as the wire wants them, rounded up, at least 1.
pub(crate) fn wire_millis(d: Duration) -> u64 {
    let ms = d.as_nanos().div_ceil(1_000_000);
    u64::try_from(ms).unwrap_or(MAX_LEASE_MS).clamp(1, MAX_LEASE_MS)
}

/// What is taken off a lease before it is trusted: a hundredth within 5 and 500 ms, a tenth for leases below 50 ms.
pub(crate) fn margin(lease: Duration) -> Duration {
    if lease < Duration::from_millis(50) {
        return lease / 10;
    }
    (lease / 100).clamp(Duration::from_millis(5), Duration::from_millis(500))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn leases_round_up_to_whole_milliseconds() {
        let cases = [(1, 1), (999_999, 1), (1_000_000, 1), (1_000_001, 2), (2_500_000, 3)];
        for (nanos, ms) in cases {
            let got = whole_millis(Duration::from_nanos(nanos)).expect("in range");
            assert_eq!(got, Duration::from_millis(ms), "{nanos} ns");
        }
    }

    #[test]
    fn zero_and_endless_leases_are_refused_by_name() {
        for lease in [Duration::ZERO, Duration::MAX, Duration::from_millis(i64::MAX as u64)] {
            let error = whole_millis(lease).expect_err("out of range");
            assert!(matches!(error, Error::Misuse(Misuse::LeaseOutOfRange { lease: l }) if l == lease));
        }
    }

    #[test]
    fn the_margin_is_a_hundredth_within_bounds() {
        let cases = [
            (10, 1_000),
            (40, 4_000),
            (50, 5_000),
            (400, 5_000),
            (10_000, 100_000),
            (30_000, 300_000),
            (600_000, 500_000),
        ];
        for (lease_ms, micros) in cases {
            assert_eq!(margin(Duration::from_millis(lease_ms)), Duration::from_micros(micros), "{lease_ms} ms");
        }
    }
}
