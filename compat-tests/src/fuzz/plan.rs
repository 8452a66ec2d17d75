//! Sequences: random, but the same for the same seed.
//!
//! A sequence is a row of *rounds*. A round has a few names of its own, begins and ends with an empty database, and is short
//! enough that no lease of [`LONG_MS`] ends in it. Every step has its time, and every time keeps clear of whatever
//! happens by itself (`forecast`), so that the result of a step is never a race: a run that is on time tells the truth, and
//! one that is late is run again.

mod ending;

use std::collections::{BTreeMap, BTreeSet};

use super::call::{CLIENTS, Call, Op, Owner, Step};
use super::family::{FAMILIES, Family, Scene, owners};
use super::forecast::{Begun, Cast, Forecast, Language};
use super::rng::Rng;

/// A lease from here on does not end within a round.
pub(crate) const LONG_MS: i64 = 10_000;
/// A step must be done so long before something happens by itself.
const BEFORE: i64 = 120;
/// A step, or a reading, comes so long after it.
const AFTER: i64 = 120;
/// From a quick call to the reading of the keyspace.
const QUICK: i64 = 25;
/// A call in the background waits by then.
const SETTLED: i64 = 100;
/// From the reading to the next step.
const READING: i64 = 12;
/// No step is longer.
const LONGEST_STEP: i64 = 2_500;
/// No new idea after this time in a round.
const ROUND_ENDS: i64 = 7_000;
/// Fewer than the others, as each costs the start of a process.
const ROUNDS_WITH_A_CRASH: usize = 20;
/// How often somebody who waits gives up, if anybody does.
const CANCELS: usize = 8;
/// In the others both sides must be alike all the time; where they need not, rules say what is right.
const ROUNDS_WITH_DEPARTURES: usize = 40;

/// How sequences are made.
#[derive(Clone, Debug)]
pub(crate) struct Settings {
    pub(crate) families: Vec<&'static Family>,
    /// Who speaks what on the sides that are compared with the one where all is Java.
    pub(crate) casts: Vec<Cast>,
    /// Whether sides may differ where a rule reckons with it.
    pub(crate) departures: bool,
}

