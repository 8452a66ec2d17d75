//! The client's table of keys: gives events to a key's queue and carries out the commands that come out.
//!
//! A key is here while it has a waiter, a hold, a command in flight or a subscription, and no longer.

use std::{
    collections::HashMap,
    sync::{
        Arc, Weak,
        atomic::{AtomicBool, Ordering},
    },
    task::Waker,
};

use parking_lot::Mutex;
use tokio::runtime::Handle;

use crate::{
    clock::Moment,
    config::{Config, ErrorHook, Target},
    connection::Connection,
    couriers::{Carry, Couriers},
    error::Error,
    few::Few,
    kind::Kind,
    owner::{Holder, Owners},
    protocol::Names,
    queue::{Attempt, Command, Extension, Queue, Release, Settings, Transfer, Unheld, WaiterId, Want},
    topology::{Flavour, Topology},
    wakeups::{Listener, Wakeups},
    watchdog::{Watchdog, alarm::Alarm, wheel::Token},
};

const SHARDS: usize = 32;
/// Resolution and turn of the queues' timer.
const TICK: std::time::Duration = std::time::Duration::from_millis(1);
const TURN: usize = 4096;

/// The keys in use, by family and name.
type Keys = HashMap<(Kind, Arc<str>), Arc<Key>>;

/// A key in use.
pub(crate) struct Key {
    pub(crate) names: Arc<Names>,
    state: Mutex<KeyState>,
}

struct KeyState {
    queue: Queue,
    timer: Option<(Moment, Token)>,
    /// Taken out of the table: whoever still has it looks again.
    removed: bool,
}

/// A hold on the watchdog.
pub(crate) struct Watched {
    pub(crate) key: Arc<Key>,
    pub(crate) owner: Holder,
    /// When its turn was, or is.
    pub(crate) due: Moment,
}

/// What all handles of a client share.
pub(crate) struct Shared {
    pub(crate) topology: Topology,
    pub(crate) wakeups: Arc<Wakeups>,
    pub(crate) watchdog: Watchdog<Watched>,
    pub(crate) owners: Owners,
    pub(crate) runtime: Handle,
    pub(crate) watchdog_timeout: std::time::Duration,
    pub(crate) response_timeout: std::time::Duration,
    pub(crate) fair_patience: std::time::Duration,
    upgrade_waits: bool,
    handoff: bool,
    hook: Option<ErrorHook>,
    couriers: Couriers<Job>,
    timers: Arc<Alarm<Weak<Key>>>,
    shards: [Mutex<Keys>; SHARDS],
    hasher: std::hash::RandomState,
    closed: AtomicBool,
    me: Weak<Self>,
}

impl Shared {
    pub(crate) fn new(config: &Config, target: Target, runtime: Handle) -> Arc<Self> {
        Arc::new_cyclic(|me: &Weak<Self>| {
            let (on_time, on_renewal) = (me.clone(), me.clone());
            let fire = move |due: Vec<Weak<Key>>| {
                if let Some(shared) = on_time.upgrade() {
                    due.into_iter().filter_map(|key| key.upgrade()).for_each(|key| shared.timer_fired(&key));
                }
            };
            let renew = move |due: Vec<Watched>| {
                if let Some(shared) = on_renewal.upgrade() {
                    shared.renew(due);
                }
            };
            Self {
                topology: Topology::single(Connection::new(target.clone(), runtime.clone(), None, None)),
                wakeups: Wakeups::new(target, Flavour::Plain, runtime.clone()),
                watchdog: Watchdog::new(config.watchdog_timeout, &runtime, renew),
                owners: Owners::new(config.client_id.unwrap_or_else(uuid::Uuid::new_v4)),
                watchdog_timeout: config.watchdog_timeout,
                response_timeout: config.response_timeout,
                fair_patience: config.fair_patience,
                upgrade_waits: config.upgrade_waits,
                handoff: config.local_handoff,
                hook: config.on_background_error.clone(),
                couriers: Couriers::new(runtime.clone()),
                timers: Alarm::new(TICK, TURN, &runtime, fire),
                runtime,
                shards: std::array::from_fn(|_| Mutex::default()),
                hasher: std::hash::RandomState::new(),
                closed: AtomicBool::new(false),
                me: me.clone(),
            }
        })
    }

