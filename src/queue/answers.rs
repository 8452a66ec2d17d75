//! What Redis answered, or did not.

use std::sync::Arc;

use super::{
    Attempt, AttemptReply, Channel, Command, Held, HoldId, Known, Queue, Release, Transfer, WaiterId, WaiterState,
    holds::{Busy, Hold},
};
use crate::{
    clock::Moment,
    error::{Error, LeaseLost},
    few::Few,
    lease::{Term, margin},
    owner::OwnerId,
    validity::Validity,
};

/// What Redis granted.
struct Grant {
    owner: OwnerId,
    waiter: WaiterId,
    term: Term,
    target: u64,
    found: u64,
    sent: Moment,
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
            AttemptReply::Granted { found } => {
                let Attempt { owner, waiter, term, target, newest, .. } = *attempt;
                self.granted(now, Grant { owner, waiter, term, target, found, sent, before: Some(newest) }, out);
            }
            AttemptReply::Busy { retry_in } => {
                self.lose_all(attempt.owner, out);
                self.owner_mut(attempt.owner).counts(0);
                self.known = Known::Busy { since: now, until: retry_in.map(|left| now.plus(left)) };
                if self.owners.iter().all(|o| o.count == 0) {
                    self.sharing.heard_foreign_holder();
                }
                self.refused(attempt.waiter, out);
            }
        }
        self.pump(now, out);
    }

    /// An attempt failed for certain: Redis did not grant it.
    pub(crate) fn attempt_failed(&mut self, now: Moment, attempt: &Attempt, error: Error, out: &mut Few<Command>) {
        if self.turn == Some(attempt.waiter) {
            self.known = Known::Nothing;
        }
        self.dirty = true;
        self.end_turn(attempt.waiter);
        self.owner_mut(attempt.owner).busy = Busy::No;
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
    pub(crate) fn abandon(&mut self, now: Moment, owner: OwnerId, until: Moment, out: &mut Few<Command>) {
        self.abandoned.retain(|(gone, _)| *gone != owner);
        self.abandoned.push((owner, until));
        let waits = |w: &&super::Waiter| w.owner == owner && matches!(w.state, WaiterState::Waiting);
        let waiting: Vec<WaiterId> = self.waiters().filter(waits).map(|w| w.id).collect();
        for id in waiting {
            let error = Error::Unresolved { key: self.settings.name.to_string(), owner };
            self.finish(id, Some(error), out);
        }
        self.pump(now, out);
    }

    /// A transfer was answered: `granted` or the old owner held nothing.
    pub(crate) fn transferred(
        &mut self,
        now: Moment,
        transfer: &Transfer,
        sent: Moment,
        granted: bool,
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
        let lost = (!granted).then(|| self.lost_error(transfer.old));
        self.settle_covered(transfer.old, |_| lost.clone().map_or(Ok(()), Err), out);
        if granted {
            self.sharing.run_length += 1;
            let Transfer { new: owner, waiter, term, .. } = *transfer;
            self.granted(now, Grant { owner, waiter, term, target: 1, found: 0, sent, before: None }, out);
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

    /// A release was answered with the count it found. `repeated`: an earlier sending of it may have run.
    pub(crate) fn released(
        &mut self,
        now: Moment,
        release: &Release,
        found: u64,
        untold: Option<Error>,
        repeated: bool,
        out: &mut Few<Command>,
    ) {
        let freed = release.target == 0;
        let name = self.settings.name.clone();
        let owner = self.owner_mut(release.owner);
        owner.busy = Busy::No;
        owner.unknown_end = None;
        // A repeated release finds its own target when the first sending of it ran.
        let missing = if repeated && found == release.target { 0 } else { owner.at_least.saturating_sub(found) };
        owner.counts(found.min(release.target));
        let gone = owner.oldest(usize::try_from(missing).unwrap_or(usize::MAX));
        let lost = LeaseLost::<()>::new(&name, release.owner, None);
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
        if freed {
            self.known = Known::Nothing;
            // An attempt that was answered before this release, but whose answer comes after, tells old news.
            self.dirty = true;
            let published = found > 0 || repeated;
            if repeated || untold.is_some() {
                // Whether it published, and whether that was heard, is unknown.
                self.sharing.forget_own_messages();
                self.dirty = true;
            } else if !published && self.sharing.unexpect_own_message() {
                self.dirty = true;
            }
            if published {
                self.sharing.freed(now, !self.line.is_empty());
            }
        }
        self.pump(now, out);
    }

    /// A release failed and goes on in the background: whoever waits for it is told.
    pub(crate) fn release_failing(&mut self, owner: OwnerId, error: &Error, out: &mut Few<Command>) {
        self.settle_waiting(owner, error, out);
        self.sharing.forget_own_messages();
        self.dirty = true;
    }

    /// The lease of what could not be released has ended.
    pub(crate) fn release_given_up(&mut self, now: Moment, release: &Release, out: &mut Few<Command>) {
        let lost = self.lost_error(release.owner);
        let owner = self.owner_mut(release.owner);
        owner.busy = Busy::No;
        owner.unknown_end = None;
        owner.counts(owner.live.len() as u64);
        self.settle_covered(release.owner, |_| Err(lost.clone()), out);
        self.known = Known::Nothing;
        self.sharing.forget_own_messages();
        self.dirty = true;
        self.pump(now, out);
    }

    // ---- parts

    /// Redis granted: the waiter is offered the hold; if it is gone, the difference of counts gives it back.
    fn granted(&mut self, now: Moment, grant: Grant, out: &mut Few<Command>) {
        let Grant { owner, waiter: id, term, target, found, sent, before } = grant;
        let hold_id = self.next_id();
        let end = sent.plus(term.length);
        let deadline = end.minus(margin(term.length));
        let state = self.owner_mut(owner);
        state.counts(if found == 0 { 1 } else { target });
        state.unknown_end = Some(end);
        let missing = usize::try_from((state.live.len() as u64).saturating_sub(found)).unwrap_or(usize::MAX);
        let gone = state.oldest(missing);
        self.lose_some(owner, |id| gone.contains(&id), out);
        if let (0, Some(before)) = (found, before) {
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
        let held = Held { id: hold_id, validity: Arc::new(Validity::until(deadline)) };
        waiter.state = WaiterState::Offered { held: held.clone(), since: now };
        out.extend(waiter.waker.take().map(Command::Wake));
        let state = self.owner_mut(owner);
        state.unknown_end = None;
        state.transferable = true;
        state.live.push(Hold { id: hold_id, end, term, validity: held.validity, taken: false });
        if !owner.is_automatic() {
            self.let_pass(owner);
        }
    }
}
