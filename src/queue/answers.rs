//! What Redis answered, or did not.

use std::{sync::Arc, time::Duration};

use super::{
    Attempt, AttemptReply, BusyReply, Candidate, Channel, Command, Discipline, Granted, Held, HoldId, Known, Queue,
    Release, ReleaseOutcome, Transfer, WaiterId, WaiterState,
    holds::{Busy, Hold},
};
use crate::{
    clock::Moment,
    error::{Error, LeaseLost},
    few::Few,
    lease::{Term, margin},
    owner::{Holder, Role},
    validity::Validity,
};

/// A writer that waits for readers looks again after this time.
const READERS_LOOK: Duration = Duration::from_secs(1);

/// What Redis granted, and to whom.
struct Grant {
    owner: Holder,
    waiter: WaiterId,
    term: Term,
    target: u64,
    reply: Granted,
    sent: Moment,
    /// For how long the key lives from when it ran.
    ttl: Duration,
    /// The newest hold that can have been on the key before, if the key was asked for rather than handed over.
    before: Option<HoldId>,
}

impl Queue {
    /// An attempt was answered.
    pub(crate) fn attempted(
        &mut self,
        now: Moment,
        attempt: &Attempt,
        sent: Moment,
        reply: AttemptReply,
        out: &mut Few<Command>,
    ) {
        self.end_turn(attempt.waiter);
        self.owner_mut(attempt.owner).busy = Busy::No;
        match reply {
            AttemptReply::Granted(reply) => {
                let Attempt { owner, waiter, term, target, ttl, newest, .. } = *attempt;
                self.granted(now, Grant { owner, waiter, term, target, reply, sent, ttl, before: Some(newest) }, out);
            }
            AttemptReply::Busy(busy) => self.found_busy(now, attempt, sent, &busy, out),
            AttemptReply::Upgrade(busy) => {
                // A read hold whose lease has ended, and which is about to be given back, is none.
                let reads = Holder { role: Role::Read, ..attempt.owner };
                let ended = self.known_owner(reads).filter(|o| o.live.is_empty() && o.count > 0);
                let has_ended = ended.map(|o| o.ended = Some(now)).is_some();
                let waits = has_ended
                    || self.settings.upgrade_waits
                    || self.waiter(attempt.waiter).is_none_or(|w| w.want.immediate || w.expired);
                if waits {
                    self.found_busy(now, attempt, sent, &busy, out);
                } else {
                    self.finish(attempt.waiter, Some(self.upgrade_error(attempt.owner)), out);
                }
            }
        }
        self.pump(now, out);
    }

    fn found_busy(&mut self, now: Moment, attempt: &Attempt, sent: Moment, busy: &BusyReply, out: &mut Few<Command>) {
        self.lose_all(attempt.owner, out);
        self.owner_mut(attempt.owner).counts(0);
        self.lose_what_contradicts(attempt.owner, busy.by_readers, attempt.newest, out);
        let mut until = busy.retry_in.map(|left| now.plus(left));
        if busy.by_readers {
            // A reader that leaves may cut the key down to what a dead one has left, and that is told to nobody.
            until = until.map(|until| until.min(now.plus(READERS_LOOK)));
        }
        self.known = Known::Busy { since: now, until, by_readers: busy.by_readers };
        match self.settings.discipline {
            // Busy without an end: somebody is to have it first.
            Discipline::Fair if busy.place.is_none() && until.is_none() => self.given_to_the_head(now),
            Discipline::Fair => self.seated(now, attempt.owner, sent, busy),
            Discipline::Spin => {
                let waiter = self.waiters().find(|w| w.id == attempt.waiter && !w.want.immediate);
                if let Some(back_off) = waiter.map(|w| w.want.back_off) {
                    self.spin.refused(now, attempt.waiter, back_off);
                }
            }
            Discipline::Line | Discipline::Readers => {}
        }
        if self.owners.iter().all(|o| o.count == 0) {
            self.sharing.heard_foreign_holder();
        }
        self.refused(attempt.waiter, out);
        // It may have begun to read while it asked to write.
        let reads = Holder { role: Role::Read, ..attempt.owner };
        if attempt.owner.role == Role::Write && self.owner(reads).is_some_and(|o| !o.live.is_empty()) {
            self.let_pass(reads, out);
        }
    }

