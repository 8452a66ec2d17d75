//! `1.6`: re-entry, renewal and partial release never shorten what a live hold was promised.
//!
//! The rule follows the holds of every lock. Once a lock's TTL or count may rightly differ from the recording it has
//! *departed*, and its entry, its messages and the results of its operations are reckoned from the holds instead, until
//! it is free on both sides.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::super::expect::{Expectation, ExpectedResult, Seen};
use super::super::format::{Content, Entry, Field, Message, Range, RecordedError, Step, Ttl};
use super::super::names::Names;
use super::super::snapshot::{FoundContent, Snapshot};
use super::holds::{Held, Lock, Owner, Passed, Released, Span};
use super::{Ended, Facts, is_granted};
use crate::channel_of;

/// The longest time from a grant in Redis until the replay hears of it.
const GRANT_HEARD: i64 = 150;
/// The longest time a waiter takes to notice that a lock has freed itself.
const NOTICED: i64 = 500;

/// What the rule knows of a scenario so far.
#[derive(Debug)]
pub(super) struct Reentry {
    watchdog: i64,
    locks: BTreeMap<String, State>,
    /// The lease Redisson's lock objects remember, by client, name and instance: a hold without a lease gets it.
    remembered: BTreeMap<Object, i64>,
    pending: BTreeMap<String, Pending>,
    /// The keyspace as recorded after the step before.
    recorded: BTreeMap<String, Entry>,
    /// What the step last observed must show.
    verdict: Verdict,
}

type Object = (String, String, Option<String>);

#[derive(Debug)]
struct State {
    lock: Lock,
    departed: bool,
    /// Taken by its present owner in the step last observed.
    taken_anew: bool,
}

/// An acquire under way.
#[derive(Clone, Debug)]
struct Pending {
    key: String,
    object: Object,
    owner: Owner,
    lease: Option<i64>,
    granted: bool,
}

/// What differs from the recording in one step, apart from the keyspace.
#[derive(Debug, Default)]
struct Verdict {
    result: Option<ExpectedResult>,
    /// Messages on the channels of departed locks, instead of those recorded.
    published: BTreeMap<String, usize>,
    awaited_departed: bool,
    behind: i64,
    read: Option<Span>,
}

impl Reentry {
    pub(super) fn new(watchdog: i64) -> Self {
        Self {
            watchdog,
            locks: BTreeMap::new(),
            remembered: BTreeMap::new(),
            pending: BTreeMap::new(),
            recorded: BTreeMap::new(),
            verdict: Verdict::default(),
        }
    }

    pub(super) fn observe(&mut self, facts: &Facts<'_>) {
        self.locks.values_mut().for_each(|state| state.taken_anew = false);
        self.verdict = Verdict { behind: facts.behind, read: Some(facts.read), ..Verdict::default() };
        let (before, after): (Vec<_>, Vec<_>) = facts.ended.iter().partition(|ended| ended.at < facts.asked.lo);
        before.into_iter().for_each(|ended| self.ended(ended));
        self.operation(facts);
        after.into_iter().for_each(|ended| self.ended(ended));
        self.awaited(facts);
        self.time_passes(facts);
        self.touched_from_outside(facts);
    }

    pub(super) fn adjust(&self, expected: &mut Expectation) {
        let verdict = &self.verdict;
        if let Some(result) = &verdict.result
            && *result != expected.result
        {
            expected.result = result.clone();
            expected.elapsed = None;
        }
        if verdict.awaited_departed {
            expected.elapsed = None;
        }
        for (channel, count) in &verdict.published {
            expected.published.retain(|message| message.channel != *channel);
            let message = Message { channel: channel.clone(), payload: "0".to_owned() };
            expected.published.extend(std::iter::repeat_n(message, *count));
        }
        let Some(read) = verdict.read else { return };
        for (key, state) in self.locks.iter().filter(|(_, state)| state.departed) {
            match state.lock.held(read, verdict.behind) {
                Some(held) => {
                    expected.keyspace.insert(key.clone(), entry(&held));
                }
                None => {
                    expected.keyspace.remove(key);
                }
            }
        }
    }

