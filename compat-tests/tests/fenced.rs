//! The fenced lock beside Redisson's: one counter in Redis, from which both languages draw.

mod support;

use std::collections::BTreeMap;
use std::future::IntoFuture;
use std::process::Stdio;
use std::time::Duration;

use compat_tests::{
    Api, Audit, Failure, LockKind, Outcome, Peer, Register, SharedRedis, eventually, full_run, prefixed, within,
};
use redis::AsyncCommands;
use support::Pair;
use support::ways::{BOTH, excludes_both_ways, wakes_both_ways};
use tokio::process::{Child, Command};

const SECOND: Duration = Duration::from_secs(1);
const KIND: LockKind = LockKind::Fenced;

#[tokio::test]
async fn one_language_keeps_the_other_out() -> Outcome {
    excludes_both_ways(&Pair::start().await?, KIND).await
}

#[tokio::test]
async fn waiters_of_both_languages_are_woken_by_a_release_of_the_other() -> Outcome {
    wakes_both_ways(&Pair::start().await?, KIND, if full_run() { 200 } else { 20 }).await
}

#[tokio::test]
async fn a_redisson_without_it_says_so() -> Outcome {
    let redis = SharedRedis::start().await?;
    let peer = Peer::start(&redis).await?;
    let java = peer.lock_of(KIND, "order", 1000);
    let answers = [java.through(Api::Async).lock().await, java.through(Api::Sync).lock().await];
    for answer in answers {
        let is_absent = answer.as_ref().is_err_and(|error| error.is_a("UnsupportedOperationException"));
        assert_eq!(is_absent, !KIND.is_in_redisson(), "{answer:?}");
    }
    Ok(())
}

/// Each grant, whoever gets it and by whatever call, draws a number that is one greater than the last.
#[tokio::test]
async fn both_languages_draw_their_tokens_from_one_counter() -> Outcome {
    let pair = Pair::start().await?;
    let lock = pair.client.fenced_lock("order");
    let mut last = 0;
    let mut grows = |token: u64, what: &str| {
        assert_eq!(token, last + 1, "{what}");
        last = token;
    };
    for api in BOTH {
        let owner = pair.client.owner();
        let guard = lock.owned_by(&owner).lock().await?;
        grows(token_of(&guard)?, "a grant to Rust");
        let again = lock.owned_by(&owner).lock().await?;
        grows(token_of(&again)?, "a re-entry of Rust's");
        again.release().await?;
        // Handed over within the process, which is a grant like any other.
        let waiting = tokio::spawn(lock.lock().into_future());
        eventually(SECOND, "a waiter", async || Ok(pair.client.stats().waiters == 1)).await?;
        guard.release().await?;
        let guard = within(SECOND, "the next in line", waiting).await???;
        grows(token_of(&guard)?, "a grant within the process");
        if !KIND.is_in_redisson() {
            guard.release().await?;
            continue;
        }
        let java = pair.peer.lock_of(KIND, "order", 1000).through(api);
        assert_eq!(java.token().await?, Some(i64::try_from(token_of(&guard)?)?), "{api:?}: Java reads ours");
        assert_eq!(java.try_lock_and_get_token_within(SECOND / 2).await?, None, "{api:?}: Rust holds");
        let scripts = pair.redis.scripts_run().await?;
        let waiting = java.lock_and_get_token();
        // Of this call either API is the asynchronous one: no thread of Java's sleeps.
        java.through(Api::Async).sleeps(&pair.redis, scripts).await?;
        guard.release().await?;
        let token = within(SECOND, "Java's grant", waiting).await??;
        grows(u64::try_from(token)?, "a grant to Java");
        assert_eq!(lock.token().await?.map(|token| token.get()), Some(u64::try_from(token)?), "Rust reads Java's");
        // Through the API of a plain lock, which shows no token, but draws one.
        java.lock().await?;
        let drawn = java.token().await?.ok_or_else(|| Failure::new("no token"))?;
        grows(u64::try_from(drawn)?, "a re-entry of Java's");
        java.unlock().await?;
        java.unlock().await?;
    }
    assert_eq!(pair.redis.pttl(&prefixed("redisson_lock_token", "order")).await?, -1, "tokens never start again");
    Ok(())
}

