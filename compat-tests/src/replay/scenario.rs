//! One scenario, step by step.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use redlatch::Uuid;
use serde_json::Value;
use tokio::time::{Instant, sleep};

use super::client::{Answer, ClientProcess, Running};
use super::compare::{Context, Scope, differences};
use super::expect::{Expectation, Seen};
use super::format::{Scenario, Step};
use super::lane::Lane;
use super::names::{Bindings, Names, holds_raw_permits, permit_bytes};
use super::protocol::{Call, Start};
use super::rules::{Ended, Facts, Rule, Rules, Span, is_granted, perform_absent};
use crate::{Failure, Outcome};

/// An operation that does not say itself how long it may take must end within this.
const LIMIT: Duration = Duration::from_secs(60);

/// A scenario is replayed twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pass {
    /// Every release goes through Redis, as in the recording: everything is compared.
    Plain,
    /// Releases may be handed to a waiter of the same process, which publishes nothing (`local-transfer`): grants and the
    /// state at the end are compared.
    LocalHandoff,
}

impl Pass {
    pub(crate) const ALL: [Self; 2] = [Self::Plain, Self::LocalHandoff];

    fn scope(self, last: bool) -> Scope {
        match self {
            Self::Plain => Scope::Everything,
            Self::LocalHandoff => Scope::GrantsAndEndState { last },
        }
    }
}

/// Replays the scenario; says which rules it needed. The failure names the step and what differs.
pub(crate) async fn replay(lane: &mut Lane, scenario: &Scenario, pass: Pass) -> Outcome<BTreeSet<Rule>> {
    lane.clean().await?;
    let mut run = Run::prepare(lane, scenario, pass).await?;
    let result = run.all_steps().await;
    for (_, client) in std::mem::take(&mut run.clients) {
        client.kill().await?;
    }
    result.map(|()| run.needed)
}

struct Run<'a> {
    lane: &'a mut Lane,
    scenario: &'a Scenario,
    pass: Pass,
    names: Names,
    bindings: Bindings,
    clients: BTreeMap<String, ClientProcess>,
    running: BTreeMap<String, Handle<'a>>,
    rules: Rules,
    needed: BTreeSet<Rule>,
    began: Instant,
}

/// An operation that was started and not waited for.
struct Handle<'a> {
    running: Running,
    begun: Instant,
    begun_by: &'a Step,
    /// The rules know of its end.
    told: bool,
}

/// What the operation of a step came to.
#[derive(Default)]
struct Done {
    result: Option<Answer>,
    /// The operation was started earlier, then.
    begun: Option<Instant>,
}

impl<'a> Run<'a> {
    async fn prepare(lane: &'a mut Lane, scenario: &'a Scenario, pass: Pass) -> Outcome<Self> {
        let mut ids = Vec::new();
        let mut clients = BTreeMap::new();
        for name in scenario.clients.keys() {
            let id = Uuid::new_v4().to_string();
            let start = Start {
                url: lane.url().to_owned(),
                client_id: id.clone(),
                watchdog_ms: scenario.config.lock_watchdog_timeout,
                fair_patience_ms: scenario.config.fair_lock_wait_timeout,
                local_handoff: pass == Pass::LocalHandoff,
            };
            clients.insert(name.clone(), ClientProcess::start(&start).await?);
            ids.push((name.clone(), id));
        }
        Ok(Self {
            lane,
            scenario,
            pass,
            names: Names::new(ids),
            bindings: Bindings::default(),
            clients,
            running: BTreeMap::new(),
            rules: Rules::new(scenario),
            needed: BTreeSet::new(),
            began: Instant::now(),
        })
    }

    async fn all_steps(&mut self) -> Outcome {
        self.began = Instant::now();
        let steps = &self.scenario.steps;
        for (index, step) in steps.iter().enumerate() {
            let located = |failure: Failure| {
                let on = step.key.as_ref().map(|key| format!(" {key:?}")).unwrap_or_default();
                Failure::new(format!("step {} ({}{on}): {failure:?}", index + 1, step.op))
            };
            self.step(step, index + 1 == steps.len()).await.map_err(located)?;
        }
        Ok(())
    }

