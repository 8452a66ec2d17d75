//! A private Redis and what a case needs to look at it.

use std::{fmt::Debug, future::Future, time::Duration};

use redlatch::{AnyLock, Client, ClientBuilder, Error, Guard, OwnerId};
use tokio::{
    task::yield_now,
    time::{Instant, sleep},
};

use super::Subject;
use crate::support::{
    eventually, forgotten, ms,
    proxy::Proxy,
    redis::{Probe, Redis},
    secs, within,
};

/// The name of the lock in most cases.
pub const NAME: &str = "orders";
/// The client that is told no answer waits this long.
pub const RESPONSE_TIMEOUT: Duration = Duration::from_millis(400);

pub struct Scene {
    pub subject: &'static Subject,
    pub redis: Redis,
    pub probe: Probe,
}

impl Scene {
    pub async fn new(subject: &'static Subject) -> Self {
        let redis = Redis::start();
        let probe = redis.probe().await;
        Self { subject, redis, probe }
    }

    pub async fn client(&self) -> Client {
        self.redis.client().await
    }

    pub async fn watched(&self, watchdog_timeout: Duration) -> Client {
        self.redis.builder().watchdog_timeout(watchdog_timeout).connect().await.unwrap()
    }

    /// A client behind a proxy, which has used the kind once: its scripts are known to the server.
    pub async fn behind_proxy(&self, settings: impl FnOnce(ClientBuilder) -> ClientBuilder) -> (Proxy, Client) {
        let proxy = Proxy::to(self.redis.port()).await;
        let builder = Client::builder().url(proxy.url()).response_timeout(RESPONSE_TIMEOUT);
        let client = settings(builder).connect().await.unwrap();
        (self.subject.lock)(&client, "warm").lock().await.unwrap().release().await.unwrap();
        (proxy, client)
    }

    /// The lock of the case.
    pub fn lock(&self, client: &Client) -> AnyLock {
        (self.subject.lock)(client, NAME)
    }

    /// What a hold of the lock keeps out, and the reverse.
    pub fn rival(&self, client: &Client) -> AnyLock {
        (self.subject.rival)(client, NAME)
    }

    /// How often Redis has the owner as a holder.
    pub async fn count(&self, lock: &AnyLock, owner: &OwnerId) -> u64 {
        self.probe.ask::<Option<u64>>(&["HGET", lock.name(), &field(lock, owner)]).await.unwrap_or(0)
    }

    /// The fields of holders.
    pub async fn holders(&self, name: &str) -> Vec<String> {
        let mut fields: Vec<String> = self.probe.ask(&["HKEYS", name]).await;
        fields.retain(|field| field != "mode");
        fields
    }

    /// Somebody else, of another program, holds the key from now on, whoever had it before; nobody is told.
    pub async fn taken_over(&self, name: &str, lease: Duration) {
        const TAKE: &str = "redis.call('del', KEYS[1]) redis.call('hset', KEYS[1], unpack(ARGV, 2)) \
                            redis.call('pexpire', KEYS[1], ARGV[1])";
        let lease = lease.as_millis().to_string();
        let mut command = vec!["EVAL", TAKE, "1", name, &lease];
        command.extend(self.foreign_fields());
        self.probe.run(&command).await;
    }

    /// That holder has the key, and nobody has lengthened or shortened its lease.
    pub async fn is_untouched(&self, name: &str, taken: Instant, lease: Duration) {
        let mut fields: Vec<String> = self.probe.ask(&["HGETALL", name]).await;
        fields.sort();
        let mut expected = self.foreign_fields();
        expected.sort_unstable();
        assert_eq!(fields, expected);
        let before = taken.elapsed();
        let left = Duration::from_millis(self.probe.ask(&["PTTL", name]).await);
        assert!(left + taken.elapsed() + ms(5) >= lease, "shortened: {left:?} are left of {lease:?}");
        assert!(left + before <= lease + ms(1500), "lengthened: {left:?} are left of {lease:?} after {before:?}");
    }