    /// An attempt failed for certain: Redis did not grant it.
    pub(crate) fn attempt_failed(&mut self, now: Moment, attempt: &Attempt, error: Error, out: &mut Few<Command>) {
        if self.turn == Some(attempt.waiter) {
            self.known = Known::Nothing;
        }
        (self.dirty, self.told) = (true, true);
        self.end_turn(attempt.waiter);
        self.owner_mut(attempt.owner).busy = Busy::No;
        if matches!(error, Error::AlreadyHeld { .. } | Error::ForeignData { .. }) {
            self.not_seated(attempt.owner);
        }
        self.finish(attempt.waiter, Some(error), out);
        self.pump(now, out);
    }

    /// An attempt or transfer takes too long to resolve: its waiter is told, the rest goes on in the background.
    pub(crate) fn overdue(&mut self, now: Moment, waiter: WaiterId, error: Error, out: &mut Few<Command>) {
        self.finish(waiter, Some(error), out);
        self.pump(now, out);
    }

    /// Nothing of an unresolved attempt can run any more, and nobody wants it: what it may have got is given back.
    pub(crate) fn undo(&mut self, now: Moment, attempt: &Attempt, out: &mut Few<Command>) {
        self.end_turn(attempt.waiter);
        let end = now.plus(attempt.ttl);
        let owner = self.owner_mut(attempt.owner);
        owner.busy = Busy::No;
        owner.count = owner.count.max(attempt.target);
        owner.unknown_end = Some(end);
        self.known = Known::Nothing;
        self.pump(now, out);
    }

    /// An unresolved command of this owner may still run, and nothing can be done against it: nobody waits under its name.
    pub(crate) fn abandon(&mut self, now: Moment, owner: Holder, until: Moment, out: &mut Few<Command>) {
        self.abandoned.retain(|(gone, _)| *gone != owner);
        self.abandoned.push((owner, until));
        let waits = |w: &&super::Waiter| w.want.owner.owner == owner.owner && matches!(w.state, WaiterState::Waiting);
        let waiting: Vec<WaiterId> = self.waiters().filter(waits).map(|w| w.id).collect();
        for id in waiting {
            let (key, owner) = (self.settings.name.to_string(), owner.owner);
            self.finish(id, Some(Error::Unresolved { key, owner }), out);
        }
        self.pump(now, out);
    }

    /// A transfer was answered: `granted` or the old owner held nothing.
    pub(crate) fn transferred(
        &mut self,
        now: Moment,
        transfer: &Transfer,
        sent: Moment,
        granted: Option<Granted>,
        listeners: Option<u64>,
        out: &mut Few<Command>,
    ) {
        self.end_turn(transfer.waiter);
        self.owner_mut(transfer.new).busy = Busy::No;
        let own = u64::from(self.channel == Channel::Live);
        self.sharing.listeners = listeners.map(|all| all.saturating_sub(own));
        let old = self.owner_mut(transfer.old);
        old.busy = Busy::No;
        old.counts(0);
        let lost = granted.is_none().then(|| self.lost_error(transfer.old));
        self.settle_covered(transfer.old, |_| lost.clone().map_or(Ok(()), Err), out);
        if let Some(reply) = granted {
            self.sharing.run_length += 1;
            let Transfer { new: owner, waiter, term, .. } = *transfer;
            self.granted(
                now,
                Grant { owner, waiter, term, target: 1, reply, sent, ttl: term.length, before: None },
                out,
            );
        } else {
            self.back_in_line(transfer.waiter, out);
            self.known = Known::Nothing;
        }
        self.pump(now, out);
    }

    /// A transfer was refused or failed for certain: the old owner still holds, and releases in the ordinary way.
    pub(crate) fn transfer_failed(&mut self, now: Moment, transfer: &Transfer, out: &mut Few<Command>) {
        self.end_turn(transfer.waiter);
        self.owner_mut(transfer.new).busy = Busy::No;
        let old = self.owner_mut(transfer.old);
        old.busy = Busy::No;
        old.transferable = false;
        self.back_in_line(transfer.waiter, out);
        self.pump(now, out);
    }

