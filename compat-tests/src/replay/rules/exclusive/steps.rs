//! What a step does to the locks.

use serde_json::Value;

use super::super::super::expect::ExpectedResult;
use super::super::super::format::{Api, Message, Step};
use super::super::awaited::Awaited;
use super::super::holds::{Owner, Released, Span};
use super::super::view::View;
use super::super::{Ended, Facts, Rule, is_acquire, is_granted, keys};
use super::{Acquire, Exclusive, Kind, Pending, State, lock_in, raw_words};

/// The longest time from a grant in Redis until the replay hears of it.
const GRANT_HEARD: i64 = 150;

impl Exclusive {
    pub(super) fn operation(&mut self, facts: &Facts<'_>) {
        let step = facts.step;
        if step.op == "shutdown"
            && let Some(client) = &step.client
        {
            self.pending.retain(|_, pending| !pending.acquire.owner.is_of(client));
            let theirs = |state: &&mut State| state.lock.owner().is_some_and(|owner| owner.is_of(client));
            self.locks.values_mut().filter(theirs).for_each(|state| state.lock.orphan(facts.asked));
            return;
        }
        let (Some(acquire), Some(key)) = (self.acquire_of(step), &step.key) else { return };
        let (kind, owner, object) = (acquire.kind, acquire.owner.clone(), acquire.object.clone());
        if let (Kind::Spin, Some(lease), true) = (kind, acquire.lease, is_acquire(&step.op)) {
            // There a refused attempt is enough.
            self.remembered.insert(object.clone(), lease);
        }
        let state = self.state(key, facts);
        state.lock.pass(facts.asked, None);
        let certain = state.lock.is_certain(facts.asked);
        if let Some(end) = state.lock.ttl_end() {
            state.queue.lease_ends(facts.on_wall_clock(end));
        }
        if kind.is_fair() && !is_query(&step.op) {
            state.sweep(key, &acquire, facts);
        }
        if let Some(handle) = step.starts_handle() {
            let (key, causes) = (key.clone(), state.causes.clone());
            let pending = Pending { key, acquire, granted: false, over: false, token: None, rightly: false, causes };
            self.pending.insert(handle.to_owned(), pending);
            return;
        }
        if acquire.ours {
            state.note_arguments(&acquire, facts);
        }
        if state.departed() || state.fence.departs(None) {
            let result = state.predict(&acquire, facts);
            self.verdict.result = result.map(|result| (key.clone(), result));
        }
        let Some(result) = &facts.seen.result else { return };
        if is_granted(&step.op, result) {
            let heard = Span { lo: facts.asked.lo.max(facts.asked.hi - GRANT_HEARD), hi: facts.asked.hi };
            self.grant(key, &acquire, heard, facts);
            return;
        }
        let there = self.remembered.get(&object).copied().unwrap_or(self.watchdog);
        let state = self.state(key, facts);
        let now = facts.on_wall_clock(facts.asked).hi;
        let freed = match (step.op.as_str(), result) {
            ("unlock", result) => {
                if state.lock.count() == 0 && kind.is_fair() {
                    // Nobody holds it: whoever is to have it is told once more.
                    state.tell_release(key, kind, now);
                }
                let released = match result {
                    Ok(_) if acquire.ours => state.lock.release(&owner, facts.asked),
                    Ok(_) => state.lock.release_there(&owner, there, facts.asked),
                    Err(_) => Released::NotOwner,
                };
                // What the rule cannot know yet is decided by what is left in Redis.
                let left = View::new(&facts.seen.snapshot, facts.names).count(key, owner.field());
                if released != Released::Partly {
                    self.remembered.remove(&object);
                }
                released == Released::Fully || (result.is_ok() && !certain && left == 0)
            }
            ("forceUnlock" | "delete", Ok(Value::Bool(true))) => {
                self.remembered.remove(&object);
                true
            }
            _ => return,
        };
        if !freed {
            return;
        }
        let state = self.state(key, facts);
        state.lock.clear();
        match (step.op.as_str(), kind) {
            ("delete", Kind::Fair | Kind::NonReentrantFair) => state.queue.delete(),
            ("delete", Kind::Fenced) => state.fence.forget(),
            ("delete", Kind::Spin) => {}
            _ => state.tell_release(key, kind, now),
        }
    }

