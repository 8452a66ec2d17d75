//! Locks with one owner at a time: plain, fair, fenced, spin and non-reentrant ones.
//!
//! The holds of every such lock are followed, and with fair locks the queue. Once a lock may rightly differ from the
//! recording it has *departed*, for reasons that are remembered, and its entries, its messages and the results of its
//! operations are reckoned from the holds instead, until both sides are alike again.

mod fence;
mod kind;
mod line;
mod predict;
mod queue;
mod steps;

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use super::super::expect::{Expectation, ExpectedResult};
use super::super::format::{Content, Entry, Field, Message, Step, Ttl};
use super::super::snapshot::Snapshot;
use super::alike::alike;
use super::awaited::Awaited;
use super::holds::{Held, Lock, Owner, Span};
use super::view::{View, recorded_count};
use super::{Facts, Rule, keys};
use fence::Fence;
use kind::Kind;
use queue::Queue;

/// What is known of a scenario so far.
#[derive(Debug)]
pub(super) struct Exclusive {
    watchdog: i64,
    /// How long a waiter without a bound counts as alive.
    patience: i64,
    /// Clients that are Redisson's.
    redisson: BTreeSet<String>,
    locks: BTreeMap<String, State>,
    /// The lease Redisson's lock objects remember: a hold without a lease gets it.
    remembered: BTreeMap<Object, i64>,
    pending: BTreeMap<String, Pending>,
    /// The keyspace as recorded after the step before.
    recorded: BTreeMap<String, Entry>,
    /// The database after it, and when it was read.
    before: Snapshot,
    before_read: Span,
    /// What the step last observed must show.
    verdict: Verdict,
}

/// Client, kind, name and instance.
type Object = (String, Kind, String, Option<String>);

#[derive(Debug)]
struct State {
    lock: Lock,
    /// Why it may differ from the recording; none while it may not.
    causes: BTreeSet<Rule>,
    /// Taken by its present owner in the step last observed.
    taken_anew: bool,
    queue: Queue,
    fence: Fence,
    /// Messages the step last observed must show on its channels, if it has departed.
    published: Vec<Message>,
}

/// An acquire under way.
#[derive(Clone, Debug)]
struct Pending {
    key: String,
    acquire: Acquire,
    granted: bool,
    over: bool,
    /// The token of the grant.
    token: Option<u64>,
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
    kind: Kind,
    op: String,
    object: Object,
    owner: Owner,
    lease: Option<i64>,
    wait: Option<i64>,
    /// How long it counts as alive in a queue.
    patience: i64,
    blocking: bool,
}

/// What differs from the recording in one step, apart from the keyspace.
#[derive(Debug, Default)]
struct Verdict {
    /// The lock this is about, and the result it must have.
    result: Option<(String, ExpectedResult)>,
    awaited: Awaited,
    behind: i64,
    read: Option<Span>,
}

impl Exclusive {
    pub(super) fn new(watchdog: i64, patience: i64, redisson: BTreeSet<String>) -> Self {
        Self {
            watchdog,
            patience,
            redisson,
            locks: BTreeMap::new(),
            remembered: BTreeMap::new(),
            pending: BTreeMap::new(),
            recorded: BTreeMap::new(),
            before: Snapshot::new(),
            before_read: Span { lo: 0, hi: 0 },
            verdict: Verdict::default(),
        }
    }

    pub(super) fn observe(&mut self, facts: &Facts<'_>) {
        self.locks.values_mut().for_each(State::begin);
        self.verdict = Verdict { behind: facts.behind, read: Some(facts.read), ..Verdict::default() };
        let (before, after): (Vec<_>, Vec<_>) = facts.ended.iter().partition(|ended| ended.at < facts.asked.lo);
        before.into_iter().for_each(|ended| self.ended(ended, facts));
        self.operation(facts);
        after.into_iter().for_each(|ended| self.ended(ended, facts));
        self.awaited(facts);
        self.touched_from_outside(facts);
        self.time_passes(facts);
        self.queues_move(facts);
        for (key, state) in &mut self.locks {
            state.fence.compare(key, &facts.step.keyspace, &state.causes);
        }
        for pending in self.pending.values_mut() {
            if let Some(state) = self.locks.get(&pending.key) {
                pending.causes.extend(&state.causes);
            }
        }
    }

    pub(super) fn adjust(&self, expected: &mut Expectation, without: Option<Rule>) {
        if let Some((key, result)) = &self.verdict.result
            && *result != expected.result
            && self.locks.get(key).is_some_and(|state| state.departs(without) || state.fence.departs(without))
        {
            expected.result = result.clone();
            expected.elapsed = None;
        }
        self.verdict.awaited.adjust(expected, without);
        let Some(read) = self.verdict.read else { return };
        for (key, state) in &self.locks {
            if state.departs(without) {
                set(&mut expected.keyspace, key, state.lock.held(read, self.verdict.behind).map(|held| entry(&held)));
                state.queue.adjust(key, &mut expected.keyspace);
                let channel = keys::channel(key);
                let own = |message: &Message| {
                    message.channel.strip_prefix(&channel).is_some_and(|rest| rest.is_empty() || rest.starts_with(':'))
                };
                expected.published.retain(|message| !own(message));
                expected.published.extend(state.published.iter().cloned());
            }
            if state.fence.departs(without) {
                state.fence.adjust(key, &mut expected.keyspace);
            }
        }
    }

