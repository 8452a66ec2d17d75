//! One key's waiters and holds in this client: a pure state machine. Events in, commands out; no I/O, no clock.
//!
//! What it knows: who holds the key here and until when, what count Redis has for each owner, who waits, and whether the
//! channel tells of releases. What it decides (`pump.rs`): who may ask Redis next, when a release becomes a transfer to the
//! next waiter (`sharing.rs` says for how long), and when to look again.
//!
//! The counts are reconciled, not stepped: whenever an owner's count in Redis differs from its live holds, a command with
//! the absolute target is due. A grant that nobody takes, a guard that is dropped, an acquire with an unknown outcome: all
//! of them are just such a difference.

mod holds;
mod pump;
mod sharing;
#[cfg(test)]
mod tests;

use std::{collections::VecDeque, sync::Arc, task::Waker, time::Duration};

use tokio::sync::oneshot;

use crate::{
    clock::Moment,
    error::{Error, LeaseLost},
    lease::{Term, margin},
    owner::OwnerId,
    validity::Validity,
    watchdog::wheel::Token,
};
use holds::{Busy, Hold, Owner};
pub(crate) use holds::{Held, RenewalDue};
use sharing::Sharing;

pub(crate) type WaiterId = u64;
pub(crate) type HoldId = u64;
/// Where the outcome of a release goes.
pub(crate) type ReleaseReply = oneshot::Sender<Result<(), Error>>;

/// An offer that nobody takes is passed on after this time, or after a third of its lease.
const OFFER_BOUND: Duration = Duration::from_millis(100);
/// A wait that no expiry bounds looks again after this time.
const POLL: Duration = Duration::from_secs(30);
/// The same while the channel is not live.
const DEGRADED_POLL: Duration = Duration::from_secs(1);
/// How long a channel outlives its last waiter while the lock is held here, in case the next one comes at once.
const LINGER: Duration = Duration::from_millis(100);
/// A key is looked at this long after its expiry: `PTTL` is rounded, and the server's clock is not ours.
const EXPIRY_SLACK: Duration = Duration::from_millis(2);

/// What a key's queue is told once.
#[derive(Clone, Debug)]
pub(crate) struct Settings {
    pub(crate) name: Arc<str>,
    pub(crate) handoff: bool,
    pub(crate) watchdog_timeout: Duration,
}

/// What the client has to do for the queue.
#[derive(Debug)]
pub(crate) enum Command {
    Attempt(Attempt),
    /// Take the owner off the watchdog.
    CancelRenewal(Token),
    Listen,
    Release(Release),
    Settle(ReleaseReply, Result<(), Error>),
    Transfer(Transfer),
    Unlisten,
    Wake(Waker),
    /// Put the owner on the watchdog.
    WatchRenewal(OwnerId),
}

/// Ask Redis for the lock.
#[derive(Clone, Debug)]
pub(crate) struct Attempt {
    pub(crate) waiter: WaiterId,
    pub(crate) owner: OwnerId,
    pub(crate) target: u64,
    pub(crate) term: Term,
    /// What the key's TTL becomes when other holds of the owner are still there: never below what they were promised.
    pub(crate) ttl: Duration,
    pub(crate) abandoned: Vec<OwnerId>,
}

/// Bring the owner's count down to the target.
#[derive(Clone, Debug)]
pub(crate) struct Release {
    pub(crate) owner: OwnerId,
    pub(crate) target: u64,
    pub(crate) ttl: Duration,
    /// When what is being released ends by itself.
    pub(crate) end: Moment,
}

/// Hand the lock to a waiter of this client.
#[derive(Clone, Debug)]
pub(crate) struct Transfer {
    pub(crate) old: OwnerId,
    pub(crate) new: OwnerId,
    pub(crate) waiter: WaiterId,
    pub(crate) term: Term,
    pub(crate) end: Moment,
}

/// What an attempt found.
#[derive(Debug)]
pub(crate) enum AttemptReply {
    Busy {
        retry_in: Option<Duration>,
    },
    /// Granted; the count before.
    Granted {
        found: u64,
    },
}

/// What a waiter gets.
#[derive(Debug)]
pub(crate) enum WaitOutcome {
    Granted(Held),
    /// The wait is over.
    NotGranted,
    Failed(Error),
}

