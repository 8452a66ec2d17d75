//! How long a spinning waiter pauses between two attempts.

use std::time::Duration;

/// Pauses of a [`SpinLock`](crate::SpinLock)'s waiters.
///
/// The default is Redisson's: 1 ms, doubled after each refusal plus some random milliseconds, up to 128 ms.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BackOff {
    initial: Duration,
    max: Duration,
    multiplier: u32,
}

impl BackOff {
    /// Starts with `initial`, multiplies after each refusal, and stays at `max` once that is reached. Pauses below 1 ms are
    /// 1 ms, a multiplier of 0 is 1.
    pub fn exponential(initial: Duration, max: Duration, multiplier: u32) -> Self {
        let initial = initial.max(Duration::from_millis(1));
        Self { initial, max: max.max(initial), multiplier: multiplier.max(1) }
    }

    /// The same pause always, at least 1 ms. Redisson's default for this form is 64 ms.
    pub fn constant(delay: Duration) -> Self {
        Self::exponential(delay, delay, 1)
    }

    pub(crate) fn first(&self) -> Duration {
        self.initial
    }

    /// The pause after `pause`, at the given refusal counted from 1. `random` spreads those who were refused together.
    pub(crate) fn next(&self, pause: Duration, refusal: u32, random: u64) -> Duration {
        if self.initial == self.max {
            return self.max;
        }
        let jitter = Duration::from_millis(random % u64::from(refusal.max(1)));
        pause.saturating_mul(self.multiplier).saturating_add(jitter).min(self.max)
    }
}

impl Default for BackOff {
    fn default() -> Self {
        Self::exponential(Duration::from_millis(1), Duration::from_millis(128), 2)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_double_with_a_growing_jitter_up_to_the_cap() {
        let back_off = BackOff::default();
        let mut pause = back_off.first();
        let mut millis = vec![pause.as_millis()];
        for refusal in 1..=9 {
            pause = back_off.next(pause, refusal, 0);
            millis.push(pause.as_millis());
        }
        assert_eq!(millis, [1, 2, 4, 8, 16, 32, 64, 128, 128, 128]);
        let jittered: Vec<u128> =
            (0..3).map(|random| back_off.next(Duration::from_millis(4), 3, random).as_millis()).collect();
        assert_eq!(jittered, [8, 9, 10]);
        assert_eq!(back_off.next(Duration::from_millis(4), 3, 3).as_millis(), 8, "less than the refusals counted");
    }

    #[test]
    fn a_constant_pause_stays_what_it_is() {
        let back_off = BackOff::constant(Duration::from_millis(64));
        assert_eq!(back_off.first(), back_off.next(back_off.first(), 7, 6));
        assert_eq!(BackOff::constant(Duration::ZERO).first(), Duration::from_millis(1));
    }
}
