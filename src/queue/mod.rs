//! One key's waiters and holds in this client: a pure state machine. Events in, commands out; no I/O, no clock.
//!
//! What it knows: who holds the key here and until when, what count Redis has for each owner, who waits, and whether the
//! channel tells of releases. What it decides (`pump.rs`): who may ask Redis next, when a release becomes a transfer to the
//! next waiter (`sharing.rs` says for how long), and when to look again.
//!
//! The counts are reconciled, not stepped: whenever an owner's count in Redis differs from its live holds, a command with
//! the absolute target is due. A grant that nobody takes, a guard that is dropped, an acquire with an unknown outcome: all
//! of them are just such a difference.

mod answers;
mod fair;
mod holds;
mod pump;
mod readers;
mod renewal;
mod sharing;
mod spin;
#[cfg(test)]
mod tests;
mod waiters;

use std::{collections::VecDeque, sync::Arc, task::Waker, time::Duration};

use tokio::sync::oneshot;

pub(crate) use crate::answers::{Busy as BusyReply, Granted, Released};
use crate::{
    back_off::BackOff,
    clock::Moment,
    error::{Error, LeaseLost},
    few::Few,
    lease::Term,
    owner::{Holder, OwnerId},
    watchdog::wheel::Token,
};
pub(crate) use holds::Held;
use holds::{Busy, Owner};
pub(crate) use renewal::{Renewal, RenewalDue};
use sharing::Sharing;
use spin::Spin;

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

/// How the waiters of a key get their turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Discipline {
    /// The head of the line asks for all; a release tells.
    Line,
    /// Readers go in together, a writer alone; otherwise a line.
    Readers,
    /// The head of the line asks now and then; nobody tells.
    Spin,
    /// Every waiter stands in a queue in Redis, which decides.
    Fair,
}

/// What a key's queue is told once.
#[derive(Clone, Debug)]
pub(crate) struct Settings {
    pub(crate) name: Arc<str>,
    pub(crate) discipline: Discipline,
    pub(crate) handoff: bool,
    pub(crate) watchdog_timeout: Duration,
    /// Whether an owner that reads may wait to write, though that ends only with its own hold.
    pub(crate) upgrade_waits: bool,
}

/// What a caller wants.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Want {
    pub(crate) owner: Holder,
    pub(crate) term: Term,
    /// Asks once and does not wait.
    pub(crate) immediate: bool,
    /// Whether an owner that holds the lock may take it again.
    pub(crate) reentrant: bool,
    /// For how long it counts as alive in a queue in Redis.
    pub(crate) patience: Duration,
    /// How it pauses where nobody tells.
    pub(crate) back_off: BackOff,
}

/// What the client has to do for the queue.
#[derive(Debug)]
pub(crate) enum Command {
    Attempt(Attempt),
    /// Take the owner off the watchdog.
    CancelRenewal(Token),
    Extend(Extension),
    /// To the key's channel, or to that of one waiter's owner.
    Listen(Option<Holder>),
    Release(Release),
    ReleaseUnheld(Unheld),
    Settle(ReleaseReply, Result<(), Error>),
    Transfer(Transfer),
    Unlisten(Option<Holder>),
    Wake(Waker),
    /// Put the owner on the watchdog.
    WatchRenewal(Holder),
}

/// Ask Redis for the lock.
#[derive(Clone, Debug)]
pub(crate) struct Attempt {
    pub(crate) waiter: WaiterId,
    pub(crate) owner: Holder,
    pub(crate) target: u64,
    pub(crate) term: Term,
    /// What the key's TTL becomes when other holds of the owner are still there: never below what they were promised.
    pub(crate) ttl: Duration,
    pub(crate) abandoned: Vec<Holder>,
    /// The newest hold when it was sent.
    pub(crate) newest: HoldId,
    pub(crate) reentrant: bool,
    /// Stay in the queue in Redis if the lock is busy, and for how long to count as alive there.
    pub(crate) enqueue: bool,
    pub(crate) patience: Duration,
}