    /// A transfer stays unresolved and nothing can be done against it: both owners may hold, so both are released. Its
    /// waiter gets the error, or goes on waiting.
    pub(crate) fn transfer_unresolved(
        &mut self,
        now: Moment,
        transfer: &Transfer,
        error: Option<Error>,
        out: &mut Few<Command>,
    ) {
        self.end_turn(transfer.waiter);
        for owner in [transfer.old, transfer.new] {
            let state = self.owner_mut(owner);
            state.busy = Busy::No;
            state.count = state.count.max(1);
            state.at_least = 0;
            state.transferable = false;
            state.unknown_end = Some(transfer.end);
        }
        match error {
            Some(error) => self.finish(transfer.waiter, Some(error), out),
            None => self.back_in_line(transfer.waiter, out),
        }
        self.known = Known::Nothing;
        self.pump(now, out);
    }

    /// A release was answered.
    pub(crate) fn released(&mut self, now: Moment, release: &Release, outcome: ReleaseOutcome, out: &mut Few<Command>) {
        let ReleaseOutcome { sent, answer, untold, repeated } = outcome;
        if release.owner.role == Role::Write {
            self.written = self.next_id();
        }
        let found = answer.found;
        let freed = release.target == 0;
        let name = self.settings.name.clone();
        let owner = self.owner_mut(release.owner);
        owner.busy = Busy::No;
        // A repeated release finds its own target when the first sending of it ran.
        let missing = if repeated && found == release.target { 0 } else { owner.at_least.saturating_sub(found) };
        owner.counts(found.min(release.target));
        // What was given back meanwhile has still to be brought down.
        if owner.count <= owner.live.len() as u64 {
            owner.unknown_end = None;
        }
        let gone = owner.oldest(usize::try_from(missing).unwrap_or(usize::MAX));
        let lost = LeaseLost::<()>::new(&name, release.owner.owner, None);
        self.lose_some(release.owner, |id| gone.contains(&id), out);
        self.settle_covered(
            release.owner,
            |leaving| match &untold {
                _ if gone.contains(&leaving.id) => Err(lost.clone().into()),
                _ if repeated && found == 0 && !leaving.was_valid => Err(lost.clone().into()),
                Some(error) => Err(error.clone()),
                None => Ok(()),
            },
            out,
        );
        if found == 0 {
            self.lose_some(release.owner, |_| true, out);
        }
        if release.leave.is_some() {
            self.leave_seat(release.owner, out);
        }
        if freed {
            self.freed(now, release, found > 0, answer.published || repeated, repeated || untold.is_some());
        }
        for (index, candidate) in release.candidates.iter().enumerate() {
            let granted = answer.granted == Some(index);
            self.candidate_answered(now, candidate, granted.then_some(sent), out);
        }
        self.pump(now, out);
    }

    /// The owner holds nothing any more. `unsure`: whether a message came of it, and whether that was heard, is unknown.
    fn freed(&mut self, now: Moment, release: &Release, held: bool, published: bool, unsure: bool) {
        match self.settings.discipline {
            Discipline::Fair if release.leave.is_some() && !held => return,
            Discipline::Fair if published => return self.given_to_the_head(now),
            // Nobody stands in the queue: whoever of us waits was thrown out of it.
            Discipline::Fair => {
                self.known = Known::Nothing;
                let waits =
                    |w: &&super::Waiter| matches!(w.state, WaiterState::Waiting | WaiterState::InFlight) && !w.stalled;
                if let Some(first) = self.line.iter().find(waits).map(|w| w.want.owner) {
                    self.call(first);
                }
                return;
            }
            Discipline::Spin => self.spin.freed(now, self.head_back_off()),
            Discipline::Line | Discipline::Readers => {}
        }
        // An attempt that was answered before this release, but whose answer comes after, tells old news.
        self.known = Known::Nothing;
        self.dirty = true;
        if unsure {
            self.sharing.forget_own_messages();
            self.told = true;
        } else if !published && self.sharing.unexpect_own_message() {
            self.told = true;
        }
        if published {
            self.sharing.freed(now, !self.line.is_empty(), self.settings.discipline == Discipline::Line);
        }
    }

    fn candidate_answered(
        &mut self,
        now: Moment,
        candidate: &Candidate,
        granted: Option<Moment>,
        out: &mut Few<Command>,
    ) {
        let Candidate { waiter, owner, term, .. } = *candidate;
        self.owner_mut(owner).busy = Busy::No;
        match granted {
            Some(sent) => {
                let reply = Granted { found: 0, fresh: true, token: None };
                self.granted(
                    now,
                    Grant { owner, waiter, term, target: 1, reply, sent, ttl: term.length, before: None },
                    out,
                );
            }
            None => self.back_in_line(waiter, out),
        }
    }

