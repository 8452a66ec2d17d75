//! Fair kinds: every waiter stands in a queue in Redis, which decides who is next.
//!
//! An owner's *seat* is what we know of its place there. Every owner has a channel of its own, on which it is called when it
//! is at the head. The first of our owners in line looks on behalf of all: only it asks when the holder's lease ends, or
//! again and again behind a head that is dead. A release is told who of us waits, and may grant at once to the one at the head.

use std::{collections::HashSet, time::Duration};

use super::{
    BusyReply, Candidate, Channel, Command, DEGRADED_POLL, EXPIRY_SLACK, Known, POLL, Queue, WaiterId, WaiterState,
};
use crate::{
    clock::Moment,
    error::Error,
    few::Few,
    owner::{Holder, OwnerId},
};

/// Behind a head that does not take the lock we look again after this time.
const BEHIND_A_HEAD: Duration = Duration::from_millis(200);
/// So many of our waiters are named to a release: the first of ours in Redis is nearly always the first in line.
const CANDIDATES: usize = 3;

/// An owner's place in the queue in Redis.
#[derive(Clone, Copy, Debug)]
pub(super) struct Seat {
    /// What it was queued with, and has to be taken off those behind when it leaves.
    pub(super) patience: Duration,
    pub(super) channel: Channel,
    /// Called, and has not asked since.
    called: bool,
    /// When something may have been missed last.
    dirty: Option<Moment>,
    /// When its last question was answered: since then it stands in the queue.
    pub(super) asked: Option<Moment>,
    /// When others may throw it out of the queue.
    pub(super) until: Option<Moment>,
}

impl Seat {
    /// When the place is nobody's any more without being left.
    pub(super) fn ends(&self, now: Moment) -> Moment {
        now.plus(self.patience).max(self.until.unwrap_or(now))
    }
}

impl Queue {
    /// An attempt of this owner will put it into the queue.
    pub(super) fn take_seat(&mut self, owner: Holder, patience: Duration) {
        let seat = self.owner_mut(owner).seat.get_or_insert(Seat {
            patience,
            channel: Channel::Off,
            called: false,
            dirty: None,
            asked: None,
            until: None,
        });
        (seat.called, seat.dirty) = (false, None);
    }

    /// The attempt found the lock busy.
    pub(super) fn seated(&mut self, now: Moment, owner: Holder, sent: Moment, busy: &BusyReply) {
        let Some(place) = &busy.place else { return };
        if let Some(seat) = &mut self.owner_mut(owner).seat {
            seat.asked = Some(now);
            // One that is dead by its own time, and yet was not thrown out, has to wait for those before it.
            seat.until = Some(now.plus(place.expires_in.max(BEHIND_A_HEAD)));
        }
        self.nothing_was_missed(sent);
        let Some((head, expires_in)) = &place.ahead else { return };
        // The lock is free, and this one is to have it.
        let until = Some(now.plus(BEHIND_A_HEAD.min(*expires_in)));
        self.known = Known::Busy { since: now, until, by_readers: false };
        if let Some(ours) = OwnerId::parse(head).map(OwnerId::alone).filter(|id| *id != owner) {
            self.call(ours);
        }
    }

    /// This owner is at the head of the queue in Redis.
    pub(super) fn call(&mut self, owner: Holder) {
        if let Some(seat) = self.known_owner(owner).and_then(|o| o.seat.as_mut()) {
            seat.called = true;
        }
    }

    /// Who was called when this was sent is known.
    pub(super) fn nothing_was_missed(&mut self, sent: Moment) {
        for seat in self.owners.iter_mut().filter_map(|o| o.seat.as_mut()) {
            seat.dirty = seat.dirty.filter(|&since| since > sent);
        }
    }

    pub(super) fn seat_channel_changed(&mut self, now: Moment, owner: Holder, to: Channel) {
        let seat = self.known_owner(owner).and_then(|o| o.seat.as_mut());
        if let Some(seat) = seat.filter(|seat| seat.channel != Channel::Off) {
            seat.channel = to;
            seat.dirty = Some(now);
        }
    }

