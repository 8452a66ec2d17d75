//! Two processes of this crate on one lock: each gets its share, though either could keep the lock among its own tasks.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test that cannot go on ends here")]

mod support;

use std::{
    io::{BufRead, BufReader, Write},
    process::{Child, ChildStdin, ChildStdout, Command, Stdio},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
};

use redis::aio::MultiplexedConnection;
use redlatch::{Client, RLock};
use support::{forgotten, ms, redis::Redis, secs, within};
use tokio::{
    task::JoinSet,
    time::{Instant, interval, sleep},
};

/// In a child: the server's address. A test that finds it set is the process that competes, not the one that judges.
const CHILD: &str = "REDLATCH_TEST_COMPETITOR";
const LOCK: &str = "shared";
const TASKS: usize = 8;

#[tokio::test]
async fn two_busy_processes_get_about_half_of_the_grants_each() {
    if let Ok(url) = std::env::var(CHILD) {
        return compete(&url).await;
    }
    let redis = Redis::start();
    let name = "two_busy_processes_get_about_half_of_the_grants_each";
    let mut processes = [Process::start(&redis, name), Process::start(&redis, name)];
    processes.iter_mut().for_each(|process| process.tell("begin"));
    sleep(secs(2)).await;
    processes.iter_mut().for_each(|process| process.tell("end"));
    let grants = processes.map(Process::grants);
    let all: u64 = grants.iter().sum();
    for own in grants {
        let share = own as f64 / all as f64;
        assert!((0.35..=0.65).contains(&share), "{share:.2} of {all}: {grants:?}");
    }
    assert!(all > 500, "{all} grants in two seconds");
    assert!(redis.probe().await.keys().await.is_empty());
}

#[tokio::test]
async fn a_poller_beside_a_busy_process_gets_at_least_three_grants_a_second() {
    if let Ok(url) = std::env::var(CHILD) {
        return compete(&url).await;
    }
    let redis = Redis::start();
    let mut process = Process::start(&redis, "a_poller_beside_a_busy_process_gets_at_least_three_grants_a_second");
    let (client, time) = (redis.client().await, secs(4));
    let (lock, judge) = (client.lock(LOCK), Judge::connect(&redis.url()).await);
    process.tell("begin");
    let (mut polls, mut grants, end) = (interval(ms(10)), 0, Instant::now() + time);
    while Instant::now() < end {
        polls.tick().await;
        if let Some(guard) = lock.try_lock().await.unwrap() {
            judge.alone().await;
            guard.release().await.unwrap();
            grants += 1;
        }
    }
    process.tell("end");
    let busy = process.grants();
    assert!(grants >= 3 * time.as_secs(), "{grants} grants in {time:?}, beside {busy}");
    assert!(busy > 100 * time.as_secs(), "{busy} grants of the busy one in {time:?}");
    forgotten(&client).await;
}

/// Sees to it that holders are alone.
#[derive(Clone)]
struct Judge {
    con: MultiplexedConnection,
}

impl Judge {
    async fn connect(url: &str) -> Self {
        Self { con: redis::Client::open(url).unwrap().get_multiplexed_async_connection().await.unwrap() }
    }

    /// Called by a holder: nobody else is between these two commands.
    async fn alone(&self) {
        let mut con = self.con.clone();
        let entered: bool = redis::cmd("SETNX").arg("inside").arg("1").query_async(&mut con).await.unwrap();
        assert!(entered, "two holders at once");
        let left: bool = redis::cmd("DEL").arg("inside").query_async(&mut con).await.unwrap();
        assert!(left, "two holders at once");
    }
}

/// The child: from `begin` to `end` on its input its tasks want the lock, and hold it for no time. Then it tells how often
/// they got it, on a line that begins with `@`.
async fn compete(url: &str) {
    let (client, judge) = (Client::connect(url).await.unwrap(), Judge::connect(url).await);
    say("ready");
    assert_eq!(hear().await, "begin");
    let (over, grants) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
    let mut tasks = JoinSet::new();
    for _ in 0..TASKS {
        let (lock, judge, over, grants) = (client.lock(LOCK), judge.clone(), over.clone(), grants.clone());
        tasks.spawn(async move {
            while !over.load(Ordering::SeqCst) {
                hold(&lock, &judge).await;
                grants.fetch_add(1, Ordering::SeqCst);
            }
        });
    }
    assert_eq!(hear().await, "end");
    let grants = grants.load(Ordering::SeqCst);
    over.store(true, Ordering::SeqCst);
    within(secs(10), "the last turns", tasks.join_all()).await;
    forgotten(&client).await;
    say(&grants.to_string());
}

async fn hold(lock: &RLock, judge: &Judge) {
    let guard = lock.lock().await.unwrap();
    judge.alone().await;
    guard.release().await.unwrap();
}

async fn hear() -> String {
    let line = || std::io::stdin().lines().next().unwrap().unwrap();
    tokio::task::spawn_blocking(line).await.unwrap()
}

fn say(line: &str) {
    let mut out = std::io::stdout().lock();
    writeln!(out, "\n@{line}").unwrap();
    out.flush().unwrap();
}

/// A child that competes.
struct Process {
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

impl Process {
    fn start(redis: &Redis, test: &str) -> Self {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args([test, "--exact", "--nocapture"])
            .env(CHILD, redis.url())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let (input, output) = (child.stdin.take().unwrap(), BufReader::new(child.stdout.take().unwrap()));
        let mut process = Self { child, input, output };
        assert_eq!(process.says(), "ready");
        process
    }

    fn tell(&mut self, line: &str) {
        writeln!(self.input, "{line}").unwrap();
    }

    fn says(&mut self) -> String {
        loop {
            let mut line = String::new();
            assert!(self.output.read_line(&mut line).unwrap() > 0, "the child ended without a word");
            if let Some(said) = line.strip_prefix('@') {
                return said.trim_end().to_owned();
            }
        }
    }

    /// Its report at the end.
    fn grants(mut self) -> u64 {
        let grants = self.says().parse().unwrap();
        assert!(self.child.wait().unwrap().success());
        grants
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