    /// The step passed: locks that have not departed are as recorded, and those that are free on both sides, or were taken
    /// anew on both sides, are back.
    pub(super) fn passed(&mut self, step: &Step, seen: &Seen, names: &Names) {
        for (key, state) in &mut self.locks {
            match state.lock.owner().cloned() {
                Some(owner) if !state.departed => state.lock.truncate(found_count(seen, names, key, &owner)),
                Some(owner) => {
                    let before = recorded_count(&self.recorded, key, &owner);
                    let anew = before == 0 && recorded_count(&step.keyspace, key, &owner) == 1;
                    state.departed = !(anew && state.taken_anew && state.lock.count() == 1);
                }
                None => state.departed &= step.keyspace.contains_key(key),
            }
        }
        self.recorded.clone_from(&step.keyspace);
        self.locks.retain(|_, state| state.departed || state.lock.count() > 0);
    }

    fn operation(&mut self, facts: &Facts<'_>) {
        let step = facts.step;
        if step.op == "shutdown"
            && let Some(client) = &step.client
        {
            self.pending.retain(|_, pending| pending.owner.client != *client);
            let theirs = |state: &&mut State| state.lock.owner().is_some_and(|owner| owner.client == *client);
            self.locks.values_mut().filter(theirs).for_each(|state| state.lock.orphan(facts.asked));
            return;
        }
        let (Some("lock"), Some(key), Some(client)) = (step.object.as_deref(), &step.key, &step.client) else { return };
        let owner = Owner { client: client.clone(), thread: step.thread.unwrap_or_default() };
        let object = (client.clone(), key.clone(), step.instance.clone());
        let lease = step.ms("lease_ms").filter(|lease| *lease > 0);
        let state = self.locks.entry(key.clone()).or_insert_with(|| State::new(self.watchdog));
        state.lock.pass(facts.asked, None);
        let certain = state.lock.is_certain(facts.asked);
        if let Some(handle) = step.starts_handle() {
            let pending = Pending { key: key.clone(), object, owner, lease, granted: false };
            self.pending.insert(handle.to_owned(), pending);
            return;
        }
        if state.departed {
            self.verdict.result = state.predict(step, &owner, facts);
            self.verdict.published.insert(channel_of(key), 0);
        }
        let Some(result) = &facts.seen.result else { return };
        if is_granted(&step.op, result) {
            let heard = Span { lo: facts.asked.lo.max(facts.asked.hi - GRANT_HEARD), hi: facts.asked.hi };
            self.grant(key, object, owner, lease, heard);
            return;
        }
        let freed = match (step.op.as_str(), result) {
            ("unlock", Ok(_)) => {
                let released = state.lock.release(&owner, facts.asked);
                if released != Released::Partly {
                    self.remembered.remove(&object);
                }
                // What the rule cannot know yet is decided by what is left in Redis.
                released == Released::Fully || (!certain && found_count(facts.seen, facts.names, key, &owner) == 0)
            }
            ("unlock", Err(_)) => {
                self.remembered.remove(&object);
                false
            }
            ("forceUnlock" | "delete", Ok(Value::Bool(true))) => {
                self.remembered.remove(&object);
                true
            }
            _ => return,
        };
        if freed {
            state.lock.clear();
            self.verdict.published.entry(channel_of(key)).and_modify(|count| *count += 1);
        }
    }

    fn grant(&mut self, key: &str, object: Object, owner: Owner, lease: Option<i64>, at: Span) {
        let leaks = lease.is_none() && self.remembered.get(&object).is_some_and(|lease| *lease != self.watchdog);
        if let Some(lease) = lease {
            self.remembered.insert(object, lease);
        }
        let state = self.locks.entry(key.to_owned()).or_insert_with(|| State::new(self.watchdog));
        state.lock.acquire(owner, lease, at);
        state.taken_anew = !leaks && state.lock.count() == 1;
        state.departed |= !state.taken_anew;
    }

