//! One side of a run: a server of its own, and the clients that act on it.

use std::collections::BTreeMap;
use std::time::Duration;

use futures_util::future::try_join_all;
use redis::aio::MultiplexedConnection;
use redlatch::Uuid;
use serde_json::Value;
use tokio::time::{Instant, sleep_until, timeout};

use super::call::{Args, CLIENTS, Call, Op, Owner, Step};
use super::fault::Fault;
use super::forecast::{Cast, Language, PATIENCE_MS, WATCHDOG_MS};
use super::java;
use crate::replay::client::{ClientProcess, Running};
use crate::replay::lane::Lane;
use crate::replay::listener::Heard;
use crate::replay::names::{Bindings, Names};
use crate::replay::protocol::{self, CallError, Start};
use crate::replay::rules::Span;
use crate::replay::snapshot::Snapshot;
use crate::{Failure, Outcome, Peer, SharedRedis, now_us};

/// An answer that is later than planned by this much will not come.
const LIMIT: Duration = Duration::from_secs(6);
/// The class of an answer that did not come.
const NO_ANSWER: &str = "NoAnswer";

/// What a side is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Plan {
    /// As the report calls it.
    pub(crate) name: &'static str,
    pub(crate) cast: Cast,
    /// Whether clients of this crate hand locks over among themselves, which publishes nothing.
    pub(crate) handoff: bool,
}

/// The side that tells what is right.
pub(crate) const ALL_JAVA: Plan = Plan { name: "Java", cast: [Language::Java; CLIENTS.len()], handoff: false };

/// The clock of a round: every time is in milliseconds since its beginning.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Clock {
    began: Instant,
    wall_us: u64,
}

impl Clock {
    pub(crate) fn start_in(ms: i64) -> Self {
        let ms = u64::try_from(ms).unwrap_or(0);
        Self { began: Instant::now() + Duration::from_millis(ms), wall_us: now_us() + ms * 1_000 }
    }

    pub(crate) fn now(&self) -> i64 {
        i64::try_from(self.began.elapsed().as_millis()).unwrap_or(i64::MAX)
    }

    fn of(&self, instant: Instant) -> i64 {
        i64::try_from(instant.saturating_duration_since(self.began).as_millis()).unwrap_or(i64::MAX)
    }

    fn of_wall_us(&self, us: u64) -> i64 {
        i64::try_from(us.saturating_sub(self.wall_us) / 1_000).unwrap_or(i64::MAX)
    }

    /// Unix time in milliseconds.
    pub(crate) fn wall(&self, ms: i64) -> i64 {
        i64::try_from(self.wall_us / 1_000).unwrap_or(i64::MAX).saturating_add(ms)
    }

    async fn wait_for(&self, ms: i64) {
        sleep_until(self.began + Duration::from_millis(u64::try_from(ms).unwrap_or(0))).await;
    }
}

/// The end of a call.
#[derive(Clone, Debug)]
pub(crate) struct Answer {
    pub(crate) result: Result<Value, CallError>,
    pub(crate) at: i64,
}

impl Answer {
    fn none(at: i64) -> Self {
        let text = format!("nothing within {LIMIT:?}");
        Self { result: Err(CallError { class: NO_ANSWER.to_owned(), code: None, text }), at }
    }

    /// The call goes on although it should have ended long ago.
    pub(crate) fn is_missing(&self) -> bool {
        matches!(&self.result, Err(error) if error.class == NO_ANSWER)
    }
}

/// A call in the background that has ended.
#[derive(Clone, Debug)]
pub(crate) struct Ended {
    pub(crate) started: usize,
    pub(crate) op: &'static str,
    pub(crate) answer: Answer,
}

/// What a step was like on one side.
#[derive(Clone, Debug)]
pub(crate) struct Observed {
    pub(crate) begun: i64,
    /// When it was done, or begun if it goes on in the background.
    pub(crate) done: i64,
    pub(crate) answer: Option<Answer>,
    /// Heard of since the step before.
    pub(crate) ended: Vec<Ended>,
    /// While the keyspace was read.
    pub(crate) read: Span,
    pub(crate) snapshot: Snapshot,
    pub(crate) heard: Vec<Heard>,
}

