use std::collections::HashMap;
use std::fmt;
use std::future::{Future, IntoFuture};
use std::io::{BufRead, BufReader, Write};
use std::marker::PhantomData;
use std::pin::Pin;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use serde_json::Value;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::task::spawn_blocking;
use tokio::time::timeout;

use crate::{Audit, Failure, Hold, JavaLock, LockKind, Outcome, SharedRedis, built_peer, redisson_version};

/// A JVM with one Redisson client, killed when dropped. The commands are those of `README.md`.
#[derive(Debug)]
pub struct Peer {
    process: Mutex<Child>,
    stdin: Mutex<ChildStdin>,
    waiting: Waiting,
    next_id: AtomicU64,
    client: String,
}

/// How a peer is started.
#[derive(Debug, Default)]
pub struct PeerOptions {
    watchdog: Option<Duration>,
    settings: Vec<String>,
    jvm: Vec<String>,
}

impl PeerOptions {
    /// Sets Redisson's `lockWatchdogTimeout`.
    #[must_use]
    pub fn watchdog(mut self, timeout: Duration) -> Self {
        self.watchdog = Some(timeout);
        self
    }

    /// Sets a setting of Redisson's `Config` or `SingleServerConfig`.
    #[must_use]
    pub fn setting(mut self, key: &str, value: impl fmt::Display) -> Self {
        self.settings.push(format!("{key}={value}"));
        self
    }

    /// Gives the Java machine an option.
    #[must_use]
    pub fn jvm(mut self, option: &str) -> Self {
        self.jvm.push(option.to_owned());
        self
    }

    /// Builds the peer if need be and starts it.
    pub async fn start(self, redis: &SharedRedis) -> Outcome<Peer> {
        let version = redisson_version();
        let asked = version.clone();
        let jar = spawn_blocking(move || built_peer(&asked)).await??;

        let mut command = Command::new("java");
        // Small and quick to start: several of them may run beside each other.
        command.args(["-Xmx256m", "-XX:+UseSerialGC"]).args(&self.jvm).arg("-jar").arg(jar).arg(redis.url());
        command.args(self.watchdog.map(|timeout| timeout.as_millis().to_string()));
        command.arg(format!("clientName={}", Peer::CLIENT_NAME)).args(self.settings);
        let mut process = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .map_err(|error| Failure::new(format!("cannot run java: {error}")))?;
        let (Some(stdin), Some(stdout)) = (process.stdin.take(), process.stdout.take()) else {
            return Err(Failure::new("the Java peer has no stdin or stdout"));
        };
        let waiting = Waiting::default();
        let (ready_sender, mut ready) = unbounded_channel();
        waiting.insert("0", ready_sender);
        let mut peer = Peer {
            process: Mutex::new(process),
            stdin: Mutex::new(stdin),
            waiting: waiting.clone(),
            next_id: AtomicU64::new(1),
            client: String::new(),
        };
        thread::spawn(move || waiting.deliver(stdout));

        let ready = timeout(Duration::from_secs(30), ready.recv()).await;
        let line = ready.ok().flatten().ok_or_else(|| Failure::new("the Java peer did not start within 30 s"))?;
        let client = line["client"].as_str().ok_or_else(|| Failure::new(format!("the Java peer answered {line}")))?;
        if line["redisson"] != version.as_str() {
            return Err(Failure::new(format!("asked for Redisson {version}, running is {}", line["redisson"])));
        }
        client.clone_into(&mut peer.client);
        Ok(peer)
    }
}

impl Peer {
    /// The name of its connections in `CLIENT LIST`.
    pub(crate) const CLIENT_NAME: &str = "java";

    /// Starts one with Redisson's defaults.
    pub async fn start(redis: &SharedRedis) -> Outcome<Self> {
        PeerOptions::default().start(redis).await
    }

    /// Settings first.
    pub fn options() -> PeerOptions {
        PeerOptions::default()
    }

