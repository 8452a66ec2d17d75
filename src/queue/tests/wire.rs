//! The way to Redis and back: commands run in nearly any order, answers come late or not at all.

use super::*;

/// A command without a barrier may still be on its way for this time.
const STRAY: Duration = Duration::from_secs(10);
const GRANTED: Granted = Granted { found: 0, fresh: true, token: None };

#[derive(Debug)]
enum Sent {
    Attempt(Attempt),
    Extension(Extension),
    Force(Role, HoldId),
    Release(Release),
    Renewal(Holder, RenewalDue),
    Transfer(Transfer),
    Unheld(Unheld),
}

impl Sent {
    fn owners(&self) -> Vec<Holder> {
        match self {
            Self::Attempt(a) => vec![a.owner],
            Self::Extension(e) => vec![e.owner],
            Self::Release(r) => r.candidates.iter().map(|c| c.owner).chain([r.owner]).collect(),
            Self::Transfer(t) => vec![t.old, t.new],
            Self::Unheld(u) => vec![u.owner],
            Self::Force(..) | Self::Renewal(..) => Vec::new(),
        }
    }
}

#[derive(Debug)]
enum Reply {
    Attempt(AttemptReply),
    Count(u64),
    Forced(bool),
    /// The lock is not re-entrant, and the owner holds it.
    Reentry,
    Release(Released),
    Transfer(bool),
}

/// A command on its way.
#[derive(Debug)]
pub(super) struct InFlight {
    command: Sent,
    /// When the queue wanted it, and when it was sent.
    wanted: Moment,
    at: Moment,
    /// An earlier sending may have run.
    repeated: bool,
    /// Whoever waits for it was told that it failed.
    told: bool,
    /// Not sent again: what it may have got is given back once the barrier has passed.
    undone: bool,
    reply: Option<Reply>,
    ran: Moment,
    /// How often holds had been taken by force when it ran.
    forced: u64,
}

impl InFlight {
    fn new(command: Sent, at: Moment, repeated: bool, told: bool) -> Self {
        Self { command, wanted: at, at, repeated, told, undone: false, reply: None, ran: at, forced: 0 }
    }
}

/// An earlier sending may have been granted: then the count is the target already.
fn holds_again(found: u64, target: u64, repeated: bool) -> bool {
    found > 0 && !(repeated && found == target)
}

fn error() -> Error {
    Error::Closed
}

impl<R: Redis> World<R> {
    pub(super) fn send(&mut self, command: Command) {
        let command = match command {
            Command::Attempt(attempt) => {
                let waiter = attempt.waiter;
                assert!(!self.asked.contains(&waiter), "asks again and again: {:?} {:?}", self.redis, self.queue);
                self.asked.push(waiter);
                assert!(!self.queue.closed, "asks after the end");
                self.attempts += 1;
                R::sent(&self.queue, self.now, &attempt);
                Sent::Attempt(attempt)
            }
            Command::Extend(extension) => Sent::Extension(extension),
            Command::Release(release) => Sent::Release(release),
            Command::ReleaseUnheld(unheld) => Sent::Unheld(unheld),
            Command::Transfer(transfer) => Sent::Transfer(transfer),
            other => unreachable!("not for Redis: {other:?}"),
        };
        for owner in command.owners() {
            let busy = self.in_flight.iter().any(|other| other.command.owners().contains(&owner));
            assert!(!busy, "two commands of {owner} at once");
        }
        self.in_flight.push(InFlight::new(command, self.now, false, false));
    }

    /// Sends a command again.
    fn again(&mut self, command: Sent, wanted: Moment, told: bool) {
        self.in_flight.push(InFlight { wanted, ..InFlight::new(command, self.now, true, told) });
    }

    pub(super) fn force(&mut self, role: Role) {
        let before = self.queue.watermark();
        self.in_flight.push(InFlight::new(Sent::Force(role, before), self.now, false, false));
    }

    /// An owner is due on the watchdog.
    pub(super) fn renew(&mut self, owner: Holder) {
        match self.queue.renewal_due(self.now, owner) {
            Renewal::Due(due) => self.in_flight.push(InFlight::new(Sent::Renewal(owner, due), self.now, false, false)),
            Renewal::Postponed => self.watch_again(owner, PERIOD / 8),
            Renewal::Over => {}
        }
    }

