//! The queue against a model of Redis, in random orders of everything that can happen.

use std::{
    collections::{HashMap, VecDeque},
    sync::Arc,
    task::Waker,
    time::Duration,
};

use proptest::prelude::*;
use uuid::Uuid;

use super::*;
use crate::owner::Owners;

const LEASE: Duration = Duration::from_millis(4_000);

/// What Redis has at the key.
#[derive(Debug, Default)]
struct Redis {
    holder: Option<(OwnerId, u64, Moment)>,
    published: u64,
}

impl Redis {
    fn expire(&mut self, now: Moment) {
        if self.holder.is_some_and(|(.., end)| end <= now) {
            self.holder = None;
        }
    }

    fn acquire(&mut self, now: Moment, a: &Attempt) -> AttemptReply {
        self.expire(now);
        if self.holder.is_some_and(|(owner, ..)| a.abandoned.contains(&owner)) {
            self.holder = None;
        }
        match self.holder {
            None => {
                self.holder = Some((a.owner, 1, now.plus(a.ttl)));
                AttemptReply::Granted { found: 0 }
            }
            Some((owner, found, _)) if owner == a.owner => {
                self.holder = Some((a.owner, a.target, now.plus(a.ttl)));
                AttemptReply::Granted { found }
            }
            Some((.., end)) => AttemptReply::Busy { retry_in: Some(end.since(now)) },
        }
    }

    fn release(&mut self, now: Moment, r: &Release) -> u64 {
        self.expire(now);
        match self.holder {
            Some((owner, found, _)) if owner == r.owner => {
                if r.target == 0 {
                    self.holder = None;
                    self.published += 1;
                } else {
                    self.holder = Some((owner, found.min(r.target), now.plus(r.ttl)));
                }
                found
            }
            _ => 0,
        }
    }

    fn transfer(&mut self, now: Moment, t: &Transfer) -> bool {
        self.expire(now);
        match self.holder {
            Some((owner, ..)) if owner == t.new => true,
            Some((owner, ..)) if owner == t.old => {
                self.holder = Some((t.new, 1, now.plus(t.term.length)));
                true
            }
            _ => false,
        }
    }
}

/// A command on its way, and whether Redis has run it.
#[derive(Debug)]
enum InFlight {
    Attempt(Attempt, Moment, Option<AttemptReply>),
    Release(Release, bool, Option<u64>),
    Transfer(Transfer, Moment, Option<bool>),
}

struct World {
    now: Moment,
    queue: Queue,
    redis: Redis,
    owners: Owners,
    explicit: OwnerId,
    foreign: OwnerId,
    in_flight: VecDeque<InFlight>,
    waiters: Vec<(WaiterId, OwnerId)>,
    guards: Vec<(OwnerId, Held)>,
    /// Messages published but not heard yet.
    unheard: u64,
    listening: bool,
    confirming: bool,
}

impl World {
    fn new(handoff: bool) -> Self {
        let owners = Owners::new(Uuid::from_u128(1));
        let settings = Settings { name: Arc::from("k"), handoff, watchdog_timeout: LEASE };
        Self {
            now: Moment::from_nanos(1_000_000_000),
            queue: Queue::new(settings),
            redis: Redis::default(),
            explicit: OwnerId::with_thread(Uuid::from_u128(1), 1).expect("free"),
            foreign: OwnerId::with_thread(Uuid::from_u128(2), 1).expect("free"),
            owners,
            in_flight: VecDeque::new(),
            waiters: Vec::new(),
            guards: Vec::new(),
            unheard: 0,
            listening: false,
            confirming: false,
        }
    }

    fn act<R>(&mut self, event: impl FnOnce(&mut Queue, Moment, &mut Few<Command>) -> R) -> R {
        let mut out = Few::new();
        let result = event(&mut self.queue, self.now, &mut out);
        for command in out {
            match command {
                Command::Attempt(a) => self.in_flight.push_back(InFlight::Attempt(a, self.now, None)),
                Command::Release(r) => self.in_flight.push_back(InFlight::Release(r, false, None)),
                Command::Transfer(t) => self.in_flight.push_back(InFlight::Transfer(t, self.now, None)),
                Command::Listen => self.confirming = true,
                Command::Unlisten => (self.listening, self.confirming, self.unheard) = (false, false, 0),
                Command::Settle(reply, outcome) => drop(reply.send(outcome)),
                Command::Extend(_) | Command::ReleaseUnheld(_) => unreachable!("nothing here asks for it"),
                Command::Wake(_) | Command::CancelRenewal(_) | Command::WatchRenewal(_) => {}
            }
        }
        self.check();
        result
    }

