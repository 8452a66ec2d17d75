//! Clients whose commands are in flight when the link is cut, and the eye that watches their keys meanwhile.

use std::{future::IntoFuture, sync::Arc, time::Duration};

use redis::{AsyncConnectionConfig, Cmd, FromRedisValue, Pipeline, aio::MultiplexedConnection};
use redlatch::{Acquire, Client, Error, Guard, OwnerId, RLock};
use tokio::{
    task::JoinHandle,
    time::{Instant, sleep, sleep_until},
};

use crate::{
    netns::Network,
    support::{eventually, full, ms, secs, within},
};

const OUTAGE: Duration = Duration::from_secs(7);

/// How long the keys are watched after the link is back. TCP sends again after twice the time before: what the kernel still
/// has of an outage of seven seconds comes no later than six seconds after it.
pub(crate) fn watch_time() -> Duration {
    if full() { secs(20) } else { secs(10) }
}

/// Whether the caller is told before the link is back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Patience {
    /// Its response timeout ends within the outage.
    Short,
    Long,
}

/// What becomes of the command in flight.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fate {
    /// The server runs it, its reply is lost.
    Runs,
    /// It never arrives.
    Vanishes,
}

/// One client's part: a key, and whoever takes it.
pub(crate) struct Leg {
    pub(crate) key: String,
    pub(crate) patience: Patience,
    pub(crate) fate: Fate,
    /// `None`: an owner of its own for each acquisition.
    pub(crate) owner: Option<OwnerId>,
    pub(crate) lock: RLock,
}

impl Leg {
    pub(crate) fn acquire(&self) -> Acquire {
        match &self.owner {
            Some(owner) => self.lock.owned_by(owner).lock(),
            None => self.lock.lock(),
        }
    }

    /// After the outage: as often as the way to the server is still missing, then it must succeed.
    pub(crate) async fn acquire_again(&self) -> Guard {
        within(secs(8), &self.key, async {
            loop {
                match self.acquire().await {
                    Ok(guard) => break guard,
                    Err(Error::Redis { .. }) => sleep(ms(50)).await,
                    Err(error) => panic!("{}: {error}", self.key),
                }
            }
        })
        .await
    }
}

/// The clients of a test, and a look into the server that no cut disturbs.
pub(crate) struct Scene<'a> {
    network: &'a Network,
    pub(crate) legs: Vec<Leg>,
    /// Another client, beside the server.
    pub(crate) other: Client,
    probe: MultiplexedConnection,
    watcher: JoinHandle<()>,
}

impl<'a> Scene<'a> {
    /// Two clients for either fate, each with an automatic and an explicit owner. `most`: counts above it are wrong.
    pub(crate) async fn new(network: &'a Network, may_kill: bool, most: u64) -> Self {
        let probe = beside(network).await;
        let rights = if may_kill { "+client|kill" } else { "-client|kill" };
        let user = ["ACL", "SETUSER", "app", "on", ">pw", "~*", "&*", "+@all", rights];
        ask::<()>(&probe, &user).await;
        let mut legs = Vec::new();
        for patience in [Patience::Short, Patience::Long] {
            for fate in [Fate::Runs, Fate::Vanishes] {
                let timeout = if patience == Patience::Short { secs(3) } else { secs(15) };
                let builder = Client::builder().url(network.url()).username("app").password("pw");
                let client = builder.response_timeout(timeout).connect().await.unwrap();
                client.lock("warm").lock().await.unwrap().release().await.unwrap();
                for owner in [None, Some(client.owner_with_thread_id(7).unwrap())] {
                    let who = if owner.is_some() { "explicit" } else { "automatic" };
                    let key = format!("{patience:?} {fate:?} {who}");
                    legs.push(Leg { lock: client.lock(&key), key, patience, fate, owner });
                }
            }
        }
        let keys: Vec<String> = legs.iter().map(|leg| leg.key.clone()).collect();
        let watcher = tokio::spawn(never_doubled(beside(network).await, keys.into(), most));
        let other = Client::connect(&network.redis().unix_url()).await.unwrap();
        Self { network, legs, other, probe, watcher }
    }

