//! A client of a scenario, in a process of its own so that it can be killed.

mod locks;

use std::collections::HashMap;
use std::error::Error as _;
use std::io::{Write, stdout};
use std::sync::Arc;
use std::time::Duration;

use redlatch::{Client, Error, Misuse, Uuid};
use serde_json::Value;
use tokio::io::{AsyncBufReadExt, BufReader, Lines, Stdin, stdin};
use tokio::sync::oneshot;
use tokio::time::Instant;

use super::protocol::{self, Call, CallError, Line, Start};
use crate::{Failure, Outcome};

/// The client and all it holds.
struct Session {
    client: Client,
    locks: locks::Locks,
}

/// Serves until the input ends, then leaves without releasing anything.
pub(crate) async fn serve() -> Outcome {
    let mut lines = BufReader::new(stdin()).lines();
    let session = match connect(&mut lines).await {
        Ok(session) => Arc::new(session),
        Err(error) => return say(&Line::Refused(format!("{error:?}"))),
    };
    say(&Line::Ready)?;
    run_calls(&mut lines, session).await?;
    // Guards and the client's own tasks go with the process.
    std::process::exit(0);
}

async fn connect(lines: &mut Lines<BufReader<Stdin>>) -> Outcome<Session> {
    let line = lines.next_line().await?.ok_or_else(|| Failure::new("no first line"))?;
    let start: Start = serde_json::from_str(&line)?;
    let client = Client::builder()
        .url(start.url)
        .client_id(Uuid::parse_str(&start.client_id)?)
        .watchdog_timeout(Duration::from_millis(start.watchdog_ms))
        .fair_patience(Duration::from_millis(start.fair_patience_ms))
        // As Redisson: who reads and asks to write waits.
        .upgrade_waits(true)
        .local_handoff(start.local_handoff)
        .connect()
        .await?;
    Ok(Session { client, locks: locks::Locks::default() })
}

async fn run_calls(lines: &mut Lines<BufReader<Stdin>>, session: Arc<Session>) -> Outcome {
    // Those that may be cancelled: a dropped sender says so, too, and is never dropped here.
    let mut cancels: HashMap<u64, oneshot::Sender<()>> = HashMap::new();
    while let Some(line) = lines.next_line().await? {
        let call: Call = serde_json::from_str(&line)?;
        if call.op == protocol::CANCEL {
            let sender = call.args.get("id").and_then(Value::as_u64).and_then(|id| cancels.remove(&id));
            let was_running = sender.is_some_and(|sender| sender.send(()).is_ok());
            say(&Line::Started { id: call.id })?;
            say(&Line::Ended { id: call.id, micros: 0, result: Ok(was_running.into()) })?;
            continue;
        }
        let session = session.clone();
        let (sender, cancelled) = oneshot::channel();
        cancels.insert(call.id, sender);
        tokio::spawn(async move {
            let started = Instant::now();
            say(&Line::Started { id: call.id })?;
            let result = tokio::select! {
                result = session.locks.run(&session.client, &call) => result,
                // The future of the call is dropped, as a caller does who has changed its mind.
                Ok(()) = cancelled => Err(CallError::cancelled()),
            };
            let micros = u64::try_from(started.elapsed().as_micros()).unwrap_or(u64::MAX);
            say(&Line::Ended { id: call.id, micros, result })
        });
    }
    Ok(())
}

/// Tells the replay. If it does not listen any more it has ended, and the end of the input ends this process.
fn say(line: &Line) -> Outcome {
    let mut text = serde_json::to_string(line)?;
    text.push('\n');
    let mut out = stdout().lock();
    out.write_all(text.as_bytes())?;
    Ok(out.flush()?)
}

impl From<Error> for CallError {
    fn from(error: Error) -> Self {
        let class = match &error {
            Error::AlreadyHeld { .. } => "AlreadyHeld",
            Error::Closed => "Closed",
            Error::ForeignData { .. } => "ForeignData",
            Error::LeaseLost(_) => "LeaseLost",
            Error::Misuse(Misuse::EmptyName) => "Misuse::EmptyName",
            Error::Misuse(_) => "Misuse",
            Error::NotOwner { .. } => "NotOwner",
            Error::Redis { .. } => "Redis",
            Error::UnexpectedReply { .. } => "UnexpectedReply",
            Error::Unresolved { .. } => "Unresolved",
            Error::UpgradeImpossible { .. } => "UpgradeImpossible",
            _ => "Other",
        };
        let mut code = None;
        let mut cause = error.source();
        while let Some(error) = cause {
            if let Some(error) = error.downcast_ref::<redis::RedisError>() {
                code = error.code().map(str::to_owned);
            }
            cause = error.source();
        }
        Self { class: class.to_owned(), code, text: error.to_string() }
    }
}
