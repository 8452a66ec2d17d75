//! One node's connection: the only file that talks to `redis::aio`.
//!
//! A connection is a chain of links. A link that breaks, or lets a reply wait longer than the response timeout, is aborted
//! (its socket closes with linger 0, so nothing of it is sent later) and a successor is opened with back-off. Before a
//! successor is used it kills the old link on the server by id; from then on no command of the old link can run any more.
//! That is the *barrier* behind which an unknown outcome may be asked for.

mod socket;

use std::{
    io,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use parking_lot::{Mutex, RwLock};
use redis::{
    AsyncConnectionConfig, Cmd, ProtocolVersion, PushInfo, RedisError, ServerErrorKind, Value,
    aio::MultiplexedConnection, cmd,
};
use tokio::{
    runtime::Handle,
    sync::{Notify, watch},
    time::{Instant, error::Elapsed, sleep, timeout},
};

use crate::config::Target;

const FIRST_BACKOFF: Duration = Duration::from_millis(20);
const LAST_BACKOFF: Duration = Duration::from_secs(1);
/// Between links that open but do not last.
const SHORT_LIVED_BACKOFF: Duration = Duration::from_millis(100);
/// Commands that may wait for the writer; beyond it senders wait their turn in order.
const WRITE_QUEUE: usize = 1024;
/// Links whose end could not be enforced, remembered for those who still ask.
const REMEMBERED_UNBARRED: usize = 1024;

/// Which of a chain's links; counts up.
pub(crate) type Epoch = u64;

/// A call of a script: `EVALSHA` as it goes out, and the source for a server that does not know it yet.
#[derive(Clone)]
pub(crate) struct Invocation {
    pub(crate) source: &'static str,
    pub(crate) evalsha: Cmd,
}

/// Why a command has no reply.
#[derive(Debug)]
pub(crate) enum RunError {
    /// The connection was closed by its owner; the command was not sent.
    Closed,
    /// Never sent: no link within the response timeout.
    NotSent(RedisError),
    /// The server answered with an error.
    Refused(RedisError),
    /// Sent on the link of this epoch, which is broken now; the server may have run it, or may yet.
    Unresolved(Epoch, RedisError),
}

impl RunError {
    /// The cause, for those who do not care whether it was sent.
    pub(crate) fn into_source(self) -> Option<RedisError> {
        match self {
            Self::Closed => None,
            Self::NotSent(e) | Self::Refused(e) | Self::Unresolved(_, e) => Some(e),
        }
    }
}

/// What is known of the end of a broken link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Barrier {
    /// Nothing that was sent on it can run any more.
    Passed,
    /// A successor is up, but the old link could not be killed: its commands may still run.
    Impossible,
    /// The connection was closed; there will be no successor.
    Closed,
}

/// Receives pushed messages, on the connection's own task: it must be quick.
pub(crate) type OnPush = Arc<dyn Fn(PushInfo) + Send + Sync>;
/// What happens to a chain of links.
#[derive(Clone, Copy, Debug)]
pub(crate) enum LinkEvent<'a> {
    /// The link of this epoch is up, after the barrier.
    Up(Epoch),
    Down,
    /// A link could not be opened; it is tried again.
    Failed(&'a RedisError),
}

