//! Those who wait: joining, being offered the lock, taking it, leaving.

use std::task::Waker;

use super::{Command, Discipline, Held, Queue, WaitOutcome, Waiter, WaiterId, WaiterState, Want, offer_bound};
use crate::{
    clock::Moment,
    error::Error,
    few::Few,
    owner::{Holder, Role},
};

impl Queue {
    /// A caller wants the lock. It is woken when [`poll`](Self::poll) has its outcome; `true`: it has it now.
    pub(crate) fn join(&mut self, now: Moment, want: Want, waker: &Waker, out: &mut Few<Command>) -> (WaiterId, bool) {
        let id = self.next_id();
        let mut waiter = Waiter {
            id,
            want,
            expired: false,
            stalled: false,
            state: WaiterState::Waiting,
            waker: Some(waker.clone()),
        };
        self.abandoned.retain(|(_, until)| *until > now);
        if self.closed {
            waiter.state = WaiterState::Over(Some(Error::Closed));
        } else if self.abandoned.iter().any(|(gone, _)| gone.owner == want.owner.owner) {
            let (key, owner) = (self.settings.name.to_string(), want.owner.owner);
            waiter.state = WaiterState::Over(Some(Error::Unresolved { key, owner }));
        }
        let over = matches!(waiter.state, WaiterState::Over(_));
        if want.immediate || self.holds_somehow(want.owner.owner) {
            self.direct.push(waiter);
        } else {
            self.line.push_back(waiter);
        }
        self.pump(now, out);
        (id, over)
    }

    /// The waiter's future was polled: takes what is offered, or leaves a waker.
    pub(crate) fn poll(
        &mut self,
        now: Moment,
        id: WaiterId,
        waker: &Waker,
        out: &mut Few<Command>,
    ) -> Option<WaitOutcome> {
        let Some(waiter) = self.waiter(id) else { return Some(WaitOutcome::NotGranted) };
        let was_stalled = std::mem::replace(&mut waiter.stalled, false);
        match waiter.state {
            WaiterState::Waiting | WaiterState::InFlight | WaiterState::Leaving => {
                match &mut waiter.waker {
                    Some(old) => old.clone_from(waker),
                    none => *none = Some(waker.clone()),
                }
                if was_stalled {
                    self.pump(now, out);
                }
                None
            }
            WaiterState::Offered { .. } | WaiterState::Over(_) => {
                let waiter = self.remove_waiter(id)?;
                let outcome = match waiter.state {
                    WaiterState::Offered { held, .. } => self.take(now, waiter.want.owner, held, out),
                    WaiterState::Over(None) => WaitOutcome::NotGranted,
                    WaiterState::Over(Some(error)) => WaitOutcome::Failed(error),
                    _ => unreachable!("matched above"),
                };
                self.pump(now, out);
                Some(outcome)
            }
        }
    }

    /// The waiter's time is over: `true` if it is out, `false` if an attempt of its is in flight, an offer stands, or it has to
    /// be taken out of a queue in Redis first.
    pub(crate) fn expire(&mut self, now: Moment, id: WaiterId, out: &mut Few<Command>) -> bool {
        match self.waiter(id) {
            None => true,
            Some(waiter) if matches!(waiter.state, WaiterState::Waiting) => {
                if self.settings.discipline == Discipline::Spin && self.ask_a_last_time(now, id, out) {
                    return false;
                }
                if self.leaves_a_seat(id) {
                    self.pump(now, out);
                    return false;
                }
                self.remove_waiter(id);
                self.pump(now, out);
                true
            }
            Some(waiter) => {
                waiter.expired = true;
                false
            }
        }
    }

    /// The waiter's future is gone. What it was offered, or is being granted, is passed on or given back.
    pub(crate) fn leave(&mut self, now: Moment, id: WaiterId, out: &mut Few<Command>) {
        let Some(waiter) = self.remove_waiter(id) else { return };
        if let WaiterState::Offered { held, .. } = waiter.state {
            self.give_back(waiter.want.owner, held.id);
        }
        self.pump(now, out);
    }

    /// Whether somebody still wants what an attempt would get.
    pub(crate) fn wants(&self, id: WaiterId) -> bool {
        self.line_index(id).is_some() || self.direct.iter().any(|w| w.id == id)
    }

    // ---- parts

    /// The waiter's wait ends, with an error or without the lock.
    pub(super) fn finish(&mut self, id: WaiterId, error: Option<Error>, out: &mut Few<Command>) {
        if let Some(waiter) = self.waiter(id) {
            waiter.state = WaiterState::Over(error);
            out.extend(waiter.waker.take().map(Command::Wake));
        }
    }

