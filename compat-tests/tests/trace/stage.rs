//! Plays a case on one side and reads off the server what it left behind.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use compat_tests::{Command, Failure, JavaError, Outcome, Source, Trace, eventually};
use redis::AsyncCommands;
use redlatch::{Error, Guard};

use crate::support::Pair;
use crate::{Call, Case};

use Call::{ForceRelease, HeldByStranger, Lock, LockFor, Release, TryLock, TryLockWithin};

/// Where the cases are played.
pub(crate) struct Stage {
    pub(crate) trace: Trace,
    pub(crate) pair: Pair,
}

impl Stage {
    /// Plays the case on a lock of its own and says what the call left behind, with names and ids replaced.
    pub(crate) async fn play(&mut self, side: Source, case: &Case, prefix: &str) -> Outcome<BTreeSet<String>> {
        let name = format!("{prefix}-{side:?}-{}", case.name);
        let mut guards = BTreeMap::new();
        for &call in case.before {
            self.call(side, &name, call, &mut guards).await?;
        }
        self.settled(side).await?;
        self.trace.section().await?;
        let before = self.keyspace(&name).await?;

        let result = self.call(side, &name, case.call, &mut guards).await?;
        let commands = self.settled(side).await?;
        let after = self.keyspace(&name).await?;

        let mut effects = BTreeSet::from([format!("result {result}"), sent(side, &commands, case.call)]);
        effects.extend(after.iter().map(|(key, value)| format!("key {key} {value}")));
        for words in commands.iter().map(|command| &command.words) {
            match words[0].as_str() {
                "publish" => effects.insert(format!("message {} {}", words[1], words[2])),
                "subscribe" | "ssubscribe" => effects.insert(format!("listens {} {}", words[0], words[1])),
                "set" | "hset" | "hincrby" | "incr" if touches_nothing_left(&words[1], &before, &after) => {
                    effects.insert(format!("passing key {}", words[1]))
                }
                _ => false,
            };
        }
        let client = match side {
            Source::Java => self.pair.peer.client().to_owned(),
            _ => self.pair.client.id().to_string(),
        };
        let effects =
            effects.iter().map(|effect| with_placeholders(&effect.replace(&name, "N").replace(&client, "$A")));
        let effects = effects.collect();
        // Watchdogs must not go on behind the case.
        for guard in guards.into_values().flatten() {
            let _ended_by_the_case: Result<(), Error> = guard.release().await;
        }
        if case.before.iter().chain([&case.call]).any(|call| matches!(call, Lock(_) | TryLock(_))) {
            self.pair.peer.lock(&name, 1).force_unlock().await?;
        }
        self.pair.redis.admin().del::<_, ()>(&name).await?;
        Ok(effects)
    }

    async fn call(&self, side: Source, name: &str, call: Call, guards: &mut Guards) -> Outcome<String> {
        if let HeldByStranger = call {
            let mut admin = self.pair.redis.admin();
            redis::pipe().hset(name, STRANGER, 1).pexpire(name, 30_000).exec_async(&mut admin).await?;
            return Ok("stranger holds".into());
        }
        match side {
            Source::Java => self.call_java(name, call).await,
            _ => self.call_rust(name, call, guards).await,
        }
    }

    async fn call_java(&self, name: &str, call: Call) -> Outcome<String> {
        let thread = |thread| self.pair.peer.lock(name, thread);
        let granted = |is_granted| Ok(if is_granted { "granted" } else { "refused" }.to_owned());
        match call {
            Lock(id) => thread(id).lock().await.map(|()| true).map_err(Failure::from).and_then(granted),
            LockFor(id, lease) => {
                thread(id).lock_for(lease).await.map(|()| true).map_err(Failure::from).and_then(granted)
            }
            TryLock(id) => granted(thread(id).try_lock().await?),
            TryLockWithin(id, wait) => granted(thread(id).try_lock_within(wait).await?),
            Release(id) => match thread(id).unlock().await {
                Ok(()) => Ok("released".into()),
                Err(error) if JavaError::is_not_owner(&error) => Ok("not the owner".into()),
                Err(error) => Err(error.into()),
            },
            ForceRelease => Ok(format!("forced {}", thread(1).force_unlock().await?)),
            HeldByStranger => Err(Failure::new("not a call of Java's")),
        }
    }

