//! What a step does to the locks.

use serde_json::Value;

use super::super::super::expect::ExpectedResult;
use super::super::super::format::Step;
use super::super::awaited::Awaited;
use super::super::exclusive::raw_words;
use super::super::holds::{Owner, Span};
use super::super::view::View;
use super::super::{Ended, Facts, Rule, is_acquire, is_granted};
use super::pair::Released;
use super::{Acquire, Pending, Role, Shared, State, field, found_in, holders, is_of};

/// The longest time from a grant in Redis until the replay hears of it.
const GRANT_HEARD: i64 = 150;

impl Shared {
    pub(super) fn operation(&mut self, facts: &Facts<'_>) {
        let step = facts.step;
        if step.op == "shutdown"
            && let Some(client) = &step.client
        {
            self.pending.retain(|_, pending| pending.acquire.client != *client);
            self.pairs.values_mut().for_each(|state| state.pair.orphan(client, facts.asked));
            return;
        }
        let (Some(acquire), Some(key)) = (self.acquire_of(step), &step.key) else { return };
        let state = self.state(key, facts);
        state.pass(facts.asked, None, key);
        let (owner, role) = acquire.holder.clone();
        let certain = state.pair.is_certain(facts.asked);
        if acquire.ours && is_acquire(&step.op) && role == Role::Write && !state.pair.admits(&owner, role) {
            state.turn_a_writer_away(facts.asked, step.starts_handle().is_some());
        }
        if let Some(handle) = step.starts_handle() {
            let (key, causes) = (key.clone(), state.causes.clone());
            let pending = Pending { key, acquire, granted: false, over: false, rightly: false, causes };
            self.pending.insert(handle.to_owned(), pending);
            return;
        }
        let predicted = state.predict(&acquire, facts);
        self.verdict.result = predicted.map(|result| (key.clone(), result));
        let Some(result) = &facts.seen.result else { return };
        if is_granted(&step.op, result) {
            let heard = Span { lo: facts.asked.lo.max(facts.asked.hi - GRANT_HEARD), hi: facts.asked.hi };
            self.grant(key, &acquire, heard, facts);
            return;
        }
        let there = self.remembered.get(&acquire.object).copied().unwrap_or(self.watchdog);
        let state = self.state(key, facts);
        match (step.op.as_str(), result) {
            ("unlock", result) => {
                let was_free = state.pair.is_free();
                let writes_watched = state.pair.writer() == Some(&owner) && state.pair.modes(&owner).0;
                let released = match result {
                    Ok(_) if acquire.ours => state.pair.release(&owner, role, facts.asked),
                    Ok(_) => state.pair.release_there(&owner, role, there, facts.asked),
                    Err(_) => Released::NotOwner,
                };
                let view = View::new(&facts.seen.snapshot, facts.names);
                let gone = !certain && result.is_ok() && holders(&view, key).is_empty();
                match released {
                    Released::Freed => state.tell(key, role.last_release()),
                    _ if gone || was_free => {
                        state.pair.clear();
                        state.tell(key, role.last_release());
                    }
                    Released::Downgraded if acquire.ours => {
                        state.causes.insert(Rule::Downgrade);
                        state.tell(key, role.last_release());
                    }
                    Released::Partly if acquire.ours && role == Role::Read && state.pair.writer() == Some(&owner) => {
                        if state.pair.count(&owner, Role::Read) > 0 {
                            state.causes.insert(Rule::WriteKept);
                        }
                        if writes_watched {
                            // There the writer is renewed no more.
                            state.causes.insert(Rule::OwnMode);
                            state.mixed.insert((owner.clone(), Role::Write));
                        }
                    }
                    Released::Downgraded | Released::Partly | Released::NotOwner => {}
                }
                if released != Released::Partly {
                    self.remembered.remove(&acquire.object);
                }
            }
            ("forceUnlock" | "delete", Ok(Value::Bool(true))) => {
                self.remembered.remove(&acquire.object);
                let state = self.state(key, facts);
                state.pair.clear();
                state.tell(key, role.last_release());
            }
            _ => {}
        }
    }

    /// What the operation of a step on a read or write lock would acquire.
    fn acquire_of(&self, step: &Step) -> Option<Acquire> {
        let role = match step.object.as_deref()? {
            "read" => Role::Read,
            "write" => Role::Write,
            _ => return None,
        };
        let (key, client) = (step.key.clone()?, step.client.clone()?);
        let owner = Owner::new(&client, step.thread.unwrap_or_default()).field().to_owned();
        Some(Acquire {
            ours: !self.redisson.contains(&client),
            op: step.op.clone(),
            object: (client.clone(), role, key, step.instance.clone()),
            client,
            holder: (owner, role),
            lease: step.ms("lease_ms").filter(|lease| *lease > 0),
            wait: step.ms("wait_ms").filter(|wait| *wait > 0),
        })
    }

    fn grant(&mut self, key: &str, acquire: &Acquire, at: Span, facts: &Facts<'_>) {
        let there = self.remembered.get(&acquire.object).copied().unwrap_or(self.watchdog);
        let leaks = acquire.lease.is_none() && there != self.watchdog;
        if let Some(lease) = acquire.lease {
            self.remembered.insert(acquire.object.clone(), lease);
        }
        let state = self.state(key, facts);
        let (owner, role) = &acquire.holder;
        let again = state.pair.count(owner, *role) > 0;
        if !acquire.ours {
            return state.pair.acquire_there(acquire.holder.clone(), acquire.lease.unwrap_or(there), at);
        }
        state.pair.acquire(&acquire.client, acquire.holder.clone(), acquire.lease, at);
        let modes = state.pair.modes(owner);
        if leaks || (again && *role == Role::Write) || modes == (true, true) {
            state.causes.insert(Rule::Reentry);
            state.mixed.insert(acquire.holder.clone());
        }
        if state.pair.renewal_would_cut(at) {
            state.causes.insert(Rule::RaiseOnly);
            state.mixed.insert(acquire.holder.clone());
        }
    }