/// Told of what happens to the links; it must be quick.
pub(crate) type OnChange = Arc<dyn Fn(LinkEvent<'_>) + Send + Sync>;

/// A connection that mends itself.
pub(crate) struct Connection {
    shared: Arc<Shared>,
    runtime: Handle,
    started: AtomicBool,
}

impl Connection {
    pub(crate) fn new(target: Target, runtime: Handle, on_push: Option<OnPush>, on_change: Option<OnChange>) -> Self {
        let shared = Shared {
            target,
            on_push,
            on_change,
            live: RwLock::new(None),
            status: watch::Sender::new(Status::default()),
            events: Mutex::new(()),
            unbarred: Mutex::new(Vec::new()),
        };
        Self { shared: Arc::new(shared), runtime, started: AtomicBool::new(false) }
    }

    /// Opens the first link in the background; later calls do nothing.
    pub(crate) fn start(&self) {
        if !self.started.swap(true, Ordering::AcqRel) {
            let shared = self.shared.clone();
            self.runtime.spawn(async move { shared.supervise().await });
        }
    }

    /// Waits for the first link; its first failure is returned at once.
    pub(crate) async fn ready(&self) -> Result<(), RedisError> {
        let mut status = self.shared.status.subscribe();
        let seen = status.wait_for(|s| s.up > 0 || s.closed || s.failure.is_some()).await;
        match seen {
            Ok(s) if s.up > 0 => Ok(()),
            Ok(s) => Err(s.failure.clone().unwrap_or_else(|| unreachable_error("closed"))),
            Err(_) => Err(unreachable_error("closed")),
        }
    }

    pub(crate) fn is_up(&self) -> bool {
        self.shared.live.read().is_some()
    }

    pub(crate) fn address(&self) -> String {
        self.shared.target.address.to_string()
    }

    /// Runs a script. A script that the server does not know is loaded and repeated in one go, unless `wanted` says that
    /// nobody waits for it any more.
    pub(crate) async fn run(&self, call: &Invocation, wanted: impl Fn() -> bool) -> Result<Value, RunError> {
        let link = match self.present_link() {
            Some(link) => link,
            None => self.next_link().await?,
        };
        match self.exchange(&link, &call.evalsha).await {
            Err(RunError::Refused(e)) if is_noscript(&e) && wanted() => self.load_and_repeat(&link, call).await,
            other => other,
        }
    }

    /// Runs a plain command.
    pub(crate) async fn command(&self, command: &Cmd) -> Result<Value, RunError> {
        let link = match self.present_link() {
            Some(link) => link,
            None => self.next_link().await?,
        };
        self.exchange(&link, command).await
    }

    /// Runs a plain command on the link of this epoch and on no other.
    pub(crate) async fn command_on(&self, epoch: Epoch, command: &Cmd) -> Result<Value, RunError> {
        match self.present_link() {
            Some(link) if link.epoch == epoch => self.exchange(&link, command).await,
            _ => Err(RunError::NotSent(unreachable_error("that link is gone"))),
        }
    }

    /// Waits until nothing that was sent on the link of `epoch` can run any more, or until it is clear that this cannot be had.
    pub(crate) async fn barrier(&self, epoch: Epoch) -> Barrier {
        let mut status = self.shared.status.subscribe();
        match status.wait_for(|s| s.closed || s.up > epoch).await {
            Ok(s) if !s.closed => {
                drop(s);
                if self.shared.unbarred.lock().contains(&epoch) { Barrier::Impossible } else { Barrier::Passed }
            }
            _ => Barrier::Closed,
        }
    }

    /// Ends the chain. Commands in flight fail as unresolved.
    pub(crate) fn close(&self) {
        self.shared.status.send_modify(|s| s.closed = true);
        if let Some(link) = self.shared.live.write().take() {
            link.broken.notify_one();
        }
    }

    fn present_link(&self) -> Option<Link> {
        self.shared.live.read().clone()
    }

    /// Waits for a link. Boxed, as all that is rare: what is common stays small.
    fn next_link(&self) -> Pin<Box<dyn Future<Output = Result<Link, RunError>> + Send + '_>> {
        Box::pin(async {
            let mut status = self.shared.status.subscribe();
            let deadline = Instant::now() + self.shared.target.response_timeout;
            loop {
                if status.borrow_and_update().closed {
                    return Err(RunError::Closed);
                }
                if let Some(link) = self.present_link() {
                    return Ok(link);
                }
                if !matches!(tokio::time::timeout_at(deadline, status.changed()).await, Ok(Ok(()))) {
                    let failure = status.borrow().failure.clone();
                    let failure = failure.unwrap_or_else(|| unreachable_error("no connection within response_timeout"));
                    return Err(RunError::NotSent(failure));
                }
            }
        })
    }

    async fn exchange(&self, link: &Link, command: &Cmd) -> Result<Value, RunError> {
        let mut con = link.con.clone();
        let reply = timeout(self.shared.target.response_timeout, con.send_packed_command(command)).await;
        self.judge(link, reply)
    }

    fn load_and_repeat<'a>(
        &'a self,
        link: &'a Link,
        call: &'a Invocation,
    ) -> Pin<Box<dyn Future<Output = Result<Value, RunError>> + Send + 'a>> {
        Box::pin(async move {
            let mut both = redis::Pipeline::with_capacity(2);
            both.add_command(cmd("SCRIPT").arg("LOAD").arg(call.source).to_owned());
            both.add_command(call.evalsha.clone());
            let mut con = link.con.clone();
            let replies = timeout(self.shared.target.response_timeout, con.send_packed_commands(&both, 0, 2)).await;
            // A script that may not be loaded is the reason, not that it is unknown.
            let telling = |mut replies: Vec<Value>| match replies.first() {
                Some(Value::ServerError(_)) => replies.swap_remove(0),
                _ => replies.pop().unwrap_or_default(),
            };
            self.judge(link, replies.map(|replies| replies.map(telling)))
        })
    }

    /// Redis answers in order, so a reply that does not come within the response timeout means that the whole link is
    /// silent: it is given up.
    fn judge(&self, link: &Link, reply: Result<Result<Value, RedisError>, Elapsed>) -> Result<Value, RunError> {
        let failure = match reply {
            Ok(Ok(value)) => return value.extract_error().map_err(RunError::Refused),
            Ok(Err(e)) if !e.is_unrecoverable_error() && !e.is_io_error() && !e.is_timeout() => {
                return Err(RunError::Refused(e));
            }
            Ok(Err(e)) => e,
            Err(_) => {
                let patience = self.shared.target.response_timeout;
                io::Error::new(io::ErrorKind::TimedOut, format!("no reply within {patience:?}")).into()
            }
        };
        self.shared.give_up(link);
        Err(RunError::Unresolved(link.epoch, failure))
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.close();
    }
}