    /// What the operation of a step on one of these locks would acquire.
    fn acquire_of(&self, step: &Step) -> Option<Acquire> {
        let (kind, key, client) = (Kind::of(step)?, step.key.clone()?, step.client.clone()?);
        let wait = step.ms("wait_ms").filter(|wait| *wait > 0);
        Some(Acquire {
            ours: !self.redisson.contains(&client),
            kind,
            op: step.op.clone(),
            object: (client.clone(), kind, key, step.instance.clone()),
            owner: Owner::new(&client, step.thread.unwrap_or_default()),
            lease: step.ms("lease_ms").filter(|lease| *lease > 0),
            wait,
            patience: wait.unwrap_or(self.patience),
            blocking: step.api == Some(Api::Sync),
        })
    }

    fn grant(&mut self, key: &str, acquire: &Acquire, at: Span, facts: &Facts<'_>) -> Option<u64> {
        let there = self.remembered.get(&acquire.object).copied().unwrap_or(self.watchdog);
        let leaks = acquire.lease.is_none() && there != self.watchdog;
        if let Some(lease) = acquire.lease {
            self.remembered.insert(acquire.object.clone(), lease);
        }
        let state = self.state(key, facts);
        let again = state.lock.owner() == Some(&acquire.owner);
        if acquire.ours {
            state.lock.acquire(acquire.owner.clone(), acquire.lease, at);
        } else {
            state.lock.acquire_there(acquire.owner.clone(), acquire.lease.unwrap_or(there), at);
        }
        state.taken_anew = !(again || leaks && acquire.ours);
        if !state.taken_anew && acquire.ours {
            state.causes.insert(Rule::Reentry);
        }
        // There the blocking call for a token does not look at the lease it is given.
        if acquire.op == "lockAndGetToken" && acquire.blocking && acquire.lease.is_some() && acquire.ours {
            state.causes.insert(Rule::Arguments);
            state.taken_anew = false;
        }
        if acquire.kind.is_fair() {
            state.queue.enter(acquire.owner.field().to_owned(), acquire.patience);
        }
        if let Some(end) = state.lock.ttl_end() {
            state.queue.lease_ends(facts.on_wall_clock(end));
        }
        (acquire.kind == Kind::Fenced).then(|| state.fence.draw())
    }

    /// An acquire under way has ended.
    pub(super) fn ended(&mut self, ended: &Ended, facts: &Facts<'_>) {
        let Some(pending) = self.pending.get_mut(&ended.handle) else { return };
        pending.over = true;
        let was_granted = std::mem::replace(&mut pending.granted, ended.granted);
        let pending = pending.clone();
        if !ended.granted {
            let rightly = self.gave_up(&pending, ended.at, facts);
            if let Some(pending) = self.pending.get_mut(&ended.handle) {
                pending.rightly = rightly;
            }
            return;
        }
        if was_granted {
            return;
        }
        let at = Span { lo: ended.at - GRANT_HEARD, hi: ended.at };
        let owner = &pending.acquire.owner;
        if let Some(state) = self.locks.get_mut(&pending.key) {
            state.lock.pass(at, None);
            if state.lock.owner() == Some(owner) && state.lock.is_forgotten() {
                // The grant was there before it was heard of.
                state.lock.clear();
            }
            let busy = state.lock.owner().is_some_and(|holder| holder != owner) && state.lock.is_certain(at);
            if state.departed() && (busy || state.is_kept_from(&pending.acquire, facts)) {
                // Granted while another holds or comes first: no result is right.
                self.verdict.result = Some((pending.key, ExpectedResult::None));
                return;
            }
        }
        let token = self.grant(&pending.key, &pending.acquire, at, facts);
        if let Some(pending) = self.pending.get_mut(&ended.handle) {
            pending.token = token;
        }
    }

    /// A wait is over without a grant; says whether that is right.
    fn gave_up(&mut self, pending: &Pending, at: i64, facts: &Facts<'_>) -> bool {
        let acquire = &pending.acquire;
        let patience_there = if acquire.blocking { acquire.patience } else { self.patience };
        let patience = if acquire.ours { acquire.patience } else { patience_there };
        let state = self.state(&pending.key, facts);
        state.lock.pass(Span { lo: at, hi: at }, None);
        let busy = state.lock.owner().is_some_and(|owner| *owner != acquire.owner);
        let rightly = busy
            || acquire.is_without_arguments()
            || state.is_kept_from(acquire, facts)
            || !state.lock.is_certain(Span { lo: at, hi: at });
        if acquire.is_without_arguments() {
            state.causes.insert(Rule::Arguments);
        }
        if acquire.kind.is_fair() {
            let owner = acquire.owner.field().to_owned();
            if patience != patience_there && state.queue.before().has_anybody_behind(&owner) {
                state.causes.insert(Rule::Patience);
            }
            state.queue.leave(owner, patience);
        }
        rightly
    }