    fn watch_again(&mut self, owner: Holder, pause: Duration) {
        if self.queue.is_renewed(owner) {
            self.watch(owner, self.now.plus(pause));
        }
    }

    /// Redis runs a command: mostly the oldest one that it has not run.
    pub(super) fn run_one(&mut self, pick: usize) {
        let waiting = |c: &InFlight| c.reply.is_none() && !c.undone;
        let waiting: Vec<usize> = (0..self.in_flight.len()).filter(|&i| waiting(&self.in_flight[i])).collect();
        if waiting.is_empty() {
            return;
        }
        let index = if pick.is_multiple_of(4) { waiting[pick / 4 % waiting.len()] } else { waiting[0] };
        let mut command = self.in_flight.remove(index);
        // It may have waited for its turn before it was sent, or afterwards.
        if pick.is_multiple_of(3) {
            command.at = self.now;
        }
        self.run(&mut command);
        self.in_flight.insert(index, command);
        self.check();
    }

    fn run(&mut self, flight: &mut InFlight) {
        let (now, redis) = (self.now, &mut self.redis);
        redis.expire(now);
        let late = now.since(flight.wanted);
        let mut owners = flight.command.owners();
        let reply = match &flight.command {
            Sent::Attempt(a) if !a.reentrant && holds_again(redis.found(a.owner), a.target, flight.repeated) => {
                Reply::Reentry
            }
            Sent::Attempt(a) => Reply::Attempt(redis.acquire(now, a)),
            Sent::Extension(e) => Reply::Count(redis.renew(now, e.owner, e.rank, e.lease, e.ttl)),
            Sent::Force(role, _) => Reply::Forced(redis.force(now, *role)),
            Sent::Release(r) => {
                let answer = redis.release(now, r);
                if self.mute {
                    redis.take_told();
                }
                Reply::Release(answer)
            }
            Sent::Renewal(owner, due) => {
                owners.push(*owner);
                Reply::Count(redis.renew(now, *owner, 0, due.holds, due.ttl))
            }
            Sent::Transfer(t) => Reply::Transfer(redis.transfer(now, t)),
            Sent::Unheld(u) => {
                let count = redis.found(u.owner);
                if count > 0 || R::TELLS_WHEN_FREE {
                    let release = Release {
                        owner: u.owner,
                        target: count.saturating_sub(1),
                        ttl: WATCHDOG,
                        rearm: Vec::new(),
                        end: now,
                        promised: now,
                        ended: false,
                        leave: None,
                        candidates: Vec::new(),
                    };
                    redis.release(now, &release);
                }
                Reply::Count(count)
            }
        };
        for owner in owners {
            let known = self.late.entry(owner).or_default();
            *known = late.max(*known);
        }
        (flight.reply, flight.ran) = (Some(reply), now);
        flight.forced = self.redis.forced();
        self.deliver_told();
    }