#[derive(Clone)]
struct Link {
    epoch: Epoch,
    con: MultiplexedConnection,
    broken: Arc<Notify>,
}

#[derive(Clone, Debug, Default)]
struct Status {
    /// Epoch of the newest link that was up; 0 for none yet.
    up: Epoch,
    is_up: bool,
    closed: bool,
    failure: Option<RedisError>,
}

struct Shared {
    target: Target,
    on_push: Option<OnPush>,
    on_change: Option<OnChange>,
    live: RwLock<Option<Link>>,
    status: watch::Sender<Status>,
    /// Ups and downs are told one after the other.
    events: Mutex<()>,
    /// Epochs of links that ended without a barrier.
    unbarred: Mutex<Vec<Epoch>>,
}

/// What the server calls a link, and which server run that was.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Identity {
    client: Option<i64>,
    server_run: Option<String>,
}

impl Shared {
    async fn supervise(self: Arc<Self>) {
        let mut closed = self.status.subscribe();
        let mut to_kill: Vec<(Epoch, Identity)> = Vec::new();
        let mut pause = Duration::ZERO;
        for epoch in 1.. {
            let begun = Instant::now();
            let opened = tokio::select! {
                opened = self.open_with_backoff(&to_kill) => opened,
                _ = closed.wait_for(|s| s.closed) => return,
            };
            self.remember_unbarred(opened.unbarred);
            to_kill.clear();
            let link = Link { epoch, con: opened.con, broken: Arc::new(Notify::new()) };
            {
                let _in_order = self.events.lock();
                *self.live.write() = Some(link.clone());
                self.status.send_modify(|s| (s.up, s.is_up, s.failure) = (epoch, true, None));
                self.tell(LinkEvent::Up(epoch));
            }
            tokio::select! {
                () = opened.driver => {}
                () = link.broken.notified() => {}
                _ = closed.wait_for(|s| s.closed) => {}
            }
            self.take_down(epoch);
            to_kill.push((epoch, opened.identity));
            if self.status.borrow().closed {
                return;
            }
            // A server that breaks link after link is not hammered.
            let short_lived = begun.elapsed() < LAST_BACKOFF;
            pause = if short_lived { (pause * 2).clamp(FIRST_BACKOFF, SHORT_LIVED_BACKOFF) } else { Duration::ZERO };
            sleep(pause).await;
        }
    }

    async fn open_with_backoff(&self, to_kill: &[(Epoch, Identity)]) -> Opened {
        let mut pause = FIRST_BACKOFF;
        loop {
            match self.open(to_kill).await {
                Ok(opened) => return opened,
                Err(e) => {
                    self.tell(LinkEvent::Failed(&e));
                    self.status.send_modify(|s| s.failure = Some(e));
                }
            }
            sleep(pause).await;
            pause = (pause * 2).min(LAST_BACKOFF);
        }
    }

    /// Opens a link: connect, log in, learn its id, kill its predecessors.
    async fn open(&self, to_kill: &[(Epoch, Identity)]) -> Result<Opened, RedisError> {
        let stream = within(self.target.connect_timeout, socket::connect(&self.target.address)).await?;
        let mut config = AsyncConnectionConfig::new().set_response_timeout(None).set_pipeline_buffer_size(WRITE_QUEUE);
        let mut login = self.target.login.clone();
        if let Some(push) = self.on_push.clone() {
            login = login.set_protocol(ProtocolVersion::RESP3);
            config = config.set_push_sender(move |info| {
                push(info);
                Ok::<_, std::convert::Infallible>(())
            });
        }
        let connecting = async {
            let (con, driver) = MultiplexedConnection::new_with_config(&login, stream, config).await?;
            Ok((con, Box::pin(driver) as Driver))
        };
        let (mut con, mut driver) = within(self.target.connect_timeout, connecting).await?;
        let (identity, unbarred) = tokio::select! {
            learned = within(self.target.connect_timeout, introduce(&mut con, to_kill)) => learned?,
            () = &mut driver => return Err(unreachable_error("the connection broke while it was set up")),
        };
        Ok(Opened { con, driver, identity, unbarred })
    }

