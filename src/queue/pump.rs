//! What to do next: called after every event.

use super::{
    Attempt, Busy, Channel, Command, DEGRADED_POLL, Discipline, EXPIRY_SLACK, Known, LINGER, POLL, Queue, Release,
    Transfer, WaiterId, WaiterState, offer_bound,
};
use crate::{
    clock::Moment,
    few::Few,
    owner::{Holder, Role},
};

impl Queue {
    /// Emits every command that is due.
    pub(super) fn pump(&mut self, now: Moment, out: &mut Few<Command>) {
        self.serve_unheld(now, out);
        self.reconcile(now, out);
        // What was being released may have turned out to be gone.
        self.serve_unheld(now, out);
        self.grant_wishes(now, out);
        self.ask_directly(now, out);
        match self.settings.discipline {
            Discipline::Fair => {
                self.ask_from_seats(now, out);
                self.listen_from_seats(out);
            }
            Discipline::Spin => self.ask_for_the_head(now, out),
            Discipline::Readers => {
                self.let_readers_in(now, out);
                self.ask_for_the_head(now, out);
                self.set_the_gate(now);
                self.listen_or_not(now, out);
            }
            Discipline::Line => {
                self.ask_for_the_head(now, out);
                self.listen_or_not(now, out);
            }
        }
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
            WaiterState::Offered { since, .. } => Some(since.plus(offer_bound(w.want.term))),
            _ => None,
        };
        // As many offers as untaken holds: a long line behind the last of them is not looked at.
        let offers = self.waiters().filter_map(offered).take(untaken);
        // The watchdog looks after the holds that it renews.
        let ends =
            self.owners.iter().flat_map(|o| o.live.iter()).filter(|h| !(h.term.renewed && h.taken)).map(|h| h.end);
        let abandoned = self.abandoned.iter().map(|(_, until)| *until);
        let later = self.owners.iter().filter(|o| o.is_idle() && o.count > o.live.len() as u64).filter_map(|o| o.ended);
        let next =
            offers.chain(ends).chain(later).chain(abandoned).chain(self.linger_until).chain(self.gate_until).min();
        let look = match self.settings.discipline {
            Discipline::Fair => self.next_seat_time(now),
            _ if self.is_taking_turns() => None,
            _ => self.head_holder().map(|head| match self.sharing.standing_back(now) {
                Some(until) => until,
                None if self.should_ask(now, head) => now,
                None => self.look_again_at(head),
            }),
        };
        next.into_iter().chain(look).min()
    }

    /// Brings every owner's count to its live holds: by a transfer to the head where that may be, else by a release.
    fn reconcile(&mut self, now: Moment, out: &mut Few<Command>) {
        let vacated = self.vacated();
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
                owner.ended = None;
                if !owner.leaving.is_empty() {
                    owner.cover_leaving();
                    let lost = self.lost_error(id);
                    self.settle_covered(id, |_| Err(lost.clone()), out);
                }
                if vacated.contains(&id) {
                    self.start_release(now, id, out);
                }
                continue;
            }
            let later = owner.leaving.is_empty() && owner.ended.is_some_and(|later| later > now);
            // An attempt with the count of those that are left would leave hold keys in the wrong places.
            let asks = |w: &super::Waiter| w.want.owner == id && matches!(w.state, WaiterState::Waiting) && !w.stalled;
            if later && !self.closed && !self.waiters().any(asks) {
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
    fn may_hand_over(&self, now: Moment, id: Holder) -> bool {
        let last = |o: &super::Owner| o.live.is_empty() && o.count == 1 && o.transferable;
        let may = self.settings.handoff && self.settings.discipline == Discipline::Line && !self.closed;
        may && self.owner(id).is_some_and(last) && self.sharing.may_transfer(now)
    }

    /// A late message made the head ask although the lock is held here. It will be told so in a moment, and is next.
    fn waits_for_the_turn(&self, now: Moment, id: Holder) -> bool {
        let asking = |w: &super::Waiter| Some(w.id) == self.turn && matches!(w.state, WaiterState::InFlight);
        self.turn.is_some() && self.line.iter().any(asking) && self.may_hand_over(now, id)
    }

    /// Who the lock may be handed to when this owner leaves it.
    fn successor(&self, now: Moment, id: Holder) -> Option<WaiterId> {
        if self.turn.is_some() || !self.may_hand_over(now, id) {
            return None;
        }
        let head = self.line.iter().find(|w| matches!(w.state, WaiterState::Waiting) && !w.stalled)?;
        let owner = head.want.owner;
        let idle = owner != id && self.owner(owner).is_none_or(|o| o.is_idle() && o.count == 0);
        idle.then_some(head.id)
    }

    fn start_transfer(&mut self, now: Moment, old: Holder, id: WaiterId, out: &mut Few<Command>) {
        let Some(waiter) = self.waiter(id) else { return };
        waiter.state = WaiterState::InFlight;
        let (new, term) = (waiter.want.owner, waiter.want.term);
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

    fn start_release(&mut self, now: Moment, id: Holder, out: &mut Few<Command>) {
        let discipline = self.settings.discipline;
        let listening = self.channel == Channel::Live && discipline != Discipline::Spin;
        let vacated = match discipline {
            Discipline::Fair => !self.wanting().contains(&id),
            _ => false,
        };
        let ttl = self.promised_to(now, id).unwrap_or_default();
        let timeout = self.settings.watchdog_timeout;
        let owner = self.owner_mut(id);
        owner.busy = Busy::Yes;
        owner.cover_leaving();
        let leave = owner.seat.filter(|_| vacated).map(|seat| seat.patience);
        let stays = owner.seat.filter(|_| vacated).map(|seat| seat.ends(now));
        let target = owner.live.len() as u64;
        let rearm = if id.role == Role::Read { owner.moved(now) } else { Vec::new() };
        // A renewal, or an attempt, that was answered late or never may have made it last longer than we know.
        let unknown = Some(now.plus(timeout));
        let ended = owner.ended.take().is_some() && owner.leaving.is_empty();
        let others = stays.into_iter().chain(unknown).chain(owner.adds_up);
        let promised = owner.leaving_end(now);
        let end = others.fold(promised, Moment::max);
        let mut candidates = Vec::new();
        if target == 0 {
            out.extend(owner.renewal.take().map(Command::CancelRenewal));
            match discipline {
                Discipline::Fair => candidates = self.candidates(),
                _ => self.sharing.freeing(listening),
            }
        }
        out.push(Command::Release(Release { owner: id, target, ttl, rearm, end, promised, ended, leave, candidates }));
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
            let owner = waiter.want.owner;
            if self.owner(owner).is_none_or(ready) && self.other_side_is_quiet(owner) {
                self.start_attempt(now, id, out);
            }
        }
    }

    fn ask_for_the_head(&mut self, now: Moment, out: &mut Few<Command>) {
        if self.is_taking_turns() {
            return;
        }
        let (Some(id), Some(holder)) = (self.head(), self.head_holder()) else { return };
        if self.should_ask(now, holder) {
            self.turn = Some(id);
            self.start_attempt(now, id, out);
        }
    }

    pub(super) fn start_attempt(&mut self, now: Moment, id: WaiterId, out: &mut Few<Command>) {
        let holds = |gone: Holder| self.owner(gone).is_some_and(|o| !o.live.is_empty());
        let abandoned = self.abandoned.iter().map(|(gone, _)| *gone).filter(|&gone| !holds(gone)).collect();
        let Some(waiter) = self.waiter(id) else { return };
        waiter.state = WaiterState::InFlight;
        let super::Want { owner, term, immediate, reentrant, patience, .. } = waiter.want;
        (self.dirty, self.told) = (false, false);
        let newest = self.last_id;
        let enqueue = self.settings.discipline == Discipline::Fair && !immediate;
        if enqueue {
            self.take_seat(owner, patience);
        }
        let promised = self.promised_to(now, owner);
        let state = self.owner_mut(owner);
        state.busy = Busy::Yes;
        // What it was queued with counts.
        let patience = state.seat.map_or(patience, |seat| seat.patience);
        let target = state.live.len() as u64 + 1;
        let ttl = promised.map_or(term.length, |promised| promised.max(term.length));
        out.push(Command::Attempt(Attempt {
            waiter: id,
            owner,
            target,
            term,
            ttl,
            abandoned,
            newest,
            reentrant,
            enqueue,
            patience,
        }));
    }

    /// First in line, if it can be served.
    pub(super) fn head(&self) -> Option<WaiterId> {
        self.head_waiter().map(|w| w.id)
    }

    fn head_holder(&self) -> Option<Holder> {
        self.head_waiter().map(|w| w.want.owner)
    }

    pub(super) fn head_waiter(&self) -> Option<&super::Waiter> {
        let ready = |w: &&super::Waiter| {
            matches!(w.state, WaiterState::Waiting) && !w.stalled && self.is_idle_owner(w.want.owner)
        };
        self.line.iter().find(ready)
    }

    /// An attempt or a hand-over is in flight, or the lock is just being given up here.
    pub(super) fn is_taking_turns(&self) -> bool {
        self.turn.is_some() || self.owners.iter().any(|o| o.busy != Busy::No && o.live.is_empty() && o.count > 0)
    }

    pub(super) fn is_held_here(&self) -> bool {
        self.owners.iter().any(|o| !o.live.is_empty())
    }

    /// What is held here and keeps this one out.
    fn barred_here(&self, head: Holder) -> impl Iterator<Item = &super::Owner> {
        self.owners.iter().filter(move |o| !o.live.is_empty() && self.keeps_out(o.id, head))
    }

    /// Never sleep on a channel that is not live, nor on a dirty one without asking once more.
    fn should_ask(&mut self, now: Moment, head: Holder) -> bool {
        if self.sharing.standing_back(now).is_some() {
            return false;
        }
        if self.settings.discipline == Discipline::Spin {
            return self.next_spin() <= now;
        }
        let barred = self.barred_here(head).next().is_some();
        let unasked = self.known == Known::Nothing && !barred;
        // Others who read here do not end a writer's wait by leaving, as long as one is left.
        let told = self.told || self.dirty && !(barred && self.settings.discipline == Discipline::Readers);
        match self.channel {
            _ if self.look_again_at(head) <= now => true,
            Channel::Off | Channel::Pending => unasked,
            Channel::Live => unasked || told,
        }
    }

    /// When the head has to look whether or not it hears anything.
    fn look_again_at(&self, head: Holder) -> Moment {
        if self.settings.discipline == Discipline::Spin {
            // Nobody would tell if what is held here was taken away.
            return self.next_spin();
        }
        let (asked, expiry) = match self.known {
            Known::Busy { since, until, .. } => (Some(since), until),
            Known::Nothing => (None, None),
        };
        // A renewal may be on its way for longer than the lease lasts: one look after the end is enough.
        let unasked = |end: &Moment| asked.is_none_or(|since| since < end.plus(EXPIRY_SLACK));
        let held_here = self.barred_here(head).filter_map(super::holds::Owner::latest_end).max().filter(unasked);
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
                out.push(Command::Listen(None));
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
                    out.push(Command::Unlisten(None));
                }
            }
        }
    }
}