/// Bring the owner's count down to the target.
#[derive(Clone, Debug)]
pub(crate) struct Release {
    pub(crate) owner: Holder,
    pub(crate) target: u64,
    pub(crate) ttl: Duration,
    /// Read holds: what the youngest of those that stay have left, as far as they have moved up.
    pub(crate) rearm: Vec<Duration>,
    /// When what is being released ends by itself at the latest: so long it is tried.
    pub(crate) end: Moment,
    /// When it ends by what is known here.
    pub(crate) promised: Moment,
    /// Nobody gives anything up: it only takes away what has ended, if it is still there.
    pub(crate) ended: bool,
    /// Leave the queue in Redis, in which the owner stood with this patience.
    pub(crate) leave: Option<Duration>,
    /// Who of this client may have the lock if the queue in Redis says so.
    pub(crate) candidates: Vec<Candidate>,
}

/// A waiter that a release may hand the lock to.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Candidate {
    pub(crate) waiter: WaiterId,
    pub(crate) owner: Holder,
    pub(crate) term: Term,
    pub(crate) patience: Duration,
}

/// Hand the lock to a waiter of this client.
#[derive(Clone, Debug)]
pub(crate) struct Transfer {
    pub(crate) old: Holder,
    pub(crate) new: Holder,
    pub(crate) waiter: WaiterId,
    pub(crate) term: Term,
    pub(crate) end: Moment,
}

/// Make the hold last longer.
#[derive(Debug)]
pub(crate) struct Extension {
    pub(crate) owner: Holder,
    pub(crate) hold: HoldId,
    /// Which of the owner's holds it is, counted from 1.
    pub(crate) rank: u64,
    pub(crate) lease: Duration,
    /// What the key's TTL becomes.
    pub(crate) ttl: Duration,
    pub(crate) reply: ReleaseReply,
}

/// Give back a hold that this client did not take.
#[derive(Debug)]
pub(crate) struct Unheld {
    pub(crate) owner: Holder,
    pub(crate) reply: ReleaseReply,
}

/// What an attempt found.
#[derive(Debug)]
pub(crate) enum AttemptReply {
    Busy(BusyReply),
    Granted(Granted),
    /// The owner reads, and so can never write while it does.
    Upgrade(BusyReply),
}

/// How a release was answered.
#[derive(Debug)]
pub(crate) struct ReleaseOutcome {
    /// When it was sent last.
    pub(crate) sent: Moment,
    pub(crate) answer: Released,
    /// Why nobody was told.
    pub(crate) untold: Option<Error>,
    /// An earlier sending of it may have run.
    pub(crate) repeated: bool,
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
    want: Want,
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
    /// Its time is over, and it is being taken out of the queue in Redis.
    Leaving,
    Offered {
        held: Held,
        since: Moment,
    },
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
        by_readers: bool,
    },
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Queue {
    settings: Settings,
    owners: Few<Owner>,
    /// Those who wait their turn, by id.
    line: VecDeque<Waiter>,
    /// Those who ask at once: no wait, or their owner holds the key already.
    direct: Few<Waiter>,
    /// Owners whose acquire may still run: their hold counts as free, and they get nothing until then.
    abandoned: Vec<(Holder, Moment)>,
    channel: Channel,
    /// Something happened since the question was sent whose answer we know.
    dirty: bool,
    /// The same, and it was not of our own making: what we believe to hold may be gone.
    told: bool,
    known: Known,
    /// The attempt or transfer in flight for somebody in line.
    turn: Option<WaiterId>,
    sharing: Sharing,
    spin: Spin,
    /// Readers who wait behind a writer are let in at this time if others read.
    gate_until: Option<Moment>,
    linger_until: Option<Moment>,
    closed: bool,
    last_id: u64,
    /// The newest hold when a writer of ours was last heard to have left.
    written: HoldId,
}

impl Queue {
    pub(crate) fn new(settings: Settings) -> Self {
        Self {
            settings,
            owners: Few::new(),
            line: VecDeque::new(),
            direct: Few::new(),
            abandoned: Vec::new(),
            channel: Channel::Off,
            dirty: false,
            told: false,
            known: Known::Nothing,
            turn: None,
            sharing: Sharing::default(),
            spin: Spin::default(),
            gate_until: None,
            linger_until: None,
            closed: false,
            last_id: 0,
            written: 0,
        }
    }

    // ---- the channel

    /// The channel is confirmed: whatever happened before was not heard.
    pub(crate) fn channel_live(&mut self, now: Moment, of: Option<Holder>, out: &mut Few<Command>) {
        self.channel_changed(now, of, Channel::Live, out);
    }

