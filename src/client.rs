//! The client: hands out locks, owns what they share.

use std::{fmt, sync::Arc, time::Duration};

use tokio::{
    runtime::Handle,
    time::{Instant, sleep_until},
};
use uuid::Uuid;

use crate::{
    config::Config,
    error::{Action, Error, Misuse},
    locks::{FairLock, FencedLock, NonReentrantFairLock, NonReentrantLock, RLock, ReadWriteLock, SpinLock},
    owner::OwnerId,
    table::Shared,
};

/// Connected to one Redis; hands out locks by name. Cheap to clone, all clones share two connections.
///
/// One multiplexed connection carries all commands, a second one, opened by the first wait, carries the wake-ups. Both
/// reconnect by themselves. The client lives in the tokio runtime it was connected in.
#[derive(Clone)]
pub struct Client {
    shared: Arc<Shared>,
}

impl Client {
    /// Connects with default settings.
    ///
    /// # Errors
    /// [`Error::Misuse`] for a URL that cannot be understood; [`Error::Redis`] with [`Action::Connect`] when there is no
    /// server, or it refuses the login.
    pub async fn connect(url: &str) -> Result<Self, Error> {
        Self::builder().url(url).connect().await
    }

    /// For everything that is not default.
    pub fn builder() -> ClientBuilder {
        ClientBuilder { config: Config::default() }
    }

    /// The re-entrant lock of this name. No I/O. An empty name is refused when it is used.
    pub fn lock(&self, name: impl Into<String>) -> RLock {
        RLock::new(self.shared.clone(), name.into())
    }

    /// The fair lock of this name: granted in the order of coming, across processes. No I/O.
    pub fn fair_lock(&self, name: impl Into<String>) -> FairLock {
        FairLock::new(self.shared.clone(), name.into())
    }

    /// The fenced lock of this name: its grants are numbered. No I/O.
    pub fn fenced_lock(&self, name: impl Into<String>) -> FencedLock {
        FencedLock::new(self.shared.clone(), name.into())
    }

    /// The non-reentrant lock of this name. No I/O.
    pub fn non_reentrant_lock(&self, name: impl Into<String>) -> NonReentrantLock {
        NonReentrantLock::new(self.shared.clone(), name.into())
    }

    /// The non-reentrant fair lock of this name. No I/O.
    pub fn non_reentrant_fair_lock(&self, name: impl Into<String>) -> NonReentrantFairLock {
        NonReentrantFairLock::new(self.shared.clone(), name.into())
    }

    /// The read/write lock of this name: many readers, or one writer. No I/O.
    pub fn read_write_lock(&self, name: impl Into<String>) -> ReadWriteLock {
        ReadWriteLock::new(self.shared.clone(), name.into())
    }

    /// The spin lock of this name: its waiters ask again and again. No I/O.
    pub fn spin_lock(&self, name: impl Into<String>) -> SpinLock {
        SpinLock::new(self.shared.clone(), name.into())
    }

    /// The first half of all owners of this client.
    pub fn id(&self) -> Uuid {
        self.shared.owners.client()
    }

    /// A new owner, for re-entry: hold it as long as its acquisitions shall count as one's own.
    pub fn owner(&self) -> OwnerId {
        self.shared.owners.fresh()
    }

    /// The owner with this thread id, for bridges: the same id is the same owner.
    ///
    /// # Errors
    /// [`Misuse::ReservedThreadId`] for 2^61 and above.
    pub fn owner_with_thread_id(&self, id: i64) -> Result<OwnerId, Error> {
        OwnerId::with_thread(self.id(), id)
    }

    /// Ends the client: nothing new is begun, waits end with [`Error::Closed`], what is being released is sent, renewal
    /// stops. Guards that live are not released: their [`lost`](crate::Guard::lost) resolves, their leases end.
    ///
    /// # Errors
    /// [`Error::Redis`] with [`Action::Release`] when releases were still unanswered after the response timeout; their
    /// leases end.
    ///
    /// # Cancel safety
    /// The client is closed from the first poll on; releases that were not sent by then are left to their leases.
    pub async fn shutdown(&self) -> Result<(), Error> {
        let shared = &self.shared;
        shared.close_keys();
        let deadline = Instant::now() + shared.response_timeout;
        let outcome = loop {
            let busy = shared.keys().into_iter().find(|key| key.look(|q| q.counts()[3]) > 0);
            let Some(key) = busy else { break Ok(()) };
            if Instant::now() >= deadline {
                let source = std::io::Error::new(std::io::ErrorKind::TimedOut, "unanswered at shutdown");
                break Err(Error::redis(Action::Release, &key.names.key, source.into()));
            }
            sleep_until(deadline.min(Instant::now() + Duration::from_millis(2))).await;
        };
        shared.topology.close();
        shared.wakeups.close();
        outcome
    }

