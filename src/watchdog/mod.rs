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

    /// A new hold.
    pub(crate) fn watch(&self, now: Moment, hold: T) -> Token {
        let mut hasher = self.seed.build_hasher();
        hasher.write_u64(now.as_nanos());
        let part = (hasher.finish() >> 40) as u32;
        self.alarm.set(now.plus(self.period * (part % 1024) / 1024), hold)
    }

    /// A hold that was renewed at `at`.
    pub(crate) fn again(&self, at: Moment, hold: T) -> Token {
        self.alarm.set(at.plus(self.period), hold)
    }

    /// A hold whose renewal failed just now.
    pub(crate) fn retry(&self, now: Moment, hold: T) -> Token {
        self.alarm.set(now.plus(self.period / RETRIES), hold)
    }

    pub(crate) fn cancel(&self, token: Token) {
        self.alarm.cancel(token);
    }

    pub(crate) fn len(&self) -> usize {
        self.alarm.len()
    }
}