    async fn step(&mut self, step: &'a Step, last: bool) -> Outcome {
        let clock = unix_ms();
        let begun_by = step.awaits_handle().and_then(|handle| self.running.get(handle)).map(|handle| handle.begun_by);
        let sent = Instant::now();
        let done = self.perform(step, clock).await?;
        let asked = self.span(sent, Instant::now());
        if let Some(ms) = step.settle_ms {
            sleep(Duration::from_millis(ms)).await;
        }
        let ended = self.ended();
        let reading = Instant::now();
        let snapshot = self.lane.snapshot().await?;
        let read = self.span(reading, Instant::now());
        let heard = self.lane.published().await?;
        let took = done.result.as_ref().map(|answer| {
            let until_awaited = done.begun.map_or(answer.took, |begun| begun.elapsed());
            (answer.took, until_awaited)
        });
        let seen = Seen { result: done.result.map(|answer| answer.result), took, snapshot, heard };
        let behind = behind(step, read);
        let facts = Facts { step, names: &self.names, seen: &seen, asked, read, ended: &ended, behind, clock };
        self.rules.observe(&facts);
        let recorded = Expectation::recorded(step, begun_by.unwrap_or(step));
        let context = Context { names: &self.names, behind: facts.behind, clock };
        let (needed, bindings) = self.compare(&recorded, &seen, &context, last)?;
        self.needed.extend(needed);
        self.bindings = bindings;
        self.rules.passed(&facts);
        Ok(())
    }

    /// Compares with what the rules make of the recording. Says which of them were needed, and the permits known now.
    fn compare(
        &self,
        recorded: &Expectation,
        seen: &Seen,
        context: &Context<'_>,
        last: bool,
    ) -> Outcome<(Vec<Rule>, Bindings)> {
        let scope = self.pass.scope(last);
        let found = |without: Option<Rule>, bindings: &mut Bindings| {
            differences(&self.rules.adjusted(recorded, without), seen, context, scope, bindings)
        };
        let mut bindings = self.bindings.clone();
        let differences = found(None, &mut bindings);
        if !differences.is_empty() {
            return Err(Failure::new(differences.join("; ")));
        }
        let needed = |rule: &Rule| !found(Some(*rule), &mut self.bindings.clone()).is_empty();
        Ok((Rule::ALL.into_iter().filter(needed).collect(), bindings))
    }

    async fn perform(&mut self, step: &'a Step, clock: i64) -> Outcome<Done> {
        if step.object.is_some() {
            return self.call(step).await;
        }
        match step.op.as_str() {
            "sleep" => {
                let ms = step.ms("ms").and_then(|ms| u64::try_from(ms).ok());
                sleep(Duration::from_millis(ms.ok_or_else(|| Failure::new("a sleep without ms"))?)).await;
            }
            "raw" => self.raw(step, clock).await?,
            "shutdown" => {
                let name = step.client.as_deref().unwrap_or_default();
                let client = self.clients.remove(name).ok_or_else(|| Failure::new(format!("no client {name:?}")))?;
                client.kill().await?;
                self.running.retain(|_, handle| handle.begun_by.client.as_deref() != Some(name));
            }
            "await" => {
                let name = step.handle.as_deref().unwrap_or_default();
                let handle = self.running.get_mut(name).ok_or_else(|| Failure::new(format!("no handle {name:?}")))?;
                let answer = handle.running.answer(limit(handle.begun_by)).await?;
                return Ok(Done { result: Some(answer), begun: Some(handle.begun) });
            }
            op => return Err(Failure::new(format!("operation {op:?} is not known"))),
        }
        Ok(Done::default())
    }