    /// An acquire under way has ended.
    fn ended(&mut self, ended: &Ended) {
        let Some(pending) = self.pending.get_mut(&ended.handle) else { return };
        if !ended.granted || std::mem::replace(&mut pending.granted, true) {
            return;
        }
        let pending = pending.clone();
        let at = Span { lo: ended.at - GRANT_HEARD, hi: ended.at };
        if let Some(state) = self.locks.get_mut(&pending.key) {
            state.lock.pass(at, None);
            let busy = state.lock.owner().is_some_and(|owner| *owner != pending.owner) && state.lock.is_certain(at);
            if state.departed && busy {
                // Granted while another holds: no result is right.
                self.verdict.result = Some(ExpectedResult::None);
                return;
            }
        }
        self.grant(&pending.key, pending.object, pending.owner, pending.lease, at);
    }

    /// An `await`: a wait for a departed lock may rightly end otherwise than recorded, and at another time.
    fn awaited(&mut self, facts: &Facts<'_>) {
        let pending = facts.step.awaits_handle().and_then(|handle| self.pending.remove(handle));
        let Some(pending) = pending else { return };
        let Some(state) = self.locks.get(&pending.key).filter(|state| state.departed) else { return };
        self.verdict.awaited_departed = true;
        let gave_up = matches!(facts.seen.result, Some(Ok(Value::Bool(false))));
        let busy = state.lock.owner().is_some_and(|owner| *owner != pending.owner);
        let free = pending.granted && state.lock.owner() == Some(&pending.owner);
        if gave_up && busy {
            self.verdict.result = Some(ExpectedResult::Value(false.into()));
        } else if free && facts.seen.result == Some(Ok(true.into())) {
            self.verdict.result = Some(ExpectedResult::Value(true.into()));
        }
    }

    fn time_passes(&mut self, facts: &Facts<'_>) {
        for (key, state) in &mut self.locks {
            let Some(owner) = state.lock.owner() else { continue };
            let found = found_count(facts.seen, facts.names, key, owner);
            if state.lock.pass(facts.read, Some(found)) == Passed::GivenBack {
                state.departed = true;
                *self.verdict.published.entry(channel_of(key)).or_default() += 1;
            }
        }
        // A waiter may hold already although its answer is still on its way.
        for pending in self.pending.values_mut().filter(|pending| !pending.granted) {
            let Some(state) = self.locks.get_mut(&pending.key) else { continue };
            let found = found_count(facts.seen, facts.names, &pending.key, &pending.owner);
            if state.departed && state.lock.count() == 0 && found > 0 {
                pending.granted = true;
                let at = Span { lo: facts.read.lo - GRANT_HEARD, hi: facts.read.hi };
                state.lock.acquire(pending.owner.clone(), pending.lease, at);
                state.taken_anew = true;
            }
        }
    }

    /// Plain commands on the key of a lock: what they left is where the reckoning goes on.
    fn touched_from_outside(&mut self, facts: &Facts<'_>) {
        let step = facts.step;
        let absent = matches!(step.op.as_str(), "expire" | "clearExpire" | "delete") && step.object.is_some();
        let words: Vec<&str> = if step.op == "raw" { raw_words(step).collect() } else { Vec::new() };
        for (key, state) in &mut self.locks {
            let touched = words.contains(&key.as_str()) || (absent && step.key.as_ref() == Some(key));
            let Some(owner) = state.lock.owner().filter(|_| touched).cloned() else { continue };
            let count = found_count(facts.seen, facts.names, key, &owner);
            state.lock.truncate(count);
            if count > 0 {
                let left = pttl(&facts.seen.snapshot, key).filter(|left| *left >= 0);
                state.departed |= state.lock.ttl_was_set(left, facts.read);
            }
        }
    }
}

impl State {
    fn new(watchdog: i64) -> Self {
        Self { lock: Lock::free(watchdog), departed: false, taken_anew: false }
    }