    /// Whoever has reason to ask does so.
    pub(super) fn ask_from_seats(&mut self, now: Moment, out: &mut Few<Command>) {
        let due = |&(_, owner, first): &(WaiterId, Holder, bool)| self.seat_time(now, owner, first) <= now;
        let asking: Vec<WaiterId> = self.who_may_ask().filter(due).map(|(id, ..)| id).collect();
        self.ask_each(now, &asking, out);
    }

    /// When somebody in line has to ask next.
    pub(super) fn next_seat_time(&self, now: Moment) -> Option<Moment> {
        self.who_may_ask().map(|(_, owner, first)| self.seat_time(now, owner, first)).min()
    }

    /// Those in line whose owner is idle, and whether one is the first. Newcomers take their places one after the other, so
    /// that the queue in Redis has the order of the line.
    fn who_may_ask(&self) -> impl Iterator<Item = (WaiterId, Holder, bool)> {
        let (mut first, mut seating) = (true, false);
        self.line.iter().filter_map(move |waiter| {
            let owner = waiter.want.owner;
            let stands = self.owner(owner).and_then(|o| o.seat).is_some_and(|seat| seat.asked.is_some());
            if !matches!(waiter.state, WaiterState::Waiting) || waiter.stalled {
                let asks = matches!(waiter.state, WaiterState::InFlight);
                first &= !asks;
                seating |= asks && !stands;
                return None;
            }
            let may = (stands || !seating) && self.is_idle_owner(owner);
            seating |= !stands;
            may.then_some((waiter.id, owner, std::mem::take(&mut first)))
        })
    }

    /// When this owner has to ask. `first`: it looks on behalf of all.
    fn seat_time(&self, now: Moment, owner: Holder, first: bool) -> Moment {
        let Some(seat) = self.owner(owner).and_then(|o| o.seat) else { return now };
        let Some(asked) = seat.asked else { return now };
        // What any of ours may have missed: the order here need not be that in Redis.
        let missed = |seat: Seat| seat.dirty.is_some() && seat.channel == Channel::Live;
        if seat.called || first && self.owners.iter().filter_map(|o| o.seat).any(missed) {
            return now;
        }
        let mut time = seat.until.map_or(asked.plus(POLL), |until| until.plus(EXPIRY_SLACK));
        if seat.channel == Channel::Pending {
            time = time.min(asked.plus(DEGRADED_POLL));
        }
        if first {
            // A renewal may be on its way for longer than the lease lasts: one look after the end is enough.
            let unasked = |end: &Moment| asked < end.plus(EXPIRY_SLACK);
            let held_here = self.owners.iter().filter_map(super::holds::Owner::latest_end).max().filter(unasked);
            let look = match (held_here, self.known) {
                (Some(end), _) | (None, Known::Busy { until: Some(end), .. }) => end.plus(EXPIRY_SLACK),
                (None, Known::Busy { since, until: None, .. }) => since.plus(POLL),
                // Given up here, or lost: whoever is at the head was told, but may be dead.
                (None, Known::Nothing) if self.owners.iter().any(|o| !o.is_idle()) => time,
                (None, Known::Nothing) => asked.plus(BEHIND_A_HEAD),
            };
            time = time.min(look);
        }
        time
    }

    /// Who of those in line may be granted the lock by a release; they ask nothing until it is answered.
    pub(super) fn candidates(&mut self) -> Vec<Candidate> {
        let mut candidates: Vec<Candidate> = Vec::new();
        if !self.settings.handoff || self.closed {
            return candidates;
        }
        for waiter in &self.line {
            let (want, id) = (waiter.want, waiter.id);
            let ready = matches!(waiter.state, WaiterState::Waiting) && !waiter.stalled;
            let Some(owner) = self.owner(want.owner).filter(|o| ready && o.is_idle() && o.count == 0) else { continue };
            let Some(seat) = owner.seat.filter(|seat| seat.asked.is_some()) else { continue };
            if candidates.iter().all(|c| c.owner != want.owner) {
                candidates.push(Candidate { waiter: id, owner: want.owner, term: want.term, patience: seat.patience });
            }
            if candidates.len() == CANDIDATES {
                break;
            }
        }
        for candidate in &candidates {
            if let Some(waiter) = self.waiter(candidate.waiter) {
                waiter.state = WaiterState::InFlight;
            }
            self.owner_mut(candidate.owner).busy = super::Busy::Yes;
        }
        candidates
    }

