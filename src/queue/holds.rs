//! The holds of each owner, and what Redis is believed to count for it.

use std::{sync::Arc, time::Duration};

use super::{Command, HoldId, Queue, ReleaseReply, Unheld, WaiterState, fair::Seat, renewal::Wish};
use crate::{
    clock::Moment,
    error::Error,
    few::Few,
    lease::Term,
    owner::{Holder, Role},
    validity::Validity,
    watchdog::wheel::Token,
};

/// A lease that has ended is given back after this time: by the server's clock it has ended then as well.
const AFTER_THE_END: Duration = Duration::from_millis(50);

/// A hold as its guard sees it.
#[derive(Clone, Debug)]
pub(crate) struct Held {
    pub(crate) id: HoldId,
    pub(crate) validity: Arc<Validity>,
    /// The fencing token, where the kind has one.
    pub(crate) token: Option<u64>,
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
    /// It was made to last longer than the watchdog timeout.
    pub(super) outlasts: bool,
}

impl Hold {
    /// For how long from now it was promised; one that is renewed counts in full.
    fn left(&self, now: Moment) -> Duration {
        let left = self.end.since(now);
        if self.term.renewed { left.max(self.term.length) } else { left }
    }
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
    pub(super) id: Holder,
    pub(super) live: Few<Hold>,
    pub(super) leaving: Few<Leaving>,
    /// The highest count that Redis can have: what has to be brought down.
    pub(super) count: u64,
    /// The lowest it must have: a hold is missing only below that. Differs from `count` after an unknown outcome.
    pub(super) at_least: u64,
    /// A writer's leases add up in Redis: when the key ends at the latest.
    pub(super) adds_up: Option<Moment>,
    /// The last hold that it was granted, whether somebody still wanted it or not.
    pub(super) granted: HoldId,
    pub(super) busy: Busy,
    pub(super) renewal: Option<Token>,
    /// May be handed to another owner; not after Redis refused that once.
    pub(super) transferable: bool,
    /// A renewal is in flight: what raises the time to live waits for it, so as not to be cut short by it.
    pub(super) renewing: bool,
    pub(super) was_renewed: bool,
    /// Guards that want more time.
    pub(super) wishes: Few<Wish>,
    /// Releases that no guard stands behind.
    pub(super) unheld: Few<ReleaseReply>,
    /// When a count that belongs to no hold ends by itself.
    pub(super) unknown_end: Option<Moment>,
    /// A lease has ended while others may keep the key; its count is given back a little later, if it is still there.
    pub(super) ended: Option<Moment>,
    /// The oldest hold that is no longer live since the last release: those behind it have moved up.
    pub(super) moved_from: Option<HoldId>,
    /// Its place in a queue in Redis.
    pub(super) seat: Option<Seat>,
}

impl Owner {
    fn new(id: Holder) -> Self {
        Self {
            id,
            live: Few::new(),
            leaving: Few::new(),
            count: 0,
            at_least: 0,
            adds_up: None,
            granted: 0,
            busy: Busy::No,
            renewal: None,
            transferable: true,
            renewing: false,
            was_renewed: false,
            wishes: Few::new(),
            unheld: Few::new(),
            unknown_end: None,
            ended: None,
            moved_from: None,
            seat: None,
        }
    }

    /// Nothing of it is in flight.
    pub(super) fn is_idle(&self) -> bool {
        self.busy == Busy::No
    }

    pub(super) fn remove_live(&mut self, index: usize) -> Hold {
        let hold = self.live.remove(index);
        self.moved_from = Some(self.moved_from.map_or(hold.id, |id| id.min(hold.id)));
        hold
    }

    /// What the holds have left that stand in another place than before the last release: the youngest.
    pub(super) fn moved(&mut self, now: Moment) -> Vec<Duration> {
        let Some(from) = self.moved_from.take() else { return Vec::new() };
        // A renewal raises all of the owner's hold keys: those of fixed holds get their own end back.
        let stays = |hold: &&Hold| hold.id < from && (hold.term.renewed || !self.was_renewed);
        self.live.iter().skip_while(stays).map(|hold| hold.left(now)).collect()
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
        self.live.iter().map(|hold| hold.left(now)).max()
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
        self.live.is_empty()
            && self.leaving.is_empty()
            && self.count == 0
            && self.is_idle()
            && !asked
            && self.seat.is_none()
    }
}