    /// A release failed and goes on in the background: whoever waits for it, or for the lock by it, is told.
    pub(crate) fn release_failing(&mut self, release: &Release, error: &Error, out: &mut Few<Command>) {
        self.settle_waiting(release.owner, error, out);
        self.has_left(release.owner, Some(error), out);
        for candidate in &release.candidates {
            self.finish(candidate.waiter, Some(error.clone()), out);
        }
        self.sharing.forget_own_messages();
        (self.dirty, self.told) = (true, true);
    }

    /// The same for a hand-over.
    pub(crate) fn transfer_failing(&mut self, old: Holder, error: &Error, out: &mut Few<Command>) {
        self.settle_waiting(old, error, out);
        self.sharing.forget_own_messages();
        (self.dirty, self.told) = (true, true);
    }

    /// The lease of what could not be released has ended.
    pub(crate) fn release_given_up(&mut self, now: Moment, release: &Release, out: &mut Few<Command>) {
        let lost = self.lost_error(release.owner);
        // As long as the owner's other role keeps the key, what was not released is there too, and is tried again.
        let other = |o: &super::holds::Owner| {
            o.id.owner == release.owner.owner && o.id != release.owner && !(o.live.is_empty() && o.is_idle())
        };
        let kept = release.end <= now && !self.closed && self.owners.iter().any(other);
        let owner = self.owner_mut(release.owner);
        owner.busy = Busy::No;
        if !kept {
            owner.unknown_end = None;
            owner.counts(owner.live.len() as u64);
        }
        self.settle_covered(release.owner, |_| Err(lost.clone()), out);
        if release.leave.is_some() {
            self.leave_seat(release.owner, out);
        }
        for candidate in &release.candidates {
            // If it was granted after all, its next attempt finds that.
            self.candidate_answered(now, candidate, None, out);
        }
        self.known = Known::Nothing;
        self.sharing.forget_own_messages();
        (self.dirty, self.told) = (true, true);
        self.pump(now, out);
    }

    // ---- parts

    /// Redis granted: the waiter is offered the hold; if it is gone, the difference of counts gives it back.
    fn granted(&mut self, now: Moment, grant: Grant, out: &mut Few<Command>) {
        let Grant { owner, waiter: id, term, target, reply, sent, ttl, before } = grant;
        let Granted { found, fresh, token } = reply;
        let hold_id = self.next_id();
        let end = sent.plus(term.length);
        let deadline = end.minus(margin(term.length));
        self.leave_seat(owner, out);
        let state = self.owner_mut(owner);
        state.counts(if found == 0 { 1 } else { target });
        state.granted = hold_id;
        if owner.role == Role::Write {
            state.adds_up = Some(state.adds_up.unwrap_or(now).max(now).plus(term.length));
        }
        // By the clock of Redis it may have begun just now.
        state.unknown_end = state.unknown_end.max(Some(now.plus(ttl)));
        let missing = usize::try_from((state.live.len() as u64).saturating_sub(found)).unwrap_or(usize::MAX);
        let gone = state.oldest(missing);
        self.lose_some(owner, |id| gone.contains(&id), out);
        if let (true, Some(before)) = (fresh, before) {
            self.lose_the_others(owner, before, out);
        }
        self.known = Known::Nothing;
        self.sharing.granted(now);
        let late = deadline <= now;
        let lost = self.lost_error(owner);
        let Some(waiter) = self.waiter(id) else { return };
        if late {
            self.finish(id, Some(lost), out);
            return;
        }
        if matches!(waiter.state, WaiterState::Over(_)) {
            return;
        }
        let held = Held { id: hold_id, validity: Arc::new(Validity::until(deadline)), token };
        waiter.state = WaiterState::Offered { held: held.clone(), since: now };
        out.extend(waiter.waker.take().map(Command::Wake));
        let state = self.owner_mut(owner);
        state.transferable = true;
        state.live.push(Hold { id: hold_id, end, term, validity: held.validity, taken: false, outlasts: false });
        // What was given back before has still to be brought down.
        if state.count <= state.live.len() as u64 {
            state.unknown_end = None;
        }
        if !self.line.is_empty() {
            self.let_pass(owner, out);
        }
    }
}
