//! The holds of each owner, and what Redis is believed to count for it.

use std::{sync::Arc, time::Duration};

use super::{Command, HoldId, Queue, ReleaseReply, Unheld, WaiterState, renewal::Wish};
use crate::{
    clock::Moment, error::Error, few::Few, lease::Term, owner::OwnerId, validity::Validity, watchdog::wheel::Token,
};

/// A hold as its guard sees it.
#[derive(Clone, Debug)]
pub(crate) struct Held {
    pub(crate) id: HoldId,
    pub(crate) validity: Arc<Validity>,
}

/// A hold that counts.
#[derive(Debug)]
pub(super) struct Hold {
    pub(super) id: HoldId,
    /// What Redis promised, counted from before the command was sent.
    pub(super) end: Moment,
    pub(super) term: Term,
    pub(super) validity: Arc<Validity>,
    /// The waiter took the offer; only then it is renewed.
    pub(super) taken: bool,
}

/// A hold that its guard has given up; Redis may still count it.
#[derive(Debug)]
pub(super) struct Leaving {
    pub(crate) id: HoldId,
    /// When its guard gave it up.
    pub(super) was_valid: bool,
    end: Moment,
    reply: Option<ReleaseReply>,
    /// The command in flight takes it away.
    covered: bool,
}

/// The command in flight for an owner.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Busy {
    No,
    Yes,
}

#[derive(Debug)]
pub(super) struct Owner {
    pub(super) id: OwnerId,
    pub(super) live: Few<Hold>,
    pub(super) leaving: Few<Leaving>,
    /// The highest count that Redis can have: what has to be brought down.
    pub(super) count: u64,
    /// The lowest it must have: a hold is missing only below that. Differs from `count` after an unknown outcome.
    pub(super) at_least: u64,
    pub(super) busy: Busy,
    pub(super) renewal: Option<Token>,
    /// May be handed to another owner; not after Redis refused that once.
    pub(super) transferable: bool,
    /// A renewal is in flight: what raises the time to live waits for it, so as not to be cut short by it.
    pub(super) renewing: bool,
    /// Guards that want more time.
    pub(super) wishes: Few<Wish>,
    /// Releases that no guard stands behind.
    pub(super) unheld: Few<ReleaseReply>,
    /// When a count that belongs to no hold ends by itself.
    pub(super) unknown_end: Option<Moment>,
}

impl Owner {
    fn new(id: OwnerId) -> Self {
        Self {
            id,
            live: Few::new(),
            leaving: Few::new(),
            count: 0,
            at_least: 0,
            busy: Busy::No,
            renewal: None,
            transferable: true,
            renewing: false,
            wishes: Few::new(),
            unheld: Few::new(),
            unknown_end: None,
        }
    }

    /// A reply told the count.
    pub(super) fn counts(&mut self, count: u64) {
        (self.count, self.at_least) = (count, count);
    }

    /// The ids of the oldest holds that Redis may count.
    pub(super) fn oldest(&self, number: usize) -> Vec<HoldId> {
        if number == 0 {
            return Vec::new();
        }
        let leaving = self.leaving.iter().filter(|l| l.covered).map(|l| l.id);
        let mut ids: Vec<HoldId> = self.live.iter().map(|h| h.id).chain(leaving).collect();
        ids.sort_unstable();
        ids.truncate(number);
        ids
    }

    /// The latest end of the live holds.
    pub(super) fn latest_end(&self) -> Option<Moment> {
        self.live.iter().map(|h| h.end).max()
    }

    /// For how long from now the key must live for the sake of the live holds: a renewed one counts in full.
    pub(super) fn promised(&self, now: Moment) -> Option<Duration> {
        let left = |hold: &Hold| {
            let left = hold.end.since(now);
            if hold.term.renewed { left.max(hold.term.length) } else { left }
        };
        self.live.iter().map(left).max()
    }

    /// When all that is being released has ended by itself.
    pub(super) fn leaving_end(&self, now: Moment) -> Moment {
        let ends = self.leaving.iter().map(|l| l.end).chain(self.unknown_end).chain(self.latest_end());
        ends.max().unwrap_or(now)
    }

    pub(super) fn cover_leaving(&mut self) {
        self.leaving.iter_mut().for_each(|l| l.covered = true);
    }

    pub(super) fn is_done(&self) -> bool {
        let asked = !self.wishes.is_empty() || !self.unheld.is_empty();
        self.live.is_empty() && self.leaving.is_empty() && self.count == 0 && self.busy == Busy::No && !asked
    }
}

