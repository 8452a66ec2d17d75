//! The holds of each owner, and what Redis is believed to count for it.

use std::{sync::Arc, time::Duration};

use super::{Command, HoldId, Queue, ReleaseReply, WaiterState};
use crate::{
    clock::Moment,
    error::Error,
    few::Few,
    lease::{Term, margin},
    owner::OwnerId,
    validity::Validity,
    watchdog::wheel::Token,
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
    pub(crate) validity: Arc<Validity>,
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
    /// Extensions in flight: what they ask for must not be cut short by a renewal behind them.
    extensions: Few<(HoldId, Moment)>,
    /// When a count that belongs to no hold ends by itself.
    pub(super) unknown_end: Option<Moment>,
}

/// What a renewal of one owner asks for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RenewalDue {
    pub(crate) ttl: Duration,
    /// The newest hold it speaks for.
    pub(crate) newest: HoldId,
}

/// What a guard asked for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Extension {
    pub(crate) owner: OwnerId,
    pub(crate) hold: HoldId,
    pub(crate) sent: Moment,
    pub(crate) lease: Duration,
}

/// Whether an owner is to be renewed now.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Renewal {
    Due(RenewalDue),
    /// A command that sets the time to live itself is in flight: a renewal behind it could cut that short.
    Postponed,
    /// Nothing is renewed any more.
    Over,
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
            extensions: Few::new(),
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
        let extensions = self.extensions.iter().map(|(_, end)| end.since(now));
        self.live.iter().map(left).chain(extensions).max()
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
        self.live.is_empty() && self.leaving.is_empty() && self.count == 0 && self.busy == Busy::No
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
        let reply = match reply {
            // Lost by our own clock and final, whatever Redis still has; the release is sent all the same.
            Some(reply) if !hold.validity.is_valid(now) => {
                out.push(Command::Settle(reply, Err(lost)));
                None
            }
            reply => reply,
        };
        state.leaving.push(Leaving { id: hold.id, validity: hold.validity, end: hold.end, reply, covered: false });
        self.pump(now, out);
    }

    /// The owner's newest taken hold, if it has one here.
    pub(crate) fn newest_hold(&self, owner: OwnerId) -> Option<Held> {
        let hold = self.owner(owner)?.live.iter().filter(|h| h.taken).max_by_key(|h| h.id)?;
        Some(Held { id: hold.id, validity: hold.validity.clone() })
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

    // ---- renewal

    pub(crate) fn watched(&mut self, owner: OwnerId, token: Token) -> Option<Token> {
        match self.owners.iter_mut().find(|o| o.id == owner && !o.live.is_empty()) {
            Some(state) => state.renewal.replace(token),
            None => Some(token),
        }
    }

    pub(crate) fn is_renewed(&self, owner: OwnerId) -> bool {
        !self.closed && self.owner(owner).is_some_and(|o| o.live.iter().any(|h| h.term.renewed && h.taken))
    }

    /// What a renewal has to ask for. The owner's entry in the watchdog is used up.
    pub(crate) fn renewal_due(&mut self, now: Moment, owner: OwnerId) -> Renewal {
        let closed = self.closed;
        let Some(state) = self.owners.iter_mut().find(|o| o.id == owner) else { return Renewal::Over };
        state.renewal = None;
        if closed || !state.live.iter().any(|h| h.term.renewed && h.taken) {
            return Renewal::Over;
        }
        if state.busy != Busy::No {
            return Renewal::Postponed;
        }
        match (state.promised(now), state.live.iter().map(|h| h.id).max()) {
            (Some(ttl), Some(newest)) => Renewal::Due(RenewalDue { ttl, newest }),
            _ => Renewal::Over,
        }
    }

    /// A renewal was answered with the owner's count.
    pub(crate) fn renewed(
        &mut self,
        now: Moment,
        owner: OwnerId,
        due: RenewalDue,
        sent: Moment,
        found: u64,
        out: &mut Few<Command>,
    ) {
        let timeout = self.settings.watchdog_timeout;
        let Some(state) = self.owners.iter_mut().find(|o| o.id == owner) else { return };
        if found == 0 {
            if state.busy == Busy::No && state.live.iter().all(|h| h.id <= due.newest) {
                state.counts(0);
            }
            self.lose_some(owner, |id| id <= due.newest, out);
            self.dirty = true;
            self.pump(now, out);
            return;
        }
        let end = sent.plus(timeout);
        let mut late = Vec::new();
        for hold in state.live.iter_mut().filter(|h| h.term.renewed && h.taken && h.id <= due.newest) {
            if hold.validity.extend(now, end.minus(margin(timeout))) {
                hold.end = hold.end.max(end);
            } else {
                late.push(hold.id);
            }
        }
        if !late.is_empty() {
            self.lose_some(owner, |id| late.contains(&id), out);
            self.pump(now, out);
        }
    }

    /// The holder asks for more time: the TTL to ask for.
    pub(crate) fn extending(&mut self, now: Moment, owner: OwnerId, hold: HoldId, lease: Duration) -> Duration {
        let Some(state) = self.owners.iter_mut().find(|o| o.id == owner) else { return lease };
        state.extensions.push((hold, now.plus(lease)));
        state.promised(now).map_or(lease, |promised| promised.max(lease))
    }

    /// The question is answered, or nobody waits for the answer any more.
    pub(crate) fn extension_over(&mut self, owner: OwnerId, hold: HoldId) {
        let Some(state) = self.owners.iter_mut().find(|o| o.id == owner) else { return };
        if let Some(index) = state.extensions.iter().position(|(id, _)| *id == hold) {
            state.extensions.remove(index);
        }
    }

    /// Redis has given the time, or (`found` is 0) holds nothing of the owner.
    pub(crate) fn extended(&mut self, now: Moment, asked: Extension, found: u64, out: &mut Few<Command>) -> bool {
        let Extension { owner, hold: id, sent, lease } = asked;
        if found == 0 {
            self.renewed(now, owner, RenewalDue { ttl: lease, newest: id }, sent, 0, out);
            return false;
        }
        let state = self.owners.iter_mut().find(|o| o.id == owner);
        let Some(hold) = state.and_then(|o| o.live.iter_mut().find(|h| h.id == id)) else { return false };
        let end = sent.plus(lease);
        hold.end = hold.end.max(end);
        hold.validity.extend(now, end.minus(margin(lease)))
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

    /// The key was free when this owner got it: what others here still believed to hold was gone.
    pub(super) fn lose_the_others(&mut self, owner: OwnerId, out: &mut Few<Command>) {
        let idle = |o: &&Owner| o.id != owner && o.busy == Busy::No;
        let others: Vec<OwnerId> = self.owners.iter().filter(idle).map(|o| o.id).collect();
        for other in others {
            self.lose_all(other, out);
            self.owner_mut(other).counts(0);
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
                let by_itself = all && busy == Busy::No && state.live.iter().all(|h| !h.term.renewed);
                self.lose_some(id, |hold| ended.contains(&hold), out);
                if by_itself && let Some(state) = self.owners.iter_mut().find(|o| o.id == id) {
                    state.counts(0);
                }
            }
            index += 1;
        }
    }
}