/// A side at work.
pub(crate) struct Side {
    pub(crate) plan: Plan,
    pub(crate) names: Names,
    ids: Vec<String>,
    lane: Lane,
    clients: Vec<Option<Speaker>>,
    running: BTreeMap<usize, Begun>,
    /// Ends that were heard of, for the steps that await them.
    ended: BTreeMap<usize, Answer>,
    fault: Option<Fault>,
    /// Last, as the others are connected to it.
    server: SharedRedis,
}

enum Speaker {
    Java(Peer),
    Rust(ClientProcess),
}

struct Begun {
    client: usize,
    op: &'static str,
    at: i64,
    call: Under,
}

/// A call under way.
enum Under {
    Java(java::Reply),
    Rust(Running),
}

impl Side {
    pub(crate) async fn start(plan: Plan, fault: Option<Fault>, kinds: &[&'static str]) -> Outcome<Self> {
        let server = SharedRedis::start().await?;
        let lane = Lane::shared(&server.url(), true).await?;
        let url = server.url();
        let speakers = plan.cast.iter().map(|language| speaker(*language, plan.handoff, &server, &url));
        let started = try_join_all(speakers).await?;
        let (ids, clients): (Vec<_>, Vec<_>) = started.into_iter().map(|(id, speaker)| (id, Some(speaker))).unzip();
        let names = names(&ids);
        let (running, ended) = (BTreeMap::new(), BTreeMap::new());
        let fault = fault.filter(|_| plan.cast.contains(&Language::Rust));
        let mut side = Self { plan, names, ids, lane, clients, running, ended, fault, server };
        side.warm_up(kinds, &[0, 1, 2]).await?;
        Ok(side)
    }

    /// Everything is done once, so that no class is loaded and no connection opened while somebody looks at the clock.
    async fn warm_up(&mut self, kinds: &[&'static str], clients: &[usize]) -> Outcome {
        for kind in kinds {
            for (thread, op, wait_ms) in warm_up(kind) {
                let mut under = Vec::new();
                for client in clients.iter().copied() {
                    let owner = Owner { client, thread };
                    let name = format!("warm-up {kind} {client}");
                    let args = Args::default().with("wait_ms", wait_ms);
                    let call = Call { owner, kind, name, op, args, in_background: false };
                    under.push(self.begin(&call).await?);
                }
                for call in under {
                    // Whatever it says: it may be the second hold of a lock that has one.
                    self.answer(call, &Clock::start_in(0), 0).await?;
                }
            }
        }
        self.lane.clean().await
    }

    /// Forgets what was before.
    pub(crate) async fn clean(&mut self) -> Outcome {
        self.running.clear();
        self.ended.clear();
        self.lane.clean().await
    }

    /// Does the step at its time, and reads the keyspace at its time.
    pub(crate) async fn step(&mut self, step: &Step, clock: &Clock) -> Outcome<Observed> {
        clock.wait_for(step.at).await;
        let begun = clock.now();
        let answer = self.perform(step, clock).await?;
        let done = clock.now();
        if let Some(fault) = self.fault {
            fault.strike(step, answer.as_ref(), self.lane.commands()).await?;
        }
        clock.wait_for(step.reads).await;
        let ended = self.take_ended(clock).await?;
        let (read, snapshot) = self.read(clock).await?;
        let heard = self.lane.published().await?;
        Ok(Observed { begun, done, answer, ended, read, snapshot, heard })
    }

    /// The keyspace, and when it was so. The server's own clock says it: on a busy machine the answer may take long.
    async fn read(&mut self, clock: &Clock) -> Outcome<(Span, Snapshot)> {
        let commands = self.lane.commands().clone();
        let time = async |mut commands: MultiplexedConnection| {
            redis::cmd("TIME").query_async::<(u64, u64)>(&mut commands).await
        };
        let (before, after) = (time(commands.clone()), time(commands.clone()));
        // One connection is served in order.
        let (before, snapshot, after) = tokio::join!(biased; before, self.lane.snapshot(), after);
        let at = |(seconds, us): (u64, u64)| clock.of_wall_us(seconds * 1_000_000 + us);
        Ok((Span { lo: at(before?), hi: at(after?) + 1 }, snapshot?))
    }

    async fn perform(&mut self, step: &Step, clock: &Clock) -> Outcome<Option<Answer>> {
        match &step.op {
            Op::Call(call) => {
                let under = self.begin(call).await?;
                if call.in_background {
                    self.running.insert(
                        step.number,
                        Begun { client: call.owner.client, op: call.op, at: clock.now(), call: under },
                    );
                    return Ok(None);
                }
                Ok(Some(self.answer(under, clock, step.ends).await?))
            }
            Op::Await(started) => {
                if let Some(answer) = self.ended.remove(started) {
                    return Ok(Some(answer));
                }
                let Some(begun) = self.running.remove(started) else {
                    return Err(Failure::new(format!("nothing was started by step {started}")));
                };
                let answer = self.answer(begun.call, clock, step.ends).await;
                answer.map(Some)
            }
            Op::Cancel(started) => {
                let Some(begun) = self.running.get(started) else {
                    return Err(Failure::new(format!("nothing was started by step {started}")));
                };
                match (self.clients[begun.client].as_mut(), &begun.call) {
                    (Some(Speaker::Java(peer)), Under::Java(reply)) => {
                        peer.cancel(reply).await?;
                    }
                    (Some(Speaker::Rust(process)), Under::Rust(running)) => {
                        process.cancel(running).await?;
                    }
                    _ => return Err(Failure::new(format!("what step {started} began has lost its client"))),
                }
                Ok(None)
            }
            Op::Sleep => {
                clock.wait_for(step.ends).await;
                Ok(None)
            }
            Op::Raw { command, .. } => {
                let mut words = redis::Cmd::new();
                for word in command {
                    words.arg(self.names.expand(word, &Bindings::default(), None)?);
                }
                words.exec_async(self.lane.commands()).await?;
                Ok(None)
            }
            Op::Kill(client) => {
                self.running.retain(|_, begun| begun.client != *client);
                match self.clients[*client].take() {
                    Some(Speaker::Java(peer)) => peer.kill9()?,
                    Some(Speaker::Rust(process)) => process.kill().await?,
                    None => {}
                }
                Ok(None)
            }
        }
    }

    async fn begin(&mut self, call: &Call) -> Outcome<Under> {
        let gone = || Failure::new(format!("client {} is gone", CLIENTS[call.owner.client]));
        match self.clients[call.owner.client].as_mut().ok_or_else(gone)? {
            Speaker::Java(peer) => Ok(Under::Java(java::send(peer, call))),
            Speaker::Rust(process) => {
                let args = call.args_json();
                let (kind, key, op) = (call.kind.to_owned(), call.name.clone(), call.op.to_owned());
                let thread = call.owner.thread;
                let call = protocol::Call { id: 0, kind, key, instance: None, thread, op, args };
                Ok(Under::Rust(process.begin(call).await?))
            }
        }
    }

    /// Waits for the end of a call that should have ended at that time.
    async fn answer(&mut self, under: Under, clock: &Clock, ends: i64) -> Outcome<Answer> {
        let limit = LIMIT + Duration::from_millis(u64::try_from(ends - clock.now()).unwrap_or(0));
        Ok(match under {
            Under::Java(reply) => match timeout(limit, java::answer(reply)).await {
                Ok(answer) => {
                    let (result, at_us) = answer?;
                    Answer { result, at: clock.of_wall_us(at_us) }
                }
                Err(_) => Answer::none(clock.now()),
            },
            Under::Rust(mut running) => match timeout(limit, running.answer(2 * limit)).await {
                Ok(answer) => {
                    let answer = answer?;
                    Answer { result: answer.result, at: clock.of(answer.heard) }
                }
                Err(_) => Answer::none(clock.now()),
            },
        })
    }

    /// The calls in the background that have ended since.
    async fn take_ended(&mut self, clock: &Clock) -> Outcome<Vec<Ended>> {
        let mut over = Vec::new();
        for (number, begun) in &mut self.running {
            let is_over = match &mut begun.call {
                Under::Java(reply) => reply.is_answered(),
                Under::Rust(running) => running.ended().is_some(),
            };
            if is_over {
                over.push(*number);
            }
        }
        let mut ended = Vec::new();
        for number in over {
            let Some(begun) = self.running.remove(&number) else { continue };
            let answer = self.answer(begun.call, clock, begun.at).await?;
            self.ended.insert(number, answer.clone());
            ended.push(Ended { started: number, op: begun.op, answer });
        }
        ended.sort_by_key(|ended| ended.answer.at);
        Ok(ended)
    }

    /// Starts clients anew that went away.
    pub(crate) async fn restore(&mut self, kinds: &[&'static str]) -> Outcome {
        let gone: Vec<usize> = (0..CLIENTS.len()).filter(|client| self.clients[*client].is_none()).collect();
        for client in &gone {
            let url = self.server.url();
            let (id, speaker) = speaker(self.plan.cast[*client], self.plan.handoff, &self.server, &url).await?;
            self.ids[*client] = id;
            self.names = names(&self.ids);
            self.clients[*client] = Some(speaker);
        }
        self.warm_up(kinds, &gone).await
    }

    /// Whether a call is left that nobody will await.
    pub(crate) fn is_busy(&self) -> bool {
        !self.running.is_empty()
    }

    /// Ends every process that is left.
    pub(crate) async fn end(self) -> Outcome {
        for client in self.clients.into_iter().flatten() {
            match client {
                Speaker::Java(peer) => peer.kill9()?,
                Speaker::Rust(process) => process.kill().await?,
            }
        }
        Ok(())
    }
}

fn names(ids: &[String]) -> Names {
    Names::new(CLIENTS.iter().zip(ids).map(|(name, id)| ((*name).to_owned(), id.clone())))
}

async fn speaker(language: Language, handoff: bool, server: &SharedRedis, url: &str) -> Outcome<(String, Speaker)> {
    match language {
        Language::Java => {
            let watchdog = Duration::from_millis(u64::try_from(WATCHDOG_MS).unwrap_or(0));
            let peer = Peer::options().watchdog(watchdog).setting("fairLockWaitTimeout", PATIENCE_MS);
            // Compiled once and plainly: what the second compiler would gain is spent before the run is over.
            let peer = peer.jvm("-XX:TieredStopAtLevel=1").start(server).await?;
            Ok((peer.client().to_owned(), Speaker::Java(peer)))
        }
        Language::Rust => {
            let client_id = Uuid::new_v4().to_string();
            let start = Start {
                url: url.to_owned(),
                client_id: client_id.clone(),
                watchdog_ms: u64::try_from(WATCHDOG_MS).unwrap_or(0),
                fair_patience_ms: u64::try_from(PATIENCE_MS).unwrap_or(0),
                local_handoff: handoff,
            };
            Ok((client_id, Speaker::Rust(ClientProcess::start(&start).await?)))
        }
    }
}

/// Calls of two threads after which nothing is held. The second thread waits in vain, which opens what waiting needs.
fn warm_up(kind: &str) -> Vec<(i64, &'static str, Option<i64>)> {
    let mut calls = vec![
        (1, "tryLock", Some(0)),
        (1, "lock", None),
        (2, "tryLock", Some(20)),
        (1, "isLocked", None),
        (1, "isHeldByCurrentThread", None),
        (1, "getHoldCount", None),
        (1, "remainTimeToLive", None),
        (1, "unlock", None),
        (1, "unlock", None),
        (2, "forceUnlock", None),
        (2, "tryLock", None),
        (2, "unlock", None),
    ];
    if kind == "fenced" {
        calls.extend([(1, "tryLockAndGetToken", Some(0)), (1, "getToken", None), (1, "unlock", None)]);
    }
    calls
}
