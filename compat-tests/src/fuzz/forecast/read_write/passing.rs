//! What time alone does to a read/write lock.

use super::super::{APART, Cast, Effects, Language, WAKES, When};
use super::ReadWrite;
use crate::fuzz::call::Owner;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    HashEnds,
    HoldKeyEnds(Owner, usize),
    WriteHoldEnds(usize),
    ReadHoldEnds(Owner, usize),
    GivesUp(usize),
    /// A reader that nobody told finds the lock in read mode.
    LooksAgain(usize),
}

impl ReadWrite {
    fn events(&self) -> Vec<(When, Event)> {
        let mut events = Vec::new();
        let hash_ends = self.hash.as_ref().map(|hash| hash.ends);
        events.extend(hash_ends.map(|ends| (ends, Event::HashEnds)));
        for ((owner, number), ends) in &self.hold_keys {
            // Those of the hash's own end go with it, and those of a hold that its client gives back go with that.
            let known = self.hash.as_ref().and_then(|hash| hash.readers.get(owner));
            let known =
                known.is_some_and(|known| known.holds.ends_before(When::at(i64::MAX)).any(|(_, end)| end == *ends));
            let with_hold = known && !self.dead.contains(&owner.client);
            if hash_ends.is_none_or(|hash| !hash.is_close_to(*ends)) && !with_hold {
                events.push((*ends, Event::HoldKeyEnds(*owner, *number)));
            }
        }
        if let Some(hash) = &self.hash {
            let lives = |owner: &Owner| !self.dead.contains(&owner.client);
            if let Some((_, writer)) = hash.writer.as_ref().filter(|(owner, _)| lives(owner)) {
                events.extend(writer.holds.ends_before(hash.ends).map(|(at, ends)| (ends, Event::WriteHoldEnds(at))));
            }
            for (owner, reader) in hash.readers.iter().filter(|(owner, _)| lives(owner)) {
                let ends = reader.holds.ends_before(hash.ends);
                events.extend(ends.map(|(at, ends)| (ends, Event::ReadHoldEnds(*owner, at))));
            }
            if !hash.writes {
                let readers = self.waiters.iter().enumerate().filter(|(_, waiter)| waiter.shares);
                events.extend(readers.map(|(at, waiter)| (waiter.seen, Event::LooksAgain(at))));
            }
        }
        let deadlines = self.waiters.iter().enumerate();
        events.extend(deadlines.filter_map(|(at, waiter)| Some((waiter.deadline?, Event::GivesUp(at)))));
        events.sort();
        events
    }

    pub(in super::super) fn next(&self) -> Option<When> {
        self.events().first().map(|(when, _)| *when)
    }

    pub(in super::super) fn happen(&mut self, cast: Cast, effects: &mut Effects) {
        let events = self.events();
        let Some((when, event)) = events.first().copied() else { return };
        let is_lapse = |event| matches!(event, Event::HoldKeyEnds(..));
        if events.get(1).is_some_and(|(next, other)| {
            next.lo < when.hi + APART && !(is_lapse(event) && is_lapse(*other) && self.hash.is_none())
        }) {
            effects.trouble("events too close to each other");
        }
        match event {
            Event::HashEnds => {
                self.hold_keys.retain(|_, ends| !ends.is_close_to(when));
                self.hash = None;
                self.freed(when, false, cast, effects);
            }
            Event::HoldKeyEnds(owner, number) => {
                self.hold_keys.remove(&(owner, number));
            }
            Event::ReadHoldEnds(owner, at) => self.read_hold_ended(owner, at, when, cast, effects),
            Event::WriteHoldEnds(at) => self.write_hold_ended(at, when, cast, effects),
            Event::GivesUp(at) => {
                let waiter = self.waiters.remove(at);
                effects.end(waiter.id, when, false);
            }
            Event::LooksAgain(at) => self.enter(at, when, cast, effects),
        }
    }

    /// A lease is over while the lock lives on: this crate gives the count back, and the rest of the hold keys moves up.
    fn read_hold_ended(&mut self, owner: Owner, at: usize, when: When, cast: Cast, effects: &mut Effects) {
        let Some(hash) = &mut self.hash else { return };
        let Some(reader) = hash.readers.get_mut(&owner) else { return };
        reader.holds.end(at);
        self.hold_keys.remove(&(owner, reader.count));
        reader.count -= 1;
        for (number, ends) in reader.holds.from(at, when).into_iter().enumerate() {
            if let Some(ends) = ends {
                self.hold_keys.insert((owner, at + 1 + number), ends);
            }
        }
        if reader.count == 0 {
            hash.readers.remove(&owner);
        }
        self.reader_left(owner, when.hi, cast, effects);
    }

    fn write_hold_ended(&mut self, at: usize, when: When, cast: Cast, effects: &mut Effects) {
        let Some(hash) = &mut self.hash else { return };
        let Some((owner, writer)) = hash.writer.as_mut() else { return };
        let owner = *owner;
        writer.holds.end(at);
        writer.count -= 1;
        if writer.count == 0 {
            self.writer_left(when.delayed(WAKES), Language::Rust, cast, effects);
        } else {
            hash.ends = hash.promised(owner, when).unwrap_or(hash.ends);
            self.shortened(effects);
        }
    }
}
