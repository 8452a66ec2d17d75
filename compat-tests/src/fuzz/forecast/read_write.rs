//! The read/write lock.

mod passing;

use std::collections::BTreeMap;

use super::super::call::{Call, Owner};
use super::waiting::{Holds, Patience, Waiter, is_acquire};
use super::{APART, Begun, Cast, Effects, Language, Touch, View, WAKES, WATCHDOG_MS, When, language};

/// One name.
#[derive(Clone, Debug, Default)]
pub(super) struct ReadWrite {
    hash: Option<Hash>,
    /// The keys that say that a read hold lives, by owner and number.
    hold_keys: BTreeMap<(Owner, usize), When>,
    waiters: Vec<Waiter>,
    /// The leases that Redisson's two objects remember, by client; true is the write lock's.
    remembered: BTreeMap<(usize, bool), i64>,
    dead: Vec<usize>,
}

/// The hash under the name.
#[derive(Clone, Debug)]
struct Hash {
    writes: bool,
    writer: Option<(Owner, Counted)>,
    readers: BTreeMap<Owner, Counted>,
    ends: When,
}

/// What one owner has in one role.
#[derive(Clone, Debug, Default)]
struct Counted {
    count: usize,
    holds: Holds,
}

impl Hash {
    /// The latest end that this crate's client has promised this owner.
    fn promised(&self, owner: Owner, now: When) -> Option<When> {
        let writes = self.writer.iter().filter(|(writer, _)| *writer == owner).map(|(_, counted)| counted);
        let ends = writes.chain(self.readers.get(&owner)).filter_map(|counted| counted.holds.latest(now));
        ends.reduce(When::later)
    }

    fn is_empty(&self) -> bool {
        self.writer.is_none() && self.readers.is_empty()
    }
}

impl ReadWrite {
    pub(super) fn call(&mut self, id: usize, call: &Call, at: i64, cast: Cast, effects: &mut Effects) -> Begun {
        match (call.op, call.kind) {
            (op, _) if is_acquire(op) => return self.acquire(id, call, at, cast, effects),
            ("unlock", "write") => self.release_write(call.owner, at, cast, effects),
            ("unlock", _) => self.release_read(call.owner, at, cast, effects),
            ("forceUnlock", kind) => {
                let write = kind == "write";
                self.remembered.remove(&(call.owner.client, write));
                if self.hash.as_ref().is_some_and(|hash| hash.writes == write) {
                    self.hash = None;
                    self.freed(When::at(at), true, cast, effects);
                }
            }
            _ => {}
        }
        Begun::Answered
    }

    fn acquire(&mut self, id: usize, call: &Call, at: i64, cast: Cast, effects: &mut Effects) -> Begun {
        let write = call.kind == "write";
        if self.admits(call.owner, write) {
            let waits_locally = Patience::of(call) != Patience::OneAttempt && !self.holds_any(call.owner);
            if waits_locally && !self.waiters.is_empty() {
                effects.trouble("somebody who may overtake a waiter");
            }
            self.grant(call.owner, write, call.lease_ms(), When::at(at), cast, effects);
            return Begun::Answered;
        }
        if write && language(cast, call.owner) == Language::Rust {
            self.look_at_readers(at, effects);
        }
        let deadline = match Patience::of(call) {
            Patience::OneAttempt => return Begun::Answered,
            Patience::Until(ms) => Some(When::at(at + ms).delayed(WAKES)),
            Patience::Forever => None,
        };
        if self.waiters.iter().any(|waiter| write || !waiter.shares) {
            effects.trouble("a writer and others wait for one lock");
        }
        let seen = self.hash.as_ref().map_or(When::at(at), |hash| hash.ends);
        let (owner, lease) = (call.owner, call.lease_ms());
        self.waiters.push(Waiter { id, owner, shares: !write, lease, deadline, seen });
        Begun::Waits
    }

    fn admits(&self, owner: Owner, write: bool) -> bool {
        let Some(hash) = &self.hash else { return true };
        let own_write = hash.writer.as_ref().is_some_and(|(writer, _)| *writer == owner);
        if write || hash.writes { own_write } else { true }
    }

    fn holds_any(&self, owner: Owner) -> bool {
        self.hash.as_ref().is_some_and(|hash| {
            hash.readers.contains_key(&owner) || hash.writer.as_ref().is_some_and(|(writer, _)| *writer == owner)
        })
    }

