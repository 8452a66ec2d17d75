//! What to do next: called after every event.

use super::{
    Attempt, Busy, Channel, Command, DEGRADED_POLL, EXPIRY_SLACK, Known, LINGER, POLL, Queue, Release, Transfer,
    WaiterId, WaiterState, offer_bound,
};
use crate::{clock::Moment, few::Few, owner::OwnerId};

impl Queue {
    /// Emits every command that is due.
    pub(super) fn pump(&mut self, now: Moment, out: &mut Few<Command>) {
        self.serve_unheld(now, out);
        self.reconcile(now, out);
        self.grant_wishes(now, out);
        self.ask_directly(now, out);
        self.ask_for_the_head(now, out);
        self.listen_or_not(now, out);
        let closed = self.closed;
        self.owners.retain_mut(|owner| {
            if closed && owner.busy == Busy::No && owner.leaving.is_empty() {
                // Nothing is released after the end: leases do that.
                owner.live = Few::new();
                owner.counts(0);
            }
            if owner.live.is_empty() {
                out.extend(owner.renewal.take().map(Command::CancelRenewal));
            }
            !owner.is_done()
        });
        if self.owners.is_empty() && self.line.is_empty() && self.direct.is_empty() {
            self.known = Known::Nothing;
        }
    }

    /// When [`tick`](Self::tick) has something to do.
    pub(crate) fn next_deadline(&mut self, now: Moment) -> Option<Moment> {
        let untaken = self.owners.iter().flat_map(|o| o.live.iter()).filter(|h| !h.taken).count();
        let offered = |w: &super::Waiter| match &w.state {
            WaiterState::Offered { since, .. } => Some(since.plus(offer_bound(w.term))),
            _ => None,
        };
        // As many offers as untaken holds: a long line behind the last of them is not looked at.
        let offers = self.waiters().filter_map(offered).take(untaken);
        // The watchdog looks after the holds that it renews.
        let ends =
            self.owners.iter().flat_map(|o| o.live.iter()).filter(|h| !(h.term.renewed && h.taken)).map(|h| h.end);
        let abandoned = self.abandoned.iter().map(|(_, until)| *until);
        let mut next = offers.chain(ends).chain(abandoned).chain(self.linger_until).min();
        if self.head().is_some() && !self.is_taking_turns() {
            let look = match self.sharing.standing_back(now) {
                Some(until) => until,
                None if self.should_ask(now) => now,
                None => self.look_again_at(),
            };
            next = Some(next.map_or(look, |n| n.min(look)));
        }
        next
    }

    /// Brings every owner's count to its live holds: by a transfer to the head where that may be, else by a release.
    fn reconcile(&mut self, now: Moment, out: &mut Few<Command>) {
        for index in 0..self.owners.len() {
            let owner = &self.owners[index];
            if owner.busy != Busy::No {
                continue;
            }
            let (id, live) = (owner.id, owner.live.len() as u64);
            if owner.count < live {
                // Redis counts less than we hold: the oldest are gone.
                let gone = owner.oldest(usize::try_from(live - owner.count).unwrap_or(usize::MAX));
                self.lose_some(id, |hold| gone.contains(&hold), out);
            }
            let owner = &mut self.owners[index];
            if owner.count <= owner.live.len() as u64 {
                if !owner.leaving.is_empty() {
                    owner.cover_leaving();
                    let lost = self.lost_error(id);
                    self.settle_covered(id, |_| Err(lost.clone()), out);
                }
                continue;
            }
            match self.successor(now, id) {
                Some(waiter) => self.start_transfer(now, id, waiter, out),
                None if self.waits_for_the_turn(now, id) => {}
                None => self.start_release(now, id, out),
            }
        }
    }

    /// Whether the lock may be handed to somebody in line when this owner leaves it.
    fn may_hand_over(&self, now: Moment, id: OwnerId) -> bool {
        let last = |o: &super::Owner| o.live.is_empty() && o.count == 1 && o.transferable;
        self.settings.handoff && !self.closed && self.owner(id).is_some_and(last) && self.sharing.may_transfer(now)
    }

    /// A late message made the head ask although the lock is held here. It will be told so in a moment, and is next.
    fn waits_for_the_turn(&self, now: Moment, id: OwnerId) -> bool {
        let asking = |w: &super::Waiter| Some(w.id) == self.turn && matches!(w.state, WaiterState::InFlight);
        self.turn.is_some() && self.line.iter().any(asking) && self.may_hand_over(now, id)
    }

    /// Who the lock may be handed to when this owner leaves it.
    fn successor(&self, now: Moment, id: OwnerId) -> Option<WaiterId> {
        if self.turn.is_some() || !self.may_hand_over(now, id) {
            return None;
        }
        let head = self.line.iter().find(|w| matches!(w.state, WaiterState::Waiting) && !w.stalled)?;
        let idle = head.owner != id && self.owner(head.owner).is_none_or(|o| o.busy == Busy::No && o.count == 0);
        idle.then_some(head.id)
    }

    fn start_transfer(&mut self, now: Moment, old: OwnerId, id: WaiterId, out: &mut Few<Command>) {
        let Some(waiter) = self.waiter(id) else { return };
        waiter.state = WaiterState::InFlight;
        let (new, term) = (waiter.owner, waiter.term);
        self.turn = Some(id);
        self.dirty = false;
        self.owner_mut(new).busy = Busy::Yes;
        let owner = self.owner_mut(old);
        owner.busy = Busy::Yes;
        owner.cover_leaving();
        let end = owner.leaving_end(now).max(now.plus(term.length));
        out.extend(owner.renewal.take().map(Command::CancelRenewal));
        out.push(Command::Transfer(Transfer { old, new, waiter: id, term, end }));
    }