#[derive(Debug)]
struct Waiter {
    id: WaiterId,
    owner: OwnerId,
    term: Term,
    /// Asks once and does not wait.
    immediate: bool,
    /// Its time is over; only the outcome of the attempt in flight is awaited.
    expired: bool,
    /// Did not take an offer; gets no other until it is polled.
    stalled: bool,
    state: WaiterState,
    waker: Option<Waker>,
}

#[derive(Debug)]
enum WaiterState {
    Waiting,
    InFlight,
    Offered { held: Held, since: Moment },
    Over(Option<Error>),
}

/// Whether releases by others are heard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Channel {
    Off,
    /// Wanted, not confirmed (yet, or not any more).
    Pending,
    Live,
}

/// What the last reply said of the key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Known {
    Nothing,
    /// Held elsewhere; `until` is its expiry if it has one.
    Busy {
        since: Moment,
        until: Option<Moment>,
    },
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Queue {
    settings: Settings,
    owners: Vec<Owner>,
    /// Those who wait their turn, by id.
    line: VecDeque<Waiter>,
    /// Those who ask at once: no wait, or their owner holds the key already.
    direct: Vec<Waiter>,
    /// Owners whose acquire may still run: their hold counts as free, and they get nothing until then.
    abandoned: Vec<(OwnerId, Moment)>,
    channel: Channel,
    /// Something happened since the question was sent whose answer we know.
    dirty: bool,
    known: Known,
    /// The attempt or transfer in flight for somebody in line.
    turn: Option<WaiterId>,
    sharing: Sharing,
    linger_until: Option<Moment>,
    closed: bool,
    last_id: u64,
}

impl Queue {
    pub(crate) fn new(settings: Settings) -> Self {
        Self {
            settings,
            owners: Vec::new(),
            line: VecDeque::new(),
            direct: Vec::new(),
            abandoned: Vec::new(),
            channel: Channel::Off,
            dirty: false,
            known: Known::Nothing,
            turn: None,
            sharing: Sharing::default(),
            linger_until: None,
            closed: false,
            last_id: 0,
        }
    }

    // ---- waiters

    /// A caller wants the lock. It gets its outcome from [`poll`](Self::poll).
    pub(crate) fn join(
        &mut self,
        now: Moment,
        owner: OwnerId,
        term: Term,
        immediate: bool,
        out: &mut Vec<Command>,
    ) -> WaiterId {
        let id = self.next_id();
        let mut waiter = Waiter {
            id,
            owner,
            term,
            immediate,
            expired: false,
            stalled: false,
            state: WaiterState::Waiting,
            waker: None,
        };
        self.abandoned.retain(|(_, until)| *until > now);
        if self.closed {
            waiter.state = WaiterState::Over(Some(Error::Closed));
        } else if self.abandoned.iter().any(|(gone, _)| *gone == owner) {
            waiter.state = WaiterState::Over(Some(Error::Unresolved { key: self.settings.name.to_string(), owner }));
        }
        if immediate || self.owner(owner).is_some_and(|o| !o.live.is_empty()) {
            self.direct.push(waiter);
        } else {
            self.line.push_back(waiter);
        }
        self.pump(now, out);
        id
    }