    /// The Redisson client's id: a UUID, the first half of its owners on the wire.
    pub fn client(&self) -> &str {
        &self.client
    }

    /// The lock of that name as this thread id sees it, through the asynchronous API.
    pub fn lock(&self, name: &str, thread: i64) -> JavaLock<'_> {
        self.lock_of(LockKind::Lock, name, thread)
    }

    /// The same of any kind.
    pub fn lock_of(&self, kind: LockKind, name: &str, thread: i64) -> JavaLock<'_> {
        JavaLock::new(self, kind, name, thread)
    }

    /// Cancels a call that waits: the future of an asynchronous one, the thread of a synchronous one. False when it had
    /// ended, or not begun because its thread was busy.
    pub fn cancel<T>(&self, call: &Reply<T>) -> Reply<bool> {
        self.call("cancel", &[&call.id])
    }

    /// Threads that lock, hold and unlock until `until_us` (wall clock, microseconds since the epoch).
    pub fn work(&self, name: &str, threads: u32, hold: Duration, until_us: u64) -> JavaRun {
        self.work_of(LockKind::Lock, name, threads, hold, until_us)
    }

    /// The same with a lock of any kind.
    pub fn work_of(&self, kind: LockKind, name: &str, threads: u32, hold: Duration, until_us: u64) -> JavaRun {
        let numbers = [u128::from(threads), hold.as_millis(), u128::from(until_us / 1000)];
        self.run(&format!("work@{kind}"), name, &numbers.map(|number| number.to_string()))
    }

    /// Threads that take turns whose holds a register checks.
    pub fn audit(&self, audit: &Audit) -> JavaRun {
        let numbers = [
            audit.workers.to_string(),
            audit.turns.to_string(),
            audit.longest_hold.as_millis().to_string(),
            audit.seed.to_string(),
        ];
        let [workers, turns, hold, seed] = numbers.each_ref().map(String::as_str);
        let register = &audit.register;
        let words = [
            audit.mix.as_str(),
            &audit.name,
            workers,
            turns,
            hold,
            seed,
            register.key(),
            register.enter(),
            register.leave(),
        ];
        JavaRun(self.send("audit", &words).1)
    }

    /// One thread that calls `tryLock()` again and again until `until_us`, and unlocks at once.
    pub fn poll(&self, name: &str, interval: Duration, until_us: u64) -> JavaRun {
        self.run("poll", name, &[interval.as_millis().to_string(), (until_us / 1000).to_string()])
    }

    fn run(&self, verb: &str, name: &str, numbers: &[String]) -> JavaRun {
        let words: Vec<&str> = [name].into_iter().chain(numbers.iter().map(String::as_str)).collect();
        JavaRun(self.send(verb, &words).1)
    }

    /// Sends a command at once; the reply may be awaited later or not at all.
    pub fn call<T: FromAnswer>(&self, verb: &str, arguments: &[&str]) -> Reply<T> {
        let (id, lines) = self.send(verb, arguments);
        Reply { id, lines, answered: None, of: PhantomData }
    }

    fn send(&self, verb: &str, arguments: &[&str]) -> (String, UnboundedReceiver<Value>) {
        let id = self.next_id.fetch_add(1, Ordering::Relaxed).to_string();
        let (sender, receiver) = unbounded_channel();
        self.waiting.insert(&id, sender);
        let mut line = format!("{id} {verb}");
        for argument in arguments {
            line.push(' ');
            line.extend(argument.bytes().map(encoded));
        }
        line.push('\n');
        if locked(&self.stdin).write_all(line.as_bytes()).is_err() {
            // The process is gone: the reply says so, as for every other command it did not answer.
            self.waiting.remove(&id);
        }
        (id, receiver)
    }

    /// Kills the process as `kill -9` does, and returns when it is gone.
    pub fn kill9(&self) -> Outcome {
        let mut process = locked(&self.process);
        process.kill()?;
        process.wait()?;
        Ok(())
    }

    /// Shuts the Redisson client down in its own way and waits for the end of the process.
    pub async fn exit(self) -> Outcome {
        self.call::<()>("exit", &[]).await?;
        spawn_blocking(move || locked(&self.process).wait()).await??;
        Ok(())
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        // Fails only when it has been killed already.
        let _: Outcome = self.kill9();
    }
}