    /// A failure of background work: nobody waits for it, so it is told here.
    pub(crate) fn report(&self, error: &Error) {
        tracing::warn!(%error, "background work failed");
        if let Some(hook) = &self.hook {
            // A hook that panics must not take the command it is told of with it.
            let told = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| hook(error)));
            if told.is_err() {
                tracing::error!("the hook for background errors panicked");
            }
        }
    }

    /// The addresses of the nodes.
    pub(crate) fn address(&self) -> String {
        self.topology.nodes().map(Connection::address).collect::<Vec<_>>().join(",")
    }

    /// Brings a new waiter to its key; `true`: its wait is over already.
    pub(crate) fn join(
        &self,
        names: &Arc<Names>,
        want: Want,
        waker: &Waker,
    ) -> Result<(Arc<Key>, WaiterId, bool), Error> {
        let joined = self.act_on(names, |q, now, out| q.join(now, want, waker, out))?;
        let (key, (id, over)) = joined;
        Ok((key, id, over))
    }

    /// Gives an event to a key that need not be in use yet.
    pub(crate) fn act_on<R>(
        &self,
        names: &Arc<Names>,
        event: impl FnOnce(&mut Queue, Moment, &mut Few<Command>) -> R,
    ) -> Result<(Arc<Key>, R), Error> {
        loop {
            let key = self.key(names)?;
            let state = key.state.lock();
            if !state.removed {
                let result = self.act_locked(&key, state, event);
                return Ok((key, result));
            }
        }
    }

    /// The key if it is in use.
    pub(crate) fn find(&self, names: &Names) -> Option<Arc<Key>> {
        let entry = entry(names);
        self.shard(&entry.1).lock().get(&entry).cloned()
    }

    /// Gives an event to a key's queue and carries out what comes of it.
    pub(crate) fn act<R>(&self, key: &Arc<Key>, event: impl FnOnce(&mut Queue, Moment, &mut Few<Command>) -> R) -> R {
        let state = key.state.lock();
        self.act_locked(key, state, event)
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Acquire)
    }

    /// No new work; every key's waiters end and its holds are lost.
    pub(crate) fn close_keys(&self) {
        self.closed.store(true, Ordering::Release);
        for key in self.keys() {
            self.act(&key, |q, now, out| q.close(now, out));
        }
    }

    pub(crate) fn keys(&self) -> Vec<Arc<Key>> {
        self.shards.iter().flat_map(|shard| shard.lock().values().cloned().collect::<Vec<_>>()).collect()
    }

    // ---- parts

    fn shard(&self, name: &str) -> &Mutex<Keys> {
        use std::hash::BuildHasher;
        &self.shards[(self.hasher.hash_one(name) % SHARDS as u64) as usize]
    }

    /// The key, put into the table if it is not there. Whoever closes the client looks through the table after it has
    /// said so: a key either is seen then, or is refused here.
    fn key(&self, names: &Arc<Names>) -> Result<Arc<Key>, Error> {
        let mut shard = self.shard(&names.key).lock();
        if self.closed.load(Ordering::Acquire) {
            return Err(Error::Closed);
        }
        Ok(shard.entry(entry(names)).or_insert_with(|| self.new_key(names)).clone())
    }

    fn new_key(&self, names: &Arc<Names>) -> Arc<Key> {
        let settings = Settings {
            name: names.key.clone(),
            discipline: names.protocol.discipline(),
            handoff: self.handoff && names.protocol.hands_over(),
            watchdog_timeout: self.watchdog_timeout,
            upgrade_waits: self.upgrade_waits,
        };
        let state = KeyState { queue: Queue::new(settings), timer: None, removed: false };
        Arc::new(Key { names: names.clone(), state: Mutex::new(state) })
    }

    fn act_locked<R>(
        &self,
        key: &Arc<Key>,
        mut state: parking_lot::MutexGuard<'_, KeyState>,
        event: impl FnOnce(&mut Queue, Moment, &mut Few<Command>) -> R,
    ) -> R {
        let now = Moment::now();
        let mut commands = Few::new();
        let result = event(&mut state.queue, now, &mut commands);
        commands.retain_mut(|command| match command {
            Command::WatchRenewal(owner) => {
                let due = self.watchdog.first(now);
                let token = self.watchdog.set(due, Watched { key: key.clone(), owner: *owner, due });
                if let Some(surplus) = state.queue.watched(*owner, token) {
                    self.watchdog.cancel(surplus);
                }
                false
            }
            Command::CancelRenewal(token) => {
                self.watchdog.cancel(*token);
                false
            }
            // Under the lock, so that the two stay in order; neither calls back.
            Command::Listen(of) => {
                let listener = KeyListener { shared: self.me.clone(), key: key.clone(), of: *of };
                self.wakeups.listen(&key.names.channel_of(*of), key.id(), Arc::new(listener));
                false
            }
            Command::Unlisten(of) => {
                self.wakeups.unlisten(&key.names.channel_of(*of), key.id());
                false
            }
            _ => true,
        });
        self.set_timer(key, &mut state, now);
        if state.queue.is_idle() && !state.removed {
            state.removed = true;
            self.remove(key);
        }
        drop(state);
        for command in commands {
            self.carry_out(key, command);
        }
        result
    }

    fn remove(&self, key: &Arc<Key>) {
        let mut shard = self.shard(&key.names.key).lock();
        // A name has one key in the table until that key is marked as removed, which happened just now.
        shard.remove(&entry(&key.names));
        if shard.is_empty() && shard.capacity() > 1024 {
            shard.shrink_to_fit();
        }
    }

    /// One timer a key; it may fire early, then it is set again.
    fn set_timer(&self, key: &Arc<Key>, state: &mut KeyState, now: Moment) {
        match (state.queue.next_deadline(now), state.timer) {
            (None, None) => {}
            (None, Some((_, token))) => {
                self.timers.cancel(token);
                state.timer = None;
            }
            (Some(at), Some((set, _))) if set <= at => {}
            (Some(at), old) => {
                if let Some((_, token)) = old {
                    self.timers.cancel(token);
                }
                state.timer = Some((at, self.timers.set(at, Arc::downgrade(key))));
            }
        }
    }

    fn timer_fired(&self, key: &Arc<Key>) {
        let mut state = key.state.lock();
        // A later timer may have taken the place of the one that fired.
        if state.timer.is_some_and(|(at, _)| at <= Moment::now()) {
            state.timer = None;
        }
        if !state.removed {
            self.act_locked(key, state, |q, now, out| q.tick(now, out));
        }
    }

    fn carry_out(&self, key: &Arc<Key>, command: Command) {
        match command {
            Command::Attempt(attempt) => self.send(key, Task::Attempt(attempt)),
            Command::Release(release) => self.send(key, Task::Release(release)),
            Command::Transfer(transfer) => self.send(key, Task::Transfer(transfer)),
            Command::Extend(extension) => self.send(key, Task::Extend(extension)),
            Command::ReleaseUnheld(unheld) => self.send(key, Task::ReleaseUnheld(unheld)),
            Command::Settle(reply, outcome) => {
                if let Err(Err(error)) = reply.send(outcome) {
                    self.report(&error);
                }
            }
            Command::Wake(waker) => waker.wake(),
            Command::CancelRenewal(_) | Command::Listen(_) | Command::Unlisten(_) | Command::WatchRenewal(_) => {}
        }
    }

    fn send(&self, key: &Arc<Key>, task: Task) {
        if let Some(shared) = self.me.upgrade() {
            self.couriers.send(Job { shared, key: key.clone(), task });
        }
    }
}