    /// The waiter's future was polled: takes what is offered, or leaves a waker.
    pub(crate) fn poll(
        &mut self,
        now: Moment,
        id: WaiterId,
        waker: &Waker,
        out: &mut Vec<Command>,
    ) -> Option<WaitOutcome> {
        let Some(waiter) = self.waiter(id) else { return Some(WaitOutcome::NotGranted) };
        let was_stalled = std::mem::replace(&mut waiter.stalled, false);
        match waiter.state {
            WaiterState::Waiting | WaiterState::InFlight => {
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
                    WaiterState::Offered { held, .. } => self.take(now, waiter.owner, held, out),
                    WaiterState::Over(None) => WaitOutcome::NotGranted,
                    WaiterState::Over(Some(error)) => WaitOutcome::Failed(error),
                    WaiterState::Waiting | WaiterState::InFlight => unreachable!("matched above"),
                };
                self.pump(now, out);
                Some(outcome)
            }
        }
    }

    /// The waiter's time is over: `true` if it is out, `false` if an attempt of its is in flight or an offer stands.
    pub(crate) fn expire(&mut self, now: Moment, id: WaiterId, out: &mut Vec<Command>) -> bool {
        match self.waiter(id) {
            None => true,
            Some(waiter) if matches!(waiter.state, WaiterState::Waiting) => {
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
    pub(crate) fn leave(&mut self, now: Moment, id: WaiterId, out: &mut Vec<Command>) {
        let Some(waiter) = self.remove_waiter(id) else { return };
        if let WaiterState::Offered { held, .. } = waiter.state {
            self.give_back(waiter.owner, held.id);
        }
        self.pump(now, out);
    }

    /// Whether somebody still wants what an attempt would get.
    pub(crate) fn wants(&self, id: WaiterId) -> bool {
        self.line_index(id).is_some() || self.direct.iter().any(|w| w.id == id)
    }

    // ---- answers of Redis

    /// An attempt was answered.
    pub(crate) fn attempted(
        &mut self,
        now: Moment,
        attempt: &Attempt,
        sent: Moment,
        reply: AttemptReply,
        out: &mut Vec<Command>,
    ) {
        self.end_turn(attempt.waiter);
        self.owner_mut(attempt.owner).busy = Busy::No;
        match reply {
            AttemptReply::Granted { found } => {
                self.granted(now, attempt.owner, attempt.waiter, attempt.term, attempt.target, found, sent, out)
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
    pub(crate) fn attempt_failed(&mut self, now: Moment, attempt: &Attempt, error: Error, out: &mut Vec<Command>) {
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
    pub(crate) fn overdue(&mut self, now: Moment, waiter: WaiterId, error: Error, out: &mut Vec<Command>) {
        self.finish(waiter, Some(error), out);
        self.pump(now, out);
    }

    /// Nothing of an unresolved attempt can run any more, and nobody wants it: what it may have got is given back.
    pub(crate) fn undo(&mut self, now: Moment, attempt: &Attempt, out: &mut Vec<Command>) {
        self.end_turn(attempt.waiter);
        let end = now.plus(attempt.ttl);
        let owner = self.owner_mut(attempt.owner);
        owner.busy = Busy::No;
        owner.count = owner.count.max(attempt.target);
        owner.unknown_end = Some(end);
        self.known = Known::Nothing;
        self.pump(now, out);
    }

    /// An unresolved command of this owner may still run, and nothing can be done against it.
    pub(crate) fn abandon(&mut self, owner: OwnerId, until: Moment) {
        self.abandoned.retain(|(gone, _)| *gone != owner);
        self.abandoned.push((owner, until));
    }

    /// A transfer was answered: `granted` or the old owner held nothing.
    pub(crate) fn transferred(
        &mut self,
        now: Moment,
        transfer: &Transfer,
        sent: Moment,
        granted: bool,
        listeners: Option<u64>,
        out: &mut Vec<Command>,
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
            self.granted(now, transfer.new, transfer.waiter, transfer.term, 1, 0, sent, out);
        } else {
            self.back_in_line(transfer.waiter);
            self.known = Known::Nothing;
        }
        self.pump(now, out);
    }

    /// A transfer was refused or failed for certain: the old owner still holds, and releases in the ordinary way.
    pub(crate) fn transfer_failed(&mut self, now: Moment, transfer: &Transfer, out: &mut Vec<Command>) {
        self.end_turn(transfer.waiter);
        self.owner_mut(transfer.new).busy = Busy::No;
        let old = self.owner_mut(transfer.old);
        old.busy = Busy::No;
        old.transferable = false;
        self.back_in_line(transfer.waiter);
        self.pump(now, out);
    }

    /// A transfer stays unresolved and nothing can be done against it: both owners may hold, so both are released.
    pub(crate) fn transfer_unresolved(
        &mut self,
        now: Moment,
        transfer: &Transfer,
        error: Error,
        out: &mut Vec<Command>,
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
        self.finish(transfer.waiter, Some(error), out);
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
        out: &mut Vec<Command>,
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
                _ if repeated && found == 0 && !leaving.validity.is_valid(now) => Err(lost.clone().into()),
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
            let published = found > 0 || repeated;
            if repeated {
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
    pub(crate) fn release_failing(&mut self, owner: OwnerId, error: &Error, out: &mut Vec<Command>) {
        self.settle_waiting(owner, error, out);
        self.sharing.forget_own_messages();
        self.dirty = true;
    }

    /// The lease of what could not be released has ended.
    pub(crate) fn release_given_up(&mut self, now: Moment, release: &Release, out: &mut Vec<Command>) {
        let lost = self.lost_error(release.owner);
        let owner = self.owner_mut(release.owner);
        owner.busy = Busy::No;
        owner.unknown_end = None;
        owner.counts(owner.live.len() as u64);
        self.settle_covered(release.owner, |_| Err(lost.clone()), out);
        self.known = Known::Nothing;
        self.pump(now, out);
    }

    // ---- the channel

    /// The channel is confirmed: whatever happened before was not heard.
    pub(crate) fn channel_live(&mut self, now: Moment, out: &mut Vec<Command>) {
        if self.channel != Channel::Off {
            self.channel = Channel::Live;
            self.dirty = true;
            self.sharing.forget_own_messages();
            self.pump(now, out);
        }
    }

    /// The channel is not heard any more; it will be again.
    pub(crate) fn channel_lost(&mut self, now: Moment, out: &mut Vec<Command>) {
        if self.channel != Channel::Off {
            self.channel = Channel::Pending;
            self.dirty = true;
            self.sharing.forget_own_messages();
            self.pump(now, out);
        }
    }

    /// Redis does not let us listen: nobody here can wait.
    pub(crate) fn channel_refused(&mut self, now: Moment, error: &Error, out: &mut Vec<Command>) {
        let waiting: Vec<WaiterId> =
            self.line.iter().filter(|w| matches!(w.state, WaiterState::Waiting)).map(|w| w.id).collect();
        for id in waiting {
            self.finish(id, Some(error.clone()), out);
        }
        self.pump(now, out);
    }

    /// Somebody published. What it says does not matter.
    pub(crate) fn message(&mut self, now: Moment, out: &mut Vec<Command>) {
        if self.sharing.heard() {
            self.dirty = true;
            self.pump(now, out);
        }
    }

    // ---- time and end

    /// Time has passed: see [`next_deadline`](Self::next_deadline).
    pub(crate) fn tick(&mut self, now: Moment, out: &mut Vec<Command>) {
        self.abandoned.retain(|(_, until)| *until > now);
        self.withdraw_stale_offers(now);
        self.end_leases(now, out);
        if self.linger_until.is_some_and(|until| until <= now) {
            self.linger_until = None;
        }
        self.pump(now, out);
    }

    /// The client shuts down: waiters end, holds are lost but not released; what is being released goes on.
    pub(crate) fn close(&mut self, now: Moment, out: &mut Vec<Command>) {
        self.closed = true;
        let offered: Vec<(OwnerId, HoldId)> = self.waiters().filter_map(Waiter::offer).collect();
        for (owner, hold) in offered {
            self.give_back(owner, hold);
        }
        let ids: Vec<WaiterId> = self.waiters().map(|w| w.id).collect();
        for id in ids {
            self.finish(id, Some(Error::Closed), out);
        }
        for owner in &mut self.owners {
            owner.live.iter().for_each(|hold| hold.validity.lose());
            out.extend(owner.renewal.take().map(Command::CancelRenewal));
        }
        self.pump(now, out);
    }

    /// Nothing to remember: the queue can go.
    pub(crate) fn is_idle(&self) -> bool {
        self.owners.is_empty()
            && self.line.is_empty()
            && self.direct.is_empty()
            && self.abandoned.is_empty()
            && self.channel == Channel::Off
            && self.turn.is_none()
    }

    /// Waiters, holds, watchdog entries, commands in flight.
    pub(crate) fn counts(&self) -> [usize; 4] {
        let holds = self.owners.iter().map(|o| o.live.len()).sum();
        let renewals = self.owners.iter().filter(|o| o.renewal.is_some()).count();
        let busy = self.owners.iter().filter(|o| o.busy != Busy::No).count();
        [self.line.len() + self.direct.len(), holds, renewals, busy]
    }

    // ---- parts

    fn next_id(&mut self) -> u64 {
        self.last_id += 1;
        self.last_id
    }

    fn line_index(&self, id: WaiterId) -> Option<usize> {
        self.line.binary_search_by_key(&id, |w| w.id).ok()
    }

    fn waiters(&self) -> impl Iterator<Item = &Waiter> {
        self.line.iter().chain(&self.direct)
    }

    fn waiter(&mut self, id: WaiterId) -> Option<&mut Waiter> {
        match self.line_index(id) {
            Some(index) => self.line.get_mut(index),
            None => self.direct.iter_mut().find(|w| w.id == id),
        }
    }

    fn remove_waiter(&mut self, id: WaiterId) -> Option<Waiter> {
        if let Some(index) = self.line_index(id) {
            return self.line.remove(index);
        }
        let index = self.direct.iter().position(|w| w.id == id)?;
        Some(self.direct.swap_remove(index))
    }

    fn end_turn(&mut self, id: WaiterId) {
        if self.turn == Some(id) {
            self.turn = None;
        }
    }

    /// The waiter's wait ends, with an error or without the lock.
    fn finish(&mut self, id: WaiterId, error: Option<Error>, out: &mut Vec<Command>) {
        if let Some(waiter) = self.waiter(id) {
            waiter.state = WaiterState::Over(error);
            out.extend(waiter.waker.take().map(Command::Wake));
        }
    }

    /// The attempt found the lock busy: the waiter goes on waiting, if it may.
    fn refused(&mut self, id: WaiterId, out: &mut Vec<Command>) {
        match self.waiter(id) {
            Some(waiter) if waiter.immediate || waiter.expired => self.finish(id, None, out),
            _ => self.back_in_line(id),
        }
    }

    fn back_in_line(&mut self, id: WaiterId) {
        let Some(waiter) = self.waiter(id) else { return };
        if waiter.expired {
            waiter.state = WaiterState::Over(None);
            return;
        }
        waiter.state = WaiterState::Waiting;
        let Some(index) = self.direct.iter().position(|w| w.id == id && !w.immediate) else { return };
        let waiter = self.direct.swap_remove(index);
        let place = self.line.partition_point(|w| w.id < id);
        self.line.insert(place, waiter);
    }

    /// Redis granted: the waiter is offered the hold; if it is gone, the difference of counts gives it back.
    #[expect(clippy::too_many_arguments, reason = "one grant, told by attempts and transfers alike")]
    fn granted(
        &mut self,
        now: Moment,
        owner: OwnerId,
        id: WaiterId,
        term: Term,
        target: u64,
        found: u64,
        sent: Moment,
        out: &mut Vec<Command>,
    ) {
        let hold_id = self.next_id();
        let end = sent.plus(term.length);
        let deadline = end.minus(margin(term.length));
        let state = self.owner_mut(owner);
        state.counts(if found == 0 { 1 } else { target });
        state.unknown_end = Some(end);
        let missing = usize::try_from((state.live.len() as u64).saturating_sub(found)).unwrap_or(usize::MAX);
        let gone = state.oldest(missing);
        self.lose_some(owner, |id| gone.contains(&id), out);
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

    /// Others of an owner that holds the key now pass every gate.
    fn let_pass(&mut self, owner: OwnerId) {
        while let Some(index) =
            self.line.iter().position(|w| w.owner == owner && matches!(w.state, WaiterState::Waiting))
        {
            let waiter = self.line.remove(index);
            self.direct.extend(waiter);
        }
    }

    fn take(&mut self, now: Moment, owner: OwnerId, held: Held, out: &mut Vec<Command>) -> WaitOutcome {
        let state = self.owner_mut(owner);
        let Some(hold) = state.live.iter_mut().find(|h| h.id == held.id) else {
            return WaitOutcome::Failed(self.lost_error(owner));
        };
        if !held.validity.is_valid(now) {
            self.give_back(owner, held.id);
            return WaitOutcome::Failed(self.lost_error(owner));
        }
        hold.taken = true;
        if hold.term.renewed && state.renewal.is_none() {
            out.push(Command::WatchRenewal(owner));
        }
        WaitOutcome::Granted(held)
    }

    fn withdraw_stale_offers(&mut self, now: Moment) {
        let mut stale = Vec::new();
        for waiter in self.line.iter_mut().chain(&mut self.direct) {
            if let WaiterState::Offered { held, since } = &waiter.state
                && since.plus(offer_bound(waiter.term)) <= now
            {
                stale.push((waiter.owner, held.id));
                waiter.stalled = true;
                waiter.state = WaiterState::Waiting;
            }
        }
        for (owner, hold) in stale {
            self.give_back(owner, hold);
        }
    }

    fn lost_error(&self, owner: OwnerId) -> Error {
        LeaseLost::<()>::new(&self.settings.name, owner, None).into()
    }
}

impl Waiter {
    fn offer(&self) -> Option<(OwnerId, HoldId)> {
        match &self.state {
            WaiterState::Offered { held, .. } => Some((self.owner, held.id)),
            _ => None,
        }
    }
}

fn offer_bound(term: Term) -> Duration {
    OFFER_BOUND.min(term.length / 3)
}
