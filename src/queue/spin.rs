//! Waiting where nobody tells: the head of the line asks again after a pause that grows.

use std::time::Duration;

use super::{Command, Queue, WaiterId, WaiterState};
use crate::{back_off::BackOff, clock::Moment, few::Few};

/// The pauses since the lock was last had here.
#[derive(Debug)]
pub(super) struct Spin {
    /// Whose pauses they are.
    of: WaiterId,
    since: Moment,
    pause: Duration,
    refusals: u32,
    next: Moment,
}

impl Default for Spin {
    fn default() -> Self {
        let start = Moment::from_nanos(0);
        Self { of: 0, since: start, pause: Duration::ZERO, refusals: 0, next: start }
    }
}

impl Spin {
    /// The head was refused.
    pub(super) fn refused(&mut self, now: Moment, of: WaiterId, back_off: BackOff) {
        if self.of != of {
            (self.of, self.refusals) = (of, 0);
        }
        self.since = now;
        self.refusals = self.refusals.saturating_add(1);
        self.pause = match self.refusals {
            1 => back_off.first(),
            // The clock's last digits are random enough to keep apart those who were refused together.
            n => back_off.next(self.pause, n - 1, now.as_nanos() / 64),
        };
        self.next = now.plus(self.pause);
    }

    /// The lock was had here, and is free again: others get the first chance.
    pub(super) fn freed(&mut self, now: Moment, back_off: BackOff) {
        (self.refusals, self.pause, self.since) = (0, Duration::ZERO, now);
        self.next = now.plus(back_off.first());
    }

    /// When the head asks next: after its own pause, and no later than after its first one where that of another still runs.
    pub(super) fn next(&self, head: WaiterId, back_off: BackOff) -> Moment {
        if self.of == head { self.next } else { self.next.min(self.since.plus(back_off.first())) }
    }
}

impl Queue {
    /// The wait of the head is over: it asks once more, in place of the rest of its pause. `false`: there is no point.
    pub(super) fn ask_a_last_time(&mut self, now: Moment, id: WaiterId, out: &mut Few<Command>) -> bool {
        if self.is_taking_turns() || self.head() != Some(id) || self.closed {
            return false;
        }
        let Some(waiter) = self.waiter(id) else { return false };
        debug_assert!(matches!(waiter.state, WaiterState::Waiting), "a head waits");
        waiter.expired = true;
        self.turn = Some(id);
        self.start_attempt(now, id, out);
        true
    }

    pub(super) fn head_back_off(&self) -> BackOff {
        self.head_waiter().map(|w| w.want.back_off).unwrap_or_default()
    }

    pub(super) fn next_spin(&self) -> Moment {
        self.head_waiter().map_or(Moment::from_nanos(0), |w| self.spin.next(w.id, w.want.back_off))
    }
}