/// A command on its way to Redis.
pub(crate) struct Job {
    shared: Arc<Shared>,
    key: Arc<Key>,
    task: Task,
}

enum Task {
    Attempt(Attempt),
    Extend(Extension),
    Release(Release),
    ReleaseUnheld(Unheld),
    Transfer(Transfer),
}

impl Carry for Job {
    async fn carry(self) {
        let Self { shared, key, task } = self;
        match task {
            Task::Attempt(attempt) => shared.attempt(key, attempt).await,
            Task::Release(release) => shared.release(key, release).await,
            Task::Transfer(transfer) => shared.transfer(key, transfer).await,
            Task::Extend(extension) => Box::pin(shared.extend(key, extension)).await,
            Task::ReleaseUnheld(unheld) => Box::pin(shared.release_unheld(key, unheld)).await,
        }
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        self.topology.close();
        self.wakeups.close();
    }
}

impl Key {
    fn id(self: &Arc<Self>) -> usize {
        Arc::as_ptr(self).addr()
    }

    /// Looks at the queue without an event.
    pub(crate) fn look<R>(&self, look: impl FnOnce(&Queue) -> R) -> R {
        look(&self.state.lock().queue)
    }

    /// For events that lead to no command.
    pub(crate) fn touch<R>(&self, event: impl FnOnce(&mut Queue) -> R) -> R {
        event(&mut self.state.lock().queue)
    }
}

/// Where a key is in the table.
fn entry(names: &Names) -> (Kind, Arc<str>) {
    (names.kind.family(), names.key.clone())
}

struct KeyListener {
    shared: Weak<Shared>,
    key: Arc<Key>,
    /// Whose channel it is, if not the key's.
    of: Option<Holder>,
}

impl KeyListener {
    fn act(&self, event: impl FnOnce(&mut Queue, Moment, &mut Few<Command>)) {
        if let Some(shared) = self.shared.upgrade() {
            shared.act(&self.key, event);
        }
    }
}

impl Listener for KeyListener {
    fn live(&self) {
        self.act(|q, now, out| q.channel_live(now, self.of, out));
    }

    fn lost(&self) {
        self.act(|q, now, out| q.channel_lost(now, self.of, out));
    }

    fn message(&self) {
        self.act(|q, now, out| q.message(now, self.of, out));
    }

    fn refused(&self, error: &Error) {
        self.act(|q, now, out| q.channel_refused(now, self.of, error, out));
    }
}