    /// The result of an operation on a departed lock; none when the recorded one stands or either would be right.
    fn predict(&self, step: &Step, owner: &Owner, facts: &Facts<'_>) -> Option<ExpectedResult> {
        if !self.lock.is_certain(facts.asked) {
            let seen = facts.seen.result.as_ref()?;
            let not_owner = RecordedError::of("IllegalMonitorStateException");
            return Some(match seen {
                Ok(value) => ExpectedResult::Value(value.clone()),
                Err(_) => ExpectedResult::Error(not_owner),
            });
        }
        let count = self.lock.count();
        let held_by =
            |thread: i64| self.lock.owner() == Some(&Owner { client: owner.client.clone(), thread }) && count > 0;
        let mine = held_by(owner.thread);
        let value: Value = match step.op.as_str() {
            "tryLock" => return self.predict_try(step, mine, facts.asked),
            "unlock" if !mine => {
                return Some(ExpectedResult::Error(RecordedError::of("IllegalMonitorStateException")));
            }
            "unlock" => Value::Null,
            "forceUnlock" | "delete" | "isLocked" => (count > 0).into(),
            "isHeldByThread" => held_by(step.ms("thread")?).into(),
            "isHeldByCurrentThread" => mine.into(),
            "getHoldCount" => if mine { count } else { 0 }.into(),
            "remainTimeToLive" => match self.lock.held(facts.asked, facts.behind).map(|held| held.pttl) {
                None => (-2).into(),
                Some(None) => (-1).into(),
                Some(Some(Range { min, max })) => json!({ "ms": [min, max] }),
            },
            _ => return None,
        };
        Some(ExpectedResult::Value(value))
    }

    fn predict_try(&self, step: &Step, mine: bool, asked: Span) -> Option<ExpectedResult> {
        let granted = |granted: bool| Some(ExpectedResult::Value(granted.into()));
        if mine || self.lock.count() == 0 {
            return granted(true);
        }
        let gives_up = asked.lo.saturating_add(step.ms("wait_ms").unwrap_or_default().max(0));
        match self.lock.frees_itself() {
            None => granted(false),
            Some(free) if gives_up < free.lo => granted(false),
            Some(free) if gives_up > free.hi + NOTICED => granted(true),
            Some(_) => None,
        }
    }
}

/// The words of a `raw` command that are texts.
pub(super) fn raw_words(step: &Step) -> impl Iterator<Item = &str> {
    step.args.get("cmd").and_then(Value::as_array).into_iter().flatten().skip(1).filter_map(Value::as_str)
}

fn entry(held: &Held) -> Entry {
    let field = field(&held.owner);
    let value = Content::Hash(BTreeMap::from([(field, Field::Text(held.count.to_string()))]));
    Entry { value, ttl: held.pttl.map_or(Ttl::Never, Ttl::Reckoned) }
}

/// As the vectors write an owner.
fn field(owner: &Owner) -> String {
    format!("${}:{}", owner.client, owner.thread)
}

fn recorded_count(keyspace: &BTreeMap<String, Entry>, key: &str, owner: &Owner) -> usize {
    let Some(Content::Hash(fields)) = keyspace.get(key).map(|entry| &entry.value) else { return 0 };
    match fields.get(&field(owner)) {
        Some(Field::Text(count)) => count.parse().unwrap_or(0),
        _ => 0,
    }
}

fn found_count(seen: &Seen, names: &Names, key: &str, owner: &Owner) -> usize {
    let found = seen.snapshot.get(key.as_bytes()).map(|found| &found.content);
    let (Some(FoundContent::Hash(fields)), Ok(id)) = (found, names.id(&owner.client)) else { return 0 };
    let count = fields.get(format!("{id}:{}", owner.thread).as_bytes());
    count.and_then(|count| std::str::from_utf8(count).ok()?.parse().ok()).unwrap_or(0)
}

fn pttl(snapshot: &Snapshot, key: &str) -> Option<i64> {
    snapshot.get(key.as_bytes()).map(|found| found.pttl)
}

#[cfg(test)]
mod tests;
