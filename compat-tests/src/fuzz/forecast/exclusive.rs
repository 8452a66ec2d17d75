//! Locks that one owner holds at a time: plain, fair, fenced, spin and non-reentrant ones.

use std::collections::BTreeMap;

use super::super::call::{Call, Owner};
use super::super::family::ExclusiveShape;
use super::super::plan::LONG_MS;
use super::waiting::{Holds, Patience, Waiter, is_acquire};
use super::{
    APART, Begun, Cast, Effects, Language, PATIENCE_MS, SPINS, Touch, View, WAKES, WATCHDOG_MS, When, language,
};

/// One name.
#[derive(Clone, Debug)]
pub(super) struct Exclusive {
    shape: ExclusiveShape,
    key: Option<Key>,
    /// Of a fair lock; head first.
    queue: Vec<Entry>,
    /// Calls that wait, in the order in which they came.
    waiters: Vec<Waiter>,
    /// The lease that Redisson's object remembers, by client: a hold without a lease gets it.
    remembered: BTreeMap<usize, i64>,
    /// The event before, while another one too close to it could have come first.
    last: Option<When>,
}

/// The hash under the name.
#[derive(Clone, Debug)]
struct Key {
    owner: Owner,
    count: usize,
    ends: When,
    holds: Holds,
    /// The owner's client is gone: nobody gives back.
    orphan: bool,
}

/// A member of the queue.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Entry {
    owner: Owner,
    score: When,
    patience: i64,
    dead: bool,
}

/// What happens by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    KeyEnds,
    HoldEnds(usize),
    GivesUp(usize),
    /// The member of the queue counts as dead from now on.
    ScorePasses,
}

impl Exclusive {
    pub(super) fn new(shape: ExclusiveShape) -> Self {
        let (queue, waiters) = (Vec::new(), Vec::new());
        Self { shape, key: None, queue, waiters, remembered: BTreeMap::new(), last: None }
    }

    pub(super) fn call(&mut self, id: usize, call: &Call, at: i64, cast: Cast, effects: &mut Effects) -> Begun {
        self.last = None;
        match call.op {
            op if is_acquire(op) => return self.acquire(id, call, at, cast, effects),
            "unlock" => self.release(call.owner, at, cast, effects),
            "forceUnlock" => {
                self.remembered.remove(&call.owner.client);
                self.evict(at);
                if self.key.take().is_some() {
                    self.freed(When::at(at), true, cast, effects);
                }
            }
            _ => {}
        }
        Begun::Answered
    }

    fn acquire(&mut self, id: usize, call: &Call, at: i64, cast: Cast, effects: &mut Effects) -> Begun {
        let (owner, now) = (call.owner, When::at(at));
        self.evict(at);
        if self.shape.remembers_attempts
            && let Some(lease) = call.lease_ms().filter(|_| language(cast, owner) == Language::Java)
        {
            self.remembered.insert(owner.client, lease);
        }
        let others_first = self.queue.first().is_some_and(|head| head.owner != owner);
        match &self.key {
            None if !others_first => {
                self.grant(owner, call.lease_ms(), now, cast);
                return Begun::Answered;
            }
            Some(key) if key.owner == owner => {
                if self.shape.reentrant {
                    self.reenter(owner, call.lease_ms(), at, cast, effects);
                }
                return Begun::Answered;
            }
            _ => {}
        }
        let deadline = match Patience::of(call) {
            Patience::OneAttempt => return Begun::Answered,
            Patience::Until(ms) => Some(now.plus(ms).delayed(self.wakes())),
            Patience::Forever => None,
        };
        let Some(key) = &self.key else {
            effects.trouble("a wait behind a dead head");
            return Begun::Waits;
        };
        let seen = key.ends;
        if !self.waiters.is_empty() && !self.shape.fair {
            effects.trouble("two waiters after one lock");
        }
        if self.shape.fair {
            let patience = call.wait_ms().filter(|_| call.op != "lock").unwrap_or(PATIENCE_MS);
            let before = self.queue.last().map_or(key.ends, |last| last.score);
            if self.queue.iter().any(|entry| entry.dead) {
                effects.trouble("a wait behind a dead member of the queue");
            }
            if self.waiters.iter().any(|ahead| ahead.lease.is_some_and(|lease| lease < LONG_MS)) {
                effects.trouble("a wait behind one that will hold for a short time");
            }
            self.queue.push(Entry { owner, score: before.plus(patience), patience, dead: false });
        }
        self.waiters.push(Waiter { id, owner, shares: false, lease: call.lease_ms(), deadline, seen });
        Begun::Waits
    }