    /// The channel is not heard any more; it will be again.
    pub(crate) fn channel_lost(&mut self, now: Moment, of: Option<Holder>, out: &mut Few<Command>) {
        self.channel_changed(now, of, Channel::Pending, out);
    }

    fn channel_changed(&mut self, now: Moment, of: Option<Holder>, to: Channel, out: &mut Few<Command>) {
        if let Some(owner) = of {
            self.seat_channel_changed(now, owner, to);
            return self.pump(now, out);
        }
        if self.channel != Channel::Off {
            self.channel = to;
            (self.dirty, self.told) = (true, true);
            self.sharing.forget_own_messages();
            self.pump(now, out);
        }
    }

    /// Redis does not let us listen: nobody here can wait.
    pub(crate) fn channel_refused(&mut self, now: Moment, of: Option<Holder>, error: &Error, out: &mut Few<Command>) {
        let concerned =
            |w: &&Waiter| matches!(w.state, WaiterState::Waiting) && of.is_none_or(|owner| owner == w.want.owner);
        let waiting: Vec<WaiterId> = self.line.iter().filter(concerned).map(|w| w.id).collect();
        for id in waiting {
            self.finish(id, Some(error.clone()), out);
        }
        if let Some(seat) = of.and_then(|owner| self.known_owner(owner)).and_then(|o| o.seat.as_mut())
            && seat.channel != Channel::Off
        {
            seat.channel = Channel::Off;
            out.push(Command::Unlisten(of));
        }
        // Whoever waits next asks for the channel anew, and is told anew.
        if of.is_none() && self.channel != Channel::Off {
            self.channel = Channel::Off;
            out.push(Command::Unlisten(None));
        }
        self.pump(now, out);
    }

    /// Somebody published. What it says does not matter.
    pub(crate) fn message(&mut self, now: Moment, of: Option<Holder>, out: &mut Few<Command>) {
        if let Some(owner) = of {
            self.call(owner);
            return self.pump(now, out);
        }
        if self.sharing.heard() {
            (self.dirty, self.told) = (true, true);
            self.pump(now, out);
        }
    }

    // ---- time and end

    /// Time has passed: see [`next_deadline`](Self::next_deadline).
    pub(crate) fn tick(&mut self, now: Moment, out: &mut Few<Command>) {
        self.abandoned.retain(|(_, until)| *until > now);
        self.withdraw_stale_offers(now, out);
        self.end_leases(now, out);
        self.open_the_gate(now);
        self.pump(now, out);
    }

    /// The client shuts down: waiters end, holds are lost but not released; what is being released goes on.
    pub(crate) fn close(&mut self, now: Moment, out: &mut Few<Command>) {
        self.closed = true;
        let offered: Vec<(Holder, HoldId)> = self.waiters().filter_map(Waiter::offer).collect();
        for (owner, hold) in offered {
            self.give_back(owner, hold);
        }
        let ids: Vec<WaiterId> = self.waiters().map(|w| w.id).collect();
        for id in ids {
            self.finish(id, Some(Error::Closed), out);
        }
        for owner in &mut *self.owners {
            owner.live.iter().for_each(|hold| hold.validity.lose());
            out.extend(owner.renewal.take().map(Command::CancelRenewal));
            let unheld = std::mem::take(&mut owner.unheld);
            out.extend(unheld.into_iter().map(|reply| Command::Settle(reply, Err(Error::Closed))));
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
        self.line.iter().chain(&*self.direct)
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
        Some(self.direct.remove(index))
    }

    fn end_turn(&mut self, id: WaiterId) {
        if self.turn == Some(id) {
            self.turn = None;
        }
    }

    /// Holds of the owner on this key, in whatever role.
    fn holds_somehow(&self, owner: OwnerId) -> bool {
        self.owners.iter().any(|o| o.id.owner == owner && !o.live.is_empty())
    }

    fn lost_error(&self, owner: Holder) -> Error {
        LeaseLost::<()>::new(&self.settings.name, owner.owner, None).into()
    }
}

impl Waiter {
    fn offer(&self) -> Option<(Holder, HoldId)> {
        match &self.state {
            WaiterState::Offered { held, .. } => Some((self.want.owner, held.id)),
            _ => None,
        }
    }
}

fn offer_bound(term: Term) -> Duration {
    OFFER_BOUND.min(term.length / 3)
}