    /// One of the commands that Redis has run is answered: tasks take their replies in any order.
    pub(super) fn answer_one(&mut self, pick: usize) {
        let over = |c: &InFlight| c.reply.is_some() || c.undone;
        let over: Vec<usize> = (0..self.in_flight.len()).filter(|&i| over(&self.in_flight[i])).collect();
        if over.is_empty() {
            return;
        }
        let InFlight { command, at, repeated, undone, reply, ran, forced, .. } =
            self.in_flight.remove(over[pick % over.len()]);
        self.slowest = self.slowest.max(self.now.since(ran));
        match (command, reply) {
            (Sent::Attempt(a), _) if undone => self.act(|q, now, out| q.undo(now, &a, out)),
            (Sent::Attempt(a), Some(Reply::Attempt(reply))) => {
                if matches!(reply, AttemptReply::Granted(_)) {
                    self.granted(a.waiter, forced);
                    self.act(|q, now, out| q.attempted(now, &a, at, reply, out));
                } else {
                    self.follow(|q, now, out| q.attempted(now, &a, at, reply, out));
                }
            }
            (Sent::Attempt(a), Some(Reply::Reentry)) => {
                // Whether the first sending was granted, or an older hold is there, nobody can tell.
                self.unbarred |= repeated;
                let error = Error::AlreadyHeld { key: "k".to_owned(), owner: a.owner.owner };
                self.act(|q, now, out| q.attempt_failed(now, &a, error, out));
            }
            (Sent::Extension(e), Some(Reply::Count(found))) => {
                self.act(|q, now, out| q.extended(now, e, at, Ok(found), out));
            }
            (Sent::Force(_, before), Some(Reply::Forced(true))) => self.act(|q, now, out| q.forced(now, before, out)),
            (Sent::Force(..), _) => {}
            (Sent::Release(r), Some(Reply::Release(answer))) => {
                if let Some(index) = answer.granted {
                    self.granted(r.candidates[index].waiter, forced);
                }
                let untold = (self.mute && answer.published).then(error);
                let outcome = ReleaseOutcome { sent: at, answer, untold, repeated };
                self.act(|q, now, out| q.released(now, &r, outcome, out));
            }
            (Sent::Renewal(owner, due), Some(Reply::Count(found))) => {
                self.act(|q, now, out| q.renewed(now, owner, due, at, found, out));
                self.watch_again(owner, PERIOD);
            }
            (Sent::Transfer(t), Some(Reply::Transfer(granted))) => {
                self.granted(t.waiter, forced);
                let (granted, listeners) = (granted.then_some(GRANTED), Some(1 + pick as u64 % 2));
                self.act(|q, now, out| q.transferred(now, &t, at, granted, listeners, out));
            }
            (Sent::Unheld(u), Some(Reply::Count(count))) => {
                let outcome = if count > 0 { Ok(()) } else { Err(error()) };
                self.act(|q, now, out| {
                    out.push(Command::Settle(u.reply, outcome));
                    q.unheld_over(now, u.owner, out);
                });
            }
            (command, reply) => unreachable!("{command:?} was answered {reply:?}"),
        }
    }

    fn granted(&mut self, waiter: WaiterId, forced: u64) {
        if let Some(waiter) = self.waiters.iter_mut().find(|w| w.id == waiter) {
            waiter.forced = forced;
        }
    }

    /// The link breaks: every outcome is unknown, and is resolved behind the barrier. `told`: that takes so long that whoever
    /// waits is told.
    pub(super) fn break_link(&mut self, told: bool) {
        (self.disturbed, self.breaking) = (self.disturbed || told, true);
        for flight in std::mem::take(&mut self.in_flight) {
            let now_told = told && !flight.told;
            match flight.command {
                _ if flight.undone => self.in_flight.push(flight),
                Sent::Attempt(a) if !told && self.queue.wants(a.waiter) => {
                    self.again(Sent::Attempt(a), flight.wanted, false)
                }
                Sent::Attempt(a) => {
                    let waiter = a.waiter;
                    let gone = InFlight::new(Sent::Attempt(a), self.now, true, true);
                    self.in_flight.push(InFlight { undone: true, ..gone });
                    self.act(|q, now, out| q.overdue(now, waiter, error(), out));
                }
                Sent::Release(r) => {
                    if now_told {
                        self.act(|q, _, out| q.release_failing(&r, &error(), out));
                    }
                    if self.now >= r.end {
                        self.give_up(&r);
                        continue;
                    }
                    self.again(Sent::Release(r), flight.wanted, told || flight.told);
                }
                Sent::Transfer(t) => {
                    let (old, waiter) = (t.old, t.waiter);
                    self.again(Sent::Transfer(t), flight.wanted, told || flight.told);
                    if now_told {
                        self.act(|q, now, out| {
                            q.transfer_failing(old, &error(), out);
                            q.overdue(now, waiter, error(), out);
                        });
                    }
                }
                Sent::Unheld(u) => self.again(Sent::Unheld(u), flight.wanted, false),
                Sent::Force(..) => {}
                command @ (Sent::Extension(_) | Sent::Renewal(..)) => self.fail(command, flight.at),
            }
        }
        self.breaking = false;
        self.check();
    }

    fn give_up(&mut self, release: &Release) {
        self.gave_up = true;
        self.act(|q, now, out| q.release_given_up(now, release, out));
    }

    /// Renewals and extensions are not sent again, at least not as they were.
    fn fail(&mut self, command: Sent, at: Moment) {
        match command {
            Sent::Extension(e) => self.act(|q, now, out| q.extended(now, e, at, Err(error()), out)),
            Sent::Renewal(owner, _) => {
                self.act(|q, now, out| q.renewal_failed(now, owner, out));
                self.watch_again(owner, PERIOD / 8);
            }
            other => unreachable!("is sent again: {other:?}"),
        }
    }

