//! When something happens by itself: leases that end, waits that are given up, waiters that are woken.
//!
//! Two processes never act at the same millisecond, so nothing may depend on who comes first within one. The forecast
//! follows what each side of a run must be doing, closely enough to say *when* something may change without a step that
//! does it. The planner keeps every step and every reading of the keyspace clear of those times, and does not plan what
//! cannot be told in advance (two waiters after one lock, say). Nothing is judged by the forecast: what is right is what
//! Redisson does when it is run.

mod exclusive;
mod read_write;
mod waiting;
mod when;

use std::collections::BTreeMap;

use super::call::{CLIENTS, Call, Owner};
use super::family::Family;
use exclusive::Exclusive;
use read_write::ReadWrite;

pub(crate) use when::When;

/// How long Redis keeps a hold that the watchdog renews. Long enough that no renewal falls into a run: when Redisson's
/// comes depends on when the process took its first lock ever, and our first one comes at a random point of the period.
pub(crate) const WATCHDOG_MS: i64 = 600_000_000;
/// How long a waiter without a bound counts as alive in a fair queue. It never passes within a round.
pub(crate) const PATIENCE_MS: i64 = 60_000;
/// A waiter that was told, or whose time has come, has asked Redis by then.
const WAKES: i64 = 40;
/// The same for one that asks again and again: its longest pause and the way to Redis.
const SPINS: i64 = 180;
/// Events of one lock that are closer than this could come in either order.
const APART: i64 = 160;

/// The language of a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Language {
    Java,
    Rust,
}

/// The language of each client of a side.
pub(crate) type Cast = [Language; CLIENTS.len()];

/// One side of a run.
#[derive(Clone, Debug)]
pub(crate) struct Forecast {
    cast: Cast,
    objects: BTreeMap<String, Object>,
    dead: [bool; CLIENTS.len()],
    /// Calls that have ended by themselves, by the number of the step that began them.
    ended: BTreeMap<usize, Ended>,
    trouble: Option<&'static str>,
}

/// All there is under one name.
#[derive(Clone, Debug)]
enum Object {
    Exclusive(Exclusive),
    ReadWrite(ReadWrite),
}

/// The end of a call that had to wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Ended {
    pub(crate) when: When,
    pub(crate) granted: bool,
}

/// What becomes of a call at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Begun {
    /// It has its answer.
    Answered,
    Waits,
}

/// What calls and time do to an object, apart from its own state.
#[derive(Debug, Default)]
struct Effects {
    ended: Vec<(usize, Ended)>,
    /// Something that cannot be told in advance.
    trouble: Option<&'static str>,
    /// By when those who were woken have done what they do.
    quiet: Option<i64>,
}

impl Effects {
    fn trouble(&mut self, what: &'static str) {
        self.trouble.get_or_insert(what);
    }

    fn end(&mut self, id: usize, when: When, granted: bool) {
        self.ended.push((id, Ended { when, granted }));
        self.quiet = self.quiet.max(Some(when.hi));
    }
}

/// Who holds what under a name, as the planner needs to know it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct View {
    pub(crate) holders: Vec<Owner>,
    /// The holders in this list hold exclusively, the others share.
    pub(crate) writers: Vec<Owner>,
    pub(crate) waiters: usize,
    /// Members of the queue whose clients are gone.
    pub(crate) dead_in_queue: usize,
    /// When the key ends by itself.
    pub(crate) ends: Option<When>,
}

impl Forecast {
    pub(crate) fn new(cast: Cast) -> Self {
        Self { cast, objects: BTreeMap::new(), dead: [false; CLIENTS.len()], ended: BTreeMap::new(), trouble: None }
    }

    pub(crate) fn add(&mut self, name: &str, family: &Family) {
        let object = match family.shape {
            super::family::Shape::Exclusive(shape) => Object::Exclusive(Exclusive::new(shape)),
            super::family::Shape::ReadWrite => Object::ReadWrite(ReadWrite::default()),
        };
        self.objects.insert(name.to_owned(), object);
    }

