//! A process of ours that can be killed while it holds a lock, or waits for one.

use std::process::Stdio;
use std::time::Duration;

use compat_tests::{Failure, LockKind, Outcome, SharedRedis, within};
use tokio::io::{AsyncBufReadExt, BufReader, Lines};
use tokio::process::{Child, ChildStdout, Command};

/// How one is started.
pub(crate) struct Options {
    kind: LockKind,
    name: String,
    watchdog: Duration,
    wait: Option<Duration>,
    lease: Option<Duration>,
}

/// Killed when dropped.
pub(crate) struct Holder {
    process: Child,
    lines: Lines<BufReader<ChildStdout>>,
    owner: String,
}

impl Options {
    pub(crate) fn watchdog(mut self, timeout: Duration) -> Self {
        self.watchdog = timeout;
        self
    }

    pub(crate) fn wait(mut self, wait: Duration) -> Self {
        self.wait = Some(wait);
        self
    }

    pub(crate) fn lease(mut self, lease: Option<Duration>) -> Self {
        self.lease = lease;
        self
    }

    /// Returns when it has begun to wait.
    pub(crate) async fn start(self, redis: &SharedRedis) -> Outcome<Holder> {
        let time = |time: Option<Duration>| time.map_or("-".to_owned(), |time| time.as_millis().to_string());
        let mut process = Command::new(env!("CARGO_BIN_EXE_holder"))
            .args([redis.url(), time(Some(self.watchdog)), self.name, self.kind.to_string()])
            .args([time(self.wait), time(self.lease)])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()?;
        let stdout = process.stdout.take().ok_or_else(|| Failure::new("the holder has no stdout"))?;
        let mut holder = Holder { process, lines: BufReader::new(stdout).lines(), owner: String::new() };
        holder.owner = holder.line("the holder's owner").await?;
        Ok(holder)
    }
}

impl Holder {
    /// A watchdog hold, waited for without a bound, renewed as Redisson does by default.
    pub(crate) fn of(kind: LockKind, name: &str) -> Options {
        Options { kind, name: name.into(), watchdog: Duration::from_secs(30), wait: None, lease: None }
    }

    /// Who it is on the wire.
    pub(crate) fn owner(&self) -> &str {
        &self.owner
    }

    /// Waits until it holds the lock.
    pub(crate) async fn holds(&mut self) -> Outcome {
        let line = self.line("the holder's hold").await?;
        if line == "held" { Ok(()) } else { Err(Failure::new(format!("the holder said {line}"))) }
    }

    /// Kills the process as `kill -9` does, and returns when it is gone.
    pub(crate) async fn kill9(&mut self) -> Outcome {
        Ok(self.process.kill().await?)
    }

    async fn line(&mut self, what: &str) -> Outcome<String> {
        let line = within(Duration::from_secs(10), what, self.lines.next_line()).await??;
        line.ok_or_else(|| Failure::new(format!("the holder ended before {what}")))
    }
}