    fn start_release(&mut self, now: Moment, id: OwnerId, out: &mut Few<Command>) {
        let listening = self.channel == Channel::Live;
        let owner = self.owner_mut(id);
        owner.busy = Busy::Yes;
        owner.cover_leaving();
        let target = owner.live.len() as u64;
        let ttl = owner.promised(now).unwrap_or_default();
        let end = owner.leaving_end(now);
        if target == 0 {
            out.extend(owner.renewal.take().map(Command::CancelRenewal));
            self.sharing.freeing(listening);
        }
        out.push(Command::Release(Release { owner: id, target, ttl, end }));
    }

    /// Those who do not stand in line ask as soon as nothing of their owner is in flight.
    fn ask_directly(&mut self, now: Moment, out: &mut Few<Command>) {
        for index in 0..self.direct.len() {
            let waiter = &self.direct[index];
            if !matches!(waiter.state, WaiterState::Waiting) || waiter.stalled {
                continue;
            }
            let id = waiter.id;
            // A renewal in flight could cut short what a re-entry is promised.
            let ready = |o: &super::Owner| o.busy == Busy::No && (!o.renewing || o.live.is_empty());
            if self.owner(waiter.owner).is_none_or(ready) {
                self.start_attempt(now, id, out);
            }
        }
    }

    fn ask_for_the_head(&mut self, now: Moment, out: &mut Few<Command>) {
        if self.is_taking_turns() {
            return;
        }
        let Some(id) = self.head() else { return };
        if self.should_ask(now) {
            self.turn = Some(id);
            self.start_attempt(now, id, out);
        }
    }

    fn start_attempt(&mut self, now: Moment, id: WaiterId, out: &mut Few<Command>) {
        let holds = |owner: OwnerId| self.owner(owner).is_some_and(|o| !o.live.is_empty());
        let abandoned = self.abandoned.iter().map(|(gone, _)| *gone).filter(|&gone| !holds(gone)).collect();
        let Some(waiter) = self.waiter(id) else { return };
        waiter.state = WaiterState::InFlight;
        let (owner, term) = (waiter.owner, waiter.term);
        self.dirty = false;
        let newest = self.last_id;
        let state = self.owner_mut(owner);
        state.busy = Busy::Yes;
        let target = state.live.len() as u64 + 1;
        let ttl = state.promised(now).map_or(term.length, |promised| promised.max(term.length));
        out.push(Command::Attempt(Attempt { waiter: id, owner, target, term, ttl, newest, abandoned }));
    }

    /// First in line, if it can be served.
    fn head(&self) -> Option<WaiterId> {
        let ready = |w: &&super::Waiter| {
            matches!(w.state, WaiterState::Waiting)
                && !w.stalled
                && self.owner(w.owner).is_none_or(|o| o.busy == Busy::No)
        };
        self.line.iter().find(ready).map(|w| w.id)
    }

    /// An attempt or a hand-over is in flight, or the lock is just being given up here.
    fn is_taking_turns(&self) -> bool {
        self.turn.is_some() || self.owners.iter().any(|o| o.busy != Busy::No && o.live.is_empty() && o.count > 0)
    }

    fn is_held_here(&self) -> bool {
        self.owners.iter().any(|o| !o.live.is_empty())
    }

    /// Never sleep on a channel that is not live, nor on a dirty one without asking once more.
    fn should_ask(&mut self, now: Moment) -> bool {
        if self.sharing.standing_back(now).is_some() {
            return false;
        }
        let unasked = self.known == Known::Nothing && !self.is_held_here();
        match self.channel {
            _ if self.look_again_at() <= now => true,
            Channel::Off | Channel::Pending => unasked,
            Channel::Live => unasked || self.dirty,
        }
    }

    /// When the head has to look whether or not it hears anything.
    fn look_again_at(&self) -> Moment {
        let held_here = self.owners.iter().filter_map(super::holds::Owner::latest_end).max();
        let (asked, expiry) = match self.known {
            Known::Busy { since, until } => (Some(since), until),
            Known::Nothing => (None, None),
        };
        let by_expiry = match (held_here, expiry, asked) {
            (Some(end), _, _) => end.plus(EXPIRY_SLACK),
            (None, Some(end), _) => end.plus(EXPIRY_SLACK),
            (None, None, Some(since)) => since.plus(POLL),
            (None, None, None) => return Moment::from_nanos(0),
        };
        match (self.channel, asked) {
            (Channel::Pending, Some(since)) => by_expiry.min(since.plus(DEGRADED_POLL)),
            _ => by_expiry,
        }
    }

    fn listen_or_not(&mut self, now: Moment, out: &mut Few<Command>) {
        let waiting = self.line.iter().any(|w| matches!(w.state, WaiterState::Waiting) && !w.stalled);
        let in_line = waiting || self.line.iter().any(|w| matches!(w.state, WaiterState::InFlight));
        match self.channel {
            // The first question of a newcomer goes out without listening: the lock may be free.
            Channel::Off if waiting && !(self.turn.is_some() && self.line.len() == 1) => {
                self.channel = Channel::Pending;
                self.linger_until = None;
                out.push(Command::Listen);
            }
            Channel::Off => {}
            _ if in_line => self.linger_until = None,
            _ => {
                let until = if self.is_held_here() && !self.closed {
                    *self.linger_until.get_or_insert(now.plus(LINGER))
                } else {
                    now
                };
                if until <= now {
                    self.channel = Channel::Off;
                    self.linger_until = None;
                    out.push(Command::Unlisten);
                }
            }
        }
    }
}