/// Four owners of each language, two processes each. One after the other is killed, as it holds or waits, and another takes
/// its place. The resource refuses a token that is not greater than all before it, and refuses none.
#[tokio::test]
async fn tokens_grow_as_the_resource_sees_them_while_holders_are_killed() -> Outcome {
    let redis = SharedRedis::start().await?;
    let (grants, kills) = if full_run() { (10_000, 24) } else { (600, 4) };
    let (mut processes, mut java) = (Vec::new(), Vec::new());
    for number in 0..4 {
        processes.push(Process::start(&redis, number).await?);
    }
    for kill in 1..=kills {
        let seen = grants * kill / (kills + 1);
        // Ready before the other is gone, so that there are always as many.
        let next = Process::start(&redis, kill as usize + 3).await?;
        shown(&redis, seen).await?;
        let oldest = processes.remove(0);
        java.extend(oldest.java_client());
        oldest.kill().await?;
        processes.push(next);
    }
    shown(&redis, grants).await?;
    for process in processes {
        java.extend(process.java_client());
        process.kill().await?;
    }

    let refused: Vec<String> = redis.admin().lrange("register:refused", 0, -1).await?;
    assert_eq!(refused, Vec::<String>::new());
    let shown: Vec<String> = redis.admin().lrange("register", 0, -1).await?;
    let mut tokens = Vec::new();
    let mut owners = BTreeMap::<&str, u64>::new();
    for entry in &shown {
        let (owner, token) = entry.split_once(' ').ok_or_else(|| Failure::new("an entry without a token"))?;
        tokens.push(token.parse::<u64>()?);
        *owners.entry(owner.split(':').next().unwrap_or(owner)).or_default() += 1;
    }
    assert!(tokens.is_sorted_by(|one, next| one < next), "the register itself is wrong: {tokens:?}");
    let drawn = tokens.last().copied().unwrap_or(0);
    let lost = drawn - tokens.len() as u64;
    println!("{} tokens shown, {lost} drawn by those who were killed; by client: {owners:?}", tokens.len());
    // Nobody draws one and does not show it, but one who is killed in between: each process has two owners.
    assert!(lost <= (kills + 4) * 2, "{lost} tokens of {drawn} were never shown");
    let is_java = |client: &&&str| java.iter().any(|java| java == **client);
    let by_java = owners.keys().filter(is_java).count();
    assert_eq!(by_java > 0, KIND.is_in_redisson(), "Java takes part: {owners:?}");
    assert!(owners.len() > by_java, "Rust takes part: {owners:?}");
    Ok(())
}

/// Waits until the register has seen so many tokens.
async fn shown(redis: &SharedRedis, count: u64) -> Outcome {
    eventually(Duration::from_secs(120), &format!("{count} tokens"), async || {
        let seen: u64 = redis.admin().llen("register").await?;
        Ok(seen >= count)
    })
    .await
}

/// Two owners that take turns until they are killed.
enum Process {
    Java(Peer),
    Rust(Child),
}

/// What a killed holder costs the others; long enough for no live one to lose its hold on a busy machine.
const WATCHDOG: Duration = Duration::from_secs(2);

impl Process {
    /// In turn of either language, where Redisson has the kind.
    async fn start(redis: &SharedRedis, number: usize) -> Outcome<Self> {
        let mut audit = Audit::new("fenced", "order", Register::Tokens("register".into()));
        (audit.workers, audit.turns, audit.seed) = (2, 1_000_000, number as u64);
        audit.longest_hold = Duration::from_millis(1);
        if number.is_multiple_of(2) && KIND.is_in_redisson() {
            let peer = Peer::options().watchdog(WATCHDOG).start(redis).await?;
            peer.audit(&audit);
            return Ok(Self::Java(peer));
        }
        let numbers = [audit.workers.into(), audit.turns, 1, audit.seed].map(|number| number.to_string());
        let process = Command::new(env!("CARGO_BIN_EXE_auditor"))
            .args([&redis.url(), &WATCHDOG.as_millis().to_string(), &audit.mix, &audit.name])
            .args(numbers)
            .arg(audit.register.key())
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .kill_on_drop(true)
            .spawn()?;
        Ok(Self::Rust(process))
    }

    fn java_client(&self) -> Option<String> {
        match self {
            Self::Java(peer) => Some(peer.client().to_owned()),
            Self::Rust(_) => None,
        }
    }

    async fn kill(self) -> Outcome {
        match self {
            Self::Java(peer) => peer.kill9(),
            Self::Rust(mut process) => Ok(process.kill().await?),
        }
    }
}

fn token_of(guard: &redlatch::Guard) -> Outcome<u64> {
    let token = guard.fencing_token().ok_or_else(|| Failure::new("a guard without a token"))?;
    Ok(token.get())
}