/// Why a call of the peer has no value.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum JavaError {
    /// The process ended before it answered.
    Gone,
    /// Redisson threw.
    Thrown {
        /// Simple name of the exception's class.
        class: String,
        /// Its message.
        message: String,
    },
    /// No answer within [`Reply::LIMIT`].
    TimedOut,
    /// An answer that is not of the form agreed on.
    Unreadable(String),
}

impl JavaError {
    /// Whether Redisson refused because the caller does not hold the lock.
    pub fn is_not_owner(&self) -> bool {
        self.is_a("IllegalMonitorStateException")
    }

    /// Whether Redisson threw an exception of this class, by its simple name.
    pub fn is_a(&self, class: &str) -> bool {
        matches!(self, Self::Thrown { class: thrown, .. } if thrown == class)
    }
}

impl fmt::Display for JavaError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Gone => f.write_str("the Java peer ended before it answered"),
            Self::Thrown { class, message } => write!(f, "Java threw {class}: {message}"),
            Self::TimedOut => write!(f, "no answer of the Java peer within {:?}", Reply::<()>::LIMIT),
            Self::Unreadable(line) => write!(f, "the Java peer answered {line}"),
        }
    }
}

impl std::error::Error for JavaError {}

/// The answer to come of a command that has been sent.
#[derive(Debug)]
pub struct Reply<T> {
    id: String,
    lines: UnboundedReceiver<Value>,
    answered: Option<Value>,
    of: PhantomData<fn() -> T>,
}

impl<T: FromAnswer> Reply<T> {
    /// Longer than any call of the suite should take, shorter than patience.
    pub const LIMIT: Duration = Duration::from_secs(90);

    /// Whether the answer is there already.
    pub fn is_answered(&mut self) -> bool {
        if self.answered.is_none() {
            self.answered = self.lines.try_recv().ok();
        }
        self.answered.is_some()
    }

    /// The value, and when the call had ended (wall clock, microseconds since the epoch).
    pub async fn timed(mut self) -> Result<(T, u64), JavaError> {
        let line = match self.answered.take() {
            Some(line) => line,
            None => next_line(&mut self.lines, Self::LIMIT).await?,
        };
        let at = line["at_us"].as_u64();
        match (T::from_answer(&line["value"]), at) {
            (Some(value), Some(at)) if line.get("value").is_some() => Ok((value, at)),
            _ => Err(thrown(&line)),
        }
    }
}

impl<T: FromAnswer + 'static> IntoFuture for Reply<T> {
    type Output = Result<T, JavaError>;
    type IntoFuture = Pin<Box<dyn Future<Output = Self::Output> + Send>>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(async move { Ok(self.timed().await?.0) })
    }
}

/// `work` or `poll`, under way.
#[derive(Debug)]
pub struct JavaRun(UnboundedReceiver<Value>);

/// What came of a `work` or `poll`.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct RunReport {
    /// Every hold, in the order of their ends.
    pub holds: Vec<Hold>,
    /// Calls of `lock()` or `tryLock()`.
    pub attempts: u64,
    /// How many holds there were; those of an audit are not listed.
    pub count: u64,
    /// Holds that the register of an audit refused.
    pub refused: u64,
    /// What threads ended with that met an error.
    pub errors: Vec<JavaError>,
}

impl JavaRun {
    /// Waits for the first hold, so that what follows finds the run in full swing.
    pub async fn first_hold(&mut self) -> Result<Hold, JavaError> {
        let line = next_line(&mut self.0, Duration::from_secs(30)).await?;
        hold(&line).ok_or_else(|| thrown(&line))
    }

