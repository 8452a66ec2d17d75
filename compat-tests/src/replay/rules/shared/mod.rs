//! Read/write locks.
//!
//! The holds of every such lock are followed, as those of locks with one owner are (`exclusive`): once a lock may rightly
//! differ from the recording it has departed, and is reckoned from the holds until both sides are alike again.

mod pair;
mod predict;
mod steps;

use std::collections::{BTreeMap, BTreeSet};

use super::super::expect::{Expectation, ExpectedResult};
use super::super::format::{Content, Entry, Field, Message, Ttl};
use super::super::snapshot::Snapshot;
use super::alike::alike;
use super::awaited::Awaited;
use super::holds::Span;
use super::view::View;
use super::{Facts, Rule, keys};
use pair::{Holder, Pair, Role};

/// What is known of a scenario so far.
#[derive(Debug)]
pub(super) struct Shared {
    watchdog: i64,
    /// Clients that are Redisson's.
    redisson: BTreeSet<String>,
    pairs: BTreeMap<String, State>,
    /// The lease Redisson's lock objects remember: a hold without a lease gets it.
    remembered: BTreeMap<Object, i64>,
    pending: BTreeMap<String, Pending>,
    /// The database after the step before, and when it was read.
    before: Snapshot,
    before_read: Span,
    /// What the step last observed must show.
    verdict: Verdict,
}

/// Client, role, name and instance.
type Object = (String, Role, String, Option<String>);

#[derive(Debug)]
struct State {
    pair: Pair,
    /// Why it may differ from the recording; none while it may not.
    causes: BTreeSet<Rule>,
    /// Holders whose holds Redisson mixes up.
    mixed: BTreeSet<Holder>,
    /// Messages the step last observed must show on its channel, if it has departed.
    published: Vec<Message>,
}

/// An acquire under way.
#[derive(Clone, Debug)]
struct Pending {
    key: String,
    acquire: Acquire,
    granted: bool,
    over: bool,
    /// It gave up, and rightly so.
    rightly: bool,
    /// Why the lock may have differed from the recording since it was begun.
    causes: BTreeSet<Rule>,
}

/// An acquire, whatever becomes of it.
#[derive(Clone, Debug)]
struct Acquire {
    /// By a client of this crate.
    ours: bool,
    op: String,
    object: Object,
    client: String,
    holder: Holder,
    lease: Option<i64>,
    wait: Option<i64>,
}

/// What differs from the recording in one step, apart from the keyspace.
#[derive(Debug, Default)]
struct Verdict {
    /// The lock this is about, and the result it must have.
    result: Option<(String, ExpectedResult)>,
    awaited: Awaited,
    /// What the keys must be.
    entries: BTreeMap<String, Entry>,
}

impl Shared {
    pub(super) fn new(watchdog: i64, redisson: BTreeSet<String>) -> Self {
        Self {
            watchdog,
            redisson,
            pairs: BTreeMap::new(),
            remembered: BTreeMap::new(),
            pending: BTreeMap::new(),
            before: Snapshot::new(),
            before_read: Span { lo: 0, hi: 0 },
            verdict: Verdict::default(),
        }
    }

    pub(super) fn observe(&mut self, facts: &Facts<'_>) {
        self.verdict = Verdict::default();
        for (key, state) in &mut self.pairs {
            state.published.clear();
            let writes = |pending: &Pending| {
                let acquire = &pending.acquire;
                let waits = !pending.granted && !pending.over;
                waits && pending.key == *key && acquire.holder.1 == Role::Write && acquire.ours
            };
            state.pair.writer_waits = self.pending.values().any(writes);
        }
        let (before, after): (Vec<_>, Vec<_>) = facts.ended.iter().partition(|ended| ended.at < facts.asked.lo);
        before.into_iter().for_each(|ended| self.ended(ended, facts));
        self.operation(facts);
        after.into_iter().for_each(|ended| self.ended(ended, facts));
        self.awaited(facts);
        self.touched_from_outside(facts);
        self.time_passes(facts);
        let view = View::new(&facts.seen.snapshot, facts.names);
        for (key, state) in &self.pairs {
            self.verdict.entries.extend(state.entries(key, &view, facts));
        }
        for pending in self.pending.values_mut() {
            if let Some(state) = self.pairs.get(&pending.key) {
                pending.causes.extend(&state.causes);
            }
        }
    }

    pub(super) fn adjust(&self, expected: &mut Expectation, without: Option<Rule>) {
        let departs = |key: &String| self.pairs.get(key).is_some_and(|state| state.departs(without));
        if let Some((key, result)) = &self.verdict.result
            && *result != expected.result
            && departs(key)
        {
            expected.result = result.clone();
            expected.elapsed = None;
        }
        self.verdict.awaited.adjust(expected, without);
        for key in self.pairs.keys().filter(|key| departs(key)) {
            expected.keyspace.retain(|name, _| !is_of(key, name));
            let own = self.verdict.entries.iter().filter(|(name, _)| is_of(key, name));
            expected.keyspace.extend(own.map(|(name, entry)| (name.clone(), entry.clone())));
            let channel = keys::pair_channel(key);
            expected.published.retain(|message| message.channel != channel);
            expected.published.extend(self.pairs[key].published.iter().cloned());
        }
    }