    /// An `await`: a wait for a departed lock may rightly end otherwise than recorded, and at another time.
    pub(super) fn awaited(&mut self, facts: &Facts<'_>) {
        let pending = facts.step.awaits_handle().and_then(|handle| self.pending.remove(handle));
        let Some(Pending { key, acquire, granted, token, rightly, mut causes, .. }) = pending else { return };
        if let Some(state) = self.locks.get(&key) {
            causes.extend(&state.causes);
            causes.extend(state.fence.causes());
        }
        let right = match &facts.seen.result {
            Some(Ok(Value::Bool(false) | Value::Null)) if acquire.op != "lock" => rightly,
            Some(Ok(Value::Bool(true))) => granted,
            Some(Ok(Value::Number(number))) => granted && number.as_u64() == token,
            _ => false,
        };
        let result = facts.seen.result.clone().filter(|_| right).and_then(Result::ok).map(ExpectedResult::Value);
        self.verdict.awaited = Awaited { causes, result };
    }

    pub(super) fn time_passes(&mut self, facts: &Facts<'_>) {
        let view = View::new(&facts.seen.snapshot, facts.names);
        for (key, state) in &mut self.locks {
            let Some(owner) = state.lock.owner().map(|owner| owner.field().to_owned()) else { continue };
            let in_a_row = state.lock.ends_in_a_row();
            state.lock.pass(facts.read, Some(view.count(key, &owner)));
            if in_a_row && state.lock.count() == 0 {
                state.may_be_told(key, facts);
            }
        }
        // A waiter may hold already although its answer is still on its way.
        let waiting: Vec<_> = self.pending.iter().filter(|(_, pending)| !pending.granted && !pending.over).collect();
        let mut holding = Vec::new();
        for (handle, Pending { key, acquire, .. }) in waiting {
            let Some(state) = self.locks.get(key).filter(|state| state.departed() && state.lock.count() == 0) else {
                continue;
            };
            if view.count(key, acquire.owner.field()) > 0 && !state.is_kept_from(acquire, facts) {
                holding.push((handle.clone(), key.clone(), acquire.clone()));
            }
        }
        for (handle, key, acquire) in holding {
            let at = Span { lo: facts.read.lo - GRANT_HEARD, hi: facts.read.hi };
            let token = self.grant(&key, &acquire, at, facts);
            if let Some(pending) = self.pending.get_mut(&handle) {
                (pending.granted, pending.token) = (true, token);
            }
        }
    }

    /// Plain commands on the key of a lock: what they left is where the reckoning goes on.
    pub(super) fn touched_from_outside(&mut self, facts: &Facts<'_>) {
        let step = facts.step;
        let view = View::new(&facts.seen.snapshot, facts.names);
        let absent = matches!(step.op.as_str(), "expire" | "clearExpire" | "delete") && step.object.is_some();
        let words: Vec<&str> = if step.op == "raw" { raw_words(step).collect() } else { Vec::new() };
        for (key, state) in &mut self.locks {
            if words.contains(&key.as_str()) || (absent && step.key.as_ref() == Some(key)) {
                state.was_touched(key, &view, facts.read);
            }
            if words.iter().any(|word| *word == keys::token(key)) {
                state.fence.passed(key, &view);
            }
        }
    }

    pub(super) fn queues_move(&mut self, facts: &Facts<'_>) {
        let view = View::new(&facts.seen.snapshot, facts.names);
        let words: Vec<&str> = if facts.step.op == "raw" { raw_words(facts.step).collect() } else { Vec::new() };
        for (key, state) in &mut self.locks {
            if words.iter().any(|word| *word == keys::queue(key) || *word == keys::timeouts(key)) {
                state.queue.changed(key, &view);
                continue;
            }
            let waits = |pending: &&Pending| pending.key == *key && pending.acquire.kind.is_fair();
            let waiting = self.pending.values().filter(waits).filter(|pending| !pending.granted && !pending.over);
            state.queue.moves.swept |= waiting.clone().any(|pending| pending.acquire.ours);
            let waiting =
                waiting.map(|pending| (pending.acquire.owner.field().to_owned(), pending.acquire.patience)).collect();
            state.queue_moves(key, waiting, &view, facts);
        }
    }
}