impl Queue {
    /// A guard gives its hold up. A hold that is not live any more was lost: the reply says so at once.
    pub(crate) fn release(
        &mut self,
        now: Moment,
        owner: Holder,
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
        owner: Holder,
        hold: HoldId,
        reply: Option<ReleaseReply>,
        out: &mut Few<Command>,
    ) {
        let lost = self.lost_error(owner);
        let closed = self.closed;
        let live = self.known_owner(owner).and_then(|state| {
            let index = state.live.iter().position(|h| h.id == hold && !closed)?;
            Some((index, state))
        });
        let Some((index, state)) = live else {
            let outcome = Err(if closed { Error::Closed } else { lost });
            out.extend(reply.map(|reply| Command::Settle(reply, outcome)));
            return;
        };
        let hold = state.remove_live(index);
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

    pub(crate) fn live_holds(&self, owner: Holder) -> u64 {
        self.owner(owner).map_or(0, |o| o.live.iter().filter(|h| h.taken).count() as u64)
    }

    /// Everything held here was taken away by force.
    pub(crate) fn forced(&mut self, now: Moment, before: HoldId, out: &mut Few<Command>) {
        let owners: Vec<Holder> = self.owners.iter().filter(|o| o.busy == Busy::No).map(|o| o.id).collect();
        for owner in owners {
            self.lose_some(owner, |id| id <= before, out);
            let state = self.owner_mut(owner);
            if state.live.is_empty() && state.leaving.is_empty() && state.granted <= before {
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
    pub(crate) fn release_any(&mut self, now: Moment, owner: Holder, reply: ReleaseReply, out: &mut Few<Command>) {
        if self.closed {
            return out.push(Command::Settle(reply, Err(Error::Closed)));
        }
        self.owner_mut(owner).unheld.push(reply);
        self.pump(now, out);
    }

    /// A release of a hold that this client did not take is over.
    pub(crate) fn unheld_over(&mut self, now: Moment, owner: Holder, out: &mut Few<Command>) {
        self.owner_mut(owner).busy = Busy::No;
        self.pump(now, out);
    }

    // ---- parts

    pub(super) fn owner(&self, id: Holder) -> Option<&Owner> {
        self.owner_index(id).ok().map(|index| &self.owners[index])
    }

    pub(super) fn known_owner(&mut self, id: Holder) -> Option<&mut Owner> {
        self.owner_index(id).ok().map(|index| &mut self.owners[index])
    }

    /// The owner's record; made if there is none. `pump` drops records that are done.
    pub(super) fn owner_mut(&mut self, id: Holder) -> &mut Owner {
        let index = self.owner_index(id).unwrap_or_else(|index| {
            self.owners.insert(index, Owner::new(id));
            index
        });
        &mut self.owners[index]
    }

    /// They are in order: there may be many.
    fn owner_index(&self, id: Holder) -> Result<usize, usize> {
        self.owners.binary_search_by_key(&id, |o| o.id)
    }

    /// A hold that nobody took, or that nobody wants any more.
    pub(super) fn give_back(&mut self, owner: Holder, hold: HoldId) {
        let state = self.owner_mut(owner);
        let Some(index) = state.live.iter().position(|h| h.id == hold) else { return };
        let hold = state.remove_live(index);
        hold.validity.lose();
        state.unknown_end = state.unknown_end.max(Some(hold.end));
    }

    /// For how long from now the key must live for the sake of an owner's live holds, in whatever role.
    pub(super) fn promised_to(&self, now: Moment, id: Holder) -> Option<Duration> {
        self.owners.iter().filter(|o| o.id.owner == id.owner).filter_map(|o| o.promised(now)).max()
    }

    /// Nothing of the owner is in flight, on either side of a read/write lock: what sets the key's time to live for one side
    /// must not meet what raises it for the other.
    pub(super) fn is_idle_owner(&self, id: Holder) -> bool {
        self.owner(id).is_none_or(Owner::is_idle) && self.other_side_is_quiet(id)
    }

    /// Nothing of the owner's other side is in flight, nor is a renewal.
    pub(super) fn other_side_is_quiet(&self, id: Holder) -> bool {
        let other = id.other_side().and_then(|other| self.owner(other));
        other.is_none_or(|o| o.is_idle() && !o.renewing)
    }

    pub(super) fn lose_all(&mut self, owner: Holder, out: &mut Few<Command>) {
        self.lose_some(owner, |_| true, out);
    }

    /// The key was free when this owner got it: what others here had been given before that was gone.
    pub(super) fn lose_the_others(&mut self, owner: Holder, before: HoldId, out: &mut Few<Command>) {
        let idle = |o: &&Owner| o.id != owner && o.busy == Busy::No;
        let others: Vec<Holder> = self.owners.iter().filter(idle).map(|o| o.id).collect();
        for other in others {
            self.lose_some(other, |id| id <= before, out);
            let state = self.owner_mut(other);
            if state.live.is_empty() && state.granted <= before {
                state.counts(0);
            }
        }
    }

    /// These holds are gone: their guards are told, an offer of one ends its wait.
    pub(super) fn lose_some(&mut self, owner: Holder, which: impl Fn(HoldId) -> bool, out: &mut Few<Command>) {
        let Some(state) = self.known_owner(owner) else { return };
        let mut untaken = Vec::new();
        let moved_from = &mut state.moved_from;
        state.live.retain_mut(|hold| {
            if !which(hold.id) {
                return true;
            }
            hold.validity.lose();
            *moved_from = Some(moved_from.map_or(hold.id, |id| id.min(hold.id)));
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
        owner: Holder,
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
    pub(super) fn settle_waiting(&mut self, owner: Holder, error: &Error, out: &mut Few<Command>) {
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
                // Others keep a read/write lock's key, and a writer's leases add up.
                let by_itself = all
                    && id.role == Role::Sole
                    && busy == Busy::No
                    && state.unknown_end.is_none()
                    && state.live.iter().all(|h| !h.term.renewed);
                self.lose_some(id, |hold| ended.contains(&hold), out);
                if id.role != Role::Sole
                    && let Some(state) = self.known_owner(id)
                {
                    state.ended.get_or_insert(now.plus(AFTER_THE_END));
                }
                if by_itself && let Some(state) = self.known_owner(id) {
                    state.counts(0);
                }
            }
            index += 1;
        }
    }
}
