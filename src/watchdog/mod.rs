//! Renews the leases of holds that were taken without one of their own.
//!
//! A wheel of ticks of a sixty-fourth of the period; what is due in one tick goes out together. The first renewal comes at a
//! random point of the first period, so that holds taken together are not renewed together.

pub(crate) mod alarm;
pub(crate) mod wheel;

use std::{
    hash::{BuildHasher, Hasher, RandomState},
    sync::Arc,
    time::Duration,
};

use tokio::runtime::Handle;

use crate::clock::Moment;
use alarm::Alarm;
use wheel::Token;

/// Ticks of a period, and slots of a turn of the wheel.
const TICKS: u32 = 64;
/// A failed renewal is tried again after this part of the period.
const RETRIES: u32 = 8;

/// The schedule of renewals; what is due goes to the function given to [`Watchdog::new`].
pub(crate) struct Watchdog<T> {
    alarm: Arc<Alarm<T>>,
    period: Duration,
    seed: RandomState,
}

impl<T: Send + 'static> Watchdog<T> {
    pub(crate) fn new(timeout: Duration, runtime: &Handle, renew: impl Fn(Vec<T>) + Send + 'static) -> Self {
        let period = timeout / 3;
        let tick = (period / TICKS).max(Duration::from_millis(1));
        Self { alarm: Alarm::new(tick, 2 * TICKS as usize, runtime, renew), period, seed: RandomState::new() }
    }

    /// When a new hold is renewed first.
    pub(crate) fn first(&self, now: Moment) -> Moment {
        let mut hasher = self.seed.build_hasher();
        hasher.write_u64(now.as_nanos());
        let part = (hasher.finish() >> 40) as u32;
        now.plus(self.period * (part % 1024) / 1024)
    }

    /// When a hold is renewed next whose turn was at `due`: its place in the period stays, however late this renewal was.
    pub(crate) fn next(&self, now: Moment, due: Moment) -> Moment {
        let periods = now.since(due).as_nanos() / self.period.as_nanos() + 1;
        due.plus(self.period.saturating_mul(u32::try_from(periods).unwrap_or(u32::MAX)))
    }

    /// When a renewal that failed just now is tried again.
    pub(crate) fn retry(&self, now: Moment) -> Moment {
        now.plus(self.period / RETRIES)
    }

    pub(crate) fn set(&self, at: Moment, hold: T) -> Token {
        self.alarm.set(at, hold)
    }

    pub(crate) fn cancel(&self, token: Token) {
        self.alarm.cancel(token);
    }

    pub(crate) fn len(&self) -> usize {
        self.alarm.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_late_renewal_does_not_move_a_holds_place_in_the_period() {
        let watchdog = Watchdog::<()>::new(Duration::from_secs(30), &Handle::current(), |_| ());
        let due = Moment::now();
        let at = |secs: u64| due.plus(Duration::from_secs(secs));
        for (now, next) in [(0, 10), (3, 10), (9, 10), (10, 20), (34, 40)] {
            assert_eq!(watchdog.next(at(now), due), at(next));
        }
        let first = watchdog.first(due);
        assert!(first >= due && first < at(10));
    }
}