    fn remember_unbarred(&self, mut epochs: Vec<Epoch>) {
        let mut all = self.unbarred.lock();
        all.append(&mut epochs);
        let surplus = all.len().saturating_sub(REMEMBERED_UNBARRED);
        all.drain(..surplus);
    }

    fn give_up(&self, link: &Link) {
        self.take_down(link.epoch);
        link.broken.notify_one();
    }

    fn take_down(&self, epoch: Epoch) {
        let _in_order = self.events.lock();
        {
            let mut live = self.live.write();
            if live.as_ref().is_none_or(|l| l.epoch != epoch) {
                return;
            }
            *live = None;
        }
        self.status.send_modify(|s| s.is_up = false);
        self.tell(LinkEvent::Down);
    }

    fn tell(&self, event: LinkEvent<'_>) {
        if let Some(tell) = &self.on_change {
            tell(event);
        }
    }
}

/// Moves bytes in both directions; dropping it closes the socket.
type Driver = Pin<Box<dyn Future<Output = ()> + Send>>;

struct Opened {
    con: MultiplexedConnection,
    driver: Driver,
    identity: Identity,
    unbarred: Vec<Epoch>,
}

/// Learns the link's id, then kills its predecessors. Returns the epochs that may still run commands.
async fn introduce(
    con: &mut MultiplexedConnection,
    to_kill: &[(Epoch, Identity)],
) -> Result<(Identity, Vec<Epoch>), RedisError> {
    let id = reply(con, cmd("CLIENT").arg("ID")).await?;
    let run = reply(con, cmd("INFO").arg("server")).await?;
    let identity = Identity {
        client: match id {
            Some(Value::Int(id)) => Some(id),
            _ => None,
        },
        server_run: run.and_then(|v| redis::from_redis_value::<String>(v).ok()).and_then(|text| run_id(&text)),
    };
    let mut unbarred = Vec::new();
    for (epoch, old) in to_kill {
        let runs_known = old.server_run.is_some() && identity.server_run.is_some();
        let other_run = runs_known && old.server_run != identity.server_run;
        // Ids only grow within a run of the server.
        let not_after = old.client.is_some() && identity.client.is_some() && identity.client <= old.client;
        if other_run || (not_after && !runs_known) {
            continue; // that server process is gone and its connections with it
        }
        if not_after {
            // Something between us and the server hands out its own connections: ids say nothing.
            unbarred.push(*epoch);
            continue;
        }
        let killed = match old.client {
            Some(id) => reply(con, cmd("CLIENT").arg("KILL").arg("ID").arg(id)).await?,
            None => None,
        };
        if !matches!(killed, Some(Value::Int(_))) {
            unbarred.push(*epoch);
        }
    }
    Ok((identity, unbarred))
}

/// `Ok(None)` when the server refuses the command; an error when the link is broken.
async fn reply(con: &mut MultiplexedConnection, command: &Cmd) -> Result<Option<Value>, RedisError> {
    match con.send_packed_command(command).await.and_then(Value::extract_error) {
        Ok(value) => Ok(Some(value)),
        Err(e) if e.is_unrecoverable_error() || e.is_io_error() => Err(e),
        Err(e) if matches!(e.kind(), redis::ErrorKind::Server(ServerErrorKind::BusyLoading)) => Err(e),
        Err(e) if e.code() == Some("NOAUTH") => Err(e),
        Err(_) => Ok(None),
    }
}

fn run_id(info: &str) -> Option<String> {
    info.lines().find_map(|line| line.strip_prefix("run_id:")).map(|id| id.trim().to_owned())
}

fn is_noscript(e: &RedisError) -> bool {
    matches!(e.kind(), redis::ErrorKind::Server(ServerErrorKind::NoScript))
}

fn unreachable_error(why: &str) -> RedisError {
    io::Error::new(io::ErrorKind::NotConnected, why.to_owned()).into()
}

async fn within<T>(limit: Duration, work: impl Future<Output = Result<T, RedisError>>) -> Result<T, RedisError> {
    match timeout(limit, work).await {
        Ok(result) => result,
        Err(_) => Err(io::Error::new(io::ErrorKind::TimedOut, format!("no connection within {limit:?}")).into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_servers_run_is_read_from_info() {
        assert_eq!(run_id("# Server\r\nredis_version:7.0.15\r\nrun_id:abc123\r\n"), Some("abc123".to_owned()));
        assert_eq!(run_id("# Server\r\n"), None);
    }
}