    /// Waits for the closing line.
    pub async fn report(self) -> Result<RunReport, JavaError> {
        self.report_within(Duration::from_secs(60)).await
    }

    /// The same, when the run tells nothing for so long.
    pub async fn report_within(mut self, silence: Duration) -> Result<RunReport, JavaError> {
        let mut report = RunReport { holds: Vec::new(), attempts: 0, count: 0, refused: 0, errors: Vec::new() };
        loop {
            let line = next_line(&mut self.0, silence).await?;
            if let Some(hold) = hold(&line) {
                report.holds.push(hold);
            } else if let Some(attempts) = line["attempts"].as_u64() {
                report.attempts = attempts;
                report.count = line["holds"].as_u64().unwrap_or(0);
                report.refused = line["refused"].as_u64().unwrap_or(0);
                return Ok(report);
            } else {
                report.errors.push(thrown(&line));
            }
        }
    }
}

/// What the `value` of an answer can be read as.
pub trait FromAnswer: Sized + Send {
    /// `None` when it is something else.
    fn from_answer(value: &Value) -> Option<Self>;
}

impl FromAnswer for () {
    fn from_answer(value: &Value) -> Option<Self> {
        value.as_null()
    }
}

impl FromAnswer for bool {
    fn from_answer(value: &Value) -> Option<Self> {
        value.as_bool()
    }
}

impl<T: FromAnswer> FromAnswer for Option<T> {
    fn from_answer(value: &Value) -> Option<Self> {
        if value.is_null() { Some(None) } else { T::from_answer(value).map(Some) }
    }
}

impl FromAnswer for i64 {
    fn from_answer(value: &Value) -> Option<Self> {
        value.as_i64()
    }
}

/// Who waits for lines with which id.
#[derive(Clone, Debug, Default)]
struct Waiting(Arc<Mutex<HashMap<String, UnboundedSender<Value>>>>);

impl Waiting {
    fn insert(&self, id: &str, sender: UnboundedSender<Value>) {
        locked(&self.0).insert(id.to_owned(), sender);
    }

    fn remove(&self, id: &str) {
        locked(&self.0).remove(id);
    }

    /// Hands out the lines until the process ends; those who still wait see their channel close then.
    fn deliver(&self, stdout: ChildStdout) {
        for line in BufReader::new(stdout).lines().map_while(Result::ok) {
            let value: Value = serde_json::from_str(&line).unwrap_or(Value::String(line));
            let id = value["id"].as_str().unwrap_or_default().to_owned();
            let is_last = value.get("event").is_none();
            if let Some(sender) = locked(&self.0).get(&id) {
                // Nobody listens when the reply was dropped.
                let _ = sender.send(value);
            }
            if is_last {
                self.remove(&id);
            }
        }
        locked(&self.0).clear();
    }
}

async fn next_line(lines: &mut UnboundedReceiver<Value>, limit: Duration) -> Result<Value, JavaError> {
    timeout(limit, lines.recv()).await.map_err(|_| JavaError::TimedOut)?.ok_or(JavaError::Gone)
}

fn hold(line: &Value) -> Option<Hold> {
    Some(Hold { start_us: line["start_us"].as_u64()?, end_us: line["end_us"].as_u64()? })
}

fn thrown(line: &Value) -> JavaError {
    match (line["error"].as_str(), line["message"].as_str()) {
        (Some(class), Some(message)) => JavaError::Thrown { class: class.into(), message: message.into() },
        _ => JavaError::Unreadable(line.to_string()),
    }
}

/// Percent-encoding, of everything that is not a plain character of a word.
fn encoded(byte: u8) -> String {
    match byte {
        b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' | b'.' => char::from(byte).to_string(),
        _ => format!("%{byte:02X}"),
    }
}

/// The maps behind these locks stay whole whatever panics beside them.
fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