    /// Why what was done so far cannot be told in advance.
    pub(crate) fn trouble(&self) -> Option<&'static str> {
        self.trouble
    }

    /// A call at this time; `id` is the number of its step. Says also by when those it woke are quiet again.
    pub(crate) fn call(&mut self, id: usize, call: &Call, at: i64) -> (Begun, i64) {
        let mut effects = Effects::default();
        let cast = self.cast;
        let begun = match self.objects.get_mut(&call.name) {
            Some(Object::Exclusive(lock)) => lock.call(id, call, at, cast, &mut effects),
            Some(Object::ReadWrite(lock)) => lock.call(id, call, at, cast, &mut effects),
            None => Begun::Answered,
        };
        (begun, self.take(effects).unwrap_or(at))
    }

    /// A plain command on the key of this name.
    pub(crate) fn raw(&mut self, name: &str, command: &[String], at: i64) -> i64 {
        let mut effects = Effects::default();
        let words: Vec<&str> = command.iter().map(String::as_str).collect();
        let touch = match words.as_slice() {
            ["PEXPIRE", key, ms] if *key == name => ms.parse().ok().map(Touch::Expire),
            ["DEL", keys @ ..] => Some(Touch::Delete { main: keys.contains(&name), others: keys.len() > 1 }),
            _ => None,
        };
        match (self.objects.get_mut(name), touch) {
            (Some(Object::Exclusive(lock)), Some(touch)) => lock.touch(touch, at, &mut effects),
            (Some(Object::ReadWrite(lock)), Some(touch)) => lock.touch(touch, at, &mut effects),
            _ => effects.trouble("a command that the forecast does not know"),
        }
        self.take(effects).unwrap_or(at)
    }

    /// Somebody who waits for this name gives up.
    pub(crate) fn cancel(&mut self, id: usize, name: &str) {
        match self.objects.get_mut(name) {
            Some(Object::Exclusive(lock)) => lock.cancel(id),
            Some(Object::ReadWrite(lock)) => lock.cancel(id),
            None => {}
        }
    }

    pub(crate) fn kill(&mut self, client: usize) {
        self.dead[client] = true;
        for object in self.objects.values_mut() {
            match object {
                Object::Exclusive(lock) => lock.kill(client),
                Object::ReadWrite(lock) => lock.kill(client),
            }
        }
    }

    /// The next thing that happens by itself, and under which name.
    pub(crate) fn next(&self) -> Option<(&str, When)> {
        let events = self.objects.iter().filter_map(|(name, object)| {
            let when = match object {
                Object::Exclusive(lock) => lock.next(),
                Object::ReadWrite(lock) => lock.next(),
            };
            Some((name.as_str(), when?))
        });
        events.min_by_key(|(_, when)| *when)
    }

    /// Lets everything happen that begins before this time; says by when all of it is over.
    pub(crate) fn advance(&mut self, to: i64) -> i64 {
        let mut over = i64::MIN;
        // Every event takes something away, but a mistake here must not hang the planner.
        for _ in 0..1_000 {
            let Some((name, when)) = self.next().filter(|(_, when)| when.lo <= to) else { return over };
            let name = name.to_owned();
            over = over.max(when.hi);
            let (mut effects, cast) = (Effects::default(), self.cast);
            match self.objects.get_mut(&name) {
                Some(Object::Exclusive(lock)) => lock.happen(cast, &mut effects),
                Some(Object::ReadWrite(lock)) => lock.happen(cast, &mut effects),
                None => {}
            }
            over = self.take(effects).map_or(over, |quiet| over.max(quiet));
        }
        self.trouble.get_or_insert("endless events");
        over
    }

    /// The end of the call that this step began, if it has come.
    pub(crate) fn ended(&self, id: usize) -> Option<Ended> {
        self.ended.get(&id).copied()
    }

    pub(crate) fn view(&self, name: &str) -> View {
        match self.objects.get(name) {
            Some(Object::Exclusive(lock)) => lock.view(),
            Some(Object::ReadWrite(lock)) => lock.view(),
            None => View::default(),
        }
    }

    /// Whether Redis holds the same under this name on both sides, and the same calls wait for it.
    pub(crate) fn is_like(&self, other: &Self, name: &str) -> bool {
        match (self.objects.get(name), other.objects.get(name)) {
            (Some(Object::Exclusive(one)), Some(Object::Exclusive(other))) => one.is_like(other),
            (Some(Object::ReadWrite(one)), Some(Object::ReadWrite(other))) => one.is_like(other),
            _ => true,
        }
    }

    fn take(&mut self, effects: Effects) -> Option<i64> {
        self.ended.extend(effects.ended);
        if let Some(trouble) = effects.trouble {
            self.trouble.get_or_insert(trouble);
        }
        effects.quiet
    }
}

/// What a plain command does to a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Touch {
    Expire(i64),
    /// The lock's own key, and perhaps those beside it.
    Delete {
        main: bool,
        others: bool,
    },
}

/// Which language this owner's client speaks.
fn language(cast: Cast, owner: Owner) -> Language {
    cast[owner.client]
}

#[cfg(test)]
mod tests;
