//! A client around a queue: callers, guards, channels, time.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    task::{Wake, Waker},
};

use super::*;

/// A caller's future.
pub(super) struct Waiting {
    pub(super) id: WaiterId,
    pub(super) owner: Holder,
    pub(super) immediate: bool,
    pub(super) expired: bool,
    pub(super) woken: Arc<Woken>,
    /// How often holds had been taken by force when Redis granted this one's.
    pub(super) forced: u64,
}

pub(super) struct Woken(pub(super) AtomicBool);

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.0.store(true, Ordering::Relaxed);
    }
}

pub(super) struct Guarded {
    pub(super) owner: Holder,
    pub(super) held: Held,
    pub(super) forced: u64,
    /// The end of its validity when last seen.
    pub(super) until: Moment,
}

#[derive(Default)]
pub(super) struct Heard {
    pub(super) live: bool,
    /// Messages on their way.
    pub(super) coming: u64,
}

/// A client around a queue.
pub(super) struct World<R> {
    pub(super) now: Moment,
    pub(super) queue: Queue,
    pub(super) redis: R,
    pub(super) owners: Owners,
    pub(super) reentrant: bool,
    /// Redis refuses to publish what we release.
    pub(super) mute: bool,
    /// Those that are used again and again: one by its number, one that was made.
    pub(super) owned: [OwnerId; 2],
    pub(super) in_flight: Vec<InFlight>,
    /// Commands of a link that could not be barred: they may run until then.
    pub(super) strays: Vec<(InFlight, Moment)>,
    pub(super) waiters: Vec<Waiting>,
    pub(super) guards: Vec<Guarded>,
    pub(super) replies: Vec<oneshot::Receiver<Result<(), Error>>>,
    pub(super) channels: Vec<(Option<Holder>, Heard)>,
    pub(super) watchdog: Wheel<Holder>,
    /// By how much what was sent for an owner ran later than the queue wanted it: its hold may outlive what we know by that.
    pub(super) late: HashMap<Holder, Duration>,
    /// The longest that an answer was on its way: what it says is left is counted from when it comes.
    pub(super) slowest: Duration,
    /// Whose wait is over, though the future has not looked yet; and whether with an error.
    pub(super) over: Vec<(WaiterId, bool)>,
    /// Who asked since something last happened.
    pub(super) asked: Vec<WaiterId>,
    pub(super) attempts: u64,
    pub(super) alone_since: Option<Moment>,
    /// Owners whose guards may be lost before their time.
    pub(super) surprised: Vec<Holder>,
    /// Something failed: waits may end with an error.
    pub(super) disturbed: bool,
    /// Commands may have run, or may yet, of which nobody knows.
    pub(super) unbarred: bool,
    /// A release was given up, because the hold's time was over.
    pub(super) gave_up: bool,
    /// In the middle of a link's end: what is on its way is not all in sight.
    pub(super) breaking: bool,
}

impl<R: Redis> World<R> {
    pub(super) fn new(redis: R, handoff: bool, upgrade_waits: bool) -> Self {
        let now = Moment::from_nanos(100_000_000_000_000);
        let settings = Settings {
            name: Arc::from("k"),
            discipline: R::DISCIPLINE,
            handoff,
            watchdog_timeout: WATCHDOG,
            upgrade_waits,
        };
        let owners = Owners::new(Uuid::from_u128(1));
        Self {
            now,
            queue: Queue::new(settings),
            redis,
            owned: [OwnerId::with_thread(owners.client(), 1).expect("a free id"), owners.fresh()],
            owners,
            reentrant: true,
            mute: false,
            in_flight: Vec::new(),
            strays: Vec::new(),
            waiters: Vec::new(),
            guards: Vec::new(),
            replies: Vec::new(),
            channels: Vec::new(),
            watchdog: Wheel::new(128, millis(now)),
            late: HashMap::new(),
            slowest: Duration::ZERO,
            over: Vec::new(),
            asked: Vec::new(),
            attempts: 0,
            alone_since: None,
            surprised: Vec::new(),
            disturbed: false,
            unbarred: false,
            gave_up: false,
            breaking: false,
        }
    }

    // ---- events for the queue

    /// Something happened.
    pub(super) fn act<T>(&mut self, event: impl FnOnce(&mut Queue, Moment, &mut Few<Command>) -> T) -> T {
        self.asked.clear();
        self.follow(event)
    }