    /// The step passed: locks that look as recorded are back, unless Redisson still mixes something up.
    pub(super) fn passed(&mut self, facts: &Facts<'_>) {
        let view = View::new(&facts.seen.snapshot, facts.names);
        for (key, state) in &mut self.pairs {
            if state.causes.is_empty() {
                found_in(&mut state.pair, key, &view, facts.read);
            } else {
                state.pair.found(view.pttl(key), hold_keys(&view, key), facts.read);
            }
            state.mixed.retain(|(owner, role)| state.pair.count(owner, *role) > 0);
            if state.mixed.is_empty() && alike(facts, |name| is_of(key, name)) {
                state.causes.clear();
            }
        }
        self.pairs.retain(|_, state| !state.causes.is_empty() || !state.pair.is_free());
        self.before.clone_from(&facts.seen.snapshot);
        self.before_read = facts.read;
    }

    /// The state of the lock under this key, as it was left by the step before.
    fn state(&mut self, key: &str, facts: &Facts<'_>) -> &mut State {
        let view = View::new(&self.before, facts.names);
        let known = || {
            let mut pair = Pair::free(self.watchdog);
            found_in(&mut pair, key, &view, self.before_read);
            State { pair, causes: BTreeSet::new(), mixed: BTreeSet::new(), published: Vec::new() }
        };
        self.pairs.entry(key.to_owned()).or_insert_with(known)
    }
}

impl State {
    /// Whether it has departed although this rule is left out.
    fn departs(&self, without: Option<Rule>) -> bool {
        !self.causes.is_empty() && without.is_none_or(|rule| !self.causes.contains(&rule))
    }

    fn tell(&mut self, key: &str, payload: &str) {
        self.published.push(Message { channel: keys::pair_channel(key), payload: payload.to_owned() });
    }

    /// All keys of the lock, as they must be.
    fn entries(&self, key: &str, view: &View<'_>, facts: &Facts<'_>) -> Vec<(String, Entry)> {
        let mut entries = Vec::new();
        if !self.pair.is_free() {
            let mode = if self.pair.writer().is_some() { "write" } else { "read" };
            let counts = self.pair.holders().map(|(holder, count)| (field(holder), Field::Text(count.to_string())));
            let fields = counts.chain([("mode".to_owned(), Field::Text(mode.to_owned()))]).collect();
            let ttl = self.pair.ttl(facts.read, facts.behind).map_or(Ttl::Never, Ttl::Reckoned);
            entries.push((key.to_owned(), Entry { value: Content::Hash(fields), ttl }));
        }
        for (owner, number, range) in self.pair.hold_keys(facts.read, facts.behind) {
            let name = keys::hold_key(key, owner, number);
            // One that ends about now may be gone.
            if range.min > 0 || view.pttl(&name).is_some() {
                entries.push((name, Entry { value: Content::Text("1".to_owned()), ttl: Ttl::Reckoned(range) }));
            }
        }
        entries
    }
}

/// What is in Redis now is right, whoever put it there.
fn found_in(pair: &mut Pair, key: &str, view: &View<'_>, at: Span) {
    let found = holders(view, key);
    let known: Vec<Holder> = pair.holders().map(|(holder, _)| holder.clone()).collect();
    for holder in known.iter().chain(found.keys()) {
        pair.found_count(holder, found.get(holder).copied().unwrap_or(0));
    }
    pair.found(view.pttl(key), hold_keys(view, key), at);
}

/// Whether the key of this name belongs to the lock.
fn is_of(lock: &str, name: &str) -> bool {
    name == lock || number_of(lock, name).is_some()
}

/// Whose read hold this is the key of, and which one.
fn number_of(lock: &str, name: &str) -> Option<(String, usize)> {
    let (front, number) = name.rsplit_once(":rwlock_timeout:")?;
    let number = number.parse().ok()?;
    let (_, owner) = front.split_at_checked(keys::hold_key(lock, "", 0).rfind(":rwlock_timeout:")?)?;
    (keys::hold_key(lock, owner, number) == name).then(|| (owner.to_owned(), number))
}

fn field((owner, role): &Holder) -> String {
    match role {
        Role::Read => owner.clone(),
        Role::Write => format!("{owner}:write"),
    }
}

/// Who holds the lock in Redis, and how often.
fn holders(view: &View<'_>, key: &str) -> BTreeMap<Holder, usize> {
    let holder = |field: &str| match field.strip_suffix(":write") {
        Some(owner) => (owner.to_owned(), Role::Write),
        None => (field.to_owned(), Role::Read),
    };
    let fields = view.fields(key).into_iter().filter(|(field, _)| field != "mode");
    fields.filter_map(|(field, count)| Some((holder(&field), count.parse().ok()?))).collect()
}

/// The keys of read holds in Redis, and what they have left.
fn hold_keys(view: &View<'_>, key: &str) -> BTreeMap<(String, usize), i64> {
    let own = view.names().into_iter().filter_map(|name| Some((number_of(key, &name)?, view.pttl(&name)?)));
    own.collect()
}

#[cfg(test)]
mod tests;
