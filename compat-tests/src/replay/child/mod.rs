//! A client of a scenario, in a process of its own so that it can be killed.

mod lock;

use std::error::Error as _;
use std::io::{Write, stdout};
use std::sync::Arc;
use std::time::Duration;

use redlatch::{Client, Error, Misuse, Uuid};
use serde_json::Value;
use tokio::io::{AsyncBufReadExt, BufReader, Lines, Stdin, stdin};
use tokio::time::Instant;

use super::protocol::{Call, CallError, Line, Start};
use crate::{Failure, Outcome};

/// The client and all it holds.
struct Session {
    client: Client,
    locks: lock::Locks,
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
        .local_handoff(start.local_handoff)
        .connect()
        .await?;
    Ok(Session { client, locks: lock::Locks::default() })
}

async fn run_calls(lines: &mut Lines<BufReader<Stdin>>, session: Arc<Session>) -> Outcome {
    while let Some(line) = lines.next_line().await? {
        let call: Call = serde_json::from_str(&line)?;
        let session = session.clone();
        tokio::spawn(async move {
            let started = Instant::now();
            say(&Line::Started { id: call.id })?;
            let result = session.run(&call).await;
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

impl Session {
    async fn run(&self, call: &Call) -> Result<Value, CallError> {
        match call.kind.as_str() {
            "lock" => self.locks.run(&self.client, call).await,
            kind => Err(CallError::replay(format!("the client process does not know kind {kind:?}"))),
        }
    }
}

impl From<Error> for CallError {
    fn from(error: Error) -> Self {
        let class = match &error {
            Error::Closed => "Closed",
            Error::ForeignData { .. } => "ForeignData",
            Error::LeaseLost(_) => "LeaseLost",
            Error::Misuse(Misuse::EmptyName) => "Misuse::EmptyName",
            Error::Misuse(_) => "Misuse",
            Error::NotOwner { .. } => "NotOwner",
            Error::Redis { .. } => "Redis",
            Error::UnexpectedReply { .. } => "UnexpectedReply",
            Error::Unresolved { .. } => "Unresolved",
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