impl Queue {
    /// A guard gives its hold up. A hold that is not live any more was lost: the reply says so at once.
    pub(crate) fn release(
        &mut self,
        now: Moment,
        owner: OwnerId,
        hold: HoldId,
        reply: Option<ReleaseReply>,
        out: &mut Few<Command>,
    ) {
        self.start_leaving(now, owner, hold, reply, out);
        self.pump(now, out);
    }

    fn start_leaving(
        &mut self,
        now: Moment,
        owner: OwnerId,
        hold: HoldId,
        reply: Option<ReleaseReply>,
        out: &mut Few<Command>,
    ) {
        let lost = self.lost_error(owner);
        let closed = self.closed;
        let live = self.owners.iter_mut().find(|o| o.id == owner).and_then(|state| {
            let index = state.live.iter().position(|h| h.id == hold && !closed)?;
            Some((index, state))
        });
        let Some((index, state)) = live else {
            let outcome = Err(if closed { Error::Closed } else { lost });
            out.extend(reply.map(|reply| Command::Settle(reply, outcome)));
            return;
        };
        let hold = state.live.remove(index);
        let was_valid = hold.validity.is_valid(now);
        let reply = match reply {
            // Lost by our own clock and final, whatever Redis still has; the release is sent all the same.
            Some(reply) if !was_valid => {
                out.push(Command::Settle(reply, Err(lost)));
                None
            }
            reply => reply,
        };
        state.leaving.push(Leaving { id: hold.id, was_valid, end: hold.end, reply, covered: false });
    }

    /// Releases without a guard: the newest hold that was taken; without any here, whatever Redis counts.
    pub(super) fn serve_unheld(&mut self, now: Moment, out: &mut Few<Command>) {
        for index in 0..self.owners.len() {
            let owner = self.owners[index].id;
            while self.owners[index].busy == Busy::No && !self.owners[index].unheld.is_empty() {
                let state = &mut self.owners[index];
                match state.live.iter().filter(|h| h.taken).max_by_key(|h| h.id) {
                    Some(newest) => {
                        let (id, validity) = (newest.id, newest.validity.clone());
                        let reply = state.unheld.remove(0);
                        self.start_leaving(now, owner, id, Some(reply), out);
                        validity.lose();
                    }
                    None if state.live.is_empty() && state.count == 0 && state.leaving.is_empty() => {
                        state.busy = Busy::Yes;
                        let reply = state.unheld.remove(0);
                        out.push(Command::ReleaseUnheld(Unheld { owner, reply }));
                    }
                    // What is offered, or being released, comes first.
                    None => break,
                }
            }
        }
    }

    pub(crate) fn live_holds(&self, owner: OwnerId) -> u64 {
        self.owner(owner).map_or(0, |o| o.live.iter().filter(|h| h.taken).count() as u64)
    }

    /// Everything held here was taken away by force.
    pub(crate) fn forced(&mut self, now: Moment, before: HoldId, out: &mut Few<Command>) {
        let owners: Vec<OwnerId> = self.owners.iter().filter(|o| o.busy == Busy::No).map(|o| o.id).collect();
        for owner in owners {
            self.lose_some(owner, |id| id <= before, out);
            let state = self.owner_mut(owner);
            if state.live.is_empty() && state.leaving.is_empty() {
                state.counts(0);
            }
        }
        self.pump(now, out);
    }

    /// The newest hold there can be; see [`forced`](Self::forced).
    pub(crate) fn watermark(&self) -> HoldId {
        self.last_id
    }

    /// The newest hold of the owner is given back without its guard.
    pub(crate) fn release_any(&mut self, now: Moment, owner: OwnerId, reply: ReleaseReply, out: &mut Few<Command>) {
        if self.closed {
            return out.push(Command::Settle(reply, Err(Error::Closed)));
        }
        self.owner_mut(owner).unheld.push(reply);
        self.pump(now, out);
    }

    /// A release of a hold that this client did not take is over.
    pub(crate) fn unheld_over(&mut self, now: Moment, owner: OwnerId, out: &mut Few<Command>) {
        self.owner_mut(owner).busy = Busy::No;
        self.pump(now, out);
    }

    // ---- parts

    pub(super) fn owner(&self, id: OwnerId) -> Option<&Owner> {
        self.owners.iter().find(|o| o.id == id)
    }

