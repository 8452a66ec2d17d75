//! Keeping holds: renewal by the watchdog, and more time that a guard asks for.

use std::time::Duration;

use super::{
    Command, Extension, HoldId, Queue, ReleaseReply,
    holds::{Busy, Hold},
};
use crate::{
    clock::Moment,
    error::Error,
    few::Few,
    lease::margin,
    owner::{Holder, Role},
    watchdog::wheel::Token,
};

/// More time for a hold.
#[derive(Debug)]
pub(super) struct Wish {
    pub(super) hold: HoldId,
    pub(super) lease: Duration,
    pub(super) reply: ReleaseReply,
}

/// What a renewal of one owner asks for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RenewalDue {
    /// What the key is to live for.
    pub(crate) ttl: Duration,
    /// What each hold of a reader is to live for; zero: they are left as they are.
    pub(crate) holds: Duration,
    /// The newest hold it speaks for.
    pub(crate) newest: HoldId,
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

impl Queue {
    pub(crate) fn watched(&mut self, owner: Holder, token: Token) -> Option<Token> {
        match self.known_owner(owner).filter(|o| !o.live.is_empty()) {
            Some(state) => state.renewal.replace(token),
            None => Some(token),
        }
    }

    pub(crate) fn is_renewed(&self, owner: Holder) -> bool {
        !self.closed && self.owner(owner).is_some_and(|o| o.live.iter().any(|h| self.is_watched(owner, h)))
    }

    /// Whether the watchdog has to see to a hold. Others who read may cut the key's time to live, below a long lease too.
    fn is_watched(&self, owner: Holder, hold: &Hold) -> bool {
        let outlasts = hold.outlasts || hold.term.length > self.settings.watchdog_timeout;
        let cut_by_others = owner.role == Role::Read && outlasts;
        hold.taken && (hold.term.renewed || cut_by_others)
    }

    /// What a renewal has to ask for. The owner's entry in the watchdog is used up.
    pub(crate) fn renewal_due(&mut self, now: Moment, owner: Holder) -> Renewal {
        let due = self.is_renewed(owner);
        let quiet = self.other_side_is_quiet(owner);
        let promised = self.promised_to(now, owner);
        let timeout = self.settings.watchdog_timeout;
        let Some(state) = self.known_owner(owner) else { return Renewal::Over };
        state.renewal = None;
        if !due {
            return Renewal::Over;
        }
        if state.busy != Busy::No || !quiet {
            return Renewal::Postponed;
        }
        match (promised, state.live.iter().map(|h| h.id).max()) {
            (Some(ttl), Some(newest)) => {
                (state.renewing, state.was_renewed) = (true, true);
                let renewed = state.live.iter().any(|h| h.term.renewed && h.taken);
                Renewal::Due(RenewalDue { ttl, holds: if renewed { timeout } else { Duration::ZERO }, newest })
            }
            _ => Renewal::Over,
        }
    }

    /// A renewal was answered with the owner's count.
    pub(crate) fn renewed(
        &mut self,
        now: Moment,
        owner: Holder,
        due: RenewalDue,
        sent: Moment,
        found: u64,
        out: &mut Few<Command>,
    ) {
        let timeout = self.settings.watchdog_timeout;
        let Some(state) = self.known_owner(owner) else { return };
        state.renewing = false;
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
        self.lose_some(owner, |id| late.contains(&id), out);
        self.pump(now, out);
    }

    /// A renewal failed.
    pub(crate) fn renewal_failed(&mut self, now: Moment, owner: Holder, out: &mut Few<Command>) {
        if let Some(state) = self.known_owner(owner) {
            state.renewing = false;
        }
        self.tick(now, out);
    }

    /// A guard wants its hold to last this long from now.
    pub(crate) fn extend(
        &mut self,
        now: Moment,
        owner: Holder,
        hold: HoldId,
        lease: Duration,
        reply: ReleaseReply,
        out: &mut Few<Command>,
    ) {
        self.owner_mut(owner).wishes.push(Wish { hold, lease, reply });
        self.pump(now, out);
    }

    /// An extension was answered with the owner's count, or failed.
    pub(crate) fn extended(
        &mut self,
        now: Moment,
        asked: Extension,
        sent: Moment,
        outcome: Result<u64, Error>,
        out: &mut Few<Command>,
    ) {
        let Extension { owner, hold, lease, ttl, reply, .. } = asked;
        let end = sent.plus(lease);
        // By the clock of Redis it may have begun just now.
        let lives = Some(now.plus(ttl));
        let timeout = self.settings.watchdog_timeout;
        let state = self.owner_mut(owner);
        state.busy = Busy::No;
        let outcome = match outcome {
            Err(error) => {
                // The key may live for as long as was asked for: it does not end with the hold any more.
                state.unknown_end = state.unknown_end.max(lives);
                Err(error)
            }
            Ok(0) => {
                self.renewed(now, owner, RenewalDue { ttl: lease, holds: lease, newest: hold }, sent, 0, out);
                Err(self.lost_error(owner))
            }
            Ok(found) => match state.live.iter_mut().find(|h| h.id == hold) {
                Some(hold) => {
                    hold.end = hold.end.max(end);
                    hold.outlasts |= lease > timeout;
                    let extended = hold.validity.extend(now, end.minus(margin(lease)));
                    if extended { Ok(()) } else { Err(self.lost_error(owner)) }
                }
                None => {
                    // The hold has ended meanwhile, and the key has not: it is given back.
                    state.count = state.count.max(found);
                    state.unknown_end = state.unknown_end.max(lives);
                    Err(self.lost_error(owner))
                }
            },
        };
        if self.is_renewed(owner) && self.owner(owner).is_some_and(|o| o.renewal.is_none() && !o.renewing) {
            out.push(Command::WatchRenewal(owner));
        }
        out.push(Command::Settle(reply, outcome));
        self.pump(now, out);
    }

    /// Extensions go out when nothing else of the owner is on its way.
    pub(super) fn grant_wishes(&mut self, now: Moment, out: &mut Few<Command>) {
        for index in 0..self.owners.len() {
            let owner = self.owners[index].id;
            while self.owners[index].busy == Busy::No
                && self.other_side_is_quiet(owner)
                && !self.owners[index].renewing
                && !self.owners[index].wishes.is_empty()
            {
                let lost = self.lost_error(owner);
                let state = &mut self.owners[index];
                let Wish { hold, lease, reply } = state.wishes.remove(0);
                let is_live = state.live.iter().any(|h| h.id == hold && h.validity.is_valid(now));
                if !is_live || self.closed {
                    out.push(Command::Settle(reply, Err(lost)));
                    continue;
                }
                state.busy = Busy::Yes;
                let rank = 1 + state.live.iter().take_while(|h| h.id != hold).count() as u64;
                let ttl = self.promised_to(now, owner).map_or(lease, |promised| promised.max(lease));
                out.push(Command::Extend(Extension { owner, hold, rank, lease, ttl, reply }));
            }
        }
    }
}