    /// The queue was told what is no news for those who wait: they may ask once more, and then have to wait.
    pub(super) fn follow<T>(&mut self, event: impl FnOnce(&mut Queue, Moment, &mut Few<Command>) -> T) -> T {
        let mut out = Few::new();
        let result = event(&mut self.queue, self.now, &mut out);
        for command in out {
            match command {
                Command::CancelRenewal(token) => drop(self.watchdog.cancel(token)),
                Command::Listen(of) => {
                    assert!(!self.channels.iter().any(|(other, _)| *other == of), "listens twice to {of:?}");
                    self.channels.push((of, Heard::default()));
                }
                Command::Unlisten(of) => {
                    let before = self.channels.len();
                    self.channels.retain(|(other, _)| *other != of);
                    assert!(self.channels.len() < before, "leaves a channel that it does not hear: {of:?}");
                }
                Command::Settle(reply, outcome) => drop(reply.send(outcome)),
                Command::Wake(waker) => waker.wake(),
                Command::WatchRenewal(owner) => self.watch(owner, self.now.plus(PERIOD / 2)),
                command => self.send(command),
            }
        }
        self.check();
        result
    }

    pub(super) fn watch(&mut self, owner: Holder, at: Moment) {
        let token = self.watchdog.insert(millis(at), owner);
        if let Some(surplus) = self.queue.watched(owner, token) {
            self.watchdog.cancel(surplus);
        }
    }

    pub(super) fn is_ours(&self, owner: Holder) -> bool {
        owner.owner.client_id() == self.owners.client()
    }

    pub(super) fn fresh(&self, role: Role) -> Holder {
        Holder { owner: self.owners.fresh(), role }
    }

    pub(super) fn join_some(&mut self, pick: usize, owned: bool, immediate: bool) {
        let role = R::role(pick);
        let owner = if owned { self.owned[pick / 2 % 2] } else { self.owners.fresh() };
        let length = [3 * SECOND, WATCHDOG, 400 * MS, WATCHDOG][pick / 4 % 4];
        let want = Want {
            owner: Holder { owner, role },
            term: Term { length, renewed: length == WATCHDOG },
            immediate,
            reentrant: self.reentrant,
            patience: [250 * MS, SECOND, 5 * SECOND][pick / 16 % 3],
            back_off: [BackOff::default(), BackOff::constant(64 * MS), BackOff::exponential(5 * MS, 40 * MS, 3)]
                [pick / 48 % 3],
        };
        self.join(want);
    }

    pub(super) fn join(&mut self, want: Want) -> WaiterId {
        let woken = Arc::new(Woken(AtomicBool::new(false)));
        let waker = Waker::from(woken.clone());
        let (id, over) = self.act(|q, now, out| q.join(now, want, &waker, out));
        let Want { owner, immediate, .. } = want;
        self.waiters.push(Waiting { id, owner, immediate, expired: false, woken, forced: 0 });
        if over {
            self.poll(self.waiters.len() - 1);
        }
        id
    }

    pub(super) fn want(&self, owner: Holder) -> Want {
        let term = Term { length: WATCHDOG, renewed: true };
        let (patience, back_off) = (300 * SECOND, BackOff::default());
        Want { owner, term, immediate: false, reentrant: self.reentrant, patience, back_off }
    }

    /// `true`: its wait is over.
    pub(super) fn poll(&mut self, index: usize) -> bool {
        let (id, woken) = (self.waiters[index].id, self.waiters[index].woken.clone());
        woken.0.store(false, Ordering::Relaxed);
        let waker = Waker::from(woken);
        let Some(outcome) = self.act(|q, now, out| q.poll(now, id, &waker, out)) else { return false };
        let waiter = self.waiters.remove(index);
        match outcome {
            WaitOutcome::Granted(held) => {
                let until = self.now.plus(held.validity.left(self.now));
                self.guards.push(Guarded { owner: waiter.owner, held, forced: waiter.forced, until });
                self.check();
            }
            WaitOutcome::NotGranted => {
                assert!(waiter.immediate || waiter.expired, "a wait without a bound ended without the lock");
            }
            WaitOutcome::Failed(error) => {
                let upgrade = waiter.owner.role == Role::Write && matches!(error, Error::UpgradeImpossible { .. });
                let held = !self.reentrant && matches!(error, Error::AlreadyHeld { .. });
                let expected = self.disturbed || upgrade || held || matches!(error, Error::LeaseLost(_));
                assert!(expected, "a wait failed though nothing else did: {error}");
            }
        }
        true
    }

    pub(super) fn poll_all(&mut self, all: bool) {
        let mut index = 0;
        while index < self.waiters.len() {
            if !((all || self.waiters[index].woken.0.load(Ordering::Relaxed)) && self.poll(index)) {
                index += 1;
            }
        }
    }

    pub(super) fn release_guard(&mut self, pick: usize) {
        if self.guards.is_empty() {
            return;
        }
        let guard = self.guards.remove(pick % self.guards.len());
        let (reply, outcome) = oneshot::channel();
        self.replies.push(outcome);
        self.act(|q, now, out| q.release(now, guard.owner, guard.held.id, Some(reply), out));
    }

    pub(super) fn leave(&mut self, pick: usize) {
        if !self.waiters.is_empty() {
            let id = self.waiters.remove(pick % self.waiters.len()).id;
            self.act(|q, now, out| q.leave(now, id, out));
        }
    }