impl State {
    /// Somebody else wrote to the key: what is there now is right.
    fn was_touched(&mut self, key: &str, view: &View<'_>, at: Span) {
        let left = view.pttl(key).filter(|left| *left >= 0);
        match self.lock.owner().map(|owner| view.count(key, owner.field())) {
            Some(count) if count > 0 => {
                self.lock.truncate(count);
                self.lock.ttl_was_set(left, at);
            }
            _ => self.lock = lock_in(key, view, self.lock.watchdog(), at),
        }
    }

    /// The release of a hold just before its lease ended may have been told.
    fn may_be_told(&mut self, key: &str, facts: &Facts<'_>) {
        let channel = keys::channel(key);
        let is_it = |channel_heard: &[u8]| facts.names.contract(channel_heard) == channel;
        if facts.seen.heard.iter().any(|heard| is_it(&heard.channel)) {
            self.published.push(Message { channel, payload: "0".to_owned() });
        }
    }

    /// A script is about to look at the queue: it takes dead heads away. One of ours tells the next one if the lock is free.
    fn sweep(&mut self, key: &str, acquire: &Acquire, facts: &Facts<'_>) {
        if !acquire.ours {
            return;
        }
        self.queue.moves.swept = true;
        let now = facts.on_wall_clock(facts.asked);
        let now = if self.queue.before().is_stale_at(now.lo) { now.hi } else { now.lo };
        if !self.queue.before().is_stale_at(now) {
            return;
        }
        if self.queue.before().head_has_no_score() {
            self.causes.insert(Rule::Scoreless);
        }
        let head = self.queue.head(now).filter(|head| head != acquire.owner.field());
        if let (true, Some(head), 0) = (is_acquire(&acquire.op), head, self.lock.count()) {
            self.causes.insert(Rule::HeadTold);
            self.published.push(Message { channel: keys::fair_channel(key, &head), payload: "0".to_owned() });
        }
    }

    /// Arguments that Redisson does not look at.
    fn note_arguments(&mut self, acquire: &Acquire, facts: &Facts<'_>) {
        let refused = facts.seen.result == Some(Ok(Value::Null));
        if refused && acquire.is_without_arguments() {
            self.causes.insert(Rule::Arguments);
        }
        if refused && facts.step.returns == Some((-1).into()) && acquire.op.ends_with("AndGetToken") {
            self.causes.insert(Rule::NoExpiry);
        }
    }

    fn queue_moves(&mut self, key: &str, waiting: Vec<(String, i64)>, view: &View<'_>, facts: &Facts<'_>) {
        let was_free = self.lock.count() == 0 || !self.published.is_empty();
        let now = facts.on_wall_clock(facts.read);
        self.queue.moves.now = (now.lo, now.hi);
        self.queue.moves.waiting = waiting;
        let left = !self.queue.moves.left.is_empty();
        let expected = self.queue.moved(key, view);
        let (stale, heads) = (expected.stale.clone(), expected.new_heads.clone());
        if stale.iter().any(|place| place.score.is_none()) {
            self.causes.insert(Rule::Scoreless);
        }
        if stale.iter().any(|place| self.queue.moves.waiting.iter().any(|(owner, _)| *owner == place.owner)) {
            self.causes.insert(Rule::Horizon);
        }
        // Waiters look at the queue by themselves, and so may any of them tell a new head that the lock is free.
        if !was_free || (stale.is_empty() && !left) {
            return;
        }
        for head in heads {
            let channel = keys::fair_channel(key, &head);
            let told = facts.seen.heard.iter().any(|heard| facts.names.contract(&heard.channel) == channel);
            if told && !self.published.iter().any(|message| message.channel == channel) {
                self.causes.insert(Rule::HeadTold);
                self.published.push(Message { channel, payload: "0".to_owned() });
            }
        }
    }

    /// Whether somebody else is to have the free lock first.
    fn is_kept_from(&self, acquire: &Acquire, facts: &Facts<'_>) -> bool {
        acquire.kind.is_fair() && self.queue.head_is_other(acquire, facts)
    }
}

impl super::queue::Queue {
    /// Whether somebody else stands first in the queue.
    fn head_is_other(&self, acquire: &Acquire, facts: &Facts<'_>) -> bool {
        let now = facts.on_wall_clock(facts.read).hi;
        self.head(now).is_some_and(|head| head != acquire.owner.field())
    }
}

impl Acquire {
    /// A try for a token without a bound: there it waits for ever.
    fn is_without_arguments(&self) -> bool {
        self.op == "tryLockAndGetToken" && self.wait.is_none() && self.lease.is_none()
    }
}

fn is_query(op: &str) -> bool {
    matches!(op, "isLocked" | "isHeldByThread" | "isHeldByCurrentThread" | "getHoldCount" | "remainTimeToLive")
}