    /// A command is refused, or does not get onto the link.
    pub(super) fn refuse_one(&mut self, pick: usize) {
        let waiting = |c: &InFlight| c.reply.is_none() && !c.undone;
        let waiting: Vec<usize> = (0..self.in_flight.len()).filter(|&i| waiting(&self.in_flight[i])).collect();
        if waiting.is_empty() {
            return;
        }
        self.disturbed = true;
        let mut flight = self.in_flight.remove(waiting[pick % waiting.len()]);
        match flight.command {
            Sent::Attempt(a) if flight.repeated => self.act(|q, now, out| {
                q.overdue(now, a.waiter, error(), out);
                q.undo(now, &a, out);
            }),
            Sent::Attempt(a) => self.act(|q, now, out| q.attempt_failed(now, &a, error(), out)),
            Sent::Release(r) if self.now >= r.end => self.give_up(&r),
            Sent::Release(ref r) => {
                if !std::mem::replace(&mut flight.told, true) {
                    self.breaking = true;
                    self.act(|q, _, out| q.release_failing(r, &error(), out));
                    self.breaking = false;
                }
                self.in_flight.push(flight);
            }
            Sent::Transfer(t) if flight.repeated => {
                self.act(|q, now, out| q.transfer_unresolved(now, &t, Some(error()), out));
            }
            Sent::Transfer(t) => self.act(|q, now, out| q.transfer_failed(now, &t, out)),
            Sent::Unheld(u) => self.act(|q, now, out| {
                out.push(Command::Settle(u.reply, Err(error())));
                q.unheld_over(now, u.owner, out);
            }),
            Sent::Force(..) => {}
            command @ (Sent::Extension(_) | Sent::Renewal(..)) => self.fail(command, flight.at),
        }
    }

    /// The link breaks and cannot be barred: what was sent may run later.
    pub(super) fn lose_barrier(&mut self) {
        (self.disturbed, self.unbarred) = (true, true);
        let until = self.now.plus(STRAY);
        for flight in std::mem::take(&mut self.in_flight) {
            let ran = flight.reply.is_some() || flight.undone;
            match flight.command {
                Sent::Attempt(a) => {
                    if !ran {
                        self.stray(Sent::Attempt(a.clone()), until);
                    }
                    self.act(|q, now, out| q.overdue(now, a.waiter, error(), out));
                    self.act(|q, now, out| {
                        q.abandon(now, a.owner, now.plus(a.ttl).plus(STRAY), out);
                        q.undo(now, &a, out);
                    });
                }
                Sent::Release(r) => {
                    if !ran {
                        self.stray(Sent::Release(r.clone()), until);
                    }
                    self.act(|q, now, out| q.abandon(now, r.owner, r.end.plus(STRAY), out));
                    if self.now >= r.end {
                        self.give_up(&r);
                    } else {
                        self.again(Sent::Release(r), flight.wanted, true);
                    }
                }
                Sent::Transfer(t) => {
                    if !ran {
                        self.stray(Sent::Transfer(t.clone()), until);
                    }
                    self.act(|q, now, out| {
                        let until = t.end.max(now).plus(STRAY);
                        q.abandon(now, t.new, until, out);
                        q.abandon(now, t.old, until, out);
                        q.transfer_unresolved(now, &t, Some(error()), out);
                    });
                }
                Sent::Unheld(u) => self.act(|q, now, out| {
                    out.push(Command::Settle(u.reply, Err(error())));
                    q.unheld_over(now, u.owner, out);
                }),
                Sent::Force(..) => {}
                command @ (Sent::Extension(_) | Sent::Renewal(..)) => self.fail(command, flight.at),
            }
        }
    }

    fn stray(&mut self, command: Sent, until: Moment) {
        self.strays.push((InFlight::new(command, self.now, false, true), until));
    }

    pub(super) fn run_stray(&mut self, pick: usize) {
        if !self.strays.is_empty() {
            let (mut flight, until) = self.strays.remove(pick % self.strays.len());
            if self.now < until {
                self.run(&mut flight);
                self.check();
            }
        }
    }

    pub(super) fn run_strays(&mut self) {
        while !self.strays.is_empty() {
            self.run_stray(0);
        }
    }
}