    fn grant(&mut self, owner: Owner, lease: Option<i64>, when: When, cast: Cast) {
        if let Some(at) = self.queue.iter().position(|entry| entry.owner == owner) {
            let entry = self.queue.remove(at);
            self.queue.iter_mut().for_each(|behind| behind.score = behind.score.plus(-entry.patience));
        }
        let mut holds = Holds::default();
        let ttl = match language(cast, owner) {
            Language::Java => self.java_ttl(owner, lease),
            Language::Rust => {
                holds.push(lease, when);
                lease.unwrap_or(WATCHDOG_MS)
            }
        };
        self.key = Some(Key { owner, count: 1, ends: when.plus(ttl), holds, orphan: false });
    }

    /// The TTL that Redisson gives a hold; its object remembers a lease.
    fn java_ttl(&mut self, owner: Owner, lease: Option<i64>) -> i64 {
        match lease {
            Some(lease) => {
                self.remembered.insert(owner.client, lease);
                lease
            }
            None => self.remembered.get(&owner.client).copied().unwrap_or(WATCHDOG_MS),
        }
    }

    fn reenter(&mut self, owner: Owner, lease: Option<i64>, at: i64, cast: Cast, effects: &mut Effects) {
        let java_ends = When::at(at).plus(match language(cast, owner) {
            Language::Java => self.java_ttl(owner, lease),
            Language::Rust => 0,
        });
        let Some(key) = &mut self.key else { return };
        key.count += 1;
        match language(cast, owner) {
            Language::Java => key.ends = java_ends,
            Language::Rust => {
                key.count -= key.holds.push(lease, When::at(at));
                key.ends = key.holds.latest(When::at(at)).unwrap_or(key.ends);
            }
        }
        self.shortened(effects);
    }

    fn release(&mut self, owner: Owner, at: i64, cast: Cast, effects: &mut Effects) {
        self.evict(at);
        let remembered = self.remembered.get(&owner.client).copied().unwrap_or(WATCHDOG_MS);
        let Some(key) = self.key.as_mut().filter(|key| key.owner == owner) else {
            self.remembered.remove(&owner.client);
            return;
        };
        key.count -= 1;
        key.holds.pop();
        if key.count == 0 {
            let forgets = self.remembered.remove(&owner.client).is_some() && language(cast, owner) == Language::Java;
            if forgets && self.waiters.iter().any(|next| next.lease.is_none() && next.owner.client == owner.client) {
                effects.trouble("a lease that is forgotten while another thread asks");
            }
            self.key = None;
            self.freed(When::at(at), true, cast, effects);
            return;
        }
        key.ends = match language(cast, owner) {
            Language::Java => When::at(at).plus(remembered),
            Language::Rust => key.holds.latest(When::at(at)).unwrap_or(key.ends),
        };
        self.shortened(effects);
    }

    pub(super) fn touch(&mut self, touch: Touch, at: i64, effects: &mut Effects) {
        self.last = None;
        match touch {
            Touch::Expire(ms) => {
                if let Some(key) = &mut self.key {
                    key.ends = When::at(at).plus(ms);
                    self.shortened(effects);
                }
            }
            Touch::Delete { main, others } => {
                if !self.waiters.is_empty() {
                    effects.trouble("keys deleted under a waiter");
                }
                if main {
                    self.key = None;
                }
                if others {
                    self.queue.clear();
                }
            }
        }
    }

    pub(super) fn cancel(&mut self, id: usize) {
        self.waiters.retain(|waiter| waiter.id != id);
    }

    pub(super) fn kill(&mut self, client: usize) {
        self.waiters.retain(|waiter| waiter.owner.client != client);
        for entry in self.queue.iter_mut().filter(|entry| entry.owner.client == client) {
            entry.dead = true;
        }
        if let Some(key) = self.key.as_mut().filter(|key| key.owner.client == client) {
            key.orphan = true;
        }
        self.remembered.remove(&client);
    }

    /// Nobody tells a waiter that a key will end earlier than it knows.
    fn shortened(&self, effects: &mut Effects) {
        let Some(key) = &self.key else { return };
        if self.shape.listens && self.waiters.iter().any(|waiter| key.ends.lo < waiter.seen.lo - 5) {
            effects.trouble("a shortened TTL under a waiter");
        }
    }