    /// The attempt found the lock busy: the waiter goes on waiting, if it may.
    pub(super) fn refused(&mut self, id: WaiterId, out: &mut Few<Command>) {
        match self.waiter(id) {
            // It was told something else meanwhile, and has not looked yet.
            Some(waiter) if matches!(waiter.state, WaiterState::Over(_)) => {}
            Some(waiter) if waiter.want.immediate || waiter.expired => self.finish(id, None, out),
            _ => self.back_in_line(id, out),
        }
    }

    pub(super) fn back_in_line(&mut self, id: WaiterId, out: &mut Few<Command>) {
        let Some(waiter) = self.waiter(id) else { return };
        if matches!(waiter.state, WaiterState::Over(_)) {
            return;
        }
        if waiter.expired {
            return self.finish(id, None, out);
        }
        waiter.state = WaiterState::Waiting;
        if self.end_abandoned(id, out) {
            return;
        }
        let Some(index) = self.direct.iter().position(|w| w.id == id && !w.want.immediate) else { return };
        let waiter = self.direct.remove(index);
        let place = self.line.partition_point(|w| w.id < id);
        self.line.insert(place, waiter);
    }

    /// Nobody waits in the name of an owner whose command may still run.
    fn end_abandoned(&mut self, id: WaiterId, out: &mut Few<Command>) -> bool {
        let Some(owner) = self.waiter(id).map(|w| w.want.owner.owner) else { return false };
        let abandoned = self.abandoned.iter().any(|(gone, _)| gone.owner == owner);
        if abandoned {
            self.finish(id, Some(Error::Unresolved { key: self.settings.name.to_string(), owner }), out);
        }
        abandoned
    }

    /// Others of an owner that holds the key now pass every gate. A reader that also waits to write would wait for itself.
    pub(super) fn let_pass(&mut self, holder: Holder, out: &mut Few<Command>) {
        let mut waiting: Vec<(WaiterId, Role)> = Vec::new();
        let same = |w: &&Waiter| w.want.owner.owner == holder.owner && matches!(w.state, WaiterState::Waiting);
        waiting.extend(self.line.iter().filter(same).map(|w| (w.id, w.want.owner.role)));
        let writes =
            self.owners.iter().any(|o| o.id.owner == holder.owner && o.id.role == Role::Write && !o.live.is_empty());
        for (id, role) in waiting {
            if role != Role::Write || writes {
                let waiter = self.line_index(id).and_then(|index| self.line.remove(index));
                self.direct.extend(waiter);
            } else if !self.settings.upgrade_waits {
                self.finish(id, Some(self.upgrade_error(holder)), out);
            }
        }
    }

    pub(super) fn upgrade_error(&self, holder: Holder) -> Error {
        Error::UpgradeImpossible { key: self.settings.name.to_string(), owner: holder.owner }
    }

    pub(super) fn take(&mut self, now: Moment, owner: Holder, held: Held, out: &mut Few<Command>) -> WaitOutcome {
        let state = self.owner_mut(owner);
        let Some(hold) = state.live.iter_mut().find(|h| h.id == held.id) else {
            return WaitOutcome::Failed(self.lost_error(owner));
        };
        if !held.validity.is_valid(now) {
            self.give_back(owner, held.id);
            return WaitOutcome::Failed(self.lost_error(owner));
        }
        hold.taken = true;
        if self.is_renewed(owner) && self.owner_mut(owner).renewal.is_none() {
            out.push(Command::WatchRenewal(owner));
        }
        WaitOutcome::Granted(held)
    }

    pub(super) fn withdraw_stale_offers(&mut self, now: Moment, out: &mut Few<Command>) {
        let mut stale = Vec::new();
        for waiter in self.line.iter_mut().chain(&mut *self.direct) {
            if let WaiterState::Offered { held, since } = &waiter.state
                && since.plus(offer_bound(waiter.want.term)) <= now
            {
                stale.push((waiter.id, waiter.want.owner, held.id));
                waiter.stalled = true;
                waiter.state = WaiterState::Waiting;
                if waiter.expired {
                    waiter.state = WaiterState::Over(None);
                    out.extend(waiter.waker.take().map(Command::Wake));
                }
            }
        }
        for (id, owner, hold) in stale {
            self.give_back(owner, hold);
            if self.waiter(id).is_some_and(|w| matches!(w.state, WaiterState::Waiting)) {
                self.end_abandoned(id, out);
            }
        }
    }
}
