//! The fair lock's scripts.

mod acquire;
mod order;
mod refused;
mod release;

use std::time::Duration;

use redis::RedisError;

use super::server::{Server, ms, owner};
use crate::{
    owner::OwnerId,
    scripts::{
        answers::{Acquired, Busy, Granted, Place, Released},
        fair::{self, Acquire, Candidate, Names, Release},
        lock::Reentry,
    },
    topology::Flavour,
};

const NAMES: Names<'static> = Names {
    key: "f",
    queue: "redisson_lock_queue:{f}",
    timeouts: "redisson_lock_timeout:{f}",
    channel: "redisson_lock__channel:{f}",
};
const FRESH: Acquired = Acquired::Granted(Granted { found: 0, fresh: true, token: None });

/// A server with one fair lock.
struct Fair(Server);

/// An acquire that waits in line for 300 s.
fn ask(n: i64) -> Acquire<'static> {
    Acquire {
        owner: owner(n),
        target: 1,
        lease: ms(30_000),
        longest: ms(30_000),
        patience: ms(300_000),
        enqueue: true,
        reentry: Reentry::Allowed,
        abandoned: &[],
    }
}

/// A release of the last hold.
fn give(n: i64) -> Release<'static> {
    Release { owner: owner(n), target: 0, left: ms(30_000), leave: None, strict: false, candidates: &[] }
}

fn leave(n: i64, patience: u64) -> Release<'static> {
    Release { leave: Some(ms(patience)), ..give(n) }
}

fn candidate(n: i64, lease: u64, patience: u64) -> Candidate {
    Candidate { owner: owner(n), lease: ms(lease), patience: ms(patience) }
}

/// What a waiter's channel is told.
fn told(n: i64) -> Vec<(String, String)> {
    vec![(format!("{}:{}", NAMES.channel, owner(n)), "0".to_owned())]
}

impl Fair {
    fn start() -> Self {
        Self(Server::start())
    }

    fn try_acquire(&mut self, asked: Acquire<'_>) -> Result<Acquired, RedisError> {
        let reply = self.0.try_call(&fair::acquire(NAMES, &asked, Flavour::Plain))?;
        Ok(fair::read_acquired(NAMES.key, &reply).expect("a reply of the script's"))
    }

    fn acquire(&mut self, asked: Acquire<'_>) -> Acquired {
        self.try_acquire(asked).expect("the script runs")
    }

    #[track_caller]
    fn busy(&mut self, asked: Acquire<'_>) -> Busy {
        match self.acquire(asked) {
            Acquired::Busy(busy) => busy,
            other => panic!("{other:?}"),
        }
    }

    #[track_caller]
    fn place(&mut self, asked: Acquire<'_>) -> Place {
        self.busy(asked).place.expect("in line")
    }

    fn try_release(&mut self, asked: Release<'_>) -> Result<Released, RedisError> {
        let reply = self.0.try_call(&fair::release(NAMES, &asked, Flavour::Plain))?;
        Ok(fair::read_released(NAMES.key, &reply).expect("a reply of the script's"))
    }

    fn release(&mut self, asked: Release<'_>) -> Released {
        self.try_release(asked).expect("the script runs")
    }

    /// The owner holds the lock without having asked.
    fn hold(&mut self, n: i64, ttl: u64) {
        self.0.run_words(&["HSET", NAMES.key, &owner(n).to_string(), "1"]);
        self.0.run_words(&["PEXPIRE", NAMES.key, &ttl.to_string()]);
    }

    /// The lease of whoever holds the lock ends.
    fn expire(&mut self) {
        self.0.run_words(&["DEL", NAMES.key]);
    }

    fn push(&mut self, n: i64) {
        self.0.run_words(&["RPUSH", NAMES.queue, &owner(n).to_string()]);
    }

    /// The waiter counts as dead in that many ms.
    fn set_score(&mut self, n: i64, ms: i64) {
        let at = self.0.now() + ms;
        self.0.run_words(&["ZADD", NAMES.timeouts, &at.to_string(), &owner(n).to_string()]);
    }

    fn put(&mut self, n: i64, ms: i64) {
        self.push(n);
        self.set_score(n, ms);
    }

    /// The line, the head first.
    fn line(&mut self) -> Vec<i64> {
        let owners: Vec<String> = self.0.ask(&["LRANGE", NAMES.queue, "0", "-1"]);
        owners.iter().map(|text| OwnerId::parse(text).expect("an owner").thread_id()).collect()
    }

    fn score(&mut self, n: i64) -> Option<i64> {
        self.0.ask(&["ZSCORE", NAMES.timeouts, &owner(n).to_string()])
    }

    /// In how many ms the waiter counts as dead.
    #[track_caller]
    fn left(&mut self, n: i64) -> i64 {
        self.score(n).expect("a score") - self.0.now()
    }

    fn count(&mut self, n: i64) -> Option<u64> {
        self.0.ask(&["HGET", NAMES.key, &owner(n).to_string()])
    }

    fn ttl(&mut self) -> i64 {
        self.0.ask(&["PTTL", NAMES.key])
    }
}

fn millis(time: Duration) -> i64 {
    i64::try_from(time.as_millis()).expect("a short time")
}