    fn join(&mut self, explicit: bool, immediate: bool) {
        let owner = if explicit { self.explicit } else { self.owners.fresh() };
        let term = Term { length: LEASE, renewed: false };
        let (id, _) = self.act(|q, now, out| q.join(now, owner, term, immediate, Waker::noop(), out));
        self.waiters.push((id, owner));
        self.poll(id);
    }

    fn poll(&mut self, id: WaiterId) {
        let Some(outcome) = self.act(|q, now, out| q.poll(now, id, Waker::noop(), out)) else { return };
        let index = self.waiters.iter().position(|(w, _)| *w == id).expect("known");
        let (_, owner) = self.waiters.swap_remove(index);
        if let WaitOutcome::Granted(held) = outcome {
            self.guards.push((owner, held));
        }
    }

    fn poll_all(&mut self) {
        for (id, _) in self.waiters.clone() {
            self.poll(id);
        }
    }

    fn release_guard(&mut self, pick: usize) {
        if self.guards.is_empty() {
            return;
        }
        let (owner, held) = self.guards.swap_remove(pick % self.guards.len());
        self.act(|q, now, out| q.release(now, owner, held.id, None, out));
    }

    /// Redis runs the oldest command that it has not run.
    fn run_one(&mut self) {
        let (now, redis) = (self.now, &mut self.redis);
        let before = redis.published;
        for command in &mut self.in_flight {
            match command {
                InFlight::Attempt(a, _, reply @ None) => *reply = Some(redis.acquire(now, a)),
                InFlight::Release(r, _, reply @ None) => *reply = Some(redis.release(now, r)),
                InFlight::Transfer(t, _, reply @ None) => *reply = Some(redis.transfer(now, t)),
                _ => continue,
            }
            break;
        }
        if self.listening {
            self.unheard += redis.published - before;
        }
    }

    /// One of the commands that Redis has run is answered: tasks take their replies in any order.
    fn answer_one(&mut self, pick: usize) {
        let run = |c: &InFlight| match c {
            InFlight::Attempt(.., reply) => reply.is_some(),
            InFlight::Release(.., reply) => reply.is_some(),
            InFlight::Transfer(.., reply) => reply.is_some(),
        };
        let answerable: Vec<usize> = (0..self.in_flight.len()).filter(|&i| run(&self.in_flight[i])).collect();
        if answerable.is_empty() {
            return;
        }
        match self.in_flight.remove(answerable[pick % answerable.len()]) {
            Some(InFlight::Attempt(a, sent, Some(reply))) => {
                self.act(|q, now, out| q.attempted(now, &a, sent, reply, out))
            }
            Some(InFlight::Release(r, repeated, Some(found))) => {
                self.act(|q, now, out| q.released(now, &r, found, None, repeated, out));
            }
            Some(InFlight::Transfer(t, sent, Some(granted))) => {
                self.act(|q, now, out| q.transferred(now, &t, sent, granted, Some(1), out));
            }
            _ => unreachable!("it was run"),
        }
    }

    /// The link breaks: every outcome is unknown, and is resolved behind the barrier.
    fn break_link(&mut self, told: bool) {
        let error = || Error::Closed;
        for command in std::mem::take(&mut self.in_flight) {
            match command {
                InFlight::Attempt(a, ..) if !told && self.queue.wants(a.waiter) => {
                    self.in_flight.push_back(InFlight::Attempt(a, self.now, None));
                }
                InFlight::Attempt(a, ..) => {
                    self.act(|q, now, out| q.overdue(now, a.waiter, error(), out));
                    self.act(|q, now, out| q.undo(now, &a, out));
                }
                InFlight::Release(r, ..) => {
                    if told {
                        self.act(|q, _, out| q.release_failing(r.owner, &error(), out));
                    }
                    self.in_flight.push_back(InFlight::Release(r, true, None));
                }
                InFlight::Transfer(t, ..) => {
                    if told {
                        self.act(|q, now, out| q.overdue(now, t.waiter, error(), out));
                    }
                    self.in_flight.push_back(InFlight::Transfer(t, self.now, None));
                }
            }
        }
    }