    async fn call_rust(&self, name: &str, call: Call, guards: &mut Guards) -> Outcome<String> {
        let client = &self.pair.client;
        let lock = client.lock(name);
        let owned = |id| Ok::<_, Failure>(lock.owned_by(&client.owner_with_thread_id(id)?));
        let (id, guard) = match call {
            Lock(id) => (id, Some(owned(id)?.lock().await?)),
            LockFor(id, lease) => (id, Some(owned(id)?.lock().lease(lease).await?)),
            TryLock(id) => (id, owned(id)?.try_lock().await?),
            TryLockWithin(id, wait) => (id, owned(id)?.try_lock().wait(wait).await?),
            Release(id) => {
                let released = match guards.get_mut(&id).and_then(Vec::pop) {
                    Some(guard) => guard.release().await,
                    None => owned(id)?.release().await,
                };
                return match released {
                    Ok(()) => Ok("released".into()),
                    Err(Error::NotOwner { .. }) => Ok("not the owner".into()),
                    Err(error) => Err(error.into()),
                };
            }
            ForceRelease => return Ok(format!("forced {}", lock.force_release().await?)),
            HeldByStranger => return Err(Failure::new("not a call of Rust's")),
        };
        let is_granted = guard.is_some();
        guards.entry(id).or_default().extend(guard);
        Ok(if is_granted { "granted" } else { "refused" }.into())
    }

    /// What was sent since the last section. Redisson deletes its unlock latch behind the answer: that is waited for.
    async fn settled(&mut self, side: Source) -> Outcome<Vec<Command>> {
        let mut commands = self.trace.section().await?;
        let uses_latch = |command: &Command| command.words.get(1).is_some_and(|key| key.starts_with(LATCH));
        let asked =
            commands.iter().filter(|command| command.source == Source::Script && is_latch_check(command)).count();
        let deletes = |commands: &[Command]| {
            commands
                .iter()
                .filter(|command| command.source == side && command.words[0] == "del" && uses_latch(command))
                .count()
        };
        let trace = &mut self.trace;
        eventually(Duration::from_secs(2), "Redisson deletes its unlock latch", async || {
            if deletes(&commands) < asked {
                commands.extend(trace.section().await?);
            }
            Ok(deletes(&commands) >= asked)
        })
        .await?;
        Ok(commands)
    }

    /// The keys of this lock, each with its value and the time it has left, rounded up to seconds.
    async fn keyspace(&self, name: &str) -> Outcome<BTreeMap<String, String>> {
        let mut admin = self.pair.redis.admin();
        let keys: Vec<String> = redis::cmd("KEYS").arg("*").query_async(&mut admin).await?;
        let mut keyspace = BTreeMap::new();
        for key in keys.into_iter().filter(|key| key.contains(name)) {
            let kind: String = redis::cmd("TYPE").arg(&key).query_async(&mut admin).await?;
            let left: i64 = admin.pttl(&key).await?;
            let value = if kind == "hash" {
                format!("{:?}", admin.hgetall::<_, BTreeMap<String, String>>(&key).await?)
            } else {
                admin.get(&key).await?
            };
            // The latch lives for a random time.
            let left =
                if key.starts_with(LATCH) { "some".into() } else { format!("{} s", (left + 999).div_euclid(1000)) };
            keyspace.insert(key, format!("{kind} {value} ttl {left}"));
        }
        Ok(keyspace)
    }
}

const STRANGER: &str = "ffffffff-ffff-ffff-ffff-ffffffffffff:9";
const LATCH: &str = "redisson_unlock_latch:";

/// Rust guards by thread id.
type Guards = BTreeMap<i64, Vec<Guard>>;

fn is_latch_check(command: &Command) -> bool {
    command.words[0] == "get" && command.words.get(1).is_some_and(|key| key.starts_with(LATCH))
}

fn touches_nothing_left(key: &str, before: &BTreeMap<String, String>, after: &BTreeMap<String, String>) -> bool {
    !before.contains_key(key) && !after.contains_key(key)
}

/// The commands the side itself sent. How often a wait asks is its own affair; `lock.rs` bounds it.
fn sent(side: Source, commands: &[Command], call: Call) -> String {
    if let TryLockWithin(..) = call {
        return "sends as it waits".into();
    }
    let own = commands.iter().filter(|command| command.source == side);
    let words = own.map(|command| match command.words[0].as_str() {
        "eval" | "evalsha" => "script",
        other => other,
    });
    format!("sends {}", words.collect::<Vec<_>>().join(" "))
}

/// Request ids: 32 hexadecimal digits at the end of a key.
fn with_placeholders(effect: &str) -> String {
    let words = effect.split(' ').map(|word| match word.rsplit_once(':') {
        Some((key, id)) if id.len() == 32 && id.bytes().all(|byte| byte.is_ascii_hexdigit()) => {
            format!("{key}:$REQ")
        }
        _ => word.to_owned(),
    });
    words.collect::<Vec<_>>().join(" ")
}