    /// An acquire under way has ended.
    pub(super) fn ended(&mut self, ended: &Ended, facts: &Facts<'_>) {
        let Some(pending) = self.pending.get_mut(&ended.handle) else { return };
        pending.over = true;
        let was_granted = std::mem::replace(&mut pending.granted, ended.granted);
        if was_granted {
            return;
        }
        let Pending { key, acquire, .. } = pending.clone();
        let at = Span { lo: ended.at - GRANT_HEARD, hi: ended.at };
        let state = self.state(&key, facts);
        state.pass(at, None, &key);
        let (owner, role) = &acquire.holder;
        if ended.granted && !state.pair.admits(owner, *role) {
            // A hold in the way may just have been given back.
            let found = holders(&View::new(&facts.seen.snapshot, facts.names), &key);
            state.pass(facts.read, Some(&|holder| found.get(holder).copied().unwrap_or(0)), &key);
        }
        if !ended.granted {
            let rightly = !state.pair.admits(owner, *role) || !state.pair.is_certain(at);
            if let Some(pending) = self.pending.get_mut(&ended.handle) {
                pending.rightly = rightly;
            }
            return;
        }
        if !state.causes.is_empty() && !state.pair.admits(owner, *role) && state.pair.is_certain(at) {
            // Granted while another holds: no result is right.
            self.verdict.result = Some((key, ExpectedResult::None));
            return;
        }
        self.grant(&key, &acquire, at, facts);
    }

    /// An `await`: a wait for a departed lock may rightly end otherwise than recorded, and at another time.
    pub(super) fn awaited(&mut self, facts: &Facts<'_>) {
        let pending = facts.step.awaits_handle().and_then(|handle| self.pending.remove(handle));
        let Some(Pending { key, granted, rightly, mut causes, .. }) = pending else { return };
        causes.extend(self.pairs.get(&key).iter().flat_map(|state| &state.causes));
        let result = match &facts.seen.result {
            Some(Ok(Value::Bool(got))) if if *got { granted } else { rightly } => {
                Some(ExpectedResult::Value((*got).into()))
            }
            _ => None,
        };
        self.verdict.awaited = Awaited { causes, result };
    }

    pub(super) fn time_passes(&mut self, facts: &Facts<'_>) {
        let view = View::new(&facts.seen.snapshot, facts.names);
        for (key, state) in &mut self.pairs {
            let found = holders(&view, key);
            state.pass(facts.read, Some(&|holder| found.get(holder).copied().unwrap_or(0)), key);
        }
        // A waiter may hold already although its answer is still on its way.
        let mut holding = Vec::new();
        for (handle, Pending { key, acquire, .. }) in self.pending.iter().filter(|(_, p)| !p.granted && !p.over) {
            let (owner, role) = &acquire.holder;
            let Some(state) = self.pairs.get(key) else { continue };
            let new = view.count(key, &field(&acquire.holder)) > state.pair.count(owner, *role);
            if new && state.pair.admits(owner, *role) {
                holding.push((handle.clone(), key.clone(), acquire.clone()));
            }
        }
        for (handle, key, acquire) in holding {
            self.grant(&key, &acquire, Span { lo: facts.read.lo - GRANT_HEARD, hi: facts.read.hi }, facts);
            if let Some(pending) = self.pending.get_mut(&handle) {
                pending.granted = true;
            }
        }
        for state in self.pairs.values_mut() {
            if state.pair.writer_waits && state.pair.is_longer_than_its_readers(facts.read) {
                state.causes.insert(Rule::Readers);
            }
        }
    }

    /// Plain commands on a key of a lock: what they left is where the reckoning goes on.
    pub(super) fn touched_from_outside(&mut self, facts: &Facts<'_>) {
        let step = facts.step;
        let absent = matches!(step.op.as_str(), "expire" | "clearExpire" | "delete") && step.object.is_some();
        let words: Vec<&str> = if step.op == "raw" { raw_words(step).collect() } else { Vec::new() };
        let view = View::new(&facts.seen.snapshot, facts.names);
        for (key, state) in &mut self.pairs {
            if words.iter().any(|word| is_of(key, word)) || (absent && step.key.as_ref() == Some(key)) {
                found_in(&mut state.pair, key, &view, facts.read);
                state.pair.was_touched(facts.read);
            }
        }
    }
}

impl State {
    /// Time goes on until this instant.
    fn pass(&mut self, now: Span, seen: Option<&dyn Fn(&super::Holder) -> usize>, key: &str) {
        let passed = self.pair.pass(now, seen);
        if passed.given_back {
            self.causes.insert(Rule::Reentry);
        }
        if let Some(role) = passed.freed {
            self.tell(key, role.last_release());
        }
    }

    /// A writer asks and is refused; `waits`: and it will ask again.
    fn turn_a_writer_away(&mut self, at: Span, waits: bool) {
        self.pair.writer_waits |= waits;
        if self.pair.visit(at) {
            self.causes.insert(Rule::Readers);
        }
    }
}

impl Role {
    /// What the last release of this role tells.
    fn last_release(self) -> &'static str {
        match self {
            Self::Read => "0",
            Self::Write => "1",
        }
    }
}