/// A part of a sequence that stands alone.
#[derive(Clone, Debug)]
pub(crate) struct Round {
    pub(crate) number: usize,
    pub(crate) names: Vec<(String, &'static Family)>,
    pub(crate) steps: Vec<Step>,
    /// Something is left that only the end of the processes ends.
    pub(crate) must_restart: bool,
    /// All times are so many times as long as planned.
    pub(crate) stretch: i64,
}

/// The rounds of a seed, with so many steps altogether.
pub(crate) fn rounds(seed: u64, steps: usize, settings: &Settings) -> Vec<Round> {
    let mut rounds = Vec::new();
    let mut left = steps;
    while left > 0 {
        let mut rng = Rng::part(seed, u64::try_from(rounds.len()).unwrap_or(u64::MAX));
        let round = round(&mut rng, rounds.len(), left, settings);
        left = left.saturating_sub(round.steps.len().max(1));
        rounds.push(round);
    }
    rounds
}

const NAMES: [&str; 14] = [
    "plain",
    "with space",
    "a:b:c",
    "{tag}:rest",
    "mid{dle}tag",
    "{{double}}",
    "}odd{",
    "Schlüssel",
    "ключ:1",
    "鍵",
    "🔒{x}",
    "glob*?[a]",
    "quote\"back\\slash",
    "per%20cent+plus",
];

fn round(rng: &mut Rng, number: usize, left: usize, settings: &Settings) -> Round {
    let mut names = Vec::new();
    for _ in 0..rng.between(2, 4) {
        let (Some(name), Some(family)) = (rng.pick(&NAMES), rng.pick(&settings.families)) else { continue };
        let name = format!("{name} {number}");
        if names.iter().all(|(other, _)| *other != name) {
            names.push((name, *family));
        }
    }
    let wanted = left.min(usize::try_from(rng.between(25, 45)).unwrap_or(20));
    let crash = rng.chance(ROUNDS_WITH_A_CRASH).then(|| rng.below(wanted.max(1)));
    let departures = settings.departures && rng.chance(ROUNDS_WITH_DEPARTURES);
    let mut world = World::new(&names, &settings.casts, departures);
    let mut idle = 0;
    while world.steps.len() + world.cleaning() < wanted && world.now < ROUND_ENDS && idle < 3 {
        if crash.is_some_and(|at| world.steps.len() >= at && world.alive == [true; CLIENTS.len()]) {
            // Not every client can go: somebody may wait behind it.
            let client = rng.below(CLIENTS.len());
            if world.step(Op::Kill(client)).is_ok() {
                continue;
            }
        }
        let done = (0..20).any(|_| world.propose(rng).is_some_and(|op| world.step(op).is_ok()));
        idle = if done { 0 } else { idle + 1 };
        if !done && world.let_time_pass().is_err() {
            break;
        }
    }
    let must_restart = !world.clean_up();
    Round { number, names, steps: world.steps, must_restart, stretch: 1 }
}

/// The same steps again, some left out. `None` when it cannot be told any more what comes of them.
pub(crate) fn without(round: &Round, settings: &Settings, keep: impl Fn(&Step) -> bool) -> Option<Round> {
    let mut world = World::new(&round.names, &settings.casts, settings.departures);
    for step in round.steps.iter().filter(|step| keep(step)) {
        match &step.op {
            Op::Await(started) if !world.unawaited.contains(started) => {}
            Op::Cancel(started) if !world.waiting.contains_key(started) => {}
            Op::Sleep => world.sleep_until(step.at, step.ends, step.number).ok()?,
            op => world.apply(op.clone(), step.at, step.number).ok()?,
        }
    }
    let named = |name: &str| world.steps.iter().any(|step| step.name() == Some(name));
    let names = round.names.iter().filter(|(name, _)| named(name)).cloned().collect();
    let must_restart = !world.is_over();
    Some(Round { number: round.number, names, steps: world.steps, must_restart, stretch: 1 })
}

/// The same steps on a machine that is slower: everything takes so many times as long, leases and waits as well.
pub(crate) fn stretched(round: &Round, stretch: i64) -> Round {
    let mut round = Round { stretch: round.stretch * stretch, ..round.clone() };
    for step in &mut round.steps {
        for time in [&mut step.at, &mut step.ends, &mut step.reads] {
            *time *= stretch;
        }
        match &mut step.op {
            Op::Call(call) => {
                call.args.times_mut().for_each(|ms| *ms *= stretch);
            }
            Op::Raw { command, .. } if command[0] == "PEXPIRE" => {
                if let Ok(ms) = command[2].parse::<i64>() {
                    command[2] = (ms * stretch).to_string();
                }
            }
            _ => {}
        }
    }
    round
}

/// The same steps on other names.
pub(crate) fn renamed(round: &Round, salt: usize) -> Round {
    let mut round = round.clone();
    for (name, _) in &mut round.names {
        let new = format!("{name}~{salt}");
        let old = std::mem::replace(name, new.clone());
        for step in &mut round.steps {
            match &mut step.op {
                Op::Call(call) if call.name == old => call.name.clone_from(&new),
                Op::Raw { name, command } if *name == old => {
                    command.iter_mut().for_each(|word| *word = word.replace(old.as_str(), &new));
                    name.clone_from(&new);
                }
                _ => {}
            }
        }
    }
    round
}

/// What has been planned so far, and what comes of it.
#[derive(Clone, Debug)]
struct World {
    /// The first is the one where all is Java.
    forecasts: Vec<Forecast>,
    names: Vec<(String, &'static Family)>,
    now: i64,
    alive: [bool; CLIENTS.len()],
    departures: bool,
    /// Calls in the background, by their step.
    waiting: BTreeMap<usize, Call>,
    /// Those that have ended since and were not awaited yet.
    unawaited: BTreeSet<usize>,
    steps: Vec<Step>,
}

type Unsuitable = &'static str;

impl World {
    fn new(names: &[(String, &'static Family)], casts: &[Cast], departures: bool) -> Self {
        let casts = [[Language::Java; CLIENTS.len()]].into_iter().chain(casts.iter().copied());
        let mut forecasts: Vec<Forecast> = casts.map(Forecast::new).collect();
        for forecast in &mut forecasts {
            names.iter().for_each(|(name, family)| forecast.add(name, family));
        }
        let (waiting, unawaited) = (BTreeMap::new(), BTreeSet::new());
        let alive = [true; CLIENTS.len()];
        Self { forecasts, names: names.to_vec(), now: 0, alive, departures, waiting, unawaited, steps: Vec::new() }
    }

    fn propose(&self, rng: &mut Rng) -> Option<Op> {
        if let Some(started) = self.unawaited.first().filter(|_| rng.chance(60)) {
            return Some(Op::Await(*started));
        }
        if rng.chance(CANCELS) {
            let waiting: Vec<usize> = self.waiting.keys().filter(|id| self.can_cancel(**id)).copied().collect();
            return Some(Op::Cancel(*rng.pick(&waiting)?));
        }
        let (name, family) = rng.pick(&self.names)?;
        let idle = self.idle();
        let scene = Scene { family, name, view: self.forecasts[0].view(name), idle: &idle };
        family.propose(rng, &scene)
    }

    /// Redisson's `lock` does not hear it, and of a fair lock it leaves its waiter in the queue.
    fn can_cancel(&self, started: usize) -> bool {
        let Some(call) = self.waiting.get(&started) else { return false };
        let family = self.names.iter().find(|(name, _)| *name == call.name).map(|(_, family)| *family);
        call.op != "lock" && family.is_some_and(|family| family.can_cancel)
    }

    fn idle(&self) -> Vec<Owner> {
        let is_busy = |owner: &Owner| self.waiting.values().any(|waiting| waiting.owner == *owner);
        owners().into_iter().filter(|owner| self.alive[owner.client] && !is_busy(owner)).collect()
    }

    /// Does it as soon as nothing is about to happen by itself; nothing is changed when it is not suitable.
    fn step(&mut self, op: Op) -> Result<(), Unsuitable> {
        let mut tried = self.clone();
        let mut at = tried.now;
        while let Some((_, when)) = tried.soonest().filter(|(_, when)| when.lo < at + BEFORE) {
            let over = tried.advance(when.lo);
            at = at.max(when.hi.max(over) + AFTER);
        }
        tried.apply(op, at, self.steps.last().map_or(0, |last| last.number + 1))?;
        *self = tried;
        Ok(())
    }

    /// Until the next thing has happened.
    fn let_time_pass(&mut self) -> Result<(), Unsuitable> {
        let mut tried = self.clone();
        let until = match tried.soonest() {
            Some((_, when)) if when.lo < tried.now + LONGEST_STEP => when.hi,
            _ => tried.now + 50,
        };
        let number = tried.steps.last().map_or(0, |last| last.number + 1);
        tried.sleep_until(tried.now, until, number)?;
        *self = tried;
        Ok(())
    }

    fn sleep_until(&mut self, at: i64, until: i64, number: usize) -> Result<(), Unsuitable> {
        self.advance(until);
        self.finish(Op::Sleep, at, until.max(at), until.max(at), number)
    }

    /// The operation at this very time.
    fn apply(&mut self, op: Op, at: i64, number: usize) -> Result<(), Unsuitable> {
        if at < self.now {
            return Err("there is no time left for it");
        }
        let over = self.advance(at);
        if over + AFTER > at || self.soonest().is_some_and(|(_, when)| when.lo < at + BEFORE) {
            return Err("something happens by itself at the same time");
        }
        match &op {
            Op::Call(call) => {
                let call = call.clone();
                self.call(&call, at, number)
            }
            Op::Await(started) => {
                if !self.unawaited.remove(started) {
                    return Err("nothing to await");
                }
                self.finish(op, at, at, at + QUICK, number)
            }
            Op::Cancel(started) => {
                let started = *started;
                if !self.can_cancel(started) {
                    return Err("a call that cannot be cancelled in Java");
                }
                let call = self.waiting.remove(&started).ok_or("nothing to cancel")?;
                self.forecasts.iter_mut().for_each(|forecast| forecast.cancel(started, &call.name));
                self.finish(op, at, at, at + SETTLED, number)
            }
            Op::Sleep => Err("a sleep is not applied"),
            Op::Raw { name, command } => {
                let quiet = self.forecasts.iter_mut().map(|forecast| forecast.raw(name, command, at)).max();
                self.finish(op.clone(), at, at, reading_after(at, quiet), number)
            }
            Op::Kill(client) => {
                let client = *client;
                self.alive[client] = false;
                self.forecasts.iter_mut().for_each(|forecast| forecast.kill(client));
                self.waiting.retain(|_, call| call.owner.client != client);
                let gone: Vec<usize> = self.steps.iter().filter(|step| is_of(step, client)).map(|s| s.number).collect();
                self.unawaited.retain(|started| !gone.contains(started));
                self.finish(op, at, at, at + SETTLED, number)
            }
        }
    }

    fn call(&mut self, call: &Call, at: i64, number: usize) -> Result<(), Unsuitable> {
        if !self.idle().contains(&call.owner) {
            return Err("its owner is gone or waits");
        }
        let mut quiet = None;
        let mut waits = Vec::new();
        for forecast in &mut self.forecasts {
            let (begun, by) = forecast.call(number, call, at);
            quiet = quiet.max(Some(by));
            waits.push(begun == Begun::Waits);
        }
        let mut call = call.clone();
        let any_waits = waits.contains(&true);
        if call.in_background && waits.contains(&false) {
            if any_waits {
                return Err("in the background on one side only");
            }
            call.in_background = false;
        }
        if !call.in_background && any_waits {
            let ends = self.until_answered(number, at, &waits)?;
            self.forecasts.iter_mut().for_each(|forecast| {
                forecast.advance(ends);
            });
            return self.finish(Op::Call(call), at, ends, ends + QUICK, number);
        }
        let mut reads = reading_after(at, quiet);
        if call.in_background {
            self.waiting.insert(number, call.clone());
            reads = reads.max(at + SETTLED);
        }
        self.finish(Op::Call(call), at, at, reads, number)
    }

    /// When a call that is waited for has ended on every side.
    fn until_answered(&mut self, number: usize, at: i64, waits: &[bool]) -> Result<i64, Unsuitable> {
        let mut ends = at;
        for (forecast, _) in self.forecasts.iter_mut().zip(waits).filter(|(_, waits)| **waits) {
            let ended = loop {
                if let Some(ended) = forecast.ended(number) {
                    break ended;
                }
                match forecast.next() {
                    Some((_, when)) if when.lo < at + LONGEST_STEP => forecast.advance(when.lo),
                    _ => return Err("a wait that does not end"),
                };
            };
            ends = ends.max(ended.when.hi);
        }
        Ok(ends)
    }

    /// The reading comes when nothing is about to happen; then everything must be as it can be told.
    fn finish(&mut self, op: Op, at: i64, ends: i64, reads: i64, number: usize) -> Result<(), Unsuitable> {
        let mut reads = reads;
        while let Some((_, when)) = self.soonest().filter(|(_, when)| when.lo < reads + BEFORE) {
            let over = self.advance(when.lo);
            reads = reads.max(when.hi.max(over) + AFTER);
            if reads > at + LONGEST_STEP {
                return Err("a step that is too long");
            }
        }
        if let Some(trouble) = self.forecasts.iter().find_map(Forecast::trouble) {
            return Err(trouble);
        }
        self.check_likeness()?;
        self.now = reads + READING;
        self.check_future()?;
        let ended: Vec<usize> = self.waiting.keys().copied().filter(|started| self.has_ended(*started)).collect();
        for started in ended {
            self.waiting.remove(&started);
            self.unawaited.insert(started);
        }
        self.steps.push(Step { number, op, at, ends, reads });
        Ok(())
    }

    /// Nothing is held and nobody waits.
    fn is_over(&self) -> bool {
        let over = |forecast: &Forecast, name: &str| {
            let view = forecast.view(name);
            view.holders.is_empty() && view.waiters == 0
        };
        self.forecasts.iter().all(|forecast| self.names.iter().all(|(name, _)| over(forecast, name)))
    }

    fn has_ended(&self, started: usize) -> bool {
        self.forecasts.iter().all(|forecast| forecast.ended(started).is_some())
    }

    /// Both sides must be alike, but where a rule reckons with the difference.
    fn check_likeness(&self) -> Result<(), Unsuitable> {
        let (java, others) = self.forecasts.split_first().ok_or("no side")?;
        let alike = |name: &str| others.iter().all(|other| other.is_like(java, name));
        let departs =
            self.names.iter().filter(|(_, family)| !(family.departs && self.departures)).any(|(name, _)| !alike(name));
        if departs { Err("sides that differ without a rule") } else { Ok(()) }
    }

    /// Nothing may go wrong if nothing is done from now on.
    fn check_future(&self) -> Result<(), Unsuitable> {
        let mut future = self.clone();
        while let Some((_, when)) = future.soonest().filter(|(_, when)| when.lo < self.now + LONG_MS - 500) {
            future.advance(when.hi);
            if let Some(trouble) = future.forecasts.iter().find_map(Forecast::trouble) {
                return Err(trouble);
            }
            future.check_likeness()?;
        }
        Ok(())
    }

    fn soonest(&self) -> Option<(&str, super::forecast::When)> {
        self.forecasts.iter().filter_map(Forecast::next).min_by_key(|(_, when)| *when)
    }

    fn advance(&mut self, to: i64) -> i64 {
        self.forecasts.iter_mut().map(|forecast| forecast.advance(to)).max().unwrap_or(i64::MIN)
    }
}

fn is_of(step: &Step, client: usize) -> bool {
    matches!(&step.op, Op::Call(call) if call.owner.client == client)
}

/// A quick call is read soon, unless it woke somebody.
fn reading_after(at: i64, quiet: Option<i64>) -> i64 {
    match quiet {
        Some(by) if by > at => by + AFTER,
        _ => at + QUICK,
    }
}

/// The families of these names that this Redisson has; all without names.
pub(crate) fn families(named: &[String], has: impl Fn((u32, u32)) -> bool) -> Vec<&'static Family> {
    let wanted = |family: &&Family| {
        named.is_empty() || named.iter().any(|name| family.name == name || family.kinds.contains(&name.as_str()))
    };
    FAMILIES.iter().filter(wanted).filter(|family| has(family.since)).collect()
}

#[cfg(test)]
mod tests;
