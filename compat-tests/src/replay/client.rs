//! The replay's side of a client process.

use std::collections::HashMap;
use std::env;
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use serde_json::{Map, Value};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};
use tokio::sync::watch;
use tokio::time::Instant;

use super::protocol::{self, Call, CallError, Line, Start};
use crate::{Failure, Outcome, within};

/// A longer silence than this means that the process is broken, not slow.
const SILENCE: Duration = Duration::from_secs(20);

/// A client of the scenario that runs in a process of its own.
pub(crate) struct ClientProcess {
    process: Child,
    input: ChildStdin,
    calls: Arc<Calls>,
    last_id: u64,
}

/// Operations under way.
type Calls = Mutex<HashMap<u64, watch::Sender<State>>>;

/// How far an operation is.
#[derive(Clone, Debug)]
pub(crate) enum State {
    Sent,
    Started,
    Ended(Answer),
    /// The process went away before.
    Gone,
}

/// The end of an operation.
#[derive(Clone, Debug)]
pub(crate) struct Answer {
    pub(crate) result: Result<Value, CallError>,
    /// How long it took, by the clock of the client process.
    pub(crate) took: Duration,
    /// When this side heard of it.
    pub(crate) heard: Instant,
}

/// An operation that was started.
#[derive(Clone, Debug)]
pub(crate) struct Running {
    id: u64,
    state: watch::Receiver<State>,
}

impl ClientProcess {
    /// Starts one: this very program, as `child`.
    pub(crate) async fn start(start: &Start) -> Outcome<Self> {
        let mut process = Command::new(env::current_exe()?)
            .arg(super::CHILD)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()?;
        let piped = || Failure::new("a client process without pipes");
        let mut input = process.stdin.take().ok_or_else(piped)?;
        let mut output = BufReader::new(process.stdout.take().ok_or_else(piped)?);
        write_line(&mut input, start).await?;
        match within(SILENCE, "a connected client process", read_line(&mut output)).await?? {
            Some(Line::Ready) => {}
            Some(Line::Refused(text)) => return Err(Failure::new(format!("the client was not connected: {text}"))),
            other => return Err(Failure::new(format!("a client process began with {other:?}"))),
        }
        let calls = Arc::new(Calls::default());
        tokio::spawn(hear(output, calls.clone()));
        Ok(Self { process, input, calls, last_id: 0 })
    }

    /// Starts an operation and returns once the process has begun it.
    pub(crate) async fn begin(&mut self, mut call: Call) -> Outcome<Running> {
        self.last_id += 1;
        call.id = self.last_id;
        let (sender, state) = watch::channel(State::Sent);
        self.calls.lock().insert(call.id, sender);
        write_line(&mut self.input, &call).await?;
        let mut running = Running { id: call.id, state };
        within(SILENCE, "the client process taking a call", running.reaches(|state| !matches!(state, State::Sent)))
            .await??;
        Ok(running)
    }

    /// Cancels an operation. Says whether it was under way.
    pub(crate) async fn cancel(&mut self, running: &Running) -> Outcome<bool> {
        let args = Map::from_iter([("id".to_owned(), Value::from(running.id))]);
        let (kind, key, op) = (String::new(), String::new(), protocol::CANCEL.to_owned());
        let mut cancel = self.begin(Call { id: 0, kind, key, instance: None, thread: 0, op, args }).await?;
        Ok(cancel.answer(SILENCE).await?.result == Ok(Value::Bool(true)))
    }

    /// Ends the process at once, as a crash would.
    pub(crate) async fn kill(mut self) -> Outcome {
        self.process.kill().await?;
        Ok(())
    }
}

impl Running {
    /// Waits for the end, but not longer than the limit.
    pub(crate) async fn answer(&mut self, limit: Duration) -> Outcome<Answer> {
        within(limit, "the end of the operation", self.reaches(|state| matches!(state, State::Ended(_)))).await??;
        self.ended().ok_or_else(|| Failure::new("the client process has ended"))
    }

    /// The answer, if there is one already.
    pub(crate) fn ended(&self) -> Option<Answer> {
        match &*self.state.borrow() {
            State::Ended(answer) => Some(answer.clone()),
            _ => None,
        }
    }

    async fn reaches(&mut self, wanted: impl Fn(&State) -> bool) -> Outcome {
        let state = self.state.wait_for(|state| wanted(state) || matches!(state, State::Gone)).await;
        match state.map(|state| state.clone()) {
            Ok(State::Gone) | Err(_) => Err(Failure::new("the client process has ended by itself")),
            Ok(_) => Ok(()),
        }
    }
}

/// Takes what the process says to the calls it is about, until it says no more.
async fn hear(mut output: BufReader<ChildStdout>, calls: Arc<Calls>) {
    while let Ok(Some(line)) = read_line(&mut output).await {
        let heard = Instant::now();
        let calls = calls.lock();
        match line {
            Line::Started { id } => {
                if let Some(state) = calls.get(&id) {
                    state.send_if_modified(|state| {
                        let sent = matches!(state, State::Sent);
                        if sent {
                            *state = State::Started;
                        }
                        sent
                    });
                }
            }
            Line::Ended { id, micros, result } => {
                if let Some(state) = calls.get(&id) {
                    state.send_replace(State::Ended(Answer { result, took: Duration::from_micros(micros), heard }));
                }
            }
            Line::Ready | Line::Refused(_) => {}
        }
    }
    for state in calls.lock().values() {
        state.send_if_modified(|state| {
            let open = !matches!(state, State::Ended(_));
            if open {
                *state = State::Gone;
            }
            open
        });
    }
}

async fn write_line(input: &mut ChildStdin, message: &impl serde::Serialize) -> Outcome {
    let mut line = serde_json::to_vec(message)?;
    line.push(b'\n');
    input.write_all(&line).await?;
    input.flush().await?;
    Ok(())
}

async fn read_line(output: &mut BufReader<ChildStdout>) -> Outcome<Option<Line>> {
    let mut line = String::new();
    if output.read_line(&mut line).await? == 0 {
        return Ok(None);
    }
    Ok(Some(serde_json::from_str(&line)?))
}