    fn hear(&mut self) {
        if self.listening && self.unheard > 0 {
            self.unheard -= 1;
            self.act(|q, now, out| q.message(now, out));
        }
    }

    fn confirm(&mut self) {
        if self.confirming && !self.listening {
            self.listening = true;
            self.act(|q, now, out| q.channel_live(now, out));
        }
    }

    fn lose_channel(&mut self) {
        if self.listening {
            (self.listening, self.unheard) = (false, 0);
            self.act(|q, now, out| q.channel_lost(now, out));
        }
    }

    fn foreign(&mut self) {
        self.redis.expire(self.now);
        match self.redis.holder {
            None => self.redis.holder = Some((self.foreign, 1, self.now.plus(LEASE))),
            Some((owner, ..)) if owner == self.foreign => {
                self.redis.holder = None;
                self.unheard += u64::from(self.listening);
            }
            Some(_) => {}
        }
    }

    fn pass(&mut self, time: Duration) {
        self.now = self.now.plus(time);
        self.redis.expire(self.now);
        if self.queue.next_deadline(self.now).is_some_and(|at| at <= self.now) {
            self.act(|q, now, out| q.tick(now, out));
        }
    }

    /// What must hold at any moment.
    fn check(&self) {
        let mut valid: HashMap<OwnerId, u64> = HashMap::new();
        for (owner, held) in &self.guards {
            *valid.entry(*owner).or_default() += u64::from(held.validity.is_valid(self.now));
        }
        valid.retain(|_, count| *count > 0);
        assert!(valid.len() <= 1, "two owners trust their holds: {valid:?}");
        for (owner, count) in valid {
            match self.redis.holder {
                Some((holder, redis, _)) if holder == owner => {
                    assert!(redis >= count, "{count} holds, Redis counts {redis}")
                }
                other => panic!("{owner} trusts its hold, Redis has {other:?}"),
            }
        }
        let sleeping = self.queue.line.iter().any(|w| matches!(w.state, WaiterState::Waiting) && !w.stalled);
        assert!(
            !sleeping || self.confirming || self.queue.turn.is_some() || self.queue.closed,
            "a sleeper who does not listen"
        );
    }

    /// Lets everything run its course: every waiter gets the lock, every guard is released.
    fn settle(&mut self) {
        if self.redis.holder.is_some_and(|(owner, ..)| owner == self.foreign) {
            self.foreign();
        }
        let started = self.now;
        for _ in 0..10_000 {
            self.confirm();
            self.run_one();
            self.answer_one(0);
            self.hear();
            self.poll_all();
            self.release_guard(0);
            if self.in_flight.is_empty() && self.unheard == 0 && self.guards.is_empty() {
                if self.waiters.is_empty() && self.queue.is_idle() {
                    break;
                }
                let next = self.queue.next_deadline(self.now).expect("somebody waits and nothing is planned");
                self.pass(next.since(self.now).max(Duration::from_millis(1)));
            }
        }
        assert!(self.waiters.is_empty(), "never granted: {:?}\n{:#?}", self.waiters, self.queue);
        assert!(self.queue.is_idle(), "left behind: {:#?}", self.queue);
        assert_eq!(self.redis.holder, None, "a hold without an owner");
        let took = self.now.since(started);
        assert!(took <= LEASE, "nobody had to wait for a lease to end, but it took {took:?}");
    }
}