    /// Cuts the link with a command of every leg in flight, and heals it. Returns the outcomes, in the order of the legs.
    ///
    /// `start` puts a leg's command in flight; `has_run` tells whether the server has run it.
    pub(crate) async fn outage<T: Send + 'static>(
        &self,
        mut start: impl FnMut(&Leg) -> JoinHandle<T>,
        has_run: impl AsyncFn(&Leg) -> bool,
    ) -> Vec<JoinHandle<T>> {
        let (redis, mut flights) = (self.network.redis(), Vec::new());
        // What has reached the stopped server is run once the link is down.
        redis.signal("STOP");
        flights.extend(self.fated(Fate::Runs).map(|(index, leg)| (index, start(leg))));
        eventually(secs(2), "commands before the server", async || self.network.unread() >= 2).await;
        self.network.cut();
        let cut = Instant::now();
        redis.signal("CONT");
        for (_, leg) in self.fated(Fate::Runs) {
            eventually(secs(2), &leg.key, || has_run(leg)).await;
        }
        flights.extend(self.fated(Fate::Vanishes).map(|(index, leg)| (index, start(leg))));
        eventually(secs(2), "commands on their way", async || Network::unacknowledged() >= 2).await;
        sleep_until(cut + OUTAGE).await;
        flights.sort_by_key(|(index, _)| *index);
        for (index, flight) in &flights {
            let (leg, told) = (&self.legs[*index], flight.is_finished());
            assert_eq!(told, leg.patience == Patience::Short, "{}: told before the link was back", leg.key);
        }
        self.network.heal();
        flights.into_iter().map(|(_, flight)| flight).collect()
    }

    fn fated(&self, fate: Fate) -> impl Iterator<Item = (usize, &Leg)> {
        self.legs.iter().enumerate().filter(move |(_, leg)| leg.fate == fate)
    }

    /// An owner's count in Redis.
    pub(crate) async fn count(&self, key: &str, owner: OwnerId) -> u64 {
        self.ask::<Option<u64>>(&["HGET", key, &owner.to_string()]).await.unwrap_or(0)
    }

    pub(crate) async fn exists(&self, key: &str) -> bool {
        self.ask(&["EXISTS", key]).await
    }

    pub(crate) async fn ask<T: FromRedisValue>(&self, command: &[&str]) -> T {
        ask(&self.probe, command).await
    }

    /// All the time these holds are there, each owner alone and with its count, and the other keys are free.
    pub(crate) async fn keeps(&self, held: &[Guard], time: Duration) {
        let is_free = |leg: &&Leg| held.iter().all(|guard| guard.name() != leg.key);
        let free: Vec<&Leg> = self.legs.iter().filter(is_free).collect();
        let end = Instant::now() + time;
        while Instant::now() < end {
            for guard in held {
                let count = held.iter().filter(|other| other.name() == guard.name()).count() as u64;
                let owners: Vec<(String, u64)> = self.ask(&["HGETALL", guard.name()]).await;
                assert_eq!(owners, [(guard.owner().to_string(), count)], "{}", guard.name());
                assert!(guard.is_valid(), "{}: the guard thinks it is lost", guard.name());
                assert_eq!(guard.hold_count(), count, "{}: what the guard thinks", guard.name());
            }
            for leg in &free {
                assert!(!self.exists(&leg.key).await, "{}: orphaned", leg.key);
            }
            sleep(ms(50)).await;
        }
    }

    /// Gives everything back; then every key is free for anybody.
    pub(crate) async fn end(self, held: Vec<Guard>) {
        for guard in held {
            let name = guard.name().to_owned();
            let released = within(secs(2), &name, guard.release()).await;
            assert!(released.is_ok(), "{name}: {released:?}");
        }
        for leg in &self.legs {
            assert!(!self.exists(&leg.key).await, "{}: orphaned", leg.key);
            let guard = self.other.lock(&leg.key).try_lock().await.unwrap();
            within(secs(2), &leg.key, guard.expect("free").release()).await.unwrap();
        }
        self.watcher.abort();
        assert!(self.watcher.await.unwrap_err().is_cancelled(), "a key was doubled");
    }
}

/// Looks at all keys, again and again.
async fn never_doubled(mut probe: MultiplexedConnection, keys: Arc<[String]>, most: u64) {
    let mut look = Pipeline::new();
    for key in &*keys {
        look.cmd("HVALS").arg(key);
    }
    loop {
        let counts: Vec<Vec<u64>> = look.query_async(&mut probe).await.unwrap();
        for (key, counts) in keys.iter().zip(counts) {
            assert!(counts.len() <= 1 && counts.iter().all(|&n| n <= most), "{key}: counts {counts:?}");
        }
        sleep(ms(5)).await;
    }
}

/// A connection to the server that does not cross the link.
async fn beside(network: &Network) -> MultiplexedConnection {
    let patient = AsyncConnectionConfig::new().set_response_timeout(None);
    let client = redis::Client::open(network.redis().unix_url()).unwrap();
    client.get_multiplexed_async_connection_with_config(&patient).await.unwrap()
}

async fn ask<T: FromRedisValue>(probe: &MultiplexedConnection, command: &[&str]) -> T {
    let mut cmd = Cmd::new();
    for part in command {
        cmd.arg(*part);
    }
    cmd.query_async(&mut probe.clone()).await.unwrap()
}

/// Starts an acquisition.
pub(crate) fn spawn<T: Send + 'static>(work: impl IntoFuture<Output = T, IntoFuture: Send + 'static>) -> JoinHandle<T> {
    tokio::spawn(work.into_future())
}