    fn grant(&mut self, owner: Owner, write: bool, lease: Option<i64>, when: When, cast: Cast, effects: &mut Effects) {
        let speaks = language(cast, owner);
        let ttl = match (speaks, lease) {
            (Language::Rust, lease) => lease.unwrap_or(WATCHDOG_MS),
            (Language::Java, Some(lease)) => {
                self.remembered.insert((owner.client, write), lease);
                lease
            }
            (Language::Java, None) => self.remembered.get(&(owner.client, write)).copied().unwrap_or(WATCHDOG_MS),
        };
        let ends = when.plus(ttl);
        let fresh = self.hash.is_none();
        let hash =
            self.hash.get_or_insert_with(|| Hash { writes: write, writer: None, readers: BTreeMap::new(), ends });
        let counted = if write {
            if !fresh {
                hash.ends = hash.ends.plus(ttl);
            }
            &mut hash.writer.get_or_insert_with(|| (owner, Counted::default())).1
        } else {
            hash.ends = hash.ends.later(ends);
            hash.readers.entry(owner).or_default()
        };
        counted.count += 1;
        if speaks == Language::Rust {
            counted.count -= counted.holds.push(lease, when);
        }
        if !write {
            self.hold_keys.insert((owner, counted.count), ends);
        }
        if speaks == Language::Rust && !fresh {
            // A re-entry never shortens what a live hold of this owner was promised.
            hash.ends = hash.promised(owner, when).map_or(hash.ends, |promised| hash.ends.later(promised));
        }
        self.shortened(effects);
    }

    fn release_read(&mut self, owner: Owner, at: i64, cast: Cast, effects: &mut Effects) {
        self.forget(owner, false, cast, effects);
        let Some(hash) = &mut self.hash else { return };
        let Some(reader) = hash.readers.get_mut(&owner) else { return };
        let number = reader.count;
        reader.count -= 1;
        reader.holds.pop();
        if reader.count == 0 {
            hash.readers.remove(&owner);
        }
        self.hold_keys.remove(&(owner, number));
        self.reader_left(owner, at, cast, effects);
    }

    /// Redisson's object forgets the lease when its release is answered; a thread that was woken may ask before that.
    fn forget(&mut self, owner: Owner, write: bool, cast: Cast, effects: &mut Effects) {
        let forgets = self.remembered.remove(&(owner.client, write)).is_some();
        let asks = |next: &Waiter| next.lease.is_none() && next.shares != write && next.owner.client == owner.client;
        if forgets && language(cast, owner) == Language::Java && self.waiters.iter().any(asks) {
            effects.trouble("a lease that is forgotten while another thread asks");
        }
    }

    /// What is left decides over the TTL, or that all is free.
    fn reader_left(&mut self, owner: Owner, at: i64, cast: Cast, effects: &mut Effects) {
        let Some(hash) = &mut self.hash else { return };
        let left =
            hash.readers.iter().flat_map(|(reader, counted)| (1..=counted.count).map(|number| (*reader, number)));
        let ends = left.filter_map(|hold| self.hold_keys.get(&hold).copied()).filter(|ends| ends.lo > at);
        match ends.reduce(When::later) {
            Some(ends) if !hash.writes => hash.ends = ends,
            // Only Redisson cuts the hold of a writer down to what its reads have left.
            Some(ends) => {
                if language(cast, owner) == Language::Java {
                    hash.ends = ends;
                }
            }
            None if hash.writes => {}
            None => {
                self.hash = None;
                self.freed(When::at(at), true, cast, effects);
                return;
            }
        }
        self.shortened(effects);
    }

    /// A writer of this crate that readers refuse cuts the key down to the last of them.
    fn look_at_readers(&mut self, at: i64, effects: &mut Effects) {
        let Some(hash) = self.hash.as_mut().filter(|hash| !hash.writes) else { return };
        let left =
            hash.readers.iter().flat_map(|(reader, counted)| (1..=counted.count).map(|number| (*reader, number)));
        let ends = left.filter_map(|hold| self.hold_keys.get(&hold).copied()).filter(|ends| ends.lo > at);
        if let Some(last) = ends.reduce(When::later).filter(|last| last.lo < hash.ends.lo) {
            hash.ends = last;
            self.shortened(effects);
        }
    }

    fn release_write(&mut self, owner: Owner, at: i64, cast: Cast, effects: &mut Effects) {
        let lease = self.remembered.get(&(owner.client, true)).copied().unwrap_or(WATCHDOG_MS);
        let speaks = language(cast, owner);
        let own = self.hash.as_mut().and_then(|hash| {
            let (writer, counted) = hash.writer.as_mut()?;
            (*writer == owner).then(|| {
                counted.count -= 1;
                counted.holds.pop();
                counted.count
            })
        });
        let Some(hash) = self.hash.as_mut().filter(|_| own.is_some()) else {
            self.remembered.remove(&(owner.client, true));
            return;
        };
        if own != Some(0) {
            hash.ends = match speaks {
                Language::Java => When::at(at).plus(lease),
                Language::Rust => hash.promised(owner, When::at(at)).unwrap_or(hash.ends),
            };
            self.shortened(effects);
            return;
        }
        self.forget(owner, true, cast, effects);
        self.writer_left(When::at(at), speaks, cast, effects);
    }