    /// The lock is free. Without a message a waiter comes at the end that it knows.
    fn freed(&mut self, when: When, told: bool, cast: Cast, effects: &mut Effects) {
        let granted = when.delayed(self.wakes());
        let next = if self.shape.fair {
            match self.queue.first() {
                Some(head) if head.dead => {
                    if !self.waiters.is_empty() {
                        effects.trouble("a waiter behind a dead head");
                    }
                    return;
                }
                Some(head) => self.waiters.iter().position(|waiter| waiter.owner == head.owner),
                None => None,
            }
        } else {
            (!self.waiters.is_empty()).then_some(0)
        };
        let Some(next) = next else { return };
        let waiter = self.waiters.remove(next);
        if !told && self.shape.listens && !waiter.seen.is_close_to(when) {
            effects.trouble("a waiter that does not know when the lock ends");
        }
        if waiter.deadline.is_some_and(|deadline| deadline.lo < granted.hi + APART) {
            effects.trouble("a wait that ends when the lock is free");
        }
        self.grant(waiter.owner, waiter.lease, granted, cast);
        let ends = self.key.as_ref().map_or(granted, |key| key.ends);
        if !self.waiters.is_empty() && ends.lo < when.lo + LONG_MS {
            effects.trouble("a short hold with others behind it");
        }
        self.waiters.iter_mut().for_each(|behind| behind.seen = behind.seen.later(ends));
        effects.end(waiter.id, granted, true);
    }

    /// Heads of the queue whose time is over are dropped by whoever comes next.
    fn evict(&mut self, at: i64) {
        while self.queue.first().is_some_and(|head| head.score.hi <= at) {
            self.queue.remove(0);
        }
    }

    fn wakes(&self) -> i64 {
        if self.shape.listens { WAKES } else { SPINS }
    }

    fn events(&self) -> Vec<(When, Event)> {
        let mut events = Vec::new();
        if let Some(key) = &self.key {
            events.push((key.ends, Event::KeyEnds));
            if !key.orphan {
                events.extend(key.holds.ends_before(key.ends).map(|(at, ends)| (ends, Event::HoldEnds(at))));
            }
        }
        let deadlines = self.waiters.iter().enumerate();
        events.extend(deadlines.filter_map(|(at, waiter)| Some((waiter.deadline?, Event::GivesUp(at)))));
        // A score that has passed already changes nothing any more.
        if let Some(head) = self.queue.first().filter(|head| self.last.is_none_or(|last| head.score.lo > last.hi)) {
            events.push((head.score, Event::ScorePasses));
        }
        events.sort();
        events
    }

    pub(super) fn next(&self) -> Option<When> {
        self.events().first().map(|(when, _)| *when)
    }

    pub(super) fn happen(&mut self, cast: Cast, effects: &mut Effects) {
        let events = self.events();
        let Some((when, event)) = events.first().copied() else { return };
        if events.get(1).is_some_and(|(next, _)| next.lo < when.hi + APART) {
            effects.trouble("events too close to each other");
        }
        self.last = Some(when);
        match event {
            Event::KeyEnds => {
                self.key = None;
                self.freed(when, false, cast, effects);
            }
            Event::HoldEnds(at) => self.hold_ended(at, when, effects),
            Event::GivesUp(at) => {
                let waiter = self.waiters.remove(at);
                if let Some(at) = self.queue.iter().position(|entry| entry.owner == waiter.owner) {
                    let entry = self.queue.remove(at);
                    self.queue[at..].iter_mut().for_each(|behind| behind.score = behind.score.plus(-entry.patience));
                    let ends_soon = self.key.as_ref().is_some_and(|key| key.ends.lo < when.lo + LONG_MS);
                    if at == 0 && !self.queue.is_empty() && ends_soon {
                        effects.trouble("a new head that does not know when the lock ends");
                    }
                }
                effects.end(waiter.id, when, false);
            }
            Event::ScorePasses => {
                if self.queue.first().is_some_and(|head| !head.dead) {
                    effects.trouble("a live waiter that counts as dead");
                }
                self.evict(when.hi);
            }
        }
    }

    /// A lease is over while the key lives on: this crate gives the count back if others are left.
    fn hold_ended(&mut self, at: usize, when: When, effects: &mut Effects) {
        let Some(key) = &mut self.key else { return };
        if key.holds.over(at) {
            key.count -= 1;
            key.ends = key.holds.latest(when).unwrap_or(key.ends);
            self.shortened(effects);
        }
    }

    pub(super) fn view(&self) -> View {
        let holders: Vec<Owner> = self.key.iter().map(|key| key.owner).collect();
        View {
            writers: holders.clone(),
            holders,
            waiters: self.waiters.len(),
            dead_in_queue: self.queue.iter().filter(|entry| entry.dead).count(),
            ends: self.key.as_ref().map(|key| key.ends),
        }
    }

    pub(super) fn is_like(&self, other: &Self) -> bool {
        let keys = match (&self.key, &other.key) {
            (None, None) => true,
            (Some(one), Some(other)) => {
                one.owner == other.owner && one.count == other.count && one.ends.is_close_to(other.ends)
            }
            _ => false,
        };
        let queues = self.queue.len() == other.queue.len()
            && self.queue.iter().zip(&other.queue).all(|(one, other)| one.owner == other.owner);
        let ids = |lock: &Self| lock.waiters.iter().map(|waiter| waiter.id).collect::<Vec<_>>();
        keys && queues && ids(self) == ids(other)
    }
}