    pub(super) fn expire(&mut self, pick: usize) {
        let count = self.waiters.len();
        let Some(waiter) = self.waiters.get_mut(pick % count.max(1)).filter(|w| !w.immediate && !w.expired) else {
            return;
        };
        waiter.expired = true;
        let id = waiter.id;
        if self.act(|q, now, out| q.expire(now, id, out)) {
            self.waiters.retain(|w| w.id != id);
        } else if let Some(index) = self.waiters.iter().position(|w| w.id == id) {
            self.poll(index);
        }
    }

    pub(super) fn extend(&mut self, pick: usize) {
        if self.guards.is_empty() {
            return;
        }
        let guard = &self.guards[pick % self.guards.len()];
        let (owner, hold, lease) = (guard.owner, guard.held.id, [100 * MS, 2 * SECOND][pick / 8 % 2]);
        let (reply, outcome) = oneshot::channel();
        self.replies.push(outcome);
        self.act(|q, now, out| q.extend(now, owner, hold, lease, reply, out));
    }

    /// A release without a guard.
    pub(super) fn release_any(&mut self, pick: usize) {
        let owner = Holder { owner: self.owned[pick / 2 % 2], role: R::role(pick) };
        let (reply, outcome) = oneshot::channel();
        self.replies.push(outcome);
        self.surprised.push(owner);
        self.act(|q, now, out| q.release_any(now, owner, reply, out));
    }

    pub(super) fn close(&mut self) {
        self.disturbed = true;
        self.surprised.extend(self.guards.iter().map(|g| g.owner));
        self.act(|q, now, out| q.close(now, out));
        assert!(self.guards.iter().all(|g| !g.held.validity.is_valid(self.now)), "trusted after the end");
    }

    // ---- channels and time

    pub(super) fn deliver_told(&mut self) {
        for of in self.redis.take_told() {
            if let Some((_, heard)) = self.channels.iter_mut().find(|(other, heard)| *other == of && heard.live) {
                heard.coming += 1;
            }
        }
    }

    pub(super) fn hear(&mut self, pick: usize) {
        let coming: Vec<usize> = (0..self.channels.len()).filter(|&i| self.channels[i].1.coming > 0).collect();
        if !coming.is_empty() {
            let (of, heard) = &mut self.channels[coming[pick % coming.len()]];
            heard.coming -= 1;
            let of = *of;
            self.act(|q, now, out| q.message(now, of, out));
        }
    }

    pub(super) fn confirm(&mut self, pick: usize) {
        let pending: Vec<usize> = (0..self.channels.len()).filter(|&i| !self.channels[i].1.live).collect();
        if !pending.is_empty() {
            let (of, heard) = &mut self.channels[pending[pick % pending.len()]];
            heard.live = true;
            let of = *of;
            self.act(|q, now, out| q.channel_live(now, of, out));
        }
    }

    /// The link that listens breaks.
    pub(super) fn lose_channels(&mut self) {
        let mut lost = Vec::new();
        for (of, heard) in self.channels.iter_mut().filter(|(_, heard)| heard.live) {
            *heard = Heard::default();
            lost.push(*of);
        }
        for of in lost {
            self.act(|q, now, out| q.channel_lost(now, of, out));
        }
    }

    /// The server does not let anybody listen.
    pub(super) fn channel_refused(&mut self) {
        self.disturbed = true;
        for (of, _) in std::mem::take(&mut self.channels) {
            self.channels.push((of, Heard::default()));
            self.act(|q, now, out| q.channel_refused(now, of, &Error::Closed, out));
        }
    }

    pub(super) fn foreign(&mut self, pick: usize) {
        self.redis.expire(self.now);
        self.redis.foreign(self.now, pick);
        self.deliver_told();
        self.asked.clear();
        self.check();
    }

    pub(super) fn pass(&mut self, time: Duration) {
        self.now = self.now.plus(time);
        self.redis.expire(self.now);
        self.asked.clear();
        let mut due = Vec::new();
        self.watchdog.advance(millis(self.now), &mut due);
        for owner in due {
            self.renew(owner);
        }
        if self.queue.next_deadline(self.now).is_some_and(|at| at <= self.now) {
            self.act(|q, now, out| q.tick(now, out));
            let next = self.queue.next_deadline(self.now);
            assert!(next.is_none_or(|at| at > self.now), "the timer fires again and again: {:?}", self.queue);
        }
        self.check();
        let alone = self.alone_since.is_some_and(|since| since.plus(LINGER) <= self.now);
        let listens = self.channels.iter().any(|(of, _)| of.is_none());
        assert!(!alone || !listens, "listens though nobody waits");
    }
}

pub(super) fn millis(at: Moment) -> u64 {
    at.as_nanos() / 1_000_000
}