    /// What the client has in memory right now.
    pub fn stats(&self) -> Stats {
        let keys = self.shared.keys();
        let mut stats = Stats { keys: keys.len(), subscriptions: self.shared.wakeups.len(), ..Stats::default() };
        stats.scheduled_renewals = self.shared.watchdog.len();
        for key in keys {
            let [waiters, holds, renewals, in_flight] = key.look(|q| q.counts());
            stats.waiters += waiters;
            stats.holds += holds;
            stats.renewals += renewals;
            stats.in_flight += in_flight;
        }
        stats
    }
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Client")
            .field("id", &self.id())
            .field("address", &self.shared.address())
            .finish_non_exhaustive()
    }
}

/// What a client has in memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Stats {
    /// Owners of keys with a command in flight or an outcome that is unknown yet.
    pub in_flight: usize,
    /// Holds of this client.
    pub holds: usize,
    /// Keys with anything to remember.
    pub keys: usize,
    /// Owners of keys that the watchdog renews.
    pub renewals: usize,
    /// Entries in the watchdog's wheel.
    pub scheduled_renewals: usize,
    /// Channels that are subscribed, or being subscribed or left.
    pub subscriptions: usize,
    /// Futures that wait.
    pub waiters: usize,
}

/// Settings of a [`Client`].
#[derive(Clone, Debug)]
#[must_use = "connect() makes the client"]
pub struct ClientBuilder {
    config: Config,
}

impl ClientBuilder {
    /// `redis://[user[:password]@]host[:port][/database]`, or `unix:///path[?db=n]`. Default `redis://127.0.0.1:6379`.
    pub fn url(mut self, url: impl Into<String>) -> Self {
        self.config.url = url.into();
        self
    }

    /// ACL user; overrides the URL's.
    pub fn username(mut self, name: impl Into<String>) -> Self {
        self.config.username = Some(name.into());
        self
    }

    /// Password; overrides the URL's.
    pub fn password(mut self, password: impl Into<String>) -> Self {
        self.config.password = Some(password.into());
        self
    }

    /// Database number; overrides the URL's.
    pub fn database(mut self, number: i64) -> Self {
        self.config.database = Some(number);
        self
    }

    /// The first half of this client's owners; random by default. Two live clients with one id take each other's locks for
    /// their own: that is the caller's to prevent.
    pub fn client_id(mut self, id: Uuid) -> Self {
        self.config.client_id = Some(id);
        self
    }

    /// Lease of holds without one of their own, renewed every third of it. Default 30 s, at least 30 ms.
    pub fn watchdog_timeout(mut self, timeout: Duration) -> Self {
        self.config.watchdog_timeout = timeout;
        self
    }

    /// How long to wait for a reply before the connection is given up. Default 3 s, at least 10 ms.
    pub fn response_timeout(mut self, timeout: Duration) -> Self {
        self.config.response_timeout = timeout;
        self
    }

    /// How long each step of connecting may take. Default 5 s, at least 10 ms.
    pub fn connect_timeout(mut self, timeout: Duration) -> Self {
        self.config.connect_timeout = timeout;
        self
    }

    /// Whether a release may hand the lock straight to the next waiter of this process, in one command. Plain, non-reentrant
    /// and fenced locks are handed over without a message; a fair lock goes to the head of its queue, if that is a waiter of
    /// this process. Read, write and spin locks are never handed over. Default on. Other processes get their share either
    /// way.
    pub fn local_handoff(mut self, on: bool) -> Self {
        self.config.local_handoff = on;
        self
    }

    /// For how long a waiter of a fair lock whose wait has no bound counts as alive once its turn could have come. Default
    /// 300 s, as Redisson's `fairLockWaitTimeout`; at least 1 ms.
    pub fn fair_patience(mut self, patience: Duration) -> Self {
        self.config.fair_patience = patience;
        self
    }

    /// Whether an owner that reads may wait to write, as it does in Redisson: for ever, unless its read hold ends. Default
    /// off: it gets [`Error::UpgradeImpossible`] at once.
    pub fn upgrade_waits(mut self, on: bool) -> Self {
        self.config.upgrade_waits = on;
        self
    }

    /// Called with every failure of background work: renewals, releases of dropped guards. It must not block.
    pub fn on_background_error(mut self, hook: impl Fn(&Error) + Send + Sync + 'static) -> Self {
        self.config.on_background_error = Some(Arc::new(hook));
        self
    }

    /// Connects.
    ///
    /// # Errors
    /// [`Error::Misuse`] for a setting out of range, a URL that cannot be understood, or a call outside a tokio runtime;
    /// [`Error::Redis`] with [`Action::Connect`] when there is no server, or it refuses the login.
    pub async fn connect(self) -> Result<Client, Error> {
        let target = self.config.target()?;
        let runtime = Handle::try_current().map_err(|_| Error::Misuse(Misuse::NoRuntime))?;
        let shared = Shared::new(&self.config, target, runtime);
        for node in shared.topology.nodes() {
            node.start();
            node.ready().await.map_err(|source| Error::redis(Action::Connect, &node.address(), source))?;
        }
        Ok(Client { shared })
    }
}