    /// Nobody writes any more; whoever wrote may still read.
    fn writer_left(&mut self, when: When, speaks: Language, cast: Cast, effects: &mut Effects) {
        let Some(hash) = &mut self.hash else { return };
        hash.writer = None;
        if hash.is_empty() {
            self.hash = None;
            self.freed(when, true, cast, effects);
            return;
        }
        hash.writes = false;
        if speaks == Language::Rust {
            self.readers_enter(when, cast, effects);
        }
    }

    pub(super) fn touch(&mut self, touch: Touch, at: i64, effects: &mut Effects) {
        match touch {
            Touch::Expire(ms) => {
                if let Some(hash) = &mut self.hash {
                    hash.ends = When::at(at).plus(ms);
                    self.shortened(effects);
                }
            }
            Touch::Delete { main, others } => {
                if !self.waiters.is_empty() {
                    effects.trouble("keys deleted under a waiter");
                }
                if main {
                    self.hash = None;
                }
                if others {
                    self.hold_keys.clear();
                }
            }
        }
    }

    pub(super) fn cancel(&mut self, id: usize) {
        self.waiters.retain(|waiter| waiter.id != id);
    }

    pub(super) fn kill(&mut self, client: usize) {
        self.waiters.retain(|waiter| waiter.owner.client != client);
        self.remembered.retain(|(other, _), _| *other != client);
        self.dead.push(client);
    }

    fn shortened(&self, effects: &mut Effects) {
        let Some(hash) = &self.hash else { return };
        if self.waiters.iter().any(|waiter| hash.ends.lo < waiter.seen.lo - 5) {
            effects.trouble("a shortened TTL under a waiter");
        }
    }

    /// Nobody holds any more.
    fn freed(&mut self, when: When, told: bool, cast: Cast, effects: &mut Effects) {
        if !told && self.waiters.iter().any(|waiter| !waiter.seen.is_close_to(when)) {
            effects.trouble("a waiter that does not know when the lock ends");
        }
        match self.waiters.first() {
            Some(first) if first.shares => self.readers_enter(when, cast, effects),
            Some(_) => self.enter(0, when, cast, effects),
            None => {}
        }
    }

    fn readers_enter(&mut self, when: When, cast: Cast, effects: &mut Effects) {
        while let Some(at) = self.waiters.iter().position(|waiter| waiter.shares) {
            self.enter(at, when, cast, effects);
        }
    }

    fn enter(&mut self, at: usize, when: When, cast: Cast, effects: &mut Effects) {
        let granted = when.delayed(WAKES);
        let waiter = self.waiters.remove(at);
        if waiter.deadline.is_some_and(|deadline| deadline.lo < granted.hi + APART) {
            effects.trouble("a wait that ends when the lock is free");
        }
        self.grant(waiter.owner, !waiter.shares, waiter.lease, granted, cast, effects);
        effects.end(waiter.id, granted, true);
    }

    pub(super) fn view(&self) -> View {
        let Some(hash) = &self.hash else { return View { waiters: self.waiters.len(), ..View::default() } };
        let writers: Vec<Owner> = hash.writer.iter().map(|(owner, _)| *owner).collect();
        let readers = hash.readers.keys().filter(|reader| !writers.contains(reader)).copied();
        View {
            holders: writers.iter().copied().chain(readers).collect(),
            writers,
            waiters: self.waiters.len(),
            dead_in_queue: 0,
            ends: Some(hash.ends),
        }
    }

    pub(super) fn is_like(&self, other: &Self) -> bool {
        let hashes = match (&self.hash, &other.hash) {
            (None, None) => true,
            (Some(one), Some(other)) => {
                let readers =
                    |hash: &Hash| hash.readers.iter().map(|(owner, reader)| (*owner, reader.count)).collect::<Vec<_>>();
                let writer = |hash: &Hash| hash.writer.as_ref().map(|(owner, writer)| (*owner, writer.count));
                one.writes == other.writes
                    && readers(one) == readers(other)
                    && writer(one) == writer(other)
                    && one.ends.is_close_to(other.ends)
            }
            _ => false,
        };
        let hold_keys = self.hold_keys.len() == other.hold_keys.len()
            && self
                .hold_keys
                .iter()
                .zip(&other.hold_keys)
                .all(|((one, ends), (other, other_ends))| one == other && ends.is_close_to(*other_ends));
        let ids = |lock: &Self| lock.waiters.iter().map(|waiter| waiter.id).collect::<Vec<_>>();
        hashes && hold_keys && ids(self) == ids(other)
    }
}