    /// The step passed: locks that have not departed are as recorded, and those that are free on both sides, or were taken
    /// anew on both sides, are back.
    pub(super) fn passed(&mut self, facts: &Facts<'_>) {
        let view = View::new(&facts.seen.snapshot, facts.names);
        for (key, state) in &mut self.locks {
            let owner = state.lock.owner().map(|owner| owner.field().to_owned());
            if let (Some(owner), false) = (&owner, state.departed()) {
                state.lock.truncate(view.count(key, owner));
            }
            if state.departed() && alike(facts, |name| is_of(key, name)) {
                let anew = owner.is_some_and(|owner| {
                    recorded_count(&self.recorded, key, &owner) == 0
                        && recorded_count(&facts.step.keyspace, key, &owner) == 1
                        && state.taken_anew
                });
                let hidden = state.lock.count() > 0 && !anew;
                state.causes.retain(|cause| hidden && cause.outlives_its_traces());
            }
            if state.lock.count() > 0 {
                state.lock.ttl_is(view.pttl(key).filter(|left| *left >= 0), facts.read);
            }
            state.fence.passed(key, &view);
            state.queue.passed(key, &view);
        }
        self.recorded.clone_from(&facts.step.keyspace);
        self.before.clone_from(&facts.seen.snapshot);
        self.before_read = facts.read;
        self.locks.retain(|_, state| !state.is_idle());
    }

    /// The state of the lock under this key, as it was left by the step before.
    fn state(&mut self, key: &str, facts: &Facts<'_>) -> &mut State {
        let view = View::new(&self.before, facts.names);
        let lock = || lock_in(key, &view, self.watchdog, self.before_read);
        self.locks.entry(key.to_owned()).or_insert_with(|| State::new(lock(), key, &view))
    }
}

impl State {
    fn new(lock: Lock, key: &str, before: &View<'_>) -> Self {
        Self {
            lock,
            causes: BTreeSet::new(),
            taken_anew: false,
            queue: Queue::read(key, before),
            fence: Fence::read(key, before),
            published: Vec::new(),
        }
    }

    /// A step begins.
    fn begin(&mut self) {
        self.taken_anew = false;
        self.published.clear();
        self.queue.begin();
        self.fence.begin();
    }

    fn departed(&self) -> bool {
        !self.causes.is_empty()
    }

    /// Whether it has departed although this rule is left out.
    fn departs(&self, without: Option<Rule>) -> bool {
        self.departed() && without.is_none_or(|rule| !self.causes.contains(&rule))
    }

    /// Nothing about it has to be remembered.
    fn is_idle(&self) -> bool {
        !self.departed() && self.lock.count() == 0 && self.queue.is_empty() && !self.fence.departs(None)
    }

    /// The lock has just been freed by an operation on this kind at this instant.
    fn tell_release(&mut self, key: &str, kind: Kind, now: i64) {
        let channel = match kind {
            Kind::Spin => return,
            Kind::Fair | Kind::NonReentrantFair => match self.queue.head(now) {
                Some(head) => keys::fair_channel(key, &head),
                None => return,
            },
            Kind::Lock | Kind::Fenced | Kind::NonReentrant => keys::channel(key),
        };
        self.published.push(Message { channel, payload: "0".to_owned() });
    }
}

/// The lock as it is in Redis, whoever put it there.
fn lock_in(key: &str, view: &View<'_>, watchdog: i64, at: Span) -> Lock {
    let mut lock = Lock::free(watchdog);
    if let Some((owner, count)) = view.fields(key).into_iter().next() {
        let left = view.pttl(key).filter(|left| *left >= 0);
        lock.found(Owner::named(&owner), count.parse().unwrap_or(1), left, at);
    }
    lock
}

/// Whether the key of this name belongs to the lock.
fn is_of(lock: &str, name: &str) -> bool {
    name == lock || name == keys::queue(lock) || name == keys::timeouts(lock)
}

fn set(keyspace: &mut BTreeMap<String, Entry>, key: &str, entry: Option<Entry>) {
    match entry {
        Some(entry) => {
            keyspace.insert(key.to_owned(), entry);
        }
        None => {
            keyspace.remove(key);
        }
    }
}

fn entry(held: &Held) -> Entry {
    let value = Content::Hash(BTreeMap::from([(held.owner.field().to_owned(), Field::Text(held.count.to_string()))]));
    Entry { value, ttl: held.pttl.map_or(Ttl::Never, Ttl::Reckoned) }
}

/// The words of a `raw` command that are texts.
pub(super) fn raw_words(step: &Step) -> impl Iterator<Item = &str> {
    step.args.get("cmd").and_then(Value::as_array).into_iter().flatten().skip(1).filter_map(Value::as_str)
}

#[cfg(test)]
mod tests;