    /// The lock was given up here, and whoever is at the head was told.
    pub(super) fn given_to_the_head(&mut self, now: Moment) {
        self.known = Known::Busy { since: now, until: Some(now.plus(BEHIND_A_HEAD)), by_readers: false };
    }

    /// Owners that stand in the queue in Redis for nobody.
    pub(super) fn vacated(&self) -> Vec<Holder> {
        if self.owners.iter().all(|o| o.seat.is_none()) {
            return Vec::new();
        }
        let wanting = self.wanting();
        self.owners.iter().filter(|o| o.seat.is_some() && !wanting.contains(&o.id)).map(|o| o.id).collect()
    }

    /// Nothing came of the attempt: if the owner was not in the queue before, it is not now.
    pub(super) fn not_seated(&mut self, owner: Holder) {
        if let Some(state) = self.known_owner(owner) {
            state.seat = state.seat.filter(|seat| seat.asked.is_some());
        }
    }

    /// Owners for whom somebody waits.
    pub(super) fn wanting(&self) -> HashSet<Holder> {
        let waits = |w: &&super::Waiter| matches!(w.state, WaiterState::Waiting | WaiterState::InFlight) && !w.stalled;
        self.waiters().filter(waits).map(|w| w.want.owner).collect()
    }

    /// Each owner that waits listens to its own channel.
    pub(super) fn listen_from_seats(&mut self, out: &mut Few<Command>) {
        let wanting = self.wanting();
        for index in 0..self.owners.len() {
            let owner = self.owners[index].id;
            let Some(seat) = self.owners[index].seat else { continue };
            let wanted = seat.asked.is_some() && wanting.contains(&owner);
            match (seat.channel, wanted) {
                (Channel::Off, true) => {
                    self.set_seat_channel(index, Channel::Pending, Command::Listen(Some(owner)), out)
                }
                (Channel::Pending | Channel::Live, false) => {
                    self.set_seat_channel(index, Channel::Off, Command::Unlisten(Some(owner)), out);
                }
                _ => {}
            }
        }
    }

    fn set_seat_channel(&mut self, index: usize, to: Channel, command: Command, out: &mut Few<Command>) {
        if let Some(seat) = &mut self.owners[index].seat {
            seat.channel = to;
            out.push(command);
        }
    }

    /// The time of a waiter in line is over: `true` if its owner now stands in the queue in Redis for nobody.
    pub(super) fn leaves_a_seat(&mut self, id: WaiterId) -> bool {
        let Some(owner) = self.waiter(id).map(|w| w.want.owner) else { return false };
        let seated = self.owner(owner).is_some_and(|o| o.seat.is_some());
        let alone = self.waiters().all(|w| w.id == id || w.want.owner != owner);
        if seated
            && alone
            && let Some(waiter) = self.waiter(id)
        {
            (waiter.expired, waiter.state) = (true, WaiterState::Leaving);
            return true;
        }
        false
    }

    /// Tells those who waited to be out of the queue in Redis.
    pub(super) fn has_left(&mut self, owner: Holder, error: Option<&Error>, out: &mut Few<Command>) {
        let leaving = |w: &&super::Waiter| w.want.owner == owner && matches!(w.state, WaiterState::Leaving);
        let ids: Vec<WaiterId> = self.waiters().filter(leaving).map(|w| w.id).collect();
        for id in ids {
            self.finish(id, error.cloned(), out);
        }
    }

    /// The owner does not stand in the queue any more.
    pub(super) fn leave_seat(&mut self, owner: Holder, out: &mut Few<Command>) {
        if let Some(seat) = self.owner_mut(owner).seat.take()
            && seat.channel != Channel::Off
        {
            out.push(Command::Unlisten(Some(owner)));
        }
        self.has_left(owner, None, out);
    }
}