    /// An operation of an object.
    async fn call(&mut self, step: &'a Step) -> Outcome<Done> {
        let expand = |text: &str| self.names.expand(text, &self.bindings, None);
        let key = expand(step.key.as_deref().unwrap_or_default())?;
        let begun = Instant::now();
        if let Some(value) = perform_absent(step, &key, self.lane.commands()).await? {
            self.needed.insert(Rule::Absent);
            let answer = Answer { result: Ok(value), took: begun.elapsed(), heard: Instant::now() };
            return Ok(Done { result: Some(answer), begun: None });
        }
        let call = Call {
            id: 0,
            kind: step.object.clone().unwrap_or_default(),
            key,
            instance: step.instance.clone(),
            thread: step.thread.unwrap_or_default(),
            op: step.op.clone(),
            args: self.names.expand_all(&step.args, &self.bindings)?,
        };
        let name = step.client.as_deref().unwrap_or_default();
        let client = self.clients.get_mut(name).ok_or_else(|| Failure::new(format!("no client {name:?}")))?;
        let mut running = client.begin(call).await?;
        if let Some(handle) = step.starts_handle() {
            self.running.insert(handle.to_owned(), Handle { running, begun, begun_by: step, told: false });
            return Ok(Done::default());
        }
        Ok(Done { result: Some(running.answer(limit(step)).await?), begun: None })
    }

    /// A Redis command as it stands; its reply is not looked at, but an error is one.
    async fn raw(&mut self, step: &Step, clock: i64) -> Outcome {
        let words = step.args.get("cmd").and_then(Value::as_array).ok_or_else(|| Failure::new("raw without cmd"))?;
        let raw_permits = words.get(1).and_then(Value::as_str).is_some_and(holds_raw_permits);
        let mut command = redis::Cmd::new();
        for word in words {
            let Value::String(word) = word else {
                command.arg(word.to_string());
                continue;
            };
            let expanded = self.names.expand(word, &self.bindings, Some(clock))?;
            match permit_bytes(&expanded).filter(|_| raw_permits && word.starts_with("$P")) {
                Some(bytes) => command.arg(bytes),
                None => command.arg(expanded),
            };
        }
        command.exec_async(self.lane.commands()).await?;
        Ok(())
    }

    /// Operations under way that have ended and of which the rules do not know yet.
    fn ended(&mut self) -> Vec<Ended> {
        let mut ended = Vec::new();
        let began = self.began;
        for (name, handle) in self.running.iter_mut().filter(|(_, handle)| !handle.told) {
            let Some(answer) = handle.running.ended() else { continue };
            handle.told = true;
            let granted = is_granted(&handle.begun_by.op, &answer.result);
            let at = ms_up(answer.heard.saturating_duration_since(began));
            ended.push(Ended { handle: name.clone(), at, granted });
        }
        ended.sort_by_key(|ended| ended.at);
        ended
    }

    /// In milliseconds since the scenario began, rounded outwards.
    fn span(&self, from: Instant, to: Instant) -> Span {
        let from = from.saturating_duration_since(self.began).as_millis();
        Span { lo: i64::try_from(from).unwrap_or(i64::MAX), hi: ms_up(to.saturating_duration_since(self.began)) }
    }
}

/// By how much this replay read the keyspace later than the recording did.
fn behind(step: &Step, read: Span) -> i64 {
    // The recorded time is a mean and has a fraction; a float holds it exactly enough.
    let recorded = step.t_ms.floor() as i64;
    (read.hi - recorded).max(0)
}

/// How long the replay waits for the operation to end.
fn limit(step: &Step) -> Duration {
    let wait = step.ms("wait_ms").and_then(|ms| u64::try_from(ms).ok()).unwrap_or(0);
    LIMIT + Duration::from_millis(wait).min(10 * LIMIT)
}

fn ms_up(time: Duration) -> i64 {
    i64::try_from(time.as_millis()).unwrap_or(i64::MAX).saturating_add(1)
}

fn unix_ms() -> i64 {
    let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since_epoch.as_millis()).unwrap_or(i64::MAX)
}
