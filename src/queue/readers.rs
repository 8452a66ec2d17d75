//! Readers and writers: readers go in together, and neither kind keeps the other out for ever.
//!
//! The line is served in order: a writer waits for the readers before it, readers wait for the writer before them. That gate
//! is ours, not Redis'; it opens once in a while, for a task may hold a read lock and, in another owner's name, wait for one.

use std::time::Duration;

use super::{Discipline, HoldId, Known, Queue, WaiterId, WaiterState};
use crate::{
    clock::Moment,
    few::Few,
    owner::{Holder, Role},
};

/// A writer in line holds up readers that Redis would let in for this long.
const GATE: Duration = Duration::from_secs(1);

impl Queue {
    /// Whether the lock is read here, so that more readers may come.
    fn is_read_here(&self) -> bool {
        let has = |role| self.owners.iter().any(|o| o.id.role == role && o.count > 0 && !o.live.is_empty());
        // Whoever writes may read as well, alone.
        has(Role::Read) && !has(Role::Write) && !matches!(self.known, Known::Busy { by_readers: false, .. })
    }

    /// Several waiters of one owner go in one after the other.
    pub(super) fn ask_each(&mut self, now: Moment, waiters: &[WaiterId], out: &mut Few<super::Command>) {
        for &id in waiters {
            if self.waiter(id).map(|w| w.want.owner).is_some_and(|owner| self.is_idle_owner(owner)) {
                self.start_attempt(now, id, out);
            }
        }
    }

    /// While the lock is read here, all readers in front of the first writer ask at once.
    pub(super) fn let_readers_in(&mut self, now: Moment, out: &mut Few<super::Command>) {
        if self.settings.discipline != Discipline::Readers || !self.is_read_here() {
            return;
        }
        let mut ids: Vec<WaiterId> = Vec::new();
        for waiter in &self.line {
            match (waiter.want.owner.role, &waiter.state) {
                (Role::Read, WaiterState::Waiting) if !waiter.stalled && self.is_idle_owner(waiter.want.owner) => {
                    ids.push(waiter.id);
                }
                (Role::Read, _) | (_, WaiterState::Over(_)) => {}
                _ if waiter.stalled => {}
                _ => break,
            }
        }
        self.ask_each(now, &ids, out);
    }

    /// Sets or takes back the time at which readers pass the writer in front of them.
    pub(super) fn set_the_gate(&mut self, now: Moment) {
        let by_readers = matches!(self.known, Known::Busy { by_readers: true, .. });
        // A writer that is just asking holds them up, too: the gate is not set anew for that.
        let waiting =
            |w: &&super::Waiter| matches!(w.state, WaiterState::Waiting | WaiterState::InFlight) && !w.stalled;
        let mut line = self.line.iter().filter(waiting);
        let holds_up = line.next().is_some_and(|w| w.want.owner.role == Role::Write)
            && line.any(|w| w.want.owner.role == Role::Read)
            && (by_readers || self.is_read_here());
        self.gate_until = holds_up.then(|| self.gate_until.unwrap_or(now.plus(GATE)));
    }

    /// The readers in line now pass the writer; those who come later wait again.
    pub(super) fn open_the_gate(&mut self, now: Moment) {
        if self.gate_until.is_none_or(|until| until > now) {
            return;
        }
        self.gate_until = None;
        let passes = |w: &super::Waiter| {
            w.want.owner.role == Role::Read && matches!(w.state, WaiterState::Waiting) && !w.stalled
        };
        while let Some(index) = self.line.iter().position(passes) {
            let waiter = self.line.remove(index);
            self.direct.extend(waiter);
        }
    }

    /// A refusal says what others do with the key: who is believed to do otherwise here has lost it.
    pub(super) fn lose_what_contradicts(
        &mut self,
        refused: Holder,
        by_readers: bool,
        newest: HoldId,
        out: &mut Few<super::Command>,
    ) {
        let impossible = match (refused.role, by_readers) {
            (Role::Sole, _) | (Role::Write, false) => return,
            (Role::Read, _) => Role::Read,
            (Role::Write, true) => Role::Write,
        };
        // Whoever writes may read as well, and it may be one of ours, or have been when the question was sent.
        let writes = |o: &super::holds::Owner| o.id.role == Role::Write && (o.count > 0 || !o.is_idle());
        if impossible == Role::Read && (newest < self.written || self.owners.iter().any(writes)) {
            return;
        }
        let wrong = |o: &&super::holds::Owner| o.id.role == impossible && o.is_idle();
        let owners: Vec<Holder> = self.owners.iter().filter(wrong).map(|o| o.id).collect();
        for owner in owners {
            self.lose_some(owner, |id| id <= newest, out);
            let state = self.owner_mut(owner);
            if state.live.is_empty() && state.granted <= newest {
                state.counts(0);
            }
        }
    }

    /// Whether a hold that is live here keeps this holder out.
    pub(super) fn keeps_out(&self, held: Holder, wants: Holder) -> bool {
        match (held.role, wants.role) {
            (Role::Read, Role::Read) => false,
            (Role::Write, Role::Read) => held.owner != wants.owner,
            _ => held != wants,
        }
    }
}