fn step(world: &mut World, event: u8, pick: usize) {
    let some_waiter = |w: &World| (!w.waiters.is_empty()).then(|| w.waiters[pick % w.waiters.len()].0);
    match event {
        0 | 1 => world.join(false, false),
        2 => world.join(true, false),
        3 => world.join(pick.is_multiple_of(2), true),
        4..=7 => world.run_one(),
        8..=11 => world.answer_one(pick),
        12 | 13 => world.poll_all(),
        14 | 15 => world.release_guard(pick),
        16 => {
            if let Some(id) = some_waiter(world) {
                world.act(|q, now, out| q.leave(now, id, out));
                world.waiters.retain(|(w, _)| *w != id);
            }
        }
        17 => {
            if let Some(id) = some_waiter(world)
                && world.act(|q, now, out| q.expire(now, id, out))
            {
                world.waiters.retain(|(w, _)| *w != id);
            }
        }
        18 => world.hear(),
        19 => world.confirm(),
        20 => world.lose_channel(),
        21 | 22 => world.foreign(),
        23 => world.pass(Duration::from_millis(1 + pick as u64 % 7)),
        24 => world.pass(Duration::from_millis(50 + pick as u64 % 200)),
        25 => world.break_link(false),
        _ => world.break_link(true),
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: if std::env::var_os("REDLATCH_FULL").is_some() { 300_000 } else { 5_000 }, ..ProptestConfig::default() })]

    #[test]
    fn in_any_order_of_events_no_two_hold_and_nobody_waits_for_ever(
        handoff: bool,
        events in prop::collection::vec((0u8..27, 0usize..1000), 0..120),
    ) {
        let mut world = World::new(handoff);
        for (event, pick) in events {
            step(&mut world, event, pick);
        }
        world.settle();
    }
}

#[test]
fn closing_ends_every_wait_and_still_gives_back_what_was_being_released() {
    let mut world = World::new(true);
    world.join(false, false);
    world.run_one();
    world.answer_one(0);
    world.poll_all();
    world.join(false, false);
    world.join(false, false);
    world.release_guard(0);
    world.act(|q, now, out| q.close(now, out));
    world.poll_all();
    assert!(world.waiters.is_empty());
    for _ in 0..8 {
        world.run_one();
        world.answer_one(0);
    }
    assert_eq!(world.redis.holder, None);
    assert_eq!(world.queue.counts()[3], 0, "nothing is in flight");
}

#[test]
fn a_row_of_hand_overs_ends_when_others_have_listened_long_enough() {
    let mut sharing = Sharing::default();
    let start = Moment::from_nanos(1_000_000_000);
    let at = |ms: u64| start.plus(Duration::from_millis(ms));
    sharing.granted(at(0));
    assert!(sharing.may_transfer(at(1)), "the first hand-over counts the listeners");
    sharing.run_length += 1;
    sharing.listeners = Some(0);
    assert!(sharing.may_transfer(at(49)), "nobody listens");
    assert!(!sharing.may_transfer(at(50)), "somebody may poll");
    sharing.listeners = Some(1);
    assert!(!sharing.may_transfer(at(1)), "somebody listens: it is their turn");

    sharing.freeing(true);
    sharing.freed(at(10), true);
    assert!(!sharing.heard(), "the message of our own release says nothing new");
    assert_eq!(sharing.standing_back(at(11)), Some(at(12)));
    for _ in 0..6 {
        assert!(sharing.heard(), "releases by others");
    }
    assert_eq!(sharing.standing_back(at(11)), None, "the next message ends the stand-back");
    sharing.granted(at(12));
    for _ in 0..5 {
        assert!(sharing.may_transfer(at(13)), "as many grants as the other had");
        sharing.run_length += 1;
    }
    assert!(!sharing.may_transfer(at(13)));
}

#[test]
fn standing_back_in_vain_is_done_seldom() {
    let mut sharing = Sharing::default();
    sharing.listeners = Some(1);
    let start = Moment::from_nanos(1_000_000_000);
    let at = |ms: u64| start.plus(Duration::from_millis(ms));
    for round in 0..3 {
        sharing.granted(at(10 * round));
        sharing.freeing(true);
        sharing.freed(at(10 * round), true);
        assert!(sharing.standing_back(at(10 * round + 1)).is_some());
        assert!(sharing.standing_back(at(10 * round + 2)).is_none());
        sharing.heard();
    }
    sharing.granted(at(30));
    assert!(sharing.may_transfer(at(31)), "as if nobody listened");
    sharing.freeing(true);
    sharing.freed(at(32), true);
    assert!(sharing.standing_back(at(32)).is_none(), "not again so soon");
    sharing.freed(at(80), true);
    assert!(sharing.standing_back(at(80)).is_some());
}
