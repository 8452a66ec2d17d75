//! How long one process may keep a lock among its own waiters while other processes want it too.
//!
//! A *run* is a row of grants by transfer, which others cannot see. It ends with a true release; then the head of our line
//! *stands back*: it lets the message of that release go to the others and asks at the next one, or after a moment.

use std::time::Duration;

use crate::clock::Moment;

/// A run ends after this time when nobody else listens.
const RUN_TIME: Duration = Duration::from_millis(50);
/// How long the head stands back.
const STAND_BACK: Duration = Duration::from_millis(2);
/// The same when nobody listens, which is once in a run time: for those who only look now and then.
const LONG_STAND_BACK: Duration = Duration::from_millis(3);
/// After so many stand-backs that gave the lock to nobody, stand back only once in a run time.
const VAIN: u32 = 3;

#[derive(Debug, Default)]
pub(crate) struct Sharing {
    /// Subscribers of the channel besides us, when last counted.
    pub(super) listeners: Option<u64>,
    /// Grants since the lock was last taken from outside.
    pub(super) run_length: u64,
    run_started: Option<Moment>,
    /// Releases by others since our last run.
    foreign_releases: u64,
    /// Grants that the run may have while others listen.
    allowance: u64,
    /// Messages of our own releases that are still to come.
    own_messages: u32,
    stand_back_until: Option<Moment>,
    last_stand_back: Option<Moment>,
    vain: u32,
}

impl Sharing {
    /// Whether the run may go on with a transfer.
    pub(super) fn may_transfer(&self, now: Moment) -> bool {
        let within_time = self.run_started.is_some_and(|start| now < start.plus(RUN_TIME));
        match self.listeners {
            Some(0) => within_time,
            _ if self.vain >= VAIN => within_time,
            // The first transfer of all counts the listeners.
            None if self.run_length <= 1 => true,
            _ => self.run_length < self.allowance,
        }
    }

    /// A grant that did not come by transfer starts a run.
    pub(super) fn granted(&mut self, now: Moment) {
        if self.run_length == 0 {
            self.run_started = Some(now);
            self.run_length = 1;
            self.allowance = (self.foreign_releases / self.listeners.unwrap_or(1).max(1)).max(1);
            self.foreign_releases = 0;
        }
        self.stand_back_until = None;
    }

    /// Our true release is on its way; its message will come back to us if we listen.
    pub(super) fn freeing(&mut self, listening: bool) {
        self.own_messages += u32::from(listening);
        self.run_length = 0;
        self.run_started = None;
    }

    /// The lock is free now. Where every release is a true one (no `runs`), others can come in between anyway.
    pub(super) fn freed(&mut self, now: Moment, others_wait_here: bool, runs: bool) {
        let due = runs && self.vain < VAIN || self.last_stand_back.is_none_or(|last| last.plus(RUN_TIME) <= now);
        if others_wait_here && due {
            let pause = if self.listeners == Some(0) { LONG_STAND_BACK } else { STAND_BACK };
            self.stand_back_until = Some(now.plus(pause));
            self.last_stand_back = Some(now);
        }
    }

    /// Until when the head must not ask; `None` when it may.
    pub(super) fn standing_back(&mut self, now: Moment) -> Option<Moment> {
        let until = self.stand_back_until?;
        if until > now {
            return Some(until);
        }
        self.stand_back_until = None;
        self.vain = self.vain.saturating_add(1);
        None
    }

    /// A message came: `true` if it tells something new.
    pub(super) fn heard(&mut self) -> bool {
        if self.own_messages > 0 {
            self.own_messages -= 1;
            return false;
        }
        self.foreign_releases += 1;
        self.vain = 0;
        self.stand_back_until = None;
        true
    }

    /// Somebody else was found holding the lock.
    pub(super) fn heard_foreign_holder(&mut self) {
        self.vain = 0;
        self.run_length = 0;
    }

    /// The release published nothing; `true` if a message of somebody else may have been taken for its.
    pub(super) fn unexpect_own_message(&mut self) -> bool {
        let expected = self.own_messages > 0;
        self.own_messages = self.own_messages.saturating_sub(1);
        !expected
    }

    pub(super) fn forget_own_messages(&mut self) {
        self.own_messages = 0;
    }
}