    fn foreign_fields(&self) -> Vec<&'static str> {
        if self.subject.is_read_write() { vec!["mode", "write", "x:1:write", "1"] } else { vec!["x:1", "1"] }
    }

    /// That holder lets go of the key, and tells as Redisson does.
    pub async fn let_go(&self, name: &str) {
        self.probe.run(&["DEL", name]).await;
        let channel = self.subject.channel(name);
        if self.subject.is_fair() {
            let queue = super::prefixed("redisson_lock_queue", name);
            if let Some(head) = self.probe.ask::<Option<String>>(&["LINDEX", &queue, "0"]).await {
                self.probe.run(&["PUBLISH", &format!("{}:{head}", channel.unwrap()), "0"]).await;
            }
        } else if let Some(channel) = channel {
            self.probe.run(&["PUBLISH", &channel, if self.subject.is_read_write() { "1" } else { "0" }]).await;
        }
    }

    /// So many futures of the client sleep.
    pub async fn asleep(&self, client: &Client, waiters: usize) {
        let asleep = || async {
            let listens = self.subject.channel("").is_none() || client.stats().subscriptions > 0;
            client.stats().waiters == waiters && client.stats().in_flight == 0 && listens
        };
        eventually(secs(5), "asleep", asleep).await;
    }

    /// Every key, but for what is documented to stay.
    pub async fn keys(&self) -> Vec<String> {
        let mut keys = self.probe.keys().await;
        // The counter of a fenced lock must not start again.
        keys.retain(|key| !key.starts_with("redisson_lock_token:"));
        keys
    }

    /// As [`Scene::keys`], after a hold was lost: then its hold keys end by themselves.
    pub async fn keys_after_a_loss(&self) -> Vec<String> {
        let mut keys = self.keys().await;
        for hold_key in keys.iter().filter(|key| key.contains(":rwlock_timeout:")) {
            let left: i64 = self.probe.ask(&["PTTL", hold_key]).await;
            assert!(left != -1, "{hold_key} does not expire");
        }
        keys.retain(|key| !key.contains(":rwlock_timeout:"));
        keys
    }

    /// Neither the clients nor Redis remember anything.
    pub async fn nothing_is_left(&self, clients: &[&Client]) {
        self.forgotten(clients).await;
        assert_eq!(self.keys().await, Vec::<String>::new());
    }

    /// As [`Scene::nothing_is_left`], after a hold was lost.
    pub async fn nothing_is_left_after_a_loss(&self, clients: &[&Client]) {
        self.forgotten(clients).await;
        assert_eq!(self.keys_after_a_loss().await, Vec::<String>::new());
    }

    async fn forgotten(&self, clients: &[&Client]) {
        for client in clients {
            forgotten(client).await;
        }
        eventually(secs(2), "no subscription", || async { self.probe.channels().await.is_empty() }).await;
    }
}

/// The field under which an owner holds a lock.
pub fn field(lock: &AnyLock, owner: &OwnerId) -> String {
    match lock.kind() {
        redlatch::Kind::Write => format!("{owner}:write"),
        _ => owner.to_string(),
    }
}

/// Waits without an end, in a task.
pub fn waiting(lock: &AnyLock) -> tokio::task::JoinHandle<Result<Guard, Error>> {
    tokio::spawn(std::future::IntoFuture::into_future(lock.lock()))
}

/// A task that waits, has its turn and ends.
pub fn turn(lock: &AnyLock) -> tokio::task::JoinHandle<Result<(), Error>> {
    let lock = lock.clone();
    tokio::spawn(async move { lock.lock().await?.release().await })
}

pub fn is_lost<T: Debug>(outcome: Result<T, Error>, name: &str) {
    match outcome {
        Err(Error::LeaseLost(lost)) => assert_eq!(lost.name, name),
        other => panic!("not lost: {other:?}"),
    }
}

pub fn is_foreign<T: Debug>(outcome: Result<T, Error>, name: &str) {
    match outcome {
        Err(Error::ForeignData { key, .. }) => assert_eq!(key, name),
        other => panic!("not refused as foreign: {other:?}"),
    }
}

/// For this long the guard is valid and its key is there.
pub async fn lives(guard: &Guard, probe: &Probe, time: Duration) {
    let end = Instant::now() + time;
    while Instant::now() < end {
        let there = probe.exists(guard.name()).await;
        assert!(there && guard.is_valid(), "key there: {there}, {guard:?}, {:?} too early", end - Instant::now());
        sleep(ms(10)).await;
    }
}

/// Runs until `gone` resolves; by then the hold has been given up: by its own state, and for whoever waits for the loss.
pub async fn lost_no_later_than(guard: &Guard, gone: impl Future<Output = ()>) {
    let told = std::sync::atomic::AtomicBool::new(false);
    let waiting = async {
        guard.lost().await;
        told.store(true, std::sync::atomic::Ordering::SeqCst);
    };
    let looking = async {
        gone.await;
        let trusted = guard.is_valid();
        // One turn of the runtime: what is due by now has run then.
        yield_now().await;
        assert!(!trusted, "trusted beyond its end");
        assert!(told.load(std::sync::atomic::Ordering::SeqCst), "whoever waits for the loss was not told in time");
    };
    within(secs(5), "the end", async { tokio::join!(waiting, looking) }).await;
    assert!(!guard.is_valid() && guard.valid_for().is_zero());
}

/// A small generator; its seed is in the name of what it drives.
pub struct Random(pub u64);

impl Random {
    pub fn below(&mut self, n: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (self.0 >> 33) % n
    }
}