    /// The owner's record; made if there is none. `pump` drops records that are done.
    pub(super) fn owner_mut(&mut self, id: OwnerId) -> &mut Owner {
        let index = match self.owners.iter().position(|o| o.id == id) {
            Some(index) => index,
            None => {
                self.owners.push(Owner::new(id));
                self.owners.len() - 1
            }
        };
        &mut self.owners[index]
    }

    /// A hold that nobody took, or that nobody wants any more.
    pub(super) fn give_back(&mut self, owner: OwnerId, hold: HoldId) {
        let state = self.owner_mut(owner);
        let Some(index) = state.live.iter().position(|h| h.id == hold) else { return };
        let hold = state.live.remove(index);
        hold.validity.lose();
        state.unknown_end = state.unknown_end.max(Some(hold.end));
    }

    pub(super) fn lose_all(&mut self, owner: OwnerId, out: &mut Few<Command>) {
        self.lose_some(owner, |_| true, out);
    }

    /// The key was free when this owner got it: what others here had been given before that was gone.
    pub(super) fn lose_the_others(&mut self, owner: OwnerId, before: HoldId, out: &mut Few<Command>) {
        let idle = |o: &&Owner| o.id != owner && o.busy == Busy::No;
        let others: Vec<OwnerId> = self.owners.iter().filter(idle).map(|o| o.id).collect();
        for other in others {
            self.lose_some(other, |id| id <= before, out);
            let state = self.owner_mut(other);
            if state.live.is_empty() {
                state.counts(0);
            }
        }
    }

    /// These holds are gone: their guards are told, an offer of one ends its wait.
    pub(super) fn lose_some(&mut self, owner: OwnerId, which: impl Fn(HoldId) -> bool, out: &mut Few<Command>) {
        let Some(state) = self.owners.iter_mut().find(|o| o.id == owner) else { return };
        let mut untaken = Vec::new();
        state.live.retain_mut(|hold| {
            if !which(hold.id) {
                return true;
            }
            hold.validity.lose();
            if !hold.taken {
                untaken.push(hold.id);
            }
            false
        });
        for hold in untaken {
            let offered = self.waiters().find(|w| w.offer().is_some_and(|(_, id)| id == hold)).map(|w| w.id);
            // Nothing was promised to it yet: it goes on waiting.
            if let Some(id) = offered {
                if let Some(waiter) = self.waiter(id) {
                    waiter.state = WaiterState::InFlight;
                }
                self.refused(id, out);
            }
        }
    }

    /// Answers those whose holds the last command took away.
    pub(super) fn settle_covered(
        &mut self,
        owner: OwnerId,
        outcome: impl Fn(&Leaving) -> Result<(), Error>,
        out: &mut Few<Command>,
    ) {
        let state = self.owner_mut(owner);
        state.leaving.retain_mut(|leaving| {
            if !leaving.covered {
                return true;
            }
            if let Some(reply) = leaving.reply.take() {
                out.push(Command::Settle(reply, outcome(leaving)));
            }
            false
        });
    }

    /// Tells those who wait for a release, which goes on.
    pub(super) fn settle_waiting(&mut self, owner: OwnerId, error: &Error, out: &mut Few<Command>) {
        let state = self.owner_mut(owner);
        for leaving in state.leaving.iter_mut().filter(|l| l.covered) {
            if let Some(reply) = leaving.reply.take() {
                out.push(Command::Settle(reply, Err(error.clone())));
            }
        }
    }

    /// Holds whose lease has ended unrenewed are lost by themselves.
    pub(super) fn end_leases(&mut self, now: Moment, out: &mut Few<Command>) {
        let mut index = 0;
        while index < self.owners.len() {
            let state = &self.owners[index];
            let (id, busy) = (state.id, state.busy);
            let ended: Vec<HoldId> = state.live.iter().filter(|h| h.end <= now).map(|h| h.id).collect();
            if !ended.is_empty() {
                // When the last end passes and nobody renews, the key goes by itself: nothing to give back.
                let all = ended.len() == state.live.len() && state.leaving.is_empty();
                let by_itself = all
                    && busy == Busy::No
                    && state.unknown_end.is_none()
                    && state.live.iter().all(|h| !h.term.renewed);
                self.lose_some(id, |hold| ended.contains(&hold), out);
                if by_itself && let Some(state) = self.owners.iter_mut().find(|o| o.id == id) {
                    state.counts(0);
                }
            }
            index += 1;
        }
    }
}
